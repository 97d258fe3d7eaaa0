//! The life of a batch for pods of no gang: its nodes are launched together, and from then on each serves, fails and goes by
//! itself. Nobody replaces a node in place and nothing is rolled back: what is missing is planned again with the pods that
//! still wait.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};

use super::candidates::{Size, begin_any};
use super::case::{Case, FAILURES, Step, Stop, Turn, done, keeps_failing, later, report};
use super::counted::counted;
use super::decision::{BatchEvent, Before, Change, Converge, Failure, Note, Requeue, Scratch};
use super::emptying::leave;
use super::join::{JoinCause, describe_failures};
use super::joining::{LOOK_SECONDS, has_ended, lacks, permanent};
use super::parting::is_kept;
use super::pending::without_fleets;
use super::{devices, launch, owner, progress, repair, rollback, teardown};
use crate::ec2::error::{Next, classify};
use crate::ec2::seen::{Instance, InstanceState};
use crate::model::batch::{
    AttemptOutcome, Batch, BatchMember, BatchOffer, BatchPhase, BatchStatus, Loss, LossCause, MemberState,
};
use crate::model::event::GangEvent;
use crate::model::launch::{CapacityType, MAX_OVERRIDES, Pool as Offering};
use crate::model::names::InstanceId;
use crate::offering::exclusion::Exclusion;
use crate::offering::price::is_near;
use crate::offering::rank::{Candidate, Excluded, Ranked, Ranking};

/// Of a batch whose pods went before anything was launched.
const UNWANTED: &str = "nobody waits for its nodes any more";

/// What follows for such a batch.
pub(super) fn advance(case: &Case<'_>) -> Step<Turn> {
    let status = &case.batch.status;
    let failed = match repair::terminate(case) {
        Ok(Some(turn)) => return Ok(turn),
        Ok(None) => None,
        Err(Stop::Failed { failure, done }) => Some((failure, done)),
        Err(stop) => return Err(stop),
    };
    let turn = match (status.phase, failed) {
        (
            BatchPhase::Launched
            | BatchPhase::Joining
            | BatchPhase::Replacing
            | BatchPhase::Ready
            | BatchPhase::InUse
            | BatchPhase::Idle
            | BatchPhase::Draining,
            failed,
        ) => serve(case, failed)?,
        (_, Some((failure, done))) => return Err(Stop::Failed { failure, done }),
        (BatchPhase::Pending, None) => pending(case)?,
        (BatchPhase::Launching, None) if status.last().is_some_and(|last| last.outcome.rolls_back()) => {
            rollback::go(case)?
        }
        // Nothing was sent yet.
        (BatchPhase::Launching, None)
            if status.last().is_some_and(|last| !last.is_open()) && owner::unwanted(case)? =>
        {
            end(case.status(), UNWANTED)
        }
        (BatchPhase::Launching, None) => launch::launching(case)?,
        (BatchPhase::Terminating, None) => teardown::terminating(case)?,
    };
    Ok(turn.converge(repair::taints_of_lost(case)))
}

/// Events between two statuses, in words for nodes that wait for no gang: entering a phase is reported last.
pub(super) fn reworded(mut events: Vec<BatchEvent>, before: &BatchStatus, next: &BatchStatus) -> Vec<BatchEvent> {
    if before.phase != BatchPhase::InUse && next.phase == BatchPhase::InUse {
        events.pop();
        let message = format!("all {} nodes are ready", next.instances.len());
        events.push(BatchEvent { pool: None, event: GangEvent { reason: "Ready", message, warning: false } });
    }
    events
}

/// Its one offer is launched, or it is given up: what it was for is planned again.
fn pending(case: &Case<'_>) -> Step<Turn> {
    let mut status = case.status();
    let (now, supply) = (case.now(), case.world.supply);
    if case.batch.deleting {
        return Ok(end(status, "deleted before anything was launched"));
    }
    if owner::unwanted(case)? {
        return Ok(end(status, UNWANTED));
    }
    if let Some(turn) = without_fleets(case, case.status()) {
        return Ok(turn);
    }
    if let Some(at) = status.next_attempt_after.filter(|at| *at > now) {
        return Ok(Turn::wait(Requeue::At(at)));
    }
    let over = match status.last().map(|attempt| attempt.outcome) {
        None | Some(AttemptOutcome::Launching | AttemptOutcome::Retry) => None,
        Some(AttemptOutcome::Lost) if goes_on(case.batch) => None,
        Some(
            AttemptOutcome::Won
            | AttemptOutcome::Lost
            | AttemptOutcome::Violated
            | AttemptOutcome::Misplaced
            | AttemptOutcome::ProbeJoined,
        ) => status.last().and_then(|attempt| attempt.code.clone().or_else(|| attempt.message.clone())),
    };
    if let Some(why) = over.or_else(|| supply.unready(case.batch)) {
        return Ok(end(status, &format!("{why}: its pods are planned again")));
    }
    if !status.launch_templates.is_empty() {
        done(case.change(Change::DeleteTemplates(case.tags(status.attempt)), None)?)?;
        status.launch_templates.clear();
        return Ok(Turn::write(status));
    }
    let ranking = supply.rank(case.batch, case.others, Before::Older, now);
    let untried = || ranking.candidates.iter().filter(|one| !was_refused(&status, &one.candidate));
    let first = untried().find(|one| !is_dear(one, &ranking));
    // On demand the cheapest is paid for as long as it stands, whatever was short elsewhere.
    let is_cheaper = |one: &&Ranked| first.is_some_and(|first| one.candidate.rung() == first.candidate.rung());
    let is_on_demand = first.is_some_and(|first| first.candidate.capacity_type == CapacityType::OnDemand);
    let cheapest = || untried().filter(is_cheaper).min_by_key(|one| one.total_micro_usd_per_hour);
    if let Some(ranked) = if is_on_demand { cheapest() } else { first } {
        let others = together(case, &status, &ranking, ranked);
        return Ok(begin_any(case, status, ranked, &others, Size::Whole));
    }
    if let Some(code) = status.last().and_then(|attempt| attempt.code.clone()) {
        return Ok(end(status, &format!("{code}: its pods are planned again")));
    }
    let reason = of_own_type(case.batch, &ranking.excluded).map(|left| &left.reason);
    let why = reason.map_or_else(|| "nothing is offered".to_owned(), ToString::to_string);
    let turn = end(status, &format!("{why}: its pods are planned again"));
    // What limits and subnets leave is known to the next round; of everything else it would ask again in vain.
    let is_known = matches!(
        reason,
        Some(Exclusion::Limit { .. } | Exclusion::CostCeiling { .. } | Exclusion::TooFewAddresses { .. })
    );
    let pools = if is_known { Vec::new() } else { asked(case.batch) };
    Ok(if pools.is_empty() { turn } else { turn.note(Note::NoCapacity { pools, count: 1 }) })
}

/// Whether it is spot that is dearer than the cheapest on demand.
fn is_dear(ranked: &Ranked, ranking: &Ranking) -> bool {
    let price = |one: &Ranked| one.candidate.price_micro_usd_per_hour;
    let on_demand = ranking
        .candidates
        .iter()
        .filter(|one| one.pool == ranked.pool && one.candidate.capacity_type == CapacityType::OnDemand);
    let cheapest = on_demand.filter_map(price).min();
    let is_spot = ranked.candidate.capacity_type == CapacityType::Spot;
    is_spot && price(ranked).zip(cheapest).is_some_and(|(own, cheapest)| own > cheapest)
}

/// What EC2 may choose in the place of a candidate, by the same call: other types and zones of its pool and capacity type that are
/// launched from the same template. A fleet takes one subnet of a zone.
fn together<'a>(case: &Case<'_>, status: &BatchStatus, ranking: &'a Ranking, first: &Ranked) -> Vec<&'a Ranked> {
    let (supply, own) = (case.world.supply, &first.candidate);
    if own.reservation.is_some() || supply.without_fleets(case.now()) {
        return Vec::new();
    }
    let is_other = |one: &&Ranked| {
        let Ranked { pool, count, candidate, .. } = one;
        let alike = *pool == first.pool && *count == first.count && candidate.rung() == own.rung();
        let is_first = candidate.instance_type == own.instance_type && candidate.zone == own.zone;
        alike
            && !is_first
            && candidate.reservation.is_none()
            && !was_refused(status, candidate)
            && !is_dear(one, ranking)
    };
    let shares = |one: &&Ranked| {
        let other = &one.candidate.instance_type;
        *other == own.instance_type || supply.share_template(&first.pool, &own.instance_type, other)
    };
    // What a round named for on demand is near its price; what it named for spot may be far from it on demand.
    let price = |one: &Candidate| one.price_micro_usd_per_hour.unwrap_or(u64::MAX);
    let any_price = own.capacity_type != CapacityType::OnDemand || case.batch.spec.capacity_type.is_some();
    let near = |one: &&Ranked| any_price || is_near(price(&one.candidate), price(own));
    let mut subnets = BTreeMap::from([(&own.zone, &own.subnet_id)]);
    let mut others: Vec<&Ranked> = ranking.candidates.iter().filter(is_other).filter(near).filter(shares).collect();
    if own.capacity_type == CapacityType::OnDemand {
        others.sort_by_key(|one| price(&one.candidate));
    }
    let mut chosen = Vec::new();
    for one in others {
        let Candidate { zone, subnet_id, .. } = &one.candidate;
        if *subnets.entry(zone).or_insert(subnet_id) == subnet_id && chosen.len() + 1 < MAX_OVERRIDES {
            chosen.push(one);
        }
    }
    chosen
}

/// Why what the batch was made for is not offered: its pool has other types too, and what holds of them says nothing of it.
fn of_own_type<'a>(batch: &Batch, excluded: &'a [Excluded]) -> Option<&'a Excluded> {
    let of = |offer: &BatchOffer| {
        excluded.iter().find(|one| {
            let all = one.instance_type.as_ref();
            one.pool == offer.node_pool && all.is_none_or(|name| *name == offer.instance_type)
        })
    };
    batch.spec.offers.iter().find_map(of).or_else(|| excluded.first())
}

/// Most calls for one batch, where on spot each type needs a call of its own.
const CALLS: usize = 6;

/// Whether a batch that nothing was launched for asks for something else at once: it was made for spot or on demand, and what EC2
/// answered is about the one that was asked for.
fn goes_on(batch: &Batch) -> bool {
    // On demand everything near the cheapest price was asked for: what is far from it is worth another plan.
    let was_on_demand = batch.status.last().is_some_and(|attempt| attempt.capacity_type == CapacityType::OnDemand);
    // Of an attempt that EC2 did not decide about nothing is known.
    let decided = batch.status.attempts.iter().filter(|attempt| attempt.outcome == AttemptOutcome::Lost).count();
    let may = batch.spec.capacity_type.is_none() && !was_on_demand && decided < CALLS;
    let code = batch.status.last().and_then(|attempt| attempt.code.as_deref());
    may && code.is_some_and(|code| match classify(Some(code), None).next() {
        Next::OtherCandidate | Next::OtherCapacityType | Next::OtherQuota => true,
        Next::SameCandidate | Next::WithoutFleet | Next::WithoutGroup | Next::Stop => false,
    })
}

/// Whether EC2 has refused this to the batch: no call is made twice.
fn was_refused(status: &BatchStatus, candidate: &Candidate) -> bool {
    status.attempts.iter().filter(|attempt| attempt.outcome == AttemptOutcome::Lost).any(|attempt| {
        attempt.asked_for(&candidate.instance_type, &candidate.zone) && attempt.capacity_type == candidate.capacity_type
    })
}

/// Nothing of the batch runs any more, or ever did.
fn end(mut status: BatchStatus, why: &str) -> Turn {
    status.phase = BatchPhase::Terminating;
    status.next_attempt_after = None;
    status.message = Some(why.to_owned());
    Turn::write(status)
}

/// Nodes join, serve and go. `failed`: why those that were lost could not be ended, and whether that used up the last change. One
/// that EC2 does not end holds up no other.
fn serve(case: &Case<'_>, failed: Option<(Failure, bool)>) -> Step<Turn> {
    let mut status = case.status();
    let now = case.now();
    if status.instances.is_empty() {
        if status.replaced.is_empty() {
            return Ok(end(status, "all of its nodes are gone"));
        }
        if let Some((failure, done)) = failed {
            return Err(Stop::Failed { failure, done });
        }
        return Ok(Turn::wait(Requeue::At(later(now, 5))));
    }
    let mut scratch = case.memory.scratch;
    let mut failures = Vec::new();
    if status.replaced.is_empty() {
        scratch.failed_ends = 0;
    }
    if let Some((failure, _)) = failed {
        scratch = Scratch { cleared: Some(now), failed_ends: scratch.failed_ends.saturating_add(1), ..scratch };
        failures.push((failure, scratch.failed_ends));
    }
    let joins = status.instances.iter().any(|one| one.state != MemberState::Ready);
    let due = joins && scratch.looked.is_none_or(|looked| now >= later(looked, LOOK_SECONDS));
    let mut seen = None;
    if due {
        scratch.looked = Some(now);
        scratch.failed_looks = match case.instances(&status.ids()) {
            Ok(all) => {
                seen = Some(all);
                0
            }
            // What Nodes say holds without EC2.
            Err(Stop::Failed { failure, .. }) => {
                let in_a_row = scratch.failed_looks.saturating_add(1);
                failures.push((failure, in_a_row));
                in_a_row
            }
            Err(stop) => return Err(stop),
        };
    } else if !joins {
        scratch.failed_looks = 0;
    }
    let mut joined = join(case, &mut status, seen.as_deref());
    let emptied = leave(case, &mut status, &mut scratch)?;
    if let Some(failure) = emptied.failed.clone() {
        failures.push((failure, scratch.failed_lists));
    }
    joined.edits.extend(emptied.edits);
    let mut until = joined.until.min(emptied.until);
    if !status.replaced.is_empty() {
        until = until.min(later(now, 5));
    }
    let mut turn = Turn::default();
    if !joined.failed.is_empty() {
        let why = describe_failures(&joined.failed) + &case.console(&joined.failed)?;
        // Nothing is known of its capacity, but the next round had better try something else.
        if let Some(pool) = offering(&status) {
            turn = turn.note(Note::NoCapacity { pools: vec![pool], count: 1 });
        }
        turn = turn.event("JoinTimeout", format!("{why}; terminated, and planned again for the pods that wait"), true);
    }
    let lost: BTreeSet<InstanceId> =
        status.instances.iter().filter(|one| one.is_lost(now)).map(|one| one.id.clone()).collect();
    if !lost.is_empty() && joined.failed.is_empty() {
        let (why, warning) = if case.batch.deleting {
            ("not used any more, since the NodeBatch is deleted", false)
        } else {
            ("lost", true)
        };
        let message = format!("{} {why}; pods that wait for them are planned again", names(&lost));
        turn = turn.event("NodesLost", message, warning);
    }
    if !emptied.gone.is_empty() {
        turn = turn.event("NodesEmpty", format!("{} empty: terminated", names(&emptied.gone)), false);
    }
    if !emptied.dead.is_empty() {
        let message = format!("{} not Ready, and all pods there have been deleted: terminated", names(&emptied.dead));
        turn = turn.event("NodesLost", message, true);
    }
    let emptied = emptied.gone.into_iter().chain(emptied.dead);
    let gone: BTreeSet<InstanceId> = joined.failed.keys().cloned().chain(lost).chain(emptied).collect();
    let shrunk = !gone.is_empty();
    if shrunk {
        shrink(&mut status, &gone, &joined.failed, now);
    }
    describe(case, &mut status);
    let before = &case.batch.status;
    if keeps_failing(before) && scratch.failures() >= FAILURES {
        status.message.clone_from(&before.message);
    }
    for (failure, in_a_row) in &failures {
        report(case, &mut status, failure, *in_a_row);
    }
    let waits = progress::waits_until(before, &status, scratch.progressed, now).filter(|_| turn.events.is_empty());
    if let Some(at) = waits {
        until = until.min(at);
    } else {
        if progress::is_all(before, &status) {
            scratch.progressed = Some(now);
        }
        turn.next = Some(status);
    }
    turn.requeue = Some(if shrunk { Requeue::Now } else { Requeue::At(until) });
    Ok(turn.converge(joined.edits).scratch(scratch))
}

fn names(ids: &BTreeSet<InstanceId>) -> String {
    let named: Vec<&str> = ids.iter().take(5).map(InstanceId::as_str).collect();
    let more = if ids.len() > 5 { format!(" and {} more", ids.len() - 5) } else { String::new() };
    format!("{}{more}", named.join(", "))
}

/// Phase, counts and one sentence.
fn describe(case: &Case<'_>, status: &mut BatchStatus) {
    let ready = status.instances.iter().filter(|one| one.state == MemberState::Ready).count();
    let all = status.instances.len();
    status.ready_count = u32::try_from(ready).unwrap_or(u32::MAX);
    status.phase = match (ready, all) {
        // What was taken out of the count is terminated first.
        (_, 0) => BatchPhase::Draining,
        (ready, all) if ready == all => BatchPhase::InUse,
        _ => BatchPhase::Launched,
    };
    status.deadline = None;
    let leaving = status.instances.iter().filter(|one| one.leaving_since.is_some()).count();
    status.message = Some(if all == 0 {
        "all of its nodes are gone or being terminated".to_owned()
    } else if case.batch.deleting {
        format!("deleted: each of its {all} nodes is terminated once it is empty")
    } else if ready < all {
        format!("{ready} of {} ready", counted(all, "node"))
    } else if case.memory.keeps_unwitnessed {
        format!(
            "{} ready; more nodes than 5 and a tenth look empty, or are missing, and nobody saw their pods or Nodes go: they are \
             kept, delete this NodeBatch to let go of those that are empty",
            counted(all, "node")
        )
    } else if leaving > 0 {
        format!("{} ready, {leaving} of them empty and about to be terminated", counted(all, "node"))
    } else {
        format!("{} ready", counted(all, "node"))
    });
}

/// Takes nodes out of the count: they are terminated once nothing stands on them.
fn shrink(
    status: &mut BatchStatus,
    gone: &BTreeSet<InstanceId>,
    failed: &BTreeMap<InstanceId, JoinCause>,
    now: Timestamp,
) {
    let before = status.count.max(1);
    let (lost, kept): (Vec<BatchMember>, Vec<BatchMember>) =
        std::mem::take(&mut status.instances).into_iter().partition(|one| gone.contains(&one.id));
    status.instances = kept;
    for mut one in lost {
        one.state = MemberState::Lost;
        if let (None, Some(cause)) = (&one.loss, failed.get(&one.id)) {
            let message = cause.to_string();
            let cause = match cause {
                // EC2 took it: nothing is known of what it would have been.
                JoinCause::Died(_) => LossCause::Missing,
                JoinCause::NeverRan | JoinCause::NeverRegistered | JoinCause::Lacks(_) => LossCause::Join,
            };
            one.loss = Some(Loss { cause, message, noticed: now, act_at: now, deadline: None });
        }
        status.replaced.push(one);
    }
    let left = u32::try_from(status.instances.len()).unwrap_or(u32::MAX);
    if left == 0 {
        // What each costs stays known until the last of them has ended.
        return;
    }
    let share = |price: u64| u128::from(price) * u128::from(left) / u128::from(before);
    status.price = status.price.map(|price| u64::try_from(share(price)).unwrap_or(u64::MAX));
    status.count = left;
}

/// What the batch was made to launch.
fn asked(batch: &Batch) -> Vec<Offering> {
    let spec = &batch.spec;
    let (Some(offer), Some(zone)) = (spec.offers.first(), spec.zones.first()) else { return Vec::new() };
    let of = |capacity_type| Offering {
        instance_type: offer.instance_type.clone(),
        zone: zone.clone(),
        capacity_type,
        group: false,
    };
    match spec.capacity_type {
        Some(capacity_type) => vec![of(capacity_type)],
        None => vec![of(CapacityType::Spot), of(CapacityType::OnDemand)],
    }
}

/// What the last launch asked for.
fn offering(status: &BatchStatus) -> Option<Offering> {
    let attempt = status.last()?;
    Some(Offering {
        instance_type: attempt.instance_type.clone(),
        zone: attempt.zone.clone(),
        capacity_type: attempt.capacity_type,
        group: false,
    })
}

/// What joining came to.
struct Joined {
    edits: Vec<Converge>,
    failed: BTreeMap<InstanceId, JoinCause>,
    until: Timestamp,
}

/// Matches nodes to instances. A node that was Ready once is never judged again: it serves.
fn join(case: &Case<'_>, status: &mut BatchStatus, seen: Option<&[Instance]>) -> Joined {
    let (now, supply) = (case.now(), case.world.supply);
    let clocks = supply.join(status.node_pool.as_deref());
    let launched = status.last().and_then(|attempt| attempt.ended).unwrap_or(now);
    let after = |at: Timestamp, pause: SignedDuration| at.saturating_add(pause).unwrap_or(Timestamp::MAX);
    let not_before = case.no_clock_ends_before(launched, status);
    let of_type = supply.devices(status);
    let permanent = permanent(case, status);
    let unregistered = case.world.settings.keys.unregistered;
    // A template for several types has none of the labels in which they differ.
    let several = status.last().is_some_and(|attempt| !attempt.overrides.is_empty());
    let labels = if several { supply.labels(status) } else { Some(BTreeMap::new()) };
    let mut joined = Joined { edits: Vec::new(), failed: BTreeMap::new(), until: later(now, 30) };
    let loses = |cause: LossCause, message: &str| {
        Some(Loss { cause, message: message.to_owned(), noticed: now, act_at: now, deadline: None })
    };
    for instance in &mut status.instances {
        let node = case.standing.node_of(&instance.id);
        // Of one that is lost too: its pods are found by that name.
        if let (None, Some(node)) = (&instance.node, node) {
            instance.node = Some(node.name.to_string());
        }
        if instance.is_lost(now) {
            continue;
        }
        if instance.state == MemberState::Ready {
            // A list without its Node may be wrong: where many are missing nobody is ended for that.
            if node.is_none() && !is_kept(case, &case.memory.met, &instance.id) {
                instance.loss = loses(LossCause::Missing, "its Node is gone");
            }
            continue;
        }
        // Whoever deletes its batch does not wait for it. Who stands there all the same is looked for before it is ended.
        if case.batch.deleting {
            instance.loss = loses(LossCause::Join, "its NodeBatch was deleted before it was ready");
            continue;
        }
        let in_ec2 = seen.and_then(|seen| seen.iter().find(|seen| seen.id == instance.id));
        if let Some(ended) = in_ec2.filter(|seen| has_ended(seen.state)) {
            let code = ended.state_reason.as_ref().map(|reason| reason.code.clone());
            joined.failed.insert(instance.id.clone(), JoinCause::Died(code));
            continue;
        }
        let (by, cause) = if let Some(node) = node {
            let registered = *instance.registered.get_or_insert(now);
            let lacking = labels.as_ref().map(|all| {
                let lacks = |(key, value): &(&Arc<str>, &Arc<str>)| node.labels.get(*key) != Some(*value);
                all.iter().filter(lacks).map(|(key, value)| (key.clone(), value.clone())).collect::<BTreeMap<_, _>>()
            });
            match lacking {
                Some(labels) if !labels.is_empty() => {
                    joined.edits.push(Converge::Label { node: node.name.to_string(), labels });
                }
                Some(_) if node.has_taint(unregistered) => {
                    joined.edits.push(Converge::Untaint { node: node.name.to_string(), key: unregistered });
                }
                // Nobody may use it before it has them.
                Some(_) | None => {}
            }
            let expected = devices::of_node(case, &of_type, &node.name);
            let Some(first) = lacks(case, node, &expected, &permanent, false).next() else {
                instance.state = MemberState::Ready;
                continue;
            };
            instance.state = MemberState::Registered;
            (after(registered, clocks.ready_within), JoinCause::Lacks(first))
        } else {
            if in_ec2.is_some_and(|seen| seen.state == InstanceState::Running) {
                instance.state = MemberState::Running;
            }
            let ran = instance.state != MemberState::Launched;
            let cause = if ran { JoinCause::NeverRegistered } else { JoinCause::NeverRan };
            (after(launched, clocks.register_within), cause)
        };
        let by = by.max(not_before);
        if by <= now {
            joined.failed.insert(instance.id.clone(), cause);
        } else {
            joined.until = joined.until.min(by).min(later(now, LOOK_SECONDS));
        }
    }
    joined
}
