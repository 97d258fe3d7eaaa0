//! Control planes that one test leaves to the next: etcd and kube-apiserver with Muster's objects installed, which take longer
//! to come up than most tests run.
//!
//! Only what a test added is taken out again, key by key in etcd, with every controller stopped. A control plane of which
//! anything else changed, or whose own processes were touched, is ended instead: the next test gets a new one.

use std::collections::BTreeMap;
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use kube::api::{Api, DynamicObject, ListParams};
use kube::discovery::{Discovery, verbs};
use serde::Deserialize;
use serde_json::json;

use crate::testbed::component::Component;
use crate::testbed::error::TestbedError;
use crate::testbed::identity::{Credentials, Identity};
use crate::testbed::process::Processes;
use crate::testbed::request::request;
use crate::testbed::wait::eventually;

/// Those that stay. Everything else is started for each test.
const KEPT: [Component; 2] = [Component::Etcd, Component::ApiServer];

/// What the API server writes for itself, at any time.
const OWN: [&str; 4] = [
    "compact_rev_key",
    "/registry/leases/kube-system/apiserver-",
    "/registry/masterleases/",
    "/registry/peerserverleases/",
];

/// Objects of which the API server, or a controller of every test, writes the status. What a test adds beside them goes.
const WITH_STATUS: [&str; 5] = [
    "/registry/apiregistration.k8s.io/",
    "/registry/flowschemas/",
    "/registry/poddisruptionbudgets/muster-system/",
    "/registry/prioritylevelconfigurations/",
    "/registry/servicecidrs/",
];

/// What changes how the API server itself works: it is not taken back while that runs.
const DEFINING: [&str; 7] = [
    "/registry/apiextensions.k8s.io/",
    "/registry/apiregistration.k8s.io/",
    "/registry/mutatingadmission",
    "/registry/mutatingwebhook",
    "/registry/validatingadmission",
    "/registry/validatingwebhook",
    "/registry/servicecidrs/",
];

/// Longest wait for the API server to have seen what was taken out.
const SEEN: Duration = Duration::from_secs(120);

/// Control planes that nobody uses. Their watchdogs end them with this process.
static IDLE: Mutex<Vec<Plane>> = Mutex::new(Vec::new());

/// Files of a cluster's folder that belong to what stays.
fn stays(name: &str) -> bool {
    const NAMES: [&str; 11] = [
        "audit-policy.yaml",
        "audit.log",
        "ca.crt",
        "etcd",
        "kube-apiserver",
        "serving.crt",
        "serving.key",
        "service-account.key",
        "service-account.pub",
        "stages.yaml",
        "tokens.csv",
    ];
    let logs = KEPT.iter().any(|component| name == format!("{component}.log"));
    NAMES.contains(&name) || name.ends_with(".kubeconfig") || logs
}

/// What is installed on a cluster by our own reader.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Installed {
    /// Nothing.
    Nothing,
    /// The shipped manifests but these files.
    Manifests {
        /// Names of files that are not applied.
        without: Vec<&'static str>,
    },
}

/// etcd and kube-apiserver with their folder.
#[derive(Clone, Debug)]
pub(super) struct Plane {
    pub(super) folder: PathBuf,
    pub(super) processes: Arc<Processes>,
    pub(super) credentials: Arc<Credentials>,
    pub(super) api_server: SocketAddr,
    pub(super) etcd: SocketAddr,
    pub(super) before: Arc<Before>,
}

/// What a control plane held before its first test.
#[derive(Debug)]
pub(super) struct Before {
    /// A plane is for whoever wants the same on it.
    installed: Installed,
    /// Revision of each key's last change.
    keys: BTreeMap<String, i64>,
}

/// What is to be done to a store.
#[derive(Debug, PartialEq, Eq)]
enum Difference {
    /// These ranges of keys, from the first to before the second, are what was added.
    Added(Vec<(String, String)>),
    /// Something else changed: this key.
    Changed(String),
}

impl Before {
    /// Reads the store of a control plane with what is installed on it.
    pub(super) async fn read(etcd: SocketAddr, installed: Installed) -> Result<Self, TestbedError> {
        Ok(Self { installed, keys: keys(etcd).await? })
    }

    /// What has become of the store since.
    fn difference(&self, now: &BTreeMap<String, i64>) -> Difference {
        let of = |prefixes: &[&str], key: &str| prefixes.iter().any(|prefix| key.starts_with(prefix));
        let free = |key: &str| of(&OWN, key) || of(&WITH_STATUS, key);
        let mut changed = self.keys.iter().filter(|(key, revision)| !free(key) && now.get(*key) != Some(revision));
        if let Some((key, _)) = changed.next() {
            return Difference::Changed(key.clone());
        }
        let mut ranges: Vec<(String, String)> = Vec::new();
        let mut open = false;
        for key in now.keys() {
            if self.keys.contains_key(key) || of(&OWN, key) {
                open = false;
                continue;
            }
            if of(&DEFINING, key) {
                return Difference::Changed(key.clone());
            }
            // The smallest key behind it.
            let end = format!("{key}\0");
            match ranges.last_mut().filter(|_| open) {
                Some((_, last)) => *last = end,
                None => ranges.push((key.clone(), end)),
            }
            open = true;
        }
        Difference::Added(ranges)
    }
}

impl Plane {
    /// Stops what is started for each test, and empties its logs. `false`: it is of no more use.
    pub(super) fn leave(self) -> bool {
        if self.processes.retain(&KEPT).is_err() || tidy(&self.folder).is_err() {
            return false;
        }
        IDLE.lock().unwrap_or_else(PoisonError::into_inner).push(self);
        true
    }

    /// Takes out what the last test added, and waits until the API server shows nothing of it. `false`: that cannot be done.
    pub(super) async fn clean(&self) -> Result<bool, TestbedError> {
        for component in KEPT {
            self.processes.check(component)?;
        }
        let ranges = match self.before.difference(&keys(self.etcd).await?) {
            Difference::Added(ranges) => ranges,
            Difference::Changed(_) => return Ok(false),
        };
        for (from, to) in &ranges {
            let body = json!({"key": STANDARD.encode(from), "range_end": STANDARD.encode(to)});
            request(self.etcd, "POST", "/v3/kv/deleterange", &body.to_string()).await?;
        }
        // A list that names no revision is answered once the server's cache has caught up with the store.
        let config = self.credentials.client_config(Identity::Admin, self.api_server);
        let client = kube::Client::try_from(config).map_err(TestbedError::api("make a client"))?;
        let discovered = Discovery::new(client.clone())
            .run_aggregated()
            .await
            .map_err(TestbedError::api("discover what the API server serves"))?;
        for (kind, capabilities) in discovered.groups().flat_map(kube::discovery::ApiGroup::recommended_resources) {
            if !capabilities.supports_operation(verbs::LIST) {
                continue;
            }
            let api: Api<DynamicObject> = Api::all_with(client.clone(), &kind);
            let what = format!("the API server to list {}", kind.plural);
            eventually(SEEN, what, || async { api.list_metadata(&ListParams::default()).await.map(|_| Some(())) })
                .await?;
        }
        Ok(true)
    }
}

/// A control plane that nobody uses, with this installed.
pub(super) fn idle(installed: &Installed) -> Option<Plane> {
    let mut idle = IDLE.lock().unwrap_or_else(PoisonError::into_inner);
    let found = idle.iter().position(|plane| plane.before.installed == *installed)?;
    Some(idle.remove(found))
}

#[derive(Deserialize)]
struct Range {
    #[serde(default)]
    kvs: Vec<KeyValue>,
}

#[derive(Deserialize)]
struct KeyValue {
    key: String,
    /// A 64-bit number is a string in etcd's JSON.
    mod_revision: String,
}

/// Every key of a store, with the revision of its last change.
async fn keys(etcd: SocketAddr) -> Result<BTreeMap<String, i64>, TestbedError> {
    let malformed =
        || TestbedError::Malformed { what: "etcd".to_owned(), problem: "an answer of another form".to_owned() };
    // From the first key to the last, as etcd writes it.
    let all = json!({"key": STANDARD.encode([0]), "range_end": STANDARD.encode([0]), "keys_only": true});
    let answer = request(etcd, "POST", "/v3/kv/range", &all.to_string()).await?;
    let range: Range = serde_json::from_str(&answer).map_err(|_| malformed())?;
    let read = |one: KeyValue| {
        let key = String::from_utf8(STANDARD.decode(one.key).ok()?).ok()?;
        Some((key, one.mod_revision.parse().ok()?))
    };
    range.kvs.into_iter().map(|one| read(one).ok_or_else(malformed)).collect()
}

/// Removes what the last test left in the folder, and empties what is appended to.
fn tidy(folder: &Path) -> std::io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let name = entry.file_name();
        match name.to_str() {
            Some(name) if name.ends_with(".log") && stays(name) => {
                fs::OpenOptions::new().write(true).open(entry.path())?.set_len(0)?;
            }
            Some(name) if stays(name) => {}
            _ if entry.file_type()?.is_dir() => fs::remove_dir_all(entry.path())?,
            _ => fs::remove_file(entry.path())?,
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(all: &[(&str, i64)]) -> BTreeMap<String, i64> {
        all.iter().map(|(key, revision)| ((*key).to_owned(), *revision)).collect()
    }

    fn before(all: &[(&str, i64)]) -> Before {
        Before { installed: Installed::Nothing, keys: keys(all) }
    }

    #[test]
    fn what_was_added_goes_range_by_range_and_nothing_that_was_there() {
        let before = before(&[("/registry/namespaces/default", 1), ("/registry/roles/a/b", 2)]);
        let now = keys(&[
            ("/registry/namespaces/default", 1),
            ("/registry/namespaces/ml", 7),
            ("/registry/pods/ml/a", 8),
            ("/registry/roles/a/b", 2),
            ("/registry/roles/a/c", 9),
        ]);
        let range = |from: &str, to: &str| (from.to_owned(), format!("{to}\0"));
        let expected = Difference::Added(vec![
            range("/registry/namespaces/ml", "/registry/pods/ml/a"),
            range("/registry/roles/a/c", "/registry/roles/a/c"),
        ]);
        assert_eq!(before.difference(&now), expected);
    }

    #[test]
    fn a_plane_on_which_something_was_changed_removed_or_defined_is_not_used_again() {
        let before = before(&[("/registry/clusterroles/muster", 1), ("/registry/leases/kube-system/apiserver-x", 2)]);
        let changed = |all: &[(&str, i64)]| matches!(before.difference(&keys(all)), Difference::Changed(_));
        assert!(changed(&[("/registry/clusterroles/muster", 3)]));
        assert!(changed(&[]));
        let same = ("/registry/clusterroles/muster", 1);
        assert!(changed(&[same, ("/registry/apiextensions.k8s.io/customresourcedefinitions/x", 4)]));
        assert!(changed(&[same, ("/registry/mutatingwebhookconfigurations/x", 4)]));
        // Its own lease the API server renews all the time.
        assert!(!changed(&[same, ("/registry/leases/kube-system/apiserver-x", 9)]));
        assert_eq!(
            before.difference(&keys(&[same, ("/registry/leases/kube-system/apiserver-y", 9)])),
            Difference::Added(Vec::new())
        );
    }
}
