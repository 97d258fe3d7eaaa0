//! The whole of Muster on this machine: the control plane, the EC2 simulator with the fake for its machines,
//! `muster serve` and kube-scheduler, each a process of its own.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use k8s_openapi::api::core::v1::{Namespace, Node};
use kube::api::{ListParams, PostParams};
use kube::{Api, Client};
use muster_ec2_sim::Scenario;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::cluster::free_address;
use super::nodes::is_ready;
use super::request::request;
use super::{
    Binaries, ClusterOptions, Command, Component, Identity, Installed, Installer, SchedulerOptions, TestCluster,
    TestbedError,
};
use super::{eventually, pools, reuse, settings};

/// Number of the simulator's process among the Muster processes of a cluster.
const SIMULATOR: u8 = 99;
/// Longest wait for one process to answer: nobody waits for its end but on a machine that stands still now and then.
const START: Duration = Duration::from_secs(240);

/// What to start.
#[derive(Clone, Debug)]
pub struct StackOptions {
    /// The checkout, for manifests and scheduler configuration.
    pub repository: PathBuf,
    /// Built control plane.
    pub binaries: Binaries,
    /// The `muster` binary.
    pub muster: PathBuf,
    /// Scenario of the simulator; `None`: nothing can be provisioned. Without a policy of its own every call is held against the
    /// shipped one; its `policyValues` may name another role of the nodes, `NODE-ROLE`.
    pub scenario: Option<Value>,
    /// How many times as fast as real EC2's time runs, here and in the provisioner.
    pub factor: u32,
    /// Merged over the shipped configuration of `muster serve`.
    pub config: Value,
    /// Keep folder and processes' logs.
    pub keep: bool,
    /// What puts the shipped objects on the cluster.
    pub installer: Installer,
    /// Shipped manifests that are not applied, where our own reader applies them.
    pub without: Vec<&'static str>,
    /// Pods of the Deployment: so many `muster serve`, each beside a kube-scheduler of its own. With more than one the
    /// kube-schedulers elect a leader, as in the shipped Pods.
    pub replicas: u8,
    /// The shipped file in `scheduler-config/`.
    pub scheduler: &'static str,
    /// Let etcd wait for its disk, as in production.
    pub fsync: bool,
    /// See [`ClusterOptions::measured`].
    pub measured: bool,
    /// Further arguments of kube-apiserver, e.g. `--feature-gates=GenericWorkload=true`.
    pub api_server_args: Vec<String>,
    /// Further controllers of kube-controller-manager, e.g. `persistentvolume-binder-controller`.
    pub controllers: &'static [&'static str],
    /// Further arguments of each kube-scheduler.
    pub scheduler_args: Vec<String>,
    /// Take the control plane that another test has left, and leave it to the next, where nothing is asked of it that others
    /// do not.
    pub reuse: bool,
    /// `tlsConfig` of the extenders; the other end is `extender.tls` in `config`.
    pub scheduler_tls: Option<Value>,
}

impl StackOptions {
    /// No EC2, real time, the shipped configuration.
    #[must_use]
    pub fn new(repository: PathBuf, binaries: Binaries, muster: PathBuf) -> Self {
        Self {
            repository,
            binaries,
            muster,
            scenario: None,
            factor: 1,
            config: json!({}),
            keep: false,
            installer: Installer::Reader,
            without: Vec::new(),
            replicas: 1,
            scheduler: "own-scheduler.yaml",
            fsync: false,
            measured: false,
            api_server_args: Vec::new(),
            controllers: &[],
            scheduler_args: Vec::new(),
            reuse: false,
            scheduler_tls: None,
        }
    }

    /// Whether its control plane is one that another test could have left.
    fn may_reuse(&self) -> bool {
        let plain = !self.keep && !self.fsync && self.api_server_args.is_empty();
        self.reuse && plain && matches!(self.installer, Installer::Reader)
    }
}

/// The running stack. Dropping it ends every process.
#[derive(Debug)]
pub struct Stack {
    /// The control plane.
    pub cluster: TestCluster,
    options: StackOptions,
    /// Extender, and health and metrics, of each `muster serve`.
    replicas: Vec<(SocketAddr, SocketAddr)>,
    simulator: Option<SocketAddr>,
    /// Replicas that run another binary than the rest.
    others: Mutex<BTreeMap<u8, PathBuf>>,
}

impl Stack {
    /// Starts everything and waits until it answers.
    ///
    /// Errors: the process that did not come up, with the last lines of its log.
    pub async fn start(options: StackOptions) -> Result<Self, TestbedError> {
        let mut cluster_options = ClusterOptions::new(&options.repository, options.binaries.clone());
        cluster_options.keep = options.keep;
        cluster_options.fsync = options.fsync;
        cluster_options.measured = options.measured;
        cluster_options.api_server_args.clone_from(&options.api_server_args);
        cluster_options.run_controllers(options.controllers);
        let cluster = if options.may_reuse() {
            let installed = Installed::Manifests { without: options.without.clone() };
            reuse::start(cluster_options, installed).await?
        } else {
            let cluster = TestCluster::start(cluster_options).await?;
            match &options.installer {
                Installer::Reader => cluster.apply_manifests(&options.without).await?,
                installer => installer.install(&cluster, &options.repository).await?,
            }
            cluster
        };
        let replicas = (0..options.replicas.max(1))
            .map(|_| Ok((free_address()?, free_address()?)))
            .collect::<Result<Vec<_>, TestbedError>>()?;
        let mut stack = Self { replicas, simulator: None, options, cluster, others: Mutex::default() };
        stack.write_configs(None)?;
        if stack.options.scenario.is_some() {
            stack.start_simulator().await?;
        }
        for number in stack.numbers() {
            stack.start_replica(number, &[]).await?;
        }
        for number in stack.numbers() {
            stack.start_scheduler(number).await?;
        }
        Ok(stack)
    }

    fn numbers(&self) -> std::ops::Range<u8> {
        0..u8::try_from(self.replicas.len()).unwrap_or(u8::MAX)
    }

    /// Starts the kube-scheduler beside a replica.
    pub async fn start_scheduler(&self, number: u8) -> Result<(), TestbedError> {
        let options = SchedulerOptions {
            number,
            leader_elect: self.replicas.len() > 1,
            file: self.options.scheduler,
            args: self.options.scheduler_args.clone(),
            tls: self.options.scheduler_tls.clone(),
            ..SchedulerOptions::new(Some(self.extender_of(number)))
        };
        self.cluster.start_scheduler(&options).await
    }

    async fn start_simulator(&mut self) -> Result<(), TestbedError> {
        let address = free_address()?;
        // Simulator and provisioner read one clock: origin and factor of both are the same.
        let origin = jiff_now();
        let mut scenario = self.options.scenario.clone().unwrap_or_default();
        if scenario["policy"].is_null() {
            scenario["policy"] = self.shipped_policy(&scenario).await?;
        }
        scenario["clock"] = json!({"factor": self.options.factor, "origin": origin});
        let file = self.cluster.folder().join("scenario.json");
        std::fs::write(&file, scenario.to_string()).map_err(TestbedError::file("write", &file))?;
        let journal = self.cluster.folder().join("journal.jsonl");
        self.cluster.start_muster(
            SIMULATOR,
            Command::new(
                &self.options.muster,
                [
                    "ec2-sim".into(),
                    "--register-nodes".into(),
                    "--listen".into(),
                    address.to_string().into(),
                    "--scenario".into(),
                    file.into_os_string(),
                    "--journal".into(),
                    journal.into_os_string(),
                ],
            )
            // Cloud controller and kubelets are not Muster: they have permissions of their own.
            .env("KUBECONFIG", self.cluster.kubeconfig(Identity::Admin)),
        )?;
        self.simulator = Some(address);
        self.answers("EC2 simulator", address, "/_sim/clock").await?;
        self.write_configs(Some(&origin))
    }

    /// The policy that `muster iam` prints for this cluster. Whatever a suite does in EC2 shows so that the policy which is
    /// shipped is enough for it.
    ///
    /// Errors: no cluster, or the last lines of a command that failed.
    async fn shipped_policy(&self, scenario: &Value) -> Result<Value, TestbedError> {
        let defaults = Scenario::default();
        let config = settings::read_yaml(&self.config())?.into_iter().next().unwrap_or_default();
        let word = |value: &Value, default: &str| value.as_str().unwrap_or(default).to_owned();
        let namespaces: Api<Namespace> = Api::all(self.admin()?);
        let system =
            namespaces.get("kube-system").await.map_err(TestbedError::api("read the namespace kube-system"))?;
        let args = [
            ("--cluster-name", word(&config["cluster"]["name"], "muster")),
            ("--cluster-uid", system.metadata.uid.unwrap_or_default()),
            ("--account", word(&scenario["account"], &defaults.account)),
            ("--region", word(&scenario["region"], &defaults.region)),
            // In the simulator a role has the name of its instance profile.
            ("--node-role", word(&scenario["policyValues"]["NODE-ROLE"], pools::INSTANCE_PROFILE)),
            ("--queue", word(&scenario["queue"]["name"], &defaults.queue.name)),
        ];
        let mut iam = tokio::process::Command::new(&self.options.muster);
        iam.arg("iam").stdin(Stdio::null());
        for (name, value) in args {
            iam.arg(name).arg(value);
        }
        let spawned = |source| TestbedError::Spawn { component: Component::Muster(SIMULATOR), source };
        let done = iam.output().await.map_err(spawned)?;
        if !done.status.success() {
            return Err(bad_answer("muster iam", &String::from_utf8_lossy(&done.stderr)));
        }
        serde_json::from_slice(&done.stdout).map_err(|error| bad_answer("muster iam", &error.to_string()))
    }

    fn write_configs(&self, origin: Option<&str>) -> Result<(), TestbedError> {
        self.numbers().try_for_each(|number| self.write_config(number, origin))
    }

    fn write_config(&self, number: u8, origin: Option<&str>) -> Result<(), TestbedError> {
        let shipped = self.options.repository.join("manifests/muster.yaml");
        let mut config = settings::read_yaml(&shipped)?.into_iter().next().unwrap_or_default();
        // Where nothing costs anything, only a test of the ceiling wants one.
        merge(&mut config, &json!({"provisioner": {"maxUsdPerHour": "unlimited"}}));
        merge(&mut config, &self.options.config);
        let mut addresses = json!({
            "extender": {"listen": self.extender_of(number).to_string()},
            "http": {"listen": self.http_of(number).to_string()},
        });
        match (self.simulator, origin) {
            (Some(simulator), Some(origin)) => {
                addresses["ec2"] = json!({"region": "us-east-1", "endpointUrl": format!("http://{simulator}")});
                addresses["clock"] = json!({"origin": origin, "factor": self.options.factor});
            }
            // A test may name an endpoint of its own, where nobody answers.
            _ if config["ec2"]["endpointUrl"].is_string() => {}
            _ => addresses["ec2"] = json!({"disabled": true}),
        }
        merge(&mut config, &addresses);
        let file = self.config_of(number);
        std::fs::write(&file, config.to_string()).map_err(TestbedError::file("write", &file))
    }

    /// Starts `muster serve`, with extra environment, and waits until it has read the cluster.
    pub async fn start_muster(&self, env: &[(&str, &str)]) -> Result<(), TestbedError> {
        self.start_replica(0, env).await
    }

    /// As [`Self::start_muster`], for one of several.
    pub async fn start_replica(&self, number: u8, env: &[(&str, &str)]) -> Result<(), TestbedError> {
        self.spawn_replica(number, env)?;
        self.answers("muster serve", self.http_of(number), "/readyz").await
    }

    /// Starts `muster serve` and does not wait: it may be asked to crash at once.
    pub fn spawn_muster(&self, env: &[(&str, &str)]) -> Result<(), TestbedError> {
        self.spawn_replica(0, env)
    }

    /// As [`Self::spawn_muster`], for one of several.
    pub fn spawn_replica(&self, number: u8, env: &[(&str, &str)]) -> Result<(), TestbedError> {
        let mut args = serve_args(&self.config_of(number).display().to_string());
        if env.iter().any(|(name, _)| *name == "MUSTER_CRASH") {
            args.push("--dev".to_owned());
        }
        let others = self.others.lock().unwrap_or_else(PoisonError::into_inner);
        let muster = others.get(&number).unwrap_or(&self.options.muster).clone();
        drop(others);
        let mut command = Command::new(muster, args).env("POD_NAME", format!("muster-{number}"));
        for (name, value) in env {
            command = command.env(*name, *value);
        }
        self.cluster.start_muster(number, command)
    }

    /// From its next start on, a replica runs another `muster` binary.
    pub fn runs(&self, number: u8, muster: PathBuf) {
        self.others.lock().unwrap_or_else(PoisonError::into_inner).insert(number, muster);
    }

    /// Ends `muster serve` by SIGKILL.
    pub fn kill_muster(&self) -> Result<(), TestbedError> {
        self.cluster.kill(Component::Muster(0))
    }

    /// A client with all permissions.
    pub fn admin(&self) -> Result<Client, TestbedError> {
        self.cluster.client(Identity::Admin)
    }

    /// Creates nodes and waits until pods can be placed on all of them.
    pub async fn create_nodes(&self, nodes: impl IntoIterator<Item = Node>) -> Result<(), TestbedError> {
        let api: Api<Node> = Api::all(self.admin()?);
        for node in nodes {
            api.create(&PostParams::default(), &node).await.map_err(TestbedError::api("create a node"))?;
        }
        let api = &api;
        eventually(START, "all nodes to be ready and untainted", || async move {
            let nodes = api.list(&ListParams::default()).await?;
            let usable = |node: &Node| {
                let taints = node.spec.as_ref().and_then(|spec| spec.taints.as_deref()).unwrap_or_default();
                is_ready(node) && taints.iter().all(|taint| taint.key != "node.kubernetes.io/not-ready")
            };
            Ok::<_, kube::Error>(nodes.iter().all(usable).then_some(()))
        })
        .await
        .map_err(|error| bad_answer("nodes", &error.to_string()))
    }

    /// Health and metrics address of `muster serve`.
    #[must_use]
    pub fn http(&self) -> SocketAddr {
        self.http_of(0)
    }

    /// Extender address of `muster serve`.
    #[must_use]
    pub fn extender(&self) -> SocketAddr {
        self.extender_of(0)
    }

    /// Health and metrics address of one of several.
    #[must_use]
    pub fn http_of(&self, number: u8) -> SocketAddr {
        self.replicas[usize::from(number)].1
    }

    /// Extender address of one of several.
    #[must_use]
    pub fn extender_of(&self, number: u8) -> SocketAddr {
        self.replicas[usize::from(number)].0
    }

    /// The simulator's control endpoint: GET.
    pub async fn sim<T: DeserializeOwned>(&self, path: &str) -> Result<T, TestbedError> {
        let body = self.sim_text("GET", path, "").await?;
        serde_json::from_str(&body).map_err(|error| bad_answer(path, &error.to_string()))
    }

    /// The simulator's control endpoint: POST of a JSON body.
    pub async fn sim_post(&self, path: &str, body: &Value) -> Result<(), TestbedError> {
        self.sim_text("POST", path, &body.to_string()).await.map(|_| ())
    }

    /// From now on nothing goes wrong.
    ///
    /// Errors: the simulator does not answer.
    pub async fn sim_calm(&self) -> Result<(), TestbedError> {
        self.sim_text("DELETE", "/_sim/faults", "").await.map(|_| ())
    }

    async fn sim_text(&self, method: &str, path: &str, body: &str) -> Result<String, TestbedError> {
        let Some(simulator) = self.simulator else {
            return Err(bad_answer(path, "the stack has no simulator"));
        };
        request(simulator, method, path, body).await
    }

    async fn answers(&self, what: &str, address: SocketAddr, path: &str) -> Result<(), TestbedError> {
        let ready = eventually(START, what, || async move { request(address, "GET", path, "").await.map(Some) }).await;
        ready.map(|_| ()).map_err(|error| bad_answer(what, &format!("{error}\n{}", self.cluster.report(20))))
    }

    /// Path of the file the simulator's journal is written to, one JSON object a line.
    #[must_use]
    pub fn journal(&self) -> PathBuf {
        self.cluster.folder().join("journal.jsonl")
    }

    /// The configuration file of `muster serve`.
    #[must_use]
    pub fn config(&self) -> PathBuf {
        self.config_of(0)
    }

    /// As [`Self::config`], of one of several.
    #[must_use]
    pub fn config_of(&self, number: u8) -> PathBuf {
        self.cluster.folder().join(format!("muster-{number}.yaml"))
    }
}

/// Arguments of `muster serve`, here as in the shipped Deployment, which a test compares.
#[must_use]
pub fn serve_args(config: &str) -> Vec<String> {
    vec!["serve".to_owned(), format!("--config={config}")]
}

fn bad_answer(what: &str, problem: &str) -> TestbedError {
    TestbedError::Malformed { what: what.to_owned(), problem: problem.to_owned() }
}

fn jiff_now() -> String {
    crate::clock::now_real().to_string()
}

/// Lays `over` on `base`, object by object.
fn merge(base: &mut Value, over: &Value) {
    match (base, over) {
        (Value::Object(base), Value::Object(over)) => {
            for (key, value) in over {
                merge(base.entry(key.clone()).or_insert(Value::Null), value);
            }
        }
        (base, over) => *base = over.clone(),
    }
}
