//! One launch call: what is sent, and what comes back.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::digest::Fields;
use super::tags::{BatchTags, FleetTags, ResourceKind};
use crate::model::names::InstanceId;

/// How capacity is provisioned. The order of trying is the pool's, not that of the variants.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CapacityType {
    /// From a capacity reservation.
    Reserved,
    /// Spot: cheap, and taken back at two minutes' notice.
    Spot,
    /// On demand.
    OnDemand,
}

impl CapacityType {
    /// Every one.
    pub const ALL: [Self; 3] = [Self::Reserved, Self::Spot, Self::OnDemand];

    /// `reserved`, `spot` or `on-demand`: the values of the label `muster.dev/capacity-type`.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Reserved => "reserved",
            Self::Spot => "spot",
            Self::OnDemand => "on-demand",
        }
    }

    /// Reads a value of the label `muster.dev/capacity-type`.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|capacity_type| capacity_type.as_str() == text)
    }
}

impl fmt::Display for CapacityType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The call that launches. Both refuse fewer than they were asked for, where the request says so.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LaunchWay {
    /// CreateFleet of type `instant`, with a minimum.
    #[default]
    Fleet,
    /// RunInstances with `MinCount = MaxCount`: the only way into a reservation, and the way out where the Region has
    /// too many fleets.
    Run,
}

impl LaunchWay {
    fn is_fleet(&self) -> bool {
        *self == Self::Fleet
    }
}

/// The reservation a launch goes into. It fails rather than run in open capacity.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Target {
    /// `cr-…`.
    pub id: String,
    /// Whether it is a Capacity Block, which is a capacity type of its own and goes into no placement group.
    #[serde(default)]
    pub block: bool,
}

/// Everything that goes into one launch call, so that a restarted controller sends the same bytes again.
///
/// Written into the NodeBatch before the call. A field added later must not change the digest of parameters that do
/// not use it, or a replay after an upgrade would carry another token.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LaunchParameters {
    /// N: target and minimum at once. 1..=1000, CreateFleet's largest minimum.
    pub count: u32,
    /// Instance type.
    pub instance_type: String,
    /// Availability zone by name.
    pub zone: String,
    /// The one subnet of the call, in `zone`.
    pub subnet_id: String,
    /// MarketType.
    #[serde(rename = "market")]
    pub capacity_type: CapacityType,
    /// Launch template, `lt-…`.
    pub template_id: String,
    /// Its version: always a number, never `$Latest`.
    pub template_version: u64,
    /// Name of the placement group, if one is used, or its id if another account shares it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub placement_group: Option<String>,
    /// The call that is sent.
    #[serde(default, skip_serializing_if = "LaunchWay::is_fleet")]
    pub way: LaunchWay,
    /// The reservation, for the capacity type `reserved`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reservation: Option<Target>,
    /// As many as there are, instead of all or none.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub partial: bool,
    /// Tags of everything the call makes.
    pub tags: BatchTags,
    /// Which of it CreateFleet tags.
    #[serde(default, skip_serializing_if = "FleetTags::is_everything")]
    pub fleet_tags: FleetTags,
    /// What the fleet may be: EC2 launches all of it as one of these. Empty: what the fields above say, and nothing else; the first
    /// of several is that too.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub overrides: Vec<Override>,
    /// The client token. Not part of the digest, since it is made from the digest.
    pub token: String,
}

impl LaunchParameters {
    /// Digest of all fields but the token: 52 characters of base32.
    #[must_use]
    pub fn digest(&self) -> String {
        let fields = Fields::new("muster launch 1")
            .number(u64::from(self.count))
            .text(&self.instance_type)
            .text(&self.zone)
            .text(&self.subnet_id)
            .text(self.capacity_type.as_str())
            .text(&self.template_id)
            .number(self.template_version)
            .optional(self.placement_group.as_deref());
        let mut fields =
            ResourceKind::OF_A_LAUNCH.into_iter().fold(fields, |fields, kind| fields.map(&self.tags.of(kind)));
        // What came later is hashed only where it is used, each under its name: the tokens of plain fleets stay.
        if self.way == LaunchWay::Run {
            fields = fields.text("run");
        }
        if let Some(Target { id, block }) = &self.reservation {
            fields = fields.text("reservation").text(id).number(u64::from(*block));
        }
        if self.partial {
            fields = fields.text("partial");
        }
        if self.fleet_tags == FleetTags::Documented {
            fields = fields.text("documented fleet tags");
        }
        for Override { instance_type, zone, subnet_id } in &self.overrides {
            fields = fields.text("override").text(instance_type).text(zone).text(subnet_id);
        }
        fields.finish()
    }

    /// Fills in the token that belongs to these parameters; batch and attempt are those of the tags.
    #[must_use]
    pub fn with_token(mut self, generation: u32) -> Self {
        self.token = token(&self.tags.batch_uid, generation, self.tags.attempt, &self);
        self
    }

    /// The pool this call draws on, as the unavailable offerings knows it: of several the first.
    #[must_use]
    pub fn pool(&self) -> Pool {
        self.pool_of(&self.instance_type, &self.zone)
    }

    /// Every pool that this call may draw on, first the one that is asked first.
    #[must_use]
    pub fn pools(&self) -> Vec<Pool> {
        if self.overrides.is_empty() {
            return vec![self.pool()];
        }
        self.overrides.iter().map(|one| self.pool_of(&one.instance_type, &one.zone)).collect()
    }

    fn pool_of(&self, instance_type: &str, zone: &str) -> Pool {
        Pool {
            instance_type: instance_type.to_owned(),
            zone: zone.to_owned(),
            capacity_type: self.capacity_type,
            group: self.placement_group.is_some(),
        }
    }
}

/// Most overrides of one fleet: what EC2 chooses among, and what a NodeBatch lists.
pub const MAX_OVERRIDES: usize = 60;

/// One type in one zone that a fleet may be.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Override {
    /// Instance type.
    pub instance_type: String,
    /// Availability zone by name.
    pub zone: String,
    /// The one subnet of the call in `zone`: a fleet cannot span several of one zone.
    pub subnet_id: String,
}

/// One type in one zone that a launch may be.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AttemptOverride {
    /// Instance type.
    pub instance_type: String,
    /// Zone.
    pub zone: String,
    /// Subnet.
    pub subnet: String,
    /// Micro-dollars per hour of one node, if a price is known.
    pub price: Option<u64>,
}

/// What EC2 can run out of.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Pool {
    /// Instance type.
    pub instance_type: String,
    /// Zone by name.
    pub zone: String,
    /// MarketType.
    #[serde(rename = "market")]
    pub capacity_type: CapacityType,
    /// Asked for inside a fresh placement group. A failed launch into a group that already has instances says nothing
    /// about either kind and must not be recorded.
    pub group: bool,
}

/// The client token of one attempt: base32 of SHA-256 over batch, generation, attempt and the digest of the parameters.
///
/// 52 characters, below EC2's limit of 64. `generation` rises when the batch starts over with a new placement group.
#[must_use]
pub fn token(batch_uid: &str, generation: u32, attempt: u32, parameters: &LaunchParameters) -> String {
    Fields::new("muster token 1")
        .text(batch_uid)
        .number(u64::from(generation))
        .number(u64::from(attempt))
        .text(&parameters.digest())
        .finish()
}

/// Name of a batch's placement group, `<cluster>-<first 8 of the batch UID>-<generation>`.
///
/// CreatePlacementGroup has no client token: the name is the idempotency key. At most 255 ASCII characters; longer
/// cluster names are cut, other characters become `-`.
#[must_use]
pub fn placement_group_name(cluster_name: &str, batch_uid: &str, generation: u32) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() || c == '-' || c == '_' || c == '.' { c } else { '-' };
    let cluster: String = cluster_name.chars().take(200).map(plain).collect();
    let batch: String = batch_uid.chars().take(8).map(plain).collect();
    format!("{cluster}-{batch}-{generation}")
}

/// Answer of a launch call with HTTP 200, which says nothing about success yet: see [`crate::batch::judge`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LaunchAnswer {
    /// The fleet, `fleet-…`, where the answer names one. Must be stored: an instant fleet is found by its id only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fleet_id: Option<String>,
    /// EC2's id of the request, for its support.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_id: Option<String>,
    /// What was launched.
    #[serde(default)]
    pub instances: Vec<LaunchedInstance>,
    /// One entry per failed override.
    #[serde(default)]
    pub errors: Vec<FleetError>,
}

/// An instance in a launch answer.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LaunchedInstance {
    /// Instance id.
    pub id: InstanceId,
    /// Type; empty if the answer does not say.
    pub instance_type: String,
    /// Zone; empty if the answer does not say.
    pub zone: String,
}

/// An item of CreateFleet's `Errors`: may be capacity, but also a throttle or a quota.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct FleetError {
    /// Error code; empty if the answer names none.
    pub code: String,
    /// EC2's text.
    pub message: String,
    /// Type of the override, if named.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instance_type: Option<String>,
    /// Zone of the override, if named.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub zone: Option<String>,
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn parameters() -> LaunchParameters {
        LaunchParameters {
            count: 4,
            instance_type: "p5.48xlarge".to_owned(),
            zone: "us-east-1a".to_owned(),
            subnet_id: "subnet-a".to_owned(),
            capacity_type: CapacityType::OnDemand,
            template_id: "lt-1".to_owned(),
            template_version: 1,
            placement_group: Some("prod-b0000000-1".to_owned()),
            way: LaunchWay::Fleet,
            reservation: None,
            partial: false,
            tags: BatchTags {
                cluster_uid: "c".to_owned(),
                cluster_name: "prod".to_owned(),
                batch_uid: "b".to_owned(),
                gang_uid: Some("g".to_owned()),
                attempt: 1,
            },
            fleet_tags: FleetTags::Everything,
            overrides: Vec::new(),
            token: String::new(),
        }
    }

    fn overrides(of: &[(&str, &str)]) -> Vec<Override> {
        let one = |(instance_type, zone): &(&str, &str)| Override {
            instance_type: (*instance_type).to_owned(),
            zone: (*zone).to_owned(),
            subnet_id: format!("subnet-{zone}"),
        };
        of.iter().map(one).collect()
    }

    fn target(id: &str, block: bool) -> Option<Target> {
        Some(Target { id: id.to_owned(), block })
    }

    /// An intent written before there were reservations is read as what it meant.
    #[test]
    fn an_intent_of_a_plain_fleet_is_written_and_read_without_the_later_fields() {
        let stored = serde_json::to_string(&parameters()).unwrap();
        for later in ["way", "reservation", "partial", "fleetTags", "overrides"] {
            assert!(!stored.contains(later), "{stored}");
        }
        assert_eq!(serde_json::from_str::<LaunchParameters>(&stored).unwrap(), parameters());
        let run = LaunchParameters {
            way: LaunchWay::Run,
            reservation: target("cr-1", true),
            capacity_type: CapacityType::Reserved,
            ..parameters()
        };
        let stored = serde_json::to_string(&run).unwrap();
        assert_eq!(serde_json::from_str::<LaunchParameters>(&stored).unwrap(), run);
    }

    #[test]
    fn a_token_is_a_function_of_batch_generation_attempt_and_parameters() {
        let base = parameters();
        let token_of = |generation, attempt, parameters: &LaunchParameters| token("b", generation, attempt, parameters);
        let first = token_of(1, 1, &base);
        assert_eq!(first.len(), 52);
        assert!(first.is_ascii());
        assert_eq!(first, token_of(1, 1, &parameters()));
        let others = [
            token_of(2, 1, &base),
            token_of(1, 2, &base),
            token("other", 1, 1, &base),
            token_of(1, 1, &LaunchParameters { count: 5, ..base.clone() }),
            token_of(1, 1, &LaunchParameters { instance_type: "p5e.48xlarge".to_owned(), ..base.clone() }),
            token_of(1, 1, &LaunchParameters { zone: "us-east-1b".to_owned(), ..base.clone() }),
            token_of(1, 1, &LaunchParameters { subnet_id: "subnet-b".to_owned(), ..base.clone() }),
            token_of(1, 1, &LaunchParameters { capacity_type: CapacityType::Spot, ..base.clone() }),
            token_of(1, 1, &LaunchParameters { template_id: "lt-2".to_owned(), ..base.clone() }),
            token_of(1, 1, &LaunchParameters { template_version: 2, ..base.clone() }),
            token_of(1, 1, &LaunchParameters { placement_group: None, ..base.clone() }),
            token_of(1, 1, &LaunchParameters { way: LaunchWay::Run, ..base.clone() }),
            token_of(1, 1, &LaunchParameters { partial: true, ..base.clone() }),
            token_of(1, 1, &LaunchParameters { reservation: target("cr-1", false), ..base.clone() }),
            token_of(1, 1, &LaunchParameters { reservation: target("cr-2", false), ..base.clone() }),
            token_of(1, 1, &LaunchParameters { reservation: target("cr-1", true), ..base.clone() }),
            token_of(
                1,
                1,
                &LaunchParameters { tags: BatchTags { gang_uid: None, ..base.tags.clone() }, ..base.clone() },
            ),
            token_of(1, 1, &LaunchParameters { fleet_tags: FleetTags::Documented, ..base.clone() }),
            token_of(1, 1, &LaunchParameters { overrides: overrides(&[("a", "z1"), ("b", "z1")]), ..base.clone() }),
            token_of(1, 1, &LaunchParameters { overrides: overrides(&[("a", "z1"), ("b", "z2")]), ..base.clone() }),
            token_of(1, 1, &LaunchParameters { overrides: overrides(&[("b", "z1"), ("a", "z1")]), ..base.clone() }),
        ];
        let distinct: std::collections::BTreeSet<_> = others.iter().chain([&first]).collect();
        assert_eq!(distinct.len(), others.len() + 1);
    }

    #[test]
    fn a_call_draws_on_the_pools_of_all_its_overrides_or_on_its_own_alone() {
        assert_eq!(parameters().pools(), [parameters().pool()]);
        let several = LaunchParameters { overrides: overrides(&[("a", "z1"), ("b", "z2")]), ..parameters() };
        let named: Vec<_> = several.pools().into_iter().map(|pool| (pool.instance_type, pool.zone)).collect();
        assert_eq!(named, [("a".to_owned(), "z1".to_owned()), ("b".to_owned(), "z2".to_owned())]);
    }

    #[test]
    fn the_digest_does_not_look_at_the_token() {
        let base = parameters();
        assert_eq!(base.digest(), base.clone().with_token(1).digest());
        assert_eq!(base.clone().with_token(1).token, token("b", 1, 1, &base));
    }

    #[test]
    fn a_stored_intent_gives_the_same_token_after_a_restart() {
        let sent = parameters().with_token(1);
        let stored = serde_json::to_string(&sent).unwrap();
        let read: LaunchParameters = serde_json::from_str(&stored).unwrap();
        assert_eq!(read, sent);
        assert_eq!(read.with_token(1).token, sent.token);
    }

    /// Changing what this pins changes every token, so a controller upgraded during a launch would launch twice.
    #[test]
    fn the_token_of_known_parameters_is_pinned() {
        assert_eq!(parameters().with_token(1).token, PINNED);
    }

    const PINNED: &str = "fooiy2owx4i5fb5gbxj22rmziqjc5afolxq46qrtgnvrt5u3alnq";

    #[test]
    fn a_group_name_is_short_ascii_and_names_batch_and_generation() {
        assert_eq!(placement_group_name("prod", "0f9c2d4e-aaaa", 2), "prod-0f9c2d4e-2");
        let long = placement_group_name(&"ü/".repeat(300), "0f9c2d4e-aaaa", 1);
        assert!(long.is_ascii() && long.len() <= 255, "{long}");
    }

    #[test]
    fn capacity_types_are_spelled_as_in_the_label() {
        for capacity_type in [CapacityType::Reserved, CapacityType::Spot, CapacityType::OnDemand] {
            assert_eq!(CapacityType::parse(capacity_type.as_str()), Some(capacity_type));
            assert_eq!(serde_json::to_string(&capacity_type).unwrap(), format!("\"{capacity_type}\""));
        }
        assert_eq!(CapacityType::parse("capacity-block"), None);
    }
}
