//! Where every pod of a gang goes, and why not, if not. A pure function.
//!
//! # What is best
//!
//! One vector per way to place the gang, compared field by field, smaller is better. *New* members are those this plan
//! places, *bound* ones stand already; a domain's *slots* are the new members it could take before the plan. What is *free*
//! in it is counted on those of its nodes that could take one: in accelerators, by the kind that is scarcest there, since
//! what is left serves gangs of other shapes; for a shape without accelerators in quarters of a member, by the scarcest
//! resource it requests.
//!
//! 1. Members missing below a role's minimum. More than 0: no plan.
//! 2. Domains that hold a member, new or bound: one number per level, from the top down.
//!    With a balance level, the most minus the fewest members of its used domains stands directly after its count.
//! 3. Unbound members not placed (they are elastic). With [`Spread`](crate::planner::plan::Elastic::Spread) this field stands before field 2, so that
//!    as many as possible are placed; with [`Inside`](crate::planner::plan::Elastic::Inside) it stands here, so that no domain is used for them alone.
//! 4. Domains *broken*: one number per level, from the top down. Then what is left over: per level from the top down, the
//!    sum of what is free minus what new members take over the domains that hold a member, new or bound.
//!    - A domain is *whole* if before the plan no accelerator is in use on any of its nodes, fit or not. Accelerators are
//!      the extended resources the gang's shape requests; for a shape without any, every domain is whole.
//!    - It is *broken* if it was whole, takes some new members and keeps accelerators free; for a shape without any, if it
//!      takes fewer than its slots.
//! 5. The member counts of the hosts in depth-first natural order ([`Tree`]), lexicographically largest.
//!
//! [`Packing`](crate::planner::plan::Placement::Packing) puts field 4 before field 2 (and before field 3 where that stands after field 2).
//!
//! # What is exact
//!
//! All of it, for gangs of one shape: apart from field 5 the vector is a sum over the domains of a function of the
//! number of new members below each, so a (min, +) tree knapsack with the vector as cost is exact, and back-tracking
//! that keeps every optimal number open gives field 5. A required level is a cap: the best of its domains that carry
//! the label. Slices and exclusive domains are numbers of members that a domain may take, in the same knapsack. Balance
//! is solved by windows: the smallest width that keeps what stands above it. Workers beside one or two leaders of another
//! shape are exact too, with tables of two dimensions (`pair`). Other mixes of shapes are exact while their tables stay
//! small, and else searched in bounded work: the report then says how far from a proven bound the plan may be (`mix`).

mod capacity;
mod change;
pub mod check;
mod cost;
mod demand;
mod explain;
mod forest;
mod knapsack;
mod memory;
mod mix;
mod narrow;
mod pair;
pub mod plan;
mod ranks;
mod remedy;
mod rules;
mod score;
mod search;
mod shapes;
mod shortfall;
mod window;

use std::sync::Arc;

use rustc_hash::FxHashMap;

use crate::fit::{self, Misfit};
use crate::model::names::NodeName;
use crate::model::pod::Shape;
use crate::planner::plan::{
    Gap, LevelIndex, LevelUse, Place, Plan, Policy, Problem, Refusal, Report, SearchBudget, Seed, Work,
};
use crate::topology::Tree;
use capacity::Capacity;
use demand::Demand;
use pair::Sight;
use rules::Rules;
use search::{Domains, Search};
use shapes::Pair;

pub use knapsack::Pruning;
pub use memory::Memory;
pub use score::{Score, score};

/// Places one gang.
///
/// Shapes: the plan has one place per bound member and one per new member, in role order, then rank order; it is empty
/// if the gang is refused. The answer does not depend on the order of `problem.hosts`; node names are taken as unique,
/// and of several with one name only the first counts. Budget and seed matter to larger mixes of shapes alone: the same
/// ones give the same answer.
///
/// Errors: in the report, [`Refusal`]; never a partial answer.
/// Source: `required` only caps the level, after Kueue KEP-2724; the objective is this module's.
pub fn plan(problem: &Problem, policy: &Policy, budget: SearchBudget, seed: Seed) -> (Plan, Report) {
    let ground = Ground::new(problem);
    let mut work = Work::default();
    let asked = Asked { policy, pruning: Pruning::On, budget, seed };
    let answer = place(problem, asked, &ground, None, &mut work);
    answered(problem, &ground, answer, work)
}

/// [`plan`], with the choice to merge everything: for tests of the pruning.
pub fn plan_with(problem: &Problem, policy: &Policy, pruning: Pruning) -> (Plan, Report) {
    plan_on(&Ground::new(problem), problem, policy, pruning)
}

/// What the nodes of a problem say, apart from what stands on them: built once for many gangs on the same nodes.
#[derive(Clone, Debug)]
pub struct Ground {
    tree: Tree,
    /// Of every name the first index into the hosts.
    index: FxHashMap<NodeName, usize>,
    /// The depth-first position of every host, in the order of the hosts.
    positions: Vec<usize>,
}

impl Ground {
    /// Reads the levels and the nodes of a problem.
    #[must_use]
    pub fn new(problem: &Problem) -> Self {
        let tree = Tree::build(&problem.levels, problem.hosts.iter().map(|host| &*host.node));
        let hosts = problem.hosts.iter().enumerate().rev();
        let index = hosts.map(|(index, host)| (host.node.name.clone(), index)).collect();
        let mut positions = vec![0; tree.hosts().len()];
        for (position, host) in tree.hosts().iter().enumerate() {
            positions[*host] = position;
        }
        Self { tree, index, positions }
    }
}

/// [`plan_with`] on nodes that were read before.
///
/// `ground` must be that of a problem with the same levels and the same hosts in the same order, with the same names and
/// labels; usage, taints and the gang may differ.
pub fn plan_on(ground: &Ground, problem: &Problem, policy: &Policy, pruning: Pruning) -> (Plan, Report) {
    let mut work = Work::default();
    let answer = place(problem, Asked::usual(policy, pruning), ground, None, &mut work);
    answered(problem, ground, answer, work)
}

/// How a gang is to be placed.
#[derive(Clone, Copy)]
struct Asked<'a> {
    policy: &'a Policy,
    pruning: Pruning,
    budget: SearchBudget,
    seed: Seed,
}

impl<'a> Asked<'a> {
    fn usual(policy: &'a Policy, pruning: Pruning) -> Self {
        Self { policy, pruning, budget: SearchBudget::default(), seed: Seed::default() }
    }
}

/// Every place, and what is known about better ones: nothing is, unless a search was needed.
struct Answer {
    places: Vec<Place>,
    searched: Option<Proven>,
}

/// What a search proved.
struct Proven {
    /// Fewest domains per level.
    least: Vec<u32>,
    gap: Option<Gap>,
}

impl From<Vec<Place>> for Answer {
    fn from(places: Vec<Place>) -> Self {
        Self { places, searched: None }
    }
}

/// Plan and report of an answer.
fn answered(problem: &Problem, ground: &Ground, answer: Result<Answer, Refusal>, work: Work) -> (Plan, Report) {
    let mut plan = Plan { version: Plan::VERSION, gang: problem.gang.key.clone(), places: Vec::new() };
    match answer {
        Ok(Answer { places, searched }) => {
            let mut report = placed_report(problem, ground, &places, work);
            if let Some(Proven { least, gap }) = searched {
                report.gap = gap;
                let levels = report.levels.iter_mut().zip(least);
                levels.for_each(|(level, least)| level.optimum = least.min(level.used));
            }
            plan.places = places;
            (plan, report)
        }
        Err(refusal) => {
            let mut report = empty_report(problem, &ground.tree, work);
            report.refusal = Some(change::completed(problem, ground, refusal));
            (plan, report)
        }
    }
}

/// Decides every place. `counted` are the slots of the gang's shape, if they are known: those of [`slots`], with no
/// regard to members bound.
fn place(
    problem: &Problem,
    asked: Asked<'_>,
    ground: &Ground,
    counted: Option<&[Result<u32, Misfit>]>,
    work: &mut Work,
) -> Result<Answer, Refusal> {
    let Asked { policy, pruning, budget, seed } = asked;
    debug_assert_eq!(ground.tree.hosts().len(), problem.hosts.len(), "the ground is that of the problem");
    let Ground { tree, index, positions } = ground;
    if let Some(pair) = Pair::of(&problem.gang) {
        let Some(demand) = Demand::new(problem, index, positions)? else { return Ok(Vec::new().into()) };
        let domains = domains(problem, ground, &demand)?;
        return pair::place(&Sight { problem, policy, ground }, pair, &demand, &domains, work).map(Answer::from);
    }
    if demand::shapes(&problem.gang) > 1 {
        let Some(demand) = Demand::new(problem, index, positions)? else { return Ok(Vec::new().into()) };
        let domains = domains(problem, ground, &demand)?;
        let sight = mix::Sight { problem, policy, ground, budget, seed };
        let mix::Answer { places, least, gap } = mix::place(sight, &demand, &domains, work)?;
        return Ok(Answer { places, searched: Some(Proven { least, gap }) });
    }
    let facts = match Facts::read(problem, ground, counted, work) {
        Ok(Some(facts)) => facts,
        Ok(None) => return Ok(Vec::new().into()),
        Err(refusal) => return Err(refusal),
    };
    if !facts.fits() {
        let mut shortfall =
            shortfall::shortfall(problem, tree, &facts.rules, &facts.demand, &facts.slots, &facts.domains);
        shortfall.changes = change::changes(problem, ground, counted, &facts, work);
        return Err(Refusal::DoesNotFit(shortfall));
    }
    let Facts { demand, domains, slots: _, capacity, rules, numbers } = &facts;
    let topology_requests = &problem.gang.topology_requests;
    let search = Search { tree, capacity, rules, policy, pruning, domains, balance: topology_requests.balance };
    let counts = search::counts(&search, numbers, work);
    if topology_requests.slices.is_empty() {
        let new = counts.iter().sum();
        let hosts = tree.hosts().iter().zip(&counts);
        let hosts =
            hosts.flat_map(|(host, count)| std::iter::repeat_n(&problem.hosts[*host].node.name, *count as usize));
        Ok(ranks::places(&problem.gang, new, hosts).into())
    } else {
        let dealt = ranks::deal(tree, &topology_requests.slices, &demand.sequence, &counts);
        Ok(ranks::sliced(problem, tree, &dealt).into())
    }
}

/// Everything about a gang of one shape that is known before the search.
struct Facts<'p> {
    demand: Demand<'p>,
    domains: Domains,
    /// In the order of `problem.hosts`.
    slots: Vec<Result<u32, Misfit>>,
    capacity: Capacity,
    rules: Rules,
    /// Numbers of new members that can be placed, if the damaged slices can be completed.
    numbers: Vec<usize>,
}

impl<'p> Facts<'p> {
    /// Reads the gang; `None` if it has no place at all. `counted` are the slots to trust in instead of counting them.
    ///
    /// Errors: every refusal but that it does not fit.
    fn read(
        problem: &'p Problem,
        ground: &Ground,
        counted: Option<&[Result<u32, Misfit>]>,
        work: &mut Work,
    ) -> Result<Option<Self>, Refusal> {
        let Ground { tree, index, positions } = ground;
        let Some(demand) = Demand::new(problem, index, positions)? else { return Ok(None) };
        let domains = domains(problem, ground, &demand)?;
        let topology_requests = &problem.gang.topology_requests;
        let mut slots = match counted {
            Some(counted) => counted.to_vec(),
            None => {
                work.slots += problem.hosts.len() as u64;
                (0..problem.hosts.len()).map(|host| slots(problem, index, demand.shape, host)).collect()
            }
        };
        if demand.shape.one_per_node {
            for host in &demand.bound_hosts {
                slots[*host] = Err(Misfit::Occupied);
            }
        }
        if let (Some(required), true) = (topology_requests.required, domains.level() > topology_requests.required) {
            // The lower level decides the domain; the other one must be satisfied too.
            fixed_domain(problem, ground, required, &demand)?;
            capacity::leave_unlabelled(tree, required, &mut slots);
        }
        if let Some(level) = topology_requests.exclusive {
            capacity::leave_shared(problem, tree, level, &demand, &mut slots)?;
        }
        if let Some(level) = topology_requests.apart {
            capacity::leave_apart(problem, tree, (level, topology_requests.required), &demand, &mut slots);
        }
        let capacity = Capacity::new(tree, &problem.hosts, demand.shape, &slots, &demand.bound);
        let rules = Rules::new(problem, tree, &capacity, &demand)?;
        let most = domains.most(tree, &rules).min(u64::from(demand.may));
        let numbers = rules.numbers(u64::from(demand.must), most);
        Ok(Some(Self { demand, domains, slots, capacity, rules, numbers }))
    }

    fn fits(&self) -> bool {
        !self.numbers.is_empty() && self.rules.completable()
    }
}

/// Where the gang may go.
///
/// Errors: a bound member elsewhere.
fn domains(problem: &Problem, ground: &Ground, demand: &Demand<'_>) -> Result<Domains, Refusal> {
    let topology_requests = &problem.gang.topology_requests;
    // Alone in one domain, unless it is slices that are to be alone.
    let alone =
        topology_requests.exclusive.filter(|level| topology_requests.slices.iter().all(|slice| slice.level != *level));
    let Some(level) = topology_requests.required.max(alone) else { return Ok(Domains::Any) };
    Ok(match fixed_domain(problem, ground, level, demand)? {
        Some(domain) => Domains::Fixed { level, domain },
        None => Domains::OneOf { level },
    })
}

/// The domain of the required level that bound members decide, if there are any.
///
/// Errors: a bound member outside the first one's domain, or one in a domain that cannot satisfy the level.
fn fixed_domain(
    problem: &Problem,
    Ground { tree, index: _, positions }: &Ground,
    level: LevelIndex,
    demand: &Demand<'_>,
) -> Result<Option<usize>, Refusal> {
    let mut fixed = None;
    for host in &demand.bound_hosts {
        let domain = tree.domain_of(level, positions[*host]);
        if !tree.satisfies(level, domain) || *fixed.get_or_insert(domain) != domain {
            let inside = fixed.filter(|fixed| *fixed != domain && tree.satisfies(level, *fixed)).map(|fixed| {
                let name = &problem.levels.as_slice()[level].name;
                Arc::from(format!("{name} {}", tree.path(level, fixed)))
            });
            let node = problem.hosts[*host].node.name.clone();
            return Err(Refusal::BoundOutside { node, inside, changes: Vec::new() });
        }
    }
    Ok(fixed)
}

/// Slots of one host, whatever members are bound there.
fn slots(problem: &Problem, index: &FxHashMap<NodeName, usize>, shape: &Shape, host: usize) -> Result<u32, Misfit> {
    let entry = &problem.hosts[host];
    // As many names as hosts: none is there twice.
    if index.len() == problem.hosts.len() || index.get(&entry.node.name) == Some(&host) {
        fit::slots(shape, &entry.node, &entry.usage)
    } else {
        // The same name again: it would be a second place in the tree for one node.
        Ok(0)
    }
}

/// The report of a plan.
fn placed_report(
    problem: &Problem,
    Ground { tree, index, positions }: &Ground,
    places: &[Place],
    work: Work,
) -> Report {
    let mut report = empty_report(problem, tree, work);
    // The domains of the level below, then of the level itself.
    let mut ring: Vec<usize> =
        places.iter().filter_map(|place| index.get(&place.node)).map(|host| positions[*host]).collect();
    let mut domains = Vec::new();
    let levels = report.levels.iter_mut().zip(&mut report.ring_crossings).enumerate().rev();
    for (level, (entry, crossings)) in levels {
        if let Some(below) = Some(level + 1).filter(|below| *below < tree.depth()) {
            ring.iter_mut().for_each(|domain| *domain = tree.level(below)[*domain].parent);
        }
        let next = ring.iter().cycle().skip(1);
        *crossings = count(ring.iter().zip(next).filter(|(domain, next)| domain != next).count());
        domains.clone_from(&ring);
        domains.sort_unstable();
        domains.dedup();
        entry.used = count(domains.len());
        // The knapsack is exact: no placement uses fewer, given the fields above. A search corrects this.
        entry.optimum = entry.used;
        let met = matches!(*domains, [only] if tree.satisfies(level, only)) || domains.is_empty();
        let redundant = problem.gang.topology_requests.required.is_some_and(|required| level <= required);
        if problem.gang.topology_requests.preferred == Some(level) && !met && !redundant {
            report.preferred_missed = Some(level);
        }
    }
    let all: usize = problem.gang.roles.iter().map(|role| role.places.len()).sum();
    report.unplaced = count(all.saturating_sub(places.len()));
    report
}

/// The report of a gang without a place.
fn empty_report(problem: &Problem, tree: &Tree, work: Work) -> Report {
    let levels = problem.levels.as_slice().iter();
    Report {
        refusal: None,
        levels: levels.map(|level| LevelUse { key: level.key.clone(), used: 0, optimum: 0 }).collect(),
        ring_crossings: vec![0; problem.levels.len()],
        preferred_missed: None,
        unplaced: 0,
        gap: None,
        splits: tree.splits().to_vec(),
        work,
    }
}

/// Saturates: no cluster has more of anything than `u32` can count.
fn count(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}
