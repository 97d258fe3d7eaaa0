//! Volumes that several pods use: a node attaches each once. Those of one pod alone are among its requests, as any amount.

use std::collections::{BTreeMap, BTreeSet};

use super::problem::{Class, Problem};
use crate::fit;
use crate::model::gang::Pod;
use crate::model::names::{ObjectKey, ResourceName};

/// How a claim is used.
struct Use {
    pods: u32,
    /// Its volume is attached to a node that exists.
    attached: bool,
}

/// Takes the volumes that several of the pods use, or that are attached to a node already, out of what each requests, and counts
/// those of one pod alone there. Where no node has a limit nothing is counted.
pub(super) fn share(problem: &Problem, pods: &[&Pod], ladders: &mut [Vec<Class>]) {
    let mut uses: BTreeMap<ObjectKey, Use> = BTreeMap::new();
    let attached: BTreeSet<&ObjectKey> = problem.attached.values().flatten().collect();
    for one in pods.iter().flat_map(|pod| pod.attachments()) {
        let attached = attached.contains(&one.claim);
        uses.entry(one.claim).or_insert(Use { pods: 0, attached }).pods += 1;
    }
    if uses.is_empty() {
        return;
    }
    let mut limited: BTreeMap<&ResourceName, bool> = BTreeMap::new();
    for (pod, ladder) in pods.iter().zip(ladders) {
        for one in pod.attachments() {
            let alone = uses.get(&one.claim).is_some_and(|of| of.pods == 1 && !of.attached);
            let limited = *limited.entry(one.resource).or_insert_with(|| is_limited(problem, one.resource));
            for class in ladder.iter_mut() {
                let requests = &mut class.shape.requests;
                let now = requests.get(one.resource.as_str());
                match (alone, one.requested) {
                    (true, false) if limited => requests.set(one.resource.clone(), now.saturating_add(1)),
                    (false, true) => requests.set(one.resource.clone(), now.saturating_sub(1)),
                    (true | false, _) => {}
                }
                if !alone && limited {
                    class.shares.insert(one.claim.clone(), one.resource.clone());
                }
            }
        }
    }
}

/// Whether some node, there or to come, takes only so many volumes of a driver.
fn is_limited(problem: &Problem, resource: &ResourceName) -> bool {
    let mut nodes = problem.nodes.iter().map(|one| &one.node).chain(problem.offers.iter().map(|offer| &offer.node));
    nodes.any(|node| !fit::is_unlimited(&node.allocatable, resource.as_str()))
}
