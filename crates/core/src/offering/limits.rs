//! Which keys of a NodePool's limits count something, and what one node counts for.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use crate::ec2::machine::{EFA, InstanceTypeInfo};
use crate::model::names::ResourceName;
use crate::model::resources::{CPU, EPHEMERAL_STORAGE, MEMORY, Resources};

/// The limit that counts nodes.
pub const NODES: &str = "nodes";

/// What one node counts for in the limits: what its hardware has, see [`NewNode::capacity`](super::NewNode::capacity), and itself
/// under [`NODES`].
#[must_use]
pub fn counted(capacity: &Resources) -> Resources {
    let mut amounts = capacity.clone();
    amounts.set(NODES, 1);
    amounts
}

/// What a node of the type may count for, whatever its class says.
fn countable(info: &InstanceTypeInfo) -> Resources {
    let mut amounts = info.capacity();
    amounts.set(EFA, i64::from(info.efa_max));
    amounts
}

/// A key of the limits that limits nothing, since no node of the pool has such a thing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownLimit {
    /// The key.
    pub key: String,
    /// Its value, as written.
    pub value: String,
    /// The known key that looks most like it.
    pub nearest: String,
    /// All keys that limit something in this pool, in order of name.
    pub known: BTreeSet<String>,
}

impl fmt::Display for UnknownLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { key, value, nearest, known } = self;
        let known: Vec<&str> = known.iter().map(String::as_str).collect();
        write!(
            f,
            "spec.limits.{key}: \"{value}\" limits nothing that nodes of this pool have; did you mean {nearest}? Keys that \
             limit something here: {}",
            known.join(", ")
        )
    }
}

/// The first key, in order of name, that limits nothing: neither one that every node counts for, nor an extended
/// resource of one of the types, or of `others`, the hardware of types that are described by their amounts alone.
///
/// A ceiling with a misspelt key would hold nothing back, so the pool is refused instead of being provisioned from.
#[must_use]
pub fn unknown_limit<'a>(
    limits: &BTreeMap<String, String>,
    types: impl Iterator<Item = &'a InstanceTypeInfo>,
    others: impl IntoIterator<Item = &'a Resources>,
) -> Option<UnknownLimit> {
    let always = [NODES, CPU, MEMORY, EPHEMERAL_STORAGE];
    if limits.keys().all(|key| always.contains(&key.as_str())) {
        return None;
    }
    let mut known: BTreeSet<String> = always.into_iter().map(str::to_owned).collect();
    for info in types {
        known.extend(countable(info).iter().map(|(name, _): (&ResourceName, i64)| name.to_string()));
    }
    known.extend(others.into_iter().flat_map(Resources::iter).map(|(name, _)| name.to_string()));
    let (key, value) = limits.iter().find(|(key, _)| !known.contains(*key))?;
    let nearest = known.iter().min_by_key(|name| distance(key, name)).cloned().unwrap_or_default();
    Some(UnknownLimit { key: key.clone(), value: value.clone(), nearest, known })
}

/// Insertions, deletions and replacements of one character that turn one text into the other.
///
/// Source: Levenshtein's distance, one row of the table at a time.
fn distance(one: &str, other: &str) -> usize {
    let other: Vec<char> = other.chars().collect();
    let mut row: Vec<usize> = (0..=other.len()).collect();
    for (line, left) in one.chars().enumerate() {
        let mut diagonal = line;
        row[0] = line + 1;
        for (column, right) in other.iter().enumerate() {
            let replaced = diagonal + usize::from(left != *right);
            diagonal = row[column + 1];
            row[column + 1] = replaced.min(diagonal + 1).min(row[column] + 1);
        }
    }
    row[other.len()]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ec2::machine::tests::p5;

    fn unknown(keys: &[(&str, &str)]) -> Option<UnknownLimit> {
        let limits = keys.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        unknown_limit(&limits, [p5()].iter(), [])
    }

    #[test]
    fn a_limit_that_counts_nothing_is_named_with_the_key_it_looks_like() {
        for (key, value, nearest) in
            [("node", "4", "nodes"), ("nvidia.com/gpus", "16", "nvidia.com/gpu"), ("Memory", "1Ti", "memory")]
        {
            let found = unknown(&[("cpu", "100"), (key, value)]).unwrap_or_else(|| panic!("{key} is taken"));
            assert_eq!((found.key.as_str(), found.nearest.as_str()), (key, nearest));
            let message = found.to_string();
            assert!(message.starts_with(&format!("spec.limits.{key}: \"{value}\" ")), "{message}");
        }
    }

    #[test]
    fn what_nodes_of_the_pool_have_may_be_limited() {
        let keys = ["nodes", "cpu", "memory", "ephemeral-storage", "nvidia.com/gpu", "vpc.amazonaws.com/efa"];
        assert_eq!(unknown(&keys.map(|key| (key, "8"))), None);
        assert_eq!(unknown(&[]), None);
    }

    #[test]
    fn an_accelerator_that_no_type_of_the_pool_has_limits_nothing() {
        let found = unknown(&[("aws.amazon.com/neuron", "16")]).unwrap();
        assert!(!found.known.contains("aws.amazon.com/neuron") && found.known.contains("nvidia.com/gpu"));
    }

    #[test]
    fn a_node_counts_for_its_hardware_and_for_itself() {
        let amounts = counted(&p5().capacity());
        assert_eq!((amounts.get(NODES), amounts.get(CPU), amounts.get("nvidia.com/gpu")), (1, 192_000, 8));
        assert_eq!(countable(&p5()).get(EFA), i64::from(p5().efa_max));
    }
}
