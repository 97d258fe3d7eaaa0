//! Serving HTTP: plain on loopback, mutual TLS elsewhere, with bounds on slow and half-open connections.

mod threads;
mod tls;

use std::net::SocketAddr;
use std::time::Duration;

use axum::Router;
use axum_server::accept::NoDelayAcceptor;
use axum_server::tls_rustls::{RustlsAcceptor, RustlsConfig};
use axum_server::{Handle, Server};
use hyper_util::rt::{TokioExecutor, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

pub use threads::Threads;
pub use tls::{Tls, TlsFiles};

/// The head of a request must have arrived within this time; it also bounds how long a connection may be idle. Go's
/// clients give up idle connections after 90 s: ours must last longer, or a call could meet a connection that is being
/// closed, which Go does not repeat.
const HEAD: Duration = Duration::from_secs(120);
/// A TLS handshake must be done within this time.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// Members of one gang stand at the barrier on streams of one connection.
const STREAMS: u32 = 16_384;
/// After a shutdown answers under way have this long.
const GRACE: Duration = Duration::from_secs(5);

/// Serves until cancelled; then calls under way are answered and the rest is cut off.
///
/// Errors: those of the listener.
pub async fn serve(
    listener: TcpListener,
    router: Router,
    tls: Option<RustlsConfig>,
    cancel: CancellationToken,
) -> anyhow::Result<()> {
    let handle: Handle<SocketAddr> = Handle::new();
    let shutdown = async {
        cancel.cancelled().await;
        handle.graceful_shutdown(Some(GRACE));
        std::future::pending::<()>().await;
    };
    let server = Server::<SocketAddr>::from_listener(listener).handle(handle.clone());
    let service = router.into_make_service_with_connect_info::<SocketAddr>();
    let served = async {
        match tls {
            None => {
                let mut server = server.acceptor(NoDelayAcceptor::new()).http1_only();
                bound(server.http_builder());
                server.serve(service).await
            }
            Some(tls) => {
                let acceptor = RustlsAcceptor::new(tls).handshake_timeout(HANDSHAKE).acceptor(NoDelayAcceptor::new());
                let mut server = server.acceptor(acceptor);
                bound(server.http_builder());
                server.serve(service).await
            }
        }
    };
    tokio::select! {
        served = served => Ok(served?),
        () = shutdown => Ok(()),
    }
}

fn bound(builder: &mut Builder<TokioExecutor>) {
    builder.http1().timer(TokioTimer::new()).header_read_timeout(HEAD);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(STREAMS)
        .keep_alive_interval(Duration::from_secs(30))
        .keep_alive_timeout(Duration::from_secs(15));
}
