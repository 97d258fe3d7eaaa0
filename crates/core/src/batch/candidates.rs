//! The candidates of a round: shown in the status, begun one after the other, and the pause once none is left.

use std::collections::BTreeSet;

use jiff::Timestamp;

use super::backoff::pause;
use super::case::{Case, Turn, later};
use super::claim::reserves;
use super::counted::counted;
use super::decision::Requeue;
use crate::model::batch::{
    Attempt, AttemptOutcome, AttemptOverride, BatchPhase, BatchStatus, CandidateRow, ExcludedRow,
};
use crate::model::launch::{LaunchWay, Target, placement_group_name};
use crate::model::moment::time_of_day;
use crate::model::money::usd;
use crate::offering::rank::{Excluded, Ranked, Ranking};
use crate::reason::{Help, Unsold};

/// Excluded entries kept in the status.
const EXCLUDED: usize = 32;

/// Writes the ranking into the status.
pub(super) fn show(status: &mut BatchStatus, ranking: &Ranking) {
    let row = |ranked: &Ranked| {
        let candidate = &ranked.candidate;
        let known = candidate.price_micro_usd_per_hour.is_some();
        CandidateRow {
            node_pool: ranked.pool.clone(),
            instance_type: candidate.instance_type.clone(),
            zone: candidate.zone.clone(),
            subnet: candidate.subnet_id.clone(),
            capacity_type: candidate.capacity_type,
            count: ranked.count,
            group: candidate.placement_group,
            reservation: candidate.reservation.as_ref().map(|target| target.id.clone()),
            price: known.then_some(ranked.total_micro_usd_per_hour),
            why: ranked.why(),
        }
    };
    status.candidates = ranking.candidates.iter().map(row).collect();
    status.excluded = ranking.excluded.iter().take(EXCLUDED).map(excluded).collect();
}

fn excluded(left: &Excluded) -> ExcludedRow {
    let group = left.placement_group.map(|group| if group { "in a group" } else { "without a group" });
    let parts = [
        Some(left.pool.as_str()),
        left.instance_type.as_deref(),
        left.capacity_type.map(crate::model::launch::CapacityType::as_str),
        left.zone.as_deref(),
        group,
    ];
    let what: Vec<&str> = parts.into_iter().flatten().collect();
    let unsold = Unsold {
        pool: left.pool.as_str().into(),
        instance_type: left.instance_type.as_deref().map(Into::into),
        count: None,
        why: vec![left.reason.clone()],
    };
    let help = unsold.help();
    let change = (help != Help::Nothing).then(|| help.to_string());
    ExcludedRow { what: what.join(" "), why: left.reason.to_string(), change }
}

/// How much an attempt is to launch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Size {
    /// All nodes of the batch.
    Whole,
    /// One node, to see whether it joins.
    Probe,
}

/// Writes down the intent of an attempt on a candidate.
pub(super) fn begin(case: &Case<'_>, status: BatchStatus, ranked: &Ranked, size: Size) -> Turn {
    begin_any(case, status, ranked, &[], size)
}

/// Writes down the intent of an attempt on a candidate, or on one of `others`, which EC2 may choose in its place. Until it has, the
/// attempt counts with the most that any of them takes.
pub(super) fn begin_any(
    case: &Case<'_>,
    mut status: BatchStatus,
    ranked: &Ranked,
    others: &[&Ranked],
    size: Size,
) -> Turn {
    let (now, supply) = (case.now(), case.world.supply);
    let candidate = &ranked.candidate;
    let any = || std::iter::once(ranked).chain(others.iter().copied());
    if case.world.settings.dry_run {
        status.message = Some(would_launch(ranked));
        return Turn::write(status).requeue(Requeue::At(later(now, 60)));
    }
    let number = status.attempt.saturating_add(1);
    status.phase = BatchPhase::Launching;
    status.attempt = number;
    status.count = ranked.count;
    status.node_pool = Some(ranked.pool.clone());
    status.instance_type = Some(candidate.instance_type.clone());
    status.zone = Some(candidate.zone.clone());
    status.capacity_type = Some(candidate.capacity_type);
    status.price = any().map(|one| one.total_micro_usd_per_hour).max();
    let types: BTreeSet<&str> = any().map(|one| one.candidate.instance_type.as_str()).collect();
    let each = types.into_iter().map(|instance_type| (ranked.pool.as_str(), instance_type, ranked.count));
    status.reserved = reserves(each, |pool, instance_type| supply.takes(pool, instance_type));
    status.next_attempt_after = None;
    status.located.clear();
    status.generation = status.generation.max(1);
    let own_group = candidate.placement_group && candidate.reservation_group.is_none();
    if own_group && status.placement_group.is_none() {
        status.placement_group = Some(group_name(case, status.generation));
    }
    let into = match &candidate.reservation {
        Some(Target { id, block: true }) => format!(", Capacity Block {id}"),
        Some(Target { id, block: false }) => format!(", reservation {id}"),
        None => String::new(),
    };
    status.message = Some(format!(
        "attempt {number}: {} × {} {} in {}{into}{}{}",
        ranked.count,
        candidate.instance_type,
        candidate.capacity_type,
        candidate.zone,
        if candidate.placement_group { ", one placement group" } else { "" },
        match others.len() {
            0 => String::new(),
            more => format!(", or what EC2 has of {}", counted(more, "other offering")),
        },
    ));
    let by_run = candidate.reservation.is_some() || supply.without_fleets(now);
    status.attempts.push(Attempt {
        number,
        node_pool: ranked.pool.clone(),
        instance_type: candidate.instance_type.clone(),
        zone: candidate.zone.clone(),
        subnet: candidate.subnet_id.clone(),
        capacity_type: candidate.capacity_type,
        overrides: if others.is_empty() { Vec::new() } else { any().map(override_of).collect() },
        count: ranked.count,
        group: candidate.placement_group,
        reservation_group: candidate.reservation_group.clone(),
        reservation: candidate.reservation.clone(),
        way: if by_run { LaunchWay::Run } else { LaunchWay::Fleet },
        // Without an image the template says why.
        image: supply.image(&ranked.pool, &candidate.instance_type),
        taints: supply.taints(Some(&ranked.pool)),
        template: None,
        parameters: None,
        token: None,
        replayed: false,
        sweeps: 0,
        request_id: None,
        fleet: None,
        replaces: Vec::new(),
        probe: size == Size::Probe,
        outcome: AttemptOutcome::Launching,
        code: None,
        message: None,
        started: Some(now),
        ended: None,
    });
    Turn::write(status)
}

fn override_of(ranked: &Ranked) -> AttemptOverride {
    let candidate = &ranked.candidate;
    AttemptOverride {
        instance_type: candidate.instance_type.clone(),
        zone: candidate.zone.clone(),
        subnet: candidate.subnet_id.clone(),
        price: candidate.price_micro_usd_per_hour,
    }
}

/// What a dry run tells instead of a launch.
fn would_launch(ranked: &Ranked) -> String {
    let candidate = &ranked.candidate;
    format!(
        "dry run: would launch {} × {} {} in {}{} for {}/h; nothing is sent",
        ranked.count,
        candidate.instance_type,
        candidate.capacity_type,
        candidate.zone,
        if candidate.placement_group { ", one placement group," } else { "" },
        usd(ranked.total_micro_usd_per_hour),
    )
}

/// The name of the placement group of a generation.
pub(super) fn group_name(case: &Case<'_>, generation: u32) -> String {
    placement_group_name(&case.world.settings.cluster_name, &case.batch.uid, generation)
}

/// Waits longer after each round without success: 30 s doubling to 10 min, ±20 percent, so that insufficient capacity costs few
/// calls and several batches do not ask at once.
pub(super) fn back_off(case: &Case<'_>, status: &mut BatchStatus, why: &str) {
    status.failed_rounds = status.failed_rounds.saturating_add(1);
    let pause =
        pause(case.world.settings.back_off, status.failed_rounds, percent(&case.batch.uid, status.failed_rounds));
    status.phase = BatchPhase::Pending;
    let next = case.now().saturating_add(pause).unwrap_or(Timestamp::MAX);
    status.next_attempt_after = Some(next);
    let last = status.attempts.iter().rev().take(3);
    let stated: Vec<String> = last
        .filter_map(|attempt| {
            Some(format!("{} in {}: {}", attempt.instance_type, attempt.zone, attempt.code.as_deref()?))
        })
        .collect();
    let stated = if stated.is_empty() { String::new() } else { format!(" ({})", stated.join("; ")) };
    status.round_from = status.attempt;
    status.message = Some(format!("{why}{stated}; next try at {}", time_of_day(next)));
}

/// 80 to 120, from the batch and the round: the same decision twice is the same, and two batches differ.
fn percent(uid: &str, round: u32) -> u8 {
    // FNV-1a, 64 bits.
    let hash = uid
        .bytes()
        .chain(round.to_le_bytes())
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3));
    80 + u8::try_from((hash >> 32) % 41).unwrap_or(20)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_jitter_of_a_back_off_follows_from_the_batch_and_the_round() {
        let all: Vec<u8> = (0..500).map(|round| percent("0c6a4f7e-uid", round)).collect();
        assert!(all.iter().all(|percent| (80..=120).contains(percent)));
        assert!(all.iter().any(|percent| *percent < 90) && all.iter().any(|percent| *percent > 110));
        assert_eq!(percent("a", 1), percent("a", 1));
        assert_ne!(percent("batch-a", 1), percent("batch-b", 1));
    }
}
