//! `docs/getting-started-eks.md` executed as it stands: from nothing to a bound gang, and back to nothing.
//!
//! A shell runs every block of the page with the real git, kubectl, Helm and AWS CLI. EKS, EC2, STS and Service Quotas are the
//! EC2 simulator's, ECR and CloudFormation moto's. What no machine without a cloud can do stands in [`SHIMS`]. The kubelets of
//! Muster's Pods are played by the real processes, with the configuration that was installed; kwok plays all others.
//!
//! Needs Helm (`MUSTER_HELM`) and a folder with `aws` and `moto_server` (`MUSTER_AWS`): `make test-getting-started`.

#![allow(clippy::unwrap_used, clippy::print_stderr, reason = "a test fails by panicking, its helpers too")]

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use futures::StreamExt as _;
use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::{ConfigMap, Node, Pod};
use kube::api::PostParams;
use kube::runtime::watcher;
use kube::{Api, ResourceExt};
use muster::testbed::cluster::{CONTROLLERS, free_address};
use muster::testbed::nodes::TestNode;
use muster::testbed::request::request;
use muster::testbed::{
    Binaries, ClusterOptions, Command, Component, Identity, SchedulerOptions, TestCluster, eventually, repository,
};
use muster_ec2_sim::{MarketType, Scenario};
use serde_json::{Value, json};

use crate::install::run_hook;
use crate::page::blocks;
use crate::support::{DEADLINE, options};

/// Number of the simulator among the Muster processes of the cluster.
const SIMULATOR: u8 = 99;
/// Access key id of whoever reads the page; everybody else has what the page deployed.
const PERSON: &str = "person";
/// Number of the cluster's own kube-scheduler.
const DEFAULT_SCHEDULER: u8 = 99;
/// Longest wait for the whole page. Its own commands have shorter ones.
const PAGE: Duration = Duration::from_secs(1_200);

/// Tools that stand before the real ones. They write down how each call ended.
const SHIMS: [(&str, &str); 4] = [
    (
        "aws",
        r#"endpoint=$SIMULATOR
# PyPI has version 1 of the AWS CLI, which reads the Region elsewhere.
export AWS_DEFAULT_REGION=$AWS_REGION
case "$1 $2" in
  # The cluster's real kubeconfig is that of the testbed.
  "eks update-kubeconfig") set -- "$@" --kubeconfig "$SCRATCH/written-by-aws" ;;
  # Version 2 alone has it.
  "configure export-credentials")
    echo "export AWS_ACCESS_KEY_ID=$AWS_ACCESS_KEY_ID AWS_SECRET_ACCESS_KEY=$AWS_SECRET_ACCESS_KEY AWS_SESSION_TOKEN="
    exit ;;
  "ec2 describe-nat-gateways" | ecr\ * | cloudformation\ *) endpoint=$MOTO ;;
esac
# What was deployed in moto is in force in the simulator for whoever is not a person.
if [ "$1 $2" = "cloudformation deploy" ]; then
  "$TOOLS/aws" --endpoint-url "$MOTO" "$@" || exit
  arn=arn:aws:iam::123456789012:policy/$CLUSTER-muster
  version=$("$TOOLS/aws" --endpoint-url "$MOTO" iam get-policy --policy-arn "$arn" --query Policy.DefaultVersionId --output text) || exit
  "$TOOLS/aws" --endpoint-url "$MOTO" iam get-policy-version --policy-arn "$arn" --version-id "$version" \
    --query PolicyVersion.Document --output json >"$SCRATCH/policy.json" || exit
  "$TOOLS/python" -c 'import sys, urllib.request as r; r.urlopen(r.Request(sys.argv[1], open(sys.argv[2], "rb").read(), {"Content-Type": "application/json"}))' \
    "$SIMULATOR/_sim/policy" "$SCRATCH/policy.json"
  exit
fi
# moto deletes a policy before the role that it is attached to is gone.
if [ "$1 $2" = "cloudformation delete-stack" ]; then
  "$TOOLS/aws" --endpoint-url "$MOTO" iam detach-role-policy --role-name "$CLUSTER-muster" \
    --policy-arn "arn:aws:iam::123456789012:policy/$CLUSTER-muster" || exit
fi
"$TOOLS/aws" --endpoint-url "$endpoint" "$@""#,
    ),
    (
        "docker",
        r#"case $1 in
  # An image is neither built nor pushed.
  login) cat >/dev/null ;;
  build | push) ;;
  run)
    while [ "$1" != "$IMAGE" ]; do shift; done; shift
    AWS_ENDPOINT_URL=$SIMULATOR "$MUSTER" "$@" ;;
  *) false ;;
esac"#,
    ),
    (
        "helm",
        r#"case " $* " in
  # Charts of others are not to be had: a DaemonSet with the tolerations of the shipped one.
  *" upgrade --install nvdp "*) "$KUBECTL" apply -f "$SCRATCH/nvdp.json" ;;
  *" uninstall nvdp "*) "$KUBECTL" delete -f "$SCRATCH/nvdp.json" --ignore-not-found ;;
  *) "$HELM" "$@" ;;
esac"#,
    ),
    (
        "kubectl",
        r#"case " $* " in
  # What runs in a Pod runs beside it, with its identity and configuration.
  *" exec deployment/muster "*)
    while [ "$1" != -- ]; do shift; done; shift 2
    AWS_ACCESS_KEY_ID=muster KUBECONFIG=$SCRATCH/muster.kubeconfig "$MUSTER" "${@/#\/etc\/muster\/muster.yaml/$SCRATCH/muster-0.json}" ;;
  *) "$KUBECTL" "$@" ;;
esac"#,
    ),
];

/// Folder of the AWS CLI and moto, and Helm.
fn tools() -> (PathBuf, PathBuf) {
    let folder = |name: &str| {
        let folder = std::env::var_os(name).map(PathBuf::from);
        folder.unwrap_or_else(|| {
            panic!("{name} is not set: `make test-getting-started` does, and `make test` excludes this")
        })
    };
    (folder("MUSTER_AWS"), folder("MUSTER_HELM").join("helm4"))
}

/// Two `c6i.large` and two `g6.xlarge` are to be had, by a new account's quotas, and things take seconds.
fn scenario(origin: &str) -> Value {
    let mut scenario = Scenario::default()
        .with_pool("c6i.large", "us-east-1a", MarketType::OnDemand, 1, 1, 2)
        .with_pool("g6.xlarge", "us-east-1a", MarketType::OnDemand, 1, 1, 2);
    scenario.clusters[0].name = "training".to_owned();
    scenario.clusters[0].version = "1.37".to_owned();
    scenario.queue.name = "training-muster".to_owned();
    scenario.administrators = vec![PERSON.to_owned()];
    scenario.instance_profiles = vec!["training-muster-node".to_owned()];
    scenario.quotas = BTreeMap::from([("standard".to_owned(), 5), ("g".to_owned(), 8)]);
    (scenario.delays.boot_seconds, scenario.delays.terminate_seconds) = (3.0, 3.0);
    let mut scenario = serde_json::to_value(scenario).unwrap();
    scenario["clock"] = json!({"factor": 1, "origin": origin});
    scenario
}

fn daemon_set(name: &str, tolerations: &Value) -> Value {
    json!({
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": name, "namespace": "kube-system", "labels": {"app.kubernetes.io/name": name}},
        "spec": {
            "selector": {"matchLabels": {"app.kubernetes.io/name": name}},
            "template": {
                "metadata": {"labels": {"app.kubernetes.io/name": name}},
                "spec": {"tolerations": tolerations, "containers": [{"name": "main", "image": name}]},
            },
        },
    })
}

/// What a cluster of EKS has from the start: two nodes, and the DaemonSets of its add-ons.
async fn furnish(cluster: &TestCluster) {
    let client = cluster.client(Identity::Admin).unwrap();
    let nodes: Api<Node> = Api::all(client.clone());
    for number in 0..2 {
        let node = TestNode::new(format!("own-{number}")).instance_type("m6i.large").gpus(0).efa(0);
        let mut node = node.resource("cpu", "2").resource("memory", "8Gi").build();
        let info = json!({
            "architecture": "amd64", "bootID": "", "containerRuntimeVersion": "", "kernelVersion": "", "kubeProxyVersion": "",
            "kubeletVersion": "v1.37.0", "machineID": "", "operatingSystem": "linux", "osImage": "", "systemUUID": "",
        });
        node.status.as_mut().unwrap().node_info = Some(serde_json::from_value(info).unwrap());
        nodes.create(&PostParams::default(), &node).await.unwrap();
    }
    let sets: Api<DaemonSet> = Api::namespaced(client, "kube-system");
    for name in ["aws-node", "kube-proxy", "eks-pod-identity-agent"] {
        let set = daemon_set(name, &json!([{"operator": "Exists"}]));
        sets.create(&PostParams::default(), &serde_json::from_value(set).unwrap()).await.unwrap();
    }
}

/// Where everything of one run is.
struct Run {
    cluster: TestCluster,
    muster: PathBuf,
    simulator: SocketAddr,
    origin: String,
    scratch: PathBuf,
}

impl Run {
    async fn start(binaries: Binaries, muster: PathBuf) -> Self {
        let mut options = ClusterOptions::new(repository(), binaries);
        let controllers = format!("{CONTROLLERS},deployment-controller");
        options.controller_manager_args.push(controllers);
        let cluster = TestCluster::start(options).await.unwrap_or_else(|error| panic!("{error}"));
        let own = SchedulerOptions {
            number: DEFAULT_SCHEDULER,
            file: "default-scheduler.yaml",
            ..SchedulerOptions::new(None)
        };
        cluster.start_scheduler(&own).await.unwrap();
        furnish(&cluster).await;
        let (simulator, origin) = (free_address().unwrap(), jiff::Timestamp::now().to_string());
        let scratch = cluster.folder().join("page");
        std::fs::create_dir_all(&scratch).unwrap();
        let file = cluster.folder().join("scenario.json");
        std::fs::write(&file, scenario(&origin).to_string()).unwrap();
        let listen = simulator.to_string();
        let scenario = file.display().to_string();
        let args = ["ec2-sim", "--register-nodes", "--listen", &listen, "--scenario", &scenario];
        let command = Command::new(&muster, args).env("KUBECONFIG", cluster.kubeconfig(Identity::Admin));
        cluster.start_muster(SIMULATOR, command).unwrap();
        answers(simulator, "/_sim/clock").await;
        Self { cluster, muster, simulator, origin, scratch }
    }

    /// Plays the kubelets of the Pods in `muster-system`, until this future is dropped.
    async fn kubelet(&self) {
        let client = self.cluster.client(Identity::Admin).unwrap();
        let pods: Api<Pod> = Api::namespaced(client, "muster-system");
        let mut events = std::pin::pin!(watcher(pods.clone(), watcher::Config::default()));
        let mut started: BTreeMap<String, u8> = BTreeMap::new();
        while let Some(event) = events.next().await {
            match event {
                Ok(watcher::Event::Apply(pod) | watcher::Event::InitApply(pod)) => {
                    let uid = pod.uid().unwrap();
                    let bound = pod.spec.as_ref().is_some_and(|spec| spec.node_name.is_some());
                    if !bound || started.contains_key(&uid) {
                        continue;
                    }
                    let number = u8::try_from(started.len()).unwrap();
                    started.insert(uid, number);
                    if pod.labels()["app.kubernetes.io/name"] == "muster" {
                        self.start_pod(&pod, number).await;
                    } else {
                        eprintln!("{}", run_hook(&self.cluster, &pods, &pod).await);
                    }
                }
                Ok(watcher::Event::Delete(pod)) => {
                    if let Some(number) = started.get(&pod.uid().unwrap()) {
                        // A Pod of the hook has no process.
                        let _ = self.cluster.kill(Component::Scheduler(*number));
                        let _ = self.cluster.kill(Component::Muster(*number));
                    }
                }
                Ok(watcher::Event::Init | watcher::Event::InitDone) | Err(_) => {}
            }
        }
    }

    /// Both containers of a Pod of Muster's, with what its ConfigMaps hold. Only addresses are the testbed's.
    async fn start_pod(&self, pod: &Pod, number: u8) {
        let maps: Api<ConfigMap> = Api::namespaced(self.cluster.client(Identity::Admin).unwrap(), "muster-system");
        let read = async |map: &str, key: &str| {
            let text = maps.get(map).await.unwrap().data.unwrap()[key].clone();
            serde_saphyr::from_str::<Value>(&text).unwrap()
        };
        let mut config = read("muster-config", "muster.yaml").await;
        let (extender, http) = (free_address().unwrap(), free_address().unwrap());
        config["extender"]["listen"] = extender.to_string().into();
        config["http"]["listen"] = http.to_string().into();
        config["ec2"]["endpointUrl"] = format!("http://{}", self.simulator).into();
        config["clock"] = json!({"factor": 1, "origin": self.origin});
        let file = self.scratch.join(format!("muster-{number}.json"));
        std::fs::write(&file, config.to_string()).unwrap();
        let containers = &pod.spec.as_ref().unwrap().containers;
        let muster = containers.iter().find(|one| one.name == "muster").unwrap();
        let args =
            muster.args.iter().flatten().map(|arg| arg.replace("/etc/muster/muster.yaml", &file.display().to_string()));
        let command = Command::new(&self.muster, args)
            .env("POD_NAME", pod.name_any())
            .env("POD_NAMESPACE", "muster-system")
            // As whom Pod Identity would sign.
            .env("AWS_ACCESS_KEY_ID", "muster")
            .env("AWS_SECRET_ACCESS_KEY", "simulated");
        self.cluster.start_muster(number, command).unwrap();
        answers(http, "/healthz").await;

        let shipped = std::fs::read_to_string(repository().join("scheduler-config/own-scheduler.yaml")).unwrap();
        let shipped: Value = serde_saphyr::from_str(&shipped).unwrap();
        assert_eq!(read("muster-scheduler-config", "scheduler.yaml").await, shipped);
        let beside = SchedulerOptions { number, leader_elect: true, ..SchedulerOptions::new(Some(extender)) };
        self.cluster.start_scheduler(&beside).await.unwrap();
    }

    /// The page as one script. Of its words only where the source is from is another.
    fn script(&self) -> String {
        let mut script = "set -eo pipefail\n".to_owned();
        for (number, block) in blocks().into_iter().enumerate() {
            let source = format!("export SOURCE={}", repository().display());
            let block = block.replace("export SOURCE=https://muster.dev", &source);
            let _ = write!(script, "echo \"block {number} $SECONDS s\" >&2\n{block}\n");
        }
        script
    }

    /// Runs the page, and returns what it wrote, and how each call of a tool ended.
    async fn page(&self, tools: &Path, helm: &Path, moto: SocketAddr, kubectl: &Path) -> (String, Vec<String>) {
        let bin = self.scratch.join("bin");
        std::fs::create_dir_all(&bin).unwrap();
        let calls = self.scratch.join("calls");
        for (name, body) in SHIMS {
            let file = bin.join(name);
            let text =
                format!("#!/usr/bin/env bash\n{body}\ncode=$?\necho \"$code {name} $*\" >>\"$CALLS\"\nexit $code\n");
            std::fs::write(&file, text).unwrap();
            std::fs::set_permissions(&file, PermissionsExt::from_mode(0o755)).unwrap();
        }
        let nvidia = json!([{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}]);
        std::fs::write(self.scratch.join("nvdp.json"), daemon_set("nvidia-device-plugin", &nvidia).to_string())
            .unwrap();
        std::fs::copy(self.cluster.kubeconfig(Identity::Muster), self.scratch.join("muster.kubeconfig")).unwrap();
        let path = std::env::join_paths(
            std::iter::once(bin).chain(std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default())),
        );
        let wrote = self.scratch.join("page.log");
        let log = std::fs::File::create(&wrote).unwrap();
        let script = self.scratch.join("page.sh");
        std::fs::write(&script, self.script()).unwrap();
        let home = self.scratch.join("home");
        std::fs::create_dir_all(&home).unwrap();
        let status = tokio::process::Command::new("bash")
            .arg(&script)
            .current_dir(&self.scratch)
            .env("PATH", path.unwrap())
            .env("HOME", &home)
            .env("KUBECONFIG", self.cluster.kubeconfig(Identity::Admin))
            .env("SCRATCH", &self.scratch)
            .env("CALLS", &calls)
            .env("TOOLS", tools)
            .env("HELM", helm)
            .env("KUBECTL", kubectl)
            .env("MUSTER", &self.muster)
            .env("SIMULATOR", format!("http://{}", self.simulator))
            .env("MOTO", format!("http://{moto}"))
            .env("AWS_ACCESS_KEY_ID", PERSON)
            .env("AWS_SECRET_ACCESS_KEY", "simulated")
            .env("AWS_PAGER", "")
            .stdin(std::process::Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .kill_on_drop(true)
            .status()
            .await
            .unwrap();
        let wrote = std::fs::read_to_string(&wrote).unwrap();
        assert!(status.success(), "the page ends with {status}:\n{wrote}\n{}", self.cluster.report(40));
        let calls = std::fs::read_to_string(&calls).unwrap();
        (wrote, calls.lines().map(str::to_owned).collect())
    }

    async fn sim(&self, path: &str) -> Value {
        serde_json::from_str(&request(self.simulator, "GET", path, "").await.unwrap()).unwrap()
    }
}

async fn answers(address: SocketAddr, path: &str) {
    let ready = eventually(DEADLINE, format!("{address}{path}"), || async move {
        request(address, "GET", path, "").await.map(Some)
    });
    ready.await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_page_leads_from_nothing_to_a_bound_gang_and_back_to_nothing() {
    let (tools, helm) = tools();
    let Some(options) = options().await else { return };
    let kubectl = options.binaries.kubectl();
    let run = Run::start(options.binaries, options.muster).await;
    let moto = free_address().unwrap();
    let server = Command::new(tools.join("moto_server"), ["-H", "127.0.0.1", "-p", &moto.port().to_string()]);
    run.cluster.start_muster(SIMULATOR - 1, server.env("MOTO_IAM_LOAD_MANAGED_POLICIES", "true")).unwrap();
    answers(moto, "/moto-api/data.json").await;

    let page = tokio::time::timeout(PAGE, run.page(&tools, &helm, moto, &kubectl));
    let (wrote, calls) = tokio::select! {
        done = page => done.expect("the page ends in time"),
        () = run.kubelet() => unreachable!("a kubelet that nobody ends"),
    };

    // A command within another, or within an assignment, ends no shell.
    let failed: Vec<&String> = calls.iter().filter(|call| !call.starts_with("0 ")).collect();
    assert!(
        matches!(&failed[..], [only] if only.contains("eks describe-addon")),
        "only the add-on that is not there yet is refused: {failed:?}\n{wrote}"
    );
    assert!(wrote.matches("condition met").count() >= 4, "two pools Ready, two gangs Bound: {wrote}");
    assert!(wrote.contains("nothing is left of cluster"), "{wrote}");
    let journal = run.sim("/_sim/journal?from=0").await;
    let fleets = journal
        .as_array()
        .unwrap()
        .iter()
        .filter(|entry| entry["operation"] == "CreateFleet" && entry["resources"].to_string().contains("i-"));
    assert_eq!(fleets.count(), 2, "one launch for each gang: {wrote}");
    assert_eq!(run.sim("/_sim/instances").await, json!([]), "{wrote}");
    let deployed = run.sim("/_sim/policy").await;
    assert!(deployed["Statement"].as_array().is_some_and(|all| all.len() > 10), "Muster ran under it: {deployed}");
    let state = run.sim("/_sim/state").await;
    assert_eq!((&state["placementGroups"], &state["launchTemplates"]), (&json!([]), &json!([])), "{wrote}");
    for line in wrote.lines().filter(|line| line.starts_with("block ")) {
        eprintln!("{line}");
    }
}
