//! STS GetCallerIdentity, EKS DescribeCluster and IAM GetInstanceProfile.

use serde_json::json;

use crate::operations::{Call, Reply};
use crate::protocol::error::ApiError;
use crate::protocol::xml::Xml;
use crate::state::World;

pub(super) fn caller(world: &mut World, _: &Call<'_>) -> Result<Reply, ApiError> {
    let mut xml = Xml::new();
    xml.text("UserId", "AROAMUSTERSIMULATED00:simulated");
    xml.text("Account", &world.scenario.account);
    xml.text("Arn", &world.creator());
    Ok(Reply::of(xml))
}

pub(super) fn cluster(world: &mut World, call: &Call<'_>) -> Result<Reply, ApiError> {
    let name = call.form.required("name")?;
    let Some(cluster) = world.scenario.clusters.iter().find(|c| c.name == name) else {
        return Err(ApiError::new(404, "ResourceNotFoundException", format!("No cluster found for name: {name}.")));
    };
    let scenario = &world.scenario;
    let subnets: Vec<&String> = world.subnets.keys().collect();
    Ok(Reply::json(json!({"cluster": {
        "name": cluster.name,
        "arn": format!("arn:aws:eks:{}:{}:cluster/{}", scenario.region, scenario.account, cluster.name),
        "createdAt": world.origin.as_second(),
        "version": cluster.version,
        "endpoint": cluster.endpoint,
        "roleArn": format!("arn:aws:iam::{}:role/{}", scenario.account, cluster.name),
        "resourcesVpcConfig": {"subnetIds": subnets, "vpcId": scenario.vpc},
        "kubernetesNetworkConfig": {"serviceIpv4Cidr": cluster.service_cidr, "ipFamily": "ipv4"},
        "status": "ACTIVE",
        "certificateAuthority": {"data": cluster.certificate_authority},
        "platformVersion": "eks.1",
        "tags": {},
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
