//! Calls of the gang loop: one that is not answered keeps nobody but its own gang, and one that failed is made again.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use arc_swap::ArcSwap;
use futures::FutureExt as _;
use http::{Request, Response, StatusCode};
use k8s_openapi::api::core::v1::Pod;
use kube::Client;
use kube::client::Body;
use muster::clock::Clock;
use muster::cluster::{Cluster, State, Store, StoreOptions};
use muster::gang::{Events, Executor, ExecutorOptions, GangLoop, Inputs};
use muster::progress::Progress;
use muster::telemetry::Metrics;
use muster::term::{Tenure, Term};
use muster_api::crd::Gang;
use muster_api::keys;
use muster_core::gang::{Action, BatchRequest, Evict, Release, Settings, StatusWrite, batch_name};
use muster_core::model::gang::Phase;
use muster_core::model::names::{NodeName, ObjectKey, PodUid};
use muster_core::topology::Levels;
use serde_json::{Value, json};
use tokio::sync::{Notify, mpsc, watch};
use tokio_util::sync::CancellationToken;

const NAMES: [&str; 2] = ["stuck", "other"];

/// A replica that has the lease, as long as the sender is not asked for anything else.
fn leads() -> (watch::Sender<Option<Term>>, Tenure) {
    let (election, seen) = watch::channel(Some(Term::default()));
    (election, Tenure::of(&seen).unwrap())
}

/// An API server that takes every write as it is, says which, never answers those of the gang `stuck` about its status, and
/// answers the first patches with the statuses in `failing`.
fn api(asked: mpsc::UnboundedSender<String>, failing: &[StatusCode]) -> Client {
    let failing: Arc<Mutex<VecDeque<StatusCode>>> = Arc::new(Mutex::new(failing.iter().copied().collect()));
    let service = tower::service_fn(move |request: Request<Body>| {
        let path = request.uri().path().to_owned();
        let failure = if request.method() == "PATCH" { failing.lock().unwrap().pop_front() } else { None };
        let _ = asked.send(path.clone());
        async move {
            if path.ends_with("/gangs/stuck/status") {
                std::future::pending::<()>().await;
            }
            let body = request.into_body().collect_bytes().await.unwrap();
            let body = match failure {
                Some(code) => json!({"status": "Failure", "code": code.as_u16(), "reason": "", "message": ""})
                    .to_string()
                    .into_bytes(),
                None if path.contains("/pods/") => {
                    json!({"metadata": {"resourceVersion": "9"}}).to_string().into_bytes()
                }
                None => {
                    let mut object: Value = serde_json::from_slice(&body).unwrap();
                    object["metadata"]["resourceVersion"] = json!("2");
                    object.to_string().into_bytes()
                }
            };
            let answer = Response::builder().status(failure.unwrap_or(StatusCode::OK)).body(Body::from(body));
            Ok::<_, Infallible>(answer.unwrap())
        }
    });
    Client::new(service, "ns")
}

fn pod(name: &str) -> Pod {
    serde_json::from_value(json!({
        "metadata": {
            "name": name, "namespace": "ns", "uid": name,
            "annotations": {"muster.dev/gang": name, "muster.dev/gang-size": "1"},
        },
        "spec": {
            "schedulerName": "muster",
            "containers": [{"name": "main", "resources": {"requests": {"cpu": "1"}}}],
        },
    }))
    .unwrap()
}

fn gang(name: &str) -> Gang {
    serde_json::from_value(json!({
        "apiVersion": "muster.dev/v1alpha1", "kind": "Gang",
        "metadata": {"name": name, "namespace": "ns", "uid": format!("gang-{name}"), "resourceVersion": "1"},
        "spec": {
            "size": 1, "min": 1, "roles": [], "wishes": {}, "source": {"convention": "annotations", "identity": name},
        },
        "status": {"phase": "Collecting"},
    }))
    .unwrap()
}

fn known() -> (Store, Cluster) {
    known_with(&[])
}

/// Both gangs, with so many members more of the gang `stuck`, by name.
fn known_with(more: &[String]) -> (Store, Cluster) {
    let options = StoreOptions {
        scheduler_names: vec!["muster".to_owned()],
        provisioner_scheduler_names: Vec::new(),
        accelerators: Vec::new(),
        max_age: Duration::from_secs(3600),
    };
    let (mut store, cluster) = Store::new(options, &[], &[]);
    for name in NAMES {
        store.apply_pod(pod(name));
        store.apply_gang(gang(name));
    }
    for name in more {
        let mut member = pod("stuck");
        (member.metadata.name, member.metadata.uid) = (Some(name.clone()), Some(name.clone()));
        store.apply_pod(member);
    }
    store.publish();
    (store, cluster)
}

fn executor(client: &Client, cluster: &Cluster) -> Executor {
    let options = ExecutorOptions { parallel: 4, renominate: Duration::from_secs(3600) };
    let events = Events::new(client.clone());
    let metrics = Metrics::default().gangs;
    Executor::new(client.clone(), cluster.clone(), events, metrics, options, Clock::real())
}

/// An API server that says which calls are made, and answers those about pods whose name begins with `stuck` only once the gate
/// is open.
fn hanging(asked: mpsc::UnboundedSender<String>, gate: watch::Receiver<bool>) -> Client {
    let service = tower::service_fn(move |request: Request<Body>| {
        let path = request.uri().path().to_owned();
        let _ = asked.send(format!("{} {path}", request.method()));
        let mut gate = gate.clone();
        async move {
            if path.contains("/pods/stuck") {
                gate.wait_for(|open| *open).await.unwrap();
            }
            let answer = json!({"metadata": {"name": "any", "resourceVersion": "9"}});
            Ok::<_, Infallible>(Response::new(Body::from(answer.to_string().into_bytes())))
        }
    });
    Client::new(service, "ns")
}

/// The release of one pod, of the first plan.
fn release(state: &State, name: &str) -> Action {
    let pod = Arc::clone(state.snapshot.pods.get(&PodUid::from(name)).unwrap());
    let (node, tolerate) = (NodeName::from("n1"), Vec::new());
    Action::Release(Box::new(Release { pod, epoch: 1, node, tolerate, pin: false, stuck: None }))
}

/// Waits until this call is made.
async fn made(calls: &mut mpsc::UnboundedReceiver<String>, call: &str) {
    while calls.recv().await.unwrap() != call {}
}

/// The gang is planned onto a node.
fn plan(state: &State, name: &str, node: &str) -> Action {
    let gang = &state.snapshot.gangs[&ObjectKey::new("ns", name)];
    let mut next = muster_core::model::gang::Gang::clone(gang);
    next.phase = Some(Phase::Planned);
    next.epoch += 1;
    next.places = vec![muster_core::model::gang::GangPlace {
        role: "".into(),
        rank: 0,
        uid: Some(name.into()),
        pod: Some(name.into()),
        node: NodeName::from(node),
        done: false,
    }];
    let (gang, recognised) = (Arc::clone(gang), None);
    Action::WriteStatus(Box::new(StatusWrite { gang, recognised, next, event: None, also: Vec::new() }))
}

/// An API server that has these NodeBatches, and says what is asked of them.
fn with_batches(asked: mpsc::UnboundedSender<String>, there: &'static [&'static str]) -> Client {
    let service = tower::service_fn(move |request: Request<Body>| {
        let what = format!("{} {}", request.method(), request.uri().path().rsplit('/').next().unwrap_or_default());
        let missing = request.method() == "GET" && !there.iter().any(|name| what.ends_with(name));
        asked.send(what).unwrap();
        let failure = json!({"kind": "Status", "status": "Failure", "code": 404, "reason": "NotFound", "message": ""});
        let batch = json!({"metadata": {"name": "b"}, "spec": {"nodePools": [], "count": 1}});
        let (code, body) = if missing { (StatusCode::NOT_FOUND, failure) } else { (StatusCode::OK, batch) };
        let answer = Response::builder().status(code).body(Body::from(body.to_string().into_bytes()));
        async move { Ok::<_, Infallible>(answer.unwrap()) }
    });
    Client::new(service, "ns")
}

#[tokio::test]
async fn the_next_batch_of_a_gang_is_created_once_the_one_before_it_is_gone_whatever_the_watch_shows() {
    let (_store, cluster) = known();
    let (_leads, tenure) = leads();
    let state = cluster.load();
    let mut gang = muster_core::model::gang::Gang::clone(&state.snapshot.gangs[&ObjectKey::new("ns", "other")]);
    let [first, second] = [1, 2].map(|round| batch_name(&gang.uid, round));
    gang.batch = Some(first.as_str().into());
    let gang = Arc::new(gang);
    let there: &'static [&'static str] = vec![&*first.clone().leak()].leak();
    for (there, then) in [(there, None), (&[], Some("POST nodebatches".to_owned()))] {
        let (asked, mut calls) = mpsc::unbounded_channel();
        let mut executor = executor(&with_batches(asked, there), &cluster);
        let create = BatchRequest {
            gang: Arc::clone(&gang),
            round: 2,
            offers: Vec::new(),
            placement_group: None,
            zones: Vec::new(),
        };
        executor.execute(&state, vec![Action::CreateBatch(Box::new(create))], &tenure).await;
        executor.finish().await;
        assert_eq!(calls.recv().await, Some(format!("GET {first}")));
        assert_eq!(calls.try_recv().ok(), then, "{second}");
    }
}

#[tokio::test]
async fn a_write_that_is_not_answered_keeps_no_other_gang_and_its_capacity_stays_assigned() {
    let (asked, mut writes) = mpsc::unbounded_channel();
    let client = api(asked, &[]);
    let (_store, cluster) = known();
    let (_leads, tenure) = leads();
    let mut executor = executor(&client, &cluster);
    let state = cluster.load();
    executor.execute(&state, vec![plan(&state, "stuck", "n1")], &tenure).await;
    let stuck = "/apis/muster.dev/v1alpha1/namespaces/ns/gangs/stuck/status";
    assert_eq!(writes.recv().await.as_deref(), Some(stuck));

    let state = executor.assumed(&cluster.load());
    let assigned: Vec<&str> = state.snapshot.assignments.keys().map(NodeName::as_str).collect();
    assert_eq!(assigned, ["n1"], "whether it was written is open");
    let again = vec![plan(&state, "stuck", "n2"), plan(&state, "other", "n2")];
    executor.execute(&state, again, &tenure).await;
    let other = "/apis/muster.dev/v1alpha1/namespaces/ns/gangs/other/status";
    assert_eq!(writes.recv().await.as_deref(), Some(other), "nothing more of the gang whose write is under way");
    let state = executor.assumed(&cluster.load());
    let mut assigned: Vec<&str> = state.snapshot.assignments.keys().map(NodeName::as_str).collect();
    assigned.sort_unstable();
    assert_eq!(assigned, ["n1", "n2"]);
}

#[tokio::test]
async fn a_release_that_failed_is_made_again_at_once() {
    let (asked, mut writes) = mpsc::unbounded_channel();
    let client = api(asked, &[StatusCode::CONFLICT]);
    let (_store, cluster) = known();
    let (_leads, tenure) = leads();
    let mut executor = executor(&client, &cluster);
    let state = cluster.load();
    let release = || {
        let pod = Arc::clone(state.snapshot.pods.get(&PodUid::from("other")).unwrap());
        vec![Action::Release(Box::new(Release {
            pod,
            epoch: 1,
            node: NodeName::from("n1"),
            tolerate: Vec::new(),
            pin: false,
            stuck: None,
        }))]
    };
    let again = executor.execute(&state, release(), &tenure).await;
    assert!(again.is_some_and(|again| again < Duration::from_secs(1)), "the loop looks again: {again:?}");
    assert_eq!(writes.recv().await.as_deref(), Some("/api/v1/namespaces/ns/pods/other/status"), "refused");
    executor.execute(&state, release(), &tenure).await;
    let nomination = writes.recv().await;
    assert_eq!(nomination.as_deref(), Some("/api/v1/namespaces/ns/pods/other/status"));
    assert_eq!(writes.recv().await.as_deref(), Some("/api/v1/namespaces/ns/pods/other"), "nominated, then released");
    executor.execute(&state, release(), &tenure).await;
    assert!(writes.try_recv().is_err(), "what was written is not written again before it is due");
}

#[tokio::test]
async fn a_release_that_always_fails_is_made_again_less_and_less_often() {
    let (asked, mut writes) = mpsc::unbounded_channel();
    let client = api(asked, &[StatusCode::FORBIDDEN; 9]);
    let (_store, cluster) = known();
    let (_leads, tenure) = leads();
    let mut executor = executor(&client, &cluster);
    let state = cluster.load();
    let pod = Arc::clone(state.snapshot.pods.get(&PodUid::from("other")).unwrap());
    let release = |epoch: u64| {
        let (pod, node) = (Arc::clone(&pod), NodeName::from("n1"));
        vec![Action::Release(Box::new(Release { pod, epoch, node, tolerate: Vec::new(), pin: false, stuck: None }))]
    };
    for _ in 0..2 {
        assert!(executor.execute(&state, release(1), &tenure).await.is_some(), "the loop looks again");
        assert!(writes.recv().await.is_some());
    }
    // Its pauses double: that after the fifth is long enough to be seen on a machine that is busy.
    let mut more = 0;
    while more < 3 {
        executor.execute(&state, release(1), &tenure).await;
        let written = tokio::time::timeout(Duration::from_millis(5), writes.recv()).await;
        more += usize::from(written.is_ok_and(|call| call.is_some()));
    }
    executor.execute(&state, release(1), &tenure).await;
    assert!(writes.try_recv().is_err(), "not while its pause lasts");
    executor.execute(&state, release(2), &tenure).await;
    assert!(writes.recv().await.is_some(), "another plan is another release");
}

/// Evicts twenty members while an eviction is answered so; the calls that were made.
async fn evictions_answered(code: StatusCode) -> Vec<String> {
    let (sent, mut calls) = mpsc::unbounded_channel();
    let service = tower::service_fn(move |request: Request<Body>| {
        let what = format!("{} {}", request.method(), request.uri().path());
        let eviction = what.ends_with("/eviction");
        sent.send(what).unwrap();
        async move {
            let code = if eviction { code } else { StatusCode::OK };
            let status =
                json!({"kind": "Status", "status": "Failure", "code": code.as_u16(), "reason": "", "message": ""});
            let answer = if eviction { status } else { json!({"metadata": {"name": "any", "resourceVersion": "9"}}) };
            let body = Body::from(answer.to_string().into_bytes());
            Ok::<_, Infallible>(Response::builder().status(code).body(body).unwrap())
        }
    });
    let client = Client::new(service, "ns");
    let (_store, cluster) = known();
    let (_leads, tenure) = leads();
    let state = cluster.load();
    let mut executor = executor(&client, &cluster);
    let member = |number: usize| {
        let mut pod = muster_core::model::gang::Pod::clone(state.snapshot.pods.get(&PodUid::from("other")).unwrap());
        let name = format!("m-{number}");
        (pod.uid, pod.key) = (PodUid::from(name.as_str()), ObjectKey::new("ns", name.as_str()));
        let evict = Evict { pod: Arc::new(pod), why: "a member was lost".to_owned(), at_once: false };
        Action::Evict(Box::new(evict))
    };
    executor.execute(&state, (0..20).map(member).collect(), &tenure).await;
    executor.finish().await;
    let mut all = Vec::new();
    while let Ok(call) = calls.try_recv() {
        all.push(call);
    }
    all
}

#[tokio::test]
async fn a_budget_that_forbids_one_eviction_is_not_asked_for_every_member() {
    let all = evictions_answered(StatusCode::TOO_MANY_REQUESTS).await;
    let deleted: Vec<&String> = all.iter().filter(|call| call.starts_with("DELETE")).collect();
    assert_eq!(deleted.len(), 20, "{all:#?}");
    assert!(deleted.last().unwrap().ends_with("/m-19"), "whoever leads goes last");
    let asked: std::collections::BTreeSet<&String> = all.iter().filter(|call| call.ends_with("/eviction")).collect();
    assert!(!asked.is_empty() && asked.len() <= 4, "of as many as are evicted at once: {asked:?}");
}

#[tokio::test]
async fn a_gang_is_evicted_although_two_budgets_or_a_webhook_forbid_it() {
    for code in [StatusCode::INTERNAL_SERVER_ERROR, StatusCode::FORBIDDEN, StatusCode::BAD_REQUEST] {
        let all = evictions_answered(code).await;
        assert_eq!(all.iter().filter(|call| call.starts_with("DELETE")).count(), 20, "{code}: {all:#?}");
    }
}

#[tokio::test]
async fn a_pod_is_requeued_and_a_nomination_taken_back_by_one_patch_each() {
    let (asked, mut writes) = mpsc::unbounded_channel();
    let client = api(asked, &[]);
    let (_store, cluster) = known();
    let (_leads, tenure) = leads();
    let mut executor = executor(&client, &cluster);
    let state = cluster.load();
    let pod = || Arc::clone(state.snapshot.pods.get(&PodUid::from("other")).unwrap());
    for _ in 0..2 {
        let actions = vec![Action::Requeue { pod: pod() }, Action::ClearNomination { pod: pod() }];
        executor.execute(&state, actions, &tenure).await;
        executor.finish().await;
    }
    let mut all = Vec::new();
    while let Ok(call) = writes.try_recv() {
        all.push(call);
    }
    all.sort();
    assert_eq!(all, ["/api/v1/namespaces/ns/pods/other", "/api/v1/namespaces/ns/pods/other/status"], "once each");
}

/// Calls that were made so far.
fn so_far(calls: &mut mpsc::UnboundedReceiver<String>) -> Vec<String> {
    std::iter::from_fn(|| calls.try_recv().ok()).collect()
}

#[tokio::test]
async fn a_nomination_that_was_not_taken_back_and_a_gate_that_was_not_removed_are_tried_again_although_every_pass_asks()
{
    let (asked, mut calls) = mpsc::unbounded_channel();
    let client = api(asked, &[StatusCode::CONFLICT]);
    let (_store, cluster) = known();
    let (_leads, tenure) = leads();
    let mut executor = executor(&client, &cluster);
    let state = cluster.load();
    let pod = Arc::clone(state.snapshot.pods.get(&PodUid::from("other")).unwrap());
    for _ in 0..3 {
        executor.execute(&state, vec![Action::ClearNomination { pod: Arc::clone(&pod) }], &tenure).await;
        executor.finish().await;
    }
    let nomination = "/api/v1/namespaces/ns/pods/other/status";
    assert_eq!(so_far(&mut calls), [nomination; 2], "refused, then taken back, then done");

    // The pod that is answered is another one by its UID, every time.
    for _ in 0..3 {
        executor.execute(&state, vec![Action::Ungate { uid: PodUid::from("other") }], &tenure).await;
        executor.finish().await;
    }
    assert_eq!(so_far(&mut calls), ["/api/v1/namespaces/ns/pods/other"; 3]);
}

#[tokio::test]
async fn a_member_whose_node_is_gone_is_deleted_at_once_although_it_was_evicted_a_moment_ago() {
    let (asked, mut calls) = mpsc::unbounded_channel();
    let client = api(asked, &[]);
    let (_store, cluster) = known();
    let (_leads, tenure) = leads();
    let mut executor = executor(&client, &cluster);
    let state = cluster.load();
    let pod = Arc::clone(state.snapshot.pods.get(&PodUid::from("other")).unwrap());
    let mut made = Vec::new();
    for at_once in [false, true, false, true] {
        let evict = Evict { pod: Arc::clone(&pod), why: "a member was lost".to_owned(), at_once };
        executor.execute(&state, vec![Action::Evict(Box::new(evict))], &tenure).await;
        executor.finish().await;
        made.push(so_far(&mut calls).len());
    }
    assert!(made[0] > 0 && made[1] > 0, "{made:?}");
    assert_eq!(made[2..], [0, 0], "nothing new is asked for");
}

#[tokio::test]
async fn every_call_that_ends_a_member_names_its_uid() {
    let (sent, mut calls) = mpsc::unbounded_channel();
    // The eviction is not granted, so the pod is marked and deleted.
    let service = tower::service_fn(move |request: Request<Body>| {
        let sent = sent.clone();
        async move {
            let what = format!("{} {}", request.method(), request.uri().path().rsplit('/').next().unwrap());
            let body: Value = serde_json::from_slice(&request.into_body().collect_bytes().await.unwrap()).unwrap();
            let named = ["/deleteOptions/preconditions/uid", "/preconditions/uid", "/metadata/uid"];
            let named = named.iter().find_map(|place| body.pointer(place)).and_then(Value::as_str).map(str::to_owned);
            let forbidden = what.ends_with("eviction");
            // That a budget stood against it is an Event, which ends nobody.
            if !what.ends_with("events") {
                sent.send((what, named)).unwrap();
            }
            let code = if forbidden { StatusCode::TOO_MANY_REQUESTS } else { StatusCode::OK };
            let status = json!({"kind": "Status", "status": "Failure", "code": 429, "reason": "", "message": ""});
            let answer = if forbidden { status } else { json!({"metadata": {"name": "other"}}) };
            let body = Body::from(answer.to_string().into_bytes());
            Ok::<_, Infallible>(Response::builder().status(code).body(body).unwrap())
        }
    });
    let client = Client::new(service, "ns");
    let (_store, cluster) = known();
    let (_leads, tenure) = leads();
    let state = cluster.load();
    let pod = Arc::clone(state.snapshot.pods.get(&PodUid::from("other")).unwrap());
    for (at_once, expected) in
        [(false, vec!["POST eviction", "PATCH status", "DELETE other"]), (true, vec!["PATCH status", "DELETE other"])]
    {
        let mut executor = executor(&client, &cluster);
        let evict = Evict { pod: Arc::clone(&pod), why: "a member was lost".to_owned(), at_once };
        executor.execute(&state, vec![Action::Evict(Box::new(evict))], &tenure).await;
        executor.finish().await;
        for call in expected {
            assert_eq!(calls.recv().await, Some((call.to_owned(), Some("other".to_owned()))));
        }
        assert!(calls.try_recv().is_err());
    }
}

#[tokio::test]
async fn patches_that_are_not_answered_keep_no_other_gang_from_its_release_nor_any_from_being_evicted() {
    let (sent, mut calls) = mpsc::unbounded_channel();
    let (_gate, closed) = watch::channel(false);
    let client = hanging(sent, closed);
    let names: Vec<String> = (0..64).map(|number| format!("stuck-{number}")).collect();
    let (_store, cluster) = known_with(&names);
    let (_leads, tenure) = leads();
    let mut executor = executor(&client, &cluster);
    let state = cluster.load();
    executor.execute(&state, names.iter().map(|name| release(&state, name)).collect(), &tenure).await;
    let evict = |name: &str| {
        let pod = Arc::clone(state.snapshot.pods.get(&PodUid::from(name)).unwrap());
        Action::Evict(Box::new(Evict { pod, why: "a member was lost".to_owned(), at_once: false }))
    };
    executor.execute(&state, vec![evict("stuck"), release(&state, "other")], &tenure).await;
    let mut wanted =
        ["POST /api/v1/namespaces/ns/pods/stuck/eviction", "PATCH /api/v1/namespaces/ns/pods/other"].to_vec();
    let mut hang = 0;
    while !wanted.is_empty() {
        let call = calls.recv().await.unwrap();
        hang += usize::from(call.contains("/pods/stuck-"));
        wanted.retain(|wanted| *wanted != call);
    }
    assert_eq!(hang, 4, "of the gang that hangs as many as may be made at once");
}

#[tokio::test]
async fn what_waits_for_its_turn_is_dropped_once_the_lease_was_lost_even_if_it_is_won_again_meanwhile() {
    let (sent, mut calls) = mpsc::unbounded_channel();
    let (gate, opens) = watch::channel(false);
    let client = hanging(sent, opens);
    let names = ["stuck-0".to_owned(), "stuck-1".to_owned()];
    let (_store, cluster) = known_with(&names);
    let options = ExecutorOptions { parallel: 1, renominate: Duration::ZERO };
    let (events, metrics) = (Events::new(client.clone()), Metrics::default().gangs);
    let mut executor = Executor::new(client.clone(), cluster.clone(), events, metrics, options, Clock::real());
    let (election, tenure) = leads();
    let state = cluster.load();
    executor.execute(&state, names.iter().map(|name| release(&state, name)).collect(), &tenure).await;
    made(&mut calls, "PATCH /api/v1/namespaces/ns/pods/stuck-0/status").await;
    // Lost and won while the first patch hangs: whoever led in between may have planned otherwise.
    election.send(None).unwrap();
    election.send(Some(Term::default().next())).unwrap();
    gate.send(true).unwrap();
    executor.finish().await;
    let mut late = Vec::new();
    while let Ok(call) = calls.try_recv() {
        late.push(call);
    }
    assert!(!late.iter().any(|call| call.contains("/pods/stuck-1")), "{late:?}");
}

#[tokio::test]
async fn a_release_that_waits_for_its_turn_is_not_sent_again_and_is_dropped_where_another_plan_came_meanwhile() {
    let (sent, mut calls) = mpsc::unbounded_channel();
    let (gate, opens) = watch::channel(false);
    let client = hanging(sent, opens);
    let names = ["stuck-0".to_owned(), "stuck-1".to_owned(), "stuck-2".to_owned()];
    let (_store, cluster) = known_with(&names);
    let (_leads, tenure) = leads();
    // One at a time, and whatever was sent is due at once.
    let options = ExecutorOptions { parallel: 1, renominate: Duration::ZERO };
    let (events, metrics) = (Events::new(client.clone()), Metrics::default().gangs);
    let mut executor = Executor::new(client.clone(), cluster.clone(), events, metrics, options, Clock::real());
    let state = cluster.load();
    executor.execute(&state, names.iter().map(|name| release(&state, name)).collect(), &tenure).await;
    made(&mut calls, "PATCH /api/v1/namespaces/ns/pods/stuck-0/status").await;
    // Decided again while the first patch hangs: one member as before, the other by another plan.
    let mut again = vec![release(&state, "stuck-1"), release(&state, "stuck-2")];
    if let Action::Release(release) = &mut again[1] {
        (release.epoch, release.node) = (2, NodeName::from("n2"));
    }
    executor.execute(&state, again, &tenure).await;
    gate.send(true).unwrap();
    executor.finish().await;
    let mut all = Vec::new();
    while let Ok(call) = calls.try_recv() {
        all.push(call);
    }
    let patches = |name: &str| all.iter().filter(|call| call.contains(&format!("/pods/{name}"))).count();
    assert_eq!((patches("stuck-1"), patches("stuck-2")), (2, 2), "nomination and release, once: {all:#?}");
}

/// A pod as the API server keeps it, which deletes of a pinned member are about: what it answers, and the calls that were made.
async fn discarded(newest: Value) -> Vec<String> {
    let (sent, mut calls) = mpsc::unbounded_channel();
    let service = tower::service_fn(move |request: Request<Body>| {
        let (sent, newest) = (sent.clone(), newest.clone());
        async move {
            let what = format!("{} {}", request.method(), request.uri().path().rsplit('/').next().unwrap());
            let body = request.into_body().collect_bytes().await.unwrap();
            let body: Value = serde_json::from_slice(&body).unwrap_or_default();
            let version = body.pointer("/metadata/resourceVersion").and_then(Value::as_str).unwrap_or_default();
            sent.send(format!("{what} {version}").trim_end().to_owned()).unwrap();
            Ok::<_, Infallible>(Response::new(Body::from(newest.to_string().into_bytes())))
        }
    });
    let client = Client::new(service, "ns");
    let (_store, cluster) = known();
    let (_leads, tenure) = leads();
    let state = cluster.load();
    let mut executor = executor(&client, &cluster);
    let mut pod = muster_core::model::gang::Pod::clone(state.snapshot.pods.get(&PodUid::from("other")).unwrap());
    pod.pinned = Some(NodeName::from("n1"));
    let evict = Evict { pod: Arc::new(pod), why: "its place is elsewhere".to_owned(), at_once: true };
    executor.execute(&state, vec![Action::Evict(Box::new(evict))], &tenure).await;
    executor.finish().await;
    so_far(&mut calls)
}

#[tokio::test]
async fn a_pinned_member_that_has_a_node_by_now_is_not_deleted_and_the_mark_names_what_was_looked_at() {
    let pod = |uid: &str, node: Value| {
        json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": "other", "namespace": "ns", "uid": uid, "resourceVersion": "7"},
            "spec": {"containers": [], "nodeName": node},
        })
    };
    assert_eq!(discarded(pod("other", Value::Null)).await, ["GET other", "PATCH status 7", "DELETE other"]);
    assert_eq!(discarded(pod("other", json!("n1"))).await, ["GET other"], "it was bound meanwhile");
    assert_eq!(
        discarded(pod("another", Value::Null)).await,
        ["GET other"],
        "another pod of that name is nobody's business"
    );
}

/// Waits until the loop has gone round twice: it takes a request to look again at the beginning of each turn, and a third one once
/// two have ended.
async fn two_turns(requeue: &Notify) {
    for _ in 0..3 {
        requeue.notify_one();
        while requeue.notified().now_or_never().is_some() {
            requeue.notify_one();
            tokio::task::yield_now().await;
        }
    }
}

#[tokio::test]
async fn a_replica_with_the_lease_decides_nothing_before_it_has_seen_what_was_written_before() {
    let (sent, mut calls) = mpsc::unbounded_channel();
    let client = api(sent, &[]);
    let (_store, cluster) = known();
    let (_election, leader) = watch::channel(Some(Term::default()));
    let (stated, current) = watch::channel(None);
    let requeue = Arc::new(Notify::new());
    let inputs = Inputs {
        cluster: cluster.clone(),
        levels: Levels::default(),
        pools: Arc::new(ArcSwap::from_pointee(Vec::new())),
        settings: Settings::new(keys::GANG_PENDING),
        leader,
        current,
        requeue: Arc::clone(&requeue),
        metrics: Metrics::default().gangs,
        beat: Progress::default().of("gangs"),
        recorder: None,
    };
    let cancel = CancellationToken::new();
    let run = tokio::spawn(GangLoop::new(inputs, executor(&client, &cluster)).run(cancel.clone()));
    two_turns(&requeue).await;
    assert_eq!(calls.try_recv().ok(), None);
    // Of a term that is over.
    stated.send_replace(Some(Term::default().next()));
    two_turns(&requeue).await;
    assert_eq!(calls.try_recv().ok(), None);
    stated.send_replace(Some(Term::default()));
    assert!(calls.recv().await.unwrap().contains("/gangs/"));
    run.abort();
}
