//! What the API server's audit log says: who changed what, when, and that no gang was bound in part.

use std::collections::BTreeMap;
use std::io::BufRead as _;
use std::path::Path;

use jiff::Timestamp;
use serde_json::Value;

use super::{Identity, TestbedError};

/// One change that the API server answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// `create`, `update`, `patch`, `delete`, `deletecollection`.
    pub verb: String,
    /// Who asked.
    pub user: String,
    /// Plural name of the kind.
    pub resource: String,
    /// `binding`, `status`, `eviction`, or empty.
    pub subresource: String,
    /// Namespace, or empty.
    pub namespace: String,
    /// Name, or empty where the server made it up.
    pub name: String,
    /// UID that a Binding names.
    pub uid: String,
    /// Node that a Binding names.
    pub node: String,
    /// HTTP status.
    pub code: u64,
    /// When the request came.
    pub received: Timestamp,
    /// When it was answered.
    pub answered: Timestamp,
}

impl Entry {
    /// A Binding that was made.
    #[must_use]
    pub fn is_binding(&self) -> bool {
        self.subresource == "binding" && self.succeeded()
    }

    /// A Binding that was made, or whose outcome the API server did not live to tell: it gives up on an answer, not on the
    /// work.
    #[must_use]
    pub fn may_have_bound(&self) -> bool {
        self.subresource == "binding" && self.may_have_happened()
    }

    /// The commit point of a gang: the only status of Muster's that is written as a patch. One without an answer may be
    /// it too.
    #[must_use]
    pub fn is_commit(&self) -> bool {
        self.resource == "gangs" && self.subresource == "status" && self.verb == "patch" && self.may_have_happened()
    }

    /// The patch that lets a member go to kube-scheduler.
    #[must_use]
    pub fn is_release(&self) -> bool {
        self.resource == "pods"
            && self.subresource.is_empty()
            && self.verb == "patch"
            && self.by_muster()
            && self.succeeded()
    }

    /// A write of a Gang that somebody else's came before.
    #[must_use]
    pub fn is_overtaken(&self) -> bool {
        self.resource == "gangs" && self.by_muster() && self.code == 409
    }

    /// Whether Muster asked.
    #[must_use]
    pub fn by_muster(&self) -> bool {
        self.user == Identity::Muster.user()
    }

    fn may_have_happened(&self) -> bool {
        self.succeeded() || self.code == 504
    }

    /// Whether it took effect.
    #[must_use]
    pub fn succeeded(&self) -> bool {
        (200..300).contains(&self.code)
    }

    fn read(line: &str) -> Option<Self> {
        let event: Value = serde_json::from_str(line).ok()?;
        if event["stage"] != "ResponseComplete" {
            return None;
        }
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let about = &event["objectRef"];
        let body = &event["requestObject"];
        Some(Self {
            verb: text(&event["verb"]),
            user: text(&event["user"]["username"]),
            resource: text(&about["resource"]),
            subresource: text(&about["subresource"]),
            namespace: text(&about["namespace"]),
            name: text(&about["name"]),
            uid: text(&body["metadata"]["uid"]),
            node: text(&body["target"]["name"]),
            code: event["responseStatus"]["code"].as_u64()?,
            received: event["requestReceivedTimestamp"].as_str()?.parse().ok()?,
            answered: event["stageTimestamp"].as_str()?.parse().ok()?,
        })
    }
}

/// Reads an audit log; a last line that is still being written is excluded.
///
/// # Errors
/// [`TestbedError`] when there is no such file.
pub fn read(path: &Path) -> Result<Vec<Entry>, TestbedError> {
    let file = std::fs::File::open(path).map_err(TestbedError::file("open", path))?;
    let lines = std::io::BufReader::new(file).lines();
    Ok(lines.map_while(Result::ok).filter_map(|line| Entry::read(&line)).collect())
}

/// Whether a member's commit or Binding may have been made and not be in the log, although there is an `entry` that follows
/// from it: the API server was killed at one of `kills` and took with it what it was doing. Only what was under way then
/// counts, so the member was released before, and not again since.
#[must_use]
pub fn may_be_lost(entries: &[Entry], kills: &[Timestamp], entry: &Entry) -> bool {
    let again = |kill: Timestamp| {
        entries.iter().any(|other| other.is_release() && other.name == entry.name && other.received >= kill)
    };
    kills.iter().any(|kill| entry.received > *kill && !again(*kill))
}

/// Bindings that are not as assigned, as sentences: a member bound before the commit point of its gang, one bound
/// twice, one bound by somebody else than Muster. `gang_of` names the gang of a pod: namespace and name, `None` for a pod
/// of no gang. A gang is reported by the name of its object up to the digest at its end. `kills`: when the API server was killed;
/// see [`may_be_lost`].
#[must_use]
pub fn torn_bindings(
    entries: &[Entry],
    kills: &[Timestamp],
    gang_of: impl Fn(&str, &str) -> Option<String>,
) -> Vec<String> {
    let mut committed: BTreeMap<(&str, &str), Timestamp> = BTreeMap::new();
    for entry in entries.iter().filter(|entry| entry.is_commit()) {
        let gang = entry.name.rsplit_once('-').map_or(&*entry.name, |(head, _)| head);
        let first = committed.entry((&entry.namespace, gang)).or_insert(entry.received);
        *first = entry.received.min(*first);
    }
    let mut bound: BTreeMap<&str, &str> = BTreeMap::new();
    let mut wrong = Vec::new();
    for entry in entries.iter().filter(|entry| entry.is_binding()) {
        let Some(gang) = gang_of(&entry.namespace, &entry.name) else { continue };
        let pod = format!("{}/{}", entry.namespace, entry.name);
        if !entry.by_muster() {
            wrong.push(format!("{pod} of gang {gang} was bound by {}", entry.user));
        }
        match committed.get(&(&*entry.namespace, &*gang)) {
            None if may_be_lost(entries, kills, entry) => {}
            Some(commit) if *commit > entry.received && may_be_lost(entries, kills, entry) => {}
            None => wrong.push(format!("{pod} was bound and its gang {gang} never committed")),
            Some(commit) if *commit > entry.received => {
                wrong.push(format!("{pod} was bound at {} and its gang {gang} committed at {commit}", entry.received));
            }
            Some(_) => {}
        }
        if let Some(node) = bound.insert(&entry.uid, &entry.node) {
            wrong.push(format!("{pod} was bound twice: to {node} and to {}", entry.node));
        }
    }
    wrong
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(verb: &str, resource: &str, subresource: &str, name: &str, second: i64) -> Entry {
        let at = Timestamp::from_second(second).unwrap();
        Entry {
            verb: verb.to_owned(),
            user: Identity::Muster.user().to_owned(),
            resource: resource.to_owned(),
            subresource: subresource.to_owned(),
            namespace: "ml".to_owned(),
            name: name.to_owned(),
            uid: format!("uid of {name}"),
            node: "n1".to_owned(),
            code: 201,
            received: at,
            answered: at,
        }
    }

    fn gang_of(_: &str, pod: &str) -> Option<String> {
        pod.rsplit_once('-').map(|(gang, _)| gang.to_owned())
    }

    #[test]
    fn a_line_of_the_log_is_read_and_a_half_one_is_not() {
        let line = r#"{"kind":"Event","stage":"ResponseComplete","verb":"create","user":{"username":"u"},
            "objectRef":{"resource":"pods","namespace":"ml","name":"p","subresource":"binding"},"responseStatus":{"code":201},
            "requestObject":{"metadata":{"uid":"x"},"target":{"name":"n1"}},
            "requestReceivedTimestamp":"2026-01-01T00:00:00.000001Z","stageTimestamp":"2026-01-01T00:00:00.5Z"}"#;
        let entry = Entry::read(line).unwrap();
        assert!(entry.is_binding() && !entry.by_muster());
        assert_eq!((&*entry.uid, &*entry.node), ("x", "n1"));
        assert_eq!(Entry::read(&line[..line.len() / 2]), None);
    }

    #[test]
    fn a_member_bound_before_the_commit_or_without_one_or_twice_is_torn() {
        let commit = entry("patch", "gangs", "status", "train-abc", 10);
        let early = entry("create", "pods", "binding", "train-0", 9);
        let late = entry("create", "pods", "binding", "train-1", 11);
        let other = entry("create", "pods", "binding", "eval-0", 11);
        assert_eq!(torn_bindings(&[commit.clone(), late.clone()], &[], gang_of), Vec::<String>::new());
        assert_eq!(torn_bindings(&[early, commit.clone()], &[], gang_of).len(), 1);
        assert_eq!(torn_bindings(&[commit.clone(), other], &[], gang_of).len(), 1);
        assert_eq!(torn_bindings(&[commit.clone(), late.clone(), late.clone()], &[], gang_of).len(), 1);
        let unanswered = Entry { code: 504, ..commit.clone() };
        assert_eq!(torn_bindings(&[unanswered, late.clone()], &[], gang_of), Vec::<String>::new());
        let refused = Entry { code: 409, ..commit };
        assert_eq!(torn_bindings(&[refused.clone(), late.clone()], &[], gang_of).len(), 1);
        // The commit of one that was released before a kill may be missing, and of nobody else.
        let kill = |second| [Timestamp::from_second(second).unwrap()];
        let release = |second| entry("patch", "pods", "", "train-1", second);
        let torn = |released: i64, killed: i64| {
            torn_bindings(&[release(released), refused.clone(), late.clone()], &kill(killed), gang_of).len()
        };
        assert_eq!((torn(8, 9), torn(10, 9), torn(8, 12)), (0, 1, 1));
        assert!(Entry { code: 504, ..late.clone() }.may_have_bound() && !Entry { code: 409, ..late }.may_have_bound());
    }
}
