//! The files a story leaves, and reading them again.
//!
//! ```text
//! DIR/clock.json                 start of the demo, origin and speed of EC2's clock
//! DIR/<story>/journal.jsonl      what EC2 was asked during the story, and what it answered
//!            /audit.jsonl        what the API server was asked to change during the story
//!            /nodes.json …       the objects at the story's end, as the API server lists them
//!            /ec2.json, bill.json, invariants.json    the simulator at the story's end
//! DIR/journal.jsonl, audit.jsonl, ec2.json, bill.json, invariants.json    the same, of the whole run
//! DIR/summary.json               what the demo reported
//! ```

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use super::json::time;
use super::stories::Story;
use crate::commands::Unusable;
use crate::testbed::Stack;
use crate::testbed::audit::answered;

/// File and path of every list that is kept.
const OBJECTS: [(&str, &str); 8] = [
    ("nodes.json", "/api/v1/nodes"),
    ("pods.json", "/api/v1/pods"),
    ("jobs.json", "/apis/batch/v1/jobs"),
    ("events.json", "/apis/events.k8s.io/v1/events"),
    ("gangs.json", "/apis/muster.dev/v1alpha1/gangs"),
    ("nodebatches.json", "/apis/muster.dev/v1alpha1/nodebatches"),
    ("nodepools.json", "/apis/muster.dev/v1alpha1/nodepools"),
    ("ec2nodeclasses.json", "/apis/muster.dev/v1alpha1/ec2nodeclasses"),
];

/// The folder of the evidence.
#[derive(Debug)]
pub(super) struct Evidence {
    folder: PathBuf,
    /// Entries of the journal that belong to earlier stories.
    journal: usize,
    /// Bytes of the audit log that belong to earlier stories.
    audit: usize,
}

impl Evidence {
    /// Refuses a folder with files in it: evidence of two runs would be read as one.
    pub(super) fn refuse_used(folder: &Path) -> anyhow::Result<()> {
        let used = std::fs::read_dir(folder).is_ok_and(|mut entries| entries.next().is_some());
        let what = || Unusable(format!("--evidence {}: the folder is not empty; name another", folder.display()));
        if used { Err(what().into()) } else { Ok(()) }
    }

    pub(super) async fn begin(folder: PathBuf, stack: &Stack, started: Timestamp) -> anyhow::Result<Self> {
        let evidence = Self { folder, journal: 0, audit: 0 };
        let clock: Value = stack.sim("/_sim/clock").await?;
        let ready = crate::clock::now_real();
        let clock = json!({"started": started, "ready": ready, "origin": clock["origin"], "factor": clock["factor"]});
        evidence.write("clock.json", &clock)?;
        let audit = stack.cluster.audit_log();
        let before = std::fs::read(&audit).with_context(|| format!("read {}", audit.display()))?;
        Ok(Self { audit: whole_lines(&before), ..evidence })
    }

    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Keeps what there is at the end of a story.
    pub(super) async fn keep(&mut self, stack: &Stack, story: Story) -> anyhow::Result<()> {
        let client = stack.admin()?;
        for (file, path) in OBJECTS {
            let request = http::Request::get(path).body(Vec::new()).context("a path of the API")?;
            let list: Value = client.request(request).await.with_context(|| format!("list {path}"))?;
            self.write(&format!("{}/{file}", story.name()), &list)?;
        }
        let journal: Vec<Value> = stack.sim("/_sim/journal").await?;
        let news = journal.get(self.journal..).unwrap_or_default();
        self.write_lines(&format!("{}/journal.jsonl", story.name()), news)?;
        self.journal = journal.len();
        let audit = stack.cluster.audit_log();
        let audit = std::fs::read(&audit).with_context(|| format!("read {}", audit.display()))?;
        let end = whole_lines(&audit);
        let news = answered(audit.get(self.audit..end).unwrap_or_default());
        self.write_bytes(&format!("{}/audit.jsonl", story.name()), &news)?;
        self.audit = end;
        self.simulator(stack, &format!("{}/", story.name())).await
    }

    /// Keeps what there is at the end of all stories.
    pub(super) async fn finish(&self, stack: &Stack) -> anyhow::Result<()> {
        let journal: Vec<Value> = stack.sim("/_sim/journal").await?;
        self.write_lines("journal.jsonl", &journal)?;
        let audit = stack.cluster.audit_log();
        let audit = std::fs::read(&audit).with_context(|| format!("read {}", audit.display()))?;
        self.write_bytes("audit.jsonl", &answered(audit.get(..whole_lines(&audit)).unwrap_or_default()))?;
        self.simulator(stack, "").await
    }

    async fn simulator(&self, stack: &Stack, prefix: &str) -> anyhow::Result<()> {
        for (file, path) in
            [("ec2.json", "/_sim/state"), ("bill.json", "/_sim/bill"), ("invariants.json", "/_sim/invariants")]
        {
            let value: Value = stack.sim(path).await?;
            self.write(&format!("{prefix}{file}"), &value)?;
        }
        Ok(())
    }

    /// Reads a file of the whole run.
    pub(super) fn read(&self, file: &str) -> anyhow::Result<Value> {
        let path = self.folder.join(file);
        let text = std::fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))?;
        serde_json::from_str(&text).with_context(|| format!("read {} as JSON", path.display()))
    }

    /// Reads a file of a story.
    pub(super) fn of(&self, story: Story, file: &str) -> anyhow::Result<Value> {
        self.read(&format!("{}/{file}", story.name()))
    }

    /// Reads a file of a story that has one JSON object a line.
    pub(super) fn lines_of(&self, story: Story, file: &str) -> anyhow::Result<Vec<Value>> {
        let path = self.folder.join(story.name()).join(file);
        let text = std::fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))?;
        text.lines()
            .map(|line| serde_json::from_str(line).with_context(|| format!("read a line of {}", path.display())))
            .collect()
    }

    /// Writes a file.
    pub(super) fn write(&self, file: &str, value: &Value) -> anyhow::Result<()> {
        self.write_bytes(file, format!("{value:#}\n").as_bytes())
    }

    fn write_lines(&self, file: &str, values: &[Value]) -> anyhow::Result<()> {
        let text: String = values.iter().map(|value| format!("{value}\n")).collect();
        self.write_bytes(file, text.as_bytes())
    }

    fn write_bytes(&self, file: &str, bytes: &[u8]) -> anyhow::Result<()> {
        let path = self.folder.join(file);
        if let Some(folder) = path.parent() {
            std::fs::create_dir_all(folder).with_context(|| format!("create {}", folder.display()))?;
        }
        std::fs::write(&path, bytes).with_context(|| format!("write {}", path.display()))
    }

    /// The clocks of the run.
    pub(super) fn clock(&self) -> anyhow::Result<Clock> {
        let clock = self.read("clock.json")?;
        let at = |name: &str| time(&clock, name).with_context(|| format!("clock.json has no {name}"));
        Ok(Clock {
            started: at("/started")?,
            ready: at("/ready")?,
            origin: at("/origin")?,
            factor: clock["factor"].as_f64().filter(|factor| *factor > 0.0).unwrap_or(1.0),
        })
    }
}

/// Real time and EC2's.
#[derive(Clone, Copy, Debug)]
pub(super) struct Clock {
    started: Timestamp,
    pub(super) ready: Timestamp,
    origin: Timestamp,
    pub(super) factor: f64,
}

impl Clock {
    /// Real seconds since the demo was started.
    pub(super) fn seconds(self, real: Timestamp) -> f64 {
        real.duration_since(self.started).as_secs_f64()
    }

    /// The real time of a time of EC2.
    pub(super) fn real(self, ec2: Timestamp) -> Timestamp {
        let passed = ec2.duration_since(self.origin).as_secs_f64() / self.factor;
        let passed = SignedDuration::try_from_secs_f64(passed).unwrap_or_default();
        self.origin.saturating_add(passed).unwrap_or(ec2)
    }

    /// EC2's time since its clock began.
    pub(super) fn ec2(self, ec2: Timestamp) -> SignedDuration {
        ec2.duration_since(self.origin)
    }
}

/// Bytes up to the last line that is complete.
fn whole_lines(bytes: &[u8]) -> usize {
    bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1)
}
