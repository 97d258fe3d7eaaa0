//! Members that are sent to their planned nodes: the nomination, and the patch that drops the gate.

use std::sync::Arc;

use anyhow::Context as _;
use k8s_openapi::api::core::v1::{Pod, Toleration};
use kube::api::Patch;
use kube::{Api, Client};
use muster_api::convert::{is_of_held, of_held, pin};
use muster_api::keys;
use muster_core::gang::{Release, shows_waiting};
use muster_core::model::gang::Pod as Member;
use serde_json::json;
use tracing::debug;

use super::patch::{Patched, patch};
use crate::clock::now_real;
use crate::cluster::Lists;
use crate::step::Step;

/// The patches of one member: the nomination, unless it is pinned, then gate, annotations, toleration and pin. `known` are the lists
/// that it has.
pub(super) async fn release(client: &Client, known: Option<&Lists>, release: &Release) -> anyhow::Result<()> {
    let pod = &release.pod;
    let nominated = if release.nominates() { Some(nominate(client, release).await?) } else { None };
    if let Some(nominated) = &nominated
        && release.stuck.is_none()
        && nominated.says_released(release.epoch, &release.node)
        && !is_gated(client, pod).await?
    {
        // By the replica that had the lease before, or by a call whose answer came too late: our view of the pod is older.
        debug!(pod = %pod.key, epoch = release.epoch, "released already");
        return Ok(());
    }
    let mut dropped = json!({
        "metadata": {
            "uid": pod.uid.as_str(),
            "annotations": {
                keys::PLAN_EPOCH: release.epoch.to_string(),
                keys::PLANNED_NODE: release.node.as_str(),
            },
        },
        "spec": {"schedulingGates": []},
    });
    if let Some(nominated) = nominated {
        dropped["metadata"]["resourceVersion"] = json!(nominated.resource_version());
        // Another value each time: a patch that changes nothing requeues nobody.
        dropped["metadata"]["annotations"][keys::REQUEUE] = json!(now_real().as_microsecond().to_string());
    }
    // Lists are replaced: what the pod has is repeated. One that has more by now refuses to lose it.
    if !release.tolerate.is_empty() {
        let known = known.map(|lists| lists.tolerations.clone()).unwrap_or_default();
        dropped["spec"]["tolerations"] = json!(tolerations(known, &release.tolerate));
    }
    if release.pin {
        let terms = pin(known.map(|lists| lists.terms.clone()).unwrap_or_default(), release.node.as_str());
        dropped["metadata"]["annotations"][keys::PINNED_NODE] = json!(release.node.as_str());
        dropped["spec"]["affinity"] = json!({
            "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}},
        });
    }
    patch(Step::ReleasePod, client, &pod.key, &Patch::Merge(&dropped))
        .await
        .map_err(|error| anyhow::Error::new(error).context("release"))?;
    Ok(())
}

/// Whether our gate keeps a member from kube-scheduler, by what the API server has: the annotations of a release alone may
/// come from a template.
async fn is_gated(client: &Client, pod: &Member) -> anyhow::Result<bool> {
    let pods: Api<Pod> = Api::namespaced(client.clone(), &pod.key.namespace);
    let newest = pods.get(&pod.key.name).await.with_context(|| format!("read pod {}", pod.key))?;
    let gates = newest.spec.and_then(|spec| spec.scheduling_gates).unwrap_or_default();
    Ok(gates.iter().any(|gate| gate.name == keys::GATE))
}

/// Nominates a member for its planned node.
async fn nominate(client: &Client, release: &Release) -> anyhow::Result<Patched> {
    let pod = &release.pod;
    let mut nomination = json!({
        "metadata": {"uid": pod.uid.as_str()},
        "status": {"nominatedNodeName": release.node.as_str()},
    });
    let nomination = if shows_waiting(pod) {
        // What it waited for is over: the same write says so. Conditions are merged by type.
        let message = format!("sent to kube-scheduler for node {}", release.node);
        nomination["status"]["conditions"] = json!([of_member("Released", &message)]);
        Patch::Strategic(&nomination)
    } else {
        Patch::Merge(&nomination)
    };
    patch(Step::NominatePod, client, &pod.key, &nomination)
        .await
        .map_err(|error| anyhow::Error::new(error).context("nomination"))
}

/// The condition `muster.dev/Gang` of a member: it holds while the member has a node to go to.
pub(super) fn of_member(reason: &str, message: &str) -> serde_json::Value {
    json!({
        "type": keys::POD_CONDITION,
        "status": if matches!(reason, "Released" | "Planned") { "True" } else { "False" },
        "reason": reason,
        "message": message,
        "lastTransitionTime": now_real(),
    })
}

/// With those that the nodes provisioned for the gang ask for.
fn tolerations(mut known: Vec<Toleration>, tolerate: &[Arc<str>]) -> Vec<Toleration> {
    for value in tolerate {
        let ours = Toleration {
            key: Some(keys::GANG_PENDING.to_owned()),
            operator: Some("Equal".to_owned()),
            value: Some(value.to_string()),
            effect: Some("NoSchedule".to_owned()),
            toleration_seconds: None,
        };
        if !known.contains(&ours) {
            known.push(ours);
        }
    }
    // kube-scheduler sees the hold as what it is, a cordon.
    if !tolerate.is_empty() && !known.iter().any(is_of_held) {
        known.push(of_held());
    }
    known
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::sync::Mutex;
    use std::time::Duration;

    use http::{Method, Request, Response};
    use kube::client::Body;
    use muster_core::gang::Stuck;
    use muster_core::model::names::{NodeName, PodUid};

    use super::*;
    use crate::cluster::{Store, StoreOptions};

    /// A member as it was seen: behind the gate.
    fn seen() -> Arc<Member> {
        let options = StoreOptions {
            scheduler_names: vec!["muster".to_owned()],
            provisioner_scheduler_names: Vec::new(),
            accelerators: Vec::new(),
            max_age: Duration::from_secs(3600),
        };
        let (mut store, cluster) = Store::new(options, &[], &[]);
        let pod = json!({
            "metadata": {"name": "a-0", "namespace": "ns", "uid": "a-0"},
            "spec": {
                "schedulerName": "muster",
                "containers": [{"name": "main"}],
                "schedulingGates": [{"name": keys::GATE}],
            },
        });
        store.apply_pod(serde_json::from_value(pod).unwrap());
        store.publish();
        Arc::clone(cluster.load().snapshot.pods.get(&PodUid::from("a-0")).unwrap())
    }

    /// What an API server is asked that has the pod with these annotations and gates, when it is released for epoch 3 and node n1.
    async fn asked(stuck: Option<Stuck>, annotations: serde_json::Value, gates: serde_json::Value) -> Vec<Method> {
        let seen_by: Arc<Mutex<Vec<Method>>> = Arc::default();
        let log = Arc::clone(&seen_by);
        let service = tower::service_fn(move |request: Request<Body>| {
            if !request.uri().path().ends_with("/status") {
                log.lock().unwrap().push(request.method().clone());
            }
            let pod = json!({
                "metadata": {"name": "a-0", "namespace": "ns", "uid": "a-0", "resourceVersion": "7", "annotations": annotations},
                "spec": {"containers": [], "schedulingGates": gates},
            });
            async move { Ok::<_, Infallible>(Response::new(Body::from(pod.to_string().into_bytes()))) }
        });
        let of_plan =
            Release { pod: seen(), epoch: 3, node: NodeName::from("n1"), tolerate: Vec::new(), pin: false, stuck };
        release(&Client::new(service, "ns"), None, &of_plan).await.unwrap();
        let asked = seen_by.lock().unwrap();
        asked.clone()
    }

    #[tokio::test]
    async fn a_member_that_another_replica_released_for_the_same_plan_is_not_released_again() {
        let released = || json!({keys::PLAN_EPOCH: "3", keys::PLANNED_NODE: "n1"});
        let gated = || json!([{"name": keys::GATE}]);
        assert_eq!(asked(None, released(), json!([])).await, [Method::GET]);
        assert_eq!(
            asked(None, released(), json!([{"name": "example.com/other"}])).await,
            [Method::GET],
            "another's gate is not ours"
        );
        assert_eq!(
            asked(None, released(), gated()).await,
            [Method::GET, Method::PATCH],
            "annotations may come from a template"
        );
        assert_eq!(
            asked(Some(Stuck::Refused), released(), json!([])).await,
            [Method::PATCH],
            "who is stuck is requeued"
        );
        for other in [
            json!({}),
            json!({keys::PLAN_EPOCH: "2", keys::PLANNED_NODE: "n1"}),
            json!({keys::PLAN_EPOCH: "3", keys::PLANNED_NODE: "n2"}),
        ] {
            assert_eq!(asked(None, other.clone(), json!([])).await, [Method::PATCH], "{other}");
        }
    }
}
