//! What must hold at every moment of a history.

use std::collections::{BTreeMap, BTreeSet};

use muster_core::batch::{Change, cost};
use muster_core::ec2::TAG_BATCH;
use muster_core::model::batch::{AttemptOverride, Batch, BatchMember, BatchPhase};
use muster_core::model::names::InstanceId;
use muster_core::offering::Ceiling;

use super::ec2::Vm;
use super::history::History;

fn of_uid<'a>(sim: &'a History, uid: &str) -> Option<&'a Batch> {
    sim.cluster.batches.values().map(|(_, batch)| batch.as_ref()).find(|batch| batch.uid == uid)
}

/// Whether the attempt of a launch is written down, with these parameters, and its outcome is open.
pub(super) fn is_open(sim: &History, change: &Change) -> bool {
    let Change::Launch { parameters, .. } = change else { return true };
    let last = of_uid(sim, &parameters.tags.batch_uid).and_then(|batch| batch.status.last());
    last.is_some_and(|last| last.is_open() && last.parameters.as_ref().is_some_and(|one| *one.value == **parameters))
}

/// Before a change is carried out.
pub(super) fn before_change(sim: &mut History, change: &Change) {
    if !is_open(sim, change) {
        sim.fail(format!("sent without an open attempt in the status: {change:?}"));
    }
    let Change::Terminate(ids) = change else { return };
    for id in ids {
        let node = sim.cluster.name_of(id).unwrap_or_default().to_owned();
        let loses = |batch: &Batch| {
            let known = batch.status.instances.iter().chain(&batch.status.replaced).find(|one| one.id == *id);
            known.is_some_and(|one| one.loss.is_some())
        };
        let lost = sim.cluster.batches.values().any(|(_, batch)| loses(batch));
        let stands = sim.services.is_some() && !sim.cluster.with_pods(std::slice::from_ref(&node)).is_empty();
        if sim.ec2.vms.get(id).is_some_and(Vm::live) && stands && !lost {
            sim.fail(format!("{id} is terminated under a pod that runs"));
        }
        if sim.ec2.vms.get(id).is_some_and(Vm::live) && sim.cluster.occupied(&node) && !lost {
            sim.fail(format!("{id} is terminated under a gang that runs"));
        }
    }
}

/// Before a Node is deleted: it is that of an instance that has ended.
pub(super) fn before_delete(sim: &mut History, node: &str) {
    let Some(machine) = sim.cluster.machines.get(node) else { return };
    if sim.ec2.vms.get(&machine.id).is_some_and(Vm::live) {
        sim.fail(format!("the Node {node} is deleted, and {} lives", machine.id.clone()));
    }
}

/// A node of a blocked pool was launched alone: no more of them than the pool allows since it was blocked, nor dearer.
pub(super) fn probe(sim: &mut History, change: &Change) {
    let Change::Launch { parameters, .. } = change else { return };
    let Some(batch) = of_uid(sim, &parameters.tags.batch_uid) else { return };
    let number = parameters.tags.attempt;
    let probe = batch.status.attempts.iter().find(|attempt| attempt.number == number && attempt.probe);
    let Some(attempt) = probe else { return };
    let id = format!("{}/{}", batch.name, attempt.number);
    let (pool, price) = (attempt.node_pool.clone(), batch.status.price.unwrap_or(0));
    let Some(of) = sim.catalogue.pools.iter().find(|of| of.name == pool) else { return };
    let (most, dearest) = (of.join.max_probes, of.join.max_probe_micro_usd);
    let lives = of.join.register_within + of.join.ready_within;
    let Some(block) = sim.cluster.blocks.get_mut(&pool) else { return };
    block.launched.insert(id, cost(price, lives));
    let (count, spent) = (block.launched.len(), block.launched.values().sum::<u64>());
    if count > usize::try_from(most).unwrap() || spent > dearest {
        sim.fail(format!("{count} nodes of {pool} are tried alone for {spent}: {most} for {dearest} are allowed"));
    }
}

/// A launch was carried out: what one of its nodes costs is what the status states that it was decided at.
pub(super) fn price(sim: &mut History, number: usize, change: &Change) {
    let Change::Launch { parameters, .. } = change else { return };
    let Some(batch) = of_uid(sim, &parameters.tags.batch_uid) else { return };
    let status = &batch.status;
    let (Some(pool), Some(price)) = (status.node_pool.clone(), status.price) else { return };
    let made = sim.ec2.vms.values().find(|vm| usize::try_from(vm.launch) == Ok(number));
    let chosen = made.and_then(|vm| {
        let attempt = status.last()?;
        let is_chosen =
            |one: &&AttemptOverride| one.instance_type == vm.instance.instance_type && one.zone == vm.instance.zone;
        attempt.overrides.iter().find(is_chosen)?.price
    });
    sim.launched_at.insert(number, (pool, chosen.unwrap_or(price / u64::from(status.count.max(1)))));
}

/// What EC2 has, beside what the statuses say.
pub(super) fn account(sim: &mut History) {
    if let Some(wrong) = wrong_in_account(sim) {
        sim.fail(wrong);
    }
}

fn wrong_in_account(sim: &History) -> Option<String> {
    let mut by_attempt: BTreeMap<(&str, u32), BTreeSet<u32>> = BTreeMap::new();
    let mut by_launch: BTreeMap<u32, Vec<&Vm>> = BTreeMap::new();
    let replaced: BTreeSet<&InstanceId> =
        sim.cluster.batches.values().flat_map(|(_, batch)| batch.status.replaced.iter().map(|one| &one.id)).collect();
    let listed: BTreeSet<&InstanceId> =
        sim.cluster.batches.values().flat_map(|(_, batch)| batch.status.instances.iter().map(|one| &one.id)).collect();
    for vm in sim.ec2.vms.values().filter(|vm| vm.live()) {
        let launch = &sim.ec2.launches[usize::try_from(vm.launch).unwrap()];
        by_attempt.entry((&launch.batch, launch.attempt)).or_default().insert(vm.launch);
        if launch.late || replaced.contains(&vm.instance.id) {
            continue;
        }
        if of_uid(sim, &launch.batch).is_none() {
            return Some(format!("{} lives and its batch {} is gone", vm.instance.id, launch.batch));
        }
        by_launch.entry(vm.launch).or_default().push(vm);
    }
    for ((batch, attempt), launches) in &by_attempt {
        if launches.len() > 1 {
            return Some(format!("{} launches for attempt {attempt} of {batch}", launches.len()));
        }
    }
    let mut of_batch: BTreeMap<&str, u32> = BTreeMap::new();
    let mut of_type: BTreeMap<&str, i64> = BTreeMap::new();
    let mut cost: BTreeMap<&str, u64> = BTreeMap::new();
    for (number, vms) in &by_launch {
        let launch = &sim.ec2.launches[usize::try_from(*number).unwrap()];
        // What EC2 launched beyond what was asked for is its own fault, also once what the batch had of the launch has ended.
        let of_launch = || sim.ec2.vms.values().filter(|vm| vm.launch == *number);
        let beyond = of_launch().count() > usize::try_from(launch.count).unwrap();
        let counts = |vm: &Vm| listed.contains(&vm.instance.id);
        let live =
            if beyond && sim.decided.contains(number) { vms.iter().filter(|vm| counts(vm)).count() } else { vms.len() };
        let asked = u32::try_from(live).unwrap().min(launch.count);
        *of_batch.entry(&launch.batch).or_default() += asked;
        *of_type.entry(&vms[0].instance.instance_type).or_default() += i64::from(asked);
        if let Some((pool, price)) = sim.launched_at.get(&usize::try_from(*number).unwrap()) {
            *cost.entry(pool).or_default() += price * u64::from(asked);
        }
    }
    let all: u64 = cost.values().sum();
    if matches!(sim.catalogue.ceiling, Ceiling::At(most) if all > most) {
        return Some(format!("all nodes cost {all} per hour, the ceiling is {:?}", sim.catalogue.ceiling));
    }
    for (uid, live) in of_batch {
        let batch = of_uid(sim, uid)?;
        if live > batch.spec.count {
            return Some(format!("{live} live instances of {uid}, which wants {}", batch.spec.count));
        }
    }
    for pool in &sim.catalogue.pools {
        let cost = cost.get(pool.name.as_str()).copied().unwrap_or(0);
        if pool.ceiling.is_some_and(|most| cost > most) {
            return Some(format!("the nodes of {} cost {cost} per hour, the ceiling is {:?}", pool.name, pool.ceiling));
        }
        let live: i64 = pool.types().filter_map(|name| of_type.get(name.as_str())).sum();
        if live * pool.limited.1 > pool.limit {
            return Some(format!("{live} nodes of {}, whose limit is {} {}", pool.name, pool.limit, pool.limited.0));
        }
    }
    None
}

/// A status was written: at rest there are none or all.
pub(super) fn at_rest(sim: &mut History, name: &str) {
    let status = &sim.cluster.batches[name].1.status;
    let uid = &sim.cluster.batches[name].1.uid;
    let listed = status.instances.len();
    let of = |one: &BatchMember| sim.ec2.vms.get(&one.id).map(|vm| vm.launch);
    let decided: Vec<u32> = status.members().filter_map(of).collect();
    let wrong = match status.phase {
        BatchPhase::Pending => {
            let replaced = |id: &InstanceId| status.replaced.iter().any(|one| one.id == *id);
            let lives = |vm: &&Vm| {
                let late = sim.ec2.launches[usize::try_from(vm.launch).unwrap()].late;
                vm.live() && !late && !replaced(&vm.instance.id) && vm.instance.tags.get(TAG_BATCH) == Some(uid)
            };
            let live: Vec<&InstanceId> = sim.ec2.vms.values().filter(lives).map(|vm| &vm.instance.id).collect();
            (listed > 0 || !live.is_empty()).then(|| format!("Pending with {listed} listed and {live:?} live"))
        }
        BatchPhase::Ready | BatchPhase::InUse | BatchPhase::Idle => {
            let whole = u32::try_from(listed) == Ok(status.count) && status.count > 0;
            (!whole).then(|| format!("{:?} with {listed} of {}", status.phase, status.count))
        }
        BatchPhase::Launching
        | BatchPhase::Launched
        | BatchPhase::Joining
        | BatchPhase::Replacing
        | BatchPhase::Draining
        | BatchPhase::Terminating => None,
    };
    sim.decided.extend(decided);
    if let Some(wrong) = wrong {
        sim.fail(format!("{name} rests {wrong}"));
    }
}
