//! What a NodePool allows, read from the object: types, capacity types, taints, limits, policies. The provisioner and the
//! offline planner read a pool through here, so that they cannot disagree.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use muster_core::ec2::{CapacityType, Efa};
use muster_core::model::names::ResourceName;
use muster_core::model::node::{Taint, TaintEffect};
use muster_core::model::resources::{CPU, Resources};
use muster_core::model::units::Quantity;
use muster_core::offering::{GroupPolicy, InstanceTypeInfo, NODES, micro_dollars, unknown_limit};

use crate::crd::{
    CapacityTypeName, EC2NodeClass, EfaPolicy, NodePool, NodeRequirement, NodeRequirementOperator, PlacementGroupPolicy,
};
use crate::keys;

/// The architecture a pool means that names none: a training image rarely exists for two.
const DEFAULT_ARCH: &str = "amd64";

/// What a type is, in the vocabulary of requirements and labels.
#[must_use]
pub fn facts(info: &InstanceTypeInfo) -> Vec<(&'static str, String)> {
    let (family, size) = info.name.split_once('.').unwrap_or((&info.name, ""));
    let arm = info.architectures.first().is_some_and(|architecture| architecture == "arm64");
    let mut facts = vec![
        (keys::INSTANCE_TYPE, info.name.clone()),
        (keys::INSTANCE_FAMILY, family.to_owned()),
        (keys::INSTANCE_SIZE, size.to_owned()),
        (keys::ARCH, if arm { "arm64" } else { DEFAULT_ARCH }.to_owned()),
        (keys::OS, "linux".to_owned()),
    ];
    if let Some(gpu) = info.gpus.first() {
        let count = info.gpus.iter().fold(0_u32, |sum, gpu| sum.saturating_add(gpu.count));
        facts.push((keys::INSTANCE_GPU_NAME, label_value(&gpu.name)));
        facts.push((keys::INSTANCE_GPU_COUNT, count.to_string()));
    }
    facts
}

/// A name of EC2's as a label value, `RTX PRO Server 6000` as `rtx-pro-server-6000`: a kubelet that is given a label with
/// blanks does not start.
fn label_value(name: &str) -> String {
    let legal = |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '.' | '_');
    let words = name.split(|letter| !legal(letter)).filter(|word| !word.is_empty());
    words.collect::<Vec<_>>().join("-").to_lowercase()
}

/// Whether a type meets the pool's requirements; zone and capacity type are chosen later.
#[must_use]
pub fn allows_type(pool: &NodePool, info: &InstanceTypeInfo) -> bool {
    let facts: BTreeMap<&str, String> = facts(info).into_iter().collect();
    let chosen_later = [keys::ZONE, keys::CAPACITY_TYPE, keys::ZONE_ID];
    let value = |key: &str| facts.get(key).map(String::as_str);
    let requirements = &pool.spec.template.spec.requirements;
    let arch = of_key(pool, keys::ARCH).next().is_some() || value(keys::ARCH) == Some(DEFAULT_ARCH);
    arch && requirements
        .iter()
        .filter(|requirement| !chosen_later.contains(&requirement.key.as_str()))
        .all(|requirement| allows(requirement, value(&requirement.key)))
}

/// Whether the pool's requirements allow a zone.
#[must_use]
pub fn allows_zone(pool: &NodePool, zone: &str) -> bool {
    of_key(pool, keys::ZONE).all(|requirement| allows(requirement, Some(zone)))
}

/// Capacity types in the order gangs try them. Silent = reserved and on-demand: spot must be named, since one interruption
/// evicts a gang.
#[must_use]
pub fn capacity_types(pool: &NodePool) -> Vec<CapacityType> {
    let named = of_key(pool, keys::CAPACITY_TYPE).next().is_some();
    let mut order: Vec<CapacityType> =
        pool.spec.placement.capacity_type_order.iter().map(|name| capacity_type(*name)).collect();
    order.extend([CapacityType::Reserved, CapacityType::OnDemand, CapacityType::Spot]);
    let mut seen = BTreeSet::new();
    order
        .into_iter()
        .filter(|capacity_type| seen.insert(*capacity_type))
        .filter(|capacity_type| {
            if named {
                of_key(pool, keys::CAPACITY_TYPE).all(|requirement| allows(requirement, Some(capacity_type.as_str())))
            } else {
                *capacity_type != CapacityType::Spot
            }
        })
        .collect()
}

fn capacity_type(name: CapacityTypeName) -> CapacityType {
    match name {
        CapacityTypeName::Reserved => CapacityType::Reserved,
        CapacityTypeName::OnDemand => CapacityType::OnDemand,
        CapacityTypeName::Spot => CapacityType::Spot,
    }
}

/// The pool's requirements on one key.
pub fn of_key<'a>(pool: &'a NodePool, key: &'a str) -> impl Iterator<Item = &'a NodeRequirement> {
    pool.spec.template.spec.requirements.iter().filter(move |requirement| requirement.key == key)
}

/// Whether a requirement allows a value. Unknown keys have no value.
#[must_use]
pub fn allows(requirement: &NodeRequirement, value: Option<&str>) -> bool {
    let among = value.is_some_and(|value| requirement.values.iter().any(|allowed| allowed == value));
    let compare = |holds: fn(i64, i64) -> bool| {
        let (Some(value), Some(bound)) = (value, requirement.values.first()) else { return false };
        matches!((value.parse(), bound.parse()), (Ok(value), Ok(bound)) if holds(value, bound))
    };
    match requirement.operator {
        NodeRequirementOperator::In => among,
        NodeRequirementOperator::NotIn => !among,
        NodeRequirementOperator::Exists => value.is_some(),
        NodeRequirementOperator::DoesNotExist => value.is_none(),
        NodeRequirementOperator::Gt => compare(|value, bound| value > bound),
        NodeRequirementOperator::Lt => compare(|value, bound| value < bound),
        NodeRequirementOperator::Gte => compare(|value, bound| value >= bound),
        NodeRequirementOperator::Lte => compare(|value, bound| value <= bound),
    }
}

/// The pool's permanent taints.
///
/// Errors: field, key and effect of the first that is none, with the remedy.
pub fn taints(pool: &NodePool) -> Result<Vec<Taint>, String> {
    let read = |taint: &k8s_openapi::api::core::v1::Taint| {
        let effect = match taint.effect.as_str() {
            "NoSchedule" => TaintEffect::NoSchedule,
            "PreferNoSchedule" => TaintEffect::PreferNoSchedule,
            "NoExecute" => TaintEffect::NoExecute,
            other => {
                return Err(format!(
                    "spec.template.spec.taints: {}: effect \"{other}\" is not NoSchedule, PreferNoSchedule or NoExecute",
                    taint.key
                ));
            }
        };
        let value = taint.value.as_deref().unwrap_or_default();
        Ok(Taint { key: taint.key.as_str().into(), value: value.into(), effect })
    };
    pool.spec.template.spec.taints.iter().map(read).collect()
}

/// Labels that a node registers with, of those it will have: those of kubelet and cloud controller come by themselves.
#[must_use]
pub fn registered(labels: &BTreeMap<Arc<str>, Arc<str>>) -> BTreeMap<Arc<str>, Arc<str>> {
    let by_others = [keys::INSTANCE_TYPE, keys::ARCH, keys::OS, keys::ZONE];
    let own = labels.iter().filter(|(key, _)| !by_others.contains(&&***key));
    own.map(|(key, value)| (Arc::clone(key), Arc::clone(value))).collect()
}

/// Labels of the pool's template and its name: what every node of the pool carries, whatever its type.
pub(crate) fn labels(pool: &NodePool) -> BTreeMap<Arc<str>, Arc<str>> {
    let name = pool.metadata.name.as_deref().unwrap_or_default();
    let of_template = pool.spec.template.metadata.labels.iter();
    let mut labels: BTreeMap<Arc<str>, Arc<str>> =
        of_template.map(|(key, value)| (key.as_str().into(), value.as_str().into())).collect();
    labels.insert(keys::NODEPOOL.into(), name.into());
    labels
}

/// The pool's limits, in the units of [`Resources`]; `nodes` counts nodes.
///
/// Errors: field and value of the first that is no quantity.
pub fn limits(pool: &NodePool) -> Result<BTreeMap<ResourceName, i64>, String> {
    let read = |(name, limit): (&String, &crate::crd::IntOrQuantity)| {
        let amount: Quantity =
            limit.0.parse().map_err(|_| format!("spec.limits.{name}: \"{}\" is not a quantity", limit.0))?;
        let amount = if name == CPU { amount.milli_ceil() } else { amount.unit_ceil() };
        Ok((ResourceName::from(name.as_str()), amount))
    };
    pool.spec.limits.iter().map(read).collect()
}

/// The pool's ceiling on dollars per hour, in micro-dollars; `None` if it has none.
///
/// Errors: field and value, if it is no amount.
pub fn max_usd_per_hour(pool: &NodePool) -> Result<Option<u64>, String> {
    let Some(text) = pool.spec.max_usd_per_hour.as_ref().map(|amount| amount.0.as_str()) else { return Ok(None) };
    let amount = micro_dollars(text);
    amount
        .map(Some)
        .ok_or_else(|| format!("spec.maxUsdPerHour: \"{text}\" is not an amount of dollars such as \"440.32\""))
}

/// Micro-dollars that nodes which are tried alone may cost together.
///
/// Errors: the field, for a person.
pub fn max_probe_usd(pool: &NodePool) -> Result<u64, String> {
    let text = pool.spec.join.max_probe_usd.0.as_str();
    micro_dollars(text)
        .ok_or_else(|| format!("spec.join.maxProbeUsd: \"{text}\" is not an amount of dollars such as \"250\""))
}

/// Why a limit of the pool limits nothing, if one does; `types` are those that its requirements allow.
#[must_use]
pub fn unknown_limit_of<'a>(pool: &NodePool, types: impl Iterator<Item = &'a InstanceTypeInfo>) -> Option<String> {
    let limits = pool.spec.limits.iter().map(|(key, value)| (key.clone(), value.0.clone())).collect();
    unknown_limit(&limits, types).map(|unknown| unknown.to_string())
}

/// Takes `count` nodes of `capacity` each off what is left of the limits.
pub fn take(left: &mut BTreeMap<ResourceName, i64>, capacity: &Resources, count: u32) {
    for (resource, left) in left {
        let each = if resource.as_str() == NODES { 1 } else { capacity.get(resource.as_str()) };
        *left = left.saturating_sub(each.saturating_mul(i64::from(count)));
    }
}

/// The pool's group policy.
#[must_use]
pub fn group_policy(pool: &NodePool) -> GroupPolicy {
    match pool.spec.placement.placement_group {
        PlacementGroupPolicy::Required => GroupPolicy::Required,
        PlacementGroupPolicy::Preferred => GroupPolicy::Preferred,
        PlacementGroupPolicy::None => GroupPolicy::None,
    }
}

/// The class's EFA policy.
#[must_use]
pub fn efa(class: &EC2NodeClass) -> Efa {
    match class.spec.efa {
        EfaPolicy::Auto => Efa::Auto,
        EfaPolicy::Always => Efa::Always,
        EfaPolicy::Never => Efa::Never,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requirements_compare_integers_and_treat_an_unknown_key_as_absent() {
        let requirement = |operator, values: &[&str]| NodeRequirement {
            key: "k".to_owned(),
            operator,
            values: values.iter().map(|value| (*value).to_owned()).collect(),
        };
        assert!(allows(&requirement(NodeRequirementOperator::Gt, &["4"]), Some("8")));
        assert!(!allows(&requirement(NodeRequirementOperator::Gt, &["8"]), Some("8")));
        assert!(allows(&requirement(NodeRequirementOperator::Gte, &["8"]), Some("8")));
        assert!(!allows(&requirement(NodeRequirementOperator::Gt, &["4"]), None));
        assert!(allows(&requirement(NodeRequirementOperator::NotIn, &["a"]), None));
    }

    fn pool(requirements: &[(&str, &str)]) -> NodePool {
        let requirements: Vec<_> = requirements
            .iter()
            .map(|(key, value)| serde_json::json!({"key": key, "operator": "In", "values": [value]}))
            .collect();
        serde_json::from_value(serde_json::json!({
            "apiVersion": "muster.dev/v1alpha1", "kind": "NodePool", "metadata": {"name": "p"},
            "spec": {"template": {"spec": {
                "nodeClassRef": {"group": "muster.dev", "kind": "EC2NodeClass", "name": "c"},
                "requirements": requirements,
            }}},
        }))
        .unwrap()
    }

    fn info(architecture: &str) -> InstanceTypeInfo {
        serde_json::from_value(serde_json::json!({
            "name": "g5g.metal", "vcpu": 64, "memoryMib": 131_072, "gpus": [], "neuronDevices": 0, "efaMax": 0,
            "networkCards": [], "ipv4PerInterface": 50, "supportsClusterGroup": true, "usageClasses": [],
            "architectures": [architecture],
        }))
        .unwrap()
    }

    #[test]
    fn names_of_gpus_are_legal_label_values() {
        for (name, value) in [("H100", "h100"), ("RTX PRO Server 6000", "rtx-pro-server-6000"), ("a/(b) c", "a-b-c")] {
            let gpu = muster_core::offering::Gpu {
                name: name.to_owned(),
                manufacturer: "NVIDIA".to_owned(),
                count: 8,
                memory_mib: 1,
            };
            let info = InstanceTypeInfo { gpus: vec![gpu], ..info("x86_64") };
            let facts: BTreeMap<&str, String> = facts(&info).into_iter().collect();
            assert_eq!(facts[keys::INSTANCE_GPU_NAME], value);
            assert!(allows_type(&pool(&[(keys::INSTANCE_GPU_NAME, value)]), &info));
        }
    }

    #[test]
    fn a_pool_that_names_no_architecture_means_amd64() {
        assert!(allows_type(&pool(&[]), &info("x86_64")));
        assert!(!allows_type(&pool(&[]), &info("arm64")));
        assert!(allows_type(&pool(&[(keys::ARCH, "arm64")]), &info("arm64")));
        assert!(!allows_type(&pool(&[(keys::ARCH, "arm64")]), &info("x86_64")));
    }

    #[test]
    fn the_order_of_capacity_types_is_the_pools_and_never_adds_one() {
        let mut all = pool(&[]);
        all.spec.template.spec.requirements = vec![NodeRequirement {
            key: keys::CAPACITY_TYPE.to_owned(),
            operator: NodeRequirementOperator::Exists,
            values: Vec::new(),
        }];
        assert_eq!(capacity_types(&all), [CapacityType::Reserved, CapacityType::OnDemand, CapacityType::Spot]);
        all.spec.placement.capacity_type_order = vec![CapacityTypeName::Spot, CapacityTypeName::Spot];
        assert_eq!(capacity_types(&all), [CapacityType::Spot, CapacityType::Reserved, CapacityType::OnDemand]);
        let mut silent = pool(&[]);
        silent.spec.placement.capacity_type_order = vec![CapacityTypeName::Spot, CapacityTypeName::OnDemand];
        assert_eq!(capacity_types(&silent), [CapacityType::OnDemand, CapacityType::Reserved]);
    }

    #[test]
    fn spot_must_be_named() {
        assert_eq!(capacity_types(&pool(&[])), [CapacityType::Reserved, CapacityType::OnDemand]);
        assert_eq!(capacity_types(&pool(&[(keys::CAPACITY_TYPE, "spot")])), [CapacityType::Spot]);
    }
}
