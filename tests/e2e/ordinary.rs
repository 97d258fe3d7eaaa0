//! Pods of no gang on nodes that do not exist: provisioned at the planner's price, terminated once they are empty.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking, its helpers too")]

use std::collections::BTreeSet;
use std::path::Path;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Event, Namespace, Node, Pod, Taint};
use k8s_openapi::api::scheduling::v1::PriorityClass;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{ListParams, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt};
use muster::fake_kubelet::{CAPACITY_PERCENT, MEMORY_PERCENT};
use muster::testbed::workloads::TestJob;
use muster::testbed::{Stack, audit, eventually, pools};
use muster_api::crd::{EC2NodeClass, NodePool};
use muster_api::keys;
use muster_core::batch::micros;
use muster_ec2_sim::scenario::{GroupSpec, ReservationSpec, Strategy};
use muster_ec2_sim::{MarketType, Scenario};
use serde_json::{Value, json};

use crate::cloud::{
    batches, delete_job, everything_is_terminated, instances, journal, launched_fleets, live, no_instance_is_left,
};
use crate::support::{DEADLINE, all_run, no_errors, node_of, options, refused, runs, stack, submit};
use crate::ways::{reservation, spot_prices_are_known};

/// EC2's minutes pass in seconds.
const FACTOR: u32 = 20;
const M5: &str = "m5.2xlarge";

/// So many hosts of m5.2xlarge on demand in zone a, and of m5.8xlarge in zone b.
pub(crate) fn hosts(small: u32, large: u32) -> Scenario {
    Scenario::default()
        .with_pool(M5, "us-east-1a", MarketType::OnDemand, 1, 1, small)
        .with_pool("m5.8xlarge", "us-east-1b", MarketType::OnDemand, 1, 1, large)
        .with_pool("p5.48xlarge", "us-east-1a", MarketType::OnDemand, 1, 1, 8)
}

/// The class of the testbed, and a pool of CPU types in these zones.
pub(crate) fn general(zones: &[&str], limits: &Value, consolidate_after: &str) -> (EC2NodeClass, NodePool) {
    let (class, _) = pools::p5(consolidate_after).unwrap();
    let pool = json!({
        "apiVersion": "muster.dev/v1alpha1",
        "kind": "NodePool",
        "metadata": {"name": "general"},
        "spec": {
            "limits": limits,
            "template": {"spec": {
                "nodeClassRef": {"group": "muster.dev", "kind": "EC2NodeClass", "name": "gpu"},
                "requirements": [
                    {"key": "node.kubernetes.io/instance-type", "operator": "In", "values": [M5, "m5.8xlarge", "p5.48xlarge"]},
                    {"key": "topology.kubernetes.io/zone", "operator": "In", "values": zones},
                    {"key": "muster.dev/capacity-type", "operator": "In", "values": ["on-demand"]},
                ],
            }},
            "disruption": {"consolidateAfter": consolidate_after},
        },
    });
    (class, serde_json::from_value(pool).unwrap())
}

pub(crate) async fn provisioning(scenario: &Scenario, pool: &(EC2NodeClass, NodePool)) -> Option<Stack> {
    provisioning_with(scenario, pool, &json!({})).await
}

/// … that waits long enough for further pods: whoever is deployed together is planned in one round, also where the ReplicaSet
/// controller makes its pods with pauses between them.
async fn provisioning_at_once(scenario: &Scenario, pool: &(EC2NodeClass, NodePool)) -> Option<Stack> {
    provisioning_with(scenario, pool, &json!({"batchIdle": "5s", "batchMax": "60s"})).await
}

/// … with this under `provisioner` of the configuration.
pub(crate) async fn provisioning_with(
    scenario: &Scenario,
    pool: &(EC2NodeClass, NodePool),
    provisioner: &Value,
) -> Option<Stack> {
    provisioning_at(FACTOR, scenario, pool, provisioner).await
}

/// … at so many times real time.
pub(crate) async fn provisioning_at(
    factor: u32,
    scenario: &Scenario,
    pool: &(EC2NodeClass, NodePool),
    provisioner: &Value,
) -> Option<Stack> {
    provisioning_of(factor, scenario, pool, json!({"provisioner": provisioner})).await
}

/// … with this configuration.
pub(crate) async fn provisioning_of(
    factor: u32,
    scenario: &Scenario,
    pool: &(EC2NodeClass, NodePool),
    config: Value,
) -> Option<Stack> {
    let mut options = options().await?;
    options.scenario = Some(serde_json::to_value(scenario).unwrap());
    options.factor = factor;
    options.config = config;
    options.controllers = &["deployment-controller", "replicaset-controller"];
    let stack = stack(options, "web").await;
    stack.cluster.create_namespace("ml").await.unwrap();
    pools::create(&stack.admin().unwrap(), &pool.0, &pool.1).await.unwrap();
    Some(stack)
}

/// A Deployment of our profile.
pub(crate) async fn deploy(stack: &Stack, name: &str, replicas: u32, cpu: &str, memory: &str) {
    deploy_with(stack, name, replicas, cpu, memory, &json!({})).await;
}

/// A Deployment whose pods have this in their spec; of our profile, unless that names another.
pub(crate) async fn deploy_with(stack: &Stack, name: &str, replicas: u32, cpu: &str, memory: &str, more: &Value) {
    let labels = json!({"app": name});
    let mut spec = json!({
        "schedulerName": "muster",
        "containers": [{"name": "main", "image": "web", "resources": {"requests": {"cpu": cpu, "memory": memory}}}],
    });
    spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    let deployment: Deployment = serde_json::from_value(json!({
        "metadata": {"name": name, "namespace": "web"},
        "spec": {"replicas": replicas, "selector": {"matchLabels": labels}, "template": {
            "metadata": {"labels": labels}, "spec": spec,
        }},
    }))
    .unwrap();
    let api: Api<Deployment> = Api::namespaced(stack.admin().unwrap(), "web");
    api.create(&PostParams::default(), &deployment).await.unwrap();
}

pub(crate) async fn scale(stack: &Stack, name: &str, replicas: u32) {
    let api: Api<Deployment> = Api::namespaced(stack.admin().unwrap(), "web");
    let patch = Patch::Merge(json!({"spec": {"replicas": replicas}}));
    api.patch(name, &PatchParams::default(), &patch).await.unwrap();
}

pub(crate) async fn pods(stack: &Stack, name: &str) -> Vec<Pod> {
    let api: Api<Pod> = Api::namespaced(stack.admin().unwrap(), "web");
    api.list(&ListParams::default().labels(&format!("app={name}"))).await.unwrap().items
}

/// Waits until all replicas run.
pub(crate) async fn all_serve(stack: &Stack, name: &str, count: usize) -> Vec<Pod> {
    eventually(DEADLINE, &format!("{count} pods of {name} to run"), || async move {
        let pods = pods(stack, name).await;
        let running = pods.iter().filter(|pod| runs(pod)).count();
        if running == count && pods.len() == count {
            return Ok(Some(pods));
        }
        let batches = batches(stack).await;
        let statuses: Vec<_> = batches.values().filter_map(|batch| batch.status.as_ref()).collect();
        Err(format!("{running} of {} run, batches {statuses:?}", pods.len()))
    })
    .await
    .unwrap_or_else(|error| panic!("{error}\n{}", stack.cluster.report(60)))
}

/// Micro-dollars per hour of all batches.
async fn dollars(stack: &Stack) -> u64 {
    let batches = batches(stack).await;
    let price = |batch: &muster_api::crd::NodeBatch| micros(batch.status.as_ref()?.price_per_hour.as_deref()?);
    batches.values().filter_map(price).sum()
}

/// What `muster plan` says that these pods cost on an empty cluster.
async fn planned(stack: &Stack, pods: &[Pod]) -> u64 {
    let client = stack.admin().unwrap();
    let mut items: Vec<Value> = Vec::new();
    for pod in pods {
        let mut pod = serde_json::to_value(pod).unwrap();
        pod["status"] = json!({"phase": "Pending"});
        pod["spec"].as_object_mut().unwrap().remove("nodeName");
        pod["apiVersion"] = json!("v1");
        pod["kind"] = json!("Pod");
        items.push(pod);
    }
    for pool in Api::<NodePool>::all(client.clone()).list(&ListParams::default()).await.unwrap() {
        items.push(serde_json::to_value(pool).unwrap());
    }
    for class in Api::<EC2NodeClass>::all(client).list(&ListParams::default()).await.unwrap() {
        items.push(serde_json::to_value(class).unwrap());
    }
    let machine = |name: &str, vcpu: u32, interfaces: u32, addresses: u32| {
        json!({
            "name": name, "vcpu": vcpu, "memoryMib": vcpu * 4096, "ipv4PerInterface": addresses,
            "networkCards": [{"index": 0, "kinds": ["interface"], "maxInterfaces": interfaces}],
            "supportsClusterGroup": true, "usageClasses": ["on-demand", "spot"], "architectures": ["x86_64"],
        })
    };
    let price = |name: &str, micros: u64| json!({"type": name, "usdMicroPerHour": micros});
    let catalogue = json!({
        "types": [machine(M5, 8, 4, 15), machine("m5.8xlarge", 32, 8, 30)],
        "prices": [price(M5, 384_000), price("m5.8xlarge", 1_536_000)],
    });
    let write = |name: &str, value: &Value| {
        let path = stack.cluster.folder().join(name);
        std::fs::write(&path, value.to_string()).unwrap();
        path
    };
    let dump = write("dump.json", &json!({"apiVersion": "v1", "kind": "List", "items": items}));
    let catalogue = write("catalogue.json", &catalogue);
    let plan = |dump: &Path, catalogue: &Path| {
        std::process::Command::new(env!("CARGO_BIN_EXE_muster"))
            .args(["plan", "-o", "json", "-f"])
            .arg(dump)
            .arg("--catalogue")
            .arg(catalogue)
            .output()
            .unwrap()
    };
    let answer = plan(&dump, &catalogue);
    let document: Value = serde_json::from_slice(&answer.stdout)
        .unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(&answer.stderr)));
    document["cost"]["usdMicroPerHour"].as_u64().unwrap_or_else(|| panic!("{document:#}"))
}

pub(crate) fn nodes_of(pods: &[Pod]) -> BTreeSet<String> {
    pods.iter().filter_map(node_of).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_deployment_on_an_empty_cluster_runs_at_the_planners_price_and_its_nodes_go_when_it_is_scaled_to_zero() {
    let Some(stack) = provisioning(&hosts(20, 20), &general(&["us-east-1a"], &json!({"nodes": 20}), "30s")).await
    else {
        return;
    };
    deploy(&stack, "shop", 10, "1500m", "3Gi").await;

    let pods = all_serve(&stack, "shop", 10).await;

    // Five to a node of 8 CPU.
    assert_eq!(nodes_of(&pods).len(), 2);
    let fleets: usize = launched_fleets(&journal(&stack, 0).await).iter().map(|fleet| instances(fleet).len()).sum();
    assert_eq!(fleets, 2, "nobody provisions twice");
    assert_eq!(dollars(&stack).await, planned(&stack, &pods).await);
    assert_eq!(dollars(&stack).await, 768_000);
    // Labels and taint go in one patch: each costs kube-scheduler a look at every pod that waits.
    let entries = audit::read(&stack.cluster.audit_log()).unwrap();
    let edits = entries.iter().filter(|entry| entry.resource == "nodes" && entry.by_muster() && entry.succeeded());
    let mut edited: Vec<String> = edits.map(|entry| entry.name.clone()).collect();
    edited.sort();
    assert_eq!(edited, nodes_of(&pods).into_iter().collect::<Vec<_>>());

    let launched = live(&stack).await;
    scale(&stack, "shop", 0).await;
    everything_is_terminated(&stack).await;

    let ended: BTreeSet<String> = journal(&stack, 0)
        .await
        .iter()
        .filter(|entry| entry["operation"] == "TerminateInstances")
        .flat_map(|entry| instances(entry).into_iter().map(str::to_owned).collect::<Vec<_>>())
        .collect();
    assert_eq!(ended, launched, "every instance is terminated by a call of ours");
    assert_eq!(dollars(&stack).await, 0);
    no_errors(&stack);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pods_spread_over_hosts_share_as_few_nodes_as_hold_them_and_a_larger_deployment_fills_those_first() {
    let Some(stack) =
        provisioning_at_once(&hosts(40, 0), &general(&["us-east-1a"], &json!({"nodes": 40}), "30s")).await
    else {
        return;
    };
    let spread = json!({"topologySpreadConstraints": [{
        "maxSkew": 1, "topologyKey": keys::HOSTNAME, "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": "shop"}},
    }]});
    deploy_with(&stack, "shop", 30, "900m", "3100Mi", &spread).await;

    let pods = all_serve(&stack, "shop", 30).await;

    // Eight to a node of 8 CPU; none has two more than another.
    let on = |pods: &[Pod]| -> Vec<usize> {
        let mut on: Vec<usize> = nodes_of(pods)
            .iter()
            .map(|node| pods.iter().filter(|pod| node_of(pod).as_ref() == Some(node)).count())
            .collect();
        on.sort_unstable();
        on
    };
    assert_eq!(on(&pods), [7, 7, 8, 8]);
    assert_eq!(dollars(&stack).await, planned(&stack, &pods).await);

    scale(&stack, "shop", 40).await;
    let pods = all_serve(&stack, "shop", 40).await;
    assert_eq!(on(&pods), [8, 8, 8, 8, 8]);
    assert_eq!(purchases(&stack).await, 2, "nobody provisions twice");
    no_errors(&stack);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_gang_and_a_deployment_share_a_limit_that_is_never_passed_and_whoever_waits_is_served_once_it_is_raised() {
    let Some(stack) = provisioning(&hosts(20, 20), &general(&["us-east-1a"], &json!({"nodes": 3}), "1s")).await else {
        return;
    };
    let client = stack.admin().unwrap();
    // A member fills a node of 8 CPU.
    let members = TestJob::new("train", 2).request("cpu", "7").pod_annotation("muster.dev/gang", "train").build();
    submit(&client, "ml", members).await;
    deploy(&stack, "shop", 10, "1500m", "3Gi").await;

    all_run(&stack, "ml", "train", 2).await;
    let five_run = async |name: &'static str| {
        let stack = &stack;
        eventually(DEADLINE, &format!("{name} to use what is left"), || async move {
            let most = live(stack).await.len();
            let running = pods(stack, name).await.iter().filter(|pod| runs(pod)).count();
            if running == 5 { Ok(Some(most)) } else { Err(format!("{running} run on {most}")) }
        })
        .await
        .unwrap_or_else(|error| panic!("{error}\n{}", stack.cluster.report(60)))
    };
    assert_eq!(five_run("shop").await, 3);

    delete_job(&stack, "train").await;
    all_serve(&stack, "shop", 10).await;
    deploy(&stack, "more", 10, "1500m", "3Gi").await;
    assert_eq!(five_run("more").await, 3);
    assert_eq!(most_at_once(&stack).await, 3);

    let raised = json!({"spec": {"limits": {"nodes": 4}}});
    let pools: Api<NodePool> = Api::all(client);
    pools.patch("general", &PatchParams::default(), &Patch::Merge(&raised)).await.unwrap();
    all_serve(&stack, "more", 10).await;
    for name in ["shop", "more"] {
        scale(&stack, name, 0).await;
    }
    everything_is_terminated(&stack).await;
    assert_eq!(most_at_once(&stack).await, 4);
    no_errors(&stack);
}

/// How many instances there were at the fullest moment that the journal knows: what was launched less what was ended.
async fn most_at_once(stack: &Stack) -> usize {
    let (mut running, mut most) = (BTreeSet::new(), 0);
    for entry in journal(stack, 0).await {
        let ids = instances(&entry).into_iter().map(str::to_owned);
        match entry["operation"].as_str() {
            Some("CreateFleet" | "RunInstances") => running.extend(ids),
            Some("TerminateInstances") => ids.for_each(|id| {
                running.remove(&id);
            }),
            _ => {}
        }
        most = most.max(running.len());
    }
    most
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn where_the_cheapest_offer_has_no_capacity_the_next_one_serves() {
    let scenario = hosts(1, 20);
    let zones = ["us-east-1a", "us-east-1b"];
    let Some(stack) = provisioning(&scenario, &general(&zones, &json!({"nodes": 20}), "1s")).await else { return };
    deploy(&stack, "shop", 10, "1500m", "3Gi").await;

    let pods = all_serve(&stack, "shop", 10).await;

    let all = batches(&stack).await;
    let types: BTreeSet<String> =
        all.values().filter_map(|batch| batch.status.as_ref()?.instance_type.clone()).collect();
    assert_eq!(types, BTreeSet::from([M5.to_owned(), "m5.8xlarge".to_owned()]));
    assert_eq!(live(&stack).await.len(), 2, "one of each, and none twice");
    assert_eq!(nodes_of(&pods).len(), 2);
    scale(&stack, "shop", 0).await;
    everything_is_terminated(&stack).await;
    no_errors(&stack);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pod_that_fits_nowhere_is_refused_by_name_and_nothing_is_launched() {
    let Some(stack) = provisioning(&hosts(20, 20), &general(&["us-east-1a"], &json!({"nodes": 20}), "1s")).await else {
        return;
    };
    deploy(&stack, "huge", 1, "300", "3Gi").await;
    // A machine with accelerators would hold it, and it asks for none.
    deploy(&stack, "wide", 1, "100", "3Gi").await;

    for (name, why) in [("huge", "lacks"), ("wide", "only for pods that ask for one")] {
        refused(&stack, "web", name, &[why, "general"]).await;
    }
    let launches = journal(&stack, 0).await;
    assert!(launches.iter().all(|entry| entry["operation"] != "CreateFleet"), "nothing is launched");
    assert!(batches(&stack).await.is_empty());
    let huge = pods(&stack, "huge").await;
    assert!(!huge.is_empty() && huge.iter().all(|pod| node_of(pod).is_none()), "it waits: {huge:?}");
    no_errors(&stack);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pods_that_come_later_and_matter_more_do_not_take_the_node_that_was_launched_for_others() {
    let Some(stack) =
        provisioning_at_once(&hosts(20, 20), &general(&["us-east-1a"], &json!({"nodes": 1}), "30s")).await
    else {
        return;
    };
    let classes: Api<PriorityClass> = Api::all(stack.admin().unwrap());
    let first = PriorityClass {
        metadata: ObjectMeta { name: Some("first".to_owned()), ..ObjectMeta::default() },
        value: 1_000,
        preemption_policy: Some("Never".to_owned()),
        ..PriorityClass::default()
    };
    classes.create(&PostParams::default(), &first).await.unwrap();
    // Five to a node of 8 CPU, and the limit allows one node.
    deploy(&stack, "shop", 5, "1500m", "3Gi").await;
    eventually(DEADLINE, "a batch for the pods", || async {
        Ok::<_, String>((!batches(&stack).await.is_empty()).then_some(()))
    })
    .await
    .unwrap();
    // kube-scheduler looks at them first whenever a node comes, and they would fill it.
    deploy_with(&stack, "late", 5, "1400m", "3Gi", &json!({"priorityClassName": "first"})).await;

    let served = all_serve(&stack, "shop", 5).await;

    assert_eq!(nodes_of(&served).len(), 1);
    let late = pods(&stack, "late").await;
    assert_eq!(late.len(), 5, "they are there");
    assert!(late.iter().all(|pod| node_of(pod).is_none()), "nothing is left beside them");
    assert_eq!(launched_fleets(&journal(&stack, 0).await).len(), 1);
    // Where those it was launched for are gone, the node is for everybody.
    scale(&stack, "shop", 0).await;
    all_serve(&stack, "late", 5).await;
    no_errors(&stack);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn where_no_spot_pool_has_capacity_the_same_round_goes_on_demand() {
    let (class, mut pool) = general(&["us-east-1a"], &json!({"nodes": 20}), "1s");
    let either = pool.spec.template.spec.requirements.iter_mut().find(|one| one.key == keys::CAPACITY_TYPE);
    either.unwrap().values.push("spot".to_owned());
    // Nothing is there on spot.
    let Some(stack) = provisioning_at_once(&hosts(20, 20), &(class, pool)).await else { return };
    spot_prices_are_known(&stack).await;
    deploy(&stack, "shop", 10, "1500m", "3Gi").await;

    let pods = all_serve(&stack, "shop", 10).await;

    assert_eq!(nodes_of(&pods).len(), 2);
    let all = batches(&stack).await;
    assert_eq!(all.len(), 1, "one round made one NodeBatch: {:?}", all.keys());
    let status = all.into_values().next().unwrap().status.unwrap();
    let asked: Vec<(&str, &str, &str)> =
        status.attempts.iter().map(|one| (&*one.instance_type, &*one.capacity_type, one.outcome.as_str())).collect();
    assert_eq!(asked, [(M5, "spot", "Lost"), (M5, "on-demand", "Won")]);
    let journal = journal(&stack, 0).await;
    let calls: Vec<&Value> = journal.iter().filter(|entry| entry["operation"] == "CreateFleet").collect();
    let tokens: BTreeSet<String> = calls.iter().map(|call| call["parameters"]["ClientToken"].to_string()).collect();
    assert_eq!((calls.len(), tokens.len()), (2, 2), "no call is made twice");
    assert_eq!(dollars(&stack).await, 768_000, "at the price on demand");
    let nodes: Api<Node> = Api::all(stack.admin().unwrap());
    for name in nodes_of(&pods) {
        let node = nodes.get(&name).await.unwrap();
        assert_eq!(node.labels().get(keys::CAPACITY_TYPE).map(String::as_str), Some("on-demand"));
    }
    scale(&stack, "shop", 0).await;
    everything_is_terminated(&stack).await;
    no_errors(&stack);
}

/// The overrides of every CreateFleet, call by call: type and zone.
async fn overrides(stack: &Stack) -> Vec<Vec<(String, String)>> {
    let journal = journal(stack, 0).await;
    let calls = journal.iter().filter(|entry| entry["operation"] == "CreateFleet");
    let of_call = |call: &Value| {
        let text = |number: usize, field: &str| {
            let name = format!("LaunchTemplateConfigs.1.Overrides.{number}.{field}");
            Some(call["parameters"][name].as_str()?.to_owned())
        };
        (1..).map_while(|number| text(number, "InstanceType").zip(text(number, "AvailabilityZone"))).collect()
    };
    calls.map(of_call).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn where_a_zone_has_no_spot_capacity_ec2_takes_another_one_by_the_same_call() {
    let zones = ["us-east-1a", "us-east-1b"];
    let (class, mut pool) = general(&zones, &json!({"nodes": 20}), "1s");
    let either = pool.spec.template.spec.requirements.iter_mut().find(|one| one.key == keys::CAPACITY_TYPE);
    either.unwrap().values.push("spot".to_owned());
    let scenario = hosts(20, 20).with_pool(M5, zones[0], MarketType::Spot, 1, 1, 0).with_pool(
        M5,
        zones[1],
        MarketType::Spot,
        1,
        1,
        20,
    );
    let Some(stack) = provisioning_at_once(&scenario, &(class, pool)).await else { return };
    spot_prices_are_known(&stack).await;
    deploy(&stack, "shop", 10, "1500m", "3Gi").await;

    let pods = all_serve(&stack, "shop", 10).await;

    assert_eq!(nodes_of(&pods).len(), 2);
    let asked: BTreeSet<(String, String)> = zones.map(|zone| (M5.to_owned(), zone.to_owned())).into();
    let calls = overrides(&stack).await;
    assert_eq!(calls.len(), 1, "{calls:?}");
    assert_eq!(calls[0].iter().cloned().collect::<BTreeSet<_>>(), asked);
    let status = batches(&stack).await.into_values().next().unwrap().status.unwrap();
    assert_eq!(status.zone.as_deref(), Some(zones[1]));
    let outcomes: Vec<&str> = status.attempts.iter().map(|one| one.outcome.as_str()).collect();
    assert_eq!(outcomes, ["Won"]);
    scale(&stack, "shop", 0).await;
    everything_is_terminated(&stack).await;
    no_errors(&stack);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pool_that_asks_for_two_types_leaves_ec2_both_and_a_node_has_the_labels_of_the_one_it_is() {
    let zone = "us-east-1a";
    let (class, mut pool) = general(&[zone], &json!({"nodes": 20}), "1s");
    let types = pool.spec.template.spec.requirements.iter_mut().find(|one| one.key == keys::INSTANCE_TYPE).unwrap();
    types.min_values = Some(2);
    types.values.retain(|name| name.starts_with("m5"));
    // Of the cheaper type there is nothing.
    let scenario = Scenario::default().with_pool(M5, zone, MarketType::OnDemand, 1, 1, 0).with_pool(
        "m5.8xlarge",
        zone,
        MarketType::OnDemand,
        1,
        1,
        8,
    );
    let Some(stack) = provisioning(&scenario, &(class, pool)).await else { return };
    deploy(&stack, "shop", 4, "1500m", "3Gi").await;

    let pods = all_serve(&stack, "shop", 4).await;

    let calls = overrides(&stack).await;
    let both = [M5, "m5.8xlarge"].map(|name| (name.to_owned(), zone.to_owned()));
    assert_eq!(calls, [both.to_vec()], "the cheaper one first");
    assert_eq!(dollars(&stack).await, 1_536_000, "at the price of what it is");
    let nodes: Api<Node> = Api::all(stack.admin().unwrap());
    for name in nodes_of(&pods) {
        let node = nodes.get(&name).await.unwrap();
        let label = |key: &str| node.labels().get(key).map(String::as_str);
        assert_eq!((label(keys::INSTANCE_CPU), label(keys::INSTANCE_SIZE)), (Some("32"), Some("8xlarge")));
    }
    scale(&stack, "shop", 0).await;
    everything_is_terminated(&stack).await;
    no_errors(&stack);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reserved_hosts_are_used_before_anything_is_paid_for_beside_them() {
    let mut scenario = hosts(20, 20);
    let of_pods = |id: &str, group: Option<&str>, hosts| ReservationSpec {
        instance_type: M5.to_owned(),
        zone: "us-east-1a".to_owned(),
        ..reservation(id, group, hosts)
    };
    let group = GroupSpec { name: "theirs".to_owned(), strategy: Strategy::Cluster, owner: None, tags: [].into() };
    scenario.placement_groups.push(group);
    // What was made in a placement group is not for them.
    scenario.reservations =
        vec![of_pods("cr-00000000000000001", None, 2), of_pods("cr-00000000000000002", Some("theirs"), 4)];
    let (mut class, mut pool) = general(&["us-east-1a"], &json!({"nodes": 20}), "1s");
    class.spec.capacity_reservation_selector_terms = serde_json::from_value(json!([{"tags": {"team": "ml"}}])).unwrap();
    let either = pool.spec.template.spec.requirements.iter_mut().find(|one| one.key == keys::CAPACITY_TYPE);
    either.unwrap().values.push("reserved".to_owned());
    let Some(stack) = provisioning_at_once(&scenario, &(class, pool)).await else { return };
    // Five of 1500m fill a node.
    deploy(&stack, "shop", 15, "1500m", "3Gi").await;

    let pods = all_serve(&stack, "shop", 15).await;

    assert_eq!(nodes_of(&pods).len(), 3);
    let nodes: Api<Node> = Api::all(stack.admin().unwrap());
    let mut labels = Vec::new();
    for name in nodes_of(&pods) {
        let node = nodes.get(&name).await.unwrap();
        let of = |key: &str| node.labels().get(key).cloned();
        labels.push((of(keys::CAPACITY_TYPE).unwrap(), of(keys::CAPACITY_RESERVATION_ID)));
    }
    labels.sort();
    let reserved = ("reserved".to_owned(), Some("cr-00000000000000001".to_owned()));
    assert_eq!(labels, [("on-demand".to_owned(), None), reserved.clone(), reserved]);
    let journal = journal(&stack, 0).await;
    let launched: Vec<&str> = journal
        .iter()
        .filter_map(|entry| entry["operation"].as_str().filter(|one| matches!(*one, "CreateFleet" | "RunInstances")))
        .collect();
    assert_eq!(launched.iter().filter(|one| **one == "RunInstances").count(), 1, "{launched:?}");
    assert_eq!(launched.len(), 2, "{launched:?}");
    scale(&stack, "shop", 0).await;
    no_instance_is_left(&stack).await;
    no_errors(&stack);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pods_wait_on_a_startup_taint_and_nothing_is_launched_beside_the_node_that_has_it() {
    let (class, mut pool) = general(&["us-east-1a"], &json!({"nodes": 20}), "1s");
    let starting = "example.com/starting";
    let taint = Taint { key: starting.to_owned(), effect: "NoSchedule".to_owned(), ..Taint::default() };
    pool.spec.template.spec.startup_taints.push(taint);
    let Some(stack) = provisioning(&hosts(20, 20), &(class, pool)).await else { return };
    deploy(&stack, "shop", 5, "1500m", "3Gi").await;

    let nodes: &Api<Node> = &Api::all(stack.admin().unwrap());
    let keys_of = |node: &Node| -> Vec<String> {
        let taints = node.spec.as_ref().and_then(|spec| spec.taints.as_ref());
        taints.into_iter().flatten().map(|taint| taint.key.clone()).collect()
    };
    let name = eventually(DEADLINE, "a node of the batch with the startup taint alone", || async move {
        let all = nodes.list(&ListParams::default()).await.map_err(|error| error.to_string())?;
        let tainted: Vec<(String, Vec<String>)> =
            all.iter().map(|node| (node.name_any(), keys_of(node))).filter(|(_, keys)| !keys.is_empty()).collect();
        let found = tainted.iter().find(|(_, keys)| *keys == [starting]);
        if let Some((name, _)) = found { Ok(Some(name.clone())) } else { Err(format!("{tainted:?}")) }
    })
    .await
    .unwrap_or_else(|error| panic!("{error}\n{}", stack.cluster.report(60)));
    let waiting = pods(&stack, "shop").await;
    assert_eq!(waiting.len(), 5, "they are there");
    assert!(waiting.iter().all(|pod| node_of(pod).is_none()), "they wait for the taint to go");

    let without = json!({"spec": {"taints": null}});
    nodes.patch(&name, &PatchParams::default(), &Patch::Merge(&without)).await.unwrap();
    let served = all_serve(&stack, "shop", 5).await;

    assert_eq!(nodes_of(&served), BTreeSet::from([name]));
    assert_eq!(purchases(&stack).await, 1);
    assert_eq!(in_a_row(&stack).await, 0);
    scale(&stack, "shop", 0).await;
    everything_is_terminated(&stack).await;
    no_errors(&stack);
}

/// The pool with the one type, and half the memory: `label` is of whose.
fn with_half_the_memory(pool: (EC2NodeClass, NodePool), label: &str) -> (EC2NodeClass, NodePool) {
    let (class, mut pool) = pool;
    let of_type = pool.spec.template.spec.requirements.iter_mut().find(|one| one.key == keys::INSTANCE_TYPE);
    of_type.unwrap().values = vec![M5.to_owned()];
    pool.spec.template.metadata.labels.insert(label.to_owned(), "50".to_owned());
    (class, pool)
}

/// Fleets that launched something.
async fn purchases(stack: &Stack) -> usize {
    launched_fleets(&journal(stack, 0).await).len()
}

/// Waits until an event of this reason whose message has `text` is on the object.
pub(crate) async fn event(stack: &Stack, kind: &str, reason: &str, text: &str) {
    let events: &Api<Event> = &Api::all(stack.admin().unwrap());
    eventually(DEADLINE, &format!("{reason} on a {kind}"), || async move {
        let all = events.list(&ListParams::default()).await.map_err(|error| error.to_string())?;
        let of = |event: &Event| event.involved_object.kind.as_deref() == Some(kind);
        let stated: Vec<(Option<String>, Option<String>)> =
            all.into_iter().filter(of).map(|event| (event.reason, event.message)).collect();
        let is = |(found, message): &(Option<String>, Option<String>)| {
            found.as_deref() == Some(reason) && message.as_deref().is_some_and(|message| message.contains(text))
        };
        if stated.iter().any(is) { Ok(Some(())) } else { Err(format!("{stated:?}")) }
    })
    .await
    .unwrap_or_else(|error| panic!("{error}\n{}", stack.cluster.report(60)));
}

/// What the pool's status remembers of purchases in vain: how many in a row at most.
async fn in_a_row(stack: &Stack) -> u32 {
    let pool = Api::<NodePool>::all(stack.admin().unwrap()).get("general").await.unwrap();
    let refused = pool.status.and_then(|status| status.scheduler_refused);
    refused.iter().flat_map(|refused| &refused.pods).map(|one| one.in_a_row).max().unwrap_or(0)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_that_never_take_their_pods_are_launched_twice_then_after_a_pause_and_a_restart_goes_on_counting() {
    let general = with_half_the_memory(general(&["us-east-1a"], &json!({"nodes": 20}), "1s"), MEMORY_PERCENT);
    let Some(stack) = provisioning_at_once(&hosts(20, 20), &general).await else { return };
    // 32 GiB are there, and 16 are left to pods.
    deploy(&stack, "shop", 3, "1", "20Gi").await;

    event(&stack, "Pod", "SchedulerRefused", "2 launches in a row").await;
    assert_eq!(purchases(&stack).await, 2, "a third is not made while they wait");
    event(&stack, "NodePool", "SchedulerRefused", "2 in a row").await;
    let journal = journal(&stack, 0).await;
    let counts: Vec<usize> = launched_fleets(&journal).iter().map(|fleet| instances(fleet).len()).collect();
    assert_eq!(counts, [3, 1], "after the first one node is tried alone");
    // Others are not disturbed.
    deploy(&stack, "small", 1, "1", "2Gi").await;
    all_serve(&stack, "small", 1).await;

    stack.kill_muster().unwrap();
    stack.start_muster(&[]).await.unwrap();
    // One that had forgotten would begin with one in a row.
    eventually(DEADLINE, "the purchase after the pause to be in vain too", || async {
        let row = in_a_row(&stack).await;
        if row >= 3 { Ok(Some(())) } else { Err(format!("{row} in a row")) }
    })
    .await
    .unwrap_or_else(|error| panic!("{error}\n{}", stack.cluster.report(60)));
    let pools: Api<NodePool> = Api::all(stack.admin().unwrap());
    eventually(DEADLINE, "the pool to say so", || async {
        let status = pools.get("general").await.map_err(|error| error.to_string())?.status.unwrap_or_default();
        let stated = status.conditions.iter().find(|one| one.type_ == "SchedulerRefused" && one.status == "True");
        Ok::<_, String>(stated.map(|_| ()))
    })
    .await
    .unwrap();

    // A pool that changes is tried at once.
    let whole = json!({"spec": {"template": {"metadata": {"labels": {MEMORY_PERCENT: null}}}}});
    pools.patch("general", &PatchParams::default(), &Patch::Merge(&whole)).await.unwrap();
    all_serve(&stack, "shop", 3).await;
    assert_eq!(in_a_row(&stack).await, 0);
    for name in ["shop", "small"] {
        scale(&stack, name, 0).await;
    }
    everything_is_terminated(&stack).await;
    no_errors(&stack);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_memory_that_a_type_turns_out_to_have_is_planned_with_from_the_first_node_on_and_after_a_restart() {
    let general = with_half_the_memory(general(&["us-east-1a"], &json!({"nodes": 20}), "1s"), CAPACITY_PERCENT);
    let Some(stack) = provisioning(&hosts(20, 20), &general).await else { return };
    // 32 GiB are sold and 16 arrive.
    deploy(&stack, "shop", 1, "1", "20Gi").await;
    event(&stack, "Pod", "NoOfferFits", "memory").await;
    assert_eq!(purchases(&stack).await, 1, "the second is not made in vain");
    let classes: Api<EC2NodeClass> = Api::all(stack.admin().unwrap());
    let known = classes.get("gpu").await.unwrap().status.unwrap().memory;
    assert_eq!(
        known.iter().map(|one| (one.instance_type.as_str(), one.memory_bytes)).collect::<Vec<_>>(),
        [(M5, 16 << 30)]
    );
    everything_is_terminated(&stack).await;

    stack.kill_muster().unwrap();
    stack.start_muster(&[]).await.unwrap();
    // What fits is launched for, and what is known not to fit is not.
    deploy(&stack, "small", 1, "1", "10Gi").await;
    all_serve(&stack, "small", 1).await;
    assert_eq!(purchases(&stack).await, 2);
    for name in ["shop", "small"] {
        scale(&stack, name, 0).await;
    }
    everything_is_terminated(&stack).await;
    no_errors(&stack);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pod_goes_to_the_zone_of_pods_in_namespaces_that_a_label_selects_once_they_have_it() {
    let scenario = hosts(20, 20).with_pool(M5, "us-east-1b", MarketType::OnDemand, 1, 1, 20);
    let pool = general(&["us-east-1a", "us-east-1b"], &json!({"nodes": 20}), "30s");
    let Some(stack) = provisioning(&scenario, &pool).await else { return };
    // Each fills a node.
    let in_zone_b = json!({"nodeSelector": {"topology.kubernetes.io/zone": "us-east-1b"}});
    let back: Pod = serde_json::from_value(json!({
        "metadata": {"name": "back", "labels": {"app": "back"}},
        "spec": {
            "schedulerName": "muster",
            "nodeSelector": in_zone_b["nodeSelector"],
            "containers": [{"name": "main", "image": "web", "resources": {"requests": {"cpu": "6", "memory": "3Gi"}}}],
        },
    }))
    .unwrap();
    Api::namespaced(stack.admin().unwrap(), "ml").create(&PostParams::default(), &back).await.unwrap();
    let near = json!({"affinity": {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{
        "topologyKey": "topology.kubernetes.io/zone",
        "labelSelector": {"matchLabels": {"app": "back"}},
        "namespaceSelector": {"matchLabels": {"tier": "backend"}},
    }]}}});
    deploy_with(&stack, "front", 1, "6", "3Gi", &near).await;
    event(&stack, "Pod", "NoOfferFits", "affinity excludes every node").await;

    let labelled = Patch::Merge(json!({"metadata": {"labels": {"tier": "backend"}}}));
    let namespaces: Api<Namespace> = Api::all(stack.admin().unwrap());
    namespaces.patch("ml", &PatchParams::default(), &labelled).await.unwrap();

    let node = node_of(&all_serve(&stack, "front", 1).await[0]).unwrap().to_owned();
    let node = Api::<Node>::all(stack.admin().unwrap()).get(&node).await.unwrap();
    assert_eq!(node.labels()["topology.kubernetes.io/zone"], "us-east-1b");
    assert_eq!(launched_fleets(&journal(&stack, 0).await).len(), 2, "one for each");
    no_errors(&stack);
}
