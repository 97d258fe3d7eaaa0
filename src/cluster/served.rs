//! Kinds that a cluster may come to serve later, as when Kueue is installed.

use std::time::Duration;

use kube::Client;
use tokio::sync::mpsc;
use tracing::debug;

use super::follow::Change;

/// Between two looks at what the cluster serves.
pub(super) const PROBE: Duration = Duration::from_secs(15);
/// The same after a look that failed.
const AGAIN: Duration = Duration::from_secs(2);

/// What the cluster serves of a group version, by plural; nothing if it does not know it.
///
/// Errors: the API server's.
pub(crate) async fn resources(client: &Client, group_version: &str) -> Result<Vec<String>, kube::Error> {
    match client.list_api_group_resources(group_version).await {
        Ok(list) => Ok(list.resources.into_iter().map(|resource| resource.name).collect()),
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(Vec::new()),
        Err(error) => Err(error),
    }
}

/// Returns once the cluster serves a kind; `false`: nobody listens any more. As long as it does not, nobody waits for the first list of
/// `awaited`.
pub(super) async fn until_served(
    client: &Client,
    group_version: &str,
    plural: &str,
    sender: &mpsc::Sender<Change>,
    awaited: &[&'static str],
) -> bool {
    loop {
        let pause = match resources(client, group_version).await {
            Ok(served) if served.iter().any(|name| name == plural) => return true,
            Ok(_) => PROBE,
            Err(error) => {
                debug!(group_version, plural, %error, "not probed, tried again");
                AGAIN
            }
        };
        if pause == PROBE {
            unawaited(awaited, sender).await;
        }
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            () = sender.closed() => return false,
        }
    }
}

/// Looks in a row that do not find a kind before it counts as removed.
const GONE: u32 = 3;

/// Returns once the cluster has stopped serving a kind, which removes every object of it; `false`: nobody listens any more.
pub(super) async fn until_gone(
    client: &Client,
    group_version: &str,
    plural: &str,
    sender: &mpsc::Sender<Change>,
) -> bool {
    let mut missing = 0;
    while missing < GONE {
        tokio::select! {
            () = tokio::time::sleep(PROBE) => {}
            () = sender.closed() => return false,
        }
        missing = match resources(client, group_version).await {
            Ok(served) if !served.iter().any(|name| name == plural) => missing + 1,
            // What cannot be asked says nothing.
            Ok(_) | Err(_) => 0,
        };
    }
    true
}

/// Nobody waits for the first lists of these kinds any more.
pub(super) async fn unawaited(kinds: &[&'static str], sender: &mpsc::Sender<Change>) {
    for kind in kinds {
        if sender.send(Change::Unawaited(kind)).await.is_err() {
            return;
        }
    }
}
