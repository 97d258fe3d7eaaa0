//! What a batch costs, summed up whenever its price or what the money does changes.

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};

use super::decision::{Memory, Sight};
use crate::ec2::seen::Instance;
use crate::model::batch::{BatchMember, BatchPhase, BatchStatus, Billing, ConditionKind, MemberState, Share};
use crate::model::launch::CapacityType;
use crate::model::money::{StrandedCause, cost_between};
use crate::model::names::InstanceId;

/// What the money of a batch does: `None` while nothing is billed or the gang runs.
#[must_use]
pub fn strands(status: &BatchStatus) -> Option<StrandedCause> {
    let ran = status.is(&ConditionKind::Interrupted);
    let replacing = status.last().is_some_and(|attempt| !attempt.replaces.is_empty());
    match status.phase {
        BatchPhase::Launching => Some(StrandedCause::Rollback),
        BatchPhase::Replacing | BatchPhase::Launched | BatchPhase::Joining | BatchPhase::Ready if ran => {
            Some(StrandedCause::Interrupted)
        }
        BatchPhase::Replacing => Some(StrandedCause::Replacement),
        BatchPhase::Launched | BatchPhase::Joining | BatchPhase::Ready if replacing => Some(StrandedCause::Replacement),
        BatchPhase::Launched | BatchPhase::Joining | BatchPhase::Ready => Some(StrandedCause::Join),
        // Its gang has ended, and others keep it from being terminated.
        BatchPhase::InUse => status.idle_since.map(|_| StrandedCause::Warm),
        BatchPhase::Idle | BatchPhase::Draining | BatchPhase::Terminating => Some(StrandedCause::Warm),
        BatchPhase::Pending => None,
    }
}

/// What EC2 showed of instances, as the decision saw it.
pub(super) struct Times<'a>(BTreeMap<&'a InstanceId, &'a Instance>);

impl<'a> Times<'a> {
    /// Of every instance in the answers to looks.
    pub(super) fn of(memory: &'a Memory) -> Self {
        let seen = memory.seen.values().filter_map(|answer| match answer {
            Ok(Sight::Instances(seen)) => Some(seen),
            Ok(_) | Err(_) => None,
        });
        Self(seen.flatten().map(|instance| (&instance.id, instance)).collect())
    }

    fn launched(&self, id: &InstanceId) -> Option<Timestamp> {
        self.0.get(id)?.launch_time
    }

    fn ended(&self, id: &InstanceId) -> Option<Timestamp> {
        self.0.get(id)?.ended
    }
}

/// Closes the bill of a batch whose instances have all ended, if that is not written down yet and there is a bill: what it cost
/// stays as it is, and may be booked.
pub(super) fn close(status: &mut BatchStatus) -> bool {
    let ended = end(status);
    let spent = status.billing.as_ref().is_some_and(|billing| billing.spent > 0);
    let closed = status.billing.as_ref().is_some_and(|billing| billing.closed);
    if closed || !ended && !spent {
        return false;
    }
    status.billing.get_or_insert_with(|| Billing { by_instance: true, ..Billing::default() }).closed = true;
    true
}

/// Writes down that all instances have ended, if that is news: EC2 shows for about an hour when that was.
pub(super) fn end(status: &mut BatchStatus) -> bool {
    let mut news = false;
    for one in status.members_mut().filter(|one| one.state != MemberState::Gone) {
        one.state = MemberState::Gone;
        news = true;
    }
    news
}

/// EC2 charges a minute at least.
const LEAST: SignedDuration = SignedDuration::from_mins(1);

/// Sums up what the batch cost since it was last summed up, if that ends here.
///
/// An instance costs from its launch until it begins to shut down, both as EC2 shows them. EC2 charges from `running` on, some
/// seconds after the launch, and shows no time of that: the bill is as much too high. Its times are whole seconds, and so are those
/// up to which is summed up here: what runs to `now` and is then terminated would cost less than was reported, for ever.
pub(super) fn bill(before: &BatchStatus, after: &mut BatchStatus, times: &Times<'_>, now: Timestamp) {
    let now = whole(now);
    let ends = learn(before, after, times);
    let mut billing = after.billing.take().unwrap_or_else(|| Billing { by_instance: true, ..Billing::default() });
    let moved = offer(before) != offer(after);
    let same = before.phase == after.phase
        && before.instances.len() == after.instances.len()
        && before.replaced.len() == after.replaced.len()
        && strands(before) == strands(after);
    let was_closed = before.billing.as_ref().is_some_and(|billing| billing.closed);
    let due = !same || !ends.is_empty() || moved || billing.closed || billing.since.is_none();
    if due && !was_closed {
        sum_up(before, after, &mut billing, &ends, times, now);
        if moved {
            leave(before, &mut billing);
        }
    }
    after.billing = Some(billing);
}

/// The second that this moment is in, as EC2 shows times.
fn whole(moment: Timestamp) -> Timestamp {
    Timestamp::from_second(moment.as_second()).unwrap_or(moment)
}

/// Pool and capacity type that dollars are spent on.
fn offer(status: &BatchStatus) -> (Option<&str>, Option<CapacityType>) {
    (status.node_pool.as_deref(), status.capacity_type)
}

/// Keeps with each instance what is known of its time. The answer is which of them end here.
fn learn(before: &BatchStatus, after: &mut BatchStatus, times: &Times<'_>) -> BTreeSet<InstanceId> {
    let known: BTreeMap<&InstanceId, &BatchMember> = before.members().map(|one| (&one.id, one)).collect();
    let mut there = BTreeSet::new();
    for one in after.members_mut() {
        let was = known.get(&one.id);
        one.launched = was.and_then(|was| was.launched).or_else(|| times.launched(&one.id));
        one.billed = was.and_then(|was| was.billed);
        if one.state != MemberState::Gone {
            there.insert(one.id.clone());
        }
    }
    let ends = before.members().filter(|one| one.state != MemberState::Gone && !there.contains(&one.id));
    ends.map(|one| one.id.clone()).collect()
}

fn sum_up(
    before: &BatchStatus,
    after: &mut BatchStatus,
    billing: &mut Billing,
    ends: &BTreeSet<InstanceId>,
    times: &Times<'_>,
    now: Timestamp,
) {
    let since = billing.since.replace(now);
    let price = unit_price(before);
    let (mut more, mut less) = (0_u64, 0_u64);
    let mut billed = BTreeMap::new();
    for one in before.members().filter(|one| one.state != MemberState::Gone) {
        let over = ends.contains(&one.id);
        let launched = one.launched.or_else(|| times.launched(&one.id));
        let from = match (one.billed, launched) {
            (Some(billed), _) => billed,
            (None, _) if !billing.by_instance => since.unwrap_or(now),
            (None, Some(launched)) => launched,
            // It is billed once EC2 has shown it; where that never happens, from the answer that named it.
            (None, None) if over => named(before, one).or(since).unwrap_or(now),
            (None, None) => continue,
        };
        // A clock may be behind EC2's: what was not charged yet is not taken off.
        let mut until = now.max(from);
        if over {
            let least = launched.map(|at| at.saturating_add(LEAST).unwrap_or(Timestamp::MAX));
            until = times.ended(&one.id).unwrap_or(until);
            until = least.map_or(until, |least| least.max(until));
        }
        more = more.saturating_add(cost_between(price, from, until));
        // It ended before anybody noticed.
        less = less.saturating_add(cost_between(price, until, from));
        billed.insert(&one.id, until);
    }
    for one in after.members_mut() {
        one.billed = billed.get(&one.id).copied().or(one.billed);
    }
    billing.by_instance = true;
    billing.spent = billing.spent.saturating_add(more).saturating_sub(less);
    if let Some(cause) = strands(before).filter(|_| more > 0 || less > 0) {
        let sum = billing.stranded.entry(cause).or_default();
        *sum = sum.saturating_add(more).saturating_sub(less);
    }
}

/// Micro-dollars per hour of one instance.
fn unit_price(status: &BatchStatus) -> u64 {
    status.price.unwrap_or(0) / u64::from(status.count.max(1))
}

/// When the launch was answered that made an instance.
fn named(status: &BatchStatus, one: &BatchMember) -> Option<Timestamp> {
    let attempt = status.attempts.iter().find(|attempt| attempt.number == one.attempt)?;
    attempt.ended.or(attempt.started)
}

/// Another pool or capacity type is tried: what the former one cost stays with it.
fn leave(before: &BatchStatus, billing: &mut Billing) {
    if let Some(share) = current(before, billing).filter(|share| share.spent > 0) {
        add(&mut billing.earlier, share);
    }
}

/// Adds a share to those of its pool and capacity type.
fn add(shares: &mut Vec<Share>, one: Share) {
    let same = |known: &&mut Share| known.node_pool == one.node_pool && known.capacity_type == one.capacity_type;
    let Some(known) = shares.iter_mut().find(same) else {
        shares.push(one);
        return;
    };
    known.spent = known.spent.saturating_add(one.spent);
    for (cause, more) in one.stranded {
        let sum = known.stranded.entry(cause).or_default();
        *sum = sum.saturating_add(more);
    }
}

/// What the current candidate's pool and capacity type cost beside all earlier shares.
fn current(status: &BatchStatus, billing: &Billing) -> Option<Share> {
    let rest = |all: u64, of: &dyn Fn(&Share) -> u64| {
        billing.earlier.iter().fold(all, |left, one| left.saturating_sub(of(one)))
    };
    let left = |cause: &StrandedCause, sum: u64| rest(sum, &|one| one.stranded.get(cause).copied().unwrap_or(0));
    let stranded = billing.stranded.iter().map(|(cause, sum)| (*cause, left(cause, *sum))).filter(|(_, sum)| *sum > 0);
    Some(Share {
        node_pool: status.node_pool.clone()?,
        capacity_type: status.capacity_type,
        spent: rest(billing.spent, &|one| one.spent),
        stranded: stranded.collect(),
    })
}

/// What a batch cost, each pool and capacity type once: what is summed up, and with `until` what its instances cost from there
/// to that moment. Of one that is lost or being ended, nothing more before its end is known: it may have ended already.
#[must_use]
pub fn shares(status: &BatchStatus, until: Option<Timestamp>) -> Vec<Share> {
    let nothing = Billing::default();
    let billing = status.billing.as_ref().unwrap_or(&nothing);
    let mut now = current(status, billing);
    if let (Some(now), Some(until), false) = (&mut now, until, billing.closed) {
        let price = unit_price(status);
        let from = |one: &BatchMember| match (one.billed, one.launched) {
            (Some(billed), _) => Some(billed),
            (None, _) if !billing.by_instance => billing.since,
            (None, launched) => launched,
        };
        let there = status.members().filter(|one| !one.state.is_written_off());
        let runs = there.filter_map(from).fold(0_u64, |sum, from| sum.saturating_add(cost_between(price, from, until)));
        now.spent = now.spent.saturating_add(runs);
        if let Some(cause) = strands(status).filter(|_| runs > 0) {
            let sum = now.stranded.entry(cause).or_default();
            *sum = sum.saturating_add(runs);
        }
    }
    let mut shares = billing.earlier.clone();
    if let Some(now) = now {
        add(&mut shares, now);
    }
    shares
}

#[cfg(test)]
mod tests {
    use super::super::fixtures::{attempt, members};
    use super::*;
    use crate::ec2::seen::InstanceState;
    use crate::model::batch::Attempt;

    fn status(phase: BatchPhase) -> BatchStatus {
        BatchStatus { phase, ..BatchStatus::default() }
    }

    #[test]
    fn only_a_running_gang_and_an_empty_batch_strand_nothing() {
        assert_eq!(strands(&status(BatchPhase::InUse)), None);
        assert_eq!(strands(&status(BatchPhase::Pending)), None);
        assert_eq!(strands(&status(BatchPhase::Joining)), Some(StrandedCause::Join));
        assert_eq!(strands(&status(BatchPhase::Idle)), Some(StrandedCause::Warm));
        let replaces = Attempt { replaces: vec!["i-1".into()], ..attempt() };
        let mut joining = BatchStatus { attempts: vec![replaces], ..status(BatchPhase::Joining) };
        assert_eq!(strands(&joining), Some(StrandedCause::Replacement));
        joining.set(ConditionKind::Interrupted, true, "why", "", Timestamp::UNIX_EPOCH);
        assert_eq!(strands(&joining), Some(StrandedCause::Interrupted));
    }

    fn nothing_seen() -> Times<'static> {
        Times(BTreeMap::new())
    }

    #[test]
    fn nodes_whose_gang_ended_are_idle_dollars_from_that_moment() {
        let at = |seconds: i64| Timestamp::from_second(1_800_000_000 + seconds).unwrap();
        let mut running = BatchStatus {
            price: Some(440_320_000),
            count: 8,
            instances: members(8),
            billing: Some(Billing { since: Some(at(0)), ..Billing::default() }),
            ..status(BatchPhase::InUse)
        };
        let mut ended = BatchStatus { idle_since: Some(at(3600)), ..running.clone() };
        bill(&running, &mut ended, &nothing_seen(), at(3600));
        let billing = ended.billing.clone().unwrap();
        assert_eq!((billing.spent, billing.stranded.len()), (440_320_000, 0), "its gang ran for an hour");
        running = ended.clone();
        let mut idle = BatchStatus { phase: BatchPhase::Idle, ..ended };
        bill(&running, &mut idle, &nothing_seen(), at(7200));
        assert_eq!(idle.billing.unwrap().stranded.get(&StrandedCause::Warm), Some(&440_320_000));
    }

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(1_800_000_000 + seconds).unwrap()
    }

    /// A dollar a second for each of two nodes.
    fn two(phase: BatchPhase, instances: &[&str]) -> BatchStatus {
        BatchStatus {
            price: Some(2 * 3_600_000_000),
            count: 2,
            node_pool: Some("h100".to_owned()),
            capacity_type: Some(CapacityType::OnDemand),
            instances: instances.iter().map(|id| BatchMember::new((*id).into(), 1, MemberState::Launched)).collect(),
            billing: Some(Billing { since: Some(at(0)), by_instance: true, ..Billing::default() }),
            ..status(phase)
        }
    }

    fn instance(id: &str, launched: i64, ended: Option<i64>) -> Instance {
        Instance {
            id: id.into(),
            state: InstanceState::Running,
            state_reason: None,
            instance_type: String::new(),
            zone: String::new(),
            private_dns_name: None,
            launch_time: Some(at(launched)),
            tags: crate::model::tags::Tags::new(),
            placement_group: None,
            placement_group_id: None,
            image_id: String::new(),
            subnet_id: None,
            ended: ended.map(at),
        }
    }

    /// The bill of `after`, with what EC2 showed of some instances.
    fn billed(before: &BatchStatus, mut after: BatchStatus, seen: &[Instance], now: i64) -> BatchStatus {
        let times = Times(seen.iter().map(|instance| (&instance.id, instance)).collect());
        bill(before, &mut after, &times, at(now));
        after
    }

    fn spent(status: &BatchStatus) -> u64 {
        status.billing.as_ref().map_or(0, |billing| billing.spent / 1_000_000)
    }

    #[test]
    fn an_instance_costs_from_its_launch_to_its_shutdown_as_ec2_shows_them_whenever_that_is_noticed() {
        let launched = two(BatchPhase::Launched, &["i-1", "i-2"]);
        let first = billed(&two(BatchPhase::Launching, &[]), launched, &[], 12);
        assert_eq!(spent(&first), 0, "when it was launched is not known");
        let joining = BatchStatus { phase: BatchPhase::Joining, ..first.clone() };
        let joining = billed(&first, joining, &[instance("i-1", 10, None), instance("i-2", 11, None)], 20);
        assert_eq!(spent(&joining), 10 + 9);
        let terminating = BatchStatus { phase: BatchPhase::Terminating, ..joining.clone() };
        let terminating = billed(&joining, terminating, &[], 100);
        assert_eq!(spent(&terminating), 90 + 89);
        let mut ending = terminating.clone();
        ending.instances[0].state = MemberState::Terminating;
        let shown = |status: &BatchStatus, until| shares(status, Some(at(until)))[0].spent / 1_000_000;
        assert_eq!((shown(&terminating, 110), shown(&ending, 110)), (90 + 89 + 20, 90 + 89 + 10), "it may have ended");
        let mut gone = terminating.clone();
        assert!(close(&mut gone), "all have ended");
        let ended = [instance("i-1", 10, Some(103)), instance("i-2", 11, Some(95))];
        let gone = billed(&terminating, gone, &ended, 160);
        assert_eq!(spent(&gone), 93 + 84, "one was noticed late, and the other had ended by itself");
        let after = BatchStatus { placement_group: None, attempt: 9, phase: BatchPhase::Pending, ..gone.clone() };
        assert_eq!(spent(&billed(&gone, after, &[], 500)), 93 + 84, "a closed bill stays as it is");
        let mut gone = gone;
        assert!(!close(&mut gone), "it is closed");
    }

    #[test]
    fn what_is_reported_of_instances_that_are_being_terminated_is_never_more_than_ec2_charges_which_counts_whole_seconds()
     {
        let seen = [instance("i-1", 10, None), instance("i-2", 10, None)];
        let idle =
            billed(&two(BatchPhase::Launched, &["i-1", "i-2"]), two(BatchPhase::Idle, &["i-1", "i-2"]), &seen, 20);
        let mut terminating = BatchStatus { phase: BatchPhase::Terminating, ..idle.clone() };
        terminating.instances.iter_mut().for_each(|one| one.state = MemberState::Terminating);
        let asked = at(100).saturating_add(SignedDuration::from_millis(190)).unwrap();
        bill(&idle, &mut terminating, &nothing_seen(), asked);
        let reported = shares(&terminating, Some(at(200)))[0].spent;
        let mut gone = terminating.clone();
        assert!(close(&mut gone), "all have ended");
        let ended = [instance("i-1", 10, Some(100)), instance("i-2", 10, Some(100))];
        let gone = billed(&terminating, gone, &ended, 160);
        assert_eq!((reported, spent(&gone)), (180_000_000, 180), "what was reported is never taken back");
    }

    #[test]
    fn an_instance_whose_launch_ec2_shows_in_a_second_that_is_still_to_come_costs_from_its_launch() {
        let seen = [instance("i-1", 21, None), instance("i-2", 21, None)];
        let joining =
            billed(&two(BatchPhase::Launched, &["i-1", "i-2"]), two(BatchPhase::Joining, &["i-1", "i-2"]), &seen, 20);
        assert_eq!(spent(&joining), 0);
        let ready = billed(&joining, BatchStatus { phase: BatchPhase::Ready, ..joining.clone() }, &[], 31);
        assert_eq!(spent(&ready), 20);
    }

    #[test]
    fn what_was_spent_while_nobody_ran_is_stranded_by_its_cause_and_nothing_else_is_listed() {
        let launched = billed(&two(BatchPhase::Launching, &[]), two(BatchPhase::Launched, &["i-1", "i-2"]), &[], 12);
        let joining = BatchStatus { phase: BatchPhase::Joining, ..launched.clone() };
        let joining = billed(&launched, joining, &[instance("i-1", 10, None), instance("i-2", 11, None)], 20);
        let stranded =
            |share: &Share| share.stranded.iter().map(|(cause, sum)| (*cause, sum / 1_000_000)).collect::<Vec<_>>();
        let at_once = &shares(&joining, Some(at(20)))[0];
        assert_eq!((at_once.spent / 1_000_000, stranded(at_once)), (19, vec![(StrandedCause::Join, 19)]));
        let later = &shares(&joining, Some(at(30)))[0];
        assert_eq!((later.spent / 1_000_000, stranded(later)), (39, vec![(StrandedCause::Join, 39)]));
        let nothing = two(BatchPhase::Joining, &[]);
        assert!(shares(&nothing, Some(at(30)))[0].stranded.is_empty(), "there is no instance");
        let running = BatchStatus { phase: BatchPhase::InUse, ..joining };
        assert_eq!(stranded(&shares(&running, Some(at(30)))[0]), [(StrandedCause::Join, 19)], "its gang runs");
    }

    #[test]
    fn a_pool_that_cost_nothing_leaves_no_share_behind() {
        let status = two(BatchPhase::Pending, &[]);
        let mut billing = Billing::default();
        leave(&status, &mut billing);
        assert_eq!(billing.earlier, []);
        let stranded = BTreeMap::from([(StrandedCause::Join, 3)]);
        let mut billing = Billing { spent: 5, stranded: stranded.clone(), ..Billing::default() };
        leave(&status, &mut billing);
        assert_eq!((billing.earlier.len(), &billing.earlier[0].stranded), (1, &stranded));
        billing.spent = 7;
        let rest = current(&status, &billing).unwrap();
        assert_eq!((rest.spent, rest.stranded), (2, BTreeMap::new()), "of what is stranded all is the former's");
    }

    #[test]
    fn a_minute_is_charged_at_least_and_what_ec2_never_showed_is_charged_from_the_answer_that_named_it() {
        let attempt = crate::model::batch::Attempt { number: 1, ended: Some(at(5)), ..attempt() };
        let before = BatchStatus { attempts: vec![attempt], ..two(BatchPhase::Launching, &["i-1", "i-2"]) };
        let mut gone = before.clone();
        assert!(end(&mut gone) && !end(&mut gone), "once");
        let gone = billed(&before, gone, &[instance("i-1", 6, Some(9))], 30);
        assert_eq!(spent(&gone), 60 + 25);
        let pending = BatchStatus { phase: BatchPhase::Pending, instances: Vec::new(), ..gone.clone() };
        assert_eq!(spent(&billed(&gone, pending, &[], 90)), 60 + 25, "nothing is billed after its end");
    }

    #[test]
    fn instances_that_an_earlier_version_billed_are_billed_on_from_where_it_stopped() {
        let mut before = two(BatchPhase::InUse, &["i-1", "i-2"]);
        before.billing = Some(Billing { since: Some(at(100)), spent: 7_000_000, ..Billing::default() });
        assert_eq!(shares(&before, Some(at(110)))[0].spent, 27_000_000);
        let idle = billed(&before, BatchStatus { phase: BatchPhase::Idle, ..before.clone() }, &[], 110);
        assert_eq!(spent(&idle), 27);
        let draining = BatchStatus { phase: BatchPhase::Draining, ..idle.clone() };
        assert_eq!(spent(&billed(&idle, draining, &[instance("i-1", 1, None)], 120)), 47);
    }

    #[test]
    fn what_one_pool_cost_twice_is_summed_up_cause_by_cause() {
        let share = |spent: u64, join: u64| Share {
            node_pool: "h100".to_owned(),
            capacity_type: Some(CapacityType::Spot),
            spent,
            stranded: [(StrandedCause::Join, join)].into(),
        };
        let mut shares = Vec::new();
        add(&mut shares, share(10, 3));
        add(&mut shares, share(20, 4));
        add(&mut shares, Share { capacity_type: None, ..share(1, 1) });
        assert_eq!(shares, [share(30, 7), Share { capacity_type: None, ..share(1, 1) }]);
    }

    #[test]
    fn what_a_candidate_of_another_pool_cost_stays_with_that_pool() {
        let seen = [instance("i-1", 0, Some(100)), instance("i-2", 0, Some(100))];
        let before = two(BatchPhase::Launching, &["i-1", "i-2"]);
        let pending = BatchStatus { phase: BatchPhase::Pending, instances: Vec::new(), ..before.clone() };
        let pending = billed(&before, pending, &seen, 130);
        let next = BatchStatus {
            phase: BatchPhase::Launching,
            node_pool: Some("a100".to_owned()),
            capacity_type: Some(CapacityType::Spot),
            ..pending.clone()
        };
        let next = billed(&pending, next, &[], 140);
        let launched = BatchStatus { phase: BatchPhase::Launched, ..two(BatchPhase::Launched, &["i-3"]) };
        let launched = BatchStatus {
            node_pool: next.node_pool.clone(),
            capacity_type: next.capacity_type,
            billing: next.billing.clone(),
            ..launched
        };
        let launched = billed(&next, launched, &[instance("i-3", 150, None)], 151);
        let parts = |status: &BatchStatus, until| {
            let dollars = |share: Share| (share.node_pool, share.capacity_type, share.spent / 1_000_000);
            shares(status, until).into_iter().map(dollars).collect::<Vec<_>>()
        };
        let h100 = ("h100".to_owned(), Some(CapacityType::OnDemand), 200);
        let a100 = |spent| ("a100".to_owned(), Some(CapacityType::Spot), spent);
        assert_eq!(parts(&launched, None), [h100.clone(), a100(0)]);
        assert_eq!(parts(&launched, Some(at(160))), [h100.clone(), a100(10)]);
        let billing = launched.billing.as_ref().unwrap();
        assert_eq!(billing.earlier[0].stranded.get(&StrandedCause::Rollback), Some(&200_000_000));
        let back = BatchStatus {
            node_pool: Some("h100".to_owned()),
            capacity_type: Some(CapacityType::OnDemand),
            ..launched.clone()
        };
        assert_eq!(parts(&billed(&launched, back, &[], 170), None), [h100, a100(20)]);
    }
}
