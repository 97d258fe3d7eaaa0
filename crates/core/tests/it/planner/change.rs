//! The smallest change: making it makes the gang fit, and a smaller one does not.

use std::collections::BTreeSet;
use std::sync::Arc;

use muster_core::fit::{self, Misfit};
use muster_core::model::node::TaintEffect;
use muster_core::model::pod::Toleration;
use muster_core::planner;
use muster_core::planner::plan::{Capacity, Change, Host, Policy, Problem};
use muster_core::topology::Tree;

use super::build::{self, host, levels, plan, problem};

/// What [`check`] may return.
pub(super) const KINDS: &[&str] = &[
    "change: widen",
    "change: share",
    "change: unslice",
    "change: widen slices",
    "change: capacity",
    "change: capacity in several domains",
    "change: tolerate",
    "change: tolerate several taints",
    "change: nodes uncordoned",
    "change: nodes ready",
    "change: minimum",
];

/// Makes every change on its own; returns the kinds there were.
#[track_caller]
pub(super) fn check(problem: &Problem, policy: &Policy, changes: &[Change]) -> Vec<&'static str> {
    let fits = |problem: &Problem| build::plan_with_policy(problem, policy).1.refusal.is_none();
    let mut kinds = Vec::new();
    for change in changes {
        let mut changed = problem.clone();
        let topology_requests = &mut changed.gang.topology_requests;
        kinds.push(match change {
            Change::Widen { to, level } => {
                assert_eq!(*level, to.map(|to| problem.levels.as_slice()[to].name.clone()));
                // Every narrower level still refuses.
                let required = topology_requests.required.unwrap();
                for level in to.map_or(0, |to| to + 1)..required {
                    let mut narrower = problem.clone();
                    narrower.gang.topology_requests.required = Some(level);
                    assert!(!fits(&narrower), "level {level} would do, {problem:?}");
                }
                topology_requests.required = *to;
                "change: widen"
            }
            Change::Share => {
                topology_requests.exclusive = None;
                "change: share"
            }
            Change::Unbalance => {
                topology_requests.balance = None;
                "change: unbalance"
            }
            Change::Unslice => {
                topology_requests.slices.clear();
                "change: unslice"
            }
            Change::WidenSlices { to, level } => {
                assert_eq!(*level, problem.levels.as_slice()[*to].name);
                for level in to + 1..topology_requests.slices[0].level {
                    let mut narrower = problem.clone();
                    narrower.gang.topology_requests.slices[0].level = level;
                    assert!(!fits(&narrower), "level {level} would do, {problem:?}");
                }
                topology_requests.slices[0].level = *to;
                "change: widen slices"
            }
            Change::Tolerate { taints } => {
                for some in 0..(1 << taints.len()) - 1_u32 {
                    let mut less = problem.clone();
                    let some = (0..).zip(taints).filter(|(bit, _)| some >> bit & 1 == 1).map(|(_, taint)| taint);
                    tolerate(&mut less, some);
                    assert!(!fits(&less), "not all of {taints:?} are needed, {problem:?}");
                }
                tolerate(&mut changed, taints);
                if taints.len() > 1 { "change: tolerate several taints" } else { "change: tolerate" }
            }
            Change::Unselect => {
                for role in &mut changed.gang.roles {
                    role.shape.node_selector.clear();
                    role.shape.node_affinity = None;
                }
                "change: unselect"
            }
            Change::Nodes { reason, nodes } => {
                let some = fewest_cured(problem, reason, &fits).unwrap();
                assert_eq!(some.len(), *nodes as usize, "{reason:?} {problem:?}");
                some.into_iter().for_each(|host| cure(&mut changed.hosts[host], reason));
                match reason {
                    Misfit::Unschedulable => "change: nodes uncordoned",
                    Misfit::NotReady => "change: nodes ready",
                    Misfit::Port => "change: nodes with a free port",
                    Misfit::Occupied => "change: nodes free of the kind",
                    Misfit::Taint { .. }
                    | Misfit::Held
                    | Misfit::Selector
                    | Misfit::Volume
                    | Misfit::Insufficient { .. }
                    | Misfit::Shared => {
                        panic!("no change of the planner's")
                    }
                }
            }
            Change::Minimum { role, members } => {
                let index = problem.gang.roles.iter().position(|entry| entry.name == *role).unwrap();
                let min = problem.gang.roles[index].min;
                for nearer in (members + 1..min).chain(min + 1..*members) {
                    let mut less = problem.clone();
                    less.gang.roles[index].min = nearer;
                    assert!(!fits(&less), "a minimum of {nearer} would do, {problem:?}");
                }
                changed.gang.roles[index].min = *members;
                "change: minimum"
            }
            Change::Remove { constraints } => {
                for left in constraints {
                    let mut less = problem.clone();
                    for role in &mut less.gang.roles {
                        role.shape.unsupported.retain(|constraint| constraint == left);
                    }
                    assert!(!fits(&less), "{left} could stay, {problem:?}");
                }
                for role in &mut changed.gang.roles {
                    role.shape.unsupported.retain(|constraint| !constraints.contains(constraint));
                }
                "change: remove"
            }
            Change::SameTemplate { role, like, indices: (one, other) } => {
                assert_eq!((role, like), (&problem.gang.roles[*one].name, &problem.gang.roles[*other].name));
                changed.gang.roles[*one].shape = problem.gang.roles[*other].shape.clone();
                "change: same template"
            }
            Change::SliceSize { from, to } => {
                let index = topology_requests.slices.iter().position(|slice| slice.size == *from).unwrap();
                for nearer in 1..to + from.abs_diff(*to) * 2 {
                    let mut less = problem.clone();
                    less.gang.topology_requests.slices[index].size = nearer;
                    let nearer = nearer.abs_diff(*from) < to.abs_diff(*from);
                    assert!(!nearer || !fits(&less), "a nearer size would do, {problem:?}");
                }
                topology_requests.slices[index].size = *to;
                "change: slice size"
            }
            Change::NarrowSlices { size, to, level } => {
                assert_eq!(*level, problem.levels.as_slice()[*to].name);
                let index = topology_requests.slices.iter().position(|slice| slice.size == *size).unwrap();
                for nearer in topology_requests.slices[index].level + 1..*to {
                    let mut less = problem.clone();
                    less.gang.topology_requests.slices[index].level = nearer;
                    assert!(!fits(&less), "level {nearer} would do, {problem:?}");
                }
                topology_requests.slices[index].level = *to;
                "change: narrow slices"
            }
            Change::Free { .. } | Change::Lower { .. } | Change::OwnVolumes { .. } | Change::Label { .. } => {
                panic!("no change of the planner's")
            }
            Change::Capacity { capacities } => {
                for (index, capacity) in capacities.iter().enumerate() {
                    assert!(capacity.members > 0, "{capacities:?}");
                    let mut less = problem.clone();
                    for (other, capacity) in capacities.iter().enumerate() {
                        add(&mut less, capacity, capacity.members - u32::from(other == index));
                    }
                    assert!(!fits(&less), "one less in {capacity:?} does too, {problem:?}");
                }
                capacities.iter().for_each(|capacity| add(&mut changed, capacity, capacity.members));
                if capacities.len() > 1 { "change: capacity in several domains" } else { "change: capacity" }
            }
        });
        assert!(fits(&changed), "{change:?} does not do, {problem:?}");
    }
    kinds
}

fn tolerate<'t>(problem: &mut Problem, taints: impl IntoIterator<Item = &'t Arc<str>>) {
    for taint in taints {
        let (key, effect) = taint.rsplit_once(':').unwrap();
        let (key, value) = key.split_once('=').unwrap_or((key, ""));
        let effect = match effect {
            "NoSchedule" => TaintEffect::NoSchedule,
            "NoExecute" => TaintEffect::NoExecute,
            effect => panic!("{effect} keeps nobody away"),
        };
        for role in &mut problem.gang.roles {
            let (key, value) = (key.into(), value.into());
            role.shape.tolerations.push(Toleration { key, exists: false, value, effect: Some(effect) });
        }
    }
}

/// The fewest nodes that a reason blocks and that make the gang fit once it does not: tries every set.
fn fewest_cured(problem: &Problem, reason: &Misfit, fits: &dyn Fn(&Problem) -> bool) -> Option<Vec<usize>> {
    let shape = &problem.gang.roles[0].shape;
    let blocked = problem.hosts.iter().enumerate();
    let blocked = blocked.filter(|(_, host)| fit::fits(shape, &host.node, &host.usage).as_ref() == Err(reason));
    let blocked: Vec<usize> = blocked.map(|(host, _)| host).collect();
    let sets = (1..1_u32 << blocked.len()).map(|set| {
        let some = (0..).zip(&blocked).filter(|(bit, _)| set >> bit & 1 == 1);
        some.map(|(_, host)| *host).collect::<Vec<usize>>()
    });
    let mut sets: Vec<Vec<usize>> = sets.collect();
    sets.sort_by_key(Vec::len);
    sets.into_iter().find(|set| {
        let mut cured = problem.clone();
        set.iter().for_each(|host| cure(&mut cured.hosts[*host], reason));
        fits(&cured)
    })
}

/// Takes a reason away from a host.
fn cure(host: &mut Host, reason: &Misfit) {
    let (node, usage) = (Arc::make_mut(&mut host.node), Arc::make_mut(&mut host.usage));
    match reason {
        Misfit::Unschedulable => node.unschedulable = false,
        Misfit::NotReady => node.ready = true,
        Misfit::Port => usage.ports.clear(),
        Misfit::Occupied => usage.own_shape_pods = 0,
        Misfit::Taint { .. }
        | Misfit::Held
        | Misfit::Selector
        | Misfit::Volume
        | Misfit::Insufficient { .. }
        | Misfit::Shared => panic!("{reason} is not taken away from a node"),
    }
}

/// Makes capacity for some members more: a node of exactly that size, or a larger one where the domain is a node.
fn add(problem: &mut Problem, capacity: &Capacity, members: u32) {
    let tree = Tree::build(&problem.levels, problem.hosts.iter().map(|host| &*host.node));
    let levels = problem.levels.as_slice();
    let level = capacity.level.as_ref().and_then(|name| levels.iter().position(|level| level.name == *name));
    let named = level.filter(|_| !capacity.domain.is_empty()).map(|level| {
        let mut domains = 0..tree.level(level).len();
        let domain =
            domains.find(|domain| tree.satisfies(level, *domain) && tree.path(level, *domain) == *capacity.domain);
        tree.hosts()[tree.level(level)[domain.unwrap()].hosts.start]
    });
    let role = capacity.role.as_ref().and_then(|name| problem.gang.roles.iter().find(|role| role.name == *name));
    let shape = role.unwrap_or(&problem.gang.roles[0]).shape.clone();
    if let (Some(index), true) = (named, level == Some(levels.len() - 1)) {
        let host = &mut problem.hosts[index];
        let node = Arc::make_mut(&mut host.node);
        let free = fit::slots(&shape, node, &host.usage).unwrap_or(0);
        (node.ready, node.unschedulable) = (true, false);
        node.taints.clear();
        for (resource, amount) in shape.requests.iter() {
            let slots = i64::from(free) + i64::from(members);
            node.allocatable.set(resource.clone(), host.usage.requested.get(resource.as_str()) + slots * amount);
        }
        return;
    }
    let labels: String = levels[..levels.len() - 1].iter().map(|level| format!("{}=new ", level.name)).collect();
    let mut new = host("new", &labels, 0, 0);
    let node = Arc::make_mut(&mut new.node);
    if let Some(index) = named {
        node.labels.clone_from(&problem.hosts[index].node.labels);
    }
    node.labels.extend(shape.node_selector.clone());
    let asked = shape.node_affinity.iter().flatten().take(1).flat_map(|term| &term.expressions);
    node.labels.extend(asked.map(|asked| (asked.key.clone(), asked.values[0].clone())));
    for (resource, amount) in shape.requests.iter() {
        node.allocatable.set(resource.clone(), i64::from(members) * amount);
    }
    let several = shape.one_per_node || !shape.ports.is_empty();
    for number in 0..if several { members } else { members.min(1) } {
        let mut node = new.clone();
        Arc::make_mut(&mut node.node).name = format!("new-{}-{number}", problem.hosts.len()).into();
        problem.hosts.push(node);
    }
}

#[test]
fn the_score_compares_with_the_snapshot_and_with_the_empty_cluster() {
    let hosts =
        vec![host("n1", "zone=a rack=1", 4, 2), host("n2", "zone=a rack=2", 4, 2), host("n3", "zone=a rack=3", 4, 4)];
    let gang = problem(levels(&["zone", "rack"]), hosts, 4, Some(0));
    let (placed, report) = plan(&gang);
    let score = planner::score(&gang, &Policy::default(), &placed, &report).unwrap();
    let shares: Vec<(u32, u32, u32)> = score.iter().map(|level| (level.used, level.now, level.empty)).collect();
    assert_eq!(shares, [(1, 1, 1), (2, 2, 1), (2, 2, 1)]);
    let refused = problem(gang.levels, gang.hosts, 5, Some(0));
    let (placed, report) = plan(&refused);
    assert_eq!(planner::score(&refused, &Policy::default(), &placed, &report), None);
}

#[test]
fn every_kind_of_change_has_its_own_words() {
    let texts: BTreeSet<String> = [0_u8, 1, 2, 3].into_iter().map(text).collect();
    let expected = [
        "needs capacity for 4 members in one rack; the best, a/1, has capacity for 2: 1 node in a domain that cannot be the gang's alone; would fit \
         with others in its domain",
        "needs capacity for 4 members in one rack; the best, a/1, has capacity for 2; would fit if only one zone were required: a has capacity for 5, or \
         with capacity for 2 more in rack a/1",
        "needs capacity for 4 members in one zone; the best, a, has capacity for 2 in whole slices of 2; would fit with capacity for 1 more in \
         rack a/1, or with slices inside one zone each, or with no slices",
        "needs capacity for 7 members in one zone; the best, a, has capacity for 5; would fit with capacity for 2 more in zone a",
    ];
    assert_eq!(texts.iter().map(String::as_str).collect::<Vec<_>>(), expected);
}

fn text(kind: u8) -> String {
    let hosts = vec![host("n1", "zone=a rack=1", 2, 0), host("n2", "zone=a rack=2", 3, 0)];
    let mut gang = problem(levels(&["zone", "rack"]), hosts, 4, Some(1));
    match kind {
        0 => {
            gang.hosts[1] = host("n2", "zone=a rack=2", 9, 1);
            gang.gang.topology_requests.exclusive = Some(1);
        }
        1 => {
            gang.hosts = vec![
                host("n1", "zone=a rack=1", 2, 0),
                host("n2", "zone=a rack=2", 2, 0),
                host("n3", "zone=a rack=3", 1, 0),
            ]
        }
        2 => {
            gang.gang.topology_requests.required = Some(0);
            gang.hosts = vec![host("n1", "zone=a rack=1", 3, 0), host("n2", "zone=a rack=2", 1, 0)];
            gang.gang.topology_requests.slices =
                vec![muster_core::planner::plan::SliceTopologyRequest { size: 2, level: 1 }];
        }
        _ => {
            gang = problem(gang.levels, gang.hosts, 7, Some(0));
        }
    }
    plan(&gang).1.refusal.unwrap().to_string()
}
