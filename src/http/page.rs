//! The page of this cluster. On the loopback of this Pod, whoever may forward ports to it sees what `muster ui` shows: TLS and
//! permissions are those of the API server, through `kubectl port-forward`. Elsewhere it is behind TLS, and behind a certificate or
//! a token that the API server knows.

use std::fmt;
use std::pin::Pin;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{Request, State as Shared};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use muster_view::Overview;
use muster_view::page::Frame;
use muster_view::web::{self, Site};
use tokio::sync::{Mutex, Semaphore};

use super::{Guard, single};

/// How often the cluster is read, and only while somebody looks.
#[derive(Clone, Copy, Debug)]
struct Pace {
    /// At most so often.
    refresh: Duration,
    /// So often as long as the watches see no change: dollars and ages go on, and not all that is shown is watched.
    unchanged: Duration,
    /// A reading that takes long, of a large cluster, is followed by a pause of so many times as long,
    times: u32,
    /// but of no more than this.
    longest: Duration,
}

const PACE: Pace = Pace {
    refresh: Duration::from_secs(5),
    unchanged: Duration::from_secs(20),
    times: 50,
    longest: Duration::from_secs(60),
};
impl Pace {
    /// How long a reading is shown that took so long. `same`: whether the version is what it was; `None` of a reading that failed, which
    /// took as long as somebody waited for an answer, and says nothing of the cluster's size.
    fn lasts(self, took: Duration, same: Option<bool>) -> Duration {
        let pause = took.saturating_mul(self.times).min(self.longest);
        match same {
            None => self.refresh,
            Some(false) => pause.max(self.refresh),
            Some(true) => pause.max(self.unchanged).max(self.refresh),
        }
    }
}

/// What is older is shown to nobody while the cluster is read again. Longer than any pause.
const OLD: Duration = Duration::from_secs(180);
/// Requests answered at once, those included that wait for the first look; further ones are refused.
const MOST: usize = 128;

/// Reads the cluster.
type Look = dyn Fn() -> Pin<Box<dyn Future<Output = anyhow::Result<Overview>> + Send>> + Send + Sync;
/// The version of the state that this process sees by its watches.
type Version = dyn Fn() -> u64 + Send + Sync;

/// The page, as it was last rendered.
pub struct Page {
    look: Box<Look>,
    version: Box<Version>,
    pace: Pace,
    frame: Frame,
    access: Access,
    shown: RwLock<Option<Shown>>,
    /// Held by whoever reads the cluster.
    reading: Mutex<()>,
    callers: Semaphore,
}

/// Who may see the page.
#[derive(Debug)]
pub enum Access {
    /// Whoever reaches loopback, under a name of it.
    Loopback,
    /// Whoever got through TLS with a certificate.
    Certificate,
    /// Whoever brings a token with which the API server lets them see it.
    Token(Box<Guard>),
}

/// One look at the cluster, rendered once for all who ask.
#[derive(Clone)]
struct Shown {
    at: Instant,
    /// How long reading and rendering took.
    took: Duration,
    /// What the watches had seen before it was read. `None`: the last reading failed, and is repeated.
    version: Option<u64>,
    overview: Arc<Overview>,
    site: Arc<Site>,
}

impl fmt::Debug for Page {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Page").field("frame", &self.frame).finish_non_exhaustive()
    }
}

impl Page {
    /// A page of what `look` reads, for whom `access` lets in. While `version` stays as it is it is read less often.
    pub fn new<F>(
        access: Access,
        version: impl Fn() -> u64 + Send + Sync + 'static,
        look: impl Fn() -> F + Send + Sync + 'static,
    ) -> Self
    where
        F: Future<Output = anyhow::Result<Overview>> + Send + 'static,
    {
        Self::at(access, PACE, version, look)
    }

    fn at<F>(
        access: Access,
        pace: Pace,
        version: impl Fn() -> u64 + Send + Sync + 'static,
        look: impl Fn() -> F + Send + Sync + 'static,
    ) -> Self
    where
        F: Future<Output = anyhow::Result<Overview>> + Send + 'static,
    {
        let frame =
            Frame { source: "the cluster".to_owned(), refresh: Some(PACE.refresh.as_secs()), ..Frame::default() };
        Self {
            look: Box::new(move || Box::pin(look())),
            version: Box::new(version),
            pace,
            frame,
            access,
            shown: RwLock::default(),
            reading: Mutex::default(),
            callers: Semaphore::new(MOST),
        }
    }

    fn shown(&self) -> Option<Shown> {
        self.shown.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// What is shown now. Whoever asks while the cluster is read again sees what was shown before; at first everybody waits for that
    /// one reading.
    ///
    /// Errors: nothing was ever shown, and the cluster cannot be read.
    async fn site(&self) -> anyhow::Result<Arc<Site>> {
        let is_new = |shown: &Shown| {
            let seen = shown.version.map(|version| version == (self.version)());
            shown.at.elapsed() < self.pace.lasts(shown.took, seen)
        };
        let before = self.shown();
        let _reading = match (self.reading.try_lock(), before) {
            (_, Some(shown)) if is_new(&shown) => return Ok(shown.site),
            (Ok(reading), _) => reading,
            (Err(_), Some(shown)) if shown.at.elapsed() < OLD => return Ok(shown.site),
            (Err(_), _) => self.reading.lock().await,
        };
        // Somebody else may have read it meanwhile.
        let before = self.shown();
        if let Some(shown) = before.as_ref().filter(|shown| is_new(shown)) {
            return Ok(Arc::clone(&shown.site));
        }
        let (began, version) = (Instant::now(), (self.version)());
        let (overview, trouble, version) = match ((self.look)().await, before.as_ref()) {
            (Ok(overview), _) => (Arc::new(overview), None, Some(version)),
            (Err(error), Some(before)) => (Arc::clone(&before.overview), Some(crate::telemetry::chain(&error)), None),
            (Err(error), None) => return Err(error),
        };
        let frame = Frame { trouble, ..self.frame.clone() };
        let of = Arc::clone(&overview);
        // Thousands of cells: not on the threads that answer probes.
        let site = Arc::new(tokio::task::spawn_blocking(move || Site::new(&of, &frame).compressed()).await?);
        let shown = Shown { at: Instant::now(), took: began.elapsed(), version, overview, site: Arc::clone(&site) };
        *self.shown.write().unwrap_or_else(PoisonError::into_inner) = Some(shown);
        Ok(site)
    }
}

/// Every address of the page.
pub fn router(page: Arc<Page>) -> Router {
    Router::new().fallback(answer).with_state(page)
}

async fn answer(Shared(page): Shared<Arc<Page>>, request: Request) -> Response {
    let mut asked = read(&request);
    match &page.access {
        Access::Loopback => {}
        // Under whatever name: who has a certificate or a token of their own was not led here by somebody else's page.
        Access::Certificate => asked.host = Some("localhost".to_owned()),
        Access::Token(guard) => {
            if let Err(answer) = guard.admit(request.headers()).await {
                return *answer;
            }
            asked.host = Some("localhost".to_owned());
        }
    }
    // Whoever is not let in takes nobody's turn.
    let Ok(_turn) = page.callers.try_acquire() else {
        return (StatusCode::SERVICE_UNAVAILABLE, "too many look at once\n").into_response();
    };
    // A name or a method that is refused must not make the cluster be read.
    if let Some(refused) = web::refused(&asked) {
        return written(&refused, false);
    }
    match page.site().await {
        Ok(site) => written(&site.answer(&asked), asked.method == "HEAD"),
        Err(error) => {
            let why = format!("the cluster cannot be read: {}\n", crate::telemetry::chain(&error));
            (StatusCode::SERVICE_UNAVAILABLE, why).into_response()
        }
    }
}

fn read(request: &Request) -> web::Request {
    let header = |name| single(request.headers(), &name);
    web::Request {
        method: request.method().as_str().to_owned(),
        target: request.uri().path_and_query().map_or_else(String::new, ToString::to_string),
        host: header(header::HOST),
        if_none_match: header(header::IF_NONE_MATCH),
        accept_encoding: header(header::ACCEPT_ENCODING),
    }
}

fn written(answer: &web::Answer, head_only: bool) -> Response {
    let code = answer.status.split(' ').next().and_then(|code| code.parse().ok());
    let mut response = Response::builder().status(code.unwrap_or(StatusCode::INTERNAL_SERVER_ERROR));
    for (name, value) in &answer.headers {
        response = response.header(*name, value);
    }
    let bytes = match &answer.packed {
        Some(packed) => Bytes::from_owner(Arc::clone(packed)),
        None => Bytes::from_owner(Text(Arc::clone(&answer.body))),
    };
    if head_only {
        response = response.header(header::CONTENT_LENGTH, bytes.len());
    }
    let body = if head_only { Body::empty() } else { bytes.into() };
    response.body(body).unwrap_or_else(|_| StatusCode::INTERNAL_SERVER_ERROR.into_response())
}

/// The one copy of an answer that all who ask are sent.
struct Text(Arc<str>);

impl AsRef<[u8]> for Text {
    fn as_ref(&self) -> &[u8] {
        self.0.as_bytes()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

    use axum::http::Method;
    use futures::future::join_all;
    use tower::ServiceExt as _;

    use super::*;

    /// An overview of nothing: the shape of the page is the business of `muster-view`.
    fn nothing() -> anyhow::Result<Overview> {
        let dump = "{\"apiVersion\":\"v1\",\"kind\":\"Node\",\"metadata\":{\"name\":\"n-1\"},\"status\":{}}";
        let input = muster_replay::dump::Input { name: "test", text: dump };
        let arguments = muster_replay::command::Arguments { files: vec![input], ..Default::default() };
        Ok(muster_view::of_texts(&arguments)?)
    }

    /// A state that nobody has to read again while a test runs.
    const FOR_LONG: Pace = Pace { refresh: Duration::from_secs(3600), ..EACH_TIME };
    const EACH_TIME: Pace =
        Pace { refresh: Duration::ZERO, unchanged: Duration::ZERO, times: 0, longest: Duration::ZERO };
    /// Whatever the version says, and for long if it is the same.
    const IF_CHANGED: Pace = Pace { unchanged: Duration::from_secs(3600), ..EACH_TIME };

    fn page(look: impl Fn(usize) -> anyhow::Result<Overview> + Send + Sync + 'static) -> (Router, Arc<AtomicUsize>) {
        page_at(FOR_LONG, look)
    }

    fn page_at(
        pace: Pace,
        look: impl Fn(usize) -> anyhow::Result<Overview> + Send + Sync + 'static,
    ) -> (Router, Arc<AtomicUsize>) {
        let looks = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&looks);
        let page = Page::at(
            Access::Loopback,
            pace,
            || 0,
            move || std::future::ready(look(counted.fetch_add(1, Ordering::SeqCst))),
        );
        (router(Arc::new(page)), looks)
    }

    async fn ask(router: &Router, method: Method, host: &str, target: &str) -> (StatusCode, String) {
        let request = Request::builder().method(method).uri(target).header("Host", host);
        let response = router.clone().oneshot(request.body(Body::empty()).unwrap()).await.unwrap();
        let status = response.status();
        let body = axum::body::to_bytes(response.into_body(), usize::MAX).await.unwrap();
        (status, String::from_utf8(body.to_vec()).unwrap())
    }

    #[tokio::test]
    async fn however_many_look_the_cluster_is_read_once_until_the_state_is_old() {
        let (router, looks) = page(|_| nothing());
        let all = join_all((0..20).map(|_| ask(&router, Method::GET, "localhost:7070", "/"))).await;
        assert!(all.iter().all(|(status, body)| *status == StatusCode::OK && body.contains("n-1")));
        assert_eq!(looks.load(Ordering::SeqCst), 1);
        let (router, looks) = page_at(EACH_TIME, |_| nothing());
        for look in 1..3 {
            assert_eq!(ask(&router, Method::GET, "localhost:7070", "/").await.0, StatusCode::OK);
            assert_eq!(looks.load(Ordering::SeqCst), look);
        }
    }

    #[test]
    fn what_has_not_changed_is_read_seldom_and_a_large_cluster_for_a_part_of_the_time() {
        let lasts = |took: f64, same| PACE.lasts(Duration::from_secs_f64(took), same).as_secs();
        for (same, small) in [(true, 20), (false, 5)] {
            let of = |took| lasts(took, Some(same));
            assert_eq!((of(0.01), of(0.5), of(1.0), of(30.0)), (small, 25, 50, 60));
        }
        // A failed reading is repeated, however long it took.
        assert_eq!((lasts(0.01, None), lasts(30.0, None)), (5, 5));
        assert!(PACE.longest.max(PACE.unchanged) < OLD, "what was there is shown while it is read again");
    }

    #[tokio::test]
    async fn what_changes_while_the_cluster_is_read_makes_it_be_read_again() {
        let (version, looks) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicUsize::new(0)));
        let (seen, changing, counted) = (Arc::clone(&version), Arc::clone(&version), Arc::clone(&looks));
        let now = move || seen.load(Ordering::SeqCst);
        let page = Page::at(Access::Loopback, IF_CHANGED, now, move || {
            if counted.fetch_add(1, Ordering::SeqCst) == 0 {
                changing.store(1, Ordering::SeqCst);
            }
            std::future::ready(nothing())
        });
        let router = router(Arc::new(page));
        for wanted in [1, 2, 2] {
            assert_eq!(ask(&router, Method::GET, "localhost", "/").await.0, StatusCode::OK);
            assert_eq!(looks.load(Ordering::SeqCst), wanted);
        }
        version.store(2, Ordering::SeqCst);
        assert_eq!(ask(&router, Method::GET, "localhost", "/").await.0, StatusCode::OK);
        assert_eq!(looks.load(Ordering::SeqCst), 3);
    }

    #[tokio::test]
    async fn who_takes_gzip_gets_it_and_head_tells_its_length() {
        let (router, _) = page(|_| nothing());
        let of = |method: Method| {
            let request = Request::builder().method(method).uri("/").header("Host", "localhost");
            let request = request.header("Accept-Encoding", "gzip, br").body(Body::empty()).unwrap();
            let router = router.clone();
            async move {
                let response = router.oneshot(request).await.unwrap();
                let header = |name| response.headers().get(name).map(|value| value.to_str().unwrap().to_owned());
                let (encoding, length) = (header(header::CONTENT_ENCODING), header(header::CONTENT_LENGTH));
                (encoding, length, axum::body::to_bytes(response.into_body(), usize::MAX).await.unwrap())
            }
        };
        let (encoding, _, body) = of(Method::GET).await;
        assert_eq!((encoding.as_deref(), &body[..2]), (Some("gzip"), [0x1f, 0x8b].as_slice()));
        let (encoding, length, none) = of(Method::HEAD).await;
        assert_eq!((encoding.as_deref(), length, none.len()), (Some("gzip"), Some(body.len().to_string()), 0));
    }

    #[tokio::test]
    async fn whoever_asks_while_the_cluster_is_read_again_sees_what_was_shown_before() {
        let (looks, go) = (Arc::new(AtomicUsize::new(0)), Arc::new(Semaphore::new(1)));
        let (counted, gate) = (Arc::clone(&looks), Arc::clone(&go));
        let page = Page::at(
            Access::Loopback,
            EACH_TIME,
            || 0,
            move || {
                counted.fetch_add(1, Ordering::SeqCst);
                let gate = Arc::clone(&gate);
                async move {
                    gate.acquire().await?.forget();
                    nothing()
                }
            },
        );
        let router = router(Arc::new(page));
        assert_eq!(ask(&router, Method::GET, "localhost", "/").await.0, StatusCode::OK);
        // The second look does not end before it is let go.
        let mut slow = Box::pin(ask(&router, Method::GET, "localhost", "/"));
        assert!(futures::poll!(&mut slow).is_pending());
        for _ in 0..3 {
            let (status, body) = ask(&router, Method::GET, "localhost", "/").await;
            assert!(status == StatusCode::OK && body.contains("n-1"));
        }
        assert_eq!(looks.load(Ordering::SeqCst), 2);
        go.add_permits(1);
        assert_eq!(slow.await.0, StatusCode::OK);
    }

    #[tokio::test]
    async fn a_cluster_that_cannot_be_read_any_more_stays_as_it_was_and_says_so() {
        let (router, _) = page_at(EACH_TIME, |look| match look {
            0 => nothing(),
            _ => Err(anyhow::anyhow!("the API server is away")),
        });
        assert!(!ask(&router, Method::GET, "127.0.0.1", "/").await.1.contains("the API server is away"));
        let (status, body) = ask(&router, Method::GET, "127.0.0.1", "/").await;
        assert_eq!(status, StatusCode::OK);
        assert!(body.contains("n-1") && body.contains("the API server is away"), "{body}");
    }

    #[tokio::test]
    async fn a_cluster_that_was_never_read_is_an_error_and_no_empty_page() {
        let (router, _) = page(|_| Err(anyhow::anyhow!("pods is forbidden")));
        let (status, body) = ask(&router, Method::GET, "[::1]:7070", "/").await;
        assert_eq!(
            (status, body.as_str()),
            (StatusCode::SERVICE_UNAVAILABLE, "the cluster cannot be read: pods is forbidden\n")
        );
    }

    #[tokio::test]
    async fn what_is_refused_does_not_make_the_cluster_be_read() {
        let (router, looks) = page(|_| nothing());
        assert_eq!(ask(&router, Method::GET, "evil.example", "/").await.0, StatusCode::MISDIRECTED_REQUEST);
        for method in [Method::POST, Method::PUT, Method::DELETE] {
            assert_eq!(ask(&router, method, "localhost", "/").await.0, StatusCode::METHOD_NOT_ALLOWED);
        }
        assert_eq!(looks.load(Ordering::SeqCst), 0);
        let (status, body) = ask(&router, Method::HEAD, "localhost", "/").await;
        assert_eq!((status, body.as_str()), (StatusCode::OK, ""));
    }
}
