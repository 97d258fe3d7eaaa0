//! A plan for people.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use muster_core::model::money::usd;
use muster_core::offering::Exclusion;
use muster_core::planner::plan::Refusal;
use muster_core::reason::{Help, PoolChange};
use muster_core::topology::Levels;

use crate::document::{
    Code, Cost, Document, GangEntry, Gap, Ignored, MarketType, NodeEntry, Outcome, ProvisionEntry, Reason,
};
use crate::study::{Candidate, Detail, Study};

/// Ignored objects named one by one.
const IGNORED_SHOWN: usize = 20;

/// Ways to provision named one by one.
const CANDIDATES_SHOWN: usize = 10;

/// Renders a plan as tables, one for gangs and one for pods, each only if there is something in it, with what stands
/// behind the gangs that running nodes do not hold.
#[must_use]
pub fn render(study: &Study) -> String {
    let document = &study.document;
    let mut out = String::new();
    if document.gangs.is_empty() && document.pods.is_empty() {
        out.push_str("nothing to plan: no gang and no pending pod of the profile\n");
    }
    if !document.gangs.is_empty() {
        let mut rows =
            vec![["NAMESPACE", "GANG", "OUTCOME", "MEMBERS", "NODES", "TOPOLOGY", "PROVISION"].map(str::to_owned)];
        rows.extend(document.gangs.iter().map(row));
        columns(&mut out, &rows);
        for (gang, detail) in document.gangs.iter().zip(&study.details) {
            behind(&mut out, gang, detail, &study.levels);
        }
    }
    if !document.pods.is_empty() {
        if !document.gangs.is_empty() {
            out.push('\n');
        }
        let mut rows = vec![["NAMESPACE", "POD", "NODE", "REASON"].map(str::to_owned)];
        rows.extend(document.pods.iter().map(|pod| {
            let none = || "-".to_owned();
            let (node, reason) = (pod.node.clone(), pod.sentence());
            [pod.namespace.clone(), pod.name.clone(), node.unwrap_or_else(none), reason.unwrap_or_else(none)]
        }));
        columns(&mut out, &rows);
    }
    launches(&mut out, document);
    ignored(&mut out, &document.ignored);
    out
}

/// Objects that play no part, if there are any.
pub(crate) fn ignored(out: &mut String, objects: &[Ignored]) {
    if objects.is_empty() {
        return;
    }
    let _ = writeln!(out, "\nignored:");
    for Ignored { kind, name, why } in objects.iter().take(IGNORED_SHOWN) {
        let _ = writeln!(out, "  {kind} {name}: {why}");
    }
    let more = objects.len().saturating_sub(IGNORED_SHOWN);
    if more > 0 {
        let _ = writeln!(out, "  and {more} more");
    }
}

/// What is launched for ordinary pods, and what it costs.
fn launches(out: &mut String, document: &Document) {
    if document.nodes.is_empty() {
        return;
    }
    let _ = writeln!(out, "\nlaunches:");
    let mut counts: BTreeMap<(&str, &str, Option<&str>, MarketType, u64), u64> = BTreeMap::new();
    for node in &document.nodes {
        let NodeEntry { pool, instance_type, zone, capacity_type, usd_micro_per_hour, .. } = node;
        *counts.entry((pool, instance_type, zone.as_deref(), *capacity_type, *usd_micro_per_hour)).or_default() += 1;
    }
    for ((pool, instance_type, zone, capacity_type, each), count) in counts {
        let zone = zone.unwrap_or("any zone");
        let (capacity_type, price) = (word(capacity_type), usd(each.saturating_mul(count)));
        let _ = writeln!(out, "  {count} {instance_type} {capacity_type} in {zone} from {pool} at {price}/h");
    }
    let Cost { usd_micro_per_hour, bound, gap, .. } = &document.cost;
    let proof = match gap {
        Some(Gap::None) => "proven to be the least".to_owned(),
        Some(Gap::Open { .. }) | None => format!("at least {}/h", usd(bound.unwrap_or(0))),
    };
    let _ = writeln!(out, "  together {}/h, {proof}", usd(*usd_micro_per_hour));
}

pub(crate) fn word(capacity_type: MarketType) -> &'static str {
    match capacity_type {
        MarketType::Reserved => "reserved",
        MarketType::OnDemand => "on-demand",
        MarketType::Spot => "spot",
    }
}

/// Why running nodes do not hold a gang, and what could be provisioned for it.
fn behind(out: &mut String, gang: &GangEntry, detail: &Detail, levels: &Levels) {
    if gang.reasons.is_empty() && detail.candidates.is_empty() {
        return;
    }
    let is = match gang.outcome {
        Outcome::Placed => "is placed",
        Outcome::Provision => "needs new nodes",
        Outcome::Waiting => "waits",
        Outcome::Refused => "is refused",
        Outcome::Invalid => "is invalid",
    };
    let _ = writeln!(out, "\n{}/{} {is}:", gang.namespace, gang.name);
    let name =
        |key: &str| levels.as_slice().iter().find(|level| *level.key == *key).map(|level| level.name.to_string());
    let sentence = |reason: &Reason| sentence(reason, |key| name(key).unwrap_or_else(|| key.to_owned()));
    let mut stated = BTreeSet::new();
    for reason in gang.reasons.iter().filter(|reason| reason.change.is_some()) {
        stated.insert(sentence(reason));
        let _ = writeln!(out, "  {}", sentence(reason));
    }
    if let Some(Refusal::DoesNotFit(shortfall)) = &detail.refusal {
        for group in &shortfall.blocked {
            let nodes = if group.nodes == 1 { "node" } else { "nodes" };
            let _ = writeln!(out, "  {} {nodes}: {}", group.nodes, group.reason);
        }
    }
    for candidate in detail.candidates.iter().take(CANDIDATES_SHOWN) {
        let _ = writeln!(out, "  {}", offered(candidate));
    }
    let more = detail.candidates.len().saturating_sub(CANDIDATES_SHOWN);
    if more > 0 {
        let _ = writeln!(out, "  and {more} more");
    }
    for reason in detail.excluded.iter().filter(|reason| !stated.contains(&sentence(reason))) {
        let _ = writeln!(out, "  cannot be provisioned: {}", sentence(reason));
    }
}

/// One way to provision, with its price and what became of it.
pub(crate) fn offered(candidate: &Candidate) -> String {
    let beside = match candidate.beside {
        0 => String::new(),
        1 => ", 1 member on a running node".to_owned(),
        members => format!(", {members} members on running nodes"),
    };
    let verb = if candidate.chosen { "provisions" } else { "could provision" };
    let rejected = candidate.rejected.as_ref().map_or_else(String::new, |why| format!("; not accepted: {why}"));
    format!("{verb} {}{beside}{rejected}", provisioned(&candidate.provision))
}

fn row(gang: &GangEntry) -> [String; 7] {
    let count = gang.roles.iter().fold(0_u32, |sum, role| sum.saturating_add(role.count));
    let nodes: BTreeSet<&str> = gang.members.iter().map(|member| member.node.as_str()).collect();
    let topology: Vec<String> = gang
        .levels
        .iter()
        .filter(|level| level.used > 0)
        .map(|level| format!("{} {}", level.used, level.key.rsplit('/').next().unwrap_or_default()))
        .collect();
    let provision: Vec<String> = gang.provision.iter().map(provisioned).collect();
    let or_none = |text: String| if text.is_empty() { "-".to_owned() } else { text };
    [
        gang.namespace.clone(),
        gang.name.clone(),
        outcome(gang.outcome).to_owned(),
        format!("{}/{count}", gang.members.len()),
        nodes.len().to_string(),
        or_none(topology.join(", ")),
        or_none(provision.join(", ")),
    ]
}

fn provisioned(entry: &ProvisionEntry) -> String {
    let ProvisionEntry { pool, instance_type, zone, capacity_type, count, usd_micro_per_hour } = entry;
    let capacity_type = word(*capacity_type);
    let total = usd_micro_per_hour.saturating_mul(u64::from(*count));
    let zone = zone.as_deref().unwrap_or("any zone");
    format!("{count} {instance_type} {capacity_type} in {zone} from {pool} at {}/h", usd(total))
}

/// A reason with what would help, its code last; `name` names a level by its label key.
pub(crate) fn sentence<N: std::fmt::Display>(reason: &Reason, name: impl Fn(&str) -> N) -> String {
    let Reason { code, level, short, change, help, provision: _ } = reason;
    let mut parts = Vec::new();
    match (code, short, level) {
        (Code::DoesNotFit, Some(short), Some(level)) => {
            parts.push(format!("needs capacity for {short} more in one {}", name(level)));
        }
        (Code::DoesNotFit, Some(short), None) => parts.push(format!("needs capacity for {short} more")),
        (Code::Unlabelled, _, Some(level)) => parts.push(format!("nodes without a label for {}", name(level))),
        _ => {}
    }
    match (&**help, change) {
        (Help::Pool { pool, instance_type, changes, .. }, _) => {
            let of = instance_type.as_deref().map_or_else(String::new, |name| format!("{name} of "));
            parts.push(format!("{of}NodePool {pool}: {}", obstacles(changes)));
        }
        (Help::Change(_), Some(change)) => parts.push(format!("would fit with {change}")),
        (_, Some(change)) => parts.push(change.clone()),
        (_, None) => {}
    }
    if parts.is_empty() {
        parts.extend(short.map(|short| format!("{short} short")));
    }
    let codes = format!("[{code}]");
    if parts.is_empty() { codes } else { format!("{} {codes}", parts.join("; ")) }
}

/// What stands in the way of a type, or what would help it.
fn obstacles(changes: &[PoolChange]) -> String {
    let of = |change: &PoolChange| match change {
        PoolChange::OtherType { why } => why.to_string(),
        // A price cannot be given: that none is known is the fact.
        PoolChange::Price => Exclusion::PriceUnknown.to_string(),
        change => format!("would do with {change}"),
    };
    changes.iter().map(of).collect::<Vec<_>>().join(", ")
}

pub(crate) fn outcome(outcome: Outcome) -> &'static str {
    match outcome {
        Outcome::Placed => "placed",
        Outcome::Provision => "new nodes",
        Outcome::Waiting => "waiting",
        Outcome::Refused => "refused",
        Outcome::Invalid => "invalid",
    }
}

/// Columns as wide as their widest cell, three spaces apart as kubectl has them; the last one is not padded.
pub(crate) fn columns<const N: usize>(out: &mut String, rows: &[[String; N]]) {
    let mut widths = [0; N];
    for row in rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    for row in rows {
        let cells: Vec<String> = row.iter().zip(widths).map(|(cell, width)| format!("{cell:width$}")).collect();
        out.push_str(cells.join("   ").trim_end());
        out.push('\n');
    }
}
