//! EC2 as data: what it is asked and what it says. The calls themselves are in `muster-ec2`.
//!
//! Sources of the rules are named where they are applied; facts about EC2 are from its API reference and user guide
//! unless the text says otherwise.

pub(crate) mod access;
pub(crate) mod blame;
pub(crate) mod bootstrap;
pub(crate) mod bottlerocket;
pub(crate) mod console;
pub(crate) mod denials;
pub(crate) mod error;
pub(crate) mod families;
pub(crate) mod image;
pub(crate) mod interface;
mod kept;
pub(crate) mod kubelet;
pub(crate) mod machine;
mod mime;
pub(crate) mod network;
pub(crate) mod notice;
pub(crate) mod quota;
pub(crate) mod seen;
pub(crate) mod template;

pub use crate::model::launch::{
    CapacityType, FleetError, LaunchAnswer, LaunchParameters, LaunchWay, LaunchedInstance, Override, Target,
    placement_group_name, token,
};
pub use crate::model::notice::NoticeKind;
pub use crate::model::tags::{
    BatchTags, FleetTags, ResourceKind, TAG_ATTEMPT, TAG_BATCH, TAG_CLUSTER_PREFIX, TAG_CLUSTER_UID, TAG_GANG_UID,
    Tags, description,
};
pub use access::{EksCluster, Surroundings, complete, is_incomplete, wrong_access};
pub use blame::Blame;
pub use bootstrap::{Bootstrap, ClusterAccess, USER_DATA_LIMIT, UserDataError, user_data_al2023};
pub use console::last_lines;
pub use denials::{Denials, Refused, Without, denied_action, without};
pub use error::{CallError, ErrorClass, Next, classify, known_code};
pub use families::user_data;
pub use image::{Alias, AliasError, Family, ImageKind, Variant, is_due, kubernetes_version, outlives};
pub use interface::{InterfaceKind, NetworkInterface};
pub use kept::{KeptBack, is_threshold};
pub use kubelet::Kubelet;
pub use network::{Efa, Purpose, addresses_per_node, efa_count, efa_layout};
pub use notice::{Grace, Leads, Notice, Reaction, Subject, ending_blocks, grace, reaction};
pub use quota::{VcpuQuota, vcpu_quota};
pub use seen::{
    GroupState, Image, Instance, InstanceState, LaunchTemplate, Offering, PlacementGroup, Reservation,
    ReservationState, SecurityGroup, StateReason, Subnet, transition_time,
};
pub use template::{BlockDevice, MetadataOptions, TemplateSpec};
