//! DescribeFleets, DeleteFleets, and the part of the answers that all fleets share.

use jiff::SignedDuration;

use crate::faults::FaultKind;
use crate::kinds::MarketType;
use crate::operations::filters::page;
use crate::operations::{Call, Reply};
use crate::protocol::error::ApiError;
use crate::protocol::xml::Xml;
use crate::state::World;
use crate::state::fleets::{Fleet, Origin};
use crate::state::instances::BY_USER;

/// Instant fleets per DeleteFleets.
const DELETE_LIMIT: usize = 25;
/// Instances of a fleet which DeleteFleets still takes.
const INSTANCE_LIMIT: usize = 1000;

pub(super) fn describe(world: &mut World, call: &Call<'_>) -> Result<Reply, ApiError> {
    // An instant fleet is shown only to those who name it, so without ids there is nothing.
    let mut found = Vec::new();
    for id in call.form.list("FleetId") {
        let fleet = world.fleets.get(&id).ok_or_else(|| unknown(&id))?;
        found.push(fleet);
    }
    let (found, next) = page(call.form, found, 1..=1000, None)?;
    let mut xml = Xml::new();
    xml.list("fleetSet", found, |xml, fleet| {
        xml.text("fleetId", &fleet.id);
        xml.text("type", "instant");
        xml.text("fleetState", state(fleet));
        xml.time("createTime", fleet.created_at);
        xml.optional("clientToken", fleet.token.as_deref());
        let launched: usize = fleet.launches.iter().map(|l| l.instances.len()).sum();
        xml.text("fulfilledCapacity", &format!("{launched}.0"));
        xml.node("targetCapacitySpecification", |xml| {
            xml.number("totalTargetCapacity", fleet.total);
            xml.text("defaultTargetCapacityType", fleet.default_capacity_type);
        });
        let options = match fleet.capacity_type {
            MarketType::OnDemand | MarketType::CapacityBlock | MarketType::InterruptibleReservation => {
                "onDemandOptions"
            }
            MarketType::Spot => "spotOptions",
        };
        if let Some(minimum) = fleet.minimum {
            xml.node(options, |xml| xml.number("minTargetCapacity", minimum));
        }
        xml.tags(&fleet.tags);
        write_outcome(xml, fleet, Shown::Described);
    });
    xml.optional("nextToken", next.as_deref());
    Ok(Reply::of(xml))
}

pub(super) fn delete(world: &mut World, call: &Call<'_>) -> Result<Reply, ApiError> {
    let ids = call.form.list("FleetId");
    if ids.is_empty() {
        return Err(ApiError::missing("FleetId"));
    }
    if ids.len() > DELETE_LIMIT {
        return Err(ApiError::client(
            "InvalidParameterValue",
            format!("At most {DELETE_LIMIT} instant fleets can be deleted in one call"),
        ));
    }
    // Instant fleets always take their instances with them; to ask for less is refused.
    if !call.form.flag("TerminateInstances")? {
        return Err(ApiError::client(
            "InvalidParameterValue",
            "Instant fleets cannot be deleted without terminating their instances",
        ));
    }
    let slower = slower(call);
    let mut reply = Reply::default();
    let mut deleted: Vec<(String, &'static str)> = Vec::new();
    let mut failed: Vec<(String, &'static str)> = Vec::new();
    for id in ids {
        let Some(fleet) = world.fleets.get_mut(&id) else {
            failed.push((id, "fleetIdDoesNotExist"));
            continue;
        };
        let instances: Vec<String> = fleet.launches.iter().flat_map(|l| l.instances.clone()).collect();
        if instances.len() > INSTANCE_LIMIT {
            failed.push((id, "unexpectedError"));
            continue;
        }
        deleted.push((id.clone(), state(fleet)));
        fleet.deleted = true;
        reply.resources.push(id);
        for instance in instances {
            if world.terminate(&instance, BY_USER, slower, call.now) {
                reply.resources.push(instance);
            }
        }
    }
    let xml = &mut reply.members;
    xml.list("successfulFleetDeletionSet", &deleted, |xml, (id, before)| {
        xml.text("currentFleetState", "deleted_terminating");
        xml.text("previousFleetState", before);
        xml.text("fleetId", id);
    });
    xml.list("unsuccessfulFleetDeletionSet", &failed, |xml, (id, code)| {
        xml.node("error", |xml| {
            xml.text("code", code);
            xml.text("message", &format!("The fleet {id} could not be deleted"));
        });
        xml.text("fleetId", id);
    });
    Ok(reply)
}

/// How much longer the faults of a call make termination take.
pub(super) fn slower(call: &Call<'_>) -> SignedDuration {
    call.drawn.kinds().filter_map(FaultKind::slower_termination).max().unwrap_or(SignedDuration::ZERO)
}

/// How much of a fleet's outcome an answer shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Shown {
    /// CreateFleet: everything.
    Created,
    /// DescribeFleets: everything but where the instances are.
    Described,
    /// Neither errors nor instances.
    Nothing,
}

/// `errorSet` and `fleetInstanceSet`.
pub(super) fn write_outcome(xml: &mut Xml, fleet: &Fleet, shown: Shown) {
    let (errors, launches) = match shown {
        Shown::Created | Shown::Described => (fleet.errors.as_slice(), fleet.launches.as_slice()),
        Shown::Nothing => (&[][..], &[][..]),
    };
    let lifecycle = match fleet.capacity_type {
        MarketType::Spot => "spot",
        MarketType::OnDemand | MarketType::CapacityBlock | MarketType::InterruptibleReservation => "on-demand",
    };
    xml.list("errorSet", errors, |xml, error| {
        write_origin(xml, &error.origin);
        xml.text("lifecycle", lifecycle);
        xml.text("errorCode", &error.code);
        xml.text("errorMessage", &error.message);
    });
    xml.list("fleetInstanceSet", launches, |xml, launch| {
        write_origin(xml, &launch.origin);
        xml.text("lifecycle", lifecycle);
        xml.values("instanceIds", launch.instances.iter().map(String::as_str));
        xml.text("instanceType", &launch.origin.instance_type);
        if shown == Shown::Created {
            xml.text("availabilityZone", &launch.origin.zone);
            xml.text("availabilityZoneId", &launch.origin.zone_id);
            xml.text("subnetId", &launch.origin.subnet);
        }
    });
}

fn write_origin(xml: &mut Xml, origin: &Origin) {
    xml.node("launchTemplateAndOverrides", |xml| {
        xml.node("launchTemplateSpecification", |xml| {
            xml.text("launchTemplateId", &origin.template);
            xml.text("version", &origin.version);
        });
        xml.node("overrides", |xml| {
            xml.text("instanceType", &origin.instance_type);
            xml.text("subnetId", &origin.subnet);
            xml.text("availabilityZone", &origin.zone);
            xml.optional("priority", origin.priority.as_deref());
            if let Some(group) = &origin.group {
                xml.node("placement", |xml| xml.text("groupName", group));
            }
            xml.optional("imageId", origin.image.as_deref());
        });
    });
}

fn state(fleet: &Fleet) -> &'static str {
    if fleet.deleted { "deleted_terminating" } else { "active" }
}

fn unknown(id: &str) -> ApiError {
    ApiError::client("InvalidFleetId.NotFound", format!("The fleet ID '{id}' does not exist"))
}
