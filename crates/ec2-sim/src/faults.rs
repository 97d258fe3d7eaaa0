//! Faults: what goes wrong, for which calls, how often.
//!
//! A fault is matched against a call once, when the call arrives; its counters move then. Faults
//! that concern a pool are matched again against each candidate of the launch.

use std::collections::BTreeSet;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

use crate::clock::{later, seconds};

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
    /// Whether the launch names a placement group.
    #[serde(default)]
    pub placement_group: Option<bool>,
    /// The value of the tag `muster.dev/batch`.
    #[serde(default)]
    pub batch: Option<String>,
    /// Only launches of more than this many instances.
    #[serde(default)]
    pub more_than: Option<u32>,
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
            placement_group: None,
            batch: None,
            more_than: None,
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
    Ice,
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
    /// New instances are not visible to any Describe call for this long.
    Invisible {
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
            Self::Ice => "ice",
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

    /// The operations it can concern; empty means any.
    fn operations(&self) -> &'static [&'static str] {
        match self {
            Self::Ice
            | Self::Partial { .. }
            | Self::Violating { .. }
            | Self::StuckPending { .. }
            | Self::SlowBoot { .. }
            | Self::Dies { .. }
            | Self::Invisible { .. } => &["CreateFleet", "RunInstances"],
            Self::ErrorItem { .. } => &["CreateFleet"],
            Self::SlowTerminate { .. } => &["TerminateInstances", "DeleteFleets"],
            Self::LostResponse | Self::LostAsServerError | Self::Delay { .. } | Self::Throttle | Self::Error { .. } => {
                &[]
            }
        }
    }
}

/// What a fault is matched against: a whole call (several types and zones) or one candidate.
#[derive(Debug, Clone, Default)]
pub(crate) struct CallScope {
    pub(crate) operation: String,
    pub(crate) types: BTreeSet<String>,
    pub(crate) zones: BTreeSet<String>,
    pub(crate) placement_group: bool,
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
    pub(crate) fn of_pool<'a>(&'a self, instance_type: &'a str, zone: &'a str) -> impl Iterator<Item = &'a FaultKind> {
        self.0
            .iter()
            .filter(move |f| {
                f.instance_type.as_deref().is_none_or(|t| t == instance_type)
                    && f.zone.as_deref().is_none_or(|z| z == zone)
            })
            .map(|f| &f.kind)
    }
}

/// All faults of a run, with the number of matching calls each has seen.
#[derive(Debug, Default)]
pub(crate) struct Faults(Vec<(Fault, u32)>);

impl Faults {
    pub(crate) fn new(faults: &[Fault]) -> Self {
        Self(faults.iter().map(|f| (f.clone(), 0)).collect())
    }

    pub(crate) fn add(&mut self, fault: Fault) {
        self.0.push((fault, 0));
    }

    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// The faults that hit this call; their counters move.
    pub(crate) fn draw(&mut self, scope: &CallScope, origin: Timestamp, now: Timestamp) -> Drawn {
        let mut drawn = Vec::new();
        for (fault, seen) in &mut self.0 {
            if !matches(fault, scope) || !within(fault, origin, now) {
                continue;
            }
            let turn = *seen;
            *seen = seen.saturating_add(1);
            let begun = turn >= fault.skip;
            let over = fault.count.is_some_and(|count| turn >= fault.skip.saturating_add(count));
            if begun && !over {
                drawn.push(fault.clone());
            }
        }
        Drawn(drawn)
    }
}

fn matches(fault: &Fault, scope: &CallScope) -> bool {
    let possible = fault.kind.operations();
    (possible.is_empty() || possible.contains(&scope.operation.as_str()))
        && fault.operation.as_ref().is_none_or(|o| *o == scope.operation)
        && fault.instance_type.as_ref().is_none_or(|t| scope.types.contains(t))
        && fault.zone.as_ref().is_none_or(|z| scope.zones.contains(z))
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
