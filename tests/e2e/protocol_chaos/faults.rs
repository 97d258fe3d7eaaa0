//! What goes wrong: with one gang's pods and nodes, or with a process; and how all of it is mended.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt};
use muster::testbed::nodes::{DEMO_NOT_READY, GPU};
use muster::testbed::workloads::{DEMO_REFUSE, TestPod};
use muster::testbed::{Component, Stack, TestbedError, eventually};
use nix::sys::signal::Signal;
use rand::RngExt;
use rand_chacha::ChaCha8Rng;
use serde_json::{Value, json};

use super::view::View;
use super::{LEAF, LEAVES};
use crate::support::{DEADLINE, leaves};

/// What a fault waits for may not come: the gang waits for capacity that another fault took.
const PATIENCE: Duration = Duration::from_secs(15);
/// … but it comes once all of that is there again.
const HEALED: Duration = Duration::from_secs(180);
/// Label of pods that somebody else places.
const STRANGER: &str = "stranger";

/// Something that happens to one gang.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fault {
    kind: Kind,
    /// How far the gang is by then.
    at: Moment,
    /// Which of its members or nodes.
    which: usize,
}

#[derive(Clone, Copy, Debug)]
enum Kind {
    DeleteMember,
    Cordon,
    NotReady,
    DeleteNode,
    KubeletRefuses,
    LoseDevice,
    /// A pod that another scheduler binds to a planned node.
    Stranger,
}

#[derive(Clone, Copy, Debug)]
enum Moment {
    Planned,
    Released,
    FirstBound,
    Bound,
}

/// Something that happens to a process.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shock {
    kind: ShockKind,
    /// Once so many members are bound.
    at: usize,
}

/// Those of every wave, and one more.
const SHOCKS: [ShockKind; 3] = [ShockKind::KillMuster, ShockKind::KillScheduler, ShockKind::KillApiServer];

#[derive(Clone, Copy, Debug)]
enum ShockKind {
    KillMuster,
    KillScheduler,
    KillApiServer,
    /// It sleeps until its lease is over.
    PauseMuster,
    PauseScheduler,
}

/// Each in turn, so that no wave is without one of them.
const KINDS: [Kind; 7] = [
    Kind::KubeletRefuses,
    Kind::LoseDevice,
    Kind::Stranger,
    Kind::Cordon,
    Kind::NotReady,
    Kind::DeleteNode,
    Kind::DeleteMember,
];

impl Fault {
    /// Faults of the `number`-th gang of a wave: one of the kind whose turn it is, and maybe another.
    pub(super) fn draw_all(rng: &mut ChaCha8Rng, number: usize, size: u16) -> Vec<Self> {
        let first = Self::draw(rng, KINDS[number % KINDS.len()], size);
        let other = KINDS[rng.random_range(0..KINDS.len())];
        let second = (rng.random_range(0..2) == 0).then(|| Self::draw(rng, other, size));
        std::iter::once(first).chain(second).collect()
    }

    fn draw(rng: &mut ChaCha8Rng, kind: Kind, size: u16) -> Self {
        let at = match rng.random_range(0..4) {
            0 => Moment::Planned,
            1 => Moment::Released,
            2 => Moment::FirstBound,
            _ => Moment::Bound,
        };
        Self { kind, at, which: usize::from(rng.random_range(0..size)) }
    }
}

impl Shock {
    /// Each process is killed once and one of them sleeps, in an order and at moments of the seed.
    pub(super) fn draw(rng: &mut ChaCha8Rng) -> Vec<Self> {
        let sleeps = if rng.random_range(0..2) == 0 { ShockKind::PauseMuster } else { ShockKind::PauseScheduler };
        let mut kinds: Vec<ShockKind> = SHOCKS.into_iter().chain([sleeps]).collect();
        let mut shocks = Vec::new();
        while !kinds.is_empty() {
            let kind = kinds.swap_remove(rng.random_range(0..kinds.len()));
            shocks.push(Self { kind, at: rng.random_range(0..16) });
        }
        shocks
    }
}

fn reached(view: &View, job: &str, moment: Moment) -> Option<Vec<String>> {
    let (phase, nodes) = view.gang(job)?;
    let members = view.members(job);
    let bound = members.iter().filter(|member| member.node.is_some()).count();
    let there = match moment {
        Moment::Planned => matches!(phase.as_str(), "Planned" | "Released" | "Committing" | "Bound"),
        Moment::Released => matches!(phase.as_str(), "Released" | "Committing" | "Bound"),
        Moment::FirstBound => bound > 0,
        Moment::Bound => phase == "Bound",
    };
    (there && !nodes.is_empty() && !members.is_empty()).then_some(nodes)
}

/// Waits until `found` finds the moment of a fault. One that never comes is an error: the run would prove nothing.
async fn moment<T>(stack: &Stack, view: &View, what: &str, found: impl Fn(&View) -> Option<T>) -> Result<T, String> {
    if let Some(found) = view.when(PATIENCE, &found).await {
        return Ok(found);
    }
    heal(stack, &leaves(&LEAVES, LEAF)).await?;
    view.when(HEALED, &found).await.ok_or_else(|| format!("{what} never got its moment"))
}

/// Tries until the API server is there again; an object that is gone is nothing to be changed.
async fn again<T, Call, Made>(what: &str, call: Call) -> Result<(), String>
where
    Call: Fn() -> Made,
    Made: Future<Output = Result<T, kube::Error>>,
{
    let call = &call;
    eventually(DEADLINE, what, || async move {
        match call().await {
            Ok(_) => Ok(Some(())),
            Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => Ok(Some(())),
            Err(error) => Err(error.to_string()),
        }
    })
    .await
    .map_err(|error| error.to_string())
}

/// Waits for the moment and strikes.
pub(super) async fn strike(stack: &Stack, view: &View, job: &str, fault: &Fault) -> Result<(), String> {
    let client = stack.admin().map_err(|error| error.to_string())?;
    if matches!(fault.kind, Kind::KubeletRefuses) {
        return refuse(stack, view, job, fault.which).await;
    }
    let what = format!("{job}: {fault:?}");
    let nodes = moment(stack, view, &what, |view| reached(view, job, fault.at)).await?;
    let node = &nodes[fault.which % nodes.len()];
    let nodes: Api<Node> = Api::all(client.clone());
    let change = |patch: Value| {
        let nodes = nodes.clone();
        async move {
            let (nodes, patch) = (&nodes, &patch);
            let call = || async move { nodes.patch(node, &PatchParams::default(), &Patch::Merge(patch)).await };
            again("change a node", call).await
        }
    };
    let (delete, create) = (DeleteParams::default(), PostParams::default());
    match fault.kind {
        Kind::DeleteMember => {
            let member = moment(stack, view, &what, |view| {
                let members = view.members(job);
                members.get(fault.which % members.len().max(1)).cloned()
            });
            let member = member.await?;
            let pods: Api<Pod> = Api::namespaced(client, "ml");
            again("delete a member", || pods.delete(&member.name, &delete)).await
        }
        Kind::Cordon => change(json!({"spec": {"unschedulable": true}})).await,
        Kind::NotReady => change(json!({"metadata": {"annotations": {DEMO_NOT_READY: "yes"}}})).await,
        Kind::DeleteNode => again("delete a node", || nodes.delete(node, &delete)).await,
        Kind::LoseDevice => devices(&nodes, node, "7").await,
        Kind::Stranger => {
            let pods: Api<Pod> = Api::namespaced(client, "ml");
            let name = format!("{STRANGER}-{job}-{}", fault.which);
            let mut pod = TestPod::new(name).gpus(8).label(STRANGER, "yes").scheduler("another").build();
            pod.spec.as_mut().unwrap().node_name = Some(node.clone());
            again("place a stranger", || pods.create(&create, &pod)).await
        }
        Kind::KubeletRefuses => Ok(()),
    }
}

/// The kubelet will refuse one member, which says so before it is bound.
async fn refuse(stack: &Stack, view: &View, job: &str, which: usize) -> Result<(), String> {
    let waits = |view: &View| view.members(job).into_iter().filter(|member| member.node.is_none()).nth(which);
    let member = moment(stack, view, &format!("{job}: a kubelet that refuses member {which}"), waits).await?;
    let pods: Api<Pod> = Api::namespaced(stack.admin().map_err(|error| error.to_string())?, "ml");
    let patch = json!({"metadata": {"annotations": {DEMO_REFUSE: format!("OutOf{GPU}")}}});
    let (pods, patch) = (&pods, Patch::Merge(&patch));
    let (name, patch) = (&member.name, &patch);
    again("mark a member", || async move { pods.patch(name, &PatchParams::default(), patch).await }).await
}

async fn devices(nodes: &Api<Node>, node: &str, count: &str) -> Result<(), String> {
    let patch = json!({"status": {"allocatable": {GPU: count}, "capacity": {GPU: count}}});
    let patch = &Patch::Merge(&patch);
    again("change a node's devices", || async move { nodes.patch_status(node, &PatchParams::default(), patch).await })
        .await
}

/// How kube-scheduler ends by itself.
const CORRUPTED: &str = "Scheduler cache is corrupted";

/// Starts kube-scheduler again as often as it ends by itself, as a kubelet does.
///
/// 1.37 does where a gap of its watch hides that a bound pod was deleted and made again under its name
/// (kubernetes/kubernetes#141255). Any other end is one that the wave fails of.
pub(super) async fn keep_scheduler(stack: Arc<Stack>) -> Result<(), TestbedError> {
    let scheduler = Component::Scheduler(0);
    let mut started = 0;
    let mut tick = tokio::time::interval(Duration::from_millis(250));
    loop {
        tick.tick().await;
        if stack.cluster.exit_status(scheduler).as_deref() != Some("exit status: 1") {
            continue;
        }
        let log = std::fs::read_to_string(stack.cluster.log(scheduler)).unwrap_or_default();
        if log.matches(CORRUPTED).count() <= started {
            continue;
        }
        eprintln!("kube-scheduler ended by itself: {CORRUPTED}");
        started = log.matches(CORRUPTED).count();
        match stack.cluster.restart(scheduler).await {
            // A fault of its own has begun in the same moment.
            Ok(()) | Err(TestbedError::AlreadyRunning(_)) => {}
            Err(error) => return Err(error),
        }
    }
}

/// Waits for the moment and strikes a process, which is there again afterwards.
pub(super) async fn shake(stack: &Stack, view: &View, shock: Shock) -> Result<(), String> {
    moment(stack, view, &format!("{shock:?}"), |view| {
        let runs = stack.cluster.pid(Component::Scheduler(0)).is_some();
        (view.bound() >= shock.at && runs).then_some(())
    })
    .await?;
    let text = |error: TestbedError| error.to_string();
    match shock.kind {
        ShockKind::KillMuster => {
            stack.kill_muster().map_err(text)?;
            stack.start_muster(&[]).await.map_err(text)
        }
        ShockKind::KillScheduler => {
            stack.cluster.kill(Component::Scheduler(0)).map_err(text)?;
            stack.start_scheduler(0).await.map_err(text)
        }
        ShockKind::KillApiServer => stack.cluster.restart(Component::ApiServer).await.map_err(text),
        ShockKind::PauseMuster => pause(stack, view, Component::Muster(0)).await,
        ShockKind::PauseScheduler => pause(stack, view, Component::Scheduler(0)).await,
    }
}

/// Sleeps for longer than a lease lasts; the world goes on meanwhile.
async fn pause(stack: &Stack, view: &View, component: Component) -> Result<(), String> {
    stack.cluster.signal(component, Signal::SIGSTOP).map_err(|error| error.to_string())?;
    let _ = view.when(Duration::from_secs(4), |_| None::<()>).await;
    stack.cluster.signal(component, Signal::SIGCONT).map_err(|error| error.to_string())
}

/// Every node is there and sound again, and the strangers are gone.
pub(super) async fn heal(stack: &Stack, all: &[Node]) -> Result<(), String> {
    let client = stack.admin().map_err(|error| error.to_string())?;
    let (delete, create) = (DeleteParams::default(), PostParams::default());
    let nodes: Api<Node> = Api::all(client.clone());
    let (seen, params) = (&nodes, &ListParams::default());
    let there = eventually(DEADLINE, "the nodes", || async move { seen.list(params).await.map(Some) }).await;
    let there: BTreeSet<String> = there.map_err(|error| error.to_string())?.iter().map(ResourceExt::name_any).collect();
    for node in all {
        let name = node.name_any();
        if there.contains(&name) {
            let patch = json!({"spec": {"unschedulable": null}, "metadata": {"annotations": {DEMO_NOT_READY: null}}});
            let (nodes, name, patch) = (&nodes, &name, &Patch::Merge(&patch));
            again("mend a node", || async move { nodes.patch(name, &PatchParams::default(), patch).await }).await?;
            devices(nodes, name, "8").await?;
        } else {
            again("bring a node back", || nodes.create(&create, node)).await?;
        }
    }
    let pods: Api<Pod> = Api::namespaced(client, "ml");
    let strangers = ListParams::default().labels(STRANGER);
    again("remove the strangers", || pods.delete_collection(&delete, &strangers)).await
}
