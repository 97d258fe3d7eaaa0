//! Local search: a few nodes of a draft are taken apart, their pods and those without a place are placed again in another
//! order and on other offers, and what is better and valid is kept. It knows every constraint, so that it mends what the
//! construction cannot see ahead: a larger node for pods that come later, another domain, a place for whom none was left.
//!
//! It is a function of the draft: what looks random is a fixed sequence, and what it may spend is counted.

use std::cmp::Ordering;
use std::ops::RangeInclusive;

use rustc_hash::FxHashMap;

use super::bits::Bits;
use super::branch::{is_valid, nobody_goes_earlier};
use super::compile::{Compiled, HOSTNAME};
use super::construct;
use super::draft::Draft;
use super::judge::Judge;
use super::problem::{Class, Rule};
use super::state::{Fitted, State};

/// Most pods of a plan that is searched: each round looks at all of them.
const PODS: usize = 2_000;
/// Most pods of a plan whose hosts are judged by their real minimum.
const REAL_HOSTS: usize = 60;
/// Most nodes taken apart in one round.
const RUINED: usize = 4;
/// Most nodes of one class or one domain that are taken apart together.
const TOGETHER: usize = 12;
/// Pods without a place that are tried in one round.
const MISSING: usize = 12;
/// Nodes looked at for a plan, and for each of so many of its pods.
const BASE: u64 = 6_000;
const EACH: u64 = 60;
const COUNTED: usize = 400;
/// The same for some dozens of pods, which are too many to be enumerated and of which every node is a large part of the price.
const DOZENS: RangeInclusive<usize> = 13..=48;
const BASE_OF_DOZENS: u64 = 40_000;
const IDLE_OF_DOZENS: usize = 800;
/// About so many at most for more pods of which each has a place, and as it prefers it: dollars are found soon. Over 30 seeds of the
/// mix of `make bench` 20,000 save another 0.07 % for 200 pods, 30,000 another 0.01 % for 500, and nothing for 1,000.
const OF_MORE: u64 = 8_000;
/// Rounds without an improvement after which the search ends, for any plan and for each of so many of its nodes.
const IDLE: usize = 150;
const IDLE_EACH: usize = 6;
const IDLE_COUNTED: usize = 40;

/// Times that all pods on nodes that exist are looked at in the end; nodes looked at for that, and plans judged.
const PASSES: usize = 3;
const FIRST: u64 = 200_000;
const JUDGED: usize = 200;

/// A fixed sequence of numbers (splitmix64).
struct Sequence(u64);

impl Sequence {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `end`; 0 if there is none.
    fn below(&mut self, end: usize) -> usize {
        let end = u64::try_from(end).unwrap_or(u64::MAX).max(1);
        usize::try_from(self.next() % end).unwrap_or(0)
    }

    fn shuffle<T>(&mut self, list: &mut [T]) {
        for at in (1..list.len()).rev() {
            list.swap(at, self.below(at + 1));
        }
    }
}

/// How the pods of one round find their places.
#[derive(Clone, Copy)]
struct Recipe {
    /// New nodes come as one offer of several, and not as the cheapest.
    chosen: bool,
    /// New nodes come in any domain, and not in the cheapest.
    scattered: bool,
    /// One of so many places is passed over; 0: none.
    skipped: usize,
    /// Pods that have to share a domain begin in one of the cells, drawn by this number and their class; 0: wherever it is
    /// cheapest.
    drawn: usize,
}

struct Search<'c, 'p> {
    compiled: &'c Compiled<'p>,
    judge: Option<Judge<'c, 'p>>,
    /// Weights of pools, the highest first, with their offers.
    tiers: Vec<(u32, Bits)>,
    /// `[pod]`: the weight of the pool its node is of, and how many preferences it dropped for that.
    tier_of: Vec<Option<(u32, usize)>>,
    sequence: Sequence,
    spread_by_host: bool,
    /// Each pod keeps the level it has: who drops what is not judged where there are too many pods to judge their hosts.
    levels_stay: bool,
    /// Somebody has no place: others may move to a pool of a lower weight for that.
    short: bool,
}

/// The draft, or a better plan.
pub(super) fn better<'c, 'p>(compiled: &'c Compiled<'p>, draft: Draft<'c, 'p>) -> Draft<'c, 'p> {
    let problem = compiled.problem;
    let pods = problem.pods.len();
    let first = problem.nodes.len();
    let base = if DOZENS.contains(&pods) { BASE_OF_DOZENS } else { BASE };
    let budget = problem.budget.mending.min(base + EACH * pods.min(COUNTED) as u64);
    let on_new = |slot: &Option<usize>| slot.is_some_and(|at| at >= first);
    let settled = draft.proven && draft.slots.iter().all(on_new);
    if budget == 0 || pods == 0 || pods > PODS || settled || problem.offers.is_empty() && !draft.is_short() {
        return draft;
    }
    let spread_by_host = problem.classes.iter().flat_map(Class::all_rules).any(|rule| match rule {
        Rule::Spread(spread) => &*spread.key == HOSTNAME,
        Rule::Affinity(_) | Rule::AntiAffinity(_) => false,
    });
    let levels_stay = spread_by_host && pods > REAL_HOSTS;
    let spread_by_host = spread_by_host && pods <= REAL_HOSTS;
    let mut weights: Vec<u32> = problem.pools.iter().map(|pool| pool.weight).collect();
    weights.sort_unstable();
    weights.dedup();
    let tiers = weights.iter().rev().map(|weight| (*weight, construct::tier(&draft.state, *weight))).collect();
    let weight_of = |at: usize| draft.state.weight(draft.state.slots[at].offer);
    let on_new =
        draft.slots.iter().zip(&draft.levels).map(|(slot, level)| Some((slot.filter(|at| *at >= first)?, *level)));
    let tier_of = on_new.map(|one| one.map(|(at, level)| (weight_of(at), level))).collect();
    let judge = (spread_by_host || first > 0).then(|| Judge::new(compiled));
    let sequence = Sequence(pods as u64);
    let mut search = Search { compiled, judge, tiers, tier_of, sequence, spread_by_host, levels_stay, short: false };
    search.run(draft, budget)
}

impl<'c, 'p> Search<'c, 'p> {
    fn run(&mut self, draft: Draft<'c, 'p>, budget: u64) -> Draft<'c, 'p> {
        let mut best = draft;
        let (mut broken, mut spent, mut idle) = (!self.stands(&best), 0, 0);
        let few = best.slots.len() <= *DOZENS.end();
        let lacks = broken || best.is_short() || best.levels.iter().any(|level| *level > 0);
        let budget = if few || lacks { budget } else { budget.min(OF_MORE) };
        let idling = if DOZENS.contains(&best.slots.len()) { IDLE_OF_DOZENS } else { IDLE };
        let patient = |draft: &Draft<'_, '_>| idling + IDLE_EACH * draft.state.new_nodes().count().min(IDLE_COUNTED);
        while spent < budget && idle < patient(&best) {
            let before = best.state.work.nodes;
            self.short = best.is_short();
            let tried = self.round(&best);
            spent += tried.state.work.nodes - before + 1;
            let lower = self.lower(&tried);
            // What does not stand is no plan: anything that does is better.
            let order = if broken { Ordering::Less } else { tried.rank().cmp(&best.rank()) };
            // Dollars are no reason for a pool of a lower weight, a pod that has a place is.
            let worse = !broken && !lower.is_empty() && tried.rank().0 >= best.rank().0;
            idle += 1;
            if order != Ordering::Greater && !worse && self.stands(&tried) {
                if order == Ordering::Less {
                    idle = 0;
                }
                for (pod, tier) in lower {
                    self.tier_of[pod] = Some(tier);
                }
                broken = false;
                let work = best.state.work;
                best = tried;
                best.state.work = work;
            }
        }
        let before = best.state.work.nodes;
        if !broken {
            self.go_first(&mut best);
            let known = (best.slots.clone(), best.levels.clone());
            best.exchange();
            if !self.stands(&best) {
                (best.slots, best.levels) = known;
            }
        }
        best.state.work.mended += spent + best.state.work.nodes - before;
        best.state.work.nodes = before;
        best
    }

    /// Pods on nodes of a pool of a lower weight than they had, with that weight and what they drop.
    fn lower(&self, draft: &Draft<'c, 'p>) -> Vec<(usize, (u32, usize))> {
        let first = self.compiled.problem.nodes.len();
        let of = |(pod, own): (usize, &Option<(u32, usize)>)| {
            let at = draft.slots[pod].filter(|at| *at >= first)?;
            let (weight, level) = (draft.state.weight(draft.state.slots[at].offer), draft.levels[pod]);
            own.is_some_and(|(own, dropped)| own > weight && level >= dropped).then_some((pod, (weight, level)))
        };
        if !self.short { Vec::new() } else { self.tier_of.iter().enumerate().filter_map(of).collect() }
    }

    /// Pods on nodes that exist go to the first that takes them, as far as that can be found out soon: the rounds pass over some
    /// nodes, and those that are Ready come before those that are joining.
    fn go_first(&self, draft: &mut Draft<'c, 'p>) {
        let first = self.compiled.problem.nodes.len();
        let most = draft.state.work.nodes + FIRST;
        let mut judged = 0;
        // What refused a pod refuses the next of its class, until somebody leaves a node.
        let mut from: FxHashMap<usize, usize> = FxHashMap::default();
        for _ in 0..PASSES {
            let mut moved = false;
            for pod in 0..draft.slots.len() {
                let Some((class, at)) = draft.class_of(pod).filter(|(_, at)| *at < first) else { continue };
                if draft.state.work.nodes > most || judged >= JUDGED {
                    return;
                }
                let linked = draft.state.topology.links(class);
                let start = if linked { 0 } else { from.get(&class).copied().unwrap_or(0) };
                draft.state.remove(at, class);
                let problem = self.compiled.problem;
                let (kind, level) = (&problem.kinds[problem.pods[pod]], draft.levels[pod]);
                let found = (start..at).find_map(|earlier| {
                    let class = problem.class_on(kind, earlier, level);
                    Some((class, draft.state.fits(earlier, class)?))
                });
                let Some((there, fitted)) = found else {
                    draft.state.stand(at, class);
                    from.insert(class, at);
                    continue;
                };
                judged += 1;
                draft.state.work.nodes += (first + draft.slots.len()) as u64;
                let to = draft.state.put(there, fitted);
                draft.slots[pod] = Some(to);
                if draft.is_ready(to) {
                    draft.levels[pod] = 0;
                }
                if self.stands(draft) {
                    moved = true;
                    from.values_mut().for_each(|known| *known = at.min(*known));
                } else {
                    draft.state.remove(to, there);
                    draft.state.stand(at, class);
                    (draft.slots[pod], draft.levels[pod]) = (Some(at), level);
                    from.insert(class, at);
                }
            }
            if !moved {
                return;
            }
            // Others may have left what pods without a place wait for.
            if draft.is_short() {
                let before = draft.clone();
                draft.settle(usize::MAX);
                if !self.stands(draft) {
                    *draft = before;
                }
            }
        }
    }

    /// One round: what the draft becomes.
    fn round(&mut self, draft: &Draft<'c, 'p>) -> Draft<'c, 'p> {
        let problem = self.compiled.problem;
        let first = problem.nodes.len();
        let mut state = draft.state.clone();
        let mut slots = draft.slots.clone();
        let ruined = self.ruined(&state);
        let mut loose: Vec<usize> = Vec::new();
        let mut missing = 0;
        for (pod, slot) in slots.iter().enumerate() {
            match slot {
                Some(at) if ruined.contains(at) => loose.push(pod),
                None if missing < MISSING => {
                    missing += 1;
                    loose.push(pod);
                }
                Some(_) | None => {}
            }
        }
        for pod in &loose {
            if let Some((class, at)) = draft.class_of(*pod).filter(|(_, at)| *at < first) {
                state.remove(at, class);
            }
        }
        for at in ruined.iter().filter(|at| **at >= first) {
            state.close(*at);
        }
        loose.iter().for_each(|pod| slots[*pod] = None);
        if self.spread_by_host {
            state.least = [0, 0, 1, 2, 99][self.sequence.below(5)];
        }
        match self.sequence.below(4) {
            0 => {}
            1 => loose.sort_by_key(|pod| std::cmp::Reverse(self.size(*pod))),
            _ => self.sequence.shuffle(&mut loose),
        }
        let recipe = Recipe {
            chosen: self.sequence.below(2) == 0,
            scattered: self.sequence.below(2) == 0,
            skipped: [0, 8, 4][self.sequence.below(3)],
            drawn: if self.sequence.below(2) == 0 { 0 } else { 1 + self.sequence.below(1 << 16) },
        };
        let mut levels = draft.levels.clone();
        // Who was refused for want of others may find them now.
        for _ in 0..2 {
            loose.retain(|pod| {
                let found = self.place(&mut state, *pod, levels[*pod], recipe, first);
                (slots[*pod], levels[*pod]) = found.map_or((None, 0), |(at, level)| (Some(at), level));
                slots[*pod].is_none()
            });
            if loose.is_empty() {
                break;
            }
        }
        let mut touched: Vec<usize> = (draft.state.slots.len()..state.slots.len()).collect();
        touched.extend((first..draft.state.slots.len()).filter(|at| {
            !state.slots[*at].counts.is_empty() && state.slots[*at].counts != draft.state.slots[*at].counts
        }));
        for at in touched {
            let weight = problem.pools[self.compiled.offer(state.slots[at].offer).pool].weight;
            if let Some((_, tier)) = self.tiers.iter().find(|(known, _)| *known == weight) {
                state.tier.clone_from(tier);
            }
            if !state.refit(at) {
                // It was opened as one offer, and its pool asks for more than that one: nothing is won by it.
                return draft.clone();
            }
        }
        state.least = 0;
        Draft { state, slots, levels, proven: false, complete: false }
    }

    /// The nodes that are taken apart.
    fn ruined(&mut self, state: &State<'_, '_>) -> Vec<usize> {
        let mut nodes: Vec<usize> = (0..state.slots.len()).filter(|at| !state.slots[*at].counts.is_empty()).collect();
        if nodes.is_empty() {
            return nodes;
        }
        match self.sequence.below(4) {
            0 => {
                // All nodes of one kind of pods: they may all move to another domain.
                let node = nodes[self.sequence.below(nodes.len())];
                let counts = &state.slots[node].counts;
                if let Some((class, _)) = counts.get(self.sequence.below(counts.len())).copied() {
                    nodes.retain(|at| state.slots[*at].counts.iter().any(|(other, _)| *other == class));
                    if nodes.len() <= TOGETHER {
                        return nodes;
                    }
                }
            }
            1 => {
                // All nodes of a domain.
                let cell = |at: usize| state.topology.cell_of.get(state.slots[at].offer).copied();
                let node = nodes[self.sequence.below(nodes.len())];
                let of: Vec<usize> = nodes.iter().copied().filter(|at| cell(*at) == cell(node)).collect();
                if of.len() <= TOGETHER {
                    return of;
                }
            }
            _ => {}
        }
        let most = if nodes.len() <= 6 { nodes.len() } else { RUINED };
        let number = 1 + self.sequence.below(most);
        for at in 0..number.min(nodes.len()) {
            let other = at + self.sequence.below(nodes.len() - at);
            nodes.swap(at, other);
        }
        nodes.truncate(number);
        nodes
    }

    fn size(&self, pod: usize) -> i64 {
        let problem = self.compiled.problem;
        let class = problem.kinds[problem.pods[pod]].first().copied().unwrap_or(0);
        self.compiled.requests[class].iter().copied().max().unwrap_or(0)
    }

    fn place(
        &mut self,
        state: &mut State<'c, 'p>,
        pod: usize,
        level: usize,
        recipe: Recipe,
        first: usize,
    ) -> Option<(usize, usize)> {
        let problem = self.compiled.problem;
        let kind = &problem.kinds[problem.pods[pod]];
        let levels = if self.levels_stay { level..kind.len().min(level + 1) } else { 0..kind.len() };
        levels.into_iter().find_map(|level| {
            let at = self.place_at(state, pod, level, recipe, first)?;
            let ready = problem.nodes.get(at).is_some_and(|node| !node.joining);
            Some((at, if ready { 0 } else { level }))
        })
    }

    fn place_at(
        &mut self,
        state: &mut State<'c, 'p>,
        pod: usize,
        level: usize,
        recipe: Recipe,
        first: usize,
    ) -> Option<usize> {
        let problem = self.compiled.problem;
        let kind = &problem.kinds[problem.pods[pod]];
        for at in 0..first {
            if self.skips(recipe) {
                continue;
            }
            let class = problem.class_on(kind, at, level);
            if let Some(fitted) = state.fits(at, class) {
                return Some(state.put(class, fitted));
            }
        }
        let class = kind.get(level).copied()?;
        let own = self.tier_of[pod];
        for index in 0..self.tiers.len() {
            let (weight, tier) = &self.tiers[index];
            // With more preferences kept any pool may be the one that has a node for it.
            let is_lower = own.is_some_and(|(own, dropped)| own > *weight && level >= dropped);
            if is_lower && !self.short {
                continue;
            }
            state.tier.clone_from(tier);
            let mut found = self.seat(state, class, recipe, first);
            if found.is_none() && index + 1 < self.tiers.len() {
                // A lower weight is for those that this one does not hold, and not for those that were drawn elsewhere.
                state.tier.clone_from(&self.tiers[index].1);
                found = state.opened(class);
            }
            if let Some(found) = found {
                return Some(state.put(class, found));
            }
        }
        None
    }

    fn skips(&mut self, recipe: Recipe) -> bool {
        recipe.skipped > 0 && self.sequence.below(recipe.skipped) == 0
    }

    fn seat(&mut self, state: &mut State<'c, 'p>, class: usize, recipe: Recipe, first: usize) -> Option<Fitted> {
        let mut best: Option<Fitted> = None;
        let cells = &state.topology.cells;
        let only = (recipe.drawn > 0 && cells.len() > 1 && state.topology.is_drawn(class))
            .then(|| Sequence((recipe.drawn * 64 + class) as u64).below(cells.len()));
        if let Some(cell) = only {
            // Whoever comes first decides; the others have to follow, wherever that is.
            let allowed = state.cells_for(class);
            if allowed.len() > 1 && allowed.contains(&cell) {
                state.tier.intersect(&state.topology.cells[cell]);
            }
        }
        for at in first..state.slots.len() {
            if !state.slots[at].mask.meets(&state.tier) || self.skips(recipe) {
                continue;
            }
            let Some(fitted) = state.grows(at, class) else { continue };
            if best.as_ref().is_none_or(|best| fitted.rise < best.rise) {
                let free = fitted.rise == 0;
                best = Some(fitted);
                if free {
                    break;
                }
            }
        }
        if best.as_ref().is_some_and(|best| best.rise == 0) {
            return best;
        }
        let opened = self.open(state, class, recipe);
        match (best, opened) {
            (Some(best), Some(opened)) if recipe.chosen => {
                Some(if self.sequence.below(2) == 0 { best } else { opened })
            }
            (Some(best), Some(opened)) => Some(if opened.rise < best.rise { opened } else { best }),
            (best, opened) => best.or(opened),
        }
    }

    fn open(&mut self, state: &mut State<'c, 'p>, class: usize, recipe: Recipe) -> Option<Fitted> {
        if !recipe.chosen && !recipe.scattered {
            return state.opened(class);
        }
        let mut mask = state.holding(class);
        if recipe.scattered && state.topology.links(class) {
            let cells = state.cells_for(class);
            let cell = *cells.get(self.sequence.below(cells.len()))?;
            if !recipe.chosen {
                return state.opened_in(class, cell);
            }
            mask.intersect(&state.topology.cells[cell]);
        }
        let mut offers: Vec<usize> = mask.iter().collect();
        if offers.len() > 64 {
            let step = offers.len().div_ceil(64);
            let start = self.sequence.below(step);
            offers = offers.into_iter().skip(start).step_by(step).collect();
        }
        if !recipe.scattered {
            // The cheapest of those with the same amounts, so that one of them is drawn as often as any other.
            let mut known = Bits::none(self.compiled.distinct);
            offers.retain(|at| known.is_new(self.compiled.alike[*at]));
        }
        for _ in 0..3 {
            let offer = *offers.get(self.sequence.below(offers.len()))?;
            if let Some(opened) = state.opened_as(class, offer) {
                return Some(opened);
            }
        }
        state.opened(class)
    }

    /// Whether kube-scheduler would let every pod stand where it is, and put nobody from a node that comes later on one that
    /// comes earlier, and whether nobody is on a node of a pool of a lower weight for nothing.
    fn stands(&self, draft: &Draft<'c, 'p>) -> bool {
        let state = &draft.state;
        let first = self.compiled.problem.nodes.len();
        if !self.spread_by_host && !draft.refused().is_empty() || self.could_be_heavier(draft) {
            return false;
        }
        let Some(judge) = &self.judge else { return true };
        let (number, new) = state.hosts();
        let problem = self.compiled.problem;
        let pods: Vec<(usize, usize, usize)> = (0..draft.slots.len())
            .filter_map(|pod| {
                let (class, at) = draft.class_of(pod)?;
                let required = problem.kinds[problem.pods[pod]].last().copied()?;
                Some((class, required, number[at]))
            })
            .collect();
        let existing: Vec<_> =
            state.slots.iter().take(first).map(|slot| (slot.load.clone(), slot.counts.clone())).collect();
        if self.spread_by_host {
            is_valid(judge, self.compiled, &new, &pods, &existing)
        } else {
            nobody_goes_earlier(judge, self.compiled, &new, &pods, &existing)
        }
    }

    /// Whether some pod is on a new node although a pool of a higher weight has one for it.
    fn could_be_heavier(&self, draft: &Draft<'c, 'p>) -> bool {
        let first = self.compiled.problem.nodes.len();
        let Some((highest, _)) = self.tiers.first().filter(|_| self.tiers.len() > 1) else { return false };
        let weight = |at: usize| draft.state.weight(draft.state.slots[at].offer);
        let lower = (0..draft.slots.len()).filter_map(|pod| draft.class_of(pod));
        let mut lower: Vec<(usize, usize)> = lower.filter(|(_, at)| *at >= first && weight(*at) < *highest).collect();
        if lower.is_empty() {
            return false;
        }
        lower.sort_unstable();
        lower.dedup();
        let mut state = draft.state.clone();
        lower.into_iter().any(|(class, at)| {
            let above = self.tiers.iter().take_while(|(tier, _)| *tier > weight(at));
            above.into_iter().any(|(_, tier)| state.could_open(at, class, tier))
        })
    }
}
