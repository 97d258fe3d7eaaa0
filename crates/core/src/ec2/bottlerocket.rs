//! User data of Bottlerocket: settings in TOML.

use toml::{Table, Value};

use super::bootstrap::{Bootstrap, UserDataError, checked, effect};
use super::kubelet::Setting;

/// Settings of a Bottlerocket node: the class's own, with ours laid over them, so that a node joins this cluster
/// whatever the class says. Errors: [`UserDataError`]. Source: Bottlerocket's settings reference.
pub(super) fn user_data_bottlerocket(bootstrap: &Bootstrap) -> Result<String, UserDataError> {
    let mut document: Table = if bootstrap.user_data.trim().is_empty() {
        Table::new()
    } else if bootstrap.user_data.starts_with("#!") {
        // A script of comments alone would pass as TOML, and never run.
        return Err(UserDataError::Toml);
    } else {
        bootstrap.user_data.parse().map_err(|_| UserDataError::Toml)?
    };
    let mut kubernetes = kubelet(bootstrap)?;
    let access = &bootstrap.cluster;
    for (key, value) in [
        ("cluster-name", &access.name),
        ("api-server", &access.endpoint),
        ("cluster-certificate", &access.certificate_authority),
    ] {
        kubernetes.insert(key.to_owned(), Value::String(value.clone()));
    }
    // By itself Bottlerocket takes the DNS of an IPv4 cluster, and by the family of the DNS it chooses the node's address.
    if let Some(dns) = access.ipv6_dns().filter(|_| bootstrap.kubelet.cluster_dns.is_empty() && !names_dns(&document)) {
        kubernetes.insert(CLUSTER_DNS.to_owned(), Value::String(dns.to_string()));
    }
    let labels: Table =
        bootstrap.labels.iter().map(|(key, value)| (key.to_string(), Value::String(value.to_string()))).collect();
    if !labels.is_empty() {
        kubernetes.insert("node-labels".to_owned(), Value::Table(labels));
    }
    let mut taints = Table::new();
    for taint in &bootstrap.taints {
        let stated = Value::String(format!("{}:{}", taint.value, effect(taint.effect)));
        let of_key = taints.entry(taint.key.to_string()).or_insert_with(|| Value::Array(Vec::new()));
        if let Value::Array(of_key) = of_key {
            of_key.push(stated);
        }
    }
    if !taints.is_empty() {
        kubernetes.insert("node-taints".to_owned(), Value::Table(taints));
    }
    let mut settings = Table::from_iter([("kubernetes".to_owned(), Value::Table(kubernetes))]);
    if bootstrap.local_storage_raid0 {
        settings.insert("bootstrap-commands".to_owned(), Value::Table(local_storage()));
    }
    merge(&mut document, Table::from_iter([("settings".to_owned(), Value::Table(settings))]));
    checked(bootstrap, toml::to_string(&document).map_err(|_| UserDataError::Toml)?)
}

/// Where the cluster's DNS is.
const CLUSTER_DNS: &str = "cluster-dns-ip";

/// Whether the class's own settings say where the cluster's DNS is.
fn names_dns(document: &Table) -> bool {
    let kubernetes = document.get("settings").and_then(|settings| settings.get("kubernetes"));
    kubernetes.and_then(|kubernetes| kubernetes.get(CLUSTER_DNS)).is_some()
}

/// The kubelet's settings under Bottlerocket's names.
fn kubelet(bootstrap: &Bootstrap) -> Result<Table, UserDataError> {
    let mut table = Table::new();
    for (name, setting) in bootstrap.kubelet.settings() {
        let key = match name {
            "maxPods" => "max-pods",
            "kubeReserved" => "kube-reserved",
            "systemReserved" => "system-reserved",
            "evictionHard" => "eviction-hard",
            "evictionSoft" => "eviction-soft",
            "evictionSoftGracePeriod" => "eviction-soft-grace-period",
            "evictionMaxPodGracePeriod" => "eviction-max-pod-grace-period",
            "imageGCHighThresholdPercent" => "image-gc-high-threshold-percent",
            "imageGCLowThresholdPercent" => "image-gc-low-threshold-percent",
            "cpuCFSQuota" => "cpu-cfs-quota-enforced",
            "clusterDNS" => CLUSTER_DNS,
            other => return Err(UserDataError::Kubelet { field: other.to_owned() }),
        };
        let text = |text: &String| Value::String(text.clone());
        let value = match setting {
            // Percentages are texts there.
            Setting::Number(number) if key.ends_with("percent") => Value::String(number.to_string()),
            Setting::Number(number) => Value::Integer(i64::from(number)),
            Setting::Flag(flag) => Value::Boolean(flag),
            Setting::Map(map) => Value::Table(map.iter().map(|(key, value)| (key.clone(), text(value))).collect()),
            Setting::List(list) => Value::Array(list.iter().map(text).collect()),
            Setting::Json(_) => return Err(UserDataError::Kubelet { field: name.to_owned() }),
        };
        table.insert(key.to_owned(), value);
    }
    Ok(table)
}

/// Local NVMe disks as one RAID0 for containers and volumes.
fn local_storage() -> Table {
    let texts = |texts: &[&str]| Value::Array(texts.iter().map(|text| Value::String((*text).to_owned())).collect());
    let commands = Value::Array(vec![
        texts(&["apiclient", "ephemeral-storage", "init"]),
        texts(&[
            "apiclient",
            "ephemeral-storage",
            "bind",
            "--dirs",
            "/var/lib/containerd",
            "/var/lib/kubelet",
            "/var/log/pods",
        ]),
    ]);
    let command = Table::from_iter([
        ("commands".to_owned(), commands),
        ("mode".to_owned(), Value::String("always".to_owned())),
        ("essential".to_owned(), Value::Boolean(true)),
    ]);
    Table::from_iter([("000-muster-local-storage".to_owned(), Value::Table(command))])
}

/// Lays `over` on `base`, table by table.
fn merge(base: &mut Table, over: Table) {
    for (key, value) in over {
        match (base.get_mut(&key), value) {
            (Some(Value::Table(base)), Value::Table(over)) => merge(base, over),
            (_, value) => {
                base.insert(key, value);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ec2::USER_DATA_LIMIT;
    use crate::ec2::bootstrap::tests::{bootstrap, golden, kubelet as settings};

    #[test]
    fn the_user_data_of_a_bottlerocket_node_is_as_written_down() {
        let own = "[settings.host-containers.admin]\nenabled = true\n\n[settings.kubernetes]\ncluster-name = \"x\"\n";
        let bootstrap = Bootstrap {
            kubelet: crate::ec2::Kubelet { pods_per_core: None, extra: Default::default(), ..settings() },
            user_data: own.to_owned(),
            ..bootstrap()
        };
        golden("bottlerocket.toml", &user_data_bottlerocket(&bootstrap).unwrap());
    }

    #[test]
    fn the_dns_of_an_ipv6_cluster_is_in_the_settings_unless_the_class_names_another() {
        let dns = |services: &str, own: &str, kubelet: crate::ec2::Kubelet| {
            let mut bootstrap = Bootstrap { user_data: own.to_owned(), kubelet, ..bootstrap() };
            services.clone_into(&mut bootstrap.cluster.service_cidr);
            let settings: Table = user_data_bottlerocket(&bootstrap).unwrap().parse().unwrap();
            let found = settings["settings"]["kubernetes"].get("cluster-dns-ip").cloned();
            found.map(|dns| dns.to_string().replace(['"', '[', ']'], ""))
        };
        let (v6, own) = ("fd12:3456::/108", "[settings.kubernetes]\ncluster-dns-ip = \"fd00::53\"\n");
        let kubelet = || crate::ec2::Kubelet { cluster_dns: vec!["fd00::35".to_owned()], ..Default::default() };
        assert_eq!(dns("10.100.0.0/16", "", Default::default()), None, "Bottlerocket knows it by itself");
        assert_eq!(dns(v6, "", Default::default()).as_deref(), Some("fd12:3456::a"));
        assert_eq!(dns(v6, own, Default::default()).as_deref(), Some("fd00::53"));
        assert_eq!(dns(v6, own, kubelet()).as_deref(), Some("fd00::35"));
    }

    #[test]
    fn what_bottlerocket_has_no_setting_for_is_named() {
        for (kubelet, field) in [
            (crate::ec2::Kubelet { pods_per_core: Some(4), ..Default::default() }, "podsPerCore"),
            (
                crate::ec2::Kubelet {
                    extra: [("serializeImagePulls".to_owned(), "false".to_owned())].into(),
                    ..Default::default()
                },
                "serializeImagePulls",
            ),
        ] {
            let error = user_data_bottlerocket(&Bootstrap { kubelet, ..bootstrap() }).unwrap_err();
            assert_eq!(error, UserDataError::Kubelet { field: field.to_owned() });
        }
    }

    #[test]
    fn user_data_that_is_no_toml_or_too_large_is_refused() {
        let with = |user_data: String| user_data_bottlerocket(&Bootstrap { user_data, ..bootstrap() });
        assert_eq!(with("#!/bin/sh".to_owned()), Err(UserDataError::Toml));
        assert_eq!(with("a = ".to_owned()), Err(UserDataError::Toml));
        let large = with(format!("[settings]\nmotd = \"{}\"\n", "x".repeat(USER_DATA_LIMIT)));
        assert!(matches!(large, Err(UserDataError::TooLarge { .. })), "{large:?}");
    }
}
