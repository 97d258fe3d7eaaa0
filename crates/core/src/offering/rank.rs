//! Which offer is tried first, and why the others are not tried at all.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::exclusion::{Exclusion, MAX_CANDIDATES};
use super::ledger::CeilingLeft;
use super::limits::counted;
use super::price::PriceBook;
use super::refusals::Refusals;
use super::unavailable::UnavailableMemory;
use crate::ec2::machine::{InstanceTypeInfo, UsageClass};
use crate::ec2::seen::{Offering, Reservation, ReservationState, Subnet};
use crate::model::launch::Pool;
use crate::model::launch::{CapacityType, Target};
use crate::model::names::ResourceName;
use crate::model::resources::Resources;

/// One way to provision the nodes of a gang.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Candidate {
    /// Type.
    pub instance_type: String,
    /// Zone by name.
    pub zone: String,
    /// Zone by id.
    pub zone_id: String,
    /// Subnet: the one of the zone with most free addresses.
    pub subnet_id: String,
    /// MarketType.
    pub capacity_type: CapacityType,
    /// In a placement group: one of its own, or the one its reservation was made in.
    pub placement_group: bool,
    /// The reservation it goes into.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reservation: Option<Target>,
    /// Name of the group the reservation was made in, or its id if another account shares it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reservation_group: Option<String>,
    /// Price of one node in micro-dollars per hour.
    pub price_micro_usd_per_hour: Option<u64>,
}

impl Candidate {
    /// The pool it draws on.
    #[must_use]
    pub fn pool(&self) -> Pool {
        Pool {
            instance_type: self.instance_type.clone(),
            zone: self.zone.clone(),
            capacity_type: self.capacity_type,
            group: self.placement_group,
        }
    }
}

/// A step of the fallback ladder, by capacity type and group. The order of trying is the pool's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Rung {
    /// MarketType.
    pub capacity_type: CapacityType,
    /// With a placement group.
    pub placement_group: bool,
}

impl fmt::Display for Rung {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let group = if self.placement_group { "in a placement group" } else { "without a placement group" };
        write!(f, "{} {group}", self.capacity_type)
    }
}

impl Candidate {
    /// Its step of the ladder.
    #[must_use]
    pub fn rung(&self) -> Rung {
        Rung { capacity_type: self.capacity_type, placement_group: self.placement_group }
    }
}

/// `placement.placementGroup` of a NodePool, and the gang's annotation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum GroupPolicy {
    /// Only in a group.
    Required,
    /// In a group first, then without.
    #[default]
    Preferred,
    /// Without a group.
    None,
}

impl GroupPolicy {
    /// What a gang's annotation says; [`Self::Preferred`] without one.
    #[must_use]
    pub fn of_gang(annotation: Option<&str>) -> Self {
        match annotation {
            Some("required") => Self::Required,
            Some("none") => Self::None,
            Some(_) | None => Self::Preferred,
        }
    }

    /// The pool's policy against the gang's: `Preferred` yields to the other side, `Required` against `None` rules the
    /// pool out for that gang.
    #[must_use]
    pub fn with(self, gang: Self) -> Option<Self> {
        match (self, gang) {
            (Self::Preferred, other) | (other, Self::Preferred) => Some(other),
            (Self::Required, Self::Required) => Some(Self::Required),
            (Self::None, Self::None) => Some(Self::None),
            (Self::Required, Self::None) | (Self::None, Self::Required) => None,
        }
    }

    /// Group kept before group dropped.
    fn choices(self) -> &'static [bool] {
        match self {
            Self::Required => &[true],
            Self::Preferred => &[true, false],
            Self::None => &[false],
        }
    }
}

/// A NodePool as far as purchase goes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PoolOffer {
    /// Name.
    pub name: String,
    /// Weight; higher is tried first.
    pub weight: u32,
    /// Types its requirements and the gang's allow.
    pub instance_types: BTreeSet<String>,
    /// Zones its requirements and the gang's allow.
    pub zones: BTreeSet<String>,
    /// Allowed capacity types in the order of `capacityTypeOrder`.
    pub capacity_types: Vec<CapacityType>,
    /// Its group policy.
    pub group: GroupPolicy,
    /// What is left under its limits: running, in flight and assigned nodes are already subtracted. A resource that is
    /// not named has no limit; `nodes` counts nodes, the rest in the units of [`crate::model::resources::Resources`].
    pub left: BTreeMap<ResourceName, i64>,
    /// The limits, in the same units.
    #[serde(default)]
    pub limits: BTreeMap<ResourceName, i64>,
    /// What is left under the ceilings on dollars per hour that hold for it: its own, and that of the cluster.
    #[serde(default)]
    pub ceilings: Vec<CeilingLeft>,
    /// `placement.maxNodesPerBatch`.
    pub max_nodes_per_batch: u32,
    /// Subnets of its node class.
    pub subnets: Vec<Subnet>,
    /// Whether its nodes need an IPv6 address, and so a subnet that has one.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub ipv6: bool,
    /// Reservations of its node class; hosts assigned to other batches are already taken off the free ones.
    #[serde(default)]
    pub reservations: Vec<Reservation>,
    /// Its `minValues`.
    #[serde(default)]
    pub min_values: Vec<MinValues>,
}

/// `minValues` of one label: so many different values have to be left among the types that a batch may be launched as.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MinValues {
    /// The label.
    pub key: String,
    /// How many.
    pub least: u32,
    /// Its value on nodes of each type.
    pub values: BTreeMap<String, String>,
}

impl MinValues {
    /// Why these types are too few, if they are.
    fn lacks<'a>(&self, instance_types: impl Iterator<Item = &'a str>) -> Option<Exclusion> {
        let values: BTreeSet<&String> = instance_types.filter_map(|name| self.values.get(name)).collect();
        let left = u32::try_from(values.len()).unwrap_or(u32::MAX);
        (left < self.least).then(|| Exclusion::TooFewValues { key: self.key.clone(), least: self.least, left })
    }
}

/// One type of one pool: the node it becomes is as pool and class say.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PoolType {
    /// NodePool.
    pub pool: String,
    /// Instance type.
    pub instance_type: String,
}

/// What the gang needs of one type of one pool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Need {
    /// Nodes, from 1.
    pub nodes: u32,
    /// Addresses each node takes at launch.
    pub addresses_per_node: u32,
    /// What the hardware of each node has.
    pub capacity: Resources,
}

/// Everything a ranking may look at.
#[derive(Clone, Copy, Debug)]
pub struct RankInput<'a> {
    /// Pools that are Ready and whose taints the gang tolerates.
    pub pools: &'a [PoolOffer],
    /// Known types by name.
    pub types: &'a BTreeMap<String, InstanceTypeInfo>,
    /// What is needed by pool and type; one on which no member fits is absent.
    pub needs: &'a BTreeMap<PoolType, Need>,
    /// The gang's own group policy; `Preferred` if it says nothing.
    pub group: GroupPolicy,
    /// Zones the gang's volumes allow; `None` for any.
    pub volume_zones: Option<&'a BTreeSet<String>>,
    /// Types offered, by zone.
    pub offerings: &'a BTreeSet<Offering>,
    /// Prices.
    pub prices: &'a PriceBook,
    /// Missing capacity.
    pub unavailable: &'a UnavailableMemory,
    /// Quotas and other refusals.
    pub refusals: &'a Refusals,
    /// Now.
    pub now: Timestamp,
}

/// The offers in order of trying, and what was excluded.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[must_use = "what was excluded is the reason a gang waits"]
pub struct Ranking {
    /// At most [`MAX_CANDIDATES`], first is tried first.
    pub candidates: Vec<Ranked>,
    /// Everything else, in order of pool, type, zone, capacity type, group.
    #[serde(rename = "leftOut")]
    pub excluded: Vec<Excluded>,
}

/// A candidate and where it comes from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Ranked {
    /// NodePool.
    pub pool: String,
    /// Nodes.
    pub count: u32,
    /// The offer.
    pub candidate: Candidate,
    /// Micro-dollars per hour of all nodes; saturates.
    pub total_micro_usd_per_hour: u64,
    /// Largest launch not known to fail; `None` if nothing is known against the pool.
    pub headroom: Option<u32>,
}

impl Ranked {
    /// Why it stands where it stands, for a person.
    #[must_use]
    pub fn why(&self) -> String {
        let mut why = self.candidate.rung().to_string();
        if let Some(Target { id, block }) = &self.candidate.reservation {
            why = format!("{why}: {} {id}, paid for anyway", if *block { "Capacity Block" } else { "reservation" });
        }
        if let Some(headroom) = self.headroom {
            why = format!("{why}; larger launches than {headroom} failed here lately");
        }
        why
    }
}

/// Something that is not a candidate.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Excluded {
    /// NodePool.
    pub pool: String,
    /// Type; `None`: all of the pool's.
    pub instance_type: Option<String>,
    /// Zone; `None`: all.
    pub zone: Option<String>,
    /// MarketType; `None`: all.
    pub capacity_type: Option<CapacityType>,
    /// With or without a group; `None`: both.
    pub placement_group: Option<bool>,
    /// Why.
    pub reason: Exclusion,
}

impl Excluded {
    /// All of a pool, since it and the gang disagree about the group.
    fn whole(pool: &PoolOffer) -> Self {
        Self {
            pool: pool.name.clone(),
            instance_type: None,
            zone: None,
            capacity_type: None,
            placement_group: None,
            reason: Exclusion::GroupPolicyConflict,
        }
    }
}

/// Orders all ways to provision one gang's nodes: pool weight, the pool's order of capacity types, group kept before dropped, zone
/// with most headroom by unavailable offerings, dollars per hour of the whole gang, then type, zone and pool name.
///
/// Every combination that is not a candidate is in `excluded` with its first reason, reported as coarsely as it holds.
/// Within the capacity type `reserved`, reservations made in a group come first, then the smallest that holds the gang.
/// Source: sections 3.1 and 3.2 of the lifecycle design.
pub fn rank_candidates(input: &RankInput<'_>) -> Ranking {
    let mut ranking = Ranking::default();
    let mut keyed = Vec::new();
    for pool in input.pools {
        let (known, excluded) = (keyed.len(), ranking.excluded.len());
        rank_pool(input, pool, &mut keyed, &mut ranking.excluded);
        if keyed.len() > known
            && let Some(reason) = too_few_values(pool, &keyed[known..], &ranking.excluded[excluded..])
        {
            keyed.truncate(known);
            ranking.excluded.push(Excluded { reason, ..Excluded::whole(pool) });
        }
    }
    keyed.sort_by(|(one, _), (other, _)| one.cmp(other));
    ranking.candidates = keyed.into_iter().map(|(_, ranked)| ranked).collect();
    for behind in ranking.candidates.split_off(ranking.candidates.len().min(MAX_CANDIDATES)) {
        ranking.excluded.push(Excluded {
            pool: behind.pool,
            instance_type: Some(behind.candidate.instance_type),
            zone: Some(behind.candidate.zone),
            capacity_type: Some(behind.candidate.capacity_type),
            placement_group: Some(behind.candidate.placement_group),
            reason: Exclusion::TooManyCandidates,
        });
    }
    ranking.excluded.sort();
    ranking
}

/// The first of the pool's `minValues` that what is left of it does not reach. What only lacks capacity for the moment is left: who
/// asks for several values must not wait for all of them at once.
fn too_few_values(pool: &PoolOffer, keyed: &[(Key, Ranked)], excluded: &[Excluded]) -> Option<Exclusion> {
    let types = || {
        let passing = excluded.iter().filter(|one| one.reason.until().is_some());
        let passing = passing.filter_map(|one| one.instance_type.as_deref());
        keyed.iter().map(|(_, ranked)| ranked.candidate.instance_type.as_str()).chain(passing)
    };
    pool.min_values.iter().find_map(|one| one.lacks(types()))
}

/// Order of trying; fields as in [`rank_candidates`]. Headroom is inverted, and unknown comes first, as do prices that
/// are known.
type Key = (Reverse<u32>, usize, bool, (bool, Reverse<u32>), (bool, u64), (String, String), (u32, String), String);

fn rank_pool(input: &RankInput<'_>, pool: &PoolOffer, keyed: &mut Vec<(Key, Ranked)>, excluded: &mut Vec<Excluded>) {
    let whole_pool = Excluded::whole(pool);
    let Some(group_policy) = pool.group.with(input.group) else {
        excluded.push(whole_pool);
        return;
    };
    for type_name in &pool.instance_types {
        let of_type = Excluded { instance_type: Some(type_name.clone()), ..whole_pool.clone() };
        let (info, need) = match usable_type(input, pool, type_name) {
            Ok(usable) => usable,
            Err(reason) => {
                excluded.push(Excluded { reason, ..of_type });
                continue;
            }
        };
        for (order, capacity_type) in pool.capacity_types.iter().enumerate() {
            let of_capacity_type = Excluded { capacity_type: Some(*capacity_type), ..of_type.clone() };
            if let Err(reason) = usable_capacity_type(pool, info, *capacity_type) {
                excluded.push(Excluded { reason, ..of_capacity_type });
                continue;
            }
            for zone in &pool.zones {
                let of_zone = Excluded { zone: Some(zone.clone()), ..of_capacity_type.clone() };
                let place = Place { input, pool, info, need, capacity_type: *capacity_type, zone };
                let usable =
                    place.usable().and_then(|(subnet, price)| place.affordable(price).map(|()| (subnet, price)));
                let (subnet, price) = match usable {
                    Ok(usable) => usable,
                    Err(reason) => {
                        excluded.push(Excluded { reason, ..of_zone });
                        continue;
                    }
                };
                for (candidate, free) in place.candidates(subnet, price, group_policy, &of_zone, excluded) {
                    let headroom = input.unavailable.headroom(&candidate.pool(), input.now);
                    let total = price.unwrap_or(0).saturating_mul(u64::from(need.nodes));
                    let reservation = candidate.reservation.as_ref().map(|target| target.id.clone());
                    let key = (
                        Reverse(pool.weight),
                        order,
                        !candidate.placement_group,
                        (headroom.is_some(), Reverse(headroom.unwrap_or(0))),
                        (price.is_none(), total),
                        (type_name.clone(), zone.clone()),
                        (free, reservation.unwrap_or_default()),
                        pool.name.clone(),
                    );
                    let ranked = Ranked {
                        pool: pool.name.clone(),
                        count: need.nodes,
                        candidate,
                        total_micro_usd_per_hour: total,
                        headroom,
                    };
                    keyed.push((key, ranked));
                }
            }
        }
    }
}

fn usable_type<'a>(
    input: &RankInput<'a>,
    pool: &PoolOffer,
    name: &str,
) -> Result<(&'a InstanceTypeInfo, &'a Need), Exclusion> {
    let info = input.types.get(name).ok_or(Exclusion::UnknownType)?;
    let key = PoolType { pool: pool.name.clone(), instance_type: name.to_owned() };
    let need = input.needs.get(&key).filter(|need| need.nodes > 0).ok_or(Exclusion::DoesNotFit)?;
    if need.nodes > pool.max_nodes_per_batch {
        return Err(Exclusion::TooManyNodes { needed: need.nodes, most: pool.max_nodes_per_batch });
    }
    let each = counted(&need.capacity);
    for (resource, left) in &pool.left {
        let needed = each.get(resource.as_str()).saturating_mul(i64::from(need.nodes));
        if needed > *left && needed > 0 {
            let limit = pool.limits.get(resource).copied().unwrap_or(*left);
            return Err(Exclusion::Limit { resource: resource.clone(), needed, left: *left, limit });
        }
    }
    Ok((info, need))
}

fn usable_capacity_type(
    pool: &PoolOffer,
    info: &InstanceTypeInfo,
    capacity_type: CapacityType,
) -> Result<(), Exclusion> {
    let class = match capacity_type {
        CapacityType::Reserved => {
            let any = pool.reservations.iter().any(|reservation| reservation.instance_type == info.name);
            return if any { Ok(()) } else { Err(Exclusion::NoReservation) };
        }
        CapacityType::Spot => UsageClass::Spot,
        CapacityType::OnDemand => UsageClass::OnDemand,
    };
    if info.usage_classes.contains(&class) { Ok(()) } else { Err(Exclusion::NotSold) }
}

/// Why nothing is launched into a reservation at this time, if so.
#[must_use]
pub fn not_open(reservation: &Reservation, now: Timestamp) -> Option<Exclusion> {
    let id = || reservation.id.clone();
    let Reservation { start, end, block, .. } = *reservation;
    // EC2 begins to take a block back half an hour before its end; it is drained ten minutes earlier.
    let margin = if block { BLOCK_MARGIN_SECONDS } else { 0 };
    let ending = end.is_some_and(|end| end.as_second().saturating_sub(margin) <= now.as_second());
    match reservation.state {
        ReservationState::Ended | ReservationState::Unknown => Some(Exclusion::ReservationEnds { id: id(), end }),
        ReservationState::Scheduled => Some(Exclusion::ReservationNotStarted { id: id(), start }),
        ReservationState::Active if ending => Some(Exclusion::ReservationEnds { id: id(), end }),
        ReservationState::Active => {
            start.is_some_and(|start| start > now).then(|| Exclusion::ReservationNotStarted { id: id(), start })
        }
    }
}

/// One type on one capacity type in one zone.
#[derive(Clone, Copy)]
struct Place<'a> {
    input: &'a RankInput<'a>,
    pool: &'a PoolOffer,
    info: &'a InstanceTypeInfo,
    need: &'a Need,
    capacity_type: CapacityType,
    zone: &'a str,
}

impl<'a> Place<'a> {
    /// Subnet and price, if there is a price.
    fn usable(&self) -> Result<(&'a Subnet, Option<u64>), Exclusion> {
        let Self { input, pool, info, need, capacity_type, zone } = *self;
        let name = info.name.as_str();
        // A reservation exists where it exists; EC2 need not offer the type there to others.
        let offering = Offering { instance_type: name.to_owned(), zone: zone.to_owned() };
        if capacity_type != CapacityType::Reserved && !input.offerings.contains(&offering) {
            return Err(Exclusion::NotOffered);
        }
        if input.volume_zones.is_some_and(|zones| !zones.contains(zone)) {
            return Err(Exclusion::VolumeElsewhere);
        }
        let (in_zone, without): (Vec<_>, Vec<_>) =
            pool.subnets.iter().filter(|subnet| subnet.zone == zone).partition(|subnet| subnet.ipv6 || !pool.ipv6);
        if in_zone.is_empty() && !without.is_empty() {
            return Err(Exclusion::NoIpv6Cidr { subnets: without.iter().map(|subnet| subnet.id.clone()).collect() });
        }
        let roomy = |subnet: &&&Subnet| !input.refusals.subnet_full(&subnet.id, need.nodes, input.now);
        let most = |subnet: &&&Subnet| (subnet.free_addresses, Reverse(subnet.id.clone()));
        let needed = u64::from(need.nodes) * u64::from(need.addresses_per_node);
        let Some(subnet) = in_zone.iter().filter(roomy).max_by_key(most) else {
            // All of them were full a moment ago, whatever their last reading says.
            return Err(match in_zone.iter().max_by_key(most) {
                Some(subnet) => Exclusion::TooFewAddresses { needed, free: subnet.free_addresses },
                None => Exclusion::NoSubnet,
            });
        };
        if needed > u64::from(subnet.free_addresses) {
            return Err(Exclusion::TooFewAddresses { needed, free: subnet.free_addresses });
        }
        let price = input.prices.price(name, zone, capacity_type);
        // What is reserved is paid for anyway; everything else is provisioned only at a known price.
        if price.is_none() && capacity_type != CapacityType::Reserved {
            return Err(Exclusion::PriceUnknown);
        }
        Ok((subnet, price))
    }

    /// Whether all nodes together stay under the ceilings on dollars per hour.
    fn affordable(&self, price: Option<u64>) -> Result<(), Exclusion> {
        let needed = price.unwrap_or(0).saturating_mul(u64::from(self.need.nodes));
        let passed = self.pool.ceilings.iter().find(|ceiling| needed > ceiling.left);
        passed.map_or(Ok(()), |passed| {
            let CeilingLeft { scope, left, ceiling } = *passed;
            Err(Exclusion::CostCeiling { scope, needed, left, ceiling })
        })
    }

    /// The candidates of this place with the free hosts of their reservations, and what is excluded.
    fn candidates(
        &self,
        subnet: &Subnet,
        price: Option<u64>,
        policy: GroupPolicy,
        of_zone: &Excluded,
        excluded: &mut Vec<Excluded>,
    ) -> Vec<(Candidate, u32)> {
        let plain = Candidate {
            instance_type: self.info.name.clone(),
            zone: self.zone.to_owned(),
            zone_id: subnet.zone_id.clone(),
            subnet_id: subnet.id.clone(),
            capacity_type: self.capacity_type,
            placement_group: false,
            reservation: None,
            reservation_group: None,
            price_micro_usd_per_hour: price,
        };
        let mut found = Vec::new();
        let mut judge = |candidate: Candidate, free: u32, reason: Option<Exclusion>| match reason
            .or_else(|| self.blocked(&candidate))
        {
            Some(reason) => {
                let placement_group = Some(candidate.placement_group);
                excluded.push(Excluded { placement_group, reason, ..of_zone.clone() });
            }
            None => found.push((candidate, free)),
        };
        match self.capacity_type {
            CapacityType::OnDemand | CapacityType::Spot => {
                for group in policy.choices() {
                    judge(Candidate { placement_group: *group, ..plain.clone() }, 0, None);
                }
            }
            CapacityType::Reserved => {
                let here = |reservation: &&Reservation| {
                    reservation.instance_type == self.info.name && reservation.zone == self.zone
                };
                for reservation in self.pool.reservations.iter().filter(here) {
                    // A Capacity Block goes into no group.
                    let group = reservation.placement_group.clone().filter(|_| !reservation.block);
                    let candidate = Candidate {
                        placement_group: group.is_some(),
                        reservation: Some(Target { id: reservation.id.clone(), block: reservation.block }),
                        reservation_group: group,
                        ..plain.clone()
                    };
                    let reason = self.unusable(reservation, candidate.placement_group, policy);
                    judge(candidate, reservation.free, reason);
                }
            }
        }
        found
    }

    fn unusable(&self, reservation: &Reservation, in_group: bool, policy: GroupPolicy) -> Option<Exclusion> {
        let id = || reservation.id.clone();
        if !policy.choices().contains(&in_group) {
            return Some(Exclusion::ReservationGroup { id: id(), in_group });
        }
        if let Some(why) = not_open(reservation, self.input.now) {
            return Some(why);
        }
        let free = reservation.free;
        (free < self.need.nodes).then(|| Exclusion::ReservationTooSmall { id: id(), needed: self.need.nodes, free })
    }

    fn blocked(&self, candidate: &Candidate) -> Option<Exclusion> {
        let Self { input, info, need, capacity_type, zone, .. } = *self;
        if candidate.placement_group && !info.supports_cluster_group {
            return Some(Exclusion::NoGroupForType);
        }
        let reservation = candidate.reservation.as_ref();
        let gone = reservation.and_then(|target| input.refusals.against_reservation(&target.id, input.now));
        if let Some((refusal, until)) = gone {
            return Some(Exclusion::Refused { refusal, until });
        }
        let own_group = candidate.placement_group && candidate.reservation_group.is_none();
        if let Some((refusal, until)) = input.refusals.against(&info.name, zone, capacity_type, own_group, input.now) {
            return Some(Exclusion::Refused { refusal, until });
        }
        let until = input.unavailable.blocks(&candidate.pool(), need.nodes, input.now)?;
        Some(Exclusion::NoCapacity { until })
    }
}

/// A Capacity Block that ends sooner than this is not launched into.
const BLOCK_MARGIN_SECONDS: i64 = 40 * 60;

#[cfg(test)]
#[path = "rank_tests.rs"]
mod tests;
