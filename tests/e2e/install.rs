//! What a user runs to install: `kubectl apply -k`, Helm 3 and 4; and the pair of kube-scheduler and API server.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking, its helpers too")]

mod helm;

use std::collections::BTreeMap;
use std::path::Path;

use k8s_openapi::api::core::v1::Pod;
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt};
use muster::testbed::workloads::TestJob;
use muster::testbed::{Identity, Installer, Stack, TestCluster, repository};
use serde_json::{Value, json};

use crate::support::{all_run, leaves, options, phase, stack, submit, unique};

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
