//! NodePools of a dump: what each may provision, in which zones and on which capacity types, and what is left of its limits.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use muster_api::crd::{EC2NodeClass, NodePool, NodeRequirementOperator};
use muster_api::{convert, keys, new_node, pool as rules};
use muster_core::ec2::CapacityType;
use muster_core::gang::TypeView;
use muster_core::model::names::ResourceName;
use muster_core::model::node::Node;
use muster_core::model::pod::Shape;
use muster_core::model::resources::Resources;
use muster_core::offering::{CeilingLeft, CeilingScope, GroupPolicy, InstanceTypeInfo};

use crate::catalogue::Catalogue;
use crate::dump::Dump;

/// The largest batch there can be: CreateFleet's largest minimum.
const MOST_NODES: u32 = 1000;

/// A pool that may provision.
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
    /// The limits, in the same units.
    pub(crate) limits: BTreeMap<ResourceName, i64>,
    /// What is left under its ceiling on dollars per hour. A dump tells nothing of the ceiling of the cluster.
    pub(crate) ceiling: Option<CeilingLeft>,
    /// Capacity types in order.
    pub(crate) capacity_types: Vec<CapacityType>,
    /// Zones; one `None` if none is known.
    pub(crate) zones: Vec<Option<String>>,
    /// Types its requirements allow.
    pub(crate) types: Vec<InstanceTypeInfo>,
    object: NodePool,
    class: Option<EC2NodeClass>,
    daemons: Arc<[Shape]>,
}

impl Pool {
    /// A node of the pool as it would register.
    pub(crate) fn view(
        &self,
        info: &InstanceTypeInfo,
        zone: Option<&str>,
        capacity_type: CapacityType,
        price: Option<u64>,
    ) -> TypeView {
        let place = new_node::Place { zone, capacity_type: Some(capacity_type) };
        let new = new_node::of_pool(&self.object, self.class.as_ref(), info, place, &self.daemons);
        TypeView::new(&info.name, new.expect("a pool whose taints cannot be read is not kept"), price)
    }

    /// Nodes provisioned count against the limits, and what they cost against the ceiling.
    pub(crate) fn provisioned(&mut self, capacity: &Resources, price: u64, count: u32) {
        rules::take(&mut self.left, capacity, count);
        if let Some(ceiling) = &mut self.ceiling {
            ceiling.left = ceiling.left.saturating_sub(price.saturating_mul(u64::from(count)));
        }
    }
}

/// The pools of a dump in order of name; one that cannot be used is reported and excluded.
pub(crate) fn read(dump: &mut Dump, catalogue: &Catalogue, nodes: &[Node]) -> Vec<Pool> {
    let mut pools = Vec::new();
    let mut unusable = Vec::new();
    let daemons: Arc<[Shape]> = dump.daemon_sets.iter().filter_map(convert::daemon).collect();
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

pub(crate) fn name(pool: &NodePool) -> &str {
    pool.metadata.name.as_deref().unwrap_or_default()
}

fn one(
    pool: &NodePool,
    classes: &[EC2NodeClass],
    catalogue: &Catalogue,
    nodes: &[Node],
    known_zones: &BTreeSet<&str>,
    daemons: &Arc<[Shape]>,
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
    rules::taints(pool)?;
    let types: Vec<InstanceTypeInfo> =
        catalogue.types.values().filter(|info| rules::allows_type(pool, info)).cloned().collect();
    // Types that are described by labels alone are for ordinary pods; whether any is allowed is found there.
    let described = !catalogue.described.is_empty();
    if types.is_empty() && !described {
        return Err(format!(
            "spec.template.spec.requirements: no type of the catalogue {} meets all of them",
            catalogue.name
        ));
    }
    if let Some(why) = rules::unknown_limit_of(pool, types.iter()).filter(|_| !described) {
        return Err(why);
    }
    Ok(Pool {
        name: name(pool).to_owned(),
        weight: pool.spec.weight.unwrap_or(0),
        max_nodes: pool.spec.placement.max_nodes_per_batch.unwrap_or(MOST_NODES).min(MOST_NODES),
        group: rules::group_policy(pool),
        left: left(pool, class, nodes, catalogue)?,
        ceiling: ceiling(pool, catalogue, nodes)?,
        limits: rules::limits(pool)?,
        capacity_types: rules::capacity_types(pool),
        zones: zones(pool, class, known_zones),
        types,
        object: pool.clone(),
        class: class.cloned(),
        daemons: Arc::clone(daemons),
    })
}

/// What is left of the limits beside the nodes of the dump that carry the pool's label. Of a type that the catalogue does
/// not know, what its node offers is all that is known.
fn left(
    pool: &NodePool,
    class: Option<&EC2NodeClass>,
    nodes: &[Node],
    catalogue: &Catalogue,
) -> Result<BTreeMap<ResourceName, i64>, String> {
    let mut left = rules::limits(pool)?;
    let own = nodes.iter().filter(|node| node.labels.get(keys::NODEPOOL).is_some_and(|of| **of == *name(pool)));
    for node in own {
        let info = node.labels.get(keys::INSTANCE_TYPE).and_then(|name| catalogue.types.get(&**name));
        let capacity = info.map_or_else(|| node.allocatable.clone(), |info| new_node::of_class(class, info).capacity);
        rules::take(&mut left, &capacity, 1);
    }
    Ok(left)
}

/// What is left under the pool's ceiling beside the nodes of the dump that carry its label, at the catalogue's prices.
fn ceiling(pool: &NodePool, catalogue: &Catalogue, nodes: &[Node]) -> Result<Option<CeilingLeft>, String> {
    let Some(ceiling) = rules::max_usd_per_hour(pool)? else { return Ok(None) };
    let own = nodes.iter().filter(|node| node.labels.get(keys::NODEPOOL).is_some_and(|of| **of == *name(pool)));
    let price = |node: &Node| {
        let label = |key: &str| node.labels.get(key).map(|value| &**value).unwrap_or_default();
        let capacity_type = CapacityType::parse(label(keys::CAPACITY_TYPE)).unwrap_or(CapacityType::OnDemand);
        catalogue.prices.price(label(keys::INSTANCE_TYPE), label(keys::ZONE), capacity_type).unwrap_or(0)
    };
    let spent = own.map(price).fold(0, u64::saturating_add);
    Ok(Some(CeilingLeft { scope: CeilingScope::Pool, left: ceiling.saturating_sub(spent), ceiling }))
}

/// Zones of the class's subnets, else those the requirements name, else those of the nodes, else one unknown.
pub(crate) fn zones(pool: &NodePool, class: Option<&EC2NodeClass>, known: &BTreeSet<&str>) -> Vec<Option<String>> {
    let subnets = class.and_then(|class| class.status.as_ref()).map(|status| status.subnets.as_slice());
    let mut zones: BTreeSet<&str> = subnets.unwrap_or_default().iter().map(|subnet| subnet.zone.as_str()).collect();
    if zones.is_empty() {
        let named = rules::of_key(pool, keys::ZONE)
            .filter(|topology_request| topology_request.operator == NodeRequirementOperator::In);
        zones = named.flat_map(|topology_request| topology_request.values.iter().map(String::as_str)).collect();
    }
    if zones.is_empty() {
        zones.clone_from(known);
    }
    if zones.is_empty() && rules::of_key(pool, keys::ZONE).next().is_none() {
        return vec![None];
    }
    zones.into_iter().filter(|zone| rules::allows_zone(pool, zone)).map(|zone| Some(zone.to_owned())).collect()
}
