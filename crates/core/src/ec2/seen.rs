//! What describing calls report.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::Tags;
use crate::model::names::InstanceId;

/// An instance.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Instance {
    /// Id.
    pub id: InstanceId,
    /// State.
    pub state: InstanceState,
    /// Why it is in that state, where EC2 says so.
    pub state_reason: Option<StateReason>,
    /// Type.
    pub instance_type: String,
    /// Zone by name.
    pub zone: String,
    /// Private DNS name; empty names are `None`.
    pub private_dns_name: Option<String>,
    /// Launch time.
    pub launch_time: Option<Timestamp>,
    /// Tags.
    pub tags: Tags,
    /// Name of the placement group.
    pub placement_group: Option<String>,
    /// Id of the placement group, `pg-…`.
    pub placement_group_id: Option<String>,
    /// AMI id.
    pub image_id: String,
    /// Subnet.
    pub subnet_id: Option<String>,
    /// When it began to shut down, where EC2 says so: nothing is billed from then on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended: Option<Timestamp>,
}

/// The time in the reason of an instance's last transition: `User initiated (2026-11-22 10:00:00 GMT)`. `None` where it has none.
///
/// Source: `StateTransitionReason` of DescribeInstances, whole seconds of UTC at the end of the text.
#[must_use]
pub fn transition_time(reason: &str) -> Option<Timestamp> {
    let (_, time) = reason.strip_suffix(" GMT)")?.rsplit_once('(')?;
    let time: jiff::civil::DateTime = time.trim().parse().ok()?;
    time.to_zoned(jiff::tz::TimeZone::UTC).ok().map(|time| time.timestamp())
}

/// State of an instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum InstanceState {
    /// Being started.
    Pending,
    /// Running.
    Running,
    /// Being terminated: still occupies its host and its placement group.
    ShuttingDown,
    /// Gone.
    Terminated,
    /// Being stopped.
    #[serde(rename = "stopping")]
    Stopping,
    /// Stopped.
    #[serde(rename = "stopped")]
    Stopped,
    /// A state this code does not know.
    Unknown,
}

impl InstanceState {
    /// Reads EC2's spelling.
    #[must_use]
    pub fn parse(text: &str) -> Self {
        match text {
            "pending" => Self::Pending,
            "running" => Self::Running,
            "shutting-down" => Self::ShuttingDown,
            "terminated" => Self::Terminated,
            "stopping" => Self::Stopping,
            "stopped" => Self::Stopped,
            _ => Self::Unknown,
        }
    }

    /// Whether it is or will be serving.
    #[must_use]
    pub fn live(self) -> bool {
        match self {
            Self::Pending | Self::Running => true,
            Self::ShuttingDown | Self::Terminated | Self::Stopping | Self::Stopped | Self::Unknown => false,
        }
    }
}

/// Why an instance is in its state, `Server.InsufficientInstanceCapacity`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StateReason {
    /// Code.
    pub code: String,
    /// Text.
    pub message: String,
}

/// A placement group.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PlacementGroup {
    /// Name: what launches and deletions use.
    pub name: String,
    /// Id, `pg-…`.
    pub id: String,
    /// State.
    pub state: GroupState,
    /// `cluster`, `spread`, `partition`.
    pub strategy: String,
    /// Tags.
    pub tags: Tags,
}

/// State of a placement group. Only an available one is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum GroupState {
    /// Being made.
    Pending,
    /// Usable.
    Available,
    /// Being deleted.
    Deleting,
    /// Gone.
    Deleted,
    /// A state this code does not know.
    Unknown,
}

impl GroupState {
    /// Reads EC2's spelling.
    #[must_use]
    pub fn parse(text: &str) -> Self {
        match text {
            "pending" => Self::Pending,
            "available" => Self::Available,
            "deleting" => Self::Deleting,
            "deleted" => Self::Deleted,
            _ => Self::Unknown,
        }
    }
}

/// A launch template.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LaunchTemplate {
    /// Id, `lt-…`.
    pub id: String,
    /// Name.
    pub name: String,
    /// Newest version: the one to launch from, since Muster's templates are never changed.
    pub latest_version: u64,
    /// Tags.
    pub tags: Tags,
}

/// A type offered in a zone.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Offering {
    /// Type.
    pub instance_type: String,
    /// Zone by name.
    pub zone: String,
}

/// A subnet.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Subnet {
    /// Id.
    pub id: String,
    /// Zone by name.
    pub zone: String,
    /// Zone by id, `use1-az6`.
    pub zone_id: String,
    /// Free addresses.
    pub free_addresses: u32,
    /// VPC.
    pub vpc_id: String,
    /// Whether it has an IPv6 CIDR.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub ipv6: bool,
    /// Tags.
    pub tags: Tags,
}

/// A security group.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SecurityGroup {
    /// Id.
    pub id: String,
    /// Name.
    pub name: String,
    /// VPC.
    pub vpc_id: String,
    /// Whether all traffic from and to the group itself is allowed, as EFA needs it.
    pub allows_itself: bool,
    /// Tags.
    pub tags: Tags,
}

/// A machine image.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Image {
    /// Id, `ami-…`.
    pub id: String,
    /// Name.
    pub name: String,
    /// `x86_64` or `arm64`.
    pub architecture: String,
    /// Creation date, RFC 3339 as EC2 writes it: newest is largest.
    pub created: String,
}

/// A capacity reservation, on demand or a Capacity Block.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Reservation {
    /// Id, `cr-…`.
    pub id: String,
    /// Type.
    pub instance_type: String,
    /// Zone by name.
    pub zone: String,
    /// State.
    pub state: ReservationState,
    /// Whether it is a Capacity Block.
    pub block: bool,
    /// Whether only launches that name it use it; else it is open.
    pub targeted: bool,
    /// Name of the cluster placement group it was made in, or its id if another account shares it. A launch must name the group then, and must name none
    /// otherwise: EC2 answers as if there were no capacity, although the reservation has capacity.
    pub placement_group: Option<String>,
    /// Hosts.
    pub total: u32,
    /// Free hosts.
    pub free: u32,
    /// When it begins, for what begins later.
    pub start: Option<Timestamp>,
    /// When it ends, if it does.
    pub end: Option<Timestamp>,
    /// Account that owns it.
    pub owner: String,
    /// Tags.
    pub tags: Tags,
}

/// State of a reservation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ReservationState {
    /// Usable.
    Active,
    /// Paid for or being made; begins later.
    Scheduled,
    /// Ended, cancelled or failed.
    Ended,
    /// A state this code does not know.
    Unknown,
}

impl ReservationState {
    /// Reads EC2's spelling.
    #[must_use]
    pub fn parse(text: &str) -> Self {
        match text {
            "active" => Self::Active,
            "scheduled" | "pending" | "payment-pending" | "assessing" | "delayed" => Self::Scheduled,
            "expired" | "cancelled" | "failed" | "payment-failed" | "unsupported" => Self::Ended,
            _ => Self::Unknown,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_of_a_transition_is_read_where_there_is_one() {
        let at = |text: &str| transition_time(text).map(|time| time.to_string());
        let read = at("User initiated (2026-11-22 10:00:07 GMT)");
        assert_eq!(read.as_deref(), Some("2026-11-22T10:00:07Z"));
        for text in
            ["", "User initiated", "Server.InternalError", "User initiated (yesterday GMT)", "(2026-11-22 10:00:07)"]
        {
            assert_eq!(at(text), None, "{text}");
        }
    }
}
