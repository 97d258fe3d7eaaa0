//! A proxy between `muster serve` and the API server, which can be asked to fail.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking, its helpers too")]

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::{Request, State};
use axum::http::header::{ACCEPT, AUTHORIZATION, HOST};
use axum::http::{Response, StatusCode, header};
use futures::StreamExt;
use kube::Client;
use muster::testbed::{Identity, Stack};
use serde_json::json;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

/// Answers as the API server does to Muster, except where it is instructed otherwise.
pub(crate) struct Proxy {
    /// A kubeconfig that leads here.
    pub(crate) kubeconfig: PathBuf,
    broken: Broken,
    broke: Arc<AtomicU64>,
    muted: Arc<AtomicU64>,
    served: JoinHandle<()>,
}

/// What becomes of requests.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    /// They are answered with status 500.
    Fails,
    /// They are never answered.
    Hangs,
}

/// Requests whose path, with what they accept behind it, contains this, and what becomes of them.
type Broken = Arc<Mutex<Option<(String, Fault)>>>;

#[derive(Clone)]
struct Forward {
    client: Client,
    broken: Broken,
    /// Requests that were not forwarded.
    broke: Arc<AtomicU64>,
    /// Raised when all connections go silent: answers that began before never go on.
    muted: Arc<AtomicU64>,
}

impl Proxy {
    /// Listens on loopback, with Muster's own permissions.
    pub(crate) async fn start(stack: &Stack) -> Self {
        let broken = Broken::default();
        let (broke, muted) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
        let client = stack.cluster.client(Identity::Muster).unwrap();
        let forward =
            Forward { client, broken: Arc::clone(&broken), broke: Arc::clone(&broke), muted: Arc::clone(&muted) };
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let kubeconfig = stack.cluster.folder().join("proxied.kubeconfig");
        std::fs::write(&kubeconfig, config_of(listener.local_addr().unwrap())).unwrap();
        let router = Router::new().fallback(forwarded).with_state(forward);
        let served = tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        Self { kubeconfig, broken, broke, muted, served }
    }

    /// From now on this becomes of every request whose path contains this, or its path, a space and what it accepts.
    pub(crate) fn breaks(&self, part: &str, fault: Fault) {
        *self.broken.lock().unwrap() = Some((part.to_owned(), fault));
    }

    /// How many requests were not forwarded so far.
    pub(crate) fn broke(&self) -> u64 {
        self.broke.load(Ordering::Relaxed)
    }

    /// Nothing comes any more on what is open now, and nothing ends it: a network that drops packets looks like that.
    pub(crate) fn mutes(&self) {
        self.muted.fetch_add(1, Ordering::Relaxed);
    }

    /// From now on everything is forwarded.
    pub(crate) fn heals(&self) {
        *self.broken.lock().unwrap() = None;
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.served.abort();
    }
}

fn config_of(address: SocketAddr) -> String {
    json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "proxied",
        "clusters": [{"name": "proxied", "cluster": {"server": format!("http://{address}")}}],
        "users": [{"name": "proxied", "user": {}}],
        "contexts": [{"name": "proxied", "context": {"cluster": "proxied", "user": "proxied"}}],
    })
    .to_string()
}

async fn forwarded(State(forward): State<Forward>, request: Request) -> Response<Body> {
    let broken = forward.broken.lock().unwrap().clone();
    let accepts = request.headers().get(ACCEPT).and_then(|accepts| accepts.to_str().ok()).unwrap_or_default();
    let broken = broken.filter(|(part, _)| format!("{} {accepts}", request.uri().path()).contains(part));
    forward.broke.fetch_add(u64::from(broken.is_some()), Ordering::Relaxed);
    match broken {
        Some((_, Fault::Fails)) => return failed(StatusCode::INTERNAL_SERVER_ERROR, "broken on purpose"),
        Some((_, Fault::Hangs)) => std::future::pending().await,
        None => {}
    }
    let (mut parts, body) = request.into_parts();
    let body = to_bytes(body, usize::MAX).await.unwrap();
    parts.headers.remove(HOST);
    parts.headers.remove(AUTHORIZATION);
    let request = http::Request::from_parts(parts, kube::client::Body::from(body.to_vec()));
    let began = forward.muted.load(Ordering::Relaxed);
    match forward.client.send(request).await {
        Ok(answer) => answer.map(|body| {
            let chunks = Body::new(body).into_data_stream().then(move |chunk| {
                let muted = forward.muted.load(Ordering::Relaxed) != began;
                async move { if muted { std::future::pending().await } else { chunk } }
            });
            Body::from_stream(chunks)
        }),
        Err(error) => failed(StatusCode::BAD_GATEWAY, &error.to_string()),
    }
}

fn failed(code: StatusCode, message: &str) -> Response<Body> {
    let status = json!({
        "apiVersion": "v1", "kind": "Status", "status": "Failure", "code": code.as_u16(), "reason": "InternalError",
        "message": message,
    });
    let answer = Response::builder().status(code).header(header::CONTENT_TYPE, "application/json");
    answer.body(Body::from(status.to_string())).unwrap()
}
