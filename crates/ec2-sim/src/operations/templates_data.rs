//! `launchTemplateData` of an answer, from the parameters it came as.

use crate::protocol::form::Form;
use crate::protocol::xml::Xml;

/// Writes the members this simulator's clients use; the rest of a template is kept, not shown.
pub(super) fn write(xml: &mut Xml, data: &Form) {
    xml.optional("imageId", data.get("ImageId"));
    xml.optional("instanceType", data.get("InstanceType"));
    xml.optional("keyName", data.get("KeyName"));
    xml.optional("userData", data.get("UserData"));
    if data.has("IamInstanceProfile") {
        xml.node("iamInstanceProfile", |xml| {
            xml.optional("arn", data.get("IamInstanceProfile.Arn"));
            xml.optional("name", data.get("IamInstanceProfile.Name"));
        });
    }
    if data.has("BlockDeviceMapping") {
        xml.list("blockDeviceMappingSet", data.structs("BlockDeviceMapping"), |xml, device| {
            xml.optional("deviceName", device.get("DeviceName"));
            if device.has("Ebs") {
                xml.node("ebs", |xml| {
                    xml.optional("deleteOnTermination", device.get("Ebs.DeleteOnTermination"));
                    xml.optional("encrypted", device.get("Ebs.Encrypted"));
                    xml.optional("iops", device.get("Ebs.Iops"));
                    xml.optional("kmsKeyId", device.get("Ebs.KmsKeyId"));
                    xml.optional("snapshotId", device.get("Ebs.SnapshotId"));
                    xml.optional("throughput", device.get("Ebs.Throughput"));
                    xml.optional("volumeSize", device.get("Ebs.VolumeSize"));
                    xml.optional("volumeType", device.get("Ebs.VolumeType"));
                });
            }
        });
    }
    if data.has("NetworkInterface") {
        xml.list("networkInterfaceSet", data.structs("NetworkInterface"), |xml, interface| {
            xml.optional("associatePublicIpAddress", interface.get("AssociatePublicIpAddress"));
            xml.optional("deleteOnTermination", interface.get("DeleteOnTermination"));
            xml.optional("description", interface.get("Description"));
            xml.optional("deviceIndex", interface.get("DeviceIndex"));
            let groups = interface.list("SecurityGroupId");
            if !groups.is_empty() {
                xml.node("groupSet", |xml| {
                    for group in &groups {
                        xml.text("groupId", group);
                    }
                });
            }
            xml.optional("interfaceType", interface.get("InterfaceType"));
            xml.optional("ipv6AddressCount", interface.get("Ipv6AddressCount"));
            xml.optional("networkCardIndex", interface.get("NetworkCardIndex"));
            xml.optional("primaryIpv6", interface.get("PrimaryIpv6"));
            xml.optional("subnetId", interface.get("SubnetId"));
        });
    }
    if data.has("SecurityGroupId") {
        let groups = data.list("SecurityGroupId");
        xml.values("securityGroupIdSet", groups.iter().map(String::as_str));
    }
    if data.has("Placement") {
        xml.node("placement", |xml| {
            xml.optional("availabilityZone", data.get("Placement.AvailabilityZone"));
            xml.optional("groupName", data.get("Placement.GroupName"));
            xml.optional("groupId", data.get("Placement.GroupId"));
            xml.optional("tenancy", data.get("Placement.Tenancy"));
        });
    }
    if data.has("MetadataOptions") {
        xml.node("metadataOptions", |xml| {
            xml.optional("httpTokens", data.get("MetadataOptions.HttpTokens"));
            xml.optional("httpPutResponseHopLimit", data.get("MetadataOptions.HttpPutResponseHopLimit"));
            xml.optional("httpEndpoint", data.get("MetadataOptions.HttpEndpoint"));
            xml.optional("httpProtocolIpv6", data.get("MetadataOptions.HttpProtocolIpv6"));
            xml.optional("instanceMetadataTags", data.get("MetadataOptions.InstanceMetadataTags"));
        });
    }
    if data.has("InstanceMarketOptions") {
        xml.node("instanceMarketOptions", |xml| {
            xml.optional("marketType", data.get("InstanceMarketOptions.MarketType"));
        });
    }
    if data.has("CapacityReservationSpecification") {
        let stated = data.sub("CapacityReservationSpecification");
        xml.node("capacityReservationSpecification", |xml| {
            xml.optional("capacityReservationPreference", stated.get("CapacityReservationPreference"));
            if let Some(id) = stated.get("CapacityReservationTarget.CapacityReservationId") {
                xml.node("capacityReservationTarget", |xml| xml.text("capacityReservationId", id));
            }
        });
    }
    if data.has("TagSpecification") {
        xml.list("tagSpecificationSet", data.structs("TagSpecification"), |xml, spec| {
            xml.optional("resourceType", spec.get("ResourceType"));
            xml.tags(&spec.tags());
        });
    }
}
