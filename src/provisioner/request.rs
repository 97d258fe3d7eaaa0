//! ProvisioningRequests of class `atomic.muster.dev`: the standard inbound door, answered with a booked NodeBatch.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::PodTemplate;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::{Api, Client, ResourceExt};
use muster_api::crd::{
    BatchOffer, Fill, GangRef, NodeBatch, NodeBatchSpec, ProvisioningRequest, ProvisioningRequestStatus, condition,
    is_true, set_condition,
};
use muster_api::{batch_state, convert, keys};
use muster_core::batch::reserves;
use muster_core::gang::{Purchase, Purchases, batch_name, for_booking};
use muster_core::model::booking::{self, Answer, BatchSeen, Parameters};
use muster_core::model::names::ObjectKey;
use muster_core::model::pod::Toleration;
use muster_core::planner::plan::{GangRequest, Role, RolePlace, TopologyRequests};
use serde_json::json;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use super::Context;
use super::pool::ledger;
use crate::clock::now_real;
use crate::cluster::State;
use crate::step::{Step, step};

const ACCEPTED: &str = "Accepted";
const PROVISIONED: &str = "Provisioned";
const FAILED: &str = "Failed";
const EXPIRED: &str = "BookingExpired";
const REVOKED: &str = "CapacityRevoked";
/// Of ours: pods of the request have run on its nodes, so their end is not a loss.
const USED: &str = "InUse";
/// Reason of what trying again cannot mend.
const BAD_REQUEST: &str = "BadRequest";
/// Detail of ours: how many batches were provisioned for the request.
const ROUND: &str = "Round";
/// Detail of ours: the batch that is about to be made.
const NEXT: &str = "NextRound";

/// A request that could not be answered is tried again after this, in real time, then after twice that, and so on, or once it has
/// changed. Nodes may be ready for it, and booked for some minutes only.
const FIRST: Duration = Duration::from_secs(1);
/// The longest such pause, which is longer than a call may take: requests whose calls hang leave time to the others.
const LONGEST: Duration = Duration::from_secs(30);

/// Requests that could not be answered.
#[derive(Debug, Default)]
pub(super) struct Unanswered(BTreeMap<ObjectKey, Failed>);

/// The last try of a request.
#[derive(Debug)]
struct Failed {
    version: Option<String>,
    pause: Duration,
    until: Instant,
}

impl Unanswered {
    /// Forgets requests that are gone or have changed; `version` is that of one that is there.
    fn retain<'a>(&mut self, version: impl Fn(&ObjectKey) -> Option<Option<&'a str>>) {
        self.0.retain(|key, failed| version(key).is_some_and(|version| version == failed.version.as_deref()));
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether a request is not tried yet.
    fn waits(&self, key: &ObjectKey, now: Instant) -> bool {
        self.0.get(key).is_some_and(|failed| now < failed.until)
    }

    /// A try from `began` to `now` went wrong.
    fn failed(&mut self, key: &ObjectKey, version: Option<String>, began: Instant, now: Instant) {
        let before = self.0.get(key).map(|failed| failed.pause * 2);
        let took = now.duration_since(began);
        let pause = before.unwrap_or(FIRST).max(took * 2).min(LONGEST);
        self.0.insert(key.clone(), Failed { version, pause, until: now + pause });
    }

    fn answered(&mut self, key: &ObjectKey) {
        self.0.remove(key);
    }
}

/// Looks at every request of our class. What goes wrong with one holds up no other.
pub(super) async fn reconcile(context: &Context, state: &State, unanswered: &mut Unanswered, term: &CancellationToken) {
    unanswered.retain(|key| state.requests.get(key).map(|request| request.metadata.resource_version.as_deref()));
    for (key, request) in state.requests.iter() {
        if term.is_cancelled() {
            return;
        }
        let began = Instant::now();
        if request.metadata.deletion_timestamp.is_some() || unanswered.waits(key, began) {
            continue;
        }
        match answer(context, state, key, request).await {
            Ok(()) => unanswered.answered(key),
            Err(error) => {
                warn!(request = %key, error = %crate::telemetry::chain(&error), "a ProvisioningRequest is not answered, tried again");
                unanswered.failed(key, request.metadata.resource_version.clone(), began, Instant::now());
            }
        }
    }
}

async fn answer(
    context: &Context,
    state: &State,
    key: &ObjectKey,
    request: &Arc<ProvisioningRequest>,
) -> anyhow::Result<()> {
    let mut status = request.status.clone().unwrap_or_default();
    let now = now_real();
    let parameters = match parameters(request) {
        Ok(parameters) => parameters,
        Err(message) => {
            set_condition(&mut status.conditions, ACCEPTED, false, BAD_REQUEST, &message, now);
            set_condition(&mut status.conditions, FAILED, true, BAD_REQUEST, &message, now);
            return write(context, request, status).await;
        }
    };
    let uid = request.metadata.uid.as_deref().unwrap_or_default();
    let closed = is_closed(&status);
    let (round, batch) = current(context, state, uid, rounds(&status), closed).await?;
    if round > rounds(&status) {
        status.provisioning_class_details.insert(ROUND.to_owned(), round.to_string());
    }
    let batch = batch.as_ref();
    let seen = booking::Request {
        created: request.metadata.creation_timestamp.as_ref().map_or(now, |time| time.0),
        parameters,
        closed,
        failed: is_true(&status.conditions, FAILED),
        round,
        provisioned: since(&status.conditions, PROVISIONED),
        used: is_true(&status.conditions, USED) || batch.is_some_and(|batch| was_used(batch)),
        batch: batch.map(|batch| seen(batch)),
    };
    match booking::answer(&seen, now) {
        Answer::Nothing => {}
        Answer::Terminate => {
            if let Some(batch) = batch {
                terminate(&context.client, &batch.name_any()).await?;
            }
            return Ok(());
        }
        Answer::Book { round, revoke } => match plan(context, state, key, request, revoke).await? {
            Ok(spec) => {
                let name = batch_name(uid, round);
                status.provisioning_class_details.insert(NEXT.to_owned(), round.to_string());
                let Some(announced) = announce(context, key, request, &status).await? else { return Ok(()) };
                book(context, key, &name, spec).await?;
                status.provisioning_class_details.insert(ROUND.to_owned(), round.to_string());
                set_condition(
                    &mut status.conditions,
                    ACCEPTED,
                    true,
                    "Accepted",
                    "a NodeBatch is being provisioned",
                    now,
                );
                if !revoke {
                    set_condition(&mut status.conditions, PROVISIONED, false, "Pending", "", now);
                }
                return write(context, &announced, status).await;
            }
            // Nothing is known of any pool, as for a moment after each start: that is no answer.
            Err((_, message)) if revoke && context.pools.load().is_empty() => anyhow::bail!(message),
            Err((reason, message)) if revoke => {
                let message = format!("the booked nodes were lost, and nothing replaces them: {message}");
                set_condition(&mut status.conditions, REVOKED, true, reason, &message, now);
            }
            Err((reason, message)) => {
                set_condition(&mut status.conditions, ACCEPTED, false, reason, &message, now);
                if reason == BAD_REQUEST {
                    set_condition(&mut status.conditions, FAILED, true, reason, &message, now);
                }
            }
        },
        Answer::Pending { message } => {
            set_condition(&mut status.conditions, ACCEPTED, true, "Accepted", "a NodeBatch is being provisioned", now);
            set_condition(&mut status.conditions, PROVISIONED, false, "Pending", &message, now);
        }
        Answer::Provisioned { used } => {
            if let Some(batch) = batch {
                details(&mut status, request, batch);
            }
            let message = "all nodes are ready, with their devices";
            set_condition(&mut status.conditions, ACCEPTED, true, "Accepted", "a NodeBatch was provisioned", now);
            set_condition(&mut status.conditions, PROVISIONED, true, "CapacityIsProvisioned", message, now);
            if used {
                set_condition(&mut status.conditions, USED, true, USED, "pods of the request run on the nodes", now);
            }
        }
        Answer::Expired { message } => {
            set_condition(&mut status.conditions, EXPIRED, true, EXPIRED, message, now);
        }
        Answer::Failed { message } => {
            set_condition(&mut status.conditions, FAILED, true, "CapacityIsNotFound", &message, now);
            return fail(&context.client, request, &status, batch.map(|batch| batch.name_any())).await;
        }
    }
    write(context, request, status).await
}

/// The round of a request and its batch, if that is there.
///
/// The watch may be behind our own creation: only what the API server does not have is gone. A batch may have been made whose
/// round was not written down: then that is the one.
async fn current(
    context: &Context,
    state: &State,
    uid: &str,
    written: u32,
    closed: bool,
) -> anyhow::Result<(u32, Option<Arc<NodeBatch>>)> {
    let batches: Api<NodeBatch> = Api::all(context.client.clone());
    let rounds = if written == 0 { vec![1] } else { vec![written, written.saturating_add(1)] };
    for round in &rounds {
        let seen = state.batches.get(&batch_name(uid, *round)).map(|seen| Arc::clone(seen.object()));
        if seen.is_some() {
            return Ok((*round, seen));
        }
    }
    for round in rounds.into_iter().filter(|_| written > 0 && !closed) {
        if let Some(found) = batches.get_opt(&batch_name(uid, round)).await? {
            return Ok((round, Some(Arc::new(found))));
        }
    }
    Ok((written, None))
}

/// Writes down that a batch is about to be made, on the request as the API server has it: what was decided on an older one is decided
/// again, and for a request that cannot be written nothing is launched. `None`: somebody else wrote.
async fn announce(
    context: &Context,
    key: &ObjectKey,
    request: &ProvisioningRequest,
    status: &ProvisioningRequestStatus,
) -> anyhow::Result<Option<ProvisioningRequest>> {
    if request.status.as_ref() == Some(status) {
        // Announced by a look that came no further.
        let newest = get(context, &key.namespace, &key.name).await?;
        return Ok(newest.filter(|newest| newest.metadata.resource_version == request.metadata.resource_version));
    }
    patch(&context.client, request, status).await
}

/// Topology requests a request may carry, under the keys that pods carry them.
const TOPOLOGY_REQUESTS: [&str; 3] = [keys::TOPOLOGY_REQUIRED, keys::TOPOLOGY_PREFERRED, keys::PLACEMENT_GROUP];

fn parameters(request: &ProvisioningRequest) -> Result<Parameters, String> {
    let prefix = format!("{}/", keys::GROUP);
    let parameters = booking::parameters(&request.spec.parameters, &prefix, &TOPOLOGY_REQUESTS)?;
    match request.spec.parameters.get(keys::PLACEMENT_GROUP).map(String::as_str) {
        None | Some("required" | "preferred" | "none") => Ok(parameters),
        Some(other) => Err(format!(
            "spec.parameters: {}: \"{other}\" is not one of required, preferred, none",
            keys::PLACEMENT_GROUP
        )),
    }
}

/// Rounds provisioned so far, as written down with each.
fn rounds(status: &ProvisioningRequestStatus) -> u32 {
    status.provisioning_class_details.get(ROUND).and_then(|round| round.parse().ok()).unwrap_or(0)
}

/// Since when a condition is true.
fn since(conditions: &[Condition], kind: &str) -> Option<Timestamp> {
    let found = condition(conditions, kind).filter(|one| one.status == "True")?;
    Some(found.last_transition_time.0)
}

fn was_used(batch: &NodeBatch) -> bool {
    batch.status.as_ref().is_some_and(|status| status.used)
}

/// Writes down on its request that pods have run on the nodes of a booked batch, unless that is there already or the request is gone. Whoever
/// removes the batch does so first: without it the end of the batch is a loss, and as many nodes are provisioned for nobody.
///
/// Errors: the API server cannot be reached, or refuses; a request that changed meanwhile.
pub(super) async fn note_use(context: &Context, batch: &NodeBatch) -> anyhow::Result<()> {
    let Some(owner) = batch.spec.provisioning_request_ref.as_ref().filter(|_| was_used(batch)) else { return Ok(()) };
    let Some(request) = get(context, &owner.namespace, &owner.name).await? else { return Ok(()) };
    let mut status = request.status.clone().unwrap_or_default();
    if request.metadata.uid.as_deref() != Some(&*owner.uid) || is_closed(&status) || is_true(&status.conditions, USED) {
        return Ok(());
    }
    set_condition(&mut status.conditions, USED, true, USED, "pods of the request ran on the nodes", now_real());
    let written = patch(&context.client, &request, &status).await?;
    // It may be gone too: that shows when it is read again.
    written.map(drop).context("somebody else wrote it")
}

/// Whether nothing follows on a request any more.
fn is_closed(status: &ProvisioningRequestStatus) -> bool {
    [FAILED, EXPIRED, REVOKED].iter().any(|kind| is_true(&status.conditions, kind))
}

fn seen(batch: &NodeBatch) -> BatchSeen {
    BatchSeen::of(&batch_state::read(batch))
}

async fn book(context: &Context, key: &ObjectKey, name: &str, spec: NodeBatchSpec) -> anyhow::Result<()> {
    let batches: Api<NodeBatch> = Api::all(context.client.clone());
    let mut batch = NodeBatch::new(name, spec);
    batch.metadata.finalizers = Some(vec![keys::TERMINATION.to_owned()]);
    match step(Step::CreateBatch, batches.create(&PostParams::default(), &batch)).await {
        Ok(_) => {
            info!(request = %key, batch = name, "booking");
            Ok(())
        }
        // Made by an earlier look whose status write was lost.
        Err(kube::Error::Api(answer)) if answer.code == 409 => Ok(()),
        Err(error) => Err(error.into()),
    }
}

async fn terminate(client: &Client, name: &str) -> anyhow::Result<()> {
    let batches: Api<NodeBatch> = Api::all(client.clone());
    match step(Step::EditBatch, batches.delete(name, &DeleteParams::default())).await {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(answer)) if answer.code == 404 => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// What the class tells about the booked nodes.
fn details(status: &mut ProvisioningRequestStatus, request: &ProvisioningRequest, batch: &NodeBatch) {
    let of_batch = batch.status.clone().unwrap_or_default();
    let details = [
        ("BookingUID", request.metadata.uid.clone()),
        ("NodeBatch", Some(batch.name_any())),
        ("NodePool", of_batch.node_pool),
        ("InstanceType", of_batch.instance_type),
        ("Zone", of_batch.zone),
        ("PlacementGroup", of_batch.placement_group),
        ("CapacityType", of_batch.capacity_type),
        ("PricePerHour", of_batch.price_per_hour),
    ];
    for (key, value) in details {
        match value {
            Some(value) => status.provisioning_class_details.insert(key.to_owned(), value),
            // What was true of a batch before this one is no longer.
            None => status.provisioning_class_details.remove(key),
        };
    }
}

type Refused = (&'static str, String);

/// The batch that would hold the whole request, or why none does. `again`: nodes were provisioned and lost, and whoever asked
/// trusts in them: a pool that is blocked is no answer then.
async fn plan(
    context: &Context,
    state: &State,
    key: &ObjectKey,
    request: &ProvisioningRequest,
    again: bool,
) -> anyhow::Result<Result<NodeBatchSpec, Refused>> {
    let [set] = request.spec.pod_sets.as_slice() else {
        let message = format!("spec.podSets: {} sets; exactly one is supported", request.spec.pod_sets.len());
        return Ok(Err((BAD_REQUEST, message)));
    };
    let Ok(count) = usize::try_from(set.count) else {
        return Ok(Err((BAD_REQUEST, format!("spec.podSets[0].count: {} is negative", set.count))));
    };
    if count == 0 || count > muster_core::model::ranks::MAX_PLACES {
        let message = format!("spec.podSets[0].count: {count} is not 1 to {}", muster_core::model::ranks::MAX_PLACES);
        return Ok(Err((BAD_REQUEST, message)));
    }
    let templates: Api<PodTemplate> = Api::namespaced(context.client.clone(), &key.namespace);
    let template = set.pod_template_ref.name.as_str();
    let Some(template) = templates.get_opt(template).await? else {
        let message =
            format!("spec.podSets[0].podTemplateRef: PodTemplate {template} does not exist in {}", key.namespace);
        return Ok(Err(("PodTemplateNotFound", message)));
    };
    let shape = match convert::shape_of_template(&key.namespace, &template.template.unwrap_or_default()) {
        Ok(shape) => shape,
        Err(error) => return Ok(Err((BAD_REQUEST, format!("PodTemplate: {error}")))),
    };
    let uid = request.metadata.uid.clone().unwrap_or_default();
    let mut shape = shape;
    shape.tolerations.push(Toleration {
        key: keys::GANG_PENDING.into(),
        exists: false,
        value: uid.as_str().into(),
        effect: None,
    });
    let wanted = GangRequest {
        key: key.clone(),
        roles: vec![Role {
            name: "".into(),
            shape,
            min: u32::try_from(count).unwrap_or(u32::MAX),
            places: vec![RolePlace::default(); count],
        }],
        topology_requests: TopologyRequests::default(),
    };
    let mut pools = context.pools.load().to_vec();
    pools.retain(|pool| !(again && pool.blocked));
    let Purchases { whole, unsold, mixed: _ } = for_booking(&wanted, &pools);
    let Some(Purchase { offers: possible, zones, beside: _ }) = whole else {
        let unsold: Vec<String> = unsold.iter().map(ToString::to_string).collect();
        let why = if pools.is_empty() { "no NodePool is ready".to_owned() } else { unsold.join("; ") };
        return Ok(Err(("CapacityIsNotFound", format!("no NodePool can hold the request: {why}"))));
    };
    let mut node_pools: Vec<String> = Vec::new();
    for offer in &possible {
        if !node_pools.iter().any(|pool| **pool == *offer.pool) {
            node_pools.push(offer.pool.to_string());
        }
    }
    let takes = |pool: &str, instance_type: &str| {
        ledger::per_node(context, state, pool, instance_type).map(|each| each.amounts.resources)
    };
    let asked = possible.iter().map(|offer| (&*offer.pool, &*offer.instance_type, offer.count));
    let reserved = reserves(asked, takes);
    Ok(Ok(NodeBatchSpec {
        node_pools,
        count: possible.first().map_or(0, |offer| offer.count),
        fill: Fill::Atomic,
        gang_ref: None,
        provisioning_request_ref: Some(GangRef {
            namespace: key.namespace.to_string(),
            name: key.name.to_string(),
            uid,
        }),
        offers: possible
            .into_iter()
            .map(|offer| BatchOffer {
                node_pool: offer.pool.to_string(),
                instance_type: offer.instance_type.to_string(),
                count: offer.count,
            })
            .collect(),
        placement_group: request.spec.parameters.get(keys::PLACEMENT_GROUP).cloned(),
        zones: zones.iter().map(ToString::to_string).collect(),
        capacity_type: None,
        fillings: Vec::new(),
        reserves: batch_state::write_reserves(&reserved),
    }))
}

fn requests(client: &Client, namespace: &str) -> Api<ProvisioningRequest> {
    Api::namespaced(client.clone(), namespace)
}

/// A request as it is now; `None` if it is gone, or gone with the definition of its kind, of which the API server knows no path then.
///
/// Errors: the API server's.
pub(super) async fn get(
    context: &Context,
    namespace: &str,
    name: &str,
) -> Result<Option<ProvisioningRequest>, kube::Error> {
    match requests(&context.client, namespace).get(name).await {
        Ok(request) => Ok(Some(request)),
        Err(kube::Error::Api(answer)) if answer.code == 404 => Ok(None),
        Err(error) => Err(error),
    }
}

/// Writes the status of a request as it was read. `None`: somebody else wrote, or it is gone; the next look decides again.
async fn patch(
    client: &Client,
    request: &ProvisioningRequest,
    status: &ProvisioningRequestStatus,
) -> anyhow::Result<Option<ProvisioningRequest>> {
    let api = requests(client, request.metadata.namespace.as_deref().unwrap_or_default());
    let patch = json!({"metadata": {"resourceVersion": request.metadata.resource_version}, "status": status});
    let (name, params, patch) = (request.name_any(), PatchParams::default(), Patch::Merge(&patch));
    match step(Step::WriteStatus, api.patch_status(&name, &params, &patch)).await {
        Ok(written) => Ok(Some(written)),
        Err(kube::Error::Api(answer)) if answer.code == 409 || answer.code == 404 => Ok(None),
        Err(error) => Err(error.into()),
    }
}

async fn write(
    context: &Context,
    request: &ProvisioningRequest,
    status: ProvisioningRequestStatus,
) -> anyhow::Result<()> {
    written(&context.client, request, &status).await.map(drop)
}

/// Whether the request says so now. Not if somebody else wrote, or it is gone: the next look decides again.
async fn written(
    client: &Client,
    request: &ProvisioningRequest,
    status: &ProvisioningRequestStatus,
) -> anyhow::Result<bool> {
    Ok(request.status.as_ref() == Some(status) || patch(client, request, status).await?.is_some())
}

/// Writes down that a request has failed, and then has its NodeBatch go: one that is deleted under a request that is still tried would be
/// provisioned again. Where somebody else wrote, as that its nodes are there, it keeps them; the next look decides again.
async fn fail(
    client: &Client,
    request: &ProvisioningRequest,
    status: &ProvisioningRequestStatus,
    batch: Option<String>,
) -> anyhow::Result<()> {
    if written(client, request, status).await?
        && let Some(batch) = batch
    {
        terminate(client, &batch).await?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::sync::Mutex;

    use axum::body::Body;
    use http::{Request, Response};

    use super::*;

    /// A request that fails, at an API server that answers its patch with this code; what was sent there. `before`: its status says so
    /// already.
    async fn fails(code: u16, before: bool) -> Vec<String> {
        let mut failed = ProvisioningRequestStatus::default();
        set_condition(&mut failed.conditions, FAILED, true, "CapacityIsNotFound", "no capacity", Timestamp::UNIX_EPOCH);
        let request: ProvisioningRequest = serde_json::from_value(json!({
            "apiVersion": "autoscaling.x-k8s.io/v1", "kind": "ProvisioningRequest",
            "metadata": {"name": "book", "namespace": "ml", "uid": "u", "resourceVersion": "7"},
            "spec": {"provisioningClassName": "atomic.muster.dev", "podSets": []},
            "status": if before { json!(failed) } else { json!({}) },
        }))
        .unwrap();
        let sent = Arc::new(Mutex::new(Vec::new()));
        let (seen, answer) = (Arc::clone(&sent), request.clone());
        let service = tower::service_fn(move |asked: Request<kube::client::Body>| {
            seen.lock().unwrap().push(format!("{} {}", asked.method(), asked.uri().path()));
            let (code, body) = match asked.method().as_str() {
                "PATCH" if code == 200 => (200, json!(answer)),
                "PATCH" => (code, json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code})),
                _ => (200, json!({"kind": "Status", "apiVersion": "v1", "status": "Success"})),
            };
            let answer = Response::builder().status(code).body(Body::from(body.to_string()));
            async move { Ok::<_, Infallible>(answer.unwrap()) }
        });
        fail(&Client::new(service, "ml"), &request, &failed, Some("batch-1".to_owned())).await.unwrap();
        let sent = sent.lock().unwrap();
        sent.clone()
    }

    #[tokio::test]
    async fn the_nodes_of_a_request_that_fails_go_once_that_is_written_and_not_where_somebody_else_wrote() {
        let patch = "PATCH /apis/autoscaling.x-k8s.io/v1/namespaces/ml/provisioningrequests/book/status";
        let delete = "DELETE /apis/muster.dev/v1alpha1/nodebatches/batch-1";
        assert_eq!(fails(200, false).await, [patch, delete]);
        assert_eq!(fails(200, true).await, [delete], "it says so already");
        // Somebody wrote meanwhile, perhaps that its nodes are there; or it is gone.
        assert_eq!(fails(409, false).await, [patch]);
        assert_eq!(fails(404, false).await, [patch]);
    }

    #[test]
    fn a_request_that_cannot_be_answered_is_tried_again_soon_and_ever_more_rarely_until_it_changes() {
        let (mut unanswered, key) = (Unanswered::default(), ObjectKey::new("ml", "book"));
        let version = || Some("1".to_owned());
        let mut now = Instant::now();
        let mut pauses = Vec::new();
        for _ in 0..7 {
            assert!(!unanswered.waits(&key, now));
            unanswered.failed(&key, version(), now, now);
            let pause = unanswered.0[&key].pause;
            assert!(unanswered.waits(&key, now + pause.checked_sub(Duration::from_millis(1)).unwrap()));
            pauses.push(pause.as_secs());
            now += pause;
            unanswered.retain(|_| Some(Some("1")));
        }
        assert_eq!(pauses, [1, 2, 4, 8, 16, 30, 30]);

        unanswered.retain(|_| Some(Some("2")));
        assert!(!unanswered.waits(&key, now.checked_sub(Duration::from_secs(1)).unwrap()), "it has changed");
        unanswered.failed(&key, version(), now, now);
        unanswered.answered(&key);
        assert!(!unanswered.waits(&key, now), "it was answered");
        unanswered.failed(&key, version(), now, now);
        unanswered.retain(|_| None);
        assert!(unanswered.0.is_empty(), "it is gone");
    }

    #[test]
    fn a_request_whose_call_hangs_leaves_twice_that_time_to_the_others() {
        let (mut unanswered, key) = (Unanswered::default(), ObjectKey::new("ml", "book"));
        let began = Instant::now();
        let now = began + Duration::from_secs(10);
        unanswered.failed(&key, None, began, now);
        assert!(unanswered.waits(&key, now + Duration::from_secs(19)));
        assert!(!unanswered.waits(&key, now + Duration::from_secs(20)));
    }
}
