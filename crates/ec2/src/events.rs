//! Messages about instances, as EventBridge puts them into a queue: read, with all the variants that were seen.
//!
//! A body may be anything, since whoever may write to the queue can write what they like: every text is either a
//! notice, a message that is none of ours, or unreadable, and never a panic.

use jiff::Timestamp;
use muster_core::ec2::{InstanceState, Notice, NoticeKind, Subject};
use muster_core::model::names::InstanceId;
use serde_json::Value;
use thiserror::Error;

/// What a message is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message {
    /// A notice.
    Notice(Notice),
    /// An event that asks for nothing: another service's, or an instance that starts.
    Other,
}

/// Why a message cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum MessageError {
    /// Not JSON, or no object.
    #[error("the body is no JSON object")]
    NotJson,
    /// An event we know without what makes it one.
    #[error("{kind}: {field} is missing or cannot be read")]
    Field {
        /// Kind of the event.
        kind: &'static str,
        /// The field.
        field: &'static str,
    },
}

/// Reads the body of one message.
///
/// Source of the variants: `detail_type` for `detail-type`, `azId` for `availability-zone-id`, spot ARNs with a zone
/// and no account (ids are read from `detail` alone), Health events that list many instances.
pub fn read_message(body: &str) -> Result<Message, MessageError> {
    let event: Value = serde_json::from_str(body).map_err(|_| MessageError::NotJson)?;
    if !event.is_object() {
        return Err(MessageError::NotJson);
    }
    let text = |value: &Value| value.as_str().map(str::to_owned);
    let Some(kind) = text(&event["detail-type"]).or_else(|| text(&event["detail_type"])) else {
        return Ok(Message::Other);
    };
    let detail = &event["detail"];
    let sent = time(&event["time"]);
    let instance = |kind| {
        text(&detail["instance-id"])
            .filter(|id| id.starts_with("i-"))
            .map(|id| Subject::Instances(vec![InstanceId::from(id)]))
            .ok_or(MessageError::Field { kind, field: "detail.instance-id" })
    };
    let notice = |kind, subject, at| Ok(Message::Notice(Notice { kind, subject, sent, at }));
    match kind.as_str() {
        "EC2 Spot Instance Interruption Warning" => {
            notice(NoticeKind::SpotInterruption, instance("spot interruption")?, None)
        }
        "EC2 Instance Rebalance Recommendation" => notice(NoticeKind::Rebalance, instance("rebalance")?, None),
        "EC2 Instance State-change Notification" => {
            let subject = instance("state change")?;
            let state =
                text(&detail["state"]).ok_or(MessageError::Field { kind: "state change", field: "detail.state" })?;
            match InstanceState::parse(&state) {
                InstanceState::ShuttingDown
                | InstanceState::Terminated
                | InstanceState::Stopping
                | InstanceState::Stopped => notice(NoticeKind::StateChange, subject, None),
                InstanceState::Pending | InstanceState::Running | InstanceState::Unknown => Ok(Message::Other),
            }
        }
        "EC2 Capacity Reservation Instance Interruption Warning" => notice(
            NoticeKind::ReservationInterruption,
            instance("reservation interruption")?,
            time(&detail["instance-termination-time"]),
        ),
        "Capacity Block Expiration Warning" => {
            let id = text(&detail["capacity-reservation-id"])
                .filter(|id| id.starts_with("cr-"))
                .ok_or(MessageError::Field { kind: "block expiration", field: "detail.capacity-reservation-id" })?;
            let end = time(&detail["end-date"])
                .ok_or(MessageError::Field { kind: "block expiration", field: "detail.end-date" })?;
            notice(NoticeKind::BlockExpiration, Subject::Reservation(id), Some(end))
        }
        "AWS Health Event" => health(detail, sent),
        _ => Ok(Message::Other),
    }
}

fn health(detail: &Value, sent: Option<Timestamp>) -> Result<Message, MessageError> {
    // An event that is over is sent once more; that it was cancelled shows in the status of the instance.
    let over = detail["statusCode"] == "closed";
    if detail["service"] != "EC2" || detail["eventTypeCategory"] != "scheduledChange" || over {
        return Ok(Message::Other);
    }
    let entities = detail["affectedEntities"].as_array();
    let entities = entities.ok_or(MessageError::Field { kind: "health", field: "detail.affectedEntities" })?;
    let ids: Vec<InstanceId> = entities
        .iter()
        .filter_map(|entity| entity["entityValue"].as_str())
        .filter(|id| id.starts_with("i-"))
        .map(InstanceId::from)
        .collect();
    if ids.is_empty() {
        return Ok(Message::Other);
    }
    let at = time(&detail["startTime"]);
    Ok(Message::Notice(Notice { kind: NoticeKind::ScheduledChange, subject: Subject::Instances(ids), sent, at }))
}

/// RFC 3339, or as Health writes it: `Fri, 27 Jan 2027 06:02:51 GMT`.
fn time(value: &Value) -> Option<Timestamp> {
    let text = value.as_str()?;
    text.parse().ok().or_else(|| jiff::fmt::rfc2822::parse(text).ok().map(|zoned| zoned.timestamp()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(detail_type: &str, detail: &str) -> Result<Message, MessageError> {
        read_message(&format!(
            r#"{{"version":"0","detail-type":"{detail_type}","source":"aws.ec2","time":"2026-11-21T08:00:00Z",
            "resources":["arn:aws:ec2:us-east-1b:instance/i-other"],"detail":{detail}}}"#
        ))
    }

    #[track_caller]
    fn notice(message: Result<Message, MessageError>) -> Notice {
        match message.unwrap() {
            Message::Notice(notice) => notice,
            Message::Other => panic!("no notice"),
        }
    }

    fn one(id: &str) -> Subject {
        Subject::Instances(vec![InstanceId::from(id)])
    }

    #[test]
    fn every_kind_is_read_with_the_id_of_its_detail_and_never_that_of_its_arn() {
        let id = r#"{"instance-id":"i-1","instance-action":"terminate","state":"stopping"}"#;
        for (name, kind) in [
            ("EC2 Spot Instance Interruption Warning", NoticeKind::SpotInterruption),
            ("EC2 Instance Rebalance Recommendation", NoticeKind::Rebalance),
            ("EC2 Instance State-change Notification", NoticeKind::StateChange),
            ("EC2 Capacity Reservation Instance Interruption Warning", NoticeKind::ReservationInterruption),
        ] {
            let notice = notice(read(name, id));
            assert_eq!((notice.kind, notice.subject), (kind, one("i-1")), "{name}");
            assert_eq!(notice.sent.unwrap().to_string(), "2026-11-21T08:00:00Z");
        }
    }

    #[test]
    fn a_state_that_is_no_loss_asks_for_nothing() {
        for state in ["pending", "running", "of-tomorrow"] {
            let detail = format!(r#"{{"instance-id":"i-1","state":"{state}"}}"#);
            assert_eq!(read("EC2 Instance State-change Notification", &detail), Ok(Message::Other), "{state}");
        }
    }

    #[test]
    fn both_spellings_of_a_reservations_warning_are_read() {
        for zone in [r#""availability-zone-id":"use1-az6""#, r#""azId":"use1-az6""#] {
            let detail =
                format!(r#"{{"instance-id":"i-1","instance-termination-time":"2026-11-21T09:00:00Z",{zone}}}"#);
            let notice = notice(read("EC2 Capacity Reservation Instance Interruption Warning", &detail));
            assert_eq!(notice.at.unwrap().to_string(), "2026-11-21T09:00:00Z");
        }
    }

    #[test]
    fn a_block_names_its_reservation_and_end_with_an_underscore_in_its_type_too() {
        let body = r#"{"detail_type":"Capacity Block Expiration Warning","source":"aws.ec2",
            "detail":{"capacity-reservation-id":"cr-1","end-date":"2026-11-22T11:30:00Z"}}"#;
        let notice = notice(read_message(body));
        assert_eq!(
            (notice.kind, notice.subject),
            (NoticeKind::BlockExpiration, Subject::Reservation("cr-1".to_owned()))
        );
        assert_eq!(notice.at.unwrap().to_string(), "2026-11-22T11:30:00Z");
    }

    #[test]
    fn a_health_event_may_list_many_instances_and_other_things() {
        let detail = r#"{"service":"EC2","eventTypeCategory":"scheduledChange",
            "startTime":"Fri, 27 Nov 2026 06:02:51 GMT",
            "affectedEntities":[{"entityValue":"i-1"},{"entityValue":"vol-1"},{"entityValue":"i-2"},{}]}"#;
        let notice = notice(read("AWS Health Event", detail));
        assert_eq!(notice.subject, Subject::Instances(vec!["i-1".into(), "i-2".into()]));
        assert_eq!(notice.at.unwrap().to_string(), "2026-11-27T06:02:51Z");
        let closed = r#"{"service":"EC2","eventTypeCategory":"scheduledChange","statusCode":"closed",
            "startTime":"Fri, 27 Jan 2027 06:02:51 GMT","affectedEntities":[{"entityValue":"i-1"}]}"#;
        assert_eq!(read("AWS Health Event", closed), Ok(Message::Other));
        let other = r#"{"service":"RDS","eventTypeCategory":"scheduledChange"}"#;
        assert_eq!(read("AWS Health Event", other), Ok(Message::Other));
    }

    #[test]
    fn what_is_missing_is_named() {
        let error = read("EC2 Spot Instance Interruption Warning", "{}").unwrap_err();
        assert_eq!(error.to_string(), "spot interruption: detail.instance-id is missing or cannot be read");
        let error = read("Capacity Block Expiration Warning", r#"{"capacity-reservation-id":"cr-1"}"#).unwrap_err();
        assert_eq!(error.to_string(), "block expiration: detail.end-date is missing or cannot be read");
        assert_eq!(read_message("nonsense"), Err(MessageError::NotJson));
        assert_eq!(read_message("[]"), Err(MessageError::NotJson));
    }

    #[test]
    fn seeds_cut_anywhere_and_with_anything_in_their_place_never_panic() {
        let body = r#"{"detail-type":"AWS Health Event","time":"x","detail":{"service":"EC2",
            "eventTypeCategory":"scheduledChange","startTime":"ü","affectedEntities":[{"entityValue":"i-1"}]}}"#;
        for (cut, _) in body.char_indices() {
            let _ = read_message(&body[..cut]);
            for put in ["null", "[]", "{}", "1e999", "\"\""] {
                let _ = read_message(&format!("{}{put}{}", &body[..cut], &body[cut..]));
            }
        }
        assert_eq!(read_message(r#"{"detail-type":"unheard of","detail":7}"#), Ok(Message::Other));
    }
}
