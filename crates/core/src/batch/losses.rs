//! Writing down that instances of a batch are lost, or will be: whoever finds out reports it, and it is written here.
//!
//! A loss that is known already changes nothing, so the same message may come twice and two sources may tell the same.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;

use super::case::{Case, Turn};
use super::counted::counted;
use crate::ec2::notice::{Leads, Notice, Reaction, Subject, reaction};
use crate::model::batch::{Batch, BatchMember, BatchPhase, BatchStatus, ConditionKind, Loss, LossCause, MemberState};
use crate::model::names::InstanceId;
use crate::model::notice::NoticeKind;

/// The status with every reported loss; `None` if nothing was reported or all of it is known.
pub(super) fn reported(case: &Case<'_>) -> Option<Turn> {
    if case.memory.reports.is_empty() {
        return None;
    }
    let mut next = case.status();
    let mut turn = Turn::default();
    for report in &case.memory.reports {
        // What we end ourselves is no loss.
        if !next.phase.expects_instances() {
            continue;
        }
        let moved = reschedule(&mut next, &report.rescheduled, case.now());
        if let Some(first) = moved.first() {
            let message = format!("{} of {}: {first}", moved.len(), counted(next.count, "node"));
            if next.instances.iter().all(|instance| instance.loss.is_none()) {
                next.set(ConditionKind::Interrupted, false, report.reason, &message, case.world.now_real);
            }
            turn = turn.event(report.reason, message, false);
        }
        let news = note(&mut next, &report.losses, case.now());
        let Some(first) = news.first() else { continue };
        let message = format!("{} of {}: {first}", news.len(), counted(next.count, "node"));
        next.set(ConditionKind::Interrupted, true, report.reason, &message, case.world.now_real);
        turn = turn.event(report.reason, message, true);
    }
    if next == case.batch.status {
        return None;
    }
    turn.next = Some(next);
    Some(turn)
}

/// Whether a notice about instances of a batch in this phase concerns anybody.
#[must_use]
pub fn heeds_notices(phase: BatchPhase) -> bool {
    phase.expects_instances()
}

/// Instances of the batch whose own state is to be looked at: those that no loss has taken yet. One that ends weeks from now may
/// fail tomorrow.
pub fn to_look_at(status: &BatchStatus, now: Timestamp) -> impl Iterator<Item = &InstanceId> {
    let heeds = heeds_notices(status.phase);
    let stays = move |instance: &&BatchMember| heeds && instance.loss.as_ref().is_none_or(|loss| loss.act_at > now);
    status.instances.iter().filter(stays).map(|instance| &instance.id)
}

/// Instances of the batch that a notice is about; `None` if it is about none, or the batch ends them itself.
#[must_use]
pub fn of_subject(batch: &Batch, subject: &Subject) -> Option<BTreeSet<InstanceId>> {
    let status = &batch.status;
    if !heeds_notices(status.phase) {
        return None;
    }
    let into = |one| status.reservation_of(one).map(|target| target.id.as_str());
    let ids = subject.concerns(status.instances.iter().map(|one| (one.id.clone(), into(one))));
    (!ids.is_empty()).then_some(ids)
}

/// What EC2 shows of the maintenance that a batch knows of: one of its events is over, or the earliest begins at that time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Maintenance {
    /// EC2 shows it as cancelled or completed, and no other.
    Over,
    /// It begins then.
    At(Timestamp),
}

/// Instances whose maintenance is no longer when the batch expects it, with what is expected instead. `seen` is what EC2 shows
/// of each; of one that shows nothing, nothing is concluded: AWS Health may know more than the status of the instance.
#[must_use]
pub fn rescheduled(
    status: &BatchStatus,
    seen: &BTreeMap<InstanceId, Maintenance>,
    now: Timestamp,
) -> BTreeMap<InstanceId, Option<Loss>> {
    let waits = |one: &BatchMember| Some((one.id.clone(), pending_maintenance(one, now)?.clone()));
    let waiting = status.instances.iter().filter_map(waits);
    let moved = waiting.filter_map(|(id, known)| {
        let next = match seen.get(&id)? {
            Maintenance::Over => None,
            Maintenance::At(at) => {
                let notice = Notice {
                    kind: NoticeKind::ScheduledChange,
                    subject: Subject::Instances(vec![id.clone()]),
                    sent: None,
                    at: Some(*at),
                };
                let Reaction::Lose { act_at, deadline } = reaction(&notice, Leads::default(), now) else { return None };
                if act_at <= known.act_at {
                    return None;
                }
                Some(Loss { message: notice.stated(), noticed: now, act_at, deadline, ..known })
            }
        };
        Some((id, next))
    });
    moved.collect()
}

/// The loss of an instance that waits for its maintenance to begin.
fn pending_maintenance(instance: &BatchMember, now: Timestamp) -> Option<&Loss> {
    let of_maintenance = |loss: &&Loss| loss.cause == LossCause::Notice(NoticeKind::ScheduledChange);
    instance.loss.as_ref().filter(of_maintenance).filter(|loss| loss.act_at > now)
}

/// Writes down what became of maintenance that has not begun, and says it.
fn reschedule(status: &mut BatchStatus, moved: &BTreeMap<InstanceId, Option<Loss>>, now: Timestamp) -> Vec<String> {
    let mut news = Vec::new();
    for instance in &mut status.instances {
        let Some(next) = moved.get(&instance.id) else { continue };
        if pending_maintenance(instance, now).is_none() || instance.loss == *next {
            continue;
        }
        news.push(match next {
            Some(later) => format!("{}: {}", instance.id, later.message),
            None => format!("{}: EC2 has cancelled its maintenance", instance.id),
        });
        instance.loss.clone_from(next);
    }
    news
}

/// Fills in what is news, and says it.
fn note(status: &mut BatchStatus, losses: &BTreeMap<InstanceId, Loss>, now: Timestamp) -> Vec<String> {
    let mut news = Vec::new();
    for instance in &mut status.instances {
        let Some(loss) = losses.get(&instance.id) else { continue };
        // What is to be acted on sooner replaces what is to be acted on later; nothing else is news.
        let known = instance.loss.as_ref().is_some_and(|known| known.act_at <= loss.act_at);
        if known || instance.state == MemberState::Terminating {
            continue;
        }
        if loss.act_at <= now {
            instance.state = MemberState::Lost;
        }
        news.push(format!("{}: {}", instance.id, loss.message));
        instance.loss = Some(loss.clone());
    }
    news
}

#[cfg(test)]
mod tests {
    use jiff::SignedDuration;

    use super::*;

    fn loss(cause: LossCause, act_at: Timestamp) -> BTreeMap<InstanceId, Loss> {
        let loss = Loss { cause, message: "gone".to_owned(), noticed: act_at, act_at, deadline: None };
        BTreeMap::from([(InstanceId::from("i-1"), loss)])
    }

    #[test]
    fn the_same_loss_is_news_once_and_a_sooner_one_is_news_again() {
        let now = Timestamp::from_second(1_800_000_000).unwrap();
        let later = now + SignedDuration::from_mins(10);
        let member = |id: &str| BatchMember::new(InstanceId::from(id), 1, MemberState::Ready);
        let mut status = BatchStatus { instances: vec![member("i-1"), member("i-2")], ..BatchStatus::default() };
        let maintenance = loss(LossCause::Notice(NoticeKind::ScheduledChange), later);
        assert_eq!(note(&mut status, &maintenance, now).len(), 1);
        assert_eq!(status.instances[0].state, MemberState::Ready, "its time has not come");
        assert!(note(&mut status, &maintenance, now).is_empty());
        let spot = loss(LossCause::Notice(NoticeKind::SpotInterruption), now);
        assert_eq!(note(&mut status, &spot, now).len(), 1);
        assert_eq!(status.instances[0].state, MemberState::Lost);
        let missing = loss(LossCause::Missing, now);
        assert!(note(&mut status, &missing, now).is_empty(), "duplicates and reordering change nothing");
        assert_eq!(status.instances[1], member("i-2"));
    }

    #[test]
    fn maintenance_that_is_moved_or_cancelled_takes_no_node_at_its_first_time() {
        let now = Timestamp::from_second(1_800_000_000).unwrap();
        let at = |hours: i64| now + SignedDuration::from_hours(hours);
        let expects = |cause: LossCause, act_at: Timestamp| {
            let member = BatchMember::new(InstanceId::from("i-1"), 1, MemberState::Ready);
            let member = BatchMember { loss: loss(cause, act_at).into_values().next(), ..member };
            BatchStatus { phase: BatchPhase::InUse, instances: vec![member], ..BatchStatus::default() }
        };
        let seen = |maintenance| BTreeMap::from([(InstanceId::from("i-1"), maintenance)]);
        let maintenance = LossCause::Notice(NoticeKind::ScheduledChange);

        let mut moved = expects(maintenance, at(2));
        let later = rescheduled(&moved, &seen(Maintenance::At(at(6))), now);
        assert_eq!(reschedule(&mut moved, &later, now).len(), 1);
        let known = moved.instances[0].loss.clone().unwrap();
        assert!(known.act_at > at(5) && known.deadline == Some(at(6)), "{known:?}");
        assert_eq!(known.noticed, now, "when it was moved");
        assert!(known.message.contains("scheduled"), "what is stated is what it was moved to: {}", known.message);
        assert!(reschedule(&mut moved, &later, now).is_empty(), "written down once");
        assert!(rescheduled(&moved, &seen(Maintenance::At(at(6))), now).is_empty(), "the same is no news");
        assert!(rescheduled(&moved, &seen(Maintenance::At(at(1))), now).is_empty(), "sooner comes as a notice");

        let mut cancelled = expects(maintenance, at(2));
        let over = rescheduled(&cancelled, &seen(Maintenance::Over), now);
        assert_eq!(reschedule(&mut cancelled, &over, now), ["i-1: EC2 has cancelled its maintenance"]);
        assert_eq!(cancelled.instances[0].loss, None);

        assert!(rescheduled(&expects(maintenance, at(2)), &BTreeMap::new(), now).is_empty(), "nothing is shown");
        let mut begun = expects(maintenance, now);
        assert!(rescheduled(&begun, &seen(Maintenance::Over), now).is_empty(), "it has begun");
        assert!(
            reschedule(&mut begun, &over, now).is_empty() && begun.instances[0].loss.is_some(),
            "nothing calls it off"
        );
        let spot = expects(LossCause::Notice(NoticeKind::SpotInterruption), at(2));
        assert!(rescheduled(&spot, &seen(Maintenance::Over), now).is_empty(), "no maintenance");
    }

    #[test]
    fn hardware_that_fails_before_its_maintenance_is_noticed() {
        let now = Timestamp::from_second(1_800_000_000).unwrap();
        let member = |id: &str, act_at: Option<Timestamp>| BatchMember {
            loss: act_at.and_then(|act_at| loss(LossCause::Missing, act_at).into_values().next()),
            ..BatchMember::new(InstanceId::from(id), 1, MemberState::Ready)
        };
        let weeks = now + SignedDuration::from_hours(24 * 14);
        let instances = vec![member("i-0", None), member("i-1", Some(weeks)), member("i-2", Some(now))];
        let mut status = BatchStatus { phase: BatchPhase::InUse, instances, ..BatchStatus::default() };
        let ids = |status: &BatchStatus| to_look_at(status, now).map(ToString::to_string).collect::<Vec<_>>();
        assert_eq!(ids(&status), ["i-0", "i-1"]);
        // Its maintenance is known, and that it is impaired now is news.
        status.instances[1].loss = loss(LossCause::Notice(NoticeKind::ScheduledChange), weeks).into_values().next();
        let impaired = loss(LossCause::Notice(NoticeKind::Impaired), now);
        assert_eq!(note(&mut status, &impaired, now).len(), 1);
        assert_eq!((status.instances[1].state, ids(&status)), (MemberState::Lost, vec!["i-0".to_owned()]));
        status.phase = BatchPhase::Terminating;
        assert!(ids(&status).is_empty());
    }

    #[test]
    fn a_notice_concerns_the_instances_it_names_and_all_that_run_in_the_reservation_it_names() {
        use super::super::fixtures::{attempt, members};
        use crate::model::batch::{Attempt, AttemptOutcome, BatchSpec};
        use crate::model::launch::Target;
        let into = |outcome| Attempt {
            outcome,
            reservation: Some(Target { id: "cr-1".to_owned(), block: false }),
            ..attempt()
        };
        let batch = |phase, outcome| Batch {
            name: "b-1".to_owned(),
            uid: "u".to_owned(),
            created: None,
            deleting: false,
            spec: std::sync::Arc::new(BatchSpec::default()),
            status: BatchStatus {
                phase,
                instances: members(2),
                attempts: vec![into(outcome)],
                ..BatchStatus::default()
            },
            newer: None,
        };
        let in_use = batch(BatchPhase::InUse, AttemptOutcome::Won);
        let reservation = Subject::Reservation("cr-1".to_owned());
        let ids = |ids: &[&str]| Some(ids.iter().map(|id| InstanceId::from(*id)).collect::<BTreeSet<_>>());
        assert_eq!(of_subject(&in_use, &Subject::Instances(vec!["i-1".into(), "i-9".into()])), ids(&["i-1"]));
        assert_eq!(of_subject(&in_use, &Subject::Instances(vec!["i-9".into()])), None);
        assert_eq!(of_subject(&in_use, &reservation), ids(&["i-0", "i-1"]));
        assert_eq!(of_subject(&in_use, &Subject::Reservation("cr-2".to_owned())), None);
        assert_eq!(
            of_subject(&batch(BatchPhase::InUse, AttemptOutcome::Lost), &reservation),
            None,
            "nothing runs in it"
        );
        assert_eq!(
            of_subject(&batch(BatchPhase::Terminating, AttemptOutcome::Won), &reservation),
            None,
            "they end anyway"
        );
        // The first attempt was in the reservation, and all of it is gone; what came later is elsewhere, or in it again.
        let mut moved = batch(BatchPhase::InUse, AttemptOutcome::Won);
        moved.status.attempts.push(Attempt { number: 2, reservation: None, ..into(AttemptOutcome::Won) });
        moved.status.instances.iter_mut().for_each(|one| one.attempt = 2);
        assert_eq!(of_subject(&moved, &reservation), None, "launched on demand");
        moved.status.attempts.push(Attempt { number: 3, ..into(AttemptOutcome::Won) });
        moved.status.instances[1].attempt = 3;
        assert_eq!(of_subject(&moved, &reservation), ids(&["i-1"]));
        moved.status.instances[0].attempt = 9;
        assert_eq!(of_subject(&moved, &reservation), ids(&["i-0", "i-1"]), "its attempt is not kept any more");
        assert!(heeds_notices(BatchPhase::InUse) && !heeds_notices(BatchPhase::Terminating));
    }
}
