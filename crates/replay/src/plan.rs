//! What the planner would do with a dump: gangs in order on disjoint capacity, then pods of no gang.

mod alternatives;
mod assignments;
mod gang;
mod joining;
mod launches;
mod leaving;
mod ordinary;
mod passing;
mod purchase;
mod requests;
mod work;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use muster_api::convert;
use muster_api::convert::ordinary::Namespaces;
use muster_core::model::gang::Membership;
use muster_core::model::names::{NodeName, ObjectKey, PodUid};
use muster_core::model::node::{Node, Usage};
use muster_core::offering::{Amounts, Ledger};
use muster_core::planner::plan::Policy;
use muster_core::topology::{Levels, LevelsError};
use thiserror::Error;

use crate::catalogue::Catalogue;
use crate::cluster::Cluster;
use crate::coming::OnTheWay;
use crate::document::{Document, GangEntry, Ignored, VERSION};
use crate::dump::Dump;
use crate::gangs::{self, Known, Members};
pub use crate::options::{MinValues, Options, Preferences};
use crate::pools::{self, Pool};
use crate::study::{Detail, Holder, Holds, NodeFacts, Searched, Study};
use crate::supply::Supply;
use crate::topology;

/// Extended resources that count as accelerators: the server's default.
pub(crate) const ACCELERATORS: [&str; 5] =
    ["nvidia.com/gpu", "aws.amazon.com/neuron", "aws.amazon.com/neuroncore", "habana.ai/gaudi", "amd.com/gpu"];

/// Why nothing can be planned.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum PlanError {
    /// The levels make no list.
    #[error("levels: {0}")]
    Levels(#[from] LevelsError),
}

/// Plans everything in a dump. The same dump and options give the same document.
///
/// Errors: levels that make no list. Everything else is in the document.
pub fn plan(dump: Dump, options: &Options) -> Result<Document, PlanError> {
    Ok(study(dump, options)?.document)
}

/// [`plan`], with what stands behind the document.
///
/// Errors: those of [`plan`].
pub fn study(mut dump: Dump, options: &Options) -> Result<Study, PlanError> {
    let mut nodes: Vec<Node> = Vec::with_capacity(dump.nodes.len());
    for node in std::mem::take(&mut dump.nodes) {
        // What cannot be converted was reported when the dump was read.
        nodes.extend(convert::node(&node));
    }
    dump.complete(nodes.iter_mut());
    as_they_run(&mut dump);
    if options.karpenter_labels {
        pools::translate(&mut dump.pools, &options.catalogue);
    }
    let (pools, not_ready) = pools::read(&mut dump, &options.catalogue, &nodes);
    let usable: BTreeSet<String> = pools.iter().map(|pool| pool.name.clone()).collect();
    let mut supply = Supply::read(&mut dump, options, &nodes, &usable);
    supply.not_ready = not_ready;
    let coming = OnTheWay::read(&dump, &nodes, &supply);
    let takes = |node: &Node| pools::takes(&pools, node, &options.catalogue);
    let beyond = coming.reserved_beyond(|node| takes(node).map(|(_, amounts)| amounts.resources).unwrap_or_default());
    supply.expect(coming.all(), &beyond);
    let mut ledger = pools::ledger(&pools, nodes.iter().chain(coming.all()), &options.catalogue);
    for (pool, resources) in beyond {
        ledger.take(pool, &Amounts { resources, micro_usd_per_hour: 0 });
    }
    let namespaces: Namespaces = namespaces(&dump);
    let catalogue = (!dump.pools.is_empty()).then(|| options.catalogue.name.clone());
    gangs::expand(&mut dump);
    let members = gangs::find(&dump, &options.scheduler_names);
    let requests = requests::find(&mut dump, &members);
    let levels = match &options.levels {
        Some(levels) => levels.clone(),
        None => topology::present(nodes.iter(), &requested(&members, &requests))?,
    };
    let mut focus = options.focus.as_ref().and_then(|name| {
        let node = nodes.iter().find(|node| node.name == *name)?.clone();
        Some(NodeFacts { node, holders: Vec::new(), held: Usage::default(), assigned: Vec::new() })
    });
    let mut cluster = Cluster::new(nodes);
    let mut leaving: BTreeMap<NodeName, Vec<Arc<Usage>>> = BTreeMap::new();
    let (mut standing, mut holders, mut users) = (Vec::new(), Vec::new(), Vec::new());
    let mut daemons: BTreeMap<NodeName, Usage> = BTreeMap::new();
    let mut running = Vec::new();
    for known in &members.all {
        let core = &known.core;
        let standing_on = if core.ended { None } else { core.node.as_ref().or_else(|| nominated(known)) };
        if let Some(node) = standing_on {
            if core.membership.gang().is_some() {
                cluster.ensure(node);
            }
            cluster.add(node, Some(core), &core.held);
            users.push(Arc::clone(core));
            standing.push((node.clone(), Arc::clone(&known.object)));
            let of_daemon_set = owner_of(&known.object, "DaemonSet").is_some();
            if of_daemon_set {
                let held = daemons.entry(node.clone()).or_default();
                held.requested.add(&core.held.requested);
                held.ports.extend(core.held.ports.iter().cloned());
            }
            let of_gang = core.membership.gang().is_some();
            if of_gang && !core.deleting {
                running.push((node.clone(), Arc::clone(&core.held)));
            }
            holders.push(Holds {
                node: node.clone(),
                pod: core.key.to_string().into(),
                held: Arc::clone(&core.held),
                stays: core.deleting || of_daemon_set || of_gang,
            });
            if core.deleting && core.node.is_some() {
                leaving.entry(node.clone()).or_default().push(Arc::clone(&core.held));
            }
            if let Some(facts) = focus.as_mut().filter(|facts| facts.node.name == *node) {
                facts.held.requested.add(&core.held.requested);
                facts.held.ports.extend(core.held.ports.iter().cloned());
                facts.holders.push(holder(known));
            }
        }
    }
    let assignments = assignments::read(&dump, &members);
    for (gang, assigned) in assignments.iter().flat_map(|(gang, all)| all.iter().map(move |assigned| (gang, assigned)))
    {
        cluster.add(&assigned.node, assigned.object.as_ref(), &assigned.held);
        if let Some(facts) = focus.as_mut().filter(|facts| facts.node.name == assigned.node) {
            facts.assigned.push((gang.clone(), assigned.pod.clone()));
        }
    }
    let Members { gangs, others, all, ignored } = members;
    let everybody: Vec<_> = all.iter().map(|known| (Arc::clone(&known.object), known.core.ended)).collect();
    let moves = leaving::leaving(&others, &everybody, &cluster, &dump);
    // Who goes stands nowhere any more when somebody else comes.
    let gone: BTreeSet<_> =
        all.iter().filter(|known| moves.contains(&known.core.uid)).map(|known| Arc::as_ptr(&known.object)).collect();
    standing.retain(|(_, object)| !gone.contains(&Arc::as_ptr(object)));
    users.retain(|core| !moves.contains(&core.uid));
    dump.ignored.extend(ignored);
    let now = options.now.or(dump.newest);
    let mut planning = Planning {
        hosts_come: coming.for_others(),
        now,
        levels,
        cluster,
        pools,
        ledger,
        supply,
        coming,
        standing,
        users,
        catalogue: &options.catalogue,
        policy: options.policy,
        preferences: options.preferences,
        min_values: options.min_values,
        ignored: std::mem::take(&mut dump.ignored),
        assignments,
        focus: options.focus.clone(),
        leaving,
        holders,
        daemons,
        running,
        moves,
        taken: Vec::new(),
        searched: Searched::default(),
    };
    let mut work: Vec<work::Work> = gangs.into_iter().map(|found| work::Work::of_pods(found, &dump)).collect();
    work.extend(requests.into_iter().map(Box::new).map(work::Work::Request));
    work.sort_by_cached_key(work::Work::turn);
    let (gangs, details): (Vec<GangEntry>, Vec<Detail>) = work.iter().map(|work| planning.gang(work)).unzip();
    for provisioned in gangs.iter().flat_map(|gang| &gang.provision) {
        planning.hosts_come = true;
        planning.supply.launched(&provisioned.pool, &provisioned.instance_type, provisioned.count);
    }
    let (pods, launched) = planning.ordinary(others, &namespaces);
    let mut document = Document {
        version: VERSION,
        catalogue,
        now: now.unwrap_or(Timestamp::UNIX_EPOCH),
        gangs,
        pods,
        nodes: launched.nodes,
        launches: launched.launches,
        cost: launched.cost,
        limits: launched.limits,
        ignored: planning.ignored,
    };
    // However the input was sorted.
    document.ignored.sort();
    Ok(Study { document, details, work: planning.searched.work(), levels: planning.levels, focus })
}

/// Capacity that plans in the dump hold for members that are not bound yet, by Gang object.
pub(crate) fn assignments(dump: &Dump, members: &Members) -> Vec<(ObjectKey, Vec<(NodeName, Usage)>)> {
    let all = assignments::read(dump, members).into_iter();
    all.map(|(gang, places)| (gang, places.into_iter().map(|place| (place.node, place.held)).collect())).collect()
}

/// A pod that holds capacity.
fn holder(known: &Known) -> Holder {
    let core = &known.core;
    Holder {
        namespace: core.key.namespace.to_string(),
        name: core.key.name.to_string(),
        gang: core.membership.gang().map(|gang| gang.name.to_string()),
        usage: core.held.clone(),
        terminating: known.object.metadata.deletion_timestamp.is_some(),
        nominated: core.node.is_none(),
    }
}

/// What plans change on the way.
struct Planning<'a> {
    /// The moment, where there is any.
    now: Option<Timestamp>,
    levels: Levels,
    cluster: Cluster,
    pools: Vec<Pool>,
    /// What the pools have left.
    ledger: Ledger,
    supply: Supply,
    coming: OnTheWay,
    /// Nodes come that pods of no gang are not planned on.
    hosts_come: bool,
    /// Pods of the dump with the node each stands on or is nominated to.
    standing: Vec<(NodeName, Arc<k8s_openapi::api::core::v1::Pod>)>,
    /// The same pods, as far as their claims go: whoever needs one of them has to wait.
    users: Vec<Arc<muster_core::model::gang::Pod>>,
    catalogue: &'a Catalogue,
    policy: Policy,
    preferences: Preferences,
    min_values: MinValues,
    ignored: Vec<Ignored>,
    /// Capacity that plans in the dump hold for their gangs.
    assignments: assignments::Assignments,
    focus: Option<NodeName>,
    /// What terminating pods hold, by node.
    leaving: BTreeMap<NodeName, Vec<Arc<Usage>>>,
    /// Every pod that holds something on a node.
    holders: Vec<Holds>,
    /// What pods of DaemonSets hold, by node: whoever ends them gets them back.
    daemons: BTreeMap<NodeName, Usage>,
    /// What members of gangs hold on nodes: to end one of them would end its whole gang.
    running: Vec<(NodeName, Arc<Usage>)>,
    /// Pods of no gang that have to leave their node.
    moves: BTreeSet<PodUid>,
    /// Capacity that plans made here took, with the gang.
    taken: Vec<(NodeName, ObjectKey, Usage)>,
    searched: Searched,
}

/// The name of a pod's owner of a kind.
fn owner_of<'a>(pod: &'a Pod, kind: &str) -> Option<&'a str> {
    let mut owners = pod.metadata.owner_references.iter().flatten();
    owners.find(|owner| owner.kind == kind).map(|owner| owner.name.as_str())
}

/// DaemonSets ask for what their pods of the dump ask for, where there are any: a LimitRange may have filled in what their template
/// does not say.
fn as_they_run(dump: &mut Dump) {
    let owner = |pod: &Pod| Some((pod.metadata.namespace.clone()?, owner_of(pod, "DaemonSet")?.to_owned()));
    let ended = |pod: &Pod| {
        let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
        pod.metadata.deletion_timestamp.is_some() || matches!(phase, Some("Succeeded" | "Failed"))
    };
    let mut running: BTreeMap<(String, String), &Pod> = BTreeMap::new();
    for pod in dump.pods.iter().filter(|pod| !ended(pod)) {
        let Some(owner) = owner(pod) else { continue };
        // Of several the first by name: the order of the dump decides nothing.
        let known = running.entry(owner).or_insert(pod);
        if pod.metadata.name < known.metadata.name {
            *known = pod;
        }
    }
    for set in &mut dump.daemon_sets {
        let key = (set.metadata.namespace.clone().unwrap_or_default(), set.metadata.name.clone().unwrap_or_default());
        let template = set.spec.as_mut().and_then(|spec| spec.template.spec.as_mut());
        if let (Some(template), Some(pod)) = (template, running.get(&key).and_then(|pod| pod.spec.as_ref())) {
            template.containers.clone_from(&pod.containers);
            template.init_containers.clone_from(&pod.init_containers);
            template.overhead.clone_from(&pod.overhead);
            template.resources.clone_from(&pod.resources);
        }
    }
}

/// Labels of every namespace that the dump has, or that one of its pods is in.
fn namespaces(dump: &Dump) -> Namespaces {
    let named =
        dump.namespaces.iter().filter_map(|one| Some((one.metadata.name.as_deref()?, one.metadata.labels.as_ref())));
    let of_pods = dump.pods.iter().filter_map(|pod| Some((pod.metadata.namespace.as_deref()?, None)));
    let mut all = Namespaces::new();
    for (name, labels) in named.chain(of_pods) {
        all.entry(Arc::from(name)).or_insert_with(|| convert::ordinary::namespace_labels(name, labels));
    }
    all
}

/// Levels that somebody asks for, by whatever name.
fn requested(members: &Members, requests: &[requests::Request]) -> BTreeSet<Arc<str>> {
    let of_gangs = members.gangs.iter().map(|gang| &gang.stated.topology_requests);
    let topology_requests = of_gangs.chain(requests.iter().map(|request| &request.topology_requests));
    topology_requests
        .flat_map(|topology_requests| {
            let single = [
                &topology_requests.required,
                &topology_requests.preferred,
                &topology_requests.exclusive,
                &topology_requests.balance,
            ];
            single.into_iter().flatten().chain(topology_requests.slices.iter().map(|slice| &slice.level))
        })
        .map(|topology_request| Arc::clone(&topology_request.value))
        .collect()
}

/// The node on which kube-scheduler has made capacity for a pod of no gang.
fn nominated(known: &Known) -> Option<&NodeName> {
    let core = &known.core;
    core.nominated.as_ref().filter(|_| core.membership == Membership::Single && core.is_live())
}
