//! Kubelets of simulated machines: one that the API server does not answer holds up no other.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use http::{Method, Request, Response};
use kube::client::Body;
use muster::fake_kubelet;
use muster_ec2_sim::{MarketType, Scenario, Simulator};
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::gc_account::{connected, launched_of};

const TYPE: &str = "m5.2xlarge";

/// Two machines, whose nodes are Ready a moment after they register.
async fn machines() -> Arc<Simulator> {
    let mut scenario = Scenario::default().with_pool(TYPE, "us-east-1a", MarketType::OnDemand, 1, 1, 8);
    scenario.delays.boot_seconds = 0.0;
    scenario.delays.ready_seconds = 0.3;
    let image = muster_ec2_sim::scenario::Image { id: "ami-1".to_owned(), name: "own".to_owned(), path: None };
    scenario.images = vec![image];
    let simulator = Simulator::new(scenario).unwrap();
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let endpoint = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(muster_ec2_sim::serve(listener, Arc::clone(&simulator), std::future::pending()));
    launched_of(&connected(endpoint).await, ("uid", "tests"), TYPE, "ami-1").await;
    simulator
}

/// An API server without any Node that never answers the first that registers; and what it is asked for, and of which Node.
fn mute_for_the_first() -> (kube::Client, mpsc::UnboundedReceiver<(Method, String)>) {
    let (asked, requests) = mpsc::unbounded_channel();
    let first: Arc<Mutex<Option<String>>> = Arc::default();
    let service = tower::service_fn(move |request: Request<Body>| {
        let (asked, first) = (asked.clone(), Arc::clone(&first));
        async move {
            let (parts, body) = request.into_parts();
            let body: Value = serde_json::from_slice(&body.collect_bytes().await.unwrap()).unwrap_or_default();
            if parts.method == Method::GET {
                let none = json!({"apiVersion": "v1", "kind": "NodeList", "metadata": {}, "items": []});
                return Ok::<_, std::convert::Infallible>(Response::new(Body::from(none.to_string().into_bytes())));
            }
            let in_path = parts.uri.path().trim_end_matches("/status").rsplit('/').next().unwrap().to_owned();
            let name = body["metadata"]["name"].as_str().map_or(in_path, str::to_owned);
            let is_first = *first.lock().unwrap().get_or_insert_with(|| name.clone()) == name;
            asked.send((parts.method, name.clone())).unwrap();
            if is_first {
                std::future::pending::<()>().await;
            }
            let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}});
            Ok(Response::new(Body::from(node.to_string().into_bytes())))
        }
    });
    (kube::Client::new(service, "default"), requests)
}

#[tokio::test]
async fn a_machine_that_the_api_server_does_not_answer_holds_up_no_other() {
    let simulator = machines().await;
    let (client, mut requests) = mute_for_the_first();
    let cancel = CancellationToken::new();
    let kubelets = tokio::spawn(fake_kubelet::run(client, simulator, cancel.clone()));
    let mut next = async || tokio::time::timeout(Duration::from_secs(30), requests.recv()).await.unwrap().unwrap();

    let (registers, mute) = next().await;
    let (too, other) = next().await;
    let (reports, ready) = next().await;

    assert_eq!([registers, too, reports], [Method::POST, Method::POST, Method::PATCH]);
    assert_ne!(mute, other);
    assert_eq!(ready, other, "it gets Ready, whoever waits");
    cancel.cancel();
    kubelets.await.unwrap().unwrap();
    assert!(requests.try_recv().is_err(), "and the one that waits asks for nothing else");
}
