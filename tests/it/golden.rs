//! NodeBatches as they stood in clusters: what once was written is read for ever.
//!
//! Each file of `tests/golden/nodebatch` is an object as the API server of an end-to-end suite kept it, one for each
//! phase and what came before it. `MUSTER_RECORD_BATCHES=<file>` makes the end-to-end suites write every state of every
//! NodeBatch there. The files are fixed: a status that is written differently today gets a further file.

use std::collections::BTreeSet;

use muster_api::batch_state;
use muster_api::crd::NodeBatch;
use serde_json::Value;

fn objects() -> Vec<(String, Value)> {
    let folder = muster::testbed::repository().join("tests/golden/nodebatch");
    let files = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    files
        .map(|path| {
            let text = std::fs::read_to_string(&path).unwrap();
            (path.file_stem().unwrap().to_string_lossy().into_owned(), serde_json::from_str(&text).unwrap())
        })
        .collect()
}

#[test]
fn every_batch_that_was_written_once_is_read_and_written_back_without_a_loss() {
    for (name, object) in objects() {
        let batch: NodeBatch = serde_json::from_value(object.clone()).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(serde_json::to_value(&batch).unwrap(), object, "{name}");
    }
}

#[test]
fn every_batch_that_was_written_once_is_understood_in_full_and_reported_again_as_it_was() {
    for (name, object) in objects() {
        let batch: NodeBatch = serde_json::from_value(object).unwrap_or_else(|error| panic!("{name}: {error}"));
        let read = batch_state::read(&batch);
        assert_eq!(read.newer, None, "{name}");
        let Some(status) = batch.status else { continue };
        assert_eq!(batch_state::write(&read.status).unwrap(), status, "{name}");
    }
}

#[test]
fn every_phase_and_every_outcome_of_an_attempt_is_among_them() {
    let objects = objects();
    let phases: BTreeSet<&str> =
        objects.iter().map(|(_, object)| object["status"]["phase"].as_str().unwrap_or_default()).collect();
    let known = [
        "",
        "Pending",
        "Launching",
        "Launched",
        "Joining",
        "Replacing",
        "Ready",
        "InUse",
        "Idle",
        "Draining",
        "Terminating",
    ];
    assert_eq!(phases, known.into_iter().collect());
    let outcomes: BTreeSet<&str> = objects
        .iter()
        .flat_map(|(_, object)| object["status"]["attempts"].as_array().into_iter().flatten())
        .map(|attempt| attempt["outcome"].as_str().unwrap())
        .collect();
    let known = ["Launching", "Won", "Lost", "Retry", "Violated", "Misplaced", "Canary"];
    assert_eq!(outcomes, known.into_iter().collect());
}
