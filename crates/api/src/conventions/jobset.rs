//! JobSet, also as Kubeflow Trainer v2 uses it: all Jobs of all replicated jobs are one gang.

use muster_core::model::gang::{Invalid, RawSlice};
use muster_core::reason::Code;
use serde_json::Value;

use super::chain::Chain;
use super::claim::{self, Claim, Declared, job_size, topology_request};
use super::job;
use super::objects::{Kind, number};
use super::restart;
use crate::keys;

pub(super) fn claim(chain: &Chain<'_>) -> Option<Claim> {
    let set = chain.owner(Kind::JobSet)?;
    let jobs: Vec<&Value> =
        set.spec.pointer("/replicatedJobs").and_then(Value::as_array).into_iter().flatten().collect();
    let name = |job: &Value| job.get("name").and_then(Value::as_str).unwrap_or_default().to_owned();
    let pods = |job: &Value| job.pointer("/template/spec").and_then(job_size).unwrap_or(0);
    let roles: Vec<Declared> = jobs
        .iter()
        .map(|job| {
            let replicas = number(job, "/replicas").unwrap_or(1);
            Declared::new(&name(job), replicas.saturating_mul(pods(job)), job.pointer("/template/spec/template"))
        })
        .collect();
    let nearest = |key: &str| chain.either(key).or_else(|| chain.owner(Kind::Job)?.label(key));
    let role = nearest(keys::JOBSET_REPLICATED_JOB).unwrap_or_default().to_owned();
    let own = jobs.iter().find(|job| name(job) == role);
    let rank = nearest(keys::JOBSET_JOB_INDEX)
        .map(|outer| claim::nested(outer, own.map_or(1, |job| pods(job)), job::index_text(chain)));
    let mut claim = Claim {
        // The outermost owner gives the name: a TrainJob's JobSet is called as it is.
        identity: chain.owner(Kind::TrainJob).unwrap_or(set).name().to_owned(),
        anchor: Some(chain.owners.last().map_or_else(|| set.owner(), |owner| owner.owner())),
        size: None,
        role,
        rank,
        ..Claim::default()
    };
    let title = set.title();
    if set.text("/startupPolicy/startupPolicyOrder") == Some("InOrder") {
        claim.staged = Some(claim::sequential(format!(
            "{title} starts its jobs one after the other: drop startupPolicy InOrder, or put {} on the pod template of one \
             stage, which makes it a gang of its own",
            keys::GANG
        )));
    }
    let depends = |job: &&&Value| job.get("dependsOn").and_then(Value::as_array).is_some_and(|list| !list.is_empty());
    if let Some(job) = jobs.iter().find(depends) {
        claim.staged = Some(claim::sequential(format!(
            "{title}: job {} has dependsOn, so its pods come after others: drop it, or put {} on the pod template of one \
             stage, which makes it a gang of its own",
            name(job),
            keys::GANG
        )));
    }
    exclusive(chain, &jobs, &mut claim, &title);
    let restarts = set.number("/failurePolicy/maxRestarts").unwrap_or(0);
    if restarts == 0 {
        claim.restart_would_fail = jobs.iter().find_map(|job| {
            let spec = job.pointer("/template/spec")?;
            let why = restart::of_job(&format!("job {}", name(job)), "spec.", spec, pods(job))?;
            Some(format!("{title}: spec.failurePolicy.maxRestarts is 0; {why}"))
        });
    }
    claim.roles = roles;
    Some(claim)
}

/// Exclusive placement with the node-selector strategy: each job is one slice in one domain that nobody else uses. The
/// other strategy is a webhook that holds the followers back until the first pod stands.
fn exclusive(chain: &Chain<'_>, jobs: &[&Value], claim: &mut Claim, title: &str) {
    let key = keys::JOBSET_EXCLUSIVE_TOPOLOGY;
    let on = |key: &'static str| {
        let owners = [Kind::JobSet, Kind::Job].into_iter().filter_map(|kind| chain.owner(kind));
        chain.own_annotation(key).or_else(|| owners.filter_map(|owner| owner.annotation(key)).next())
    };
    let Some(level) = on(key) else { return };
    if on(keys::JOBSET_NODE_SELECTOR).is_none() {
        claim.invalid = Some(claim::sequential(format!(
            "{title}: {key} holds pods back until the first of each job stands: use its node selector strategy ({}), or \
             {} and {} instead",
            keys::JOBSET_NODE_SELECTOR,
            keys::SLICE_SIZE,
            keys::SLICE_TOPOLOGY
        )));
        return;
    }
    let mut sizes: Vec<u32> = jobs.iter().filter_map(|job| job.pointer("/template/spec").and_then(job_size)).collect();
    sizes.sort_unstable();
    sizes.dedup();
    match *sizes {
        [size] => {
            claim.topology_requests.slices = vec![RawSlice { size, level: topology_request(key, level) }];
            claim.topology_requests.exclusive = Some(topology_request(key, level));
        }
        _ => {
            claim.invalid = Some(Invalid {
                reason: Code::NotSupported,
                message: format!(
                    "{title}: {key} with jobs of different sizes is not supported; give all jobs one size"
                ),
            });
        }
    }
}
