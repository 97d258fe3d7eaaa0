//! RunInstances with `MinCount = MaxCount`: the atomic call for one type in one zone, into a reservation or without a
//! fleet.

use aws_sdk_ec2::operation::RequestId;
use aws_sdk_ec2::operation::run_instances::RunInstancesOutput;
use aws_sdk_ec2::operation::run_instances::builders::RunInstancesInputBuilder;
use aws_sdk_ec2::types::{
    CapacityReservationPreference, CapacityReservationSpecification, CapacityReservationTarget,
    InstanceMarketOptionsRequest, InstanceType, LaunchTemplateSpecification, MarketType, Placement,
};
use muster_core::ec2::{
    CallError, CapacityType, LaunchAnswer, LaunchParameters, LaunchedInstance, ResourceKind, Target,
};
use muster_core::model::names::InstanceId;

use crate::Client;
use crate::convert::{present, signed, tag_specification, text};
use crate::groups::placement;

const RUN: &str = "RunInstances";
/// What RunInstances' bucket of instances holds.
const MOST: u32 = 1000;

impl Client {
    /// Runs N instances of one type in one zone, or none (where part will do: 1 to N). Sent exactly once.
    ///
    /// The subnet is in the template's interfaces. A launch into a reservation names it and allows nothing else, so it
    /// fails rather than end in open capacity. Missing capacity is an error with HTTP status 500; an `Ok` goes to
    /// [`muster_core::batch::judge`] like that of a fleet.
    pub async fn run_instances(&self, parameters: &LaunchParameters) -> Result<LaunchAnswer, CallError> {
        let call = run(parameters)?.send_with(&self.launches);
        let output = Box::pin(call).await.map_err(|error| self.failed(RUN, error))?;
        Ok(launched(&output))
    }
}

pub(crate) fn run(parameters: &LaunchParameters) -> Result<RunInstancesInputBuilder, CallError> {
    let LaunchParameters {
        count,
        instance_type,
        zone: _,
        subnet_id: _,
        capacity_type,
        template_id,
        template_version,
        placement_group,
        way: _,
        reservation,
        partial,
        tags,
        fleet_tags: _,
        overrides,
        token,
    } = parameters;
    if *count == 0 || *count > MOST {
        return Err(CallError::refused_here(RUN, format!("{count} instances: a launch has 1 to {MOST}")));
    }
    if !overrides.is_empty() {
        return Err(CallError::refused_here(RUN, "several types or zones: only a fleet chooses among them"));
    }
    if token.is_empty() {
        return Err(CallError::refused_here(RUN, "no client token: the call could not be replayed"));
    }
    let block = reservation.as_ref().is_some_and(|target| target.block);
    let market_type = match (capacity_type, reservation) {
        (CapacityType::Reserved, None) => {
            return Err(CallError::refused_here(RUN, "a reserved launch names no reservation"));
        }
        (CapacityType::OnDemand | CapacityType::Spot, Some(Target { id, .. })) => {
            return Err(CallError::refused_here(RUN, format!("{capacity_type} capacity is not in reservation {id}")));
        }
        (CapacityType::Reserved, Some(_)) => block.then_some(MarketType::CapacityBlock),
        (CapacityType::OnDemand, None) => None,
        (CapacityType::Spot, None) => Some(MarketType::Spot),
    };
    if block && placement_group.is_some() {
        return Err(CallError::refused_here(RUN, "a Capacity Block goes into no placement group"));
    }
    let most = signed(RUN, "count", *count)?;
    let specification = reservation.as_ref().map(|Target { id, .. }| {
        CapacityReservationSpecification::builder()
            .capacity_reservation_preference(CapacityReservationPreference::CapacityReservationsOnly)
            .capacity_reservation_target(CapacityReservationTarget::builder().capacity_reservation_id(id).build())
            .build()
    });
    let template = LaunchTemplateSpecification::builder()
        .launch_template_id(template_id)
        .version(template_version.to_string())
        .build();
    let kinds = [ResourceKind::Instance, ResourceKind::Volume, ResourceKind::NetworkInterface].into_iter();
    Ok(RunInstancesInputBuilder::default()
        .min_count(if *partial { 1 } else { most })
        .max_count(most)
        .client_token(token)
        .instance_type(InstanceType::from(instance_type.as_str()))
        .launch_template(template)
        .set_placement(placement_group.as_deref().map(placement))
        .set_instance_market_options(
            market_type.map(|capacity_type| InstanceMarketOptionsRequest::builder().market_type(capacity_type).build()),
        )
        .set_capacity_reservation_specification(specification)
        .set_tag_specifications(Some(kinds.filter_map(|kind| tag_specification(kind, &tags.of(kind))).collect())))
}

fn launched(output: &RunInstancesOutput) -> LaunchAnswer {
    let instances = output.instances().iter().map(|instance| LaunchedInstance {
        id: InstanceId::from(instance.instance_id().unwrap_or_default()),
        instance_type: text(instance.instance_type().map(InstanceType::as_str)),
        zone: text(instance.placement().and_then(Placement::availability_zone)),
    });
    LaunchAnswer {
        fleet_id: None,
        request_id: present(output.request_id()),
        instances: instances.collect(),
        errors: Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use muster_core::ec2::{BatchTags, FleetTags, LaunchWay};

    use super::*;

    fn parameters(capacity_type: CapacityType, reservation: Option<Target>) -> LaunchParameters {
        LaunchParameters {
            count: 4,
            instance_type: "p5.48xlarge".to_owned(),
            zone: "us-east-1a".to_owned(),
            subnet_id: "subnet-a".to_owned(),
            capacity_type,
            template_id: "lt-1".to_owned(),
            template_version: 3,
            placement_group: None,
            way: LaunchWay::Run,
            reservation,
            partial: false,
            tags: BatchTags {
                cluster_uid: "c".to_owned(),
                cluster_name: "prod".to_owned(),
                batch_uid: "b".to_owned(),
                gang_uid: None,
                attempt: 1,
            },
            fleet_tags: FleetTags::Documented,
            overrides: Vec::new(),
            token: String::new(),
        }
        .with_token(1)
    }

    fn target(block: bool) -> Option<Target> {
        Some(Target { id: "cr-1".to_owned(), block })
    }

    #[test]
    fn a_reserved_launch_names_its_reservation_and_allows_nothing_else() {
        let parameters = LaunchParameters {
            placement_group: Some("theirs".to_owned()),
            ..parameters(CapacityType::Reserved, target(false))
        };
        let input = run(&parameters).unwrap().build().unwrap();
        assert_eq!((input.min_count(), input.max_count()), (Some(4), Some(4)));
        let reservation = input.capacity_reservation_specification().unwrap();
        assert_eq!(
            reservation.capacity_reservation_preference(),
            Some(&CapacityReservationPreference::CapacityReservationsOnly)
        );
        assert_eq!(reservation.capacity_reservation_target().unwrap().capacity_reservation_id(), Some("cr-1"));
        assert_eq!(input.placement().unwrap().group_name(), Some("theirs"));
        assert!(input.instance_market_options().is_none());
        assert_eq!(input.launch_template().unwrap().version(), Some("3"));
        assert!(input.subnet_id().is_none(), "the subnet is the interfaces'");
        let kinds: Vec<_> =
            input.tag_specifications().iter().map(|tags| tags.resource_type().unwrap().as_str()).collect();
        assert_eq!(kinds, ["instance", "volume", "network-interface"]);
    }

    #[test]
    fn a_capacity_block_is_a_capacity_type_of_its_own_and_spot_another() {
        let capacity_type = |parameters: &LaunchParameters| {
            let input = run(parameters).unwrap().build().unwrap();
            input.instance_market_options().and_then(|options| options.market_type().cloned())
        };
        assert_eq!(capacity_type(&parameters(CapacityType::Reserved, target(true))), Some(MarketType::CapacityBlock));
        assert_eq!(capacity_type(&parameters(CapacityType::Spot, None)), Some(MarketType::Spot));
        assert_eq!(capacity_type(&parameters(CapacityType::OnDemand, None)), None);
    }

    #[test]
    fn calls_that_could_end_in_open_capacity_or_twice_are_refused_here() {
        let base = parameters(CapacityType::OnDemand, None);
        let wrong = [
            LaunchParameters { count: 0, ..base.clone() },
            LaunchParameters { count: 1001, ..base.clone() },
            LaunchParameters { token: String::new(), ..base.clone() },
            LaunchParameters { capacity_type: CapacityType::Reserved, ..base.clone() },
            LaunchParameters { reservation: target(false), ..base },
            LaunchParameters {
                placement_group: Some("g".to_owned()),
                ..parameters(CapacityType::Reserved, target(true))
            },
        ];
        for parameters in wrong {
            assert_eq!(run(&parameters).unwrap_err().http_status, None, "{parameters:?}");
        }
    }
}
