//! CreateFleet, the all-or-nothing call, and what a fleet says afterwards.

use aws_sdk_ec2::operation::RequestId;
use aws_sdk_ec2::operation::create_fleet::CreateFleetOutput;
use aws_sdk_ec2::operation::create_fleet::builders::CreateFleetInputBuilder;
use aws_sdk_ec2::operation::describe_fleets::builders::DescribeFleetsInputBuilder;
use aws_sdk_ec2::types::{
    DefaultTargetCapacityType, FleetData, FleetLaunchTemplateConfigRequest, FleetLaunchTemplateOverridesRequest,
    FleetLaunchTemplateSpecificationRequest, FleetOnDemandAllocationStrategy, FleetType, InstanceType,
    LaunchTemplateAndOverridesResponse, OnDemandOptionsRequest, SpotAllocationStrategy, SpotOptionsRequest,
    TargetCapacitySpecificationRequest,
};
use muster_core::ec2::{CallError, CapacityType, FleetError, LaunchAnswer, LaunchParameters, LaunchedInstance};

use crate::Client;
use crate::convert::{present, signed, tag_specification, text};
use crate::groups::placement;

const CREATE: &str = "CreateFleet";
const DESCRIBE: &str = "DescribeFleets";
/// CreateFleet's largest `MinTargetCapacity`.
const MOST: u32 = 1000;

impl Client {
    /// Sends one instant fleet: N instances of one type in one zone, or none (where part will do: as many as there
    /// are). Sent exactly once.
    ///
    /// An `Ok` says nothing about success: give the result to [`muster_core::batch::judge`]. Reserved capacity is
    /// refused here, since a fleet has no minimum for it and could end in open capacity.
    pub async fn create_fleet(&self, parameters: &LaunchParameters) -> Result<LaunchAnswer, CallError> {
        let request = fleet(parameters)?;
        let call = request.send_with(&self.launches);
        let output = Box::pin(call).await.map_err(|error| self.failed(CREATE, error))?;
        Ok(launched(&output))
    }

    /// What an instant fleet launched and why not more; `None` if EC2 does not know the id (yet). The only way to find
    /// an instant fleet is its id.
    pub async fn describe_fleets(&self, fleet_id: &str) -> Result<Option<LaunchAnswer>, CallError> {
        let call = DescribeFleetsInputBuilder::default().fleet_ids(fleet_id).send_with(&self.calls);
        match Box::pin(call).await.map_err(|error| self.failed(DESCRIBE, error)) {
            Ok(output) => Ok(output.fleets().iter().find(|fleet| fleet.fleet_id() == Some(fleet_id)).map(described)),
            Err(error) if error.code.as_deref().is_some_and(|code| code.starts_with("InvalidFleetId")) => Ok(None),
            Err(error) => Err(error),
        }
    }
}

pub(crate) fn fleet(parameters: &LaunchParameters) -> Result<CreateFleetInputBuilder, CallError> {
    let LaunchParameters {
        count,
        instance_type,
        zone,
        subnet_id,
        capacity_type,
        template_id,
        template_version,
        placement_group,
        way: _,
        reservation: _,
        partial,
        tags,
        fleet_tags,
        overrides,
        token,
    } = parameters;
    if *count == 0 || *count > MOST {
        return Err(CallError::refused_here(CREATE, format!("{count} instances: a launch has 1 to {MOST}")));
    }
    if token.is_empty() {
        return Err(CallError::refused_here(CREATE, "no client token: the call could not be replayed"));
    }
    let count = signed(CREATE, "count", *count)?;
    let minimum = (!partial).then_some(count);
    let placement = placement_group.as_deref().map(placement);
    let one = |instance_type: &str, zone: &str, subnet_id: &str, priority: u32| {
        FleetLaunchTemplateOverridesRequest::builder()
            .instance_type(InstanceType::from(instance_type))
            .subnet_id(subnet_id)
            // Redundant beside the subnet, but an item of the errors names its zone only if the override did.
            .availability_zone(zone)
            .priority(f64::from(priority))
            .set_placement(placement.clone())
            .build()
    };
    let several = !overrides.is_empty();
    let overrides: Vec<_> = if several {
        let each = overrides.iter().zip(0..);
        each.map(|(over, priority)| one(&over.instance_type, &over.zone, &over.subnet_id, priority)).collect()
    } else {
        vec![one(instance_type, zone, subnet_id, 0)]
    };
    let template = FleetLaunchTemplateSpecificationRequest::builder()
        .launch_template_id(template_id)
        .version(template_version.to_string())
        .build();
    let request = CreateFleetInputBuilder::default()
        .r#type(FleetType::Instant)
        .client_token(token)
        .launch_template_configs(
            FleetLaunchTemplateConfigRequest::builder()
                .launch_template_specification(template)
                .set_overrides(Some(overrides))
                .build(),
        )
        .set_tag_specifications(Some(
            fleet_tags.kinds().iter().filter_map(|kind| tag_specification(*kind, &tags.of(*kind))).collect(),
        ));
    let target = TargetCapacitySpecificationRequest::builder().total_target_capacity(count);
    match capacity_type {
        CapacityType::OnDemand => Ok(request
            .target_capacity_specification(
                target.default_target_capacity_type(DefaultTargetCapacityType::OnDemand).build(),
            )
            .on_demand_options(
                OnDemandOptionsRequest::builder()
                    .allocation_strategy(FleetOnDemandAllocationStrategy::Prioritized)
                    .single_instance_type(true)
                    .single_availability_zone(true)
                    .set_min_target_capacity(minimum)
                    .build(),
            )),
        // One interruption evicts the gang, so the odds of interruption count N times: capacity before price. Pods of no gang are
        // interrupted one by one, and among several offers price counts too.
        CapacityType::Spot => Ok(request
            .target_capacity_specification(target.default_target_capacity_type(DefaultTargetCapacityType::Spot).build())
            .spot_options(
                SpotOptionsRequest::builder()
                    .allocation_strategy(if several {
                        SpotAllocationStrategy::PriceCapacityOptimized
                    } else {
                        SpotAllocationStrategy::CapacityOptimized
                    })
                    .single_instance_type(true)
                    .single_availability_zone(true)
                    .set_min_target_capacity(minimum)
                    .build(),
            )),
        CapacityType::Reserved => {
            Err(CallError::refused_here(CREATE, "reserved capacity is not launched through a fleet"))
        }
    }
}

fn launched(output: &CreateFleetOutput) -> LaunchAnswer {
    let instances = output.instances().iter().flat_map(|group| {
        let of_override = Override::of(group.launch_template_and_overrides());
        let instance_type = group.instance_type().map(|name| name.as_str().to_owned());
        let instance_type = instance_type.or(of_override.instance_type).unwrap_or_default();
        let zone = present(group.availability_zone()).or(of_override.zone).unwrap_or_default();
        ids(group.instance_ids(), &instance_type, &zone)
    });
    let errors = output.errors().iter();
    LaunchAnswer {
        fleet_id: present(output.fleet_id()),
        request_id: present(output.request_id()),
        instances: instances.collect(),
        errors: errors
            .map(|item| failure(item.error_code(), item.error_message(), item.launch_template_and_overrides()))
            .collect(),
    }
}

fn described(fleet: &FleetData) -> LaunchAnswer {
    let instances = fleet.instances().iter().flat_map(|group| {
        let of_override = Override::of(group.launch_template_and_overrides());
        let instance_type = group.instance_type().map(|name| name.as_str().to_owned());
        let instance_type = instance_type.or(of_override.instance_type).unwrap_or_default();
        ids(group.instance_ids(), &instance_type, &of_override.zone.unwrap_or_default())
    });
    let errors = fleet.errors().iter();
    LaunchAnswer {
        fleet_id: present(fleet.fleet_id()),
        // That of the launch is not known any more.
        request_id: None,
        instances: instances.collect(),
        errors: errors
            .map(|item| failure(item.error_code(), item.error_message(), item.launch_template_and_overrides()))
            .collect(),
    }
}

fn ids(ids: &[String], instance_type: &str, zone: &str) -> Vec<LaunchedInstance> {
    ids.iter()
        .map(|id| LaunchedInstance {
            id: id.as_str().into(),
            instance_type: instance_type.to_owned(),
            zone: zone.to_owned(),
        })
        .collect()
}

fn failure(
    code: Option<&str>,
    message: Option<&str>,
    overrides: Option<&LaunchTemplateAndOverridesResponse>,
) -> FleetError {
    let Override { instance_type, zone } = Override::of(overrides);
    FleetError { code: text(code), message: text(message), instance_type, zone }
}

#[derive(Default)]
struct Override {
    instance_type: Option<String>,
    zone: Option<String>,
}

impl Override {
    fn of(answer: Option<&LaunchTemplateAndOverridesResponse>) -> Self {
        answer.and_then(LaunchTemplateAndOverridesResponse::overrides).map_or_else(Self::default, |overrides| Self {
            instance_type: overrides.instance_type().map(|name| name.as_str().to_owned()),
            zone: present(overrides.availability_zone()),
        })
    }
}

#[cfg(test)]
mod tests {
    use aws_sdk_ec2::types::{CreateFleetError, CreateFleetInstance, FleetLaunchTemplateOverrides};
    use muster_core::ec2::{BatchTags, FleetTags, LaunchWay};

    use super::*;

    fn parameters(capacity_type: CapacityType) -> LaunchParameters {
        LaunchParameters {
            count: 4,
            instance_type: "p5.48xlarge".to_owned(),
            zone: "us-east-1a".to_owned(),
            subnet_id: "subnet-a".to_owned(),
            capacity_type,
            template_id: "lt-1".to_owned(),
            template_version: 3,
            placement_group: Some("g".to_owned()),
            way: LaunchWay::Fleet,
            reservation: None,
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

    #[test]
    fn an_on_demand_launch_asks_for_all_or_nothing() {
        let parameters = parameters(CapacityType::OnDemand);
        let input = fleet(&parameters).unwrap().build().unwrap();
        assert_eq!(input.r#type(), Some(&FleetType::Instant));
        assert_eq!(input.client_token(), Some(parameters.token.as_str()));
        let target = input.target_capacity_specification().unwrap();
        assert_eq!(target.total_target_capacity(), Some(4));
        assert_eq!(target.default_target_capacity_type(), Some(&DefaultTargetCapacityType::OnDemand));
        let options = input.on_demand_options().unwrap();
        assert_eq!(options.min_target_capacity(), Some(4));
        assert_eq!((options.single_instance_type(), options.single_availability_zone()), (Some(true), Some(true)));
        // Reservations outside the group would answer insufficient capacity although they have capacity.
        assert!(options.capacity_reservation_options().is_none());
        assert!(input.spot_options().is_none());
        let config = &input.launch_template_configs()[0];
        let template = config.launch_template_specification().unwrap();
        assert_eq!((template.launch_template_id(), template.version()), (Some("lt-1"), Some("3")));
        let overrides = &config.overrides()[0];
        assert_eq!(overrides.subnet_id(), Some("subnet-a"));
        assert_eq!(overrides.availability_zone(), Some("us-east-1a"));
        assert_eq!(overrides.placement().unwrap().group_name(), Some("g"));
        assert!(overrides.max_price().is_none() && overrides.weighted_capacity().is_none());
    }

    #[test]
    fn the_documented_kinds_are_tagged_and_an_older_intent_keeps_its_own() {
        for (fleet_tags, wanted) in [
            (FleetTags::Documented, &["fleet", "instance"][..]),
            (FleetTags::Everything, &["fleet", "instance", "volume", "network-interface"]),
        ] {
            let parameters = LaunchParameters { fleet_tags, ..parameters(CapacityType::OnDemand) };
            let input = fleet(&parameters).unwrap().build().unwrap();
            let kinds: Vec<_> =
                input.tag_specifications().iter().map(|tags| tags.resource_type().unwrap().as_str()).collect();
            assert_eq!(kinds, wanted);
            for tags in input.tag_specifications() {
                assert!(tags.tags().iter().any(|tag| tag.key() == Some("muster.dev/attempt")));
            }
        }
    }

    #[test]
    fn spot_has_the_same_minimum_and_no_group_means_no_placement() {
        let mut parameters = parameters(CapacityType::Spot);
        parameters.placement_group = None;
        let input = fleet(&parameters).unwrap().build().unwrap();
        let options = input.spot_options().unwrap();
        assert_eq!(options.min_target_capacity(), Some(4));
        assert_eq!((options.single_instance_type(), options.single_availability_zone()), (Some(true), Some(true)));
        assert!(input.on_demand_options().is_none());
        assert!(input.launch_template_configs()[0].overrides()[0].placement().is_none());
    }

    #[test]
    fn of_several_overrides_ec2_takes_one_for_all_instances_by_price_and_capacity_or_in_their_order() {
        let over = |name: &str, zone: &str| muster_core::ec2::Override {
            instance_type: name.to_owned(),
            zone: zone.to_owned(),
            subnet_id: format!("subnet-{zone}"),
        };
        let overrides =
            vec![over("m5.large", "us-east-1a"), over("m6i.large", "us-east-1a"), over("m5.large", "us-east-1b")];
        for capacity_type in [CapacityType::OnDemand, CapacityType::Spot] {
            let one = LaunchParameters { placement_group: None, ..parameters(capacity_type) };
            let several = LaunchParameters { overrides: overrides.clone(), partial: true, ..one };
            let input = fleet(&several).unwrap().build().unwrap();
            let sent = input.launch_template_configs()[0].overrides();
            let sent: Vec<_> = sent
                .iter()
                .map(|one| (one.instance_type().unwrap().as_str(), one.subnet_id().unwrap(), one.priority().unwrap()))
                .collect();
            let wanted = [
                ("m5.large", "subnet-us-east-1a", 0.0),
                ("m6i.large", "subnet-us-east-1a", 1.0),
                ("m5.large", "subnet-us-east-1b", 2.0),
            ];
            assert_eq!(sent, wanted);
            if let Some(spot) = input.spot_options() {
                assert_eq!(spot.allocation_strategy(), Some(&SpotAllocationStrategy::PriceCapacityOptimized));
                assert_eq!((spot.single_instance_type(), spot.single_availability_zone()), (Some(true), Some(true)));
            }
            if let Some(options) = input.on_demand_options() {
                assert_eq!(options.allocation_strategy(), Some(&FleetOnDemandAllocationStrategy::Prioritized));
                assert_eq!(
                    (options.single_instance_type(), options.single_availability_zone()),
                    (Some(true), Some(true))
                );
            }
        }
    }

    #[test]
    fn where_part_will_do_there_is_no_minimum() {
        for capacity_type in [CapacityType::OnDemand, CapacityType::Spot] {
            let partial = LaunchParameters { partial: true, ..parameters(capacity_type) };
            let input = fleet(&partial).unwrap().build().unwrap();
            let minimum = input.on_demand_options().map(OnDemandOptionsRequest::min_target_capacity);
            let spot = input.spot_options().map(SpotOptionsRequest::min_target_capacity);
            assert_eq!(minimum.or(spot), Some(None));
        }
    }

    #[test]
    fn calls_that_could_not_be_atomic_or_replayed_are_refused_here() {
        let base = parameters(CapacityType::OnDemand);
        let wrong = [
            LaunchParameters { count: 0, ..base.clone() },
            LaunchParameters { count: 1001, ..base.clone() },
            LaunchParameters { token: String::new(), ..base.clone() },
            LaunchParameters { capacity_type: CapacityType::Reserved, ..base },
        ];
        for parameters in wrong {
            assert_eq!(fleet(&parameters).unwrap_err().http_status, None);
        }
    }

    fn overrides() -> LaunchTemplateAndOverridesResponse {
        let overrides = FleetLaunchTemplateOverrides::builder()
            .instance_type(InstanceType::from("p5.48xlarge"))
            .availability_zone("us-east-1a")
            .build();
        LaunchTemplateAndOverridesResponse::builder().overrides(overrides).build()
    }

    #[test]
    fn an_answer_is_read_with_instances_and_errors() {
        let output = CreateFleetOutput::builder()
            .fleet_id("fleet-1")
            .instances(
                CreateFleetInstance::builder()
                    .launch_template_and_overrides(overrides())
                    .instance_ids("i-1")
                    .instance_ids("i-2")
                    .build(),
            )
            .errors(
                CreateFleetError::builder()
                    .launch_template_and_overrides(overrides())
                    .error_code("InsufficientInstanceCapacity")
                    .error_message("none left")
                    .build(),
            )
            .errors(CreateFleetError::builder().build())
            .build();
        let answer = launched(&output);
        assert_eq!(answer.fleet_id.as_deref(), Some("fleet-1"));
        assert_eq!(answer.instances.len(), 2);
        assert_eq!(answer.instances[1].zone, "us-east-1a");
        assert_eq!(answer.instances[1].instance_type, "p5.48xlarge");
        assert_eq!(answer.errors[0].zone.as_deref(), Some("us-east-1a"));
        assert_eq!(answer.errors[1].code, "");
        assert_eq!(launched(&CreateFleetOutput::builder().build()), LaunchAnswer::default());
    }
}
