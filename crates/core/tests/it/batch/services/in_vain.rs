//! Launches that bring no node: EC2 has no capacity, or ends what it launched.

use jiff::{SignedDuration, Timestamp};
use muster_core::ec2::CapacityType;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::{Deployment, SERVED, all, ends, live, of_pools, pool, services, within};
use crate::batch::history::{History, Lease};

/// How many of these are in the time that begins at `start`.
fn count_within(all: &[Timestamp], start: Timestamp, span: SignedDuration) -> usize {
    all.iter().filter(|at| within(start, **at, span)).count()
}

/// What EC2 does with a launch.
#[derive(Clone, Copy)]
enum Brings {
    /// It has no capacity.
    Nothing,
    /// Its instances end as they boot.
    Ends,
}

/// For an hour launches of what 600 pods need bring no node, in any of 40 zones, while another pool goes on. The answer is how many
/// calls were made in vain.
fn brings_no_node(seed: u64, brings: Brings) -> Result<usize, String> {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let both = [CapacityType::Spot, CapacityType::OnDemand];
    let mut dry = pool("small", 4_000, 1000, &both, &mut rng);
    dry.zones = (0..40).map(|zone| format!("z{zone:02}")).collect();
    let mut sim = of_pools(seed, vec![dry, pool("large", 16_000, 1000, &both, &mut rng)], rng);
    sim.dice.calm = true;
    sim.pace = 1_000..6_000;
    let stock = |sim: &mut History, nodes: u32| {
        let of_small = sim.ec2.free.iter_mut().filter(|((instance_type, _), _)| instance_type == "small.large");
        of_small.for_each(|(_, free)| *free = vec![nodes]);
    };
    match brings {
        Brings::Nothing => stock(&mut sim, 0),
        Brings::Ends => {
            stock(&mut sim, 1000);
            sim.ec2.ends = Some("small.large".to_owned());
        }
    }
    let mut lease = Lease::default();
    let of = |name, milli_cpu, replicas, on| Deployment { on: Some(on), ..Deployment::new(name, milli_cpu, replicas) };
    let both = [of("dry", 3_900, 600, "small.large"), of("served", 15_000, 2, "large.large")];
    services(&mut sim).deployments.extend(both);
    // When a process began that knew nothing of what EC2 had refused: batches that nothing was launched for are gone by then.
    let mut began = vec![sim.now];
    let mut sizes = Vec::new();
    for _ in 0..12 {
        let until = sim.now + SignedDuration::from_mins(5);
        live(&mut sim, &mut lease, until)?;
        sizes.extend(lease.size());
        let served = sim.cluster.pods.values().filter(|pod| pod.key.name.starts_with("served-"));
        if let Some(late) = served.into_iter().find(|pod| pod.node.is_none()) {
            return Err(format!("{} waits although its pool has capacity", late.key.name));
        }
        services(&mut sim).deployments[1].replicas += 1;
        if sim.cluster.batches.len() > 20 {
            return Err(format!("{} batches", sim.cluster.batches.len()));
        }
        // Somebody restarts Muster every now and then.
        if sim.rng.random_bool(0.1) {
            lease = Lease::default();
            began.push(sim.now);
        }
    }
    // Two pods and their node come every five minutes; what is refused again and again adds nothing.
    if sizes.len() < 10 || sizes.iter().max() > sizes.first().map(|first| first + first / 4).as_ref() {
        return Err(format!("memory grows: {sizes:?}"));
    }
    // What EC2 did not decide about is asked again under its token; that is no other launch.
    let of_dry = |replays: bool| {
        let mine = sim.calls.iter().filter(move |call| call.1 == "small.large" && (replays || !call.2));
        let follows = |at: &Timestamp| began.iter().any(|start| within(*start, *at, SignedDuration::from_mins(2)));
        mine.map(|call| call.0).partition::<Vec<_>, _>(follows)
    };
    let ((first, launches), (all_first, calls)) = (of_dry(false), of_dry(true));
    // The first launch is six batches of a hundred nodes, each asked for on spot and on demand, before EC2 has answered to any. Instances
    // end one after the other: until none of a batch is left pods of the first are planned again.
    let most_at_first = match brings {
        Brings::Nothing => 12,
        Brings::Ends => 20,
    };
    let at_first =
        began.iter().map(|start| count_within(&first, *start, SignedDuration::from_mins(2))).max().unwrap_or(0);
    let most = |all: &[Timestamp], span| all.iter().map(|start| count_within(all, *start, span)).max().unwrap_or(0);
    let a_minute = most(&launches, SignedDuration::from_mins(1));
    let in_five = most(&calls, SignedDuration::from_mins(5));
    if at_first > most_at_first || a_minute > 2 || in_five > 10 || launches.is_empty() {
        return Err(format!("{at_first} launches at first, then {a_minute} a minute; {in_five} calls in five minutes"));
    }
    stock(&mut sim, 1000);
    sim.ec2.ends = None;
    // Where instances ended one launch has to bring a node before all others follow.
    let proof = match brings {
        Brings::Nothing => SignedDuration::ZERO,
        Brings::Ends => SERVED,
    };
    let until = sim.now + SignedDuration::from_mins(5) + proof + SERVED + SignedDuration::from_secs(30);
    live(&mut sim, &mut lease, until)?;
    let all = sim.services.take().unwrap();
    let late = all.late(&sim, SERVED);
    sim.services = Some(all);
    if let Some(late) = late {
        return Err(format!("after capacity came back {late}; {:?}", sim.paused));
    }
    ends(&mut sim, &mut lease)?;
    Ok(all_first.len() + calls.len())
}

#[test]
#[expect(clippy::print_stderr, reason = "how many calls were made in vain belongs to the evidence")]
fn an_hour_without_capacity_costs_two_calls_a_minute_and_nobody_else_and_ends_with_it() {
    let calls = all(4, |seed| brings_no_node(seed, Brings::Nothing));
    eprintln!("{} histories of an hour without capacity, {calls:?} calls", calls.len());
}

#[test]
#[expect(clippy::print_stderr, reason = "how many calls were made in vain belongs to the evidence")]
fn an_hour_in_which_every_instance_ends_as_it_boots_costs_two_calls_a_minute_and_nobody_else_and_ends_with_it() {
    let calls = all(4, |seed| brings_no_node(seed, Brings::Ends));
    eprintln!("{} histories of an hour in which every instance ends as it boots, {calls:?} calls", calls.len());
}
