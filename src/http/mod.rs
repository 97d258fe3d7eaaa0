//! Health, metrics and, where it is enabled, debugging, on a port of their own: probes must not share a queue with kube-scheduler.

mod fits;
mod guard;
mod page;

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use axum::Router;
use axum::extract::{ConnectInfo, Query, Request, State as Shared};
use axum::http::{HeaderMap, HeaderName, StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::get;

use muster_core::topology::Levels;
use serde::Deserialize;
use tokio::sync::Mutex;

use muster_view::web::is_loopback;

use crate::cluster::Cluster;
use crate::gang::Recorder;
use crate::progress::Progress;
use crate::step;
use crate::telemetry::{Metrics, exposition};

pub use guard::{Guard, PATH as PAGE_PATH};
pub use page::{Access, Page, router as page_router};

/// What the health endpoints look at.
#[derive(Debug)]
pub struct Health {
    /// The published state.
    pub cluster: Cluster,
    /// Metrics.
    pub metrics: Arc<Metrics>,
    /// Whether the loops go round.
    pub progress: Arc<Progress>,
    /// Levels of the topology.
    pub levels: Levels,
    /// Version of the state that was last counted for what fits.
    pub counted: Mutex<Option<u64>>,
    /// Set once the process is on its way out.
    pub stopping: AtomicBool,
}

/// `/healthz`, `/readyz`, `/metrics`, and with a recorder `/debug/record` and `/debug/passes`, these for callers in the
/// same Pod alone.
pub fn router(health: Arc<Health>, recorder: Option<Recorder>) -> Router {
    let router = Router::new()
        .route("/healthz", get(alive))
        .route("/readyz", get(ready))
        .route("/metrics", get(metrics))
        .with_state(health);
    match recorder {
        None => router,
        Some(recorder) => {
            let debug = Router::new().route("/debug/record", get(decisions)).route("/debug/passes", get(passes));
            router.merge(debug.with_state(recorder).route_layer(middleware::from_fn(from_this_pod)))
        }
    }
}

/// Refuses who does not call from this Pod's loopback, where `kubectl port-forward` arrives too: specs of pods and user data
/// are for whoever may forward ports, and not for the whole network of Pods that probes and scrapers come from. Nor for a
/// page whose name was made to resolve to the loopback of somebody who forwards: such a browser sends that name as `Host`.
async fn from_this_pod(ConnectInfo(caller): ConnectInfo<SocketAddr>, request: Request, next: Next) -> Response {
    if !caller.ip().to_canonical().is_loopback() {
        let why = "only from this Pod: kubectl port-forward brings you there\n";
        return (StatusCode::FORBIDDEN, why).into_response();
    }
    if !single(request.headers(), &header::HOST).is_some_and(|host| is_loopback(&host)) {
        return (StatusCode::MISDIRECTED_REQUEST, "this server answers for localhost alone\n").into_response();
    }
    next.run(request).await
}

/// A header that is there once: of two, somebody on the way may have read the other one.
fn single(headers: &HeaderMap, name: &HeaderName) -> Option<String> {
    let mut all = headers.get_all(name).iter();
    let value = all.next()?.to_str().ok()?.to_owned();
    all.next().is_none().then_some(value)
}

/// Which decisions are asked for.
#[derive(Debug, Deserialize)]
struct Asked {
    /// `namespace/name` of a Gang; absent: all.
    gang: Option<String>,
}

/// The last decisions with everything they were made on, for `muster replay`.
async fn decisions(Shared(recorder): Shared<Recorder>, Query(asked): Query<Asked>) -> Response {
    // Problems are large: serialising them must not hold up the probes.
    answer(move || serde_json::to_string_pretty(&recorder.decisions(asked.gang.as_deref()))).await
}

/// The last passes that did something, each with everything it looked at, for `muster plan` and `muster replay`.
async fn passes(Shared(recorder): Shared<Recorder>) -> Response {
    answer(move || serde_json::to_string(&recorder.passes())).await
}

async fn answer(written: impl FnOnce() -> serde_json::Result<String> + Send + 'static) -> Response {
    match tokio::task::spawn_blocking(written).await {
        Ok(Ok(text)) => ([(header::CONTENT_TYPE, "application/json")], text).into_response(),
        Ok(Err(error)) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
    }
}

async fn alive(Shared(health): Shared<Arc<Health>>) -> Response {
    match health.progress.stalled() {
        None => "ok".into_response(),
        Some(name) => (StatusCode::SERVICE_UNAVAILABLE, format!("the loop {name} stands still\n")).into_response(),
    }
}

async fn ready(Shared(health): Shared<Arc<Health>>) -> Response {
    if health.stopping.load(Ordering::Relaxed) {
        return (StatusCode::SERVICE_UNAVAILABLE, "shutting down\n").into_response();
    }
    let state = health.cluster.load();
    if !state.snapshot.synced {
        return (StatusCode::SERVICE_UNAVAILABLE, "the cluster has not been read yet\n").into_response();
    }
    if let Some(kind) = health.cluster.stale() {
        return (StatusCode::SERVICE_UNAVAILABLE, format!("the watch of {kind} is too old\n")).into_response();
    }
    let mut text = "ok\n".to_owned();
    for (kind, why) in &*state.unlisted {
        let served = kind.served();
        // Writing to a String cannot fail.
        let _ =
            writeln!(text, "{} ({}) cannot be listed, so its pods are left alone: {why}", served.kind, served.group);
    }
    text.into_response()
}

/// Counts what fits now, once for each state, however many scrape.
async fn count_fits(health: &Health, leads: bool) {
    let mut counted = health.counted.lock().await;
    let state = health.cluster.load();
    let version = state.snapshot.version;
    if !leads || !state.snapshot.synced {
        *counted = None;
        return;
    }
    if *counted == Some(version) {
        return;
    }
    let levels = health.levels.clone();
    // Off the threads that answer probes.
    if let Ok(largest) = tokio::task::spawn_blocking(move || fits::largest(&state, &levels)).await {
        health.metrics.gangs.objects.fits(largest);
        *counted = Some(version);
    }
}

async fn metrics(Shared(health): Shared<Arc<Health>>, headers: HeaderMap) -> Response {
    health.metrics.gangs.watch_age.set(health.cluster.contacts().age().as_secs_f64());
    health.metrics.gangs.unlisted(health.cluster.load().unlisted.keys().copied());
    // As late as possible: a replica that lost the lease while it was stopped must not show what it knew.
    let leads = step::holds_lease();
    health.metrics.lead(leads);
    count_fits(&health, leads).await;
    let accept = headers.get(header::ACCEPT).and_then(|accept| accept.to_str().ok());
    let (kind, text) = if exposition::takes_open_metrics(accept) {
        (exposition::OPEN_METRICS, health.metrics.encode())
    } else {
        (exposition::PLAIN, health.metrics.encode_plain())
    };
    match text {
        Ok(text) => ([(header::CONTENT_TYPE, kind)], text).into_response(),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
    }
}

#[cfg(test)]
mod tests {
    use axum::body::Body;
    use tower::ServiceExt as _;

    use super::*;

    async fn asked(caller: &str, hosts: &[&str]) -> StatusCode {
        let debug = Router::new().route("/debug/passes", get(|| async { "user data" }));
        let mut request = Request::builder().uri("/debug/passes");
        for host in hosts {
            request = request.header(header::HOST, *host);
        }
        let mut request = request.body(Body::empty()).unwrap();
        request.extensions_mut().insert(ConnectInfo(caller.parse::<SocketAddr>().unwrap()));
        debug.route_layer(middleware::from_fn(from_this_pod)).oneshot(request).await.unwrap().status()
    }

    #[tokio::test]
    async fn debugging_is_for_this_pod_and_for_no_page_whose_name_resolves_to_it() {
        assert_eq!(asked("127.0.0.1:9", &["localhost:8080"]).await, StatusCode::OK);
        assert_eq!(asked("[::1]:9", &["127.0.0.1:8080"]).await, StatusCode::OK);
        assert_eq!(asked("10.0.0.9:9", &["localhost:8080"]).await, StatusCode::FORBIDDEN);
        assert_eq!(asked("127.0.0.1:9", &["evil.example:8080"]).await, StatusCode::MISDIRECTED_REQUEST);
        assert_eq!(asked("127.0.0.1:9", &["localhost", "evil.example"]).await, StatusCode::MISDIRECTED_REQUEST);
        assert_eq!(asked("127.0.0.1:9", &[]).await, StatusCode::MISDIRECTED_REQUEST);
    }
}
