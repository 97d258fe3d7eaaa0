//! When each watch last heard from the API server.
//!
//! A watch that is silent looks like a cluster in which nothing happens. Bytes on its connection are the proof that it
//! lives: events, bookmarks, and the answer to a request that opens it again, which happens before it could count as
//! old (`state.maxAge` in `docs/operations.md`).

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use http::{Request, Response};
use http_body::{Frame, SizeHint};
use kube::client::Body;
use muster_api::conventions::Kind;
use muster_replay::kinds;
use tokio::sync::watch as channel;
use tokio::time::Instant;
use tower::{Layer, Service};

use super::current::Versions;

/// Last contact by kind, and how far the watches have come.
#[derive(Debug)]
pub struct Contacts {
    started: Instant,
    max_age: Duration,
    kinds: Vec<Followed>,
    reached: channel::Sender<Versions>,
}

/// A kind whose lists and watches are noted.
#[derive(Debug)]
struct Followed {
    group: &'static str,
    plural: &'static str,
    /// In milliseconds since the start.
    heard: AtomicU64,
    /// Nothing is decided once it is too old.
    counts: AtomicBool,
}

/// A watch is opened again after this at the latest.
const REOPEN: Duration = Duration::from_secs(6);
/// A connection that owes a byte for longer is dead.
const SILENCE: Duration = Duration::from_secs(9);
/// Of a kind that nobody waits for, until it is heard from.
const NEVER: u64 = u64::MAX;

impl Contacts {
    /// All `kinds` count as heard from now. Owners and groups are noted from when they are heard from; of these, every cluster
    /// serves Jobs, and the others are left alone where they cannot be watched.
    #[must_use]
    pub fn new(kinds: &[&'static str], owners: &[Kind], max_age: Duration) -> Self {
        let kinds = kinds.iter().map(|plural| Followed {
            group: group_of(plural),
            plural,
            heard: AtomicU64::new(0),
            counts: AtomicBool::new(true),
        });
        let owners = owners.iter().map(|kind| Followed {
            group: kind.served().group,
            plural: kind.served().plural,
            heard: AtomicU64::new(NEVER),
            counts: AtomicBool::new(*kind == Kind::Job),
        });
        let reached = channel::channel(Versions::default()).0;
        Self { started: Instant::now(), max_age, kinds: kinds.chain(owners).collect(), reached }
    }

    /// How far the watches have come; what they showed on the way is published by then.
    #[must_use]
    pub fn reached(&self) -> channel::Receiver<Versions> {
        self.reached.subscribe()
    }

    /// They have come so far.
    pub(super) fn reach(&self, versions: Versions) {
        self.reached.send_if_modified(|now| std::mem::replace(now, versions) != versions);
    }

    /// A kind whose watch was last heard from longer ago than `state.maxAge`.
    #[must_use]
    pub fn stale(&self) -> Option<&'static str> {
        let now = self.now();
        let oldest = u64::try_from(self.max_age.as_millis()).unwrap_or(u64::MAX);
        let stale = |one: &&Followed| {
            one.counts.load(Ordering::Relaxed) && now.saturating_sub(one.heard.load(Ordering::Relaxed)) > oldest
        };
        self.kinds.iter().find(stale).map(|one| one.plural)
    }

    /// Time since the contact that is longest ago.
    #[must_use]
    pub fn age(&self) -> Duration {
        let now = self.now();
        let counted = self.kinds.iter().filter(|one| one.counts.load(Ordering::Relaxed));
        let ages = counted.map(|one| now.saturating_sub(one.heard.load(Ordering::Relaxed)));
        Duration::from_millis(ages.max().unwrap_or(0))
    }

    /// Time since an owner or group was last heard from; `None`: it never was.
    pub(super) fn since(&self, kind: Kind) -> Option<Duration> {
        let served = kind.served();
        let of = |one: &&Followed| one.group == served.group && one.plural == served.plural;
        let heard = self.kinds.iter().find(of)?.heard.load(Ordering::Relaxed);
        (heard != NEVER).then(|| Duration::from_millis(self.now().saturating_sub(heard)))
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

    /// Whether a kind counts, from now on: one that the cluster does not serve any more is never heard from.
    pub(super) fn count(&self, plural: &str, counts: bool) {
        for one in self.kinds.iter().filter(|one| one.plural == plural) {
            one.heard.store(self.now(), Ordering::Relaxed);
            one.counts.store(counts, Ordering::Relaxed);
        }
    }

    fn heard(&self, kind: usize) {
        if let Some(one) = self.kinds.get(kind) {
            one.heard.store(self.now(), Ordering::Relaxed);
        }
    }

    fn now(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    /// The kind that a path lists or watches in the whole cluster. Two groups may have kinds of one name.
    fn kind_of(&self, path: &str) -> Option<usize> {
        let segments: Vec<&str> = path.trim_start_matches('/').split('/').collect();
        let (group, plural) = match segments.as_slice() {
            ["api", _version, plural] => ("", *plural),
            ["apis", group, _version, plural] => (*group, *plural),
            _ => return None,
        };
        self.kinds.iter().position(|one| one.group == group && one.plural == plural)
    }
}

/// The group of a kind that is always watched: those are kinds that plans are made from.
fn group_of(plural: &str) -> &'static str {
    kinds::KINDS.iter().find(|kind| kind.plural == plural).map_or("", |kind| kind.group)
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
        let mut contacts = Contacts::new(&["pods", "nodes"], &[Kind::JobSet, Kind::Job], Duration::from_secs(150));
        assert_eq!(contacts.stale(), None);
        let Some(earlier) = Instant::now().checked_sub(Duration::from_secs(200)) else {
            panic!("the machine has just started")
        };
        contacts.started = earlier;
        assert_eq!(contacts.stale(), Some("pods"));
        contacts.heard(0);
        assert_eq!(contacts.stale(), Some("nodes"));
        assert!(contacts.age() >= Duration::from_secs(150));
        contacts.heard(1);
        assert_eq!(contacts.stale(), None);
        assert_eq!(contacts.since(Kind::JobSet), None);
        // Long ago, as seen from now.
        let long_ago = |kind: usize| contacts.kinds[kind].heard.store(0, Ordering::Relaxed);
        long_ago(2);
        assert!(contacts.since(Kind::JobSet).unwrap() >= Duration::from_secs(150));
        assert_eq!((contacts.stale(), contacts.age() < Duration::from_secs(150)), (None, true), "other gangs go on");
        long_ago(3);
        assert_eq!(contacts.stale(), Some("jobs"));
        contacts.count("jobs", false);
        long_ago(3);
        assert_eq!(contacts.stale(), None, "nobody waits for what is not served any more");
        contacts.count("jobs", true);
        assert_eq!(contacts.stale(), None, "it has just come");
        long_ago(3);
        assert_eq!(contacts.stale(), Some("jobs"));
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
        let owners = [Kind::VolcanoJob, Kind::Job, Kind::KaiPodGroup, Kind::VolcanoPodGroup];
        let contacts = Contacts::new(&["pods", "gangs"], &owners, Duration::from_secs(1));
        assert_eq!(contacts.kind_of("/api/v1/pods"), Some(0));
        assert_eq!(contacts.kind_of("/apis/muster.dev/v1alpha1/gangs"), Some(1));
        assert_eq!(contacts.kind_of("/api/v1/namespaces/ml/pods/train-0"), None);
        assert_eq!(contacts.kind_of("/apis/muster.dev/v1alpha1"), None);
        assert_eq!(contacts.kind_of("/apis/metrics.k8s.io/v1beta1/pods"), None, "of another group");
        assert_eq!(contacts.kind_of("/apis/batch.volcano.sh/v1alpha1/jobs"), Some(2));
        assert_eq!(contacts.kind_of("/apis/batch/v1/jobs"), Some(3), "not Volcano's");
        assert_eq!(contacts.kind_of("/apis/scheduling.run.ai/v2alpha2/podgroups"), Some(4));
        assert_eq!(contacts.kind_of("/apis/scheduling.volcano.sh/v1beta1/podgroups"), Some(5));
    }

    #[test]
    fn the_group_of_every_kind_that_is_always_watched_is_that_of_its_path() {
        use kube::Resource;
        use muster_api::crd::{EC2NodeClass, Gang, NodeBatch, NodePool, ProvisioningRequest};
        fn path<K: Resource<DynamicType = ()>>() -> String {
            K::url_path(&(), None)
        }
        let paths = [
            path::<k8s_openapi::api::core::v1::Node>(),
            path::<k8s_openapi::api::core::v1::Pod>(),
            path::<k8s_openapi::api::core::v1::Namespace>(),
            path::<k8s_openapi::api::apps::v1::DaemonSet>(),
            path::<Gang>(),
            path::<NodeBatch>(),
            path::<NodePool>(),
            path::<EC2NodeClass>(),
            path::<k8s_openapi::api::core::v1::PersistentVolumeClaim>(),
            path::<k8s_openapi::api::core::v1::PersistentVolume>(),
            path::<k8s_openapi::api::storage::v1::StorageClass>(),
            path::<k8s_openapi::api::storage::v1::CSINode>(),
            path::<ProvisioningRequest>(),
        ];
        let kinds = super::super::WatchOptions { provisioning_requests: true }.kinds();
        let contacts = Contacts::new(&kinds, &[], Duration::from_secs(1));
        let found: Vec<Option<usize>> = paths.iter().map(|path| contacts.kind_of(path)).collect();
        assert_eq!(found, (0..kinds.len()).map(Some).collect::<Vec<_>>());
    }
}
