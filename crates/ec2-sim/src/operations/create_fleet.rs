//! CreateFleet of type `instant`: token, validation, launch, answer.

use std::collections::BTreeSet;

use crate::choices::{BlockMinimum, FleetBucket, FleetCount, FleetVolumeTags, Replay, SpotShutdown};
use crate::fixtures::InstanceType;
use crate::interfaces::{interfaces, security_groups};
use crate::journal::Failure;
use crate::kinds::{MarketType, ReservationKind};
use crate::launch::launch;
use crate::launch::order::{Candidate, Order, Ranking, Source};
use crate::launch::power_off::ends_itself_after;
use crate::operations::fleets::Shown;
use crate::operations::launch_templates::{check_version, find as find_template, mismatch, resolve};
use crate::operations::named::{check_token, find_subnet, find_type};
use crate::operations::{Call, Reply, fleets, placement_groups, reservations};
use crate::protocol::error::ApiError;
use crate::protocol::form::Form;
use crate::protocol::xml::Xml;
use crate::state::World;
use crate::state::fleets::{Fleet, FleetError, Origin};
use crate::state::reservations::Reservation;
use crate::state::tokens::TokenUse;
use crate::throttle::Bucket;

const OPERATION: &str = "CreateFleet";
const RESERVED: &str = "reserved-capacity";
/// Active fleets of a Region.
const FLEET_LIMIT: usize = 1000;

pub(super) fn create(world: &mut World, call: &Call<'_>) -> Result<Reply, ApiError> {
    let form = call.form;
    let token = form.get("ClientToken");
    if let Some(token) = token {
        check_token(token)?;
        if let Some(reply) = replay(world, call, token)? {
            return Ok(reply);
        }
    }
    let spec = Spec::read(form, world)?;
    check_tags(world, form)?;
    let candidates = candidates(world, form, &spec)?;
    check_count(world)?;
    if world.scenario.choices.fleet_bucket == FleetBucket::Shared
        && let Some(bucket) = Bucket::of_instances("RunInstances")
        && !world.buckets.draw(bucket, f64::from(spec.total), call.now)
    {
        return Err(ApiError::throttled());
    }
    let id = world.ids.resource("fleet");
    let reservation = world.ids.resource("r");
    let outcome = launch(
        world,
        &Order {
            operation: OPERATION,
            token,
            fleet: Some(&id),
            reservation: &reservation,
            total: spec.total,
            minimum: spec.minimum,
            single_type: spec.single_type,
            single_zone: spec.single_zone,
            capacity_type: spec.capacity_type,
            ranking: spec.ranking,
            candidates,
            drawn: call.drawn,
        },
        call.now,
    );
    let fleet = Fleet {
        id: id.clone(),
        created_at: call.now,
        token: token.map(str::to_owned),
        capacity_type: spec.capacity_type,
        default_capacity_type: spec.default_capacity_type,
        total: spec.total,
        minimum: spec.minimum,
        tags: form.tags_for("fleet"),
        errors: outcome.errors,
        launches: outcome.launches,
        deleted: false,
    };
    if let Some(token) = token {
        let used = TokenUse { parameters: form.identity(), made: id.clone(), at: call.now };
        world.tokens.store(OPERATION, "", token, used);
    }
    let reply = answer(&fleet, Shown::Created);
    world.fleets.insert(id, fleet);
    Ok(reply)
}

/// What is wrong with the parameters of a fleet.
///
/// # Errors
/// What the fleet would be refused for.
pub(super) fn look_through(world: &World, form: &Form) -> Result<(), ApiError> {
    let spec = Spec::read(form, world)?;
    check_tags(world, form)?;
    candidates(world, form, &spec).map(|_| ())
}

/// A fleet tags itself and its instances; a template tags what else is launched from it.
///
/// # Errors
/// `InvalidParameterValue` for another resource type.
fn check_tags(world: &World, form: &Form) -> Result<(), ApiError> {
    let takes = world.scenario.choices.fleet_volume_tags;
    for spec in form.structs("TagSpecification") {
        match spec.required("ResourceType")? {
            "fleet" | "instance" => {}
            "volume" if takes != FleetVolumeTags::Refused => {}
            "network-interface" if takes == FleetVolumeTags::AndInterfaces => {}
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

/// # Errors
/// The refusal of a template that says what a shutdown does, where that is refused for spot instances.
pub(super) fn check_shutdown(world: &World, data: &Form, capacity_type: MarketType) -> Result<(), ApiError> {
    let choices = &world.scenario.choices;
    match data.get("InstanceInitiatedShutdownBehavior") {
        None | Some("stop" | "terminate") => {}
        Some(other) => return Err(ApiError::value("InstanceInitiatedShutdownBehavior", other)),
    }
    let named = data.get("InstanceInitiatedShutdownBehavior").is_some();
    if named && capacity_type == MarketType::Spot && choices.spot_shutdown == SpotShutdown::Refused {
        return Err(ApiError::client(
            choices.refusal.code(),
            "InstanceInitiatedShutdownBehavior is not supported for Spot Instances",
        ));
    }
    Ok(())
}

fn answer(fleet: &Fleet, shown: Shown) -> Reply {
    let mut xml = Xml::new();
    xml.text("fleetId", &fleet.id);
    fleets::write_outcome(&mut xml, fleet, shown);
    let mut reply = Reply::of(xml).about(fleet.id.clone());
    if shown != Shown::Nothing {
        reply.resources.extend(fleet.launches.iter().flat_map(|l| l.instances.clone()));
        reply.item_codes = fleet.errors.iter().map(|e| e.code.clone()).collect();
        let failure = |e: &FleetError| Failure {
            instance_type: e.origin.instance_type.clone(),
            zone: e.origin.zone.clone(),
            code: e.code.clone(),
        };
        reply.failures = fleet.errors.iter().map(failure).collect();
    }
    reply
}

/// The answer to a known token.
fn replay(world: &World, call: &Call<'_>, token: &str) -> Result<Option<Reply>, ApiError> {
    let choices = &world.scenario.choices;
    let life = choices.token_life_seconds;
    let Some(used) = world.tokens.find(OPERATION, "", token, life, call.now) else {
        return Ok(None);
    };
    if used.parameters != call.form.identity() {
        return Err(mismatch());
    }
    let Some(fleet) = world.fleets.get(&used.made) else {
        return Ok(None);
    };
    let mut reply = match choices.replay {
        Replay::FirstAnswer => answer(fleet, Shown::Created),
        Replay::WithoutIds => answer(fleet, Shown::Nothing),
        Replay::Error => {
            return Err(ApiError::client("InvalidParameterValue", "The client token has already been used."));
        }
    };
    reply.replayed = true;
    Ok(Some(reply))
}

/// The numbers and switches of the request.
struct Spec {
    total: u32,
    minimum: Option<u32>,
    single_type: bool,
    single_zone: bool,
    capacity_type: MarketType,
    default_capacity_type: &'static str,
    ranking: Ranking,
}

impl Spec {
    fn read(form: &Form, world: &World) -> Result<Self, ApiError> {
        let refusal = world.scenario.choices.refusal.code();
        let refuse = |message: &str| Err(ApiError::client(refusal, message));
        match form.get("Type") {
            Some("instant") => {}
            Some(other) => return Err(ApiError::value("Type", other)),
            None => return Err(ApiError::missing("Type")),
        }
        let capacity = form.sub("TargetCapacitySpecification");
        let total = capacity
            .number("TotalTargetCapacity")?
            .ok_or_else(|| ApiError::missing("TargetCapacitySpecification.TotalTargetCapacity"))?;
        if total == 0 || total > 10_000 {
            return Err(ApiError::value("TotalTargetCapacity", &total.to_string()));
        }
        let (capacity_type, default_capacity_type) = match capacity.get("DefaultTargetCapacityType") {
            None | Some("on-demand") => (MarketType::OnDemand, "on-demand"),
            Some("spot") => (MarketType::Spot, "spot"),
            Some("capacity-block") => (MarketType::CapacityBlock, "capacity-block"),
            Some(RESERVED) => (MarketType::OnDemand, RESERVED),
            Some(other) => return Err(ApiError::value("DefaultTargetCapacityType", other)),
        };
        let options = form.sub(match capacity_type {
            MarketType::OnDemand | MarketType::CapacityBlock | MarketType::InterruptibleReservation => {
                "OnDemandOptions"
            }
            MarketType::Spot => "SpotOptions",
        });
        let mut minimum = options.number("MinTargetCapacity")?;
        let single_type = options.flag("SingleInstanceType")?;
        let single_zone = options.flag("SingleAvailabilityZone")?;
        if let Some(minimum) = minimum {
            if minimum > 1000 {
                return Err(ApiError::value("MinTargetCapacity", &minimum.to_string()));
            }
            if minimum > total {
                return refuse("MinTargetCapacity must not be above the total target capacity");
            }
            if !single_type && !single_zone {
                return refuse("MinTargetCapacity requires SingleInstanceType or SingleAvailabilityZone");
            }
        }
        // Reserved capacity knows no minimum, and whether a block does is a choice.
        let ignored = world.scenario.choices.block_minimum == BlockMinimum::Ignored;
        if default_capacity_type == RESERVED || (capacity_type == MarketType::CapacityBlock && ignored) {
            minimum = None;
        }
        let strategy = options.get("AllocationStrategy").unwrap_or("lowest-price");
        let ranking = match (capacity_type, strategy) {
            (_, "lowest-price" | "lowestPrice") => Ranking::Price,
            (MarketType::OnDemand | MarketType::CapacityBlock, "prioritized")
            | (MarketType::Spot, "capacity-optimized-prioritized") => Ranking::Priority,
            (MarketType::Spot, "price-capacity-optimized") => Ranking::PriceCapacity,
            (MarketType::Spot, "capacity-optimized" | "diversified") => Ranking::Capacity,
            (_, other) => return Err(ApiError::value("AllocationStrategy", other)),
        };
        for spec in form.structs("TagSpecification") {
            let kind = spec.required("ResourceType")?;
            if !matches!(kind, "fleet" | "instance" | "volume" | "network-interface") {
                return Err(ApiError::value("ResourceType", kind));
            }
        }
        Ok(Self { total, minimum, single_type, single_zone, capacity_type, default_capacity_type, ranking })
    }
}

fn candidates(world: &World, form: &Form, spec: &Spec) -> Result<Vec<Candidate>, ApiError> {
    let configs = form.structs("LaunchTemplateConfigs");
    if configs.is_empty() {
        return Err(ApiError::missing("LaunchTemplateConfigs"));
    }
    if configs.len() > 50 {
        return Err(ApiError::value("LaunchTemplateConfigs", &configs.len().to_string()));
    }
    let mut candidates = Vec::new();
    for config in &configs {
        let specification = config.sub("LaunchTemplateSpecification");
        let template = find_template(world, &specification)?;
        let version = specification.required("Version")?;
        check_version(template, version)?;
        let mut overrides = config.structs("Overrides");
        if overrides.is_empty() {
            overrides.push(Form::default());
        }
        for one in &overrides {
            let mut data = template.data.clone();
            if let Some(image) = one.get("ImageId") {
                data.insert("ImageId", image);
            }
            candidates.push(candidate(world, form, spec, &data, one, &template.id)?);
        }
    }
    check_subnets(world, &candidates)?;
    Ok(candidates)
}

fn candidate(
    world: &World,
    form: &Form,
    spec: &Spec,
    data: &Form,
    one: &Form,
    template: &str,
) -> Result<Candidate, ApiError> {
    let refusal = world.scenario.choices.refusal.code();
    let named = one
        .get("InstanceType")
        .or_else(|| data.get("InstanceType"))
        .ok_or_else(|| ApiError::missing("InstanceType"))?;
    let instance_type = find_type(named)?;
    let place = subnet(world, data, one)?;
    let placement = one.sub("Placement");
    let allowed = ["GroupName", "GroupId"];
    if let Some(name) = placement.parameters().keys().find(|k| !allowed.contains(&k.as_str())) {
        return Err(ApiError::client(refusal, format!("Placement.{name} is not supported for CreateFleet")));
    }
    let group = match group(world, &placement)? {
        Some(group) => Some(group),
        None => group(world, &data.sub("Placement"))?,
    };
    check_group(world, group.as_ref(), instance_type)?;
    let priority = one.decimal("Priority")?;
    let image = data.get("ImageId").ok_or_else(|| ApiError::missing("ImageId"))?;
    let mut tags = data.tags_for("instance");
    tags.extend(form.tags_for("instance"));
    let mut volume_tags = data.tags_for("volume");
    volume_tags.extend(form.tags_for("volume"));
    let mut interface_tags = data.tags_for("network-interface");
    interface_tags.extend(form.tags_for("network-interface"));
    let security_groups = security_groups(data);
    check_security_groups(world, &security_groups)?;
    check_profile(world, data)?;
    check_shutdown(world, data, spec.capacity_type)?;
    Ok(Candidate {
        origin: Origin {
            template: template.to_owned(),
            version: "1".to_owned(),
            instance_type: named.to_owned(),
            subnet: place.0,
            zone_id: world.scenario.zone_id(&place.1).to_owned(),
            zone: place.1,
            priority: one.get("Priority").map(str::to_owned),
            group: placement.get("GroupName").map(str::to_owned),
            image: one.get("ImageId").map(str::to_owned),
        },
        instance_type,
        priority,
        source: fleet_source(world, form, spec, data)?,
        group,
        image: resolve(world, image)?,
        interfaces: interfaces(data, instance_type, refusal)?,
        security_groups,
        user_data: data.get("UserData").map(str::to_owned),
        ends_itself_after: ends_itself_after(&world.scenario.choices, data, spec.capacity_type),
        tags,
        volume_tags,
        interface_tags,
    })
}

/// Where the hosts of a fleet may come from.
fn fleet_source(world: &World, form: &Form, spec: &Spec, data: &Form) -> Result<Source, ApiError> {
    if spec.default_capacity_type == RESERVED {
        let options = form.sub("ReservedCapacityOptions");
        let kinds = options.list("ReservationType");
        let named = options.list("CapacityReservationTarget.CapacityReservationId");
        let fits = |r: &Reservation| {
            let kind = match r.kind {
                ReservationKind::OnDemand => "on-demand-capacity-reservation",
                ReservationKind::CapacityBlock => "capacity-block",
                ReservationKind::Interruptible => "interruptible-capacity-reservation",
            };
            kinds.is_empty() || kinds.iter().any(|k| k == kind)
        };
        for id in &named {
            reservations::find(world, id)?;
        }
        let ids = world
            .reservations
            .values()
            .filter(|r| fits(r) && (named.is_empty() || named.contains(&r.id)))
            .map(|r| r.id.clone())
            .collect();
        let fallback = options.list("ReservedCapacityFallbackOptions.MarketType");
        return Ok(Source::Targets { ids, fallback: fallback.iter().any(|m| m == "on-demand") });
    }
    let first = form.get("OnDemandOptions.CapacityReservationOptions.UsageStrategy");
    let open = match first {
        None => Source::Open,
        Some("use-capacity-reservations-first") => Source::ReservationsFirst,
        Some(other) => return Err(ApiError::value("UsageStrategy", other)),
    };
    reservations::source(world, data, spec.capacity_type, open)
}

/// # Errors
/// `MaxFleetCountExceeded`.
fn check_count(world: &World) -> Result<(), ApiError> {
    let active = world.fleets.values().filter(|f| !f.deleted).count();
    if world.scenario.choices.fleet_count == FleetCount::Counted && active >= FLEET_LIMIT {
        return Err(ApiError::client("MaxFleetCountExceeded", "You have reached the limit of active fleets."));
    }
    Ok(())
}

/// # Errors
/// What EC2 refuses about a group: one that is not ready, or that the type cannot be in.
pub(super) fn check_group(world: &World, group: Option<&String>, instance_type: &InstanceType) -> Result<(), ApiError> {
    let Some(name) = group else { return Ok(()) };
    placement_groups::check_available(world, name)?;
    let strategy = placement_groups::known(world, name)?.strategy.name();
    if instance_type.strategies.iter().any(|s| s == strategy) {
        return Ok(());
    }
    Err(ApiError::client(
        world.scenario.choices.refusal.code(),
        format!("Placement groups of the strategy {strategy} may not be used with the type {}.", instance_type.name),
    ))
}

/// # Errors
/// `InvalidGroup.NotFound`, as EC2 spells it for groups of a VPC.
pub(super) fn check_security_groups(world: &World, groups: &[String]) -> Result<(), ApiError> {
    let known = |id: &String| world.scenario.security_groups.iter().any(|g| g.id == *id);
    match groups.iter().find(|id| !known(id)) {
        None => Ok(()),
        Some(id) => Err(ApiError::client(
            "InvalidSecurityGroupID.NotFound",
            format!("The security group '{id}' does not exist"),
        )),
    }
}

/// # Errors
/// `InvalidParameterValue` for an instance profile that does not exist.
pub(super) fn check_profile(world: &World, data: &Form) -> Result<(), ApiError> {
    let known = &world.scenario.instance_profiles;
    let Some(name) = data.get("IamInstanceProfile.Name") else { return Ok(()) };
    if known.is_empty() || known.iter().any(|profile| profile == name) {
        return Ok(());
    }
    Err(ApiError::client(
        "InvalidParameterValue",
        format!("Value ({name}) for parameter iamInstanceProfile.name is invalid. Invalid IAM Instance Profile name"),
    ))
}

/// The name of the group that a `Placement` names.
///
/// # Errors
/// The refusal of a name and an id together, or what an unknown group is answered.
pub(super) fn group(world: &World, placement: &Form) -> Result<Option<String>, ApiError> {
    match (placement.get("GroupName"), placement.get("GroupId")) {
        (Some(_), Some(_)) => Err(ApiError::client(
            world.scenario.choices.refusal.code(),
            "Only one of GroupName and GroupId may be specified",
        )),
        (Some(name), None) => {
            placement_groups::find(world, name)?;
            Ok(Some(name.to_owned()))
        }
        (None, Some(id)) => Ok(Some(placement_groups::find_by_id(world, id)?)),
        (None, None) => Ok(None),
    }
}

/// The subnet and zone of an override: what it names, else what the template names, else the
/// first subnet of the named zone.
fn subnet(world: &World, data: &Form, one: &Form) -> Result<(String, String), ApiError> {
    let refusal = world.scenario.choices.refusal.code();
    let in_template = data.structs("NetworkInterface");
    let named = one.get("SubnetId").or_else(|| in_template.first().and_then(|i| i.get("SubnetId")));
    let zone = one.get("AvailabilityZone").or_else(|| data.get("Placement.AvailabilityZone"));
    let zone_id = one.get("AvailabilityZoneId");
    let subnet = match named {
        Some(id) => find_subnet(world, id)?,
        None => world
            .subnets
            .values()
            .find(|s| {
                (zone.is_some() || zone_id.is_some())
                    && zone.is_none_or(|z| s.zone == z)
                    && zone_id.is_none_or(|z| s.zone_id == z)
            })
            .ok_or_else(|| ApiError::missing("SubnetId"))?,
    };
    if zone.is_some_and(|z| z != subnet.zone) || zone_id.is_some_and(|z| z != subnet.zone_id) {
        return Err(ApiError::client(
            refusal,
            format!("The subnet {} is not in the Availability Zone named", subnet.id),
        ));
    }
    Ok((subnet.id.clone(), subnet.zone.clone()))
}

fn check_subnets(world: &World, candidates: &[Candidate]) -> Result<(), ApiError> {
    let places: BTreeSet<(&str, &str)> =
        candidates.iter().map(|c| (c.origin.zone.as_str(), c.origin.subnet.as_str())).collect();
    let zones: BTreeSet<&str> = places.iter().map(|p| p.0).collect();
    if zones.len() < places.len() {
        return Err(ApiError::client(
            world.scenario.choices.refusal.code(),
            "The fleet request cannot span different subnets from the same Availability Zone",
        ));
    }
    Ok(())
}
