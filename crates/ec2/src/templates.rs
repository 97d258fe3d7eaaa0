//! Launch templates.

use aws_sdk_ec2::operation::create_launch_template::builders::CreateLaunchTemplateInputBuilder;
use aws_sdk_ec2::operation::delete_launch_template::builders::DeleteLaunchTemplateInputBuilder;
use aws_sdk_ec2::operation::describe_launch_templates::builders::DescribeLaunchTemplatesInputBuilder;
use aws_sdk_ec2::types::{
    CapacityReservationPreference, LaunchTemplateBlockDeviceMappingRequest,
    LaunchTemplateCapacityReservationSpecificationRequest, LaunchTemplateEbsBlockDeviceRequest,
    LaunchTemplateHttpTokensState, LaunchTemplateIamInstanceProfileSpecificationRequest,
    LaunchTemplateInstanceMetadataEndpointState, LaunchTemplateInstanceMetadataOptionsRequest,
    LaunchTemplateInstanceMetadataProtocolIpv6, LaunchTemplateInstanceMetadataTagsState,
    LaunchTemplateInstanceNetworkInterfaceSpecificationRequest, LaunchTemplateTagSpecificationRequest,
    LaunchTemplatesMonitoringRequest, RequestLaunchTemplateData, ResourceType, ShutdownBehavior, VolumeType,
};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use muster_core::ec2::{
    BlockDevice, CallError, CapacityType, ErrorClass, LaunchTemplate, NetworkInterface, ResourceKind, Tags,
    TemplateSpec,
};

use crate::Client;
use crate::convert::{from_tags, present, signed, some, tag_filters, tag_specification, text, to_tags, unsigned_long};

const CREATE: &str = "CreateLaunchTemplate";
const DESCRIBE: &str = "DescribeLaunchTemplates";
const DELETE: &str = "DeleteLaunchTemplate";
/// Templates per page: the most EC2 gives.
const PAGE: i32 = 200;

impl Client {
    /// Creates the template, or finds it: its name is its content, so a taken name means *reuse*.
    pub async fn create_launch_template(&self, spec: &TemplateSpec) -> Result<LaunchTemplate, CallError> {
        let name = spec.name();
        let call = creation(spec)?.send_with(&self.calls);
        let error = match Box::pin(call).await.map_err(|error| self.failed(CREATE, error)) {
            Ok(output) => match output.launch_template() {
                Some(created) => return Ok(template(created)),
                None => CallError::refused_here(CREATE, "the answer names no template"),
            },
            Err(error) if error.kind == ErrorClass::AlreadyExists => error,
            Err(error) => return Err(error),
        };
        self.turns(DESCRIBE).further().next().await;
        let by_name = DescribeLaunchTemplatesInputBuilder::default().launch_template_names(&name);
        let found = Box::pin(by_name.send_with(&self.calls)).await.map_err(|error| self.failed(DESCRIBE, error))?;
        found.launch_templates().first().map(template).ok_or(error)
    }

    /// Templates that carry all of these tags, in order of name.
    pub async fn describe_launch_templates(&self, tags: &Tags) -> Result<Vec<LaunchTemplate>, CallError> {
        let mut templates = Vec::new();
        let (mut token, mut turns) = (None, self.turns(DESCRIBE));
        loop {
            turns.next().await;
            let page = DescribeLaunchTemplatesInputBuilder::default()
                .set_filters(some(tag_filters(tags)))
                .max_results(PAGE)
                .set_next_token(token.take());
            let call = page.send_with(&self.calls);
            let output = Box::pin(call).await.map_err(|error| self.failed(DESCRIBE, error))?;
            templates.extend(output.launch_templates().iter().map(template));
            token = present(output.next_token());
            if token.is_none() {
                break;
            }
        }
        templates.sort_by(|one, other| one.name.cmp(&other.name));
        Ok(templates)
    }

    /// Deletes a template by id; one that does not exist counts as deleted.
    pub async fn delete_launch_template(&self, id: &str) -> Result<(), CallError> {
        let call = DeleteLaunchTemplateInputBuilder::default().launch_template_id(id).send_with(&self.calls);
        match Box::pin(call).await.map_err(|error| self.failed(DELETE, error)) {
            Ok(_) => Ok(()),
            Err(error) if error.kind == ErrorClass::NotVisibleYet => Ok(()),
            Err(error) => Err(error),
        }
    }
}

fn creation(spec: &TemplateSpec) -> Result<CreateLaunchTemplateInputBuilder, CallError> {
    Ok(CreateLaunchTemplateInputBuilder::default()
        .launch_template_name(spec.name())
        .client_token(spec.token())
        .launch_template_data(data(spec)?)
        .set_tag_specifications(
            tag_specification(ResourceKind::LaunchTemplate, &spec.template_tags).map(|tags| vec![tags]),
        ))
}

fn data(spec: &TemplateSpec) -> Result<RequestLaunchTemplateData, CallError> {
    let interfaces: Vec<_> =
        spec.network_interfaces.iter().map(|one| interface(spec, one)).collect::<Result<_, _>>()?;
    let disks: Vec<_> = spec.block_devices.iter().map(disk).collect::<Result<_, _>>()?;
    let options = &spec.metadata;
    let metadata = LaunchTemplateInstanceMetadataOptionsRequest::builder()
        .http_endpoint(if options.enabled {
            LaunchTemplateInstanceMetadataEndpointState::Enabled
        } else {
            LaunchTemplateInstanceMetadataEndpointState::Disabled
        })
        .http_tokens(if options.tokens_required {
            LaunchTemplateHttpTokensState::Required
        } else {
            LaunchTemplateHttpTokensState::Optional
        })
        .http_put_response_hop_limit(i32::from(options.hop_limit))
        .set_http_protocol_ipv6(options.ipv6.then_some(LaunchTemplateInstanceMetadataProtocolIpv6::Enabled))
        // Keys with a slash, such as ours, could not be read there anyway, and EC2 would refuse them.
        .instance_metadata_tags(LaunchTemplateInstanceMetadataTagsState::Disabled)
        .build();
    let (reservations, shutdown) = by_capacity_type(spec.capacity_type);
    let profile = present(Some(&spec.instance_profile))
        .map(|name| LaunchTemplateIamInstanceProfileSpecificationRequest::builder().name(name).build());
    let monitoring =
        spec.detailed_monitoring.then(|| LaunchTemplatesMonitoringRequest::builder().enabled(true).build());
    let user_data = present(Some(&spec.user_data)).map(|plain| BASE64.encode(plain));
    Ok(RequestLaunchTemplateData::builder()
        .image_id(&spec.image_id)
        .metadata_options(metadata)
        .set_iam_instance_profile(profile)
        .set_monitoring(monitoring)
        .set_user_data(user_data)
        .set_network_interfaces(some(interfaces))
        .set_block_device_mappings(some(disks))
        .set_capacity_reservation_specification(reservations)
        .set_instance_initiated_shutdown_behavior(shutdown)
        .set_tag_specifications(some(resource_tags(spec.capacity_type, &spec.resource_tags)))
        .build())
}

/// Which reservations instances may run in, and what becomes of one that powers itself off.
///
/// A reserved launch names its reservation in the call. What else is launched takes no place in an open reservation that
/// was made for somebody else. A spot instance that powers itself off ends by itself, and whether a template for spot
/// instances may say so is not documented.
fn by_capacity_type(
    capacity_type: CapacityType,
) -> (Option<LaunchTemplateCapacityReservationSpecificationRequest>, Option<ShutdownBehavior>) {
    let none = LaunchTemplateCapacityReservationSpecificationRequest::builder()
        .capacity_reservation_preference(CapacityReservationPreference::None)
        .build();
    match capacity_type {
        CapacityType::OnDemand => (Some(none), Some(ShutdownBehavior::Terminate)),
        CapacityType::Spot => (Some(none), None),
        CapacityType::Reserved => (None, Some(ShutdownBehavior::Terminate)),
    }
}

/// What is launched from a template. A request for spot instances is tagged only where there is one: elsewhere EC2
/// refuses it.
fn resource_tags(capacity_type: CapacityType, tags: &Tags) -> Vec<LaunchTemplateTagSpecificationRequest> {
    if tags.is_empty() {
        return Vec::new();
    }
    let request = (capacity_type == CapacityType::Spot).then_some(ResourceKind::SpotRequest);
    [ResourceKind::Instance, ResourceKind::Volume, ResourceKind::NetworkInterface]
        .into_iter()
        .chain(request)
        .map(|kind| {
            LaunchTemplateTagSpecificationRequest::builder()
                .resource_type(ResourceType::from(kind.as_str()))
                .set_tags(Some(to_tags(tags)))
                .build()
        })
        .collect()
}

fn interface(
    spec: &TemplateSpec,
    interface: &NetworkInterface,
) -> Result<LaunchTemplateInstanceNetworkInterfaceSpecificationRequest, CallError> {
    let primary = (interface.card, interface.device) == (0, 0);
    let ipv6 = spec.primary_ipv6 && primary;
    Ok(LaunchTemplateInstanceNetworkInterfaceSpecificationRequest::builder()
        .network_card_index(signed(CREATE, "network card", interface.card)?)
        .device_index(signed(CREATE, "device", interface.device)?)
        .interface_type(interface.kind.as_str())
        .delete_on_termination(interface.delete_on_termination)
        .set_groups(some(interface.security_groups.clone()))
        .set_subnet_id(spec.subnet_id.clone())
        // EC2 gives a public address to the primary interface alone.
        .set_associate_public_ip_address(spec.public_address.filter(|_| primary))
        .set_ipv6_address_count(ipv6.then_some(1))
        // The node is registered with it: it is not to change.
        .set_primary_ipv6(ipv6.then_some(true))
        .build())
}

fn disk(device: &BlockDevice) -> Result<LaunchTemplateBlockDeviceMappingRequest, CallError> {
    let number = |what: &str, number: Option<u32>| number.map(|number| signed(CREATE, what, number)).transpose();
    let ebs = LaunchTemplateEbsBlockDeviceRequest::builder()
        .set_volume_size(number("volume size", device.size_gib)?)
        .set_iops(number("iops", device.iops)?)
        .set_throughput(number("throughput", device.throughput_mib)?)
        .set_volume_type(device.volume_type.as_deref().map(VolumeType::from))
        .set_kms_key_id(device.kms_key_id.clone())
        .set_snapshot_id(device.snapshot_id.clone())
        .set_volume_initialization_rate(number("volume initialization rate", device.initialization_rate_mib)?)
        .encrypted(device.encrypted)
        .delete_on_termination(device.delete_on_termination)
        .build();
    Ok(LaunchTemplateBlockDeviceMappingRequest::builder().device_name(&device.device_name).ebs(ebs).build())
}

fn template(template: &aws_sdk_ec2::types::LaunchTemplate) -> LaunchTemplate {
    LaunchTemplate {
        id: text(template.launch_template_id()),
        name: text(template.launch_template_name()),
        // A template without a version cannot exist; 1 is what a fresh one has.
        latest_version: unsigned_long(template.latest_version_number()).max(1),
        tags: from_tags(template.tags()),
    }
}

#[cfg(test)]
mod tests {
    use muster_core::ec2::{InterfaceKind, MetadataOptions};

    use super::*;

    fn spec() -> TemplateSpec {
        let nic = |card, device, kind| NetworkInterface {
            card,
            device,
            kind,
            security_groups: vec!["sg-1".to_owned()],
            delete_on_termination: true,
        };
        TemplateSpec {
            image_id: "ami-1".to_owned(),
            instance_profile: "nodes".to_owned(),
            network_interfaces: vec![nic(0, 0, InterfaceKind::Interface), nic(1, 0, InterfaceKind::EfaOnly)],
            subnet_id: None,
            public_address: None,
            primary_ipv6: false,
            metadata: MetadataOptions::default(),
            user_data: "hello".to_owned(),
            block_devices: vec![BlockDevice {
                device_name: "/dev/xvda".to_owned(),
                size_gib: Some(100),
                volume_type: Some("gp3".to_owned()),
                iops: None,
                throughput_mib: None,
                encrypted: true,
                kms_key_id: None,
                snapshot_id: None,
                initialization_rate_mib: None,
                delete_on_termination: true,
            }],
            detailed_monitoring: false,
            capacity_type: CapacityType::OnDemand,
            template_tags: Tags::from([("t".to_owned(), "1".to_owned())]),
            resource_tags: Tags::from([("r".to_owned(), "1".to_owned())]),
        }
    }

    #[test]
    fn a_template_carries_interfaces_user_data_and_closed_metadata() {
        let input = creation(&spec()).unwrap().build().unwrap();
        assert_eq!(input.launch_template_name(), Some(spec().name().as_str()));
        assert_eq!(input.client_token(), Some(spec().token().as_str()));
        let data = input.launch_template_data().unwrap();
        assert_eq!(data.user_data(), Some("aGVsbG8="));
        let metadata = data.metadata_options().unwrap();
        assert_eq!(metadata.http_tokens(), Some(&LaunchTemplateHttpTokensState::Required));
        assert_eq!(metadata.http_put_response_hop_limit(), Some(1));
        let nics = data.network_interfaces();
        assert_eq!(nics[1].interface_type(), Some("efa-only"));
        assert_eq!((nics[1].network_card_index(), nics[1].device_index()), (Some(1), Some(0)));
        assert_eq!(nics[0].groups(), ["sg-1"]);
        assert!(nics[0].subnet_id().is_none(), "the subnet is the override's");
        assert!(data.security_group_ids().is_empty(), "groups are in the interfaces");
        assert!(data.placement().is_none(), "the group is the override's");
        let kinds: Vec<_> =
            data.tag_specifications().iter().map(|tags| tags.resource_type().unwrap().as_str()).collect();
        assert_eq!(kinds, ["instance", "volume", "network-interface"]);
        assert_eq!(data.block_device_mappings()[0].ebs().unwrap().volume_size(), Some(100));
    }

    #[test]
    fn subnet_and_public_address_are_the_interfaces_own() {
        let run = TemplateSpec {
            subnet_id: Some("subnet-a".to_owned()),
            public_address: Some(false),
            metadata: MetadataOptions { enabled: true, tokens_required: false, hop_limit: 2, ipv6: true },
            ..spec()
        };
        let input = creation(&run).unwrap().build().unwrap();
        let data = input.launch_template_data().unwrap();
        let nics = data.network_interfaces();
        assert!(nics.iter().all(|nic| nic.subnet_id() == Some("subnet-a")));
        assert_eq!(nics[0].associate_public_ip_address(), Some(false));
        assert_eq!(nics[1].associate_public_ip_address(), None, "an efa-only interface has no address at all");
        let metadata = data.metadata_options().unwrap();
        assert_eq!(metadata.http_tokens(), Some(&LaunchTemplateHttpTokensState::Optional));
        assert_eq!(metadata.http_put_response_hop_limit(), Some(2));
        assert_eq!(metadata.http_protocol_ipv6(), Some(&LaunchTemplateInstanceMetadataProtocolIpv6::Enabled));
    }

    #[test]
    fn the_primary_interface_alone_gets_an_ipv6_address_and_only_where_nodes_need_one() {
        let addresses = |primary_ipv6| {
            let input = creation(&TemplateSpec { primary_ipv6, ..spec() }).unwrap().build().unwrap();
            let nics = input.launch_template_data().unwrap().network_interfaces().to_vec();
            nics.iter().map(|nic| (nic.ipv6_address_count(), nic.primary_ipv6())).collect::<Vec<_>>()
        };
        assert_eq!(addresses(true), [(Some(1), Some(true)), (None, None)]);
        assert_eq!(addresses(false), [(None, None), (None, None)]);
    }

    #[test]
    fn a_template_that_only_resolves_an_image_holds_nothing_else() {
        let bare = TemplateSpec {
            instance_profile: String::new(),
            network_interfaces: Vec::new(),
            user_data: String::new(),
            block_devices: Vec::new(),
            template_tags: Tags::new(),
            resource_tags: Tags::new(),
            ..spec()
        };
        let input = creation(&bare).unwrap().build().unwrap();
        let data = input.launch_template_data().unwrap();
        assert!(data.user_data().is_none() && data.iam_instance_profile().is_none());
        assert!(data.network_interfaces().is_empty() && data.tag_specifications().is_empty());
        assert!(input.tag_specifications().is_empty());
    }
}
