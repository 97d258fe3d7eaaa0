//! Rules domains out by the number of their children that an optimal placement can use.
//!
//! Once it is known that a placement uses exactly so many domains of a level, fewest children come next. With `k`
//! children a domain holds at most the sum of its `k` largest. Some set of domains gives an upper bound on the children
//! needed; a domain that cannot be part of any set within that bound, even beside the best conceivable others, is in no
//! optimal placement, and neither are numbers of members in some domains that leave too much to the others. This changes no
//! answer, only what is merged.

use std::cmp::Reverse;

/// More domains than this are not worth bounding: the exchanges grow by their square.
const MOST_DOMAINS: usize = 8;
/// Rounds of exchanges that improve the upper bound.
const ROUNDS: usize = 3;

/// What narrowing found out.
#[derive(Debug)]
pub(super) struct Narrowed {
    /// Which domains can be part of an optimal placement, one entry per domain.
    pub(super) possible: Vec<bool>,
    /// What bounds them; `None` if nothing does.
    pub(super) limits: Option<Limits>,
}

/// Bounds on every part of an optimal placement.
#[derive(Debug)]
pub(super) struct Limits {
    /// Domains that are used.
    used: usize,
    /// Children that are used at most.
    children: usize,
    members: usize,
    /// Per number of domains and of children: what they hold at most.
    most: Vec<Vec<usize>>,
}

impl Limits {
    /// Whether `members` in so many domains and so many of their children can be part of an optimal placement: the other
    /// domains and children must hold the rest.
    pub(super) fn allow(&self, members: usize, used: u64, children: u64) -> bool {
        let left = |of: usize, taken: u64| of.checked_sub(usize::try_from(taken).unwrap_or(usize::MAX));
        let (used, children) = (left(self.used, used), left(self.children, children));
        let rest = used.zip(children).map(|(used, children)| self.most[used][children]);
        rest.is_some_and(|rest| members + rest >= self.members)
    }
}

/// Bounds an optimal placement of `members` in exactly `used` of some domains.
///
/// Shapes: `capacities` has, per domain, what every child holds.
pub(super) fn narrowed(mut capacities: Vec<Vec<usize>>, used: usize, members: usize) -> Narrowed {
    let all = Narrowed { possible: vec![true; capacities.len()], limits: None };
    if used > MOST_DOMAINS || capacities.len() <= 1 {
        return all;
    }
    for capacity in &mut capacities {
        capacity.sort_unstable_by_key(|capacity| Reverse(*capacity));
    }
    let Some(bound) = upper_bound(&capacities, used, members) else { return all };
    let prefix = |capacity: &[usize]| {
        let sums = capacity.iter().take(bound).scan(0, |sum, capacity| {
            *sum += capacity;
            Some(*sum)
        });
        std::iter::once(0).chain(sums).collect::<Vec<usize>>()
    };
    let sums: Vec<Vec<usize>> = capacities.iter().map(|capacity| prefix(capacity)).collect();
    // The most that any domain holds with so many children, and what several of them hold together.
    let best: Vec<usize> = (0..=bound).map(|k| sums.iter().map(|sums| at(sums, k)).max().unwrap_or(0)).collect();
    let hull = Hull::new(&best);
    let most: Vec<Vec<usize>> =
        (0..=used).map(|others| (0..=bound).map(|k| hull.several(others, k)).collect()).collect();
    let limits = Limits { used, children: bound, members, most };
    let possible = |sums: &Vec<usize>| (1..=bound).any(|k| limits.allow(at(sums, k), 1, k as u64));
    Narrowed { possible: sums.iter().map(possible).collect(), limits: Some(limits) }
}

/// The least concave function that is nowhere below another, which is given from 0 on and never falls.
struct Hull {
    /// Where it bends, ascending; the first and the last number are among them.
    bends: Vec<(usize, usize)>,
}

impl Hull {
    fn new(values: &[usize]) -> Self {
        let mut bends: Vec<(usize, usize)> = Vec::new();
        for (x, &y) in values.iter().enumerate() {
            while let [.., (ax, ay), (bx, by)] = *bends.as_slice() {
                // The middle one of three lies on or below the line between the others.
                if (by - ay) * (x - ax) > (y - ay) * (bx - ax) {
                    break;
                }
                bends.pop();
            }
            bends.push((x, y));
        }
        Self { bends }
    }

    /// At least what `times` such functions give together that share `number`: each takes the same or one more, since
    /// they are concave. Rounded up.
    fn several(&self, times: usize, number: usize) -> usize {
        if times == 0 {
            return 0;
        }
        let (share, more) = (number / times, number % times);
        self.scaled(times - more, share) + self.scaled(more, share + 1)
    }

    /// So many times the value at `x`, rounded up.
    fn scaled(&self, times: usize, x: usize) -> usize {
        let after = self.bends.partition_point(|(bend, _)| *bend <= x);
        let (before, after) = (self.bends[after.saturating_sub(1)], self.bends.get(after));
        let rise =
            after.map_or(0, |after| (times * (after.1 - before.1) * (x - before.0)).div_ceil(after.0 - before.0));
        times * before.1 + rise
    }
}

/// The sum with `children` children; more than there are add nothing.
fn at(sums: &[usize], children: usize) -> usize {
    sums[children.min(sums.len() - 1)]
}

/// Children that some good set of domains needs; `None` if none was found.
fn upper_bound(capacities: &[Vec<usize>], used: usize, members: usize) -> Option<usize> {
    let share = members.div_ceil(used);
    let mut order: Vec<usize> = (0..capacities.len()).collect();
    order.sort_by_key(|domain| (needed(&[&capacities[*domain]], share).unwrap_or(usize::MAX), *domain));
    let mut chosen: Vec<usize> = order.iter().copied().take(used).collect();
    let count = |chosen: &[usize]| {
        let parts: Vec<&Vec<usize>> = chosen.iter().map(|domain| &capacities[*domain]).collect();
        needed(&parts, members)
    };
    let mut best = count(&chosen);
    for _ in 0..ROUNDS {
        let before = best;
        for place in 0..used {
            for domain in 0..capacities.len() {
                let old = chosen[place];
                if chosen.contains(&domain) {
                    continue;
                }
                chosen[place] = domain;
                match count(&chosen) {
                    Some(children) if best.is_none_or(|best| children < best) => best = Some(children),
                    Some(_) | None => chosen[place] = old,
                }
            }
        }
        if best == before {
            break;
        }
    }
    best
}

/// Fewest children of some domains that hold all members, each domain's children largest first.
fn needed(parts: &[&Vec<usize>], members: usize) -> Option<usize> {
    let mut next = [0_usize; MOST_DOMAINS];
    let (mut held, mut children) = (0, 0);
    while held < members {
        let heads =
            parts.iter().enumerate().filter_map(|(part, capacities)| Some((*capacities.get(next[part])?, part)));
        let (capacity, part) = heads.max()?;
        // Children of equal capacity are taken together.
        let equal = parts[part][next[part]..].iter().take_while(|other| **other == capacity).count();
        let wanted = if capacity == 0 { return None } else { (members - held).div_ceil(capacity).min(equal) };
        held += wanted * capacity;
        children += wanted;
        next[part] += wanted;
    }
    Some(children)
}
