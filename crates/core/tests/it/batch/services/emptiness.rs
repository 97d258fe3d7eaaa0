//! A cluster that empties: everything at once, and a pod that comes while its node is about to go; and one at rest.

use jiff::SignedDuration;
use muster_core::ec2::CapacityType;
use muster_core::model::gang::Pod;
use muster_core::model::pod::Shape;
use muster_core::model::resources::Resources;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::{Deployment, SERVED, all, ends, live, of_pools, pool, services};
use crate::batch::cluster::DISRUPTED;
use crate::batch::history::{History, Lease};
use crate::world;

/// So long a node is empty before it goes.
const QUIET: SignedDuration = SignedDuration::from_secs(30);
/// In which time nodes that were empty for that long have gone: the taints, ten seconds, the last look, the calls, and EC2's half a
/// minute. How long calls take is this world's own choice, and it makes one after the other.
const GONE: SignedDuration = SignedDuration::from_mins(3);

/// A calm cluster with `replicas` pods of one Deployment, which all run.
fn serving(seed: u64, replicas: usize, milli_cpu: i64, lease: &mut Lease) -> Result<History, String> {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let mut general = pool("large", 16_000, 1_000, &[CapacityType::OnDemand], &mut rng);
    general.consolidate = Some(QUIET);
    let mut sim = of_pools(seed, vec![general], rng);
    sim.dice.calm = true;
    services(&mut sim).deployments.push(Deployment::new("web", milli_cpu, replicas));
    let until = sim.now + SERVED * 2;
    live(&mut sim, lease, until)?;
    let waits = sim.cluster.pods.values().filter(|pod| pod.node.is_none()).count();
    if waits > 0 {
        return Err(format!("{waits} pods wait"));
    }
    // Whoever a node was launched for has come, or is not awaited any more.
    let until = sim.now + SignedDuration::from_mins(2);
    live(&mut sim, lease, until)?;
    Ok(sim)
}

/// Lives until something is so.
fn until(
    sim: &mut History,
    lease: &mut Lease,
    what: &str,
    within: SignedDuration,
    is: impl Fn(&History) -> bool,
) -> Result<(), String> {
    let deadline = sim.now + within;
    while !is(sim) {
        if sim.now >= deadline {
            return Err(format!("{} s without {what}", within.as_secs()));
        }
        let next = sim.now + SignedDuration::from_millis(1);
        live(sim, lease, next)?;
    }
    Ok(())
}

/// A thousand pods go at once. The answer is how many nodes there were.
fn goes_to_nothing(seed: u64) -> Result<usize, String> {
    let mut lease = Lease::default();
    let mut sim = serving(seed, 1_000, 3_900, &mut lease)?;
    let nodes = sim.cluster.machines.len();
    // What an API call takes; a thousand pods would not be there yet if each line took as long as in the other lives.
    sim.pace = 5..50;
    services(&mut sim).deployments[0].replicas = 0;
    until(&mut sim, &mut lease, "the last pod gone", SignedDuration::from_mins(5), |sim| sim.cluster.pods.is_empty())?;
    let last = sim.now + QUIET + GONE;
    live(&mut sim, &mut lease, last)?;
    let left = (sim.ec2.vms.values().filter(|vm| vm.live()).count(), sim.cluster.machines.len());
    if left != (0, 0) {
        return Err(format!("{} instances and {} of {nodes} nodes are left", left.0, left.1));
    }
    ends(&mut sim, &mut lease)?;
    Ok(nodes)
}

/// A pod that another scheduler binds past the taint, in any moment from a second before the taint to the last look ten seconds
/// after it. The answer is whether the taint was there first.
fn comes_late(seed: u64) -> Result<bool, String> {
    let mut lease = Lease::default();
    let mut sim = serving(seed, 1, 3_900, &mut lease)?;
    let node = sim.cluster.machines.keys().next().unwrap().clone();
    services(&mut sim).deployments[0].replicas = 0;
    until(&mut sim, &mut lease, "the last pod gone", SignedDuration::from_mins(5), |sim| sim.cluster.pods.is_empty())?;
    let early = sim.rng.random_bool(0.2);
    let tainted = |sim: &History| {
        sim.cluster.machines.get(&node).is_some_and(|one| one.node.taints.iter().any(|taint| *taint.key == *DISRUPTED))
    };
    let moment = if early {
        let before = sim.rng.random_range(0..3_000);
        sim.now + QUIET - SignedDuration::from_millis(before)
    } else {
        until(&mut sim, &mut lease, "a taint", QUIET + GONE, tainted)?;
        sim.now + SignedDuration::from_millis(sim.rng.random_range(0..9_500))
    };
    live(&mut sim, &mut lease, moment)?;
    let was_tainted = tainted(&sim);
    let requests = Resources::from_iter([("cpu", 500), ("pods", 1)]);
    let late = world::pod("late", &Shape { requests, ..Shape::default() });
    let late = Pod { ours: false, created: Some(sim.now), node: Some(node.as_str().into()), running: true, ..late };
    sim.cluster.pods.insert("late".to_owned(), late);
    sim.cluster.touch();
    let later = sim.now + SignedDuration::from_mins(5);
    live(&mut sim, &mut lease, later)?;
    if tainted(&sim) || !sim.cluster.machines.contains_key(&node) {
        return Err(format!("the node of a pod that came in time is {:?}", sim.cluster.machines.get(&node)));
    }
    // It goes once that pod is gone.
    sim.cluster.pods.remove("late");
    sim.cluster.touch();
    ends(&mut sim, &mut lease)?;
    Ok(was_tainted)
}

/// A day on which nothing happens but that Muster restarts now and then. The answer is how many nodes there are.
fn rests(seed: u64) -> Result<usize, String> {
    let mut lease = Lease::default();
    let mut sim = serving(seed, 60, 3_900, &mut lease)?;
    let nodes: Vec<String> = sim.cluster.machines.keys().cloned().collect();
    let changes = sim.ec2.changes;
    let tomorrow = sim.now + SignedDuration::from_hours(24);
    while sim.now < tomorrow {
        let later = sim.now + SignedDuration::from_mins(30);
        live(&mut sim, &mut lease, later)?;
        if sim.rng.random_bool(0.2) {
            lease = Lease::default();
        }
    }
    let made = sim.ec2.changes - changes;
    if changes == 0 || made > 0 || !nodes.iter().eq(sim.cluster.machines.keys()) {
        return Err(format!("{made} calls changed EC2 after the {changes} that launched {} nodes", nodes.len()));
    }
    ends(&mut sim, &mut lease)?;
    Ok(nodes.len())
}

#[test]
fn a_day_at_rest_changes_nothing_in_ec2_however_often_muster_restarts() {
    let nodes = all(3, rests);
    assert!(!nodes.is_empty() && nodes.iter().all(|nodes| *nodes == 15), "{nodes:?}");
}

#[test]
fn all_nodes_of_a_thousand_pods_that_end_are_terminated_after_their_quiet_time_and_nothing_is_left() {
    let nodes = all(2, goes_to_nothing);
    assert!(nodes.len() > 1 && nodes.iter().all(|nodes| *nodes == 250), "{nodes:?}");
}

#[test]
fn a_pod_that_comes_while_its_node_is_about_to_go_keeps_it_in_two_hundred_races() {
    let tainted = all(200, comes_late);
    let after = tainted.iter().filter(|tainted| **tainted).count();
    assert!(2 * after > tainted.len() && after < tainted.len(), "{after} of {} came after the taint", tainted.len());
}
