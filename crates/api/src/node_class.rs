//! What an EC2NodeClass says, as core types, and what is wrong with it before anybody asks EC2.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use muster_core::ec2::{
    Alias, BlockDevice, Bootstrap, ClusterAccess, Efa, Family, InterfaceKind, KeptBack, Kubelet, MetadataOptions,
    Purpose, UserDataError, efa_count, is_threshold, user_data,
};
use muster_core::model::node::{Taint, TaintEffect};
use muster_core::model::units::Quantity;
use muster_core::offering::{Build, ClassTemplate, InstanceTypeInfo, InterfaceSlot};

use crate::crd::{
    AmiFamily, BlockDeviceMapping, EC2NodeClass, HttpTokens, InstanceStorePolicy, InterfaceTypeSpec, MemoryStatus,
    NetworkInterfaceSpec, Switch,
};
use crate::{keys, pool};

/// Something wrong with a class: the condition that turns false, one word, and a sentence that names the field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Condition.
    pub condition: &'static str,
    /// Reason.
    pub reason: &'static str,
    /// Field, what is wrong, remedy.
    pub message: String,
}

impl Problem {
    /// A problem of the class's own fields.
    fn of_spec(reason: &'static str, message: impl Into<String>) -> Self {
        Self { condition: "ValidationSucceeded", reason, message: message.into() }
    }
}

/// The family of the class's images: as it says, as its alias says, else AL2023.
#[must_use]
pub fn family(class: &EC2NodeClass) -> Family {
    let of_alias = || {
        let aliases = class.spec.ami_selector_terms.iter().filter_map(|term| term.alias.as_deref());
        aliases.filter_map(|alias| Alias::parse(alias).ok()).map(|alias| alias.family).next()
    };
    match class.spec.ami_family {
        Some(AmiFamily::Al2023) => Family::Al2023,
        Some(AmiFamily::Bottlerocket) => Family::Bottlerocket,
        Some(AmiFamily::Custom) => Family::Custom,
        None => of_alias().unwrap_or(Family::Al2023),
    }
}

/// The kubelet's settings.
///
/// Errors: the key that nobody knows, or whose value has the wrong form.
pub fn kubelet(class: &EC2NodeClass) -> Result<Kubelet, String> {
    let mut settings = class.spec.kubelet.clone().unwrap_or_default();
    let extra = match settings.remove("extra") {
        None => serde_json::Map::new(),
        Some(serde_json::Value::Object(extra)) => extra,
        Some(_) => return Err("spec.kubelet.extra: is not an object".to_owned()),
    };
    let mut kubelet: Kubelet = serde_json::from_value(serde_json::Value::Object(settings))
        .map_err(|error| format!("spec.kubelet: {error}; what is not listed goes under extra, on AL2023"))?;
    for (field, kept) in [("kubeReserved", &kubelet.kube_reserved), ("systemReserved", &kubelet.system_reserved)] {
        for (name, text) in kept {
            let amount: Quantity =
                text.parse().map_err(|_| format!("spec.kubelet.{field}.{name}: \"{text}\" is not a quantity"))?;
            if amount < Quantity::ZERO {
                return Err(format!("spec.kubelet.{field}.{name}: \"{text}\" is negative"));
            }
        }
    }
    for (name, text) in &kubelet.eviction_hard {
        if !is_threshold(text) {
            return Err(format!(
                "spec.kubelet.evictionHard.{name}: \"{text}\" is neither an amount such as 100Mi nor a share such as 5%"
            ));
        }
    }
    kubelet.extra = extra.into_iter().map(|(key, value)| (key, value.to_string())).collect();
    Ok(kubelet)
}

/// What the class says of its nodes. Interfaces that it names go on cards the type must have; see [`interfaces_fit`].
#[must_use]
pub fn template(class: &EC2NodeClass) -> ClassTemplate {
    // A class whose kubelet cannot be read is not Ready.
    let kubelet = kubelet(class).unwrap_or_default();
    let slot = |one: &NetworkInterfaceSpec| InterfaceSlot {
        card: one.network_card_index,
        device: one.device_index,
        kind: kind(one.interface_type),
    };
    ClassTemplate {
        efa: pool::efa(class),
        interfaces: class.spec.network_interfaces.iter().map(slot).collect(),
        max_pods: kubelet.max_pods,
        pods_per_core: kubelet.pods_per_core,
        prefixes: has_prefixes(class),
        kept: KeptBack::of(&kubelet),
        memory: memory(class),
        root_volume_gib: root_volume(class).and_then(|root| root.ebs.volume_size),
        local_storage_raid0: local_storage_raid0(class),
    }
}

/// The least memory that each type turned out to have with one of the images that the class has now.
fn memory(class: &EC2NodeClass) -> BTreeMap<String, i64> {
    let images: BTreeSet<&str> =
        class.status.iter().flat_map(|status| &status.amis).map(|ami| ami.id.as_str()).collect();
    let mut least: BTreeMap<String, i64> = BTreeMap::new();
    for (build, memory) in memory_of(class).into_iter().filter(|(build, _)| images.contains(build.image)) {
        least.entry(build.instance_type.to_owned()).and_modify(|known| *known = memory.min(*known)).or_insert(memory);
    }
    least
}

/// Bytes of memory that types turned out to have, as the status has them. User data may set memory aside: of a class that has changed
/// since nothing is known.
#[must_use]
pub fn memory_of(class: &EC2NodeClass) -> BTreeMap<Build<'_>, i64> {
    let current = class.status.iter().filter(|status| status.observed_generation == class.metadata.generation);
    let known = current.flat_map(|status| &status.memory);
    known.map(|one| (Build { instance_type: &one.instance_type, image: &one.image }, one.memory_bytes)).collect()
}

/// Those, as the status has them.
#[must_use]
pub fn memory_status(known: &BTreeMap<Build<'_>, i64>) -> Vec<MemoryStatus> {
    let row = |(build, bytes): (&Build<'_>, &i64)| MemoryStatus {
        instance_type: build.instance_type.to_owned(),
        image: build.image.to_owned(),
        memory_bytes: *bytes,
    };
    known.iter().map(row).collect()
}

/// Whether the cluster is IPv6, as it was seen last.
#[must_use]
pub fn is_ipv6(class: &EC2NodeClass) -> bool {
    class.status.as_ref().is_some_and(|status| status.ipv6)
}

/// Whether its nodes get prefixes of addresses, and their user data says how many pods that makes: an image of one's own has user
/// data of its own, and is taken to count as the images of EKS do, without prefixes. IPv6 addresses come in prefixes alone.
fn has_prefixes(class: &EC2NodeClass) -> bool {
    let given = class.status.as_ref().is_some_and(|status| status.ipv6 || status.prefix_delegation);
    given && family(class) != Family::Custom
}

fn kind(spec: InterfaceTypeSpec) -> InterfaceKind {
    match spec {
        InterfaceTypeSpec::Interface => InterfaceKind::Interface,
        InterfaceTypeSpec::EfaOnly => InterfaceKind::EfaOnly,
    }
}

fn root_volume(class: &EC2NodeClass) -> Option<&BlockDeviceMapping> {
    class.spec.block_device_mappings.iter().find(|device| device.root_volume)
}

/// Whether a type takes the class's network: with `efa: Always` it must have EFA, explicit interfaces must fit its
/// cards, and in an IPv6 cluster it must be one of Nitro.
///
/// Errors: field and reason. Source of the last: the EKS user guide, "Learn about IPv6 addresses to clusters, Pods, and services".
pub fn interfaces_fit(class: &EC2NodeClass, info: &InstanceTypeInfo) -> Result<(), String> {
    if is_ipv6(class) && info.xen {
        return Err(format!("{} runs on Xen, and in an IPv6 cluster pods get addresses on Nitro alone", info.name));
    }
    if class.spec.network_interfaces.is_empty() {
        if pool::efa(class) == Efa::Always && info.efa_max == 0 {
            return Err(format!("spec.efa: Always, but {} has no EFA", info.name));
        }
        return Ok(());
    }
    let mut on_card: BTreeMap<u32, u32> = BTreeMap::new();
    for one in &class.spec.network_interfaces {
        let card = info.network_cards.iter().find(|card| card.index == one.network_card_index);
        let used = on_card.entry(one.network_card_index).or_default();
        *used += 1;
        let kind = kind(one.interface_type);
        let fits = card.is_some_and(|card| card.takes(kind) && *used <= card.max_interfaces);
        if !fits {
            return Err(format!(
                "spec.networkInterfaces: {} takes no {} as interface {used} of network card {}",
                info.name,
                kind.as_str(),
                one.network_card_index
            ));
        }
    }
    Ok(())
}

/// Whether nodes of the type carry EFA devices in a gang.
#[must_use]
pub fn has_efa(class: &EC2NodeClass, info: &InstanceTypeInfo) -> bool {
    efa_count(&template(class).layout(info, Purpose::Gang)) > 0
}

/// The disks.
#[must_use]
pub fn block_devices(class: &EC2NodeClass) -> Vec<BlockDevice> {
    class
        .spec
        .block_device_mappings
        .iter()
        .map(|device| BlockDevice {
            device_name: device.device_name.clone(),
            size_gib: device.ebs.volume_size,
            volume_type: Some(device.ebs.volume_type.clone().unwrap_or_else(|| "gp3".to_owned())),
            iops: device.ebs.iops,
            throughput_mib: device.ebs.throughput,
            encrypted: device.ebs.encrypted.unwrap_or(true),
            kms_key_id: device.ebs.kms_key_id.clone(),
            snapshot_id: device.ebs.snapshot_id.clone(),
            initialization_rate_mib: device.ebs.volume_initialization_rate,
            delete_on_termination: device.ebs.delete_on_termination.unwrap_or(true),
        })
        .collect()
}

/// Instance metadata.
#[must_use]
pub fn metadata(class: &EC2NodeClass) -> MetadataOptions {
    let options = &class.spec.metadata_options;
    MetadataOptions {
        enabled: options.http_endpoint == Switch::Enabled,
        tokens_required: options.http_tokens == HttpTokens::Required,
        hop_limit: options.http_put_response_hop_limit,
        ipv6: options.http_protocol_ipv6 == Switch::Enabled,
    }
}

/// The name of the instance profile. A role, which [`problems`] refuses, was once taken for the profile of its name.
#[must_use]
pub fn instance_profile(class: &EC2NodeClass) -> String {
    class.spec.instance_profile.clone().or_else(|| class.spec.role.clone()).unwrap_or_default()
}

/// Whether local NVMe disks become ephemeral storage.
#[must_use]
pub fn local_storage_raid0(class: &EC2NodeClass) -> bool {
    match class.spec.instance_store_policy {
        Some(InstanceStorePolicy::Raid0) => true,
        None => false,
    }
}

/// What is wrong with the fields of a class, without asking EC2.
#[must_use]
pub fn problems(class: &EC2NodeClass, access: &ClusterAccess) -> Vec<Problem> {
    let mut found = Vec::new();
    let families: BTreeSet<Family> = class
        .spec
        .ami_selector_terms
        .iter()
        .filter_map(|term| term.alias.as_deref())
        .filter_map(|alias| Alias::parse(alias).ok())
        .map(|alias| alias.family)
        .collect();
    if families.len() > 1 || families.iter().any(|one| *one != family(class)) {
        let message = "spec.amiSelectorTerms: an alias is of another family than spec.amiFamily or another alias; the \
                       user data has one form";
        found.push(Problem::of_spec("FamilyConflict", message));
    }
    if let Some(role) = &class.spec.role {
        found.push(Problem::of_spec("RoleNotSupported", no_role(role)));
    }
    if class.spec.block_device_mappings.iter().filter(|device| device.root_volume).count() > 1 {
        found.push(Problem::of_spec("BlockDeviceInvalid", "spec.blockDeviceMappings: more than one rootVolume"));
    }
    if let Some(message) = wrong_interfaces(class) {
        found.push(Problem::of_spec("NetworkInterfaceInvalid", format!("spec.networkInterfaces: {message}")));
    }
    match kubelet(class) {
        Err(message) => found.push(Problem::of_spec("UnknownKubeletField", message)),
        Ok(kubelet) => {
            let sample = Bootstrap {
                cluster: access.clone(),
                labels: sample_labels(),
                taints: vec![Taint {
                    key: keys::GANG_PENDING.into(),
                    value: SAMPLE_UID.into(),
                    effect: TaintEffect::NoSchedule,
                }],
                kubelet,
                local_storage_raid0: local_storage_raid0(class),
                user_data: class.spec.user_data.clone().unwrap_or_default(),
                // What EC2 takes must hold the longest.
                power_off_after: Some(u64::from(u32::MAX)),
            };
            if let Err(error) = user_data(family(class), &sample) {
                let reason = match error {
                    UserDataError::TooLarge { .. } => "UserDataTooLarge",
                    UserDataError::Kubelet { .. } => "UnknownKubeletField",
                    UserDataError::Label { .. } | UserDataError::Form | UserDataError::Toml => "UserDataInvalid",
                };
                found.push(Problem::of_spec(reason, format!("{}: {error}", error.field())));
            }
        }
    }
    found
}

/// As long as the UIDs that labels and taints carry.
const SAMPLE_UID: &str = "00000000-0000-0000-0000-000000000000";

/// What Muster labels every node of a gang with, as long as it gets: a class whose user data leaves no capacity for it would
/// pass here and fail with every launch.
fn sample_labels() -> BTreeMap<Arc<str>, Arc<str>> {
    [
        (keys::BATCH, SAMPLE_UID),
        (keys::GANG_UID, SAMPLE_UID),
        (keys::ATTEMPT, "1000"),
        (keys::CAPACITY_TYPE, "on-demand"),
        (keys::CAPACITY_RESERVATION_ID, "cr-00000000000000000"),
        (keys::NODEPOOL, "a-name-of-a-node-pool-that-is-as-long-as-a-label-value-may-be"),
        (keys::INSTANCE_FAMILY, "p6e-gb200"),
        (keys::INSTANCE_SIZE, "metal-48xl"),
        (keys::INSTANCE_GPU_NAME, "rtx-pro-server-6000"),
        (keys::INSTANCE_GPU_COUNT, "16"),
    ]
    .into_iter()
    .map(|(key, value)| (Arc::from(key), Arc::from(value)))
    .collect()
}

fn wrong_interfaces(class: &EC2NodeClass) -> Option<&'static str> {
    let explicit = &class.spec.network_interfaces;
    if explicit.is_empty() {
        return None;
    }
    let primary = |one: &&NetworkInterfaceSpec| (one.network_card_index, one.device_index) == (0, 0);
    if explicit.iter().find(primary).is_none_or(|one| one.interface_type != InterfaceTypeSpec::Interface) {
        return Some("card 0, device 0 must be an interface: it carries the node's address");
    }
    let mut places = BTreeSet::new();
    if explicit.iter().any(|one| !places.insert((one.network_card_index, one.device_index))) {
        return Some("two have the same card and device");
    }
    let mut cards = BTreeSet::new();
    let efa = explicit.iter().filter(|one| one.interface_type == InterfaceTypeSpec::EfaOnly);
    if efa.into_iter().any(|one| !cards.insert(one.network_card_index)) {
        return Some("a network card takes one efa-only");
    }
    None
}

/// What Karpenter's field of that name asks for is that an instance profile be made.
fn no_role(role: &str) -> String {
    format!(
        "spec.role: Muster makes no instance profiles; put the name of one that has the role {role} into \
         spec.instanceProfile and remove spec.role. To make one: aws iam create-instance-profile \
         --instance-profile-name {role} && aws iam add-role-to-instance-profile --instance-profile-name {role} \
         --role-name {role}"
    )
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn class(spec: &Value) -> EC2NodeClass {
        let mut whole = json!({
            "amiSelectorTerms": [{"alias": "al2023@latest"}],
            "subnetSelectorTerms": [{"id": "subnet-1"}],
            "securityGroupSelectorTerms": [{"id": "sg-1"}],
            "instanceProfile": "nodes",
        });
        for (key, value) in spec.as_object().unwrap() {
            whole[key] = value.clone();
        }
        serde_json::from_value(json!({
            "apiVersion": "muster.dev/v1alpha1", "kind": "EC2NodeClass", "metadata": {"name": "c"}, "spec": whole,
        }))
        .unwrap()
    }

    fn access() -> ClusterAccess {
        ClusterAccess {
            name: "prod".to_owned(),
            endpoint: "https://example.com".to_owned(),
            certificate_authority: "Y2E=".to_owned(),
            service_cidr: "10.100.0.0/16".to_owned(),
        }
    }

    fn info() -> InstanceTypeInfo {
        let card = |index, kinds: &[&str]| json!({"index": index, "kinds": kinds, "maxInterfaces": 2});
        serde_json::from_value(json!({
            "name": "x.large", "vcpu": 64, "memoryMib": 131_072, "efaMax": 1,
            "networkCards": [card(0, &["interface"]), card(1, &["interface", "efa", "efa-only"])],
            "ipv4PerInterface": 50, "supportsClusterGroup": true, "usageClasses": [], "architectures": ["x86_64"],
        }))
        .unwrap()
    }

    #[test]
    fn a_plain_class_has_no_problem_and_the_safe_defaults() {
        let class = class(&json!({}));
        assert_eq!(problems(&class, &access()), []);
        assert_eq!(family(&class), Family::Al2023);
        assert_eq!(metadata(&class), MetadataOptions::default());
        assert_eq!(instance_profile(&class), "nodes");
        assert!(block_devices(&class).is_empty() && !local_storage_raid0(&class));
    }

    #[test]
    fn a_role_is_refused_with_the_profile_to_make() {
        let class = class(&json!({"instanceProfile": null, "role": "train"}));
        let found = problems(&class, &access());
        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!((found[0].condition, found[0].reason), ("ValidationSucceeded", "RoleNotSupported"));
        for part in ["spec.role", "spec.instanceProfile", "create-instance-profile --instance-profile-name train"] {
            assert!(found[0].message.contains(part), "{}", found[0].message);
        }
    }

    #[test]
    fn every_mistake_names_its_field() {
        let efa_only = json!({"networkCardIndex": 0, "deviceIndex": 0, "interfaceType": "efa-only"});
        let plain = json!({"networkCardIndex": 0, "deviceIndex": 0, "interfaceType": "interface"});
        let root = json!({"deviceName": "/dev/xvda", "rootVolume": true, "ebs": {"volumeSize": 1}});
        for (spec, reason, field) in [
            (json!({"kubelet": {"maxPodz": 5}}), "UnknownKubeletField", "maxPodz"),
            (json!({"kubelet": {"maxPods": "many"}}), "UnknownKubeletField", "spec.kubelet"),
            (json!({"kubelet": {"extra": 1}}), "UnknownKubeletField", "spec.kubelet.extra"),
            (
                json!({"kubelet": {"kubeReserved": {"cpu": "-1"}}}),
                "UnknownKubeletField",
                "spec.kubelet.kubeReserved.cpu: \"-1\" is negative",
            ),
            (json!({"kubelet": {"systemReserved": {"memory": "much"}}}), "UnknownKubeletField", "\"much\""),
            (
                json!({"amiFamily": "Bottlerocket", "amiSelectorTerms": [{"id": "ami-1"}], "kubelet": {"podsPerCore": 1}}),
                "UnknownKubeletField",
                "podsPerCore",
            ),
            (json!({"userData": format!("#!/bin/sh\n#{}", "x".repeat(16_000))}), "UserDataTooLarge", "spec.userData"),
            (json!({"userData": "hello"}), "UserDataInvalid", "spec.userData"),
            (
                json!({"amiFamily": "Bottlerocket", "amiSelectorTerms": [{"id": "ami-1"}], "userData": "#!/bin/sh"}),
                "UserDataInvalid",
                "spec.userData",
            ),
            (json!({"amiFamily": "Bottlerocket"}), "FamilyConflict", "spec.amiSelectorTerms"),
            (json!({"networkInterfaces": [efa_only]}), "NetworkInterfaceInvalid", "spec.networkInterfaces"),
            (json!({"networkInterfaces": [plain, plain]}), "NetworkInterfaceInvalid", "spec.networkInterfaces"),
            (json!({"blockDeviceMappings": [root, root]}), "BlockDeviceInvalid", "spec.blockDeviceMappings"),
        ] {
            let found = problems(&class(&spec), &access());
            assert!(
                found.iter().any(|problem| problem.reason == reason && problem.message.contains(field)),
                "{spec}: {found:?}"
            );
        }
    }

    #[test]
    fn other_settings_of_the_kubelet_go_under_extra() {
        let class = class(&json!({"kubelet": {"maxPods": 50, "extra": {"serializeImagePulls": false}}}));
        let kubelet = kubelet(&class).unwrap();
        assert_eq!(kubelet.max_pods, Some(50));
        assert_eq!(kubelet.extra, BTreeMap::from([("serializeImagePulls".to_owned(), "false".to_owned())]));
    }

    #[test]
    fn pods_write_to_the_first_root_volume_or_to_the_disks_of_the_type() {
        let volume = |gib: u32, root: bool| json!({"deviceName": "d", "rootVolume": root, "ebs": {"volumeSize": gib}});
        let of = |spec: &Value| template(&class(spec));
        assert_eq!(
            of(&json!({"blockDeviceMappings": [volume(5, false), volume(300, true)]})).root_volume_gib,
            Some(300)
        );
        assert_eq!(of(&json!({"blockDeviceMappings": [volume(5, false)]})).root_volume_gib, None);
        assert!(of(&json!({"instanceStorePolicy": "RAID0"})).local_storage_raid0);
    }

    #[test]
    fn more_pods_fit_where_the_network_gives_prefixes_and_the_user_data_says_how_many() {
        let seen = |spec: &Value, status: &Value| {
            let mut class = class(spec);
            class.status = serde_json::from_value(status.clone()).unwrap();
            let new = crate::new_node::of_class(Some(&class), &info());
            (new.node.allocatable.get("pods"), new.max_pods)
        };
        let prefixes = json!({"prefixDelegation": true});
        assert_eq!(seen(&json!({}), &json!({})), (100, None));
        assert_eq!(seen(&json!({}), &prefixes), (250, Some(250)));
        assert_eq!(seen(&json!({}), &json!({"ipv6": true})), (250, Some(250)));
        assert_eq!(seen(&json!({"kubelet": {"maxPods": 30}}), &prefixes), (30, None));
        let custom = json!({"amiFamily": "Custom", "amiSelectorTerms": [{"id": "ami-1"}]});
        assert_eq!(seen(&custom, &prefixes), (100, None), "its user data is its own");
    }

    #[test]
    fn a_type_on_xen_is_launched_in_no_ipv6_cluster() {
        let (mut class, xen) = (class(&json!({})), InstanceTypeInfo { xen: true, ..info() });
        assert_eq!(interfaces_fit(&class, &xen), Ok(()));
        class.status = serde_json::from_value(json!({"ipv6": true})).unwrap();
        assert!(interfaces_fit(&class, &xen).unwrap_err().contains("x.large runs on Xen"));
        assert_eq!(interfaces_fit(&class, &info()), Ok(()));
    }

    #[test]
    fn explicit_interfaces_and_always_efa_must_fit_the_type() {
        let with = |cards: &[(u32, &str)]| {
            let list: Vec<Value> = cards
                .iter()
                .map(|(card, kind)| json!({"networkCardIndex": card, "deviceIndex": 0, "interfaceType": kind}))
                .collect();
            class(&json!({"networkInterfaces": list}))
        };
        let fits = with(&[(0, "interface"), (1, "efa-only")]);
        assert_eq!(interfaces_fit(&fits, &info()), Ok(()));
        assert_eq!(template(&fits).layout(&info(), Purpose::Ordinary).len(), 2);
        assert!(has_efa(&fits, &info()));
        let wrong = interfaces_fit(&with(&[(0, "interface"), (2, "efa-only")]), &info()).unwrap_err();
        assert!(wrong.contains("spec.networkInterfaces") && wrong.contains("card 2"), "{wrong}");

        let always = class(&json!({"efa": "Always"}));
        assert_eq!(interfaces_fit(&always, &info()), Ok(()));
        let without = InstanceTypeInfo { efa_max: 0, ..info() };
        assert!(interfaces_fit(&always, &without).unwrap_err().contains("spec.efa"));
        assert!(!has_efa(&class(&json!({"efa": "Never"})), &info()));
    }
}
