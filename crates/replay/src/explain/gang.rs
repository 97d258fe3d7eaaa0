//! One gang: where it goes or why it waits, level by level, node group by node group, candidate by candidate.

use jiff::Timestamp;
use muster_core::fit::Misfit;
use muster_core::planner::plan::Refusal;
use muster_core::reason::{Passing, Why};
use serde::Serialize;

use super::remedies::{self, Remedy};
use super::{ExplainError, asked_for, elsewhere, is_asked, suggestion};
use crate::catalogue::Catalogue;
use crate::document::{
    Code, GangEntry, Gap, Ignored, MemberEntry, MemberState, Outcome, ProvisionEntry, Reason, RoleEntry,
};
use crate::study::{Candidate, Detail, Study};

/// Everything there is to say about one gang.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct GangExplanation {
    /// The moment it is planned for.
    pub now: Timestamp,
    /// Namespace.
    pub namespace: String,
    /// Its name as pods or owner write it.
    pub name: String,
    /// Name of its object.
    pub object: String,
    /// Whether there is such an object.
    #[serde(skip)]
    pub exists: bool,
    /// The convention that names it.
    pub source: String,
    /// What becomes of it.
    pub outcome: Outcome,
    /// What becomes of it, in one sentence to be read behind its name.
    pub headline: String,
    /// What would help, each alone, cheapest first.
    pub remedies: Vec<Remedy>,
    /// The same: a name of version 1 of this document.
    pub summary: String,
    /// Gangs that are planned before it and that this plan gives capacity to: what runs, or waits itself, takes nothing from it.
    pub ahead: usize,
    /// Roles.
    pub roles: Vec<RoleEntry>,
    /// Members with a place.
    pub members: Vec<MemberEntry>,
    /// Every level, top to bottom.
    pub levels: Vec<LevelExplanation>,
    /// How far the plan may be from the best.
    pub gap: Gap,
    /// The preferred level, if it was missed.
    pub preferred_missed: Option<String>,
    /// Elastic members without a place.
    pub unplaced: u32,
    /// What blocks nodes, most nodes first.
    pub blocking: Vec<Blocking>,
    /// Why it is not placed, with every change that is proven to help.
    pub reasons: Vec<Reason>,
    /// What could be provisioned, best first.
    pub candidates: Vec<Choice>,
    /// What cannot be provisioned, with the reason.
    #[serde(rename = "leftOut")]
    pub excluded: Vec<Reason>,
    /// For a gang that has no nodes: NodePools and their classes that play no part since they cannot be read.
    pub ignored: Vec<Ignored>,
}

/// One level.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct LevelExplanation {
    /// Name in topology requests.
    pub name: String,
    /// Label key.
    pub key: String,
    /// Domains used; 0 without members.
    pub used: u32,
    /// The fewest possible on this snapshot.
    pub optimum: Option<u32>,
    /// Optimum over used on this snapshot.
    pub now: Option<f64>,
    /// The same on the nodes without any pod.
    pub empty: Option<f64>,
    /// Neighbours in the ring that stand in different domains.
    pub ring_crossings: Option<u32>,
    /// For a gang that does not fit: the domain with most capacity.
    pub best: Option<Best>,
}

/// The domain of a level with most capacity.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Best {
    /// Path; null if no node has the level.
    pub domain: Option<String>,
    /// Members it could still take.
    pub holds: u32,
    /// Members that are missing there.
    pub short: u32,
    /// Whether all members must share a domain of this level.
    pub required: bool,
}

/// Nodes that are blocked for the same reason.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Blocking {
    /// What is in the way.
    pub code: Code,
    /// In words: the taint, the resource.
    pub what: String,
    /// Nodes.
    pub nodes: u32,
}

/// One way to provision.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Choice {
    /// Pool, type, zone, capacity type, count and price of one node.
    #[serde(flatten)]
    pub provision: ProvisionEntry,
    /// Micro-dollars per hour of all nodes.
    pub total_usd_micro_per_hour: u64,
    /// Members that running nodes take beside it.
    pub beside: u32,
    /// Whether this one is provisioned.
    pub chosen: bool,
    /// Why it was not accepted, if it was tried.
    pub rejected: Option<String>,
}

/// Explains a gang.
///
/// Errors: no such gang.
pub(super) fn explain(
    study: &Study,
    catalogue: &Catalogue,
    namespace: &str,
    name: &str,
) -> Result<GangExplanation, ExplainError> {
    let entries = || study.document.gangs.iter().zip(&study.details).enumerate();
    let inside = || entries().filter(|(_, (entry, _))| is_asked(namespace, &entry.namespace));
    let by_object: Vec<_> = inside().filter(|(_, (_, detail))| detail.object == name).collect();
    let by_name = || inside().filter(|(_, (entry, _))| entry.name == name).collect();
    let found = if by_object.is_empty() { by_name() } else { by_object };
    let of_namespaces = |found: &[(usize, (&GangEntry, &Detail))]| {
        elsewhere(found.iter().map(|(_, (entry, _))| entry.namespace.as_str()))
    };
    let mut namespaces: Vec<&str> = found.iter().map(|(_, (entry, _))| entry.namespace.as_str()).collect();
    namespaces.dedup();
    if namespaces.len() > 1 {
        let suggestion = of_namespaces(&found).unwrap_or_default();
        return Err(ExplainError::Several { what: "gang", name: name.to_owned(), suggestion });
    }
    let Some(&(ahead, (entry, detail))) = found.first() else {
        let others: Vec<_> =
            entries().filter(|(_, (entry, detail))| entry.name == name || detail.object == name).collect();
        let here = || suggestion(inside().map(|(_, (entry, _))| entry.name.as_str()));
        let anywhere = || {
            let all: Vec<String> =
                entries().map(|(_, (entry, _))| format!("{}/{}", entry.namespace, entry.name)).collect();
            suggestion(all.iter().map(String::as_str))
        };
        return Err(ExplainError::NotFound {
            what: "gang",
            name: asked_for(namespace, name),
            suggestion: of_namespaces(&others)
                .or_else(|| Some(here()).filter(|here| !here.is_empty()))
                .unwrap_or_else(anywhere),
        });
    };
    Ok(of(study, catalogue, entry, detail, ahead))
}

/// What blocks nodes, with what the gang's volumes and other gangs have to do with it.
fn what(reason: &Misfit, detail: &Detail) -> String {
    let passing = match &detail.why {
        Some(Why::Refused { passing, .. }) => passing.as_slice(),
        _ => &[],
    };
    match (reason, &detail.volumes) {
        (Misfit::Volume, Some(volumes)) => format!("{reason}: {volumes}"),
        (Misfit::Insufficient { .. }, _) => {
            let assigned = passing.iter().find_map(|one| match one {
                Passing::Assigned { gangs, nodes, .. } => Some((gangs, nodes)),
                Passing::Terminating { .. } => None,
            });
            assigned.map_or_else(
                || reason.to_string(),
                |(gangs, nodes)| {
                    let gangs: Vec<String> = gangs.iter().map(ToString::to_string).collect();
                    let s = if gangs.len() == 1 { "" } else { "s" };
                    format!("{reason}; {nodes} of them assigned to gang{s} {}", gangs.join(", "))
                },
            )
        }
        _ => reason.to_string(),
    }
}

/// The explanation of an entry.
pub(super) fn of(
    study: &Study,
    catalogue: &Catalogue,
    entry: &GangEntry,
    detail: &Detail,
    position: usize,
) -> GangExplanation {
    let gets_capacity = |one: &&GangEntry| match one.outcome {
        Outcome::Placed => one.members.iter().any(|member| member.state == MemberState::Planned),
        Outcome::Provision => true,
        Outcome::Waiting | Outcome::Refused | Outcome::Invalid => false,
    };
    let ahead = study.document.gangs.iter().take(position).filter(gets_capacity).count();
    let shortfall = match &detail.refusal {
        Some(Refusal::DoesNotFit(shortfall)) => Some(shortfall),
        Some(_) | None => None,
    };
    let level = |index: usize| {
        let configured = &study.levels.as_slice()[index];
        let planned = entry.levels.get(index);
        let best = shortfall.and_then(|shortfall| {
            let best = shortfall.best.get(index)?;
            Some(Best {
                domain: (!best.domain.is_empty()).then(|| best.domain.to_string()),
                holds: best.holds,
                short: shortfall.needed.saturating_sub(best.holds),
                required: shortfall.required == Some(index),
            })
        });
        LevelExplanation {
            name: configured.name.to_string(),
            key: configured.key.to_string(),
            used: planned.map_or(0, |level| level.used),
            optimum: planned.and_then(|level| level.optimum),
            now: entry.score.now.get(index).copied().flatten(),
            empty: entry.score.empty.get(index).copied().flatten(),
            ring_crossings: detail.ring_crossings.get(index).copied(),
            best,
        }
    };
    let blocked = shortfall.map(|shortfall| &*shortfall.blocked).unwrap_or_default();
    let blocking = |blocked: &muster_core::planner::plan::Blocked| Blocking {
        code: Code::of_misfit(&blocked.reason),
        what: what(&blocked.reason, detail),
        nodes: blocked.nodes,
    };
    let choice = |candidate: &Candidate| Choice {
        provision: candidate.provision.clone(),
        total_usd_micro_per_hour: candidate.total,
        beside: candidate.beside,
        chosen: candidate.chosen,
        rejected: candidate.rejected.clone(),
    };
    let waits = matches!(entry.outcome, Outcome::Waiting | Outcome::Refused);
    let sells = |object: &&Ignored| waits && ["NodePool", "EC2NodeClass"].contains(&object.kind.as_str());
    let ignored = study.document.ignored.iter().filter(sells).cloned().collect();
    let headline = remedies::headline(entry, detail.why.as_ref(), detail.refusal.as_ref());
    GangExplanation {
        now: study.document.now,
        namespace: entry.namespace.clone(),
        name: entry.name.clone(),
        object: detail.object.clone(),
        exists: detail.exists,
        source: entry.source.clone(),
        outcome: entry.outcome,
        summary: headline.clone(),
        headline,
        remedies: remedies::remedies(entry, detail, catalogue),
        ahead,
        roles: entry.roles.clone(),
        members: entry.members.clone(),
        levels: (0..study.levels.len()).map(level).collect(),
        gap: entry.gap.clone(),
        preferred_missed: detail.preferred_missed.clone(),
        unplaced: detail.unplaced,
        blocking: blocked.iter().map(blocking).collect(),
        reasons: entry.reasons.clone(),
        candidates: detail.candidates.iter().map(choice).collect(),
        excluded: detail.excluded.clone(),
        ignored,
    }
}
