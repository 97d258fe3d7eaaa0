//! Deployments, pods that end by themselves, as those of CronJobs do, and gangs come, grow and shrink on a cluster that begins empty,
//! all from a seed: nobody waits for long, pods run where they were planned, and hardly a node is launched in vain.
//!
//! `make test` does one seed, `make soak` ten; `MUSTER_SEED` does one again.

#![allow(clippy::unwrap_used, clippy::print_stderr, reason = "a test fails by panicking, its helpers too")]

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::StreamExt;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::ListParams;
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client, ResourceExt};
use muster::testbed::workloads::{DEMO_COMPLETE_AFTER, TestJob, TestPod};
use muster::testbed::{Stack, eventually};
use muster_api::crd::NodeBatch;
use muster_api::pod_state;
use muster_core::model::gang::Membership;
use muster_core::ordinary::digest;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde_json::json;
use tokio::time::MissedTickBehavior;

use crate::cloud::{delete_job, everything_is_terminated, invariants_hold, no_instance_is_left};
use crate::ordinary::{deploy, general, hosts, provisioning_with, scale};
use crate::support::{DEADLINE, create, no_errors, node_of, submit};

/// What happens in one run.
const STEPS: usize = 8;
/// Of EC2's boot of twenty seconds a second is left; what a pod may wait beyond it is counted in beats.
const LONGEST: Duration = Duration::from_secs(31);
/// Time between two questions to the API server. Time in which a machine is too busy to answer is nobody's wait.
const BEAT: Duration = Duration::from_millis(100);
/// Members of a gang: each fills the smaller of the two types.
const MEMBERS: u16 = 2;

/// What three watches have seen so far.
#[derive(Debug, Default)]
struct Seen {
    /// Answers of the API server, one to a beat.
    beats: u32,
    pods: BTreeMap<String, SeenPod>,
    nodes: BTreeSet<String>,
    batches: BTreeMap<String, NodeBatch>,
}

/// A pod, by its UID.
#[derive(Debug)]
struct SeenPod {
    app: String,
    class: Option<String>,
    /// At this beat.
    created: u32,
    /// Its first node, and for how many beats it waited for that.
    bound: Option<(String, u32)>,
    ended: bool,
    gone: bool,
}

#[derive(Clone, Debug, Default)]
struct View(Arc<Mutex<Seen>>);

impl View {
    /// Follows pods, nodes and NodeBatches until the runtime ends.
    fn follow(client: &Client) -> Self {
        let view = Self::default();
        let (pods, seen) = (Api::<Pod>::all(client.clone()), view.clone());
        let asked = pods.clone();
        tokio::spawn(async move {
            let mut beat = tokio::time::interval(BEAT);
            beat.set_missed_tick_behavior(MissedTickBehavior::Delay);
            loop {
                beat.tick().await;
                if asked.list_metadata(&ListParams::default().limit(1)).await.is_ok() {
                    seen.0.lock().unwrap().beats += 1;
                }
            }
        });
        let seen = view.clone();
        tokio::spawn(async move {
            let mut pods = watcher(pods, watcher::Config::default()).default_backoff().boxed();
            while let Some(event) = pods.next().await {
                // A watch that ended begins again.
                let Ok(event) = event else { continue };
                match event {
                    watcher::Event::Apply(pod) | watcher::Event::InitApply(pod) => seen.pod(&pod),
                    watcher::Event::Delete(pod) => {
                        seen.pod(&pod);
                        seen.0.lock().unwrap().pods.get_mut(&pod.uid().unwrap()).unwrap().gone = true;
                    }
                    watcher::Event::Init | watcher::Event::InitDone => {}
                }
            }
        });
        let (nodes, seen) = (Api::<Node>::all(client.clone()), view.clone());
        tokio::spawn(async move {
            let mut nodes = watcher(nodes, watcher::Config::default()).default_backoff().applied_objects().boxed();
            while let Some(node) = nodes.next().await {
                if let Ok(node) = node {
                    seen.0.lock().unwrap().nodes.insert(node.name_any());
                }
            }
        });
        let (batches, seen) = (Api::<NodeBatch>::all(client.clone()), view.clone());
        tokio::spawn(async move {
            let mut batches = watcher(batches, watcher::Config::default()).default_backoff().applied_objects().boxed();
            while let Some(batch) = batches.next().await {
                let Ok(batch) = batch else { continue };
                // Instances that are gone leave the status: all that a batch ever had count.
                let mut seen = seen.0.lock().unwrap();
                let before = seen.batches.remove(&batch.name_any());
                seen.batches.insert(batch.name_any(), with_former(batch, before));
            }
        });
        view
    }

    fn pod(&self, pod: &Pod) {
        let mut seen = self.0.lock().unwrap();
        let now = seen.beats;
        let app = pod.labels().get("app").cloned().unwrap_or_else(|| pod.name_any());
        let known = seen.pods.entry(pod.uid().unwrap()).or_insert_with(|| SeenPod {
            app,
            class: digest(&pod_state::read(pod, Membership::Single, &["muster".to_owned()])),
            created: now,
            bound: None,
            ended: false,
            gone: false,
        });
        if known.bound.is_none() {
            known.bound = node_of(pod).map(|node| (node, now - known.created));
        }
        let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
        known.ended |= matches!(phase, Some("Succeeded" | "Failed")) || pod.metadata.deletion_timestamp.is_some();
    }

    /// How many pods of an app, or of that name, have a node, and how many have none; who has ended counts for neither.
    fn of(&self, app: &str) -> (usize, usize) {
        let seen = self.0.lock().unwrap();
        let there = seen.pods.values().filter(|pod| pod.app == app && !pod.gone);
        let (bound, waiting): (Vec<&SeenPod>, Vec<&SeenPod>) = there.partition(|pod| pod.bound.is_some());
        (bound.iter().filter(|pod| !pod.ended).count(), waiting.iter().filter(|pod| !pod.ended).count())
    }

    /// Whether the pod of this name was ever bound.
    fn ran(&self, name: &str) -> bool {
        self.0.lock().unwrap().pods.values().any(|pod| pod.app == name && pod.bound.is_some())
    }

    /// How many pods stand on the node that was launched with a place for them, how many places were launched, and who stands
    /// elsewhere.
    fn planned(&self) -> (u32, u32, Vec<String>) {
        let seen = self.0.lock().unwrap();
        let mut held: BTreeMap<(&str, &str), u32> = BTreeMap::new();
        for pod in seen.pods.values() {
            if let (Some(class), Some((node, _))) = (&pod.class, &pod.bound) {
                *held.entry((node.as_str(), class.as_str())).or_default() += 1;
            }
        }
        let (mut taken, mut places, mut elsewhere) = (0, 0, Vec::new());
        for batch in seen.batches.values() {
            let each: Vec<_> = batch
                .spec
                .fillings
                .iter()
                .flat_map(|filling| std::iter::repeat_n(&filling.pods, usize::try_from(filling.nodes).unwrap()))
                .collect();
            for instance in batch.status.iter().flat_map(|status| &status.instances) {
                let (Some(place), Some(node)) = (instance.place, instance.node.as_deref()) else { continue };
                for pods in each[usize::try_from(place).unwrap()] {
                    let there = held.get(&(node, pods.class.as_str())).copied().unwrap_or(0);
                    places += pods.count;
                    taken += pods.count.min(there);
                    if there < pods.count {
                        let of_class = seen.pods.values().filter(|pod| pod.class.as_ref() == Some(&pods.class));
                        let stand: Vec<_> = of_class.map(|pod| (&pod.app, &pod.bound)).collect();
                        elsewhere.push(format!("{there} of {} on {node}: {stand:?}", pods.count));
                    }
                }
            }
        }
        (taken, places, elsewhere)
    }

    fn nodes(&self) -> usize {
        self.0.lock().unwrap().nodes.len()
    }

    /// Nodes that never held a pod.
    fn in_vain(&self) -> Vec<String> {
        let seen = self.0.lock().unwrap();
        let held: BTreeSet<&String> = seen.pods.values().filter_map(|pod| Some(&pod.bound.as_ref()?.0)).collect();
        seen.nodes.iter().filter(|node| !held.contains(node)).cloned().collect()
    }

    /// Longest wait of a pod that was bound.
    fn longest(&self) -> Duration {
        let seen = self.0.lock().unwrap();
        assert!(seen.beats > 0, "the API server never answered: no time was counted");
        BEAT * seen.pods.values().filter_map(|pod| Some(pod.bound.as_ref()?.1)).max().unwrap_or_default()
    }
}

/// The batch, with instances that an earlier status named and this one does not.
fn with_former(mut batch: NodeBatch, before: Option<NodeBatch>) -> NodeBatch {
    let former = before.and_then(|batch| batch.status).map(|status| status.instances).unwrap_or_default();
    if let Some(status) = &mut batch.status {
        let named: BTreeSet<String> = status.instances.iter().map(|one| one.id.clone()).collect();
        status.instances.extend(former.into_iter().filter(|one| !named.contains(&one.id)));
    }
    batch
}

/// What is to run.
#[derive(Debug, Default)]
struct Wanted {
    deployments: BTreeMap<String, u32>,
    gangs: BTreeSet<String>,
    /// Pods that end by themselves.
    once: BTreeSet<String>,
}

/// Waits until everybody has a node.
async fn settled(stack: &Stack, view: &View, wanted: &Wanted) {
    eventually(3 * DEADLINE, "everybody to have a node", || async {
        let mut open = Vec::new();
        for (name, replicas) in &wanted.deployments {
            let (bound, waiting) = view.of(name);
            if waiting > 0 || bound != usize::try_from(*replicas).unwrap() {
                open.push(format!("{name}: {bound} of {replicas}, {waiting} wait"));
            }
        }
        for name in &wanted.gangs {
            if view.of(name).0 != usize::from(MEMBERS) {
                open.push(format!("{name}: {:?}", view.of(name)));
            }
        }
        open.extend(wanted.once.iter().filter(|name| !view.ran(name)).cloned());
        if open.is_empty() { Ok(Some(())) } else { Err(open.join("; ")) }
    })
    .await
    .unwrap_or_else(|error| panic!("{error}\n{}", stack.cluster.report(60)));
}

async fn step(stack: &Stack, view: &View, wanted: &mut Wanted, rng: &mut ChaCha8Rng, number: usize) {
    let which = rng.random_range(0..10);
    let existing: Vec<String> = wanted.deployments.keys().cloned().collect();
    if which < 4 || existing.is_empty() {
        let name = format!("d{number}");
        let cpu = ["500m", "900m", "1500m", "3"][rng.random_range(0..4)];
        let memory = ["512Mi", "3Gi", "6Gi"][rng.random_range(0..3)];
        let replicas = rng.random_range(1..=12);
        deploy(stack, &name, replicas, cpu, memory).await;
        wanted.deployments.insert(name, replicas);
    } else if which < 7 {
        let name = &existing[rng.random_range(0..existing.len())];
        let before = wanted.deployments[name];
        let replicas = if rng.random_range(0..3) == 0 {
            // Who goes while others wait gives them its place, and the node on its way comes in vain: a scale-down of its own.
            settled(stack, view, wanted).await;
            before / 2
        } else {
            before + rng.random_range(1..=8)
        };
        scale(stack, name, replicas).await;
        wanted.deployments.insert(name.clone(), replicas);
    } else if which < 9 {
        for index in 0..rng.random_range(1..=4) {
            let name = format!("once-{number}-{index}");
            let pod = TestPod::new(&name).scheduler("muster").request("cpu", "700m").request("memory", "1Gi");
            create(stack, "web", pod.annotation(DEMO_COMPLETE_AFTER, "20s").build()).await;
            wanted.once.insert(name);
        }
    } else {
        let name = format!("g{number}");
        let job = TestJob::new(&name, MEMBERS).request("cpu", "7").pod_annotation("muster.dev/gang", &name);
        submit(&stack.admin().unwrap(), "ml", job.label("app", &name).build()).await;
        wanted.gangs.insert(name);
    }
}

/// What came of one run.
#[derive(Clone, Copy, Debug, Default)]
struct Outcome {
    taken: u32,
    places: u32,
    nodes: usize,
    in_vain: usize,
}

async fn life(seed: u64) -> Option<Outcome> {
    let pool = general(&["us-east-1a"], &json!({"nodes": 60}), "30s");
    let stack = provisioning_with(&hosts(60, 60), &pool, &json!({})).await?;
    let view = View::follow(&stack.admin().unwrap());
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let mut wanted = Wanted::default();
    for number in 0..STEPS {
        step(&stack, &view, &mut wanted, &mut rng, number).await;
        if rng.random_range(0..2) == 0 {
            settled(&stack, &view, &wanted).await;
        }
    }
    settled(&stack, &view, &wanted).await;
    let (taken, places, elsewhere) = view.planned();
    let (longest, nodes, in_vain) = (view.longest(), view.nodes(), view.in_vain());
    eprintln!(
        "seed {seed}: {taken} of {places} pods where they were planned, {:.1} s waited at most, {} of {nodes} nodes in vain \
         {in_vain:?}; elsewhere {elsewhere:?}",
        longest.as_secs_f32(),
        in_vain.len(),
    );
    assert!(longest <= LONGEST, "seed {seed}: a pod waited for {longest:?}\n{}", stack.cluster.report(60));
    for name in wanted.deployments.keys() {
        scale(&stack, name, 0).await;
    }
    for name in &wanted.gangs {
        delete_job(&stack, name).await;
    }
    everything_is_terminated(&stack).await;
    no_instance_is_left(&stack).await;
    invariants_hold(&stack).await;
    no_errors(&stack);
    Some(Outcome { taken, places, nodes, in_vain: in_vain.len() })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whatever_comes_and_goes_everybody_is_served_in_time_and_hardly_a_node_is_launched_in_vain() {
    let given = std::env::var("MUSTER_SEED").ok().and_then(|seed| seed.parse::<u64>().ok());
    let many = std::env::var_os("MUSTER_SOAK").is_some();
    let seeds = match given {
        Some(seed) => seed..seed + 1,
        None if many => 0..10,
        None => 1..2,
    };
    let mut all = Outcome::default();
    for seed in seeds {
        let Some(Outcome { taken, places, nodes, in_vain }) = life(seed).await else { return };
        all.taken += taken;
        all.places += places;
        all.nodes += nodes;
        all.in_vain += in_vain;
    }
    assert!(all.places > 10, "{all:?}");
    if many {
        assert!(100 * all.taken >= 99 * all.places, "{all:?}");
        assert!(200 * all.in_vain <= all.nodes, "{all:?}");
    }
    eprintln!("{all:?}");
}
