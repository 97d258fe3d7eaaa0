//! The overview as plain text: for pipes, logs and screen readers.

use std::fmt::Write as _;

use muster_core::model::moment::moment;

use crate::overview::{DomainEntry, NodeState, Overview};
use crate::rows;

/// Everything, section by section; an empty section is not there.
#[must_use]
pub fn text(overview: &Overview) -> String {
    of(overview, false)
}

/// The same with more columns, and the attempts of every NodeBatch.
#[must_use]
pub fn wide(overview: &Overview) -> String {
    of(overview, true)
}

fn of(overview: &Overview, wide: bool) -> String {
    let mut out = rows::summary(overview).join("\n");
    let _ = writeln!(out, "\nat {}", moment(overview.now));
    if let Some(excluded) = rows::excluded(overview) {
        let _ = writeln!(out, "{excluded}");
    }
    let mut section = |title: &str, lines: Vec<String>| {
        let _ = writeln!(out, "\n{title}");
        for line in lines {
            let _ = writeln!(out, "  {line}");
        }
    };
    if !overview.gangs.is_empty() {
        let lines = if wide {
            rows::columns(rows::GANG_WIDE, overview.gangs.iter().map(rows::gang_wide))
        } else {
            rows::columns(rows::GANG, overview.gangs.iter().map(rows::gang))
        };
        section("GANGS", lines);
    }
    for gang in overview.gangs.iter().filter(|gang| gang.waiting && !gang.remedies.is_empty()) {
        let title =
            format!("{}/{} {}", rows::clean(&gang.namespace), rows::clean(&gang.name), rows::clean(&gang.headline));
        section(&title, remedies(gang));
    }
    if !overview.fits.is_empty() {
        section(
            "FITS NOW (members take a whole node each)",
            rows::columns(rows::FIT, overview.fits.iter().map(rows::fit)),
        );
    }
    if !overview.batches.is_empty() {
        let mut lines = if wide {
            rows::columns(rows::BATCH_WIDE, overview.batches.iter().map(rows::batch_wide))
        } else {
            rows::columns(rows::BATCH, overview.batches.iter().map(rows::batch))
        };
        let shown = if wide { 1 } else { 2 };
        for batch in overview.batches.iter().filter(|batch| batch.attempts.len() >= shown) {
            lines.push(format!("attempts of {}:", rows::clean(&batch.name)));
            lines.extend(batch.attempts.iter().map(|attempt| format!("  {}", rows::attempt(attempt))));
        }
        section("NODEBATCHES", lines);
    }
    if !overview.pools.is_empty() {
        section("POOLS", rows::columns(rows::POOL, overview.pools.iter().map(rows::pool)));
    }
    if !overview.domains.is_empty() {
        section("TOPOLOGY", tree(overview));
    }
    out
}

/// Numbered remedies, codes last, under what they are worth.
#[must_use]
pub fn remedies(gang: &crate::overview::GangEntry) -> Vec<String> {
    let mut lines = Vec::new();
    for (heading, first, group) in gang.remedy_groups() {
        lines.push(format!("{heading}:"));
        lines.extend(
            (first..).zip(group).map(|(number, remedy)| {
                format!("{number}. {}. [{}]", rows::clean(&remedy.text), remedy.codes.join(", "))
            }),
        );
    }
    lines
}

fn tree(overview: &Overview) -> Vec<String> {
    overview.domains.iter().map(|domain| line(overview, domain)).collect()
}

/// A domain with its nodes, one mark each: letters of the gang that holds most of it, `.` idle, `~` partly used, `x`
/// blocked, `-` without accelerators.
fn line(overview: &Overview, domain: &DomainEntry) -> String {
    let indent = "  ".repeat(domain.level);
    let name = rows::domain(overview, domain);
    let capacity = rows::capacity(domain.accelerators, domain.idle_nodes, domain.nodes);
    let index = overview.domains.iter().position(|one| std::ptr::eq(one, domain));
    let marks: Vec<String> =
        overview.hosts(index).filter(|_| index.is_some()).map(|node| mark(overview, node)).collect();
    let marks = if marks.is_empty() { String::new() } else { format!("  [{}]", marks.join(" ")) };
    format!("{indent}{name}: {capacity}{marks}")
}

/// The mark of a node.
#[must_use]
pub fn mark(overview: &Overview, node: &crate::overview::NodeEntry) -> String {
    if let Some(gang) = node.gangs.first().and_then(|index| overview.gangs.get(*index)) {
        return gang.letters.clone();
    }
    match node.state {
        NodeState::Idle => ".",
        NodeState::Partial => "~",
        NodeState::Full => "#",
        NodeState::Plain => "-",
        NodeState::Blocked => "x",
    }
    .to_owned()
}
