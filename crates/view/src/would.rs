//! Whether so many nodes of a type are idle for one gang now: the question of the form on the page.

use std::collections::{BTreeMap, BTreeSet};

use crate::overview::{NodeEntry, NodeState, Overview};

/// Where the form asks.
pub const PATH: &str = "/fit";
/// Most nodes that are asked for.
const MOST: u32 = 100_000;

/// What is asked: one member on each of `nodes` idle nodes of a type, all in one domain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Asked {
    /// Nodes.
    pub nodes: u32,
    /// Instance type.
    pub instance_type: String,
}

/// Where there is enough.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Best {
    /// Name of the level; `None`: the cluster, where no level says more.
    pub level: Option<String>,
    /// Labels of the domain from the top; empty for the cluster.
    pub path: String,
    /// Idle nodes of the type in it.
    pub idle: u32,
}

/// What is answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fits {
    /// In the smallest domain that has enough.
    Now(Best),
    /// In none. The fullest domain of each level, from the cluster down.
    Not(Vec<Best>),
}

/// Reads the query of the form.
///
/// Errors: the field and what is wrong with it.
pub fn read(query: &str) -> Result<Asked, String> {
    let fields: BTreeMap<&str, &str> = query.split('&').filter_map(|field| field.split_once('=')).collect();
    let of = |name: &str| fields.get(name).copied().unwrap_or("");
    let nodes = of("nodes");
    let nodes = nodes
        .parse()
        .ok()
        .filter(|nodes| (1..=MOST).contains(nodes))
        .ok_or_else(|| format!("nodes: \"{nodes}\" is no number from 1 to {MOST}"))?;
    let instance_type = of("type");
    if !is_name(instance_type) {
        return Err(format!("type: \"{instance_type}\" is no instance type such as p5.48xlarge"));
    }
    Ok(Asked { nodes, instance_type: instance_type.to_owned() })
}

/// Whether a text may name an instance type: nothing in it has to be escaped anywhere.
fn is_name(text: &str) -> bool {
    let is_part = |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '.' | '-');
    (1..=63).contains(&text.len()) && text.chars().all(is_part)
}

/// Instance types of nodes with accelerators that can be asked for, in order.
#[must_use]
pub fn types(overview: &Overview) -> BTreeSet<&str> {
    let with = overview.nodes.iter().filter(|node| node.accelerators.total > 0 && is_name(&node.instance_type));
    with.map(|node| node.instance_type.as_str()).collect()
}

/// Counts idle nodes, as the map shows them, domain by domain.
#[must_use]
pub fn answer(overview: &Overview, asked: &Asked) -> Fits {
    let is_idle = |node: &&NodeEntry| node.state == NodeState::Idle && node.instance_type == asked.instance_type;
    let mut idle = vec![0_u32; overview.domains.len()];
    let mut all = 0;
    for node in overview.nodes.iter().filter(is_idle) {
        all += 1;
        let mut above = node.domain;
        while let Some(index) = above.filter(|index| *index < idle.len()) {
            idle[index] += 1;
            // A parent stands before its children.
            above = overview.domains[index].parent.filter(|parent| *parent < index);
        }
    }
    let mut best = vec![Best { level: None, path: String::new(), idle: all }];
    for (number, level) in overview.levels.iter().enumerate() {
        // Nodes without the label of a level stand in no domain of it.
        let of_level = (0..overview.domains.len())
            .filter(|index| overview.domains[*index].level == number && overview.domains[*index].name.is_some());
        // Of equal ones the first in topology order.
        if let Some(index) = of_level.min_by_key(|index| std::cmp::Reverse(idle[*index])) {
            let path = overview.domains[index].path.clone();
            best.push(Best { level: Some(level.name.clone()), path, idle: idle[index] });
        }
    }
    match best.iter().rev().find(|best| best.idle >= asked.nodes) {
        Some(enough) => Fits::Now(enough.clone()),
        None => Fits::Not(best),
    }
}

/// The answer in a sentence.
#[must_use]
pub fn sentence(asked: &Asked, fits: &Fits) -> String {
    let Asked { nodes, instance_type } = asked;
    let what =
        if *nodes == 1 { format!("1 node of {instance_type}") } else { format!("{nodes} nodes of {instance_type}") };
    let verb = if *nodes == 1 { "fits" } else { "fit" };
    match fits {
        Fits::Now(Best { level: Some(level), path, idle }) => {
            format!("Yes: {what} {verb} now in one {level}, {path}, which has {idle} idle.")
        }
        Fits::Now(Best { idle, .. }) => {
            format!("{what} {verb} now, but in no single domain: {idle} are idle in the cluster.")
        }
        Fits::Not(best) => {
            let parts = best.iter().map(|best| match &best.level {
                None => format!("{} idle in the cluster", best.idle),
                Some(level) if best.idle == 0 => format!("none in any {level}"),
                Some(level) => format!("{} in the best {level}, {}", best.idle, best.path),
            });
            format!("No: {what}: {}.", parts.collect::<Vec<_>>().join("; "))
        }
    }
}
