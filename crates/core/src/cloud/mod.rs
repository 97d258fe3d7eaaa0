//! The EC2 side as data: what is asked for, what was answered, and what follows from it.
//!
//! Everything here is a value or a pure function. The calls themselves are in `muster-ec2`, which builds requests from
//! these types and reads answers into them; the shell writes intents down before a call and acts on the [`Verdict`]
//! after it. Sources of the rules are named where they are applied; facts about EC2 are from its API reference and
//! user guide unless the text says otherwise.

mod backoff;
mod blame;
mod bootstrap;
mod bottlerocket;
mod collect;
mod denials;
mod error;
mod hash;
mod ice;
mod image;
mod join;
mod judge;
mod kubelet;
mod launch;
mod located;
mod machine;
mod money;
mod network;
mod notice;
mod price;
mod rank;
mod refusals;
mod seen;
mod tags;
mod template;

pub use backoff::pause;
pub use blame::Blame;
pub use bootstrap::{Bootstrap, ClusterAccess, USER_DATA_LIMIT, UserDataError, user_data, user_data_al2023};
pub use collect::{Account, Collection, Findings, KnownBatch, KnownInstance, KnownNode, collect, next_round};
pub use denials::{Denials, Without, without};
pub use error::{CallError, ErrorClass, Next, classify};
pub use ice::{ICE_AGAIN_SECONDS, ICE_FIRST_SECONDS, IceMemory, Pool};
pub use image::{Alias, AliasError, Family, ImageKind, Variant, kubernetes_version};
pub use join::{JoinCause, JoinRules, JoinStage, JoinVerdict, Joiner, describe_failures, judge_join, replacements};
pub use judge::{Confirm, Verdict, Why, judge};
pub use kubelet::Kubelet;
pub use launch::{
    CapacityType, FleetError, LaunchAnswer, LaunchParameters, LaunchWay, LaunchedInstance, Target,
    placement_group_name, token,
};
pub use located::{Located, located};
pub use machine::{AMD_GPU, EFA, Gpu, InstanceTypeInfo, NEURON, NVIDIA_GPU, NetworkCard, UsageClass};
pub use money::{StrandedCause, cost, cost_between, dollars, micros, strands};
pub use network::{Efa, InterfaceKind, NetworkInterface, Purpose, addresses_per_node, efa_count, efa_layout};
pub use notice::{Grace, Leads, Notice, NoticeKind, Reaction, Subject, grace, reaction};
pub use price::{Change, Override, PRICES_AS_OF, PriceBook, micro_dollars, on_demand_price};
pub use rank::{
    Candidate, Exclusion, GroupPolicy, LeftOut, MAX_CANDIDATES, Need, PoolOffer, RankInput, Ranked, Ranking, Rung,
    rank_candidates,
};
pub use refusals::{Asked, QUOTA_SECONDS, Quota, Refusal, Refusals};
pub use seen::{
    GroupState, Image, Instance, InstanceState, LaunchTemplate, Offering, PlacementGroup, Reservation,
    ReservationState, SecurityGroup, StateReason, Subnet,
};
pub use tags::{
    BatchTags, ResourceKind, TAG_ATTEMPT, TAG_BATCH, TAG_CLUSTER_PREFIX, TAG_CLUSTER_UID, TAG_GANG_UID, Tags,
};
pub use template::{BlockDevice, MetadataOptions, TemplateSpec};
