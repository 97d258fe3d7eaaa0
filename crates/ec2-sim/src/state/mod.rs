//! All that the simulated account holds.

pub(crate) mod fleets;
pub(crate) mod groups;
pub(crate) mod ids;
pub(crate) mod instances;
pub(crate) mod subnets;
pub(crate) mod templates;
pub(crate) mod tokens;

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng;

use crate::capacity::Capacity;
use crate::choices::EmptyGroup;
use crate::faults::Faults;
use crate::journal::Journal;
use crate::scenario::Scenario;
use crate::state::fleets::Fleet;
use crate::state::groups::Group;
use crate::state::ids::Ids;
use crate::state::instances::{Instance, LifeState};
use crate::state::subnets::SubnetState;
use crate::state::templates::Template;
use crate::state::tokens::Tokens;
use crate::throttle::Buckets;

/// The account, its capacity and what was done to it.
#[derive(Debug)]
pub(crate) struct World {
    pub(crate) scenario: Scenario,
    pub(crate) origin: Timestamp,
    pub(crate) capacity: Capacity,
    /// By name.
    pub(crate) groups: BTreeMap<String, Group>,
    /// By id.
    pub(crate) templates: BTreeMap<String, Template>,
    /// By id.
    pub(crate) fleets: BTreeMap<String, Fleet>,
    /// By id; terminated ones stay for the bill and the invariants.
    pub(crate) instances: BTreeMap<String, Instance>,
    /// By id.
    pub(crate) subnets: BTreeMap<String, SubnetState>,
    /// Images that a path was resolved to.
    pub(crate) resolved_images: BTreeSet<String>,
    pub(crate) tokens: Tokens,
    pub(crate) buckets: Buckets,
    pub(crate) faults: Faults,
    pub(crate) journal: Journal,
    pub(crate) ids: Ids,
}

impl World {
    pub(crate) fn new(scenario: Scenario, origin: Timestamp) -> Self {
        let stream = |number: u64| {
            let mut rng = ChaCha8Rng::seed_from_u64(scenario.seed);
            rng.set_stream(number);
            rng
        };
        let subnets = scenario
            .zones
            .iter()
            .flat_map(|zone| zone.subnets.iter().map(|s| SubnetState::new(zone, s)))
            .map(|s| (s.id.clone(), s))
            .collect();
        Self {
            origin,
            capacity: Capacity::new(&scenario.pools, stream(1), scenario.choices.leaf_spread),
            groups: BTreeMap::new(),
            templates: BTreeMap::new(),
            fleets: BTreeMap::new(),
            instances: BTreeMap::new(),
            subnets,
            resolved_images: BTreeSet::new(),
            tokens: Tokens::default(),
            buckets: Buckets::new(scenario.throttling),
            faults: Faults::new(&scenario.faults),
            journal: Journal::default(),
            ids: Ids::new(stream(2)),
            scenario,
        }
    }

    /// Does what has become due by `now`: hosts and addresses of terminated instances are freed,
    /// and placement groups without instances are unpinned.
    pub(crate) fn settle(&mut self, now: Timestamp) {
        for instance in self.instances.values_mut() {
            if instance.released || instance.state(now) != LifeState::Terminated {
                continue;
            }
            instance.released = true;
            self.capacity.release(&instance.host);
            if let Some(subnet) = self.subnets.get_mut(&instance.subnet) {
                subnet.free(&instance.addresses);
            }
        }
        if self.scenario.choices.empty_group == EmptyGroup::Unpinned {
            let occupied: Vec<&String> =
                self.instances.values().filter(|i| !i.released).filter_map(|i| i.group.as_ref()).collect();
            for (name, group) in &mut self.groups {
                if group.pin.is_some() && !occupied.contains(&name) {
                    group.pin = None;
                }
            }
        }
    }

    /// The instances of a placement group which are not terminated.
    pub(crate) fn in_group<'a>(&'a self, group: &'a str, now: Timestamp) -> impl Iterator<Item = &'a Instance> {
        self.instances
            .values()
            .filter(move |i| i.group.as_deref() == Some(group) && i.state(now) != LifeState::Terminated)
    }

    /// Starts to terminate an instance, if it is not terminated yet. Returns whether it was alive.
    pub(crate) fn terminate(
        &mut self,
        id: &str,
        reason: (&str, &str),
        slower: jiff::SignedDuration,
        now: Timestamp,
    ) -> bool {
        let delay = crate::clock::seconds(self.scenario.delays.terminate_seconds);
        let Some(instance) = self.instances.get_mut(id) else {
            return false;
        };
        if !instance.state(now).is_live() {
            return false;
        }
        instance.shutdown_at = Some(now);
        instance.terminated_at = Some(crate::clock::later(crate::clock::later(now, delay), slower));
        instance.reason = Some((reason.0.to_owned(), reason.1.to_owned()));
        true
    }

    /// `arn:aws:ec2:<region>:<account>:<kind>/<name>`.
    pub(crate) fn arn(&self, kind: &str, name: &str) -> String {
        format!("arn:aws:ec2:{}:{}:{kind}/{name}", self.scenario.region, self.scenario.account)
    }

    /// The identity every caller has.
    pub(crate) fn creator(&self) -> String {
        format!("arn:aws:sts::{}:assumed-role/muster/simulated", self.scenario.account)
    }
}
