//! The scenario: the world a run starts with, as one JSON document.

mod account;
pub(crate) mod pools;

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::choices::Choices;
use crate::clock::ClockSettings;
use crate::faults::Fault;
use crate::fixtures::InstanceType;
use crate::policy::document::Policy;
use crate::quota;

pub use self::account::{ClusterSpec, GroupSpec, QueueSpec, ReservationSpec};
pub use self::pools::{PoolSpec, SpineSpec};
pub use crate::kinds::{MarketType, Matching, ReservationKind, Strategy};

/// Everything that decides a run. Every member has a default; [`Scenario::default`] is an empty
/// Region with three zones, [`Scenario::demo`] has capacity.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Scenario {
    /// Ids, hosts and network nodes follow from it.
    pub seed: u64,
    /// The virtual clock.
    pub clock: ClockSettings,
    /// The twelve digits of the account.
    pub account: String,
    /// The Region's name.
    pub region: String,
    /// The id of the one VPC.
    pub vpc: String,
    /// Availability Zones with their subnets.
    pub zones: Vec<Zone>,
    /// Security groups of the VPC.
    pub security_groups: Vec<SecurityGroup>,
    /// Images besides those behind the known EKS and Bottlerocket paths.
    pub images: Vec<Image>,
    /// The capacity there is.
    pub pools: Vec<PoolSpec>,
    /// Which types are offered where.
    pub offerings: Offerings,
    /// How long things take.
    pub delays: Delays,
    /// Prices on demand in micro-dollars per hour, where they differ from the list prices.
    pub prices: BTreeMap<String, u64>,
    /// The spot price in per cent of the price on demand.
    pub spot_price_percent: u32,
    /// Whether the request buckets throttle.
    pub throttling: bool,
    /// Instances that belong to others and run from the start.
    pub others: Vec<OtherInstances>,
    /// Placement groups that belong to others and are there from the start.
    pub placement_groups: Vec<GroupSpec>,
    /// Capacity reservations there are from the start, each with hosts of its own.
    pub reservations: Vec<ReservationSpec>,
    /// The queue that events go to.
    pub queue: QueueSpec,
    /// EKS clusters.
    pub clusters: Vec<ClusterSpec>,
    /// Names of the instance profiles there are; empty: every name is one.
    pub instance_profiles: Vec<String>,
    /// Virtual CPUs that may be in use at once, by quota (`standard`, `g`, `p`, `trn`, …, and `spot-standard`, …);
    /// a quota which is not named here has no limit.
    pub quotas: BTreeMap<String, u32>,
    /// Virtual seconds within which what a call held back has launched is collected.
    pub collection_round_seconds: f64,
    /// The IAM policy that calls are held against; absent: everything is allowed.
    pub policy: Option<Policy>,
    /// What words of the policy stand for, such as `CLUSTER` and `UID`; `REGION` and `ACCOUNT` are known.
    pub policy_values: BTreeMap<String, String>,
    /// Access key ids that may do everything whatever the policy says, as people do who set an account up.
    pub administrators: Vec<String>,
    /// Whether the journal keeps the bodies of requests and answers.
    pub record_bodies: bool,
    /// What AWS does not document.
    pub choices: Choices,
    /// What goes wrong.
    pub faults: Vec<Fault>,
}

/// An Availability Zone.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Zone {
    /// For instance `us-east-1a`.
    pub name: String,
    /// For instance `use1-az1`.
    pub zone_id: String,
    /// Its subnets.
    #[serde(default)]
    pub subnets: Vec<Subnet>,
}

/// A subnet.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Subnet {
    /// For instance `subnet-0a`.
    pub id: String,
    /// An IPv4 block.
    pub cidr: String,
    /// An IPv6 block of /64; absent: no interface in it gets an IPv6 address.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ipv6_cidr: Option<String>,
    /// Addresses free at the start; absent: all of the block but the five that AWS keeps.
    #[serde(default)]
    pub free_addresses: Option<u32>,
    /// Whether it is the default subnet of its zone.
    #[serde(default)]
    pub default_for_zone: bool,
    /// Tags.
    #[serde(default)]
    pub tags: BTreeMap<String, String>,
}

/// A security group.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SecurityGroup {
    /// For instance `sg-0nodes`.
    pub id: String,
    /// The name.
    pub name: String,
    /// Tags.
    #[serde(default)]
    pub tags: BTreeMap<String, String>,
    /// It has no rule for all traffic from and to itself, without which EFA does not work.
    #[serde(default)]
    pub no_self_reference: bool,
}

/// A machine image.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Image {
    /// For instance `ami-0123456789abcdef0`.
    pub id: String,
    /// The name.
    pub name: String,
    /// The path `resolve:ssm:<path>` that names it, if any.
    #[serde(default)]
    pub path: Option<String>,
}

/// Which types a zone offers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Offerings {
    /// Those that have a pool or a reservation there.
    #[default]
    Pools,
    /// Those too that AWS offers in the zone of this id, without capacity unless there is a pool.
    Published,
}

/// How long things take, in virtual seconds.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Delays {
    /// From the launch to `running`.
    pub boot_seconds: f64,
    /// At most this much longer, drawn for each instance.
    pub boot_jitter_seconds: f64,
    /// From `running` to the node's registration.
    pub registration_seconds: f64,
    /// From there until the node is Ready: a kubelet registers before its network plugin runs.
    pub ready_seconds: f64,
    /// From the creation of a placement group until it is `available`.
    pub placement_group_seconds: f64,
    /// From the end of a Capacity Block's instance until its host is free again.
    pub block_cleanup_seconds: f64,
    /// From `shutting-down` to `terminated`.
    pub terminate_seconds: f64,
    /// For how long terminated instances are still described.
    pub terminated_visible_seconds: f64,
}

impl Default for Delays {
    fn default() -> Self {
        Self {
            boot_seconds: 20.0,
            boot_jitter_seconds: 0.0,
            registration_seconds: 0.0,
            ready_seconds: 0.0,
            placement_group_seconds: 0.0,
            block_cleanup_seconds: 300.0,
            terminate_seconds: 40.0,
            terminated_visible_seconds: 3600.0,
        }
    }
}

/// Running instances that are not ours.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct OtherInstances {
    /// The instance type.
    #[serde(rename = "type")]
    pub instance_type: String,
    /// The zone's name.
    pub zone: String,
    /// The capacity type.
    #[serde(default)]
    #[serde(rename = "market")]
    pub capacity_type: MarketType,
    /// How many.
    pub count: u32,
    /// Their tags.
    #[serde(default)]
    pub tags: BTreeMap<String, String>,
}

/// Why a scenario cannot be played.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ScenarioError {
    /// A type without a fixture.
    #[error("no facts are known about the instance type {0}")]
    UnknownType(String),
    /// A zone that is not declared.
    #[error("the zone {0} is not declared")]
    UnknownZone(String),
    /// Two of a kind with one name.
    #[error("{0} is declared twice")]
    Duplicate(String),
    /// An address block that is none.
    #[error("{0} is not an IPv4 block of /16 to /28")]
    Cidr(String),
    /// An IPv6 block that is none.
    #[error("{0} is not an IPv6 block of /64")]
    Ipv6Cidr(String),
    /// More instances of others than hosts.
    #[error("{instance_type} in {zone} has no capacity for the instances of others")]
    NoCapacityForOthers {
        /// The instance type.
        instance_type: String,
        /// The zone's name.
        zone: String,
    },
    /// A pool of a capacity type that has none.
    #[error("a pool cannot be of the capacity type {0}; declare a reservation instead")]
    PoolCapacityType(&'static str),
    /// A reservation in a placement group that is not a cluster, or is bound elsewhere.
    #[error("the reservation {0} cannot lie in its placement group: {1}")]
    ReservationGroup(String, &'static str),
    /// A quota that is none.
    #[error("{0} is no quota; there are {1}")]
    UnknownQuota(String, String),
    /// A folder for journals that cannot be written.
    #[error("the journal cannot be kept: {0}")]
    Journal(String),
    /// A document that is not a scenario.
    #[error("the scenario cannot be read: {0}")]
    Syntax(String),
}

impl Default for Scenario {
    fn default() -> Self {
        let zone = |letter: char, number: u8, id: u8| Zone {
            name: format!("us-east-1{letter}"),
            zone_id: format!("use1-az{id}"),
            subnets: vec![Subnet {
                id: format!("subnet-0000000000000000{letter}"),
                cidr: format!("10.{number}.0.0/18"),
                ipv6_cidr: None,
                free_addresses: None,
                default_for_zone: false,
                tags: BTreeMap::from([("Name".to_owned(), format!("muster-demo-us-east-1{letter}"))]),
            }],
        };
        Self {
            seed: 1,
            clock: ClockSettings::default(),
            account: "123456789012".to_owned(),
            region: "us-east-1".to_owned(),
            vpc: "vpc-00000000000000001".to_owned(),
            zones: vec![zone('a', 0, 6), zone('b', 1, 1), zone('c', 2, 2)],
            security_groups: vec![SecurityGroup {
                id: "sg-00000000000000001".to_owned(),
                name: "muster-demo-nodes".to_owned(),
                tags: BTreeMap::new(),
                no_self_reference: false,
            }],
            images: vec![],
            pools: vec![],
            offerings: Offerings::default(),
            delays: Delays::default(),
            prices: BTreeMap::new(),
            spot_price_percent: 40,
            throttling: true,
            others: vec![],
            placement_groups: vec![],
            reservations: vec![],
            queue: QueueSpec::default(),
            clusters: vec![ClusterSpec::default()],
            instance_profiles: vec![],
            quotas: BTreeMap::new(),
            collection_round_seconds: 600.0,
            policy: None,
            policy_values: BTreeMap::new(),
            administrators: vec![],
            record_bodies: false,
            choices: Choices::default(),
            faults: vec![],
        }
    }
}

impl Scenario {
    /// The demonstration's world: in each of three zones two spines of four leaves of four
    /// p5.48xlarge, some larger and smaller GPU types, and plenty of m5.
    #[must_use]
    pub fn demo() -> Self {
        let mut scenario = Self::default();
        let zones: Vec<String> = scenario.zones.iter().map(|z| z.name.clone()).collect();
        for zone in zones {
            for (instance_type, capacity_type, spines, leaves, hosts) in [
                ("p5.48xlarge", MarketType::OnDemand, 2, 4, 4),
                ("p5.48xlarge", MarketType::Spot, 1, 4, 2),
                ("p5en.48xlarge", MarketType::OnDemand, 1, 2, 4),
                ("p6-b200.48xlarge", MarketType::OnDemand, 1, 2, 4),
                ("g5.12xlarge", MarketType::OnDemand, 2, 2, 8),
                ("g5.48xlarge", MarketType::OnDemand, 2, 2, 4),
                ("g6e.48xlarge", MarketType::OnDemand, 1, 2, 4),
                ("m5.2xlarge", MarketType::OnDemand, 2, 4, 16),
                ("m5.8xlarge", MarketType::OnDemand, 2, 4, 8),
            ] {
                scenario = scenario.with_pool(instance_type, &zone, capacity_type, spines, leaves, hosts);
            }
        }
        scenario
    }

    /// Adds a regular pool: `spines` spines of `leaves` leaves of `hosts` hosts.
    #[must_use]
    pub fn with_pool(
        mut self,
        instance_type: &str,
        zone: &str,
        capacity_type: MarketType,
        spines: usize,
        leaves: usize,
        hosts: u32,
    ) -> Self {
        self.pools.push(PoolSpec {
            instance_type: instance_type.to_owned(),
            zone: zone.to_owned(),
            capacity_type,
            spines: vec![SpineSpec { leaves: vec![hosts; leaves] }; spines],
        });
        self
    }

    /// Reads a scenario from JSON.
    ///
    /// # Errors
    /// [`ScenarioError::Syntax`], and what [`Scenario::check`] says.
    pub fn from_json(text: &str) -> Result<Self, ScenarioError> {
        let scenario: Self = serde_json::from_str(text).map_err(|e| ScenarioError::Syntax(e.to_string()))?;
        scenario.check()?;
        Ok(scenario)
    }

    /// Says whether the scenario can be played.
    ///
    /// # Errors
    /// The first contradiction found.
    pub fn check(&self) -> Result<(), ScenarioError> {
        let mut names = BTreeSet::new();
        for zone in &self.zones {
            if !names.insert(&zone.name) {
                return Err(ScenarioError::Duplicate(zone.name.clone()));
            }
            for subnet in &zone.subnets {
                if !names.insert(&subnet.id) {
                    return Err(ScenarioError::Duplicate(subnet.id.clone()));
                }
                if Block::parse(&subnet.cidr).is_none() {
                    return Err(ScenarioError::Cidr(subnet.cidr.clone()));
                }
                if let Some(cidr) = subnet.ipv6_cidr.as_ref().filter(|cidr| ipv6_block(cidr).is_none()) {
                    return Err(ScenarioError::Ipv6Cidr(cidr.clone()));
                }
            }
        }
        let mut pools = BTreeSet::new();
        for pool in &self.pools {
            self.check_type_and_zone(&pool.instance_type, &pool.zone)?;
            if !pools.insert((&pool.instance_type, &pool.zone, pool.capacity_type)) {
                return Err(ScenarioError::Duplicate(format!(
                    "the pool {} {} {}",
                    pool.instance_type,
                    pool.zone,
                    pool.capacity_type.name()
                )));
            }
        }
        for name in self.prices.keys() {
            if InstanceType::find(name).is_none() {
                return Err(ScenarioError::UnknownType(name.clone()));
            }
        }
        for other in &self.others {
            self.check_type_and_zone(&other.instance_type, &other.zone)?;
        }
        if let Some(pool) =
            self.pools.iter().find(|p| !matches!(p.capacity_type, MarketType::OnDemand | MarketType::Spot))
        {
            return Err(ScenarioError::PoolCapacityType(pool.capacity_type.name()));
        }
        self.check_reservations()
    }

    /// Whether reservations and quotas contradict nothing.
    fn check_reservations(&self) -> Result<(), ScenarioError> {
        let mut groups: BTreeMap<&str, Option<(&str, &str)>> = BTreeMap::new();
        for group in &self.placement_groups {
            if groups.insert(&group.name, None).is_some() {
                return Err(ScenarioError::Duplicate(group.name.clone()));
            }
        }
        let mut ids = BTreeSet::new();
        for reservation in &self.reservations {
            let ReservationSpec { id, instance_type, zone, .. } = reservation;
            self.check_type_and_zone(instance_type, zone)?;
            if !ids.insert(id) {
                return Err(ScenarioError::Duplicate(id.clone()));
            }
            let Some(group) = &reservation.placement_group else { continue };
            let refuse = |why| Err(ScenarioError::ReservationGroup(id.clone(), why));
            let declared = self.placement_groups.iter().find(|g| g.name == *group);
            let place = (instance_type.as_str(), zone.as_str());
            match (declared, groups.get(group.as_str())) {
                (Some(GroupSpec { strategy: Strategy::Cluster, .. }), Some(taken)) => {
                    if reservation.spines.len() > 1 {
                        return refuse("a cluster lies in one spine");
                    }
                    if taken.is_some_and(|taken| taken != place) {
                        return refuse("another reservation binds it to another zone or type");
                    }
                    groups.insert(group, Some(place));
                }
                (Some(_), _) => return refuse("it is no cluster"),
                (None, _) => return refuse("it is not declared in placementGroups"),
            }
        }
        match self.quotas.keys().find(|name| !quota::names().contains(name)) {
            Some(name) => Err(ScenarioError::UnknownQuota(name.clone(), quota::names().join(", "))),
            None => Ok(()),
        }
    }

    /// The price in micro-dollars per hour.
    pub(crate) fn price(&self, instance_type: &str, capacity_type: MarketType) -> u64 {
        let on_demand = self
            .prices
            .get(instance_type)
            .copied()
            .or_else(|| InstanceType::find(instance_type).and_then(|t| t.micro_usd_per_hour))
            .unwrap_or(0);
        match capacity_type {
            MarketType::OnDemand | MarketType::CapacityBlock | MarketType::InterruptibleReservation => on_demand,
            MarketType::Spot => on_demand.saturating_mul(u64::from(self.spot_price_percent)) / 100,
        }
    }

    /// What the words of the policy stand for.
    pub(crate) fn policy_values(&self) -> BTreeMap<String, String> {
        let known = [("REGION", &self.region), ("ACCOUNT", &self.account)];
        let mut values: BTreeMap<String, String> =
            known.into_iter().map(|(word, value)| (word.to_owned(), value.clone())).collect();
        values.extend(self.policy_values.clone());
        values
    }

    pub(crate) fn zone_id(&self, zone: &str) -> &str {
        self.zones.iter().find(|z| z.name == zone).map_or("", |z| z.zone_id.as_str())
    }

    fn check_type_and_zone(&self, instance_type: &str, zone: &str) -> Result<(), ScenarioError> {
        if InstanceType::find(instance_type).is_none() {
            return Err(ScenarioError::UnknownType(instance_type.to_owned()));
        }
        if !self.zones.iter().any(|z| z.name == zone) {
            return Err(ScenarioError::UnknownZone(zone.to_owned()));
        }
        Ok(())
    }
}

/// Reads an IPv6 block of /64, which a subnet's always is: its first address.
pub(crate) fn ipv6_block(cidr: &str) -> Option<std::net::Ipv6Addr> {
    let base: std::net::Ipv6Addr = cidr.strip_suffix("/64")?.parse().ok()?;
    base.segments()[4..].iter().all(|segment| *segment == 0).then_some(base)
}

/// An IPv4 block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Block {
    base: u32,
    /// Addresses in the block.
    pub(crate) size: u32,
}

impl Block {
    /// Reads `a.b.c.d/n` with n from 16 to 28, as AWS allows.
    pub(crate) fn parse(cidr: &str) -> Option<Self> {
        let (address, bits) = cidr.split_once('/')?;
        let base = u32::from(address.parse::<std::net::Ipv4Addr>().ok()?);
        let bits: u32 = bits.parse().ok()?;
        if !(16..=28).contains(&bits) {
            return None;
        }
        let size = 1u32 << (32 - bits);
        (base % size == 0).then_some(Self { base, size })
    }

    /// The address at an index counted after the four that AWS keeps at the start.
    pub(crate) fn address(self, index: u32) -> std::net::Ipv4Addr {
        std::net::Ipv4Addr::from(self.base.saturating_add(4).saturating_add(index))
    }

    /// Addresses that instances can have: all but five.
    pub(crate) fn usable(self) -> u32 {
        self.size - 5
    }
}
