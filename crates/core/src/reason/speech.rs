//! What to do, as a person says it: each remedy an instruction. Sentences are made in [`super::text`].

use std::fmt::{Display, Write as _};

use super::pool::ceil;
use super::{Help, Passing, PoolChange, Wait, Why};
use crate::fit::Misfit;
use crate::model::moment::moment;
use crate::model::money::usd;
use crate::model::resources::{amount, at_least};
use crate::planner::plan::{Capacity, Change};

/// Names listed one by one.
const SHOWN: usize = 8;

impl Why {
    /// What to do where [`Why::helps`] has only the sentence itself; `None` if there is nothing to add to the headline.
    #[must_use]
    pub fn instruction(&self) -> Option<String> {
        match self {
            Self::SizeUnknown { .. } => Some(
                "Set the annotation muster.dev/gang-size on the pods, or muster.dev/gang-min for an elastic gang"
                    .to_owned(),
            ),
            Self::Suspended { kind, name } => Some(format!("Set spec.suspend of {kind} {name} to false")),
            Self::Collecting { .. }
            | Self::ForeignGate { .. }
            | Self::Volumes { .. }
            | Self::Invalid(_)
            | Self::Refused { .. }
            | Self::PlanRejected
            | Self::Excluded { .. }
            | Self::Provisioning { .. }
            | Self::ProvisionedDoNotHold { .. }
            | Self::NoCapacity { .. }
            | Self::Joining(_)
            | Self::Booking { .. }
            | Self::NothingOnSale { .. }
            | Self::MemberLost { .. }
            | Self::NoCapacityForNew { .. }
            | Self::Evicting { .. }
            | Self::Restarting
            | Self::PlanExpired
            | Self::SchedulerRefused { .. }
            | Self::SchedulerError { .. } => None,
        }
    }
}

impl Help {
    /// What to do, as an instruction without a full stop; `None` if there is nothing to do.
    #[must_use]
    pub fn instruction(&self) -> Option<String> {
        Some(match self {
            Self::Nothing => return None,
            // Whether a larger type would do was not tried.
            Self::Pool { changes, .. } if changes.iter().any(|one| matches!(one, PoolChange::OtherType { .. })) => {
                return None;
            }
            Self::Change(change) => change.instruction(),
            Self::Pool { pool, instance_type, count: _, changes } => {
                let steps: Vec<String> =
                    changes.iter().map(|change| of_pool(change, pool, instance_type.as_deref())).collect();
                steps.join(", and ")
            }
            Self::NewPool => "Create a NodePool that may provision nodes for it".to_owned(),
            Self::NoNetworkLevel => {
                "Require only the zone: AWS shows the network position only after launch".to_owned()
            }
            Self::Wait(wait) => wait.instruction(),
            Self::Describe(text) => capital(text),
        })
    }

    /// What it takes, in order: nothing but a command; another gang; dollars; patience.
    #[must_use]
    pub fn effort(&self) -> u8 {
        match self {
            Self::Change(Change::Free { .. } | Change::Nodes { .. }) => 0,
            Self::Describe(_) => 1,
            Self::Change(Change::Capacity { .. }) => 4,
            Self::Change(_) => 2,
            Self::NoNetworkLevel => 2,
            Self::Wait(Wait::Gate { .. } | Wait::Members(_)) => 1,
            // Another type is a decision of its own, not a number to raise.
            Self::Pool { changes, .. } if !keeps_the_type(changes) => 4,
            Self::Pool { .. } | Self::NewPool => 3,
            Self::Wait(_) => 5,
            Self::Nothing => 6,
        }
    }
}

impl Change {
    fn instruction(&self) -> String {
        match self {
            Self::Capacity { capacities } => {
                let parts: Vec<String> = capacities.iter().map(capacity).collect();
                format!("Free or add capacity for {}", parts.join(" and "))
            }
            Self::Widen { level: None, .. } => "Require no topology level".to_owned(),
            Self::Widen { level: Some(level), .. } => format!("Require one {level} instead"),
            Self::Share => "Ask for no exclusive domain".to_owned(),
            Self::Unslice => "Ask for no slices".to_owned(),
            Self::Unbalance => "Ask for no balance".to_owned(),
            Self::WidenSlices { level, .. } => format!("Let each slice use a whole {level}"),
            Self::Tolerate { taints } => {
                format!("Tolerate taint{} {}", if taints.len() == 1 { "" } else { "s" }, listed(taints))
            }
            Self::Unselect => "Remove nodeSelector and node affinity from the pods".to_owned(),
            Self::Nodes { reason, nodes } => freed(reason, &format!("{nodes} more node{}", plural(*nodes))),
            Self::Free { reason, nodes } => {
                let word = if nodes.len() == 1 { "node" } else { "nodes" };
                freed(reason, &format!("{word} {}", listed(nodes)))
            }
            Self::Minimum { role, members } if role.is_empty() => format!("Ask for a minimum of {members}"),
            Self::Minimum { role, members } => format!("Ask for a minimum of {members} for role {role}"),
            Self::Remove { constraints } => format!("Take {} out of the pods", listed(constraints)),
            Self::SameTemplate { role, like, .. } if role == like => {
                format!("Give all members of role {role} one template")
            }
            Self::SameTemplate { role, like, .. } => format!("Give role {role} the template of role {like}"),
            Self::SliceSize { from, to } => format!("Ask for slices of {to} instead of {from}"),
            Self::NarrowSlices { size, level, .. } => format!("Ask for slices of {size} inside one {level} each"),
        }
    }
}

impl Wait {
    fn instruction(&self) -> String {
        match self {
            Self::Members(1) => "Create the member that is missing".to_owned(),
            Self::Members(members) => format!("Create the {members} members that are missing"),
            Self::Gate { gate, pod } => {
                format!("Have the scheduling gate {gate} of pod {pod} removed by whoever set it")
            }
            Self::Joined(joining) => format!("Wait for {joining}"),
            Self::Provisioned => "Wait until the nodes are provisioned".to_owned(),
            Self::Booked(request) => {
                format!("Wait until the nodes booked by ProvisioningRequest {request} are Ready")
            }
            Self::Passed(Passing::Terminating { pods, nodes, .. }) => format!(
                "Wait until {pods} terminating pod{} on {nodes} node{} {} gone",
                plural(*pods),
                plural(*nodes),
                if *pods == 1 { "is" } else { "are" }
            ),
            Self::Passed(Passing::Assigned { gangs, .. }) => {
                let word = if gangs.len() == 1 { "gang" } else { "gangs" };
                format!("Wait until {word} {} no longer holds the capacity assigned to it", listed(gangs))
            }
            Self::Node(node) => format!("Bring node {node} back, or delete the pod on it"),
            Self::Until(until) => format!("Wait: it is tried again after {}", moment(*until)),
            Self::Pods => "Wait for the owner to recreate its pods".to_owned(),
        }
    }
}

/// Whether nodes of the type named would be provisioned after the changes.
#[must_use]
pub fn keeps_the_type(changes: &[PoolChange]) -> bool {
    changes.iter().all(|change| match change {
        PoolChange::Limit { .. }
        | PoolChange::Ceiling { .. }
        | PoolChange::MaxNodes { .. }
        | PoolChange::Group
        | PoolChange::OtherZone
        | PoolChange::Reservation { .. }
        | PoolChange::Subnet { .. } => true,
        PoolChange::Price | PoolChange::OtherType { .. } | PoolChange::OtherCapacityType => false,
    })
}

/// Nodes without what blocks them.
fn freed(reason: &Misfit, nodes: &str) -> String {
    match reason {
        Misfit::Unschedulable => format!("Uncordon {nodes}"),
        Misfit::NotReady => format!("Get {nodes} Ready"),
        Misfit::Taint { taint } => format!("Tolerate taint {taint}, or take it from {nodes}"),
        Misfit::Port => format!("Free the host ports of {nodes}"),
        Misfit::Insufficient { resource } => format!("End the pods that use {resource} on {nodes}"),
        Misfit::Occupied | Misfit::Shared => format!("Move pods that keep the members away off {nodes}"),
        Misfit::Volume => format!("Bring its volumes within reach of {nodes}"),
        Misfit::Selector => format!("Change the pod's nodeSelector or affinity so that it matches {nodes}"),
    }
}

fn of_pool(change: &PoolChange, pool: &str, instance_type: Option<&str>) -> String {
    let of = match instance_type {
        Some(name) => format!("for {name} in NodePool {pool}"),
        None => format!("in NodePool {pool}"),
    };
    match change {
        PoolChange::Limit { resource, from, to } => {
            let (from, to) = (amount(resource.as_str(), *from), at_least(resource.as_str(), *to));
            format!("Raise the limit {resource} of NodePool {pool} from {from} to {to}")
        }
        PoolChange::Ceiling { scope, from, to } => {
            format!("Raise {scope} from {} to {} {of}", usd(*from), usd(ceil(*to)))
        }
        PoolChange::MaxNodes { from, to } => format!("Raise maxNodesPerBatch of NodePool {pool} from {from} to {to}"),
        PoolChange::Price => {
            let name = instance_type.unwrap_or("TYPE");
            format!("Set prices.{name}.usdPerHour in Muster's configuration")
        }
        PoolChange::OtherType { why } => match instance_type {
            Some(name) => format!("Allow another type than {name} in NodePool {pool}: {why}"),
            None => format!("Allow another type in NodePool {pool}: {why}"),
        },
        PoolChange::OtherCapacityType => format!("Allow another capacity type or type {of}"),
        PoolChange::OtherZone => format!("Allow another zone {of}"),
        PoolChange::Group => {
            format!("Make placementGroup of NodePool {pool} and the gang's annotation agree")
        }
        PoolChange::Reservation { hosts: None } => format!("Get a capacity reservation {of}"),
        PoolChange::Reservation { hosts: Some(hosts) } => {
            format!("Get a capacity reservation with {hosts} free hosts {of}")
        }
        PoolChange::Subnet { addresses: None } => format!("Add a subnet {of}"),
        PoolChange::Subnet { addresses: Some(addresses) } => {
            format!("Add a subnet with {addresses} free addresses {of}")
        }
    }
}

fn capacity(Capacity { level, domain, members, role }: &Capacity) -> String {
    let mut text = format!("{members} more member{}", plural(*members));
    if let Some(role) = role {
        let _ = write!(text, " of role {role}");
    }
    match level {
        None => {}
        Some(level) if domain.is_empty() => {
            let _ = write!(text, " in a new {level}");
        }
        Some(level) => {
            let _ = write!(text, " in {level} {domain}");
        }
    }
    text
}

fn listed<T: Display>(items: &[T]) -> String {
    let mut shown: Vec<String> = items.iter().take(SHOWN).map(ToString::to_string).collect();
    let more = items.len().saturating_sub(SHOWN);
    if more > 0 {
        shown.push(format!("{more} more"));
    }
    match shown.split_last() {
        None => String::new(),
        Some((last, [])) => last.clone(),
        Some((last, others)) => format!("{} and {last}", others.join(", ")),
    }
}

fn plural(count: u32) -> &'static str {
    if count == 1 { "" } else { "s" }
}

fn capital(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().collect::<String>() + letters.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::names::NodeName;

    #[test]
    fn a_remedy_is_an_instruction_that_names_what_to_touch() {
        let free = |nodes: &[&str]| {
            let nodes = nodes.iter().map(|name| NodeName::from(*name)).collect();
            Help::Change(Change::Free { reason: Misfit::Unschedulable, nodes }).instruction()
        };
        assert_eq!(free(&["c-1"]).as_deref(), Some("Uncordon node c-1"));
        assert_eq!(free(&["c-1", "c-2"]).as_deref(), Some("Uncordon nodes c-1 and c-2"));
        let limit = PoolChange::Limit { resource: "nvidia.com/gpu".into(), from: 64, to: 80 };
        let raise = Help::Pool { pool: "h100".into(), instance_type: None, count: None, changes: vec![limit] };
        assert_eq!(
            raise.instruction().as_deref(),
            Some("Raise the limit nvidia.com/gpu of NodePool h100 from 64 to 80")
        );
        assert_eq!(Help::Nothing.instruction(), None);
        let why = Box::new(crate::offering::Exclusion::DoesNotFit);
        let changes = vec![PoolChange::OtherType { why }];
        let other = Help::Pool { pool: "h100".into(), instance_type: None, count: None, changes };
        assert_eq!(other.instruction(), None, "whether another type would do was not tried");
    }

    #[test]
    fn what_costs_nothing_comes_before_dollars_and_dollars_before_patience() {
        let uncordon = Help::Change(Change::Nodes { reason: Misfit::Unschedulable, nodes: 1 });
        let widen = Help::Change(Change::Widen { to: Some(1), level: Some("layer-2".into()) });
        let order = [uncordon, widen, Help::NewPool, Help::Wait(Wait::Provisioned)];
        assert!(order.iter().map(Help::effort).is_sorted_by(|one, next| one < next));
    }
}
