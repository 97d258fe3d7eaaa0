//! Members that owners other than plain Jobs have not created yet, as their controllers would make them.
//!
//! A JobSet makes Jobs, which then are looked at as all Jobs are; the others make pods. Labels are those by which the
//! conventions tell members apart, and no more.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::batch::v1::{Job, JobSpec};
use k8s_openapi::api::core::v1::{Pod, PodTemplateSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use muster_api::conventions::{self, Kind, Object};
use muster_api::keys;
use muster_api::volumes::Used;
use muster_core::model::gang::{Membership, RankClaim};
use muster_core::model::names::ObjectKey;
use muster_core::model::ranks::MAX_PLACES;
use serde_json::Value;

use super::{Finder, Known, created, is_ours};
use crate::dump::Dump;

/// Jobs that the JobSets of the dump still have to make, under UIDs of ours.
pub(super) fn jobs(dump: &Dump) -> Vec<Job> {
    let name_of = |metadata: &ObjectMeta| (metadata.namespace.clone(), metadata.name.clone());
    let known: BTreeSet<_> = dump.jobs.iter().map(|job| name_of(&job.metadata)).collect();
    let mut jobs = Vec::new();
    for set in dump.objects.iter().filter(|object| object.kind == Kind::JobSet && is_open(dump, object)) {
        let replicated = set.spec.pointer("/replicatedJobs").and_then(Value::as_array);
        let suspended = flag(&set.spec, "/suspend");
        for replicated in replicated.into_iter().flatten() {
            let role = text(replicated, "/name");
            let Some(spec) = replicated.pointer("/template/spec").cloned() else { continue };
            let Ok(mut spec) = serde_json::from_value::<JobSpec>(spec) else { continue };
            // The API server's webhook does so.
            spec.completion_mode.get_or_insert_with(|| "Indexed".to_owned());
            if suspended {
                spec.suspend = Some(true);
            }
            for index in 0..count(replicated, "/replicas", 1) {
                let name = format!("{}-{role}-{index}", set.name());
                let labels = BTreeMap::from([
                    (keys::JOBSET_REPLICATED_JOB.to_owned(), role.to_owned()),
                    (keys::JOBSET_JOB_INDEX.to_owned(), index.to_string()),
                ]);
                let metadata = ObjectMeta {
                    namespace: set.metadata.namespace.clone(),
                    uid: Some(format!("job/{}/{name}", set.metadata.namespace.as_deref().unwrap_or_default())),
                    name: Some(name),
                    creation_timestamp: set.metadata.creation_timestamp.clone(),
                    annotations: set.metadata.annotations.clone(),
                    labels: Some(labels.clone()),
                    owner_references: Some(vec![reference(set)]),
                    ..ObjectMeta::default()
                };
                if known.contains(&name_of(&metadata)) {
                    continue;
                }
                let mut spec = spec.clone();
                spec.template.metadata.get_or_insert_default().labels.get_or_insert_default().extend(labels);
                jobs.push(Job { metadata, spec: Some(spec), status: None });
                if jobs.len() > MAX_PLACES {
                    return jobs;
                }
            }
        }
    }
    jobs
}

impl Finder<'_> {
    /// Adds the pods that owners of other kinds still have to make.
    pub(super) fn add_unmade(&mut self, dump: &Dump) {
        for owner in dump.objects.iter().filter(|owner| is_open(dump, owner)) {
            let suspended = flag(&owner.spec, "/suspend") || flag(&owner.spec, "/runPolicy/suspend");
            let pods = pods_of(dump, owner);
            for (number, pod) in pods.into_iter().enumerate() {
                if is_ours(&pod, self.scheduler_names) && !self.add_one(owner, pod, number, suspended) {
                    break;
                }
            }
        }
    }

    /// Adds one pod, unless its place is taken. Returns whether the next one is worth a look.
    fn add_one(&mut self, owner: &Object, mut pod: Pod, number: usize, suspended: bool) -> bool {
        pod.metadata.uid = Some(format!("new/{}/{number:08}", owner.metadata.uid.as_deref().unwrap_or(owner.name())));
        let recognition = self.recognise(&pod);
        let Some(stated) = recognition.gang else { return false };
        let (unusable, key) = (stated.invalid.is_some(), stated.key.clone());
        let priority = self.priority(pod.spec.as_ref());
        let moment = created(&owner.metadata);
        let entry = self.gang(Arc::clone(&stated), &recognition.membership, priority, moment);
        if suspended {
            if entry.members.is_empty() {
                let kind = owner.kind.served().kind.to_owned();
                entry.suspended.get_or_insert_with(|| (kind, owner.name().to_owned()));
            }
            return true;
        }
        if self.is_taken(&key, &recognition.membership, unusable) {
            return true;
        }
        let mut core = self.read(&pod, recognition.membership, Used::before_pod(&pod));
        // Whoever exists already comes first where places are filled by age.
        core.created = Some(Timestamp::MAX);
        let known = Known { core: Arc::new(core), object: Arc::new(pod), exists: false, uid: None, priority };
        self.join(stated, &known);
        true
    }

    /// Whether a live member has the place, or one that has done its work; of an invalid gang one member is enough.
    fn is_taken(&self, gang: &ObjectKey, membership: &Membership, unusable: bool) -> bool {
        let Some(gang) = self.gangs.get(gang) else { return false };
        if unusable && !gang.members.is_empty() {
            return true;
        }
        let Membership::Member { role, rank: RankClaim::Rank(rank), .. } = membership else { return false };
        let same = |known: &Known| match &known.core.membership {
            Membership::Member { role: other, rank: RankClaim::Rank(taken), .. } => other == role && taken == rank,
            Membership::Member { .. } | Membership::Unknown | Membership::Single => false,
        };
        gang.done.contains(&(Arc::clone(role), *rank)) || gang.members.values().any(same)
    }
}

/// Every pod that an owner makes, in order.
fn pods_of(dump: &Dump, owner: &Object) -> Vec<Pod> {
    match owner.kind {
        Kind::LeaderWorkerSet => leader_worker_set(owner),
        Kind::PyTorchJob | Kind::TfJob | Kind::XgBoostJob | Kind::PaddleJob | Kind::JaxJob | Kind::MpiJob => {
            training_job(owner)
        }
        Kind::RayCluster => ray_cluster(owner),
        Kind::StatefulSet => stateful_set(owner),
        Kind::VolcanoJob => volcano_job(dump, owner),
        // Jobs are looked at elsewhere, and TrainJobs have become JobSets; groups make no pods.
        Kind::Job
        | Kind::JobSet
        | Kind::TrainJob
        | Kind::CoschedulingPodGroup
        | Kind::KueueWorkload
        | Kind::NativePodGroup
        | Kind::NativeWorkload
        | Kind::VolcanoPodGroup
        | Kind::KaiPodGroup
        | Kind::KoordinatorPodGroup
        | Kind::GrovePodGang => Vec::new(),
    }
}

fn leader_worker_set(owner: &Object) -> Vec<Pod> {
    let of = |path: &str| owner.spec.pointer(&format!("/leaderWorkerTemplate/{path}")).filter(|value| !value.is_null());
    let size = count(&owner.spec, "/leaderWorkerTemplate/size", 1);
    let mut pods = Vec::new();
    for group in 0..count(&owner.spec, "/replicas", 1) {
        for index in 0..size {
            let leader = of("leaderTemplate").filter(|_| index == 0);
            let labels = [
                (keys::LWS_NAME, owner.name().to_owned()),
                (keys::LWS_GROUP_INDEX, group.to_string()),
                (keys::LWS_WORKER_INDEX, index.to_string()),
            ];
            if !push(&mut pods, owner, leader.or_else(|| of("workerTemplate")), &labels) {
                return pods;
            }
        }
    }
    pods
}

fn training_job(owner: &Object) -> Vec<Pod> {
    let mut pods = Vec::new();
    let path = conventions::replica_specs(owner.kind);
    let specs = path.and_then(|path| owner.spec.pointer(path)?.as_object());
    for (role, spec) in specs.into_iter().flatten() {
        for index in 0..count(spec, "/replicas", 1) {
            let labels = [
                (keys::KUBEFLOW_REPLICA_TYPE, role.to_ascii_lowercase()),
                (keys::KUBEFLOW_REPLICA_INDEX, index.to_string()),
            ];
            if !push(&mut pods, owner, spec.get("template"), &labels) {
                return pods;
            }
        }
    }
    pods
}

fn ray_cluster(owner: &Object) -> Vec<Pod> {
    let mut pods = Vec::new();
    let head = [(keys::RAY_NODE_TYPE, "head".to_owned()), (keys::RAY_GROUP, "headgroup".to_owned())];
    push(&mut pods, owner, owner.spec.pointer("/headGroupSpec/template"), &head);
    let groups = owner.spec.pointer("/workerGroupSpecs").and_then(Value::as_array);
    for group in groups.into_iter().flatten() {
        let name = text(group, "/groupName");
        for replica in 0..conventions::ray_replicas(group) {
            for host in 0..count(group, "/numOfHosts", 1).max(1) {
                let labels = [
                    (keys::RAY_NODE_TYPE, "worker".to_owned()),
                    (keys::RAY_GROUP, name.to_owned()),
                    (keys::RAY_REPLICA_INDEX, replica.to_string()),
                    (keys::RAY_HOST_INDEX, host.to_string()),
                ];
                if !push(&mut pods, owner, group.get("template"), &labels) {
                    return pods;
                }
            }
        }
    }
    pods
}

/// Volcano names its pods by task and number, and hands the Job's scheduler down. Pods that exist are excluded: they have
/// no rank by which their place could be reported.
fn volcano_job(dump: &Dump, owner: &Object) -> Vec<Pod> {
    let namespace = owner.metadata.namespace.as_deref();
    let uid = owner.metadata.uid.as_deref().unwrap_or_default();
    let group = format!("{}-{uid}", owner.name());
    let known = |object: &&Object| {
        object.kind == Kind::VolcanoPodGroup
            && object.metadata.namespace.as_deref() == namespace
            && (object.name() == group || object.name() == owner.name())
    };
    let group = dump.objects.iter().find(known).map(|group| group.name().to_owned());
    let there: BTreeSet<&str> = dump
        .pods
        .iter()
        .filter(|pod| pod.metadata.namespace.as_deref() == namespace)
        .filter_map(|pod| pod.metadata.name.as_deref())
        .collect();
    let mut pods = Vec::new();
    for task in owner.spec.pointer("/tasks").and_then(Value::as_array).into_iter().flatten() {
        let name = text(task, "/name");
        let mut template = task.get("template").cloned().unwrap_or_default();
        if let Some(spec) = template.pointer_mut("/spec").and_then(Value::as_object_mut)
            && spec.get("schedulerName").and_then(Value::as_str).unwrap_or_default().is_empty()
        {
            let scheduler = owner.spec.get("schedulerName").and_then(Value::as_str).unwrap_or("volcano");
            spec.insert("schedulerName".to_owned(), Value::from(scheduler));
        }
        for index in 0..count(task, "/replicas", 1) {
            if there.contains(format!("{}-{name}-{index}", owner.name()).as_str()) {
                continue;
            }
            if !push(&mut pods, owner, Some(&template), &[(keys::VOLCANO_TASK, name.to_owned())]) {
                return pods;
            }
            if let (Some(group), Some(pod)) = (&group, pods.last_mut()) {
                let annotations = pod.metadata.annotations.get_or_insert_default();
                annotations.insert(keys::VOLCANO_GROUPS[0].to_owned(), group.clone());
            }
        }
    }
    pods
}

fn stateful_set(owner: &Object) -> Vec<Pod> {
    let mut pods = Vec::new();
    let start = count(&owner.spec, "/ordinals/start", 0);
    for index in 0..count(&owner.spec, "/replicas", 1) {
        let labels = [(keys::POD_INDEX, start.saturating_add(index).to_string())];
        if !push(&mut pods, owner, owner.spec.pointer("/template"), &labels) {
            break;
        }
    }
    pods
}

/// One more pod of a template. Returns whether there may be more: one above what a gang may have is enough.
fn push(pods: &mut Vec<Pod>, owner: &Object, template: Option<&Value>, labels: &[(&str, String)]) -> bool {
    let Some(Ok(template)) = template.map(|template| serde_json::from_value::<PodTemplateSpec>(template.clone()))
    else {
        return false;
    };
    let metadata = template.metadata.unwrap_or_default();
    let mut all = metadata.labels.unwrap_or_default();
    all.extend(labels.iter().map(|(key, value)| ((*key).to_owned(), value.clone())));
    pods.push(Pod {
        metadata: ObjectMeta {
            namespace: owner.metadata.namespace.clone(),
            labels: Some(all),
            annotations: metadata.annotations,
            owner_references: Some(vec![reference(owner)]),
            ..ObjectMeta::default()
        },
        spec: template.spec,
        status: None,
    });
    pods.len() <= MAX_PLACES
}

fn reference(owner: &Object) -> OwnerReference {
    let namespace = owner.metadata.namespace.as_deref().unwrap_or_default();
    let stand_in = || format!("{}/{namespace}/{}", owner.kind.served().plural, owner.name());
    OwnerReference {
        api_version: owner.api_version.to_string(),
        kind: owner.kind.served().kind.to_owned(),
        name: owner.name().to_owned(),
        uid: owner.metadata.uid.clone().unwrap_or_else(stand_in),
        controller: Some(true),
        block_owner_deletion: None,
    }
}

/// Whether an owner may still make pods.
pub(super) fn is_open(dump: &Dump, owner: &Object) -> bool {
    let namespace = owner.metadata.namespace.clone().unwrap_or_default();
    let place = (owner.kind.served().plural.to_owned(), namespace, owner.name().to_owned());
    owner.metadata.deletion_timestamp.is_none() && !dump.finished.contains(&place)
}

/// Whether the status of an owner says that it has ended.
pub(crate) fn has_ended(object: &Value) -> bool {
    let conditions = object.pointer("/status/conditions").and_then(Value::as_array);
    let ended = ["Completed", "Complete", "Succeeded", "Failed"];
    let mut conditions = conditions.into_iter().flatten();
    // Of a Volcano Job.
    let phase = text(object, "/status/state/phase");
    !text(object, "/status/terminalState").is_empty()
        || ["Completed", "Failed", "Terminated", "Aborted"].contains(&phase)
        || conditions.any(|one| one["status"] == "True" && ended.iter().any(|kind| one["type"] == *kind))
}

pub(super) fn text<'a>(value: &'a Value, path: &str) -> &'a str {
    value.pointer(path).and_then(Value::as_str).unwrap_or_default()
}

pub(super) fn flag(value: &Value, path: &str) -> bool {
    value.pointer(path).and_then(Value::as_bool).unwrap_or(false)
}

/// A number of pods, at most one more than a gang may have.
fn count(value: &Value, path: &str, default: u64) -> u64 {
    let most = u64::try_from(MAX_PLACES).unwrap_or(u64::MAX).saturating_add(1);
    value.pointer(path).and_then(Value::as_u64).unwrap_or(default).min(most)
}
