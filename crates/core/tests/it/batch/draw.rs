//! What a history begins with: pools, capacity, gangs and their batches, drawn from a seed.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use muster_core::batch::{JoinClocks, WantedLevels};
use muster_core::ec2::CapacityType;
use muster_core::ec2::Offering;
use muster_core::model::batch::{Batch, BatchOffer, BatchSpec, BatchStatus, Owner, OwnerRef};
use muster_core::offering::PriceBook;
use muster_core::offering::{Ceiling, GroupPolicy, NODES};
use muster_core::topology::{Level, NETWORK_LAYER_KEYS};
use rand::RngExt;
use rand_chacha::ChaCha8Rng;

use super::cluster::{Actor, Cluster, Manners};
use super::ec2::{Ec2, Habits, Hosts};
use super::supply::{Catalogue, PoolDef, machine};
use crate::world::{at, key};

/// So many histories have each rare story among them.
pub(super) const STORIES: usize = 10;

/// What a history is about: whatever comes, or what seldom comes by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Story {
    Anything,
    /// A pool whose nodes do not join at first, and do when they are tried alone.
    Blocked,
    /// Nodes that die while their batch is whole, and that nobody but Muster deletes.
    Losses,
}

impl Story {
    pub(super) fn of(seed: u64) -> Self {
        match usize::try_from(seed).unwrap() % STORIES {
            0 => Self::Blocked,
            1 | 4 | 7 => Self::Losses,
            _ => Self::Anything,
        }
    }
}

fn minutes(count: i64) -> SignedDuration {
    SignedDuration::from_mins(count)
}

pub(super) fn habits(story: Story, rng: &mut ChaCha8Rng) -> Habits {
    if story == Story::Blocked {
        let lag = [0, 2][rng.random_range(0..2)];
        return Habits { lag, contradicts: 0.0, forgets: 0.0, ends_within: 2, quota: 1000, fleets: 1000, groups: 500 };
    }
    Habits {
        lag: [0, 2, 20][rng.random_range(0..3)],
        contradicts: [0.0, 0.0, 0.2][rng.random_range(0..3)],
        forgets: [0.0, 0.3][rng.random_range(0..2)],
        ends_within: [2, 90][rng.random_range(0..2)],
        quota: if rng.random_bool(0.15) { rng.random_range(2..8) } else { 1000 },
        fleets: if rng.random_bool(0.2) { rng.random_range(0..4) } else { 1000 },
        groups: if rng.random_bool(0.1) { rng.random_range(0..3) } else { 500 },
    }
}

pub(super) fn manners(story: Story, pools: &[PoolDef], rng: &mut ChaCha8Rng) -> Manners {
    let mut broken = BTreeMap::new();
    if rng.random_bool(0.9) {
        let pool = &pools[rng.random_range(0..pools.len())];
        broken.insert(pool.instance_type.clone(), at(rng.random_range(30..300)));
    }
    if story == Story::Blocked {
        let all = pools.iter().map(|pool| pool.instance_type.clone());
        let broken = all.map(|name| (name, at(rng.random_range(100..200)))).collect();
        return Manners {
            never_registers: 0.0,
            never_ready: 0.0,
            broken,
            cleans: rng.random_bool(0.5),
            refuses_evictions: false,
            foreign_pods: 0.0,
        };
    }
    Manners {
        never_registers: [0.0, 0.0, 0.15][rng.random_range(0..3)],
        never_ready: [0.0, if story == Story::Losses { 0.4 } else { 0.0 }, 0.4][rng.random_range(0..3)],
        broken,
        cleans: story != Story::Losses && rng.random_bool(0.5),
        refuses_evictions: rng.random_bool(0.5),
        foreign_pods: [0.0, 0.04][rng.random_range(0..2)],
    }
}

pub(super) fn pools(story: Story, rng: &mut ChaCha8Rng) -> Vec<PoolDef> {
    let blocked = story == Story::Blocked;
    let capacity_types: [&[CapacityType]; 4] = [
        &[CapacityType::OnDemand],
        &[CapacityType::Spot, CapacityType::OnDemand],
        &[CapacityType::Reserved, CapacityType::OnDemand],
        &[CapacityType::Reserved],
    ];
    let pool = |number: usize, rng: &mut ChaCha8Rng| PoolDef {
        name: format!("p{number}"),
        instance_type: format!("p{number}.48xlarge"),
        also: Vec::new(),
        zones: ["a", "b"][..rng.random_range(1..=2)].iter().map(|zone| (*zone).to_owned()).collect(),
        capacity_types: capacity_types[if blocked { 0 } else { rng.random_range(0..4) }].to_vec(),
        limit: if blocked { 16 } else { rng.random_range(2..8) },
        limited: (NODES, 1),
        ceiling: None,
        group: [GroupPolicy::Preferred, GroupPolicy::Required, GroupPolicy::None][rng.random_range(0..3)],
        join: JoinClocks {
            register_within: minutes(3),
            ready_within: minutes(2),
            replace_after: minutes(1),
            max_replacements: match story {
                Story::Losses => "100%".to_owned(),
                Story::Blocked => "0".to_owned(),
                Story::Anything => ["0", "1", "100%"][rng.random_range(0..3)].to_owned(),
            },
            max_probes: if blocked { 8 } else { rng.random_range(1..4) },
            max_probe_micro_usd: if blocked { 1_000_000 } else { [125_000, 1_000_000][rng.random_range(0..2)] },
        },
        consolidate: (!rng.random_bool(0.1)).then(|| SignedDuration::from_secs(rng.random_range(0..120))),
        foreign: (!rng.random_bool(0.1)).then(|| minutes(1)),
        cpu: None,
        taints: Vec::new(),
    };
    let count = if blocked { 1 } else { rng.random_range(1..=3) };
    (0..count).map(|number| pool(number, rng)).collect()
}

pub(super) fn catalogue(pools: Vec<PoolDef>) -> Catalogue {
    let mut prices = PriceBook::default();
    let mut offerings = BTreeSet::new();
    for pool in &pools {
        for capacity_type in [CapacityType::OnDemand, CapacityType::Spot] {
            prices.set(&pool.instance_type, None, capacity_type, PRICE);
        }
        for (zone, name) in pool.zones.iter().flat_map(|zone| pool.types().map(move |name| (zone, name))) {
            offerings.insert(Offering { instance_type: name.clone(), zone: zone.clone() });
        }
    }
    let types = pools.iter().flat_map(PoolDef::types).map(|name| (name.clone(), machine(name))).collect();
    Catalogue { pools, types, offerings, prices, ceiling: Ceiling::Unlimited, levels: BTreeMap::new(), generation: 1 }
}

/// What one node costs where nothing else is drawn.
pub(super) const PRICE: u64 = 1_000_000;

/// Ceilings on dollars per hour, of some pools and of the cluster. They have dice of their own.
pub(super) fn ceilings(story: Story, catalogue: &mut Catalogue, dice: &mut ChaCha8Rng) {
    if story == Story::Blocked || dice.random_bool(0.5) {
        return;
    }
    for pool in &mut catalogue.pools {
        pool.ceiling = dice.random_bool(0.5).then(|| PRICE * dice.random_range(2..8));
    }
    if dice.random_bool(0.5) {
        catalogue.ceiling = Ceiling::At(PRICE * dice.random_range(3..14));
    }
}

/// EC2 asks another price for one way to launch.
pub(super) fn reprice(catalogue: &mut Catalogue, dice: &mut ChaCha8Rng) {
    let pool = &catalogue.pools[dice.random_range(0..catalogue.pools.len())];
    let sold = [CapacityType::OnDemand, CapacityType::Spot][dice.random_range(0..2)];
    let price = PRICE / 10 * dice.random_range(5..20);
    catalogue.prices.set(&pool.instance_type, None, sold, price);
}

/// Capacity, reservations, and names that others have taken.
pub(super) fn stock(story: Story, ec2: &mut Ec2, pools: &[PoolDef], rng: &mut ChaCha8Rng) {
    for pool in pools {
        for zone in &pool.zones {
            let least = if story == Story::Blocked { 4 } else { 0 };
            let spines = vec![rng.random_range(least..5), rng.random_range(least..7)];
            ec2.free.insert((pool.instance_type.clone(), zone.clone()), spines);
            if pool.capacity_types.contains(&CapacityType::Reserved) && rng.random_bool(0.8) {
                let id = format!("cr-{}-{zone}", pool.name);
                let group = rng.random_bool(0.3).then(|| format!("theirs-{zone}"));
                if let Some(group) = &group {
                    ec2.foreign_group(group);
                }
                let hosts = Hosts {
                    instance_type: pool.instance_type.clone(),
                    zone: zone.clone(),
                    group,
                    total: rng.random_range(1..6),
                };
                ec2.reservations.insert(id, hosts);
            }
        }
    }
}

/// When an owner ends: often while its batch is launched.
fn end(story: Story, rng: &mut ChaCha8Rng) -> Timestamp {
    match story {
        Story::Anything => {}
        Story::Blocked => return at(rng.random_range(600..900)),
        Story::Losses => return at(rng.random_range(100..500)),
    }
    let seconds = if rng.random_bool(0.3) { rng.random_range(0..120) } else { rng.random_range(150..800) };
    at(seconds)
}

pub(super) fn batch(name: &str, spec: BatchSpec, created: Timestamp) -> Batch {
    Batch {
        name: name.to_owned(),
        uid: format!("{name}-uid"),
        created: Some(created),
        deleting: false,
        spec: Arc::new(spec),
        status: BatchStatus::default(),
        newer: None,
    }
}

/// Three or more batches with their owners.
pub(super) fn wanted(
    story: Story,
    cluster: &mut Cluster,
    catalogue: &mut Catalogue,
    ec2: &mut Ec2,
    rng: &mut ChaCha8Rng,
) {
    for number in 0..rng.random_range(3..=4) {
        let name = format!("g{number}");
        let of_batch = format!("{name}-1");
        let count = rng.random_range(if story == Story::Blocked { 2 } else { 1 }..=4);
        let ends = end(story, rng);
        let least = if rng.random_bool(0.4) { 1 } else { usize::try_from(count).unwrap() };
        let mut actor = Actor::new(&name, &of_batch, least, ends);
        actor.deleted = story == Story::Losses || rng.random_bool(0.5);
        // Whose batch is not deleted with it is looked up.
        actor.cascades = story != Story::Losses && rng.random_bool(0.5);
        actor.elsewhere = rng.random_bool(0.08).then(|| at(rng.random_range(10..300)));
        let owner = match rng.random_range(0..20) {
            0..=15 => Owner::Gang(OwnerRef { key: key(&name), uid: actor.gang.uid.to_string() }),
            16..=18 => {
                let request = format!("r{number}");
                actor.request = Some(request.clone());
                cluster.requests.insert(format!("{request}-uid"));
                Owner::Request(OwnerRef { key: key(&request), uid: format!("{request}-uid") })
            }
            _ => Owner::Pods,
        };
        let mut names: Vec<String> = catalogue.pools.iter().map(|pool| pool.name.clone()).collect();
        names.rotate_left(rng.random_range(0..catalogue.pools.len()));
        names.truncate(rng.random_range(1..=names.len()));
        let offer =
            |pool: &String| BatchOffer { node_pool: pool.clone(), instance_type: format!("{pool}.48xlarge"), count };
        let level = Level { name: Arc::from("spine"), key: Arc::from(NETWORK_LAYER_KEYS[1]) };
        let levels = match rng.random_range(0..6) {
            0 | 1 => WantedLevels { required: Some(level), preferred: None },
            2 => WantedLevels { required: None, preferred: Some(level) },
            _ => WantedLevels::default(),
        };
        let levels = if story == Story::Blocked { WantedLevels::default() } else { levels };
        let spec = BatchSpec {
            offers: names.iter().map(offer).collect(),
            node_pools: names,
            count,
            partial: rng.random_bool(0.1),
            owner,
            placement_group: None,
            zones: Vec::new(),
            capacity_type: None,
            fillings: Vec::new(),
            reserves: BTreeMap::new(),
        };
        if spec.partial {
            actor.least = 1;
            actor.gang.minimum = 1;
        }
        // The name of its first group may be somebody else's.
        if rng.random_bool(0.05) {
            ec2.foreign_group(&format!("prod-{name}-1-uid-1"));
        }
        catalogue.levels.insert(of_batch.clone(), levels);
        cluster.put(batch(&of_batch, spec, at(number)));
        cluster.actors.insert(name, actor);
    }
}
