//! What the pods must cost at least: prices of resources at which no offer sells its resources for less than they come to.
//!
//! Classes that the same offers take form a group with prices of its own, so that what only a dear offer takes is dear. The
//! prices come from a linear programme in floats; they are rounded down, scaled until every offer holds, and what they prove
//! is computed in integers. The checker repeats that without the programme.

use std::collections::BTreeMap;

use indexmap::IndexMap;
use rustc_hash::FxBuildHasher;
use smallvec::SmallVec;

use super::bits::Bits;
use super::compile::{Compiled, Front};
use super::problem::{Basis, Bound, GroupPrices, PRICE_SCALE};
use super::simplex;

/// Most groups with prices of their own.
const GROUPS: usize = 6;
/// Most rows of the programme; what is missing is made good when the prices are scaled.
const ROWS: usize = 400;

/// The bound with what each class is worth at its prices, in [`PRICE_SCALE`]ths of a micro-dollar per pod.
#[derive(Debug)]
pub(super) struct Prices {
    pub(super) bound: Bound,
    /// `[class]`.
    pub(super) values: Vec<u128>,
}

impl Prices {
    /// The prices of each group.
    pub(super) fn groups(&self) -> &[GroupPrices] {
        match &self.bound.basis {
            Basis::Resources { prices, .. } => prices,
            Basis::Enumeration | Basis::Patterns(_) => &[],
        }
    }
}

/// Offers with the same resources for the same groups: the cheapest of them.
struct Row {
    groups: Vec<bool>,
    avail: Vec<i64>,
    price: u64,
}

/// Prices for these pods on the offers of `tier`.
pub(super) fn prices(compiled: &Compiled<'_>, tier: &Bits, wanted: &[(usize, u32)]) -> Prices {
    let resources = compiled.resources.len();
    let groups = groups(compiled, tier, wanted);
    let rows = rows(compiled, tier, &groups);
    let nodes = least_nodes(compiled, wanted);
    let free = reserved(compiled, tier);
    let demand = |group: &[usize], resource: usize| -> f64 {
        let of = wanted.iter().filter(|(class, _)| group.contains(class));
        #[expect(clippy::cast_precision_loss, reason = "the programme is in floats; what it answers is verified")]
        of.map(|(class, count)| compiled.requests[*class][resource] as f64 * f64::from(*count)).sum()
    };
    // Kinds of offer by the groups they take: each resource is sold at the highest price any of them pays.
    let mut kinds: Vec<&Vec<bool>> = rows.iter().map(|row| &row.groups).collect();
    kinds.sort();
    kinds.dedup();
    let paid = |group: usize, resource: usize| group * resources + resource;
    let sold = |kind: usize, resource: usize| (groups.len() + kind) * resources + resource;
    let node = (groups.len() + kinds.len()) * resources;
    let mut goal = vec![0.0; node + 1];
    // Units differ by nine orders of magnitude: everything is counted in shares of the demand.
    let scale: Vec<f64> = (0..resources)
        .map(|resource| groups.iter().map(|group| demand(group, resource)).sum::<f64>().max(1.0))
        .collect();
    for (index, group) in groups.iter().enumerate() {
        for resource in 0..resources {
            goal[paid(index, resource)] = demand(group, resource) / scale[resource];
        }
    }
    goal[node] = f64::from(nodes);
    let mut lines: Vec<(Vec<f64>, f64)> = Vec::new();
    for row in rows.iter().take(ROWS) {
        let Some(kind) = kinds.iter().position(|kind| **kind == row.groups) else { continue };
        let mut line = vec![0.0; node + 1];
        for resource in 0..resources {
            #[expect(clippy::cast_precision_loss, reason = "as above")]
            let share = row.avail[resource].max(0) as f64 / scale[resource];
            line[sold(kind, resource)] = share;
        }
        line[node] = 1.0;
        #[expect(clippy::cast_precision_loss, reason = "as above")]
        lines.push((line, row.price as f64));
    }
    for (index, _) in groups.iter().enumerate() {
        for (kind, takes) in kinds.iter().enumerate().filter(|(_, takes)| takes[index]) {
            let _ = takes;
            for resource in 0..resources {
                let mut line = vec![0.0; node + 1];
                line[paid(index, resource)] = 1.0;
                line[sold(kind, resource)] = -1.0;
                lines.push((line, 0.0));
            }
        }
    }
    let answer = simplex::maximise(&goal, &lines).values;
    let whole = |price: f64| u64::try_from(whole(price)).unwrap_or(u64::MAX);
    let mut found: Vec<Vec<u64>> = (0..groups.len())
        .map(|group| (0..resources).map(|resource| whole(answer[paid(group, resource)] / scale[resource])).collect())
        .collect();
    let mut of_node = whole(answer[node]);
    shrink(&rows, &mut found, &mut of_node);
    let price_of = |class: usize| groups.iter().position(|group| group.contains(&class)).map(|group| &found[group]);
    let values: Vec<u128> = (0..compiled.requests.len())
        .map(|class| price_of(class).map_or(0, |prices| worth(&compiled.requests[class], prices)))
        .collect();
    let all: u128 = wanted.iter().map(|(class, count)| values[*class].saturating_mul(u128::from(*count))).sum();
    let all = all.saturating_add(u128::from(of_node) * u128::from(nodes));
    let given: u128 = free
        .iter()
        .map(|(avail, hosts)| most(avail, &found, None).saturating_add(u128::from(of_node)) * u128::from(*hosts))
        .fold(0, u128::saturating_add);
    let value = all.saturating_sub(given) / u128::from(PRICE_SCALE);
    let certificate = groups.iter().zip(&found).map(|(classes, prices)| {
        let prices = compiled.resources.iter().cloned().zip(prices.iter().copied()).collect();
        GroupPrices { classes: classes.clone(), prices }
    });
    let bound = Bound {
        value: u64::try_from(value).unwrap_or(u64::MAX),
        basis: Basis::Resources { prices: certificate.collect(), nodes: (nodes, of_node) },
    };
    Prices { bound, values }
}

/// Micro-dollars in whole parts of [`PRICE_SCALE`].
pub(super) fn whole(micros: f64) -> u128 {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_precision_loss,
        reason = "saturates"
    )]
    let whole = (micros * PRICE_SCALE as f64).floor() as u128;
    whole
}

/// What a request comes to.
fn worth(request: &[i64], prices: &[u64]) -> u128 {
    request.iter().zip(prices).map(|(need, price)| u128::from(need.max(&0).unsigned_abs()) * u128::from(*price)).sum()
}

/// What a node sells at most, at the highest price of the groups it takes (`None`: any).
fn most(avail: &[i64], prices: &[Vec<u64>], takes: Option<&[bool]>) -> u128 {
    let paying = |group: usize| takes.is_none_or(|takes| takes[group]);
    avail
        .iter()
        .enumerate()
        .map(|(resource, amount)| {
            let highest =
                prices.iter().enumerate().filter(|(group, _)| paying(*group)).map(|(_, all)| all[resource]).max();
            u128::from(amount.max(&0).unsigned_abs()) * u128::from(highest.unwrap_or(0))
        })
        .fold(0, u128::saturating_add)
}

/// Scales all prices down until no offer sells for more than its own price.
fn shrink(rows: &[Row], prices: &mut [Vec<u64>], of_node: &mut u64) {
    const WHOLE: u128 = 1_000_000_000;
    let parts = rows.iter().map(|row| {
        let sells = most(&row.avail, prices, Some(&row.groups)).saturating_add(u128::from(*of_node));
        let price = u128::from(row.price) * u128::from(PRICE_SCALE);
        if sells <= price { WHOLE } else { price.saturating_mul(WHOLE) / sells }
    });
    let parts = parts.min().unwrap_or(WHOLE);
    let scaled = |price: u64| u64::try_from(u128::from(price) * parts / WHOLE).unwrap_or(0);
    prices.iter_mut().flatten().for_each(|price| *price = scaled(*price));
    *of_node = scaled(*of_node);
}

/// Classes by the offers that take them; beyond a handful of groups the rest is one.
fn groups(compiled: &Compiled<'_>, tier: &Bits, wanted: &[(usize, u32)]) -> Vec<Vec<usize>> {
    let mut known: IndexMap<Bits, Vec<usize>, FxBuildHasher> = IndexMap::default();
    for (class, _) in wanted {
        let mut mask = compiled.takes[*class].clone();
        mask.intersect(tier);
        let classes = known.entry(mask).or_default();
        if !classes.contains(class) {
            classes.push(*class);
        }
    }
    let mut groups: Vec<(usize, Vec<usize>)> =
        known.into_iter().map(|(offers, classes)| (offers.iter().count(), classes)).collect();
    groups.sort();
    let mut groups: Vec<Vec<usize>> = groups.into_iter().map(|(_, classes)| classes).collect();
    while groups.len() > GROUPS {
        let rest = groups.pop().unwrap_or_default();
        if let Some(last) = groups.last_mut() {
            last.extend(rest);
        }
    }
    groups
}

/// Every paid offer of the tier that takes a pod, the cheapest of those alike, without those another one beats.
fn rows(compiled: &Compiled<'_>, tier: &Bits, groups: &[Vec<usize>]) -> Vec<Row> {
    let unions: Vec<Bits> = groups
        .iter()
        .map(|classes| {
            let mut union = Bits::none(compiled.offer_of.len());
            classes.iter().for_each(|class| union.unite(&compiled.takes[*class]));
            union
        })
        .collect();
    let (mut rows, mut front) = (Vec::new(), Front::default());
    for at in tier.iter().filter(|at| compiled.offer(*at).reservation.is_none()) {
        let takes: SmallVec<[bool; GROUPS]> = unions.iter().map(|union| union.contains(at)).collect();
        if takes.contains(&true) && front.takes(compiled, at, &takes) {
            let (avail, price) = (compiled.avail[at].clone(), compiled.offer(at).price);
            rows.push(Row { groups: takes.to_vec(), avail, price });
        }
    }
    rows
}

/// Reservations of the tier: what a host has at most, and how many hosts there are.
fn reserved(compiled: &Compiled<'_>, tier: &Bits) -> Vec<(Vec<i64>, u32)> {
    let mut known: BTreeMap<&str, (Vec<i64>, u32)> = BTreeMap::new();
    for at in tier.iter() {
        let offer = compiled.offer(at);
        let Some((name, free)) = offer.reservation.as_deref().zip(offer.free) else { continue };
        let avail = &compiled.avail[at];
        let entry = known.entry(name).or_insert_with(|| (avail.clone(), free));
        entry.0.iter_mut().zip(avail).for_each(|(one, other)| *one = (*one).max(*other));
        entry.1 = entry.1.max(free);
    }
    known.into_values().collect()
}

/// Nodes that any plan needs: one, or as many as one class has pods that never share a node.
fn least_nodes(compiled: &Compiled<'_>, wanted: &[(usize, u32)]) -> u32 {
    let forced = wanted.iter().map(|(class, count)| {
        let alone = compiled.apart[*class].as_ref().is_some_and(|apart| apart.contains(*class));
        if alone { *count } else { 1 }
    });
    forced.max().unwrap_or(0)
}
