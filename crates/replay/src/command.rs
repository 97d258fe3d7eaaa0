//! `muster plan`, `explain` and `replay` without their edges: texts and flags in, text and exit code out.

use std::fmt::Write as _;

use jiff::Timestamp;
use muster_core::planner::plan::Policy;
use muster_core::topology::Levels;
use serde::Serialize;
use thiserror::Error;

use crate::catalogue::{Catalogue, CatalogueError};
use crate::decision::{self, DecisionError};
use crate::document;
use crate::dump::{self, Dump, Input, ReadError};
use crate::explain::{self, ExplainError, Target};
use crate::passes::{self, Again};
use crate::plan::{self, MinValues, Options, PlanError, Preferences};
use crate::{table, topology, wide};

/// Form of the output.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Format {
    /// For people.
    #[default]
    Table,
    /// The same with members, nodes and dropped preferences one by one.
    Wide,
    /// The published document.
    Json,
}

/// What stands on the command line.
#[derive(Clone, Debug, Default)]
pub struct Arguments<'a> {
    /// The dumps.
    pub files: Vec<Input<'a>>,
    /// Form of the output.
    pub format: Format,
    /// `--levels`; empty = those of the dump.
    pub levels: Vec<String>,
    /// `--scheduler-name`; empty = that of the recording, else `muster`.
    pub scheduler_names: Vec<String>,
    /// `--catalogue`.
    pub catalogue: Option<Input<'a>>,
    /// `--now`.
    pub now: Option<&'a str>,
    /// `--policy`.
    pub policy: Option<Input<'a>>,
    /// `--preferences`.
    pub preferences: Preferences,
    /// `--min-values`.
    pub min_values: MinValues,
    /// `--karpenter-labels`.
    pub karpenter_labels: bool,
}

/// What is printed, and the exit code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Output {
    /// For standard output.
    pub text: String,
    /// 0 = everything placed or provisioned for, 3 = not.
    pub code: u8,
}

/// Input that cannot be used: exit code 2.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum CommandError {
    /// A dump.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// The catalogue.
    #[error(transparent)]
    Catalogue(#[from] CatalogueError),
    /// The levels.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// What is asked about.
    #[error(transparent)]
    Explain(#[from] ExplainError),
    /// A file of decisions.
    #[error(transparent)]
    Decision(#[from] DecisionError),
    /// `--now`.
    #[error("--now: \"{0}\" is not a moment such as 2026-07-20T12:00:00Z")]
    Now(String),
    /// `--policy`.
    #[error("read policy {name}: {message}")]
    Policy {
        /// File.
        name: String,
        /// What is wrong.
        message: String,
    },
}

/// Reads, plans and prints. Passes that a server recorded are decided again as it did; the exit code is 3 if one comes out
/// otherwise.
///
/// Errors: input that cannot be read at all.
pub fn run(arguments: &Arguments<'_>) -> Result<Output, CommandError> {
    if let [file] = arguments.files.as_slice()
        && passes::is_one(file.text)
    {
        let again = passes::again(file.name, file.text)?;
        return Ok(match arguments.format {
            Format::Json => Output { text: passes::to_json(&again), code: code_of(&again) },
            Format::Table | Format::Wide => lines(file.name, &again),
        });
    }
    let mut dump = dump::read(&arguments.files)?;
    let options = options(arguments, &dump)?;
    let recorded = std::mem::take(&mut dump.passes);
    let study = plan::study(dump, &options)?;
    let mut text = match arguments.format {
        Format::Json => study.document.to_json(),
        Format::Table => table::render(&study),
        Format::Wide => wide::render(&study),
    };
    let mut code = if study.document.is_complete() { 0 } else { 3 };
    for passes in recorded {
        let again = passes::again_of("passes", passes)?;
        code = code.max(code_of(&again));
        if arguments.format != Format::Json {
            let _ = write!(text, "\n{}", lines("passes", &again).text);
        }
    }
    Ok(Output { text, code })
}

/// Reads, plans and explains one object. The exit code is 0.
///
/// Errors: input that cannot be read at all; no such object.
pub fn explain(arguments: &Arguments<'_>, target: &Target) -> Result<Output, CommandError> {
    let dump = dump::read(&arguments.files)?;
    let options = options(arguments, &dump)?;
    let explanation = explain::explain(dump, &options, target)?;
    let text = match arguments.format {
        Format::Json => explanation.to_json(),
        Format::Table | Format::Wide => explanation.to_text(),
    };
    Ok(Output { text, code: 0 })
}

/// One decision or pass that was replayed, as JSON.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct ReplayEntry<'a> {
    file: &'a str,
    /// What it was about: a gang and a moment, or the moment of a pass.
    subject: String,
    /// The first thing that is not as it was; null if nothing is.
    difference: Option<String>,
}

/// Plans recorded decisions again. The exit code is 0 if all come out the same, else 3.
///
/// Errors: a file that holds no decisions.
pub fn replay(files: &[Input<'_>], format: Format) -> Result<Output, CommandError> {
    let (mut text, mut entries) = (String::new(), Vec::new());
    for file in files {
        let before = entries.len();
        let mut add = |line: String, subject: String, difference: Option<String>| {
            let _ = writeln!(text, "{line}");
            entries.push(ReplayEntry { file: file.name, subject, difference });
        };
        let what = if passes::is_one(file.text) {
            for one in passes::again(file.name, file.text)? {
                add(one.line(), one.at.to_string(), one.difference());
            }
            "pass"
        } else {
            for one in decision::replay(&decision::read(file.name, file.text)?) {
                add(one.to_string(), one.title, one.difference);
            }
            "decision"
        };
        if entries.len() == before {
            let _ = writeln!(text, "{}: holds no {what}", file.name);
        }
    }
    let code = if entries.iter().any(|entry| entry.difference.is_some()) { 3 } else { 0 };
    if format == Format::Json {
        text = format!("{:#}\n", serde_json::json!({"version": 1, "replayed": entries}));
    }
    Ok(Output { text, code })
}

/// A line for each pass.
fn lines(name: &str, again: &[Again]) -> Output {
    let mut text = String::new();
    for one in again {
        let _ = writeln!(text, "{}", one.line());
    }
    if again.is_empty() {
        let _ = writeln!(text, "{name}: holds no pass");
    }
    Output { text, code: code_of(again) }
}

fn code_of(again: &[Again]) -> u8 {
    if again.iter().any(|one| one.difference().is_some()) { 3 } else { 0 }
}

/// What a dump is planned with: flags first, then what a recording says of itself, then the defaults.
///
/// Errors: a flag or a file that cannot be read.
pub fn options(arguments: &Arguments<'_>, dump: &Dump) -> Result<Options, CommandError> {
    let Arguments {
        files: _,
        format: _,
        levels,
        scheduler_names,
        catalogue,
        now,
        policy,
        preferences,
        min_values,
        karpenter_labels,
    } = arguments;
    let record = dump.record.as_ref();
    let recorded = || record.and_then(|record| record.levels.clone());
    let levels =
        if levels.is_empty() { recorded().map(Levels::new).transpose() } else { topology::of_keys(levels).map(Some) };
    let now = now.map(|text| text.parse::<Timestamp>().map_err(|_| CommandError::Now(text.to_owned()))).transpose()?;
    let scheduler_names = match (scheduler_names.is_empty(), record) {
        (false, _) => scheduler_names.clone(),
        (true, Some(record)) => record.scheduler_names.clone(),
        (true, None) => vec![muster_api::keys::SCHEDULER_NAME.to_owned()],
    };
    let default_policy = || Ok(record.map_or_else(Policy::default, |record| record.policy.into()));
    Ok(Options {
        levels: levels.map_err(PlanError::from)?,
        scheduler_names,
        catalogue: catalogue.as_ref().map_or_else(|| Ok(Catalogue::built_in()), Catalogue::read)?,
        now: now.or(record.map(|record| record.time)),
        policy: policy.as_ref().map_or_else(default_policy, read_policy)?,
        preferences: *preferences,
        min_values: *min_values,
        karpenter_labels: *karpenter_labels,
        focus: None,
    })
}

/// The JSON Schema of the document, as text.
#[must_use]
pub fn schema() -> String {
    let mut text = serde_json::to_string_pretty(&document::schema()).expect("a schema is JSON, with strings as keys");
    text.push('\n');
    text
}

#[derive(serde::Deserialize, Default)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct RawPolicy {
    placement: muster_core::planner::plan::Placement,
    elastic: muster_core::planner::plan::Elastic,
}

fn read_policy(input: &Input<'_>) -> Result<Policy, CommandError> {
    let error = |message: String| CommandError::Policy { name: input.name.to_owned(), message };
    let mut documents = dump::parse(input)?;
    let document = match (documents.pop(), documents.is_empty()) {
        (None | Some(serde_json::Value::Null), true) => return Ok(Policy::default()),
        (Some(document), true) => document,
        (_, false) => return Err(error("exactly one document is expected".to_owned())),
    };
    let RawPolicy { placement, elastic } = serde_path_to_error::deserialize(document)
        .map_err(|failed| error(format!("{}: {}", failed.path(), failed.inner())))?;
    Ok(Policy { placement, elastic })
}
