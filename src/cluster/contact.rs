//! When each watch last heard from the API server.
//!
//! A watch that is silent looks like a cluster in which nothing happens. Bytes on its connection are the proof that it
//! lives: events, bookmarks, and the answer to a request that opens it again, which happens before it could count as
//! old (`scheduling.md` 3.7, `state.maxAge`).

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use http::{Request, Response};
use http_body::{Frame, SizeHint};
use kube::client::Body;
use tower::{Layer, Service};

/// Last contact by kind.
#[derive(Debug)]
pub struct Contacts {
    started: Instant,
    max_age: Duration,
    kinds: Vec<(&'static str, AtomicU64)>,
}

/// A watch is opened again after this at the latest.
const REOPEN: Duration = Duration::from_secs(6);
/// A connection that owes a byte for longer is dead.
const SILENCE: Duration = Duration::from_secs(9);
/// Of a kind that nobody waits for, until it is heard from.
const NEVER: u64 = u64::MAX;

impl Contacts {
    /// All `kinds` count as heard from now, and `others` from when they are.
    #[must_use]
    pub fn new(kinds: &[&'static str], others: &[&'static str], max_age: Duration) -> Self {
        let kinds = kinds.iter().map(|kind| (*kind, AtomicU64::new(0)));
        let others = others.iter().map(|kind| (*kind, AtomicU64::new(NEVER)));
        Self { started: Instant::now(), max_age, kinds: kinds.chain(others).collect() }
    }

    /// A kind whose watch was last heard from longer ago than `state.maxAge`.
    #[must_use]
    pub fn stale(&self) -> Option<&'static str> {
        let now = self.now();
        let oldest = u64::try_from(self.max_age.as_millis()).unwrap_or(u64::MAX);
        let stale = |heard: &AtomicU64| now.saturating_sub(heard.load(Ordering::Relaxed)) > oldest;
        self.kinds.iter().find(|(_, heard)| stale(heard)).map(|(kind, _)| *kind)
    }

    /// Time since the contact that is longest ago.
    #[must_use]
    pub fn age(&self) -> Duration {
        let now = self.now();
        let ages = self.kinds.iter().map(|(_, heard)| now.saturating_sub(heard.load(Ordering::Relaxed)));
        Duration::from_millis(ages.max().unwrap_or(0))
    }

    /// Longest time that one watch request stays open. Its end is the proof that the connection lives where nothing
    /// happens: the API server's bookmarks come once a minute.
    #[must_use]
    pub fn reopen(&self) -> Duration {
        self.max_age.mul_f32(0.6).min(REOPEN)
    }

    /// Longest silence on a connection before it counts as dead.
    #[must_use]
    pub fn silence(&self) -> Duration {
        self.max_age.mul_f32(0.8).min(SILENCE)
    }

    fn heard(&self, kind: usize) {
        if let Some((_, heard)) = self.kinds.get(kind) {
            heard.store(self.now(), Ordering::Relaxed);
        }
    }

    fn now(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    /// The kind a path lists or watches: its last segment.
    fn kind_of(&self, path: &str) -> Option<usize> {
        let last = path.rsplit('/').next()?;
        self.kinds.iter().position(|(kind, _)| *kind == last)
    }
}

/// Notes contact on every answer that passes.
#[derive(Clone, Debug)]
pub(super) struct ContactLayer(pub(super) Arc<Contacts>);

impl<S> Layer<S> for ContactLayer {
    type Service = Noting<S>;

    fn layer(&self, inner: S) -> Noting<S> {
        Noting { inner, contacts: Arc::clone(&self.0) }
    }
}

/// See [`ContactLayer`].
#[derive(Clone, Debug)]
pub(super) struct Noting<S> {
    inner: S,
    contacts: Arc<Contacts>,
}

impl<S, B> Service<Request<Body>> for Noting<S>
where
    S: Service<Request<Body>, Response = Response<B>>,
    S::Future: Send + 'static,
{
    type Response = Response<NotedBody<B>>;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, S::Error>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let kind = self.contacts.kind_of(request.uri().path());
        let contacts = Arc::clone(&self.contacts);
        let answer = self.inner.call(request);
        Box::pin(async move {
            let answer = answer.await?;
            // A refusal is an answer, but no news of the kind.
            let kind = kind.filter(|_| answer.status().is_success());
            if let Some(kind) = kind {
                contacts.heard(kind);
            }
            Ok(answer.map(|body| NotedBody { body, kind, contacts }))
        })
    }
}

/// A body that notes each of its frames.
#[derive(Debug)]
pub(super) struct NotedBody<B> {
    body: B,
    kind: Option<usize>,
    contacts: Arc<Contacts>,
}

impl<B: http_body::Body + Unpin> http_body::Body for NotedBody<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        let polled = Pin::new(&mut self.body).poll_frame(context);
        if let (Poll::Ready(Some(Ok(_))), Some(kind)) = (&polled, self.kind) {
            self.contacts.heard(kind);
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kind_is_stale_when_nothing_was_heard_of_it_for_too_long() {
        let mut contacts = Contacts::new(&["pods", "nodes"], &["jobs"], Duration::from_secs(150));
        assert_eq!(contacts.stale(), None);
        let Some(earlier) = Instant::now().checked_sub(Duration::from_secs(200)) else { return };
        contacts.started = earlier;
        assert_eq!(contacts.stale(), Some("pods"));
        contacts.heard(0);
        assert_eq!(contacts.stale(), Some("nodes"));
        assert!(contacts.age() >= Duration::from_secs(150));
        contacts.heard(1);
        assert_eq!(contacts.stale(), None);
    }

    #[test]
    fn a_dead_connection_is_noticed_within_ten_seconds_and_a_quiet_one_is_none() {
        for max_age in [2, 10, 150, 3_600] {
            let contacts = Contacts::new(&["pods"], &[], Duration::from_secs(max_age));
            assert!(contacts.silence() < Duration::from_secs(10), "{max_age}");
            assert!(contacts.reopen() < contacts.silence(), "{max_age}");
            assert!(contacts.silence() < Duration::from_secs(max_age), "before the kind is stale: {max_age}");
        }
    }

    #[test]
    fn lists_and_watches_are_distinguished_by_their_path() {
        let contacts = Contacts::new(&["pods", "gangs"], &[], Duration::from_secs(1));
        assert_eq!(contacts.kind_of("/api/v1/pods"), Some(0));
        assert_eq!(contacts.kind_of("/apis/muster.dev/v1alpha1/gangs"), Some(1));
        assert_eq!(contacts.kind_of("/api/v1/namespaces/ml/pods/train-0"), None);
        assert_eq!(contacts.kind_of("/apis/muster.dev/v1alpha1"), None);
    }
}
