//! The overview of a dump.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::Timestamp;
use muster_api::crd::{GangBatchCost, condition};
use muster_api::{batch_state, books, keys, pool as rules};
use muster_core::batch::{LAG, Payer, Spent, shares, spent_so_far};
use muster_core::ec2::CapacityType;
use muster_core::model::batch::{Batch, BatchStatus};
use muster_core::model::money::micros;
use muster_core::model::names::ObjectKey;
use muster_core::model::node::{Node, Usage};
use muster_core::model::resources::amount;
use muster_core::planner;
use muster_core::topology::{Levels, Step, Tree};
use muster_replay::command::{self, Arguments, CommandError};
use muster_replay::dump::{self, Dump};
use muster_replay::explain::{self, GangExplanation};
use muster_replay::inventory::{self, Inventory, Standing};
use muster_replay::plan::{Options, PlanError};
use thiserror::Error;

use crate::fits::{self, Looked};
use crate::overview::{
    Accelerators, AttemptEntry, BatchEntry, DomainEntry, FitEntry, GangEntry, KIND, LevelEntry, LimitEntry, NodeEntry,
    NodeState, Overview, PoolEntry, PriceEntry, RemedyEntry, SpentEntry, Summary, VERSION, letters,
};

/// Why there is nothing to see.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ViewError {
    /// Input that cannot be used.
    #[error(transparent)]
    Input(#[from] CommandError),
    /// Nothing can be planned.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// Nothing of a cluster was read: a file of something else must not look like an empty cluster.
    #[error(
        "the input holds no Node, NodePool, NodeBatch or gang: give what `muster record` wrote, or `kubectl get -o json` of \
         these objects"
    )]
    Nothing,
}

/// Reads texts and flags as `muster explain` does.
///
/// Errors: input that cannot be read, or holds nothing of a cluster; levels that make no list.
pub fn of_texts(arguments: &Arguments<'_>) -> Result<Overview, ViewError> {
    let dump = dump::read(&arguments.files).map_err(CommandError::from)?;
    let options = command::options(arguments, &dump)?;
    // A recording says when it was made, also that of an empty cluster.
    let dated = options.now.or(dump.newest).is_some();
    let overview = of_dump(dump, &options)?;
    let empty = overview.nodes.is_empty() && overview.pools.is_empty() && overview.batches.is_empty();
    if empty && overview.gangs.is_empty() && !dated { Err(ViewError::Nothing) } else { Ok(overview) }
}

/// The overview of a dump. The same dump and options give the same bytes.
///
/// Errors: levels that make no list.
pub fn of_dump(dump: Dump, options: &Options) -> Result<Overview, PlanError> {
    Ok(counted(dump, options)?.0)
}

/// What it took to make an overview, for gates that must not depend on time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Work {
    /// What the planner of gangs did: an overview is one planning pass, its explanations included.
    pub planner: planner::plan::Work,
    /// Times a node was looked at beside that.
    pub nodes: u64,
}

/// [`of_dump`], and what it took.
///
/// Errors: those of [`of_dump`].
pub fn counted(dump: Dump, options: &Options) -> Result<(Overview, Work), PlanError> {
    let looked = Looked::default();
    let inventory = inventory::read(&dump, options);
    let excluded = dump.record.as_ref().map(|record| record.excluded.clone()).unwrap_or_default();
    let now = options.now.or(dump.newest).unwrap_or(Timestamp::UNIX_EPOCH);
    let explain::Gangs { gangs: explained, levels, work } = explain::gangs(dump, options)?;
    let tree = Tree::build(&levels, looked.at(&inventory.nodes).map(|standing| &standing.node));
    let names = inventory.accelerators();
    let mut gangs = gangs(&explained, &inventory, now);
    let index: BTreeMap<ObjectKey, usize> = gangs.iter().enumerate().map(|(index, gang)| (key(gang), index)).collect();
    let nodes = nodes(&inventory, &tree, &levels, &names, &index, &looked);
    for node in looked.at(&nodes) {
        for gang in &node.gangs {
            gangs[*gang].nodes.push(node.name.clone());
        }
    }
    let read: Vec<Batch> = inventory.batches.iter().map(batch_state::read).collect();
    let bills: Vec<Bill> = read.iter().map(|batch| bill(&batch.status, now)).collect();
    up_to_now(&mut gangs, &index, &inventory, &bills);
    let domains = domains(&tree, &levels, &nodes, &looked);
    let batches = batches(&inventory, &bills, now);
    let fits = fitting(&inventory, &levels, &tree, &names, &looked);
    let sum = |of: fn(&BatchEntry) -> u64| batches.iter().map(of).fold(0_u64, u64::saturating_add);
    let summary = Summary {
        nodes: count(nodes.len()),
        usable_nodes: count(looked.at(&inventory.nodes).filter(|standing| blocked(&standing.node).is_none()).count()),
        accelerators: looked.at(&nodes).fold(Accelerators::default(), |sum, node| sum.plus(node.accelerators)),
        gangs: count(gangs.len()),
        waiting: count(gangs.iter().filter(|gang| gang.waiting).count()),
        pending_pods: inventory.pending,
        usd_micro_per_hour: sum(|batch| batch.usd_micro_per_hour),
        spent_usd_micro: sum(|batch| batch.spent_usd_micro),
        stranded_usd_micro: sum(|batch| batch.stranded_usd_micro),
    };
    let level =
        |level: &muster_core::topology::Level| LevelEntry { name: level.name.to_string(), key: level.key.to_string() };
    let overview = Overview {
        version: VERSION,
        kind: KIND.to_owned(),
        now,
        summary,
        levels: levels.as_slice().iter().map(level).collect(),
        domains,
        pools: pools(&inventory, &nodes, &bills, &looked),
        spent: spent(&inventory, &read, now),
        prices: prices(&inventory, options, &looked),
        nodes,
        gangs,
        batches,
        fits,
        excluded,
    };
    Ok((overview, Work { planner: work, nodes: looked.nodes() }))
}

fn count(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

fn key(gang: &GangEntry) -> ObjectKey {
    ObjectKey::new(gang.namespace.as_str(), gang.object.as_str())
}

/// What is written as dollars in a status.
fn money(text: Option<&str>) -> u64 {
    text.and_then(micros).unwrap_or(0)
}

fn age(created: Option<Timestamp>, now: Timestamp) -> Option<i64> {
    created.map(|created| now.duration_since(created).as_secs().max(0))
}

/// Why a node takes no pods; `None` if it does.
fn blocked(node: &Node) -> Option<String> {
    if node.deleting {
        Some("being deleted".to_owned())
    } else if !node.ready {
        Some("not Ready".to_owned())
    } else if node.unschedulable {
        Some("cordoned".to_owned())
    } else if node.taints.iter().any(|taint| &*taint.key == keys::GANG_PENDING) {
        Some("held until its gang runs here".to_owned())
    } else {
        None
    }
}

fn gangs(explained: &[GangExplanation], inventory: &Inventory, now: Timestamp) -> Vec<GangEntry> {
    let objects: BTreeMap<(&str, &str), &muster_api::crd::Gang> = inventory
        .gangs
        .iter()
        .filter_map(|gang| Some(((gang.metadata.namespace.as_deref()?, gang.metadata.name.as_deref()?), gang)))
        .collect();
    let mut all: Vec<GangEntry> = explained
        .iter()
        .map(|gang| of_gang(gang, objects.get(&(gang.namespace.as_str(), gang.object.as_str())).copied(), now))
        .collect();
    all.sort_by(|one, other| {
        let by = |gang: &GangEntry| (!gang.waiting, gang.namespace.clone(), gang.name.clone(), gang.object.clone());
        by(one).cmp(&by(other))
    });
    for (index, gang) in all.iter_mut().enumerate() {
        gang.letters = letters(index);
    }
    all
}

fn of_gang(gang: &GangExplanation, object: Option<&muster_api::crd::Gang>, now: Timestamp) -> GangEntry {
    use muster_replay::document::{MemberState, Outcome};
    let status = object.and_then(|object| object.status.as_ref());
    let created = object.and_then(|object| object.metadata.creation_timestamp.as_ref()).map(|time| time.0);
    let cost = status.and_then(|status| status.cost.as_ref());
    let waiting = match gang.outcome {
        Outcome::Placed => false,
        Outcome::Provision | Outcome::Waiting | Outcome::Refused | Outcome::Invalid => true,
    };
    let mut codes: Vec<String> = Vec::new();
    for reason in gang.reasons.iter().filter(|_| waiting) {
        let code = reason.code.as_str().to_owned();
        if !codes.contains(&code) {
            codes.push(code);
        }
    }
    let remedy = |remedy: &explain::Remedy| RemedyEntry {
        text: remedy.sentence(),
        enough: remedy.enough,
        codes: remedy.codes.iter().map(|code| code.as_str().to_owned()).collect(),
    };
    let sum =
        |of: fn(&muster_replay::document::RoleEntry) -> u32| gang.roles.iter().map(of).fold(0_u32, u32::saturating_add);
    GangEntry {
        letters: String::new(),
        namespace: gang.namespace.clone(),
        name: gang.name.clone(),
        object: gang.object.clone(),
        phase: status.map(|status| status.phase.clone()).filter(|phase| !phase.is_empty()),
        waiting,
        running: count(gang.members.iter().filter(|member| member.state == MemberState::Running).count()),
        size: sum(|role| role.count),
        minimum: sum(|role| role.min),
        created,
        age_seconds: age(created, now),
        headline: gang.headline.clone(),
        codes,
        remedies: gang.remedies.iter().map(remedy).collect(),
        placement: status.and_then(|status| status.placement.as_ref()).map(|placement| placement.summary.clone()),
        batch: status.and_then(|status| status.batch.clone()),
        nodes: Vec::new(),
        usd_micro_per_hour: money(cost.map(|cost| cost.per_hour.as_str())),
        spent_usd_micro: money(cost.map(|cost| cost.spent.as_str())),
        stranded_usd_micro: money(cost.map(|cost| cost.stranded.as_str())),
    }
}

/// Nodes in the order of the tree.
fn nodes(
    inventory: &Inventory,
    tree: &Tree,
    levels: &Levels,
    names: &[&'static str],
    gangs: &BTreeMap<ObjectKey, usize>,
    looked: &Looked,
) -> Vec<NodeEntry> {
    let above = levels.host().checked_sub(1);
    // Domains are listed level by level depth first; the same order as `domains` below.
    let places = above.map(|level| positions(tree, level));
    let standing = tree.hosts().iter().enumerate().filter_map(|(at, index)| Some((at, inventory.nodes.get(*index)?)));
    looked
        .at(standing)
        .map(|(at, standing)| {
            let domain = above.zip(places.as_ref()).map(|(level, places)| places[level][tree.domain_of(level, at)]);
            node(standing, domain, names, gangs)
        })
        .collect()
}

fn node(
    standing: &Standing,
    domain: Option<usize>,
    names: &[&'static str],
    gangs: &BTreeMap<ObjectKey, usize>,
) -> NodeEntry {
    let Standing { node, usage, pods } = standing;
    let accelerator = names.iter().find(|name| node.allocatable.get(name) > 0);
    let of = |resources: &muster_core::model::resources::Resources| {
        accelerator.map_or(0, |name| u64::try_from(resources.get(name)).unwrap_or(0))
    };
    let (total, held) = (of(&node.allocatable), of(&usage.requested));
    let used = held.min(total);
    let why = blocked(node);
    let free = if why.is_some() { 0 } else { total - used };
    let mut shares: BTreeMap<usize, u64> = BTreeMap::new();
    for pod in pods {
        if let Some(index) = pod.gang.as_ref().and_then(|gang| gangs.get(gang)) {
            *shares.entry(*index).or_default() += of(&pod.usage.requested);
        }
    }
    let mut shares: Vec<(usize, u64)> = shares.into_iter().collect();
    shares.sort_by_key(|(gang, share)| (std::cmp::Reverse(*share), *gang));
    let label = |key: &str| node.labels.get(key).map(ToString::to_string);
    let state = match (why.is_some(), total, used) {
        (true, _, 0) => NodeState::Blocked,
        (true, _, _) if used < total => NodeState::Blocked,
        (_, 0, _) => NodeState::Plain,
        (_, _, 0) => NodeState::Idle,
        (_, total, used) if used < total => NodeState::Partial,
        _ => NodeState::Full,
    };
    NodeEntry {
        name: node.name.to_string(),
        domain,
        instance_type: label(keys::INSTANCE_TYPE).unwrap_or_default(),
        pool: label(keys::NODEPOOL),
        state,
        why,
        accelerator: accelerator.map(|name| (*name).to_owned()),
        accelerators: Accelerators { total, used, free },
        gangs: shares.into_iter().map(|(gang, _)| gang).collect(),
        other_pods: count(pods.iter().filter(|pod| pod.gang.is_none() && !pod.daemon).count()),
    }
}

/// Index in the depth-first list of each domain, by level and place in its level, down to `last`.
fn positions(tree: &Tree, last: usize) -> Vec<Vec<usize>> {
    let mut all: Vec<Vec<usize>> = (0..=last).map(|level| vec![0; tree.level(level).len()]).collect();
    let mut next = 0;
    let mut stack: Vec<(usize, usize)> = (0..tree.level(0).len()).rev().map(|domain| (0, domain)).collect();
    while let Some((level, domain)) = stack.pop() {
        all[level][domain] = next;
        next += 1;
        if level < last {
            let children = tree.level(level)[domain].children.clone();
            stack.extend(children.rev().map(|child| (level + 1, child)));
        }
    }
    all
}

/// Domains above the host, depth first, with what their nodes add up to.
fn domains(tree: &Tree, levels: &Levels, nodes: &[NodeEntry], looked: &Looked) -> Vec<DomainEntry> {
    let Some(last) = levels.host().checked_sub(1) else { return Vec::new() };
    let places = positions(tree, last);
    let mut found: Vec<(usize, DomainEntry)> = Vec::new();
    for level in 0..=last {
        for (index, domain) in tree.level(level).iter().enumerate() {
            let own = &nodes[domain.hosts.clone()];
            let sum = |(idle, all): (u32, Accelerators), node: &NodeEntry| {
                (idle + u32::from(node.state == NodeState::Idle), all.plus(node.accelerators))
            };
            let (idle_nodes, accelerators) = looked.at(own).fold((0, Accelerators::default()), sum);
            let name = match &domain.step {
                Step::Label(label) => Some(label.to_string()),
                Step::Absent | Step::Own(_) => None,
            };
            let entry = DomainEntry {
                level,
                parent: level.checked_sub(1).map(|above| places[above][domain.parent]),
                name,
                path: tree.path(level, index),
                nodes: count(own.len()),
                idle_nodes,
                accelerators,
            };
            found.push((places[level][index], entry));
        }
    }
    found.sort_by_key(|(at, _)| *at);
    found.into_iter().map(|(_, entry)| entry).collect()
}

fn fitting(
    inventory: &Inventory,
    levels: &Levels,
    tree: &Tree,
    names: &[&'static str],
    looked: &Looked,
) -> Vec<FitEntry> {
    let nodes: Vec<(&Node, &Usage)> =
        inventory.nodes.iter().map(|standing| (&standing.node, &standing.usage)).collect();
    let mut tolerated: BTreeSet<Arc<str>> = BTreeSet::new();
    for pool in &inventory.pools {
        tolerated.extend(rules::taints(pool).unwrap_or_default().into_iter().map(|taint| taint.key));
    }
    let kinds = fits::kinds(looked.at(&nodes).map(|(node, _)| *node), names);
    kinds.iter().flat_map(|kind| fits::counted(kind, levels, tree, &nodes, &tolerated, looked)).collect()
}

fn batches(inventory: &Inventory, bills: &[Bill], now: Timestamp) -> Vec<BatchEntry> {
    let batches = inventory.batches.iter().zip(bills);
    let mut all: Vec<BatchEntry> = batches.map(|(batch, bill)| of_batch(batch, bill, now)).collect();
    all.sort_by(|one, other| other.created.cmp(&one.created).then_with(|| one.name.cmp(&other.name)));
    all
}

/// Micro-dollars of a batch.
struct Bill {
    per_hour: u64,
    spent: u64,
    stranded: u64,
}

/// What a batch costs now and has cost until now: a bill is summed up in its status where something changes, which may be days
/// ago.
fn bill(status: &BatchStatus, now: Timestamp) -> Bill {
    let mut bill = Bill { per_hour: status.price_now(), spent: 0, stranded: 0 };
    for share in shares(status, Some(now)) {
        bill.spent = bill.spent.saturating_add(share.spent);
        bill.stranded = share.stranded.values().fold(bill.stranded, |sum, more| sum.saturating_add(*more));
    }
    // What was summed up stays, also where the status names no pool.
    if let Some(billing) = &status.billing {
        let stranded = billing.stranded.values().copied().fold(0, u64::saturating_add);
        (bill.spent, bill.stranded) = (bill.spent.max(billing.spent), bill.stranded.max(stranded));
    }
    bill
}

/// Adds to the cost of each gang what its NodeBatches have cost since its status was written.
fn up_to_now(gangs: &mut [GangEntry], index: &BTreeMap<ObjectKey, usize>, inventory: &Inventory, bills: &[Bill]) {
    let costs = inventory.gangs.iter().filter_map(|gang| {
        let key = ObjectKey::new(gang.metadata.namespace.as_deref()?, gang.metadata.name.as_deref()?);
        Some((key, &gang.status.as_ref()?.cost.as_ref()?.batches))
    });
    let costs: BTreeMap<ObjectKey, &BTreeMap<String, GangBatchCost>> = costs.collect();
    for (batch, bill) in inventory.batches.iter().zip(bills) {
        let (Some(owner), Some(name)) = (&batch.spec.gang_ref, &batch.metadata.name) else { continue };
        let owner = ObjectKey::new(owner.namespace.as_str(), owner.name.as_str());
        let Some(gang) = index.get(&owner).and_then(|at| gangs.get_mut(*at)) else { continue };
        let known = costs.get(&owner).and_then(|batches| batches.get(name));
        let (spent, stranded) = known.map_or((0, 0), |known| (known.spent_micro_usd, known.stranded_micro_usd));
        gang.spent_usd_micro = gang.spent_usd_micro.saturating_add(bill.spent.saturating_sub(spent));
        gang.stranded_usd_micro = gang.stranded_usd_micro.saturating_add(bill.stranded.saturating_sub(stranded));
    }
}

fn of_batch(batch: &muster_api::crd::NodeBatch, bill: &Bill, now: Timestamp) -> BatchEntry {
    let status = batch.status.clone().unwrap_or_default();
    let owner = batch.spec.gang_ref.as_ref().or(batch.spec.provisioning_request_ref.as_ref());
    let created = batch.metadata.creation_timestamp.as_ref().map(|time| time.0);
    let attempt = |attempt: &muster_api::crd::BatchAttempt| AttemptEntry {
        number: attempt.number,
        instance_type: attempt.instance_type.clone(),
        zone: attempt.zone.clone(),
        capacity_type: attempt.capacity_type.clone(),
        count: attempt.count,
        outcome: attempt.outcome.clone(),
        code: attempt.code.clone(),
        message: attempt.message.clone(),
        started: attempt.started,
        ended: attempt.ended,
    };
    BatchEntry {
        name: batch.metadata.name.clone().unwrap_or_default(),
        phase: status.phase,
        owner: owner.map(|owner| format!("{}/{}", owner.namespace, owner.name)),
        count: if status.count > 0 { status.count } else { batch.spec.count },
        ready: status.ready_count,
        instance_type: status.instance_type,
        zone: status.zone,
        capacity_type: status.capacity_type,
        usd_micro_per_hour: bill.per_hour,
        spent_usd_micro: bill.spent,
        stranded_usd_micro: bill.stranded,
        message: status.message,
        created,
        age_seconds: age(created, now),
        attempts: status.attempts.iter().map(attempt).collect(),
    }
}

fn pools(inventory: &Inventory, nodes: &[NodeEntry], bills: &[Bill], looked: &Looked) -> Vec<PoolEntry> {
    let mut all: Vec<PoolEntry> = Vec::new();
    // What its own batches say, as everywhere else: the status of a pool is written less often.
    let mut rates: BTreeMap<&str, u64> = BTreeMap::new();
    for (batch, bill) in inventory.batches.iter().zip(bills) {
        if let Some(pool) = batch.status.as_ref().and_then(|status| status.node_pool.as_deref()) {
            let rate = rates.entry(pool).or_default();
            *rate = rate.saturating_add(bill.per_hour);
        }
    }
    let written = |status: Option<&muster_api::crd::NodePoolStatus>| {
        money(status.and_then(|status| status.price_per_hour.as_deref()))
    };
    let named: BTreeSet<Option<&str>> = looked
        .at(nodes)
        .map(|node| node.pool.as_deref())
        .chain(inventory.pools.iter().map(|pool| pool.metadata.name.as_deref()))
        .collect();
    let mut standing_by_pool: BTreeMap<Option<&str>, Vec<&Standing>> = BTreeMap::new();
    for standing in looked.at(&inventory.nodes) {
        let pool = standing.node.labels.get(keys::NODEPOOL).map(|pool| &**pool);
        standing_by_pool.entry(pool).or_default().push(standing);
    }
    let mut by_pool: BTreeMap<Option<&str>, Vec<&NodeEntry>> = BTreeMap::new();
    for node in looked.at(nodes) {
        by_pool.entry(node.pool.as_deref()).or_default().push(node);
    }
    for name in named {
        let own = by_pool.remove(&name).unwrap_or_default();
        let standing = standing_by_pool.remove(&name).unwrap_or_default();
        let members = looked.at(&standing).flat_map(|standing| &standing.pods).filter(|pod| pod.gang.is_some()).count();
        let object =
            name.and_then(|name| inventory.pools.iter().find(|pool| pool.metadata.name.as_deref() == Some(name)));
        let status = object.and_then(|object| object.status.as_ref());
        let ready = status.and_then(|status| condition(&status.conditions, "Ready"));
        let limits = object.and_then(|object| rules::limits(object).ok()).unwrap_or_default();
        let limit = |(resource, limit): (&muster_core::model::names::ResourceName, &i64)| {
            let used = looked.at(&standing).fold(0_i64, |sum, standing| {
                let one =
                    if resource.as_str() == "nodes" { 1 } else { standing.node.allocatable.get(resource.as_str()) };
                sum.saturating_add(one)
            });
            LimitEntry {
                resource: resource.to_string(),
                used: amount(resource.as_str(), used),
                limit: amount(resource.as_str(), *limit),
            }
        };
        all.push(PoolEntry {
            name: name.map(str::to_owned),
            ready: ready.map(|one| one.status == "True"),
            message: ready.map(|one| one.message.clone()).filter(|message| !message.is_empty()),
            nodes: count(own.len()),
            accelerators: looked.at(&own).fold(Accelerators::default(), |sum, node| sum.plus(node.accelerators)),
            gang_members: count(members),
            other_pods: looked.at(&own).map(|node| node.other_pods).fold(0, u32::saturating_add),
            usd_micro_per_hour: if inventory.batches.is_empty() {
                written(status)
            } else {
                name.and_then(|name| rates.get(name)).copied().unwrap_or(0)
            },
            limits: limits.iter().map(limit).collect(),
        });
    }
    all
}

/// What the NodePools have booked, and the bills that are not: the counters of the server, up to now.
fn spent(inventory: &Inventory, batches: &[Batch], now: Timestamp) -> Vec<SpentEntry> {
    let books = inventory.pools.iter().filter_map(|pool| Some((pool.metadata.name.as_deref()?, books::read(pool))));
    let until = now.saturating_add(LAG).unwrap_or(now);
    let sums = spent_so_far(&books.collect(), batches.iter(), until);
    let entry = |((node_pool, payer), spent): ((String, Payer), Spent)| SpentEntry {
        namespace: payer.namespace,
        node_pool,
        capacity_type: payer.capacity_type,
        spent_usd_micro: spent.all,
        stranded_usd_micro: spent.stranded.values().copied().fold(0, u64::saturating_add),
    };
    let mut all: Vec<SpentEntry> = sums.into_iter().map(entry).filter(|entry| entry.spent_usd_micro > 0).collect();
    let by = |entry: &SpentEntry| (entry.namespace.clone(), entry.node_pool.clone(), entry.capacity_type.clone());
    all.sort_by_key(by);
    all
}

/// Prices of the types that nodes and batches have.
fn prices(inventory: &Inventory, options: &Options, looked: &Looked) -> Vec<PriceEntry> {
    let of_nodes = looked.at(&inventory.nodes).filter_map(|standing| {
        let label = |key: &str| standing.node.labels.get(key).map(ToString::to_string);
        Some((label(keys::INSTANCE_TYPE)?, label(keys::CAPACITY_TYPE), label(keys::ZONE)))
    });
    let of_batches = inventory.batches.iter().filter_map(|batch| {
        let status = batch.status.as_ref()?;
        Some((status.instance_type.clone()?, status.capacity_type.clone(), status.zone.clone()))
    });
    let seen: BTreeSet<_> = of_nodes.chain(of_batches).collect();
    seen.into_iter()
        .filter_map(|(instance_type, capacity_type, zone)| {
            let capacity = capacity_type.as_deref().and_then(CapacityType::parse).unwrap_or(CapacityType::OnDemand);
            let price =
                options.catalogue.prices.price(&instance_type, zone.as_deref().unwrap_or_default(), capacity)?;
            Some(PriceEntry {
                instance_type,
                capacity_type: capacity.as_str().to_owned(),
                zone,
                usd_micro_per_hour: price,
                source: options.catalogue.name.clone(),
                as_of: options.catalogue.as_of,
            })
        })
        .collect()
}
