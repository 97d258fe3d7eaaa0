//! Memory of missing capacity.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};

use crate::model::launch::Pool;

/// How long a first failure blocks.
pub const ICE_FIRST_SECONDS: i64 = 3 * 60;
/// How long a repeated failure blocks.
pub const ICE_AGAIN_SECONDS: i64 = 5 * 60;
/// How long after its end a block still makes the next failure a repeated one: the longest back-off of a batch, so
/// that a gang which waited that long and fails again is not treated as if it had never tried.
const REMEMBERED_SECONDS: i64 = 10 * 60;

/// Pools that had no capacity, each with the smallest size that failed.
///
/// A failure at n says nothing about smaller n. Only [`super::ErrorClass::Capacity`] belongs here; quotas, throttles,
/// bad reservations and full subnets do not. Time is an argument of every method.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UnavailableMemory {
    pools: BTreeMap<Pool, Block>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Block {
    fails_at: u32,
    until: Timestamp,
    reported: bool,
}

impl UnavailableMemory {
    /// Remembers that `count` instances could not be had from the pool.
    pub fn record(&mut self, pool: &Pool, count: u32, now: Timestamp) {
        let earlier = self.pools.get(pool).copied().filter(|block| now < after(block.until, REMEMBERED_SECONDS));
        let seconds = if earlier.is_some() { ICE_AGAIN_SECONDS } else { ICE_FIRST_SECONDS };
        let fails_at = match earlier {
            Some(block) if now < block.until => block.fails_at.min(count),
            Some(_) | None => count,
        };
        self.pools.insert(pool.clone(), Block { fails_at, until: after(now, seconds), reported: false });
    }

    /// Forgets a failure that a successful launch of `count` disproves.
    pub fn succeeded(&mut self, pool: &Pool, count: u32) {
        if self.pools.get(pool).is_some_and(|block| block.fails_at <= count) {
            self.pools.remove(pool);
        }
    }

    /// Until when asking the pool for `count` is pointless; `None` if it may be tried.
    #[must_use]
    pub fn blocks(&self, pool: &Pool, count: u32, now: Timestamp) -> Option<Timestamp> {
        self.live(pool, now).filter(|block| count >= block.fails_at).map(|block| block.until)
    }

    /// The largest launch that is not known to fail; `None` if nothing is known against the pool.
    #[must_use]
    pub fn headroom(&self, pool: &Pool, now: Timestamp) -> Option<u32> {
        self.live(pool, now).map(|block| block.fails_at.saturating_sub(1))
    }

    /// Pools whose block has ended since the last call, for requeueing whoever waits for them. Drops what is too old to
    /// matter.
    pub fn lapse(&mut self, now: Timestamp) -> Vec<Pool> {
        self.pools.retain(|_, block| !block.reported || now < after(block.until, REMEMBERED_SECONDS));
        let mut lapsed = Vec::new();
        for (pool, block) in &mut self.pools {
            if !block.reported && now >= block.until {
                block.reported = true;
                lapsed.push(pool.clone());
            }
        }
        lapsed
    }

    fn live(&self, pool: &Pool, now: Timestamp) -> Option<&Block> {
        self.pools.get(pool).filter(|block| now < block.until)
    }
}

/// Saturates at the end of time rather than failing: such a block is never reached.
fn after(start: Timestamp, seconds: i64) -> Timestamp {
    start.checked_add(SignedDuration::from_secs(seconds)).unwrap_or(Timestamp::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::launch::CapacityType;

    fn pool() -> Pool {
        Pool {
            instance_type: "p5.48xlarge".to_owned(),
            zone: "us-east-1a".to_owned(),
            capacity_type: CapacityType::OnDemand,
            group: true,
        }
    }

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(1_800_000_000 + seconds).unwrap()
    }

    #[test]
    fn a_failure_blocks_that_size_and_larger_ones_for_three_minutes() {
        let mut memory = UnavailableMemory::default();
        memory.record(&pool(), 8, at(0));
        assert_eq!(memory.blocks(&pool(), 8, at(179)), Some(at(180)));
        assert_eq!(memory.blocks(&pool(), 9, at(0)), Some(at(180)));
        assert_eq!(memory.blocks(&pool(), 7, at(0)), None);
        assert_eq!(memory.blocks(&pool(), 8, at(180)), None);
        assert_eq!(memory.headroom(&pool(), at(0)), Some(7));
    }

    #[test]
    fn other_zones_capacity_types_and_group_choices_are_not_touched() {
        let mut memory = UnavailableMemory::default();
        memory.record(&pool(), 1, at(0));
        let others = [
            Pool { group: false, ..pool() },
            Pool { capacity_type: CapacityType::Spot, ..pool() },
            Pool { zone: "us-east-1b".to_owned(), ..pool() },
            Pool { instance_type: "p4d.24xlarge".to_owned(), ..pool() },
        ];
        assert!(others.iter().all(|other| memory.blocks(other, 100, at(0)).is_none()));
    }

    #[test]
    fn a_failure_after_the_block_ended_blocks_for_five_minutes() {
        let mut memory = UnavailableMemory::default();
        memory.record(&pool(), 8, at(0));
        memory.record(&pool(), 8, at(200));
        assert_eq!(memory.blocks(&pool(), 8, at(200)), Some(at(500)));
    }

    #[test]
    fn a_failure_long_after_the_last_one_counts_as_the_first() {
        let mut memory = UnavailableMemory::default();
        memory.record(&pool(), 8, at(0));
        memory.record(&pool(), 8, at(180 + 600));
        assert_eq!(memory.blocks(&pool(), 8, at(780)), Some(at(780 + 180)));
    }

    #[test]
    fn the_smallest_failing_size_counts_while_the_block_lasts() {
        let mut memory = UnavailableMemory::default();
        memory.record(&pool(), 4, at(0));
        memory.record(&pool(), 16, at(10));
        assert!(memory.blocks(&pool(), 4, at(20)).is_some());
        // Once the old block has ended, only the new failure is known.
        memory.record(&pool(), 16, at(1000));
        assert!(memory.blocks(&pool(), 4, at(1001)).is_none());
    }

    #[test]
    fn a_success_disproves_failures_up_to_its_size() {
        let mut memory = UnavailableMemory::default();
        memory.record(&pool(), 8, at(0));
        memory.succeeded(&pool(), 4);
        assert!(memory.blocks(&pool(), 8, at(1)).is_some());
        memory.succeeded(&pool(), 8);
        assert!(memory.blocks(&pool(), 8, at(1)).is_none());
    }

    #[test]
    fn each_lapse_is_reported_once_and_old_ones_are_dropped() {
        let mut memory = UnavailableMemory::default();
        memory.record(&pool(), 8, at(0));
        assert!(memory.lapse(at(179)).is_empty());
        assert_eq!(memory.lapse(at(180)), [pool()]);
        assert!(memory.lapse(at(181)).is_empty());
        assert!(memory.lapse(at(180 + 600)).is_empty());
        assert_eq!(memory, UnavailableMemory::default());
    }

    #[test]
    fn the_end_of_time_is_no_failure() {
        let mut memory = UnavailableMemory::default();
        memory.record(&pool(), 1, Timestamp::MAX);
        assert!(memory.lapse(Timestamp::MAX).len() <= 1);
    }
}
