//! Why a gang is not placed, as codes, levels, amounts and the smallest change that would help.

use muster_core::fit::Misfit;
use muster_core::gang::Invalid;
use muster_core::plan::{BestDomain, Refusal, Shortfall};

use crate::document::{Code, Reason};

/// Node groups named one by one.
const BLOCKED_SHOWN: usize = 8;

/// A reason without a level.
pub(crate) fn reason(code: Code, short: Option<u64>, change: impl Into<String>) -> Reason {
    Reason { code, level: None, short, change: Some(change.into()) }
}

/// The reasons in a refusal: the level first, then wider levels, then what blocks nodes.
pub(crate) fn of_refusal(refusal: &Refusal) -> Vec<Reason> {
    match refusal {
        Refusal::DoesNotFit(shortfall) => does_not_fit(shortfall),
        Refusal::Unsupported { role: _, constraint } => {
            vec![reason(Code::Unsupported, None, format!("remove from the pods: {constraint}"))]
        }
        Refusal::MixedShapes { shapes } => {
            vec![reason(Code::MixedShapes, None, format!("give the members one template instead of {shapes}"))]
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
        Refusal::BoundOutside { node, changes: _ } => vec![reason(
            Code::BoundOutside,
            None,
            format!("move the member on node {node} into the domain of the others, or require a wider level"),
        )],
    }
}

fn does_not_fit(shortfall: &Shortfall) -> Vec<Reason> {
    let Shortfall { needed, bound: _, required, total, best, wider, unlabelled, blocked, changes: _ } = shortfall;
    let mut reasons = Vec::new();
    let short = |holds: u32| needed.saturating_sub(holds);
    match required.and_then(|level| Some((level, best.get(level)?))) {
        None => {
            let short = short(*total);
            reasons.push(reason(Code::DoesNotFit, Some(u64::from(short)), format!("room for {}", more(short))));
        }
        Some((level, BestDomain { level: name, key, domain, holds })) => {
            let short = short(*holds);
            let change = match wider.and_then(|wider| best.get(wider)) {
                Some(wider) => format!("require one {} instead of one {name}: {} holds it", wider.level, wider.domain),
                None if domain.is_empty() => format!("label nodes with {key}"),
                None => format!("room for {} in {name} {domain}", more(short)),
            };
            reasons.push(Reason {
                code: Code::DoesNotFit,
                level: Some(key.to_string()),
                short: Some(u64::from(short)),
                change: Some(change),
            });
            for BestDomain { level: name, key, domain, holds } in best.iter().take(level).rev() {
                let short = needed.saturating_sub(*holds);
                if short > 0 {
                    reasons.push(Reason {
                        code: Code::DoesNotFit,
                        level: Some(key.to_string()),
                        short: Some(u64::from(short)),
                        change: Some(format!("room for {} in {name} {domain}", more(short))),
                    });
                }
            }
            if *unlabelled > 0 {
                reasons.push(Reason {
                    code: Code::Unlabelled,
                    level: Some(key.to_string()),
                    short: None,
                    change: Some(format!("label {} with {key}", nodes(*unlabelled))),
                });
            }
        }
    }
    for group in blocked.iter().take(BLOCKED_SHOWN) {
        let nodes = nodes(group.nodes);
        let (code, change) = match &group.reason {
            Misfit::Unschedulable => (Code::Cordoned, format!("uncordon {nodes}")),
            Misfit::NotReady => (Code::NotReady, format!("make {nodes} Ready")),
            Misfit::Taint { taint } => (Code::Taint, format!("tolerate {taint} of {nodes}")),
            Misfit::Selector => (Code::Selector, format!("match selector and affinity on {nodes}")),
            Misfit::Port => (Code::Port, format!("free the host port on {nodes}")),
            Misfit::Insufficient { resource } => (Code::Insufficient, format!("free {resource} on {nodes}")),
            Misfit::Shared => (Code::Occupied, format!("move what holds accelerators away from {nodes}")),
            Misfit::Occupied => (Code::Occupied, format!("move pods that keep the members away from {nodes}")),
        };
        reasons.push(reason(code, None, change));
    }
    reasons
}

/// The reason of a description that cannot be read.
pub(crate) fn of_invalid(invalid: &Invalid) -> Reason {
    let code = match invalid.reason {
        "UnknownLevel" => Code::UnknownLevel,
        "BadNumber" => Code::BadNumber,
        "BadValue" => Code::BadValue,
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

fn nodes(count: u32) -> String {
    if count == 1 { "1 node".to_owned() } else { format!("{count} nodes") }
}

fn more(count: u32) -> String {
    if count == 1 { "1 more member".to_owned() } else { format!("{count} more members") }
}
