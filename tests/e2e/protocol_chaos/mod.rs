//! Seeded lives of gangs on existing nodes while kube-scheduler, the API server and Muster die, pods and nodes go, kubelets
//! refuse and somebody else takes planned capacity: nothing is bound in part, and every gang runs whole or says why not.
//!
//! A run is one gang with faults of its own; ten share a control plane and the faults of its processes. `make soak` does
//! two hundred runs, `make test` ten; `MUSTER_SEED` does the ten of one seed again.

#![allow(clippy::unwrap_used, clippy::print_stderr, reason = "a test fails by panicking, its helpers too")]

mod faults;
mod proof;
mod view;

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use k8s_openapi::api::batch::v1::Job;
use kube::Api;
use kube::api::DeleteParams;
use muster::testbed::workloads::TestJob;
use muster::testbed::{Stack, eventually};
use muster_api::crd::Gang;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde_json::json;

use crate::support::{gangs, leaves, no_errors, options, stack, submit};
use faults::{Fault, Shock};
use view::View;

/// Runs at a time.
const WAVE: u64 = 10;
/// Capacity for all of them at once: ten leaves of four.
const LEAVES: [&str; 10] = ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j"];
const LEAF: usize = 4;
/// Longest wait for a wave: a Job waits ten seconds and more before it replaces a failed pod.
const LONG: Duration = Duration::from_secs(300);

/// One gang to be, and what happens to it.
#[derive(Clone, Debug)]
struct Run {
    name: String,
    size: u16,
    /// More members than one leaf holds, all of them inside one: it can never run.
    impossible: bool,
    faults: Vec<Fault>,
}

/// Ten runs and what happens to the processes meanwhile, all from the seed.
fn plan(seed: u64) -> (Vec<Run>, Vec<Shock>) {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let runs = (0..WAVE).map(|number| {
        let impossible = rng.random_range(0..12) == 0;
        let size = rng.random_range(2..=4);
        let count = if impossible { 0 } else { rng.random_range(1..=2) };
        Run {
            name: format!("r{seed}-{number}"),
            size: if impossible { 5 } else { size },
            impossible,
            faults: (0..count).map(|_| Fault::draw(&mut rng, size)).collect(),
        }
    });
    let runs = runs.collect();
    let shocks = (0..rng.random_range(1..=2)).map(|_| Shock::draw(&mut rng)).collect();
    (runs, shocks)
}

fn job(run: &Run) -> Job {
    let job =
        TestJob::new(&run.name, run.size).gpus(8).ignores_disruptions().pod_annotation("muster.dev/gang", &run.name);
    let job = if run.impossible { job.pod_annotation("muster.dev/topology-required", "layer-3") } else { job };
    job.build()
}

async fn wave(stack: &Arc<Stack>, view: &View, seed: u64) -> Result<(), String> {
    let (runs, shocks) = plan(seed);
    eprintln!("seed {seed}: {}", shocks.iter().map(|shock| format!("{shock:?}")).collect::<Vec<_>>().join(", "));
    let client = stack.admin().map_err(|error| error.to_string())?;
    for run in &runs {
        submit(&client, "ml", job(run)).await;
    }
    let kills: Arc<Mutex<Vec<Timestamp>>> = Arc::default();
    let mut storm = tokio::task::JoinSet::new();
    for run in &runs {
        for fault in run.faults.clone() {
            let (stack, view, run) = (Arc::clone(stack), view.clone(), run.clone());
            storm.spawn(async move { faults::strike(&stack, &view, &run.name, &fault).await });
        }
    }
    // One after the other: they share the processes.
    let (struck, watched, noted) = (Arc::clone(stack), view.clone(), Arc::clone(&kills));
    storm.spawn(async move {
        for shock in shocks {
            let killed = faults::shake(&struck, &watched, shock).await?;
            noted.lock().unwrap().extend(killed);
        }
        Ok(())
    });
    while let Some(done) = storm.join_next().await {
        done.map_err(|error| error.to_string())??;
    }
    faults::heal(stack, &leaves(&LEAVES, LEAF)).await?;
    all_settled(stack, view, &runs).await?;
    let kills = kills.lock().unwrap().clone();
    proof::holds(stack, view, &kills, &runs.iter().map(|run| run.name.clone()).collect::<Vec<_>>()).await?;
    let jobs: Api<Job> = Api::namespaced(client, "ml");
    for run in &runs {
        jobs.delete(&run.name, &DeleteParams::background()).await.map_err(|error| error.to_string())?;
    }
    nothing_is_left(stack, view).await
}

/// A gang is named like its Job, with a digest behind it.
fn of<'a>(gangs: &'a [Gang], job: &str) -> Option<&'a Gang> {
    gangs.iter().find(|gang| {
        gang.metadata.name.as_deref().and_then(|name| name.rsplit_once('-')).is_some_and(|(head, _)| head == job)
    })
}

/// Waits until every gang runs whole, and those that cannot say so.
async fn all_settled(stack: &Stack, view: &View, runs: &[Run]) -> Result<(), String> {
    let client = &stack.admin().map_err(|error| error.to_string())?;
    eventually(LONG, "every gang to run whole or to be refused", || async move {
        let gangs = gangs(client, "ml").await;
        let mut open = Vec::new();
        for run in runs {
            let status = of(&gangs, &run.name).and_then(|gang| gang.status.clone()).unwrap_or_default();
            let why = status.waiting.map(|waiting| waiting.message).unwrap_or_default();
            let running = view.running(&run.name);
            let settled = if run.impossible {
                matches!(status.phase.as_str(), "Waiting" | "Unsatisfiable" | "Invalid")
                    && !why.is_empty()
                    && running == 0
            } else {
                status.phase == "Bound" && running == usize::from(run.size)
            };
            if !settled {
                open.push(format!("{} is {} with {running} of {} running: {why}", run.name, status.phase, run.size));
            }
        }
        if open.is_empty() { Ok(Some(())) } else { Err(open.join("; ")) }
    })
    .await
    .map_err(|error| error.to_string())
}

/// Waits until the Jobs' pods and their Gangs are gone.
async fn nothing_is_left(stack: &Stack, view: &View) -> Result<(), String> {
    let client = &stack.admin().map_err(|error| error.to_string())?;
    eventually(LONG, "nothing to be left", || async move {
        let (gangs, pods) = (gangs(client, "ml").await.len(), view.pods());
        if gangs == 0 && pods == 0 { Ok(Some(())) } else { Err(format!("{gangs} gangs, {pods} pods")) }
    })
    .await
    .map_err(|error| error.to_string())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whatever_happens_every_gang_runs_whole_or_says_why_not() {
    let given = std::env::var("MUSTER_SEED").ok().and_then(|seed| seed.parse::<u64>().ok());
    let seeds: Vec<u64> = match given {
        Some(seed) => vec![seed],
        None if std::env::var_os("MUSTER_SOAK").is_some() => (0..20).collect(),
        None => vec![3],
    };
    let Some(mut options) = options().await else { return };
    // Timers that a person would not wait for; the order of the phases is what is tried.
    options.config = json!({
        "lease": {"duration": "3s", "grace": "1s"},
        "release": {"renominate": "2s"},
        "bind": {"hold": "10s"},
        "watch": {"released": "3s", "committing": "5s", "excludeTtl": "5s"},
    });
    let stack = Arc::new(stack(options, "ml").await);
    stack.create_nodes(leaves(&LEAVES, LEAF)).await.unwrap();
    let view = View::follow(&stack.admin().unwrap(), "ml");
    for seed in seeds {
        let began = Instant::now();
        if let Err(error) = wave(&stack, &view, seed).await {
            stack.cluster.keep();
            panic!("MUSTER_SEED={seed} does this again: {error}\n{}", stack.cluster.report(60));
        }
        eprintln!("seed {seed}: {WAVE} runs in {:.1} s; {}", began.elapsed().as_secs_f64(), view.account());
    }
    proof::no_bug_was_counted(&stack).await;
    no_errors(&stack);
}
