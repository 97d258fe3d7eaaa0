//! Deployments and CronJobs on a cluster that begins empty: NodeBatches are made by the rounds, nodes are taken by a
//! kube-scheduler that binds to any node its filters pass, and everything is terminated in the end.

mod crowd;
mod emptiness;
mod in_vain;

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};
use muster_core::batch::{JoinClocks, cost, dollars};
use muster_core::ec2::CapacityType;
use muster_core::model::gang::{Foreign, Membership, Phase, Pod};
use muster_core::model::names::InstanceId;
use muster_core::model::pod::Shape;
use muster_core::model::resources::Resources;
use muster_core::offering::{GroupPolicy, NODES};
use muster_core::ordinary::digest;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::cluster::{Cluster, Lists, Manners, TYPE};
use super::draw;
use super::ec2::{Ec2, Habits};
use super::history::{History, Lease};
use super::kube_scheduler::KubeScheduler;
use super::race::{Asks, RESOURCES, submit};
use super::supply::PoolDef;
use crate::world::{self, at};

/// From the moment a pod is there until it runs, where EC2 has capacity and nothing fails: the round's window, a launch, a
/// boot of a minute and 20 seconds to become Ready, and what the kube-scheduler takes.
const SERVED: SignedDuration = SignedDuration::from_secs(150);

/// Pods of one template.
#[derive(Clone, Debug)]
pub(super) struct Deployment {
    name: String,
    milli_cpu: i64,
    replicas: usize,
    /// Its pods end by themselves, and are not made again.
    runs_for: Option<SignedDuration>,
    /// They run on this type alone.
    on: Option<&'static str>,
    /// Another scheduler binds them, and asks nobody.
    foreign: bool,
    /// Whose scheduler has not been chosen yet.
    is_new: bool,
}

impl Deployment {
    /// Pods of our scheduler that run until they are deleted, on any node.
    fn new(name: &str, milli_cpu: i64, replicas: usize) -> Self {
        let (runs_for, on) = (None, None);
        Self { name: name.to_owned(), milli_cpu, replicas, runs_for, on, foreign: false, is_new: true }
    }
}

/// What waits, runs and has run.
#[derive(Debug, Default)]
pub(super) struct Services {
    deployments: Vec<Deployment>,
    scheduler: KubeScheduler,
    made: u64,
    /// When a pod was bound.
    bound: BTreeMap<String, Timestamp>,
    /// Longest wait of a pod that was bound.
    longest: SignedDuration,
    /// Instances whose Nodes ever held a pod.
    used: BTreeSet<InstanceId>,
}

impl Services {
    /// The process that answers kube-scheduler ended.
    pub(super) fn restart(&mut self) {
        self.scheduler.restart();
    }

    pub(super) fn pass_time(&mut self, sim: &mut History) {
        self.control(sim);
        self.scheduler.step(sim);
        for (pod, node) in std::mem::take(&mut self.scheduler.bound) {
            let created = sim.cluster.pods[&pod].created.unwrap();
            self.longest = self.longest.max(sim.now.duration_since(created));
            self.bound.insert(pod, sim.now);
            self.used.extend(sim.cluster.machines.get(&node).map(|machine| machine.id.clone()));
        }
        // Whom nodes await follows every change.
        sim.cluster.view();
    }

    /// What the controllers of the Deployments and Jobs do.
    fn control(&mut self, sim: &mut History) {
        for number in 0..self.deployments.len() {
            let deployment = self.deployments[number].clone();
            let prefix = format!("{}-", deployment.name);
            let own: Vec<Pod> =
                sim.cluster.pods.values().filter(|pod| pod.key.name.starts_with(&prefix)).cloned().collect();
            let mut live: Vec<&Pod> = own.iter().filter(|pod| pod.is_live()).collect();
            if let Some(runs_for) = deployment.runs_for {
                for pod in &live {
                    let over =
                        self.bound.get(&*pod.key.name).is_some_and(|bound| sim.now.duration_since(*bound) >= runs_for);
                    if over {
                        let done = sim.cluster.pods.get_mut(&*pod.key.name).unwrap();
                        (done.ended, done.succeeded, done.running) = (true, true, false);
                        sim.cluster.touch();
                        let replicas = &mut self.deployments[number].replicas;
                        *replicas = replicas.saturating_sub(1);
                    }
                }
                live.retain(|pod| !sim.cluster.pods[&*pod.key.name].ended);
            }
            for _ in live.len()..self.deployments[number].replicas {
                self.made += 1;
                let name = format!("{prefix}{}", self.made);
                let requests = Resources::from_iter([("cpu", deployment.milli_cpu), ("pods", 1)]);
                let node_selector = deployment.on.iter().map(|on| (TYPE.into(), (*on).into())).collect();
                let pod = world::pod(&name, &Shape { requests, node_selector, ..Shape::default() });
                let foreign = if deployment.foreign { Foreign::Provisioned } else { Foreign::Other };
                let pod = Pod { ours: !deployment.foreign, foreign, created: Some(sim.now), ..pod };
                sim.cluster.pods.insert(name, pod);
                sim.cluster.touch();
            }
            while live.len() > self.deployments[number].replicas {
                let one = live.swap_remove(sim.rng.random_range(0..live.len()));
                let name = one.key.name.to_string();
                if one.node.is_some() {
                    let refuses = std::mem::replace(&mut sim.cluster.manners.refuses_evictions, false);
                    let History { cluster, rng, .. } = &mut *sim;
                    cluster.evict(&name, true, rng);
                    sim.cluster.manners.refuses_evictions = refuses;
                } else {
                    sim.cluster.pods.remove(&name);
                    sim.cluster.touch();
                }
            }
        }
    }

    /// Pods that wait for longer than they may, with how long.
    fn late(&self, sim: &History, patience: SignedDuration) -> Option<String> {
        let waits = |pod: &&Pod| pod.is_live() && pod.node.is_none();
        let since = |pod: &Pod| sim.now.duration_since(pod.created.unwrap());
        let late = sim.cluster.pods.values().filter(waits).find(|pod| since(pod) > patience)?;
        Some(format!("{} waits for {} s", late.key.name, since(late).as_secs()))
    }
}

fn pool(name: &str, cpu: i64, limit: i64, capacity_types: &[CapacityType], rng: &mut ChaCha8Rng) -> PoolDef {
    // Dice of their own: what else is drawn stays.
    let mut dice = rng.clone();
    let also = ["xlarge", "2xlarge"].map(|size| format!("{name}.{size}"));
    PoolDef {
        name: name.to_owned(),
        instance_type: format!("{name}.large"),
        also: also[..dice.random_range(0..=2)].to_vec(),
        zones: ["a", "b"][..rng.random_range(1..=2)].iter().map(|zone| (*zone).to_owned()).collect(),
        capacity_types: capacity_types.to_vec(),
        limit,
        limited: (NODES, 1),
        ceiling: None,
        group: GroupPolicy::None,
        join: JoinClocks::default(),
        consolidate: Some(SignedDuration::from_secs(rng.random_range(0..120))),
        foreign: None,
        cpu: Some(cpu),
        taints: Vec::new(),
    }
}

/// The pool of gangs, and its type.
const FOR_GANGS: (&str, &str) = ("gpu", "gpu.large");

/// The same with a pool for gangs.
fn world_with_gangs(seed: u64) -> History {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let on_demand = [CapacityType::OnDemand];
    let pools = vec![
        pool("small", 4_000, 100, &on_demand, &mut rng),
        pool("large", 16_000, 100, &on_demand, &mut rng),
        PoolDef { also: Vec::new(), cpu: None, ..pool(FOR_GANGS.0, 0, 100, &on_demand, &mut rng) },
    ];
    of_pools(seed, pools, rng)
}

/// An empty cluster with pools of 4 and 16 CPUs, of which EC2 has plenty.
fn world(seed: u64, limit: i64, capacity_types: &[CapacityType]) -> History {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let pools = vec![
        pool("small", 4_000, limit, capacity_types, &mut rng),
        pool("large", 16_000, limit, capacity_types, &mut rng),
    ];
    of_pools(seed, pools, rng)
}

fn of_pools(seed: u64, pools: Vec<PoolDef>, mut rng: ChaCha8Rng) -> History {
    let mut catalogue = draw::catalogue(pools);
    let priced: Vec<(String, u64, u64)> = catalogue
        .pools
        .iter()
        .flat_map(|pool| {
            let cpu = if pool.name == "small" { 4 } else { 15 };
            pool.types().zip(10..).map(move |(name, tenths)| (name.clone(), cpu, tenths))
        })
        .collect();
    for (name, cpu, tenths) in priced {
        catalogue.prices.set(&name, None, CapacityType::OnDemand, cpu * 4_000 * tenths);
        catalogue.prices.set(&name, None, CapacityType::Spot, cpu * 1_200 * tenths);
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
    for pool in &catalogue.pools {
        for (zone, name) in pool.zones.iter().flat_map(|zone| pool.types().map(move |name| (zone, name))) {
            ec2.free.insert((name.clone(), zone.clone()), vec![1000]);
        }
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
    for pool in &catalogue.pools {
        cluster.ordinary.extend(pool.types().filter_map(|name| Some((name.clone(), pool.cpu?))));
    }
    let mut sim = History::of(seed, (ec2, cluster, catalogue), rng);
    sim.undisturbed = true;
    sim.pace = 200..2_000;
    sim.services = Some(Box::default());
    sim
}

/// Lives until a time.
fn live(sim: &mut History, lease: &mut Lease, until: Timestamp) -> Result<(), String> {
    while sim.now < until {
        sim.line(lease);
        if let Some(wrong) = sim.wrong.take().or_else(|| sim.ec2.wrong.take()) {
            return Err(format!("{wrong} at {}", sim.now.duration_since(at(0)).as_secs()));
        }
    }
    Ok(())
}

/// A Deployment comes.
pub(super) fn deploy(sim: &mut History, name: &str, milli_cpu: i64, replicas: usize) {
    services(sim).deployments.push(Deployment::new(name, milli_cpu, replicas));
}

/// The Deployment of a number is scaled to nothing.
pub(super) fn scale_to_zero(sim: &mut History, number: usize) {
    services(sim).deployments[number].replicas = 0;
}

/// The name of a pod of no gang that waits.
pub(super) fn waiting(sim: &History) -> Option<String> {
    let waits = |pod: &&Pod| pod.membership == Membership::Single && pod.is_live() && pod.node.is_none();
    sim.cluster.pods.values().find(waits).map(|pod| pod.key.name.to_string())
}

fn services(sim: &mut History) -> &mut Services {
    sim.services.as_mut().unwrap()
}

/// Adds replicas: of a Deployment that is there, or of a new one.
fn grow(sim: &mut History, runs_for: Option<SignedDuration>) {
    let replicas = sim.rng.random_range(1..12);
    let milli_cpu = [250, 900, 1_700, 3_500, 7_000][sim.rng.random_range(0..5)];
    let known = services(sim).deployments.len();
    if runs_for.is_none() && known > 0 && sim.rng.random_bool(0.5) {
        let number = sim.rng.random_range(0..known);
        let deployment = &mut services(sim).deployments[number];
        if deployment.runs_for.is_none() {
            deployment.replicas += replicas;
            return;
        }
    }
    let new = Deployment { runs_for, ..Deployment::new(&format!("d{known}"), milli_cpu, replicas) };
    services(sim).deployments.push(new);
}

fn shrink(sim: &mut History) {
    let known = services(sim).deployments.len();
    let number = sim.rng.random_range(0..known);
    let less = sim.rng.random_range(0..6);
    let deployment = &mut services(sim).deployments[number];
    deployment.replicas = deployment.replicas.saturating_sub(less);
}

/// Everything is scaled to nothing: all nodes go, and nothing is left in EC2 or the cluster.
fn ends(sim: &mut History, lease: &mut Lease) -> Result<(), String> {
    sim.dice.calm = true;
    services(sim).deployments.iter_mut().for_each(|deployment| deployment.replicas = 0);
    let until = sim.now + SignedDuration::from_secs(900);
    live(sim, lease, until)?;
    if let Some(unbooked) = sim.cluster.unbooked.take() {
        return Err(unbooked);
    }
    if !sim.cluster.batches.is_empty() || !sim.cluster.machines.is_empty() || !sim.ec2.left().is_empty() {
        let batches: Vec<_> =
            sim.cluster.batches.values().map(|(_, batch)| (&batch.name, &batch.status.message)).collect();
        return Err(format!("15 minutes after the last pod: {batches:?}, {:?}", sim.ec2.left()));
    }
    Ok(())
}

/// Instances that were launched, and how many of them never held a pod.
fn unused(sim: &mut History) -> (usize, Vec<InstanceId>) {
    let used = services(sim).used.clone();
    let never = sim.ec2.vms.keys().filter(|id| !used.contains(*id)).cloned().collect();
    (sim.ec2.vms.len(), never)
}

/// What nodes cost that never held a pod, in micro-dollars, from their launch to their end.
fn lost(sim: &History, never: &[InstanceId]) -> u64 {
    let of = |id: &InstanceId| {
        let vm = &sim.ec2.vms[id];
        let (_, price) = sim.launched_at.get(&usize::try_from(vm.launch).unwrap())?;
        let lasted = vm.instance.ended.unwrap_or(sim.now).duration_since(vm.instance.launch_time?);
        Some(cost(*price, lasted))
    };
    never.iter().filter_map(of).sum()
}

/// How many places nodes were launched with, and how many of them their pods took; pods of one template are of one class.
fn taken(sim: &History) -> (u32, u32) {
    let mut on: BTreeMap<(&str, String), u32> = BTreeMap::new();
    for pod in sim.cluster.pods.values() {
        if let Some((node, class)) = pod.node.as_ref().zip(digest(pod)) {
            *on.entry((node.as_str(), class)).or_default() += 1;
        }
    }
    let (mut places, mut taken) = (0, 0);
    for (_, batch) in sim.cluster.batches.values() {
        for (_, member, pods) in batch.places() {
            let Some(node) = member.node.as_deref() else { continue };
            for (class, many) in pods {
                places += many;
                let there = on.get(&(node, class.clone())).copied().unwrap_or(0);
                taken += there.min(*many);
            }
        }
    }
    (places, taken)
}

/// What came of Deployments that only grow.
struct Grown {
    nodes: usize,
    /// Nodes that never held a pod.
    never: usize,
    /// Pods that nodes were launched for, and how many of them stand where they were planned.
    places: u32,
    taken: u32,
    gangs: usize,
}

/// Deployments that only grow, Jobs and gangs that come and end, and everything goes well: whoever waits is served in time, and nothing more is launched once everybody
/// runs.
fn grows(seed: u64) -> Result<Grown, String> {
    let mut sim = world_with_gangs(seed);
    sim.dice.calm = true;
    let mut lease = Lease::default();
    let mut gangs = 0;
    for _ in 0..sim.rng.random_range(1..6) {
        // Jobs and gangs end when everybody runs: what they leave free before that is taken by whoever waits for a node of its own.
        let runs_for = sim.rng.random_bool(0.3).then(|| SignedDuration::from_secs(sim.rng.random_range(1_200..3_000)));
        grow(&mut sim, runs_for);
        if sim.rng.random_bool(0.6) {
            let (count, now) = (sim.rng.random_range(1..5), sim.now);
            submit(&mut sim.cluster, FOR_GANGS, gangs, Asks::Gang, count, now);
            gangs += 1;
        }
        let until = sim.now + SignedDuration::from_secs(sim.rng.random_range(1..200));
        live(&mut sim, &mut lease, until)?;
    }
    let until = sim.now + SERVED;
    live(&mut sim, &mut lease, until)?;
    let all = sim.services.take().unwrap();
    let late = all.late(&sim, SignedDuration::ZERO);
    let longest = all.longest;
    sim.services = Some(all);
    if let Some(late) = late {
        return Err(late);
    }
    if longest > SERVED {
        return Err(format!("a pod waited for {} s", longest.as_secs()));
    }
    let launched = sim.ec2.launches.len();
    if gangs > 0 && sim.rng.random_bool(0.5) {
        let name = format!("g{:02}", sim.rng.random_range(0..gangs));
        let History { cluster, rng, .. } = &mut sim;
        cluster.end(&name, rng);
    }
    let until = sim.now + SignedDuration::from_secs(3600);
    live(&mut sim, &mut lease, until)?;
    if sim.ec2.launches.len() > launched {
        return Err("something is launched although everybody runs".to_owned());
    }
    let waits = |phase: Option<Phase>| !matches!(phase, Some(Phase::Bound | Phase::Finished));
    if let Some(actor) = sim.cluster.actors.values().find(|actor| waits(actor.gang.phase)) {
        return Err(format!("gang {} waits", actor.gang.key.name));
    }
    let (nodes, mut never) = unused(&mut sim);
    // Those of gangs are their members', which nobody binds here.
    let of_gang = |id: &InstanceId| sim.ec2.vms[id].instance.instance_type == FOR_GANGS.1;
    let for_gangs = sim.ec2.vms.keys().filter(|id| of_gang(id)).count();
    never.retain(|id| !of_gang(id));
    let nodes = nodes - for_gangs;
    let (places, taken) = taken(&sim);
    for name in sim.cluster.actors.keys().cloned().collect::<Vec<_>>() {
        let History { cluster, rng, .. } = &mut sim;
        cluster.end(&name, rng);
    }
    ends(&mut sim, &mut lease)?;
    Ok(Grown { nodes, never: never.len(), places, taken, gangs })
}

/// Deployments of two schedulers grow, of which one asks nobody: whoever waits is served all the same, and nothing more is launched
/// once everybody runs.
fn grows_beside_another_scheduler(seed: u64) -> Result<(usize, usize), String> {
    let mut sim = world(seed, 100, &[CapacityType::OnDemand]);
    sim.dice.calm = true;
    let mut lease = Lease::default();
    for _ in 0..sim.rng.random_range(2..7) {
        grow(&mut sim, None);
        let foreign = sim.rng.random_bool(0.5);
        // A Deployment keeps the scheduler that it began with.
        if let Some(last) = services(&mut sim).deployments.last_mut().filter(|last| last.is_new) {
            (last.foreign, last.is_new) = (foreign, false);
        }
        let until = sim.now + SignedDuration::from_secs(sim.rng.random_range(1..200));
        live(&mut sim, &mut lease, until)?;
    }
    // Whoever lost the place waits until another node has booted, and our own until nobody keeps it any more.
    let until = sim.now + SERVED * 2 + SignedDuration::from_mins(2);
    live(&mut sim, &mut lease, until)?;
    let all = sim.services.take().unwrap();
    let waits = all.late(&sim, SignedDuration::ZERO);
    sim.services = Some(all);
    if let Some(waits) = waits {
        return Err(waits);
    }
    let launched = sim.ec2.launches.len();
    let until = sim.now + SignedDuration::from_secs(3600);
    live(&mut sim, &mut lease, until)?;
    if sim.ec2.launches.len() > launched {
        return Err("something is launched although everybody runs".to_owned());
    }
    if !sim.in_vain.is_empty() {
        return Err(format!("nobody refuses a node: {:?}", sim.in_vain));
    }
    let (count, never) = unused(&mut sim);
    ends(&mut sim, &mut lease)?;
    Ok((count, never.len()))
}

/// Deployments and Jobs come and go while the process crashes, calls fail, instances die and are taken back: no node goes under a
/// pod, and whoever waits when it has calmed down is served.
fn churns(seed: u64) -> Result<(usize, usize), String> {
    let mut sim = world(seed, 100, &[CapacityType::Spot, CapacityType::OnDemand]);
    sim.undisturbed = false;
    let mut lease = Lease::default();
    for _ in 0..sim.rng.random_range(3..12) {
        let runs_for = sim.rng.random_bool(0.3).then(|| SignedDuration::from_secs(sim.rng.random_range(1..200)));
        grow(&mut sim, runs_for);
        if sim.rng.random_bool(0.5) {
            shrink(&mut sim);
        }
        let until = sim.now + SignedDuration::from_secs(sim.rng.random_range(1..200));
        live(&mut sim, &mut lease, until)?;
    }
    sim.dice.calm = true;
    for capacity in sim.ec2.free.values_mut() {
        *capacity = vec![1000];
    }
    // What was not to be had, and what was not used, is tried again after a pause.
    let until = sim.now + SignedDuration::from_mins(30);
    live(&mut sim, &mut lease, until)?;
    let all = sim.services.take().unwrap();
    let late = all.late(&sim, SERVED);
    sim.services = Some(all);
    if let Some(late) = late {
        return Err(format!("half an hour after all calmed down {late}; {:?}", sim.in_vain));
    }
    let launched = sim.ec2.launches.len();
    let until = sim.now + SignedDuration::from_hours(1);
    live(&mut sim, &mut lease, until)?;
    if sim.ec2.launches.len() > launched {
        return Err("something is launched although everybody runs".to_owned());
    }
    let (count, never) = unused(&mut sim);
    ends(&mut sim, &mut lease)?;
    Ok((count, never.len()))
}

/// More is wanted than the limits of the pools allow: they are never passed, and used up to the last node that would serve.
fn meets_limits(seed: u64) -> Result<usize, String> {
    // Each seed for each resource.
    let resources = u64::try_from(RESOURCES.len()).unwrap();
    let ((limited, each), seed) = (RESOURCES[usize::try_from(seed % resources).unwrap()], seed / resources);
    let limit = i64::try_from(seed % 5 + 1).unwrap();
    let mut sim = world(seed, limit, &[CapacityType::OnDemand]);
    for pool in &mut sim.catalogue.pools {
        // What is left beyond whole nodes serves nobody.
        (pool.limited, pool.limit) = ((limited, each), limit * each + sim.rng.random_range(0..each));
    }
    let mut lease = Lease::default();
    for _ in 0..6 {
        grow(&mut sim, None);
        let until = sim.now + SignedDuration::from_secs(sim.rng.random_range(1..60));
        live(&mut sim, &mut lease, until)?;
    }
    services(&mut sim).deployments.push(Deployment::new("huge", 3_900, 60));
    let until = sim.now + SignedDuration::from_secs(60);
    live(&mut sim, &mut lease, until)?;
    sim.dice.calm = true;
    let until = sim.now + SignedDuration::from_mins(20);
    live(&mut sim, &mut lease, until)?;
    let used = sim.cluster.machines.len();
    if i64::try_from(used).unwrap() != 2 * limit {
        return Err(format!("{used} of {} nodes although many wait; {:?}", 2 * limit, sim.in_vain));
    }
    ends(&mut sim, &mut lease)?;
    Ok(used)
}

/// Lists come back short, at a process that is at work or has just started, and the API server may have nothing else either: no node
/// is tainted, none is terminated, and it is reported once. The answer is how many nodes there were.
fn sees_nothing(seed: u64, replicas: usize, milli_cpu: i64) -> Result<usize, String> {
    let mut sim = world(seed, 400, &[CapacityType::OnDemand]);
    sim.dice.calm = true;
    let mut lease = Lease::default();
    let mut wide = |sim: &mut History, name: &str| {
        services(sim).deployments.push(Deployment::new(name, milli_cpu, replicas / 2));
        let until = sim.now + SERVED;
        live(sim, &mut lease, until)
    };
    wide(&mut sim, "old")?;
    let stale = sim.now;
    wide(&mut sim, "new")?;
    let before: BTreeSet<String> = sim.cluster.machines.keys().cloned().collect();
    let lists = [Lists::NoPods, Lists::Nothing, Lists::PodsBefore(stale), Lists::PodsOfYesterday, Lists::NoNodes]
        [usize::try_from(seed % 5).unwrap()];
    (sim.cluster.lists, sim.cluster.forgotten) = (lists, (seed / 5).is_multiple_of(2));
    sim.cluster.forbidden = seed.is_multiple_of(3);
    sim.cluster.touch();
    for _ in 0..10 {
        // Muster restarts at once, in the middle, or not at all.
        if sim.rng.random_bool(0.1) {
            lease = Lease::default();
        }
        let until = sim.now + SignedDuration::from_mins(1);
        live(&mut sim, &mut lease, until)?;
        let tainted = sim.cluster.machines.values().filter(|machine| !machine.node.taints.is_empty()).count();
        let ended = sim.ec2.vms.values().filter(|vm| !vm.live()).count();
        if tainted + ended > 0 {
            return Err(format!("{lists:?}: {tainted} of {} nodes are tainted, {ended} terminated", before.len()));
        }
    }
    if sim.cluster.keeps != (true, 1) {
        return Err(format!("{lists:?}: it is reported {:?}", sim.cluster.keeps));
    }
    (sim.cluster.lists, sim.cluster.forgotten, sim.cluster.forbidden) = (Lists::Whole, false, false);
    sim.cluster.touch();
    let until = sim.now + SignedDuration::from_mins(10);
    live(&mut sim, &mut lease, until)?;
    let after: BTreeSet<String> = sim.cluster.machines.keys().cloned().collect();
    if !before.is_subset(&after) {
        return Err(format!("{:?} are gone", before.difference(&after)));
    }
    if sim.cluster.keeps.0 || sim.cluster.machines.values().any(|machine| !machine.node.taints.is_empty()) {
        return Err("a taint stays".to_owned());
    }
    ends(&mut sim, &mut lease)?;
    Ok(before.len())
}

/// Nodes register with less than was estimated, and the pods they are launched for do not fit. The answer is how many were launched
/// in vain, and what they cost in micro-dollars.
fn is_refused(seed: u64) -> Result<(usize, u64), String> {
    let mut sim = world(seed, 100, &[CapacityType::OnDemand]);
    sim.dice.calm = true;
    // By plan one pod on each small node; of those there are it fits none, and on a large one if that has what it should.
    let elsewhere = seed.is_multiple_of(2);
    for (name, has) in &mut sim.cluster.ordinary {
        if name.starts_with("small") {
            *has = 3_720;
        } else if !elsewhere {
            *has = 3_800;
        }
    }
    let mut lease = Lease::default();
    let replicas = sim.rng.random_range(1..4);
    services(&mut sim).deployments.push(Deployment::new("tight", 3_900, replicas));
    let until = sim.now + SignedDuration::from_hours(3);
    while sim.now < until {
        // Somebody restarts Muster every now and then: it does not begin to count again.
        if sim.rng.random_bool(0.1) {
            lease = Lease::default();
        }
        let next = (sim.now + SignedDuration::from_mins(10)).min(until);
        live(&mut sim, &mut lease, next)?;
    }
    let waits = services(&mut sim).bound.is_empty();
    let (count, never) = unused(&mut sim);
    // The first launch is for all replicas; then, by pool, one node at once, and one after 5, 10, 20, 40 and 60 minutes.
    let most = if elsewhere { replicas + 1 } else { 2 * (replicas + 6) };
    if waits == elsewhere || never.len() > most {
        let shown = format!("{} of {count} nodes in vain, {:?}", never.len(), sim.in_vain);
        return Err(format!("{} pods are bound; {shown}", services(&mut sim).bound.len()));
    }
    ends(&mut sim, &mut lease)?;
    let lost = lost(&sim, &never);
    // None of them stands longer than it is kept for its pods.
    let dearest = sim.launched_at.values().map(|(_, price)| *price).max().unwrap_or(0);
    if lost == 0 || lost > u64::try_from(never.len()).unwrap() * cost(dearest, SignedDuration::from_mins(30)) {
        return Err(format!("{lost} micro-dollars for {} nodes in vain", never.len()));
    }
    Ok((never.len(), lost))
}

/// Whether `at` is in the time that begins at `start`.
fn within(start: Timestamp, at: Timestamp, span: SignedDuration) -> bool {
    at >= start && at.duration_since(start) < span
}

/// Runs seeds one after the other. The answers of those that went well.
fn all<T>(seeds: u64, run: impl Fn(u64) -> Result<T, String>) -> Vec<T> {
    let given = std::env::var("MUSTER_BATCH_SEED").ok().and_then(|seed| seed.parse().ok());
    let soak = super::histories() / super::HISTORIES;
    let seeds = (seeds * soak.max(1)).min(super::histories());
    let seeds: Vec<u64> = given.map_or_else(|| (0..seeds).collect(), |seed| vec![seed]);
    let results: Vec<(u64, Result<T, String>)> = seeds.into_iter().map(|seed| (seed, run(seed))).collect();
    let wrong: Vec<String> = results
        .iter()
        .filter_map(|(seed, result)| result.as_ref().err().map(|what| format!("seed {seed}: {what:.300}")))
        .collect();
    assert!(wrong.is_empty(), "{} of {} went wrong:\n{}", wrong.len(), results.len(), wrong.join("\n"));
    results.into_iter().filter_map(|(_, result)| result.ok()).collect()
}

#[test]
#[expect(clippy::print_stderr, reason = "how much was launched belongs to the evidence")]
fn deployments_that_grow_beside_gangs_and_jobs_are_served_in_time_and_no_node_is_launched_in_vain() {
    let lives = all(200, grows);
    let sum = |of: fn(&Grown) -> usize| lives.iter().map(of).sum::<usize>();
    let (nodes, never, gangs) = (sum(|one| one.nodes), sum(|one| one.never), sum(|one| one.gangs));
    let (places, taken) = lives.iter().fold((0, 0), |sum, one| (sum.0 + one.places, sum.1 + one.taken));
    eprintln!(
        "{} histories with {gangs} gangs, {nodes} nodes, {never} of which never held a pod; {taken} of {places} pods stand where they were planned",
        lives.len()
    );
    assert_eq!(never, 0, "of {nodes} nodes");
    assert!(100 * taken >= 99 * places, "{taken} of {places} pods stand where they were planned");
}

#[test]
#[expect(clippy::print_stderr, reason = "how much was launched belongs to the evidence")]
fn beside_a_scheduler_that_asks_nobody_everybody_is_served_and_nothing_is_launched_twice() {
    let counts = all(200, grows_beside_another_scheduler);
    let sum = |of: fn(&(usize, usize)) -> usize| counts.iter().map(of).sum::<usize>();
    let (nodes, never) = (sum(|one| one.0), sum(|one| one.1));
    eprintln!("{} histories, {nodes} nodes, {never} of which never held a pod", counts.len());
    // A pod that goes to a node of somebody else leaves its own to whoever that was for.
    assert!(50 * never <= nodes, "{never} of {nodes} nodes never held a pod");
}

#[test]
#[expect(clippy::print_stderr, reason = "how much was launched in vain belongs to the evidence")]
fn whatever_fails_no_node_goes_under_a_pod_and_whoever_waits_is_served_in_the_end() {
    let counts = all(100, churns);
    let sum = |of: fn(&(usize, usize)) -> usize| counts.iter().map(of).sum::<usize>();
    let (nodes, never) = (sum(|one| one.0), sum(|one| one.1));
    eprintln!("{} histories, {nodes} nodes, {never} of which never held a pod", counts.len());
}

#[test]
fn limits_are_used_up_to_the_last_node_by_deployments_and_never_passed() {
    let used = all(120, meets_limits);
    assert!(used.iter().sum::<usize>() > 0);
}

#[test]
fn lists_that_come_back_short_cost_nobody_a_node() {
    let nodes = all(40, |seed| sees_nothing(seed, 60, 3_900));
    assert!(nodes.iter().all(|nodes| *nodes > 10), "{nodes:?}");
}

#[test]
fn lists_that_come_back_short_cost_none_of_300_full_nodes() {
    let nodes = all(5, |seed| sees_nothing(seed, 300, 15_000));
    assert!(nodes.len() > 1 && nodes.iter().all(|nodes| *nodes == 300), "{nodes:?}");
}

#[test]
#[expect(clippy::print_stderr, reason = "how much was launched in vain belongs to the evidence")]
fn nodes_that_kube_scheduler_does_not_use_are_launched_ever_more_rarely() {
    let never = all(40, is_refused);
    let (nodes, lost) = never.iter().fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1));
    eprintln!("{} histories of three hours, {nodes} nodes in vain for {}", never.len(), dollars(lost));
}
