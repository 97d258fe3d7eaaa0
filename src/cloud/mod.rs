//! The cloud as the provisioner uses it: every call that changes something goes through [`step`].
//!
//! There is no trait with a fake behind it: tests and the demo put the simulator behind the real SDK, so that retries,
//! tokens and XML are under test as well (`docs/decisions/0002-no-cloud-trait.md`).

mod lanes;
mod limits;
pub(crate) mod selectors;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use jiff::Timestamp;
use muster_core::ec2::{
    BatchTags, CallError, Denials, ErrorClass, Image, Instance, LaunchAnswer, LaunchParameters, LaunchTemplate,
    LaunchWay, Offering, PlacementGroup, Refused, Reservation, ResourceKind, SecurityGroup, Subnet, TAG_BATCH,
    TAG_CLUSTER_UID, Tags, TemplateSpec,
};
use muster_core::model::names::InstanceId;
use muster_core::offering::InstanceTypeInfo;
use muster_ec2::{
    Client, GroupQuery, ImageQuery, InstanceHealth, InstanceQuery, NetworkQuery, Pace, ReservationQuery, SpotPrices,
    TopologyQuery,
};

pub use lanes::{for_class, in_lane};
pub use limits::{CallClass, Limit, LimitSettings, Limits};

use crate::clock::Clock;
use crate::step::{Step, step};
use crate::telemetry::CloudMetrics;

/// Tries of one reading of the topology while EC2 throttles it.
const TOPOLOGY_TRIES: u32 = 5;

/// The EC2 client with crash points, rate limits and metrics.
#[derive(Debug)]
pub struct Cloud {
    client: Client,
    metrics: CloudMetrics,
    limits: Arc<Limits>,
    cluster_uid: String,
    clock: Clock,
    changes: Changes,
    denials: Mutex<Denials>,
}

/// Whether calls that change something are sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Changes {
    /// They are.
    Sent,
    /// A dry run: none of them leaves the process.
    Withheld,
}

impl Cloud {
    /// Wraps a client.
    #[must_use]
    pub fn new(
        client: Client,
        metrics: CloudMetrics,
        limits: Limits,
        cluster_uid: String,
        clock: Clock,
        changes: Changes,
    ) -> Self {
        let limits = Arc::new(limits);
        let client = client.paced(Arc::clone(&limits) as Arc<dyn Pace>);
        Self { client, metrics, limits, cluster_uid, clock, changes, denials: Mutex::default() }
    }

    /// Whether calls that change something are sent.
    pub fn changes(&self) -> Changes {
        self.changes
    }

    /// Sends a call that changes something, unless this is a dry run.
    async fn change<T>(
        &self,
        operation: &str,
        call: impl Future<Output = Result<T, CallError>>,
    ) -> Result<T, CallError> {
        match self.changes {
            Changes::Sent => call.await,
            Changes::Withheld => Err(CallError {
                operation: operation.to_owned(),
                kind: ErrorClass::NotSent,
                code: None,
                message: "provisioner.dryRun is set: nothing that changes EC2 is sent".to_owned(),
                http_status: None,
                request_id: None,
            }),
        }
    }

    /// Times a call, counts its answer and remembers what it says about our permissions.
    async fn timed<T>(
        &self,
        verb: &'static str,
        call: impl Future<Output = Result<T, CallError>>,
    ) -> Result<T, CallError> {
        let started = Instant::now();
        let result = call.await;
        self.metrics.took(verb, started.elapsed());
        self.done(verb, result)
    }

    /// Counts an answer, remembers what it says about our permissions, and hands it on.
    fn done<T>(&self, verb: &'static str, result: Result<T, CallError>) -> Result<T, CallError> {
        let result = self.metrics.count(verb, result);
        match &result {
            Ok(_) => self.allowed(&operation(verb), false),
            Err(error) => self.learn(error, false),
        }
        result
    }

    /// What a call that failed says about our permissions.
    fn learn(&self, error: &CallError, dry: bool) {
        match error.kind.permitted() {
            Some(false) => {
                let service = service(&error.operation);
                self.denied(service, &error.operation, error.code.as_deref(), &error.message, dry);
            }
            Some(true) if error.http_status.is_some() => self.allowed(&error.operation, dry),
            Some(true) | None => {}
        }
    }

    /// Remembers that a call was refused for want of a right.
    pub fn denied(&self, service: &str, operation: &str, code: Option<&str>, message: &str, dry: bool) {
        let now = self.clock.now();
        let mut denials = self.denials();
        let news = denials.count(now);
        let call = Refused { service, operation, code, message };
        denials.record(&call, lanes::class().as_deref(), dry, now);
        if denials.count(now) != news {
            tracing::warn!(operation, code, message, "a right is missing");
        }
    }

    /// Remembers that a call was carried out, or would have been.
    pub fn allowed(&self, operation: &str, dry: bool) {
        if self.denials().succeeded(operation, lanes::class().as_deref(), dry) {
            tracing::info!(operation, "is allowed again");
        }
    }

    /// What must be allowed before anything is provisioned with a class, in a sentence.
    pub fn blocked(&self, class: &str) -> Option<String> {
        self.denials().blocks(Some(class), self.clock.now())
    }

    /// Everything that is not allowed to everybody or for a class, in a sentence.
    pub fn lacks(&self, class: Option<&str>) -> Option<String> {
        self.denials().sentence(class, self.clock.now())
    }

    fn denials(&self) -> std::sync::MutexGuard<'_, Denials> {
        self.denials.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Tries out what a launch needs, and launches nothing: a template is made and deleted again, the launch itself is
    /// sent as a dry run, by both calls, and so is the making of a placement group of that name.
    ///
    /// Errors: what RunInstances would be refused for. Missing permissions are remembered, whichever call they are missing for.
    pub async fn try_out(
        &self,
        spec: &TemplateSpec,
        parameters: LaunchParameters,
        group: &str,
    ) -> Result<(), CallError> {
        if self.changes == Changes::Withheld {
            // The template it takes would be a change.
            return Ok(());
        }
        self.limits.turn(CallClass::Launch).await;
        let template = self
            .timed(
                "create-launch-template",
                step(Step::TryOut, self.change("CreateLaunchTemplate", self.client.create_launch_template(spec))),
            )
            .await?;
        let parameters = LaunchParameters {
            template_id: template.id.clone(),
            template_version: template.latest_version,
            ..parameters
        };
        let mut found = Ok(());
        for way in [LaunchWay::Fleet, LaunchWay::Run] {
            let class = match way {
                LaunchWay::Fleet => CallClass::Launch,
                LaunchWay::Run => CallClass::Run,
            };
            self.limits.turn(class).await;
            // Each of the two has a token of its own, since no token may carry two different calls.
            let parameters = LaunchParameters { way, ..parameters.clone() }.with_token(1);
            let answer = self.client.dry_run_launch(&parameters).await;
            self.tried(way_of(way), &answer);
            // What a fleet is refused for without a right being missing may be for its being a dry run.
            if way == LaunchWay::Run {
                found = answer;
            }
        }
        self.limits.turn(CallClass::Launch).await;
        let tags = parameters.tags.of(ResourceKind::PlacementGroup);
        self.tried("CreatePlacementGroup", &self.client.dry_run_placement_group(group, &tags).await);
        self.clean_up_template(Step::TryOut, &template.id).await?;
        // Templates without a batch serve nothing but this: one may have stayed when a process ended.
        let ours = Tags::from([(TAG_CLUSTER_UID.to_owned(), self.cluster_uid.clone())]);
        let templates = self.launch_templates(&ours).await?;
        for left in templates.iter().filter(|one| one.id != template.id && !one.tags.contains_key(TAG_BATCH)) {
            self.clean_up_template(Step::TryOut, &left.id).await?;
        }
        found
    }

    fn tried(&self, operation: &'static str, answer: &Result<(), CallError>) {
        match answer {
            Ok(()) => self.allowed(operation, true),
            // The template was made a moment ago: nobody looked at permissions yet.
            Err(error) if error.kind == ErrorClass::NotVisibleYet => {}
            Err(error) => self.learn(error, true),
        }
    }

    /// All instance types of the Region.
    pub async fn instance_types(&self) -> Result<Vec<InstanceTypeInfo>, CallError> {
        self.limits.turn(CallClass::Describe).await;
        self.timed("describe-instance-types", self.client.describe_instance_types(&[])).await
    }

    /// Types by zone.
    pub async fn offerings(&self) -> Result<BTreeSet<Offering>, CallError> {
        self.limits.turn(CallClass::Describe).await;
        self.timed("describe-instance-type-offerings", self.client.describe_offerings(&[])).await
    }

    /// Spot prices that hold now.
    pub async fn spot_prices(&self, types: &[String], now: Timestamp) -> Result<SpotPrices, CallError> {
        self.limits.turn(CallClass::Describe).await;
        self.timed("describe-spot-price-history", self.client.describe_spot_prices(types, now)).await
    }

    /// Micro-dollars per hour on demand by type, as the Price List API has them.
    pub async fn list_prices(&self) -> Result<BTreeMap<String, u64>, CallError> {
        self.timed("get-products", self.client.list_prices()).await
    }

    /// Subnets with their free addresses.
    pub async fn subnets(&self, query: &NetworkQuery) -> Result<Vec<Subnet>, CallError> {
        self.limits.turn(CallClass::Describe).await;
        self.timed("describe-subnets", self.client.describe_subnets(query)).await
    }

    /// Security groups.
    pub async fn security_groups(&self, query: &NetworkQuery) -> Result<Vec<SecurityGroup>, CallError> {
        self.limits.turn(CallClass::Describe).await;
        self.timed("describe-security-groups", self.client.describe_security_groups(query)).await
    }

    /// Images, newest first.
    pub async fn images(&self, query: &ImageQuery) -> Result<Vec<Image>, CallError> {
        self.limits.turn(CallClass::Describe).await;
        self.timed("describe-images", self.client.describe_images(query)).await
    }

    /// Capacity reservations with their free hosts.
    pub async fn reservations(&self, query: &ReservationQuery) -> Result<Vec<Reservation>, CallError> {
        self.limits.turn(CallClass::Describe).await;
        self.timed("describe-capacity-reservations", self.client.describe_reservations(query)).await
    }

    /// The placement group of this name, if it exists.
    pub async fn placement_group(&self, name: &str) -> Result<Option<PlacementGroup>, CallError> {
        self.limits.turn(CallClass::Describe).await;
        let groups = self
            .timed(
                "describe-placement-groups",
                self.client.describe_placement_groups(&GroupQuery::Name(name.to_owned())),
            )
            .await?;
        Ok(groups.into_iter().find(|group| group.name == name))
    }

    /// Creates a cluster placement group.
    pub async fn create_placement_group(&self, name: &str, tags: &Tags) -> Result<(), CallError> {
        self.limits.turn(CallClass::Launch).await;
        self.timed(
            "create-placement-group",
            step(
                Step::CreatePlacementGroup,
                self.change("CreatePlacementGroup", self.client.create_placement_group(name, tags)),
            ),
        )
        .await
        .map(|_| ())
    }

    /// Deletes a placement group; success if it is gone already.
    pub async fn delete_placement_group(&self, name: &str) -> Result<(), CallError> {
        self.limits.turn(CallClass::CleanUp).await;
        self.timed(
            "delete-placement-group",
            step(
                Step::DeletePlacementGroup,
                self.change("DeletePlacementGroup", self.client.delete_placement_group(name)),
            ),
        )
        .await
    }

    /// Creates a launch template, or finds the one with the same content.
    pub async fn create_launch_template(&self, spec: &TemplateSpec) -> Result<LaunchTemplate, CallError> {
        self.limits.turn(CallClass::Launch).await;
        self.timed(
            "create-launch-template",
            step(
                Step::CreateLaunchTemplate,
                self.change("CreateLaunchTemplate", self.client.create_launch_template(spec)),
            ),
        )
        .await
    }

    /// Deletes every launch template of a batch.
    pub async fn delete_launch_templates(&self, tags: &BatchTags) -> Result<(), CallError> {
        let mut of_batch = tags.sweep();
        of_batch.retain(|key, _| key != muster_core::ec2::TAG_ATTEMPT);
        for template in self.launch_templates(&of_batch).await? {
            self.clean_up_template(Step::DeleteLaunchTemplate, &template.id).await?;
        }
        Ok(())
    }

    /// Launches by the call the parameters name: all or nothing, sent once.
    pub async fn launch(&self, parameters: &LaunchParameters) -> Result<LaunchAnswer, CallError> {
        match parameters.way {
            LaunchWay::Fleet => {
                self.limits.turn(CallClass::Launch).await;
                self.timed(
                    "create-fleet",
                    step(Step::CreateFleet, self.change("CreateFleet", self.client.create_fleet(parameters))),
                )
                .await
            }
            LaunchWay::Run => {
                self.limits.turns(CallClass::RunInstances, parameters.count).await;
                self.limits.turn(CallClass::Run).await;
                self.timed(
                    "run-instances",
                    step(Step::RunInstances, self.change("RunInstances", self.client.run_instances(parameters))),
                )
                .await
            }
        }
    }

    /// What a fleet launched, by its id; `None` if EC2 does not know it (yet).
    pub async fn fleet(&self, id: &str) -> Result<Option<LaunchAnswer>, CallError> {
        self.limits.turn(CallClass::Describe).await;
        self.timed("describe-fleets", self.client.describe_fleets(id)).await
    }

    /// Deletes instant fleets with whatever they still have. The ids that were deleted.
    pub async fn delete_fleets(&self, ids: &[String]) -> Result<Vec<String>, CallError> {
        self.limits.turn(CallClass::CleanUp).await;
        self.timed(
            "delete-fleets",
            step(Step::DeleteFleets, self.change("DeleteFleets", self.client.delete_fleets(ids))),
        )
        .await
    }

    /// Terminates instances; ids EC2 does not know are passed over.
    pub async fn terminate_instances(&self, ids: &[InstanceId]) -> Result<(), CallError> {
        self.limits.turn(CallClass::Terminate).await;
        self.timed(
            "terminate-instances",
            step(Step::TerminateInstances, self.change("TerminateInstances", self.client.terminate_instances(ids))),
        )
        .await
        .map(|_| ())
    }

    /// Instances by id; unknown ones are missing from the answer.
    pub async fn instances(&self, ids: &[InstanceId]) -> Result<Vec<Instance>, CallError> {
        if ids.is_empty() {
            return Ok(Vec::new());
        }
        self.limits.turn(CallClass::Describe).await;
        self.timed("describe-instances", self.client.describe_instances(&InstanceQuery::Ids(ids.to_vec()))).await
    }

    /// Instances by tags.
    pub async fn instances_by_tags(&self, tags: &Tags) -> Result<Vec<Instance>, CallError> {
        self.limits.turn(CallClass::Describe).await;
        self.timed("describe-instances", self.client.describe_instances(&InstanceQuery::Tags(tags.clone()))).await
    }

    /// Placement groups by tags.
    pub async fn placement_groups(&self, tags: &Tags) -> Result<Vec<PlacementGroup>, CallError> {
        self.limits.turn(CallClass::Describe).await;
        self.timed("describe-placement-groups", self.client.describe_placement_groups(&GroupQuery::Tags(tags.clone())))
            .await
    }

    /// Launch templates by tags.
    pub async fn launch_templates(&self, tags: &Tags) -> Result<Vec<LaunchTemplate>, CallError> {
        self.limits.turn(CallClass::Describe).await;
        self.timed("describe-launch-templates", self.client.describe_launch_templates(tags)).await
    }

    /// Deletes a launch template by its id.
    pub async fn delete_launch_template(&self, id: &str) -> Result<(), CallError> {
        self.clean_up_template(Step::DeleteLaunchTemplate, id).await
    }

    /// Deletes a launch template in its turn, whatever it was for.
    async fn clean_up_template(&self, purpose: Step, id: &str) -> Result<(), CallError> {
        self.limits.turn(CallClass::CleanUp).await;
        self.timed(
            "delete-launch-template",
            step(purpose, self.change("DeleteLaunchTemplate", self.client.delete_launch_template(id))),
        )
        .await
    }

    /// What an instance has written on its console.
    pub async fn console(&self, id: &InstanceId) -> Result<String, CallError> {
        self.limits.turn(CallClass::Describe).await;
        self.timed("get-console-output", self.client.console_output(id)).await
    }

    /// Status checks and scheduled events of instances.
    pub async fn health(&self, ids: &[InstanceId]) -> Result<Vec<InstanceHealth>, CallError> {
        self.limits.turn(CallClass::Describe).await;
        self.timed("describe-instance-status", self.client.describe_instance_health(ids)).await
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
            let call = self.timed("describe-instance-topology", self.client.describe_topology(&query));
            let result = self.limits.topology(call).await;
            match result {
                Err(error) if error.kind == ErrorClass::Throttle && tries < TOPOLOGY_TRIES => tries += 1,
                result => return result,
            }
        }
    }

    /// The id of the image that a parameter of SSM holds.
    pub async fn image_parameter(&self, name: &str) -> Result<String, CallError> {
        // SSM has a limit of its own, which a reading now and then does not come near.
        self.timed("get-parameter", self.client.image_parameter(name)).await
    }
}

fn way_of(way: LaunchWay) -> &'static str {
    match way {
        LaunchWay::Fleet => "CreateFleet",
        LaunchWay::Run => "RunInstances",
    }
}

/// The name of the call behind a verb of the metrics.
fn operation(verb: &str) -> String {
    let word = |word: &str| {
        let (first, rest) = word.split_at(word.len().min(1));
        first.to_ascii_uppercase() + rest
    };
    verb.split('-').map(word).collect()
}

/// The service of a call, as actions spell it.
fn service(operation: &str) -> &'static str {
    match operation {
        "GetParameter" => "ssm",
        "GetProducts" => "pricing",
        _ => "ec2",
    }
}

#[cfg(test)]
mod tests {
    use super::operation;

    #[test]
    fn a_verb_of_the_metrics_stands_for_the_call_of_that_name() {
        assert_eq!(operation("describe-instance-type-offerings"), "DescribeInstanceTypeOfferings");
        assert_eq!(operation("run-instances"), "RunInstances");
    }
}
