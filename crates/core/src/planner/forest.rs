//! The knapsack's tables for small gangs, kept between gangs: a changed host costs the tables above it, no more.
//!
//! One binary tree of tables over the whole topology: a leaf per host, a balanced run of merges over the children of a
//! domain, and a table per domain on top of its run. Every table gives, for each number of members up to the limit, the
//! least cost of placing exactly that many below it, the same cost as in [`super::knapsack`]. What changed is recomputed
//! from the bottom up; a question then reads the top, and back-tracking walks down one path. Nothing is omitted, so
//! nothing needs to be proven about pruning; and nothing is allocated once the forest stands.
//!
//! For gangs of one shape without slices, exclusive domains, balance and bound members, of at most [`LARGEST`] members.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::cost::{Cost, Layout};
use crate::planner::plan::{LevelIndex, Placement, Work};
use crate::topology::Tree;

/// Members of the largest gang: sets of numbers are bits of one integer.
pub(super) const LARGEST: usize = u64::BITS as usize - 1;

/// The packed vector of a forest. Wider ones are left to the knapsack.
type Vector = u128;

type NodeId = u32;

/// What a forest looks at when a host changes. Shapes: `[level][domain]`.
pub(super) trait Sums {
    /// Members the domain can still take.
    fn slots(&self, level: LevelIndex, domain: usize) -> u64;
    /// What it has left beside so many new members.
    fn left(&self, level: LevelIndex, domain: usize, members: u64) -> u64;
    /// Whether it is broken by so many new members.
    fn breaks(&self, level: LevelIndex, domain: usize, members: u64) -> bool;
}

/// Tables for gangs of at most so many members.
#[derive(Clone, Debug)]
pub(super) struct Forest {
    limit: usize,
    layout: Layout,
    nodes: Vec<Node>,
    cells: Vec<Vector>,
    /// Shapes: `[level][domain]`.
    by_domain: Vec<Vec<NodeId>>,
    root: Option<NodeId>,
    /// Hosts, by depth-first position, whose tables are out of date.
    dirty: Vec<usize>,
    /// Tables to recompute; children have lower ids than their parents.
    queue: BinaryHeap<Reverse<NodeId>>,
}

#[derive(Clone, Debug)]
struct Node {
    kind: Kind,
    parent: Option<NodeId>,
    /// First cell.
    start: usize,
    /// Cells there is capacity for.
    capacity: usize,
    /// Cells in use: one more than the members it can take, as far as the limit goes.
    length: usize,
}

#[derive(Clone, Copy, Debug)]
enum Kind {
    /// Two tables side by side.
    Merge { left: NodeId, right: NodeId },
    /// A domain on top of the table of its children; a host has none.
    Domain { level: LevelIndex, domain: usize, below: Option<NodeId> },
}

impl Forest {
    /// Makes every table; `None` if the vector is too wide. Shapes: `most` gives, by depth-first position, the slots of
    /// every host that are never exceeded, and `free` is what all hosts together never have more of.
    pub(super) fn new(
        tree: &Tree,
        placement: Placement,
        limit: usize,
        most: &[u32],
        free: u64,
        sums: &impl Sums,
        work: &mut Work,
    ) -> Option<Self> {
        let domains: Vec<u64> = (0..tree.depth()).map(|level| tree.level(level).len() as u64).collect();
        let layout = Layout::sized(placement, &domains, free, limit as u64);
        if layout.limbs > Vector::LIMBS {
            return None;
        }
        let by_domain = (0..tree.depth()).map(|level| vec![0; tree.level(level).len()]).collect();
        let mut forest = Self {
            limit: limit.min(LARGEST),
            layout,
            nodes: Vec::new(),
            cells: Vec::new(),
            by_domain,
            root: None,
            dirty: Vec::new(),
            queue: BinaryHeap::new(),
        };
        let top = tree.level(0).len();
        forest.root = (top > 0).then(|| forest.plant_run(tree, most, 0, 0, top));
        let cells = forest.nodes.last().map_or(0, |last| last.start + last.capacity);
        forest.cells = vec![Vector::NEVER; cells];
        for id in 0..forest.nodes.len() {
            forest.compute(id, sums, work);
        }
        Some(forest)
    }

    /// The largest gang it answers for.
    pub(super) fn limit(&self) -> usize {
        self.limit
    }

    /// Says that a host, by depth-first position, has other slots or other use than before.
    pub(super) fn touch(&mut self, position: usize) {
        self.dirty.push(position);
    }

    /// Recomputes what lies above the hosts that changed.
    pub(super) fn renew(&mut self, sums: &impl Sums, work: &mut Work) {
        let mut queue = std::mem::take(&mut self.queue);
        let hosts = self.by_domain.last();
        queue.extend(self.dirty.drain(..).filter_map(|host| Some(Reverse(*hosts?.get(host)?))));
        let mut last = None;
        while let Some(Reverse(id)) = queue.pop() {
            if last == Some(id) {
                continue;
            }
            last = Some(id);
            self.compute(id as usize, sums, work);
            queue.extend(self.nodes[id as usize].parent.map(Reverse));
        }
        self.queue = queue;
    }

    /// The bits of field 2.
    pub(super) fn used_mask(&self) -> Vector {
        self.layout.used_mask()
    }

    /// Least cost of placing exactly `members` anywhere.
    pub(super) fn anywhere(&self, members: usize) -> Vector {
        self.root.map_or(Vector::NEVER, |root| self.cell(root, members))
    }

    /// Least cost of placing exactly `members` inside one domain, with the cost of the domains around it.
    pub(super) fn inside(
        &self,
        tree: &Tree,
        sums: &impl Sums,
        level: LevelIndex,
        domain: usize,
        members: usize,
    ) -> Vector {
        let mut cost = self.cell(self.by_domain[level][domain], members);
        if cost == Vector::NEVER {
            return cost;
        }
        let mut parent = tree.level(level)[domain].parent;
        for above in (0..level).rev() {
            cost = cost.plus(self.own(above, parent, members, sums));
            parent = tree.level(above)[parent].parent;
        }
        cost
    }

    /// The optimal counts of exactly `members`, inside one domain or anywhere: depth-first positions of hosts with their
    /// members, those that take none omitted. The lexicographically largest of all optimal ones.
    pub(super) fn counts(&self, inside: Option<(LevelIndex, usize)>, members: usize) -> Vec<(usize, u32)> {
        let mut counts = Vec::new();
        let node = match inside {
            Some((level, domain)) => Some(self.by_domain[level][domain]),
            None => self.root,
        };
        if let Some(node) = node {
            self.assign(node, 1 << members, &mut counts);
        }
        counts
    }

    fn plant_run(&mut self, tree: &Tree, most: &[u32], level: LevelIndex, from: usize, to: usize) -> NodeId {
        if to - from == 1 {
            return self.plant(tree, most, level, from);
        }
        let middle = from.midpoint(to);
        let left = self.plant_run(tree, most, level, from, middle);
        let right = self.plant_run(tree, most, level, middle, to);
        let capacity = self.nodes[left as usize].capacity + self.nodes[right as usize].capacity - 1;
        let id = self.push(Kind::Merge { left, right }, capacity);
        self.nodes[left as usize].parent = Some(id);
        self.nodes[right as usize].parent = Some(id);
        id
    }

    fn plant(&mut self, tree: &Tree, most: &[u32], level: LevelIndex, domain: usize) -> NodeId {
        let id = if level + 1 < tree.depth() {
            let children = tree.level(level)[domain].children.clone();
            let below = self.plant_run(tree, most, level + 1, children.start, children.end);
            let capacity = self.nodes[below as usize].capacity;
            let id = self.push(Kind::Domain { level, domain, below: Some(below) }, capacity);
            self.nodes[below as usize].parent = Some(id);
            id
        } else {
            let capacity = usize::try_from(most[domain]).unwrap_or(usize::MAX).min(self.limit) + 1;
            self.push(Kind::Domain { level, domain, below: None }, capacity)
        };
        self.by_domain[level][domain] = id;
        id
    }

    fn push(&mut self, kind: Kind, capacity: usize) -> NodeId {
        let start = self.nodes.last().map_or(0, |last| last.start + last.capacity);
        self.nodes.push(Node { kind, parent: None, start, capacity: capacity.min(self.limit + 1), length: 0 });
        NodeId::try_from(self.nodes.len() - 1).expect("a tree has fewer tables than u32 can count")
    }

    fn table(&self, id: NodeId) -> &[Vector] {
        let node = &self.nodes[id as usize];
        &self.cells[node.start..node.start + node.length]
    }

    fn cell(&self, id: NodeId, members: usize) -> Vector {
        self.table(id).get(members).copied().unwrap_or(Vector::NEVER)
    }

    fn own(&self, level: LevelIndex, domain: usize, members: usize, sums: &impl Sums) -> Vector {
        if members == 0 {
            return Vector::ZERO;
        }
        let members = members as u64;
        let used = Vector::field(self.layout.used[level], 1);
        let cost = used.plus(Vector::field(self.layout.left[level], sums.left(level, domain, members)));
        if sums.breaks(level, domain, members) { cost.plus(Vector::field(self.layout.broken[level], 1)) } else { cost }
    }

    fn compute(&mut self, id: usize, sums: &impl Sums, work: &mut Work) {
        work.vertices += 1;
        let Node { kind, start, capacity, .. } = self.nodes[id];
        let length = match kind {
            Kind::Merge { left, right } => {
                let (left, right) = (&self.nodes[left as usize], &self.nodes[right as usize]);
                let (left, right) = (left.start..left.start + left.length, right.start..right.start + right.length);
                let length = (left.len() + right.len()).saturating_sub(1).min(capacity);
                let (made, rest) = self.cells.split_at_mut(start);
                let (left, right, merged) = (&made[left], &made[right], &mut rest[..length]);
                merged.fill(Vector::NEVER);
                for (offset, first) in left.iter().enumerate() {
                    let out = &mut merged[offset..];
                    work.cells += out.len().min(right.len()) as u64;
                    for (cell, second) in out.iter_mut().zip(right) {
                        *cell = (*cell).min(first + second);
                    }
                }
                length
            }
            Kind::Domain { level, domain, below } => {
                let slots = usize::try_from(sums.slots(level, domain)).unwrap_or(usize::MAX);
                let length = capacity.min(slots.saturating_add(1));
                for members in 0..length {
                    let below = below.map_or(Vector::ZERO, |below| self.cell(below, members));
                    self.cells[start + members] = below.plus(self.own(level, domain, members, sums));
                }
                length
            }
        };
        self.nodes[id].length = length;
    }

    /// Takes the one of the numbers in `sums` (bits) whose counts are lexicographically largest, and returns it.
    fn assign(&self, id: NodeId, sums: u64, counts: &mut Vec<(usize, u32)>) -> u32 {
        if sums <= 1 {
            return 0;
        }
        match self.nodes[id as usize].kind {
            Kind::Domain { level: _, domain, below: None } => {
                let members = u64::BITS - 1 - sums.leading_zeros();
                counts.push((domain, members));
                members
            }
            Kind::Domain { level: _, domain: _, below: Some(below) } => self.assign(below, sums, counts),
            Kind::Merge { left, right } => {
                let best = self.table(id);
                let (left_table, right_table) = (self.table(left), self.table(right));
                let each = || (0..best.len()).filter(|sum| sums >> sum & 1 == 1);
                let optimal = |taken: usize, sum: usize| {
                    let rest = sum.checked_sub(taken).and_then(|rest| right_table.get(rest));
                    rest.is_some_and(|rest| left_table[taken] + rest == best[sum])
                };
                let mut open = 0;
                for taken in 0..left_table.len() {
                    // Different sums stay in the race together: the first host alone may decide between them.
                    open |= u64::from(each().any(|sum| optimal(taken, sum))) << taken;
                }
                let taken = self.assign(left, open, counts);
                let rest = each().filter(|sum| optimal(taken as usize, *sum));
                let rest = rest.fold(0, |rest, sum| rest | 1 << (sum - taken as usize));
                taken + self.assign(right, rest, counts)
            }
        }
    }
}
