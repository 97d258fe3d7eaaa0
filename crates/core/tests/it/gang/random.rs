//! Whatever happens around the gangs, after every pass: no capacity is given away twice, nothing is started in part.

use std::collections::BTreeMap;
use std::sync::Arc;

use muster_core::fit;
use muster_core::gang::{BatchStage, Pin, PoolView, TypeView};
use muster_core::model::gang::{Phase, RankClaim};
use muster_core::model::names::PodUid;
use muster_core::model::node::Usage;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::sim::Sim;
use crate::world;

const GANGS: [&str; 3] = ["a", "b", "c"];
const SIZE: u32 = 4;

fn event(sim: &mut Sim, rng: &mut ChaCha8Rng) {
    let pods: Vec<String> = sim.pods.keys().cloned().collect();
    let pod = (!pods.is_empty()).then(|| pods[rng.random_range(0..pods.len())].clone());
    match rng.random_range(0..12) {
        0..=4 => {
            let gang = GANGS[rng.random_range(0..GANGS.len())];
            let rank = rng.random_range(0..SIZE + 1);
            let name = format!("{gang}-{}", rng.random_range(0..1_000));
            if sim.recognised.contains_key(&world::key(gang)) && !sim.pods.contains_key(&name) {
                let claim = if rng.random_bool(0.8) { RankClaim::Rank(rank) } else { RankClaim::Missing };
                sim.member(gang, &name, claim);
            }
        }
        5 => drop(pod.and_then(|pod| sim.pods.remove(&pod))),
        6 => {
            if let Some(pod) = pod.filter(|pod| sim.pods[pod].node.is_some()) {
                sim.end(&pod, rng.random_bool(0.5));
            }
        }
        7 => {
            if let Some(pod) = pod {
                sim.pods.get_mut(&pod).unwrap().deleting = true;
            }
        }
        8 => {
            let name = format!("n{}", rng.random_range(0..6));
            if sim.nodes.remove(&name).is_none() {
                sim.nodes.insert(name.clone(), world::node(&name, rng.random_range(1..4)));
            }
        }
        9 => {
            let name = format!("n{}", rng.random_range(0..6));
            if let Some(node) = sim.nodes.get_mut(&name) {
                node.unschedulable = !node.unschedulable;
            }
        }
        10 => {
            let stages = [BatchStage::Provisioning, BatchStage::BackingOff, BatchStage::Ready, BatchStage::Ending];
            let stage = stages[rng.random_range(0..stages.len())];
            if let Some(name) = sim.batches.keys().next().map(ToString::to_string) {
                sim.stage(&name, stage);
            }
        }
        _ => sim.wait(rng.random_range(1..200)),
    }
}

/// Whether nodes hold what is there and what is assigned, one member at a time.
fn check_capacity(sim: &Sim, planned_now: &[String]) {
    let snapshot = sim.snapshot();
    let mut usage: BTreeMap<&str, Usage> =
        snapshot.nodes.iter().map(|(name, entry)| (name.as_str(), Usage::clone(&entry.usage))).collect();
    let shape = world::shape(1);
    for (name, node) in &sim.nodes {
        let used = usage.get_mut(name.as_str()).unwrap();
        for assignment in snapshot.assignments.get(name.as_str()).into_iter().flatten() {
            let fits = fit::fits(&shape, node, used);
            // A node that changed after the plan is replanned around in the passes that follow.
            assert!(
                fits.is_ok() || !planned_now.contains(&assignment.gang.name.to_string()),
                "{name} does not hold what was assigned on it just now: {fits:?}"
            );
            used.add(&shape);
        }
    }
}

fn run(seed: u64, pin: Pin) {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let mut sim = Sim::new(&[("n0", 3), ("n1", 3), ("n2", 3)]);
    sim.pin = pin;
    if seed.is_multiple_of(2) {
        sim.pools.push(PoolView {
            blocked: false,
            name: Arc::from("gpu"),
            weight: 0,
            max_nodes: 8,
            placement_group: Arc::from("none"),
            zones: Vec::new(),
            types: vec![TypeView {
                name: Arc::from("type"),
                node: Arc::new(world::node("", 2)),
                overhead: Arc::default(),
                capacity: world::node("", 4).allocatable,
                price: Some(1),
                zonal: BTreeMap::new(),
                refused: None,
            }],
            left: Vec::new(),
            ceilings: Vec::new(),
        });
    }
    for gang in GANGS {
        sim.gang(gang, SIZE, 0);
    }
    for _ in 0..120 {
        event(&mut sim, &mut rng);
        // Of a gang some have an owner that makes them again.
        let made_again = |name: &str| !name.ends_with('7');
        sim.pods.iter_mut().for_each(|(name, pod)| pod.remade = made_again(name));
        assert_eq!(sim.pass(), sim.pass(), "seed {seed}: a pass is a function of the world");
        sim.is_the_same_from_its_recording();
        let before = sim.gangs.clone();
        let live: BTreeMap<String, usize> = GANGS
            .iter()
            .map(|gang| {
                let snapshot = sim.snapshot();
                let key = world::key(gang);
                let succeeded = snapshot.all_members(&key).filter(|pod| pod.is_done()).count();
                let gone = |uid: &PodUid| !snapshot.pods.contains_key(uid);
                let places = sim.gangs.get(&key).into_iter().flat_map(|gang| &gang.places);
                let gone = places.filter(|place| place.done && place.uid.as_ref().is_some_and(gone)).count();
                ((*gang).to_owned(), snapshot.live_members(&key).count() + succeeded + gone)
            })
            .collect();
        sim.step();
        let mut planned_now = Vec::new();
        for (key, gang) in &sim.gangs {
            let was = before.get(key);
            if gang.phase == Some(Phase::Planned) && was.is_none_or(|was| was.phase != gang.phase) {
                // After the commit point the gang runs, and its missing members are planned as they come.
                let ran = was
                    .is_some_and(|was| matches!(was.phase, Some(Phase::Committing | Phase::Bound | Phase::Degraded)));
                // A place that changes hands keeps its node; whether that still holds is looked at in the next pass.
                let refilled = was.is_some_and(|was| was.phase == Some(Phase::Released));
                if !refilled {
                    planned_now.push(key.name.to_string());
                }
                assert!(
                    ran || refilled || live[&*key.name] >= SIZE as usize,
                    "seed {seed}: an incomplete gang is planned"
                );
            }
            if gang.phase == Some(Phase::Committing) {
                let standing = gang.places.iter().filter(|place| place.uid.is_some()).count();
                assert!(standing >= SIZE as usize, "seed {seed}: committed in part: {gang:#?}");
            }
        }
        check_capacity(&sim, &planned_now);
    }
    // Left alone the world comes to rest: nothing is written for its own sake.
    sim.settle();
}

#[test]
fn random_events_never_start_part_of_a_gang_nor_give_capacity_away_twice() {
    for seed in 0..60 {
        run(seed, Pin::Never);
    }
}

#[test]
fn nor_do_they_where_members_are_pinned() {
    for seed in 0..60 {
        run(seed, Pin::Auto);
    }
}
