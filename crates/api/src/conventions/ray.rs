//! KubeRay: head and worker groups of a RayCluster that asks for gang scheduling. Clusters are elastic, so one that does
//! not ask is none.

use serde_json::Value;

use super::chain::Chain;
use super::claim::{self, Claim, Declared};
use super::objects::{Kind, number};
use crate::keys;

/// The name KubeRay gives the group of the head.
const HEAD: &str = "headgroup";

/// What a RayCluster says of its pods, and whether it asks to be a gang.
pub(super) fn claim(chain: &Chain<'_>) -> Option<(Claim, bool)> {
    let cluster = chain.owner(Kind::RayCluster)?;
    let asks = cluster.label(keys::RAY_GANG).is_some_and(|value| value != "false");
    let mut roles = vec![Declared::new("head", 1, cluster.spec.pointer("/headGroupSpec/template"))];
    let groups = cluster.spec.pointer("/workerGroupSpecs").and_then(Value::as_array);
    let own = chain.label(keys::RAY_GROUP).unwrap_or_default();
    let mut rank = None;
    for group in groups.into_iter().flatten() {
        let name = group.get("groupName").and_then(Value::as_str).unwrap_or_default();
        let hosts = number(group, "/numOfHosts").unwrap_or(1).max(1);
        let count = ray_replicas(group).saturating_mul(hosts);
        if count == 0 {
            continue;
        }
        roles.push(Declared::new(name, count, group.get("template")));
        if name == own {
            let host = chain.label(keys::RAY_HOST_INDEX);
            rank = chain.label(keys::RAY_REPLICA_INDEX).map(|replica| claim::nested(replica, hosts, host));
        }
    }
    let head = chain.label(keys::RAY_NODE_TYPE) == Some("head") || own == HEAD;
    let claim = Claim {
        identity: cluster.name().to_owned(),
        anchor: Some(cluster.owner()),
        size: Some(claim::total(&roles)),
        role: if head { "head".to_owned() } else { own.to_owned() },
        rank,
        roles,
        ..Claim::default()
    };
    Some((claim, asks))
}

/// How many replicas KubeRay makes of a worker group: none while it is suspended, else as many as are asked for within the bounds.
///
/// Source: `GetWorkerGroupDesiredReplicas` of KubeRay 1.6, and the defaults of the RayCluster definition.
#[must_use]
pub fn ray_replicas(group: &Value) -> u32 {
    if group.pointer("/suspend").and_then(Value::as_bool) == Some(true) {
        return 0;
    }
    let least = number(group, "/minReplicas").unwrap_or(0);
    let most = number(group, "/maxReplicas").unwrap_or(u32::MAX);
    let wanted = number(group, "/replicas").unwrap_or(0);
    if wanted < least { least } else { wanted.min(most) }
}
