//! What a user runs to install: `kubectl apply -k`, Helm 3 and 4; and the pair of kube-scheduler and API server.
//!
//! The tests of Helm need its binaries, in the folder that `MUSTER_HELM` names: `make test-helm`. `MUSTER_CHARTS_BEFORE` is a folder
//! with the charts of an earlier commit, from which the upgrade begins; without it, that is one to the same charts.

#![allow(clippy::unwrap_used, clippy::print_stderr, reason = "a test fails by panicking, its helpers too")]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{ListParams, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt};
use muster::testbed::installer::run;
use muster::testbed::workloads::TestJob;
use muster::testbed::{Identity, Installer, Stack, TestCluster, repository};
use muster_api::crd::NodeBatch;
use serde_json::{Value, json};

use crate::cloud::{gang_job, provisioning_on, provisioning_stack, zones};
use crate::support::{all_run, leaves, options, phase, stack, submit, unique};

/// Helm 3 and 4.
fn helms() -> Vec<PathBuf> {
    let Some(folder) = std::env::var_os("MUSTER_HELM").map(PathBuf::from) else {
        eprintln!("skipped: Helm is not built; make test-helm builds it");
        return Vec::new();
    };
    vec![folder.join("helm3"), folder.join("helm4")]
}

/// A gang of two on nodes that exist.
async fn first_gang(stack: &Stack) {
    stack.create_nodes(leaves(&["a"], 2)).await.unwrap();
    let job = TestJob::new("train", 2).gpus(8).pod_annotation("muster.dev/gang", "train").build();
    submit(&stack.admin().unwrap(), "ml", job).await;
    all_run(stack, "ml", "train", 2).await;
    phase(stack, "ml", "train", "Bound").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kubectl_apply_of_the_kustomization_installs_what_a_first_gang_needs() {
    let Some(mut options) = options().await else { return };
    options.installer = Installer::Kustomize;
    first_gang(&stack(options, "ml").await).await;
}

/// `muster serve` beside a Pod whose kube-scheduler has this image: exit code and what it reported, once it ended.
async fn serve_beside(stack: &Stack, image: &str) -> (Option<i32>, String) {
    let pods: Api<Pod> = Api::namespaced(stack.admin().unwrap(), "ml");
    let containers = json!([{"name": "kube-scheduler", "image": image}, {"name": "muster", "image": "muster"}]);
    let pod = json!({"metadata": {"name": "muster-9"}, "spec": {"containers": containers}});
    pods.create(&PostParams::default(), &serde_json::from_value(pod).unwrap()).await.unwrap();
    let output = tokio::process::Command::new(env!("CARGO_BIN_EXE_muster"))
        .arg("serve")
        .arg("--config")
        .arg(stack.config())
        .env("KUBECONFIG", stack.cluster.kubeconfig(Identity::Muster))
        .env("POD_NAME", "muster-9")
        .env("POD_NAMESPACE", "ml")
        .kill_on_drop(true)
        .output()
        .await
        .unwrap();
    let stated = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    (output.status.code(), stated)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_kube_scheduler_newer_than_the_api_server_ends_the_start_and_the_message_says_what_to_change() {
    let Some(options) = options().await else { return };
    let stack = stack(options, "ml").await;
    // The running one holds the ports, so that a start which is not refused ends as well, with another message.
    let (code, stated) = serve_beside(&stack, "registry.example:5000/kube-scheduler:v1.99.0@sha256:0123").await;
    assert_eq!(code, Some(2), "{stated}");
    let reported = stack.admin().unwrap().apiserver_version().await.unwrap();
    let minor = format!("{}.{}", reported.major, reported.minor.trim_end_matches('+'));
    for part in [
        "kube-scheduler 1.99 is newer than the API server",
        &format!("kubernetes/{minor}"),
        &format!("kubernetes.minor=\"{minor}\""),
    ] {
        assert!(stated.contains(part), "{part:?} in {stated}");
    }
    let pods: Api<Pod> = Api::namespaced(stack.admin().unwrap(), "ml");
    pods.delete("muster-9", &kube::api::DeleteParams::default().grace_period(0)).await.unwrap();
    let (_, stated) = serve_beside(&stack, &format!("kube-scheduler:v{minor}.0")).await;
    assert!(!stated.contains("is newer"), "{stated}");
    assert!(stated.contains("kube-scheduler fits the API server"), "{stated}");
}

/// What a command writes.
fn output(program: &Path, args: &[&str]) -> Result<String, String> {
    let output = std::process::Command::new(program).args(args).current_dir(repository()).output().unwrap();
    let reported = String::from_utf8_lossy(&output.stdout).into_owned();
    if output.status.success() { Ok(reported) } else { Err(reported + &String::from_utf8_lossy(&output.stderr)) }
}

/// Objects by kind and name, without what differs on purpose: kustomize's names of ConfigMaps carry a hash and Helm's Pods
/// a checksum; definitions of the chart are kept; the namespace is Helm's own affair.
fn objects(yaml: &str) -> BTreeMap<String, Value> {
    let documents: Vec<Value> = serde_saphyr::from_multiple(yaml).unwrap();
    let mut objects = BTreeMap::new();
    for mut object in documents.into_iter().filter(Value::is_object) {
        let kind = object["kind"].as_str().unwrap().to_owned();
        let mut name = object["metadata"]["name"].as_str().unwrap().to_owned();
        match kind.as_str() {
            "Namespace" => continue,
            "Job" if object["metadata"]["annotations"]["helm.sh/hook"].is_string() => continue,
            "ConfigMap" => {
                for plain in ["muster-scheduler-config", "muster-config"] {
                    if name.starts_with(plain) {
                        plain.clone_into(&mut name);
                    }
                }
                object["metadata"]["name"] = name.clone().into();
                for (_, text) in object["data"].as_object_mut().unwrap() {
                    let parsed: Value = serde_saphyr::from_str(text.as_str().unwrap()).unwrap();
                    *text = parsed;
                }
            }
            "Deployment" => {
                let pod = &mut object["spec"]["template"];
                let annotations = pod["metadata"]["annotations"].as_object_mut().unwrap();
                annotations.remove("muster.dev/config-checksum");
                for volume in pod["spec"]["volumes"].as_array_mut().unwrap() {
                    let own = if volume["name"] == "config" { "muster-config" } else { "muster-scheduler-config" };
                    assert!(volume["configMap"]["name"].as_str().unwrap().starts_with(own), "{volume}");
                    volume["configMap"]["name"] = own.into();
                }
            }
            "CustomResourceDefinition" => {
                let metadata = object["metadata"].as_object_mut().unwrap();
                if let Some(Value::Object(mut annotations)) = metadata.remove("annotations") {
                    annotations.remove("helm.sh/resource-policy");
                    if !annotations.is_empty() {
                        metadata.insert("annotations".to_owned(), Value::Object(annotations));
                    }
                }
            }
            _ => {}
        }
        let before = objects.insert(format!("{kind} {name}"), object);
        assert!(before.is_none(), "{kind} {name} is there twice");
    }
    objects
}

/// The kustomization for a minor version, with or without its PodMonitor: what a user edits, edited.
fn kustomized(kubectl: &Path, minor: &str, monitoring: bool) -> BTreeMap<String, Value> {
    let folder = std::env::temp_dir().join(format!("muster-install-{}-{}", std::process::id(), unique()));
    std::fs::create_dir_all(&folder).unwrap();
    for name in ["manifests", "scheduler-config"] {
        output(Path::new("cp"), &["-r", name, &folder.display().to_string()]).unwrap();
    }
    let file = folder.join("manifests/kustomization.yaml");
    let mut text =
        std::fs::read_to_string(&file).unwrap().replace("- kubernetes/1.37", &format!("- kubernetes/{minor}"));
    if monitoring {
        text = text.replace("# - monitoring", "- monitoring").replace("# - observability", "- observability");
    }
    std::fs::write(&file, text).unwrap();
    let reported = output(kubectl, &["kustomize", &folder.join("manifests").display().to_string()]).unwrap();
    std::fs::remove_dir_all(&folder).unwrap();
    objects(&reported)
}

#[tokio::test]
async fn each_minor_version_has_its_kube_scheduler_and_the_policy_only_where_it_is_served() {
    let Some(options) = options().await else { return };
    for (minor, policy) in [("1.35", false), ("1.36", true), ("1.37", true)] {
        let objects = kustomized(&options.binaries.kubectl(), minor, false);
        let pod = &objects["Deployment muster"]["spec"]["template"]["spec"];
        let image = pod["containers"][0]["image"].as_str().unwrap();
        assert!(image.starts_with(&format!("registry.k8s.io/kube-scheduler:v{minor}.")), "{image}");
        assert_eq!(objects.contains_key("MutatingAdmissionPolicy gang-gate.muster.dev"), policy, "{minor}");
    }
}

#[tokio::test]
async fn helm_and_kustomize_make_equal_objects() {
    let Some(options) = options().await else { return };
    for helm in helms() {
        for (minor, monitoring) in [("1.35", false), ("1.36", true), ("1.37", false)] {
            let observed = ["podMonitor", "alerts", "dashboards"].map(|name| format!("{name}.enabled={monitoring}"));
            let template = |chart: &str, more: &[&str]| {
                let kubernetes = format!("--kube-version={minor}");
                let chart = format!("charts/{chart}");
                let args = [&["template", "muster", &chart, "-n", "muster-system", &kubernetes][..], more].concat();
                objects(&output(&helm, &args).unwrap())
            };
            let mut charts = template("muster", &["--set", &observed.join(",")]);
            charts.extend(template("muster-crd", &[]));
            let kustomized = kustomized(&options.binaries.kubectl(), minor, monitoring);
            assert_eq!(kustomized.contains_key("PrometheusRule muster"), monitoring, "{minor}");
            let names = |objects: &BTreeMap<String, Value>| objects.keys().cloned().collect::<Vec<_>>();
            assert_eq!(names(&charts), names(&kustomized), "{} {minor}", helm.display());
            for (name, object) in &kustomized {
                assert_eq!(&charts[name], object, "{name} of {} {minor}", helm.display());
            }
        }
    }
}

#[test]
fn a_registry_stands_before_every_image_of_the_chart() {
    for helm in helms() {
        let args =
            ["template", "muster", "charts/muster", "--kube-version=1.37", "--set=imageRegistry=mirror.example:5000/x"];
        let reported = output(&helm, &args).unwrap();
        let images: Vec<&str> = reported.lines().filter_map(|line| line.trim().strip_prefix("image: ")).collect();
        assert_eq!(images.len(), 3, "two containers and the hook: {images:?}");
        assert!(images.iter().all(|image| image.starts_with("mirror.example:5000/x/")), "{images:?}");
    }
}

#[test]
fn further_volumes_and_the_port_of_the_configuration_come_into_the_pod_and_the_hook_has_what_the_server_has() {
    for helm in helms() {
        let values = "extraVolumes[0].name=page,extraVolumes[0].secret.secretName=page-tls,extraVolumeMounts[0].name=page,\
                      extraVolumeMounts[0].mountPath=/etc/muster-page,config.http.listen=0.0.0.0:9090,\
                      image.pullPolicy=Always";
        let args = ["template", "muster", "charts/muster", "--kube-version=1.37", "--set", values];
        let rendered = output(&helm, &args).unwrap();
        for part in ["secretName: page-tls", "mountPath: /etc/muster-page", "containerPort: 9090"] {
            assert_eq!(rendered.matches(part).count(), 1, "{part} in {rendered}");
        }
        assert_eq!(rendered.matches("imagePullPolicy: Always").count(), 2, "the server and the hook: {rendered}");
        assert_eq!(rendered.matches("memory: 2Gi").count(), 3, "two containers and the hook: {rendered}");
    }
}

/// A wrong value, and what the refusal names.
const WRONG: [(&str, &str); 23] = [
    ("replicas=0", "/replicas"),
    ("replicas=two", "/replicas"),
    ("replica=2", "replica"),
    ("image.tag=a b", "/image/tag"),
    ("image.repository=", "/image/repository"),
    ("image.name=muster", "name"),
    ("image.pullPolicy=Sometimes", "/image/pullPolicy"),
    ("imageRegistry=/mirror", "/imageRegistry"),
    ("kubernetes.minor=v1.37", "/kubernetes/minor"),
    ("kubernetes.version=1.37", "version"),
    ("kubeScheduler.image.registry=/x", "/kubeScheduler/image/registry"),
    ("kubeScheduler.resources.requests.cpu=much", "/kubeScheduler/resources/requests/cpu"),
    ("resources.limit.memory=1Gi", "limit"),
    ("extraVolumes[0].name=tls", "/extraVolumes/0"),
    ("extraVolumes[0].name=config,extraVolumes[0].emptyDir.medium=Memory", "/extraVolumes/0/name"),
    ("extraVolumeMounts[0].name=tls,extraVolumeMounts[0].mountPath=tls", "/extraVolumeMounts/0/mountPath"),
    ("podMonitor.enabled=maybe", "/podMonitor/enabled"),
    ("networkPolicy=true", "/networkPolicy"),
    ("tolerations[0].effect=NoRun", "/tolerations/0/effect"),
    ("nodeAffinityExpressions[0].operator=In", "/nodeAffinityExpressions/0"),
    ("config.bind.httpTimeout=60", "/config/bind/httpTimeout"),
    ("config.ec2.region=Virginia", "/config/ec2/region"),
    ("config.provisioner.maxUsdPerHour=much", "/config/provisioner/maxUsdPerHour"),
];

#[test]
fn every_wrong_value_is_refused_by_name() {
    for helm in helms() {
        for (value, named) in WRONG {
            let args = ["template", "muster", "charts/muster", "--kube-version=1.37", "--set", value];
            let reported = output(&helm, &args).expect_err(value);
            assert!(reported.contains(named), "{value}: {named} in {reported}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn gangs_run_and_get_their_nodes_on_what_helm_installed_upgraded_and_rolled_back() {
    let charts = repository().join("charts");
    let before = std::env::var_os("MUSTER_CHARTS_BEFORE").map_or_else(|| charts.clone(), PathBuf::from);
    for binary in helms() {
        let Some(mut options) = options().await else { return };
        options.installer = Installer::Helm { binary: binary.clone(), charts: before.clone() };
        let stack = provisioning_on(options, &zones([2, 0, 0]), 40, "1s").await;
        let helm = async |args: &[&str]| run(&binary, &stack.cluster, args).await.unwrap();
        let upgrade = async |release: &str, more: &[&str]| {
            let chart = charts.join(release).display().to_string();
            helm(&[&["upgrade", release, &chart, "-n", "muster-system"], more].concat()).await
        };
        upgrade("muster-crd", &[]).await;
        upgrade("muster", &["--set", "podMonitor.enabled=false,replicas=3"]).await;
        assert_eq!(replicas(&stack).await, 3);
        submit(&stack.admin().unwrap(), "ml", gang_job("provisioned", 2)).await;
        all_run(&stack, "ml", "provisioned", 2).await;
        phase(&stack, "ml", "provisioned", "Bound").await;

        helm(&["rollback", "muster", "1", "-n", "muster-system"]).await;
        assert_eq!(replicas(&stack).await, 2);
        first_gang(&stack).await;
    }
}

async fn replicas(stack: &Stack) -> i32 {
    let deployments: Api<k8s_openapi::api::apps::v1::Deployment> =
        Api::namespaced(stack.admin().unwrap(), "muster-system");
    deployments.get("muster").await.unwrap().spec.unwrap().replicas.unwrap()
}

/// Waits for the hook's Pod and runs it as a kubelet would. Ends with what the container reported.
async fn play_the_hook(stack: &Stack) -> String {
    let pods: Api<Pod> = Api::namespaced(stack.admin().unwrap(), "muster-system");
    let hook = ListParams::default().labels("app.kubernetes.io/name=muster-refuse-uninstall");
    loop {
        let found = pods.list(&hook).await.unwrap().items;
        let waits = |pod: &&Pod| pod.status.as_ref().and_then(|status| status.phase.as_deref()) == Some("Pending");
        let Some(pod) = found.iter().find(waits) else {
            tokio::task::yield_now().await;
            continue;
        };
        return run_hook(&stack.cluster, &pods, pod).await;
    }
}

/// Runs a Pod of the hook: the container's arguments, with the identity of its ServiceAccount. Ends with what the container
/// reported.
pub(crate) async fn run_hook(cluster: &TestCluster, pods: &Api<Pod>, pod: &Pod) -> String {
    let spec = pod.spec.as_ref().unwrap();
    assert_eq!(spec.service_account_name.as_deref(), Some("muster"));
    let output = tokio::process::Command::new(env!("CARGO_BIN_EXE_muster"))
        .args(spec.containers[0].args.as_ref().unwrap())
        .env("KUBECONFIG", cluster.kubeconfig(Identity::Muster))
        .output()
        .await
        .unwrap();
    let phase = if output.status.success() { "Succeeded" } else { "Failed" };
    let patch = Patch::Merge(json!({"status": {"phase": phase}}));
    pods.patch_status(&pod.name_any(), &PatchParams::default(), &patch).await.unwrap();
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn helm_uninstall_is_refused_while_instances_live_and_leaves_the_definitions() {
    for helm in helms() {
        let Some(stack) = provisioning_stack(&zones([2, 0, 0]), 40, "1s").await else { return };
        let client = stack.admin().unwrap();
        // The testbed has applied the objects: Helm takes them over, which for Helm 4 is a server-side apply.
        let over = helm.ends_with("helm4").then_some("--force-conflicts");
        for chart in ["muster-crd", "muster"] {
            let folder = repository().join("charts").join(chart).display().to_string();
            let mut arguments = vec!["install", chart, &folder, "-n", "muster-system", "--take-ownership"];
            arguments.extend(over);
            run(&helm, &stack.cluster, &arguments).await.unwrap();
        }
        submit(&client, "ml", gang_job("train", 2)).await;
        all_run(&stack, "ml", "train", 2).await;

        let uninstall = ["uninstall", "muster", "-n", "muster-system", "--timeout=60s"];
        let (refused, stated) = tokio::join!(run(&helm, &stack.cluster, &uninstall), play_the_hook(&stack));
        assert!(refused.is_err(), "{}", refused.unwrap());
        assert!(stated.contains("NodeBatch ") && stated.contains("2 instances (i-"), "{stated}");
        assert_eq!(replicas(&stack).await, 2, "the Deployment stays");

        let jobs: Api<k8s_openapi::api::batch::v1::Job> = Api::namespaced(client.clone(), "ml");
        jobs.delete("train", &kube::api::DeleteParams::background()).await.unwrap();
        let batches: Api<NodeBatch> = Api::all(client.clone());
        muster::testbed::eventually(crate::support::DEADLINE, "the NodeBatch to be gone", || async {
            let left = batches.list(&ListParams::default()).await?.items.len();
            Ok::<_, kube::Error>((left == 0).then_some(()))
        })
        .await
        .unwrap();
        let (gone, stated) = tokio::join!(run(&helm, &stack.cluster, &uninstall), play_the_hook(&stack));
        gone.unwrap_or_else(|error| panic!("{error}: {stated}"));
        run(&helm, &stack.cluster, &["uninstall", "muster-crd", "-n", "muster-system"]).await.unwrap();
        let definitions: Api<CustomResourceDefinition> = Api::all(client);
        let kept = definitions.list(&ListParams::default()).await.unwrap();
        let ours = kept.items.iter().filter(|one| one.name_any().ends_with(".muster.dev")).count();
        assert_eq!(ours, 4, "the definitions are kept");
    }
}
