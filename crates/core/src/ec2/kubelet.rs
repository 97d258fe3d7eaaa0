//! What an EC2NodeClass says about the kubelet.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// `spec.kubelet`. Names are those of the kubelet's own configuration; a name that is not here is refused, since a
/// setting that is dropped silently is found out in production.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Kubelet {
    /// Pods per node.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_pods: Option<u32>,
    /// Pods per core.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pods_per_core: Option<u32>,
    /// Resources kept for Kubernetes daemons.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub kube_reserved: BTreeMap<String, String>,
    /// Resources kept for the operating system.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub system_reserved: BTreeMap<String, String>,
    /// Thresholds at which pods are evicted at once.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub eviction_hard: BTreeMap<String, String>,
    /// Thresholds at which pods are evicted after a grace period.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub eviction_soft: BTreeMap<String, String>,
    /// The grace periods.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub eviction_soft_grace_period: BTreeMap<String, String>,
    /// Longest grace period of a pod evicted softly, in seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub eviction_max_pod_grace_period: Option<u32>,
    /// Disk usage above which images are always collected.
    #[serde(rename = "imageGCHighThresholdPercent", skip_serializing_if = "Option::is_none")]
    pub image_gc_high_threshold_percent: Option<u32>,
    /// Disk usage below which images are never collected.
    #[serde(rename = "imageGCLowThresholdPercent", skip_serializing_if = "Option::is_none")]
    pub image_gc_low_threshold_percent: Option<u32>,
    /// Whether CPU limits are enforced by quota.
    #[serde(rename = "cpuCFSQuota", skip_serializing_if = "Option::is_none")]
    pub cpu_cfs_quota: Option<bool>,
    /// Addresses of the cluster's DNS.
    #[serde(rename = "clusterDNS", skip_serializing_if = "Vec::is_empty")]
    pub cluster_dns: Vec<String>,
    /// Anything else, each value as JSON text; AL2023 alone takes it.
    #[serde(skip)]
    pub extra: BTreeMap<String, String>,
}

/// One setting as it is rendered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Setting<'a> {
    Number(u32),
    Flag(bool),
    Map(&'a BTreeMap<String, String>),
    List(&'a [String]),
    Json(&'a str),
}

impl Kubelet {
    /// Settings that are given, in the order of the fields, under the kubelet's names.
    pub(super) fn settings(&self) -> Vec<(&str, Setting<'_>)> {
        let number = |number: Option<u32>| number.map(Setting::Number);
        let map = |map| Some(Setting::Map(map)).filter(|_| !BTreeMap::is_empty(map));
        let mut settings: Vec<(&str, Setting<'_>)> = [
            ("maxPods", number(self.max_pods)),
            ("podsPerCore", number(self.pods_per_core)),
            ("kubeReserved", map(&self.kube_reserved)),
            ("systemReserved", map(&self.system_reserved)),
            ("evictionHard", map(&self.eviction_hard)),
            ("evictionSoft", map(&self.eviction_soft)),
            ("evictionSoftGracePeriod", map(&self.eviction_soft_grace_period)),
            ("evictionMaxPodGracePeriod", number(self.eviction_max_pod_grace_period)),
            ("imageGCHighThresholdPercent", number(self.image_gc_high_threshold_percent)),
            ("imageGCLowThresholdPercent", number(self.image_gc_low_threshold_percent)),
            ("cpuCFSQuota", self.cpu_cfs_quota.map(Setting::Flag)),
            ("clusterDNS", Some(Setting::List(&self.cluster_dns)).filter(|_| !self.cluster_dns.is_empty())),
        ]
        .into_iter()
        .filter_map(|(name, setting)| Some((name, setting?)))
        .collect();
        settings.extend(self.extra.iter().map(|(name, json)| (name.as_str(), Setting::Json(json))));
        settings
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_setting_nobody_knows_is_refused_by_name() {
        let error = serde_json::from_str::<Kubelet>(r#"{"maxPodz": 5}"#).unwrap_err().to_string();
        assert!(error.contains("maxPodz") && error.contains("maxPods"), "{error}");
    }

    #[test]
    fn names_are_those_of_the_kubelet() {
        let text = r#"{"imageGCHighThresholdPercent":85,"imageGCLowThresholdPercent":80,"cpuCFSQuota":false,"clusterDNS":["10.0.0.10"]}"#;
        let kubelet: Kubelet = serde_json::from_str(text).unwrap();
        assert_eq!(serde_json::to_string(&kubelet).unwrap(), text);
        let names: Vec<&str> = kubelet.settings().into_iter().map(|(name, _)| name).collect();
        assert_eq!(names, ["imageGCHighThresholdPercent", "imageGCLowThresholdPercent", "cpuCFSQuota", "clusterDNS"]);
        assert!(Kubelet::default().settings().is_empty());
    }
}
