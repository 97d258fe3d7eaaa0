//! STS GetCallerIdentity; EKS DescribeCluster, DescribeAccessEntry, DescribeAddon and CreateAddon; IAM GetInstanceProfile.

use serde_json::json;

use crate::operations::{Call, Reply};
use crate::protocol::error::ApiError;
use crate::protocol::xml::Xml;
use crate::scenario::ClusterSpec;
use crate::state::World;

pub(super) fn caller(world: &mut World, _: &Call<'_>) -> Result<Reply, ApiError> {
    let mut xml = Xml::new();
    xml.text("UserId", "AROAMUSTERSIMULATED00:simulated");
    xml.text("Account", &world.scenario.account);
    xml.text("Arn", &world.creator());
    Ok(Reply::of(xml))
}

fn named<'a>(world: &'a World, name: &str) -> Result<&'a ClusterSpec, ApiError> {
    world
        .scenario
        .clusters
        .iter()
        .find(|cluster| cluster.name == name)
        .ok_or_else(|| ApiError::new(404, "ResourceNotFoundException", format!("No cluster found for name: {name}.")))
}

pub(super) fn cluster(world: &mut World, call: &Call<'_>) -> Result<Reply, ApiError> {
    let cluster = named(world, call.form.required("name")?)?;
    let scenario = &world.scenario;
    let subnets: Vec<&String> = world.subnets.keys().collect();
    let network = if cluster.service_cidr.contains(':') {
        json!({"serviceIpv6Cidr": cluster.service_cidr, "ipFamily": "ipv6"})
    } else {
        json!({"serviceIpv4Cidr": cluster.service_cidr, "ipFamily": "ipv4"})
    };
    Ok(Reply::json(json!({"cluster": {
        "name": cluster.name,
        "arn": format!("arn:aws:eks:{}:{}:cluster/{}", scenario.region, scenario.account, cluster.name),
        "createdAt": world.origin.as_second(),
        "version": cluster.version,
        "endpoint": cluster.endpoint,
        "roleArn": format!("arn:aws:iam::{}:role/{}", scenario.account, cluster.name),
        "resourcesVpcConfig": {
            "subnetIds": subnets,
            "clusterSecurityGroupId": scenario.security_groups.first().map(|group| &group.id),
            "vpcId": cluster.vpc.as_ref().unwrap_or(&scenario.vpc),
        },
        "accessConfig": {"authenticationMode": cluster.authentication_mode},
        "kubernetesNetworkConfig": network,
        "status": "ACTIVE",
        "certificateAuthority": {"data": cluster.certificate_authority},
        "platformVersion": "eks.1",
        "tags": {},
    }})))
}

fn no_addon(name: &str) -> ApiError {
    ApiError::new(404, "ResourceNotFoundException", format!("No addon: {name} found in cluster"))
}

fn shown(world: &World, cluster: &str, name: &str, status: &str) -> Reply {
    let (scenario, created) = (&world.scenario, world.origin.as_second());
    let arn = format!(
        "arn:aws:eks:{}:{}:addon/{cluster}/{name}/00000000-0000-0000-0000-000000000002",
        scenario.region, scenario.account
    );
    Reply::json(json!({"addon": {
        "addonName": name,
        "clusterName": cluster,
        "status": status,
        "addonVersion": "v1.0.0-eksbuild.1",
        "health": {"issues": []},
        "addonArn": arn,
        "createdAt": created,
        "modifiedAt": created,
        "tags": {},
    }}))
}

/// Source: DescribeAddon in the EKS API reference.
pub(super) fn addon(world: &mut World, call: &Call<'_>) -> Result<Reply, ApiError> {
    let (cluster, name) = (call.form.required("name")?, call.form.required("addonName")?);
    if !named(world, cluster)?.addons.contains(name) {
        return Err(no_addon(name));
    }
    Ok(shown(world, cluster, name, "ACTIVE"))
}

/// Source: CreateAddon in the EKS API reference. What it creates is active from then on.
pub(super) fn create_addon(world: &mut World, call: &Call<'_>) -> Result<Reply, ApiError> {
    let (cluster, name) = (call.form.required("name")?, call.form.required("addonName")?);
    named(world, cluster)?;
    let mut clusters = world.scenario.clusters.iter_mut();
    let created = clusters.find(|one| one.name == cluster).is_some_and(|one| one.addons.insert(name.to_owned()));
    if !created {
        return Err(ApiError::new(409, "ResourceInUseException", "Addon already exists."));
    }
    Ok(shown(world, cluster, name, "CREATING"))
}

/// Source: DescribeAccessEntry in the EKS API reference, and the user guide on authentication modes.
pub(super) fn access_entry(world: &mut World, call: &Call<'_>) -> Result<Reply, ApiError> {
    let name = call.form.required("name")?;
    let principal = call.form.required("principalArn")?;
    let cluster = named(world, name)?;
    if cluster.authentication_mode == "CONFIG_MAP" {
        let modes = "The cluster's authentication mode must be set to one of [API, API_AND_CONFIG_MAP] to perform this operation.";
        return Err(ApiError::new(400, "InvalidRequestException", modes));
    }
    let role = principal.rsplit('/').next().unwrap_or(principal);
    let kind = match &cluster.access_entries {
        None => Some("EC2_LINUX"),
        Some(entries) => entries.get(role).map(String::as_str),
    };
    let Some(kind) = kind else {
        let text = format!("The specified principalArn could not be found: {principal}.");
        return Err(ApiError::new(404, "ResourceNotFoundException", text));
    };
    let scenario = &world.scenario;
    let arn = format!(
        "arn:aws:eks:{}:{}:access-entry/{name}/role/{}/{role}/00000000-0000-0000-0000-000000000001",
        scenario.region, scenario.account, scenario.account
    );
    Ok(Reply::json(json!({"accessEntry": {
        "clusterName": name,
        "principalArn": principal,
        "kubernetesGroups": if kind == "STANDARD" { vec![] } else { vec!["system:nodes"] },
        "accessEntryArn": arn,
        "createdAt": world.origin.as_second(),
        "modifiedAt": world.origin.as_second(),
        "tags": {},
        "username": if kind == "STANDARD" { principal } else { "system:node:{{EC2PrivateDNSName}}" },
        "type": kind,
    }})))
}

pub(super) fn instance_profile(world: &mut World, call: &Call<'_>) -> Result<Reply, ApiError> {
    let name = call.form.required("InstanceProfileName")?;
    let scenario = &world.scenario;
    if !(scenario.instance_profiles.is_empty() || scenario.instance_profiles.iter().any(|p| p == name)) {
        return Err(ApiError::new(404, "NoSuchEntity", format!("Instance Profile {name} cannot be found.")));
    }
    let mut xml = Xml::new();
    xml.node("InstanceProfile", |xml| {
        xml.text("Path", "/");
        xml.text("InstanceProfileName", name);
        xml.text("InstanceProfileId", "AIPAMUSTERSIMULATED00");
        xml.text("Arn", &format!("arn:aws:iam::{}:instance-profile/{name}", scenario.account));
        xml.time("CreateDate", world.origin);
        xml.node("Roles", |xml| {
            xml.node("member", |xml| {
                xml.text("Path", "/");
                xml.text("RoleName", name);
                xml.text("RoleId", "AROAMUSTERSIMULATED01");
                xml.text("Arn", &format!("arn:aws:iam::{}:role/{name}", scenario.account));
                xml.time("CreateDate", world.origin);
            });
        });
    });
    Ok(Reply::of(xml))
}
