//! Dry runs: whether a call would be carried out, as far as permissions and parameters tell. Capacity is never looked at.

use aws_sdk_ec2::operation::create_launch_template::builders::CreateLaunchTemplateInputBuilder;
use aws_sdk_ec2::operation::delete_launch_template::builders::DeleteLaunchTemplateInputBuilder;
use aws_sdk_ec2::operation::delete_placement_group::builders::DeletePlacementGroupInputBuilder;
use aws_sdk_ec2::operation::describe_capacity_reservations::builders::DescribeCapacityReservationsInputBuilder;
use aws_sdk_ec2::operation::describe_fleets::builders::DescribeFleetsInputBuilder;
use aws_sdk_ec2::operation::describe_images::builders::DescribeImagesInputBuilder;
use aws_sdk_ec2::operation::describe_instance_status::builders::DescribeInstanceStatusInputBuilder;
use aws_sdk_ec2::operation::describe_instance_topology::builders::DescribeInstanceTopologyInputBuilder;
use aws_sdk_ec2::operation::describe_instance_type_offerings::builders::DescribeInstanceTypeOfferingsInputBuilder;
use aws_sdk_ec2::operation::describe_instance_types::builders::DescribeInstanceTypesInputBuilder;
use aws_sdk_ec2::operation::describe_instances::builders::DescribeInstancesInputBuilder;
use aws_sdk_ec2::operation::describe_launch_templates::builders::DescribeLaunchTemplatesInputBuilder;
use aws_sdk_ec2::operation::describe_placement_groups::builders::DescribePlacementGroupsInputBuilder;
use aws_sdk_ec2::operation::describe_security_groups::builders::DescribeSecurityGroupsInputBuilder;
use aws_sdk_ec2::operation::describe_spot_price_history::builders::DescribeSpotPriceHistoryInputBuilder;
use aws_sdk_ec2::operation::describe_subnets::builders::DescribeSubnetsInputBuilder;
use aws_sdk_ec2::operation::get_console_output::builders::GetConsoleOutputInputBuilder;
use aws_sdk_ec2::operation::run_instances::builders::RunInstancesInputBuilder;
use aws_sdk_ec2::operation::terminate_instances::builders::TerminateInstancesInputBuilder;
use aws_sdk_ec2::types::{IamInstanceProfileSpecification, InstanceType, RequestLaunchTemplateData};
use muster_core::ec2::{BatchTags, CallError, ErrorClass, LaunchParameters, LaunchWay, ResourceKind, Tags};
use muster_core::model::names::InstanceId;

use crate::Client;
use crate::convert::tag_specification;
use crate::groups::creation;
use crate::launch::fleet;
use crate::run::run;

/// Sends a request as a dry run.
macro_rules! dry {
    ($client:expr, $operation:literal, $request:expr) => {{
        let call = $request.dry_run(true).send_with(&$client.calls);
        passed(Box::pin(call).await.map(|_| ()).map_err(|error| $client.failed($operation, error)))
    }};
}

/// One instance, as a dry run asks for it without a launch template: what it names has to exist and be allowed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TrialLaunch {
    /// AMI id.
    pub image: String,
    /// Type.
    pub instance_type: String,
    /// Subnet.
    pub subnet: String,
    /// Security groups.
    pub security_groups: Vec<String>,
    /// Name of the instance profile.
    pub instance_profile: String,
    /// What would be tagged.
    pub tags: BatchTags,
}

impl Client {
    /// Asks whether a launch would be carried out, by the call that its parameters name.
    ///
    /// Errors: what it would be refused for. EC2 documents that a dry run looks at the permissions; how much it looks at
    /// the parameters it does not say, so `Ok` guarantees nothing about them.
    pub async fn dry_run_launch(&self, parameters: &LaunchParameters) -> Result<(), CallError> {
        let error = match parameters.way {
            LaunchWay::Fleet => {
                let call = fleet(parameters)?.dry_run(true).send_with(&self.calls);
                Box::pin(call).await.map(|_| ()).map_err(|error| self.failed("CreateFleet", error))
            }
            LaunchWay::Run => {
                let call = run(parameters)?.dry_run(true).send_with(&self.calls);
                Box::pin(call).await.map(|_| ()).map_err(|error| self.failed("RunInstances", error))
            }
        };
        passed(error)
    }

    /// Asks whether a cluster placement group of this name and with these tags could be made.
    ///
    /// Errors: what it would be refused for.
    pub async fn dry_run_placement_group(&self, name: &str, tags: &Tags) -> Result<(), CallError> {
        let call = creation(name, tags).dry_run(true).send_with(&self.calls);
        passed(Box::pin(call).await.map(|_| ()).map_err(|error| self.failed("CreatePlacementGroup", error)))
    }

    /// Asks whether a call that only reads would be carried out, by its action, `ec2:DescribeInstances`; `None` for an action
    /// that this crate does not know.
    ///
    /// Errors: what it would be refused for.
    pub async fn dry_run_read(&self, action: &str) -> Option<Result<(), CallError>> {
        Some(match action.strip_prefix("ec2:")? {
            "DescribeCapacityReservations" => {
                dry!(self, "DescribeCapacityReservations", DescribeCapacityReservationsInputBuilder::default())
            }
            "DescribeFleets" => dry!(self, "DescribeFleets", DescribeFleetsInputBuilder::default()),
            "DescribeImages" => {
                dry!(self, "DescribeImages", DescribeImagesInputBuilder::default().owners("self"))
            }
            "DescribeInstanceStatus" => {
                dry!(self, "DescribeInstanceStatus", DescribeInstanceStatusInputBuilder::default())
            }
            "DescribeInstanceTopology" => {
                dry!(self, "DescribeInstanceTopology", DescribeInstanceTopologyInputBuilder::default())
            }
            "DescribeInstanceTypeOfferings" => {
                dry!(self, "DescribeInstanceTypeOfferings", DescribeInstanceTypeOfferingsInputBuilder::default())
            }
            "DescribeInstanceTypes" => {
                dry!(self, "DescribeInstanceTypes", DescribeInstanceTypesInputBuilder::default())
            }
            "DescribeInstances" => dry!(self, "DescribeInstances", DescribeInstancesInputBuilder::default()),
            "DescribeLaunchTemplates" => {
                dry!(self, "DescribeLaunchTemplates", DescribeLaunchTemplatesInputBuilder::default())
            }
            "DescribePlacementGroups" => {
                dry!(self, "DescribePlacementGroups", DescribePlacementGroupsInputBuilder::default())
            }
            "DescribeSecurityGroups" => {
                dry!(self, "DescribeSecurityGroups", DescribeSecurityGroupsInputBuilder::default())
            }
            "DescribeSpotPriceHistory" => {
                dry!(self, "DescribeSpotPriceHistory", DescribeSpotPriceHistoryInputBuilder::default())
            }
            "DescribeSubnets" => dry!(self, "DescribeSubnets", DescribeSubnetsInputBuilder::default()),
            _ => return None,
        })
    }

    /// Asks whether a launch template with these tags could be made.
    ///
    /// Errors: what it would be refused for.
    pub async fn dry_run_launch_template(&self, name: &str, tags: &Tags) -> Result<(), CallError> {
        let data = RequestLaunchTemplateData::builder().instance_type(InstanceType::from("m5.large")).build();
        let request = CreateLaunchTemplateInputBuilder::default()
            .launch_template_name(name)
            .launch_template_data(data)
            .set_tag_specifications(tag_specification(ResourceKind::LaunchTemplate, tags).map(|tags| vec![tags]));
        dry!(self, "CreateLaunchTemplate", request)
    }

    /// Asks whether one instance could be launched.
    ///
    /// Errors: what it would be refused for. Tagging, and passing the profile's role, belong to a launch.
    pub async fn dry_run_instance(&self, trial: &TrialLaunch) -> Result<(), CallError> {
        let TrialLaunch { image, instance_type, subnet, security_groups, instance_profile, tags } = trial;
        let kinds = [ResourceKind::Instance, ResourceKind::Volume, ResourceKind::NetworkInterface].into_iter();
        let request = RunInstancesInputBuilder::default()
            .min_count(1)
            .max_count(1)
            .image_id(image)
            .instance_type(InstanceType::from(instance_type.as_str()))
            .subnet_id(subnet)
            .set_security_group_ids(Some(security_groups.clone()))
            .iam_instance_profile(IamInstanceProfileSpecification::builder().name(instance_profile).build())
            .set_tag_specifications(Some(kinds.filter_map(|kind| tag_specification(kind, &tags.of(kind))).collect()));
        dry!(self, "RunInstances", request)
    }

    /// Asks whether an instance could be terminated.
    ///
    /// Errors: what it would be refused for.
    pub async fn dry_run_terminate(&self, id: &InstanceId) -> Result<(), CallError> {
        dry!(self, "TerminateInstances", TerminateInstancesInputBuilder::default().instance_ids(id.as_str()))
    }

    /// Asks whether the console of an instance could be read.
    ///
    /// Errors: what it would be refused for.
    pub async fn dry_run_console(&self, id: &InstanceId) -> Result<(), CallError> {
        dry!(self, "GetConsoleOutput", GetConsoleOutputInputBuilder::default().instance_id(id.as_str()))
    }

    /// Asks whether a launch template could be deleted, by id.
    ///
    /// Errors: what it would be refused for.
    pub async fn dry_run_delete_launch_template(&self, id: &str) -> Result<(), CallError> {
        dry!(self, "DeleteLaunchTemplate", DeleteLaunchTemplateInputBuilder::default().launch_template_id(id))
    }

    /// Asks whether a placement group could be deleted.
    ///
    /// Errors: what it would be refused for.
    pub async fn dry_run_delete_placement_group(&self, name: &str) -> Result<(), CallError> {
        dry!(self, "DeletePlacementGroup", DeletePlacementGroupInputBuilder::default().group_name(name))
    }
}

/// A dry run that would have succeeded is answered by an error of that name.
fn passed(answer: Result<(), CallError>) -> Result<(), CallError> {
    match answer {
        Err(error) if error.kind == ErrorClass::DryRunPassed => Ok(()),
        answer => answer,
    }
}
