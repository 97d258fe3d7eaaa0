//! `muster plan` against the real kube-scheduler: random clusters with every constraint that nodes for ordinary pods are
//! planned by.
//!
//! The nodes of the document become Nodes with its labels, taints and amounts, and the pods are created in its order. The
//! scheduler runs its own filters; an extender leaves it no node but the planned one, so that what it binds shows that the
//! document is valid and not that the scheduler knew a better place. Then the reverse: a pod that nothing
//! in the catalogue holds is bound to none of the nodes that the pools could get.
//!
//! `MUSTER_AGREEMENT_CASES` sets the number of clusters, `MUSTER_AGREEMENT_SEED` the first seed; a failure names its seed.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking, its helpers too")]
#![expect(clippy::print_stderr, reason = "what a run saw")]

mod draw;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Json;
use axum::routing::post;
use futures::{StreamExt, stream};
use k8s_openapi::api::core::v1::{Binding, Namespace, Node, PersistentVolume, PersistentVolumeClaim, Pod};
use k8s_openapi::api::scheduling::v1::PriorityClass;
use kube::api::{Api, DeleteParams, ListParams, PostParams};
use kube::{Client, ResourceExt};
use muster::testbed::{Binaries, ClusterOptions, Identity, SchedulerOptions, TestCluster, binaries, eventually};
use muster_api::convert;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use self::draw::Cluster;

/// Clusters without `MUSTER_AGREEMENT_CASES`.
const CASES: u64 = 60;
/// The first of them without `MUSTER_AGREEMENT_SEED`.
const SEED: u64 = 1;
/// Requests to the API server at a time.
const CONCURRENCY: usize = 16;
/// How long kube-scheduler may take for one round; a pod that is refused is tried again after a second and more.
const DEADLINE: Duration = Duration::from_secs(8);
/// Pods that are refused are created again so often: not every event that helps a pod brings it back from kube-scheduler's
/// queue, as that of a pod in a namespace which a term selects by its labels.
const ROUNDS: usize = 4;

/// Constraints that a run must have seen on pods with a node, lest the generator asks too little.
const CONSTRAINTS: [&str; 14] = [
    "nodeSelector",
    "nodeAffinity",
    "toleration",
    "topologySpread",
    "podAntiAffinity",
    "podAffinity",
    "hostPort",
    "preferredAntiAffinity",
    "initContainers",
    "sidecar",
    "gpu",
    "priority",
    "volume",
    "daemonSet",
];

/// Reasons that are about every node by itself: not about limits, prices, or where other pods stand.
const OF_ANY_NODE: [&str; 7] =
    ["NoOfferFits", "Insufficient", "Taint", "Selector", "UndefinedLabel", "VolumeZone", "Overhead"];

/// Where each pod may go, by name; `None` for everybody: anywhere.
type Allowed = Arc<Mutex<Option<BTreeMap<String, String>>>>;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kube_scheduler_accepts_every_pod_of_a_plan_and_binds_none_that_fits_no_offer() {
    if std::env::var_os("MUSTER_WITHOUT_CONTROL_PLANE").is_some() {
        return;
    }
    let repository = &muster::testbed::repository();
    let binaries = match Binaries::ensure(repository, |_| {}).await {
        Ok(binaries) => binaries,
        Err(binaries::BinariesError::NoGo(_)) if std::env::var("CI").as_deref() != Ok("true") => return,
        Err(error) => panic!("{error}"),
    };
    let setting = |name: &str| Some(std::env::var(name).ok()?.parse::<u64>().expect(name));
    let (first, cases) = (setting("MUSTER_AGREEMENT_SEED").unwrap_or(SEED), setting("MUSTER_AGREEMENT_CASES"));
    let cluster = TestCluster::start(ClusterOptions {
        // Nothing may touch the nodes: their conditions and taints are part of the cases.
        controller_manager: false,
        kwok: false,
        api_server_args: vec![
            "--disable-admission-plugins=TaintNodesByCondition,StorageObjectInUseProtection".to_owned(),
        ],
        ..ClusterOptions::new(repository, binaries)
    })
    .await
    .unwrap();
    let client = cluster.client(Identity::Admin).unwrap();
    prepare(&client).await;
    let allowed = Allowed::default();
    let extender = serve(client.clone(), allowed.clone()).await;
    cluster.start_scheduler(&SchedulerOptions::new(Some(extender))).await.unwrap();

    let mut seen = Seen::default();
    let mut faults = Vec::new();
    for seed in first..first + cases.unwrap_or(CASES) {
        faults.extend(case(&client, &cluster, &allowed, &draw::cluster(seed), &mut seen).await);
    }
    eprintln!("{seen:?}");
    assert!(faults.is_empty(), "{} clusters disagree with kube-scheduler\n{}", faults.len(), faults.join("\n\n"));
    if cases.is_none() {
        let missing: Vec<&str> = CONSTRAINTS
            .iter()
            .copied()
            .filter(|name| seen.constraints.get(name).is_none_or(|count| *count < 5))
            .collect();
        assert!(missing.is_empty(), "few pods with {missing:?} had a node: {seen:?}");
        assert!(seen.outcomes["buy"] > 200 && seen.outcomes["placed"] > 30 && seen.without_offer > 10, "{seen:?}");
    }
}

/// What a run saw.
#[derive(Debug, Default)]
struct Seen {
    outcomes: BTreeMap<String, usize>,
    constraints: BTreeMap<&'static str, usize>,
    codes: BTreeMap<String, usize>,
    /// Pods that no node holds, as the document says, and that were offered every node.
    without_offer: usize,
}

async fn prepare(client: &Client) {
    for (name, warmth) in draw::NAMESPACES {
        let namespace = json!({"metadata": {"name": name, "labels": {"warmth": warmth}}});
        create::<Namespace>(&Api::all(client.clone()), &namespace).await;
    }
    let (name, value) = draw::PRIORITY;
    let class = json!({"metadata": {"name": name}, "value": value, "preemptionPolicy": "Never"});
    create::<PriorityClass>(&Api::all(client.clone()), &class).await;
}

/// Creates an object, with what a dump has and the API server fills in itself taken out.
async fn create<K>(api: &Api<K>, object: &Value)
where
    K: Clone + std::fmt::Debug + DeserializeOwned + serde::Serialize + kube::Resource,
{
    let mut object = object.clone();
    if let Some(metadata) = object["metadata"].as_object_mut() {
        metadata.remove("uid");
        metadata.remove("creationTimestamp");
    }
    let typed: K = serde_json::from_value(object.clone()).unwrap();
    if let Err(error) = api.create(&PostParams::default(), &typed).await {
        panic!("the API server refuses a generated object: {error}\n{object}");
    }
}

/// What `muster plan` says of the cluster.
fn document(cluster: &TestCluster, case: &Cluster) -> Value {
    let items: Vec<&Value> = case.objects.iter().chain(&case.pending).collect();
    let write = |name: &str, value: &Value| {
        let path = cluster.folder().join(name);
        std::fs::write(&path, value.to_string()).unwrap();
        path
    };
    let dump = write("dump.json", &json!({"apiVersion": "v1", "kind": "List", "items": items}));
    let catalogue = write("catalogue.json", &case.catalogue);
    let answer = std::process::Command::new(env!("CARGO_BIN_EXE_muster"))
        .args(["plan", "-o", "json", "-f"])
        .arg(dump)
        .arg("--catalogue")
        .arg(catalogue)
        .output()
        .unwrap();
    let document: Value = serde_json::from_slice(&answer.stdout)
        .unwrap_or_else(|error| panic!("seed {}: {error}: {}", case.seed, String::from_utf8_lossy(&answer.stderr)));
    assert_eq!(document["ignored"], json!([]), "seed {}: the dump is read whole", case.seed);
    document
}

/// One cluster: planned, created, bound, taken away. The answer is where kube-scheduler disagrees.
async fn case(
    client: &Client,
    cluster: &TestCluster,
    allowed: &Allowed,
    case: &Cluster,
    seen: &mut Seen,
) -> Option<String> {
    let seed = case.seed;
    let document = document(cluster, case);
    let nodes: Vec<&Value> = document["nodes"].as_array().unwrap().iter().collect();
    let has_daemons = case.objects.iter().any(|object| object["kind"] == "DaemonSet");
    let mut places: BTreeMap<String, String> = BTreeMap::new();
    let (mut with_node, mut without_offer) = (Vec::new(), Vec::new());
    let pods = document["pods"].as_array().unwrap();
    assert_eq!(pods.len(), case.pending.len(), "seed {seed}: every pod that waits is in the document");
    for entry in pods {
        let name = entry["name"].as_str().unwrap();
        let pod = case.pending.iter().find(|pod| pod["metadata"]["name"] == name).unwrap();
        let outcome = entry["outcome"].as_str().unwrap();
        *seen.outcomes.entry(outcome.to_owned()).or_default() += 1;
        if let Some(node) = entry["node"].as_str() {
            places.insert(name.to_owned(), node.replace('/', "-"));
            with_node.push(pod);
            for constraint in &case.drawn[name] {
                *seen.constraints.entry(constraint).or_default() += 1;
            }
            *seen.constraints.entry("daemonSet").or_default() += usize::from(has_daemons && outcome == "buy");
        }
        let codes = || entry["reasons"].as_array().unwrap().iter().map(|reason| reason["code"].as_str().unwrap());
        codes().for_each(|code| *seen.codes.entry(code.to_owned()).or_default() += 1);
        if outcome == "refused" && codes().all(|code| OF_ANY_NODE.contains(&code)) {
            without_offer.push(pod);
        }
    }

    // The cluster as the document leaves it, but for the pods.
    let mut standing: Vec<Value> = case.objects.iter().filter(|object| object["kind"] == "Pod").cloned().collect();
    let mut machines: Vec<Value> = case.objects.iter().filter(|object| object["kind"] == "Node").cloned().collect();
    for node in &nodes {
        let name = node["id"].as_str().unwrap().replace('/', "-");
        let mut labels = node["labels"].clone();
        labels["kubernetes.io/hostname"] = name.clone().into();
        machines.push(draw::node(&name, &labels, &node["taints"], &node["allocatable"]));
        let overhead = node["overhead"].as_object().unwrap();
        let amounts: serde_json::Map<String, Value> = overhead
            .iter()
            .filter(|(name, _)| *name != "pods")
            .map(|(name, value)| (name.clone(), value.clone()))
            .collect();
        let daemons: usize = overhead.get("pods").map_or(0, |pods| pods.as_str().unwrap().parse().unwrap());
        for daemon in 0..daemons {
            let requests = if daemon == 0 { json!(amounts) } else { json!({}) };
            standing.push(json!({
                "metadata": {"name": format!("daemon-{daemon}-{name}-{seed}"), "namespace": "red", "labels": {"app": "agent"}},
                "spec": {"nodeName": name, "containers": [
                    {"name": "agent", "image": "image", "resources": {"requests": requests}},
                ]},
            }));
        }
    }
    *allowed.lock().unwrap() = Some(places.clone());
    add(client, &machines, &standing, &case.objects).await;
    for pod in &with_node {
        create(&pods_of(client, pod), pod).await;
    }
    let mut fault = settle(client, &places, &with_node).await;
    remove_pods(client).await;

    if !without_offer.is_empty() {
        remove_nodes(client).await;
        *allowed.lock().unwrap() = None;
        add(client, &case.possible, &[], &[]).await;
        for pod in &without_offer {
            create(&pods_of(client, pod), pod).await;
            fault = fault.or(refused(client, pod).await);
            remove_pods(client).await;
        }
        seen.without_offer += without_offer.len();
    }
    remove_nodes(client).await;
    fault.map(|fault| format!("{fault}\n{}", context(case, &document)))
}

fn context(case: &Cluster, document: &Value) -> String {
    let items: Vec<&Value> = case.objects.iter().chain(&case.pending).collect();
    format!(
        "seed {}\ndump: {}\ncatalogue: {}\ndocument: {document}",
        case.seed,
        json!({"apiVersion": "v1", "kind": "List", "items": items}),
        case.catalogue,
    )
}

fn pods_of(client: &Client, pod: &Value) -> Api<Pod> {
    Api::namespaced(client.clone(), pod["metadata"]["namespace"].as_str().unwrap())
}

/// Nodes, pods that stand on them, and volumes.
async fn add(client: &Client, nodes: &[Value], standing: &[Value], objects: &[Value]) {
    let api: Api<Node> = Api::all(client.clone());
    stream::iter(nodes).for_each_concurrent(CONCURRENCY, |node| create(&api, node)).await;
    for object in objects {
        let namespace = object["metadata"]["namespace"].as_str().unwrap_or_default();
        match object["kind"].as_str() {
            Some("PersistentVolume") => create::<PersistentVolume>(&Api::all(client.clone()), object).await,
            Some("PersistentVolumeClaim") => {
                create::<PersistentVolumeClaim>(&Api::namespaced(client.clone(), namespace), object).await;
            }
            _ => {}
        }
    }
    for pod in standing {
        create(&pods_of(client, pod), pod).await;
    }
}

/// Waits until every pod that has a node in the document is bound, there and nowhere else. The answer is who is not.
async fn settle(client: &Client, places: &BTreeMap<String, String>, planned: &[&Value]) -> Option<String> {
    let api: Api<Pod> = Api::all(client.clone());
    let mut left = String::new();
    for _ in 0..ROUNDS {
        // Whether it is in time does not matter: who is left is looked at next.
        let _ = eventually(DEADLINE, "kube-scheduler to bind every pod of the plan", || async {
            let pods = api.list(&ListParams::default()).await?;
            let bound = |pod: &&Pod| places.contains_key(&pod.name_any()) && convert::assigned_node(pod).is_some();
            Ok::<_, kube::Error>((pods.iter().filter(bound).count() == planned.len()).then_some(()))
        })
        .await;
        left.clear();
        let pods = api.list(&ListParams::default()).await.unwrap();
        let pods: BTreeMap<String, &Pod> = pods.iter().map(|pod| (pod.name_any(), pod)).collect();
        for wanted in planned {
            let name = wanted["metadata"]["name"].as_str().unwrap();
            match convert::assigned_node(pods[name]) {
                Some(node) => assert_eq!(*node, places[name], "the extender leaves {name} no other node"),
                None => {
                    writeln!(left, "{name} is not bound to {}: {}", places[name], message(pods[name])).unwrap();
                    let at_once = DeleteParams { grace_period_seconds: Some(0), ..DeleteParams::default() };
                    pods_of(client, wanted).delete(name, &at_once).await.unwrap();
                    create(&pods_of(client, wanted), wanted).await;
                }
            }
        }
        if left.is_empty() {
            return None;
        }
    }
    Some(left)
}

/// Waits until kube-scheduler has judged the pod, which must not be bound. The answer is where it is, if it is.
async fn refused(client: &Client, pod: &Value) -> Option<String> {
    let api = pods_of(client, pod);
    let name = pod["metadata"]["name"].as_str().unwrap();
    let judged = eventually(DEADLINE * 4, "kube-scheduler to judge a pod", || async {
        let pod = api.get(name).await?;
        Ok::<_, kube::Error>((convert::assigned_node(&pod).is_some() || !message(&pod).is_empty()).then_some(pod))
    })
    .await
    .unwrap();
    convert::assigned_node(&judged).map(|node| format!("{name} fits no offer, and is bound to {node}"))
}

/// What the condition of a pod that is not scheduled says.
fn message(pod: &Pod) -> String {
    let conditions = pod.status.as_ref().and_then(|status| status.conditions.as_ref());
    let condition = conditions.into_iter().flatten().find(|condition| condition.type_ == "PodScheduled");
    condition.filter(|one| one.status == "False").and_then(|one| one.message.clone()).unwrap_or_default()
}

async fn remove_pods(client: &Client) {
    for (namespace, _) in draw::NAMESPACES {
        let api: Api<Pod> = Api::namespaced(client.clone(), namespace);
        let at_once = DeleteParams { grace_period_seconds: Some(0), ..DeleteParams::default() };
        api.delete_collection(&at_once, &ListParams::default()).await.unwrap();
    }
}

async fn remove_nodes(client: &Client) {
    Api::<Node>::all(client.clone()).delete_collection(&DeleteParams::default(), &ListParams::default()).await.unwrap();
}

/// An extender that leaves each pod the node it may go to.
async fn serve(client: Client, allowed: Allowed) -> SocketAddr {
    let filter = post(move |Json(args): Json<Value>| async move {
        let name = args["Pod"]["metadata"]["name"].as_str().unwrap_or_default();
        let offered: Vec<String> = args["NodeNames"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(|name| Some(name.as_str()?.to_owned()))
            .collect();
        let kept = match &*allowed.lock().unwrap() {
            None => offered,
            Some(places) => offered.into_iter().filter(|node| places.get(name) == Some(node)).collect(),
        };
        Json(json!({"NodeNames": kept}))
    });
    let bind = post(move |Json(args): Json<Value>| async move {
        let text = |key: &str| args[key].as_str().unwrap_or_default().to_owned();
        let binding: Binding = serde_json::from_value(json!({
            "metadata": {"name": text("PodName"), "namespace": text("PodNamespace"), "uid": text("PodUID")},
            "target": {"apiVersion": "v1", "kind": "Node", "name": text("Node")},
        }))
        .unwrap();
        let api: Api<Pod> = Api::namespaced(client.clone(), &text("PodNamespace"));
        let name = text("PodName");
        let params = PostParams::default();
        let error = api.create_subresource::<_, Value>("binding", &name, &params, &binding).await.err();
        Json(json!({"Error": error.map(|error| error.to_string()).unwrap_or_default()}))
    });
    let router = axum::Router::new()
        .route("/v1/sync/filter", filter)
        .route("/v1/sync/prioritize", post(|| async { Json(json!([])) }))
        .route("/v1/sync/preempt", post(|| async { Json(json!({"NodeNameToMetaVictims": {}})) }))
        .route("/v1/bind/bind", bind);
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move { axum::serve(listener, router).await });
    address
}
