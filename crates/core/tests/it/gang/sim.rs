//! A model of the shell, of kube-scheduler and of the provisioner: carries actions out at once.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use muster_core::extender::barrier::{Arrivals, Then};
use muster_core::extender::{self, Assumed, BindStep, Filtered};
use muster_core::gang::{
    self, Action, BatchRequest, BatchStage, BatchView, Decided, Ledger, Memory, Pass, Pin, PoolView, RecordedWorld,
    Settings, TypeView, World, batch_name,
};
use muster_core::model::gang::{Gang, Phase, Pod, RankClaim, Recognised, Sentence};
use muster_core::model::names::{NodeName, ObjectKey, PodUid};
use muster_core::model::node::{Node, Taint, TaintEffect};
use muster_core::model::snapshot::{AssignedCapacity, Assignment, Snapshot};
use muster_core::topology::{Level, Levels};

use crate::world::{self, at, key};

/// Key of the taint on provisioned nodes.
pub(super) const PENDING: &str = "muster.dev/gang-pending";

/// Levels by name and label key, top to bottom.
pub(super) fn levels(all: &[(&str, &str)]) -> Levels {
    let level = |(name, key): &(&str, &str)| Level { name: Arc::from(*name), key: Arc::from(*key) };
    Levels::new(all.iter().map(level).collect()).unwrap()
}

#[derive(Clone, Debug)]
pub(super) struct Sim {
    pub(super) nodes: BTreeMap<String, Node>,
    pub(super) pods: BTreeMap<String, Pod>,
    pub(super) gangs: BTreeMap<ObjectKey, Gang>,
    pub(super) recognised: BTreeMap<ObjectKey, Recognised>,
    pub(super) pools: Vec<PoolView>,
    pub(super) batches: BTreeMap<Arc<str>, BatchView>,
    pub(super) bookings: BTreeMap<ObjectKey, Arc<str>>,
    /// Nodes assigned whole, by gang.
    pub(super) whole: Vec<(NodeName, ObjectKey)>,
    pub(super) now: Timestamp,
    /// Whether kube-scheduler runs.
    pub(super) scheduler: bool,
    /// Whether kubelets take what is bound to them.
    pub(super) kubelets: bool,
    /// How members are sent to their nodes.
    pub(super) pin: Pin,
    /// Topology levels.
    pub(super) levels: Levels,
    /// What was asked for with each batch, in order of creation.
    pub(super) asked: Vec<BatchRequest>,
    /// Names of batches in order of creation.
    pub(super) provisioned: Vec<String>,
    /// Batches given up, in order.
    pub(super) abandoned: Vec<String>,
    /// Members evicted, in order.
    pub(super) evicted: Vec<String>,
    /// Nodes that are lost.
    pub(super) lost: BTreeSet<NodeName>,
    /// Gangs whose owner is being deleted.
    pub(super) ending: BTreeSet<ObjectKey>,
    /// Gangs whose commit point was passed, in order.
    pub(super) commits: Vec<String>,
    /// Reasons of events, in order.
    pub(super) events: Vec<String>,
    /// What earlier passes found out.
    ledger: RefCell<Ledger>,
    /// What the lease holder remembers.
    pub(super) memory: Memory,
    version: u64,
    pods_made: u32,
}

impl Sim {
    pub(super) fn new(nodes: &[(&str, i64)]) -> Self {
        Self {
            nodes: nodes.iter().map(|(name, gpus)| ((*name).to_owned(), world::node(name, *gpus))).collect(),
            pods: BTreeMap::new(),
            gangs: BTreeMap::new(),
            recognised: BTreeMap::new(),
            pools: Vec::new(),
            batches: BTreeMap::new(),
            bookings: BTreeMap::new(),
            whole: Vec::new(),
            now: at(0),
            scheduler: true,
            kubelets: true,
            pin: Pin::Never,
            levels: levels(&[("zone", "topology.kubernetes.io/zone")]),
            asked: Vec::new(),
            provisioned: Vec::new(),
            abandoned: Vec::new(),
            evicted: Vec::new(),
            lost: BTreeSet::new(),
            ending: BTreeSet::new(),
            commits: Vec::new(),
            events: Vec::new(),
            ledger: RefCell::default(),
            memory: Memory::default(),
            version: 1,
            pods_made: 0,
        }
    }

    /// Declares a gang and makes its first `count` pods, named `<gang>-<rank>`.
    pub(super) fn gang(&mut self, name: &str, size: u32, count: u32) -> &mut Self {
        self.recognised.insert(key(name), world::recognised(name, Some(size), None));
        for rank in 0..count {
            self.member(name, &format!("{name}-{rank}"), RankClaim::Rank(rank));
        }
        self
    }

    pub(super) fn member(&mut self, gang: &str, name: &str, rank: RankClaim) {
        self.pods_made += 1;
        let mut pod = world::member(name, gang, rank);
        pod.uid = PodUid::from(format!("uid-{name}-{}", self.pods_made));
        pod.created = Some(self.now + SignedDuration::from_millis(i64::from(self.pods_made)));
        self.pods.insert(name.to_owned(), pod);
    }

    pub(super) fn end(&mut self, pod: &str, succeeded: bool) {
        let pod = self.pods.get_mut(pod).unwrap();
        (pod.ended, pod.succeeded) = (true, succeeded);
    }

    pub(super) fn snapshot(&self) -> Snapshot {
        let all = |pods: &BTreeMap<String, Pod>| pods.values().cloned().collect::<Vec<_>>();
        let mut snapshot = world::snapshot(
            &self.nodes.values().cloned().collect::<Vec<_>>(),
            &all(&self.pods),
            &self.gangs.values().cloned().collect::<Vec<_>>(),
            &self.recognised.values().cloned().collect::<Vec<_>>(),
        );
        for (node, gang) in &self.whole {
            let assignment = Assignment { gang: gang.clone(), capacity: AssignedCapacity::WholeNode };
            snapshot.assignments.entry(node.clone()).or_default().push(assignment);
        }
        snapshot
    }

    /// One pass, without carrying anything out.
    pub(super) fn pass(&self) -> Pass {
        self.in_world(|world| {
            let pass = gang::pass(world);
            let remembered = gang::pass_with(world, &mut self.ledger.borrow_mut());
            assert_eq!(remembered, pass, "what earlier passes found out changes nothing");
            pass
        })
    }

    /// Writes the next pass down with everything it looks at, reads that, and decides from it again.
    pub(super) fn is_the_same_from_its_recording(&self) {
        self.in_world(|world| {
            let written = |decided: &Decided| serde_json::to_string(decided).unwrap();
            let recording = serde_json::to_string(&RecordedWorld::of(world)).unwrap();
            let read: RecordedWorld = serde_json::from_str(&recording).unwrap();
            let decided = Decided::of(&gang::pass_with(world, &mut self.ledger.borrow_mut()));
            assert_eq!(written(&read.decide()), written(&decided), "a recording holds the whole world");
            assert_eq!(serde_json::to_string(&read).unwrap(), recording, "and comes back as it was");
        });
    }

    fn in_world<T>(&self, look: impl FnOnce(&World<'_>) -> T) -> T {
        let (snapshot, settings) = (self.snapshot(), Settings { pin: self.pin, ..Settings::new(PENDING) });
        look(&World {
            snapshot: &snapshot,
            levels: &self.levels,
            pools: &self.pools,
            batches: &self.batches,
            lost: &self.lost,
            ending: &self.ending,
            bookings: &self.bookings,
            memory: &self.memory,
            settings: &settings,
            now: self.now,
        })
    }

    /// One pass carried out, then whatever kube-scheduler makes of it. Whether anything was done.
    pub(super) fn step(&mut self) -> bool {
        let pass = self.pass();
        assert_eq!(pass.refused_plans, Vec::new(), "the checker accepts every plan");
        // The executor spaces the requeues of a member that is stuck: they do not keep the world from settling.
        let spaced = |action: &Action| matches!(action, Action::Release(release) if release.stuck.is_some());
        let acted = !pass.actions.iter().all(spaced);
        for note in &pass.notes {
            self.memory.record(note, self.now, Settings::new(PENDING).exclude_ttl);
        }
        for action in pass.actions {
            self.apply(action);
        }
        let scheduled = self.scheduler && self.schedule();
        acted || scheduled
    }

    /// Steps until nothing happens any more; a second passes after every step.
    #[track_caller]
    pub(super) fn settle(&mut self) {
        for _ in 0..60 {
            let acted = self.step();
            self.now += SignedDuration::from_secs(1);
            if !acted && !self.step() {
                return;
            }
        }
        panic!("does not settle: {:?}, gangs {:#?}", self.pass().actions, self.gangs);
    }

    pub(super) fn wait(&mut self, seconds: i64) {
        self.now += SignedDuration::from_secs(seconds);
    }

    #[track_caller]
    pub(super) fn state(&self, name: &str) -> &Gang {
        &self.gangs[&key(name)]
    }

    #[track_caller]
    pub(super) fn phase(&self, name: &str) -> Phase {
        self.state(name).phase.unwrap()
    }

    #[track_caller]
    pub(super) fn reason(&self, name: &str) -> String {
        self.state(name).waiting.as_ref().map(|waiting| waiting.reason.to_string()).unwrap_or_default()
    }

    #[track_caller]
    pub(super) fn message(&self, name: &str) -> String {
        self.state(name).waiting.as_ref().map(|waiting| waiting.message.to_string()).unwrap_or_default()
    }

    /// Nodes of the pods, in order of name; empty where unbound.
    pub(super) fn bound(&self) -> Vec<(&str, &str)> {
        let node = |pod: &'_ Pod| pod.node.clone();
        self.pods
            .iter()
            .filter(|(_, pod)| node(pod).is_some())
            .map(|(name, pod)| (name.as_str(), pod.node.as_ref().unwrap().as_str()))
            .collect()
    }

    pub(super) fn apply(&mut self, action: Action) {
        self.version += 1;
        match action {
            Action::CreateGang(recognised) => {
                let mut gang = world::gang(&recognised.key.name, Phase::Collecting, Vec::new());
                gang.uid = Arc::from(format!("{}u{}", recognised.key.name, self.version));
                gang.created = Some(self.now);
                gang.since = None;
                assert!(self.gangs.insert(gang.key.clone(), gang).is_none(), "a gang is created once");
            }
            Action::WriteStatus(write) => {
                let gang = self.gangs.get_mut(&write.gang.key).unwrap();
                assert_eq!(gang.resource_version, write.gang.resource_version, "one write per pass and gang");
                assert!(write.next != *gang, "a write changes something");
                assert!(write.next.epoch >= gang.epoch, "epochs only rise");
                *gang = write.next;
                gang.resource_version = Arc::from(self.version.to_string());
                let reported = write.event.into_iter().chain(write.also);
                self.events.extend(reported.map(|event| event.reason.to_owned()));
            }
            Action::CreateBatch(request) => {
                let name = batch_name(&request.gang.uid, request.round);
                assert!(!self.provisioned.contains(&name), "a round is provisioned once: {name}");
                self.stage(&name, BatchStage::Provisioning);
                self.provisioned.push(name);
                self.asked.push(*request);
            }
            Action::AbandonBatch { name, why } => {
                self.events.extend(why.map(|_| "NodesGivenUp".to_owned()));
                self.batches.remove(&name);
                self.abandoned.push(name.to_string());
            }
            Action::Release(release) => {
                let pod = self.pods.values_mut().find(|pod| pod.uid == release.pod.uid).unwrap();
                if release.pin {
                    assert!(pod.gated && pod.remade, "affinity changes behind a gate alone");
                    pod.pinned = Some(release.node.clone());
                }
                let elsewhere = pod.pinned.as_ref().is_some_and(|node| *node != release.node);
                assert!(!elsewhere, "nobody who is pinned is sent elsewhere");
                pod.gated = false;
                pod.plan_epoch = Some(release.epoch);
                pod.planned_node = Some(release.node.clone());
                if release.nominates() {
                    pod.nominated = Some(release.node.clone());
                    pod.requeued = Some(self.now);
                    if gang::shows_waiting(pod) {
                        pod.reported = Some(Arc::from("Released"));
                        pod.sentence = None;
                    }
                }
            }
            Action::Evict(evict) => {
                let unbound = evict.pod.node.is_none();
                assert!(
                    !unbound || evict.at_once && evict.pod.pinned.is_some(),
                    "who has no node and no pin may go anywhere"
                );
                self.evicted.push(evict.pod.key.name.to_string());
                self.pods.retain(|_, pod| pod.uid != evict.pod.uid);
            }
            Action::Report(report) => {
                let pod = self.pods.values_mut().find(|pod| pod.uid == report.pod.uid).unwrap();
                let same = pod.sentence.as_ref().is_some_and(|shown| *shown.message == *report.message);
                assert!(pod.reported.as_deref() != Some(report.reason) || !same, "a report says something new");
                pod.reported = Some(Arc::from(report.reason));
                pod.sentence = Some(Sentence { message: report.message.into(), at: Some(self.now) });
            }
            Action::Requeue { pod } => {
                let pod = self.pods.values_mut().find(|known| known.uid == pod.uid).unwrap();
                assert!(pod.unscheduled.take().is_some(), "whoever waits is requeued");
            }
            Action::ClearNomination { pod } => {
                let pod = self.pods.values_mut().find(|known| known.uid == pod.uid).unwrap();
                assert!(pod.nominated.take().is_some(), "a nomination is taken back once");
            }
            Action::Ungate { uid } => self.pods.values_mut().find(|pod| pod.uid == uid).unwrap().gated = false,
            Action::DeleteGang { gang } => assert!(self.gangs.remove(&gang.key).is_some()),
        }
    }

    pub(super) fn stage(&mut self, name: &str, stage: BatchStage) {
        let name: Arc<str> = Arc::from(name);
        let view = BatchView { name: Arc::clone(&name), stage, message: None, next_try: None, since: Some(self.now) };
        self.batches.insert(name, view);
    }

    /// kube-scheduler's part: asks filter, stands at the barrier, binds when it closes. Whether anything was bound.
    fn schedule(&mut self) -> bool {
        let snapshot = self.snapshot();
        let offered: Vec<String> = self.nodes.keys().cloned().collect();
        let mut arrived: BTreeMap<ObjectKey, Arrivals<()>> = BTreeMap::new();
        let mut ticket = 0;
        let mut post: Vec<(PodUid, NodeName)> = Vec::new();
        for pod in self.pods.values().filter(|pod| pod.is_live() && pod.node.is_none()) {
            if pod.gated || pod.foreign_gate.is_some() || !pod.ours {
                continue;
            }
            let pinned: Option<Vec<String>> = pod.pinned.as_ref().map(|node| vec![node.to_string()]);
            let offered = pinned.as_ref().unwrap_or(&offered);
            let Filtered::Split { kept, .. } =
                extender::filter(&snapshot, &Assumed::default(), pod, offered, jiff::Timestamp::UNIX_EPOCH)
            else {
                continue;
            };
            let Some(node) = kept.first() else { continue };
            match extender::bind(&snapshot, &Assumed::default(), &pod.uid, node, self.now) {
                BindStep::Post { .. } => post.push((pod.uid.clone(), NodeName::from(*node))),
                BindStep::Arrive { gang } => {
                    ticket += 1;
                    let arrivals = arrived.entry(gang.key.clone()).or_default();
                    arrivals.arrive(pod.uid.clone(), NodeName::from(*node), ticket, ());
                }
                BindStep::Behind | BindStep::Tainted | BindStep::Refuse(_) | BindStep::Unready => {}
            }
        }
        for gang in self.gangs.values_mut() {
            let Some(arrivals) = arrived.get_mut(&gang.key) else { continue };
            let Some(closed) = arrivals.judge(&snapshot, &gang.key, PENDING).closed else { continue };
            assert_eq!(closed.then, Then::Commit, "only members of a released gang arrive");
            self.version += 1;
            gang.phase = Some(Phase::Committing);
            gang.resource_version = Arc::from(self.version.to_string());
            self.commits.push(gang.key.name.to_string());
            post.extend(closed.members.into_iter().map(|member| (member.uid, member.node)));
        }
        for (uid, node) in &post {
            let pod = self.pods.values_mut().find(|pod| pod.uid == *uid).unwrap();
            pod.node = Some(node.clone());
            (pod.running, pod.ended) = (self.kubelets, !self.kubelets);
            pod.not_admitted = (!self.kubelets).then(|| Arc::from("TopologyAffinityError: cannot be aligned"));
        }
        !post.is_empty()
    }
}

/// One pool that sells nodes with four accelerators, at most eight at once.
pub(super) fn pool() -> PoolView {
    let node = Node { labels: BTreeMap::new(), ..world::node("", 4) };
    PoolView {
        name: Arc::from("gpu"),
        blocked: false,
        weight: 0,
        max_nodes: 8,
        placement_group: Arc::from("preferred"),
        zones: Vec::new(),
        types: vec![TypeView {
            name: Arc::from("p5.48xlarge"),
            node: Arc::new(node),
            overhead: Arc::default(),
            capacity: world::node("", 4).allocatable,
            price: Some(1),
            zonal: BTreeMap::new(),
            refused: None,
        }],
        left: Vec::new(),
        ceilings: Vec::new(),
    }
}

/// The batch's nodes join, tainted for the gang.
pub(super) fn join(sim: &mut Sim, nodes: &[&str]) {
    let value = Arc::clone(&sim.state("train").uid);
    for name in nodes {
        let mut node = world::node(name, 4);
        node.taints.push(Taint { key: Arc::from(PENDING), value: Arc::clone(&value), effect: TaintEffect::NoSchedule });
        sim.nodes.insert((*name).to_owned(), node);
    }
    let name = sim.provisioned.last().unwrap().clone();
    sim.stage(&name, BatchStage::Ready);
}
