//! The examples in the documents are what Muster reads: nothing in them is unknown, missing or refused.

use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{Pod, PodTemplate};
use kube::api::ObjectMeta;
use muster::config::Config;
use muster_api::conventions::{self, Kind, Object, Objects};
use muster_api::convert;
use muster_api::crd::{EC2NodeClass, NodePool, ProvisioningRequest};
use muster_core::model::gang::Membership;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

const DOCUMENTS: [&str; 3] = ["README.md", "docs/operations.md", "docs/user-guide.md"];

/// An example, and where it is.
struct Example {
    place: String,
    text: String,
}

fn examples() -> Vec<Example> {
    let mut found = Vec::new();
    for document in DOCUMENTS {
        let path = muster::testbed::repository().join(document);
        let text = std::fs::read_to_string(&path).unwrap();
        let mut block: Option<Example> = None;
        for (number, line) in text.lines().enumerate() {
            match &mut block {
                None if line == "```yaml" => {
                    block = Some(Example { place: format!("{document}:{}", number + 2), text: String::new() });
                }
                None => {}
                Some(_) if line == "```" => found.extend(block.take()),
                Some(example) => {
                    example.text.push_str(line);
                    example.text.push('\n');
                }
            }
        }
    }
    found
}

/// Objects of one kind, each with the place of its example.
fn objects(kind: &str) -> Vec<(String, Value)> {
    let examples = examples();
    let found: Vec<(String, Value)> = examples
        .iter()
        .filter(|example| example.text.contains("kind:"))
        .flat_map(|example| {
            let objects: Vec<Value> = serde_saphyr::from_multiple(&example.text).unwrap();
            objects.into_iter().map(|object| (example.place.clone(), object))
        })
        .filter(|(_, object)| object["kind"] == kind)
        .collect();
    assert!(!found.is_empty(), "no example of a {kind}");
    found
}

/// Reads an object and makes sure that no field of it was dropped on the way.
#[track_caller]
pub(crate) fn read<T: Serialize + DeserializeOwned>(place: &str, written: &Value) -> T {
    let object: T = serde_json::from_value(written.clone()).unwrap_or_else(|error| panic!("{place}: {error}"));
    let lost = lost(written, &serde_json::to_value(&object).unwrap(), "");
    assert!(lost.is_empty(), "{place}: no such fields: {}", lost.join(", "));
    object
}

/// Paths of fields that were written and not read. `kind` and `apiVersion` are not part of every type.
fn lost(written: &Value, read: &Value, path: &str) -> Vec<String> {
    match written {
        Value::Object(fields) => fields
            .iter()
            .filter(|(key, _)| !(path.is_empty() && (*key == "kind" || *key == "apiVersion")))
            .flat_map(|(key, value)| {
                let path = format!("{path}.{key}");
                read.get(key).map_or_else(|| vec![path.clone()], |read| lost(value, read, &path))
            })
            .collect(),
        Value::Array(items) => items
            .iter()
            .enumerate()
            .flat_map(|(index, value)| {
                let path = format!("{path}[{index}]");
                read.get(index).map_or_else(|| vec![path.clone()], |read| lost(value, read, &path))
            })
            .collect(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => Vec::new(),
    }
}

#[test]
fn every_configuration_is_accepted() {
    let examples: Vec<Example> =
        examples().into_iter().filter(|example| example.text.starts_with("# muster.yaml\n")).collect();
    assert!(!examples.is_empty(), "no example of a configuration");
    for example in examples {
        if let Err(error) = Config::parse(&example.text, &example.place) {
            panic!("{}: {error}", example.place);
        }
    }
}

#[test]
fn pools_classes_and_requests_have_only_fields_that_exist() {
    for (place, object) in objects("NodePool") {
        read::<NodePool>(&place, &object);
    }
    for (place, object) in objects("EC2NodeClass") {
        read::<EC2NodeClass>(&place, &object);
    }
    for (place, object) in objects("ProvisioningRequest") {
        read::<ProvisioningRequest>(&place, &object);
    }
}

#[test]
fn the_pods_of_a_template_can_be_planned() {
    for (place, object) in objects("PodTemplate") {
        let template: PodTemplate = read(&place, &object);
        let shape = convert::shape_of_template("team-a", &template.template.unwrap()).unwrap();
        assert!(shape.unsupported.is_empty(), "{place}: {:?}", shape.unsupported);
    }
}

/// The Job of an example, as the store would hold it.
struct Only(Object);

impl Objects for Only {
    fn by_uid(&self, uid: &str) -> Option<&Object> {
        (self.0.metadata.uid.as_deref() == Some(uid)).then_some(&self.0)
    }

    fn by_name(&self, _: Kind, _: &str, _: &str) -> Option<&Object> {
        None
    }
}

#[test]
fn a_job_is_recognised_as_a_gang_without_anything_invalid() {
    for (place, object) in objects("Job") {
        let mut job: Job = read(&place, &object);
        job.metadata.uid = Some("1f0c9a27-0000-4000-8000-000000000000".to_owned());
        let template = job.spec.as_ref().unwrap().template.clone();
        let owner = serde_json::json!([{
            "apiVersion": "batch/v1", "kind": "Job", "controller": true,
            "name": job.metadata.name, "uid": job.metadata.uid,
        }]);
        let pod = Pod {
            metadata: ObjectMeta {
                name: Some("train-0-abcde".to_owned()),
                namespace: job.metadata.namespace.clone(),
                annotations: template.metadata.clone().and_then(|metadata| metadata.annotations),
                owner_references: serde_json::from_value(owner).unwrap(),
                ..ObjectMeta::default()
            },
            spec: template.spec.clone(),
            ..Pod::default()
        };
        let size = job.spec.as_ref().and_then(|spec| spec.completions).unwrap();
        let recognition =
            conventions::recognise(&pod, &Only(Object::read(&serde_json::to_value(&job).unwrap()).unwrap()));
        let gang = recognition.gang.unwrap_or_else(|| panic!("{place}: not a gang"));
        assert_eq!(gang.invalid, None, "{place}");
        assert_eq!(
            gang.restart_would_fail, None,
            "{place}: it would not survive the loss of a node, and an event warns of it"
        );
        assert_eq!(gang.size.and_then(|size| i32::try_from(size).ok()), Some(size), "{place}");
        assert_eq!(gang.key.to_string(), "team-a/train-1f0c9a27", "{place}: the name the guide shows");
        assert!(matches!(recognition.membership, Membership::Member { .. }), "{place}");
        let shape = convert::shape_of_template("team-a", &template).unwrap();
        assert!(shape.unsupported.is_empty(), "{place}: {:?}", shape.unsupported);
    }
}

#[test]
fn every_convention_and_every_kind_it_reads_is_documented_and_may_be_read() {
    let read = |path: &str| std::fs::read_to_string(muster::testbed::repository().join(path)).unwrap();
    let (guide, rules) = (read("docs/conventions.md"), read("manifests/rbac.yaml"));
    for name in conventions::NAMES {
        assert!(guide.contains(&format!("| `{name}` |")), "docs/conventions.md lacks {name}");
    }
    for kind in Kind::ALL {
        let served = kind.served();
        assert!(guide.contains(served.kind), "docs/conventions.md lacks {}", served.kind);
        assert!(guide.contains(&format!("`{}`", served.group)), "docs/conventions.md lacks {}", served.group);
        assert!(rules.contains(served.group) && rules.contains(served.plural), "rbac.yaml lacks {}", served.plural);
    }
}

#[test]
fn the_page_of_conventions_names_every_key_that_the_admission_policy_looks_for() {
    let folder = muster::testbed::repository();
    let policy = muster::testbed::settings::read_yaml(&folder.join("manifests/admission-policy.yaml")).unwrap();
    let page = std::fs::read_to_string(folder.join("docs/conventions.md")).unwrap();
    let conditions = policy[0]["spec"]["matchConditions"].as_array().unwrap();
    let names = conditions.iter().find(|condition| condition["name"] == "names-its-gang").unwrap();
    // What stands between single quotes is a key, or how one begins.
    let keys: Vec<&str> = names["expression"].as_str().unwrap().split('\'').skip(1).step_by(2).collect();
    assert_eq!(keys.len(), 9, "{keys:?}");
    let (_, rest) = page.split_once("\n## Gated by the admission policy\n").unwrap();
    let (section, _) = rest.split_once("\n## ").unwrap();
    let missing: Vec<&&str> = keys.iter().filter(|key| !section.contains(&format!("`{key}`"))).collect();
    assert!(missing.is_empty(), "docs/conventions.md does not say that these are gated: {missing:?}");
    let listed = section.lines().filter(|line| line.starts_with("- ") || line.starts_with("  "));
    let quoted: usize = listed.map(|line| line.split('`').skip(1).step_by(2).count()).sum();
    assert_eq!(quoted, keys.len(), "docs/conventions.md names others");
}

#[test]
fn every_kind_that_the_page_of_the_server_shows_may_be_listed_by_its_service_account() {
    let roles =
        muster::testbed::settings::read_yaml(&muster::testbed::repository().join("manifests/rbac.yaml")).unwrap();
    let rules: Vec<&Value> = roles.iter().filter_map(|role| role["rules"].as_array()).flatten().collect();
    let has = |rule: &Value, field: &str, word: &str| {
        rule[field].as_array().is_some_and(|all| all.iter().any(|one| one.as_str() == Some(word)))
    };
    for kind in muster_replay::kinds::of_server() {
        let may = |rule: &&&Value| {
            has(rule, "apiGroups", kind.group) && has(rule, "resources", kind.plural) && has(rule, "verbs", "list")
        };
        assert!(rules.iter().any(|rule| may(&rule)), "manifests/rbac.yaml does not let {} be listed", kind.plural);
    }
}
