//! From instances to nodes a gang can use: running, registered, devices present, topology known.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;

use super::case::{Case, Step, Turn, later};
use super::counted::counted;
use super::decision::{Converge, Requeue, Scratch};
use super::hold;
use super::join::{JoinCause, JoinRules, JoinStage, JoinVerdict, Joiner, describe_failures, judge_join, replacements};
use super::located::{Located, located};
use super::occupants::occupants;
use super::probe::{self, Joined};
use super::{devices, owner, repair, rollback, teardown};
use crate::ec2::seen::{Instance, InstanceState};
use crate::model::batch::{
    Attempt, AttemptOutcome, BatchMember, BatchPhase, BatchStatus, ConditionKind, LossCause, MemberState, Owner,
};
use crate::model::moment::moment;
use crate::model::names::ResourceName;
use crate::model::node::{Node, Taint};
use crate::model::notice::NoticeKind;
use crate::topology::Level;

/// Booked nodes nobody uses become idle after this. Source: `BookingExpired` of the upstream ProvisioningRequest.
const BOOKED_SECONDS: i64 = 600;
/// Between two looks at instances that join: every change of the cluster requeues the batch, and EC2 is asked now and then.
pub(super) const LOOK_SECONDS: i64 = 15;

/// Waits until all instances run, then reads their place in the network once.
pub(super) fn launched(case: &Case<'_>) -> Step<Turn> {
    let mut status = case.status();
    let now = case.now();
    let ids = status.ids();
    let seen = case.instances(&ids)?;
    let (joiners, _) = joiners(case, &mut status, Some(&seen));
    let wait = match judge(case, &status, &joiners)? {
        Judged::Acted(turn) => return Ok(*turn),
        Judged::Wait(until) => until,
        Judged::Ready => now,
    };
    let running = seen.iter().filter(|instance| instance.state == InstanceState::Running).count();
    if running < ids.len() {
        status.message = Some(format!("{running} of {} running", counted(ids.len(), "instance")));
        return Ok(Turn::write(status).requeue(Requeue::Pause(later(now, 2).min(wait))));
    }
    status.message = Some(format!("all {} instances running; waiting for their nodes", ids.len()));
    if let Some(turn) = locate(case, &mut status)? {
        return Ok(turn);
    }
    for instance in &mut status.instances {
        if instance.state == MemberState::Launched {
            instance.state = MemberState::Running;
        }
    }
    status.phase = BatchPhase::Joining;
    status.deadline = Some(clocks(case, &status).deadline);
    Ok(Turn::write(status))
}

/// Reads where the instances lie, and judges it: a launch that misses the level its gang requires is rolled back, a missed
/// preferred level is used and named. Once per launch, and once more before its nodes are used if EC2 could not tell:
/// DescribeInstanceTopology has the tightest budget of all calls.
fn locate(case: &Case<'_>, status: &mut BatchStatus) -> Step<Option<Turn>> {
    let ids = status.ids();
    // Labels of the nodes tell the same later.
    let Some(topology) = case.topology(status.group(), &ids)? else { return Ok(None) };
    // Types that EC2 does not report, or half an answer: the labels of the nodes will tell.
    if let Some(found) = located(&ids, topology) {
        status.located.clone_from(&found.layers);
        let replacing = status.last().is_some_and(|attempt| !attempt.replaces.is_empty());
        let wanted = case.world.supply.levels(case.batch);
        if let Some(level) = missed(&found, wanted.required.as_ref())
            && !replacing
        {
            let why = format!("required level {} missed: {found}", level.name);
            return Ok(Some(rollback::misplaced(case, status.clone(), &why, &found)));
        }
        if let Some(level) = missed(&found, wanted.preferred.as_ref()) {
            status.message = Some(format!("preferred level {} missed: {found}", level.name));
        }
    }
    for instance in &mut status.instances {
        if let Some(nodes) = topology.get(&instance.id) {
            instance.network_nodes.clone_from(nodes);
        }
    }
    Ok(None)
}

fn missed<'l>(found: &Located, level: Option<&'l Level>) -> Option<&'l Level> {
    level.filter(|level| found.domains(&level.key).is_some_and(|domains| domains > 1))
}

/// The clocks of the batch's pool, for the launch under way.
fn clocks(case: &Case<'_>, status: &BatchStatus) -> JoinRules {
    let join = case.world.supply.join(status.node_pool.as_deref());
    let whole = status.attempts.iter().rposition(Attempt::won_whole);
    // The same nodes once more are the same replacement.
    let counts = |attempt: &&Attempt| attempt.outcome != AttemptOutcome::Retry;
    let since = status.attempts.iter().skip(whole.unwrap_or(0)).filter(counts);
    let replaced: usize = since.map(|attempt| attempt.replaces.len()).sum();
    let allowed = replacements(&join.max_replacements, status.count).unwrap_or(0);
    let won = status.attempts.iter().rev().find(|attempt| attempt.outcome == AttemptOutcome::Won);
    let launched = won.and_then(|won| won.ended);
    let all = case.join_budget(status);
    let not_before = launched.map_or(Timestamp::MIN, |at| case.no_clock_ends_before(at, status));
    let deadline = launched.and_then(|at| at.saturating_add(all).ok()).unwrap_or(Timestamp::MAX);
    // Of a node that is tried alone the first answer counts.
    let left = allowed.saturating_sub(u32::try_from(replaced).unwrap_or(u32::MAX));
    JoinRules {
        replace_after: join.replace_after,
        register_within: join.register_within,
        ready_within: join.ready_within,
        replacements_left: if probe::is_alone(status) { 0 } else { left },
        // Each replacement has the clocks once more; `maxReplacements` bounds how often.
        deadline: deadline.max(not_before),
        not_before,
    }
}

/// How far each instance is, and how often what is missing. Writes down what was seen for the first time. Without
/// `seen` EC2 was not asked: whoever was running still is, unless a loss is known.
fn joiners(
    case: &Case<'_>,
    status: &mut BatchStatus,
    seen: Option<&[Instance]>,
) -> (Vec<Joiner>, BTreeMap<String, u32>) {
    let now = case.now();
    let group = seen.into_iter().flatten().find(|seen| {
        !has_ended(seen.state) && status.instances.iter().any(|one| one.id == seen.id && one.attempt == status.attempt)
    });
    if let Some(id) = group.and_then(|seen| seen.placement_group_id.clone()) {
        status.placement_group_id = Some(id);
    }
    let late = late_labels(case, status);
    let booking = late.get(case.world.settings.keys.booking);
    let expected = devices::of_batch(case, status);
    let permanent = permanent(case, status);
    let launches: BTreeMap<u32, Timestamp> = status
        .attempts
        .iter()
        .filter_map(|attempt| Some((attempt.number, attempt.ended.or(attempt.started)?)))
        .collect();
    let mut missing: BTreeMap<String, u32> = BTreeMap::new();
    let mut joiners = Vec::new();
    for instance in &mut status.instances {
        let launched = launches.get(&instance.attempt).copied().unwrap_or(now);
        let in_ec2 = seen.and_then(|seen| seen.iter().find(|seen| seen.id == instance.id));
        let gone = in_ec2.filter(|seen| has_ended(seen.state));
        let loss = instance.loss.as_ref().filter(|loss| loss.act_at <= now);
        let stage = if gone.is_some() || loss.is_some() {
            // Why EC2 ended it says more than the notice that it did.
            let reason = gone.and_then(|seen| seen.state_reason.as_ref()).map(|reason| reason.code.clone());
            JoinStage::Gone { code: reason.or_else(|| loss.map(|loss| code(loss.cause).to_owned())) }
        } else if let Some(node) = case.standing.node_of(&instance.id) {
            let registered = *instance.registered.get_or_insert(now);
            instance.node = Some(node.name.to_string());
            let topology = !instance.network_nodes.is_empty();
            let mut lacks: Vec<String> = lacks(case, node, &expected, &permanent, topology).collect();
            // Pods of a booking select this label; the other late ones only inform.
            let key = case.world.settings.keys.booking;
            if booking.is_some_and(|uid| !carries(node, key, uid)) {
                lacks.push(format!("label {key}"));
            }
            for what in &lacks {
                *missing.entry(what.clone()).or_default() += 1;
            }
            if lacks.is_empty() {
                instance.state = MemberState::Ready;
                JoinStage::Ready { registered }
            } else {
                instance.state = MemberState::Registered;
                JoinStage::Registered { at: registered, lacks: lacks.into_iter().collect() }
            }
        } else {
            *missing.entry("nodes".to_owned()).or_default() += 1;
            let running =
                in_ec2.map_or(instance.state != MemberState::Launched, |seen| seen.state == InstanceState::Running);
            if running { JoinStage::Running } else { JoinStage::Pending }
        };
        joiners.push(Joiner { id: instance.id.clone(), launched, stage });
    }
    (joiners, missing)
}

fn code(cause: LossCause) -> &'static str {
    match cause {
        LossCause::Notice(kind) => kind.as_str(),
        LossCause::Missing => "missing",
        LossCause::Join => "join",
    }
}

enum Judged {
    /// All can be used.
    Ready,
    /// Look again by then.
    Wait(Timestamp),
    /// The batch goes another way.
    Acted(Box<Turn>),
}

fn judge(case: &Case<'_>, status: &BatchStatus, joiners: &[Joiner]) -> Step<Judged> {
    let now = case.now();
    let rules = clocks(case, status);
    let (failed, blocked) = match judge_join(joiners, &rules, now) {
        JoinVerdict::Ready => return Ok(Judged::Ready),
        JoinVerdict::Wait(until) => return Ok(Judged::Wait(until)),
        JoinVerdict::Replace(failed) => {
            let causes = failed.iter().map(|(id, cause)| (id.clone(), cause.to_string())).collect();
            let turn = repair::begin(case, status.clone(), &causes, &describe_failures(&failed));
            return Ok(Judged::Acted(Box::new(turn)));
        }
        JoinVerdict::RollBack(failed) => (failed, None),
        JoinVerdict::Block { cause, failed } => (failed, Some(cause)),
    };
    if let (Some(cause), Some(pool)) = (blocked.filter(|_| !probe::is_alone(status)), &status.node_pool)
        && !case.world.supply.is_blocked_by(pool, &case.batch.name)
    {
        // The pool is closed first: nobody else launches into the same fault meanwhile.
        let message = format!(
            "most nodes of NodeBatch {} {cause}: no batch is provisioned from this pool until it or its EC2NodeClass changes, \
             or a node that is tried alone joins",
            case.batch.name
        );
        let block = Converge::BlockPool { pool: pool.clone(), cause: cause.to_string() };
        let turn = Turn::wait(Requeue::At(later(now, 2))).converge([block]);
        return Ok(Judged::Acted(Box::new(turn.pool_event(pool, "JoinBlocked", message, true))));
    }
    // A gang may have come just when a node was lost, and goes on with its minimum: its nodes are not ended under it.
    let there = occupants(case, status);
    if teardown::members(&there) > 0 {
        let mut status = status.clone();
        let failed = describe_failures(&failed);
        status.message =
            Some(format!("{failed}; waiting for {} to leave before all nodes go", counted(there.len(), "pod")));
        return Ok(Judged::Acted(Box::new(Turn::write(status).requeue(Requeue::At(later(now, 5))))));
    }
    let lacking = failed.values().find_map(|cause| match cause {
        JoinCause::Lacks(what) => Some(what.clone()),
        JoinCause::Died(_) | JoinCause::NeverRan | JoinCause::NeverRegistered => None,
    });
    let why = if failed.is_empty() {
        format!("the batch has not joined by {}", moment(rules.deadline))
    } else {
        describe_failures(&failed)
    };
    let console = case.console(&failed)?;
    let cost = repair::cost_since_launch(status, now);
    let stated =
        format!("{why}{console}; {cost} spent on {} that never served", counted(status.instances.len(), "instance"));
    let dead = failed.values().any(|cause| matches!(cause, JoinCause::Died(_)));
    let reason = if lacking.is_some() {
        "DevicesMissing"
    } else if dead {
        "InstancesLost"
    } else {
        "JoinTimeout"
    };
    let mut message = stated.clone();
    if let Some(resource) = &lacking {
        let nodes = status.instances.iter().filter_map(|instance| instance.node.clone()).collect();
        let intolerant = case.intolerant_daemon_sets(nodes)?;
        if !intolerant.is_empty() {
            message = format!(
                "{stated}; {resource} may be missing because these DaemonSets do not tolerate the taints of the nodes: {}",
                intolerant.join(", ")
            );
        }
    }
    let turn = rollback::violated(case, status.clone(), &status.ids(), &stated);
    Ok(Judged::Acted(Box::new(turn.event(reason, message, true))))
}

/// Whether EC2 has ended an instance, or is about to.
pub(super) fn has_ended(state: InstanceState) -> bool {
    match state {
        InstanceState::ShuttingDown | InstanceState::Terminated | InstanceState::Stopping | InstanceState::Stopped => {
            true
        }
        InstanceState::Pending | InstanceState::Running | InstanceState::Unknown => false,
    }
}

/// Matches nodes to instances and waits for devices and labels.
pub(super) fn joining(case: &Case<'_>) -> Step<Turn> {
    let mut status = case.status();
    let now = case.now();
    let mut scratch = case.memory.scratch;
    // A notice says that an instance has ended, EC2 why.
    let over = LossCause::Notice(NoticeKind::StateChange);
    let ended = |looked: Timestamp| {
        let losses = status.instances.iter().filter_map(|instance| instance.loss.as_ref());
        losses.filter(|loss| loss.cause == over).any(|loss| loss.noticed >= looked)
    };
    let due = scratch.looked.is_none_or(|looked| now >= later(looked, LOOK_SECONDS) || ended(looked));
    let seen = if due { Some(case.instances(&status.ids())?) } else { None };
    if due {
        scratch = Scratch { looked: Some(now), ..scratch };
    }
    let (joiners, missing) = joiners(case, &mut status, seen.as_deref());
    let ready = status.instances.iter().filter(|instance| instance.state == MemberState::Ready).count();
    status.ready_count = u32::try_from(ready).unwrap_or(u32::MAX);
    let mut labels = labels(case, &status);
    labels.extend(hold::hold(case, &status));
    let until = match judge(case, &status, &joiners)? {
        Judged::Acted(turn) => return Ok(turn.scratch(scratch)),
        Judged::Wait(until) => until,
        Judged::Ready => return Ok(all_ready(case, status)?.converge(labels).scratch(scratch)),
    };
    let lacking: Vec<String> = missing.iter().map(|(what, count)| format!("{count} × {what}")).collect();
    status.message =
        Some(format!("{ready} of {} ready, missing {}", counted(status.instances.len(), "node"), lacking.join(", ")));
    Ok(Turn::write(status).requeue(Requeue::At(later(now, LOOK_SECONDS).min(until))).converge(labels).scratch(scratch))
}

fn all_ready(case: &Case<'_>, mut status: BatchStatus) -> Step<Turn> {
    // Where EC2 could not tell before, a launch that misses the level its gang requires is found out now.
    let unknown = status.instances.iter().any(|one| one.network_nodes.is_empty());
    if unknown
        && case.world.supply.levels(case.batch).required.is_some()
        && let Some(turn) = locate(case, &mut status)?
    {
        return Ok(turn);
    }
    if probe::is_alone(&status) {
        match probe::joined(case, status) {
            Joined::Turn(turn) => return Ok(*turn),
            Joined::Kept(kept) => status = *kept,
        }
    }
    status.phase = BatchPhase::Ready;
    // Not when it was launched: a launch whose nodes never join is no success either.
    status.failed_rounds = 0;
    if status.is(&ConditionKind::Interrupted) {
        status.set(ConditionKind::Interrupted, false, "Repaired", "", case.world.now_real);
    }
    let booked = !matches!(case.batch.spec.owner, Owner::Gang(_));
    status.deadline = booked.then(|| later(case.now(), BOOKED_SECONDS));
    status.message = Some("all nodes ready; waiting for the gang".to_owned());
    Ok(Turn::write(status))
}

/// Taints that nodes of the batch keep: those that they were launched with, and those that their pool gives by now.
pub(super) fn permanent(case: &Case<'_>, status: &BatchStatus) -> Vec<Taint> {
    let launched = status.attempts.iter().filter(|one| Some(&*one.node_pool) == status.node_pool.as_deref());
    let now = case.world.supply.taints(status.node_pool.as_deref());
    launched.flat_map(|attempt| &attempt.taints).cloned().chain(now).collect()
}

/// What a node lacks before a member can use it.
pub(super) fn lacks(
    case: &Case<'_>,
    node: &Node,
    expected: &[(ResourceName, i64)],
    permanent: &[Taint],
    topology: bool,
) -> impl Iterator<Item = String> {
    let keys = &case.world.settings.keys;
    // Taints of the node lifecycle and of initialisation go by themselves; before that no member fits.
    let stays = |taint: &&Taint| *taint.key != *keys.gang_pending && !permanent.contains(*taint);
    let taints = node.taints.iter().filter(stays).map(|taint| format!("removal of taint {}", taint.key));
    let ready = (!node.ready).then(|| "Ready".to_owned());
    let devices = expected.iter().filter(|(resource, amount)| node.allocatable.get(resource.as_str()) < *amount);
    let devices = devices.map(|(resource, _)| resource.to_string());
    let zone = (!node.labels.contains_key(keys.zone)).then(|| keys.zone.to_owned());
    let layer = topology.then(|| format!("{}1", keys.network_layer_prefix));
    let layer = layer.filter(|layer| !node.labels.contains_key(layer.as_str()));
    taints.chain(ready).chain(devices).chain(zone).chain(layer)
}

fn carries(node: &Node, key: &str, value: &str) -> bool {
    node.labels.get(key).is_some_and(|known| **known == *value)
}

/// Labels that are known only after the launch, or that outlive it: a booking goes on with the batch that replaces one.
fn late_labels(case: &Case<'_>, status: &BatchStatus) -> BTreeMap<Arc<str>, Arc<str>> {
    let keys = &case.world.settings.keys;
    let mut labels = BTreeMap::new();
    if let Some(id) = status.placement_group_id.clone().filter(|_| status.group().is_some()) {
        labels.insert(keys.placement_group.into(), id.into());
    }
    if let Owner::Request(request) = &case.batch.spec.owner {
        labels.insert(keys.booking.into(), request.uid.as_str().into());
    }
    labels
}

/// Late labels that nodes of the batch lack.
fn labels(case: &Case<'_>, status: &BatchStatus) -> Vec<Converge> {
    let late = late_labels(case, status);
    let lacking = |instance: &BatchMember| {
        let name = instance.node.as_deref()?;
        let node = case.node(name)?;
        let lacks = late.iter().any(|(key, value)| !carries(node, key, value));
        lacks.then(|| Converge::Label { node: name.to_owned(), labels: late.clone() })
    };
    status.instances.iter().filter_map(lacking).collect()
}

/// Nodes that are ready and that nobody waits for any more: their gang may have run and ended before anybody wrote down that
/// it did. They stay as those of any gang that ended, for the `consolidateAfter` of their pool and open to everybody.
pub(super) fn unneeded(case: &Case<'_>) -> Turn {
    idle(case, "its gang ended; nodes idle")
}

/// Nodes that are held for nobody any more are opened, and then idle.
fn idle(case: &Case<'_>, why: &str) -> Turn {
    let mut status = case.status();
    let now = case.now();
    let edits = hold::lift(case, &status);
    if !edits.is_empty() {
        return Turn::wait(Requeue::At(later(now, 2))).converge(edits);
    }
    status.phase = BatchPhase::Idle;
    status.deadline = None;
    status.idle_since = Some(now);
    status.message = Some(why.to_owned());
    Turn::write(status)
}

/// Waits for the gang to be bound on the nodes; then they are held no longer.
pub(super) fn ready(case: &Case<'_>) -> Step<Turn> {
    let mut status = case.status();
    let now = case.now();
    if owner::is_used(case, &status) {
        let edits = hold::lift(case, &status);
        if !edits.is_empty() {
            return Ok(Turn::wait(Requeue::At(later(now, 2))).converge(edits));
        }
        status.phase = BatchPhase::InUse;
        status.deadline = None;
        status.idle_since = None;
        status.message = None;
        return Ok(Turn::write(status));
    }
    let of_gang = matches!(case.batch.spec.owner, Owner::Gang(_));
    let deadline = status.deadline.filter(|_| !of_gang);
    // Who is planned here is about to come.
    if deadline.is_some_and(|deadline| deadline <= now) && !teardown::assigned(case.world.snapshot, &status) {
        return Ok(idle(case, "the booking expired: nobody used the nodes in time"));
    }
    let edits = hold::hold(case, &status);
    if !edits.is_empty() {
        return Ok(Turn::wait(Requeue::At(later(now, 2))).converge(edits));
    }
    let next = deadline.filter(|deadline| *deadline > now);
    Ok(Turn::wait(Requeue::At(next.unwrap_or_else(|| later(now, 30)))))
}
