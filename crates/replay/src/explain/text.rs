//! Explanations for people.

use std::collections::BTreeMap;
use std::fmt::Write;

use muster_api::keys;
use muster_core::model::resources::amount;

use super::gang::{Choice, GangExplanation, LevelExplanation};
use super::node::{Assignment, NodeExplanation, OfGang, OnNode};
use super::pod::PodExplanation;
use super::remedies::{Remedy, groups};
use crate::document::{Gap, MemberState, Reason};
use crate::study::Candidate;
use crate::table::{columns, ignored, offered, outcome, sentence};

/// Members and nodes named one by one.
const SHOWN: usize = 40;

/// A gang.
pub(super) fn gang(gang: &GangExplanation) -> String {
    let mut out = String::new();
    let _ = writeln!(out, "gang {}/{} {}", gang.namespace, gang.name, gang.headline);
    if gang.exists && gang.object != gang.name {
        let _ = writeln!(out, "  its object is gang {}", gang.object);
    }
    if gang.ahead > 0 {
        let gangs = if gang.ahead == 1 { "gang is" } else { "gangs are" };
        let _ = writeln!(out, "  {} {gangs} planned before it", gang.ahead);
    }
    if gang.unplaced > 0 {
        let _ = writeln!(out, "  {} members beyond the minimum have no capacity yet", gang.unplaced);
    }
    if let Some(level) = &gang.preferred_missed {
        let _ = writeln!(out, "  preferred, and not possible now: one {level}");
    }
    if let Gap::Open { field, achieved, bound } = &gang.gap {
        let _ = writeln!(out, "  not proven to be the best: {field} is {achieved}, none below {bound}");
    }
    remedies(&mut out, &gang.remedies);
    levels(&mut out, &gang.levels);
    if !gang.blocking.is_empty() {
        out.push_str("\nblocked nodes:\n");
        for group in &gang.blocking {
            let nodes = if group.nodes == 1 { "node" } else { "nodes" };
            let _ = writeln!(out, "  {} {nodes}: {}", group.nodes, group.what);
        }
    }
    choices(&mut out, &gang.candidates);
    // What a remedy above says already is not stated again.
    let stated = |reason: &&Reason| gang.remedies.is_empty() || reason.help.instruction().is_none();
    let excluded: Vec<&Reason> = gang.excluded.iter().filter(stated).collect();
    if !excluded.is_empty() {
        out.push_str("\ncannot be provisioned:\n");
        for reason in excluded {
            let _ = writeln!(out, "  {}", sentence(reason, |key| level_name(&gang.levels, key)));
        }
    }
    ignored(&mut out, &gang.ignored);
    if !gang.members.is_empty() {
        out.push('\n');
        let mut rows = vec![["ROLE", "RANK", "POD", "NODE", "STATE"].map(str::to_owned)];
        rows.extend(gang.members.iter().take(SHOWN).map(|member| {
            let state = if member.state == MemberState::Running { "running" } else { "planned" };
            let or_none = |text: &str| if text.is_empty() { "-".to_owned() } else { text.to_owned() };
            [
                or_none(&member.role),
                member.rank.to_string(),
                member.pod.clone().unwrap_or_else(|| "-".to_owned()),
                member.node.clone(),
                state.to_owned(),
            ]
        }));
        columns(&mut out, &rows);
        let more = gang.members.len().saturating_sub(SHOWN);
        if more > 0 {
            let _ = writeln!(out, "and {more} more");
        }
    }
    out
}

/// What was shown to be enough first, then what takes one obstacle away.
fn remedies(out: &mut String, remedies: &[Remedy]) {
    for (heading, first, group) in groups(remedies, |remedy| remedy.enough) {
        let _ = writeln!(out, "\n{heading}:");
        for (number, remedy) in (first..).zip(group) {
            let codes: Vec<&str> = remedy.codes.iter().map(|code| code.as_str()).collect();
            let _ = writeln!(out, "  {number}. {}. [{}]", remedy.sentence(), codes.join(", "));
        }
    }
}

/// The name of a level by its label key.
fn level_name(levels: &[LevelExplanation], key: &str) -> String {
    levels.iter().find(|level| level.key == key).map_or(key, |level| level.name.as_str()).to_owned()
}

fn levels(out: &mut String, levels: &[LevelExplanation]) {
    out.push('\n');
    if levels.iter().any(|level| level.best.is_some()) {
        let mut rows = vec![["LEVEL", "REQUIRED", "BEST DOMAIN", "HOLDS", "SHORT"].map(str::to_owned)];
        rows.extend(levels.iter().filter_map(|level| {
            let best = level.best.as_ref()?;
            Some([
                level.name.clone(),
                if best.required { "yes" } else { "" }.to_owned(),
                best.domain.clone().unwrap_or_else(|| "-".to_owned()),
                best.holds.to_string(),
                best.short.to_string(),
            ])
        }));
        columns(out, &rows);
        return;
    }
    let share = |share: Option<f64>| share.map_or_else(|| "-".to_owned(), |share| format!("{share:.2}"));
    let mut rows = vec![["LEVEL", "USED", "OPTIMUM", "SCORE NOW", "SCORE EMPTY", "RING CROSSINGS"].map(str::to_owned)];
    rows.extend(levels.iter().filter(|level| level.used > 0).map(|level| {
        let number = |number: Option<u32>| number.map_or_else(|| "-".to_owned(), |number| number.to_string());
        [
            level.name.clone(),
            level.used.to_string(),
            number(level.optimum),
            share(level.now),
            share(level.empty),
            number(level.ring_crossings),
        ]
    }));
    if rows.len() > 1 {
        columns(out, &rows);
    } else {
        out.pop();
    }
}

fn choices(out: &mut String, choices: &[Choice]) {
    if choices.is_empty() {
        return;
    }
    out.push_str("\ncould be provisioned, in the order it is tried (weight of the NodePool, then price):\n");
    for choice in choices {
        let Choice { provision, total_usd_micro_per_hour: total, beside, chosen, rejected } = choice.clone();
        let _ = writeln!(out, "  {}", offered(&Candidate { provision, total, beside, chosen, rejected }));
    }
}

/// A pod.
pub(super) fn pod(pod: &PodExplanation) -> String {
    let mut out = format!("pod {}/{}\n  {}\n", pod.namespace, pod.name, pod.summary);
    if let Some(reported) = &pod.gang {
        out.push('\n');
        out.push_str(&gang(reported));
    }
    out
}

/// A node.
pub(super) fn node(node: &NodeExplanation) -> String {
    let mut out = format!("node {}", node.name);
    let states = [(!node.ready, "not Ready"), (node.unschedulable, "cordoned"), (node.deleting, "being deleted")];
    let states: Vec<&str> = states.into_iter().filter(|(is, _)| *is).map(|(_, state)| state).collect();
    let _ = writeln!(out, " is {}", if states.is_empty() { "Ready".to_owned() } else { states.join(", ") });
    for taint in &node.taints {
        // Taint or cordon, it is ours and goes by itself: nobody is to lift it.
        let waits = taint.strip_prefix(keys::GANG_PENDING).and_then(|rest| rest.strip_prefix('='));
        let _ = match waits.and_then(|rest| rest.split_once(':')) {
            Some((uid, _)) => match &node.held_for {
                Some(gang) => writeln!(out, "  held for gang {gang}, until it runs here"),
                None => writeln!(out, "  held for a gang that no longer exists (UID {uid})"),
            },
            None => writeln!(out, "  taint {taint}"),
        };
    }
    for (level, label) in &node.levels {
        let _ = writeln!(out, "  {level}: {}", label.as_deref().unwrap_or("no label"));
    }
    out.push('\n');
    let mut rows = vec![["RESOURCE", "HAS", "HELD", "FREE"].map(str::to_owned)];
    rows.extend(node.allocatable.iter().map(|(name, has)| {
        let of = |list: &BTreeMap<String, i64>| amount(name, list.get(name).copied().unwrap_or(0));
        [name.clone(), amount(name, *has), of(&node.held), of(&node.free)]
    }));
    columns(&mut out, &rows);
    if !node.pods.is_empty() {
        let _ = writeln!(out, "\nheld by:");
        for OnNode { namespace, name, gang, terminating, nominated, requests } in node.pods.iter().take(SHOWN) {
            let gang = gang.as_ref().map_or_else(String::new, |gang| format!(" of gang {gang}"));
            let state = match (terminating, nominated) {
                (true, _) => ", terminating: holds its capacity until it is gone",
                (false, true) => ", nominated by kube-scheduler",
                (false, false) => "",
            };
            let requests: Vec<String> =
                requests.iter().map(|(name, held)| format!("{name} {}", amount(name, *held))).collect();
            let _ = writeln!(out, "  {namespace}/{name}{gang}{state}: {}", requests.join(", "));
        }
        let more = node.pods.len().saturating_sub(SHOWN);
        if more > 0 {
            let _ = writeln!(out, "  and {more} more");
        }
    }
    if !node.assigned.is_empty() {
        let _ = writeln!(out, "\nassigned to:");
        for Assignment { namespace, gang, pod, persisted } in &node.assigned {
            let pod = pod.as_deref().unwrap_or("a pod to come");
            let gang = gang.as_ref().map_or_else(String::new, |gang| format!(" of gang {gang}"));
            let by = if *persisted { "by a persisted plan" } else { "by this plan" };
            let _ = writeln!(out, "  {namespace}/{pod}{gang}, {by}");
        }
    }
    if !node.gangs.is_empty() {
        let _ = writeln!(out, "\ngangs:");
        for OfGang { namespace, name, outcome: of, slots: _, used, why } in &node.gangs {
            let why = match why {
                None => format!("uses it for {used}"),
                Some(why) => format!("skips it: {why}"),
            };
            let _ = writeln!(out, "  {namespace}/{name} ({}) {why}", outcome(*of));
        }
    }
    out
}
