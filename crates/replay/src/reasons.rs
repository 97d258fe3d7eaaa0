//! Why a gang is not placed, as the document lists it. The reasons, their codes and their text are the server's.

use muster_core::fit::{self, Misfit};
use muster_core::gang;
use muster_core::model::node::Node;
use muster_core::planner::plan::{Capacity, Change, Host, Policy, Problem, Refusal, Role, Shortfall};
use muster_core::reason::{self, Code, Help, Unsold, Why};

use crate::document::Reason;
use crate::remedy::{Kept, Refused};

/// Node groups named one by one.
const BLOCKED_SHOWN: usize = 8;

/// A reason about which the description of the gang or of the dump says all.
pub(crate) fn described(code: Code, text: impl Into<std::sync::Arc<str>>) -> Reason {
    reason::Reason::new(code, Help::Describe(text.into())).into()
}

/// One reason per thing that would help; at least one.
pub(crate) fn of_why(why: &Why) -> Vec<Reason> {
    let short = match why {
        Why::Collecting { seen, needed, .. } => Some(u64::from(needed.saturating_sub(*seen))),
        Why::SizeUnknown { .. }
        | Why::ForeignGate { .. }
        | Why::Volumes { .. }
        | Why::Suspended { .. }
        | Why::Invalid(_)
        | Why::Refused { .. }
        | Why::PlanRejected
        | Why::Excluded { .. }
        | Why::Provisioning { .. }
        | Why::ProvisionedDoNotHold { .. }
        | Why::NoCapacity { .. }
        | Why::Joining(_)
        | Why::Booking { .. }
        | Why::NothingOnSale { .. }
        | Why::MemberLost { .. }
        | Why::NoCapacityForNew { .. }
        | Why::Evicting { .. }
        | Why::Restarting
        | Why::PlanExpired
        | Why::SchedulerRefused { .. }
        | Why::SchedulerError { .. } => None,
    };
    let mut helps = why.helps();
    if helps.is_empty() {
        helps.push(Help::Nothing);
    }
    helps.into_iter().map(|help| reason::Reason { short, ..reason::Reason::new(why.code(), help) }.into()).collect()
}

/// An offer that is none.
pub(crate) fn of_unsold(unsold: &Unsold) -> Reason {
    let short = unsold.why.first().and_then(muster_core::offering::Exclusion::short);
    reason::Reason { short, ..reason::Reason::new(unsold.code(), unsold.help()) }.into()
}

/// The reasons in a refusal: what the required level lacks with every change that is proven to help, then what the
/// levels above lack, then what blocks nodes. A reason without a change is a fact that no single change of its kind
/// would mend.
pub(crate) fn of_refusal(refusal: &Refusal, problem: &Problem, policy: &Policy, kept: &Kept) -> Vec<Reason> {
    match refusal {
        Refusal::DoesNotFit(shortfall) => {
            does_not_fit(shortfall, problem, policy, kept).into_iter().map(Reason::from).collect()
        }
        Refusal::MinimumAboveCount { min, count, .. } => {
            let short = Some(u64::from(min.saturating_sub(*count)));
            of_why(&Why::refused(refusal)).into_iter().map(|reason| Reason { short, ..reason }).collect()
        }
        Refusal::Undecided(undecided) => {
            let short = Some(u64::from(undecided.missing));
            of_why(&Why::refused(refusal)).into_iter().map(|reason| Reason { short, ..reason }).collect()
        }
        Refusal::Unsupported { .. }
        | Refusal::MixedShapes { .. }
        | Refusal::Slices { .. }
        | Refusal::UnknownLevel { .. }
        | Refusal::BoundOutside { .. } => of_why(&Why::refused(refusal)),
    }
}

fn does_not_fit(shortfall: &Shortfall, problem: &Problem, policy: &Policy, kept: &Kept) -> Vec<reason::Reason> {
    let Shortfall { needed, bound: _, required, total, best, wider: _, unlabelled, blocked, changes } = shortfall;
    let mut reasons = Vec::new();
    let cap = required.and_then(|level| Some((level, best.get(level)?)));
    let key = cap.map(|(_, best)| best.key.clone());
    let short = needed.saturating_sub(cap.map_or(*total, |(_, best)| best.holds));
    let lacks =
        |help: Help| reason::Reason { code: Code::DoesNotFit, level: key.clone(), short: Some(u64::from(short)), help };
    let of_the_gang =
        changes.iter().filter(|change| is_of_the_gang(change, problem) && !is_out_of_reach(change, problem));
    reasons.extend(of_the_gang.cloned().map(Help::Change).map(lacks));
    if reasons.is_empty() {
        reasons.push(lacks(Help::Nothing));
    }
    for above in best.iter().take(cap.map_or(0, |(level, _)| level)).rev() {
        let short = needed.saturating_sub(above.holds);
        if short > 0 {
            let reason = reason::Reason::new(Code::DoesNotFit, Help::Nothing).short(u64::from(short));
            reasons.push(reason::Reason { level: Some(above.key.clone()), ..reason });
        }
    }
    if *unlabelled > 0 {
        let reason = reason::Reason::new(Code::Unlabelled, Help::Nothing);
        reasons.push(reason::Reason { level: key, ..reason });
    }
    let refused = Refused::new(problem, policy, shortfall, kept);
    let unselect = changes.contains(&Change::Unselect);
    for group in blocked.iter().take(BLOCKED_SHOWN) {
        let freed = refused.fewest(&group.reason).map(|nodes| Change::Free { reason: group.reason.clone(), nodes });
        let freed = freed.or_else(|| (unselect && group.reason == Misfit::Selector).then_some(Change::Unselect));
        let help = freed.map_or(Help::Nothing, Help::Change);
        reasons.push(reason::Reason::new(Code::of_misfit(&group.reason), help));
    }
    reasons
}

/// Whether capacity is missing in a domain of which no node reaches the volumes of the gang, or in a zone that the gang does not
/// select: more of it is no help.
fn is_out_of_reach(change: &Change, problem: &Problem) -> bool {
    let Change::Capacity { capacities } = change else { return false };
    let (levels, zones) = (problem.levels.as_slice(), gang::zones(&problem.gang));
    let outside = |capacity: &Capacity| {
        let level = levels.iter().position(|level| Some(&level.name) == capacity.level.as_ref());
        let keys = &levels[..level.map_or(0, |level| level + 1)];
        let is_inside = |node: &Node| {
            let path: Option<Vec<&str>> =
                keys.iter().map(|level| node.labels.get(&level.key).map(|one| &**one)).collect();
            path.is_some_and(|path| path.join("/") == *capacity.domain)
        };
        let zone = problem.levels.zone().and_then(|zone| capacity.domain.split('/').nth(zone));
        if zone.is_some_and(|zone| !zone.is_empty() && !zones.is_empty() && !zones.contains(zone)) {
            return true;
        }
        let mut inside = problem.hosts.iter().filter(|host| is_inside(&host.node)).peekable();
        let blocked = |host: &Host| {
            let slots = |role: &Role| fit::slots(&role.shape, &host.node, &host.usage);
            problem.gang.roles.iter().any(|role| slots(role) == Err(Misfit::Volume))
        };
        inside.peek().is_some() && inside.all(blocked)
    };
    capacities.iter().any(outside)
}

/// Whether a change is reported of the gang. Others are reported beside the nodes that each of them is about, by name.
fn is_of_the_gang(change: &Change, problem: &Problem) -> bool {
    match change {
        // A gang that requires nothing is kept in one zone all the same.
        Change::Widen { to: None, level: _ } => problem.levels.zone().is_none(),
        Change::Tolerate { taints } => taints.len() > 1,
        Change::Nodes { .. } | Change::Unselect | Change::Free { .. } => false,
        Change::Capacity { .. }
        | Change::Widen { .. }
        | Change::Share
        | Change::Unslice
        | Change::Unbalance
        | Change::WidenSlices { .. }
        | Change::Minimum { .. }
        | Change::Remove { .. }
        | Change::SameTemplate { .. }
        | Change::SliceSize { .. }
        | Change::NarrowSlices { .. } => true,
    }
}
