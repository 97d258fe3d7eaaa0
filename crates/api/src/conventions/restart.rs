//! Whether an owner survives that all pods of its gang are evicted at once.
//!
//! Muster stops no gang of its own accord whose owner would not make the pods again.

use serde_json::Value;

use super::objects::number;

/// Why a Job with this spec would fail for good, if so. A evicted pod counts as failed unless the failure policy ignores
/// `DisruptionTarget`.
pub(super) fn of_job(title: &str, path: &str, spec: &Value, members: u32) -> Option<String> {
    let rules = spec.pointer("/podFailurePolicy/rules").and_then(Value::as_array);
    let ignores = rules.into_iter().flatten().any(|rule| {
        let conditions = rule.get("onPodConditions").and_then(Value::as_array);
        rule.get("action").and_then(Value::as_str) == Some("Ignore")
            && conditions
                .into_iter()
                .flatten()
                .any(|condition| condition.get("type").and_then(Value::as_str) == Some("DisruptionTarget"))
    });
    if ignores {
        return None;
    }
    let how = format!("and {path}podFailurePolicy does not ignore DisruptionTarget");
    if let Some(limit) = number(spec, "/backoffLimitPerIndex") {
        return (limit == 0).then(|| format!("{title}: {path}backoffLimitPerIndex is 0 {how}"));
    }
    let limit = number(spec, "/backoffLimit").unwrap_or(6);
    (limit < members).then(|| format!("{title}: {path}backoffLimit {limit} is below its {members} members {how}"))
}
