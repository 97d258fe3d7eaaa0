//! The differential test of `muster_core::fit`: kube-scheduler's own verdict on generated cases.
//!
//! Planner, checker and extender read a cluster through one conversion and one fit, so none of them can find a mistake
//! there. Here the real kube-scheduler judges: each case has a node of its own, which its pod is pinned to, so that one run
//! of the scheduler gives all verdicts at once, with the reasons in the pod's condition.
//!
//! Three of five candidates use a claim that is bound to a volume which some nodes reach.
//!
//! `MUSTER_FITS_CASES` sets the number of cases (500 by default), `MUSTER_FITS_SEED` another sequence, and a failure names
//! seed and number.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking, its helpers too")]

mod generator;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::time::Duration;

use futures::{StreamExt, TryStreamExt, stream};
use k8s_openapi::api::core::v1::{Node, PersistentVolume, PersistentVolumeClaim, Pod, PodTemplateSpec};
use k8s_openapi::api::node::v1::RuntimeClass;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Client, ResourceExt};
use muster::testbed::{Binaries, ClusterOptions, Identity, SchedulerOptions, TestCluster, binaries, eventually};
use muster_api::convert;
use muster_api::volumes::{Used, Volumes};
use muster_core::fit::{self, Misfit};
use muster_core::model::names::ResourceName;
use muster_core::model::pod::Shape;
use muster_core::model::resources::PODS;
use serde_json::json;

use self::generator::{CANDIDATE, CASE, Case, NAMESPACE, Present};

/// Cases without `MUSTER_FITS_CASES`.
const CASES: usize = 500;
/// Sequence without `MUSTER_FITS_SEED`.
const SEED: u64 = 20_260;
/// Requests to the API server at a time.
const CONCURRENCY: usize = 24;
/// How long the scheduler may take for all cases.
const DEADLINE: Duration = Duration::from_secs(240);
/// Nodes that the pod is not pinned to are excluded for this reason.
const NOT_PINNED: &str = "node(s) didn't satisfy plugin(s) [NodeAffinity]";

const CORDONED: &str = "node(s) were unschedulable";
const TAINTED: &str = "node(s) had untolerated taint(s)";
const NOT_SELECTED: &str = "node(s) didn't match Pod's node affinity/selector";
/// Ends two reasons: the anti-affinity of the new pod, and of those that stand there.
const APART: &str = "anti-affinity rules";
/// The volume of the new pod cannot be reached: by its terms, or by its zone.
const UNREACHABLE: [&str; 2] =
    ["node(s) didn't match PersistentVolume's node affinity", "node(s) had no available volume zone"];

/// kube-scheduler's answer about one pod.
#[derive(Debug, PartialEq, Eq)]
enum Verdict {
    /// It was bound.
    Fits,
    /// It was not; the message of its condition.
    Refused(String),
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_generated_pod_gets_the_verdict_of_the_real_kube_scheduler() {
    if std::env::var_os("MUSTER_WITHOUT_CONTROL_PLANE").is_some() {
        return;
    }
    let repository = &muster::testbed::repository();
    let binaries = match Binaries::ensure(repository, |_| {}).await {
        Ok(binaries) => binaries,
        Err(binaries::BinariesError::NoGo(_)) if std::env::var("CI").as_deref() != Ok("true") => return,
        Err(error) => panic!("{error}"),
    };
    let seed = setting("MUSTER_FITS_SEED").unwrap_or(SEED);
    let count = setting("MUSTER_FITS_CASES").map_or(CASES, |count| usize::try_from(count).unwrap());
    let cases: Vec<Case> = (0..count).map(|number| generator::case(seed, number)).collect();

    let cluster = TestCluster::start(ClusterOptions {
        // Nothing may touch the nodes: their conditions and taints are part of the cases.
        controller_manager: false,
        kwok: false,
        api_server_args: vec!["--disable-admission-plugins=TaintNodesByCondition".to_owned()],
        ..ClusterOptions::new(repository, binaries)
    })
    .await
    .unwrap();
    cluster.create_namespace(NAMESPACE).await.unwrap();
    let client = cluster.client(Identity::Admin).unwrap();
    create(&client, &cases).await;
    // Only now, so that it starts with everything there is: it would give early verdicts otherwise.
    cluster.start_scheduler(&SchedulerOptions::new(None)).await.unwrap();
    let verdicts = verdicts(&client, count).await;
    let outcome = compare(&client, &cases, &verdicts).await;
    assert!(
        outcome.disagreements.is_empty(),
        "seed {seed}: {} of {count} cases disagree with kube-scheduler\n{}",
        outcome.disagreements.len(),
        outcome.disagreements.iter().take(5).cloned().collect::<String>(),
    );
    let missing: Vec<&str> = KINDS.iter().copied().filter(|kind| !outcome.seen.contains_key(kind)).collect();
    assert!(count < CASES || missing.is_empty(), "seed {seed}: no case ended as {missing:?}: {:?}", outcome.seen);
}

/// Every outcome that a run must see, lest the generator asks too little.
const KINDS: [&str; 8] = ["fits", "cordon", "taint", "selector", "port", "resource", "volume", "occupied"];

/// Creates everything but the scheduler: each pod only when its node is there.
async fn create(client: &Client, cases: &[Case]) {
    let classes: Api<RuntimeClass> = Api::all(client.clone());
    for class in generator::runtime_classes() {
        classes.create(&PostParams::default(), &class).await.unwrap();
    }
    let nodes: Api<Node> = Api::all(client.clone());
    let pods: Api<Pod> = Api::namespaced(client.clone(), NAMESPACE);
    let claims: Api<PersistentVolumeClaim> = Api::namespaced(client.clone(), NAMESPACE);
    let volumes: Api<PersistentVolume> = Api::all(client.clone());
    let created: Result<Vec<()>, String> = stream::iter(cases)
        .map(|case| {
            let (nodes, pods, claims, volumes) = (&nodes, &pods, &claims, &volumes);
            async move {
                let refused = |error: kube::Error| format!("{error}\n{}", text(case));
                nodes.create(&PostParams::default(), &case.node).await.map_err(refused)?;
                for present in &case.present {
                    stand(pods, present).await.map_err(refused)?;
                }
                if let Some((claim, volume)) = &case.volume {
                    volumes.create(&PostParams::default(), volume).await.map_err(refused)?;
                    claims.create(&PostParams::default(), claim).await.map_err(refused)?;
                }
                pods.create(&PostParams::default(), &case.candidate).await.map_err(refused)?;
                Ok(())
            }
        })
        .buffer_unordered(CONCURRENCY)
        .try_collect()
        .await;
    if let Err(error) = created {
        panic!("the API server refused a generated object: {error}");
    }
}

/// Creates a pod that is bound already and brings it to its state.
async fn stand(pods: &Api<Pod>, present: &Present) -> Result<(), kube::Error> {
    let name = present.pod.name_any();
    pods.create(&PostParams::default(), &present.pod).await?;
    if let Some(status) = &present.pod.status {
        let patch = Patch::Merge(json!({"status": status}));
        pods.patch_status(&name, &PatchParams::default(), &patch).await?;
    }
    if present.terminating {
        pods.delete(&name, &DeleteParams::default()).await?;
    }
    Ok(())
}

/// Waits until kube-scheduler has judged every candidate.
async fn verdicts(client: &Client, count: usize) -> BTreeMap<String, Verdict> {
    let pods: Api<Pod> = Api::namespaced(client.clone(), NAMESPACE);
    let candidates = ListParams::default().labels(CANDIDATE);
    eventually(DEADLINE, "kube-scheduler to judge every pod", || async {
        let judged: BTreeMap<String, Verdict> =
            pods.list(&candidates).await?.iter().filter_map(|pod| Some((case_of(pod), verdict(pod)?))).collect();
        Ok::<_, kube::Error>((judged.len() == count).then_some(judged))
    })
    .await
    .unwrap()
}

fn verdict(pod: &Pod) -> Option<Verdict> {
    if convert::assigned_node(pod).is_some() {
        return Some(Verdict::Fits);
    }
    let conditions = pod.status.as_ref()?.conditions.as_ref()?;
    let condition = conditions.iter().find(|condition| condition.type_ == "PodScheduled")?;
    (condition.status == "False").then(|| Verdict::Refused(condition.message.clone().unwrap_or_default()))
}

/// What the comparison found.
#[derive(Default)]
struct Outcome {
    disagreements: Vec<String>,
    /// How often each of [`KINDS`] came up.
    seen: BTreeMap<&'static str, usize>,
}

/// Asks `fit` about the objects as the API server has them.
async fn compare(client: &Client, cases: &[Case], verdicts: &BTreeMap<String, Verdict>) -> Outcome {
    let nodes = Api::<Node>::all(client.clone()).list(&ListParams::default()).await.unwrap();
    let nodes: BTreeMap<String, Node> = nodes.into_iter().map(|node| (case_of(&node), node)).collect();
    let pods = Api::<Pod>::namespaced(client.clone(), NAMESPACE).list(&ListParams::default()).await.unwrap();
    let mut present: BTreeMap<String, Vec<Pod>> = BTreeMap::new();
    let mut candidates: BTreeMap<String, Pod> = BTreeMap::new();
    for pod in pods {
        let case = case_of(&pod);
        if pod.labels().contains_key(CANDIDATE) {
            candidates.insert(case, pod);
        } else {
            present.entry(case).or_default().push(pod);
        }
    }
    let mut volumes = Volumes::default();
    let claims = Api::<PersistentVolumeClaim>::namespaced(client.clone(), NAMESPACE);
    claims.list(&ListParams::default()).await.unwrap().iter().for_each(|claim| volumes.apply_claim(claim));
    let bound = Api::<PersistentVolume>::all(client.clone()).list(&ListParams::default()).await.unwrap();
    bound.iter().for_each(|volume| volumes.apply_volume(volume));
    let mut outcome = Outcome::default();
    for (number, case) in cases.iter().enumerate() {
        let key = number.to_string();
        let present = present.get(&key).map(Vec::as_slice).unwrap_or_default();
        let (kind, complaint) = judge(case, &nodes[&key], present, &candidates[&key], &volumes, &verdicts[&key]);
        *outcome.seen.entry(kind).or_default() += 1;
        if let Some(complaint) = complaint {
            let mut message = format!("\ncase {number}: {complaint}\n");
            write!(message, "  kube-scheduler: {:?}\n{}", verdicts[&key], text(case)).unwrap();
            outcome.disagreements.push(message);
        }
    }
    outcome
}

/// Compares one verdict: whether the pod fits, and if not, by which filter and for which resources.
fn judge(
    case: &Case,
    node: &Node,
    present: &[Pod],
    candidate: &Pod,
    volumes: &Volumes,
    verdict: &Verdict,
) -> (&'static str, Option<String>) {
    let node = convert::node(node).unwrap();
    let shape = convert::shape_of_pod(candidate).unwrap();
    let mut usage = convert::usage_of(present).unwrap();
    usage.own_shape_pods = convert::own_shape_pods(candidate, present);
    let needs = Used::read(candidate).map(|used| volumes.needs(&used)).unwrap_or_default();
    assert_eq!((&needs.claims.awaits, &needs.unsupported), (&None, &Vec::new()), "every claim is bound");
    let with_volumes = Shape { volumes: needs.reach, ..shape.clone() };
    // kube-scheduler looks at volumes after resources, and before the pods that stand there.
    let ours = match (fit::fits(&shape, &node, &usage), fit::fits(&with_volumes, &node, &usage)) {
        (Ok(()) | Err(Misfit::Occupied), with_volumes) => with_volumes,
        (Err(earlier), with_volumes) => {
            assert!(with_volumes.is_err(), "a volume makes no node fit");
            Err(earlier)
        }
    };
    let (kind, expected) = match &ours {
        Ok(()) => ("fits", vec![]),
        Err(Misfit::Unschedulable) => ("cordon", vec![CORDONED.to_owned()]),
        Err(Misfit::Volume) => ("volume", vec![UNREACHABLE[0].to_owned()]),
        // Rules of Muster alone; the cases do not draw them.
        Err(Misfit::NotReady | Misfit::Held | Misfit::Shared) => ("ours", vec![]),
        Err(Misfit::Taint { .. }) => ("taint", vec![TAINTED.to_owned()]),
        Err(Misfit::Selector) => ("selector", vec![NOT_SELECTED.to_owned()]),
        Err(Misfit::Port) => ("port", vec!["node(s) didn't have free ports for the requested pod ports".to_owned()]),
        Err(Misfit::Insufficient { .. }) => ("resource", short(&fit::insufficient(&shape, &node, &usage))),
        Err(Misfit::Occupied) => ("occupied", vec![APART.to_owned()]),
    };
    let complaint = match (&ours, verdict) {
        (Ok(()), Verdict::Fits) => None,
        (Err(_), Verdict::Refused(message)) => disagreement(&expected, message),
        (Ok(()), Verdict::Refused(_)) | (Err(_), Verdict::Fits) => Some(format!("Muster says {ours:?}")),
    };
    (kind, complaint.or_else(|| template_complaint(case, &shape)))
}

/// kube-scheduler's words for resources that are short.
fn short(names: &[ResourceName]) -> Vec<String> {
    let words = |name: &str| if name == PODS { "Too many pods".to_owned() } else { format!("Insufficient {name}") };
    names.iter().map(|name| words(name.as_str())).collect()
}

/// Compares the reasons for the candidate's own node.
fn disagreement(expected: &[String], message: &str) -> Option<String> {
    let own = message.split(" preemption: ").next().unwrap_or_default().trim_end_matches('.');
    let Some((_, reasons)) = own.split_once(" nodes are available: ") else {
        return Some("the message is in no known form".to_owned());
    };
    let mut expected: BTreeSet<&str> = expected.iter().map(String::as_str).collect();
    // `12 Insufficient cpu`: the count goes. The words for a resource hold no comma.
    let mut reasons: BTreeSet<&str> = reasons
        .split(", ")
        .filter_map(|part| part.split_once(' '))
        .map(|(_, reason)| if reason.contains(APART) { APART } else { reason })
        .map(|reason| if UNREACHABLE.contains(&reason) { UNREACHABLE[0] } else { reason })
        .collect();
    if !reasons.remove(NOT_PINNED) {
        // A pod that does not name its node in every term was tried on all nodes, and its selector kept it off the others:
        // what comes after that filter is about its own node, the rest may not be.
        for shared in [CORDONED, TAINTED, NOT_SELECTED] {
            reasons.remove(shared);
            expected.remove(shared);
        }
    }
    (reasons != expected).then(|| format!("Muster says {expected:?}"))
}

/// A template must get the shape that its pods have once the API server has filled in its defaults.
fn template_complaint(case: &Case, shape: &Shape) -> Option<String> {
    let template =
        PodTemplateSpec { metadata: Some(case.candidate.metadata.clone()), spec: case.candidate.spec.clone() };
    let before = convert::shape_of_template(NAMESPACE, &template).unwrap();
    // Admission adds tolerations of its own.
    let before = Shape { tolerations: shape.tolerations.clone(), ..before };
    (before != *shape).then(|| format!("the template has another shape: {before:?} but the pod {shape:?}"))
}

fn case_of(object: &impl ResourceExt) -> String {
    object.labels().get(CASE).cloned().unwrap_or_default()
}

/// A number from the environment.
fn setting(name: &str) -> Option<u64> {
    Some(std::env::var(name).ok()?.parse().expect(name))
}

/// The case as JSON, to be read by people.
fn text(case: &Case) -> String {
    let line = |value: String| format!("  {value}\n");
    let mut lines = line(serde_json::to_string(&case.node).unwrap());
    for present in &case.present {
        lines += &line(format!("terminating={} {}", present.terminating, serde_json::to_string(&present.pod).unwrap()));
    }
    if let Some((_, volume)) = &case.volume {
        lines += &line(serde_json::to_string(volume).unwrap());
    }
    lines + &line(serde_json::to_string(&case.candidate).unwrap())
}
