//! `batch/v1` Job: its size, its completion indexes, and a gang of its own when it opts in.

use k8s_openapi::api::batch::v1::Job;
use muster_core::gang::Invalid;

use super::{Chain, Convention};
use crate::keys;

/// Indexed Jobs that opt in by any annotation of ours (`gangs.md` 5).
#[derive(Clone, Copy, Debug)]
pub struct IndexedJob;

impl Convention for IndexedJob {
    fn name(&self) -> &'static str {
        "job"
    }

    fn identity(&self, chain: &Chain<'_>) -> Option<String> {
        let job = chain.jobs.first()?;
        chain.opted_in().then(|| job.metadata.name.clone()).flatten()
    }

    /// min(`parallelism`, `completions`), each 1 where absent.
    fn size(&self, chain: &Chain<'_>) -> Option<u32> {
        let spec = chain.jobs.first()?.spec.as_ref()?;
        let parallelism = spec.parallelism.unwrap_or(1);
        let size = spec.completions.map_or(parallelism, |completions| completions.min(parallelism));
        u32::try_from(size).ok().filter(|size| *size > 0)
    }

    fn rank(&self, chain: &Chain<'_>) -> Option<String> {
        let metadata = &chain.pod.metadata;
        metadata
            .annotations
            .as_ref()
            .and_then(|annotations| annotations.get(keys::JOB_COMPLETION_INDEX))
            .or_else(|| metadata.labels.as_ref()?.get(keys::JOB_COMPLETION_INDEX))
            .cloned()
    }

    fn impossible(&self, chain: &Chain<'_>) -> Option<Invalid> {
        let job = chain.jobs.first()?;
        waves(job).then(|| Invalid {
            reason: "SequentialCreation",
            message: format!(
                "Job {} runs {} completions {} at a time: its pods never stand together; set parallelism to completions",
                job.metadata.name.as_deref().unwrap_or_default(),
                job.spec.as_ref().and_then(|spec| spec.completions).unwrap_or(1),
                job.spec.as_ref().and_then(|spec| spec.parallelism).unwrap_or(1),
            ),
        })
    }
}

/// Whether an Indexed Job's indexes come in waves: then the ranks of one wave are not 0..n-1.
fn waves(job: &Job) -> bool {
    job.spec.as_ref().is_some_and(|spec| {
        spec.completion_mode.as_deref() == Some("Indexed")
            && spec.completions.unwrap_or(1) > spec.parallelism.unwrap_or(1)
    })
}
