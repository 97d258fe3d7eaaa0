//! The rows that terminal and plain text show: cells are words, without control characters.

pub use muster_core::model::money::usd;

use crate::overview::{Accelerators, AttemptEntry, BatchEntry, DomainEntry, FitEntry, GangEntry, Overview, PoolEntry};

/// Text without what a terminal or a reader would take for a command: control characters, and marks that turn the
/// direction of writing.
#[must_use]
pub fn clean(text: &str) -> String {
    let hidden = |letter: char| {
        letter.is_control()
            || matches!(letter, '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{2069}' | '\u{feff}')
    };
    text.chars().map(|letter| if hidden(letter) { '\u{fffd}' } else { letter }).collect()
}

/// Text of at most so many characters, with `…` where something was cut off.
#[must_use]
pub fn short(text: &str, most: usize) -> String {
    if text.chars().count() <= most {
        return text.to_owned();
    }
    let mut cut: String = text.chars().take(most.saturating_sub(1)).collect();
    cut.push('…');
    cut
}

/// Seconds as kubectl writes an age.
#[must_use]
pub fn age(seconds: Option<i64>) -> String {
    match seconds {
        None => "-".to_owned(),
        Some(seconds) if seconds < 120 => format!("{seconds}s"),
        Some(seconds) if seconds < 2 * 3600 => format!("{}m", seconds / 60),
        Some(seconds) if seconds < 48 * 3600 => format!("{}h", seconds / 3600),
        Some(seconds) => format!("{}d", seconds / 86_400),
    }
}

/// The whole in two lines.
#[must_use]
pub fn summary(overview: &Overview) -> [String; 2] {
    let all = &overview.summary;
    let Accelerators { total, used, free } = all.accelerators;
    [
        format!(
            "nodes: {}, {} take pods | accelerators: {used} of {total} used, {free} free",
            all.nodes, all.usable_nodes
        ),
        format!(
            "gangs: {}, {} waiting | pods pending: {} | {}/h, {} spent, {} stranded",
            all.gangs,
            all.waiting,
            all.pending_pods,
            usd(all.usd_micro_per_hour),
            usd(all.spent_usd_micro),
            usd(all.stranded_usd_micro)
        ),
    ]
}

/// What is not shown because it could not be listed.
#[must_use]
pub fn excluded(overview: &Overview) -> Option<String> {
    (!overview.excluded.is_empty())
        .then(|| format!("not shown, without the permission to list them: {}", clean(&overview.excluded.join(", "))))
}

/// A domain for people: its label, or that there is none.
#[must_use]
pub fn domain(overview: &Overview, domain: &DomainEntry) -> String {
    let level = overview.levels.get(domain.level).map_or("", |level| level.name.as_str());
    match &domain.name {
        Some(name) => format!("{level} {}", clean(name)),
        None => format!("no {level}"),
    }
}

/// Free and all accelerators and idle nodes.
#[must_use]
pub fn capacity(accelerators: Accelerators, idle: u32, nodes: u32) -> String {
    let Accelerators { total, used: _, free } = accelerators;
    format!("{free}/{total} free, {idle}/{nodes} nodes idle")
}

/// Head of [`gang`].
pub const GANG: [&str; 8] = ["ID", "NAMESPACE", "GANG", "PHASE", "MEMBERS", "AGE", "$/H", "STATUS"];

/// One gang.
#[must_use]
pub fn gang(gang: &GangEntry) -> [String; 8] {
    [
        gang.letters.clone(),
        clean(&gang.namespace),
        clean(&gang.name),
        clean(gang.phase.as_deref().unwrap_or("-")),
        format!("{}/{}", gang.running, gang.size),
        age(gang.age_seconds),
        if gang.usd_micro_per_hour == 0 { "-".to_owned() } else { usd(gang.usd_micro_per_hour) },
        clean(&gang.headline),
    ]
}

/// Head of [`batch`].
pub const BATCH: [&str; 8] = ["BATCH", "PHASE", "READY", "TYPE", "ZONE", "$/H", "ATTEMPTS", "STATUS"];

/// One NodeBatch.
#[must_use]
pub fn batch(batch: &BatchEntry) -> [String; 8] {
    let or_none = |text: Option<&str>| text.map_or_else(|| "-".to_owned(), clean);
    [
        clean(&batch.name),
        clean(&batch.phase),
        format!("{}/{}", batch.ready, batch.count),
        or_none(batch.instance_type.as_deref()),
        or_none(batch.zone.as_deref()),
        usd(batch.usd_micro_per_hour),
        batch.attempts.len().to_string(),
        or_none(batch.message.as_deref()),
    ]
}

/// Head of [`gang_wide`].
pub const GANG_WIDE: [&str; 14] = [
    "ID",
    "NAMESPACE",
    "GANG",
    "PHASE",
    "MEMBERS",
    "NEEDED",
    "NODES",
    "AGE",
    "TOPOLOGY",
    "NODEBATCH",
    "$/H",
    "SPENT",
    "STRANDED",
    "STATUS",
];

/// One gang, with what [`gang`] has no place for.
#[must_use]
pub fn gang_wide(entry: &GangEntry) -> [String; 14] {
    let [letters, namespace, name, phase, members, age, price, status] = gang(entry);
    let or_none = |text: Option<&str>| text.map_or_else(|| "-".to_owned(), clean);
    [
        letters,
        namespace,
        name,
        phase,
        members,
        entry.minimum.to_string(),
        entry.nodes.len().to_string(),
        age,
        or_none(entry.placement.as_deref()),
        or_none(entry.batch.as_deref()),
        price,
        usd(entry.spent_usd_micro),
        usd(entry.stranded_usd_micro),
        status,
    ]
}

/// Head of [`batch_wide`].
pub const BATCH_WIDE: [&str; 13] = [
    "BATCH", "PHASE", "READY", "OWNER", "TYPE", "ZONE", "CAPACITY", "AGE", "$/H", "SPENT", "STRANDED", "ATTEMPTS",
    "STATUS",
];

/// One NodeBatch, with what [`batch`] has no place for.
#[must_use]
pub fn batch_wide(entry: &BatchEntry) -> [String; 13] {
    let [name, phase, ready, instance_type, zone, price, attempts, status] = batch(entry);
    let or_none = |text: Option<&str>| text.map_or_else(|| "-".to_owned(), clean);
    [
        name,
        phase,
        ready,
        or_none(entry.owner.as_deref()),
        instance_type,
        zone,
        or_none(entry.capacity_type.as_deref()),
        age(entry.age_seconds),
        price,
        usd(entry.spent_usd_micro),
        usd(entry.stranded_usd_micro),
        attempts,
        status,
    ]
}

/// One attempt in a line.
#[must_use]
pub fn attempt(attempt: &AttemptEntry) -> String {
    let AttemptEntry { number, instance_type, zone, capacity_type, count, outcome, code, message, .. } = attempt;
    let mut line = format!("{number}. {count} {instance_type} {capacity_type} in {zone}: {outcome}");
    for more in [code, message].into_iter().flatten() {
        line.push_str(", ");
        line.push_str(more);
    }
    clean(&line)
}

/// Head of [`pool`].
pub const POOL: [&str; 6] = ["POOL", "READY", "NODES", "ACCELERATORS", "$/H", "LIMITS"];

/// One pool.
#[must_use]
pub fn pool(pool: &PoolEntry) -> [String; 6] {
    let limits: Vec<String> =
        pool.limits.iter().map(|limit| format!("{} {}/{}", limit.resource, limit.used, limit.limit)).collect();
    [
        pool.name.as_deref().map_or_else(|| "(none)".to_owned(), clean),
        match pool.ready {
            Some(true) => "yes",
            Some(false) => "no",
            None => "-",
        }
        .to_owned(),
        pool.nodes.to_string(),
        format!("{}/{} free", pool.accelerators.free, pool.accelerators.total),
        usd(pool.usd_micro_per_hour),
        if limits.is_empty() { "-".to_owned() } else { clean(&limits.join(", ")) },
    ]
}

/// Head of [`fit`].
pub const FIT: [&str; 5] = ["MEMBERS OF", "IN ONE", "LARGEST GANG", "GANGS AT ONCE", "WHERE"];

/// What fits at one level.
#[must_use]
pub fn fit(fit: &FitEntry) -> [String; 5] {
    let at_once: Vec<String> = fit
        .at_once
        .iter()
        .filter(|one| one.nodes > 1 && one.gangs > 0)
        .map(|one| format!("{}×{}", one.gangs, one.nodes))
        .collect();
    let nodes = if fit.largest == 1 { "node" } else { "nodes" };
    [
        format!("{} {}", fit.per_node, clean(&fit.accelerator)),
        fit.level.as_deref().map_or_else(|| "cluster".to_owned(), clean),
        format!("{} {nodes}", fit.largest),
        if at_once.is_empty() { "none".to_owned() } else { at_once.join(" ") },
        fit.at.as_deref().map_or_else(|| "-".to_owned(), |at| if at.is_empty() { "-".to_owned() } else { clean(at) }),
    ]
}

/// Rows as lines: columns as wide as their widest cell, two spaces apart, the last one as it is.
#[must_use]
pub fn columns<const N: usize>(head: [&str; N], rows: impl IntoIterator<Item = [String; N]>) -> Vec<String> {
    let mut all = vec![head.map(str::to_owned)];
    all.extend(rows);
    let mut widths = [0_usize; N];
    for row in &all {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let line = |row: &[String; N]| {
        let cells: Vec<String> = row.iter().zip(widths).map(|(cell, width)| format!("{cell:width$}")).collect();
        cells.join("  ").trim_end().to_owned()
    };
    all.iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_of_a_foreign_text_reaches_a_terminal_as_a_command() {
        assert_eq!(clean("a\u{1b}[2Jb\u{202e}c\n"), "a\u{fffd}[2Jb\u{fffd}c\u{fffd}");
    }

    #[test]
    fn ages_are_written_as_kubectl_does() {
        let all = [None, Some(5), Some(119), Some(120), Some(7200), Some(200_000)];
        assert_eq!(all.map(age), ["-", "5s", "119s", "2m", "2h", "2d"]);
    }
}
