//! An account and a cluster that nothing is wrong with, before a test breaks them.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{Method, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use jiff::{SignedDuration, Timestamp};
use muster::commands::doctor::examine;
use muster::config::Config;
use muster_api::crd::{self, served};
use muster_core::doctor::Report;
use muster_ec2::{ClientOptions, Credentials};
use muster_ec2_sim::choices::Choices;
use muster_ec2_sim::scenario::Image;
use muster_ec2_sim::{Fault, MarketType, Scenario, Simulator};
use serde_json::{Value, json};
use tokio::net::TcpListener;

use crate::gc_account::{connected, launched_of};

pub(super) const IMAGE: &str = "ami-0123456789abcdef0";
pub(super) const GROUP: &str = "sg-00000000000000001";
pub(super) const UID: &str = "01234567-89ab-cdef-0123-456789abcdef";

/// An account with a cluster, before it is broken.
#[derive(Debug)]
pub(super) struct World {
    pub(super) scenario: Scenario,
    pub(super) faults: Vec<Fault>,
    /// AWS actions that are denied.
    pub(super) denied: Vec<String>,
    /// Muster has launched instances here before.
    pub(super) launched: bool,
    /// Configuration of Muster; the endpoint is filled in.
    pub(super) config: Value,
    /// Whether a Region is configured.
    pub(super) region: bool,
    /// Objects by the path of their list.
    pub(super) objects: BTreeMap<&'static str, Vec<Value>>,
    /// Kinds of ours that are served.
    pub(super) kinds: Vec<&'static str>,
    /// Their schemas, as the API server shows them.
    pub(super) openapi: Value,
    /// `verb resource` that Kubernetes denies.
    pub(super) forbidden: Option<&'static str>,
    /// How far the API server's clock is ahead.
    pub(super) ahead: SignedDuration,
}

pub(super) const NODES: &str = "/api/v1/nodes";
pub(super) const PODS: &str = "/api/v1/namespaces/muster-system/pods";
pub(super) const DAEMONS: &str = "/apis/apps/v1/daemonsets";
pub(super) const POOLS: &str = "/apis/muster.dev/v1alpha1/nodepools";
pub(super) const CLASSES: &str = "/apis/muster.dev/v1alpha1/ec2nodeclasses";
pub(super) const CLUSTER_POLICIES: &str = "/apis/nvidia.com/v1/clusterpolicies";

pub(super) fn daemon(name: &str, image: &str, tolerations: &Value) -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "DaemonSet",
        "metadata": {"namespace": "kube-system", "name": name},
        "spec": {
            "selector": {"matchLabels": {"app": name}},
            "template": {
                "metadata": {"labels": {"app": name}},
                "spec": {"tolerations": tolerations, "containers": [{"name": "main", "image": image}]},
            },
        },
    })
}

pub(super) fn of_ready(message: Option<&str>) -> Value {
    json!({"conditions": [{
        "type": "Ready", "status": if message.is_some() { "False" } else { "True" }, "reason": "Because",
        "message": message.unwrap_or_default(), "lastTransitionTime": "2026-01-01T00:00:00Z",
    }]})
}

pub(super) fn node(name: &str, labels: &Value) -> Value {
    json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels}})
}

impl World {
    /// Nothing is wrong, under the shipped policy.
    pub(super) fn healthy() -> Self {
        let mut scenario = Scenario::default().with_pool("p5.48xlarge", "us-east-1a", MarketType::OnDemand, 1, 1, 2);
        scenario.throttling = false;
        if let Ok(name) = std::env::var("MUSTER_SIM_CHOICE") {
            scenario.choices = Choices::named(&name).unwrap_or_else(|error| panic!("MUSTER_SIM_CHOICE={error}"));
        }
        scenario.images = vec![Image { id: IMAGE.to_owned(), name: "own".to_owned(), path: None }];
        scenario.instance_profiles = vec!["nodes".to_owned()];
        let policy = Path::new(env!("CARGO_MANIFEST_DIR")).join("manifests/iam/policy.json");
        scenario.policy = Some(serde_json::from_str(&std::fs::read_to_string(policy).unwrap()).unwrap());
        let words = [("NODE-ROLE", "nodes"), ("CLUSTER", "demo"), ("QUEUE", "muster-interruptions"), ("UID", UID)];
        scenario.policy_values = words.map(|(word, value)| (word.to_owned(), value.to_owned())).into();
        let gpu = json!([{"key": "nvidia.com/gpu", "operator": "Exists"}]);
        let every = json!([{"operator": "Exists"}]);
        let objects = BTreeMap::from([
            (
                NODES,
                vec![node(
                    "system",
                    &json!({"topology.kubernetes.io/zone": "us-east-1a", "kubernetes.io/hostname": "system"}),
                )],
            ),
            (
                PODS,
                vec![json!({
                    "apiVersion": "v1", "kind": "Pod",
                    "metadata": {"namespace": "muster-system", "name": "muster-0"},
                    "spec": {"containers": [
                        {"name": "muster", "image": "muster:1", "env": [
                            {"name": "AWS_CONTAINER_CREDENTIALS_FULL_URI", "value": "http://169.254.170.23/v1/credentials"},
                        ]},
                        {"name": "kube-scheduler", "image": "registry.k8s.io/kube-scheduler:v1.36.1"},
                    ]},
                })],
            ),
            (
                DAEMONS,
                vec![
                    daemon("aws-node", "x/amazon-k8s-cni:v1", &every),
                    daemon("kube-proxy", "x/eks/kube-proxy:v1", &every),
                    daemon("nvdp-nvidia-device-plugin", "nvcr.io/nvidia/k8s-device-plugin:v0.18.0", &gpu),
                    daemon("efa", "x/aws-efa-k8s-device-plugin:v0.5", &gpu),
                    daemon("eks-pod-identity-agent", "x/eks/eks-pod-identity-agent:v0.1", &every),
                ],
            ),
            (
                CLASSES,
                vec![json!({
                    "apiVersion": "muster.dev/v1alpha1", "kind": "EC2NodeClass", "metadata": {"name": "gpu"},
                    "spec": {
                        "amiSelectorTerms": [{"id": IMAGE}],
                        "instanceProfile": "nodes",
                        "subnetSelectorTerms": [{"tags": {"Name": "muster-demo-*"}}],
                        "securityGroupSelectorTerms": [{"id": GROUP}],
                    },
                    "status": of_ready(None),
                })],
            ),
            (
                POOLS,
                vec![json!({
                    "apiVersion": "muster.dev/v1alpha1", "kind": "NodePool", "metadata": {"name": "train"},
                    "spec": {
                        "template": {"spec": {
                            "nodeClassRef": {"group": "muster.dev", "kind": "EC2NodeClass", "name": "gpu"},
                            "taints": [{"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}],
                            "requirements": [{
                                "key": "node.kubernetes.io/instance-type", "operator": "In", "values": ["p5.48xlarge"],
                            }],
                        }},
                    },
                    "status": of_ready(None),
                })],
            ),
        ]);
        Self {
            scenario,
            faults: Vec::new(),
            denied: Vec::new(),
            launched: false,
            config: json!({
                "cluster": {"name": "demo"},
                "ec2": {"region": "us-east-1", "interruptionQueue": "muster-interruptions"},
                "provisioner": {"maxUsdPerHour": "100"},
            }),
            region: true,
            objects,
            kinds: vec!["gangs", "nodepools", "nodebatches", "ec2nodeclasses"],
            openapi: openapi(),
            forbidden: None,
            ahead: SignedDuration::ZERO,
        }
    }

    pub(super) fn class(&mut self) -> &mut Value {
        &mut self.objects.get_mut(CLASSES).unwrap()[0]
    }

    pub(super) fn pool(&mut self) -> &mut Value {
        &mut self.objects.get_mut(POOLS).unwrap()[0]
    }

    pub(super) fn daemons(&mut self) -> &mut Vec<Value> {
        self.objects.get_mut(DAEMONS).unwrap()
    }

    pub(super) fn without_daemon(&mut self, name: &str) {
        self.daemons().retain(|daemon| daemon["metadata"]["name"] != name);
    }

    pub(super) fn intolerant(&mut self, name: &str) {
        for daemon in self.daemons() {
            if daemon["metadata"]["name"] == name {
                daemon["spec"]["template"]["spec"]["tolerations"] = json!([]);
            }
        }
    }

    /// The environment of the container `muster` of its Pod.
    pub(super) fn environment(&mut self, env: Value) {
        self.objects.get_mut(PODS).unwrap()[0]["spec"]["containers"][0]["env"] = env;
    }

    /// The cluster in this authentication mode, with access entries of these roles.
    pub(super) fn entries(&mut self, mode: &str, entries: &[(&str, &str)]) {
        let cluster = &mut self.scenario.clusters[0];
        cluster.authentication_mode = mode.to_owned();
        cluster.access_entries =
            Some(entries.iter().map(|(role, kind)| ((*role).to_owned(), (*kind).to_owned())).collect());
    }

    pub(super) fn free_addresses(&mut self, number: u32) {
        for zone in &mut self.scenario.zones {
            zone.subnets.iter_mut().for_each(|subnet| subnet.free_addresses = Some(number));
        }
    }

    pub(super) fn capacity_types(&mut self, values: &[&str]) {
        let types = json!({"key": "muster.dev/capacity-type", "operator": "In", "values": values});
        self.pool()["spec"]["template"]["spec"]["requirements"].as_array_mut().unwrap().push(types);
    }

    pub(super) fn requires(&mut self, key: &str, value: &str) {
        self.pool()["spec"]["template"]["spec"]["requirements"] =
            json!([{"key": key, "operator": "In", "values": [value]}]);
    }

    /// Starts account and API server.
    pub(super) async fn start(mut self) -> Started {
        let _ = rustls::crypto::ring::default_provider().install_default();
        if self.launched {
            self.scenario.delays.boot_seconds = 0.0;
        }
        let simulator = Simulator::new(self.scenario.clone()).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let endpoint = format!("http://{}", listener.local_addr().unwrap());
        tokio::spawn(muster_ec2_sim::serve(listener, Arc::clone(&simulator), std::future::pending()));
        if self.launched {
            launched_of(&connected(endpoint.clone()).await, (UID, "demo"), "p5.48xlarge", IMAGE).await;
        }
        self.faults.iter().for_each(|fault| simulator.add_fault(fault.clone()));
        simulator.deny(self.denied.clone());
        let config = self.config.clone();
        let region = self.region;
        let server = Arc::new(ApiServer { world: self, calls: Mutex::default() });
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let uri = format!("http://{}", listener.local_addr().unwrap());
        let router = Router::new().fallback(answer).with_state(Arc::clone(&server));
        tokio::spawn(async move { axum::serve(listener, router).await });
        Started { simulator, endpoint, server, uri, config, region }
    }

    /// What is found, once everything that was called is seen to have changed nothing.
    pub(super) async fn examine(self) -> Report {
        let Started { simulator, endpoint, server, uri, config, region } = self.start().await;
        let before = simulator.requests();
        let config = Config::parse(&config.to_string(), "test").unwrap();
        let options = region.then(|| ClientOptions {
            region: "us-east-1".to_owned(),
            endpoint_url: Some(endpoint),
            credentials: Credentials::Static { access_key_id: "AK".to_owned(), secret_access_key: "s".to_owned() },
            launch_timeout: ClientOptions::LAUNCH_TIMEOUT,
        });
        let client = kube::Client::try_from(kube::Config::new(uri.parse().unwrap())).unwrap();

        let report = examine(&config, &client, options).await.unwrap();
        for entry in simulator.journal().split_off(before) {
            assert!(!config.ec2.isolated || !matches!(entry.service, "iam" | "pricing" | "servicequotas"), "{entry:?}");
            let reads = entry.operation.starts_with("Describe") || entry.operation.starts_with("Get");
            assert!(reads || entry.dry(), "{} changes something", entry.operation);
            assert!(entry.resources.is_empty(), "{entry:?}");
        }
        for (method, path) in server.calls.lock().unwrap().iter() {
            let asks = path.ends_with("/selfsubjectaccessreviews");
            assert!(*method == Method::GET || asks, "{method} {path} changes something");
        }
        report
    }
}

/// An account and a cluster that answer.
pub(super) struct Started {
    pub(super) simulator: Arc<Simulator>,
    pub(super) endpoint: String,
    server: Arc<ApiServer>,
    pub(super) uri: String,
    pub(super) config: Value,
    region: bool,
}

/// The schemas of the definitions that this binary brings.
fn openapi() -> Value {
    let schemas = crd::all().into_iter().map(|(_, definition)| {
        let spec = definition.spec;
        let schema = spec.versions[0].schema.as_ref().unwrap().open_api_v3_schema.as_ref().unwrap();
        (format!("dev.muster.v1alpha1.{}", spec.names.kind), serde_json::to_value(schema).unwrap())
    });
    json!({"components": {"schemas": schemas.collect::<serde_json::Map<_, _>>()}})
}

struct ApiServer {
    world: World,
    calls: Mutex<Vec<(Method, String)>>,
}

async fn answer(State(server): State<Arc<ApiServer>>, method: Method, uri: Uri, body: Bytes) -> Response {
    let path = uri.path();
    server.calls.lock().unwrap().push((method, path.to_owned()));
    let world = &server.world;
    let date = Timestamp::now().checked_add(world.ahead).unwrap().strftime("%a, %d %b %Y %H:%M:%S GMT").to_string();
    let value = match path {
        "/version" => Some(json!({
            "major": "1", "minor": "36", "gitVersion": "v1.36.2-eks-1", "gitCommit": "", "gitTreeState": "",
            "buildDate": "", "goVersion": "", "compiler": "", "platform": "",
        })),
        "/api/v1/namespaces/kube-system" => {
            Some(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "kube-system", "uid": UID}}))
        }
        "/apis/muster.dev/v1alpha1" => {
            let resources: Vec<Value> = world
                .kinds
                .iter()
                .map(|name| json!({"name": name, "singularName": "", "namespaced": false, "kind": "X", "verbs": ["get"]}))
                .collect();
            (!resources.is_empty()).then(|| {
                json!({"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": "muster.dev/v1alpha1", "resources": resources})
            })
        }
        served::OPENAPI => Some(world.openapi.clone()),
        "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews" => {
            let mut review: Value = serde_json::from_slice(&body).unwrap();
            let of = &review["spec"]["resourceAttributes"];
            let asked = format!("{} {}", of["verb"].as_str().unwrap(), of["resource"].as_str().unwrap());
            let allowed = world.forbidden != Some(asked.as_str());
            review["status"] = json!({"allowed": allowed});
            Some(review)
        }
        _ => {
            let served = match path.strip_prefix("/apis/muster.dev/v1alpha1/") {
                Some(kind) => world.kinds.contains(&kind),
                None => true,
            };
            let found = world.objects.get(path).filter(|_| served);
            found.map(|items| json!({"kind": "List", "apiVersion": "v1", "metadata": {}, "items": items}))
        }
    };
    let (status, value) = match value {
        Some(value) => (StatusCode::OK, value),
        None => (
            StatusCode::NOT_FOUND,
            json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "message": "not found", "reason": "NotFound", "code": 404}),
        ),
    };
    (status, [(header::DATE, date)], axum::Json(value)).into_response()
}
