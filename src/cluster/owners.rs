//! Watches of owners and groups: kinds are probed at the start and again and again, so that one whose definition is
//! installed later is picked up, and one that is removed is let go.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use kube::api::{ApiResource, DynamicObject, GroupVersionKind};
use kube::{Api, Client};
use muster_api::conventions::{Kind, Object};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tracing::{debug, info};

use super::contact::Contacts;
use super::follow::{Change, News, PATIENCE, follow};
use super::served::{PROBE, resources};

/// Watches every kind that the cluster serves, until nobody listens any more.
pub(super) async fn run(client: Client, contacts: Arc<Contacts>, reopen: u32, sender: mpsc::Sender<Change>) {
    let mut tasks = JoinSet::new();
    let mut watched = BTreeMap::new();
    // Kinds of which it was reported that they are not served.
    let mut absent = BTreeSet::new();
    while !sender.is_closed() {
        let mut answers = not_served(&client, |kind| watched.contains_key(&kind)).await;
        for kind in Kind::ALL {
            match probe(&client, kind, &mut answers).await {
                Ok(Some(version)) => {
                    absent.remove(&kind);
                    watched.entry(kind).or_insert_with(|| {
                        let served = kind.served();
                        let gvk = GroupVersionKind::gvk(served.group, version, served.kind);
                        let resource = ApiResource::from_gvk_with_plural(&gvk, served.plural);
                        let api: Api<DynamicObject> = Api::all_with(client.clone(), &resource);
                        info!(kind = served.kind, group = served.group, version, "watched for gangs");
                        let sender = sender.clone();
                        let wrap = move |news| {
                            Some(match news {
                                News::Event(event) => Change::Object(kind, event),
                                News::Unlisted(why) => Change::Unlisted(kind, why),
                                News::Heard => Change::Heard(kind),
                            })
                        };
                        let contacts = Arc::clone(&contacts);
                        let silence = move || contacts.since(kind);
                        tasks.spawn(follow(api, served.plural, reopen, sender, wrap, (PATIENCE, silence)))
                    });
                }
                Ok(None) => {
                    if absent.insert(kind) && sender.send(Change::Unserved(kind)).await.is_err() {
                        return;
                    }
                    if let Some(task) = watched.remove(&kind) {
                        let served = kind.served();
                        info!(kind = served.kind, group = served.group, "no longer served");
                        task.abort();
                    }
                }
                Err(error) => {
                    debug!(kind = kind.served().kind, %error, "not probed, tried again");
                    let asked = watched.contains_key(&kind) || absent.contains(&kind);
                    let why = format!("the cluster does not tell whether it serves it: {error}");
                    if !asked && sender.send(Change::Unlisted(kind, why)).await.is_err() {
                        return;
                    }
                }
            }
        }
        // Ended tasks are those that were let go, and all of them once nobody listens.
        while tasks.try_join_next().is_some() {}
        tokio::select! {
            () = tokio::time::sleep(PROBE) => {}
            () = sender.closed() => {}
        }
    }
}

/// Whether the cluster serves a kind now.
pub(crate) async fn is_served(client: &Client, kind: Kind) -> bool {
    probe(client, kind, &mut Answers::new()).await.is_ok_and(|version| version.is_some())
}

/// Returns once the cluster serves a kind.
pub(super) async fn until_served(client: &Client, kind: Kind) {
    while !is_served(client, kind).await {
        tokio::time::sleep(PROBE).await;
    }
}

/// What a group version serves.
type Answers = BTreeMap<String, Vec<String>>;

/// The group versions that the cluster does not serve, by one request for all of them: most of the kinds are installed by hardly anybody.
/// None in which a kind is that `is_watched` is among them, nor is any if the cluster does not answer: they are asked for by themselves.
async fn not_served(client: &Client, is_watched: impl Fn(Kind) -> bool) -> Answers {
    let groups = match client.list_api_groups().await {
        Ok(list) => list.groups,
        Err(error) => {
            debug!(%error, "the groups of the cluster could not be listed");
            return Answers::new();
        }
    };
    let served: BTreeSet<&str> =
        groups.iter().flat_map(|group| &group.versions).map(|version| version.group_version.as_str()).collect();
    let group_versions = |kind: Kind| {
        let served = kind.served();
        served.versions.iter().map(move |version| format!("{}/{version}", served.group))
    };
    let watched: BTreeSet<String> =
        Kind::ALL.into_iter().filter(|kind| is_watched(*kind)).flat_map(group_versions).collect();
    let all = Kind::ALL.into_iter().flat_map(group_versions);
    let absent = all.filter(|of| !served.contains(of.as_str()) && !watched.contains(of));
    absent.map(|absent| (absent, Vec::new())).collect()
}

/// The best version in which the cluster serves a kind.
///
/// Errors: the API server's, other than that there is no such thing.
async fn probe(client: &Client, kind: Kind, answers: &mut Answers) -> Result<Option<&'static str>, kube::Error> {
    let served = kind.served();
    for &version in served.versions {
        let group_version = format!("{}/{version}", served.group);
        if !answers.contains_key(&group_version) {
            answers.insert(group_version.clone(), resources(client, &group_version).await?);
        }
        if answers.get(&group_version).is_some_and(|names| names.iter().any(|name| name == served.plural)) {
            return Ok(Some(version));
        }
    }
    Ok(None)
}

/// An object as conventions read it.
pub(super) fn read(kind: Kind, object: DynamicObject) -> Object {
    let DynamicObject { types, metadata, mut data } = object;
    let spec = data.get_mut("spec").map(serde_json::Value::take).unwrap_or_default();
    // The items of a list come without version and kind.
    let served = kind.served();
    let version = || format!("{}/{}", served.group, served.versions.first().copied().unwrap_or_default());
    let api_version = types.map(|types| types.api_version).filter(|version| !version.is_empty());
    Object { kind, api_version: Arc::from(api_version.unwrap_or_else(version)), metadata, spec }.slim()
}

#[cfg(test)]
mod tests {
    use http::{Request, Response};
    use kube::client::Body;

    use super::*;

    fn answering(status: u16, body: &'static str) -> Client {
        let service = tower::service_fn(move |request: Request<Body>| async move {
            let listed = request.uri().path() == "/apis";
            let answer = Response::builder().status(if listed { status } else { 404 });
            let answer = answer.body(Body::from(if listed { body } else { "{}" }.as_bytes().to_vec()));
            Ok::<_, std::convert::Infallible>(answer.expect("a constant answer is valid"))
        });
        Client::new(service, "ns")
    }

    const BATCH: &str = r#"{"kind":"APIGroupList","apiVersion":"v1","groups":[{"name":"batch","versions":
        [{"groupVersion":"batch/v1","version":"v1"}],"preferredVersion":{"groupVersion":"batch/v1","version":"v1"}}]}"#;

    #[tokio::test]
    async fn one_list_says_which_kinds_are_not_served_but_for_those_that_are_watched() {
        let jobset =
            |answers: &Answers| answers.keys().any(|group_version| group_version.starts_with("jobset.x-k8s.io/"));
        let absent = not_served(&answering(200, BATCH), |_| false).await;
        assert!(jobset(&absent) && absent.values().all(Vec::is_empty), "{absent:?}");
        assert!(!absent.contains_key("batch/v1"), "it is served: {absent:?}");
        let absent = not_served(&answering(200, BATCH), |kind| kind == Kind::PyTorchJob).await;
        assert!(jobset(&absent), "{absent:?}");
        let others =
            Kind::ALL.iter().filter(|kind| kind.served().group == "kubeflow.org" && kind.served().versions == ["v1"]);
        assert!(others.count() > 1, "kinds share a group version");
        assert!(!absent.contains_key("kubeflow.org/v1"), "a list without it ends no watch: {absent:?}");
        let silent = not_served(&answering(503, "{}"), |_| false).await;
        assert!(silent.is_empty(), "each is asked for by itself: {silent:?}");
    }
}
