//! Explanations of gangs, pods and nodes, as text and as JSON.

use muster_replay::command::{self, Arguments, Format};
use muster_replay::dump::Input;
use muster_replay::explain::{ALL_NAMESPACES, Target};
use muster_replay::record::{self, Record};
use serde_json::{Value, json};

use crate::support::{dump, names};

fn ask(text: &str, target: &Target, format: Format) -> Result<String, String> {
    let arguments = Arguments { files: vec![Input { name: "dump.yaml", text }], format, ..Arguments::default() };
    command::explain(&arguments, target).map(|output| output.text).map_err(|error| error.to_string())
}

fn gang(name: &str) -> Target {
    Target::Gang { namespace: "team-a".to_owned(), name: name.to_owned() }
}

fn node(name: &str) -> Target {
    Target::Node { name: name.to_owned() }
}

fn json(text: &str, target: &Target) -> Value {
    serde_json::from_str(&ask(text, target, Format::Json).unwrap()).unwrap()
}

#[track_caller]
fn says(text: &str, parts: &[&str]) {
    for part in parts {
        assert!(text.contains(part), "{part:?} is not in:\n{text}");
    }
}

#[test]
fn a_refused_gang_is_reported_level_by_level_with_what_blocks_and_what_would_help() {
    let text = ask(&dump("refused"), &gang("train"), Format::Table).unwrap();
    says(
        &text,
        &[
            "gang team-a/train waits: needs capacity for 4 members in one layer-3; the best, us-east-1a/nn-1/nn-2/nn-a, has capacity for 2\n",
            "  1. Change muster.dev/topology-required to layer-2. [DoesNotFit]\n",
            "1 node: ",
        ],
    );
    let reported = json(&dump("refused"), &gang("train"));
    assert_eq!((&reported["version"], &reported["kind"]), (&1.into(), &"gang".into()));
    assert_eq!(reported["blocking"][0]["nodes"], 1);
    let leaf = reported["levels"].as_array().unwrap().iter().find(|level| level["name"] == "layer-3").unwrap();
    assert_eq!((&leaf["best"]["holds"], &leaf["best"]["short"]), (&2.into(), &2.into()));
    assert_eq!(leaf["best"]["required"], true);
}

#[test]
fn a_gang_that_waits_beside_a_pool_that_cannot_be_read_is_reported_with_that_pool() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/remedies");
    let text = std::fs::read_to_string(folder.join("beside.yaml")).unwrap();
    let wrong = text.replace(r#""nodes": "1""#, r#""nodes": "one""#);
    assert_ne!(text, wrong);
    let ignored = "ignored:\n  NodePool gpu: spec.limits.nodes: \"one\" is not a quantity\n";
    says(&ask(&wrong, &gang("train"), Format::Table).unwrap(), &[ignored]);
    assert_eq!(json(&wrong, &gang("train"))["ignored"][0]["name"], "gpu");
    assert!(!ask(&text, &gang("train"), Format::Table).unwrap().contains("ignored"));
    // Who has a place needs none of it.
    let enough =
        wrong.replace(r#""muster.dev/gang-size": "3""#, r#""muster.dev/gang-size": "3", "muster.dev/gang-min": "1""#);
    let placed = ask(&enough, &gang("train"), Format::Table).unwrap();
    assert!(placed.contains("fits now") && !placed.contains("ignored"), "{placed}");
}

#[test]
fn a_gang_that_is_provisioned_names_every_candidate_with_its_price() {
    let text = ask(&dump("buy"), &gang("next"), Format::Table).unwrap();
    says(
        &text,
        &[
            "gang team-a/next gets 3 new nodes for $65.87/h: needs capacity for 3 members",
            "provisions 3 p4d.24xlarge on-demand in us-east-1b",
            "$65.87/h",
            "cannot be provisioned",
            "LimitReached",
        ],
    );
    let reported = json(&dump("buy"), &gang("next"));
    let candidates = reported["candidates"].as_array().unwrap();
    assert_eq!(candidates.iter().filter(|candidate| candidate["chosen"] == true).count(), 1);
    let prices: Vec<u64> =
        candidates.iter().map(|candidate| candidate["totalUsdMicroPerHour"].as_u64().unwrap()).collect();
    assert!(!prices.is_empty() && prices.is_sorted(), "{prices:?}");
}

#[test]
fn a_placed_gang_says_where_every_member_goes_and_how_far_that_is_from_the_best() {
    let text = ask(&dump("leaf"), &gang("train"), Format::Table).unwrap();
    says(&text, &["gang team-a/train fits now: ", "OPTIMUM", "SCORE NOW", "RING CROSSINGS", "RANK", "planned"]);
}

#[test]
fn a_pod_is_given_its_place_or_why_it_has_none() {
    let pod = |name: &str| Target::Pod { namespace: "team-a".to_owned(), name: name.to_owned() };
    let text = ask(&dump("growth"), &pod("train-1"), Format::Table).unwrap();
    says(&text, &["pod team-a/train-1", "is rank 1 of gang train and goes to a-3"]);
    let text = ask(&dump("growth"), &pod("train-0"), Format::Table).unwrap();
    says(&text, &["is rank 0 of gang train and runs on a-1"]);
    let text = ask(&dump("refused"), &pod("train-0"), Format::Table).unwrap();
    says(&text, &["is a member of gang train", "gang team-a/train waits: needs capacity for 4 members"]);
    let error = ask(&dump("growth"), &pod("train-9"), Format::Table).unwrap_err();
    says(&error, &["there is no pod team-a/train-9", "train-0"]);
}

#[test]
fn what_is_asked_for_in_the_wrong_namespace_is_answered_with_the_right_one() {
    let namespace = "ml".to_owned();
    let wrong = Target::Gang { namespace: namespace.clone(), name: "train".to_owned() };
    let error = ask(&dump("growth"), &wrong, Format::Table).unwrap_err();
    assert_eq!(error, "there is no gang ml/train; it exists in namespace team-a: use -n team-a");
    let wrong = Target::Pod { namespace, name: "train-0".to_owned() };
    let error = ask(&dump("growth"), &wrong, Format::Table).unwrap_err();
    assert_eq!(error, "there is no pod ml/train-0; it exists in namespace team-a: use -n team-a");
}

#[test]
fn all_namespaces_are_looked_through_and_two_of_one_name_are_kept_apart_by_theirs() {
    let everywhere = |name: &str| Target::Gang { namespace: ALL_NAMESPACES.to_owned(), name: name.to_owned() };
    let text = ask(&dump("growth"), &everywhere("train"), Format::Table).unwrap();
    says(&text, &["gang team-a/train"]);
    let pod = Target::Pod { namespace: ALL_NAMESPACES.to_owned(), name: "train-1".to_owned() };
    says(&ask(&dump("growth"), &pod, Format::Table).unwrap(), &["pod team-a/train-1"]);
    let twice = format!("{}\n---\n{}", dump("growth"), dump("growth").replace("namespace: team-a", "namespace: ml"));
    let error = ask(&twice, &everywhere("train"), Format::Table).unwrap_err();
    assert_eq!(error, "there is more than one gang train; it exists in namespaces ml and team-a: use -n ml");
    let error = ask(&twice, &pod, Format::Table).unwrap_err();
    assert_eq!(error, "there is more than one pod train-1; it exists in namespaces ml and team-a: use -n ml");
}

#[test]
fn a_node_says_who_holds_it_to_whom_it_is_assigned_and_why_gangs_skip_it() {
    let text = ask(&dump("promised"), &node("b-0"), Format::Table).unwrap();
    says(&text, &["node b-0 is Ready", "assigned to:", "team-a/steady-0 of gang steady, by a persisted plan"]);
    says(&text, &["team-a/urgent (placed) skips it"]);
    let text = ask(&dump("growth"), &node("a-1"), Format::Table).unwrap();
    says(&text, &["held by:", "team-a/train-0 of gang train: ", "nvidia.com/gpu"]);
    let text = ask(&dump("refused"), &node("c-0"), Format::Table).unwrap();
    says(
        &text,
        &["cordoned", "taint node.kubernetes.io/unschedulable:NoSchedule", "team-a/train (refused) skips it: "],
    );
    assert_eq!(ask(&dump("refused"), &node("none"), Format::Table).unwrap_err(), "there is no node none");
}

#[test]
fn a_gang_is_found_by_its_name_and_by_that_of_its_object() {
    let error = ask(&dump("order"), &gang("nobody"), Format::Table).unwrap_err();
    says(&error, &["there is no gang team-a/nobody", "old, urgent, young"]);
    let elsewhere = Target::Gang { namespace: "default".to_owned(), name: "nobody".to_owned() };
    let error = ask(&dump("order"), &elsewhere, Format::Table).unwrap_err();
    says(&error, &["there is no gang default/nobody; there are team-a/old, team-a/urgent, team-a/young"]);
    let text = ask(&dump("order"), &gang("young"), Format::Table).unwrap();
    says(&text, &["2 gangs are planned before it"]);
}

#[test]
fn an_explanation_agrees_with_the_plan_of_the_same_dump() {
    for name in names() {
        let text = dump(&name);
        let document = crate::support::document(&text);
        for entry in document["gangs"].as_array().unwrap() {
            let target = Target::Gang {
                namespace: entry["namespace"].as_str().unwrap().to_owned(),
                name: entry["name"].as_str().unwrap().to_owned(),
            };
            let reported = json(&text, &target);
            for key in ["outcome", "members", "roles", "gap", "reasons"] {
                // Two gangs may share a name, distinguished by their owners.
                if reported["object"] == entry["name"] || name != "job" {
                    assert_eq!(reported[key], entry[key], "{name}: {key}");
                }
            }
        }
    }
}

#[test]
fn a_recording_carries_its_settings_and_says_the_same_everywhere() {
    let head = Record {
        time: "2026-07-20T11:00:00Z".parse().unwrap(),
        version: "0.1.0".to_owned(),
        levels: Some(vec![muster_core::topology::Level {
            name: "rack".into(),
            key: "topology.k8s.aws/network-node-layer-3".into(),
        }]),
        scheduler_names: vec!["muster".to_owned()],
        provisioner_scheduler_names: Vec::new(),
        excluded: Vec::new(),
        policy: record::RecordedPolicy::default(),
    };
    let list: Value = serde_saphyr::from_str(&dump("leaf")).unwrap();
    let recording = record::render(&head, list["items"].as_array().unwrap().clone());
    assert!(!recording.contains("managedFields"));
    let document = crate::support::document(&recording);
    assert_eq!(document["now"], "2026-07-20T11:00:00Z");
    let keys: Vec<&Value> =
        document["gangs"][0]["levels"].as_array().unwrap().iter().map(|level| &level["key"]).collect();
    assert_eq!(keys, ["topology.k8s.aws/network-node-layer-3", "kubernetes.io/hostname"]);
    assert!(document["ignored"].as_array().unwrap().is_empty(), "{}", document["ignored"]);
    assert_eq!(crate::support::document(&recording), crate::support::document(&recording));
}

#[test]
fn a_recording_says_which_other_schedulers_are_provisioned_for_and_their_gangs_are_excluded_by_name() {
    let head = |provisioner_scheduler_names: Vec<String>| Record {
        time: "2026-07-20T11:00:00Z".parse().unwrap(),
        version: "0.1.0".to_owned(),
        levels: None,
        scheduler_names: vec!["muster".to_owned()],
        provisioner_scheduler_names,
        excluded: Vec::new(),
        policy: record::RecordedPolicy::default(),
    };
    let pod = |name: &str, annotations: Value| {
        let metadata = json!({"name": name, "namespace": "web", "uid": name, "annotations": annotations});
        let requests = json!({"cpu": "1", "memory": "1Gi"});
        let spec = json!({"schedulerName": "default-scheduler", "containers": [
            {"name": "main", "image": "web", "resources": {"requests": requests}},
        ]});
        json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec, "status": {"phase": "Pending"}})
    };
    let gang = json!({"muster.dev/gang": "g", "muster.dev/gang-size": "1"});
    let planned = |names: Vec<String>| {
        let objects = vec![pod("plain", json!({})), pod("member", gang.clone())];
        let document = crate::support::document(&record::render(&head(names), objects));
        let pods: Vec<String> = document["pods"].as_array().unwrap().iter().map(ToString::to_string).collect();
        assert!(document["gangs"].as_array().unwrap().is_empty(), "{}", document["gangs"]);
        (pods.len(), document["ignored"].to_string())
    };
    assert_eq!(planned(Vec::new()), (0, "[]".to_owned()));
    let (pods, ignored) = planned(vec!["default-scheduler".to_owned()]);
    assert_eq!(pods, 1);
    assert!(ignored.contains("web/member") && ignored.contains("nobody holds the gang together"), "{ignored}");
}
