//! Events people see with `kubectl describe` of a Gang, its owner, a NodeBatch, a NodePool.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use k8s_openapi::api::core::v1::ObjectReference;
use kube::runtime::events::{Event, EventType, Recorder, Reporter};
use kube::{Client, Resource};
use muster_core::gang::GangEvent;
use tokio::time::Instant;
use tracing::debug;

/// Longest note the API server takes, in bytes; a longer one is cut. Source: `NoteLengthLimit` in `ValidateEventCreate`.
const NOTE: usize = 1_024;
/// What is done about an object, in the word of kube-scheduler.
const ACTION: &str = "Scheduling";
/// An event that is not repeated within this is a new one. Source: what a recorder of Kubernetes remembers.
const REMEMBERED: Duration = Duration::from_secs(360);

/// Writes events; failing to is never a reason to evict.
#[derive(Clone)]
pub struct Events {
    client: Client,
    /// A recorder counts events of one reason and action on one object as one and keeps the first note, so that the code of a
    /// second attempt would never be shown. Each text therefore has a recorder of its own, as long as it may be repeated.
    recorders: Arc<Mutex<BTreeMap<u64, (Instant, Recorder)>>>,
}

impl std::fmt::Debug for Events {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Events").finish_non_exhaustive()
    }
}

impl Events {
    /// Events reported by `muster`.
    #[must_use]
    pub fn new(client: Client) -> Self {
        Self { client, recorders: Arc::default() }
    }

    /// Publishes one event on an object of ours.
    pub async fn publish<K>(&self, object: &K, event: &GangEvent)
    where
        K: Resource<DynamicType = ()>,
    {
        let about = object.object_ref(&());
        let mut hasher = DefaultHasher::new();
        (note(event), event.reason, &about.uid).hash(&mut hasher);
        write(&self.recorder(hasher.finish()), &about, None, event).await;
    }

    /// Publishes a change on any object, with the object that changed: an event of its own each time. A reason that comes back is another
    /// event than the first one, and no repetition of it.
    pub async fn publish_change(&self, object: &ObjectReference, related: ObjectReference, event: &GangEvent) {
        write(&self.new_recorder(), object, Some(related), event).await;
    }

    fn new_recorder(&self) -> Recorder {
        Recorder::new(self.client.clone(), Reporter { controller: "muster".to_owned(), instance: None })
    }

    fn recorder(&self, text: u64) -> Recorder {
        let now = Instant::now();
        let mut recorders = self.recorders.lock().unwrap_or_else(PoisonError::into_inner);
        recorders.retain(|_, (used, _)| now.duration_since(*used) < REMEMBERED);
        let (used, recorder) = recorders.entry(text).or_insert_with(|| (now, self.new_recorder()));
        *used = now;
        recorder.clone()
    }
}

async fn write(recorder: &Recorder, object: &ObjectReference, related: Option<ObjectReference>, event: &GangEvent) {
    let published = recorder
        .publish(
            &Event {
                type_: if event.warning { EventType::Warning } else { EventType::Normal },
                reason: event.reason.to_owned(),
                note: Some(note(event).to_owned()),
                action: ACTION.to_owned(),
                secondary: related,
            },
            object,
        )
        .await;
    if let Err(error) = published {
        debug!(object = object.name, %error, "event not written");
    }
}

/// What the event says; its reason, where that is nothing.
fn note(event: &GangEvent) -> &str {
    if event.message.is_empty() { event.reason } else { cut(&event.message) }
}

/// As much of a note as the API server takes, cut between characters.
fn cut(note: &str) -> &str {
    &note[..note.floor_char_boundary(NOTE)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_note_is_cut_by_bytes_and_between_characters() {
        assert_eq!(cut("limit 64 → 80"), "limit 64 → 80");
        let arrows = "→".repeat(400);
        assert_eq!(cut(&arrows).len(), 1_023, "341 whole arrows of three bytes");
        let full = "x".repeat(NOTE);
        assert_eq!(cut(&full), full);
        assert_eq!(cut(&format!("{full}y")), full);
    }
}
