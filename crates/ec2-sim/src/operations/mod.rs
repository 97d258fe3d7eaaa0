//! The operations, one file per family.

mod catalog;
mod console;
mod create_fleet;
mod filters;
mod fleets;
mod identity;
mod instances;
mod launch_templates;
mod list_prices;
mod named;
mod network;
mod parameters;
mod placement_groups;
mod prices;
mod reservations;
mod run_instances;
mod service_quotas;
mod sqs;
mod status;
mod templates_data;
mod topology;
mod volumes;

use jiff::Timestamp;

use serde_json::Value;

use crate::clock::later;
use crate::faults::{CallScope, Drawn, FaultKind};
use crate::journal::Failure;
use crate::kinds::MarketType;
use crate::protocol::error::ApiError;
use crate::protocol::form::Form;
use crate::protocol::request::Service;
use crate::protocol::xml::Xml;
use crate::state::World;
use crate::state::templates::Template;

/// One call as its operation sees it.
#[derive(Debug)]
pub(crate) struct Call<'a> {
    pub(crate) form: &'a Form,
    pub(crate) now: Timestamp,
    pub(crate) drawn: &'a Drawn,
    /// What the client calls the simulator.
    pub(crate) host: &'a str,
}

impl Call<'_> {
    /// The time whose state a Describe call shows.
    pub(crate) fn read_at(&self) -> Timestamp {
        let old = self.drawn.kinds().filter_map(FaultKind::stale).max();
        old.and_then(|old| self.now.checked_sub(old).ok()).unwrap_or(self.now)
    }

    /// When what the call makes is seen by others.
    pub(crate) fn visible_at(&self) -> Timestamp {
        let hidden = self.drawn.kinds().filter_map(FaultKind::hidden).max();
        hidden.map_or(self.now, |hidden| later(self.now, hidden))
    }
}

/// What a call that succeeded is answered.
#[derive(Debug, Default)]
pub(crate) struct Reply {
    pub(crate) members: Xml,
    /// The answer of the services that speak JSON.
    pub(crate) json: Option<Value>,
    /// Ids of what was made, deleted or terminated.
    pub(crate) resources: Vec<String>,
    /// Error codes inside the answer.
    pub(crate) item_codes: Vec<String>,
    /// The pools those codes are about.
    pub(crate) failures: Vec<Failure>,
    pub(crate) replayed: bool,
}

impl Reply {
    fn of(members: Xml) -> Self {
        Self { members, ..Self::default() }
    }

    fn json(json: Value) -> Self {
        Self { json: Some(json), ..Self::default() }
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

/// The operations of EC2 that are played.
const EC2: [(&str, Handler); 29] = [
    ("CancelCapacityReservation", reservations::cancel),
    ("CreateCapacityReservation", reservations::create),
    ("CreateFleet", create_fleet::create),
    ("CreateLaunchTemplate", launch_templates::create),
    ("CreatePlacementGroup", placement_groups::create),
    ("CreateTags", instances::create_tags),
    ("DeleteFleets", fleets::delete),
    ("DeleteLaunchTemplate", launch_templates::delete),
    ("DeletePlacementGroup", placement_groups::delete),
    ("DescribeAvailabilityZones", network::zones),
    ("DescribeCapacityReservationTopology", reservations::topology),
    ("DescribeCapacityReservations", reservations::describe),
    ("DescribeFleets", fleets::describe),
    ("DescribeImages", network::images),
    ("DescribeInstanceStatus", status::describe),
    ("DescribeInstanceTopology", topology::describe),
    ("DescribeInstanceTypeOfferings", catalog::offerings),
    ("DescribeInstanceTypes", catalog::types),
    ("DescribeInstances", instances::describe),
    ("DescribeLaunchTemplateVersions", launch_templates::versions),
    ("DescribeLaunchTemplates", launch_templates::describe),
    ("DescribePlacementGroups", placement_groups::describe),
    ("DescribeSecurityGroups", network::security_groups),
    ("DescribeSpotPriceHistory", prices::spot_history),
    ("DescribeSubnets", network::subnets),
    ("DescribeVolumes", volumes::describe),
    ("GetConsoleOutput", console::output),
    ("RunInstances", run_instances::run),
    ("TerminateInstances", instances::terminate),
];

/// The operations of SQS that are played.
const SQS: [(&str, Handler); 4] = [
    ("DeleteMessage", sqs::delete),
    ("DeleteMessageBatch", sqs::delete_batch),
    ("GetQueueUrl", sqs::queue_url),
    ("ReceiveMessage", sqs::receive),
];

/// Every operation that is played, with its service.
pub(crate) fn played() -> Vec<(&'static str, &'static str)> {
    let of = |service: &'static str, played: &[(&'static str, Handler)]| -> Vec<(&'static str, &'static str)> {
        played.iter().map(|(name, _)| (service, *name)).collect()
    };
    let mut all = of("ec2", &EC2);
    all.extend(of("sqs", &SQS));
    all.extend([
        ("sts", "GetCallerIdentity"),
        ("eks", "CreateAddon"),
        ("eks", "DescribeAccessEntry"),
        ("eks", "DescribeAddon"),
        ("eks", "DescribeCluster"),
        ("ssm", "GetParameter"),
        ("pricing", "GetProducts"),
        ("iam", "GetInstanceProfile"),
        ("service-quotas", "GetAWSDefaultServiceQuota"),
        ("service-quotas", "GetServiceQuota"),
        ("service-quotas", "RequestServiceQuotaIncrease"),
    ]);
    all
}

/// Finds an operation.
pub(crate) fn find(service: Service, operation: &str) -> Option<Handler> {
    let played: &[(&str, Handler)] = match service {
        Service::Ec2 => &EC2,
        Service::Sqs => &SQS,
        Service::Sts => &[("GetCallerIdentity", identity::caller)],
        Service::Iam => &[("GetInstanceProfile", identity::instance_profile)],
        Service::Eks => &[
            ("CreateAddon", identity::create_addon),
            ("DescribeAccessEntry", identity::access_entry),
            ("DescribeAddon", identity::addon),
            ("DescribeCluster", identity::cluster),
        ],
        Service::Ssm => &[("GetParameter", parameters::get)],
        Service::Pricing => &[("GetProducts", list_prices::products)],
        Service::Quotas => &[
            ("GetAWSDefaultServiceQuota", service_quotas::get_default),
            ("GetServiceQuota", service_quotas::get),
            ("RequestServiceQuotaIncrease", service_quotas::request_increase),
        ],
    };
    played.iter().find(|(name, _)| *name == operation).map(|(_, handler)| *handler)
}

/// What a dry run of a launch finds wrong with its parameters.
///
/// # Errors
/// What the call itself would be refused for, capacity, limits and tokens aside.
pub(crate) fn look_through(world: &World, operation: &str, call: &Call<'_>) -> Result<(), ApiError> {
    match operation {
        "CreateFleet" => create_fleet::look_through(world, call.form),
        "RunInstances" => run_instances::look_through(world, call.form),
        _ => Ok(()),
    }
}

/// The launch templates that a call names anywhere.
pub(crate) fn sent_templates<'a>(world: &'a World, form: &Form) -> Vec<&'a Template> {
    let named = |t: &&Template| {
        form.parameters().iter().any(|(key, value)| match key.rsplit('.').next() {
            Some("LaunchTemplateId") => *value == t.id,
            Some("LaunchTemplateName") => *value == t.name,
            _ => false,
        })
    };
    world.templates.values().filter(named).collect()
}

/// What the faults of a call are matched against.
pub(crate) fn scope(world: &World, operation: &str, form: &Form) -> CallScope {
    let dry_run = form.flag("DryRun") == Ok(true);
    let mut scope = CallScope { operation: operation.to_owned(), dry_run, ..CallScope::default() };
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
            "MarketType" | "DefaultTargetCapacityType" => scope.capacity_type = Some(capacity_type(value)),
            "GroupName" | "GroupId" if name.contains("Placement.") => {
                scope.placement_group = true;
                scope.group = Some(value.clone());
            }
            "CapacityReservationId" => scope.reservation = Some(value.clone()),
            "LaunchTemplateId" | "LaunchTemplateName" => {
                let template = world.templates.values().find(|t| t.id == *value || t.name == *value);
                if let Some(template) = template {
                    let placement = template.data.sub("Placement");
                    let group = placement.get("GroupName").or_else(|| placement.get("GroupId"));
                    scope.placement_group |= group.is_some();
                    scope.group = scope.group.or(group.map(str::to_owned));
                    let named = "CapacityReservationSpecification.CapacityReservationTarget.CapacityReservationId";
                    scope.reservation = scope.reservation.or(template.data.get(named).map(str::to_owned));
                    let provisioned = template.data.get("InstanceMarketOptions.MarketType");
                    scope.capacity_type = scope.capacity_type.or(provisioned.map(capacity_type));
                    scope.types.extend(template.data.get("InstanceType").map(str::to_owned));
                }
            }
            _ => {}
        }
    }
    if matches!(operation, "CreateFleet" | "RunInstances") {
        scope.capacity_type = scope.capacity_type.or(Some(MarketType::OnDemand));
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

/// The capacity type of a name on the wire; what is unknown is refused elsewhere.
fn capacity_type(name: &str) -> MarketType {
    [MarketType::Spot, MarketType::CapacityBlock, MarketType::InterruptibleReservation]
        .into_iter()
        .find(|m| m.name() == name)
        .unwrap_or(MarketType::OnDemand)
}
