//! The text of every reason. Nobody else words one.

use std::fmt;

use super::{Help, Joining, Passing, PoolChange, Stale, Wait, Why};

/// Names shown one by one.
const SHOWN: usize = 8;

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Collecting { seen, needed, size, kept: false } => {
                write!(f, "{seen} of {size} members are there, {needed} needed to start")
            }
            Self::Collecting { seen, needed, size, kept: true } => {
                write!(f, "{seen} of {size} members are there, {needed} needed; the plan is kept for the missing ones")
            }
            Self::SizeUnknown { seen, kept: false } => write!(
                f,
                "{seen} members are there and nothing says how many there will be: annotate the pods with gang-size, \
                 or with gang-min for an elastic gang"
            ),
            Self::SizeUnknown { seen, kept: true } => {
                write!(f, "{seen} members are there and nothing says any more how many there will be")
            }
            Self::ForeignGate { pod, kept: false } => write!(
                f,
                "pod {pod} is held by a scheduling gate of somebody else; it counts once only our gate is left"
            ),
            Self::ForeignGate { pod, kept: true } => {
                write!(f, "pod {pod} is held by a scheduling gate of somebody else; the plan is kept for it")
            }
            Self::Volumes { pod, awaits, kept: false } => write!(f, "pod {pod} waits for a volume: {awaits}"),
            Self::Volumes { pod, awaits, kept: true } => {
                write!(f, "pod {pod} waits for a volume: {awaits}; the plan is kept for it")
            }
            Self::Suspended { kind, name } => write!(f, "{kind} {name} is suspended: set spec.suspend to false"),
            Self::Invalid(invalid) => f.write_str(&invalid.message),
            Self::Refused { refusal, passing } => {
                write!(f, "{refusal}")?;
                passed(passing, f)
            }
            Self::PlanRejected => f.write_str("no plan was accepted"),
            Self::Excluded { refusal } => {
                write!(f, "nodes that kube-scheduler refused lately are excluded; on the others: {refusal}")
            }
            Self::Provisioning { batch: Some((name, _)), count: Some(count) } => {
                write!(f, "provisioning {count} nodes as NodeBatch {name}")
            }
            Self::Provisioning { batch: Some((name, Some(stated))), count: None } => {
                write!(f, "NodeBatch {name}: {stated}")
            }
            Self::Provisioning { .. } => f.write_str("nodes are being provisioned"),
            Self::ProvisionedDoNotHold { refusal } => {
                write!(f, "the nodes provisioned for it do not hold it yet: {refusal}")
            }
            Self::NoCapacity { stated, refusal } => {
                write!(f, "{}; on running nodes: {refusal}", stated.as_deref().unwrap_or("no candidate has capacity"))
            }
            Self::Joining(joining) => {
                write!(f, "waits until {joining}")?;
                match joining.until {
                    Some(until) => write!(f, "; nodes are provisioned after {until}"),
                    None => Ok(()),
                }
            }
            Self::Booking { request } => {
                write!(
                    f,
                    "waits for the nodes booked by ProvisioningRequest {request}; nothing else is provisioned for it"
                )
            }
            Self::NothingOnSale { refusal, passing, pools, unsold, one_day: _ } => {
                write!(f, "{refusal}")?;
                passed(passing, f)?;
                match (pools, unsold.is_empty()) {
                    (false, _) => f.write_str("; no NodePool is ready to provision nodes"),
                    (true, true) => f.write_str("; no NodePool can hold it"),
                    (true, false) => {
                        f.write_str("; no NodePool can hold it")?;
                        let mut separator = ": ";
                        for one in unsold {
                            write!(f, "{separator}{one}")?;
                            match one.help() {
                                Help::Nothing => {}
                                help => write!(f, ", would do with {help}")?,
                            }
                            separator = "; ";
                        }
                        Ok(())
                    }
                }
            }
            Self::MemberLost { left, needed, role: None } => write!(f, "{left} of {needed} members left"),
            Self::MemberLost { left, needed, role: Some(role) } => {
                write!(f, "{left} of {needed} members of role {role} left")
            }
            Self::NoCapacityForNew { refusal: Some(refusal) } => write!(f, "no capacity for a new member: {refusal}"),
            Self::NoCapacityForNew { refusal: None } => f.write_str("no capacity for a new member"),
            Self::Evicting { lost, left: 0 } => write!(f, "{lost}"),
            Self::Evicting { lost, left } => write!(f, "{lost}; evicting the {left} that are left"),
            Self::Restarting => f.write_str("a member was lost and the rest is evicted; its pods are awaited again"),
            Self::PlanExpired => f.write_str(
                "the gang did not reach the barrier in time; its capacity is released and it is planned again",
            ),
            Self::SchedulerRefused { plans: Some(plans), pod: _, stated } => {
                write!(f, "kube-scheduler refused {plans} plans: {stated}")
            }
            Self::SchedulerRefused { plans: None, pod: Some(pod), stated } | Self::SchedulerError { pod, stated } => {
                write!(f, "kube-scheduler refuses pod {pod}: {stated}")
            }
            Self::SchedulerRefused { plans: None, pod: None, stated } => {
                write!(f, "kube-scheduler refuses a member: {stated}")
            }
        }
    }
}

fn passed(passing: &[Passing], f: &mut fmt::Formatter<'_>) -> fmt::Result {
    passing.iter().try_for_each(|one| write!(f, "; {one}"))
}

impl fmt::Display for Stale {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Needs { now, then } => write!(f, "the gang needs {now} members now, not {then}"),
            Self::Roles => f.write_str("the gang needs other numbers of its roles now"),
            Self::Shape => f.write_str("members need something else than when the plan was made"),
            Self::Moved { pod, node } => write!(f, "pod {pod} was bound to node {node} by somebody else"),
            Self::Gone(node) => write!(f, "planned node {node} is gone"),
            Self::NotReady(node) => write!(f, "planned node {node} is no longer ready"),
            Self::Refused(node) => write!(f, "kube-scheduler refused such a pod on planned node {node} lately"),
            Self::Assigned(node) => write!(f, "planned node {node} belongs to another gang"),
            Self::Holds { node, slots, planned } => {
                write!(f, "planned node {node} holds {slots} of {planned} members")
            }
            Self::Misfit { node, misfit } => write!(f, "planned node {node}: {misfit}"),
        }
    }
}

impl fmt::Display for Passing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let plural = |count: u32| if count == 1 { "" } else { "s" };
        match self {
            Self::Terminating { pods, nodes, enough } => {
                let (s, ns) = (plural(*pods), plural(*nodes));
                let holds = if *pods == 1 { "holds" } else { "hold" };
                write!(f, "{pods} terminating pod{s} {holds} capacity on {nodes} node{ns}")?;
                f.write_str(if *enough { ": would fit once they are gone" } else { "" })
            }
            Self::Assigned { gangs, nodes, enough } => {
                write!(
                    f,
                    "capacity on {nodes} node{} is assigned to gang{}",
                    plural(*nodes),
                    match gangs.len() {
                        1 => "",
                        _ => "s",
                    }
                )?;
                list(gangs.iter(), f)?;
                f.write_str(if *enough { ": would fit without that" } else { "" })
            }
        }
    }
}

impl fmt::Display for Joining {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.nodes.is_empty() {
            f.write_str(if self.nodes.len() == 1 { "node" } else { "nodes" })?;
            list(self.nodes.iter(), f)?;
            f.write_str(if self.batches.is_empty() { "" } else { " of" })?;
        }
        if !self.batches.is_empty() {
            f.write_str(if self.nodes.is_empty() { "the nodes of NodeBatch" } else { " NodeBatch" })?;
            list(self.batches.iter(), f)?;
        }
        f.write_str(if self.nodes.len() == 1 { " has joined and is Ready" } else { " have joined and are Ready" })
    }
}

/// ` a, b and 3 more`.
fn list<T: fmt::Display>(mut names: impl ExactSizeIterator<Item = T>, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let more = names.len().saturating_sub(SHOWN);
    let mut separator = " ";
    for name in names.by_ref().take(SHOWN) {
        write!(f, "{separator}{name}")?;
        separator = ", ";
    }
    if more > 0 { write!(f, " and {more} more") } else { Ok(()) }
}

/// So that "would fit with …" or "would do with …" can stand before it.
impl fmt::Display for Help {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nothing => f.write_str("nothing of this kind alone"),
            Self::Change(change) => write!(f, "{change}"),
            Self::Pool { pool, instance_type, changes } => {
                if let (Some(name), [PoolChange::OtherType { why }]) = (instance_type, changes.as_slice()) {
                    return write!(f, "another type than {name} in NodePool {pool}: {why}");
                }
                let mut separator = "";
                for change in changes {
                    write!(f, "{separator}{change}")?;
                    separator = " and ";
                }
                match instance_type {
                    Some(name) => write!(f, " for {name} in NodePool {pool}"),
                    None => write!(f, " in NodePool {pool}"),
                }
            }
            Self::NoNetworkLevel => f.write_str(
                "no ask for a level below the zone: where provisioned nodes stand is known only once they run",
            ),
            Self::NewPool => f.write_str("a NodePool that may provision nodes"),
            Self::Wait(wait) => write!(f, "{wait}"),
            Self::Describe(text) => f.write_str(text),
        }
    }
}

impl fmt::Display for Wait {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Members(1) => f.write_str("1 more member"),
            Self::Members(members) => write!(f, "{members} more members"),
            Self::Gate(pod) => write!(f, "no gate of somebody else on pod {pod}"),
            Self::Joined(joining) => write!(f, "time: wait until {joining}"),
            Self::Provisioned => f.write_str("time: wait until the nodes are provisioned"),
            Self::Booked(request) => {
                write!(f, "time: wait until the nodes booked by ProvisioningRequest {request} are Ready")
            }
            Self::Passed(passing) => write!(f, "time: {passing}"),
            Self::Node(node) => write!(f, "time: wait until node {node} is back or its member has ended"),
            Self::Until(until) => write!(f, "time: tried again after {until}"),
            Self::Pods => f.write_str("time: wait until its owner has made the pods again"),
        }
    }
}
