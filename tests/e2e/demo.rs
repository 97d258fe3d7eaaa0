//! `muster demo` as a user runs it: it ends well, leaves nothing, and what it reported can be computed again.

#![allow(clippy::unwrap_used, clippy::print_stderr, reason = "a test fails by panicking, its helpers too")]

use std::path::Path;
use std::process::{Command, Output};

use muster::testbed::repository;
use serde_json::Value;

use crate::support::options;

fn demo(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_muster"))
        .arg("demo")
        .arg("--repository")
        .arg(repository())
        .args(args)
        .output()
        .unwrap()
}

/// Command lines of processes that name a folder.
fn processes_of(folder: &str) -> Vec<String> {
    let all = Command::new("ps").args(["-eo", "args"]).output().unwrap();
    String::from_utf8_lossy(&all.stdout).lines().filter(|line| line.contains(folder)).map(str::to_owned).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_demo_ends_as_announced_leaves_nothing_and_can_be_computed_again() {
    if options().await.is_none() {
        return;
    }
    let folder = std::env::temp_dir().join(format!("muster-demo-evidence-{}", std::process::id()));
    let evidence = folder.to_str().unwrap();

    // In a folder for temporary files of its own, so that the processes of this run are known by their arguments.
    let scratch = std::env::temp_dir().join(format!("muster-demo-scratch-{}", std::process::id()));
    std::fs::create_dir_all(&scratch).unwrap();
    let reported = Command::new(env!("CARGO_BIN_EXE_muster"))
        // Machines boot for ten seconds: however busy this one is, what is rolled back does not run yet.
        .args(["demo", "--speed", "6", "--output", "json", "--evidence", evidence, "--repository"])
        .arg(repository())
        .env("TMPDIR", &scratch)
        .output()
        .unwrap();

    assert!(reported.status.success(), "{}\n{}", reported.status, String::from_utf8_lossy(&reported.stderr));
    let summary: Value = serde_json::from_slice(&reported.stdout).unwrap();
    assert_eq!(summary["partialMicroUsd"], 0);
    assert_eq!(summary["stories"].as_array().unwrap().len(), 4);
    assert_eq!(processes_of(scratch.to_str().unwrap()), [""; 0]);
    assert_eq!(std::fs::read_dir(&scratch).unwrap().count(), 0, "no folder is left");
    let events = std::fs::read_to_string(folder.join("4-given-back").join("events.json")).unwrap();
    assert!(events.contains("Finished"), "{events}");
    assert!(!events.contains("MemberLost"), "whoever deletes a Job has lost no member of it");
    recomputed(&folder);

    // Evidence of two runs would be read as one.
    let again = demo(&["--evidence", evidence]);
    assert_eq!(again.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&again.stderr).contains("the folder is not empty"));
    std::fs::remove_dir_all(&folder).unwrap();
    std::fs::remove_dir_all(&scratch).unwrap();
}

/// The script agrees with what was reported, and does not once a file says something else.
fn recomputed(folder: &Path) {
    let script = repository().join("hack/recompute-evidence.py");
    let run = || Command::new("python3").arg(&script).arg(folder).output();
    let Ok(first) = run() else {
        eprintln!("skipped: python3 is missing, so the demo's evidence is not computed again");
        return;
    };
    let stated = String::from_utf8_lossy(&first.stdout);
    assert!(first.status.success(), "{stated}{}", String::from_utf8_lossy(&first.stderr));
    assert!(stated.contains("agrees with summary.json"), "{stated}");

    let bill = folder.join("bill.json");
    let mut changed: Value = serde_json::from_str(&std::fs::read_to_string(&bill).unwrap()).unwrap();
    changed["instances"][0]["amount"]["microUsd"] = 1.into();
    std::fs::write(&bill, changed.to_string()).unwrap();
    let second = run().unwrap();
    assert_eq!(second.status.code(), Some(1), "{}", String::from_utf8_lossy(&second.stdout));
}
