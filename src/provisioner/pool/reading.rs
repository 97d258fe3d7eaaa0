//! What NodePools name, read from the published state: class, zones, types, and the block of one whose nodes do not join.

use std::collections::BTreeSet;

use kube::ResourceExt;
use muster_api::crd::{EC2NodeClass, JoinBlocked, NodePool};
use muster_api::{keys, new_node, pool as rules, supply};
use muster_core::batch::{Probe, Probes, micros};
use muster_core::ec2::CapacityType;
use muster_core::model::batch::BatchStatus;
use muster_core::model::names::ResourceName;
use muster_core::offering::{InstanceTypeInfo, UsageClass};

use super::allowed::Seen;
use crate::cluster::State;
use crate::provisioner::Context;
use crate::provisioner::catalogue::Catalogue;

/// The class of a pool, if it exists and is ours.
pub(in crate::provisioner) fn class_of<'a>(state: &'a State, pool: &NodePool) -> Option<&'a EC2NodeClass> {
    let reference = &pool.spec.template.spec.node_class_ref;
    (reference.group == keys::GROUP && reference.kind == "EC2NodeClass")
        .then(|| state.classes.get(&reference.name))
        .flatten()
        .map(AsRef::as_ref)
}

/// Nodes that were tried alone under a block.
pub(in crate::provisioner) fn probes(blocked: &JoinBlocked) -> Probes {
    let Some(probes) = &blocked.probes else { return Probes::default() };
    // What cannot be read costs so much that nothing more is tried.
    let read = |text: &str| micros(text).unwrap_or(u64::MAX);
    Probes {
        count: probes.count,
        micro_usd: read(&probes.usd),
        last: Some(Probe {
            batch: probes.batch.clone(),
            attempt: probes.attempt,
            micro_usd: micros(&probes.last_usd).unwrap_or(0),
        }),
    }
}

/// The block of a pool whose nodes do not join, as long as neither it nor its class has changed since.
pub(in crate::provisioner) fn blocked<'a>(state: &State, pool: &'a NodePool) -> Option<&'a JoinBlocked> {
    let blocked = pool.status.as_ref()?.join_blocked.as_ref()?;
    let class = class_of(state, pool).and_then(|class| class.metadata.generation).unwrap_or_default();
    let same =
        blocked.pool_generation == pool.metadata.generation.unwrap_or_default() && blocked.class_generation == class;
    same.then_some(blocked)
}

/// Types the pool allows. Looked for in the whole catalogue only if the pool's spec or the catalogue has changed.
pub(in crate::provisioner) fn allowed<'a>(
    context: &Context,
    pool: &NodePool,
    catalogue: &'a Catalogue,
) -> impl Iterator<Item = &'a InstanceTypeInfo> + use<'a> {
    let seen = Seen {
        uid: pool.uid().unwrap_or_default(),
        generation: pool.metadata.generation.unwrap_or_default(),
        catalogue: catalogue.number,
    };
    let scan = || {
        let allowed = catalogue.types.values().filter(|info| rules::allows_type(pool, info));
        allowed.map(|info| info.name.clone()).collect()
    };
    let names = context.allowed.get(&pool.name_any(), &seen, scan);
    (0..names.len()).filter_map(move |number| catalogue.types.get(names.get(number)?))
}

/// Types the pool allows that the class can launch: with an image, with interfaces that fit, and with devices that come up.
pub(in crate::provisioner) fn instance_types<'a>(
    context: &Context,
    state: &State,
    pool: &NodePool,
    class: &'a EC2NodeClass,
    catalogue: &'a Catalogue,
) -> impl Iterator<Item = &'a InstanceTypeInfo> + use<'a> {
    let blocked = supply::blocked_devices(pool, class, &state.plugins);
    launched(context, pool, class, catalogue).filter(move |info| supply::blocks(&blocked, class, info).is_none())
}

/// Types the pool allows that the class can launch, whatever becomes of their devices.
pub(super) fn launched<'a>(
    context: &Context,
    pool: &NodePool,
    class: &'a EC2NodeClass,
    catalogue: &'a Catalogue,
) -> impl Iterator<Item = &'a InstanceTypeInfo> + use<'a> {
    allowed(context, pool, catalogue).filter(move |info| supply::launches(class, info))
}

/// Types that some pool may provision on spot, in order of name.
pub(in crate::provisioner) fn spot_types(context: &Context, state: &State) -> Vec<String> {
    let catalogue = context.catalogue.load();
    let pools = state.pools.values().filter(|pool| rules::capacity_types(pool).contains(&CapacityType::Spot));
    let types: BTreeSet<String> = pools
        .flat_map(|pool| allowed(context, pool, &catalogue))
        .filter(|info| info.usage_classes.contains(&UsageClass::Spot))
        .map(|info| info.name.clone())
        .collect();
    types.into_iter().collect()
}

/// Zones that the pool allows and in which its class has subnets.
pub(in crate::provisioner) fn zones(state: &State, pool: &NodePool) -> BTreeSet<String> {
    supply::zones(pool, class_of(state, pool))
}

/// Extended resources every node of a batch must offer before a member can use it: those its launch template was made for.
pub(in crate::provisioner) fn devices(
    context: &Context,
    state: &State,
    status: &BatchStatus,
) -> Vec<(ResourceName, i64)> {
    let catalogue = context.catalogue.load();
    let Some(info) = status.instance_type.as_ref().and_then(|name| catalogue.types.get(name)) else {
        return Vec::new();
    };
    let pool = status.node_pool.as_ref().and_then(|name| state.pools.get(name));
    new_node::of_class(pool.and_then(|pool| class_of(state, pool)), info).devices()
}
