//! Judgements that no simulated account can show, and the forms of the report.

use jiff::SignedDuration;

use super::*;
use crate::ec2::{CallError, ErrorClass, classify};
use crate::skew::Minor;

fn refused(code: &str, message: &str) -> CallError {
    CallError {
        operation: "DescribeInstanceTypes".to_owned(),
        kind: classify(Some(code), Some(403)),
        code: Some(code.to_owned()),
        message: message.to_owned(),
        http_status: Some(403),
        request_id: None,
    }
}

fn around(cluster: Cluster) -> Report {
    judge(&Facts { cluster, ..Facts::default() })
}

#[track_caller]
fn of(report: &Report, check: Check) -> &Finding {
    report.checks.iter().find(|finding| finding.check == check).unwrap()
}

fn account(first: Result<(), CallError>) -> Facts {
    Facts {
        account: Some(Account {
            first,
            actions: Vec::new(),
            queue: None,
            cluster: None,
            quotas: std::collections::BTreeMap::new(),
            entries: Vec::new(),
        }),
        ..Facts::default()
    }
}

#[test]
fn a_clock_is_tolerated_for_half_a_minute_and_refused_after_five() {
    for (seconds, expected) in
        [(0, Outcome::Ok), (-29, Outcome::Ok), (30, Outcome::Warn), (-299, Outcome::Warn), (300, Outcome::Fail)]
    {
        let report = around(Cluster { ahead: Some(SignedDuration::from_secs(seconds)), ..Cluster::default() });
        assert_eq!(of(&report, Check::Clock).result, expected, "{seconds}");
    }
    let report = around(Cluster { ahead: Some(SignedDuration::from_secs(400)), ..Cluster::default() });
    assert!(of(&report, Check::Clock).message.starts_with("this machine is 400 s behind"), "{report}");
}

#[test]
fn a_scheduler_that_is_newer_fails_and_one_that_is_too_old_warns() {
    for (scheduler, expected) in [("1.38", Outcome::Fail), ("1.36", Outcome::Ok), ("1.34", Outcome::Warn)] {
        let report = around(Cluster {
            api_server: Minor::parse("1.37"),
            schedulers: vec![Minor::parse(scheduler)],
            ..Cluster::default()
        });
        assert_eq!(of(&report, Check::Versions).result, expected, "{scheduler}");
    }
}

#[test]
fn who_is_not_known_differs_from_who_may_not_and_from_nobody_there() {
    let silent = CallError { kind: ErrorClass::Unknown, code: None, ..refused("x", "cannot reach") };
    let without = CallError { kind: ErrorClass::NotSent, code: None, ..refused("x", "no providers in chain") };
    for (error, says) in [
        (refused("AuthFailure", "no"), "AWS refuses who asks"),
        (refused("ExpiredToken", "old"), "AWS refuses who asks"),
        (refused("RequestExpired", "late"), "AWS refuses the time"),
        (silent, "AWS does not answer"),
        (without, "no AWS credentials found"),
    ] {
        let report = judge(&account(Err(error)));
        let found = of(&report, Check::Credentials);
        assert!(found.result == Outcome::Fail && found.message.starts_with(says), "{found:?}");
        assert!(found.mend.is_some());
        assert_eq!(of(&report, Check::Permissions).result, Outcome::Skipped);
    }
    let report = judge(&account(Err(refused("UnauthorizedOperation", "no"))));
    assert_eq!(of(&report, Check::Credentials).result, Outcome::Ok, "who may not is known");
}

#[test]
fn a_daemon_set_is_known_by_its_image_wherever_that_is_mirrored() {
    for (name, image, expected) in [
        ("nvdp-nvidia-device-plugin", "nvcr.io/nvidia/k8s-device-plugin:v0.18.0", Some(Role::Nvidia)),
        ("x", "registry.local/mirror/nvidia/k8s-device-plugin@sha256:00", Some(Role::Nvidia)),
        ("aws-efa-k8s-device-plugin", "mirror/aws-efa-k8s-device-plugin:v0.5", Some(Role::Efa)),
        ("neuron-device-plugin", "public.ecr.aws/neuron/neuron-device-plugin:2", Some(Role::Neuron)),
        ("aws-node", "x/amazon-k8s-cni:v1.20", Some(Role::Network)),
        ("cilium", "quay.io/cilium/cilium:v1.18", Some(Role::Network)),
        ("cilium-envoy", "quay.io/cilium/cilium-envoy:v1", None),
        ("kube-proxy", "x/eks/kube-proxy:v1.35", Some(Role::KubeProxy)),
        ("node-exporter", "prom/node-exporter:v1", None),
    ] {
        assert_eq!(role(name, &[image]), expected, "{name} {image}");
    }
}

#[test]
fn the_table_names_result_and_mend_and_json_has_a_stable_shape() {
    let report = Report {
        checks: vec![
            Finding::ok(Check::Clock, "", "fine"),
            Finding::fail(Check::Subnets, "gpu", "none", "kubectl edit ec2nodeclass gpu"),
        ],
    };
    let lines: Vec<String> = report.to_string().lines().map(str::to_owned).collect();
    assert_eq!(lines[0], "CHECK    SUBJECT  RESULT   MESSAGE");
    assert_eq!(lines[1], "clock             ok       fine");
    assert_eq!(lines[2], "subnets  gpu      fail     none");
    assert_eq!(lines[3], "                           fix: kubectl edit ec2nodeclass gpu");
    assert_eq!(lines[4], "1 ok, 0 warn, 1 fail, 0 skipped");
    assert_eq!(
        serde_json::to_value(&report).unwrap(),
        serde_json::json!({"checks": [
            {"check": "clock", "result": "ok", "message": "fine"},
            {"check": "subnets", "subject": "gpu", "result": "fail", "message": "none",
             "mend": "kubectl edit ec2nodeclass gpu"},
        ]})
    );
    assert!(report.failed());
}

#[test]
fn in_an_ipv6_cluster_subnets_without_an_ipv6_cidr_are_named() {
    use crate::ec2::{ClusterAccess, EksCluster, Family, Subnet};
    let judged = |services: &str, with: &[bool]| {
        let subnet = |(number, ipv6): (usize, &bool)| Subnet {
            id: format!("subnet-{number}"),
            zone: "us-east-1a".to_owned(),
            zone_id: "use1-az1".to_owned(),
            free_addresses: 4_000,
            vpc_id: "vpc-1".to_owned(),
            ipv6: *ipv6,
            tags: Default::default(),
        };
        let class = Class {
            name: "gpu".to_owned(),
            ready: Ready::Yes,
            family: Family::Al2023,
            profile: None,
            efa: false,
            subnets: Some(Ok(with.iter().enumerate().map(subnet).collect())),
            groups: None,
            images: None,
            launch: None,
        };
        let access = ClusterAccess {
            name: "prod".to_owned(),
            endpoint: "https://example.com".to_owned(),
            certificate_authority: "Y2E=".to_owned(),
            service_cidr: services.to_owned(),
        };
        let cluster = EksCluster { access, arn: String::new(), vpc: Some("vpc-1".to_owned()), authentication: None };
        let mut facts = account(Ok(()));
        facts.account = facts.account.map(|account| Account { cluster: Some(Ok(cluster)), ..account });
        let report = judge(&Facts { classes: vec![class], ..facts });
        of(&report, Check::Subnets).clone()
    };
    let v6 = "fd12:3456::/108";
    assert_eq!(judged("10.100.0.0/16", &[false]).result, Outcome::Ok);
    assert_eq!(judged(v6, &[true, true]).result, Outcome::Ok);
    let one = judged(v6, &[true, false]);
    assert_eq!(
        (one.result, one.message.as_str()),
        (Outcome::Warn, "the cluster is IPv6, and there is no IPv6 CIDR in subnet-1 in us-east-1a",)
    );
    assert!(one.mend.unwrap().contains("associate-subnet-cidr-block --subnet-id subnet-1 "));
    assert_eq!(judged(v6, &[false, false]).result, Outcome::Fail);
}
