//! The closed list of reasons, one word each.

use std::fmt;

use serde::{Deserialize, Serialize};

/// What is in the way of a gang. A closed list: `status.waiting.reason` and the published plan have these words and no
/// other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Code {
    /// No domain of the level has capacity for all members.
    DoesNotFit,
    /// Nodes lack the label of the required level.
    Unlabelled,
    /// Nodes are cordoned.
    Cordoned,
    /// Nodes are not Ready.
    NotReady,
    /// Nodes carry a taint that the members do not tolerate.
    Taint,
    /// Nodes do not match selector or required affinity.
    Selector,
    /// A volume of a member cannot be reached from the nodes.
    Volume,
    /// A host port is taken.
    Port,
    /// Nodes have too little of a resource.
    Insufficient,
    /// Pods stand on the nodes that must not stand beside a member, or in a domain that is to be the gang's alone.
    Occupied,
    /// Pods that are being deleted hold capacity until they are gone.
    Terminating,
    /// Capacity is assigned to other gangs.
    Assigned,
    /// The members carry a constraint that is not supported.
    Unsupported,
    /// The members have more than one shape, and a topology request that needs one, or more shapes than are planned together.
    MixedShapes,
    /// No placement was found for members of several shapes, and none is ruled out.
    Undecided,
    /// The minimum is above the number of members.
    MinimumAboveCount,
    /// The slices cut no gang of this size.
    Slices,
    /// A running member stands outside the domain the gang requires.
    BoundOutside,
    /// Not all members needed are there.
    Collecting,
    /// Neither size nor minimum of the gang is known.
    SizeUnknown,
    /// The owner is suspended.
    Suspended,
    /// A scheduling gate of somebody else holds a member.
    ForeignGate,
    /// A claim of a member is not there, or not bound.
    VolumesNotReady,
    /// It fits once nodes that were provisioned have joined and are Ready.
    Joining,
    /// Nodes are being provisioned for it.
    Provisioning,
    /// Every way to provision failed; it is tried again.
    InsufficientCapacity,
    /// Nodes that kube-scheduler refused lately are excluded.
    NodesExcluded,
    /// It waits for the nodes booked by a ProvisioningRequest.
    Booking,
    /// A PodTemplate, or the runtime of a TrainJob, is missing.
    TemplateNotFound,
    /// No NodePool may provision for it.
    NoPool,
    /// No NodePool sells a type that holds a member.
    NoType,
    /// More nodes are needed than one batch may have.
    BatchTooLarge,
    /// A limit of the pool would be passed.
    LimitReached,
    /// No price is known.
    PriceUnknown,
    /// The type is not sold on the capacity types, or in the zones, of the pool.
    NotSold,
    /// No reservation has capacity for it.
    Reservation,
    /// No subnet has enough free addresses.
    Addresses,
    /// EC2 refused it lately for another reason than capacity.
    Quota,
    /// Pool and gang disagree about the placement group.
    PlacementGroup,
    /// The running members cannot be joined by provisioned nodes inside the level requested.
    MixedWithRunning,
    /// A member is lost, and the minimum with it.
    MemberLost,
    /// A member is lost; the others are being evicted.
    #[serde(rename = "Stopping")]
    Evicting,
    /// The gang was evicted; its pods are awaited again.
    Restarting,
    /// Members did not reach the barrier in time.
    PlanExpired,
    /// kube-scheduler refuses a member for a reason of its own.
    SchedulerRefused,
    /// A call of kube-scheduler failed.
    SchedulerError,
    /// An unknown level.
    UnknownLevel,
    /// A number that cannot be read.
    BadNumber,
    /// A value that is not one of those allowed.
    BadValue,
    /// One of two topology requests that belong together is missing.
    IncompleteTopologyRequest,
    /// Members of two roles ask for different things.
    ConflictingTopologyRequests,
    /// A name that cannot be used.
    BadName,
    /// A pod whose requests cannot be read.
    BadPod,
    /// More members than a gang may have.
    TooManyMembers,
    /// The owner creates its pods one after another.
    SequentialCreation,
    /// A topology request that is not supported.
    NotSupported,
    /// The checker refused the plan: a bug.
    PlanRejected,
}

impl Code {
    /// All of them.
    pub const ALL: [Self; 57] = [
        Self::DoesNotFit,
        Self::Unlabelled,
        Self::Cordoned,
        Self::NotReady,
        Self::Taint,
        Self::Selector,
        Self::Volume,
        Self::Port,
        Self::Insufficient,
        Self::Occupied,
        Self::Terminating,
        Self::Assigned,
        Self::Unsupported,
        Self::MixedShapes,
        Self::Undecided,
        Self::MinimumAboveCount,
        Self::Slices,
        Self::BoundOutside,
        Self::Collecting,
        Self::SizeUnknown,
        Self::Suspended,
        Self::ForeignGate,
        Self::VolumesNotReady,
        Self::Joining,
        Self::Provisioning,
        Self::InsufficientCapacity,
        Self::NodesExcluded,
        Self::Booking,
        Self::TemplateNotFound,
        Self::NoPool,
        Self::NoType,
        Self::BatchTooLarge,
        Self::LimitReached,
        Self::PriceUnknown,
        Self::NotSold,
        Self::Reservation,
        Self::Addresses,
        Self::Quota,
        Self::PlacementGroup,
        Self::MixedWithRunning,
        Self::MemberLost,
        Self::Evicting,
        Self::Restarting,
        Self::PlanExpired,
        Self::SchedulerRefused,
        Self::SchedulerError,
        Self::UnknownLevel,
        Self::BadNumber,
        Self::BadValue,
        Self::IncompleteTopologyRequest,
        Self::ConflictingTopologyRequests,
        Self::BadName,
        Self::BadPod,
        Self::TooManyMembers,
        Self::SequentialCreation,
        Self::NotSupported,
        Self::PlanRejected,
    ];

    /// The word.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::DoesNotFit => "DoesNotFit",
            Self::Unlabelled => "Unlabelled",
            Self::Cordoned => "Cordoned",
            Self::NotReady => "NotReady",
            Self::Taint => "Taint",
            Self::Selector => "Selector",
            Self::Volume => "Volume",
            Self::Port => "Port",
            Self::Insufficient => "Insufficient",
            Self::Occupied => "Occupied",
            Self::Terminating => "Terminating",
            Self::Assigned => "Assigned",
            Self::Unsupported => "Unsupported",
            Self::MixedShapes => "MixedShapes",
            Self::Undecided => "Undecided",
            Self::MinimumAboveCount => "MinimumAboveCount",
            Self::Slices => "Slices",
            Self::BoundOutside => "BoundOutside",
            Self::Collecting => "Collecting",
            Self::SizeUnknown => "SizeUnknown",
            Self::Suspended => "Suspended",
            Self::ForeignGate => "ForeignGate",
            Self::VolumesNotReady => "VolumesNotReady",
            Self::Joining => "Joining",
            Self::Provisioning => "Provisioning",
            Self::InsufficientCapacity => "InsufficientCapacity",
            Self::NodesExcluded => "NodesExcluded",
            Self::Booking => "Booking",
            Self::TemplateNotFound => "TemplateNotFound",
            Self::NoPool => "NoPool",
            Self::NoType => "NoType",
            Self::BatchTooLarge => "BatchTooLarge",
            Self::LimitReached => "LimitReached",
            Self::PriceUnknown => "PriceUnknown",
            Self::NotSold => "NotSold",
            Self::Reservation => "Reservation",
            Self::Addresses => "Addresses",
            Self::Quota => "Quota",
            Self::PlacementGroup => "PlacementGroup",
            Self::MixedWithRunning => "MixedWithRunning",
            Self::MemberLost => "MemberLost",
            Self::Evicting => "Stopping",
            Self::Restarting => "Restarting",
            Self::PlanExpired => "PlanExpired",
            Self::SchedulerRefused => "SchedulerRefused",
            Self::SchedulerError => "SchedulerError",
            Self::UnknownLevel => "UnknownLevel",
            Self::BadNumber => "BadNumber",
            Self::BadValue => "BadValue",
            Self::IncompleteTopologyRequest => "IncompleteTopologyRequest",
            Self::ConflictingTopologyRequests => "ConflictingTopologyRequests",
            Self::BadName => "BadName",
            Self::BadPod => "BadPod",
            Self::TooManyMembers => "TooManyMembers",
            Self::SequentialCreation => "SequentialCreation",
            Self::NotSupported => "NotSupported",
            Self::PlanRejected => "PlanRejected",
        }
    }

    /// Reads the word; `None` for one of a version this code does not know.
    #[must_use]
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|code| code.as_str() == word)
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
