//! Notices that an instance will be or is lost, and what each asks for.

use std::collections::BTreeSet;

use jiff::{SignedDuration, Timestamp};

use crate::model::names::InstanceId;
use crate::model::notice::NoticeKind;

/// Whom a notice is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Subject {
    /// Instances; a notice of maintenance may name many.
    Instances(Vec<InstanceId>),
    /// A capacity reservation, `cr-…`, with all that runs in it.
    Reservation(String),
}

impl Subject {
    /// Those of a batch's instances that it is about, each given with the reservation it runs in.
    pub fn concerns<'a>(&self, instances: impl Iterator<Item = (InstanceId, Option<&'a str>)>) -> BTreeSet<InstanceId> {
        let is_meant = |(id, reservation): &(InstanceId, Option<&str>)| match self {
            Self::Instances(ids) => ids.contains(id),
            Self::Reservation(named) => *reservation == Some(named.as_str()),
        };
        instances.filter(is_meant).map(|(id, _)| id).collect()
    }
}

/// One notice, whatever way it came.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notice {
    /// What.
    pub kind: NoticeKind,
    /// Whom.
    pub subject: Subject,
    /// When it was sent, where the notice says so.
    pub sent: Option<Timestamp>,
    /// When EC2 acts, where the notice says so.
    pub at: Option<Timestamp>,
}

impl Notice {
    /// What it says, and for when.
    #[must_use]
    pub fn stated(&self) -> String {
        match self.at {
            Some(at) => format!("{} at {at}", self.kind.sentence()),
            None => self.kind.sentence().to_owned(),
        }
    }
}

/// EventBridge warns of the end of a Capacity Block this long before. Source: EC2 user guide, Capacity Block Expiration Warning.
const BLOCK_WARNING: SignedDuration = SignedDuration::from_mins(40);

/// Notices of the Capacity Blocks that end before long, each with its id and end: EventBridge sends its warning once, and nobody may
/// have read it. What ran in one that has ended EC2 has ended by then.
pub fn ending_blocks<'a>(
    blocks: impl Iterator<Item = (&'a str, Timestamp)>,
    now: Timestamp,
) -> impl Iterator<Item = Notice> {
    let near = blocks.filter(move |(_, end)| *end > now && end.duration_since(now) <= BLOCK_WARNING);
    near.map(|(id, end)| Notice {
        kind: NoticeKind::BlockExpiration,
        subject: Subject::Reservation(id.to_owned()),
        sent: None,
        at: Some(end),
    })
}

/// Lead times before what is scheduled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Leads {
    /// Before maintenance.
    pub maintenance: SignedDuration,
    /// Before EC2 may begin to end the instances of a block, which is 30 minutes before its end.
    pub block: SignedDuration,
}

impl Default for Leads {
    fn default() -> Self {
        Self { maintenance: SignedDuration::from_mins(15), block: SignedDuration::from_mins(10) }
    }
}

/// EC2 takes spot capacity back this long after its notice.
const SPOT_NOTICE: SignedDuration = SignedDuration::from_secs(120);
/// EC2 ends the instances of a block from this long before its end.
const BLOCK_ENDS_EARLY: SignedDuration = SignedDuration::from_mins(30);

/// What follows from a notice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reaction {
    /// Tell, and do nothing.
    Tell,
    /// The nodes are lost from `act_at` on; EC2 ends them at `deadline`, where known.
    Lose {
        /// When the gang is evicted and the replacement provisioned.
        act_at: Timestamp,
        /// When EC2 ends the instance.
        deadline: Option<Timestamp>,
    },
}

/// What a notice asks for at `now`. A notice that comes late is acted on at once.
#[must_use]
pub fn reaction(notice: &Notice, leads: Leads, now: Timestamp) -> Reaction {
    let before = |at: Timestamp, lead: SignedDuration| at.saturating_sub(lead).unwrap_or(Timestamp::MIN);
    match notice.kind {
        NoticeKind::Rebalance => Reaction::Tell,
        NoticeKind::SpotInterruption => {
            let sent = notice.sent.unwrap_or(now).min(now);
            Reaction::Lose { act_at: now, deadline: notice.at.or(sent.saturating_add(SPOT_NOTICE).ok()) }
        }
        NoticeKind::ReservationInterruption => Reaction::Lose { act_at: now, deadline: notice.at },
        NoticeKind::StateChange | NoticeKind::Impaired => Reaction::Lose { act_at: now, deadline: None },
        NoticeKind::ScheduledChange => match notice.at {
            Some(at) => Reaction::Lose { act_at: before(at, leads.maintenance).max(now), deadline: Some(at) },
            // Scheduled for a time nobody knows: a person must look.
            None => Reaction::Tell,
        },
        NoticeKind::BlockExpiration => match notice.at {
            Some(end) => {
                let ends = before(end, BLOCK_ENDS_EARLY);
                Reaction::Lose { act_at: before(ends, leads.block).max(now), deadline: Some(ends) }
            }
            None => Reaction::Tell,
        },
    }
}

/// A pod must have ended this long before EC2 ends its machine, or its object hangs on a dead node.
const FORCED: SignedDuration = SignedDuration::from_secs(10);
/// What is kept back of the notice when a pod's own grace does not fit into it.
const SPARE: SignedDuration = SignedDuration::from_secs(5);
/// The grace of a pod that says nothing. Source: the default of `terminationGracePeriodSeconds`.
const DEFAULT_GRACE: i64 = 30;

/// How long a pod may take to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Grace {
    /// As long as it says itself.
    Own,
    /// This many seconds, fewer than it says.
    Cut(i64),
    /// It is deleted at once: there is no time left.
    None,
}

/// The grace of a pod of a batch of which EC2 ends a machine after `left`. `own`: its `terminationGracePeriodSeconds`;
/// `ends`: its own machine is one that ends. Only such a pod is deleted at once: a kubelet that stays reports the end.
#[must_use]
pub fn grace(own: Option<i64>, left: SignedDuration, ends: bool) -> Grace {
    if left <= FORCED {
        return if ends { Grace::None } else { Grace::Cut(1) };
    }
    let most = left.saturating_sub(SPARE).as_secs();
    if own.unwrap_or(DEFAULT_GRACE) <= most { Grace::Own } else { Grace::Cut(most) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(minutes: i64) -> Timestamp {
        Timestamp::from_second(1_800_000_000 + minutes * 60).unwrap()
    }

    fn notice(kind: NoticeKind, sent: Option<Timestamp>, time: Option<Timestamp>) -> Notice {
        Notice { kind, subject: Subject::Instances(vec!["i-1".into()]), sent, at: time }
    }

    fn acts(notice: &Notice) -> Option<(Timestamp, Option<Timestamp>)> {
        match reaction(notice, Leads::default(), at(0)) {
            Reaction::Lose { act_at, deadline } => Some((act_at, deadline)),
            Reaction::Tell => None,
        }
    }

    #[test]
    fn a_spot_notice_is_acted_on_at_once_and_leaves_two_minutes_from_its_sending() {
        assert_eq!(acts(&notice(NoticeKind::SpotInterruption, Some(at(-1)), None)), Some((at(0), Some(at(1)))));
        // The sender's clock may be ahead of ours.
        assert_eq!(acts(&notice(NoticeKind::SpotInterruption, Some(at(9)), None)), Some((at(0), Some(at(2)))));
        assert_eq!(acts(&notice(NoticeKind::Rebalance, None, None)), None);
    }

    #[test]
    fn a_pod_keeps_its_grace_if_the_notice_leaves_it_and_has_ended_ten_seconds_before() {
        let left = SignedDuration::from_secs;
        assert_eq!(grace(Some(60), left(120), true), Grace::Own);
        assert_eq!(grace(Some(600), left(120), true), Grace::Cut(115));
        assert_eq!(grace(Some(115), left(120), true), Grace::Own);
        assert_eq!(grace(None, left(120), true), Grace::Own, "thirty seconds");
        assert_eq!(grace(None, left(20), true), Grace::Cut(15));
        assert_eq!(grace(Some(0), left(10), true), Grace::None);
        assert_eq!(grace(Some(600), left(-5), true), Grace::None);
        assert_eq!(grace(Some(600), left(-5), false), Grace::Cut(1), "its own machine stays");
    }

    #[test]
    fn the_end_of_a_block_is_noticed_forty_minutes_before_without_a_message() {
        let blocks =
            || [("cr-1", at(41)), ("cr-2", at(40)), ("cr-3", at(1)), ("cr-4", at(0)), ("cr-5", at(-5))].into_iter();
        let ending: Vec<Notice> = ending_blocks(blocks(), at(0)).collect();
        let block = |id: &str| Subject::Reservation(id.to_owned());
        assert_eq!(ending.iter().map(|one| one.subject.clone()).collect::<Vec<_>>(), [block("cr-2"), block("cr-3")]);
        assert_eq!(acts(&ending[0]), Some((at(0), Some(at(10)))), "its instances are ended half an hour before");
        assert_eq!(ending[0].stated(), format!("the Capacity Block ends at {}", at(40)));
    }

    #[test]
    fn maintenance_is_acted_on_a_quarter_of_an_hour_before_and_at_once_if_reported_late() {
        assert_eq!(acts(&notice(NoticeKind::ScheduledChange, None, Some(at(60)))), Some((at(45), Some(at(60)))));
        assert_eq!(acts(&notice(NoticeKind::ScheduledChange, None, Some(at(5)))), Some((at(0), Some(at(5)))));
        assert_eq!(acts(&notice(NoticeKind::ScheduledChange, None, None)), None);
    }

    #[test]
    fn a_block_is_left_forty_minutes_before_its_end() {
        assert_eq!(acts(&notice(NoticeKind::BlockExpiration, None, Some(at(100)))), Some((at(60), Some(at(70)))));
    }

    #[test]
    fn what_ended_or_is_impaired_is_lost_now() {
        for kind in [NoticeKind::StateChange, NoticeKind::Impaired] {
            assert_eq!(acts(&notice(kind, None, None)), Some((at(0), None)));
        }
    }

    #[test]
    fn a_notice_concerns_the_instances_it_names_or_all_that_run_in_its_reservation() {
        let concerned = |subject: &Subject, into: [Option<&str>; 2]| {
            let of_batch = ["i-1", "i-2"].into_iter().map(InstanceId::from);
            subject.concerns(of_batch.zip(into)).len()
        };
        let instances = Subject::Instances(vec![InstanceId::from("i-2"), InstanceId::from("i-3")]);
        assert_eq!(concerned(&instances, [None; 2]), 1);
        assert_eq!(concerned(&instances, [Some("cr-1"); 2]), 1, "whatever they run in");
        let reservation = Subject::Reservation("cr-1".to_owned());
        assert_eq!(concerned(&reservation, [Some("cr-1"); 2]), 2);
        assert_eq!(concerned(&reservation, [Some("cr-2"), Some("cr-1")]), 1, "a replacement went into another");
        assert_eq!(concerned(&reservation, [Some("cr-12"); 2]), 0);
        assert_eq!(concerned(&reservation, [None; 2]), 0, "provisioned on demand");
    }

    #[test]
    fn every_kind_has_a_word_of_its_own() {
        let words: std::collections::BTreeSet<_> = NoticeKind::ALL.into_iter().map(NoticeKind::as_str).collect();
        assert_eq!(words.len(), NoticeKind::ALL.len());
    }
}
