//! `muster uninstall`: says what is there, takes the policy away, lets held pods go, and never touches EC2.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking, its helpers too")]

use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use muster::testbed::{Identity, Stack};

use crate::cloud::{gang_job, provisioning_stack, zones};
use crate::support::{all_run, bare, create, options, phase, stack, submit};

/// Exit code and standard output.
fn uninstall(stack: &Stack, args: &[&str]) -> (i32, String) {
    let output = std::process::Command::new(env!("CARGO_BIN_EXE_muster"))
        .arg("uninstall")
        .args(args)
        .env("KUBECONFIG", stack.cluster.kubeconfig(Identity::Admin))
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    (output.status.code().unwrap(), text)
}

async fn gates(stack: &Stack, name: &str) -> usize {
    let pods: Api<Pod> = Api::namespaced(stack.admin().unwrap(), "ml");
    pods.get(name).await.unwrap().spec.unwrap().scheduling_gates.unwrap_or_default().len()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_policy_goes_first_and_held_pods_are_listed_or_let_go() {
    let Some(options) = options().await else { return };
    let stack = stack(options, "ml").await;
    create(&stack, "ml", bare("train", 0, 2)).await;
    phase(&stack, "ml", "train", "Collecting").await;
    assert_eq!(gates(&stack, "train-0").await, 1);

    let (code, stated) = uninstall(&stack, &[]);
    assert_eq!(code, 2, "one of --dry-run and --confirm has to be chosen: {stated}");
    let (code, stated) = uninstall(&stack, &["--dry-run"]);
    assert_eq!(code, 3, "{stated}");
    assert!(stated.contains("would delete MutatingAdmissionPolicyBinding gang-gate.muster.dev"), "{stated}");
    assert!(stated.contains("pod ml/train-0 is held by the gate muster.dev/gang"), "{stated}");
    let (code, stated) = uninstall(&stack, &["--dry-run", "-o", "json"]);
    let report: serde_json::Value = serde_json::from_str(&stated).unwrap_or_else(|error| panic!("{error}: {stated}"));
    assert_eq!(
        (code, &report["heldPods"], &report["left"]),
        (3, &serde_json::json!(["ml/train-0"]), &serde_json::json!(1))
    );
    assert_eq!(report["policies"].as_array().map(Vec::len), Some(2), "{report}");
    assert_eq!(uninstall(&stack, &["--dry-run", "-o", "name"]), (3, "pod/train-0\n".to_owned()));
    assert_eq!(gates(&stack, "train-0").await, 1, "nothing was changed");

    let (code, stated) = uninstall(&stack, &["--confirm"]);
    assert_eq!(code, 3, "{stated}");
    assert!(stated.contains("deletes MutatingAdmissionPolicyBinding"), "{stated}");
    let (code, stated) = uninstall(&stack, &["--confirm", "--ungate"]);
    assert_eq!(code, 0, "{stated}");
    assert!(stated.contains("there is no admission policy"), "{stated}");
    assert!(stated.contains("pod ml/train-0: let go"), "{stated}");
    assert_eq!(gates(&stack, "train-0").await, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_ec2_still_bills_is_listed() {
    let Some(stack) = provisioning_stack(&zones([2, 0, 0]), 40, "1s").await else { return };
    submit(&stack.admin().unwrap(), "ml", gang_job("train", 2)).await;
    all_run(&stack, "ml", "train", 2).await;
    let (code, stated) = uninstall(&stack, &["--dry-run"]);
    assert_eq!(code, 3, "{stated}");
    assert!(stated.contains("NodeBatch ") && stated.contains("2 instances (i-"), "{stated}");
    assert!(stated.contains("while muster serve runs"), "{stated}");
}
