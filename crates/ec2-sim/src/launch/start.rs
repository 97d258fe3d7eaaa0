//! Starting instances on the hosts taken, and the life the faults leave them.

use jiff::{SignedDuration, Timestamp};

use super::order::{Candidate, Order, Taken};
use crate::capacity::{Pin, network_nodes};
use crate::clock::{later, seconds};
use crate::faults::FaultKind;
use crate::interruption::Interruption;
use crate::kinds::MarketType;
use crate::kinds::Strategy;
use crate::scenario::Delays;
use crate::state::World;
use crate::state::agenda::Due;
use crate::state::fleets::FleetLaunch;
use crate::state::instances::{FROM_WITHIN, Instance, Interface, InterfaceKind};

/// Makes the instances on the hosts taken.
pub(super) fn commit(
    world: &mut World,
    order: &Order<'_>,
    parts: Vec<(Candidate, Vec<Taken>)>,
    now: Timestamp,
) -> Vec<FleetLaunch> {
    let mut launches: Vec<FleetLaunch> = Vec::new();
    let mut index = 0;
    for (candidate, hosts) in parts {
        pin(world, &candidate, &hosts);
        let mut instances = Vec::with_capacity(hosts.len());
        for taken in hosts {
            instances.push(start(world, order, &candidate, taken, index, now));
            index += 1;
        }
        launches.push(FleetLaunch { origin: candidate.origin, instances });
    }
    launches
}

fn pin(world: &mut World, candidate: &Candidate, hosts: &[Taken]) {
    let group = candidate.group.as_ref().and_then(|name| world.groups.get_mut(name));
    if let Some(group) = group
        && let Some(first) = hosts.first()
        && group.strategy == Strategy::Cluster
        && group.pin.is_none()
    {
        group.pin = Some(Pin {
            zone: candidate.origin.zone.clone(),
            instance_type: candidate.instance_type.name.clone(),
            spine: first.host.spine,
        });
    }
}

/// Makes one instance and returns its id.
fn start(
    world: &mut World,
    order: &Order<'_>,
    candidate: &Candidate,
    taken: Taken,
    index: u32,
    now: Timestamp,
) -> String {
    let id = world.ids.resource("i");
    let reservation = taken.reservation.as_ref().and_then(|id| world.reservations.get(id));
    let capacity_type = reservation.map_or(order.capacity_type, |r| r.kind.capacity_type());
    let most = world.scenario.delays.boot_jitter_seconds;
    let jitter = if most > 0.0 { world.ids.fraction() * most } else { 0.0 };
    let life = Life::of(order, &world.scenario.delays, candidate, index, jitter, now);
    let host = taken.host;
    // `fill` has seen that there are enough, and nothing came between.
    let addresses =
        world.subnets.get_mut(&candidate.origin.subnet).and_then(|s| s.take(candidate.addresses())).unwrap_or_default();
    let mut left = addresses.iter();
    let mut interfaces = Vec::with_capacity(candidate.interfaces.len());
    for spec in &candidate.interfaces {
        let mut address = None;
        for number in 0..spec.addresses() {
            let taken = left.next().map(|(_, ip)| *ip);
            if number == 0 {
                address = taken;
            }
        }
        let subnet = world.subnets.get_mut(&candidate.origin.subnet);
        interfaces.push(Interface {
            ipv6: subnet.map(|subnet| subnet.take_ipv6(spec.ipv6)).unwrap_or_default(),
            primary_ipv6: spec.primary_ipv6,
            id: world.ids.resource("eni"),
            card: spec.card,
            device: spec.device,
            kind: spec.kind,
            address,
        });
    }
    let private_ip = interfaces
        .iter()
        .filter(|i| i.kind != InterfaceKind::EfaOnly)
        .find_map(|i| i.address)
        .unwrap_or(std::net::Ipv4Addr::UNSPECIFIED);
    let scenario = &world.scenario;
    let instance = Instance {
        reservation: order.reservation.to_owned(),
        operation: order.operation.to_owned(),
        token: order.token.map(str::to_owned),
        fleet: order.fleet.map(str::to_owned),
        instance_type: candidate.instance_type.name.clone(),
        zone: candidate.origin.zone.clone(),
        zone_id: candidate.origin.zone_id.clone(),
        capacity_type,
        vcpus: candidate.instance_type.vcpus,
        preference: candidate.source.preference(),
        target: candidate.source.target(),
        capacity_reservation: taken.reservation,
        subnet: candidate.origin.subnet.clone(),
        group: candidate.group.clone(),
        group_id: candidate.group.as_ref().and_then(|name| world.groups.get(name)).map(|g| g.id.clone()),
        image: candidate.image.clone(),
        template: Some(candidate.origin.template.clone()).filter(|t| !t.is_empty()),
        launch_index: index,
        tags: candidate.tags.clone(),
        volume_tags: candidate.volume_tags.clone(),
        interface_tags: candidate.interface_tags.clone(),
        interfaces,
        addresses: addresses.iter().map(|(i, _)| *i).collect(),
        private_ip,
        private_dns: private_dns(&scenario.region, private_ip),
        security_groups: candidate.security_groups.clone(),
        user_data: candidate.user_data.clone(),
        spot_request: (capacity_type == MarketType::Spot).then(|| world.ids.resource("sir")),
        network_nodes: network_nodes(
            scenario.seed,
            candidate.instance_type,
            &candidate.origin.zone,
            &host,
            scenario.choices.fourth_layer,
        ),
        price: scenario.price(&candidate.instance_type.name, capacity_type),
        host,
        foreign: false,
        launched_at: now,
        visible_at: later(now, life.hidden),
        tagged_at: later(now, life.tags_late),
        registers_at: life.registers_at,
        scheduled: None,
        reported: None,
        running_at: life.running_at,
        shutdown_at: life.dies.as_ref().map(|d| d.0),
        terminated_at: life.dies.as_ref().map(|d| d.1),
        reason: life.dies.map(|d| (d.2.clone(), d.2)),
        released: false,
        host_free: false,
        id: id.clone(),
    };
    let moments = [Some(now), instance.running_at, instance.shutdown_at, instance.terminated_at];
    for moment in moments.into_iter().flatten() {
        world.agenda.add(moment, Due::StateChange(id.clone()));
    }
    let end = life.running_at.zip(candidate.ends_itself_after).map(|(started, after)| later(started, after));
    if let Some(end) = end
        && life.registers_at.is_none_or(|at| at > end)
    {
        world.agenda.add(end, Due::Terminate { instance: id.clone(), reason: FROM_WITHIN });
    }
    for (at, interruption) in life.interruptions {
        world.agenda.add(at, Due::Interrupt(Interruption { instance_ids: vec![id.clone()], ..interruption }));
    }
    world.instances.insert(id.clone(), instance);
    id
}

fn private_dns(region: &str, ip: std::net::Ipv4Addr) -> String {
    let dashed = ip.to_string().replace('.', "-");
    if region == "us-east-1" {
        format!("ip-{dashed}.ec2.internal")
    } else {
        format!("ip-{dashed}.{region}.compute.internal")
    }
}

/// The points in time that the faults leave to an instance.
struct Life {
    running_at: Option<Timestamp>,
    /// When a kubelet on it would register its node; none: never.
    registers_at: Option<Timestamp>,
    hidden: SignedDuration,
    tags_late: SignedDuration,
    /// Shutting down, terminated, reason.
    dies: Option<(Timestamp, Timestamp, String)>,
    interruptions: Vec<(Timestamp, Interruption)>,
}

impl Life {
    fn of(order: &Order<'_>, delays: &Delays, candidate: &Candidate, index: u32, jitter: f64, now: Timestamp) -> Self {
        let running_at = later(now, seconds(delays.boot_seconds + jitter));
        let mut life = Self {
            running_at: Some(running_at),
            registers_at: None,
            hidden: SignedDuration::ZERO,
            tags_late: SignedDuration::ZERO,
            dies: None,
            interruptions: vec![],
        };
        let mut registers = Some(seconds(delays.registration_seconds));
        for kind in order.drawn.of_pool(&candidate.instance_type.name, &candidate.origin.zone, order.capacity_type) {
            if let FaultKind::StuckPending { instances } = kind
                && among(*instances, index)
            {
                life.running_at = None;
            }
            if let FaultKind::SlowBoot { instances, seconds: more } = kind
                && among(*instances, index)
            {
                life.running_at = life.running_at.map(|at| later(at, seconds(*more)));
            }
            if let FaultKind::SlowRegistration { instances, seconds: more } = kind
                && among(*instances, index)
            {
                registers = more.map(seconds);
            }
            if let FaultKind::Dies { instances, after_seconds, reason } = kind
                && index < *instances
            {
                let at = later(now, seconds(*after_seconds));
                let gone = later(at, seconds(delays.terminate_seconds));
                life.dies = Some((at, gone, reason.clone()));
            }
            if let FaultKind::Invisible { seconds: hidden } = kind {
                life.hidden = seconds(*hidden);
            }
            if let FaultKind::TagsLate { seconds: late } = kind {
                life.tags_late = seconds(*late);
            }
            if let FaultKind::Interrupted { instances, after_seconds, interruption } = kind
                && among(*instances, index)
            {
                let at = later(life.running_at.unwrap_or(now), seconds(*after_seconds));
                life.interruptions.push((at, interruption.clone()));
            }
        }
        life.registers_at = life.running_at.zip(registers).map(|(at, more)| later(at, more));
        life
    }
}

fn among(first: Option<u32>, index: u32) -> bool {
    first.is_none_or(|first| index < first)
}
