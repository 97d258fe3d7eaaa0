//! The text of every reason. Nobody else words one.

use std::fmt;

use super::{Help, Joining, NewOffer, Passing, PoolChange, Stale, Unsold, Wait, Why};
use crate::model::moment::moment;
use crate::planner::plan::Refusal;

/// Names shown one by one.
const SHOWN: usize = 8;

impl Why {
    /// The one sentence that says what is in the way, without what would help: status, events, conditions, `muster explain`,
    /// page and `muster top` all begin with it.
    #[must_use]
    pub fn headline(&self) -> String {
        match self {
            Self::Collecting { seen, needed, size, kept: _ } => {
                format!("{seen} of {size} members are there, {needed} needed to start")
            }
            Self::SizeUnknown { seen, .. } => {
                format!("{seen} members are there and nothing says how many there will be")
            }
            Self::ForeignGate { pod, gate, kept: _ } => {
                format!("pod {pod} has the scheduling gate {gate}, which Muster did not set")
            }
            Self::Volumes { pod, awaits, kept: _ } => format!("pod {pod} waits for a volume: {awaits}"),
            Self::Suspended { kind, name } => format!("{kind} {name} is suspended"),
            Self::Invalid(invalid) => invalid.message.clone(),
            Self::Refused { refusal, passing: _ } | Self::NothingOnSale { refusal, .. } => refusal.headline(),
            Self::PlanRejected => {
                "Muster's own check rejected the plan (a bug): nothing was changed; please report it".to_owned()
            }
            Self::Excluded { refusal } => {
                let others = refusal.headline();
                format!("nodes that kube-scheduler refused lately are excluded; on the others: {others}")
            }
            Self::Provisioning { batch: Some((name, _)), count: Some(count) } => {
                format!("provisioning {count} node{} as NodeBatch {name}", if *count == 1 { "" } else { "s" })
            }
            Self::Provisioning { batch: Some((name, Some(stated))), count: None } => {
                format!("NodeBatch {name}: {stated}")
            }
            Self::Provisioning { .. } => "nodes are being provisioned".to_owned(),
            Self::ProvisionedDoNotHold { refusal } => {
                format!("the nodes provisioned for it do not hold it yet: {}", refusal.headline())
            }
            Self::NoCapacity { stated, refusal } => {
                let stated = stated.as_deref().unwrap_or("no offering has capacity");
                format!("{stated}; on running nodes: {}", refusal.headline())
            }
            Self::Joining(joining) => format!("waiting for {joining}"),
            Self::Booking { request } => {
                format!("waiting for the nodes booked by ProvisioningRequest {request}")
            }
            Self::MemberLost { left, needed, role: None } => format!("{left} of {needed} members left"),
            Self::MemberLost { left, needed, role: Some(role) } => {
                format!("{left} of {needed} members of role {role} left")
            }
            Self::NoCapacityForNew { refusal: Some(refusal) } => {
                format!("no capacity for a new member: {}", refusal.headline())
            }
            Self::NoCapacityForNew { refusal: None } => "no capacity for a new member".to_owned(),
            Self::Evicting { lost, left: 0 } => lost.headline(),
            Self::Evicting { lost, left } => format!("{}; evicting the other {left}", lost.headline()),
            Self::Restarting => {
                "a member was lost and the rest is evicted; waiting for the owner to recreate its pods".to_owned()
            }
            Self::PlanExpired => "kube-scheduler did not bring all members in time; replanning. See their \
                                  FailedScheduling events"
                .to_owned(),
            Self::SchedulerRefused { plans: Some(plans), pod: _, stated } => {
                format!("kube-scheduler refused {plans} plans: {stated}")
            }
            Self::SchedulerRefused { plans: None, pod: Some(pod), stated } => {
                format!("kube-scheduler refuses pod {pod}: {stated}")
            }
            Self::SchedulerRefused { plans: None, pod: None, stated } => {
                format!("kube-scheduler refuses a member: {stated}")
            }
            Self::SchedulerError { pod, stated } => {
                format!("a call from kube-scheduler for pod {pod} failed: {stated}")
            }
        }
    }

    /// The refusal that the headline ends with.
    fn refusal(&self) -> Option<&Refusal> {
        match self {
            Self::Refused { refusal, .. }
            | Self::NothingOnSale { refusal, .. }
            | Self::Excluded { refusal }
            | Self::ProvisionedDoNotHold { refusal }
            | Self::NoCapacity { refusal, .. } => Some(refusal),
            Self::NoCapacityForNew { refusal } => refusal.as_ref(),
            Self::Collecting { .. }
            | Self::SizeUnknown { .. }
            | Self::ForeignGate { .. }
            | Self::Volumes { .. }
            | Self::Suspended { .. }
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
            | Self::SchedulerError { .. } => None,
        }
    }
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.headline())?;
        if let Some(refusal) = self.refusal() {
            write!(f, "{}", refusal.details())?;
        }
        match self {
            Self::Collecting { kept: true, .. } => f.write_str("; the plan is kept for the missing ones"),
            Self::ForeignGate { kept: false, .. } => f.write_str("; it is planned once that is removed"),
            Self::ForeignGate { kept: true, .. } | Self::Volumes { kept: true, .. } => {
                f.write_str("; the plan is kept for it")
            }
            Self::SizeUnknown { kept: false, .. } => f.write_str(
                "; set the annotation muster.dev/gang-size on the pods, or muster.dev/gang-min for an elastic gang",
            ),
            Self::Suspended { .. } => f.write_str("; set spec.suspend to false"),
            Self::Refused { passing, .. } => passed(passing, f),
            Self::NothingOnSale { passing, pools, unsold, .. } => {
                passed(passing, f)?;
                no_pool(*pools, unsold, f)
            }
            Self::Joining(Joining { until: Some(until), .. }) => {
                write!(f, "; nodes are provisioned after {}", moment(*until))
            }
            Self::Booking { .. } => f.write_str("; nothing else is provisioned for it"),
            Self::Collecting { kept: false, .. }
            | Self::SizeUnknown { kept: true, .. }
            | Self::Volumes { kept: false, .. }
            | Self::Invalid(_)
            | Self::PlanRejected
            | Self::Excluded { .. }
            | Self::Provisioning { .. }
            | Self::ProvisionedDoNotHold { .. }
            | Self::NoCapacity { .. }
            | Self::Joining(Joining { until: None, .. })
            | Self::MemberLost { .. }
            | Self::NoCapacityForNew { .. }
            | Self::Evicting { .. }
            | Self::Restarting
            | Self::PlanExpired
            | Self::SchedulerRefused { .. }
            | Self::SchedulerError { .. } => Ok(()),
        }
    }
}

/// Why nothing is provisioned.
fn no_pool(pools: bool, unsold: &[Unsold], f: &mut fmt::Formatter<'_>) -> fmt::Result {
    if !pools {
        return f.write_str("; no NodePool is ready to provision nodes");
    }
    f.write_str("; no NodePool can hold it")?;
    let mut separator = ": ";
    for one in unsold {
        write!(f, "{separator}{one}")?;
        // What ends by itself is in the reason, and a larger type was not tried.
        if let help @ Help::Pool { .. } = one.help()
            && help.instruction().is_some()
        {
            write!(f, ", would do with {help}")?;
        }
        separator = "; ";
    }
    Ok(())
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
            Self::Assigned { gangs, nodes, enough, any } => {
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
                f.write_str(match (enough, *any && gangs.len() > 1) {
                    (true, true) => ": would fit without that of any one of them",
                    (true, false) => ": would fit without that",
                    (false, _) => "",
                })
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
        f.write_str(" to become Ready")
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
            Self::Pool { pool, instance_type, count: _, changes } => {
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
            Self::NewPool { offer: None } => f.write_str("there is no NodePool that may provision nodes"),
            Self::NewPool { offer: Some(NewOffer { instance_type, count, zone, level: _ }) } => {
                write!(f, "a NodePool that may provision {count} {instance_type}")?;
                zone.as_ref().map_or(Ok(()), |zone| write!(f, " in {zone}"))
            }
            Self::Wait(wait) => write!(f, "{wait}"),
            Self::Describe(text) => f.write_str(text),
        }
    }
}

impl Help {
    /// What becomes of a gang of which nothing else says what is in the way: the headline of [`Why`] for what would help.
    #[must_use]
    pub fn headline(&self) -> String {
        match self {
            Self::NewPool { .. } => "waits: no NodePool may provision nodes for it".to_owned(),
            Self::Wait(wait) => match wait.object() {
                Ok(object) => format!("waits{object}"),
                Err(change) => format!("waits: would fit with {change}"),
            },
            Self::Nothing | Self::Change(_) | Self::Pool { .. } | Self::Describe(_) => {
                format!("waits: would fit with {self}")
            }
        }
    }
}

impl Wait {
    /// What is waited for, behind "waits" or "waiting"; else what has to change.
    fn object(&self) -> Result<String, String> {
        Ok(match self {
            Self::Members(1) => return Err("1 more member".to_owned()),
            Self::Members(members) => return Err(format!("{members} more members")),
            Self::Gate { gate, pod } => return Err(format!("no scheduling gate {gate} on pod {pod}")),
            Self::Joined(joining) => format!(" for {joining}"),
            Self::Provisioned => " for the nodes that are provisioned".to_owned(),
            Self::Booked(request) => {
                format!(" for the nodes booked by ProvisioningRequest {request} to become Ready")
            }
            Self::Passed(passing) => format!(": {passing}"),
            Self::Node(node) => format!(" for node {node} to be back, or for the pod on it to go"),
            Self::Until(until) => format!(": tried again after {}", moment(*until)),
            Self::Pods => " for the owner to recreate its pods".to_owned(),
        })
    }
}

impl fmt::Display for Wait {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.object() {
            Ok(object) => write!(f, "waiting{object}"),
            Err(change) => f.write_str(&change),
        }
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::*;

    #[test]
    fn what_would_help_is_a_sentence_behind_the_name_of_a_gang() {
        let of = |help: Help| (help.headline(), help.to_string());
        let both = |one: &str, other: &str| (one.to_owned(), other.to_owned());
        assert_eq!(
            of(Help::Wait(Wait::Provisioned)),
            both("waits for the nodes that are provisioned", "waiting for the nodes that are provisioned")
        );
        assert_eq!(of(Help::Wait(Wait::Members(1))), both("waits: would fit with 1 more member", "1 more member"));
        assert_eq!(of(Help::Wait(Wait::Members(2))), both("waits: would fit with 2 more members", "2 more members"));
        let until = Timestamp::from_second(1_800_000_000).unwrap();
        let (headline, help) = of(Help::Wait(Wait::Until(until)));
        assert_eq!(headline, help.replace("waiting: ", "waits: "));
        assert!(headline.starts_with("waits: tried again after "), "{headline}");
        assert_eq!(Help::NewPool { offer: None }.headline(), "waits: no NodePool may provision nodes for it");
        assert_eq!(Help::Describe("a label".into()).headline(), "waits: would fit with a label");
    }
}
