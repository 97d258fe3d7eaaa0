//! The control endpoint under `/_sim/`: looking at the world, and meddling with it.

use std::collections::BTreeSet;
use std::sync::Arc;

use axum::extract::{Query, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::Simulator;
use crate::capacity::Leaf;
use crate::clock::seconds;
use crate::faults::Fault;
use crate::fixtures::InstanceType;
use crate::interruption::Interruption;
use crate::kinds::MarketType;
use crate::policy::Policy;
use crate::scenario::ScenarioError;
use crate::state::World;
use crate::view;

pub(crate) fn routes() -> Router<Arc<Simulator>> {
    Router::new()
        .route("/_sim/state", get(state))
        .route("/_sim/instances", get(instances))
        .route("/_sim/journal", get(journal))
        .route("/_sim/invariants", get(invariants))
        .route("/_sim/bill", get(bill))
        .route("/_sim/faults", post(add_faults).delete(clear_faults))
        .route("/_sim/denied", post(deny))
        .route("/_sim/policy", get(policy).post(set_policy))
        .route("/_sim/clock", get(clock).post(advance))
        .route("/_sim/pools", post(pools))
        .route("/_sim/terminate", post(terminate))
        .route("/_sim/interrupt", post(interrupt))
        .route("/_sim/batches", post(batches))
        .route("/_sim/queue", get(queue))
}

/// A change of the hosts of one leaf.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PoolChange {
    /// The instance type.
    #[serde(rename = "type")]
    pub instance_type: String,
    /// The zone's name.
    pub zone: String,
    /// The capacity type.
    #[serde(default)]
    #[serde(rename = "market")]
    pub capacity_type: MarketType,
    /// From 0; spines up to it come to be.
    #[serde(default)]
    pub spine: usize,
    /// From 0; leaves up to it come to be.
    #[serde(default)]
    pub leaf: usize,
    /// Hosts more, or fewer if negative; never below 0.
    pub add: i32,
}

/// Spines of a pool, or leaves of a spine, at most.
const INDEX_LIMIT: usize = 1000;

/// # Errors
/// [`ScenarioError`] for an unknown type or zone, or an index beyond all reason.
pub(crate) fn change_pool(world: &mut World, change: &PoolChange) -> Result<u32, ScenarioError> {
    if InstanceType::find(&change.instance_type).is_none() {
        return Err(ScenarioError::UnknownType(change.instance_type.clone()));
    }
    if !world.scenario.zones.iter().any(|z| z.name == change.zone) {
        return Err(ScenarioError::UnknownZone(change.zone.clone()));
    }
    if change.spine >= INDEX_LIMIT || change.leaf >= INDEX_LIMIT {
        return Err(ScenarioError::Syntax(format!("spine and leaf must be below {INDEX_LIMIT}")));
    }
    Ok(world.capacity.set_hosts(
        &change.instance_type,
        &change.zone,
        change.capacity_type,
        (change.spine, change.leaf),
        |hosts| hosts.saturating_add_signed(change.add),
    ))
}

async fn state(State(simulator): State<Arc<Simulator>>) -> Json<Value> {
    let now = simulator.clock.now();
    let world = simulator.settled();
    let free = |leaves: &[Leaf]| -> Vec<Value> {
        leaves.iter().map(|l| json!({"hosts": l.hosts, "used": l.used(), "free": l.free()})).collect()
    };
    let pools: Vec<Value> = world
        .capacity
        .pools()
        .iter()
        .map(|p| {
            let leaves = || p.spines.iter().flatten();
            json!({
                "type": p.instance_type,
                "zone": p.zone,
                "market": p.capacity_type,
                "reservation": p.reservation,
                "hosts": leaves().map(|l| l.hosts).sum::<u32>(),
                "used": leaves().map(Leaf::used).sum::<u32>(),
                "free": leaves().map(Leaf::free).sum::<u32>(),
                "spines": p.spines.iter().map(|s| json!({"leaves": free(s)})).collect::<Vec<_>>(),
            })
        })
        .collect();
    let zones: Vec<Value> = world
        .scenario
        .zones
        .iter()
        .map(|z| {
            let subnets: Vec<Value> = world
                .subnets
                .values()
                .filter(|s| s.zone == z.name)
                .map(|s| json!({"id": s.id, "cidr": s.cidr, "available": s.available()}))
                .collect();
            json!({"name": z.name, "zoneId": z.zone_id, "subnets": subnets})
        })
        .collect();
    let groups: Vec<Value> = world
        .groups
        .iter()
        .map(|(name, g)| {
            let pin = g.pin.as_ref().map(|p| json!({"zone": p.zone, "type": p.instance_type, "spine": p.spine}));
            json!({
                "name": name, "id": g.id, "strategy": g.strategy.name(), "tags": g.tags,
                "instances": world.in_group(name, now).count(), "pin": pin,
            })
        })
        .collect();
    let reservations: Vec<Value> = world
        .reservations
        .values()
        .map(|r| {
            json!({
                "id": r.id, "type": r.instance_type, "zone": r.zone, "kind": r.kind, "state": r.state(now).name(),
                "placementGroup": r.group, "total": r.total(), "available": r.available(now), "foreign": r.foreign,
            })
        })
        .collect();
    let templates: Vec<Value> =
        world.templates.values().map(|t| json!({"id": t.id, "name": t.name, "tags": t.tags})).collect();
    Json(json!({
        "now": now,
        "seed": world.scenario.seed,
        "region": world.scenario.region,
        "zones": zones,
        "pools": pools,
        "placementGroups": groups,
        "reservations": reservations,
        "launchTemplates": templates,
        "faults": world.faults.len(),
        "messages": world.queue.len(),
        "instances": view::instances(&world, now, false),
    }))
}

async fn instances(State(simulator): State<Arc<Simulator>>) -> Response {
    let now = simulator.clock.now();
    let live = view::instances(&simulator.settled(), now, true);
    Json(live).into_response()
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct From {
    #[serde(default)]
    from: u64,
}

async fn journal(State(simulator): State<Arc<Simulator>>, Query(query): Query<From>) -> Response {
    let entries = simulator.settled().journal.since(query.from).to_vec();
    Json(entries).into_response()
}

async fn invariants(State(simulator): State<Arc<Simulator>>) -> Response {
    Json(simulator.invariants()).into_response()
}

async fn bill(State(simulator): State<Arc<Simulator>>) -> Response {
    Json(simulator.bill()).into_response()
}

#[derive(Deserialize)]
#[serde(untagged)]
enum OneOrMany {
    Many(Vec<Fault>),
    One(Box<Fault>),
}

async fn add_faults(State(simulator): State<Arc<Simulator>>, Json(faults): Json<OneOrMany>) -> Json<Value> {
    let mut world = simulator.settled();
    match faults {
        OneOrMany::Many(faults) => faults.into_iter().for_each(|f| world.faults.add(f)),
        OneOrMany::One(fault) => world.faults.add(*fault),
    }
    Json(json!({"faults": world.faults.len()}))
}

async fn clear_faults(State(simulator): State<Arc<Simulator>>) -> Json<Value> {
    simulator.clear_faults();
    Json(json!({"faults": 0}))
}

async fn deny(State(simulator): State<Arc<Simulator>>, Json(actions): Json<BTreeSet<String>>) -> Json<Value> {
    simulator.deny(actions.clone());
    Json(json!({"denied": actions}))
}

async fn policy(State(simulator): State<Arc<Simulator>>) -> Json<Option<Policy>> {
    Json(crate::policy::in_force(&simulator.settled()))
}

async fn set_policy(State(simulator): State<Arc<Simulator>>, Json(policy): Json<Option<Policy>>) -> Json<Value> {
    let held = policy.is_some();
    simulator.settled().scenario.policy = policy;
    Json(json!({"held": held}))
}

async fn clock(State(simulator): State<Arc<Simulator>>) -> Json<Value> {
    let clock = &simulator.clock;
    Json(json!({"now": clock.now(), "origin": clock.origin(), "factor": clock.factor()}))
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Advance {
    advance_seconds: f64,
}

async fn advance(State(simulator): State<Arc<Simulator>>, Json(by): Json<Advance>) -> Json<Value> {
    simulator.clock.advance(seconds(by.advance_seconds));
    Json(json!({"now": simulator.clock.now()}))
}

async fn pools(State(simulator): State<Arc<Simulator>>, Json(change): Json<PoolChange>) -> Response {
    match simulator.set_hosts(&change) {
        Ok(hosts) => Json(json!({"hosts": hosts})).into_response(),
        Err(error) => {
            let body = Json(json!({"error": error.to_string()}));
            (StatusCode::BAD_REQUEST, body).into_response()
        }
    }
}

async fn interrupt(State(simulator): State<Arc<Simulator>>, Json(what): Json<Interruption>) -> Json<Value> {
    let interrupted = simulator.interrupt(&what);
    Json(json!({"interrupted": interrupted}))
}

async fn batches(State(simulator): State<Arc<Simulator>>, Json(batches): Json<Value>) -> Response {
    let now = simulator.clock.now();
    match simulator.settled().batches.show(batches, now) {
        Ok(count) => Json(json!({"batches": count})).into_response(),
        Err(error) => (StatusCode::BAD_REQUEST, Json(json!({"error": error.to_string()}))).into_response(),
    }
}

async fn queue(State(simulator): State<Arc<Simulator>>) -> Json<Value> {
    Json(json!({"messages": simulator.settled().queue.len()}))
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Terminate {
    instance_ids: Vec<String>,
    #[serde(default = "spot_reason")]
    reason: String,
}

fn spot_reason() -> String {
    "Server.SpotInstanceTermination".to_owned()
}

async fn terminate(State(simulator): State<Arc<Simulator>>, Json(request): Json<Terminate>) -> Json<Value> {
    let terminated = simulator.terminate(&request.instance_ids, &request.reason);
    Json(json!({"terminated": terminated}))
}
