//! Launch semantics: candidates in order, one bundle of them at a time, all or nothing where a
//! minimum asks for it.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};

use crate::capacity::{Host, Pin, Want, network_nodes};
use crate::choices::Shortfall;
use crate::clock::{later, seconds};
use crate::faults::{Drawn, FaultKind};
use crate::fixtures::InstanceType;
use crate::interfaces::InterfaceSpec;
use crate::protocol::error::no_capacity_text;
use crate::scenario::{Market, ScenarioError};
use crate::state::World;
use crate::state::fleets::{FleetError, FleetLaunch, Origin};
use crate::state::groups::Strategy;
use crate::state::instances::{Instance, Interface, InterfaceKind, LifeState};

/// A launch whose parameters are known to be good.
#[derive(Debug)]
pub(crate) struct Order<'a> {
    pub(crate) operation: &'a str,
    pub(crate) token: Option<&'a str>,
    pub(crate) fleet: Option<&'a str>,
    pub(crate) reservation: &'a str,
    pub(crate) total: u32,
    /// Fewer than this many: nothing.
    pub(crate) minimum: Option<u32>,
    pub(crate) single_type: bool,
    pub(crate) single_zone: bool,
    pub(crate) market: Market,
    pub(crate) ranking: Ranking,
    pub(crate) candidates: Vec<Candidate>,
    pub(crate) drawn: &'a Drawn,
}

/// How candidates are ordered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ranking {
    /// As they are.
    Given,
    Priority,
    Price,
    /// Most free hosts first, as an approximation of what EC2 knows about spot capacity.
    Capacity,
}

/// One type in one subnet with everything its instances get.
#[derive(Debug, Clone)]
pub(crate) struct Candidate {
    pub(crate) origin: Origin,
    pub(crate) instance_type: &'static InstanceType,
    pub(crate) priority: Option<f64>,
    /// The placement group's name.
    pub(crate) group: Option<String>,
    pub(crate) image: String,
    pub(crate) interfaces: Vec<InterfaceSpec>,
    pub(crate) security_groups: Vec<String>,
    pub(crate) user_data: Option<String>,
    pub(crate) tags: BTreeMap<String, String>,
    pub(crate) volume_tags: BTreeMap<String, String>,
    pub(crate) interface_tags: BTreeMap<String, String>,
}

impl Candidate {
    /// Addresses which one instance takes from the subnet.
    pub(crate) fn addresses(&self) -> u32 {
        self.interfaces.iter().map(InterfaceSpec::addresses).sum()
    }
}

/// What a launch came to.
#[derive(Debug, Default)]
pub(crate) struct Outcome {
    pub(crate) launches: Vec<FleetLaunch>,
    pub(crate) errors: Vec<FleetError>,
}

impl Outcome {
    pub(crate) fn instances(&self) -> Vec<String> {
        self.launches.iter().flat_map(|l| l.instances.clone()).collect()
    }
}

/// Launches what can be launched.
pub(crate) fn launch(world: &mut World, order: &Order<'_>, now: Timestamp) -> Outcome {
    let violating = order.drawn.kinds().find_map(FaultKind::violation);
    let target = violating.unwrap_or(order.total);
    let minimum = match violating {
        Some(_) => 1,
        None => order.minimum.unwrap_or(1).max(1),
    };
    let bundles = bundles(world, order);
    let mut failures = Vec::new();
    let mut best: Option<(usize, u32)> = None;
    for (index, bundle) in bundles.iter().enumerate() {
        let fill = fill(world, order, bundle, target, now);
        if fill.got >= target {
            failures.extend(fill.failures);
            return Outcome {
                launches: commit(world, order, fill.parts, now),
                // With everything launched EC2 reports no failed candidates of a minimum.
                errors: if order.minimum.is_some() { vec![] } else { failures },
            };
        }
        for (_, hosts) in &fill.parts {
            for host in hosts {
                world.capacity.release(host);
            }
        }
        failures.extend(fill.failures);
        if fill.got >= minimum && best.is_none_or(|(_, got)| fill.got > got) {
            best = Some((index, fill.got));
        }
    }
    if let Some((index, _)) = best {
        let fill = fill(world, order, &bundles[index], target, now);
        return Outcome { launches: commit(world, order, fill.parts, now), errors: failures };
    }
    Outcome { launches: vec![], errors: shortfall(world.scenario.choices.shortfall, failures) }
}

/// Starts the instances of others that the scenario declares; they run at once.
///
/// # Errors
/// [`ScenarioError::NoRoomForOthers`].
pub(crate) fn place_others(world: &mut World, now: Timestamp) -> Result<(), ScenarioError> {
    for other in world.scenario.others.clone() {
        let no_room =
            || ScenarioError::NoRoomForOthers { instance_type: other.instance_type.clone(), zone: other.zone.clone() };
        let Some(instance_type) = InstanceType::find(&other.instance_type) else {
            return Err(ScenarioError::UnknownType(other.instance_type.clone()));
        };
        let subnet = world.subnets.values().find(|s| s.zone == other.zone);
        let subnet = subnet.ok_or_else(no_room)?;
        let candidate = Candidate {
            origin: Origin {
                template: String::new(),
                version: String::new(),
                instance_type: other.instance_type.clone(),
                subnet: subnet.id.clone(),
                zone: subnet.zone.clone(),
                zone_id: subnet.zone_id.clone(),
                priority: None,
                group: None,
                image: None,
            },
            instance_type,
            priority: None,
            group: None,
            image: "ami-00000000000000000".to_owned(),
            interfaces: vec![InterfaceSpec { card: 0, device: 0, kind: InterfaceKind::Plain, prefixes: 0 }],
            security_groups: vec![],
            user_data: None,
            tags: other.tags.clone(),
            volume_tags: other.tags.clone(),
            interface_tags: other.tags.clone(),
        };
        let reservation = world.ids.resource("r");
        let outcome = launch(
            world,
            &Order {
                operation: "others",
                token: None,
                fleet: None,
                reservation: &reservation,
                total: other.count,
                minimum: Some(other.count),
                single_type: true,
                single_zone: true,
                market: other.market,
                ranking: Ranking::Given,
                candidates: vec![candidate],
                drawn: &Drawn::default(),
            },
            now,
        );
        let placed = outcome.instances();
        if placed.len() < other.count as usize {
            return Err(no_room());
        }
        for id in placed {
            if let Some(instance) = world.instances.get_mut(&id) {
                instance.foreign = true;
                instance.running_at = Some(now);
            }
        }
    }
    Ok(())
}

struct Fill {
    parts: Vec<(Candidate, Vec<Host>)>,
    failures: Vec<FleetError>,
    got: u32,
}

/// Orders the candidates and groups those that may be launched together.
fn bundles(world: &World, order: &Order<'_>) -> Vec<Vec<Candidate>> {
    let mut candidates = order.candidates.clone();
    let price = |c: &Candidate| world.scenario.price(c.instance_type.name, order.market);
    let free = |c: &Candidate| {
        let zone = &c.origin.zone;
        world.capacity.free(c.instance_type.name, zone, order.market)
    };
    match order.ranking {
        Ranking::Given => {}
        Ranking::Priority => candidates.sort_by(|a, b| {
            let of = |c: &Candidate| c.priority.unwrap_or(f64::MAX);
            of(a).total_cmp(&of(b))
        }),
        Ranking::Price => candidates.sort_by_key(price),
        Ranking::Capacity => candidates.sort_by_key(|c| std::cmp::Reverse(free(c))),
    }
    let mut bundles: Vec<((String, String), Vec<Candidate>)> = Vec::new();
    for candidate in candidates {
        let part = |single: bool, name: &str| {
            if single { name.to_owned() } else { String::new() }
        };
        let key =
            (part(order.single_type, candidate.instance_type.name), part(order.single_zone, &candidate.origin.zone));
        match bundles.iter_mut().find(|(k, _)| *k == key) {
            Some((_, bundle)) => bundle.push(candidate),
            None => bundles.push((key, vec![candidate])),
        }
    }
    bundles.into_iter().map(|(_, bundle)| bundle).collect()
}

/// Takes hosts for up to `target` instances from the candidates of a bundle.
fn fill(world: &mut World, order: &Order<'_>, bundle: &[Candidate], target: u32, now: Timestamp) -> Fill {
    let mut fill = Fill { parts: vec![], failures: vec![], got: 0 };
    let mut pins: BTreeMap<String, Pin> =
        world.groups.iter().filter_map(|(name, g)| g.pin.clone().map(|pin| (name.clone(), pin))).collect();
    // Addresses promised to earlier candidates of the same subnet.
    let mut promised: BTreeMap<String, u32> = BTreeMap::new();
    for candidate in bundle {
        let wanted = target - fill.got;
        if wanted == 0 {
            break;
        }
        let limit = limit(world, order, candidate, wanted, &promised, now);
        let cluster = candidate
            .group
            .as_ref()
            .filter(|name| world.groups.get(*name).is_some_and(|g| g.strategy == Strategy::Cluster));
        let zone = candidate.origin.zone.as_str();
        let hosts = world.capacity.take(&Want {
            instance_type: candidate.instance_type.name,
            zone,
            market: order.market,
            cluster: cluster.is_some(),
            pin: cluster.and_then(|name| pins.get(name)),
            count: limit.most.min(wanted),
        });
        let got = u32::try_from(hosts.len()).unwrap_or(u32::MAX);
        if got < wanted {
            let (code, message) = limit.error.unwrap_or_else(|| {
                ("InsufficientInstanceCapacity".to_owned(), no_capacity_text(candidate.instance_type.name, zone))
            });
            fill.failures.push(FleetError { origin: candidate.origin.clone(), code, message });
        }
        let Some(first) = hosts.first() else {
            continue;
        };
        if let Some(name) = cluster {
            pins.entry(name.clone()).or_insert_with(|| Pin {
                zone: zone.to_owned(),
                instance_type: candidate.instance_type.name.to_owned(),
                spine: first.spine,
            });
        }
        *promised.entry(candidate.origin.subnet.clone()).or_default() += got * candidate.addresses();
        fill.got += got;
        fill.parts.push((candidate.clone(), hosts));
    }
    fill
}

struct Limit {
    most: u32,
    /// Why, if it is not for want of hosts.
    error: Option<(String, String)>,
}

/// What keeps a candidate from launching, hosts aside.
fn limit(
    world: &World,
    order: &Order<'_>,
    candidate: &Candidate,
    wanted: u32,
    promised: &BTreeMap<String, u32>,
    now: Timestamp,
) -> Limit {
    let name = candidate.instance_type.name;
    let zone = candidate.origin.zone.as_str();
    let none = |code: &str, message: String| Limit { most: 0, error: Some((code.to_owned(), message)) };
    if !world.capacity.offered(name, zone) {
        let code = if order.operation == "CreateFleet" { "InvalidFleetConfiguration" } else { "Unsupported" };
        return none(
            code,
            format!(
                "Your requested instance type ({name}) is not supported in your requested Availability Zone ({zone})."
            ),
        );
    }
    let mut limit = Limit { most: wanted, error: None };
    for kind in order.drawn.of_pool(name, zone) {
        match kind {
            FaultKind::Ice => limit.most = 0,
            FaultKind::Partial { fill } => limit.most = limit.most.min(*fill),
            FaultKind::ErrorItem { code, message } => return none(code, message.clone()),
            FaultKind::Violating { .. }
            | FaultKind::LostResponse
            | FaultKind::LostAsServerError
            | FaultKind::Delay { .. }
            | FaultKind::Throttle
            | FaultKind::Error { .. }
            | FaultKind::StuckPending { .. }
            | FaultKind::SlowBoot { .. }
            | FaultKind::Dies { .. }
            | FaultKind::Invisible { .. }
            | FaultKind::SlowTerminate { .. } => {}
        }
    }
    let each = candidate.addresses().max(1);
    let subnet = candidate.origin.subnet.as_str();
    let free = world.subnets.get(subnet).map_or(0, |s| s.available());
    let room = free.saturating_sub(promised.get(subnet).copied().unwrap_or(0)) / each;
    if room < limit.most {
        limit.most = room;
        limit.error = Some((
            "InsufficientFreeAddressesInSubnet".to_owned(),
            format!(
                "There are not enough free addresses in subnet '{subnet}' to satisfy the requested number of instances."
            ),
        ));
    }
    if let Some(group) = &candidate.group
        && world.groups.get(group).is_some_and(|g| g.strategy == Strategy::Spread)
    {
        let there =
            world.in_group(group, now).filter(|i| i.zone == zone && i.state(now) != LifeState::Terminated).count();
        let room = SPREAD_LIMIT.saturating_sub(u32::try_from(there).unwrap_or(u32::MAX));
        if room < limit.most {
            limit.most = room;
            limit.error = Some((
                "InsufficientInstanceCapacity".to_owned(),
                "You have reached the limit of instances in this spread placement group.".to_owned(),
            ));
        }
    }
    limit
}

/// Instances of a spread group per zone.
const SPREAD_LIMIT: u32 = 7;

fn shortfall(choice: Shortfall, failures: Vec<FleetError>) -> Vec<FleetError> {
    match choice {
        Shortfall::PerOverride => failures,
        Shortfall::Empty => vec![],
        Shortfall::Unfulfillable => {
            // Only what is said about capacity is a guess; other codes stay as they are.
            let (capacity, mut rest): (Vec<_>, Vec<_>) =
                failures.into_iter().partition(|e| e.code == "InsufficientInstanceCapacity");
            rest.extend(capacity.into_iter().next().map(|e| FleetError {
                code: "UnfulfillableCapacity".to_owned(),
                message: "Unable to fulfill capacity due to your request configuration. Please adjust your request and try again.".to_owned(),
                ..e
            }));
            rest
        }
    }
}

/// Makes the instances on the hosts taken.
fn commit(
    world: &mut World,
    order: &Order<'_>,
    parts: Vec<(Candidate, Vec<Host>)>,
    now: Timestamp,
) -> Vec<FleetLaunch> {
    let mut launches: Vec<FleetLaunch> = Vec::new();
    let mut index = 0;
    for (candidate, hosts) in parts {
        pin(world, &candidate, &hosts);
        let mut instances = Vec::with_capacity(hosts.len());
        for host in hosts {
            instances.push(start(world, order, &candidate, host, index, now));
            index += 1;
        }
        launches.push(FleetLaunch { origin: candidate.origin, instances });
    }
    launches
}

fn pin(world: &mut World, candidate: &Candidate, hosts: &[Host]) {
    let group = candidate.group.as_ref().and_then(|name| world.groups.get_mut(name));
    if let Some(group) = group
        && let Some(first) = hosts.first()
        && group.strategy == Strategy::Cluster
        && group.pin.is_none()
    {
        group.pin = Some(Pin {
            zone: candidate.origin.zone.clone(),
            instance_type: candidate.instance_type.name.to_owned(),
            spine: first.spine,
        });
    }
}

/// Makes one instance and returns its id.
fn start(
    world: &mut World,
    order: &Order<'_>,
    candidate: &Candidate,
    host: Host,
    index: u32,
    now: Timestamp,
) -> String {
    let id = world.ids.resource("i");
    let life = Life::of(order, &world.scenario.delays, candidate, index, now);
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
        interfaces.push(Interface {
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
        instance_type: candidate.instance_type.name.to_owned(),
        zone: candidate.origin.zone.clone(),
        zone_id: candidate.origin.zone_id.clone(),
        market: order.market,
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
        spot_request: match order.market {
            Market::OnDemand => None,
            Market::Spot => Some(world.ids.resource("sir")),
        },
        network_nodes: network_nodes(
            scenario.seed,
            candidate.instance_type,
            &candidate.origin.zone,
            &host,
            scenario.choices.fourth_layer,
        ),
        price: scenario.price(candidate.instance_type.name, order.market),
        host,
        foreign: false,
        launched_at: now,
        visible_at: later(now, life.hidden),
        running_at: life.running_at,
        shutdown_at: life.dies.as_ref().map(|d| d.0),
        terminated_at: life.dies.as_ref().map(|d| d.1),
        reason: life.dies.map(|d| (d.2.clone(), d.2)),
        released: false,
        id: id.clone(),
    };
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
    hidden: SignedDuration,
    /// Shutting down, terminated, reason.
    dies: Option<(Timestamp, Timestamp, String)>,
}

impl Life {
    fn of(
        order: &Order<'_>,
        delays: &crate::scenario::Delays,
        candidate: &Candidate,
        index: u32,
        now: Timestamp,
    ) -> Self {
        let mut life = Self {
            running_at: Some(later(now, seconds(delays.boot_seconds))),
            hidden: SignedDuration::ZERO,
            dies: None,
        };
        let pool = order.drawn.of_pool(candidate.instance_type.name, &candidate.origin.zone);
        for kind in pool {
            match kind {
                FaultKind::StuckPending { instances } if among(*instances, index) => {
                    life.running_at = None;
                }
                FaultKind::SlowBoot { instances, seconds: more } if among(*instances, index) => {
                    life.running_at = life.running_at.map(|at| later(at, seconds(*more)));
                }
                FaultKind::Dies { instances, after_seconds, reason } if index < *instances => {
                    let at = later(now, seconds(*after_seconds));
                    let gone = later(at, seconds(delays.terminate_seconds));
                    life.dies = Some((at, gone, reason.clone()));
                }
                FaultKind::Invisible { seconds: hidden } => life.hidden = seconds(*hidden),
                FaultKind::StuckPending { .. }
                | FaultKind::SlowBoot { .. }
                | FaultKind::Dies { .. }
                | FaultKind::Ice
                | FaultKind::Partial { .. }
                | FaultKind::Violating { .. }
                | FaultKind::ErrorItem { .. }
                | FaultKind::LostResponse
                | FaultKind::LostAsServerError
                | FaultKind::Delay { .. }
                | FaultKind::Throttle
                | FaultKind::Error { .. }
                | FaultKind::SlowTerminate { .. } => {}
            }
        }
        life
    }
}

fn among(first: Option<u32>, index: u32) -> bool {
    first.is_none_or(|first| index < first)
}
