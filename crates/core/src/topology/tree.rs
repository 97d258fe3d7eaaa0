//! The tree itself: nodes sorted depth-first, domains as ranges of them.

use std::ops::Range;
use std::sync::Arc;

use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};
use smallvec::SmallVec;

use super::natural::natural_key;
use super::{LevelIndex, Levels, natural_cmp};
use crate::model::names::NodeName;
use crate::model::node::Node;

/// Nodes in depth-first natural order, and the domains they form at every level.
///
/// Every node has one domain at every level:
/// - a node that carries the level's label: the domain of that value inside its parent;
/// - a node that does not: the one *absent* domain of its parent, which it shares with its like. A type without the
///   deepest layers is contracted this way: the domain of its last layer has one domain at each level below;
/// - a node with none of the network labels: a domain of its own at every network level, since nothing is known about
///   its neighbours.
///
/// Siblings stand in this order: labelled ones by [`natural_cmp`], then the absent one, then nodes on their own by name.
///
/// Shapes: `level(l)` has one [`Domain`] per domain of level `l`, `level(last)` one per node; children and nodes of a
/// domain are contiguous.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tree {
    hosts: Vec<usize>,
    levels: Vec<Vec<Domain>>,
    leaf: Option<LevelIndex>,
    splits: Vec<SplitLabel>,
}

/// One domain of a level.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Domain {
    /// What tells it from its siblings.
    pub step: Step,
    /// Index of its parent in the level above; 0 at the top.
    pub parent: usize,
    /// Its children in the level below; empty at the last level.
    pub children: Range<usize>,
    /// Its nodes, as positions in depth-first order.
    pub hosts: Range<usize>,
}

/// The last step of a domain's path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// A label's value; at the last level the node's name.
    Label(Arc<str>),
    /// The nodes of the parent that lack the label.
    Absent,
    /// A node without any network label.
    Own(NodeName),
}

/// A label value that stands under several parents, which makes it several domains. Often a label that is only unique
/// inside its parent, sometimes a mistake in the order of the levels.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SplitLabel {
    /// Label key of the level.
    pub key: Arc<str>,
    /// The first such value in natural order.
    pub value: Arc<str>,
    /// How many values of this key are split.
    pub values: u32,
}

/// Sorts after every label's rank.
const ABSENT: u32 = u32::MAX - 1;
/// Sorts after [`ABSENT`].
const OWN: u32 = u32::MAX;

/// One rank per level above the host.
type Key = SmallVec<[u32; 6]>;

impl Tree {
    /// Builds the tree of some nodes; names are taken as unique.
    ///
    /// The node's name, not its hostname label, identifies the last level: the label may repeat, a name cannot.
    pub fn build<'a>(levels: &Levels, nodes: impl IntoIterator<Item = &'a Node>) -> Self {
        let nodes: Vec<&Node> = nodes.into_iter().collect();
        let (keys, values) = sort_keys(levels, &nodes);
        let hosts = sorted(&nodes, &keys, &values);

        let last = levels.host();
        let mut domains: Vec<Vec<Domain>> = vec![Vec::new(); levels.len()];
        let mut previous: Option<&Key> = None;
        for (position, &node) in hosts.iter().enumerate() {
            let key = &keys[node];
            let first_new = previous.map_or(0, |previous| {
                (0..last).find(|&level| previous[level] != key[level] || key[level] == OWN).unwrap_or(last)
            });
            for level in first_new..=last {
                let step = match key.get(level) {
                    None => Step::Label(Arc::clone(nodes[node].name.text())),
                    Some(&OWN) => Step::Own(nodes[node].name.clone()),
                    Some(&ABSENT) => Step::Absent,
                    Some(&rank) => Step::Label(Arc::clone(values[level][rank as usize])),
                };
                let children = domains.get(level + 1).map_or(0, Vec::len);
                let parent = level.checked_sub(1).map_or(0, |above| domains[above].len() - 1);
                domains[level].push(Domain { step, parent, children: children..children, hosts: position..position });
            }
            for level in 0..=last {
                let children = domains.get(level + 1).map_or(0, Vec::len);
                if let Some(domain) = domains[level].last_mut() {
                    domain.hosts.end = position + 1;
                    domain.children.end = children;
                }
            }
            previous = Some(key);
        }
        let splits = splits(levels, &domains);
        Self { hosts, levels: domains, leaf: levels.leaf(), splits }
    }

    /// Nodes in depth-first natural order, as indices into what the tree was built from.
    #[must_use]
    pub fn hosts(&self) -> &[usize] {
        &self.hosts
    }

    /// Number of levels.
    #[must_use]
    pub fn depth(&self) -> usize {
        self.levels.len()
    }

    /// The domains of a level in depth-first order; empty for a level that is not configured.
    #[must_use]
    pub fn level(&self, level: LevelIndex) -> &[Domain] {
        self.levels.get(level).map_or(&[], Vec::as_slice)
    }

    /// The domain of a level that holds a node, the node given by its depth-first position.
    #[must_use]
    pub fn domain_of(&self, level: LevelIndex, position: usize) -> usize {
        self.level(level).partition_point(|domain| domain.hosts.end <= position)
    }

    /// Whether a domain can satisfy a ask for its level: its nodes carry the label, or it is the contracted leaf of
    /// nodes that carry a higher network label.
    #[must_use]
    pub fn satisfies(&self, level: LevelIndex, domain: usize) -> bool {
        self.level(level).get(domain).is_some_and(|domain| match domain.step {
            Step::Label(_) => true,
            Step::Absent => Some(level) == self.leaf,
            Step::Own(_) => false,
        })
    }

    /// Path of a domain from the top, labels joined with `/`; levels without a label are excluded.
    #[must_use]
    pub fn path(&self, level: LevelIndex, domain: usize) -> String {
        let mut steps = Vec::new();
        let mut index = domain;
        for level in (0..=level).rev() {
            let Some(domain) = self.level(level).get(index) else { break };
            if let Step::Label(label) = &domain.step {
                steps.push(&**label);
            }
            index = domain.parent;
        }
        steps.reverse();
        steps.join("/")
    }

    /// One warning per level with a label value under several parents.
    #[must_use]
    pub fn splits(&self) -> &[SplitLabel] {
        &self.splits
    }
}

/// The nodes depth-first. Paths are compared as one integer each, and names only below one path.
fn sorted(nodes: &[&Node], keys: &[Key], values: &[Vec<&Arc<str>>]) -> Vec<usize> {
    let by_name = |a: &usize, b: &usize| natural_cmp(nodes[*a].name.as_str(), nodes[*b].name.as_str());
    let widths: Vec<u32> = values.iter().map(|values| usize::BITS - (values.len() + 1).leading_zeros()).collect();
    if widths.iter().sum::<u32>() > u128::BITS {
        let mut hosts: Vec<usize> = (0..nodes.len()).collect();
        hosts.sort_by(|a, b| keys[*a].cmp(&keys[*b]).then_with(|| by_name(a, b)));
        return hosts;
    }
    let path = |key: &Key| {
        key.iter().zip(values).zip(&widths).fold(0_u128, |path, ((rank, values), width)| {
            let after = values.len() as u128;
            let rank = match *rank {
                ABSENT => after,
                OWN => after + 1,
                rank => u128::from(rank),
            };
            path << width | rank
        })
    };
    // Few paths and many nodes: the paths are sorted, the nodes only counted into place.
    let mut numbers: FxHashMap<u128, usize> = FxHashMap::default();
    let mut groups: Vec<(u128, usize)> = Vec::new();
    let mut group_of: Vec<usize> = Vec::with_capacity(nodes.len());
    let mut before: Option<(u128, usize)> = None;
    for key in keys {
        let path = path(key);
        let number = match before {
            Some((known, number)) if known == path => number,
            Some(_) | None => *numbers.entry(path).or_insert_with(|| {
                groups.push((path, 0));
                groups.len() - 1
            }),
        };
        before = Some((path, number));
        groups[number].1 += 1;
        group_of.push(number);
    }
    let mut order: Vec<usize> = (0..groups.len()).collect();
    order.sort_unstable_by_key(|number| groups[*number].0);
    let mut starts = vec![0; groups.len()];
    let mut start = 0;
    for &number in &order {
        starts[number] = start;
        start += groups[number].1;
    }
    let mut hosts = vec![0; nodes.len()];
    for (node, number) in group_of.into_iter().enumerate() {
        hosts[starts[number]] = node;
        starts[number] += 1;
    }
    let mut rest = hosts.as_mut_slice();
    let mut by_key = ByKey::default();
    for &number in &order {
        let (below, after) = rest.split_at_mut(groups[number].1);
        if by_key.sort(nodes, below).is_none() {
            below.sort_by(by_name);
        }
        rest = after;
    }
    hosts
}

/// Sorts names by the first bytes of their natural keys that are not common to all: integers, mostly.
#[derive(Default)]
struct ByKey {
    keys: Vec<u8>,
    /// Where each key ends, and whose it is.
    ends: Vec<(usize, usize)>,
    heads: Vec<(u128, usize)>,
}

impl ByKey {
    /// `None` if a name has no key; nothing is changed then.
    fn sort(&mut self, nodes: &[&Node], group: &mut [usize]) -> Option<()> {
        if group.len() < 2 {
            return Some(());
        }
        self.keys.clear();
        self.ends.clear();
        for &node in &*group {
            natural_key(nodes[node].name.as_str(), &mut self.keys)?;
            self.ends.push((self.keys.len(), node));
        }
        let first = &self.keys[..self.ends[0].0];
        let (mut common, mut start) = (first.len(), 0);
        for (end, _) in &self.ends {
            let key = &self.keys[start..*end];
            let alike = key.iter().zip(&first[..common]).take_while(|(one, other)| one == other).count();
            (common, start) = (alike, *end);
        }
        self.heads.clear();
        let mut start = 0;
        for (end, node) in &self.ends {
            let rest = &self.keys[start + common..*end];
            let mut head = [0; size_of::<u128>()];
            let length = rest.len().min(head.len());
            head[..length].copy_from_slice(&rest[..length]);
            self.heads.push((u128::from_be_bytes(head), *node));
            start = *end;
        }
        let by_name = |a: usize, b: usize| natural_cmp(nodes[a].name.as_str(), nodes[b].name.as_str());
        // The end of a key reads as zeros: who shares a head is distinguished by name.
        self.heads.sort_unstable_by(|(one, a), (other, b)| {
            one.cmp(other).then_with(|| by_name(*a, *b)).then_with(|| a.cmp(b))
        });
        for (place, (_, node)) in group.iter_mut().zip(&self.heads) {
            *place = *node;
        }
        Some(())
    }
}

/// Ranks of every node's labels, and per level the values in natural order: sorting whole paths then compares integers.
fn sort_keys<'a>(levels: &Levels, nodes: &[&'a Node]) -> (Vec<Key>, Vec<Vec<&'a Arc<str>>>) {
    let mut keys: Vec<Key> = vec![SmallVec::with_capacity(levels.host()); nodes.len()];
    let mut values = Vec::with_capacity(levels.host());
    for level in &levels.as_slice()[..levels.host()] {
        let mut ids: FxHashMap<&str, u32> = FxHashMap::default();
        let mut found: Vec<&Arc<str>> = Vec::new();
        // Neighbours in the list are often neighbours in the tree: the value before needs no look-up.
        let mut before: Option<(&str, u32)> = None;
        for (key, node) in keys.iter_mut().zip(nodes) {
            let id = node.labels.get(&level.key).map_or(ABSENT, |value| match before {
                Some((text, id)) if *text == **value => id,
                Some(_) | None => {
                    let id = *ids.entry(value).or_insert_with(|| {
                        found.push(value);
                        u32::try_from(found.len() - 1).expect("there are fewer nodes than u32 can count")
                    });
                    before = Some((value, id));
                    id
                }
            });
            key.push(id);
        }
        let mut order: Vec<usize> = (0..found.len()).collect();
        order.sort_by(|&a, &b| natural_cmp(found[a], found[b]));
        let mut ranks = vec![0_u32; found.len()];
        for (rank, &id) in (0_u32..).zip(&order) {
            ranks[id] = rank;
        }
        for key in &mut keys {
            if let Some(id) = key.last_mut().filter(|id| **id != ABSENT) {
                *id = ranks[*id as usize];
            }
        }
        values.push(order.iter().map(|&id| found[id]).collect());
    }
    let network = levels.network();
    for key in &mut keys {
        let network = &mut key[network.clone()];
        if network.iter().all(|&rank| rank == ABSENT) {
            network.fill(OWN);
        }
    }
    (keys, values)
}

fn splits(levels: &Levels, domains: &[Vec<Domain>]) -> Vec<SplitLabel> {
    let mut splits = Vec::new();
    for (level, domains) in levels.as_slice().iter().zip(domains).take(levels.host()) {
        let mut seen: FxHashMap<&Arc<str>, u32> = FxHashMap::default();
        for domain in domains {
            match &domain.step {
                Step::Label(label) => *seen.entry(label).or_default() += 1,
                Step::Absent | Step::Own(_) => {}
            }
        }
        let split = || seen.iter().filter(|(_, times)| **times > 1).map(|(label, _)| *label);
        let first = split().min_by(|a, b| natural_cmp(a, b));
        if let Some(value) = first {
            let values = u32::try_from(split().count()).unwrap_or(u32::MAX);
            splits.push(SplitLabel { key: Arc::clone(&level.key), value: Arc::clone(value), values });
        }
    }
    splits
}
