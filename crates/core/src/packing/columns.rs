//! Plans and bounds by columns: what a pod of each shape is worth at most, so that no node holds pods worth more than its
//! price, and how often each pattern of pods on a node is then used. For few shapes of pods; with many the prices of resources in
//! `bound` do as well.
//!
//! The programme (Gilmore and Gomory 1961) is solved in floats. What a pod is worth is rounded down and verified in integers:
//! whatever it is, the pods together cost at least as much (Farley 1990).

use super::bits::Bits;
use super::bound::whole;
use super::compile::{Compiled, Front, most};
use super::problem::{NodePrices, PRICE_SCALE, PodValue, Worth};
use super::simplex;

/// Most shapes of pods, and fewest pods of a shape in the mean.
const SHAPES: usize = 40;
const ALIKE: usize = 2;
/// Most kinds of node.
const BINS: usize = 120;
/// Rounds in which patterns are added, those that are added in one, of those at most so many of one kind of node, and those that
/// are kept for the next.
const ROUNDS: usize = 80;
const ADDED: usize = 12;
const OF_ONE: usize = 3;
const KEPT: usize = 160;
/// Steps of one search for the most valuable pattern: at first, and when nothing is found with less.
const FIRST_STEPS: u64 = 400;
const STEPS: u64 = 30_000;
/// Shares of what pods are worth by the programme with which a bound is tried.
const LESS: [f64; 7] = [1.0, 0.999, 0.997, 0.994, 0.988, 0.98, 0.965];
/// By which share of its price a pattern has to be worth more to be of use.
const USEFUL: f64 = 1e-7;
/// Micro-dollars to a dollar, which floats count in.
const MICROS: f64 = 1e6;

/// Pods that take the same of a node, and go to the same nodes.
#[derive(Debug)]
pub(super) struct ShapeOfPods {
    /// Classes with the number of their pods.
    pub(super) classes: Vec<(usize, u32)>,
    /// How many there are.
    pub(super) count: u32,
    /// There is one of them on a node at most.
    alone: bool,
    /// Most of them on one node.
    most: u32,
    request: Vec<i64>,
}

/// Offers that hold the same, the cheapest of them.
#[derive(Debug)]
struct Bin {
    price: u64,
    /// `[shape]`.
    takes: Vec<bool>,
    avail: Vec<i64>,
}

/// What a node holds, and how often that is used.
#[derive(Debug)]
pub(super) struct Pattern {
    /// `[shape]`.
    pub(super) pods: Vec<u32>,
    /// How many such nodes the programme has; a fraction.
    pub(super) times: f64,
}

/// An answer of the programme.
#[derive(Debug)]
pub(super) struct Columns {
    pub(super) shapes: Vec<ShapeOfPods>,
    pub(super) used: Vec<Pattern>,
    bins: Vec<Bin>,
    /// `[shape]`: dollars.
    values: Vec<f64>,
    /// Steps of its searches.
    pub(super) steps: u64,
}

/// An answer, and for what.
#[derive(Debug)]
pub(super) struct Solved {
    tier: Bits,
    /// Classes with the number of their pods, in order.
    wanted: Vec<(usize, u32)>,
    pub(super) columns: Columns,
}

impl Solved {
    pub(super) fn new(tier: &Bits, wanted: &[(usize, u32)], columns: Columns) -> Self {
        Self { tier: tier.clone(), wanted: in_order(wanted), columns }
    }

    /// Whether it is that for these pods.
    pub(super) fn is_of(&self, tier: &Bits, wanted: &[(usize, u32)]) -> bool {
        self.tier == *tier && self.wanted == in_order(wanted)
    }
}

fn in_order(wanted: &[(usize, u32)]) -> Vec<(usize, u32)> {
    let mut wanted = wanted.to_vec();
    wanted.sort_unstable();
    wanted
}

/// Solves the programme in about so many steps; `None` if there are none, or too many shapes, if some pod has no offer, or if a
/// reservation is among the offers: its hosts cost nothing, and there are only so many.
pub(super) fn solve(compiled: &Compiled<'_>, tier: &Bits, wanted: &[(usize, u32)], most_steps: u64) -> Option<Columns> {
    if most_steps == 0 {
        return None;
    }
    let shapes = shapes(compiled, tier, wanted)?;
    let bins = bins(compiled, tier, &shapes)?;
    let goal: Vec<f64> = shapes.iter().map(|shape| f64::from(shape.count)).collect();
    let mut columns: Vec<(usize, Vec<u32>)> = Vec::new();
    // At first each shape by itself: nodes that hold as many as they can.
    for (shape, of) in shapes.iter().enumerate() {
        let held = |bin: &Bin| if bin.takes[shape] { most(&of.request, &bin.avail).min(of.most) } else { 0 };
        let each = |bin: &Bin| dollars(bin.price) / f64::from(held(bin));
        let best = (0..bins.len()).filter(|bin| held(&bins[*bin]) > 0);
        let best = best.min_by(|one, other| each(&bins[*one]).total_cmp(&each(&bins[*other])))?;
        let mut pods = vec![0; shapes.len()];
        pods[shape] = held(&bins[best]);
        columns.push((best, pods));
    }
    let (mut steps, mut each) = (0, FIRST_STEPS);
    let mut answer = programme(&goal, &bins, &columns);
    for _ in 0..ROUNDS {
        let mut found: Vec<(f64, usize, Vec<u32>)> = Vec::new();
        let of: Vec<u128> = answer.values.iter().map(|value| whole(value * MICROS)).collect();
        for (at, bin) in bins.iter().enumerate() {
            let threshold = threshold(bin.price, 1.0 + USEFUL);
            let Some(weights) = weights(&shapes, bin, &answer.values, &of) else { continue };
            let filled = Knapsack::search(&shapes, bin, &of, &weights, threshold, each);
            steps += filled.steps;
            for pods in filled.found.into_iter().rev().take(OF_ONE) {
                let worth: f64 = pods.iter().zip(&answer.values).map(|(count, value)| f64::from(*count) * value).sum();
                found.push((worth / dollars(bin.price), at, pods));
            }
        }
        if steps > most_steps {
            break;
        }
        if found.is_empty() {
            if each >= STEPS {
                break;
            }
            each = STEPS.min(each * 9);
            continue;
        }
        found.sort_by(|one, other| other.0.total_cmp(&one.0).then(one.1.cmp(&other.1)));
        if columns.len() + ADDED > KEPT {
            // Those that are used stay, and the latest of the others.
            let mut kept: Vec<(usize, Vec<u32>)> = Vec::new();
            let spare = columns.len().saturating_sub(KEPT / 2);
            for (at, column) in columns.drain(..).enumerate() {
                if answer.duals[at] > 0.0 || at >= spare {
                    kept.push(column);
                }
            }
            columns = kept;
        }
        columns.extend(found.into_iter().take(ADDED).map(|(_, bin, pods)| (bin, pods)));
        answer = programme(&goal, &bins, &columns);
    }
    let used = columns.into_iter().zip(&answer.duals).filter(|(_, times)| **times > 0.0);
    let used = used.map(|((_, pods), times)| Pattern { pods, times: *times }).collect();
    Some(Columns { shapes, used, bins, values: answer.values, steps })
}

impl Columns {
    /// What the pods cost at least, in micro-dollars, with its certificate, found in about so many steps, which are counted; `None` if
    /// it cannot be verified.
    pub(super) fn bound(&self, compiled: &Compiled<'_>, most: u64, steps: &mut u64) -> Option<(u64, Worth)> {
        let end = steps.saturating_add(most);
        // Where a search does not end, it does for pods that are worth a little less.
        LESS.iter().find_map(|share| if *steps < end { self.verified(compiled, *share, steps) } else { None })
    }

    /// What the pods cost at least, if they are worth such a share of what the programme says.
    fn verified(&self, compiled: &Compiled<'_>, share: f64, steps: &mut u64) -> Option<(u64, Worth)> {
        let mut values: Vec<f64> = self.values.iter().map(|value| value * share).collect();
        let mut exact: Vec<u128> = values.iter().map(|value| whole(value * MICROS)).collect();
        for _ in 0..2 {
            let mut nodes = Vec::new();
            // By what the best pattern of any node is worth beyond its price, everything is worth less.
            let mut part = 1.0_f64;
            for bin in &self.bins {
                let weights = weights(&self.shapes, bin, &values, &exact)?;
                let price = threshold(bin.price, 1.0);
                let filled = Knapsack::search(&self.shapes, bin, &exact, &weights, price, STEPS);
                *steps += filled.steps;
                if !filled.complete {
                    return None;
                }
                if filled.worth > price {
                    #[expect(clippy::cast_precision_loss, reason = "a little is taken off, and it is verified")]
                    let of = price as f64 / filled.worth as f64;
                    part = part.min(of * (1.0 - 1e-12));
                }
                nodes.push(NodePrices { prices: compiled.resources.iter().cloned().zip(weights).collect() });
            }
            if part < 1.0 {
                values.iter_mut().for_each(|value| *value *= part);
                exact = values.iter().map(|value| whole(value * MICROS)).collect();
                continue;
            }
            let all = self.shapes.iter().zip(&exact).map(|(shape, each)| each.saturating_mul(u128::from(shape.count)));
            let value = all.fold(0, u128::saturating_add) / u128::from(PRICE_SCALE);
            let pods = self.shapes.iter().zip(exact).map(|(shape, value)| PodValue {
                classes: shape.classes.iter().map(|(class, _)| *class).collect(),
                alone: shape.alone,
                value,
            });
            return Some((u64::try_from(value).unwrap_or(u64::MAX), Worth { pods: pods.collect(), nodes }));
        }
        None
    }
}

/// Micro-dollars as dollars.
fn dollars(price: u64) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "the programme is in floats; what it answers is verified")]
    let price = price as f64;
    price / MICROS
}

/// A share of a price in whole parts of [`PRICE_SCALE`].
fn threshold(price: u64, share: f64) -> u128 {
    let exact = u128::from(price) * u128::from(PRICE_SCALE);
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_precision_loss,
        reason = "saturates"
    )]
    let more = (exact as f64 * (share - 1.0)) as u128;
    exact.saturating_add(more)
}

fn programme(goal: &[f64], bins: &[Bin], columns: &[(usize, Vec<u32>)]) -> simplex::Answer {
    let row = |(bin, pods): &(usize, Vec<u32>)| {
        (pods.iter().map(|count| f64::from(*count)).collect(), dollars(bins[*bin].price))
    };
    let rows: Vec<(Vec<f64>, f64)> = columns.iter().map(row).collect();
    simplex::maximise(goal, &rows)
}

/// What a pod takes, the offers it may go to, and its class if there is one of it on a node at most.
type Kind<'c> = (&'c [i64], Bits, Option<usize>);

/// Classes by what they take and where; `None` if they are too many or too different, or if what they take depends on who is there.
fn shapes(compiled: &Compiled<'_>, tier: &Bits, wanted: &[(usize, u32)]) -> Option<Vec<ShapeOfPods>> {
    let mut known: indexmap::IndexMap<Kind<'_>, ShapeOfPods, rustc_hash::FxBuildHasher> = indexmap::IndexMap::default();
    for (class, count) in wanted {
        if compiled.shares(*class) {
            return None;
        }
        let request = compiled.requests[*class].as_slice();
        let mut mask = compiled.takes[*class].clone();
        mask.intersect(tier);
        let alone = compiled.apart[*class].as_ref().is_some_and(|apart| apart.contains(*class));
        let key = (request, mask, alone.then_some(*class));
        let shape = known.entry(key).or_insert_with(|| ShapeOfPods {
            classes: Vec::new(),
            count: 0,
            alone,
            most: if alone { 1 } else { u32::MAX },
            request: request.to_vec(),
        });
        shape.classes.push((*class, *count));
        shape.count = shape.count.saturating_add(*count);
        if known.len() > SHAPES {
            return None;
        }
    }
    let mut shapes: Vec<ShapeOfPods> = known.into_values().collect();
    // Where hardly two are alike, patterns are no better than what is filled pod by pod.
    let pods: usize = shapes.iter().map(|shape| shape.count as usize).sum();
    if pods < ALIKE * shapes.len() {
        return None;
    }
    shapes.iter_mut().for_each(|shape| shape.most = shape.most.min(shape.count));
    (!shapes.is_empty()).then_some(shapes)
}

/// Kinds of node of which none is beaten by another that costs no more, takes the same shapes and has no less.
fn bins(compiled: &Compiled<'_>, tier: &Bits, shapes: &[ShapeOfPods]) -> Option<Vec<Bin>> {
    let (mut bins, mut front) = (Vec::new(), Front::default());
    for offer in tier.iter() {
        let takes_shape = |shape: &ShapeOfPods| {
            shape.classes.first().is_some_and(|(class, _)| compiled.takes[*class].contains(offer))
        };
        let takes: Vec<bool> = shapes.iter().map(takes_shape).collect();
        if !takes.contains(&true) {
            continue;
        }
        let price = compiled.offer(offer).price;
        if compiled.offer(offer).reservation.is_some() || price == 0 {
            return None;
        }
        // Offers come in the order of their prices: who is known already costs no more.
        if !front.takes(compiled, offer, &takes) {
            continue;
        }
        if bins.len() == BINS {
            return None;
        }
        bins.push(Bin { price, takes, avail: compiled.avail[offer].clone() });
    }
    Some(bins)
}

/// Prices of the resources of a node at which no pod is worth more than it takes: whatever is free holds at most what it comes
/// to. As low as can be; `None` if they cannot be had in whole numbers.
fn weights(shapes: &[ShapeOfPods], bin: &Bin, values: &[f64], exact: &[u128]) -> Option<Vec<u128>> {
    let goal: Vec<f64> =
        values.iter().zip(&bin.takes).map(|(value, takes)| if *takes { *value } else { 0.0 }).collect();
    let share = |amount: i64, avail: i64| {
        #[expect(clippy::cast_precision_loss, reason = "a share of a node, verified below")]
        let share = amount.max(0) as f64 / avail.max(1) as f64;
        share
    };
    let rows: Vec<(Vec<f64>, f64)> = (0..bin.avail.len())
        .map(|resource| {
            let shares = shapes.iter().map(|shape| share(shape.request[resource], bin.avail[resource]));
            (shares.collect(), f64::from(u8::from(bin.avail[resource] > 0)))
        })
        .collect();
    let duals = simplex::maximise(&goal, &rows).duals;
    let mut weights: Vec<u128> = duals
        .iter()
        .zip(&bin.avail)
        .map(|(dual, avail)| whole(dual * MICROS).div_ceil(u128::from(avail.max(&1).unsigned_abs())))
        .collect();
    for _ in 0..4 {
        let lacking = shapes.iter().zip(exact).zip(&bin.takes).any(|((shape, value), takes)| {
            *takes && most(&shape.request, &bin.avail) > 0 && taken(&shape.request, &weights) < *value
        });
        if !lacking {
            return Some(weights);
        }
        weights.iter_mut().for_each(|weight| *weight += *weight / 1_000_000_000 + 1);
    }
    None
}

/// What amounts come to.
fn taken(amounts: &[i64], weights: &[u128]) -> u128 {
    let each = amounts.iter().zip(weights).map(|(amount, weight)| u128::from(amount.max(&0).unsigned_abs()) * weight);
    each.fold(0, u128::saturating_add)
}

/// The search for the pattern that is worth most, if that is more than a threshold.
struct Knapsack<'s> {
    shapes: &'s [ShapeOfPods],
    values: &'s [u128],
    weights: &'s [u128],
    order: Vec<usize>,
    /// `[place in the order][resource]`: what the pods from there on take is a multiple of it.
    steps_of: Vec<Vec<i64>>,
    /// `[place in the order][resource]`: the most that any pod from there on is worth per unit; `None` where one takes none.
    rates: Vec<Vec<Option<u128>>>,
    now: Vec<u32>,
    worth: u128,
    /// Those that were the most valuable so far, in turn.
    found: Vec<Vec<u32>>,
    steps: u64,
    most_steps: u64,
    complete: bool,
}

impl<'s> Knapsack<'s> {
    fn search(
        shapes: &'s [ShapeOfPods],
        bin: &Bin,
        values: &'s [u128],
        weights: &'s [u128],
        threshold: u128,
        most_steps: u64,
    ) -> Self {
        let held =
            |shape: &usize| bin.takes[*shape] && values[*shape] > 0 && most(&shapes[*shape].request, &bin.avail) > 0;
        let mut order: Vec<usize> = (0..shapes.len()).filter(held).collect();
        // Those first that are worth what they take; of those that are, the largest.
        order.sort_by_key(|shape| {
            let taken = taken(&shapes[*shape].request, weights).max(1);
            // In thousandths, so that what differs by rounding is alike.
            let lost = (taken.saturating_sub(values[*shape])) * 1_000 / taken;
            (lost, std::cmp::Reverse(values[*shape]), *shape)
        });
        let resources = bin.avail.len();
        let (mut steps_of, mut rates) = (vec![vec![0; resources]], vec![vec![Some(0); resources]]);
        for shape in order.iter().rev() {
            let (step, rate) = (&steps_of[steps_of.len() - 1], &rates[rates.len() - 1]);
            let need = |resource: usize| shapes[*shape].request[resource].max(0);
            let per_unit = |resource: usize| match need(resource) {
                0 => None,
                need => Some(values[*shape].div_ceil(u128::from(need.unsigned_abs()))),
            };
            let next = (0..resources).map(|resource| common_divisor(step[resource], need(resource))).collect();
            let dearest = (0..resources).map(|resource| Some(rate[resource]?.max(per_unit(resource)?))).collect();
            steps_of.push(next);
            rates.push(dearest);
        }
        steps_of.reverse();
        rates.reverse();
        let now = vec![0; shapes.len()];
        let mut search = Self {
            shapes,
            values,
            weights,
            order,
            steps_of,
            rates,
            now,
            worth: threshold,
            found: Vec::new(),
            steps: 0,
            most_steps,
            complete: true,
        };
        search.fill(0, &mut bin.avail.clone(), 0);
        search
    }

    /// What the pods from a place in the order on may be worth at most in what is free.
    fn most_worth(&self, depth: usize, free: &[i64]) -> u128 {
        let mut sum = 0_u128;
        let mut least = u128::MAX;
        for (resource, amount) in free.iter().enumerate() {
            let step = self.steps_of[depth][resource];
            let usable = if step > 0 { amount.max(&0) / step * step } else { 0 };
            let usable = u128::from(usable.unsigned_abs());
            sum = sum.saturating_add(usable.saturating_mul(self.weights[resource]));
            if let Some(rate) = self.rates[depth][resource] {
                least = least.min(usable.saturating_mul(rate));
            }
        }
        sum.min(least)
    }

    fn fill(&mut self, depth: usize, free: &mut [i64], value: u128) {
        self.steps += 1;
        if self.steps > self.most_steps {
            self.complete = false;
            return;
        }
        let Some(shape) = self.order.get(depth).copied() else {
            if value > self.worth {
                self.worth = value;
                self.found.push(self.now.clone());
            }
            return;
        };
        if value.saturating_add(self.most_worth(depth, free)) <= self.worth {
            return;
        }
        let of = &self.shapes[shape];
        let most = most(&of.request, free).min(of.most);
        // Of the last shape only the most is worth most.
        let least = if depth + 1 == self.order.len() { most } else { 0 };
        free.iter_mut().zip(&of.request).for_each(|(free, need)| *free -= need * i64::from(most));
        for count in (least..=most).rev() {
            self.now[shape] = count;
            self.fill(depth + 1, free, value + self.values[shape] * u128::from(count));
            if !self.complete {
                return;
            }
            if count > least {
                free.iter_mut().zip(&of.request).for_each(|(free, need)| *free += need);
            }
        }
        free.iter_mut().zip(&of.request).for_each(|(free, need)| *free += need * i64::from(least));
        self.now[shape] = 0;
    }
}

fn common_divisor(one: i64, other: i64) -> i64 {
    if other == 0 { one } else { common_divisor(other, one % other) }
}
