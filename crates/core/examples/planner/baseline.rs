//! Two other ways to place a gang, on free slots that they get for nothing. Neither is timed.

use std::collections::{BTreeMap, BTreeSet};

use muster_core::planner::plan::{Host, Plan, Problem};

use crate::cluster::{GPU, SLOTS};

/// Racks and hosts that hold a member.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Used {
    pub(crate) racks: usize,
    pub(crate) hosts: usize,
}

/// What a plan uses.
pub(crate) fn used_by(problem: &Problem, plan: &Plan) -> Used {
    let hosts: BTreeMap<_, _> =
        problem.hosts.iter().enumerate().map(|(index, host)| (&host.node.name, index)).collect();
    let places = plan.places.iter().filter_map(|place| hosts.get(&place.node).copied());
    used(problem, &places.collect::<BTreeSet<usize>>())
}

/// The tightest domain that holds the gang at every level; where none does, those with most capacity.
pub(crate) fn best_fit(problem: &Problem, members: usize) -> Used {
    let mut spines: BTreeMap<usize, BTreeMap<usize, Vec<usize>>> = BTreeMap::new();
    for (index, host) in problem.hosts.iter().enumerate() {
        let racks = spines.entry(label(host, "bench/spine")).or_default();
        racks.entry(label(host, "bench/rack")).or_default().push(index);
    }
    let host_capacity = |host: &usize| free(&problem.hosts[*host]);
    let rack_capacity = |rack: &Vec<usize>| rack.iter().map(host_capacity).sum::<usize>();
    let mut hosts = BTreeSet::new();
    let mut left = members;
    let capacities =
        |(spine, racks): (&usize, &BTreeMap<usize, Vec<usize>>)| (racks.values().map(rack_capacity).sum(), *spine);
    for (spine, part) in tightest(spines.iter().map(capacities).collect(), members) {
        let racks = &spines[&spine];
        for (rack, part) in tightest(racks.iter().map(|(rack, hosts)| (rack_capacity(hosts), *rack)).collect(), part) {
            for (host, part) in tightest(racks[&rack].iter().map(|host| (host_capacity(host), *host)).collect(), part) {
                hosts.insert(host);
                left -= part;
            }
        }
    }
    assert_eq!(left, 0, "the baseline places every member");
    used(problem, &hosts)
}

/// Hosts with most capacity, wherever they are.
pub(crate) fn greedy(problem: &Problem, members: usize) -> Used {
    let mut hosts: Vec<usize> = (0..problem.hosts.len()).collect();
    hosts.sort_by_key(|host| std::cmp::Reverse(free(&problem.hosts[*host])));
    let mut left = members;
    hosts.retain(|host| {
        let needed = left > 0;
        left = left.saturating_sub(free(&problem.hosts[*host]));
        needed
    });
    used(problem, &hosts.into_iter().collect())
}

fn used(problem: &Problem, hosts: &BTreeSet<usize>) -> Used {
    let racks: BTreeSet<usize> = hosts.iter().map(|host| label(&problem.hosts[*host], "bench/rack")).collect();
    Used { racks: racks.len(), hosts: hosts.len() }
}

/// The tightest domain that holds everything, else those with most capacity, the last one again the tightest. Shapes:
/// `open` has capacity and name of every domain, the answer name and share.
fn tightest(mut open: Vec<(usize, usize)>, members: usize) -> Vec<(usize, usize)> {
    let (mut left, mut taken) = (members, Vec::new());
    while left > 0 && !open.is_empty() {
        let fits =
            open.iter().enumerate().filter(|(_, (capacity, _))| *capacity >= left).min_by_key(|(_, domain)| **domain);
        let most = || open.iter().enumerate().max_by_key(|(_, (capacity, _))| *capacity);
        let Some(index) = fits.or_else(most).map(|(index, _)| index) else { break };
        let (capacity, domain) = open.swap_remove(index);
        let part = capacity.min(left);
        if part > 0 {
            taken.push((domain, part));
        }
        left -= part;
    }
    taken
}

/// Free slots of a host.
fn free(host: &Host) -> usize {
    usize::try_from(SLOTS - host.usage.requested.get(GPU)).unwrap_or(0)
}

/// Which domain of a level a host is in.
fn label(host: &Host, key: &str) -> usize {
    host.node.labels.get(key).and_then(|label| label.parse().ok()).unwrap_or(0)
}
