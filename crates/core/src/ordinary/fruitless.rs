//! Launches for pods of no gang that bring no node, since EC2 has no capacity or ends what it launched: how soon the next is tried.
//!
//! What lacks capacity is left alone for some minutes, and then another type, zone or capacity type is asked for: of hundreds there is
//! always one that was not asked for lately, so that this alone is no throttle. So launches in vain are counted by pool. After the
//! first, one launch at a time is tried for the pods that got nothing; after three in a row the pool pauses for them, longer each
//! time. Pods that no launch of the pool was in vain for are not concerned, and neither is any other pool. As soon as EC2 launches
//! anything for the pods that got nothing all is forgotten, but for one cause:
//!
//! Instances that end before any of their launch is a node are a launch in vain too: a key that EC2 may not use for the volumes, user
//! data that powers off, an account that ends what it does not know. EC2 launches those every time, and they are billed: there it takes
//! a node that registers, and until one does one launch at a time is under way.
//!
//! It is not written down: whoever wins the lease begins with a pause where the condition of the pool says that there was one.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};

use crate::model::batch::{AttemptOutcome, Batch, BatchMember, BatchPhase, LossCause, MemberState, Owner};
use crate::model::moment::moment;
use crate::model::pauses::{after, doubled};

/// So many launches in vain follow each other at once: the next offer may well be had.
const AT_ONCE: u32 = 2;
/// The first pause.
const FIRST: SignedDuration = SignedDuration::from_secs(30);
/// The longest pause; as long as a lack of capacity is remembered, so that the cheapest offer is asked for again after it.
const LONGEST: SignedDuration = SignedDuration::from_mins(5);
/// One launch makes several calls, each for another offer. So much time passes for each.
const PER_CALL: SignedDuration = SignedDuration::from_secs(30);

/// Launches in vain, by pool.
#[derive(Clone, Debug, Default)]
pub struct Fruitless {
    pools: BTreeMap<Arc<str>, OfPool>,
    /// Batches of which it is not known yet whether they bring a node, by UID.
    open: BTreeMap<String, Open>,
    /// Batches of which that is known.
    over: BTreeSet<String>,
}

#[derive(Clone, Debug, Default)]
struct OfPool {
    in_a_row: u32,
    /// When the last was noticed.
    noticed: Option<Timestamp>,
    until: Option<Timestamp>,
    /// Classes of pods that got nothing, and when last. `None`: it is not known of which this is so, as after a change of the leader.
    classes: Option<BTreeMap<Arc<str>, Timestamp>>,
    /// Instances of one ended before they were nodes: what EC2 launches says nothing, what registers does.
    ended: bool,
    /// It was so of the last.
    last_ended: bool,
}

#[derive(Clone, Debug)]
struct Open {
    pool: Arc<str>,
    classes: BTreeSet<Arc<str>>,
    calls: u32,
    begun: Option<Timestamp>,
    /// When EC2 answered to the last of its calls.
    answered: Option<Timestamp>,
    /// Whether EC2 launched anything.
    launched: bool,
    /// EC2 took an instance.
    taken: bool,
    /// An instance did not join in its time.
    late: bool,
}

/// What came of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    /// EC2 has not answered yet to what it asks for.
    Asks,
    /// EC2 had nothing.
    Nothing,
    /// Instances that are no nodes yet.
    Boots,
    /// A node.
    Registered,
    /// Instances that EC2 took, and never a node.
    Ended,
    /// Somebody deleted it, or its nodes were given up: others judge that.
    Unknown,
}

impl OfPool {
    fn concerns(&self, class: &str) -> bool {
        self.classes.as_ref().is_none_or(|classes| classes.contains_key(class))
    }

    fn pauses(&self, now: Timestamp) -> bool {
        self.until.is_some_and(|until| now < until)
    }
}

impl Fruitless {
    /// Of a process that has just won the lease; its predecessor reported that these pools pause. The short pauses are behind them: one
    /// launch is tried soon, and after it the pause is a long one.
    #[must_use]
    pub fn taken_over(pausing: impl IntoIterator<Item = Arc<str>>, now: Timestamp) -> Self {
        let (noticed, until) = (Some(now), Some(after(now, FIRST)));
        let row = || OfPool { in_a_row: AT_ONCE + 3, noticed, until, ..OfPool::default() };
        Self { pools: pausing.into_iter().map(|pool| (pool, row())).collect(), ..Self::default() }
    }

    /// Takes note of what became of batches. Pools that are not among `pools` are forgotten.
    pub fn look<'b>(
        &mut self,
        batches: impl IntoIterator<Item = &'b Batch>,
        pools: &BTreeSet<Arc<str>>,
        now: Timestamp,
    ) {
        let mut there = BTreeSet::new();
        for batch in batches.into_iter().filter(|batch| is_followed(batch)) {
            there.insert(batch.uid.clone());
            if self.over.contains(&batch.uid) {
                continue;
            }
            let Some(mut seen) = Open::of(batch) else { continue };
            let known = self.open.get(&batch.uid);
            let was_launched = known.is_some_and(|known| known.launched);
            // Lost instances are forgotten one after the other.
            if let Some(known) = known {
                seen.launched |= known.launched;
                seen.taken |= known.taken;
                seen.late |= known.late;
            }
            let fate = fate(batch, &seen);
            match fate {
                Fate::Asks => {}
                Fate::Nothing => self.failed(&seen, false, now),
                Fate::Boots if was_launched => {}
                Fate::Boots | Fate::Unknown => self.came(&seen, false),
                Fate::Registered => self.came(&seen, true),
                Fate::Ended => self.failed(&seen, true, now),
            }
            if matches!(fate, Fate::Asks | Fate::Boots) {
                self.open.insert(batch.uid.clone(), seen);
            } else {
                self.open.remove(&batch.uid);
                self.over.insert(batch.uid.clone());
            }
        }
        // One that went before anybody saw it end brought nothing.
        let gone: Vec<String> = self.open.keys().filter(|uid| !there.contains(*uid)).cloned().collect();
        for open in gone.iter().filter_map(|uid| self.open.remove(uid)).collect::<Vec<_>>() {
            self.failed(&open, open.launched, now);
        }
        self.over.retain(|uid| there.contains(uid));
        self.pools.retain(|pool, _| pools.contains(pool));
    }

    /// `ended`: EC2 launched something.
    fn failed(&mut self, open: &Open, ended: bool, now: Timestamp) {
        if open.calls == 0 {
            // EC2 was asked for nothing.
            return;
        }
        let row = self
            .pools
            .entry(Arc::clone(&open.pool))
            .or_insert_with(|| OfPool { classes: Some(BTreeMap::new()), ..OfPool::default() });
        // What began before the last was noticed belongs to it: a round may launch several batches.
        let same = row.noticed.is_some_and(|noticed| open.begun.is_some_and(|begun| begun <= noticed));
        if let Some(classes) = &mut row.classes {
            classes.extend(open.classes.iter().map(|class| (Arc::clone(class), now)));
        }
        row.ended |= ended;
        row.last_ended = ended;
        if same {
            return;
        }
        row.in_a_row = row.in_a_row.saturating_add(1);
        row.noticed = Some(now);
        row.until = row.in_a_row.checked_sub(AT_ONCE + 1).map(|doublings| {
            let doubled = doubled(FIRST, LONGEST, doublings);
            let calls = PER_CALL.saturating_mul(i32::try_from(open.calls).unwrap_or(i32::MAX));
            after(now, doubled.max(calls).min(LONGEST))
        });
    }

    /// EC2 launched something, or it is a node by now.
    fn came(&mut self, open: &Open, registered: bool) {
        let Some(row) = self.pools.get(&open.pool).filter(|row| registered || !row.ended) else { return };
        // Where the pause was taken over, all that serves is seen for the first time, and most of it was there before.
        let is_old = row.classes.is_none() && open.answered.is_some_and(|answered| row.noticed >= Some(answered));
        if !is_old && open.classes.iter().any(|class| row.concerns(class)) {
            self.pools.remove(&open.pool);
        }
    }

    /// Whether nothing was in vain lately.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.pools.is_empty()
    }

    /// How many pools pause now.
    #[must_use]
    pub fn pausing(&self, now: Timestamp) -> usize {
        self.pools.values().filter(|row| row.pauses(now)).count()
    }

    /// Until when a pool pauses for a class of pods.
    #[must_use]
    pub fn pauses_until(&self, pool: &str, class: &str, now: Timestamp) -> Option<Timestamp> {
        let row = self.pools.get(pool).filter(|row| row.concerns(class) && row.pauses(now))?;
        row.until
    }

    /// Whether nothing is launched from a pool for a class of pods now: it pauses, or the launch that is tried is under way among
    /// `batches`.
    #[must_use]
    pub fn keeps_off<'b>(
        &self,
        pool: &str,
        class: &str,
        mut batches: impl Iterator<Item = &'b Batch>,
        now: Timestamp,
    ) -> bool {
        let Some(row) = self.pools.get(pool).filter(|row| row.concerns(class)) else { return false };
        let tries = |batch: &Batch| {
            Open::of(batch).is_some_and(|open| {
                let concerns = *open.pool == *pool && open.classes.iter().any(|class| row.concerns(class));
                concerns && is_undecided(batch, &open, row.ended)
            })
        };
        row.pauses(now) || batches.any(tries)
    }

    /// Which of some launches may be made, each by its pool and the classes of its pods: of those for pods that got nothing one in each
    /// pool, the one whose pods have been in vain for longest.
    #[must_use]
    pub fn may_be_made(&self, launches: &[(&str, BTreeSet<&str>)]) -> Vec<bool> {
        let since = |(pool, classes): &(&str, BTreeSet<&str>)| -> Option<Timestamp> {
            let row = self.pools.get(*pool)?;
            let last = |class: &str| row.classes.as_ref().and_then(|all| all.get(class).copied());
            let concerned = classes.iter().filter(|class| row.concerns(class));
            concerned.map(|class| last(class).unwrap_or(Timestamp::MIN)).min()
        };
        let mut first: BTreeMap<&str, (Timestamp, usize)> = BTreeMap::new();
        for (index, launch) in launches.iter().enumerate() {
            if let Some(since) = since(launch) {
                let known = first.entry(launch.0).or_insert((since, index));
                *known = (*known).min((since, index));
            }
        }
        let chosen = |index: usize, pool: &str| first.get(pool).is_some_and(|(_, first)| *first == index);
        launches.iter().enumerate().map(|(index, one)| since(one).is_none() || chosen(index, one.0)).collect()
    }

    /// What the condition of a pool says from its first pause until a launch ends it: also between two pauses, so that whoever
    /// wins the lease then does not begin to count again.
    #[must_use]
    pub fn says(&self, pool: &str) -> Option<String> {
        let row = self.pools.get(pool)?;
        let then = tried_after(row.until?);
        Some(if row.ended {
            format!("{} launches in a row brought no node, {}; {then}", row.in_a_row, self.why(pool))
        } else {
            format!("EC2 had no capacity for {} launches in a row; {then}", row.in_a_row)
        })
    }

    /// Why the last launch of a pool was in vain, for a person.
    #[must_use]
    pub fn why(&self, pool: &str) -> &'static str {
        if self.pools.get(pool).is_some_and(|row| row.last_ended) {
            "since instances of the last ended before they registered"
        } else {
            "since EC2 had no capacity for the last"
        }
    }

    /// Launches in vain in a row.
    #[must_use]
    pub fn in_a_row(&self, pool: &str) -> u32 {
        self.pools.get(pool).map_or(0, |row| row.in_a_row)
    }
}

/// When the next launch is tried, for a person.
pub(super) fn tried_after(until: Timestamp) -> String {
    format!("another is tried after {}", moment(until))
}

fn is_followed(batch: &Batch) -> bool {
    batch.spec.partial && batch.spec.owner == Owner::Pods && batch.newer.is_none()
}

/// Whether EC2 has not answered yet to anything the batch asks for; or, if nodes are waited for, whether it has none yet.
fn is_undecided(batch: &Batch, open: &Open, waits_for_nodes: bool) -> bool {
    let status = &batch.status;
    let asks = matches!(status.phase, BatchPhase::Pending | BatchPhase::Launching);
    is_followed(batch)
        && !batch.deleting
        && match fate(batch, open) {
            Fate::Asks => asks,
            Fate::Boots => waits_for_nodes,
            Fate::Nothing | Fate::Registered | Fate::Ended | Fate::Unknown => false,
        }
}

/// What came of a batch so far. `known`: what was seen of it, also what it does not show any more.
fn fate(batch: &Batch, known: &Open) -> Fate {
    let status = &batch.status;
    let is_node = |one: &BatchMember| one.registered.is_some() || one.state == MemberState::Ready;
    let won = status.last().is_some_and(|attempt| attempt.outcome == AttemptOutcome::Won);
    let over = status.phase == BatchPhase::Terminating;
    match (status.instances.is_empty(), status.replaced.is_empty()) {
        _ if status.members().any(is_node) => Fate::Registered,
        (false, _) | (_, false) if batch.deleting => Fate::Unknown,
        (false, _) => Fate::Boots,
        (true, false) if known.taken => Fate::Ended,
        (true, false) => Fate::Unknown,
        // What a new lease holder does not see any more it does not judge.
        (true, true) if over && won => {
            if known.launched && !known.late {
                Fate::Ended
            } else {
                Fate::Unknown
            }
        }
        (true, true) if over => Fate::Nothing,
        (true, true) => Fate::Asks,
    }
}

impl Open {
    /// `None` of a batch that no pool offered.
    fn of(batch: &Batch) -> Option<Self> {
        let classes = batch.spec.fillings.iter().flat_map(|filling| &filling.pods);
        let lost = |is: fn(LossCause) -> bool| {
            batch.status.members().filter_map(|one| one.loss.as_ref()).any(|loss| is(loss.cause))
        };
        Some(Self {
            pool: batch.spec.node_pools.first()?.as_str().into(),
            classes: classes.map(|(class, _)| class.as_str().into()).collect(),
            calls: u32::try_from(batch.status.attempts.len()).unwrap_or(u32::MAX),
            begun: batch.status.attempts.first().and_then(|attempt| attempt.started),
            answered: batch.status.last().and_then(|attempt| attempt.ended),
            launched: batch.status.members().next().is_some(),
            taken: lost(LossCause::is_taken),
            late: lost(|cause| !cause.is_taken()),
        })
    }
}
