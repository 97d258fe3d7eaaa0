//! The certificate of a bound, verified without the programme that it comes from.

use std::collections::{BTreeMap, BTreeSet};

use crate::fit;

use super::problem::{
    Basis, Bound, Class, GroupPrices, NodePrices, Offer, PRICE_SCALE, Place, Plan, PodTerm, Problem, Rule, Worth,
};

/// Steps of the search through what one kind of node may hold.
const STEPS: u64 = 500_000;

/// What is wrong with a certificate; `None` if nothing is.
pub(super) fn fault(problem: &Problem, plan: &Plan, bound: &Bound) -> Option<String> {
    let (worth, fault) = match &bound.basis {
        Basis::Enumeration => return None,
        Basis::Resources { prices, nodes } => by_resources(problem, plan, prices, *nodes),
        Basis::Patterns(worth) => by_patterns(problem, plan, worth),
    };
    let proven = u64::try_from(worth / u128::from(PRICE_SCALE)).unwrap_or(u64::MAX);
    fault.or_else(|| (bound.value > proven).then(|| format!("the bound {} is above the proven {proven}", bound.value)))
}

/// The pods that go to new nodes by what they require alone, with their number.
fn provisioned(problem: &Problem, plan: &Plan) -> BTreeMap<usize, u64> {
    let mut counts = BTreeMap::new();
    for pod in (0..problem.pods.len()).filter(|pod| matches!(plan.places[*pod], Place::New(_))) {
        if let Some(class) = problem.kinds[problem.pods[pod]].last() {
            *counts.entry(*class).or_default() += 1;
        }
    }
    counts
}

/// The offers that the bound compares with: of the one weight that all new nodes have, else all.
fn offers<'p>(problem: &'p Problem, plan: &Plan) -> impl Iterator<Item = &'p Offer> + use<'p> {
    let weight = |offer: &Offer| problem.pools[offer.pool].weight;
    let used: BTreeSet<u32> = plan.nodes.iter().map(|node| weight(&problem.offers[node.offer])).collect();
    problem.offers.iter().filter(move |offer| used.len() != 1 || used.contains(&weight(offer)))
}

fn takes(class: &Class, offer: &Offer) -> bool {
    let alone = class.beside(None);
    !class.existing_only && !class.is_kept_off(offer) && fit::fits(&alone, &offer.node, &offer.overhead).is_ok()
}

fn amount(amount: i64) -> u128 {
    u128::from(amount.max(0).unsigned_abs())
}

/// What pods come to at prices of resources, less what the hosts of reservations have; and an offer that has more to sell than it
/// costs.
fn by_resources(
    problem: &Problem,
    plan: &Plan,
    groups: &[GroupPrices],
    (least, each): (u32, u64),
) -> (u128, Option<String>) {
    let mut worth = u128::from(least) * u128::from(each);
    let counts = provisioned(problem, plan);
    let alone = counts.iter().filter(|(class, _)| stands_alone(&problem.classes[**class])).map(|(_, count)| *count);
    let needed = alone.chain(counts.values().map(|_| 1)).max().unwrap_or(0);
    if u64::from(least) > needed {
        return (0, Some(format!("{least} nodes are claimed to be needed, and {needed} are")));
    }
    if groups.iter().any(|group| !are_distinct(group.prices.iter().map(|(name, _)| name))) {
        return (0, Some("a resource has two prices".to_owned()));
    }
    for (class, count) in &counts {
        let Some(group) = groups.iter().find(|group| group.classes.contains(class)) else { continue };
        let requests = &problem.classes[*class].shape.requests;
        let prices = group.prices.iter();
        let pod: u128 = prices.map(|(name, price)| amount(requests.get(name.as_str())) * u128::from(*price)).sum();
        worth += pod * u128::from(*count);
    }
    let sells = |offer: &Offer, pays: &dyn Fn(&GroupPrices) -> bool| -> u128 {
        let mut highest: BTreeMap<&str, u64> = BTreeMap::new();
        for (name, price) in groups.iter().filter(|group| pays(group)).flat_map(|group| &group.prices) {
            let known = highest.entry(name.as_str()).or_default();
            *known = (*known).max(*price);
        }
        let free = |name: &str| fit::free_of(&offer.node.allocatable, &offer.overhead.requested, name);
        highest.into_iter().map(|(name, price)| amount(free(name)) * u128::from(price)).sum::<u128>() + u128::from(each)
    };
    let mut reserved: BTreeMap<&str, u128> = BTreeMap::new();
    let mut fault = None;
    for offer in offers(problem, plan) {
        let of_all = sells(offer, &|_| true);
        if let Some((name, free)) = offer.reservation.as_deref().zip(offer.free) {
            let known = reserved.entry(name).or_default();
            *known = (*known).max(of_all * u128::from(free));
            continue;
        }
        let price = u128::from(offer.price) * u128::from(PRICE_SCALE);
        let taken = |group: &GroupPrices| {
            let classes = group.classes.iter().filter(|class| counts.contains_key(class));
            classes.into_iter().any(|class| takes(&problem.classes[*class], offer))
        };
        let pays: Vec<bool> = if of_all > price { groups.iter().map(taken).collect() } else { Vec::new() };
        let any = of_all > price && pays.contains(&true);
        let index = |group: &GroupPrices| groups.iter().position(|other| std::ptr::eq(other, group));
        if any && sells(offer, &|group| index(group).is_some_and(|at| pays[at])) > price {
            fault = Some(format!("{} sells more than it costs at the prices of the bound", offer.instance_type));
        }
    }
    let given = reserved.values().fold(0, |sum: u128, one| sum.saturating_add(*one));
    (worth.saturating_sub(given), fault)
}

/// What pods are worth together; and an offer that can hold pods worth more than it costs.
fn by_patterns(problem: &Problem, plan: &Plan, worth: &Worth) -> (u128, Option<String>) {
    let counts = provisioned(problem, plan);
    let mut sum = 0_u128;
    let mut items: Vec<Item<'_>> = Vec::new();
    if !are_distinct(worth.pods.iter().flat_map(|pods| &pods.classes)) {
        return (0, Some("a class is worth two amounts".to_owned()));
    }
    let names = |node: &NodePrices| node.prices.iter().map(|(name, _)| name.clone()).collect::<Vec<_>>();
    let first = worth.nodes.first().map(names).unwrap_or_default();
    if !are_distinct(&first) || worth.nodes.iter().any(|node| names(node) != first) {
        return (0, Some("nodes have prices of different resources".to_owned()));
    }
    for pods in &worth.pods {
        let here: Vec<usize> = pods.classes.iter().copied().filter(|class| counts.contains_key(class)).collect();
        let count: u64 = here.iter().map(|class| counts[class]).sum();
        sum = sum.saturating_add(pods.value.saturating_mul(u128::from(count)));
        if pods.alone && here.iter().any(|class| !stands_alone(&problem.classes[*class])) {
            return (0, Some("pods that may share a node are taken to stand alone".to_owned()));
        }
        let each = |class: usize| Item {
            class: &problem.classes[class],
            value: pods.value,
            most: if pods.alone { 1 } else { counts[&class] },
            alone: pods.alone,
        };
        items.extend(here.into_iter().map(each));
    }
    let mut seen: BTreeMap<(Vec<i64>, Vec<bool>), u64> = BTreeMap::new();
    for offer in offers(problem, plan) {
        let taken: Vec<bool> = items.iter().map(|item| takes(item.class, offer)).collect();
        if !taken.contains(&true) {
            continue;
        }
        if offer.reservation.is_some() {
            return (0, Some(format!("the hosts of reservation {:?} are not reckoned with", offer.reservation)));
        }
        let names = worth.nodes.first().map(|node| &node.prices).into_iter().flatten();
        let free =
            names.map(|(name, _)| fit::free_of(&offer.node.allocatable, &offer.overhead.requested, name.as_str()));
        let least = seen.entry((free.collect(), taken)).or_insert(offer.price);
        *least = (*least).min(offer.price);
    }
    for ((free, taken), price) in seen {
        let mut open = Items::of(&items, &taken, worth);
        let most = u128::from(price) * u128::from(PRICE_SCALE);
        let Some(prices) = open.prices(worth, &free) else {
            return (0, Some("no prices of a node cover what its pods are worth".to_owned()));
        };
        if !open.stay_within(&prices, &free, most) {
            return (0, Some(format!("a node for {price} may hold pods that are worth more, or too many to tell")));
        }
    }
    (sum, None)
}

/// Whether required anti-affinity or a host port keeps a pod off nodes with another one like it.
fn stands_alone(class: &Class) -> bool {
    let apart =
        |term: &PodTerm| &*term.key == "kubernetes.io/hostname" && term.matches(&class.namespace, &class.labels);
    let anti_affinity = |rule: &Rule| matches!(rule, Rule::AntiAffinity(term) if apart(term));
    !fit::ports_free(&class.shape.ports, &class.shape.ports) || class.rules.iter().any(anti_affinity)
}

/// Pods of a class.
struct Item<'p> {
    class: &'p Class,
    value: u128,
    most: u64,
    alone: bool,
}

/// What a pod takes, what it is worth, and how many of them a node may hold.
type Pods = (Vec<i64>, u128, u64);

fn are_distinct<T: Ord>(all: impl IntoIterator<Item = T>) -> bool {
    let mut seen = BTreeSet::new();
    all.into_iter().all(|one| seen.insert(one))
}

/// What a kind of node may hold.
struct Items {
    pods: Vec<Pods>,
    steps: u64,
}

impl Items {
    fn of(items: &[Item<'_>], taken: &[bool], worth: &Worth) -> Self {
        // Numbers of those that are not alone.
        let (mut pods, mut shared): (Vec<Pods>, Vec<usize>) = Default::default();
        let Some(names) = worth.nodes.first().map(|node| &node.prices) else { return Self { pods, steps: 0 } };
        for (item, _) in items.iter().zip(taken).filter(|(item, taken)| **taken && item.value > 0) {
            let need = |name: &str| item.class.shape.requests.get(name).max(0);
            let need: Vec<i64> = names.iter().map(|(name, _)| need(name.as_str())).collect();
            // Pods that take the same are alike, unless there is one of their class on a node at most.
            let alike = |at: &&mut usize| pods[**at].0 == need && pods[**at].1 == item.value;
            match shared.iter_mut().find(alike).filter(|_| !item.alone) {
                Some(at) => pods[*at].2 += item.most,
                None => {
                    shared.extend((!item.alone).then_some(pods.len()));
                    pods.push((need, item.value, item.most));
                }
            }
        }
        Self { pods, steps: 0 }
    }

    /// The lowest prices for what is free at which no pod is worth more than it takes.
    fn prices(&self, worth: &Worth, free: &[i64]) -> Option<Vec<u128>> {
        let all = worth.nodes.iter().map(|node| node.prices.iter().map(|(_, price)| *price).collect::<Vec<u128>>());
        all.filter(|prices| self.pods.iter().all(|(need, value, _)| come_to(need, prices) >= *value))
            .min_by_key(|prices| come_to(free, prices))
    }

    /// Whether no choice of pods is worth more than `most`; `false` also if that takes too long to find out.
    fn stay_within(&mut self, prices: &[u128], free: &[i64], most: u128) -> bool {
        let mut pods = std::mem::take(&mut self.pods);
        pods.sort_by_key(|(need, value, _)| {
            let taken = come_to(need, prices).max(1);
            ((taken - (*value).min(taken)) * 1_000 / taken, std::cmp::Reverse(*value))
        });
        self.stays_within(&pods, prices, free, 0, most)
    }

    fn stays_within(&mut self, pods: &[Pods], prices: &[u128], free: &[i64], value: u128, most: u128) -> bool {
        self.steps += 1;
        if self.steps > STEPS || value > most {
            return false;
        }
        let Some(((need, each, number), rest)) = pods.split_first() else { return true };
        if value + holds_at_most(pods, prices, free) <= most {
            return true;
        }
        let fits = need.iter().zip(free).filter(|(need, _)| **need > 0).map(|(need, free)| (*free).max(0) / need).min();
        let fits = fits.map_or(*number, |fits| amount(fits).min(u128::from(*number)).try_into().unwrap_or(u64::MAX));
        let least = if rest.is_empty() { fits } else { 0 };
        (least..=fits).rev().all(|count| {
            let times = i64::try_from(count).unwrap_or(i64::MAX);
            let left: Vec<i64> = free.iter().zip(need).map(|(free, need)| free - need.saturating_mul(times)).collect();
            self.stays_within(rest, prices, &left, value + each * u128::from(count), most)
        })
    }
}

/// What pods can be worth in what is free: of each resource they take whole multiples of what all of their requests have in
/// common, at its price; and of each resource that all of them take none of them makes more than the dearest does.
fn holds_at_most(pods: &[Pods], prices: &[u128], free: &[i64]) -> u128 {
    let mut at_prices = 0_u128;
    let mut dearest = u128::MAX;
    for (resource, free) in free.iter().enumerate() {
        let common = pods.iter().fold(0, |common, (need, ..)| divisor(common, need[resource]));
        let usable = if common > 0 { amount(free - free.rem_euclid(common)) } else { 0 };
        at_prices = at_prices.saturating_add(usable.saturating_mul(prices[resource]));
        if pods.iter().all(|(need, ..)| need[resource] > 0) {
            let rates = pods.iter().map(|(need, value, _)| value.div_ceil(amount(need[resource])));
            dearest = dearest.min(rates.max().unwrap_or(0).saturating_mul(usable));
        }
    }
    at_prices.min(dearest)
}

fn divisor(one: i64, other: i64) -> i64 {
    if other == 0 { one } else { divisor(other, one % other) }
}

fn come_to(amounts: &[i64], prices: &[u128]) -> u128 {
    amounts.iter().zip(prices).map(|(one, price)| amount(*one).saturating_mul(*price)).fold(0, u128::saturating_add)
}
