//! The journal: every request and what became of it, in order, never changed afterwards.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write as _;
use std::sync::atomic::{AtomicU32, Ordering};

use jiff::Timestamp;
use serde::Serialize;

use crate::faults::CallScope;
use crate::kinds::MarketType;

/// One request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct JournalEntry {
    /// From 0.
    pub number: u64,
    /// Virtual time.
    pub at: Timestamp,
    /// The service: `ec2`, `sqs`, `sts`, `iam` or `eks`.
    pub service: &'static str,
    /// The operation asked for, known or not; empty if none was named.
    pub operation: String,
    /// The decoded parameters, without `Action` and `Version`.
    pub parameters: BTreeMap<String, String>,
    /// The client token, if there is one.
    pub token: Option<String>,
    /// The SDK's attempt from `amz-sdk-request`, from 1; absent without the header.
    pub attempt: Option<u32>,
    /// The client's name.
    pub user_agent: Option<String>,
    /// The names of the faults that hit the call.
    pub faults: Vec<String>,
    /// The status of the answer, also when it never reached the client.
    pub status: u16,
    /// The error code, if it failed.
    pub code: Option<String>,
    /// Codes inside an answer of status 200.
    pub item_codes: Vec<String>,
    /// Ids of what was made, deleted or terminated.
    pub resources: Vec<String>,
    /// Whether a known token was answered again, so that nothing was done.
    pub replayed: bool,
    /// Whether the client was kept from learning the outcome.
    pub lost: bool,
    /// The number of the entry with which the call came, if it was held back and carried out here.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub held: Option<u64>,
    /// What a launch asked for, and which pools refused.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub launch: Option<LaunchFacts>,
    /// The id in `x-amzn-requestid`.
    pub request_id: String,
    /// The request's body, if the scenario records bodies.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub request: Option<String>,
    /// The answer's body, if the scenario records bodies.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub response: Option<String>,
}

/// What a launch asked for, wherever the request has it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct LaunchFacts {
    /// The value of the tag that names the batch.
    pub batch: Option<String>,
    /// Instance types.
    pub types: BTreeSet<String>,
    /// Availability Zones.
    pub zones: BTreeSet<String>,
    /// The capacity type.
    #[serde(rename = "market")]
    pub capacity_type: MarketType,
    /// The placement group's name or id.
    pub group: Option<String>,
    /// The capacity reservation it names.
    pub reservation: Option<String>,
    /// The pools that refused.
    pub failures: Vec<Failure>,
}

/// A pool that refused a launch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Failure {
    /// The instance type.
    #[serde(rename = "type")]
    pub instance_type: String,
    /// The Availability Zone.
    pub zone: String,
    /// The error code.
    pub code: String,
}

impl LaunchFacts {
    pub(crate) fn of(scope: &CallScope) -> Option<Self> {
        scope.capacity_type.map(|capacity_type| Self {
            batch: scope.batch.clone(),
            types: scope.types.clone(),
            zones: scope.zones.clone(),
            capacity_type,
            group: scope.group.clone(),
            reservation: scope.reservation.clone(),
            failures: vec![],
        })
    }

    /// The code of an exception is about every pool asked.
    pub(crate) fn refused(&mut self, code: &str) {
        for instance_type in &self.types {
            for zone in &self.zones {
                let (instance_type, zone) = (instance_type.clone(), zone.clone());
                self.failures.push(Failure { instance_type, zone, code: code.to_owned() });
            }
        }
    }
}

impl JournalEntry {
    /// Whether the call only asked whether it would be carried out.
    #[must_use]
    pub fn dry(&self) -> bool {
        self.parameters.get("DryRun").is_some_and(|value| value == "true")
    }

    /// Whether the call asked for a launch. What was held back asked when it came, not when it was carried out.
    #[must_use]
    pub fn launches(&self) -> bool {
        self.held.is_none() && !self.dry() && matches!(self.operation.as_str(), "CreateFleet" | "RunInstances")
    }

    /// The value of a tag which the call sets on instances.
    #[must_use]
    pub fn instance_tag(&self, key: &str) -> Option<&str> {
        self.parameters.iter().find_map(|(name, value)| {
            let prefix = name.strip_suffix(".Key").filter(|_| value == key)?;
            let (spec, _) = prefix.split_once(".Tag.")?;
            let kind = self.parameters.get(&format!("{spec}.ResourceType"))?;
            (kind == "instance").then(|| self.parameters.get(&format!("{prefix}.Value"))).flatten().map(String::as_str)
        })
    }

    /// The instances a launch asked for and the fewest it accepts.
    #[must_use]
    pub fn launch_size(&self) -> Option<(u32, Option<u32>)> {
        let number = |name: &str| self.parameters.get(name).and_then(|v| v.parse().ok());
        match self.operation.as_str() {
            "CreateFleet" => {
                let total = number("TargetCapacitySpecification.TotalTargetCapacity")?;
                let minimum =
                    number("OnDemandOptions.MinTargetCapacity").or_else(|| number("SpotOptions.MinTargetCapacity"));
                Some((total, minimum))
            }
            "RunInstances" => Some((number("MaxCount")?, number("MinCount"))),
            _ => None,
        }
    }
}

/// The entries so far.
#[derive(Debug, Default)]
pub(crate) struct Journal {
    entries: Vec<JournalEntry>,
    /// Each entry is also appended here, as a line of JSON.
    file: Option<std::fs::File>,
}

impl Journal {
    /// A journal that is also written into a new file in `folder`.
    ///
    /// # Errors
    /// What the file system reports.
    pub(crate) fn kept_in(folder: &std::path::Path) -> std::io::Result<Self> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        std::fs::create_dir_all(folder)?;
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let file = std::fs::File::create(folder.join(format!("{}-{number}.jsonl", std::process::id())))?;
        Ok(Self { entries: vec![], file: Some(file) })
    }

    pub(crate) fn next_number(&self) -> u64 {
        u64::try_from(self.entries.len()).unwrap_or(u64::MAX)
    }

    pub(crate) fn write(&mut self, entry: JournalEntry) {
        if let Some(file) = &mut self.file {
            // What cannot be written is missing from the file, and whoever reads it sees that in the numbers.
            let line = serde_json::to_string(&entry).unwrap_or_default() + "\n";
            let _written = file.write_all(line.as_bytes());
        }
        self.entries.push(entry);
    }

    pub(crate) fn entries(&self) -> &[JournalEntry] {
        &self.entries
    }

    pub(crate) fn since(&self, number: u64) -> &[JournalEntry] {
        let start = usize::try_from(number).unwrap_or(usize::MAX).min(self.entries.len());
        &self.entries[start..]
    }
}
