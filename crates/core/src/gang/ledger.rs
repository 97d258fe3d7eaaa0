//! The nodes as every gang may use them, and pods of no gang that wait, remembered between gangs and between passes.
//!
//! A pass is a function of the world alone: with a ledger that has seen other passes it gives the same answer, only
//! sooner. Nodes that did not change are known by the pointer to their entry in the snapshot; what is assigned is added up
//! per node and compared.

use std::collections::BTreeSet;
use std::sync::Arc;

use rustc_hash::FxHashMap;

use super::queue::Queue;
use crate::model::names::{NodeName, ObjectKey};
use crate::model::node::Usage;
use crate::model::pods::Pods;
use crate::model::snapshot::{AssignedCapacity, NodeEntry, Snapshot};
use crate::planner::Memory;
use crate::planner::plan::{GangRequest, Host, Plan, Policy, Problem, Report};
use crate::topology::Levels;

/// What a gang without assignments of its own may use: nodes assigned to nobody as a whole, all other assignments counted as
/// used. And which pods of no gang a pass may do something about.
#[derive(Clone, Debug, Default)]
pub struct Ledger {
    book: Option<Book>,
    queue: Queue,
}

#[derive(Clone, Debug)]
struct Book {
    levels: Levels,
    memory: Memory,
    /// What stands on the memory's hosts, in the same order. Kept alive, so that an equal pointer is an equal entry.
    entries: Vec<Arc<NodeEntry>>,
    /// Excluded.
    whole: BTreeSet<NodeName>,
    assigned: FxHashMap<NodeName, Usage>,
    /// Hosts on which something was assigned that the memory does not know of yet.
    pending: Vec<usize>,
    /// Nodes on which a gang holds assignments.
    holders: FxHashMap<ObjectKey, Vec<NodeName>>,
}

impl Ledger {
    /// Takes over what changed in a snapshot.
    pub fn see(&mut self, snapshot: &Snapshot, levels: &Levels) {
        let mut whole = BTreeSet::new();
        let mut assigned: FxHashMap<NodeName, Usage> = FxHashMap::default();
        let mut holders: FxHashMap<ObjectKey, Vec<NodeName>> = FxHashMap::default();
        for (node, assignments) in &snapshot.assignments {
            for assignment in assignments {
                holders.entry(assignment.gang.clone()).or_default().push(node.clone());
                match &assignment.capacity {
                    AssignedCapacity::WholeNode => {
                        whole.insert(node.clone());
                    }
                    AssignedCapacity::Member(held) => assigned.entry(node.clone()).or_default().join(held),
                }
            }
        }
        let known = self.book.take().filter(|book| book.levels == *levels && book.whole == whole);
        self.book = Some(match known.and_then(|book| book.followed(snapshot, &mut assigned)) {
            Some(book) => Book { holders, ..book },
            None => Book::new(snapshot, levels, whole, assigned, holders),
        });
    }

    /// Pods of no gang that wait, as they are now.
    pub(super) fn queue(&mut self, pods: &Pods) -> &Queue {
        self.queue.look(pods);
        &self.queue
    }

    /// Counts an assignment made since the snapshot was seen.
    pub fn assign(&mut self, gang: &ObjectKey, node: &NodeName, held: &Usage) {
        if let Some(book) = &mut self.book {
            let index = book.memory.position(node);
            match book.assigned.get_mut(node) {
                Some(assigned) => assigned.join(held),
                None => {
                    book.assigned.insert(node.clone(), held.clone());
                }
            }
            match book.holders.get_mut(gang) {
                Some(nodes) if nodes.last() == Some(node) => {}
                Some(nodes) => nodes.push(node.clone()),
                None => {
                    book.holders.insert(gang.clone(), vec![node.clone()]);
                }
            }
            // Members of one host mostly follow each other.
            book.pending.extend(index.filter(|index| book.pending.last() != Some(index)));
        }
    }

    /// Nodes on which one of some keys holds assignments.
    pub(super) fn held(&self, keys: &[ObjectKey]) -> Vec<NodeName> {
        let holders = self.book.as_ref().map(|book| &book.holders);
        let nodes = holders.into_iter().flat_map(|holders| keys.iter().filter_map(|key| holders.get(key))).flatten();
        nodes.cloned().collect()
    }

    /// Plans a gang for which some hosts look otherwise, and shows the problem that was solved. `None` if one of them is
    /// excluded here: the gang has it for itself.
    pub(super) fn plan<T>(
        &mut self,
        request: &GangRequest,
        policy: &Policy,
        own: Vec<Host>,
        judge: impl FnOnce(&Problem, Plan, Report) -> T,
    ) -> Option<T> {
        let book = self.book.as_mut()?;
        let own: Option<Vec<(usize, Host)>> =
            own.into_iter().map(|host| Some((book.memory.position(&host.node.name)?, host))).collect();
        book.settle();
        let mut before = Vec::new();
        for (index, host) in own? {
            before.push((index, book.memory.problem().hosts[index].clone()));
            book.memory.change(index, host);
        }
        let (plan, report) = book.memory.plan(request.clone(), policy);
        let answer = judge(book.memory.problem(), plan, report);
        // In reverse: of several for one host, the first was there before.
        for (index, host) in before.into_iter().rev() {
            book.memory.change(index, host);
        }
        Some(answer)
    }

    /// Plans a gang without assignments of its own.
    pub fn plan_plain(&mut self, request: &GangRequest, policy: &Policy) -> Option<(Plan, Report)> {
        let book = self.book.as_mut()?;
        book.settle();
        Some(book.memory.plan(request.clone(), policy))
    }
}

impl Book {
    fn new(
        snapshot: &Snapshot,
        levels: &Levels,
        whole: BTreeSet<NodeName>,
        assigned: FxHashMap<NodeName, Usage>,
        holders: FxHashMap<ObjectKey, Vec<NodeName>>,
    ) -> Self {
        let entries = snapshot.nodes.iter().filter(|(name, _)| !whole.contains(*name));
        let entries: Vec<Arc<NodeEntry>> = entries.map(|(_, entry)| Arc::clone(entry)).collect();
        let hosts = entries.iter().map(|entry| host(entry, assigned.get(&entry.node.name)));
        let memory = Memory::new(levels.clone(), hosts.collect());
        Self { levels: levels.clone(), memory, entries, whole, assigned, pending: Vec::new(), holders }
    }

    /// The same book with the nodes of a snapshot, and what is assigned there taken over; `None` if nodes came or went.
    fn followed(mut self, snapshot: &Snapshot, assigned: &mut FxHashMap<NodeName, Usage>) -> Option<Self> {
        let whole = &self.whole;
        let excluded = whole.iter().filter(|node| snapshot.nodes.contains_key(*node)).count();
        if snapshot.nodes.len() - excluded != self.entries.len() {
            return None;
        }
        let nodes = snapshot.nodes.values();
        let nodes = nodes.filter(|entry| whole.is_empty() || !whole.contains(&entry.node.name));
        let mut changed = Vec::new();
        for (index, (known, entry)) in self.entries.iter_mut().zip(nodes).enumerate() {
            if Arc::ptr_eq(known, entry) {
                continue;
            }
            if known.node.name != entry.node.name {
                return None;
            }
            *known = Arc::clone(entry);
            changed.push(index);
        }
        let before = std::mem::replace(&mut self.assigned, std::mem::take(assigned));
        let other = before.iter().filter(|(node, sum)| self.assigned.get(*node) != Some(sum)).map(|(node, _)| node);
        let added = self.assigned.keys().filter(|node| !before.contains_key(*node));
        // An assignment on a node that is gone or excluded changes no host.
        changed.extend(other.chain(added).filter_map(|node| self.memory.position(node)));
        changed.into_iter().for_each(|index| self.charge(index));
        Some(self)
    }

    /// Brings the memory in line with what was assigned since.
    fn settle(&mut self) {
        let mut pending = std::mem::take(&mut self.pending);
        pending.drain(..).for_each(|index| self.charge(index));
        self.pending = pending;
    }

    /// Brings one host in line with its node and with what is assigned there.
    fn charge(&mut self, index: usize) {
        let entry = &self.entries[index];
        self.memory.change(index, host(entry, self.assigned.get(&entry.node.name)));
    }
}

/// A node as a gang may use it.
fn host(entry: &NodeEntry, assigned: Option<&Usage>) -> Host {
    let usage = match assigned.filter(|assigned| !assigned.is_nothing()) {
        None => Arc::clone(&entry.usage),
        Some(assigned) => {
            let mut usage = Usage::clone(&entry.usage);
            usage.join(assigned);
            Arc::new(usage)
        }
    };
    Host { node: Arc::clone(&entry.node), usage }
}
