//! Whose turn it is when one reading takes several calls: pages, parts of a long list of ids, the rest after unknown ones.

use std::fmt::Debug;
use std::pin::Pin;

/// A wait for a turn.
pub type Turn<'a> = Pin<Box<dyn Future<Output = ()> + Send + 'a>>;

/// Says when a call may be sent. The caller of a method has the turn of its first call; each further one is asked for here.
pub trait Pace: Debug + Send + Sync {
    /// Waits until one further call of this operation may be sent.
    fn further(&self, operation: &'static str) -> Turn<'_>;
}

/// The turns of the calls of one reading.
pub(crate) struct Turns<'a> {
    pace: Option<&'a dyn Pace>,
    operation: &'static str,
    first: bool,
}

impl<'a> Turns<'a> {
    /// Of a reading whose first call has a turn already.
    pub(crate) fn of(pace: Option<&'a dyn Pace>, operation: &'static str) -> Self {
        Self { pace, operation, first: true }
    }

    /// The same, where a call of another operation came before.
    pub(crate) fn further(self) -> Self {
        Self { first: false, ..self }
    }

    /// Before each call.
    pub(crate) async fn next(&mut self) {
        if std::mem::take(&mut self.first) {
            return;
        }
        if let Some(pace) = self.pace {
            pace.further(self.operation).await;
        }
    }
}
