//! DescribeInstanceStatus: what needs no queue to be known.

use aws_sdk_ec2::operation::describe_instance_status::builders::DescribeInstanceStatusInputBuilder;
use aws_sdk_ec2::types::{InstanceStatusEvent, SummaryStatus};
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
    /// EC2 shows events, and all of them as completed or cancelled.
    pub events_over: bool,
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
    // EC2 keeps what is over for a week, marked in its description.
    let is_over = |event: &InstanceStatusEvent| {
        event.description().is_some_and(|text| text.starts_with("[Completed]") || text.starts_with("[Canceled]"))
    };
    let event_at = status
        .events()
        .iter()
        .filter(|event| !is_over(event))
        .filter_map(|event| event.not_before())
        .filter_map(|at| Timestamp::from_second(at.secs()).ok())
        .min();
    InstanceHealth {
        id: InstanceId::from(status.instance_id().unwrap_or_default()),
        state: InstanceState::parse(state.map_or("", |state| state.as_str())),
        impaired_since,
        event_at,
        events_over: !status.events().is_empty() && status.events().iter().all(is_over),
    }
}

#[cfg(test)]
mod tests {
    use aws_sdk_ec2::primitives::DateTime;
    use aws_sdk_ec2::types::InstanceStatus;

    use super::*;

    fn events(of: &[(&str, i64)]) -> InstanceHealth {
        let events = of.iter().map(|(description, at)| {
            let at = DateTime::from_secs(1_800_000_000 + at);
            InstanceStatusEvent::builder().description(*description).not_before(at).build()
        });
        health(&InstanceStatus::builder().instance_id("i-1").set_events(Some(events.collect())).build())
    }

    #[test]
    fn an_event_is_over_where_ec2_marks_it_and_no_other_waits() {
        let at = |seconds: i64| Timestamp::from_second(1_800_000_000 + seconds).ok();
        let none = events(&[]);
        assert_eq!((none.event_at, none.events_over), (None, false));
        let cancelled = events(&[("[Canceled] The instance is running on degraded hardware", 60)]);
        assert_eq!((cancelled.event_at, cancelled.events_over), (None, true));
        let both = events(&[("[Completed] a reboot", 60), ("a stop", 7200), ("a reboot", 3600)]);
        assert_eq!((both.event_at, both.events_over), (at(3600), false));
    }
}
