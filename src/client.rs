//! The client with which Muster reads and writes. No call through it waits for ever, and a connection on which nothing comes
//! any more is given up.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use http::{Request, Response};
use kube::Client;
use kube::client::{Body, ClientBuilder};
use tower::{BoxError, Layer, Service};

/// How long is waited for what.
#[derive(Clone, Copy, Debug)]
pub struct Patience {
    /// For a connection.
    pub connect: Duration,
    /// For a byte on a connection that owes an answer.
    pub silence: Duration,
    /// For the beginning of an answer, with all that the client repeats by itself.
    pub answer: Duration,
}

impl Default for Patience {
    fn default() -> Self {
        Self { connect: Duration::from_secs(5), silence: Duration::from_secs(10), answer: Duration::from_secs(30) }
    }
}

/// A client whose calls all end.
///
/// Errors: the configuration makes no client.
pub fn bounded(mut config: kube::Config, patience: Patience) -> Result<Client, kube::Error> {
    config.connect_timeout = Some(patience.connect);
    config.write_timeout = Some(patience.silence);
    config.read_timeout = Some(patience.silence);
    // The time that a connection was idle does not count.
    config.reset_reader_on_write = true;
    Ok(ClientBuilder::try_from(config)?.with_layer(&Within(patience.answer)).build())
}

/// Ends a call that is not answered in time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Within(pub(crate) Duration);

impl<S> Layer<S> for Within {
    type Service = Ending<S>;

    fn layer(&self, inner: S) -> Ending<S> {
        Ending { inner, after: self.0 }
    }
}

/// See [`Within`].
#[derive(Clone, Debug)]
pub(crate) struct Ending<S> {
    inner: S,
    after: Duration,
}

impl<S, B> Service<Request<Body>> for Ending<S>
where
    S: Service<Request<Body>, Response = Response<B>>,
    S::Error: Into<BoxError>,
    S::Future: Send + 'static,
{
    type Response = Response<B>;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<Response<B>, BoxError>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(context).map_err(Into::into)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let (answer, after) = (self.inner.call(request), self.after);
        Box::pin(async move {
            match tokio::time::timeout(after, answer).await {
                Ok(answer) => answer.map_err(Into::into),
                Err(_) => Err(unanswered(after)),
            }
        })
    }
}

/// That no answer has begun for so long.
pub(crate) fn unanswered(after: Duration) -> BoxError {
    format!("the API server did not answer within {} s", after.as_secs()).into()
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::Namespace;
    use kube::Api;
    use tokio::io::AsyncReadExt;
    use tokio::net::TcpListener;

    use super::*;

    /// Takes connections and what is sent on them, and says nothing.
    async fn black_hole() -> kube::Config {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                tokio::spawn(async move { while stream.read(&mut [0; 1024]).await.is_ok_and(|count| count > 0) {} });
            }
        });
        kube::Config::new(format!("http://{address}").parse().unwrap())
    }

    async fn fails(patience: Patience) -> String {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let client = bounded(black_hole().await, patience).unwrap();
        Api::<Namespace>::all(client).get("ml").await.unwrap_err().to_string()
    }

    #[tokio::test]
    async fn a_dead_connection_is_noticed_by_its_silence() {
        fails(Patience { silence: Duration::from_millis(1), ..Patience::default() }).await;
    }

    #[tokio::test]
    async fn a_call_that_is_not_answered_ends() {
        let error = fails(Patience { answer: Duration::from_millis(1), ..Patience::default() }).await;
        assert!(error.contains("did not answer within"), "{error}");
    }
}
