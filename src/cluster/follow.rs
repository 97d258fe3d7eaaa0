//! One watch of one kind, which feeds its events into the queue of the store.

use std::fmt::Debug;
use std::time::Duration;

use futures::{StreamExt, TryStreamExt};
use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::{Namespace, Node, PersistentVolume, PersistentVolumeClaim, Pod};
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
use tokio::time::Instant;
use tracing::{debug, info, warn};

/// One change of the store.
#[expect(clippy::large_enum_variant, reason = "a change is moved once, from its watch into the store")]
#[derive(Debug)]
pub enum Change {
    /// A node event.
    Node(Event<Node>),
    /// A pod event.
    Pod(Event<Pod>),
    /// A Namespace event.
    Namespace(Event<Namespace>),
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
    /// A kind of owners or groups cannot be listed, or has not been heard from for long; why.
    Unlisted(Kind, String),
    /// A kind of owners or groups is heard from again.
    Heard(Kind),
    /// A Gang event.
    Gang(Event<Gang>),
    /// A Gang as it was answered to an own write. What others wrote before it may be yet to come.
    Written(Box<Gang>),
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

/// When a watch that fails after its list is given up.
#[derive(Clone, Copy, Debug)]
pub(super) struct Patience {
    /// One that has failed for so long is not one any more.
    lost: Duration,
    /// Between two looks at whether it is heard from again.
    again: Duration,
}

/// For all watches.
pub(super) const PATIENCE: Patience = Patience { lost: Duration::from_secs(30), again: Duration::from_secs(5) };

/// What a watch tells.
pub(super) enum News<K> {
    /// An event.
    Event(Event<K>),
    /// The first list could not be had so far, or nothing was heard for long since it was; why.
    Unlisted(String),
    /// It is heard from again.
    Heard,
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
        // Nothing is decided before it has come, nor once it is too old.
        News::Unlisted(_) | News::Heard => None,
    };
    follow(Api::<K>::all(client), kind, reopen, sender, wrap, (PATIENCE, || Some(Duration::ZERO))).await;
}

/// Feeds one watch into the queue, until nobody listens any more. `silence`: time since the kind was last heard from. A watch that
/// is quiet and one that is refused tell the same, nothing; an answer to its request tells them apart.
pub(super) async fn follow<K>(
    api: Api<K>,
    kind: &'static str,
    reopen: u32,
    sender: mpsc::Sender<Change>,
    wrap: impl Fn(News<K>) -> Option<Change>,
    (patience, silence): (Patience, impl Fn() -> Option<Duration>),
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
    // Since it failed after its first list: when to look whether it is lost, or heard from again, and why it failed.
    let mut doubt: Option<(Instant, String)> = None;
    let mut lost = false;
    let mut stream = start(api, watcher::Config::default().timeout(reopen))
        .default_backoff()
        .modify(|object| {
            object.meta_mut().managed_fields = None;
        })
        .boxed();
    loop {
        let look_at = doubt.as_ref().map_or_else(Instant::now, |(at, _)| *at);
        let next = tokio::select! {
            next = stream.try_next() => next,
            () = tokio::time::sleep_until(look_at), if doubt.is_some() => {
                let silent = silence().is_none_or(|silent| silent >= patience.lost);
                let news = match &doubt {
                    Some((_, why)) if silent && !lost => Some(News::Unlisted(why.clone())),
                    _ if lost && !silent => Some(News::Heard),
                    _ => None,
                };
                lost = silent;
                doubt = doubt.filter(|_| silent).map(|(_, why)| (look_at + patience.again, why));
                if let Some(news) = news && !tell(news).await {
                    return;
                }
                continue;
            }
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
                if listed {
                    let at = doubt.map_or_else(|| Instant::now() + patience.lost, |(at, _)| at);
                    doubt = Some((at, error.to_string()));
                } else {
                    stated = true;
                    if !tell(News::Unlisted(error.to_string())).await {
                        return;
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};

    use http::{Request, Response};
    use kube::api::{ApiResource, GroupVersionKind};
    use kube::client::Body;
    use tower::Layer as _;

    use super::super::contact::{ContactLayer, Contacts};
    use super::*;

    /// Lists nothing, and lets its watches be opened for as long as that is `allowed`.
    fn listing(allowed: &Arc<AtomicBool>, contacts: &Arc<Contacts>) -> Client {
        let allowed = Arc::clone(allowed);
        let service = tower::service_fn(move |request: Request<Body>| {
            let watch = request.uri().query().is_some_and(|query| query.contains("watch=true"));
            let allowed = allowed.load(Ordering::Relaxed);
            async move {
                if watch {
                    // Nothing happens while it is open.
                    let open = std::future::pending::<()>();
                    let _ = tokio::time::timeout(Duration::from_millis(20), open).await;
                }
                let (status, body) = match (allowed, watch) {
                    (false, _) => (
                        403,
                        r#"{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Forbidden","code":403,"message":"no"}"#,
                    ),
                    (true, true) => (200, ""),
                    (true, false) => (
                        200,
                        r#"{"kind":"JobSetList","apiVersion":"jobset.x-k8s.io/v1alpha2","metadata":{"resourceVersion":"1"},"items":[]}"#,
                    ),
                };
                let answer = Response::builder().status(status).body(Body::from(body.as_bytes().to_vec()));
                Ok::<_, std::convert::Infallible>(answer.expect("a constant answer is valid"))
            }
        });
        Client::new(ContactLayer(Arc::clone(contacts)).layer(service), "ns")
    }

    #[tokio::test]
    async fn a_watch_that_is_refused_after_its_list_is_reported_and_so_is_that_it_answers_again() {
        let kind = Kind::JobSet;
        let (allowed, contacts) =
            (Arc::new(AtomicBool::new(true)), Contacts::new(&[], &[kind], Duration::from_secs(150)));
        let contacts = Arc::new(contacts);
        let client = listing(&allowed, &contacts);
        let gvk = GroupVersionKind::gvk("jobset.x-k8s.io", "v1alpha2", "JobSet");
        let api: Api<DynamicObject> = Api::all_with(client, &ApiResource::from_gvk_with_plural(&gvk, "jobsets"));
        let (sender, mut changes) = mpsc::channel(16);
        let wrap = move |news| match news {
            News::Event(event) => Some(Change::Object(kind, event)),
            News::Unlisted(why) => Some(Change::Unlisted(kind, why)),
            News::Heard => Some(Change::Heard(kind)),
        };
        let heard = Arc::clone(&contacts);
        let patience = Patience { lost: Duration::from_millis(300), again: Duration::from_millis(20) };
        let watching = tokio::spawn(follow(api, "jobsets", 6, sender, wrap, (patience, move || heard.since(kind))));
        let mut next = async |of: fn(&Change) -> bool| loop {
            let change = changes.recv().await.expect("it is followed");
            match change {
                change if of(&change) => return change,
                Change::Object(..) => {}
                other => panic!("{other:?}"),
            }
        };
        next(|change| matches!(change, Change::Object(_, Event::InitDone))).await;
        for _ in 0..2 {
            allowed.store(false, Ordering::Relaxed);
            let lost = next(|change| matches!(change, Change::Unlisted(..))).await;
            let Change::Unlisted(Kind::JobSet, why) = lost else { panic!("{lost:?}") };
            assert!(why.contains("Forbidden"), "{why}");
            assert!(contacts.since(kind).is_some_and(|silent| silent >= patience.lost));
            allowed.store(true, Ordering::Relaxed);
            next(|change| matches!(change, Change::Heard(_))).await;
        }
        watching.abort();
    }
}
