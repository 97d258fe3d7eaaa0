//! Terms of the lease: what was decided in one is not done in another.

use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

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

/// States in `current` each term of the lease once `seen` has ended, which waits for what was written before it. The term stays
/// stated; who reads it compares it with the one that is.
///
/// Errors: none; it ends with `cancel`.
pub async fn follow<Seen: Future<Output = ()>>(
    mut leader: watch::Receiver<Option<Term>>,
    current: watch::Sender<Option<Term>>,
    seen: impl Fn() -> Seen,
    cancel: CancellationToken,
) -> anyhow::Result<()> {
    let terms = async {
        loop {
            // An election that has ended has nobody lead.
            let Ok(term) = leader.wait_for(Option::is_some).await.map(|term| *term) else {
                return std::future::pending().await;
            };
            let mut ends = leader.clone();
            tokio::select! {
                another = async { ends.wait_for(|now| *now != term).await.is_ok() } => {
                    if another {
                        continue;
                    }
                    return std::future::pending().await;
                }
                () = seen() => {}
            }
            current.send_replace(term);
            if leader.wait_for(|now| *now != term).await.is_err() {
                return std::future::pending().await;
            }
        }
    };
    tokio::select! {
        () = cancel.cancelled() => Ok(()),
        () = terms => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use std::sync::Arc;

    use tokio::sync::{Semaphore, mpsc};

    use super::*;

    #[tokio::test]
    async fn each_term_is_stated_once_everything_before_it_is_seen_and_none_that_ended_before() {
        let (lead, leader) = watch::channel(None);
        let (current, mut stated) = watch::channel(None);
        let (asks, mut asked) = mpsc::unbounded_channel();
        let shown = Arc::new(Semaphore::new(0));
        let seen = {
            let shown = Arc::clone(&shown);
            move || {
                asks.send(()).unwrap();
                let shown = Arc::clone(&shown);
                async move { shown.acquire().await.unwrap().forget() }
            }
        };
        let followed = tokio::spawn(follow(leader, current, seen, CancellationToken::new()));
        let first = Term::default();
        lead.send_replace(Some(first));
        asked.recv().await.unwrap();
        assert_eq!(*stated.borrow(), None, "nothing was seen yet");
        // The lease is lost before it is, and won again: that is asked about by itself.
        lead.send_replace(Some(first.next()));
        asked.recv().await.unwrap();
        assert_eq!(*stated.borrow(), None);
        shown.add_permits(1);
        assert_eq!(*stated.wait_for(Option::is_some).await.unwrap(), Some(first.next()));
        lead.send_replace(None);
        lead.send_replace(Some(first.next().next()));
        asked.recv().await.unwrap();
        assert_eq!(*stated.borrow(), Some(first.next()), "the one before, which is not the one that is");
        followed.abort();
    }
}
