//! The node that a type becomes, by what NodePool, EC2NodeClass and DaemonSets say: the one answer of candidates, launch
//! template, join, limits and offline planner.

use muster_core::ec2::{CapacityType, Purpose};
use muster_core::model::pod::Shape;
use muster_core::offering::{self, InstanceTypeInfo, NewNode, NodeTemplate};
use muster_core::topology::beside_zone;

use crate::crd::{EC2NodeClass, NodePool};
use crate::{keys, node_class, pool};

/// Where and how a node is launched, as far as that is known yet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Place<'a> {
    /// Its zone; `None` as long as more than one is open.
    pub zone: Option<&'a str>,
    /// Its region, where its zone is open; `None`: that of its zone.
    pub region: Option<&'a str>,
    /// Its capacity type; `None` as long as more than one is open.
    pub capacity_type: Option<CapacityType>,
}

/// The node that a type of the pool becomes in a place: the one answer of the server and of the offline planner. A class
/// that is not known says nothing. `daemons` are the pods of the cluster's DaemonSets, one each.
///
/// Errors: as for [`pool::taints`].
pub fn of_pool(
    pool: &NodePool,
    class: Option<&EC2NodeClass>,
    info: &InstanceTypeInfo,
    place: Place<'_>,
    daemons: &[Shape],
) -> Result<NewNode, String> {
    let mut labels = pool::labels(pool);
    let mut label = |key: &str, value: &str| {
        labels.insert(key.into(), value.into());
    };
    for (key, value) in pool::facts(info) {
        label(key, &value);
    }
    if let Some(region) = place.region {
        label(keys::REGION, region);
    }
    if let Some(zone) = place.zone {
        label(keys::ZONE, zone);
        beside_zone(zone).for_each(|(key, value)| label(key, value));
    }
    if let Some(capacity_type) = place.capacity_type {
        label(keys::CAPACITY_TYPE, capacity_type.as_str());
    }
    let template = NodeTemplate { labels, taints: pool::taints(pool)? };
    let class = class.map(node_class::template).unwrap_or_default();
    Ok(offering::new_node(template, &class, info, Purpose::Gang, daemons))
}

/// A node of the type without what its pool says: what it counts for in limits, and the devices it is awaited with, are a
/// matter of class and type. A class that is not known says nothing.
#[must_use]
pub fn of_class(class: Option<&EC2NodeClass>, info: &InstanceTypeInfo) -> NewNode {
    let class = class.map(node_class::template).unwrap_or_default();
    offering::new_node(NodeTemplate::default(), &class, info, Purpose::Gang, &[])
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use muster_core::model::names::ResourceName;
    use muster_core::model::resources::CPU;
    use serde_json::{Value, json};

    use super::*;

    fn class(spec: &Value) -> EC2NodeClass {
        let mut whole = json!({
            "amiSelectorTerms": [{"alias": "al2023@latest"}],
            "subnetSelectorTerms": [{"id": "subnet-1"}],
            "securityGroupSelectorTerms": [{"id": "sg-1"}],
            "role": "nodes",
        });
        for (key, value) in spec.as_object().unwrap() {
            whole[key] = value.clone();
        }
        serde_json::from_value(json!({
            "apiVersion": "muster.dev/v1alpha1", "kind": "EC2NodeClass", "metadata": {"name": "c"}, "spec": whole,
        }))
        .unwrap()
    }

    fn info() -> InstanceTypeInfo {
        let card = |index, kinds: &[&str]| json!({"index": index, "kinds": kinds, "maxInterfaces": 2});
        serde_json::from_value(json!({
            "name": "x.large", "vcpu": 64, "memoryMib": 131_072, "efaMax": 1,
            "networkCards": [card(0, &["interface"]), card(1, &["interface", "efa", "efa-only"])],
            "ipv4PerInterface": 50, "supportsClusterGroup": true, "usageClasses": [], "architectures": ["x86_64"],
        }))
        .unwrap()
    }

    #[test]
    fn limits_count_what_the_hardware_has_and_not_what_a_kubelet_leaves() {
        let mut left = BTreeMap::from([("cpu".into(), 1_000_000), ("memory".into(), 1 << 40), ("nodes".into(), 10)]);
        let node = of_class(None, &info());
        assert!(node.node.allocatable.get(CPU) < 64_000);
        pool::take(&mut left, &node.capacity, 4);
        let left: Vec<(&str, i64)> =
            left.iter().map(|(name, left): (&ResourceName, &i64)| (name.as_str(), *left)).collect();
        assert_eq!(left, [("cpu", 1_000_000 - 4 * 64_000), ("memory", (1 << 40) - 4 * (128 << 30)), ("nodes", 6)]);
    }

    #[test]
    fn a_node_is_awaited_with_the_devices_that_its_launch_template_gives_it() {
        let devices = |spec: &Value| {
            let devices = of_class(Some(&class(spec)), &info()).devices();
            devices.into_iter().map(|(name, amount)| (name.to_string(), amount)).collect::<Vec<_>>()
        };
        let efa = vec![("vpc.amazonaws.com/efa".to_owned(), 1)];
        assert_eq!(devices(&json!({})), efa);
        assert_eq!(devices(&json!({"efa": "Never"})), []);
        let interface =
            |card: u32, kind: &str| json!({"networkCardIndex": card, "deviceIndex": 0, "interfaceType": kind});
        let explicit = |cards: &[Value]| json!({"networkInterfaces": cards});
        assert_eq!(devices(&explicit(&[interface(0, "interface")])), []);
        assert_eq!(devices(&explicit(&[interface(0, "interface"), interface(1, "efa-only")])), efa);
    }
}
