//! User data: how a machine becomes a node of the cluster.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::kubelet::{Kubelet, Setting};
use super::mime::{self, Part};
use crate::model::node::{Taint, TaintEffect};

/// EC2's limit on user data, in bytes before base64.
pub const USER_DATA_LIMIT: usize = 16_384;

/// How nodes reach the cluster; all four are required by nodeadm.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ClusterAccess {
    /// Name of the cluster.
    pub name: String,
    /// URL of the API server.
    pub endpoint: String,
    /// Certificate authority, base64.
    pub certificate_authority: String,
    /// Service CIDR.
    pub service_cidr: String,
}

/// What goes into the user data of every node of a batch: equal for all of them, or the batch could not be one call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Bootstrap {
    /// The cluster.
    pub cluster: ClusterAccess,
    /// Labels the kubelet registers with.
    pub labels: BTreeMap<Arc<str>, Arc<str>>,
    /// Taints the kubelet registers with.
    pub taints: Vec<Taint>,
    /// Settings of the kubelet.
    pub kubelet: Kubelet,
    /// Local NVMe disks as ephemeral storage, RAID0.
    pub local_storage_raid0: bool,
    /// The node class's own user data; empty for none. AL2023: a shell script (`#!`), a NodeConfig document, or a MIME document of such parts.
    /// Bottlerocket: TOML.
    pub user_data: String,
    /// AL2023: the machine ends itself unless it has registered this many seconds after it started; `None`: it does not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub power_off_after: Option<u64>,
}

/// Installs the unit that ends a machine which does not become a node. Bottlerocket runs no scripts, and the user data of other
/// images is their own.
const POWER_OFF: &str = include_str!("power_off.sh");

/// Checks what every family's kubelet and EC2 refuse.
pub(super) fn checked(bootstrap: &Bootstrap, text: String) -> Result<String, UserDataError> {
    for (key, value) in &bootstrap.labels {
        if !label_is_registrable(key, value) {
            return Err(UserDataError::Label { key: Arc::clone(key), value: Arc::clone(value) });
        }
    }
    if text.len() > USER_DATA_LIMIT { Err(UserDataError::TooLarge { bytes: text.len() }) } else { Ok(text) }
}

/// Why user data cannot be made.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum UserDataError {
    /// More than EC2 takes.
    #[error("user data has {bytes} bytes, EC2 takes {USER_DATA_LIMIT}")]
    TooLarge {
        /// Bytes before base64.
        bytes: usize,
    },
    /// The kubelet would not start with this label.
    #[error("the kubelet refuses to register with label {key}={value}")]
    Label {
        /// Key.
        key: Arc<str>,
        /// Value.
        value: Arc<str>,
    },
    /// The class's user data is in a form that cannot be merged.
    #[error(
        "user data of the class is neither a shell script (#!), a NodeConfig, nor a whole MIME document of such parts"
    )]
    Form,
    /// The class's user data is no TOML.
    #[error("user data of the class is not TOML, which Bottlerocket takes alone")]
    Toml,
    /// The family has no such setting.
    #[error("the image family has no setting for kubelet.{field}")]
    Kubelet {
        /// The field.
        field: String,
    },
}

impl UserDataError {
    /// The field of an EC2NodeClass that has to change.
    #[must_use]
    pub fn field(&self) -> &'static str {
        match self {
            Self::TooLarge { .. } | Self::Form | Self::Toml => "spec.userData",
            Self::Label { .. } => "spec.template.metadata.labels",
            Self::Kubelet { .. } => "spec.kubelet",
        }
    }
}

/// A part that cloud-init runs once.
const SCRIPT: &str = "Content-Type: text/x-shellscript; charset=\"us-ascii\"";
/// A part that nodeadm reads.
const NODE_CONFIG: &str = "Content-Type: application/node.eks.aws";

/// User data of an AL2023 node: MIME multipart with the class's own parts first and ours last, since nodeadm merges every
/// NodeConfig and lets the later one win. Errors: [`UserDataError`]. Source: nodeadm's API and the EKS user guide.
pub fn user_data_al2023(bootstrap: &Bootstrap) -> Result<String, UserDataError> {
    let mut text = String::from("MIME-Version: 1.0\nContent-Type: multipart/mixed; boundary=\"//\"\n\n");
    if let Some(seconds) = bootstrap.power_off_after {
        // First, since scripts run one after the other, and that of the class may never end.
        part(&mut text, SCRIPT, &POWER_OFF.replace("LIMIT", &seconds.to_string()));
    }
    for own in own_parts(bootstrap.user_data.trim())? {
        // A line that is our boundary would end the part early.
        if own.body.lines().any(|line| line.starts_with("--//")) {
            return Err(UserDataError::Form);
        }
        part(&mut text, &own.head.join("\n"), &own.body);
    }
    part(&mut text, NODE_CONFIG, &node_config(bootstrap));
    text.push_str("--//--\n");
    checked(bootstrap, text)
}

/// The class's own user data as parts, each of which says what it is.
fn own_parts(own: &str) -> Result<Vec<Part>, UserDataError> {
    if own.is_empty() {
        return Ok(Vec::new());
    }
    if !mime::is_mime(own) {
        return Ok(vec![typed(Part { head: Vec::new(), body: own.to_owned() })?]);
    }
    mime::parts(own).ok_or(UserDataError::Form)?.into_iter().map(typed).collect()
}

/// A part whose type nobody wrote down, by how it begins.
fn typed(part: Part) -> Result<Part, UserDataError> {
    let kind = match &part {
        part if part.is_typed() => None,
        part if part.body.starts_with("#!") => Some(SCRIPT),
        part if part.body.contains("kind: NodeConfig") => Some(NODE_CONFIG),
        _ => return Err(UserDataError::Form),
    };
    let Part { mut head, body } = part;
    head.extend(kind.map(str::to_owned));
    Ok(Part { head, body })
}

fn part(text: &mut String, head: &str, body: &str) {
    write!(text, "--//\n{head}\n\n{}\n\n", body.trim_end()).expect("writing to a string");
}

fn node_config(bootstrap: &Bootstrap) -> String {
    let ClusterAccess { name, endpoint, certificate_authority, service_cidr } = &bootstrap.cluster;
    let mut yaml = String::from("apiVersion: node.eks.aws/v1alpha1\nkind: NodeConfig\nspec:\n  cluster:\n");
    for (key, value) in [
        ("name", name),
        ("apiServerEndpoint", endpoint),
        ("certificateAuthority", certificate_authority),
        ("cidr", service_cidr),
    ] {
        line(&mut yaml, "    ", key, &quoted(value));
    }
    if bootstrap.local_storage_raid0 {
        yaml.push_str("  instance:\n    localStorage:\n      strategy: RAID0\n");
    }
    let labels: Vec<String> = bootstrap.labels.iter().map(|(key, value)| format!("{key}={value}")).collect();
    let settings = bootstrap.kubelet.settings();
    if bootstrap.taints.is_empty() && labels.is_empty() && settings.is_empty() {
        return yaml;
    }
    yaml.push_str("  kubelet:\n");
    if !bootstrap.taints.is_empty() || !settings.is_empty() {
        yaml.push_str("    config:\n");
    }
    for (name, setting) in settings {
        match setting {
            Setting::Number(number) => line(&mut yaml, "      ", name, &number.to_string()),
            Setting::Flag(flag) => line(&mut yaml, "      ", name, &flag.to_string()),
            Setting::Map(map) => {
                writeln!(yaml, "      {name}:").expect("writing to a string");
                for (key, value) in map {
                    line(&mut yaml, "        ", &quoted(key), &quoted(value));
                }
            }
            Setting::List(list) => {
                let items: Vec<String> = list.iter().map(|item| quoted(item)).collect();
                line(&mut yaml, "      ", name, &format!("[{}]", items.join(", ")));
            }
            // JSON is YAML.
            Setting::Json(json) => line(&mut yaml, "      ", &quoted(name), json),
        }
    }
    if !bootstrap.taints.is_empty() {
        yaml.push_str("      registerWithTaints:\n");
        for taint in &bootstrap.taints {
            line(&mut yaml, "      - ", "key", &quoted(&taint.key));
            if !taint.value.is_empty() {
                line(&mut yaml, "        ", "value", &quoted(&taint.value));
            }
            line(&mut yaml, "        ", "effect", effect(taint.effect));
        }
    }
    if !labels.is_empty() {
        let flag = quoted(&format!("--node-labels={}", labels.join(",")));
        writeln!(yaml, "    flags:\n    - {flag}").expect("writing to a string");
    }
    yaml
}

fn line(yaml: &mut String, indent: &str, key: &str, value: &str) {
    writeln!(yaml, "{indent}{key}: {value}").expect("writing to a string");
}

pub(super) fn effect(effect: TaintEffect) -> &'static str {
    match effect {
        TaintEffect::NoSchedule => "NoSchedule",
        TaintEffect::PreferNoSchedule => "PreferNoSchedule",
        TaintEffect::NoExecute => "NoExecute",
    }
}

/// A YAML double-quoted scalar: whatever the text holds, it stays one value.
fn quoted(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len() + 2);
    quoted.push('"');
    for c in text.chars() {
        match c {
            '"' => quoted.push_str("\\\""),
            '\\' => quoted.push_str("\\\\"),
            '\n' => quoted.push_str("\\n"),
            '\r' => quoted.push_str("\\r"),
            '\t' => quoted.push_str("\\t"),
            c if c.is_control() => write!(quoted, "\\u{:04X}", u32::from(c)).expect("writing to a string"),
            c => quoted.push(c),
        }
    }
    quoted.push('"');
    quoted
}

/// Whether the kubelet starts with this label: the grammar of labels, and of the domains `kubernetes.io` and `k8s.io`
/// only what the kubelet owns. A wrong one would keep every node of the batch from joining.
///
/// Source: `IsKubernetesLabel` and `IsKubeletLabel` in `k8s.io/kubelet/pkg/apis`.
fn label_is_registrable(key: &str, value: &str) -> bool {
    const OWN: [&str; 9] = [
        "kubernetes.io/hostname",
        "kubernetes.io/arch",
        "kubernetes.io/os",
        "topology.kubernetes.io/zone",
        "topology.kubernetes.io/region",
        "failure-domain.beta.kubernetes.io/zone",
        "failure-domain.beta.kubernetes.io/region",
        "beta.kubernetes.io/arch",
        "beta.kubernetes.io/os",
    ];
    let word = |text: &str, most: usize| {
        let edge = |c: Option<u8>| c.is_some_and(|c| c.is_ascii_alphanumeric());
        let inner = |c: u8| c.is_ascii_alphanumeric() || matches!(c, b'-' | b'_' | b'.');
        let bytes = text.as_bytes();
        bytes.len() <= most
            && edge(bytes.first().copied())
            && edge(bytes.last().copied())
            && bytes.iter().all(|c| inner(*c))
    };
    let within = |domain: &str, parent: &str| {
        domain == parent || domain.strip_suffix(parent).is_some_and(|rest| rest.ends_with('.'))
    };
    let key_is_good = match key.split_once('/') {
        None => word(key, 63),
        Some((domain, name)) => {
            let reserved = within(domain, "kubernetes.io") || within(domain, "k8s.io");
            let kubelet = within(domain, "kubelet.kubernetes.io") || within(domain, "node.kubernetes.io");
            word(domain, 253) && word(name, 63) && (!reserved || kubelet || OWN.contains(&key))
        }
    };
    key_is_good && (value.is_empty() || word(value, 63))
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::ec2::families::user_data;
    use crate::ec2::image::Family;

    pub(crate) fn bootstrap() -> Bootstrap {
        Bootstrap {
            cluster: ClusterAccess {
                name: "prod".to_owned(),
                endpoint: "https://example.com".to_owned(),
                certificate_authority: "Y2E=".to_owned(),
                service_cidr: "10.100.0.0/16".to_owned(),
            },
            labels: BTreeMap::from([
                (Arc::from("muster.dev/attempt"), Arc::from("1")),
                (Arc::from("muster.dev/gang-uid"), Arc::from("uid")),
            ]),
            taints: vec![
                Taint { key: "muster.dev/gang-pending".into(), value: "uid".into(), effect: TaintEffect::NoSchedule },
                Taint { key: "muster.dev/unregistered".into(), value: "".into(), effect: TaintEffect::NoExecute },
            ],
            kubelet: Kubelet::default(),
            local_storage_raid0: true,
            user_data: String::new(),
            power_off_after: None,
        }
    }

    pub(crate) fn kubelet() -> Kubelet {
        let map = |pairs: &[(&str, &str)]| {
            pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect::<BTreeMap<_, _>>()
        };
        Kubelet {
            max_pods: Some(110),
            pods_per_core: Some(4),
            kube_reserved: map(&[("cpu", "200m"), ("memory", "1Gi")]),
            system_reserved: map(&[("memory", "512Mi")]),
            eviction_hard: map(&[("memory.available", "5%")]),
            eviction_soft: map(&[("memory.available", "10%")]),
            eviction_soft_grace_period: map(&[("memory.available", "1m")]),
            eviction_max_pod_grace_period: Some(60),
            image_gc_high_threshold_percent: Some(85),
            image_gc_low_threshold_percent: Some(80),
            cpu_cfs_quota: Some(false),
            cluster_dns: vec!["10.100.0.10".to_owned()],
            extra: map(&[("serializeImagePulls", "false")]),
        }
    }

    /// Compares with a file beside this one. With `MUSTER_BLESS` set the file is written instead.
    #[track_caller]
    pub(crate) fn golden(name: &str, text: &str) {
        let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src/cloud/golden").join(name);
        if std::env::var_os("MUSTER_BLESS").is_some() {
            std::fs::write(&path, text).unwrap();
        }
        let written = std::fs::read_to_string(&path).unwrap_or_default();
        assert_eq!(text, written, "{name} differs; a wanted change is written with MUSTER_BLESS=1");
        assert!(text.len() <= USER_DATA_LIMIT);
    }

    #[test]
    fn the_user_data_of_a_gang_node_is_as_written_down() {
        golden("al2023.mime", &user_data_al2023(&bootstrap()).unwrap());
        let full = Bootstrap { kubelet: kubelet(), user_data: "#!/bin/sh\necho hi\n".to_owned(), ..bootstrap() };
        golden("al2023-full.mime", &user_data_al2023(&full).unwrap());
        let ending = Bootstrap { power_off_after: Some(1140), ..bootstrap() };
        golden("al2023-power-off.mime", &user_data_al2023(&ending).unwrap());
    }

    #[test]
    fn a_custom_image_gets_its_user_data_as_it_is_but_not_too_much_of_it() {
        let own = Bootstrap { user_data: "anything".to_owned(), ..bootstrap() };
        assert_eq!(user_data(Family::Custom, &own).unwrap(), "anything");
        let large = Bootstrap { user_data: "x".repeat(USER_DATA_LIMIT + 1), ..bootstrap() };
        let error = user_data(Family::Custom, &large).unwrap_err();
        assert_eq!((error.field(), error.to_string().contains("16385")), ("spec.userData", true));
    }

    #[test]
    fn a_node_without_labels_and_taints_has_no_kubelet_section() {
        let plain =
            Bootstrap { labels: BTreeMap::new(), taints: Vec::new(), local_storage_raid0: false, ..bootstrap() };
        let text = user_data_al2023(&plain).unwrap();
        assert!(!text.contains("kubelet") && !text.contains("instance:"), "{text}");
        let limited =
            user_data_al2023(&Bootstrap { kubelet: Kubelet { max_pods: Some(50), ..Kubelet::default() }, ..plain })
                .unwrap();
        assert!(limited.contains("  kubelet:\n    config:\n      maxPods: 50\n"), "{limited}");
    }

    #[test]
    fn the_part_of_the_class_comes_before_ours() {
        let script = Bootstrap { user_data: "#!/bin/sh\necho hi\n".to_owned(), ..bootstrap() };
        let text = user_data_al2023(&script).unwrap();
        let (own, ours) = (text.find("echo hi").unwrap(), text.find("kind: NodeConfig").unwrap());
        assert!(own < ours && text.contains("text/x-shellscript"), "{text}");
        let config = "apiVersion: node.eks.aws/v1alpha1\nkind: NodeConfig\nspec: {}";
        let merged = user_data_al2023(&Bootstrap { user_data: config.to_owned(), ..bootstrap() }).unwrap();
        assert_eq!(merged.matches("application/node.eks.aws").count(), 2);
    }

    #[test]
    fn the_parts_of_a_mime_document_keep_their_order_and_ours_is_the_last() {
        // As in the EKS user guide, whose boundary is ours too.
        let own = "MIME-Version: 1.0\nContent-Type: multipart/mixed; boundary=\"//\"\n\n--//\n\
                   Content-Type: application/node.eks.aws\n\nkind: NodeConfig\nspec: {kubelet: {config: {maxPods: 17}}}\n\n--//\n\
                   Content-Type: text/x-shellscript; charset=\"us-ascii\"\n\n#!/bin/sh\necho first\n\n--//\n\n#!/bin/sh\necho second\n--//--";
        let text = user_data_al2023(&Bootstrap { user_data: own.to_owned(), ..bootstrap() }).unwrap();
        let places =
            ["maxPods: 17", "echo first", "echo second", "apiServerEndpoint"].map(|part| text.find(part).unwrap());
        assert!(places.is_sorted(), "{text}");
        assert_eq!(text.matches("--//\nContent-Type: ").count(), 4, "{text}");
        assert_eq!((text.matches("MIME-Version").count(), text.matches("--//--").count()), (1, 1), "{text}");
    }

    #[test]
    fn forms_that_cannot_be_merged_are_refused() {
        for own in [
            "MIME-Version: 1.0\nkind: NodeConfig",
            "hello",
            "#!/bin/sh\n--//--\n",
            "Content-Type: multipart/mixed; boundary=a\n\n--a\n\nneither script nor config\n--a--\n",
            "Content-Type: multipart/mixed; boundary=a\n\n--a\n\n#!/bin/sh\n--//\n--a--\n",
        ] {
            let wrong = Bootstrap { user_data: own.to_owned(), ..bootstrap() };
            assert_eq!(user_data_al2023(&wrong), Err(UserDataError::Form), "{own}");
        }
    }

    #[test]
    fn the_limit_is_sixteen_kilobytes() {
        let spare = USER_DATA_LIMIT - user_data_al2023(&bootstrap()).unwrap().len();
        let overhead = "--//\nContent-Type: text/x-shellscript; charset=\"us-ascii\"\n\n\n\n".len();
        let fill = |bytes: usize| {
            let script = format!("#!/bin/sh\n#{}", "x".repeat(bytes - overhead - "#!/bin/sh\n#".len()));
            user_data_al2023(&Bootstrap { user_data: script, ..bootstrap() })
        };
        assert_eq!(fill(spare).unwrap().len(), USER_DATA_LIMIT);
        assert_eq!(fill(spare + 1), Err(UserDataError::TooLarge { bytes: USER_DATA_LIMIT + 1 }));
    }

    #[test]
    fn labels_the_kubelet_refuses_are_found_before_anything_is_provisioned() {
        for (key, value) in [
            ("kubernetes.io/role", "gpu"),
            ("node-role.kubernetes.io/gpu", ""),
            ("topology.k8s.aws/zone-id", "\"; rm"),
            ("a b", ""),
            ("", ""),
            ("x", "-"),
            ("x", "a,b=c"),
        ] {
            assert!(!label_is_registrable(key, value), "{key}={value}");
        }
        for (key, value) in [
            ("muster.dev/batch", "0f9c2d4e-aaaa"),
            ("node.kubernetes.io/pool", "a"),
            ("topology.kubernetes.io/zone", "us-east-1a"),
            ("plain", ""),
            ("notkubernetes.io/x", "y"),
        ] {
            assert!(label_is_registrable(key, value), "{key}={value}");
        }
    }

    #[test]
    fn quoting_keeps_any_text_one_value() {
        assert_eq!(quoted("a\"b\\c\nd\u{1}"), "\"a\\\"b\\\\c\\nd\\u0001\"");
    }
}
