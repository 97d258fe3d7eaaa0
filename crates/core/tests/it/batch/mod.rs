//! Ten thousand random histories of NodeBatches: crashes between any two lines, answers that are lost, late, repeated or
//! wrong, and owners that change their mind. `MUSTER_BATCH_SEED` runs one history again and tells its course,
//! `MUSTER_SOAK` runs ten times as many.

mod awaited;
mod checks;
mod cluster;
mod coverage;
#[cfg(test)]
mod decisions;
mod draw;
mod ec2;
#[cfg(test)]
mod found;
mod heals;
mod history;
mod kube_scheduler;
#[cfg(test)]
pub(crate) mod made;
pub(crate) mod pods;
mod race;
mod recorded;
mod rounds;
mod services;
mod supply;
mod sweep;
mod unshown;
mod worker;

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use coverage::Coverage;

/// Histories of one run.
const HISTORIES: u64 = 10_000;
/// Each crash with each fault in each effect of each phase is met at least this often.
const OFTEN: u64 = 100;
/// Histories that went wrong and are shown; no more are run.
const SHOWN: usize = 20;
/// Whatever else may happen in a world happens.
const SEEN: u64 = 1;

fn histories() -> u64 {
    let soak = if std::env::var("MUSTER_SOAK").is_ok() { HISTORIES * 10 } else { HISTORIES };
    std::env::var("MUSTER_BATCH_HISTORIES").map_or(soak, |count| count.parse().unwrap())
}

/// Runs seeds on all cores, until some have gone wrong. The answer is what was counted, and what went wrong by seed.
fn run_all(count: u64) -> (Coverage, Vec<(u64, String)>) {
    let next = AtomicU64::new(0);
    let failed = AtomicUsize::new(0);
    let all = Mutex::new((Coverage::default(), Vec::new()));
    let work = || {
        let mut sum = Coverage::default();
        let mut wrong = Vec::new();
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= count || failed.load(Ordering::Relaxed) >= SHOWN {
                break;
            }
            match std::panic::catch_unwind(|| history::run(seed)) {
                Ok(Ok(coverage)) => {
                    sum.add(&coverage);
                    continue;
                }
                Ok(Err(what)) => wrong.push((seed, what)),
                Err(_) => wrong.push((seed, "it panics".to_owned())),
            }
            failed.fetch_add(1, Ordering::Relaxed);
        }
        let mut all = all.lock().unwrap_or_else(PoisonError::into_inner);
        all.0.add(&sum);
        all.1.extend(wrong);
    };
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, std::num::NonZero::get) {
            scope.spawn(work);
        }
    });
    let (coverage, mut wrong) = all.into_inner().unwrap_or_else(PoisonError::into_inner);
    wrong.sort();
    (coverage, wrong)
}

#[test]
#[expect(clippy::print_stderr, reason = "what was reached, and how often, belongs to the evidence")]
fn no_crash_and_no_answer_of_ec2_makes_a_batch_launch_twice_or_leave_anything_behind() {
    if let Ok(seed) = std::env::var("MUSTER_BATCH_SEED") {
        history::run(seed.parse().unwrap()).unwrap();
        return;
    }
    let count = histories();
    let (coverage, wrong) = run_all(count);
    let mut seldom = Vec::new();
    for (phase, effect, times, least, (crash, fault)) in coverage.table() {
        let phase = phase.map_or_else(|| "any phase".to_owned(), |phase| format!("{phase:?}"));
        let line = format!("{phase}, {effect:?}: {times}; rarest: crash {crash:?} with fault {fault:?}, {least}");
        eprintln!("{line}");
        if least < OFTEN {
            seldom.push(line);
        }
    }
    for (what, times) in &coverage.events {
        eprintln!("{what}: {times}");
        if *times < SEEN {
            seldom.push((*what).to_owned());
        }
    }
    eprintln!("{count} histories, {} lines", coverage.steps);
    let shown: Vec<String> = wrong.iter().take(SHOWN).map(|(seed, what)| format!("seed {seed}: {what:.200}")).collect();
    assert!(wrong.is_empty(), "{} of at most {count} histories went wrong:\n{}", wrong.len(), shown.join("\n"));
    let unforeseen = coverage.unforeseen();
    assert!(unforeseen.is_empty(), "not in the tables of what can occur: {unforeseen:?}");
    assert!(count < HISTORIES || seldom.is_empty(), "reached too seldom:\n{}", seldom.join("\n"));
}
