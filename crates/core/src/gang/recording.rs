//! One pass with everything it looked at: read back and decided again, it must come out the same, byte for byte.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::memory::Memory;
use super::offers::{Offer, PoolView};
use super::{Action, BatchView, Pass, Settings, World, pass};
use crate::model::event::GangEvent;
use crate::model::gang::{Gang, Pod, Recognised};
use crate::model::names::{NodeName, ObjectKey, PodUid};
use crate::model::snapshot::Snapshot;
use crate::topology::Levels;

/// A [`World`] of its own, to keep and to write down. A copy is cheap: the maps of the snapshot are shared.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RecordedWorld {
    #[serde(with = "crate::model::written")]
    snapshot: Snapshot,
    levels: Levels,
    pools: Arc<[PoolView]>,
    batches: Arc<BTreeMap<Arc<str>, BatchView>>,
    lost: BTreeSet<NodeName>,
    ending: BTreeSet<ObjectKey>,
    #[serde(with = "crate::model::pairs")]
    bookings: BTreeMap<ObjectKey, Arc<str>>,
    memory: Memory,
    settings: Settings,
    now: Timestamp,
}

impl RecordedWorld {
    /// What a pass looks at, kept.
    #[must_use]
    pub fn of(world: &World<'_>) -> Self {
        Self {
            snapshot: world.snapshot.clone(),
            levels: world.levels.clone(),
            pools: world.pools.into(),
            batches: Arc::new(world.batches.clone()),
            lost: world.lost.clone(),
            ending: world.ending.clone(),
            bookings: world.bookings.clone(),
            memory: world.memory.clone(),
            settings: world.settings.clone(),
            now: world.now,
        }
    }

    /// The moment of the pass.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        self.now
    }

    /// Decides, by the very function the server calls.
    #[must_use]
    pub fn decide(&self) -> Decided {
        Decided::of(&pass(&World {
            snapshot: &self.snapshot,
            levels: &self.levels,
            pools: &self.pools,
            batches: &self.batches,
            lost: &self.lost,
            ending: &self.ending,
            bookings: &self.bookings,
            memory: &self.memory,
            settings: &self.settings,
            now: self.now,
        }))
    }
}

/// What a pass decided, for people and programs: every action in its order, with its reasons.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Decided {
    /// In the order they are carried out.
    pub actions: Vec<DecidedAction>,
    /// Plans the checker refused.
    pub refused_plans: Vec<(ObjectKey, Vec<String>)>,
    /// When it is looked at again at the latest.
    pub requeue_at: Option<Timestamp>,
}

/// One action.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "action", rename_all = "camelCase", rename_all_fields = "camelCase")]
#[expect(missing_docs, reason = "the fields are those of the action with the same name")]
pub enum DecidedAction {
    /// A Gang object is created.
    CreateGang { recognised: Arc<Recognised> },
    /// A Gang's status: its phase, its plan, and why it waits.
    WriteStatus { next: Box<Gang>, event: Option<GangEvent>, also: Vec<GangEvent> },
    /// Nodes are provisioned.
    CreateBatch {
        gang: ObjectKey,
        round: u32,
        offers: Vec<Offer>,
        placement_group: Option<Arc<str>>,
        zones: Vec<Arc<str>>,
    },
    /// A NodeBatch is given up.
    AbandonBatch { name: Arc<str> },
    /// A member goes to kube-scheduler.
    Release {
        pod: ObjectKey,
        uid: PodUid,
        epoch: u64,
        node: NodeName,
        tolerate: Vec<Arc<str>>,
        #[serde(skip_serializing_if = "std::ops::Not::not")]
        pin: bool,
    },
    /// A member is evicted.
    Evict { pod: ObjectKey, uid: PodUid, why: String, at_once: bool },
    /// A member's condition.
    Report { pod: ObjectKey, uid: PodUid, reason: &'static str, message: String },
    /// A pod of no gang goes to kube-scheduler.
    Ungate { uid: PodUid },
    /// A pod of no gang is brought back to kube-scheduler's attention.
    Requeue { pod: ObjectKey, uid: PodUid },
    /// A member's nomination is taken back.
    ClearNomination { pod: ObjectKey, uid: PodUid },
    /// A Gang object is deleted.
    DeleteGang { gang: ObjectKey },
}

impl Decided {
    /// What a pass decided.
    #[must_use]
    pub fn of(pass: &Pass) -> Self {
        Self {
            actions: pass.actions.iter().map(DecidedAction::of).collect(),
            refused_plans: pass.refused_plans.clone(),
            requeue_at: pass.requeue_at,
        }
    }
}

impl DecidedAction {
    fn of(action: &Action) -> Self {
        let named = |pod: &Pod| (pod.key.clone(), pod.uid.clone());
        match action {
            Action::CreateGang(recognised) => Self::CreateGang { recognised: Arc::clone(recognised) },
            Action::WriteStatus(write) => Self::WriteStatus {
                next: Box::new(write.next.clone()),
                event: write.event.clone(),
                also: write.also.clone(),
            },
            Action::CreateBatch(batch) => Self::CreateBatch {
                gang: batch.gang.key.clone(),
                round: batch.round,
                offers: batch.offers.clone(),
                placement_group: batch.placement_group.clone(),
                zones: batch.zones.clone(),
            },
            Action::AbandonBatch { name, why: _ } => Self::AbandonBatch { name: Arc::clone(name) },
            Action::Release(release) => {
                let (pod, uid) = named(&release.pod);
                let (epoch, node, tolerate) = (release.epoch, release.node.clone(), release.tolerate.clone());
                Self::Release { pod, uid, epoch, node, tolerate, pin: release.pin }
            }
            Action::Evict(evict) => {
                let (pod, uid) = named(&evict.pod);
                Self::Evict { pod, uid, why: evict.why.clone(), at_once: evict.at_once }
            }
            Action::Report(report) => {
                let (pod, uid) = named(&report.pod);
                Self::Report { pod, uid, reason: report.reason, message: report.message.clone() }
            }
            Action::Ungate { uid } => Self::Ungate { uid: uid.clone() },
            Action::Requeue { pod } => {
                let (pod, uid) = named(pod);
                Self::Requeue { pod, uid }
            }
            Action::ClearNomination { pod } => {
                let (pod, uid) = named(pod);
                Self::ClearNomination { pod, uid }
            }
            Action::DeleteGang { gang } => Self::DeleteGang { gang: gang.key.clone() },
        }
    }
}
