//! When an EC2NodeClass is resolved again.

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};
use muster_api::crd::{EC2NodeClassStatus, MemoryStatus};
use muster_core::ec2::ImageKind;

use super::network::Network;

/// When a class was resolved last, and for what.
#[derive(Clone, Debug)]
pub(in crate::provisioner) struct Looked {
    /// Of its spec.
    pub(super) generation: Option<i64>,
    /// When.
    pub(super) at: Timestamp,
    /// What its pools asked for.
    pub(super) kinds: BTreeSet<ImageKind>,
    /// The network of the cluster.
    pub(super) network: Network,
    /// Memory that types turned out to have. Whether a status that was written says so is no matter: an API server with an older
    /// definition drops it.
    pub(super) memory: Vec<MemoryStatus>,
}

impl Looked {
    /// Whether it is time again.
    pub(super) fn is_old(&self, generation: Option<i64>, pause: SignedDuration, now: Timestamp) -> bool {
        self.generation != generation || now.duration_since(self.at) >= pause
    }
}

/// Whether pools ask for a kind of image that the class lacks and was not resolved for yet. What was found missing is not looked
/// for more often than all else: each time the class is tried out too.
pub(super) fn is_news(known: Option<&Looked>, status: &EC2NodeClassStatus, kinds: &BTreeSet<ImageKind>) -> bool {
    kinds.iter().any(|kind| !has(status, kind) && !known.is_some_and(|known| known.kinds.contains(kind)))
}

/// By name of the class.
pub(in crate::provisioner) type Seen = BTreeMap<String, Looked>;

/// Whether the class has an image of a kind.
pub(super) fn has(status: &EC2NodeClassStatus, kind: &ImageKind) -> bool {
    status.amis.iter().any(|ami| ami.architecture == kind.architecture && ami.variant == kind.variant.as_str())
}

#[cfg(test)]
mod tests {
    use muster_api::crd::AmiStatus;
    use muster_core::ec2::Variant;

    use super::*;

    fn kind(architecture: &str) -> ImageKind {
        ImageKind { architecture: architecture.to_owned(), variant: Variant::Standard }
    }

    fn looked(kinds: &[&str]) -> Looked {
        let at = Timestamp::from_second(1_800_000_000).unwrap();
        let kinds = kinds.iter().map(|one| kind(one)).collect();
        Looked { generation: Some(1), at, kinds, network: Network::default(), memory: Vec::new() }
    }

    #[test]
    fn a_kind_without_an_image_is_news_once_and_waits_its_turn_from_then_on() {
        let ami = AmiStatus {
            architecture: "x86_64".to_owned(),
            variant: Variant::Standard.as_str().to_owned(),
            ..AmiStatus::default()
        };
        let status = EC2NodeClassStatus { amis: vec![ami], ..EC2NodeClassStatus::default() };
        let both = BTreeSet::from([kind("x86_64"), kind("arm64")]);
        assert!(is_news(None, &status, &both));
        assert!(is_news(Some(&looked(&["x86_64"])), &status, &both), "a pool has come to ask for it");
        assert!(!is_news(Some(&looked(&["x86_64", "arm64"])), &status, &both), "it was looked for in vain");
        assert!(!is_news(None, &status, &BTreeSet::from([kind("x86_64")])));
    }

    #[test]
    fn a_class_is_resolved_again_after_its_pause_and_at_once_where_its_spec_changed() {
        let (known, pause) = (looked(&[]), SignedDuration::from_mins(5));
        let after = |seconds: i64| known.at + SignedDuration::from_secs(seconds);
        assert!(!known.is_old(Some(1), pause, after(299)) && known.is_old(Some(1), pause, after(300)));
        assert!(known.is_old(Some(2), pause, after(0)));
    }
}
