//! Hosts for the candidates of a bundle, and what keeps them from getting any.

use std::collections::BTreeMap;

use jiff::Timestamp;

use super::order::{Candidate, Order, Source, Taken};
use crate::capacity::{Pin, Want};
use crate::choices::Shortfall;
use crate::faults::FaultKind;
use crate::kinds::MarketType;
use crate::kinds::Strategy;
use crate::protocol::error::no_capacity_text;
use crate::quota;
use crate::state::World;
use crate::state::fleets::FleetError;
use crate::state::instances::LifeState;

/// What a bundle gave.
pub(super) struct Fill {
    pub(super) parts: Vec<(Candidate, Vec<Taken>)>,
    pub(super) failures: Vec<FleetError>,
    pub(super) got: u32,
}

/// A code and a message.
type Refused = (String, String);

/// Takes hosts for up to `target` instances from the candidates of a bundle.
pub(super) fn fill(world: &mut World, order: &Order<'_>, bundle: &[Candidate], target: u32, now: Timestamp) -> Fill {
    let mut fill = Fill { parts: vec![], failures: vec![], got: 0 };
    let mut pins: BTreeMap<String, Pin> =
        world.groups.iter().filter_map(|(name, g)| g.pin.clone().map(|pin| (name.clone(), pin))).collect();
    // Addresses assigned to earlier candidates of the same subnet.
    let mut assigned: BTreeMap<String, u32> = BTreeMap::new();
    for candidate in bundle {
        let wanted = target - fill.got;
        if wanted == 0 {
            break;
        }
        let limit = limit(world, order, candidate, wanted, &assigned, fill.got, now);
        let cluster = candidate
            .group
            .clone()
            .filter(|name| world.groups.get(name).is_some_and(|g| g.strategy == Strategy::Cluster));
        let zone = candidate.origin.zone.as_str();
        let want = Want {
            instance_type: &candidate.instance_type.name,
            zone,
            capacity_type: order.capacity_type,
            cluster: cluster.is_some(),
            pin: cluster.as_ref().and_then(|name| pins.get(name)),
            count: limit.most.min(wanted),
        };
        let (taken, mut why) = take(world, candidate, &want, now);
        if order.fleet.is_some() && order.capacity_type == MarketType::CapacityBlock {
            // A fleet calls a block that is not open yet, or is full, a want of capacity.
            why = None;
        }
        let got = u32::try_from(taken.len()).unwrap_or(u32::MAX);
        if got < wanted {
            let (code, message) = limit.error.or(why).unwrap_or_else(|| {
                ("InsufficientInstanceCapacity".to_owned(), no_capacity_text(&candidate.instance_type.name, zone))
            });
            fill.failures.push(FleetError { origin: candidate.origin.clone(), code, message });
        }
        let Some(first) = taken.first() else {
            continue;
        };
        if let Some(name) = cluster {
            pins.entry(name).or_insert_with(|| Pin {
                zone: zone.to_owned(),
                instance_type: candidate.instance_type.name.clone(),
                spine: first.host.spine,
            });
        }
        *assigned.entry(candidate.origin.subnet.clone()).or_default() += got * candidate.addresses();
        fill.got += got;
        fill.parts.push((candidate.clone(), taken));
    }
    fill
}

/// Takes hosts from where the candidate may have them; beside them why there are not more, if it is not for want of
/// hosts in the pool.
fn take(world: &mut World, candidate: &Candidate, want: &Want<'_>, now: Timestamp) -> (Vec<Taken>, Option<Refused>) {
    let exceeded = |id: &str| {
        let code = "ReservationCapacityExceeded".to_owned();
        (code, format!("The requested reservation {id} does not have sufficient compatible and available capacity."))
    };
    match &candidate.source {
        Source::Pool => (from_pool(world, want, vec![]), None),
        Source::Open => {
            let reserved = from_open(world, candidate, want, now);
            (from_pool(world, want, reserved), None)
        }
        Source::ReservationsFirst => {
            // A reservation with capacity that was not made in the group stands in the way of the whole launch.
            let outside = want.cluster
                && world.reservations.values().any(|r| {
                    r.matches(want.instance_type, want.zone) && r.group != candidate.group && r.available(now) > 0
                });
            if outside {
                return (vec![], None);
            }
            let reserved = from_open(world, candidate, want, now);
            (from_pool(world, want, reserved), None)
        }
        Source::ReservationsOnly => (from_open(world, candidate, want, now), Some(exceeded("preference"))),
        Source::Targets { ids, fallback } => {
            let mut taken: Vec<Taken> = Vec::new();
            let mut elsewhere = false;
            for id in ids {
                let left = want.count - u32::try_from(taken.len()).unwrap_or(want.count);
                let Some(reservation) = world.reservations.get_mut(id) else { continue };
                let fits = reservation.instance_type == want.instance_type && reservation.zone == want.zone;
                if !fits || reservation.available(now) == 0 {
                    continue;
                }
                if reservation.group != candidate.group {
                    elsewhere = true;
                    continue;
                }
                let hosts = reservation.take(left);
                taken.extend(hosts.into_iter().map(|host| Taken { host, reservation: Some(id.clone()) }));
            }
            if *fallback {
                return (from_pool(world, want, taken), None);
            }
            let why = (!elsewhere).then(|| exceeded(ids.first().map_or("", String::as_str)));
            (taken, why)
        }
    }
}

/// From open reservations that match and lie in the candidate's group, or in none as it does.
fn from_open(world: &mut World, candidate: &Candidate, want: &Want<'_>, now: Timestamp) -> Vec<Taken> {
    let mut taken: Vec<Taken> = Vec::new();
    if want.capacity_type != MarketType::OnDemand {
        return taken;
    }
    for reservation in world.reservations.values_mut() {
        let left = want.count - u32::try_from(taken.len()).unwrap_or(want.count);
        let fits = reservation.matches(want.instance_type, want.zone) && reservation.group == candidate.group;
        if fits && reservation.available(now) > 0 {
            let hosts = reservation.take(left);
            let id = &reservation.id;
            taken.extend(hosts.into_iter().map(|host| Taken { host, reservation: Some(id.clone()) }));
        }
    }
    taken
}

/// Adds hosts of the pool to those taken already.
fn from_pool(world: &mut World, want: &Want<'_>, mut taken: Vec<Taken>) -> Vec<Taken> {
    let left = want.count - u32::try_from(taken.len()).unwrap_or(want.count);
    let hosts = world.capacity.take(&Want { count: left, ..want.clone() });
    taken.extend(hosts.into_iter().map(|host| Taken { host, reservation: None }));
    taken
}

struct Limit {
    most: u32,
    /// Why, if it is not for want of hosts.
    error: Option<Refused>,
}

impl Limit {
    /// At most `capacity`; the first reason to have less counts.
    fn to(&mut self, capacity: u32, error: impl FnOnce() -> Refused) {
        if capacity < self.most {
            self.most = capacity;
            self.error = Some(error());
        }
    }
}

/// What keeps a candidate from launching, hosts aside. `earlier` instances of the same call are assigned to others.
fn limit(
    world: &World,
    order: &Order<'_>,
    candidate: &Candidate,
    wanted: u32,
    assigned: &BTreeMap<String, u32>,
    earlier: u32,
    now: Timestamp,
) -> Limit {
    let name = candidate.instance_type.name.as_str();
    let zone = candidate.origin.zone.as_str();
    let none = |code: &str, message: String| Limit { most: 0, error: Some((code.to_owned(), message)) };
    if !world.offered(name, zone) {
        let code = if order.operation == "CreateFleet" { "InvalidFleetConfiguration" } else { "Unsupported" };
        return none(
            code,
            format!(
                "Your requested instance type ({name}) is not supported in your requested Availability Zone ({zone})."
            ),
        );
    }
    let subnet = candidate.origin.subnet.as_str();
    if candidate.wants_ipv6() && world.subnets.get(subnet).is_some_and(|s| s.ipv6_cidr.is_none()) {
        // That the addresses are of the subnet's range is documented; the code for a subnet without one is that of
        // ModifySubnetAttribute, which asks for the range too.
        let message = format!("The subnet '{subnet}' has no IPv6 CIDR block to assign IPv6 addresses from.");
        return none("InvalidParameterValue", message);
    }
    let mut limit = Limit { most: wanted, error: None };
    for kind in order.drawn.of_pool(name, zone, order.capacity_type) {
        if let FaultKind::ErrorItem { code, message } = kind {
            return none(code, message.clone());
        }
        if let Some(fill) = kind.fill() {
            limit.most = limit.most.min(fill);
        }
    }
    if let Some(capacity) = world.quota_left(name, candidate.instance_type.vcpus, order.capacity_type, now) {
        limit.to(capacity.saturating_sub(earlier), || {
            let message = format!(
                "You have requested more vCPU capacity than your current vCPU limit allows for the instance bucket \
                 that the specified instance type belongs to ({}).",
                quota::of(name, order.capacity_type)
            );
            (quota::code(order.capacity_type).to_owned(), message)
        });
    }
    let each = candidate.addresses().max(1);
    let free = world.subnets.get(subnet).map_or(0, |s| s.available());
    limit.to(free.saturating_sub(assigned.get(subnet).copied().unwrap_or(0)) / each, || {
        let message = format!(
            "There are not enough free addresses in subnet '{subnet}' to satisfy the requested number of instances."
        );
        ("InsufficientFreeAddressesInSubnet".to_owned(), message)
    });
    if let Some(group) = &candidate.group
        && world.groups.get(group).is_some_and(|g| g.strategy == Strategy::Spread)
    {
        let there =
            world.in_group(group, now).filter(|i| i.zone == zone && i.state(now) != LifeState::Terminated).count();
        limit.to(SPREAD_LIMIT.saturating_sub(u32::try_from(there).unwrap_or(u32::MAX)), || {
            let message = "You have reached the limit of instances in this spread placement group.".to_owned();
            ("InsufficientInstanceCapacity".to_owned(), message)
        });
    }
    limit
}

/// Instances of a spread group per zone.
const SPREAD_LIMIT: u32 = 7;

/// The errors of a launch that came to nothing.
pub(super) fn shortfall(choice: Shortfall, failures: Vec<FleetError>) -> Vec<FleetError> {
    match choice {
        Shortfall::PerOverride => failures,
        Shortfall::Empty => vec![],
        Shortfall::Unfulfillable => {
            // Only what is reported about capacity is a guess; other codes stay as they are.
            let (capacity, mut rest): (Vec<_>, Vec<_>) =
                failures.into_iter().partition(|e| e.code == "InsufficientInstanceCapacity");
            rest.extend(capacity.into_iter().next().map(|e| {
                FleetError {
                    code: "UnfulfillableCapacity".to_owned(),
                    message:
                        "Unable to fulfill capacity due to your request configuration. Please adjust your request \
                          and try again."
                            .to_owned(),
                    ..e
                }
            }));
            rest
        }
    }
}
