//! The service's side of the socket: one port for every operation of every service.

use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use jiff::Timestamp;
use serde_json::json;

use crate::Simulator;
use crate::choices::DryRun;
use crate::faults::{CallScope, Drawn, FaultKind};
use crate::journal::{JournalEntry, LaunchFacts};
use crate::operations::{self, Call, Reply};
use crate::policy;
use crate::protocol::error::ApiError;
use crate::protocol::request::{Request, Service};
use crate::protocol::xml::Xml;
use crate::state::World;
use crate::state::held::Held;
use crate::throttle::Bucket;

pub(crate) fn routes() -> Router<Arc<Simulator>> {
    Router::new().fallback(answer)
}

async fn answer(
    State(simulator): State<Arc<Simulator>>,
    method: Method,
    uri: Uri,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    if uri.path().starts_with("/_sim") {
        let error = json!({"error": format!("there is no {method} {}", uri.path())});
        return (StatusCode::NOT_FOUND, axum::Json(error)).into_response();
    }
    let request = Request::read(&method, uri.path(), &headers, &body);
    simulator.await_message(&request).await;
    let exchange = simulator.exchange(&request);
    match exchange.ending {
        Ending::Whole => {}
        Ending::Held(time) => tokio::time::sleep(time).await,
        Ending::Cut => return cut(),
    }
    let status = StatusCode::from_u16(exchange.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let mut response = (status, exchange.body).into_response();
    let headers = response.headers_mut();
    let kind = match request.service {
        Service::Ec2 | Service::Sts | Service::Iam => "text/xml;charset=UTF-8",
        Service::Sqs => "application/x-amz-json-1.0",
        Service::Eks => "application/json",
        Service::Ssm | Service::Pricing | Service::Quotas => "application/x-amz-json-1.1",
    };
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    if let Ok(id) = HeaderValue::from_str(&exchange.request_id) {
        headers.insert("x-amzn-requestid", id);
    }
    if let Some(code) = exchange.code.and_then(|code| HeaderValue::from_str(&code).ok()) {
        headers.insert("x-amzn-errortype", code);
    }
    response
}

/// An answer that breaks off before its first byte of body, upon which the server drops the connection.
fn cut() -> Response {
    let lost = std::io::Error::new(std::io::ErrorKind::ConnectionReset, "response lost");
    let body = futures::stream::once(async move { Err::<Bytes, _>(lost) });
    Response::new(Body::from_stream(body))
}

struct Exchange {
    status: u16,
    body: String,
    code: Option<String>,
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

/// Real time between two looks at an empty queue.
const LOOK: Duration = Duration::from_millis(20);

/// What the cloud controller is answered about the place of a node in the network.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NodeTopology {
    /// The network nodes above it, from the top.
    Known(Vec<String>),
    /// Too many calls: the same one may succeed in a moment.
    Throttled,
    /// EC2 does not know the instance, or does not show it yet.
    Refused,
}

impl Simulator {
    /// Waits as a long poll does: until there is a message, or for `WaitTimeSeconds` of virtual time. On a manual
    /// clock, which nobody advances meanwhile, not at all.
    async fn await_message(&self, request: &Request) {
        if request.service != Service::Sqs || request.operation != "ReceiveMessage" || self.clock.is_manual() {
            return;
        }
        let wait = request.form.number("WaitTimeSeconds").ok().flatten().unwrap_or(0).min(20);
        let end = Instant::now() + Duration::from_secs(u64::from(wait)).div_f64(self.clock.factor());
        while Instant::now() < end && !self.message_ready() {
            tokio::time::sleep(LOOK).await;
        }
    }

    fn message_ready(&self) -> bool {
        let now = self.clock.now();
        self.settled().queue.ready(now)
    }

    /// The network nodes above a running instance, asked for as the cloud controller does: one call for one node, from
    /// the same bucket as everybody's.
    pub fn topology_for_node(&self, instance: &str) -> NodeTopology {
        let exchange = self.exchange(&Request::of_the_cloud_controller(instance));
        match exchange.code.as_deref() {
            Some("RequestLimitExceeded") => NodeTopology::Throttled,
            Some(_other) => NodeTopology::Refused,
            None => {
                let known = self.settled().instances.get(instance).map(|i| i.network_nodes.clone());
                known.map_or(NodeTopology::Refused, NodeTopology::Known)
            }
        }
    }

    /// What a signed call of a query protocol with this body is answered, status and text, without a socket.
    #[must_use]
    pub fn answer(&self, body: &[u8]) -> (u16, String) {
        let mut headers = HeaderMap::new();
        headers.insert(header::AUTHORIZATION, HeaderValue::from_static("AWS4-HMAC-SHA256"));
        let exchange = self.exchange(&Request::read(&Method::POST, "/", &headers, body));
        (exchange.status, exchange.body)
    }

    fn exchange(&self, request: &Request) -> Exchange {
        let now = self.clock.now();
        let mut world = self.settled();
        let scope = operations::scope(&world, &request.operation, &request.form);
        let origin = world.origin;
        let drawn = world.faults.draw(&scope, origin, now);
        let held = drawn.kinds().find_map(|kind| match kind {
            FaultKind::HeldBack { seconds } => {
                Some(seconds.map(|s| crate::clock::later(now, crate::clock::seconds(s))))
            }
            _ => None,
        });
        if let Some(due) = held {
            let number = world.journal.next_number();
            let request_id = world.ids.uuid();
            let mut entry = entry(request, &scope, &drawn, number, now, &request_id);
            (entry.status, entry.lost) = (0, true);
            world.journal.write(entry);
            world.held.push(Held { request: request.clone(), drawn, due, batch: scope.batch, number });
            return Exchange { status: 500, body: String::new(), code: None, request_id, ending: Ending::Cut };
        }
        let exchange = carry_out(&mut world, request, &drawn, None, now);
        if matches!(request.operation.as_str(), "CreateFleet" | "RunInstances") {
            // The same call again, under its token, is no newer launch.
            let token = request.form.get("ClientToken");
            let older = |held: &Held| {
                held.due.is_none() && held.batch == scope.batch && held.request.form.get("ClientToken") != token
            };
            carry_out_held(&mut world, now, older);
        }
        exchange
    }
}

/// Carries out the launches held back for which it is time.
pub(crate) fn carry_out_due(world: &mut World, now: Timestamp) {
    carry_out_held(world, now, |held| held.due.is_some_and(|due| due <= now));
}

fn carry_out_held(world: &mut World, now: Timestamp, is_due: impl Fn(&Held) -> bool) {
    let (due, rest) = std::mem::take(&mut world.held).into_iter().partition(is_due);
    world.held = rest;
    let due: Vec<Held> = due;
    for held in due {
        carry_out(world, &held.request, &held.drawn, Some(held.number), now);
    }
}

/// Does the work and writes it down. `held`: the number of the entry with which the call came.
fn carry_out(world: &mut World, request: &Request, drawn: &Drawn, held: Option<u64>, now: Timestamp) -> Exchange {
    let request_id = world.ids.uuid();
    let call = Call { form: &request.form, now, drawn, host: &request.host };
    let scope = operations::scope(world, &request.operation, &request.form);
    let mut result = perform(world, request, &call);
    let ending = ending(drawn);
    let number = world.journal.next_number();
    let mut entry = entry(request, &scope, drawn, number, now, &request_id);
    match (&result, &mut entry.launch) {
        (Ok(reply), Some(launch)) => launch.failures.clone_from(&reply.failures),
        (Err(error), Some(launch)) => launch.refused(&error.code),
        (_, None) => {}
    }
    if let Ok(reply) = &result {
        entry.resources.clone_from(&reply.resources);
        entry.item_codes.clone_from(&reply.item_codes);
        entry.replayed = reply.replayed;
    }
    let server_error = drawn.kinds().any(|k| *k == FaultKind::LostAsServerError);
    if server_error {
        result = Err(ApiError::new(500, "InternalError", "An internal error has occurred"));
    }
    let status = result.as_ref().map_or_else(|e| e.status, |_| 200);
    let code = result.as_ref().err().map(|e| e.code.clone());
    let body = body(request, &request_id, &result);
    entry.status = status;
    entry.code.clone_from(&code);
    entry.lost = server_error || matches!(ending, Ending::Cut) || held.is_some();
    entry.held = held;
    if world.scenario.record_bodies {
        entry.request = Some(request.body.clone());
        entry.response = Some(body.clone());
    }
    world.journal.write(entry);
    Exchange { status, body, code, request_id, ending }
}

fn entry(
    request: &Request,
    scope: &CallScope,
    drawn: &Drawn,
    number: u64,
    now: Timestamp,
    request_id: &str,
) -> JournalEntry {
    JournalEntry {
        number,
        at: now,
        service: request.service.name(),
        operation: request.operation.clone(),
        parameters: request.form.parameters().clone(),
        token: request.form.get("ClientToken").map(str::to_owned),
        attempt: request.attempt,
        user_agent: request.user_agent.clone(),
        faults: drawn.names(),
        status: 0,
        code: None,
        item_codes: vec![],
        resources: vec![],
        replayed: false,
        lost: false,
        held: None,
        launch: LaunchFacts::of(scope),
        request_id: request_id.to_owned(),
        request: None,
        response: None,
    }
}

/// Does the work, or says why not.
fn perform(world: &mut World, request: &Request, call: &Call<'_>) -> Result<Reply, ApiError> {
    let operation = request.operation.as_str();
    if !request.signed {
        return Err(ApiError::new(403, "MissingAuthenticationToken", "Request is missing Authentication Token"));
    }
    let Some(handler) = operations::find(request.service, operation) else {
        let code = match request.service {
            Service::Sqs | Service::Ssm | Service::Pricing | Service::Quotas => "UnknownOperationException",
            Service::Ec2 | Service::Sts | Service::Iam | Service::Eks => "InvalidAction",
        };
        return Err(ApiError::client(code, format!("The simulator does not play the operation {operation:?}")));
    };
    policy::check(world, request, call.now)?;
    let narrow = ["Filter", "InstanceId", "GroupId"].iter().any(|name| request.form.has(name))
        || request.form.get("MaxResults").is_some();
    let bucket = Bucket::of(request.service, operation, narrow);
    if !world.buckets.draw(bucket, 1.0, call.now) {
        return Err(throttled(request.service));
    }
    if let Some(error) = call.drawn.kinds().find_map(FaultKind::refusal) {
        // A throttled call is refused in the words of its service.
        let throttled = error == ApiError::throttled();
        return Err(if throttled { self::throttled(request.service) } else { error });
    }
    if request.form.flag("DryRun")? {
        if world.scenario.choices.dry_run == DryRun::Parameters {
            operations::look_through(world, operation, call)?;
        }
        return Err(ApiError::new(412, "DryRunOperation", "Request would have succeeded, but DryRun flag is set."));
    }
    handler(world, call)
}

/// Too many calls, as the service words it.
fn throttled(service: Service) -> ApiError {
    match service {
        Service::Ssm | Service::Pricing | Service::Quotas => ApiError::client("ThrottlingException", "Rate exceeded"),
        Service::Ec2 | Service::Sqs | Service::Sts | Service::Iam | Service::Eks => ApiError::throttled(),
    }
}

fn ending(drawn: &Drawn) -> Ending {
    if drawn.kinds().any(|k| *k == FaultKind::LostResponse) {
        return Ending::Cut;
    }
    let held = drawn.kinds().find_map(FaultKind::hold);
    held.map_or(Ending::Whole, Ending::Held)
}

fn body(request: &Request, request_id: &str, result: &Result<Reply, ApiError>) -> String {
    let operation = request.operation.as_str();
    match (request.service, result) {
        (Service::Ec2, Ok(reply)) => Xml::ec2_response(operation, request_id, &reply.members),
        (Service::Ec2, Err(error)) => error.to_xml(request_id),
        (Service::Sts, Ok(reply)) => Xml::query_response(operation, STS_NAMESPACE, request_id, &reply.members),
        (Service::Iam, Ok(reply)) => Xml::query_response(operation, IAM_NAMESPACE, request_id, &reply.members),
        (Service::Sts | Service::Iam, Err(error)) => error.to_query_xml(request_id),
        (Service::Sqs | Service::Eks | Service::Ssm | Service::Pricing | Service::Quotas, Ok(reply)) => {
            reply.json.clone().unwrap_or_else(|| json!({})).to_string()
        }
        (Service::Sqs, Err(error)) => {
            json!({"__type": format!("com.amazonaws.sqs#{}", error.code), "message": error.message}).to_string()
        }
        // Version 1.1 of the protocol names the error alone.
        (Service::Ssm | Service::Pricing | Service::Quotas, Err(error)) => {
            json!({"__type": error.code, "message": error.message}).to_string()
        }
        (Service::Eks, Err(error)) => json!({"message": error.message}).to_string(),
    }
}

const STS_NAMESPACE: &str = "https://sts.amazonaws.com/doc/2011-06-15/";
const IAM_NAMESPACE: &str = "https://iam.amazonaws.com/doc/2010-05-08/";
