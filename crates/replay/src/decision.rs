//! Decisions that a server made, each with everything the planner looked at; replayed, they must come out the same.

use std::fmt;

use muster_core::gang::Decision;
use muster_core::planner;
use muster_core::planner::plan::{Place, Plan, Report, SearchBudget, Seed};
use serde::{Deserialize, Serialize};
use thiserror::Error;

/// The version of the file this code writes and reads.
pub const VERSION: u32 = 1;

/// A file of decisions.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Decisions {
    /// Version of this structure.
    pub version: u32,
    /// Version of Muster that decided.
    pub muster: String,
    /// Oldest first.
    pub decisions: Vec<Decision>,
}

/// Why a file of decisions cannot be replayed.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum DecisionError {
    /// No such file format.
    #[error("read {name}: {message}")]
    Read {
        /// File.
        name: String,
        /// Field and value.
        message: String,
    },
    /// Another version.
    #[error("read {name}: version {version} is not {VERSION}")]
    Version {
        /// File.
        name: String,
        /// Its version.
        version: u32,
    },
}

/// What planning again says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Replayed {
    /// Gang, and the moment of the decision.
    pub title: String,
    /// `None`: the same plan and the same report.
    pub difference: Option<String>,
    /// What was decided.
    pub outcome: String,
}

/// Reads a file of decisions.
///
/// Errors: path of the field and its value.
pub fn read(name: &str, text: &str) -> Result<Decisions, DecisionError> {
    let mut deserializer = serde_json::Deserializer::from_str(text);
    let read: Result<Decisions, _> = serde_path_to_error::deserialize(&mut deserializer);
    let decisions = read.map_err(|error| DecisionError::Read {
        name: name.to_owned(),
        message: format!("{}: {}", error.path(), error.inner()),
    })?;
    if decisions.version == VERSION {
        Ok(decisions)
    } else {
        Err(DecisionError::Version { name: name.to_owned(), version: decisions.version })
    }
}

/// Plans every decision again and compares.
#[must_use]
pub fn replay(decisions: &Decisions) -> Vec<Replayed> {
    let again = |decision: &Decision| {
        let Decision { gang, at, policy, problem, plan, report } = decision;
        let (now, stated) = planner::plan(problem, policy, SearchBudget::default(), Seed::default());
        Replayed {
            title: format!("{gang} at {at}"),
            difference: difference(plan, report, &now, &stated),
            outcome: outcome(plan, report),
        }
    };
    decisions.decisions.iter().map(again).collect()
}

/// The first thing that is not as it was.
fn difference(plan: &Plan, report: &Report, now: &Plan, stated: &Report) -> Option<String> {
    let places = plan.places.iter().zip(&now.places).find(|(before, after)| before != after);
    if let Some((Place { role, rank, node, .. }, after)) = places {
        return Some(format!(
            "role {role} rank {rank} was placed on {node}, now role {} rank {} on {}",
            after.role, after.rank, after.node
        ));
    }
    if plan.places.len() != now.places.len() {
        return Some(format!("{} members were placed, now {}", plan.places.len(), now.places.len()));
    }
    if plan != now {
        return Some("the plan was for another gang or of another version".to_owned());
    }
    if report.refusal != stated.refusal {
        let text =
            |report: &Report| report.refusal.as_ref().map_or_else(|| "no refusal".to_owned(), ToString::to_string);
        return Some(format!("the refusal was: {}; now: {}", text(report), text(stated)));
    }
    // The work is not part of the answer: a server that remembers its nodes has less of it.
    let stated = Report { work: report.work, ..stated.clone() };
    (*report != stated).then(|| "the plan is the same, its report is not".to_owned())
}

fn outcome(plan: &Plan, report: &Report) -> String {
    match &report.refusal {
        Some(refusal) => format!("refused: {refusal}"),
        None => format!("{} members placed", plan.places.len()),
    }
}

impl fmt::Display for Replayed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.difference {
            None => write!(f, "{}: the same plan again ({})", self.title, self.outcome),
            Some(difference) => write!(f, "{}: DIFFERS: {difference}", self.title),
        }
    }
}
