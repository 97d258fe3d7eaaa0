//! When each watch last heard from the API server.
//!
//! A watch that is silent looks like a cluster in which nothing happens. Bytes on its connection are the proof that it
//! lives: events, bookmarks, answers to pings, and the answer to a request that opens it again, which happens before it could
//! count as old (`state.maxAge` in `docs/operations.md`).

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use arc_swap::ArcSwapOption;
use http::uri::PathAndQuery;
use http::{Request, Response, Uri, Version};
use http_body::{Frame, SizeHint};
use kube::client::Body;
use muster_api::conventions::Kind;
use muster_replay::kinds;
use tokio::sync::watch as channel;
use tokio::time::{Instant, Sleep};
use tower::{BoxError, Layer, Service};

use super::current::Versions;
use super::last_byte::LastByte;

/// Last contact by kind, and how far the watches have come.
#[derive(Debug)]
pub struct Contacts {
    started: Instant,
    max_age: Duration,
    kinds: Vec<Followed>,
    /// The newest answer came by a connection that answers pings.
    pinged: AtomicBool,
    reached: channel::Sender<Versions>,
}

/// A kind whose lists and watches are noted.
#[derive(Debug)]
struct Followed {
    group: &'static str,
    plural: &'static str,
    /// In milliseconds since the start.
    heard: AtomicU64,
    /// The connection by which the watch comes that is open, if that answers pings.
    open: ArcSwapOption<LastByte>,
    /// Nothing is decided once it is too old.
    counts: AtomicBool,
}

impl Followed {
    fn new((group, plural): (&'static str, &'static str), heard: u64, counts: bool) -> Self {
        Self {
            group,
            plural,
            heard: AtomicU64::new(heard),
            open: ArcSwapOption::empty(),
            counts: AtomicBool::new(counts),
        }
    }

    /// When it was last heard from, in milliseconds since the start; [`NEVER`].
    fn last(&self) -> u64 {
        let heard = self.heard.load(Ordering::Relaxed);
        self.open.load().as_ref().map_or(heard, |open| heard.max(open.at()))
    }
}

/// A watch is opened again after this at the latest, where its connection answers pings. Permissions that were taken away, and a
/// watch that the API server forgot, are noticed by it.
const REOPEN: Duration = Duration::from_secs(30);
/// … and where it does not.
const REOPEN_UNPINGED: Duration = Duration::from_secs(6);
/// A connection that owes a byte for longer is dead.
const SILENCE: Duration = Duration::from_secs(9);
/// Of a kind that nobody waits for, until it is heard from.
const NEVER: u64 = u64::MAX;

impl Contacts {
    /// All `kinds` count as heard from now. Owners and groups are noted from when they are heard from; of these, every cluster
    /// serves Jobs, and the others are left alone where they cannot be watched.
    #[must_use]
    pub fn new(kinds: &[&'static str], owners: &[Kind], max_age: Duration) -> Self {
        let kinds = kinds.iter().map(|plural| Followed::new((group_of(plural), plural), 0, true));
        let owners = owners.iter().map(|kind| {
            let served = kind.served();
            Followed::new((served.group, served.plural), NEVER, *kind == Kind::Job)
        });
        let reached = channel::channel(Versions::default()).0;
        let kinds = kinds.chain(owners).collect();
        Self { started: Instant::now(), max_age, kinds, pinged: AtomicBool::new(false), reached }
    }

    /// What contact is counted from.
    pub(super) fn started(&self) -> Instant {
        self.started
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
        let stale = |one: &&Followed| one.counts.load(Ordering::Relaxed) && now.saturating_sub(one.last()) > oldest;
        self.kinds.iter().find(stale).map(|one| one.plural)
    }

    /// Time since the contact that is longest ago.
    #[must_use]
    pub fn age(&self) -> Duration {
        let now = self.now();
        let counted = self.kinds.iter().filter(|one| one.counts.load(Ordering::Relaxed));
        let ages = counted.map(|one| now.saturating_sub(one.last()));
        Duration::from_millis(ages.max().unwrap_or(0))
    }

    /// Time since an owner or group was last heard from; `None`: it never was.
    pub(super) fn since(&self, kind: Kind) -> Option<Duration> {
        let served = kind.served();
        let of = |one: &&Followed| one.group == served.group && one.plural == served.plural;
        let heard = self.kinds.iter().find(of)?.last();
        (heard != NEVER).then(|| Duration::from_millis(self.now().saturating_sub(heard)))
    }

    /// Longest time that one watch request stays open.
    #[must_use]
    pub fn reopen(&self) -> Duration {
        self.max_age.mul_f32(0.6).min(REOPEN)
    }

    /// The same where no ping is answered. Its end is the proof there that the connection lives where nothing happens: the API
    /// server's bookmarks come once a minute.
    #[must_use]
    pub fn reopen_unpinged(&self) -> Duration {
        self.max_age.mul_f32(0.6).min(REOPEN_UNPINGED)
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

/// Notes contact on every answer that passes. A list that does not go on is given up: over HTTP/2 other answers may go on meanwhile on
/// the same connection.
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

    fn call(&mut self, mut request: Request<Body>) -> Self::Future {
        let kind = self.contacts.kind_of(request.uri().path());
        let contacts = Arc::clone(&self.contacts);
        let watches = request.uri().query().is_some_and(|query| query.split('&').any(|part| part == "watch=true"));
        if watches && !contacts.pinged.load(Ordering::Relaxed) {
            *request.uri_mut() = ending_after(request.uri(), contacts.reopen_unpinged());
        }
        let answer = self.inner.call(request);
        Box::pin(async move {
            let answer = answer.await?;
            let pinged = (answer.version() == Version::HTTP_2).then(|| answer.extensions().get::<LastByte>()).flatten();
            contacts.pinged.store(pinged.is_some(), Ordering::Relaxed);
            // A refusal is an answer, but no news of the kind.
            let kind = kind.filter(|_| answer.status().is_success());
            if let Some(kind) = kind {
                contacts.heard(kind);
            }
            let open = match (kind, pinged) {
                (Some(kind), Some(last)) if watches => Some(Open::new(&contacts, kind, last)),
                _ => None,
            };
            let ends = (!watches).then(|| Box::pin(tokio::time::sleep(contacts.silence())));
            Ok(answer.map(|body| NotedBody { body, kind, contacts, open, ends }))
        })
    }
}

/// The request for a watch, with another time after which the API server ends it.
fn ending_after(uri: &Uri, after: Duration) -> Uri {
    let seconds = after.as_secs().max(1);
    let query = uri.query().unwrap_or_default().split('&').map(|part| match part.split_once('=') {
        Some(("timeoutSeconds", _)) => format!("timeoutSeconds={seconds}"),
        _ => part.to_owned(),
    });
    let target = format!("{}?{}", uri.path(), query.collect::<Vec<_>>().join("&"));
    let mut parts = uri.clone().into_parts();
    parts.path_and_query = PathAndQuery::try_from(target).ok().or(parts.path_and_query);
    Uri::from_parts(parts).unwrap_or_else(|_| uri.clone())
}

/// A watch that is open on a connection that answers pings: as long as that brings bytes, its kind is heard from.
#[derive(Debug)]
struct Open {
    contacts: Arc<Contacts>,
    kind: usize,
    last: Arc<LastByte>,
}

impl Open {
    fn new(contacts: &Arc<Contacts>, kind: usize, last: &LastByte) -> Self {
        let last = Arc::new(last.clone());
        if let Some(one) = contacts.kinds.get(kind) {
            one.open.store(Some(Arc::clone(&last)));
        }
        Self { contacts: Arc::clone(contacts), kind, last }
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        let Some(one) = self.contacts.kinds.get(self.kind) else { return };
        one.heard.fetch_max(self.last.at(), Ordering::Relaxed);
        // The next one may have been opened already.
        let open = one.open.load();
        if open.as_ref().is_some_and(|open| Arc::ptr_eq(open, &self.last)) {
            one.open.compare_and_swap(&*open, None);
        }
    }
}

/// A body that notes each of its frames.
#[derive(Debug)]
pub(super) struct NotedBody<B> {
    body: B,
    kind: Option<usize>,
    contacts: Arc<Contacts>,
    /// Until it ends.
    open: Option<Open>,
    /// When a list that does not go on is given up. A watch has no such time: what makes its requests ends them.
    ends: Option<Pin<Box<Sleep>>>,
}

impl<B> http_body::Body for NotedBody<B>
where
    B: http_body::Body + Unpin,
    B::Error: Into<BoxError>,
{
    type Data = B::Data;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, BoxError>>> {
        let polled = Pin::new(&mut self.body).poll_frame(context);
        match &polled {
            Poll::Ready(Some(Ok(_))) => {
                if let Some(kind) = self.kind {
                    self.contacts.heard(kind);
                }
                let silence = self.contacts.silence();
                if let Some(ends) = &mut self.ends {
                    ends.as_mut().reset(Instant::now() + silence);
                }
            }
            Poll::Ready(None | Some(Err(_))) => self.open = None,
            Poll::Pending => {
                if let Some(ends) = &mut self.ends
                    && ends.as_mut().poll(context).is_ready()
                {
                    let error = format!("a list did not go on for {} s", self.contacts.silence().as_secs());
                    return Poll::Ready(Some(Err(error.into())));
                }
            }
        }
        polled.map_err(Into::into)
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
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use std::sync::Mutex;

    use futures::StreamExt as _;
    use http_body::Body as _;
    use tower::ServiceExt as _;

    use super::*;

    const PODS: &str = "/api/v1/pods?&watch=true&timeoutSeconds=30&allowWatchBookmarks=true&resourceVersion=7";

    /// A body on which nothing comes.
    struct Silent {
        ends: bool,
    }

    impl http_body::Body for Silent {
        type Data = axum::body::Bytes;
        type Error = BoxError;

        fn poll_frame(
            self: Pin<&mut Self>,
            _: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<axum::body::Bytes>, BoxError>>> {
            if self.ends { Poll::Ready(None) } else { Poll::Pending }
        }
    }

    /// Answers each request by this connection, and keeps what it was asked for.
    struct Server {
        contacts: Arc<Contacts>,
        asked: Arc<Mutex<Vec<String>>>,
    }

    impl Server {
        fn new(contacts: Contacts) -> Self {
            Self { contacts: Arc::new(contacts), asked: Arc::default() }
        }

        async fn answers(
            &self,
            target: &str,
            version: Version,
            last: &LastByte,
            ends: bool,
        ) -> Response<NotedBody<Silent>> {
            let (asked, last) = (Arc::clone(&self.asked), last.clone());
            let service = tower::service_fn(move |request: Request<Body>| {
                asked.lock().unwrap().push(request.uri().to_string());
                let answer = Response::builder().version(version).extension(last.clone());
                std::future::ready(Ok::<_, BoxError>(answer.body(Silent { ends }).unwrap()))
            });
            ContactLayer(Arc::clone(&self.contacts)).layer(service).oneshot(asks(target)).await.unwrap()
        }
    }

    /// The next frame of a body.
    async fn next<B>(body: &mut NotedBody<B>) -> Option<Result<Frame<B::Data>, BoxError>>
    where
        B: http_body::Body + Unpin,
        B::Error: Into<BoxError>,
    {
        std::future::poll_fn(|context| Pin::new(&mut *body).poll_frame(context)).await
    }

    fn asks(target: &str) -> Request<Body> {
        Request::get(target).body(Body::empty()).unwrap()
    }

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

    #[tokio::test]
    async fn a_kind_is_heard_from_while_its_watch_is_open_on_a_connection_that_answers_pings() {
        let mut contacts = Contacts::new(&["pods"], &[], Duration::from_secs(150));
        // As old as the process.
        let old = LastByte::now(contacts.started);
        let Some(earlier) = Instant::now().checked_sub(Duration::from_secs(200)) else {
            panic!("the machine has just started")
        };
        contacts.started = earlier;
        let new = LastByte::now(contacts.started);
        let server = Server::new(contacts);
        let contacts = &server.contacts;
        // As if no frame had come since the start.
        let quiet = || contacts.kinds[0].heard.store(0, Ordering::Relaxed);
        let open = async |target: &str, version: Version, last: &LastByte, ends: bool| {
            let answer = server.answers(target, version, last, ends).await;
            assert_eq!(contacts.stale(), None, "an answer was heard");
            quiet();
            answer
        };
        let first = open(PODS, Version::HTTP_2, &new, false).await;
        assert_eq!(contacts.stale(), None, "the connection lives");
        let second = open(PODS, Version::HTTP_2, &new, false).await;
        drop(first);
        assert_eq!(contacts.stale(), None, "until then it lived");
        quiet();
        assert_eq!(contacts.stale(), None, "the next one was open already");
        drop(second);
        assert_eq!(contacts.stale(), None, "until then it lived");
        quiet();
        assert_eq!(contacts.stale(), Some("pods"), "nothing is open any more");

        let mut ended = open(PODS, Version::HTTP_2, &new, true).await;
        assert!(next(ended.body_mut()).await.is_none());
        quiet();
        assert_eq!(contacts.stale(), Some("pods"), "it is not open any more, though it is still there");
        let silent = open(PODS, Version::HTTP_2, &old, false).await;
        assert_eq!(contacts.stale(), Some("pods"), "its connection brings nothing");
        drop(silent);
        let unpinged = open(PODS, Version::HTTP_11, &new, false).await;
        assert_eq!(contacts.stale(), Some("pods"), "a watch without pings says nothing");
        drop(unpinged);
        let list = open("/api/v1/pods?limit=500", Version::HTTP_2, &new, false).await;
        assert_eq!(contacts.stale(), Some("pods"), "a list is none");
        drop(list);
    }

    #[tokio::test]
    async fn a_watch_stays_open_for_longer_where_its_connection_answers_pings() {
        let server = Server::new(Contacts::new(&["pods"], &[], Duration::from_secs(150)));
        let last = LastByte::now(server.contacts.started);
        let (list, other) = ("/api/v1/pods?limit=500", "https://k8s:6443/version");
        for (version, target, sent) in [
            // Nothing is known of the connection yet.
            (Version::HTTP_2, PODS, PODS.replace("=30", "=6")),
            (Version::HTTP_2, PODS, PODS.to_owned()),
            (Version::HTTP_2, list, list.to_owned()),
            (Version::HTTP_11, list, list.to_owned()),
            (Version::HTTP_11, PODS, PODS.replace("=30", "=6")),
            (Version::HTTP_2, other, other.to_owned()),
            (Version::HTTP_11, PODS, PODS.to_owned()),
            (Version::HTTP_11, other, other.to_owned()),
        ] {
            server.answers(target, version, &last, true).await;
            assert_eq!(server.asked.lock().unwrap().pop(), Some(sent));
        }
        let uri = "https://k8s:6443/api/v1/pods?watch=true&timeoutSeconds=30".parse().unwrap();
        assert_eq!(
            ending_after(&uri, Duration::from_millis(300)).to_string(),
            "https://k8s:6443/api/v1/pods?watch=true&timeoutSeconds=1"
        );
    }

    #[tokio::test]
    async fn a_list_that_does_not_go_on_is_given_up_and_a_watch_is_not() {
        let server = Server::new(Contacts::new(&["pods"], &[], Duration::from_millis(25)));
        let last = LastByte::now(server.contacts.started);
        let mut list = server.answers("/api/v1/pods", Version::HTTP_2, &last, false).await.into_body();
        let error = next(&mut list).await.unwrap().map(drop).unwrap_err();
        assert!(error.to_string().contains("a list did not go on"), "{error}");
        let mut watch = server.answers(PODS, Version::HTTP_2, &last, false).await.into_body();
        tokio::select! {
            _ = next(&mut watch) => panic!("nothing comes on it"),
            () = tokio::time::sleep(server.contacts.silence() * 10) => {}
        }
    }

    #[tokio::test]
    async fn a_list_may_take_its_time_as_long_as_it_goes_on() {
        let contacts = Arc::new(Contacts::new(&["pods"], &[], Duration::from_secs(5)));
        let each = contacts.silence() * 2 / 5;
        let service = tower::service_fn(move |_: Request<Body>| {
            let parts = futures::stream::iter([each; 3]).then(|pause| async move {
                tokio::time::sleep(pause).await;
                Ok::<_, BoxError>("part")
            });
            std::future::ready(Ok::<_, BoxError>(Response::new(axum::body::Body::from_stream(parts))))
        });
        let list = ContactLayer(contacts).layer(service).oneshot(asks("/api/v1/pods")).await.unwrap();
        let mut list = list.into_body();
        for _ in 0..3 {
            next(&mut list).await.unwrap().map(drop).unwrap();
        }
        assert!(next(&mut list).await.is_none());
    }

    #[test]
    fn a_dead_connection_is_noticed_within_ten_seconds_and_a_quiet_one_is_none() {
        for max_age in [2, 10, 150, 3_600] {
            let contacts = Contacts::new(&["pods"], &[], Duration::from_secs(max_age));
            assert!(contacts.silence() < Duration::from_secs(10), "{max_age}");
            assert!(contacts.reopen_unpinged() < contacts.silence(), "{max_age}");
            assert!(contacts.reopen() < Duration::from_secs(max_age), "{max_age}");
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
