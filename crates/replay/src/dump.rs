//! Reading a dump: any mix of Kubernetes YAML and JSON, as `kubectl get … -o yaml` writes it.
//!
//! One object that cannot be read is reported and the rest goes on; a text that is no YAML is an error. Sizes are
//! bounded, so that a hostile dump ends in an error and not in a full memory.

mod constraints;
mod objects;
mod storage;
mod unknown;

use std::collections::BTreeSet;

use jiff::Timestamp;
use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{Namespace, Node, Pod, PodTemplate};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::api::scheduling::v1::PriorityClass;
use muster_api::conventions::Object;
use muster_api::crd::{EC2NodeClass, Gang, NodeBatch, NodePool, ProvisioningRequest};
use muster_api::dra::Devices;
use muster_api::volumes::Volumes;
use muster_core::reason::bounded;
use serde_json::{Map, Value};
use thiserror::Error;

use crate::document::Ignored;
use crate::record::Record;

/// Most nodes of a dump.
pub const MAX_NODES: usize = 100_000;
/// Most objects of a dump.
pub const MAX_OBJECTS: usize = 2_000_000;
/// Most bytes of all texts together.
pub const MAX_BYTES: usize = 1 << 30;
/// Most characters of a name or a text that are repeated in a message.
const MAX_SHOWN: usize = 100;

/// A text and what it is called in messages.
#[derive(Clone, Copy, Debug)]
pub struct Input<'a> {
    /// File name, or `-`.
    pub name: &'a str,
    /// What it holds.
    pub text: &'a str,
}

/// Why nothing can be planned at all.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ReadError {
    /// Neither YAML nor JSON.
    #[error("read {name}: {message}")]
    Syntax {
        /// The text's name.
        name: String,
        /// What is wrong and where.
        message: String,
    },
    /// Words alone, as of a command that failed.
    #[error("read {name}: no Kubernetes objects, but {text:?}")]
    Words {
        /// The text's name.
        name: String,
        /// How it begins.
        text: String,
    },
    /// More than the reader takes.
    #[error("dump has more than {limit} {what}")]
    TooLarge {
        /// What there is too much of.
        what: &'static str,
        /// The limit.
        limit: usize,
    },
}

/// A runtime: what a TrainJob names, and the JobSet it stands for.
#[derive(Clone, Debug)]
pub(crate) struct Runtime {
    /// `ClusterTrainingRuntime` or `TrainingRuntime`.
    pub(crate) kind: String,
    /// Empty for a cluster's.
    pub(crate) namespace: String,
    /// Name.
    pub(crate) name: String,
    /// `spec`.
    pub(crate) spec: Value,
}

/// Everything that was read, each kind in the order of the dump. Namespaced objects have a namespace.
#[derive(Clone, Debug, Default)]
pub struct Dump {
    /// Nodes.
    pub nodes: Vec<Node>,
    /// Pods whose requests can be read.
    pub pods: Vec<Pod>,
    /// Pods whose requests cannot be read, with the reason: they are ignored too.
    pub unreadable: Vec<(Pod, String)>,
    /// Claims, volumes, classes and limits.
    pub volumes: Volumes,
    /// Devices, and the claims on them.
    pub devices: Devices,
    /// Jobs.
    pub jobs: Vec<Job>,
    /// Other owners and groups that say which pods are a gang.
    pub objects: Vec<Object>,
    /// Templates that ProvisioningRequests name.
    pub templates: Vec<PodTemplate>,
    /// DaemonSets: what they take on every new node.
    pub daemon_sets: Vec<DaemonSet>,
    /// Namespaces, for their labels.
    pub namespaces: Vec<Namespace>,
    /// What keeps pods on nodes that go.
    pub budgets: Vec<PodDisruptionBudget>,
    /// Priority classes, for pods that do not exist yet.
    pub priorities: Vec<PriorityClass>,
    /// Pools.
    pub pools: Vec<NodePool>,
    /// Classes.
    pub classes: Vec<EC2NodeClass>,
    /// Gang objects.
    pub gangs: Vec<Gang>,
    /// What was provisioned: it plays no part in planning, and people want to see it.
    pub batches: Vec<NodeBatch>,
    /// ProvisioningRequests of every class.
    pub requests: Vec<ProvisioningRequest>,
    /// Runtimes that TrainJobs name.
    pub(crate) runtimes: Vec<Runtime>,
    /// The head of a recording, if the dump is one.
    pub record: Option<Record>,
    /// Passes of a server, if the dump is a recording that holds some.
    pub passes: Vec<Value>,
    /// Those of them that have ended: plural, namespace, name.
    pub finished: BTreeSet<(String, String, String)>,
    /// What plays no part, and why.
    pub ignored: Vec<Ignored>,
    /// The newest moment anything in the dump happened at.
    pub newest: Option<Timestamp>,
    seen: BTreeSet<(String, String, String)>,
}

/// Reads texts into one dump.
///
/// Errors: a text that is neither YAML nor JSON, more than the reader takes, or words alone.
pub fn read(inputs: &[Input<'_>]) -> Result<Dump, ReadError> {
    let bytes = inputs.iter().fold(0_usize, |sum, input| sum.saturating_add(input.text.len()));
    if bytes > MAX_BYTES {
        return Err(ReadError::TooLarge { what: "bytes", limit: MAX_BYTES });
    }
    let mut dump = Dump::default();
    for input in inputs {
        if dump.stream(input)? {
            continue;
        }
        let documents = parse(input)?;
        if let [Value::String(text)] = documents.as_slice() {
            let text = bounded(text, MAX_SHOWN).into_owned();
            return Err(ReadError::Words { name: input.name.to_owned(), text });
        }
        for (index, document) in documents.into_iter().enumerate() {
            dump.add(document, &format!("document {} of {}", index + 1, input.name))?;
        }
    }
    dump.note_devices();
    Ok(dump)
}

/// The documents of one text.
pub(crate) fn parse(input: &Input<'_>) -> Result<Vec<Value>, ReadError> {
    let text = input.text.trim_start_matches('\u{feff}');
    let json = text.trim_start().starts_with(['{', '[']);
    if json {
        let documents: Result<Vec<Value>, _> = serde_json::Deserializer::from_str(text).into_iter().collect();
        if let Ok(documents) = documents {
            return Ok(documents);
        }
    }
    serde_saphyr::from_multiple_with_options(text, options(text.len()))
        .map_err(|error| ReadError::Syntax { name: input.name.to_owned(), message: brief(&error.to_string()) })
}

/// Budgets that grow with the text: a dump of a large cluster is large, and an expansion of aliases is not.
fn options(bytes: usize) -> serde_saphyr::Options {
    let most = bytes.max(1 << 16);
    serde_saphyr::options! {
        // `n` and `off` are names here, as they are for whoever wrote them without quotes.
        strict_booleans: true,
        budget: serde_saphyr::budget! {
            max_events: most.saturating_mul(2),
            max_nodes: most.saturating_mul(2),
            max_total_scalar_bytes: most.saturating_mul(2),
            max_documents: MAX_OBJECTS,
        },
    }
}

/// The first line of a message: the snippets below it are for terminals.
fn brief(message: &str) -> String {
    message.lines().next().unwrap_or_default().to_owned()
}

impl Dump {
    /// Adds the documents of a JSON text one by one, so that one of too many objects ends early. `false`, and nothing
    /// is added, if it is none.
    fn stream(&mut self, input: &Input<'_>) -> Result<bool, ReadError> {
        let text = input.text.trim_start_matches('\u{feff}');
        if !text.trim_start().starts_with(['{', '[']) {
            return Ok(false);
        }
        let before = self.clone();
        let documents = serde_json::Deserializer::from_str(text).into_iter::<Value>();
        for (index, document) in documents.enumerate() {
            let Ok(document) = document else {
                *self = before;
                return Ok(false);
            };
            self.add(document, &format!("document {} of {}", index + 1, input.name))?;
        }
        Ok(true)
    }

    fn add(&mut self, value: Value, place: &str) -> Result<(), ReadError> {
        match value {
            Value::Null => Ok(()),
            Value::Array(items) => {
                for (index, item) in items.into_iter().enumerate() {
                    self.add(item, &format!("item {} of {place}", index + 1))?;
                }
                Ok(())
            }
            Value::Object(object) => self.add_object(object, place),
            Value::Bool(_) | Value::Number(_) | Value::String(_) => {
                let text: String = value.to_string().chars().take(40).collect();
                self.ignore(String::new(), place.to_owned(), format!("{text} is no Kubernetes object"));
                Ok(())
            }
        }
    }

    fn add_object(&mut self, mut object: Map<String, Value>, place: &str) -> Result<(), ReadError> {
        let text = |object: &Map<String, Value>, key: &str| {
            object.get(key).and_then(Value::as_str).unwrap_or_default().to_owned()
        };
        let (version, kind) = (text(&object, "apiVersion"), text(&object, "kind"));
        if let Some(of) = kind.strip_suffix("List").filter(|_| object.get("items").is_some_and(|i| !i.is_object())) {
            let items = object.remove("items").unwrap_or_default();
            let Value::Array(items) = items else {
                if !items.is_null() {
                    self.ignore(kind.clone(), place.to_owned(), "items: is no list".to_owned());
                }
                return Ok(());
            };
            for (index, mut item) in items.into_iter().enumerate() {
                // The API server leaves kind and version out of the items of a typed list.
                if let (Value::Object(item), false) = (&mut item, of.is_empty()) {
                    item.entry("kind").or_insert_with(|| Value::from(of));
                    item.entry("apiVersion").or_insert_with(|| Value::from(version.as_str()));
                }
                self.add(item, &format!("item {} of {place}", index + 1))?;
            }
            return Ok(());
        }
        if let Some(Value::Object(metadata)) = object.get_mut("metadata") {
            metadata.remove("managedFields");
        }
        let object = Value::Object(object);
        newest(&object, &mut self.newest);
        self.keep(&version, kind, object, place)
    }

    pub(crate) fn ignore(&mut self, kind: String, name: String, why: String) {
        self.ignored.push(Ignored { kind, name, why });
    }
}

/// Finds the newest moment among the fields that record one. A deletion timestamp lies in the future, and annotations
/// may hold anything.
fn newest(value: &Value, found: &mut Option<Timestamp>) {
    match value {
        Value::Object(fields) => {
            for (key, value) in fields {
                match value {
                    Value::String(text) => {
                        let recorded = key == "time" || key.ends_with("Time") || key.ends_with("Timestamp");
                        if recorded
                            && key != "deletionTimestamp"
                            && let Ok(moment) = text.parse::<Timestamp>()
                        {
                            *found = Some(found.map_or(moment, |newest| newest.max(moment)));
                        }
                    }
                    Value::Object(_) | Value::Array(_) => {
                        if key != "annotations" && key != "labels" {
                            newest(value, found);
                        }
                    }
                    Value::Null | Value::Bool(_) | Value::Number(_) => {}
                }
            }
        }
        Value::Array(items) => items.iter().for_each(|item| newest(item, found)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}
