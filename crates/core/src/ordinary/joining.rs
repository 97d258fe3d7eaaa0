//! What is on its way: nodes of batches for pods of no gang, and the pods they were planned for.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};

use super::class::{Parts, digest_of, parts};
use super::waiting::Waiting;
use crate::fit;
use crate::model::attached::Attached;
use crate::model::batch::{Batch, BatchMember, BatchPhase, MemberState, Owner};
use crate::model::class::is_readable;
use crate::model::gang::Pod;
use crate::model::node::{Node, Usage};
use crate::model::pod::Shape;
use crate::model::resources::Resources;
use crate::model::snapshot::{Awaiting, Snapshot};
use crate::packing::{Existing, Offer};

/// After its last node has registered, the pods of a batch have so long to be bound; then what is left of its nodes is for
/// everybody.
const BIND_WITHIN: SignedDuration = SignedDuration::from_mins(2);

/// What a pool offers, and whether it can be had now.
#[derive(Clone, Debug)]
pub struct Offered {
    /// The offer; its pool is an index into those of the round.
    pub offer: Offer,
    /// Name of its pool.
    pub pool_name: Arc<str>,
    /// Whether nothing is known against it: no missing capacity, no refusal.
    pub available: bool,
}

/// Now, by the provisioner's clock and in real time.
#[derive(Clone, Copy, Debug)]
pub(super) struct Now {
    pub(super) clock: Timestamp,
    pub(super) real: Timestamp,
}

/// A batch whose pods may still come to its nodes.
pub(super) struct Joining {
    batch: String,
    /// Name of its pool.
    pub(super) pool: String,
    /// The classes that it is for.
    pub(super) planned: BTreeSet<String>,
    /// Places that nobody has taken yet, by class.
    pub(super) places: BTreeMap<String, u32>,
    /// Places of classes that another version wrote down: nobody can say which pods they are for, so any pod may have them.
    pub(super) unread: u32,
    /// When the batch was created: who came later is not who it was planned for.
    pub(super) created: Option<Timestamp>,
    /// What its nodes are. `None`: of an offer that is gone they are not known.
    offer: Option<Arc<Node>>,
    /// Its nodes that may still take somebody.
    coming: Vec<Coming>,
    /// Names of those that exist already.
    pub(super) names: Vec<String>,
}

/// A node that pods may still come to.
struct Coming {
    name: String,
    /// Its name in the cluster, once it has registered.
    registered: Option<String>,
    /// By DaemonSets, and by pods that stand there already.
    used: Usage,
    /// Volumes of the pods that stand there.
    attached: Attached,
    /// Pods that it was planned for and that have not come, by class.
    left: BTreeMap<String, u32>,
    /// Pods stand there that it was not planned for: nothing keeps those of other schedulers off it. So only what is free counts.
    others: bool,
    /// Who waits and has taken a place here: class and number in the round.
    takers: Vec<(String, usize)>,
    /// What they ask for.
    claimed: Resources,
}

impl Coming {
    /// Whether one more pod of a class that it was planned for finds its place here.
    fn takes(&self, class: &str, node: &Node, requests: &Resources) -> bool {
        let given = self.takers.iter().filter(|(of, _)| of == class).count();
        let left = self.left.get(class).is_some_and(|left| given < usize::try_from(*left).unwrap_or(usize::MAX));
        let free = |name: &str, has: i64| {
            has.saturating_sub(self.used.requested.get(name)).saturating_sub(self.claimed.get(name))
        };
        // What the offer has none of comes later, as what a driver brings; it was planned on all the same.
        let holds = |name: &str, amount: i64| match node.allocatable.get(name) {
            0 => true,
            has => free(name, has) >= amount,
        };
        left && (!self.others || requests.iter().all(|(resource, amount)| holds(resource.as_str(), amount)))
    }
}

impl Joining {
    /// Whether the volumes of a pod can be reached from its nodes: pods of one class may have theirs in several zones.
    pub(super) fn reaches(&self, shape: &Shape) -> bool {
        self.offer.as_ref().is_none_or(|node| fit::reaches_volumes(shape, node))
    }

    /// A pod that waits takes a place of its class, by its number in the round. Whether there was one: what others took is none.
    pub(super) fn take(&mut self, class: &str, shape: &Shape, pod: usize) -> bool {
        let Some(left) = self.places.get_mut(class).filter(|left| **left > 0) else { return false };
        let takes =
            |coming: &&mut Coming| self.offer.as_ref().is_some_and(|node| coming.takes(class, node, &shape.requests));
        if let Some(coming) = self.coming.iter_mut().find(takes) {
            coming.takers.push((class.to_owned(), pod));
            coming.claimed.add(&shape.requests);
        } else if self.coming.iter().any(|coming| coming.others) {
            return false;
        }
        *left -= 1;
        true
    }

    /// Its nodes with who stands there and who waits and has taken a place. A place that nobody waits for is free: its pod went
    /// elsewhere, or is gone.
    pub(super) fn nodes(&self, waiting: &[Waiting]) -> Vec<JoiningNode> {
        let Some(offer) = &self.offer else { return Vec::new() };
        let node = |coming: &Coming| {
            let mut usage = coming.used.clone();
            let here: Vec<usize> = coming.takers.iter().map(|(_, pod)| *pod).collect();
            let mut attached = coming.attached.clone();
            for pod in here.iter().map(|pod| &waiting[*pod].pod) {
                if let Ok(shape) = &pod.shape {
                    usage.add(shape);
                    attached.come(pod, &shape.requests, &mut usage.requested);
                }
            }
            usage.own_shape_pods = 0;
            let node = Arc::new(Node { name: coming.name.as_str().into(), ..Node::clone(offer) });
            JoiningNode {
                existing: Existing { node, usage, joining: true },
                registered: coming.registered.clone(),
                takers: here,
            }
        };
        self.coming.iter().map(node).collect()
    }
}

/// A node that is on its way, as it will be.
pub(super) struct JoiningNode {
    pub(super) existing: Existing,
    /// Its name in the cluster, once it has registered.
    pub(super) registered: Option<String>,
    /// Pods that wait and have a place on it, by number in the round.
    pub(super) takers: Vec<usize>,
}

/// Pods on nodes of batches, by node, each with its class if that is known.
type Occupants<'a> = BTreeMap<&'a str, Vec<(&'a Arc<Pod>, Option<String>)>>;

fn occupants<'a>(batches: &[&Arc<Batch>], registered: &BTreeMap<&str, &str>, snapshot: &'a Snapshot) -> Occupants<'a> {
    let named = batches.iter().flat_map(|batch| batch.status.node_names());
    let names = named.chain(registered.values().copied()).collect();
    let mut digests: BTreeMap<Parts<'_>, String> = BTreeMap::new();
    let mut on = Occupants::new();
    for pod in snapshot.occupants(&names) {
        let Some(node) = &pod.node else { continue };
        let class = parts(pod).map(|of| digests.entry(of).or_insert_with(|| digest_of(of)).clone());
        on.entry(node.as_str()).or_default().push((pod, class));
    }
    on
}

/// Names of Nodes by the ids of the instances that no status names them for yet.
fn registered<'a>(batches: &[&'a Arc<Batch>], snapshot: &'a Snapshot) -> BTreeMap<&'a str, &'a str> {
    let members = batches.iter().flat_map(|batch| &batch.status.instances);
    let unnamed: BTreeSet<&str> = members.filter(|one| one.node.is_none()).map(|one| one.id.as_str()).collect();
    let nodes = snapshot.nodes.values().map(|entry| &entry.node).filter(|_| !unnamed.is_empty());
    let named = nodes.filter_map(|node| Some((node.instance()?, node.name.as_str())));
    named.filter(|(id, _)| unnamed.contains(id)).collect()
}

/// Batches whose pods may still come.
pub(super) fn joining(batches: &[Arc<Batch>], snapshot: &Snapshot, offers: &[Offered], now: Now) -> Vec<Joining> {
    let for_pods = batches.iter().filter(|batch| batch.spec.partial && batch.spec.owner == Owner::Pods);
    let for_pods: Vec<&Arc<Batch>> = for_pods.collect();
    let registered = registered(&for_pods, snapshot);
    let occupants = occupants(&for_pods, &registered, snapshot);
    for_pods.into_iter().filter_map(|batch| of_batch(batch, snapshot, &registered, &occupants, offers, now)).collect()
}

/// Whether nodes are about to register that no pod of no gang is planned on: those of gangs and requests, and those of an offer that is
/// gone. A batch without capacity that pauses launches nothing soon.
pub(super) fn others_come(batches: &[Arc<Batch>], snapshot: &Snapshot, under_way: &[Joining]) -> bool {
    let known: BTreeSet<&str> = snapshot.nodes.values().filter_map(|entry| entry.node.instance()).collect();
    let planned = |batch: &Batch| under_way.iter().any(|one| one.batch == batch.name && one.offer.is_some());
    batches.iter().filter(|batch| !batch.deleting && !planned(batch)).any(|batch| match batch.status.phase {
        BatchPhase::Pending => batch.status.next_attempt_after.is_none(),
        BatchPhase::Launching => true,
        BatchPhase::Draining | BatchPhase::Terminating => false,
        BatchPhase::Launched
        | BatchPhase::Joining
        | BatchPhase::Replacing
        | BatchPhase::Ready
        | BatchPhase::InUse
        | BatchPhase::Idle => {
            let mut awaited = batch.status.instances.iter().filter(|one| !one.state.is_written_off());
            awaited.any(|one| !known.contains(one.id.as_str()))
        }
    })
}

/// A node that is on its way: its number in the spec, its name once it has registered, and who is planned there.
type Planned<'a> = (usize, Option<&'a str>, &'a [(String, u32)]);

fn of_batch<'n>(
    batch: &'n Batch,
    snapshot: &Snapshot,
    registered: &BTreeMap<&str, &'n str>,
    occupants: &Occupants<'_>,
    offers: &[Offered],
    now: Now,
) -> Option<Joining> {
    // What has not come to one that is deleted never does.
    if batch.deleting {
        return None;
    }
    let (spec, status) = (&batch.spec, &batch.status);
    let count = match status.phase {
        BatchPhase::Pending => spec.count,
        BatchPhase::Draining | BatchPhase::Terminating => return None,
        BatchPhase::Launching
        | BatchPhase::Launched
        | BatchPhase::Joining
        | BatchPhase::Replacing
        | BatchPhase::Ready
        | BatchPhase::InUse
        | BatchPhase::Idle => status.count,
    };
    // What is kept for its pods is on its way to them: whether they come is known after that.
    let kept = |one: &Arc<Awaiting>| one.until.is_some() && one.holds(now.real);
    let keeps = |name: &str| snapshot.awaiting.get(name).is_some_and(kept);
    // Whoever has been Ready for long is what it is, whatever becomes of the others.
    let settled = |one: &BatchMember| {
        let over = one.registered.is_none_or(|at| now.clock.duration_since(at) >= BIND_WITHIN);
        one.state == MemberState::Ready && over && !one.node.as_deref().is_some_and(keeps)
    };
    let rest: Vec<&BatchMember> = status.instances.iter().filter(|one| !settled(one)).collect();
    let all_ready = !status.instances.is_empty() && rest.iter().all(|one| one.state == MemberState::Ready);
    // Its Node may be there before the status names it.
    let name = |one: &'n BatchMember| one.node.as_deref().or_else(|| registered.get(one.id.as_str()).copied());
    let names: Vec<String> = rest.iter().filter_map(|one| name(one)).map(str::to_owned).collect();
    let each: Vec<Planned<'_>> = if status.instances.is_empty() {
        let planned = spec.planned_pods().take(usize::try_from(count).unwrap_or(0)).enumerate();
        planned.map(|(number, pods)| (number, None, pods)).collect()
    } else {
        let unsettled = batch.places().filter(|(_, one, _)| !settled(one));
        unsettled.map(|(number, one, pods)| (number, name(one), pods)).collect()
    };
    if each.is_empty() {
        return None;
    }
    let mut places: BTreeMap<String, u32> = BTreeMap::new();
    let mut unread = 0_u32;
    for (class, number) in each.iter().flat_map(|(_, _, pods)| *pods) {
        if is_readable(class) {
            *places.entry(class.clone()).or_default() += number;
        } else {
            unread = unread.saturating_add(*number);
        }
    }
    let planned = places.keys().cloned().collect();
    for (_, class) in names.iter().filter_map(|name| occupants.get(name.as_str())).flatten() {
        match class.as_ref().and_then(|class| places.get_mut(class)) {
            Some(left) => *left = left.saturating_sub(1),
            None if class.is_some() => unread = unread.saturating_sub(1),
            None => {}
        }
    }
    if places.values().all(|left| *left == 0) && unread == 0 && all_ready {
        return None;
    }
    let wanted = spec.offers.first()?;
    // A batch that may be launched in several ways is what it was asked for last, or what EC2 chose of that.
    let zone = status.zone.as_deref().or(spec.zones.first().map(String::as_str));
    let instance_type = status.instance_type.as_deref().unwrap_or(&wanted.instance_type);
    let capacity_type = status.capacity_type.or(spec.capacity_type);
    let alike = offers.iter().map(|one| &one.offer).find(|offer| {
        *offer.instance_type == *instance_type
            && offer.zone.as_deref() == zone
            && capacity_type.is_none_or(|capacity_type| capacity_type == offer.capacity_type)
            && offers.iter().any(|one| one.offer.pool == offer.pool && *one.pool_name == *wanted.node_pool)
    });
    let coming = |overhead: &Usage| {
        let of_node = |(number, name, pods): Planned<'_>| {
            let (mut used, mut left) = (overhead.clone(), BTreeMap::new());
            for (class, many) in pods {
                *left.entry(class.clone()).or_default() += many;
            }
            let (mut others, mut attached) = (false, Attached::default());
            for (pod, class) in name.and_then(|name| occupants.get(name)).into_iter().flatten() {
                used.requested.add(&pod.held.requested);
                attached.come(pod, &pod.held.requested, &mut used.requested);
                used.ports.extend(pod.held.ports.iter().cloned());
                match class.as_ref().and_then(|class| left.get_mut(class)).filter(|left| **left > 0) {
                    Some(left) => *left = u32::saturating_sub(*left, 1),
                    None => others = true,
                }
            }
            let (takers, claimed) = (Vec::new(), Resources::default());
            let registered = name.map(str::to_owned);
            let name = format!("{}/{number}", batch.name);
            Coming { name, registered, used, attached, left, others, takers, claimed }
        };
        // What a node holds of a class that another version wrote down is not known: it has capacity for nobody else.
        let known = |pods: &[(String, u32)]| pods.iter().all(|(class, _)| is_readable(class));
        each.iter().copied().filter(|(_, _, pods)| known(pods)).map(of_node).collect()
    };
    Some(Joining {
        batch: batch.name.clone(),
        pool: wanted.node_pool.clone(),
        planned,
        places,
        unread,
        created: batch.created,
        coming: alike.map_or_else(Vec::new, |offer| coming(&offer.overhead)),
        // Of an offer that is gone the nodes are not known: those that have registered are found as what they are.
        names: if alike.is_some() { names } else { Vec::new() },
        offer: alike.map(|offer| Arc::clone(&offer.node)),
    })
}
