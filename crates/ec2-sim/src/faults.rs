//! Faults: what goes wrong, for which calls, how often.
//!
//! A fault is matched against a call once, when the call arrives; its counters move then. Faults
//! that concern a pool are matched again against each candidate of the launch.

use std::collections::BTreeSet;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use rand::Rng;
use rand_chacha::ChaCha8Rng;
use serde::{Deserialize, Serialize};

use crate::clock::{later, seconds};
use crate::interruption::{Interruption, KINDS};
use crate::kinds::MarketType;
use crate::protocol::error::ApiError;

/// One fault and its scope; an absent scope member matches everything.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Fault {
    /// The operation's name, for instance `CreateFleet`; absent: every operation that launches for
    /// a fault of a launch, every operation for the others.
    #[serde(default)]
    pub operation: Option<String>,
    /// The instance type of the candidate.
    #[serde(default, rename = "type")]
    pub instance_type: Option<String>,
    /// The Availability Zone's name.
    #[serde(default)]
    pub zone: Option<String>,
    /// The capacity type of the launch.
    #[serde(default)]
    #[serde(rename = "market")]
    pub capacity_type: Option<MarketType>,
    /// Whether the launch names a placement group.
    #[serde(default)]
    pub placement_group: Option<bool>,
    /// The value of the tag `muster.dev/batch`.
    #[serde(default)]
    pub batch: Option<String>,
    /// Only launches of more than this many instances.
    #[serde(default)]
    pub more_than: Option<u32>,
    /// How many of a hundred matching calls are hit, drawn from the seed; absent: all.
    #[serde(default)]
    pub percent: Option<u32>,
    /// Matching calls left alone before the fault begins.
    #[serde(default)]
    pub skip: u32,
    /// Matching calls hit; absent: all.
    #[serde(default)]
    pub count: Option<u32>,
    /// Virtual seconds since the clock's origin at which the fault begins.
    #[serde(default)]
    pub from_seconds: Option<f64>,
    /// Virtual seconds since the clock's origin at which the fault ends.
    #[serde(default)]
    pub until_seconds: Option<f64>,
    /// What happens.
    pub kind: FaultKind,
}

impl Fault {
    /// A fault of this kind that hits every call it can.
    #[must_use]
    pub fn of(kind: FaultKind) -> Self {
        Self {
            operation: None,
            instance_type: None,
            zone: None,
            capacity_type: None,
            placement_group: None,
            batch: None,
            more_than: None,
            percent: None,
            skip: 0,
            count: None,
            from_seconds: None,
            until_seconds: None,
            kind,
        }
    }

    /// The same fault, for this operation alone.
    #[must_use]
    pub fn on(mut self, operation: &str) -> Self {
        self.operation = Some(operation.to_owned());
        self
    }

    /// The same fault, for the first `count` matching calls.
    #[must_use]
    pub fn times(mut self, count: u32) -> Self {
        self.count = Some(count);
        self
    }
}

/// What a fault does.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase", deny_unknown_fields)]
pub enum FaultKind {
    /// The candidate's pool has no capacity.
    #[serde(rename = "ice")]
    InsufficientCapacity,
    /// The candidate's pool gives no more than `fill` instances.
    Partial {
        /// Instances at most.
        fill: u32,
    },
    /// `launch` instances are started and answered, whatever the minimum says.
    Violating {
        /// Instances started.
        launch: u32,
    },
    /// CreateFleet: the candidate fails with this code inside the answer of status 200.
    ErrorItem {
        /// The item's error code, for instance `RequestLimitExceeded`.
        code: String,
        /// The item's message.
        #[serde(default)]
        message: String,
    },
    /// The work is done, then the connection is cut.
    LostResponse,
    /// The work is done, then status 500 `InternalError` is answered.
    LostAsServerError,
    /// The work is done, then the answer is held back for this long in real time.
    Delay {
        /// Real milliseconds.
        real_millis: u64,
    },
    /// Status 503 `RequestLimitExceeded`; nothing is done.
    Throttle,
    /// This error; nothing is done.
    Error {
        /// The error code.
        code: String,
        /// The HTTP status.
        #[serde(default = "bad_request")]
        status: u16,
        /// The message.
        #[serde(default)]
        message: String,
    },
    /// The first `instances` of the launch never leave `pending`; absent: all of them.
    StuckPending {
        /// How many.
        #[serde(default)]
        instances: Option<u32>,
    },
    /// The first `instances` of the launch take this much longer to boot; absent: all of them.
    SlowBoot {
        /// How many.
        #[serde(default)]
        instances: Option<u32>,
        /// Virtual seconds more.
        seconds: f64,
    },
    /// The first `instances` of the launch die by themselves.
    Dies {
        /// How many.
        instances: u32,
        /// Virtual seconds after the launch.
        #[serde(default)]
        after_seconds: f64,
        /// The `stateReason` code.
        #[serde(default = "internal_error")]
        reason: String,
    },
    /// What a launch makes is not visible to any other call for this long; named for them, also what
    /// CreateLaunchTemplate and CreatePlacementGroup make.
    Invisible {
        /// Virtual seconds.
        seconds: f64,
    },
    /// New instances are found by id alone for this long: they have no tags yet.
    TagsLate {
        /// Virtual seconds.
        seconds: f64,
    },
    /// Describe calls show the instances as they were this long ago.
    StaleReads {
        /// Virtual seconds.
        seconds: f64,
    },
    /// The connection is cut and the call is carried out later: when a newer launch of the same batch, under another
    /// token, has been carried out, or after a time.
    HeldBack {
        /// Virtual seconds; absent: until a newer launch of the batch.
        #[serde(default)]
        seconds: Option<f64>,
    },
    /// The nodes of the first `instances` register late, or never.
    SlowRegistration {
        /// How many; absent: all of them.
        #[serde(default)]
        instances: Option<u32>,
        /// Virtual seconds after `running`; absent: never.
        #[serde(default)]
        seconds: Option<f64>,
    },
    /// The first `instances` of the launch are interrupted after they run.
    Interrupted {
        /// How many; absent: all of them.
        #[serde(default)]
        instances: Option<u32>,
        /// Virtual seconds after `running`.
        #[serde(default)]
        after_seconds: f64,
        /// What happens; its `instanceIds` do not count.
        #[serde(default)]
        interruption: Interruption,
    },
    /// The event never reaches the queue. The operation is the kind of the event, for instance
    /// `SpotInterruption`.
    EventLost,
    /// The event reaches the queue several times.
    EventRepeated {
        /// Copies in all.
        copies: u32,
    },
    /// The event reaches the queue late, and so after others.
    EventLate {
        /// Virtual seconds.
        seconds: f64,
    },
    /// TerminateInstances and DeleteFleets: the instances stay in `shutting-down` for this much
    /// longer.
    SlowTerminate {
        /// Virtual seconds more.
        seconds: f64,
    },
}

impl FaultKind {
    /// The name in the journal.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::InsufficientCapacity => "ice",
            Self::Partial { .. } => "partial",
            Self::Violating { .. } => "violating",
            Self::ErrorItem { .. } => "errorItem",
            Self::LostResponse => "lostResponse",
            Self::LostAsServerError => "lostAsServerError",
            Self::Delay { .. } => "delay",
            Self::Throttle => "throttle",
            Self::Error { .. } => "error",
            Self::StuckPending { .. } => "stuckPending",
            Self::SlowBoot { .. } => "slowBoot",
            Self::Dies { .. } => "dies",
            Self::Invisible { .. } => "invisible",
            Self::SlowTerminate { .. } => "slowTerminate",
            Self::TagsLate { .. } => "tagsLate",
            Self::StaleReads { .. } => "staleReads",
            Self::HeldBack { .. } => "heldBack",
            Self::SlowRegistration { .. } => "slowRegistration",
            Self::Interrupted { .. } => "interrupted",
            Self::EventLost => "eventLost",
            Self::EventRepeated { .. } => "eventRepeated",
            Self::EventLate { .. } => "eventLate",
        }
    }

    /// The instances that a violating launch starts.
    pub(crate) fn violation(&self) -> Option<u32> {
        if let Self::Violating { launch } = self { Some(*launch) } else { None }
    }

    /// How much longer termination takes.
    pub(crate) fn slower_termination(&self) -> Option<SignedDuration> {
        if let Self::SlowTerminate { seconds: more } = self { Some(seconds(*more)) } else { None }
    }

    /// For how long of real time the answer is held back.
    pub(crate) fn hold(&self) -> Option<Duration> {
        if let Self::Delay { real_millis } = self { Some(Duration::from_millis(*real_millis)) } else { None }
    }

    /// The most that a pool gives.
    pub(crate) fn fill(&self) -> Option<u32> {
        if let Self::Partial { fill } = self { Some(*fill) } else { (*self == Self::InsufficientCapacity).then_some(0) }
    }

    /// For how long what the call made is hidden.
    pub(crate) fn hidden(&self) -> Option<SignedDuration> {
        if let Self::Invisible { seconds: hidden } = self { Some(seconds(*hidden)) } else { None }
    }

    /// How old the answer of a Describe call is.
    pub(crate) fn stale(&self) -> Option<SignedDuration> {
        if let Self::StaleReads { seconds: old } = self { Some(seconds(*old)) } else { None }
    }

    /// What the call is refused with before anything is done.
    pub(crate) fn refusal(&self) -> Option<ApiError> {
        if let Self::Error { code, status, message } = self {
            Some(ApiError::new(*status, code, message.clone()))
        } else {
            (*self == Self::Throttle).then(ApiError::throttled)
        }
    }

    /// Whether a dry run meets it: what refuses a call for who asks or for what it asks, and not for what there is left of it,
    /// since a dry run looks at neither capacity nor quotas.
    fn meets_dry_runs(&self) -> bool {
        match self {
            Self::Throttle => true,
            Self::Error { code, .. } => {
                let of_what_is_left = ["Capacity", "LimitExceeded", "CountExceeded"];
                code == "RequestLimitExceeded" || !of_what_is_left.iter().any(|part| code.contains(part))
            }
            // A dry run carries nothing out that could go wrong, and is answered whole.
            Self::InsufficientCapacity
            | Self::Partial { .. }
            | Self::Violating { .. }
            | Self::ErrorItem { .. }
            | Self::LostResponse
            | Self::LostAsServerError
            | Self::Delay { .. }
            | Self::StuckPending { .. }
            | Self::SlowBoot { .. }
            | Self::Dies { .. }
            | Self::Invisible { .. }
            | Self::TagsLate { .. }
            | Self::StaleReads { .. }
            | Self::HeldBack { .. }
            | Self::SlowRegistration { .. }
            | Self::Interrupted { .. }
            | Self::EventLost
            | Self::EventRepeated { .. }
            | Self::EventLate { .. }
            | Self::SlowTerminate { .. } => false,
        }
    }

    /// Whether it concerns calls of this operation; `named`: the fault names the operation itself.
    fn concerns(&self, operation: &str, named: bool) -> bool {
        let launch = matches!(operation, "CreateFleet" | "RunInstances");
        let event = KINDS.contains(&operation);
        match self {
            Self::InsufficientCapacity
            | Self::Partial { .. }
            | Self::Violating { .. }
            | Self::StuckPending { .. }
            | Self::SlowBoot { .. }
            | Self::SlowRegistration { .. }
            | Self::Interrupted { .. }
            | Self::TagsLate { .. }
            | Self::HeldBack { .. }
            | Self::Dies { .. } => launch,
            Self::Invisible { .. } => {
                launch || (named && matches!(operation, "CreateLaunchTemplate" | "CreatePlacementGroup"))
            }
            Self::ErrorItem { .. } => operation == "CreateFleet",
            Self::SlowTerminate { .. } => matches!(operation, "TerminateInstances" | "DeleteFleets"),
            Self::StaleReads { .. } => operation.starts_with("Describe"),
            Self::EventLost | Self::EventRepeated { .. } | Self::EventLate { .. } => event,
            Self::LostResponse | Self::LostAsServerError | Self::Delay { .. } | Self::Throttle | Self::Error { .. } => {
                !event
            }
        }
    }
}

/// What a fault is matched against: a whole call (several types and zones) or one candidate.
#[derive(Debug, Clone, Default)]
pub(crate) struct CallScope {
    pub(crate) operation: String,
    /// Whether the call is a dry run.
    pub(crate) dry_run: bool,
    pub(crate) types: BTreeSet<String>,
    pub(crate) zones: BTreeSet<String>,
    /// None: the call launches nothing.
    pub(crate) capacity_type: Option<MarketType>,
    pub(crate) placement_group: bool,
    /// The placement group's name or id.
    pub(crate) group: Option<String>,
    /// The capacity reservation a launch names.
    pub(crate) reservation: Option<String>,
    pub(crate) batch: Option<String>,
    pub(crate) instances: u32,
}

/// The faults that hit one call.
#[derive(Debug, Clone, Default)]
pub(crate) struct Drawn(Vec<Fault>);

impl Drawn {
    /// Their names, for the journal.
    pub(crate) fn names(&self) -> Vec<String> {
        self.0.iter().map(|f| f.kind.name().to_owned()).collect()
    }

    /// The kinds, whatever their scope.
    pub(crate) fn kinds(&self) -> impl Iterator<Item = &FaultKind> {
        self.0.iter().map(|f| &f.kind)
    }

    /// The kinds that concern a candidate of this type and zone.
    pub(crate) fn of_pool<'a>(
        &'a self,
        instance_type: &'a str,
        zone: &'a str,
        capacity_type: MarketType,
    ) -> impl Iterator<Item = &'a FaultKind> {
        self.0
            .iter()
            .filter(move |f| {
                f.instance_type.as_deref().is_none_or(|t| t == instance_type)
                    && f.zone.as_deref().is_none_or(|z| z == zone)
                    && f.capacity_type.is_none_or(|m| m == capacity_type)
            })
            .map(|f| &f.kind)
    }
}

/// All faults of a run, with the number of matching calls each has seen.
#[derive(Debug)]
pub(crate) struct Faults {
    all: Vec<(Fault, u32)>,
    rng: ChaCha8Rng,
}

impl Faults {
    pub(crate) fn new(faults: &[Fault], rng: ChaCha8Rng) -> Self {
        Self { all: faults.iter().map(|f| (f.clone(), 0)).collect(), rng }
    }

    pub(crate) fn add(&mut self, fault: Fault) {
        self.all.push((fault, 0));
    }

    pub(crate) fn clear(&mut self) {
        self.all.clear();
    }

    pub(crate) fn len(&self) -> usize {
        self.all.len()
    }

    /// The faults that hit this call; their counters move.
    pub(crate) fn draw(&mut self, scope: &CallScope, origin: Timestamp, now: Timestamp) -> Drawn {
        let mut drawn = Vec::new();
        for (fault, seen) in &mut self.all {
            if !matches(fault, scope) || !within(fault, origin, now) {
                continue;
            }
            let turn = *seen;
            *seen = seen.saturating_add(1);
            let begun = turn >= fault.skip;
            let over = fault.count.is_some_and(|count| turn >= fault.skip.saturating_add(count));
            let spared = fault.percent.is_some_and(|percent| self.rng.next_u32() % 100 >= percent);
            if begun && !over && !spared {
                drawn.push(fault.clone());
            }
        }
        Drawn(drawn)
    }
}

fn matches(fault: &Fault, scope: &CallScope) -> bool {
    fault.kind.concerns(&scope.operation, fault.operation.is_some())
        && (!scope.dry_run || fault.kind.meets_dry_runs())
        && fault.operation.as_ref().is_none_or(|o| *o == scope.operation)
        && fault.instance_type.as_ref().is_none_or(|t| scope.types.contains(t))
        && fault.zone.as_ref().is_none_or(|z| scope.zones.contains(z))
        && fault.capacity_type.is_none_or(|m| scope.capacity_type == Some(m))
        && fault.placement_group.is_none_or(|p| p == scope.placement_group)
        && (fault.batch.is_none() || fault.batch == scope.batch)
        && fault.more_than.is_none_or(|n| scope.instances > n)
}

fn within(fault: &Fault, origin: Timestamp, now: Timestamp) -> bool {
    fault.from_seconds.is_none_or(|s| now >= later(origin, seconds(s)))
        && fault.until_seconds.is_none_or(|s| now < later(origin, seconds(s)))
}

fn bad_request() -> u16 {
    400
}

fn internal_error() -> String {
    "Server.InternalError".to_owned()
}
