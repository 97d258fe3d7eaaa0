//! Instances: describing, terminating, and where they stand in the network.

use std::collections::{BTreeMap, BTreeSet};

use aws_sdk_ec2::operation::describe_instance_topology::builders::DescribeInstanceTopologyInputBuilder;
use aws_sdk_ec2::operation::describe_instances::DescribeInstancesOutput;
use aws_sdk_ec2::operation::describe_instances::builders::DescribeInstancesInputBuilder;
use aws_sdk_ec2::operation::terminate_instances::builders::TerminateInstancesInputBuilder;
use aws_sdk_ec2::types::InstanceStateName;
use jiff::Timestamp;
use muster_core::ec2::{CallError, Instance, InstanceState, StateReason, Tags, transition_time};
use muster_core::model::names::InstanceId;

use crate::Client;
use crate::convert::{from_tags, present, tag_filters, text};
use crate::pace::Turns;

const DESCRIBE: &str = "DescribeInstances";
const TERMINATE: &str = "TerminateInstances";
const TOPOLOGY: &str = "DescribeInstanceTopology";
/// What EC2 answers where one of the instances has termination protection.
const PROTECTED: &str = "OperationNotPermitted";
/// Instances per page: the most EC2 gives.
const PAGE: i32 = 1000;
/// Ids per call. EC2 names no limit but asks for moderate calls; a rollback of 1000 is two.
const IDS: usize = 500;
/// Ids, and results, per topology call: the most EC2 takes.
const TOPOLOGY_IDS: usize = 100;
const TOPOLOGY_PAGE: i32 = 100;

/// Which instances to describe.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum InstanceQuery {
    /// These; ids that EC2 does not know (yet) are missing from the answer.
    Ids(Vec<InstanceId>),
    /// All that carry these tags, terminated ones included for about an hour.
    Tags(Tags),
}

/// Whose place in the network to ask for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TopologyQuery {
    /// All instances of a placement group.
    Group(String),
    /// These.
    Instances(Vec<InstanceId>),
}

/// What a termination did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Terminated {
    /// Shutting down or terminated.
    pub accepted: Vec<InstanceId>,
    /// Ids EC2 does not know. Within one or two minutes of the launch they may only not be visible yet: try again.
    pub unknown: Vec<InstanceId>,
}

impl Client {
    /// Describes instances, in order of id. Always filtered or by id, and paginated.
    pub async fn describe_instances(&self, query: &InstanceQuery) -> Result<Vec<Instance>, CallError> {
        let (mut instances, mut turns) = (Vec::new(), self.turns(DESCRIBE));
        match query {
            InstanceQuery::Tags(tags) => {
                if tags.is_empty() {
                    return Err(CallError::refused_here(DESCRIBE, "neither ids nor tags: refusing to list an account"));
                }
                let mut token = None;
                loop {
                    turns.next().await;
                    let page = DescribeInstancesInputBuilder::default()
                        .set_filters(Some(tag_filters(tags)))
                        .max_results(PAGE)
                        .set_next_token(token.take());
                    let call = page.send_with(&self.calls);
                    let output = Box::pin(call).await.map_err(|error| self.failed(DESCRIBE, error))?;
                    read(&output, &mut instances);
                    token = present(output.next_token());
                    if token.is_none() {
                        break;
                    }
                }
            }
            InstanceQuery::Ids(ids) => {
                for chunk in distinct(ids).chunks(IDS) {
                    self.describe_known(chunk, &mut turns, &mut instances).await?;
                }
            }
        }
        instances.sort_by(|one, other| one.id.cmp(&other.id));
        Ok(instances)
    }

    async fn describe_known(
        &self,
        ids: &[InstanceId],
        turns: &mut Turns<'_>,
        instances: &mut Vec<Instance>,
    ) -> Result<(), CallError> {
        let mut wanted = ids.to_vec();
        while !wanted.is_empty() {
            turns.next().await;
            let request = DescribeInstancesInputBuilder::default().set_instance_ids(Some(texts(&wanted)));
            match Box::pin(request.send_with(&self.calls)).await.map_err(|error| self.failed(DESCRIBE, error)) {
                Ok(output) => {
                    read(&output, instances);
                    break;
                }
                Err(error) => drop_unknown(&mut wanted, error).map(|_| ())?,
            }
        }
        Ok(())
    }

    /// Terminates instances. Idempotent. One unknown id makes EC2 refuse the whole call, so ids it names as unknown are
    /// excluded, reported, and the rest is sent again. One with termination protection makes it refuse all of its zone: the
    /// error comes once the rest was sent.
    pub async fn terminate_instances(&self, ids: &[InstanceId]) -> Result<Terminated, CallError> {
        let (mut done, mut turns) = (Terminated::default(), self.turns(TERMINATE));
        let mut refused = None;
        for chunk in distinct(ids).chunks(IDS) {
            let mut wanted = chunk.to_vec();
            while !wanted.is_empty() {
                turns.next().await;
                let request = TerminateInstancesInputBuilder::default().set_instance_ids(Some(texts(&wanted)));
                match Box::pin(request.send_with(&self.calls)).await.map_err(|error| self.failed(TERMINATE, error)) {
                    Ok(_) => {
                        done.accepted.append(&mut wanted);
                    }
                    Err(error) if error.code.as_deref() == Some(PROTECTED) => {
                        if take_named(&mut wanted, &error.message).is_empty() {
                            return Err(error);
                        }
                        refused = Some(error);
                    }
                    Err(error) => done.unknown.append(&mut drop_unknown(&mut wanted, error)?),
                }
            }
        }
        refused.map_or(Ok(done), Err)
    }

    /// Network nodes of running instances, from the top of the network to the closest. Instances that are not running,
    /// and types EC2 does not report, are missing.
    ///
    /// The tightest throttle there is (one call a second per account and Region): once per batch, never per instance.
    pub async fn describe_topology(
        &self,
        query: &TopologyQuery,
    ) -> Result<BTreeMap<InstanceId, Vec<String>>, CallError> {
        let mut places = BTreeMap::new();
        let requests = match query {
            TopologyQuery::Group(name) => {
                vec![DescribeInstanceTopologyInputBuilder::default().group_names(name).max_results(TOPOLOGY_PAGE)]
            }
            TopologyQuery::Instances(ids) => distinct(ids)
                .chunks(TOPOLOGY_IDS)
                .map(|chunk| DescribeInstanceTopologyInputBuilder::default().set_instance_ids(Some(texts(chunk))))
                .collect(),
        };
        let mut turns = self.turns(TOPOLOGY);
        for request in requests {
            let mut token = None;
            loop {
                turns.next().await;
                let page = request.clone().set_next_token(token.take());
                // One try: the budget is one call a second, and the SDK's own tries would not keep to it.
                let call = page.send_with(&self.launches);
                let output = Box::pin(call).await.map_err(|error| self.failed(TOPOLOGY, error))?;
                for instance in output.instances() {
                    if let (Some(id), false) = (instance.instance_id(), instance.network_nodes().is_empty()) {
                        places.insert(InstanceId::from(id), instance.network_nodes().to_vec());
                    }
                }
                token = present(output.next_token());
                if token.is_none() {
                    break;
                }
            }
        }
        Ok(places)
    }
}

fn distinct(ids: &[InstanceId]) -> Vec<InstanceId> {
    ids.iter().cloned().collect::<BTreeSet<_>>().into_iter().collect()
}

fn texts(ids: &[InstanceId]) -> Vec<String> {
    ids.iter().map(|id| id.as_str().to_owned()).collect()
}

/// Takes the ids that an `InvalidInstanceID.NotFound` names out of `wanted`. Any other error, or one that names none of
/// them, is returned, so a loop over this ends.
pub(crate) fn drop_unknown(wanted: &mut Vec<InstanceId>, error: CallError) -> Result<Vec<InstanceId>, CallError> {
    if error.code.as_deref() != Some("InvalidInstanceID.NotFound") {
        return Err(error);
    }
    let unknown = take_named(wanted, &error.message);
    if unknown.is_empty() { Err(error) } else { Ok(unknown) }
}

/// Takes out the ids that a message names.
fn take_named(wanted: &mut Vec<InstanceId>, message: &str) -> Vec<InstanceId> {
    let named: BTreeSet<&str> = message.split(|c: char| !c.is_ascii_alphanumeric() && c != '-').collect();
    let (taken, left) = wanted.drain(..).partition(|id: &InstanceId| named.contains(id.as_str()));
    *wanted = left;
    taken
}

fn read(output: &DescribeInstancesOutput, instances: &mut Vec<Instance>) {
    let all = output.reservations().iter().flat_map(|reservation| reservation.instances());
    instances.extend(all.map(instance));
}

fn instance(instance: &aws_sdk_ec2::types::Instance) -> Instance {
    let placement = instance.placement();
    let launched = instance.launch_time();
    let state = instance.state().and_then(|state| state.name());
    let ends = matches!(state, Some(InstanceStateName::ShuttingDown | InstanceStateName::Terminated));
    Instance {
        id: InstanceId::from(instance.instance_id().unwrap_or_default()),
        state: InstanceState::parse(state.map_or("", |state| state.as_str())),
        state_reason: instance
            .state_reason()
            .map(|reason| StateReason { code: text(reason.code()), message: text(reason.message()) }),
        instance_type: text(instance.instance_type().map(|name| name.as_str())),
        zone: text(placement.and_then(|placement| placement.availability_zone())),
        private_dns_name: present(instance.private_dns_name()),
        launch_time: launched.and_then(|time| Timestamp::from_second(time.secs()).ok()),
        tags: from_tags(instance.tags()),
        placement_group: present(placement.and_then(|placement| placement.group_name())),
        placement_group_id: present(placement.and_then(|placement| placement.group_id())),
        image_id: text(instance.image_id()),
        subnet_id: present(instance.subnet_id()),
        ended: instance.state_transition_reason().and_then(transition_time).filter(|_| ends),
    }
}

#[cfg(test)]
mod tests {
    use aws_sdk_ec2::primitives::DateTime;
    use aws_sdk_ec2::types::{InstanceState as SdkState, InstanceType, Placement, Reservation};

    use super::*;

    fn not_found(message: &str) -> CallError {
        let mut error = CallError::refused_here(TERMINATE, message);
        error.code = Some("InvalidInstanceID.NotFound".to_owned());
        error
    }

    #[test]
    fn ids_named_as_unknown_are_dropped_and_the_rest_stays() {
        let mut wanted: Vec<InstanceId> = ["i-1", "i-12", "i-3"].map(InstanceId::from).to_vec();
        let unknown = drop_unknown(&mut wanted, not_found("The instance IDs 'i-1, i-3' do not exist")).unwrap();
        assert_eq!(unknown, ["i-1", "i-3"].map(InstanceId::from));
        assert_eq!(wanted, [InstanceId::from("i-12")]);
    }

    #[test]
    fn an_error_that_names_none_of_ours_is_no_reason_to_go_on() {
        let mut wanted = vec![InstanceId::from("i-1")];
        assert!(drop_unknown(&mut wanted, not_found("The instance ID 'i-9' does not exist")).is_err());
        assert_eq!(wanted.len(), 1);
        assert!(drop_unknown(&mut wanted, CallError::refused_here(TERMINATE, "i-1")).is_err());
    }

    #[test]
    fn an_instance_is_read_with_what_the_lifecycle_needs() {
        let sdk = aws_sdk_ec2::types::Instance::builder()
            .instance_id("i-1")
            .instance_type(InstanceType::from("p5.48xlarge"))
            .state(SdkState::builder().name(InstanceStateName::Running).build())
            .placement(Placement::builder().availability_zone("us-east-1a").group_name("g").build())
            .private_dns_name("")
            .launch_time(DateTime::from_secs(1_800_000_000))
            .image_id("ami-1")
            .build();
        let output =
            DescribeInstancesOutput::builder().reservations(Reservation::builder().instances(sdk).build()).build();
        let mut instances = Vec::new();
        read(&output, &mut instances);
        let found = &instances[0];
        assert_eq!(found.state, InstanceState::Running);
        assert_eq!((found.zone.as_str(), found.placement_group.as_deref()), ("us-east-1a", Some("g")));
        assert_eq!(found.private_dns_name, None);
        assert_eq!(found.launch_time.unwrap().as_second(), 1_800_000_000);
    }

    #[test]
    fn the_end_of_an_instance_is_read_where_ec2_shows_it_and_the_transition_was_its_end() {
        let ended = |state, reason: &str| {
            let state = SdkState::builder().name(state).build();
            let sdk = aws_sdk_ec2::types::Instance::builder().state(state).state_transition_reason(reason).build();
            instance(&sdk).ended.map(|at| at.to_string())
        };
        let asked = "User initiated (2026-11-22 10:00:07 GMT)";
        for state in [InstanceStateName::ShuttingDown, InstanceStateName::Terminated] {
            assert_eq!(ended(state.clone(), asked).as_deref(), Some("2026-11-22T10:00:07Z"));
            assert_eq!(ended(state, "Server.InternalError"), None);
        }
        assert_eq!(ended(InstanceStateName::Running, asked), None, "started again since");
    }
}
