//! Pods of no gang as the planner sees them. Tens of thousands of one template may wait for hours: each is read again only once it
//! has changed, and those that are alike share what was read.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use k8s_openapi::api::core::v1 as k8s;
use muster_api::convert::ordinary::{self as read, Namespaces};
use muster_api::keys;
use muster_core::model::gang::{Foreign, Pod};
use muster_core::model::names::PodUid;
use muster_core::model::pod::Shape;
use muster_core::ordinary::{Cause, FOREIGN_MEMBER, Refusal, Waiting};
use muster_core::packing::Class;

/// What was read for the last round.
#[derive(Debug, Default)]
pub(super) struct Ladders {
    /// Namespaces, and whether taints are among the preferences.
    with: Option<(Arc<Namespaces>, bool)>,
    of: HashMap<PodUid, Known>,
    distinct: HashSet<Arc<[Class]>>,
}

/// A pod as it was when it was read. Both are held, so that no other object comes to their address.
#[derive(Debug)]
struct Known {
    object: Arc<k8s::Pod>,
    shape: Arc<Shape>,
    ladder: Arc<[Class]>,
}

/// Pods as the planner sees them, and those that it does not get to see.
#[derive(Debug, Default)]
pub(super) struct Read {
    pub(super) waiting: Vec<Waiting>,
    pub(super) refused: Vec<Refusal>,
}

impl Ladders {
    /// Reads all of them; one that carries a constraint which nobody models is refused by its name. `soft_taints`: whether any node
    /// or pool has a taint that is only preferred.
    pub(super) fn read<'a>(
        &mut self,
        pods: impl Iterator<Item = (&'a Arc<Pod>, &'a Arc<k8s::Pod>)>,
        namespaces: &Arc<Namespaces>,
        soft_taints: bool,
    ) -> Read {
        let is_same = |(of, soft): &(Arc<Namespaces>, bool)| Arc::ptr_eq(of, namespaces) && *soft == soft_taints;
        if !self.with.as_ref().is_some_and(is_same) {
            *self = Self { with: Some((Arc::clone(namespaces), soft_taints)), ..Self::default() };
        }
        let mut before = std::mem::take(&mut self.of);
        let mut read = Read::default();
        let no_offer = |pod: &Pod, why| Refusal { pod: pod.uid.clone(), cause: Cause::NoOfferFits, why };
        for (pod, object) in pods {
            if pod.foreign == Foreign::OfGang {
                read.refused.push(no_offer(pod, FOREIGN_MEMBER.into()));
                continue;
            }
            let shape = match &pod.shape {
                Ok(shape) => shape,
                Err(why) => {
                    read.refused.push(no_offer(pod, Arc::clone(why)));
                    continue;
                }
            };
            let is_same = |of: &Known| Arc::ptr_eq(&of.object, object) && Arc::ptr_eq(&of.shape, shape);
            let known = match before.remove(&pod.uid).filter(is_same) {
                Some(known) => known,
                None => {
                    if let Some(what) = read::unmodelled(shape).into_iter().next() {
                        let why = format!("carries a constraint that is not supported: {what}").into();
                        read.refused.push(no_offer(pod, why));
                        continue;
                    }
                    let ladder = self.share(ladder(object, shape, namespaces, soft_taints));
                    Known { object: Arc::clone(object), shape: Arc::clone(shape), ladder }
                }
            };
            read.waiting.push(Waiting { pod: Arc::clone(pod), ladder: Arc::clone(&known.ladder) });
            self.of.insert(pod.uid.clone(), known);
        }
        drop(before);
        self.distinct.retain(|ladder| Arc::strong_count(ladder) > 1);
        read
    }

    /// The same for all pods that are alike.
    fn share(&mut self, ladder: Vec<Class>) -> Arc<[Class]> {
        if let Some(known) = self.distinct.get(&*ladder) {
            return Arc::clone(known);
        }
        let ladder: Arc<[Class]> = ladder.into();
        self.distinct.insert(Arc::clone(&ladder));
        ladder
    }
}

/// A pod at each step of dropped preferences.
fn ladder(object: &k8s::Pod, shape: &Shape, namespaces: &Namespaces, soft_taints: bool) -> Vec<Class> {
    let mut kind = read::kind(object, shape, namespaces, soft_taints);
    let annotations = object.metadata.annotations.as_ref();
    kind.required.existing_only =
        annotations.and_then(|all| all.get(keys::DO_NOT_PROVISION)).is_some_and(|value| value == "true");
    (0..=kind.preferences.len()).map(|dropped| kind.class(dropped)).collect()
}

#[cfg(test)]
mod tests {
    use muster_api::pod_state;
    use muster_core::model::gang::Membership;
    use serde_json::{Value, json};

    use super::*;

    type Both = (Arc<Pod>, Arc<k8s::Pod>);

    fn pod(name: &str, metadata: &Value, affinity: &Value) -> Both {
        let mut pod = json!({
            "metadata": metadata,
            "spec": {
                "affinity": affinity, "containers": [{"name": "main", "resources": {"requests": {"cpu": "1"}}}],
            },
        });
        (pod["metadata"]["name"], pod["metadata"]["uid"]) = (json!(name), json!(name));
        let object: k8s::Pod = serde_json::from_value(pod).unwrap();
        (Arc::new(pod_state::read(&object, Membership::Single, &["muster".to_owned()])), Arc::new(object))
    }

    fn plain(name: &str) -> Both {
        pod(name, &json!({"labels": {"app": "web"}}), &Value::Null)
    }

    fn read(
        ladders: &mut Ladders,
        pods: &[Both],
        namespaces: &Arc<Namespaces>,
        soft_taints: bool,
    ) -> Vec<Arc<[Class]>> {
        let read = ladders.read(pods.iter().map(|(pod, object)| (pod, object)), namespaces, soft_taints);
        assert!(read.refused.is_empty(), "{:?}", read.refused);
        read.waiting.into_iter().map(|one| one.ladder).collect()
    }

    #[test]
    fn pods_that_are_alike_share_a_ladder_and_keep_it() {
        let (mut ladders, namespaces) = (Ladders::default(), Arc::default());
        let pods = [plain("a"), plain("b"), pod("c", &json!({"labels": {"app": "db"}}), &Value::Null)];
        let first = read(&mut ladders, &pods, &namespaces, false);
        assert!(Arc::ptr_eq(&first[0], &first[1]), "of one template");
        assert_ne!(first[0], first[2], "of another");
        let again = read(&mut ladders, &pods, &namespaces, false);
        assert!(first.iter().zip(&again).all(|(one, other)| Arc::ptr_eq(one, other)));
    }

    #[test]
    fn a_pod_is_read_again_once_it_or_what_it_was_read_with_has_changed() {
        let apart = json!({"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [
            {"topologyKey": "kubernetes.io/hostname", "labelSelector": {}, "namespaceSelector": {"matchLabels": {"team": "a"}}}
        ]}});
        let (mut ladders, namespaces) = (Ladders::default(), Arc::new(Namespaces::new()));
        let before = read(&mut ladders, &[pod("a", &json!({}), &apart)], &namespaces, false);
        let pods = [pod("a", &json!({"annotations": {(keys::DO_NOT_PROVISION): "true"}}), &apart)];
        let annotated = read(&mut ladders, &pods, &namespaces, false);
        assert!(!before[0][0].existing_only && annotated[0][0].existing_only);
        let team = [(Arc::from("team"), Arc::from("a"))].into();
        let namespaces = Arc::new(Namespaces::from([(Arc::from("other"), team)]));
        let of_other = read(&mut ladders, &pods, &namespaces, false);
        assert_ne!(of_other[0][0].rules, annotated[0][0].rules, "the selector selects a namespace more");
        // Its object is the same, and what is known of its claims is not.
        let (pod, object) = &pods[0];
        let mut shape = Shape::clone(pod.shape.as_ref().unwrap());
        shape.requests.set("cpu", 2_000);
        let grown = (Arc::new(Pod { shape: Ok(Arc::new(shape)), ..Pod::clone(pod) }), Arc::clone(object));
        let asks = read(&mut ladders, &[grown], &namespaces, false)[0][0].shape.requests.get("cpu");
        assert_eq!((asks, of_other[0][0].shape.requests.get("cpu")), (2_000, 1_000));
        let softly = read(&mut ladders, &pods, &namespaces, true);
        assert_eq!((of_other[0].len(), softly[0].len()), (1, 2), "taints are a preference now");
    }

    #[test]
    fn what_nobody_waits_with_any_more_is_forgotten() {
        let (mut ladders, namespaces) = (Ladders::default(), Arc::default());
        read(&mut ladders, &[plain("a")], &namespaces, false);
        read(&mut ladders, &[], &namespaces, false);
        assert!(ladders.of.is_empty() && ladders.distinct.is_empty());
    }
}
