//! Events people see with `kubectl describe gang` and `kubectl describe nodebatch`.

use std::hash::{Hash as _, Hasher as _};

use kube::Resource;
use kube::runtime::events::{Event, EventType, Recorder, Reporter};
use kube::{Client, api::ObjectMeta};
use muster_core::gang::GangEvent;
use tracing::debug;

/// Longest note the API server takes is 1,024 bytes; a longer one is cut.
const NOTE: usize = 1_000;

/// Writes events; failing to is never a reason to evict.
#[derive(Clone)]
pub struct Events {
    recorder: Recorder,
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
        let reporter = Reporter { controller: "muster".to_owned(), instance: None };
        Self { recorder: Recorder::new(client, reporter) }
    }

    /// Publishes one event on an object of ours.
    pub async fn publish<K>(&self, object: &K, event: &GangEvent)
    where
        K: Resource<DynamicType = ()>,
    {
        let mut note: String = event.message.chars().take(NOTE).collect();
        if note.is_empty() {
            event.reason.clone_into(&mut note);
        }
        // The recorder counts events of one reason and action as one and keeps the first note: another text must be
        // another action, or the code of a second attempt would never be shown.
        let mut hasher = std::hash::DefaultHasher::new();
        note.hash(&mut hasher);
        let action = format!("{}-{:016x}", event.reason, hasher.finish());
        let metadata: &ObjectMeta = object.meta();
        let published = self
            .recorder
            .publish(
                &Event {
                    type_: if event.warning { EventType::Warning } else { EventType::Normal },
                    reason: event.reason.to_owned(),
                    note: Some(note),
                    action,
                    secondary: None,
                },
                &object.object_ref(&()),
            )
            .await;
        if let Err(error) = published {
            debug!(object = metadata.name, %error, "event not written");
        }
    }
}
