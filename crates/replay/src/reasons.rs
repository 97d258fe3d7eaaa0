//! Why a gang is not placed, as codes, levels, amounts and the smallest change that would help.

use muster_core::fit::Misfit;
use muster_core::gang::Invalid;
use muster_core::names::NodeName;
use muster_core::plan::{
    BestDomain, Change, LevelIndex, Policy, Problem, Refusal, Room, SearchBudget, Seed, Shortfall,
};
use muster_core::planner;

use crate::document::{Code, Reason};
use crate::remedy::Refused;

/// Node groups named one by one.
const BLOCKED_SHOWN: usize = 8;
/// Nodes of a change named one by one.
const NODES_SHOWN: usize = 8;

/// A reason without a level.
pub(crate) fn reason(code: Code, short: Option<u64>, change: impl Into<String>) -> Reason {
    Reason { code, level: None, short, change: Some(change.into()) }
}

/// The reasons in a refusal: what the required level lacks with every change that is proven to help, then what the
/// levels above lack, then what blocks nodes. A reason without a change is a fact that no single change of its kind
/// would mend.
pub(crate) fn of_refusal(refusal: &Refusal, problem: &Problem, policy: &Policy) -> Vec<Reason> {
    match refusal {
        Refusal::DoesNotFit(shortfall) => does_not_fit(shortfall, problem, policy),
        Refusal::Unsupported { role: _, constraint } => {
            vec![reason(Code::Unsupported, None, format!("remove from the pods: {constraint}"))]
        }
        Refusal::MixedShapes { shapes } => {
            vec![reason(Code::MixedShapes, None, format!("give the members one template instead of {shapes}"))]
        }
        Refusal::Undecided(undecided) => {
            let change = "add room, or ask for fewer shapes: no placement was found, and none is ruled out";
            vec![reason(Code::Undecided, Some(u64::from(undecided.missing)), change)]
        }
        Refusal::MinimumAboveCount { role: _, min, count } => vec![reason(
            Code::MinimumAboveCount,
            Some(u64::from(min.saturating_sub(*count))),
            format!("lower the minimum from {min} to {count}"),
        )],
        Refusal::Slices { size, fault: _ } => vec![reason(
            Code::Unsupported,
            None,
            format!("choose a slice size that cuts the gang evenly instead of {size}"),
        )],
        Refusal::UnknownLevel { level: _ } => {
            vec![reason(Code::UnknownLevel, None, "name one of the configured levels")]
        }
        Refusal::BoundOutside { node: _, changes: _ } => {
            vec![Reason { code: Code::BoundOutside, level: None, short: None, change: wider(problem, policy) }]
        }
    }
}

fn does_not_fit(shortfall: &Shortfall, problem: &Problem, policy: &Policy) -> Vec<Reason> {
    let Shortfall { needed, bound: _, required, total, best, wider: _, unlabelled, blocked, changes } = shortfall;
    let mut reasons = Vec::new();
    let cap = required.and_then(|level| Some((level, best.get(level)?)));
    let key = cap.map(|(_, best)| best.key.to_string());
    let short = needed.saturating_sub(cap.map_or(*total, |(_, best)| best.holds));
    let lacks = |change: Option<String>| Reason {
        code: Code::DoesNotFit,
        level: key.clone(),
        short: Some(u64::from(short)),
        change,
    };
    reasons.extend(changes.iter().filter_map(|change| text(change, shortfall, problem)).map(Some).map(lacks));
    if reasons.is_empty() {
        reasons.push(lacks(None));
    }
    for above in best.iter().take(cap.map_or(0, |(level, _)| level)).rev() {
        let short = needed.saturating_sub(above.holds);
        if short > 0 {
            reasons.push(Reason {
                code: Code::DoesNotFit,
                level: Some(above.key.to_string()),
                short: Some(u64::from(short)),
                change: None,
            });
        }
    }
    if *unlabelled > 0 {
        reasons.push(Reason { code: Code::Unlabelled, level: key, short: None, change: None });
    }
    let refused = Refused::new(problem, policy, shortfall);
    for group in blocked.iter().take(BLOCKED_SHOWN) {
        let freed = refused.fewest(&group.reason).map(|nodes| free(&group.reason, &nodes));
        reasons.push(Reason { code: code(&group.reason), level: None, short: None, change: freed });
    }
    reasons
}

/// The nearest level above the required one with which the gang fits.
fn wider(problem: &Problem, policy: &Policy) -> Option<String> {
    let required = problem.gang.wishes.required?;
    let levels = problem.levels.as_slice();
    let fits = |level: &LevelIndex| {
        let mut problem = problem.clone();
        problem.gang.wishes.required = Some(*level);
        let (_, report) = planner::plan(&problem, policy, SearchBudget::default(), Seed::default());
        report.refusal.is_none()
    };
    let to = (0..required).rev().find(fits)?;
    Some(format!("require one {} instead of one {}", levels[to].name, levels[required].name))
}

/// A change that the planner has proven, for people; `None` if it is none that anybody can make.
fn text(change: &Change, shortfall: &Shortfall, problem: &Problem) -> Option<String> {
    let required = shortfall.required.and_then(|level| shortfall.best.get(level));
    let from = required.map_or("level", |best| &best.level);
    Some(match change {
        Change::Room { rooms } => {
            let rooms: Vec<String> = rooms.iter().map(room_text).collect();
            format!("room for {}", rooms.join(" and "))
        }
        Change::Widen { to: Some(to), level: _ } => {
            let BestDomain { level, domain, .. } = shortfall.best.get(*to)?;
            let holds = shortfall.wider == Some(*to) && !domain.is_empty();
            let where_to = if holds { format!(": {domain} holds it") } else { String::new() };
            format!("require one {level} instead of one {from}{where_to}")
        }
        // A gang that requires nothing is kept in one zone all the same.
        Change::Widen { to: None, level: _ } if problem.levels.zone().is_some() => return None,
        Change::Widen { to: None, level: _ } => format!("require no level instead of one {from}"),
        Change::Share => "share the domain with others".to_owned(),
        Change::Unslice => "wish for no slices".to_owned(),
        Change::WidenSlices { to: _, level } => format!("wish for slices inside one {level} each"),
        // Said beside the nodes that each of them is about.
        Change::Nodes { .. } | Change::Unselect => return None,
        Change::Tolerate { taints } if taints.len() < 2 => return None,
        Change::Tolerate { .. } => change.to_string(),
        Change::Fewer { members } => format!("lower the minimum to {members}"),
    })
}

fn room_text(room: &Room) -> String {
    let Room { level, domain, members, role } = room;
    let more = role.as_ref().map_or_else(|| more(*members), |role| format!("{} of role {role}", more(*members)));
    match level {
        None => more,
        Some(level) if domain.is_empty() => format!("{more} in a new {level}"),
        Some(level) => format!("{more} in {level} {domain}"),
    }
}

/// The code of what blocks a node.
pub(crate) fn code(misfit: &Misfit) -> Code {
    match misfit {
        Misfit::Unschedulable => Code::Cordoned,
        Misfit::NotReady => Code::NotReady,
        Misfit::Taint { taint: _ } => Code::Taint,
        Misfit::Selector => Code::Selector,
        Misfit::Port => Code::Port,
        Misfit::Insufficient { resource: _ } => Code::Insufficient,
        Misfit::Shared | Misfit::Occupied => Code::Occupied,
    }
}

/// What to do with the fewest nodes of a group.
fn free(misfit: &Misfit, names: &[NodeName]) -> String {
    let nodes = list(names);
    match misfit {
        Misfit::Unschedulable => format!("uncordon {nodes}"),
        Misfit::NotReady => format!("make {nodes} Ready"),
        Misfit::Taint { taint } => format!("tolerate {taint}, or take it from {nodes}"),
        Misfit::Port => format!("free the host ports of {nodes}"),
        Misfit::Insufficient { resource } => format!("free all {resource} of {nodes}"),
        Misfit::Occupied => format!("move what keeps members away from {nodes}"),
        Misfit::Selector | Misfit::Shared => format!("use {nodes}"),
    }
}

fn list(names: &[NodeName]) -> String {
    let kind = if names.len() == 1 { "node" } else { "nodes" };
    let shown: Vec<&str> = names.iter().take(NODES_SHOWN).map(NodeName::as_str).collect();
    let rest = names.len().saturating_sub(NODES_SHOWN);
    let rest = if rest > 0 { format!(" and {rest} more") } else { String::new() };
    format!("{kind} {}{rest}", shown.join(", "))
}

/// The reason of a description that cannot be read.
pub(crate) fn of_invalid(invalid: &Invalid) -> Reason {
    let code = match invalid.reason {
        "UnknownLevel" => Code::UnknownLevel,
        "BadNumber" => Code::BadNumber,
        "BadValue" | "HalfWish" | "ConflictingWishes" => Code::BadValue,
        "BadName" => Code::BadName,
        "BadPod" => Code::BadPod,
        "MixedShapes" => Code::MixedShapes,
        "TooManyMembers" => Code::TooManyMembers,
        "SequentialCreation" => Code::SequentialCreation,
        "NotSupported" => Code::NotSupported,
        _ => Code::Invalid,
    };
    reason(code, None, invalid.message.clone())
}

fn more(count: u32) -> String {
    if count == 1 { "1 more member".to_owned() } else { format!("{count} more members") }
}
