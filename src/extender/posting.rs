//! Posting Bindings: what is posted is what the newest plan says at that moment, and nothing is posted once the call that
//! asked for it has ended.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use k8s_openapi::api::core::v1::{Binding, ObjectReference, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::PostParams;
use kube::{Api, Client};
use muster_api::keys;
use muster_core::extender::{self, Assumed};
use muster_core::model::gang::{Gang, Membership, Pod as CorePod};
use muster_core::model::names::PodUid;
use tokio::time::{Instant, timeout, timeout_at};
use tracing::error;

use super::wire::ExtenderBindingArgs;
use crate::clock::now_real;
use crate::cluster::{Cluster, State};
use crate::step::{Step, step};
use crate::telemetry::GangMetrics;

/// The API server must show a binding this long after it was posted.
const BOUND_WITHIN: Duration = Duration::from_secs(30);
/// One attempt; a connection that is dead is noticed by then.
const ATTEMPT: Duration = Duration::from_secs(10);
/// kube-scheduler calls `bind` within milliseconds of the answer that left it one node; after this it has done something else.
const CHOSEN_WITHIN: Duration = Duration::from_secs(2);
/// Reported where nothing is known of a write.
pub(super) const NO_ANSWER: &str = "no answer from the API server in time";

/// Bindings on their way.
pub(super) struct Posting {
    client: Client,
    cluster: Cluster,
    metrics: GangMetrics,
    posted: Mutex<Posted>,
}

/// What was posted and is not shown by the watch yet.
#[derive(Debug, Default)]
struct Posted {
    outcomes: BTreeMap<PodUid, Outcome>,
    /// Ordinary pods among them, with the capacity they take.
    assumed: Assumed,
    /// Those of `assumed` for which no call of `bind` has come yet, and since when.
    chosen: BTreeMap<PodUid, Instant>,
}

impl Posted {
    /// What kube-scheduler was expected to choose for a pod counts no more, unless its call has come.
    fn forget_choice(&mut self, uid: &PodUid) {
        if self.chosen.remove(uid).is_some() {
            self.assumed.remove(uid);
        }
    }
}

#[derive(Clone, Debug)]
struct Outcome {
    args: ExtenderBindingArgs,
    since: Instant,
    /// kube-scheduler was informed that the pod is bound.
    answered: bool,
}

/// A call under way. One that is dropped, as when kube-scheduler ends and its connection closes, may have bound the pod or not:
/// its capacity counts until that is looked for.
struct Call<'a> {
    posting: &'a Posting,
    uid: &'a PodUid,
    args: &'a ExtenderBindingArgs,
    /// A Binding may stand.
    sent: bool,
    ended: bool,
}

impl Drop for Call<'_> {
    fn drop(&mut self) {
        if !self.ended && self.sent {
            self.posting.ended(self.uid, self.args, &Err(NO_ANSWER.to_owned()), true);
        }
    }
}

impl std::fmt::Debug for Posting {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Posting").finish_non_exhaustive()
    }
}

impl Posting {
    pub(super) fn new(client: Client, cluster: Cluster, metrics: GangMetrics) -> Self {
        Self { client, cluster, metrics, posted: Mutex::default() }
    }

    /// Ordinary pods that are being bound, then the newest state: whoever is missing in the first is shown by the second.
    pub(super) fn assumed(&self) -> Assumed {
        let mut posted = self.posted();
        let late: Vec<PodUid> = posted
            .chosen
            .iter()
            .filter(|(_, since)| since.elapsed() > CHOSEN_WITHIN)
            .map(|(uid, _)| uid.clone())
            .collect();
        late.iter().for_each(|uid| posted.forget_choice(uid));
        posted.assumed.clone()
    }

    /// kube-scheduler is about to bind an ordinary pod to this node: others are answered as if it stood there.
    pub(super) fn choose(&self, pod: &CorePod, node: &str) {
        let mut posted = self.posted();
        // What a call has posted may stand.
        if posted.chosen.contains_key(&pod.uid) || !posted.assumed.contains(&pod.uid) {
            posted.assumed.add(pod, node);
            posted.chosen.insert(pod.uid.clone(), Instant::now());
        }
    }

    /// A call of `bind` has ended without a Binding.
    pub(super) fn refused(&self, uid: &PodUid) {
        self.posted().forget_choice(uid);
    }

    /// Posts the Binding of one pod. A member of a gang that was committed just now brings its gang: the watch may not show
    /// it yet.
    ///
    /// Before every attempt the place is looked up again: a plan may have changed, and what was an ordinary pod's capacity may
    /// be assigned by now.
    ///
    /// Errors: what the API server reported, success if the pod already stands on that node; the plan is another one; no answer
    /// came before `until`.
    pub(super) async fn post(
        &self,
        args: &ExtenderBindingArgs,
        committed: Option<&Gang>,
        until: Instant,
    ) -> Result<(), String> {
        let uid = PodUid::from(args.pod_uid.as_str());
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), &args.pod_namespace);
        let mut pause = Pause::default();
        let mut call = Call { posting: self, uid: &uid, args, sent: false, ended: false };
        let result = loop {
            if Instant::now() >= until {
                break Err(NO_ANSWER.to_owned());
            }
            let place = match self.claim(&uid, args, committed) {
                Ok(place) => place,
                Err(reason) => break Err(reason),
            };
            call.sent = true;
            let binding = binding(args, place);
            let params = PostParams::default();
            let attempt = step(
                Step::BindPod,
                pods.create_subresource::<_, serde_json::Value>("binding", &args.pod_name, &params, &binding),
            );
            match timeout_at(until.min(Instant::now() + ATTEMPT), attempt).await {
                Ok(Ok(_)) => break Ok(()),
                Ok(Err(kube::Error::Api(status))) if status.code == 409 => {
                    let looked = timeout_at(until, already_bound(&pods, args, &status.message)).await;
                    break looked.unwrap_or_else(|_| Err(NO_ANSWER.to_owned()));
                }
                Ok(Err(error)) if !is_transient(&error) => {
                    // Refused: the pod takes no capacity.
                    call.sent = false;
                    break Err(format!("binding: {error}"));
                }
                Ok(Err(_)) | Err(_) => {
                    if timeout_at(until, pause.wait()).await.is_err() {
                        break Err(NO_ANSWER.to_owned());
                    }
                }
            }
        };
        call.ended = true;
        self.ended(&uid, args, &result, call.sent);
        result
    }

    /// Looks the place up, and takes the capacity of an ordinary pod, in one go.
    fn claim(
        &self,
        uid: &PodUid,
        args: &ExtenderBindingArgs,
        committed: Option<&Gang>,
    ) -> Result<Option<(u64, u32)>, String> {
        let mut posted = self.posted();
        let state = self.cluster.load();
        let place = extender::may_post(&state.snapshot, &posted.assumed, committed, uid, &args.node, now_real())
            .map_err(|reason| reason.as_str().to_owned())?;
        if let Some(pod) = state.snapshot.pods.get(uid).filter(|pod| pod.membership == Membership::Single) {
            posted.assumed.add(pod, &args.node);
        }
        posted.chosen.remove(uid);
        // What an earlier call left open is looked for once this one has ended.
        if let Some(outcome) = posted.outcomes.get_mut(uid) {
            outcome.since = Instant::now();
        }
        Ok(place)
    }

    fn ended(&self, uid: &PodUid, args: &ExtenderBindingArgs, result: &Result<(), String>, sent: bool) {
        let mut posted = self.posted();
        if result.is_ok() || sent {
            // It may stand, answered or not: its capacity counts until the watch or the API server says what is true.
            let outcome = Outcome { args: args.clone(), since: Instant::now(), answered: result.is_ok() };
            posted.outcomes.insert(uid.clone(), outcome);
        } else if let Some(node) = posted.outcomes.get(uid).map(|open| open.args.node.clone()) {
            // What an earlier call left open may stand still.
            let state = self.cluster.load();
            if let Some(pod) = state.snapshot.pods.get(uid).filter(|pod| pod.membership == Membership::Single) {
                posted.assumed.add(pod, &node);
            }
        } else {
            posted.assumed.remove(uid);
        }
    }

    /// Forgets what the newest state shows.
    pub(super) fn settle(&self) {
        let mut posted = self.posted();
        if posted.outcomes.is_empty() && posted.assumed.is_empty() {
            return;
        }
        let state = self.cluster.load();
        posted.outcomes.retain(|uid, _| is_unbound(&state, uid));
        posted.assumed.settle(&state.snapshot);
        let Posted { assumed, chosen, .. } = &mut *posted;
        chosen.retain(|uid, _| assumed.contains(uid));
    }

    /// A success without a binding would hold capacity in kube-scheduler for ever: it is looked for, and must not exist.
    pub(super) async fn look_for_lost_bindings(&self) {
        self.settle();
        let due: Vec<(PodUid, Outcome)> = {
            let posted = self.posted();
            let due = posted.outcomes.iter().filter(|(_, outcome)| outcome.since.elapsed() > BOUND_WITHIN);
            due.map(|(uid, outcome)| (uid.clone(), outcome.clone())).collect()
        };
        for (uid, Outcome { args, since, answered }) in due {
            let pods: Api<Pod> = Api::namespaced(self.client.clone(), &args.pod_namespace);
            // The watch may lag: the API server decides.
            let Ok(Ok(pod)) = timeout(ATTEMPT, pods.get_opt(&args.pod_name)).await else { continue };
            let unbound = pod.is_some_and(|pod| {
                pod.metadata.uid.as_deref() == Some(uid.as_str())
                    && pod.spec.as_ref().is_none_or(|spec| spec.node_name.is_none())
            });
            let mut posted = self.posted();
            if posted.outcomes.get(&uid).is_none_or(|now| now.since != since) {
                // A newer call is under way or has ended meanwhile: what was read says nothing of it.
                continue;
            }
            posted.outcomes.remove(&uid);
            if unbound {
                posted.assumed.remove(&uid);
            }
            drop(posted);
            if unbound && answered {
                self.metrics.lost_bindings.inc();
                error!(
                    pod = format!("{}/{}", args.pod_namespace, args.pod_name),
                    node = args.node,
                    "answered as bound and not bound: this is a bug, please report it; kube-scheduler holds its capacity until \
                     it is restarted"
                );
            }
        }
    }

    fn posted(&self) -> MutexGuard<'_, Posted> {
        // A panic while the lock was held cannot leave the maps half changed: every change is one call.
        self.posted.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn is_unbound(state: &State, uid: &PodUid) -> bool {
    state.snapshot.pods.get(uid).is_some_and(|pod| pod.node.is_none())
}

/// `place` = epoch and rank of a member.
fn binding(args: &ExtenderBindingArgs, place: Option<(u64, u32)>) -> Binding {
    let annotations = place.map(|(epoch, rank)| {
        BTreeMap::from([
            (keys::PLAN_EPOCH.to_owned(), epoch.to_string()),
            (keys::ASSIGNED_RANK.to_owned(), rank.to_string()),
        ])
    });
    Binding {
        metadata: ObjectMeta {
            name: Some(args.pod_name.clone()),
            namespace: Some(args.pod_namespace.clone()),
            uid: Some(args.pod_uid.clone()),
            annotations,
            ..ObjectMeta::default()
        },
        target: ObjectReference {
            api_version: Some("v1".to_owned()),
            kind: Some("Node".to_owned()),
            name: Some(args.node.clone()),
            ..ObjectReference::default()
        },
    }
}

/// After a conflict: the binding we want may exist already.
async fn already_bound(pods: &Api<Pod>, args: &ExtenderBindingArgs, stated: &str) -> Result<(), String> {
    let pod = pods.get_opt(&args.pod_name).await.map_err(|error| format!("binding: {stated}; {error}"))?;
    let same = pod.is_some_and(|pod| {
        pod.metadata.uid.as_deref() == Some(&args.pod_uid)
            && pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref()) == Some(&args.node)
    });
    if same { Ok(()) } else { Err(format!("binding: {stated}")) }
}

/// Pauses between attempts: each twice as long as the one before, up to a second.
#[derive(Debug)]
pub(super) struct Pause(Duration);

impl Default for Pause {
    fn default() -> Self {
        Self(Duration::from_millis(50))
    }
}

impl Pause {
    pub(super) async fn wait(&mut self) {
        tokio::time::sleep(self.0).await;
        self.0 = self.0.saturating_mul(2).min(Duration::from_secs(1));
    }
}

/// Whether the same call may succeed later.
pub(super) fn is_transient(error: &kube::Error) -> bool {
    match error {
        kube::Error::Api(status) => status.code == 429 || status.code >= 500,
        kube::Error::HyperError(_) | kube::Error::Service(_) => true,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use http::{Request, Response};
    use kube::client::Body;
    use serde_json::json;

    use super::*;
    use crate::cluster::{Store, StoreOptions};
    use crate::telemetry::Metrics;

    /// An API server that takes Bindings and keeps none.
    fn forgetful() -> Client {
        let service = tower::service_fn(|request: Request<Body>| async move {
            let bound = request.uri().path().ends_with("/binding");
            let status = json!({"kind": "Status", "apiVersion": "v1", "status": "Success", "metadata": {}});
            let answer = if bound { status } else { pod() };
            Ok::<_, Infallible>(Response::new(Body::from(answer.to_string().into_bytes())))
        });
        Client::new(service, "ns")
    }

    fn pod() -> serde_json::Value {
        json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "lost", "namespace": "ns", "uid": "lost"},
            "spec": {"schedulerName": "muster", "containers": [{"name": "main"}]},
        })
    }

    fn args() -> ExtenderBindingArgs {
        serde_json::from_value(json!({"PodName": "lost", "PodNamespace": "ns", "PodUID": "lost", "Node": "n1"}))
            .unwrap()
    }

    fn with_the_pod() -> (Store, Cluster) {
        let options = StoreOptions {
            scheduler_names: vec!["muster".to_owned()],
            provisioner_scheduler_names: Vec::new(),
            accelerators: Vec::new(),
            max_age: Duration::from_secs(3600),
        };
        let (mut store, cluster) = Store::new(options, &[], &[]);
        store.apply_pod(serde_json::from_value(pod()).unwrap());
        (store, cluster)
    }

    #[tokio::test]
    async fn a_member_answered_as_bound_that_the_api_server_shows_unbound_is_counted() {
        let (mut store, cluster) = with_the_pod();
        store.publish();
        let metrics = Metrics::default();
        let posting = Posting::new(forgetful(), cluster, metrics.gangs.clone());
        let args = args();
        posting.ended(&PodUid::from("lost"), &args, &Ok(()), true);
        posting.look_for_lost_bindings().await;
        assert_eq!(metrics.gangs.lost_bindings.get(), 0, "the watch may lag");
        let Some(earlier) = Instant::now().checked_sub(BOUND_WITHIN + Duration::from_secs(1)) else {
            panic!("the machine has just started")
        };
        posting.posted().outcomes.values_mut().for_each(|outcome| outcome.since = earlier);
        posting.look_for_lost_bindings().await;
        assert_eq!(metrics.gangs.lost_bindings.get(), 1);
        posting.look_for_lost_bindings().await;
        assert_eq!(metrics.gangs.lost_bindings.get(), 1, "once");
    }

    #[tokio::test]
    async fn the_capacity_of_a_call_that_was_dropped_is_looked_for_and_released() {
        let (sent, mut asked) = tokio::sync::mpsc::unbounded_channel();
        let service = tower::service_fn(move |request: Request<Body>| {
            let binds = request.uri().path().ends_with("/binding");
            sent.send(binds).unwrap();
            async move {
                if binds {
                    std::future::pending::<()>().await;
                }
                Ok::<_, Infallible>(Response::new(Body::from(pod().to_string().into_bytes())))
            }
        });
        let (mut store, cluster) = with_the_pod();
        let node = json!({"metadata": {"name": "n1"}, "status": {"allocatable": {"cpu": "4", "pods": "9"}}});
        store.apply_node(&serde_json::from_value(node).unwrap());
        store.publish();
        let metrics = Metrics::default();
        let posting = Posting::new(Client::new(service, "ns"), cluster, metrics.gangs.clone());
        let args = args();
        tokio::select! {
            answer = posting.post(&args, None, Instant::now() + BOUND_WITHIN) => panic!("{answer:?}"),
            binds = asked.recv() => assert_eq!(binds, Some(true)),
        }
        assert!(!posting.assumed().is_empty(), "it may be bound");
        let Some(earlier) = Instant::now().checked_sub(BOUND_WITHIN + Duration::from_secs(1)) else {
            panic!("the machine has just started")
        };
        posting.posted().outcomes.values_mut().for_each(|outcome| outcome.since = earlier);
        posting.look_for_lost_bindings().await;
        assert!(posting.assumed().is_empty(), "the API server shows that it is not");
        assert_eq!(metrics.gangs.lost_bindings.get(), 0, "nobody was answered");
    }

    #[tokio::test]
    async fn the_capacity_of_a_newer_call_stays_while_an_older_one_is_looked_for() {
        let (sent, mut asked) = tokio::sync::mpsc::unbounded_channel();
        let (gate, opens) = tokio::sync::watch::channel(false);
        let service = tower::service_fn(move |request: Request<Body>| {
            let binds = request.uri().path().ends_with("/binding");
            sent.send(binds).unwrap();
            let mut opens = opens.clone();
            async move {
                if binds {
                    std::future::pending::<()>().await;
                }
                opens.wait_for(|open| *open).await.unwrap();
                Ok::<_, Infallible>(Response::new(Body::from(pod().to_string().into_bytes())))
            }
        });
        let (mut store, cluster) = with_the_pod();
        let node = json!({"metadata": {"name": "n1"}, "status": {"allocatable": {"cpu": "4", "pods": "9"}}});
        store.apply_node(&serde_json::from_value(node).unwrap());
        store.publish();
        let posting = Posting::new(Client::new(service, "ns"), cluster, Metrics::default().gangs);
        let args = args();
        let call = || posting.post(&args, None, Instant::now() + BOUND_WITHIN);
        tokio::select! {
            answer = call() => panic!("{answer:?}"),
            binds = asked.recv() => assert_eq!(binds, Some(true)),
        }
        let Some(earlier) = Instant::now().checked_sub(BOUND_WITHIN + Duration::from_secs(1)) else {
            panic!("the machine has just started")
        };
        posting.posted().outcomes.values_mut().for_each(|outcome| outcome.since = earlier);
        let mut under_way = std::pin::pin!(call());
        let newer = async {
            assert_eq!(asked.recv().await, Some(false), "the older one is looked for");
            tokio::select! {
                answer = &mut under_way => panic!("{answer:?}"),
                binds = asked.recv() => assert_eq!(binds, Some(true)),
            }
            gate.send(true).unwrap();
        };
        tokio::join!(posting.look_for_lost_bindings(), newer);
        assert!(!posting.assumed().is_empty(), "the newer one may bind it");
        // A newer call that is refused says nothing of the older one.
        posting.ended(&PodUid::from("lost"), &args, &Err("the node is another's".to_owned()), false);
        assert!(!posting.assumed().is_empty());
    }

    #[tokio::test]
    async fn what_kube_scheduler_is_expected_to_choose_counts_until_its_call_is_refused_or_does_not_come() {
        let (mut store, cluster) = with_the_pod();
        let node = json!({"metadata": {"name": "n1"}, "status": {"allocatable": {"cpu": "4", "pods": "9"}}});
        store.apply_node(&serde_json::from_value(node).unwrap());
        store.publish();
        let uid = PodUid::from("lost");
        let pod = cluster.load().snapshot.pods.get(&uid).cloned().unwrap();
        let posting = Posting::new(forgetful(), cluster, Metrics::default().gangs);
        let counts = || posting.assumed().contains(&uid);
        posting.choose(&pod, "n1");
        assert!(counts());
        posting.refused(&uid);
        assert!(!counts());
        posting.choose(&pod, "n1");
        let Some(earlier) = Instant::now().checked_sub(CHOSEN_WITHIN + Duration::from_millis(1)) else {
            panic!("the machine has just started")
        };
        posting.posted().chosen.values_mut().for_each(|since| *since = earlier);
        assert!(!counts(), "no call has come");
        posting.choose(&pod, "n1");
        assert_eq!(posting.post(&args(), None, Instant::now() + BOUND_WITHIN).await, Ok(()));
        posting.posted().chosen.values_mut().for_each(|since| *since = earlier);
        posting.refused(&uid);
        assert!(counts(), "its call has come, and bound it");
        // A call that is asked for once more changes nothing of that.
        posting.choose(&pod, "n2");
        posting.refused(&uid);
        assert!(counts());
        let bound = json!({"nodeName": "n1", "schedulerName": "muster", "containers": [{"name": "main"}]});
        let mut shown = self::pod();
        shown["spec"] = bound;
        store.apply_pod(serde_json::from_value(shown).unwrap());
        store.publish();
        posting.settle();
        assert!(!counts() && posting.posted().chosen.is_empty());
    }

    #[tokio::test]
    async fn after_a_conflict_a_binding_counts_as_made_for_this_very_pod_on_this_node_alone() {
        let args = args();
        for (uid, node, made) in [
            ("lost", Some("n1"), true),
            ("lost", Some("n2"), false),
            ("lost", None, false),
            ("again", Some("n1"), false),
        ] {
            let service = tower::service_fn(move |_: Request<Body>| async move {
                let mut seen = pod();
                seen["metadata"]["uid"] = json!(uid);
                seen["spec"]["nodeName"] = json!(node);
                Ok::<_, Infallible>(Response::new(Body::from(seen.to_string().into_bytes())))
            });
            let pods: Api<Pod> = Api::namespaced(Client::new(service, "ns"), "ns");
            assert_eq!(already_bound(&pods, &args, "conflict").await.is_ok(), made, "{uid} on {node:?}");
        }
    }
}
