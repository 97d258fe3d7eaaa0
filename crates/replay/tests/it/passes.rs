//! A recorded pass comes out the same, or the first line that differs is named.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use muster_api::pod_state;
use muster_core::gang::{Decided, Memory, RecordedWorld, Settings, World, pass};
use muster_core::model::gang::Membership;
use muster_core::model::snapshot::Snapshot;
use muster_core::topology::Levels;
use muster_replay::command::{self, Arguments, Format};
use muster_replay::dump::Input;
use muster_replay::passes::{Passes, RecordedPass};
use serde_json::{Value, json};

/// A cluster with one pod of no gang behind our gate.
fn snapshot() -> Snapshot {
    let pod = serde_json::from_value(json!({
        "metadata": {"name": "alone", "namespace": "ml", "uid": "uid-alone"},
        "spec": {"schedulerName": "muster", "schedulingGates": [{"name": "muster.dev/gang"}], "containers": []},
    }));
    let pod = pod_state::read(&pod.unwrap(), Membership::Single, &["muster".to_owned()]);
    let mut snapshot = Snapshot { synced: true, ..Snapshot::default() };
    snapshot.pods.insert(pod.uid.clone(), Arc::new(pod));
    snapshot
}

fn recording() -> String {
    let settings = Settings::new(muster_api::keys::GANG_PENDING);
    let (levels, memory) = (Levels::default(), Memory::default());
    let snapshot = snapshot();
    let world = World {
        snapshot: &snapshot,
        levels: &levels,
        pools: &[],
        batches: &BTreeMap::new(),
        lost: &BTreeSet::new(),
        ending: &BTreeSet::new(),
        bookings: &BTreeMap::new(),
        memory: &memory,
        settings: &settings,
        now: jiff::Timestamp::UNIX_EPOCH,
    };
    let recorded = RecordedPass { world: RecordedWorld::of(&world), decided: Decided::of(&pass(&world)) };
    serde_json::to_string(&Passes::new("0.1.0", vec![recorded], Vec::new())).unwrap()
}

fn plan(text: &str, format: Format) -> (String, u8) {
    let files = vec![Input { name: "passes.json", text }];
    let output = command::run(&Arguments { files, format, ..Arguments::default() }).unwrap();
    (output.text, output.code)
}

#[test]
fn a_recorded_pass_is_decided_again_to_the_same_bytes() {
    let text = recording();
    let (line, code) = plan(&text, Format::Table);
    assert_eq!((line.as_str(), code), ("1970-01-01T00:00:00Z: the same decisions again (1 ungate)\n", 0));
    let (json, code) = plan(&text, Format::Json);
    let (now, before): (Value, Value) = (serde_json::from_str(&json).unwrap(), serde_json::from_str(&text).unwrap());
    assert_eq!((&now["passes"][0]["decided"], code), (&before["passes"][0]["decided"], 0));
    assert_eq!(now["passes"][0]["decided"]["actions"][0]["uid"], "uid-alone");
}

#[test]
fn a_pass_that_comes_out_otherwise_names_the_first_line_that_differs() {
    let text = recording();
    let spoilt = text.replace("\"action\":\"ungate\"", "\"action\":\"deleteGang\"");
    let (line, code) = plan(&spoilt, Format::Table);
    assert_eq!(code, 3);
    assert!(line.contains("DIFFERS: it was \"action\": \"deleteGang\""), "{line}");
    let empty = text.replace("\"passes\":[", "\"passes\":[],\"were\":[");
    assert_eq!(plan(&empty, Format::Table), ("passes.json: holds no pass\n".to_owned(), 0));
}

#[test]
fn a_file_of_passes_that_cannot_be_read_is_an_error_with_field_and_value() {
    let error = |text: &str| {
        let files = vec![Input { name: "passes.json", text }];
        command::run(&Arguments { files, ..Arguments::default() }).unwrap_err().to_string()
    };
    let text = recording();
    assert!(error(&text.replacen("\"version\":1", "\"version\":2", 1)).contains("version 2 is not 1"));
    let wrong = error(&text.replace("\"now\":\"1970-01-01T00:00:00Z\"", "\"now\":7"));
    assert!(wrong.contains("passes[0].world.now"), "{wrong}");
}

#[test]
fn a_recording_of_a_cluster_carries_the_passes_of_its_server() {
    let record = |passes: &str| {
        let head = muster_replay::record::Record {
            time: jiff::Timestamp::UNIX_EPOCH,
            version: "0.1.0".to_owned(),
            levels: None,
            scheduler_names: vec!["muster".to_owned()],
            provisioner_scheduler_names: Vec::new(),
            excluded: Vec::new(),
            policy: muster_core::planner::plan::Policy::default().into(),
        };
        muster_replay::record::render(&head, vec![serde_json::from_str(passes).unwrap()])
    };
    let text = record(&recording());
    let (table, code) = plan(&text, Format::Table);
    assert!(table.ends_with("1970-01-01T00:00:00Z: the same decisions again (1 ungate)\n"), "{table}");
    assert_eq!(code, 0);
    let (document, code) = plan(&text, Format::Json);
    assert_eq!(
        serde_json::from_str::<Value>(&document).unwrap()["ignored"],
        json!([]),
        "the document says nothing of them"
    );
    assert_eq!(code, 0);
    let spoilt = record(&recording().replace("\"action\":\"ungate\"", "\"action\":\"deleteGang\""));
    assert_eq!(plan(&spoilt, Format::Json).1, 3);
    let (table, code) = plan(&spoilt, Format::Table);
    assert!(code == 3 && table.contains("DIFFERS"), "{table}");
}
