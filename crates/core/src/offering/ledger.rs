//! One ledger over everything that is provisioned: what the limits and cost ceilings of the pools, the free hosts of
//! reservations and the addresses of subnets have left beside the NodeBatches that hold something or are about to.
//!
//! A NodeBatch counts from its creation. Until an attempt has begun it counts with the most it may take of each pool it may
//! be provisioned from; from then on with what the attempt takes of its one pool. Of two batches that want the last capacity the one
//! that has begun has it, then the older one. An older batch that does not fit in holds nothing up.

use std::collections::BTreeMap;
use std::fmt;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::ec2::seen::{Reservation, Subnet};
use crate::model::names::ResourceName;
use crate::model::resources::Resources;

/// What is taken of a pool.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Amounts {
    /// Of the limits, [`super::NODES`] included.
    pub resources: Resources,
    /// Of the cost ceilings.
    pub micro_usd_per_hour: u64,
}

impl Amounts {
    /// So many nodes of `each`, at a price per node.
    #[must_use]
    pub fn of_nodes(each: &Resources, price: u64, count: u32) -> Self {
        let mut resources = Resources::default();
        for (name, amount) in each.iter() {
            resources.set(name.clone(), amount.saturating_mul(i64::from(count)));
        }
        Self { resources, micro_usd_per_hour: price.saturating_mul(u64::from(count)) }
    }

    /// The larger of both, amount by amount: whichever of two purchases is made, it takes no more.
    #[must_use]
    pub fn or(mut self, other: &Self) -> Self {
        for (name, amount) in other.resources.iter() {
            if amount > self.resources.get(name.as_str()) {
                self.resources.set(name.clone(), amount);
            }
        }
        self.micro_usd_per_hour = self.micro_usd_per_hour.max(other.micro_usd_per_hour);
        self
    }
}

/// How far a batch is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Standing {
    /// An attempt is under way, or there are instances.
    Begun,
    /// It may begin at any moment.
    Waiting,
    /// It begins nothing for a while: it waits for a person, or out a pause after a failure.
    Resting,
}

/// Hosts of a reservation that a launch takes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hosts {
    /// The reservation.
    pub reservation: String,
    /// Hosts.
    pub count: u32,
}

/// Addresses of a subnet that a launch takes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Addresses {
    /// The subnet.
    pub subnet: String,
    /// Addresses.
    pub count: u32,
}

/// A launch whose instances EC2 may not have counted yet when free hosts and addresses were last read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Launch {
    /// Hosts it takes.
    pub hosts: Option<Hosts>,
    /// Addresses it takes.
    pub addresses: Addresses,
    /// When it was won; `None` while it is open.
    pub won: Option<Timestamp>,
}

/// What one NodeBatch takes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    /// Name of the batch.
    pub batch: String,
    /// When the batch was created.
    pub created: Option<Timestamp>,
    /// How far it is.
    pub standing: Standing,
    /// By pool. Of a batch that has begun: what it takes of its pool. Of another: the most it may take of each.
    pub amounts: BTreeMap<String, Amounts>,
    /// The last launch of a batch that has begun.
    pub launch: Option<Launch>,
}

/// A ceiling on dollars per hour.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Ceiling {
    /// None.
    Unlimited,
    /// So many micro-dollars per hour.
    At(u64),
}

/// Whose ceiling on dollars per hour it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum CeilingScope {
    /// `maxUsdPerHour` of the NodePool.
    Pool,
    /// `provisioner.maxUsdPerHour` of the configuration.
    Cluster,
}

impl CeilingScope {
    /// The field that sets it.
    #[must_use]
    pub fn field(self) -> &'static str {
        match self {
            Self::Pool => "spec.maxUsdPerHour",
            Self::Cluster => "provisioner.maxUsdPerHour",
        }
    }
}

impl fmt::Display for CeilingScope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.field())
    }
}

/// What is left under a ceiling on dollars per hour, in micro-dollars.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CeilingLeft {
    /// Whose.
    pub scope: CeilingScope,
    /// Left; 0 where it is passed already.
    pub left: u64,
    /// The ceiling.
    pub ceiling: u64,
}

/// What one pool may take at most.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PoolLimits {
    /// Limits, in the units of [`Resources`]; [`super::NODES`] counts nodes.
    pub limits: BTreeMap<ResourceName, i64>,
    /// Micro-dollars per hour.
    pub max_micro_usd_per_hour: Option<u64>,
}

/// Everything the ledger is opened from.
#[derive(Clone, Debug)]
pub struct LedgerInputs {
    /// Pools by name.
    pub pools: BTreeMap<String, PoolLimits>,
    /// The ceiling of the whole cluster.
    pub cluster: Ceiling,
    /// All NodeBatches, in any order.
    pub claims: Vec<Claim>,
}

/// What is left.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ledger {
    pools: BTreeMap<String, PoolLeft>,
    cluster: Option<CeilingLeft>,
    launches: Vec<Launch>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct PoolLeft {
    limits: BTreeMap<ResourceName, i64>,
    left: BTreeMap<ResourceName, i64>,
    ceiling: Option<CeilingLeft>,
}

impl Ledger {
    /// Opens it with everything that batches which have begun take; `but` is not counted.
    #[must_use]
    pub fn new(inputs: &LedgerInputs, but: Option<&str>) -> Self {
        let ceiling = |scope, ceiling| CeilingLeft { scope, left: ceiling, ceiling };
        let pool = |limits: &PoolLimits| PoolLeft {
            limits: limits.limits.clone(),
            left: limits.limits.clone(),
            ceiling: limits.max_micro_usd_per_hour.map(|most| ceiling(CeilingScope::Pool, most)),
        };
        let mut ledger = Self {
            pools: inputs.pools.iter().map(|(name, limits)| (name.clone(), pool(limits))).collect(),
            cluster: match inputs.cluster {
                Ceiling::Unlimited => None,
                Ceiling::At(most) => Some(ceiling(CeilingScope::Cluster, most)),
            },
            launches: Vec::new(),
        };
        let begun = inputs.claims.iter().filter(|claim| claim.standing == Standing::Begun);
        for claim in begun.filter(|claim| Some(claim.batch.as_str()) != but) {
            ledger.begin(claim);
        }
        ledger
    }

    /// What is left for one batch: beside all others that have begun, and those that are older and may begin before it.
    #[must_use]
    pub fn before(inputs: &LedgerInputs, batch: &str) -> Self {
        let mut ledger = Self::new(inputs, Some(batch));
        let own = inputs.claims.iter().find(|claim| claim.batch == batch);
        if own.is_some_and(|own| own.standing == Standing::Begun) {
            return ledger;
        }
        let older = |claim: &&Claim| own.is_none_or(|own| claim.turn() < own.turn());
        waiting(inputs).into_iter().filter(older).for_each(|claim| ledger.reserve(claim));
        ledger
    }

    /// What is left for a batch that does not exist yet: beside all there are.
    #[must_use]
    pub fn beside_all(inputs: &LedgerInputs) -> Self {
        let mut ledger = Self::new(inputs, None);
        waiting(inputs).into_iter().for_each(|claim| ledger.reserve(claim));
        ledger
    }

    /// Takes what a batch that has begun takes, whatever is left: it is so.
    pub fn begin(&mut self, claim: &Claim) {
        for (pool, amounts) in &claim.amounts {
            self.take(pool, amounts);
        }
        self.launches.extend(claim.launch.clone());
    }

    /// Takes what a batch that may begin would take of each of its pools, where that is left. What does not fit in holds
    /// nothing up. Dollars of the cluster are spent once, by whichever purchase is the dearest.
    pub fn reserve(&mut self, claim: &Claim) {
        let mut dearest = 0;
        for (name, amounts) in &claim.amounts {
            if self.fits(name, amounts) {
                dearest = dearest.max(amounts.micro_usd_per_hour);
                if let Some(pool) = self.pools.get_mut(name) {
                    pool.take(amounts);
                }
            }
        }
        spend(&mut self.cluster, dearest);
    }

    /// Takes so much of a pool.
    pub fn take(&mut self, pool: &str, amounts: &Amounts) {
        if let Some(pool) = self.pools.get_mut(pool) {
            pool.take(amounts);
        }
        spend(&mut self.cluster, amounts.micro_usd_per_hour);
    }

    /// Whether so much of a pool is left under its limits and both ceilings.
    #[must_use]
    pub fn fits(&self, pool: &str, amounts: &Amounts) -> bool {
        let limits = self.left(pool).iter().all(|(resource, left)| {
            let needed = amounts.resources.get(resource.as_str());
            needed <= 0 || needed <= *left
        });
        limits && self.ceilings(pool).iter().all(|ceiling| amounts.micro_usd_per_hour <= ceiling.left)
    }

    /// What is left of one limit of a pool; `None` where there is no such limit. Negative where it is passed.
    #[must_use]
    pub fn capacity(&self, pool: &str, resource: &str) -> Option<i64> {
        self.pools.get(pool)?.left.get(resource).copied()
    }

    /// What is left of all limits of a pool.
    #[must_use]
    pub fn left(&self, pool: &str) -> BTreeMap<ResourceName, i64> {
        self.pools.get(pool).map(|pool| pool.left.clone()).unwrap_or_default()
    }

    /// The limits of a pool.
    #[must_use]
    pub fn limits(&self, pool: &str) -> BTreeMap<ResourceName, i64> {
        self.pools.get(pool).map(|pool| pool.limits.clone()).unwrap_or_default()
    }

    /// What is left under the ceilings that hold for a pool: its own, and that of the cluster.
    #[must_use]
    pub fn ceilings(&self, pool: &str) -> Vec<CeilingLeft> {
        let own = self.pools.get(pool).and_then(|pool| pool.ceiling);
        own.into_iter().chain(self.cluster).collect()
    }

    /// Free hosts of a reservation as read then, less those of launches that this reading may not have seen.
    #[must_use]
    pub fn hosts(&self, reservation: &Reservation, read: Timestamp) -> u32 {
        let of = |launch: &Launch| match &launch.hosts {
            Some(hosts) if hosts.reservation == reservation.id && launch.unseen(read) => hosts.count,
            Some(_) | None => 0,
        };
        reservation.free.saturating_sub(self.launches.iter().map(of).fold(0, u32::saturating_add))
    }

    /// Most nodes of one launch, `most` at most, for which one of these subnets has the addresses; each node takes so many of them, and
    /// the subnets were read then. `is_full` tells whether EC2 refused a launch of this size in a subnet lately.
    #[must_use]
    pub fn most_addressed<'s>(
        &self,
        subnets: impl Iterator<Item = &'s Subnet>,
        read: Timestamp,
        each: u32,
        most: u32,
        is_full: impl Fn(&str, u32) -> bool,
    ) -> u32 {
        let free: Vec<(&str, u32)> = subnets.map(|subnet| (subnet.id.as_str(), self.addresses(subnet, read))).collect();
        let holds = |count: &u32| {
            let needed = u64::from(*count) * u64::from(each);
            free.iter().any(|(subnet, free)| needed <= u64::from(*free) && !is_full(subnet, *count))
        };
        (1..=most).rev().find(holds).unwrap_or(0)
    }

    /// Free addresses of a subnet as read then, less those of launches that this reading may not have seen.
    #[must_use]
    pub fn addresses(&self, subnet: &Subnet, read: Timestamp) -> u32 {
        let here = |launch: &&Launch| launch.addresses.subnet == subnet.id && launch.unseen(read);
        let taken = self.launches.iter().filter(here).map(|launch| launch.addresses.count);
        subnet.free_addresses.saturating_sub(taken.fold(0, u32::saturating_add))
    }
}

impl PoolLeft {
    fn take(&mut self, amounts: &Amounts) {
        for (resource, left) in &mut self.left {
            *left = left.saturating_sub(amounts.resources.get(resource.as_str()));
        }
        spend(&mut self.ceiling, amounts.micro_usd_per_hour);
    }
}

impl Launch {
    /// Whether what was read then may not count it.
    fn unseen(&self, read: Timestamp) -> bool {
        self.won.is_none_or(|won| won >= read)
    }
}

fn spend(ceiling: &mut Option<CeilingLeft>, micro_usd_per_hour: u64) {
    if let Some(ceiling) = ceiling {
        ceiling.left = ceiling.left.saturating_sub(micro_usd_per_hour);
    }
}

impl Claim {
    /// Its turn among those that have not begun: the older first, by name among those that are as old.
    fn turn(&self) -> (Option<Timestamp>, &str) {
        (self.created, &self.batch)
    }
}

/// Batches that may begin at any moment, in their turn.
fn waiting(inputs: &LedgerInputs) -> Vec<&Claim> {
    let mut waiting: Vec<&Claim> = inputs.claims.iter().filter(|claim| claim.standing == Standing::Waiting).collect();
    waiting.sort_by_key(|claim| claim.turn());
    waiting
}

#[cfg(test)]
#[path = "ledger_tests.rs"]
mod tests;
