//! Topology requests as Volcano, KAI and Koordinator write them. What Muster cannot keep makes the gang invalid: a topology request is
//! never dropped silently.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use muster_core::model::gang::{Invalid, RankClaim, RawSlice};
use muster_core::model::ranks;
use muster_core::reason::Code;
use serde::Deserialize;
use serde_json::Value;

use super::chain::Chain;
use super::claim::{Claim, Declared, topology_request};
use super::objects::{Object, number};
use crate::convert::selectors::selects;
use crate::keys;

fn bad(claim: &mut Claim, message: String) {
    claim.invalid.get_or_insert(Invalid { reason: Code::BadValue, message });
}

/// The level that Volcano's tiers name: by the name of the tier, else counted from the host.
fn tier(topology: &Value) -> Option<String> {
    let name = topology.get("highestTierName").and_then(Value::as_str).filter(|name| !name.is_empty());
    name.map(str::to_owned).or_else(|| Some(format!("tier-{}", number(topology, "/highestTierAllowed")?)))
}

/// `networkTopology`, and the sub-groups of a PodGroup or the partitions of a Job. Only a PodGroup is read beside the pod
/// that names it: the pod's labels say in which sub-group it is.
pub(super) fn volcano(spec: &Value, chain: Option<&Chain<'_>>, claim: &mut Claim) {
    if let Some(topology) = spec.get("networkTopology").filter(|topology| topology.is_object()) {
        let hard = topology.get("mode").and_then(Value::as_str).is_none_or(|mode| mode == "hard");
        // Volcano's default.
        let level = tier(topology).or_else(|| hard.then(|| "tier-1".to_owned()));
        let level = level.map(|level| topology_request(keys::VOLCANO_TOPOLOGY, &level));
        // The soft mode without a tier asks for as close as can be, which is what every gang gets.
        if hard {
            claim.topology_requests.required = level;
        } else {
            claim.topology_requests.preferred = level;
        }
    }
    let groups = spec.get("subGroupPolicy").and_then(Value::as_array).into_iter().flatten();
    let groups = groups.map(|group| (keys::VOLCANO_SUBGROUPS, group, "/subGroupSize"));
    let tasks = spec.get("tasks").and_then(Value::as_array).into_iter().flatten();
    let tasks: Vec<&Value> = tasks.collect();
    let partitions = tasks.iter().filter_map(|task| task.get("partitionPolicy"));
    let partitions = partitions.map(|partition| (keys::VOLCANO_PARTITIONS, partition, "/partitionSize"));
    let requested: Vec<_> = groups
        .chain(partitions)
        .filter(|(_, policy, _)| policy.get("networkTopology").is_some_and(Value::is_object))
        .collect();
    match requested.as_slice() {
        [] => {}
        [(key, policy, size)] if tasks.len() < 2 => {
            slices(key, policy, size, claim);
            if let Some(chain) = chain.filter(|_| !claim.topology_requests.slices.is_empty() && claim.invalid.is_none())
            {
                sub_group(policy, chain, claim);
            }
        }
        [(key, ..), ..] => {
            bad(claim, format!("{key}: Muster cuts the whole gang into slices of one size, not each of its roles"));
        }
    }
}

/// The sub-group of a pod: those with its values of `matchLabelKeys`. It becomes a role of the size of a slice, so that
/// the slices of the gang are its sub-groups, whatever ranks their members have.
fn sub_group(policy: &Value, chain: &Chain<'_>, claim: &mut Claim) {
    let (key, size) = (keys::VOLCANO_SUBGROUPS, claim.topology_requests.slices.first().map_or(0, |slice| slice.size));
    let none = BTreeMap::new();
    let labels = chain.pod.metadata.labels.as_ref().unwrap_or(&none);
    match policy.get("labelSelector").filter(|selector| !selector.is_null()).map(LabelSelector::deserialize) {
        Some(Err(error)) => return bad(claim, format!("{key}: labelSelector: {error}")),
        Some(Ok(selector)) if !selects(Some(&selector), labels) => {
            return bad(
                claim,
                format!("{key}: its labelSelector excludes a pod; Muster cuts the whole gang into sub-groups"),
            );
        }
        Some(Ok(_)) | None => {}
    }
    if let Some(least) = number(policy, "/minSubGroups").filter(|least| *least > 0) {
        claim.min = claim.min.max(Some(least.saturating_mul(size)));
    }
    let names: Vec<&str> = policy
        .get("matchLabelKeys")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect();
    if names.is_empty() {
        return;
    }
    let mut values = Vec::new();
    for name in names {
        let Some(value) = chain.label(name) else {
            return bad(claim, format!("{key}: a pod lacks the label {name} of matchLabelKeys"));
        };
        values.push(value);
    }
    claim.role = values.join("-");
    claim.roles = vec![Declared::new(&claim.role, size, None)];
    claim.open_roles = true;
    claim.size = claim.min;
    // Indices count through the whole gang.
    claim.rank = Some(RankClaim::Missing);
}

fn slices(key: &'static str, policy: &Value, size: &str, claim: &mut Claim) {
    let topology = &policy["networkTopology"];
    let hard = topology.get("mode").and_then(Value::as_str).is_none_or(|mode| mode == "hard");
    match (number(policy, size).filter(|size| *size > 0), hard) {
        (Some(size), true) => {
            let level = tier(topology).unwrap_or_else(|| "tier-1".to_owned());
            claim.topology_requests.slices.push(RawSlice { size, level: topology_request(key, &level) });
        }
        (None, true) => bad(claim, format!("{key}: its size is missing")),
        // As close as can be is what every slice of consecutive ranks gets.
        (_, false) => {}
    }
}

/// `topologyConstraint` of a PodGroup, else the annotations of the pod and its owners.
pub(super) fn kai(group: Option<&Object>, chain: &Chain<'_>, claim: &mut Claim) {
    let of_group = |pointer| {
        let level = group?.text(pointer).filter(|level| !level.is_empty())?;
        Some(topology_request(keys::KAI_TOPOLOGY, level))
    };
    claim.topology_requests.required =
        of_group("/topologyConstraint/requiredTopologyLevel").or_else(|| chain.annotation(keys::KAI_REQUIRED_TOPOLOGY));
    claim.topology_requests.preferred = of_group("/topologyConstraint/preferredTopologyLevel")
        .or_else(|| chain.annotation(keys::KAI_PREFERRED_TOPOLOGY));
    match (chain.annotation(keys::KAI_SEGMENT_SIZE), chain.annotation(keys::KAI_SEGMENT_TOPOLOGY)) {
        (Some(size), Some(level)) => match ranks::parse(&size.value) {
            RankClaim::Rank(size @ 1..) => claim.topology_requests.slices.push(RawSlice { size, level }),
            RankClaim::Rank(_) | RankClaim::Missing | RankClaim::NotInteger(_) => {
                bad(claim, format!("{}: \"{}\" is not an integer of at least 1", size.key, size.value));
            }
        },
        (None, Some(level)) => bad(claim, format!("{} needs {} beside it", level.key, keys::KAI_SEGMENT_SIZE)),
        // Segments without a required level are as close as can be, like all neighbours.
        (Some(_) | None, None) => {}
    }
    let groups = group.and_then(|group| group.spec.pointer("/subGroups")).and_then(Value::as_array);
    let constrained = |group: &&Value| group.get("topologyConstraint").is_some_and(Value::is_object);
    if groups.into_iter().flatten().any(|group| constrained(&group)) {
        let message = "podgroups.scheduling.run.ai spec.subGroups[].topologyConstraint: Muster keeps one level for the whole \
                       gang, not one for each of its roles";
        bad(claim, message.to_owned());
    }
}

/// `{gatherStrategy: [{layer, strategy}]}`: of each strategy the lowest layer counts.
pub(super) fn koordinator(text: &str, claim: &mut Claim) {
    let key = keys::KOORDINATOR_TOPOLOGY;
    let spec: Value = match serde_json::from_str(text) {
        Ok(spec) => spec,
        Err(error) => return bad(claim, format!("{key}: {error}")),
    };
    let (mut must, mut prefer) = (Vec::new(), Vec::new());
    for layer in spec.get("gatherStrategy").and_then(Value::as_array).into_iter().flatten() {
        let name = layer.get("layer").and_then(Value::as_str).unwrap_or_default();
        match layer.get("strategy").and_then(Value::as_str).unwrap_or_default() {
            "MustGather" => must.push(name),
            "PreferGather" => prefer.push(name),
            other => return bad(claim, format!("{key}: \"{other}\" is not one of MustGather, PreferGather")),
        }
    }
    let lowest = |layers: Vec<&str>| (!layers.is_empty()).then(|| topology_request(key, &layers.join(",")));
    claim.topology_requests.required = lowest(must);
    claim.topology_requests.preferred = lowest(prefer);
}
