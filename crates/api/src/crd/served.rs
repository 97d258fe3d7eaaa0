//! Whether the definitions on a cluster know every field of ours. What a definition does not know the API server drops from an object
//! without a word, and with it what was decided:
//! <https://kubernetes.io/docs/tasks/extend-kubernetes/custom-resources/custom-resource-definitions/#field-pruning>

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use serde_json::Value;

/// Where the API server shows the schemas that it has for our kinds. Every authenticated client may read it.
pub const OPENAPI: &str = "/openapi/v3/apis/muster.dev/v1alpha1";

/// What of ours a cluster's definitions do not know, as `NodeBatch.status.used`, one per kind. `openapi`: the answer at [`OPENAPI`].
#[must_use]
pub fn unknown(openapi: &Value) -> Vec<String> {
    super::all().into_iter().filter_map(|(_, definition)| unknown_of(&definition, openapi)).collect()
}

fn unknown_of(definition: &CustomResourceDefinition, openapi: &Value) -> Option<String> {
    let spec = &definition.spec;
    let version = spec.versions.iter().find(|version| version.storage)?;
    let ours = serde_json::to_value(version.schema.as_ref()?.open_api_v3_schema.as_ref()?).ok()?;
    let group: Vec<&str> = spec.group.split('.').rev().collect();
    let name = format!("{}.{}.{}", group.join("."), version.name, spec.names.kind);
    missing(&ours, openapi.pointer(&format!("/components/schemas/{name}"))?, &spec.names.kind)
}

/// Path of the first property that is not served.
fn missing(ours: &Value, served: &Value, at: &str) -> Option<String> {
    if served["x-kubernetes-preserve-unknown-fields"] == true {
        return None;
    }
    let of_properties = ours["properties"].as_object().into_iter().flatten().find_map(|(name, ours)| {
        // Every object has it, and it is described elsewhere.
        if name == "metadata" {
            return None;
        }
        let path = format!("{at}.{name}");
        match served["properties"].get(name) {
            Some(served) => missing(ours, served, &path),
            None => Some(path),
        }
    });
    let below =
        |name: &str, path: String| ours[name].is_object().then(|| missing(&ours[name], &served[name], &path))?;
    of_properties
        .or_else(|| below("items", format!("{at}[]")))
        .or_else(|| below("additionalProperties", format!("{at}.*")))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn openapi() -> Value {
        let schemas = super::super::all().into_iter().map(|(_, definition)| {
            let name = format!("dev.muster.v1alpha1.{}", definition.spec.names.kind);
            let schema = definition.spec.versions[0].schema.clone().unwrap().open_api_v3_schema;
            (name, serde_json::to_value(schema).unwrap())
        });
        json!({"components": {"schemas": schemas.collect::<serde_json::Map<_, _>>()}})
    }

    #[test]
    fn a_field_that_the_definitions_on_a_cluster_do_not_know_is_named_at_any_depth() {
        assert_eq!(unknown(&openapi()), Vec::<String>::new());
        let status = "/components/schemas/dev.muster.v1alpha1.NodeBatch/properties/status/properties";
        for (at, field, named) in [
            (status.to_owned(), "used", "NodeBatch.status.used"),
            (format!("{status}/attempts/items/properties"), "outcome", "NodeBatch.status.attempts[].outcome"),
        ] {
            let mut served = openapi();
            served.pointer_mut(&at).unwrap().as_object_mut().unwrap().remove(field).unwrap();
            assert_eq!(unknown(&served), [named]);
        }
    }

    #[test]
    fn what_a_newer_definition_knows_beside_and_what_is_kept_unseen_is_no_matter() {
        let mut served = openapi();
        let batch = served.pointer_mut("/components/schemas/dev.muster.v1alpha1.NodeBatch/properties/status").unwrap();
        batch["properties"]["later"] = json!({"type": "string"});
        assert_eq!(unknown(&served), Vec::<String>::new());
        let batch = served.pointer_mut("/components/schemas/dev.muster.v1alpha1.NodeBatch/properties/status").unwrap();
        *batch = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
        assert_eq!(unknown(&served), Vec::<String>::new());
        assert_eq!(unknown(&json!({})), Vec::<String>::new(), "a kind that is not served is another matter");
    }
}
