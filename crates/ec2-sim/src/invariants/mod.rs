//! The invariants over the journal, the state, and the NodeBatches where somebody shows them.
//!
//! Their numbers stay what they were, whatever is added. Without NodeBatches (`POST /_sim/batches`) what a batch holds is
//! read from the tags, and what only they can tell is taken to hold.

pub(crate) mod batches;
mod calls;

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use serde::Serialize;

use crate::clock::{later, seconds};
use crate::invariants::batches::Batch;
use crate::journal::JournalEntry;
use crate::state::World;
use crate::state::instances::{Instance, LifeState};
use crate::{ATTEMPT_TAG, BATCH_TAG, CLUSTER_TAG, GANG_TAG};

/// The verdict on one invariant.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Invariant {
    /// Its number, which never changes.
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
            "live instances of a batch never exceed the N of its launch, plus k while k are replaced",
            per_batch(world, &ours, now),
        ),
        always(3, "every instance, volume, interface, fleet, group and template carries our tags", tags(world, &ours)),
        at_rest(
            4,
            "each batch has 0 or N instances, and each instance is of one batch",
            whole_batches(world, &ours, now),
        ),
        at_rest(5, "no placement group or launch template is left to nobody", leaked(world, &ours, now)),
        always(6, "a batch is of one type, in one zone and in one placement group", uniform(&ours, now)),
        always(7, "no token is sent with two sets of parameters", tokens(journal)),
        always(8, "no other attempt while an earlier outcome is unknown", unknown_outcomes(journal)),
        always(
            9,
            "launches arrive with attempt 1, an explicit token and a numeric template version",
            launch_calls(journal),
        ),
        always(
            10,
            "a pool without capacity for n is left alone for a while, and no other",
            calls::memory_of_failures(journal),
        ),
        always(11, "after a quota error no other zone is tried", calls::quotas(journal, &ours)),
        always(
            12,
            "no fleet of a live batch is deleted, and no reserved launch ends in open capacity",
            calls::fleets_and_reservations(world, &ours),
        ),
        always(
            13,
            "DescribeInstances is narrowed; the topology is asked for whole running batches, once a second at most",
            calls::reads(journal, &ours),
        ),
        at_rest(14, "the last DeletePlacementGroup of a group succeeded or found it gone", deleted_groups(journal)),
        always(15, "what belongs to others is left alone", others(world, journal)),
        always(16, "in a reservation with capacity the replacement comes first", calls::replacements(world, &ours)),
    ]
}

fn verdict(number: u8, name: &'static str, at_rest: bool, broken: &[String]) -> Invariant {
    Invariant { number, name, at_rest, holds: broken.is_empty(), detail: broken.join("; ") }
}

fn names_instance(resource: &str) -> bool {
    resource.starts_with("i-")
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

fn per_batch(world: &World, ours: &[&Instance], now: Timestamp) -> Vec<String> {
    let journal = world.journal.entries();
    let round = seconds(world.scenario.collection_round_seconds);
    // What a call held back has launched is an excess for one round of collection at most.
    let collected = |i: &Instance| {
        let late = journal.iter().any(|e| e.held.is_some() && e.resources.contains(&i.id));
        let end = later(i.launched_at, round);
        late && (now < end || i.shutdown_at.is_some_and(|at| at <= end))
    };
    let mut broken = Vec::new();
    for (batch, (size, replacement)) in sizes(journal) {
        // Ends sort before starts at the same instant, so that a handover is no overlap.
        let mut changes: Vec<(Timestamp, i64)> = Vec::new();
        for i in ours.iter().filter(|i| i.batch() == Some(batch) && !collected(i)) {
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
    // A batch that was provisioned for a gang says so.
    let nameless = |tags: &BTreeMap<String, String>| {
        let batch = tags.get(BATCH_TAG).and_then(|uid| world.batches.last()?.get(uid));
        batch.is_some_and(Batch::is_of_a_gang) && !tags.contains_key(GANG_TAG)
    };
    let lacks = |tags: &BTreeMap<String, String>, keys: &[&str]| lacks(tags, keys) || nameless(tags);
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
    for (name, _) in world.groups.iter().filter(|(_, g)| !g.foreign && lacks(&g.tags, &all[..2])) {
        broken.push(format!("placement group {name}"));
    }
    for template in world.templates.values() {
        if !template.tags.contains_key(CLUSTER_TAG) {
            broken.push(format!("launch template {}", template.id));
        }
    }
    broken
}

fn whole_batches(world: &World, ours: &[&Instance], now: Timestamp) -> Vec<String> {
    let live = |uid: &str| ours.iter().filter(|i| i.batch() == Some(uid) && i.state(now).is_live()).count();
    let mut broken = Vec::new();
    let Some(batches) = world.batches.last() else {
        return sizes(world.journal.entries())
            .into_iter()
            .map(|(batch, (size, _))| (batch, size, live(batch)))
            .filter(|(_, size, live)| *live != 0 && count(*live) != *size)
            .map(|(batch, size, live)| format!("batch {batch}: {live} of {size}"))
            .collect();
    };
    for (uid, batch) in batches.iter().filter(|(_, b)| b.is_atomic()) {
        let live = live(uid);
        if live != 0 && count(live) != batch.count() {
            broken.push(format!("batch {uid}: {live} of {}", batch.count()));
        }
    }
    for i in ours.iter().filter(|i| i.state(now).is_live() && i.batch().is_some()) {
        let of = batches.iter().filter(|(_, b)| b.has(&i.id)).count();
        if of != 1 {
            broken.push(format!("{} is of {of} batches", i.id));
        }
    }
    broken.extend(shrinks(world, ours));
    broken
}

/// A batch that holds its nodes says that it wants fewer before any of them is terminated.
fn shrinks(world: &World, ours: &[&Instance]) -> Vec<String> {
    let mut broken = Vec::new();
    for entry in world.journal.entries().iter().filter(|e| e.operation == "TerminateInstances" && e.code.is_none()) {
        let Some(batches) = world.batches.at(entry.at) else { continue };
        for (uid, batch) in batches.iter().filter(|(_, b)| b.holds()) {
            let of = || ours.iter().filter(|i| i.batch() == Some(uid) && i.launched_at <= entry.at);
            if !of().any(|i| entry.resources.contains(&i.id)) {
                continue;
            }
            let left = of().filter(|i| i.state(entry.at).is_live()).count();
            if left > 0 && count(left) < batch.count() {
                broken.push(format!("entry {} left batch {uid} {left} of {}", entry.number, batch.count()));
            }
        }
    }
    broken
}

fn leaked(world: &World, ours: &[&Instance], now: Timestamp) -> Vec<String> {
    let batches = world.batches.last();
    let referenced = |by: &dyn Fn(&Batch) -> bool| batches.is_some_and(|all| all.values().any(by));
    let mut broken: Vec<String> = world
        .groups
        .iter()
        .filter(|(_, group)| !group.foreign)
        .filter(|(name, _)| world.in_group(name, now).next().is_none() && !referenced(&|b| b.has_group(name)))
        .map(|(name, _)| format!("placement group {name}"))
        .collect();
    let used =
        |id: &String| ours.iter().any(|i| i.template.as_ref() == Some(id) && i.state(now) != LifeState::Terminated);
    // A template without a batch is that of a class.
    let leaked_templates = world
        .templates
        .values()
        .filter(|t| t.tags.contains_key(BATCH_TAG) || batches.is_none())
        .filter(|t| !used(&t.id) && !referenced(&|b| b.has_template(&t.id, &t.name)))
        .map(|t| format!("launch template {}", t.id));
    broken.extend(leaked_templates);
    for entry in world.journal.entries().iter().filter(|e| e.operation == "DeletePlacementGroup" && e.code.is_none()) {
        let (Some(name), Some(batches)) = (entry.parameters.get("GroupName"), world.batches.at(entry.at)) else {
            continue;
        };
        let holders = batches.values().filter(|b| b.has_group(name) && !b.ends()).count();
        let all = batches.values().filter(|b| b.has_group(name)).count();
        if all > 1 && holders > 0 {
            broken.push(format!("entry {} deleted {name}, which another batch has", entry.number));
        }
    }
    broken
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
    let declared = &world.scenario;
    let group_id = |id: &str| world.groups.values().any(|g| g.foreign && g.id == id);
    let theirs = |id: &str| {
        world.instances.get(id).is_some_and(|i| i.foreign)
            || group_id(id)
            || declared.placement_groups.iter().any(|g| g.name == id)
            || declared.reservations.iter().any(|r| r.id == id)
    };
    let touches =
        ["TerminateInstances", "DeleteFleets", "DeletePlacementGroup", "CreateTags", "CancelCapacityReservation"];
    let mut broken = Vec::new();
    for entry in journal.iter().filter(|e| touches.contains(&e.operation.as_str())) {
        for id in entry.resources.iter().filter(|id| theirs(id)) {
            broken.push(format!("{} of {id} in entry {}", entry.operation, entry.number));
        }
    }
    broken
}
