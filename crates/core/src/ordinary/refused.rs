//! What is remembered of purchases that kube-scheduler put no pod on, and what follows for the next ones.
//!
//! A node that never takes its pods would be launched for ever: it has less memory than was estimated, a startup taint that nobody
//! removes, or a reason that only kube-scheduler knows. So purchases in vain are counted by pool and class of pods: after the first
//! one node is tried alone, of another type if there is one; after two in a row nothing is launched for that class from
//! that pool until a pause has passed, which doubles. Counted by pool and not by type alone, since what keeps pods away is as
//! often a property of the pool, and a pool may have hundreds of types to try.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};

use crate::model::class::is_readable;
use crate::model::moment::moment;
use crate::model::pauses::{after, doubled};

/// Purchases in a row that nobody came to, until the pool waits.
const PURCHASES: u32 = 2;
/// The first pause; as long as it takes about to launch a node and to see that it is not used.
const FIRST: SignedDuration = SignedDuration::from_mins(5);
/// The longest pause.
const LONGEST: SignedDuration = SignedDuration::from_hours(1);
/// A refusal that is this old is forgotten.
const FORGOTTEN: SignedDuration = SignedDuration::from_hours(24);
/// Most classes remembered of one pool; of more the oldest are forgotten.
const CLASSES: usize = 100;

/// The versions of a NodePool and of its EC2NodeClass: what was refused of others says nothing of these.
pub type Generations = (i64, i64);

/// Purchases in vain, by pool.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct SchedulerRefusals {
    pools: BTreeMap<Arc<str>, OfPool>,
}

/// Purchases in vain of one pool.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct OfPool {
    /// Versions of the pool and its class that they were made from.
    pub generations: Generations,
    /// By class of pods, see [`crate::ordinary::digest`].
    pub classes: BTreeMap<Arc<str>, Refused>,
}

/// Purchases in vain for one class of pods.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Refused {
    /// In a row, since a pod of the class last came to a node of the pool.
    pub in_a_row: u32,
    /// By instance type, since a pod of the class last came to one.
    pub types: BTreeMap<Arc<str>, Times>,
}

/// How often, and when last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Times {
    /// Purchases.
    pub purchases: u32,
    /// When the last of them was seen to be in vain, by the provisioner's clock.
    pub last: Timestamp,
}

impl Refused {
    fn last(&self) -> Option<Timestamp> {
        self.types.values().map(|times| times.last).max()
    }

    /// When the next purchase may be made; `None`: now, as far as this goes.
    #[must_use]
    pub fn next_try(&self) -> Option<Timestamp> {
        let doublings = self.in_a_row.checked_sub(PURCHASES)?;
        Some(after(self.last()?, pause(doublings)))
    }
}

/// The pause after so many doublings.
pub(super) fn pause(doublings: u32) -> SignedDuration {
    doubled(FIRST, LONGEST, doublings)
}

impl OfPool {
    /// What the pool's condition says while nothing is launched for some pods; `None`: it waits for nobody.
    #[must_use]
    pub fn waits(&self) -> Option<String> {
        let waits: Vec<_> = self.classes.values().filter_map(|row| row.next_try().map(|next| (row, next))).collect();
        let (row, next) = waits.iter().max_by_key(|(_, next)| *next)?;
        let types: Vec<&str> = row.types.keys().map(|name| &**name).collect();
        let of = match waits.len() {
            1 => "one kind of pods".to_owned(),
            more => format!("one of {more} kinds of pods"),
        };
        Some(format!("{} ({}); {}", unused(row.in_a_row, &of), types.join(", "), tried_after(*next)))
    }
}

/// That launches in a row were not used, for a person.
pub(super) fn unused(in_a_row: u32, pods: &str) -> String {
    let (launches, were) = if in_a_row == 1 { ("launch", "was") } else { ("launches", "were") };
    format!("{in_a_row} {launches} in a row for {pods} {were} not used: kube-scheduler did not place them there")
}

/// When the next purchase is made, for a person.
pub(super) fn tried_after(next: Timestamp) -> String {
    format!("another node is tried after {}", moment(next))
}

impl SchedulerRefusals {
    /// What was remembered before, as by a former process.
    #[must_use]
    pub fn new(pools: BTreeMap<Arc<str>, OfPool>) -> Self {
        Self { pools }
    }

    /// What is remembered of a pool.
    #[must_use]
    pub fn of(&self, pool: &str) -> Option<&OfPool> {
        self.pools.get(pool)
    }

    /// Whether nothing is remembered.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.pools.is_empty()
    }

    fn row(&self, pool: &str, class: &str) -> Option<&Refused> {
        self.pools.get(pool)?.classes.get(class)
    }

    /// Purchases in vain for a class from a pool, in a row.
    #[must_use]
    pub fn in_a_row(&self, pool: &str, class: &str) -> u32 {
        self.row(pool, class).map_or(0, |row| row.in_a_row)
    }

    /// Until when nothing is launched for a class from a pool; `None`: something may be.
    #[must_use]
    pub fn waits_until(&self, pool: &str, class: &str, now: Timestamp) -> Option<Timestamp> {
        self.row(pool, class)?.next_try().filter(|until| now < *until)
    }

    /// For how many classes, over all pools, nothing is launched now.
    #[must_use]
    pub fn waiting(&self, now: Timestamp) -> usize {
        let rows = self.pools.values().flat_map(|pool| pool.classes.values());
        rows.filter(|row| row.next_try().is_some_and(|until| now < until)).count()
    }

    /// Instance types that another is better tried before, for a class from a pool.
    pub fn avoided(&self, pool: &str, class: &str, now: Timestamp) -> impl Iterator<Item = &Arc<str>> {
        let types = self.row(pool, class).into_iter().flat_map(|row| &row.types);
        let avoided = move |times: &Times| now < after(times.last, pause(times.purchases.saturating_sub(1)));
        types.filter(move |(_, times)| avoided(times)).map(|(name, _)| name)
    }

    /// A purchase of this moment was in vain. What was launched before the last such one was noticed belongs to it: one round
    /// may launch several batches. Whether it counts.
    pub fn refuse(&mut self, of: &Purchase<'_>, launched: Timestamp, now: Timestamp) -> bool {
        let pool = self.pools.entry(Arc::clone(of.pool)).or_default();
        if pool.generations != of.generations {
            *pool = OfPool { generations: of.generations, classes: BTreeMap::new() };
        }
        let row = pool.classes.entry(Arc::clone(of.class)).or_default();
        if row.types.get(of.instance_type).is_some_and(|times| launched < times.last) {
            return false;
        }
        if row.last().is_none_or(|last| launched >= last) {
            row.in_a_row = row.in_a_row.saturating_add(1);
        }
        let times = row.types.entry(Arc::clone(of.instance_type)).or_insert(Times { purchases: 0, last: now });
        *times = Times { purchases: times.purchases.saturating_add(1), last: now };
        while pool.classes.len() > CLASSES {
            let oldest = pool.classes.iter().min_by_key(|(_, row)| row.last()).map(|(class, _)| Arc::clone(class));
            oldest.and_then(|class| pool.classes.remove(&class));
        }
        true
    }

    /// A pod of the class has come to a node of this type. Whether anything is forgotten.
    pub fn came(&mut self, of: &Purchase<'_>) -> bool {
        let Some(pool) = self.pools.get_mut(of.pool) else { return false };
        let Some(row) = pool.classes.get_mut(of.class) else { return false };
        row.in_a_row = 0;
        row.types.remove(of.instance_type);
        if row.types.is_empty() {
            pool.classes.remove(of.class);
        }
        if pool.classes.is_empty() {
            self.pools.remove(of.pool);
        }
        true
    }

    /// When a purchase for a class from a pool was last seen to be in vain.
    #[must_use]
    pub fn last(&self, pool: &str, class: &str) -> Option<Timestamp> {
        self.row(pool, class)?.last()
    }

    /// Forgets what is about pools that are gone or that have changed, and what is old. Whether anything was forgotten.
    pub fn forget(&mut self, generations: &BTreeMap<Arc<str>, Generations>, now: Timestamp) -> bool {
        let before: usize = self.pools.values().map(|pool| pool.classes.len()).sum();
        self.pools.retain(|name, pool| {
            let recent = |last: Timestamp| now.duration_since(last) < FORGOTTEN;
            // No pod is of a class that another version wrote down: nothing ever ends what is kept of it.
            pool.classes.retain(|class, row| is_readable(class) && row.last().is_some_and(recent));
            generations.get(name) == Some(&pool.generations) && !pool.classes.is_empty()
        });
        before != self.pools.values().map(|pool| pool.classes.len()).sum::<usize>()
    }
}

/// For which class, of what.
#[derive(Clone, Copy, Debug)]
pub struct Purchase<'a> {
    /// NodePool.
    pub pool: &'a Arc<str>,
    /// Its versions.
    pub generations: Generations,
    /// Class of pods.
    pub class: &'a Arc<str>,
    /// Instance type.
    pub instance_type: &'a Arc<str>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(minutes: i64) -> Timestamp {
        Timestamp::from_second(1_700_000_000 + 60 * minutes).unwrap()
    }

    struct Names {
        pool: Arc<str>,
        class: Arc<str>,
        small: Arc<str>,
        large: Arc<str>,
    }

    fn names() -> Names {
        Names { pool: "general".into(), class: "3-a".into(), small: "small".into(), large: "large".into() }
    }

    impl Names {
        fn of<'a>(&'a self, instance_type: &'a Arc<str>) -> Purchase<'a> {
            Purchase { pool: &self.pool, generations: (1, 1), class: &self.class, instance_type }
        }
    }

    #[test]
    fn after_two_purchases_in_vain_the_pauses_double_up_to_an_hour() {
        let names = names();
        let mut refusals = SchedulerRefusals::default();
        let mut now = 0;
        let mut pauses = Vec::new();
        for _ in 0..8 {
            // Launched at the moment at which it may be, and seen to be in vain three minutes later.
            assert!(refusals.refuse(&names.of(&names.small), at(now), at(now + 3)));
            now += 3;
            let until = refusals.waits_until("general", "3-a", at(now)).unwrap_or(at(now));
            pauses.push(until.duration_since(at(now)).as_mins());
            assert_eq!(refusals.waits_until("general", "3-a", until), None);
            now += pauses.last().unwrap();
        }
        assert_eq!(pauses, [0, 5, 10, 20, 40, 60, 60, 60]);
        let last = refusals.last("general", "3-a").unwrap();
        assert_eq!((refusals.waiting(last), refusals.waiting(after(last, LONGEST))), (1, 0));
        assert_eq!(refusals.waits_until("general", "3-b", at(4)), None, "another class is not concerned");
        assert_eq!(refusals.waits_until("other", "3-a", at(4)), None, "nor another pool");
    }

    #[test]
    fn batches_of_one_round_are_one_purchase_and_each_type_of_them_is_avoided() {
        let names = names();
        let mut refusals = SchedulerRefusals::default();
        assert!(refusals.refuse(&names.of(&names.small), at(0), at(3)));
        assert!(
            !refusals.refuse(&names.of(&names.small), at(1), at(4)),
            "launched before the first was seen to be in vain"
        );
        assert!(refusals.refuse(&names.of(&names.large), at(1), at(4)));
        assert_eq!(refusals.in_a_row("general", "3-a"), 1);
        let avoided = |now| refusals.avoided("general", "3-a", now).map(|name| &**name).collect::<Vec<_>>();
        assert_eq!(avoided(at(5)), ["large", "small"]);
        assert_eq!(avoided(at(8)), ["large"], "five minutes after its own refusal");
    }

    #[test]
    fn a_pod_that_comes_ends_the_row_and_clears_its_type_alone() {
        let names = names();
        let mut refusals = SchedulerRefusals::default();
        refusals.refuse(&names.of(&names.small), at(0), at(3));
        refusals.refuse(&names.of(&names.large), at(4), at(7));
        assert!(refusals.waits_until("general", "3-a", at(8)).is_some());
        assert!(refusals.came(&names.of(&names.large)));
        assert_eq!((refusals.in_a_row("general", "3-a"), refusals.waits_until("general", "3-a", at(8))), (0, None));
        assert_eq!(refusals.avoided("general", "3-a", at(7)).count(), 1);
        assert!(refusals.came(&names.of(&names.small)) && refusals.is_empty());
        assert!(!refusals.came(&names.of(&names.small)));
    }

    #[test]
    fn a_pool_that_changed_and_a_refusal_of_yesterday_say_nothing_any_more() {
        let names = names();
        let refused = || {
            let mut refusals = SchedulerRefusals::default();
            refusals.refuse(&names.of(&names.small), at(0), at(3));
            refusals
        };
        let is = |generations| BTreeMap::from([(Arc::clone(&names.pool), generations)]);
        assert!(!refused().forget(&is((1, 1)), at(4)));
        for (generations, now) in
            [(is((2, 1)), at(4)), (is((1, 2)), at(4)), (BTreeMap::new(), at(4)), (is((1, 1)), at(1443))]
        {
            let mut refusals = refused();
            assert!(refusals.forget(&generations, now) && refusals.is_empty(), "{generations:?}");
        }
        let mut refusals = refused();
        let changed = Purchase { generations: (2, 1), ..names.of(&names.large) };
        refusals.refuse(&changed, at(4), at(7));
        assert_eq!(refusals.in_a_row("general", "3-a"), 1, "the first was of another pool");
    }

    #[test]
    fn a_pool_says_for_how_many_kinds_of_pods_it_waits_and_until_when() {
        let names = names();
        let mut refusals = SchedulerRefusals::default();
        refusals.refuse(&names.of(&names.small), at(0), at(3));
        assert_eq!(refusals.of("general").unwrap().waits(), None, "the first is tried again at once");
        refusals.refuse(&names.of(&names.large), at(4), at(7));
        let one = "2 launches in a row for one kind of pods were not used: kube-scheduler did not place them there (large, small); \
                   another node is tried after 2023-11-14T22:25:20Z";
        assert_eq!(refusals.of("general").unwrap().waits().as_deref(), Some(one));
        let class: Arc<str> = "3-b".into();
        let other = Purchase { class: &class, ..names.of(&names.small) };
        refusals.refuse(&other, at(0), at(1));
        refusals.refuse(&other, at(2), at(3));
        let both = refusals.of("general").unwrap().waits().unwrap();
        assert!(
            both.starts_with("2 launches in a row for one of 2 kinds of pods were not used")
                && both.ends_with("T22:25:20Z"),
            "{both}"
        );
    }

    #[test]
    fn of_very_many_classes_the_oldest_are_forgotten() {
        let names = names();
        let mut refusals = SchedulerRefusals::default();
        for number in 0..150 {
            let class: Arc<str> = format!("3-{number:03}").into();
            refusals.refuse(&Purchase { class: &class, ..names.of(&names.small) }, at(number), at(number + 1));
        }
        let classes = &refusals.of("general").unwrap().classes;
        assert_eq!((classes.len(), classes.contains_key("3-049"), classes.contains_key("3-050")), (100, false, true));
    }
}
