//! Fields that a NodePool or an EC2NodeClass does not have: the API server drops them, and whoever misspelt one believes in it.

use std::sync::LazyLock;

use muster_api::crd;
use muster_core::reason::bounded;
use serde_json::Value;

/// Most fields that are named of one object, and characters of each path and value.
const SHOWN: usize = 8;
const LONGEST: usize = 80;

static POOL: LazyLock<Value> = LazyLock::new(|| schema(POOL_KIND));
static CLASS: LazyLock<Value> = LazyLock::new(|| schema("EC2NodeClass"));

const POOL_KIND: &str = "NodePool";

fn schema(kind: &str) -> Value {
    let all = crd::all().into_iter().map(|(_, one)| one);
    let version = all.filter(|one| one.spec.names.kind == kind).flat_map(|one| one.spec.versions).next();
    let version = version.and_then(|version| version.schema);
    let spec = version.and_then(|schema| schema.open_api_v3_schema?.properties?.remove("spec"));
    serde_json::to_value(spec).unwrap_or_default()
}

/// Those in the `spec` of an object, in a line; `None` without any.
pub(super) fn fields(kind: &str, object: &Value) -> Option<String> {
    let schema = if kind == POOL_KIND { &*POOL } else { &*CLASS };
    let mut found = Vec::new();
    look(&object["spec"], schema, "spec", &mut found);
    let more = found.len().saturating_sub(SHOWN);
    found.truncate(SHOWN);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    (!found.is_empty()).then(|| format!("{}{more}: no field of {kind}, and dropped; the rest counts", found.join(", ")))
}

fn look(value: &Value, schema: &Value, path: &str, found: &mut Vec<String>) {
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                let path = format!("{path}.{name}");
                match (&schema["properties"][name], &schema["additionalProperties"]) {
                    (known @ Value::Object(_), _) | (Value::Null, known @ Value::Object(_)) => {
                        look(value, known, &path, found);
                    }
                    // What has no list of fields takes any.
                    (_, _) if schema["properties"].is_object() => {
                        found.push(format!("{}: `{}`", bounded(&path, LONGEST), bounded(&value.to_string(), LONGEST)));
                    }
                    (_, _) => {}
                }
            }
        }
        Value::Array(items) => {
            for (index, item) in items.iter().enumerate() {
                look(item, &schema["items"], &format!("{path}[{index}]"), found);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}
