//! What the server decided, and what it saw, can be taken home and comes out the same there.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking, its helpers too")]

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Output;

use muster::testbed::request::request;
use muster::testbed::workloads::TestJob;
use muster::testbed::{Identity, Stack};
use serde_json::{Value, json};

use crate::support::{all_run, leaves, options, phase, stack, submit};

/// Runs the binary against the stack's cluster.
async fn muster(stack: &Stack, arguments: &[&str]) -> Output {
    tokio::process::Command::new(env!("CARGO_BIN_EXE_muster"))
        .args(arguments)
        .env("KUBECONFIG", stack.cluster.kubeconfig(Identity::Admin))
        .output()
        .await
        .unwrap()
}

#[track_caller]
fn text(output: &Output, code: i32) -> String {
    let (out, error) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert_eq!(output.status.code(), Some(code), "{out}\n{error}");
    out.into_owned()
}

fn name(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// `muster plan` on everything the server recorded: gangs, purchases and reasons as it decided them, byte for byte. The
/// answer is the moments of the passes.
pub(crate) async fn decided_the_same_from_recordings(stack: &Stack) -> Vec<String> {
    let recorded = request(stack.http(), "GET", "/debug/passes", "").await.unwrap();
    let file = stack.cluster.folder().join("passes.json");
    std::fs::write(&file, &recorded).unwrap();
    let planned = text(&muster(stack, &["plan", "-f", name(&file), "-o", "json"]).await, 0);
    let recorded: Value = serde_json::from_str(&recorded).unwrap();
    let of = |kind: &str| recorded[kind].as_array().unwrap().clone();
    let all = |kind: &str, clock: &str| {
        let decided = |pass: &Value| json!({"at": pass["world"][clock], "decided": pass["decided"]});
        of(kind).iter().map(decided).collect::<Vec<_>>()
    };
    // NodeBatches are decided by EC2's clock, which runs ahead of real time here.
    let (passes, batch_passes) = (all("passes", "now"), all("batchPasses", "nowReal"));
    let expected = json!({"version": 1, "passes": passes, "batchPasses": batch_passes});
    assert_eq!(planned, serde_json::to_string_pretty(&expected).unwrap() + "\n");
    passes.iter().chain(&batch_passes).map(|pass| pass["at"].to_string()).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_plan_the_server_persisted_is_replayed_and_a_recording_says_the_same_as_the_cluster() {
    let Some(mut options) = options().await else { return };
    options.config = json!({"debug": {"enabled": true}});
    let stack = stack(options, "ml").await;
    stack.create_nodes(leaves(&["a", "b"], 3)).await.unwrap();
    let client = stack.admin().unwrap();
    submit(&client, "ml", TestJob::new("train", 4).gpus(8).pod_annotation("muster.dev/gang", "train").build()).await;
    all_run(&stack, "ml", "train", 4).await;
    let gang = phase(&stack, "ml", "train", "Bound").await;
    submit(&client, "ml", TestJob::new("late", 3).gpus(8).pod_annotation("muster.dev/gang", "late").build()).await;
    phase(&stack, "ml", "late", "Waiting").await;

    // The plan in the Gang's status is one of those recorded, with everything it was made on.
    let object = gang.metadata.name.clone().unwrap();
    let answer = request(stack.http(), "GET", &format!("/debug/record?gang=ml/{object}"), "").await.unwrap();
    let decisions: Value = serde_json::from_str(&answer).unwrap();
    let plan = gang.status.unwrap().plan.unwrap();
    let persisted: BTreeMap<String, String> = plan
        .places
        .iter()
        .map(|place| (place.uid.clone().unwrap(), plan.nodes[usize::try_from(place.node).unwrap()].clone()))
        .collect();
    let recorded = |decision: &Value| -> BTreeMap<String, String> {
        let places = decision["plan"]["places"].as_array().unwrap().iter();
        places
            .map(|place| (place["uid"].as_str().unwrap().to_owned(), place["node"].as_str().unwrap().to_owned()))
            .collect()
    };
    let found = decisions["decisions"].as_array().unwrap().iter().filter(|decision| recorded(decision) == persisted);
    assert!(found.count() > 0, "{persisted:?} is not among {decisions:#}");
    let folder = stack.cluster.folder().to_owned();
    let file = folder.join("decisions.json");
    std::fs::write(&file, &answer).unwrap();
    let replayed = text(&muster(&stack, &["replay", name(&file)]).await, 0);
    assert!(replayed.contains("the same plan again (4 members placed)"), "{replayed}");
    // A decision that was tampered with does not come out the same.
    let spoilt =
        answer.replacen(&format!("\"node\": \"{}\"", persisted.values().next().unwrap()), "\"node\": \"b-9\"", 1);
    let spoilt_file = folder.join("spoilt.json");
    std::fs::write(&spoilt_file, spoilt).unwrap();
    assert!(text(&muster(&stack, &["replay", name(&spoilt_file)]).await, 3).contains("DIFFERS"));

    // Whole passes.
    assert!(decided_the_same_from_recordings(&stack).await.len() > 2);
    let file = folder.join("passes.json");
    let replayed = text(&muster(&stack, &["replay", name(&file)]).await, 0);
    assert!(replayed.contains("the same decisions again"), "{replayed}");
    let spoilt = std::fs::read_to_string(&file).unwrap().replacen("\"createGang\"", "\"deleteGang\"", 1);
    std::fs::write(&spoilt_file, spoilt).unwrap();
    assert!(text(&muster(&stack, &["plan", "-f", name(&spoilt_file)]).await, 3).contains("DIFFERS"));

    // The cluster as a recording.
    let file = folder.join("cluster.json");
    text(&muster(&stack, &["record", "--out", name(&file), "--config", name(&stack.config())]).await, 0);
    let recording = std::fs::read_to_string(&file).unwrap();
    assert!(!recording.contains("\"Secret\"") && !recording.contains("managedFields"));
    let planned = text(&muster(&stack, &["plan", "-f", name(&file), "-o", "json"]).await, 3);
    assert_eq!(planned, text(&muster(&stack, &["plan", name(&file), "-o", "json"]).await, 3), "the same bytes");
    let document: Value = serde_json::from_str(&planned).unwrap();
    let outcome = |name: &str| {
        let gangs = document["gangs"].as_array().unwrap();
        gangs.iter().find(|gang| gang["name"] == name).map(|gang| gang["outcome"].clone())
    };
    assert_eq!((outcome("train"), outcome("late")), (Some("placed".into()), Some("refused".into())));
    let asked = ["explain", "gang", "late", "-n", "ml", "--output", "json"];
    let live: Value = serde_json::from_str(&text(&muster(&stack, &asked).await, 0)).unwrap();
    let from_file = text(&muster(&stack, &[asked.as_slice(), &["-f", name(&file)]].concat()).await, 0);
    let from_file: Value = serde_json::from_str(&from_file).unwrap();
    for key in ["outcome", "reasons", "blocking", "summary", "object"] {
        assert_eq!(live[key], from_file[key], "{key}");
    }
    let node = text(&muster(&stack, &["explain", "node", "a-0"]).await, 0);
    assert!(node.contains("held by:") && node.contains("late (refused) skips it"), "{node}");
}
