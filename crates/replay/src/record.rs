//! A recording of a cluster: everything the planner reads, in one file that any of the commands reads again.
//!
//! It is a `List` as kubectl writes it, with one object more at its head: the moment, the version and the settings that
//! were in force. Given no flags of their own, the commands take them from there, so a recording says the same wherever
//! it is read.

use jiff::Timestamp;
use muster_api::keys;
use muster_core::planner::plan::{Elastic, Placement, Policy};
use muster_core::topology::Level;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// Kind of the head. It is never an object of a cluster.
pub const KIND: &str = "Record";

/// The head of a recording.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Record {
    /// When it was made.
    pub time: Timestamp,
    /// The version that made it.
    pub version: String,
    /// The configured topology levels, top to bottom; null: those that the nodes carry.
    pub levels: Option<Vec<Level>>,
    /// Names of our profiles.
    pub scheduler_names: Vec<String>,
    /// Names of others whose pods of no gang are provisioned for too.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub provisioner_scheduler_names: Vec<String>,
    /// Kinds that could not be listed, by their plural: what is not there may exist.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub excluded: Vec<String>,
    /// What is best.
    pub policy: RecordedPolicy,
}

/// [`Policy`] as it is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RecordedPolicy {
    /// What comes first.
    pub placement: Placement,
    /// How far elastic members reach.
    pub elastic: Elastic,
}

impl From<Policy> for RecordedPolicy {
    fn from(Policy { placement, elastic }: Policy) -> Self {
        Self { placement, elastic }
    }
}

impl From<RecordedPolicy> for Policy {
    fn from(RecordedPolicy { placement, elastic }: RecordedPolicy) -> Self {
        Self { placement, elastic }
    }
}

/// The recording as text. `objects` are whole objects with kind and version.
///
/// `managedFields`, which no reader looks at, are excluded.
#[must_use]
pub fn render(record: &Record, objects: Vec<Value>) -> String {
    let mut head = json!({"apiVersion": format!("{}/v1alpha1", keys::GROUP), "kind": KIND});
    if let (Some(head), Ok(Value::Object(fields))) = (head.as_object_mut(), serde_json::to_value(record)) {
        head.extend(fields);
    }
    let mut items = vec![head];
    for mut object in objects {
        if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
            metadata.remove("managedFields");
        }
        items.push(object);
    }
    let list = json!({"apiVersion": "v1", "kind": "List", "metadata": {"resourceVersion": ""}, "items": items});
    let mut text = serde_json::to_string_pretty(&list).expect("a list has only strings as keys");
    text.push('\n');
    text
}
