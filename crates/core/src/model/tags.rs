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

/// Name of the cluster, as EKS's own controllers write it.
const TAG_EKS_CLUSTER: &str = "eks:eks-cluster-name";
/// What the console shows.
const TAG_NAME: &str = "Name";
/// Name of the NodePool.
const TAG_NODE_POOL: &str = "muster.dev/nodepool";
/// Namespace of the gang.
const TAG_NAMESPACE: &str = "muster.dev/namespace";
/// Name of the gang.
const TAG_GANG: &str = "muster.dev/gang";
/// Longest value of a tag.
const LONGEST_VALUE: usize = 256;

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
    /// A request for spot instances.
    SpotRequest,
}

impl ResourceKind {
    /// What a launch creates. The digest of its parameters looks at the tags of these kinds, in this order.
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
            Self::SpotRequest => "spot-instances-request",
        }
    }
}

/// Which resources CreateFleet is asked to tag. An intent keeps what it was written with: its replay sends the same
/// bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FleetTags {
    /// Everything the launch creates: how intents were written at first.
    #[default]
    Everything,
    /// The fleet and its instances, as documented; the template tags the rest.
    Documented,
}

impl FleetTags {
    /// The kinds, in the order of the request.
    #[must_use]
    pub fn kinds(self) -> &'static [ResourceKind] {
        match self {
            Self::Everything => &ResourceKind::OF_A_LAUNCH,
            Self::Documented => &[ResourceKind::Fleet, ResourceKind::Instance],
        }
    }

    pub(super) fn is_everything(&self) -> bool {
        *self == Self::Everything
    }
}

/// What a person, a bill or another controller reads: the cluster, the pool, and the gang by name. They prove nothing.
///
/// `Name` is what the console shows; a class may choose another.
#[must_use]
pub fn description(cluster_name: &str, node_pool: &str, gang: Option<(&str, &str)>) -> Tags {
    let name = match gang {
        Some((namespace, gang)) => format!("{node_pool}/{namespace}/{gang}"),
        None => node_pool.to_owned(),
    };
    let mut tags = Tags::from([
        (TAG_NAME.to_owned(), name.chars().take(LONGEST_VALUE).collect()),
        (TAG_EKS_CLUSTER.to_owned(), cluster_name.to_owned()),
        (TAG_NODE_POOL.to_owned(), node_pool.to_owned()),
    ]);
    if let Some((namespace, gang)) = gang {
        tags.insert(TAG_NAMESPACE.to_owned(), namespace.to_owned());
        tags.insert(TAG_GANG.to_owned(), gang.to_owned());
    }
    tags
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
            | ResourceKind::NetworkInterface
            | ResourceKind::SpotRequest => {
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
    fn a_description_names_cluster_pool_and_gang_and_fits() {
        let tags = description("prod", "gpu", Some(("ml", "train")));
        let pairs: Vec<_> = tags.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect();
        assert_eq!(
            pairs,
            [
                ("Name", "gpu/ml/train"),
                ("eks:eks-cluster-name", "prod"),
                ("muster.dev/gang", "train"),
                ("muster.dev/namespace", "ml"),
                ("muster.dev/nodepool", "gpu"),
            ]
        );
        let long = "x".repeat(250);
        assert_eq!(description("prod", "gpu", Some((&long, &long)))["Name"].len(), 256);
        assert_eq!(description("prod", "gpu", None)["Name"], "gpu");
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
