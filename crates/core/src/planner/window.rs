//! Which windows of balance can hold a gang at all, counted on the domains of one level alone.
//!
//! A necessary condition that costs a look at a sorted list, where the knapsack that decides costs a solver: on a fabric
//! of racks of all sizes nearly every window that is too narrow is ruled out here.

use std::ops::RangeInclusive;

use super::capacity::Capacity;
use super::rules::Rules;
use crate::planner::plan::LevelIndex;

/// The domains of one level, as far as a window is concerned.
#[derive(Debug)]
pub(super) struct Windows {
    /// Members that a domain without bound ones can hold, largest first.
    free: Vec<u64>,
    /// Members bound and the most that can stand there, per domain with bound members.
    standing: Vec<(u64, u64)>,
    /// Domains used, those with bound members included.
    used: u64,
    /// Members in all, bound ones included: at least, at most.
    members: (u64, u64),
}

impl Windows {
    pub(super) fn new(rules: &Rules, capacity: &Capacity, level: LevelIndex, used: u64, members: (u64, u64)) -> Self {
        let domains = || rules.most[level].iter().zip(&capacity.bound[level]);
        let mut free: Vec<u64> = domains().filter(|(_, bound)| **bound == 0).map(|(most, _)| *most).collect();
        free.sort_unstable_by(|a, b| b.cmp(a));
        let standing = domains().filter(|(_, bound)| **bound > 0);
        let standing =
            standing.map(|(most, bound)| (u64::from(*bound), most.saturating_add((*bound).into()))).collect();
        Self { free, standing, used, members }
    }

    /// Where windows of a width may start: each holds the average.
    pub(super) fn starts(&self, width: u64) -> impl Iterator<Item = u64> {
        let (fewest, most) = self.members;
        let from = fewest.div_ceil(self.used).saturating_sub(width).max(1);
        (from..=(most / self.used).max(1)).filter(move |start| self.can_hold(*start..=start.saturating_add(width)))
    }

    /// The least width of which some window can hold the members, if any at most `most` can.
    pub(super) fn narrowest(&self, most: u64) -> u64 {
        let any = |width: u64| self.starts(width).next().is_some();
        let (mut fails, mut width) = (0, most);
        if any(fails) {
            return fails;
        }
        // A wider window holds all that a narrower one does.
        while fails + 1 < width {
            let middle = fails.midpoint(width);
            if any(middle) { width = middle } else { fails = middle }
        }
        width
    }

    fn can_hold(&self, window: RangeInclusive<u64>) -> bool {
        let (low, high) = (*window.start(), *window.end());
        if self.standing.iter().any(|(bound, most)| *bound > high || *most < low) {
            return false;
        }
        let more = self.used.saturating_sub(self.standing.len() as u64);
        let eligible = self.free.iter().take_while(|most| **most >= low);
        let chosen: Vec<u64> = eligible.take(usize::try_from(more).unwrap_or(usize::MAX)).copied().collect();
        if (chosen.len() as u64) < more {
            return false;
        }
        let least: u64 = self.standing.iter().map(|(bound, _)| (*bound).max(low)).sum();
        let standing = self.standing.iter().map(|(_, most)| (*most).min(high));
        let most: u64 = standing.chain(chosen.into_iter().map(|most| most.min(high))).sum();
        least + more * low <= self.members.1 && self.members.0 <= most
    }
}
