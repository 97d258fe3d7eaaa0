//! One round: all pods that wait, on everything that exists or is on its way, and on what can be launched for the rest.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::Timestamp;
use rustc_hash::FxHashMap;

use super::choice::{Choice, Claimants, Key, choice};
use super::class::{Parts, digest_of, parts};
use super::disputes::{Disputes, Placed};
use super::fruitless::{self, Fruitless};
use super::ground::Ground;
use super::joining::{Joining, Now, Offered, joining, others_come};
use super::refused::{SchedulerRefusals, tried_after, unused};
use super::waiting::Waiting;
use crate::fit;
use crate::model::batch::{Batch, Filling};
use crate::model::digest::Fields;
use crate::model::gang::{Membership, Pod};
use crate::model::launch::CapacityType;
use crate::model::names::PodUid;
use crate::model::node::{Node, TaintEffect};
use crate::model::resources::{Resources, at_least};
use crate::model::snapshot::Snapshot;
use crate::offering::{Amounts, Ledger};
use crate::packing::{self, Claimant, Class, Obstacle, Offer, Place, Pool, Problem, Settled};

/// Most nodes of one batch.
const BATCH: u32 = 100;
/// Stated of pods that nothing is launched for since another scheduler would start their gang one by one.
pub const FOREIGN_MEMBER: &str = "is a member of a gang, and its schedulerName is none of Muster's schedulerNames: nobody holds \
                                  the gang together, and nothing is launched for its pods";
/// Stated of pods that only machines with accelerators might hold.
const FOR_WHO_ASKS: &str = "types with accelerators are launched only for pods that ask for one";

/// Everything a round looks at.
#[derive(Clone, Debug)]
pub struct Round<'a> {
    /// Pods that wait, in planning order.
    pub waiting: Vec<Waiting>,
    /// The cluster.
    pub snapshot: &'a Snapshot,
    /// All batches.
    pub batches: Vec<Arc<Batch>>,
    /// Pools that can be used, with what their limits have left beside all batches.
    pub pools: Vec<Pool>,
    /// Most nodes of one batch, by pool.
    pub most: Vec<u32>,
    /// What they offer.
    pub offers: Vec<Offered>,
    /// Extended resources that count as accelerators.
    pub accelerators: &'a [Arc<str>],
    /// What is known of purchases that kube-scheduler put no pod on.
    pub refusals: &'a SchedulerRefusals,
    /// What is known of launches in vain.
    pub fruitless: &'a Fruitless,
    /// … and of nodes that stand and that it does not accept.
    pub disputes: &'a Disputes,
    /// Now, by the provisioner's clock.
    pub now: Timestamp,
    /// Now, in real time.
    pub now_real: Timestamp,
}

/// A batch to create.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Launch {
    /// Name of the NodeBatch, a digest of the pods and the offer.
    pub name: String,
    /// NodePool.
    pub pool: Arc<str>,
    /// Instance type.
    pub instance_type: Arc<str>,
    /// Zone.
    pub zone: Arc<str>,
    /// Capacity type.
    pub capacity_type: CapacityType,
    /// Nodes.
    pub count: u32,
    /// Types that hold the pods as well, cheapest first: EC2 chooses one for all nodes.
    pub other_types: Vec<Arc<str>>,
    /// Zones in which all of these types do.
    pub other_zones: Vec<Arc<str>>,
    /// Where EC2 has no spot capacity of any of them they are launched on demand.
    pub or_on_demand: bool,
    /// Micro-dollars per hour of all of them.
    pub price: u64,
    /// What they are planned to hold.
    pub fillings: Vec<Filling>,
    /// The pods.
    pub pods: Vec<PodUid>,
}

impl Launch {
    /// As many of its nodes as the limits and ceilings leave, which are taken, and `most` at most, for which there are addresses; `each`
    /// is what one of them takes. `None`: nothing is left for one.
    #[must_use]
    pub fn within(&self, left: &mut Ledger, each: &Resources, most: u32) -> Option<Self> {
        let price = self.price / u64::from(self.count.max(1));
        let of = |count: u32| Amounts::of_nodes(each, price, count);
        let fits = (1..=self.count.min(most)).rev().find(|count| left.fits(&self.pool, &of(*count)))?;
        left.take(&self.pool, &of(fits));
        let mut within = Self { count: fits, price: price.saturating_mul(u64::from(fits)), ..self.clone() };
        let mut nodes = fits;
        for filling in &mut within.fillings {
            filling.nodes = filling.nodes.min(nodes);
            nodes -= filling.nodes;
        }
        within.fillings.retain(|filling| filling.nodes > 0);
        Some(within)
    }
}

/// A pod for which there is nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The pod.
    pub pod: PodUid,
    /// What kind of reason it is.
    pub cause: Cause,
    /// Why, in a sentence.
    pub why: Arc<str>,
}

/// Why there is nothing for a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Cause {
    /// No offer holds it, or none may be launched.
    NoOfferFits,
    /// What was launched for pods like it was not used.
    SchedulerRefused,
}

impl Cause {
    /// The reason of the event.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::NoOfferFits => "NoOfferFits",
            Self::SchedulerRefused => "SchedulerRefused",
        }
    }
}

/// What follows from a round.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// Batches to create.
    pub launches: Vec<Launch>,
    /// Pods that nothing can be launched for.
    pub refused: Vec<Refusal>,
    /// Pods whose nodes are on their way.
    pub joining: usize,
    /// Pods that a node holds which exists, or that fit beside others on one that is on its way.
    pub placed: usize,
    /// Those of them that are placed on nodes that stand.
    pub standing: Vec<Placed>,
    /// Micro-dollars per hour of all launches.
    pub cost: u64,
    /// No plan for the same pods costs less.
    pub bound: u64,
}

/// Whether a pod is one to provision for: it waits for a node, of no gang, held by nobody, scheduled by a profile of ours or by
/// another that is provisioned for.
#[must_use]
pub fn is_waiting(pod: &Pod) -> bool {
    (pod.ours || !pod.foreign.is_other())
        && pod.membership == Membership::Single
        && pod.is_live()
        && pod.node.is_none()
        && pod.nominated.is_none()
        && !pod.gated
        && pod.foreign_gate.is_none()
        && !pod.daemon
        && pod.claims.awaits.is_none()
}

/// Whether a taint keeps pods off a node only where they can be elsewhere, on a node that stands or on one that a pool would launch:
/// then it is among the preferences of each pod.
#[must_use]
pub fn any_rather_keeps_off(snapshot: &Snapshot, offers: &[Offered]) -> bool {
    let soft = |node: &Node| node.taints.iter().any(|taint| taint.effect == TaintEffect::PreferNoSchedule);
    snapshot.nodes.values().any(|entry| soft(&entry.node)) || offers.iter().any(|one| soft(&one.offer.node))
}

/// Plans all of it.
#[must_use]
pub fn plan(round: &Round<'_>) -> Outcome {
    let mut outcome = Outcome::default();
    let mut digests: BTreeMap<Parts<'_>, String> = BTreeMap::new();
    let classes: Vec<Option<String>> = round
        .waiting
        .iter()
        .map(|one| {
            let of = parts(&one.pod)?;
            Some(digests.entry(of).or_insert_with(|| digest_of(of)).clone())
        })
        .collect();
    let now = Now { clock: round.now, real: round.now_real };
    let mut under_way = joining(&round.batches, round.snapshot, &round.offers, now);
    let mut rest: Vec<usize> = Vec::new();
    for (index, class) in classes.iter().enumerate() {
        let (Some(class), Ok(shape)) = (class, &round.waiting[index].pod.shape) else { continue };
        let mut reached = under_way.iter_mut().filter(|one| one.reaches(shape));
        if reached.any(|one| one.take(class, shape, index)) {
            outcome.joining += 1;
        } else {
            rest.push(index);
        }
    }
    outcome.joining += take_unread(round, &mut under_way, &mut rest);
    if rest.is_empty() {
        return outcome;
    }
    let barred = barred(round, &classes, &rest, &under_way);
    let Ground { nodes, standing, attached, joining_from } = Ground::of(&round.waiting, round.snapshot, &under_way);
    // Where somebody asks for accelerators the others may stand beside; a machine for them alone is refused below.
    let mut asked = rest.iter().any(|index| is_accelerated(&round.waiting[*index].pod, round.accelerators));
    let has = |offer: &Offer| offer.has_any(round.accelerators);
    let pools = round.pools.clone();
    let hosts_come = others_come(&round.batches, round.snapshot, &under_way);
    let offers = |asked: bool| -> Vec<Offer> {
        let all = round.offers.iter().filter(|one| one.available && (asked || !has(&one.offer)));
        all.map(|one| one.offer.clone()).collect()
    };
    let mut base =
        Problem { nodes, standing, attached, pools, offers: offers(asked), hosts_come, ..Problem::default() };
    let planned = |base: &Problem, rest: &[usize]| {
        let ladders: Vec<Arc<[Class]>> = barred_ladders(round, &classes, rest, &barred);
        let claimants = rest.iter().zip(&ladders);
        let claimants = claimants.map(|(index, ladder)| Claimant { pod: &round.waiting[*index].pod, ladder });
        packing::settle(base, &claimants.collect::<Vec<_>>(), &ahead(round, rest))
    };
    let mut settled = planned(&base, &rest);
    let mut in_vain = Vec::new();
    if asked && !is_of_use_to_who_asks(round, &rest, &settled) {
        // Nobody who asks gets one, perhaps for ever: the others are not to wait for that.
        asked = false;
        let asking = who_asks_in_vain(round, &rest, &settled);
        let mut reasons = Reasons::new(round, &settled.problem, &settled.plan);
        for (index, class) in &asking {
            let (cause, why) = reasons.of(*class, classes[*index].as_deref());
            in_vain.push(Refusal { pod: round.waiting[*index].pod.uid.clone(), cause, why });
        }
        rest.retain(|index| !asking.contains_key(index));
        base.offers = offers(asked);
        settled = planned(&base, &rest);
    }
    let of = |settled: &Settled, rest: &[usize]| settled.pods.iter().map(|at| rest[*at]).collect::<Vec<_>>();
    let later = beside_trials(round, &classes, &of(&settled, &rest), &settled.problem, &settled.plan);
    if !later.is_empty() {
        // Whoever shares no node with them is not to wait for what becomes of it.
        rest.retain(|index| !later.contains_key(index));
        outcome.refused.extend(later.into_values());
        settled = planned(&base, &rest);
    }
    let placed = of(&settled, &rest);
    let Settled { problem, plan, pods: _, unplaced, refused: late } = settled;
    let mut reasons = Reasons::new(round, &problem, &plan);
    for (number, class) in unplaced {
        let (cause, why) = reasons.of(class, classes[rest[number]].as_deref());
        outcome.refused.push(Refusal { pod: round.waiting[rest[number]].pod.uid.clone(), cause, why });
    }
    // What no node would change is stated by itself.
    let late = late.into_iter().flat_map(|(number, why)| {
        let why: Arc<str> = why.to_string().into();
        refused(round, &[rest[number]], Cause::NoOfferFits, &why)
    });
    let late: Vec<Refusal> = late.collect();
    let rest = placed;
    settle(&classes, &rest, &plan, &mut reasons, &mut outcome);
    one_at_a_time(round, &mut outcome);
    for (index, place) in rest.iter().zip(&plan.places) {
        if let (Place::Existing(node), Some(class)) = (place, &classes[*index])
            && *node < joining_from
            && round.waiting[*index].ladder.last().is_none_or(|class| !class.existing_only)
        {
            let (pod, node) = (round.waiting[*index].pod.uid.clone(), problem.nodes[*node].node.name.clone());
            outcome.standing.push(Placed { pod, class: class.as_str().into(), node });
        }
    }
    if !asked && round.offers.iter().any(|one| one.available && has(&one.offer)) {
        for refusal in outcome.refused.iter_mut().filter(|one| one.cause == Cause::NoOfferFits) {
            refusal.why = format!("{}; {FOR_WHO_ASKS}", refusal.why).into();
        }
    }
    outcome.refused.extend(late);
    outcome.refused.extend(in_vain);
    outcome
}

/// What is planned of these pods, without what is not launched for their classes.
fn barred_ladders(
    round: &Round<'_>,
    classes: &[Option<String>],
    rest: &[usize],
    barred: &BTreeMap<&str, BTreeSet<Bar>>,
) -> Vec<Arc<[Class]>> {
    let mut known: FxHashMap<(*const [Class], &str), Arc<[Class]>> = FxHashMap::default();
    let of = |index: &usize| {
        let ladder = &round.waiting[*index].ladder;
        let Some(class) = classes[*index].as_deref() else { return Arc::clone(ladder) };
        let off = barred.get(class);
        let from = round.disputes.no_places_before(class, round.now_real);
        if off.is_none() && from.is_none() {
            return Arc::clone(ladder);
        }
        let one = known.entry((Arc::as_ptr(ladder), class)).or_insert_with(|| {
            let barred =
                |class: &Class| Class { kept_off: off.cloned().unwrap_or_default(), newer_than: from, ..class.clone() };
            ladder.iter().map(barred).collect()
        });
        Arc::clone(one)
    };
    rest.iter().map(of).collect()
}

/// Pods whose claims are not to be had: those with a node, and those that wait and whose node is on its way.
fn ahead<'a>(round: &'a Round<'_>, rest: &[usize]) -> Vec<&'a Pod> {
    let waits: BTreeSet<usize> = rest.iter().copied().collect();
    let joining = (0..round.waiting.len()).filter(|index| !waits.contains(index));
    let joining = joining.map(|index| &*round.waiting[index].pod);
    let standing = round.snapshot.pods.placed().map(|pod| &**pod);
    let claims = |pod: &&Pod| !pod.claims.one_pod.is_empty() || !pod.claims.taken.is_empty();
    standing.chain(joining).filter(claims).collect()
}

/// Pool, or instance type of a pool, that nothing is launched from.
type Bar = (usize, Option<Arc<str>>);

/// What is not launched for each class, since kube-scheduler put no pod of it on what was: nothing of a pool that has to wait or
/// whose one node on trial is under way, and no type that was refused where another of the pool would hold the pods.
fn barred<'a>(
    round: &Round<'_>,
    classes: &'a [Option<String>],
    rest: &[usize],
    under_way: &[Joining],
) -> BTreeMap<&'a str, BTreeSet<Bar>> {
    let mut barred: BTreeMap<&str, BTreeSet<Bar>> = BTreeMap::new();
    if round.refusals.is_empty() && round.fruitless.is_empty() && round.disputes.is_empty() {
        return barred;
    }
    for index in rest {
        let (Some(class), pod) = (classes[*index].as_deref(), &round.waiting[*index].pod) else { continue };
        let (std::collections::btree_map::Entry::Vacant(entry), Ok(shape)) = (barred.entry(class), &pod.shape) else {
            continue;
        };
        let asks = is_accelerated(pod, round.accelerators);
        let usable = |one: &&Offered| {
            let has = one.offer.has_any(round.accelerators);
            one.available && (asks || !has) && fit::fits(shape, &one.offer.node, &one.offer.overhead).is_ok()
        };
        let mut off = BTreeSet::new();
        for (number, pool) in round.pools.iter().enumerate() {
            if lacks_capacity(round, &pool.name, class) {
                off.insert((number, None));
                continue;
            }
            let on_trial = is_on_trial(round, &pool.name, class);
            if !on_trial && round.refusals.last(&pool.name, class).is_none() {
                continue;
            }
            let tries = on_trial && under_way.iter().any(|one| *one.pool == *pool.name && one.planned.contains(class));
            if tries || round.refusals.waits_until(&pool.name, class, round.now).is_some() {
                off.insert((number, None));
                continue;
            }
            let avoided: BTreeSet<&Arc<str>> = round.refusals.avoided(&pool.name, class, round.now).collect();
            let of_pool = round.offers.iter().filter(|one| one.offer.pool == number).filter(usable);
            if of_pool.into_iter().any(|one| !avoided.contains(&one.offer.instance_type)) {
                off.extend(avoided.into_iter().map(|name| (number, Some(Arc::clone(name)))));
            }
        }
        entry.insert(off);
    }
    barred.retain(|_, off| !off.is_empty());
    barred
}

/// Whether a pool waits with launches for a class since the last brought no node.
fn lacks_capacity(round: &Round<'_>, pool: &str, class: &str) -> bool {
    round.fruitless.keeps_off(pool, class, round.batches.iter().map(AsRef::as_ref), round.now)
}

/// Where EC2 had no capacity one launch at a time is tried.
fn one_at_a_time(round: &Round<'_>, outcome: &mut Outcome) {
    fn classes(launch: &Launch) -> BTreeSet<&str> {
        launch.fillings.iter().flat_map(|filling| &filling.pods).map(|(class, _)| class.as_str()).collect()
    }
    let launches = std::mem::take(&mut outcome.launches);
    let asked: Vec<(&str, BTreeSet<&str>)> = launches.iter().map(|one| (&*one.pool, classes(one))).collect();
    let may = round.fruitless.may_be_made(&asked);
    for (launch, may) in launches.into_iter().zip(may) {
        if may {
            outcome.launches.push(launch);
            continue;
        }
        outcome.cost = outcome.cost.saturating_sub(launch.price);
        let why = round.fruitless.why(&launch.pool);
        let why: Arc<str> = format!("NodePool {}: one launch at a time is tried, {why}", launch.pool).into();
        let of = |pod| Refusal { pod, cause: Cause::NoOfferFits, why: Arc::clone(&why) };
        outcome.refused.extend(launch.pods.into_iter().map(of));
    }
}

/// Gives places of which nobody can say whom they are for to pods that wait: first to those that were there when their batch
/// was created, then to others, as a replica that was made again. So nothing is launched twice beside a batch of another
/// version; at worst somebody waits until its nodes are ready. The answer is how many have one.
fn take_unread(round: &Round<'_>, under_way: &mut [Joining], rest: &mut Vec<usize>) -> usize {
    let before = rest.len();
    for planned_for in [true, false] {
        for one in under_way.iter_mut().filter(|one| one.unread > 0) {
            rest.retain(|index| {
                let pod = &round.waiting[*index].pod;
                let was_there = pod.created.is_none_or(|at| one.created.is_none_or(|created| at <= created));
                let takes = one.unread > 0 && pod.shape.is_ok() && was_there == planned_for;
                one.unread -= u32::from(takes);
                !takes
            });
        }
    }
    before - rest.len()
}

/// Turns a plan into batches and refusals.
fn settle(
    classes: &[Option<String>],
    rest: &[usize],
    plan: &packing::Plan,
    reasons: &mut Reasons<'_>,
    outcome: &mut Outcome,
) {
    let (round, problem) = (reasons.round, reasons.problem);
    let mut held: Vec<Vec<usize>> = vec![Vec::new(); plan.nodes.len()];
    for (number, place) in plan.places.iter().enumerate() {
        match place {
            Place::Existing(_) => outcome.placed += 1,
            Place::New(node) => held[*node].push(rest[number]),
            Place::None => {
                let class = last_class(problem, number);
                let (cause, why) = reasons.of(class, classes[rest[number]].as_deref());
                let pod = round.waiting[rest[number]].pod.uid.clone();
                outcome.refused.push(Refusal { pod, cause, why });
            }
        }
    }
    let mut groups: BTreeMap<Key, Vec<usize>> = BTreeMap::new();
    let mut tried: BTreeSet<(usize, &str)> = BTreeSet::new();
    for (node, pods) in held.iter().enumerate() {
        let offer = &problem.offers[plan.nodes[node].offer];
        let asks = pods.iter().any(|pod| is_accelerated(&round.waiting[*pod].pod, round.accelerators));
        let has = offer.has_any(round.accelerators);
        let Some(zone) = offer.zone.clone().filter(|_| asks || !has) else {
            let why: Arc<str> = format!(
                "NodePool {}: only {} would hold it; {FOR_WHO_ASKS}",
                problem.pools[offer.pool].name, offer.instance_type
            )
            .into();
            outcome.refused.extend(refused(round, pods, Cause::NoOfferFits, &why));
            continue;
        };
        // Should the trial have been spread over two nodes once more, one is enough.
        let tries = trials(round, classes, problem, offer, pods);
        if tries.iter().any(|one| tried.contains(one)) {
            let why = tried_alone(&problem.pools[offer.pool].name);
            outcome.refused.extend(refused(round, pods, Cause::SchedulerRefused, &why));
            continue;
        }
        tried.extend(tries);
        let key = Key {
            pool: offer.pool,
            instance_type: Arc::clone(&offer.instance_type),
            zone,
            capacity_type: offer.capacity_type,
            reservation: offer.reservation.clone(),
            price: offer.price,
        };
        groups.entry(key).or_default().push(node);
        outcome.cost = outcome.cost.saturating_add(offer.price);
    }
    outcome.bound = plan.bound.as_ref().map_or(outcome.cost, |bound| bound.value);
    let known: BTreeSet<&str> = round.batches.iter().map(|batch| batch.name.as_str()).collect();
    let claimants = Claimants { waiting: &round.waiting, held: &held, accelerators: round.accelerators };
    for (key, nodes) in groups {
        let most = round.most.get(key.pool).copied().unwrap_or(BATCH).clamp(1, BATCH);
        for (number, nodes) in nodes.chunks(usize::try_from(most).unwrap_or(1)).enumerate() {
            let Choice { types, zones, or_on_demand } = choice(claimants, (problem, plan), &key, nodes);
            let launch = launch(round, classes, problem, &key, (number, &known), nodes, &held);
            outcome.launches.push(Launch { other_types: types, other_zones: zones, or_on_demand, ..launch });
        }
    }
}

fn launch(
    round: &Round<'_>,
    classes: &[Option<String>],
    problem: &Problem,
    key: &Key,
    (number, known): (usize, &BTreeSet<&str>),
    nodes: &[usize],
    held: &[Vec<usize>],
) -> Launch {
    let mut alike: BTreeMap<Vec<(String, u32)>, u32> = BTreeMap::new();
    let mut pods = Vec::new();
    for node in nodes {
        let mut counts: BTreeMap<String, u32> = BTreeMap::new();
        for pod in &held[*node] {
            pods.push(round.waiting[*pod].pod.uid.clone());
            *counts.entry(classes[*pod].clone().unwrap_or_default()).or_default() += 1;
        }
        *alike.entry(counts.into_iter().collect()).or_default() += 1;
    }
    pods.sort();
    let count = u32::try_from(nodes.len()).unwrap_or(u32::MAX);
    let pool = Arc::clone(&problem.pools[key.pool].name);
    let fields = Fields::new("batch for pods, 1")
        .text(&pool)
        .text(&key.instance_type)
        .text(&key.zone)
        .text(key.capacity_type.as_str())
        .number(u64::try_from(number).unwrap_or(u64::MAX));
    let fields = pods.iter().fold(fields, |fields, pod| fields.text(pod.as_str()));
    let name = |again: u64| {
        let fields = fields.clone();
        let mut digest = if again == 0 { fields } else { fields.number(again) }.finish();
        digest.truncate(16);
        format!("pods-{digest}")
    };
    // What is known to exist is counted, and these pods wait all the same: others took their places, or nothing came of it. Only a
    // batch that nobody has seen is the very same launch.
    let mut again = 0;
    while known.contains(name(again).as_str()) {
        again += 1;
    }
    Launch {
        name: name(again),
        pool,
        instance_type: Arc::clone(&key.instance_type),
        zone: Arc::clone(&key.zone),
        capacity_type: key.capacity_type,
        count,
        other_types: Vec::new(),
        other_zones: Vec::new(),
        or_on_demand: false,
        price: key.price.saturating_mul(u64::from(count)),
        fillings: alike.into_iter().map(|(pods, nodes)| Filling { nodes, pods }).collect(),
        pods,
    }
}

/// Whether one of the machines with accelerators that are planned would hold a pod that asks for one, or none is planned.
fn is_of_use_to_who_asks(round: &Round<'_>, rest: &[usize], settled: &Settled) -> bool {
    let Settled { problem, plan, pods, .. } = settled;
    let has = |node: &usize| problem.offers[plan.nodes[*node].offer].has_any(round.accelerators);
    let mut machines = plan.places.iter().zip(pods).filter_map(|(place, pod)| match place {
        Place::New(node) if has(node) => Some(&round.waiting[rest[*pod]].pod),
        Place::New(_) | Place::Existing(_) | Place::None => None,
    });
    let first = machines.next();
    first.is_none_or(|first| std::iter::once(first).chain(machines).any(|pod| is_accelerated(pod, round.accelerators)))
}

/// Pods that ask for an accelerator and find no place, each with its class in the problem.
fn who_asks_in_vain(round: &Round<'_>, rest: &[usize], settled: &Settled) -> BTreeMap<usize, usize> {
    let Settled { problem, plan, pods, unplaced, .. } = settled;
    let places = plan.places.iter().enumerate().filter(|(_, place)| matches!(place, Place::None));
    let none = places.map(|(number, _)| (rest[pods[number]], last_class(problem, number)));
    let all = none.chain(unplaced.iter().map(|(number, class)| (rest[*number], *class)));
    all.filter(|(index, _)| is_accelerated(&round.waiting[*index].pod, round.accelerators)).collect()
}

/// The class that a pod of the problem has when all that may be relaxed is.
fn last_class(problem: &Problem, number: usize) -> usize {
    problem.kinds[problem.pods[number]].last().copied().unwrap_or(0)
}

/// Whether a pod asks for an accelerator.
#[must_use]
pub fn is_accelerated(pod: &Pod, accelerators: &[Arc<str>]) -> bool {
    pod.shape.as_ref().is_ok_and(|shape| accelerators.iter().any(|name| shape.requests.get(name) > 0))
}

/// Whether only one node at a time is launched from a pool for a class: nobody came to what was launched last, or kube-scheduler
/// accepts none where there is capacity, which may be its own fault.
fn is_on_trial(round: &Round<'_>, pool: &str, class: &str) -> bool {
    round.refusals.in_a_row(pool, class) > 0 || round.disputes.no_places_before(class, round.now_real).is_some()
}

/// The classes on a new node, with its pool, of which only one node is launched.
fn trials<'a>(
    round: &Round<'_>,
    classes: &'a [Option<String>],
    problem: &Problem,
    offer: &Offer,
    pods: &[usize],
) -> BTreeSet<(usize, &'a str)> {
    let pool = &problem.pools[offer.pool].name;
    let of = pods.iter().filter_map(|pod| classes[*pod].as_deref());
    of.filter(|class| is_on_trial(round, pool, class)).map(|class| (offer.pool, class)).collect()
}

/// Pods that would go to a second new node of a pool that tries one node for their class, by number in the round.
fn beside_trials(
    round: &Round<'_>,
    classes: &[Option<String>],
    rest: &[usize],
    problem: &Problem,
    plan: &packing::Plan,
) -> BTreeMap<usize, Refusal> {
    let (mut first, mut later) = (BTreeMap::new(), BTreeMap::new());
    if round.refusals.is_empty() && round.disputes.is_empty() {
        return later;
    }
    for (index, place) in rest.iter().zip(&plan.places) {
        let Place::New(node) = place else { continue };
        let offer = &problem.offers[plan.nodes[*node].offer];
        for (pool, class) in trials(round, classes, problem, offer, &[*index]) {
            if first.entry((pool, class)).or_insert(*node) != node {
                let why = tried_alone(&problem.pools[pool].name);
                later.extend(
                    refused(round, &[*index], Cause::SchedulerRefused, &why).into_iter().map(|one| (*index, one)),
                );
            }
        }
    }
    later
}

fn tried_alone(pool: &str) -> Arc<str> {
    let stated =
        "one node is tried alone first, since kube-scheduler put no pod like this one where there was capacity for it";
    format!("NodePool {pool}: {stated}").into()
}

/// Refuses these pods, by their numbers in the round.
fn refused(round: &Round<'_>, pods: &[usize], cause: Cause, why: &Arc<str>) -> Vec<Refusal> {
    let of = |pod: &usize| Refusal { pod: round.waiting[*pod].pod.uid.clone(), cause, why: Arc::clone(why) };
    pods.iter().map(of).collect()
}

/// Why classes find no place, each found once.
struct Reasons<'r> {
    round: &'r Round<'r>,
    problem: &'r Problem,
    obstacles: packing::Obstacles<'r>,
    known: BTreeMap<usize, (Cause, Arc<str>)>,
}

impl<'r> Reasons<'r> {
    fn new(round: &'r Round<'r>, problem: &'r Problem, plan: &'r packing::Plan) -> Self {
        Self { round, problem, obstacles: packing::Obstacles::new(problem, plan), known: BTreeMap::new() }
    }

    /// That of a class, of which `digest` is the digest.
    fn of(&mut self, class: usize, digest: Option<&str>) -> (Cause, Arc<str>) {
        let Self { round, problem, obstacles, known } = self;
        known.entry(class).or_insert_with(|| refusal(round, problem, obstacles, class, digest)).clone()
    }
}

/// Why a class finds no place, pool by pool; `of` is its digest.
fn refusal(
    round: &Round<'_>,
    problem: &Problem,
    obstacles: &packing::Obstacles<'_>,
    class: usize,
    of: Option<&str>,
) -> (Cause, Arc<str>) {
    if problem.classes.get(class).is_some_and(|class| class.existing_only) {
        return (Cause::NoOfferFits, "annotated that nothing is launched for it, and no node holds it".into());
    }
    if problem.pools.is_empty() {
        return (Cause::NoOfferFits, "no NodePool is ready to provision nodes".into());
    }
    let mut cause = Cause::NoOfferFits;
    let mut stated_of = |(pool, instance_type, obstacle): (usize, Option<Arc<str>>, Obstacle)| {
        let name = &problem.pools[pool].name;
        if obstacle == Obstacle::KeptOff {
            let class = of.unwrap_or_default();
            if lacks_capacity(round, name, class) {
                return format!("NodePool {name}: {}", no_capacity(round, name, class));
            }
            cause = Cause::SchedulerRefused;
            return format!("NodePool {name}: {}", kept_off(round, name, class));
        }
        match (&obstacle, instance_type) {
            (Obstacle::Insufficient(resource, short), Some(best)) => {
                let short = at_least(resource.as_str(), *short);
                format!("NodePool {name}: an empty {best} lacks {short} {}", resource.as_str())
            }
            (obstacle, Some(best)) => format!("NodePool {name}, {best} at best: {}", stated(obstacle)),
            (obstacle, None) => format!("NodePool {name}: {}", stated(obstacle)),
        }
    };
    let all: Vec<String> = obstacles.of(class).into_iter().map(&mut stated_of).collect();
    (cause, all.join("; ").into())
}

/// Why nothing is launched from a pool whose last launches brought no node.
fn no_capacity(round: &Round<'_>, pool: &str, class: &str) -> String {
    let why = round.fruitless.why(pool);
    match round.fruitless.pauses_until(pool, class, round.now) {
        Some(until) => {
            let failed = round.fruitless.in_a_row(pool);
            format!("{failed} launches in a row brought no node, {why}; {}", fruitless::tried_after(until))
        }
        None => format!("another launch is tried now, {why}"),
    }
}

/// Why nothing is launched from a pool although it has what would hold the class.
fn kept_off(round: &Round<'_>, pool: &str, class: &str) -> String {
    match round.refusals.waits_until(pool, class, round.now) {
        Some(until) => {
            let unused = unused(round.refusals.in_a_row(pool, class), "pods like this one");
            format!("{unused}; {}", tried_after(until))
        }
        None => "a node is on its way that is tried alone, since no pod like this one came to the last".to_owned(),
    }
}

fn stated(obstacle: &Obstacle) -> String {
    match obstacle {
        Obstacle::NothingOffered => "nothing is offered now".to_owned(),
        Obstacle::Taint(taint) => format!("the taint {taint} is not tolerated"),
        Obstacle::UndefinedLabel(key) => format!("no node of it has the label {key}"),
        Obstacle::Selector => "node selector or affinity does not match".to_owned(),
        Obstacle::Volume => "a volume is not reached from there".to_owned(),
        Obstacle::Port => "a host port is taken by a DaemonSet".to_owned(),
        Obstacle::Insufficient(name, short) => {
            format!("an empty node lacks {} {}", at_least(name.as_str(), *short), name.as_str())
        }
        Obstacle::Overhead(name, short) => {
            let short = at_least(name.as_str(), *short);
            format!("an empty node lacks {short} {} beside what DaemonSets take", name.as_str())
        }
        Obstacle::MinValues(key) => format!("fewer values of {key} are left than minValues asks for"),
        Obstacle::LimitReached(name, short) => {
            format!("the limit on {} is reached, {} more is needed", name.as_str(), at_least(name.as_str(), *short))
        }
        Obstacle::NoReservation => "the reservation has no free host".to_owned(),
        Obstacle::Spread => "the pod's topology spread constraint excludes every node".to_owned(),
        Obstacle::Affinity => "the pod's affinity excludes every node".to_owned(),
        Obstacle::AntiAffinity => "the pod's anti-affinity excludes every node".to_owned(),
        Obstacle::KeptOff => "kube-scheduler put no pod like this one on what was launched for it".to_owned(),
    }
}
