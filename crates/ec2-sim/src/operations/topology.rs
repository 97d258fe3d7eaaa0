//! DescribeInstanceTopology.

use std::collections::BTreeMap;

use crate::clock::{later, seconds};
use crate::operations::filters::{Filters, page};
use crate::operations::{Call, Reply, instances, placement_groups};
use crate::protocol::error::ApiError;
use crate::protocol::xml::Xml;
use crate::state::World;
use crate::state::instances::{Instance, LifeState};

/// Ids or group names per call.
const LIMIT: usize = 100;

pub(super) fn describe(world: &mut World, call: &Call<'_>) -> Result<Reply, ApiError> {
    let filters = Filters::parse(call.form, &["availability-zone", "instance-type", "zone-id"])?;
    let ids = call.form.list("InstanceId");
    let groups = call.form.list("GroupName");
    if ids.len() > LIMIT || groups.len() > LIMIT {
        return Err(ApiError::client("InvalidParameterValue", format!("At most {LIMIT} may be specified")));
    }
    if !ids.is_empty() && call.form.get("MaxResults").is_some() {
        return Err(ApiError::client(
            "InvalidParameterCombination",
            "MaxResults cannot be specified together with InstanceIds",
        ));
    }
    instances::check_ids(world, &ids, call.now)?;
    for group in &groups {
        placement_groups::find(world, group)?;
    }
    let delay = seconds(f64::from(world.scenario.choices.topology_delay_seconds));
    let none = BTreeMap::new();
    let mut found: Vec<&Instance> = world
        .instances
        .values()
        .filter(|i| i.state(call.now) != LifeState::Terminated && i.visible_at <= call.now)
        .filter(|i| ids.is_empty() || ids.contains(&i.id))
        .filter(|i| groups.is_empty() || i.group.as_ref().is_some_and(|g| groups.contains(g)))
        .filter(|i| {
            filters.pass(&none, |filter| match filter {
                "availability-zone" => Some(&i.zone),
                "instance-type" => Some(&i.instance_type),
                "zone-id" => Some(&i.zone_id),
                _ => None,
            })
        })
        .collect();
    found.sort_by(|a, b| a.id.cmp(&b.id));
    let default = if ids.is_empty() { Some(20) } else { None };
    let (found, next) = page(call.form, found, 1..=100, default)?;
    let mut xml = Xml::new();
    xml.list("instanceSet", found, |xml, i| {
        let known =
            i.state(call.now) == LifeState::Running && i.running_at.is_some_and(|at| later(at, delay) <= call.now);
        let nodes = if known { i.network_nodes.as_slice() } else { &[] };
        xml.text("instanceId", &i.id);
        xml.text("instanceType", &i.instance_type);
        xml.optional("groupName", i.group.as_deref());
        xml.values("networkNodeSet", nodes.iter().map(String::as_str));
        xml.text("availabilityZone", &i.zone);
        xml.text("zoneId", &i.zone_id);
    });
    xml.optional("nextToken", next.as_deref());
    Ok(Reply::of(xml))
}
