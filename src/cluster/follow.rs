//! One watch of one kind, which feeds its events into the queue of the store.

use std::fmt::Debug;
use std::time::Duration;

use futures::{StreamExt, TryStreamExt};
use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::{Node, PersistentVolume, PersistentVolumeClaim, Pod};
use k8s_openapi::api::resource::v1::{DeviceClass, ResourceClaim, ResourceClaimTemplate, ResourceSlice};
use k8s_openapi::api::storage::v1::{CSINode, StorageClass};
use kube::api::DynamicObject;
use kube::runtime::watcher::{self, Event};
use kube::runtime::{WatchStreamExt, watcher as start};
use kube::{Api, Client, Resource};
use muster_api::conventions::Kind;
use muster_api::crd::{EC2NodeClass, Gang, NodeBatch, NodePool, ProvisioningRequest};
use serde::de::DeserializeOwned;
use tokio::sync::mpsc;
use tracing::{debug, info, warn};

/// One change of the store.
#[expect(clippy::large_enum_variant, reason = "a change is moved once, from its watch into the store")]
#[derive(Debug)]
pub enum Change {
    /// A node event.
    Node(Event<Node>),
    /// A pod event.
    Pod(Event<Pod>),
    /// A PersistentVolumeClaim event.
    Claim(Event<PersistentVolumeClaim>),
    /// A PersistentVolume event.
    Volume(Event<PersistentVolume>),
    /// A StorageClass event.
    StorageClass(Event<StorageClass>),
    /// A CSINode event.
    CsiNode(Event<CSINode>),
    /// A DeviceClass event.
    DeviceClass(Event<DeviceClass>),
    /// A ResourceSlice event.
    ResourceSlice(Event<ResourceSlice>),
    /// A ResourceClaim event.
    ResourceClaim(Event<ResourceClaim>),
    /// A ResourceClaimTemplate event.
    ClaimTemplate(Event<ResourceClaimTemplate>),
    /// Nobody waits for the first list of a kind any more.
    Unawaited(&'static str),
    /// A DaemonSet event.
    DaemonSet(Event<DaemonSet>),
    /// An event of an owner or group.
    Object(Kind, Event<DynamicObject>),
    /// The cluster does not serve a kind of owners or groups.
    Unserved(Kind),
    /// A kind of owners or groups cannot be listed; why.
    Unlisted(Kind, String),
    /// A Gang event.
    Gang(Event<Gang>),
    /// A NodeBatch event.
    Batch(Event<NodeBatch>),
    /// A NodePool event.
    Pool(Event<NodePool>),
    /// An EC2NodeClass event.
    Class(Event<EC2NodeClass>),
    /// A ProvisioningRequest event.
    Request(Event<ProvisioningRequest>),
}

/// Events waiting to be applied; more make the watches wait.
pub(super) const QUEUE: usize = 4096;
/// A first list that has not come after this is one that cannot be had: nobody else waits for it.
const FIRST_LIST: Duration = Duration::from_secs(30);

/// What a watch tells.
pub(super) enum News<K> {
    /// An event.
    Event(Event<K>),
    /// The first list could not be had so far; why.
    Unlisted(String),
}

/// Feeds one watch of a kind that every cluster serves, or was found to serve.
pub(super) async fn watch<K>(
    client: Client,
    kind: &'static str,
    reopen: u32,
    sender: mpsc::Sender<Change>,
    wrap: fn(Event<K>) -> Change,
) where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + 'static,
{
    let wrap = |news| match news {
        News::Event(event) => Some(wrap(event)),
        // Nothing is decided before it has come.
        News::Unlisted(_) => None,
    };
    follow(Api::<K>::all(client), kind, reopen, sender, wrap).await;
}

/// Feeds one watch into the queue, until nobody listens any more.
pub(super) async fn follow<K>(
    api: Api<K>,
    kind: &'static str,
    reopen: u32,
    sender: mpsc::Sender<Change>,
    wrap: impl Fn(News<K>) -> Option<Change>,
) where
    K: Resource + Clone + Debug + DeserializeOwned + Send + 'static,
{
    let tell = async |news| match wrap(news) {
        Some(change) => sender.send(change).await.is_ok(),
        None => !sender.is_closed(),
    };
    let late = tokio::time::sleep(FIRST_LIST);
    tokio::pin!(late);
    // Whether the first list has come, or it has been reported that it has not.
    let (mut listed, mut stated) = (false, false);
    let mut stream = start(api, watcher::Config::default().timeout(reopen))
        .default_backoff()
        .modify(|object| {
            object.meta_mut().managed_fields = None;
        })
        .boxed();
    loop {
        let next = tokio::select! {
            next = stream.try_next() => next,
            () = &mut late, if !listed && !stated => {
                stated = true;
                if !tell(News::Unlisted(format!("no list within {} s", FIRST_LIST.as_secs()))).await {
                    return;
                }
                continue;
            }
        };
        match next {
            Ok(Some(event)) => {
                if let Event::InitDone = event {
                    info!(kind, "watch has delivered its list");
                    listed = true;
                }
                if !tell(News::Event(event)).await {
                    return;
                }
            }
            Ok(None) => return,
            Err(error) => {
                // The watcher backs off and starts again by itself; the state stays as it was.
                warn!(kind, error = %error, "watch failed and is started again");
                debug!(kind, ?error, "watch failed");
                if !listed {
                    stated = true;
                    if !tell(News::Unlisted(error.to_string())).await {
                        return;
                    }
                }
            }
        }
    }
}
