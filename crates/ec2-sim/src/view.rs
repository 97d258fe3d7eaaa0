//! The instances as the control endpoint shows them.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::Serialize;

use crate::capacity::path;
use crate::clock::{later, seconds};
use crate::fixtures::InstanceType;
use crate::kinds::MarketType;
use crate::state::World;
use crate::state::instances::{Instance, LifeState};

/// An instance with what a fake for its node needs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct InstanceView {
    /// For instance `i-0123456789abcdef0`.
    pub instance_id: String,
    /// The instance type.
    #[serde(rename = "type")]
    pub instance_type: String,
    /// The zone's name.
    pub zone: String,
    /// The zone's id.
    pub zone_id: String,
    /// `on-demand` or `spot`.
    #[serde(rename = "market")]
    pub capacity_type: MarketType,
    /// `pending`, `running`, `shutting-down` or `terminated`.
    pub state: &'static str,
    /// The `stateReason` code once it shuts down.
    pub state_reason: Option<String>,
    /// When it was launched.
    pub launch_time: Timestamp,
    /// When it runs, or will.
    pub running_time: Option<Timestamp>,
    /// The name nodes have on EC2.
    pub private_dns_name: String,
    /// The primary address.
    pub private_ip: String,
    /// Where its host lies.
    pub host: HostPath,
    /// What DescribeInstanceTopology answers once it runs, top to bottom.
    pub network_nodes: Vec<String>,
    /// Tags.
    pub tags: BTreeMap<String, String>,
    /// Base64, as given.
    pub user_data: Option<String>,
    /// The placement group's name.
    pub placement_group: Option<String>,
    /// The fleet that launched it.
    pub fleet: Option<String>,
    /// The launch template's id.
    pub launch_template: Option<String>,
    /// The token it was launched by.
    pub client_token: Option<String>,
    /// The image's id.
    pub image_id: String,
    /// Accelerators.
    pub gpus: u32,
    /// The extended resource the accelerators are, if there are any.
    pub gpu_resource: Option<&'static str>,
    /// Interfaces of type `efa` or `efa-only`.
    pub efa_interfaces: usize,
    /// Network interfaces in all.
    pub interfaces: usize,
    /// Virtual CPUs.
    pub vcpus: u32,
    /// Memory in MiB.
    pub memory_mib: u64,
    /// When a kubelet on it registers its node; none: never.
    pub registration_time: Option<Timestamp>,
    /// When it reports that the node is Ready; none: never.
    pub ready_time: Option<Timestamp>,
    /// The capacity reservation it runs in.
    pub capacity_reservation: Option<String>,
    /// Whether it belongs to others and was there from the start.
    pub foreign: bool,
}

/// An instance that runs, and when its kubelet does something.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Machine {
    /// For instance `i-0123456789abcdef0`.
    pub instance_id: String,
    /// The instance type.
    pub instance_type: String,
    /// When a kubelet on it registers its node; none: never.
    pub registration_time: Option<Timestamp>,
    /// When it reports that the node is Ready; none: never.
    pub ready_time: Option<Timestamp>,
}

/// The network nodes above a host and the host's number on its leaf.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct HostPath {
    /// The zone's top node.
    pub core: String,
    /// The segment of a cluster placement group.
    pub spine: String,
    /// The closest node.
    pub leaf: String,
    /// From 0.
    pub slot: u32,
}

/// All instances by id, or only the pending and running ones.
pub(crate) fn instances(world: &World, now: Timestamp, live: bool) -> Vec<InstanceView> {
    world.instances.values().filter(|i| !live || i.state(now).is_live()).map(|i| view(world, i, now)).collect()
}

/// One of them.
pub(crate) fn instance(world: &World, now: Timestamp, id: &str) -> Option<InstanceView> {
    world.instances.get(id).map(|i| view(world, i, now))
}

/// Those that run and belong to nobody else.
pub(crate) fn machines(world: &World, now: Timestamp) -> Vec<Machine> {
    let runs = |i: &&Instance| !i.foreign && i.state(now) == LifeState::Running;
    let machine = |i: &Instance| Machine {
        instance_id: i.id.clone(),
        instance_type: i.instance_type.clone(),
        registration_time: i.registers_at,
        ready_time: ready_at(world, i),
    };
    world.instances.values().filter(runs).map(machine).collect()
}

fn ready_at(world: &World, i: &Instance) -> Option<Timestamp> {
    i.registers_at.map(|at| later(at, seconds(world.scenario.delays.ready_seconds)))
}

fn view(world: &World, i: &Instance, now: Timestamp) -> InstanceView {
    let facts = InstanceType::find(&i.instance_type);
    let gpus = facts.map_or(0, InstanceType::accelerators);
    let [core, spine, leaf] = path(world.scenario.seed, &i.instance_type, &i.zone, &i.host);
    let state = i.state(now);
    InstanceView {
        instance_id: i.id.clone(),
        instance_type: i.instance_type.clone(),
        zone: i.zone.clone(),
        zone_id: i.zone_id.clone(),
        capacity_type: i.capacity_type,
        state: state.name(),
        state_reason: i.reason.as_ref().filter(|_| !state.is_live()).map(|(code, _)| code.clone()),
        launch_time: i.launched_at,
        running_time: i.running_at,
        private_dns_name: i.private_dns.clone(),
        private_ip: i.private_ip.to_string(),
        host: HostPath { core, spine, leaf, slot: i.host.slot },
        network_nodes: i.network_nodes.clone(),
        tags: i.tags.clone(),
        user_data: i.user_data.clone(),
        placement_group: i.group.clone(),
        fleet: i.fleet.clone(),
        launch_template: i.template.clone(),
        client_token: i.token.clone(),
        image_id: i.image.clone(),
        gpus,
        gpu_resource: facts.and_then(InstanceType::accelerator_resource),
        efa_interfaces: i.efa_interfaces(),
        interfaces: i.interfaces.len(),
        vcpus: facts.map_or(0, |t| t.vcpus),
        memory_mib: facts.map_or(0, |t| t.memory_mib),
        registration_time: i.registers_at,
        ready_time: ready_at(world, i),
        capacity_reservation: i.capacity_reservation.clone(),
        foreign: i.foreign,
    }
}
