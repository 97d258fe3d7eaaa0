//! Eight gangs and four ProvisioningRequests want more than the limit of their one pool allows, of nodes, CPU, memory or accelerators, or
//! more dollars.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use muster_core::batch::claim;
use muster_core::ec2::CapacityType;
use muster_core::model::batch::{BatchOffer, BatchPhase, BatchSpec, Owner, OwnerRef};
use muster_core::model::resources::{CPU, MEMORY};
use muster_core::offering::{Amounts, Ceiling, GroupPolicy, NODES, Standing};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::cluster::{Actor, Cluster, Manners};
use super::draw;
use super::ec2::{Ec2, Habits};
use super::history::{History, Lease};
use super::services;
use super::supply::PoolDef;
use crate::world::{at, key};

/// Races of one run; fewer where fewer histories are asked for.
const SEEDS: u64 = 200;
const GANGS: usize = 8;
const REQUESTS: usize = 4;
const DEPLOYMENTS: usize = 50;
const POOL: &str = "p0";
/// What limits are of, and how much of it a node takes.
pub(super) const RESOURCES: [(&str, i64); 4] =
    [(NODES, 1), (CPU, 192_000), (MEMORY, 2_048 << 30), ("nvidia.com/gpu", 8)];

/// What is scarce.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Scarce {
    /// A resource, and how much of it a node takes.
    Of(&'static str, i64),
    /// Dollars per hour of the pool.
    Dollars,
    /// … and of the whole cluster.
    DollarsOfAll,
}

fn pool(scarce: Scarce, rng: &mut ChaCha8Rng) -> PoolDef {
    let most = rng.random_range(5..16);
    let (limited, limit) = match scarce {
        // What is left beyond whole nodes serves nobody.
        Scarce::Of(limited, each) => ((limited, each), most * each + rng.random_range(0..each)),
        Scarce::Dollars | Scarce::DollarsOfAll => ((NODES, 1), 1000),
    };
    PoolDef {
        name: POOL.to_owned(),
        instance_type: "p0.48xlarge".to_owned(),
        also: Vec::new(),
        zones: vec!["a".to_owned()],
        capacity_types: vec![CapacityType::OnDemand],
        limit,
        limited,
        ceiling: (scarce == Scarce::Dollars).then(|| draw::PRICE * u64::try_from(most).unwrap()),
        group: GroupPolicy::None,
        join: muster_core::batch::JoinClocks::default(),
        consolidate: Some(SignedDuration::from_secs(rng.random_range(0..60))),
        foreign: None,
        cpu: None,
        taints: Vec::new(),
    }
}

/// The type that nodes for pods of no gang are of, and the milli-CPUs of each.
const FOR_PODS: (&str, i64) = ("p0.large", 4_000);

/// A world in which nothing is scarce but what is named, `with_pods`: for pods of no gang too.
fn world(seed: u64, scarce: Scarce, with_pods: bool) -> History {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let mut pool = pool(scarce, &mut rng);
    if with_pods {
        (pool.also, pool.cpu) = (vec![FOR_PODS.0.to_owned()], Some(FOR_PODS.1));
    }
    let mut catalogue = draw::catalogue(vec![pool]);
    catalogue.prices.set(FOR_PODS.0, None, CapacityType::OnDemand, draw::PRICE / 2);
    if scarce == Scarce::DollarsOfAll {
        catalogue.ceiling = Ceiling::At(draw::PRICE * rng.random_range(5..16));
    }
    let habits = Habits {
        lag: [0, 2, 20][rng.random_range(0..3)],
        contradicts: 0.0,
        forgets: 0.0,
        ends_within: 30,
        quota: 1000,
        fleets: 1000,
        groups: 500,
    };
    let mut ec2 = Ec2::new(at(0), habits);
    for name in ["p0.48xlarge", FOR_PODS.0] {
        ec2.free.insert((name.to_owned(), "a".to_owned()), vec![1000]);
    }
    let manners = Manners {
        never_registers: 0.0,
        never_ready: 0.0,
        broken: BTreeMap::new(),
        cleans: true,
        refuses_evictions: false,
        foreign_pods: 0.0,
    };
    let mut cluster = Cluster::new(at(0), manners);
    for number in 0..GANGS + REQUESTS {
        let count = rng.random_range(1..=6);
        let asks = if number < GANGS { Asks::Gang } else { Asks::Request };
        let from = at(rng.random_range(0..3));
        submit(&mut cluster, (POOL, "p0.48xlarge"), number, asks, count, from);
    }
    if with_pods {
        cluster.ordinary.insert(FOR_PODS.0.to_owned(), FOR_PODS.1);
    }
    let mut sim = History::of(seed, (ec2, cluster, catalogue), rng);
    sim.undisturbed = true;
    if with_pods {
        sim.services = Some(Box::default());
    }
    sim
}

/// Who asks for nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Asks {
    Gang,
    Request,
}

/// A gang or a ProvisioningRequest of a number, with its NodeBatch.
pub(super) fn submit(
    cluster: &mut Cluster,
    (pool, instance_type): (&str, &str),
    number: usize,
    asks: Asks,
    count: u32,
    from: Timestamp,
) {
    let name = format!("g{number:02}");
    let of_batch = format!("{name}-1");
    let mut actor = Actor::new(&name, &of_batch, usize::try_from(count).unwrap(), at(100_000));
    let owner = match asks {
        Asks::Gang => Owner::Gang(OwnerRef { key: key(&name), uid: actor.gang.uid.to_string() }),
        Asks::Request => {
            let request = format!("r{number}");
            actor.request = Some(request.clone());
            cluster.requests.insert(format!("{request}-uid"));
            Owner::Request(OwnerRef { key: key(&request), uid: format!("{request}-uid") })
        }
    };
    let offer = BatchOffer { node_pool: pool.to_owned(), instance_type: instance_type.to_owned(), count };
    let spec =
        BatchSpec { node_pools: vec![pool.to_owned()], count, owner, offers: vec![offer], ..BatchSpec::default() };
    cluster.put(draw::batch(&of_batch, spec, from));
    cluster.actors.insert(name, actor);
}

/// What of the scarce is there: nodes, or micro-dollars per hour.
fn limit(sim: &History) -> i64 {
    let pool = &sim.catalogue.pools[0];
    match (pool.ceiling, sim.catalogue.ceiling) {
        (Some(most), _) | (None, Ceiling::At(most)) => i64::try_from(most).unwrap(),
        (None, Ceiling::Unlimited) => pool.limit,
    }
}

/// How much of it batches which have begun take, and how much each of the others wants.
fn taken(sim: &History) -> (i64, Vec<i64>) {
    let dollars = sim.catalogue.has_ceilings();
    let amount = |one: &Amounts| {
        if dollars {
            i64::try_from(one.micro_usd_per_hour).unwrap()
        } else {
            one.resources.get(sim.catalogue.pools[0].limited.0)
        }
    };
    let (mut taken, mut waiting) = (0, Vec::new());
    for (_, batch) in sim.cluster.batches.values() {
        let claim = claim(batch, |pool, of| sim.catalogue.per_node(pool, of), |_| true, sim.now);
        let amounts: i64 = claim.amounts.values().map(amount).sum();
        match claim.standing {
            Standing::Begun => taken += amounts,
            Standing::Waiting | Standing::Resting if !batch.deleting => waiting.push(amounts),
            Standing::Waiting | Standing::Resting => {}
        }
    }
    (taken, waiting)
}

/// Lives until `until`; at no moment is more taken than the limit allows, by the statuses or in EC2.
fn live(sim: &mut History, lease: &mut Lease, until: i64) -> Result<(), String> {
    let limit = limit(sim);
    let mut version = 0;
    while sim.now < at(until) {
        sim.line(lease);
        if let Some(wrong) = sim.wrong.take().or_else(|| sim.ec2.wrong.take()) {
            return Err(wrong);
        }
        if sim.cluster.version != version {
            version = sim.cluster.version;
            let (taken, _) = taken(sim);
            if taken > limit {
                return Err(format!("{taken} are taken of {limit}"));
            }
        }
    }
    Ok(())
}

/// Whether somebody who waits would fit in.
fn is_used_up(sim: &History) -> Result<i64, String> {
    let limit = limit(sim);
    let (taken, waiting) = taken(sim);
    match waiting.iter().find(|count| taken + **count <= limit) {
        Some(count) => Err(format!("{taken} of {limit} are taken, and {count} more wait at {}", sim.now)),
        None if sim.catalogue.has_ceilings() => Ok(limit - taken),
        None => Ok((limit - taken) / sim.catalogue.pools[0].limited.1),
    }
}

/// The race of one seed. The answer is what was left of the limit, at the start and after some have ended, and whether a
/// request had nodes.
fn race(seed: u64, scarce: Scarce) -> Result<(i64, i64, bool), String> {
    let mut sim = world(seed, scarce, false);
    let mut lease = Lease::default();
    // Crashes and faults at first; who was refused has waited out its pause after that.
    live(&mut sim, &mut lease, 100)?;
    sim.dice.calm = true;
    live(&mut sim, &mut lease, 1500)?;
    let left = is_used_up(&sim)?;
    let begun = |sim: &History, number: usize| {
        let batch = sim.cluster.batches.get(&format!("g{number:02}-1"));
        batch.is_some_and(|(_, batch)| batch.status.phase != BatchPhase::Pending)
    };
    let request = (GANGS..GANGS + REQUESTS).any(|number| begun(&sim, number));
    // Some end: what they had goes to who waits.
    for number in (0..GANGS + REQUESTS).filter(|number| begun(&sim, *number)).take(2).collect::<Vec<_>>() {
        let History { cluster, rng, .. } = &mut sim;
        cluster.end(&format!("g{number:02}"), rng);
    }
    live(&mut sim, &mut lease, 4000)?;
    Ok((left, is_used_up(&sim)?, request))
}

/// The race of one seed with fifty Deployments beside the gangs and requests. The answer is how often the limit was used to the last
/// node, and whether pods had nodes.
fn race_with_pods(seed: u64, scarce: Scarce) -> Result<(u32, bool), String> {
    let mut sim = world(seed, scarce, true);
    for number in 0..DEPLOYMENTS {
        let milli_cpu = [900, 1_700, 3_500][sim.rng.random_range(0..3)];
        let replicas = sim.rng.random_range(1..3);
        services::deploy(&mut sim, &format!("d{number}"), milli_cpu, replicas);
    }
    let mut lease = Lease::default();
    live(&mut sim, &mut lease, 100)?;
    sim.dice.calm = true;
    live(&mut sim, &mut lease, 1500)?;
    let full = |sim: &History| {
        let left = is_used_up(sim)?;
        match services::waiting(sim) {
            Some(pod) if left > 0 => Err(format!("{left} more nodes may come, and pod {pod} waits at {}", sim.now)),
            Some(_) | None => Ok(u32::from(left == 0)),
        }
    };
    let mut used = full(&sim)?;
    let had = sim.cluster.batches.values().any(|(_, batch)| batch.spec.owner == Owner::Pods);
    // Some of each end: what they had goes to who waits.
    let begun = |sim: &History, number: usize| {
        let batch = sim.cluster.batches.get(&format!("g{number:02}-1"));
        batch.is_some_and(|(_, batch)| batch.status.phase != BatchPhase::Pending)
    };
    for number in (0..GANGS + REQUESTS).filter(|number| begun(&sim, *number)).take(1).collect::<Vec<_>>() {
        let History { cluster, rng, .. } = &mut sim;
        cluster.end(&format!("g{number:02}"), rng);
    }
    for number in 0..DEPLOYMENTS / 2 {
        services::scale_to_zero(&mut sim, number);
    }
    live(&mut sim, &mut lease, 4000)?;
    used += full(&sim)?;
    Ok((used, had))
}

#[test]
#[expect(clippy::print_stderr, reason = "how often the limit was used up belongs to the evidence")]
fn eight_gangs_fifty_deployments_and_four_requests_use_one_limit_up_and_never_pass_it() {
    let (mut full, mut had, mut wrong) = (0, 0, Vec::new());
    let seeds = (SEEDS / 2).min(super::histories());
    for (seed, (limited, each)) in (0..seeds).zip(RESOURCES.into_iter().cycle()) {
        match race_with_pods(seed, Scarce::Of(limited, each)) {
            Ok((used, pods)) => (full, had) = (full + used, had + u32::from(pods)),
            Err(what) => wrong.push(format!("{limited}, seed {seed}: {what}")),
        }
    }
    eprintln!("{seeds} races: used to the last node {full} times of {}; pods had nodes in {had}", 2 * seeds);
    assert!(wrong.is_empty(), "{} races went wrong:\n{}", wrong.len(), wrong.join("\n"));
    assert!(full > 0 && had > 0, "{full} times to the last node, {had} with nodes for pods");
}

#[test]
fn the_same_hold_for_dollars_of_their_pool_and_of_the_cluster_while_prices_stay() {
    for scarce in [Scarce::Dollars, Scarce::DollarsOfAll] {
        let races = (0..SEEDS.min(super::histories()) / 4 + 1).map(|seed| (seed, race(seed, scarce)));
        let (went, wrong): (Vec<_>, Vec<_>) = races.partition(|(_, race)| race.is_ok());
        assert!(wrong.is_empty(), "{scarce:?}: {wrong:?}");
        let full = went.iter().filter(|(_, race)| matches!(race, Ok((left, after, _)) if *left == 0 || *after == 0));
        assert!(full.count() > 0, "{scarce:?}: never used to the last dollar");
    }
}

#[test]
#[expect(clippy::print_stderr, reason = "how far the limit was used belongs to the evidence")]
fn eight_gangs_and_four_requests_use_one_limit_up_and_never_pass_it() {
    let (mut full, mut requests, mut wrong) = (0, 0, Vec::new());
    let seeds = SEEDS.min(super::histories());
    // Of nodes twice as many as of each other resource.
    let of =
        |(limited, each)| (0..if limited == NODES { seeds } else { seeds / 2 }).map(move |seed| (seed, limited, each));
    let races: Vec<(u64, &str, i64)> = RESOURCES.into_iter().flat_map(of).collect();
    for (seed, limited, each) in races.iter().copied() {
        match race(seed, Scarce::Of(limited, each)) {
            Ok((left, after, request)) => {
                full += u32::from(left == 0) + u32::from(after == 0);
                requests += u32::from(request);
            }
            Err(what) => wrong.push(format!("{limited}, seed {seed}: {what}")),
        }
    }
    eprintln!(
        "{} races: the limit was used to the last node {full} times of {}; requests had a part {requests} times",
        races.len(),
        2 * races.len()
    );
    assert!(wrong.is_empty(), "{} races went wrong:\n{}", wrong.len(), wrong.join("\n"));
    assert!(full > 0 && requests > 0, "{full} times to the last node, {requests} with a request");
}
