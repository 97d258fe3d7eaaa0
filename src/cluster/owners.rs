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
        let mut answers = BTreeMap::new();
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
