//! Gangs with ResourceClaims: the real kube-scheduler allocates devices that ResourceSlices publish, the real controller makes
//! the claims of templates. No driver prepares anything.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking, its helpers too")]

use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::resource::v1::{DeviceClass, ResourceClaim, ResourceClaimTemplate, ResourceSlice};
use kube::api::{DeleteParams, ListParams, PostParams};
use kube::{Api, Resource};
use muster::testbed::nodes::TestNode;
use muster::testbed::workloads::TestJob;
use muster::testbed::{Stack, StackOptions};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::support::{all_run, node_of, options, phase, says, stack, submit};

/// A control plane that makes the claims of templates, or `None` where there is none.
async fn claim_options() -> Option<StackOptions> {
    let mut options = options().await?;
    options.controllers = &["resourceclaim-controller"];
    Some(options)
}

async fn make<K>(api: Api<K>, object: Value)
where
    K: Resource + Clone + std::fmt::Debug + DeserializeOwned + serde::Serialize,
{
    api.create(&PostParams::default(), &serde_json::from_value(object).unwrap()).await.unwrap();
}

/// A class of the devices of one driver, which gives an extended resource too.
async fn class(stack: &Stack, name: &str, extended: &str) {
    let class = json!({
        "metadata": {"name": name},
        "spec": {
            "selectors": [{"cel": {"expression": format!("device.driver == '{name}.example.com'")}}],
            "extendedResourceName": extended,
        },
    });
    make(Api::<DeviceClass>::all(stack.admin().unwrap()), class).await;
}

/// A node without a device plugin, with so many devices of a driver.
async fn node(stack: &Stack, name: &str, driver: &str, devices: usize) {
    let node = TestNode::new(name).gpus(0).efa(0).build();
    stack.create_nodes([node]).await.unwrap();
    let devices: Vec<Value> = (0..devices).map(|index| json!({"name": format!("device-{index}")})).collect();
    let slice = json!({
        "metadata": {"name": format!("{name}-{driver}")},
        "spec": {
            "driver": format!("{driver}.example.com"), "nodeName": name, "devices": devices,
            "pool": {"name": name, "generation": 1, "resourceSliceCount": 1},
        },
    });
    make(Api::<ResourceSlice>::all(stack.admin().unwrap()), slice).await;
}

/// A template of `ml` that asks for devices of a class.
async fn template(stack: &Stack, name: &str, request: Value) {
    let template = json!({
        "metadata": {"name": name},
        "spec": {"spec": {"devices": {"requests": [{"name": "devices", "exactly": request}]}}},
    });
    make(Api::<ResourceClaimTemplate>::namespaced(stack.admin().unwrap(), "ml"), template).await;
}

/// A gang of as many pods, each with a claim of the template.
fn job(name: &str, pods: u16, template: &str) -> Job {
    let mut job = TestJob::new(name, pods).gpus(0).efa(0).pod_annotation("muster.dev/gang", name).build();
    let spec = job.spec.as_mut().unwrap().template.spec.as_mut().unwrap();
    spec.resource_claims =
        serde_json::from_value(json!([{"name": "devices", "resourceClaimTemplateName": template}])).unwrap();
    let resources = spec.containers[0].resources.get_or_insert_default();
    resources.claims = serde_json::from_value(json!([{"name": "devices"}])).unwrap();
    job
}

/// Pools, which are named as their nodes, of all devices that are allocated in `ml`.
async fn allocated(stack: &Stack) -> Vec<String> {
    let claims: Api<ResourceClaim> = Api::namespaced(stack.admin().unwrap(), "ml");
    let all = claims.list(&ListParams::default()).await.unwrap().items;
    let results = all.into_iter().filter_map(|claim| claim.status?.allocation?.devices?.results).flatten();
    let mut pools: Vec<String> = results.map(|result| result.pool).collect();
    pools.sort();
    pools
}

fn nodes_of(pods: &[Pod]) -> Vec<String> {
    let mut nodes: Vec<String> = pods.iter().filter_map(node_of).collect();
    nodes.sort();
    nodes
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn gangs_with_claims_stand_where_their_devices_are_and_others_are_refused_by_name() {
    let Some(options) = claim_options().await else { return };
    let stack = stack(options, "ml").await;
    let client = stack.admin().unwrap();
    class(&stack, "gpu", "example.com/gpu").await;
    class(&stack, "nic", "example.com/nic").await;
    // Every node has capacity for many pods; devices are what is scarce.
    for (name, driver, devices) in [("n-0", "nic", 4), ("g-0", "gpu", 4), ("g-1", "gpu", 4), ("g-2", "gpu", 2)] {
        node(&stack, name, driver, devices).await;
    }
    template(&stack, "four", json!({"deviceClassName": "gpu", "count": 4})).await;
    template(&stack, "one", json!({"deviceClassName": "gpu", "count": 1})).await;
    template(&stack, "all", json!({"deviceClassName": "gpu", "allocationMode": "All"})).await;

    submit(&client, "ml", job("train", 2, "four")).await;
    let pods = all_run(&stack, "ml", "train", 2).await;
    assert_eq!(nodes_of(&pods), ["g-0", "g-1"]);
    assert_eq!(allocated(&stack).await, [["g-0"; 4], ["g-1"; 4]].concat());

    // Two devices are left. What asks for three waits for them, and says for which.
    submit(&client, "ml", job("more", 3, "one")).await;
    says(&stack, "ml", "more", "deviceclass.resource.kubernetes.io/gpu").await;
    // The same devices by the name of the extended resource.
    let mut named = TestJob::new("named", 2).gpus(0).efa(0).pod_annotation("muster.dev/gang", "named").build();
    let spec = named.spec.as_mut().unwrap().template.spec.as_mut().unwrap();
    let resources = spec.containers[0].resources.get_or_insert_default();
    let limits = resources.limits.get_or_insert_default();
    limits.insert("example.com/gpu".to_owned(), serde_json::from_value(json!("1")).unwrap());
    submit(&client, "ml", named).await;
    let pods = all_run(&stack, "ml", "named", 2).await;
    assert_eq!(nodes_of(&pods), ["g-2", "g-2"]);

    submit(&client, "ml", job("odd", 2, "all")).await;
    phase(&stack, "ml", "odd", "Unsatisfiable").await;
    says(&stack, "ml", "odd", "allocationMode All in request devices of ResourceClaimTemplate all").await;

    // What ends gives its devices to who waits.
    let jobs: Api<Job> = Api::namespaced(client, "ml");
    jobs.delete("train", &DeleteParams::background()).await.unwrap();
    let pods = all_run(&stack, "ml", "more", 3).await;
    assert!(nodes_of(&pods).iter().all(|node| node.starts_with("g-")), "{:?}", nodes_of(&pods));
}
