//! Between the Gang object and core's gang state.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use muster_core::gang::level_summary;
use muster_core::model::gang::{self, Gang as State, GangPlace as StatePlace, Note, NoteKind, Phase, Recognised};
use muster_core::model::names::{NodeName, ObjectKey, PodUid};
use muster_core::model::resources::Resources;
use muster_core::planner::plan::LevelUse;

use crate::crd::{
    Gang, GangCapacity, GangHeld, GangLevel, GangMinimum, GangPlace, GangPlacement, GangPlan, GangRole, GangSlice,
    GangSource, GangSpec, GangStatus, GangTopologyRequest, GangTopologyRequests, GangWaiting,
};

/// Version of `Gang.status` this code writes. A higher one is left alone.
pub const STATUS_VERSION: u32 = 1;

/// Reads a Gang object. A status of a newer version, or with an unknown phase, has no phase here.
#[must_use]
pub fn read(object: &Gang) -> State {
    let status = object.status.clone().unwrap_or_default();
    let plan = status.plan.unwrap_or_default();
    let phase = if status.version > STATUS_VERSION {
        None
    } else if status.phase.is_empty() {
        Some(Phase::Collecting)
    } else {
        Phase::parse(&status.phase)
    };
    let nodes: Vec<NodeName> = plan.nodes.iter().map(|node| NodeName::from(node.as_str())).collect();
    let places = plan
        .places
        .iter()
        .filter_map(|place| {
            Some(StatePlace {
                role: Arc::from(place.role.as_str()),
                rank: place.rank,
                uid: place.uid.as_deref().map(PodUid::from),
                pod: place.pod.as_deref().map(Arc::from),
                node: nodes.get(usize::try_from(place.node).ok()?)?.clone(),
                done: place.done,
            })
        })
        .collect();
    State {
        key: ObjectKey::new(
            object.metadata.namespace.as_deref().unwrap_or_default(),
            object.metadata.name.as_deref().unwrap_or_default(),
        ),
        uid: Arc::from(object.metadata.uid.as_deref().unwrap_or_default()),
        resource_version: Arc::from(object.metadata.resource_version.as_deref().unwrap_or_default()),
        phase,
        epoch: status.epoch,
        round: status.round,
        since: status.since,
        minimum: plan.minimum,
        minimums: minimums(&plan.minimums),
        running: plan
            .running
            .map(|running| gang::Minimum { minimum: running.minimum, minimums: minimums(&running.minimums) }),
        shape: plan.shape.map(Arc::from),
        places,
        levels: status
            .placement
            .map(|placement| {
                placement
                    .levels
                    .into_iter()
                    .map(|level| LevelUse { key: Arc::from(level.key), used: level.used, optimum: level.optimum })
                    .collect()
            })
            .unwrap_or_default(),
        held: status.held.map(|held| gang::Held {
            until: held.until,
            capacities: held.capacities.iter().flat_map(capacities).collect(),
        }),
        batch: status.batch.map(Arc::from),
        waiting: status.waiting.map(|waiting| gang::Waiting {
            reason: Arc::from(waiting.reason),
            message: Arc::from(waiting.message),
            since: waiting.since,
            next_try: waiting.next_try,
        }),
        notes: notes(&status.conditions),
        members: Arc::from(status.members),
        created: object.metadata.creation_timestamp.as_ref().map(|time| time.0),
        deleting: object.metadata.deletion_timestamp.is_some(),
    }
}

fn minimums(named: &BTreeMap<String, u32>) -> BTreeMap<Arc<str>, u32> {
    named.iter().map(|(role, min)| (Arc::from(role.as_str()), *min)).collect()
}

fn named(minimums: &BTreeMap<Arc<str>, u32>) -> BTreeMap<String, u32> {
    minimums.iter().map(|(role, min)| (role.to_string(), *min)).collect()
}

/// One capacity for each member.
fn capacities(capacity: &GangCapacity) -> impl Iterator<Item = (NodeName, Resources)> {
    let requests: Resources = capacity.requests.iter().map(|(name, amount)| (name.as_str(), *amount)).collect();
    capacity.nodes.iter().map(move |node| (NodeName::from(node.as_str()), requests.clone()))
}

/// Members that ask for the same stand together: most gangs have one such entry.
fn held(held: &gang::Held) -> GangHeld {
    let mut capacities: Vec<GangCapacity> = Vec::new();
    for (node, requests) in &held.capacities {
        let requests = requests.iter().map(|(name, amount)| (name.to_string(), amount)).collect();
        match capacities.iter_mut().find(|capacity| capacity.requests == requests) {
            Some(capacity) => capacity.nodes.push(node.to_string()),
            None => capacities.push(GangCapacity { requests, nodes: vec![node.to_string()] }),
        }
    }
    GangHeld { until: held.until, capacities }
}

/// The conditions that core decides about.
fn notes(conditions: &[Condition]) -> BTreeMap<NoteKind, Note> {
    let read = |kind: NoteKind| {
        let found = crate::crd::condition(conditions, kind.as_str())?;
        let holds = found.status == "True";
        // A gang without a plan has no nodes, and the reason of its condition is another.
        if kind == NoteKind::NodesReady && found.reason != kind.event().0 {
            return None;
        }
        // What was never true, or is no longer, is no note.
        (holds || !kind.event().1).then(|| (kind, Note { holds, message: Arc::from(found.message.as_str()) }))
    };
    NoteKind::ALL.into_iter().filter_map(read).collect()
}

/// Writes core's state into a status, keeping what core does not know (conditions).
#[must_use]
pub fn write(state: &State, before: Option<&GangStatus>) -> GangStatus {
    let mut nodes: Vec<String> = Vec::new();
    let places: Vec<GangPlace> = state
        .places
        .iter()
        .map(|place| {
            let index = nodes.iter().position(|node| node == place.node.as_str()).unwrap_or_else(|| {
                nodes.push(place.node.to_string());
                nodes.len() - 1
            });
            GangPlace {
                role: place.role.to_string(),
                rank: place.rank,
                uid: place.uid.as_ref().map(ToString::to_string),
                pod: place.pod.as_ref().map(ToString::to_string),
                node: u32::try_from(index).unwrap_or(u32::MAX),
                done: place.done,
            }
        })
        .collect();
    let waiting = state.waiting.as_ref().map(|waiting| GangWaiting {
        reason: waiting.reason.to_string(),
        message: waiting.message.to_string(),
        since: waiting.since.or(state.since),
        next_try: waiting.next_try,
    });
    GangStatus {
        version: STATUS_VERSION,
        phase: state.phase.map_or_else(String::new, |phase| phase.as_str().to_owned()),
        epoch: state.epoch,
        round: state.round,
        members: state.members.to_string(),
        plan: (!places.is_empty()).then(|| GangPlan {
            minimum: state.minimum,
            minimums: named(&state.minimums),
            running: state
                .running
                .as_ref()
                .map(|running| GangMinimum { minimum: running.minimum, minimums: named(&running.minimums) }),
            shape: state.shape.as_ref().map(ToString::to_string),
            nodes,
            places,
        }),
        placement: (!state.levels.is_empty()).then(|| GangPlacement {
            summary: level_summary(&state.levels),
            levels: state
                .levels
                .iter()
                .map(|level| GangLevel { key: level.key.to_string(), used: level.used, optimum: level.optimum })
                .collect(),
        }),
        held: state.held.as_ref().map(held),
        batch: state.batch.as_ref().map(ToString::to_string),
        // What core does not know is kept.
        cost: before.and_then(|before| before.cost.clone()),
        waiting,
        since: state.since,
        conditions: before.map(|before| before.conditions.clone()).unwrap_or_default(),
    }
}

/// The spec of a recognised gang.
#[must_use]
pub fn spec(recognised: &Recognised) -> GangSpec {
    let size = recognised.size.unwrap_or(0);
    let topology_request = |topology_request: &Option<gang::RawTopologyRequest>| {
        topology_request.as_ref().map(|topology_request| GangTopologyRequest {
            value: topology_request.value.to_string(),
            from: topology_request.key.to_owned(),
        })
    };
    let owner = recognised.source.owner.as_ref();
    GangSpec {
        source: GangSource {
            convention: recognised.source.convention.to_owned(),
            identity: recognised.source.identity.to_string(),
            api_version: owner.map(|owner| owner.api_version.to_string()),
            kind: owner.map(|owner| owner.kind.to_string()),
            name: owner.map(|owner| owner.name.to_string()),
            uid: owner.map(|owner| owner.uid.to_string()),
        },
        size,
        min: recognised.min.unwrap_or(size).min(size),
        roles: roles(recognised, size),
        topology_requests: GangTopologyRequests {
            required: topology_request(&recognised.topology_requests.required),
            preferred: topology_request(&recognised.topology_requests.preferred),
            slices: recognised
                .topology_requests
                .slices
                .iter()
                .map(|slice| GangSlice {
                    size: slice.size,
                    level: GangTopologyRequest {
                        value: slice.level.value.to_string(),
                        from: slice.level.key.to_owned(),
                    },
                })
                .collect(),
            exclusive: topology_request(&recognised.topology_requests.exclusive),
            balance: topology_request(&recognised.topology_requests.balance),
            placement_group: topology_request(&recognised.topology_requests.placement_group),
        },
    }
}

fn roles(recognised: &Recognised, size: u32) -> Vec<GangRole> {
    if recognised.roles.is_empty() {
        return vec![GangRole { name: String::new(), count: size, min: recognised.min.unwrap_or(size).min(size) }];
    }
    let role = |role: &gang::RoleStated| {
        let count = role.count.unwrap_or(0);
        GangRole { name: role.name.to_string(), count, min: role.min.unwrap_or(count).min(count) }
    };
    recognised.roles.iter().map(role).collect()
}
