//! What runs in the image is a binary of its own: `make test-image` names it by `MUSTER`.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a test fails by panicking, its helpers too")]

use muster::testbed::Component;
use muster::testbed::workloads::TestJob;

use crate::support::{all_run, leaves, options, phase, stack, submit};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn serve_says_when_every_kind_was_listed_and_binds_a_gang() {
    let Some(options) = options().await else { return };
    let stack = stack(options, "ml").await;
    stack.create_nodes(leaves(&["a"], 2)).await.unwrap();
    let job = TestJob::new("train", 2).gpus(8).pod_annotation("muster.dev/gang", "train").build();
    submit(&stack.admin().unwrap(), "ml", job).await;
    all_run(&stack, "ml", "train", 2).await;
    phase(&stack, "ml", "train", "Bound").await;
    let log = std::fs::read_to_string(stack.cluster.log(Component::Muster(0))).unwrap();
    let ready: Vec<&str> = log.lines().filter(|line| line.contains("every kind was listed")).collect();
    let [ready] = ready[..] else { panic!("{log}") };
    let (_, milliseconds) = ready.rsplit_once("milliseconds=").unwrap();
    println!("every kind was listed after {milliseconds} ms");
}
