//! Whether somebody came to what was launched for pods of no gang: each batch is followed until one of each of its classes is on
//! one of its nodes, or is seen not to come.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};

use super::awaiting::{self, KEPT};
use super::class::{Parts, digest_of, parts};
use super::refused::{Generations, Purchase, SchedulerRefusals, tried_after};
use super::round::is_waiting;
use crate::model::batch::{AttemptOutcome, Batch, BatchMember, BatchPhase, LossCause, MemberState, Owner};
use crate::model::class::is_readable;
use crate::model::gang::Pod;
use crate::model::names::NodeName;
use crate::model::snapshot::Snapshot;

/// Nodes that stand are judged this often, in real time.
const PAUSE: SignedDuration = SignedDuration::from_secs(1);

/// What is looked at.
#[derive(Debug)]
pub struct Seen<'a> {
    /// All batches that the published state has.
    pub batches: Vec<&'a Batch>,
    /// The cluster, with whom its nodes await.
    pub snapshot: &'a Snapshot,
    /// Versions of each pool and its class.
    pub generations: BTreeMap<Arc<str>, Generations>,
    /// Now, by the provisioner's clock.
    pub now: Timestamp,
    /// Now, in real time: kube-scheduler lives in it.
    pub now_real: Timestamp,
}

/// A purchase that turned out to be in vain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InVain {
    /// NodeBatch.
    pub batch: String,
    /// NodePool.
    pub pool: Arc<str>,
    /// Instance type.
    pub instance_type: Arc<str>,
    /// Class of pods.
    pub class: Arc<str>,
    /// In a row, for the class from the pool.
    pub in_a_row: u32,
    /// When the next is made at the earliest, if it has to wait.
    pub next_try: Option<Timestamp>,
    /// None of its nodes became Ready: kube-scheduler never had a choice.
    pub never_ready: bool,
}

impl fmt::Display for InVain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { batch, instance_type, in_a_row, .. } = self;
        let next = self
            .next_try
            .map_or_else(|| "one node is tried alone, of another type if there is one".to_owned(), tried_after);
        if self.never_ready {
            return write!(
                f,
                "no {instance_type} of NodeBatch {batch} became Ready for the pods that wait: {in_a_row} in a row; {next}"
            );
        }
        write!(
            f,
            "kube-scheduler put none of the pods that wait on the {instance_type} of NodeBatch {batch}, which was launched for them: \
             {in_a_row} in a row; {next}"
        )
    }
}

/// What was launched and is followed, and what came of it.
#[derive(Debug, Default)]
pub struct Purchases {
    refusals: SchedulerRefusals,
    /// By UID of the batch: another for the same pods and offer has the same name.
    followed: BTreeMap<String, Followed>,
    /// When a pod of a class last came to a node of a pool, in real time.
    came: BTreeMap<(Arc<str>, Arc<str>), Timestamp>,
    /// When nodes that stand were last judged, in real time.
    judged: Option<Timestamp>,
}

#[derive(Debug)]
struct Followed {
    name: String,
    pool: Arc<str>,
    instance_type: Arc<str>,
    generations: Generations,
    launched: Timestamp,
    classes: BTreeMap<Arc<str>, OfClass>,
    /// Somebody deleted it, or EC2 took nodes of it: nobody is to blame that no pod came.
    excused: bool,
}

/// How a class fares on the nodes of a batch.
#[derive(Debug, Default)]
struct OfClass {
    came: u32,
    was_ready: bool,
    over: bool,
}

/// A class at one moment.
#[derive(Debug, Default)]
struct Now {
    came: u32,
    ready: bool,
    /// The pods had the node for themselves for a minute.
    kept: bool,
    /// A node that is Ready came with less than one of the pods asks for. The others are of the same type.
    less: bool,
    /// Others took a node in that minute: nothing keeps pods of other schedulers off it.
    taken: bool,
}

/// Pods of a class that wait: since when the oldest.
type Waits = BTreeMap<String, Timestamp>;

impl Purchases {
    /// Of a process that has just begun to decide, with what its predecessors wrote down.
    #[must_use]
    pub fn new(refusals: SchedulerRefusals) -> Self {
        Self { refusals, ..Self::default() }
    }

    /// What is known of purchases in vain.
    #[must_use]
    pub fn refusals(&self) -> &SchedulerRefusals {
        &self.refusals
    }

    /// Takes note of what became of purchases. What turned out to be in vain.
    pub fn look(&mut self, seen: &Seen<'_>) -> Vec<InVain> {
        self.refusals.forget(&seen.generations, seen.now);
        let mut there = BTreeSet::new();
        let mut suspects = Vec::new();
        for batch in &seen.batches {
            if !batch.spec.partial || batch.spec.owner != Owner::Pods || batch.newer.is_some() {
                continue;
            }
            there.insert(batch.uid.as_str());
            let known = self.followed.get(&batch.uid);
            if known.is_some_and(|followed| followed.classes.values().all(|of| of.came > 0)) {
                continue;
            }
            let known = known.is_some();
            let on = nodes(batch, seen);
            let failed = never_joined(batch);
            // From its launch on: between two looks its nodes may become Ready and go.
            if !known && on.is_empty() && !failed && batch.status.instances.is_empty() {
                continue;
            }
            if !known {
                let Some(followed) = follow(batch, seen) else { continue };
                self.followed.insert(batch.uid.clone(), followed);
            }
            let Some(followed) = self.followed.get_mut(&batch.uid) else { continue };
            let emptied = went_empty(batch);
            // All of it ended between two looks: why is not known any more, and nobody came.
            let status = &batch.status;
            let won = status.last().is_some_and(|attempt| attempt.outcome == AttemptOutcome::Won);
            let none_left = status.instances.is_empty() && status.replaced.is_empty();
            let unseen = won && none_left && status.phase == BatchPhase::Terminating;
            // Nothing is known of a pool that is gone, or was made again.
            let is_known = seen.generations.contains_key(&followed.pool);
            followed.excused |= batch.deleting || is_taken(batch) || !is_known;
            for (class, now) in &on {
                let of = followed.classes.entry(Arc::clone(class)).or_default();
                of.was_ready |= now.ready;
                if now.came <= of.came {
                    continue;
                }
                of.came = now.came;
                let key = (Arc::clone(&followed.pool), Arc::clone(class));
                // Of what a former process saw: who stood there before the last refusal takes nothing back.
                let news = known || self.refusals.last(&key.0, class).is_none_or(|last| last <= followed.launched);
                if known {
                    self.came.insert(key.clone(), seen.now_real);
                }
                if news {
                    self.refusals.came(&purchase(followed, class));
                }
            }
            for (class, of) in followed.classes.iter_mut().filter(|(_, of)| of.came == 0 && !of.over) {
                match on.get(class) {
                    // Of a class whose nodes have not registered yet nothing is known, unless none of them ever will.
                    // Who was on nodes that went before this process followed the batch it does not know.
                    None if !known && emptied.contains(&**class) => of.over = true,
                    None if unseen || emptied.contains(&**class) => {
                        (of.was_ready, of.over) = (true, true);
                        suspects.push((batch.uid.clone(), Arc::clone(class), true));
                    }
                    None if !of.was_ready && !failed => {}
                    Some(now) if now.less => {
                        of.over = true;
                        suspects.push((batch.uid.clone(), Arc::clone(class), true));
                    }
                    Some(now) if now.kept => suspects.push((batch.uid.clone(), Arc::clone(class), false)),
                    // kube-scheduler had no choice, and the node is used.
                    Some(now) if now.taken => of.over = true,
                    Some(_) => {}
                    None => {
                        of.over = true;
                        suspects.push((batch.uid.clone(), Arc::clone(class), true));
                    }
                }
            }
        }
        for (uid, followed) in self.followed.iter_mut().filter(|(uid, _)| !there.contains(uid.as_str())) {
            let open = followed.classes.iter_mut().filter(|(_, of)| of.was_ready && of.came == 0 && !of.over);
            for (class, of) in open {
                of.over = true;
                suspects.push((uid.clone(), Arc::clone(class), true));
            }
        }
        // Which pods wait is asked at most so often: where none do, nodes may stand unused for long.
        let due = self.judged.is_none_or(|at| seen.now_real.duration_since(at) >= PAUSE);
        let found = if suspects.iter().any(|(_, _, gone)| *gone || due) {
            self.judged = Some(seen.now_real);
            self.judge(suspects, seen)
        } else {
            Vec::new()
        };
        self.followed.retain(|uid, _| there.contains(uid.as_str()));
        self.came.retain(|_, at| seen.now_real.duration_since(*at) < KEPT);
        found
    }

    /// Which of the suspects were in vain: pods of the class wait that have had their chance. `gone`: no node of the batch is
    /// left for them, or none can hold them.
    fn judge(&mut self, suspects: Vec<(String, Arc<str>, bool)>, seen: &Seen<'_>) -> Vec<InVain> {
        let waits = waits(seen.snapshot);
        let mut found = Vec::new();
        for (uid, class, gone) in suspects {
            let Some(followed) = self.followed.get_mut(&uid) else { continue };
            let Some(of) = followed.classes.get_mut(&class) else { continue };
            let Some(since) = waits.get(&*class) else { continue };
            let recent = |at: &Timestamp| seen.now_real.duration_since(*at) < KEPT;
            let comes = self.came.get(&(Arc::clone(&followed.pool), Arc::clone(&class))).is_some_and(recent);
            let had_time = !recent(since) && !comes;
            if followed.excused || !(gone || had_time) {
                continue;
            }
            of.over = true;
            let was_ready = of.was_ready;
            let of = purchase(followed, &class);
            if !self.refusals.refuse(&of, followed.launched, seen.now) {
                continue;
            }
            found.push(InVain {
                batch: followed.name.clone(),
                in_a_row: self.refusals.in_a_row(&followed.pool, &class),
                next_try: self.refusals.waits_until(&followed.pool, &class, seen.now),
                never_ready: !was_ready,
                pool: Arc::clone(&followed.pool),
                instance_type: Arc::clone(&followed.instance_type),
                class,
            });
        }
        found
    }
}

fn purchase<'a>(followed: &'a Followed, class: &'a Arc<str>) -> Purchase<'a> {
    let Followed { pool, instance_type, generations, .. } = followed;
    Purchase { pool, generations: *generations, class, instance_type }
}

/// Begins to follow a batch; the versions of its pool are those of now. `None`: it has not been launched, or its pool is gone.
fn follow(batch: &Batch, seen: &Seen<'_>) -> Option<Followed> {
    let status = &batch.status;
    let pool: Arc<str> = status.node_pool.as_deref()?.into();
    let generations = *seen.generations.get(&pool)?;
    let classes = batch.spec.fillings.iter().flat_map(|one| &one.pods).filter(|(class, _)| is_readable(class));
    Some(Followed {
        name: batch.name.clone(),
        pool,
        instance_type: status.instance_type.as_deref()?.into(),
        generations,
        launched: status.last().and_then(|attempt| attempt.ended).or(batch.created).unwrap_or(seen.now),
        classes: classes.map(|(class, _)| (Arc::from(&**class), OfClass::default())).collect(),
        excused: false,
    })
}

/// Whether a node of the batch was taken away: by a notice of EC2, or since its Node or instance is gone.
fn is_taken(batch: &Batch) -> bool {
    batch.status.members().filter_map(|one| one.loss.as_ref()).any(|loss| loss.cause.is_taken())
}

/// Whether no instance of a batch is left, and some of them never became a node that is Ready: its image, its user data, the network
/// or a DaemonSet is at fault, and the next would end alike.
fn never_joined(batch: &Batch) -> bool {
    let lost = |one: &BatchMember| one.loss.as_ref().is_some_and(|loss| loss.cause == LossCause::Join);
    batch.status.instances.is_empty() && batch.status.replaced.iter().any(lost)
}

/// The classes of a batch none of whose nodes is left, and of which one was Ready and was terminated since nothing stood on it.
fn went_empty(batch: &Batch) -> BTreeSet<&str> {
    let planned: Vec<&[(String, u32)]> = batch.spec.planned_pods().collect();
    let gone = batch.status.replaced.iter().filter(|one| one.loss.is_none());
    let of_gone = gone.filter_map(|one| planned.get(usize::try_from(one.place?).ok()?));
    let left: BTreeSet<&str> = batch.places().flat_map(|(_, _, pods)| pods).map(|(class, _)| class.as_str()).collect();
    of_gone.copied().flatten().map(|(class, _)| class.as_str()).filter(|class| !left.contains(class)).collect()
}

/// The classes that the nodes of a batch which exist are for.
fn nodes(batch: &Batch, seen: &Seen<'_>) -> BTreeMap<Arc<str>, Now> {
    let mut classes: BTreeMap<Arc<str>, Now> = BTreeMap::new();
    // Kubernetes calls a node Ready whose startup taints and devices are still awaited.
    let ready = batch.status.instances.iter().filter(|one| one.state == MemberState::Ready);
    let ready: BTreeSet<&str> = ready.filter_map(|one| one.node.as_deref()).collect();
    let is_ready = |node: &NodeName| ready.contains(node.as_str());
    // What is not named yet is not Ready to anybody.
    for (node, pods) in awaiting::planned(batch, |_| None) {
        let Some(entry) = seen.snapshot.nodes.get(&node) else { continue };
        let awaiting = seen.snapshot.awaiting.get(&node);
        let kept = awaiting.and_then(|awaiting| awaiting.until).is_some_and(|until| until <= seen.now_real);
        for (class, planned) in pods {
            let places = awaiting.and_then(|awaiting| awaiting.places.get(&class));
            let left = places.map_or(0, |places| places.left);
            let now = classes.entry(class).or_default();
            now.came = now.came.saturating_add(planned.saturating_sub(left));
            let ready = entry.node.ready && is_ready(&node);
            now.ready |= ready;
            let taken = places.is_some_and(|places| !places.could_be_beside(&entry.node.allocatable, &entry.usage));
            now.kept |= ready && kept && !taken;
            now.taken |= ready && kept && taken;
            now.less |= ready && places.is_some_and(|places| !places.could_be_on(&entry.node.allocatable));
        }
    }
    classes
}

/// Classes of the pods that wait.
fn waits(snapshot: &Snapshot) -> Waits {
    let mut waits = Waits::new();
    let mut known: BTreeMap<Parts<'_>, String> = BTreeMap::new();
    for pod in snapshot.pods.unplaced().filter(|pod| is_waiting(pod)) {
        let pod: &Pod = pod;
        let Some(of) = parts(pod) else { continue };
        let class = known.entry(of).or_insert_with(|| digest_of(of)).clone();
        let created = pod.created.unwrap_or(Timestamp::MIN);
        waits.entry(class).and_modify(|since| *since = created.min(*since)).or_insert(created);
    }
    waits
}
