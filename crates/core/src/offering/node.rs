//! What a new node of an offering looks like, before there is one. Candidates, the launch template, what is awaited at the
//! join, limits and the offline planner all ask here, so that they cannot disagree.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::ec2::machine::{EFA, InstanceTypeInfo};
use crate::ec2::{Efa, InterfaceKind, KeptBack, NetworkInterface, Purpose, addresses_per_node, efa_count, efa_layout};
use crate::fit;
use crate::model::names::{NodeName, ResourceName};
use crate::model::node::{Node, Taint, Usage};
use crate::model::pod::Shape;
use crate::model::resources::{EPHEMERAL_STORAGE, PODS, Resources};

/// Size of the root volume of a class that says nothing of it, as in Karpenter.
const ROOT_VOLUME_GIB: u32 = 20;
const GIB: i64 = 1024 * 1024 * 1024;

/// What a NodePool says of its nodes of one type in one place.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeTemplate {
    /// All labels the node will have but its hostname, its batch's and its place in the network.
    pub labels: BTreeMap<Arc<str>, Arc<str>>,
    /// Permanent taints.
    pub taints: Vec<Taint>,
}

/// What an EC2NodeClass says of its nodes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClassTemplate {
    /// Who gets EFA where no interfaces are named.
    pub efa: Efa,
    /// Interfaces that are named; empty: [`efa`](Self::efa) decides.
    pub interfaces: Vec<InterfaceSlot>,
    /// `maxPods` of the kubelet; `None`: what the network has addresses for.
    pub max_pods: Option<u32>,
    /// `podsPerCore` of the kubelet.
    pub pods_per_core: Option<u32>,
    /// Whether the network gives prefixes of addresses, and the user data can say how many pods that makes.
    pub prefixes: bool,
    /// What the kubelet keeps back from pods.
    pub kept: KeptBack,
    /// Bytes of memory that the kernel turned out to have, by type; others are estimated.
    pub memory: BTreeMap<String, i64>,
    /// The volume that pods write to; `None`: that of the image.
    pub root_volume_gib: Option<u32>,
    /// Local disks become ephemeral storage.
    pub local_storage_raid0: bool,
}

/// An interface that a class names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct InterfaceSlot {
    /// Network card index.
    pub card: u32,
    /// Device index on the card.
    pub device: u32,
    /// Kind.
    pub kind: InterfaceKind,
}

/// A node that could be launched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewNode {
    /// As it registers, once nothing but its pool's own taints is left: labels, taints, allocatable.
    pub node: Node,
    /// What the hardware has: the amounts that count against a pool's limits.
    pub capacity: Resources,
    /// What the DaemonSets that run there take.
    pub overhead: Usage,
    /// Its network interfaces, in order of card and device, without security groups.
    pub interfaces: Vec<NetworkInterface>,
    /// `maxPods` that its user data has to say although its class does not: by itself the image counts without prefixes.
    pub max_pods: Option<u32>,
}

/// The node that `info` becomes. `daemons` are the pods of the cluster's DaemonSets, one each.
///
/// What is known only of a node that runs is estimated, see [`InstanceTypeInfo::allocatable`]; labels that other
/// controllers put on it later are not known, so a DaemonSet that selects by such a label is not counted.
#[must_use]
pub fn new_node(
    template: NodeTemplate,
    class: &ClassTemplate,
    info: &InstanceTypeInfo,
    purpose: Purpose,
    daemons: &[Shape],
) -> NewNode {
    let interfaces = class.layout(info, purpose);
    let max_pods = class.pods_of_prefixes(info, &interfaces);
    let pods = class.pods(info, max_pods, &interfaces);
    let storage = class.ephemeral_storage(info);
    let mut capacity = info.capacity();
    capacity.set(EFA, i64::from(efa_count(&interfaces)));
    capacity.set(PODS, i64::from(pods));
    capacity.set(EPHEMERAL_STORAGE, storage);
    let mut allocatable = info.allocatable(pods, &class.kept, class.memory.get(&info.name).copied());
    allocatable.set(EFA, capacity.get(EFA));
    allocatable.set(EPHEMERAL_STORAGE, storage.saturating_sub(class.kept.storage(storage)).max(0));
    let node = Node {
        name: NodeName::from(format!("new-{}", info.name)),
        labels: template.labels,
        taints: template.taints,
        allocatable,
        unschedulable: false,
        held: false,
        ready: true,
        deleting: false,
        memory: None,
        provider_id: None,
        created: None,
    };
    let mut overhead = Usage::default();
    // The DaemonSet controller asks for node selector, node affinity and taints alone, as `accepts` does. What it tolerates of
    // its own accord are conditions, of which the node has none by then.
    for daemon in daemons.iter().filter(|daemon| fit::accepts(daemon, &node).is_ok()) {
        overhead.add(daemon);
    }
    // Pods of a DaemonSet never meet on a node, and nobody else's shape counts them.
    overhead.own_shape_pods = 0;
    NewNode { node, capacity, overhead, interfaces, max_pods }
}

impl NewNode {
    /// Extended resources the node must offer before pods that ask for them are sent there: device plugins bring them
    /// some time after it has registered.
    #[must_use]
    pub fn devices(&self) -> Vec<(ResourceName, i64)> {
        let extended = self.node.allocatable.iter().filter(|(name, _)| name.as_str().contains('/'));
        extended.map(|(name, amount)| (name.clone(), amount)).collect()
    }

    /// The interfaces with these security groups on each.
    #[must_use]
    pub fn interfaces_in(&self, security_groups: &[String]) -> Vec<NetworkInterface> {
        let with = |interface: &NetworkInterface| NetworkInterface {
            security_groups: security_groups.to_vec(),
            ..interface.clone()
        };
        self.interfaces.iter().map(with).collect()
    }

    /// Addresses it takes from its subnet at launch.
    #[must_use]
    pub fn addresses(&self) -> u32 {
        addresses_per_node(&self.interfaces).max(1)
    }
}

impl ClassTemplate {
    /// The interfaces of a node, in order of card and device: those that are named, else those of `efa`.
    #[must_use]
    pub fn layout(&self, info: &InstanceTypeInfo, purpose: Purpose) -> Vec<NetworkInterface> {
        if self.interfaces.is_empty() {
            return efa_layout(info, self.efa, purpose, &[]);
        }
        let mut slots = self.interfaces.clone();
        slots.sort_unstable();
        let interface = |InterfaceSlot { card, device, kind }| NetworkInterface {
            card,
            device,
            kind,
            security_groups: Vec::new(),
            delete_on_termination: true,
        };
        slots.into_iter().map(interface).collect()
    }

    /// Pods that the prefixes of the network have addresses for, where that is what counts.
    fn pods_of_prefixes(&self, info: &InstanceTypeInfo, interfaces: &[NetworkInterface]) -> Option<u32> {
        if self.prefixes && self.max_pods.is_none() { info.max_pods_of_prefixes(interfaces) } else { None }
    }

    /// Pods the kubelet takes.
    fn pods(&self, info: &InstanceTypeInfo, of_prefixes: Option<u32>, interfaces: &[NetworkInterface]) -> u32 {
        let most = self.max_pods.or(of_prefixes).unwrap_or_else(|| info.max_pods(interfaces));
        // 0 means no limit to the kubelet.
        let per_core = self.pods_per_core.filter(|pods| *pods > 0);
        per_core.map_or(most, |pods| most.min(pods.saturating_mul(info.vcpu)))
    }

    /// Bytes of the file system that pods write to.
    fn ephemeral_storage(&self, info: &InstanceTypeInfo) -> i64 {
        if self.local_storage_raid0 && info.local_storage_gb > 0 {
            // EC2 counts local disks in gigabytes, volumes in gibibytes.
            return i64::try_from(info.local_storage_gb).unwrap_or(i64::MAX).saturating_mul(1_000_000_000);
        }
        i64::from(self.root_volume_gib.unwrap_or(ROOT_VOLUME_GIB)) * GIB
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ec2::machine::tests::{p5, plain};
    use crate::ec2::machine::{AMD_GPU, NVIDIA_GPU};
    use crate::model::node::TaintEffect;
    use crate::model::pod::Toleration;
    use crate::model::resources::{CPU, MEMORY};

    fn of(class: &ClassTemplate, info: &InstanceTypeInfo, daemons: &[Shape]) -> NewNode {
        let labels = BTreeMap::from([("disk".into(), "fast".into())]);
        let taints = vec![Taint { key: "team".into(), value: "a".into(), effect: TaintEffect::NoSchedule }];
        new_node(NodeTemplate { labels, taints }, class, info, Purpose::Gang, daemons)
    }

    fn slot(card: u32, device: u32, kind: InterfaceKind) -> InterfaceSlot {
        InterfaceSlot { card, device, kind }
    }

    #[test]
    fn an_ordinary_type_offers_cpu_memory_and_pods() {
        // m5.2xlarge: 4 interfaces of 15 addresses, 58 pods in AWS's published list.
        let m5 = plain("m5.2xlarge", 8, 32, 4, 15);
        let allocatable = of(&ClassTemplate::default(), &m5, &[]).node.allocatable;
        assert_eq!(allocatable.get(CPU), 7910);
        assert_eq!(allocatable.get(PODS), 58);
        // 34,359,738,368 bytes less 7.5 % (2,576,980,378, rounded up) less 11 * 58 + 255 + 100 MiB.
        assert_eq!(allocatable.get(MEMORY), 30_741_522_022);
        assert_eq!((allocatable.get(EFA), allocatable.get(NVIDIA_GPU)), (0, 0));
    }

    #[test]
    fn a_gpu_type_offers_gpus_and_as_many_efa_devices_as_its_layout_has() {
        let auto = of(&ClassTemplate::default(), &p5(), &[]);
        assert_eq!(auto.node.allocatable.get(NVIDIA_GPU), 8);
        assert_eq!(auto.node.allocatable.get(EFA), 32);
        // 100 in AWS's published list; one of card 0's two interfaces is efa-only here.
        assert_eq!(auto.node.allocatable.get(PODS), 51);
        assert_eq!(p5().max_pods(&[]), 100);
        let never = of(&ClassTemplate { efa: Efa::Never, ..ClassTemplate::default() }, &p5(), &[]);
        assert_eq!((never.node.allocatable.get(EFA), never.node.allocatable.get(PODS)), (0, 100));
    }

    #[test]
    fn interfaces_that_the_class_names_decide_what_is_launched_and_what_is_awaited() {
        let devices = |class: &ClassTemplate| {
            let devices = of(class, &p5(), &[]).devices();
            devices.into_iter().map(|(name, amount)| (name.as_str().to_owned(), amount)).collect::<Vec<_>>()
        };
        let gpus = (NVIDIA_GPU.to_owned(), 8);
        let named = |interfaces: &[InterfaceSlot]| ClassTemplate {
            interfaces: interfaces.to_vec(),
            ..ClassTemplate::default()
        };
        let plain = named(&[slot(0, 0, InterfaceKind::Interface)]);
        assert_eq!(devices(&plain), std::slice::from_ref(&gpus));
        assert_eq!(of(&plain, &p5(), &[]).addresses(), 1);
        let two = named(&[slot(1, 0, InterfaceKind::EfaOnly), slot(0, 0, InterfaceKind::Interface)]);
        assert_eq!(devices(&two), [gpus.clone(), (EFA.to_owned(), 1)]);
        let groups = ["sg-1".to_owned()];
        let launched = of(&two, &p5(), &[]).interfaces_in(&groups);
        assert_eq!(launched.iter().map(|one| (one.card, one.device)).collect::<Vec<_>>(), [(0, 0), (1, 0)]);
        assert!(launched.iter().all(|one| one.security_groups == groups && one.delete_on_termination));
        assert_eq!(devices(&ClassTemplate::default()), [gpus, (EFA.to_owned(), 32)]);
        let amd =
            crate::offering::Gpu { name: "m".to_owned(), manufacturer: "AMD".to_owned(), count: 4, memory_mib: 1 };
        let amd = InstanceTypeInfo { gpus: vec![amd], ..plain_type() };
        let devices = of(&ClassTemplate::default(), &amd, &[]).devices();
        assert_eq!(devices, [(AMD_GPU.into(), 4)]);
    }

    fn plain_type() -> InstanceTypeInfo {
        plain("m5.2xlarge", 8, 32, 4, 15)
    }

    #[test]
    fn ephemeral_storage_is_that_of_the_root_volume_or_of_the_local_disks() {
        let storage = |class: &ClassTemplate, info: &InstanceTypeInfo| {
            let new = of(class, info, &[]);
            (new.capacity.get(EPHEMERAL_STORAGE), new.node.allocatable.get(EPHEMERAL_STORAGE))
        };
        let silent = ClassTemplate::default();
        assert_eq!(storage(&silent, &p5()), (20 * GIB, 17 * GIB));
        let large = ClassTemplate { root_volume_gib: Some(500), ..silent.clone() };
        assert_eq!(storage(&large, &p5()), (500 * GIB, 449 * GIB));
        let raid = ClassTemplate { local_storage_raid0: true, ..large.clone() };
        assert_eq!(storage(&raid, &p5()), (30_400_000_000_000, 30_400_000_000_000 / 10 * 9 - GIB));
        let diskless = InstanceTypeInfo { local_storage_gb: 0, ..p5() };
        assert_eq!(storage(&raid, &diskless), storage(&large, &diskless));
        let tiny = ClassTemplate { root_volume_gib: Some(1), ..silent };
        assert_eq!(storage(&tiny, &p5()), (GIB, 0));
    }

    #[test]
    fn a_type_that_has_run_has_the_memory_it_turned_out_to_have_and_limits_count_the_hardware() {
        let info = plain("m5.2xlarge", 8, 32, 4, 15);
        let memory = |known: &[(&str, i64)]| {
            let memory = known.iter().map(|(name, bytes)| ((*name).to_owned(), *bytes)).collect();
            let new = of(&ClassTemplate { memory, ..ClassTemplate::default() }, &info, &[]);
            (new.node.allocatable.get(MEMORY), new.capacity.get(MEMORY))
        };
        let hardware = memory(&[]).1;
        let kept = (11 * 58 + 255 + 100) * 1024 * 1024;
        assert_eq!(memory(&[(&info.name, hardware - 1_000)]), (hardware - 1_000 - kept, hardware));
        assert_eq!(memory(&[("another", hardware - 1_000)]), memory(&[]));
        assert_eq!(memory(&[(&info.name, hardware / 2)]).0, hardware / 2 - kept);
        assert_eq!(memory(&[(&info.name, hardware / 2 - 1)]), memory(&[]), "no kernel takes half of it");
        assert_eq!(memory(&[(&info.name, hardware + 1)]).0, hardware - kept, "no more than EC2 advertises");
    }

    #[test]
    fn a_kubelet_that_takes_fewer_pods_keeps_less_memory_back() {
        let m5 = plain_type();
        let few = of(&ClassTemplate { max_pods: Some(10), ..ClassTemplate::default() }, &m5, &[]);
        let all = of(&ClassTemplate::default(), &m5, &[]);
        assert_eq!(few.node.allocatable.get(PODS), 10);
        assert_eq!(few.node.allocatable.get(MEMORY) - all.node.allocatable.get(MEMORY), 48 * 11 * 1024 * 1024);
        let per_core = of(&ClassTemplate { pods_per_core: Some(2), ..ClassTemplate::default() }, &m5, &[]);
        assert_eq!(per_core.node.allocatable.get(PODS), 16);
        let unlimited = of(&ClassTemplate { pods_per_core: Some(0), ..ClassTemplate::default() }, &m5, &[]);
        assert_eq!(unlimited.node.allocatable.get(PODS), 58);
    }

    #[test]
    fn a_node_with_prefixes_takes_more_pods_and_its_user_data_has_to_say_so() {
        let prefixes = || ClassTemplate { prefixes: true, ..ClassTemplate::default() };
        let found = |class: &ClassTemplate, info: &InstanceTypeInfo| {
            let new = of(class, info, &[]);
            assert_eq!(new.node.allocatable.get(PODS), new.capacity.get(PODS));
            (new.node.allocatable.get(PODS), new.max_pods)
        };
        assert_eq!(found(&ClassTemplate::default(), &plain_type()), (58, None));
        assert_eq!(found(&prefixes(), &plain_type()), (110, Some(110)));
        assert_eq!(found(&prefixes(), &p5()), (250, Some(250)));
        // What the class says counts, and is in the user data anyway.
        assert_eq!(found(&ClassTemplate { max_pods: Some(40), ..prefixes() }, &plain_type()), (40, None));
        // The kubelet takes the smaller one by itself.
        assert_eq!(found(&ClassTemplate { pods_per_core: Some(2), ..prefixes() }, &plain_type()), (16, Some(110)));
        let xen = InstanceTypeInfo { xen: true, ..plain_type() };
        assert_eq!(found(&prefixes(), &xen), (58, None));
    }

    #[test]
    fn exactly_the_daemon_sets_that_run_there_take_capacity() {
        let pod = |cpu: i64| Shape { requests: Resources::from_iter([(CPU, cpu), (PODS, 1)]), ..Shape::default() };
        let tolerates = |key: &str, value: &str| Toleration {
            key: key.into(),
            exists: value.is_empty(),
            value: value.into(),
            effect: None,
        };
        let here = |cpu| Shape { tolerations: vec![tolerates("team", "a")], ..pod(cpu) };
        let selects = |value: &str| BTreeMap::from([("disk".into(), value.into())]);
        let daemons = [
            Shape { one_per_node: true, ..here(1) },
            Shape { tolerations: vec![tolerates("", "")], ..pod(10) },
            Shape { node_selector: selects("fast"), ..here(100) },
            // None of these: another value is tolerated, none is, another disk is wanted, one node alone.
            Shape { tolerations: vec![tolerates("team", "b")], ..pod(1_000) },
            pod(10_000),
            Shape { node_selector: selects("slow"), ..here(100_000) },
            Shape { node_affinity: Some(Vec::new()), ..here(1_000_000) },
        ];
        let overhead = of(&ClassTemplate::default(), &p5(), &daemons).overhead;
        assert_eq!((overhead.requested.get(CPU), overhead.requested.get(PODS)), (111, 3));
        assert_eq!(overhead.own_shape_pods, 0);
    }

    #[test]
    fn capacity_counts_what_the_node_class_adds() {
        let capacity = of(&ClassTemplate::default(), &p5(), &[]).capacity;
        let amounts = [CPU, NVIDIA_GPU, EFA, PODS].map(|name| capacity.get(name));
        assert_eq!(amounts, [192_000, 8, 32, 51]);
    }
}
