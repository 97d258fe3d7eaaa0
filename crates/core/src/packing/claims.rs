//! Claims that pods take from each other: one that a single pod may use at a time, and volumes that are there already and that
//! nobody makes more of. Both go to the pods in their order, and whoever comes too late is refused by name.
//!
//! Sources: `VolumeRestrictions` and `VolumeBinding` of kube-scheduler v1.37. It decides pod by pod; a claim that a pod holds back
//! without ever getting a place is the next one's.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use rustc_hash::FxHashMap;

use super::problem::{Basis, Class, Place, Plan, Problem, forget_labels};
use super::unclaimed::Unclaimed;
use super::volumes;
use crate::model::gang::Pod;
use crate::model::names::ObjectKey;

/// Times that claims go on to others, of pods that find no place.
const ROUNDS: u32 = 4;

/// A pod that waits, with its class at each step of dropped preferences.
#[derive(Clone, Copy, Debug)]
pub struct Claimant<'a> {
    /// The pod.
    pub pod: &'a Pod,
    /// Its class with every preference kept first; the last has only what is required.
    pub ladder: &'a Arc<[Class]>,
}

/// A plan, and who is not part of it.
#[derive(Clone, Debug)]
pub struct Settled {
    /// What was planned.
    pub problem: Problem,
    /// The plan.
    pub plan: Plan,
    /// The pods of the plan, by their number among those given.
    pub pods: Vec<usize>,
    /// Pods that find no place and whose claims went to others for that, with their class in the problem.
    pub unplaced: BTreeMap<usize, usize>,
    /// Pods that no node could take, with the reason.
    pub refused: BTreeMap<usize, Late>,
}

/// What somebody else has that a pod would need.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Late {
    /// A claim that one pod alone may use at a time.
    InUse {
        /// The claim.
        claim: Arc<str>,
        /// Who has it.
        pod: Arc<str>,
    },
    /// A volume for a claim, of those that are there already.
    NoVolume {
        /// The claim.
        claim: Arc<str>,
        /// Its class.
        class: Arc<str>,
        /// How many volumes would do for it, if others had none.
        volumes: usize,
    },
}

impl fmt::Display for Late {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::InUse { claim, pod } => write!(
                f,
                "PersistentVolumeClaim {claim} is for one pod at a time (ReadWriteOncePod), and pod {pod} uses it"
            ),
            Self::NoVolume { claim, class, volumes } => {
                let many = if *volumes == 1 { "the one".to_owned() } else { format!("each of the {volumes}") };
                write!(
                    f,
                    "PersistentVolumeClaim {claim} needs a PersistentVolume of StorageClass {class}: {many} that would \
                     do for it goes to a pod that comes first, and nobody makes more"
                )
            }
        }
    }
}

/// Plans the pods with `packed` on what `base` has beside pods; see [`super::settle`].
pub(super) fn settle(base: &Problem, pods: &[Claimant<'_>], ahead: &[&Pod], packed: fn(&Problem) -> Plan) -> Settled {
    let mut behind: BTreeSet<usize> = BTreeSet::new();
    for _ in 0..ROUNDS {
        let settled = Round { base, pods, ahead, behind: &behind, packed }.settled();
        let wanted: BTreeSet<&Want> = settled.late.values().map(|(_, want)| want).collect();
        let holds = |pod: usize| wants(pods[pod].pod).iter().any(|want| wanted.contains(want));
        let without = settled.of.plan.refused().map(|at| settled.of.pods[at]);
        let more: Vec<usize> = without.filter(|pod| holds(*pod)).collect();
        let before = behind.len();
        behind.extend(more);
        if behind.len() == before {
            return settled.of;
        }
    }
    Round { base, pods, ahead, behind: &behind, packed }.settled().of
}

/// What a pod may keep from others.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Want {
    Claim(ObjectKey),
    VolumeOf(Arc<str>),
}

fn wants(pod: &Pod) -> Vec<Want> {
    let claims = pod.claims.one_pod.iter().map(|claim| Want::Claim(key(pod, claim)));
    claims.chain(pod.claims.taken.iter().map(|taken| Want::VolumeOf(Arc::clone(&taken.class)))).collect()
}

fn key(pod: &Pod, claim: &Arc<str>) -> ObjectKey {
    ObjectKey { namespace: Arc::clone(&pod.key.namespace), name: Arc::clone(claim) }
}

/// One way to hand claims out.
struct Round<'a> {
    base: &'a Problem,
    pods: &'a [Claimant<'a>],
    ahead: &'a [&'a Pod],
    /// Pods that come after all the others: they find no place.
    behind: &'a BTreeSet<usize>,
    packed: fn(&Problem) -> Plan,
}

/// The outcome of a round, and who came too late for what.
struct Handed {
    of: Settled,
    late: BTreeMap<usize, (Late, Want)>,
}

impl Round<'_> {
    fn settled(&self) -> Handed {
        let mut late = BTreeMap::new();
        let mut users: BTreeMap<ObjectKey, Arc<str>> = BTreeMap::new();
        let mut unclaimed = Unclaimed::new(self.base);
        for pod in self.ahead {
            let claims = pod.claims.one_pod.iter();
            users.extend(claims.map(|claim| (key(pod, claim), Arc::clone(&pod.key.name))));
            unclaimed.gone(pod);
        }
        let first = (0..self.pods.len()).filter(|pod| !self.behind.contains(pod));
        for number in first.chain(self.behind.iter().copied()) {
            let Claimant { pod, ladder } = self.pods[number];
            let by = |claim: &Arc<str>| users.get(&key(pod, claim));
            let taken = pod.claims.one_pod.iter().find_map(|claim| Some((claim, by(claim)?)));
            if let Some((claim, by)) = taken {
                let why = Late::InUse { claim: Arc::clone(claim), pod: Arc::clone(by) };
                late.insert(number, (why, Want::Claim(key(pod, claim))));
                continue;
            }
            if let Some(class) = ladder.last()
                && let Err(taken) = unclaimed.take(number, pod, class)
            {
                let (claim, class) = (Arc::clone(&taken.claim), Arc::clone(&taken.class));
                let want = Want::VolumeOf(Arc::clone(&class));
                late.insert(number, (Late::NoVolume { claim, class, volumes: taken.among.len() }, want));
                continue;
            }
            users.extend(pod.claims.one_pod.iter().map(|claim| (key(pod, claim), Arc::clone(&pod.key.name))));
        }
        let all: Vec<usize> = (0..self.pods.len()).filter(|number| !late.contains_key(number)).collect();
        let (mut problem, plan) = self.planned(&all, &mut unclaimed);
        let mut unplaced = BTreeMap::new();
        let mut refused = BTreeMap::new();
        for (number, (why, _)) in &late {
            // Who found no place while it had its claims is without one for that reason.
            match self.pods[*number].ladder.last().filter(|_| self.behind.contains(number)) {
                Some(class) => {
                    unplaced.insert(*number, problem.classes.len());
                    problem.classes.push(class.clone());
                }
                None => {
                    refused.insert(*number, why.clone());
                }
            }
        }
        Handed { of: Settled { problem, plan, pods: all, unplaced, refused }, late }
    }

    /// A plan for these pods. Where a pod has a choice of volumes it is planned as if all of them were its own; then each gets the one
    /// that its place reaches, as far as that goes.
    fn planned(&self, all: &[usize], unclaimed: &mut Unclaimed<'_>) -> (Problem, Plan) {
        if !unclaimed.is_choice() {
            let problem = self.problem(all, unclaimed);
            let plan = (self.packed)(&problem);
            return (problem, plan);
        }
        let open = self.problem(all, &Unclaimed::new(self.base));
        let first = (self.packed)(&open);
        for (at, place) in first.places.iter().enumerate() {
            let offer = |node: usize| &*open.offers[first.nodes[node].offer].node;
            match place {
                Place::Existing(node) => unclaimed.prefer(all[at], &open.nodes[*node].node),
                Place::New(node) => unclaimed.prefer(all[at], offer(*node)),
                Place::None => {}
            }
        }
        unclaimed.choose();
        let problem = self.problem(all, unclaimed);
        let mut plan = (self.packed)(&problem);
        // Whoever may have any volume may be planned as cheaply as whoever has one: the bound is that of the choice.
        let new = |plan: &Plan| plan.places.iter().map(|place| matches!(place, Place::New(_))).collect::<Vec<_>>();
        let same = new(&plan) == new(&first);
        let least = first.bound.as_ref().filter(|_| same).map_or(0, |bound| bound.value);
        if let Some(bound) = plan.bound.as_mut().filter(|bound| bound.value > least) {
            if bound.basis == Basis::Enumeration && least == 0 {
                bound.basis = Basis::Resources { prices: Vec::new(), nodes: (0, 0) };
            }
            bound.value = least;
        }
        (problem, plan)
    }

    fn problem(&self, all: &[usize], unclaimed: &Unclaimed<'_>) -> Problem {
        // Of pods that share a ladder and have no volumes one is looked at for all.
        let mut known: FxHashMap<*const [Class], usize> = FxHashMap::default();
        let (mut pods, mut ladders): (Vec<&Pod>, Vec<Vec<Class>>) = Default::default();
        let mut looked_at = Vec::with_capacity(all.len());
        for number in all {
            let Claimant { pod, ladder } = self.pods[*number];
            let next = ladders.len();
            let has_volumes = unclaimed.is_given_any(*number) || pod.attachments().next().is_some();
            let at = if has_volumes { next } else { *known.entry(Arc::as_ptr(ladder)).or_insert(next) };
            if at == next {
                let mut ladder = ladder.to_vec();
                ladder.iter_mut().for_each(|class| unclaimed.pin(*number, class));
                pods.push(pod);
                ladders.push(ladder);
            }
            looked_at.push(at);
        }
        volumes::share(self.base, &pods, &mut ladders);
        forget_labels(&mut ladders, &self.base.standing);
        let Problem { classes, kinds, pods: kind_of, .. } = Problem::of(ladders);
        let pods = looked_at.into_iter().map(|at| kind_of[at]).collect();
        Problem { classes, kinds, pods, ..self.base.clone() }
    }
}
