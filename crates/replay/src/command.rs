//! `muster plan` without its edges: texts and flags in, text and exit code out.

use jiff::Timestamp;
use muster_core::plan::Policy;
use thiserror::Error;

use crate::catalogue::{Catalogue, CatalogueError};
use crate::document::{self, Document};
use crate::dump::{self, Input, ReadError};
use crate::plan::{self, Options, PlanError};
use crate::table;

/// Form of the output.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Format {
    /// For people.
    #[default]
    Table,
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
    /// `--scheduler-name`.
    pub scheduler_names: Vec<String>,
    /// `--catalogue`.
    pub catalogue: Option<Input<'a>>,
    /// `--now`.
    pub now: Option<&'a str>,
    /// `--policy`.
    pub policy: Option<Input<'a>>,
}

/// What is printed, and the exit code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Output {
    /// For standard output.
    pub text: String,
    /// 0 = everything placed or bought for, 3 = not.
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

/// Reads, plans and prints.
///
/// Errors: input that cannot be read at all.
pub fn run(arguments: &Arguments<'_>) -> Result<Output, CommandError> {
    let document = document_of(arguments)?;
    let text = match arguments.format {
        Format::Json => document.to_json(),
        Format::Table => table::render(&document),
    };
    Ok(Output { text, code: if document.is_complete() { 0 } else { 3 } })
}

/// The document alone.
///
/// Errors: input that cannot be read at all.
pub fn document_of(arguments: &Arguments<'_>) -> Result<Document, CommandError> {
    let Arguments { files, format: _, levels, scheduler_names, catalogue, now, policy } = arguments;
    let options = Options {
        levels: (!levels.is_empty()).then(|| levels.clone()),
        scheduler_names: scheduler_names.clone(),
        catalogue: catalogue.as_ref().map_or_else(|| Ok(Catalogue::built_in()), Catalogue::read)?,
        now: now.map(|text| text.parse::<Timestamp>().map_err(|_| CommandError::Now(text.to_owned()))).transpose()?,
        policy: policy.as_ref().map_or_else(|| Ok(Policy::default()), read_policy)?,
    };
    Ok(plan::plan(dump::read(files)?, &options)?)
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
    placement: muster_core::plan::Placement,
    elastic: muster_core::plan::Elastic,
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
