//! A wire-level EC2 simulator.
//!
//! It speaks the ec2Query protocol as the real service does, over plain HTTP, and has finite
//! capacity, placement groups, topology, client tokens, throttles and faults. Everything follows
//! from a [`Scenario`] and its seed; every request is kept in a journal. What AWS does not document
//! is a named choice ([`choices::Choices`]).
//!
//! Every request is answered under one lock and without waiting, so a run with a manual clock is a
//! function of the scenario and the order of its requests.

mod capacity;
mod control;
mod fixtures;
mod interfaces;
mod interruption;
mod kinds;
mod launch;
mod operations;
mod protocol;
mod quota;
mod server;
mod state;
mod throttle;

pub mod bill;
pub mod choices;
pub mod clock;
pub mod events;
pub mod faults;
pub mod invariants;
pub mod journal;
pub mod policy;
pub mod scenario;
pub mod view;

use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use jiff::SignedDuration;

pub use crate::bill::Bill;
pub use crate::clock::SimClock;
pub use crate::events::{Interruption, InterruptionKind};
pub use crate::faults::{Fault, FaultKind};
pub use crate::invariants::Invariant;
pub use crate::journal::JournalEntry;
pub use crate::scenario::{MarketType, Scenario, ScenarioError};
pub use crate::server::NodeTopology;
pub use crate::view::{InstanceView, Machine};

use crate::state::World;

/// Names a folder into which every simulator of a process writes its journal, for instance to hold the requests of a
/// whole test suite against the service's model.
pub const JOURNAL_VARIABLE: &str = "EC2_SIM_JOURNAL_DIR";

/// The tag whose value is the cluster's UID.
pub const CLUSTER_TAG: &str = "muster.dev/cluster-uid";
/// The tag whose value is the NodeBatch's UID.
pub const BATCH_TAG: &str = "muster.dev/batch";
/// The tag whose value is the number of the attempt.
pub const ATTEMPT_TAG: &str = "muster.dev/attempt";

/// The tag whose value is the UID of the gang, where there is one.
pub const GANG_TAG: &str = "muster.dev/gang-uid";

/// One simulated account in one Region.
#[derive(Debug)]
pub struct Simulator {
    clock: Arc<SimClock>,
    world: Mutex<World>,
}

impl Simulator {
    /// Makes the world of a scenario. With the environment variable [`JOURNAL_VARIABLE`] the journal is also written
    /// into that folder, bodies included.
    ///
    /// # Errors
    /// [`ScenarioError`] when the scenario contradicts itself, or the folder cannot be written.
    pub fn new(mut scenario: Scenario) -> Result<Arc<Self>, ScenarioError> {
        scenario.check()?;
        let folder = std::env::var_os(JOURNAL_VARIABLE);
        scenario.record_bodies |= folder.is_some();
        let clock = Arc::new(SimClock::new(&scenario.clock));
        let mut world = World::new(scenario, clock.origin());
        if let Some(folder) = folder {
            let kept = journal::Journal::kept_in(std::path::Path::new(&folder));
            world.journal = kept.map_err(|error| ScenarioError::Journal(error.to_string()))?;
        }
        world.declare(clock.now());
        launch::others::place_others(&mut world, clock.now())?;
        Ok(Arc::new(Self { clock, world: Mutex::new(world) }))
    }

    /// The routes: the service at `/`, the control endpoint under `/_sim/`.
    pub fn router(self: &Arc<Self>) -> axum::Router {
        control::routes().merge(server::routes()).with_state(Arc::clone(self))
    }

    /// The virtual clock.
    #[must_use]
    pub fn clock(&self) -> &Arc<SimClock> {
        &self.clock
    }

    /// The scenario the world was made of.
    #[must_use]
    pub fn scenario(&self) -> Scenario {
        self.settled().scenario.clone()
    }

    /// Every request so far.
    #[must_use]
    pub fn journal(&self) -> Vec<JournalEntry> {
        self.settled().journal.entries().to_vec()
    }

    /// How many requests have come in so far.
    #[must_use]
    pub fn requests(&self) -> usize {
        self.settled().journal.entries().len()
    }

    /// Every invariant that can be judged here, as of now.
    #[must_use]
    pub fn invariants(&self) -> Vec<Invariant> {
        invariants::judge(&self.settled(), self.clock.now())
    }

    /// What the instances have cost so far.
    #[must_use]
    pub fn bill(&self) -> Bill {
        bill::of(&self.settled(), self.clock.now())
    }

    /// All instances there ever were, by id.
    #[must_use]
    pub fn instances(&self) -> Vec<InstanceView> {
        view::instances(&self.settled(), self.clock.now(), false)
    }

    /// One of them.
    #[must_use]
    pub fn instance(&self, id: &str) -> Option<InstanceView> {
        view::instance(&self.settled(), self.clock.now(), id)
    }

    /// Those that run and belong to nobody else, by id: what a fake for their kubelets looks at all the time.
    #[must_use]
    pub fn machines(&self) -> Vec<Machine> {
        view::machines(&self.settled(), self.clock.now())
    }

    /// Names of the placement groups there are.
    #[must_use]
    pub fn placement_groups(&self) -> Vec<String> {
        self.settled().groups.keys().cloned().collect()
    }

    /// Ids of the launch templates there are.
    #[must_use]
    pub fn launch_templates(&self) -> Vec<String> {
        self.settled().templates.keys().cloned().collect()
    }

    /// Adds a fault.
    pub fn add_fault(&self, fault: Fault) {
        self.settled().faults.add(fault);
    }

    /// Takes all faults away.
    pub fn clear_faults(&self) {
        self.settled().faults.clear();
    }

    /// Denies these actions, whatever the policy says, and no others; a later call takes their place.
    pub fn deny(&self, actions: impl IntoIterator<Item = String>) {
        self.settled().denied = actions.into_iter().collect();
    }

    /// Terminates instances as EC2 itself would, with this `stateReason` code; returns those that
    /// were alive.
    pub fn terminate(&self, ids: &[String], reason: &str) -> Vec<String> {
        let now = self.clock.now();
        let mut world = self.settled();
        ids.iter().filter(|id| world.terminate(id, (reason, reason), SignedDuration::ZERO, now)).cloned().collect()
    }

    /// Protects an instance from TerminateInstances, as its attribute `disableApiTermination` does.
    pub fn protect(&self, id: &str) {
        self.settled().protected.insert(id.to_owned());
    }

    /// Interrupts instances; returns those that were alive.
    pub fn interrupt(&self, what: &Interruption) -> Vec<String> {
        let now = self.clock.now();
        self.settled().interrupt(what, now)
    }

    /// Sets the hosts of one leaf, making pool, spine and leaf if need be; returns the number.
    /// Instances on hosts taken away stay; the host is gone when they are.
    ///
    /// # Errors
    /// [`ScenarioError`] for an unknown type or zone.
    pub fn set_hosts(&self, change: &control::PoolChange) -> Result<u32, ScenarioError> {
        control::change_pool(&mut self.settled(), change)
    }

    /// The world, with everything done that is due by now.
    fn settled(&self) -> MutexGuard<'_, World> {
        let mut world = self.world.lock().unwrap_or_else(PoisonError::into_inner);
        world.settle(self.clock.now());
        server::carry_out_due(&mut world, self.clock.now());
        world
    }
}

pub use crate::control::PoolChange;

/// Every operation that is played, with its service.
#[must_use]
pub fn played() -> Vec<(&'static str, &'static str)> {
    operations::played()
}

/// Serves a simulator on a listener until `shutdown` is ready.
///
/// # Errors
/// What the listener reports.
pub async fn serve(
    listener: tokio::net::TcpListener,
    simulator: Arc<Simulator>,
    shutdown: impl Future<Output = ()> + Send + 'static,
) -> std::io::Result<()> {
    axum::serve(listener, simulator.router()).with_graceful_shutdown(shutdown).await
}
