//! Gangs on nodes that do not exist: provisioned in one call, or not at all.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking, its helpers too")]

use std::collections::{BTreeMap, BTreeSet};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{Node, PodTemplate};
use k8s_openapi::api::rbac::v1::ClusterRole;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt};
use muster::testbed::workloads::TestJob;
use muster::testbed::{Component, Identity, Stack, eventually, pools};
use muster_api::crd::{EC2NodeClass, NodeBatch, NodePool, ProvisioningRequest, is_true};
use muster_api::keys;
use muster_ec2_sim::choices::{Replay, Shortfall};
use muster_ec2_sim::{Fault, FaultKind, Scenario};
use serde_json::{Value, json};

use crate::cloud::{
    batch_that, delete_job, delete_job_whose_nodes_are_in_use, everything_is_terminated, gang_job, goes_wrong,
    instances, invariants_hold, journal, launched_fleets, node_names, phase_of, provisioning_stack,
    provisioning_stack_with, zone_of, zones,
};
use crate::support::{
    DEADLINE, all_run, choices, leaves, logs, no_errors, node_of, options, phase, says, stack, submit,
};

/// EC2's minutes pass in seconds.
const FACTOR: u32 = 20;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_gang_on_an_empty_cluster_is_provisioned_in_one_call_and_terminated_whole() {
    let Some(stack) = provisioning_stack(&Scenario::demo(), FACTOR, "60s").await else { return };
    submit(&stack.admin().unwrap(), "ml", gang_job("train", 8)).await;

    let pods = all_run(&stack, "ml", "train", 8).await;

    let nodes: BTreeSet<String> = pods.iter().filter_map(node_of).collect();
    assert_eq!(nodes.len(), 8);
    assert_eq!(launched_fleets(&journal(&stack, 0).await).len(), 1, "one call");
    phase(&stack, "ml", "train", "Bound").await;
    batch_that(&stack, "to show that its nodes are there", |batch| {
        let conditions = batch.status.as_ref().map(|status| status.conditions.as_slice()).unwrap_or_default();
        ["Launched", "Registered", "Ready"].into_iter().all(|kind| is_true(conditions, kind))
    })
    .await;
    delete_job(&stack, "train").await;
    everything_is_terminated(&stack).await;
    no_errors(&stack);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_reach_the_cluster_as_eks_describes_it_of_which_the_name_alone_is_configured() {
    let mut scenario = Scenario::demo();
    let described = scenario.clusters[0].clone();
    scenario.clusters[0].name = "prod".to_owned();
    scenario.clusters[0].service_cidr = "10.55.0.0/16".to_owned();
    let config = json!({"cluster": {"name": "prod"}});
    let Some(stack) = provisioning_stack_with(&scenario, FACTOR, "60s", config).await else { return };
    submit(&stack.admin().unwrap(), "ml", gang_job("train", 8)).await;
    all_run(&stack, "ml", "train", 8).await;

    let journal = journal(&stack, 0).await;
    let asked = journal.iter().filter(|entry| entry["operation"] == "DescribeCluster").count();
    assert!(asked > 0, "EKS was not asked");
    let template = journal.iter().find(|entry| entry["operation"] == "CreateLaunchTemplate").unwrap();
    let data = template["parameters"]["LaunchTemplateData.UserData"].as_str().unwrap();
    let data = String::from_utf8(BASE64.decode(data).unwrap()).unwrap();
    for known in ["prod", &described.endpoint, &described.certificate_authority, "10.55.0.0/16"] {
        assert!(data.contains(known), "{known} is missing from\n{data}");
    }
    no_errors(&stack);
}

/// A DaemonSet whose pods take so much of every node.
fn daemon_set(cpu: &str) -> DaemonSet {
    let labels = json!({"app": "agent"});
    serde_json::from_value(json!({
        "metadata": {"name": "agent"},
        "spec": {"selector": {"matchLabels": labels}, "template": {
            "metadata": {"labels": labels},
            "spec": {
                "tolerations": [{"operator": "Exists"}],
                "containers": [{"name": "main", "image": "agent", "resources": {"requests": {"cpu": cpu}}}],
            },
        }},
    }))
    .unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_are_provisioned_and_awaited_as_daemon_sets_interfaces_and_disks_will_leave_them() {
    let Some(mut options) = options().await else { return };
    options.scenario = Some(serde_json::to_value(Scenario::demo()).unwrap());
    options.factor = FACTOR;
    let stack = stack(options, "ml").await;
    let client = stack.admin().unwrap();
    Api::<DaemonSet>::namespaced(client.clone(), "ml").create(&PostParams::default(), &daemon_set("20")).await.unwrap();
    let (mut class, pool) = pools::p5("1s").unwrap();
    // No EFA at all: its device plugin will never report one.
    class.spec.network_interfaces = vec![
        serde_json::from_value(json!({"networkCardIndex": 0, "deviceIndex": 0, "interfaceType": "interface"})).unwrap(),
    ];
    pools::create(&client, &class, &pool).await.unwrap();
    // By GPUs and cores two members fill a node of 8 and 192, if nothing else stands there.
    let job = TestJob::new("train", 4).gpus(4).request("cpu", "90").request("ephemeral-storage", "10Gi");
    submit(&client, "ml", job.pod_annotation("muster.dev/gang", "train").build()).await;

    all_run(&stack, "ml", "train", 4).await;

    let journal = journal(&stack, 0).await;
    let fleets = launched_fleets(&journal);
    assert_eq!(fleets.iter().map(|fleet| instances(fleet).len()).collect::<Vec<_>>(), [4], "one member on each");
    phase(&stack, "ml", "train", "Bound").await;
    delete_job(&stack, "train").await;
    everything_is_terminated(&stack).await;
    no_errors(&stack);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_zone_with_capacity_for_five_of_eight_is_left_untouched_and_the_next_zone_serves() {
    let Some(stack) = provisioning_stack(&zones([5, 8, 8]), FACTOR, "1s").await else { return };
    submit(&stack.admin().unwrap(), "ml", gang_job("train", 8)).await;

    all_run(&stack, "ml", "train", 8).await;

    let journal = journal(&stack, 0).await;
    let fleets: Vec<_> = journal.iter().filter(|entry| entry["operation"] == "CreateFleet").collect();
    let mut asked: Vec<Option<char>> = fleets.iter().map(|fleet| zone_of(fleet)).collect();
    if choices().shortfall == Shortfall::Empty {
        // An answer without a reason proves nothing: it is asked for again under its token.
        asked.dedup();
    }
    assert_eq!(asked, [Some('a'), Some('b')], "zone by zone");
    let (last, before) = fleets.split_last().unwrap();
    assert!(before.iter().all(|fleet| instances(fleet).is_empty()), "nothing was launched where only five fit");
    assert_eq!(instances(last).len(), 8);
    delete_job(&stack, "train").await;
    everything_is_terminated(&stack).await;
    no_errors(&stack);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_fleet_of_seven_instead_of_eight_is_rolled_back_to_zero_before_the_next_candidate() {
    let Some(stack) = provisioning_stack(&zones([8, 8, 8]), FACTOR, "1s").await else { return };
    goes_wrong(&stack, &Fault::of(FaultKind::Violating { launch: 7 }).on("CreateFleet").times(1)).await;
    submit(&stack.admin().unwrap(), "ml", gang_job("train", 8)).await;

    let pods = all_run(&stack, "ml", "train", 8).await;

    assert_eq!(pods.iter().filter_map(node_of).collect::<BTreeSet<_>>().len(), 8);
    let journal = journal(&stack, 0).await;
    let fleets = launched_fleets(&journal);
    let sizes: Vec<usize> = fleets.iter().map(|fleet| instances(fleet).len()).collect();
    assert_eq!(sizes, [7, 8]);
    let seven: BTreeSet<&str> = instances(fleets[0]).into_iter().collect();
    let ended = journal.iter().find(|entry| entry["operation"] == "TerminateInstances").unwrap();
    assert_eq!(instances(ended).into_iter().collect::<BTreeSet<_>>(), seven, "all seven, in one call");
    assert!(ended["number"].as_u64() < fleets[1]["number"].as_u64(), "before the next launch");
    invariants_hold(&stack).await;
    delete_job(&stack, "train").await;
    everything_is_terminated(&stack).await;
    no_errors(&stack);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_launch_whose_answer_is_lost_is_found_and_used_and_never_made_twice() {
    let Some(stack) = provisioning_stack(&Scenario::demo(), FACTOR, "1s").await else { return };
    for (name, kind) in [("cut", FaultKind::LostResponse), ("failed", FaultKind::LostAsServerError)] {
        let before = journal(&stack, 0).await.len();
        goes_wrong(&stack, &Fault::of(kind).on("CreateFleet").times(1)).await;
        submit(&stack.admin().unwrap(), "ml", gang_job(name, 8)).await;

        all_run(&stack, "ml", name, 8).await;

        let journal = journal(&stack, before).await;
        assert_eq!(launched_fleets(&journal).len(), 1, "{name}: one launch");
        assert!(journal.iter().any(|entry| entry["lost"] == true), "{name}: the answer was lost");
        let ended = journal.iter().filter(|entry| entry["operation"] == "TerminateInstances").count();
        assert_eq!(ended, 0, "{name}: nothing was thrown away");
        delete_job(&stack, name).await;
        everything_is_terminated(&stack).await;
    }
    no_errors(&stack);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn instances_of_a_lost_answer_that_show_late_are_waited_for_and_not_provisioned_again() {
    let mut scenario = Scenario::demo();
    // The token tells nothing, so only the sweep by tags finds what was launched, once EC2 shows it.
    scenario.choices.replay = Replay::WithoutIds;
    let Some(stack) = provisioning_stack(&scenario, FACTOR, "1s").await else { return };
    goes_wrong(&stack, &Fault::of(FaultKind::LostResponse).on("CreateFleet").times(1)).await;
    goes_wrong(&stack, &Fault::of(FaultKind::Invisible { seconds: 10.0 }).times(1)).await;
    submit(&stack.admin().unwrap(), "ml", gang_job("train", 8)).await;

    all_run(&stack, "ml", "train", 8).await;

    let journal = journal(&stack, 0).await;
    assert_eq!(launched_fleets(&journal).len(), 1, "one launch");
    // Where EC2 answers a known token with an error, that call is not recorded as a replay.
    let refused = choices().replay == Replay::Error;
    let fleets: Vec<_> = journal.iter().filter(|entry| entry["operation"] == "CreateFleet").collect();
    let same = fleets.windows(2).all(|two| two[0]["parameters"]["ClientToken"] == two[1]["parameters"]["ClientToken"]);
    let again = fleets.len() > 1 && same && (refused || fleets.iter().any(|entry| entry["replayed"] == true));
    assert!(again, "the same call was made again: {fleets:?}");
    delete_job(&stack, "train").await;
    everything_is_terminated(&stack).await;
    no_errors(&stack);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_gang_waits_out_insufficient_capacity_with_a_reason_and_runs_when_capacity_appears() {
    let Some(stack) = provisioning_stack(&zones([1, 2, 3]), 60, "1s").await else { return };
    submit(&stack.admin().unwrap(), "ml", gang_job("train", 8)).await;

    let named = choices().shortfall != Shortfall::Empty;
    says(&stack, "ml", "train", if named { "no capacity for this size" } else { "no candidate has capacity" }).await;
    says(&stack, "ml", "train", "next try at").await;
    let asked = journal(&stack, 0).await;
    assert!(launched_fleets(&asked).is_empty());
    let more = json!({"type": "p5.48xlarge", "zone": "us-east-1b", "add": 6});
    stack.sim_post("/_sim/pools", &more).await.unwrap();

    all_run(&stack, "ml", "train", 8).await;
    let journal = journal(&stack, 0).await;
    assert_eq!(launched_fleets(&journal).len(), 1);
    delete_job(&stack, "train").await;
    everything_is_terminated(&stack).await;
    no_errors(&stack);
}

/// Books so many nodes of eight GPUs. The UID of the request.
async fn book(stack: &Stack, count: u16) -> String {
    let client = stack.admin().unwrap();
    let template = TestJob::new("shape", count).gpus(8).build().spec.unwrap().template;
    let template: PodTemplate =
        serde_json::from_value(json!({"metadata": {"name": "shape"}, "template": template})).unwrap();
    Api::<PodTemplate>::namespaced(client.clone(), "ml").create(&PostParams::default(), &template).await.unwrap();
    let request: ProvisioningRequest = serde_json::from_value(json!({
        "apiVersion": "autoscaling.x-k8s.io/v1",
        "kind": "ProvisioningRequest",
        "metadata": {"name": "book"},
        "spec": {
            "provisioningClassName": "atomic.muster.dev",
            "podSets": [{"podTemplateRef": {"name": "shape"}, "count": count}],
        },
    }))
    .unwrap();
    let requests = Api::<ProvisioningRequest>::namespaced(client, "ml");
    requests.create(&PostParams::default(), &request).await.unwrap().uid().unwrap()
}

/// A gang on the nodes of that booking.
fn consumer(members: u16) -> Job {
    TestJob::new("train", members)
        .gpus(8)
        .pod_annotation("muster.dev/gang", "train")
        .pod_annotation(keys::CONSUME_PROVISIONING_REQUEST, "book")
        .build()
}

/// Waits until the request is provisioned. What its status says of the class.
async fn is_booked(stack: &Stack) -> BTreeMap<String, String> {
    let requests = &Api::<ProvisioningRequest>::namespaced(stack.admin().unwrap(), "ml");
    let booked = eventually(DEADLINE, "the request to be provisioned", || async move {
        let seen = requests.get("book").await.map_err(|error| error.to_string())?;
        let status = seen.status.unwrap_or_default();
        if is_true(&status.conditions, "Provisioned") { Ok(Some(status)) } else { Err(format!("{status:?}")) }
    })
    .await
    .unwrap_or_else(|error| panic!("{error}\n{}", stack.cluster.report(60)));
    booked.provisioning_class_details
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_are_provisioned_for_without_a_restart_once_their_definition_is_installed() {
    let Some(stack) = provisioning_stack(&Scenario::demo(), FACTOR, "1s").await else { return };
    let definitions = &Api::<CustomResourceDefinition>::all(stack.admin().unwrap());
    let name = "provisioningrequests.autoscaling.x-k8s.io";
    let mut definition = definitions.get(name).await.unwrap();
    definitions.delete(name, &DeleteParams::default()).await.unwrap();
    eventually(DEADLINE, "the definition to be gone", || async move {
        Ok::<_, kube::Error>(definitions.get_opt(name).await?.is_none().then_some(()))
    })
    .await
    .unwrap();
    crate::crash::restart(&stack, None).await;

    definition.metadata = ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() };
    definition.status = None;
    definitions.create(&PostParams::default(), &definition).await.unwrap();
    eventually(DEADLINE, "the definition to be served", || async move {
        let conditions = definitions.get(name).await?.status.and_then(|status| status.conditions).unwrap_or_default();
        let is = |wanted: &str| conditions.iter().any(|one| one.type_ == wanted && one.status == "True");
        Ok::<_, kube::Error>((is("Established") && is("NamesAccepted")).then_some(()))
    })
    .await
    .unwrap();
    let uid = book(&stack, 1).await;
    assert_eq!(is_booked(&stack).await["BookingUID"], uid);

    // Whoever removes the definition removes every request. Nobody waits for news of them from then on.
    definitions.delete(name, &DeleteParams::default()).await.unwrap();
    everything_is_terminated(&stack).await;
    logs(&stack, "serves no ProvisioningRequests any more", DEADLINE * 2).await;
    submit(&stack.admin().unwrap(), "ml", gang_job("train", 8)).await;
    all_run(&stack, "ml", "train", 8).await;
    no_errors(&stack);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_provisioning_request_books_nodes_that_the_job_that_names_it_runs_on() {
    let Some(stack) = provisioning_stack(&Scenario::demo(), FACTOR, "1s").await else { return };
    let client = stack.admin().unwrap();
    let uid = book(&stack, 8).await;

    let details = is_booked(&stack).await;
    assert_eq!(details["BookingUID"], uid);
    assert_eq!(details["InstanceType"], "p5.48xlarge");
    assert_eq!(details["NodePool"], "h100");
    // The taint keeps others away until each node is cordoned, which may take a moment longer than the devices.
    let (all, of_request) = (&Api::<Node>::all(client.clone()), &uid);
    eventually(DEADLINE, "eight nodes to be held for the request", || async move {
        let nodes = all.list(&ListParams::default()).await.map_err(|error| error.to_string())?.items;
        let is_held = |node: &&Node| {
            node.annotations().get(keys::HOLD) == Some(of_request)
                && node.spec.as_ref().and_then(|spec| spec.unschedulable) == Some(true)
        };
        let held = nodes.iter().filter(is_held).count();
        if (nodes.len(), held) == (8, 8) { Ok(Some(())) } else { Err(format!("{held} of {}", nodes.len())) }
    })
    .await
    .unwrap_or_else(|error| panic!("{error}\n{}", stack.cluster.report(60)));
    let names = node_names(&stack).await;
    submit(&client, "ml", consumer(8)).await;

    let pods = all_run(&stack, "ml", "train", 8).await;

    assert_eq!(pods.iter().filter_map(node_of).collect::<BTreeSet<_>>(), names, "exactly the booked nodes");
    assert_eq!(launched_fleets(&journal(&stack, 0).await).len(), 1, "nothing else is provisioned");
    batch_that(&stack, "the batch to be in use", |batch| phase_of(batch) == "InUse").await;
    delete_job(&stack, "train").await;
    everything_is_terminated(&stack).await;
    no_errors(&stack);
}

/// Gives Muster the right to write the status of requests, or takes it, and waits until that counts.
async fn may_write_requests(stack: &Stack, may: bool) {
    const STATUS: &str = "provisioningrequests/status";
    let roles: Api<ClusterRole> = Api::all(stack.admin().unwrap());
    let mut role = roles.get("muster").await.unwrap();
    let (from, to) = if may { ("none", STATUS) } else { (STATUS, "none") };
    for one in role.rules.iter_mut().flatten().filter_map(|rule| rule.resources.as_mut()).flatten() {
        if one == from {
            to.clone_into(one);
        }
    }
    roles.replace("muster", &PostParams::default(), &role).await.unwrap();
    let requests = &Api::<ProvisioningRequest>::namespaced(stack.cluster.client(Identity::Muster).unwrap(), "ml");
    eventually(DEADLINE, format!("the right to write requests to be {may}"), || async move {
        let params = PatchParams { dry_run: true, ..PatchParams::default() };
        match requests.patch_status("none", &params, &Patch::Merge(json!({"status": {}}))).await {
            Err(kube::Error::Api(answer)) if answer.code == 404 => Ok(may.then_some(())),
            Err(kube::Error::Api(answer)) if answer.code == 403 => Ok((!may).then_some(())),
            Err(error) => Err(error),
            Ok(_) => Ok(None),
        }
    })
    .await
    .unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_booked_that_cannot_be_written_down_and_used_nodes_are_not_booked_again() {
    let Some(stack) = provisioning_stack(&Scenario::demo(), FACTOR, "1s").await else { return };
    let client = stack.admin().unwrap();
    may_write_requests(&stack, false).await;
    book(&stack, 4).await;
    eventually(DEADLINE, "the request to be tried", || async {
        let log = std::fs::read_to_string(stack.cluster.log(Component::Muster(0))).unwrap_or_default();
        Ok::<_, String>((log.matches("a ProvisioningRequest is not answered").count() > 1).then_some(()))
    })
    .await
    .unwrap_or_else(|error| panic!("{error}\n{}", stack.cluster.report(60)));
    assert!(launched_fleets(&journal(&stack, 0).await).is_empty(), "a booking that nobody could find again");
    may_write_requests(&stack, true).await;
    is_booked(&stack).await;
    may_write_requests(&stack, false).await;
    submit(&client, "ml", consumer(4)).await;
    all_run(&stack, "ml", "train", 4).await;
    batch_that(&stack, "the batch to be in use", |batch| phase_of(batch) == "InUse").await;
    delete_job(&stack, "train").await;
    // It costs nothing any more, and says why it is still there.
    batch_that(&stack, "the batch to wait for its request", |batch| {
        let message = batch.status.as_ref().and_then(|status| status.message.as_deref()).unwrap_or_default();
        message.contains("write down on its ProvisioningRequest that the booked nodes were used")
    })
    .await;
    let live: Vec<Value> = stack.sim("/_sim/instances").await.unwrap();
    assert!(live.is_empty(), "{live:#?}");
    may_write_requests(&stack, true).await;
    everything_is_terminated(&stack).await;

    let requests = &Api::<ProvisioningRequest>::namespaced(client, "ml");
    eventually(DEADLINE, "the booking to have ended", || async move {
        let status = requests.get("book").await?.status.unwrap_or_default();
        Ok::<_, kube::Error>(is_true(&status.conditions, "BookingExpired").then_some(()))
    })
    .await
    .unwrap_or_else(|error| panic!("{error}\n{}", stack.cluster.report(60)));
    assert_eq!(launched_fleets(&journal(&stack, 0).await).len(), 1, "nothing is provisioned for nobody");
    invariants_hold(&stack).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_job_deleted_while_its_nodes_are_launched_leaves_nothing() {
    let Some(stack) = provisioning_stack(&Scenario::demo(), FACTOR, "1s").await else { return };
    // The answer takes its time, so that the Job is deleted while the call is under way.
    goes_wrong(&stack, &Fault::of(FaultKind::Delay { real_millis: 1_500 }).on("CreateFleet").times(1)).await;
    submit(&stack.admin().unwrap(), "ml", gang_job("train", 8)).await;
    batch_that(&stack, "a batch to be launching", |batch| {
        let attempt = batch.status.as_ref().and_then(|status| status.attempts.last());
        attempt.is_some_and(|attempt| attempt.parameters.is_some())
    })
    .await;

    delete_job(&stack, "train").await;

    everything_is_terminated(&stack).await;
    assert!(launched_fleets(&journal(&stack, 0).await).len() <= 1);
    no_errors(&stack);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_deleted_batch_gives_everything_back_at_once_if_idle_and_after_its_gang_if_in_use() {
    let Some(stack) = provisioning_stack(&Scenario::demo(), FACTOR, "Never").await else { return };
    let api = Api::<NodeBatch>::all(stack.admin().unwrap());
    submit(&stack.admin().unwrap(), "ml", gang_job("first", 8)).await;
    all_run(&stack, "ml", "first", 8).await;
    delete_job_whose_nodes_are_in_use(&stack, "first").await;
    let idle = batch_that(&stack, "the batch to be idle", |batch| phase_of(batch) == "Idle").await;
    api.delete(&idle.name_any(), &DeleteParams::default()).await.unwrap();
    everything_is_terminated(&stack).await;

    submit(&stack.admin().unwrap(), "ml", gang_job("second", 8)).await;
    all_run(&stack, "ml", "second", 8).await;
    let used = batch_that(&stack, "the batch to be in use", |batch| phase_of(batch) == "InUse").await;
    api.delete(&used.name_any(), &DeleteParams::default()).await.unwrap();
    batch_that(&stack, "the deleted batch to say that it waits", |batch| {
        batch
            .status
            .as_ref()
            .and_then(|status| status.message.as_deref())
            .is_some_and(|stated| stated.contains("when its gang ends"))
    })
    .await;
    all_run(&stack, "ml", "second", 8).await;
    delete_job(&stack, "second").await;
    everything_is_terminated(&stack).await;
    no_errors(&stack);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_unreachable_ec2_is_stated_in_pool_and_class_and_gangs_on_existing_nodes_still_run() {
    let Some(mut options) = options().await else { return };
    // Nobody listens on the discard port of the loopback address.
    options.config = json!({"ec2": {"region": "us-east-1", "endpointUrl": "http://127.0.0.1:9"}});
    let stack = stack(options, "ml").await;
    let client = stack.admin().unwrap();
    let (class, pool) = pools::p5("1s").unwrap();
    pools::create(&client, &class, &pool).await.unwrap();
    stack.create_nodes(leaves(&["a", "b"], 2)).await.unwrap();

    submit(&client, "ml", gang_job("here", 4)).await;
    all_run(&stack, "ml", "here", 4).await;
    submit(&client, "ml", gang_job("nowhere", 4)).await;
    says(&stack, "ml", "nowhere", "no NodePool is ready to provision nodes").await;

    let (classes, node_pools) = (&Api::<EC2NodeClass>::all(client.clone()), &Api::<NodePool>::all(client.clone()));
    let (class, pool) = eventually(DEADLINE, "class and pool to say what is wrong", || async move {
        let class = classes.get("gpu").await.map_err(|error| error.to_string())?.status.unwrap_or_default();
        let pool = node_pools.get("h100").await.map_err(|error| error.to_string())?.status.unwrap_or_default();
        let class = class.conditions.into_iter().find(|condition| condition.type_ == "Ready");
        let pool = pool.conditions.into_iter().find(|condition| condition.type_ == "Ready");
        match (class, pool) {
            (Some(class), Some(pool)) if pool.message.contains("subnetSelectorTerms") => Ok(Some((class, pool))),
            seen => Err(format!("{seen:?}")),
        }
    })
    .await
    .unwrap_or_else(|error| panic!("{error}\n{}", stack.cluster.report(60)));
    assert_eq!((class.status.as_str(), class.reason.as_str()), ("False", "Unreachable"));
    assert_eq!((pool.status.as_str(), pool.reason.as_str()), ("False", "NodeClassNotReady"));
    no_errors(&stack);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn groups_and_templates_are_tagged_with_cluster_pool_and_gang_and_what_the_class_adds() {
    let Some(mut options) = options().await else { return };
    options.scenario = Some(serde_json::to_value(Scenario::demo()).unwrap());
    options.factor = FACTOR;
    let stack = stack(options, "ml").await;
    let client = stack.admin().unwrap();
    let (mut class, pool) = pools::p5("1s").unwrap();
    class.spec.tags = [("team".to_owned(), "vision".to_owned())].into();
    pools::create(&client, &class, &pool).await.unwrap();
    submit(&client, "ml", gang_job("train", 2)).await;
    all_run(&stack, "ml", "train", 2).await;
    let state: Value = stack.sim("/_sim/state").await.unwrap();
    for kind in ["placementGroups", "launchTemplates"] {
        // A class is tried out with a template that is of no batch.
        let made = state[kind].as_array().unwrap();
        let of_batch: Vec<_> = made.iter().filter(|one| one["tags"]["muster.dev/batch"].is_string()).collect();
        assert_eq!(of_batch.len(), 1, "{kind}: {made:?}");
        let tags = &of_batch[0]["tags"];
        for (key, value) in [
            ("eks:eks-cluster-name", "muster"),
            ("muster.dev/nodepool", "h100"),
            ("muster.dev/namespace", "ml"),
            ("team", "vision"),
        ] {
            assert_eq!(tags[key], *value, "{kind}: {key} of {tags}");
        }
        let gang = tags["muster.dev/gang"].as_str().unwrap_or_default();
        assert!(gang.starts_with("train"), "{kind}: {tags}");
        assert_eq!(tags["Name"], format!("h100/ml/{gang}"), "{kind}");
    }
    delete_job(&stack, "train").await;
    everything_is_terminated(&stack).await;
    no_errors(&stack);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn in_an_isolated_cluster_neither_iam_nor_prices_are_asked() {
    for isolated in [true, false] {
        let config = json!({"ec2": {"isolated": isolated}});
        let Some(stack) = provisioning_stack_with(&zones([2, 0, 0]), FACTOR, "1s", config).await else { return };
        submit(&stack.admin().unwrap(), "ml", gang_job("train", 2)).await;
        all_run(&stack, "ml", "train", 2).await;
        let asked = async |service: &str| journal(&stack, 0).await.iter().any(|entry| entry["service"] == service);
        if !isolated {
            eventually(DEADLINE, "prices to be read", || async {
                Ok::<_, String>(asked("pricing").await.then_some(()))
            })
            .await
            .unwrap();
        }
        // By now they would have been read: that comes with the catalogue, without which nothing is launched.
        assert_eq!([asked("ec2").await, asked("iam").await, asked("pricing").await], [true, false, !isolated]);
        delete_job(&stack, "train").await;
        everything_is_terminated(&stack).await;
        no_errors(&stack);
    }
}
