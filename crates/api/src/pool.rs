//! What a NodePool allows, read from the object: types, capacity types, taints, limits, policies. The provisioner and the
//! offline planner read a pool through here, so that they cannot disagree.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::SignedDuration;
use muster_core::ec2::{CapacityType, Efa};
use muster_core::model::money::dollars;
use muster_core::model::names::ResourceName;
use muster_core::model::node::{Taint, TaintEffect};
use muster_core::model::resources::{CPU, EPHEMERAL_STORAGE, MEMORY, Resources};
use muster_core::model::units::Quantity;
use muster_core::offering::{
    Ceiling, GroupPolicy, InstanceTypeInfo, NODES, Requirements, Values, micro_dollars, unknown_limit,
};
use muster_core::topology::region_of;

use crate::crd::{
    CapacityTypeName, ConsolidationPolicy, EC2NodeClass, EfaPolicy, NodePool, NodeRequirement, NodeRequirementOperator,
    PlacementGroupPolicy,
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
    let (category, rest) = family.split_at(family.find(|c: char| c.is_ascii_digit()).unwrap_or(family.len()));
    let generation: String = rest.chars().take_while(char::is_ascii_digit).collect();
    if !generation.is_empty() {
        let traits = rest.get(generation.len()..).unwrap_or_default();
        let maker = match (arm, traits.split('-').next().unwrap_or_default()) {
            (true, _) => "aws",
            (false, letters) if letters.contains('a') => "amd",
            (false, _) => "intel",
        };
        facts.push((keys::INSTANCE_CATEGORY, category.to_owned()));
        facts.push((keys::INSTANCE_GENERATION, generation));
        facts.push((keys::INSTANCE_CPU_MANUFACTURER, maker.to_owned()));
    }
    facts.push((keys::INSTANCE_CPU, info.vcpu.to_string()));
    facts.push((keys::INSTANCE_MEMORY, info.memory_mib.to_string()));
    if info.neuron_devices > 0 {
        let name = if family.starts_with("inf") { "inferentia" } else { "trainium" };
        facts.push((keys::INSTANCE_ACCELERATOR_NAME, name.to_owned()));
        facts.push((keys::INSTANCE_ACCELERATOR_MANUFACTURER, "aws".to_owned()));
        facts.push((keys::INSTANCE_ACCELERATOR_COUNT, info.neuron_devices.to_string()));
    }
    if let Some(gpu) = info.gpus.first() {
        let count = info.gpus.iter().fold(0_u32, |sum, gpu| sum.saturating_add(gpu.count));
        facts.push((keys::INSTANCE_GPU_NAME, label_value(&gpu.name)));
        facts.push((keys::INSTANCE_GPU_COUNT, count.to_string()));
        facts.push((keys::INSTANCE_GPU_MANUFACTURER, label_value(&gpu.manufacturer)));
        facts.push((keys::INSTANCE_GPU_MEMORY, gpu.memory_mib.to_string()));
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
    let chosen_later = [keys::ZONE, keys::CAPACITY_TYPE, keys::ZONE_ID, keys::REGION, keys::EBS_ZONE];
    let value = |key: &str| facts.get(key).map(String::as_str);
    let requirements = &pool.spec.template.spec.requirements;
    let arch = of_key(pool, keys::ARCH).next().is_some() || value(keys::ARCH) == Some(DEFAULT_ARCH);
    arch && requirements
        .iter()
        .filter(|requirement| !chosen_later.contains(&requirement.key.as_str()))
        .all(|requirement| allows(requirement, value(&requirement.key)))
}

/// Whether the pool's requirements allow a zone, by whichever label of its nodes.
#[must_use]
pub fn allows_zone(pool: &NodePool, zone: &str) -> bool {
    let labels = [(keys::ZONE, Some(zone)), (keys::REGION, region_of(zone)), (keys::EBS_ZONE, Some(zone))];
    labels.into_iter().all(|(key, value)| of_key(pool, key).all(|requirement| allows(requirement, value)))
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
    values(requirement).is_ok_and(|values| values.contains(value))
}

/// What a requirement says, as a set of values.
///
/// Errors: why it says nothing.
pub fn values(requirement: &NodeRequirement) -> Result<Values, String> {
    let listed = || requirement.values.iter().map(String::as_str);
    let bound = || match requirement.values.as_slice() {
        [bound] => bound.parse::<i64>().map_err(|_| format!("\"{bound}\" is no integer")),
        other => Err(format!("{} values instead of one integer", other.len())),
    };
    Ok(match requirement.operator {
        NodeRequirementOperator::In => Values::one_of(listed()),
        NodeRequirementOperator::NotIn => Values::none_of(listed()),
        NodeRequirementOperator::Exists => Values::present(),
        NodeRequirementOperator::DoesNotExist => Values::absent(),
        NodeRequirementOperator::Gt => Values::at_least(bound()?.saturating_add(1)),
        NodeRequirementOperator::Lt => Values::at_most(bound()?.saturating_sub(1)),
        NodeRequirementOperator::Gte => Values::at_least(bound()?),
        NodeRequirementOperator::Lte => Values::at_most(bound()?),
    })
}

/// Everything the pool requires, with what it means where it is silent: reserved and on demand, amd64.
///
/// Errors: field and value of each requirement that says nothing, or the label that nothing satisfies.
pub fn requirements(pool: &NodePool) -> Result<Requirements, String> {
    let mut all = Requirements::default();
    let read = |(index, requirement): (usize, &NodeRequirement)| {
        let field = format!("spec.template.spec.requirements[{index}]");
        let values = values(requirement).map_err(|why| format!("{field}: {}: {why}", requirement.key))?;
        all.add(&requirement.key, &values);
        Ok(())
    };
    every(pool.spec.template.spec.requirements.iter().enumerate().map(read))?;
    if all.of(keys::CAPACITY_TYPE).is_none() {
        let named = [CapacityType::Reserved, CapacityType::OnDemand].map(CapacityType::as_str);
        all.add(keys::CAPACITY_TYPE, &Values::one_of(named));
    }
    if all.of(keys::ARCH).is_none() {
        all.add(keys::ARCH, &Values::one_of([DEFAULT_ARCH]));
    }
    match all.contradiction() {
        Some(key) => Err(format!("spec.template.spec.requirements: nothing satisfies all that is required of {key}")),
        None => Ok(all),
    }
}

/// The pool's permanent taints.
///
/// Errors: field, key and effect of each that is none, with the remedy.
pub fn taints(pool: &NodePool) -> Result<Vec<Taint>, String> {
    read_taints("taints", &pool.spec.template.spec.taints)
}

/// The taints that nodes of the pool register with and that somebody else removes.
///
/// Errors: as for [`taints`].
pub fn startup_taints(pool: &NodePool) -> Result<Vec<Taint>, String> {
    read_taints("startupTaints", &pool.spec.template.spec.startup_taints)
}

fn read_taints(field: &str, taints: &[k8s_openapi::api::core::v1::Taint]) -> Result<Vec<Taint>, String> {
    let read = |taint: &k8s_openapi::api::core::v1::Taint| {
        let effect = match taint.effect.as_str() {
            "NoSchedule" => TaintEffect::NoSchedule,
            "PreferNoSchedule" => TaintEffect::PreferNoSchedule,
            "NoExecute" => TaintEffect::NoExecute,
            other => {
                return Err(format!(
                    "spec.template.spec.{field}: {}: effect \"{other}\" is not NoSchedule, PreferNoSchedule or NoExecute",
                    taint.key
                ));
            }
        };
        let value = taint.value.as_deref().unwrap_or_default();
        Ok(Taint { key: taint.key.as_str().into(), value: value.into(), effect })
    };
    every(taints.iter().map(read))
}

/// What was read.
///
/// Errors: everything that could not be, in a line.
fn every<T>(read: impl Iterator<Item = Result<T, String>>) -> Result<Vec<T>, String> {
    let (mut all, mut faults) = (Vec::new(), Vec::new());
    for one in read {
        match one {
            Ok(one) => all.push(one),
            Err(fault) => faults.push(fault),
        }
    }
    no(&faults).map(|()| all)
}

/// Errors: the faults, in a line.
fn no(faults: &[String]) -> Result<(), String> {
    if faults.is_empty() { Ok(()) } else { Err(faults.join("; ")) }
}

/// How long a node of the pool stays empty before it goes; `None` if it stays.
///
/// Errors: field and value, if it is no duration.
pub fn consolidate_after(pool: &NodePool) -> Result<Option<SignedDuration>, String> {
    let disruption = &pool.spec.disruption;
    let text = disruption.consolidate_after.as_str();
    let after = match text.parse::<SignedDuration>() {
        Ok(after) if !after.is_negative() => Some(after),
        Ok(_) | Err(_) if text == "Never" => None,
        Ok(_) | Err(_) => {
            return Err(format!(
                "spec.disruption.consolidateAfter: \"{text}\" is not a duration such as 90s, 15m or 1h, nor Never"
            ));
        }
    };
    Ok(match disruption.consolidation_policy {
        ConsolidationPolicy::WhenEmpty => after,
        ConsolidationPolicy::Never => None,
    })
}

/// Field and value of what the pool asks for and nothing carries out yet. The API server refuses it too; a file and an object
/// that is older than that rule come here.
///
/// Errors: each of them, for a person.
pub fn acts(pool: &NodePool) -> Result<(), String> {
    let (node, disruption) = (&pool.spec.template.spec, &pool.spec.disruption);
    let expires = node.expire_after.as_deref().filter(|after| *after != "Never").map(|after| {
        format!(
            "spec.template.spec.expireAfter: \"{after}\" does not act yet: nodes do not expire; remove it, or write Never"
        )
    });
    let period = node.termination_grace_period.as_ref().map(|period| {
        format!(
            "spec.template.spec.terminationGracePeriod: \"{period}\" does not act yet: nobody who runs is moved; remove it"
        )
    });
    let budgets = (!disruption.budgets.is_empty()).then(|| {
        format!(
            "spec.disruption.budgets: {} budgets do not act yet: nobody who runs is moved; remove them",
            disruption.budgets.len()
        )
    });
    no(&[expires, period, budgets].into_iter().flatten().collect::<Vec<_>>())
}

/// How many different values of each key a launch has to leave open, of keys for which that is more than one.
#[must_use]
pub fn min_values(pool: &NodePool) -> Vec<(Arc<str>, u32)> {
    let mut most: BTreeMap<&str, u32> = BTreeMap::new();
    for requirement in &pool.spec.template.spec.requirements {
        if let Some(least) = requirement.min_values.filter(|least| *least > 1) {
            let known = most.entry(requirement.key.as_str()).or_default();
            *known = least.max(*known);
        }
    }
    most.into_iter().map(|(key, least)| (key.into(), least)).collect()
}

/// Labels that a node registers with, of those it will have: those of kubelet and cloud controller come by themselves.
#[must_use]
pub fn registered(labels: &BTreeMap<Arc<str>, Arc<str>>) -> BTreeMap<Arc<str>, Arc<str>> {
    let by_others = [keys::INSTANCE_TYPE, keys::ARCH, keys::OS, keys::ZONE];
    let own = labels.iter().filter(|(key, _)| !by_others.contains(&&***key));
    own.map(|(key, value)| (Arc::clone(key), Arc::clone(value))).collect()
}

/// Labels of the pool's template and its name: what every node of the pool carries, whatever its type.
#[must_use]
pub fn labels(pool: &NodePool) -> BTreeMap<Arc<str>, Arc<str>> {
    let name = pool.metadata.name.as_deref().unwrap_or_default();
    let of_template = pool.spec.template.metadata.labels.iter();
    let mut labels: BTreeMap<Arc<str>, Arc<str>> =
        of_template.map(|(key, value)| (key.as_str().into(), value.as_str().into())).collect();
    labels.insert(keys::NODEPOOL.into(), name.into());
    labels
}

/// The pool's limits, in the units of [`Resources`]; `nodes` counts nodes.
///
/// Errors: field and value of each that is no quantity, or a part of what comes only in whole numbers.
pub fn limits(pool: &NodePool) -> Result<BTreeMap<ResourceName, i64>, String> {
    let read = |(name, limit): (&String, &crate::crd::IntOrQuantity)| {
        let amount: Quantity =
            limit.0.parse().map_err(|_| format!("spec.limits.{name}: \"{}\" is not a quantity", limit.0))?;
        if amount < Quantity::ZERO {
            return Err(format!("spec.limits.{name}: \"{}\" is negative", limit.0));
        }
        let divisible = [CPU, MEMORY, EPHEMERAL_STORAGE].contains(&name.as_str());
        if !divisible && !amount.is_whole() {
            // Rounded up it would allow more than it says.
            return Err(format!("spec.limits.{name}: \"{}\" is not a whole number", limit.0));
        }
        let amount = if name == CPU { amount.milli_ceil() } else { amount.unit_ceil() };
        Ok((ResourceName::from(name.as_str()), amount))
    };
    Ok(every(pool.spec.limits.iter().map(read))?.into_iter().collect())
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

/// The ceiling over all NodePools, as a server wrote it; `None` if none has, or what it wrote is no amount.
#[must_use]
pub fn cluster_ceiling(pool: &NodePool) -> Option<Ceiling> {
    match pool.status.as_ref()?.cluster_max_usd_per_hour.as_deref()? {
        UNLIMITED => Some(Ceiling::Unlimited),
        text => micro_dollars(text).map(Ceiling::At),
    }
}

/// What a server writes of its ceiling over all NodePools; `None`: it has none, and provisions nothing.
#[must_use]
pub fn cluster_ceiling_text(ceiling: Option<Ceiling>) -> String {
    match ceiling {
        Some(Ceiling::Unlimited) => UNLIMITED.to_owned(),
        Some(Ceiling::At(micros)) => dollars(micros),
        None => dollars(0),
    }
}

/// The word for no ceiling.
const UNLIMITED: &str = "unlimited";

/// Micro-dollars that nodes which are tried alone may cost together.
///
/// Errors: the field, for a person.
pub fn max_probe_usd(pool: &NodePool) -> Result<u64, String> {
    let text = pool.spec.join.max_probe_usd.0.as_str();
    micro_dollars(text)
        .ok_or_else(|| format!("spec.join.maxProbeUsd: \"{text}\" is not an amount of dollars such as \"250\""))
}

/// Why a limit of the pool limits nothing, if one does; `types` are those that its requirements allow, `others` the hardware of types
/// that are described by their amounts alone.
#[must_use]
pub fn unknown_limit_of<'a>(
    pool: &NodePool,
    types: impl Iterator<Item = &'a InstanceTypeInfo>,
    others: impl IntoIterator<Item = &'a Resources>,
) -> Option<String> {
    let limits = pool.spec.limits.iter().map(|(key, value)| (key.clone(), value.0.clone())).collect();
    unknown_limit(&limits, types, others).map(|unknown| unknown.to_string())
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
            min_values: None,
        };
        assert!(allows(&requirement(NodeRequirementOperator::Gt, &["4"]), Some("8")));
        assert!(!allows(&requirement(NodeRequirementOperator::Gt, &["8"]), Some("8")));
        assert!(allows(&requirement(NodeRequirementOperator::Gte, &["8"]), Some("8")));
        assert!(!allows(&requirement(NodeRequirementOperator::Gt, &["4"]), None));
        assert!(allows(&requirement(NodeRequirementOperator::NotIn, &["a"]), None));
    }

    /// A pool with these fields in its nodes' spec and its disruption.
    fn with(node: &serde_json::Value, disruption: &serde_json::Value) -> NodePool {
        let mut pool = serde_json::to_value(pool(&[])).unwrap();
        for (field, value) in node.as_object().unwrap() {
            pool["spec"]["template"]["spec"][field] = value.clone();
        }
        pool["spec"]["disruption"] = disruption.clone();
        serde_json::from_value(pool).unwrap()
    }

    #[test]
    fn a_field_that_does_not_act_yet_is_refused_by_name_and_value() {
        use serde_json::json;
        assert_eq!(acts(&pool(&[])), Ok(()));
        assert_eq!(acts(&with(&json!({"expireAfter": "Never"}), &json!({"budgets": []}))), Ok(()), "what is so anyway");
        for (node, disruption, named) in [
            (json!({"expireAfter": "720h"}), json!({}), "spec.template.spec.expireAfter: \"720h\""),
            (json!({"terminationGracePeriod": "1h"}), json!({}), "spec.template.spec.terminationGracePeriod: \"1h\""),
            (json!({}), json!({"budgets": [{"nodes": "10%"}]}), "spec.disruption.budgets: 1"),
        ] {
            let refused = acts(&with(&node, &disruption)).unwrap_err();
            assert!(refused.starts_with(named), "{refused}");
        }
    }

    #[test]
    fn a_pool_that_is_silent_gives_up_empty_nodes_and_one_that_says_never_keeps_them() {
        use serde_json::json;
        let after = |disruption| consolidate_after(&with(&json!({}), &disruption));
        assert_eq!(after(json!({})), Ok(Some(SignedDuration::from_secs(30))));
        assert_eq!(serde_json::to_value(pool(&[])).unwrap()["spec"]["disruption"]["consolidationPolicy"], "WhenEmpty");
        assert_eq!(after(json!({"consolidateAfter": "5m"})), Ok(Some(SignedDuration::from_mins(5))));
        assert_eq!(after(json!({"consolidateAfter": "5m", "consolidationPolicy": "Never"})), Ok(None));
        assert_eq!(after(json!({"consolidateAfter": "Never", "consolidationPolicy": "WhenEmpty"})), Ok(None));
        assert!(after(json!({"consolidateAfter": "soon"})).unwrap_err().contains("\"soon\""));
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
            ..NodeRequirement::default()
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
