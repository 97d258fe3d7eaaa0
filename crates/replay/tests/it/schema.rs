//! Every document is one that the published schema allows, by a small validator of the words the schema uses.

use muster_replay::command;
use serde_json::{Value, json};

use crate::support::{document, dump, names};

/// Checks `value` against `schema`, whose references lead into `root`.
///
/// Errors: path and rule. A word of the schema that is not known here fails, so that no rule is passed over.
fn validate(root: &Value, schema: &Value, value: &Value, path: &str) -> Result<(), String> {
    let Some(rules) = schema.as_object() else {
        return if schema == &json!(true) { Ok(()) } else { Err(format!("{path}: nothing is allowed")) };
    };
    for (word, rule) in rules {
        let failed = |what: String| Err(format!("{path}: {what}, not {value}"));
        match word.as_str() {
            "$schema" | "title" | "description" | "format" | "$defs" | "default" => {}
            "$ref" => {
                let target = rule.as_str().unwrap().trim_start_matches('#');
                validate(
                    root,
                    root.pointer(target).ok_or_else(|| format!("{path}: {rule} leads nowhere"))?,
                    value,
                    path,
                )?;
            }
            "const" if value != rule => return failed(format!("const {rule}")),
            "enum" if !rule.as_array().unwrap().contains(value) => return failed(format!("one of {rule}")),
            "const" | "enum" => {}
            "type" => {
                let types: Vec<&str> = match rule {
                    Value::Array(list) => list.iter().filter_map(Value::as_str).collect(),
                    other => vec![other.as_str().unwrap()],
                };
                let is = |kind: &&str| match *kind {
                    "null" => value.is_null(),
                    "string" => value.is_string(),
                    "integer" => value.is_i64() || value.is_u64(),
                    "number" => value.is_number(),
                    "array" => value.is_array(),
                    "object" => value.is_object(),
                    "boolean" => value.is_boolean(),
                    other => panic!("type {other} is not known to the test"),
                };
                if !types.iter().any(is) {
                    return failed(format!("type {rule}"));
                }
            }
            "minimum" if value.as_f64().is_some_and(|number| number < rule.as_f64().unwrap()) => {
                return failed(format!("at least {rule}"));
            }
            "maximum" if value.as_f64().is_some_and(|number| number > rule.as_f64().unwrap()) => {
                return failed(format!("at most {rule}"));
            }
            "minimum" | "maximum" => {}
            "required" => {
                let missing = rule.as_array().unwrap().iter().find(|key| value.get(key.as_str().unwrap()).is_none());
                if let Some(key) = missing.filter(|_| value.is_object()) {
                    return failed(format!("key {key}"));
                }
            }
            "properties" => {
                for (key, rule) in rule.as_object().unwrap() {
                    if let Some(value) = value.get(key) {
                        validate(root, rule, value, &format!("{path}.{key}"))?;
                    }
                }
            }
            "additionalProperties" => {
                assert_eq!(rule, &json!(false));
                let known = rules.get("properties").and_then(Value::as_object).unwrap();
                let unknown = value.as_object().into_iter().flatten().find(|(key, _)| !known.contains_key(*key));
                if let Some((key, _)) = unknown {
                    return failed(format!("no key {key}"));
                }
            }
            "items" => {
                for (index, item) in value.as_array().into_iter().flatten().enumerate() {
                    validate(root, rule, item, &format!("{path}[{index}]"))?;
                }
            }
            "anyOf" | "oneOf" => {
                let fits =
                    rule.as_array().unwrap().iter().filter(|rule| validate(root, rule, value, path).is_ok()).count();
                if fits == 0 || (word == "oneOf" && fits > 1) {
                    return failed(format!("{word} with {fits} fits"));
                }
            }
            other => panic!("{path}: the word {other} of the schema is not known to the test"),
        }
    }
    Ok(())
}

fn schema() -> Value {
    serde_json::from_str(&command::schema()).unwrap()
}

#[test]
fn every_document_is_allowed_by_the_schema() {
    let schema = schema();
    for name in names() {
        validate(&schema, &schema, &document(&dump(&name)), "$").unwrap_or_else(|error| panic!("{name}: {error}"));
    }
}

#[test]
fn the_schema_refuses_a_missing_key_an_unknown_key_and_an_unknown_code() {
    let schema = schema();
    let good = document(&dump("refused"));
    let refuses = |change: &dyn Fn(&mut Value)| {
        let mut bad = good.clone();
        change(&mut bad);
        assert!(validate(&schema, &schema, &bad, "$").is_err(), "{bad}");
    };
    refuses(&|document| {
        document.as_object_mut().unwrap().remove("catalogue");
    });
    refuses(&|document| document["more"] = json!(1));
    refuses(&|document| document["version"] = json!(1));
    refuses(&|document| document["gangs"][0]["gap"] = json!(1));
    refuses(&|document| document["gangs"][0]["reasons"][0]["code"] = json!("Perhaps"));
    refuses(&|document| document["gangs"][0]["outcome"] = json!("maybe"));
}

#[test]
fn every_key_is_required() {
    fn look(schema: &Value, path: &str) {
        match schema {
            Value::Object(rules) => {
                if let Some(properties) = rules.get("properties").and_then(Value::as_object) {
                    let required = rules["required"].as_array().unwrap();
                    for key in properties.keys() {
                        assert!(required.contains(&json!(key)), "{path}.{key} may be absent");
                    }
                    assert_eq!(rules["additionalProperties"], json!(false), "{path}");
                }
                rules.iter().for_each(|(key, rule)| look(rule, &format!("{path}.{key}")));
            }
            Value::Array(list) => list.iter().for_each(|rule| look(rule, path)),
            _ => {}
        }
    }
    look(&schema(), "$");
}
