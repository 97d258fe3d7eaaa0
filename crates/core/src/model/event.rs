//! What people see with `kubectl describe`.

use serde::Serialize;

/// An event on one of our objects.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct GangEvent {
    /// One word.
    pub reason: &'static str,
    /// A sentence.
    pub message: String,
    /// Something is wrong.
    pub warning: bool,
}
