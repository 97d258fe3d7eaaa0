//! Medians and their table.

use serde_json::{Value, json};

use crate::place::Outcome;

/// Runs of one row, the slowest first.
#[derive(Clone, Debug)]
pub(crate) struct Summary {
    runs: Vec<Outcome>,
}

pub(crate) fn heading() -> String {
    format!(
        "{:<34} {:>7} {:>7} {:>13} {:>9} {:>7} {:>9} {:>7} {:>12} {:>6}",
        "", "seconds", "pods/s", "spread", "apiserver", "etcd", "scheduler", "muster", "leaves/gang", "MiB"
    )
}

/// Hundredths as a number with one place.
fn tenths(hundredths: u64) -> String {
    format!("{}.{}", hundredths / 100, hundredths / 10 % 10)
}

fn line(name: &str, outcome: &Outcome, spread: &str, cpu: [u64; 4]) -> String {
    let hundredths = u64::try_from(outcome.took.as_millis() / 10).unwrap_or(u64::MAX);
    let leaves = format!("{}.{:02}, {}", outcome.mean_leaves() / 100, outcome.mean_leaves() % 100, outcome.most_leaves);
    format!(
        "{name:<34} {:>7} {:>7} {spread:>13} {:>9} {:>7} {:>9} {:>7} {leaves:>12} {:>6}",
        tenths(hundredths),
        outcome.per_second(),
        tenths(cpu[0]),
        tenths(cpu[1]),
        tenths(cpu[2]),
        tenths(cpu[3]),
        outcome.memory
    )
}

/// Of runs that took turns, how fast ours were in percent of theirs: the least, the median and the most.
pub(crate) fn ratios(ours: &[Outcome], theirs: &[Outcome]) -> Option<[u64; 3]> {
    let percent = |(ours, theirs): (&Outcome, &Outcome)| ours.per_second() * 100 / theirs.per_second().max(1);
    let mut all: Vec<u64> = ours.iter().zip(theirs).map(percent).collect();
    all.sort_unstable();
    Some([*all.first()?, *all.get(all.len() / 2)?, *all.last()?])
}

impl Outcome {
    pub(crate) fn line(&self, name: &str) -> String {
        line(name, self, "", self.cpu)
    }
}

impl Summary {
    pub(crate) fn of(mut runs: Vec<Outcome>) -> Option<Self> {
        runs.sort_by_key(Outcome::per_second);
        (!runs.is_empty()).then_some(Self { runs })
    }

    fn median(&self) -> &Outcome {
        &self.runs[self.runs.len() / 2]
    }

    pub(crate) fn per_second(&self) -> u64 {
        self.median().per_second()
    }

    /// Median of each process on its own.
    fn cpu(&self) -> [u64; 4] {
        [0, 1, 2, 3].map(|at| {
            let mut all: Vec<u64> = self.runs.iter().map(|run| run.cpu[at]).collect();
            all.sort_unstable();
            all[all.len() / 2]
        })
    }

    pub(crate) fn line(&self, name: &str) -> String {
        let edge = |run: Option<&Outcome>| run.map(Outcome::per_second).unwrap_or_default();
        let spread = format!("{}–{}", edge(self.runs.first()), edge(self.runs.last()));
        line(name, self.median(), &spread, self.cpu())
    }

    /// Of the median run.
    pub(crate) fn writes(&self) -> String {
        let reported: Vec<String> =
            self.median().writes.iter().map(|(what, count)| format!("{what} × {count}")).collect();
        reported.join(", ")
    }

    pub(crate) fn json(&self) -> Value {
        json!({
            "median": self.median().json(),
            "runs": self.runs.iter().map(Outcome::json).collect::<Vec<_>>(),
        })
    }
}
