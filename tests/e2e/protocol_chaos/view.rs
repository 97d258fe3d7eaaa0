//! What two watches see of pods and gangs: for faults that wait for their moment, and for what must hold at every one.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::StreamExt;
use k8s_openapi::api::core::v1::Pod;
use kube::api::ListParams;
use kube::runtime::watcher::Event;
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client, ResourceExt};
use muster_api::crd::Gang;
use tokio::sync::watch as channel;
use tokio::time::MissedTickBehavior;

use crate::support::{node_of, runs};

/// GPUs of a node.
const NODE: u32 = 8;
/// Time between two questions to the API server.
const BEAT: Duration = Duration::from_millis(100);
/// Annotation of pods: the run they are of.
pub(super) const RUN: &str = "example.com/run";

/// A member.
#[derive(Clone, Debug)]
pub(super) struct Member {
    pub(super) name: String,
    pub(super) gang: String,
    pub(super) node: Option<String>,
    pub(super) running: bool,
    /// Neither ended nor being deleted.
    pub(super) live: bool,
}

#[derive(Debug, Default)]
struct Inner {
    pods: BTreeMap<String, Member>,
    listed: BTreeMap<String, Member>,
    phases: BTreeMap<String, (String, Vec<String>)>,
    /// Answers of the API server, one every `BEAT` where it and this machine keep up. Nothing is bound or evicted while neither
    /// does, so time is counted in them.
    beats: u32,
    /// Gangs of which some members but not all are bound, since which of them.
    partial: BTreeMap<String, u32>,
    /// … and how long they may: from the commit to the last Binding, or from a loss to the eviction.
    allowed: Duration,
    longest: Duration,
    sizes: BTreeMap<String, usize>,
    wrong: Vec<String>,
    changes: u64,
}

/// The newest view. Clones share it.
#[derive(Clone, Debug)]
pub(super) struct View {
    inner: Arc<Mutex<Inner>>,
    version: channel::Sender<u64>,
}

impl View {
    /// Follows pods and Gangs of a namespace until the runtime ends. A gang may stand partly bound for as long as `allowed`.
    pub(super) fn follow(client: &Client, namespace: &str, allowed: Duration) -> Self {
        let inner = Inner { allowed, ..Inner::default() };
        let view = Self { inner: Arc::new(Mutex::new(inner)), version: channel::channel(0).0 };
        let (pods, gangs) =
            (Api::<Pod>::namespaced(client.clone(), namespace), Api::<Gang>::namespaced(client.clone(), namespace));
        let (seen, asked) = (view.clone(), pods.clone());
        tokio::spawn(async move {
            let mut beat = tokio::time::interval(BEAT);
            beat.set_missed_tick_behavior(MissedTickBehavior::Delay);
            loop {
                beat.tick().await;
                if asked.list_metadata(&ListParams::default().limit(1)).await.is_ok() {
                    seen.inner.lock().unwrap().beats += 1;
                }
            }
        });
        let seen = view.clone();
        tokio::spawn(async move {
            let mut stream = watcher(pods, watcher::Config::default()).default_backoff().boxed();
            while let Some(event) = stream.next().await {
                // The API server is killed now and then.
                if let Ok(event) = event {
                    seen.change(|inner| inner.pod(event));
                }
            }
        });
        let seen = view.clone();
        tokio::spawn(async move {
            let mut stream = watcher(gangs, watcher::Config::default()).default_backoff().applied_objects().boxed();
            while let Some(gang) = stream.next().await {
                if let Ok(gang) = gang {
                    seen.change(|inner| inner.gang(&gang));
                }
            }
        });
        view
    }

    fn change(&self, change: impl FnOnce(&mut Inner)) {
        let mut inner = self.inner.lock().unwrap();
        change(&mut inner);
        inner.changes += 1;
        let changes = inner.changes;
        drop(inner);
        self.version.send_replace(changes);
    }

    /// Waits until `found` finds something, at most for `patience`: what is waited for may never come.
    pub(super) async fn when<T>(&self, patience: Duration, found: impl Fn(&Self) -> Option<T>) -> Option<T> {
        let mut version = self.version.subscribe();
        let search = async {
            loop {
                if let Some(found) = found(self) {
                    return found;
                }
                if version.changed().await.is_err() {
                    std::future::pending::<()>().await;
                }
            }
        };
        tokio::time::timeout(patience, search).await.ok()
    }

    /// Phase and planned nodes of a gang.
    pub(super) fn gang(&self, job: &str) -> Option<(String, Vec<String>)> {
        self.inner.lock().unwrap().phases.get(job).cloned()
    }

    /// Live members of a gang.
    pub(super) fn members(&self, job: &str) -> Vec<Member> {
        let inner = self.inner.lock().unwrap();
        inner.pods.values().filter(|pod| pod.gang == job && pod.live).cloned().collect()
    }

    /// Members of a gang that run.
    pub(super) fn running(&self, job: &str) -> usize {
        self.members(job).iter().filter(|pod| pod.running).count()
    }

    /// Members of all gangs that are bound.
    pub(super) fn bound(&self) -> usize {
        let inner = self.inner.lock().unwrap();
        inner.pods.values().filter(|pod| pod.live && pod.node.is_some()).count()
    }

    /// Pods of all kinds.
    pub(super) fn pods(&self) -> usize {
        self.inner.lock().unwrap().pods.len()
    }

    /// What was wrong at any moment, as sentences.
    pub(super) fn wrong(&self) -> Vec<String> {
        let inner = self.inner.lock().unwrap();
        let uncounted = (inner.beats == 0).then(|| "the API server never answered: no time was counted".to_owned());
        inner.wrong.iter().cloned().chain(uncounted).collect()
    }

    /// One line about what was seen.
    pub(super) fn account(&self) -> String {
        let inner = self.inner.lock().unwrap();
        format!("no gang stood in part for longer than {:.1} s", inner.longest.as_secs_f64())
    }
}

impl Inner {
    fn pod(&mut self, event: Event<Pod>) {
        match event {
            Event::Init => self.listed.clear(),
            Event::InitApply(pod) => {
                if let Some((uid, member)) = member(&pod) {
                    self.listed.insert(uid, member);
                }
            }
            Event::InitDone => self.pods = std::mem::take(&mut self.listed),
            Event::Apply(pod) => {
                if let Some((uid, member)) = member(&pod) {
                    self.pods.insert(uid, member);
                }
            }
            Event::Delete(pod) => {
                self.pods.remove(&pod.uid().unwrap_or_default());
            }
        }
        self.judge();
    }

    fn gang(&mut self, gang: &Gang) {
        let name = gang.name_any();
        let Some((head, _)) = name.rsplit_once('-') else { return };
        // A group of a LeaderWorkerSet is a gang; each set has one.
        let group = gang.spec.source.convention == "leaderworkerset";
        let job = if group { head.strip_suffix("-0").unwrap_or(head) } else { head };
        let status = gang.status.clone().unwrap_or_default();
        let nodes = status.plan.map(|plan| plan.nodes).unwrap_or_default();
        self.sizes.insert(job.to_owned(), usize::try_from(gang.spec.min).unwrap());
        self.phases.insert(job.to_owned(), (status.phase, nodes));
    }

    /// What must hold at every moment.
    fn judge(&mut self) {
        let mut used: BTreeMap<&str, u32> = BTreeMap::new();
        let mut bound: BTreeMap<&str, usize> = BTreeMap::new();
        for pod in self.pods.values().filter(|pod| pod.live && !pod.gang.is_empty()) {
            if let Some(node) = &pod.node {
                *used.entry(node).or_default() += NODE;
                *bound.entry(&pod.gang).or_default() += 1;
            }
        }
        for (node, gpus) in used {
            if gpus > NODE {
                let on = self.pods.values().filter(|pod| pod.node.as_deref() == Some(node)).map(|pod| pod.name.clone());
                self.wrong.push(format!("{node} of {NODE} GPUs bears {}", on.collect::<Vec<_>>().join(", ")));
            }
        }
        let now = self.beats;
        let partial: Vec<String> = bound
            .into_iter()
            .filter(|(gang, count)| self.sizes.get(*gang).is_some_and(|size| count < size))
            .map(|(gang, _)| gang.to_owned())
            .collect();
        self.partial.retain(|gang, since| {
            let elapsed = BEAT * (now - *since);
            self.longest = self.longest.max(elapsed);
            if elapsed > self.allowed {
                self.wrong.push(format!("{gang} stood in part for {} s", elapsed.as_secs()));
            }
            partial.contains(gang)
        });
        for gang in partial {
            self.partial.entry(gang).or_insert(now);
        }
    }
}

fn member(pod: &Pod) -> Option<(String, Member)> {
    let ended = pod
        .status
        .as_ref()
        .and_then(|status| status.phase.as_deref())
        .is_some_and(|phase| matches!(phase, "Failed" | "Succeeded"));
    let member = Member {
        name: pod.name_any(),
        gang: pod.annotations().get(RUN).cloned().unwrap_or_default(),
        node: node_of(pod),
        running: runs(pod),
        live: !ended && pod.metadata.deletion_timestamp.is_none(),
    };
    Some((pod.uid()?, member))
}
