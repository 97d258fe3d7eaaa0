//! The operations, one file per family.

mod catalog;
mod create_fleet;
mod filters;
mod fleets;
mod identity;
mod instances;
mod launch_templates;
mod network;
mod placement_groups;
mod run_instances;
mod templates_data;
mod topology;

use jiff::Timestamp;

use crate::faults::{CallScope, Drawn};
use crate::protocol::error::ApiError;
use crate::protocol::form::Form;
use crate::protocol::xml::Xml;
use crate::state::World;

/// One call as its operation sees it.
#[derive(Debug)]
pub(crate) struct Call<'a> {
    pub(crate) form: &'a Form,
    pub(crate) now: Timestamp,
    pub(crate) drawn: &'a Drawn,
}

/// What a call that succeeded is answered.
#[derive(Debug, Default)]
pub(crate) struct Reply {
    pub(crate) members: Xml,
    /// Ids of what was made, deleted or terminated.
    pub(crate) resources: Vec<String>,
    /// Error codes inside the answer.
    pub(crate) item_codes: Vec<String>,
    pub(crate) replayed: bool,
}

impl Reply {
    fn of(members: Xml) -> Self {
        Self { members, ..Self::default() }
    }

    fn about(mut self, resource: impl Into<String>) -> Self {
        self.resources.push(resource.into());
        self
    }

    /// `<return>true</return>`.
    fn success() -> Self {
        let mut xml = Xml::new();
        xml.flag("return", true);
        Self::of(xml)
    }
}

/// The code behind an operation's name.
pub(crate) type Handler = fn(&mut World, &Call<'_>) -> Result<Reply, ApiError>;

/// Finds an operation.
pub(crate) fn find(operation: &str) -> Option<Handler> {
    let handler: Handler = match operation {
        "CreateFleet" => create_fleet::create,
        "CreateLaunchTemplate" => launch_templates::create,
        "CreatePlacementGroup" => placement_groups::create,
        "CreateTags" => instances::create_tags,
        "DeleteFleets" => fleets::delete,
        "DeleteLaunchTemplate" => launch_templates::delete,
        "DeletePlacementGroup" => placement_groups::delete,
        "DescribeAvailabilityZones" => network::zones,
        "DescribeFleets" => fleets::describe,
        "DescribeImages" => network::images,
        "DescribeInstanceTopology" => topology::describe,
        "DescribeInstanceTypeOfferings" => catalog::offerings,
        "DescribeInstanceTypes" => catalog::types,
        "DescribeInstances" => instances::describe,
        "DescribeLaunchTemplateVersions" => launch_templates::versions,
        "DescribeLaunchTemplates" => launch_templates::describe,
        "DescribePlacementGroups" => placement_groups::describe,
        "DescribeSecurityGroups" => network::security_groups,
        "DescribeSubnets" => network::subnets,
        "GetCallerIdentity" => identity::caller,
        "RunInstances" => run_instances::run,
        "TerminateInstances" => instances::terminate,
        _ => return None,
    };
    Some(handler)
}

/// What the faults of a call are matched against.
pub(crate) fn scope(world: &World, operation: &str, form: &Form) -> CallScope {
    let mut scope = CallScope { operation: operation.to_owned(), ..CallScope::default() };
    for (name, value) in form.parameters() {
        let member = name.rsplit('.').next().unwrap_or(name);
        match member {
            "InstanceType" => {
                scope.types.insert(value.clone());
            }
            "AvailabilityZone" => {
                scope.zones.insert(value.clone());
            }
            "SubnetId" => {
                if let Some(subnet) = world.subnets.get(value) {
                    scope.zones.insert(subnet.zone.clone());
                }
            }
            "GroupName" | "GroupId" if name.contains("Placement.") => scope.placement_group = true,
            "LaunchTemplateId" | "LaunchTemplateName" => {
                let template = world.templates.values().find(|t| t.id == *value || t.name == *value);
                if let Some(template) = template {
                    scope.placement_group |= template.data.has("Placement");
                    scope.types.extend(template.data.get("InstanceType").map(str::to_owned));
                }
            }
            _ => {}
        }
    }
    let number = |name: &str| form.number(name).ok().flatten();
    scope.instances =
        number("TargetCapacitySpecification.TotalTargetCapacity").or_else(|| number("MaxCount")).unwrap_or(0);
    scope.batch = form
        .tags_for("instance")
        .remove(crate::BATCH_TAG)
        .or_else(|| {
            form.list("InstanceId")
                .first()
                .and_then(|id| world.instances.get(id))
                .and_then(|i| i.batch().map(str::to_owned))
        })
        .or_else(|| {
            form.structs("Filter")
                .iter()
                .find(|f| f.get("Name").and_then(|n| n.strip_prefix("tag:")) == Some(crate::BATCH_TAG))
                .and_then(|f| f.list("Value").into_iter().next())
        });
    scope
}
