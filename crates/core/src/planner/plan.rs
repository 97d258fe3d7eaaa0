//! The problem of placing one gang, and the answer: both are data.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::model::names::{NodeName, ObjectKey, PodUid};
use crate::model::node::{Node, Usage};
use crate::model::pod::Shape;
use crate::topology::{Levels, SplitLabel};

pub use crate::model::gang::LevelUse;
pub use crate::topology::LevelIndex;

/// Everything one planning run may look at.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Problem {
    /// Topology levels, top to bottom; the last is the host.
    pub levels: Levels,
    /// Candidate nodes in any order; the answer does not depend on it.
    pub hosts: Vec<Host>,
    /// The gang.
    pub gang: GangRequest,
}

/// A node and what already holds capacity on it. Assignments to other gangs are part of `usage`; what the gang's own bound
/// members hold is, too.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Host {
    /// The node.
    pub node: Arc<Node>,
    /// What holds capacity on it.
    pub usage: Arc<Usage>,
}

/// A gang as the planner needs it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GangRequest {
    /// Namespace and name of the Gang.
    pub key: ObjectKey,
    /// Roles in the gang's rank order: leader-like first, then as the owner declares them.
    pub roles: Vec<Role>,
    /// Topology requests.
    #[serde(rename = "wishes")]
    pub topology_requests: TopologyRequests,
}

/// Members with one template.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Role {
    /// Name; empty for the only role.
    pub name: Arc<str>,
    /// What every member of the role needs.
    pub shape: Shape,
    /// Members needed to start; the rest are elastic.
    pub min: u32,
    /// One entry per place of the role, in rank order. Its length is the role's count.
    pub places: Vec<RolePlace>,
}

/// One place of a role: its rank is its index in [`Role::places`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RolePlace {
    /// The pod that holds the place, if it exists already.
    pub uid: Option<PodUid>,
    /// The node the member is already bound to: fixed, and already in that host's usage.
    pub bound: Option<NodeName>,
}

/// Topology requests, as indices into [`Problem::levels`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TopologyRequests {
    /// All members inside one domain of this level. `None`: no cap (the default cap, the zone, is filled in by who
    /// builds the request).
    pub required: Option<LevelIndex>,
    /// Try this level; changes no placement, only what the report says.
    pub preferred: Option<LevelIndex>,
    /// Slices, coarse to fine: each size divides the one before it, each level is the one before it or below. They cut
    /// the sequence of all places, in role order and then rank order. A slice is placed whole or not at all.
    #[serde(default)]
    pub slices: Vec<SliceTopologyRequest>,
    /// Domains of this level that hold a member hold no accelerator of anybody else, and one slice of this level alone;
    /// without slices of this level, one such domain holds the whole gang.
    #[serde(default)]
    pub exclusive: Option<LevelIndex>,
    /// Spread the members evenly over the domains of this level: the objective's balance, directly after their count.
    #[serde(default)]
    pub balance: Option<LevelIndex>,
    /// At most one member on all nodes with one value of this level's label, wherever they stand, and none on nodes without
    /// it. For gangs of one shape, without slices, exclusive domains and balance.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub apart: Option<LevelIndex>,
}

/// Consecutive ranks that must share a domain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SliceTopologyRequest {
    /// Members of one slice; at least 1.
    pub size: u32,
    /// The level whose domain they share.
    pub level: LevelIndex,
}

/// Choices of the operator that change what is best.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Policy {
    /// What comes first: fewest domains or least fragmentation.
    pub placement: Placement,
    /// How far elastic members may reach.
    pub elastic: Elastic,
}

/// Where members beyond the minimum may go: the place of the objective's field 3.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Elastic {
    /// As many as fit inside the required level, whatever domains that takes: field 3 directly after field 1. Of members
    /// that fill a node each, none would ever stand inside the hosts chosen for the minimum.
    #[default]
    Spread,
    /// Only as many as fit without one domain more than the minimum needs: field 3 in its own place.
    Inside,
}

/// Order of the objective's fields 2 and 4.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Placement {
    /// Fewest domains per level first.
    #[default]
    Locality,
    /// Fewest broken domains first.
    Packing,
}

/// Bound on the work of a search, in iterations, never in time: a plan replays.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SearchBudget {
    /// Iterations.
    pub iterations: u64,
}

impl Default for SearchBudget {
    fn default() -> Self {
        // Some tens of milliseconds. One shape, and workers with one or two leaders, need no search.
        Self { iterations: 100_000 }
    }
}

/// The only source of arbitrary choice.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Seed(pub u64);

/// Where every member goes. Immutable; execution has no choices left.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Plan {
    /// Version of this structure.
    pub version: u32,
    /// The gang.
    pub gang: ObjectKey,
    /// Places in role order, then rank order. Empty if the gang does not fit.
    pub places: Vec<Place>,
}

impl Plan {
    /// The version this code writes.
    pub const VERSION: u32 = 1;
}

/// One member's place.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Place {
    /// Index into [`GangRequest::roles`].
    pub role: usize,
    /// Rank within the role.
    pub rank: u32,
    /// The pod, if it exists already.
    pub uid: Option<PodUid>,
    /// The node.
    pub node: NodeName,
    /// Whether the member runs there already.
    pub bound: bool,
}

/// Why the plan is what it is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[must_use = "an unread report is not actionable"]
pub struct Report {
    /// `None` if the gang is placed.
    pub refusal: Option<Refusal>,
    /// One entry per configured level, top to bottom; `used` is 0 where nothing is placed.
    pub levels: Vec<LevelUse>,
    /// Ring edges (rank r to r+1, last to first) whose ends lie in different domains, per level.
    pub ring_crossings: Vec<u32>,
    /// The preferred level, if it was asked for and missed.
    pub preferred_missed: Option<LevelIndex>,
    /// Elastic members without a place; 0 if the gang is refused.
    pub unplaced: u32,
    /// `None` if the plan is proven to be the best: always, but for larger mixes of shapes.
    #[serde(default)]
    pub gap: Option<Gap>,
    /// Warnings: label values under several parents, at most one per level.
    pub splits: Vec<SplitLabel>,
    /// Work done, for gates that must not depend on time.
    pub work: Work,
}

/// How far a plan may be from the best: the first field of the objective that is not proven to be as good as it can.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Gap {
    /// The field.
    pub field: GapField,
    /// Its value in the plan.
    pub achieved: u64,
    /// No plan that is as good in the fields before is below this.
    pub bound: u64,
}

/// A field of the objective, with the label key of its level.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum GapField {
    /// Domains used.
    Used(Arc<str>),
    /// Elastic members without a place.
    Unplaced,
    /// Domains broken.
    Broken(Arc<str>),
    /// What is left over in used domains.
    Left(Arc<str>),
}

/// `used <key>`, `unplaced`, `broken <key>`, `left <key>`.
impl fmt::Display for GapField {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Used(key) => write!(f, "used {key}"),
            Self::Unplaced => f.write_str("unplaced"),
            Self::Broken(key) => write!(f, "broken {key}"),
            Self::Left(key) => write!(f, "left {key}"),
        }
    }
}

/// Work counters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Work {
    /// Vertices of the topology tree visited.
    pub vertices: u64,
    /// Cells merged.
    pub cells: u64,
    /// Times the slots of a node were counted.
    #[serde(default)]
    pub slots: u64,
}

impl Work {
    /// Adds other work.
    pub fn add(&mut self, more: Self) {
        let Self { vertices, cells, slots } = more;
        self.vertices += vertices;
        self.cells += cells;
        self.slots += slots;
    }
}

/// Why a gang cannot be placed on the nodes of the problem.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Refusal {
    /// The pods carry a constraint the planner does not model.
    Unsupported {
        /// Role name.
        role: Arc<str>,
        /// The constraint.
        constraint: Arc<str>,
        /// What would make it fit, at most one change of a kind.
        #[serde(default)]
        changes: Vec<Change>,
    },
    /// More than one shape among the members, with topology requests that need one; or more shapes than are planned together.
    MixedShapes {
        /// Number of different shapes.
        shapes: usize,
        /// What would make it fit, at most one change of a kind.
        #[serde(default)]
        changes: Vec<Change>,
    },
    /// A role that can never reach its minimum.
    MinimumAboveCount {
        /// Role name.
        role: Arc<str>,
        /// Members needed to start.
        min: u32,
        /// Places the role has.
        count: u32,
        /// What would make it fit, at most one change of a kind.
        #[serde(default)]
        changes: Vec<Change>,
    },
    /// The slices that are asked for cut no gang of this size.
    Slices {
        /// Size of the slice at fault.
        size: u32,
        /// What is wrong.
        fault: SliceFault,
        /// What would make it fit, at most one change of a kind.
        #[serde(default)]
        changes: Vec<Change>,
    },
    /// A level that is asked for is not among the configured ones.
    UnknownLevel {
        /// The index asked for.
        level: LevelIndex,
        /// What would make it fit, at most one change of a kind.
        #[serde(default)]
        changes: Vec<Change>,
    },
    /// A bound member stands outside what `required`, its slice or `exclusive` allows, or on a node that is gone.
    BoundOutside {
        /// The node.
        node: NodeName,
        /// Where it would have to be, as `layer-3 us-east-1a/nn-1/nn-2/nn-3`, if other members decide that.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        inside: Option<Arc<str>>,
        /// Topology requests without which the gang would fit, at most one change of a kind.
        #[serde(default)]
        changes: Vec<Change>,
    },
    /// Not enough capacity inside any domain of the required level: proven.
    DoesNotFit(Shortfall),
    /// No placement was found for members of several shapes, and none is ruled out.
    Undecided(Undecided),
}

/// How far a search came that found no placement.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Undecided {
    /// Members that must be placed.
    pub needed: u32,
    /// Of these, those without a place in the best attempt.
    pub missing: u32,
    /// No placement leaves fewer than these without a place: what is proven.
    pub bound: u32,
    /// Name of the level whose domain all must share.
    pub required: Option<Arc<str>>,
    /// Iterations spent.
    pub iterations: u64,
}

/// Why slices cut no gang.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum SliceFault {
    /// The size does not divide the gang's or the enclosing slice's.
    DoesNotDivide {
        /// The size to be divided.
        of: u32,
    },
    /// Its level is above that of the enclosing slice.
    AboveEnclosing,
    /// Several roles, and one of them is elastic: which ranks have no place would depend on the role.
    ElasticRoles,
}

/// How far the best domain is from holding the gang, and what is in the way.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shortfall {
    /// Members that must still be placed to reach every role's minimum.
    pub needed: u32,
    /// Members bound already. With a required level they decide the domain.
    pub bound: u32,
    /// The level all members must share, as an index into `best`.
    pub required: Option<LevelIndex>,
    /// Members that all nodes together could still take.
    pub total: u32,
    /// Per level from the top: the domain with most capacity and how many more members it could take. Only domains that
    /// can satisfy a ask for the level and that are compatible with the bound members.
    pub best: Vec<BestDomain>,
    /// The nearest level above the required one with a domain that could take all that is needed.
    pub wider: Option<LevelIndex>,
    /// Nodes that cannot satisfy the required level for want of its label.
    pub unlabelled: u32,
    /// Members of a slice, where capacity is counted in whole slices.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step: Option<u32>,
    /// Nodes by blocking reason, most nodes first, then by text.
    pub blocked: Box<[Blocked]>,
    /// Changes each of which would make the gang fit, at most one of a kind, the smallest of its kind.
    #[serde(default)]
    pub changes: Vec<Change>,
}

/// A change that would make a refused gang fit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Change {
    /// More capacity, all of it.
    #[serde(rename = "room")]
    Capacity {
        /// Where, and how much.
        capacities: Vec<Capacity>,
    },
    /// Require a wider level, or none.
    Widen {
        /// The level.
        to: Option<LevelIndex>,
        /// Its name.
        #[serde(default)]
        level: Option<Arc<str>>,
    },
    /// Do without the exclusive domain.
    Share,
    /// Do without slices.
    Unslice,
    /// Do without balance.
    Unbalance,
    /// Topology request for slices inside a wider level.
    WidenSlices {
        /// The level.
        to: LevelIndex,
        /// Its name.
        level: Arc<str>,
    },
    /// Tolerate taints, all of them.
    Tolerate {
        /// Each `key=value:effect`.
        taints: Vec<Arc<str>>,
    },
    /// Do without node selector and node affinity.
    Unselect,
    /// Nodes that are no longer blocked by a reason.
    Nodes {
        /// The reason.
        reason: crate::fit::Misfit,
        /// How many of them.
        nodes: u32,
    },
    /// Exactly these nodes without what blocks them.
    Free {
        /// What blocks them.
        reason: crate::fit::Misfit,
        /// The nodes, in natural order.
        nodes: Vec<NodeName>,
    },
    /// Another minimum of a role.
    Minimum {
        /// The role; empty for the only one.
        role: Arc<str>,
        /// The minimum.
        members: u32,
    },
    /// Pods without constraints, all of them.
    Remove {
        /// The constraints.
        constraints: Vec<Arc<str>>,
    },
    /// One template for two roles.
    SameTemplate {
        /// The role that changes.
        role: Arc<str>,
        /// The role whose template it takes.
        like: Arc<str>,
        /// Their indices in [`GangRequest::roles`].
        indices: (usize, usize),
    },
    /// Slices of another size.
    SliceSize {
        /// The size asked for.
        from: u32,
        /// The size.
        to: u32,
    },
    /// Less of a resource in each member.
    Lower {
        /// The resource.
        resource: crate::model::names::ResourceName,
        /// As it is, in the resource's unit.
        from: i64,
        /// The most that fits.
        to: i64,
    },
    /// Labels of the network on nodes that lack them.
    Label {
        /// The nodes, in natural order.
        nodes: Vec<NodeName>,
        /// Keys, from the top.
        keys: Vec<Arc<str>>,
    },
    /// Claims of their own for the members, in place of those that keep all of them on one node.
    OwnVolumes {
        /// The claims that all share.
        claims: Vec<Arc<str>>,
    },
    /// Slices of some size inside a lower level.
    NarrowSlices {
        /// Their size.
        size: u32,
        /// The level.
        to: LevelIndex,
        /// Its name.
        level: Arc<str>,
    },
}

/// Capacity that is missing somewhere.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Capacity {
    /// Name of the level; `None`: anywhere.
    pub level: Option<Arc<str>>,
    /// Path of the domain; empty for a domain that does not exist yet.
    pub domain: Arc<str>,
    /// Members for which capacity is missing.
    pub members: u32,
    /// Their role, where the gang has members of different shapes.
    #[serde(default)]
    pub role: Option<Arc<str>>,
}

/// The domain of a level with most capacity.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BestDomain {
    /// Name of the level.
    pub level: Arc<str>,
    /// Label key of the level.
    pub key: Arc<str>,
    /// Path of the domain, top to bottom, joined with `/`; empty if no node has the level.
    pub domain: Arc<str>,
    /// Further members it could hold.
    pub holds: u32,
}

/// A reason and how many nodes it blocks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Blocked {
    /// The reason.
    pub reason: crate::fit::Misfit,
    /// Nodes.
    pub nodes: u32,
}

impl Refusal {
    /// What would make the gang fit, each change alone. Empty: nothing that a person could change about the gang or one
    /// kind of obstacle would.
    #[must_use]
    pub fn changes(&self) -> &[Change] {
        match self {
            Self::Unsupported { changes, .. }
            | Self::MixedShapes { changes, .. }
            | Self::MinimumAboveCount { changes, .. }
            | Self::Slices { changes, .. }
            | Self::UnknownLevel { changes, .. }
            | Self::BoundOutside { changes, .. } => changes,
            Self::DoesNotFit(shortfall) => &shortfall.changes,
            Self::Undecided(_) => &[],
        }
    }

    /// The same, to be written; `None` where nothing can be named.
    pub fn changes_mut(&mut self) -> Option<&mut Vec<Change>> {
        match self {
            Self::Unsupported { changes, .. }
            | Self::MixedShapes { changes, .. }
            | Self::MinimumAboveCount { changes, .. }
            | Self::Slices { changes, .. }
            | Self::UnknownLevel { changes, .. }
            | Self::BoundOutside { changes, .. } => Some(changes),
            Self::DoesNotFit(shortfall) => Some(&mut shortfall.changes),
            Self::Undecided(_) => None,
        }
    }
}
