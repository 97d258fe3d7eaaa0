//! What a scenario's account holds from the start besides network and hosts.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::kinds::{Matching, ReservationKind, Strategy};
use crate::scenario::pools::SpineSpec;

/// A capacity reservation with hosts of its own.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ReservationSpec {
    /// For instance `cr-0123456789abcdef0`.
    pub id: String,
    /// The instance type.
    #[serde(rename = "type")]
    pub instance_type: String,
    /// The zone's name.
    pub zone: String,
    /// What it is.
    #[serde(default)]
    pub kind: ReservationKind,
    /// Which launches run in it.
    #[serde(default)]
    pub matching: Matching,
    /// The placement group it was made in; one of `placementGroups`.
    #[serde(default)]
    pub placement_group: Option<String>,
    /// Its hosts.
    pub spines: Vec<SpineSpec>,
    /// Virtual seconds since the clock's origin at which it begins; absent: it has begun.
    #[serde(default)]
    pub start_seconds: Option<f64>,
    /// Virtual seconds since the clock's origin at which it ends; absent: never.
    #[serde(default)]
    pub end_seconds: Option<f64>,
    /// Tags.
    #[serde(default)]
    pub tags: BTreeMap<String, String>,
}

/// A placement group.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct GroupSpec {
    /// The name.
    pub name: String,
    /// `cluster`, `spread` or `partition`.
    #[serde(default)]
    pub strategy: Strategy,
    /// The account that shares it, which then is named by its id alone; absent: that of the scenario.
    #[serde(default)]
    pub owner: Option<String>,
    /// Tags.
    #[serde(default)]
    pub tags: BTreeMap<String, String>,
}

/// The queue that events go to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct QueueSpec {
    /// The name.
    pub name: String,
    /// Virtual seconds for which a received message is hidden, unless the call says otherwise.
    pub visibility_timeout_seconds: u32,
    /// Virtual seconds after which a message is dropped.
    pub retention_seconds: u32,
    /// Whether "EC2 Instance State-change Notification" goes to the queue too.
    pub state_changes: bool,
}

impl Default for QueueSpec {
    fn default() -> Self {
        Self {
            name: "muster-interruptions".to_owned(),
            visibility_timeout_seconds: 30,
            retention_seconds: 300,
            state_changes: false,
        }
    }
}

/// An EKS cluster as DescribeCluster shows it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct ClusterSpec {
    /// The name.
    pub name: String,
    /// For instance `1.34`.
    pub version: String,
    /// The API server's URL.
    pub endpoint: String,
    /// The CA bundle in base64.
    pub certificate_authority: String,
    /// The services' block; an IPv6 one makes it an IPv6 cluster.
    pub service_cidr: String,
    /// The VPC; absent: that of the scenario.
    pub vpc: Option<String>,
    /// `API`, `API_AND_CONFIG_MAP` or `CONFIG_MAP`.
    pub authentication_mode: String,
    /// Types of access entries by the name of their role; absent: every role has one of type `EC2_LINUX`.
    pub access_entries: Option<BTreeMap<String, String>>,
    /// Names of its add-ons, all of them active.
    pub addons: BTreeSet<String>,
}

impl Default for ClusterSpec {
    fn default() -> Self {
        Self {
            name: "demo".to_owned(),
            version: "1.34".to_owned(),
            endpoint: "https://127.0.0.1:6443".to_owned(),
            certificate_authority: "LS0tLS1CRUdJTiBDRVJUSUZJQ0FURS0tLS0tCg==".to_owned(),
            service_cidr: "10.100.0.0/16".to_owned(),
            vpc: None,
            authentication_mode: "API_AND_CONFIG_MAP".to_owned(),
            access_entries: None,
            addons: BTreeSet::new(),
        }
    }
}
