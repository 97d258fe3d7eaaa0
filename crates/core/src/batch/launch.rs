//! Candidates and attempts: the atomic recipe, step by step, each with its intent persisted before the call.

use jiff::{SignedDuration, Timestamp};

use super::candidates::{back_off, group_name};
use super::case::{Case, Step, Stop, Turn, failed, later};
use super::claim::reserves;
use super::counted::counted;
use super::decision::{Change, LastLooks, Made, Note, Refused, Requeue, Scratch};
use super::judge::{Confirm, Verdict, Why, capacity_pools, judge, launched_as};
use super::{owner, rollback};
use crate::ec2::blame::Blame;
use crate::ec2::error::{CallError, ErrorClass, Next as Try};
use crate::ec2::quota::vcpu_quota;
use crate::ec2::seen::{GroupState, Instance, InstanceState};
use crate::model::batch::{
    Attempt, AttemptOutcome, AttemptOverride, BatchMember, BatchPhase, BatchStatus, MemberState,
};
use crate::model::launch::{CapacityType, Override, Pool};
use crate::model::launch::{LaunchAnswer, LaunchParameters, LaunchWay, LaunchedInstance};
use crate::model::names::InstanceId;
use crate::model::tags::{FleetTags, ResourceKind, TAG_CLUSTER_UID, Tags};

/// An unknown outcome is looked for this often before the attempt counts as lost.
pub(super) const SWEEPS: u32 = 4;
/// A template or group that EC2 does not show this long after the attempt began is gone.
pub(super) const SHOWS_WITHIN: SignedDuration = SignedDuration::from_mins(5);

/// Seconds before the same candidate is tried again under a token of its own: they double each time, up to a most.
const SAME_AGAIN: i64 = 5;
const SAME_AT_LEAST_EVERY: i64 = 120;
/// How often it is tried again in a row, nine minutes altogether: then another candidate is.
const SAME_AT_MOST: usize = 8;

/// Group, template, launch, judgement.
pub(super) fn launching(case: &Case<'_>) -> Step<Turn> {
    let Some(attempt) = case.batch.status.last() else {
        let mut status = case.status();
        status.phase = BatchPhase::Pending;
        return Ok(Turn::write(status));
    };
    // The answer comes first: what was launched must be known whatever else cannot be read.
    if let Some(parameters) = attempt.parameters.as_ref().map(|stored| &*stored.value) {
        for first in [true, false] {
            let change = Change::Launch { parameters: Box::new(parameters.clone()), first };
            if let Some(answer) = case.outcome(&change) {
                let answer = answered(answer);
                return settle(case, parameters, judge(parameters, first, &answer), answer);
            }
        }
    }
    // A group that a reservation was made in is there, and not ours to make.
    if attempt.group
        && attempt.reservation_group.is_none()
        && let Some(turn) = ensure_group(case)?
    {
        return Ok(turn);
    }
    let Some(parameters) = &attempt.parameters else { return prepare(case, attempt) };
    // A former process may have sent the call: its answer is that of a replay, unless this one has just written it down.
    let first = case.memory.scratch.first == Some(attempt.number);
    if !first
        && is_stale(case, attempt)
        && let Some(turn) = found(case, &case.status(), &parameters.value)?
    {
        return Ok(turn);
    }
    if let Some(looks) = last_looks(case, attempt) {
        if let Some(turn) = found(case, &case.status(), &parameters.value)? {
            return Ok(turn);
        }
        if looks < LAST_LOOKS {
            return Ok(look_later(case, case.status(), looks));
        }
        // What appears after this is collected: its attempt is no longer in flight.
        return lose(case, case.status(), &Loss::unknown(attempt.code.clone()));
    }
    let change = Change::Launch { parameters: Box::new(LaunchParameters::clone(&parameters.value)), first };
    let scratch = Scratch { first: None, ..case.memory.scratch };
    Err(Stop::Change(Box::new(Turn { change: Some(change), scratch: Some(scratch), ..Turn::default() })))
}

/// A call that was sent longer ago than this is looked for before it is sent again: how long EC2 keeps its token is not
/// documented, and a token that is forgotten launches once more.
const REPLAYS_WITHIN: SignedDuration = SignedDuration::from_mins(3);

/// Whether EC2 may have forgotten the token of an attempt.
pub(super) fn is_stale(case: &Case<'_>, attempt: &Attempt) -> bool {
    attempt.started.is_none_or(|begun| case.now().duration_since(begun) > REPLAYS_WITHIN)
}

/// The answer to a launch.
pub(super) fn answered(result: &Result<Made, CallError>) -> Result<LaunchAnswer, CallError> {
    match result {
        Ok(Made::Launched(answer)) => Ok(answer.clone()),
        // No other answer belongs to a launch.
        Ok(Made::Nothing | Made::Template { .. } | Made::Fleets(_)) => Ok(LaunchAnswer::default()),
        Err(error) => Err(error.clone()),
    }
}

/// EC2's id of the request, whatever it answered.
pub(super) fn request_id(answer: &Result<LaunchAnswer, CallError>) -> Option<String> {
    match answer {
        Ok(answer) => answer.request_id.clone(),
        Err(error) => error.request_id.clone(),
    }
}

/// `None` once the placement group can be used.
fn ensure_group(case: &Case<'_>) -> Step<Option<Turn>> {
    let Some(name) = &case.batch.status.placement_group else { return Ok(None) };
    let tags = case.tags(case.batch.status.attempt);
    // What a class or a person adds never takes the place of what makes the group ours.
    let mut all =
        case.batch.status.last().map_or_else(Tags::new, |attempt| case.world.supply.tags(case.batch, attempt));
    all.extend(tags.of(ResourceKind::PlacementGroup));
    let create = Change::CreateGroup { name: name.clone(), tags: all };
    match case.outcome(&create) {
        Some(Ok(_)) => return Ok(Some(look_again(case))),
        // Created by an answer that was lost: the next look finds it.
        Some(Err(error)) if error.kind == ErrorClass::AlreadyExists => return Ok(Some(look_again(case))),
        Some(Err(error))
            if matches!(error.kind, ErrorClass::GroupLimit | ErrorClass::Permission | ErrorClass::Configuration) =>
        {
            return lose(case, case.status(), &Loss::of_call(error)).map(Some);
        }
        Some(Err(error)) => return Err(failed(error, true)),
        None => {}
    }
    if matches!(case.memory.done.as_ref().map(|done| &done.change), Some(Change::CreateTemplate(_))) {
        return Ok(None);
    }
    match case.group(name)? {
        Some(group) if !tags.own(&group.tags) => {
            // The name is taken by somebody else: a group of the next generation has another.
            let mut status = case.status();
            status.generation = status.generation.saturating_add(1);
            status.placement_group = Some(group_name(case, status.generation));
            Ok(Some(Turn::write(status)))
        }
        Some(group) if group.state == GroupState::Available => Ok(None),
        Some(_) => Ok(Some(look_again(case))),
        None => Err(Stop::Change(Box::new(Turn { change: Some(create), ..Turn::default() }))),
    }
}

/// Mostly the group is there at the first look.
fn look_again(case: &Case<'_>) -> Turn {
    let looks = case.memory.scratch.group_looks;
    let pause = SignedDuration::from_millis(100_i64 << looks.min(4));
    let scratch = Scratch { group_looks: looks.saturating_add(1), ..case.memory.scratch };
    Turn::wait(Requeue::Pause(case.now().saturating_add(pause).unwrap_or(Timestamp::MAX))).scratch(scratch)
}

/// The launch template, then the parameters of the call; written down before anything is sent.
fn prepare(case: &Case<'_>, attempt: &Attempt) -> Step<Turn> {
    let spec = match case.world.supply.template(case.batch, attempt) {
        Ok(spec) => spec,
        Err(message) => return lose(case, case.status(), &Loss::stop(message)),
    };
    let mut status = case.status();
    let name = spec.name();
    if !status.launch_templates.contains(&name) {
        status.launch_templates.push(name);
    }
    let (id, version) = match case.change(Change::CreateTemplate(Box::new(spec)), Some(status.clone()))? {
        Ok(Made::Template { id, version }) => (id.clone(), *version),
        Ok(Made::Nothing | Made::Launched(_) | Made::Fleets(_)) => return Ok(Turn::wait(Requeue::Now)),
        Err(error) if matches!(error.kind, ErrorClass::Configuration | ErrorClass::Permission) => {
            return lose(case, status, &Loss::of_call(error));
        }
        Err(error) => return Err(failed(error, true)),
    };
    let own_group = status.placement_group.clone().filter(|_| attempt.group);
    let parameters = LaunchParameters {
        count: attempt.count,
        instance_type: attempt.instance_type.clone(),
        zone: attempt.zone.clone(),
        subnet_id: attempt.subnet.clone(),
        capacity_type: attempt.capacity_type,
        template_id: id.clone(),
        template_version: version,
        placement_group: attempt.reservation_group.clone().or(own_group),
        way: attempt.way,
        reservation: attempt.reservation.clone(),
        partial: case.batch.spec.partial,
        tags: case.tags(attempt.number),
        fleet_tags: FleetTags::Documented,
        overrides: attempt.overrides.iter().map(as_asked).collect(),
        token: String::new(),
    }
    .with_token(status.generation);
    if let Some(last) = status.attempts.last_mut() {
        last.template = Some(id);
        last.token = Some(parameters.token.clone());
        last.parameters = Some(parameters.into());
    }
    // From here on the call may have been sent: whoever finds these parameters replays it.
    let scratch = Scratch { first: Some(attempt.number), group_looks: 0, ..case.memory.scratch };
    Ok(Turn::write(status).scratch(scratch))
}

fn as_asked(one: &AttemptOverride) -> Override {
    Override { instance_type: one.instance_type.clone(), zone: one.zone.clone(), subnet_id: one.subnet.clone() }
}

fn settle(
    case: &Case<'_>,
    parameters: &LaunchParameters,
    verdict: Verdict,
    answer: Result<LaunchAnswer, CallError>,
) -> Step<Turn> {
    let mut status = case.status();
    if let Some(last) = status.attempts.last_mut() {
        last.request_id = request_id(&answer).or(last.request_id.take());
        // Written with the outcome: the fleet is found by its id alone.
        last.fleet = answer.as_ref().ok().and_then(|answer| answer.fleet_id.clone()).or(last.fleet.take());
    }
    match verdict {
        Verdict::Won(ids) => {
            let answer = answer.unwrap_or_default();
            Ok(won(case, status, parameters, Won { ids, answer: &answer }))
        }
        Verdict::Violated(ids) => {
            let why = another_number(&ids, parameters.count);
            Ok(rollback::violated(case, status, &ids, &why))
        }
        Verdict::Lost { why, unavailable, confirm }
        | Verdict::Quota { why, unavailable, confirm }
        | Verdict::Configuration { why, unavailable, confirm } => {
            if confirm == Confirm::FleetAndSweep
                && let Some(turn) = found(case, &status, parameters)?
            {
                return Ok(turn);
            }
            lose(case, status, &Loss::new(&why, &unavailable))
        }
        Verdict::Throttled { why, unavailable } => {
            if let Some(turn) = found(case, &status, parameters)? {
                return Ok(turn);
            }
            lose(case, status, &Loss::new(&why, &unavailable))
        }
        Verdict::TokenRefused { why } => {
            if let Some(turn) = found(case, &status, parameters)? {
                return Ok(turn);
            }
            lose(case, status, &Loss::new(&why, &[]))
        }
        // A template or group that EC2 does not see yet is there in a moment. If it is not, it is gone, and the next
        // attempt makes another.
        Verdict::NotDecided { why } if why.kind == ErrorClass::NotVisibleYet => {
            if let Some(turn) = found(case, &status, parameters)? {
                return Ok(turn);
            }
            let begun = status.last().and_then(|attempt| attempt.started);
            let shows = |at: Timestamp| case.now().duration_since(at) < SHOWS_WITHIN;
            if !begun.is_some_and(shows) {
                return lose(case, status, &Loss::new(&why, &[]));
            }
            Ok(replay(case, status, "launch", Some(why), Sweep::Counted))
        }
        // Whoever asked may be gone by now. A call that EC2 has not decided about may have been carried out all the same.
        Verdict::NotDecided { why } if owner::unwanted(case)? => {
            if let Some(turn) = found(case, &status, parameters)? {
                return Ok(turn);
            }
            if status.last().map_or(0, |attempt| attempt.sweeps) >= SWEEPS {
                return lose(case, status, &Loss::new(&why, &[]));
            }
            Ok(replay(case, status, "launch", Some(why), Sweep::Counted))
        }
        Verdict::NotDecided { why } => Ok(replay(case, status, "launch", Some(why), Sweep::Not)),
        Verdict::Unknown { why, unavailable } => {
            if let Some(turn) = found(case, &status, parameters)? {
                return Ok(turn.note(lacking(&unavailable, parameters.count)));
            }
            if status.last().map_or(0, |attempt| attempt.sweeps) >= SWEEPS {
                if let Some(last) = status.attempts.last_mut() {
                    last.code = why.and_then(|why| why.code);
                }
                return Ok(look_later(case, status, 0).note(lacking(&unavailable, parameters.count)));
            }
            Ok(replay(case, status, "launch", why, Sweep::Counted).note(lacking(&unavailable, parameters.count)))
        }
    }
}

/// Offerings that lacked capacity.
pub(super) fn lacking(unavailable: &[Pool], count: u32) -> Note {
    Note::NoCapacity { pools: unavailable.to_vec(), count }
}

/// How often what the last of the calls made is looked for, and the seconds before the first of these looks: EC2 may have carried it
/// out and show nothing of it yet. Without them whatever it made would be found by the collection alone, beside the next attempt.
pub(super) const LAST_LOOKS: u32 = 3;
const FIRST_LOOK_AFTER: i64 = 4;

/// How often what an attempt made was looked for since its call was sent for the last time; `None`: it may be sent again.
pub(super) fn last_looks(case: &Case<'_>, attempt: &Attempt) -> Option<u32> {
    case.memory.scratch.last_looks.filter(|last| last.attempt == attempt.number).map(|last| last.looks)
}

/// Looks once more, later, without another call. What the last answer named is written down.
pub(super) fn look_later(case: &Case<'_>, status: BatchStatus, looks: u32) -> Turn {
    let requeue = Requeue::Pause(later(case.now(), FIRST_LOOK_AFTER << looks.min(LAST_LOOKS)));
    let looked = looks.saturating_add(1);
    let last_looks = status.last().map(|attempt| LastLooks { attempt: attempt.number, looks: looked });
    let turn = if status == case.batch.status { Turn::wait(requeue) } else { Turn::write(status).requeue(requeue) };
    turn.scratch(Scratch { last_looks, ..case.memory.scratch })
}

/// Longest pause before a launch that EC2 has not decided about is sent again.
const LONGEST_REPLAY_SECONDS: i64 = 30;

/// Whether what a launch made was looked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sweep {
    Counted,
    Not,
}

/// The same call again after a pause: what a launch or replacement (`what`) made is open.
pub(super) fn replay(case: &Case<'_>, mut status: BatchStatus, what: &str, why: Option<Why>, sweep: Sweep) -> Turn {
    let mut turn = 0;
    if let Some(last) = status.attempts.last_mut() {
        last.replayed = true;
        last.sweeps = last.sweeps.saturating_add(u32::from(sweep == Sweep::Counted));
        turn = last.sweeps;
    }
    let stated = why.map_or_else(|| "no answer".to_owned(), |why| why.code.unwrap_or(why.message));
    status.message = Some(format!("the outcome of the {what} is open ({stated}): the same call is sent again"));
    let pause = match sweep {
        Sweep::Counted => 1_i64 << turn.min(4),
        // As long again as it has been tried already: EC2 is busy, or asks for fewer calls.
        Sweep::Not => {
            let begun = status.last().and_then(|attempt| attempt.started);
            begun.map_or(1, |begun| case.now().duration_since(begun).as_secs()).clamp(1, LONGEST_REPLAY_SECONDS)
        }
    };
    Turn::write(status).requeue(Requeue::Pause(later(case.now(), pause)))
}

/// What a launch made, whatever was answered: by the id of its fleet, if an answer named one, and by tags.
pub(super) fn made(case: &Case<'_>, fleet: Option<&str>, parameters: &LaunchParameters) -> Step<Vec<LaunchedInstance>> {
    let mut launched = std::collections::BTreeMap::new();
    // An instant fleet is found by its id alone, and knows of instances that no tag finds yet.
    if let Some(fleet) = fleet
        && let Some(answer) = case.fleet(fleet)?
    {
        launched.extend(answer.instances.into_iter().map(|instance| (instance.id.clone(), instance)));
    }
    for instance in case.tagged(parameters.tags.sweep())? {
        if instance.state.live() {
            let (instance_type, zone) = (instance.instance_type, instance.zone);
            launched.insert(instance.id.clone(), LaunchedInstance { id: instance.id, instance_type, zone });
        }
    }
    Ok(launched.into_values().collect())
}

/// Looks for what the attempt made, by fleet id and by tags. The next step if anything was found.
fn found(case: &Case<'_>, status: &BatchStatus, parameters: &LaunchParameters) -> Step<Option<Turn>> {
    let fleet = status.last().and_then(|attempt| attempt.fleet.clone());
    let instances = made(case, fleet.as_deref(), parameters)?;
    if instances.is_empty() {
        return Ok(None);
    }
    let status = status.clone();
    let few = u32::try_from(instances.len()).is_ok_and(|found| found < parameters.count);
    if few && status.last().map_or(0, |attempt| attempt.sweeps) < SWEEPS {
        // EC2 may not show the rest yet: whoever rolled back what is seen would leave it behind.
        return Ok(Some(replay(case, status, "launch", None, Sweep::Counted)));
    }
    let answer = LaunchAnswer { fleet_id: None, request_id: None, instances, errors: Vec::new() };
    Ok(Some(match judge(parameters, false, &Ok(answer.clone())) {
        Verdict::Won(ids) => won(case, status, parameters, Won { ids, answer: &answer }),
        Verdict::Violated(ids) => {
            let why = another_number(&ids, parameters.count);
            rollback::violated(case, status, &ids, &why)
        }
        Verdict::Lost { .. }
        | Verdict::Quota { .. }
        | Verdict::Configuration { .. }
        | Verdict::Throttled { .. }
        | Verdict::NotDecided { .. }
        | Verdict::TokenRefused { .. }
        | Verdict::Unknown { .. } => return Ok(None),
    }))
}

/// Another launch than the one asked for, as a person reads it.
pub(super) fn another_number(ids: &[InstanceId], asked: u32) -> String {
    let asked = usize::try_from(asked).unwrap_or(usize::MAX);
    match ids.len() {
        came if came < asked => format!("EC2 started {came} of the {asked} instances asked for"),
        came if came > asked => format!("EC2 started {} where {asked} were asked for", counted(came, "instance")),
        _ => "EC2 started other instances than those asked for".to_owned(),
    }
}

/// A launch that was won.
struct Won<'a> {
    ids: Vec<InstanceId>,
    answer: &'a LaunchAnswer,
}

/// What EC2 chose among the overrides of the last attempt is what the batch is from now on.
fn chosen(case: &Case<'_>, status: &mut BatchStatus, chosen: &Pool) {
    let wanted = status.count;
    let Some(last) = status.attempts.last_mut() else { return };
    let is_chosen = |one: &&AttemptOverride| one.instance_type == chosen.instance_type && one.zone == chosen.zone;
    let Some(one) = last.overrides.iter().find(is_chosen).cloned() else { return };
    last.instance_type.clone_from(&one.instance_type);
    last.zone.clone_from(&one.zone);
    last.subnet = one.subnet;
    let of_pool = [(last.node_pool.as_str(), one.instance_type.as_str(), wanted)];
    let takes = |pool: &str, instance_type: &str| case.world.supply.takes(pool, instance_type);
    // Where nobody knows the type, as before the first look at EC2, the most of all overrides stays written down.
    if takes(&last.node_pool, &one.instance_type).is_some() {
        status.reserved = reserves(of_pool.into_iter(), takes);
    }
    status.instance_type = Some(one.instance_type);
    status.zone = Some(one.zone);
    status.price = Some(one.price.unwrap_or(0).saturating_mul(u64::from(wanted)));
}

fn won(case: &Case<'_>, mut status: BatchStatus, parameters: &LaunchParameters, won: Won<'_>) -> Turn {
    let now = case.now();
    let Won { ids, answer } = won;
    let pool = launched_as(parameters, &answer.instances).unwrap_or_else(|| parameters.pool());
    chosen(case, &mut status, &pool);
    let got = u32::try_from(ids.len()).unwrap_or(u32::MAX);
    let wanted = status.count;
    let attempt = status.attempt;
    let partial = case.batch.spec.partial;
    let member = |(place, id)| BatchMember {
        place: partial.then_some(place),
        ..BatchMember::new(id, attempt, MemberState::Launched)
    };
    status.instances = (0..).zip(ids).map(member).collect();
    status.count = got;
    status.phase = BatchPhase::Launched;
    status.deadline = Some(later(now, 15 * 60));
    let stated = if got < wanted {
        // Where part will do: what is missing is recorded as a shrink and asked for by somebody else.
        let left = u128::from(status.price.unwrap_or(0)) * u128::from(got) / u128::from(wanted.max(1));
        status.price = status.price.map(|_| u64::try_from(left).unwrap_or(u64::MAX));
        format!("{got} of {} launched, as many as there were", counted(wanted, "instance"))
    } else {
        format!("{} launched", counted(got, "instance"))
    };
    status.message = Some(stated.clone());
    status.close(AttemptOutcome::Won, None, (got < wanted).then_some(stated), now);
    let mut turn = Turn::write(status);
    // Of several EC2 names those that had nothing, although another one did.
    let dry = || capacity_pools(parameters, &answer.errors).into_iter().filter(|one| *one != pool);
    let dry: Vec<Pool> = if parameters.overrides.is_empty() { Vec::new() } else { dry().collect() };
    if !dry.is_empty() {
        turn = turn.note(lacking(&dry, 1));
    }
    turn = turn.note(Note::Launched { pool: pool.clone(), count: got });
    if got < wanted { turn.note(lacking(&[pool], 1)) } else { turn }
}

/// An attempt that launched nothing.
#[derive(Clone, Debug)]
pub(super) struct Loss {
    /// What the reason means; `None` if the outcome stayed unknown.
    kind: Option<ErrorClass>,
    next: Try,
    /// The call that was refused, if it is not the launch itself.
    operation: Option<String>,
    code: Option<String>,
    message: String,
    /// EC2's id of the refused call, if it is not the launch itself.
    request_id: Option<String>,
    /// Type and zone that EC2 names, where it names one of several.
    named: Option<(String, String)>,
    unavailable: Vec<Pool>,
}

impl Loss {
    fn new(why: &Why, unavailable: &[Pool]) -> Self {
        Self {
            kind: Some(why.kind),
            next: why.kind.next(),
            operation: None,
            code: why.code.clone(),
            message: why.message.clone(),
            request_id: None,
            named: why.instance_type.clone().zip(why.zone.clone()),
            unavailable: unavailable.to_vec(),
        }
    }

    /// Nothing was found of what a call may have made.
    fn unknown(code: Option<String>) -> Self {
        Self {
            kind: None,
            next: Try::OtherCandidate,
            operation: None,
            code,
            message: "the outcome stayed unknown and nothing was found".to_owned(),
            request_id: None,
            named: None,
            unavailable: Vec::new(),
        }
    }

    fn of_call(error: &CallError) -> Self {
        Self {
            kind: Some(error.kind),
            next: error.kind.next(),
            operation: Some(error.operation.clone()),
            code: error.code.clone(),
            message: error.message.clone(),
            request_id: error.request_id.clone(),
            named: None,
            unavailable: Vec::new(),
        }
    }

    /// Found before anything was asked.
    fn stop(message: String) -> Self {
        Self {
            kind: None,
            next: Try::Stop,
            operation: None,
            code: None,
            message,
            request_id: None,
            named: None,
            unavailable: Vec::new(),
        }
    }
}

/// Instances of ours that EC2 is ending, and that may still count towards the quota which a launch of this type was refused for:
/// virtual CPUs are counted by family, interfaces and volumes over all.
pub(super) fn ending(case: &Case<'_>, instance_type: &str, code: Option<&str>) -> Step<usize> {
    let ours = Tags::from([(TAG_CLUSTER_UID.to_owned(), case.world.settings.cluster_uid.clone())]);
    let by_family = matches!(code, Some("VcpuLimitExceeded" | "MaxSpotInstanceCountExceeded"));
    let family = |instance_type: &str| vcpu_quota(instance_type, CapacityType::OnDemand);
    let counts = |instance: &&Instance| {
        instance.state == InstanceState::ShuttingDown
            && (!by_family || family(&instance.instance_type) == family(instance_type))
    };
    Ok(case.tagged(ours)?.iter().filter(counts).count())
}

/// How often in a row the candidate of the last attempt was tried before it, each time to be tried again.
fn tried_again(status: &BatchStatus) -> usize {
    let Some((last, before)) = status.attempts.split_last() else { return 0 };
    let same = |one: &&Attempt| one.outcome == AttemptOutcome::Retry && asked(one) == asked(last);
    before.iter().rev().take_while(same).count()
}

/// Closes the attempt as lost, with zero instances.
fn lose(case: &Case<'_>, mut status: BatchStatus, loss: &Loss) -> Step<Turn> {
    let now = case.now();
    if let (Some(id), Some(last)) = (&loss.request_id, status.attempts.last_mut()) {
        last.request_id = Some(id.clone());
    }
    let mut next = loss.next;
    let again = tried_again(&status);
    let mut wait = SAME_AGAIN.saturating_mul(1 << again.min(8)).min(SAME_AT_LEAST_EVERY);
    let mut why = loss.message.clone();
    // Where part will do, none at all is all there is.
    let asked_for = if case.batch.spec.partial { 1 } else { status.count };
    let mut notes = vec![lacking(&loss.unavailable, asked_for)];
    match loss.kind {
        Some(ErrorClass::Quota | ErrorClass::SpotQuota) => {
            let refused = status.last().map(|attempt| attempt.instance_type.clone()).unwrap_or_default();
            let ending = ending(case, &refused, loss.code.as_deref())?;
            if ending > 0 && again < SAME_AT_MOST {
                // No verdict on the quota: the same candidate again once they are gone.
                next = Try::SameCandidate;
                wait = wait.max(15);
                why = format!("{why}; {ending} instances are still shutting down and may count");
            }
        }
        // Finished fleets of ours go first; where there are none, RunInstances is another way.
        Some(ErrorClass::FleetLimit) => {
            next = Try::SameCandidate;
            why = format!("{why}; finished fleets of ours are deleted");
        }
        Some(ErrorClass::ReservationFull) => {
            notes.push(Note::ForgetReservations);
            let target = status.last().and_then(|attempt| attempt.reservation.as_ref());
            notes.extend(target.map(|target| Note::ReservationFull(target.id.clone())));
        }
        Some(ErrorClass::Permission) => {
            // In an item of a fleet's errors nobody has noticed it yet.
            let by_run = status.last().is_some_and(|attempt| attempt.way == LaunchWay::Run);
            let operation = if by_run { "RunInstances" } else { "CreateFleet" };
            notes.push(Note::Denied {
                operation: loss.operation.clone().unwrap_or_else(|| operation.to_owned()),
                code: loss.code.clone(),
                message: loss.message.clone(),
            });
        }
        _other => {}
    }
    if next == Try::SameCandidate && again >= SAME_AT_MOST {
        // What has gone on for so long is no matter of a moment: others may be better off.
        next = if loss.next == Try::SameCandidate { Try::OtherCandidate } else { loss.next };
    }
    let reservation = status.last().and_then(|attempt| attempt.reservation.as_ref()).map(|target| target.id.clone());
    if let (Some(kind), Some(id)) = (loss.kind, reservation)
        && Blame::of(kind, loss.code.as_deref(), &loss.message) == Some(Blame::Reservations)
    {
        // It is left alone, and the class that chose it is not to blame: it may choose others, and the pool another capacity type.
        notes.extend([Note::ForgetReservations, Note::ReservationGone(id)]);
        next = Try::OtherCandidate;
    }
    if let (Some(kind), Some(attempt)) = (loss.kind, status.last())
        && next == loss.next
    {
        notes.push(Note::Refused { kind, code: loss.code.clone(), asked: refused(attempt, loss.named.as_ref()) });
    }
    if let (Some(kind), Try::Stop, Some(pool)) = (loss.kind, next, &status.node_pool)
        && let Some(blamed) = case.world.supply.blame(pool, kind, loss.code.as_deref(), &loss.message)
    {
        notes.push(Note::Blame { pool: pool.clone(), kind, code: loss.code.clone(), message: loss.message.clone() });
        why = blamed;
    }
    let outcome = match next {
        Try::SameCandidate | Try::WithoutFleet => AttemptOutcome::Retry,
        Try::OtherCandidate | Try::OtherCapacityType | Try::OtherQuota | Try::WithoutGroup | Try::Stop => {
            AttemptOutcome::Lost
        }
    };
    let stated = loss.code.clone().unwrap_or_else(|| why.clone());
    status.close(outcome, loss.code.clone(), Some(why.clone()), now);
    status.phase = BatchPhase::Pending;
    if status.last().is_some_and(|attempt| attempt.replayed && attempt.group) {
        // What its calls may have made all the same occupies the group, and ties it to that zone: the next attempt has one
        // of its own, and the collection deletes this one once it is empty.
        status.placement_group = None;
        status.placement_group_id = None;
        status.generation = status.generation.saturating_add(1);
    }
    let number = status.attempt;
    let lost = |what: &str| Some(format!("attempt {number} lost ({stated}): {what}"));
    match next {
        Try::OtherCandidate | Try::OtherCapacityType | Try::WithoutGroup => status.message = lost("next candidate"),
        Try::OtherQuota => status.message = lost("next candidate of another quota"),
        Try::WithoutFleet => status.message = lost("the same candidate by RunInstances"),
        Try::SameCandidate => {
            status.message = lost("the same candidate again");
            status.next_attempt_after = Some(later(now, wait));
        }
        Try::Stop => back_off(case, &mut status, &why),
    }
    let mut turn = Turn::write(status);
    if loss.kind == Some(ErrorClass::FleetLimit) {
        turn.change = Some(Change::DeleteFinishedFleets);
        turn.requeue = Some(Requeue::Outcome);
    }
    Ok(notes.into_iter().fold(turn, Turn::note))
}

/// What of an attempt was refused: the one of its overrides that EC2 names, or the first.
fn refused(attempt: &Attempt, named: Option<&(String, String)>) -> Refused {
    let is_named = |one: &&AttemptOverride| {
        named.is_some_and(|(instance_type, zone)| one.instance_type == *instance_type && one.zone == *zone)
    };
    match attempt.overrides.iter().find(is_named) {
        Some(one) => Refused {
            instance_type: one.instance_type.clone(),
            zone: one.zone.clone(),
            subnet: one.subnet.clone(),
            ..asked(attempt)
        },
        None => asked(attempt),
    }
}

pub(super) fn asked(attempt: &Attempt) -> Refused {
    Refused {
        instance_type: attempt.instance_type.clone(),
        zone: attempt.zone.clone(),
        capacity_type: attempt.capacity_type,
        subnet: attempt.subnet.clone(),
        count: attempt.count,
    }
}

#[cfg(test)]
mod tests {
    use super::super::fixtures::attempt;
    use super::*;

    #[test]
    fn what_ec2_names_is_what_was_refused_and_else_the_first_of_what_was_asked_for() {
        let one = |instance_type: &str, zone: &str| AttemptOverride {
            instance_type: instance_type.to_owned(),
            zone: zone.to_owned(),
            subnet: format!("subnet-{zone}"),
            price: None,
        };
        let overrides = vec![one("m5.large", "a"), one("m5.large", "b"), one("m6i.large", "a"), one("m6i.large", "b")];
        let attempt = Attempt { overrides, ..attempt() };
        let of = |named: Option<(&str, &str)>| {
            let named = named.map(|(instance_type, zone)| (instance_type.to_owned(), zone.to_owned()));
            let refused = refused(&attempt, named.as_ref());
            (refused.instance_type, refused.zone, refused.subnet)
        };
        let expected = |one: [&str; 3]| (one[0].to_owned(), one[1].to_owned(), one[2].to_owned());
        assert_eq!(of(Some(("m6i.large", "b"))), expected(["m6i.large", "b", "subnet-b"]));
        assert_eq!(of(Some(("m6i.large", "a"))), expected(["m6i.large", "a", "subnet-a"]));
        let first = expected([&attempt.instance_type, &attempt.zone, &attempt.subnet]);
        assert_eq!(of(Some(("m7i.large", "a"))), first, "none that was asked for");
        assert_eq!(of(None), first);
    }
}
