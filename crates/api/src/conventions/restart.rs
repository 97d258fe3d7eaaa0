//! What an owner makes of it that its pods are deleted or evicted: whether it survives that, and whether it makes them again.
//!
//! Muster stops no gang of its own accord whose owner would not make the pods again.

use serde_json::Value;

use super::chain::Chain;
use super::objects::{Kind, number};
use crate::keys;

/// Why a Job with this spec would fail for good, if so. A evicted pod counts as failed unless the failure policy ignores
/// `DisruptionTarget`.
pub(super) fn of_job(title: &str, path: &str, spec: &Value, members: u32) -> Option<String> {
    if ignores_disruption(spec) {
        return None;
    }
    let how = format!("and {path}podFailurePolicy does not ignore DisruptionTarget");
    if let Some(limit) = number(spec, "/backoffLimitPerIndex") {
        return (limit == 0).then(|| format!("{title}: {path}backoffLimitPerIndex is 0 {how}"));
    }
    let limit = number(spec, "/backoffLimit").unwrap_or(6);
    (limit < members).then(|| format!("{title}: {path}backoffLimit {limit} is below its {members} members {how}"))
}

/// Whether a Job with this spec counts no failure for a pod with the condition `DisruptionTarget`.
fn ignores_disruption(spec: &Value) -> bool {
    let rules = spec.pointer("/podFailurePolicy/rules").and_then(Value::as_array);
    rules.into_iter().flatten().any(|rule| {
        let conditions = rule.get("onPodConditions").and_then(Value::as_array);
        rule.get("action").and_then(Value::as_str) == Some("Ignore")
            && conditions
                .into_iter()
                .flatten()
                .any(|condition| condition.get("type").and_then(Value::as_str) == Some("DisruptionTarget"))
    })
}

/// Whether the controller of a pod makes it again when it is deleted, counts no failure, and touches no other pod for it.
///
/// Of Jobs these are those that ignore `DisruptionTarget`: any other counts each deletion, and fails after some. A StatefulSet counts
/// nothing; those of a LeaderWorkerSet are deleted and made again as a whole group. Of every other controller nothing is certain.
pub(super) fn makes_again(chain: &Chain<'_>) -> bool {
    let Some(controller) = chain.owners.first() else { return false };
    match controller.kind {
        Kind::Job => ignores_disruption(&controller.spec),
        Kind::StatefulSet => chain.label(keys::LWS_NAME).is_none(),
        _other => false,
    }
}
