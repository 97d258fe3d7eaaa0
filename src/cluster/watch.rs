//! One watch per kind, all feeding the one task that owns the store.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::{Namespace, Node, PersistentVolume, PersistentVolumeClaim, Pod};
use k8s_openapi::api::storage::v1::{CSINode, StorageClass};
use kube::api::ObjectMeta;
use kube::runtime::watcher::Event;
use kube::{Client, Resource, ResourceExt};
use muster_api::conventions::Kind;
use muster_api::convert;
use muster_api::crd::{EC2NodeClass, Gang, NodeBatch, NodePool, ProvisioningRequest};
use serde::{Deserialize, Deserializer};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use super::connection::watching;
use super::contact::Contacts;
use super::current::{Reached, Versions};
use super::follow::{Change, watch};
use super::served::{resources, until_gone, until_served};
use super::store::{Store, object_key};
use super::{dra, owners};
use crate::progress::Beat;

/// What decides where the volumes of pods can be reached.
const VOLUME_KINDS: [&str; 4] = ["persistentvolumeclaims", "persistentvolumes", "storageclasses", "csinodes"];

/// Group version and plural of ProvisioningRequests.
const REQUESTS: (&str, &str) = ("autoscaling.x-k8s.io/v1", "provisioningrequests");

/// Kinds watched.
#[derive(Clone, Debug, Default)]
pub struct WatchOptions {
    /// The cluster has `provisioningrequests.autoscaling.x-k8s.io`: their first list is waited for. Where it has not, they are watched
    /// once it has.
    pub provisioning_requests: bool,
}

impl WatchOptions {
    /// By what the cluster serves now.
    ///
    /// Errors: the API server's.
    pub async fn of(client: &Client) -> anyhow::Result<Self> {
        let (group_version, plural) = REQUESTS;
        let served = resources(client, group_version).await.context("ask the API server what it serves")?;
        Ok(Self { provisioning_requests: served.iter().any(|name| name == plural) })
    }

    /// Names of the kinds whose first list must have arrived before anything is decided. Those of owners and groups are
    /// awaited beside them, each until it is listed, or turns out not to be served, or not to be listed.
    #[must_use]
    pub fn kinds(&self) -> Vec<&'static str> {
        let mut kinds =
            vec!["nodes", "pods", "namespaces", "daemonsets", "gangs", "nodebatches", "nodepools", "ec2nodeclasses"];
        kinds.extend(VOLUME_KINDS);
        if self.provisioning_requests {
            kinds.push(REQUESTS.1);
        }
        kinds
    }
}

/// Changes applied before a state is published.
const BURST: usize = 512;
/// Without a change the task that owns the store shows after this that it lives.
const QUIET: Duration = Duration::from_secs(10);
/// A state is published at most this often: a burst of changes costs one.
const MIN_INTERVAL: Duration = Duration::from_millis(5);

/// Runs all watches and the store until cancelled. Ends early only if a watch task dies, which is a bug.
///
/// The watches have a client of their own, made from `config`: what passes through it is noted as contact.
pub async fn run(
    config: kube::Config,
    contacts: Arc<Contacts>,
    mut store: Store,
    beat: Beat,
    cancel: CancellationToken,
) -> anyhow::Result<()> {
    let client = watching(config, &contacts)?;
    let reopen = u32::try_from(contacts.reopen().as_secs()).unwrap_or(u32::MAX).clamp(1, 290);
    let Some((sender, mut receiver)) = store.take_channel() else {
        anyhow::bail!("the store is already being fed");
    };
    let mut watches = tokio::task::JoinSet::new();
    watches.spawn(watch::<Node>(client.clone(), "nodes", reopen, sender.clone(), Change::Node));
    watches.spawn(pods(client.clone(), reopen, sender.clone()));
    watches.spawn(watch::<Namespace>(client.clone(), "namespaces", reopen, sender.clone(), Change::Namespace));
    let [claims, volumes, storage_classes, csi_nodes] = VOLUME_KINDS;
    watches.spawn(watch::<PersistentVolumeClaim>(client.clone(), claims, reopen, sender.clone(), Change::Claim));
    watches.spawn(watch::<PersistentVolume>(client.clone(), volumes, reopen, sender.clone(), Change::Volume));
    watches.spawn(watch::<StorageClass>(client.clone(), storage_classes, reopen, sender.clone(), Change::StorageClass));
    watches.spawn(watch::<CSINode>(client.clone(), csi_nodes, reopen, sender.clone(), Change::CsiNode));
    watches.spawn(watch::<DaemonSet>(client.clone(), "daemonsets", reopen, sender.clone(), Change::DaemonSet));
    watches.spawn(owners::run(client.clone(), Arc::clone(&contacts), reopen, sender.clone()));
    store.awaits(&dra::KINDS);
    watches.spawn(dra::run(client.clone(), reopen, sender.clone()));
    watches.spawn(watch::<Gang>(client.clone(), "gangs", reopen, sender.clone(), Change::Gang));
    watches.spawn(watch::<NodeBatch>(client.clone(), "nodebatches", reopen, sender.clone(), Change::Batch));
    watches.spawn(watch::<NodePool>(client.clone(), "nodepools", reopen, sender.clone(), Change::Pool));
    watches.spawn(watch::<EC2NodeClass>(client.clone(), "ec2nodeclasses", reopen, sender.clone(), Change::Class));
    watches.spawn(requests(client, Arc::clone(&contacts), reopen, sender));
    let (started, mut listed) = (Instant::now(), false);
    let mut relists = Relists::default();
    let mut changes = Vec::with_capacity(BURST);
    loop {
        tokio::select! {
            () = cancel.cancelled() => return Ok(()),
            () = tokio::time::sleep(QUIET) => {}
            ended = watches.join_next() => {
                anyhow::bail!("a watch ended: {ended:?}");
            }
            count = receiver.recv_many(&mut changes, BURST) => {
                if count == 0 {
                    anyhow::bail!("all watches ended");
                }
                for change in changes.drain(..) {
                    relists.apply(&mut store, change);
                }
                let began = Instant::now();
                store.publish();
                contacts.reach(relists.reached);
                if !listed && store.is_synced() {
                    listed = true;
                    info!(milliseconds = started.elapsed().as_millis(), "every kind was listed: ready");
                }
                // What a state costs grows with the cluster: at most a third of the time goes there.
                tokio::time::sleep(MIN_INTERVAL.max(began.elapsed() * 2)).await;
            }
        }
        beat.beat();
    }
}

/// ProvisioningRequests, while their definition is there: it comes and goes with Kueue or Cluster Autoscaler.
async fn requests(client: Client, contacts: Arc<Contacts>, reopen: u32, sender: mpsc::Sender<Change>) {
    let (group_version, plural) = REQUESTS;
    while until_served(&client, group_version, plural, &sender, &[]).await {
        info!(group_version, "the cluster serves ProvisioningRequests: watched");
        contacts.count(plural, true);
        tokio::select! {
            () = watch::<ProvisioningRequest>(client.clone(), plural, reopen, sender.clone(), Change::Request) => return,
            listens = until_gone(&client, group_version, plural, &sender) => if !listens { return },
        }
        warn!(group_version, "the cluster serves no ProvisioningRequests any more: those there were are gone");
        contacts.count(plural, false);
        for event in [Event::Init, Event::InitDone] {
            if sender.send(Change::Request(event)).await.is_err() {
                return;
            }
        }
    }
}

/// Pods; with their scheduling groups as soon as the cluster serves such groups.
async fn pods(client: Client, reopen: u32, sender: mpsc::Sender<Change>) {
    if !owners::is_served(&client, Kind::NativePodGroup).await {
        tokio::select! {
            () = watch::<Pod>(client.clone(), "pods", reopen, sender.clone(), Change::Pod) => return,
            () = owners::until_served(&client, Kind::NativePodGroup) => {}
        }
        info!("the cluster serves groups of its own by now: pods are read again, with their groups");
    }
    let grouped = watch::<GroupedPod>(client, "pods", reopen, sender, |event| {
        Change::Pod(match event {
            Event::Init => Event::Init,
            Event::InitApply(pod) => Event::InitApply(pod.0),
            Event::InitDone => Event::InitDone,
            Event::Apply(pod) => Event::Apply(pod.0),
            Event::Delete(pod) => Event::Delete(pod.0),
        })
    });
    Box::pin(grouped).await;
}

/// A pod with its scheduling group, which the types of older Kubernetes exclude. Reading one costs twice as much, so it is
/// done only where such groups exist.
#[derive(Clone, Debug)]
struct GroupedPod(Pod);

impl<'de> Deserialize<'de> for GroupedPod {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let pod = convert::keep_scheduling_group(serde_json::Value::deserialize(deserializer)?);
        Pod::deserialize(pod).map(Self).map_err(serde::de::Error::custom)
    }
}

impl Resource for GroupedPod {
    type DynamicType = ();
    type Scope = <Pod as Resource>::Scope;

    fn kind((): &()) -> Cow<'_, str> {
        <Pod as Resource>::kind(&())
    }

    fn group((): &()) -> Cow<'_, str> {
        <Pod as Resource>::group(&())
    }

    fn version((): &()) -> Cow<'_, str> {
        <Pod as Resource>::version(&())
    }

    fn plural((): &()) -> Cow<'_, str> {
        <Pod as Resource>::plural(&())
    }

    fn meta(&self) -> &ObjectMeta {
        &self.0.metadata
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.0.metadata
    }
}

/// Names seen since a list began, per kind: what is not among them when it ends is gone.
#[derive(Debug, Default)]
struct Relists {
    /// How far the watches have come whose kinds decisions stand on.
    reached: Versions,
    of_nodes: Reached,
    of_pods: Reached,
    of_gangs: Reached,
    of_batches: Reached,
    of_pools: Reached,
    nodes: BTreeSet<String>,
    pods: BTreeSet<String>,
    namespaces: BTreeSet<String>,
    claims: BTreeSet<muster_core::model::names::ObjectKey>,
    volumes: BTreeSet<String>,
    storage_classes: BTreeSet<String>,
    csi_nodes: BTreeSet<String>,
    device_classes: BTreeSet<String>,
    slices: BTreeSet<String>,
    device_claims: BTreeSet<muster_core::model::names::ObjectKey>,
    claim_templates: BTreeSet<muster_core::model::names::ObjectKey>,
    daemon_sets: BTreeSet<String>,
    objects: BTreeMap<Kind, BTreeSet<String>>,
    gangs: BTreeSet<muster_core::model::names::ObjectKey>,
    batches: BTreeSet<String>,
    pools: BTreeSet<String>,
    classes: BTreeSet<String>,
    requests: BTreeSet<muster_core::model::names::ObjectKey>,
}

impl Relists {
    fn apply(&mut self, store: &mut Store, change: Change) {
        match &change {
            Change::Node(event) => self.reached.nodes = self.of_nodes.event(event),
            Change::Pod(event) => self.reached.pods = self.of_pods.event(event),
            Change::Gang(event) => self.reached.gangs = self.of_gangs.event(event),
            Change::Batch(event) => self.reached.batches = self.of_batches.event(event),
            Change::Pool(event) => self.reached.pools = self.of_pools.event(event),
            _ => {}
        }
        match change {
            Change::Node(event) => relist(event, &mut self.nodes, ResourceExt::name_any, |did| match did {
                Did::Seen(node) => store.apply_node(&node),
                Did::Gone(node) => store.delete_node(&node.name_any()),
                Did::Listed(listed) => {
                    store.retain_nodes(listed);
                    store.synced("nodes");
                }
            }),
            Change::Pod(event) => relist(event, &mut self.pods, uid_of, |did| match did {
                Did::Seen(pod) => store.apply_pod(pod),
                Did::Gone(pod) => store.delete_pod(&uid_of(&pod)),
                Did::Listed(listed) => {
                    store.retain_pods(listed);
                    store.synced("pods");
                }
            }),
            Change::Namespace(event) => relist(event, &mut self.namespaces, ResourceExt::name_any, |did| match did {
                Did::Seen(namespace) => store.apply_namespace(&namespace),
                Did::Gone(namespace) => store.delete_namespace(&namespace.name_any()),
                Did::Listed(listed) => {
                    store.retain_namespaces(listed);
                    store.synced("namespaces");
                }
            }),
            Change::Claim(event) => relist(event, &mut self.claims, object_key, |did| match did {
                Did::Seen(claim) => store.volumes().apply_claim(&claim),
                Did::Gone(claim) => store.volumes().delete_claim(&object_key(&claim)),
                Did::Listed(listed) => {
                    store.volumes().retain_claims(listed);
                    store.synced("persistentvolumeclaims");
                }
            }),
            Change::Volume(event) => relist(event, &mut self.volumes, ResourceExt::name_any, |did| match did {
                Did::Seen(volume) => store.volumes().apply_volume(&volume),
                Did::Gone(volume) => store.volumes().delete_volume(&volume.name_any()),
                Did::Listed(listed) => {
                    store.volumes().retain_volumes(listed);
                    store.synced("persistentvolumes");
                }
            }),
            Change::StorageClass(event) => {
                relist(event, &mut self.storage_classes, ResourceExt::name_any, |did| match did {
                    Did::Seen(class) => store.volumes().apply_class(&class),
                    Did::Gone(class) => store.volumes().delete_class(&class.name_any()),
                    Did::Listed(listed) => {
                        store.volumes().retain_classes(listed);
                        store.synced("storageclasses");
                    }
                })
            }
            Change::CsiNode(event) => relist(event, &mut self.csi_nodes, ResourceExt::name_any, |did| match did {
                Did::Seen(node) => store.volumes().apply_limits(&node),
                Did::Gone(node) => store.volumes().delete_limits(&node.name_any()),
                Did::Listed(listed) => {
                    store.volumes().retain_limits(listed);
                    store.synced("csinodes");
                }
            }),
            Change::DeviceClass(event) => {
                relist(event, &mut self.device_classes, ResourceExt::name_any, |did| match did {
                    Did::Seen(class) => store.devices().apply_class(&class),
                    Did::Gone(class) => store.devices().delete_class(&class.name_any()),
                    Did::Listed(listed) => {
                        store.devices().retain_classes(listed);
                        store.synced("deviceclasses");
                    }
                })
            }
            Change::ResourceSlice(event) => relist(event, &mut self.slices, ResourceExt::name_any, |did| match did {
                Did::Seen(slice) => store.devices().apply_slice(&slice),
                Did::Gone(slice) => store.devices().delete_slice(&slice.name_any()),
                Did::Listed(listed) => {
                    store.devices().retain_slices(listed);
                    store.synced("resourceslices");
                }
            }),
            Change::ResourceClaim(event) => relist(event, &mut self.device_claims, object_key, |did| match did {
                Did::Seen(claim) => store.devices().apply_claim(&claim),
                Did::Gone(claim) => store.devices().delete_claim(&object_key(&claim)),
                Did::Listed(listed) => {
                    store.devices().retain_claims(listed);
                    store.synced("resourceclaims");
                }
            }),
            Change::ClaimTemplate(event) => relist(event, &mut self.claim_templates, object_key, |did| match did {
                Did::Seen(template) => store.devices().apply_template(&template),
                Did::Gone(template) => store.devices().delete_template(&object_key(&template)),
                Did::Listed(listed) => {
                    store.devices().retain_templates(listed);
                    store.synced("resourceclaimtemplates");
                }
            }),
            Change::Unawaited(kind) => store.synced(kind),
            Change::DaemonSet(event) => relist(event, &mut self.daemon_sets, uid_of, |did| match did {
                Did::Seen(set) => store.apply_daemon_set(&set),
                Did::Gone(set) => store.delete_daemon_set(&uid_of(&set)),
                Did::Listed(listed) => {
                    store.retain_daemon_sets(listed);
                    store.synced("daemonsets");
                }
            }),
            Change::Object(kind, event) => {
                relist(event, self.objects.entry(kind).or_default(), uid_of, |did| match did {
                    Did::Seen(object) => store.apply_object(owners::read(kind, object)),
                    Did::Gone(object) => store.delete_object(&uid_of(&object)),
                    Did::Listed(listed) => store.retain_objects(kind, listed),
                })
            }
            Change::Unserved(kind) => store.unserved(kind),
            Change::Unlisted(kind, why) => store.unlisted(kind, &why),
            Change::Heard(kind) => store.unserved(kind),
            Change::Gang(event) => relist(event, &mut self.gangs, object_key, |did| match did {
                Did::Seen(gang) => store.apply_gang(gang),
                Did::Gone(gang) => {
                    store.delete_gang(&object_key(&gang), gang.metadata.uid.as_deref().unwrap_or_default())
                }
                Did::Listed(listed) => {
                    store.retain_gangs(listed);
                    store.synced("gangs");
                }
            }),
            Change::Written(gang) => store.apply_gang(*gang),
            Change::Batch(event) => relist(event, &mut self.batches, ResourceExt::name_any, |did| match did {
                Did::Seen(batch) => store.apply_batch(batch),
                Did::Gone(batch) => store.delete_batch(&batch.name_any()),
                Did::Listed(listed) => {
                    store.retain_batches(listed);
                    store.synced("nodebatches");
                }
            }),
            Change::Pool(event) => relist(event, &mut self.pools, ResourceExt::name_any, |did| match did {
                Did::Seen(pool) => store.apply_pool(pool),
                Did::Gone(pool) => store.delete_pool(&pool.name_any()),
                Did::Listed(listed) => {
                    store.retain_pools(listed);
                    store.synced("nodepools");
                }
            }),
            Change::Class(event) => relist(event, &mut self.classes, ResourceExt::name_any, |did| match did {
                Did::Seen(class) => store.apply_class(class),
                Did::Gone(class) => store.delete_class(&class.name_any()),
                Did::Listed(listed) => {
                    store.retain_classes(listed);
                    store.synced("ec2nodeclasses");
                }
            }),
            Change::Request(event) => relist(event, &mut self.requests, object_key, |did| match did {
                Did::Seen(request) => store.apply_request(request),
                Did::Gone(request) => store.delete_request(&object_key(&request)),
                Did::Listed(listed) => {
                    store.retain_requests(listed);
                    store.synced(REQUESTS.1);
                }
            }),
        }
    }
}

/// What an event of a watch came to.
enum Did<'a, K, Key> {
    /// The object is there.
    Seen(K),
    /// It is gone.
    Gone(K),
    /// Every object was listed: what is not among these is gone.
    Listed(&'a BTreeSet<Key>),
}

/// Takes account of the list that is under way.
fn relist<K, Key: Ord>(
    event: Event<K>,
    listed: &mut BTreeSet<Key>,
    key: impl Fn(&K) -> Key,
    did: impl FnOnce(Did<'_, K, Key>),
) {
    match event {
        Event::Init => listed.clear(),
        Event::InitApply(object) => {
            listed.insert(key(&object));
            did(Did::Seen(object));
        }
        Event::InitDone => did(Did::Listed(listed)),
        Event::Apply(object) => did(Did::Seen(object)),
        Event::Delete(object) => did(Did::Gone(object)),
    }
}

fn uid_of<K: ResourceExt>(object: &K) -> String {
    object.uid().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use axum::Router;
    use axum::body::Body;
    use axum::extract::State;
    use axum::http::{Request, Response};

    use super::*;

    /// Answers lists, and takes watches without a word.
    async fn silent(State(watches): State<mpsc::UnboundedSender<()>>, request: Request<Body>) -> Response<Body> {
        if request.uri().query().is_some_and(|query| query.contains("watch=true")) {
            let _ = watches.send(());
            return std::future::pending().await;
        }
        let list = r#"{"kind": "NodeList", "apiVersion": "v1", "metadata": {"resourceVersion": "1"}, "items": []}"#;
        Response::builder().header("content-type", "application/json").body(Body::from(list)).unwrap()
    }

    #[tokio::test]
    async fn a_watch_on_a_dead_connection_is_opened_again_on_another() {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let (opened, mut watches) = mpsc::unbounded_channel();
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let config = kube::Config::new(format!("http://{}", listener.local_addr().unwrap()).parse().unwrap());
        let router = Router::new().fallback(silent).with_state(opened);
        tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        let contacts = Arc::new(Contacts::new(&["nodes"], &[], Duration::from_millis(500)));
        let (sender, _receiver) = mpsc::channel(super::super::follow::QUEUE);
        tokio::spawn(watch::<Node>(watching(config, &contacts).unwrap(), "nodes", 290, sender, Change::Node));
        for _ in 0..2 {
            watches.recv().await.expect("the watch is opened, and again");
        }
    }
}
