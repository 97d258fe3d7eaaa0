//! Health and metrics, on a port of their own: probes must not share a queue with kube-scheduler.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use axum::Router;
use axum::extract::State as Shared;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;

use crate::cluster::Cluster;
use crate::telemetry::Metrics;

/// What the health endpoints look at.
#[derive(Debug)]
pub struct Health {
    /// The published state.
    pub cluster: Cluster,
    /// Metrics.
    pub metrics: Arc<Metrics>,
    /// Set once the process is on its way out.
    pub stopping: AtomicBool,
}

/// `/healthz`, `/readyz`, `/metrics`.
pub fn router(health: Arc<Health>) -> Router {
    Router::new()
        .route("/healthz", get(|| async { "ok" }))
        .route("/readyz", get(ready))
        .route("/metrics", get(metrics))
        .with_state(health)
}

async fn ready(Shared(health): Shared<Arc<Health>>) -> Response {
    if health.stopping.load(Ordering::Relaxed) {
        return (StatusCode::SERVICE_UNAVAILABLE, "shutting down\n").into_response();
    }
    if !health.cluster.load().snapshot.synced {
        return (StatusCode::SERVICE_UNAVAILABLE, "the cluster has not been read yet\n").into_response();
    }
    if let Some(kind) = health.cluster.stale() {
        return (StatusCode::SERVICE_UNAVAILABLE, format!("the watch of {kind} is too old\n")).into_response();
    }
    "ok\n".into_response()
}

async fn metrics(Shared(health): Shared<Arc<Health>>) -> Response {
    health.metrics.gangs.watch_age.set(health.cluster.contacts().age().as_secs_f64());
    match health.metrics.encode() {
        Ok(text) => ([(header::CONTENT_TYPE, "application/openmetrics-text; version=1.0.0; charset=utf-8")], text)
            .into_response(),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
    }
}
