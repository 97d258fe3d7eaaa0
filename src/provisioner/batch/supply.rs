//! What NodePools and EC2NodeClasses offer, as the pass over NodeBatches asks it: answers from the published state and
//! from what launches have taught, nothing from anybody else.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use muster_api::crd::NodePool;
use muster_api::{keys, pool as rules};
use muster_core::batch::{Before, JoinClocks, Probes, Supply, WantedLevels, Working};
use muster_core::ec2::{ErrorClass, Tags, TemplateSpec};
use muster_core::model::batch::{Attempt, Batch, BatchStatus, Owner, OwnerRef};
use muster_core::model::gang::RawTopologyRequest;
use muster_core::model::names::ResourceName;
use muster_core::model::node::Taint;
use muster_core::model::resources::Resources;
use muster_core::offering::Ranking;
use muster_core::topology::Level;

use super::ranking;
use crate::cluster::State;
use crate::provisioner::Context;
use crate::provisioner::class::{self, template};
use crate::provisioner::pool::{self, ledger, reservations};

/// One published state with everything learned so far.
pub(in crate::provisioner) struct Shelves<'a> {
    pub(in crate::provisioner) context: &'a Context,
    pub(in crate::provisioner) state: &'a Arc<State>,
}

impl Shelves<'_> {
    fn pool(&self, name: &str) -> Option<&Arc<NodePool>> {
        self.state.pools.get(name)
    }
}

impl Supply for Shelves<'_> {
    fn unready(&self, batch: &Batch) -> Option<String> {
        pool::unready(self.context, self.state, &batch.spec.node_pools)
    }

    fn blocked_pool(&self, batch: &Batch) -> Option<String> {
        let is_blocked =
            |name: &&String| self.pool(name).is_some_and(|pool| pool::only_blocked(self.context, self.state, pool));
        let goes_on = |name: &&String| !self.probes(name).are_used_up(batch, &self.join(Some(name)));
        let blocked = || batch.spec.node_pools.iter().filter(is_blocked);
        blocked().find(goes_on).or_else(|| blocked().next()).cloned()
    }

    fn is_blocked_by(&self, pool: &str, batch: &str) -> bool {
        // A pool that is gone cannot be blocked, nor does it launch anything.
        self.pool(pool).is_none_or(|pool| pool::blocked(self.state, pool).is_some_and(|one| one.batch == batch))
    }

    fn is_blocked(&self, pool: &str) -> bool {
        let status = self.pool(pool).and_then(|pool| pool.status.as_ref());
        status.is_some_and(|status| status.join_blocked.is_some())
    }

    fn probes(&self, pool: &str) -> Probes {
        self.pool(pool).and_then(|pool| pool::blocked(self.state, pool)).map(pool::probes).unwrap_or_default()
    }

    fn takes(&self, pool: &str, instance_type: &str) -> Option<Resources> {
        ledger::per_node(self.context, self.state, pool, instance_type).map(|each| each.amounts.resources)
    }

    fn problems(&self, batch: &Batch) -> Vec<String> {
        let of = |name: &String| {
            let Some(pool) = self.pool(name) else { return Some(format!("NodePool {name} is gone")) };
            let (reason, message) = pool::problem(self.context, self.state, pool)?;
            Some(format!("NodePool {name}: {reason}: {message}"))
        };
        batch.spec.node_pools.iter().filter_map(of).collect()
    }

    fn generations(&self, batch: &Batch) -> String {
        let of_pool = |name: &String| {
            let pool = self.pool(name)?;
            let class = pool::class_of(self.state, pool).and_then(|class| class.metadata.generation);
            Some(format!("{name}:{}/{}", pool.metadata.generation.unwrap_or_default(), class.unwrap_or_default()))
        };
        batch.spec.node_pools.iter().filter_map(of_pool).collect::<Vec<_>>().join(",")
    }

    fn rank(&self, batch: &Batch, others: &Working, before: Before, now: Timestamp) -> Ranking {
        ranking::rank(self.context, batch, others, self.state, before, now)
    }

    fn rank_one(&self, batch: &Batch, pool: &str, others: &Working, now: Timestamp) -> Ranking {
        ranking::rank_one(self.context, batch, others, self.state, pool, now)
    }

    fn reservations_are_stale(&self, batch: &Batch, now: Timestamp) -> bool {
        reservations::stale(self.context, &batch.spec.node_pools, self.state, now).next().is_some()
    }

    fn image(&self, pool: &str, instance_type: &str) -> Option<String> {
        template::image(self.context, self.state, pool, instance_type).ok()
    }

    fn template(&self, batch: &Batch, attempt: &Attempt) -> Result<TemplateSpec, String> {
        template::template(self.context, batch, self.state, attempt)
    }

    fn share_template(&self, pool: &str, one: &str, other: &str) -> bool {
        template::is_shared(self.context, self.state, pool, one, other)
    }

    fn labels(&self, status: &BatchStatus) -> Option<BTreeMap<Arc<str>, Arc<str>>> {
        template::labels(self.context, self.state, status)
    }

    fn tags(&self, batch: &Batch, attempt: &Attempt) -> Tags {
        template::description(self.context, self.state, batch, attempt)
    }

    fn without_fleets(&self, now: Timestamp) -> bool {
        self.context.refusals.lock().unwrap_or_else(std::sync::PoisonError::into_inner).without_fleets(now)
    }

    fn join(&self, pool: Option<&str>) -> JoinClocks {
        let standard = JoinClocks::default();
        let Some(pool) = pool.and_then(|name| self.pool(name)) else { return standard };
        let join = &pool.spec.join;
        let read = |text: &str, otherwise| pool::duration(text).unwrap_or(otherwise);
        JoinClocks {
            register_within: read(&join.register_within, standard.register_within),
            ready_within: read(&join.ready_within, standard.ready_within),
            replace_after: read(&join.replace_after, standard.replace_after),
            max_replacements: join.max_replacements.0.clone(),
            max_probes: join.max_probes,
            max_probe_micro_usd: rules::max_probe_usd(pool).unwrap_or(standard.max_probe_micro_usd),
        }
    }

    fn devices(&self, status: &BatchStatus) -> Vec<(ResourceName, i64)> {
        pool::devices(self.context, self.state, status)
    }

    fn taints(&self, pool: Option<&str>) -> Vec<Taint> {
        pool.and_then(|name| self.pool(name)).and_then(|pool| rules::taints(pool).ok()).unwrap_or_default()
    }

    fn consolidate_after(&self, pool: Option<&str>) -> Option<SignedDuration> {
        let standard = SignedDuration::from_secs(30);
        let Some(pool) = pool.and_then(|name| self.pool(name)) else { return Some(standard) };
        rules::consolidate_after(pool).unwrap_or(Some(standard))
    }

    fn foreign_pods_after(&self, pool: Option<&str>) -> Option<SignedDuration> {
        let pool = pool.and_then(|name| self.pool(name));
        never_or(pool.map_or("15m", |pool| &pool.spec.disruption.foreign_pods_after), SignedDuration::from_mins(15))
    }

    fn levels(&self, batch: &Batch) -> WantedLevels {
        let levels = &self.context.options.levels;
        let level = |text: &str| -> Option<Level> {
            levels.resolve(text).and_then(|index| levels.as_slice().get(index)).cloned()
        };
        match &batch.spec.owner {
            Owner::Gang(gang) => {
                let Some(recognised) = self.state.snapshot.recognised.get(&gang.key) else {
                    return WantedLevels::default();
                };
                let topology_request = |topology_request: &Option<RawTopologyRequest>| {
                    topology_request.as_ref().and_then(|topology_request| level(&topology_request.value))
                };
                let topology_requests = &recognised.topology_requests;
                WantedLevels {
                    required: topology_request(&topology_requests.required),
                    preferred: topology_request(&topology_requests.preferred),
                }
            }
            Owner::Request(request) => {
                let Some(request) = self.state.requests.get(&request.key) else { return WantedLevels::default() };
                let topology_request = |key: &str| request.spec.parameters.get(key).and_then(|text| level(text));
                WantedLevels {
                    required: topology_request(keys::TOPOLOGY_REQUIRED),
                    preferred: topology_request(keys::TOPOLOGY_PREFERRED),
                }
            }
            Owner::Pods => WantedLevels::default(),
        }
    }

    fn has_request(&self, owner: &OwnerRef) -> bool {
        let seen = self.state.requests.get(&owner.key);
        seen.is_some_and(|seen| seen.metadata.uid.as_deref() == Some(owner.uid.as_str()))
    }

    fn blame(&self, pool: &str, kind: ErrorClass, code: Option<&str>, message: &str) -> Option<String> {
        let class = self.pool(pool).and_then(|pool| pool::class_of(self.state, pool))?;
        class::blamed(class, kind, code, message)
    }

    fn lacks(&self, pool: Option<&str>) -> Option<String> {
        self.context.cloud.lacks(class::name_of(self.state, pool).as_deref())
    }
}

/// `None` for `Never`.
fn never_or(text: &str, otherwise: SignedDuration) -> Option<SignedDuration> {
    if text == "Never" { None } else { Some(pool::duration(text).unwrap_or(otherwise)) }
}
