//! Nodes that wait for their gang are cordoned for it: device plugins run there as they are shipped, and nobody else does.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking, its helpers too")]

use std::collections::BTreeSet;

use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client, ResourceExt};
use muster::fake_kubelet::DEVICES_BY_PLUGIN;
use muster::testbed::workloads::TestJob;
use muster::testbed::{Stack, eventually};
use muster_api::crd::NodePool;
use muster_api::keys;
use serde_json::{Value, json};

use crate::cloud::{
    batch_that, delete_job, everything_is_terminated, gang_job, live, phase_of, provisioning_stack, zones,
};
use crate::support::{DEADLINE, all_run, no_errors, node_of, says, submit};

/// Name, tolerations, and what a kubelet reports once the pod runs.
///
/// Tolerations are those of the shipped files: NVIDIA's device plugin v0.17.1 (`deployments/static/nvidia-device-plugin.yml`),
/// operands of the GPU operator v26.7.0 (`daemonsets.tolerations` in `deployments/gpu-operator/values.yaml`), and the EFA plugin v0.5.5 (chart of eks-charts).
fn plugins() -> [(&'static str, Value, Option<Value>); 3] {
    let gpu = json!([{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}]);
    [
        ("nvidia-device-plugin", gpu.clone(), Some(json!({"nvidia.com/gpu": "8"}))),
        ("gpu-operator-operand", gpu, None),
        (
            "aws-efa-k8s-device-plugin",
            json!([{"key": "CriticalAddonsOnly", "operator": "Exists"}]),
            Some(json!({"vpc.amazonaws.com/efa": "32"})),
        ),
    ]
}

/// Creates the DaemonSets. The testbed has one kube-scheduler, which is Muster's.
async fn create_plugins(client: &Client) {
    let sets: Api<DaemonSet> = Api::namespaced(client.clone(), "kube-system");
    for (name, tolerations, _) in plugins() {
        let set = json!({
            "metadata": {"name": name},
            "spec": {
                "selector": {"matchLabels": {"plugin": name}},
                "template": {
                    "metadata": {"labels": {"plugin": name}},
                    "spec": {
                        "schedulerName": "muster",
                        "tolerations": tolerations,
                        "containers": [{"name": "plugin", "image": "plugin"}],
                    },
                },
            },
        });
        sets.create(&PostParams::default(), &serde_json::from_value(set).unwrap()).await.unwrap();
    }
}

/// A kubelet reports a device once the pod of its plugin runs there; until this future is dropped.
async fn report_devices(client: Client) {
    let pods: Api<Pod> = Api::namespaced(client.clone(), "kube-system");
    let nodes: Api<Node> = Api::all(client);
    loop {
        for (name, _, devices) in plugins() {
            let of_plugin = ListParams::default().labels(&format!("plugin={name}")).fields("status.phase=Running");
            for pod in pods.list(&of_plugin).await.unwrap() {
                let (Some(node), Some(devices)) = (pod.spec.and_then(|spec| spec.node_name), &devices) else {
                    continue;
                };
                let patch = Patch::Merge(json!({"status": {"capacity": devices, "allocatable": devices}}));
                // The node may have gone with its batch.
                let _ = nodes.patch_status(&node, &PatchParams::default(), &patch).await;
            }
        }
        tokio::task::yield_now().await;
    }
}

/// A stack with two p5.48xlarge to launch, whose nodes register without devices.
async fn without_devices(factor: u32) -> Option<Stack> {
    let stack = provisioning_stack(&zones([2, 0, 0]), factor, "1s").await?;
    let pools: Api<NodePool> = Api::all(stack.admin().unwrap());
    let labels = json!({"spec": {"template": {"metadata": {"labels": {DEVICES_BY_PLUGIN: "true"}}}}});
    pools.patch("h100", &PatchParams::default(), &Patch::Merge(labels)).await.unwrap();
    Some(stack)
}

/// Cordoned, whom the node is held for, and whether it carries the taint it registered with.
fn hold(node: &Node) -> (bool, Option<&str>, bool) {
    let spec = node.spec.as_ref().unwrap();
    let tainted = spec.taints.iter().flatten().any(|taint| taint.key == keys::GANG_PENDING);
    (spec.unschedulable == Some(true), node.annotations().get(keys::HOLD).map(String::as_str), tainted)
}

/// Waits until all nodes, of which there are two, satisfy `is`.
async fn nodes_that(stack: &Stack, what: &str, is: impl Fn(&Node) -> bool) -> Vec<Node> {
    let nodes: Api<Node> = Api::all(stack.admin().unwrap());
    let (nodes, is) = (&nodes, &is);
    eventually(DEADLINE, what, || async move {
        let all = nodes.list(&ListParams::default()).await.map_err(|error| error.to_string())?.items;
        if all.len() == 2 && all.iter().all(is) {
            Ok(Some(all))
        } else {
            Err(format!("{:?}", all.iter().map(hold).collect::<Vec<_>>()))
        }
    })
    .await
    .unwrap_or_else(|error| panic!("{error}\n{}", stack.cluster.report(60)))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn device_plugins_run_as_they_are_shipped_on_nodes_that_wait_and_the_gang_starts() {
    let Some(stack) = without_devices(20).await else { return };
    let client = stack.admin().unwrap();
    create_plugins(&client).await;
    let kubelets = tokio::spawn(report_devices(client.clone()));
    submit(&client, "ml", gang_job("train", 2)).await;

    all_run(&stack, "ml", "train", 2).await;

    let pods: Api<Pod> = Api::namespaced(client.clone(), "kube-system");
    for (name, _, _) in plugins() {
        let of_plugin = ListParams::default().labels(&format!("plugin={name}")).fields("status.phase=Running");
        let (pods, of_plugin) = (&pods, &of_plugin);
        // The gang needs the devices of one of them alone.
        eventually(DEADLINE, format!("{name} to run on both nodes"), || async move {
            let running = pods.list(of_plugin).await.map_err(|error| error.to_string())?.items;
            let on: BTreeSet<String> = running.iter().filter_map(node_of).collect();
            if on.len() == 2 { Ok(Some(())) } else { Err(format!("{on:?}")) }
        })
        .await
        .unwrap();
    }
    batch_that(&stack, "the batch to be in use", |batch| phase_of(batch) == "InUse").await;
    nodes_that(&stack, "nobody to be held for any more", |node| hold(node) == (false, None, false)).await;
    kubelets.abort();
    delete_job(&stack, "train").await;
    everything_is_terminated(&stack).await;
    no_errors(&stack);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hold_that_somebody_lifts_comes_back_and_who_crept_in_leaves() {
    // Nobody plays the plugins: the nodes wait.
    let Some(stack) = without_devices(5).await else { return };
    let client = stack.admin().unwrap();
    submit(&client, "ml", gang_job("train", 2)).await;
    let held = nodes_that(&stack, "both nodes to be held", |node| matches!(hold(node), (true, Some(_), false))).await;

    let nodes: Api<Node> = Api::all(client.clone());
    let name = held[0].name_any();
    let uncordon = Patch::Merge(json!({"spec": {"unschedulable": null}}));
    nodes.patch(&name, &PatchParams::default(), &uncordon).await.unwrap();
    // Bound past every scheduler, as what is quicker than the cordon would be.
    let pods: Api<Pod> = Api::namespaced(client.clone(), "ml");
    let pod = json!({
        "metadata": {"name": "foreign"},
        "spec": {"nodeName": name, "containers": [{"name": "main", "image": "main"}]},
    });
    pods.create(&PostParams::default(), &serde_json::from_value(pod).unwrap()).await.unwrap();

    nodes_that(&stack, "both nodes to be held again", |node| matches!(hold(node), (true, Some(_), false))).await;
    let pods = &pods;
    eventually(DEADLINE, "the foreign pod to be gone", || async move {
        pods.get_opt("foreign").await.map(|pod| pod.is_none().then_some(()))
    })
    .await
    .unwrap_or_else(|error| panic!("{error}\n{}", stack.cluster.report(60)));
    delete_job(&stack, "train").await;
    everything_is_terminated(&stack).await;
}

/// `Ready` of the pool, once it has this reason.
async fn pool_says(stack: &Stack, reason: &str) -> String {
    let pools: &Api<NodePool> = &Api::all(stack.admin().unwrap());
    eventually(DEADLINE, &format!("the pool to be {reason}"), || async move {
        let status = pools.get("h100").await.map_err(|error| error.to_string())?.status.unwrap_or_default();
        let ready = status.conditions.into_iter().find(|one| one.type_ == "Ready");
        match ready {
            Some(one) if one.reason == reason => Ok(Some(one.message)),
            other => Err(format!("{other:?}")),
        }
    })
    .await
    .unwrap_or_else(|error| panic!("{error}\n{}", stack.cluster.report(60)))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_launched_into_a_pool_with_a_taint_that_a_device_plugin_refuses() {
    let Some(stack) = without_devices(20).await else { return };
    let client = stack.admin().unwrap();
    create_plugins(&client).await;
    pool_says(&stack, "Ready").await;
    let pools: Api<NodePool> = Api::all(client.clone());
    let team = json!([{"key": "team", "value": "ml", "effect": "NoSchedule"}]);
    let tainted = Patch::Merge(json!({"spec": {"template": {"spec": {"taints": team}}}}));
    pools.patch("h100", &PatchParams::default(), &tainted).await.unwrap();

    let message = pool_says(&stack, "DevicesBlocked").await;
    assert!(message.contains("DaemonSet kube-system/nvidia-device-plugin brings nvidia.com/gpu"), "{message}");
    assert!(message.contains("{key: team, operator: Exists, effect: NoSchedule}"), "{message}");
    let job = TestJob::new("train", 2).gpus(8).tolerates("team").pod_annotation("muster.dev/gang", "train").build();
    submit(&client, "ml", job).await;
    says(&stack, "ml", "train", "no NodePool is ready to provision nodes").await;
    assert!(live(&stack).await.is_empty());

    // What the message asks for mends it.
    let sets: Api<DaemonSet> = Api::namespaced(client.clone(), "kube-system");
    let everything = json!({"spec": {"template": {"spec": {"tolerations": [{"operator": "Exists"}]}}}});
    for (name, _, _) in plugins() {
        sets.patch(name, &PatchParams::default(), &Patch::Merge(&everything)).await.unwrap();
    }
    let kubelets = tokio::spawn(report_devices(client.clone()));
    all_run(&stack, "ml", "train", 2).await;
    kubelets.abort();
    delete_job(&stack, "train").await;
    everything_is_terminated(&stack).await;
    no_errors(&stack);
}
