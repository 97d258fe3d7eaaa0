//! What every host can take of several shapes together, and what every domain can take at most.

use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use super::super::capacity::Capacity;
use super::super::demand::Demand;
use super::super::shapes::accelerators;
use super::super::{Ground, slots};
use crate::fit::{self, Misfit, free_of};
use crate::model::node::Usage;
use crate::model::pod::Shape;
use crate::planner::plan::{Elastic, Host, LevelIndex, Placement, Policy, Problem};
use crate::topology::Tree;

/// Members, one number per group.
pub(super) type Counts = SmallVec<[u32; 8]>;

/// Sets of counts that are listed for a host; beyond, they are built member by member.
const MOST_PATTERNS: usize = 512;
/// Weights that are looked at; with very many hosts fewer.
const MOST_WEIGHTS: usize = 20;
const FEW_WEIGHTS: usize = 8;
const MANY_HOSTS: usize = 50_000;
/// A resource is counted in units of which the gang needs about so many.
const UNITS: u64 = 2_048;

/// The members of one shape.
#[derive(Clone, Debug)]
pub(super) struct Group<'p> {
    pub(super) shape: &'p Shape,
    /// New members needed, and in all.
    pub(super) must: u32,
    pub(super) may: u32,
    /// Takes an accelerator that the first group asks for.
    pub(super) takes: bool,
}

/// Hosts that are alike to every group.
#[derive(Clone, Debug)]
pub(super) struct Class {
    /// Per resource.
    free: Vec<i64>,
    /// Members of a group alone, at most as many as the gang has.
    pub(super) top: Counts,
    /// Every set of counts that cannot grow; empty if there are too many to list.
    patterns: Vec<Counts>,
}

/// A bound on what fits: members count so much each. Shapes: `caps` is `[level][domain]`.
#[derive(Clone, Debug)]
pub(super) struct Weight {
    pub(super) each: Vec<u64>,
    /// What the needed members count, and all of them.
    pub(super) must: u64,
    pub(super) may: u64,
    /// At most so much fits.
    pub(super) caps: Vec<Vec<u64>>,
}

/// The nodes as a gang of several shapes sees them.
#[derive(Debug)]
pub(super) struct Field<'p> {
    pub(super) problem: &'p Problem,
    pub(super) tree: &'p Tree,
    pub(super) policy: &'p Policy,
    /// The first is the main one: its slots are the ones that count.
    pub(super) groups: Vec<Group<'p>>,
    resources: Vec<Vec<i64>>,
    clash: Vec<Vec<bool>>,
    pub(super) classes: Vec<Class>,
    /// By depth-first position.
    pub(super) class_of: Vec<u32>,
    /// Of the main shape.
    pub(super) capacity: Capacity,
    /// Slots of the main shape, in the order of the problem; a host that takes no member at all says why.
    pub(super) slots: Vec<Result<u32, Misfit>>,
    pub(super) weights: Vec<Weight>,
    /// Domains with bound members, per level, and what is free in those.
    standing: Vec<(u64, u64)>,
}

/// The groups of a gang: the main one first, the others in role order.
///
/// The main shape asks for an accelerator if any does, and has most members of those.
pub(super) fn groups(problem: &Problem) -> Vec<Group<'_>> {
    let mut groups: Vec<(Group<'_>, usize)> = Vec::new();
    for role in problem.gang.roles.iter().filter(|role| !role.places.is_empty()) {
        let open = role.places.iter().filter(|place| place.bound.is_none()).count();
        let needed = (role.min as usize).saturating_sub(role.places.len() - open);
        let index = groups.iter().position(|(group, _)| *group.shape == role.shape).unwrap_or_else(|| {
            groups.push((Group { shape: &role.shape, must: 0, may: 0, takes: false }, 0));
            groups.len() - 1
        });
        let (group, members) = &mut groups[index];
        group.must += u32::try_from(needed).unwrap_or(u32::MAX);
        group.may += u32::try_from(open).unwrap_or(u32::MAX);
        *members += role.places.len();
    }
    let rank = |(group, members): &(Group<'_>, usize)| (accelerators(group.shape).next().is_some(), *members);
    let main = (0..groups.len()).rev().max_by_key(|index| rank(&groups[*index]));
    if let Some(main) = main {
        groups[..=main].rotate_right(1);
    }
    let mut groups: Vec<Group<'_>> = groups.into_iter().map(|(group, _)| group).collect();
    if let Some(main) = groups.first().map(|group| group.shape) {
        for group in &mut groups {
            group.takes = accelerators(main).any(|name| group.shape.requests.get(name) > 0);
        }
    }
    groups
}

impl<'p> Field<'p> {
    pub(super) fn new(problem: &'p Problem, policy: &'p Policy, ground: &'p Ground, demand: &Demand<'_>) -> Self {
        let groups = groups(problem);
        let Ground { tree, index, positions: _ } = ground;
        let mut names: Vec<&str> = groups
            .iter()
            .flat_map(|group| group.shape.requests.iter())
            .filter(|(_, amount)| *amount > 0)
            .map(|(name, _)| name.as_str())
            .collect();
        names.sort_unstable();
        names.dedup();
        let amounts = |group: &Group<'_>| names.iter().map(|name| group.shape.requests.get(name).max(0)).collect();
        let resources: Vec<Vec<i64>> = groups.iter().map(amounts).collect();
        let apart = |one: &Shape, two: &Shape| one != two && !fit::ports_free(&one.ports, &two.ports);
        let clash = groups.iter().map(|one| groups.iter().map(|two| apart(one.shape, two.shape)));
        let clash: Vec<Vec<bool>> = clash.map(Iterator::collect).collect();
        let mut field = Self {
            problem,
            tree,
            policy,
            groups,
            resources,
            clash,
            classes: Vec::new(),
            class_of: Vec::new(),
            capacity: Capacity::default(),
            slots: Vec::new(),
            weights: Vec::new(),
            standing: Vec::new(),
        };
        let apart = kept_apart(problem, &field.groups);
        let mut known: FxHashMap<(Vec<i64>, Counts), u32> = FxHashMap::default();
        let mut by_host = vec![0; problem.hosts.len()];
        for (host, entry) in problem.hosts.iter().enumerate() {
            let (top, main) = field.tops(index, host, apart.get(&host));
            let amount = |name: &&str| free_of(&entry.node.allocatable, &entry.usage.requested, name);
            let mut free: Vec<i64> = names.iter().map(amount).collect();
            field.clip(&mut free, &top);
            field.slots.push(main);
            by_host[host] = *known.entry((free, top)).or_insert_with_key(|(free, top)| {
                field.classes.push(Class { free: free.clone(), top: top.clone(), patterns: Vec::new() });
                u32::try_from(field.classes.len() - 1).expect("there are fewer classes than hosts")
            });
        }
        for class in 0..field.classes.len() {
            field.classes[class].patterns = field.patterns(&field.classes[class]);
        }
        field.class_of = tree.hosts().iter().map(|host| by_host[*host]).collect();
        if let Some(main) = field.groups.first() {
            field.capacity = Capacity::new(tree, &problem.hosts, main.shape, &field.slots, &demand.bound);
        }
        field.standing = field.standing();
        field.weights = field.weights();
        field
    }

    /// Members of every group that a host takes alone, and the slots of the main shape or why there are none at all.
    fn tops(
        &self,
        index: &FxHashMap<crate::model::names::NodeName, usize>,
        host: usize,
        apart: Option<&Apart>,
    ) -> (Counts, Result<u32, Misfit>) {
        let Host { node, usage } = &self.problem.hosts[host];
        // Members of the gang itself keep away their own shape alone.
        let own = apart.map_or(0, |apart| apart.members).min(usage.own_shape_pods);
        let corrected;
        let usage = if own > 0 {
            corrected = Usage { own_shape_pods: usage.own_shape_pods - own, ..Usage::clone(usage) };
            &corrected
        } else {
            &**usage
        };
        let mut main = Ok(0);
        let mut top = Counts::new();
        for (number, group) in self.groups.iter().enumerate() {
            let taken = apart.is_some_and(|apart| apart.groups.contains(&number));
            let fit = if taken {
                Err(Misfit::Occupied)
            } else if own > 0 && index.get(&node.name) == Some(&host) {
                fit::slots(group.shape, node, usage)
            } else {
                slots(self.problem, index, group.shape, host)
            };
            top.push(fit.as_ref().map_or(0, |slots| *slots).min(group.may));
            if number == 0 {
                main = fit;
            }
        }
        if top.iter().any(|top| *top > 0) {
            main = Ok(main.unwrap_or(0));
        }
        (top, main)
    }

    /// Amounts beyond what the whole gang could use make no difference.
    fn clip(&self, free: &mut [i64], top: &Counts) {
        for (resource, free) in free.iter_mut().enumerate() {
            let used = self.resources.iter().zip(top);
            let used = used.map(|(each, top)| i128::from(each[resource]) * i128::from(*top)).sum::<i128>();
            *free = (*free).clamp(0, i64::try_from(used).unwrap_or(i64::MAX));
        }
    }

    /// How many members of a group fit beside others, at most `most`.
    pub(super) fn beside(&self, class: &Class, taken: &[u32], group: usize, most: u32) -> u32 {
        let mut capacity = most.min(class.top[group].saturating_sub(taken[group]));
        if capacity == 0 || taken.iter().zip(&self.clash[group]).any(|(taken, clash)| *taken > 0 && *clash) {
            return 0;
        }
        for (resource, each) in self.resources[group].iter().enumerate().filter(|(_, each)| **each > 0) {
            let used: i128 = taken
                .iter()
                .zip(&self.resources)
                .filter(|(taken, _)| **taken > 0)
                .map(|(taken, each)| i128::from(*taken) * i128::from(each[resource]))
                .sum();
            let free = (i128::from(class.free[resource]) - used).max(0) / i128::from(*each);
            capacity = capacity.min(u32::try_from(free).unwrap_or(u32::MAX));
        }
        capacity
    }

    /// Whether a host of the class takes so many of each.
    pub(super) fn fits(&self, class: &Class, counts: &[u32]) -> bool {
        let mut taken: Counts = SmallVec::from_elem(0, counts.len());
        for (group, count) in counts.iter().enumerate().filter(|(_, count)| **count > 0) {
            if self.beside(class, &taken, group, *count) < *count {
                return false;
            }
            taken[group] = *count;
        }
        true
    }

    /// Every set of counts that cannot grow, if they can be listed.
    fn patterns(&self, class: &Class) -> Vec<Counts> {
        let sizes = class.top.iter().map(|top| *top as usize + 1);
        if sizes.fold(1_usize, usize::saturating_mul) > MOST_PATTERNS {
            return Vec::new();
        }
        let mut found = Vec::new();
        self.grow(class, &mut SmallVec::from_elem(0, class.top.len()), 0, &mut found);
        let covers = |one: &Counts, other: &Counts| one != other && one.iter().zip(other).all(|(one, two)| one >= two);
        let kept = found.iter().filter(|one| !found.iter().any(|other| covers(other, one)));
        kept.cloned().collect()
    }

    fn grow(&self, class: &Class, taken: &mut Counts, group: usize, found: &mut Vec<Counts>) {
        if group == taken.len() {
            found.push(taken.clone());
            return;
        }
        let most = self.beside(class, taken, group, u32::MAX);
        let least = if group + 1 == taken.len() { most } else { 0 };
        for count in least..=most {
            taken[group] = count;
            self.grow(class, taken, group + 1, found);
        }
        taken[group] = 0;
    }

    /// The members of `wanted` to put on a host beside those there: most value.
    pub(super) fn take(&self, class: &Class, there: &[u32], wanted: &[u32], values: &[u64]) -> Counts {
        let worth = |counts: &Counts| -> u64 {
            let each = counts.iter().zip(values);
            each.map(|(count, value)| u64::from(*count).saturating_mul(*value)).fold(0, u64::saturating_add)
        };
        if class.patterns.is_empty() {
            let mut order: SmallVec<[usize; 8]> = (0..wanted.len()).collect();
            order.sort_by_key(|group| (std::cmp::Reverse(values[*group]), *group));
            let mut taken: Counts = SmallVec::from_slice(there);
            for group in order {
                taken[group] += self.beside(class, &taken, group, wanted[group]);
            }
            return taken.iter().zip(there).map(|(taken, there)| taken - there).collect();
        }
        let mut best: Option<(u64, Counts)> = None;
        for pattern in &class.patterns {
            if pattern.iter().zip(there).any(|(pattern, there)| pattern < there) {
                continue;
            }
            let counts = pattern.iter().zip(there).zip(wanted);
            let counts: Counts = counts.map(|((pattern, there), wanted)| (pattern - there).min(*wanted)).collect();
            let worth = worth(&counts);
            if best.as_ref().is_none_or(|(most, _)| worth > *most) {
                best = Some((worth, counts));
            }
        }
        best.map_or_else(|| SmallVec::from_elem(0, wanted.len()), |(_, counts)| counts)
    }

    /// What a host of the class holds at most, counted with a weight.
    fn cap(&self, class: &Class, each: &[u64]) -> u64 {
        let worth = |counts: &Counts| -> u64 {
            let sum: u128 = counts.iter().zip(each).map(|(count, each)| u128::from(*count) * u128::from(*each)).sum();
            u64::try_from(sum).unwrap_or(u64::MAX)
        };
        if !class.patterns.is_empty() {
            return class.patterns.iter().map(worth).max().unwrap_or(0);
        }
        let mut cap = worth(&class.top);
        for (resource, free) in class.free.iter().enumerate() {
            let counted = || each.iter().zip(&class.top).enumerate().filter(|(_, (each, top))| **each > 0 && **top > 0);
            if counted().any(|(group, _)| self.resources[group][resource] == 0) {
                continue;
            }
            let per = |(group, (each, _)): (usize, (&u64, &u32))| {
                u128::from(*each) * u128::from(free.unsigned_abs())
                    / u128::from(self.resources[group][resource].unsigned_abs())
            };
            let most = counted().map(per).max().unwrap_or(0);
            cap = cap.min(u64::try_from(most).unwrap_or(u64::MAX));
        }
        cap
    }

    /// Weights that bound what fits: every shape alone, all together, those that share a resource, and amounts.
    fn weights(&self) -> Vec<Weight> {
        let most = if self.tree.hosts().len() > MANY_HOSTS { FEW_WEIGHTS } else { MOST_WEIGHTS };
        let number = self.groups.len();
        let mut each: Vec<Vec<u64>> = vec![vec![1; number]];
        for resource in 0..self.resources.first().map_or(0, Vec::len) {
            let amounts: Vec<u64> = self.resources.iter().map(|each| each[resource].unsigned_abs()).collect();
            let divisor = amounts.iter().copied().fold(0, gcd).max(1);
            let total: u128 = amounts
                .iter()
                .zip(&self.groups)
                .map(|(each, group)| u128::from(*each / divisor) * u128::from(group.may))
                .sum();
            // Rounded down, each still bounds: any weights do.
            let scale = u64::try_from(total.div_ceil(u128::from(UNITS))).unwrap_or(u64::MAX).max(1);
            each.push(amounts.iter().map(|each| each / divisor / scale).collect());
        }
        each.extend((0..number).map(|group| (0..number).map(|other| u64::from(group == other)).collect()));
        for resource in 0..self.resources.first().map_or(0, Vec::len) {
            each.push(self.resources.iter().map(|each| u64::from(each[resource] > 0)).collect());
        }
        let mut weights: Vec<Weight> = Vec::new();
        for each in each {
            let sum = |of: fn(&Group<'_>) -> u32| -> u64 {
                self.groups.iter().zip(&each).map(|(group, each)| each.saturating_mul(u64::from(of(group)))).sum()
            };
            let (must, may) = (sum(|group| group.must), sum(|group| group.may));
            if may == 0 || weights.len() >= most || weights.iter().any(|weight| weight.each == each) {
                continue;
            }
            let by_class: Vec<u64> = self.classes.iter().map(|class| self.cap(class, &each).min(may)).collect();
            let mut caps: Vec<Vec<u64>> = vec![Vec::new(); self.tree.depth()];
            let last = self.tree.depth().saturating_sub(1);
            caps[last] = self.class_of.iter().map(|class| by_class[*class as usize]).collect();
            for level in (0..last).rev() {
                let domains = self.tree.level(level).iter();
                caps[level] = domains.map(|domain| caps[level + 1][domain.children.clone()].iter().sum()).collect();
            }
            weights.push(Weight { each, must, may, caps });
        }
        weights
    }

    /// Whether nothing rules out that so much of every weight fits; `None`: everywhere together.
    pub(super) fn may_hold(&self, domain: Option<(LevelIndex, usize)>, wanted: &[u32]) -> bool {
        self.weights.iter().all(|weight| weight.cap(domain) >= weight.of(wanted))
    }

    /// The counts that are needed, and those that are wanted at most.
    pub(super) fn must(&self) -> Counts {
        self.groups.iter().map(|group| group.must).collect()
    }

    pub(super) fn may(&self) -> Counts {
        self.groups.iter().map(|group| group.may).collect()
    }

    fn standing(&self) -> Vec<(u64, u64)> {
        let sums = |(bound, free): (&Vec<u32>, &Vec<u64>)| {
            let with = bound.iter().zip(free).filter(|(bound, _)| **bound > 0);
            with.fold((0, 0), |(number, sum), (_, free)| (number + 1, sum + free))
        };
        self.capacity.bound.iter().zip(&self.capacity.free).map(sums).collect()
    }

    /// Domains with bound members at a level.
    pub(super) fn stand(&self, level: LevelIndex) -> u64 {
        self.standing[level].0
    }

    /// The vector of a placement, in the order of the policy. Shapes: `placed` is depth-first positions, ascending, with
    /// their new members.
    pub(super) fn vector(&self, placed: &[(usize, Counts)]) -> Vec<u64> {
        let depth = self.tree.depth();
        let (mut used, mut broken, mut left) = (vec![0; depth], vec![0; depth], vec![0; depth]);
        // Domain, main members, whether an accelerator is taken.
        let mut domains: Vec<(usize, u64, bool)> = Vec::new();
        let mut unplaced: u64 = self.groups.iter().map(|group| u64::from(group.may)).sum();
        for (position, counts) in placed {
            let sum: u64 = counts.iter().map(|count| u64::from(*count)).sum();
            unplaced -= sum;
            if sum > 0 {
                let main = u64::from(counts[0]);
                let takes = counts.iter().zip(&self.groups).any(|(count, group)| *count > 0 && group.takes);
                domains.push((*position, main, takes || main > 0));
            }
        }
        for level in (0..depth).rev() {
            (used[level], left[level]) = self.standing[level];
            for (domain, main, touched) in &domains {
                if self.capacity.bound[level][*domain] > 0 {
                    left[level] -= self.capacity.free[level][*domain] - self.capacity.left(level, *domain, *main);
                } else {
                    used[level] += 1;
                    left[level] += self.capacity.left(level, *domain, *main);
                }
                broken[level] += u64::from(*touched && self.capacity.breaks(level, *domain, *main));
            }
            for (domain, ..) in &mut domains {
                *domain = self.tree.level(level)[*domain].parent;
            }
            domains.dedup_by(|(next, main, touched), (domain, sum, any)| {
                let same = next == domain && level > 0;
                if same {
                    *sum += *main;
                    *any |= *touched;
                }
                same
            });
        }
        self.ordered(&used, unplaced, &broken, &left)
    }

    /// The fields of a vector in the order of the policy.
    pub(super) fn ordered<T: Clone>(&self, used: &[T], unplaced: T, broken: &[T], left: &[T]) -> Vec<T> {
        let unplaced = std::slice::from_ref(&unplaced);
        match (self.policy.placement, self.policy.elastic) {
            (Placement::Locality, Elastic::Spread) => [unplaced, used, broken, left].concat(),
            (Placement::Locality, Elastic::Inside) => [used, unplaced, broken, left].concat(),
            (Placement::Packing, Elastic::Spread) => [unplaced, broken, left, used].concat(),
            (Placement::Packing, Elastic::Inside) => [broken, left, used, unplaced].concat(),
        }
    }
}

impl Weight {
    /// What a domain holds at most, or everything.
    pub(super) fn cap(&self, domain: Option<(LevelIndex, usize)>) -> u64 {
        match domain {
            Some((level, domain)) => self.caps[level][domain],
            None => self.caps.first().map_or(0, |caps| caps.iter().sum()),
        }
    }

    /// What some members count.
    pub(super) fn of(&self, counts: &[u32]) -> u64 {
        self.each.iter().zip(counts).map(|(each, count)| each.saturating_mul(u64::from(*count))).sum()
    }
}

/// Bound members of a host that keep away their like.
#[derive(Debug, Default)]
struct Apart {
    members: u32,
    groups: Vec<usize>,
}

/// By index into the hosts.
fn kept_apart(problem: &Problem, groups: &[Group<'_>]) -> FxHashMap<usize, Apart> {
    let mut by_name: FxHashMap<&crate::model::names::NodeName, Apart> = FxHashMap::default();
    for role in problem.gang.roles.iter().filter(|role| role.shape.one_per_node) {
        let group = groups.iter().position(|group| *group.shape == role.shape);
        for node in role.places.iter().filter_map(|place| place.bound.as_ref()) {
            let apart = by_name.entry(node).or_default();
            apart.members += 1;
            apart.groups.extend(group);
        }
    }
    let mut by_host = FxHashMap::default();
    for (host, entry) in problem.hosts.iter().enumerate() {
        if let Some(apart) = by_name.remove(&entry.node.name) {
            by_host.insert(host, apart);
        }
    }
    by_host
}

fn gcd(one: u64, other: u64) -> u64 {
    if other == 0 { one } else { gcd(other, one % other) }
}
