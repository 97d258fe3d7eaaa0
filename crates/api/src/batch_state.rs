//! NodeBatches between the API server and core: the only place that knows the words of their status.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::ResourceExt;
use muster_core::batch::{StrandedCause, dollars, micros};
use muster_core::ec2::{CapacityType, LaunchParameters, LaunchWay, NoticeKind, Target};
use muster_core::model::batch::{
    Attempt, AttemptOutcome, AttemptOverride, Batch, BatchCondition, BatchMember, BatchOffer, BatchPhase, BatchSpec,
    BatchStatus, Billing, CandidateRow, ConditionKind, ExcludedRow, Filling, Hold, HoldReason, Loss, LossCause,
    MemberState, Owner, OwnerRef, Share, StoredParameters,
};
use muster_core::model::names::{InstanceId, ObjectKey, ResourceName};
use muster_core::model::resources::{CPU, Resources};
use muster_core::model::units::Quantity;

use crate::convert;
use crate::crd::{
    BatchAttempt, BatchBilling, BatchCandidate, BatchExcluded, BatchFilling, BatchHold, BatchInstance, BatchLoss,
    BatchOverride, BatchReserve, BatchShare, Fill, FillingPods, GangRef, IntOrQuantity, NodeBatch, NodeBatchStatus,
};

/// Version of `NodeBatch.status` this code writes.
pub const STATUS_VERSION: u32 = 1;

const AUTHORIZED: &str = "Authorized";
const INTERRUPTED: &str = "Interrupted";
const LAUNCHED: &str = "Launched";
const REGISTERED: &str = "Registered";
const READY: &str = "Ready";

/// Reads an object. What a newer version wrote is read as far as it is understood, and [`Batch::newer`] names the rest.
#[must_use]
pub fn read(object: &NodeBatch) -> Batch {
    let mut unknown = Unknown::default();
    let status = object.status.as_ref().map(|status| read_status(status, &mut unknown)).unwrap_or_default();
    if let Some(word) = &object.spec.capacity_type {
        capacity_type("spec.capacityType", word, &mut unknown);
    }
    Batch {
        name: object.name_any(),
        uid: object.uid().unwrap_or_default(),
        created: object.metadata.creation_timestamp.as_ref().map(|time| time.0),
        deleting: object.metadata.deletion_timestamp.is_some(),
        spec: Arc::new(spec(object)),
        status,
        newer: unknown.first,
    }
}

/// What is not understood; the first of it is enough.
#[derive(Default)]
struct Unknown {
    first: Option<String>,
}

impl Unknown {
    fn says(&mut self, field: &str, value: &str) {
        self.first.get_or_insert_with(|| format!("status.{field}: \"{value}\""));
    }
}

fn spec(object: &NodeBatch) -> BatchSpec {
    let spec = &object.spec;
    let reference = |owner: &GangRef| OwnerRef {
        key: ObjectKey::new(owner.namespace.as_str(), owner.name.as_str()),
        uid: owner.uid.clone(),
    };
    BatchSpec {
        node_pools: spec.node_pools.clone(),
        count: spec.count,
        partial: spec.fill == Fill::Partial,
        owner: match (&spec.gang_ref, &spec.provisioning_request_ref) {
            (Some(gang), _) => Owner::Gang(reference(gang)),
            (None, Some(request)) => Owner::Request(reference(request)),
            (None, None) => Owner::Pods,
        },
        offers: spec
            .offers
            .iter()
            .map(|offer| BatchOffer {
                node_pool: offer.node_pool.clone(),
                instance_type: offer.instance_type.clone(),
                count: offer.count,
            })
            .collect(),
        placement_group: spec.placement_group.clone(),
        zones: spec.zones.clone(),
        capacity_type: spec.capacity_type.as_deref().and_then(CapacityType::parse),
        fillings: spec.fillings.iter().map(read_filling).collect(),
        reserves: spec.reserves.iter().map(read_reserve).collect(),
    }
}

fn read_filling(one: &BatchFilling) -> Filling {
    Filling { nodes: one.nodes, pods: one.pods.iter().map(|pods| (pods.class.clone(), pods.count)).collect() }
}

/// What nodes are planned to hold, as the object has it.
#[must_use]
pub fn write_fillings(fillings: &[Filling]) -> Vec<BatchFilling> {
    let pods = |(class, count): &(String, u32)| FillingPods { class: class.clone(), count: *count };
    let filling = |one: &Filling| BatchFilling { nodes: one.nodes, pods: one.pods.iter().map(pods).collect() };
    fillings.iter().map(filling).collect()
}

fn read_reserve(one: &BatchReserve) -> (String, Resources) {
    let mut resources = Resources::default();
    for (name, amount) in &one.resources {
        // What cannot be read was not written by Muster, and counts by the offers.
        let Ok(amount) = amount.0.parse::<Quantity>() else { continue };
        resources.set(name.as_str(), if name == CPU { amount.milli_ceil() } else { amount.unit_ceil() });
    }
    (one.node_pool.clone(), resources)
}

/// What a batch takes of each pool, as the object has it.
#[must_use]
pub fn write_reserves(reserves: &BTreeMap<String, Resources>) -> Vec<BatchReserve> {
    let amount = |(name, amount): (&ResourceName, i64)| {
        let text = if name.as_str() == CPU { format!("{amount}m") } else { amount.to_string() };
        (name.to_string(), IntOrQuantity(text))
    };
    let of = |(pool, resources): (&String, &Resources)| BatchReserve {
        node_pool: pool.clone(),
        resources: resources.iter().map(amount).collect(),
    };
    reserves.iter().map(of).collect()
}

/// The word of a phase in the status.
#[must_use]
pub fn phase_word(phase: BatchPhase) -> &'static str {
    match phase {
        BatchPhase::Pending => "Pending",
        BatchPhase::Launching => "Launching",
        BatchPhase::Launched => "Launched",
        BatchPhase::Joining => "Joining",
        BatchPhase::Replacing => "Replacing",
        BatchPhase::Ready => "Ready",
        BatchPhase::InUse => "InUse",
        BatchPhase::Idle => "Idle",
        BatchPhase::Draining => "Draining",
        BatchPhase::Terminating => "Terminating",
    }
}

fn outcome_word(outcome: AttemptOutcome) -> &'static str {
    match outcome {
        AttemptOutcome::Launching => "Launching",
        AttemptOutcome::Won => "Won",
        AttemptOutcome::Lost => "Lost",
        AttemptOutcome::Retry => "Retry",
        AttemptOutcome::Violated => "Violated",
        AttemptOutcome::Misplaced => "Misplaced",
        AttemptOutcome::ProbeJoined => "Canary",
    }
}

fn state_word(state: MemberState) -> &'static str {
    match state {
        MemberState::Launched => "Launched",
        MemberState::Running => "Running",
        MemberState::Registered => "Registered",
        MemberState::Ready => "Ready",
        MemberState::Lost => "Lost",
        MemberState::Terminating => "Terminating",
        MemberState::Gone => "Gone",
    }
}

fn hold_word(reason: HoldReason) -> &'static str {
    match reason {
        HoldReason::JoinBlocked => "JoinBlocked",
        HoldReason::RequiredLevelNotMet => "RequiredLevelNotMet",
    }
}

/// The word of a loss in `instances[].loss.cause`.
#[must_use]
pub fn cause_word(cause: LossCause) -> &'static str {
    match cause {
        LossCause::Notice(kind) => kind.as_str(),
        LossCause::Missing => "missing",
        LossCause::Join => "join",
    }
}

fn cause(word: &str) -> Option<LossCause> {
    let notices = NoticeKind::ALL.into_iter().map(LossCause::Notice);
    notices.chain([LossCause::Missing, LossCause::Join]).find(|cause| cause_word(*cause) == word)
}

fn way_word(way: LaunchWay) -> &'static str {
    match way {
        LaunchWay::Fleet => "fleet",
        LaunchWay::Run => "run",
    }
}

fn read_status(status: &NodeBatchStatus, unknown: &mut Unknown) -> BatchStatus {
    if status.version > STATUS_VERSION {
        unknown.says("version", &status.version.to_string());
    }
    let phase = BatchPhase::ALL.into_iter().find(|phase| phase_word(*phase) == status.phase);
    let phase = match phase {
        Some(phase) => phase,
        None if status.phase.is_empty() => BatchPhase::Pending,
        None => {
            unknown.says("phase", &status.phase);
            // Whatever it is: its nodes are billed, counted and nobody's to take.
            BatchPhase::InUse
        }
    };
    BatchStatus {
        phase,
        since: status.since,
        count: status.count,
        ready_count: status.ready_count,
        attempt: status.attempt,
        generation: status.generation,
        node_pool: status.node_pool.clone(),
        instance_type: status.instance_type.clone(),
        zone: status.zone.clone(),
        capacity_type: status.capacity_type.as_deref().map(|word| capacity_type("capacityType", word, unknown)),
        placement_group: status.placement_group.clone(),
        placement_group_id: status.placement_group_id.clone(),
        launch_templates: status.launch_templates.clone(),
        price: price("pricePerHour", status.price_per_hour.as_deref(), unknown),
        message: status.message.clone(),
        next_attempt_after: status.next_attempt_after,
        round_from: status.round_from,
        failed_rounds: status.failed_rounds,
        deadline: status.deadline,
        idle_since: status.idle_since,
        used: status.used,
        candidates: status.candidates.iter().map(|row| candidate(row, unknown)).collect(),
        excluded: status
            .excluded
            .iter()
            .map(|row| ExcludedRow { what: row.what.clone(), why: row.why.clone(), change: row.change.clone() })
            .collect(),
        located: status.located.clone(),
        reserved: status.reserved.iter().map(read_reserve).collect(),
        misses: status.misses,
        held: status.held.as_ref().and_then(|hold| {
            let reason = HoldReason::ALL.into_iter().find(|reason| hold_word(*reason) == hold.reason);
            if reason.is_none() {
                unknown.says("held.reason", &hold.reason);
            }
            reason.map(|reason| Hold { reason, seen: hold.seen.clone() })
        }),
        attempts: status.attempts.iter().map(|one| attempt(one, unknown)).collect(),
        instances: status.instances.iter().map(|one| member("instances", one, unknown)).collect(),
        replaced: status.replaced.iter().map(|one| member("replaced", one, unknown)).collect(),
        billing: status.billing.as_ref().map(|one| billing(one, unknown)),
        conditions: status.conditions.iter().map(condition).collect(),
    }
}

fn capacity_type(field: &str, word: &str, unknown: &mut Unknown) -> CapacityType {
    CapacityType::parse(word).unwrap_or_else(|| {
        unknown.says(field, word);
        CapacityType::OnDemand
    })
}

fn price(field: &str, text: Option<&str>, unknown: &mut Unknown) -> Option<u64> {
    let text = text?;
    let price = micros(text);
    if price.is_none() {
        unknown.says(field, text);
    }
    price
}

fn candidate(row: &BatchCandidate, unknown: &mut Unknown) -> CandidateRow {
    CandidateRow {
        node_pool: row.node_pool.clone(),
        instance_type: row.instance_type.clone(),
        zone: row.zone.clone(),
        subnet: row.subnet.clone(),
        capacity_type: capacity_type("candidates.capacityType", &row.capacity_type, unknown),
        count: row.count,
        group: row.group,
        reservation: row.reservation.clone(),
        price: price("candidates.pricePerHour", row.price_per_hour.as_deref(), unknown),
        why: row.why.clone(),
    }
}

fn attempt(one: &BatchAttempt, unknown: &mut Unknown) -> Attempt {
    let parameters = one.parameters.as_deref().and_then(|text| match serde_json::from_str::<LaunchParameters>(text) {
        Ok(value) => Some(StoredParameters { value: Arc::new(value), text: Some(Arc::from(text)) }),
        Err(error) => {
            unknown.says("attempts.parameters", &error.to_string());
            None
        }
    });
    let outcome = AttemptOutcome::ALL.into_iter().find(|outcome| outcome_word(*outcome) == one.outcome);
    Attempt {
        number: one.number,
        node_pool: one.node_pool.clone(),
        instance_type: one.instance_type.clone(),
        zone: one.zone.clone(),
        subnet: one.subnet.clone(),
        capacity_type: capacity_type("attempts.capacityType", &one.capacity_type, unknown),
        overrides: one.overrides.iter().map(|one| read_override(one, unknown)).collect(),
        count: one.count,
        group: one.group,
        reservation_group: one.reservation_group.clone(),
        reservation: one.reservation.clone().map(|id| Target { id, block: one.block }),
        way: match one.way.as_str() {
            "run" => LaunchWay::Run,
            "fleet" | "" => LaunchWay::Fleet,
            other => {
                unknown.says("attempts.way", other);
                LaunchWay::Fleet
            }
        },
        image: one.image.clone(),
        taints: one.taints.iter().filter_map(convert::taint).collect(),
        template: one.template.clone(),
        parameters,
        token: one.token.clone(),
        replayed: one.replayed,
        sweeps: one.sweeps,
        fleet: one.fleet.clone(),
        request_id: one.request_id.clone(),
        replaces: one.replaces.iter().map(|id| InstanceId::from(id.as_str())).collect(),
        probe: one.probe,
        outcome: outcome.unwrap_or_else(|| {
            unknown.says("attempts.outcome", &one.outcome);
            AttemptOutcome::Won
        }),
        code: one.code.clone(),
        message: one.message.clone(),
        started: one.started,
        ended: one.ended,
    }
}

fn read_override(one: &BatchOverride, unknown: &mut Unknown) -> AttemptOverride {
    AttemptOverride {
        instance_type: one.instance_type.clone(),
        zone: one.zone.clone(),
        subnet: one.subnet.clone(),
        price: price("attempts.overrides.pricePerHour", one.price_per_hour.as_deref(), unknown),
    }
}

fn write_override(one: &AttemptOverride) -> BatchOverride {
    BatchOverride {
        instance_type: one.instance_type.clone(),
        zone: one.zone.clone(),
        subnet: one.subnet.clone(),
        price_per_hour: one.price.map(dollars),
    }
}

fn member(list: &str, one: &BatchInstance, unknown: &mut Unknown) -> BatchMember {
    let state = MemberState::ALL.into_iter().find(|state| state_word(*state) == one.state);
    BatchMember {
        id: InstanceId::from(one.id.as_str()),
        attempt: one.attempt,
        state: state.unwrap_or_else(|| {
            unknown.says(&format!("{list}.state"), &one.state);
            MemberState::Ready
        }),
        place: one.place,
        node: one.node.clone(),
        registered: one.registered,
        loss: one.loss.as_ref().and_then(|loss| {
            let cause = cause(&loss.cause);
            if cause.is_none() {
                unknown.says(&format!("{list}.loss.cause"), &loss.cause);
            }
            let (message, noticed) = (loss.message.clone(), loss.noticed);
            cause.map(|cause| Loss { cause, message, noticed, act_at: loss.act_at, deadline: loss.deadline })
        }),
        network_nodes: one.network_nodes.clone(),
        empty_since: one.empty_since,
        leaving_since: one.leaving_since,
        launched: one.launched,
        billed: one.billed,
    }
}

fn billing(one: &BatchBilling, unknown: &mut Unknown) -> Billing {
    let shares = one.earlier.iter().map(|share| Share {
        node_pool: share.node_pool.clone(),
        capacity_type: share
            .capacity_type
            .as_deref()
            .map(|word| capacity_type("billing.earlier.capacityType", word, unknown)),
        spent: share.spent_micro_usd,
        stranded: stranded("billing.earlier.strandedMicroUsd", &share.stranded_micro_usd, unknown),
    });
    let earlier = shares.collect();
    Billing {
        since: one.since,
        spent: one.spent_micro_usd,
        stranded: stranded("billing.strandedMicroUsd", &one.stranded_micro_usd, unknown),
        earlier,
        by_instance: one.by_instance,
        closed: one.closed,
    }
}

fn stranded(field: &str, sums: &BTreeMap<String, u64>, unknown: &mut Unknown) -> BTreeMap<StrandedCause, u64> {
    let known = sums.iter().filter_map(|(word, sum)| {
        let cause = StrandedCause::ALL.into_iter().find(|cause| cause.as_str() == word);
        if cause.is_none() {
            unknown.says(field, word);
        }
        cause.map(|cause| (cause, *sum))
    });
    known.collect()
}

fn condition(one: &Condition) -> BatchCondition {
    BatchCondition {
        kind: match one.type_.as_str() {
            AUTHORIZED => ConditionKind::Authorized,
            INTERRUPTED => ConditionKind::Interrupted,
            LAUNCHED => ConditionKind::Launched,
            REGISTERED => ConditionKind::Registered,
            READY => ConditionKind::Ready,
            other => ConditionKind::Other(other.to_owned()),
        },
        status: match one.status.as_str() {
            "True" => Some(true),
            "False" => Some(false),
            _unknown => None,
        },
        reason: one.reason.clone(),
        message: one.message.clone(),
        since: one.last_transition_time.0,
        generation: one.observed_generation,
    }
}

/// The status as it is written.
///
/// Errors: launch parameters that cannot be written as JSON, which is a bug.
pub fn write(status: &BatchStatus) -> Result<NodeBatchStatus, serde_json::Error> {
    Ok(NodeBatchStatus {
        version: STATUS_VERSION,
        phase: phase_word(status.phase).to_owned(),
        nodes: format!("{}/{}", status.ready_count, status.instances.len()),
        since: status.since,
        count: status.count,
        ready_count: status.ready_count,
        attempt: status.attempt,
        generation: status.generation,
        node_pool: status.node_pool.clone(),
        instance_type: status.instance_type.clone(),
        zone: status.zone.clone(),
        capacity_type: status.capacity_type.map(|one| one.as_str().to_owned()),
        placement_group: status.placement_group.clone(),
        placement_group_id: status.placement_group_id.clone(),
        launch_templates: status.launch_templates.clone(),
        price_per_hour: status.price.map(dollars),
        message: status.message.clone(),
        next_attempt_after: status.next_attempt_after,
        round_from: status.round_from,
        failed_rounds: status.failed_rounds,
        deadline: status.deadline,
        idle_since: status.idle_since,
        used: status.used,
        candidates: status.candidates.iter().map(write_candidate).collect(),
        excluded: status
            .excluded
            .iter()
            .map(|row| BatchExcluded { what: row.what.clone(), why: row.why.clone(), change: row.change.clone() })
            .collect(),
        located: status.located.clone(),
        reserved: write_reserves(&status.reserved),
        misses: status.misses,
        held: status
            .held
            .as_ref()
            .map(|hold| BatchHold { reason: hold_word(hold.reason).to_owned(), seen: hold.seen.clone() }),
        attempts: status.attempts.iter().map(write_attempt).collect::<Result<_, _>>()?,
        instances: status.instances.iter().map(write_member).collect(),
        replaced: status.replaced.iter().map(write_member).collect(),
        billing: status.billing.as_ref().map(|billing| BatchBilling {
            since: billing.since,
            spent_micro_usd: billing.spent,
            stranded_micro_usd: write_stranded(&billing.stranded),
            earlier: billing.earlier.iter().map(write_share).collect(),
            by_instance: billing.by_instance,
            closed: billing.closed,
        }),
        conditions: status.conditions.iter().map(write_condition).collect(),
    })
}

fn write_stranded(sums: &BTreeMap<StrandedCause, u64>) -> BTreeMap<String, u64> {
    sums.iter().map(|(cause, sum)| (cause.as_str().to_owned(), *sum)).collect()
}

fn write_share(share: &Share) -> BatchShare {
    BatchShare {
        node_pool: share.node_pool.clone(),
        capacity_type: share.capacity_type.map(|capacity_type| capacity_type.as_str().to_owned()),
        spent_micro_usd: share.spent,
        stranded_micro_usd: write_stranded(&share.stranded),
    }
}

fn write_candidate(row: &CandidateRow) -> BatchCandidate {
    BatchCandidate {
        node_pool: row.node_pool.clone(),
        instance_type: row.instance_type.clone(),
        zone: row.zone.clone(),
        subnet: row.subnet.clone(),
        capacity_type: row.capacity_type.as_str().to_owned(),
        count: row.count,
        group: row.group,
        reservation: row.reservation.clone(),
        price_per_hour: row.price.map(dollars),
        why: row.why.clone(),
    }
}

fn write_attempt(one: &Attempt) -> Result<BatchAttempt, serde_json::Error> {
    let parameters = match &one.parameters {
        None => None,
        Some(StoredParameters { text: Some(text), .. }) => Some(text.to_string()),
        Some(StoredParameters { value, text: None }) => Some(serde_json::to_string(&**value)?),
    };
    Ok(BatchAttempt {
        number: one.number,
        node_pool: one.node_pool.clone(),
        instance_type: one.instance_type.clone(),
        zone: one.zone.clone(),
        subnet: one.subnet.clone(),
        capacity_type: one.capacity_type.as_str().to_owned(),
        overrides: one.overrides.iter().map(write_override).collect(),
        count: one.count,
        group: one.group,
        reservation_group: one.reservation_group.clone(),
        reservation: one.reservation.as_ref().map(|target| target.id.clone()),
        block: one.reservation.as_ref().is_some_and(|target| target.block),
        way: way_word(one.way).to_owned(),
        image: one.image.clone(),
        taints: one.taints.iter().map(convert::write_taint).collect(),
        template: one.template.clone(),
        parameters,
        token: one.token.clone(),
        replayed: one.replayed,
        sweeps: one.sweeps,
        fleet: one.fleet.clone(),
        request_id: one.request_id.clone(),
        replaces: one.replaces.iter().map(ToString::to_string).collect(),
        probe: one.probe,
        outcome: outcome_word(one.outcome).to_owned(),
        code: one.code.clone(),
        message: one.message.clone(),
        started: one.started,
        ended: one.ended,
    })
}

fn write_member(one: &BatchMember) -> BatchInstance {
    BatchInstance {
        id: one.id.to_string(),
        attempt: one.attempt,
        state: state_word(one.state).to_owned(),
        place: one.place,
        node: one.node.clone(),
        registered: one.registered,
        loss: one.loss.as_ref().map(|loss| BatchLoss {
            cause: cause_word(loss.cause).to_owned(),
            message: loss.message.clone(),
            noticed: loss.noticed,
            act_at: loss.act_at,
            deadline: loss.deadline,
        }),
        network_nodes: one.network_nodes.clone(),
        empty_since: one.empty_since,
        leaving_since: one.leaving_since,
        launched: one.launched,
        billed: one.billed,
    }
}

fn write_condition(one: &BatchCondition) -> Condition {
    Condition {
        type_: match &one.kind {
            ConditionKind::Authorized => AUTHORIZED.to_owned(),
            ConditionKind::Interrupted => INTERRUPTED.to_owned(),
            ConditionKind::Launched => LAUNCHED.to_owned(),
            ConditionKind::Registered => REGISTERED.to_owned(),
            ConditionKind::Ready => READY.to_owned(),
            ConditionKind::Other(kind) => kind.clone(),
        },
        status: match one.status {
            Some(true) => "True".to_owned(),
            Some(false) => "False".to_owned(),
            None => "Unknown".to_owned(),
        },
        reason: one.reason.clone(),
        message: one.message.clone(),
        last_transition_time: Time(one.since),
        observed_generation: one.generation,
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use muster_core::batch::claim;
    use muster_core::offering::NODES;
    use serde_json::json;

    use super::*;

    fn object(status: &serde_json::Value) -> NodeBatch {
        serde_json::from_value(json!({
            "apiVersion": "muster.dev/v1alpha1", "kind": "NodeBatch",
            "metadata": {"name": "train-1", "uid": "u"},
            "spec": {"nodePools": ["h100"], "count": 2, "offers": []},
            "status": status,
        }))
        .unwrap()
    }

    #[test]
    fn what_is_read_is_written_back_as_it_was() {
        let status = json!({
            "version": 1, "phase": "Replacing", "nodes": "1/1", "since": "2026-11-01T00:00:00Z", "count": 2,
            "readyCount": 1, "attempt": 2, "generation": 1, "nodePool": "h100", "instanceType": "p5.48xlarge",
            "zone": "us-east-1a", "capacityType": "spot", "pricePerHour": "110.08", "roundFrom": 0, "failedRounds": 0,
            "misses": 0, "message": "replacing",
            "attempts": [{
                "number": 2, "nodePool": "h100", "instanceType": "p5.48xlarge", "zone": "us-east-1a",
                "subnet": "subnet-a", "capacityType": "spot", "count": 1, "group": true, "way": "fleet",
                "parameters": "{\"count\":1,\"instanceType\":\"p5.48xlarge\",\"zone\":\"us-east-1a\",\"subnetId\":\"s\",\
                    \"market\":\"spot\",\"templateId\":\"lt-1\",\"templateVersion\":1,\"tags\":{\"clusterUid\":\"c\",\
                    \"clusterName\":\"n\",\"batchUid\":\"u\",\"attempt\":2},\"token\":\"t\"}",
                "token": "t", "replayed": false, "sweeps": 0, "replaces": ["i-1"], "outcome": "Launching"}],
            "instances": [{"id": "i-2", "attempt": 1, "state": "Ready", "place": 3, "node": "n-2",
                "launched": "2026-11-01T00:00:00Z", "billed": "2026-11-01T00:05:00Z"}],
            "replaced": [{"id": "i-1", "attempt": 1, "state": "Lost", "loss": {"cause": "spot", "message": "back",
                "noticed": "2026-11-01T00:00:00Z", "actAt": "2026-11-01T00:00:00Z"}}],
            "billing": {"spentMicroUsd": 5, "strandedMicroUsd": {"join": 3}, "byInstance": true, "closed": true,
                "earlier": [{"nodePool": "a100", "capacityType": "on-demand", "spentMicroUsd": 2,
                    "strandedMicroUsd": {"rollback": 2}}, {"nodePool": "old", "spentMicroUsd": 1}]},
            "conditions": [{"type": "Mine", "status": "Unknown", "reason": "r", "message": "m",
                "lastTransitionTime": "2026-11-01T00:00:00Z"}],
        });
        let object = object(&status);
        let batch = read(&object);
        assert_eq!(batch.newer, None);
        assert_eq!(Some(write(&batch.status).unwrap()), object.status);
    }

    #[test]
    fn what_a_newer_version_wrote_is_named_and_still_counts() {
        for (status, says) in [
            (json!({"version": 2, "phase": "Ready"}), "status.version: \"2\""),
            (
                json!({"version": 1, "phase": "Hibernating", "instances": [{"id": "i-1", "attempt": 1, "state": "Ready"}]}),
                "status.phase: \"Hibernating\"",
            ),
            (
                json!({"version": 1, "phase": "InUse", "instances": [{"id": "i-1", "attempt": 1, "state": "Asleep"}]}),
                "status.instances.state: \"Asleep\"",
            ),
        ] {
            let batch = read(&object(&status));
            assert_eq!(batch.newer.as_deref(), Some(says));
        }
        let counted = read(&object(&json!({"version": 1, "phase": "Hibernating", "count": 8, "pricePerHour": "80.00",
            "instances": [{"id": "i-1", "attempt": 1, "state": "Ready"}]})));
        assert_eq!(counted.status.price_now(), 10_000_000);
        let novel = read(&object(&json!({"version": 9, "phase": "Novel", "count": 2, "nodePool": "two",
            "instanceType": "unheard-of"})));
        let taken = claim(&novel, |_, _| None, |_| true, Timestamp::MAX).amounts;
        assert_eq!(taken["two"].resources.get(NODES), 2);
    }

    #[test]
    fn an_object_without_a_status_is_pending() {
        let batch = read(&object(&json!(null)));
        assert_eq!((batch.status.phase, batch.newer), (BatchPhase::Pending, None));
    }
}
