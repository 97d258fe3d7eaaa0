//! Why something is not a candidate, for the status of a NodeBatch and for a person.

use std::fmt;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::ledger::CeilingScope;
use super::refusals::Refusal;
use crate::fit::Misfit;
use crate::model::moment::moment;
use crate::model::money::usd;
use crate::model::names::ResourceName;
use crate::model::resources::{at_least, at_most};

/// Most candidates of one round: what a NodeBatch's status holds.
pub const MAX_CANDIDATES: usize = 64;

/// Why something is not a candidate.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Exclusion {
    /// The pool requires a group and the gang forbids it, or the other way round.
    GroupPolicyConflict,
    /// EC2 does not report the type in this Region.
    UnknownType,
    /// No member fits on a node of the type.
    DoesNotFit,
    /// A node of the type can never hold a member.
    Misfit {
        /// Why.
        misfit: Misfit,
    },
    /// No number of nodes of the type holds the members as slices, exclusive hosts or one host for all ask.
    #[serde(rename = "wishes")]
    TopologyRequests,
    /// The pool allows no known type.
    NoTypes,
    /// More nodes than one batch may have.
    TooManyNodes {
        /// Needed.
        needed: u32,
        /// Allowed.
        most: u32,
    },
    /// The pool's limit would be passed.
    Limit {
        /// Resource.
        resource: ResourceName,
        /// Needed.
        needed: i64,
        /// Left.
        left: i64,
        /// The limit.
        limit: i64,
    },
    /// A ceiling on dollars per hour would be passed. In micro-dollars.
    CostCeiling {
        /// Whose.
        scope: CeilingScope,
        /// Needed.
        needed: u64,
        /// Left.
        left: u64,
        /// The ceiling.
        ceiling: u64,
    },
    /// The capacity type is not one the type is sold on.
    NotSold,
    /// The class chooses no reservation of the type in the zone.
    NoReservation,
    /// The reservation has too few free hosts.
    ReservationTooSmall {
        /// The reservation.
        id: String,
        /// Needed.
        needed: u32,
        /// Free.
        free: u32,
    },
    /// The reservation has not begun.
    ReservationNotStarted {
        /// The reservation.
        id: String,
        /// When it begins.
        start: Option<Timestamp>,
    },
    /// The reservation has ended, or ends too soon to be worth a launch.
    ReservationEnds {
        /// The reservation.
        id: String,
        /// When it ends.
        end: Option<Timestamp>,
    },
    /// The reservation was made in a placement group and the gang forbids one, or the other way round.
    ReservationGroup {
        /// The reservation.
        id: String,
        /// Whether it was made in a group.
        in_group: bool,
    },
    /// The type does not go into a cluster placement group.
    NoGroupForType,
    /// The zone does not offer the type.
    NotOffered,
    /// A volume of the gang is in another zone.
    VolumeElsewhere,
    /// Running members of the gang are in another zone.
    MembersElsewhere,
    /// The node class has no subnet in the zone.
    NoSubnet,
    /// The cluster is IPv6, and the subnets of the zone are not.
    NoIpv6Cidr {
        /// The subnets.
        subnets: Vec<String>,
    },
    /// No subnet of the zone has enough free addresses.
    TooFewAddresses {
        /// Needed.
        needed: u64,
        /// Free in the best subnet.
        free: u32,
    },
    /// No price is known.
    PriceUnknown,
    /// This size failed here lately.
    NoCapacity {
        /// When it may be tried again.
        until: Timestamp,
    },
    /// EC2 refused it lately, not for want of capacity.
    Refused {
        /// The refusal.
        refusal: Refusal,
        /// Until when it is trusted.
        until: Timestamp,
    },
    /// Nodes of the type refused such members in two rounds or more.
    InVain {
        /// When they are provisioned again.
        until: Timestamp,
    },
    /// Behind the first [`MAX_CANDIDATES`].
    TooManyCandidates,
    /// Fewer different values of a label are left than `minValues` asks for.
    TooFewValues {
        /// The label.
        key: String,
        /// Asked for.
        least: u32,
        /// Left.
        left: u32,
    },
}

impl Exclusion {
    /// When it ends by itself, if that is known.
    #[must_use]
    pub fn until(&self) -> Option<Timestamp> {
        match self {
            Self::NoCapacity { until } | Self::Refused { until, .. } | Self::InVain { until } => Some(*until),
            Self::ReservationNotStarted { start, .. } => *start,
            Self::GroupPolicyConflict
            | Self::UnknownType
            | Self::DoesNotFit
            | Self::Misfit { .. }
            | Self::TopologyRequests
            | Self::NoTypes
            | Self::TooManyNodes { .. }
            | Self::Limit { .. }
            | Self::CostCeiling { .. }
            | Self::NotSold
            | Self::NoReservation
            | Self::ReservationTooSmall { .. }
            | Self::ReservationEnds { .. }
            | Self::ReservationGroup { .. }
            | Self::NoGroupForType
            | Self::NotOffered
            | Self::VolumeElsewhere
            | Self::MembersElsewhere
            | Self::NoSubnet
            | Self::NoIpv6Cidr { .. }
            | Self::TooFewAddresses { .. }
            | Self::PriceUnknown
            | Self::TooManyCandidates
            | Self::TooFewValues { .. } => None,
        }
    }
}

impl fmt::Display for Exclusion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::GroupPolicyConflict => f.write_str("pool and gang disagree about the placement group"),
            Self::UnknownType => f.write_str("type is not known in this Region"),
            Self::DoesNotFit => f.write_str("too small for one member"),
            Self::Misfit { misfit: misfit @ Misfit::Insufficient { .. } } => {
                write!(f, "too small for one member: {misfit}")
            }
            Self::Misfit { misfit } => write!(f, "holds no member: {misfit}"),
            Self::TopologyRequests => f.write_str(
                "no number of its nodes holds the members as slices, exclusive hosts or one host for all ask",
            ),
            Self::NoTypes => f.write_str("allows no known instance type"),
            Self::TooManyNodes { needed, most } => write!(f, "{needed} nodes needed, a batch has at most {most}"),
            Self::Limit { resource, needed, left, limit: _ } => {
                let (needed, left) = (at_least(resource.as_str(), *needed), at_most(resource.as_str(), *left));
                write!(f, "limit on {resource}: {needed} needed, {left} left")
            }
            Self::CostCeiling { scope, needed, left, ceiling } => {
                write!(f, "{scope} is {}: {}/h needed, {}/h left", usd(*ceiling), usd(*needed), usd(*left))
            }
            Self::NotSold => f.write_str("type is not sold on this capacity type"),
            Self::NoReservation => f.write_str("no reservation of the type in the zone"),
            Self::ReservationTooSmall { id, needed, free } => {
                write!(f, "reservation {id}: {needed} hosts needed, {free} free")
            }
            Self::ReservationNotStarted { id, start: Some(start) } => {
                write!(f, "reservation {id} begins {}", moment(*start))
            }
            Self::ReservationNotStarted { id, start: None } => write!(f, "reservation {id} has not begun"),
            Self::ReservationEnds { id, end: Some(end) } => {
                write!(f, "reservation {id} ends {}", moment(*end))
            }
            Self::ReservationEnds { id, end: None } => write!(f, "reservation {id} has ended"),
            Self::ReservationGroup { id, in_group: true } => {
                write!(f, "reservation {id} was made in a placement group, which gang or pool forbids")
            }
            Self::ReservationGroup { id, in_group: false } => {
                write!(f, "reservation {id} was made outside a placement group, which gang or pool requires")
            }
            Self::NoGroupForType => f.write_str("type does not go into a cluster placement group"),
            Self::NotOffered => f.write_str("type is not offered in the zone"),
            Self::VolumeElsewhere => f.write_str("a volume of the gang is in another zone"),
            Self::MembersElsewhere => f.write_str("running members of the gang are in another zone"),
            Self::NoSubnet => f.write_str("no subnet in the zone"),
            Self::NoIpv6Cidr { subnets } => {
                let has = if subnets.len() == 1 { "has" } else { "have" };
                write!(f, "the cluster is IPv6, and {} {has} no IPv6 CIDR", subnets.join(", "))
            }
            Self::TooFewAddresses { needed, free } => write!(f, "{needed} addresses needed, {free} free"),
            Self::PriceUnknown => f.write_str("no price is known"),
            Self::NoCapacity { until } => {
                write!(f, "no capacity for this size until {}", moment(*until))
            }
            Self::Refused { refusal, until } => {
                write!(f, "{refusal}; tried again after {}", moment(*until))
            }
            Self::InVain { until } => {
                let until = moment(*until);
                write!(f, "nodes of the type refused such members in the last rounds; provisioned again after {until}")
            }
            Self::TooManyCandidates => write!(f, "behind the first {MAX_CANDIDATES} candidates"),
            Self::TooFewValues { key, least, left } => {
                write!(f, "minValues of {key} asks for {least} values, and {left} are left")
            }
        }
    }
}
