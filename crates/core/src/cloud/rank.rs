//! Which offer is tried first, and why the others are not tried at all.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::ice::{IceMemory, Pool};
use super::launch::CapacityType;
use super::machine::{InstanceTypeInfo, UsageClass};
use super::price::PriceBook;
use super::seen::{Offering, Subnet};
use crate::names::ResourceName;

/// Most candidates of one round: what a NodeBatch's status holds.
pub const MAX_CANDIDATES: usize = 64;

/// Limit key that counts nodes.
const NODES: &str = "nodes";

/// One way to buy the nodes of a gang.
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
    /// Market.
    pub capacity_type: CapacityType,
    /// In a placement group of its own.
    pub placement_group: bool,
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
            market: self.capacity_type,
            group: self.placement_group,
        }
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
    /// Allowed markets in the order of `capacityTypeOrder`.
    pub capacity_types: Vec<CapacityType>,
    /// Its group policy.
    pub group: GroupPolicy,
    /// What is left under its limits: running, in flight and promised nodes are already subtracted. A resource that is
    /// not named has no limit; `nodes` counts nodes, the rest in the units of [`crate::resources::Resources`].
    pub left: BTreeMap<ResourceName, i64>,
    /// `placement.maxNodesPerBatch`.
    pub max_nodes_per_batch: u32,
    /// Subnets of its node class.
    pub subnets: Vec<Subnet>,
}

/// What the gang needs of one type.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Need {
    /// Nodes, from 1.
    pub nodes: u32,
    /// Addresses each node takes at launch.
    pub addresses_per_node: u32,
}

/// Everything a ranking may look at.
#[derive(Clone, Copy, Debug)]
pub struct RankInput<'a> {
    /// Pools that are Ready and whose taints the gang tolerates.
    pub pools: &'a [PoolOffer],
    /// Known types by name.
    pub types: &'a BTreeMap<String, InstanceTypeInfo>,
    /// Nodes needed by type; a type on which no member fits is absent.
    pub needs: &'a BTreeMap<String, Need>,
    /// The gang's own group policy; `Preferred` if it says nothing.
    pub group: GroupPolicy,
    /// Zones the gang's volumes allow; `None` for any.
    pub volume_zones: Option<&'a BTreeSet<String>>,
    /// Types offered, by zone.
    pub offerings: &'a BTreeSet<Offering>,
    /// Prices.
    pub prices: &'a PriceBook,
    /// Missing capacity.
    pub ice: &'a IceMemory,
    /// Now.
    pub now: Timestamp,
}

/// The offers in order of trying, and what was left out.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[must_use = "what was left out is the reason a gang waits"]
pub struct Ranking {
    /// At most [`MAX_CANDIDATES`], first is tried first.
    pub candidates: Vec<Ranked>,
    /// Everything else, in order of pool, type, zone, market, group.
    pub left_out: Vec<LeftOut>,
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

/// Something that is not a candidate.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LeftOut {
    /// NodePool.
    pub pool: String,
    /// Type; `None`: all of the pool's.
    pub instance_type: Option<String>,
    /// Zone; `None`: all.
    pub zone: Option<String>,
    /// Market; `None`: all.
    pub capacity_type: Option<CapacityType>,
    /// With or without a group; `None`: both.
    pub placement_group: Option<bool>,
    /// Why.
    pub reason: Exclusion,
}

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
    },
    /// The market is not one the type is sold on.
    NotSold,
    /// No reservation can hold the gang.
    NoReservation,
    /// The type does not go into a cluster placement group.
    NoGroupForType,
    /// The zone does not offer the type.
    NotOffered,
    /// A volume of the gang is in another zone.
    VolumeElsewhere,
    /// The node class has no subnet in the zone.
    NoSubnet,
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
    /// Behind the first [`MAX_CANDIDATES`].
    TooManyCandidates,
}

impl fmt::Display for Exclusion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::GroupPolicyConflict => f.write_str("pool and gang disagree about the placement group"),
            Self::UnknownType => f.write_str("type is not known in this Region"),
            Self::DoesNotFit => f.write_str("no member fits on one node"),
            Self::TooManyNodes { needed, most } => write!(f, "{needed} nodes needed, a batch has at most {most}"),
            Self::Limit { resource, needed, left } => {
                write!(f, "limit on {resource}: {needed} needed, {left} left")
            }
            Self::NotSold => f.write_str("type is not sold on this market"),
            Self::NoReservation => f.write_str("no reservation with enough free hosts"),
            Self::NoGroupForType => f.write_str("type does not go into a cluster placement group"),
            Self::NotOffered => f.write_str("type is not offered in the zone"),
            Self::VolumeElsewhere => f.write_str("a volume of the gang is in another zone"),
            Self::NoSubnet => f.write_str("no subnet in the zone"),
            Self::TooFewAddresses { needed, free } => write!(f, "{needed} addresses needed, {free} free"),
            Self::PriceUnknown => f.write_str("no price is known"),
            Self::NoCapacity { until } => write!(f, "no capacity for this size until {until}"),
            Self::TooManyCandidates => write!(f, "behind the first {MAX_CANDIDATES} candidates"),
        }
    }
}

/// Orders all ways to buy one gang's nodes: pool weight, the pool's order of markets, group kept before dropped, zone
/// with most headroom by ICE memory, dollars per hour of the whole gang, then type, zone and pool name.
///
/// Every combination that is not a candidate is in `left_out` with its first reason, told as coarsely as it holds.
/// Reserved capacity has no input yet: it is left out as [`Exclusion::NoReservation`] where a pool allows it.
/// Source: section 3.1 of the lifecycle design.
pub fn rank_candidates(input: &RankInput<'_>) -> Ranking {
    let mut ranking = Ranking::default();
    let mut keyed = Vec::new();
    for pool in input.pools {
        rank_pool(input, pool, &mut keyed, &mut ranking.left_out);
    }
    keyed.sort_by(|(one, _), (other, _)| one.cmp(other));
    ranking.candidates = keyed.into_iter().map(|(_, ranked)| ranked).collect();
    for behind in ranking.candidates.split_off(ranking.candidates.len().min(MAX_CANDIDATES)) {
        ranking.left_out.push(LeftOut {
            pool: behind.pool,
            instance_type: Some(behind.candidate.instance_type),
            zone: Some(behind.candidate.zone),
            capacity_type: Some(behind.candidate.capacity_type),
            placement_group: Some(behind.candidate.placement_group),
            reason: Exclusion::TooManyCandidates,
        });
    }
    ranking.left_out.sort();
    ranking
}

/// Order of trying; fields as in [`rank_candidates`]. Headroom is inverted, and unknown comes first.
type Key = (Reverse<u32>, usize, bool, (bool, Reverse<u32>), u64, String, String, String);

fn rank_pool(input: &RankInput<'_>, pool: &PoolOffer, keyed: &mut Vec<(Key, Ranked)>, left_out: &mut Vec<LeftOut>) {
    let whole_pool = LeftOut {
        pool: pool.name.clone(),
        instance_type: None,
        zone: None,
        capacity_type: None,
        placement_group: None,
        reason: Exclusion::GroupPolicyConflict,
    };
    let Some(group_policy) = pool.group.with(input.group) else {
        left_out.push(whole_pool);
        return;
    };
    for type_name in &pool.instance_types {
        let of_type = LeftOut { instance_type: Some(type_name.clone()), ..whole_pool.clone() };
        let (info, need) = match usable_type(input, pool, type_name) {
            Ok(usable) => usable,
            Err(reason) => {
                left_out.push(LeftOut { reason, ..of_type });
                continue;
            }
        };
        for (order, market) in pool.capacity_types.iter().enumerate() {
            let of_market = LeftOut { capacity_type: Some(*market), ..of_type.clone() };
            if let Err(reason) = usable_market(info, *market) {
                left_out.push(LeftOut { reason, ..of_market });
                continue;
            }
            for zone in &pool.zones {
                let of_zone = LeftOut { zone: Some(zone.clone()), ..of_market.clone() };
                let (subnet, price) = match usable_zone(input, pool, type_name, need, *market, zone) {
                    Ok(usable) => usable,
                    Err(reason) => {
                        left_out.push(LeftOut { reason, ..of_zone });
                        continue;
                    }
                };
                for group in group_policy.choices() {
                    let candidate = Candidate {
                        instance_type: type_name.clone(),
                        zone: zone.clone(),
                        zone_id: subnet.zone_id.clone(),
                        subnet_id: subnet.id.clone(),
                        capacity_type: *market,
                        placement_group: *group,
                        price_micro_usd_per_hour: Some(price),
                    };
                    if let Some(reason) = blocked(input, info, need, &candidate) {
                        left_out.push(LeftOut { placement_group: Some(*group), reason, ..of_zone.clone() });
                        continue;
                    }
                    let headroom = input.ice.headroom(&candidate.pool(), input.now);
                    let total = price.saturating_mul(u64::from(need.nodes));
                    let key = (
                        Reverse(pool.weight),
                        order,
                        !group,
                        (headroom.is_some(), Reverse(headroom.unwrap_or(0))),
                        total,
                        type_name.clone(),
                        zone.clone(),
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
) -> Result<(&'a InstanceTypeInfo, Need), Exclusion> {
    let info = input.types.get(name).ok_or(Exclusion::UnknownType)?;
    let need = *input.needs.get(name).filter(|need| need.nodes > 0).ok_or(Exclusion::DoesNotFit)?;
    if need.nodes > pool.max_nodes_per_batch {
        return Err(Exclusion::TooManyNodes { needed: need.nodes, most: pool.max_nodes_per_batch });
    }
    let capacity = info.capacity();
    for (resource, left) in &pool.left {
        let each = if resource.as_str() == NODES { 1 } else { capacity.get(resource.as_str()) };
        let needed = each.saturating_mul(i64::from(need.nodes));
        if needed > *left && needed > 0 {
            return Err(Exclusion::Limit { resource: resource.clone(), needed, left: *left });
        }
    }
    Ok((info, need))
}

fn usable_market(info: &InstanceTypeInfo, market: CapacityType) -> Result<(), Exclusion> {
    let class = match market {
        CapacityType::Reserved => return Err(Exclusion::NoReservation),
        CapacityType::Spot => UsageClass::Spot,
        CapacityType::OnDemand => UsageClass::OnDemand,
    };
    if info.usage_classes.contains(&class) { Ok(()) } else { Err(Exclusion::NotSold) }
}

fn usable_zone<'a>(
    input: &RankInput<'_>,
    pool: &'a PoolOffer,
    type_name: &str,
    need: Need,
    market: CapacityType,
    zone: &str,
) -> Result<(&'a Subnet, u64), Exclusion> {
    let offering = Offering { instance_type: type_name.to_owned(), zone: zone.to_owned() };
    if !input.offerings.contains(&offering) {
        return Err(Exclusion::NotOffered);
    }
    if input.volume_zones.is_some_and(|zones| !zones.contains(zone)) {
        return Err(Exclusion::VolumeElsewhere);
    }
    let in_zone = pool.subnets.iter().filter(|subnet| subnet.zone == zone);
    let subnet =
        in_zone.max_by_key(|subnet| (subnet.free_addresses, Reverse(&subnet.id))).ok_or(Exclusion::NoSubnet)?;
    let needed = u64::from(need.nodes) * u64::from(need.addresses_per_node);
    if needed > u64::from(subnet.free_addresses) {
        return Err(Exclusion::TooFewAddresses { needed, free: subnet.free_addresses });
    }
    let price = input.prices.price(type_name, zone, market).ok_or(Exclusion::PriceUnknown)?;
    Ok((subnet, price))
}

fn blocked(input: &RankInput<'_>, info: &InstanceTypeInfo, need: Need, candidate: &Candidate) -> Option<Exclusion> {
    if candidate.placement_group && !info.supports_cluster_group {
        return Some(Exclusion::NoGroupForType);
    }
    let until = input.ice.blocks(&candidate.pool(), need.nodes, input.now)?;
    Some(Exclusion::NoCapacity { until })
}

#[cfg(test)]
#[path = "rank_tests.rs"]
mod tests;
