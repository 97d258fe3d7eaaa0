//! Planning a plan that was carried out changes nothing.

use serde_json::Value;

use crate::support::{document, dump, names};

/// Binds in the dump what the document plans on nodes that exist.
fn apply(objects: &mut [Value], plan: &Value) {
    let mut nodes: Vec<(String, String, String)> = Vec::new();
    let mut note = |namespace: &Value, name: &Value, node: &Value| {
        if let (Some(namespace), Some(name), Some(node)) = (namespace.as_str(), name.as_str(), node.as_str()) {
            nodes.push((namespace.to_owned(), name.to_owned(), node.to_owned()));
        }
    };
    for gang in plan["gangs"].as_array().unwrap() {
        for member in gang["members"].as_array().unwrap() {
            note(&gang["namespace"], &member["pod"], &member["node"]);
        }
    }
    for pod in plan["pods"].as_array().unwrap() {
        note(&pod["namespace"], &pod["name"], &pod["node"]);
    }
    for object in objects.iter_mut() {
        if let Some(items) = object.get_mut("items").and_then(Value::as_array_mut) {
            apply(items, plan);
        } else if object["kind"] == "Pod" {
            let namespace = object["metadata"]["namespace"].as_str().unwrap_or("default").to_owned();
            let name = object["metadata"]["name"].as_str().unwrap_or_default().to_owned();
            if let Some((_, _, node)) = nodes.iter().find(|(of, pod, _)| *of == namespace && *pod == name) {
                object["spec"]["nodeName"] = Value::from(node.as_str());
                object["spec"].as_object_mut().unwrap().remove("schedulingGates");
                object["status"]["phase"] = Value::from("Running");
            }
        }
    }
}

#[test]
fn a_plan_that_was_carried_out_places_nothing_new() {
    let mut placed = 0;
    for name in names() {
        let text = dump(&name);
        let first = document(&text);
        let provisioned = first["gangs"].as_array().unwrap().iter().any(|gang| gang["outcome"] == "buy");
        let unborn = first["gangs"]
            .as_array()
            .unwrap()
            .iter()
            .any(|gang| gang["members"].as_array().unwrap().iter().any(|member| member["pod"].is_null()));
        if provisioned || unborn {
            continue;
        }
        let mut objects: Vec<Value> = serde_saphyr::from_multiple(&text).unwrap();
        apply(&mut objects, &first);
        let applied: String = objects.iter().map(|object| format!("{object}\n")).collect();
        let second = document(&applied);
        let places = |document: &Value, state: &str| -> Vec<(String, String)> {
            let gangs = document["gangs"].as_array().unwrap();
            let members = gangs.iter().flat_map(|gang| gang["members"].as_array().unwrap());
            let of_state = members.filter(|member| state.is_empty() || member["state"] == state);
            of_state.map(|member| (member["pod"].to_string(), member["node"].to_string())).collect()
        };
        assert!(places(&second, "planned").is_empty(), "{name}");
        let (mut before, mut after) = (places(&first, ""), places(&second, ""));
        before.sort();
        after.sort();
        assert_eq!(before, after, "{name}");
        placed += before.len();
    }
    assert!(placed > 10, "only {placed} members: the dumps no longer show anything");
}
