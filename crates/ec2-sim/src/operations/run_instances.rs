//! RunInstances: one type, one zone, `MinCount` or nothing.

use std::collections::BTreeSet;

use crate::choices::ZonalMismatch;
use crate::interfaces::{interfaces, security_groups};
use crate::kinds::MarketType;
use crate::launch::launch;
use crate::launch::order::{Candidate, Order, Ranking, Source};
use crate::launch::power_off::ends_itself_after;
use crate::operations::create_fleet::{check_group, check_profile, check_security_groups, check_shutdown, group};
use crate::operations::launch_templates::{check_user_data, check_version, find as find_template, mismatch, resolve};
use crate::operations::named::{check_token, find_subnet, find_type};
use crate::operations::reservations::{check_target, source};
use crate::operations::{Call, Reply, instances};
use crate::protocol::error::{ApiError, is_capacity};
use crate::protocol::form::Form;
use crate::protocol::xml::Xml;
use crate::state::World;
use crate::state::fleets::Origin;
use crate::state::tokens::TokenUse;
use crate::throttle::Bucket;

const OPERATION: &str = "RunInstances";

pub(super) fn run(world: &mut World, call: &Call<'_>) -> Result<Reply, ApiError> {
    let form = call.form;
    let (data, template) = merged(world, form)?;
    let capacity_type = capacity_type(&data)?;
    let candidate = candidate(world, form, &data, template, capacity_type)?;
    let token = form.get("ClientToken");
    if let Some(token) = token {
        check_token(token)?;
        if let Some(reply) = replay(world, call, token, &candidate.origin.zone)? {
            return Ok(reply);
        }
    }
    let count = |name: &str| form.number(name)?.filter(|n| *n > 0).ok_or_else(|| ApiError::missing(name));
    let (least, most) = (count("MinCount")?, count("MaxCount")?);
    if least > most {
        return Err(ApiError::client(world.scenario.choices.refusal.code(), "MinCount must not be above MaxCount"));
    }
    let name = &candidate.instance_type.name;
    check_target(world, &candidate.source, name, &candidate.origin.zone, candidate.group.as_ref(), call.now)?;
    if let Some(bucket) = Bucket::of_instances(OPERATION)
        && !world.buckets.draw(bucket, f64::from(most), call.now)
    {
        return Err(ApiError::throttled());
    }
    let reservation = world.ids.resource("r");
    let zone = candidate.origin.zone.clone();
    let outcome = launch(
        world,
        &Order {
            operation: OPERATION,
            token,
            fleet: None,
            reservation: &reservation,
            total: most,
            minimum: Some(least),
            single_type: true,
            single_zone: true,
            capacity_type,
            ranking: Ranking::Given,
            candidates: vec![candidate],
            drawn: call.drawn,
        },
        call.now,
    );
    let ids = outcome.instances();
    if ids.is_empty() {
        let error = outcome.errors.into_iter().next().map_or_else(
            || ApiError::no_capacity("", &zone),
            |e| {
                let status = if is_capacity(&e.code) { 500 } else { 400 };
                ApiError::new(status, &e.code, e.message)
            },
        );
        return Err(error);
    }
    if let Some(token) = token {
        let used = TokenUse { parameters: form.identity(), made: reservation.clone(), at: call.now };
        world.tokens.store(OPERATION, &zone, token, used);
    }
    Ok(answer(world, call, &reservation))
}

/// What is wrong with the parameters of a launch.
///
/// # Errors
/// What the launch would be refused for.
pub(super) fn look_through(world: &World, form: &Form) -> Result<(), ApiError> {
    let (data, template) = merged(world, form)?;
    let capacity_type = capacity_type(&data)?;
    candidate(world, form, &data, template, capacity_type).map(|_| ())
}

/// The answer to a token known in this zone; in another zone the same token launches again.
fn replay(world: &World, call: &Call<'_>, token: &str, zone: &str) -> Result<Option<Reply>, ApiError> {
    let choices = &world.scenario.choices;
    let life = choices.token_life_seconds;
    let Some(used) = world.tokens.find(OPERATION, zone, token, life, call.now) else {
        return Ok(None);
    };
    if used.parameters != call.form.identity() {
        match choices.zonal_mismatch {
            ZonalMismatch::Mismatch => return Err(mismatch()),
            ZonalMismatch::OldAnswer => {}
        }
    }
    let live = world.instances.values().any(|i| i.reservation == used.made && i.state(call.now).is_live());
    if !live {
        return Err(ApiError::client(
            "IdempotentInstanceTerminated",
            "The request was already processed, and the instances have been terminated.",
        ));
    }
    let mut reply = answer(world, call, &used.made);
    reply.replayed = true;
    Ok(Some(reply))
}

fn answer(world: &World, call: &Call<'_>, reservation: &str) -> Reply {
    let mut xml = Xml::new();
    xml.text("reservationId", reservation);
    xml.text("ownerId", &world.scenario.account);
    let launched = || world.instances.values().filter(|i| i.reservation == reservation);
    xml.list("instancesSet", launched(), |xml, instance| {
        instances::write(xml, world, instance, call.now);
    });
    Reply { resources: launched().map(|i| i.id.clone()).collect(), ..Reply::of(xml) }
}

/// The launch template's data with the members that the call itself gives in their place.
fn merged(world: &World, form: &Form) -> Result<(Form, String), ApiError> {
    let mut data = Form::default();
    let mut template = String::new();
    if form.has("LaunchTemplate") {
        let specification = form.sub("LaunchTemplate");
        let found = find_template(world, &specification)?;
        check_version(found, specification.get("Version").unwrap_or("$Default"))?;
        template.clone_from(&found.id);
        data = found.data.clone();
    }
    let own: BTreeSet<&str> = form
        .parameters()
        .keys()
        .filter_map(|name| name.split('.').next())
        .filter(|root| {
            !matches!(
                *root,
                "ClientToken" | "DryRun" | "LaunchTemplate" | "MaxCount" | "MinCount" | "TagSpecification" | "Version"
            )
        })
        .collect();
    let mut result = Form::default();
    for (name, value) in data.parameters() {
        if !own.contains(name.split('.').next().unwrap_or(name)) {
            result.insert(name, value);
        }
    }
    for (name, value) in form.parameters() {
        if own.contains(name.split('.').next().unwrap_or(name)) {
            result.insert(name, value);
        }
    }
    if let Some(user_data) = result.get("UserData") {
        check_user_data(user_data)?;
    }
    Ok((result, template))
}

/// Requests for spot instances are tagged where spot instances are asked for, and nowhere else.
///
/// # Errors
/// `InvalidParameterValue` for another resource type.
fn check_tags(form: &Form, data: &Form, capacity_type: MarketType) -> Result<(), ApiError> {
    for spec in form.structs("TagSpecification").into_iter().chain(data.structs("TagSpecification")) {
        match spec.required("ResourceType")? {
            "instance" | "volume" | "network-interface" | "elastic-gpu" => {}
            "spot-instances-request" if capacity_type == MarketType::Spot => {}
            other => {
                return Err(ApiError::client(
                    "InvalidParameterValue",
                    format!("'{other}' is not a valid taggable resource type for this request."),
                ));
            }
        }
    }
    Ok(())
}

fn candidate(
    world: &World,
    form: &Form,
    data: &Form,
    template: String,
    capacity_type: MarketType,
) -> Result<Candidate, ApiError> {
    let refusal = world.scenario.choices.refusal.code();
    let named = data.required("InstanceType")?;
    let instance_type = find_type(named)?;
    let first = data.structs("NetworkInterface").into_iter().next();
    let subnet = data
        .get("SubnetId")
        .or_else(|| first.as_ref().and_then(|i| i.get("SubnetId")))
        .ok_or_else(|| ApiError::missing("SubnetId"))?;
    let subnet = find_subnet(world, subnet)?;
    if data.get("Placement.AvailabilityZone").is_some_and(|z| z != subnet.zone) {
        return Err(ApiError::client(
            refusal,
            format!("The subnet {} is not in the Availability Zone named", subnet.id),
        ));
    }
    let group = group(world, &data.sub("Placement"))?;
    check_group(world, group.as_ref(), instance_type)?;
    let tags_of = |kind: &str| {
        let mut tags = match world.templates.get(&template) {
            Some(template) => template.data.tags_for(kind),
            None => std::collections::BTreeMap::new(),
        };
        tags.extend(form.tags_for(kind));
        tags
    };
    let security_groups = security_groups(data);
    check_security_groups(world, &security_groups)?;
    check_profile(world, data)?;
    check_shutdown(world, data, capacity_type)?;
    check_tags(form, data, capacity_type)?;
    Ok(Candidate {
        tags: tags_of("instance"),
        volume_tags: tags_of("volume"),
        interface_tags: tags_of("network-interface"),
        origin: Origin {
            template,
            version: "1".to_owned(),
            instance_type: named.to_owned(),
            subnet: subnet.id.clone(),
            zone: subnet.zone.clone(),
            zone_id: subnet.zone_id.clone(),
            priority: None,
            group: group.clone(),
            image: None,
        },
        instance_type,
        priority: None,
        source: source(world, data, capacity_type, Source::Open)?,
        group,
        image: resolve(world, data.required("ImageId")?)?,
        interfaces: interfaces(data, instance_type, refusal)?,
        security_groups,
        user_data: data.get("UserData").map(str::to_owned),
        ends_itself_after: ends_itself_after(&world.scenario.choices, data, capacity_type),
    })
}

fn capacity_type(data: &Form) -> Result<MarketType, ApiError> {
    match data.get("InstanceMarketOptions.MarketType") {
        None | Some("on-demand") => Ok(MarketType::OnDemand),
        Some("spot") => Ok(MarketType::Spot),
        Some("capacity-block") => Ok(MarketType::CapacityBlock),
        Some("interruptible-capacity-reservation") => Ok(MarketType::InterruptibleReservation),
        Some(other) => Err(ApiError::value("MarketType", other)),
    }
}
