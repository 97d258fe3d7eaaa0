//! Five hundred pods that need a node each: all nodes are launched at once, and a pod waits for its machine and for kube-scheduler.

use jiff::SignedDuration;
use muster_core::ec2::CapacityType;
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;

use super::{Deployment, SERVED, all, ends, live, of_pools, pool, services};
use crate::batch::history::Lease;

const PODS: usize = 500;
/// Pods are collected until none came for a second, and the calls are made one after the other.
const LAUNCHED: SignedDuration = SignedDuration::from_secs(6);
/// After a node is Ready: what the watches lag behind, and kube-scheduler's own time.
const TAKEN: SignedDuration = SignedDuration::from_secs(5);

/// How long it took until the last launch, and how long a pod waited for a node that was Ready.
fn of_a_node_each(seed: u64) -> Result<(SignedDuration, SignedDuration), String> {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let mut sim = of_pools(seed, vec![pool("small", 4_000, 1_000, &[CapacityType::OnDemand], &mut rng)], rng);
    sim.dice.calm = true;
    // A process of ours makes sixteen edits at a time, of 80 ms each; one of this world makes one after the other.
    sim.call = 1..10;
    sim.pace = 50..500;
    services(&mut sim).deployments.push(Deployment::new("web", 3_900, PODS));
    let mut lease = Lease::default();
    let began = sim.now;
    let until = began + SERVED;
    live(&mut sim, &mut lease, until)?;
    let launched: usize = sim.ec2.launches.iter().map(|launch| launch.count as usize).sum();
    let last = sim.calls.iter().map(|(at, ..)| *at).max().unwrap_or(began).duration_since(began);
    let mut waited = SignedDuration::ZERO;
    for pod in sim.cluster.pods.values().map(|pod| pod.key.name.to_string()).collect::<Vec<_>>() {
        let node = sim.cluster.pods[&pod].node.clone().ok_or_else(|| format!("{pod} waits"))?;
        let ready = sim.cluster.machines[node.as_str()].ready;
        waited = waited.max(services(&mut sim).bound[&pod].duration_since(ready));
    }
    if (launched, sim.cluster.machines.len()) != (PODS, PODS) {
        return Err(format!("{launched} launched, {} nodes", sim.cluster.machines.len()));
    }
    ends(&mut sim, &mut lease)?;
    Ok((last, waited))
}

#[test]
#[expect(clippy::print_stderr, reason = "how long it takes belongs to the evidence")]
fn five_hundred_pods_of_a_node_each_wait_for_their_machines_and_kube_scheduler_and_nothing_else() {
    let lives = all(2, of_a_node_each);
    let longest = |of: fn(&(SignedDuration, SignedDuration)) -> SignedDuration| lives.iter().map(of).max().unwrap();
    let (launched, waited) = (longest(|one| one.0), longest(|one| one.1));
    eprintln!("all launched after {} ms, {} ms after the node is Ready", launched.as_millis(), waited.as_millis());
    assert!(launched <= LAUNCHED && waited <= TAKEN, "launched after {launched}, taken after {waited}: {lives:?}");
}
