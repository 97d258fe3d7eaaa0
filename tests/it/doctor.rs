//! `muster doctor` against the simulated account and an API server that only answers: a healthy pair, and as many broken ones
//! as there are lines in a table, each with what is named and what mends it.

mod world;

use std::path::Path;

use jiff::SignedDuration;
use muster_core::doctor::{Check, Finding, Outcome, READS, Report};
use muster_ec2_sim::choices::{DryRun, QuotaValue};
use muster_ec2_sim::{Fault, FaultKind};
use serde_json::{Value, json};

use self::world::*;

fn wrong(report: &Report) -> Vec<&Finding> {
    report.checks.iter().filter(|one| matches!(one.result, Outcome::Fail | Outcome::Warn)).collect()
}

#[tokio::test]
async fn a_healthy_account_has_nothing_to_mend_under_the_shipped_policy() {
    let report = World::healthy().examine().await;
    assert_eq!(wrong(&report), Vec::<&Finding>::new(), "{report}");
    for check in
        [Check::Credentials, Check::Launch, Check::SecurityGroups, Check::Devices, Check::InstanceTypes, Check::Quotas]
    {
        assert!(report.checks.iter().any(|one| one.check == check && one.result == Outcome::Ok), "{check:?}: {report}");
    }
    assert!(!report.failed());
}

/// A fault, the check that finds it, what it says, and what mends it.
type Case = (&'static str, fn(&mut World), Outcome, Check, &'static str, &'static str);

fn cases() -> Vec<Case> {
    use Outcome::{Fail, Warn};
    vec![
        (
            "no ceiling",
            |world| world.config["provisioner"] = json!({}),
            Fail,
            Check::Configuration,
            "is not set",
            "provisioner.maxUsdPerHour",
        ),
        (
            "a dry run for ever",
            |world| world.config["provisioner"]["dryRun"] = json!(true),
            Warn,
            Check::Configuration,
            "nothing is launched",
            "provisioner.dryRun",
        ),
        ("no Region", |world| world.region = false, Fail, Check::Configuration, "there is no Region", "AWS_REGION"),
        (
            "a clock ten minutes late",
            |world| world.ahead = SignedDuration::from_mins(10),
            Fail,
            Check::Clock,
            "AWS refuses",
            "chronyd",
        ),
        (
            "a scheduler newer than the API server",
            |world| {
                world.objects.get_mut(PODS).unwrap()[0]["spec"]["containers"][1]["image"] =
                    json!("registry.k8s.io/kube-scheduler:v1.37.0");
            },
            Fail,
            Check::Versions,
            "kube-scheduler 1.37, API server 1.36",
            "kubernetes/1.36",
        ),
        (
            "no scheduler",
            |world| world.objects.get_mut(PODS).unwrap().clear(),
            Warn,
            Check::Versions,
            "no kube-scheduler runs",
            "kubectl apply -k manifests",
        ),
        (
            "a permission of Kubernetes",
            |world| world.forbidden = Some("list daemonsets"),
            Fail,
            Check::Rbac,
            "list daemonsets.apps",
            "manifests/rbac.yaml",
        ),
        (
            "a kind that is not installed",
            |world| world.kinds.retain(|kind| *kind != "nodebatches"),
            Fail,
            Check::Kinds,
            "nodebatches.muster.dev v1alpha1",
            "manifests/crds",
        ),
        (
            "definitions of an earlier version",
            |world| {
                let status = "/components/schemas/dev.muster.v1alpha1.NodeBatch/properties/status/properties";
                world.openapi.pointer_mut(status).unwrap().as_object_mut().unwrap().remove("used").unwrap();
            },
            Fail,
            Check::Kinds,
            "drop NodeBatch.status.used: nothing is launched",
            "manifests/crds",
        ),
        (
            "keys that AWS does not know",
            |world| {
                let kind = FaultKind::Error { code: "AuthFailure".to_owned(), status: 401, message: "no".to_owned() };
                world.faults.push(Fault::of(kind));
            },
            Fail,
            Check::Credentials,
            "AWS refuses who asks",
            "get-caller-identity",
        ),
        (
            "a queue that is not there",
            |world| world.scenario.queue.name = "another".to_owned(),
            Fail,
            Check::Queue,
            "it is not there",
            "cloudformation/muster.yaml",
        ),
        (
            "a queue that may not be asked for",
            |world| world.denied.push("sqs:GetQueueUrl".to_owned()),
            Fail,
            Check::Queue,
            "sqs:GetQueueUrl is denied",
            "manifests/iam/policy.json",
        ),
        (
            "an account that may run no P instances",
            |world| world.scenario.quotas = [("p".to_owned(), 0)].into(),
            Fail,
            Check::Quotas,
            "may run 0 virtual CPUs of quota L-417A185B (Running On-Demand P instances), and a p5.48xlarge has 192",
            "request-service-quota-increase --service-code ec2 --quota-code L-417A185B --desired-value 1536",
        ),
        (
            "a quota one virtual CPU short, which AWS never granted and never refused",
            |world| {
                world.scenario.quotas = [("p".to_owned(), 191)].into();
                world.scenario.choices.quota_value = QuotaValue::DefaultAlone;
            },
            Fail,
            Check::Quotas,
            "may run 191 virtual CPUs",
            "--quota-code L-417A185B",
        ),
        (
            "no quota on demand, in a pool whose class chooses reservations",
            |world| {
                world.scenario.quotas = [("p".to_owned(), 0)].into();
                world.class()["spec"]["capacityReservationSelectorTerms"] = json!([{"id": "cr-00000000000000001"}]);
            },
            Warn,
            Check::Quotas,
            "may run 0 virtual CPUs",
            "--quota-code L-417A185B",
        ),
        (
            "no spot beside on demand",
            |world| {
                world.scenario.quotas = [("spot-p".to_owned(), 0)].into();
                world.capacity_types(&["spot", "on-demand"]);
            },
            Warn,
            Check::Quotas,
            "quota L-7212CCBC (All P Spot Instance Requests)",
            "--quota-code L-7212CCBC",
        ),
        (
            "a Pod that was there before its identity",
            |world| world.environment(json!([])),
            Warn,
            Check::PodIdentity,
            "neither Pod Identity nor IRSA",
            "rollout restart deployment/muster",
        ),
        (
            "no agent for Pod Identity",
            |world| world.without_daemon("eks-pod-identity-agent"),
            Warn,
            Check::PodIdentity,
            "no DaemonSet eks-pod-identity-agent",
            "aws eks create-addon",
        ),
        (
            "a cluster that knows its config map alone",
            |world| world.entries("CONFIG_MAP", &[]),
            Warn,
            Check::Authentication,
            "the mode is CONFIG_MAP",
            "aws eks update-cluster-config --name demo --access-config authenticationMode=API_AND_CONFIG_MAP",
        ),
        (
            "a node role without an access entry, and no other way",
            |world| world.entries("API", &[]),
            Fail,
            Check::Authentication,
            "its nodes cannot join",
            "--principal-arn arn:aws:iam::123456789012:role/nodes --type EC2_LINUX",
        ),
        (
            "a node role without an access entry",
            |world| world.entries("API_AND_CONFIG_MAP", &[]),
            Warn,
            Check::Authentication,
            "only if the ConfigMap kube-system/aws-auth maps it",
            "aws eks create-access-entry",
        ),
        (
            "a node role with the access entry of a person",
            |world| world.entries("API", &[("nodes", "STANDARD")]),
            Fail,
            Check::Authentication,
            "has the type STANDARD",
            "aws eks delete-access-entry",
        ),
        (
            "subnets of another VPC than the cluster's",
            |world| world.scenario.clusters[0].vpc = Some("vpc-00000000000000009".to_owned()),
            Fail,
            Check::Subnets,
            "and the cluster is in vpc-00000000000000009",
            "spec.subnetSelectorTerms",
        ),
        (
            "no class",
            |world| world.objects.get_mut(CLASSES).unwrap().clear(),
            Warn,
            Check::NodeClass,
            "there is no EC2NodeClass",
            "docs/getting-started-eks.md",
        ),
        (
            "a class that is not ready",
            |world| world.class()["status"] = of_ready(Some("spec.x")),
            Fail,
            Check::NodeClass,
            "Because: spec.x",
            "kubectl edit ec2nodeclass gpu",
        ),
        (
            "subnets that do not exist",
            |world| world.class()["spec"]["subnetSelectorTerms"] = json!([{"tags": {"Name": "none"}}]),
            Fail,
            Check::Subnets,
            "no subnet matches",
            "spec.subnetSelectorTerms",
        ),
        (
            "subnets without an address",
            |world| world.free_addresses(0),
            Fail,
            Check::Subnets,
            "no free address",
            "larger subnet",
        ),
        (
            "subnets that are nearly full",
            |world| world.free_addresses(3),
            Warn,
            Check::Subnets,
            "fewer than 16",
            "larger",
        ),
        (
            "a security group that does not exist",
            |world| world.class()["spec"]["securityGroupSelectorTerms"] = json!([{"name": "none"}]),
            Fail,
            Check::SecurityGroups,
            "no security group matches",
            "spec.securityGroupSelectorTerms",
        ),
        (
            "a security group without itself",
            |world| world.scenario.security_groups[0].no_self_reference = true,
            Fail,
            Check::SecurityGroups,
            "which EFA needs",
            "authorize-security-group-ingress",
        ),
        (
            "an image that is gone",
            |world| world.scenario.images.clear(),
            Fail,
            Check::Images,
            "InvalidAMIID",
            "spec.amiSelectorTerms",
        ),
        (
            "an instance profile that does not exist",
            |world| world.class()["spec"]["instanceProfile"] = json!("none"),
            Fail,
            Check::Launch,
            "Invalid IAM Instance Profile name",
            "spec.instanceProfile",
        ),
        (
            "a pool without its class",
            |world| world.pool()["spec"]["template"]["spec"]["nodeClassRef"]["name"] = json!("none"),
            Fail,
            Check::NodePool,
            "there is no EC2NodeClass none",
            "nodeClassRef",
        ),
        (
            "a pool that is not ready",
            |world| world.pool()["status"] = of_ready(Some("blocked")),
            Fail,
            Check::NodePool,
            "Because: blocked",
            "kubectl edit nodepool train",
        ),
        (
            "no pool",
            |world| world.objects.get_mut(POOLS).unwrap().clear(),
            Warn,
            Check::NodePool,
            "there is no NodePool",
            "docs/getting-started-eks.md",
        ),
        (
            "a type that nobody has",
            |world| world.requires("node.kubernetes.io/instance-type", "p99.large"),
            Fail,
            Check::InstanceTypes,
            "no instance type of this Region",
            "requirements",
        ),
        (
            "a type that is offered where no subnet is",
            |world| {
                world.class()["spec"]["subnetSelectorTerms"] = json!([{"id": "subnet-0000000000000000c"}]);
            },
            Fail,
            Check::InstanceTypes,
            "p5.48xlarge is offered in no zone with a subnet",
            "another zone",
        ),
        (
            "no plugin for GPUs",
            |world| world.without_daemon("nvdp-nvidia-device-plugin"),
            Fail,
            Check::Devices,
            "no DaemonSet brings nvidia.com/gpu",
            "helm upgrade --install nvdp",
        ),
        (
            "a plugin for GPUs that does not tolerate the pool",
            |world| world.intolerant("nvdp-nvidia-device-plugin"),
            Fail,
            Check::Devices,
            "kube-system/nvdp-nvidia-device-plugin does not tolerate nvidia.com/gpu=present:NoSchedule",
            "kubectl -n kube-system patch daemonset nvdp-nvidia-device-plugin",
        ),
        (
            "no plugin for EFA",
            |world| world.without_daemon("efa"),
            Warn,
            Check::Devices,
            "no DaemonSet brings vpc.amazonaws.com/efa",
            "aws-efa-k8s-device-plugin",
        ),
        (
            "a plugin for EFA that does not tolerate the pool",
            |world| world.intolerant("efa"),
            Fail,
            Check::Devices,
            "kube-system/efa does not tolerate",
            "patch daemonset efa",
        ),
        (
            "no pod network",
            |world| world.without_daemon("aws-node"),
            Warn,
            Check::Network,
            "no DaemonSet is known to be the pod network",
            "vpc-cni",
        ),
        (
            "a pod network that does not tolerate the pool",
            |world| world.intolerant("aws-node"),
            Fail,
            Check::Network,
            "does not tolerate",
            "patch daemonset aws-node",
        ),
        (
            "no kube-proxy",
            |world| world.without_daemon("kube-proxy"),
            Warn,
            Check::KubeProxy,
            "no DaemonSet is known to be the kube-proxy",
            "kube-proxy",
        ),
        (
            "a node that no cloud controller has seen",
            |world| world.objects.get_mut(NODES).unwrap().push(node("new", &json!({}))),
            Fail,
            Check::TopologyLabels,
            "topology.kubernetes.io/zone",
            "cloud controller",
        ),
        (
            "a node of ours without its place",
            |world| {
                let labels = json!({"topology.kubernetes.io/zone": "us-east-1a", "muster.dev/nodepool": "train"});
                world.objects.get_mut(NODES).unwrap().push(node("own", &labels));
            },
            Warn,
            Check::TopologyLabels,
            "placed by zone alone",
            "DescribeInstanceTopology",
        ),
    ]
}

#[tokio::test]
async fn each_of_many_broken_accounts_is_named_with_its_mend() {
    let cases = cases();
    assert!(cases.len() >= 25);
    let mut missed = Vec::new();
    for (name, break_it, result, check, says, mend) in cases {
        let mut world = World::healthy();
        if check == Check::Launch {
            // Where a dry run looks at permissions alone, nobody sees what is wrong with a launch before it is made.
            world.scenario.choices.dry_run = DryRun::Parameters;
        }
        break_it(&mut world);
        let report = world.examine().await;
        let found = report.checks.iter().any(|one| {
            (one.check, one.result) == (check, result)
                && format!("{} {}", one.subject, one.message).contains(says)
                && one.mend.as_ref().is_some_and(|text| text.contains(mend))
        });
        if !found {
            missed.push(format!("{name}:\n{report}"));
        }
    }
    assert!(missed.is_empty(), "{}", missed.join("\n\n"));
}

#[tokio::test]
async fn daemon_sets_of_the_gpu_operator_may_come_with_the_first_gpu_node() {
    let found = async |policy: Option<Value>| {
        let mut world = World::healthy();
        world.without_daemon("nvdp-nvidia-device-plugin");
        if let Some(spec) = policy {
            let policy = json!({
                "apiVersion": "nvidia.com/v1", "kind": "ClusterPolicy", "metadata": {"name": "cluster-policy"}, "spec": spec,
            });
            world.objects.insert(CLUSTER_POLICIES, vec![policy]);
        }
        let report = world.examine().await;
        let mut of_gpus = report.checks.into_iter().filter(|one| one.message.contains("nvidia.com/gpu"));
        let found = of_gpus.find(|one| one.check == Check::Devices);
        found.map(|one| (one.result, one.message)).unwrap_or_else(|| (Outcome::Skipped, String::new()))
    };
    let (result, message) = found(Some(json!({}))).await;
    assert!(result == Outcome::Ok && message.contains("GPU operator"), "{message}");
    assert_eq!(found(None).await.0, Outcome::Fail);
    assert_eq!(found(Some(json!({"devicePlugin": {"enabled": false}}))).await.0, Outcome::Fail);
    let mut world = World::healthy();
    world.without_daemon("nvdp-nvidia-device-plugin");
    world.objects.insert(CLUSTER_POLICIES, vec![json!({"metadata": {"name": "cluster-policy"}})]);
    let taints = &mut world.pool()["spec"]["template"]["spec"]["taints"];
    taints.as_array_mut().unwrap().push(json!({"key": "team", "effect": "NoSchedule"}));
    let report = world.examine().await;
    let other = report.checks.iter().find(|one| one.message.contains("may not tolerate team:NoSchedule"));
    assert_eq!(other.map(|one| one.result), Some(Outcome::Warn), "{report}");
}

#[tokio::test]
async fn a_pool_on_spot_has_a_note_of_the_role_that_nobody_sees() {
    let mut world = World::healthy();
    world.capacity_types(&["spot", "on-demand"]);
    let report = world.examine().await;
    let note = report.checks.iter().find(|one| one.check == Check::SpotRole).unwrap();
    assert_eq!(note.result, Outcome::Skipped);
    assert!(note.message.contains("create-service-linked-role --aws-service-name spot.amazonaws.com"), "{report}");
    let report = World::healthy().examine().await;
    assert!(report.checks.iter().all(|one| one.check != Check::SpotRole), "{report}");
}

#[tokio::test]
async fn each_permission_that_is_taken_away_is_named() {
    let others = [
        "ec2:CreateLaunchTemplate",
        "ec2:CreatePlacementGroup",
        "ec2:RunInstances",
        "ec2:CreateTags",
        "iam:PassRole",
        "ssm:GetParameter",
        "pricing:GetProducts",
        "servicequotas:GetServiceQuota",
        "eks:DescribeCluster",
        "eks:DescribeAccessEntry",
    ];
    let of_launched = [
        "ec2:CreateFleet",
        "ec2:TerminateInstances",
        "ec2:DeleteLaunchTemplate",
        "ec2:DeletePlacementGroup",
        "ec2:GetConsoleOutput",
    ];
    for action in READS.into_iter().chain(others).chain(of_launched) {
        let mut world = World::healthy();
        world.launched = of_launched.contains(&action);
        world.denied.push(action.to_owned());
        let report = world.examine().await;
        let named = |one: &&Finding| {
            one.subject == action && matches!(one.result, Outcome::Fail | Outcome::Warn) && one.mend.is_some()
        };
        assert!(report.checks.iter().find(named).is_some(), "{action}: {report}");
    }
}

#[tokio::test]
async fn an_isolated_account_is_examined_without_a_call_to_what_may_have_no_endpoint() {
    let actions = ["pricing:GetProducts", "servicequotas:GetServiceQuota"];
    let of = |report: &Report| {
        actions.map(|action| report.checks.iter().find(|one| one.subject == action).map(|one| one.result))
    };
    let mut world = World::healthy();
    world.config["ec2"]["isolated"] = json!(true);
    let report = world.examine().await;
    assert_eq!(of(&report), [Some(Outcome::Skipped); 2], "{report}");
    let quotas = report.checks.iter().find(|one| one.check == Check::Quotas).unwrap();
    assert_eq!(quotas.result, Outcome::Skipped, "{report}");
    // What is allowed is counted, and has no line of its own.
    assert_eq!(of(&World::healthy().examine().await), [None; 2]);
}

#[tokio::test]
async fn where_muster_has_launched_before_nothing_is_wrong_either() {
    let mut world = World::healthy();
    world.launched = true;
    let report = world.examine().await;
    assert_eq!(wrong(&report), Vec::<&Finding>::new(), "{report}");
    assert!(report.checks.iter().all(|one| one.subject != "ec2:TerminateInstances"), "tried, and allowed: {report}");
}

#[tokio::test]
async fn the_exit_code_of_the_command_is_whether_something_has_to_be_mended() {
    for (mend, code) in [(None, 0), (Some("provisioner.maxUsdPerHour"), 1)] {
        let mut world = World::healthy();
        if mend.is_some() {
            world.config["provisioner"] = json!({});
        }
        let Started { endpoint, uri, config, .. } = world.start().await;
        let folder = std::env::temp_dir().join(format!("muster-doctor-{}-{code}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let kubeconfig = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "it",
            "clusters": [{"name": "it", "cluster": {"server": uri}}],
            "users": [{"name": "it", "user": {}}],
            "contexts": [{"name": "it", "context": {"cluster": "it", "user": "it"}}],
        });
        std::fs::write(folder.join("kubeconfig"), kubeconfig.to_string()).unwrap();
        std::fs::write(folder.join("muster.yaml"), config.to_string()).unwrap();
        let output = tokio::process::Command::new(env!("CARGO_BIN_EXE_muster"))
            .args(["doctor", "-o", "json", "--config"])
            .arg(folder.join("muster.yaml"))
            .env("KUBECONFIG", folder.join("kubeconfig"))
            .env("AWS_REGION", "us-east-1")
            .env("AWS_ENDPOINT_URL", &endpoint)
            .kill_on_drop(true)
            .output()
            .await
            .unwrap();
        std::fs::remove_dir_all(&folder).unwrap();
        let stated = String::from_utf8_lossy(&output.stdout);
        assert_eq!(output.status.code(), Some(code), "{stated}{}", String::from_utf8_lossy(&output.stderr));
        let report: Value = serde_json::from_str(&stated).unwrap();
        let checks = report["checks"].as_array().unwrap();
        assert!(mend.is_none_or(|mend| checks.iter().any(|one| one["mend"].to_string().contains(mend))), "{stated}");
    }
}

#[test]
fn every_read_of_the_shipped_policy_is_tried() {
    let policy = Path::new(env!("CARGO_MANIFEST_DIR")).join("manifests/iam/policy.json");
    let policy: Value = serde_json::from_str(&std::fs::read_to_string(policy).unwrap()).unwrap();
    let read = policy["Statement"].as_array().unwrap().iter().find(|one| one["Sid"] == "Read").unwrap();
    let mut actions: Vec<&str> = read["Action"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
    actions.sort_unstable();
    assert_eq!(actions, READS);
}
