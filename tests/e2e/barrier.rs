//! The barrier against the real API server, with somebody else's write at a chosen moment of its own calls.
//!
//! No `muster serve` runs beside it: the Gangs are written by the test, and the extender is served by this process.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking, its helpers too")]

use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use futures::future::BoxFuture;
use http::{Method, Request};
use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::{Binding, Node, Pod};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::client::{Body, ClientBuilder};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client, Config, ResourceExt};
use muster::clock::Clock;
use muster::cluster::{self, Cluster, Known, Store, StoreOptions, WatchOptions};
use muster::extender::{Barrier, BarrierOptions, Extender, Limits, router};
use muster::gang::{Events, Executor, ExecutorOptions};
use muster::progress::Progress;
use muster::server::serve;
use muster::telemetry::Metrics;
use muster::term::{Tenure, Term};
use muster::testbed::request::request;
use muster::testbed::workloads::TestPod;
use muster::testbed::{ClusterOptions, Component, Identity, Installed, StackOptions, TestCluster, eventually, reuse};
use muster_api::conventions::{self, Kind};
use muster_api::crd::{Gang, GangPlace, GangPlan, GangSource, GangSpec, GangStatus};
use muster_core::gang::{Action, Evict};
use muster_core::model::names::ObjectKey;
use muster_core::model::snapshot::NodeEntry;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tower::{BoxError, Layer, Service};

use crate::support::{DEADLINE, bare, leaves, node_of, options};

const NAMESPACE: &str = "ml";

/// What happens before a request goes out.
type Hook = Arc<dyn Fn(&Method, &str) -> BoxFuture<'static, Result<(), BoxError>> + Send + Sync>;

/// A client's layer that runs a hook before each request. The hook can be set once the client exists.
#[derive(Clone, Default)]
struct Before(Arc<Mutex<Option<Hook>>>);

impl Before {
    fn set(&self, hook: impl Fn(&Method, &str) -> BoxFuture<'static, Result<(), BoxError>> + Send + Sync + 'static) {
        *self.0.lock().unwrap() = Some(Arc::new(hook));
    }
}

impl<S> Layer<S> for Before {
    type Service = BeforeService<S>;

    fn layer(&self, inner: S) -> Self::Service {
        BeforeService { before: self.clone(), inner }
    }
}

struct BeforeService<S> {
    before: Before,
    inner: S,
}

impl<S> Service<Request<Body>> for BeforeService<S>
where
    S: Service<Request<Body>, Error = BoxError>,
    S::Future: Send + 'static,
{
    type Response = S::Response;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<S::Response, BoxError>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let hook = self.before.0.lock().unwrap().clone();
        let hooked = hook.map(|hook| hook(request.method(), request.uri().path()));
        let call = self.inner.call(request);
        Box::pin(async move {
            if let Some(hooked) = hooked {
                hooked.await?;
            }
            call.await
        })
    }
}

/// A control plane, and the extender over it.
struct Rig {
    plane: TestCluster,
    cluster: Cluster,
    before: Before,
    address: SocketAddr,
    cancel: CancellationToken,
}

impl Drop for Rig {
    fn drop(&mut self) {
        self.cancel.cancel();
    }
}

async fn config(plane: &TestCluster) -> Config {
    let file = Kubeconfig::read_from(plane.kubeconfig(Identity::Muster)).unwrap();
    Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await.unwrap()
}

impl Rig {
    async fn start(barrier: BarrierOptions) -> Option<Self> {
        let StackOptions { repository, binaries, .. } = options().await?;
        let installed = Installed::Manifests { without: Vec::new() };
        let plane = reuse::start(ClusterOptions::new(&repository, binaries), installed).await.unwrap();
        plane.create_namespace(NAMESPACE).await.unwrap();
        let watches = WatchOptions { provisioning_requests: false };
        let options = StoreOptions {
            scheduler_names: vec!["muster".to_owned()],
            provisioner_scheduler_names: Vec::new(),
            accelerators: vec!["nvidia.com/gpu".into()],
            max_age: Duration::from_secs(3600),
        };
        let (store, cluster) = Store::new(options, &watches.kinds(), &Kind::ALL);
        let (cancel, before, metrics) = (CancellationToken::new(), Before::default(), Metrics::shared());
        let contacts = Arc::clone(cluster.contacts());
        tokio::spawn(cluster::run(
            config(&plane).await,
            contacts,
            store,
            Progress::default().of("watches"),
            cancel.clone(),
        ));
        let client = ClientBuilder::try_from(config(&plane).await).unwrap().with_layer(&before).build();
        let barrier =
            Arc::new(Barrier::new(client, cluster.clone(), barrier, metrics.gangs.clone(), TaskTracker::new()));
        tokio::spawn(Arc::clone(&barrier).run(cancel.clone()));
        let extender = Extender::new(
            cluster.clone(),
            barrier,
            Arc::default(),
            metrics.extender.clone(),
            vec!["muster".to_owned()],
            Limits::default(),
        );
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(serve(listener, router(Arc::new(extender)), None, cancel.clone()));
        Some(Self { plane, cluster, before, address, cancel })
    }

    fn admin(&self) -> Client {
        self.plane.client(Identity::Admin).unwrap()
    }

    async fn nodes(&self, count: usize) {
        let nodes: Api<Node> = Api::all(self.admin());
        for node in leaves(&["a"], count) {
            nodes.create(&PostParams::default(), &node).await.unwrap();
        }
        let cluster = &self.cluster;
        eventually(DEADLINE, "the nodes to be ready and untainted", || async move {
            let state = cluster.load();
            let usable = |entry: &Arc<NodeEntry>| entry.node.ready && entry.node.taints.is_empty();
            let nodes = &state.snapshot.nodes;
            Ok::<_, String>((nodes.len() == count && nodes.values().all(usable)).then_some(()))
        })
        .await
        .unwrap();
    }

    /// Creates a pod and takes its gate away.
    async fn ungated(&self, mut pod: Pod) -> Pod {
        let pods: Api<Pod> = Api::namespaced(self.admin(), NAMESPACE);
        pod.metadata.namespace = Some(NAMESPACE.to_owned());
        pods.create(&PostParams::default(), &pod).await.unwrap();
        let ungated = json!({"spec": {"schedulingGates": []}});
        pods.patch(&pod.name_any(), &PatchParams::default(), &Patch::Merge(&ungated)).await.unwrap()
    }

    /// Pods `train-0`, `train-1`, … without a gate, and their released gang: each on `a-<n>`, all of them needed.
    async fn released(&self, size: u32) -> (ObjectKey, Vec<Pod>) {
        let mut members = Vec::new();
        for number in 0..size {
            members.push(self.ungated(bare("train", number, size)).await);
        }
        let key = self.planned(&members, "Released").await;
        (key, members)
    }

    /// The gang of these pods, each on the node of its number, all of them needed.
    async fn planned(&self, members: &[Pod], phase: &str) -> ObjectKey {
        let size = u32::try_from(members.len()).unwrap();
        let key = conventions::recognise(&members[0], &Known::default()).membership.gang().unwrap().clone();
        let source =
            GangSource { convention: "annotations".to_owned(), identity: "train".to_owned(), ..GangSource::default() };
        let spec = GangSpec { source, size, min: size, roles: Vec::new(), topology_requests: Default::default() };
        let gangs: Api<Gang> = Api::namespaced(self.admin(), NAMESPACE);
        gangs.create(&PostParams::default(), &Gang::new(&key.name, spec)).await.unwrap();
        let places: Vec<(Option<&Pod>, u32)> = members.iter().map(Some).zip(0..).collect();
        write_plan(&self.admin(), &key, 1, phase, size, &places).await;
        sees(&self.cluster, &key, 1).await;
        key
    }

    async fn bind(&self, pod: &Pod, node: &str) -> String {
        bind(self.address, pod, node).await
    }

    /// Binds every pod to the node of its number at once.
    async fn bind_all(&self, pods: &[Pod]) -> Vec<String> {
        let calls =
            pods.iter().enumerate().map(|(number, pod)| async move { self.bind(pod, &format!("a-{number}")).await });
        tokio::time::timeout(DEADLINE, futures::future::join_all(calls)).await.expect("every bind is answered")
    }

    async fn on(&self, name: &str) -> Option<String> {
        let pods: Api<Pod> = Api::namespaced(self.admin(), NAMESPACE);
        node_of(&pods.get(name).await.unwrap())
    }

    async fn phase(&self, key: &ObjectKey) -> String {
        let gangs: Api<Gang> = Api::namespaced(self.admin(), NAMESPACE);
        gangs.get(&key.name).await.unwrap().status.unwrap().phase
    }
}

/// Waits until the extender knows this epoch of the gang, and every node and pod as it will stay.
async fn sees(cluster: &Cluster, key: &ObjectKey, epoch: u64) {
    eventually(DEADLINE, format!("epoch {epoch} to be seen"), || async move {
        let state = cluster.load();
        let known = state.snapshot.gangs.get(key).is_some_and(|gang| gang.epoch == epoch);
        let ready = state.snapshot.nodes.values().all(|entry| entry.node.ready && entry.node.taints.is_empty());
        let free = state.snapshot.pods.values().all(|pod| !pod.gated);
        Ok::<_, String>((known && ready && free && state.snapshot.synced).then_some(()))
    })
    .await
    .unwrap();
}

/// What kube-scheduler would be answered to a bind; empty: bound.
async fn bind(address: SocketAddr, pod: &Pod, node: &str) -> String {
    let body =
        json!({"PodName": pod.name_any(), "PodNamespace": NAMESPACE, "PodUID": pod.uid().unwrap(), "Node": node});
    let answer = request(address, "POST", "/v1/bind/bind", &body.to_string()).await.unwrap();
    let answer: Value = serde_json::from_str(&answer).unwrap();
    answer["Error"].as_str().unwrap().to_owned()
}

/// The nodes that `filter` leaves.
async fn filter(address: SocketAddr, pod: &Pod, nodes: &[&str]) -> Value {
    let body = json!({"Pod": pod, "Nodes": null, "NodeNames": nodes});
    let answer = request(address, "POST", "/v1/sync/filter", &body.to_string()).await.unwrap();
    let answer: Value = serde_json::from_str(&answer).unwrap();
    answer["NodeNames"].clone()
}

/// Writes a plan: each pod on the node of its number.
async fn write_plan(
    client: &Client,
    key: &ObjectKey,
    epoch: u64,
    phase: &str,
    minimum: u32,
    places: &[(Option<&Pod>, u32)],
) {
    let nodes: Vec<String> = places.iter().map(|(_, node)| format!("a-{node}")).collect();
    let place = |(rank, (pod, _)): (u32, &(Option<&Pod>, u32))| GangPlace {
        role: String::new(),
        rank,
        uid: pod.and_then(ResourceExt::uid),
        pod: pod.map(ResourceExt::name_any),
        node: rank,
        done: false,
    };
    let places = (0..).zip(places).map(place).collect();
    let plan = GangPlan { minimum, nodes, places, ..GangPlan::default() };
    let status = GangStatus { version: 1, phase: phase.to_owned(), epoch, plan: Some(plan), ..GangStatus::default() };
    let gangs: Api<Gang> = Api::namespaced(client.clone(), NAMESPACE);
    let patch = json!({"status": status});
    gangs.patch_status(&key.name, &PatchParams::default(), &Patch::Merge(&patch)).await.unwrap();
}

fn is_commit(method: &Method, path: &str) -> bool {
    method == Method::PATCH && path.contains("/gangs/") && path.ends_with("/status")
}

fn is_binding(method: &Method, path: &str) -> bool {
    method == Method::POST && path.ends_with("/binding")
}

/// A barrier that holds for twenty seconds, and bind calls that end within `limit`.
fn options_of(limit: Duration) -> BarrierOptions {
    BarrierOptions { hold: Duration::from_secs(20), limit, parallel: 64 }
}

/// Longer than any test.
const LONG: Duration = Duration::from_secs(120);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_gang_that_is_planned_again_while_its_commit_is_written_is_bound_by_nobody() {
    let Some(rig) = Rig::start(options_of(LONG)).await else { return };
    rig.nodes(3).await;
    let (key, pods) = rig.released(2).await;
    let (admin, writes) = (rig.admin(), Arc::new(AtomicUsize::new(0)));
    let (planned, gang) = (pods.clone(), key.clone());
    rig.before.set(move |method, path| {
        let first = is_commit(method, path) && writes.fetch_add(1, Ordering::SeqCst) == 0;
        let (admin, gang, pods) = (admin.clone(), gang.clone(), planned.clone());
        Box::pin(async move {
            if first {
                write_plan(&admin, &gang, 2, "Released", 2, &[(Some(&pods[0]), 0), (Some(&pods[1]), 2)]).await;
            }
            Ok(())
        })
    });
    let answers = rig.bind_all(&pods).await;
    assert!(answers.iter().all(|answer| answer.contains("replanned")), "{answers:?}");
    assert_eq!((rig.on("train-0").await, rig.on("train-1").await), (None, None));
    assert_eq!(rig.phase(&key).await, "Released", "the newer plan stands");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_minimum_that_rises_while_the_commit_is_written_is_counted_again() {
    let Some(rig) = Rig::start(options_of(LONG)).await else { return };
    rig.nodes(3).await;
    let (key, pods) = rig.released(2).await;
    let (admin, writes) = (rig.admin(), Arc::new(AtomicUsize::new(0)));
    let (planned, gang) = (pods.clone(), key.clone());
    rig.before.set(move |method, path| {
        let first = is_commit(method, path) && writes.fetch_add(1, Ordering::SeqCst) == 0;
        let (admin, gang, pods) = (admin.clone(), gang.clone(), planned.clone());
        Box::pin(async move {
            if first {
                // The same nodes for both, and a third member that the gang needs by now.
                let places = [(Some(&pods[0]), 0), (Some(&pods[1]), 1), (None, 2)];
                write_plan(&admin, &gang, 2, "Released", 3, &places).await;
            }
            Ok(())
        })
    });
    let answers = rig.bind_all(&pods).await;
    assert!(answers.iter().all(|answer| !answer.is_empty()), "{answers:?}");
    assert_eq!((rig.on("train-0").await, rig.on("train-1").await), (None, None), "two of three");
    assert_eq!(rig.phase(&key).await, "Released");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_write_that_changes_no_place_delays_the_commit_and_nothing_more() {
    let Some(rig) = Rig::start(options_of(LONG)).await else { return };
    rig.nodes(2).await;
    let (key, pods) = rig.released(2).await;
    let (admin, writes) = (rig.admin(), Arc::new(AtomicUsize::new(0)));
    let (gang, count) = (key.clone(), Arc::clone(&writes));
    rig.before.set(move |method, path| {
        let first = is_commit(method, path) && count.fetch_add(1, Ordering::SeqCst) == 0;
        let (admin, gang) = (admin.clone(), gang.clone());
        Box::pin(async move {
            if first {
                let gangs: Api<Gang> = Api::namespaced(admin, NAMESPACE);
                let patch = Patch::Merge(json!({"status": {"members": "2/2"}}));
                gangs.patch_status(&gang.name, &PatchParams::default(), &patch).await?;
            }
            Ok(())
        })
    });
    assert_eq!(rig.bind_all(&pods).await, ["", ""]);
    assert_eq!(writes.load(Ordering::SeqCst), 2, "refused once, written once");
    assert_eq!(rig.on("train-1").await.as_deref(), Some("a-1"));
    assert_eq!(rig.phase(&key).await, "Committing");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_binding_that_is_never_answered_is_given_up_in_time() {
    let Some(rig) = Rig::start(options_of(Duration::from_secs(3))).await else { return };
    rig.nodes(1).await;
    let (_, pods) = rig.released(1).await;
    rig.before.set(|method, path| {
        let hangs = is_binding(method, path);
        Box::pin(async move { if hangs { std::future::pending().await } else { Ok(()) } })
    });
    let answers = rig.bind_all(&pods).await;
    assert!(answers[0].contains("no answer"), "{answers:?}");
    // The next call posts at once: the commit point is behind.
    rig.before.set(|_, _| Box::pin(async { Ok(()) }));
    let (rig, pods) = (&rig, &pods);
    eventually(DEADLINE, "the binding to be made", || async move {
        let answers = rig.bind_all(pods).await;
        // An API server that is busy may be late once more.
        if answers[0].contains("no answer") {
            return Err(format!("{answers:?}"));
        }
        assert_eq!(answers, [""]);
        Ok(Some(()))
    })
    .await
    .unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_place_that_is_given_up_between_two_attempts_is_not_posted_to_again() {
    let Some(rig) = Rig::start(options_of(LONG)).await else { return };
    rig.nodes(2).await;
    let (key, pods) = rig.released(2).await;
    let (admin, cluster, attempts) = (rig.admin(), rig.cluster.clone(), Arc::new(AtomicUsize::new(0)));
    let (gang, planned, count) = (key.clone(), pods.clone(), Arc::clone(&attempts));
    rig.before.set(move |method, path| {
        let second = is_binding(method, path) && path.contains("train-1");
        let first_time = second && count.fetch_add(1, Ordering::SeqCst) == 0;
        let (admin, gang, cluster, pods) = (admin.clone(), gang.clone(), cluster.clone(), planned.clone());
        Box::pin(async move {
            if first_time {
                // The gang is planned again without this member's place, then the connection breaks.
                write_plan(&admin, &gang, 2, "Bound", 1, &[(Some(&pods[0]), 0)]).await;
                sees(&cluster, &gang, 2).await;
                return Err("the connection broke".into());
            }
            Ok(())
        })
    });
    let answers = rig.bind_all(&pods).await;
    assert_eq!(answers[0], "");
    assert!(answers[1].contains("replanned"), "{answers:?}");
    assert_eq!((attempts.load(Ordering::SeqCst), rig.on("train-1").await), (1, None));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ordinary_pods_bound_one_after_the_other_leave_the_assignment_whole_before_the_watch_shows_them() {
    let Some(rig) = Rig::start(options_of(LONG)).await else { return };
    rig.nodes(1).await;
    let mut member = bare("train", 0, 1);
    let resources = member.spec.as_mut().unwrap().containers[0].resources.as_mut().unwrap();
    for amounts in [&mut resources.requests, &mut resources.limits] {
        amounts.as_mut().unwrap().get_mut("nvidia.com/gpu").unwrap().0 = "4".to_owned();
    }
    let member = rig.ungated(member).await;
    let mut singles = Vec::new();
    for name in ["one", "two", "three"] {
        singles.push(rig.ungated(TestPod::new(name).gpus(4).build()).await);
    }
    rig.planned(&[member], "Planned").await;
    assert_eq!(filter(rig.address, &singles[2], &["a-0"]).await, json!(["a-0"]));
    // While the first is being posted, the others ask: eight GPUs, four of them assigned.
    let during = Arc::new(Mutex::new(Vec::new()));
    let (address, others, stated) = (rig.address, singles[1..].to_vec(), Arc::clone(&during));
    rig.before.set(move |method, path| {
        let first = is_binding(method, path) && path.contains("/pods/one/");
        let (others, stated) = (others.clone(), Arc::clone(&stated));
        Box::pin(async move {
            if first {
                let second = bind(address, &others[0], "a-0").await;
                let third = filter(address, &others[1], &["a-0"]).await;
                stated.lock().unwrap().push((second, third));
            }
            Ok(())
        })
    });
    assert_eq!(rig.bind(&singles[0], "a-0").await, "");
    assert_eq!(*during.lock().unwrap(), [("assigned to a gang".to_owned(), json!([]))]);
    assert_eq!(rig.on("two").await, None);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_bind_to_a_node_whose_taint_is_shown_a_moment_longer_waits_for_its_end() {
    let Some(rig) = Rig::start(options_of(LONG)).await else { return };
    rig.nodes(2).await;
    let nodes: Api<Node> = Api::all(rig.admin());
    let taint = json!({"spec": {"taints": [{"key": "example.com/starting", "effect": "NoSchedule"}]}});
    for name in ["a-0", "a-1"] {
        nodes.patch(name, &PatchParams::default(), &Patch::Strategic(&taint)).await.unwrap();
    }
    let cluster = &rig.cluster;
    eventually(DEADLINE, "the taints to be seen", || async move {
        let nodes = &cluster.load().snapshot.nodes;
        Ok::<_, String>(nodes.values().all(|entry| !entry.node.taints.is_empty()).then_some(()))
    })
    .await
    .unwrap();
    let (one, two) = (rig.ungated(TestPod::new("one").build()).await, rig.ungated(TestPod::new("two").build()).await);
    let untainted = async {
        // kube-scheduler may see this first, and bind at once.
        nodes.patch("a-0", &PatchParams::default(), &Patch::Merge(json!({"spec": {"taints": null}}))).await.unwrap();
    };
    let (bound, ()) = futures::join!(rig.bind(&one, "a-0"), untainted);
    assert_eq!(bound, "");
    assert_eq!(rig.on("one").await.as_deref(), Some("a-0"));
    assert_eq!(rig.bind(&two, "a-1").await, "the node has an untolerated taint");
    assert_eq!(rig.on("two").await, None);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_owner_that_somebody_wrote_on_a_pod_opens_no_assigned_node_and_a_real_daemonset_does() {
    let Some(rig) = Rig::start(options_of(LONG)).await else { return };
    rig.nodes(1).await;
    let member = rig.ungated(bare("train", 0, 1)).await;
    let owned = |name: &str, kind: &str, version: &str| {
        let mut pod = TestPod::new(name).gpus(8).build();
        let owner =
            json!([{"apiVersion": version, "kind": kind, "name": "agent", "uid": "made-up", "controller": true}]);
        pod.metadata.owner_references = serde_json::from_value(owner).unwrap();
        pod
    };
    // The controllers that would take such pods away again do not matter here: they come too late.
    rig.plane.kill(Component::ControllerManager).unwrap();
    let forged = [
        rig.ungated(owned("forged", "DaemonSet", "apps/v1")).await,
        rig.ungated(owned("mirrored", "Node", "v1")).await,
    ];
    rig.planned(&[member], "Planned").await;
    for pod in &forged {
        assert_eq!(filter(rig.address, pod, &["a-0"]).await, json!([]), "{}", pod.name_any());
        assert_eq!(rig.bind(pod, "a-0").await, "assigned to a gang", "{}", pod.name_any());
    }
    rig.plane.restart(Component::ControllerManager).await.unwrap();
    let sets: Api<DaemonSet> = Api::namespaced(rig.admin(), NAMESPACE);
    let spec = TestPod::new("agent").build().spec;
    let set = json!({"metadata": {"name": "agent"}, "spec": {
        "selector": {"matchLabels": {"app": "agent"}},
        "template": {"metadata": {"labels": {"app": "agent"}}, "spec": spec},
    }});
    sets.create(&PostParams::default(), &serde_json::from_value(set).unwrap()).await.unwrap();
    let pods: Api<Pod> = Api::namespaced(rig.admin(), NAMESPACE);
    let (pods, address) = (&pods, rig.address);
    eventually(DEADLINE, "the DaemonSet's pod to be let through", || async move {
        let of_set = ListParams::default().labels("app=agent");
        let Some(pod) = pods.list(&of_set).await.map_err(|error| error.to_string())?.items.pop() else {
            return Err("there is no pod yet".to_owned());
        };
        Ok((filter(address, &pod, &["a-0"]).await == json!(["a-0"])).then_some(()))
    })
    .await
    .unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn annotations_that_muster_writes_are_refused_from_everybody_else() {
    let Some(rig) = Rig::start(options_of(LONG)).await else { return };
    let admin: Api<Pod> = Api::namespaced(rig.admin(), NAMESPACE);
    let muster: Api<Pod> = Api::namespaced(rig.plane.client(Identity::Muster).unwrap(), NAMESPACE);
    let written = |key: &str| TestPod::new("forged").annotation(key, "1").build();
    let for_show = PostParams { dry_run: true, ..PostParams::default() };
    let (creates, forged, show) = (&admin, &written("muster.dev/plan-epoch"), &for_show);
    eventually(DEADLINE, "the policy to count", || async move {
        Ok::<_, String>(creates.create(show, forged).await.is_err().then_some(()))
    })
    .await
    .unwrap();
    let reserved = ["muster.dev/plan-epoch", "muster.dev/planned-node", "muster.dev/wake", "muster.dev/assigned-rank"];
    for key in reserved {
        let stated = admin.create(&for_show, &written(key)).await.unwrap_err().to_string();
        assert!(stated.contains(&format!("{key}: written by Muster alone")), "{stated}");
    }
    let pod = TestPod::new("train-0").annotation("muster.dev/gang", "train").build();
    admin.create(&PostParams::default(), &pod).await.unwrap();
    let change = |value: Value| Patch::Merge(json!({"metadata": {"annotations": value}}));
    let params = PatchParams::default();
    let ours = json!({"muster.dev/plan-epoch": "3", "muster.dev/planned-node": "a-0", "muster.dev/wake": "1"});
    muster.patch("train-0", &params, &change(ours)).await.unwrap();
    for forged in [json!({"muster.dev/plan-epoch": "4"}), json!({"muster.dev/planned-node": null})] {
        assert!(admin.patch("train-0", &params, &change(forged.clone())).await.is_err(), "{forged}");
        assert!(
            admin.patch_status("train-0", &params, &change(forged.clone())).await.is_err(),
            "{forged} by the status"
        );
    }
    admin.patch("train-0", &params, &change(json!({"note": "mine"}))).await.unwrap();
    let gate = Patch::Merge(json!({"spec": {"schedulingGates": []}}));
    admin.patch("train-0", &params, &gate).await.unwrap();
    let binding: Binding = serde_json::from_value(json!({
        "metadata": {"name": "train-0", "annotations": {"muster.dev/assigned-rank": "0"}},
        "target": {"apiVersion": "v1", "kind": "Node", "name": "a-0"},
    }))
    .unwrap();
    let bind = |pods: Api<Pod>| {
        let binding = binding.clone();
        async move { pods.create_subresource::<_, Value>("binding", "train-0", &PostParams::default(), &binding).await }
    };
    assert!(bind(admin.clone()).await.unwrap_err().to_string().contains("written by Muster alone"));
    bind(muster.clone()).await.unwrap();
    assert_eq!(admin.get("train-0").await.unwrap().annotations()["muster.dev/assigned-rank"], "0");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pod_made_again_under_its_name_is_not_evicted_for_the_one_before() {
    let Some(rig) = Rig::start(options_of(LONG)).await else { return };
    let pods: Api<Pod> = Api::namespaced(rig.admin(), NAMESPACE);
    let first = rig.ungated(bare("train", 0, 1)).await;
    rig.planned(std::slice::from_ref(&first), "Planned").await;
    let before = rig.cluster.load();
    let seen = before.snapshot.pods.get(first.uid().unwrap().as_str()).unwrap();
    pods.delete("train-0", &DeleteParams::default().grace_period(0)).await.unwrap();
    let again = rig.ungated(bare("train", 0, 1)).await;
    let client = rig.plane.client(Identity::Muster).unwrap();
    let options = ExecutorOptions { parallel: 1, renominate: Duration::from_secs(10) };
    let (cluster, events, metrics) = (rig.cluster.clone(), Events::new(client.clone()), Metrics::default().gangs);
    let mut executor = Executor::new(client, cluster, events, metrics, options, Clock::real());
    let (_leads, leader) = tokio::sync::watch::channel(Some(Term::default()));
    let tenure = Tenure::of(&leader).unwrap();
    for at_once in [false, true] {
        let evict = Evict { pod: Arc::clone(seen), why: "a member was lost".to_owned(), at_once };
        executor.execute(&before, vec![Action::Evict(Box::new(evict))], &tenure).await;
        executor.finish().await;
        executor.forget();
        let now = pods.get("train-0").await.unwrap();
        assert_eq!((now.uid(), now.metadata.deletion_timestamp), (again.uid(), None));
    }
}
