//! How far each watch has come, and whether that is as far as now.
//!
//! Watches of several kinds do not come at one speed. Who has just taken the lease may see a Gang as it is and its pods, or the
//! Nodes of a NodeBatch, as they were: whoever decides on that evicts a gang that lacks nothing, or replaces machines that run. The
//! version that a status is written with protects the object that is written, and none that the decision stands on.

use std::fmt::Debug;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::ListParams;
use kube::runtime::watcher::Event;
use kube::{Api, Client, Resource, ResourceExt};
use muster_api::crd::{Gang, NodeBatch, NodePool};
use serde::de::DeserializeOwned;
use tokio::time::Instant;
use tracing::warn;

use super::Cluster;

/// How long it may take until what was listed is seen before it is listed again: the newest may be gone. Twice as long each time, since
/// whoever lags because much happens lags more the more is listed.
const SEEN: Duration = Duration::from_secs(10);
/// … up to this.
const SEEN_AT_MOST: Duration = Duration::from_mins(2);
/// … after this.
const AGAIN: Duration = Duration::from_secs(1);
/// That nothing is decided is reported this often.
const REPORT: Duration = Duration::from_mins(1);
/// Objects asked for at once.
const PAGE: u32 = 1_000;

/// The newest resource version of each kind that decisions stand on: everything that was written up to it is meant. The API server
/// counts versions of all kinds in one order, and a watch brings those of its kind in that order (KEP-5504).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Versions {
    /// Of Nodes.
    pub nodes: u64,
    /// Of pods.
    pub pods: u64,
    /// Of Gangs.
    pub gangs: u64,
    /// Of NodeBatches.
    pub batches: u64,
    /// Of NodePools: what their status says of launches in vain keeps others from the same.
    pub pools: u64,
}

impl Versions {
    /// Whether each is as new as the other's, or newer.
    #[must_use]
    pub fn covers(&self, other: &Self) -> bool {
        self.nodes >= other.nodes
            && self.pods >= other.pods
            && self.gangs >= other.gangs
            && self.batches >= other.batches
            && self.pools >= other.pools
    }

    /// The lower of each. What was there before both were listed and is there still is no newer than either.
    fn or_less(&self, other: &Self) -> Self {
        Self {
            nodes: self.nodes.min(other.nodes),
            pods: self.pods.min(other.pods),
            gangs: self.gangs.min(other.gangs),
            batches: self.batches.min(other.batches),
            pools: self.pools.min(other.pools),
        }
    }
}

/// The version of an object; `None` where it says none.
pub(crate) fn version(object: &impl ResourceExt) -> Option<u64> {
    object.resource_version().and_then(|version| version.parse().ok())
}

/// What the events of one watch add up to.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Reached {
    /// Everything up to it was seen.
    seen: u64,
    /// The newest of a list that is under way, whose objects come in the order of their names.
    listed: u64,
}

impl Reached {
    /// Takes account of an event, and says how far the watch has come with it.
    pub(super) fn event<K: ResourceExt>(&mut self, event: &Event<K>) -> u64 {
        match event {
            Event::Init => self.listed = 0,
            Event::InitApply(object) => self.listed = self.listed.max(version(object).unwrap_or(0)),
            // Lower than before where the newest is gone, or etcd was restored from a backup.
            Event::InitDone => self.seen = self.listed,
            Event::Apply(object) | Event::Delete(object) => self.seen = self.seen.max(version(object).unwrap_or(0)),
        }
        self.seen
    }
}

/// Waits until the watches have shown Nodes, pods, Gangs, NodeBatches and NodePools as they are now, for as long as that takes.
pub async fn caught_up(client: &Client, cluster: &Cluster) {
    caught_up_at(client, cluster, SEEN, AGAIN).await;
}

/// … at another pace than that of the product, where a test is not to wait.
async fn caught_up_at(client: &Client, cluster: &Cluster, mut patience: Duration, again: Duration) {
    let mut reached = cluster.contacts().reached();
    let mut asked: Option<Versions> = None;
    let mut reported: Option<Instant> = None;
    loop {
        // A large cluster is listed for as long as that takes: each request ends by itself.
        let failed = match newest(client).await {
            Ok(newest) => {
                // What came since is none of what was there at the start: it need not be seen.
                let least = asked.map_or(newest, |asked| asked.or_less(&newest));
                asked = Some(least);
                let shown = reached.wait_for(|reached| reached.covers(&least));
                // A cluster that is not followed any more ends the process.
                if tokio::time::timeout(patience, shown).await.is_ok() {
                    return;
                }
                patience = (patience * 2).min(SEEN_AT_MOST);
                None
            }
            Err(error) => Some(error),
        };
        if reported.is_none_or(|at| at.elapsed() >= REPORT) {
            reported = Some(Instant::now());
            match failed {
                Some(error) => warn!(
                    %error,
                    "Nodes, pods, Gangs, NodeBatches or NodePools cannot be listed; nothing is decided until they are"
                ),
                None => warn!(
                    "the watches do not show all Nodes, pods, Gangs, NodeBatches and NodePools; nothing is decided until they do"
                ),
            }
        }
        tokio::time::sleep(again).await;
    }
}

/// The newest version of each kind, by the API server and not by its cache.
async fn newest(client: &Client) -> Result<Versions, kube::Error> {
    Ok(Versions {
        nodes: newest_of::<Node>(client).await?,
        pods: newest_of::<Pod>(client).await?,
        gangs: newest_of::<Gang>(client).await?,
        batches: newest_of::<NodeBatch>(client).await?,
        pools: newest_of::<NodePool>(client).await?,
    })
}

async fn newest_of<K>(client: &Client) -> Result<u64, kube::Error>
where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned,
{
    let objects: Api<K> = Api::all(client.clone());
    // No resource version: the newest that there is. That of the list itself is no measure, since a watch on which nothing happens
    // is informed of it once a minute.
    let mut page = ListParams::default().limit(PAGE);
    let mut newest = 0;
    loop {
        let listed = objects.list_metadata(&page).await?;
        newest = listed.items.iter().filter_map(version).fold(newest, u64::max);
        match listed.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => page = page.continue_token(&token),
            None => return Ok(newest),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use std::convert::Infallible;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};

    use futures::FutureExt as _;
    use http::{Request, Response};
    use kube::client::Body;
    use serde_json::{Value, json};
    use tokio::sync::mpsc;

    use super::*;
    use crate::cluster::{Store, StoreOptions};

    fn node(version: u64) -> Node {
        serde_json::from_value(json!({"metadata": {"name": "n", "resourceVersion": version.to_string()}})).unwrap()
    }

    #[test]
    fn a_list_counts_once_it_is_complete_and_an_event_at_once() {
        let mut watch = Reached::default();
        assert_eq!(watch.event(&Event::<Node>::Init), 0);
        assert_eq!(watch.event(&Event::InitApply(node(9))), 0, "others of the list are yet to come");
        assert_eq!(watch.event(&Event::InitApply(node(4))), 0);
        assert_eq!(watch.event(&Event::<Node>::InitDone), 9);
        assert_eq!(watch.event(&Event::Apply(node(11))), 11);
        assert_eq!(watch.event(&Event::Delete(node(12))), 12, "a deletion has a version of its own");
        // A list that was taken again, in the middle of which newer things are not known yet.
        watch.event(&Event::<Node>::Init);
        assert_eq!(watch.event(&Event::InitApply(node(20))), 12);
        assert_eq!(watch.event(&Event::<Node>::InitDone), 20);
        // etcd was restored from a backup: what is written from now on has lower versions.
        watch.event(&Event::<Node>::Init);
        watch.event(&Event::InitApply(node(6)));
        assert_eq!(watch.event(&Event::<Node>::InitDone), 6);
    }

    #[test]
    fn who_is_behind_with_one_kind_alone_is_behind() {
        let asked = Versions { nodes: 5, pods: 6, gangs: 7, batches: 8, pools: 9 };
        assert!(asked.covers(&asked));
        assert!(Versions { nodes: 9, pods: 9, gangs: 9, batches: 9, pools: 9 }.covers(&asked));
        for behind in [
            Versions { nodes: 4, ..asked },
            Versions { pods: 5, ..asked },
            Versions { gangs: 6, ..asked },
            Versions { batches: 7, ..asked },
            Versions { pools: 8, ..asked },
        ] {
            assert!(!behind.covers(&asked), "{behind:?}");
        }
    }

    /// An API server with two pods to a page, the newest of version 30, and a NodeBatch of version 40 that goes after the first list;
    /// and what it is asked. It refuses to list what has `refused` in its path.
    fn serving(refused: &'static str) -> (Client, mpsc::UnboundedReceiver<String>) {
        let (sent, asked) = mpsc::unbounded_channel();
        let gone = AtomicBool::new(false);
        let service = tower::service_fn(move |request: Request<Body>| {
            let target = request.uri().to_string();
            let object = |name: &str, version: &str| json!({"metadata": {"name": name, "resourceVersion": version}});
            let (items, token): (Vec<Value>, &str) = match &target {
                target if target.contains("/pods") && !target.contains("continue=") => {
                    (vec![object("a", "12"), object("b", "30")], "more")
                }
                target if target.contains("/pods") => (vec![object("c", "29")], ""),
                target if target.contains("/nodebatches") && !gone.swap(true, Ordering::SeqCst) => {
                    (vec![object("w", "39"), object("x", "40")], "")
                }
                target if target.contains("/nodebatches") => (vec![object("w", "39")], ""),
                _ => (Vec::new(), ""),
            };
            let list = json!({
                "kind": "PartialObjectMetadataList", "apiVersion": "meta.k8s.io/v1",
                "metadata": {"resourceVersion": "99", "continue": token}, "items": items,
            });
            let refuses = !refused.is_empty() && target.contains(refused);
            let _ = sent.send(target);
            async move {
                let (code, body) = if refuses { (403, json!({"code": 403, "message": "no"})) } else { (200, list) };
                let answer = Response::builder().status(code).body(Body::from(body.to_string().into_bytes()));
                Ok::<_, Infallible>(answer.unwrap())
            }
        });
        (Client::new(service, "ns"), asked)
    }

    fn cluster() -> (Store, Cluster) {
        let options = StoreOptions {
            scheduler_names: Vec::new(),
            provisioner_scheduler_names: Vec::new(),
            accelerators: Vec::new(),
            max_age: Duration::from_secs(3600),
        };
        Store::new(options, &[], &[])
    }

    #[tokio::test]
    async fn watches_have_caught_up_once_each_has_come_as_far_as_the_newest_object_of_its_kind() {
        let (client, mut asked) = serving("");
        let (_store, cluster) = cluster();
        let contacts = Arc::clone(cluster.contacts());
        let mut all = std::pin::pin!(caught_up(&client, &cluster));
        // All pages of all kinds, none with a version that a cache may answer.
        for _ in 0..6 {
            let target = tokio::select! {
                () = &mut all => panic!("nothing was shown"),
                target = asked.recv() => target.unwrap(),
            };
            assert!(!target.contains("resourceVersion"), "{target}");
        }
        for behind in [
            Versions { pods: 30, batches: 39, ..Versions::default() },
            Versions { pods: 29, batches: 40, ..Versions::default() },
        ] {
            contacts.reach(behind);
            assert!(all.as_mut().now_or_never().is_none(), "{behind:?}");
        }
        contacts.reach(Versions { pods: 30, batches: 40, ..Versions::default() });
        all.await;
    }

    /// Another pace than that of the product.
    const SOON: Duration = Duration::from_millis(20);

    #[tokio::test]
    async fn the_newest_object_may_go_before_a_watch_has_shown_it() {
        let (client, _asked) = serving("");
        let (_store, cluster) = cluster();
        cluster.contacts().reach(Versions { pods: 30, batches: 39, ..Versions::default() });
        tokio::time::timeout(Duration::from_secs(60), caught_up_at(&client, &cluster, SOON, SOON)).await.unwrap();
    }

    #[test]
    fn what_comes_while_the_watches_lag_need_not_be_seen() {
        let earlier = Versions { nodes: 1, pods: 9, gangs: 3, batches: 4, pools: 9 };
        let later = Versions { nodes: 2, pods: 8, gangs: 3, batches: 9, pools: 5 };
        let least = Versions { nodes: 1, pods: 8, gangs: 3, batches: 4, pools: 5 };
        assert_eq!((earlier.or_less(&later), later.or_less(&earlier)), (least, least));
    }

    #[tokio::test]
    async fn nothing_has_caught_up_with_a_kind_that_cannot_be_listed() {
        let all = u64::MAX;
        for refused in ["/nodes?", "/pods", "/gangs", "/nodebatches", "/nodepools"] {
            let (client, mut asked) = serving(refused);
            let (_store, cluster) = cluster();
            cluster.contacts().reach(Versions { nodes: all, pods: all, gangs: all, batches: all, pools: all });
            let mut waits = std::pin::pin!(caught_up_at(&client, &cluster, SOON, SOON));
            let mut times = 0;
            while times < 3 {
                let target = tokio::select! {
                    () = &mut waits => panic!("{refused}"),
                    target = asked.recv() => target.unwrap(),
                };
                times += usize::from(target.contains(refused));
            }
        }
    }
}
