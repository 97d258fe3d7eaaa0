//! Rate limits: one token bucket per class of calls, shared by everything in the process, below EC2's own.
//!
//! EC2 counts per account and Region; whoever runs into its limit is refused for a while, and so are all others of the
//! account. Launches and clean-up have buckets of their own, so that insufficient capacity in which many batches try never delays
//! a rollback, and whoever waits is called NodePool by NodePool. The buckets run on the provisioner's clock, like EC2's.

use std::num::NonZeroU32;
use std::time::Duration;

use governor::clock::Clock as GovernorClock;
use governor::middleware::NoOpMiddleware;
use governor::nanos::Nanos;
use governor::state::{InMemoryState, NotKeyed};
use governor::{Quota, RateLimiter};
use jiff::Timestamp;
use muster_ec2::{Pace, Turn};
use tracing::trace;

use super::lanes::Lanes;
use crate::clock::Clock;
use crate::telemetry::CloudMetrics;

/// Classes of calls, each with a bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum CallClass {
    /// Calls that change nothing.
    Describe,
    /// DescribeInstanceTopology.
    Topology,
    /// CreateFleet, CreatePlacementGroup, CreateLaunchTemplate.
    Launch,
    /// RunInstances.
    Run,
    /// Instances that RunInstances asks for.
    RunInstances,
    /// TerminateInstances.
    Terminate,
    /// DeletePlacementGroup, DeleteLaunchTemplate.
    CleanUp,
}

impl CallClass {
    /// All classes.
    pub const ALL: [Self; 7] =
        [Self::Describe, Self::Topology, Self::Launch, Self::Run, Self::RunInstances, Self::Terminate, Self::CleanUp];

    /// The word in configuration and metrics.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Describe => "describe",
            Self::Topology => "topology",
            Self::Launch => "launch",
            Self::Run => "run",
            Self::RunInstances => "runInstances",
            Self::Terminate => "terminate",
            Self::CleanUp => "cleanUp",
        }
    }

    /// EC2's published buckets; its one bucket of other mutating calls (50, 5 a second) is shared out between launches
    /// and clean-up, less a fifth of its size: calls sent at the exact rate arrive later and closer together than they
    /// were sent, and a bucket of the same size would refuse the last of them.
    ///
    /// Source: EC2 API reference, "Request throttling".
    #[must_use]
    pub fn default_limit(self) -> Limit {
        let (burst, per_second) = match self {
            Self::Describe => (100, 20),
            Self::Topology => (1, 1),
            Self::Launch => (25, 3),
            Self::Run => (5, 2),
            Self::RunInstances => (1000, 2),
            Self::Terminate => (100, 5),
            Self::CleanUp => (15, 2),
        };
        Limit {
            burst: NonZeroU32::new(burst).unwrap_or(NonZeroU32::MIN),
            per_second: NonZeroU32::new(per_second).unwrap_or(NonZeroU32::MIN),
        }
    }

    /// The class of the calls of which one method sends several.
    fn of_reading(operation: &str) -> Self {
        match operation {
            "DescribeInstanceTopology" => Self::Topology,
            "TerminateInstances" => Self::Terminate,
            _ => Self::Describe,
        }
    }

    fn index(self) -> usize {
        match self {
            Self::Describe => 0,
            Self::Topology => 1,
            Self::Launch => 2,
            Self::Run => 3,
            Self::RunInstances => 4,
            Self::Terminate => 5,
            Self::CleanUp => 6,
        }
    }
}

/// Between the answer to one reading of the topology and the next.
const BETWEEN_TOPOLOGY: Duration = Duration::from_secs(1);

/// Size and refill of a bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limit {
    /// Calls at once.
    pub burst: NonZeroU32,
    /// Calls per second in the long run.
    pub per_second: NonZeroU32,
}

/// The limits of all classes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LimitSettings([Limit; CallClass::ALL.len()]);

impl Default for LimitSettings {
    fn default() -> Self {
        Self(CallClass::ALL.map(CallClass::default_limit))
    }
}

impl LimitSettings {
    /// Sets one.
    pub fn set(&mut self, class: CallClass, limit: Limit) {
        self.0[class.index()] = limit;
    }

    /// One of them.
    #[must_use]
    pub fn get(&self, class: CallClass) -> Limit {
        self.0[class.index()]
    }
}

/// The provisioner's clock for the buckets.
#[derive(Clone, Debug)]
struct BucketClock {
    clock: Clock,
    origin: Timestamp,
}

impl GovernorClock for BucketClock {
    type Instant = Nanos;

    fn now(&self) -> Nanos {
        let passed = self.clock.now().duration_since(self.origin);
        Nanos::from(Duration::try_from(passed).unwrap_or_default())
    }
}

type Bucket = RateLimiter<NotKeyed, InMemoryState, BucketClock, NoOpMiddleware<Nanos>>;

/// The buckets.
pub struct Limits {
    buckets: [Bucket; CallClass::ALL.len()],
    /// Who waits at each.
    lanes: [Lanes; CallClass::ALL.len()],
    /// When the last reading of the topology was answered.
    topology: tokio::sync::Mutex<Option<Timestamp>>,
    clock: BucketClock,
    metrics: CloudMetrics,
}

impl std::fmt::Debug for Limits {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Limits").finish_non_exhaustive()
    }
}

impl Limits {
    /// Full buckets.
    #[must_use]
    pub fn new(settings: &LimitSettings, clock: &Clock, metrics: CloudMetrics) -> Self {
        let clock = BucketClock { origin: clock.now(), clock: clock.clone() };
        let buckets = CallClass::ALL.map(|class| {
            let Limit { burst, per_second } = settings.get(class);
            metrics.limit(class.as_str(), burst.get(), per_second.get());
            RateLimiter::direct_with_clock(Quota::per_second(per_second).allow_burst(burst), clock.clone())
        });
        Self {
            buckets,
            lanes: CallClass::ALL.map(|_| Lanes::default()),
            topology: tokio::sync::Mutex::default(),
            clock,
            metrics,
        }
    }

    /// Waits for one call's turn.
    pub async fn turn(&self, class: CallClass) {
        self.turns(class, 1).await;
    }

    /// Carries out a reading of the topology in its turn, one after another and a second after the answer to the last:
    /// a bucket of one absorbs nothing, and calls that are sent a second apart may arrive together.
    pub async fn topology<T>(&self, call: impl Future<Output = T>) -> T {
        let mut last = self.topology.lock().await;
        if let Some(at) = last.and_then(|at| at.checked_add(BETWEEN_TOPOLOGY).ok()) {
            tokio::time::sleep(self.clock.clock.real_until(at)).await;
        }
        self.turn(CallClass::Topology).await;
        let answer = call.await;
        *last = Some(self.clock.clock.now());
        answer
    }

    /// Waits for the turn of a further call of one reading, such as its next page.
    async fn further_turn(&self, operation: &str) {
        let class = CallClass::of_reading(operation);
        if class == CallClass::Topology {
            // Its first call holds the place of whoever reads the topology; the last answer came just now.
            let now = self.clock.clock.now();
            let at = now.checked_add(BETWEEN_TOPOLOGY).unwrap_or(now);
            tokio::time::sleep(self.clock.clock.real_until(at)).await;
        }
        self.turn(class).await;
    }

    /// Waits until `count` fit at once; more than the bucket holds wait for a full one. Who waits is called in turn, lane
    /// by lane.
    pub async fn turns(&self, class: CallClass, count: u32) {
        let start = self.clock.clock.now();
        let turn = self.lanes[class.index()].enter().await;
        trace!(bucket = class.as_str(), lane = &*turn.lane, ahead = turn.ahead, "its turn has come");
        let bucket = &self.buckets[class.index()];
        let mut count = NonZeroU32::new(count).unwrap_or(NonZeroU32::MIN);
        loop {
            let until = match bucket.check_n(count) {
                Ok(Ok(())) => break,
                Ok(Err(not_until)) => not_until.wait_time_from(self.clock.now()),
                Err(too_many) => {
                    count = NonZeroU32::new(too_many.0).unwrap_or(NonZeroU32::MIN);
                    continue;
                }
            };
            let now = self.clock.clock.now();
            let at = now.checked_add(until).unwrap_or(Timestamp::MAX);
            tokio::time::sleep(self.clock.clock.real_until(at).max(Duration::from_millis(1))).await;
        }
        let waited = self.clock.clock.now().duration_since(start);
        self.metrics.waited(class.as_str(), Duration::try_from(waited).unwrap_or_default());
    }
}

impl Pace for Limits {
    fn further(&self, operation: &'static str) -> Turn<'_> {
        Box::pin(self.further_turn(operation))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::telemetry::Metrics;

    fn limits() -> (Limits, Metrics) {
        let metrics = Metrics::default();
        // EC2's time stands almost still: what is taken stays taken during a test.
        let clock = Clock::real();
        (Limits::new(&LimitSettings::default(), &clock, metrics.cloud.clone()), metrics)
    }

    fn taken(limits: &Limits, class: CallClass) -> usize {
        let bucket = &limits.buckets[class.index()];
        (0..2000).take_while(|_| bucket.check().is_ok()).count()
    }

    #[test]
    fn launches_that_used_up_their_bucket_leave_rollbacks_theirs() {
        let (limits, _) = limits();
        assert!(taken(&limits, CallClass::Launch) >= 25);
        assert!(limits.buckets[CallClass::Launch.index()].check().is_err());
        assert!(limits.buckets[CallClass::Terminate.index()].check().is_ok());
        assert!(limits.buckets[CallClass::CleanUp.index()].check().is_ok());
    }

    #[test]
    fn launch_and_clean_up_together_stay_within_ec2s_one_bucket_when_two_seconds_of_calls_arrive_together() {
        let (launch, clean) = (CallClass::Launch.default_limit(), CallClass::CleanUp.default_limit());
        let per_second = launch.per_second.get() + clean.per_second.get();
        assert_eq!(per_second, 5);
        assert_eq!(launch.burst.get() + clean.burst.get() + 2 * per_second, 50);
    }

    #[tokio::test]
    async fn readings_of_the_topology_are_a_second_apart_from_answer_to_call() {
        let metrics = Metrics::default();
        let clock = Clock::scaled(crate::clock::now_real(), 1_000);
        let limits = Limits::new(&LimitSettings::default(), &clock, metrics.cloud.clone());
        let limits = &limits;
        let clock = &clock;
        let call = || {
            limits.topology(async move {
                let sent = clock.now();
                tokio::task::yield_now().await;
                (sent, clock.now())
            })
        };
        let mut calls: Vec<(Timestamp, Timestamp)> = futures::future::join_all((0..4).map(|_| call())).await;
        calls.sort_unstable();
        for pair in calls.windows(2) {
            assert!(pair[1].0.duration_since(pair[0].1) >= jiff::SignedDuration::from_secs(1), "{pair:?}");
        }
    }

    #[tokio::test]
    async fn a_bucket_refills_with_the_clock_of_ec2() {
        let metrics = Metrics::default();
        let clock = Clock::scaled(crate::clock::now_real(), 1_000);
        let limits = Limits::new(&LimitSettings::default(), &clock, metrics.cloud.clone());
        for _ in 0..20 {
            limits.turn(CallClass::Topology).await;
        }
        // More than the bucket holds is a full bucket, not an endless wait.
        limits.turns(CallClass::RunInstances, 5_000).await;
        let text = metrics.encode().unwrap();
        assert!(text.contains("muster_ec2_rate_limiter_burst{bucket=\"topology\"} 1"), "{text}");
        assert!(text.contains("muster_ec2_rate_limiter_wait_duration_seconds_count{bucket=\"topology\"} 20"), "{text}");
    }
}
