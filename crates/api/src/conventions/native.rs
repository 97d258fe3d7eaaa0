//! Kubernetes' own groups: 1.35's Workload, the PodGroup of 1.36 and later. Only a gang policy makes a gang.

use serde_json::Value;

use super::chain::Chain;
use super::claim::{Claim, topology_request};
use super::objects::{Kind, number};
use crate::keys;

pub(super) fn claim(chain: &Chain<'_>) -> Option<Claim> {
    pod_group(chain).or_else(|| workload(chain))
}

fn pod_group(chain: &Chain<'_>) -> Option<Claim> {
    let name = chain.own_annotation(keys::SCHEDULING_GROUP)?;
    // Whether it is a gang, only the group says.
    let group = chain.needed(Kind::NativePodGroup, name)?;
    let policy = group.spec.pointer("/schedulingPolicy/gang").filter(|gang| !gang.is_null())?;
    let mut claim = Claim { identity: name.to_owned(), min: number(policy, "/minCount"), ..Claim::default() };
    let key = group.text("/schedulingConstraints/topology/0/key");
    claim.topology_requests.required = key.map(|key| topology_request(keys::NATIVE_TOPOLOGY, key));
    Some(claim)
}

fn workload(chain: &Chain<'_>) -> Option<Claim> {
    let reference = chain.pod.spec.as_ref()?.workload_ref.as_ref()?;
    let replica = reference.pod_group_replica_key.as_deref().filter(|key| !key.is_empty());
    let identity = [Some(reference.name.as_str()), Some(reference.pod_group.as_str()), replica];
    let identity = identity.into_iter().flatten().collect::<Vec<_>>().join("-");
    let workload = chain.needed(Kind::NativeWorkload, &reference.name)?;
    let groups = workload.spec.pointer("/podGroups").and_then(Value::as_array);
    let named = |group: &&Value| group.get("name").and_then(Value::as_str) == Some(&reference.pod_group);
    let group = groups.into_iter().flatten().find(named)?;
    let policy = group.pointer("/policy/gang").filter(|gang| !gang.is_null())?;
    Some(Claim { identity, min: number(policy, "/minCount"), ..Claim::default() })
}
