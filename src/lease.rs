//! Who plans, releases and provisions: the lease, held by one replica.
//!
//! `kube-lease-manager` acquires and renews. What it does not do is added here: a holder that cannot renew steps down
//! when its lease has run out, a shutdown gives the lease up at once, and a replica in waiting notices a lease that was
//! given up without waiting for the end of its validity.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::coordination::v1::Lease as LeaseObject;
use kube::{Api, Client};
use kube_lease_manager::{LeaseManager, LeaseManagerBuilder, LeaseManagerError, LeaseParams};
use tokio::sync::watch;
use tokio::time::{Instant, MissedTickBehavior};
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;
use tracing::{debug, info, warn};

use crate::clock::now_real;
use crate::config::Lease;
use crate::progress::Beat;
use crate::term::Term;

/// The lease is looked at this often …
const LOOK: Duration = Duration::from_secs(1);
/// … and by who holds it and need not renew it soon, so often within its duration, and after this at the latest: it is nobody else's
/// before that is over, and each request costs milliseconds of a core.
const LOOKS: u32 = 5;
const REST: Duration = Duration::from_secs(3);
/// Longest wait for one answer of the API server.
const PATIENCE: Duration = Duration::from_secs(2);
/// Pause after an error of the manager.
const PAUSE: Duration = Duration::from_secs(1);

/// One replica's part in the election.
pub struct Election {
    client: Client,
    lease: Lease,
    identity: String,
    manager: Arc<LeaseManager>,
    leader: watch::Sender<Option<Term>>,
    /// Of the next time that the lease is won.
    next: Term,
    hold: fn(Option<Timestamp>),
    beat: Option<Beat>,
}

impl std::fmt::Debug for Election {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Election").field("identity", &self.identity).finish_non_exhaustive()
    }
}

/// A task of its own, so that an answer that is waited for in the meantime delays no renewal.
type Change = AbortOnDropHandle<Result<bool, LeaseManagerError>>;

impl Election {
    /// Reads the lease, or creates it. The receiver has the term in which this replica holds it; `None`: it does not.
    ///
    /// Errors: the lease can be neither read nor created; the message says what is missing.
    pub async fn new(
        client: Client,
        lease: &Lease,
        identity: String,
    ) -> anyhow::Result<(Self, watch::Receiver<Option<Term>>)> {
        let manager = manager(&client, lease, &identity)
            .await
            .with_context(|| format!("read lease {}/{}", lease.namespace, lease.name))?;
        let (leader, receiver) = watch::channel(None);
        Ok((
            Self {
                client,
                lease: lease.clone(),
                identity,
                manager: Arc::new(manager),
                leader,
                next: Term::default(),
                hold: |_| {},
                beat: None,
            },
            receiver,
        ))
    }

    /// Who is informed until when this replica may act as the holder, and, each time the loop goes round, that it does.
    #[must_use]
    pub fn telling(mut self, hold: fn(Option<Timestamp>), beat: Beat) -> Self {
        hold(None);
        self.hold = hold;
        self.beat = Some(beat);
        self
    }

    /// Takes part until cancelled; then the lease is given up, if it is ours.
    pub async fn run(mut self, cancel: CancellationToken) -> anyhow::Result<()> {
        let mut change = self.change();
        let mut look = tokio::time::interval(LOOK);
        look.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut valid_until: Option<Timestamp> = None;
        let mut read = Instant::now();
        loop {
            if let Some(beat) = &self.beat {
                beat.beat();
            }
            tokio::select! {
                () = cancel.cancelled() => break,
                changed = &mut change => {
                    match changed.context("the election")? {
                        Ok(true) => {
                            // How long it is valid says only what was written: this process may have been stopped since.
                            if let Some(Seen::Ours(until)) = self.read().await {
                                read = Instant::now();
                                valid_until = Some(until);
                                (self.hold)(valid_until);
                                if until > now_real() {
                                    self.tell(true);
                                }
                            }
                        }
                        Ok(false) => self.tell(false),
                        Err(error) => {
                            warn!(error = %error, "the lease can be neither read nor written");
                            tokio::select! {
                                () = cancel.cancelled() => break,
                                () = tokio::time::sleep(PAUSE) => {}
                            }
                        }
                    }
                    change = self.change();
                }
                _ = look.tick() => {
                    let leads = self.leader.borrow().is_some();
                    let left = valid_until.filter(|_| leads).map(|until| until.duration_since(now_real()));
                    let asked = Instant::now();
                    let seen = if rests(&self.lease, left, read.elapsed()) { None } else { self.read().await };
                    if seen.is_some() {
                        read = asked;
                    }
                    match seen {
                        Some(Seen::Ours(until)) => {
                            valid_until = Some(until);
                            (self.hold)(valid_until);
                            // The manager renewed it again after this replica had stepped down, and has no news of it.
                            if until > now_real() {
                                self.tell(true);
                            }
                        }
                        // Given up by its holder, or cleared: it is anybody's, and the manager would sleep to the end of the
                        // old validity.
                        Some(Seen::Free) => {
                            valid_until = None;
                            if !leads && self.renew_manager().await {
                                change = self.change();
                            }
                        }
                        // Whoever took it plans already.
                        Some(Seen::Theirs) => valid_until = None,
                        None => {}
                    }
                    if self.leader.borrow().is_some() && valid_until.is_none_or(|until| now_real() >= until) {
                        warn!("the lease could not be renewed in time");
                        self.tell(false);
                        if self.renew_manager().await {
                            change = self.change();
                        }
                    }
                }
            }
        }
        // Nobody acts on it any more before somebody else may take it, and nothing is under way that would take it again.
        change.abort();
        if !change.is_finished() {
            let _ = change.await;
        }
        let led = self.leader.send_replace(None).is_some();
        (self.hold)(None);
        if led {
            match tokio::time::timeout(PATIENCE, self.manager.release()).await {
                Ok(Ok(())) => info!("the lease is given up"),
                Ok(Err(error)) => warn!(%error, "the lease was not given up; it runs out"),
                Err(_) => warn!("the lease was not given up in time; it runs out"),
            }
        }
        Ok(())
    }

    /// Whether the manager could be made again.
    async fn renew_manager(&mut self) -> bool {
        match tokio::time::timeout(PATIENCE, manager(&self.client, &self.lease, &self.identity)).await {
            Ok(Ok(fresh)) => {
                self.manager = Arc::new(fresh);
                true
            }
            Ok(Err(error)) => {
                debug!(%error, "the lease cannot be read");
                false
            }
            Err(_) => {
                debug!("the lease cannot be read: no answer");
                false
            }
        }
    }

    fn change(&self) -> Change {
        let manager = Arc::clone(&self.manager);
        AbortOnDropHandle::new(tokio::spawn(async move { manager.changed().await }))
    }

    fn tell(&mut self, leads: bool) {
        if !leads {
            (self.hold)(None);
        }
        let next = self.next;
        let changed = self.leader.send_if_modified(|now| {
            let changes = now.is_some() != leads;
            if changes {
                *now = leads.then_some(next);
            }
            changes
        });
        if changed && leads {
            self.next = next.next();
        }
        match (changed, leads) {
            (true, true) => info!(identity = self.identity, "holds the lease: plans, releases and provisions"),
            (true, false) => warn!(identity = self.identity, "lost the lease: answers the extender only"),
            (false, _) => {}
        }
    }

    async fn read(&self) -> Option<Seen> {
        let leases: Api<LeaseObject> = Api::namespaced(self.client.clone(), &self.lease.namespace);
        // A lease that lasts can wait for an API server that is busy: whoever holds it and cannot read so does not lead.
        let patience = PATIENCE.max(Duration::from_secs(self.lease.duration_seconds) / 3);
        let lease = tokio::time::timeout(patience, leases.get(&self.lease.name)).await.ok()?.ok()?;
        let spec = lease.spec.unwrap_or_default();
        match spec.holder_identity.as_deref() {
            None | Some("") => Some(Seen::Free),
            Some(holder) if holder == self.identity => {
                Some(Seen::Ours(self.validity(spec.renew_time.map(|time| time.0)?)))
            }
            Some(_) => Some(Seen::Theirs),
        }
    }

    fn validity(&self, renewed: Timestamp) -> Timestamp {
        let seconds = i64::try_from(self.lease.duration_seconds).unwrap_or(i64::MAX);
        renewed.saturating_add(SignedDuration::from_secs(seconds)).unwrap_or(Timestamp::MAX)
    }
}

/// Whether the holder of a lease that is valid for so long yet (`None`: somebody else may hold it), who has read it that long ago, need
/// not read it.
fn rests(lease: &Lease, left: Option<SignedDuration>, since: Duration) -> bool {
    let renewed = SignedDuration::try_from(Duration::from_secs(lease.grace_seconds)).unwrap_or(SignedDuration::MAX);
    let rest = REST.min(Duration::from_secs(lease.duration_seconds) / LOOKS);
    left.is_some_and(|left| left > renewed) && since + LOOK / 2 < rest
}

/// What the lease says.
enum Seen {
    Free,
    /// Valid until then.
    Ours(Timestamp),
    Theirs,
}

async fn manager(client: &Client, lease: &Lease, identity: &str) -> Result<LeaseManager, LeaseManagerError> {
    LeaseManagerBuilder::new(client.clone(), lease.name.as_str())
        .with_namespace(lease.namespace.as_str())
        .with_parameters(LeaseParams::new(identity, lease.duration_seconds, lease.grace_seconds))
        .build()
        .await
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use std::convert::Infallible;

    use http::{Request, Response};
    use kube::client::Body;
    use serde_json::json;
    use tokio::sync::mpsc;

    use super::*;

    #[test]
    fn a_holder_reads_its_lease_thrice_a_renewal_and_each_second_once_it_is_about_to_run_out_and_others_always_do() {
        let (name, namespace) = ("muster".to_owned(), "muster-system".to_owned());
        let lease = Lease { name, namespace, duration_seconds: 15, grace_seconds: 5 };
        let after = |left: Option<i64>| {
            let left = left.map(SignedDuration::from_secs);
            (1..=15).find(|seconds| !rests(&lease, left, Duration::from_millis(seconds * 1000 - 10))).unwrap()
        };
        assert_eq!((after(Some(15)), after(Some(6))), (3, 3), "seconds between two reads");
        assert_eq!((after(Some(5)), after(Some(0)), after(Some(-9)), after(None)), (1, 1, 1, 1));
        let long = Lease { duration_seconds: 3600, ..lease.clone() };
        assert!(
            !rests(&long, Some(SignedDuration::from_secs(3000)), Duration::from_secs(3)),
            "however long it is valid"
        );
        let short = Lease { duration_seconds: 2, grace_seconds: 1, ..lease.clone() };
        assert!(
            !rests(&short, Some(SignedDuration::from_secs(2)), Duration::from_millis(990)),
            "each time it is looked at"
        );
    }

    #[tokio::test]
    async fn the_lease_is_taken_and_renewed_while_the_loop_waits_for_another_answer() {
        let (sent, mut written) = mpsc::unbounded_channel();
        let service = tower::service_fn(move |request: Request<Body>| {
            if *request.method() == http::Method::PATCH {
                let _ = sent.send(());
            }
            let lease = json!({
                "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
                "metadata": {"name": "muster", "namespace": "muster-system"}, "spec": {},
            });
            async move { Ok::<_, Infallible>(Response::new(Body::from(lease.to_string().into_bytes()))) }
        });
        let (name, namespace) = ("muster".to_owned(), "muster-system".to_owned());
        let lease = Lease { name, namespace, duration_seconds: 15, grace_seconds: 5 };
        let client = Client::new(service, "muster-system");
        let (election, _leads) = Election::new(client, &lease, "first".to_owned()).await.unwrap();
        // Nobody asks what has changed.
        let change = election.change();
        tokio::time::timeout(Duration::from_secs(60), written.recv()).await.unwrap().unwrap();
        drop(change);
    }
}
