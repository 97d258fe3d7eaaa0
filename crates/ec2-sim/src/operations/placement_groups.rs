//! CreatePlacementGroup, DescribePlacementGroups, DeletePlacementGroup.

use std::collections::BTreeMap;

use crate::clock::{later, seconds};
use crate::kinds::Strategy;
use crate::operations::filters::Filters;
use crate::operations::{Call, Reply};
use crate::protocol::error::ApiError;
use crate::protocol::xml::Xml;
use crate::state::World;
use crate::state::groups::Group;
use crate::state::reservations::ReservationState;

/// Groups per account and Region.
const LIMIT: usize = 500;

pub(super) fn create(world: &mut World, call: &Call<'_>) -> Result<Reply, ApiError> {
    let name = call.form.required("GroupName")?;
    if name.len() > 255 || !name.is_ascii() {
        return Err(ApiError::value("groupName", name));
    }
    let strategy = call.form.get("Strategy").unwrap_or("cluster");
    let strategy = Strategy::parse(strategy).ok_or_else(|| ApiError::value("strategy", strategy))?;
    if world.groups.contains_key(name) {
        return Err(ApiError::client(
            "InvalidPlacementGroup.Duplicate",
            format!("The Placement Group '{name}' already exists."),
        ));
    }
    if world.groups.len() >= LIMIT {
        return Err(ApiError::client(
            "PlacementGroupLimitExceeded",
            format!("Placement group limit of {LIMIT} has been reached."),
        ));
    }
    let group = Group {
        id: world.ids.resource("pg"),
        strategy,
        partitions: call.form.number("PartitionCount")?,
        tags: tags(call)?,
        pin: None,
        visible_at: call.visible_at(),
        available_at: later(call.now, seconds(world.scenario.delays.placement_group_seconds)),
        foreign: false,
        owner: None,
    };
    let mut xml = Xml::new();
    xml.node("placementGroup", |xml| write(xml, world, name, &group));
    world.groups.insert(name.to_owned(), group);
    Ok(Reply::of(xml).about(name))
}

pub(super) fn describe(world: &mut World, call: &Call<'_>) -> Result<Reply, ApiError> {
    let known = ["group-name", "group-arn", "state", "strategy", "spread-level"];
    let filters = Filters::parse(call.form, &known)?;
    let (names, ids) = (call.form.list("GroupName"), call.form.list("GroupId"));
    for name in &names {
        find(world, name)?;
    }
    for id in &ids {
        find_by_id(world, id)?;
    }
    let found = world.groups.iter().filter(|(_, group)| group.visible_at <= world.now).filter(|(name, group)| {
        (names.is_empty() || names.contains(name)) && (ids.is_empty() || ids.contains(&group.id)) && {
            let arn = world.group_arn(name);
            filters.pass(&group.tags, |filter| match filter {
                "group-name" => Some(name),
                "group-arn" => Some(&arn),
                "state" => Some(state(world, group)),
                "strategy" => Some(group.strategy.name()),
                _ => None,
            })
        }
    });
    let mut xml = Xml::new();
    xml.list("placementGroupSet", found, |xml, (name, group)| {
        write(xml, world, name, group);
    });
    Ok(Reply::of(xml))
}

pub(super) fn delete(world: &mut World, call: &Call<'_>) -> Result<Reply, ApiError> {
    let name = call.form.required("GroupName")?;
    find(world, name)?;
    let reserved = world.reservations.values().any(|r| {
        r.group.as_deref() == Some(name)
            && matches!(r.state(call.now), ReservationState::Active | ReservationState::Scheduled)
    });
    if reserved || world.in_group(name, call.now).next().is_some() {
        return Err(ApiError::client(
            "InvalidPlacementGroup.InUse",
            format!("The placement group {name} is in use and may not be deleted."),
        ));
    }
    world.groups.remove(name);
    Ok(Reply::success().about(name))
}

/// The group that a caller names; one that is shared by another account has no name here.
///
/// # Errors
/// `InvalidPlacementGroup.Unknown`.
pub(super) fn find<'a>(world: &'a World, name: &str) -> Result<&'a Group, ApiError> {
    let group = known(world, name)?;
    if group.owner.is_none() { Ok(group) } else { Err(unknown(name)) }
}

/// The group, whosever it is.
///
/// # Errors
/// `InvalidPlacementGroup.Unknown`.
pub(super) fn known<'a>(world: &'a World, name: &str) -> Result<&'a Group, ApiError> {
    world.groups.get(name).filter(|g| g.visible_at <= world.now).ok_or_else(|| unknown(name))
}

/// The name of the group with an id.
///
/// # Errors
/// `InvalidPlacementGroup.Unknown`, or `InvalidPlacementGroupId.Malformed`.
pub(super) fn find_by_id(world: &World, id: &str) -> Result<String, ApiError> {
    if !id.starts_with("pg-") {
        return Err(ApiError::client("InvalidPlacementGroupId.Malformed", format!("Invalid id: \"{id}\"")));
    }
    let seen = |g: &Group| g.id == id && g.visible_at <= world.now;
    world.groups.iter().find(|(_, g)| seen(g)).map(|(name, _)| name.clone()).ok_or_else(|| unknown(id))
}

/// # Errors
/// What a launch is answered into a group that is not ready yet.
pub(super) fn check_available(world: &World, name: &str) -> Result<(), ApiError> {
    let group = known(world, name)?;
    if group.available_at <= world.now {
        return Ok(());
    }
    Err(ApiError::client(
        "InvalidPlacementGroup.Unknown",
        format!("The Placement Group '{name}' is {}.", state(world, group)),
    ))
}

fn state(world: &World, group: &Group) -> &'static str {
    if group.available_at <= world.now { "available" } else { "pending" }
}

fn unknown(name: &str) -> ApiError {
    ApiError::client("InvalidPlacementGroup.Unknown", format!("The Placement Group '{name}' is unknown."))
}

fn tags(call: &Call<'_>) -> Result<BTreeMap<String, String>, ApiError> {
    for spec in call.form.structs("TagSpecification") {
        let kind = spec.required("ResourceType")?;
        if kind != "placement-group" {
            return Err(ApiError::client(
                "InvalidParameterValue",
                format!("'{kind}' is not a valid taggable resource type for this operation."),
            ));
        }
    }
    Ok(call.form.tags_for("placement-group"))
}

fn write(xml: &mut Xml, world: &World, name: &str, group: &Group) {
    xml.text("groupName", name);
    xml.text("strategy", group.strategy.name());
    xml.text("state", state(world, group));
    xml.text("groupId", &group.id);
    xml.text("groupArn", &world.group_arn(name));
    if group.strategy == Strategy::Partition {
        xml.number("partitionCount", group.partitions.unwrap_or(7));
    }
    xml.tags(&group.tags);
}
