//! Why a gang or a pod waits, where it goes, what it would cost and how far that is from the best; who holds a node.
//!
//! The same study of a dump that the published plan comes from, as the answer about one object.

mod gang;
mod node;
mod pod;
mod remedies;
mod text;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use muster_core::model::names::NodeName;
use muster_core::planner::plan::Work;
use muster_core::topology::Levels;
use serde::Serialize;
use thiserror::Error;

use crate::dump::Dump;
use crate::plan::{self, Options, PlanError};

pub use gang::{Best, Blocking, Choice, GangExplanation, LevelExplanation};
pub use node::{Assignment, NodeExplanation, OfGang, OnNode};
pub use pod::PodExplanation;
pub use remedies::{Remedy, groups};

/// The version of the JSON this code writes.
pub const VERSION: u32 = 1;

/// In place of a namespace: all of them, as clients of Kubernetes write it.
pub const ALL_NAMESPACES: &str = "";

/// What is asked about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// A gang, by the name its pods or owner give it or by that of its object.
    Gang {
        /// Namespace; [`ALL_NAMESPACES`]: wherever it is.
        namespace: String,
        /// Name.
        name: String,
    },
    /// A pod.
    Pod {
        /// Namespace; [`ALL_NAMESPACES`]: wherever it is.
        namespace: String,
        /// Name.
        name: String,
    },
    /// A node.
    Node {
        /// Name.
        name: String,
    },
}

/// The answer.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", tag = "kind")]
pub enum Explanation {
    /// About a gang.
    Gang(Box<GangExplanation>),
    /// About a pod.
    Pod(Box<PodExplanation>),
    /// About a node.
    Node(Box<NodeExplanation>),
}

/// Why there is no answer.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ExplainError {
    /// Nothing can be planned.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// No such object.
    #[error("there is no {what} {name}{suggestion}")]
    NotFound {
        /// `gang`, `pod` or `node`.
        what: &'static str,
        /// What was asked for.
        name: String,
        /// What there is, or nothing.
        suggestion: String,
    },
    /// It is there, and something of it is not what it may be.
    #[error("{what} {name} cannot be read: {why}")]
    Unreadable {
        /// `pod` or `node`.
        what: &'static str,
        /// What was asked for.
        name: String,
        /// Field and value.
        why: String,
    },
    /// Several of one name, where all namespaces were asked for.
    #[error("there is more than one {what} {name}{suggestion}")]
    Several {
        /// `gang` or `pod`.
        what: &'static str,
        /// What was asked for.
        name: String,
        /// Where they are.
        suggestion: String,
    },
}

/// Explains one object of a dump.
///
/// Errors: no such object; levels that make no list.
pub fn explain(dump: Dump, options: &Options, target: &Target) -> Result<Explanation, ExplainError> {
    let mut options = options.clone();
    if let Target::Node { name } = target {
        options.focus = Some(NodeName::from(name.as_str()));
    }
    let unread = match target {
        Target::Gang { .. } => None,
        Target::Pod { namespace, name } => {
            let is_it = |metadata: &ObjectMeta| {
                let of = metadata.namespace.as_deref().unwrap_or_default();
                metadata.name.as_ref() == Some(name) && is_asked(namespace, of)
            };
            dump.unreadable.iter().find(|(pod, _)| is_it(&pod.metadata)).map(|(_, why)| why.clone())
        }
        Target::Node { name } => {
            dump.ignored.iter().find(|one| one.kind == "Node" && one.name == *name).map(|one| one.why.clone())
        }
    };
    let pods = pod::Facts::of(&dump, target);
    let owners = node::owners(&dump);
    let study = plan::study(dump, &options)?;
    let found = match target {
        Target::Gang { namespace, name } => {
            gang::explain(&study, &options.catalogue, namespace, name).map(|found| Explanation::Gang(Box::new(found)))
        }
        Target::Pod { namespace, name } => pod::explain(&study, &options.catalogue, &pods, namespace, name)
            .map(|found| Explanation::Pod(Box::new(found))),
        Target::Node { name } => node::explain(&study, &owners, name).map(|found| Explanation::Node(Box::new(found))),
    };
    found.map_err(|error| match (error, unread) {
        (ExplainError::NotFound { what, name, .. }, Some(why)) => ExplainError::Unreadable { what, name, why },
        (error, _) => error,
    })
}

/// Every gang of a plan, in planning order.
#[derive(Clone, Debug)]
pub struct Gangs {
    /// One explanation each.
    pub gangs: Vec<GangExplanation>,
    /// The levels that were planned with.
    pub levels: Levels,
    /// What the planner of gangs did for it.
    pub work: Work,
}

/// Explains every gang of a dump.
///
/// Errors: levels that make no list.
pub fn gangs(dump: Dump, options: &Options) -> Result<Gangs, PlanError> {
    let study = plan::study(dump, options)?;
    let entries = study.document.gangs.iter().zip(&study.details).enumerate();
    let all = entries.map(|(ahead, (entry, detail))| gang::of(&study, &options.catalogue, entry, detail, ahead));
    Ok(Gangs { gangs: all.collect(), levels: study.levels.clone(), work: study.work })
}

impl Explanation {
    /// For people.
    #[must_use]
    pub fn to_text(&self) -> String {
        match self {
            Self::Gang(gang) => text::gang(gang),
            Self::Pod(pod) => text::pod(pod),
            Self::Node(node) => text::node(node),
        }
    }

    /// As JSON, two spaces deep, with a newline at the end.
    #[must_use]
    pub fn to_json(&self) -> String {
        let value = serde_json::to_value(self).map(|mut value| {
            if let Some(fields) = value.as_object_mut() {
                fields.insert("version".to_owned(), VERSION.into());
            }
            value
        });
        let value = value.expect("an explanation has only strings as keys");
        format!("{value:#}\n")
    }
}

/// Whether a namespace is one that is asked for.
fn is_asked(asked: &str, namespace: &str) -> bool {
    asked == ALL_NAMESPACES || asked == namespace
}

/// What there is of the same name in other namespaces, for the message of what was not found in the one asked for, or was
/// found more than once in all of them. `None`: nothing.
fn elsewhere<'a>(namespaces: impl Iterator<Item = &'a str>) -> Option<String> {
    let mut namespaces: Vec<&str> = namespaces.collect();
    namespaces.sort_unstable();
    namespaces.dedup();
    let first = namespaces.first()?;
    Some(match namespaces.split_last() {
        Some((last, others)) if !others.is_empty() => {
            format!("; it exists in namespaces {} and {last}: use -n {first}", others.join(", "))
        }
        Some(_) | None => format!("; it exists in namespace {first}: use -n {first}"),
    })
}

/// What was asked for, with its namespace if one was named.
fn asked_for(namespace: &str, name: &str) -> String {
    if namespace == ALL_NAMESPACES { name.to_owned() } else { format!("{namespace}/{name}") }
}

/// "; there is a" or "; there are a, b" for the message of what was not found.
fn suggestion<'a>(names: impl Iterator<Item = &'a str>) -> String {
    let mut names: Vec<&str> = names.collect();
    names.sort_unstable();
    names.dedup();
    let more = names.len().saturating_sub(SUGGESTIONS);
    let shown = names.iter().take(SUGGESTIONS).copied().collect::<Vec<_>>().join(", ");
    match (shown.is_empty(), more) {
        (true, _) => String::new(),
        (false, 0) if names.len() == 1 => format!("; there is {shown}"),
        (false, 0) => format!("; there are {shown}"),
        (false, more) => format!("; there are {shown} and {more} more"),
    }
}

/// Names in a suggestion.
const SUGGESTIONS: usize = 10;
