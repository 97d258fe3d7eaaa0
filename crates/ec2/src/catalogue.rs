//! What the Region offers: types, where they are sold, and zones.

use std::collections::BTreeSet;

use aws_sdk_ec2::operation::describe_instance_type_offerings::builders::DescribeInstanceTypeOfferingsInputBuilder;
use aws_sdk_ec2::operation::describe_instance_types::builders::DescribeInstanceTypesInputBuilder;
use aws_sdk_ec2::types::{
    InstanceType, InstanceTypeHypervisor, InstanceTypeInfo as SdkType, LocationType, NetworkCardInfo,
    PlacementGroupStrategy, UsageClassType,
};
use muster_core::ec2::{CallError, InterfaceKind, Offering};
use muster_core::offering::{Gpu, InstanceTypeInfo, NetworkCard, UsageClass};

use crate::Client;
use crate::convert::{filter, present, text, unsigned, unsigned_long};

const TYPES: &str = "DescribeInstanceTypes";
const OFFERINGS: &str = "DescribeInstanceTypeOfferings";
/// Types per page or call: the most EC2 takes.
const TYPES_PAGE: i32 = 100;
const TYPES_IDS: usize = 100;
const OFFERINGS_PAGE: i32 = 1000;

impl Client {
    /// Describes instance types, in order of name; an empty list of names means all of the Region. A name EC2 does not
    /// know fails the call.
    pub async fn describe_instance_types(&self, names: &[String]) -> Result<Vec<InstanceTypeInfo>, CallError> {
        let named = |chunk: &[String]| chunk.iter().map(|name| InstanceType::from(name.as_str())).collect();
        let requests: Vec<_> = if names.is_empty() {
            vec![DescribeInstanceTypesInputBuilder::default().max_results(TYPES_PAGE)]
        } else {
            names
                .chunks(TYPES_IDS)
                .map(|chunk| DescribeInstanceTypesInputBuilder::default().set_instance_types(Some(named(chunk))))
                .collect()
        };
        let mut types = Vec::new();
        let mut turns = self.turns(TYPES);
        for request in requests {
            let mut token = None;
            loop {
                turns.next().await;
                let page = request.clone().set_next_token(token.take());
                let call = page.send_with(&self.calls);
                let output = Box::pin(call).await.map_err(|error| self.failed(TYPES, error))?;
                types.extend(output.instance_types().iter().map(instance_type));
                token = present(output.next_token());
                if token.is_none() {
                    break;
                }
            }
        }
        types.sort_by(|one, other| one.name.cmp(&other.name));
        types.dedup_by(|one, other| one.name == other.name);
        Ok(types)
    }

    /// Types by zone; an empty list of zones means all of the Region.
    pub async fn describe_offerings(&self, zones: &[String]) -> Result<BTreeSet<Offering>, CallError> {
        let filters = (!zones.is_empty()).then(|| vec![filter("location", zones.iter().cloned())]);
        let mut offerings = BTreeSet::new();
        let (mut token, mut turns) = (None, self.turns(OFFERINGS));
        loop {
            turns.next().await;
            let page = DescribeInstanceTypeOfferingsInputBuilder::default()
                .location_type(LocationType::AvailabilityZone)
                .set_filters(filters.clone())
                .max_results(OFFERINGS_PAGE)
                .set_next_token(token.take());
            let call = page.send_with(&self.calls);
            let output = Box::pin(call).await.map_err(|error| self.failed(OFFERINGS, error))?;
            offerings.extend(output.instance_type_offerings().iter().map(|offering| Offering {
                instance_type: text(offering.instance_type().map(InstanceType::as_str)),
                zone: text(offering.location()),
            }));
            token = present(output.next_token());
            if token.is_none() {
                return Ok(offerings);
            }
        }
    }
}

fn instance_type(info: &SdkType) -> InstanceTypeInfo {
    let network = info.network_info();
    let mut network_cards: Vec<_> =
        network.map(|network| network.network_cards()).unwrap_or_default().iter().map(card).collect();
    network_cards.sort_by_key(|card| card.index);
    let gpus = info.gpu_info().map(|gpus| gpus.gpus()).unwrap_or_default();
    let neurons = info.neuron_info().map(|neuron| neuron.neuron_devices()).unwrap_or_default();
    let strategies = info.placement_group_info().map(|group| group.supported_strategies()).unwrap_or_default();
    let architectures = info.processor_info().map(|processor| processor.supported_architectures()).unwrap_or_default();
    InstanceTypeInfo {
        name: text(info.instance_type().map(InstanceType::as_str)),
        vcpu: unsigned(info.v_cpu_info().and_then(|vcpu| vcpu.default_v_cpus())),
        memory_mib: unsigned_long(info.memory_info().and_then(|memory| memory.size_in_mib())),
        gpus: gpus
            .iter()
            .map(|gpu| Gpu {
                name: text(gpu.name()),
                manufacturer: text(gpu.manufacturer()),
                count: unsigned(gpu.count()),
                memory_mib: u64::from(unsigned(gpu.memory_info().and_then(|memory| memory.size_in_mib()))),
            })
            .collect(),
        neuron_devices: neurons.iter().map(|device| unsigned(device.count())).fold(0, u32::saturating_add),
        efa_max: unsigned(network.and_then(|network| network.efa_info()).and_then(|efa| efa.maximum_efa_interfaces())),
        network_cards,
        ipv4_per_interface: unsigned(network.and_then(|network| network.ipv4_addresses_per_interface())),
        supports_cluster_group: strategies.contains(&PlacementGroupStrategy::Cluster),
        usage_classes: info.supported_usage_classes().iter().filter_map(usage_class).collect(),
        architectures: architectures.iter().map(|architecture| architecture.as_str().to_owned()).collect(),
        local_storage_gb: unsigned_long(info.instance_storage_info().and_then(|storage| storage.total_size_in_gb())),
        // Machines of metal have no hypervisor, and count as Nitro.
        xen: info.hypervisor() == Some(&InstanceTypeHypervisor::Xen),
    }
}

fn card(card: &NetworkCardInfo) -> NetworkCard {
    NetworkCard {
        index: unsigned(card.network_card_index()),
        kinds: card.interface_types().iter().filter_map(|kind| InterfaceKind::parse(kind.as_str())).collect(),
        max_interfaces: unsigned(card.maximum_network_interfaces()),
    }
}

fn usage_class(class: &UsageClassType) -> Option<UsageClass> {
    match class {
        UsageClassType::OnDemand => Some(UsageClass::OnDemand),
        UsageClassType::Spot => Some(UsageClass::Spot),
        UsageClassType::CapacityBlock => Some(UsageClass::CapacityBlock),
        // The SDK's enum is non-exhaustive; a capacity type Muster does not know cannot be provisioned on.
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use aws_sdk_ec2::types::{
        EfaInfo, GpuDeviceInfo, GpuDeviceMemoryInfo, GpuInfo, MemoryInfo, NetworkCardInterfaceType, NetworkInfo,
        PlacementGroupInfo, VCpuInfo,
    };

    use super::*;

    #[test]
    fn a_type_is_read_with_cards_gpus_and_capacity_types() {
        let card = |index, kinds: &[NetworkCardInterfaceType]| {
            NetworkCardInfo::builder()
                .network_card_index(index)
                .maximum_network_interfaces(2)
                .set_interface_types(Some(kinds.to_vec()))
                .build()
        };
        use NetworkCardInterfaceType::{Efa, EfaOnly, Interface};
        let network = NetworkInfo::builder()
            .network_cards(card(1, &[Interface, Efa, EfaOnly]))
            .network_cards(card(0, &[Interface]))
            .efa_info(EfaInfo::builder().maximum_efa_interfaces(1).build())
            .ipv4_addresses_per_interface(50)
            .build();
        let gpu = GpuDeviceInfo::builder()
            .name("B300")
            .manufacturer("NVIDIA")
            .count(8)
            .memory_info(GpuDeviceMemoryInfo::builder().size_in_mib(275_040).build())
            .build();
        let info = instance_type(
            &SdkType::builder()
                .instance_type(InstanceType::from("p6-b300.48xlarge"))
                .v_cpu_info(VCpuInfo::builder().default_v_cpus(192).build())
                .memory_info(MemoryInfo::builder().size_in_mib(4_194_304).build())
                .gpu_info(GpuInfo::builder().gpus(gpu).build())
                .network_info(network)
                .placement_group_info(
                    PlacementGroupInfo::builder().supported_strategies(PlacementGroupStrategy::Cluster).build(),
                )
                .supported_usage_classes(UsageClassType::OnDemand)
                .supported_usage_classes(UsageClassType::from("tomorrow"))
                .build(),
        );
        assert_eq!((info.name.as_str(), info.vcpu, info.memory_mib), ("p6-b300.48xlarge", 192, 4_194_304));
        assert_eq!((info.gpus[0].count, info.gpus[0].memory_mib), (8, 275_040));
        assert_eq!((info.efa_max, info.ipv4_per_interface), (1, 50));
        assert_eq!(info.network_cards[0].kinds, [InterfaceKind::Interface]);
        assert_eq!(info.network_cards[1].kinds.len(), 3);
        assert!(info.supports_cluster_group);
        assert_eq!(info.usage_classes, [UsageClass::OnDemand]);
    }

    #[test]
    fn a_type_about_which_ec2_says_nothing_offers_nothing() {
        let info = instance_type(&SdkType::builder().build());
        assert_eq!((info.vcpu, info.efa_max, info.supports_cluster_group), (0, 0, false));
    }

    #[test]
    fn what_runs_on_xen_is_known_and_what_has_no_hypervisor_does_not() {
        let on = |hypervisor| instance_type(&SdkType::builder().set_hypervisor(hypervisor).build()).xen;
        assert!(on(Some(InstanceTypeHypervisor::Xen)));
        assert!(!on(Some(InstanceTypeHypervisor::Nitro)) && !on(None));
    }
}
