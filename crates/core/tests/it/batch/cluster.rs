//! A virtual API server with everything around it: NodeBatches with versions, gangs, nodes, pods and pools.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use muster_core::batch::{Booking, Books, Probes, book, shares};
use muster_core::model::batch::{Batch, BatchMember, BatchPhase, MemberState};
use muster_core::model::gang::{Gang, Membership, Phase, Pod, RankClaim};
use muster_core::model::names::InstanceId;
use muster_core::model::node::{Node, Taint, TaintEffect};
use muster_core::model::snapshot::{Snapshot, Vanished};
use muster_core::model::tags::TAG_BATCH;
use muster_core::offering::NVIDIA_GPU;
use muster_core::topology::NETWORK_LAYER_KEYS;
use rand::RngExt;
use rand_chacha::ChaCha8Rng;

use super::awaited::Awaited;
use super::ec2::Ec2;
use crate::world;

pub(super) const PENDING: &str = "muster.dev/gang-pending";
pub(super) const DISRUPTED: &str = "muster.dev/disrupted";
pub(super) const BOOKING: &str = "muster.dev/booking";
pub(super) const UNREGISTERED: &str = "muster.dev/unregistered";
pub(super) const TYPE: &str = "node.kubernetes.io/instance-type";
pub(super) const ZONE: &str = "topology.kubernetes.io/zone";

/// A gang with what will become of it.
#[derive(Clone, Debug)]
pub(super) struct Actor {
    pub(super) gang: Gang,
    /// The batch whose nodes it uses.
    pub(super) batch: String,
    /// The request whose nodes it books.
    pub(super) request: Option<String>,
    /// Nodes it goes on with.
    pub(super) least: usize,
    /// When it ends.
    pub(super) ends: Timestamp,
    /// Whether it ends by being deleted.
    pub(super) deleted: bool,
    /// Whether the garbage collector deletes its batch with it.
    pub(super) cascades: bool,
    /// It is planned on other nodes from then on.
    pub(super) elsewhere: Option<Timestamp>,
    /// When it may commit.
    commits: Option<Timestamp>,
}

/// A Node with what will become of it.
#[derive(Clone, Debug)]
pub(super) struct Machine {
    pub(super) node: Node,
    pub(super) id: InstanceId,
    pub(super) ready: Timestamp,
    devices: Option<Timestamp>,
    goes: Option<Timestamp>,
}

/// How nodes and people behave in one history.
#[derive(Clone, Debug)]
pub(super) struct Manners {
    /// Share of instances that never become nodes.
    pub(super) never_registers: f64,
    /// Share of nodes that never get devices.
    pub(super) never_ready: f64,
    /// By instance type: until then no launched node registers.
    pub(super) broken: BTreeMap<String, Timestamp>,
    /// Whether the cloud controller deletes nodes of ended instances.
    pub(super) cleans: bool,
    /// Whether evictions are refused.
    pub(super) refuses_evictions: bool,
    pub(super) foreign_pods: f64,
}

/// What the API server has.
#[derive(Debug)]
pub(super) struct Cluster {
    pub(super) now: Timestamp,
    pub(super) manners: Manners,
    pub(super) batches: BTreeMap<String, (u64, Arc<Batch>)>,
    pub(super) actors: BTreeMap<String, Actor>,
    pub(super) requests: BTreeSet<String>,
    pub(super) machines: BTreeMap<String, Machine>,
    pub(super) pods: BTreeMap<String, Pod>,
    /// Blocked pools.
    pub(super) blocks: BTreeMap<String, Block>,
    /// What pools have booked.
    pub(super) books: BTreeMap<String, Books>,
    /// What batches cost that are gone.
    pub(super) bills: u64,
    /// A batch went whose bill was not in the books.
    pub(super) unbooked: Option<String>,
    pub(super) version: u64,
    /// Milli-CPUs of instance types whose nodes are for pods of no gang.
    pub(super) ordinary: BTreeMap<String, i64>,
    /// What a list excludes, and with it the watch.
    pub(super) lists: Lists,
    /// The API server has nothing else either.
    pub(super) forgotten: bool,
    /// Pods may not be listed.
    pub(super) forbidden: bool,
    /// What lists did not have any more.
    vanished: Vanished,
    /// Something is kept because nobody saw how it came about, and how often that began.
    pub(super) keeps: (bool, u32),
    /// Whom their nodes await.
    awaited: Awaited,
    known: BTreeMap<InstanceId, Option<Timestamp>>,
    /// Names of Nodes that are gone, and from when on others get them: they are made of addresses, which come back.
    free: Vec<(Timestamp, String)>,
    /// Names that came back.
    pub(super) reused: u32,
    /// Pods that leave, and when.
    leaving: BTreeMap<String, Timestamp>,
    view: Option<Arc<View>>,
}

/// What a list of the API server has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lists {
    /// Everything.
    Whole,
    /// No pods.
    NoPods,
    /// No Nodes.
    NoNodes,
    /// Neither pods nor Nodes.
    Nothing,
    /// Pods that are older.
    PodsBefore(Timestamp),
    /// Pods of yesterday alone, one on every seventh node.
    PodsOfYesterday,
}

/// A pool whose nodes do not join.
#[derive(Clone, Debug, Default)]
pub(super) struct Block {
    /// The batch that found out.
    pub(super) batch: String,
    /// Nodes that were tried alone since.
    pub(super) probes: Probes,
    /// Those EC2 was asked for, each with its price: what is counted must be no less.
    pub(super) launched: BTreeMap<String, u64>,
}

/// What a watch has delivered.
#[derive(Debug)]
pub(super) struct View {
    pub(super) version: u64,
    pub(super) snapshot: Snapshot,
    pub(super) batches: BTreeMap<String, (u64, Arc<Batch>)>,
    pub(super) requests: BTreeSet<String>,
    pub(super) blocks: BTreeMap<String, Block>,
}

impl Actor {
    pub(super) fn new(name: &str, batch: &str, least: usize, ends: Timestamp) -> Self {
        let mut gang = world::gang(name, Phase::Provisioning, Vec::new());
        gang.minimum = u32::try_from(least).unwrap();
        gang.batch = Some(Arc::from(batch));
        Self {
            gang,
            batch: batch.to_owned(),
            request: None,
            least,
            ends,
            deleted: false,
            cascades: false,
            elsewhere: None,
            commits: None,
        }
    }
}

impl Cluster {
    pub(super) fn new(now: Timestamp, manners: Manners) -> Self {
        Self {
            now,
            manners,
            batches: BTreeMap::new(),
            actors: BTreeMap::new(),
            requests: BTreeSet::new(),
            machines: BTreeMap::new(),
            pods: BTreeMap::new(),
            blocks: BTreeMap::new(),
            books: BTreeMap::new(),
            bills: 0,
            unbooked: None,
            version: 1,
            ordinary: BTreeMap::new(),
            lists: Lists::Whole,
            forgotten: false,
            forbidden: false,
            vanished: Vanished::default(),
            keeps: (false, 0),
            awaited: Awaited::default(),
            known: BTreeMap::new(),
            free: Vec::new(),
            reused: 0,
            leaving: BTreeMap::new(),
            view: None,
        }
    }

    /// Something changed.
    pub(super) fn touch(&mut self) {
        self.version += 1;
        self.view = None;
    }

    /// Writes a batch; its version rises.
    pub(super) fn put(&mut self, batch: Batch) -> u64 {
        self.touch();
        self.batches.insert(batch.name.clone(), (self.version, Arc::new(batch)));
        self.version
    }

    /// Books what a batch cost. That nobody else writes meanwhile is for the tests of `book`.
    pub(super) fn book(&mut self, name: &str, pool: &str) -> bool {
        let exist = self.batches.values().map(|(_, batch)| batch.uid.clone()).collect();
        let Some((_, batch)) = self.batches.get(name) else { return true };
        let books = self.books.entry(pool.to_owned()).or_default();
        match book(books, pool, batch, &exist) {
            Booking::Done => true,
            Booking::Write(next) => {
                *books = next;
                true
            }
            Booking::Open => false,
        }
    }

    /// A batch goes: its bill is closed, and in the books.
    pub(super) fn account(&mut self, name: &str) {
        let Some((_, batch)) = self.batches.get(name) else { return };
        let Some(billing) = &batch.status.billing else { return };
        self.bills += billing.spent;
        let booked = shares(&batch.status, None).iter().all(|share| {
            let books = self.books.get(&share.node_pool);
            share.spent == 0 || books.is_some_and(|books| books.booked.contains(&batch.uid))
        });
        if !booked || billing.spent > 0 && !billing.closed {
            self.unbooked = Some(format!("{name} goes with {billing:?} and books {:?}", self.books));
        }
    }

    /// What all pools have booked.
    pub(super) fn booked(&self) -> u64 {
        self.books.values().flat_map(|books| books.rows.values()).map(|spent| spent.all).sum()
    }

    /// What a watch would deliver now.
    pub(super) fn view(&mut self) -> Arc<View> {
        if let Some(view) = &self.view {
            return Arc::clone(view);
        }
        let (nodes, pods) = self.listed();
        let gangs: Vec<Gang> = self.actors.values().map(|actor| actor.gang.clone()).collect();
        let recognised: Vec<_> = self
            .actors
            .values()
            .map(|actor| {
                let mut recognised = world::recognised(&actor.gang.key.name, None, None);
                recognised.booking = actor.request.as_deref().map(Arc::from);
                recognised
            })
            .collect();
        let mut snapshot = world::snapshot(&nodes, &pods, &gangs, &recognised);
        snapshot.vanished = Arc::new(self.vanished.clone());
        if !self.ordinary.is_empty() {
            self.awaited.look(&mut snapshot, self.batches.values().map(|(_, batch)| &**batch), self.now);
        }
        let view = Arc::new(View {
            version: self.version,
            snapshot,
            batches: self.batches.clone(),
            requests: self.requests.clone(),
            blocks: self.blocks.clone(),
        });
        self.view = Some(Arc::clone(&view));
        view
    }

    /// Nodes and pods as lists have them. What they do not have any more is noted, as every process does.
    fn listed(&mut self) -> (Vec<Node>, Vec<Pod>) {
        let nodes: Vec<Node> = self.machines.values().map(|machine| machine.node.clone()).collect();
        let no_nodes = matches!(self.lists, Lists::NoNodes | Lists::Nothing);
        let shown = |pod: &Pod| match self.lists {
            Lists::Whole | Lists::NoNodes => true,
            Lists::NoPods | Lists::Nothing | Lists::PodsOfYesterday => false,
            Lists::PodsBefore(before) => pod.created.is_some_and(|created| created < before),
        };
        let (mut pods, hidden): (Vec<Pod>, Vec<Pod>) = self.pods.values().cloned().partition(shown);
        if self.lists == Lists::Whole {
            let used: BTreeSet<_> = pods.iter().filter_map(|pod| pod.node.as_ref()).collect();
            self.vanished.pods_of.retain(|node| !used.contains(node));
            self.vanished.nodes.clear();
        }
        let hidden = hidden.into_iter().filter(|pod| !pod.ended);
        self.vanished.pods_of.extend(hidden.filter_map(|pod| pod.node));
        if no_nodes {
            self.vanished.nodes.extend(nodes.into_iter().map(|node| node.name));
            return (Vec::new(), pods);
        }
        if self.lists == Lists::PodsOfYesterday {
            let old = nodes.iter().step_by(7).map(|node| {
                let pod = world::pod(&format!("yesterday-{}", node.name), &world::shape(0));
                Pod { node: Some(node.name.clone()), ..pod }
            });
            pods.extend(old);
        }
        (nodes, pods)
    }

    fn within(&self, rng: &mut ChaCha8Rng, seconds: std::ops::Range<i64>) -> Timestamp {
        self.now + SignedDuration::from_millis(rng.random_range(seconds.start * 1000..seconds.end * 1000))
    }

    /// Time passes: nodes come and go, pods leave, gangs begin and end.
    pub(super) fn pass_time(&mut self, now: Timestamp, ec2: &Ec2, rng: &mut ChaCha8Rng) {
        self.now = now;
        self.register(ec2, rng);
        self.age_nodes(ec2, rng);
        let left: Vec<String> =
            self.leaving.iter().filter(|(_, at)| **at <= now).map(|(name, _)| name.clone()).collect();
        for name in left {
            self.leaving.remove(&name);
            self.pods.remove(&name);
            self.touch();
        }
        for name in self.actors.keys().cloned().collect::<Vec<_>>() {
            self.act(&name, rng);
        }
        self.foreign(rng);
    }

    fn register(&mut self, ec2: &Ec2, rng: &mut ChaCha8Rng) {
        use muster_core::ec2::InstanceState;
        for (id, vm) in &ec2.vms {
            if vm.instance.state != InstanceState::Running {
                continue;
            }
            if !self.known.contains_key(id) {
                let broken = self.manners.broken.get(&vm.instance.instance_type).is_some_and(|until| self.now < *until);
                let never = broken || rng.random_bool(self.manners.never_registers);
                let at = self.within(rng, 3..60);
                self.known.insert(id.clone(), (!never).then_some(at));
            }
            if !matches!(self.known[id], Some(at) if at <= self.now) {
                continue;
            }
            self.known.insert(id.clone(), None);
            let name = self.name(id);
            let mut node = world::node(&name, 0);
            node.provider_id = Some(Arc::from(format!("aws:///{}/{id}", vm.instance.zone)));
            node.labels.insert(Arc::from(NETWORK_LAYER_KEYS[0]), Arc::from("core"));
            let batch = vm.instance.tags.get(TAG_BATCH).map_or("", String::as_str);
            node.labels.insert(TAG_BATCH.into(), batch.into());
            let cpu = self.ordinary.get(&vm.instance.instance_type).copied();
            if cpu.is_none() && !self.ordinary.is_empty() {
                // A member fills its node.
                node.allocatable.set("cpu", 1_000);
            }
            let (taint, effect) = match cpu {
                None => (PENDING, TaintEffect::NoSchedule),
                Some(cpu) => {
                    node.labels.insert(ZONE.into(), vm.instance.zone.as_str().into());
                    node.labels.insert(TYPE.into(), vm.instance.instance_type.as_str().into());
                    node.allocatable.set("cpu", cpu);
                    (UNREGISTERED, TaintEffect::NoExecute)
                }
            };
            node.taints = vec![Taint { key: Arc::from(taint), value: Arc::from("uid"), effect }];
            node.ready = false;
            node.created = Some(self.now);
            let has = cpu.is_none() && !rng.random_bool(self.manners.never_ready);
            let devices = has.then(|| self.within(rng, 0..60));
            let ready = self.within(rng, 0..20);
            self.machines.insert(name, Machine { node, id: id.clone(), ready, devices, goes: None });
            self.touch();
        }
    }

    /// The name an instance registers under: one that is free again, if there is one.
    fn name(&mut self, id: &InstanceId) -> String {
        match self.free.iter().position(|(at, _)| *at <= self.now) {
            Some(free) => {
                self.reused += 1;
                self.free.remove(free).1
            }
            None => format!("n-{id}"),
        }
    }

    /// The name of the Node of an instance.
    pub(super) fn name_of(&self, id: &InstanceId) -> Option<&str> {
        self.machines.iter().find(|(_, machine)| machine.id == *id).map(|(name, _)| name.as_str())
    }

    /// The Node of this name, if it is that of the instance.
    pub(super) fn machine_of(&mut self, name: &str, id: &InstanceId) -> Option<&mut Machine> {
        self.machines.get_mut(name).filter(|machine| machine.id == *id)
    }

    fn age_nodes(&mut self, ec2: &Ec2, rng: &mut ChaCha8Rng) {
        let now = self.now;
        let mut changed = false;
        let mut gone = Vec::new();
        let goes = self.within(rng, 5..60);
        for (name, machine) in &mut self.machines {
            if machine.ready <= now && !machine.node.ready {
                machine.node.ready = true;
                changed = true;
            }
            if machine.devices.is_some_and(|at| at <= now) {
                machine.devices = None;
                machine.node.allocatable.set(NVIDIA_GPU, 8);
                changed = true;
            }
            if !ec2.vms[&machine.id].live() {
                if machine.node.ready || machine.ready != Timestamp::MAX {
                    machine.ready = Timestamp::MAX;
                    machine.node.ready = false;
                    changed = true;
                }
                if self.manners.cleans && *machine.goes.get_or_insert(goes) <= now {
                    gone.push(name.clone());
                }
            }
        }
        if changed {
            self.touch();
        }
        for name in gone {
            self.delete_node(&name);
        }
    }

    /// A Node goes, and sooner or later its pods.
    pub(super) fn delete_node(&mut self, name: &str) {
        if self.machines.remove(name).is_some() {
            let at = self.now + SignedDuration::from_secs(20);
            // Whose pods of no gang are bound by name, nothing comes back: that is kube-scheduler's story.
            if self.ordinary.is_empty() {
                self.free.push((self.now + SignedDuration::from_secs(30), name.to_owned()));
            }
            let on = self.pods.iter().filter(|(_, pod)| pod.node.as_ref().is_some_and(|node| node.as_str() == name));
            for pod in on.map(|(pod, _)| pod.clone()).collect::<Vec<_>>() {
                self.leaving.entry(pod).or_insert(at);
            }
            self.touch();
        }
    }

    /// Asks a pod to leave.
    pub(super) fn evict(&mut self, name: &str, force: bool, rng: &mut ChaCha8Rng) -> bool {
        if !self.pods.contains_key(name) {
            return true;
        }
        if !force && self.manners.refuses_evictions {
            return false;
        }
        self.leave(name, rng);
        true
    }

    fn leave(&mut self, name: &str, rng: &mut ChaCha8Rng) {
        let at = self.within(rng, 0..20);
        if let Some(pod) = self.pods.get_mut(name) {
            pod.deleting = true;
            self.leaving.entry(name.to_owned()).or_insert(at);
            self.touch();
        }
    }

    /// Names of the nodes a gang would use: all of the batch, if each can be used.
    fn usable(&self, batch: &Batch) -> Option<Vec<String>> {
        let fit = |node: &str, id: &InstanceId| {
            let machine = self.machines.get(node).filter(|machine| machine.id == *id)?;
            machine.node.taints.iter().all(|taint| *taint.key != *DISRUPTED).then(|| node.to_owned())
        };
        let of = |one: &BatchMember| {
            (one.state == MemberState::Ready && one.loss.is_none()).then(|| fit(one.node.as_deref()?, &one.id))?
        };
        batch.status.instances.iter().map(of).collect()
    }

    fn act(&mut self, name: &str, rng: &mut ChaCha8Rng) {
        let Some(mut actor) = self.actors.get(name).cloned() else { return };
        let committed = matches!(actor.gang.phase, Some(Phase::Committing | Phase::Bound));
        if actor.gang.phase == Some(Phase::Finished) {
            return;
        }
        if actor.ends <= self.now {
            self.end(name, rng);
            return;
        }
        if actor.elsewhere.is_some_and(|at| at <= self.now) && !committed {
            actor.gang.places = vec![world::place(0, None, "other-1")];
            actor.gang.phase = Some(Phase::Bound);
            self.actors.insert(name.to_owned(), actor);
            self.touch();
            return;
        }
        let batch = self.batches.get(&actor.batch).map(|(_, batch)| Arc::clone(batch));
        if committed {
            if actor.gang.phase == Some(Phase::Committing) {
                actor.gang.phase = Some(Phase::Bound);
                self.actors.insert(name.to_owned(), actor.clone());
                self.touch();
            }
            self.mend(actor, batch.as_deref(), rng);
            return;
        }
        let Some(batch) = batch.filter(|batch| batch.status.phase == BatchPhase::Ready && !batch.deleting) else {
            return;
        };
        let Some(nodes) = self.usable(&batch).filter(|nodes| nodes.len() >= actor.least) else { return };
        let at = *actor.commits.get_or_insert(self.now + SignedDuration::from_secs(rng.random_range(0..15)));
        if at <= self.now {
            actor.commits = None;
            actor.gang.phase = Some(Phase::Committing);
            actor.gang.epoch += 1;
            actor.gang.places.clear();
            for (rank, node) in (0..).zip(nodes) {
                let pod = format!("{name}-{}-{rank}", actor.gang.epoch);
                actor.gang.places.push(world::place(rank, Some(&pod), &node));
                let mut member = world::member(&pod, name, RankClaim::Rank(rank));
                member.gated = false;
                member.node = Some(node.as_str().into());
                member.running = true;
                self.pods.insert(pod, member);
            }
        }
        self.actors.insert(name.to_owned(), actor);
        self.touch();
    }

    /// A gang that lost nodes goes on with its minimum, or stops.
    fn mend(&mut self, mut actor: Actor, batch: Option<&Batch>, rng: &mut ChaCha8Rng) {
        let name = actor.gang.key.name.to_string();
        let lost = |node: &str| {
            let is_there = |id: &InstanceId| self.machines.get(node).is_some_and(|machine| machine.id == *id);
            let listed = batch.map_or_else(
                || self.machines.contains_key(node),
                |batch| {
                    let instances = &batch.status.instances;
                    let there = |one: &BatchMember| one.node.as_deref() == Some(node) && is_there(&one.id);
                    instances.iter().any(|one| there(one) && !one.is_lost(self.now))
                },
            );
            node != "other-1" && !listed
        };
        let (gone, kept): (Vec<_>, Vec<_>) =
            actor.gang.places.clone().into_iter().partition(|place| lost(place.node.as_str()));
        if gone.is_empty() {
            return;
        }
        let stops = kept.len() < actor.least;
        let leave = if stops { actor.gang.places.clone() } else { gone };
        for pod in leave.iter().filter_map(|place| place.pod.clone()) {
            self.leave(&pod, rng);
        }
        if stops {
            actor.gang.places.clear();
            actor.gang.phase = Some(Phase::Provisioning);
        } else {
            actor.gang.places = kept;
        }
        self.actors.insert(name, actor);
        self.touch();
    }

    /// The owner ends, at whatever point.
    pub(super) fn end(&mut self, name: &str, rng: &mut ChaCha8Rng) {
        let Some(mut actor) = self.actors.remove(name) else { return };
        let members: Vec<String> = self
            .pods
            .iter()
            .filter(|(_, pod)| matches!(&pod.membership, Membership::Member { gang, .. } if *gang == actor.gang.key))
            .map(|(name, _)| name.clone())
            .collect();
        for pod in members {
            self.leave(&pod, rng);
        }
        if let Some(request) = &actor.request {
            self.requests.remove(&format!("{request}-uid"));
        }
        if actor.cascades
            && let Some((_, batch)) = self.batches.get(&actor.batch)
        {
            let batch = Batch { deleting: true, ..Batch::clone(batch) };
            self.put(batch);
        }
        if !actor.deleted {
            actor.gang.phase = Some(Phase::Finished);
            actor.gang.places.clear();
            self.actors.insert(name.to_owned(), actor);
        }
        self.touch();
    }

    /// A pod of no gang comes where nothing keeps it away.
    fn foreign(&mut self, rng: &mut ChaCha8Rng) {
        if !rng.random_bool(self.manners.foreign_pods) {
            return;
        }
        let open = |machine: &&Machine| machine.node.taints.is_empty() && machine.node.ready;
        let Some(machine) = self.machines.values().find(open) else { return };
        let name = format!("single-{}", self.version);
        let mut pod = world::pod(&name, &world::shape(0));
        pod.node = Some(machine.node.name.clone());
        pod.running = true;
        self.pods.insert(name, pod);
        self.touch();
    }

    /// Names of those of some nodes that pods stand on.
    pub(super) fn with_pods(&self, nodes: &[String]) -> Vec<String> {
        let on = |node: &&String| {
            let stands = |pod: &Pod| pod.holds_capacity() && pod.node.as_ref().is_some_and(|on| on.as_str() == **node);
            self.pods.values().any(stands)
        };
        nodes.iter().filter(on).filter(|_| !self.forgotten).cloned().collect()
    }

    /// Whether a live member of a gang stands on the node.
    pub(super) fn occupied(&self, node: &str) -> bool {
        let member = |pod: &Pod| pod.membership != Membership::Single && pod.is_live();
        self.machines.contains_key(node)
            && self.pods.values().any(|pod| member(pod) && pod.node.as_ref().is_some_and(|on| on.as_str() == node))
    }
}
