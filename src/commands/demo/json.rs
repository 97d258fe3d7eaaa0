//! Looking into JSON of others without a type for each.

use jiff::Timestamp;
use serde_json::Value;

/// The text at a JSON pointer, or nothing.
pub(super) fn text<'a>(value: &'a Value, pointer: &str) -> &'a str {
    value.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

/// The number at a JSON pointer, or 0.
pub(super) fn number(value: &Value, pointer: &str) -> u64 {
    value.pointer(pointer).and_then(Value::as_u64).unwrap_or_default()
}

/// The time at a JSON pointer.
pub(super) fn time(value: &Value, pointer: &str) -> Option<Timestamp> {
    text(value, pointer).parse().ok()
}

/// The elements of the array at a JSON pointer, or none.
pub(super) fn items<'a>(value: &'a Value, pointer: &str) -> impl Iterator<Item = &'a Value> {
    value.pointer(pointer).and_then(Value::as_array).into_iter().flatten()
}

/// A member of an object whose name may have slashes.
pub(super) fn member<'a>(value: &'a Value, pointer: &str, name: &str) -> &'a str {
    value.pointer(pointer).and_then(|object| object.get(name)).and_then(Value::as_str).unwrap_or_default()
}
