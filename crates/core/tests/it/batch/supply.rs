//! What pools and classes offer in a history: the ledger and the ranking of the product, over pools made here.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use muster_core::batch::{Before, JoinClocks, Note, PerNode, Probes, Supply, WantedLevels, Working, claim};
use muster_core::ec2::CapacityType;
use muster_core::ec2::ErrorClass;
use muster_core::ec2::Tags;
use muster_core::ec2::TemplateSpec;
use muster_core::ec2::{Offering, Reservation, Subnet};
use muster_core::model::batch::{Attempt, Batch, BatchStatus, OwnerRef};
use muster_core::model::names::ResourceName;
use muster_core::model::node::Taint;
use muster_core::model::resources::Resources;
use muster_core::offering::PriceBook;
use muster_core::offering::UnavailableMemory;
use muster_core::offering::{Amounts, Ceiling, Ledger, LedgerInputs, NODES, PoolLimits};
use muster_core::offering::{Asked, Refusals};
use muster_core::offering::{GroupPolicy, Need, PoolOffer, PoolType, RankInput, Ranking, rank_candidates};
use muster_core::offering::{InstanceTypeInfo, NVIDIA_GPU, UsageClass};

use super::cluster::View;
use super::made;

/// A NodePool with its class. What it sells no other sells; gangs are launched as its first type.
#[derive(Clone, Debug)]
pub(super) struct PoolDef {
    pub(super) name: String,
    pub(super) instance_type: String,
    /// Other types of a pool for pods of no gang, dearer by a tenth each.
    pub(super) also: Vec<String>,
    pub(super) zones: Vec<String>,
    pub(super) capacity_types: Vec<CapacityType>,
    /// How much of `limited` its nodes may take together.
    pub(super) limit: i64,
    /// The resource that the limit is of, and how much of it a node takes.
    pub(super) limited: (&'static str, i64),
    /// Micro-dollars per hour that its nodes may cost together.
    pub(super) ceiling: Option<u64>,
    pub(super) group: GroupPolicy,
    pub(super) join: JoinClocks,
    pub(super) consolidate: Option<SignedDuration>,
    pub(super) foreign: Option<SignedDuration>,
    /// Milli-CPUs of its nodes for pods of no gang, which have no accelerators.
    pub(super) cpu: Option<i64>,
    /// What its nodes keep.
    pub(super) taints: Vec<Taint>,
}

/// A label that nodes of pools with several types get once it is known which they are.
pub(super) const OF_TYPE: &str = "of-type";

impl PoolDef {
    /// Everything it sells.
    pub(super) fn types(&self) -> impl Iterator<Item = &String> {
        std::iter::once(&self.instance_type).chain(&self.also)
    }

    /// What its nodes have, with what its limit is of.
    pub(super) fn has(&self, mut capacity: Resources) -> Resources {
        if self.limited.0 != NODES {
            capacity.set(self.limited.0, self.limited.1);
        }
        capacity
    }

    /// What so many of its nodes take.
    pub(super) fn takes(&self, nodes: i64) -> Resources {
        let (limited, each) = self.limited;
        Resources::from_iter(BTreeMap::from([(NODES, nodes), (limited, each * nodes)]))
    }
}

/// All pools and what the owners want.
#[derive(Debug)]
pub(super) struct Catalogue {
    pub(super) pools: Vec<PoolDef>,
    pub(super) types: BTreeMap<String, InstanceTypeInfo>,
    pub(super) offerings: BTreeSet<Offering>,
    pub(super) prices: PriceBook,
    /// What all nodes may cost together.
    pub(super) ceiling: Ceiling,
    pub(super) levels: BTreeMap<String, WantedLevels>,
    /// Rises when a person changes pools or classes.
    pub(super) generation: u32,
}

impl Catalogue {
    /// What one node of a type of a pool takes, at the highest price of its ways to launch.
    pub(super) fn per_node(&self, pool: &str, instance_type: &str) -> Option<PerNode> {
        let pool = self.pools.iter().find(|one| one.name == pool)?;
        let ways = pool.zones.iter().flat_map(|zone| pool.capacity_types.iter().map(move |sold| (zone, *sold)));
        let prices = ways.filter_map(|(zone, sold)| self.prices.price(instance_type, zone, sold));
        let amounts = Amounts { resources: pool.takes(1), micro_usd_per_hour: prices.max().unwrap_or(0) };
        Some(PerNode { amounts, addresses: 0 })
    }

    /// Whether anything may cost no more than so much.
    pub(super) fn has_ceilings(&self) -> bool {
        self.ceiling != Ceiling::Unlimited || self.pools.iter().any(|pool| pool.ceiling.is_some())
    }
}

/// What launches have taught this process.
#[derive(Clone, Debug, Default)]
pub(super) struct Lessons {
    pub(super) unavailable: UnavailableMemory,
    pub(super) refusals: Refusals,
    /// Reservations as read last, and when.
    pub(super) reservations: Vec<Reservation>,
    pub(super) read: Option<Timestamp>,
}

impl Lessons {
    /// What one batch tells the others.
    pub(super) fn learn(&mut self, note: &Note, now: Timestamp) {
        match note {
            Note::NoCapacity { pools, count } => {
                for pool in pools {
                    self.unavailable.record(pool, *count, now);
                }
            }
            Note::Launched { pool, count } => self.unavailable.succeeded(pool, *count),
            Note::Refused { kind, code, asked } => {
                let of = Asked {
                    instance_type: &asked.instance_type,
                    zone: &asked.zone,
                    capacity_type: asked.capacity_type,
                    subnet: &asked.subnet,
                    count: asked.count,
                };
                self.refusals.record(*kind, code.as_deref(), &of, now);
            }
            Note::ForgetReservations => self.read = None,
            Note::ReservationGone(_)
            | Note::ReservationFull(_)
            | Note::Denied { .. }
            | Note::Blame { .. }
            | Note::FleetsEnded(_) => {}
        }
    }

    /// What a process that starts reads off the statuses.
    pub(super) fn rebuilt<'b>(batches: impl Iterator<Item = &'b Batch>) -> Self {
        let mut lessons = Self::default();
        for attempt in batches.flat_map(|batch| &batch.status.attempts) {
            let of = attempt.code.as_deref().map(|code| muster_core::ec2::classify(Some(code), None));
            if let (Some(ErrorClass::Capacity), Some(stored), Some(at)) = (of, &attempt.parameters, attempt.ended) {
                for pool in stored.value.pools() {
                    lessons.unavailable.record(&pool, attempt.count, at);
                }
            }
        }
        lessons
    }
}

/// A type with eight accelerators.
pub(super) fn machine(name: &str) -> InstanceTypeInfo {
    InstanceTypeInfo {
        name: name.to_owned(),
        vcpu: 96,
        memory_mib: 1024,
        gpus: Vec::new(),
        neuron_devices: 0,
        efa_max: 0,
        network_cards: Vec::new(),
        ipv4_per_interface: 50,
        supports_cluster_group: true,
        usage_classes: vec![UsageClass::OnDemand, UsageClass::Spot],
        architectures: Vec::new(),
        local_storage_gb: 0,
        xen: false,
    }
}

/// The catalogue as one process sees it.
#[derive(Debug)]
pub(super) struct Offers<'a> {
    pub(super) catalogue: &'a Catalogue,
    pub(super) lessons: &'a Lessons,
    pub(super) view: &'a View,
}

impl Offers<'_> {
    fn pool(&self, name: Option<&str>) -> Option<&PoolDef> {
        self.catalogue.pools.iter().find(|pool| Some(pool.name.as_str()) == name)
    }

    /// What the ledger is opened from.
    pub(super) fn inputs<'b>(&self, batches: impl Iterator<Item = &'b Batch>, now: Timestamp) -> LedgerInputs {
        let limits = |pool: &PoolDef| {
            let limits = BTreeMap::from([(ResourceName::from(pool.limited.0), pool.limit)]);
            (pool.name.clone(), PoolLimits { limits, max_micro_usd_per_hour: pool.ceiling })
        };
        let usable = |pool: &str| !self.is_blocked(pool);
        LedgerInputs {
            pools: self.catalogue.pools.iter().map(limits).collect(),
            cluster: self.catalogue.ceiling,
            claims: batches
                .map(|batch| claim(batch, |pool, of| self.catalogue.per_node(pool, of), usable, now))
                .collect(),
        }
    }

    /// The ledger beside all other batches.
    fn ledger(&self, batch: &Batch, others: &Working, before: Before, now: Timestamp) -> Ledger {
        let inputs = self.inputs(others.values().map(|other| &**other), now);
        match before {
            Before::Older => Ledger::before(&inputs, &batch.name),
            Before::Nobody => Ledger::new(&inputs, Some(&batch.name)),
        }
    }

    fn ranking(&self, batch: &Batch, only: Option<&str>, ledger: &Ledger, now: Timestamp) -> Ranking {
        let mut needs = BTreeMap::new();
        let mut offers = Vec::new();
        let in_zone = |zone: &String| batch.spec.zones.is_empty() || batch.spec.zones.contains(zone);
        let sold_as = |one: CapacityType| batch.spec.capacity_type.is_none_or(|only| only == one);
        for name in &batch.spec.node_pools {
            let Some(pool) = self.pool(Some(name)) else { continue };
            if only.map_or_else(|| self.is_blocked(name), |only| only != name) {
                continue;
            }
            let nodes = if only.is_some() { 1 } else { batch.spec.count };
            let named: BTreeSet<String> = batch.spec.offers.iter().map(|offer| offer.instance_type.clone()).collect();
            let mut types: BTreeSet<String> = pool.types().filter(|name| named.contains(*name)).cloned().collect();
            if types.is_empty() {
                types.insert(pool.instance_type.clone());
            }
            for instance_type in &types {
                let key = PoolType { pool: name.clone(), instance_type: instance_type.clone() };
                let capacity = self.catalogue.types.get(instance_type).map(InstanceTypeInfo::capacity);
                let capacity = pool.has(capacity.unwrap_or_default());
                needs.insert(key, Need { nodes, addresses_per_node: 1, capacity });
            }
            let subnet = |zone: &String| Subnet {
                id: format!("subnet-{zone}"),
                zone: zone.clone(),
                zone_id: zone.clone(),
                free_addresses: 1000,
                vpc_id: "vpc-1".to_owned(),
                ipv6: false,
                tags: Tags::new(),
            };
            offers.push(PoolOffer {
                ceilings: ledger.ceilings(name),
                name: name.clone(),
                weight: 0,
                instance_types: types,
                zones: pool.zones.iter().filter(|zone| in_zone(zone)).cloned().collect(),
                capacity_types: pool.capacity_types.iter().copied().filter(|one| sold_as(*one)).collect(),
                group: pool.group,
                left: ledger.left(name),
                limits: ledger.limits(name),
                max_nodes_per_batch: 100,
                subnets: pool.zones.iter().map(subnet).collect(),
                ipv6: false,
                reservations: self.lessons.reservations.clone(),
                min_values: Vec::new(),
            });
        }
        rank_candidates(&RankInput {
            pools: &offers,
            types: &self.catalogue.types,
            needs: &needs,
            group: GroupPolicy::Preferred,
            volume_zones: None,
            offerings: &self.catalogue.offerings,
            prices: &self.catalogue.prices,
            unavailable: &self.lessons.unavailable,
            refusals: &self.lessons.refusals,
            now,
        })
    }
}

impl Supply for Offers<'_> {
    fn unready(&self, batch: &Batch) -> Option<String> {
        batch.spec.node_pools.iter().all(|pool| self.is_blocked(pool)).then(|| "its pools are blocked".to_owned())
    }

    fn blocked_pool(&self, batch: &Batch) -> Option<String> {
        let blocked = || batch.spec.node_pools.iter().filter(|pool| self.is_blocked(pool));
        let goes_on = |pool: &&String| !self.probes(pool).are_used_up(batch, &self.join(Some(pool)));
        blocked().find(goes_on).or_else(|| blocked().next()).cloned()
    }

    fn is_blocked_by(&self, pool: &str, batch: &str) -> bool {
        self.view.blocks.get(pool).is_some_and(|by| by.batch == batch)
    }

    fn is_blocked(&self, pool: &str) -> bool {
        self.view.blocks.contains_key(pool)
    }

    fn probes(&self, pool: &str) -> Probes {
        self.view.blocks.get(pool).map(|block| block.probes.clone()).unwrap_or_default()
    }

    fn takes(&self, pool: &str, _instance_type: &str) -> Option<Resources> {
        self.pool(Some(pool)).filter(|pool| pool.limited.0 != NODES).map(|pool| pool.takes(1))
    }

    fn problems(&self, _batch: &Batch) -> Vec<String> {
        Vec::new()
    }

    fn generations(&self, _batch: &Batch) -> String {
        self.catalogue.generation.to_string()
    }

    fn rank(&self, batch: &Batch, others: &Working, before: Before, now: Timestamp) -> Ranking {
        self.ranking(batch, None, &self.ledger(batch, others, before, now), now)
    }

    fn rank_one(&self, batch: &Batch, pool: &str, others: &Working, now: Timestamp) -> Ranking {
        self.ranking(batch, Some(pool), &self.ledger(batch, others, Before::Older, now), now)
    }

    fn reservations_are_stale(&self, batch: &Batch, now: Timestamp) -> bool {
        let reserved = |pool: &String| {
            self.pool(Some(pool)).is_some_and(|pool| pool.capacity_types.contains(&CapacityType::Reserved))
        };
        let old = self.lessons.read.is_none_or(|at| now.duration_since(at) > SignedDuration::from_secs(30));
        old && batch.spec.node_pools.iter().any(reserved)
    }

    fn image(&self, _pool: &str, _instance_type: &str) -> Option<String> {
        Some("ami-1".to_owned())
    }

    fn template(&self, batch: &Batch, attempt: &Attempt) -> Result<TemplateSpec, String> {
        Ok(made::template(&made::tags(&batch.uid, batch.spec.owner.gang_uid(), attempt.number), attempt.capacity_type))
    }

    fn share_template(&self, _pool: &str, _one: &str, _other: &str) -> bool {
        true
    }

    fn labels(&self, status: &BatchStatus) -> Option<BTreeMap<Arc<str>, Arc<str>>> {
        let pool = self.pool(status.node_pool.as_deref()).filter(|pool| !pool.also.is_empty());
        let of_type = status.instance_type.as_deref().filter(|_| pool.is_some());
        Some(of_type.map(|name| (Arc::from(OF_TYPE), Arc::from(name))).into_iter().collect())
    }

    fn tags(&self, _batch: &Batch, attempt: &Attempt) -> Tags {
        Tags::from([("muster.dev/nodepool".to_owned(), attempt.node_pool.clone())])
    }

    fn without_fleets(&self, now: Timestamp) -> bool {
        self.lessons.refusals.without_fleets(now)
    }

    fn join(&self, pool: Option<&str>) -> JoinClocks {
        self.pool(pool).map(|pool| pool.join.clone()).unwrap_or_default()
    }

    fn devices(&self, status: &BatchStatus) -> Vec<(ResourceName, i64)> {
        if self.pool(status.node_pool.as_deref()).is_some_and(|pool| pool.cpu.is_some()) {
            return Vec::new();
        }
        vec![(NVIDIA_GPU.into(), 8)]
    }

    fn taints(&self, pool: Option<&str>) -> Vec<Taint> {
        self.pool(pool).map(|pool| pool.taints.clone()).unwrap_or_default()
    }

    fn consolidate_after(&self, pool: Option<&str>) -> Option<SignedDuration> {
        self.pool(pool).and_then(|pool| pool.consolidate)
    }

    fn foreign_pods_after(&self, pool: Option<&str>) -> Option<SignedDuration> {
        self.pool(pool).and_then(|pool| pool.foreign)
    }

    fn levels(&self, batch: &Batch) -> WantedLevels {
        self.catalogue.levels.get(&batch.name).cloned().unwrap_or_default()
    }

    fn has_request(&self, owner: &OwnerRef) -> bool {
        self.view.requests.contains(&owner.uid)
    }

    fn blame(&self, _pool: &str, _kind: ErrorClass, _code: Option<&str>, _message: &str) -> Option<String> {
        None
    }

    fn lacks(&self, _pool: Option<&str>) -> Option<String> {
        None
    }
}
