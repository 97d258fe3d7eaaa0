//! Who may see the page beyond loopback: whoever the API server knows by a token, and lets `get` the path [`PATH`]. As
//! kube-rbac-proxy and controller-runtime guard metrics: TokenReview, then SubjectAccessReview.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use k8s_openapi::api::authentication::v1::{TokenReview, TokenReviewSpec, UserInfo};
use k8s_openapi::api::authorization::v1::{
    NonResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec, SubjectAccessReviewStatus,
};
use kube::api::PostParams;
use kube::{Api, Client};
use sha2::{Digest as _, Sha256};
use tokio::sync::{Mutex, Semaphore};
use tokio::time::timeout;
use tracing::debug;

use super::single;

/// The path that a role has to name under `nonResourceURLs`, with the verb `get`.
pub const PATH: &str = "/muster/page";
/// So long an answer of the API server counts; a role that is taken away acts after that.
const COUNTS: Duration = Duration::from_secs(10);
/// Tokens asked about at once; about further ones it is not known who they are.
const ASKING: usize = 4;
/// Answers kept; where there are more, all are asked for again.
const KEPT: usize = 1_024;
/// Longest wait for one answer.
const PATIENCE: Duration = Duration::from_secs(5);
/// Longest token. Those of service accounts have about a kilobyte.
const LONGEST: usize = 16 << 10;

/// Asks the API server about tokens.
pub struct Guard {
    client: Client,
    counts: Duration,
    /// Tokens asked about at once: these calls share the API server's patience with all others of this process.
    asking: Semaphore,
    /// By digest: no token is kept.
    known: Mutex<HashMap<[u8; 32], (Instant, Verdict)>>,
}

impl std::fmt::Debug for Guard {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Guard").finish_non_exhaustive()
    }
}

/// What the API server answered about a token.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Verdict {
    May,
    /// It is nobody's, or has ended.
    Unknown,
    /// The user may not.
    Forbidden(String),
}

impl Guard {
    /// A guard that asks with this client, which needs the ClusterRole `system:auth-delegator`.
    #[must_use]
    pub fn new(client: Client) -> Self {
        Self { client, counts: COUNTS, asking: Semaphore::new(ASKING), known: Mutex::default() }
    }

    /// Lets a request through, or answers it.
    ///
    /// Errors: 401 without a token that the API server knows, 403 for who may not, 503 where it cannot be asked.
    pub(super) async fn admit(&self, headers: &HeaderMap) -> Result<(), Box<Response>> {
        let Some(token) = bearer(headers) else { return Err(unauthorized()) };
        let verdict = match self.verdict(&token).await {
            Ok(verdict) => verdict,
            Err(error) => {
                // The cause names this process's own permissions, which are nobody's business who is not known.
                debug!(error = %crate::telemetry::chain(&error), "a token cannot be asked about");
                let text = "the API server cannot be asked who you are now\n";
                return Err(Box::new((StatusCode::SERVICE_UNAVAILABLE, text).into_response()));
            }
        };
        match verdict {
            Verdict::May => Ok(()),
            Verdict::Unknown => Err(unauthorized()),
            Verdict::Forbidden(user) => {
                let text = format!("{user} may not get {PATH}: a ClusterRole has to name it under nonResourceURLs\n");
                Err(Box::new((StatusCode::FORBIDDEN, text).into_response()))
            }
        }
    }

    async fn verdict(&self, token: &str) -> anyhow::Result<Verdict> {
        let digest: [u8; 32] = Sha256::digest(token).into();
        if let Some((at, verdict)) = self.known.lock().await.get(&digest)
            && at.elapsed() < self.counts
        {
            return Ok(verdict.clone());
        }
        let Ok(_turn) = self.asking.try_acquire() else { anyhow::bail!("{ASKING} tokens are asked about already") };
        let verdict = timeout(PATIENCE, self.ask(token)).await.map_err(|_| anyhow::anyhow!("no answer in time"))??;
        let mut known = self.known.lock().await;
        if known.len() >= KEPT {
            known.clear();
        }
        known.insert(digest, (Instant::now(), verdict.clone()));
        Ok(verdict)
    }

    async fn ask(&self, token: &str) -> Result<Verdict, kube::Error> {
        let params = PostParams::default();
        let spec = TokenReviewSpec { token: Some(token.to_owned()), ..TokenReviewSpec::default() };
        let review = TokenReview { spec, ..TokenReview::default() };
        let status = Api::all(self.client.clone()).create(&params, &review).await?.status.unwrap_or_default();
        let Some(user) = status.user.filter(|_| status.authenticated == Some(true)) else {
            return Ok(Verdict::Unknown);
        };
        let name = user.username.clone().unwrap_or_default();
        let review = SubjectAccessReview { spec: access(user), ..SubjectAccessReview::default() };
        let asked: SubjectAccessReview = Api::all(self.client.clone()).create(&params, &review).await?;
        let SubjectAccessReviewStatus { allowed, denied, .. } = asked.status.unwrap_or_default();
        Ok(if allowed && denied != Some(true) { Verdict::May } else { Verdict::Forbidden(name) })
    }
}

fn access(user: UserInfo) -> SubjectAccessReviewSpec {
    let path = NonResourceAttributes { path: Some(PATH.to_owned()), verb: Some("get".to_owned()) };
    let UserInfo { extra, groups, uid, username } = user;
    SubjectAccessReviewSpec {
        extra,
        groups,
        uid,
        user: username,
        non_resource_attributes: Some(path),
        ..SubjectAccessReviewSpec::default()
    }
}

/// The token of the one `Authorization` header.
fn bearer(headers: &HeaderMap) -> Option<String> {
    let value = single(headers, &header::AUTHORIZATION)?;
    let (scheme, token) = value.split_once(' ')?;
    let token = token.trim();
    let readable = !token.is_empty() && token.len() <= LONGEST && scheme.eq_ignore_ascii_case("bearer");
    readable.then(|| token.to_owned())
}

fn unauthorized() -> Box<Response> {
    let text = "a token of the API server is asked for: Authorization: Bearer …, as of kubectl create token\n";
    Box::new((StatusCode::UNAUTHORIZED, [(header::WWW_AUTHENTICATE, "Bearer")], text).into_response())
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use axum::http::{HeaderValue, Request};
    use kube::client::Body;
    use serde_json::{Value, json};

    use super::*;

    /// An API server that knows `good`, who may, and `poor`, who may not; and how often it was asked.
    fn api() -> (Client, Arc<AtomicUsize>) {
        let asked = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&asked);
        let service = tower::service_fn(move |request: Request<Body>| {
            counted.fetch_add(1, Ordering::SeqCst);
            async move {
                let path = request.uri().path().to_owned();
                let mut object: Value =
                    serde_json::from_slice(&request.into_body().collect_bytes().await.unwrap()).unwrap();
                object["status"] = if path.ends_with("/tokenreviews") {
                    let token = object["spec"]["token"].as_str().unwrap();
                    json!({"authenticated": token != "false", "user": {"username": token, "groups": ["g"]}})
                } else {
                    let spec = &object["spec"];
                    let asks = json!({"path": PATH, "verb": "get"});
                    assert_eq!((&spec["nonResourceAttributes"], &spec["groups"]), (&asks, &json!(["g"])));
                    json!({"allowed": spec["user"] != "poor", "denied": spec["user"] == "denied"})
                };
                Ok::<_, Infallible>(axum::http::Response::new(Body::from(object.to_string().into_bytes())))
            }
        });
        (Client::new(service, "ns"), asked)
    }

    fn headers(values: &[&str]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for value in values {
            headers.append(header::AUTHORIZATION, HeaderValue::from_str(value).unwrap());
        }
        headers
    }

    async fn status(guard: &Guard, values: &[&str]) -> u16 {
        guard.admit(&headers(values)).await.map_or_else(|answer| answer.status().as_u16(), |()| 200)
    }

    #[tokio::test]
    async fn a_token_that_the_api_server_knows_and_lets_in_is_needed_and_nothing_else_is_asked_about() {
        let (client, asked) = api();
        let guard = Guard::new(client);
        let long = format!("Bearer {}", "x".repeat(LONGEST + 1));
        for unreadable in
            [&[][..], &["Basic Z29vZA=="], &["Bearer "], &["good"], &["Bearer good", "Bearer good"], &[long.as_str()]]
        {
            assert_eq!(status(&guard, unreadable).await, 401, "{unreadable:?}");
        }
        assert_eq!(asked.load(Ordering::SeqCst), 0);
        for (value, code) in [
            ("Bearer good", 200),
            ("bearer good", 200),
            ("Bearer false", 401),
            ("Bearer poor", 403),
            ("Bearer denied", 403),
        ] {
            assert_eq!(status(&guard, &[value]).await, code, "{value}");
        }
    }

    #[tokio::test]
    async fn the_api_server_is_asked_again_once_its_answer_is_old_and_many_tokens_are_not_kept() {
        let (client, asked) = api();
        let guard = Guard::new(client);
        for _ in 0..3 {
            assert_eq!(status(&guard, &["Bearer good"]).await, 200);
            assert_eq!(status(&guard, &["Bearer false"]).await, 401);
        }
        assert_eq!(asked.load(Ordering::SeqCst), 3, "two calls for whom it knows, and one for nobody");
        for number in 0..KEPT {
            status(&guard, &[&format!("Bearer {number}")]).await;
        }
        assert!(guard.known.lock().await.len() <= KEPT);
        let (client, asked) = api();
        let guard = Guard { counts: Duration::ZERO, ..Guard::new(client) };
        for calls in [2, 4] {
            assert_eq!(status(&guard, &["Bearer good"]).await, 200);
            assert_eq!(asked.load(Ordering::SeqCst), calls);
        }
    }

    #[tokio::test]
    async fn of_many_unknown_tokens_a_few_are_asked_about_at_once_and_who_is_known_gets_in() {
        let (sent, mut asked) = tokio::sync::mpsc::unbounded_channel();
        let hangs = tower::service_fn(move |_: Request<Body>| {
            sent.send(()).unwrap();
            std::future::pending::<Result<axum::http::Response<Body>, Infallible>>()
        });
        let guard = Guard::new(Client::new(hangs, "ns"));
        let digest: [u8; 32] = Sha256::digest("good").into();
        guard.known.lock().await.insert(digest, (Instant::now(), Verdict::May));
        let unknown = (0..ASKING).map(|number| {
            let guard = &guard;
            async move { status(guard, &[&format!("Bearer {number}")]).await }
        });
        let others = async {
            for _ in 0..ASKING {
                asked.recv().await.unwrap();
            }
            assert_eq!(status(&guard, &["Bearer one-more"]).await, 503);
            assert_eq!(status(&guard, &["Bearer good"]).await, 200);
        };
        tokio::select! {
            _ = futures::future::join_all(unknown) => panic!("nobody answers"),
            () = others => {}
        }
        assert!(asked.try_recv().is_err());
    }

    #[tokio::test]
    async fn nobody_is_let_in_while_the_api_server_cannot_be_asked() {
        let service = tower::service_fn(|_: Request<Body>| async {
            let answer = axum::http::Response::builder().status(403);
            let status =
                json!({"kind": "Status", "code": 403, "message": "tokenreviews is forbidden", "reason": "Forbidden"});
            Ok::<_, Infallible>(answer.body(Body::from(status.to_string().into_bytes())).unwrap())
        });
        let guard = Guard::new(Client::new(service, "ns"));
        assert_eq!(status(&guard, &["Bearer good"]).await, 503);
    }
}
