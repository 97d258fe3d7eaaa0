//! Launch templates as content.

use serde::{Deserialize, Serialize};

use super::Tags;
use super::interface::NetworkInterface;
use crate::model::digest::Fields;
use crate::model::launch::CapacityType;

/// Instance metadata. The default is IMDSv2 with hop limit 1: tokens are required, and a pod cannot reach the node's
/// role.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MetadataOptions {
    /// Whether it can be reached at all.
    pub enabled: bool,
    /// Whether a token is required.
    pub tokens_required: bool,
    /// Network hops a token may take.
    pub hop_limit: u8,
    /// Whether it is also reached over IPv6.
    pub ipv6: bool,
}

impl Default for MetadataOptions {
    fn default() -> Self {
        Self { enabled: true, tokens_required: true, hop_limit: 1, ipv6: false }
    }
}

/// Everything a launch template holds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TemplateSpec {
    /// AMI id.
    pub image_id: String,
    /// Name of the instance profile; empty for none.
    pub instance_profile: String,
    /// Interfaces; empty in a template made only to resolve an alias.
    pub network_interfaces: Vec<NetworkInterface>,
    /// Subnet of the interfaces. RunInstances takes it nowhere else once a template has interfaces; in a fleet it is the
    /// override's.
    pub subnet_id: Option<String>,
    /// Whether the primary interface gets a public address; `None` leaves it to the subnet.
    pub public_address: Option<bool>,
    /// Whether the primary interface gets an IPv6 address that stays: nodes of an IPv6 cluster need one.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub primary_ipv6: bool,
    /// Instance metadata.
    pub metadata: MetadataOptions,
    /// User data, not yet base64.
    pub user_data: String,
    /// Disks; empty for those of the image.
    pub block_devices: Vec<BlockDevice>,
    /// CloudWatch at one-minute resolution.
    pub detailed_monitoring: bool,
    /// The capacity type launched from it: what else it holds depends on it.
    pub capacity_type: CapacityType,
    /// Tags of the template itself.
    pub template_tags: Tags,
    /// Tags of instances, volumes, interfaces and requests for spot instances launched from it.
    pub resource_tags: Tags,
}

/// A disk.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BlockDevice {
    /// Device name, `/dev/xvda`.
    pub device_name: String,
    /// Size in GiB, unless the snapshot says it.
    pub size_gib: Option<u32>,
    /// `gp3`, `io2`, …; EC2's default if absent.
    pub volume_type: Option<String>,
    /// Provisioned operations per second.
    pub iops: Option<u32>,
    /// MiB per second.
    pub throughput_mib: Option<u32>,
    /// Whether it is encrypted.
    pub encrypted: bool,
    /// Key, if not the account's default.
    pub kms_key_id: Option<String>,
    /// Snapshot, `snap-…`.
    pub snapshot_id: Option<String>,
    /// MiB per second at which the snapshot's blocks are fetched.
    pub initialization_rate_mib: Option<u32>,
    /// Whether it goes with the instance.
    pub delete_on_termination: bool,
}

impl TemplateSpec {
    /// Digest of everything in the template: 52 characters of base32.
    #[must_use]
    pub fn content_hash(&self) -> String {
        let mut fields = Fields::new("muster template 3")
            .text(&self.image_id)
            .text(self.capacity_type.as_str())
            .text(&self.instance_profile)
            .text(&self.user_data)
            .number(u64::from(self.detailed_monitoring))
            .map(&self.template_tags)
            .map(&self.resource_tags)
            .optional(self.subnet_id.as_deref())
            .optional(self.public_address.map(|public| if public { "public" } else { "private" }))
            .number(u64::from(self.metadata.enabled))
            .number(u64::from(self.metadata.tokens_required))
            .number(u64::from(self.metadata.hop_limit))
            .number(u64::from(self.metadata.ipv6))
            .number(self.network_interfaces.len() as u64);
        for interface in &self.network_interfaces {
            fields = fields
                .number(u64::from(interface.card))
                .number(u64::from(interface.device))
                .text(interface.kind.as_str())
                .number(u64::from(interface.delete_on_termination))
                .texts(interface.security_groups.iter());
        }
        for device in &self.block_devices {
            let number = |value: Option<u32>| value.map(|value| value.to_string());
            fields = fields
                .text(&device.device_name)
                .optional(number(device.size_gib).as_deref())
                .optional(device.volume_type.as_deref())
                .optional(number(device.iops).as_deref())
                .optional(number(device.throughput_mib).as_deref())
                .number(u64::from(device.encrypted))
                .optional(device.kms_key_id.as_deref())
                .optional(device.snapshot_id.as_deref())
                .optional(number(device.initialization_rate_mib).as_deref())
                .number(u64::from(device.delete_on_termination));
        }
        // What came later is hashed only where it is used: the names of all other templates stay.
        if self.primary_ipv6 {
            fields = fields.text("primary ipv6");
        }
        fields.finish()
    }

    /// Name of the template: its content. A name that is taken therefore means *reuse*.
    #[must_use]
    pub fn name(&self) -> String {
        format!("muster-{}", self.content_hash())
    }

    /// Client token of the creation.
    #[must_use]
    pub fn token(&self) -> String {
        self.content_hash()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ec2::interface::InterfaceKind;

    fn spec() -> TemplateSpec {
        TemplateSpec {
            image_id: "ami-1".to_owned(),
            instance_profile: "nodes".to_owned(),
            network_interfaces: vec![NetworkInterface {
                card: 0,
                device: 0,
                kind: InterfaceKind::Interface,
                security_groups: vec!["sg-1".to_owned()],
                delete_on_termination: true,
            }],
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
            template_tags: Tags::from([("a".to_owned(), "b".to_owned())]),
            resource_tags: Tags::from([("a".to_owned(), "b".to_owned())]),
        }
    }

    #[test]
    fn the_name_of_a_known_template_is_pinned() {
        assert_eq!(spec().content_hash(), "qkpzhjzhvncwew3er7cylpryru3fvlf2j35adoaqudcb2zlepima");
        let stored = serde_json::to_value(spec()).unwrap();
        assert!(stored.get("primaryIpv6").is_none(), "what nobody uses is not written");
        assert_eq!(serde_json::from_value::<TemplateSpec>(stored).unwrap(), spec());
    }

    #[test]
    fn equal_content_has_one_name_and_any_change_another() {
        let name = spec().name();
        assert_eq!(name, spec().name());
        // EC2 allows 3 to 128 characters of letters, digits and ( ) . - / _
        assert_eq!(name.len(), 59);
        let mut changed: Vec<TemplateSpec> = std::iter::repeat_n(spec(), 15).collect();
        changed[0].image_id = "ami-2".to_owned();
        changed[1].instance_profile = "other".to_owned();
        changed[2].network_interfaces[0].kind = InterfaceKind::Efa;
        changed[3].network_interfaces[0].security_groups.push("sg-2".to_owned());
        changed[4].user_data.push('!');
        changed[5].block_devices[0].size_gib = None;
        changed[6].detailed_monitoring = true;
        changed[7].template_tags.clear();
        changed[8].resource_tags.clear();
        changed[9].subnet_id = Some("subnet-1".to_owned());
        changed[10].public_address = Some(false);
        changed[11].metadata.hop_limit = 2;
        changed[12].block_devices[0].initialization_rate_mib = Some(300);
        changed[13].capacity_type = CapacityType::Spot;
        changed[14].primary_ipv6 = true;
        let names: std::collections::BTreeSet<_> = changed.iter().map(TemplateSpec::name).chain([name]).collect();
        assert_eq!(names.len(), 16);
    }
}
