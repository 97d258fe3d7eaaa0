//! The independent checker: is a plan an answer to its problem? Runs in tests, in the simulator and before execution.
//!
//! **Architecture invariant**: nothing here is shared with the planner or the topology tree. Paths are read from labels
//! and capacity is recounted pod by pod. Only [`fit::fits`], the one answer to "does a pod fit a node", is common to both;
//! a second count of the resources stands beside it.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use rustc_hash::FxHashSet;
use serde::{Deserialize, Serialize};

use crate::fit::{self, Misfit};
use crate::model::names::{NodeName, ObjectKey, PodUid, ResourceName};
use crate::model::node::{Node, Usage};
use crate::model::pod::Shape;
use crate::model::resources::ATTACHABLE_VOLUMES;
use crate::planner::plan::{Host, LevelIndex, Place, Plan, Problem, TopologyRequests};
use crate::topology::{Level, Levels};

/// One thing the checker found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Note {
    /// Whether the plan may be executed all the same.
    pub severity: Severity,
    /// What is wrong.
    pub finding: Finding,
}

/// How bad a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Severity {
    /// Correct, but not what the planner should have answered.
    Warning,
    /// The plan must not be executed.
    Fatal,
}

/// What is wrong with a plan.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Finding {
    /// The plan has another version than this code writes.
    Version {
        /// Its version.
        version: u32,
    },
    /// The plan is for another gang.
    Gang {
        /// The gang it is for.
        gang: ObjectKey,
    },
    /// No such role or rank.
    UnknownPlace {
        /// Index of the role.
        role: usize,
        /// Rank.
        rank: u32,
    },
    /// Role and rank are planned twice, or not in role order and rank order.
    OutOfOrder {
        /// Index of the role.
        role: usize,
        /// Rank.
        rank: u32,
    },
    /// One pod holds two places.
    PodTwice {
        /// The pod.
        uid: PodUid,
    },
    /// The place names another pod than the problem does.
    WrongPod {
        /// Index of the role.
        role: usize,
        /// Rank.
        rank: u32,
    },
    /// A bound member is missing, moved, or a place claims to be bound and is not.
    BoundChanged {
        /// Index of the role.
        role: usize,
        /// Rank.
        rank: u32,
    },
    /// No such node.
    UnknownNode {
        /// The node.
        node: NodeName,
    },
    /// A member does not fit beside what the node holds and the members placed there before it.
    DoesNotFit {
        /// The node.
        node: NodeName,
        /// Why not.
        reason: Misfit,
    },
    /// All members together need more than the node has.
    Overcommitted {
        /// The node.
        node: NodeName,
        /// The resource.
        resource: ResourceName,
    },
    /// Two members that must not share a node do.
    SharedNode {
        /// The node.
        node: NodeName,
    },
    /// A member carries a constraint that is not supported.
    Unsupported {
        /// Index of the role.
        role: usize,
        /// The constraint.
        constraint: Arc<str>,
    },
    /// A level that is asked for is not configured.
    UnknownLevel {
        /// Its index.
        level: LevelIndex,
    },
    /// A node has no domain at the required level.
    Unlabelled {
        /// The node.
        node: NodeName,
        /// The level.
        level: LevelIndex,
    },
    /// A node is in another domain of the required level than the gang's first member.
    OutsideDomain {
        /// The node.
        node: NodeName,
        /// The level.
        level: LevelIndex,
    },
    /// A role has fewer members than it needs to start.
    BelowMinimum {
        /// Index of the role.
        role: usize,
        /// Members with a place.
        placed: u32,
        /// Members needed.
        min: u32,
    },
    /// A slice holds some members, but not all of them.
    SliceIncomplete {
        /// Members of one slice.
        size: u32,
        /// Which one, from 0.
        slice: u32,
    },
    /// A slice stands in several domains of its level, or on a node without one.
    SliceApart {
        /// Members of one slice.
        size: u32,
        /// Which one, from 0.
        slice: u32,
        /// The node that is elsewhere.
        node: NodeName,
    },
    /// The domain of a node is to be exclusive, but others hold accelerators in it.
    DomainShared {
        /// The node of a member.
        node: NodeName,
        /// The level.
        level: LevelIndex,
    },
    /// A domain that is to hold one slice or the whole gang alone does not.
    NotAlone {
        /// The node of a member.
        node: NodeName,
        /// The level.
        level: LevelIndex,
    },
    /// Members that must stand in different domains do not, or one stands on a node without such a domain.
    NotApart {
        /// The node of a member.
        node: NodeName,
        /// The level.
        level: LevelIndex,
    },
    /// Ranks leave a domain and come back to it: neighbours in rank do not stand side by side.
    RanksApart {
        /// The node of the member that comes back.
        node: NodeName,
        /// The level of the domain.
        level: LevelIndex,
    },
    /// A free rank below a planned one has no place.
    RankSkipped {
        /// Index of the role.
        role: usize,
        /// The rank without a place.
        rank: u32,
    },
}

/// Checks a plan against its problem. No note means: may be executed.
///
/// An empty plan is a refusal and always correct. Any other must be whole: every place once and in order, on a node
/// that exists and has capacity for all members together, inside one domain of the required level, bound members where they
/// are, and every role at its minimum.
#[must_use]
pub fn check(problem: &Problem, plan: &Plan) -> Vec<Note> {
    let mut notes = Vec::new();
    if plan.version != Plan::VERSION {
        notes.push(note(Finding::Version { version: plan.version }));
    }
    if plan.gang != problem.gang.key {
        notes.push(note(Finding::Gang { gang: plan.gang.clone() }));
    }
    if !plan.places.is_empty() {
        let hosts = hosts(problem, plan);
        check_topology_requests(problem, &mut notes);
        check_places(problem, plan, &mut notes);
        check_order(problem, plan, &hosts, &mut notes);
        check_roles(problem, plan, &mut notes);
        check_capacity(problem, plan, &hosts, &mut notes);
        check_level(problem, plan, &hosts, &mut notes);
        check_slices(problem, plan, &hosts, &mut notes);
        if let Some(level) = problem.gang.topology_requests.exclusive {
            check_exclusive(problem, plan, &hosts, level, &mut notes);
        }
        if let Some(level) = problem.gang.topology_requests.apart {
            check_apart(problem, plan, &hosts, level, &mut notes);
        }
    }
    notes
}

impl Finding {
    /// How bad this finding is.
    #[must_use]
    pub fn severity(&self) -> Severity {
        match self {
            Self::RankSkipped { .. } | Self::RanksApart { .. } => Severity::Warning,
            Self::Version { .. }
            | Self::Gang { .. }
            | Self::UnknownPlace { .. }
            | Self::OutOfOrder { .. }
            | Self::PodTwice { .. }
            | Self::WrongPod { .. }
            | Self::BoundChanged { .. }
            | Self::UnknownNode { .. }
            | Self::DoesNotFit { .. }
            | Self::Overcommitted { .. }
            | Self::SharedNode { .. }
            | Self::Unsupported { .. }
            | Self::UnknownLevel { .. }
            | Self::Unlabelled { .. }
            | Self::OutsideDomain { .. }
            | Self::SliceIncomplete { .. }
            | Self::SliceApart { .. }
            | Self::DomainShared { .. }
            | Self::NotAlone { .. }
            | Self::NotApart { .. }
            | Self::BelowMinimum { .. } => Severity::Fatal,
        }
    }
}

fn note(finding: Finding) -> Note {
    Note { severity: finding.severity(), finding }
}

/// Every level that is asked for exists.
fn check_topology_requests(problem: &Problem, notes: &mut Vec<Note>) {
    let TopologyRequests { required, preferred, slices, exclusive, balance, apart } = &problem.gang.topology_requests;
    let levels = [required, preferred, exclusive, balance, apart].into_iter().copied().flatten();
    let levels: BTreeSet<LevelIndex> = levels.chain(slices.iter().map(|slice| slice.level)).collect();
    let unknown = levels.into_iter().filter(|level| *level >= problem.levels.len());
    notes.extend(unknown.map(|level| note(Finding::UnknownLevel { level })));
}

/// Every place on its own: known, once, in order, the right pod, bound ones unchanged.
fn check_places(problem: &Problem, plan: &Plan, notes: &mut Vec<Note>) {
    let mut before: Option<(usize, u32)> = None;
    let mut pods = BTreeSet::new();
    for Place { role, rank, uid, node, bound } in &plan.places {
        let (role, rank) = (*role, *rank);
        if before.is_some_and(|before| before >= (role, rank)) {
            notes.push(note(Finding::OutOfOrder { role, rank }));
        }
        before = Some((role, rank));
        if let Some(uid) = uid.as_ref().filter(|uid| !pods.insert(*uid)) {
            notes.push(note(Finding::PodTwice { uid: uid.clone() }));
        }
        let Some(wanted) = problem.gang.roles.get(role).and_then(|role| role.places.get(rank as usize)) else {
            notes.push(note(Finding::UnknownPlace { role, rank }));
            continue;
        };
        if wanted.uid != *uid {
            notes.push(note(Finding::WrongPod { role, rank }));
        }
        if *bound != wanted.bound.is_some() || wanted.bound.as_ref().is_some_and(|wanted| wanted != node) {
            notes.push(note(Finding::BoundChanged { role, rank }));
        }
    }
}

/// Every role as a whole: its minimum, its bound members, no rank skipped.
fn check_roles(problem: &Problem, plan: &Plan, notes: &mut Vec<Note>) {
    for (index, role) in problem.gang.roles.iter().enumerate() {
        let ranks: BTreeSet<u32> =
            plan.places.iter().filter(|place| place.role == index).map(|place| place.rank).collect();
        let placed = u32::try_from(ranks.len()).unwrap_or(u32::MAX);
        if placed < role.min {
            notes.push(note(Finding::BelowMinimum { role: index, placed, min: role.min }));
        }
        let new = plan.places.iter().filter(|place| place.role == index && !place.bound);
        // A slice that stands somewhere is completed first, whatever its number.
        let last_new = new.filter(|place| !stands(problem, plan, place)).map(|place| place.rank).max();
        for (rank, place) in (0..).zip(&role.places).filter(|(rank, _)| !ranks.contains(rank)) {
            if place.bound.is_some() {
                notes.push(note(Finding::BoundChanged { role: index, rank }));
            } else if last_new.is_some_and(|last| rank < last) {
                notes.push(note(Finding::RankSkipped { role: index, rank }));
            }
        }
        let used = !ranks.is_empty();
        for constraint in role.shape.unsupported.iter().filter(|_| used) {
            notes.push(note(Finding::Unsupported { role: index, constraint: constraint.clone() }));
        }
    }
}

/// Whether a member of the same slice is bound already: such a slice is completed where it stands.
fn stands(problem: &Problem, plan: &Plan, place: &Place) -> bool {
    let Some(slice) = problem.gang.topology_requests.slices.first() else { return false };
    let slice_of = |place: &Place| number(problem, place) / slice.size.max(1) as usize;
    plan.places.iter().any(|other| other.bound && slice_of(other) == slice_of(place))
}

/// New members of one shape stand along the tree in rank order: whoever leaves a domain does not come back to it.
fn check_order(problem: &Problem, plan: &Plan, hosts: &Hosts<'_>, notes: &mut Vec<Note>) {
    let shapes: BTreeSet<&Shape> = problem.gang.roles.iter().map(|role| &role.shape).collect();
    for shape in shapes {
        let mine = |place: &&Place| problem.gang.roles.get(place.role).is_some_and(|role| role.shape == *shape);
        let new = plan.places.iter().filter(|place| !place.bound && !stands(problem, plan, place)).filter(mine);
        let new: Vec<&Host> = new.filter_map(|place| hosts.get(&place.node).copied()).collect();
        for level in 0..problem.levels.len() {
            let mut left = BTreeSet::new();
            let mut last = None;
            for host in &new {
                let here = labels(&problem.levels, &host.node, level);
                if last.as_ref() == Some(&here) {
                    continue;
                }
                left.extend(last.replace(here.clone()));
                if left.contains(&here) {
                    notes.push(note(Finding::RanksApart { node: host.node.name.clone(), level }));
                    return;
                }
            }
        }
    }
}

/// Every node: all members beside what it holds, put there one by one.
fn check_capacity(problem: &Problem, plan: &Plan, hosts: &Hosts<'_>, notes: &mut Vec<Note>) {
    let mut by_node: BTreeMap<&NodeName, Vec<(&Shape, bool)>> = BTreeMap::new();
    for place in &plan.places {
        if let Some(role) = problem.gang.roles.get(place.role) {
            by_node.entry(&place.node).or_default().push((&role.shape, place.bound));
        }
    }
    for (name, members) in by_node {
        let Some(Host { node, usage }) = hosts.get(name) else {
            notes.push(note(Finding::UnknownNode { node: name.clone() }));
            continue;
        };
        let mut usage = Usage::clone(usage);
        // A member keeps away its own shape and no other; those bound here may be in the host's count.
        let bound_apart = members.iter().filter(|(shape, bound)| *bound && shape.one_per_node).count();
        let strangers = usage.own_shape_pods.saturating_sub(u32::try_from(bound_apart).unwrap_or(u32::MAX));
        let mut alone: Vec<&Shape> = Vec::new();
        for (shape, bound) in &members {
            usage.own_shape_pods = strangers;
            if shape.one_per_node {
                if alone.contains(shape) {
                    notes.push(note(Finding::SharedNode { node: name.clone() }));
                    usage.own_shape_pods = usage.own_shape_pods.saturating_add(1);
                }
                alone.push(shape);
            }
            if *bound {
                // Already in the host's usage.
                continue;
            }
            if let Err(reason) = fit::fits(shape, node, &usage) {
                notes.push(note(Finding::DoesNotFit { node: name.clone(), reason }));
            }
            usage.requested.add(&shape.requests);
            usage.ports.extend(shape.ports.iter().cloned());
        }
        let new = members.iter().filter(|(_, bound)| !bound).flat_map(|(shape, _)| shape.requests.iter());
        let asked: BTreeSet<&ResourceName> = new.filter(|(_, amount)| *amount > 0).map(|(name, _)| name).collect();
        for resource in asked {
            let (most, held) = (node.allocatable.get(resource.as_str()), usage.requested.get(resource.as_str()));
            // Volumes of a driver without a limit on this node are not limited.
            let limited = most > 0 || !resource.as_str().starts_with(ATTACHABLE_VOLUMES);
            if limited && held > most {
                notes.push(note(Finding::Overcommitted { node: name.clone(), resource: resource.clone() }));
            }
        }
    }
}

/// The required level: one domain for all, and one that the nodes' labels really name.
fn check_level(problem: &Problem, plan: &Plan, hosts: &Hosts<'_>, notes: &mut Vec<Note>) {
    let Some(level) = problem.gang.topology_requests.required.filter(|level| *level < problem.levels.len()) else {
        return;
    };
    let mut domain = None;
    for place in &plan.places {
        let Some(host) = hosts.get(&place.node) else { continue };
        let Some(path) = path(&problem.levels, &host.node, level) else {
            notes.push(note(Finding::Unlabelled { node: place.node.clone(), level }));
            continue;
        };
        if *domain.get_or_insert_with(|| path.clone()) != path {
            notes.push(note(Finding::OutsideDomain { node: place.node.clone(), level }));
        }
    }
}

/// The number of a place in the sequence of all places.
fn number(problem: &Problem, place: &Place) -> usize {
    let before: usize = problem.gang.roles.iter().take(place.role).map(|role| role.places.len()).sum();
    before + place.rank as usize
}

/// Every slice: whole or absent, and in one domain.
fn check_slices(problem: &Problem, plan: &Plan, hosts: &Hosts<'_>, notes: &mut Vec<Note>) {
    for topology_request in &problem.gang.topology_requests.slices {
        let size = topology_request.size.max(1);
        if topology_request.size == 0 {
            notes.push(note(Finding::SliceIncomplete { size: 0, slice: 0 }));
        }
        let mut slices: BTreeMap<usize, Vec<&Place>> = BTreeMap::new();
        for place in &plan.places {
            slices.entry(number(problem, place) / size as usize).or_default().push(place);
        }
        for (slice, places) in slices {
            let slice = u32::try_from(slice).unwrap_or(u32::MAX);
            if places.len() != size as usize {
                notes.push(note(Finding::SliceIncomplete { size, slice }));
            }
            let domain = |place: &&Place| path(&problem.levels, &hosts.get(&place.node)?.node, topology_request.level);
            let first = places.first().and_then(domain);
            for place in &places {
                if first.is_none() || domain(place) != first {
                    let node = place.node.clone();
                    notes.push(note(Finding::SliceApart { size, slice, node }));
                }
            }
        }
    }
}

/// At most one member per value of the level's label. The value alone counts, as for kube-scheduler: racks of one name in two
/// zones are one.
fn check_apart(problem: &Problem, plan: &Plan, hosts: &Hosts<'_>, level: LevelIndex, notes: &mut Vec<Note>) {
    let Some(key) = problem.levels.as_slice().get(level).map(|level| &level.key) else { return };
    let mut seen = BTreeSet::new();
    for place in &plan.places {
        let Some(host) = hosts.get(&place.node) else { continue };
        let value = host.node.labels.get(key);
        // Bound members stand where they stand.
        let first = value.is_some_and(|value| seen.insert(value));
        if !first && !place.bound {
            notes.push(note(Finding::NotApart { node: place.node.clone(), level }));
        }
    }
}

/// Domains to be exclusive: nobody else's accelerators in them, one slice or the whole gang each.
fn check_exclusive(problem: &Problem, plan: &Plan, hosts: &Hosts<'_>, level: LevelIndex, notes: &mut Vec<Note>) {
    let asked: BTreeSet<&ResourceName> = problem
        .gang
        .roles
        .iter()
        .flat_map(|role| role.shape.requests.iter())
        .filter(|(name, _)| {
            let name = name.as_str();
            name.contains('/') && !name.contains("kubernetes.io/") && !name.starts_with("requests.")
        })
        .map(|(name, _)| name)
        .collect();
    let mut own: BTreeMap<&NodeName, Usage> = BTreeMap::new();
    for role in &problem.gang.roles {
        for node in role.places.iter().filter_map(|place| place.bound.as_ref()) {
            own.entry(node).or_default().requested.add(&role.shape.requests);
        }
    }
    let mut shared = BTreeSet::new();
    for host in &problem.hosts {
        let name = &host.node.name;
        let mut others = host.usage.requested.clone();
        if let Some(own) = own.get(name) {
            others.subtract(&own.requested);
        }
        // Of members without accelerators nobody can say whether they are alone.
        if asked.is_empty() || asked.iter().any(|resource| others.get(resource.as_str()) > 0) {
            shared.insert(path(&problem.levels, &host.node, level));
        }
    }
    // The slice that is to be alone, or the whole gang.
    let size =
        problem.gang.topology_requests.slices.iter().find(|slice| slice.level == level).map(|slice| slice.size.max(1));
    let mut units: BTreeMap<Vec<Option<&str>>, usize> = BTreeMap::new();
    let mut used = None;
    for place in &plan.places {
        let Some(host) = hosts.get(&place.node) else { continue };
        let domain = path(&problem.levels, &host.node, level);
        let Some(domain) = domain.filter(|domain| !shared.contains(&Some(domain.clone()))) else {
            notes.push(note(Finding::DomainShared { node: place.node.clone(), level }));
            continue;
        };
        let unit = size.map_or(0, |size| number(problem, place) / size as usize);
        let alone = *units.entry(domain.clone()).or_insert(unit) == unit;
        let together = size.is_some() || *used.get_or_insert(domain.clone()) == domain;
        if !alone || !together {
            notes.push(note(Finding::NotAlone { node: place.node.clone(), level }));
        }
    }
}

/// Labels of a node from the top to a level; `None` if the node has no domain there. The deepest network level may be
/// missing where a higher one is there: the higher one's domain is then the leaf.
fn path<'n>(levels: &Levels, node: &'n Node, level: LevelIndex) -> Option<Vec<Option<&'n str>>> {
    let path = labels(levels, node, level);
    let is_leaf = levels.resolve("leaf") == Some(level);
    let mut above_leaf = levels.zone().map_or(0, |zone| zone + 1)..level;
    let contracted = is_leaf && above_leaf.any(|index| path.get(index).is_some_and(Option::is_some));
    let named = path.get(level).is_some_and(Option::is_some);
    (named || contracted).then_some(path)
}

/// Labels of a node from the top to a level, the node's name at the last; shorter if there is no such level.
fn labels<'n>(levels: &Levels, node: &'n Node, level: LevelIndex) -> Vec<Option<&'n str>> {
    let levels = levels.as_slice();
    let label = |(index, entry): (usize, &Level)| {
        if index + 1 == levels.len() {
            Some(node.name.as_str())
        } else {
            node.labels.get(&entry.key).map(|value| &**value)
        }
    };
    levels.iter().enumerate().take(level.saturating_add(1)).map(label).collect()
}

/// Hosts by name.
type Hosts<'p> = BTreeMap<&'p NodeName, &'p Host>;

/// The hosts a plan names; the first of several.
fn hosts<'p>(problem: &'p Problem, plan: &Plan) -> Hosts<'p> {
    let named: FxHashSet<&NodeName> = plan.places.iter().map(|place| &place.node).collect();
    let hosts = problem.hosts.iter().rev().filter(|host| named.contains(&host.node.name));
    hosts.map(|host| (&host.node.name, host)).collect()
}

impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.finding {
            Finding::Version { version } => write!(f, "plan has version {version}, not {}", Plan::VERSION),
            Finding::Gang { gang } => write!(f, "plan is for gang {gang}"),
            Finding::UnknownPlace { role, rank } => write!(f, "role {role} has no rank {rank}"),
            Finding::OutOfOrder { role, rank } => write!(f, "role {role} rank {rank} is planned twice or out of order"),
            Finding::PodTwice { uid } => write!(f, "pod {uid} holds two places"),
            Finding::WrongPod { role, rank } => write!(f, "role {role} rank {rank} belongs to another pod"),
            Finding::BoundChanged { role, rank } => write!(f, "role {role} rank {rank} is not where it is bound"),
            Finding::UnknownNode { node } => write!(f, "node {node} does not exist"),
            Finding::DoesNotFit { node, reason } => write!(f, "a member does not fit node {node}: {reason}"),
            Finding::Overcommitted { node, resource } => write!(f, "node {node} has too little {resource}"),
            Finding::SharedNode { node } => write!(f, "members that must not share node {node} do"),
            Finding::Unsupported { role, constraint } => write!(f, "role {role} carries {constraint}, not modelled"),
            Finding::UnknownLevel { level } => write!(f, "topology level {level} is not configured"),
            Finding::Unlabelled { node, level } => write!(f, "node {node} has no domain at level {level}"),
            Finding::OutsideDomain { node, level } => write!(f, "node {node} is outside the domain of level {level}"),
            Finding::SliceIncomplete { size, slice } => write!(f, "slice {slice} of {size} members is incomplete"),
            Finding::SliceApart { size, slice, node } => {
                write!(f, "slice {slice} of {size} members is not in one domain: node {node}")
            }
            Finding::DomainShared { node, level } => {
                write!(f, "the domain of node {node} at level {level} is not free of others")
            }
            Finding::NotApart { node, level } => {
                write!(f, "{node} is in no domain of level {level} of its own, and the gang's members keep apart there")
            }
            Finding::NotAlone { node, level } => {
                write!(f, "the domain of node {node} at level {level} does not hold one unit alone")
            }
            Finding::BelowMinimum { role, placed, min } => {
                write!(f, "role {role} has {placed} members of at least {min}")
            }
            Finding::RanksApart { node, level } => {
                write!(f, "ranks leave the domain of node {node} at level {level} and come back to it")
            }
            Finding::RankSkipped { role, rank } => write!(f, "role {role} rank {rank} is skipped"),
        }
    }
}
