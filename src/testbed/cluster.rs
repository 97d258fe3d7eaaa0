//! One control plane: its folder, ports, credentials and processes.

use std::ffi::{OsStr, OsString};
use std::fmt::Write as _;
use std::fs::DirBuilder;
use std::io::ErrorKind;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::ops::Range;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use k8s_openapi::api::core::v1::Namespace;
use kube::Client;
use kube::api::{Api, ObjectMeta, PostParams};
use nix::sys::signal::Signal;
use serde_json::Value;

use crate::testbed::apply;
use crate::testbed::binaries::Binaries;
use crate::testbed::component::Component;
use crate::testbed::error::TestbedError;
use crate::testbed::identity::{Credentials, Identity, write_private};
use crate::testbed::plane::{Before, Installed, Plane};
use crate::testbed::process::{Command, Processes, tail};
use crate::testbed::settings::{AUDIT_POLICY, STAGES, SchedulerSettings, read_yaml, scheduler_configuration};
use crate::testbed::wait::eventually;

/// Ports that are given to nobody who asks for any: below those of Linux's `ip_local_port_range`, which begin at 32768.
const PORTS: Range<u16> = 20_000..32_000;
/// How long a component may take until it serves. It takes 1–3 s on an idle machine.
const START: Duration = Duration::from_secs(240);

/// Starts that are tried when another process takes a port between our finding it free and the
/// component binding it.
const ATTEMPTS: u32 = 3;

/// Controllers that Jobs, StatefulSets, DaemonSets and nodes need, and no more: each idle one
/// still lists and watches. No taint eviction: a test that wants it names it.
pub const CONTROLLERS: &str = "--controllers=job-controller,garbage-collector-controller,\
    namespace-controller,node-lifecycle-controller,pod-garbage-collector-controller,\
    replicaset-controller,statefulset-controller,daemonset-controller,disruption-controller,\
    ttl-after-finished-controller";

/// What to start. There is no default: every caller says what it needs.
#[derive(Clone, Debug)]
pub struct ClusterOptions {
    /// The checkout whose `manifests/` and `scheduler-config/` are used.
    pub repository: PathBuf,
    /// The control plane.
    pub binaries: Binaries,
    /// Start kube-controller-manager: Jobs, garbage collection, node taints.
    pub controller_manager: bool,
    /// Start kwok: without it no node gets Ready and no bound pod runs.
    pub kwok: bool,
    /// Keep the folder when the cluster is dropped; it is always kept when the dropping thread
    /// panics.
    pub keep: bool,
    /// Let etcd wait for its disk, as in production. What a test writes is thrown away.
    pub fsync: bool,
    /// Run everything with the settings it has in production: what it takes is measured.
    pub measured: bool,
    /// Further arguments of kube-apiserver, e.g. `--feature-gates=GenericWorkload=true`.
    pub api_server_args: Vec<String>,
    /// Further arguments of kube-controller-manager; a second `--controllers` replaces ours.
    pub controller_manager_args: Vec<String>,
}

impl ClusterOptions {
    /// All components, folder removed, no further arguments.
    pub fn new(repository: impl Into<PathBuf>, binaries: Binaries) -> Self {
        Self {
            repository: repository.into(),
            binaries,
            controller_manager: true,
            kwok: true,
            keep: false,
            fsync: false,
            measured: false,
            api_server_args: Vec::new(),
            controller_manager_args: Vec::new(),
        }
    }

    /// Further controllers of kube-controller-manager, e.g. `persistentvolume-binder-controller`.
    pub fn run_controllers(&mut self, more: &[&str]) {
        if !more.is_empty() {
            self.controller_manager_args.push(format!("{CONTROLLERS},{}", more.join(",")));
        }
    }
}

/// How to start a kube-scheduler from a shipped file of `scheduler-config/`.
#[derive(Clone, Debug)]
pub struct SchedulerOptions {
    /// Which one, for tests that need two.
    pub number: u8,
    /// Where `muster serve` answers; `None` runs the profile without extenders.
    pub extender: Option<SocketAddr>,
    /// Elect a leader through the shipped lease, with the permissions of Muster's ServiceAccount, as
    /// the shipped Pod does. Otherwise the scheduler is alone and starts at once, as
    /// `system:kube-scheduler`.
    pub leader_elect: bool,
    /// Requests a second to the API server; bursts of twice as many.
    pub qps: u32,
    /// `tlsConfig` of the extenders, which are then called with `https`.
    pub tls: Option<Value>,
    /// The shipped file in `scheduler-config/`.
    pub file: &'static str,
    /// Further arguments, e.g. `-v=4` or `--feature-gates=GenericWorkload=true`.
    pub args: Vec<String>,
}

impl SchedulerOptions {
    /// The first scheduler, alone, with a client that is not the limit.
    pub fn new(extender: Option<SocketAddr>) -> Self {
        Self {
            number: 0,
            extender,
            leader_elect: false,
            qps: 5000,
            tls: None,
            file: "own-scheduler.yaml",
            args: Vec::new(),
        }
    }
}

/// A client, once it is made.
#[derive(Default)]
struct Kept(Mutex<Option<Client>>);

impl std::fmt::Debug for Kept {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Kept").finish_non_exhaustive()
    }
}

/// A running control plane. Dropping it kills every process and removes the folder, unless etcd and kube-apiserver are left to
/// the next test.
#[derive(Debug)]
pub struct TestCluster {
    options: ClusterOptions,
    folder: PathBuf,
    processes: Arc<Processes>,
    credentials: Arc<Credentials>,
    api_server: SocketAddr,
    etcd: SocketAddr,
    keep: AtomicBool,
    /// What it held before its first test, if the next one gets it.
    before: OnceLock<Arc<Before>>,
    /// etcd or kube-apiserver were killed, stopped or started otherwise.
    touched: AtomicBool,
    /// A client of the admin's. Each new one costs a handshake, and tests ask for one in every look.
    admin: Kept,
}

impl TestCluster {
    /// Starts etcd and kube-apiserver, then what else `options` ask for, and returns when all of it
    /// serves. kube-scheduler is started by [`Self::start_scheduler`], since `muster serve` must
    /// be up before it.
    ///
    /// # Errors
    /// [`TestbedError::Exited`] with the log's end when a component does not start,
    /// [`TestbedError::Wait`] when it does not serve in time.
    pub async fn start(options: ClusterOptions) -> Result<Self, TestbedError> {
        let mut attempt = 1;
        loop {
            match Self::try_start(options.clone()).await {
                Err(TestbedError::Exited { log, .. })
                    if attempt < ATTEMPTS && log.contains("address already in use") =>
                {
                    attempt += 1;
                }
                outcome => return outcome,
            }
        }
    }

    async fn try_start(options: ClusterOptions) -> Result<Self, TestbedError> {
        let folder = make_folder()?;
        let processes = Arc::new(Processes::new(&folder)?);
        let credentials = Arc::new(Credentials::create(&folder)?);
        let [etcd_client, etcd_peer, api_server] = free_addresses()?;
        // From here on dropping `cluster` cleans up.
        let keep = AtomicBool::new(options.keep);
        let (before, touched, admin) = (OnceLock::new(), AtomicBool::new(false), Kept::default());
        let etcd = etcd_client;
        let cluster = Self { keep, options, folder, processes, credentials, api_server, etcd, before, touched, admin };
        if cluster.options.keep {
            cluster.processes.keep_folder();
        }
        cluster.credentials.write_kubeconfigs(api_server)?;
        write_private(&cluster.folder.join("audit-policy.yaml"), AUDIT_POLICY)?;
        write_private(&cluster.folder.join("stages.yaml"), STAGES)?;
        // A file that exists is appended to, so that it can be emptied meanwhile.
        write_private(&cluster.audit_log(), "")?;
        cluster.processes.start(Component::Etcd, cluster.etcd(etcd_client, etcd_peer))?;
        // It retries until etcd serves.
        cluster.processes.start(Component::ApiServer, cluster.kube_apiserver(etcd_client))?;
        cluster.wait_until_serving(Component::ApiServer, api_server, "/readyz").await?;
        cluster.start_controllers().await?;
        Ok(cluster)
    }

    /// A cluster on the control plane that another test has left.
    pub(super) async fn on(options: ClusterOptions, plane: Plane) -> Result<Self, TestbedError> {
        let Plane { folder, processes, credentials, api_server, etcd, before } = plane;
        let (keep, before, touched) = (AtomicBool::new(false), OnceLock::from(before), AtomicBool::new(false));
        let admin = Kept::default();
        let cluster = Self { keep, options, folder, processes, credentials, api_server, etcd, before, touched, admin };
        cluster.start_controllers().await?;
        Ok(cluster)
    }

    /// From now on, with what is installed, it is left to the next test that wants the same.
    pub(super) async fn leave_to_others(&self, installed: Installed) -> Result<(), TestbedError> {
        let before = Before::read(self.etcd, installed).await?;
        // Whoever was first: both have read the same.
        let _ = self.before.set(Arc::new(before));
        Ok(())
    }

    async fn start_controllers(&self) -> Result<(), TestbedError> {
        if self.options.kwok {
            self.processes.start(Component::Kwok, self.kwok())?;
        }
        if self.options.controller_manager {
            let address = free_address()?;
            let command = self.kube_controller_manager(address);
            self.processes.start(Component::ControllerManager, command)?;
            self.wait_until_serving(Component::ControllerManager, address, "/healthz").await?;
        }
        if self.options.kwok {
            self.processes.check(Component::Kwok)?;
        }
        Ok(())
    }

    /// What the next test gets; `None` if it is to get a new one.
    fn plane(&self) -> Option<Plane> {
        let untouched = !self.keep.load(Ordering::Relaxed) && !self.touched.load(Ordering::Relaxed);
        let before = self.before.get().filter(|_| untouched)?;
        Some(Plane {
            folder: self.folder.clone(),
            processes: Arc::clone(&self.processes),
            credentials: Arc::clone(&self.credentials),
            api_server: self.api_server,
            etcd: self.etcd,
            before: Arc::clone(before),
        })
    }

    /// Notes that a component is not left as it was started.
    fn touch(&self, component: Component) {
        if matches!(component, Component::Etcd | Component::ApiServer) {
            self.touched.store(true, Ordering::Relaxed);
            // Connections to the one before are of no use.
            self.known_admin().take();
        }
    }

    /// The cluster's folder: logs (`<component>.log`), `audit.log`, kubeconfig files, etcd's data.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Where kube-apiserver serves.
    pub fn api_server(&self) -> SocketAddr {
        self.api_server
    }

    /// The audit log: one JSON object a line.
    pub fn audit_log(&self) -> PathBuf {
        self.folder.join("audit.log")
    }

    /// The log file of a component, over all its restarts.
    pub fn log(&self, component: Component) -> PathBuf {
        self.processes.log(component)
    }

    /// A kubeconfig file for this identity.
    pub fn kubeconfig(&self, identity: Identity) -> PathBuf {
        self.credentials.kubeconfig(identity)
    }

    /// kubectl of the same version, as admin, for people who want to look around.
    pub fn kubectl(&self) -> Command {
        Command::new(
            self.options.binaries.kubectl(),
            [OsString::from("--kubeconfig"), self.kubeconfig(Identity::Admin).into()],
        )
    }

    /// A client with this identity. It belongs to the tokio runtime it is made in.
    ///
    /// # Errors
    /// [`TestbedError::Api`] when TLS cannot be set up.
    pub fn client(&self, identity: Identity) -> Result<Client, TestbedError> {
        if identity != Identity::Admin {
            return self.client_of(identity, self.api_server);
        }
        let mut known = self.known_admin();
        if let Some(client) = &*known {
            return Ok(client.clone());
        }
        let client = self.client_of(identity, self.api_server)?;
        Ok(known.insert(client).clone())
    }

    fn known_admin(&self) -> MutexGuard<'_, Option<Client>> {
        self.admin.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Applies every object under `manifests/`, unchanged, and waits until definitions, roles and
    /// the admission policy count. May be called again.
    ///
    /// `without` names files that are not applied. Without `rbac-scheduler.yaml`, as where Muster
    /// extends the cluster's default scheduler, `muster serve` has its own permissions only: the
    /// stricter test, since the Pod's ServiceAccount otherwise has those of a kube-scheduler too.
    ///
    /// # Errors
    /// Those of [`apply::read_manifests`] and [`apply::apply`].
    pub async fn apply_manifests(&self, without: &[&str]) -> Result<(), TestbedError> {
        let mut manifests = apply::read_manifests(&self.options.repository.join("manifests"))?;
        manifests.retain(|manifest| without.iter().all(|name| manifest.path.file_name() != Some(OsStr::new(name))));
        let admin = self.client(Identity::Admin)?;
        if !apply::changes_objects_by_policy(&admin).await? {
            apply::without_mutating_policies(&mut manifests);
        }
        apply::apply(&admin, &manifests).await?;
        self.wait_until_installed().await
    }

    /// Waits until roles and the admission policy count.
    ///
    /// # Errors
    /// [`TestbedError::Wait`].
    pub async fn wait_until_installed(&self) -> Result<(), TestbedError> {
        let admin = self.client(Identity::Admin)?;
        apply::wait_until_roles_count(&self.client(Identity::Muster)?).await?;
        if apply::changes_objects_by_policy(&admin).await? {
            apply::wait_until_gate_is_added(&admin).await?;
        }
        Ok(())
    }

    /// Makes a namespace; one that exists is no error.
    ///
    /// # Errors
    /// [`TestbedError::Api`].
    pub async fn create_namespace(&self, name: &str) -> Result<(), TestbedError> {
        let namespace = Namespace {
            metadata: ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() },
            ..Namespace::default()
        };
        let api: Api<Namespace> = Api::all(self.client(Identity::Admin)?);
        match api.create(&PostParams::default(), &namespace).await {
            Ok(_) => Ok(()),
            Err(kube::Error::Api(status)) if status.is_already_exists() => Ok(()),
            Err(error) => Err(TestbedError::api(format!("make the namespace {name}"))(error)),
        }
    }

    /// Starts a kube-scheduler and returns when it serves.
    ///
    /// # Errors
    /// As for [`Self::start`]; [`TestbedError::AlreadyRunning`] for a number in use.
    pub async fn start_scheduler(&self, options: &SchedulerOptions) -> Result<(), TestbedError> {
        let identity = if options.leader_elect { Identity::Muster } else { Identity::Scheduler };
        let component = Component::Scheduler(options.number);
        let shipped = self.options.repository.join("scheduler-config").join(options.file);
        let document = read_yaml(&shipped)?.into_iter().next().unwrap_or_default();
        let kubeconfig = self.kubeconfig(identity);
        let configuration = scheduler_configuration(
            document,
            SchedulerSettings {
                kubeconfig: &kubeconfig,
                extender: options.extender,
                leader_elect: options.leader_elect,
                qps: options.qps,
                tls: options.tls.as_ref(),
            },
        )?;
        let path = self.folder.join(format!("{component}.yaml"));
        write_private(&path, &configuration)?;
        let address = free_address()?;
        let mut args = self.secure_serving(address, &kubeconfig);
        args.push(flag("--config=", &path));
        args.extend(options.args.iter().map(OsString::from));
        let command = Command::new(self.options.binaries.of(component), args);
        self.processes.start(component, command)?;
        // One that is not the leader never gets ready, and need not.
        let path = if options.leader_elect { "/healthz" } else { "/readyz" };
        self.wait_until_serving(component, address, path).await
    }

    /// Starts `muster serve`, or any other command, as [`Component::Muster`] with `KUBECONFIG` set
    /// to the identity of its ServiceAccount, unless the command sets it. Does not wait: the caller knows its probes.
    ///
    /// # Errors
    /// [`TestbedError::Spawn`], [`TestbedError::AlreadyRunning`].
    pub fn start_muster(&self, number: u8, command: Command) -> Result<(), TestbedError> {
        let command = if command.env.contains_key(std::ffi::OsStr::new("KUBECONFIG")) {
            command
        } else {
            command.env("KUBECONFIG", self.kubeconfig(Identity::Muster))
        };
        self.processes.start(Component::Muster(number), command)
    }

    /// Starts Kueue, whose files [`super::Kueue`] has written. Does not wait.
    pub(super) fn start_kueue(&self, command: Command) -> Result<(), TestbedError> {
        self.processes.start(Component::Kueue, command)
    }

    /// Kills a component with all its children (SIGKILL) and returns when it is gone.
    ///
    /// # Errors
    /// [`TestbedError::NotStarted`].
    pub fn kill(&self, component: Component) -> Result<(), TestbedError> {
        self.touch(component);
        self.processes.kill(component)
    }

    /// Starts a component again with the command it had, on the same address, killing it first
    /// where it still runs. Returns at once, except for kube-apiserver, whose readiness is awaited.
    ///
    /// # Errors
    /// [`TestbedError::NotStarted`], and as for [`Self::start`].
    pub async fn restart(&self, component: Component) -> Result<(), TestbedError> {
        self.restart_with(component, &[]).await
    }

    /// As [`Self::restart`], with further arguments from now on, e.g. other feature gates.
    ///
    /// # Errors
    /// Those of [`Self::restart`].
    pub async fn restart_with(&self, component: Component, more: &[&str]) -> Result<(), TestbedError> {
        self.touch(component);
        self.processes.restart(component, more)?;
        match component {
            Component::ApiServer => self.wait_until_serving(component, self.api_server, "/readyz").await,
            Component::Etcd
            | Component::ControllerManager
            | Component::Kwok
            | Component::Scheduler(_)
            | Component::Muster(_)
            | Component::Kueue => Ok(()),
        }
    }

    /// Sends another signal than SIGKILL: SIGTERM for a shutdown, SIGSTOP and SIGCONT for a pause.
    ///
    /// # Errors
    /// [`TestbedError::NotStarted`].
    pub fn signal(&self, component: Component, signal: Signal) -> Result<(), TestbedError> {
        self.touch(component);
        self.processes.signal(component, signal)
    }

    /// How a component ended, e.g. `exit status: 1`; `None` while it runs or was never started.
    pub fn exit_status(&self, component: Component) -> Option<String> {
        self.processes.exit_status(component)
    }

    /// The process id of a running component, e.g. to read its CPU time.
    pub fn pid(&self, component: Component) -> Option<u32> {
        self.processes.pid(component)
    }

    /// Keeps the folder when the cluster goes.
    pub fn keep(&self) {
        self.keep.store(true, Ordering::Relaxed);
        self.processes.keep_folder();
    }

    /// The folder and the last lines of each log, for a failure's message.
    pub fn report(&self, lines: usize) -> String {
        let mut report = format!("test cluster kept in {}\n", self.folder.display());
        for component in self.processes.components() {
            let state = match self.processes.exit_status(component) {
                Some(status) => format!("ended, {status}"),
                None => "running".to_owned(),
            };
            let log = tail(&self.log(component), lines);
            // Writing to a String cannot fail.
            let _ = writeln!(report, "--- {component} ({state})\n{log}");
        }
        report
    }

    fn client_of(&self, identity: Identity, server: SocketAddr) -> Result<Client, TestbedError> {
        Client::try_from(self.credentials.client_config(identity, server)).map_err(TestbedError::api("make a client"))
    }

    async fn wait_until_serving(
        &self,
        component: Component,
        address: SocketAddr,
        path: &str,
    ) -> Result<(), TestbedError> {
        let client = self.client_of(Identity::Admin, address)?;
        eventually(START, format!("{component} to serve {path}"), || async {
            if let Err(ended) = self.processes.check(component) {
                // No use in waiting any longer.
                return Ok(Some(Err(ended)));
            }
            let request = http::Request::get(path).body(Vec::new()).expect("a constant path is a valid URI");
            client.request_text(request).await?;
            Ok::<_, kube::Error>(Some(Ok(())))
        })
        .await?
    }

    fn etcd(&self, client: SocketAddr, peer: SocketAddr) -> Command {
        let mut args: Vec<OsString> = vec![
            flag("--data-dir=", &self.folder.join("etcd")),
            format!("--listen-client-urls=http://{client}").into(),
            format!("--advertise-client-urls=http://{client}").into(),
            format!("--listen-peer-urls=http://{peer}").into(),
            format!("--initial-advertise-peer-urls=http://{peer}").into(),
            format!("--initial-cluster=default=http://{peer}").into(),
            "--log-level=warn".into(),
        ];
        if !self.options.fsync {
            args.push("--unsafe-no-fsync".into());
        }
        Command::new(self.options.binaries.of(Component::Etcd), args)
    }

    fn kube_apiserver(&self, etcd: SocketAddr) -> Command {
        let file = |name: &str| self.folder.join(name);
        let mut args: Vec<OsString> = vec![
            format!("--etcd-servers=http://{etcd}").into(),
            format!("--bind-address={}", self.api_server.ip()).into(),
            format!("--advertise-address={}", self.api_server.ip()).into(),
            format!("--secure-port={}", self.api_server.port()).into(),
            flag("--cert-dir=", &file("kube-apiserver")),
            flag("--tls-cert-file=", &file("serving.crt")),
            flag("--tls-private-key-file=", &file("serving.key")),
            flag("--token-auth-file=", &file("tokens.csv")),
            // Nobody has a client certificate, but without an authority the ConfigMap is missing in
            // which other components look for one.
            flag("--client-ca-file=", &file("ca.crt")),
            "--authorization-mode=RBAC".into(),
            // No controller makes the default ServiceAccount of a namespace.
            "--disable-admission-plugins=ServiceAccount".into(),
            "--endpoint-reconciler-type=none".into(),
            "--service-cluster-ip-range=10.96.0.0/16".into(),
            "--service-account-issuer=https://kubernetes.default.svc".into(),
            flag("--service-account-key-file=", &file("service-account.pub")),
            flag("--service-account-signing-key-file=", &file("service-account.key")),
            flag("--audit-policy-file=", &file("audit-policy.yaml")),
            flag("--audit-log-path=", &self.audit_log()),
            "--profiling=false".into(),
        ];
        args.extend(self.options.api_server_args.iter().map(OsString::from));
        self.of_go(Component::ApiServer, args)
    }

    fn kube_controller_manager(&self, address: SocketAddr) -> Command {
        let kubeconfig = self.kubeconfig(Identity::ControllerManager);
        let mut args = self.secure_serving(address, &kubeconfig);
        args.push(flag("--kubeconfig=", &kubeconfig));
        args.extend(
            [
                CONTROLLERS,
                "--leader-elect=false",
                "--use-service-account-credentials=false",
                "--kube-api-qps=1000",
                "--kube-api-burst=2000",
                // Nodes get and lose the not-ready taints by their condition, but silence is never
                // taken for death: kwok renews no leases, which would be most of the load.
                "--node-monitor-grace-period=24h",
                "--profiling=false",
            ]
            .map(OsString::from),
        );
        args.extend(self.options.controller_manager_args.iter().map(OsString::from));
        self.of_go(Component::ControllerManager, args)
    }

    /// A component that collects its garbage less often where its time is not measured: memory for a third of its CPU.
    fn of_go(&self, component: Component, args: Vec<OsString>) -> Command {
        let command = Command::new(self.options.binaries.of(component), args);
        if self.options.measured { command } else { command.env("GOGC", "400") }
    }

    fn kwok(&self) -> Command {
        Command::new(
            self.options.binaries.of(Component::Kwok),
            [
                flag("--kubeconfig=", &self.kubeconfig(Identity::Admin)),
                flag("--config=", &self.folder.join("stages.yaml")),
                "--manage-nodes-with-annotation-selector=kwok.x-k8s.io/node=fake".into(),
                "--node-ip=127.0.0.1".into(),
                "--cidr=10.244.0.0/16".into(),
                "--node-lease-duration-seconds=0".into(),
            ],
        )
    }

    /// The flags by which kube-scheduler and kube-controller-manager serve their probes, with the
    /// certificate of the cluster.
    fn secure_serving(&self, address: SocketAddr, kubeconfig: &Path) -> Vec<OsString> {
        vec![
            format!("--bind-address={}", address.ip()).into(),
            format!("--secure-port={}", address.port()).into(),
            flag("--tls-cert-file=", &self.folder.join("serving.crt")),
            flag("--tls-private-key-file=", &self.folder.join("serving.key")),
            flag("--authentication-kubeconfig=", kubeconfig),
            flag("--authorization-kubeconfig=", kubeconfig),
            "--authentication-tolerate-lookup-failure=true".into(),
        ]
    }
}

impl Drop for TestCluster {
    #[expect(clippy::print_stderr, reason = "the only way to say where the evidence of a failed test is")]
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.keep();
        }
        if self.keep.load(Ordering::Relaxed) {
            eprintln!("{}", self.report(15));
        }
        if !self.plane().is_some_and(Plane::leave) {
            self.processes.end();
        }
    }
}

/// A free address on 127.0.0.1, e.g. for the extender of a `muster serve` that is started next.
/// Nothing reserves it.
///
/// # Errors
/// [`TestbedError::Port`].
pub fn free_address() -> Result<SocketAddr, TestbedError> {
    let [address] = free_addresses()?;
    Ok(address)
}

/// Distinct free addresses on 127.0.0.1. None is given twice, and none lies where the kernel takes ports from by itself: between
/// finding it free and binding it, somebody else's connection or listener on port 0 would have it.
fn free_addresses<const COUNT: usize>() -> Result<[SocketAddr; COUNT], TestbedError> {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let many = u32::from(PORTS.end - PORTS.start);
    // Processes begin at different places.
    let start = std::process::id().wrapping_mul(37);
    let mut addresses = [SocketAddr::from((Ipv4Addr::LOCALHOST, 0)); COUNT];
    for address in &mut addresses {
        let mut all = (0..many).filter_map(|_| {
            let number = start.wrapping_add(NEXT.fetch_add(1, Ordering::Relaxed)) % many;
            let port = PORTS.start.saturating_add(u16::try_from(number).ok()?);
            Some(SocketAddr::from((Ipv4Addr::LOCALHOST, port)))
        });
        let free = all.find(|address| TcpListener::bind(address).is_ok());
        *address = free.ok_or_else(|| TestbedError::Port(ErrorKind::AddrInUse.into()))?;
    }
    Ok(addresses)
}

/// A new folder that only this user can enter: it will hold tokens and keys.
fn make_folder() -> Result<PathBuf, TestbedError> {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    loop {
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("muster-testbed-{}-{number}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        match DirBuilder::new().mode(0o700).create(&folder) {
            Ok(()) => return Ok(folder),
            // Left by an earlier process of the same number.
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
            Err(error) => return Err(TestbedError::file("make the folder", folder)(error)),
        }
    }
}

/// A flag whose value is a path, which need not be UTF-8.
fn flag(name: &str, path: &Path) -> OsString {
    let mut flag = OsString::from(name);
    flag.push(path);
    flag
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn free_addresses_are_distinct_and_on_loopback() {
        let addresses: [SocketAddr; 8] = free_addresses().unwrap();
        let ports: std::collections::BTreeSet<u16> = addresses.iter().map(SocketAddr::port).collect();
        assert_eq!(ports.len(), 8);
        assert!(ports.iter().all(|port| PORTS.contains(port)));
        assert!(addresses.iter().all(|address| address.ip().is_loopback()));
    }
}
