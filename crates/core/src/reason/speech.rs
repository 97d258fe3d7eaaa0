//! Reasons as a person says them: one headline, and each remedy as an instruction.
//!
//! The sentences of status and events are made in [`super::text`]; these say the same facts to somebody who asked.

use std::fmt::{Display, Write as _};

use super::{Help, Passing, PoolChange, Wait, Why};
use crate::fit::Misfit;
use crate::model::money::dollars;
use crate::model::resources::amount;
use crate::planner::plan::{BestDomain, Capacity, Change, Refusal, Shortfall};

/// Names listed one by one.
const SHOWN: usize = 8;

impl Why {
    /// One sentence without what would help.
    #[must_use]
    pub fn headline(&self) -> String {
        match self {
            Self::Refused { refusal, passing: _ } | Self::NothingOnSale { refusal, .. } => refusal.headline(),
            Self::Excluded { refusal } => {
                format!(
                    "nodes that kube-scheduler refused lately are excluded; on the others it {}",
                    refusal.headline()
                )
            }
            Self::ProvisionedDoNotHold { refusal } => {
                format!("the nodes provisioned for it do not hold it yet: {}", refusal.headline())
            }
            Self::NoCapacity { stated, refusal } => {
                let stated = stated.as_deref().unwrap_or("no offering has capacity");
                format!("{stated}; on running nodes it {}", refusal.headline())
            }
            Self::NoCapacityForNew { refusal: Some(refusal) } => {
                format!("no capacity for a new member: {}", refusal.headline())
            }
            Self::SizeUnknown { seen, .. } => {
                format!("{seen} members are there and nothing says how many there will be")
            }
            Self::Suspended { kind, name } => format!("{kind} {name} is suspended"),
            Self::NoCapacityForNew { refusal: None }
            | Self::Collecting { .. }
            | Self::ForeignGate { .. }
            | Self::Volumes { .. }
            | Self::Invalid(_)
            | Self::PlanRejected
            | Self::Provisioning { .. }
            | Self::Joining(_)
            | Self::Booking { .. }
            | Self::MemberLost { .. }
            | Self::Evicting { .. }
            | Self::Restarting
            | Self::PlanExpired
            | Self::SchedulerRefused { .. }
            | Self::SchedulerError { .. } => self.to_string(),
        }
    }

    /// What to do where [`Why::helps`] has only the sentence itself; `None` if there is nothing to add to the headline.
    #[must_use]
    pub fn instruction(&self) -> Option<String> {
        match self {
            Self::SizeUnknown { .. } => {
                Some("Annotate the pods with gang-size, or with gang-min for an elastic gang".to_owned())
            }
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

impl Refusal {
    /// What is missing, in one sentence without blocked nodes and changes.
    #[must_use]
    pub fn headline(&self) -> String {
        let Self::DoesNotFit(shortfall) = self else {
            let text = self.to_string();
            return text.split("; would fit with ").next().unwrap_or_default().to_owned();
        };
        let Shortfall { needed, bound, required, total, best, .. } = shortfall;
        let more = if *bound > 0 { " more" } else { "" };
        let beside = if *bound > 0 { format!(" beside {bound} bound") } else { String::new() };
        let needs = format!("needs capacity for {needed}{more} member{}{beside}", plural(*needed));
        match required.and_then(|level| best.get(level)) {
            None => format!("{needs}; all nodes together have it for {total}"),
            Some(BestDomain { level, domain, .. }) if domain.is_empty() => {
                format!("{needs} in one {level}; no node has a label for that level")
            }
            Some(BestDomain { level, domain, holds, .. }) => {
                format!("{needs} in one {level}; the best one, {domain}, has it for {holds}")
            }
        }
    }
}

impl Help {
    /// What to do, as an instruction without a full stop; `None` if there is nothing to do.
    #[must_use]
    pub fn instruction(&self) -> Option<String> {
        Some(match self {
            Self::Nothing => return None,
            Self::Change(change) => change.instruction(),
            Self::Pool { pool, instance_type, changes } => {
                let steps: Vec<String> =
                    changes.iter().map(|change| of_pool(change, pool, instance_type.as_deref())).collect();
                steps.join(", and ")
            }
            Self::NewPool => "Create a NodePool that may provision nodes for it".to_owned(),
            Self::NoNetworkLevel => {
                "Require no level below the zone: where new nodes stand is known only once they run".to_owned()
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
            Self::Wait(Wait::Gate(_) | Wait::Members(_)) => 1,
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
            Self::Unselect => "Take node selector and node affinity away".to_owned(),
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
            Self::Gate(pod) => format!("Have the other scheduling gate of pod {pod} removed by whoever set it"),
            Self::Joined(joining) => format!("Wait until {joining}"),
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
            Self::Node(node) => format!("Bring node {node} back, or end its member"),
            Self::Until(until) => format!("Wait: it is tried again after {until}"),
            Self::Pods => "Wait until its owner has made the pods again".to_owned(),
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
        Misfit::Insufficient { resource } => format!("Free all {resource} of {nodes}"),
        Misfit::Occupied | Misfit::Shared => format!("Move pods that keep the members away off {nodes}"),
        Misfit::Volume => format!("Bring its volumes within reach of {nodes}"),
        Misfit::Selector => format!("Let selector and affinity match {nodes}"),
    }
}

fn of_pool(change: &PoolChange, pool: &str, instance_type: Option<&str>) -> String {
    let of = match instance_type {
        Some(name) => format!("for {name} in NodePool {pool}"),
        None => format!("in NodePool {pool}"),
    };
    match change {
        PoolChange::Limit { resource, from, to } => {
            let (from, to) = (amount(resource.as_str(), *from), amount(resource.as_str(), *to));
            format!("Raise the limit {resource} of NodePool {pool} from {from} to {to}")
        }
        PoolChange::Ceiling { scope, from, to } => {
            format!("Raise {scope} from ${} to ${} {of}", dollars(*from), dollars(*to))
        }
        PoolChange::MaxNodes { from, to } => format!("Raise maxNodesPerBatch of NodePool {pool} from {from} to {to}"),
        PoolChange::Price => format!("Give a price {of}"),
        PoolChange::OtherType { why } => match instance_type {
            Some(name) => format!("Allow another type than {name} in NodePool {pool}: {why}"),
            None => format!("Allow another type in NodePool {pool}: {why}"),
        },
        PoolChange::OtherCapacityType => format!("Allow another capacity type or type {of}"),
        PoolChange::OtherZone => format!("Allow another zone {of}"),
        PoolChange::Group => format!("Ask for one placement group policy in NodePool {pool} and the gang"),
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
        let raise = Help::Pool { pool: "h100".into(), instance_type: None, changes: vec![limit] };
        assert_eq!(
            raise.instruction().as_deref(),
            Some("Raise the limit nvidia.com/gpu of NodePool h100 from 64 to 80")
        );
        assert_eq!(Help::Nothing.instruction(), None);
    }

    #[test]
    fn what_costs_nothing_comes_before_dollars_and_dollars_before_patience() {
        let uncordon = Help::Change(Change::Nodes { reason: Misfit::Unschedulable, nodes: 1 });
        let widen = Help::Change(Change::Widen { to: Some(1), level: Some("layer-2".into()) });
        let order = [uncordon, widen, Help::NewPool, Help::Wait(Wait::Provisioned)];
        assert!(order.iter().map(Help::effort).is_sorted_by(|one, next| one < next));
    }
}
