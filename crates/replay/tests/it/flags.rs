//! Flags: levels, catalogue, moment and policy, each read or refused by name and value.

use muster_replay::catalogue::Catalogue;
use muster_replay::command::{self, Arguments, Format};
use muster_replay::dump::Input;
use serde_json::Value;

use crate::support::dump;

fn run<'a>(text: &'a str, change: impl FnOnce(&mut Arguments<'a>)) -> Result<Value, String> {
    let mut arguments = Arguments {
        files: vec![Input { name: "dump.yaml", text }],
        format: Format::Json,
        scheduler_names: vec!["muster".to_owned()],
        ..Arguments::default()
    };
    change(&mut arguments);
    let output = command::run(&arguments).map_err(|error| error.to_string())?;
    Ok(serde_json::from_str(&output.text).unwrap())
}

#[test]
fn levels_are_those_of_the_flag_with_the_host_appended() {
    let document =
        run(&dump("leaf"), |arguments| arguments.levels = vec!["topology.k8s.aws/network-node-layer-3".to_owned()]);
    let keys: Vec<Value> =
        document.unwrap()["gangs"][0]["levels"].as_array().unwrap().iter().map(|level| level["key"].clone()).collect();
    assert_eq!(keys, ["topology.k8s.aws/network-node-layer-3", "kubernetes.io/hostname"]);
    let error =
        run(&dump("leaf"), |arguments| arguments.levels = vec!["kubernetes.io/hostname".to_owned(), "a".to_owned()]);
    assert!(error.unwrap_err().contains("must be the last"));
}

#[test]
fn the_moment_is_that_of_the_flag() {
    assert_eq!(run(&dump("leaf"), |a| a.now = Some("2027-01-02T03:04:05Z")).unwrap()["now"], "2027-01-02T03:04:05Z");
    assert!(run(&dump("leaf"), |a| a.now = Some("soon")).unwrap_err().contains("soon"));
}

#[test]
fn pods_of_other_schedulers_are_planned_when_they_are_named() {
    let document = run(&dump("pods"), |a| a.scheduler_names = vec!["default-scheduler".to_owned()]).unwrap();
    assert_eq!(document["pods"].as_array().unwrap().len(), 1);
}

#[test]
fn a_policy_is_read_and_an_unknown_key_is_refused_by_name() {
    let policy = |text| Some(Input { name: "policy.yaml", text });
    assert!(run(&dump("leaf"), |a| a.policy = policy("placement: packing\nelastic: inside\n")).is_ok());
    assert!(run(&dump("leaf"), |a| a.policy = policy("")).is_ok());
    assert!(run(&dump("leaf"), |a| a.policy = policy("placment: packing\n")).unwrap_err().contains("placment"));
    assert!(run(&dump("leaf"), |a| a.policy = policy("placement: tight\n")).unwrap_err().contains("tight"));
}

#[test]
fn without_a_policy_elastic_members_are_placed_where_the_server_places_them() {
    let pod = |rank: usize| {
        serde_json::json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {
                "name": format!("train-{rank}"), "namespace": "ml", "uid": format!("uid-{rank}"),
                "annotations": {"muster.dev/gang": "train", "muster.dev/gang-size": "2", "muster.dev/gang-min": "1",
                                "muster.dev/rank": rank.to_string()},
            },
            "spec": {"schedulerName": "muster", "schedulingGates": [{"name": "muster.dev/gang"}],
                     "containers": [{"name": "main", "resources": {"requests": {"cpu": "8"}}}]},
        })
    };
    let node = |name: &str| {
        serde_json::json!({
            "apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}},
            "status": {"allocatable": {"cpu": "8", "pods": "10"}, "conditions": [{"type": "Ready", "status": "True"}]},
        })
    };
    let items = [pod(0), pod(1), node("n1"), node("n2")];
    let text = serde_json::json!({"apiVersion": "v1", "kind": "List", "items": items}).to_string();
    let placed = |policy: Option<&'static str>| {
        let policy = policy.map(|text| Input { name: "policy.yaml", text });
        run(&text, |arguments| arguments.policy = policy).unwrap()["gangs"][0]["members"].as_array().unwrap().len()
    };
    assert_eq!(placed(None), 2, "each fills a node, and both are used");
    assert_eq!(placed(Some("placement: locality\n")), 2);
    assert_eq!(placed(Some("elastic: inside\n")), 1);
}

#[test]
fn a_catalogue_of_ones_own_decides_types_and_prices() {
    let mut types: Vec<Value> = Vec::new();
    for (name, vcpu) in [("p5.48xlarge", 192), ("p5.96xlarge", 384)] {
        let mut info = serde_json::to_value(&Catalogue::built_in().types["p5.48xlarge"]).unwrap();
        info["name"] = name.into();
        info["vcpu"] = vcpu.into();
        types.push(info);
    }
    let prices = serde_json::json!([
        {"type": "p5.96xlarge", "zone": "us-east-1a", "market": "on-demand", "usdMicroPerHour": 1},
    ]);
    let file = serde_json::json!({"name": "ours", "types": types, "prices": prices}).to_string();
    let document = run(&dump("limits"), |a| a.catalogue = Some(Input { name: "c.json", text: &file })).unwrap();
    assert_eq!(document["catalogue"], "ours");
    let document = run(&dump("buy"), |a| a.catalogue = Some(Input { name: "c.json", text: &file })).unwrap();
    let provision = &document["gangs"][0]["buy"][0];
    assert_eq!((&provision["type"], &provision["zone"]), (&"p5.96xlarge".into(), &"us-east-1a".into()));
    let error =
        run(&dump("buy"), |a| a.catalogue = Some(Input { name: "c.json", text: "{\"types\": [{\"name\": 5}]}" }));
    let error = error.unwrap_err();
    assert!(error.contains("c.json") && error.contains("types[0].name"), "{error}");
}

#[test]
fn the_built_in_table_agrees_with_the_list_prices() {
    let catalogue = Catalogue::built_in();
    assert!(catalogue.types.len() >= 12);
    let p6 = &catalogue.types["p6-b300.48xlarge"];
    assert_eq!((p6.network_cards.len(), p6.efa_max), (17, 16));
    let priced = catalogue.types.keys().filter(|name| muster_core::offering::on_demand_price(name).is_some()).count();
    assert_eq!(priced, 15);
}

#[test]
fn words_in_the_place_of_a_dump_are_an_error_that_repeats_them() {
    let error = run("The connection to the server localhost:8080 was refused\n", |_| {}).unwrap_err();
    assert!(error.contains("dump.yaml") && error.contains("localhost:8080 was refused"), "{error}");
    let long = run(&"word ".repeat(10_000), |_| {}).unwrap_err();
    assert!(long.len() < 500, "{} bytes", long.len());
}
