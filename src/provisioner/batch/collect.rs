//! Orphans, both ways, over the whole account. What is one is decided in [`muster_core::batch::collect`].
//!
//! The account is read first, then the objects: every intent is written down before its call, so what nobody intends
//! after it was seen is left over. Findings in the cache are looked for again in what the API server has, and
//! instances once more by id, before anything is deleted.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use anyhow::Context as _;
use jiff::SignedDuration;
use kube::api::ListParams;
use kube::{Api, Client, ResourceExt};
use muster_api::crd::NodeBatch;
use muster_api::{batch_state, keys};
use muster_core::batch::{
    Account, Collection, Findings, KnownBatch, KnownNode, Report, SweepRound, collect, held_cost, next_round,
    sweep_round,
};
use muster_core::ec2::{ErrorClass, TAG_BATCH, TAG_CLUSTER_UID, Tags};
use muster_core::gang::GangEvent;
use muster_core::model::batch::{Loss, LossCause};
use muster_core::model::names::InstanceId;
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};

use crate::cloud::Changes;
use crate::cluster::State;
use crate::progress::Beat;
use crate::provisioner::Context;
use crate::provisioner::batch::effects::delete_node;

/// Between two rounds after a change of the leader, ten times.
const OFTEN: SignedDuration = SignedDuration::from_secs(30);
/// Between two rounds afterwards.
const SELDOM: SignedDuration = SignedDuration::from_secs(120);
/// What is younger is left alone: EC2 shows and tags with a delay.
const GRACE: SignedDuration = SignedDuration::from_secs(120);

/// More is orphaned or unseen at once than is credible.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::provisioner) struct Held {
    /// Names the set of instances; what confirms it.
    pub(in crate::provisioner) digest: String,
    /// One sentence.
    pub(in crate::provisioner) message: String,
}

/// Collects until the term ends.
pub(in crate::provisioner) async fn run(context: Arc<Context>, beat: Beat, term: CancellationToken) {
    let mut rounds = 0_u32;
    let mut failing = false;
    loop {
        beat.beat();
        let next = context.clock.now().saturating_add(next_round(rounds, OFTEN, SELDOM));
        tokio::select! {
            () = term.cancelled() => return,
            () = tokio::time::sleep(next.map_or(std::time::Duration::MAX, |next| context.clock.real_until(next))) => {}
        }
        rounds = rounds.saturating_add(1);
        let state = context.cluster.load();
        if !state.snapshot.synced || context.cluster.stale().is_some() {
            continue;
        }
        match round(&context, &state, &term).await {
            Err(error) if !failing => {
                failing = true;
                warn!(error = %format!("{error:#}"), "a round of the collection failed; the next one looks again");
            }
            Err(error) => debug!(error = %format!("{error:#}"), "a round of the collection failed again"),
            Ok(()) if failing => {
                failing = false;
                info!("the collection works again");
            }
            Ok(()) => {}
        }
    }
}

async fn round(context: &Context, state: &State, term: &CancellationToken) -> anyhow::Result<()> {
    let account = read(context).await?;
    let nodes = nodes(state);
    let cached: Vec<KnownBatch> = state.batches.values().map(|seen| KnownBatch::of(seen.batch())).collect();
    let confirmed = state.pools.values().filter_map(|pool| pool.annotations().get(keys::CONFIRM_ORPHANS));
    let confirmed: BTreeSet<&str> = confirmed.map(String::as_str).collect();
    let find = |batches: &[KnownBatch]| find(context, &account, batches, &nodes);
    let Some(round) = twice(&context.client, &cached, find, &confirmed).await? else {
        context.hold(None);
        return Ok(());
    };
    if term.is_cancelled() {
        return Ok(());
    }
    match &round.held {
        Some(findings) => hold(context, state, &account, findings).await,
        None => {
            context.hold(None);
        }
    }
    if round.act.is_empty() { Ok(()) } else { act(context, round.act).await }
}

/// Finds orphans among what the cache knows, and again among what the API server has: a cache that lags or lost its memory must not
/// cost anybody a node. `None`: there are none in the cache.
async fn twice(
    client: &Client,
    cached: &[KnownBatch],
    find: impl Fn(&[KnownBatch]) -> Findings,
    confirmed: &BTreeSet<&str>,
) -> anyhow::Result<Option<SweepRound>> {
    let first = find(cached);
    if first.is_empty() {
        return Ok(None);
    }
    let api: Api<NodeBatch> = Api::all(client.clone());
    let batches = api.list(&ListParams::default()).await.context("list NodeBatches")?;
    let batches: Vec<KnownBatch> = batches.iter().map(known).collect();
    Ok(Some(sweep_round(&first, &find(&batches), confirmed)))
}

async fn read(context: &Context) -> anyhow::Result<Account> {
    let tags = Tags::from([(TAG_CLUSTER_UID.to_owned(), context.options.cluster_uid.clone())]);
    Ok(Account {
        instances: context.cloud.instances_by_tags(&tags).await?,
        groups: context.cloud.placement_groups(&tags).await?,
        templates: context.cloud.launch_templates(&tags).await?,
    })
}

fn find(context: &Context, account: &Account, batches: &[KnownBatch], nodes: &[KnownNode]) -> Findings {
    collect(&Collection {
        cluster_uid: &context.options.cluster_uid,
        account,
        batches,
        nodes,
        grace: GRACE,
        now: context.clock.now(),
    })
}

fn known(batch: &NodeBatch) -> KnownBatch {
    KnownBatch::of(&batch_state::read(batch))
}

fn nodes(state: &State) -> Vec<KnownNode> {
    let ours = state.snapshot.nodes.values().filter(|entry| entry.node.labels.contains_key(keys::BATCH));
    ours.filter_map(|entry| {
        let id = entry.node.instance().filter(|id| id.starts_with("i-"))?;
        Some(KnownNode { name: entry.node.name.clone(), instance: InstanceId::from(id) })
    })
    .collect()
}

/// Tells what is held, and what it costs.
async fn hold(context: &Context, state: &State, account: &Account, findings: &Findings) {
    let digest = findings.digest();
    let cost = held_cost(&findings.held_orphans(), account, &context.catalogue.load().prices, context.clock.now());
    context.metrics.held_orphans(Some(cost));
    let message = findings.sentence(account, cost, &context.options.cluster_uid);
    if context.hold(Some(Held { digest, message: message.clone() })) {
        warn!(message, "the orphan sweep is held");
        for pool in state.pools.values() {
            let event = GangEvent { reason: "OrphanSweepHeld", message: message.clone(), warning: true };
            context.events.publish(&**pool, &event).await;
        }
    }
}

/// Ends what is left over, each of it for itself: what cannot be ended keeps nothing else alive.
///
/// Errors: the first one, once everything was tried.
async fn act(context: &Context, findings: Findings) -> anyhow::Result<()> {
    if context.cloud.changes() == Changes::Withheld {
        warn!(?findings, "dry run: what is left over is not collected");
        return Ok(());
    }
    let Findings { instances, explained: _, lost, nodes, unseen: _, groups, templates, live: _, listed: _ } = findings;
    let ids: BTreeSet<&InstanceId> = instances.iter().chain(lost.values().flatten()).chain(nodes.values()).collect();
    let ids: Vec<InstanceId> = ids.into_iter().cloned().collect();
    // The last look, by id: a description by tags may exclude what is there.
    let seen = context.cloud.instances(&ids).await?;
    let live: BTreeSet<&InstanceId> =
        seen.iter().filter(|instance| instance.state.live()).map(|instance| &instance.id).collect();
    let ours = |id: &InstanceId| {
        seen.iter().any(|instance| {
            instance.id == *id
                && instance.tags.contains_key(TAG_BATCH)
                && instance.tags.get(TAG_CLUSTER_UID) == Some(&context.options.cluster_uid)
        })
    };
    let mut failed: anyhow::Result<()> = Ok(());
    let mut fails = |error: anyhow::Error| {
        if failed.is_ok() {
            failed = Err(error);
        }
    };
    let orphans: Vec<InstanceId> = instances.into_iter().filter(|id| ours(id)).collect();
    if !orphans.is_empty() {
        warn!(instances = ?orphans, "instances of no NodeBatch: terminating");
        match context.cloud.terminate_instances(&orphans).await {
            Ok(_) => context.metrics.orphans("instance", orphans.len()),
            // What refuses the call for all of them does not keep the others: each is ended for itself.
            Err(error) if orphans.len() > 1 && error.kind.permitted() == Some(true) => {
                for orphan in &orphans {
                    match context.cloud.terminate_instances(std::slice::from_ref(orphan)).await {
                        Ok(_) => context.metrics.orphans("instance", 1),
                        Err(error) => fails(anyhow::Error::new(error).context(format!("terminate {orphan}"))),
                    }
                }
            }
            Err(error) => fails(error.into()),
        }
    }
    let now = context.clock.now();
    for (batch, ids) in lost {
        let message = "its instance is gone from EC2".to_owned();
        let loss = Loss { cause: LossCause::Missing, message, noticed: now, act_at: now, deadline: None };
        let losses: BTreeMap<InstanceId, Loss> =
            ids.into_iter().filter(|id| !live.contains(id)).map(|id| (id, loss.clone())).collect();
        let found = losses.len();
        if found > 0 {
            match context.report(&batch, Report { losses, reason: "InstanceLost", ..Report::default() }).await {
                Ok(true) => context.metrics.orphans("entry", found),
                Ok(false) => {}
                Err(error) => fails(error.context(format!("report to NodeBatch {batch}"))),
            }
        }
    }
    for (node, instance) in nodes.into_iter().filter(|(_, instance)| !live.contains(instance)) {
        match delete_node(&context.client, node.as_str(), &instance).await {
            Ok(true) => {
                info!(node = %node, "a Node of ours without its instance: deleted");
                context.metrics.orphans("node", 1);
            }
            Ok(false) => {}
            Err(error) => fails(error),
        }
    }
    for group in groups {
        info!(group, "an empty placement group of no NodeBatch: deleted");
        match context.cloud.delete_placement_group(&group).await {
            Ok(()) => context.metrics.orphans("placement-group", 1),
            Err(error) if error.kind == ErrorClass::InUse => {}
            Err(error) => fails(error.into()),
        }
    }
    for template in templates {
        info!(template, "a launch template of no NodeBatch: deleted");
        match context.cloud.delete_launch_template(&template).await {
            Ok(()) => context.metrics.orphans("launch-template", 1),
            Err(error) => fails(error.into()),
        }
    }
    failed
}

impl Context {
    /// Remembers what the safety threshold holds, for the pools' status. Whether it is another set than before.
    fn hold(&self, held: Option<Held>) -> bool {
        if held.is_none() {
            self.metrics.held_orphans(None);
        }
        let mut known = self.held.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let news = *known != held;
        *known = held;
        news
    }

    /// What the safety threshold holds.
    pub(in crate::provisioner) fn held(&self) -> Option<Held> {
        self.held.lock().unwrap_or_else(std::sync::PoisonError::into_inner).clone()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::super::effects::tests::serving;
    use super::*;

    /// A NodeBatch as an API server lists it, with one instance.
    fn listed(instance: &str) -> Value {
        json!({
            "apiVersion": "muster.dev/v1alpha1", "kind": "NodeBatch",
            "metadata": {"name": "b", "uid": "u", "resourceVersion": "1"},
            "spec": {"nodePools": ["p"], "count": 1, "offers": []},
            "status": {"instances": [{"id": instance, "attempt": 1, "state": "Ready"}]},
        })
    }

    /// What is terminated of `i-1`, which runs, while the cache knows no batch and the API server has these.
    async fn terminated(batches: Vec<Value>) -> BTreeSet<InstanceId> {
        let list = json!({
            "apiVersion": "muster.dev/v1alpha1", "kind": "NodeBatchList", "metadata": {"resourceVersion": "1"}, "items": batches,
        });
        let client = serving(move |_, _| (200, list.clone()));
        let find = |batches: &[KnownBatch]| {
            let known: BTreeSet<_> = batches.iter().flat_map(|one| one.instances.iter().map(|one| &one.id)).collect();
            let running = [InstanceId::from("i-1")].into_iter().filter(|one| !known.contains(one));
            Findings { instances: running.collect(), live: 1, ..Findings::default() }
        };
        twice(&client, &[], find, &BTreeSet::new()).await.unwrap().unwrap().act.instances
    }

    #[tokio::test]
    async fn what_the_cache_takes_for_an_orphan_is_left_alone_while_the_api_server_has_its_batch() {
        assert_eq!(terminated(vec![listed("i-1")]).await, BTreeSet::new());
        let orphan = BTreeSet::from([InstanceId::from("i-1")]);
        assert_eq!(terminated(vec![listed("i-2")]).await, orphan, "a batch that does not name it is no reason");
        assert_eq!(terminated(vec![]).await, orphan);
    }
}
