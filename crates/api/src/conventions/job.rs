//! `batch/v1` Job: its size, its completion indexes, and a gang of its own when it opts in.

use super::chain::Chain;
use super::claim::{self, Claim, job_size};
use super::objects::Kind;
use super::restart;
use crate::keys;

/// What a Job says of its pods, opted in or not.
pub(super) fn claim(chain: &Chain<'_>) -> Option<Claim> {
    let job = chain.owner(Kind::Job)?;
    let size = job_size(&job.spec);
    let (completions, parallelism) = (job.number("/completions"), job.number("/parallelism").unwrap_or(1));
    let waves = job.text("/completionMode") == Some("Indexed")
        && completions.is_some_and(|completions| completions > parallelism);
    Some(Claim {
        identity: job.name().to_owned(),
        anchor: chain.root.clone(),
        size,
        rank: index(chain),
        invalid: waves.then(|| {
            claim::sequential(format!(
                "{} runs {} completions {parallelism} at a time: its pods never stand together; set parallelism to \
                 completions",
                job.title(),
                completions.unwrap_or(1)
            ))
        }),
        restart_would_fail: size.and_then(|size| restart::of_job(&job.title(), "spec.", &job.spec, size)),
        ..Claim::default()
    })
}

/// The completion index, as annotation or label.
pub(super) fn index(chain: &Chain<'_>) -> Option<muster_core::model::gang::RankClaim> {
    index_text(chain).map(|text| claim::rank(text, 0))
}

pub(super) fn index_text<'a>(chain: &Chain<'a>) -> Option<&'a str> {
    chain.own_annotation(keys::JOB_COMPLETION_INDEX).or_else(|| chain.label(keys::JOB_COMPLETION_INDEX))
}
