//! Exhaustive enumeration, written from the definition of the objective and sharing no code with the planner.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};

use muster_core::plan::{Elastic, Placement, Policy, Problem};

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
struct Leaf {
    name: String,
    path: Vec<String>,
    satisfies: Vec<bool>,
    slots: u32,
    bound: u32,
    whole: bool,
}

pub(super) fn solve(problem: &Problem, policy: &Policy) -> Answer {
    let mut leaves = leaves(problem);
    leaves.sort_by(|a, b| order(&a.path, &b.path));
    let required = problem.gang.wishes.required;

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
        return Answer::BoundOutside { node: node.clone() };
    }
    for node in bound_nodes {
        let leaf = leaves.iter().find(|leaf| leaf.name == node).unwrap();
        let Some(level) = required else { continue };
        if !leaf.satisfies[level] || fixed.get_or_insert(leaf.path[level].clone()) != &leaf.path[level] {
            return Answer::BoundOutside { node };
        }
    }
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
        best = Some((vector(&leaves, &none, may, policy), none));
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
                let vector = vector(&leaves, &counts, may - total, policy);
                let better = best.as_ref().is_none_or(|(least, chosen)| {
                    vector.cmp(least).then_with(|| chosen.cmp(&counts)) == Ordering::Less
                });
                if better {
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
    let leaves = leaves(problem);
    let counts: Vec<u32> = leaves.iter().map(|leaf| counts.get(&leaf.name).copied().unwrap_or(0)).collect();
    let free = problem.gang.roles.iter().flat_map(|role| &role.places).filter(|place| place.bound.is_none()).count();
    vector(&leaves, &counts, u32::try_from(free).unwrap() - counts.iter().sum::<u32>(), policy)
}

/// Names of the nodes in depth-first natural order.
pub(super) fn depth_first(problem: &Problem) -> Vec<String> {
    let mut leaves = leaves(problem);
    leaves.sort_by(|a, b| order(&a.path, &b.path));
    leaves.into_iter().map(|leaf| leaf.name).collect()
}

fn vector(leaves: &[Leaf], counts: &[u32], unplaced: u32, policy: &Policy) -> Vec<u64> {
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
            let slots: u64 = inside().map(|(leaf, _)| u64::from(leaf.slots)).sum();
            let new: u64 = inside().map(|(_, count)| u64::from(*count)).sum();
            let bound = inside().any(|(leaf, _)| leaf.bound > 0);
            let whole = inside().all(|(leaf, _)| leaf.whole);
            if new > 0 || bound {
                level_used += 1;
                level_left += slots - new;
            }
            if whole && new > 0 && new < slots {
                level_broken += 1;
            }
        }
        used.push(level_used);
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

fn leaves(problem: &Problem) -> Vec<Leaf> {
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
    let leaf = |host: &muster_core::plan::Host| {
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
        let fits = host.node.ready && gpus > 0;
        Leaf {
            bound: u32::try_from(bound.iter().filter(|node| **node == name).count()).unwrap(),
            slots: if fits { u32::try_from(gpus).unwrap() } else { 0 },
            whole: host.usage.requested.get(GPU) == 0,
            name,
            path,
            satisfies,
        }
    };
    problem.hosts.iter().map(leaf).collect()
}

/// Orders whole paths step by step, numbers as numbers.
fn order(left: &[String], right: &[String]) -> Ordering {
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
