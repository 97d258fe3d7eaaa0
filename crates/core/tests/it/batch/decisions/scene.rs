//! One NodeBatch in a world, with the builders of everything around it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::Timestamp;
use muster_core::batch::{
    Change, DecidedBatches, Decision, Done, Look, Made, Memory, Sight, World, pass, recorded_pass,
};
use muster_core::ec2::{
    BatchTags, CallError, CapacityType, Instance, InstanceState, LaunchAnswer, LaunchParameters, LaunchWay,
    LaunchedInstance, TAG_BATCH, TAG_CLUSTER_UID, Tags, classify,
};
use muster_core::model::batch::{
    Attempt, AttemptOutcome, Batch, BatchMember, BatchOffer, BatchPhase, BatchSpec, BatchStatus, Billing, Loss,
    LossCause, MemberState, Owner, OwnerRef,
};
use muster_core::model::gang::{Gang, Phase, Pod};
use muster_core::model::names::{InstanceId, NodeName};
use muster_core::model::node::{Node, Taint, TaintEffect};
use muster_core::model::snapshot::Awaiting;
use muster_core::offering::{Candidate, Excluded, Exclusion, Ranked, Ranking};

use super::super::ec2::CLUSTER_UID;
use super::super::worker::settings;
use super::super::{draw, made};
use super::says::Says;
use crate::world::{self, at, key};

pub(super) use super::super::made::{member, node};

/// When everything is decided.
pub(super) const NOW: i64 = 1000;

/// A batch `a-1` of gang `a`, with everything that is seen of it.
#[derive(Clone)]
pub(super) struct Scene {
    pub(super) batch: Batch,
    pub(super) others: Vec<Batch>,
    pub(super) memory: Memory,
    pub(super) nodes: Vec<Node>,
    pub(super) pods: Vec<Pod>,
    pub(super) gangs: Vec<Gang>,
    pub(super) booked: Option<&'static str>,
    pub(super) says: Says,
    /// Whom nodes launched for pods of no gang await.
    pub(super) awaiting: Vec<(&'static str, Awaiting)>,
    /// Pods of no gang that nodes are launched for and that have none yet, by class.
    pub(super) waiting: Vec<(&'static str, u32)>,
    pub(super) dry_run: bool,
    /// The cluster is not seen any more.
    pub(super) stale: bool,
    /// Since when it is again.
    pub(super) regained: Option<Timestamp>,
}

impl Scene {
    /// The batch of a gang that waits.
    pub(super) fn new(status: BatchStatus) -> Self {
        let asked = status.count;
        let mut batch = batch("a-1", status);
        let spec = Arc::make_mut(&mut batch.spec);
        spec.count = spec.count.max(asked);
        Self {
            batch,
            others: Vec::new(),
            memory: Memory::default(),
            nodes: Vec::new(),
            pods: Vec::new(),
            gangs: vec![world::gang("a", Phase::Provisioning, Vec::new())],
            booked: None,
            says: Says::default(),
            awaiting: Vec::new(),
            waiting: Vec::new(),
            dry_run: false,
            stale: false,
            regained: None,
        }
    }

    pub(super) fn with(mut self, change: impl FnOnce(&mut Self)) -> Self {
        change(&mut self);
        self
    }

    /// Nobody waits for the batch any more.
    pub(super) fn unwanted(self) -> Self {
        self.with(|one| one.batch.deleting = true)
    }

    /// The name of an instance's Node is another instance's by now.
    pub(super) fn renamed(self, id: &str) -> Self {
        let name = format!("n-{id}");
        self.with(|one| {
            one.nodes.retain(|node| node.name.as_str() != name);
            one.nodes.push(Node { name: name.as_str().into(), ..node("i-other") });
        })
    }

    /// With another status.
    pub(super) fn status(mut self, change: impl FnOnce(&mut BatchStatus)) -> Self {
        change(&mut self.batch.status);
        self
    }

    /// For a ProvisioningRequest.
    pub(super) fn of_request(self) -> Self {
        self.with(|one| {
            let owner = OwnerRef { key: key("r"), uid: "r-uid".to_owned() };
            one.batch.spec = Arc::new(BatchSpec { owner: Owner::Request(owner), ..BatchSpec::clone(&one.batch.spec) });
        })
    }

    pub(super) fn saw(mut self, look: Look, sight: Sight) -> Self {
        self.memory.seen.insert(look, Ok(sight));
        self
    }

    pub(super) fn failed_to_see(mut self, look: Look) -> Self {
        self.memory.seen.insert(look, Err(error("Describe", Some("InternalError"))));
        self
    }

    /// EC2 shows these of the instances the batch lists.
    pub(super) fn instances(self, shown: &[(&str, InstanceState)]) -> Self {
        let ids = self.batch.status.ids();
        self.saw(Look::Instances(ids), Sight::Instances(instances(shown)))
    }

    /// EC2 shows these by the tags of the attempt.
    pub(super) fn swept(self, shown: &[(&str, InstanceState)]) -> Self {
        let attempt = self.batch.status.attempt;
        self.saw(Look::Tagged(tags(attempt).sweep()), Sight::Instances(instances(shown)))
    }

    /// EC2 shows these by the tags of the whole batch.
    pub(super) fn swept_all(self, shown: &[(&str, InstanceState)]) -> Self {
        let ours = [(TAG_CLUSTER_UID, CLUSTER_UID), (TAG_BATCH, "a-1-uid")];
        let ours: Tags = ours.map(|(key, value)| (key.to_owned(), value.to_owned())).into();
        self.saw(Look::Tagged(ours), Sight::Instances(instances(shown)))
    }

    pub(super) fn done(mut self, change: Change, result: Result<Made, CallError>) -> Self {
        self.memory.done = Some(Done { change, result });
        self
    }

    /// The launch call of the last attempt was answered.
    pub(super) fn answered(self, first: bool, result: Result<Made, CallError>) -> Self {
        let stored = self.batch.status.last().unwrap().parameters.clone().unwrap();
        let parameters = Box::new(LaunchParameters::clone(&stored.value));
        self.done(Change::Launch { parameters, first }, result)
    }

    /// The nodes of the instances, ready, without pods.
    pub(super) fn with_nodes(mut self) -> Self {
        let names: Vec<String> = self.batch.status.instances.iter().map(|one| one.id.to_string()).collect();
        self.nodes = names.iter().map(|id| node(id)).collect();
        self
    }

    /// The gang is bound on these instances, and its pods run there.
    pub(super) fn bound(mut self, ids: &[&str]) -> Self {
        let ranks = || ids.iter().zip(0_u32..);
        let places = ranks().map(|(id, rank)| world::place(rank, Some(&format!("a-{rank}")), &format!("n-{id}")));
        self.gangs = vec![world::gang("a", Phase::Bound, places.collect())];
        self.pods = ranks().map(|(id, rank)| member("a", rank, id)).collect();
        self
    }

    pub(super) fn decide(&self) -> Decision {
        let mut batches: BTreeMap<String, Arc<Batch>> =
            self.others.iter().map(|one| (one.name.clone(), Arc::new(one.clone()))).collect();
        batches.insert(self.batch.name.clone(), Arc::new(self.batch.clone()));
        let recognised = made::recognised(&self.gangs, self.booked);
        let mut snapshot = world::snapshot(&self.nodes, &self.pods, &self.gangs, &recognised);
        let awaiting = self.awaiting.iter().map(|(node, one)| (NodeName::from(*node), Arc::new(one.clone())));
        snapshot.awaiting = awaiting.collect();
        snapshot.waiting = self.waiting.iter().map(|(class, many)| (Arc::from(*class), *many)).collect();
        let mut settings = settings();
        settings.dry_run = self.dry_run;
        let busy: BTreeSet<String> = self.others.iter().map(|one| one.name.clone()).collect();
        let memory = BTreeMap::from([(self.batch.name.clone(), self.memory.clone())]);
        let world = World {
            batches: &batches,
            memory: &memory,
            busy: &busy,
            snapshot: &snapshot,
            stale: self.stale,
            regained: self.regained,
            supply: &self.says,
            settings: &settings,
            now: at(NOW),
            now_real: at(NOW),
        };
        let mut decisions = pass(&world);
        is_decided_again(&world, &decisions);
        assert_eq!(decisions.len(), 1);
        decisions.remove(0)
    }
}

/// Every row is recorded as well, and the recording decided again: every question has its answer there.
fn is_decided_again(world: &World<'_>, decisions: &[Decision]) {
    let text = |decided: &DecidedBatches| serde_json::to_string(decided).unwrap();
    let decided = text(&DecidedBatches::of(decisions));
    let (recording, recorded) = recorded_pass(world);
    assert_eq!(text(&DecidedBatches::of(&recording)), decided);
    let Some(recorded) = recorded else { return };
    assert_eq!((text(&recorded.decide()), recorded.at()), (decided, world.now_real));
}

pub(super) fn batch(name: &str, status: BatchStatus) -> Batch {
    let (gang, _) = name.split_once('-').unwrap();
    let spec = BatchSpec {
        node_pools: vec!["p0".to_owned()],
        count: 3,
        owner: Owner::Gang(OwnerRef { key: key(gang), uid: format!("{gang}-uid") }),
        offers: vec![BatchOffer { node_pool: "p0".to_owned(), instance_type: "p5.48xlarge".to_owned(), count: 3 }],
        ..BatchSpec::default()
    };
    Batch { status, ..draw::batch(name, spec, at(0)) }
}

/// The tags of what an attempt makes.
pub(super) fn tags(attempt: u32) -> BatchTags {
    made::tags("a-1-uid", Some("a-uid"), attempt)
}

/// An attempt at three nodes that began a minute ago.
pub(super) fn attempt(number: u32, outcome: AttemptOutcome) -> Attempt {
    let ended = (outcome != AttemptOutcome::Launching).then(|| at(NOW - 50));
    made::attempt(tags(number), "p5.48xlarge", LaunchWay::Fleet, outcome, (Some(at(NOW - 60)), ended))
}

/// A status after one attempt.
pub(super) fn after(phase: BatchPhase, outcome: AttemptOutcome) -> BatchStatus {
    BatchStatus {
        phase,
        since: Some(at(NOW - 60)),
        count: 3,
        attempt: 1,
        generation: 1,
        node_pool: Some("p0".to_owned()),
        instance_type: Some("p5.48xlarge".to_owned()),
        zone: Some("a".to_owned()),
        capacity_type: Some(CapacityType::OnDemand),
        price: Some(300_000_000),
        billing: Some(Billing { since: Some(at(NOW - 50)), by_instance: true, ..Billing::default() }),
        attempts: vec![attempt(1, outcome)],
        ..BatchStatus::default()
    }
}

/// A status with instances, each with its Node `n-<id>`.
pub(super) fn having(phase: BatchPhase, state: MemberState, ids: &[&str]) -> BatchStatus {
    let registered = matches!(state, MemberState::Registered | MemberState::Ready | MemberState::Lost);
    let member = |id: &&str| BatchMember {
        node: registered.then(|| format!("n-{id}")),
        registered: registered.then(|| at(NOW - 30)),
        launched: Some(at(NOW - 50)),
        ..BatchMember::new(InstanceId::from(*id), 1, state)
    };
    BatchStatus {
        count: u32::try_from(ids.len()).unwrap(),
        instances: ids.iter().map(member).collect(),
        ..after(phase, AttemptOutcome::Won)
    }
}

pub(super) fn loss(cause: LossCause, message: &str) -> Loss {
    made::loss(cause, message, at(NOW))
}

/// Makes an instance a lost one.
pub(super) fn lose(member: &mut BatchMember) {
    member.state = MemberState::Lost;
    member.loss = Some(loss(LossCause::Missing, "gone"));
}

pub(super) fn taint(key: &str, value: &str) -> Taint {
    Taint { key: Arc::from(key), value: Arc::from(value), effect: TaintEffect::NoSchedule }
}

/// A pod of no gang.
pub(super) fn single(name: &str, id: &str) -> Pod {
    Pod { node: Some(format!("n-{id}").as_str().into()), ..world::pod(name, &world::shape(0)) }
}

pub(in crate::batch) fn instances(shown: &[(&str, InstanceState)]) -> Vec<Instance> {
    let instance = |(id, state): &(&str, InstanceState)| Instance {
        id: InstanceId::from(*id),
        state: *state,
        state_reason: None,
        instance_type: "p5.48xlarge".to_owned(),
        zone: "a".to_owned(),
        private_dns_name: None,
        launch_time: None,
        tags: Tags::new(),
        placement_group: None,
        placement_group_id: None,
        image_id: "ami-1".to_owned(),
        subnet_id: None,
        ended: None,
    };
    shown.iter().map(instance).collect()
}

pub(super) fn error(operation: &str, code: Option<&str>) -> CallError {
    CallError {
        operation: operation.to_owned(),
        kind: classify(code, code.map(|_| 400)),
        code: code.map(str::to_owned),
        message: "EC2's words".to_owned(),
        http_status: code.map(|_| 400),
        request_id: Some("req-9".to_owned()),
    }
}

/// An answer with these instances.
pub(super) fn launched(ids: &[&str]) -> LaunchAnswer {
    let instance = |id: &&str| LaunchedInstance {
        id: InstanceId::from(*id),
        instance_type: "p5.48xlarge".to_owned(),
        zone: "a".to_owned(),
    };
    LaunchAnswer {
        fleet_id: Some("fleet-1".to_owned()),
        request_id: Some("req-1".to_owned()),
        instances: ids.iter().map(instance).collect(),
        errors: Vec::new(),
    }
}

/// A candidate of the pool: three nodes on demand in this zone.
pub(super) fn ranked(zone: &str) -> Ranked {
    Ranked {
        pool: "p0".to_owned(),
        count: 3,
        candidate: Candidate {
            instance_type: "p5.48xlarge".to_owned(),
            zone: zone.to_owned(),
            zone_id: zone.to_owned(),
            subnet_id: format!("subnet-{zone}"),
            capacity_type: CapacityType::OnDemand,
            placement_group: false,
            reservation: None,
            reservation_group: None,
            price_micro_usd_per_hour: Some(100_000_000),
        },
        total_micro_usd_per_hour: 300_000_000,
        headroom: None,
    }
}

pub(super) fn ranking(candidates: &[Ranked], excluded: &[Exclusion]) -> Ranking {
    let excluded: Vec<_> = excluded.iter().map(|reason| ("p5.48xlarge", reason.clone())).collect();
    excluding(candidates, &excluded)
}

/// With the type of each exclusion.
pub(super) fn excluding(candidates: &[Ranked], excluded: &[(&str, Exclusion)]) -> Ranking {
    let excluded = excluded.iter().map(|(instance_type, reason)| Excluded {
        pool: "p0".to_owned(),
        instance_type: Some((*instance_type).to_owned()),
        zone: Some("b".to_owned()),
        capacity_type: None,
        placement_group: Some(true),
        reason: reason.clone(),
    });
    Ranking { candidates: candidates.to_vec(), excluded: excluded.collect() }
}
