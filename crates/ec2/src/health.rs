//! DescribeInstanceStatus: what needs no queue to be known.

use aws_sdk_ec2::operation::describe_instance_status::builders::DescribeInstanceStatusInputBuilder;
use aws_sdk_ec2::types::SummaryStatus;
use jiff::Timestamp;
use muster_core::ec2::{CallError, InstanceState};
use muster_core::model::names::InstanceId;

use crate::Client;
use crate::instances::drop_unknown;

const OPERATION: &str = "DescribeInstanceStatus";
/// Ids per call: the most EC2 takes.
const IDS: usize = 100;

/// What the status checks and scheduled events say of an instance.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InstanceHealth {
    /// Id.
    pub id: InstanceId,
    /// State.
    pub state: InstanceState,
    /// Since when a status check fails, if one does and EC2 says since when.
    pub impaired_since: Option<Timestamp>,
    /// The earliest start of a scheduled event that is not over.
    pub event_at: Option<Timestamp>,
}

impl Client {
    /// Health of these instances, whatever their state; ids that EC2 does not know are missing from the answer.
    pub async fn describe_instance_health(&self, ids: &[InstanceId]) -> Result<Vec<InstanceHealth>, CallError> {
        let (mut all, mut turns) = (Vec::new(), self.turns(OPERATION));
        for chunk in ids.chunks(IDS) {
            let mut wanted = chunk.to_vec();
            while !wanted.is_empty() {
                turns.next().await;
                let call = DescribeInstanceStatusInputBuilder::default()
                    .include_all_instances(true)
                    .set_instance_ids(Some(wanted.iter().map(|id| id.as_str().to_owned()).collect()))
                    .send_with(&self.calls);
                match Box::pin(call).await.map_err(|error| self.failed(OPERATION, error)) {
                    Ok(output) => {
                        all.extend(output.instance_statuses().iter().map(health));
                        break;
                    }
                    Err(error) => drop_unknown(&mut wanted, error).map(|_| ())?,
                }
            }
        }
        Ok(all)
    }
}

fn health(status: &aws_sdk_ec2::types::InstanceStatus) -> InstanceHealth {
    let state = status.instance_state().and_then(|state| state.name());
    let summaries = [status.instance_status(), status.system_status()];
    let impaired_since = summaries
        .into_iter()
        .flatten()
        .filter(|summary| summary.status() == Some(&SummaryStatus::Impaired))
        .flat_map(|summary| summary.details())
        .filter_map(|detail| detail.impaired_since())
        .filter_map(|at| Timestamp::from_second(at.secs()).ok())
        .min();
    let event_at = status
        .events()
        .iter()
        // EC2 keeps what is over for a week, marked in its description.
        .filter(|event| {
            !event.description().is_some_and(|text| text.starts_with("[Completed]") || text.starts_with("[Canceled]"))
        })
        .filter_map(|event| event.not_before())
        .filter_map(|at| Timestamp::from_second(at.secs()).ok())
        .min();
    InstanceHealth {
        id: InstanceId::from(status.instance_id().unwrap_or_default()),
        state: InstanceState::parse(state.map_or("", |state| state.as_str())),
        impaired_since,
        event_at,
    }
}
