//! The tags that make a resource ours.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// UID of the namespace `kube-system`: on everything Muster makes in EC2.
pub const TAG_CLUSTER_UID: &str = "muster.dev/cluster-uid";
/// UID of the NodeBatch. Only what carries this **and** [`TAG_CLUSTER_UID`] is ever terminated.
pub const TAG_BATCH: &str = "muster.dev/batch";
/// UID of the Gang, where there is one.
pub const TAG_GANG_UID: &str = "muster.dev/gang-uid";
/// Number of the attempt; not on placement groups, which attempts share.
pub const TAG_ATTEMPT: &str = "muster.dev/attempt";
/// Followed by the cluster's name; the value is `owned`. Others use it too, so it proves nothing about us.
pub const TAG_CLUSTER_PREFIX: &str = "kubernetes.io/cluster/";

/// Tags of one resource, in order of key.
pub type Tags = BTreeMap<String, String>;

/// Who a resource belongs to.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BatchTags {
    /// UID of the namespace `kube-system`.
    pub cluster_uid: String,
    /// Name of the cluster, as in `kubernetes.io/cluster/<name>`.
    pub cluster_name: String,
    /// UID of the NodeBatch.
    pub batch_uid: String,
    /// UID of the Gang the batch is provisioned for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gang_uid: Option<String>,
    /// Number of the attempt, from 1.
    pub attempt: u32,
}

/// Kinds of resources Muster creates.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum ResourceKind {
    /// A placement group; shared by the attempts of a batch.
    PlacementGroup,
    /// A launch template.
    LaunchTemplate,
    /// A fleet.
    Fleet,
    /// An instance.
    Instance,
    /// A volume.
    Volume,
    /// A network interface.
    NetworkInterface,
}

impl ResourceKind {
    /// What a launch call creates and therefore tags.
    pub const OF_A_LAUNCH: [Self; 4] = [Self::Fleet, Self::Instance, Self::Volume, Self::NetworkInterface];

    /// Spelling of EC2's `ResourceType`.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::PlacementGroup => "placement-group",
            Self::LaunchTemplate => "launch-template",
            Self::Fleet => "fleet",
            Self::Instance => "instance",
            Self::Volume => "volume",
            Self::NetworkInterface => "network-interface",
        }
    }
}

impl BatchTags {
    /// The tags a resource of this kind must carry.
    #[must_use]
    pub fn of(&self, kind: ResourceKind) -> Tags {
        let mut tags = Tags::new();
        tags.insert(TAG_CLUSTER_UID.to_owned(), self.cluster_uid.clone());
        tags.insert(TAG_BATCH.to_owned(), self.batch_uid.clone());
        tags.insert(format!("{TAG_CLUSTER_PREFIX}{}", self.cluster_name), "owned".to_owned());
        if let Some(gang) = &self.gang_uid {
            tags.insert(TAG_GANG_UID.to_owned(), gang.clone());
        }
        match kind {
            ResourceKind::PlacementGroup => {}
            ResourceKind::LaunchTemplate
            | ResourceKind::Fleet
            | ResourceKind::Instance
            | ResourceKind::Volume
            | ResourceKind::NetworkInterface => {
                tags.insert(TAG_ATTEMPT.to_owned(), self.attempt.to_string());
            }
        }
        tags
    }

    /// Whether a resource with these tags belongs to this cluster and this batch, whatever the attempt.
    #[must_use]
    pub fn own(&self, tags: &Tags) -> bool {
        tags.get(TAG_CLUSTER_UID) == Some(&self.cluster_uid) && tags.get(TAG_BATCH) == Some(&self.batch_uid)
    }

    /// Filters of the sweep that finds what an attempt launched: cluster, batch and attempt.
    #[must_use]
    pub fn sweep(&self) -> Tags {
        Tags::from([
            (TAG_CLUSTER_UID.to_owned(), self.cluster_uid.clone()),
            (TAG_BATCH.to_owned(), self.batch_uid.clone()),
            (TAG_ATTEMPT.to_owned(), self.attempt.to_string()),
        ])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tags() -> BatchTags {
        BatchTags {
            cluster_uid: "c-1".to_owned(),
            cluster_name: "prod".to_owned(),
            batch_uid: "b-1".to_owned(),
            gang_uid: Some("g-1".to_owned()),
            attempt: 3,
        }
    }

    #[test]
    fn a_placement_group_carries_no_attempt() {
        let group = tags().of(ResourceKind::PlacementGroup);
        let keys: Vec<_> = group.keys().map(String::as_str).collect();
        assert_eq!(keys, ["kubernetes.io/cluster/prod", TAG_BATCH, TAG_CLUSTER_UID, TAG_GANG_UID]);
    }

    #[test]
    fn everything_else_carries_the_attempt() {
        for kind in ResourceKind::OF_A_LAUNCH.into_iter().chain([ResourceKind::LaunchTemplate]) {
            assert_eq!(tags().of(kind).get(TAG_ATTEMPT).map(String::as_str), Some("3"), "{kind:?}");
        }
    }

    #[test]
    fn a_batch_without_a_gang_has_no_gang_tag() {
        let ordinary = BatchTags { gang_uid: None, ..tags() };
        assert!(!ordinary.of(ResourceKind::Instance).contains_key(TAG_GANG_UID));
    }

    #[test]
    fn the_cluster_tag_alone_makes_nothing_ours() {
        let mut others = tags().of(ResourceKind::Instance);
        assert!(tags().own(&others));
        others.insert(TAG_CLUSTER_UID.to_owned(), "another".to_owned());
        assert!(!tags().own(&others));
        assert!(!tags().own(&Tags::from([("kubernetes.io/cluster/prod".to_owned(), "owned".to_owned())])));
    }
}
