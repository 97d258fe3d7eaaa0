//! Whole passes over gangs and over NodeBatches that a server recorded, each with everything it looked at; decided again by
//! the same functions, gangs, purchases, launches and reasons must come out the same, byte for byte.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use jiff::Timestamp;
use muster_api::keys;
use muster_core::batch::{DecidedBatches, RecordedBatches};
use muster_core::gang::{Decided, RecordedWorld};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::decision::DecisionError;

/// Kind of the file. It is never an object of a cluster.
pub const KIND: &str = "Passes";
/// The version of the file this code writes and reads.
pub const VERSION: u32 = 1;

/// One pass over gangs.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RecordedPass {
    /// Everything it looked at.
    pub world: RecordedWorld,
    /// What was decided.
    pub decided: Decided,
}

/// One pass over NodeBatches.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RecordedBatchPass {
    /// Everything it looked at.
    pub world: RecordedBatches,
    /// What was decided.
    pub decided: DecidedBatches,
}

/// A file of passes.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Passes {
    api_version: String,
    kind: &'static str,
    version: u32,
    muster: String,
    passes: Vec<RecordedPass>,
    batch_passes: Vec<RecordedBatchPass>,
}

impl Passes {
    /// A file of these passes, each list with the oldest first, recorded by this version of Muster.
    #[must_use]
    pub fn new(muster: &str, passes: Vec<RecordedPass>, batch_passes: Vec<RecordedBatchPass>) -> Self {
        let api_version = format!("{}/v1alpha1", keys::GROUP);
        Self { api_version, kind: KIND, version: VERSION, muster: muster.to_owned(), passes, batch_passes }
    }
}

/// Passes as they are read: what was decided is compared, and needs no types.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Read {
    version: u32,
    passes: Vec<ReadPass<RecordedWorld>>,
    #[serde(default = "Vec::new")]
    batch_passes: Vec<ReadPass<RecordedBatches>>,
}

#[derive(Deserialize)]
#[serde(bound = "W: DeserializeOwned")]
struct ReadPass<W> {
    world: W,
    decided: Value,
}

/// What a pass is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Over {
    /// Gangs.
    Gangs,
    /// NodeBatches.
    Batches,
}

/// A pass that was decided again.
#[derive(Debug)]
pub struct Again {
    /// What it is over.
    pub over: Over,
    /// Its moment.
    pub at: Timestamp,
    /// What the server decided.
    pub before: Value,
    /// What comes out now.
    pub now: Value,
}

/// Whether a text is a file of passes.
#[must_use]
pub fn is_one(text: &str) -> bool {
    #[derive(Deserialize)]
    struct Head {
        kind: String,
    }
    serde_json::from_str(text).is_ok_and(|head: Head| head.kind == KIND)
}

/// Reads a file of passes and decides each again: those over gangs, then those over NodeBatches.
///
/// Errors: path of the field and its value.
pub fn again(name: &str, text: &str) -> Result<Vec<Again>, DecisionError> {
    let document = serde_json::from_str(text)
        .map_err(|error| DecisionError::Read { name: name.to_owned(), message: error.to_string() })?;
    again_of(name, document)
}

/// As [`again`], for the passes in a recording.
///
/// Errors: path of the field and its value.
pub fn again_of(name: &str, passes: Value) -> Result<Vec<Again>, DecisionError> {
    let read: Result<Read, _> = serde_path_to_error::deserialize(passes);
    let Read { version, passes, batch_passes } = read.map_err(|error| DecisionError::Read {
        name: name.to_owned(),
        message: format!("{}: {}", error.path(), error.inner()),
    })?;
    if version != VERSION {
        return Err(DecisionError::Version { name: name.to_owned(), version });
    }
    let of_gangs = |ReadPass { world, decided }: ReadPass<RecordedWorld>| {
        let now = serde_json::to_value(world.decide()).expect("decisions have only strings as keys");
        Again { over: Over::Gangs, at: world.now(), before: decided, now }
    };
    let of_batches = |ReadPass { world, decided }: ReadPass<RecordedBatches>| {
        let now = serde_json::to_value(world.decide()).expect("decisions have only strings as keys");
        Again { over: Over::Batches, at: world.at(), before: decided, now }
    };
    Ok(passes.into_iter().map(of_gangs).chain(batch_passes.into_iter().map(of_batches)).collect())
}

impl Again {
    /// The first line that is not as it was.
    #[must_use]
    pub fn difference(&self) -> Option<String> {
        let (before, now) = (pretty(&self.before), pretty(&self.now));
        let lines = before.lines().zip(now.lines()).find(|(before, now)| before != now);
        match lines {
            Some((before, now)) => Some(format!("it was {}, now {}", before.trim(), now.trim())),
            None => (before != now).then(|| "one says more than the other".to_owned()),
        }
    }

    /// One line for people.
    #[must_use]
    pub fn line(&self) -> String {
        if let Some(difference) = self.difference() {
            return format!("{}: DIFFERS: {difference}", self.at);
        }
        let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
        match self.over {
            Over::Gangs => {
                for action in self.now["actions"].as_array().into_iter().flatten() {
                    *counts.entry(action["action"].as_str().unwrap_or_default()).or_default() += 1;
                }
            }
            Over::Batches => {
                let decisions = self.now["decisions"].as_array();
                counts.insert("NodeBatches", decisions.map_or(0, Vec::len));
            }
        }
        let mut line = format!("{}: the same decisions again (", self.at);
        for (index, (action, count)) in counts.into_iter().enumerate() {
            let comma = if index == 0 { "" } else { ", " };
            // Writing to a String cannot fail.
            let _ = write!(line, "{comma}{count} {action}");
        }
        line + ")"
    }
}

/// What is decided now, as a document.
#[must_use]
pub fn to_json(again: &[Again]) -> String {
    let of = |over: Over| -> Vec<Value> {
        let of = again.iter().filter(|one| one.over == over);
        of.map(|one| json!({"at": one.at, "decided": one.now})).collect()
    };
    let (passes, batch_passes) = (of(Over::Gangs), of(Over::Batches));
    pretty(&json!({"version": VERSION, "passes": passes, "batchPasses": batch_passes})) + "\n"
}

fn pretty(value: &Value) -> String {
    serde_json::to_string_pretty(value).expect("only strings are keys")
}
