//! Every state of every NodeBatch that a suite saw, for the files in `tests/golden/nodebatch`.

#![allow(clippy::unwrap_used, clippy::print_stderr, reason = "a test fails by panicking, its helpers too")]

use std::collections::BTreeSet;
use std::io::Write as _;

use futures::StreamExt as _;
use kube::api::{DynamicObject, WatchEvent, WatchParams};
use kube::core::{ApiResource, GroupVersionKind};
use kube::{Api, Client};

/// Appends each NodeBatch object of this stack to the file that `MUSTER_RECORD_BATCHES` names, one JSON object a line,
/// as long as the test runs. Objects that were written before are not written again, and what the API server adds to
/// each of them is excluded.
pub(crate) fn record(client: Client) {
    let Some(path) = std::env::var_os("MUSTER_RECORD_BATCHES") else { return };
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk("muster.dev", "v1alpha1", "NodeBatch"));
    // As they are stored: what the types do not know would be lost with them.
    let resource = ApiResource { plural: "nodebatches".to_owned(), ..resource };
    let batches: Api<DynamicObject> = Api::all_with(client, &resource);
    tokio::spawn(async move {
        let mut written = BTreeSet::new();
        let mut file = std::fs::File::options().append(true).create(true).open(path).unwrap();
        let mut version = "0".to_owned();
        loop {
            let Ok(events) = batches.watch(&WatchParams::default(), &version).await else {
                tokio::time::sleep(std::time::Duration::from_millis(100)).await;
                continue;
            };
            let mut events = events.boxed();
            while let Some(Ok(event)) = events.next().await {
                match event {
                    WatchEvent::Added(object) | WatchEvent::Modified(object) | WatchEvent::Deleted(object) => {
                        version = object.metadata.resource_version.clone().unwrap_or_default();
                        let mut object = serde_json::to_value(&object).unwrap();
                        object["metadata"].as_object_mut().unwrap().remove("managedFields");
                        let line = format!("{object}\n");
                        if !written.contains(&line) {
                            // In one piece: other tests of the process write too.
                            file.write_all(line.as_bytes()).unwrap();
                            written.insert(line);
                        }
                    }
                    WatchEvent::Bookmark(bookmark) => version = bookmark.metadata.resource_version,
                    // Too old: from the beginning, without what is written already.
                    WatchEvent::Error(_) => version = "0".to_owned(),
                }
            }
        }
    });
}
