//! Workers of one shape beside one or two leaders of another, exactly.
//!
//! The same objective and the same knapsack as for one shape, with tables of two dimensions: for every number of
//! leaders (at most [`MOST_LEADERS`](super::shapes::MOST_LEADERS)) and every number of workers the least cost of placing both. *Slots* are those for
//! workers, so in field 4 what is left over in a domain is what is free minus what its new workers take, and it is broken
//! if it was whole, takes a worker or a leader that needs a worker's accelerator, and new workers leave something. After
//! field 4 comes the number of worker slots that leaders take away, summed over the hosts. Field 5 compares per host the
//! workers, then the leaders.

use std::ops::Range;
use std::sync::Arc;

use rustc_hash::FxHashMap;

use super::capacity::Capacity;
use super::change;
use super::cost::{Cost, Layout};
use super::demand::Demand;
use super::ranks;
use super::rules::Rules;
use super::search::{Domains, MOST_LIMBS};
use super::shapes::{Pair, accelerators};
use super::shortfall;
use crate::fit::{self, Misfit};
use crate::model::node::Usage;
use crate::model::pod::Shape;
use crate::planner::plan::{Change, Elastic, LevelIndex, Place, Placement, Policy, Problem, Refusal, Role, Work};
use crate::topology::Tree;

/// New members of a domain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Count {
    workers: usize,
    leaders: usize,
}

/// Cost of a placement: the packed vector, then the worker slots that leaders take.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Value<C> {
    cost: C,
    lost: u32,
}

impl<C: Cost> Value<C> {
    const NEVER: Self = Self { cost: C::NEVER, lost: 0 };

    fn plus(self, other: Self) -> Self {
        let cost = self.cost.plus(other.cost).settled();
        if cost == C::NEVER { Self::NEVER } else { Self { cost, lost: self.lost.saturating_add(other.lost) } }
    }
}

/// What a place looks at.
pub(super) struct Sight<'a> {
    pub(super) problem: &'a Problem,
    pub(super) policy: &'a Policy,
    pub(super) ground: &'a super::Ground,
}

/// Places the gang.
///
/// Errors: as for one shape; `demand` has the members of both.
pub(super) fn place(
    sight: &Sight<'_>,
    pair: Pair<'_>,
    demand: &Demand<'_>,
    domains: &Domains,
    work: &mut Work,
) -> Result<Vec<Place>, Refusal> {
    let Sight { problem, policy, ground } = *sight;
    let super::Ground { tree, index, .. } = ground;
    let roles = &problem.gang.roles;
    let open = |role: &Role| role.places.iter().filter(|place| place.bound.is_none()).count();
    let of = |shape: &'_ Shape| roles.iter().filter(move |role| role.shape == *shape).collect::<Vec<_>>();
    let leaders: usize = of(pair.leader).into_iter().map(open).sum();
    let most: usize = of(pair.worker).into_iter().map(open).sum();
    let needed = |role: &Role| (role.min as usize).saturating_sub(role.places.len() - open(role));
    let least: usize = of(pair.worker).into_iter().map(needed).sum();

    let mut slots: Vec<Result<u32, Misfit>> = Vec::new();
    let mut profiles = Vec::new();
    for (host, entry) in problem.hosts.iter().enumerate() {
        work.slots += 1;
        let profile = if index.get(&entry.node.name) == Some(&host) {
            slots.push(fit::slots(pair.worker, &entry.node, &entry.usage));
            profile(pair, entry, leaders)
        } else {
            slots.push(Ok(0));
            vec![0]
        };
        profiles.push(profile);
    }
    let capacity = Capacity::new(tree, &problem.hosts, pair.worker, &slots, &demand.bound);
    let layout = Layout::new(policy.placement, &capacity, (most + leaders).max(1) as u64);
    let solver = Frame {
        tree,
        capacity: &capacity,
        layout: &layout,
        profiles: &profiles,
        takes: accelerators(pair.worker).any(|name| pair.leader.requests.get(name) > 0),
        leaders,
        limit: most,
        policy,
        domains,
    };
    let counts = match layout.limbs {
        ..=2 => solver.run::<u128>(least, work),
        3..=4 => solver.run::<[u64; 4]>(least, work),
        _ => solver.run::<[u64; MOST_LIMBS]>(least, work),
    };
    match counts {
        Ok(counts) => {
            let names = |of: fn(&Count) -> usize| {
                let hosts = tree.hosts().iter().zip(&counts);
                hosts.flat_map(move |(host, count)| std::iter::repeat_n(&problem.hosts[*host].node.name, of(count)))
            };
            let new = counts.iter().map(|count| count.workers).sum::<usize>();
            let new = u32::try_from(new).unwrap_or(u32::MAX);
            let mine = |role: &Role| role.shape == *pair.worker;
            let mut places = ranks::places_of(&problem.gang, mine, new, names(|count| count.workers));
            let new = u32::try_from(leaders).unwrap_or(u32::MAX);
            places.extend(ranks::places_of(&problem.gang, |role| !mine(role), new, names(|count| count.leaders)));
            places.sort_by_key(|place| (place.role, place.rank));
            Ok(places)
        }
        Err(short) => {
            let capacity = short.capacity(sight, pair, least, leaders);
            let rules = Rules::plain(short.holds);
            let mut shortfall = shortfall::shortfall(problem, tree, &rules, demand, &slots, domains);
            shortfall.changes = capacity.into_iter().collect();
            shortfall.changes.extend(change::fewer_topology_requests(problem, |changed| {
                super::domains(changed, ground, demand).is_ok_and(|domains| {
                    let frame = Frame { domains: &domains, ..solver };
                    match layout.limbs {
                        ..=2 => frame.fits::<u128>(least, work),
                        3..=4 => frame.fits::<[u64; 4]>(least, work),
                        _ => frame.fits::<[u64; MOST_LIMBS]>(least, work),
                    }
                })
            }));
            Err(Refusal::DoesNotFit(shortfall))
        }
    }
}

/// How far a pair is from fitting.
#[derive(Debug)]
struct Short {
    /// Per domain: how many of the leaders and of the needed workers it could take.
    holds: Vec<Vec<u64>>,
    /// The most workers beside all leaders, and the domain they share.
    workers: Option<(usize, Option<(LevelIndex, usize)>)>,
    /// The most leaders beside all needed workers, and the domain they share.
    leaders: Option<(usize, Option<(LevelIndex, usize)>)>,
}

impl Short {
    /// Capacity that would do: for leaders where as few are missing as workers would be.
    fn capacity(&self, sight: &Sight<'_>, pair: Pair<'_>, least: usize, leaders: usize) -> Option<Change> {
        let leader = self.leaders.map(|(held, domain)| (leaders - held, domain, pair.leader));
        let worker = self.workers.map(|(held, domain)| (least - held, domain, pair.worker));
        let (members, domain, shape) = leader.into_iter().chain(worker).min_by_key(|(members, ..)| *members)?;
        let role = sight.problem.gang.roles.iter().find(|role| role.shape == *shape)?;
        let mut capacity = change::capacity(sight.problem, &sight.ground.tree, domain, members as u64);
        capacity.role = Some(Arc::clone(&role.name));
        Some(Change::Capacity { capacities: vec![capacity] })
    }
}

/// Workers a host takes beside 0, 1, … leaders, as far as leaders fit; at least one entry.
fn profile(pair: Pair<'_>, host: &crate::planner::plan::Host, leaders: usize) -> Vec<u32> {
    let mut usage = Usage::clone(&host.usage);
    let mut profile = vec![fit::slots(pair.worker, &host.node, &usage).unwrap_or(0)];
    for _ in 0..leaders {
        if fit::fits(pair.leader, &host.node, &usage).is_err() {
            break;
        }
        usage.add(pair.leader);
        profile.push(fit::slots(pair.worker, &host.node, &usage).unwrap_or(0));
    }
    profile
}

#[derive(Clone, Copy)]
struct Frame<'a> {
    tree: &'a Tree,
    capacity: &'a Capacity,
    layout: &'a Layout,
    /// Per host, in the order of the problem.
    profiles: &'a [Vec<u32>],
    /// A leader uses an accelerator of the workers'.
    takes: bool,
    leaders: usize,
    limit: usize,
    policy: &'a Policy,
    domains: &'a Domains,
}

/// A table: cells by leaders, then workers.
#[derive(Clone, Debug)]
struct Table<C> {
    width: usize,
    cells: Vec<Value<C>>,
}

impl<C: Cost> Table<C> {
    fn get(&self, count: Count) -> Value<C> {
        if count.workers >= self.width {
            return Value::NEVER;
        }
        self.cells.get(count.leaders * self.width + count.workers).copied().unwrap_or(Value::NEVER)
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Class {
    level: LevelIndex,
    slots: u64,
    free: u64,
    whole: bool,
    bound: bool,
    below: Result<usize, Vec<u32>>,
}

struct Solver<'a, C> {
    frame: &'a Frame<'a>,
    tables: Vec<Table<C>>,
    by_domain: Vec<Vec<Option<usize>>>,
    by_class: FxHashMap<Class, usize>,
    by_pair: FxHashMap<(usize, usize), usize>,
    work: Work,
}

impl Frame<'_> {
    /// Whether all leaders and the `least` workers can be placed.
    fn fits<C: Cost>(&self, least: usize, work: &mut Work) -> bool {
        let mut solver = self.solver::<C>();
        let fits = solver.number(least).is_some();
        work.add(solver.work);
        fits
    }

    fn solver<C>(&self) -> Solver<'_, C> {
        Solver {
            frame: self,
            tables: Vec::new(),
            by_domain: self.capacity.slots.iter().map(|slots| vec![None; slots.len()]).collect(),
            by_class: FxHashMap::default(),
            by_pair: FxHashMap::default(),
            work: Work::default(),
        }
    }

    /// Counts per host, or how far it is from there.
    fn run<C: Cost>(&self, least: usize, work: &mut Work) -> Result<Vec<Count>, Short> {
        let mut solver = self.solver::<C>();
        let answer = solver.number(least).map(|workers| {
            let count = Count { workers, leaders: self.leaders };
            let mut counts = vec![Count { workers: 0, leaders: 0 }; self.tree.hosts().len()];
            match solver.best(count).0 {
                Some((level, domain)) => solver.assign(level, &[domain], &[count], &mut counts),
                None => {
                    let top: Vec<usize> = (0..self.tree.level(0).len()).collect();
                    solver.assign(0, &top, &[count], &mut counts)
                }
            };
            counts
        });
        let answer = answer.ok_or_else(|| Short {
            holds: solver.holds(least),
            workers: solver.most((0..least).map(|workers| Count { workers, leaders: self.leaders }), |c| c.workers),
            leaders: solver.most((0..self.leaders).map(|leaders| Count { workers: least, leaders }), |c| c.leaders),
        });
        work.add(solver.work);
        answer
    }
}

impl<C: Cost> Solver<'_, C> {
    /// How many workers to place; `None` if the least cannot be.
    fn number(&mut self, least: usize) -> Option<usize> {
        let leaders = self.frame.leaders;
        let costs: Vec<(usize, Value<C>)> = (least..=self.frame.limit)
            .map(|workers| (workers, self.best(Count { workers, leaders }).1))
            .filter(|(_, value)| *value != Value::NEVER)
            .collect();
        let rest = |workers: usize| self.frame.limit - workers;
        let mask = self.frame.layout.used_mask::<C>();
        let best = match (self.frame.policy.elastic, self.frame.policy.placement) {
            (Elastic::Spread, Placement::Locality | Placement::Packing) => costs.last(),
            (Elastic::Inside, Placement::Locality) => {
                costs.iter().min_by_key(|(workers, value)| (value.cost.masked(mask), rest(*workers)))
            }
            (Elastic::Inside, Placement::Packing) => {
                costs.iter().min_by_key(|(workers, value)| (value.cost, rest(*workers), value.lost))
            }
        };
        best.map(|(workers, _)| *workers)
    }

    /// The cheapest candidate and its cost with all its ancestors, the first of several.
    fn best(&mut self, count: Count) -> (Option<(LevelIndex, usize)>, Value<C>) {
        let tree = self.frame.tree;
        let Some((level, candidates)) = self.frame.domains.candidates(tree) else {
            let top: Vec<usize> = (0..tree.level(0).len()).collect();
            let none = count == Count { workers: 0, leaders: 0 };
            let value = match self.run(0, &top) {
                Some(table) => self.tables[table].get(count),
                None if none => Value { cost: C::ZERO, lost: 0 },
                None => Value::NEVER,
            };
            return (None, value);
        };
        let mut best = (None, Value::NEVER);
        for domain in candidates {
            let table = self.table(level, domain);
            let mut value = self.tables[table].get(count);
            if value == Value::NEVER {
                continue;
            }
            let mut parent = tree.level(level)[domain].parent;
            for above in (0..level).rev() {
                value = value.plus(Value { cost: self.own(above, parent, count), lost: 0 });
                parent = tree.level(above)[parent].parent;
            }
            if value < best.1 {
                best = (Some((level, domain)), value);
            }
        }
        best
    }

    /// The last of some ascending counts that can be placed, and where.
    fn most(
        &mut self,
        counts: impl DoubleEndedIterator<Item = Count>,
        of: fn(Count) -> usize,
    ) -> Option<(usize, Option<(LevelIndex, usize)>)> {
        counts.rev().find_map(|count| {
            let (domain, value) = self.best(count);
            (value != Value::NEVER).then(|| (of(count), domain))
        })
    }

    /// Per domain: how many of the leaders and of the `least` workers it could take.
    fn holds(&mut self, least: usize) -> Vec<Vec<u64>> {
        let tree = self.frame.tree;
        (0..tree.depth())
            .map(|level| {
                (0..tree.level(level).len())
                    .map(|domain| {
                        let table = self.table(level, domain);
                        let table = &self.tables[table];
                        let cells = table.cells.iter().enumerate().filter(|(_, value)| **value != Value::NEVER);
                        let held = cells.map(|(cell, _)| cell / table.width + (cell % table.width).min(least));
                        held.max().unwrap_or(0) as u64
                    })
                    .collect()
            })
            .collect()
    }

    fn own(&self, level: LevelIndex, domain: usize, count: Count) -> C {
        let Frame { capacity, layout, takes, .. } = self.frame;
        let workers = count.workers as u64;
        let left = capacity.left(level, domain, workers);
        let mut cost = C::ZERO;
        if capacity.bound[level][domain] > 0 {
            cost = cost.plus(C::field(layout.left[level], left));
        } else if count.workers + count.leaders > 0 {
            cost = cost.plus(C::field(layout.used[level], 1)).plus(C::field(layout.left[level], left));
        }
        let touched = workers > 0 || (*takes && count.leaders > 0);
        if touched && capacity.breaks(level, domain, workers) {
            cost = cost.plus(C::field(layout.broken[level], 1));
        }
        cost
    }

    /// The table of several domains side by side; `None` of none.
    fn run(&mut self, level: LevelIndex, parts: &[usize]) -> Option<usize> {
        match parts {
            [] => None,
            [only] => Some(self.table(level, *only)),
            parts => {
                let (left, right) = parts.split_at(parts.len() / 2);
                let (left, right) = (self.run(level, left)?, self.run(level, right)?);
                Some(self.merge(left.min(right), left.max(right)))
            }
        }
    }

    fn table(&mut self, level: LevelIndex, domain: usize) -> usize {
        if let Some(table) = self.by_domain[level][domain] {
            return table;
        }
        self.work.vertices += 1;
        let Frame { tree, capacity, limit, leaders, profiles, .. } = *self.frame;
        let children = tree.level(level)[domain].children.clone();
        let below = match self.run(level + 1, &children.filter(|_| level + 1 < tree.depth()).collect::<Vec<_>>()) {
            Some(below) => Ok(below),
            None => Err(profiles[tree.hosts()[domain]].clone()),
        };
        let (slots, whole) = (capacity.slots[level][domain], capacity.whole[level][domain]);
        let free = capacity.free[level][domain];
        let class = Class { level, slots, free, whole, bound: capacity.bound[level][domain] > 0, below };
        let table = match self.by_class.get(&class) {
            Some(table) => *table,
            None => {
                let width = usize::try_from(slots).map_or(limit, |slots| slots.min(limit)) + 1;
                let mut cells = Vec::with_capacity(width * (leaders + 1));
                for leaders in 0..=leaders {
                    for workers in 0..width {
                        let count = Count { workers, leaders };
                        let below = match &class.below {
                            Ok(below) => self.tables[*below].get(count),
                            Err(profile) => match profile.get(leaders) {
                                Some(fit) if workers <= *fit as usize => {
                                    Value { cost: C::ZERO, lost: profile[0].saturating_sub(*fit) }
                                }
                                Some(_) | None => Value::NEVER,
                            },
                        };
                        cells.push(below.plus(Value { cost: self.own(level, domain, count), lost: 0 }));
                    }
                }
                self.tables.push(Table { width, cells });
                self.by_class.insert(class, self.tables.len() - 1);
                self.tables.len() - 1
            }
        };
        self.by_domain[level][domain] = Some(table);
        table
    }

    fn merge(&mut self, left: usize, right: usize) -> usize {
        if let Some(table) = self.by_pair.get(&(left, right)) {
            return *table;
        }
        let (a, b) = (&self.tables[left], &self.tables[right]);
        let most = self.frame.leaders;
        let width = (a.width + b.width - 1).min(self.frame.limit + 1);
        let mut cells = vec![Value::NEVER; width * (most + 1)];
        for (index, first) in a.cells.iter().enumerate().filter(|(_, first)| **first != Value::NEVER) {
            let (leaders, workers) = (index / a.width, index % a.width);
            for other in 0..=most - leaders {
                let from = (leaders + other) * width + workers;
                let to = (leaders + other + 1) * width;
                let second = &b.cells[other * b.width..(other + 1) * b.width];
                self.work.cells += (to - from).min(second.len()) as u64;
                for (cell, second) in cells[from..to].iter_mut().zip(second) {
                    *cell = (*cell).min(first.plus(*second));
                }
            }
        }
        self.tables.push(Table { width, cells });
        self.by_pair.insert((left, right), self.tables.len() - 1);
        self.tables.len() - 1
    }

    /// Among all optimal placements of one of `sums`, the one with the lexicographically largest host counts.
    fn assign(&mut self, level: LevelIndex, parts: &[usize], sums: &[Count], counts: &mut [Count]) -> Count {
        let none = Count { workers: 0, leaders: 0 };
        let (left, right) = match parts {
            [] => return none,
            [only] if level + 1 == self.frame.tree.depth() => {
                counts[*only] = sums.iter().max().copied().unwrap_or(none);
                return counts[*only];
            }
            [only] => {
                let children: Range<usize> = self.frame.tree.level(level)[*only].children.clone();
                return self.assign(level + 1, &children.collect::<Vec<_>>(), sums, counts);
            }
            parts => parts.split_at(parts.len() / 2),
        };
        let (Some(left_table), Some(right_table)) = (self.run(level, left), self.run(level, right)) else {
            return none;
        };
        let splits = |sum: Count| {
            let (a, b) = (&self.tables[left_table], &self.tables[right_table]);
            let taken = (0..=sum.leaders).flat_map(move |leaders| {
                (0..=sum.workers.min(a.width - 1)).map(move |workers| Count { workers, leaders })
            });
            taken.map(move |taken| {
                let rest = Count { workers: sum.workers - taken.workers, leaders: sum.leaders - taken.leaders };
                (taken, rest, a.get(taken).plus(b.get(rest)))
            })
        };
        // Every optimal way to divide every sum that is still open.
        let mut open: Vec<(Count, Count)> = Vec::new();
        for &sum in sums {
            let best = splits(sum).map(|(_, _, value)| value).min().unwrap_or(Value::NEVER);
            open.extend(splits(sum).filter(|(_, _, value)| *value == best).map(|(taken, rest, _)| (taken, rest)));
        }
        let mut firsts: Vec<Count> = open.iter().map(|(taken, _)| *taken).collect();
        firsts.sort_unstable();
        firsts.dedup();
        let first = self.assign(level, left, &firsts, counts);
        let mut seconds: Vec<Count> = open.iter().filter(|(taken, _)| *taken == first).map(|(_, rest)| *rest).collect();
        seconds.sort_unstable();
        seconds.dedup();
        let second = self.assign(level, right, &seconds, counts);
        Count { workers: first.workers + second.workers, leaders: first.leaders + second.leaders }
    }
}
