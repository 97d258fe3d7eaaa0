//! A plan for people who want each member, node and dropped preference by itself.

use std::collections::BTreeMap;
use std::fmt::Write;

use muster_core::model::money::usd;

use crate::document::{Document, MemberState, NodeEntry};
use crate::study::Study;
use crate::table::{columns, word};

/// The tables of a plan, and behind them one row for each member of a gang, for each node that is launched for pods of no gang, and for
/// each pod that dropped a preference.
#[must_use]
pub fn render(study: &Study) -> String {
    let document = &study.document;
    let mut out = crate::table::render(study);
    let mut section = |title: &str, rows: String| {
        if !rows.is_empty() {
            let _ = write!(out, "\n{title}:\n{rows}");
        }
    };
    section("members", members(document));
    section("nodes", nodes(document));
    section("preferences dropped", relaxed(document));
    out
}

/// A table, or nothing where it has no row.
fn table<const N: usize>(head: [&str; N], rows: impl Iterator<Item = [String; N]>) -> String {
    let mut all = vec![head.map(str::to_owned)];
    all.extend(rows);
    let mut out = String::new();
    if all.len() > 1 {
        columns(&mut out, &all);
    }
    out
}

fn members(document: &Document) -> String {
    let rows = document.gangs.iter().flat_map(|gang| {
        gang.members.iter().map(|member| {
            let state = match member.state {
                MemberState::Running => "running",
                MemberState::Planned => "planned",
            };
            let pod =
                member.pod.clone().unwrap_or_else(|| format!("{}-{} (not created yet)", member.role, member.rank));
            [gang.namespace.clone(), gang.name.clone(), pod, member.node.clone(), state.to_owned()]
        })
    });
    table(["NAMESPACE", "GANG", "MEMBER", "NODE", "STATE"], rows)
}

fn nodes(document: &Document) -> String {
    let mut pods: BTreeMap<&str, usize> = BTreeMap::new();
    for pod in &document.pods {
        *pods.entry(pod.node.as_deref().unwrap_or_default()).or_default() += 1;
    }
    let rows = document.nodes.iter().map(|node| {
        let NodeEntry { id, pool, instance_type, zone, capacity_type, usd_micro_per_hour, alternatives, .. } = node;
        [
            id.clone(),
            pool.clone(),
            instance_type.clone(),
            zone.clone().unwrap_or_else(|| "-".to_owned()),
            word(*capacity_type).to_owned(),
            usd(*usd_micro_per_hour),
            alternatives.len().to_string(),
            pods.get(id.as_str()).copied().unwrap_or(0).to_string(),
        ]
    });
    table(["NODE", "POOL", "TYPE", "ZONE", "CAPACITY", "$/H", "ALTERNATIVES", "PODS"], rows)
}

fn relaxed(document: &Document) -> String {
    let rows = document.pods.iter().filter(|pod| !pod.relaxed.is_empty()).map(|pod| {
        let dropped = pod.relaxed.iter().map(|one| {
            let weight = one.weight.map_or_else(String::new, |weight| format!(" of weight {weight}"));
            format!("{}[{}]{weight}", one.what.as_str(), one.index)
        });
        [pod.namespace.clone(), pod.name.clone(), dropped.collect::<Vec<_>>().join(", ")]
    });
    table(["NAMESPACE", "POD", "DROPPED"], rows)
}
