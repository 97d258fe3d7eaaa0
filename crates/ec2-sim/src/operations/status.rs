//! DescribeInstanceStatus, with the events that EC2 has scheduled.

use crate::operations::filters::{Filters, page};
use crate::operations::{Call, Reply, instances};
use crate::protocol::error::ApiError;
use crate::protocol::xml::Xml;
use crate::state::World;
use crate::state::instances::{Instance, LifeState};

pub(super) fn describe(world: &mut World, call: &Call<'_>) -> Result<Reply, ApiError> {
    let known = [
        "availability-zone",
        "availability-zone-id",
        "event.code",
        "instance-state-name",
        "instance-status.status",
        "system-status.status",
    ];
    let filters = Filters::parse(call.form, &known)?;
    let ids = call.form.list("InstanceId");
    if !ids.is_empty() && call.form.get("MaxResults").is_some() {
        return Err(ApiError::client(
            "InvalidParameterCombination",
            "The parameter instancesSet cannot be used with the parameter maxResults",
        ));
    }
    if ids.len() > 100 {
        return Err(ApiError::client("InvalidParameterValue", "At most 100 may be specified"));
    }
    instances::check_ids(world, &ids, call.now)?;
    let all = call.form.flag("IncludeAllInstances")?;
    let now = call.read_at();
    let found: Vec<&Instance> = world
        .instances
        .values()
        .filter(|i| instances::described(world, i, call.now) && (all || i.state(now) == LifeState::Running))
        .filter(|i| ids.is_empty() || ids.contains(&i.id))
        .filter(|i| {
            filters.pass(i.seen_tags(call.now), |filter| match filter {
                "availability-zone" => Some(&i.zone),
                "availability-zone-id" => Some(&i.zone_id),
                "event.code" => i.scheduled.as_ref().map(|(code, _)| code.as_str()),
                "instance-state-name" => Some(i.state(now).name()),
                "instance-status.status" | "system-status.status" => Some(status(i.state(now))),
                _ => None,
            })
        })
        .collect();
    let (found, next) = page(call.form, found, 5..=1000, None)?;
    let mut xml = Xml::new();
    xml.list("instanceStatusSet", found, |xml, i| {
        let state = i.state(now);
        xml.text("instanceId", &i.id);
        xml.text("availabilityZone", &i.zone);
        xml.text("availabilityZoneId", &i.zone_id);
        instances::write_state(xml, "instanceState", state);
        for name in ["systemStatus", "instanceStatus"] {
            xml.node(name, |xml| {
                xml.text("status", status(state));
                let details = (state == LifeState::Running).then_some("passed");
                xml.list("details", details, |xml, passed| {
                    xml.text("name", "reachability");
                    xml.text("status", passed);
                });
            });
        }
        xml.list("eventsSet", i.scheduled.iter().filter(|_| state.is_live()), |xml, (code, at)| {
            xml.text("instanceEventId", &i.id.replacen("i-", "instance-event-", 1));
            xml.text("code", code);
            xml.text("description", "The instance is running on degraded hardware");
            xml.time("notBefore", *at);
        });
    });
    xml.optional("nextToken", next.as_deref());
    Ok(Reply::of(xml))
}

fn status(state: LifeState) -> &'static str {
    match state {
        LifeState::Pending => "initializing",
        LifeState::Running => "ok",
        LifeState::ShuttingDown | LifeState::Terminated => "not-applicable",
    }
}
