//! The cloud as the provisioner uses it: every call that changes something goes through [`step`].
//!
//! There is no trait with a fake behind it: tests and the demo put the simulator behind the real SDK, so that retries,
//! tokens and XML are under test as well (`docs/decisions/0002-no-cloud-trait.md`).

mod limits;

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use muster_core::cloud::{
    BatchTags, CallError, Image, Instance, InstanceTypeInfo, LaunchAnswer, LaunchParameters, LaunchTemplate, LaunchWay,
    Offering, PlacementGroup, Reservation, SecurityGroup, Subnet, TAG_BATCH, TAG_CLUSTER_UID, Tags, TemplateSpec,
};
use muster_core::names::InstanceId;
use muster_ec2::{
    Client, GroupQuery, ImageQuery, ImageSource, InstanceHealth, InstanceQuery, NetworkQuery, ReservationQuery,
    SpotPrices, TopologyQuery,
};

pub use limits::{CallClass, Limit, LimitSettings, Limits};

use crate::step::{Step, step};
use crate::telemetry::CloudMetrics;

/// Tries of one reading of the topology while EC2 throttles it.
const TOPOLOGY_TRIES: u32 = 5;

/// The EC2 client with crash points, rate limits and metrics.
#[derive(Debug)]
pub struct Cloud {
    client: Client,
    metrics: CloudMetrics,
    limits: Limits,
    cluster_uid: String,
}

impl Cloud {
    /// Wraps a client.
    #[must_use]
    pub fn new(client: Client, metrics: CloudMetrics, limits: Limits, cluster_uid: String) -> Self {
        Self { client, metrics, limits, cluster_uid }
    }

    /// All instance types of the Region.
    pub async fn instance_types(&self) -> Result<Vec<InstanceTypeInfo>, CallError> {
        self.limits.turn(CallClass::Describe).await;
        self.metrics.count("describe-instance-types", self.client.describe_instance_types(&[]).await)
    }

    /// Types by zone.
    pub async fn offerings(&self) -> Result<BTreeSet<Offering>, CallError> {
        self.limits.turn(CallClass::Describe).await;
        self.metrics.count("describe-instance-type-offerings", self.client.describe_offerings(&[]).await)
    }

    /// Spot prices that hold now.
    pub async fn spot_prices(&self, types: &[String], now: Timestamp) -> Result<SpotPrices, CallError> {
        self.limits.turn(CallClass::Describe).await;
        self.metrics.count("describe-spot-price-history", self.client.describe_spot_prices(types, now).await)
    }

    /// Subnets with their free addresses.
    pub async fn subnets(&self, query: &NetworkQuery) -> Result<Vec<Subnet>, CallError> {
        self.limits.turn(CallClass::Describe).await;
        self.metrics.count("describe-subnets", self.client.describe_subnets(query).await)
    }

    /// Security groups.
    pub async fn security_groups(&self, query: &NetworkQuery) -> Result<Vec<SecurityGroup>, CallError> {
        self.limits.turn(CallClass::Describe).await;
        self.metrics.count("describe-security-groups", self.client.describe_security_groups(query).await)
    }

    /// Images, newest first.
    pub async fn images(&self, query: &ImageQuery) -> Result<Vec<Image>, CallError> {
        self.limits.turn(CallClass::Describe).await;
        self.metrics.count("describe-images", self.client.describe_images(query).await)
    }

    /// Capacity reservations with their free hosts.
    pub async fn reservations(&self, query: &ReservationQuery) -> Result<Vec<Reservation>, CallError> {
        self.limits.turn(CallClass::Describe).await;
        self.metrics.count("describe-capacity-reservations", self.client.describe_reservations(query).await)
    }

    /// The placement group of this name, if it exists.
    pub async fn placement_group(&self, name: &str) -> Result<Option<PlacementGroup>, CallError> {
        self.limits.turn(CallClass::Describe).await;
        let groups = self.client.describe_placement_groups(&GroupQuery::Name(name.to_owned())).await;
        let groups = self.metrics.count("describe-placement-groups", groups)?;
        Ok(groups.into_iter().find(|group| group.name == name))
    }

    /// Creates a cluster placement group.
    pub async fn create_placement_group(&self, name: &str, tags: &Tags) -> Result<(), CallError> {
        self.limits.turn(CallClass::Launch).await;
        let result = step(Step::CreatePlacementGroup, self.client.create_placement_group(name, tags)).await;
        self.metrics.count("create-placement-group", result).map(|_| ())
    }

    /// Deletes a placement group; success if it is gone already.
    pub async fn delete_placement_group(&self, name: &str) -> Result<(), CallError> {
        self.limits.turn(CallClass::CleanUp).await;
        let result = step(Step::DeletePlacementGroup, self.client.delete_placement_group(name)).await;
        self.metrics.count("delete-placement-group", result)
    }

    /// Creates a launch template, or finds the one with the same content.
    pub async fn create_launch_template(&self, spec: &TemplateSpec) -> Result<LaunchTemplate, CallError> {
        self.limits.turn(CallClass::Launch).await;
        let result = step(Step::CreateLaunchTemplate, self.client.create_launch_template(spec)).await;
        self.metrics.count("create-launch-template", result)
    }

    /// Deletes every launch template of a batch.
    pub async fn delete_launch_templates(&self, tags: &BatchTags) -> Result<(), CallError> {
        let mut of_batch = tags.sweep();
        of_batch.retain(|key, _| key != muster_core::cloud::TAG_ATTEMPT);
        for template in self.client.describe_launch_templates(&of_batch).await? {
            let result = step(Step::DeleteLaunchTemplate, self.client.delete_launch_template(&template.id)).await;
            self.metrics.count("delete-launch-template", result)?;
        }
        Ok(())
    }

    /// Launches by the call the parameters name: all or nothing, sent once.
    pub async fn launch(&self, parameters: &LaunchParameters) -> Result<LaunchAnswer, CallError> {
        match parameters.way {
            LaunchWay::Fleet => {
                self.limits.turn(CallClass::Launch).await;
                let result = step(Step::CreateFleet, self.client.create_fleet(parameters)).await;
                self.metrics.count("create-fleet", result)
            }
            LaunchWay::Run => {
                self.limits.turns(CallClass::RunInstances, parameters.count).await;
                self.limits.turn(CallClass::Run).await;
                let result = step(Step::RunInstances, self.client.run_instances(parameters)).await;
                self.metrics.count("run-instances", result)
            }
        }
    }

    /// What a fleet launched, by its id; `None` if EC2 does not know it (yet).
    pub async fn fleet(&self, id: &str) -> Result<Option<LaunchAnswer>, CallError> {
        self.limits.turn(CallClass::Describe).await;
        let result = self.client.describe_fleets(id).await;
        self.metrics.count("describe-fleets", result)
    }

    /// Terminates instances; ids EC2 does not know are left out.
    pub async fn terminate_instances(&self, ids: &[InstanceId]) -> Result<(), CallError> {
        self.limits.turn(CallClass::Terminate).await;
        let result = step(Step::TerminateInstances, self.client.terminate_instances(ids)).await;
        self.metrics.count("terminate-instances", result).map(|_| ())
    }

    /// Instances by id; unknown ones are missing from the answer.
    pub async fn instances(&self, ids: &[InstanceId]) -> Result<Vec<Instance>, CallError> {
        if ids.is_empty() {
            return Ok(Vec::new());
        }
        self.limits.turn(CallClass::Describe).await;
        let result = self.client.describe_instances(&InstanceQuery::Ids(ids.to_vec())).await;
        self.metrics.count("describe-instances", result)
    }

    /// Instances by tags.
    pub async fn instances_by_tags(&self, tags: &Tags) -> Result<Vec<Instance>, CallError> {
        self.limits.turn(CallClass::Describe).await;
        let result = self.client.describe_instances(&InstanceQuery::Tags(tags.clone())).await;
        self.metrics.count("describe-instances", result)
    }

    /// Placement groups by tags.
    pub async fn placement_groups(&self, tags: &Tags) -> Result<Vec<PlacementGroup>, CallError> {
        self.limits.turn(CallClass::Describe).await;
        let result = self.client.describe_placement_groups(&GroupQuery::Tags(tags.clone())).await;
        self.metrics.count("describe-placement-groups", result)
    }

    /// Launch templates by tags.
    pub async fn launch_templates(&self, tags: &Tags) -> Result<Vec<LaunchTemplate>, CallError> {
        self.limits.turn(CallClass::Describe).await;
        let result = self.client.describe_launch_templates(tags).await;
        self.metrics.count("describe-launch-templates", result)
    }

    /// Deletes a launch template by its id.
    pub async fn delete_launch_template(&self, id: &str) -> Result<(), CallError> {
        self.limits.turn(CallClass::CleanUp).await;
        let result = step(Step::DeleteLaunchTemplate, self.client.delete_launch_template(id)).await;
        self.metrics.count("delete-launch-template", result)
    }

    /// Status checks and scheduled events of instances.
    pub async fn health(&self, ids: &[InstanceId]) -> Result<Vec<InstanceHealth>, CallError> {
        self.limits.turn(CallClass::Describe).await;
        let result = self.client.describe_instance_health(ids).await;
        self.metrics.count("describe-instance-status", result)
    }

    /// Network nodes from the top, by instance: one call for a whole group.
    pub async fn topology(
        &self,
        group: Option<&str>,
        ids: &[InstanceId],
    ) -> Result<BTreeMap<InstanceId, Vec<String>>, CallError> {
        let query = match group {
            Some(group) => TopologyQuery::Group(group.to_owned()),
            None => TopologyQuery::Instances(ids.to_vec()),
        };
        let mut tries = 1;
        loop {
            // Each try is a turn: the cloud controller draws on the same bucket of one call a second.
            let result = self.limits.topology(self.client.describe_topology(&query)).await;
            let result = self.metrics.count("describe-instance-topology", result);
            match result {
                Err(error) if error.kind == muster_core::cloud::ErrorClass::Throttle && tries < TOPOLOGY_TRIES => {
                    tries += 1
                }
                result => return result,
            }
        }
    }

    /// Resolves an image to its id; an SSM path goes through a launch template of ours, which is deleted again.
    pub async fn resolve_image(&self, image: &ImageSource) -> Result<String, CallError> {
        let tags = Tags::from([(TAG_CLUSTER_UID.to_owned(), self.cluster_uid.clone())]);
        self.limits.turn(CallClass::Launch).await;
        let result = step(Step::ResolveImage, self.client.resolve_image(image, &tags)).await;
        if let ImageSource::SsmParameter(_) = image {
            // Templates without a batch serve nothing but this.
            let templates = self.client.describe_launch_templates(&tags).await?;
            for template in templates.iter().filter(|template| !template.tags.contains_key(TAG_BATCH)) {
                let deleted = step(Step::ResolveImage, self.client.delete_launch_template(&template.id)).await;
                self.metrics.count("delete-launch-template", deleted)?;
            }
        }
        self.metrics.count("resolve-image", result)
    }
}
