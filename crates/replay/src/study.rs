//! A plan with what stands behind it: for explanations. The document is the part of it that is published.

use std::cell::Cell;
use std::sync::Arc;

use muster_core::fit::Misfit;
use muster_core::model::names::ObjectKey;
use muster_core::model::node::{Node, Usage};
use muster_core::planner::plan::{Refusal, Work};
use muster_core::reason::Why;
use muster_core::topology::Levels;

use crate::document::{Document, ProvisionEntry, Reason};

/// A document and what stands behind it.
#[derive(Clone, Debug)]
pub struct Study {
    /// What is published.
    pub document: Document,
    /// One entry per gang, in the document's order.
    pub details: Vec<Detail>,
    /// The levels that were planned with.
    pub levels: Levels,
    /// What the planner of gangs did for all of it.
    pub work: Work,
    /// The node that was asked about, if the dump holds it.
    pub focus: Option<NodeFacts>,
}

/// What the planner has done so far, by whoever asked it.
#[derive(Debug, Default)]
pub(crate) struct Searched(Cell<Work>);

impl Searched {
    /// Counts one answer.
    pub(crate) fn add(&self, work: Work) {
        let mut sum = self.0.get();
        sum.add(work);
        self.0.set(sum);
    }

    /// All of it.
    pub(crate) fn work(&self) -> Work {
        self.0.get()
    }
}

/// What stands behind one gang's entry.
#[derive(Clone, Debug, Default)]
pub struct Detail {
    /// Name of the Gang object, which `kubectl get gangs` shows.
    pub object: String,
    /// Whether there is such an object.
    pub exists: bool,
    /// Names of its live pods.
    pub pods: Vec<String>,
    /// Why running nodes do not hold it.
    pub refusal: Option<Refusal>,
    /// Why it is not planned at all, or waits for nodes.
    pub why: Option<Why>,
    /// What could be provisioned for it, best first; the first one that holds it is chosen.
    pub candidates: Vec<Candidate>,
    /// What cannot be provisioned for it, with the reason.
    pub excluded: Vec<Reason>,
    /// Ring edges whose ends lie in different domains, per level.
    pub ring_crossings: Vec<u32>,
    /// Elastic members without a place.
    pub unplaced: u32,
    /// Name of the preferred level, if it was missed.
    pub preferred_missed: Option<String>,
    /// Pods on nodes that would have to be freed, by what they hold there.
    pub holders: Vec<Holds>,
    /// Where its volumes are, as a sentence, if they are not reached from everywhere.
    pub volumes: Option<String>,
    /// How many members the node that is asked about could take just before this gang was planned, or why none.
    pub focus: Option<Result<u32, Misfit>>,
}

/// A pod on a node, as far as it matters to whoever wants it gone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holds {
    /// The node.
    pub node: muster_core::model::names::NodeName,
    /// `namespace/name`.
    pub pod: Arc<str>,
    /// What it holds.
    pub held: Arc<Usage>,
    /// It has been ended already, its controller brings it back, or the rest of its gang would end with it.
    pub stays: bool,
}

/// One way to provision nodes for a gang.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// What is provisioned.
    pub provision: ProvisionEntry,
    /// Micro-dollars per hour of all its nodes.
    pub total: u64,
    /// Members that running nodes take beside it.
    pub beside: u32,
    /// Whether this one is provisioned.
    pub chosen: bool,
    /// Why the plan on it was not accepted, if it was tried.
    pub rejected: Option<String>,
}

impl Candidate {
    /// A candidate that has not been tried.
    #[must_use]
    pub fn new(provision: ProvisionEntry, beside: u32) -> Self {
        let total = provision.usd_micro_per_hour.saturating_mul(u64::from(provision.count));
        Self { provision, total, beside, chosen: false, rejected: None }
    }
}

/// A node and who holds it.
#[derive(Clone, Debug)]
pub struct NodeFacts {
    /// The node.
    pub node: Node,
    /// Pods that hold capacity on it now.
    pub holders: Vec<Holder>,
    /// What they hold together.
    pub held: Usage,
    /// Members for which plans in the dump hold capacity here: gang object and pod.
    pub assigned: Vec<(ObjectKey, Option<String>)>,
}

/// A pod that holds capacity on a node.
#[derive(Clone, Debug)]
pub struct Holder {
    /// Namespace.
    pub namespace: String,
    /// Name.
    pub name: String,
    /// Name of its gang object, if it is a member of one.
    pub gang: Option<String>,
    /// What it holds.
    pub usage: Arc<Usage>,
    /// It is being deleted, and holds its capacity until it is gone.
    pub terminating: bool,
    /// It is only nominated: kube-scheduler made capacity for it.
    pub nominated: bool,
}
