//! What the scenes of batches have in common: attempts, nodes, members, templates.

use std::sync::Arc;

use jiff::Timestamp;
use muster_core::ec2::{
    BatchTags, CapacityType, FleetTags, LaunchParameters, LaunchWay, MetadataOptions, ResourceKind, TemplateSpec,
};
use muster_core::model::batch::{Attempt, AttemptOutcome, Loss, LossCause};
use muster_core::model::gang::{Gang, Pod, RankClaim, Recognised};
use muster_core::model::node::Node;

use super::ec2::CLUSTER_UID;
use crate::world;

/// The tags of what an attempt of a batch makes.
pub(crate) fn tags(batch_uid: &str, gang_uid: Option<&str>, attempt: u32) -> BatchTags {
    BatchTags {
        cluster_uid: CLUSTER_UID.to_owned(),
        cluster_name: "prod".to_owned(),
        batch_uid: batch_uid.to_owned(),
        gang_uid: gang_uid.map(str::to_owned),
        attempt,
    }
}

/// An attempt at three nodes on demand in zone a, with the parameters of its call.
pub(crate) fn attempt(
    tags: BatchTags,
    instance_type: &str,
    way: LaunchWay,
    outcome: AttemptOutcome,
    (started, ended): (Option<Timestamp>, Option<Timestamp>),
) -> Attempt {
    let parameters = LaunchParameters {
        count: 3,
        instance_type: instance_type.to_owned(),
        zone: "a".to_owned(),
        subnet_id: "subnet-a".to_owned(),
        capacity_type: CapacityType::OnDemand,
        template_id: "lt-1".to_owned(),
        template_version: 1,
        placement_group: None,
        way,
        reservation: None,
        partial: false,
        token: format!("token-{}", tags.attempt),
        tags,
        fleet_tags: FleetTags::Documented,
        overrides: Vec::new(),
    };
    Attempt {
        number: parameters.tags.attempt,
        node_pool: "p0".to_owned(),
        instance_type: parameters.instance_type.clone(),
        zone: parameters.zone.clone(),
        subnet: parameters.subnet_id.clone(),
        capacity_type: parameters.capacity_type,
        overrides: Vec::new(),
        count: parameters.count,
        group: false,
        reservation_group: None,
        reservation: None,
        way,
        image: None,
        taints: Vec::new(),
        template: None,
        token: Some(parameters.token.clone()),
        parameters: Some(parameters.into()),
        replayed: false,
        sweeps: 0,
        request_id: None,
        fleet: None,
        replaces: Vec::new(),
        probe: false,
        outcome,
        code: None,
        message: None,
        started,
        ended,
    }
}

/// A loss that is acted upon as soon as it is noticed.
pub(super) fn loss(cause: LossCause, message: &str, noticed: Timestamp) -> Loss {
    Loss { cause, message: message.to_owned(), noticed, act_at: noticed, deadline: None }
}

/// The Node of an instance, `n-<id>`.
pub(super) fn node(id: &str) -> Node {
    let mut node = world::node(&format!("n-{id}"), 8);
    node.provider_id = Some(Arc::from(format!("aws:///a/{id}")));
    node
}

/// A member that runs on the node of an instance.
pub(super) fn member(gang: &str, rank: u32, id: &str) -> Pod {
    let mut pod = world::member(&format!("{gang}-{rank}"), gang, RankClaim::Rank(rank));
    pod.node = Some(format!("n-{id}").as_str().into());
    pod.gated = false;
    pod
}

/// What the pods of the gangs say; they consume a booking, if one is named.
pub(super) fn recognised(gangs: &[Gang], booked: Option<&str>) -> Vec<Recognised> {
    let one = |gang: &Gang| {
        let mut recognised = world::recognised(&gang.key.name, None, None);
        recognised.booking = booked.map(Arc::from);
        recognised
    };
    gangs.iter().map(one).collect()
}

/// A launch template with nothing in it but its tags.
pub(super) fn template(tags: &BatchTags, capacity_type: CapacityType) -> TemplateSpec {
    TemplateSpec {
        image_id: "ami-1".to_owned(),
        instance_profile: String::new(),
        network_interfaces: Vec::new(),
        subnet_id: None,
        public_address: None,
        primary_ipv6: false,
        metadata: MetadataOptions::default(),
        user_data: String::new(),
        block_devices: Vec::new(),
        detailed_monitoring: false,
        capacity_type,
        template_tags: tags.of(ResourceKind::LaunchTemplate),
        resource_tags: tags.of(ResourceKind::Instance),
    }
}
