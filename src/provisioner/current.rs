//! Whether what this replica knows of NodeBatches is as new as the moment from which it leads.

use std::time::Duration;

use kube::api::ListParams;
use kube::{Api, ResourceExt};
use muster_api::crd::NodeBatch;
use tokio::sync::watch as channel;
use tracing::{debug, warn};

use super::Context;
use super::batch::worker::version;
use crate::cluster::State;
use crate::term::Term;

/// How long it may take to be listed and seen before it is listed again: some of it may be gone.
const SEEN: Duration = Duration::from_secs(10);
/// … after this.
const AGAIN: Duration = Duration::from_secs(1);

/// Waits until the watch has shown every NodeBatch as it was after a term began: what the lease holder of before wrote last takes of
/// limits and ceilings, and a watch may bring it late. Ends with the term, too; the answer is the term.
pub(super) async fn seen_since(context: &Context, mut leader: channel::Receiver<Option<Term>>, term: Term) -> Term {
    let ends = leader.wait_for(|now| *now != Some(term));
    tokio::select! {
        _ = ends => {}
        () = seen(context) => {}
    }
    term
}

async fn seen(context: &Context) {
    let mut changes = context.cluster.changes();
    let batches: Api<NodeBatch> = Api::all(context.client.clone());
    let mut failed = false;
    loop {
        match tokio::time::timeout(SEEN, shown(context, &batches, &mut changes)).await {
            Ok(Ok(())) => return,
            Ok(Err(error)) if failed => debug!(%error, "NodeBatches cannot be listed"),
            Ok(Err(error)) => {
                warn!(%error, "NodeBatches cannot be listed; nothing is launched until they are");
                failed = true;
            }
            Err(_late) => warn!(
                "NodeBatches are not listed, or the watch does not show all of them; nothing is launched until then"
            ),
        }
        tokio::time::sleep(AGAIN).await;
    }
}

async fn shown(
    context: &Context,
    batches: &Api<NodeBatch>,
    changes: &mut channel::Receiver<u64>,
) -> Result<(), kube::Error> {
    // No resource version: the newest that there is.
    let listed = batches.list_metadata(&ListParams::default()).await?;
    let listed: Vec<(String, Option<u64>)> =
        listed.into_iter().map(|batch| (batch.name_any(), version(&batch))).collect();
    loop {
        changes.borrow_and_update();
        // A cluster that is not followed any more ends the process.
        if shows(&context.cluster.load(), &listed) || changes.changed().await.is_err() {
            return Ok(());
        }
    }
}

/// Whether each is known at its version or at a newer one.
fn shows(state: &State, listed: &[(String, Option<u64>)]) -> bool {
    let is_shown = |(name, listed): &(String, Option<u64>)| {
        state.batches.get(name).is_some_and(|seen| version(&**seen.object()) >= *listed)
    };
    listed.iter().all(is_shown)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use std::sync::Arc;

    use serde_json::json;

    use super::*;
    use crate::cluster::SeenBatch;

    fn state(batches: &[(&str, &str)]) -> State {
        let batch = |(name, version): &(&str, &str)| {
            let object = json!({"apiVersion": "muster.dev/v1alpha1", "kind": "NodeBatch",
                "metadata": {"name": name, "resourceVersion": version}, "spec": {"nodePools": ["p"], "count": 1, "offers": []}});
            ((*name).to_owned(), SeenBatch::new(Arc::new(serde_json::from_value(object).unwrap())))
        };
        State { batches: Arc::new(batches.iter().map(batch).collect()), ..State::default() }
    }

    #[test]
    fn a_batch_that_is_not_known_or_known_as_it_was_before_is_waited_for() {
        let listed = [("a".to_owned(), Some(9)), ("b".to_owned(), Some(10))];
        assert!(shows(&state(&[("a", "9"), ("b", "11"), ("c", "3")]), &listed));
        assert!(!shows(&state(&[("a", "9")]), &listed), "b has come since");
        assert!(!shows(&state(&[("a", "9"), ("b", "9")]), &listed), "b was written since");
        assert!(shows(&state(&[]), &[]));
    }
}
