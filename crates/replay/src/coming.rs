//! Nodes on their way: what NodeBatches of the dump have launched, or are about to, and what has no Node yet.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use muster_api::{batch_state, keys};
use muster_core::batch::one_of;
use muster_core::model::batch::{Batch, BatchMember, BatchPhase, MemberState, Owner};
use muster_core::model::names::{NodeName, ObjectKey};
use muster_core::model::node::{Node, Usage};
use muster_core::model::resources::Resources;
use muster_core::offering::Amounts;

use crate::dump::Dump;
use crate::supply::Supply;

/// Nodes of one batch that are on their way.
#[derive(Debug)]
pub(crate) struct Coming {
    /// Name of the batch.
    pub(crate) batch: Arc<str>,
    /// For whom they come.
    pub(crate) owner: Owner,
    /// Each as it will be, `<batch>/<k>`, with what its DaemonSets will hold. Of a type that the catalogue does not have nothing but
    /// labels is known.
    pub(crate) nodes: Vec<(Arc<Node>, Arc<Usage>)>,
    /// Whether they can be planned on.
    pub(crate) known: bool,
    /// What was written down of it that it takes of each pool: the largest of what may be launched, or of its type what the server
    /// knew.
    reserved: BTreeMap<String, Resources>,
}

/// What is on its way.
#[derive(Debug, Default)]
pub(crate) struct OnTheWay {
    /// What has no Node yet, in order of batch.
    batches: Vec<Coming>,
    /// Instances that have one, by name of the Node and by id: whether they are joining, for pods of no gang.
    joining: BTreeMap<String, bool>,
}

impl OnTheWay {
    /// Reads the batches of a dump.
    pub(crate) fn read(dump: &Dump, nodes: &[Node], supply: &Supply) -> Self {
        let names: BTreeSet<&str> = nodes.iter().map(|node| node.name.as_str()).collect();
        let instances: BTreeSet<&str> = nodes.iter().filter_map(Node::instance).collect();
        let has_node = |member: &BatchMember| {
            let named = member.node.as_deref().is_some_and(|name| names.contains(name));
            named || instances.contains(member.id.as_str())
        };
        let mut batches: Vec<Batch> = dump.batches.iter().map(batch_state::read).collect();
        batches.sort_by(|one, other| one.name.cmp(&other.name));
        let joining = batches.iter().flat_map(joining).collect();
        Self { batches: batches.iter().filter_map(|batch| coming(batch, has_node, supply)).collect(), joining }
    }

    /// Whether a Node is joining that a batch lists, and may be used by pods of no gang then; `None`: no batch lists it.
    pub(crate) fn joins(&self, node: &Node) -> Option<bool> {
        // A name alone may be that of an instance which is gone.
        self.joining.get(node.instance().unwrap_or(node.name.as_str())).copied()
    }

    /// Every node, whoever it is for: it counts against the limits of its pool.
    pub(crate) fn all(&self) -> impl Iterator<Item = &Node> {
        self.batches.iter().flat_map(|coming| &coming.nodes).map(|(node, _)| &**node)
    }

    /// What the batches take of each pool beyond what their nodes do, of which `takes` knows one, as the server counts it.
    pub(crate) fn reserved_beyond(&self, takes: impl Fn(&Node) -> Resources) -> Vec<(&str, Resources)> {
        let mut all = Vec::new();
        for coming in &self.batches {
            for (pool, reserved) in &coming.reserved {
                let of_pool = |node: &&Node| node.labels.get(keys::NODEPOOL).is_some_and(|of| **of == **pool);
                let (mut taken, mut beyond) = (Resources::default(), Resources::default());
                let nodes = coming.nodes.iter().map(|(node, _)| &**node).filter(of_pool);
                nodes.for_each(|node| taken.add(&takes(node)));
                for (name, amount) in reserved.iter() {
                    beyond.set(name.clone(), amount.saturating_sub(taken.get(name.as_str())).max(0));
                }
                all.push((pool.as_str(), beyond));
            }
        }
        all
    }

    /// Nodes that pods of no gang may use.
    pub(crate) fn for_pods(&self) -> impl Iterator<Item = &(Arc<Node>, Arc<Usage>)> {
        self.batches
            .iter()
            .filter(|coming| coming.owner == Owner::Pods && coming.known)
            .flat_map(|coming| &coming.nodes)
    }

    /// Whether nodes come that pods of no gang cannot be planned on.
    pub(crate) fn for_others(&self) -> bool {
        self.batches.iter().any(|coming| coming.owner != Owner::Pods || !coming.known)
    }

    /// Batches whose nodes come for a gang.
    pub(crate) fn for_gang(&self, key: &ObjectKey) -> Vec<Arc<str>> {
        self.of(|owner| matches!(owner, Owner::Gang(gang) if gang.key == *key))
    }

    /// Batches whose nodes come for a ProvisioningRequest.
    pub(crate) fn for_request(&self, key: &ObjectKey) -> Vec<Arc<str>> {
        self.of(|owner| matches!(owner, Owner::Request(request) if request.key == *key))
    }

    fn of(&self, is_theirs: impl Fn(&Owner) -> bool) -> Vec<Arc<str>> {
        self.batches.iter().filter(|coming| is_theirs(&coming.owner)).map(|coming| Arc::clone(&coming.batch)).collect()
    }
}

/// The Nodes of a batch by their names and by the ids of their instances, each with whether it is joining: until it could be used once,
/// unless the batch ends. Nodes of a gang's batch are the gang's.
fn joining(batch: &Batch) -> impl Iterator<Item = (String, bool)> {
    let ends = batch.deleting || matches!(batch.status.phase, BatchPhase::Draining | BatchPhase::Terminating);
    let comes = move |member: &BatchMember| match member.state {
        MemberState::Launched | MemberState::Running | MemberState::Registered => {
            !ends && batch.spec.owner == Owner::Pods
        }
        MemberState::Ready | MemberState::Lost | MemberState::Terminating | MemberState::Gone => false,
    };
    let id = |member: &BatchMember| member.id.as_str().to_owned();
    let names = move |member: &BatchMember| member.node.clone().into_iter().chain([id(member)]).collect::<Vec<_>>();
    batch.status.instances.iter().flat_map(move |one| names(one).into_iter().map(move |name| (name, comes(one))))
}

/// What comes of one batch; `None`: nothing.
fn coming(batch: &Batch, has_node: impl Fn(&BatchMember) -> bool, supply: &Supply) -> Option<Coming> {
    let (spec, status) = (&batch.spec, &batch.status);
    let launched = status.instances.iter().filter(|one| !one.state.is_written_off());
    let awaited = launched.clone().filter(|one| !has_node(one)).count();
    let wanted = spec.offers.first();
    let instance_type = status.instance_type.as_deref().or(wanted.map(|offer| offer.instance_type.as_str()))?;
    let pool = status.node_pool.as_deref().or(wanted.map(|offer| offer.node_pool.as_str()))?;
    let not_yet = || {
        let offer = spec.offers.iter().find(|offer| offer.node_pool == pool && offer.instance_type == instance_type);
        let all = usize::try_from(offer.map_or(spec.count, |offer| offer.count)).unwrap_or(0);
        all.saturating_sub(launched.clone().count())
    };
    let count = match status.phase {
        _ if batch.deleting => return None,
        BatchPhase::Draining | BatchPhase::Terminating => return None,
        // Nobody knows how many EC2 gives.
        BatchPhase::Pending | BatchPhase::Launching => awaited + not_yet(),
        BatchPhase::Launched
        | BatchPhase::Joining
        | BatchPhase::Replacing
        | BatchPhase::Ready
        | BatchPhase::InUse
        | BatchPhase::Idle => awaited,
    };
    if count == 0 {
        return None;
    }
    let zone = status.zone.as_deref().or(spec.zones.first().map(String::as_str));
    let capacity_type = status.capacity_type.or(spec.capacity_type);
    let offer = supply.offer(pool, instance_type, zone, capacity_type);
    let known = offer.is_some();
    let (node, overhead) = offer.unwrap_or_else(|| (unknown(pool, instance_type), Usage::default()));
    let overhead = Arc::new(overhead);
    let one = |number: usize| {
        let name = NodeName::from(format!("{}/{number}", batch.name));
        (Arc::new(Node { name, ..node.clone() }), Arc::clone(&overhead))
    };
    let nodes = (0..count).map(one).collect();
    let reserved = match &status.node_pool {
        Some(pool) => {
            let each = status.reserved.get(pool).and_then(one_of);
            let all = |each| Amounts::of_nodes(&each, 0, u32::try_from(count).unwrap_or(u32::MAX)).resources;
            each.map(|each| (pool.clone(), all(each))).into_iter().collect()
        }
        None => spec.reserves.clone(),
    };
    Some(Coming { batch: batch.name.as_str().into(), owner: spec.owner.clone(), nodes, known, reserved })
}

/// A node of which nothing is known but where it comes from.
fn unknown(pool: &str, instance_type: &str) -> Node {
    Node {
        name: NodeName::from(String::new()),
        labels: BTreeMap::from([
            (keys::NODEPOOL.into(), pool.into()),
            (keys::INSTANCE_TYPE.into(), instance_type.into()),
        ]),
        taints: Vec::new(),
        allocatable: Resources::default(),
        unschedulable: true,
        held: false,
        ready: false,
        deleting: false,
        memory: None,
        provider_id: None,
        created: None,
    }
}
