//! The calls of the gang loop: what each action writes, and what is made of the answer.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::Context as _;
use futures::{StreamExt, stream};
use k8s_openapi::api::core::v1::{ObjectReference, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams, Preconditions};
use kube::{Api, Client, Resource as _, ResourceExt};
use muster_api::convert::assigned_node;
use muster_api::crd::{BatchOffer, set_condition};
use muster_api::crd::{Fill, Gang as GangObject, GangRef, NodeBatch, NodeBatchSpec};
use muster_api::{batch_state, gang_state, keys};
use muster_core::batch::reserves;
use muster_core::ec2::{CapacityType, Grace};
use muster_core::gang::{
    Action, BatchRequest, Evict, GangEvent, MemberReport, StatusWrite, batch_name, conditions as shown, owner_event,
};
use muster_core::model::gang::{Gang, NoteKind, Phase, Recognised};
use muster_core::model::names::{ObjectKey, PodUid};
use serde_json::json;
use tracing::{debug, info, warn};

use super::events::Events;
use super::patch::{patch, post_eviction};
use super::release::of_member;
use super::seen::Seen;
use super::share::Share;
use super::{cost, notice};
use crate::clock::{Clock, now_real};
use crate::cluster::Cluster;
use crate::step::{Step, step};
use crate::telemetry::GangMetrics;
use crate::term::Tenure;

/// How actions are carried out.
#[derive(Clone, Copy, Debug)]
pub struct ExecutorOptions {
    /// Members released at once.
    pub parallel: usize,
    /// A patch that has not been observed is repeated after this.
    pub renominate: Duration,
}

/// What makes the calls, and remembers none of them: several gangs are dealt with at once.
pub(super) struct Hands {
    pub(super) client: Client,
    pub(super) cluster: Cluster,
    pub(super) events: Events,
    pub(super) metrics: GangMetrics,
    pub(super) options: ExecutorOptions,
    /// EC2's time, in which notices run out.
    pub(super) clock: Clock,
    /// Gangs dealt with at once.
    pub(super) gangs: Share,
    /// Members patched at once.
    pub(super) members: Share,
    /// Members evicted at once: patches that hang keep no gang from ending, nor the other way round.
    pub(super) evictions: Share,
    /// Gangs of whose PodDisruptionBudget was reported, with the epoch.
    pub(super) budgets: Mutex<BTreeMap<ObjectKey, u64>>,
}

/// What a call changed that the watch does not show yet.
pub(super) enum Effect {
    /// A Gang as the API server answered.
    Wrote(Box<GangObject>),
    /// Somebody else wrote the Gang meanwhile.
    Overtaken(ObjectKey),
    /// A NodeBatch was created.
    Batch(Arc<str>),
    /// A member's patches were not written.
    Unsent(PodUid),
    /// A member's condition was not written.
    Unreported(PodUid),
    /// A member was not evicted.
    Unevicted(PodUid),
    /// A NodeBatch that is given up was not deleted.
    Unabandoned(Arc<str>),
    /// A pod keeps our gate.
    Gated(PodUid),
    /// A pod keeps its nomination.
    Nominated(PodUid),
    /// It failed, and is decided again.
    Failed,
}

impl Hands {
    pub(super) fn reported(&self) -> MutexGuard<'_, BTreeMap<ObjectKey, u64>> {
        self.budgets.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The actions of one gang, in order.
    pub(super) async fn carry_out(&self, seen: &Seen, actions: Vec<Action>, tenure: &Tenure) -> Vec<Effect> {
        let mut effects = Vec::new();
        let mut refused = false;
        let mut actions = actions.into_iter().peekable();
        while let Some(action) = actions.next() {
            if !tenure.lasts() {
                warn!("the lease is lost: the remaining actions are dropped");
                return effects;
            }
            let effect = match action {
                Action::Evict(first) => {
                    let more =
                        std::iter::from_fn(|| match actions.next_if(|next| matches!(next, Action::Evict(_)))? {
                            Action::Evict(evict) => Some(*evict),
                            _ => None,
                        });
                    let evictions: Vec<Evict> = std::iter::once(*first).chain(more).collect();
                    effects.extend(Box::pin(self.evict_members(seen, evictions, tenure)).await);
                    continue;
                }
                Action::CreateGang(recognised) => self.create_gang(&recognised).await.map(Some),
                Action::CreateBatch(request) => {
                    let created = self.create_batch(seen, &request).await.map(Some);
                    // The status that names the batch must not be written.
                    refused |= created.is_err();
                    created
                }
                Action::WriteStatus(_) if refused => Ok(None),
                Action::WriteStatus(write) => self.write_status(seen, &write).await,
                Action::AbandonBatch { name, why } => {
                    let abandoned = self.abandon_batch(seen, &name, why.as_deref()).await;
                    if abandoned.is_err() {
                        effects.push(Effect::Unabandoned(name));
                    }
                    abandoned.map(|()| None)
                }
                Action::Ungate { uid } => {
                    let ungated = self.ungate(seen, &uid).await;
                    if ungated.is_err() {
                        effects.push(Effect::Gated(uid));
                    }
                    ungated.map(|()| None)
                }
                Action::DeleteGang { gang } => self.delete_gang(&gang).await.map(|()| None),
                // These run side by side with all gangs.
                Action::Release(_) | Action::Report(_) | Action::Requeue { .. } | Action::ClearNomination { .. } => {
                    Ok(None)
                }
            };
            match effect {
                Ok(effect) => effects.extend(effect),
                Err(error) => {
                    warn!(error = %crate::telemetry::chain(&error), "an action failed and is decided again");
                    effects.push(Effect::Failed);
                }
            }
        }
        effects
    }

    async fn create_gang(&self, recognised: &Arc<Recognised>) -> anyhow::Result<Effect> {
        let key = &recognised.key;
        let gangs: Api<GangObject> = Api::namespaced(self.client.clone(), &key.namespace);
        let mut object = GangObject::new(&key.name, gang_state::spec(recognised));
        object.metadata.owner_references = recognised.source.owner.as_ref().map(|owner| {
            vec![OwnerReference {
                api_version: owner.api_version.to_string(),
                kind: owner.kind.to_string(),
                name: owner.name.to_string(),
                uid: owner.uid.to_string(),
                controller: Some(false),
                block_owner_deletion: Some(false),
            }]
        });
        object.metadata.labels = label(recognised).map(|label| BTreeMap::from([(keys::GANG.to_owned(), label)]));
        let created = match step(Step::CreateGang, gangs.create(&PostParams::default(), &object)).await {
            Ok(created) => created,
            Err(kube::Error::Api(status)) if status.code == 409 => gangs.get(&key.name).await?,
            Err(error) => return Err(anyhow::Error::new(error).context(format!("create gang {key}"))),
        };
        info!(gang = %key, size = created.spec.size, "recognised");
        Ok(self.trust(created))
    }

    fn trust(&self, object: GangObject) -> Effect {
        self.cluster.trust(&object);
        Effect::Wrote(Box::new(object))
    }

    async fn write_status(&self, seen: &Seen, write: &StatusWrite) -> anyhow::Result<Option<Effect>> {
        let key = &write.gang.key;
        let gangs: Api<GangObject> = Api::namespaced(self.client.clone(), &key.namespace);
        let Some(before) = &seen.object else { return Ok(None) };
        let mut object = GangObject::clone(before);
        if let Some(recognised) = &write.recognised {
            let spec = gang_state::spec(recognised);
            if object.spec != spec {
                object.spec = spec;
                object = step(Step::WriteGang, gangs.replace(&key.name, &PostParams::default(), &object))
                    .await
                    .map_err(|error| anyhow::Error::new(error).context(format!("write the spec of gang {key}")))?;
            }
        }
        let mut status = gang_state::write(&write.next, before.status.as_ref());
        conditions(&mut status, write, object.metadata.generation);
        status.cost = cost::of(status.cost.as_ref(), &write.gang.uid, write.next.phase, seen.batches.values());
        object.status = Some(status);
        let written = step(Step::WriteGang, gangs.replace_status(&key.name, &PostParams::default(), &object)).await;
        let written = match written {
            Ok(written) => written,
            // Somebody else wrote: what was decided is void. The watch brings the news, but it may be a while behind.
            Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => {
                debug!(gang = %key, "status changed meanwhile");
                let newest = gangs.get_opt(&key.name).await?;
                return Ok(Some(newest.map_or_else(|| Effect::Overtaken(key.clone()), |gang| self.trust(gang))));
            }
            Err(error) => return Err(anyhow::Error::new(error).context(format!("write the status of gang {key}"))),
        };
        if write.gang.phase != write.next.phase || write.gang.epoch != write.next.epoch {
            info!(
                gang = %key,
                phase = write.next.phase.map_or("?", Phase::as_str),
                epoch = write.next.epoch,
                waiting = write.next.waiting.as_ref().map_or("", |waiting| &*waiting.message),
                "gang"
            );
        }
        self.metrics.moved(&write.gang, &write.next, source(seen, write.next.batch.as_deref()), now_real());
        let reported: Vec<GangEvent> = write.event.iter().chain(&write.also).cloned().collect();
        let to_owner = owner_event(&write.gang, &write.next).zip(owner(&written));
        if !reported.is_empty() || to_owner.is_some() {
            // For people: nothing that follows from the write waits for it.
            let (events, about) = (self.events.clone(), written.clone());
            tokio::spawn(async move {
                for event in &reported {
                    events.publish(&about, event).await;
                }
                if let Some((event, owner)) = to_owner {
                    events.publish_change(&owner, about.object_ref(&()), &event).await;
                }
            });
        }
        Ok(Some(self.trust(written)))
    }

    async fn delete_gang(&self, gang: &Gang) -> anyhow::Result<()> {
        let gangs: Api<GangObject> = Api::namespaced(self.client.clone(), &gang.key.namespace);
        let params = DeleteParams {
            preconditions: Some(Preconditions {
                uid: Some(gang.uid.to_string()),
                resource_version: Some(gang.resource_version.to_string()),
            }),
            ..DeleteParams::default()
        };
        match step(Step::DeleteGang, gangs.delete(&gang.key.name, &params)).await {
            Ok(_) => Ok(()),
            Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => Ok(()),
            Err(error) => Err(anyhow::Error::new(error).context(format!("delete gang {}", gang.key))),
        }
    }

    async fn create_batch(&self, seen: &Seen, request: &BatchRequest) -> anyhow::Result<Effect> {
        let name = batch_name(&request.gang.uid, request.round);
        let batches: Api<NodeBatch> = Api::all(self.client.clone());
        // One that is not seen may only not be seen yet: beside it nothing is provisioned, however long the watch lags.
        let named = request.gang.batch.as_deref().filter(|named| **named != *name);
        if let Some(named) = named.filter(|named| !seen.batches.contains_key(*named)) {
            let there = batches.get_opt(named).await.with_context(|| format!("read NodeBatch {named}"))?;
            anyhow::ensure!(
                there.is_none(),
                "NodeBatch {named} exists and is not seen yet: no other is created beside it"
            );
        }
        let mut pools: Vec<String> = Vec::new();
        for offer in &request.offers {
            if !pools.iter().any(|pool| **pool == *offer.pool) {
                pools.push(offer.pool.to_string());
            }
        }
        // What nodes have is known to the provisioner alone; the nodes themselves count whatever it knows.
        let offers = request.offers.iter().map(|offer| (&*offer.pool, &*offer.instance_type, offer.count));
        let reserved = reserves(offers, |_, _| None);
        let mut object = NodeBatch::new(
            &name,
            NodeBatchSpec {
                node_pools: pools,
                count: request.offers.first().map_or(0, |offer| offer.count),
                fill: Fill::Atomic,
                gang_ref: Some(GangRef {
                    namespace: request.gang.key.namespace.to_string(),
                    name: request.gang.key.name.to_string(),
                    uid: request.gang.uid.to_string(),
                }),
                provisioning_request_ref: None,
                offers: request
                    .offers
                    .iter()
                    .map(|offer| BatchOffer {
                        node_pool: offer.pool.to_string(),
                        instance_type: offer.instance_type.to_string(),
                        count: offer.count,
                    })
                    .collect(),
                placement_group: request.placement_group.as_ref().map(ToString::to_string),
                zones: request.zones.iter().map(ToString::to_string).collect(),
                capacity_type: None,
                fillings: Vec::new(),
                reserves: batch_state::write_reserves(&reserved),
            },
        );
        object.metadata.finalizers = Some(vec![keys::TERMINATION.to_owned()]);
        match step(Step::CreateBatch, batches.create(&PostParams::default(), &object)).await {
            Ok(_) => info!(batch = name, gang = %request.gang.key, "batch created"),
            Err(kube::Error::Api(status)) if status.code == 409 => {
                let existing = batches.get(&name).await?;
                let ours = existing.spec.gang_ref.as_ref().is_some_and(|gang| gang.uid == *request.gang.uid);
                anyhow::ensure!(ours, "NodeBatch {name} exists and belongs to another gang");
            }
            Err(error) => return Err(anyhow::Error::new(error).context(format!("create NodeBatch {name}"))),
        }
        Ok(Effect::Batch(Arc::from(name)))
    }

    async fn abandon_batch(&self, seen: &Seen, name: &str, why: Option<&str>) -> anyhow::Result<()> {
        let batches: Api<NodeBatch> = Api::all(self.client.clone());
        match step(Step::EditBatch, batches.delete(name, &DeleteParams::default())).await {
            Ok(_) => {
                info!(batch = name, why, "batch given up");
                if let Some((why, gang)) = why.zip(seen.object.as_deref()) {
                    let event = GangEvent { reason: "NodesGivenUp", message: why.to_owned(), warning: true };
                    self.events.publish(gang, &event).await;
                }
                Ok(())
            }
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
            Err(error) => Err(anyhow::Error::new(error).context(format!("delete NodeBatch {name}"))),
        }
    }

    async fn ungate(&self, seen: &Seen, uid: &PodUid) -> anyhow::Result<()> {
        let Some(pod) = seen.gated.get(uid) else { return Ok(()) };
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), &pod.key.namespace);
        let mut object = pods.get(&pod.key.name).await?;
        anyhow::ensure!(object.uid().as_deref() == Some(uid.as_str()), "pod {} was made again", pod.key);
        let gates = object.spec.as_mut().and_then(|spec| spec.scheduling_gates.take()).unwrap_or_default();
        let left: Vec<_> = gates.into_iter().filter(|gate| gate.name != keys::GATE).collect();
        let ungated = json!({
            "metadata": {"resourceVersion": object.resource_version()},
            "spec": {"schedulingGates": left},
        });
        patch(Step::UngatePod, &self.client, &pod.key, &Patch::Merge(&ungated)).await?;
        warn!(pod = %pod.key, "carries our gate but belongs to no gang: ungated");
        Ok(())
    }

    /// Evicts members side by side, and whoever leads when all others are on their way: a collective with a hole only costs.
    async fn evict_members(&self, seen: &Seen, mut evictions: Vec<Evict>, tenure: &Tenure) -> Vec<Effect> {
        let last = evictions.pop();
        let evict = async |evict: Evict| {
            let call = async || {
                if !tenure.lasts() {
                    return None;
                }
                let error = self.evict_member(seen, &evict).await.err()?;
                warn!(error = %crate::telemetry::chain(&error), "a member was not evicted, tried again");
                Some(Effect::Unevicted(evict.pod.uid.clone()))
            };
            self.evictions.call(&whose(&evict.pod), call).await
        };
        let others = stream::iter(evictions).map(&evict).buffered(self.options.parallel.max(1));
        let mut effects: Vec<Effect> = others.filter_map(async |effect| effect).collect().await;
        if let Some(last) = last {
            effects.extend(evict(last).await);
        }
        effects
    }

    /// Whether a PodDisruptionBudget has refused an eviction of this epoch of a gang.
    fn budget_refuses(&self, gang: &Gang) -> bool {
        self.reported().get(&gang.key) == Some(&gang.epoch)
    }

    /// Ends a member so that its owner does not count a failure: by eviction, which marks it, or marked by us and deleted.
    ///
    /// A PodDisruptionBudget that forbids the eviction protects what is lost already: the gang cannot run with one
    /// member less, so its pods are deleted all the same.
    /// Where EC2 has given notice, the pod has ended before its machine does: its grace is cut to what is left.
    /// A member that is pinned and has no node is deleted only as long as it has none: the API server is asked, and the mark names the version that was
    /// looked at.
    async fn evict_member(&self, seen: &Seen, evict: &Evict) -> anyhow::Result<()> {
        let pod = &evict.pod;
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), &pod.key.namespace);
        let allowed = notice::grace_of(&pods, &self.clock, seen.batches.values(), pod).await?;
        let at_once = evict.at_once || allowed == Grace::None;
        let seconds = match allowed {
            Grace::Own | Grace::None => None,
            Grace::Cut(seconds) => Some(notice::real_seconds(&self.clock, seconds)),
        };
        let preconditions = Preconditions { uid: Some(pod.uid.to_string()), resource_version: None };
        let gone = |error: &kube::Error| matches!(error, kube::Error::Api(answer) if matches!(answer.code, 404 | 409));
        let mut unbound = None;
        if pod.node.is_none() && pod.pinned.is_some() {
            let newest = pods.get_opt(&pod.key.name).await.with_context(|| format!("read pod {}", pod.key))?;
            let still = newest
                .filter(|newest| newest.uid().as_deref() == Some(pod.uid.as_str()) && assigned_node(newest).is_none());
            let Some(still) = still else { return Ok(()) };
            unbound = still.resource_version();
        }
        // What a budget refused for one member it refuses for the next, and each answer takes a second.
        if !at_once && !pod.deleting && !seen.gang.as_deref().is_some_and(|gang| self.budget_refuses(gang)) {
            let options = DeleteParams {
                preconditions: Some(preconditions.clone()),
                grace_period_seconds: seconds,
                ..DeleteParams::default()
            };
            // A collective with a hole does not wait for a budget.
            match post_eviction(&pods, &pod.key.name, &options).await {
                Ok(Ok(_)) => {
                    info!(pod = %pod.key, why = evict.why, "member evicted");
                    return Ok(());
                }
                Ok(Err(error)) if gone(&error) => return Ok(()),
                // A budget answers 429, two of them 500, and an admission webhook what it likes.
                Err(_) | Ok(Err(kube::Error::Api(_))) => self.budget_is_reported(seen, pod).await,
                Ok(Err(error)) => return Err(anyhow::Error::new(error).context(format!("evict pod {}", pod.key))),
            }
        }
        let mut condition = json!({
            "metadata": {"uid": pod.uid.as_str()},
            "status": {"conditions": [{
                "type": "DisruptionTarget",
                "status": "True",
                "reason": "GangStopped",
                "message": evict.why,
                "lastTransitionTime": now_real().to_string(),
            }]},
        });
        if at_once {
            // No kubelet is left to report the end, and a Job waits for it before it makes another pod.
            condition["status"]["phase"] = json!("Failed");
        }
        if let Some(version) = &unbound {
            condition["metadata"]["resourceVersion"] = json!(version);
        }
        let params = PatchParams::default();
        match step(Step::MarkPod, pods.patch_status(&pod.key.name, &params, &Patch::Strategic(&condition))).await {
            Ok(_) => {}
            // Somebody else wrote the pod, such as kube-scheduler its condition: looked at again.
            Err(error) if gone(&error) && (unbound.is_none() || is_missing(&error)) => return Ok(()),
            Err(error) => return Err(anyhow::Error::new(error).context(format!("mark pod {}", pod.key))),
        }
        let mut params = DeleteParams {
            preconditions: Some(preconditions),
            grace_period_seconds: seconds,
            ..DeleteParams::default()
        };
        if at_once {
            params.grace_period_seconds = Some(0);
        }
        match step(Step::EvictPod, pods.delete(&pod.key.name, &params)).await {
            Ok(_) => {
                info!(pod = %pod.key, why = evict.why, "member evicted");
                Ok(())
            }
            Err(error) if gone(&error) => Ok(()),
            Err(error) => Err(anyhow::Error::new(error).context(format!("delete pod {}", pod.key))),
        }
    }

    /// Says once per epoch that a PodDisruptionBudget does not keep a gang from being evicted.
    async fn budget_is_reported(&self, seen: &Seen, pod: &muster_core::model::gang::Pod) {
        let Some(gang) = &seen.gang else { return };
        if self.reported().insert(gang.key.clone(), gang.epoch) == Some(gang.epoch) {
            return;
        }
        if let Some(object) = &seen.object {
            let message = format!(
                "the eviction of {} is not granted, most likely by a PodDisruptionBudget: the gang cannot run with a member \
                 less, so its members are marked with DisruptionTarget and deleted",
                pod.key.name
            );
            self.events.publish(&**object, &GangEvent { reason: "EvictionForbidden", message, warning: true }).await;
        }
    }

    /// The condition `muster.dev/Gang` of one member: `PodScheduled` says nothing true between the release and the bind.
    pub(super) async fn report(&self, report: &MemberReport) -> anyhow::Result<()> {
        let condition = json!({
            "metadata": {"uid": report.pod.uid.as_str()},
            "status": {"conditions": [of_member(report.reason, &report.message)]},
        });
        // Conditions are merged by type.
        let condition = Patch::Strategic(&condition);
        patch(Step::ReportPod, &self.client, &report.pod.key, &condition)
            .await
            .map_err(|error| anyhow::Error::new(error).context("report"))?;
        Ok(())
    }

    /// Brings a pod of no gang back to kube-scheduler's attention: an update of a pod requeues it.
    pub(super) async fn requeue(&self, pod: &muster_core::model::gang::Pod) -> anyhow::Result<()> {
        let requeue = json!({
            "metadata": {
                "uid": pod.uid.as_str(),
                "annotations": {keys::REQUEUE: now_real().as_microsecond().to_string()},
            },
        });
        let patched = patch(Step::ReleasePod, &self.client, &pod.key, &Patch::Merge(&requeue)).await;
        patched.map(drop).map_err(|error| anyhow::Error::new(error).context("requeue"))
    }

    /// Takes the nomination of a member back.
    pub(super) async fn clear_nomination(&self, pod: &muster_core::model::gang::Pod) -> anyhow::Result<()> {
        let cleared = json!({"metadata": {"uid": pod.uid.as_str()}, "status": {"nominatedNodeName": null}});
        let patched = patch(Step::NominatePod, &self.client, &pod.key, &Patch::Merge(&cleared)).await;
        patched.map(drop).map_err(|error| anyhow::Error::new(error).context("clear nomination"))
    }
}

fn is_missing(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(answer) if answer.code == 404)
}

/// Whose calls wait for each other: those of one gang, and those of the pods of no gang in one namespace.
pub(super) fn whose(pod: &muster_core::model::gang::Pod) -> ObjectKey {
    pod.membership.gang().cloned().unwrap_or_else(|| ObjectKey::new(Arc::clone(&pod.key.namespace), ""))
}

fn conditions(status: &mut muster_api::crd::GangStatus, write: &StatusWrite, generation: Option<i64>) {
    let now = now_real();
    let mut set = |kind: &str, is: bool, reason: &str, message: &str| {
        set_condition(&mut status.conditions, kind, is, if reason.is_empty() { kind } else { reason }, message, now);
    };
    // That of the nodes follows from the phase too.
    for kind in NoteKind::ALL.into_iter().filter(|kind| *kind != NoteKind::NodesReady) {
        let (event, bad_if_true) = kind.event();
        match write.next.notes.get(&kind) {
            Some(note) => {
                let reason = if note.holds == bad_if_true { event } else { kind.as_str() };
                set(kind.as_str(), note.holds, reason, &note.message);
            }
            None if write.gang.notes.contains_key(&kind) => set(kind.as_str(), !bad_if_true, "Settled", ""),
            None => {}
        }
    }
    for shown in shown(&write.next) {
        set(shown.kind, shown.holds, &shown.reason, &shown.message);
    }
    for condition in &mut status.conditions {
        condition.observed_generation = generation;
    }
}

/// The outermost known owner of a gang: what people made, and look at.
fn owner(gang: &GangObject) -> Option<ObjectReference> {
    let owner = gang.owner_references().first()?;
    Some(ObjectReference {
        api_version: Some(owner.api_version.clone()),
        kind: Some(owner.kind.clone()),
        name: Some(owner.name.clone()),
        namespace: gang.namespace(),
        uid: Some(owner.uid.clone()),
        ..ObjectReference::default()
    })
}

/// Where the nodes of a gang came from: `existing`, or the capacity type of its NodeBatch.
fn source(seen: &Seen, batch: Option<&str>) -> &'static str {
    let batch = batch.and_then(|name| seen.batches.values().find(|seen| seen.batch().name == name));
    batch.and_then(|seen| seen.batch().status.capacity_type).map_or("existing", CapacityType::as_str)
}

/// The label by which a person finds the Gang of a name: the name as pods or owner write it, where it can be a label.
fn label(recognised: &Recognised) -> Option<String> {
    let fits = |name: &str| {
        let alphanumeric = |c: Option<char>| c.is_some_and(|c| c.is_ascii_alphanumeric());
        name.len() <= 63
            && alphanumeric(name.chars().next())
            && alphanumeric(name.chars().next_back())
            && name.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c))
    };
    [&*recognised.source.identity, &*recognised.key.name].into_iter().find(|name| fits(name)).map(str::to_owned)
}
