//! The election against an API server that stops answering.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use kube::Client;
use kube::client::Body;
use muster::config::Lease;
use muster::lease::Election;
use muster::term::{Tenure, Term};
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

/// Longest wait for anything that should come.
const DEADLINE: Duration = Duration::from_secs(60);

/// One Lease object, as an API server keeps it.
#[derive(Debug, Default)]
struct Server {
    lease: Mutex<Option<Value>>,
    down: AtomicBool,
}

impl Server {
    fn answer(&self, method: &http::Method, body: &[u8]) -> (u16, Value) {
        if self.down.load(Ordering::Relaxed) {
            return (500, failure(500, "InternalError"));
        }
        let mut lease = self.lease.lock().unwrap();
        if *method != http::Method::GET {
            let sent: Value = serde_json::from_slice(body).unwrap();
            let stored = lease.get_or_insert_with(|| {
                json!({
                    "apiVersion": "coordination.k8s.io/v1",
                    "kind": "Lease",
                    "metadata": {"name": "muster", "namespace": "muster-system"},
                    "spec": {},
                })
            });
            for (field, value) in sent["spec"].as_object().into_iter().flatten() {
                stored["spec"][field] = value.clone();
            }
        }
        lease.clone().map_or_else(|| (404, failure(404, "NotFound")), |lease| (200, lease))
    }
}

fn failure(code: u16, reason: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Status", "status": "Failure", "code": code, "reason": reason})
}

fn client(server: Arc<Server>) -> Client {
    let service = tower::service_fn(move |request: http::Request<Body>| {
        let server = Arc::clone(&server);
        async move {
            let (head, body) = request.into_parts();
            let body = body.collect_bytes().await?;
            let (status, answer) = server.answer(&head.method, &body);
            let answer = Body::from(answer.to_string().into_bytes());
            Ok::<_, kube::Error>(http::Response::builder().status(status).body(answer).unwrap())
        }
    });
    Client::new(service, "muster-system")
}

async fn becomes(leads: &mut watch::Receiver<Option<Term>>, expected: bool) -> Option<Term> {
    let waited = tokio::time::timeout(DEADLINE, leads.wait_for(|leads| leads.is_some() == expected)).await;
    *waited.unwrap_or_else(|_| panic!("leads stays {}", !expected)).unwrap()
}

#[tokio::test]
async fn a_holder_that_cannot_renew_steps_down_when_its_lease_has_run_out_and_leads_again_later() {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let server = Arc::new(Server::default());
    let lease = Lease {
        namespace: "muster-system".to_owned(),
        name: "muster".to_owned(),
        duration_seconds: 2,
        grace_seconds: 1,
    };
    let (election, mut leads) = Election::new(client(Arc::clone(&server)), &lease, "first".to_owned()).await.unwrap();
    let cancel = CancellationToken::new();
    let running = tokio::spawn(election.run(cancel.clone()));
    let first = becomes(&mut leads, true).await;
    let tenure = Tenure::of(&leads).unwrap();

    // Neither read nor written: nobody tells this replica that it is not the holder any more.
    server.down.store(true, Ordering::Relaxed);
    becomes(&mut leads, false).await;

    server.down.store(false, Ordering::Relaxed);
    assert_ne!(becomes(&mut leads, true).await, first);
    assert!(!tenure.lasts(), "what was decided before is not done in the next term");
    cancel.cancel();
    running.await.unwrap().unwrap();
    assert_eq!(server.lease.lock().unwrap().as_ref().unwrap()["spec"]["holderIdentity"], json!(null), "given up");
}

#[tokio::test]
async fn a_holder_whose_lease_is_taken_while_it_is_valid_steps_down_long_before_it_would_renew_it() {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let server = Arc::new(Server::default());
    let (namespace, name) = ("muster-system".to_owned(), "muster".to_owned());
    let lease = Lease { namespace, name, duration_seconds: 3600, grace_seconds: 1 };
    let (election, mut leads) = Election::new(client(Arc::clone(&server)), &lease, "first".to_owned()).await.unwrap();
    let cancel = CancellationToken::new();
    let running = tokio::spawn(election.run(cancel.clone()));
    becomes(&mut leads, true).await;
    server.lease.lock().unwrap().as_mut().unwrap()["spec"]["holderIdentity"] = json!("second");
    becomes(&mut leads, false).await;
    cancel.cancel();
    running.await.unwrap().unwrap();
    assert_eq!(server.lease.lock().unwrap().as_ref().unwrap()["spec"]["holderIdentity"], json!("second"), "left to it");
}
