//! The client of the watches: one connection for all of them, which is asked by pings whether it lives.
//!
//! A watch on which nothing happens and one whose connection is dead look the same. Over HTTP/2 a connection answers pings, and when
//! it last brought a byte is noted. Behind something that speaks HTTP/1.1 alone there are none: there each watch has a connection, and
//! is opened again so often that the answers say it.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use anyhow::Context as _;
use http::Request;
use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_rustls::{FixedServerNameResolver, HttpsConnector, HttpsConnectorBuilder};
use hyper_timeout::TimeoutConnector;
use hyper_util::client::legacy::Client as HttpClient;
use hyper_util::client::legacy::connect::{Connected, Connection, HttpConnector, capture_connection};
use hyper_util::rt::{TokioExecutor, TokioTimer};
use kube::Client;
use kube::client::retry::RetryPolicy;
use kube::client::{Body, ClientBuilder, ConfigExt as _};
use tower::retry::RetryLayer;
use tower::{BoxError, ServiceBuilder, ServiceExt as _};

use super::contact::{ContactLayer, Contacts};
use super::last_byte::LastByte;
use crate::client::{Patience, Within, unanswered};

/// A client on which a connection that says nothing is given up before its kinds are stale.
///
/// Errors: the configuration makes no client.
pub(super) fn watching(mut config: kube::Config, contacts: &Arc<Contacts>) -> anyhow::Result<Client> {
    let noting = ContactLayer(Arc::clone(contacts));
    let (silence, started) = (contacts.silence(), contacts.started());
    // With all that is repeated, as for every other call.
    let answered = Within(Patience::default().answer);
    if config.proxy_url.is_some() {
        // What it needs is kube's own, which speaks HTTP/1.1.
        config.connect_timeout = Some(silence);
        config.read_timeout = Some(silence);
        let client = ClientBuilder::try_from(config).context("make a client for the watches")?;
        return Ok(client.with_layer(&answered).with_layer(&noting).build());
    }
    let mut connector = TimeoutConnector::new(https(&config)?);
    connector.set_connect_timeout(Some(silence));
    connector.set_read_timeout(Some(silence));
    let connector = connector.map_response(move |stream| Noted { stream, silence, last: LastByte::now(started) });
    // Unanswered, it ends the connection after the silence that is allowed.
    let ping = silence / 3;
    let connections = HttpClient::builder(TokioExecutor::new())
        .timer(TokioTimer::new())
        .http2_keep_alive_interval(ping)
        .http2_keep_alive_timeout(silence.saturating_sub(ping))
        // What is open on a connection that takes no new requests counts as nothing to hyper.
        .http2_keep_alive_while_idle(true)
        .build(connector);
    let awaited = tower::service_fn(move |mut request: Request<Body>| {
        let by = capture_connection(&mut request);
        let answer = connections.request(request);
        async move {
            let Ok(answer) = tokio::time::timeout(silence, answer).await else {
                // Whatever answers its pings does not answer what is asked: the next request goes another way.
                if let Some(connected) = by.connection_metadata().as_ref() {
                    connected.poison();
                }
                return Err(unanswered(silence));
            };
            answer.map_err(BoxError::from)
        }
    });
    // As in kube's own client, but for its spans.
    let retry = config.default_retry.then(|| RetryLayer::new(RetryPolicy::server_retry()));
    let service = ServiceBuilder::new()
        .layer(noting)
        .layer(answered)
        .layer(config.base_uri_layer())
        .option_layer(retry)
        .option_layer(config.auth_layer().context("read how Muster proves who it is")?)
        .layer(config.extra_headers_layer().context("read the headers that are sent along")?)
        .service(awaited);
    Ok(Client::new(service, config.default_namespace))
}

/// TLS, by which both sides agree on a version of HTTP; or none, where the address says so.
fn https(config: &kube::Config) -> anyhow::Result<HttpsConnector<HttpConnector>> {
    let tls = config.rustls_client_config().context("read the certificates of the kubeconfig")?;
    let mut https = HttpsConnectorBuilder::new().with_tls_config(tls).https_or_http();
    if let Some(name) = &config.tls_server_name {
        let resolved = name.clone().try_into().with_context(|| format!("tls-server-name {name:?} is no host name"))?;
        https = https.with_server_name_resolver(FixedServerNameResolver::new(resolved));
    }
    let mut tcp = HttpConnector::new();
    tcp.enforce_http(false);
    Ok(https.enable_http1().enable_http2().wrap_connector(tcp))
}

/// A connection whose last byte is noted.
#[derive(Debug)]
struct Noted<S> {
    stream: S,
    silence: Duration,
    last: LastByte,
}

impl<S: Connection> Connection for Noted<S> {
    fn connected(&self) -> Connected {
        self.stream.connected().extra(self.last.clone())
    }
}

impl<S: Read + Unpin> Read for Noted<S> {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, into: ReadBufCursor<'_>) -> Poll<io::Result<()>> {
        let polled = Pin::new(&mut self.stream).poll_read(context, into);
        if let Poll::Ready(Ok(())) = polled {
            if self.last.silent_for() > self.silence {
                // What has come since may have waited here as long as this process stood still: it proves nothing.
                return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
            }
            self.last.note();
        }
        polled
    }
}

impl<S: Write + Unpin> Write for Noted<S> {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(context, slices)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use std::convert::Infallible;
    use std::sync::atomic::{AtomicU64, Ordering};

    use axum::body::Bytes;
    use http::{Response, Version};
    use hyper_util::rt::TokioIo;
    use hyper_util::server::conn::auto;
    use rustls::crypto::ring;
    use rustls::pki_types::PrivateKeyDer;
    use tokio::io::AsyncWriteExt as _;
    use tokio::net::TcpListener;
    use tokio::time::Instant;
    use tokio_rustls::TlsAcceptor;

    use super::*;
    use crate::testbed::eventually;

    const WATCH: &str = "/api/v1/pods?watch=true&timeoutSeconds=30";

    /// How an API server of this name is reached that speaks these protocols, and on whose watches nothing happens. It answers with some
    /// of the headers it gets and the number of the connection, the first time that it is too busy, and on `/never` not at all.
    async fn serving(name: &str, protocols: &[&[u8]]) -> kube::Config {
        let _ = ring::default_provider().install_default();
        let own = rcgen::generate_simple_self_signed(vec![name.to_owned()]).unwrap();
        let root = own.cert.der().to_vec();
        let key = PrivateKeyDer::try_from(own.signing_key.serialize_der()).unwrap();
        let tls = rustls::ServerConfig::builder().with_no_client_auth();
        let mut tls = tls.with_single_cert(vec![own.cert.der().clone()], key).unwrap();
        tls.alpn_protocols = protocols.iter().map(|protocol| protocol.to_vec()).collect();
        let acceptor = TlsAcceptor::from(Arc::new(tls));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut config = kube::Config::new(format!("https://{}", listener.local_addr().unwrap()).parse().unwrap());
        config.root_cert = Some(vec![root]);
        let asked = Arc::new(AtomicU64::new(0));
        tokio::spawn(async move {
            for connection in 0_u32.. {
                let (stream, _) = listener.accept().await.unwrap();
                let (acceptor, asked) = (acceptor.clone(), Arc::clone(&asked));
                tokio::spawn(async move {
                    let stream = TokioIo::new(acceptor.accept(stream).await.unwrap());
                    let service = hyper::service::service_fn(move |request| {
                        answer(request, connection, asked.fetch_add(1, Ordering::Relaxed))
                    });
                    let _ = auto::Builder::new(TokioExecutor::new()).serve_connection(stream, service).await;
                });
            }
        });
        config
    }

    async fn answer(
        request: Request<hyper::body::Incoming>,
        connection: u32,
        asked_before: u64,
    ) -> Result<Response<axum::body::Body>, Infallible> {
        if request.uri().path() == "/never" {
            return std::future::pending().await;
        }
        let answer = Response::builder().status(if asked_before == 0 { 429 } else { 200 });
        let mut answer = answer.header("connection-number", connection);
        for name in [http::header::AUTHORIZATION, http::HeaderName::from_static("impersonate-user")] {
            if let Some(value) = request.headers().get(&name) {
                answer = answer.header(name, value);
            }
        }
        let nothing = futures::stream::pending::<Result<Bytes, Infallible>>();
        Ok(answer.body(axum::body::Body::from_stream(nothing)).unwrap())
    }

    async fn asks(client: &Client, target: &str) -> kube::Result<Response<Body>> {
        client.send(Request::get(target).body(Body::empty()).unwrap()).await
    }

    async fn watched(config: kube::Config, contacts: &Arc<Contacts>) -> Response<Body> {
        asks(&watching(config, contacts).unwrap(), WATCH).await.unwrap()
    }

    fn contacts(seconds: u64) -> Arc<Contacts> {
        Arc::new(Contacts::new(&["pods"], &[], Duration::from_secs(seconds)))
    }

    #[tokio::test]
    async fn a_connection_on_which_nothing_happens_answers_pings() {
        let contacts = contacts(5);
        let answer = watched(serving("127.0.0.1", &[b"h2", b"http/1.1"]).await, &contacts).await;
        assert_eq!(answer.version(), Version::HTTP_2);
        let last = answer.extensions().get::<LastByte>().unwrap();
        let several = last.at() + u64::try_from(contacts.silence().as_millis()).unwrap();
        eventually(Duration::from_secs(60), "pings to be answered for longer than silence is allowed", || async {
            Ok::<_, Infallible>((last.at() > several).then_some(()))
        })
        .await
        .unwrap();
        assert_eq!(contacts.stale(), None);
    }

    #[tokio::test]
    async fn what_speaks_http_1_alone_is_watched_by_that() {
        let answer = watched(serving("127.0.0.1", &[b"http/1.1"]).await, &contacts(150)).await;
        assert_eq!(answer.version(), Version::HTTP_11);
    }

    #[tokio::test]
    async fn watches_say_who_they_are_trust_the_name_that_is_configured_and_ask_again_what_is_too_busy() {
        let mut config = serving("api.internal", &[b"h2"]).await;
        config.tls_server_name = Some("api.internal".to_owned());
        config.auth_info.token = Some("secret".to_owned().into());
        config.auth_info.impersonate = Some("ada".to_owned());
        let answer = watched(config, &contacts(150)).await;
        assert_eq!(answer.status(), 200);
        assert_eq!(answer.headers()["authorization"], "Bearer secret");
        assert_eq!(answer.headers()["impersonate-user"], "ada");
    }

    #[tokio::test]
    async fn an_answer_that_does_not_begin_is_given_up_and_what_is_asked_next_goes_another_way() {
        let client = watching(serving("127.0.0.1", &[b"h2"]).await, &contacts(2)).unwrap();
        let number = |answer: &Response<Body>| answer.headers()["connection-number"].clone();
        let first = asks(&client, WATCH).await.unwrap();
        let error = asks(&client, "/never").await.map(drop).unwrap_err();
        assert!(error.to_string().contains("did not answer within 1 s"), "{error}");
        let second = asks(&client, WATCH).await.unwrap();
        assert_ne!(number(&second), number(&first), "the connection answers its pings alone");
        let third = asks(&client, WATCH).await.unwrap();
        assert_eq!(number(&third), number(&second), "watches share one");
    }

    #[tokio::test]
    async fn a_name_of_the_server_that_is_none_is_refused_by_its_field() {
        let mut config = serving("127.0.0.1", &[b"h2"]).await;
        config.tls_server_name = Some("not a name".to_owned());
        let error = watching(config, &contacts(150)).map(drop).unwrap_err();
        assert!(error.to_string().contains(r#"tls-server-name "not a name""#), "{error}");
    }

    #[tokio::test]
    async fn what_waited_while_the_process_stood_still_is_no_news_and_ends_the_connection() {
        let Some(earlier) = Instant::now().checked_sub(Duration::from_secs(20)) else {
            panic!("the machine has just started")
        };
        let (mut server, mut client) = tokio::io::duplex(16);
        server.write_all(b"xx").await.unwrap();
        let mut read = async |last: &LastByte| {
            let stream = TokioIo::new(&mut client);
            let mut noted = Noted { stream, silence: Duration::from_secs(9), last: last.clone() };
            let mut into = [0; 1];
            let mut into = hyper::rt::ReadBuf::new(&mut into);
            std::future::poll_fn(|context| Pin::new(&mut noted).poll_read(context, into.unfilled())).await
        };
        let stood_still = LastByte::at_start(earlier);
        assert_eq!(read(&stood_still).await.unwrap_err().kind(), io::ErrorKind::TimedOut);
        assert_eq!(stood_still.at(), 0);
        let lately = LastByte::at_start(Instant::now().checked_sub(Duration::from_secs(5)).unwrap());
        read(&lately).await.unwrap();
        assert!(lately.at() >= 5_000);
    }
}
