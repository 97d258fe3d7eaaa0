//! NodePools: what they allow, what is left of them, and what the gang loop and the ranking see of them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::SignedDuration;
use kube::api::{Patch, PatchParams};
use kube::{Api, ResourceExt};
use muster_api::crd::{
    EC2NodeClass, NodePool, NodePoolStatus, NodeRequirement, NodeRequirementOperator, PlacementGroupPolicy, is_true,
    set_condition,
};
use muster_api::keys;
use muster_core::cloud::{CapacityType, InstanceTypeInfo, PoolOffer, Purpose, Subnet, efa_layout};
use muster_core::cycle::{PoolView, TypeView};
use muster_core::names::{NodeName, ResourceName};
use muster_core::node::{Node, Taint, TaintEffect, Usage};
use muster_core::units::Quantity;
use serde_json::json;

use super::{Context, launch};
use crate::clock::now_real;
use crate::cluster::State;
use crate::step::{Step, step};

/// Describes all pools: for the gang loop, and in their status.
pub(super) async fn reconcile(context: &Context, state: &State) -> anyhow::Result<()> {
    let mut views = Vec::new();
    for pool in state.pools.values() {
        let problem = problem(context, state, pool);
        if problem.is_none() {
            views.extend(view(context, state, pool));
        }
        write_status(context, state, pool, problem).await?;
    }
    if **context.pools.load() != views {
        context.pools.store(Arc::new(views));
        context.wake.notify_one();
    }
    Ok(())
}

/// The class of a pool, if it exists and is ours.
pub(super) fn class_of<'a>(state: &'a State, pool: &NodePool) -> Option<&'a EC2NodeClass> {
    let reference = &pool.spec.template.spec.node_class_ref;
    (reference.group == keys::GROUP && reference.kind == "EC2NodeClass")
        .then(|| state.classes.get(&reference.name))
        .flatten()
        .map(AsRef::as_ref)
}

/// Why the pool cannot be used: reason and message.
fn problem(context: &Context, state: &State, pool: &NodePool) -> Option<(&'static str, String)> {
    let reference = &pool.spec.template.spec.node_class_ref;
    if let Err((reason, message)) = validate(pool) {
        return Some((reason, message));
    }
    let Some(class) = class_of(state, pool) else {
        return Some((
            "NodeClassNotFound",
            format!(
                "spec.template.spec.nodeClassRef: no {} named {} in group {}",
                reference.kind, reference.name, reference.group
            ),
        ));
    };
    let conditions = class.status.as_ref().map(|status| status.conditions.as_slice()).unwrap_or_default();
    if !is_true(conditions, "Ready") {
        let why = conditions.iter().find(|c| c.type_ == "Ready").map_or("not looked at yet", |c| c.message.as_str());
        return Some(("NodeClassNotReady", format!("EC2NodeClass {}: {why}", reference.name)));
    }
    let catalogue = context.catalogue.load();
    if catalogue.types.is_empty() {
        return Some(("CatalogueNotRead", "the instance types of this Region cannot be read yet".to_owned()));
    }
    if instance_types(pool, &catalogue.types).next().is_none() {
        return Some((
            "RequirementInvalid",
            "spec.template.spec.requirements: no instance type of this Region meets all of them; widen \
             muster.dev/instance-family, node.kubernetes.io/instance-type or the others"
                .to_owned(),
        ));
    }
    if zones(state, pool).is_empty() {
        return Some((
            "RequirementInvalid",
            "spec.template.spec.requirements: no zone is allowed that has a subnet of the EC2NodeClass".to_owned(),
        ));
    }
    None
}

fn validate(pool: &NodePool) -> Result<(), (&'static str, String)> {
    for key in pool.spec.template.metadata.labels.keys() {
        if key.starts_with(keys::PREFIX) || key == keys::HOSTNAME {
            return Err(("LabelRestricted", format!("spec.template.metadata.labels: {key} is set by Muster alone")));
        }
    }
    for (name, limit) in &pool.spec.limits {
        if limit.0.parse::<Quantity>().is_err() {
            return Err(("LimitInvalid", format!("spec.limits.{name}: \"{}\" is not a quantity", limit.0)));
        }
    }
    for taint in &pool.spec.template.spec.taints {
        if effect(&taint.effect).is_none() {
            return Err((
                "TaintInvalid",
                format!(
                    "spec.template.spec.taints: {}: effect \"{}\" is not NoSchedule, PreferNoSchedule or NoExecute",
                    taint.key, taint.effect
                ),
            ));
        }
    }
    for (field, text) in [
        ("join.registerWithin", &pool.spec.join.register_within),
        ("join.readyWithin", &pool.spec.join.ready_within),
        ("disruption.consolidateAfter", &pool.spec.disruption.consolidate_after),
    ] {
        if text != "Never" && duration(text).is_none() {
            return Err((
                "DurationInvalid",
                format!("spec.{field}: \"{text}\" is not a duration such as 90s, 15m or 1h"),
            ));
        }
    }
    Ok(())
}

/// Reads a Go duration such as `1h30m`, `45s`, `500ms`.
pub(super) fn duration(text: &str) -> Option<SignedDuration> {
    text.parse().ok().filter(|duration: &SignedDuration| !duration.is_negative())
}

fn effect(text: &str) -> Option<TaintEffect> {
    match text {
        "NoSchedule" => Some(TaintEffect::NoSchedule),
        "PreferNoSchedule" => Some(TaintEffect::PreferNoSchedule),
        "NoExecute" => Some(TaintEffect::NoExecute),
        _ => None,
    }
}

/// The pool's permanent taints.
pub(super) fn taints(pool: &NodePool) -> Vec<Taint> {
    pool.spec
        .template
        .spec
        .taints
        .iter()
        .filter_map(|taint| {
            Some(Taint {
                key: taint.key.as_str().into(),
                value: taint.value.as_deref().unwrap_or_default().into(),
                effect: effect(&taint.effect)?,
            })
        })
        .collect()
}

/// Labels every node of the type in the pool registers with.
pub(super) fn labels(pool: &NodePool, info: &InstanceTypeInfo) -> BTreeMap<Arc<str>, Arc<str>> {
    let mut labels: BTreeMap<Arc<str>, Arc<str>> = pool
        .spec
        .template
        .metadata
        .labels
        .iter()
        .map(|(key, value)| (key.as_str().into(), value.as_str().into()))
        .collect();
    labels.insert(keys::NODEPOOL.into(), pool.name_any().into());
    for (key, value) in facts(info) {
        if key.starts_with(keys::PREFIX) {
            labels.insert(key.into(), value.into());
        }
    }
    labels
}

/// What a type is, in the vocabulary of requirements and labels.
fn facts(info: &InstanceTypeInfo) -> Vec<(&'static str, String)> {
    let (family, size) = info.name.split_once('.').unwrap_or((&info.name, ""));
    let mut facts = vec![
        (keys::INSTANCE_TYPE, info.name.clone()),
        (keys::INSTANCE_FAMILY, family.to_owned()),
        (keys::INSTANCE_SIZE, size.to_owned()),
        (keys::ARCH, "amd64".to_owned()),
        (keys::OS, "linux".to_owned()),
    ];
    if let Some(gpu) = info.gpus.first() {
        facts.push((keys::INSTANCE_GPU_NAME, gpu.name.to_lowercase()));
        facts.push((keys::INSTANCE_GPU_COUNT, info.gpus.iter().map(|gpu| gpu.count).sum::<u32>().to_string()));
    }
    facts
}

fn instance_types<'a>(
    pool: &'a NodePool,
    types: &'a BTreeMap<String, InstanceTypeInfo>,
) -> impl Iterator<Item = &'a InstanceTypeInfo> {
    let requirements = &pool.spec.template.spec.requirements;
    types.values().filter(move |info| {
        let facts: BTreeMap<&str, String> = facts(info).into_iter().collect();
        requirements
            .iter()
            .filter(|requirement| !matches!(requirement.key.as_str(), keys::ZONE | keys::CAPACITY_TYPE | keys::ZONE_ID))
            .all(|requirement| allows(requirement, facts.get(requirement.key.as_str()).map(String::as_str)))
    })
}

/// Whether a requirement allows a value. Unknown keys have no value.
fn allows(requirement: &NodeRequirement, value: Option<&str>) -> bool {
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

fn of_key<'a>(pool: &'a NodePool, key: &'a str) -> impl Iterator<Item = &'a NodeRequirement> {
    pool.spec.template.spec.requirements.iter().filter(move |requirement| requirement.key == key)
}

fn zones(state: &State, pool: &NodePool) -> BTreeSet<String> {
    let subnets = class_of(state, pool).and_then(|class| class.status.as_ref()).map(|status| status.subnets.clone());
    subnets
        .unwrap_or_default()
        .into_iter()
        .filter(|subnet| of_key(pool, keys::ZONE).all(|requirement| allows(requirement, Some(&subnet.zone))))
        .map(|subnet| subnet.zone)
        .collect()
}

/// Markets in order. Silent = reserved and on-demand: spot must be named, since one interruption stops a gang.
fn capacity_types(pool: &NodePool) -> Vec<CapacityType> {
    let order = [CapacityType::Reserved, CapacityType::OnDemand, CapacityType::Spot];
    let named = of_key(pool, keys::CAPACITY_TYPE).next().is_some();
    order
        .into_iter()
        .filter(|market| {
            if named {
                of_key(pool, keys::CAPACITY_TYPE).all(|requirement| allows(requirement, Some(market.as_str())))
            } else {
                *market != CapacityType::Spot
            }
        })
        .collect()
}

/// What is left of the pool's limits beside its live batches; `but` is not counted.
fn left(context: &Context, state: &State, pool: &NodePool, but: Option<&str>) -> BTreeMap<ResourceName, i64> {
    let catalogue = context.catalogue.load();
    let mut left: BTreeMap<ResourceName, i64> = pool
        .spec
        .limits
        .iter()
        .filter_map(|(name, limit)| {
            let quantity: Quantity = limit.0.parse().ok()?;
            let amount = if name == "cpu" { quantity.milli_ceil() } else { quantity.unit_ceil() };
            Some((ResourceName::from(name.as_str()), amount))
        })
        .collect();
    if left.is_empty() {
        return left;
    }
    for batch in state.batches.values().filter(|batch| Some(batch.name_any().as_str()) != but) {
        let Some(status) = batch.status.as_ref() else { continue };
        if status.node_pool.as_deref() != Some(pool.name_any().as_str())
            || matches!(status.phase.as_str(), "" | "Pending")
        {
            continue;
        }
        let info = status.instance_type.as_ref().and_then(|name| catalogue.types.get(name));
        let layout = info.map(|info| efa_layout(info, muster_core::cloud::Efa::Auto, Purpose::Gang, &[]));
        let allocatable = info.zip(layout.as_ref()).map(|(info, layout)| info.allocatable(layout)).unwrap_or_default();
        for (resource, amount) in &mut left {
            let each = if resource.as_str() == "nodes" { 1 } else { allocatable.get(resource.as_str()) };
            *amount = amount.saturating_sub(each.saturating_mul(i64::from(status.count)));
        }
    }
    left
}

/// The pool as the gang loop sees it.
fn view(context: &Context, state: &State, pool: &NodePool) -> Option<PoolView> {
    let catalogue = context.catalogue.load();
    let class = class_of(state, pool)?;
    let zones = zones(state, pool);
    let types = instance_types(pool, &catalogue.types)
        .map(|info| {
            let layout = efa_layout(info, launch::efa(class), Purpose::Gang, &[]);
            let mut labels = labels(pool, info);
            for (key, value) in facts(info) {
                labels.insert(key.into(), value.into());
            }
            if let (1, Some(zone)) = (zones.len(), zones.first()) {
                labels.insert(keys::ZONE.into(), zone.as_str().into());
            }
            let price = zones
                .iter()
                .flat_map(|zone| capacity_types(pool).into_iter().map(move |market| (zone, market)))
                .filter_map(|(zone, market)| catalogue.prices.price(&info.name, zone, market))
                .min();
            TypeView {
                name: info.name.as_str().into(),
                node: Arc::new(Node {
                    name: NodeName::from(format!("new-{}", info.name)),
                    labels,
                    taints: taints(pool),
                    allocatable: info.allocatable(&layout),
                    unschedulable: false,
                    ready: true,
                    deleting: false,
                    provider_id: None,
                }),
                overhead: Arc::new(Usage::default()),
                price,
            }
        })
        .collect();
    Some(PoolView {
        name: pool.name_any().into(),
        weight: pool.spec.weight.unwrap_or(0),
        max_nodes: pool.spec.placement.max_nodes_per_batch.unwrap_or(1000),
        placement_group: match pool.spec.placement.placement_group {
            PlacementGroupPolicy::Required => "required".into(),
            PlacementGroupPolicy::Preferred => "preferred".into(),
            PlacementGroupPolicy::None => "none".into(),
        },
        types,
        left: left(context, state, pool, None)
            .into_iter()
            .map(|(resource, amount)| (resource.as_str().into(), amount))
            .collect(),
    })
}

/// The pool as the ranking sees it, beside the batch that asks.
pub(super) fn offer(context: &Context, state: &State, pool: &NodePool, batch: Option<&str>) -> Option<PoolOffer> {
    if problem(context, state, pool).is_some() {
        return None;
    }
    let class = class_of(state, pool)?.status.as_ref()?;
    let catalogue = context.catalogue.load();
    Some(PoolOffer {
        name: pool.name_any(),
        weight: pool.spec.weight.unwrap_or(0),
        instance_types: instance_types(pool, &catalogue.types).map(|info| info.name.clone()).collect(),
        zones: zones(state, pool),
        capacity_types: capacity_types(pool),
        group: launch::group_policy(pool.spec.placement.placement_group),
        left: left(context, state, pool, batch),
        max_nodes_per_batch: pool.spec.placement.max_nodes_per_batch.unwrap_or(1000),
        subnets: class
            .subnets
            .iter()
            .map(|subnet| Subnet {
                id: subnet.id.clone(),
                zone: subnet.zone.clone(),
                zone_id: subnet.zone_id.clone(),
                free_addresses: subnet.available_addresses,
                vpc_id: String::new(),
                tags: BTreeMap::new(),
            })
            .collect(),
    })
}

async fn write_status(
    context: &Context,
    state: &State,
    pool: &NodePool,
    problem: Option<(&'static str, String)>,
) -> anyhow::Result<()> {
    let name = pool.name_any();
    let before = pool.status.clone().unwrap_or_default();
    let mut status = NodePoolStatus { conditions: before.conditions.clone(), ..NodePoolStatus::default() };
    let mut price: u64 = 0;
    for batch in state.batches.values().filter_map(|batch| batch.status.as_ref()) {
        if batch.node_pool.as_deref() == Some(name.as_str()) && !batch.instances.is_empty() {
            status.batches += 1;
            status.nodes = status.nodes.saturating_add(u32::try_from(batch.instances.len()).unwrap_or(u32::MAX));
            price = price.saturating_add(batch.price_per_hour.as_deref().and_then(micros).unwrap_or(0));
        }
    }
    status.price_per_hour = Some(dollars(price));
    let (ready, reason, message) = match &problem {
        None => (true, "Ready", ""),
        Some((reason, message)) => (false, *reason, message.as_str()),
    };
    set_condition(&mut status.conditions, "Ready", ready, reason, message, now_real());
    if status == before {
        return Ok(());
    }
    let pools: Api<NodePool> = Api::all(context.client.clone());
    let patch = json!({"status": status});
    step(Step::WriteStatus, pools.patch_status(&name, &PatchParams::default(), &Patch::Merge(&patch))).await?;
    Ok(())
}

/// Micro-dollars as dollars with two to six places: nothing is rounded, and nobody reads zeros.
pub(super) fn dollars(micros: u64) -> String {
    let mut fraction = format!("{:06}", micros % 1_000_000);
    while fraction.len() > 2 && fraction.ends_with('0') {
        fraction.pop();
    }
    format!("{}.{fraction}", micros / 1_000_000)
}

fn micros(dollars: &str) -> Option<u64> {
    let (whole, fraction) = dollars.split_once('.')?;
    let fraction: u64 = format!("{fraction:0<6}").get(..6)?.parse().ok()?;
    whole.parse::<u64>().ok()?.checked_mul(1_000_000)?.checked_add(fraction)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dollars_have_two_to_six_places_and_are_read_back_exactly() {
        assert_eq!(dollars(440_320_000), "440.32");
        assert_eq!(dollars(1), "0.000001");
        assert_eq!(micros("440.32"), Some(440_320_000));
        assert_eq!(micros("440.320000"), Some(440_320_000));
        assert_eq!(micros("0.000001"), Some(1));
    }

    #[test]
    fn go_durations_are_read_and_nonsense_is_not() {
        assert_eq!(duration("1h30m"), Some(SignedDuration::from_mins(90)));
        assert_eq!(duration("500ms"), Some(SignedDuration::from_millis(500)));
        assert_eq!(duration("soon"), None);
        assert_eq!(duration("-5s"), None);
    }

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
}
