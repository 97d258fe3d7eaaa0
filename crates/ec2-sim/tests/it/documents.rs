//! docs/ec2-sim.md tells of everything there is.

use std::path::Path;

use muster_ec2_sim::choices::Choices;
use muster_ec2_sim::{FaultKind, Scenario};

fn document() -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/ec2-sim.md");
    std::fs::read_to_string(path).expect("the document is there")
}

/// The names that serde offers in the place of one that is unknown.
fn offered<T: serde::de::DeserializeOwned + std::fmt::Debug>(unknown: &str) -> Vec<String> {
    let error = serde_json::from_str::<T>(unknown).expect_err("it is unknown").to_string();
    let (_, expected) = error.split_once("expected one of").expect("serde offers the others");
    expected.split('`').skip(1).step_by(2).map(str::to_owned).collect()
}

#[test]
fn every_operation_is_named() {
    let document = document();
    for (service, operation) in muster_ec2_sim::played() {
        let words = document.split(|c: char| !c.is_alphanumeric());
        assert!(words.clone().any(|word| word == operation), "{service} {operation}");
    }
}

#[test]
fn every_fault_choice_and_field_of_a_scenario_is_named() {
    let document = document();
    let named = |name: &str| document.split(|c: char| !c.is_alphanumeric()).any(|word| word == name);
    let faults = offered::<FaultKind>("\"nothing\"");
    let choices = offered::<Choices>("{\"nothing\": 1}");
    let fields = offered::<Scenario>("{\"nothing\": 1}");
    assert!(faults.len() > 20 && choices.len() > 12 && fields.len() > 20, "{faults:?} {choices:?} {fields:?}");
    let missing: Vec<&String> = faults.iter().chain(&choices).chain(&fields).filter(|name| !named(name)).collect();
    assert!(missing.is_empty(), "docs/ec2-sim.md does not name {missing:?}");
}
