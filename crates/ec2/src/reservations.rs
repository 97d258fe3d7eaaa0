//! Capacity reservations and Capacity Blocks.

use aws_sdk_ec2::operation::describe_capacity_reservations::builders::DescribeCapacityReservationsInputBuilder;
use aws_sdk_ec2::primitives::DateTime;
use aws_sdk_ec2::types::{CapacityReservation, CapacityReservationType, InstanceMatchCriteria};
use jiff::Timestamp;
use muster_core::ec2::{CallError, Reservation, ReservationState, Tags};

use crate::Client;
use crate::convert::{filter, from_tags, present, some, tag_filters, text, unsigned};

const DESCRIBE: &str = "DescribeCapacityReservations";
/// Reservations per page: the most EC2 gives.
const PAGE: i32 = 1000;

/// Which reservations to describe; empty fields do not restrict.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReservationQuery {
    /// Ids.
    pub ids: Vec<String>,
    /// Tags.
    pub tags: Tags,
    /// Account that owns it.
    pub owner: Option<String>,
    /// `open` or `targeted`.
    pub match_criteria: Option<String>,
}

impl Client {
    /// Describes reservations with their free hosts now, in order of id; an unknown id fails the call.
    pub async fn describe_reservations(&self, query: &ReservationQuery) -> Result<Vec<Reservation>, CallError> {
        let mut filters = tag_filters(&query.tags);
        filters.extend(query.owner.iter().map(|owner| filter("owner-id", [owner.clone()])));
        filters.extend(query.match_criteria.iter().map(|one| filter("instance-match-criteria", [one.clone()])));
        let mut found = Vec::new();
        let (mut token, mut turns) = (None, self.turns(DESCRIBE));
        loop {
            turns.next().await;
            let page = DescribeCapacityReservationsInputBuilder::default()
                .set_capacity_reservation_ids(some(query.ids.clone()))
                .set_filters(some(filters.clone()))
                // With ids there are no pages.
                .set_max_results(query.ids.is_empty().then_some(PAGE))
                .set_next_token(token.take());
            let call = page.send_with(&self.calls);
            let output = Box::pin(call).await.map_err(|error| self.failed(DESCRIBE, error))?;
            for seen in output.capacity_reservations() {
                let mut read = reservation(seen);
                if let Some(arn) = seen.placement_group_arn().filter(|_| read.placement_group.is_some()) {
                    read.placement_group = Some(self.reference(arn).await);
                }
                found.push(read);
            }
            token = present(output.next_token());
            if token.is_none() {
                break;
            }
        }
        found.sort();
        Ok(found)
    }
}

fn reservation(seen: &CapacityReservation) -> Reservation {
    let time = |time: Option<&DateTime>| time.and_then(|time| Timestamp::from_second(time.secs()).ok());
    // arn:aws:ec2:us-east-1:123456789012:placement-group/NAME
    let group = present(seen.placement_group_arn());
    let group = group.and_then(|arn| arn.rsplit_once('/').map(|(_, name)| name.to_owned()));
    Reservation {
        id: text(seen.capacity_reservation_id()),
        instance_type: text(seen.instance_type()),
        zone: text(seen.availability_zone()),
        state: ReservationState::parse(seen.state().map_or("", |state| state.as_str())),
        block: seen.reservation_type() == Some(&CapacityReservationType::CapacityBlock),
        targeted: seen.instance_match_criteria() == Some(&InstanceMatchCriteria::Targeted),
        placement_group: group,
        total: unsigned(seen.total_instance_count()),
        free: unsigned(seen.available_instance_count()),
        start: time(seen.start_date()),
        end: time(seen.end_date()),
        owner: text(seen.owner_id()),
        tags: from_tags(seen.tags()),
    }
}

#[cfg(test)]
mod tests {
    use aws_sdk_ec2::types::CapacityReservationState;

    use super::*;

    #[test]
    fn a_reservation_is_read_with_group_times_and_free_hosts() {
        let seen = CapacityReservation::builder()
            .capacity_reservation_id("cr-1")
            .instance_type("p5.48xlarge")
            .availability_zone("us-east-1a")
            .state(CapacityReservationState::Scheduled)
            .reservation_type(CapacityReservationType::CapacityBlock)
            .instance_match_criteria(InstanceMatchCriteria::Targeted)
            .placement_group_arn("arn:aws:ec2:us-east-1:123456789012:placement-group/theirs")
            .total_instance_count(16)
            .available_instance_count(9)
            .start_date(DateTime::from_secs(1_800_000_000))
            .build();
        let read = reservation(&seen);
        assert_eq!((read.id.as_str(), read.free, read.total), ("cr-1", 9, 16));
        assert_eq!((read.block, read.targeted, read.state), (true, true, ReservationState::Scheduled));
        assert_eq!(read.placement_group.as_deref(), Some("theirs"));
        assert_eq!((read.start.map(|at| at.as_second()), read.end), (Some(1_800_000_000), None));
    }

    #[test]
    fn a_reservation_about_which_ec2_says_nothing_holds_nothing() {
        let read = reservation(&CapacityReservation::builder().build());
        assert_eq!((read.free, read.state, read.placement_group), (0, ReservationState::Unknown, None));
    }
}
