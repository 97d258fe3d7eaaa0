//! Pods that a Job has not created yet carry the labels that every Job's pods carry.

use serde_json::{Value, json};

use crate::scene::{catalogue, described, job, node, places, planned, pod};

/// Not on a host with pods of a Job that is named by this key.
fn apart_from_job(key: &str) -> Value {
    let term = json!({"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {key: "g"}}});
    json!({"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}})
}

const KEYS: [&str; 2] = ["batch.kubernetes.io/job-name", "job-name"];

fn document(objects: &[Value]) -> Value {
    let nodes = [node("n1", |_| {}), node("n2", |_| {})];
    planned(&[&nodes, objects].concat(), &catalogue(&[described("small", "2", 1, |_| {})], &[]))
}

#[test]
fn another_pod_that_keeps_away_from_a_job_keeps_away_from_members_to_come() {
    for key in KEYS {
        let other = pod("a", "500m", |pod| pod["spec"]["affinity"] = apart_from_job(key));
        let document = document(&[job(1, "1", |_| {}), other]);
        let member = document["gangs"][0]["members"][0]["node"].as_str().unwrap();
        let (outcome, at) = places(&document)[0];
        assert_eq!(outcome, "placed", "{document:#}");
        assert_ne!(at, Some(member), "{document:#}");
    }
}

#[test]
fn members_that_keep_away_from_their_own_job_are_placed_one_to_a_host() {
    for key in KEYS {
        let document =
            document(&[job(2, "1", |job| job["spec"]["template"]["spec"]["affinity"] = apart_from_job(key))]);
        let gang = &document["gangs"][0];
        assert_eq!(gang["outcome"], "placed", "{gang:#}");
        assert_ne!(gang["members"][0]["node"], gang["members"][1]["node"]);
    }
}

#[test]
fn a_job_with_a_selector_of_its_own_has_the_labels_of_its_template_alone() {
    let own = job(2, "1", |job| {
        job["spec"]["manualSelector"] = json!(true);
        job["spec"]["selector"] = json!({"matchLabels": {"app": "own"}});
        job["spec"]["template"]["metadata"]["labels"] = json!({"app": "own"});
        job["spec"]["template"]["spec"]["affinity"] = apart_from_job("job-name");
    });
    let document = document(&[own]);
    assert_eq!(document["gangs"][0]["outcome"], "refused", "it keeps away from nobody it knows: {document:#}");
}
