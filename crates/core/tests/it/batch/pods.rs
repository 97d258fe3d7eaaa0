//! Batches for pods of no gang: each node serves, fails and goes by itself.

mod devices;
mod failing;
mod kept;
mod losing;
mod tainted;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::SignedDuration;
use muster_core::batch::{Change, Converge, Decision, JoinClocks, Look, Memory, Note, Sight, World, pass, witness};
use muster_core::ec2::{CapacityType, InstanceState, NoticeKind};
use muster_core::model::batch::{
    Attempt, AttemptOutcome, Batch, BatchMember, BatchPhase, BatchSpec, BatchStatus, Loss, LossCause, MemberState,
    Owner,
};
use muster_core::model::gang::{Claims, Pod};
use muster_core::model::names::InstanceId;
use muster_core::model::node::{Node, Taint, TaintEffect};
use muster_core::model::resources::{CPU, Resources};
use muster_core::model::snapshot::{Awaiting, Places, Snapshot, Vanished};
use muster_core::offering::{GroupPolicy, NODES};

use super::cluster::View;
use super::draw;
use super::supply::{Lessons, Offers, PoolDef};
use super::worker::settings;
use crate::world::{self, at};

const NAME: &str = "pods-1";
const NOW: i64 = 1000;
/// Nobody knows until when a node is kept that this process never saw Ready.
const NEVER_READY: i64 = i64::MAX;

/// What a decision asked for and reported.
struct Did {
    looks: Vec<Look>,
    notes: Vec<Note>,
}

struct Setup {
    status: BatchStatus,
    deleting: bool,
    memory: Memory,
    nodes: Vec<Node>,
    pods: Vec<Pod>,
    /// What a list did not have any more.
    vanished: Vanished,
    /// Until when each node is kept for a pod that has not come, or [`NEVER_READY`].
    awaits: Option<i64>,
    /// What that pod asks for.
    asks: Option<Resources>,
    /// What its pool gives nodes for good.
    taints: Vec<Taint>,
    consolidate: Option<SignedDuration>,
    /// Made for spot or on demand.
    either: bool,
    now: i64,
}

impl Setup {
    /// A batch of Ready nodes, each with a pod.
    fn serving(ids: &[&str]) -> Self {
        let member = |id: &&str| BatchMember {
            node: Some(format!("n-{id}")),
            registered: Some(at(0)),
            ..BatchMember::new(InstanceId::from(*id), 1, MemberState::Ready)
        };
        let count = u32::try_from(ids.len()).unwrap();
        let status = BatchStatus {
            phase: BatchPhase::InUse,
            count,
            ready_count: count,
            attempt: 1,
            node_pool: Some("p0".to_owned()),
            instance_type: Some("p0.48xlarge".to_owned()),
            zone: Some("a".to_owned()),
            capacity_type: Some(CapacityType::OnDemand),
            price: Some(u64::from(count) * 10),
            instances: ids.iter().map(member).collect(),
            attempts: vec![won(count)],
            ..BatchStatus::default()
        };
        Self {
            status,
            deleting: false,
            memory: Memory::default(),
            nodes: ids.iter().map(|id| node(id)).collect(),
            pods: ids.iter().map(|id| on(id)).collect(),
            vanished: Vanished::default(),
            awaits: None,
            asks: None,
            taints: Vec::new(),
            consolidate: Some(SignedDuration::from_secs(30)),
            either: false,
            now: NOW,
        }
    }

    /// The same once more.
    fn again(&self) -> Self {
        let (status, memory, vanished) = (self.status.clone(), self.memory.clone(), self.vanished.clone());
        Self {
            status,
            memory,
            vanished,
            nodes: self.nodes.clone(),
            pods: self.pods.clone(),
            asks: self.asks.clone(),
            taints: self.taints.clone(),
            ..*self
        }
    }

    fn decide(&self) -> Decision {
        let pool = PoolDef {
            name: "p0".to_owned(),
            instance_type: "p0.48xlarge".to_owned(),
            also: Vec::new(),
            zones: vec!["a".to_owned()],
            capacity_types: if self.either {
                vec![CapacityType::Spot, CapacityType::OnDemand]
            } else {
                vec![CapacityType::OnDemand]
            },
            limit: 8,
            limited: (NODES, 1),
            ceiling: None,
            group: GroupPolicy::None,
            join: JoinClocks::default(),
            consolidate: self.consolidate,
            foreign: None,
            cpu: None,
            taints: self.taints.clone(),
        };
        let catalogue = draw::catalogue(vec![pool]);
        let lessons = Lessons::default();
        let status = self.status.clone();
        let batch = Batch { status, deleting: self.deleting, ..draw::batch(NAME, self.spec(), at(0)) };
        let mut snapshot = world::snapshot(&self.nodes, &self.pods, &[], &[]);
        if let Some(until) = self.awaits {
            let places = [(Arc::from("3-web"), Places { left: 1, requests: self.asks.clone() })].into();
            let until = (until != NEVER_READY).then(|| at(until));
            let awaiting = Arc::new(Awaiting { places, until });
            snapshot.awaiting = self.nodes.iter().map(|node| (node.name.clone(), Arc::clone(&awaiting))).collect();
        }
        let view =
            View { version: 1, snapshot, batches: BTreeMap::new(), requests: BTreeSet::new(), blocks: BTreeMap::new() };
        let supply = Offers { catalogue: &catalogue, lessons: &lessons, view: &view };
        let batches = BTreeMap::from([(NAME.to_owned(), Arc::new(batch))]);
        let memory = BTreeMap::from([(NAME.to_owned(), self.memory.clone())]);
        let mut decisions = pass(&World {
            batches: &batches,
            memory: &memory,
            busy: &BTreeSet::new(),
            snapshot: &view.snapshot,
            stale: false,
            regained: None,
            supply: &supply,
            settings: &settings(),
            now: at(self.now),
            now_real: at(self.now),
        });
        decisions.remove(0)
    }

    /// What the worker does before each pass.
    fn witness(&mut self) {
        let batch = Batch { status: self.status.clone(), ..draw::batch(NAME, self.spec(), at(0)) };
        let batches = BTreeMap::from([(NAME.to_owned(), Arc::new(batch))]);
        let mut memory = BTreeMap::from([(NAME.to_owned(), std::mem::take(&mut self.memory))]);
        let vanished = Arc::new(self.vanished.clone());
        let snapshot = Snapshot { vanished, ..world::snapshot(&self.nodes, &self.pods, &[], &[]) };
        witness(&batches, &snapshot, &mut memory);
        self.memory = memory.remove(NAME).unwrap();
    }

    fn spec(&self) -> BatchSpec {
        BatchSpec {
            node_pools: vec!["p0".to_owned()],
            count: self.status.count,
            partial: true,
            owner: Owner::Pods,
            zones: vec!["a".to_owned()],
            capacity_type: (!self.either).then_some(CapacityType::OnDemand),
            ..BatchSpec::default()
        }
    }

    /// Decides, writes, and makes the taints what was decided.
    fn step(&mut self) -> Did {
        let decision = self.decide();
        if let Some(next) = &decision.next {
            self.status = next.clone();
        }
        for edit in &decision.converge {
            match edit {
                Converge::Taint { node, key, .. } => {
                    let taint = Taint { key: Arc::from(*key), value: "".into(), effect: TaintEffect::NoSchedule };
                    self.node(node).taints.push(taint);
                }
                Converge::Untaint { node, key } => self.node(node).taints.retain(|taint| *taint.key != **key),
                other => panic!("{other:?}"),
            }
        }
        Did { looks: decision.looks, notes: decision.notes }
    }

    fn node(&mut self, name: &str) -> &mut Node {
        self.nodes.iter_mut().find(|node| node.name.as_str() == name).unwrap()
    }

    fn is_tainted(&self, name: &str) -> bool {
        self.nodes.iter().any(|node| node.name.as_str() == name && !node.taints.is_empty())
    }
}

/// An attempt that EC2 launched so many nodes for.
pub(crate) fn won(count: u32) -> Attempt {
    Attempt {
        number: 1,
        node_pool: "p0".to_owned(),
        instance_type: "p0.48xlarge".to_owned(),
        zone: "a".to_owned(),
        subnet: "subnet-a".to_owned(),
        capacity_type: CapacityType::OnDemand,
        overrides: Vec::new(),
        count,
        group: false,
        reservation_group: None,
        reservation: None,
        way: muster_core::ec2::LaunchWay::Fleet,
        image: None,
        taints: Vec::new(),
        template: None,
        parameters: None,
        token: None,
        replayed: false,
        sweeps: 0,
        fleet: None,
        request_id: None,
        replaces: Vec::new(),
        probe: false,
        outcome: AttemptOutcome::Won,
        code: None,
        message: None,
        started: Some(at(0)),
        ended: Some(at(0)),
    }
}

fn node(id: &str) -> Node {
    let mut node = world::node(&format!("n-{id}"), 8);
    node.provider_id = Some(Arc::from(format!("aws:///a/{id}")));
    node
}

fn on(id: &str) -> Pod {
    Pod { node: Some(format!("n-{id}").as_str().into()), ..world::pod(&format!("on-{id}"), &world::shape(0)) }
}

fn ids(status: &BatchStatus) -> Vec<&str> {
    status.instances.iter().map(|one| one.id.as_str()).collect()
}

#[test]
fn an_empty_node_goes_after_its_quiet_time_a_taint_and_a_last_look_and_the_others_stay() {
    let mut setup = Setup::serving(&["i-1", "i-2"]);
    setup.pods.retain(|pod| pod.node.as_ref().unwrap().as_str() != "n-i-2");
    setup.step();
    assert_eq!(setup.status.instances[1].empty_since, Some(at(NOW)));
    setup.now += 29;
    setup.step();
    assert!(!setup.is_tainted("n-i-2"), "its quiet time is not over");
    setup.now += 1;
    setup.step();
    assert!(setup.is_tainted("n-i-2") && !setup.is_tainted("n-i-1"));
    setup.step();
    assert_eq!(setup.status.instances[1].leaving_since, Some(at(NOW + 30)));
    setup.now += 9;
    assert!(setup.step().looks.is_empty());
    setup.now += 1;
    let look = Look::Occupied(vec!["n-i-2".to_owned()]);
    assert_eq!(setup.step().looks, std::slice::from_ref(&look), "the cache is not trusted");
    setup.memory.seen.insert(look, Ok(Sight::Names(Vec::new())));
    setup.step();
    assert_eq!((ids(&setup.status), setup.status.count, setup.status.price), (vec!["i-1"], 1, Some(10)));
    assert_eq!(setup.status.replaced[0].id.as_str(), "i-2");
}

#[test]
fn a_pod_that_is_found_at_the_last_look_keeps_its_node() {
    let mut setup = Setup::serving(&["i-1"]);
    setup.pods.clear();
    setup.step();
    setup.now += 30;
    setup.step();
    setup.step();
    setup.now += 10;
    let look = Look::Occupied(vec!["n-i-1".to_owned()]);
    setup.memory.seen.insert(look, Ok(Sight::Names(vec!["n-i-1".to_owned()])));
    setup.step();
    assert!(!setup.is_tainted("n-i-1"));
    assert_eq!((ids(&setup.status), setup.status.instances[0].leaving_since), (vec!["i-1"], None));
}

#[test]
fn after_somebody_took_the_taint_off_a_node_it_is_kept_for_ten_seconds_again() {
    let mut setup = Setup::serving(&["i-1"]);
    setup.pods.clear();
    setup.step();
    setup.now += 30;
    setup.step();
    setup.step();
    assert_eq!(setup.status.instances[0].leaving_since, Some(at(NOW + 30)));
    setup.now += 9;
    setup.node("n-i-1").taints.clear();
    setup.step();
    assert!(setup.is_tainted("n-i-1"), "it is put on again");
    setup.now += 1;
    assert!(setup.step().looks.is_empty());
    assert_eq!(setup.status.instances[0].leaving_since, Some(at(NOW + 40)));
    setup.now += 9;
    assert!(setup.step().looks.is_empty());
    setup.now += 1;
    assert_eq!(setup.step().looks, [Look::Occupied(vec!["n-i-1".to_owned()])]);
}

#[test]
fn a_node_that_failed_to_join_goes_only_once_the_api_server_has_no_pod_on_it() {
    let mut setup = Setup::serving(&["i-1", "i-2"]);
    // It lacks its devices; kube-scheduler calls it Ready, and the cache does not show yet whom it binds there.
    setup.pods.truncate(1);
    setup.nodes[1] = Node { provider_id: Some(Arc::from("aws:///a/i-2")), ..world::node("n-i-2", 0) };
    setup.status.instances[1].state = MemberState::Registered;
    setup.memory.scratch.looked = Some(at(NOW));
    setup.step();
    assert_eq!((ids(&setup.status), setup.status.replaced.len()), (vec!["i-1"], 1));
    let shown = super::decisions::instances(&[("i-2", InstanceState::Running)]);
    setup.memory.seen.insert(Look::Instances(vec!["i-2".into()]), Ok(Sight::Instances(shown)));
    let ends = |setup: &Setup| setup.decide().change == Some(Change::Terminate(vec!["i-2".into()]));
    assert!(!ends(&setup), "pods are kept away first");
    setup.step();
    assert!(setup.is_tainted("n-i-2"));
    setup.step();
    setup.now += 9;
    assert!(!ends(&setup) && setup.step().looks.is_empty());
    setup.now += 1;
    let look = Look::Occupied(vec!["n-i-2".to_owned()]);
    assert_eq!(setup.step().looks, std::slice::from_ref(&look), "the cache is not trusted");
    setup.memory.seen.insert(look.clone(), Ok(Sight::Names(vec!["n-i-2".to_owned()])));
    assert!(!ends(&setup), "a pod was bound in the last second");
    setup.memory.seen.insert(look, Ok(Sight::Names(Vec::new())));
    assert!(ends(&setup));
}

#[test]
fn an_instance_without_a_node_goes_only_once_the_api_server_has_no_pod_there() {
    let mut setup = Setup::serving(&["i-1"]);
    setup.nodes.clear();
    setup.pods.clear();
    setup.step();
    assert_eq!(setup.status.replaced.len(), 1);
    let shown = super::decisions::instances(&[("i-1", InstanceState::Running)]);
    setup.memory.seen.insert(Look::Instances(vec!["i-1".into()]), Ok(Sight::Instances(shown)));
    let look = Look::Occupied(vec!["n-i-1".to_owned()]);
    assert_eq!(setup.step().looks, std::slice::from_ref(&look));
    let ends = |setup: &Setup| setup.decide().change == Some(Change::Terminate(vec!["i-1".into()]));
    setup.memory.seen.insert(look.clone(), Ok(Sight::Names(vec!["n-i-1".to_owned()])));
    assert!(!ends(&setup));
    setup.memory.seen.insert(look, Ok(Sight::Names(Vec::new())));
    assert!(ends(&setup));
}

#[test]
fn a_pod_that_comes_while_its_node_is_about_to_go_keeps_it() {
    let mut setup = Setup::serving(&["i-1"]);
    let pods = std::mem::take(&mut setup.pods);
    setup.step();
    setup.now += 30;
    setup.step();
    assert!(setup.is_tainted("n-i-1"));
    setup.pods = pods;
    setup.step();
    assert!(!setup.is_tainted("n-i-1"));
    assert_eq!(setup.status.instances[0].empty_since, None);
}

#[test]
fn a_node_is_not_empty_as_long_as_it_is_kept_for_the_pods_it_was_launched_for() {
    let mut setup = Setup::serving(&["i-1"]);
    setup.pods.clear();
    setup.consolidate = Some(SignedDuration::ZERO);
    setup.awaits = Some(NOW + 60);
    setup.now += 59;
    setup.step();
    assert_eq!((setup.is_tainted("n-i-1"), setup.status.instances[0].empty_since), (false, None));
    setup.now += 1;
    setup.step();
    assert!(setup.is_tainted("n-i-1"), "whoever has not come by now does not come");
    let mut deleted = Setup { deleting: true, awaits: Some(NOW + 60), ..Setup::serving(&["i-1"]) };
    deleted.pods.clear();
    deleted.step();
    assert!(deleted.is_tainted("n-i-1"), "a person wants it to go");
}

#[test]
fn a_node_that_cannot_hold_the_pods_it_was_launched_for_is_not_kept_for_them() {
    let tainted = |milli_cpu: i64| {
        let mut setup = Setup { awaits: Some(NOW + 60), ..Setup::serving(&["i-1"]) };
        setup.asks = Some(Resources::from_iter([(CPU, milli_cpu)]));
        setup.pods.clear();
        setup.consolidate = Some(SignedDuration::ZERO);
        setup.step();
        setup.is_tainted("n-i-1")
    };
    let has = Setup::serving(&["i-1"]).nodes[0].allocatable.get(CPU);
    assert!(!tainted(has), "all of it: a pod may still come");
    assert!(tainted(has + 1), "more than it has: none comes, however long it is kept");
}

/// A node that was empty at [`NOW`], and a pod that it would hold.
fn empty_beside(waits: Pod) -> Setup {
    let mut setup = Setup::serving(&["i-1"]);
    setup.pods = vec![waits];
    setup.step();
    setup
}

/// A pod that waits since this second.
fn waits_since(second: i64) -> Pod {
    Pod { created: Some(at(second)), ..world::pod("waits", &world::shape(0)) }
}

#[test]
fn an_empty_node_stays_for_a_pod_that_waits_until_kube_scheduler_has_tried_it_again_with_the_node_empty() {
    let mut setup = empty_beside(waits_since(0));
    setup.now += 359;
    setup.step();
    assert!(!setup.is_tainted("n-i-1"));
    let mut gone = setup.again();
    gone.pods.clear();
    gone.step();
    assert!(gone.is_tainted("n-i-1"), "nobody waits any more");
    setup.now += 1;
    setup.step();
    assert!(setup.is_tainted("n-i-1"), "a pod that is refused every node switches off the end of none");
}

#[test]
fn an_empty_node_stays_for_a_pod_that_has_just_come_and_that_kube_scheduler_has_not_refused() {
    let tainted = |waits: Pod| {
        let mut setup = empty_beside(waits);
        setup.now += 3_600;
        setup.step();
        setup.is_tainted("n-i-1")
    };
    let came = NOW + 3_600 - 359;
    assert!(!tainted(waits_since(came)));
    assert!(tainted(waits_since(came - 1)), "it has been tried since");
    let refused = Some((Arc::from("Unschedulable"), Arc::from("0/1 nodes are available")));
    assert!(tainted(Pod { unscheduled: refused, ..waits_since(came) }), "the node was empty when it was refused");
}

#[test]
fn an_empty_node_does_not_stay_for_a_pod_whose_volume_claim_is_not_there() {
    let claims = Claims { awaits: Some(Arc::from("claim data does not exist")), ..Claims::default() };
    let mut setup = empty_beside(Pod { claims: Arc::new(claims), ..waits_since(NOW) });
    setup.now += 30;
    setup.step();
    assert!(setup.is_tainted("n-i-1"));
}

#[test]
fn a_node_whose_kubelet_is_gone_goes_although_its_deleted_pods_cannot_end() {
    let mut setup = Setup::serving(&["i-1"]);
    setup.pods[0].deleting = true;
    setup.step();
    assert_eq!(setup.status.instances[0].empty_since, None, "its kubelet is about to end it");
    setup.nodes[0].ready = false;
    let mut running = Setup { pods: vec![on("i-1")], ..setup.again() };
    running.step();
    assert_eq!(running.status.instances[0].empty_since, None, "Kubernetes has not given it up yet");
    setup.step();
    setup.now += 299;
    setup.step();
    assert!(!setup.is_tainted("n-i-1"), "its kubelet may come back, and end them in their time");
    setup.now += 1;
    setup.step();
    assert!(setup.is_tainted("n-i-1"));
    let mut back = setup.again();
    back.nodes[0].ready = true;
    back.step();
    assert_eq!((back.is_tainted("n-i-1"), back.status.instances[0].empty_since), (false, None), "it came back");
    setup.step();
    setup.now += 10;
    assert!(setup.step().looks.is_empty(), "what the API server has there is known to be deleted");
    assert_eq!((ids(&setup.status), setup.status.replaced.len()), (vec![], 1));
}

#[test]
fn an_empty_node_that_this_process_never_saw_ready_is_not_kept_for_the_pods_it_was_launched_for() {
    let mut setup = Setup { awaits: Some(NEVER_READY), ..Setup::serving(&["i-1"]) };
    setup.pods.clear();
    setup.nodes[0].ready = false;
    setup.step();
    setup.now += 30;
    setup.step();
    assert!(setup.is_tainted("n-i-1"));
    let mut kept = Setup { awaits: Some(NOW + 60), ..Setup::serving(&["i-1"]) };
    kept.pods.clear();
    kept.nodes[0].ready = false;
    kept.step();
    assert_eq!(kept.status.instances[0].empty_since, None, "it was Ready a moment ago, and the minute has an end");
}

#[test]
fn an_empty_node_of_a_pool_that_never_consolidates_stays_until_its_batch_is_deleted() {
    let mut setup = Setup::serving(&["i-1", "i-2"]);
    setup.pods.truncate(1);
    setup.consolidate = None;
    setup.step();
    setup.now += 1_000_000;
    setup.step();
    assert!(!setup.is_tainted("n-i-2"));
    setup.deleting = true;
    setup.step();
    assert!(setup.is_tainted("n-i-2") && !setup.is_tainted("n-i-1"), "nobody who runs is moved");
}

#[test]
fn a_node_is_of_use_as_soon_as_it_is_matched_and_ready_whatever_the_others_do() {
    let mut setup = Setup::serving(&["i-1", "i-2"]);
    setup.status.phase = BatchPhase::Launched;
    setup.status.attempts[0].ended = Some(at(NOW - 10));
    setup.pods.clear();
    setup.nodes.truncate(1);
    for one in &mut setup.status.instances {
        one.state = MemberState::Running;
        one.node = None;
        one.registered = None;
    }
    let taint = Taint { key: "muster.dev/unregistered".into(), value: "".into(), effect: TaintEffect::NoExecute };
    setup.nodes[0].taints.push(taint);
    setup.memory.scratch.looked = Some(at(NOW));
    setup.step();
    assert!(!setup.is_tainted("n-i-1"), "matched");
    setup.step();
    assert_eq!(
        setup.status.instances.iter().map(|one| one.state).collect::<Vec<_>>(),
        [MemberState::Ready, MemberState::Running]
    );
    assert_eq!((setup.status.phase, setup.status.ready_count), (BatchPhase::Launched, 1));
}

#[test]
fn a_node_that_does_not_join_goes_alone_and_its_offering_is_left_alone_for_a_while() {
    let mut setup = Setup::serving(&["i-1", "i-2"]);
    setup.nodes.truncate(1);
    setup.pods.truncate(1);
    setup.status.instances[1].state = MemberState::Running;
    setup.status.instances[1].node = None;
    setup.status.attempts[0].ended = Some(at(NOW - 3600));
    setup.memory.scratch.looked = Some(at(NOW));
    setup.memory.seen.insert(Look::Console(InstanceId::from("i-2")), Ok(Sight::Console(None)));
    let did = setup.step();
    assert_eq!((ids(&setup.status), setup.status.replaced.len()), (vec!["i-1"], 1));
    assert_eq!(setup.status.replaced[0].loss.as_ref().unwrap().cause, LossCause::Join);
    assert!(matches!(&did.notes[..], [Note::NoCapacity { count: 1, .. }]), "{:?}", did.notes);
}

#[test]
fn a_lost_node_is_never_replaced_in_place() {
    let mut setup = Setup::serving(&["i-1", "i-2"]);
    setup.nodes.truncate(1);
    setup.step();
    setup.step();
    assert_eq!((ids(&setup.status), setup.status.replaced.len()), (vec!["i-1"], 1));
    assert_eq!(setup.status.attempts.len(), 1);
}

#[test]
fn the_last_node_that_is_lost_costs_what_it_did_until_it_has_ended() {
    let mut setup = Setup::serving(&["i-1"]);
    setup.nodes.clear();
    setup.step();
    setup.step();
    assert_eq!((setup.status.instances.len(), setup.status.replaced.len()), (0, 1));
    assert_eq!((setup.status.phase, setup.status.count, setup.status.price), (BatchPhase::Draining, 1, Some(10)));
}

#[test]
fn a_machine_whose_kubelet_is_gone_is_ended_although_its_pods_cannot_be() {
    let mut setup = Setup::serving(&["i-1"]);
    let mut lost = setup.status.instances.remove(0);
    let loss = |deadline| Loss {
        cause: LossCause::Notice(NoticeKind::Impaired),
        message: String::new(),
        noticed: at(0),
        act_at: at(0),
        deadline,
    };
    (lost.state, lost.loss) = (MemberState::Lost, Some(loss(None)));
    setup.status.replaced.push(lost);
    setup.status.phase = BatchPhase::Draining;
    let ids = vec![InstanceId::from("i-1")];
    let shown = super::decisions::instances(&[("i-1", InstanceState::Running)]);
    let ends = |setup: &mut Setup| {
        setup.memory.seen.insert(Look::Instances(ids.clone()), Ok(Sight::Instances(shown.clone())));
        setup.decide().change == Some(Change::Terminate(ids.clone()))
    };
    assert!(!ends(&mut setup), "a pod runs there");
    setup.nodes[0].ready = false;
    assert!(!ends(&mut setup), "Kubernetes has not given it up yet");
    setup.pods[0].deleting = true;
    assert!(ends(&mut setup));
    setup.nodes[0].ready = true;
    assert!(!ends(&mut setup), "its kubelet is about to end it");
}

#[test]
fn an_instance_that_ec2_took_before_it_was_ready_says_nothing_of_its_kind() {
    let mut setup = Setup::serving(&["i-1"]);
    setup.nodes.clear();
    setup.pods.clear();
    setup.status.instances[0].state = MemberState::Running;
    setup.status.instances[0].node = None;
    let look = Look::Instances(vec![InstanceId::from("i-1")]);
    let shown = super::decisions::instances(&[("i-1", InstanceState::Terminated)]);
    setup.memory.seen.insert(look, Ok(Sight::Instances(shown)));
    setup.step();
    assert_eq!(setup.status.replaced[0].loss.as_ref().unwrap().cause, LossCause::Missing);
}

#[test]
fn an_attempt_that_launched_nothing_ends_the_batch_and_its_pods_are_planned_again() {
    let mut setup = Setup::serving(&[]);
    setup.status.phase = BatchPhase::Pending;
    setup.status.attempts[0].outcome = AttemptOutcome::Lost;
    setup.status.attempts[0].code = Some("InsufficientInstanceCapacity".to_owned());
    setup.step();
    assert_eq!(setup.status.phase, BatchPhase::Terminating);
    assert!(setup.status.message.as_ref().unwrap().contains("InsufficientInstanceCapacity"));
}

/// A batch that was made for spot or on demand, and what its ranking offers in that order.
fn lost(codes: &[(CapacityType, &str)]) -> Setup {
    let mut setup = Setup::serving(&[]);
    setup.either = true;
    setup.status.phase = BatchPhase::Pending;
    setup.status.count = 1;
    let attempt = |(number, (capacity_type, code)): (usize, &(CapacityType, &str))| Attempt {
        number: u32::try_from(number).unwrap() + 1,
        capacity_type: *capacity_type,
        outcome: AttemptOutcome::Lost,
        code: Some((*code).to_owned()),
        ..won(1)
    };
    setup.status.attempts = codes.iter().enumerate().map(attempt).collect();
    setup.status.attempt = u32::try_from(codes.len()).unwrap();
    setup
}

#[test]
fn where_ec2_has_no_spot_capacity_the_same_batch_is_launched_on_demand() {
    for code in ["InsufficientInstanceCapacity", "UnfulfillableCapacity", "MaxSpotInstanceCountExceeded"] {
        let mut setup = lost(&[(CapacityType::Spot, code)]);
        setup.step();
        assert_eq!(setup.status.phase, BatchPhase::Launching, "{code}");
        let attempt = setup.status.last().unwrap();
        assert_eq!((attempt.number, attempt.capacity_type), (2, CapacityType::OnDemand), "{code}");
        assert_eq!(setup.status.capacity_type, Some(CapacityType::OnDemand));
    }
    // At first spot is asked for.
    let mut setup = lost(&[]);
    setup.step();
    assert_eq!(setup.status.last().unwrap().capacity_type, CapacityType::Spot);
}

#[test]
fn no_call_is_made_twice_and_what_a_person_has_to_mend_ends_the_batch() {
    let (spot, on_demand) = (CapacityType::Spot, CapacityType::OnDemand);
    for codes in [
        vec![(spot, "InsufficientInstanceCapacity"), (on_demand, "InsufficientInstanceCapacity")],
        vec![(spot, "InvalidParameterValue")],
        vec![(spot, "UnauthorizedOperation")],
        vec![(spot, "InsufficientInstanceCapacity"); 6],
    ] {
        let mut setup = lost(&codes);
        setup.step();
        let message = setup.status.message.clone().unwrap();
        assert_eq!(setup.status.phase, BatchPhase::Terminating, "{codes:?}: {message}");
        assert!(message.contains(codes.last().unwrap().1), "{message}");
        assert_eq!(setup.status.attempts.len(), codes.len());
    }
    // One that was made for spot alone asks for nothing else.
    let mut setup = lost(&[(spot, "InsufficientInstanceCapacity")]);
    setup.either = false;
    setup.step();
    assert_eq!(setup.status.phase, BatchPhase::Terminating);
}

#[test]
fn many_nodes_that_look_empty_without_having_been_seen_in_use_are_kept() {
    let ids: Vec<String> = (0..60).map(|number| format!("i-{number:02}")).collect();
    let ids: Vec<&str> = ids.iter().map(String::as_str).collect();
    let mut setup = Setup::serving(&ids);
    let all = std::mem::take(&mut setup.pods);
    // The list of pods came back short at the start of this process.
    let tainted = |setup: &mut Setup, pods: &[Pod]| {
        setup.pods = pods.to_vec();
        setup.witness();
        setup.step();
        setup.now += 3600;
        setup.witness();
        setup.step();
        setup.nodes.iter().filter(|node| !node.taints.is_empty()).count()
    };
    assert_eq!(tainted(&mut setup, &[]), 0);
    assert_eq!(tainted(&mut setup, &all[..53]), 0, "seven are more than a tenth of sixty");
    assert_eq!(tainted(&mut setup, &all[..54]), 6, "six are not");
    let mut setup = Setup::serving(&ids);
    setup.witness();
    assert_eq!(tainted(&mut setup, &[]), 60, "all of them were seen in use");
}

#[test]
fn many_nodes_that_lost_their_pods_in_a_list_are_kept_although_they_were_seen_in_use() {
    let ids: Vec<String> = (0..60).map(|number| format!("i-{number:02}")).collect();
    let ids: Vec<&str> = ids.iter().map(String::as_str).collect();
    let mut before = Setup::serving(&ids);
    before.witness();
    let all = std::mem::take(&mut before.pods);
    let tainted = |lost: usize| {
        let mut setup = before.again();
        setup.vanished.pods_of = all.iter().take(lost).filter_map(|pod| pod.node.clone()).collect();
        for _ in 0..2 {
            setup.witness();
            setup.step();
            setup.now += 3600;
        }
        setup.nodes.iter().filter(|node| !node.taints.is_empty()).count()
    };
    assert_eq!(tainted(7), 53, "of these it was seen how their pods went");
    assert_eq!(tainted(6), 60);
}

#[test]
fn many_instances_whose_nodes_are_missing_are_kept_unless_the_nodes_were_seen_to_go() {
    let names: Vec<String> = (0..60).map(|number| format!("i-{number:02}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let lost = |setup: &mut Setup| {
        setup.witness();
        setup.step();
        setup.status.replaced.len()
    };
    // This process never saw them.
    let mut fresh = Setup::serving(&names);
    fresh.nodes.clear();
    assert_eq!(lost(&mut fresh), 0);
    fresh.deleting = true;
    assert_eq!(lost(&mut fresh), 60, "a person wants them to go");
    // Events reported that they went.
    let mut setup = Setup::serving(&names);
    setup.witness();
    let nodes = std::mem::take(&mut setup.nodes);
    assert_eq!(lost(&mut Setup { nodes: Vec::new(), ..setup.again() }), 60);
    // A list did not have them any more.
    setup.vanished.nodes = nodes.iter().map(|node| node.name.clone()).collect();
    assert_eq!(lost(&mut setup), 0);
    // A few are trusted.
    setup.nodes = nodes[..55].to_vec();
    setup.vanished.nodes = nodes[55..].iter().map(|node| node.name.clone()).collect();
    assert_eq!(lost(&mut setup), 5);
}

#[test]
fn a_batch_without_nodes_ends() {
    let mut setup = Setup::serving(&[]);
    setup.step();
    assert_eq!(setup.status.phase, BatchPhase::Terminating);
}
