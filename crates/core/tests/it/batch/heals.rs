//! Whatever went wrong before: once nothing goes wrong any more, every gang that still wants its nodes has them all, in
//! bounded time and with a bounded number of writes.

use jiff::SignedDuration;
use muster_core::ec2::CapacityType;
use muster_core::model::batch::{BatchPhase, Owner};
use muster_core::model::gang::Phase;
use muster_core::offering::Ceiling;
use rand::RngExt;

use super::history::{History, Lease};
use crate::world::at;

/// Histories of one run; fewer where fewer are asked for.
const SEEDS: u64 = 300;
/// A pause of ten minutes and a fifth, a launch that was begun and does not join, its end, and a launch that does.
const WITHIN: SignedDuration = SignedDuration::from_mins(40);
/// Status writes of one batch that this may take.
const WRITES: u32 = 80;

/// There is capacity, everything works, and nobody ends.
fn heal(sim: &mut History) {
    sim.tell(|_| "everything works".to_owned());
    sim.dice.calm = true;
    sim.undisturbed = true;
    let habits = &mut sim.ec2.habits;
    (habits.contradicts, habits.forgets) = (0.0, 0.0);
    (habits.quota, habits.fleets, habits.groups) = (1000, 1000, 500);
    for free in sim.ec2.free.values_mut() {
        // On one spine: no level is missed by chance.
        free.fill(0);
        free[0] = 100;
    }
    let manners = &mut sim.cluster.manners;
    (manners.never_registers, manners.never_ready, manners.foreign_pods) = (0.0, 0.0, 0.0);
    manners.refuses_evictions = false;
    manners.broken.clear();
    for actor in sim.cluster.actors.values_mut() {
        (actor.ends, actor.elsewhere) = (at(1_000_000), None);
    }
    // Nor is there a limit, on nodes or on dollars.
    sim.catalogue.ceiling = Ceiling::Unlimited;
    for pool in &mut sim.catalogue.pools {
        pool.limit = 1000;
        pool.ceiling = None;
        pool.foreign.get_or_insert(SignedDuration::from_mins(1));
        if !pool.capacity_types.contains(&CapacityType::OnDemand) {
            pool.capacity_types.push(CapacityType::OnDemand);
        }
    }
    sim.repair_pools();
    sim.writes.clear();
}

/// Gangs that want nodes and do not run on all of them, each with what its batch is about.
fn waiting(sim: &History) -> Vec<String> {
    let mut waiting = Vec::new();
    for (name, actor) in &sim.cluster.actors {
        let elsewhere = actor.gang.places.iter().any(|place| place.node.as_str() == "other-1");
        let Some((_, batch)) = sim.cluster.batches.get(&actor.batch) else { continue };
        // For pods of no gang nobody commits; what a person deletes ends.
        if batch.deleting || elsewhere || batch.spec.owner == Owner::Pods || actor.gang.phase == Some(Phase::Finished) {
            continue;
        }
        let status = &batch.status;
        let runs = actor.gang.phase == Some(Phase::Bound) && status.phase == BatchPhase::InUse;
        let nodes = status.instances.len();
        // An elastic gang that went on without lost nodes, or with a part of the launch, keeps what it has.
        let least = if actor.least == 1 { 1 } else { usize::try_from(batch.spec.count).unwrap() };
        let whole = nodes == usize::try_from(status.count).unwrap() && nodes >= least && status.replaced.is_empty();
        if !runs || !whole || actor.gang.places.len() < actor.least {
            waiting.push(format!(
                "{name} is {:?} on {} nodes, {} {:?} with {nodes}: {:?}",
                actor.gang.phase,
                actor.gang.places.len(),
                batch.name,
                status.phase,
                status.message
            ));
        }
    }
    waiting
}

/// The history of one seed. The answer is how long it took, in seconds, and the most writes of a batch meanwhile.
fn run(seed: u64) -> Result<(i64, u32), String> {
    let mut sim = History::new(seed);
    let mut lease = Lease::default();
    let healed = at(sim.rng.random_range(30..400));
    while sim.now < healed {
        sim.line(&mut lease);
    }
    heal(&mut sim);
    let mut since = None;
    loop {
        sim.line(&mut lease);
        if let Some(wrong) = sim.wrong.take().or_else(|| sim.ec2.wrong.take()) {
            return Err(wrong);
        }
        let waiting = waiting(&sim);
        let most = sim.writes.values().copied().max().unwrap_or(0);
        if sim.now.duration_since(healed) > WITHIN || most > WRITES {
            return Err(format!("after {most} writes, at {}: {}", sim.now, waiting.join("; ")));
        }
        if !waiting.is_empty() {
            since = None;
            continue;
        }
        // It stays so.
        let since = *since.get_or_insert(sim.now);
        if sim.now.duration_since(since) > SignedDuration::from_secs(90) {
            return Ok((since.duration_since(healed).as_secs(), most));
        }
    }
}

#[test]
#[expect(clippy::print_stderr, reason = "how long it takes belongs to the evidence")]
fn once_everything_works_every_gang_that_wants_nodes_has_all_of_them_in_bounded_time_and_writes() {
    let seeds = SEEDS.min(super::histories());
    let (mut longest, mut most, mut wrong) = (0, 0, Vec::new());
    for seed in 0..seeds {
        match run(seed) {
            Ok((seconds, writes)) => (longest, most) = (longest.max(seconds), most.max(writes)),
            Err(what) => wrong.push(format!("seed {seed}: {what:.300}")),
        }
    }
    eprintln!("{seeds} histories: every gang has its nodes after {longest} s and {most} writes at most");
    wrong.truncate(20);
    assert!(wrong.is_empty(), "{} went wrong:\n{}", wrong.len(), wrong.join("\n"));
}
