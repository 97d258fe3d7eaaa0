//! Kinds that a cluster may come to serve later, as when Kueue is installed.

use std::time::Duration;

use kube::Client;
use tokio::sync::mpsc;
use tracing::debug;

use super::follow::Change;

/// Between two looks at whether the cluster serves a kind.
const PROBE: Duration = Duration::from_secs(15);
/// The same after a look that failed.
const AGAIN: Duration = Duration::from_secs(2);

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
        let pause = match client.list_api_group_resources(group_version).await {
            Ok(list) if list.resources.iter().any(|resource| resource.name == plural) => return true,
            Ok(_) => PROBE,
            Err(kube::Error::Api(status)) if status.code == 404 => PROBE,
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

/// Nobody waits for the first lists of these kinds any more.
pub(super) async fn unawaited(kinds: &[&'static str], sender: &mpsc::Sender<Change>) {
    for kind in kinds {
        if sender.send(Change::Unawaited(kind)).await.is_err() {
            return;
        }
    }
}
