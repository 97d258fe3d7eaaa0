//! Kueue: plain pod groups, Workloads, and the topology requests on pod templates, which every owner's pods may carry.

use std::collections::BTreeMap;

use muster_core::model::gang::{Invalid, RawSlice, RawTopologyRequests};
use muster_core::reason::Code;
use serde_json::Value;

use super::chain::Chain;
use super::claim::{self, Claim, Declared, topology_request};
use super::objects::{Kind, number};
use crate::keys;

/// Every topology request.
const REQUESTS: [&str; 5] = [
    keys::KUEUE_REQUIRED_TOPOLOGY,
    keys::KUEUE_PREFERRED_TOPOLOGY,
    keys::KUEUE_UNCONSTRAINED_TOPOLOGY,
    keys::KUEUE_SLICE_TOPOLOGY,
    keys::KUEUE_SLICE_CONSTRAINTS,
];

/// A group of plain pods.
pub(super) fn pod_group(chain: &Chain<'_>) -> Option<Claim> {
    let name = chain.either(keys::KUEUE_POD_GROUP)?;
    let size = chain.own_annotation(keys::KUEUE_POD_GROUP_TOTAL).and_then(|text| text.parse().ok());
    let offset = offset(chain);
    let key = chain.own_annotation(keys::KUEUE_POD_INDEX_LABEL).unwrap_or(keys::KUEUE_POD_INDEX);
    Some(Claim {
        identity: name.to_owned(),
        size,
        rank: chain.label(key).map(|text| claim::rank(text, offset)),
        offset,
        ..Claim::default()
    })
}

/// A job that Kueue manages.
pub(super) fn workload(chain: &Chain<'_>) -> Option<Claim> {
    let name = chain.own_annotation(keys::KUEUE_WORKLOAD)?;
    let workload = chain.named(Kind::KueueWorkload, name);
    let sets = workload.and_then(|workload| workload.spec.pointer("/podSets")).and_then(Value::as_array);
    let roles: Vec<Declared> = sets
        .into_iter()
        .flatten()
        .map(|set| {
            let name = set.get("name").and_then(Value::as_str).unwrap_or_default();
            Declared {
                min: number(set, "/minCount"),
                ..Declared::new(name, number(set, "/count").unwrap_or(1), set.get("template"))
            }
        })
        .collect();
    Some(Claim {
        identity: name.to_owned(),
        size: workload.map(|_| claim::total(&roles)),
        role: chain.label(keys::KUEUE_POD_SET).unwrap_or_default().to_owned(),
        roles,
        offset: offset(chain),
        ..Claim::default()
    })
}

fn offset(chain: &Chain<'_>) -> u32 {
    chain.own_annotation(keys::KUEUE_POD_INDEX_OFFSET).and_then(|text| text.parse().ok()).unwrap_or(0)
}

/// Whether the pod carries a topology request.
pub(super) fn asks(chain: &Chain<'_>) -> bool {
    REQUESTS.iter().any(|key| chain.own_annotation(key).is_some())
}

/// The topology requests on the pod.
pub(super) fn topology_requests(chain: &Chain<'_>, invalid: &mut Option<Invalid>) -> RawTopologyRequests {
    let read = |key: &'static str| chain.own_annotation(key).map(|value| topology_request(key, value));
    let mut topology_requests = RawTopologyRequests {
        required: read(keys::KUEUE_REQUIRED_TOPOLOGY),
        preferred: read(keys::KUEUE_PREFERRED_TOPOLOGY),
        ..RawTopologyRequests::default()
    };
    let level = read(keys::KUEUE_SLICE_TOPOLOGY);
    let size = chain.own_annotation(keys::KUEUE_SLICE_SIZE);
    match (level, size) {
        (Some(level), Some(text)) => match text.parse::<u32>() {
            Ok(size) if size > 0 => topology_requests.slices.push(RawSlice { size, level }),
            _ => bad(
                invalid,
                Code::BadNumber,
                format!("{}: \"{text}\" is not an integer of at least 1", keys::KUEUE_SLICE_SIZE),
            ),
        },
        (Some(_), None) => half(invalid, keys::KUEUE_SLICE_TOPOLOGY, keys::KUEUE_SLICE_SIZE),
        (None, Some(_)) => half(invalid, keys::KUEUE_SLICE_SIZE, keys::KUEUE_SLICE_TOPOLOGY),
        (None, None) => {}
    }
    if let Some(text) = chain.own_annotation(keys::KUEUE_SLICE_CONSTRAINTS) {
        layers(text, &mut topology_requests, invalid);
    }
    topology_requests
}

/// `[{topology, size}]`, coarse to fine.
fn layers(text: &str, topology_requests: &mut RawTopologyRequests, invalid: &mut Option<Invalid>) {
    let key = keys::KUEUE_SLICE_CONSTRAINTS;
    if !topology_requests.slices.is_empty() {
        let message = format!("{key} excludes {} and {}: use one", keys::KUEUE_SLICE_TOPOLOGY, keys::KUEUE_SLICE_SIZE);
        return bad(invalid, Code::BadValue, message);
    }
    let parsed: Option<Vec<BTreeMap<String, Value>>> = serde_json::from_str(text).ok();
    let layer = |layer: &BTreeMap<String, Value>| {
        let size = u32::try_from(layer.get("size")?.as_u64()?).ok().filter(|size| *size > 0)?;
        Some(RawSlice { size, level: topology_request(key, layer.get("topology")?.as_str()?) })
    };
    match parsed.and_then(|layers| layers.iter().map(layer).collect::<Option<Vec<_>>>()) {
        Some(slices) if !slices.is_empty() => topology_requests.slices = slices,
        _ => bad(invalid, Code::BadValue, format!("{key}: is no list of {{topology, size}}")),
    }
}

fn half(invalid: &mut Option<Invalid>, there: &str, missing: &str) {
    bad(invalid, Code::IncompleteTopologyRequest, format!("{there} needs {missing} beside it"));
}

fn bad(invalid: &mut Option<Invalid>, reason: Code, message: String) {
    invalid.get_or_insert(Invalid { reason, message });
}
