//! HTTP handlers of the four verbs. They always answer 200: kube-scheduler does not read the body of anything else.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use axum::body::Body;
use axum::extract::{DefaultBodyLimit, State as Shared};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use axum::{Json, Router};
use muster_api::{conventions, pod_state};
use muster_core::extender::{self, Filtered, Rejection, Victims};
use muster_core::model::gang::Pod as CorePod;
use muster_core::model::names::PodUid;
use serde::Deserialize;
use tracing::{debug, warn};

use super::admission::{Admitted, Shed};
use super::bind;
use super::shared::{Extender, UNREADY, View, stale};
use super::wire::{
    ExtenderArgs, ExtenderBindingArgs, ExtenderBindingResult, ExtenderFilterResult, ExtenderPreemptionArgs,
    ExtenderPreemptionResult, HostPriority, MetaPod, MetaVictims, Rejected, WholePod, WirePod, safe,
};
use crate::clock::now_real;
use crate::cluster::State;
use crate::telemetry::{Answered, Verb};

/// Routes of the three stanzas: A `/v1/sync`, B `/v1/bind`, C `/v1/all`.
pub fn router(extender: Arc<Extender>) -> Router {
    let sync = Router::new()
        .route("/filter", post(filter))
        .route("/prioritize", post(prioritize))
        .route("/preempt", post(preempt));
    let bind = Router::new().route("/bind", post(bind_pod));
    Router::new()
        .nest("/v1/sync", sync.clone())
        .nest("/v1/bind", bind.clone())
        .nest("/v1/all", sync.merge(bind))
        // The limit is ours: its answer is one that kube-scheduler reads.
        .layer(DefaultBodyLimit::disable())
        .with_state(extender)
}

async fn filter(Shared(extender): Shared<Arc<Extender>>, body: Body) -> Response {
    let started = Instant::now();
    let admitted = extender.admission.enter(body).await;
    let view = extender.view();
    let answer = parse::<ExtenderArgs<'_>>("filter", &admitted)
        .and_then(|(args, body)| answer_filter(&extender, &view, &args, body));
    extender.metrics.observe(Verb::Filter, started.elapsed(), answered(&admitted, answer.is_ok()));
    match answer {
        Ok(answer) => {
            if let Some(pause) = answer.waits.then(|| extender.admission.pause()).flatten() {
                extender.metrics.paused.inc();
                tokio::time::sleep(pause).await;
            }
            answer.response
        }
        Err(error) => Json(ExtenderFilterResult { error: safe(&error), ..Default::default() }).into_response(),
    }
}

/// An answer of `filter`.
#[derive(Debug)]
pub struct FilterAnswer {
    /// For kube-scheduler.
    pub response: Response,
    /// Whether every node was refused since the pod's gang waits.
    pub waits: bool,
}

/// Answers one call of `filter`: from the state alone.
///
/// Errors: the state cannot be trusted, or the request cannot be read.
pub fn answer_filter(
    extender: &Extender,
    view: &View,
    args: &ExtenderArgs<'_>,
    body: &[u8],
) -> Result<FilterAnswer, String> {
    if args.nodes.is_some() {
        return Err("set nodeCacheCapable: true".to_owned());
    }
    if let Some(kind) = extender.cluster.stale() {
        return Err(stale(kind));
    }
    let pod = pod_of(&view.state, &args.pod, body, &extender.scheduler_names)?;
    let offered = args.node_names.as_deref().unwrap_or_default();
    match extender::filter(&view.state.snapshot, &view.assumed, &pod, offered, now_real()) {
        Filtered::Unready => Err(UNREADY.to_owned()),
        Filtered::Behind => Err(BEHIND.to_owned()),
        Filtered::Split { kept, rejected, requeue } => {
            if requeue {
                extender.requeue.notify_one();
            }
            debug!(pod = %pod.key, offered = offered.len(), kept = kept.len(), "filter");
            // One node that is feasible gets no points.
            extender.chosen(view, &pod, kept.iter().map(|node| (*node, 0)));
            let of_its_gang = |why: Rejection| {
                !matches!(why, Rejection::AssignedToGang | Rejection::LaunchedForOthers | Rejection::Tainted)
            };
            let waits = kept.is_empty() && rejected.first().is_some_and(|(_, why)| of_its_gang(*why));
            let answer = ExtenderFilterResult {
                node_names: kept,
                failed_and_unresolvable_nodes: Rejected(rejected),
                ..ExtenderFilterResult::default()
            };
            Ok(FilterAnswer { response: Json(answer).into_response(), waits })
        }
    }
}

/// Reported while the plan that released a pod has not been seen. kube-scheduler asks again after a second.
const BEHIND: &str = "the plan that released the pod has not been seen yet";

async fn prioritize(Shared(extender): Shared<Arc<Extender>>, body: Body) -> Response {
    let started = Instant::now();
    let admitted = extender.admission.enter(body).await;
    let view = extender.view();
    // The verb has no error field: an answer without scores leaves the in-tree scores alone.
    let answer = parse::<ExtenderArgs<'_>>("prioritize", &admitted)
        .and_then(|(args, body)| answer_prioritize(&extender, &view, &args, body));
    extender.metrics.observe(Verb::Prioritize, started.elapsed(), answered(&admitted, answer.is_ok()));
    answer.unwrap_or_else(|_| Json::<[HostPriority<'_>; 0]>([]).into_response())
}

/// Answers one call of `prioritize`.
///
/// Errors: the pod cannot be read.
pub fn answer_prioritize(
    extender: &Extender,
    view: &View,
    args: &ExtenderArgs<'_>,
    body: &[u8],
) -> Result<Response, String> {
    let pod = pod_of(&view.state, &args.pod, body, &extender.scheduler_names)?;
    let offered = args.node_names.as_deref().unwrap_or_default();
    let scores = extender::prioritize(&view.state.snapshot, &view.assumed, &pod, offered, now_real());
    extender.chosen(view, &pod, offered.iter().map(AsRef::as_ref).zip(scores.iter().copied()));
    let answer: Vec<HostPriority<'_>> =
        offered.iter().zip(scores).map(|(host, score)| HostPriority { host: host.as_ref(), score }).collect();
    Ok(Json(answer).into_response())
}

async fn preempt(Shared(extender): Shared<Arc<Extender>>, body: Body) -> Response {
    let started = Instant::now();
    let admitted = extender.admission.enter(body).await;
    let answer = parse::<ExtenderPreemptionArgs<'_>>("preempt", &admitted)
        .and_then(|(args, body)| answer_preempt(&extender, args, body));
    extender.metrics.observe(Verb::Preempt, started.elapsed(), answered(&admitted, answer.is_ok()));
    // Nothing that cannot be read may evict anybody.
    Json(answer.unwrap_or_default()).into_response()
}

fn answer_preempt(
    extender: &Extender,
    args: ExtenderPreemptionArgs<'_>,
    body: &[u8],
) -> Result<ExtenderPreemptionResult, String> {
    if let Some(kind) = extender.cluster.stale() {
        return Err(stale(kind));
    }
    if args.node_name_to_victims.is_some() {
        warn!("preempt: kube-scheduler sends whole pods; set nodeCacheCapable: true");
    }
    let state = extender.cluster.load();
    let pod = pod_of(&state, &args.pod, body, &extender.scheduler_names)?;
    let candidates = args.node_name_to_meta_victims.unwrap_or_default();
    let violations: BTreeMap<String, i64> =
        candidates.iter().map(|(node, victims)| (node.clone(), victims.num_pdb_violations)).collect();
    let victims: Victims = candidates
        .into_iter()
        .map(|(node, victims)| {
            let uids = victims.pods.into_iter().flatten().map(|pod| PodUid::from(pod.uid)).collect();
            (node, uids)
        })
        .collect();
    let kept = extender::preempt(&state.snapshot, &pod, victims);
    Ok(ExtenderPreemptionResult {
        node_name_to_meta_victims: kept
            .into_iter()
            .map(|(node, victims)| {
                let num_pdb_violations = violations.get(&node).copied().unwrap_or(0);
                let pods = victims.into_iter().map(|uid| MetaPod { uid: uid.to_string() }).collect();
                (node, MetaVictims { pods: Some(pods), num_pdb_violations })
            })
            .collect(),
    })
}

async fn bind_pod(Shared(extender): Shared<Arc<Extender>>, body: Body) -> Response {
    let started = Instant::now();
    let admitted = extender.admission.enter_bind(body).await;
    let (error, ended) = match parse::<ExtenderBindingArgs>("bind", &admitted) {
        Ok((args, _)) => match bind::bind(&extender, &args).await {
            Ok(()) => (String::new(), Answered::Done),
            Err(error) => {
                debug!(pod = format!("{}/{}", args.pod_namespace, args.pod_name), node = args.node, error, "not bound");
                extender.barrier.posting().refused(&PodUid::from(args.pod_uid.as_str()));
                (safe(&error), Answered::Refused)
            }
        },
        Err(error) => (error, answered(&admitted, false)),
    };
    extender.metrics.observe(Verb::Bind, started.elapsed(), ended);
    Json(ExtenderBindingResult { error }).into_response()
}

/// How a call ended that was let in, or was not, and answered, or could not be.
fn answered(admitted: &Result<Admitted, Shed>, done: bool) -> Answered {
    match (admitted, done) {
        (Err(_), _) => Answered::Shed,
        (Ok(_), true) => Answered::Done,
        (Ok(_), false) => Answered::Failed,
    }
}

/// The first JSON value of the body, and the body. Errors: one line that names the verb, safe for kube-scheduler.
fn parse<'a, T: Deserialize<'a>>(verb: &str, admitted: &'a Result<Admitted, Shed>) -> Result<(T, &'a [u8]), String> {
    let admitted = admitted.as_ref().map_err(|shed| {
        warn!(verb, error = %shed, "request not answered");
        safe(&shed.to_string())
    })?;
    match serde_json::from_slice(&admitted.body) {
        Ok(value) => Ok((value, &admitted.body)),
        Err(error) => {
            warn!(verb, %error, bytes = admitted.body.len(), "malformed request");
            Err(safe(&format!("malformed {verb} request: {error}")))
        }
    }
}

/// The pod as kube-scheduler sent it: what was derived from watches, with the epoch of the request, which may be newer.
/// A pod that the watch has not shown yet is read from the request.
///
/// Errors: the pod cannot be read.
fn pod_of(state: &State, wire: &WirePod<'_>, body: &[u8], scheduler_names: &[String]) -> Result<Arc<CorePod>, String> {
    let known = wire.metadata.uid.as_ref().and_then(|uid| state.snapshot.pods.get(uid.as_ref()));
    let Some(known) = known else {
        let WholePod { pod } = serde_json::from_slice(body).map_err(|error| {
            warn!(%error, "a pod cannot be read");
            format!("the pod cannot be read: {error}")
        })?;
        let membership = conventions::recognise(&pod, &state.objects).membership;
        let mut core = pod_state::read(&pod, membership, scheduler_names);
        core.daemon |= state.is_of_daemon_set(&pod);
        return Ok(Arc::new(core));
    };
    let annotations = wire.metadata.annotations.as_ref();
    let epoch = annotations.and_then(|read| read.plan_epoch.as_ref()).and_then(|epoch| epoch.as_ref().parse().ok());
    if epoch <= known.plan_epoch {
        return Ok(Arc::clone(known));
    }
    let mut pod = CorePod::clone(known);
    pod.plan_epoch = epoch;
    Ok(Arc::new(pod))
}
