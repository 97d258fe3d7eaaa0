//! The service's side of the socket: one route for every operation.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::post;

use crate::Simulator;
use crate::clock::SimClock;
use crate::faults::{Drawn, FaultKind};
use crate::journal::JournalEntry;
use crate::operations::{self, Call, Reply};
use crate::protocol::error::ApiError;
use crate::protocol::form::Form;
use crate::protocol::xml::Xml;
use crate::state::World;
use crate::throttle::Bucket;

pub(crate) fn routes() -> Router<Arc<Simulator>> {
    Router::new().route("/", post(answer))
}

async fn answer(State(simulator): State<Arc<Simulator>>, headers: HeaderMap, body: Bytes) -> Response {
    let request = Request::read(&headers, &body);
    let exchange = simulator.exchange(&request);
    match exchange.ending {
        Ending::Whole => {}
        Ending::Held(time) => tokio::time::sleep(time).await,
        Ending::Cut => return cut(),
    }
    let status = StatusCode::from_u16(exchange.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let mut response = (status, exchange.body).into_response();
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/xml;charset=UTF-8"));
    if let Ok(id) = HeaderValue::from_str(&exchange.request_id) {
        headers.insert("x-amzn-requestid", id);
    }
    response
}

/// An answer that breaks off before its first byte of body, upon which the server drops the
/// connection.
fn cut() -> Response {
    let lost = std::io::Error::new(std::io::ErrorKind::ConnectionReset, "response lost");
    let body = futures::stream::once(async move { Err::<Bytes, _>(lost) });
    Response::new(Body::from_stream(body))
}

/// A request as far as the protocol is concerned.
struct Request {
    operation: String,
    form: Form,
    signed: bool,
    attempt: Option<u32>,
    user_agent: Option<String>,
}

impl Request {
    fn read(headers: &HeaderMap, body: &[u8]) -> Self {
        let text = |name: &str| headers.get(name).and_then(|v| v.to_str().ok());
        let mut form = Form::parse(body);
        let operation = form.remove("Action").unwrap_or_default();
        form.remove("Version");
        Self {
            // A service that is not played is named by its target instead.
            operation: match text("x-amz-target") {
                Some(target) => target.to_owned(),
                None => operation,
            },
            form,
            signed: text("authorization").is_some_and(|v| v.starts_with("AWS4-")),
            attempt: text("amz-sdk-request").and_then(|v| {
                v.split(';').find_map(|part| part.trim().strip_prefix("attempt=")).and_then(|n| n.parse().ok())
            }),
            user_agent: text("user-agent").map(str::to_owned),
        }
    }
}

struct Exchange {
    status: u16,
    body: String,
    request_id: String,
    ending: Ending,
}

enum Ending {
    Whole,
    /// The connection is cut instead of an answer.
    Cut,
    /// The answer is held back for this long.
    Held(Duration),
}

impl Simulator {
    fn exchange(&self, request: &Request) -> Exchange {
        let now = self.clock.now();
        let mut world = self.settled();
        let request_id = world.ids.uuid();
        let scope = operations::scope(&world, &request.operation, &request.form);
        let origin = world.origin;
        let drawn = world.faults.draw(&scope, origin, now);
        let call = Call { form: &request.form, now, drawn: &drawn };
        let mut result = perform(&mut world, request, &call, &self.clock);
        let resources = result.as_ref().map(|r| r.resources.clone()).unwrap_or_default();
        let replayed = result.as_ref().is_ok_and(|r| r.replayed);
        let item_codes = result.as_ref().map(|r| r.item_codes.clone()).unwrap_or_default();
        let ending = ending(&drawn);
        let server_error = drawn.kinds().any(|k| *k == FaultKind::LostAsServerError);
        if server_error {
            result = Err(ApiError::new(500, "InternalError", "An internal error has occurred"));
        }
        let status = result.as_ref().map_or_else(|e| e.status, |_| 200);
        let entry = JournalEntry {
            number: world.journal.next_number(),
            at: now,
            operation: request.operation.clone(),
            parameters: request.form.parameters().clone(),
            token: request.form.get("ClientToken").map(str::to_owned),
            attempt: request.attempt,
            user_agent: request.user_agent.clone(),
            faults: drawn.names(),
            status,
            code: result.as_ref().err().map(|e| e.code.clone()),
            item_codes,
            resources,
            replayed,
            lost: server_error || matches!(ending, Ending::Cut),
            request_id: request_id.clone(),
        };
        world.journal.write(entry);
        Exchange { status, body: body(&request.operation, &request_id, &result), request_id, ending }
    }
}

/// Does the work, or says why not.
fn perform(world: &mut World, request: &Request, call: &Call<'_>, clock: &SimClock) -> Result<Reply, ApiError> {
    let operation = request.operation.as_str();
    if !request.signed {
        return Err(ApiError::new(403, "MissingAuthenticationToken", "Request is missing Authentication Token"));
    }
    let Some(handler) = operations::find(operation) else {
        return Err(ApiError::client(
            "InvalidAction",
            format!("The simulator does not play the operation {operation:?}"),
        ));
    };
    let narrow = ["Filter", "InstanceId", "GroupId"].iter().any(|name| request.form.has(name))
        || request.form.get("MaxResults").is_some();
    let bucket = Bucket::of(operation, narrow);
    if !world.buckets.draw(bucket, 1.0, clock.now()) {
        return Err(ApiError::throttled());
    }
    for kind in call.drawn.kinds() {
        match kind {
            FaultKind::Throttle => return Err(ApiError::throttled()),
            FaultKind::Error { code, status, message } => return Err(ApiError::new(*status, code, message.clone())),
            FaultKind::Ice
            | FaultKind::Partial { .. }
            | FaultKind::Violating { .. }
            | FaultKind::ErrorItem { .. }
            | FaultKind::LostResponse
            | FaultKind::LostAsServerError
            | FaultKind::Delay { .. }
            | FaultKind::StuckPending { .. }
            | FaultKind::SlowBoot { .. }
            | FaultKind::Dies { .. }
            | FaultKind::Invisible { .. }
            | FaultKind::SlowTerminate { .. } => {}
        }
    }
    if request.form.flag("DryRun")? {
        return Err(ApiError::new(412, "DryRunOperation", "Request would have succeeded, but DryRun flag is set."));
    }
    handler(world, call)
}

fn ending(drawn: &Drawn) -> Ending {
    if drawn.kinds().any(|k| *k == FaultKind::LostResponse) {
        return Ending::Cut;
    }
    let held = drawn.kinds().find_map(FaultKind::hold);
    held.map_or(Ending::Whole, Ending::Held)
}

fn body(operation: &str, request_id: &str, result: &Result<Reply, ApiError>) -> String {
    let sts = operation == "GetCallerIdentity";
    match result {
        Ok(reply) if sts => Xml::query_response(operation, request_id, &reply.members),
        Ok(reply) => Xml::ec2_response(operation, request_id, &reply.members),
        Err(error) if sts => error.to_query_xml(request_id),
        Err(error) => error.to_xml(request_id),
    }
}
