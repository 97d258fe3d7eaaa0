//! Instances and their life, which follows from points in time alone.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, Ipv6Addr};

use jiff::Timestamp;
use serde::Serialize;

use crate::capacity::Host;
use crate::kinds::MarketType;

/// The `stateReason` of an instance its owner terminated.
pub(crate) const BY_USER: (&str, &str) =
    ("Client.UserInitiatedShutdown", "Client.UserInitiatedShutdown: User initiated shutdown");

/// The `stateReason` of an instance that was shut down from within.
pub(crate) const FROM_WITHIN: &str = "Client.InstanceInitiatedShutdown";

/// An instance, living or dead.
#[derive(Debug, Clone)]
pub(crate) struct Instance {
    pub(crate) id: String,
    pub(crate) reservation: String,
    pub(crate) operation: String,
    pub(crate) token: Option<String>,
    pub(crate) fleet: Option<String>,
    pub(crate) instance_type: String,
    pub(crate) zone: String,
    pub(crate) zone_id: String,
    pub(crate) capacity_type: MarketType,
    pub(crate) vcpus: u32,
    /// What its launch asked of capacity reservations: the preference, and the one named.
    pub(crate) preference: Option<&'static str>,
    pub(crate) target: Option<String>,
    /// The capacity reservation it runs in.
    pub(crate) capacity_reservation: Option<String>,
    pub(crate) subnet: String,
    /// The placement group's name.
    pub(crate) group: Option<String>,
    pub(crate) group_id: Option<String>,
    pub(crate) image: String,
    pub(crate) template: Option<String>,
    pub(crate) launch_index: u32,
    pub(crate) tags: BTreeMap<String, String>,
    pub(crate) volume_tags: BTreeMap<String, String>,
    pub(crate) interface_tags: BTreeMap<String, String>,
    pub(crate) interfaces: Vec<Interface>,
    /// Indices of the addresses in the subnet.
    pub(crate) addresses: Vec<u32>,
    pub(crate) private_ip: Ipv4Addr,
    pub(crate) private_dns: String,
    pub(crate) security_groups: Vec<String>,
    /// Base64, as the request or the launch template gave it.
    pub(crate) user_data: Option<String>,
    pub(crate) spot_request: Option<String>,
    pub(crate) host: Host,
    /// Top to bottom.
    pub(crate) network_nodes: Vec<String>,
    pub(crate) price: u64,
    /// Whether it belongs to others and was there from the start.
    pub(crate) foreign: bool,
    pub(crate) launched_at: Timestamp,
    pub(crate) visible_at: Timestamp,
    /// When its tags are seen.
    pub(crate) tagged_at: Timestamp,
    /// When a kubelet on it would register its node; none: never.
    pub(crate) registers_at: Option<Timestamp>,
    /// A change that EC2 has scheduled: its code, and when.
    pub(crate) scheduled: Option<(String, Timestamp)>,
    /// The state last reported to the queue.
    pub(crate) reported: Option<LifeState>,
    /// None: it is stuck in `pending`.
    pub(crate) running_at: Option<Timestamp>,
    /// When it begins, or began, to shut down.
    pub(crate) shutdown_at: Option<Timestamp>,
    pub(crate) terminated_at: Option<Timestamp>,
    /// Code and message.
    pub(crate) reason: Option<(String, String)>,
    /// Whether its addresses were terminated.
    pub(crate) released: bool,
    /// Whether its host was.
    pub(crate) host_free: bool,
}

/// A network interface of an instance.
#[derive(Debug, Clone)]
pub(crate) struct Interface {
    pub(crate) id: String,
    pub(crate) card: u32,
    pub(crate) device: u32,
    pub(crate) kind: InterfaceKind,
    pub(crate) address: Option<Ipv4Addr>,
    pub(crate) ipv6: Vec<Ipv6Addr>,
    /// Whether the first of these stays as long as the interface does.
    pub(crate) primary_ipv6: bool,
}

/// What an interface can do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum InterfaceKind {
    Plain,
    Efa,
    EfaOnly,
}

impl InterfaceKind {
    pub(crate) fn parse(name: &str) -> Option<Self> {
        match name {
            "interface" => Some(Self::Plain),
            "efa" => Some(Self::Efa),
            "efa-only" => Some(Self::EfaOnly),
            _ => None,
        }
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Plain => "interface",
            Self::Efa => "efa",
            Self::EfaOnly => "efa-only",
        }
    }
}

/// The state of an instance.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum LifeState {
    Pending,
    Running,
    ShuttingDown,
    Terminated,
}

impl LifeState {
    pub(crate) fn code(self) -> u8 {
        match self {
            Self::Pending => 0,
            Self::Running => 16,
            Self::ShuttingDown => 32,
            Self::Terminated => 48,
        }
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Running => "running",
            Self::ShuttingDown => "shutting-down",
            Self::Terminated => "terminated",
        }
    }

    /// Pending or running.
    pub(crate) fn is_live(self) -> bool {
        match self {
            Self::Pending | Self::Running => true,
            Self::ShuttingDown | Self::Terminated => false,
        }
    }
}

impl Instance {
    pub(crate) fn state(&self, now: Timestamp) -> LifeState {
        let past = |at: Option<Timestamp>| at.is_some_and(|at| at <= now);
        if past(self.terminated_at) {
            LifeState::Terminated
        } else if past(self.shutdown_at) {
            LifeState::ShuttingDown
        } else if past(self.running_at) {
            LifeState::Running
        } else {
            LifeState::Pending
        }
    }

    /// Interfaces that speak EFA.
    pub(crate) fn efa_interfaces(&self) -> usize {
        self.interfaces.iter().filter(|i| i.kind != InterfaceKind::Plain).count()
    }

    /// The value of the tag that names the batch.
    pub(crate) fn batch(&self) -> Option<&str> {
        self.tags.get(crate::BATCH_TAG).map(String::as_str)
    }

    /// Its tags as Describe calls see them.
    pub(crate) fn seen_tags(&self, now: Timestamp) -> &BTreeMap<String, String> {
        static NONE: BTreeMap<String, String> = BTreeMap::new();
        if self.tagged_at <= now { &self.tags } else { &NONE }
    }

    pub(crate) fn lifecycle(&self) -> Option<&'static str> {
        match self.capacity_type {
            MarketType::OnDemand => None,
            MarketType::Spot | MarketType::CapacityBlock | MarketType::InterruptibleReservation => {
                Some(self.capacity_type.name())
            }
        }
    }
}
