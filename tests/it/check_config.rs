//! `muster check-config`: the shipped files pass, and each trap is found by name.

use muster::commands::check_config::check;
use muster::config::Config;
use muster::testbed::repository;
use muster::testbed::settings::read_yaml;
use serde_json::{Value, json};

fn shipped(name: &str) -> Value {
    read_yaml(&repository().join("scheduler-config").join(name)).unwrap().remove(0)
}

fn default_config() -> Config {
    Config::parse("schedulerNames: [default-scheduler]", "muster.yaml").unwrap()
}

fn own_config() -> Config {
    Config::parse("", "muster.yaml").unwrap()
}

/// The findings as lines.
fn lines(document: &Value, config: &Config) -> Vec<String> {
    check(std::slice::from_ref(document), config).iter().map(ToString::to_string).collect()
}

/// Exactly one finding, which contains every part.
#[track_caller]
fn finds(document: &Value, config: &Config, parts: &[&str]) {
    let lines = lines(document, config);
    let found: Vec<&String> = lines.iter().filter(|line| parts.iter().all(|part| line.contains(part))).collect();
    assert_eq!(found.len(), 1, "{parts:?} in {lines:#?}");
}

fn changed(file: &str, change: impl FnOnce(&mut Value)) -> Value {
    let mut document = shipped(file);
    change(&mut document);
    document
}

const OWN: &str = "own-scheduler.yaml";
const DEFAULT: &str = "default-scheduler.yaml";

#[test]
fn the_shipped_configurations_are_without_errors() {
    assert_eq!(lines(&shipped(OWN), &own_config()), Vec::<String>::new());
    let lines = lines(&shipped(DEFAULT), &default_config());
    assert_eq!(lines.len(), 1, "{lines:?}");
    assert!(lines[0].starts_with("warning: percentageOfNodesToScore: is unset"), "{lines:?}");
}

#[test]
fn what_breaks_up_gangs_is_an_error_in_both_shapes() {
    for (file, config) in [(OWN, own_config()), (DEFAULT, default_config())] {
        let last = shipped(file)["extenders"].as_array().unwrap().len() - 1;
        let set =
            |key: &'static str, value: Value| changed(file, move |document| document["extenders"][last][key] = value);
        finds(&set("ignorable", json!(true)), &config, &["error", "ignorable", "pod by pod"]);
        finds(&set("nodeCacheCapable", json!(false)), &config, &["error", "nodeCacheCapable"]);
        finds(&set("bindVerb", json!("")), &config, &["error", "bindVerb"]);
        finds(&set("httpTimeout", json!("30s")), &config, &["error", "httpTimeout", "30s", "60s"]);
        finds(&set("bindVerb", json!("commit")), &config, &["error", "bindVerb", "commit", "Muster answers bind"]);
        finds(
            &set("managedResources", json!([{"name": "nvidia.com/gpu", "ignoredByScheduler": true}])),
            &config,
            &["error", "managedResources", "ignoredByScheduler"],
        );
        finds(&set("urlPrefix", json!("http://127.0.0.1:8888/other")), &config, &["error", "extenders"]);
    }
}

#[test]
fn a_missing_verb_is_an_error_that_says_what_it_would_mean() {
    for (verb, means) in [("filterVerb", "anywhere"), ("preemptVerb", "evicted in part"), ("prioritizeVerb", "spread")]
    {
        let document = changed(OWN, |document| document["extenders"][0][verb] = Value::Null);
        finds(&document, &own_config(), &["error", verb, means]);
    }
    let swapped = changed(OWN, |document| document["extenders"][1]["filterVerb"] = json!("filter"));
    finds(&swapped, &own_config(), &["error", "/v1/bind does not answer filter"]);
    let two = changed(OWN, |document| {
        let other = json!({"urlPrefix": "http://other", "bindVerb": "bind"});
        document["extenders"].as_array_mut().unwrap().push(other);
    });
    finds(&two, &own_config(), &["error", "more than one entry has bindVerb"]);
}

#[test]
fn an_own_scheduler_sees_every_pod_and_every_node() {
    let managed = changed(OWN, |document| {
        document["extenders"][0]["managedResources"] = json!([{"name": "nvidia.com/gpu"}]);
    });
    finds(&managed, &own_config(), &["error", "extenders[0].managedResources", "leave it out"]);
    let sampled = changed(OWN, |document| document["profiles"][0]["percentageOfNodesToScore"] = json!(50));
    finds(&sampled, &own_config(), &["error", "profiles[0].percentageOfNodesToScore", "50", "100"]);
    let unset = changed(OWN, |document| document["profiles"][0]["percentageOfNodesToScore"] = Value::Null);
    finds(&unset, &own_config(), &["error", "percentageOfNodesToScore", "unset"]);
    let global = changed(OWN, |document| {
        document["profiles"][0]["percentageOfNodesToScore"] = Value::Null;
        document["percentageOfNodesToScore"] = json!(100);
    });
    assert_eq!(lines(&global, &own_config()), Vec::<String>::new());
    let renamed = changed(OWN, |document| document["profiles"][0]["schedulerName"] = json!("gangs"));
    finds(&renamed, &own_config(), &["error", "profiles", "muster", "gangs"]);
}

#[test]
fn a_default_scheduler_has_one_entry_for_the_accelerators_of_the_pools() {
    let every = changed(DEFAULT, |document| document["extenders"][0]["managedResources"] = json!([]));
    finds(&every, &default_config(), &["error", "managedResources", "every pod"]);
    let other = changed(DEFAULT, |document| {
        document["extenders"][0]["managedResources"] = json!([{"name": "example.com/fpga"}]);
    });
    finds(&other, &default_config(), &["error", "managedResources", "example.com/fpga"]);
    finds(&other, &default_config(), &["error", "managedResources", "lacks nvidia.com/gpu", "never sent to Muster"]);
    let more =
        Config::parse("schedulerNames: [default-scheduler]\naccelerators: [nvidia.com/gpu, example.com/npu]", "");
    finds(&shipped(DEFAULT), more.as_ref().unwrap(), &["error", "lacks example.com/npu", "add it to managedResources"]);
    let two = changed(DEFAULT, |document| {
        let entry = document["extenders"][0].clone();
        document["extenders"].as_array_mut().unwrap().push(entry);
    });
    finds(&two, &default_config(), &["error", "two entries of Muster"]);
    let whole = changed(DEFAULT, |document| document["percentageOfNodesToScore"] = json!(100));
    assert_eq!(lines(&whole, &default_config()), Vec::<String>::new());
}

#[test]
fn a_low_weight_is_a_warning() {
    let document = changed(OWN, |document| document["extenders"][0]["weight"] = json!(120));
    finds(&document, &own_config(), &["warning", "extenders[0].weight", "120", "150"]);
}

#[test]
fn https_needs_an_authority_and_a_client_certificate() {
    let https = |tls: Value| {
        changed(OWN, move |document| {
            document["extenders"][0]["urlPrefix"] = json!("https://10.0.0.7:8888/v1/sync");
            document["extenders"][0]["enableHTTPS"] = json!(true);
            document["extenders"][0]["tlsConfig"] = tls;
        })
    };
    let bare = https(Value::Null);
    finds(&bare, &own_config(), &["error", "enableHTTPS", "trusts any server"]);
    finds(&bare, &own_config(), &["error", "tlsConfig", "client certificate"]);
    let whole = https(json!({"caFile": "/ca", "certFile": "/crt", "keyFile": "/key"}));
    assert_eq!(lines(&whole, &own_config()), Vec::<String>::new());
}

#[test]
fn a_file_of_another_kind_is_refused() {
    finds(&json!({"kind": "Deployment"}), &own_config(), &["error", "no KubeSchedulerConfiguration"]);
}
