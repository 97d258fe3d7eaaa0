//! The NodeBatches that were shown to the simulator, as far as the invariants read them.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::Deserialize;

/// What was shown when.
#[derive(Debug, Default)]
pub(crate) struct Batches(Vec<(Timestamp, BTreeMap<String, Batch>)>);

/// One NodeBatch.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Batch {
    metadata: Metadata,
    #[serde(default)]
    spec: Spec,
    #[serde(default)]
    status: Status,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Metadata {
    uid: String,
    #[serde(default)]
    deletion_timestamp: Option<String>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Spec {
    count: u32,
    fill: Option<String>,
    gang_ref: Option<serde_json::Value>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Status {
    phase: String,
    count: u32,
    placement_group: Option<String>,
    launch_templates: Vec<String>,
    attempts: Vec<Attempt>,
    instances: Vec<Member>,
    replaced: Vec<Member>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Attempt {
    template: Option<String>,
}

/// An entry of `instances[]`.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Member {
    id: String,
    state: String,
}

impl Batches {
    /// Takes a list of NodeBatches, or a Kubernetes `List`; what was shown before stays as history. `null` forgets all.
    ///
    /// # Errors
    /// What serde says of an object that is no NodeBatch.
    pub(crate) fn show(&mut self, json: serde_json::Value, now: Timestamp) -> Result<usize, serde_json::Error> {
        if json.is_null() {
            self.0.clear();
            return Ok(0);
        }
        let items = match json {
            serde_json::Value::Object(mut list) => list.remove("items").unwrap_or_default(),
            other => other,
        };
        let batches: Vec<Batch> = serde_json::from_value(items)?;
        let shown: BTreeMap<String, Batch> = batches.into_iter().map(|b| (b.metadata.uid.clone(), b)).collect();
        let count = shown.len();
        self.0.push((now, shown));
        Ok(count)
    }

    /// The last ones, if there are any.
    pub(crate) fn last(&self) -> Option<&BTreeMap<String, Batch>> {
        self.0.last().map(|(_, shown)| shown)
    }

    /// Those that were shown last at or before a time.
    pub(crate) fn at(&self, at: Timestamp) -> Option<&BTreeMap<String, Batch>> {
        self.0.iter().rev().find(|(shown, _)| *shown <= at).map(|(_, batches)| batches)
    }
}

impl Batch {
    /// N as recorded.
    pub(crate) fn count(&self) -> u32 {
        if self.status.count > 0 { self.status.count } else { self.spec.count }
    }

    pub(crate) fn is_atomic(&self) -> bool {
        self.spec.fill.as_deref() != Some("Partial")
    }

    pub(crate) fn is_of_a_gang(&self) -> bool {
        self.spec.gang_ref.is_some()
    }

    /// Whether it holds its nodes: neither provisioning, nor replacing, nor ending.
    pub(crate) fn holds(&self) -> bool {
        matches!(self.status.phase.as_str(), "Ready" | "InUse" | "Idle") && self.metadata.deletion_timestamp.is_none()
    }

    /// Whether it is ending as a whole.
    pub(crate) fn ends(&self) -> bool {
        matches!(self.status.phase.as_str(), "Draining" | "Terminating") || self.metadata.deletion_timestamp.is_some()
    }

    pub(crate) fn has_group(&self, name: &str) -> bool {
        self.status.placement_group.as_deref() == Some(name)
    }

    pub(crate) fn has_template(&self, id: &str, name: &str) -> bool {
        let attempted = self.status.attempts.iter().filter_map(|a| a.template.as_deref());
        let mut all = self.status.launch_templates.iter().map(String::as_str).chain(attempted);
        all.any(|t| t == id || t == name)
    }

    /// Whether an instance is by its id one of the batch, or one that it lost and still watches.
    pub(crate) fn has(&self, id: &str) -> bool {
        self.status.instances.iter().chain(&self.status.replaced).any(|m| m.id == id)
    }

    /// Whether an instance is one that the batch lives on.
    pub(crate) fn lives_on(&self, id: &str) -> bool {
        let given_up = |state: &str| matches!(state, "Terminating" | "Gone" | "Lost" | "Replaced");
        self.status.instances.iter().any(|m| m.id == id && !given_up(&m.state))
    }
}
