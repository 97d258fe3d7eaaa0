//! Invariants about the order of calls: what was known when they were sent.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};

use super::{launches, names_instance};
use crate::clock::{later, seconds};
use crate::journal::{JournalEntry, LaunchFacts};
use crate::kinds::MarketType;
use crate::protocol::error::is_capacity;
use crate::quota;
use crate::state::World;
use crate::state::instances::{Instance, LifeState};

/// For how long a pool without capacity is left alone, at least.
const ICE_SECONDS: i64 = 180;

fn lacks_capacity(code: &str) -> bool {
    is_capacity(code) || code == "UnfulfillableCapacity"
}

fn is_throttle(code: &str) -> bool {
    matches!(code, "RequestLimitExceeded" | "Throttling" | "ThrottlingException" | "EC2ThrottledException")
}

fn is_quota(code: &str) -> bool {
    matches!(code, "VcpuLimitExceeded" | "InstanceLimitExceeded" | "MaxSpotInstanceCountExceeded")
}

fn facts(entry: &JournalEntry) -> Option<(&LaunchFacts, u32)> {
    entry.launch.as_ref().zip(entry.launch_size().map(|(total, _)| total))
}

fn made_some(entry: &JournalEntry) -> bool {
    entry.resources.iter().any(|r| names_instance(r))
}

/// No launch of n or more within the time after a failure at n; and a throttle is no such failure: the batch stays
/// with its candidate.
pub(super) fn memory_of_failures(journal: &[JournalEntry]) -> Vec<String> {
    // Type, zone, capacity type, group and reservation; the time and the size of the last failure, and its token.
    type Pool = (String, String, MarketType, Option<String>, Option<String>);
    let mut failed: BTreeMap<Pool, (Timestamp, u32, Option<String>)> = BTreeMap::new();
    // By batch: the launch that was throttled.
    let mut throttled: BTreeMap<String, &LaunchFacts> = BTreeMap::new();
    let mut broken = Vec::new();
    for entry in launches(journal) {
        let Some((launch, n)) = facts(entry) else { continue };
        let pools = || launch.types.iter().flat_map(|t| launch.zones.iter().map(move |z| (t.clone(), z.clone())));
        for (instance_type, zone) in pools() {
            let pool: Pool =
                (instance_type, zone, launch.capacity_type, launch.group.clone(), launch.reservation.clone());
            if let Some((at, size, token)) = failed.get(&pool)
                && n >= *size
                && entry.token != *token
                && entry.at < later(*at, SignedDuration::from_secs(ICE_SECONDS))
            {
                broken.push(format!("entry {} asks {} in {} for {n} again too soon", entry.number, pool.0, pool.1));
            }
        }
        if let Some(batch) = &launch.batch {
            if let Some(before) = throttled.remove(batch)
                && (before.types != launch.types
                    || before.zones != launch.zones
                    || before.capacity_type != launch.capacity_type)
            {
                broken.push(format!("batch {batch} left its candidate after a throttle, in entry {}", entry.number));
            }
            let codes = || launch.failures.iter().map(|f| f.code.as_str());
            if !made_some(entry) && codes().any(is_throttle) && !codes().any(lacks_capacity) {
                throttled.insert(batch.clone(), launch);
            }
        }
        if made_some(entry) || entry.lost {
            continue;
        }
        for failure in launch.failures.iter().filter(|f| lacks_capacity(&f.code)) {
            let (instance_type, zone) = (failure.instance_type.clone(), failure.zone.clone());
            let pool = (instance_type, zone, launch.capacity_type, launch.group.clone(), launch.reservation.clone());
            failed.insert(pool, (entry.at, n, entry.token.clone()));
        }
    }
    broken
}

/// After a quota error no other zone is tried for that quota, until an instance that counts towards it is gone.
pub(super) fn quotas(journal: &[JournalEntry], ours: &[&Instance]) -> Vec<String> {
    // By quota: when it was hit, and in which zones.
    let mut hit: BTreeMap<String, (Timestamp, &LaunchFacts)> = BTreeMap::new();
    let mut broken = Vec::new();
    for entry in launches(journal) {
        let Some((launch, _)) = facts(entry) else { continue };
        for name in launch.types.iter().map(|t| quota::of(t, launch.capacity_type)) {
            let Some((at, before)) = hit.get(&name) else { continue };
            let freed = ours.iter().any(|i| {
                quota::of(&i.instance_type, i.capacity_type) == name
                    && i.terminated_at.is_some_and(|gone| gone > *at && gone <= entry.at)
            });
            if freed {
                hit.remove(&name);
            } else if launch.zones.is_disjoint(&before.zones) {
                broken.push(format!("entry {} tries another zone for the quota {name}", entry.number));
            }
        }
        for failure in launch.failures.iter().filter(|f| is_quota(&f.code)) {
            hit.entry(quota::of(&failure.instance_type, launch.capacity_type)).or_insert((entry.at, launch));
        }
    }
    broken
}

/// A fleet with instances that a batch lives on is not deleted, and what names a reservation runs in one.
pub(super) fn fleets_and_reservations(world: &World, ours: &[&Instance]) -> Vec<String> {
    let mut broken = Vec::new();
    for entry in world.journal.entries().iter().filter(|e| e.operation == "DeleteFleets" && e.code.is_none()) {
        let Some(batches) = world.batches.at(entry.at) else { continue };
        for id in entry.resources.iter().filter(|id| names_instance(id)) {
            let of = batches.iter().find(|(_, b)| !b.ends() && b.holds() && b.lives_on(id));
            if let Some((uid, _)) = of {
                broken.push(format!("entry {} deleted the fleet of {id}, which batch {uid} lives on", entry.number));
            }
        }
    }
    for i in ours.iter().filter(|i| i.target.is_some() && i.capacity_reservation.is_none()) {
        broken.push(format!("{} was to run in {} and does not", i.id, i.target.as_deref().unwrap_or("")));
    }
    broken
}

/// DescribeInstances is narrowed; the topology is asked for whole batches that run, at most once a second.
pub(super) fn reads(journal: &[JournalEntry], ours: &[&Instance]) -> Vec<String> {
    let mut broken = Vec::new();
    let (mut last, mut controller): (Option<Timestamp>, Option<Timestamp>) = (None, None);
    // By batch: how many single instances were asked for.
    let mut singles: BTreeMap<&str, u32> = BTreeMap::new();
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
            "DescribeInstanceTopology" if of_the_cloud_controller(entry) => controller = Some(entry.at),
            "DescribeInstanceTopology" => {
                let within = |at: Timestamp| entry.at < later(at, SignedDuration::from_secs(1));
                let soon = last.is_some_and(within);
                // The cloud controller may have emptied the bucket.
                let throttled = entry.code.as_deref() == Some("RequestLimitExceeded")
                    && entry.faults.is_empty()
                    && !controller.is_some_and(within);
                if soon || throttled {
                    broken.push(format!("entry {} asks for the topology within a second", entry.number));
                }
                last = Some(entry.at);
                let values = |prefix: &str| -> Vec<&str> {
                    let all = entry.parameters.iter().filter(|(k, _)| k.starts_with(prefix));
                    all.map(|(_, v)| v.as_str()).collect()
                };
                let (ids, groups) = (values("InstanceId."), values("GroupName."));
                let asked = ours.iter().filter(|i| {
                    ids.contains(&i.id.as_str()) || i.group.as_deref().is_some_and(|g| groups.contains(&g))
                });
                if let Some(i) =
                    asked.clone().find(|i| i.launched_at <= entry.at && i.state(entry.at) == LifeState::Pending)
                {
                    broken.push(format!("entry {} asks for the topology before {} runs", entry.number, i.id));
                }
                if ids.len() == 1
                    && let Some(batch) = asked.clone().find_map(|i| i.batch())
                {
                    *singles.entry(batch).or_default() += 1;
                }
            }
            _ => {}
        }
    }
    for (batch, count) in singles.into_iter().filter(|(_, count)| *count > 1) {
        broken.push(format!("the topology of batch {batch} is asked for one instance at a time, {count} times"));
    }
    broken
}

/// The cloud controller asks once per new node, and so does whoever plays it.
fn of_the_cloud_controller(entry: &JournalEntry) -> bool {
    entry.user_agent.as_deref().is_some_and(|agent| agent.contains("cloud-controller"))
}

/// In a reservation with a free host a replacement is launched before what it replaces is terminated.
pub(super) fn replacements(world: &World, ours: &[&Instance]) -> Vec<String> {
    let mut broken = Vec::new();
    let journal = world.journal.entries();
    let cleanup = seconds(world.scenario.delays.block_cleanup_seconds);
    for entry in journal.iter().filter(|e| e.operation == "TerminateInstances" && e.code.is_none()) {
        for i in ours.iter().filter(|i| entry.resources.contains(&i.id)) {
            let Some(reservation) = i.capacity_reservation.as_ref().and_then(|id| world.reservations.get(id)) else {
                continue;
            };
            let taken = world.instances.values().filter(|o| {
                let clean = if o.capacity_type == MarketType::CapacityBlock { cleanup } else { SignedDuration::ZERO };
                o.capacity_reservation.as_deref() == Some(&reservation.id)
                    && o.launched_at <= entry.at
                    && o.terminated_at.is_none_or(|gone| later(gone, clean) > entry.at)
            });
            let free = reservation.slots.len().saturating_sub(taken.count());
            let goes_on =
                ours.iter().any(|o| o.batch() == i.batch() && o.launched_at <= entry.at && o.state(entry.at).is_live());
            let replaced_later = launches(journal).find(|e| {
                e.number > entry.number
                    && made_some(e)
                    && e.launch.as_ref().is_some_and(|l| {
                        l.batch.as_deref() == i.batch() && l.reservation.as_deref() == Some(&reservation.id)
                    })
            });
            if free > 0
                && goes_on
                && let Some(later) = replaced_later
            {
                broken.push(format!(
                    "{} was terminated in entry {} before entry {} replaced it, although a host was free",
                    i.id, entry.number, later.number
                ));
            }
        }
    }
    broken
}
