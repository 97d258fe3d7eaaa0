//! The rounds that launch nodes for pods of no gang, as the process that holds the lease makes them: each NodeBatch is a
//! write of its own, and the process may end, or get no answer, between any two.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::hash::{Hash as _, Hasher as _};
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use muster_core::ec2::CapacityType;
use muster_core::model::batch::{Batch, BatchOffer, BatchSpec, Owner};
use muster_core::model::gang::Pod;
use muster_core::model::node::Usage;
use muster_core::model::resources::Resources;
use muster_core::offering::{Ledger, Pool as Unavailable};
use muster_core::ordinary::{
    Disputes, Fruitless, Launch, Offered, Purchases, Round, SchedulerRefusals, Seen, Unseen, Waiting, Window,
    is_waiting, plan,
};
use muster_core::packing::{Class, Offer, Pool};
use rand::RngExt;

use super::cluster::{TYPE, View, ZONE};
use super::draw;
use super::history::History;
use super::supply::{Lessons, OF_TYPE, Offers};
use crate::world;

/// What the process remembers from round to round.
#[derive(Debug)]
pub(super) struct Rounds {
    window: Window,
    unseen: Unseen,
    purchases: Option<Purchases>,
    fruitless: Option<Fruitless>,
    disputes: Disputes,
    /// Launches that were decided and are not written yet.
    to_make: VecDeque<Launch>,
}

/// What became of a write.
enum Made {
    Answered,
    Unanswered,
    Crashed,
}

impl Rounds {
    pub(super) fn new() -> Self {
        let window = Window::new(SignedDuration::from_secs(1), SignedDuration::from_secs(10));
        Self {
            window,
            unseen: Unseen::default(),
            purchases: None,
            fruitless: None,
            disputes: Disputes::default(),
            to_make: VecDeque::new(),
        }
    }

    /// One line: a batch is written, or a round made if one is due. Whether the process goes on.
    pub(super) fn step(&mut self, view: &View, lessons: &Lessons, sim: &mut History) -> bool {
        if let Some(launch) = self.to_make.pop_front() {
            return match make(&launch, sim) {
                Made::Answered => {
                    self.unseen.made(Arc::clone(&sim.cluster.batches[&launch.name].1), sim.now);
                    true
                }
                Made::Unanswered => {
                    // The round is given up, and whether the batch exists is looked up before the next.
                    self.to_make.clear();
                    self.unseen.unanswered();
                    true
                }
                Made::Crashed => false,
            };
        }
        self.round(view, lessons, sim);
        true
    }

    fn round(&mut self, view: &View, lessons: &Lessons, sim: &mut History) {
        let now = sim.now;
        let shown = |name: &str| view.batches.contains_key(name);
        self.unseen.shown(shown);
        let purchases = self.purchases.get_or_insert_with(|| Purchases::new(sim.refused.clone()));
        let generations = sim.catalogue.pools.iter().map(|pool| (pool.name.as_str().into(), (1, 1))).collect();
        let vain = purchases.look(&Seen {
            batches: view.batches.values().map(|(_, batch)| &**batch).collect(),
            snapshot: &view.snapshot,
            generations,
            now,
            now_real: now,
        });
        sim.refused = purchases.refusals().clone();
        for one in vain {
            sim.tell(|_| one.to_string());
            sim.in_vain.push(one.to_string());
        }
        let mut waiting: Vec<Arc<Pod>> = view.snapshot.pods.values().filter(|pod| is_waiting(pod)).cloned().collect();
        waiting.sort_by_cached_key(|pod| (pod.created, pod.key.clone()));
        let refusals = sim.refused.clone();
        let paused = || sim.paused.iter().cloned();
        let fruitless = self.fruitless.get_or_insert_with(|| Fruitless::taken_over(paused(), now));
        let names: BTreeSet<Arc<str>> = sim.catalogue.pools.iter().map(|pool| pool.name.as_str().into()).collect();
        fruitless.look(view.batches.values().map(|(_, batch)| &**batch), &names, now);
        let fruitless = &*fruitless;
        sim.paused = names.into_iter().filter(|name| fruitless.says(name).is_some()).collect();
        let seen = digest(view, &waiting, &refusals, fruitless.pausing(now), now);
        if !self.window.is_due(now, seen, !waiting.is_empty()) || waiting.is_empty() {
            return;
        }
        if self.unseen.is_due(now) {
            let unseen = sim.cluster.batches.iter().filter(|(name, _)| !shown(name));
            self.unseen.listed(unseen.map(|(_, (_, batch))| Arc::clone(batch)), now);
        }
        let batches: Vec<Arc<Batch>> = view
            .batches
            .values()
            .map(|(_, batch)| Arc::clone(batch))
            .chain(self.unseen.batches().filter(|batch| !shown(&batch.name)).cloned())
            .collect();
        let supply = Offers { catalogue: &sim.catalogue, lessons, view };
        let mut left = Ledger::beside_all(&supply.inputs(batches.iter().map(|batch| &**batch), now));
        let (pools, offers) = offers(sim, lessons, &left);
        let outcome = plan(&Round {
            waiting: waiting.iter().map(|pod| Waiting { pod: Arc::clone(pod), ladder: [class(pod)].into() }).collect(),
            snapshot: &view.snapshot,
            batches,
            most: vec![100; pools.len()],
            pools,
            offers,
            accelerators: &view.snapshot.accelerators,
            refusals: &refusals,
            fruitless,
            disputes: &self.disputes,
            now,
            now_real: now,
        });
        for one in self.disputes.look(&outcome.standing, &view.snapshot, now) {
            sim.disputed.push(format!("{} is not accepted on {}", one.pod.as_str(), one.node.as_str()));
        }
        sim.tell(|_| {
            let launches: Vec<_> =
                outcome.launches.iter().map(|one| (&one.name, &one.instance_type, one.count)).collect();
            let refused = outcome.refused.first().map(|one| &one.why);
            format!(
                "round: {} wait, {} placed, {} joining, {} refused ({refused:?}), {launches:?}",
                waiting.len(),
                outcome.placed,
                outcome.joining,
                outcome.refused.len(),
            )
        });
        let each = |pool: &str| sim.catalogue.pools.iter().find(|one| one.name == *pool).unwrap().takes(1);
        let fits = outcome.launches.into_iter().filter_map(|launch| {
            let each = each(&launch.pool);
            launch.within(&mut left, &each, u32::MAX)
        });
        self.to_make.extend(fits);
    }
}

fn class(pod: &Pod) -> Class {
    let shape = pod.shape.as_ref().unwrap();
    Class { shape: (**shape).clone(), namespace: Arc::clone(&pod.key.namespace), ..Class::default() }
}

/// Everything whose change calls for another round.
fn digest(view: &View, waiting: &[Arc<Pod>], refusals: &SchedulerRefusals, pausing: usize, now: Timestamp) -> u64 {
    let mut hasher = std::hash::DefaultHasher::new();
    (refusals, refusals.waiting(now), pausing).hash(&mut hasher);
    waiting.iter().for_each(|pod| pod.uid.as_str().hash(&mut hasher));
    for (name, (_, batch)) in &view.batches {
        let status = &batch.status;
        (name, status.phase, status.count, status.instances.len()).hash(&mut hasher);
    }
    hasher.finish()
}

/// What all pools offer now, and what their limits have left.
fn offers(sim: &History, lessons: &Lessons, left: &Ledger) -> (Vec<Pool>, Vec<Offered>) {
    let (mut pools, mut offers) = (Vec::new(), Vec::new());
    for (index, pool) in sim.catalogue.pools.iter().enumerate() {
        let Some(cpu) = pool.cpu else { continue };
        // Some are for gangs alone.
        let types = pool.types().filter(|name| sim.cluster.ordinary.contains_key(*name));
        let ways = pool.zones.iter().flat_map(|zone| pool.capacity_types.iter().map(move |one| (zone, *one)));
        for (instance_type, (zone, capacity_type)) in types.flat_map(|name| ways.clone().map(move |way| (name, way))) {
            let mut node = world::node(instance_type, 0);
            node.labels.insert(ZONE.into(), zone.as_str().into());
            node.labels.insert(TYPE.into(), instance_type.as_str().into());
            if !pool.also.is_empty() {
                node.labels.insert(OF_TYPE.into(), instance_type.as_str().into());
            }
            node.allocatable.set("cpu", cpu);
            let asked =
                Unavailable { instance_type: instance_type.clone(), zone: zone.clone(), capacity_type, group: false };
            let price = sim.catalogue.prices.price(instance_type, zone, capacity_type).unwrap();
            let offer = Offer {
                pool: index,
                variant: 0,
                instance_type: instance_type.as_str().into(),
                zone: Some(zone.as_str().into()),
                capacity_type,
                reservation: None,
                free: None,
                price,
                list_price: price,
                capacity: pool.has(Resources::from_iter([("cpu", cpu)])),
                node: Arc::new(node),
                overhead: Usage::default(),
            };
            let available = lessons.unavailable.blocks(&asked, 1, sim.now).is_none()
                && lessons.refusals.against(instance_type, zone, capacity_type, false, sim.now).is_none();
            offers.push(Offered { offer, pool_name: pool.name.as_str().into(), available });
        }
        pools.push(Pool {
            name: pool.name.as_str().into(),
            weight: 0,
            left: left.left(&pool.name),
            min_values: Vec::new(),
        });
    }
    (pools, offers)
}

/// Writes the batch of a launch. One of the same name is for the same pods and the same offer.
fn make(launch: &Launch, sim: &mut History) -> Made {
    sim.take_time();
    let dice = if sim.dice.calm { 100 } else { sim.rng.random_range(0..100) };
    if dice < 3 {
        return Made::Crashed;
    }
    let carried = !(3..6).contains(&dice);
    if carried && !sim.cluster.batches.contains_key(&launch.name) {
        let types = std::iter::once(&launch.instance_type).chain(&launch.other_types);
        let offer = |instance_type: &Arc<str>| BatchOffer {
            node_pool: launch.pool.to_string(),
            instance_type: instance_type.to_string(),
            count: launch.count,
        };
        let spec = BatchSpec {
            node_pools: vec![launch.pool.to_string()],
            count: launch.count,
            partial: true,
            owner: Owner::Pods,
            offers: types.map(offer).collect(),
            placement_group: Some("none".to_owned()),
            zones: std::iter::once(&launch.zone).chain(&launch.other_zones).map(ToString::to_string).collect(),
            capacity_type: (!launch.or_on_demand).then_some(launch.capacity_type),
            fillings: launch.fillings.clone(),
            reserves: BTreeMap::from([(
                launch.pool.to_string(),
                sim.catalogue.pools.iter().find(|one| one.name == *launch.pool).unwrap().takes(launch.count.into()),
            )]),
        };
        // Another for the same pods and offer has the same name, and a UID of its own.
        let uid = format!("{}-{}", launch.name, sim.cluster.version);
        let batch = Batch { uid, ..draw::batch(&launch.name, spec, sim.now) };
        sim.cluster.put(batch);
        sim.launched += u64::from(launch.count);
        debug_assert!(launch.capacity_type != CapacityType::Reserved);
    }
    match dice {
        3..9 => Made::Unanswered,
        9..12 => Made::Crashed,
        _ => Made::Answered,
    }
}
