//! Eight gangs and four ProvisioningRequests want more nodes than the limit of their one pool allows.

use std::collections::BTreeMap;

use jiff::SignedDuration;
use muster_core::batch::claim;
use muster_core::ec2::CapacityType;
use muster_core::model::batch::{BatchOffer, BatchPhase, BatchSpec, Owner, OwnerRef};
use muster_core::offering::{GroupPolicy, NODES, Standing};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::cluster::{Actor, Cluster, Manners};
use super::draw;
use super::ec2::{Ec2, Habits};
use super::history::{History, Lease};
use super::supply::PoolDef;
use crate::world::{at, key};

/// Races of one run; fewer where fewer histories are asked for.
const SEEDS: u64 = 200;
const GANGS: usize = 8;
const REQUESTS: usize = 4;
const POOL: &str = "p0";

fn pool(rng: &mut ChaCha8Rng) -> PoolDef {
    PoolDef {
        name: POOL.to_owned(),
        instance_type: "p0.48xlarge".to_owned(),
        zones: vec!["a".to_owned()],
        capacity_types: vec![CapacityType::OnDemand],
        limit: rng.random_range(5..16),
        group: GroupPolicy::None,
        join: muster_core::batch::JoinClocks::default(),
        consolidate: Some(SignedDuration::from_secs(rng.random_range(0..60))),
        foreign: None,
        cpu: None,
    }
}

/// A world in which nothing is scarce but the limit.
fn world(seed: u64) -> History {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let catalogue = draw::catalogue(vec![pool(&mut rng)]);
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
    ec2.free.insert(("p0.48xlarge".to_owned(), "a".to_owned()), vec![1000]);
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
        let name = format!("g{number:02}");
        let of_batch = format!("{name}-1");
        let count = rng.random_range(1..=6);
        let mut actor = Actor::new(&name, &of_batch, usize::try_from(count).unwrap(), at(100_000));
        let owner = if number < GANGS {
            Owner::Gang(OwnerRef { key: key(&name), uid: actor.gang.uid.to_string() })
        } else {
            let request = format!("r{number}");
            actor.request = Some(request.clone());
            cluster.requests.insert(format!("{request}-uid"));
            Owner::Request(OwnerRef { key: key(&request), uid: format!("{request}-uid") })
        };
        let offer = BatchOffer { node_pool: POOL.to_owned(), instance_type: "p0.48xlarge".to_owned(), count };
        let spec =
            BatchSpec { node_pools: vec![POOL.to_owned()], count, owner, offers: vec![offer], ..BatchSpec::default() };
        cluster.put(draw::batch(&of_batch, spec, at(rng.random_range(0..3))));
        cluster.actors.insert(name, actor);
    }
    let mut sim = History::of(seed, (ec2, cluster, catalogue), rng);
    sim.undisturbed = true;
    sim
}

/// Nodes that batches which have begun take, and how many each of the others wants.
fn taken(sim: &History) -> (i64, Vec<i64>) {
    let (mut taken, mut waiting) = (0, Vec::new());
    for (_, batch) in sim.cluster.batches.values() {
        let claim = claim(batch, |_, _| None, |_| true, sim.now);
        match claim.standing {
            Standing::Begun => taken += claim.amounts.values().map(|one| one.resources.get(NODES)).sum::<i64>(),
            Standing::Waiting | Standing::Resting if !batch.deleting => waiting.push(i64::from(batch.spec.count)),
            Standing::Waiting | Standing::Resting => {}
        }
    }
    (taken, waiting)
}

/// Lives until `until`; at no moment is more taken than the limit allows, by the statuses or in EC2.
fn live(sim: &mut History, lease: &mut Lease, until: i64) -> Result<(), String> {
    let limit = sim.catalogue.pools[0].limit;
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
                return Err(format!("{taken} nodes are taken of {limit}"));
            }
        }
    }
    Ok(())
}

/// Whether somebody who waits would fit in.
fn is_used_up(sim: &History) -> Result<i64, String> {
    let limit = sim.catalogue.pools[0].limit;
    let (taken, waiting) = taken(sim);
    match waiting.iter().find(|count| taken + **count <= limit) {
        Some(count) => Err(format!("{taken} of {limit} nodes are taken, and {count} more wait at {}", sim.now)),
        None => Ok(limit - taken),
    }
}

/// The race of one seed. The answer is what was left of the limit, at the start and after some have ended, and whether a
/// request had nodes.
fn race(seed: u64) -> Result<(i64, i64, bool), String> {
    let mut sim = world(seed);
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

#[test]
#[expect(clippy::print_stderr, reason = "how far the limit was used belongs to the evidence")]
fn eight_gangs_and_four_requests_use_one_limit_up_and_never_pass_it() {
    let (mut full, mut requests, mut wrong) = (0, 0, Vec::new());
    let seeds = SEEDS.min(super::histories());
    for seed in 0..seeds {
        match race(seed) {
            Ok((left, after, request)) => {
                full += u32::from(left == 0) + u32::from(after == 0);
                requests += u32::from(request);
            }
            Err(what) => wrong.push(format!("seed {seed}: {what}")),
        }
    }
    eprintln!(
        "{seeds} races: the limit was used to the last node {full} times of {}; requests had a part {requests} times",
        2 * seeds
    );
    assert!(wrong.is_empty(), "{} races went wrong:\n{}", wrong.len(), wrong.join("\n"));
    assert!(full > 0 && requests > 0, "{full} times to the last node, {requests} with a request");
}
