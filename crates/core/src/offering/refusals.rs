//! Memory of refusals that say nothing about capacity: quotas, types a zone does not sell, full subnets.

use std::collections::BTreeMap;
use std::fmt;

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

use crate::ec2::error::ErrorClass;
use crate::ec2::seen::Offering;
use crate::model::launch::CapacityType;

/// How long a quota blocks: raising one takes a person, and asking costs calls.
pub const QUOTA_SECONDS: i64 = 15 * 60;
/// How long a type that a zone does not sell is left alone.
const NOT_OFFERED_SECONDS: i64 = 24 * 3600;
/// How long a full subnet is left alone; the next reading of its free addresses comes sooner.
const SUBNET_SECONDS: i64 = 5 * 60;
/// How long a reservation is left alone that EC2 does not launch into any more; the next reading leaves it out.
const RESERVATION_SECONDS: i64 = 15 * 60;
/// What EC2 shows of free hosts follows its answers within minutes.
const FULL_SECONDS: i64 = 3 * 60;
/// How long no placement group, or no fleet, is asked for after the Region had too many.
const REGION_LIMIT_SECONDS: i64 = 15 * 60;

/// A quota of the account in the Region. No zone has one of its own.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Quota {
    /// vCPUs of a capacity type, for a class of families that EC2 counts together.
    Instances {
        /// MarketType.
        capacity_type: CapacityType,
        /// `P`, `G and VT`, `Standard`, …
        class: String,
    },
    /// Something that every launch needs, by EC2's code.
    Other {
        /// Code.
        code: String,
    },
}

impl Quota {
    /// The quota a launch of this type on this capacity type counts towards.
    ///
    /// Source: the names of EC2's vCPU quotas, "Running On-Demand P instances", "All G and VT Spot Instance Requests".
    /// Spot counts some generations of P apart; taking them as one only waits longer.
    #[must_use]
    pub fn of(instance_type: &str, capacity_type: CapacityType) -> Self {
        let family = instance_type.split('.').next().unwrap_or_default();
        let letters: String = family.chars().take_while(char::is_ascii_alphabetic).collect();
        let class = match letters.as_str() {
            "g" | "gr" | "vt" => "G and VT",
            "p" => "P",
            "trn" => "Trn",
            "inf" => "Inf",
            "dl" => "DL",
            "hpc" => "HPC",
            "f" => "F",
            "u" => "High Memory",
            "x" => "X",
            _ => "Standard",
        };
        Self::Instances { capacity_type, class: class.to_owned() }
    }
}

impl fmt::Display for Quota {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Instances { capacity_type, class } => write!(f, "{capacity_type} vCPUs of class {class}"),
            Self::Other { code } => f.write_str(code),
        }
    }
}

/// What was asked for when EC2 refused.
#[derive(Clone, Copy, Debug)]
pub struct Asked<'a> {
    /// Type.
    pub instance_type: &'a str,
    /// Zone.
    pub zone: &'a str,
    /// MarketType.
    pub capacity_type: CapacityType,
    /// Subnet.
    pub subnet: &'a str,
    /// Nodes.
    pub count: u32,
}

/// Why something is not asked for again yet.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Refusal {
    /// A quota is used up.
    Quota(Quota),
    /// EC2 does not sell the type in the zone.
    NotSoldInZone,
    /// The account may not use spot: its service-linked role is missing.
    SpotForbidden,
    /// The Region has too many placement groups.
    TooManyGroups,
    /// The reservation is gone, or has ended.
    ReservationGone {
        /// The reservation.
        id: String,
    },
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Quota(quota) => write!(f, "the quota {quota} is used up; no zone helps, ask AWS to raise it"),
            Self::NotSoldInZone => f.write_str("EC2 says that the zone does not sell the type"),
            Self::SpotForbidden => {
                f.write_str("the account has no service-linked role for spot; create AWSServiceRoleForEC2Spot")
            }
            Self::TooManyGroups => f.write_str("the Region has too many placement groups"),
            Self::ReservationGone { id } => {
                write!(f, "EC2 refuses launches into reservation {id}: it is gone or has ended")
            }
        }
    }
}

/// Refusals with the time until which they are trusted. Time is an argument of every method.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Refusals {
    quotas: BTreeMap<Quota, Timestamp>,
    unsold: BTreeMap<Offering, Timestamp>,
    /// By subnet, with the smallest launch that found too few addresses.
    subnets: BTreeMap<String, (u32, Timestamp)>,
    reservations: BTreeMap<String, Timestamp>,
    /// Reservations that had no free host a moment ago, whatever EC2 shows of them.
    full: BTreeMap<String, Timestamp>,
    spot: Option<Timestamp>,
    groups: Option<Timestamp>,
    fleets: Option<Timestamp>,
}

impl Refusals {
    /// Remembers a refusal; classes that leave nothing to remember are ignored. The caller leaves quota refusals out
    /// while instances of ours are shutting down, since those still count.
    pub fn record(&mut self, class: ErrorClass, code: Option<&str>, asked: &Asked<'_>, now: Timestamp) {
        match class {
            ErrorClass::Quota | ErrorClass::SpotQuota => {
                let quota = match code {
                    Some(code) if !COUNTS_INSTANCES.contains(&code) => Quota::Other { code: code.to_owned() },
                    Some(_) | None => Quota::of(asked.instance_type, asked.capacity_type),
                };
                self.quotas.insert(quota, after(now, QUOTA_SECONDS));
            }
            ErrorClass::NotOffered => {
                let offering = Offering { instance_type: asked.instance_type.to_owned(), zone: asked.zone.to_owned() };
                self.unsold.insert(offering, after(now, NOT_OFFERED_SECONDS));
            }
            ErrorClass::SubnetFull => {
                let smaller = self.subnets.get(asked.subnet).filter(|(_, until)| now < *until).map(|(count, _)| *count);
                let count = smaller.map_or(asked.count, |smaller| smaller.min(asked.count));
                self.subnets.insert(asked.subnet.to_owned(), (count, after(now, SUBNET_SECONDS)));
            }
            ErrorClass::SpotForbidden => self.spot = Some(after(now, QUOTA_SECONDS)),
            ErrorClass::GroupLimit => self.groups = Some(after(now, REGION_LIMIT_SECONDS)),
            ErrorClass::FleetLimit => self.fleets = Some(after(now, REGION_LIMIT_SECONDS)),
            ErrorClass::Capacity
            | ErrorClass::ReservationFull
            | ErrorClass::ReservationNotStarted
            | ErrorClass::Throttle
            | ErrorClass::Server
            | ErrorClass::Configuration
            | ErrorClass::Permission
            | ErrorClass::NotVisibleYet
            | ErrorClass::AlreadyExists
            | ErrorClass::InUse
            | ErrorClass::TokenMismatch
            | ErrorClass::TokenSpent
            | ErrorClass::DryRunPassed
            | ErrorClass::NotSent
            | ErrorClass::Unknown => {}
        }
    }

    /// What is known against a candidate, and until when. `own_group`: a placement group would have to be made for it.
    #[must_use]
    pub fn against(
        &self,
        instance_type: &str,
        zone: &str,
        capacity_type: CapacityType,
        own_group: bool,
        now: Timestamp,
    ) -> Option<(Refusal, Timestamp)> {
        let live = |until: &&Timestamp| now < **until;
        let quota = Quota::of(instance_type, capacity_type);
        let of_launches = self
            .quotas
            .iter()
            .find(|(known, until)| now < **until && (**known == quota || matches!(known, Quota::Other { .. })));
        if let Some((quota, until)) = of_launches {
            return Some((Refusal::Quota(quota.clone()), *until));
        }
        let offering = Offering { instance_type: instance_type.to_owned(), zone: zone.to_owned() };
        if let Some(until) = self.unsold.get(&offering).filter(live) {
            return Some((Refusal::NotSoldInZone, *until));
        }
        if let (CapacityType::Spot, Some(until)) = (capacity_type, self.spot.as_ref().filter(live)) {
            return Some((Refusal::SpotForbidden, *until));
        }
        if let (true, Some(until)) = (own_group, self.groups.as_ref().filter(live)) {
            return Some((Refusal::TooManyGroups, *until));
        }
        None
    }

    /// Remembers that EC2 does not launch into a reservation any more.
    pub fn refuse_reservation(&mut self, id: &str, now: Timestamp) {
        self.reservations.insert(id.to_owned(), after(now, RESERVATION_SECONDS));
    }

    /// Remembers that a reservation had no free host.
    pub fn fill_reservation(&mut self, id: &str, now: Timestamp) {
        self.full.retain(|_, until| now < *until);
        self.full.insert(id.to_owned(), after(now, FULL_SECONDS));
    }

    /// Whether a reservation had no free host a moment ago. Whoever can wait asks: pods of no gang have other nodes.
    #[must_use]
    pub fn was_full(&self, id: &str, now: Timestamp) -> bool {
        self.full.get(id).is_some_and(|until| now < *until)
    }

    /// What is known against a reservation, and until when.
    #[must_use]
    pub fn against_reservation(&self, id: &str, now: Timestamp) -> Option<(Refusal, Timestamp)> {
        let until = self.reservations.get(id).filter(|until| now < **until)?;
        Some((Refusal::ReservationGone { id: id.to_owned() }, *until))
    }

    /// Whether EC2 reported that the subnet has too few addresses for a launch of this size.
    #[must_use]
    pub fn subnet_full(&self, subnet: &str, count: u32, now: Timestamp) -> bool {
        self.subnets.get(subnet).is_some_and(|(fails_at, until)| now < *until && count >= *fails_at)
    }

    /// Whether the Region had too many fleets lately: RunInstances launches as atomically in one zone.
    #[must_use]
    pub fn without_fleets(&self, now: Timestamp) -> bool {
        self.fleets.is_some_and(|until| now < until)
    }
}

/// Codes of quotas that count instances or their vCPUs; other quota codes stand for themselves.
const COUNTS_INSTANCES: [&str; 3] = ["VcpuLimitExceeded", "InstanceLimitExceeded", "MaxSpotInstanceCountExceeded"];

fn after(start: Timestamp, seconds: i64) -> Timestamp {
    start.checked_add(SignedDuration::from_secs(seconds)).unwrap_or(Timestamp::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const P5: &str = "p5.48xlarge";
    const ASKED: Asked<'_> = Asked {
        instance_type: P5,
        zone: "us-east-1a",
        capacity_type: CapacityType::OnDemand,
        subnet: "subnet-a",
        count: 8,
    };

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(1_800_000_000 + seconds).unwrap()
    }

    fn known(refusals: &Refusals, name: &str, zone: &str, capacity_type: CapacityType, now: i64) -> Option<Refusal> {
        refusals.against(name, zone, capacity_type, true, at(now)).map(|(refusal, _)| refusal)
    }

    #[test]
    fn a_vcpu_quota_blocks_its_class_on_its_capacity_type_in_every_zone_for_a_quarter_of_an_hour() {
        let mut refusals = Refusals::default();
        refusals.record(ErrorClass::Quota, Some("VcpuLimitExceeded"), &ASKED, at(0));
        let quota = Refusal::Quota(Quota::of(P5, CapacityType::OnDemand));
        for (name, zone) in [(P5, "us-east-1a"), (P5, "us-east-1f"), ("p4d.24xlarge", "us-east-1b")] {
            assert_eq!(known(&refusals, name, zone, CapacityType::OnDemand, 899), Some(quota.clone()), "{name} {zone}");
            assert_eq!(known(&refusals, name, zone, CapacityType::OnDemand, 900), None);
        }
        assert_eq!(known(&refusals, "g5.48xlarge", "us-east-1a", CapacityType::OnDemand, 1), None);
        assert_eq!(known(&refusals, P5, "us-east-1a", CapacityType::Spot, 1), None);
        assert_eq!(known(&refusals, P5, "us-east-1a", CapacityType::Reserved, 1), None);
    }

    #[test]
    fn a_quota_of_interfaces_or_volumes_blocks_everything() {
        for code in ["NetworkInterfaceLimitExceeded", "VolumeLimitExceeded"] {
            let mut refusals = Refusals::default();
            refusals.record(ErrorClass::Quota, Some(code), &ASKED, at(0));
            let refusal = known(&refusals, "m5.large", "us-east-1c", CapacityType::Spot, 1).unwrap();
            assert!(refusal.to_string().contains(code), "{refusal}");
        }
    }

    #[test]
    fn the_spot_quota_and_the_missing_spot_role_block_spot_alone() {
        for (class, code) in [
            (ErrorClass::SpotQuota, "MaxSpotInstanceCountExceeded"),
            (ErrorClass::SpotForbidden, "AuthFailure.ServiceLinkedRoleCreationNotPermitted"),
        ] {
            let mut refusals = Refusals::default();
            let asked = Asked { capacity_type: CapacityType::Spot, ..ASKED };
            refusals.record(class, Some(code), &asked, at(0));
            assert!(known(&refusals, P5, "us-east-1b", CapacityType::Spot, 1).is_some(), "{code}");
            assert_eq!(known(&refusals, P5, "us-east-1a", CapacityType::OnDemand, 1), None);
        }
    }

    #[test]
    fn a_type_that_a_zone_does_not_sell_is_left_alone_there_for_a_day() {
        let mut refusals = Refusals::default();
        refusals.record(ErrorClass::NotOffered, Some("Unsupported"), &ASKED, at(0));
        let sold = |zone, now| known(&refusals, P5, zone, CapacityType::OnDemand, now).is_none();
        assert!(!sold("us-east-1a", 86_399) && sold("us-east-1a", 86_400) && sold("us-east-1b", 1));
    }

    #[test]
    fn a_full_subnet_is_full_for_that_many_and_more() {
        let mut refusals = Refusals::default();
        refusals.record(ErrorClass::SubnetFull, Some("InsufficientFreeAddressesInSubnet"), &ASKED, at(0));
        assert!(refusals.subnet_full("subnet-a", 8, at(299)) && refusals.subnet_full("subnet-a", 9, at(1)));
        assert!(!refusals.subnet_full("subnet-a", 7, at(1)) && !refusals.subnet_full("subnet-a", 8, at(300)));
        assert!(!refusals.subnet_full("subnet-b", 8, at(1)));
        assert_eq!(known(&refusals, P5, "us-east-1a", CapacityType::OnDemand, 1), None, "the pool is not blamed");
    }

    #[test]
    fn a_reservation_that_is_gone_is_left_alone_and_no_other_and_no_type() {
        let mut refusals = Refusals::default();
        refusals.refuse_reservation("cr-1", at(0));
        let known = |id: &str, now| refusals.against_reservation(id, at(now)).map(|(refusal, _)| refusal.to_string());
        assert!(known("cr-1", 899).unwrap().contains("cr-1"));
        assert_eq!((known("cr-1", 900), known("cr-2", 1)), (None, None));
        assert_eq!(refusals.against(P5, "us-east-1a", CapacityType::Reserved, false, at(1)), None);
    }

    #[test]
    fn too_many_groups_leave_launches_without_one_and_too_many_fleets_another_call() {
        let mut refusals = Refusals::default();
        refusals.record(ErrorClass::GroupLimit, Some("PlacementGroupLimitExceeded"), &ASKED, at(0));
        refusals.record(ErrorClass::FleetLimit, Some("MaxFleetCountExceeded"), &ASKED, at(0));
        let against = |own_group| refusals.against(P5, "us-east-1a", CapacityType::OnDemand, own_group, at(1));
        assert!(matches!(against(true), Some((Refusal::TooManyGroups, _))));
        assert_eq!(against(false), None);
        assert!(refusals.without_fleets(at(1)) && !refusals.without_fleets(at(900)));
    }

    #[test]
    fn capacity_throttles_and_configuration_leave_nothing_here() {
        let mut refusals = Refusals::default();
        for class in [
            ErrorClass::Capacity,
            ErrorClass::ReservationFull,
            ErrorClass::Throttle,
            ErrorClass::Server,
            ErrorClass::Configuration,
            ErrorClass::Permission,
            ErrorClass::Unknown,
        ] {
            refusals.record(class, None, &ASKED, at(0));
        }
        assert_eq!(refusals, Refusals::default());
    }

    #[test]
    fn families_are_counted_as_ec2_counts_them() {
        for (name, class) in [
            ("p4de.24xlarge", "P"),
            ("p6-b300.48xlarge", "P"),
            ("g6e.12xlarge", "G and VT"),
            ("trn2u.48xlarge", "Trn"),
            ("hpc7a.96xlarge", "HPC"),
            ("m5.large", "Standard"),
            ("u7i-12tb.224xlarge", "High Memory"),
        ] {
            let quota = Quota::of(name, CapacityType::Spot).to_string();
            assert_eq!(quota, format!("spot vCPUs of class {class}"), "{name}");
        }
    }

    #[test]
    fn a_reservation_that_was_full_is_left_alone_for_three_minutes_and_no_other() {
        let at = |seconds: i64| Timestamp::from_second(1_800_000_000 + seconds).unwrap();
        let mut refusals = Refusals::default();
        refusals.fill_reservation("cr-1", at(0));
        assert!(refusals.was_full("cr-1", at(179)) && !refusals.was_full("cr-2", at(0)));
        assert!(!refusals.was_full("cr-1", at(180)));
        assert_eq!(refusals.against_reservation("cr-1", at(0)), None, "gangs ask EC2 again");
    }
}
