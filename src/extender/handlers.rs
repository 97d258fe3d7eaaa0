//! HTTP handlers of the four verbs. They always answer 200: kube-scheduler does not read the body of anything else.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use axum::body::Bytes;
use axum::extract::{DefaultBodyLimit, State as Shared};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use axum::{Json, Router};
use k8s_openapi::api::core::v1::Pod;
use muster_api::{conventions, pod_state};
use muster_core::extender::{self, Filtered, Victims};
use muster_core::gang::Pod as CorePod;
use muster_core::names::PodUid;
use serde::de::DeserializeOwned;
use tokio::sync::Notify;
use tower_http::limit::RequestBodyLimitLayer;
use tracing::{debug, warn};

use super::barrier::Barrier;
use super::bind;
use super::wire::{
    ExtenderArgs, ExtenderBindingArgs, ExtenderBindingResult, ExtenderFilterResult, ExtenderPreemptionArgs,
    ExtenderPreemptionResult, HostPriority, MetaPod, MetaVictims, safe,
};
use crate::cluster::{Cluster, State};
use crate::telemetry::{ExtenderMetrics, Verb};

/// Largest body: 5,000 names are about 150 KB, a pod 5–15 KB.
const BODY_LIMIT: usize = 16 << 20;

/// What the handlers share.
#[derive(Debug)]
pub struct Extender {
    /// The published state.
    pub cluster: Cluster,
    /// The barrier.
    pub barrier: Arc<Barrier>,
    /// Wakes the gang loop; a no-op except in the lease holder.
    pub wake: Arc<Notify>,
    /// Latency by verb.
    pub metrics: ExtenderMetrics,
    /// `schedulerName`s of our profiles.
    pub scheduler_names: Vec<String>,
}

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
        .layer(DefaultBodyLimit::disable())
        .layer(RequestBodyLimitLayer::new(BODY_LIMIT))
        .with_state(extender)
}

async fn filter(Shared(extender): Shared<Arc<Extender>>, body: Bytes) -> Response {
    let started = Instant::now();
    let answer = match parse::<ExtenderArgs>("filter", &body) {
        Ok(args) => answer_filter(&extender, &args),
        Err(error) => ExtenderFilterResult { error, ..ExtenderFilterResult::default() },
    };
    extender.metrics.observe(Verb::Filter, started.elapsed(), !answer.error.is_empty());
    Json(answer).into_response()
}

fn answer_filter(extender: &Extender, args: &ExtenderArgs) -> ExtenderFilterResult {
    let failed = |error: &str| ExtenderFilterResult { error: safe(error), ..ExtenderFilterResult::default() };
    if args.nodes.is_some() {
        return failed("set nodeCacheCapable: true");
    }
    let state = extender.cluster.load();
    let pod = pod_of(&state, &args.pod, &extender.scheduler_names);
    let offered = args.node_names.as_deref().unwrap_or_default();
    match extender::filter(&state.snapshot, &pod, offered) {
        Filtered::Unready => failed("muster has not read the cluster yet"),
        Filtered::Split { kept, rejected, wake } => {
            if wake {
                extender.wake.notify_one();
            }
            debug!(pod = %pod.key, offered = offered.len(), kept = kept.len(), "filter");
            ExtenderFilterResult {
                node_names: kept.into_iter().map(str::to_owned).collect(),
                failed_and_unresolvable_nodes: rejected
                    .into_iter()
                    .map(|(node, reason)| (node.to_owned(), reason.as_str().to_owned()))
                    .collect(),
                ..ExtenderFilterResult::default()
            }
        }
    }
}

async fn prioritize(Shared(extender): Shared<Arc<Extender>>, body: Bytes) -> Response {
    let started = Instant::now();
    // The verb has no error field: an answer without scores leaves the in-tree scores alone.
    let answer = match parse::<ExtenderArgs>("prioritize", &body) {
        Ok(args) => {
            let state = extender.cluster.load();
            let pod = pod_of(&state, &args.pod, &extender.scheduler_names);
            let offered = args.node_names.unwrap_or_default();
            let scores = extender::prioritize(&state.snapshot, &pod, &offered);
            Ok(offered.into_iter().zip(scores).map(|(host, score)| HostPriority { host, score }).collect())
        }
        Err(error) => Err(error),
    };
    extender.metrics.observe(Verb::Prioritize, started.elapsed(), answer.is_err());
    Json::<Vec<HostPriority>>(answer.unwrap_or_default()).into_response()
}

async fn preempt(Shared(extender): Shared<Arc<Extender>>, body: Bytes) -> Response {
    let started = Instant::now();
    let (answer, failed) = match parse::<ExtenderPreemptionArgs>("preempt", &body) {
        Ok(args) => (answer_preempt(&extender, args), false),
        // Nothing that cannot be read may evict anybody.
        Err(_) => (ExtenderPreemptionResult::default(), true),
    };
    extender.metrics.observe(Verb::Preempt, started.elapsed(), failed);
    Json(answer).into_response()
}

fn answer_preempt(extender: &Extender, args: ExtenderPreemptionArgs) -> ExtenderPreemptionResult {
    let state = extender.cluster.load();
    let pod = pod_of(&state, &args.pod, &extender.scheduler_names);
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
    ExtenderPreemptionResult {
        node_name_to_meta_victims: kept
            .into_iter()
            .map(|(node, victims)| {
                let num_pdb_violations = violations.get(&node).copied().unwrap_or(0);
                let pods = victims.into_iter().map(|uid| MetaPod { uid: uid.to_string() }).collect();
                (node, MetaVictims { pods: Some(pods), num_pdb_violations })
            })
            .collect(),
    }
}

async fn bind_pod(Shared(extender): Shared<Arc<Extender>>, body: Bytes) -> Response {
    let started = Instant::now();
    let error = match parse::<ExtenderBindingArgs>("bind", &body) {
        Ok(args) => match bind::bind(&extender, &args).await {
            Ok(()) => String::new(),
            Err(error) => {
                debug!(pod = format!("{}/{}", args.pod_namespace, args.pod_name), node = args.node, error, "not bound");
                safe(&error)
            }
        },
        Err(error) => error,
    };
    extender.metrics.observe(Verb::Bind, started.elapsed(), !error.is_empty());
    Json(ExtenderBindingResult { error }).into_response()
}

/// The first JSON value of the body. Errors: one line that names the verb, safe for kube-scheduler.
fn parse<T: DeserializeOwned>(verb: &str, body: &[u8]) -> Result<T, String> {
    serde_json::from_slice(body).map_err(|error| {
        let message = format!("malformed {verb} request: {error}");
        warn!(verb, %error, bytes = body.len(), "malformed request");
        safe(&message)
    })
}

/// The pod as kube-scheduler sent it: what was derived from watches, with the annotations of the request, which may be
/// newer.
pub(super) fn pod_of(state: &State, pod: &Pod, scheduler_names: &[String]) -> CorePod {
    let known = pod.metadata.uid.as_deref().and_then(|uid| state.snapshot.pods.get(uid));
    match known {
        Some(known) => {
            let mut core = CorePod::clone(known);
            let annotations = pod.metadata.annotations.as_ref();
            let epoch = conventions::annotation_number(annotations, muster_api::keys::PLAN_EPOCH);
            if epoch > core.plan_epoch {
                core.plan_epoch = epoch;
                core.planned_node = annotations
                    .and_then(|all| all.get(muster_api::keys::PLANNED_NODE))
                    .map(|node| node.as_str().into());
            }
            core
        }
        None => {
            let membership = conventions::recognise(pod, &state.objects).membership;
            pod_state::read(pod, membership, scheduler_names)
        }
    }
}
