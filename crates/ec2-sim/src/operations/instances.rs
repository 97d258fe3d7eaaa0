//! DescribeInstances, TerminateInstances, CreateTags.

use std::collections::BTreeSet;

use jiff::Timestamp;

use crate::operations::filters::{Filters, page};
use crate::operations::{Call, Reply, fleets};
use crate::protocol::error::ApiError;
use crate::protocol::xml::Xml;
use crate::state::World;
use crate::state::instances::{BY_USER, Instance, LifeState};
use crate::throttle::Bucket;

const FILTERS: [&str; 12] = [
    "availability-zone",
    "availability-zone-id",
    "capacity-reservation-id",
    "client-token",
    "image-id",
    "instance-id",
    "instance-lifecycle",
    "instance-state-name",
    "instance-type",
    "placement-group-name",
    "subnet-id",
    "vpc-id",
];

pub(super) fn describe(world: &mut World, call: &Call<'_>) -> Result<Reply, ApiError> {
    let filters = Filters::parse(call.form, &FILTERS)?;
    let ids = call.form.list("InstanceId");
    if !ids.is_empty() && call.form.get("MaxResults").is_some() {
        return Err(ApiError::client(
            "InvalidParameterCombination",
            "The parameter instancesSet cannot be used with the parameter maxResults",
        ));
    }
    check_ids(world, &ids, call.now)?;
    let world = &*world;
    let now = call.read_at();
    let vpc = world.scenario.vpc.as_str();
    let mut found: Vec<&Instance> = world
        .instances
        .values()
        .filter(|i| described(world, i, now))
        .filter(|i| ids.is_empty() || ids.contains(&i.id))
        .filter(|i| {
            filters.pass(i.seen_tags(now), |filter| match filter {
                "availability-zone" => Some(&i.zone),
                "availability-zone-id" => Some(&i.zone_id),
                "client-token" => i.token.as_deref(),
                "image-id" => Some(&i.image),
                "instance-id" => Some(&i.id),
                "instance-lifecycle" => i.lifecycle(),
                "instance-state-name" => Some(i.state(now).name()),
                "instance-type" => Some(&i.instance_type),
                "placement-group-name" => i.group.as_deref(),
                "subnet-id" => Some(&i.subnet),
                "capacity-reservation-id" => i.capacity_reservation.as_deref(),
                "vpc-id" => Some(vpc),
                _ => None,
            })
        })
        .collect();
    found.sort_by(|a, b| {
        let key = |i: &Instance| (i.launched_at, i.reservation.clone(), i.launch_index);
        key(a).cmp(&key(b))
    });
    let (found, next) = page(call.form, found, 5..=1000, None)?;
    let mut reservations: Vec<(&str, Vec<&Instance>)> = Vec::new();
    for instance in found {
        match reservations.last_mut() {
            Some((id, members)) if *id == instance.reservation => members.push(instance),
            _ => reservations.push((&instance.reservation, vec![instance])),
        }
    }
    let mut xml = Xml::new();
    xml.list("reservationSet", reservations, |xml, (id, members)| {
        xml.text("reservationId", id);
        xml.text("ownerId", &world.scenario.account);
        xml.list("instancesSet", members, |xml, i| write(xml, world, i, now));
    });
    xml.optional("nextToken", next.as_deref());
    Ok(Reply::of(xml))
}

pub(super) fn terminate(world: &mut World, call: &Call<'_>) -> Result<Reply, ApiError> {
    let ids = call.form.list("InstanceId");
    if ids.is_empty() {
        return Err(ApiError::missing("InstanceId"));
    }
    check_ids(world, &ids, call.now)?;
    if let Some(bucket) = Bucket::of_instances("TerminateInstances") {
        let count = u32::try_from(ids.len()).unwrap_or(u32::MAX);
        if !world.buckets.draw(bucket, f64::from(count), call.now) {
            return Err(ApiError::throttled());
        }
    }
    let slower = fleets::slower(call);
    // None in the zone of a protected one is terminated, those in other zones are.
    let zone = |world: &World, id: &String| world.instances.get(id).map(|instance| instance.zone.clone());
    let protected = ids.iter().find(|id| world.protected.contains(*id)).cloned();
    let spared: BTreeSet<String> =
        ids.iter().filter(|id| world.protected.contains(*id)).filter_map(|id| zone(world, id)).collect();
    let mut xml = Xml::new();
    let mut reply = Reply::default();
    let mut changes = Vec::new();
    let (ids, _kept): (Vec<String>, Vec<String>) =
        ids.into_iter().partition(|id| zone(world, id).is_none_or(|zone| !spared.contains(&zone)));
    for id in ids {
        let state = |world: &World| world.instances.get(&id).map_or(LifeState::Terminated, |i| i.state(call.now));
        let before = state(world);
        if world.terminate(&id, BY_USER, slower, call.now) {
            reply.resources.push(id.clone());
        }
        let after = state(world);
        changes.push((id, before, after));
    }
    if let Some(id) = protected {
        let message = format!(
            "The instance '{id}' may not be terminated. Modify its 'disableApiTermination' instance attribute and try \
             again."
        );
        return Err(ApiError::client("OperationNotPermitted", message));
    }
    xml.list("instancesSet", &changes, |xml, (id, before, after)| {
        xml.text("instanceId", id);
        write_state(xml, "currentState", *after);
        write_state(xml, "previousState", *before);
    });
    reply.members = xml;
    Ok(reply)
}

pub(super) fn create_tags(world: &mut World, call: &Call<'_>) -> Result<Reply, ApiError> {
    let ids = call.form.list("ResourceId");
    for name in ["ResourceId", "Tag"] {
        if !call.form.has(name) {
            return Err(ApiError::missing(name));
        }
    }
    let instances: Vec<String> = ids.iter().filter(|id| id.starts_with("i-")).cloned().collect();
    check_ids(world, &instances, call.now)?;
    let tags = call.form.tags();
    let mut reply = Reply::success();
    for id in ids {
        let target = if let Some(instance) = world.instances.get_mut(&id) {
            Some(&mut instance.tags)
        } else if let Some(template) = world.templates.get_mut(&id) {
            Some(&mut template.tags)
        } else if let Some(fleet) = world.fleets.get_mut(&id) {
            Some(&mut fleet.tags)
        } else {
            world.groups.values_mut().find(|g| g.id == id).map(|g| &mut g.tags)
        };
        let target = target.ok_or_else(|| ApiError::client("InvalidID", format!("The ID '{id}' is not valid")))?;
        target.extend(tags.clone());
        reply.resources.push(id);
    }
    Ok(reply)
}

/// Whether Describe calls show an instance: it has become visible and is not long gone.
pub(super) fn described(world: &World, instance: &Instance, now: Timestamp) -> bool {
    let shown = crate::clock::seconds(world.scenario.delays.terminated_visible_seconds);
    let gone = instance.terminated_at.is_some_and(|at| crate::clock::later(at, shown) <= now);
    instance.visible_at <= now && !gone
}

/// # Errors
/// `InvalidInstanceID.Malformed`, or `InvalidInstanceID.NotFound` naming every id that is unknown
/// or not visible yet.
pub(super) fn check_ids(world: &World, ids: &[String], now: Timestamp) -> Result<(), ApiError> {
    if let Some(id) = ids.iter().find(|id| !id.starts_with("i-")) {
        return Err(ApiError::client("InvalidInstanceID.Malformed", format!("Invalid id: \"{id}\"")));
    }
    let unknown: Vec<&str> = ids
        .iter()
        .filter(|id| !world.instances.get(*id).is_some_and(|i| described(world, i, now)))
        .map(String::as_str)
        .collect();
    match unknown.as_slice() {
        [] => Ok(()),
        [id] => Err(ApiError::client("InvalidInstanceID.NotFound", format!("The instance ID '{id}' does not exist"))),
        several => Err(ApiError::client(
            "InvalidInstanceID.NotFound",
            format!("The instance IDs '{}' do not exist", several.join(", ")),
        )),
    }
}

pub(super) fn write_state(xml: &mut Xml, name: &str, state: LifeState) {
    xml.node(name, |xml| {
        xml.number("code", state.code());
        xml.text("name", state.name());
    });
}

/// The members of one instance.
pub(super) fn write(xml: &mut Xml, world: &World, i: &Instance, now: Timestamp) {
    let state = i.state(now);
    let scenario = &world.scenario;
    xml.text("instanceId", &i.id);
    xml.text("imageId", &i.image);
    write_state(xml, "instanceState", state);
    if !state.is_live()
        && let Some((code, message)) = &i.reason
    {
        xml.node("stateReason", |xml| {
            xml.text("code", code);
            xml.text("message", message);
        });
    }
    // EC2 shows neither name nor address once the instance is gone.
    if state != LifeState::Terminated {
        xml.text("privateDnsName", &i.private_dns);
        xml.text("privateIpAddress", &i.private_ip.to_string());
        let ipv6 = i.interfaces.iter().find_map(|interface| interface.ipv6.first());
        xml.optional("ipv6Address", ipv6.map(ToString::to_string).as_deref());
        xml.text("subnetId", &i.subnet);
        xml.text("vpcId", &scenario.vpc);
    }
    xml.number("amiLaunchIndex", i.launch_index);
    // The time of its end is in a text, and only where somebody asked for the end.
    let asked = i.reason.as_ref().is_some_and(|(code, _)| code == BY_USER.0);
    let ended = i.shutdown_at.filter(|_| asked && !state.is_live());
    let reason = ended.map(|at| format!("User initiated ({})", at.strftime("%Y-%m-%d %H:%M:%S GMT")));
    xml.text("reason", reason.as_deref().unwrap_or_default());
    xml.text("instanceType", &i.instance_type);
    xml.time("launchTime", i.launched_at);
    xml.node("placement", |xml| {
        xml.text("availabilityZone", &i.zone);
        xml.text("availabilityZoneId", &i.zone_id);
        xml.optional("groupName", i.group.as_deref());
        xml.optional("groupId", i.group_id.as_deref());
        xml.text("tenancy", "default");
    });
    xml.optional("instanceLifecycle", i.lifecycle());
    xml.optional("spotInstanceRequestId", i.spot_request.as_deref());
    xml.optional("clientToken", i.token.as_deref());
    xml.optional("capacityReservationId", i.capacity_reservation.as_deref());
    xml.node("capacityReservationSpecification", |xml| {
        xml.optional("capacityReservationPreference", i.preference);
        if let Some(target) = &i.target {
            xml.node("capacityReservationTarget", |xml| xml.text("capacityReservationId", target));
        }
    });
    let group_name = |id: &str| {
        let group = scenario.security_groups.iter().find(|g| g.id == id);
        group.map_or_else(String::new, |g| g.name.clone())
    };
    let interfaces = if state == LifeState::Terminated { &[][..] } else { &i.interfaces };
    xml.list("networkInterfaceSet", interfaces, |xml, interface| {
        xml.text("networkInterfaceId", &interface.id);
        xml.text("interfaceType", interface.kind.name());
        xml.text("subnetId", &i.subnet);
        xml.text("vpcId", &scenario.vpc);
        xml.text("status", "in-use");
        let address = interface.address.map(|ip| ip.to_string());
        xml.optional("privateIpAddress", address.as_deref());
        if !interface.ipv6.is_empty() {
            xml.list("ipv6AddressesSet", interface.ipv6.iter().enumerate(), |xml, (index, address)| {
                xml.text("ipv6Address", &address.to_string());
                xml.flag("isPrimaryIpv6", interface.primary_ipv6 && index == 0);
            });
        }
        xml.node("attachment", |xml| {
            xml.number("deviceIndex", interface.device);
            xml.number("networkCardIndex", interface.card);
            xml.text("status", "attached");
        });
    });
    xml.tags(i.seen_tags(now));
    xml.list("groupSet", &i.security_groups, |xml, id| {
        xml.text("groupId", id);
        xml.text("groupName", &group_name(id));
    });
}
