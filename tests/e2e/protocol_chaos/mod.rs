//! Seeded lives of gangs on existing nodes while kube-scheduler, the API server and Muster die, pods and nodes go, kubelets
//! refuse and somebody else takes planned capacity: nothing is bound in part, and every gang runs whole or says why not.
//!
//! A run is one gang with faults of its own; ten share a control plane and the faults of its processes: `muster serve`,
//! kube-scheduler and the API server are killed in each wave. `make soak` does two hundred runs, `make test` ten with short
//! timers and ten with the shipped ones; `MUSTER_SEED` does the ten of one seed again.

#![allow(clippy::unwrap_used, clippy::print_stderr, reason = "a test fails by panicking, its helpers too")]

mod faults;
mod proof;
mod runs;
mod view;

use std::sync::Arc;
use std::time::{Duration, Instant};

use muster::testbed::{Stack, eventually};
use muster_api::conventions::Kind;
use muster_api::crd::Gang;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde_json::{Value, json};

use crate::conventions::install;
use crate::support::{gangs, leaves, no_errors, options, stack};
use faults::{Fault, Shock};
use runs::{Maker, Run};
use view::View;

/// Runs at a time.
const WAVE: u64 = 10;
/// Capacity for all of them at once: ten leaves of four.
const LEAVES: [&str; 10] = ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j"];
const LEAF: usize = 4;
/// Longest wait for a wave: a Job waits ten seconds and more before it replaces a failed pod.
const LONG: Duration = Duration::from_secs(300);

/// Ten runs and what happens to the processes meanwhile, all from the seed.
fn plan(seed: u64) -> (Vec<Run>, Vec<Shock>) {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let runs = (0..WAVE).map(|number| {
        let maker = match number {
            0 => Maker::JobSet,
            1 => Maker::LeaderWorkerSet,
            2 => Maker::StatefulSet,
            _ => Maker::Job,
        };
        // The first seven have a fault of each kind.
        let impossible = number >= 7 && rng.random_range(0..4) == 0;
        let size = rng.random_range(2..=4);
        let faults = Fault::draw_all(&mut rng, usize::try_from(number).unwrap_or_default(), size);
        Run {
            name: format!("r{seed}-{number}"),
            size: if impossible { 5 } else { size },
            impossible,
            maker,
            faults: if impossible { Vec::new() } else { faults },
        }
    });
    let runs = runs.collect();
    (runs, Shock::draw(&mut rng))
}

async fn wave(stack: &Arc<Stack>, view: &View, seed: u64) -> Result<(), String> {
    let (runs, shocks) = plan(seed);
    eprintln!("seed {seed}: {}", shocks.iter().map(|shock| format!("{shock:?}")).collect::<Vec<_>>().join(", "));
    let client = stack.admin().map_err(|error| error.to_string())?;
    let mut storm = tokio::task::JoinSet::new();
    for run in &runs {
        for fault in run.faults.clone() {
            let (stack, view, run) = (Arc::clone(stack), view.clone(), run.clone());
            storm.spawn(async move { faults::strike(&stack, &view, &run.name, &fault).await });
        }
    }
    // Who waits for a moment waits already: some come soon.
    let mut controllers = Vec::new();
    for run in &runs {
        controllers.extend(run.begin(stack).await);
    }
    // One after the other: they share the processes.
    let (struck, watched) = (Arc::clone(stack), view.clone());
    storm.spawn(async move {
        for shock in shocks {
            faults::shake(&struck, &watched, shock).await?;
        }
        Ok(())
    });
    while let Some(done) = storm.join_next().await {
        done.map_err(|error| error.to_string())??;
    }
    faults::heal(stack, &leaves(&LEAVES, LEAF)).await?;
    all_settled(stack, view, &runs).await?;
    proof::holds(stack, view, &runs).await?;
    for controller in controllers {
        controller.stop().await;
    }
    for run in &runs {
        run.end(&client).await.map_err(|error| error.to_string())?;
    }
    nothing_is_left(stack, view).await
}

/// The Gang of a run: its name has a digest at the end.
fn of<'a>(gangs: &'a [Gang], run: &Run) -> Option<&'a Gang> {
    let named = run.gang();
    gangs.iter().find(|gang| {
        gang.metadata.name.as_deref().and_then(|name| name.rsplit_once('-')).is_some_and(|(head, _)| head == named)
    })
}

/// Waits until every gang runs whole, and those that cannot say so.
async fn all_settled(stack: &Stack, view: &View, runs: &[Run]) -> Result<(), String> {
    let client = &stack.admin().map_err(|error| error.to_string())?;
    eventually(LONG, "every gang to run whole or to be refused", || async move {
        let gangs = gangs(client, "ml").await;
        let mut open = Vec::new();
        for run in runs {
            let status = of(&gangs, run).and_then(|gang| gang.status.clone()).unwrap_or_default();
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

/// The waves of these seeds on one stack. A gang may stand in part for as long as `allowed`, of the time in which the API server
/// answers.
async fn lives(seeds: &[u64], config: Value, allowed: Duration) {
    let given = std::env::var("MUSTER_SEED").ok().and_then(|seed| seed.parse::<u64>().ok());
    let seeds = given.map_or_else(|| seeds.to_vec(), |seed| vec![seed]);
    let Some(mut options) = options().await else { return };
    options.config = config;
    let stack = Arc::new(stack(options, "ml").await);
    for kind in [Kind::JobSet, Kind::LeaderWorkerSet] {
        install(&stack, kind).await;
    }
    // Which kinds are served is asked at the start, and four times a minute afterwards.
    stack.kill_muster().unwrap();
    stack.start_muster(&[]).await.unwrap();
    stack.create_nodes(leaves(&LEAVES, LEAF)).await.unwrap();
    let view = View::follow(&stack.admin().unwrap(), "ml", allowed);
    let mut keeper = tokio::task::JoinSet::new();
    keeper.spawn(faults::keep_scheduler(Arc::clone(&stack)));
    for seed in seeds {
        let began = Instant::now();
        let wave = async {
            tokio::select! {
                done = wave(&stack, &view, seed) => done,
                Some(ended) = keeper.join_next() => Err(format!("kube-scheduler does not start again: {ended:?}")),
            }
        };
        if let Err(error) = wave.await {
            stack.cluster.keep();
            panic!("MUSTER_SEED={seed} does this again: {error}\n{}", stack.cluster.report(60));
        }
        eprintln!("seed {seed}: {WAVE} runs in {:.1} s; {}", began.elapsed().as_secs_f64(), view.account());
    }
    proof::no_bug_was_counted(&stack).await;
    no_errors(&stack);
}

fn soak() -> bool {
    std::env::var_os("MUSTER_SOAK").is_some()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whatever_happens_every_gang_runs_whole_or_says_why_not() {
    // Timers that a person would not wait for; the order of the phases is what is tried.
    let config = json!({
        "lease": {"duration": "3s", "grace": "1s"},
        "release": {"renominate": "2s"},
        "bind": {"hold": "10s"},
        "watch": {"released": "3s", "committing": "5s", "excludeTtl": "5s"},
    });
    let seeds: Vec<u64> = if soak() { (0..16).collect() } else { vec![3] };
    lives(&seeds, config, Duration::from_secs(15)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whatever_happens_nothing_waits_for_a_watchdog_with_the_shipped_timers_either() {
    // A process that was killed takes its lease back at once; everything else is as shipped.
    let config = json!({"lease": {"duration": "3s", "grace": "1s"}});
    let seeds: Vec<u64> = if soak() { (16..20).collect() } else { vec![16] };
    // A committed member that kube-scheduler refuses is given up after `watch.committing`.
    lives(&seeds, config, Duration::from_secs(45)).await;
}
