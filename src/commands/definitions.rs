//! What the definitions of our kinds on the cluster know: the same for `serve` and `doctor`.

use http::Request;
use kube::{Client, Error};
use muster_api::crd::served;

/// Fields of ours that the cluster's definitions drop, one per kind. None where the API server shows nobody its schemas, or knows no such
/// kinds: whether they are served is another question.
///
/// Errors: the API server's; to ask again is worth it.
pub(super) async fn unknown(client: &Client) -> Result<Vec<String>, Error> {
    let request = Request::get(served::OPENAPI).body(Vec::new()).map_err(Error::HttpError)?;
    match client.request(request).await {
        Ok(openapi) => Ok(served::unknown(&openapi)),
        Err(Error::Api(answer)) if matches!(answer.code, 403 | 404) => Ok(Vec::new()),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use http::Response;
    use kube::client::Body;

    use super::*;

    async fn asked(status: u16, body: &'static str) -> Result<Vec<String>, Error> {
        let service = tower::service_fn(move |_: Request<Body>| async move {
            let answer = Response::builder().status(status).body(Body::from(body.as_bytes().to_vec()));
            Ok::<_, std::convert::Infallible>(answer.expect("a constant answer is valid"))
        });
        unknown(&Client::new(service, "ns")).await
    }

    #[tokio::test]
    async fn an_answer_that_may_be_another_one_later_is_none_and_a_refusal_is_no_older_definition() {
        for status in [403, 404] {
            assert_eq!(asked(status, "404 page not found").await.unwrap(), Vec::<String>::new(), "{status}");
        }
        for status in [429, 500, 503] {
            assert!(asked(status, "not now").await.is_err(), "{status}");
        }
        assert!(asked(200, "{").await.is_err(), "half an answer");
        let batch = r#"{"components": {"schemas": {"dev.muster.v1alpha1.NodeBatch": {"properties": {}}}}}"#;
        assert_eq!(asked(200, batch).await.unwrap().len(), 1);
    }
}
