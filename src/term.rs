//! Terms of the lease: what was decided in one is not done in another.

use tokio::sync::watch;

/// One of the times that this replica holds the lease, numbered from the start of the process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Term(u64);

impl Term {
    /// The one after this.
    #[must_use]
    pub fn next(self) -> Self {
        Self(self.0.wrapping_add(1))
    }
}

/// A replica's hold of the lease, as it was when some work was decided. What waits for its turn is not done in a later term: somebody
/// else may have led in between.
#[derive(Clone, Debug)]
pub struct Tenure {
    election: watch::Receiver<Option<Term>>,
    term: Term,
}

impl Tenure {
    /// The hold of this moment; `None`: the replica does not have the lease.
    #[must_use]
    pub fn of(election: &watch::Receiver<Option<Term>>) -> Option<Self> {
        let term = (*election.borrow())?;
        Some(Self { election: election.clone(), term })
    }

    /// Whether the lease was not lost since, not even for a moment.
    #[must_use]
    pub fn lasts(&self) -> bool {
        *self.election.borrow() == Some(self.term)
    }

    /// Its term.
    #[must_use]
    pub fn term(&self) -> Term {
        self.term
    }
}
