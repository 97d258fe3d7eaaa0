//! Pods that a Job has not created yet, from its template or from a pod that it has created.

use std::collections::BTreeSet;
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::batch::v1::{Job, JobSpec};
use k8s_openapi::api::core::v1::{Pod, PodSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use muster_api::conventions::Recognition;
use muster_api::keys;
use muster_api::volumes::Used;
use muster_core::model::gang::{Membership, RankClaim};
use muster_core::model::ranks::MAX_PLACES;

use super::{Finder, Known, created, dump_name, is_ours};
use crate::document::Ignored;

impl Finder<'_> {
    /// Adds the members that `job` will still create, and notes those that have done their work.
    pub(super) fn add_uncreated(&mut self, job: &Job, pods: &[Known]) {
        let Some(spec) = &job.spec else { return };
        if job.metadata.deletion_timestamp.is_some() || is_finished(job) {
            return;
        }
        let uid = job.metadata.uid.as_deref().unwrap_or_default();
        let own: Vec<&Known> = pods.iter().filter(|known| is_of(&known.object, uid)).collect();
        let live: Vec<&&Known> = own.iter().filter(|known| known.core.is_live()).collect();
        // A pod that exists shows what admission made of the template.
        let pattern = live.first().map_or_else(|| from_template(job, spec), |known| Pod::clone(&known.object));
        let mut pattern = unbound(pattern, job);
        if !is_ours(&pattern, self.scheduler_names) {
            return;
        }
        if is_indexed(spec) {
            index(&mut pattern, 0);
        }
        let Recognition { membership, gang, missing, .. } = self.recognise(&pattern);
        let Some(stated) = gang else {
            if live.is_empty() && missing.is_none() && spec.suspend != Some(true) {
                let why = format!(
                    "is no gang, so its pods are planned when they exist: annotate it with {}",
                    keys::GANG_SIZE
                );
                let name = dump_name(&job.metadata).to_string();
                self.ignored.push(Ignored { kind: "Job".to_owned(), name, why });
            }
            return;
        };
        let priority = self.priority(pattern.spec.as_ref());
        let unusable = stated.invalid.is_some();
        // The ranks of the Job's indexes: in a gang of several Jobs they are not the indexes.
        let place_of = |finder: &Self, place: usize| {
            let mut pod = pattern.clone();
            index(&mut pod, place);
            match finder.recognise(&pod).membership {
                Membership::Member { role, rank: RankClaim::Rank(rank), .. } => Some((role, rank)),
                Membership::Member { .. } | Membership::Unknown | Membership::Single => None,
            }
        };
        let mut done = BTreeSet::new();
        if is_indexed(spec) {
            done = completed(job);
            done.extend(own.iter().filter(|known| is_done(known)).filter_map(|known| index_of(&known.object)));
        }
        let ranks: Vec<(Arc<str>, u32)> = done.iter().filter_map(|index| place_of(self, *index)).collect();
        let gang = self.gang(Arc::clone(&stated), &membership, priority, created(&job.metadata));
        let wanted = wanted(spec);
        let todo: Vec<Option<usize>> = if is_indexed(spec) {
            let taken: BTreeSet<usize> = live.iter().filter_map(|known| index_of(&known.object)).collect();
            gang.done.extend(ranks);
            (0..wanted).filter(|index| !done.contains(index) && !taken.contains(index)).map(Some).collect()
        } else {
            let seen = own.iter().filter(|known| is_done(known)).count();
            let counted = job.status.as_ref().and_then(|status| status.succeeded).unwrap_or(0);
            let done = seen.max(usize::try_from(counted).unwrap_or(0));
            let still = match spec.completions {
                Some(completions) => wanted.min(usize::try_from(completions).unwrap_or(0).saturating_sub(done)),
                None if done > 0 => live.len(),
                None => wanted,
            };
            gang.done_unranked = gang.done_unranked.saturating_sub(seen) + wanted.saturating_sub(still);
            vec![None; still.saturating_sub(live.len())]
        };
        if spec.suspend == Some(true) {
            if live.is_empty() {
                let outermost =
                    stated.source.owner.as_ref().map(|owner| (owner.kind.to_string(), owner.name.to_string()));
                let itself = || ("Job".to_owned(), job.metadata.name.clone().unwrap_or_default());
                gang.suspended.get_or_insert_with(|| outermost.unwrap_or_else(itself));
            }
            return;
        }
        // What is invalid needs one member to be reported so, and no more.
        let todo = if unusable { vec![None] } else { todo };
        for (number, place) in todo.into_iter().enumerate() {
            let mut pod = pattern.clone();
            pod.metadata.uid = Some(format!("new/{uid}/{:08}", place.unwrap_or(number)));
            if let Some(place) = place {
                index(&mut pod, place);
            }
            let recognition = self.recognise(&pod);
            let mut core = self.read(&pod, recognition.membership, Used::before_pod(&pod));
            // Whoever exists already comes first where places are filled by age.
            core.created = Some(Timestamp::MAX);
            let known = Known { core: Arc::new(core), object: Arc::new(pod), exists: false, uid: None, priority };
            if let Some(stated) = recognition.gang {
                self.join(stated, &known);
            }
        }
    }
}

fn is_finished(job: &Job) -> bool {
    let conditions = job.status.as_ref().and_then(|status| status.conditions.as_ref());
    conditions.into_iter().flatten().any(|condition| {
        condition.status == "True"
            && matches!(condition.type_.as_str(), "Complete" | "Failed" | "SuccessCriteriaMet" | "FailureTarget")
    })
}

fn is_of(pod: &Pod, uid: &str) -> bool {
    pod.metadata.owner_references.iter().flatten().any(|owner| owner.controller == Some(true) && owner.uid == uid)
}

fn is_indexed(spec: &JobSpec) -> bool {
    spec.completion_mode.as_deref() == Some("Indexed")
}

/// Pods that stand at one time, at most one more than a gang may have.
fn wanted(spec: &JobSpec) -> usize {
    let parallelism = spec.parallelism.unwrap_or(1);
    let wanted = spec.completions.map_or(parallelism, |completions| completions.min(parallelism));
    usize::try_from(wanted).unwrap_or(0).min(MAX_PLACES + 1)
}

/// A pod as the template has it, with the labels that the API server adds to that where it makes the selector: a Job that was
/// written by hand lacks them.
fn from_template(job: &Job, spec: &JobSpec) -> Pod {
    let template = spec.template.clone();
    let mut metadata = template.metadata.unwrap_or_default();
    if spec.manual_selector != Some(true) {
        let ObjectMeta { name, uid, .. } = &job.metadata;
        let labels = metadata.labels.get_or_insert_default();
        let of =
            |keys: [&'static str; 2], value: &Option<String>| keys.map(|key| Some((key.to_owned(), value.clone()?)));
        for (key, value) in of(keys::JOB_NAME, name).into_iter().chain(of(keys::JOB_CONTROLLER_UID, uid)).flatten() {
            labels.entry(key).or_insert(value);
        }
    }
    Pod { metadata, spec: template.spec, status: None }
}

/// The pod before it is created: no name, no node, no state.
fn unbound(pod: Pod, job: &Job) -> Pod {
    let owner = OwnerReference {
        api_version: "batch/v1".to_owned(),
        kind: "Job".to_owned(),
        name: job.metadata.name.clone().unwrap_or_default(),
        uid: job.metadata.uid.clone().unwrap_or_default(),
        controller: Some(true),
        block_owner_deletion: None,
    };
    Pod {
        metadata: ObjectMeta {
            namespace: job.metadata.namespace.clone(),
            labels: pod.metadata.labels,
            annotations: pod.metadata.annotations,
            owner_references: Some(vec![owner]),
            ..ObjectMeta::default()
        },
        spec: pod.spec.map(|spec| PodSpec { node_name: None, ..spec }),
        status: None,
    }
}

/// Gives the pod a completion index, as the Job controller does.
fn index(pod: &mut Pod, index: usize) {
    let text = index.to_string();
    pod.metadata.annotations.get_or_insert_default().insert(keys::JOB_COMPLETION_INDEX.to_owned(), text.clone());
    pod.metadata.labels.get_or_insert_default().insert(keys::JOB_COMPLETION_INDEX.to_owned(), text);
}

fn index_of(pod: &Pod) -> Option<usize> {
    let of = |map: Option<&std::collections::BTreeMap<String, String>>| {
        map?.get(keys::JOB_COMPLETION_INDEX)?.parse::<usize>().ok()
    };
    of(pod.metadata.annotations.as_ref()).or_else(|| of(pod.metadata.labels.as_ref()))
}

fn is_done(known: &Known) -> bool {
    known.object.status.as_ref().and_then(|status| status.phase.as_deref()) == Some("Succeeded")
}

/// `status.completedIndexes`: `0,2-5`. Ranges are cut at the most members a gang may have.
fn completed(job: &Job) -> BTreeSet<usize> {
    let text = job.status.as_ref().and_then(|status| status.completed_indexes.as_deref()).unwrap_or_default();
    let mut found = BTreeSet::new();
    for part in text.split(',').filter(|part| !part.is_empty()) {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        if let (Ok(first), Ok(last)) = (first.trim().parse::<usize>(), last.trim().parse::<usize>()) {
            found.extend(first..=last.min(MAX_PLACES));
        }
    }
    found
}
