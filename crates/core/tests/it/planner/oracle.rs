//! Exhaustive enumeration, written from the definition of the objective and sharing no code with the planner.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};

use muster_core::model::pod::Shape;
use muster_core::planner::plan::{Elastic, Placement, Policy, Problem};

use super::build::GPU;

/// What the oracle says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    /// New members per node, the vector, and how many placements were compared.
    Placed { counts: BTreeMap<String, u32>, vector: Vec<u64> },
    /// A bound member is out of bounds.
    BoundOutside { node: String },
    /// Members missing, and how many the best domain of the required level (or everything) takes.
    DoesNotFit { needed: u32, best: u32 },
}

/// One node, with its whole path: one text per level, unique to the domain.
pub(super) struct Leaf {
    pub(super) name: String,
    pub(super) path: Vec<String>,
    pub(super) satisfies: Vec<bool>,
    pub(super) slots: u32,
    /// Accelerators free there, if a member fits.
    pub(super) free: u32,
    pub(super) bound: u32,
    pub(super) whole: bool,
    /// Somebody else holds accelerators there.
    others: bool,
}

/// What is known before any placement is tried.
pub(super) struct Frame {
    /// Depth-first.
    pub(super) leaves: Vec<Leaf>,
    /// New members needed, and at most.
    pub(super) must: u32,
    pub(super) may: u32,
    /// The level whose domain all share.
    pub(super) required: Option<usize>,
    /// Its domain, where bound members decide it.
    pub(super) fixed: Option<String>,
    /// Per place the leaf it is bound to.
    pub(super) sequence: Vec<Option<usize>>,
}

/// Reads a problem.
///
/// Errors: a bound member out of bounds.
pub(super) fn frame(problem: &Problem) -> Result<Frame, Answer> {
    let mut leaves = leaves(problem);
    leaves.sort_by(|a, b| order(&a.path, &b.path));
    let topology_requests = &problem.gang.topology_requests;
    let alone =
        topology_requests.exclusive.filter(|level| topology_requests.slices.iter().all(|slice| slice.level != *level));
    let required = topology_requests.required.max(alone);

    let mut must = 0;
    let mut may = 0;
    let mut bound_nodes = Vec::new();
    for role in &problem.gang.roles {
        let bound: Vec<_> = role.places.iter().filter_map(|place| place.bound.as_ref()).collect();
        let free = role.places.len() - bound.len();
        must += (role.min as usize).saturating_sub(bound.len());
        may += free;
        bound_nodes.extend(bound.into_iter().map(|node| node.as_str().to_owned()));
    }
    let (must, may) = (u32::try_from(must).unwrap(), u32::try_from(may).unwrap());

    let mut fixed: Option<String> = None;
    if let Some(node) = bound_nodes.iter().find(|node| leaves.iter().all(|leaf| leaf.name != **node)) {
        return Err(Answer::BoundOutside { node: node.clone() });
    }
    for node in bound_nodes {
        let leaf = leaves.iter().find(|leaf| leaf.name == node).unwrap();
        let Some(level) = required else { continue };
        if problem.gang.topology_requests.required.is_some_and(|level| !leaf.satisfies[level]) {
            return Err(Answer::BoundOutside { node: "*".to_owned() });
        }
        if !leaf.satisfies[level] || fixed.get_or_insert(leaf.path[level].clone()) != &leaf.path[level] {
            return Err(Answer::BoundOutside { node });
        }
    }
    let sequence: Vec<Option<usize>> = problem
        .gang
        .roles
        .iter()
        .flat_map(|role| &role.places)
        .map(|place| {
            place.bound.as_ref().map(|node| leaves.iter().position(|leaf| leaf.name == node.as_str()).unwrap())
        })
        .collect();
    if bound_apart(problem, &leaves, &sequence) {
        return Err(Answer::BoundOutside { node: "*".to_owned() });
    }
    leave_unlabelled(problem, &mut leaves);
    if let Some(level) = topology_requests.exclusive {
        let shared: Vec<String> =
            leaves.iter().filter(|leaf| leaf.others).map(|leaf| leaf.path[level].clone()).collect();
        for leaf in leaves.iter_mut().filter(|leaf| shared.contains(&leaf.path[level]) || !leaf.satisfies[level]) {
            (leaf.slots, leaf.free) = (0, 0);
        }
    }
    Ok(Frame { leaves, must, may, required, fixed, sequence })
}

pub(super) fn solve(problem: &Problem, policy: &Policy) -> Answer {
    let Frame { leaves, must, may, required, fixed, sequence } = match frame(problem) {
        Ok(frame) => frame,
        Err(answer) => return answer,
    };
    let domains: Vec<Option<String>> = match required {
        None => vec![None],
        Some(level) => {
            let named = leaves.iter().filter(|leaf| leaf.satisfies[level]).map(|leaf| leaf.path[level].clone());
            let named: BTreeSet<String> =
                named.filter(|path| fixed.as_ref().is_none_or(|fixed| fixed == path)).collect();
            named.into_iter().map(Some).collect()
        }
    };

    let mut best: Option<(Vec<u64>, Vec<u32>)> = None;
    let mut most = 0;
    if domains.is_empty() && must == 0 {
        let none = vec![0; leaves.len()];
        best = Some((vector(&leaves, &none, may, policy, problem), none));
    }
    for domain in domains {
        let open: Vec<u32> = leaves
            .iter()
            .map(|leaf| match (&domain, required) {
                (Some(domain), Some(level)) if leaf.path[level] != *domain => 0,
                _ => leaf.slots,
            })
            .collect();
        most = most.max(open.iter().sum());
        let mut counts = vec![0; leaves.len()];
        loop {
            let total: u32 = counts.iter().sum();
            if must <= total && total <= may {
                let vector = vector(&leaves, &counts, may - total, policy, problem);
                let better = best.as_ref().is_none_or(|(least, chosen)| {
                    vector.cmp(least).then_with(|| chosen.cmp(&counts)) == Ordering::Less
                });
                if better && cuts(problem, &leaves, &sequence, &counts) {
                    best = Some((vector, counts.clone()));
                }
            }
            // Counts up as an odometer does.
            let Some(wheel) = (0..counts.len()).find(|wheel| counts[*wheel] < open[*wheel]) else { break };
            counts[..wheel].fill(0);
            counts[wheel] += 1;
        }
    }
    match best {
        None => Answer::DoesNotFit { needed: must, best: most },
        Some((vector, counts)) => {
            let counts = leaves.iter().zip(counts).filter(|(_, count)| *count > 0);
            Answer::Placed { counts: counts.map(|(leaf, count)| (leaf.name.clone(), count)).collect(), vector }
        }
    }
}

/// The vector of some given counts of new members, by node name.
pub(super) fn vector_of(problem: &Problem, policy: &Policy, counts: &BTreeMap<String, u32>) -> Vec<u64> {
    let mut leaves = leaves(problem);
    leave_unlabelled(problem, &mut leaves);
    if let Some(level) = problem.gang.topology_requests.exclusive {
        let shared: Vec<String> =
            leaves.iter().filter(|leaf| leaf.others).map(|leaf| leaf.path[level].clone()).collect();
        for leaf in leaves.iter_mut().filter(|leaf| shared.contains(&leaf.path[level]) || !leaf.satisfies[level]) {
            (leaf.slots, leaf.free) = (0, 0);
        }
    }
    let counts: Vec<u32> = leaves.iter().map(|leaf| counts.get(&leaf.name).copied().unwrap_or(0)).collect();
    let free = problem.gang.roles.iter().flat_map(|role| &role.places).filter(|place| place.bound.is_none()).count();
    let unplaced = u32::try_from(free).unwrap() - counts.iter().sum::<u32>();
    vector(&leaves, &counts, unplaced, policy, problem)
}

/// Names of the nodes in depth-first natural order.
pub(super) fn depth_first(problem: &Problem) -> Vec<String> {
    let mut leaves = leaves(problem);
    leaves.sort_by(|a, b| order(&a.path, &b.path));
    leaves.into_iter().map(|leaf| leaf.name).collect()
}

/// With an exclusive domain the required level must be satisfied beside the one that decides the domain.
fn leave_unlabelled(problem: &Problem, leaves: &mut [Leaf]) {
    let topology_requests = &problem.gang.topology_requests;
    let alone = topology_requests
        .exclusive
        .is_some_and(|level| topology_requests.slices.iter().all(|slice| slice.level != level));
    if let Some(required) = topology_requests.required.filter(|_| alone) {
        leaves.iter_mut().filter(|leaf| !leaf.satisfies[required]).for_each(|leaf| (leaf.slots, leaf.free) = (0, 0));
    }
}

/// Whether the bound members alone break a slice or an exclusive domain.
fn bound_apart(problem: &Problem, leaves: &[Leaf], sequence: &[Option<usize>]) -> bool {
    let topology_requests = &problem.gang.topology_requests;
    let exclusive = topology_requests.exclusive;
    let apart = topology_requests.slices.iter().any(|topology_request| {
        let mut homes = Vec::new();
        for slice in sequence.chunks(topology_request.size as usize) {
            let bound: Vec<&Leaf> = slice.iter().flatten().map(|leaf| &leaves[*leaf]).collect();
            let paths: BTreeSet<&str> = bound.iter().map(|leaf| leaf.path[topology_request.level].as_str()).collect();
            if paths.len() > 1 || bound.iter().any(|leaf| !leaf.satisfies[topology_request.level]) {
                return true;
            }
            homes.extend(paths);
        }
        let different: BTreeSet<&&str> = homes.iter().collect();
        let first = topology_requests.slices.iter().find(|slice| Some(slice.level) == exclusive);
        first == Some(topology_request) && different.len() < homes.len()
    });
    let shared = exclusive.is_some_and(|level| {
        sequence.iter().flatten().any(|bound| {
            !leaves[*bound].satisfies[level]
                || leaves.iter().any(|leaf| leaf.others && leaf.path[level] == leaves[*bound].path[level])
        })
    });
    apart || shared
}

/// Whether some ranks with these counts form whole slices: tries every domain for every finest slice.
fn cuts(problem: &Problem, leaves: &[Leaf], sequence: &[Option<usize>], counts: &[u32]) -> bool {
    let topology_requests = &problem.gang.topology_requests;
    let (Some(coarse), Some(fine)) = (topology_requests.slices.first(), topology_requests.slices.last()) else {
        return true;
    };
    // Slices with a bound member are completed; of the others the first few are placed.
    let mut left: u32 = counts.iter().sum();
    let mut placed = vec![false; sequence.len()];
    let size = coarse.size as usize;
    for bound in [true, false] {
        for start in (0..sequence.len()).step_by(size) {
            let slice = start..start + size;
            let open = u32::try_from(sequence[slice.clone()].iter().filter(|place| place.is_none()).count()).unwrap();
            if (open as usize != size) != bound || (!bound && left == 0) {
                continue;
            }
            if open > left {
                return false;
            }
            left -= open;
            placed[slice].fill(true);
        }
    }
    let units: Vec<usize> = (0..sequence.len()).step_by(fine.size as usize).filter(|start| placed[*start]).collect();
    let mut capacity: BTreeMap<&str, u32> = BTreeMap::new();
    for (leaf, count) in leaves.iter().zip(counts) {
        *capacity.entry(leaf.path[fine.level].as_str()).or_default() += count;
    }
    left == 0 && cut(problem, leaves, sequence, &units, &mut Vec::new(), &mut capacity)
}

fn cut<'l>(
    problem: &Problem,
    leaves: &'l [Leaf],
    sequence: &[Option<usize>],
    units: &[usize],
    homes: &mut Vec<&'l Leaf>,
    capacity: &mut BTreeMap<&'l str, u32>,
) -> bool {
    let topology_requests = &problem.gang.topology_requests;
    let fine = topology_requests.slices.last().unwrap();
    let Some(&start) = units.get(homes.len()) else { return capacity.values().all(|capacity| *capacity == 0) };
    let open = sequence[start..start + fine.size as usize].iter().filter(|place| place.is_none()).count();
    let open = u32::try_from(open).unwrap();
    let mut tried: Vec<&str> = Vec::new();
    for leaf in leaves {
        let path = leaf.path[fine.level].as_str();
        if tried.contains(&path) {
            continue;
        }
        tried.push(path);
        // Every slice around it, of every size: bound members and earlier units of it stand in the same domain.
        let fits = topology_requests.slices.iter().all(|topology_request| {
            let size = topology_request.size as usize;
            let slice = start / size * size..start / size * size + size;
            let here = |other: &Leaf| other.path[topology_request.level] == leaf.path[topology_request.level];
            let bound = sequence[slice.clone()].iter().flatten().all(|bound| here(&leaves[*bound]));
            let before = units.iter().zip(&*homes).filter(|(unit, _)| slice.contains(unit)).all(|(_, home)| here(home));
            let first = topology_requests.slices.iter().find(|slice| Some(slice.level) == topology_requests.exclusive);
            let others = units.iter().zip(&*homes).filter(|(unit, _)| !slice.contains(unit));
            let alone = first != Some(topology_request)
                || (others.into_iter().all(|(_, home)| !here(home))
                    && (0..sequence.len())
                        .filter(|place| !slice.contains(place))
                        .filter_map(|place| sequence[place])
                        .all(|bound| !here(&leaves[bound])));
            leaf.satisfies[topology_request.level] && bound && before && alone
        });
        if !fits || capacity[path] < open {
            continue;
        }
        *capacity.get_mut(path).unwrap() -= open;
        homes.push(leaf);
        let done = cut(problem, leaves, sequence, units, homes, capacity);
        homes.pop();
        *capacity.get_mut(path).unwrap() += open;
        if done {
            return true;
        }
    }
    false
}

fn vector(leaves: &[Leaf], counts: &[u32], unplaced: u32, policy: &Policy, problem: &Problem) -> Vec<u64> {
    let (balance, each) = (problem.gang.topology_requests.balance, u64::try_from(each(problem)).unwrap());
    let mut used = Vec::new();
    let mut broken = Vec::new();
    let mut left = Vec::new();
    for level in 0..leaves.first().map_or(0, |leaf| leaf.path.len()) {
        let mut done: Vec<&str> = Vec::new();
        let (mut level_used, mut level_broken, mut level_left) = (0, 0, 0);
        for leaf in leaves {
            let path = leaf.path[level].as_str();
            if done.contains(&path) {
                continue;
            }
            done.push(path);
            let inside = || leaves.iter().zip(counts).filter(|(leaf, _)| leaf.path[level] == path);
            let free: u64 = inside().map(|(leaf, _)| u64::from(leaf.free)).sum();
            let new: u64 = inside().map(|(_, count)| u64::from(*count)).sum();
            let left = free - new * each;
            let bound = inside().any(|(leaf, _)| leaf.bound > 0);
            let whole = inside().all(|(leaf, _)| leaf.whole);
            if new > 0 || bound {
                level_used += 1;
                level_left += left;
            }
            if whole && new > 0 && left > 0 {
                level_broken += 1;
            }
        }
        used.push(level_used);
        if balance == Some(level) {
            let mut held: BTreeMap<&str, u64> = BTreeMap::new();
            for (leaf, count) in leaves.iter().zip(counts) {
                *held.entry(&leaf.path[level]).or_default() += u64::from(leaf.bound + count);
            }
            held.retain(|_, held| *held > 0);
            let most = held.values().max().copied().unwrap_or(0);
            used.push(most - held.values().min().copied().unwrap_or(0));
        }
        broken.push(level_broken);
        left.push(level_left);
    }
    let unplaced = vec![u64::from(unplaced)];
    match (policy.placement, policy.elastic) {
        (Placement::Locality, Elastic::Spread) => [unplaced, used, broken, left].concat(),
        (Placement::Locality, Elastic::Inside) => [used, unplaced, broken, left].concat(),
        (Placement::Packing, Elastic::Spread) => [unplaced, broken, left, used].concat(),
        (Placement::Packing, Elastic::Inside) => [broken, left, used, unplaced].concat(),
    }
}

/// Accelerators that a member takes.
fn each(problem: &Problem) -> i64 {
    problem.gang.roles.first().map_or(1, |role| role.shape.requests.get(GPU).max(1))
}

pub(super) fn leaves(problem: &Problem) -> Vec<Leaf> {
    let bound: Vec<&str> = problem
        .gang
        .roles
        .iter()
        .flat_map(|role| &role.places)
        .filter_map(|place| place.bound.as_ref().map(|node| node.as_str()))
        .collect();
    let levels = problem.levels.as_slice();
    let hostname = levels.len() - 1;
    let first_network = levels[..hostname].iter().position(|level| &*level.name == "zone").map_or(0, |zone| zone + 1);
    let each = each(problem);
    let leaf = |host: &muster_core::planner::plan::Host| {
        let name = host.node.name.as_str().to_owned();
        let label = |level: usize| host.node.labels.get(&levels[level].key).map(|value| value.to_string());
        let lonely = (first_network..hostname).all(|level| label(level).is_none());
        let mut path: Vec<String> = Vec::new();
        let mut satisfies = Vec::new();
        for level in 0..=hostname {
            // `=` sorts before `~`, and both are no part of a label.
            let step = if level == hostname {
                satisfies.push(true);
                format!("={name}")
            } else if level >= first_network && lonely {
                satisfies.push(false);
                format!("~~{name}")
            } else if let Some(value) = label(level) {
                satisfies.push(true);
                format!("={value}")
            } else {
                satisfies.push(level + 1 == hostname && level >= first_network);
                "~".to_owned()
            };
            let above = path.last().cloned().unwrap_or_default();
            path.push(format!("{above}/{step}"));
        }
        let gpus = host.node.allocatable.get(GPU) - host.usage.requested.get(GPU);
        let open = host.node.ready && !host.node.unschedulable && host.node.taints.is_empty();
        let fits = open && gpus >= each;
        let bound = i64::try_from(bound.iter().filter(|node| **node == name).count()).unwrap();
        Leaf {
            bound: u32::try_from(bound).unwrap(),
            slots: if fits { u32::try_from(gpus / each).unwrap() } else { 0 },
            free: if fits { u32::try_from(gpus).unwrap() } else { 0 },
            whole: host.usage.requested.get(GPU) == 0,
            others: host.usage.requested.get(GPU) > bound * each,
            name,
            path,
            satisfies,
        }
    };
    problem.hosts.iter().map(leaf).collect()
}

/// What is free on a host of which a shape takes some, and what one member takes of it: accelerators, or for a shape without
/// any quarters of a member, by the scarcest resource.
pub(super) fn free(problem: &Problem, shape: &Shape, name: &str, slots: u64) -> (u64, u64) {
    let host = problem.hosts.iter().find(|host| host.node.name.as_str() == name).unwrap();
    let free = |resource: &str| {
        u64::try_from((host.node.allocatable.get(resource) - host.usage.requested.get(resource)).max(0)).unwrap()
    };
    let gpus = u64::try_from(shape.requests.get(GPU)).unwrap();
    if gpus > 0 {
        return (if slots > 0 { free(GPU) } else { 0 }, gpus);
    }
    let quarters = shape.requests.iter().map(|(name, amount)| {
        let amount = u64::try_from(amount).unwrap();
        (4 * free(name.as_str())).div_ceil(amount)
    });
    (if slots > 0 { quarters.min().unwrap() } else { 0 }, 4)
}

/// Orders whole paths step by step, numbers as numbers.
pub(super) fn order(left: &[String], right: &[String]) -> Ordering {
    for (left, right) in left.iter().zip(right) {
        let (left, right) = (tokens(left), tokens(right));
        if left != right {
            return left.cmp(&right);
        }
    }
    Ordering::Equal
}

#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Token {
    Number(u64),
    Letter(char),
}

/// Names in these tests have numbers without leading zeros, and never a number where another has a letter.
fn tokens(text: &str) -> Vec<Token> {
    let mut tokens = Vec::new();
    for letter in text.chars() {
        match (letter.to_digit(10), tokens.last_mut()) {
            (Some(digit), Some(Token::Number(number))) => *number = *number * 10 + u64::from(digit),
            (Some(digit), _) => tokens.push(Token::Number(u64::from(digit))),
            (None, _) => tokens.push(Token::Letter(letter)),
        }
    }
    tokens
}
