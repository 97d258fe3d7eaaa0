//! The page that leads to the first gang: kubectl parses its commands, the API server takes its manifests, and Helm parses its own.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking, its helpers too")]

use std::path::Path;

use muster::testbed::Identity;
use tokio::process::Command;

use crate::page::{commands_of, manifests};
use crate::support::{options, stack};

/// Runs a command that reads this, and says what it wrote if it failed.
async fn succeeds(tool: &Path, words: &[String], input: &str) {
    use tokio::io::AsyncWriteExt as _;
    let mut command = Command::new(tool);
    command.args(words).stdin(std::process::Stdio::piped()).stdout(std::process::Stdio::piped());
    let mut child = command.stderr(std::process::Stdio::piped()).kill_on_drop(true).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(input.as_bytes()).await.unwrap();
    drop(stdin);
    let output = child.wait_with_output().await.unwrap();
    let wrote = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{} {}: {wrote}", tool.display(), words.join(" "));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_commands_and_manifests_of_the_page_are_taken_by_the_real_tools() {
    let Some(options) = options().await else { return };
    let kubectl = options.binaries.kubectl();
    for mut words in commands_of("kubectl") {
        // With its help a command is parsed as a whole, and goes no further.
        let at = words.iter().position(|word| word == "--").unwrap_or(words.len());
        words.insert(at, "--help".to_owned());
        succeeds(&kubectl, &words, "").await;
    }
    if let Some(folder) = std::env::var_os("MUSTER_HELM") {
        for helm in ["helm3", "helm4"] {
            for mut words in commands_of("helm") {
                words.push("--help".to_owned());
                succeeds(&Path::new(&folder).join(helm), &words, "").await;
            }
        }
    }
    let stack = stack(options, "ml").await;
    let reach = format!("--kubeconfig={}", stack.cluster.kubeconfig(Identity::Admin).display());
    for manifest in manifests() {
        let words = ["apply", "--namespace", "ml", "--dry-run=server", "-f", "-", &reach].map(str::to_owned);
        succeeds(&kubectl, &words, &manifest).await;
    }
}
