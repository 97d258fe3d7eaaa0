//! What suites that provision share: stacks with a simulated EC2, what it was asked, and that nothing is left.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking, its helpers too")]

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Node;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use kube::{Api, ResourceExt};
use muster::testbed::workloads::TestJob;
use muster::testbed::{Stack, StackOptions, eventually, pools};
use muster_api::crd::{NodeBatch, NodePool};
use muster_api::keys;
use muster_ec2_sim::{Fault, MarketType, Scenario};
use serde_json::{Value, json};

use crate::support::{DEADLINE, options, stack};

/// A stack that provisions p5.48xlarge from `scenario`, with EC2's time `factor` times as fast and the namespace `ml`.
pub(crate) async fn provisioning_stack(scenario: &Scenario, factor: u32, consolidate_after: &str) -> Option<Stack> {
    provisioning_stack_with(scenario, factor, consolidate_after, json!({})).await
}

/// [`provisioning_stack`] with more of a configuration.
pub(crate) async fn provisioning_stack_with(
    scenario: &Scenario,
    factor: u32,
    consolidate_after: &str,
    config: Value,
) -> Option<Stack> {
    let mut options = options().await?;
    options.config = config;
    Some(provisioning_on(options, scenario, factor, consolidate_after).await)
}

/// A stack of these options with a pool of p5.48xlarge.
pub(crate) async fn provisioning_on(
    mut options: StackOptions,
    scenario: &Scenario,
    factor: u32,
    consolidate_after: &str,
) -> Stack {
    options.scenario = Some(serde_json::to_value(scenario).unwrap());
    options.factor = factor;
    let stack = stack(options, "ml").await;
    let (class, pool) = pools::p5(consolidate_after).unwrap();
    let pool = patient(&pool);
    pools::create(&stack.admin().unwrap(), &class, &pool).await.unwrap();
    stack
}

/// The pool, with a day for machines to join: on a machine that is busy seconds pass that are minutes of EC2's, and what comes late is not
/// what the test is about.
pub(crate) fn patient(pool: &NodePool) -> NodePool {
    let mut pool = json!(pool);
    pool["spec"]["join"] = json!({"registerWithin": "24h", "readyWithin": "24h", "replaceAfter": "24h"});
    serde_json::from_value(pool).unwrap()
}

/// From now on the pool waits for machines for as long as one does that says nothing of it.
pub(crate) async fn impatient(stack: &Stack) {
    let pools = Api::<NodePool>::all(stack.admin().unwrap());
    let patch = Patch::Merge(json!({"spec": {"join": null}}));
    pools.patch("h100", &PatchParams::default(), &patch).await.unwrap();
}

/// One leaf of p5.48xlarge in each of the zones a, b and c, with this many hosts.
pub(crate) fn zones(hosts: [u32; 3]) -> Scenario {
    ["us-east-1a", "us-east-1b", "us-east-1c"]
        .into_iter()
        .zip(hosts)
        .fold(Scenario::default(), |scenario, (zone, n)| {
            scenario.with_pool("p5.48xlarge", zone, MarketType::OnDemand, 1, 1, n)
        })
}

/// A gang of whole nodes named like its Job.
pub(crate) fn gang_job(name: &str, members: u16) -> Job {
    TestJob::new(name, members).gpus(8).pod_annotation("muster.dev/gang", name).build()
}

/// A gang whose evict is no failure of its Job.
pub(crate) fn lasting_job(name: &str, members: u16) -> Job {
    TestJob::new(name, members).gpus(8).ignores_disruptions().pod_annotation("muster.dev/gang", name).build()
}

/// Ids of the instances that EC2 bills.
pub(crate) async fn live(stack: &Stack) -> BTreeSet<String> {
    let live: Vec<Value> = stack.sim("/_sim/instances").await.unwrap();
    live.iter().filter_map(|instance| instance["instanceId"].as_str().map(str::to_owned)).collect()
}

/// EC2's time.
pub(crate) async fn clock(stack: &Stack) -> Timestamp {
    let clock: Value = stack.sim("/_sim/clock").await.unwrap();
    clock["now"].as_str().unwrap().parse().unwrap()
}

/// From now on something goes wrong.
pub(crate) async fn goes_wrong(stack: &Stack, fault: &Fault) {
    stack.sim_post("/_sim/faults", &serde_json::to_value(fault).unwrap()).await.unwrap();
}

/// The journal from its `from`-th entry. A dry run, which carries nothing out, is no call of its operation.
pub(crate) async fn journal(stack: &Stack, from: usize) -> Vec<Value> {
    let mut entries: Vec<Value> = stack.sim(&format!("/_sim/journal?from={from}")).await.unwrap();
    for entry in entries.iter_mut().filter(|entry| entry["parameters"]["DryRun"] == "true") {
        entry["operation"] = json!(format!("dry run of {}", entry["operation"].as_str().unwrap_or_default()));
    }
    entries
}

/// EC2's time of an entry.
pub(crate) fn time_of(entry: &Value) -> Timestamp {
    entry["at"].as_str().unwrap().parse().unwrap()
}

/// Ids of instances that an entry made or ended.
pub(crate) fn instances(entry: &Value) -> Vec<&str> {
    let made = entry["resources"].as_array().into_iter().flatten();
    made.filter_map(Value::as_str).filter(|id| id.starts_with("i-")).collect()
}

/// Fleets in the journal that launched something.
pub(crate) fn launched_fleets(journal: &[Value]) -> Vec<&Value> {
    journal
        .iter()
        .filter(|entry| entry["operation"] == "CreateFleet" && entry["replayed"] == false)
        .filter(|entry| !instances(entry).is_empty())
        .collect()
}

/// Zone asked for by a CreateFleet, through its subnet: the last letter of a subnet's id is that of its zone.
pub(crate) fn zone_of(fleet: &Value) -> Option<char> {
    fleet["parameters"]
        .as_object()?
        .iter()
        .find(|(name, _)| name.ends_with("SubnetId"))
        .and_then(|(_, subnet)| subnet.as_str()?.chars().last())
}

/// The NodeBatches by name.
pub(crate) async fn batches(stack: &Stack) -> BTreeMap<String, NodeBatch> {
    let batches = Api::<NodeBatch>::all(stack.admin().unwrap()).list(&ListParams::default()).await.unwrap();
    batches.into_iter().map(|batch| (batch.name_any(), batch)).collect()
}

/// Waits until one NodeBatch satisfies `is`.
pub(crate) async fn batch_that(stack: &Stack, what: &str, is: impl Fn(&NodeBatch) -> bool) -> NodeBatch {
    let is = &is;
    eventually(DEADLINE, what, || async move {
        let batches = batches(stack).await;
        match batches.values().find(|batch| is(batch)) {
            Some(batch) => Ok(Some(batch.clone())),
            None => Err(format!("there are {:?}", batches.values().map(|batch| &batch.status).collect::<Vec<_>>())),
        }
    })
    .await
    .unwrap_or_else(|error| panic!("{error}\n{}", stack.cluster.report(60)))
}

/// Phase of a NodeBatch.
pub(crate) fn phase_of(batch: &NodeBatch) -> &str {
    batch.status.as_ref().map(|status| status.phase.as_str()).unwrap_or_default()
}

/// Deletes a Job once every NodeBatch is written down as in use: the nodes of one whose gang was deleted before they were
/// ready are no longer needed, and are terminated instead of being idle.
pub(crate) async fn delete_job_whose_nodes_are_in_use(stack: &Stack, name: &str) {
    eventually(DEADLINE, "every batch to be in use", || async move {
        let batches = batches(stack).await;
        let phases: Vec<String> = batches.values().map(|batch| phase_of(batch).to_owned()).collect();
        if phases.iter().all(|phase| phase == "InUse") { Ok(Some(())) } else { Err(format!("{phases:?}")) }
    })
    .await
    .unwrap_or_else(|error| panic!("{error}\n{}", stack.cluster.report(60)));
    delete_job(stack, name).await;
}

/// Deletes a Job with its pods.
pub(crate) async fn delete_job(stack: &Stack, name: &str) {
    let jobs: Api<Job> = Api::namespaced(stack.admin().unwrap(), "ml");
    jobs.delete(name, &DeleteParams::background()).await.unwrap();
}

/// Waits until nothing is left, and looks that nothing EC2 was asked on the way broke an invariant.
pub(crate) async fn everything_is_terminated(stack: &Stack) {
    nothing_is_left(stack).await;
    invariants_hold(stack).await;
}

/// Waits until neither nodes nor batches are left, then looks that EC2 has nothing of ours either.
pub(crate) async fn nothing_is_left(stack: &Stack) {
    let client = stack.admin().unwrap();
    let nodes = &Api::<Node>::all(client);
    eventually(DEADLINE, "no node and no batch to be left", || async move {
        let left = nodes.list(&ListParams::default()).await.map_err(|error| error.to_string())?.items.len();
        let held = batches(stack).await;
        // A class that is being resolved has a template for a moment; one that stays is a leak.
        let state: Value = stack.sim("/_sim/state").await.map_err(|error| error.to_string())?;
        let templates = &state["launchTemplates"];
        if left == 0 && held.is_empty() && *templates == json!([]) {
            return Ok(Some(()));
        }
        Err(format!(
            "{left} nodes, templates {templates}, batches {:?}",
            held.values().map(|batch| &batch.status).collect::<Vec<_>>()
        ))
    })
    .await
    .unwrap_or_else(|error| panic!("{error}\n{}", stack.cluster.report(60)));
    let state: Value = stack.sim("/_sim/state").await.unwrap();
    assert_eq!(state["placementGroups"], json!([]), "the group is deleted");
    let of_batches = |template: &&Value| template["tags"]["muster.dev/batch"].is_string();
    let templates: Vec<&Value> = state["launchTemplates"].as_array().into_iter().flatten().filter(of_batches).collect();
    assert!(templates.is_empty(), "the templates are deleted: {templates:#?}");
    let live: Vec<Value> = stack.sim("/_sim/instances").await.unwrap();
    assert!(live.is_empty(), "live instances: {live:#?}");
}

/// Waits until neither batches nor instances are left; nodes that were there before may be.
pub(crate) async fn no_instance_is_left(stack: &Stack) {
    let batches = &Api::<NodeBatch>::all(stack.admin().unwrap());
    eventually(DEADLINE, "no batch and no instance to be left", || async move {
        let left = batches.list(&ListParams::default()).await.map_err(|error| error.to_string())?.items.len();
        let live: Vec<Value> = stack.sim("/_sim/instances").await.map_err(|error| error.to_string())?;
        if left == 0 && live.is_empty() { Ok(Some(())) } else { Err(format!("{left} batches, {} live", live.len())) }
    })
    .await
    .unwrap_or_else(|error| panic!("{error}\n{}", stack.cluster.report(60)));
}

/// Nothing that EC2 was asked breaks an invariant, and those meant for rest come to hold: call it at rest. A class that
/// is being resolved has a template for a moment.
pub(crate) async fn invariants_hold(stack: &Stack) {
    invariants_hold_but(stack, &[]).await;
}

/// As [`invariants_hold`], where EC2 itself broke the invariants of these numbers.
pub(crate) async fn invariants_hold_but(stack: &Stack, broken_by_ec2: &[u64]) {
    let broken = broken_invariants(stack).await;
    assert_eq!(broken.0, broken_by_ec2, "broken: {:#?}\n{}", broken.1, stack.cluster.report(60));
}

/// Numbers of the invariants that are broken at rest, and what the simulator says of them.
pub(crate) async fn broken_invariants(stack: &Stack) -> (Vec<u64>, Vec<Value>) {
    let batches = Api::<NodeBatch>::all(stack.admin().unwrap());
    let batches = &batches;
    let always = eventually(DEADLINE, "the invariants of rest to hold", || async move {
        // Some of them are about what the batches say.
        let shown = batches.list(&ListParams::default()).await.map_err(|error| error.to_string())?;
        let shown = serde_json::to_value(&shown.items).map_err(|error| error.to_string())?;
        stack.sim_post("/_sim/batches", &shown).await.map_err(|error| error.to_string())?;
        let invariants: Vec<Value> = stack.sim("/_sim/invariants").await.map_err(|error| error.to_string())?;
        let broken = invariants.into_iter().filter(|invariant| invariant["holds"] != true);
        let (resting, always): (Vec<Value>, Vec<Value>) = broken.partition(|invariant| invariant["atRest"] == true);
        if resting.is_empty() || !always.is_empty() { Ok(Some(always)) } else { Err(format!("{resting:?}")) }
    })
    .await
    .unwrap_or_else(|error| panic!("{error}\n{}", stack.cluster.report(60)));
    // What they say is soon not true any more.
    stack.sim_post("/_sim/batches", &Value::Null).await.unwrap();
    (always.iter().filter_map(|invariant| invariant["number"].as_u64()).collect(), always)
}

/// Names of all nodes.
pub(crate) async fn node_names(stack: &Stack) -> BTreeSet<String> {
    let nodes = Api::<Node>::all(stack.admin().unwrap()).list(&ListParams::default()).await.unwrap();
    nodes.iter().map(ResourceExt::name_any).collect()
}

/// Longest that an instance may be billed and serve nobody, in EC2's time: a round of the collection, the age below
/// which it leaves alone what it finds, and some.
const RECONCILE: SignedDuration = SignedDuration::from_secs(300);
/// Longest wait for what EC2's own time makes long.
const LONG: Duration = Duration::from_secs(400);

/// Instances of ours that are billed and serve nobody now: in no batch and in no launch under way, or in a batch at rest
/// that has some of its nodes and neither none nor all.
async fn partial(stack: &Stack) -> BTreeSet<String> {
    let live: Vec<Value> = stack.sim("/_sim/instances").await.unwrap();
    let batches = batches(stack).await;
    let by_uid: BTreeMap<String, &NodeBatch> =
        batches.values().filter_map(|batch| Some((batch.uid()?, batch))).collect();
    let mut of_batch: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for instance in &live {
        if let (Some(batch), Some(id)) = (instance["tags"][keys::BATCH].as_str(), instance["instanceId"].as_str()) {
            of_batch.entry(batch).or_default().push(id);
        }
    }
    let mut found = BTreeSet::new();
    for (uid, ids) in of_batch {
        let status = by_uid.get(uid).and_then(|batch| batch.status.clone()).unwrap_or_default();
        let open = status.attempts.last().is_some_and(|attempt| attempt.outcome == "Launching");
        let listed: BTreeSet<&str> =
            status.instances.iter().chain(&status.replaced).map(|instance| instance.id.as_str()).collect();
        let at_rest = matches!(status.phase.as_str(), "Ready" | "InUse" | "Idle") && status.replaced.is_empty();
        let whole = usize::try_from(status.count).is_ok_and(|count| ids.len() == count);
        let of_nobody = ids.iter().filter(|id| !open && !listed.contains(**id));
        found.extend(of_nobody.map(|id| (*id).to_owned()));
        if at_rest && !whole {
            found.extend(ids.iter().map(|id| (*id).to_owned()));
        }
    }
    found
}

/// Instances of partial batches that stay for longer than one reconcile; returns as soon as none is. Atomic batches that bill with
/// neither 0 nor N instances beyond one reconcile must be none, whatever the weather was.
pub(crate) async fn partial_beyond_one_reconcile(stack: &Stack) -> BTreeSet<String> {
    let start = clock(stack).await;
    let first = partial(stack).await;
    let first = &first;
    eventually(LONG, "a reconcile to pass", || async move {
        let now = partial(stack).await;
        let stayed: BTreeSet<String> = first.intersection(&now).cloned().collect();
        let over = clock(stack).await.duration_since(start) > RECONCILE;
        Ok::<_, String>((over || stayed.is_empty()).then_some(stayed))
    })
    .await
    .unwrap_or_else(|error| panic!("{error}\n{}", stack.cluster.report(60)))
}

/// No batch is partial for longer than one reconcile.
pub(crate) async fn no_batch_is_partial(stack: &Stack) {
    let left = partial_beyond_one_reconcile(stack).await;
    assert!(left.is_empty(), "partial beyond one reconcile: {left:?}\n{}", stack.cluster.report(60));
}
