//! Nodes and pods that a remedy names, and lists of names.

use std::fmt::{self, Display};
use std::sync::Arc;

use serde::Serialize;

use crate::model::names::NodeName;

/// Names listed one by one.
const SHOWN: usize = 8;

/// Nodes, by name or, where any will do, by number.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Nodes {
    /// Exactly these, in natural order; empty: any.
    pub nodes: Vec<NodeName>,
    /// How many.
    pub count: u32,
}

/// A pod that holds what a gang needs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PodHolds {
    /// `namespace/name`.
    pub pod: Arc<str>,
    /// What it holds, as `cpu 100`; empty: nothing that can be counted.
    pub holds: Arc<str>,
    /// The node.
    pub node: NodeName,
}

impl Display for PodHolds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { pod, holds, node } = self;
        match holds.is_empty() {
            true => write!(f, "{pod} (on {node})"),
            false => write!(f, "{pod} ({holds} on {node})"),
        }
    }
}

impl Display for Nodes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.nodes.as_slice() {
            [] => write!(f, "{} more node{}", self.count, plural(self.count)),
            [one] => write!(f, "node {one}"),
            all => write!(f, "nodes {}", listed(all)),
        }
    }
}

pub(super) fn listed<T: Display>(items: &[T]) -> String {
    listed_with(items, "and")
}

pub(super) fn listed_with<T: Display>(items: &[T], word: &str) -> String {
    let mut shown: Vec<String> = items.iter().take(SHOWN).map(ToString::to_string).collect();
    let more = items.len().saturating_sub(SHOWN);
    if more > 0 {
        shown.push(format!("{more} more"));
    }
    match shown.split_last() {
        None => String::new(),
        Some((last, [])) => last.clone(),
        Some((last, others)) => format!("{} {word} {last}", others.join(", ")),
    }
}

pub(super) fn plural<N: Copy + PartialEq + From<u8>>(count: N) -> &'static str {
    if count == N::from(1) { "" } else { "s" }
}
