//! Why a gang is not placed, as the document lists it. The reasons, their codes and their text are the server's.

use std::sync::Arc;

use muster_core::fit::{self, Misfit};
use muster_core::gang;
use muster_core::model::names::NodeName;
use muster_core::model::node::Node;
use muster_core::model::resources::ATTACHABLE_VOLUMES;
use muster_core::planner::plan::{Capacity, Change, Host, LevelIndex, Policy, Problem, Refusal, Role, Shortfall};
use muster_core::reason::{self, Code, Help, Unsold, Why};
use muster_core::topology::natural_cmp;

use crate::document::Reason;
use crate::remedy::{Kept, Refused};
use crate::study::Searched;

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
pub(crate) fn of_refusal(
    refusal: &Refusal,
    problem: &Problem,
    policy: &Policy,
    kept: &Kept,
    searched: &Searched,
) -> Vec<Reason> {
    match refusal {
        Refusal::DoesNotFit(shortfall) => {
            does_not_fit(shortfall, problem, policy, kept, searched).into_iter().map(Reason::from).collect()
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

fn does_not_fit(
    shortfall: &Shortfall,
    problem: &Problem,
    policy: &Policy,
    kept: &Kept,
    searched: &Searched,
) -> Vec<reason::Reason> {
    let Shortfall { needed, bound: _, required, total, best, wider: _, unlabelled, step: _, blocked, changes } =
        shortfall;
    let mut reasons = Vec::new();
    let cap = required.and_then(|level| Some((level, best.get(level)?)));
    let key = cap.map(|(_, best)| best.key.clone());
    let short = needed.saturating_sub(cap.map_or(*total, |(_, best)| best.holds));
    let lacks = |help: Help| {
        let code = match &help {
            Help::Change(Change::Tolerate { .. }) => Code::Taint,
            _ => Code::DoesNotFit,
        };
        reason::Reason { code, level: key.clone(), short: Some(u64::from(short)), help }
    };
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
        let labels = required.and_then(|level| unlabelled_nodes(problem, level));
        let reason = reason::Reason::new(Code::Unlabelled, labels.map_or(Help::Nothing, Help::Change));
        reasons.push(reason::Reason { level: key, ..reason });
    }
    let refused = Refused::new(problem, policy, shortfall, kept, searched);
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
/// select, or where no node would hold a member if it were empty: more of it is no help.
fn is_out_of_reach(change: &Change, problem: &Problem) -> bool {
    let Change::Capacity { capacities } = change else { return false };
    if is_too_small(problem) {
        return true;
    }
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

/// Labels for the nodes that would hold a member if they had the label of the level; `None` without any, and for more than are
/// named.
fn unlabelled_nodes(problem: &Problem, level: LevelIndex) -> Option<Change> {
    let levels = problem.levels.as_slice();
    let network = problem.levels.network();
    let keys: Vec<_> =
        (network.start..=level).filter_map(|level| levels.get(level)).map(|level| Arc::clone(&level.key)).collect();
    let role = problem.gang.roles.first()?;
    let holds = |host: &&Host| fit::slots(&role.shape, &host.node, &host.usage).is_ok_and(|slots| slots > 0);
    let lacks = |host: &&Host| keys.last().is_some_and(|key| !host.node.labels.contains_key(key));
    let hosts = problem.hosts.iter().filter(lacks).filter(holds);
    let mut nodes: Vec<NodeName> = hosts.map(|host| host.node.name.clone()).collect();
    nodes.sort_by(|one, other| natural_cmp(one.as_str(), other.as_str()));
    (!nodes.is_empty() && nodes.len() <= BLOCKED_SHOWN).then_some(Change::Label { nodes, keys })
}

/// Whether there are nodes, and a member of some role asks for more than any of them has.
fn is_too_small(problem: &Problem) -> bool {
    let holds = |role: &Role, host: &Host| {
        let amounts = role.shape.requests.iter().filter(|(name, _)| !name.as_str().starts_with(ATTACHABLE_VOLUMES));
        amounts.into_iter().all(|(name, amount)| amount <= host.node.allocatable.get(name.as_str()))
    };
    let waits = |role: &&Role| role.places.iter().any(|place| place.bound.is_none());
    let mut waiting = problem.gang.roles.iter().filter(waits);
    !problem.hosts.is_empty() && waiting.any(|role| !problem.hosts.iter().any(|host| holds(role, host)))
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
        | Change::Lower { .. }
        | Change::OwnVolumes { .. }
        | Change::Label { .. }
        | Change::NarrowSlices { .. } => true,
    }
}
