//! The cluster and the configuration of Muster in it.

use jiff::SignedDuration;

use super::account::{none, ready};
use super::facts::{Cluster, Facts};
use super::{Check, Finding};
use crate::skew::{Skew, skew};

/// AWS refuses a signature that is older or newer than this.
const REFUSED: SignedDuration = SignedDuration::from_mins(5);
/// The header that tells the time counts whole seconds, and the answer took its time.
const NOTICED: SignedDuration = SignedDuration::from_secs(30);
/// Labels of a node's place in the network, from the cloud controller.
const LAYER: &str = "topology.k8s.aws/network-node-layer-";
const ZONE: &str = "topology.kubernetes.io/zone";

/// What `muster serve` would refuse to launch with.
pub(super) fn configuration(facts: &Facts, checks: &mut Vec<Finding>) {
    const CHECK: Check = Check::Configuration;
    let configuration = &facts.configuration;
    if configuration.disabled {
        checks.push(Finding::skipped(CHECK, "ec2.disabled", "nothing is ever provisioned"));
        return;
    }
    let before = checks.len();
    if configuration.region.is_none() {
        checks.push(Finding::fail(
            CHECK,
            "ec2.region",
            "there is no Region: nothing is provisioned",
            "set ec2.region of the configuration, or AWS_REGION",
        ));
    }
    for wrong in &configuration.wrong_access {
        let (key, what) = wrong.split_once(": ").unwrap_or(("cluster", wrong));
        checks.push(Finding::fail(CHECK, key, what, format!("set {key} of the configuration")));
    }
    if !configuration.ceiling {
        checks.push(Finding::fail(
            CHECK,
            "provisioner.maxUsdPerHour",
            "is not set, and nothing is provisioned without it",
            "set provisioner.maxUsdPerHour of the configuration: dollars per hour, or unlimited",
        ));
    }
    if configuration.dry_run {
        checks.push(Finding::warn(
            CHECK,
            "provisioner.dryRun",
            "is set: nothing is launched",
            "take provisioner.dryRun out of the configuration",
        ));
    }
    if checks.len() == before {
        let region = configuration.region.as_deref().unwrap_or_default();
        checks.push(Finding::ok(CHECK, "", format!("nodes are launched in {region}, and can reach the cluster")));
    }
}

/// Clock, versions, permissions and kinds.
pub(super) fn around(cluster: &Cluster, checks: &mut Vec<Finding>) {
    checks.push(clock(cluster.ahead));
    versions(cluster, checks);
    checks.extend(match &cluster.missing {
        None => None,
        Some(Err(why)) => Some(Finding::warn(Check::Rbac, "", format!("not known: {why}"), "run muster doctor again")),
        Some(Ok(missing)) if missing.is_empty() => Some(Finding::ok(Check::Rbac, "", "everything needed is granted")),
        Some(Ok(missing)) => Some(Finding::fail(
            Check::Rbac,
            "",
            format!("these permissions are missing: {}", missing.join(", ")),
            "kubectl apply -f manifests/rbac.yaml, and ask as its ServiceAccount: kubectl -n muster-system exec \
             deploy/muster -c muster -- muster doctor --config /etc/muster/muster.yaml",
        )),
    });
    let absent: Vec<&str> =
        cluster.kinds.iter().filter(|(_, served)| !**served).map(|(name, _)| name.as_str()).collect();
    const MEND: &str = "kubectl apply --server-side -f manifests/crds, or install or upgrade the chart muster-crd";
    checks.push(match (absent.as_slice(), &cluster.unknown) {
        ([], None) => Finding::ok(Check::Kinds, "", format!("{} kinds of muster.dev are served", cluster.kinds.len())),
        ([], Some(Ok(unknown))) if unknown.is_empty() => Finding::ok(
            Check::Kinds,
            "",
            format!("{} kinds of muster.dev are served, with every field", cluster.kinds.len()),
        ),
        ([], Some(Ok(unknown))) => Finding::fail(
            Check::Kinds,
            "",
            format!("the definitions are older than this Muster and drop {}: nothing is launched", unknown.join(", ")),
            MEND,
        ),
        ([], Some(Err(why))) => Finding::warn(
            Check::Kinds,
            "",
            format!("what their definitions know is not known: {why}"),
            "run muster doctor again",
        ),
        (absent, _) => Finding::fail(Check::Kinds, "", format!("not served: {}", absent.join(", ")), MEND),
    });
}

fn clock(ahead: Option<SignedDuration>) -> Finding {
    const MEND: &str = "set this machine's clock: systemctl restart chronyd";
    let Some(ahead) = ahead else {
        return Finding::skipped(Check::Clock, "", "the API server does not tell the time");
    };
    let by = ahead.abs();
    let differs = || {
        let side = if ahead.is_negative() { "ahead of" } else { "behind" };
        format!("this machine is {} s {side} the API server", by.as_secs())
    };
    if by >= REFUSED {
        Finding::fail(Check::Clock, "", format!("{}: AWS refuses its requests", differs()), MEND)
    } else if by >= NOTICED {
        Finding::warn(Check::Clock, "", differs(), MEND)
    } else {
        Finding::ok(Check::Clock, "", "agrees with the API server's")
    }
}

fn versions(cluster: &Cluster, checks: &mut Vec<Finding>) {
    const CHECK: Check = Check::Versions;
    let Some(api_server) = cluster.api_server else {
        checks.push(Finding::skipped(CHECK, "", "the API server's version is not understood"));
        return;
    };
    if cluster.schedulers.is_empty() {
        checks.push(Finding::warn(
            CHECK,
            "",
            format!("the API server is {api_server}, and no kube-scheduler runs beside Muster"),
            "kubectl apply -k manifests, or add Muster's extender to your kube-scheduler: muster check-config",
        ));
    }
    for scheduler in &cluster.schedulers {
        let Some(scheduler) = *scheduler else {
            checks.push(Finding::skipped(CHECK, "kube-scheduler", "its image names no version"));
            continue;
        };
        let pair = format!("kube-scheduler {scheduler}, API server {api_server}");
        let mend = format!(
            "name the component kubernetes/{api_server} in manifests/kustomization.yaml, or set \
             kubernetes.minor=\"{api_server}\" of the chart"
        );
        checks.push(match skew(scheduler, api_server) {
            Skew::Supported => Finding::ok(CHECK, "kube-scheduler", pair),
            Skew::Newer => Finding::fail(
                CHECK,
                "kube-scheduler",
                format!("{pair}: it is newer, which Kubernetes does not support"),
                mend,
            ),
            Skew::TooOld => Finding::warn(
                CHECK,
                "kube-scheduler",
                format!("{pair}: it is too old, which Kubernetes does not support"),
                mend,
            ),
        });
    }
}

/// NodePools and what they can launch.
pub(super) fn pools(facts: &Facts, checks: &mut Vec<Finding>) {
    if facts.pools.is_empty() {
        checks.push(none(Check::NodePool, "NodePool"));
    }
    for pool in &facts.pools {
        let name = &pool.name;
        checks.push(ready(Check::NodePool, "NodePool", name, &pool.ready));
        if !facts.classes.iter().any(|class| class.name == pool.class) {
            checks.push(Finding::fail(
                Check::NodePool,
                name,
                format!("there is no EC2NodeClass {}", pool.class),
                format!("kubectl edit nodepool {name}: spec.template.spec.nodeClassRef"),
            ));
            continue;
        }
        let (Some(types), Some(offered)) = (&pool.types, &pool.offered) else { continue };
        let mend = format!("kubectl edit nodepool {name}: widen spec.template.spec.requirements");
        checks.push(match (types.is_empty(), offered.is_empty()) {
            (true, _) => Finding::fail(
                Check::InstanceTypes,
                name,
                "no instance type of this Region meets its requirements",
                mend,
            ),
            (false, true) => Finding::fail(
                Check::InstanceTypes,
                name,
                format!("{} is offered in no zone with a subnet of its EC2NodeClass", few(types)),
                format!("{mend}, or choose a subnet in another zone"),
            ),
            (false, false) => Finding::ok(Check::InstanceTypes, name, format!("{} can be launched", few(offered))),
        });
    }
}

fn few(names: &[String]) -> String {
    match names {
        [one] => one.clone(),
        [one, rest @ ..] => format!("{one} and {} others", rest.len()),
        [] => String::new(),
    }
}

/// Whether the cloud controller places the nodes of ours in the network.
pub(super) fn labels(cluster: &Cluster, checks: &mut Vec<Finding>) {
    const CHECK: Check = Check::TopologyLabels;
    let nodes = match &cluster.nodes {
        None => return,
        Some(Err(why)) => {
            return checks.push(Finding::warn(CHECK, "", format!("nodes cannot be listed: {why}"), "run it again"));
        }
        Some(Ok(nodes)) => nodes,
    };
    let has = |node: &super::facts::Node, start: &str| node.labels.keys().any(|key| key.starts_with(start));
    if let Some(node) = nodes.iter().find(|node| !has(node, ZONE)) {
        return checks.push(Finding::fail(
            CHECK,
            &node.name,
            format!("has no label {ZONE}: no cloud controller has looked at it"),
            "kubectl -n kube-system get pods: a self-managed cluster needs the AWS cloud controller manager",
        ));
    }
    let ours: Vec<_> = nodes.iter().filter(|node| node.ours).collect();
    checks.push(match ours.iter().find(|node| !has(node, LAYER)) {
        _ if ours.is_empty() => Finding::skipped(CHECK, "", "there is no node of a NodePool yet"),
        None => Finding::ok(CHECK, "", format!("{} nodes know their place in the network", ours.len())),
        Some(node) => Finding::warn(
            CHECK,
            &node.name,
            format!("has no label {LAYER}*: gangs on it are placed by zone alone"),
            "allow ec2:DescribeInstanceTopology to the cluster's role; types without a reported topology have none",
        ),
    });
}
