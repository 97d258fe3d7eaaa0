//! The JSON Schema of the overview.

use schemars::generate::SchemaSettings;

use crate::overview::Overview;

/// The JSON Schema (draft 2020-12) of [`Overview`], as text.
#[must_use]
pub fn text() -> String {
    let schema = SchemaSettings::draft2020_12().for_serialize().into_generator().into_root_schema_for::<Overview>();
    let mut text = serde_json::to_string_pretty(&schema).expect("a schema is JSON, with strings as keys");
    text.push('\n');
    text
}
