//! The shipped IAM policy: enough for what is sent, and nothing else.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use muster_ec2_sim::choices::DryRun;
use muster_ec2_sim::policy::Policy;
use muster_ec2_sim::scenario::{Image, OtherInstances};
use muster_ec2_sim::{MarketType, Scenario};

use crate::support::{Fleet, P5, SUBNET_A, Sim, fleet_ids, small, text};

/// Images are read from their parameters before a launch names them: `ssm:GetParameters` is not allowed.
const IMAGE: &str = "ami-0123456789abcdef0";

fn checkout() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn shipped() -> Policy {
    let path = checkout().join("manifests/iam/policy.json");
    let text = std::fs::read_to_string(path).expect("the policy is shipped");
    serde_json::from_str(&text).expect("the policy is one the simulator understands")
}

fn guarded() -> Scenario {
    let mut scenario = small();
    scenario.policy = Some(shipped());
    scenario.images.push(Image { id: IMAGE.to_owned(), name: "node".to_owned(), path: None });
    let values = [("CLUSTER", "demo"), ("UID", "c1"), ("NODE-ROLE", "nodes"), ("QUEUE", "muster-interruptions")];
    scenario.policy_values = values.map(|(word, value)| (word.to_owned(), value.to_owned())).into();
    scenario.others.push(OtherInstances {
        instance_type: P5.to_owned(),
        zone: "us-east-1a".to_owned(),
        capacity_type: MarketType::OnDemand,
        count: 1,
        tags: BTreeMap::from([("muster.dev/cluster-uid".to_owned(), "c1".to_owned())]),
    });
    scenario
}

const GROUP: [(&str, &str); 6] = [
    ("Strategy", "cluster"),
    ("TagSpecification.1.ResourceType", "placement-group"),
    ("TagSpecification.1.Tag.1.Key", "muster.dev/cluster-uid"),
    ("TagSpecification.1.Tag.1.Value", "c1"),
    ("TagSpecification.1.Tag.2.Key", "muster.dev/batch"),
    ("TagSpecification.1.Tag.2.Value", "b1"),
];

fn group<'a>(name: &'a str, strategy: &'a str) -> Vec<(&'a str, &'a str)> {
    let mut parameters = vec![("GroupName", name), ("Strategy", strategy)];
    parameters.extend(&GROUP[1..]);
    parameters
}

const DENIED: (u16, &str) = (403, "UnauthorizedOperation");

impl Sim {
    async fn denied(&self, action: &str, parameters: &[(&str, &str)]) {
        let (status, code) = self.refused(action, parameters).await;
        assert_eq!((status, code.as_str()), DENIED, "{action} {parameters:?}");
    }
}

#[tokio::test]
async fn the_shipped_policy_allows_the_whole_life_of_a_batch() {
    let sim = Sim::new(guarded());
    sim.ok("CreatePlacementGroup", &group("demo-b1", "cluster")).await;
    let template = sim.template_of(IMAGE).await;
    let fleet = Fleet { group: Some("demo-b1"), ..Fleet::of(&template, "2", "t1") };
    let ids = fleet_ids(&sim.ok("CreateFleet", &fleet.parameters()).await);
    let ours = [("Filter.1.Name", "tag:muster.dev/batch"), ("Filter.1.Value.1", "b1")];
    sim.ok("DescribeInstances", &ours).await;
    sim.ok("TerminateInstances", &[("InstanceId.1", &ids[0]), ("InstanceId.2", &ids[1])]).await;
    sim.advance(120);
    sim.ok("DeletePlacementGroup", &[("GroupName", "demo-b1")]).await;
    sim.ok("DeleteLaunchTemplate", &[("LaunchTemplateId", &template)]).await;
}

#[tokio::test]
async fn the_shipped_policy_allows_nothing_that_is_not_a_batch_of_this_cluster() {
    let sim = Sim::new(guarded());
    let template = sim.template_of(IMAGE).await;
    let fleet = Fleet::of(&template, "2", "t1").parameters();
    let renamed = |from: &str, to: &'static str| -> Vec<(&str, &str)> {
        fleet.iter().map(|(key, value)| (*key, if *value == from { to } else { value })).collect()
    };
    sim.denied("CreateFleet", &renamed("muster.dev/batch", "batch")).await;
    sim.denied("CreateFleet", &renamed("c1", "c2")).await;
    sim.denied("CreatePlacementGroup", &group("demo-b1", "spread")).await;
    sim.denied("CreatePlacementGroup", &group("other-b1", "cluster")).await;
    // The cluster's tag alone is on the instances of others too.
    let theirs = sim.simulator.instances()[0].instance_id.clone();
    sim.denied("TerminateInstances", &[("InstanceId.1", &theirs)]).await;
    sim.denied("CreateTags", &[("ResourceId.1", &theirs), ("Tag.1.Key", "a"), ("Tag.1.Value", "b")]).await;
    sim.denied("CreateCapacityReservation", &[("InstanceType", P5), ("InstanceCount", "1")]).await;
    sim.denied("DescribeVolumes", &[]).await;
    sim.denied("CreateLaunchTemplate", &[("LaunchTemplateName", "x"), ("LaunchTemplateData.InstanceType", P5)]).await;
    assert_eq!(sim.simulator.instances().len(), 1);
}

#[tokio::test]
async fn a_role_is_passed_only_if_the_policy_says_so_and_a_dry_run_finds_out() {
    let sim = Sim::new(guarded());
    let with_profile = |name| {
        let mut parameters = vec![
            ("MinCount", "1"),
            ("MaxCount", "1"),
            ("ImageId", IMAGE),
            ("InstanceType", P5),
            ("SubnetId", SUBNET_A),
            ("IamInstanceProfile.Name", name),
            ("DryRun", "true"),
        ];
        for (spec, kind) in [("1", "instance"), ("2", "volume"), ("3", "network-interface")] {
            for (part, value) in [
                ("ResourceType", kind),
                ("Tag.1.Key", "muster.dev/cluster-uid"),
                ("Tag.1.Value", "c1"),
                ("Tag.2.Key", "muster.dev/batch"),
                ("Tag.2.Value", "b1"),
            ] {
                let key: &'static str = Box::leak(format!("TagSpecification.{spec}.{part}").into_boxed_str());
                parameters.push((key, value));
            }
        }
        parameters
    };
    assert_eq!(sim.refused("RunInstances", &with_profile("nodes")).await, (412, "DryRunOperation".to_owned()));
    let (status, body) = sim.call("RunInstances", &with_profile("admin")).await;
    assert_eq!(status, 403);
    assert!(
        text(&body, "Message").contains("iam:PassRole on resource: arn:aws:iam::123456789012:role/admin"),
        "{body}"
    );
}

#[tokio::test]
async fn an_action_that_is_denied_is_denied_alone_and_until_it_is_allowed_again() {
    let sim = Sim::new(small());
    let template = sim.template().await;
    let fleet = Fleet::of(&template, "2", "t1").parameters();
    sim.simulator.deny(["ec2:CreateTags".to_owned()]);
    let (status, body) = sim.call("CreateFleet", &fleet).await;
    assert_eq!((status.as_u16(), text(&body, "Code")), DENIED);
    assert!(text(&body, "Message").contains("not authorized to perform: ec2:CreateTags on resource"), "{body}");
    sim.ok("DescribeInstances", &[("MaxResults", "5")]).await;
    sim.simulator.deny([]);
    assert_eq!(fleet_ids(&sim.ok("CreateFleet", &fleet).await).len(), 2);
}

#[tokio::test]
async fn a_launch_from_a_template_that_is_gone_is_refused_for_the_template() {
    let sim = Sim::new(guarded());
    let template = sim.template_of(IMAGE).await;
    sim.ok("DeleteLaunchTemplate", &[("LaunchTemplateId", &template)]).await;
    let refused = sim.refused("CreateFleet", &Fleet::of(&template, "2", "t1").parameters()).await;
    assert_eq!(refused, (400, "InvalidLaunchTemplateId.NotFound".to_owned()));
}

/// The calls of these tests are signed with the key `x`.
#[tokio::test]
async fn whoever_administers_the_account_may_do_what_the_policy_does_not_allow() {
    let mut scenario = guarded();
    Sim::new(scenario.clone()).denied("DescribeVolumes", &[]).await;
    scenario.administrators = vec!["somebody".to_owned()];
    Sim::new(scenario.clone()).denied("DescribeVolumes", &[]).await;
    scenario.administrators.push("x".to_owned());
    Sim::new(scenario).ok("DescribeVolumes", &[]).await;
}

#[tokio::test]
async fn a_dry_run_of_a_launch_looks_at_permissions_and_parameters_and_never_at_capacity() {
    let mut scenario = small();
    scenario.instance_profiles = vec!["nodes".to_owned()];
    for choice in [DryRun::Parameters, DryRun::PermissionsAlone] {
        scenario.choices.dry_run = choice;
        let sim = Sim::new(scenario.clone());
        let mut run = vec![
            ("MinCount", "900"),
            ("MaxCount", "900"),
            ("ImageId", crate::support::SSM),
            ("InstanceType", P5),
            ("SubnetId", SUBNET_A),
            ("IamInstanceProfile.Name", "nodes"),
            ("DryRun", "true"),
        ];
        assert_eq!(sim.refused("RunInstances", &run).await, (412, "DryRunOperation".to_owned()));
        run[5].1 = "missing";
        let (status, body) = sim.call("RunInstances", &run).await;
        match choice {
            DryRun::Parameters => {
                assert_eq!((status.as_u16(), text(&body, "Code")), (400, "InvalidParameterValue"));
                assert!(text(&body, "Message").contains("Invalid IAM Instance Profile name"), "{body}");
            }
            DryRun::PermissionsAlone => assert_eq!(status, 412),
        }
        run.pop();
        assert_eq!(
            sim.refused("RunInstances", &run).await,
            (400, "InvalidParameterValue".to_owned()),
            "the launch too"
        );
        assert!(sim.simulator.instances().is_empty());
    }
}

#[test]
fn a_policy_with_words_that_are_not_understood_is_refused() {
    let numeric = r#"{"Statement": [{"Effect": "Allow", "Action": "*", "Resource": "*",
        "Condition": {"NumericEquals": {"a": "1"}}}]}"#;
    let error = serde_json::from_str::<Policy>(numeric).unwrap_err().to_string();
    assert!(error.contains("NumericEquals"), "{error}");
}

/// What the policy allows although no call of that name is sent, and why.
const INDIRECT: [(&str, &str); 2] = [
    ("ec2:CreateTags", "tags given on creation need it"),
    ("iam:PassRole", "an instance profile in a launch needs it"),
];

/// The operations that `crates/ec2` sends, as actions: the SDK's operations whose inputs it builds.
fn sent() -> BTreeSet<String> {
    let mut sent = BTreeSet::new();
    for file in std::fs::read_dir(checkout().join("crates/ec2/src")).expect("the crate is there") {
        let source = std::fs::read_to_string(file.expect("it is listed").path()).expect("it is a source");
        for service in ["ec2", "sqs", "eks", "iam", "pricing", "servicequotas", "ssm"] {
            let path = format!("aws_sdk_{service}::operation::");
            for (at, _) in source.match_indices(&path) {
                let name =
                    source[at + path.len()..].split(|c: char| c != '_' && !c.is_alphanumeric()).next().unwrap_or("");
                // A trait that all answers have.
                if name == "RequestId" || name.is_empty() {
                    continue;
                }
                // The one name in which an abbreviation is spelt in capitals.
                let name = name.replace("aws_", "AWS_");
                let words = name.split('_').map(|word| word[..1].to_uppercase() + &word[1..]);
                sent.insert(format!("{service}:{}", words.collect::<String>()));
            }
        }
    }
    sent
}

/// IAM counts everything but white space, and replaces no words.
#[test]
fn the_shipped_policy_fits_a_managed_policy_with_long_names() {
    let values = [
        ("ACCOUNT", "123456789012".to_owned()),
        ("REGION", "ap-southeast-1".to_owned()),
        ("CLUSTER", "c".repeat(100)),
        ("UID", "0f9c2d4e-0000-0000-0000-000000000000".to_owned()),
        ("NODE-ROLE", "r".repeat(64)),
        ("QUEUE", "q".repeat(80)),
    ];
    let filled = shipped().filled(&values.map(|(word, value)| (word.to_owned(), value)).into());
    let text = serde_json::to_string(&filled).expect("a policy is JSON");
    assert!(text.contains("0f9c2d4e") && !text.contains("ACCOUNT"), "{text}");
    let length = text.chars().filter(|c| !c.is_whitespace()).count();
    assert!(length <= 6_144, "{length} characters");
}

#[test]
fn the_shipped_policy_allows_what_is_sent_and_nothing_else() {
    let allowed: BTreeSet<String> =
        shipped().statement.iter().flat_map(|s| s.action.iter().map(str::to_owned).collect::<Vec<_>>()).collect();
    assert!(!allowed.iter().any(|action| action.contains('*')), "a wild action allows what nobody looked at");
    let sent = sent();
    assert!(sent.contains("ec2:CreateFleet"), "the sources are no longer understood");
    let missing: Vec<&String> = sent.difference(&allowed).collect();
    assert!(missing.is_empty(), "sent, but not allowed by manifests/iam/policy.json: {missing:?}");
    let unused: Vec<&String> =
        allowed.difference(&sent).filter(|action| !INDIRECT.iter().any(|(known, _)| known == action)).collect();
    assert!(unused.is_empty(), "allowed by manifests/iam/policy.json, but sent by nobody: {unused:?}");
}
