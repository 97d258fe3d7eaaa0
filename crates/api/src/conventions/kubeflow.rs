//! Kubeflow training-operator v1: PyTorchJob, TFJob, XGBoostJob, PaddleJob, JAXJob; and MPIJob.

use serde_json::Value;

use super::chain::Chain;
use super::claim::{self, Claim, Declared};
use super::objects::{Kind, Object, number};
use crate::keys;

/// Replica specs of each kind, and its replica types in rank order.
const KINDS: [(Kind, &str, &[&str]); 6] = [
    (Kind::PyTorchJob, "/pytorchReplicaSpecs", &["Master", "Worker"]),
    (Kind::TfJob, "/tfReplicaSpecs", &["Chief", "Master", "PS", "Worker", "Evaluator"]),
    (Kind::XgBoostJob, "/xgbReplicaSpecs", &["Master", "Worker"]),
    (Kind::PaddleJob, "/paddleReplicaSpecs", &["Master", "Worker"]),
    (Kind::JaxJob, "/jaxReplicaSpecs", &["Worker"]),
    (Kind::MpiJob, "/mpiReplicaSpecs", &["Launcher", "Worker"]),
];

/// Where the spec of a training job has its replicas, as a JSON pointer; `None` for other kinds.
#[must_use]
pub fn replica_specs(kind: Kind) -> Option<&'static str> {
    KINDS.iter().find(|(known, ..)| *known == kind).map(|(_, path, _)| *path)
}

pub(super) fn claim(chain: &Chain<'_>) -> Option<Claim> {
    let (job, path, types) =
        KINDS.iter().find_map(|(kind, path, types)| chain.owner(*kind).map(|job| (job, *path, *types)))?;
    let roles = roles(job, path, types);
    let role = chain.label(keys::KUBEFLOW_REPLICA_TYPE).or_else(|| chain.label(keys::KUBEFLOW_JOB_ROLE));
    let role = role.unwrap_or_default().to_ascii_lowercase();
    // With the launcher as worker 0 the workers count from 1.
    let shift = job.kind == Kind::MpiJob
        && role == "worker"
        && job.spec.pointer("/runLauncherAsWorker").and_then(Value::as_bool) == Some(true);
    let policy = ["/runPolicy/schedulingPolicy/minAvailable", "/schedulingPolicy/minAvailable"];
    let mut claim = Claim {
        identity: job.name().to_owned(),
        anchor: Some(job.owner()),
        size: Some(claim::total(&roles)),
        min: policy.iter().find_map(|path| job.number(path)),
        rank: chain.label(keys::KUBEFLOW_REPLICA_INDEX).map(|text| claim::rank(text, u32::from(shift))),
        role,
        ..Claim::default()
    };
    let title = job.title();
    if job.text("/launcherCreationPolicy") == Some("WaitForWorkersReady") {
        claim.staged = Some(claim::sequential(format!(
            "{title} makes its launcher once the workers are ready: set spec.launcherCreationPolicy to AtStartup, or put \
             {} on the workers' pod template, which makes them a gang of their own",
            keys::GANG
        )));
    }
    let never = types.iter().find(|kind| job.text(&format!("{path}/{kind}/restartPolicy")) == Some("Never"));
    claim.restart_would_fail = never
        .map(|kind| format!("{title}: spec{}.{kind}.restartPolicy is Never", path.replace('/', ".")))
        .or_else(|| {
            let limit = job.number("/runPolicy/backoffLimit")?;
            let members = claim.size.unwrap_or(0);
            (limit < members)
                .then(|| format!("{title}: spec.runPolicy.backoffLimit {limit} is below its {members} members"))
        });
    claim.roles = roles;
    Some(claim)
}

fn roles(job: &Object, path: &str, types: &[&str]) -> Vec<Declared> {
    let specs = job.spec.pointer(path);
    let declared = types.iter().filter_map(|kind| {
        let spec = specs?.get(kind)?;
        let count = number(spec, "/replicas").unwrap_or(1);
        Some(Declared::new(&kind.to_ascii_lowercase(), count, spec.get("template")))
    });
    declared.collect()
}
