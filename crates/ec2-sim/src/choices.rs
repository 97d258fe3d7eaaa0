//! Every answer that AWS does not document, as a named choice with a default and its opposite.
//!
//! The project's suites also run with each choice flipped, so that no guarantee rests on a guess.

use serde::{Deserialize, Serialize};

/// The choices of one run.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Choices {
    /// What a known token with the same parameters is answered.
    pub replay: Replay,
    /// The `errorSet` of a missed minimum.
    pub shortfall: Shortfall,
    /// The minimum of a fleet whose capacity type is `capacity-block`.
    pub block_minimum: BlockMinimum,
    /// Whether instances that are shutting down count towards the quota.
    pub quota: Quota,
    /// Whether CreateFleet draws on the bucket of the instances that RunInstances launches.
    pub fleet_bucket: FleetBucket,
    /// Whether instant fleets count towards the 1000 active fleets of a Region.
    pub fleet_count: FleetCount,
    /// The shape of the events on the queue.
    pub event_shape: EventShape,
    /// `RunInstances`: a known token with changed parameters in the same zone.
    pub zonal_mismatch: ZonalMismatch,
    /// The code of a refused combination of parameters.
    pub refusal: Refusal,
    /// What unpins a cluster placement group from its spine.
    pub empty_group: EmptyGroup,
    /// Where the fourth network layer of the types that have one lies.
    pub fourth_layer: FourthLayer,
    /// Seconds (virtual) between `running` and the first topology answer.
    pub topology_delay_seconds: u32,
    /// Seconds (virtual) after which a token is forgotten; absent: never.
    pub token_life_seconds: Option<u32>,
    /// How a launch in a placement group lies over the leaves of its spine.
    pub leaf_spread: LeafSpread,
    /// What a dry run of a launch looks at.
    pub dry_run: DryRun,
    /// Whether CreateFleet takes tags for volumes; those for the fleet and its instances alone are documented.
    pub fleet_volume_tags: FleetVolumeTags,
    /// Whether a template that says what a shutdown from within does may be used for spot instances.
    pub spot_shutdown: SpotShutdown,
    /// What a shutdown from within does to a spot instance whose template does not say it. A one-time request cannot be
    /// stopped by a call; what it comes to from within is documented nowhere.
    pub spot_power_off: SpotPowerOff,
    /// Whether a quota has a value of the account's own, which nobody granted.
    pub quota_value: QuotaValue,
}

/// A name for the command line, and what it changes.
type Flip = (&'static str, fn(&mut Choices));

const FLIPS: [Flip; 21] = [
    ("replay-without-ids", |choices| choices.replay = Replay::WithoutIds),
    ("replay-error", |choices| choices.replay = Replay::Error),
    ("shortfall-unfulfillable", |choices| choices.shortfall = Shortfall::Unfulfillable),
    ("shortfall-empty", |choices| choices.shortfall = Shortfall::Empty),
    ("block-minimum-acts", |choices| choices.block_minimum = BlockMinimum::Acts),
    ("quota-live-alone-counts", |choices| choices.quota = Quota::LiveAloneCounts),
    ("fleet-bucket-shared", |choices| choices.fleet_bucket = FleetBucket::Shared),
    ("fleet-count-counted", |choices| choices.fleet_count = FleetCount::Counted),
    ("event-shape-odd", |choices| choices.event_shape = EventShape::Odd),
    ("zonal-mismatch-old-answer", |choices| choices.zonal_mismatch = ZonalMismatch::OldAnswer),
    ("refusal-invalid-parameter-value", |choices| choices.refusal = Refusal::InvalidParameterValue),
    ("empty-group-stays-pinned", |choices| choices.empty_group = EmptyGroup::StaysPinned),
    ("fourth-layer-above-leaf", |choices| choices.fourth_layer = FourthLayer::AboveLeaf),
    ("topology-delay-seconds", |choices| choices.topology_delay_seconds = 5),
    ("token-life-seconds", |choices| choices.token_life_seconds = Some(60)),
    ("dry-run-permissions-alone", |choices| choices.dry_run = DryRun::PermissionsAlone),
    ("leaf-spread-packed", |choices| choices.leaf_spread = LeafSpread::Packed),
    ("fleet-volume-tags-refused", |choices| choices.fleet_volume_tags = FleetVolumeTags::Refused),
    ("spot-shutdown-refused", |choices| choices.spot_shutdown = SpotShutdown::Refused),
    ("spot-power-off-stops", |choices| choices.spot_power_off = SpotPowerOff::Stops),
    ("quota-value-default-alone", |choices| choices.quota_value = QuotaValue::DefaultAlone),
];

impl Choices {
    /// Every answer other than the default's, one at a time, under a name for the command line.
    #[must_use]
    pub fn flipped() -> Vec<(&'static str, Self)> {
        FLIPS.into_iter().map(|flip| (flip.0, Self::with(std::iter::once(flip)))).collect()
    }

    /// Every choice flipped at once, twice: where a choice has several other answers, the first and the last.
    #[must_use]
    pub fn all_flipped() -> [(&'static str, Self); 2] {
        [("all-first", Self::with(FLIPS.into_iter().rev())), ("all-last", Self::with(FLIPS.into_iter()))]
    }

    /// The choices of that name: of one flip, or of all at once.
    ///
    /// Errors: the names there are.
    pub fn named(name: &str) -> Result<Self, String> {
        let all: Vec<_> = Self::all_flipped().into_iter().chain(Self::flipped()).collect();
        let known = || all.iter().map(|(known, _)| *known).collect::<Vec<_>>().join(", ");
        let found = all.iter().find(|(known, _)| *known == name);
        found.map(|(_, choices)| choices.clone()).ok_or_else(|| format!("{name}: not one of {}", known()))
    }

    fn with(flips: impl Iterator<Item = Flip>) -> Self {
        let mut choices = Self::default();
        flips.for_each(|(_, change)| change(&mut choices));
        choices
    }
}

/// See [`Choices::replay`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Replay {
    /// The first answer again, instance ids included.
    #[default]
    FirstAnswer,
    /// The first fleet id, but no instances and no errors.
    WithoutIds,
    /// An error of status 400.
    Error,
}

/// See [`Choices::shortfall`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Shortfall {
    /// One `InsufficientInstanceCapacity` per override.
    #[default]
    PerOverride,
    /// One `UnfulfillableCapacity` in all.
    Unfulfillable,
    /// No items.
    Empty,
}

/// See [`Choices::block_minimum`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum BlockMinimum {
    /// What fits is launched.
    #[default]
    Ignored,
    /// Fewer than the minimum: nothing.
    Acts,
}

/// See [`Choices::quota`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Quota {
    /// Until they are terminated.
    #[default]
    ShuttingDownCounts,
    /// Only pending and running ones.
    LiveAloneCounts,
}

/// See [`Choices::fleet_bucket`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FleetBucket {
    /// It does not.
    #[default]
    Apart,
    /// It does.
    Shared,
}

/// See [`Choices::fleet_count`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FleetCount {
    /// They do not.
    #[default]
    NotCounted,
    /// They do, until they are deleted.
    Counted,
}

/// See [`Choices::event_shape`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum EventShape {
    /// As the events' pages show them.
    #[default]
    Documented,
    /// As they have been seen elsewhere: `detail_type`, ARNs with a zone and no account.
    Odd,
}

/// See [`Choices::zonal_mismatch`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ZonalMismatch {
    /// `IdempotentParameterMismatch`.
    #[default]
    Mismatch,
    /// The old request's answer, as if nothing had changed.
    OldAnswer,
}

/// See [`Choices::refusal`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub enum Refusal {
    /// `InvalidParameterCombination`.
    #[default]
    InvalidParameterCombination,
    /// `InvalidParameterValue`.
    InvalidParameterValue,
}

impl Refusal {
    /// The code on the wire.
    #[must_use]
    pub fn code(self) -> &'static str {
        match self {
            Self::InvalidParameterCombination => "InvalidParameterCombination",
            Self::InvalidParameterValue => "InvalidParameterValue",
        }
    }
}

/// See [`Choices::empty_group`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum EmptyGroup {
    /// The group is free again when its last instance is terminated.
    #[default]
    Unpinned,
    /// The group stays where its first launch put it.
    StaysPinned,
}

/// See [`Choices::fourth_layer`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FourthLayer {
    /// Two hosts of a leaf share a node below it.
    #[default]
    BelowLeaf,
    /// Two leaves of a spine share a node above them.
    AboveLeaf,
}

/// See [`Choices::dry_run`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DryRun {
    /// Permissions, then the parameters; never capacity.
    #[default]
    Parameters,
    /// Permissions alone.
    #[serde(rename = "rights-alone")]
    PermissionsAlone,
}

/// See [`Choices::leaf_spread`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LeafSpread {
    /// One host from each leaf in turn, leaves in seeded order: EC2 keeps a group in one segment, not in few
    /// leaves, so ranks have to be planned again after a launch.
    #[default]
    RoundRobin,
    /// Leaf by leaf, leaves in seeded order.
    Packed,
}

/// See [`Choices::fleet_volume_tags`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FleetVolumeTags {
    /// It does, as other provisioners rely on.
    #[default]
    Taken,
    /// It refuses what is not documented.
    Refused,
    /// It takes them, and those for network interfaces too, against what is documented: versions of Muster that know no better
    /// can be replaced by a newer one in a test. No flip of a run is this one.
    AndInterfaces,
}

/// See [`Choices::spot_shutdown`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SpotShutdown {
    /// It may.
    #[default]
    Taken,
    /// The launch is refused.
    Refused,
}

/// See [`Choices::spot_power_off`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SpotPowerOff {
    /// It ends.
    #[default]
    Terminates,
    /// It would stop; since that is not played, it goes on.
    Stops,
}

/// See [`Choices::quota_value`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum QuotaValue {
    /// GetServiceQuota gives it.
    #[default]
    Applied,
    /// GetServiceQuota finds nothing, and GetAWSDefaultServiceQuota gives AWS's default.
    DefaultAlone,
}
