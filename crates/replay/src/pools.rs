//! NodePools of a dump: what each may buy, in which zones and on which markets, and what is left of its limits.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use k8s_openapi::api::apps::v1::DaemonSet;
use muster_api::crd::{
    EC2NodeClass, EfaPolicy, NodePool, NodeRequirement, NodeRequirementOperator, PlacementGroupPolicy,
};
use muster_api::{convert, keys};
use muster_core::cloud::{CapacityType, Efa, GroupPolicy, InstanceTypeInfo, Purpose, efa_layout};
use muster_core::cycle::TypeView;
use muster_core::fit;
use muster_core::names::{NodeName, ResourceName};
use muster_core::node::{Node, Taint, TaintEffect, Usage};
use muster_core::pod::Shape;
use muster_core::resources::CPU;
use muster_core::units::Quantity;

use crate::catalogue::Catalogue;
use crate::dump::Dump;

/// The largest batch there can be: CreateFleet's largest minimum.
const MOST_NODES: u32 = 1000;
/// The limit that counts nodes.
const NODES: &str = "nodes";

/// A pool that may buy.
#[derive(Debug)]
pub(crate) struct Pool {
    /// Name.
    pub(crate) name: String,
    /// Higher first.
    pub(crate) weight: u32,
    /// Largest batch.
    pub(crate) max_nodes: u32,
    /// Group policy.
    pub(crate) group: GroupPolicy,
    /// What is left of the limits, in the units of `Resources`; `nodes` counts nodes.
    pub(crate) left: BTreeMap<ResourceName, i64>,
    /// Markets in order.
    pub(crate) markets: Vec<CapacityType>,
    /// Zones; one `None` if none is known.
    pub(crate) zones: Vec<Option<String>>,
    /// Types its requirements allow.
    pub(crate) types: Vec<InstanceTypeInfo>,
    labels: BTreeMap<Arc<str>, Arc<str>>,
    taints: Vec<Taint>,
    efa: Efa,
    daemons: Vec<Shape>,
}

impl Pool {
    /// A node of the pool as it would register.
    pub(crate) fn view(
        &self,
        info: &InstanceTypeInfo,
        zone: Option<&str>,
        market: CapacityType,
        price: Option<u64>,
    ) -> TypeView {
        let mut labels = self.labels.clone();
        labels.extend(facts(info).into_iter().map(|(key, value)| (Arc::from(key), Arc::from(value))));
        labels.insert(keys::CAPACITY_TYPE.into(), market.as_str().into());
        if let Some(zone) = zone {
            labels.insert(keys::ZONE.into(), zone.into());
        }
        let node = Node {
            name: NodeName::from(format!("new {}", info.name)),
            labels,
            taints: self.taints.clone(),
            allocatable: info.allocatable(&efa_layout(info, self.efa, Purpose::Gang, &[])),
            unschedulable: false,
            ready: true,
            deleting: false,
            provider_id: None,
        };
        let mut overhead = Usage::default();
        for daemon in self.daemons.iter().filter(|daemon| fit::accepts(daemon, &node).is_ok()) {
            overhead.add(daemon);
        }
        TypeView { name: info.name.as_str().into(), node: Arc::new(node), overhead: Arc::new(overhead), price }
    }

    /// Nodes bought count against the limits.
    pub(crate) fn bought(&mut self, node: &Node, count: u32) {
        for (resource, left) in &mut self.left {
            let each = if resource.as_str() == NODES { 1 } else { node.allocatable.get(resource.as_str()) };
            *left = left.saturating_sub(each.saturating_mul(i64::from(count)));
        }
    }
}

/// The pools of a dump in order of name; one that cannot be used is reported and left out.
pub(crate) fn read(dump: &mut Dump, catalogue: &Catalogue, nodes: &[Node]) -> Vec<Pool> {
    let mut pools = Vec::new();
    let mut unusable = Vec::new();
    let daemons = daemons(&dump.daemon_sets);
    let known_zones: BTreeSet<&str> =
        nodes.iter().filter_map(|node| node.labels.get(keys::ZONE).map(|zone| &**zone)).collect();
    let mut sorted: Vec<&NodePool> = dump.pools.iter().collect();
    sorted.sort_by_key(|pool| name(pool));
    for pool in sorted {
        match one(pool, &dump.classes, catalogue, nodes, &known_zones, &daemons) {
            Ok(pool) => pools.push(pool),
            Err(why) => unusable.push((name(pool).to_owned(), why)),
        }
    }
    for (name, why) in unusable {
        dump.ignore("NodePool".to_owned(), name, why);
    }
    pools
}

fn name(pool: &NodePool) -> &str {
    pool.metadata.name.as_deref().unwrap_or_default()
}

fn one(
    pool: &NodePool,
    classes: &[EC2NodeClass],
    catalogue: &Catalogue,
    nodes: &[Node],
    known_zones: &BTreeSet<&str>,
    daemons: &[Shape],
) -> Result<Pool, String> {
    let conditions = pool.status.as_ref().map(|status| status.conditions.as_slice()).unwrap_or_default();
    if let Some(ready) = conditions.iter().find(|condition| condition.type_ == "Ready" && condition.status == "False") {
        return Err(format!("is not Ready: {}", ready.message));
    }
    if pool.metadata.deletion_timestamp.is_some() {
        return Err("is being deleted".to_owned());
    }
    let reference = &pool.spec.template.spec.node_class_ref;
    let class = classes.iter().find(|class| class.metadata.name.as_deref() == Some(reference.name.as_str()));
    let efa = match class.map(|class| class.spec.efa) {
        None | Some(EfaPolicy::Auto) => Efa::Auto,
        Some(EfaPolicy::Always) => Efa::Always,
        Some(EfaPolicy::Never) => Efa::Never,
    };
    let mut labels: BTreeMap<Arc<str>, Arc<str>> = BTreeMap::new();
    for (key, value) in &pool.spec.template.metadata.labels {
        labels.insert(key.as_str().into(), value.as_str().into());
    }
    labels.insert(keys::NODEPOOL.into(), name(pool).into());
    let types: Vec<InstanceTypeInfo> = catalogue.types.values().filter(|info| meets(pool, info)).cloned().collect();
    if types.is_empty() {
        return Err(format!(
            "spec.template.spec.requirements: no type of the catalogue {} meets all of them",
            catalogue.name
        ));
    }
    Ok(Pool {
        name: name(pool).to_owned(),
        weight: pool.spec.weight.unwrap_or(0),
        max_nodes: pool.spec.placement.max_nodes_per_batch.unwrap_or(MOST_NODES).min(MOST_NODES),
        group: match pool.spec.placement.placement_group {
            PlacementGroupPolicy::Required => GroupPolicy::Required,
            PlacementGroupPolicy::Preferred => GroupPolicy::Preferred,
            PlacementGroupPolicy::None => GroupPolicy::None,
        },
        left: left(pool, nodes)?,
        markets: markets(pool),
        zones: zones(pool, class, known_zones),
        types,
        labels,
        taints: taints(pool)?,
        efa,
        daemons: daemons.to_vec(),
    })
}

fn taints(pool: &NodePool) -> Result<Vec<Taint>, String> {
    let taint = |taint: &k8s_openapi::api::core::v1::Taint| {
        let effect = match taint.effect.as_str() {
            "NoSchedule" => TaintEffect::NoSchedule,
            "PreferNoSchedule" => TaintEffect::PreferNoSchedule,
            "NoExecute" => TaintEffect::NoExecute,
            other => {
                return Err(format!("spec.template.spec.taints: effect `{other}` is no effect of a taint"));
            }
        };
        let value = taint.value.as_deref().unwrap_or_default();
        Ok(Taint { key: taint.key.as_str().into(), value: value.into(), effect })
    };
    pool.spec.template.spec.taints.iter().map(taint).collect()
}

/// What is left of the limits beside the nodes of the dump that carry the pool's label.
fn left(pool: &NodePool, nodes: &[Node]) -> Result<BTreeMap<ResourceName, i64>, String> {
    let mut left = BTreeMap::new();
    for (resource, limit) in &pool.spec.limits {
        let amount: Quantity = limit
            .0
            .parse()
            .map_err(|error: muster_core::units::QuantityError| format!("spec.limits[{resource}]: {error}"))?;
        let amount = if resource == CPU { amount.milli_ceil() } else { amount.unit_ceil() };
        left.insert(ResourceName::from(resource.as_str()), amount);
    }
    let own = nodes.iter().filter(|node| node.labels.get(keys::NODEPOOL).is_some_and(|of| **of == *name(pool)));
    for node in own {
        for (resource, left) in &mut left {
            let each = if resource.as_str() == NODES { 1 } else { node.allocatable.get(resource.as_str()) };
            *left = i64::saturating_sub(*left, each);
        }
    }
    Ok(left)
}

/// Zones of the class's subnets, else those the requirements name, else those of the nodes, else one unknown.
fn zones(pool: &NodePool, class: Option<&EC2NodeClass>, known: &BTreeSet<&str>) -> Vec<Option<String>> {
    let subnets = class.and_then(|class| class.status.as_ref()).map(|status| status.subnets.as_slice());
    let mut zones: BTreeSet<&str> = subnets.unwrap_or_default().iter().map(|subnet| subnet.zone.as_str()).collect();
    if zones.is_empty() {
        let named = of_key(pool, keys::ZONE).filter(|wish| wish.operator == NodeRequirementOperator::In);
        zones = named.flat_map(|wish| wish.values.iter().map(String::as_str)).collect();
    }
    if zones.is_empty() {
        zones.clone_from(known);
    }
    if zones.is_empty() && of_key(pool, keys::ZONE).next().is_none() {
        return vec![None];
    }
    let allowed = |zone: &&str| of_key(pool, keys::ZONE).all(|wish| allows(wish, Some(zone)));
    zones.into_iter().filter(allowed).map(|zone| Some(zone.to_owned())).collect()
}

/// Markets in order. Silent = reserved and on-demand: spot must be named, since one interruption stops a gang.
fn markets(pool: &NodePool) -> Vec<CapacityType> {
    let named = of_key(pool, keys::CAPACITY_TYPE).next().is_some();
    [CapacityType::Reserved, CapacityType::OnDemand, CapacityType::Spot]
        .into_iter()
        .filter(|market| {
            if named {
                of_key(pool, keys::CAPACITY_TYPE).all(|wish| allows(wish, Some(market.as_str())))
            } else {
                *market != CapacityType::Spot
            }
        })
        .collect()
}

fn of_key<'a>(pool: &'a NodePool, key: &'a str) -> impl Iterator<Item = &'a NodeRequirement> {
    pool.spec.template.spec.requirements.iter().filter(move |wish| wish.key == key)
}

/// Whether the type meets the requirements; zone and market are chosen later.
fn meets(pool: &NodePool, info: &InstanceTypeInfo) -> bool {
    let facts: BTreeMap<&str, String> = facts(info).into_iter().collect();
    let chosen_later = [keys::ZONE, keys::CAPACITY_TYPE, keys::ZONE_ID];
    pool.spec
        .template
        .spec
        .requirements
        .iter()
        .filter(|wish| !chosen_later.contains(&wish.key.as_str()))
        .all(|wish| allows(wish, facts.get(wish.key.as_str()).map(String::as_str)))
}

/// What a type is, in the vocabulary of requirements and labels.
fn facts(info: &InstanceTypeInfo) -> Vec<(&'static str, String)> {
    let (family, size) = info.name.split_once('.').unwrap_or((&info.name, ""));
    let arm = info.architectures.first().is_some_and(|architecture| architecture == "arm64");
    let mut facts = vec![
        (keys::INSTANCE_TYPE, info.name.clone()),
        (keys::INSTANCE_FAMILY, family.to_owned()),
        (keys::INSTANCE_SIZE, size.to_owned()),
        (keys::ARCH, if arm { "arm64" } else { "amd64" }.to_owned()),
        (keys::OS, "linux".to_owned()),
    ];
    if let Some(gpu) = info.gpus.first() {
        let count = info.gpus.iter().fold(0_u32, |sum, gpu| sum.saturating_add(gpu.count));
        facts.push((keys::INSTANCE_GPU_NAME, gpu.name.to_lowercase()));
        facts.push((keys::INSTANCE_GPU_COUNT, count.to_string()));
    }
    facts
}

/// Whether a requirement allows a value. Unknown keys have no value.
fn allows(wish: &NodeRequirement, value: Option<&str>) -> bool {
    let among = value.is_some_and(|value| wish.values.iter().any(|allowed| allowed == value));
    let compare = |holds: fn(i64, i64) -> bool| {
        let (Some(value), Some(bound)) = (value, wish.values.first()) else { return false };
        matches!((value.parse(), bound.parse()), (Ok(value), Ok(bound)) if holds(value, bound))
    };
    match wish.operator {
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

/// What each DaemonSet's pod needs. Taints of their own they tolerate by their template.
fn daemons(sets: &[DaemonSet]) -> Vec<Shape> {
    sets.iter()
        .filter_map(|set| {
            let namespace = set.metadata.namespace.as_deref().unwrap_or_default();
            let shape = convert::shape_of_template(namespace, &set.spec.as_ref()?.template).ok()?;
            // Its own pods never meet on a node, and nobody else's shape counts them.
            Some(Shape { one_per_node: false, ..shape })
        })
        .collect()
}
