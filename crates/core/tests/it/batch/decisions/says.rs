//! What NodePools and EC2NodeClasses say, word by word.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use muster_core::batch::{Before, JoinClocks, Probes, Supply, WantedLevels, Working};
use muster_core::ec2::{ErrorClass, Tags, TemplateSpec};
use muster_core::model::batch::{Attempt, Batch, BatchStatus, OwnerRef};
use muster_core::model::names::ResourceName;
use muster_core::model::node::Taint;
use muster_core::model::resources::Resources;
use muster_core::offering::Ranking;

use super::super::made;

/// Each answer as it is given.
#[derive(Clone)]
pub(super) struct Says {
    pub(super) unready: Option<&'static str>,
    pub(super) blocked_pools: &'static [&'static str],
    pub(super) blocked_by: Option<&'static str>,
    pub(super) blocked: bool,
    pub(super) probes: Probes,
    pub(super) problems: Vec<String>,
    pub(super) generations: &'static str,
    /// Beside all other batches.
    pub(super) ranking: Ranking,
    /// Beside those that have begun.
    pub(super) alone: Ranking,
    /// Of one node.
    pub(super) one: Ranking,
    pub(super) stale: bool,
    pub(super) template: Result<(), &'static str>,
    pub(super) without_fleets: bool,
    pub(super) join: JoinClocks,
    pub(super) devices: Vec<(ResourceName, i64)>,
    pub(super) taints: Vec<Taint>,
    pub(super) consolidate: Option<SignedDuration>,
    pub(super) foreign: Option<SignedDuration>,
    pub(super) levels: WantedLevels,
    pub(super) requests: bool,
    pub(super) blame: Option<&'static str>,
    pub(super) lacks: Option<&'static str>,
    /// Each type is launched from a template of its own.
    pub(super) own_template: bool,
    /// EC2 has not been asked for its types yet.
    pub(super) knows_no_type: bool,
    pub(super) labels: Option<BTreeMap<Arc<str>, Arc<str>>>,
}

impl Default for Says {
    fn default() -> Self {
        let nothing = || Ranking { candidates: Vec::new(), excluded: Vec::new() };
        Self {
            unready: None,
            blocked_pools: &[],
            blocked_by: None,
            blocked: false,
            probes: Probes::default(),
            problems: Vec::new(),
            generations: "1",
            ranking: nothing(),
            alone: nothing(),
            one: nothing(),
            stale: false,
            template: Ok(()),
            without_fleets: false,
            join: JoinClocks { max_replacements: "1".to_owned(), ..JoinClocks::default() },
            devices: vec![("nvidia.com/gpu".into(), 8)],
            taints: Vec::new(),
            consolidate: Some(SignedDuration::from_mins(5)),
            foreign: Some(SignedDuration::from_mins(15)),
            levels: WantedLevels::default(),
            requests: true,
            blame: None,
            lacks: None,
            own_template: false,
            knows_no_type: false,
            labels: Some(BTreeMap::new()),
        }
    }
}

impl Supply for Says {
    fn unready(&self, _batch: &Batch) -> Option<String> {
        self.unready.map(str::to_owned)
    }
    fn blocked_pool(&self, batch: &Batch) -> Option<String> {
        batch.spec.node_pools.iter().find(|pool| self.blocked_pools.contains(&pool.as_str())).cloned()
    }
    fn is_blocked_by(&self, _pool: &str, batch: &str) -> bool {
        self.blocked_by == Some(batch)
    }
    fn is_blocked(&self, _pool: &str) -> bool {
        self.blocked
    }
    fn probes(&self, _pool: &str) -> Probes {
        self.probes.clone()
    }
    fn takes(&self, _pool: &str, _instance_type: &str) -> Option<Resources> {
        (!self.knows_no_type).then(|| Resources::from_iter([("cpu", 96_000)]))
    }
    fn share_template(&self, _pool: &str, _one: &str, _other: &str) -> bool {
        !self.own_template
    }
    fn labels(&self, _status: &BatchStatus) -> Option<BTreeMap<Arc<str>, Arc<str>>> {
        self.labels.clone()
    }
    fn problems(&self, _batch: &Batch) -> Vec<String> {
        self.problems.clone()
    }
    fn generations(&self, _batch: &Batch) -> String {
        self.generations.to_owned()
    }
    fn rank(&self, _batch: &Batch, _others: &Working, before: Before, _now: Timestamp) -> Ranking {
        match before {
            Before::Older => self.ranking.clone(),
            Before::Nobody => self.alone.clone(),
        }
    }
    fn rank_one(&self, _batch: &Batch, _pool: &str, _others: &Working, _now: Timestamp) -> Ranking {
        self.one.clone()
    }
    fn reservations_are_stale(&self, _batch: &Batch, _now: Timestamp) -> bool {
        self.stale
    }
    fn image(&self, _pool: &str, _instance_type: &str) -> Option<String> {
        Some("ami-1".to_owned())
    }
    fn template(&self, batch: &Batch, attempt: &Attempt) -> Result<TemplateSpec, String> {
        self.template?;
        Ok(made::template(&made::tags(&batch.uid, None, attempt.number), attempt.capacity_type))
    }
    fn tags(&self, _batch: &Batch, _attempt: &Attempt) -> Tags {
        Tags::from([("team".to_owned(), "vision".to_owned())])
    }
    fn without_fleets(&self, _now: Timestamp) -> bool {
        self.without_fleets
    }
    fn join(&self, _pool: Option<&str>) -> JoinClocks {
        self.join.clone()
    }
    fn devices(&self, _status: &BatchStatus) -> Vec<(ResourceName, i64)> {
        self.devices.clone()
    }
    fn taints(&self, _pool: Option<&str>) -> Vec<Taint> {
        self.taints.clone()
    }
    fn consolidate_after(&self, _pool: Option<&str>) -> Option<SignedDuration> {
        self.consolidate
    }
    fn foreign_pods_after(&self, _pool: Option<&str>) -> Option<SignedDuration> {
        self.foreign
    }
    fn levels(&self, _batch: &Batch) -> WantedLevels {
        self.levels.clone()
    }
    fn has_request(&self, _owner: &OwnerRef) -> bool {
        self.requests
    }
    fn blame(&self, _pool: &str, _kind: ErrorClass, _code: Option<&str>, _message: &str) -> Option<String> {
        self.blame.map(str::to_owned)
    }
    fn lacks(&self, _pool: Option<&str>) -> Option<String> {
        self.lacks.map(str::to_owned)
    }
}
