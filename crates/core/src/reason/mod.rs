//! Why a gang is where it is, and the smallest change that would help: one closed set, and one place for the text.
//!
//! Status, events, `muster explain` and `muster plan` all say what these types say, and begin with one headline
//! ([`Why::headline`]). Text of the planner's refusals and changes is made in [`crate::planner::explain`], of offers that are none in [`crate::offering::Exclusion`]; the rest is
//! here.

mod bounded;
pub mod guide;
mod named;
mod pool;
mod speech;
mod step;
mod text;

use std::sync::Arc;

use jiff::Timestamp;

use crate::fit::Misfit;
use crate::model::gang::{Invalid, Waiting};
use crate::model::names::{NodeName, ObjectKey};
use crate::planner::plan::{Change, Refusal};

pub use crate::model::code::Code;
pub use bounded::bounded;
pub use named::{Nodes, PodHolds};
pub use pool::{PoolChange, Unsold};
pub use speech::keeps_the_type;
pub use step::{Step, instruction};

/// Why a gang is not placed, or not yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Why {
    /// Members are missing.
    Collecting {
        /// Members there.
        seen: u32,
        /// Members needed.
        needed: u32,
        /// Members expected.
        size: u32,
        /// A plan is kept for the missing ones.
        kept: bool,
    },
    /// Neither size nor minimum is known.
    SizeUnknown {
        /// Members there.
        seen: u32,
        /// There is a plan from before.
        kept: bool,
    },
    /// A gate of somebody else holds a member.
    ForeignGate {
        /// The pod.
        pod: Arc<str>,
        /// The gate.
        gate: Arc<str>,
        /// A plan is kept for it.
        kept: bool,
    },
    /// A claim of a member is not there, or not bound.
    Volumes {
        /// The pod.
        pod: Arc<str>,
        /// What is waited for, as a sentence.
        awaits: Arc<str>,
        /// A plan is kept for it.
        kept: bool,
    },
    /// The owner is suspended.
    Suspended {
        /// Kind of the owner.
        kind: Arc<str>,
        /// Its name.
        name: Arc<str>,
    },
    /// A topology request cannot be read.
    Invalid(Invalid),
    /// The planner refused it.
    Refused {
        /// Why.
        refusal: Refusal,
        /// What keeps capacity and ends by itself.
        passing: Vec<Passing>,
    },
    /// The checker refused the plan, or there was none without a reason: a bug.
    PlanRejected,
    /// Nodes that kube-scheduler refused are excluded, and the others do not do.
    Excluded {
        /// What the planner says of the others.
        refusal: Refusal,
    },
    /// Nodes are being provisioned.
    Provisioning {
        /// The batch, and what it says.
        batch: Option<(Arc<str>, Option<Arc<str>>)>,
        /// Nodes of a batch that is being made now.
        count: Option<u32>,
    },
    /// The nodes provisioned for it are there and do not hold it yet.
    ProvisionedDoNotHold {
        /// What the planner says.
        refusal: Refusal,
    },
    /// Every way to provision failed.
    NoCapacity {
        /// What the batch says.
        stated: Option<Arc<str>>,
        /// What the planner says of running nodes.
        refusal: Refusal,
    },
    /// It fits once nodes have joined that were provisioned for others or for nobody any more.
    Joining(Joining),
    /// It waits for booked nodes.
    Booking {
        /// The ProvisioningRequest.
        request: Arc<str>,
    },
    /// Running nodes do not hold it, and none can be provisioned that would.
    NothingOnSale {
        /// What the planner says.
        refusal: Refusal,
        /// What keeps capacity and ends by itself.
        passing: Vec<Passing>,
        /// Whether there is any pool.
        pools: bool,
        /// Why each offer is none.
        unsold: Vec<Unsold>,
        /// Running nodes would hold it if they were empty.
        one_day: bool,
    },
    /// Members are lost.
    MemberLost {
        /// Members left.
        left: u32,
        /// Members needed.
        needed: u32,
        /// Of this role.
        role: Option<Arc<str>>,
    },
    /// There is no capacity for a member that came after the commit.
    NoCapacityForNew {
        /// What the planner says.
        refusal: Option<Refusal>,
    },
    /// The rest of a gang that lost a member is being evicted.
    Evicting {
        /// What was lost.
        lost: Box<Why>,
        /// Members still to be evicted; 0: not begun.
        left: u32,
    },
    /// The gang was evicted.
    Restarting,
    /// Members did not reach the barrier.
    PlanExpired,
    /// kube-scheduler refuses members.
    SchedulerRefused {
        /// Plans it refused; `None`: it refuses one member now.
        plans: Option<usize>,
        /// The member.
        pod: Option<Arc<str>>,
        /// What it says.
        stated: Arc<str>,
    },
    /// A call of kube-scheduler failed.
    SchedulerError {
        /// The member.
        pod: Arc<str>,
        /// What it says.
        stated: Arc<str>,
    },
}

/// Nodes on their way that a gang waits for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Joining {
    /// The nodes that have registered, in order of name.
    pub nodes: Vec<NodeName>,
    /// The batches they come from, or will, in order of name.
    pub batches: Vec<Arc<str>>,
    /// Nodes are provisioned after this.
    pub until: Option<Timestamp>,
}

/// What keeps capacity from a gang and ends by itself: no change can make it sooner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Passing {
    /// Pods that are being deleted.
    Terminating {
        /// How many.
        pods: u32,
        /// On so many nodes.
        nodes: u32,
        /// The gang fits once they are gone.
        enough: bool,
    },
    /// Assignments to other gangs.
    Assigned {
        /// To whom, in order.
        gangs: Vec<ObjectKey>,
        /// On so many nodes.
        nodes: u32,
        /// The gang would fit without them.
        enough: bool,
        /// It would without those of any one of them.
        any: bool,
    },
}

/// Why a plan that is persisted no longer holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stale {
    /// The gang needs another number of members.
    Needs {
        /// Now.
        now: u32,
        /// When the plan was made.
        then: u32,
    },
    /// The gang needs other numbers of its roles.
    Roles,
    /// Members need something else.
    Shape,
    /// A pod was bound by somebody else.
    Moved {
        /// The pod.
        pod: Arc<str>,
        /// Where it is now.
        node: NodeName,
    },
    /// A planned node is gone.
    Gone(NodeName),
    /// A planned node is not Ready, cordoned, or being deleted.
    NotReady(NodeName),
    /// kube-scheduler refused such a pod there.
    Refused(NodeName),
    /// A planned node is assigned to another gang as a whole.
    Assigned(NodeName),
    /// A planned node holds fewer members.
    Holds {
        /// The node.
        node: NodeName,
        /// Members it holds.
        slots: u32,
        /// Members planned there.
        planned: u32,
    },
    /// A planned node holds no member.
    Misfit {
        /// The node.
        node: NodeName,
        /// Why.
        misfit: Misfit,
    },
}

/// One reason with how much is missing, and the smallest change of its kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reason {
    /// What is in the way.
    pub code: Code,
    /// Label key of the level it is about.
    pub level: Option<Arc<str>>,
    /// How much is missing, in members or in units of the limit.
    pub short: Option<u64>,
    /// What would help.
    pub help: Help,
}

/// What would help against one reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Help {
    /// No single change of this kind.
    Nothing,
    /// A change of the gang or of nodes, proven by planning again.
    Change(Change),
    /// Changes of a pool, all of them.
    Pool {
        /// The pool.
        pool: Arc<str>,
        /// For nodes of this type.
        instance_type: Option<Arc<str>>,
        /// Nodes that would be provisioned then, if that is known.
        count: Option<u32>,
        /// Each the smallest that does.
        changes: Vec<PoolChange>,
    },
    /// A NodePool that may provision.
    NewPool {
        /// The cheapest type that was shown to hold the gang; `None`: none was tried, or none holds it.
        offer: Option<NewOffer>,
    },
    /// No change: it ends by itself.
    Wait(Wait),
    /// What the gang's description says wrong, with the remedy in words.
    Describe(Arc<str>),
}

/// What a NodePool that nobody has made yet would provision for a gang.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewOffer {
    /// The type.
    pub instance_type: Arc<str>,
    /// Nodes.
    pub count: u32,
    /// The zone that volumes or selectors of the gang ask for, if they do.
    pub zone: Option<Arc<str>>,
    /// The level of the network below the zone that the gang asks for, if it does: where new nodes stand there is known only
    /// once they run.
    pub level: Option<Arc<str>>,
}

/// What is waited for where no change can help.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wait {
    /// So many members more.
    Members(u32),
    /// Somebody else's gate on a pod.
    Gate {
        /// The gate.
        gate: Arc<str>,
        /// The pod.
        pod: Arc<str>,
    },
    /// Nodes that join.
    Joined(Joining),
    /// Nodes that are provisioned or were given up, as a batch says.
    Provisioned,
    /// Booked nodes.
    Booked(Arc<str>),
    /// Something that keeps capacity.
    Passed(Passing),
    /// A node that is gone comes back, or its member ends.
    Node(NodeName),
    /// This time.
    Until(Timestamp),
    /// The owner's pods.
    Pods,
}

impl Reason {
    /// A reason without level and amount.
    #[must_use]
    pub fn new(code: Code, help: Help) -> Self {
        Self { code, level: None, short: None, help }
    }

    /// The same, so much short.
    #[must_use]
    pub fn short(self, short: u64) -> Self {
        Self { short: Some(short), ..self }
    }
}

impl Code {
    /// The code of what blocks a node.
    #[must_use]
    pub fn of_misfit(misfit: &Misfit) -> Self {
        match misfit {
            Misfit::Unschedulable => Self::Cordoned,
            Misfit::NotReady => Self::NotReady,
            Misfit::Taint { taint: _ } | Misfit::Held => Self::Taint,
            Misfit::Selector => Self::Selector,
            Misfit::Volume => Self::Volume,
            Misfit::Port => Self::Port,
            Misfit::Insufficient { resource: _ } => Self::Insufficient,
            Misfit::Shared | Misfit::Occupied => Self::Occupied,
        }
    }

    /// The code of a refusal.
    #[must_use]
    pub fn of_refusal(refusal: &Refusal) -> Self {
        match refusal {
            Refusal::Unsupported { .. } => Self::Unsupported,
            Refusal::MixedShapes { .. } => Self::MixedShapes,
            Refusal::MinimumAboveCount { .. } => Self::MinimumAboveCount,
            Refusal::Slices { .. } => Self::Slices,
            Refusal::UnknownLevel { .. } => Self::UnknownLevel,
            Refusal::BoundOutside { .. } => Self::BoundOutside,
            Refusal::DoesNotFit(_) => Self::DoesNotFit,
            Refusal::Undecided(_) => Self::Undecided,
        }
    }
}

impl Why {
    /// A refusal with nothing that ends by itself.
    #[must_use]
    pub fn refused(refusal: &Refusal) -> Self {
        Self::Refused { refusal: refusal.clone(), passing: Vec::new() }
    }

    /// The word for it.
    #[must_use]
    pub fn code(&self) -> Code {
        match self {
            Self::Collecting { .. } => Code::Collecting,
            Self::SizeUnknown { .. } => Code::SizeUnknown,
            Self::ForeignGate { .. } => Code::ForeignGate,
            Self::Volumes { .. } => Code::VolumesNotReady,
            Self::Suspended { .. } => Code::Suspended,
            Self::Invalid(invalid) => invalid.reason,
            Self::Refused { refusal, passing: _ } => Code::of_refusal(refusal),
            Self::PlanRejected => Code::PlanRejected,
            Self::Excluded { .. } => Code::NodesExcluded,
            Self::Provisioning { .. } => Code::Provisioning,
            Self::ProvisionedDoNotHold { .. } => Code::DoesNotFit,
            Self::NoCapacity { .. } => Code::InsufficientCapacity,
            Self::Joining(_) => Code::Joining,
            Self::Booking { .. } => Code::Booking,
            Self::NothingOnSale { pools: true, one_day: true, .. } => Code::DoesNotFit,
            Self::NothingOnSale { .. } => Code::NoPool,
            Self::MemberLost { .. } | Self::NoCapacityForNew { .. } => Code::MemberLost,
            Self::Evicting { .. } => Code::Evicting,
            Self::Restarting => Code::Restarting,
            Self::PlanExpired => Code::PlanExpired,
            Self::SchedulerRefused { .. } => Code::SchedulerRefused,
            Self::SchedulerError { .. } => Code::SchedulerError,
        }
    }

    /// Everything that would help alone, or that no change helps and what is waited for.
    #[must_use]
    pub fn helps(&self) -> Vec<Help> {
        let wait = |wait: Wait| vec![Help::Wait(wait)];
        let of = |refusal: &Refusal, passing: &[Passing]| {
            let mut helps: Vec<Help> = refusal.changes().iter().cloned().map(Help::Change).collect();
            helps.extend(passing.iter().filter(|one| one.is_enough()).cloned().map(Wait::Passed).map(Help::Wait));
            match refusal {
                Refusal::BoundOutside { node, changes, inside: _ } if changes.is_empty() => {
                    helps.push(Help::Wait(Wait::Node(node.clone())));
                }
                Refusal::Undecided(_)
                | Refusal::BoundOutside { .. }
                | Refusal::Unsupported { .. }
                | Refusal::MixedShapes { .. }
                | Refusal::MinimumAboveCount { .. }
                | Refusal::Slices { .. }
                | Refusal::UnknownLevel { .. }
                | Refusal::DoesNotFit(_) => {}
            }
            helps
        };
        match self {
            Self::Collecting { seen, needed, .. } => wait(Wait::Members(needed.saturating_sub(*seen))),
            Self::ForeignGate { pod, gate, kept: _ } => {
                wait(Wait::Gate { gate: Arc::clone(gate), pod: Arc::clone(pod) })
            }
            Self::SizeUnknown { .. } | Self::Volumes { .. } | Self::Suspended { .. } | Self::PlanRejected => {
                vec![Help::Describe(Arc::from(self.to_string()))]
            }
            Self::Invalid(invalid) => vec![Help::Describe(Arc::from(invalid.message.as_str()))],
            Self::Refused { refusal, passing } => of(refusal, passing),
            Self::NothingOnSale { refusal, passing, pools, unsold, one_day: _ } => {
                let mut helps = of(refusal, passing);
                helps.extend(unsold.iter().map(Unsold::help).filter(|help| *help != Help::Nothing));
                if !pools {
                    helps.push(Help::NewPool { offer: None });
                }
                helps
            }
            Self::Excluded { refusal }
            | Self::ProvisionedDoNotHold { refusal }
            | Self::NoCapacity { refusal, stated: _ } => of(refusal, &[]),
            Self::NoCapacityForNew { refusal } => refusal.as_ref().map_or_else(Vec::new, |refusal| of(refusal, &[])),
            Self::Provisioning { .. } => wait(Wait::Provisioned),
            Self::Joining(joining) => wait(Wait::Joined(joining.clone())),
            Self::Booking { request } => wait(Wait::Booked(Arc::clone(request))),
            Self::MemberLost { .. } | Self::Evicting { .. } | Self::Restarting => wait(Wait::Pods),
            Self::PlanExpired | Self::SchedulerRefused { .. } | Self::SchedulerError { .. } => Vec::new(),
        }
    }

    /// For the status.
    #[must_use]
    pub fn waiting(&self, next_try: Option<Timestamp>) -> Waiting {
        Waiting { reason: Arc::from(self.code().as_str()), message: Arc::from(self.to_string()), since: None, next_try }
    }
}

impl Passing {
    /// As a reason of its own.
    #[must_use]
    pub fn reason(&self) -> Reason {
        let code = match self {
            Self::Terminating { .. } => Code::Terminating,
            Self::Assigned { .. } => Code::Assigned,
        };
        let help = if self.is_enough() { Help::Wait(Wait::Passed(self.clone())) } else { Help::Nothing };
        Reason::new(code, help)
    }

    /// Whether the gang fits once it has passed.
    #[must_use]
    pub fn is_enough(&self) -> bool {
        match self {
            Self::Terminating { enough, .. } | Self::Assigned { enough, .. } => *enough,
        }
    }
}
