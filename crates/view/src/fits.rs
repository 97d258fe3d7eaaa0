//! What fits now: the largest gang of whole nodes in one domain of each level, and how many gangs of a size fit at once.
//!
//! A member asks for all accelerators of one kind of node and stands alone on its node. It tolerates the taint that
//! accelerator nodes carry by custom (its key is the resource), and those of the NodePools; every other taint keeps it
//! away, those that hold a node for a gang first of all. Whether a node takes it is answered by [`fit::slots`].

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use muster_core::fit;
use muster_core::model::node::{Node, Usage};
use muster_core::model::pod::{Shape, Toleration};
use muster_core::model::resources::{PODS, Resources};
use muster_core::topology::{Levels, Tree};

use crate::overview::{AtOnce, FitEntry, Fragment};

/// Sizes of gangs that are counted. Larger ones are counted as far as the largest gang goes.
const SIZES: [u32; 12] = [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048];
/// Sizes that are always shown.
const ALWAYS: u32 = 16;

/// A kind of node: the resource, and how many of it one node has.
pub type Kind = (String, u64);

/// The member that takes a whole node of a kind.
#[must_use]
pub fn member(kind: &Kind, tolerated: &BTreeSet<Arc<str>>) -> Shape {
    let mut requests = Resources::default();
    requests.set(kind.0.as_str(), i64::try_from(kind.1).unwrap_or(i64::MAX));
    requests.set(PODS, 1);
    let tolerate = |key: &str| Toleration { key: Arc::from(key), exists: true, value: Arc::from(""), effect: None };
    let mut tolerations = vec![tolerate(&kind.0)];
    tolerations.extend(tolerated.iter().map(|key| tolerate(key)));
    Shape { requests, tolerations, one_per_node: true, ..Shape::default() }
}

/// Kinds of nodes there are, in order.
#[must_use]
pub fn kinds<'a>(nodes: impl IntoIterator<Item = &'a Node>, accelerators: &[&str]) -> Vec<Kind> {
    let mut kinds = BTreeSet::new();
    for node in nodes {
        for name in accelerators {
            let count = u64::try_from(node.allocatable.get(name)).unwrap_or(0);
            if count > 0 {
                kinds.insert(((*name).to_owned(), count));
            }
        }
    }
    kinds.into_iter().collect()
}

/// What fits for one kind, per level above the host; for the whole cluster where no level is a zone, since a gang that
/// requires nothing stays inside one.
#[must_use]
pub fn of_kind(
    kind: &Kind,
    levels: &Levels,
    tree: &Tree,
    nodes: &[(&Node, &Usage)],
    tolerated: &BTreeSet<Arc<str>>,
) -> Vec<FitEntry> {
    counted(kind, levels, tree, nodes, tolerated, &Looked::default())
}

/// Counts nodes that are looked at.
#[derive(Debug, Default)]
pub(crate) struct Looked(Cell<u64>);

impl Looked {
    /// These, each counted when it is looked at.
    pub(crate) fn at<'a, T>(&'a self, all: impl IntoIterator<Item = T> + 'a) -> impl Iterator<Item = T> + 'a {
        all.into_iter().inspect(|_| self.0.set(self.0.get().saturating_add(1)))
    }

    /// How many there were.
    pub(crate) fn nodes(&self) -> u64 {
        self.0.get()
    }
}

/// [`of_kind`], with the nodes that it looks at counted.
pub(crate) fn counted(
    kind: &Kind,
    levels: &Levels,
    tree: &Tree,
    nodes: &[(&Node, &Usage)],
    tolerated: &BTreeSet<Arc<str>>,
    looked: &Looked,
) -> Vec<FitEntry> {
    let shape = member(kind, tolerated);
    let slots = |(node, usage): &(&Node, &Usage)| fit::slots(&shape, node, usage).is_ok_and(|slots| slots > 0);
    let takes: Vec<bool> = looked.at(nodes).map(slots).collect();
    let free = |range: std::ops::Range<usize>| {
        let count =
            looked.at(&tree.hosts()[range]).filter(|index| takes.get(**index).copied().unwrap_or(false)).count();
        u32::try_from(count).unwrap_or(u32::MAX)
    };
    let mut found = Vec::new();
    if levels.zone().is_none() {
        found.push(entry(kind, None, &[(free(0..tree.hosts().len()), String::new())]));
    }
    for level in 0..levels.host() {
        let domains = tree.level(level).iter().enumerate().filter(|(index, _)| tree.satisfies(level, *index));
        let domains = domains.map(|(index, domain)| (free(domain.hosts.clone()), tree.path(level, index)));
        let name = levels.as_slice().get(level).map(|level| level.name.to_string());
        found.push(entry(kind, name, &domains.collect::<Vec<_>>()));
    }
    found
}

/// Nodes of the largest gang by level and accelerator, over all kinds of nodes; the level is `cluster` where a gang may lie
/// anywhere.
#[must_use]
pub fn largest(entries: impl IntoIterator<Item = FitEntry>) -> BTreeMap<(String, String), u32> {
    let mut largest: BTreeMap<(String, String), u32> = BTreeMap::new();
    for entry in entries {
        let level = entry.level.unwrap_or_else(|| "cluster".to_owned());
        let most = largest.entry((level, entry.accelerator)).or_default();
        *most = entry.largest.max(*most);
    }
    largest
}

fn entry(kind: &Kind, level: Option<String>, domains: &[(u32, String)]) -> FitEntry {
    let largest = domains.iter().map(|(nodes, _)| *nodes).max().unwrap_or(0);
    // Of equal ones the first in topology order.
    let at = domains.iter().find(|(nodes, _)| *nodes == largest && largest > 0).map(|(_, path)| path.clone());
    let shown = SIZES.into_iter().filter(|size| *size <= ALWAYS.max(largest));
    let at_once = shown.map(|nodes| AtOnce {
        nodes,
        gangs: domains.iter().fold(0, |sum, (free, _)| sum.saturating_add(free / nodes)),
    });
    let at_once = at_once.collect();
    let mut fragments: BTreeMap<u32, u32> = BTreeMap::new();
    for (nodes, _) in domains.iter().filter(|(nodes, _)| *nodes > 0) {
        *fragments.entry(*nodes).or_default() += 1;
    }
    let fragments = fragments.into_iter().rev().map(|(nodes, domains)| Fragment { nodes, domains }).collect();
    FitEntry { accelerator: kind.0.clone(), per_node: kind.1, level, largest, at, at_once, fragments }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_gang_of_an_accelerator_is_that_of_its_best_kind_level_by_level() {
        let of = |per_node, level: Option<&str>, free: &[u32]| {
            let domains: Vec<(u32, String)> = free.iter().map(|nodes| (*nodes, String::new())).collect();
            entry(&("nvidia.com/gpu".to_owned(), per_node), level.map(str::to_owned), &domains)
        };
        let found = largest([
            of(8, None, &[3]),
            of(8, Some("zone"), &[2, 5]),
            of(4, Some("zone"), &[4]),
            of(4, Some("layer"), &[]),
        ]);
        let of = |level: &str| found.get(&(level.to_owned(), "nvidia.com/gpu".to_owned())).copied();
        assert_eq!((of("cluster"), of("zone"), of("layer"), of("host")), (Some(3), Some(5), Some(0), None));
    }
}
