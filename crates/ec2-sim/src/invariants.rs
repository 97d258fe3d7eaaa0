//! The invariants that follow from the journal and the state alone.
//!
//! Their numbers are those of the simulator's design. What needs Muster's own objects (which
//! batch references which instance) is read from the tags instead, and says so in its name.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use serde::Serialize;

use crate::journal::JournalEntry;
use crate::state::World;
use crate::state::instances::{Instance, LifeState};
use crate::{ATTEMPT_TAG, BATCH_TAG, CLUSTER_TAG};

/// The verdict on one invariant.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Invariant {
    /// Its number in the design.
    pub number: u8,
    /// What it demands.
    pub name: &'static str,
    /// Whether it is meant only for the time when nothing is under way.
    pub at_rest: bool,
    /// Whether it holds now.
    pub holds: bool,
    /// What breaks it; empty when it holds.
    pub detail: String,
}

pub(crate) fn judge(world: &World, now: Timestamp) -> Vec<Invariant> {
    let ours: Vec<&Instance> = world.instances.values().filter(|i| !i.foreign).collect();
    let journal = world.journal.entries();
    let always = |number, name, broken: Vec<String>| verdict(number, name, false, &broken);
    let at_rest = |number, name, broken: Vec<String>| verdict(number, name, true, &broken);
    vec![
        always(1, "no more than N instances per token", per_token(journal, &ours)),
        always(
            2,
            "live instances of a batch never exceed the N of its launch, plus k for a replacement of k",
            per_batch(journal, &ours),
        ),
        always(3, "every instance, volume, interface, fleet, group and template carries our tags", tags(world, &ours)),
        at_rest(4, "each batch has 0 or N live instances (read from the tags)", whole_batches(journal, &ours, now)),
        at_rest(5, "no placement group or launch template is left without instances", leaked(world, &ours, now)),
        always(6, "a batch is of one type, in one zone and in one placement group", uniform(&ours, now)),
        always(7, "no token is sent with two sets of parameters", tokens(journal)),
        always(8, "no other attempt while an earlier outcome is unknown", unknown_outcomes(journal)),
        always(
            9,
            "launches arrive with attempt 1, an explicit token and a numeric template version",
            launch_calls(journal),
        ),
        always(
            13,
            "DescribeInstances is filtered, paginated or by id; DescribeInstanceTopology is not throttled",
            reads(journal),
        ),
        at_rest(14, "the last DeletePlacementGroup of a group succeeded or found it gone", deleted_groups(journal)),
        always(15, "what belongs to others is left alone", others(world, journal)),
    ]
}

fn verdict(number: u8, name: &'static str, at_rest: bool, broken: &[String]) -> Invariant {
    Invariant { number, name, at_rest, holds: broken.is_empty(), detail: broken.join("; ") }
}

fn launches(journal: &[JournalEntry]) -> impl Iterator<Item = &JournalEntry> {
    journal.iter().filter(|e| e.launches())
}

/// The largest launch of each batch, and the largest of its smaller ones.
fn sizes(journal: &[JournalEntry]) -> BTreeMap<&str, (u32, u32)> {
    let mut asked: BTreeMap<&str, BTreeSet<u32>> = BTreeMap::new();
    for entry in launches(journal) {
        if let (Some(batch), Some((total, _))) = (entry.instance_tag(BATCH_TAG), entry.launch_size()) {
            asked.entry(batch).or_default().insert(total);
        }
    }
    asked
        .into_iter()
        .map(|(batch, sizes)| {
            let mut sizes = sizes.into_iter().rev();
            (batch, (sizes.next().unwrap_or(0), sizes.next().unwrap_or(0)))
        })
        .collect()
}

fn count(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

fn per_token(journal: &[JournalEntry], ours: &[&Instance]) -> Vec<String> {
    let mut made: BTreeMap<(&str, &str), u32> = BTreeMap::new();
    for i in ours {
        if let Some(token) = &i.token {
            *made.entry((&i.operation, token)).or_default() += 1;
        }
    }
    let mut broken = BTreeSet::new();
    for entry in launches(journal) {
        if let (Some(token), Some((total, _))) = (&entry.token, entry.launch_size()) {
            let made = made.get(&(entry.operation.as_str(), token.as_str())).copied();
            if made.is_some_and(|made| made > total) {
                broken.insert(format!("token {token}: {} of {total}", made.unwrap_or(0)));
            }
        }
    }
    broken.into_iter().collect()
}

fn per_batch(journal: &[JournalEntry], ours: &[&Instance]) -> Vec<String> {
    let mut broken = Vec::new();
    for (batch, (size, replacement)) in sizes(journal) {
        // Ends sort before starts at the same instant, so that a handover is no overlap.
        let mut changes: Vec<(Timestamp, i64)> = Vec::new();
        for i in ours.iter().filter(|i| i.batch() == Some(batch)) {
            changes.push((i.launched_at, 1));
            changes.extend(i.shutdown_at.map(|at| (at, -1)));
        }
        changes.sort_unstable();
        let (mut live, mut most) = (0, 0);
        for (_, change) in changes {
            live += change;
            most = most.max(live);
        }
        let allowed = i64::from(size) + i64::from(replacement);
        if most > allowed {
            broken.push(format!("batch {batch}: {most} live, {allowed} allowed"));
        }
    }
    broken
}

fn tags(world: &World, ours: &[&Instance]) -> Vec<String> {
    let owned = |tags: &BTreeMap<String, String>| {
        tags.iter().any(|(k, v)| k.starts_with("kubernetes.io/cluster/") && v == "owned")
    };
    let lacks = |tags: &BTreeMap<String, String>, keys: &[&str]| {
        !owned(tags) || keys.iter().any(|key| !tags.contains_key(*key))
    };
    let all = [CLUSTER_TAG, BATCH_TAG, ATTEMPT_TAG];
    let mut broken = Vec::new();
    for i in ours {
        for (what, tags) in [("instance", &i.tags), ("volume of", &i.volume_tags), ("interface of", &i.interface_tags)]
        {
            if lacks(tags, &all) {
                broken.push(format!("{what} {}", i.id));
            }
        }
    }
    for fleet in world.fleets.values().filter(|f| lacks(&f.tags, &all)) {
        broken.push(format!("fleet {}", fleet.id));
    }
    for (name, _) in world.groups.iter().filter(|(_, g)| lacks(&g.tags, &all[..2])) {
        broken.push(format!("placement group {name}"));
    }
    for template in world.templates.values() {
        if !template.tags.contains_key(CLUSTER_TAG) {
            broken.push(format!("launch template {}", template.id));
        }
    }
    broken
}

fn whole_batches(journal: &[JournalEntry], ours: &[&Instance], now: Timestamp) -> Vec<String> {
    sizes(journal)
        .into_iter()
        .filter_map(|(batch, (size, _))| {
            let live = ours.iter().filter(|i| i.batch() == Some(batch) && i.state(now).is_live()).count();
            (live != 0 && count(live) != size).then(|| format!("batch {batch}: {live} of {size}"))
        })
        .collect()
}

fn leaked(world: &World, ours: &[&Instance], now: Timestamp) -> Vec<String> {
    let groups = world
        .groups
        .keys()
        .filter(|name| world.in_group(name, now).next().is_none())
        .map(|name| format!("placement group {name}"));
    let templates = world
        .templates
        .keys()
        .filter(|id| !ours.iter().any(|i| i.template.as_ref() == Some(id) && i.state(now) != LifeState::Terminated))
        .map(|id| format!("launch template {id}"));
    groups.chain(templates).collect()
}

fn uniform(ours: &[&Instance], now: Timestamp) -> Vec<String> {
    // Type, zone and group.
    type Kind<'a> = (&'a str, &'a str, Option<&'a str>);
    let mut kinds: BTreeMap<&str, BTreeSet<Kind<'_>>> = BTreeMap::new();
    for i in ours.iter().filter(|i| i.state(now).is_live()) {
        if let Some(batch) = i.batch() {
            let kind = (i.instance_type.as_str(), i.zone.as_str(), i.group.as_deref());
            kinds.entry(batch).or_default().insert(kind);
        }
    }
    kinds
        .into_iter()
        .filter(|(_, kinds)| kinds.len() > 1)
        .map(|(batch, kinds)| format!("batch {batch}: {kinds:?}"))
        .collect()
}

fn tokens(journal: &[JournalEntry]) -> Vec<String> {
    let mut broken: BTreeSet<String> = journal
        .iter()
        .filter(|e| e.code.as_deref() == Some("IdempotentParameterMismatch") && !e.faults.iter().any(|f| f == "error"))
        .map(|e| format!("entry {} was answered IdempotentParameterMismatch", e.number))
        .collect();
    let mut first: BTreeMap<(&str, &str), BTreeMap<&str, &str>> = BTreeMap::new();
    for entry in journal {
        let Some(token) = &entry.token else { continue };
        let parameters: BTreeMap<&str, &str> = entry
            .parameters
            .iter()
            .filter(|(k, _)| !matches!(k.as_str(), "ClientToken" | "DryRun"))
            .map(|(k, v)| (k.as_str(), v.as_str()))
            .collect();
        let known = first.entry((&entry.operation, token)).or_insert_with(|| parameters.clone());
        if *known != parameters {
            broken.insert(format!("token {token} in entry {}", entry.number));
        }
    }
    broken.into_iter().collect()
}

/// A launch without ids, or one whose answer got lost, has to be looked into before the batch is
/// launched by another token: by a read of the batch's instances by tag, and, where a fleet is
/// known, by DescribeFleets.
fn unknown_outcomes(journal: &[JournalEntry]) -> Vec<String> {
    struct Open<'a> {
        token: Option<&'a str>,
        fleet: Option<&'a str>,
        swept: bool,
        described: bool,
    }
    let mut open: BTreeMap<&str, Open<'_>> = BTreeMap::new();
    let mut broken = Vec::new();
    for entry in journal {
        match entry.operation.as_str() {
            "DescribeInstances" => {
                for (name, value) in &entry.parameters {
                    let batch = open.get_mut(value.as_str()).filter(|_| name.contains(".Value."));
                    if let Some(open) = batch {
                        open.swept = true;
                    }
                }
            }
            "DescribeFleets" => {
                for open in open.values_mut() {
                    let named = |f: &&str| entry.parameters.values().any(|v| v == f);
                    open.described |= open.fleet.as_ref().is_some_and(named);
                }
            }
            _ if entry.launches() => {
                let Some(batch) = entry.instance_tag(BATCH_TAG) else {
                    continue;
                };
                let token = entry.token.as_deref();
                if let Some(earlier) = open.get(batch)
                    && earlier.token != token
                {
                    let known = earlier.fleet.is_none() || earlier.described;
                    if !earlier.swept || !known {
                        broken.push(format!("batch {batch} in entry {}", entry.number));
                    }
                }
                let ids = entry.resources.iter().any(|r| r.starts_with("i-"));
                let unknown = entry.lost || (entry.status == 200 && !ids);
                if unknown {
                    let fleet = entry.resources.iter().find(|r| r.starts_with("fleet-"));
                    open.insert(
                        batch,
                        Open {
                            token,
                            fleet: fleet.map(String::as_str).filter(|_| !entry.lost),
                            swept: false,
                            described: false,
                        },
                    );
                } else {
                    open.remove(batch);
                }
            }
            _ => {}
        }
    }
    broken
}

fn launch_calls(journal: &[JournalEntry]) -> Vec<String> {
    let mut broken = Vec::new();
    for entry in launches(journal) {
        if entry.attempt.is_some_and(|attempt| attempt != 1) {
            broken.push(format!("entry {} is a retry of the SDK", entry.number));
        }
        if entry.token.is_none() {
            broken.push(format!("entry {} has no token", entry.number));
        }
        let versions = entry.parameters.iter().filter(|(name, _)| {
            name.ends_with("LaunchTemplateSpecification.Version") || *name == "LaunchTemplate.Version"
        });
        for (_, version) in versions {
            if version.parse::<u64>().is_err() {
                broken.push(format!("entry {} asks for version {version}", entry.number));
            }
        }
    }
    broken
}

fn reads(journal: &[JournalEntry]) -> Vec<String> {
    let mut broken = Vec::new();
    for entry in journal {
        match entry.operation.as_str() {
            "DescribeInstances" => {
                let narrow = entry
                    .parameters
                    .keys()
                    .any(|k| k.starts_with("Filter.") || k.starts_with("InstanceId.") || k == "MaxResults");
                if !narrow {
                    broken.push(format!("entry {} reads all instances", entry.number));
                }
            }
            "DescribeInstanceTopology"
                if entry.code.as_deref() == Some("RequestLimitExceeded") && entry.faults.is_empty() =>
            {
                broken.push(format!("entry {} was throttled", entry.number));
            }
            _ => {}
        }
    }
    broken
}

fn deleted_groups(journal: &[JournalEntry]) -> Vec<String> {
    let mut last: BTreeMap<&str, &JournalEntry> = BTreeMap::new();
    for entry in journal.iter().filter(|e| e.operation == "DeletePlacementGroup") {
        if let Some(name) = entry.parameters.get("GroupName") {
            last.insert(name, entry);
        }
    }
    last.into_iter()
        .filter(|(_, e)| e.lost || !(e.status == 200 || e.code.as_deref() == Some("InvalidPlacementGroup.Unknown")))
        .map(|(name, e)| format!("{name}: {}", e.code.as_deref().unwrap_or("lost")))
        .collect()
}

fn others(world: &World, journal: &[JournalEntry]) -> Vec<String> {
    let mut broken = Vec::new();
    for entry in journal {
        for id in &entry.resources {
            if world.instances.get(id).is_some_and(|i| i.foreign) {
                broken.push(format!("{} of {id} in entry {}", entry.operation, entry.number));
            }
        }
    }
    broken
}
