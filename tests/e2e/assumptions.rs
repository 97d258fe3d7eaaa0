//! What Muster takes for granted about kube-scheduler and the API server, each pinned on the real ones: a version that
//! changes one of these fails here, and not in somebody's cluster.
//!
//! An extender of the test's own stands where `muster serve` would, and does as each test says.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking, its helpers too")]

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::extract::{Path, State};
use axum::routing::post;
use axum::{Json, Router};
use k8s_openapi::api::core::v1::{Binding, Node, ObjectReference, Pod, PodCondition};
use kube::api::{DeleteParams, ObjectMeta, Patch, PatchParams, PostParams};
use kube::{Api, Client};
use muster::testbed::nodes::TestNode;
use muster::testbed::workloads::TestPod;
use muster::testbed::{
    ClusterOptions, Component, Identity, Installed, SchedulerOptions, TestCluster, eventually, reuse,
};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::watch;

use crate::support::{DEADLINE, node_of, options};

/// What the extender answers to a verb, by the request.
type Answer = Box<dyn Fn(&Value) -> Value + Send + Sync>;

/// The test's extender.
struct Fake {
    client: Client,
    calls: Mutex<Vec<(String, Value)>>,
    filter: Mutex<Answer>,
    prioritize: Mutex<Answer>,
    preempt: Mutex<Answer>,
    /// Bind calls go on once this is true.
    open: watch::Sender<bool>,
}

fn names(body: &Value) -> Vec<String> {
    body["NodeNames"].as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
}

/// Keeps these nodes; the others are rejected for good, with a reason.
fn keep(body: &Value, kept: impl Fn(&str) -> bool, reason: &str) -> Value {
    let (kept, rejected): (Vec<String>, Vec<String>) = names(body).into_iter().partition(|name| kept(name));
    let failed: serde_json::Map<String, Value> = rejected.into_iter().map(|name| (name, json!(reason))).collect();
    json!({"Nodes": null, "NodeNames": kept, "FailedNodes": {}, "FailedAndUnresolvableNodes": failed, "Error": ""})
}

impl Fake {
    fn new(client: Client) -> Arc<Self> {
        Arc::new(Self {
            client,
            calls: Mutex::default(),
            filter: Mutex::new(Box::new(|body| keep(body, |_| true, ""))),
            prioritize: Mutex::new(Box::new(|_| json!([]))),
            preempt: Mutex::new(Box::new(|body| json!({"NodeNameToMetaVictims": body["NodeNameToMetaVictims"]}))),
            open: watch::channel(true).0,
        })
    }

    fn filters(&self, answer: impl Fn(&Value) -> Value + Send + Sync + 'static) {
        *self.filter.lock().unwrap() = Box::new(answer);
    }

    /// Requests of one verb for a pod, in order.
    fn asked(&self, verb: &str, pod: &str) -> Vec<Value> {
        let of = |body: &Value| body["Pod"]["metadata"]["name"] == pod || body["PodName"] == pod;
        let calls = self.calls.lock().unwrap();
        calls.iter().filter(|(called, body)| called == verb && of(body)).map(|(_, body)| body.clone()).collect()
    }

    async fn is_asked(&self, verb: &str, pod: &str, times: usize) -> Vec<Value> {
        eventually(DEADLINE, format!("{times} {verb} calls for {pod}"), || async move {
            let asked = self.asked(verb, pod);
            if asked.len() >= times { Ok(Some(asked)) } else { Err(format!("{} calls", asked.len())) }
        })
        .await
        .unwrap()
    }
}

async fn answer(State(fake): State<Arc<Fake>>, Path(verb): Path<String>, Json(body): Json<Value>) -> Json<Value> {
    fake.calls.lock().unwrap().push((verb.clone(), body.clone()));
    Json(match verb.as_str() {
        "filter" => (fake.filter.lock().unwrap())(&body),
        "prioritize" => (fake.prioritize.lock().unwrap())(&body),
        "preempt" => (fake.preempt.lock().unwrap())(&body),
        _ => {
            let mut open = fake.open.subscribe();
            open.wait_for(|open| *open).await.unwrap();
            let (namespace, name) = (body["PodNamespace"].as_str().unwrap(), body["PodName"].as_str().unwrap());
            let bound =
                bind(&fake.client, namespace, name, body["PodUID"].as_str(), body["Node"].as_str().unwrap()).await;
            json!({"Error": bound.err().map(|error| error.to_string()).unwrap_or_default()})
        }
    })
}

async fn bind(client: &Client, namespace: &str, name: &str, uid: Option<&str>, node: &str) -> kube::Result<Value> {
    let binding = Binding {
        metadata: ObjectMeta {
            name: Some(name.to_owned()),
            uid: uid.map(str::to_owned),
            annotations: Some([("example.com/mark".to_owned(), "of the binding".to_owned())].into()),
            ..ObjectMeta::default()
        },
        target: ObjectReference {
            kind: Some("Node".to_owned()),
            name: Some(node.to_owned()),
            ..ObjectReference::default()
        },
    };
    let pods: Api<Pod> = Api::namespaced(client.clone(), namespace);
    pods.create_subresource("binding", name, &PostParams::default(), &binding).await
}

/// A kube-scheduler with the shipped configuration that calls the fake.
struct Bench {
    cluster: TestCluster,
    fake: Arc<Fake>,
    client: Client,
}

async fn bench(nodes: impl IntoIterator<Item = Node>) -> Option<Bench> {
    bench_of("own-scheduler.yaml", nodes).await
}

/// With another of the shipped configurations.
async fn bench_of(file: &'static str, nodes: impl IntoIterator<Item = Node>) -> Option<Bench> {
    let options = options().await?;
    let mut cluster = ClusterOptions::new(&options.repository, options.binaries.clone());
    cluster.controller_manager = false;
    let cluster = reuse::start(cluster, Installed::Nothing).await.unwrap();
    let client = cluster.client(Identity::Admin).unwrap();
    cluster.create_namespace("ns").await.unwrap();
    let api: Api<Node> = Api::all(client.clone());
    for node in nodes {
        api.create(&PostParams::default(), &node).await.unwrap();
    }
    let fake = Fake::new(client.clone());
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address: SocketAddr = listener.local_addr().unwrap();
    let router = Router::new()
        .route("/v1/sync/{verb}", post(answer))
        .route("/v1/bind/{verb}", post(answer))
        .route("/v1/all/{verb}", post(answer))
        .with_state(Arc::clone(&fake));
    tokio::spawn(async move { axum::serve(listener, router).await });
    // Without kube-controller-manager nobody takes the taint of new nodes away.
    cluster.start_scheduler(&SchedulerOptions { file, ..SchedulerOptions::new(Some(address)) }).await.unwrap();
    Some(Bench { cluster, fake, client })
}

fn nodes(count: usize) -> Vec<Node> {
    (0..count).map(|number| TestNode::new(format!("n{number}")).build()).collect()
}

impl Bench {
    fn pods(&self) -> Api<Pod> {
        Api::namespaced(self.client.clone(), "ns")
    }

    async fn create(&self, pod: TestPod) -> Pod {
        self.create_built(pod.build()).await
    }

    async fn create_built(&self, mut pod: Pod) -> Pod {
        // Nodes are new and nobody says that they are ready.
        pod.spec.as_mut().unwrap().tolerations = serde_json::from_value(json!([{"operator": "Exists"}])).unwrap();
        self.pods().create(&PostParams::default(), &pod).await.unwrap()
    }

    async fn delete(&self, name: &str) {
        self.pods().delete(name, &DeleteParams::default().grace_period(0)).await.unwrap();
    }

    async fn patch(&self, name: &str, patch: Value) -> Pod {
        self.pods().patch(name, &PatchParams::default(), &Patch::Merge(&patch)).await.unwrap()
    }

    async fn patch_status(&self, name: &str, patch: Value) -> Pod {
        self.pods().patch_status(name, &PatchParams::default(), &Patch::Merge(&patch)).await.unwrap()
    }

    async fn bound(&self, name: &str) -> String {
        let pods = &self.pods();
        eventually(DEADLINE, format!("{name} to be bound"), || async move {
            Ok::<_, kube::Error>(node_of(&pods.get(name).await?))
        })
        .await
        .unwrap_or_else(|error| panic!("{error}\n{}", self.cluster.report(40)))
    }

    /// The condition `PodScheduled`, once it is as it should be.
    async fn reported(&self, name: &str, is: impl Fn(&PodCondition) -> bool) -> PodCondition {
        let (pods, is) = (&self.pods(), &is);
        eventually(DEADLINE, format!("{name} to be reported"), || async move {
            let pod = pods.get(name).await.map_err(|error| error.to_string())?;
            let conditions = pod.status.and_then(|status| status.conditions).unwrap_or_default();
            let condition = conditions.into_iter().find(|condition| condition.type_ == "PodScheduled");
            match condition {
                Some(condition) if is(&condition) => Ok(Some(condition)),
                other => Err(format!("{other:?}")),
            }
        })
        .await
        .unwrap_or_else(|error| panic!("{error}\n{}", self.cluster.report(40)))
    }
}

fn message(condition: &PodCondition) -> &str {
    condition.message.as_deref().unwrap_or_default()
}

fn gated(name: &str) -> TestPod {
    TestPod::new(name).gpus(8).gate("example.com/gate")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_released_pod_is_tried_on_its_nomination_or_its_pin_alone() {
    let Some(bench) = bench(nodes(5)).await else { return };
    // A nomination on a gated pod is taken; when the gate goes, filter is asked for that node alone.
    bench.create(gated("nominated")).await;
    bench.patch_status("nominated", json!({"status": {"nominatedNodeName": "n3"}})).await;
    bench.patch("nominated", json!({"spec": {"schedulingGates": []}})).await;
    assert_eq!(bench.bound("nominated").await, "n3");
    let asked = bench.fake.asked("filter", "nominated");
    assert_eq!(asked.iter().map(names).collect::<Vec<_>>(), [["n3"]]);
    assert!(bench.fake.asked("prioritize", "nominated").is_empty(), "one node is not scored");

    // One merge patch drops the gate and pins by node affinity.
    bench.create(gated("pinned")).await;
    let pin = json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
        {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]}
    ]}}});
    bench.patch("pinned", json!({"spec": {"schedulingGates": [], "affinity": pin}})).await;
    assert_eq!(bench.bound("pinned").await, "n1");
    assert_eq!(bench.fake.asked("filter", "pinned").iter().map(names).collect::<Vec<_>>(), [["n1"]]);

    // A nomination that does not fit costs a full evaluation, in which every other node is offered.
    bench.create(gated("misled")).await;
    bench.patch_status("misled", json!({"status": {"nominatedNodeName": "n3"}})).await;
    bench.patch("misled", json!({"spec": {"schedulingGates": []}})).await;
    let node = bench.bound("misled").await;
    assert!(["n0", "n2", "n4"].contains(&node.as_str()), "{node}");
    let offered: BTreeSet<String> = names(bench.fake.asked("filter", "misled").last().unwrap()).into_iter().collect();
    assert_eq!(offered, BTreeSet::from(["n0".to_owned(), "n2".to_owned(), "n4".to_owned()]));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_bind_that_blocks_holds_its_capacity_and_nobody_else() {
    let Some(bench) = bench(nodes(4)).await else { return };
    bench.fake.open.send_replace(false);
    for number in 0..3 {
        bench.create(TestPod::new(format!("p{number}")).gpus(8)).await;
    }
    for number in 0..3 {
        bench.fake.is_asked("bind", &format!("p{number}"), 1).await;
    }
    // While three bind calls block, the loop goes on; their capacities are taken, and their conditions say nothing of it.
    bench.create(TestPod::new("p3").gpus(8)).await;
    bench.fake.is_asked("bind", "p3", 1).await;
    bench.create(TestPod::new("p4").gpus(8)).await;
    let reported = bench.reported("p4", |condition| condition.reason.as_deref() == Some("Unschedulable")).await;
    assert!(message(&reported).contains("4 Insufficient nvidia.com/gpu"), "{}", message(&reported));
    assert!(bench.fake.asked("filter", "p4").is_empty(), "filter is not asked when in-tree filters leave no node");
    // A pod that is deleted while its bind blocks gives its capacity back at once.
    bench.delete("p0").await;
    bench.fake.is_asked("bind", "p4", 1).await;
    bench.fake.open.send_replace(true);
    let mut on = BTreeSet::new();
    for name in ["p1", "p2", "p3", "p4"] {
        on.insert(bench.bound(name).await);
    }
    assert_eq!(on.len(), 4);
    let pod = bench.pods().get("p1").await.unwrap();
    let marks = pod.metadata.annotations.unwrap();
    assert_eq!(marks["example.com/mark"], "of the binding", "annotations of the Binding are the pod's");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rejected_pod_waits_until_something_about_it_changes() {
    let Some(bench) = bench(nodes(3)).await else { return };
    bench.fake.filters(|body| keep(body, |_| false, "waiting for gang"));
    bench.create(TestPod::new("rejected").gpus(8)).await;
    let reported = bench.reported("rejected", |condition| condition.reason.as_deref() == Some("Unschedulable")).await;
    assert!(message(&reported).starts_with("0/3 nodes are available: 3 waiting for gang."), "{}", message(&reported));
    bench.create(TestPod::new("large").gpus(9)).await;
    bench.reported("large", |condition| condition.reason.as_deref() == Some("Unschedulable")).await;
    // An annotation requeues it, and so does a status patch.
    let before = bench.fake.asked("filter", "rejected").len();
    bench.patch("rejected", json!({"metadata": {"annotations": {"example.com/requeue": "1"}}})).await;
    bench.fake.is_asked("filter", "rejected", before + 1).await;
    let before = bench.fake.asked("filter", "rejected").len();
    bench.fake.filters(|body| keep(body, |_| true, ""));
    bench.patch_status("rejected", json!({"status": {"nominatedNodeName": "n2"}})).await;
    bench.fake.is_asked("filter", "rejected", before + 1).await;
    bench.bound("rejected").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_error_is_shown_with_its_text_and_tried_again_without_preemption() {
    let Some(bench) = bench(nodes(1)).await else { return };
    bench.fake.filters(|_| json!({"Nodes": null, "NodeNames": null, "Error": "50%d of the state is unknown"}));
    bench.create(TestPod::new("p").gpus(8)).await;
    let reported = bench.reported("p", |condition| condition.reason.as_deref() == Some("SchedulerError")).await;
    // Older versions take the text for a format, so Muster never sends a percent sign.
    assert!(message(&reported).contains("of the state is unknown"), "{}", message(&reported));
    assert!(bench.fake.asked("preempt", "p").is_empty());
    bench.fake.filters(|body| keep(body, |_| true, ""));
    bench.bound("p").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_high_score_outweighs_every_in_tree_score_and_is_not_clamped() {
    let Some(bench) = bench(nodes(4)).await else { return };
    *bench.fake.prioritize.lock().unwrap() = Box::new(|body| {
        let score = |name: &str| if name == "n2" { 4 } else { i64::from(name == "n1") * 3 };
        json!(names(body).iter().map(|name| json!({"Host": name, "Score": score(name)})).collect::<Vec<_>>())
    });
    // n2 is the fullest, which the in-tree scores like least.
    for number in 0..6 {
        bench.create(TestPod::new(format!("p{number}")).gpus(1).request("cpu", "20")).await;
        assert_eq!(bench.bound(&format!("p{number}")).await, "n2");
    }
    *bench.fake.prioritize.lock().unwrap() = Box::new(|body| {
        json!(
            names(body)
                .iter()
                .map(|name| json!({"Host": name, "Score": if name == "n3" { 5_000 } else { 4_999 }}))
                .collect::<Vec<_>>()
        )
    });
    bench.create(TestPod::new("last").gpus(1)).await;
    assert_eq!(bench.bound("last").await, "n3");
    let log = std::fs::read_to_string(bench.cluster.log(Component::Scheduler(0))).unwrap();
    assert!(log.contains("Disabling signatures for profile because it has extenders configured"), "{log}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pod_is_bound_where_another_that_waits_for_it_cannot_follow() {
    let Some(bench) = bench([TestNode::new("running").zone("a").resource("cpu", "2").build()]).await else { return };
    let mut follower = TestPod::new("follower").request("cpu", "4").build();
    follower.spec.as_mut().unwrap().affinity = serde_json::from_value(json!({"podAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": [
            {"topologyKey": "topology.kubernetes.io/zone", "labelSelector": {"matchLabels": {"app": "first"}}},
        ],
    }}))
    .unwrap();
    bench.create_built(follower).await;
    bench.reported("follower", |condition| condition.status == "False").await;
    // Nothing is asked but what keeps this pod away: both of them in another zone is not waited for.
    bench.create(TestPod::new("first").request("cpu", "1").label("app", "first")).await;
    assert_eq!(bench.bound("first").await, "running");
    let elsewhere = TestNode::new("elsewhere").zone("b").resource("cpu", "16").build();
    Api::<Node>::all(bench.client.clone()).create(&PostParams::default(), &elsewhere).await.unwrap();
    let refused = |condition: &PodCondition| {
        message(condition).contains("0/2") && message(condition).contains("didn't match pod affinity rules")
    };
    bench.reported("follower", refused).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_preemption_that_is_vetoed_evicts_nobody() {
    let Some(bench) = bench(nodes(1)).await else { return };
    let classes: Api<k8s_openapi::api::scheduling::v1::PriorityClass> = Api::all(bench.client.clone());
    let class = serde_json::from_value(json!({"metadata": {"name": "high"}, "value": 1000})).unwrap();
    classes.create(&PostParams::default(), &class).await.unwrap();
    bench.create(TestPod::new("victim").gpus(8)).await;
    bench.bound("victim").await;
    *bench.fake.preempt.lock().unwrap() = Box::new(|_| json!({"NodeNameToMetaVictims": {}}));
    bench.create(TestPod::new("high").gpus(8).priority_class("high")).await;
    let asked = bench.fake.is_asked("preempt", "high", 1).await;
    let uid = bench.pods().get("victim").await.unwrap().metadata.uid.unwrap();
    assert_eq!(asked[0]["NodeNameToMetaVictims"], json!({"n0": {"Pods": [{"UID": uid}], "NumPDBViolations": 0}}));
    bench.reported("high", |condition| message(condition).contains("preemption: ")).await;
    assert!(bench.pods().get("victim").await.unwrap().metadata.deletion_timestamp.is_none());
    // The capacity is there once the other pod goes by itself.
    bench.delete("victim").await;
    bench.bound("high").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_nodes_that_failed_resolvably_are_candidates_for_preemption() {
    let Some(bench) = bench(nodes(2)).await else { return };
    let classes: Api<k8s_openapi::api::scheduling::v1::PriorityClass> = Api::all(bench.client.clone());
    let class = serde_json::from_value(json!({"metadata": {"name": "high"}, "value": 1000})).unwrap();
    classes.create(&PostParams::default(), &class).await.unwrap();
    for name in ["v0", "v1"] {
        bench.create(TestPod::new(name)).await;
        bench.bound(name).await;
    }
    bench.fake.filters(|_| {
        json!({"Nodes": null, "NodeNames": [], "FailedNodes": {"n0": "for now"},
            "FailedAndUnresolvableNodes": {"n1": "for good"}, "Error": ""})
    });
    bench.create(TestPod::new("high").priority_class("high")).await;
    let reported = bench.reported("high", |condition| condition.reason.as_deref() == Some("Unschedulable")).await;
    assert!(
        message(&reported).contains("1 for good") && message(&reported).contains("1 for now"),
        "{}",
        message(&reported)
    );
    for asked in bench.fake.asked("preempt", "high") {
        assert!(asked["NodeNameToMetaVictims"].get("n1").is_none(), "{asked}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_binding_is_refused_for_another_uid_for_a_gated_pod_and_for_one_that_is_bound() {
    let Some(bench) = bench(nodes(2)).await else { return };
    let refused = |result: kube::Result<Value>| match result.unwrap_err() {
        kube::Error::Api(status) if status.code == 409 => status.message,
        error => panic!("{error}"),
    };
    bench.create(gated("p")).await;
    let stated = refused(bind(&bench.client, "ns", "p", None, "n0").await);
    assert!(stated.contains("schedulingGates"), "{stated}");
    bench.fake.open.send_replace(false);
    bench.patch("p", json!({"spec": {"schedulingGates": []}})).await;
    bench.fake.is_asked("bind", "p", 1).await;
    // While the bind blocks, the condition is that of the gate.
    bench.reported("p", |condition| condition.reason.as_deref() == Some("SchedulingGated")).await;
    let stated = refused(bind(&bench.client, "ns", "p", Some("00000000-0000-0000-0000-000000000000"), "n0").await);
    assert!(stated.contains("Precondition failed: UID in precondition"), "{stated}");
    bench.fake.open.send_replace(true);
    let node = bench.bound("p").await;
    let stated = refused(bind(&bench.client, "ns", "p", None, &node).await);
    assert!(stated.contains(&format!("is already assigned to node \"{node}\"")), "{stated}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_node_is_offered_where_the_percentage_is_a_hundred() {
    let Some(bench) = bench(nodes(250)).await else { return };
    bench.create(TestPod::new("p").gpus(8)).await;
    bench.bound("p").await;
    assert_eq!(names(&bench.fake.asked("filter", "p")[0]).len(), 250);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn by_default_only_a_sample_of_the_nodes_is_offered_and_a_nomination_brings_its_node_in() {
    let Some(bench) = bench_of("default-scheduler.yaml", nodes(250)).await else { return };
    bench.create(TestPod::new("p").gpus(8).scheduler("default-scheduler")).await;
    bench.bound("p").await;
    let offered = names(&bench.fake.asked("filter", "p")[0]);
    // 50 − 250 / 125 percent.
    assert_eq!(offered.len(), 120);
    let missing = (0..250).map(|number| format!("n{number}")).find(|name| !offered.contains(name)).unwrap();
    bench.create(gated("nominated").scheduler("default-scheduler")).await;
    bench.patch_status("nominated", json!({"status": {"nominatedNodeName": missing}})).await;
    bench.patch("nominated", json!({"spec": {"schedulingGates": []}})).await;
    assert_eq!(bench.bound("nominated").await, missing);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_nomination_keeps_others_off_from_behind_a_gate_and_goes_with_a_failed_cycle() {
    let Some(bench) = bench(nodes(1)).await else { return };
    bench.create(gated("holder")).await;
    bench.patch_status("holder", json!({"status": {"nominatedNodeName": "n0"}})).await;
    bench.create(TestPod::new("other").gpus(8)).await;
    let reported = bench.reported("other", |condition| condition.reason.as_deref() == Some("Unschedulable")).await;
    assert!(message(&reported).contains("1 Insufficient nvidia.com/gpu"), "{}", message(&reported));
    // Cleared, it requeues the other.
    bench.patch_status("holder", json!({"status": {"nominatedNodeName": null}})).await;
    bench.bound("other").await;
    // Given once more and let go: the cycle fails, and the nomination is gone.
    bench.patch_status("holder", json!({"status": {"nominatedNodeName": "n0"}})).await;
    bench.patch("holder", json!({"spec": {"schedulingGates": []}})).await;
    bench.reported("holder", |condition| condition.reason.as_deref() == Some("Unschedulable")).await;
    let pods = &bench.pods();
    eventually(DEADLINE, "the nomination to be gone", || async move {
        let pod = pods.get("holder").await.map_err(|error| error.to_string())?;
        let nomination = pod.status.and_then(|status| status.nominated_node_name).unwrap_or_default();
        if nomination.is_empty() { Ok(Some(())) } else { Err(nomination) }
    })
    .await
    .unwrap();
}

/// How long a bind call may block: as long as Muster holds its barrier, within stanza B's timeout.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_bind_may_block_for_as_long_as_the_barrier_holds() {
    let Some(bench) = bench(nodes(1)).await else { return };
    bench.fake.open.send_replace(false);
    bench.create(TestPod::new("p").gpus(8)).await;
    bench.fake.is_asked("bind", "p", 1).await;
    let (fake, since) = (&bench.fake, std::time::Instant::now());
    eventually(Duration::from_secs(90), "55 seconds to pass", || async move {
        assert_eq!(fake.asked("bind", "p").len(), 1, "called again after {:?}", since.elapsed());
        Ok::<_, String>((since.elapsed() >= Duration::from_secs(55)).then_some(()))
    })
    .await
    .unwrap();
    bench.fake.open.send_replace(true);
    bench.bound("p").await;
    assert_eq!(bench.fake.asked("bind", "p").len(), 1);
}
