//! Helm 3 and 4: what the charts render, and a release from its installation to its end.
//!
//! The binaries are in the folder that `MUSTER_HELM` names: `make test-helm`. `MUSTER_CHARTS_BEFORE` is a folder with the charts of an
//! earlier commit, from which the upgrade begins; without it, that is one to the same charts.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::ListParams;
use kube::{Api, ResourceExt};
use muster::testbed::installer::run;
use muster::testbed::{Installer, Stack, repository};
use muster_api::crd::NodeBatch;
use serde_json::Value;

use super::{first_gang, kustomized, objects, output, run_hook};
use crate::cloud::{gang_job, provisioning_on, provisioning_stack, zones};
use crate::support::{all_run, options, phase, submit};

/// Helm 3 and 4.
fn helms() -> [PathBuf; 2] {
    let folder = std::env::var_os("MUSTER_HELM").map(PathBuf::from);
    let folder = folder.expect(
        "MUSTER_HELM names the folder with Helm 3 and 4: `make test-helm` builds them, and `make test` excludes these",
    );
    [folder.join("helm3"), folder.join("helm4")]
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
        is_uninstalled_once_nothing_lives(&binary, &stack, "provisioned").await;
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

/// Uninstalls what Helm has installed: refused while the two instances of a Job's gang live, and then not; the definitions stay.
async fn is_uninstalled_once_nothing_lives(helm: &Path, stack: &Stack, job: &str) {
    let client = stack.admin().unwrap();
    let uninstall = ["uninstall", "muster", "-n", "muster-system", "--timeout=60s"];
    let (refused, stated) = tokio::join!(run(helm, &stack.cluster, &uninstall), play_the_hook(stack));
    assert!(refused.is_err(), "{}", refused.unwrap());
    assert!(stated.contains("NodeBatch ") && stated.contains("2 instances (i-"), "{stated}");
    assert_eq!(replicas(stack).await, 2, "the Deployment stays");

    let jobs: Api<k8s_openapi::api::batch::v1::Job> = Api::namespaced(client.clone(), "ml");
    jobs.delete(job, &kube::api::DeleteParams::background()).await.unwrap();
    let batches: Api<NodeBatch> = Api::all(client.clone());
    muster::testbed::eventually(crate::support::DEADLINE, "the NodeBatch to be gone", || async {
        let left = batches.list(&ListParams::default()).await?.items.len();
        Ok::<_, kube::Error>((left == 0).then_some(()))
    })
    .await
    .unwrap();
    let (gone, stated) = tokio::join!(run(helm, &stack.cluster, &uninstall), play_the_hook(stack));
    gone.unwrap_or_else(|error| panic!("{error}: {stated}"));
    run(helm, &stack.cluster, &["uninstall", "muster-crd", "-n", "muster-system"]).await.unwrap();
    let definitions: Api<CustomResourceDefinition> = Api::all(client);
    let kept = definitions.list(&ListParams::default()).await.unwrap();
    let ours = kept.items.iter().filter(|one| one.name_any().ends_with(".muster.dev")).count();
    assert_eq!(ours, 4, "the definitions are kept");
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
        is_uninstalled_once_nothing_lives(&helm, &stack, "train").await;
    }
}
