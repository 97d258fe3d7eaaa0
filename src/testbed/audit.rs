//! What the API server's audit log says: who changed what, when, and that no gang was bound in part.

use std::collections::{BTreeMap, BTreeSet};
use std::io::BufRead as _;
use std::path::Path;

use jiff::Timestamp;
use serde_json::Value;

use super::{Identity, TestbedError};

/// One change that the API server was asked for.
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
    /// HTTP status; [`UNANSWERED`] where the API server was killed before it could tell.
    pub code: u64,
    /// When the request came.
    pub received: Timestamp,
    /// When it was answered, or came.
    pub answered: Timestamp,
}

/// Code of a request whose answer is not in the log.
pub const UNANSWERED: u64 = 0;

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
    /// it too: the next try finds it made, and is answered with a conflict.
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
        self.succeeded() || self.code == 504 || self.code == UNANSWERED
    }

    /// Whether it took effect.
    #[must_use]
    pub fn succeeded(&self) -> bool {
        (200..300).contains(&self.code)
    }

    /// `event`: of a stage that [`Line::read`] keeps.
    fn of(event: &Value, code: u64) -> Option<Self> {
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
            code,
            received: event["requestReceivedTimestamp"].as_str()?.parse().ok()?,
            answered: event["stageTimestamp"].as_str()?.parse().ok()?,
        })
    }
}

/// A line of the log. Where an answer may be missing the policy has the request written down before it is carried out.
enum Line {
    Asked(String, Entry),
    Answered(String, Entry),
}

impl Line {
    fn read(line: &str) -> Option<Self> {
        let event: Value = serde_json::from_str(line).ok()?;
        let id = event["auditID"].as_str()?.to_owned();
        match event["stage"].as_str()? {
            "RequestReceived" => Some(Self::Asked(id, Entry::of(&event, UNANSWERED)?)),
            "ResponseComplete" | "Panic" => {
                let code = event["responseStatus"]["code"].as_u64()?;
                Some(Self::Answered(id, Entry::of(&event, code)?))
            }
            _ => None,
        }
    }
}

/// The changes in the order of their answers; those that have none stand where they came.
fn entries(lines: impl Iterator<Item = Line>) -> Vec<Entry> {
    let (mut asked, mut answers, mut answered) = (Vec::new(), BTreeSet::new(), Vec::new());
    for line in lines {
        match line {
            Line::Asked(id, entry) => asked.push((id, entry)),
            Line::Answered(id, entry) => {
                answers.insert(id);
                answered.push(entry);
            }
        }
    }
    answered.extend(asked.into_iter().filter(|(id, _)| !answers.contains(id)).map(|(_, entry)| entry));
    answered.sort_by_key(|entry| entry.answered);
    answered
}

/// Reads an audit log; a last line that is still being written is passed over.
///
/// # Errors
/// [`TestbedError`] when there is no such file.
pub fn read(path: &Path) -> Result<Vec<Entry>, TestbedError> {
    let file = std::fs::File::open(path).map_err(TestbedError::file("open", path))?;
    let lines = std::io::BufReader::new(file).lines();
    Ok(entries(lines.map_while(Result::ok).filter_map(|line| Line::read(&line))))
}

/// The lines of a log without those of requests that had only come: each change once, as it was answered.
#[must_use]
pub fn answered(log: &[u8]) -> Vec<u8> {
    let came = |line: &&[u8]| {
        serde_json::from_slice::<Value>(line).is_ok_and(|event: Value| event["stage"] == "RequestReceived")
    };
    log.split_inclusive(|byte| *byte == b'\n').filter(|line| !came(line)).flatten().copied().collect()
}

/// Bindings that are not as assigned, as sentences: a member bound before the commit point of its gang, one bound
/// twice, one bound by somebody else than Muster. `gang_of` names the gang of a pod: namespace and name, `None` for a pod
/// of no gang. A gang goes by the name of its object up to the digest at its end.
#[must_use]
pub fn torn_bindings(entries: &[Entry], gang_of: impl Fn(&str, &str) -> Option<String>) -> Vec<String> {
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
    use serde_json::json;

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

    fn line(stage: &str, id: &str, verb: &str, code: Option<u64>) -> String {
        json!({
            "kind": "Event", "stage": stage, "auditID": id, "verb": verb, "user": {"username": "u"},
            "objectRef": {"resource": "pods", "namespace": "ml", "name": "p", "subresource": "binding"},
            "responseStatus": code.map(|code| json!({"code": code})),
            "requestObject": code.map(|_| json!({"metadata": {"uid": "x"}, "target": {"name": "n1"}})),
            "requestReceivedTimestamp": "2026-01-01T00:00:00.000001Z", "stageTimestamp": "2026-01-01T00:00:00.5Z",
        })
        .to_string()
    }

    #[test]
    fn a_line_of_the_log_is_read_and_a_half_one_is_not() {
        let line = line("ResponseComplete", "1", "create", Some(201));
        let entry = entries(Line::read(&line).into_iter()).remove(0);
        assert!(entry.is_binding() && !entry.by_muster());
        assert_eq!((&*entry.uid, &*entry.node), ("x", "n1"));
        assert!(Line::read(&line[..line.len() / 2]).is_none());
    }

    #[test]
    fn what_was_asked_and_never_answered_may_have_happened_and_what_was_answered_counts_once() {
        let lines = [
            line("RequestReceived", "answered", "create", None),
            line("RequestReceived", "killed", "create", None),
            line("ResponseComplete", "answered", "create", Some(409)),
            line("RequestReceived", "broken", "create", None),
            line("Panic", "broken", "create", Some(500)),
        ];
        let read = entries(lines.iter().filter_map(|line| Line::read(line)));
        assert_eq!(read.iter().map(|entry| entry.code).collect::<Vec<_>>(), [409, 500, UNANSWERED]);
        assert_eq!(read.iter().map(Entry::may_have_bound).collect::<Vec<_>>(), [false, false, true]);
        assert!(!read[2].is_binding());
        let log = lines.map(|line| format!("{line}\n")).concat();
        let kept = String::from_utf8(answered(log.as_bytes())).unwrap();
        assert_eq!(kept.lines().collect::<Vec<_>>(), [log.lines().nth(2).unwrap(), log.lines().nth(4).unwrap()]);
    }

    #[test]
    fn a_member_bound_before_the_commit_or_without_one_or_twice_is_torn() {
        let commit = entry("patch", "gangs", "status", "train-abc", 10);
        let early = entry("create", "pods", "binding", "train-0", 9);
        let late = entry("create", "pods", "binding", "train-1", 11);
        let other = entry("create", "pods", "binding", "eval-0", 11);
        let torn = |entries: &[Entry]| torn_bindings(entries, gang_of).len();
        assert_eq!(torn(&[commit.clone(), late.clone()]), 0);
        assert_eq!(torn(&[early.clone(), commit.clone()]), 1);
        assert_eq!(torn(&[commit.clone(), other]), 1);
        assert_eq!(torn(&[commit.clone(), late.clone(), late.clone()]), 1);
        for code in [504, UNANSWERED] {
            let unanswered = Entry { code, ..commit.clone() };
            assert_eq!(torn(&[late.clone(), unanswered.clone()]), 0, "it may have been made: {code}");
            assert_eq!(torn(&[early.clone(), unanswered]), 1, "and not before it was asked for: {code}");
        }
        let refused = Entry { code: 409, ..commit };
        assert_eq!(torn(&[refused, late.clone()]), 1);
        assert!(Entry { code: 504, ..late.clone() }.may_have_bound() && !Entry { code: 409, ..late }.may_have_bound());
    }
}
