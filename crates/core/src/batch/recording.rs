//! One pass over NodeBatches with everything it looked at: read back and decided again, it must come out the same, byte for
//! byte.
//!
//! What pools and classes offer is recorded as it was asked for: each question with its answer. Every answer is a function of
//! one published state, so no question has two answers in a pass. Launch templates are among them whole, since their names
//! follow from their bytes: a recording tells the user data of EC2NodeClasses.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

use super::decision::{Before, Decision, JoinClocks, Memory, Probes, Settings, Supply, WantedLevels, Working, World};
use super::pass::pass;
use crate::ec2::error::ErrorClass;
use crate::ec2::template::TemplateSpec;
use crate::model::batch::{Attempt, Batch, BatchStatus, OwnerRef};
use crate::model::names::ResourceName;
use crate::model::node::Taint;
use crate::model::resources::Resources;
use crate::model::snapshot::Snapshot;
use crate::model::tags::Tags;
use crate::offering::rank::Ranking;

/// A [`World`] of its own, to keep and to write down. A copy is cheap where much is large: snapshot and batches are shared.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RecordedBatches {
    batches: BTreeMap<String, Arc<Batch>>,
    memory: BTreeMap<String, Memory>,
    busy: BTreeSet<String>,
    #[serde(with = "crate::model::written")]
    snapshot: Snapshot,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    stale: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    regained: Option<Timestamp>,
    answers: BTreeMap<String, Answer>,
    settings: Settings,
    now: Timestamp,
    now_real: Timestamp,
}

/// What a pass over NodeBatches decided.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct DecidedBatches {
    /// In the order they are carried out.
    pub decisions: Vec<Decision>,
    /// Questions that the recorded pass did not ask. Without them, decisions that are equal were made on equal grounds.
    pub unanswered: BTreeSet<String>,
}

impl DecidedBatches {
    /// Of these decisions.
    #[must_use]
    pub fn of(decisions: &[Decision]) -> Self {
        Self { decisions: decisions.to_vec(), unanswered: BTreeSet::new() }
    }
}

/// Decides, and keeps what was looked at if anything is to be carried out.
pub fn recorded_pass(world: &World<'_>) -> (Vec<Decision>, Option<RecordedBatches>) {
    let listening = Listening { supply: world.supply, heard: RefCell::default() };
    let decisions = pass(&World { supply: &listening, ..*world });
    if decisions.iter().all(Decision::is_waiting) {
        return (decisions, None);
    }
    let recorded = RecordedBatches {
        batches: world.batches.clone(),
        memory: world.memory.clone(),
        busy: world.busy.clone(),
        snapshot: world.snapshot.clone(),
        stale: world.stale,
        regained: world.regained,
        answers: listening.heard.into_inner(),
        settings: world.settings.clone(),
        now: world.now,
        now_real: world.now_real,
    };
    (decisions, Some(recorded))
}

impl RecordedBatches {
    /// The moment of the pass, by the wall clock.
    #[must_use]
    pub fn at(&self) -> Timestamp {
        self.now_real
    }

    /// Decides, by the very function the server calls.
    #[must_use]
    pub fn decide(&self) -> DecidedBatches {
        let recited = Recited { answers: &self.answers, unanswered: RefCell::default() };
        let decisions = pass(&World {
            batches: &self.batches,
            memory: &self.memory,
            busy: &self.busy,
            snapshot: &self.snapshot,
            stale: self.stale,
            regained: self.regained,
            supply: &recited,
            settings: &self.settings,
            now: self.now,
            now_real: self.now_real,
        });
        DecidedBatches { unanswered: recited.unanswered.into_inner(), ..DecidedBatches::of(&decisions) }
    }
}

/// Asks, and remembers the answers.
struct Listening<'a> {
    supply: &'a dyn Supply,
    heard: RefCell<BTreeMap<String, Answer>>,
}

impl Listening<'_> {
    fn hear<T: Clone + Into<Answer>>(&self, question: String, answer: T) -> T {
        self.heard.borrow_mut().insert(question, answer.clone().into());
        answer
    }
}

/// Answers as it was answered.
struct Recited<'a> {
    answers: &'a BTreeMap<String, Answer>,
    unanswered: RefCell<BTreeSet<String>>,
}

impl Recited<'_> {
    /// The recorded answer; one that says nothing where none is.
    fn recite<T: Default>(&self, question: String, read: impl FnOnce(&Answer) -> Option<T>) -> T {
        self.answers.get(&question).and_then(read).unwrap_or_else(|| {
            self.unanswered.borrow_mut().insert(question);
            T::default()
        })
    }
}

/// What was answered.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
enum Answer {
    /// Whether.
    Yes(bool),
    /// A text, or none.
    Text(Option<String>),
    /// Texts.
    Texts(Vec<String>),
    /// A word.
    Word(String),
    /// Nodes that were tried alone.
    Probes(Probes),
    /// What a node takes.
    Resources(Option<Resources>),
    /// Candidates.
    Ranking(Ranking),
    /// A launch template.
    Template(Result<TemplateSpec, String>),
    /// Tags.
    Tags(Tags),
    /// The clocks of a join.
    Join(JoinClocks),
    /// Extended resources.
    Devices(Vec<(ResourceName, i64)>),
    /// Taints.
    Taints(Vec<Taint>),
    /// A duration, or for ever.
    Duration(Option<SignedDuration>),
    /// Levels of the topology.
    Levels(WantedLevels),
    /// Labels.
    Labels(Option<BTreeMap<Arc<str>, Arc<str>>>),
}

/// An answer of each type, and back.
macro_rules! answers {
    ($($variant:ident, $read:ident: $type:ty;)*) => {
        $(impl From<$type> for Answer {
            fn from(answer: $type) -> Self {
                Self::$variant(answer)
            }
        })*

        impl Answer {
            $(fn $read(&self) -> Option<$type> {
                if let Self::$variant(answer) = self { Some(answer.clone()) } else { None }
            })*
        }
    };
}

answers! {
    Yes, yes: bool;
    Text, text: Option<String>;
    Texts, texts: Vec<String>;
    Word, word: String;
    Probes, probes: Probes;
    Resources, resources: Option<Resources>;
    Ranking, ranking: Ranking;
    Tags, tags: Tags;
    Join, join: JoinClocks;
    Devices, devices: Vec<(ResourceName, i64)>;
    Taints, taints: Vec<Taint>;
    Duration, duration: Option<SignedDuration>;
    Levels, levels: WantedLevels;
    Labels, labels: Option<BTreeMap<Arc<str>, Arc<str>>>;
}

impl From<Result<TemplateSpec, String>> for Answer {
    fn from(answer: Result<TemplateSpec, String>) -> Self {
        Self::Template(answer)
    }
}

impl Answer {
    fn template(&self) -> Option<Option<Result<TemplateSpec, String>>> {
        if let Self::Template(answer) = self { Some(Some(answer.clone())) } else { None }
    }
}

/// The question for labels of nodes.
fn labels_of(status: &BatchStatus) -> String {
    format!("labels {:?} {:?} {:?}", status.node_pool, status.instance_type, status.zone)
}

impl Supply for Listening<'_> {
    fn unready(&self, batch: &Batch) -> Option<String> {
        self.hear(format!("unready {}", batch.name), self.supply.unready(batch))
    }

    fn blocked_pool(&self, batch: &Batch) -> Option<String> {
        self.hear(format!("blocked_pool {}", batch.name), self.supply.blocked_pool(batch))
    }

    fn is_blocked_by(&self, pool: &str, batch: &str) -> bool {
        self.hear(format!("is_blocked_by {} {}", pool, batch), self.supply.is_blocked_by(pool, batch))
    }

    fn is_blocked(&self, pool: &str) -> bool {
        self.hear(format!("is_blocked {}", pool), self.supply.is_blocked(pool))
    }

    fn probes(&self, pool: &str) -> Probes {
        self.hear(format!("probes {}", pool), self.supply.probes(pool))
    }

    fn takes(&self, pool: &str, instance_type: &str) -> Option<Resources> {
        self.hear(format!("takes {} {}", pool, instance_type), self.supply.takes(pool, instance_type))
    }

    fn problems(&self, batch: &Batch) -> Vec<String> {
        self.hear(format!("problems {}", batch.name), self.supply.problems(batch))
    }

    fn generations(&self, batch: &Batch) -> String {
        self.hear(format!("generations {}", batch.name), self.supply.generations(batch))
    }

    fn rank(&self, batch: &Batch, others: &Working, before: Before, now: Timestamp) -> Ranking {
        self.hear(format!("rank {} {:?}", batch.name, before), self.supply.rank(batch, others, before, now))
    }

    fn rank_one(&self, batch: &Batch, pool: &str, others: &Working, now: Timestamp) -> Ranking {
        self.hear(format!("rank_one {} {}", batch.name, pool), self.supply.rank_one(batch, pool, others, now))
    }

    fn reservations_are_stale(&self, batch: &Batch, now: Timestamp) -> bool {
        self.hear(format!("reservations_are_stale {}", batch.name), self.supply.reservations_are_stale(batch, now))
    }

    fn image(&self, pool: &str, instance_type: &str) -> Option<String> {
        self.hear(format!("image {} {}", pool, instance_type), self.supply.image(pool, instance_type))
    }

    fn template(&self, batch: &Batch, attempt: &Attempt) -> Result<TemplateSpec, String> {
        self.hear(
            format!(
                "template {} {} {:?} {:?} {}",
                batch.name, attempt.number, attempt.instance_type, attempt.zone, attempt.node_pool
            ),
            self.supply.template(batch, attempt),
        )
    }

    fn share_template(&self, pool: &str, one: &str, other: &str) -> bool {
        self.hear(format!("share_template {pool} {one} {other}"), self.supply.share_template(pool, one, other))
    }

    fn labels(&self, status: &BatchStatus) -> Option<BTreeMap<Arc<str>, Arc<str>>> {
        self.hear(labels_of(status), self.supply.labels(status))
    }

    fn tags(&self, batch: &Batch, attempt: &Attempt) -> Tags {
        self.hear(
            format!(
                "tags {} {} {:?} {:?} {}",
                batch.name, attempt.number, attempt.instance_type, attempt.zone, attempt.node_pool
            ),
            self.supply.tags(batch, attempt),
        )
    }

    fn without_fleets(&self, now: Timestamp) -> bool {
        self.hear("without_fleets".to_owned(), self.supply.without_fleets(now))
    }

    fn join(&self, pool: Option<&str>) -> JoinClocks {
        self.hear(format!("join {:?}", pool), self.supply.join(pool))
    }

    fn devices(&self, status: &BatchStatus) -> Vec<(ResourceName, i64)> {
        self.hear(format!("devices {:?} {:?}", status.node_pool, status.instance_type), self.supply.devices(status))
    }

    fn taints(&self, pool: Option<&str>) -> Vec<Taint> {
        self.hear(format!("taints {:?}", pool), self.supply.taints(pool))
    }

    fn consolidate_after(&self, pool: Option<&str>) -> Option<SignedDuration> {
        self.hear(format!("consolidate_after {:?}", pool), self.supply.consolidate_after(pool))
    }

    fn foreign_pods_after(&self, pool: Option<&str>) -> Option<SignedDuration> {
        self.hear(format!("foreign_pods_after {:?}", pool), self.supply.foreign_pods_after(pool))
    }

    fn levels(&self, batch: &Batch) -> WantedLevels {
        self.hear(format!("levels {}", batch.name), self.supply.levels(batch))
    }

    fn has_request(&self, owner: &OwnerRef) -> bool {
        self.hear(format!("has_request {}", owner.uid), self.supply.has_request(owner))
    }

    fn blame(&self, pool: &str, kind: ErrorClass, code: Option<&str>, message: &str) -> Option<String> {
        self.hear(
            format!("blame {} {:?} {:?} {}", pool, kind, code, message),
            self.supply.blame(pool, kind, code, message),
        )
    }

    fn lacks(&self, pool: Option<&str>) -> Option<String> {
        self.hear(format!("lacks {:?}", pool), self.supply.lacks(pool))
    }
}

impl Supply for Recited<'_> {
    fn unready(&self, batch: &Batch) -> Option<String> {
        self.recite(format!("unready {}", batch.name), Answer::text)
    }

    fn blocked_pool(&self, batch: &Batch) -> Option<String> {
        self.recite(format!("blocked_pool {}", batch.name), Answer::text)
    }

    fn is_blocked_by(&self, pool: &str, batch: &str) -> bool {
        self.recite(format!("is_blocked_by {} {}", pool, batch), Answer::yes)
    }

    fn is_blocked(&self, pool: &str) -> bool {
        self.recite(format!("is_blocked {}", pool), Answer::yes)
    }

    fn probes(&self, pool: &str) -> Probes {
        self.recite(format!("probes {}", pool), Answer::probes)
    }

    fn takes(&self, pool: &str, instance_type: &str) -> Option<Resources> {
        self.recite(format!("takes {} {}", pool, instance_type), Answer::resources)
    }

    fn problems(&self, batch: &Batch) -> Vec<String> {
        self.recite(format!("problems {}", batch.name), Answer::texts)
    }

    fn generations(&self, batch: &Batch) -> String {
        self.recite(format!("generations {}", batch.name), Answer::word)
    }

    fn rank(&self, batch: &Batch, _others: &Working, before: Before, _now: Timestamp) -> Ranking {
        self.recite(format!("rank {} {:?}", batch.name, before), Answer::ranking)
    }

    fn rank_one(&self, batch: &Batch, pool: &str, _others: &Working, _now: Timestamp) -> Ranking {
        self.recite(format!("rank_one {} {}", batch.name, pool), Answer::ranking)
    }

    fn reservations_are_stale(&self, batch: &Batch, _now: Timestamp) -> bool {
        self.recite(format!("reservations_are_stale {}", batch.name), Answer::yes)
    }

    fn image(&self, pool: &str, instance_type: &str) -> Option<String> {
        self.recite(format!("image {} {}", pool, instance_type), Answer::text)
    }

    fn template(&self, batch: &Batch, attempt: &Attempt) -> Result<TemplateSpec, String> {
        self.recite(
            format!(
                "template {} {} {:?} {:?} {}",
                batch.name, attempt.number, attempt.instance_type, attempt.zone, attempt.node_pool
            ),
            Answer::template,
        )
        .unwrap_or_else(|| Err(String::new()))
    }

    fn share_template(&self, pool: &str, one: &str, other: &str) -> bool {
        self.recite(format!("share_template {pool} {one} {other}"), Answer::yes)
    }

    fn labels(&self, status: &BatchStatus) -> Option<BTreeMap<Arc<str>, Arc<str>>> {
        self.recite(labels_of(status), Answer::labels)
    }

    fn tags(&self, batch: &Batch, attempt: &Attempt) -> Tags {
        self.recite(
            format!(
                "tags {} {} {:?} {:?} {}",
                batch.name, attempt.number, attempt.instance_type, attempt.zone, attempt.node_pool
            ),
            Answer::tags,
        )
    }

    fn without_fleets(&self, _now: Timestamp) -> bool {
        self.recite("without_fleets".to_owned(), Answer::yes)
    }

    fn join(&self, pool: Option<&str>) -> JoinClocks {
        self.recite(format!("join {:?}", pool), Answer::join)
    }

    fn devices(&self, status: &BatchStatus) -> Vec<(ResourceName, i64)> {
        self.recite(format!("devices {:?} {:?}", status.node_pool, status.instance_type), Answer::devices)
    }

    fn taints(&self, pool: Option<&str>) -> Vec<Taint> {
        self.recite(format!("taints {:?}", pool), Answer::taints)
    }

    fn consolidate_after(&self, pool: Option<&str>) -> Option<SignedDuration> {
        self.recite(format!("consolidate_after {:?}", pool), Answer::duration)
    }

    fn foreign_pods_after(&self, pool: Option<&str>) -> Option<SignedDuration> {
        self.recite(format!("foreign_pods_after {:?}", pool), Answer::duration)
    }

    fn levels(&self, batch: &Batch) -> WantedLevels {
        self.recite(format!("levels {}", batch.name), Answer::levels)
    }

    fn has_request(&self, owner: &OwnerRef) -> bool {
        self.recite(format!("has_request {}", owner.uid), Answer::yes)
    }

    fn blame(&self, pool: &str, kind: ErrorClass, code: Option<&str>, message: &str) -> Option<String> {
        self.recite(format!("blame {} {:?} {:?} {}", pool, kind, code, message), Answer::text)
    }

    fn lacks(&self, pool: Option<&str>) -> Option<String> {
        self.recite(format!("lacks {:?}", pool), Answer::text)
    }
}
