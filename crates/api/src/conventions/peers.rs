//! Volcano, KAI, YuniKorn, Koordinator and Grove: identity, size, and the topology requests of the three that have such. Their
//! pods usually name their own scheduler.

use serde_json::Value;

use super::chain::Chain;
use super::claim::{self, Claim, Declared};
use super::objects::{Kind, number};
use super::peer_topology_requests;
use crate::keys;

/// Volcano: an annotation that names a PodGroup.
pub(super) fn volcano(chain: &Chain<'_>) -> Option<Claim> {
    let name = keys::VOLCANO_GROUPS.iter().find_map(|key| chain.own_annotation(key))?;
    let group = chain.named(Kind::VolcanoPodGroup, name);
    let min = group.and_then(|group| group.number("/minMember"));
    let on_owner = || chain.annotation(keys::VOLCANO_MIN_MEMBER).and_then(|found| found.value.parse().ok());
    let mut claim = Claim { identity: name.to_owned(), min: min.or_else(on_owner), ..Claim::default() };
    if let Some(group) = group {
        peer_topology_requests::volcano(&group.spec, Some(chain), &mut claim);
    }
    Some(claim)
}

/// Volcano's own Job.
pub(super) fn volcano_job(chain: &Chain<'_>) -> Option<Claim> {
    let job = chain.owner(Kind::VolcanoJob)?;
    let tasks = job.spec.pointer("/tasks").and_then(Value::as_array);
    let roles: Vec<Declared> = tasks
        .into_iter()
        .flatten()
        .map(|task| {
            let name = task.get("name").and_then(Value::as_str).unwrap_or_default();
            let min = number(task, "/minAvailable");
            Declared { min, ..Declared::new(name, number(task, "/replicas").unwrap_or(1), task.get("template")) }
        })
        .collect();
    let mut claim = Claim {
        identity: job.name().to_owned(),
        anchor: Some(job.owner()),
        size: Some(claim::total(&roles)),
        min: job.number("/minAvailable").filter(|min| *min > 0),
        role: chain.either(keys::VOLCANO_TASK).unwrap_or_default().to_owned(),
        roles,
        ..Claim::default()
    };
    peer_topology_requests::volcano(&job.spec, None, &mut claim);
    Some(claim)
}

/// KAI: an annotation that names a PodGroup.
pub(super) fn kai(chain: &Chain<'_>) -> Option<Claim> {
    let name = chain.own_annotation(keys::KAI_POD_GROUP)?;
    let group = chain.named(Kind::KaiPodGroup, name);
    let min = group.and_then(|group| group.number("/minMember"));
    let on_pod = || chain.annotation(keys::KAI_MIN_MEMBER).and_then(|found| found.value.parse().ok());
    let mut claim = Claim { identity: name.to_owned(), min: min.or_else(on_pod), ..Claim::default() };
    peer_topology_requests::kai(group, chain, &mut claim);
    Some(claim)
}

/// YuniKorn: an application with task groups. The first pod of an application lists them, the others name theirs.
pub(super) fn yunikorn(chain: &Chain<'_>) -> Option<Claim> {
    let name = chain.label(keys::YUNIKORN_APP).or_else(|| chain.label(keys::YUNIKORN_OLD_APP))?;
    let listed = chain.own_annotation(keys::YUNIKORN_TASK_GROUPS);
    let own = chain.own_annotation(keys::YUNIKORN_TASK_GROUP);
    // Without task groups an application is a name and no gang.
    if listed.is_none() && own.is_none() {
        return None;
    }
    let groups: Vec<Value> = listed.and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default();
    let roles: Vec<Declared> = groups
        .iter()
        .map(|group| {
            let name = group.get("name").and_then(Value::as_str).unwrap_or_default();
            Declared::new(name, number(group, "/minMember").unwrap_or(1), None)
        })
        .collect();
    let size = (!roles.is_empty()).then(|| claim::total(&roles));
    let role = own.unwrap_or_default().to_owned();
    Some(Claim { identity: name.to_owned(), size, role, roles, ..Claim::default() })
}

/// Koordinator: annotations on the pod, or a label that names a PodGroup.
pub(super) fn koordinator(chain: &Chain<'_>) -> Option<Claim> {
    let number = |key: &str| chain.own_annotation(key).and_then(|text| text.parse().ok());
    if let Some(name) = chain.own_annotation(keys::KOORDINATOR_NAME) {
        let min = number(keys::KOORDINATOR_MIN);
        return Some(Claim {
            identity: name.to_owned(),
            size: number(keys::KOORDINATOR_TOTAL).or(min),
            min,
            ..Claim::default()
        });
    }
    let name = chain.label(keys::KOORDINATOR_POD_GROUP)?;
    let group = chain.named(Kind::KoordinatorPodGroup, name);
    let min = group.and_then(|group| group.number("/minMember"));
    let total = group.and_then(|group| group.annotation(keys::KOORDINATOR_TOTAL)).and_then(|text| text.parse().ok());
    let mut claim = Claim { identity: name.to_owned(), size: total, min, ..Claim::default() };
    if let Some(text) = group.and_then(|group| group.annotation(keys::KOORDINATOR_TOPOLOGY)) {
        peer_topology_requests::koordinator(text, &mut claim);
    }
    Some(claim)
}

/// Grove: a label that names a PodGang.
pub(super) fn grove(chain: &Chain<'_>) -> Option<Claim> {
    let name = chain.label(keys::GROVE_POD_GANG)?;
    let gang = chain.named(Kind::GrovePodGang, name);
    let groups = gang.and_then(|gang| gang.spec.pointer("/podgroups")).and_then(Value::as_array);
    let min = groups
        .map(|groups| groups.iter().filter_map(|group| number(group, "/minReplicas")).fold(0, u32::saturating_add));
    Some(Claim { identity: name.to_owned(), min, ..Claim::default() })
}
