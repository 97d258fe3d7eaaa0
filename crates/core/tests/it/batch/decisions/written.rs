//! A decision as text: what changes in the status, and everything that is to be done.

use std::fmt::{Debug, Write as _};

use jiff::Timestamp;
use muster_core::batch::{Decision, Requeue};
use muster_core::model::batch::{Attempt, BatchMember, BatchStatus, ConditionKind};

use super::scene::{NOW, Scene};
use crate::world::at;

/// Fields of `$after` that differ from `$before`, one line each. The answer is `$before` with all of them.
macro_rules! changes {
    ($text:expr, $what:expr, $before:expr, $after:expr, $($field:ident)*) => {{
        let mut same = $before.clone();
        $(if $before.$field != $after.$field {
            writeln!($text, "{}{}: {} -> {}", $what, stringify!($field), short(&$before.$field), short(&$after.$field)).unwrap();
            same.$field.clone_from(&$after.$field);
        })*
        same
    }};
}

/// Seconds from the moment of the decision instead of times.
fn short(value: &dyn Debug) -> String {
    let mut text = format!("{value:?}");
    while let Some(from) = text.find("2023-11-1") {
        let until = text[from..].find('Z').unwrap() + from + 1;
        let time: Timestamp = text[from..until].parse().unwrap();
        text.replace_range(from..until, &relative(time));
    }
    text
}

fn relative(time: Timestamp) -> String {
    if time == Timestamp::MAX {
        return "never".to_owned();
    }
    let millis = time.duration_since(at(NOW)).as_millis();
    if millis % 1000 == 0 { format!("{:+} s", millis / 1000) } else { format!("{millis:+} ms") }
}

fn attempts(text: &mut String, before: &[Attempt], after: &[Attempt]) {
    for gone in before.iter().filter(|one| after.iter().all(|other| other.number != one.number)) {
        writeln!(text, "attempt {} is forgotten", gone.number).unwrap();
    }
    for now in after {
        let what = format!("attempt {} ", now.number);
        match before.iter().find(|one| one.number == now.number) {
            None => writeln!(text, "{what}is new: {}", short(now)).unwrap(),
            Some(was) => {
                let same = changes!(
                text, what, was, now,
                node_pool instance_type zone subnet capacity_type count group reservation_group reservation way image template
                parameters token replayed sweeps fleet request_id replaces probe outcome code message started ended);
                assert_eq!(same, *now, "a field that is not in the table");
            }
        }
    }
}

fn members(text: &mut String, what: &str, before: &[BatchMember], after: &[BatchMember]) {
    for gone in before.iter().filter(|one| after.iter().all(|other| other.id != one.id)) {
        writeln!(text, "{what} {} is not listed any more", gone.id).unwrap();
    }
    for now in after {
        let what = format!("{what} {} ", now.id);
        match before.iter().find(|one| one.id == now.id) {
            None => writeln!(text, "{what}is new: {}", short(now)).unwrap(),
            Some(was) => {
                let same = changes!(
                text, what, was, now,
                attempt state node registered loss network_nodes empty_since leaving_since launched billed);
                assert_eq!(same, *now, "a field that is not in the table");
            }
        }
    }
}

fn status(text: &mut String, before: &BatchStatus, after: &BatchStatus) {
    let mut same = changes!(
        text, "", before, after,
        phase since count ready_count attempt generation node_pool instance_type zone capacity_type placement_group
        placement_group_id launch_templates price message next_attempt_after round_from failed_rounds deadline idle_since used
        candidates excluded located reserved misses held billing conditions
    );
    attempts(text, &before.attempts, &after.attempts);
    members(text, "instance", &before.instances, &after.instances);
    members(text, "lost instance", &before.replaced, &after.replaced);
    same.attempts.clone_from(&after.attempts);
    same.instances.clone_from(&after.instances);
    same.replaced.clone_from(&after.replaced);
    assert_eq!(same, *after, "a field that is not in the table");
}

/// Without the conditions that follow from phase and instances: they have a table of their own.
fn decided(next: &BatchStatus) -> BatchStatus {
    let follows = [ConditionKind::Launched, ConditionKind::Registered, ConditionKind::Ready];
    let mut next = next.clone();
    next.conditions.retain(|one| !follows.contains(&one.kind));
    next
}

/// Everything a decision says.
pub(super) fn decision(scene: &Scene) -> String {
    let mut text = String::new();
    let Decision { batch, next, change, converge, looks, notes, events, requeue, scratch, used, succeeded, reports } =
        scene.decide();
    assert_eq!(batch, scene.batch.name);
    match &next {
        Some(next) => status(&mut text, &scene.batch.status, &decided(next)),
        None => text.push_str("no write\n"),
    }
    if let Some(change) = change {
        writeln!(text, "change: {}", short(&change)).unwrap();
    }
    for edit in converge {
        writeln!(text, "converge: {}", short(&edit)).unwrap();
    }
    for look in looks {
        writeln!(text, "look: {}", short(&look)).unwrap();
    }
    for note in notes {
        writeln!(text, "note: {}", short(&note)).unwrap();
    }
    for event in events {
        writeln!(text, "event: {}", short(&event)).unwrap();
    }
    let before = scene.memory.scratch;
    let same = changes!(text, "scratch ", before, scratch, looked cleared group_looks first last_looks progressed);
    assert_eq!(same, scratch, "a field that is not in the table");
    if used {
        text.push_str("what was seen and done is used\n");
    }
    if succeeded {
        text.push_str("it succeeded\n");
    }
    if reports > 0 {
        writeln!(text, "reports settled: {reports}").unwrap();
    }
    let again = match requeue {
        Requeue::Retry(pause) => format!("retry in {} ms", pause.as_millis()),
        Requeue::Now | Requeue::Outcome | Requeue::At(_) | Requeue::Pause(_) => short(&requeue),
    };
    writeln!(text, "requeue: {again}").unwrap();
    text
}
