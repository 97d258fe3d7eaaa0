//! Candidates and attempts: the atomic recipe, step by step, each with its intent persisted before the call.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use muster_api::crd::{BatchAttempt, BatchInstance, NodeBatchStatus, NodePool};
use muster_api::{keys, pool as rules};
use muster_core::cloud::ResourceKind;
use muster_core::cloud::{
    BatchTags, BlockDevice, Bootstrap, CallError, CapacityType, Confirm, Efa, ErrorClass, GroupPolicy, GroupState,
    LaunchAnswer, LaunchParameters, LaunchedInstance, Need, Next as Try, Purpose, RankInput, Ranked, TemplateSpec,
    Verdict, Why, addresses_per_node, efa_layout, judge, placement_group_name, rank_candidates, user_data_al2023,
};
use muster_core::names::InstanceId;
use muster_core::node::{Taint, TaintEffect};
use rand::RngExt;
use tracing::{info, warn};

use super::batch::{Next, later};
use super::store::{Held, close_attempt};
use super::{Context, pool, teardown};
use crate::cluster::State;

/// An unknown outcome is looked for this often before the attempt counts as lost.
const SWEEPS: u32 = 4;

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
    if let Some(at) = status.next_attempt_after.filter(|at| *at > now) {
        return Ok(Next::At(at));
    }
    let ranking = rank(context, held, state, now);
    let tried: Vec<(String, String, String, bool)> = status
        .attempts
        .iter()
        .filter(|attempt| attempt.number > status.round_from && attempt.outcome != "Retry")
        .map(|attempt| {
            (attempt.instance_type.clone(), attempt.zone.clone(), attempt.capacity_type.clone(), attempt.group)
        })
        .collect();
    let next = ranking.iter().find(|ranked| {
        let candidate = &ranked.candidate;
        !tried.contains(&(
            candidate.instance_type.clone(),
            candidate.zone.clone(),
            candidate.capacity_type.as_str().to_owned(),
            candidate.placement_group,
        ))
    });
    let Some(ranked) = next else {
        back_off(&mut status, now, context.options.back_off, "no candidate has capacity");
        let at = status.next_attempt_after.unwrap_or(now);
        held.write(context, status).await?;
        return Ok(Next::At(at));
    };
    let candidate = &ranked.candidate;
    let number = status.attempt.saturating_add(1);
    "Launching".clone_into(&mut status.phase);
    status.attempt = number;
    status.count = ranked.count;
    status.node_pool = Some(ranked.pool.clone());
    status.instance_type = Some(candidate.instance_type.clone());
    status.zone = Some(candidate.zone.clone());
    status.capacity_type = Some(candidate.capacity_type.as_str().to_owned());
    status.price_per_hour = Some(pool::dollars(ranked.total_micro_usd_per_hour));
    status.next_attempt_after = None;
    status.generation = status.generation.max(1);
    if candidate.placement_group && status.placement_group.is_none() {
        status.placement_group =
            Some(placement_group_name(&context.options.access.name, &held.uid(), status.generation));
    }
    status.message = Some(format!(
        "attempt {number}: {} × {} {} in {}{}",
        ranked.count,
        candidate.instance_type,
        candidate.capacity_type,
        candidate.zone,
        if candidate.placement_group { ", one placement group" } else { "" },
    ));
    status.attempts.push(BatchAttempt {
        number,
        node_pool: ranked.pool.clone(),
        instance_type: candidate.instance_type.clone(),
        zone: candidate.zone.clone(),
        subnet: candidate.subnet_id.clone(),
        capacity_type: candidate.capacity_type.as_str().to_owned(),
        count: ranked.count,
        group: candidate.placement_group,
        outcome: "Launching".to_owned(),
        started: Some(now),
        ..BatchAttempt::default()
    });
    held.write(context, status).await?;
    Ok(Next::Now)
}

/// Waits longer after each round without success: 30 s doubling to 10 min, ±20 percent, so that a drought costs few
/// calls and several batches do not ask at once.
fn back_off(status: &mut NodeBatchStatus, now: Timestamp, first: SignedDuration, why: &str) {
    status.failed_rounds = status.failed_rounds.saturating_add(1);
    let doublings = status.failed_rounds.saturating_sub(1).min(5);
    let longest = first.saturating_mul(20);
    let pause = first.saturating_mul(1 << doublings).min(longest);
    let jitter = rand::rng().random_range(80..=120);
    let pause = SignedDuration::from_millis(i64::try_from(pause.as_millis()).unwrap_or(i64::MAX) / 100 * jitter);
    "Pending".clone_into(&mut status.phase);
    status.round_from = status.attempt;
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
    status.message = Some(format!("{why}{said}; next try in {} s", pause.as_secs()));
}

fn rank(context: &Context, held: &Held, state: &State, now: Timestamp) -> Vec<Ranked> {
    let catalogue = context.catalogue.load();
    let spec = &held.object.spec;
    let mut needs: BTreeMap<String, Need> = BTreeMap::new();
    for offer in &spec.offers {
        let Some(info) = catalogue.types.get(&offer.instance_type) else { continue };
        let efa = state
            .pools
            .get(&offer.node_pool)
            .and_then(|pool| pool::class_of(state, pool))
            .map_or(Efa::Auto, rules::efa);
        let layout = efa_layout(info, efa, Purpose::Gang, &[]);
        let need = Need { nodes: offer.count, addresses_per_node: addresses_per_node(&layout) };
        needs.insert(offer.instance_type.clone(), need);
    }
    let pools: Vec<_> = spec
        .node_pools
        .iter()
        .filter_map(|name| pool::offer(context, state, state.pools.get(name)?, Some(&held.name())))
        .collect();
    let wish = match spec.placement_group.as_deref() {
        Some("required") => GroupPolicy::Required,
        Some("none") => GroupPolicy::None,
        Some(_) | None => GroupPolicy::Preferred,
    };
    let ice = context.ice.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let ranking = rank_candidates(&RankInput {
        pools: &pools,
        types: &catalogue.types,
        needs: &needs,
        group: wish,
        volume_zones: None,
        offerings: &catalogue.offerings,
        prices: &catalogue.prices,
        ice: &ice,
        now,
    });
    ranking.candidates
}

/// Group, template, launch, judgement.
pub(super) async fn launching(context: &Context, held: &mut Held, state: &State) -> anyhow::Result<Next> {
    let Some(attempt) = held.attempt() else {
        let mut status = held.status();
        "Pending".clone_into(&mut status.phase);
        held.write(context, status).await?;
        return Ok(Next::Now);
    };
    if attempt.outcome == "Violated" {
        return roll_back(context, held).await;
    }
    if attempt.group {
        match ensure_group(context, held).await? {
            Group::Available => {}
            Group::NotYet => return Ok(Next::Pause(later(context.clock.now(), 1))),
            Group::Foreign => {
                let mut status = held.status();
                status.generation = status.generation.saturating_add(1);
                status.placement_group =
                    Some(placement_group_name(&context.options.access.name, &held.uid(), status.generation));
                held.write(context, status).await?;
                return Ok(Next::Now);
            }
            Group::Lost(error) => {
                return lose(context, held, error.kind.next(), error.code, error.message, &[]).await;
            }
        }
    }
    if attempt.parameters.is_none() {
        return prepare_and_launch(context, held, state, attempt).await;
    }
    // A former process, or an earlier turn of this one, may have sent the call: this answer is that of a replay.
    let parameters: LaunchParameters = serde_json::from_str(attempt.parameters.as_deref().unwrap_or_default())?;
    launch(context, held, &parameters, false).await
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
    let spec = match template(context, held, state, &attempt) {
        Ok(spec) => spec,
        Err(message) => return lose(context, held, Try::Stop, None, message, &[]).await,
    };
    let name = spec.name();
    let mut status = held.status();
    if !status.launch_templates.contains(&name) {
        status.launch_templates.push(name);
        held.write(context, status).await?;
    }
    let template = match context.cloud.create_launch_template(&spec).await {
        Ok(template) => template,
        Err(error) if matches!(error.kind, ErrorClass::Configuration | ErrorClass::Permission) => {
            return lose(context, held, Try::Stop, error.code, error.message, &[]).await;
        }
        Err(error) => return Err(error.into()),
    };
    let status = held.status();
    let parameters = LaunchParameters {
        count: attempt.count,
        instance_type: attempt.instance_type.clone(),
        zone: attempt.zone.clone(),
        subnet_id: attempt.subnet.clone(),
        market: CapacityType::parse(&attempt.capacity_type).unwrap_or(CapacityType::OnDemand),
        template_id: template.id.clone(),
        template_version: template.latest_version,
        placement_group: status.placement_group.clone().filter(|_| attempt.group),
        tags: tags(context, held, attempt.number),
        token: String::new(),
    }
    .with_token(status.generation);
    let mut status = status;
    if let Some(last) = status.attempts.last_mut() {
        last.template = Some(template.id);
        last.token = Some(parameters.token.clone());
        last.parameters = Some(serde_json::to_string(&parameters)?);
    }
    // From here on the call may have been sent: whoever finds these parameters replays it.
    held.write(context, status).await?;
    launch(context, held, &parameters, true).await
}

async fn launch(
    context: &Context,
    held: &mut Held,
    parameters: &LaunchParameters,
    first: bool,
) -> anyhow::Result<Next> {
    let answer = context.cloud.create_fleet(parameters).await;
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
    settle(context, held, parameters, verdict).await
}

async fn settle(
    context: &Context,
    held: &mut Held,
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
            lose(context, held, why.kind.next(), why.code, why.message, &ice).await
        }
        Verdict::Throttled { why, ice } => {
            if let Some(next) = found(context, held, parameters).await? {
                return Ok(next);
            }
            lose(context, held, Try::SameCandidate, why.code, why.message, &ice).await
        }
        Verdict::TokenRefused { why } => {
            warn!(code = why.code, "EC2 refuses the token of the attempt");
            if let Some(next) = found(context, held, parameters).await? {
                return Ok(next);
            }
            lose(context, held, Try::SameCandidate, why.code, why.message, &[]).await
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
                return lose(
                    context,
                    held,
                    Try::OtherCandidate,
                    code,
                    "the outcome stayed unknown and nothing was found".to_owned(),
                    &[],
                )
                .await;
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

/// Looks for what the attempt made, by fleet id and by tags. The next step if anything was found.
async fn found(context: &Context, held: &mut Held, parameters: &LaunchParameters) -> anyhow::Result<Option<Next>> {
    let mut launched: BTreeMap<InstanceId, LaunchedInstance> = BTreeMap::new();
    // An instant fleet is found by its id alone, and knows of instances that no tag finds yet.
    if let Some(fleet) = held.attempt().and_then(|attempt| attempt.fleet)
        && let Some(answer) = context.cloud.fleet(&fleet).await?
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
    if launched.is_empty() {
        return Ok(None);
    }
    info!(instances = launched.len(), "found what an unanswered launch made");
    let answer = LaunchAnswer { fleet_id: None, instances: launched.into_values().collect(), errors: Vec::new() };
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
    status.instances = instances(&ids, status.attempt, "Launched");
    status.failed_rounds = 0;
    "Launched".clone_into(&mut status.phase);
    status.deadline = Some(later(now, 15 * 60));
    status.message = Some(format!("{} instances launched in one call", ids.len()));
    close_attempt(&mut status, "Won", None, None, now);
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

/// Terminates everything of the attempt and waits until nothing is left; then the next candidate.
async fn roll_back(context: &Context, held: &mut Held) -> anyhow::Result<Next> {
    let status = held.status();
    let tags = tags(context, held, status.attempt);
    if teardown::terminate_all(context, &status, Some(&tags.sweep())).await? > 0 {
        return Ok(Next::Pause(later(context.clock.now(), 2)));
    }
    let mut status = status;
    status.instances.clear();
    "Pending".clone_into(&mut status.phase);
    status.message = Some("rolled back to zero instances; next candidate".to_owned());
    held.write(context, status).await?;
    Ok(Next::Now)
}

pub(super) fn remember(context: &Context, ice: &[muster_core::cloud::Pool], count: u32) {
    let now = context.clock.now();
    let mut memory = context.ice.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    for pool in ice {
        memory.record(pool, count, now);
    }
}

/// Closes the attempt as lost, with zero instances.
async fn lose(
    context: &Context,
    held: &mut Held,
    next: Try,
    code: Option<String>,
    message: String,
    ice: &[muster_core::cloud::Pool],
) -> anyhow::Result<Next> {
    let mut status = held.status();
    let now = context.clock.now();
    remember(context, ice, status.count);
    let outcome = match next {
        Try::SameCandidate => "Retry",
        Try::OtherCandidate | Try::OtherMarket | Try::WithoutGroup | Try::Stop => "Lost",
    };
    let said = code.clone().unwrap_or_else(|| message.clone());
    info!(code, message, "attempt lost, nothing launched");
    close_attempt(&mut status, outcome, code, Some(message), now);
    "Pending".clone_into(&mut status.phase);
    match next {
        Try::OtherCandidate | Try::OtherMarket | Try::WithoutGroup => {
            status.message = Some(format!("attempt {} lost ({said}): next candidate", status.attempt));
        }
        Try::SameCandidate => {
            status.message = Some(format!("attempt {} lost ({said}): the same candidate again", status.attempt));
            status.next_attempt_after = Some(later(now, 5));
        }
        Try::Stop => back_off(&mut status, now, context.options.back_off, &said),
    }
    held.write(context, status).await?;
    Ok(Next::Now)
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

/// The launch template of an attempt. Errors: why the class cannot be used, for a person.
fn template(context: &Context, held: &Held, state: &State, attempt: &BatchAttempt) -> Result<TemplateSpec, String> {
    let pool: &NodePool =
        state.pools.get(&attempt.node_pool).ok_or_else(|| format!("NodePool {} is gone", attempt.node_pool))?;
    let class = pool::class_of(state, pool).ok_or_else(|| {
        format!(
            "EC2NodeClass {} of NodePool {} is gone",
            pool.spec.template.spec.node_class_ref.name, attempt.node_pool
        )
    })?;
    let resolved = class.status.clone().unwrap_or_default();
    let image_id = resolved.ami.ok_or("the image of the EC2NodeClass is not resolved yet")?;
    let catalogue = context.catalogue.load();
    let info = catalogue
        .types
        .get(&attempt.instance_type)
        .ok_or_else(|| format!("instance type {} is not known", attempt.instance_type))?;
    let interfaces = efa_layout(info, rules::efa(class), Purpose::Gang, &resolved.security_groups);
    let tags = tags(context, held, attempt.number);
    let pending = held
        .object
        .spec
        .gang_ref
        .as_ref()
        .or(held.object.spec.provisioning_request_ref.as_ref())
        .map(|owner| owner.uid.clone())
        .unwrap_or_default();
    let mut taints: Vec<Taint> = rules::taints(pool)?;
    taints.push(Taint { key: keys::GANG_PENDING.into(), value: pending.into(), effect: TaintEffect::NoSchedule });
    let mut labels = pool::labels(pool, info);
    for (key, value) in [
        (keys::BATCH, tags.batch_uid.clone()),
        (keys::GANG_UID, tags.gang_uid.clone().unwrap_or_default()),
        (keys::ATTEMPT, attempt.number.to_string()),
        (keys::CAPACITY_TYPE, attempt.capacity_type.clone()),
    ] {
        if !value.is_empty() {
            labels.insert(key.into(), value.into());
        }
    }
    let user_data = user_data_al2023(&Bootstrap {
        cluster: context.options.access.clone(),
        labels,
        taints,
        max_pods: None,
        local_storage_raid0: false,
        user_data: class.spec.user_data.clone().unwrap_or_default(),
    })
    .map_err(|error| format!("user data: {error}"))?;
    let mut resource_tags = class.spec.tags.clone();
    resource_tags.extend(tags.of(ResourceKind::Instance));
    Ok(TemplateSpec {
        image_id,
        instance_profile: class.spec.instance_profile.clone().or_else(|| class.spec.role.clone()).unwrap_or_default(),
        network_interfaces: interfaces,
        user_data,
        block_devices: class
            .spec
            .block_device_mappings
            .iter()
            .map(|device| BlockDevice {
                device_name: device.device_name.clone(),
                size_gib: Some(device.ebs.volume_size),
                volume_type: device.ebs.volume_type.clone(),
                iops: None,
                throughput_mib: None,
                encrypted: device.ebs.encrypted.unwrap_or(true),
                kms_key_id: None,
                snapshot_id: None,
                delete_on_termination: true,
            })
            .collect(),
        detailed_monitoring: false,
        template_tags: tags.of(ResourceKind::LaunchTemplate),
        resource_tags,
    })
}
