//! Candidates and attempts: the atomic recipe, step by step, each with its intent persisted before the call.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use muster_api::crd::{BatchAttempt, BatchHold, BatchInstance, Fill, NodeBatchStatus};
use muster_core::batch::{Confirm, Located, Verdict, Why, dollars, judge, micros, pause, untried};
use muster_core::ec2::{
    BatchTags, Blame, CallError, CapacityType, ErrorClass, GroupState, InstanceState, LaunchAnswer, LaunchParameters,
    LaunchWay, LaunchedInstance, Next as Try, ResourceKind, TAG_CLUSTER_UID, Tags, Target, classify,
    placement_group_name,
};
use muster_core::model::names::InstanceId;
use muster_core::offering::{Asked, Ranked};
use rand::RngExt;
use tracing::{info, warn};

use super::batch::{Next, later};
use super::ranking::Before;
use super::store::{Held, close_attempt, past};
use super::{Context, canary, class, pool, ranking, teardown, template};
use crate::cloud::{Changes, for_class};
use crate::cluster::State;

/// An unknown outcome is looked for this often before the attempt counts as lost.
const SWEEPS: u32 = 4;

/// Launches that may miss the required level before the batch waits for a person.
const MISSES: u32 = 2;

/// The word for a call in an attempt.
pub(super) fn way(way: LaunchWay) -> &'static str {
    match way {
        LaunchWay::Fleet => "fleet",
        LaunchWay::Run => "run",
    }
}

/// Picks the next candidate, or waits.
pub(super) async fn pending(context: &Context, held: &mut Held, state: &State) -> anyhow::Result<Next> {
    let mut status = held.status();
    let now = context.clock.now();
    if !status.launch_templates.is_empty() {
        // Each attempt has a template of its own; between two attempts none is needed, and a drought has many.
        context.cloud.delete_launch_templates(&tags(context, held, status.attempt)).await?;
        status.launch_templates.clear();
        held.write(context, status).await?;
        return Ok(Next::Now);
    }
    let unready = pool::unready(context, state, &held.object.spec.node_pools);
    if canary::held(&status) && unready.is_none() {
        canary::over(&mut status);
        held.write(context, status).await?;
        return Ok(Next::Now);
    }
    if let Some(hold) = status.held.as_ref().filter(|hold| hold.reason != canary::BLOCKED) {
        if hold.seen == generations(held, state) {
            return Ok(Next::At(later(now, 600)));
        }
        status.held = None;
        status.misses = 0;
        status.round_from = status.attempt;
        status.message = Some("pool or class changed: tried again".to_owned());
        held.write(context, status).await?;
        return Ok(Next::Now);
    }
    if let Some(why) = unready {
        // No verdict on capacity: it goes on as soon as one of them is ready again.
        return canary::wait(context, held, state, status, &why).await;
    }
    if let Some(at) = status.next_attempt_after.filter(|at| *at > now) {
        return Ok(Next::At(at));
    }
    ranking::refresh_reservations(context, held, state).await;
    // What is left is looked at and taken by one batch after the other.
    let _turn = context.purchase.lock().await;
    let state = &*context.cluster.load();
    let ranking = ranking::rank(context, held, state, Before::Older, now);
    ranking::show(&mut status, &ranking);
    let past = past(&status.attempts);
    let Some(ranked) = untried(&past, status.round_from, &ranking) else {
        let alone = ranking::rank(context, held, state, Before::Nobody, now);
        if ranking.candidates.is_empty() && untried(&past, status.round_from, &alone).is_some() {
            // No verdict: the older batch may take less than it might, or another pool.
            status.message =
                Some(format!("waits for an older NodeBatch to begin: {}", ranking::nothing_left(&ranking, &[])));
            held.write(context, status).await?;
            return Ok(Next::At(later(now, 5)));
        }
        back_off(
            &mut status,
            now,
            context.options.back_off,
            &ranking::nothing_left(&ranking, &ranking::unusable(context, held, state)),
        );
        // A Capacity Block that begins is no drought: its gang is there when it does.
        let begins = ranking.left_out.iter().filter_map(|left| match &left.reason {
            muster_core::offering::Exclusion::ReservationNotStarted { start, .. } => *start,
            _ => None,
        });
        if let Some(begins) = begins.filter(|start| *start > now).min() {
            status.next_attempt_after = status.next_attempt_after.map(|at| at.min(begins));
        }
        let at = status.next_attempt_after.unwrap_or(now);
        held.write(context, status).await?;
        return Ok(Next::At(at));
    };
    if context.cloud.changes() == Changes::Withheld {
        status.message = Some(ranking::would_launch(ranked));
        held.write(context, status).await?;
        return Ok(Next::At(later(now, 60)));
    }
    begin(context, held, state, status, &ranked.clone(), false).await
}

/// Generations of the pools and classes of a batch: with others it is worth another try.
fn generations(held: &Held, state: &State) -> String {
    let of_pool = |name: &String| {
        let pool = state.pools.get(name)?;
        let class = pool::class_of(state, pool).and_then(|class| class.metadata.generation).unwrap_or_default();
        Some(format!("{name}:{}/{class}", pool.metadata.generation.unwrap_or_default()))
    };
    held.object.spec.node_pools.iter().filter_map(of_pool).collect::<Vec<_>>().join(",")
}

/// Writes down the intent of an attempt on a candidate. `canary`: of one node alone, for [`canary`].
pub(super) async fn begin(
    context: &Context,
    held: &mut Held,
    state: &State,
    mut status: NodeBatchStatus,
    ranked: &Ranked,
    canary: bool,
) -> anyhow::Result<Next> {
    let now = context.clock.now();
    let candidate = &ranked.candidate;
    let number = status.attempt.saturating_add(1);
    "Launching".clone_into(&mut status.phase);
    status.attempt = number;
    status.count = ranked.count;
    status.node_pool = Some(ranked.pool.clone());
    status.instance_type = Some(candidate.instance_type.clone());
    status.zone = Some(candidate.zone.clone());
    status.capacity_type = Some(candidate.capacity_type.as_str().to_owned());
    status.price_per_hour = Some(dollars(ranked.total_micro_usd_per_hour));
    status.next_attempt_after = None;
    status.located.clear();
    status.generation = status.generation.max(1);
    let own_group = candidate.placement_group && candidate.reservation_group.is_none();
    if own_group && status.placement_group.is_none() {
        status.placement_group =
            Some(placement_group_name(&context.options.access.name, &held.uid(), status.generation));
    }
    let into = match &candidate.reservation {
        Some(Target { id, block: true }) => format!(", Capacity Block {id}"),
        Some(Target { id, block: false }) => format!(", reservation {id}"),
        None => String::new(),
    };
    status.message = Some(format!(
        "attempt {number}: {} × {} {} in {}{into}{}",
        ranked.count,
        candidate.instance_type,
        candidate.capacity_type,
        candidate.zone,
        if candidate.placement_group { ", one placement group" } else { "" },
    ));
    let without_fleets = context.refusals.lock().unwrap_or_else(std::sync::PoisonError::into_inner).without_fleets(now);
    let by = if candidate.reservation.is_some() || without_fleets { LaunchWay::Run } else { LaunchWay::Fleet };
    status.attempts.push(BatchAttempt {
        number,
        node_pool: ranked.pool.clone(),
        instance_type: candidate.instance_type.clone(),
        zone: candidate.zone.clone(),
        subnet: candidate.subnet_id.clone(),
        capacity_type: candidate.capacity_type.as_str().to_owned(),
        count: ranked.count,
        group: candidate.placement_group,
        reservation_group: candidate.reservation_group.clone(),
        reservation: candidate.reservation.as_ref().map(|target| target.id.clone()),
        block: candidate.reservation.as_ref().is_some_and(|target| target.block),
        way: way(by).to_owned(),
        // Without an image the template says why.
        image: template::image(context, state, &ranked.pool, &candidate.instance_type).ok(),
        canary,
        outcome: "Launching".to_owned(),
        started: Some(now),
        ..BatchAttempt::default()
    });
    held.write(context, status).await?;
    Ok(Next::Now)
}

/// Waits longer after each round without success: 30 s doubling to 10 min, ±20 percent, so that a drought costs few
/// calls and several batches do not ask at once.
pub(super) fn back_off(status: &mut NodeBatchStatus, now: Timestamp, first: SignedDuration, why: &str) {
    status.failed_rounds = status.failed_rounds.saturating_add(1);
    let pause = pause(first, status.failed_rounds, rand::rng().random_range(80..=120));
    "Pending".clone_into(&mut status.phase);
    status.next_attempt_after = Some(now.saturating_add(pause).unwrap_or(Timestamp::MAX));
    let said: Vec<String> = status
        .attempts
        .iter()
        .rev()
        .take(3)
        .filter_map(|attempt| {
            Some(format!("{} in {}: {}", attempt.instance_type, attempt.zone, attempt.code.as_deref()?))
        })
        .collect();
    let said = if said.is_empty() { String::new() } else { format!(" ({})", said.join("; ")) };
    status.round_from = status.attempt;
    status.message = Some(format!("{why}{said}; next try in {} s", pause.as_secs()));
}

/// Group, template, launch, judgement.
pub(super) async fn launching(context: &Context, held: &mut Held, state: &State) -> anyhow::Result<Next> {
    match class::of_batch(held, state) {
        Some(class) => for_class(class.into(), Box::pin(attempt(context, held, state))).await,
        None => attempt(context, held, state).await,
    }
}

async fn attempt(context: &Context, held: &mut Held, state: &State) -> anyhow::Result<Next> {
    let Some(attempt) = held.attempt() else {
        let mut status = held.status();
        "Pending".clone_into(&mut status.phase);
        held.write(context, status).await?;
        return Ok(Next::Now);
    };
    if matches!(attempt.outcome.as_str(), "Violated" | "Misplaced" | canary::OUTCOME) {
        return roll_back(context, held).await;
    }
    // A group that a reservation was made in is there, and not ours to make.
    if attempt.group && attempt.reservation_group.is_none() {
        match ensure_group(context, held).await? {
            Group::Available => held.group_looks = 0,
            Group::NotYet => {
                // Mostly it is there at the first look.
                let pause = SignedDuration::from_millis(100_i64 << held.group_looks.min(4));
                held.group_looks = held.group_looks.saturating_add(1);
                return Ok(Next::Pause(context.clock.now().saturating_add(pause).unwrap_or(Timestamp::MAX)));
            }
            Group::Foreign => {
                let mut status = held.status();
                status.generation = status.generation.saturating_add(1);
                status.placement_group =
                    Some(placement_group_name(&context.options.access.name, &held.uid(), status.generation));
                held.write(context, status).await?;
                return Ok(Next::Now);
            }
            Group::Lost(error) => {
                return lose(context, held, state, &Loss::of_call(&error)).await;
            }
        }
    }
    if attempt.parameters.is_none() {
        return prepare_and_launch(context, held, state, attempt).await;
    }
    // A former process, or an earlier turn of this one, may have sent the call: this answer is that of a replay.
    let parameters: LaunchParameters = serde_json::from_str(attempt.parameters.as_deref().unwrap_or_default())?;
    launch(context, held, state, &parameters, false).await
}

enum Group {
    Available,
    NotYet,
    /// The name is taken by somebody else: a group of the next generation has another.
    Foreign,
    Lost(CallError),
}

async fn ensure_group(context: &Context, held: &Held) -> anyhow::Result<Group> {
    let status = held.status();
    let Some(name) = &status.placement_group else { return Ok(Group::Available) };
    let tags = tags(context, held, status.attempt);
    if let Some(group) = context.cloud.placement_group(name).await? {
        if !tags.own(&group.tags) {
            return Ok(Group::Foreign);
        }
        return Ok(if group.state == GroupState::Available { Group::Available } else { Group::NotYet });
    }
    match context.cloud.create_placement_group(name, &tags.of(ResourceKind::PlacementGroup)).await {
        Ok(()) => Ok(Group::NotYet),
        // Created by an answer that was lost: the next look finds it.
        Err(error) if error.kind == ErrorClass::AlreadyExists => Ok(Group::NotYet),
        Err(error)
            if matches!(error.kind, ErrorClass::GroupLimit | ErrorClass::Permission | ErrorClass::Configuration) =>
        {
            Ok(Group::Lost(error))
        }
        Err(error) => Err(error.into()),
    }
}

async fn prepare_and_launch(
    context: &Context,
    held: &mut Held,
    state: &State,
    attempt: BatchAttempt,
) -> anyhow::Result<Next> {
    let spec = match template::template(context, held, state, &attempt) {
        Ok(spec) => spec,
        Err(message) => return lose(context, held, state, &Loss::stop(message)).await,
    };
    let name = spec.name();
    let mut status = held.status();
    if !status.launch_templates.contains(&name) {
        status.launch_templates.push(name);
        held.write(context, status).await?;
    }
    let created = match context.cloud.create_launch_template(&spec).await {
        Ok(created) => created,
        Err(error) if matches!(error.kind, ErrorClass::Configuration | ErrorClass::Permission) => {
            return lose(context, held, state, &Loss::of_call(&error)).await;
        }
        Err(error) => return Err(error.into()),
    };
    let mut status = held.status();
    let own_group = status.placement_group.clone().filter(|_| attempt.group);
    let parameters = LaunchParameters {
        count: attempt.count,
        instance_type: attempt.instance_type.clone(),
        zone: attempt.zone.clone(),
        subnet_id: attempt.subnet.clone(),
        market: CapacityType::parse(&attempt.capacity_type).unwrap_or(CapacityType::OnDemand),
        template_id: created.id.clone(),
        template_version: created.latest_version,
        placement_group: attempt.reservation_group.clone().or(own_group),
        way: if attempt.way == way(LaunchWay::Run) { LaunchWay::Run } else { LaunchWay::Fleet },
        reservation: attempt.reservation.clone().map(|id| Target { id, block: attempt.block }),
        partial: held.object.spec.fill == Fill::Partial,
        tags: tags(context, held, attempt.number),
        token: String::new(),
    }
    .with_token(status.generation);
    if let Some(last) = status.attempts.last_mut() {
        last.template = Some(created.id);
        last.token = Some(parameters.token.clone());
        last.parameters = Some(serde_json::to_string(&parameters)?);
    }
    // From here on the call may have been sent: whoever finds these parameters replays it.
    held.write(context, status).await?;
    launch(context, held, state, &parameters, true).await
}

async fn launch(
    context: &Context,
    held: &mut Held,
    state: &State,
    parameters: &LaunchParameters,
    first: bool,
) -> anyhow::Result<Next> {
    let answer = context.cloud.launch(parameters).await;
    if let Ok(answer) = &answer
        && answer.fleet_id.is_some()
    {
        let mut status = held.status();
        if let Some(last) = status.attempts.last_mut() {
            last.fleet.clone_from(&answer.fleet_id);
        }
        // Written with the outcome below, or by the next write: the fleet is found by its id alone.
        held.object.status = Some(status);
    }
    let verdict = judge(parameters, first, &answer);
    settle(context, held, state, parameters, verdict).await
}

async fn settle(
    context: &Context,
    held: &mut Held,
    state: &State,
    parameters: &LaunchParameters,
    verdict: Verdict,
) -> anyhow::Result<Next> {
    match verdict {
        Verdict::Won(ids) => won(context, held, ids).await,
        Verdict::Violated(ids) => violated(context, held, &ids, "the answer was not what was asked for").await,
        Verdict::Lost { why, ice, confirm }
        | Verdict::Quota { why, ice, confirm }
        | Verdict::Configuration { why, ice, confirm } => {
            if confirm == Confirm::FleetAndSweep
                && let Some(next) = found(context, held, parameters).await?
            {
                return Ok(next);
            }
            lose(context, held, state, &Loss::new(&why, &ice)).await
        }
        Verdict::Throttled { why, ice } => {
            if let Some(next) = found(context, held, parameters).await? {
                return Ok(next);
            }
            let loss = Loss { next: Try::SameCandidate, ..Loss::new(&why, &ice) };
            lose(context, held, state, &loss).await
        }
        Verdict::TokenRefused { why } => {
            warn!(code = why.code, "EC2 refuses the token of the attempt");
            if let Some(next) = found(context, held, parameters).await? {
                return Ok(next);
            }
            let loss = Loss { next: Try::SameCandidate, ..Loss::new(&why, &[]) };
            lose(context, held, state, &loss).await
        }
        Verdict::NotDecided { why } => wait_and_replay(context, held, Some(why), false).await,
        Verdict::Unknown { why, ice } => {
            remember(context, &ice, parameters.count);
            if let Some(next) = found(context, held, parameters).await? {
                return Ok(next);
            }
            let sweeps = held.attempt().map_or(0, |attempt| attempt.sweeps);
            if sweeps >= SWEEPS {
                // What appears after this is collected: its attempt is no longer in flight.
                let code = why.as_ref().and_then(|why| why.code.clone());
                let message = "the outcome stayed unknown and nothing was found".to_owned();
                let next = Try::OtherCandidate;
                let loss = Loss { kind: None, next, operation: None, code, message, ice: Vec::new() };
                return lose(context, held, state, &loss).await;
            }
            wait_and_replay(context, held, why, true).await
        }
    }
}

async fn wait_and_replay(context: &Context, held: &mut Held, why: Option<Why>, counted: bool) -> anyhow::Result<Next> {
    let mut status = held.status();
    let mut turn = 0;
    if let Some(last) = status.attempts.last_mut() {
        last.replayed = true;
        if counted {
            last.sweeps = last.sweeps.saturating_add(1);
        }
        turn = last.sweeps;
    }
    let said = why.map_or_else(|| "no answer".to_owned(), |why| why.code.unwrap_or(why.message));
    status.message = Some(format!("the outcome of the launch is open ({said}): the same call is sent again"));
    held.write(context, status).await?;
    Ok(Next::Pause(later(context.clock.now(), 1_i64 << turn.min(4))))
}

/// What a launch made, whatever was answered: by the id of its fleet, if an answer named one, and by tags.
pub(super) async fn made(
    context: &Context,
    fleet: Option<&str>,
    parameters: &LaunchParameters,
) -> anyhow::Result<Vec<LaunchedInstance>> {
    let mut launched: BTreeMap<InstanceId, LaunchedInstance> = BTreeMap::new();
    // An instant fleet is found by its id alone, and knows of instances that no tag finds yet.
    if let Some(fleet) = fleet
        && let Some(answer) = context.cloud.fleet(fleet).await?
    {
        launched.extend(answer.instances.into_iter().map(|instance| (instance.id.clone(), instance)));
    }
    for instance in context.cloud.instances_by_tags(&parameters.tags.sweep()).await? {
        if instance.state.live() {
            launched.insert(
                instance.id.clone(),
                LaunchedInstance { id: instance.id, instance_type: instance.instance_type, zone: instance.zone },
            );
        }
    }
    Ok(launched.into_values().collect())
}

/// Looks for what the attempt made, by fleet id and by tags. The next step if anything was found.
async fn found(context: &Context, held: &mut Held, parameters: &LaunchParameters) -> anyhow::Result<Option<Next>> {
    let fleet = held.attempt().and_then(|attempt| attempt.fleet);
    let instances = made(context, fleet.as_deref(), parameters).await?;
    if instances.is_empty() {
        return Ok(None);
    }
    info!(instances = instances.len(), "found what an unanswered launch made");
    let answer = LaunchAnswer { fleet_id: None, instances, errors: Vec::new() };
    let verdict = judge(parameters, false, &Ok(answer));
    let next = match verdict {
        Verdict::Won(ids) => won(context, held, ids).await?,
        Verdict::Violated(ids) => violated(context, held, &ids, "fewer instances than asked for were found").await?,
        Verdict::Lost { .. }
        | Verdict::Quota { .. }
        | Verdict::Configuration { .. }
        | Verdict::Throttled { .. }
        | Verdict::NotDecided { .. }
        | Verdict::TokenRefused { .. }
        | Verdict::Unknown { .. } => Next::Now,
    };
    Ok(Some(next))
}

async fn won(context: &Context, held: &mut Held, ids: Vec<InstanceId>) -> anyhow::Result<Next> {
    let mut status = held.status();
    let now = context.clock.now();
    let got = u32::try_from(ids.len()).unwrap_or(u32::MAX);
    let wanted = status.count;
    status.instances = instances(&ids, status.attempt, "Launched");
    if !held.attempt().is_some_and(|attempt| attempt.canary) {
        status.failed_rounds = 0;
    }
    status.count = got;
    "Launched".clone_into(&mut status.phase);
    status.deadline = Some(later(now, 15 * 60));
    let said = if got < wanted {
        // Where part will do: what is missing is recorded as a shrink and asked for by somebody else.
        if let Some(price) = status.price_per_hour.as_deref().and_then(micros) {
            let left = u128::from(price) * u128::from(got) / u128::from(wanted.max(1));
            status.price_per_hour = Some(dollars(u64::try_from(left).unwrap_or(u64::MAX)));
        }
        format!("{got} of {wanted} instances launched, as many as there were")
    } else {
        format!("{got} instances launched in one call")
    };
    status.message = Some(said.clone());
    close_attempt(&mut status, "Won", None, (got < wanted).then_some(said), now);
    if let Some(parameters) = held.attempt().and_then(|attempt| attempt.parameters)
        && let Ok(parameters) = serde_json::from_str::<LaunchParameters>(&parameters)
    {
        let mut ice = context.ice.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        ice.succeeded(&parameters.pool(), got);
    }
    held.write(context, status).await?;
    Ok(Next::Now)
}

/// The launch lies where its gang must not be: all of it goes. After several such candidates the batch waits until
/// somebody changes the wish, the pool or the class, since a launch costs money and the next would lie as badly.
pub(super) async fn misplaced(
    context: &Context,
    held: &mut Held,
    state: &State,
    ids: &[InstanceId],
    why: &str,
    found: &Located,
) -> anyhow::Result<Next> {
    let mut status = held.status();
    status.instances = instances(ids, status.attempt, "Terminating");
    status.ready_count = 0;
    status.located.clone_from(&found.layers);
    status.misses = status.misses.saturating_add(1);
    "Launching".clone_into(&mut status.phase);
    let message = format!("{why}: {} instances rolled back to zero", ids.len());
    warn!(message, "rollback");
    status.message = Some(message.clone());
    if status.misses >= MISSES {
        status.held = Some(BatchHold { reason: "RequiredLevelNotMet".to_owned(), seen: generations(held, state) });
    }
    close_attempt(&mut status, "Misplaced", None, Some(message), context.clock.now());
    held.write(context, status).await?;
    Ok(Next::Now)
}

/// Records what has to go, then rolls back. Also for launches that went bad after they were won.
pub(super) async fn violated(
    context: &Context,
    held: &mut Held,
    ids: &[InstanceId],
    why: &str,
) -> anyhow::Result<Next> {
    let mut status = held.status();
    let wanted = status.count;
    status.instances = instances(ids, status.attempt, "Terminating");
    status.ready_count = 0;
    "Launching".clone_into(&mut status.phase);
    let message = format!("{} of {wanted} instances, {why}: rolled back to zero", ids.len());
    warn!(message, "rollback");
    status.message = Some(message.clone());
    close_attempt(&mut status, "Violated", None, Some(message), context.clock.now());
    held.write(context, status).await?;
    Ok(Next::Now)
}

fn instances(ids: &[InstanceId], attempt: u32, state: &str) -> Vec<BatchInstance> {
    ids.iter()
        .map(|id| BatchInstance { id: id.to_string(), attempt, state: state.to_owned(), ..BatchInstance::default() })
        .collect()
}

/// Terminates everything of the attempt, waits until nothing is left and gives its group up; then the next candidate.
async fn roll_back(context: &Context, held: &mut Held) -> anyhow::Result<Next> {
    let status = held.status();
    let tags = tags(context, held, status.attempt);
    if teardown::terminate_all(context, &status, Some(&tags.sweep())).await? > 0 {
        return Ok(Next::Pause(later(context.clock.now(), 2)));
    }
    let mut status = status;
    if let Some(group) = status.placement_group.take() {
        // EC2 does not say when an empty group is free of the zone it was used in: the next launch has one of its own.
        match context.cloud.delete_placement_group(&group).await {
            Ok(()) => status.generation = status.generation.saturating_add(1),
            Err(error) if error.kind == ErrorClass::InUse => {
                let mut status = held.status();
                status.message = Some(format!("rolled back; placement group {group} is still in use and goes first"));
                held.write(context, status).await?;
                return Ok(Next::Pause(later(context.clock.now(), 5)));
            }
            Err(error) => return Err(error.into()),
        }
    }
    status.instances.clear();
    "Pending".clone_into(&mut status.phase);
    status.message = Some(match &status.held {
        Some(hold) if hold.reason == canary::BLOCKED => "the node that was tried alone is given back".to_owned(),
        None => "rolled back to zero instances; next candidate".to_owned(),
        Some(hold) => format!(
            "{}: {} launches missed the required level; waits for a change of the wish, the pool or the class",
            hold.reason, status.misses
        ),
    });
    held.write(context, status).await?;
    Ok(Next::Now)
}

pub(super) fn remember(context: &Context, ice: &[muster_core::offering::Pool], count: u32) {
    let now = context.clock.now();
    let mut memory = context.ice.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    for pool in ice {
        memory.record(pool, count, now);
    }
}

/// An attempt that launched nothing.
#[derive(Clone, Debug)]
struct Loss {
    /// What the reason means; `None` if the outcome stayed unknown.
    kind: Option<ErrorClass>,
    next: Try,
    /// The call that was refused, if it is not the launch itself.
    operation: Option<String>,
    code: Option<String>,
    message: String,
    ice: Vec<muster_core::offering::Pool>,
}

impl Loss {
    fn new(why: &Why, ice: &[muster_core::offering::Pool]) -> Self {
        Self {
            kind: Some(why.kind),
            next: why.kind.next(),
            operation: None,
            code: why.code.clone(),
            message: why.message.clone(),
            ice: ice.to_vec(),
        }
    }

    fn of_call(error: &CallError) -> Self {
        Self {
            kind: Some(error.kind),
            next: error.kind.next(),
            operation: Some(error.operation.clone()),
            code: error.code.clone(),
            message: error.message.clone(),
            ice: Vec::new(),
        }
    }

    /// Found before anything was asked.
    fn stop(message: String) -> Self {
        Self { kind: None, next: Try::Stop, operation: None, code: None, message, ice: Vec::new() }
    }
}

/// Instances of ours that EC2 is ending: they may still count towards quotas.
async fn ending(context: &Context) -> anyhow::Result<usize> {
    let ours = Tags::from([(TAG_CLUSTER_UID.to_owned(), context.options.cluster_uid.clone())]);
    let seen = context.cloud.instances_by_tags(&ours).await?;
    Ok(seen.iter().filter(|instance| instance.state == InstanceState::ShuttingDown).count())
}

/// Closes the attempt as lost, with zero instances.
async fn lose(context: &Context, held: &mut Held, state: &State, loss: &Loss) -> anyhow::Result<Next> {
    let mut status = held.status();
    let now = context.clock.now();
    remember(context, &loss.ice, status.count);
    let mut next = loss.next;
    let mut wait = 5;
    let mut why = loss.message.clone();
    match loss.kind {
        Some(ErrorClass::Quota | ErrorClass::SpotQuota) => {
            let ending = ending(context).await?;
            if ending > 0 {
                // No verdict on the quota: the same candidate again once they are gone.
                next = Try::SameCandidate;
                wait = 15;
                why = format!("{why}; {ending} instances are still shutting down and may count");
            }
        }
        Some(ErrorClass::FleetLimit) => match super::fleets::delete_finished(context, state).await {
            Ok(0) => {}
            Ok(deleted) => {
                next = Try::SameCandidate;
                why = format!("{why}; {deleted} finished fleets of ours are deleted");
            }
            // Without them there is another way.
            Err(error) => warn!(error = %crate::telemetry::chain(&error), "finished fleets are not deleted"),
        },
        Some(ErrorClass::ReservationFull) => ranking::forget_reservations(context),
        Some(ErrorClass::Permission) => {
            // In an item of a fleet's errors nobody has noticed it yet.
            let by_run = held.attempt().is_some_and(|attempt| attempt.way == way(LaunchWay::Run));
            let operation = if by_run { "RunInstances" } else { "CreateFleet" };
            let asked = loss.operation.as_deref().unwrap_or(operation);
            context.cloud.denied("ec2", asked, loss.code.as_deref(), &loss.message, false);
        }
        _ => {}
    }
    if let (Some(kind), Some(attempt)) = (loss.kind, held.attempt())
        && next == loss.next
        && let Some(market) = CapacityType::parse(&attempt.capacity_type)
    {
        let asked = Asked {
            instance_type: &attempt.instance_type,
            zone: &attempt.zone,
            market,
            subnet: &attempt.subnet,
            count: attempt.count,
        };
        let mut refusals = context.refusals.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        refusals.record(kind, loss.code.as_deref(), &asked, now);
    }
    if let Some(kind) = loss.kind
        && ranking::reservation_gone(context, held, Blame::of(kind, loss.code.as_deref(), &loss.message), now)
    {
        // The class may choose others, and the pool another market.
        next = Try::OtherCandidate;
    }
    if let (Some(kind), Try::Stop) = (loss.kind, next) {
        let class = status.node_pool.as_ref().and_then(|pool| state.pools.get(pool));
        if let Some(class) = class.and_then(|pool| pool::class_of(state, pool))
            && let Some(problem) = class::blame(context, class, kind, loss.code.as_deref(), &loss.message)
        {
            why = problem.message;
        }
    }
    let outcome = match next {
        Try::SameCandidate | Try::WithoutFleet => "Retry",
        Try::OtherCandidate | Try::OtherMarket | Try::OtherQuota | Try::WithoutGroup | Try::Stop => "Lost",
    };
    let said = loss.code.clone().unwrap_or_else(|| why.clone());
    info!(code = loss.code, message = why, "attempt lost, nothing launched");
    close_attempt(&mut status, outcome, loss.code.clone(), Some(why.clone()), now);
    "Pending".clone_into(&mut status.phase);
    let number = status.attempt;
    match next {
        Try::OtherCandidate | Try::OtherMarket | Try::WithoutGroup => {
            status.message = Some(format!("attempt {number} lost ({said}): next candidate"));
        }
        Try::OtherQuota => {
            status.message = Some(format!("attempt {number} lost ({said}): next candidate of another quota"));
        }
        Try::WithoutFleet => {
            status.message = Some(format!("attempt {number} lost ({said}): the same candidate by RunInstances"));
        }
        Try::SameCandidate => {
            status.message = Some(format!("attempt {number} lost ({said}): the same candidate again"));
            status.next_attempt_after = Some(later(now, wait));
        }
        Try::Stop => back_off(&mut status, now, context.options.back_off, &why),
    }
    held.write(context, status).await?;
    Ok(Next::Now)
}

/// Whether an attempt was lost for a quota.
pub(super) fn of_quota(code: Option<&str>) -> bool {
    matches!(classify(code, None), ErrorClass::Quota | ErrorClass::SpotQuota)
}

pub(super) fn tags(context: &Context, held: &Held, attempt: u32) -> BatchTags {
    BatchTags {
        cluster_uid: context.options.cluster_uid.clone(),
        cluster_name: context.options.access.name.clone(),
        batch_uid: held.uid(),
        gang_uid: held.object.spec.gang_ref.as_ref().map(|gang| gang.uid.clone()),
        attempt,
    }
}
