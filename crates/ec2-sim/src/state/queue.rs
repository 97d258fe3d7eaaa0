//! The queue of events, with visibility timeouts and retention in virtual time.

use jiff::Timestamp;

use crate::clock::{later, seconds};

/// Messages in the order they were sent.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    messages: Vec<Message>,
}

/// A message.
#[derive(Debug, Clone)]
pub(crate) struct Message {
    pub(crate) id: String,
    pub(crate) body: String,
    pub(crate) sent_at: Timestamp,
    visible_at: Timestamp,
    pub(crate) received: u32,
    pub(crate) first_received_at: Option<Timestamp>,
    /// Of its last receipt.
    pub(crate) receipt: Option<String>,
}

impl Queue {
    pub(crate) fn send(&mut self, id: String, body: String, sent_at: Timestamp, visible_at: Timestamp) {
        self.messages.push(Message {
            id,
            body,
            sent_at,
            visible_at,
            received: 0,
            first_received_at: None,
            receipt: None,
        });
    }

    /// Drops what is older than the retention.
    pub(crate) fn expire(&mut self, retention_seconds: u32, now: Timestamp) {
        let life = seconds(f64::from(retention_seconds));
        self.messages.retain(|m| later(m.sent_at, life) > now);
    }

    /// Whether a message waits.
    pub(crate) fn ready(&self, now: Timestamp) -> bool {
        self.messages.iter().any(|m| m.visible_at <= now)
    }

    /// Messages there are, hidden ones included.
    pub(crate) fn len(&self) -> usize {
        self.messages.len()
    }

    /// Takes up to `most` messages, the first to become visible first, and hides them until `until`.
    pub(crate) fn receive(
        &mut self,
        most: usize,
        now: Timestamp,
        until: Timestamp,
        mut receipt: impl FnMut() -> String,
    ) -> Vec<Message> {
        let mut ready: Vec<&mut Message> = self.messages.iter_mut().filter(|m| m.visible_at <= now).collect();
        ready.sort_by_key(|m| m.visible_at);
        let mut taken = Vec::new();
        for message in ready.into_iter().take(most) {
            message.received += 1;
            message.first_received_at.get_or_insert(now);
            message.receipt = Some(receipt());
            message.visible_at = until;
            taken.push(message.clone());
        }
        taken
    }

    /// Deletes the message of a receipt; an old receipt deletes nothing, and that is no error.
    pub(crate) fn delete(&mut self, receipt: &str) {
        self.messages.retain(|m| m.receipt.as_deref() != Some(receipt));
    }
}
