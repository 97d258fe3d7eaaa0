//! What must hold after a wave: reported by the audit log, the samples of the watches, the Jobs and the metrics.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::batch::v1::Job;
use kube::Api;
use muster::testbed::request::request;
use muster::testbed::{Stack, audit};

use super::runs::Run;
use super::view::View;

/// Writes of one Gang that may come too late: each of the two writers is overtaken by the other now and then, and reads then.
const OVERTAKEN: u32 = 20;

/// Nothing was bound in part, no node bears more than it has, no pod was ended because of a plan, and no Job failed.
pub(super) async fn holds(stack: &Stack, view: &View, runs: &[Run]) -> Result<(), String> {
    let mut wrong = view.wrong();
    let entries = audit::read(&stack.cluster.audit_log()).map_err(|error| error.to_string())?;
    // A pod is named after its run, whoever makes it.
    let gang_of =
        |_: &str, pod: &str| runs.iter().find(|run| pod.starts_with(&format!("{}-", run.name))).map(Run::gang);
    wrong.extend(audit::torn_bindings(&entries, gang_of));
    let mut overtaken: BTreeMap<&str, u32> = BTreeMap::new();
    for entry in entries.iter().filter(|entry| entry.is_overtaken()) {
        *overtaken.entry(&entry.name).or_default() += 1;
    }
    let often = overtaken.into_iter().filter(|(_, times)| *times > OVERTAKEN);
    wrong.extend(often.map(|(gang, times)| format!("Gang {gang} was written in vain {times} times")));
    let mut bound: BTreeSet<&str> = BTreeSet::new();
    for entry in &entries {
        if entry.may_have_bound() {
            bound.insert(&entry.name);
        }
        let ends = entry.resource == "pods"
            && (entry.verb == "delete" && entry.subresource.is_empty() || entry.subresource == "eviction");
        let never = ends && entry.by_muster() && entry.succeeded() && !bound.contains(&*entry.name);
        if never {
            wrong.push(format!("{} was ended by Muster and had never been bound", entry.name));
        }
    }
    let api: Api<Job> = Api::namespaced(stack.admin().map_err(|error| error.to_string())?, "ml");
    for name in runs.iter().filter_map(Run::job) {
        let job = api.get(&name).await.map_err(|error| error.to_string())?;
        let conditions = job.status.and_then(|status| status.conditions).unwrap_or_default();
        if conditions.iter().any(|condition| condition.type_ == "Failed" && condition.status == "True") {
            wrong.push(format!("the Job {name} failed"));
        }
    }
    if wrong.is_empty() { Ok(()) } else { Err(wrong.join("\n")) }
}

/// The counters of what can only be a bug stand at zero.
pub(super) async fn no_bug_was_counted(stack: &Stack) {
    let metrics = request(stack.http(), "GET", "/metrics", "").await.unwrap();
    for name in ["muster_lost_bindings_total", "muster_refused_plans_total"] {
        let line = metrics.lines().find(|line| line.starts_with(name)).unwrap_or_else(|| panic!("no {name}"));
        assert_eq!(line, format!("{name} 0"));
    }
}
