//! DescribeSubnets, DescribeSecurityGroups, DescribeAvailabilityZones, DescribeImages.

use std::collections::BTreeMap;

use crate::fixtures::published_image;
use crate::operations::filters::{Filters, page};
use crate::operations::{Call, Reply};
use crate::protocol::error::ApiError;
use crate::protocol::xml::Xml;
use crate::state::World;

pub(super) fn subnets(world: &mut World, call: &Call<'_>) -> Result<Reply, ApiError> {
    let known = [
        "availability-zone",
        "availability-zone-id",
        "default-for-az",
        "map-public-ip-on-launch",
        "state",
        "subnet-id",
        "vpc-id",
    ];
    let filters = Filters::parse(call.form, &known)?;
    let ids = call.form.list("SubnetId");
    for id in &ids {
        super::named::find_subnet(world, id)?;
    }
    let vpc = world.scenario.vpc.as_str();
    let found: Vec<_> = world
        .subnets
        .values()
        .filter(|s| ids.is_empty() || ids.contains(&s.id))
        .filter(|s| {
            filters.pass(&s.tags, |filter| match filter {
                "availability-zone" => Some(&s.zone),
                "availability-zone-id" => Some(&s.zone_id),
                "default-for-az" => Some(if s.default_for_zone { "true" } else { "false" }),
                // No subnet of a scenario gives its machines a public address.
                "map-public-ip-on-launch" => Some("false"),
                "state" => Some("available"),
                "subnet-id" => Some(&s.id),
                "vpc-id" => Some(vpc),
                _ => None,
            })
        })
        .collect();
    let (found, next) = page(call.form, found, 5..=1000, None)?;
    let mut xml = Xml::new();
    xml.list("subnetSet", found, |xml, s| {
        xml.text("subnetId", &s.id);
        xml.text("subnetArn", &world.arn("subnet", &s.id));
        xml.text("state", "available");
        xml.text("vpcId", vpc);
        xml.text("ownerId", &world.scenario.account);
        xml.text("cidrBlock", &s.cidr);
        xml.number("availableIpAddressCount", s.available());
        xml.text("availabilityZone", &s.zone);
        xml.text("availabilityZoneId", &s.zone_id);
        xml.flag("defaultForAz", s.default_for_zone);
        xml.flag("mapPublicIpOnLaunch", false);
        if let Some(cidr) = &s.ipv6_cidr {
            xml.list("ipv6CidrBlockAssociationSet", [cidr], |xml, cidr| {
                xml.text("associationId", &s.id.replacen("subnet-", "subnet-cidr-assoc-", 1));
                xml.text("ipv6CidrBlock", cidr);
                xml.node("ipv6CidrBlockState", |xml| xml.text("state", "associated"));
            });
        }
        xml.tags(&s.tags);
    });
    xml.optional("nextToken", next.as_deref());
    Ok(Reply::of(xml))
}

pub(super) fn security_groups(world: &mut World, call: &Call<'_>) -> Result<Reply, ApiError> {
    let filters = Filters::parse(call.form, &["group-id", "group-name", "vpc-id"])?;
    let ids = call.form.list("GroupId");
    super::create_fleet::check_security_groups(world, &ids)?;
    let vpc = world.scenario.vpc.as_str();
    let found: Vec<_> = world
        .scenario
        .security_groups
        .iter()
        .filter(|g| ids.is_empty() || ids.contains(&g.id))
        .filter(|g| {
            filters.pass(&g.tags, |filter| match filter {
                "group-id" => Some(&g.id),
                "group-name" => Some(&g.name),
                "vpc-id" => Some(vpc),
                _ => None,
            })
        })
        .collect();
    let (found, next) = page(call.form, found, 5..=1000, None)?;
    let mut xml = Xml::new();
    xml.list("securityGroupInfo", found, |xml, g| {
        // All traffic from and to itself, as EFA needs it.
        let itself = |xml: &mut Xml| {
            xml.text("ipProtocol", "-1");
            xml.list("groups", [&g.id], |xml, id| {
                xml.text("groupId", id);
                xml.text("userId", &world.scenario.account);
            });
        };
        xml.text("groupId", &g.id);
        xml.text("groupName", &g.name);
        xml.text("groupDescription", &g.name);
        xml.text("ownerId", &world.scenario.account);
        xml.text("vpcId", vpc);
        let rules = || (!g.no_self_reference).then_some(());
        xml.list("ipPermissions", rules(), |xml, ()| itself(xml));
        xml.list("ipPermissionsEgress", rules(), |xml, ()| itself(xml));
        xml.tags(&g.tags);
    });
    xml.optional("nextToken", next.as_deref());
    Ok(Reply::of(xml))
}

pub(super) fn zones(world: &mut World, call: &Call<'_>) -> Result<Reply, ApiError> {
    let known = ["zone-name", "zone-id", "state", "region-name", "zone-type"];
    let filters = Filters::parse(call.form, &known)?;
    let (names, ids) = (call.form.list("ZoneName"), call.form.list("ZoneId"));
    for name in &names {
        if !world.scenario.zones.iter().any(|z| z.name == *name) {
            return Err(ApiError::value("availabilityZone", name));
        }
    }
    let region = world.scenario.region.as_str();
    let none = BTreeMap::new();
    let found = world.scenario.zones.iter().filter(|z| {
        (names.is_empty() || names.contains(&z.name))
            && (ids.is_empty() || ids.contains(&z.zone_id))
            && filters.pass(&none, |filter| match filter {
                "zone-name" => Some(&z.name),
                "zone-id" => Some(&z.zone_id),
                "state" => Some("available"),
                "region-name" => Some(region),
                "zone-type" => Some("availability-zone"),
                _ => None,
            })
    });
    let mut xml = Xml::new();
    xml.list("availabilityZoneInfo", found, |xml, z| {
        xml.text("zoneName", &z.name);
        xml.text("zoneId", &z.zone_id);
        xml.text("zoneState", "available");
        xml.text("regionName", region);
        xml.text("groupName", region);
        xml.text("networkBorderGroup", region);
        xml.text("zoneType", "availability-zone");
        xml.text("optInStatus", "opt-in-not-required");
        xml.list("messageSet", std::iter::empty::<()>(), |_, ()| {});
    });
    Ok(Reply::of(xml))
}

pub(super) fn images(world: &mut World, call: &Call<'_>) -> Result<Reply, ApiError> {
    let filters = Filters::parse(call.form, &["image-id", "name", "state", "architecture"])?;
    let ids = call.form.list("ImageId");
    let mut all: BTreeMap<String, String> =
        world.scenario.images.iter().map(|i| (i.id.clone(), i.name.clone())).collect();
    for id in &world.resolved_images {
        all.entry(id.clone()).or_insert_with(|| format!("eks-node-{id}"));
    }
    let in_templates = world
        .templates
        .values()
        .filter_map(|t| t.data.get("ImageId").and_then(|i| i.strip_prefix("resolve:ssm:")).and_then(published_image))
        .map(|(id, _)| id);
    for id in in_templates {
        all.entry(id.clone()).or_insert_with(|| format!("eks-node-{id}"));
    }
    if let Some(id) = ids.iter().find(|id| !all.contains_key(*id)) {
        return Err(ApiError::client("InvalidAMIID.NotFound", format!("The image id '[{id}]' does not exist")));
    }
    let none = BTreeMap::new();
    let found: Vec<(String, String)> = all
        .into_iter()
        .filter(|(id, _)| ids.is_empty() || ids.contains(id))
        .filter(|(id, name)| {
            filters.pass(&none, |filter| match filter {
                "image-id" => Some(id),
                "name" => Some(name),
                "state" => Some("available"),
                "architecture" => Some("x86_64"),
                _ => None,
            })
        })
        .collect();
    let (found, next) = page(call.form, found, 1..=1000, None)?;
    let mut xml = Xml::new();
    xml.list("imagesSet", found, |xml, (id, name)| {
        xml.text("imageId", &id);
        xml.text("name", &name);
        xml.text("imageState", "available");
        xml.text("architecture", "x86_64");
        xml.text("imageOwnerId", "602401143452");
        xml.text("imageType", "machine");
        xml.text("rootDeviceType", "ebs");
        xml.text("rootDeviceName", "/dev/xvda");
        xml.text("virtualizationType", "hvm");
        xml.text("hypervisor", "xen");
        xml.flag("isPublic", true);
    });
    xml.optional("nextToken", next.as_deref());
    Ok(Reply::of(xml))
}
