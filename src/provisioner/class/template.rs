//! The launch template of an attempt: everything its nodes have in common.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::SignedDuration;
use muster_api::crd::{EC2NodeClass, EC2NodeClassStatus, NodePool};
use muster_api::{keys, new_node, node_class, pool as rules, supply};
use muster_core::ec2::{
    BatchTags, Bootstrap, CapacityType, LaunchWay, ResourceKind, TAG_CLUSTER_UID, Tags, TemplateSpec,
    description as described, user_data,
};
use muster_core::model::batch::{Attempt, Batch, BatchStatus, Owner};
use muster_core::model::node::{Taint, TaintEffect};
use muster_core::offering::{InstanceTypeInfo, NewNode};
use muster_core::topology::beside_zone;

use crate::cluster::State;
use crate::provisioner::{Context, pool};

/// The image of an attempt: that of the class now. It is fixed with the attempt, so that later replacements boot it too.
///
/// Errors: why there is none, for a person.
pub(in crate::provisioner) fn image(
    context: &Context,
    state: &State,
    node_pool: &str,
    instance_type: &str,
) -> Result<String, String> {
    let pool = state.pools.get(node_pool).ok_or_else(|| format!("NodePool {node_pool} is gone"))?;
    let of_pool =
        pool::class_of(state, pool).ok_or_else(|| format!("the EC2NodeClass of NodePool {node_pool} is gone"))?;
    let catalogue = context.catalogue.load();
    let info = catalogue.types.get(instance_type).ok_or_else(|| format!("type {instance_type} is not known"))?;
    let image = of_pool.status.as_ref().and_then(|resolved| supply::image(resolved, info));
    image.map(str::to_owned).ok_or_else(|| "the image of the EC2NodeClass is not resolved yet".to_owned())
}

/// The launch template of an attempt. Errors: why the class cannot be used, for a person.
pub(in crate::provisioner) fn template(
    context: &Context,
    batch: &Batch,
    state: &State,
    attempt: &Attempt,
) -> Result<TemplateSpec, String> {
    let pool: &NodePool =
        state.pools.get(&attempt.node_pool).ok_or_else(|| format!("NodePool {} is gone", attempt.node_pool))?;
    let class = pool::class_of(state, pool).ok_or_else(|| {
        format!(
            "EC2NodeClass {} of NodePool {} is gone",
            pool.spec.template.spec.node_class_ref.name, attempt.node_pool
        )
    })?;
    // The EC2NodeClass may still be Ready from a former leader, who knew more of the cluster.
    if let Some(why) = context.options.way.load().problem_for(class) {
        return Err(format!("ClusterAccess: {why}"));
    }
    let resolved = class.status.clone().unwrap_or_default();
    let image_id = match &attempt.image {
        Some(image) => image.clone(),
        None => image(context, state, &attempt.node_pool, &attempt.instance_type)?,
    };
    let catalogue = context.catalogue.load();
    let info = catalogue
        .types
        .get(&attempt.instance_type)
        .ok_or_else(|| format!("instance type {} is not known", attempt.instance_type))?;
    let tags = tags(context, batch, attempt.number);
    let pending = batch.spec.owner.object().map(|owner| owner.uid.clone()).unwrap_or_default();
    let mut new = in_zone(pool, class, info, &attempt.zone, attempt.capacity_type)?;
    // Of several types a node is labelled with what they have in common; the rest is written once it is known which it is.
    for one in &attempt.overrides {
        let info = catalogue
            .types
            .get(&one.instance_type)
            .ok_or_else(|| format!("instance type {} is not known", one.instance_type))?;
        let other = in_zone(pool, class, info, &one.zone, attempt.capacity_type)?;
        new.node.labels.retain(|key, value| other.node.labels.get(key) == Some(value));
    }
    new.node.taints.extend(rules::startup_taints(pool)?);
    new.node.taints.push(match batch.spec.owner {
        Owner::Gang(_) | Owner::Request(_) => {
            Taint { key: keys::GANG_PENDING.into(), value: pending.into(), effect: TaintEffect::NoSchedule }
        }
        // Any pod may use it, once it is known whose it is.
        Owner::Pods => Taint { key: keys::UNREGISTERED.into(), value: "".into(), effect: TaintEffect::NoExecute },
    });
    let labels = &mut new.node.labels;
    for (key, value) in [
        (keys::BATCH, tags.batch_uid.clone()),
        (keys::GANG_UID, tags.gang_uid.clone().unwrap_or_default()),
        (keys::ATTEMPT, attempt.number.to_string()),
        (keys::CAPACITY_TYPE, attempt.capacity_type.as_str().to_owned()),
        (
            keys::CAPACITY_RESERVATION_ID,
            attempt.reservation.as_ref().map(|target| target.id.clone()).unwrap_or_default(),
        ),
    ] {
        if !value.is_empty() {
            labels.insert(key.into(), value.into());
        }
    }
    let security_groups = &resolved.security_groups;
    let described = description(context, state, batch, attempt);
    let capacity_type = attempt.capacity_type;
    let power_off_after = power_off_after(pool);
    let common = Common { class, new: &new, image_id, security_groups, capacity_type, described, power_off_after };
    let mut spec = assemble(context, &common, &tags)?;
    spec.template_tags = common.described;
    spec.template_tags.extend(tags.of(ResourceKind::LaunchTemplate));
    // A fleet takes the subnet in its override, RunInstances in the interfaces alone.
    spec.subnet_id = (attempt.way == LaunchWay::Run).then(|| attempt.subnet.clone());
    Ok(spec)
}

/// The node that a type of the pool becomes in a zone, with the labels that are its kubelet's to report, or Muster's: not those of the
/// cloud controller and the EBS driver.
fn in_zone(
    pool: &NodePool,
    class: &EC2NodeClass,
    info: &InstanceTypeInfo,
    zone: &str,
    capacity_type: CapacityType,
) -> Result<NewNode, String> {
    let place = new_node::Place { zone: Some(zone), capacity_type: Some(capacity_type), ..new_node::Place::default() };
    let mut new = new_node::of_pool(pool, Some(class), info, place, &[])?;
    let own = rules::labels(pool);
    new.node.labels.retain(|key, _| own.contains_key(key) || beside_zone(zone).all(|(other, _)| other != &**key));
    Ok(new)
}

/// Whether nodes of two types of a pool are launched from the same template, but for the labels in which they differ.
pub(in crate::provisioner) fn is_shared(
    context: &Context,
    state: &State,
    node_pool: &str,
    one: &str,
    other: &str,
) -> bool {
    let catalogue = context.catalogue.load();
    let launched = |instance_type: &str| {
        let pool = state.pools.get(node_pool)?;
        let class = pool::class_of(state, pool)?;
        let new = new_node::of_class(Some(class), catalogue.types.get(instance_type)?);
        Some((image(context, state, node_pool, instance_type).ok()?, new.interfaces_in(&[]), new.max_pods))
    };
    launched(one).is_some_and(|template| launched(other).is_some_and(|other| other == template))
}

/// The labels that nodes of a batch register with where their template is for one type in one zone; none where pool, class or type are
/// gone. `None`: EC2 has not been asked for its types yet.
pub(in crate::provisioner) fn labels(
    context: &Context,
    state: &State,
    status: &BatchStatus,
) -> Option<BTreeMap<Arc<str>, Arc<str>>> {
    if context.catalogue.load().types.is_empty() {
        return None;
    }
    let of = || {
        let pool = state.pools.get(status.node_pool.as_deref()?)?;
        let class = pool::class_of(state, pool)?;
        let catalogue = context.catalogue.load();
        let info = catalogue.types.get(status.instance_type.as_deref()?)?;
        let new = in_zone(pool, class, info, status.zone.as_deref()?, status.capacity_type?).ok()?;
        Some(rules::registered(&new.node.labels))
    };
    Some(of().unwrap_or_default())
}

/// The launch template a class is tried out with: of no batch, and nothing is launched from it.
///
/// Errors: why the class cannot be used, for a person.
pub(in crate::provisioner) fn trial(
    context: &Context,
    (class, resolved): (&EC2NodeClass, &EC2NodeClassStatus),
    pool: &NodePool,
    info: &InstanceTypeInfo,
    subnet: &str,
    tags: &BatchTags,
) -> Result<TemplateSpec, String> {
    let image_id = supply::image(resolved, info).ok_or("the image of the EC2NodeClass is not resolved yet")?.to_owned();
    let new = new_node::of_pool(pool, Some(class), info, new_node::Place::default(), &[])?;
    let security_groups = &resolved.security_groups;
    // Dry runs are for on-demand capacity.
    let capacity_type = CapacityType::OnDemand;
    let described = class.spec.tags.clone();
    let power_off_after = power_off_after(pool);
    let common = Common { class, new: &new, image_id, security_groups, capacity_type, described, power_off_after };
    let mut spec = assemble(context, &common, tags)?;
    spec.template_tags = Tags::from([(TAG_CLUSTER_UID.to_owned(), context.options.cluster_uid.clone())]);
    spec.subnet_id = Some(subnet.to_owned());
    Ok(spec)
}

/// What everything made for an attempt is tagged with beside what makes it ours: what it is for, and what its class adds.
pub(in crate::provisioner) fn description(context: &Context, state: &State, batch: &Batch, attempt: &Attempt) -> Tags {
    let gang = match &batch.spec.owner {
        Owner::Gang(owner) => Some((owner.key.namespace.as_ref(), owner.key.name.as_ref())),
        Owner::Request(_) | Owner::Pods => None,
    };
    let mut tags = described(&context.cluster_name(), &attempt.node_pool, gang);
    let class = state.pools.get(&attempt.node_pool).and_then(|pool| pool::class_of(state, pool));
    tags.extend(class.map(|class| class.spec.tags.clone()).unwrap_or_default());
    tags
}

/// The tags of everything an attempt makes.
fn tags(context: &Context, batch: &Batch, attempt: u32) -> BatchTags {
    BatchTags {
        cluster_uid: context.options.cluster_uid.clone(),
        cluster_name: context.cluster_name(),
        batch_uid: batch.uid.clone(),
        gang_uid: batch.spec.owner.gang_uid().map(str::to_owned),
        attempt,
    }
}

/// What a template is made of.
struct Common<'a> {
    class: &'a EC2NodeClass,
    new: &'a NewNode,
    image_id: String,
    security_groups: &'a [String],
    capacity_type: CapacityType,
    described: Tags,
    power_off_after: Option<u64>,
}

/// After how many seconds a node of the pool that never registered ends itself: later than Muster would end it, and earlier
/// than five minutes after that, since a launch begins before the machine does. A pool that waits for ever has no such node.
fn power_off_after(pool: &NodePool) -> Option<u64> {
    let within = pool::duration(&pool.spec.join.register_within)?;
    u64::try_from(within.saturating_add(POWER_OFF_LATER).as_secs()).ok()
}

/// See [`power_off_after`].
const POWER_OFF_LATER: SignedDuration = SignedDuration::from_mins(4);

fn assemble(context: &Context, common: &Common<'_>, tags: &BatchTags) -> Result<TemplateSpec, String> {
    let Common { class, new, image_id, security_groups, capacity_type, described, power_off_after } = common;
    let access = context.options.way.load().access.clone();
    let primary_ipv6 = access.is_ipv6();
    let mut kubelet = node_class::kubelet(class)?;
    // What it was planned with.
    kubelet.max_pods = kubelet.max_pods.or(new.max_pods);
    let bootstrap = Bootstrap {
        cluster: access,
        labels: rules::registered(&new.node.labels),
        taints: new.node.taints.clone(),
        kubelet,
        local_storage_raid0: node_class::local_storage_raid0(class),
        user_data: class.spec.user_data.clone().unwrap_or_default(),
        power_off_after: *power_off_after,
    };
    let user_data =
        user_data(node_class::family(class), &bootstrap).map_err(|error| format!("{}: {error}", error.field()))?;
    let mut resource_tags = described.clone();
    resource_tags.extend(tags.of(ResourceKind::Instance));
    Ok(TemplateSpec {
        image_id: image_id.clone(),
        instance_profile: node_class::instance_profile(class),
        network_interfaces: new.interfaces_in(security_groups),
        subnet_id: None,
        public_address: class.spec.associate_public_ip_address,
        primary_ipv6,
        metadata: node_class::metadata(class),
        user_data,
        block_devices: node_class::block_devices(class),
        detailed_monitoring: class.spec.detailed_monitoring.unwrap_or(false),
        capacity_type: *capacity_type,
        template_tags: Tags::new(),
        resource_tags,
    })
}
