//! DescribeCapacityReservations, CreateCapacityReservation, CancelCapacityReservation,
//! DescribeCapacityReservationTopology; and what a launch says about reservations.

use jiff::Timestamp;

use crate::capacity::{Want, path};
use crate::fixtures::InstanceType;
use crate::kinds::{MarketType, Matching, ReservationKind, Strategy};
use crate::launch::order::Source;
use crate::operations::filters::{Filters, page};
use crate::operations::launch_templates::mismatch;
use crate::operations::named::{check_token, find_type};
use crate::operations::{Call, Reply};
use crate::protocol::error::ApiError;
use crate::protocol::form::Form;
use crate::protocol::xml::Xml;
use crate::state::World;
use crate::state::reservations::{Reservation, ReservationState, Slot};
use crate::state::tokens::TokenUse;

/// Reservations per DescribeCapacityReservationTopology.
const TOPOLOGY_LIMIT: usize = 10;

pub(super) fn describe(world: &mut World, call: &Call<'_>) -> Result<Reply, ApiError> {
    let known = [
        "instance-type",
        "owner-id",
        "instance-platform",
        "availability-zone",
        "availability-zone-id",
        "tenancy",
        "state",
        "end-date-type",
        "instance-match-criteria",
        "placement-group-arn",
    ];
    let filters = Filters::parse(call.form, &known)?;
    let ids = call.form.list("CapacityReservationId");
    for id in &ids {
        find(world, id)?;
    }
    let world = &*world;
    let found: Vec<&Reservation> = world
        .reservations
        .values()
        .filter(|r| ids.is_empty() || ids.contains(&r.id))
        .filter(|r| {
            let group = group_arn(world, r);
            filters.pass(&r.tags, |filter| match filter {
                "instance-type" => Some(&r.instance_type),
                "owner-id" => Some(&world.scenario.account),
                "instance-platform" => Some(PLATFORM),
                "availability-zone" => Some(&r.zone),
                "availability-zone-id" => Some(world.scenario.zone_id(&r.zone)),
                "tenancy" => Some("default"),
                "state" => Some(r.state(call.now).name()),
                "end-date-type" => Some(end_type(r)),
                "instance-match-criteria" => Some(r.matching.name()),
                "placement-group-arn" => group.as_deref(),
                _ => None,
            })
        })
        .collect();
    let (found, next) = page(call.form, found, 1..=1000, None)?;
    let mut xml = Xml::new();
    xml.list("capacityReservationSet", found, |xml, r| write(xml, world, r, call.now));
    xml.optional("nextToken", next.as_deref());
    Ok(Reply::of(xml))
}

pub(super) fn create(world: &mut World, call: &Call<'_>) -> Result<Reply, ApiError> {
    const OPERATION: &str = "CreateCapacityReservation";
    let form = call.form;
    let refusal = world.scenario.choices.refusal.code();
    if let Some(token) = form.get("ClientToken") {
        check_token(token)?;
        let life = world.scenario.choices.token_life_seconds;
        if let Some(used) = world.tokens.find(OPERATION, "", token, life, call.now) {
            if used.parameters != form.identity() {
                return Err(mismatch());
            }
            if let Some(reservation) = world.reservations.get(&used.made) {
                return Ok(Reply { replayed: true, ..answer(world, reservation, call.now) });
            }
        }
    }
    let instance_type = find_type(form.required("InstanceType")?)?;
    let platform = form.required("InstancePlatform")?;
    if platform != PLATFORM {
        return Err(ApiError::value("InstancePlatform", platform));
    }
    let zone = zone(world, form)?;
    let count = form.number("InstanceCount")?.ok_or_else(|| ApiError::missing("InstanceCount"))?;
    if count == 0 || count > 1000 {
        return Err(ApiError::value("InstanceCount", &count.to_string()));
    }
    let end = match (form.get("EndDateType").unwrap_or("unlimited"), form.get("EndDate")) {
        ("unlimited", None) => None,
        ("limited", Some(at)) => {
            let end: Timestamp = at.parse().map_err(|_| ApiError::value("EndDate", at))?;
            if end <= call.now {
                return Err(ApiError::value("EndDate", at));
            }
            Some(end)
        }
        ("unlimited" | "limited", _) => {
            return Err(ApiError::client(refusal, "EndDate is given exactly when EndDateType is limited"));
        }
        (other, _) => return Err(ApiError::value("EndDateType", other)),
    };
    let matching = match form.get("InstanceMatchCriteria").unwrap_or("open") {
        "open" => Matching::Open,
        "targeted" => Matching::Targeted,
        other => return Err(ApiError::value("InstanceMatchCriteria", other)),
    };
    let group = form.get("PlacementGroupArn").map(|arn| group_of(world, arn, instance_type)).transpose()?;
    if !world.offered(&instance_type.name, &zone) {
        return Err(ApiError::client(
            "Unsupported",
            format!("The instance type {} is not supported in {zone}.", instance_type.name),
        ));
    }
    let capacity = world.quota_left(&instance_type.name, instance_type.vcpus, MarketType::OnDemand, call.now);
    if capacity.is_some_and(|capacity| capacity < count) {
        return Err(ApiError::client("InstanceLimitExceeded", "Your quota does not allow for any more instances."));
    }
    let pin = group.as_ref().and_then(|name| world.groups.get(name)).and_then(|g| g.pin.clone());
    let most = call.drawn.of_pool(&instance_type.name, &zone, MarketType::OnDemand).filter_map(|k| k.fill()).min();
    let hosts = world.capacity.take(&Want {
        instance_type: &instance_type.name,
        zone: &zone,
        capacity_type: MarketType::OnDemand,
        cluster: group.is_some(),
        pin: pin.as_ref(),
        count: count.min(most.unwrap_or(count)),
    });
    if hosts.len() < count as usize {
        for host in &hosts {
            world.capacity.release(host);
        }
        return Err(ApiError::no_capacity(&instance_type.name, &zone));
    }
    let id = world.ids.resource("cr");
    let mut tags = form.tags_of("TagSpecifications", "capacity-reservation");
    tags.extend(form.tags_for("capacity-reservation"));
    world.add_reservation(Reservation {
        id: id.clone(),
        instance_type: instance_type.name.clone(),
        zone,
        kind: ReservationKind::OnDemand,
        matching,
        group,
        tags,
        created_at: call.now,
        start: None,
        end,
        cancelled_at: None,
        slots: hosts.into_iter().map(|host| Slot { host, taken: false }).collect(),
        foreign: false,
        ended: false,
    });
    if let Some(token) = form.get("ClientToken") {
        let used = TokenUse { parameters: form.identity(), made: id.clone(), at: call.now };
        world.tokens.store(OPERATION, "", token, used);
    }
    let reservation = find(world, &id)?;
    Ok(answer(world, reservation, call.now).about(id))
}

pub(super) fn cancel(world: &mut World, call: &Call<'_>) -> Result<Reply, ApiError> {
    let id = call.form.required("CapacityReservationId")?;
    let reservation = find(world, id)?;
    let cancellable = match reservation.state(call.now) {
        ReservationState::Active => reservation.kind == ReservationKind::OnDemand,
        ReservationState::Scheduled | ReservationState::Expired | ReservationState::Cancelled => false,
    };
    if !cancellable {
        return Err(ApiError::client(
            "InvalidCapacityReservationState",
            format!("The capacity reservation {id} cannot be cancelled in its state"),
        ));
    }
    if let Some(reservation) = world.reservations.get_mut(id) {
        reservation.cancelled_at = Some(call.now);
    }
    world.settle(call.now);
    Ok(Reply::success().about(id))
}

pub(super) fn topology(world: &mut World, call: &Call<'_>) -> Result<Reply, ApiError> {
    let filters = Filters::parse(call.form, &["availability-zone", "instance-type"])?;
    let ids = call.form.list("CapacityReservationId");
    if ids.len() > TOPOLOGY_LIMIT {
        return Err(ApiError::client("InvalidParameterValue", format!("At most {TOPOLOGY_LIMIT} may be specified")));
    }
    for id in &ids {
        find(world, id)?;
    }
    let world = &*world;
    let none = std::collections::BTreeMap::new();
    let found: Vec<&Reservation> = world
        .reservations
        .values()
        .filter(|r| ids.is_empty() || ids.contains(&r.id))
        .filter(|r| matches!(r.state(call.now), ReservationState::Active | ReservationState::Scheduled))
        .filter(|r| {
            filters.pass(&none, |filter| match filter {
                "availability-zone" => Some(&r.zone),
                "instance-type" => Some(&r.instance_type),
                _ => None,
            })
        })
        .collect();
    let (found, next) = page(call.form, found, 1..=10, Some(10))?;
    let mut xml = Xml::new();
    xml.list("capacityReservationSet", found, |xml, r| {
        xml.text("capacityReservationId", &r.id);
        xml.text("state", r.state(call.now).name());
        xml.text("instanceType", &r.instance_type);
        xml.optional("groupName", r.group.as_deref());
        let nodes = nodes(world, r);
        xml.values("networkNodeSet", nodes.iter().map(String::as_str));
        xml.text("availabilityZoneId", world.scenario.zone_id(&r.zone));
        xml.text("availabilityZone", &r.zone);
    });
    xml.optional("nextToken", next.as_deref());
    Ok(Reply::of(xml))
}

/// The network nodes above all hosts of a reservation: the spine too where they share one, and the leaf.
fn nodes(world: &World, r: &Reservation) -> Vec<String> {
    if InstanceType::find(&r.instance_type).is_none_or(|t| t.layers == 0) {
        return vec![];
    }
    let paths: Vec<[String; 3]> =
        r.slots.iter().map(|s| path(world.scenario.seed, &r.instance_type, &r.zone, &s.host)).collect();
    let Some(first) = paths.first() else { return vec![] };
    let shared = (0..3).take_while(|layer| paths.iter().all(|p| p[*layer] == first[*layer])).count();
    first[..shared].to_vec()
}

/// # Errors
/// `InvalidCapacityReservationId.Malformed` or `.NotFound`.
pub(super) fn find<'a>(world: &'a World, id: &str) -> Result<&'a Reservation, ApiError> {
    if !id.starts_with("cr-") {
        return Err(ApiError::client("InvalidCapacityReservationId.Malformed", format!("Invalid id: \"{id}\"")));
    }
    world.reservations.get(id).ok_or_else(|| {
        ApiError::client(
            "InvalidCapacityReservationId.NotFound",
            format!("The capacity reservation ID '{id}' does not exist"),
        )
    })
}

/// Where a launch's hosts may come from, by its `CapacityReservationSpecification`; `open` is what no word about it
/// means.
///
/// # Errors
/// The refusals of a bad reservation, or of words that contradict each other.
pub(super) fn source(world: &World, data: &Form, capacity_type: MarketType, open: Source) -> Result<Source, ApiError> {
    let refuse = |message: &str| Err(ApiError::client(world.scenario.choices.refusal.code(), message));
    let stated = data.sub("CapacityReservationSpecification");
    let preference = stated.get("CapacityReservationPreference");
    if stated.has("CapacityReservationTarget.CapacityReservationResourceGroupArn") {
        return refuse("The simulator does not play resource groups of capacity reservations");
    }
    let reserved_capacity_type = match capacity_type {
        MarketType::CapacityBlock | MarketType::InterruptibleReservation => true,
        MarketType::OnDemand | MarketType::Spot => false,
    };
    let Some(target) = stated.get("CapacityReservationTarget.CapacityReservationId") else {
        return match (capacity_type, preference) {
            (MarketType::Spot, None | Some("open" | "none")) => Ok(Source::Pool),
            (MarketType::Spot, Some(_)) => refuse("Spot instances do not run in capacity reservations"),
            _ if reserved_capacity_type => refuse("This capacity type requires the id of a capacity reservation"),
            (_, None | Some("open")) => Ok(open),
            (_, Some("none")) => Ok(Source::Pool),
            (_, Some("capacity-reservations-only")) => Ok(Source::ReservationsOnly),
            (_, Some(other)) => Err(ApiError::value("CapacityReservationPreference", other)),
        };
    };
    if preference.is_some_and(|p| p != "capacity-reservations-only") {
        return refuse("CapacityReservationPreference and CapacityReservationTarget exclude each other");
    }
    let reservation = find(world, target)?;
    if reservation.kind.capacity_type() != capacity_type {
        return Err(ApiError::client(
            world.scenario.choices.refusal.code(),
            format!("The capacity reservation {target} does not take the capacity type {}", capacity_type.name()),
        ));
    }
    Ok(Source::Targets { ids: vec![target.to_owned()], fallback: false })
}

/// Whether a targeted launch of RunInstances may be tried at all.
///
/// # Errors
/// What EC2 says of a reservation that cannot be launched into.
pub(super) fn check_target(
    world: &World,
    source: &Source,
    instance_type: &str,
    zone: &str,
    group: Option<&String>,
    now: Timestamp,
) -> Result<(), ApiError> {
    let Source::Targets { ids, .. } = source else { return Ok(()) };
    let refuse = |message: String| Err(ApiError::client(world.scenario.choices.refusal.code(), message));
    for id in ids {
        let r = find(world, id)?;
        match r.state(now) {
            ReservationState::Active => {}
            ReservationState::Scheduled => {
                return Err(ApiError::client(
                    "InvalidCapacityReservationState.PendingActivation",
                    format!("The capacity reservation {id} is not active yet"),
                ));
            }
            ReservationState::Expired | ReservationState::Cancelled => {
                return Err(ApiError::client(
                    "InvalidCapacityReservationId.NotFound",
                    format!("The capacity reservation {id} is {}", r.state(now).name()),
                ));
            }
        }
        if r.instance_type != instance_type || r.zone != zone {
            return refuse(format!("The capacity reservation {id} is of {} in {}", r.instance_type, r.zone));
        }
        if r.group.is_some() && group.is_none() {
            return refuse(format!("The capacity reservation {id} lies in a placement group, which has to be named"));
        }
    }
    Ok(())
}

/// The name of the cluster group that an ARN names.
fn group_of(world: &World, arn: &str, instance_type: &InstanceType) -> Result<String, ApiError> {
    let name = arn.rsplit_once(":placement-group/").map_or(arn, |(_, name)| name);
    let group = super::placement_groups::known(world, name)?;
    if group.strategy != Strategy::Cluster || !instance_type.strategies.iter().any(|s| s == "cluster") {
        return Err(ApiError::client(
            world.scenario.choices.refusal.code(),
            "A capacity reservation is made in cluster placement groups alone, of types that support them",
        ));
    }
    Ok(name.to_owned())
}

fn zone(world: &World, form: &Form) -> Result<String, ApiError> {
    let (name, id) = (form.get("AvailabilityZone"), form.get("AvailabilityZoneId"));
    if name.is_none() && id.is_none() {
        return Err(ApiError::missing("AvailabilityZone"));
    }
    let zone = world
        .scenario
        .zones
        .iter()
        .find(|z| name.is_none_or(|name| z.name == name) && id.is_none_or(|id| z.zone_id == id));
    zone.map(|z| z.name.clone()).ok_or_else(|| ApiError::value("availabilityZone", name.or(id).unwrap_or("")))
}

const PLATFORM: &str = "Linux/UNIX";

fn end_type(r: &Reservation) -> &'static str {
    if r.end.is_some() { "limited" } else { "unlimited" }
}

fn group_arn(world: &World, r: &Reservation) -> Option<String> {
    r.group.as_ref().map(|name| world.group_arn(name))
}

fn answer(world: &World, reservation: &Reservation, now: Timestamp) -> Reply {
    let mut xml = Xml::new();
    xml.node("capacityReservation", |xml| write(xml, world, reservation, now));
    Reply::of(xml)
}

fn write(xml: &mut Xml, world: &World, r: &Reservation, now: Timestamp) {
    xml.text("capacityReservationId", &r.id);
    xml.text("ownerId", &world.scenario.account);
    xml.text("capacityReservationArn", &world.arn("capacity-reservation", &r.id));
    xml.text("availabilityZoneId", world.scenario.zone_id(&r.zone));
    xml.text("instanceType", &r.instance_type);
    xml.text("instancePlatform", PLATFORM);
    xml.text("availabilityZone", &r.zone);
    xml.text("tenancy", "default");
    xml.number("totalInstanceCount", r.total());
    xml.number("availableInstanceCount", r.available(now));
    xml.flag("ebsOptimized", false);
    xml.flag("ephemeralStorage", false);
    xml.text("state", r.state(now).name());
    xml.time("startDate", r.start.unwrap_or(r.created_at));
    if let Some(end) = r.end {
        xml.time("endDate", end);
    }
    xml.text("endDateType", end_type(r));
    xml.text("instanceMatchCriteria", r.matching.name());
    xml.time("createDate", r.created_at);
    xml.tags(&r.tags);
    xml.optional("placementGroupArn", group_arn(world, r).as_deref());
    xml.text("reservationType", if r.kind == ReservationKind::CapacityBlock { "capacity-block" } else { "default" });
    if r.kind == ReservationKind::Interruptible {
        xml.flag("interruptible", true);
    }
}
