//! Lost nodes of a batch: replaced in place, each replacement an attempt of its own, or all of it terminated.
//!
//! The intent is written down first: the lost instances leave `instances` for `replaced`, and the attempt names them.
//! While pods are still on a lost node (it was given notice) the replacement is launched first; an instance that serves
//! nobody is terminated first. In a reservation the free host is taken before the lost one is terminated.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;

use super::case::{Case, Step, Stop, Turn, done, later};
use super::counted::counted;
use super::decision::{Change, Converge, Requeue, Scratch};
use super::judge::{Verdict, Why, judge};
use super::launch::{self, SHOWS_WITHIN, SWEEPS, Sweep, answered, lacking, request_id};
use super::occupants::occupants;
use super::{owner, parting, rollback, teardown};
use crate::ec2::error::ErrorClass;
use crate::ec2::seen::InstanceState;
use crate::model::batch::{
    Attempt, AttemptOutcome, BatchMember, BatchPhase, BatchStatus, Loss, LossCause, MemberState,
};
use crate::model::gang::Phase;
use crate::model::launch::{CapacityType, LaunchParameters};
use crate::model::moment::time_of_day;
use crate::model::money::{cost_between, usd};
use crate::model::names::{InstanceId, NodeName};
use crate::model::notice::NoticeKind;

/// Between two looks after lost instances.
const CLEAR_SECONDS: i64 = 5;
/// That doubles as often where EC2 does not end them.
const CLEAR_DOUBLINGS: u32 = 4;
/// Between two launches of one replacement, at least and at most.
const PAUSE_SECONDS: std::ops::RangeInclusive<i64> = 15..=120;

/// Instances that are lost by now.
fn lost(status: &BatchStatus, now: Timestamp) -> Vec<&BatchMember> {
    status.instances.iter().filter(|instance| instance.is_lost(now)).collect()
}

/// A Node that vanished is a lost node, whoever deleted it: its machine ended, or somebody wants it gone.
pub(super) fn notice_absent(case: &Case<'_>) -> Option<BatchStatus> {
    match case.batch.status.phase {
        BatchPhase::Ready | BatchPhase::InUse => {}
        BatchPhase::Pending
        | BatchPhase::Launching
        | BatchPhase::Launched
        | BatchPhase::Joining
        | BatchPhase::Replacing
        | BatchPhase::Idle
        | BatchPhase::Draining
        | BatchPhase::Terminating => return None,
    }
    let absent =
        |instance: &BatchMember| instance.loss.is_none() && instance.node.is_some() && case.node_of(instance).is_none();
    if !case.batch.status.instances.iter().any(absent) {
        return None;
    }
    let (mut status, now) = (case.status(), case.now());
    for instance in status.instances.iter_mut().filter(|instance| absent(instance)) {
        instance.state = MemberState::Lost;
        let message = "its Node is gone".to_owned();
        instance.loss = Some(Loss { cause: LossCause::Missing, message, noticed: now, act_at: now, deadline: None });
    }
    Some(status)
}

/// A batch in use, or ready for its gang, has lost nodes. An elastic gang that keeps its minimum goes on without them:
/// the batch shrinks. Else they are replaced at once, while the gang loop evicts the gang.
pub(super) fn lost_in_use(case: &Case<'_>) -> Step<Turn> {
    let status = case.status();
    let now = case.now();
    let gone: BTreeSet<InstanceId> = lost(&status, now).into_iter().map(|instance| instance.id.clone()).collect();
    // A gang may run before its batch is called in use.
    if gone.len() < status.instances.len() && survives(case, &status, &gone) {
        return Ok(shrink(status, &gone, KEEPS_MINIMUM));
    }
    let causes: BTreeMap<InstanceId, String> = lost(&status, now)
        .into_iter()
        .map(|instance| {
            (instance.id.clone(), instance.loss.as_ref().map_or_else(String::new, |loss| loss.message.clone()))
        })
        .collect();
    let mut reported: BTreeMap<&str, usize> = BTreeMap::new();
    for text in causes.values() {
        *reported.entry(text).or_default() += 1;
    }
    let why: Vec<String> = reported.into_iter().map(|(text, count)| format!("{count} × {text}")).collect();
    Ok(begin(case, status, &causes, &why.join("; ")))
}

/// Whether the gang of the batch keeps its minimum without these instances.
fn survives(case: &Case<'_>, status: &BatchStatus, gone: &BTreeSet<InstanceId>) -> bool {
    let snapshot = case.world.snapshot;
    let Some(gang) = owner::user(case, status) else { return false };
    let of_lost = |instance: &&BatchMember| gone.contains(&instance.id);
    let lost: BTreeSet<&str> =
        status.instances.iter().filter(of_lost).filter_map(|instance| instance.node.as_deref()).collect();
    let stays = |node: &NodeName| !lost.contains(node.as_str()) && snapshot.nodes.contains_key(node);
    let stay = snapshot.live_members(&gang.key).filter(|pod| pod.node.as_ref().is_some_and(stays));
    gang.phase == Some(Phase::Bound) && u32::try_from(stay.count()).is_ok_and(|stay| stay >= gang.minimum.max(1))
}

/// Why a gang goes on with fewer nodes.
const KEEPS_MINIMUM: &str = "the gang keeps its minimum";

/// The recorded count goes down before any instance does.
fn shrink(mut status: BatchStatus, gone: &BTreeSet<InstanceId>, why: &str) -> Turn {
    let (lost, kept): (Vec<_>, Vec<_>) = status.instances.into_iter().partition(|one| gone.contains(&one.id));
    status.instances = kept;
    let left = u32::try_from(status.instances.len()).unwrap_or(u32::MAX);
    let less = status.count.saturating_sub(left);
    resize(&mut status, left);
    status.ready_count = status.ready_count.min(left);
    status.replaced.extend(lost);
    status.message = Some(format!("{} lost; its gang goes on with {left}", counted(less, "node")));
    let ids: Vec<&str> = gone.iter().map(InstanceId::as_str).collect();
    let without = if ids.is_empty() { format!("the {less} that were not replaced") } else { ids.join(", ") };
    let message = format!("{why} without {without}");
    Turn::write(status).event("Shrunk", message, false)
}

/// Another number of nodes, at the same price each.
fn resize(status: &mut BatchStatus, count: u32) {
    let price = status.price.unwrap_or(0);
    status.price = Some(price.saturating_mul(u64::from(count)) / u64::from(status.count.max(1)));
    status.count = count;
}

/// No member is planned on lost nodes any more, nor anything else on what stays until the gang uses it again: the taint
/// stands as long as the instance is listed.
pub(super) fn taints_of_lost(case: &Case<'_>) -> Vec<Converge> {
    let listed = case.batch.status.replaced.iter();
    listed.filter_map(|instance| case.taint(instance)).collect()
}

/// Why nothing replaces nodes that end with their Capacity Block.
const BLOCK_ENDS: &str = "the Capacity Block of its nodes ends, and nothing is launched into it any more";

/// Whether a launch like this one would go into the Capacity Block whose end takes nodes of the batch.
fn ends_with_block(status: &BatchStatus, model: &Attempt) -> bool {
    let Some(block) = model.reservation.as_ref().filter(|target| target.block) else { return false };
    let by_its_end = LossCause::Notice(NoticeKind::BlockExpiration);
    let ends = |one: &BatchMember| one.loss.as_ref().is_some_and(|loss| loss.cause == by_its_end);
    status.members().any(|one| ends(one) && status.reservation_of(one) == Some(block))
}

/// Writes down the intent to replace instances, or that nothing can. `lost`: why, by instance.
pub(super) fn begin(case: &Case<'_>, mut status: BatchStatus, lost: &BTreeMap<InstanceId, String>, why: &str) -> Turn {
    let now = case.now();
    let won = status.attempts.iter().rev().find(|attempt| attempt.won_whole()).cloned();
    let Some((won, stored)) = won.and_then(|won| won.parameters.clone().map(|stored| (won, stored))) else {
        let ids = status.ids();
        return rollback::violated(case, status, &ids, why);
    };
    // EC2 may have started more than it was asked for, and what serves was kept: that is not launched once more.
    let kept = status.instances.len().saturating_sub(lost.len());
    let lacking = case.batch.spec.count.saturating_sub(u32::try_from(kept).unwrap_or(u32::MAX));
    if lacking == 0 {
        return shrink(status, &lost.keys().cloned().collect(), "no more nodes were asked for than are left");
    }
    let ends = ends_with_block(&status, &won);
    let (gone, kept): (Vec<_>, Vec<_>) = status.instances.into_iter().partition(|one| lost.contains_key(&one.id));
    status.instances = kept;
    let ready = status.instances.iter().filter(|instance| instance.state == MemberState::Ready).count();
    status.ready_count = u32::try_from(ready).unwrap_or(u32::MAX);
    for mut instance in gone {
        instance.state = MemberState::Lost;
        if instance.loss.is_none() {
            let message = lost.get(&instance.id).cloned().unwrap_or_default();
            instance.loss = Some(Loss { cause: LossCause::Join, message, noticed: now, act_at: now, deadline: None });
        }
        status.replaced.push(instance);
    }
    status.phase = BatchPhase::Replacing;
    status.deadline = None;
    if ends {
        status.message =
            Some(format!("{BLOCK_ENDS}: all {} go once their pods have left", counted(status.count, "node")));
        return Turn::write(status);
    }
    let number = status.attempt.saturating_add(1);
    let count = u32::try_from(lost.len()).unwrap_or(u32::MAX).min(lacking);
    if status.count > case.batch.spec.count {
        resize(&mut status, case.batch.spec.count);
    }
    let parameters = whole(&stored.value, count, number, &status);
    status.attempt = number;
    status.message = Some(format!("replacing {count} of {} in place: {why}", counted(status.count, "node")));
    let replaces = lost.keys().cloned().collect();
    // It replaces what was kept, and tries nothing out.
    status.attempts.push(launching(Attempt { replaces, started: Some(now), probe: false, ..won }, parameters));
    let scratch = Scratch { first: Some(number), cleared: None, ..case.memory.scratch };
    Turn::write(status).scratch(scratch)
}

/// Launches what replaces the lost instances. Sent again with the same token until there is an answer.
pub(super) fn replacing(case: &Case<'_>) -> Step<Turn> {
    let now = case.now();
    let Some(attempt) = case.batch.status.last() else { return Ok(Turn::wait(Requeue::At(later(now, 60)))) };
    match attempt.outcome {
        AttemptOutcome::Launching => {}
        // Nothing came in their stead: all of it goes, once the gang has left the survivors.
        AttemptOutcome::Won
        | AttemptOutcome::Lost
        | AttemptOutcome::Retry
        | AttemptOutcome::Violated
        | AttemptOutcome::Misplaced
        | AttemptOutcome::ProbeJoined => {
            let ends = ends_with_block(&case.batch.status, attempt).then_some(BLOCK_ENDS);
            return Ok(give_up(case, ends.or(attempt.message.as_deref()).unwrap_or("no replacement")));
        }
    }
    let Some(parameters) = attempt.parameters.as_ref().map(|stored| &*stored.value) else {
        return Ok(give_up(case, "the replacement has no parameters"));
    };
    for first in [true, false] {
        let change = Change::Launch { parameters: Box::new(parameters.clone()), first };
        if let Some(answer) = case.outcome(&change) {
            return settle(case, attempt, parameters, first, &answered(answer));
        }
    }
    // Nothing was sent yet, and nobody is there to whom it would be of use. A call that a former process may have sent is sent
    // again, as at a launch: what it made has to be found.
    let first = case.memory.scratch.first == Some(attempt.number);
    if first && owner::unwanted(case)? {
        return Ok(lost_again(case, case.status(), None, "nobody waits for it any more"));
    }
    if !first
        && launch::is_stale(case, attempt)
        && let Some(turn) = found(case, case.status(), parameters, None)?
    {
        return Ok(turn);
    }
    if let Some(looks) = launch::last_looks(case, attempt) {
        if let Some(turn) = found(case, case.status(), parameters, None)? {
            return Ok(turn);
        }
        if looks < launch::LAST_LOOKS {
            return Ok(launch::look_later(case, case.status(), looks));
        }
        return Ok(lost_again(case, case.status(), None, "no answer"));
    }
    // A crash between the intent and the termination: what serves nobody is not paid for any longer. In a reservation that
    // has a free host it goes last.
    let full = attempt.code.is_some();
    if attempt.capacity_type != CapacityType::Reserved || full {
        let left = terminate_replaced(case)?;
        if full && in_time(case, attempt) && !left.instances.is_empty() {
            return Ok(Turn::wait(Requeue::Pause(later(now, 5))).converge(left.nodes));
        }
    }
    let change = Change::Launch { parameters: Box::new(parameters.clone()), first };
    let scratch = Scratch { first: None, ..case.memory.scratch };
    Err(Stop::Change(Box::new(Turn { change: Some(change), scratch: Some(scratch), ..Turn::default() })))
}

/// Looks for what the replacement made, whatever was answered. The next step if anything was found.
fn found(case: &Case<'_>, status: BatchStatus, parameters: &LaunchParameters, why: Option<Why>) -> Step<Option<Turn>> {
    let (fleet, sweeps) = status.last().map_or((None, 0), |last| (last.fleet.clone(), last.sweeps));
    let made = launch::made(case, fleet.as_deref(), parameters)?;
    let ids: Vec<InstanceId> = made.into_iter().map(|instance| instance.id).collect();
    let came = u32::try_from(ids.len()).unwrap_or(u32::MAX);
    Ok(match came {
        0 => None,
        _ if came == parameters.count => Some(won(case, status, &ids)),
        // EC2 may not show the rest yet: whoever gave up on what is seen would leave it behind.
        _ if came < parameters.count && sweeps < SWEEPS => {
            Some(launch::replay(case, status, "replacement", why, Sweep::Counted))
        }
        _ => Some(another_number(case, status, &ids)),
    })
}

fn until(case: &Case<'_>, attempt: &Attempt) -> Option<Timestamp> {
    attempt.started?.saturating_add(case.join_budget(&case.batch.status)).ok()
}

fn in_time(case: &Case<'_>, attempt: &Attempt) -> bool {
    until(case, attempt).is_some_and(|until| case.now() < until)
}

/// What follows while nothing, or too little, of a replacement is found.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Open {
    /// Nothing: EC2 has refused it.
    No,
    /// It is looked for so often, and the call sent again each time.
    Counted,
    /// The call is sent again until EC2 sees what it names.
    Shows,
    /// EC2 is busy: the call is sent again until it answers, as long as anybody waits. As at a launch: nothing is lost by it.
    Undecided,
}

impl Open {
    /// Whether the call is sent once more.
    fn goes_on(self, case: &Case<'_>, attempt: &Attempt) -> bool {
        match self {
            Self::No => false,
            Self::Counted | Self::Undecided => attempt.sweeps < SWEEPS,
            Self::Shows => attempt.started.is_some_and(|at| case.now().duration_since(at) < SHOWS_WITHIN),
        }
    }
}

fn settle(
    case: &Case<'_>,
    attempt: &Attempt,
    parameters: &LaunchParameters,
    first: bool,
    answer: &Result<crate::model::launch::LaunchAnswer, crate::ec2::error::CallError>,
) -> Step<Turn> {
    let now = case.now();
    let mut status = case.status();
    let reserved = attempt.capacity_type == CapacityType::Reserved;
    if let Some(last) = status.attempts.last_mut() {
        if let Ok(answer) = answer {
            last.fleet.clone_from(&answer.fleet_id);
        }
        last.request_id = request_id(answer).or(last.request_id.take());
    }
    let mut notes = Vec::new();
    // What a reservation lacks says nothing about the offering.
    let mut remember = |unavailable: &[crate::model::launch::Pool]| {
        if !reserved {
            notes.push(lacking(unavailable, parameters.count));
        }
    };
    let judged = judge(parameters, first && !attempt.replayed, answer);
    // The same token would be given the same answer for ever.
    let throttled = matches!(judged, Verdict::Throttled { .. });
    let unknown = matches!(judged, Verdict::Unknown { .. });
    let (why, open) = match judged {
        // An older version asked for part of a replacement where part of the batch would do.
        Verdict::Won(ids) if u32::try_from(ids.len()) == Ok(parameters.count) => return Ok(won(case, status, &ids)),
        Verdict::Won(ids) | Verdict::Violated(ids) => return Ok(another_number(case, status, &ids)),
        Verdict::Lost { why, unavailable, .. }
        | Verdict::Quota { why, unavailable, .. }
        | Verdict::Configuration { why, unavailable, .. } => {
            remember(&unavailable);
            (Some(why), Open::No)
        }
        Verdict::Throttled { why, .. } => (Some(why), Open::Counted),
        Verdict::NotDecided { why } if why.kind == ErrorClass::NotVisibleYet => (Some(why), Open::Shows),
        Verdict::NotDecided { why } => (Some(why), Open::Undecided),
        Verdict::TokenRefused { why } => (Some(why), Open::No),
        Verdict::Unknown { why, unavailable } => {
            remember(&unavailable);
            (why, Open::Counted)
        }
    };
    let reported = |turn: Turn| notes.iter().cloned().fold(turn, Turn::note);
    if open == Open::Undecided && !owner::unwanted(case)? {
        return Ok(reported(launch::replay(case, status, "replacement", why, Sweep::Not)));
    }
    if let Some(turn) = found(case, status.clone(), parameters, why.clone())? {
        return Ok(reported(turn));
    }
    let no_host = reserved && why.as_ref().is_some_and(|why| why.kind.says_full());
    // Whoever is not there any more waits for no host, and nobody for one in a block that ends.
    if no_host && in_time(case, attempt) && !ends_with_block(&status, attempt) && !owner::unwanted(case)? {
        // The hosts of the lost nodes are what there is to wait for.
        if let Some(last) = status.attempts.last_mut() {
            last.code = why.and_then(|why| why.code);
        }
        status.deadline = until(case, attempt);
        status.message = Some(
            "the reservation has no free host: waiting for the hosts of the lost nodes, which go first".to_owned(),
        );
        return Ok(reported(Turn::write(status).requeue(Requeue::Pause(later(now, 15)))));
    }
    if (throttled || frees_quota(case, &status, why.as_ref())?) && in_time(case, attempt) && !owner::unwanted(case)? {
        let why = why.map_or_else(String::new, |why| why.code.unwrap_or(why.message));
        return Ok(reported(once_more(case, status, attempt, parameters, &why)));
    }
    let stated =
        why.as_ref().map_or_else(|| "no answer".to_owned(), |why| why.code.clone().unwrap_or(why.message.clone()));
    if !no_host && open.goes_on(case, attempt) {
        return Ok(reported(launch::replay(case, status, "replacement", why, Sweep::Counted)));
    }
    if unknown {
        return Ok(reported(launch::look_later(case, status, 0)));
    }
    Ok(reported(lost_again(case, status, why.and_then(|why| why.code), &stated)))
}

/// Whether a quota that EC2 finds used up may have capacity in a moment: what is ending still counts, and so do lost nodes until
/// they end.
fn frees_quota(case: &Case<'_>, status: &BatchStatus, why: Option<&Why>) -> Step<bool> {
    let quota = |why: &&Why| matches!(why.kind, ErrorClass::Quota | ErrorClass::SpotQuota);
    let Some(why) = why.filter(quota) else { return Ok(false) };
    let asked = status.last().map(|attempt| attempt.instance_type.as_str()).unwrap_or_default();
    Ok(!status.replaced.is_empty() || launch::ending(case, asked, why.code.as_deref())? > 0)
}

/// The same replacement under a token of its own, after a pause that is as long as it has been tried. Its clock goes on.
fn once_more(
    case: &Case<'_>,
    mut status: BatchStatus,
    attempt: &Attempt,
    parameters: &LaunchParameters,
    why: &str,
) -> Turn {
    let now = case.now();
    let number = status.attempt.saturating_add(1);
    let parameters = whole(parameters, parameters.count, number, &status);
    status.close(AttemptOutcome::Retry, None, Some(why.to_owned()), now);
    let tried = attempt.started.map_or(0, |at| now.duration_since(at).as_secs());
    let until = later(now, tried.clamp(*PAUSE_SECONDS.start(), *PAUSE_SECONDS.end()));
    status.attempt = number;
    status.message = Some(format!("no replacement yet ({why}): the same is launched again at {}", time_of_day(until)));
    status.attempts.push(launching(attempt.clone(), parameters));
    let scratch = Scratch { first: Some(number), ..case.memory.scratch };
    Turn::write(status).scratch(scratch).requeue(Requeue::Pause(until))
}

/// A call like `model` for so many instances, all or none: part of them would leave the batch without its number, whatever its first
/// launch, or an older version, was content with.
fn whole(model: &LaunchParameters, count: u32, number: u32, status: &BatchStatus) -> LaunchParameters {
    let mut parameters = LaunchParameters { count, partial: false, ..model.clone() };
    parameters.tags.attempt = number;
    parameters.with_token(status.generation)
}

/// An attempt like `model` of which nothing has been sent yet.
fn launching(model: Attempt, parameters: LaunchParameters) -> Attempt {
    Attempt {
        number: parameters.tags.attempt,
        count: parameters.count,
        token: Some(parameters.token.clone()),
        parameters: Some(parameters.into()),
        outcome: AttemptOutcome::Launching,
        ended: None,
        replayed: false,
        sweeps: 0,
        request_id: None,
        fleet: None,
        code: None,
        message: None,
        ..model
    }
}

fn fresh(ids: &[InstanceId], attempt: u32) -> impl Iterator<Item = BatchMember> {
    ids.iter().map(move |id| BatchMember::new(id.clone(), attempt, MemberState::Launched))
}

fn won(case: &Case<'_>, mut status: BatchStatus, ids: &[InstanceId]) -> Turn {
    status.instances.extend(fresh(ids, status.attempt));
    status.phase = BatchPhase::Launched;
    status.message = Some(format!("{} launched in the place of lost ones", counted(ids.len(), "instance")));
    status.close(AttemptOutcome::Won, None, None, case.now());
    let names = |ids: &[InstanceId]| ids.iter().map(InstanceId::as_str).collect::<Vec<_>>().join(", ");
    let replaced = status.last().map(|attempt| attempt.replaces.clone()).unwrap_or_default();
    let message = format!("{} in the place of {}: same zone, type, group and image", names(ids), names(&replaced));
    Turn::write(status).event("NodeReplaced", message, false)
}

/// Another number of instances came than was asked for: they are of no use, and go with the rest.
fn another_number(case: &Case<'_>, mut status: BatchStatus, ids: &[InstanceId]) -> Turn {
    status.instances.extend(fresh(ids, status.attempt));
    let came = launch::another_number(ids, status.last().map_or(0, |attempt| attempt.count));
    let all = status.instances.len();
    let cost = cost_since_launch(&status, case.now());
    let message = format!(
        "{came}; all {all} are terminated once their pods have left: {cost} spent on them since the first launch"
    );
    status.close(AttemptOutcome::Lost, None, Some(message), case.now());
    status.message = Some(format!("no replacement ({came}): all {all} instances go once their pods have left"));
    Turn::write(status)
}

/// The replacement is lost: all n go.
fn lost_again(case: &Case<'_>, mut status: BatchStatus, code: Option<String>, why: &str) -> Turn {
    let cost = cost_since_launch(&status, case.now());
    let message = format!(
        "no replacement ({why}); {cost} spent on {} since their launch",
        counted(status.instances.len(), "instance")
    );
    status.close(AttemptOutcome::Lost, code, Some(message), case.now());
    status.message = Some(format!("no replacement ({why}): all {} nodes go once their pods have left", status.count));
    Turn::write(status)
}

fn give_up(case: &Case<'_>, why: &str) -> Turn {
    let mut status = case.status();
    if survives(case, &status, &BTreeSet::new()) {
        // It came, or went on, while the replacement was tried, and nothing makes it leave.
        status.phase = BatchPhase::InUse;
        return shrink(status, &BTreeSet::new(), KEEPS_MINIMUM);
    }
    let there = occupants(case, &status);
    if !there.is_empty() {
        // The gang leaves by itself. Nobody else may come, and whoever is left goes as at the end of a batch.
        let edits: Vec<Converge> = status.members().filter_map(|instance| case.taint(instance)).collect();
        status.message =
            Some(format!("{why}; waiting for {} to leave before all nodes go", counted(there.len(), "pod")));
        let (foreign, requeue) = teardown::end_others(case, &mut status, &there);
        let requeue = requeue.unwrap_or_else(|| Requeue::At(later(case.now(), 5)));
        return Turn::write(status).requeue(requeue).converge(edits).converge(foreign);
    }
    let ids = status.ids();
    rollback::violated(case, status, &ids, why)
}

/// Ends lost instances that serve nobody and forgets those that are gone.
pub(super) fn terminate(case: &Case<'_>) -> Step<Option<Turn>> {
    let (status, now) = (&case.batch.status, case.now());
    let reserved = status.capacity_type == Some(CapacityType::Reserved);
    let pause = CLEAR_SECONDS << case.memory.scratch.failed_ends.min(CLEAR_DOUBLINGS);
    let early = case.memory.scratch.cleared.is_some_and(|at| now < later(at, pause));
    // Whatever else was changed is settled first.
    let other = case.memory.done.is_some() && case.has_terminated().is_none();
    if status.replaced.is_empty() || early || other || status.phase == BatchPhase::Replacing && reserved {
        return Ok(None);
    }
    if status.phase == BatchPhase::Terminating {
        // All of it goes: what was replaced goes with the rest.
        return Ok(None);
    }
    let left = terminate_replaced(case)?;
    let scratch = Scratch { cleared: Some(now), failed_ends: 0, ..case.memory.scratch };
    let mut status = case.status();
    status.replaced.retain(|instance| left.instances.contains(&instance.id));
    let taints = parting::settle(case, &mut status);
    Ok(Some(Turn::write(status).converge(left.nodes).converge(taints).scratch(scratch)))
}

/// What is left of lost instances.
struct Left {
    /// Those that EC2 still has.
    instances: BTreeSet<InstanceId>,
    /// Nodes whose machine has ended: elsewhere the cloud controller removes them too.
    nodes: Vec<Converge>,
}

/// Terminates lost instances without pods, or whose time is over.
fn terminate_replaced(case: &Case<'_>) -> Step<Left> {
    let now = case.now();
    let replaced = &case.batch.status.replaced;
    let ids: Vec<InstanceId> = replaced.iter().map(|instance| instance.id.clone()).collect();
    let seen = case.instances(&ids)?;
    let there: BTreeMap<&InstanceId, InstanceState> =
        seen.iter().map(|instance| (&instance.id, instance.state)).collect();
    let mut left = Left { instances: BTreeSet::new(), nodes: Vec::new() };
    let mut due = Vec::new();
    for instance in replaced {
        let unseen = !there.contains_key(&instance.id);
        if unseen && is_young(case, instance) {
            // EC2 may not show it yet: it is terminated as soon as it does.
            left.instances.insert(instance.id.clone());
            continue;
        }
        if unseen || there.get(&instance.id) == Some(&InstanceState::Terminated) {
            left.nodes.extend(case.delete_node(instance));
            continue;
        }
        left.instances.insert(instance.id.clone());
        let live = there.get(&instance.id).is_some_and(|state| *state != InstanceState::ShuttingDown);
        let on = |node: &str| {
            // No kubelet is there to end what was deleted: it would keep the machine for ever.
            let ends = case.is_ready(&NodeName::from(node));
            case.standing.on(node).any(|pod| ends || !pod.deleting)
        };
        // Pods on a Node of its name that is another instance's are not on it.
        let is_others = |node: &str| case.node(node).is_some_and(|node| !node.is_of(&instance.id));
        let busy = instance.node.as_deref().is_some_and(|node| !is_others(node) && on(node));
        let over = instance.loss.as_ref().is_some_and(|loss| loss.deadline.is_some_and(|deadline| deadline <= now));
        if live && (!busy || over) {
            due.push(instance.id.clone());
        }
    }
    if !due.is_empty() {
        match case.memory.done.as_ref().filter(|_| case.has_terminated().is_some()) {
            // EC2 shows the end with a delay.
            Some(last) => done(&last.result)?,
            None => {
                let due = parting::passed(case, due)?;
                if due.is_empty() {
                    return Ok(left);
                }
                let change = Change::Terminate(due);
                return Err(Stop::Change(Box::new(Turn { change: Some(change), ..Turn::default() })));
            }
        }
    }
    Ok(left)
}

/// Whether the launch of an instance is so young that EC2 may not show it yet.
fn is_young(case: &Case<'_>, instance: &BatchMember) -> bool {
    let attempts = &case.batch.status.attempts;
    let attempt = attempts.iter().find(|attempt| attempt.number == instance.attempt);
    attempt.and_then(|attempt| attempt.ended.or(attempt.started)).is_some_and(|at| rollback::may_appear(case.now(), at))
}

/// Dollars since the launch of the whole batch.
pub(super) fn cost_since_launch(status: &BatchStatus, now: Timestamp) -> String {
    let whole = status.attempts.iter().rev().find(|attempt| attempt.won_whole());
    let launched = whole.and_then(|attempt| attempt.started);
    usd(launched.map_or(0, |launched| cost_between(status.price.unwrap_or(0), launched, now)))
}
