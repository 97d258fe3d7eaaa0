//! Reads the dumps beside the tests.

use std::path::{Path, PathBuf};

use muster_replay::command::{self, Arguments, CommandError, Format, Output};
use muster_replay::dump::Input;
use serde_json::Value;

/// The folder of the dumps.
pub(crate) fn folder() -> PathBuf {
    // At run time first: two checkouts may share a target folder.
    let package = std::env::var_os("CARGO_MANIFEST_DIR").unwrap_or_else(|| env!("CARGO_MANIFEST_DIR").into());
    Path::new(&package).join("tests/dumps")
}

/// Names of all dumps, in order.
pub(crate) fn names() -> Vec<String> {
    let mut names: Vec<String> = std::fs::read_dir(folder())
        .unwrap()
        .filter_map(|entry| Some(entry.unwrap().file_name().to_str()?.strip_suffix(".yaml")?.to_owned()))
        .collect();
    names.sort();
    names
}

/// A dump's text.
pub(crate) fn dump(name: &str) -> String {
    std::fs::read_to_string(folder().join(format!("{name}.yaml"))).unwrap()
}

/// Runs the command on one text.
pub(crate) fn run(text: &str, format: Format) -> Result<Output, CommandError> {
    command::run(&Arguments {
        files: vec![Input { name: "dump.yaml", text }],
        format,
        scheduler_names: vec!["muster".to_owned()],
        ..Arguments::default()
    })
}

/// The document of one text.
pub(crate) fn document(text: &str) -> Value {
    serde_json::from_str(&run(text, Format::Json).unwrap().text).unwrap()
}
