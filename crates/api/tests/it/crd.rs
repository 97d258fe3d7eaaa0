//! The custom resources as the API server gets them.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking, its helpers too")]

use jiff::Timestamp;
use muster_api::crd::{self, IntOrQuantity, condition, is_true, set_condition};
use muster_api::keys;
use muster_core::ec2;
use serde_json::{Value, json};

/// The schema at a printer column's path.
fn at<'a>(schema: &'a Value, path: &str) -> Option<&'a Value> {
    let mut schema = schema;
    for segment in path.trim_start_matches('.').replace("[?(", "\u{1}").split('.').collect::<Vec<_>>() {
        let (name, list) = segment.split_once('\u{1}').map_or((segment, false), |(name, _)| (name, true));
        // What stands between the brackets of a filter.
        let name = if name.contains("==") { continue } else { name };
        schema = schema.get("properties")?.get(name)?;
        if list {
            schema = schema.get("items")?;
        }
    }
    Some(schema)
}

#[test]
fn every_printer_column_shows_a_field_of_the_schema() {
    let all = crd::all();
    assert_eq!(all.len(), 4);
    for (file, crd) in all {
        let version = &crd.spec.versions[0];
        let schema =
            serde_json::to_value(version.schema.as_ref().unwrap().open_api_v3_schema.as_ref().unwrap()).unwrap();
        for column in version.additional_printer_columns.iter().flatten() {
            if column.json_path.starts_with(".metadata") {
                continue;
            }
            // A filter on conditions names the type; the field behind it is the last segment.
            let path = match column.json_path.split_once("[?(") {
                Some((list, rest)) => format!("{list}[?({}", rest.rsplit_once(")]").unwrap().1),
                None => column.json_path.clone(),
            };
            let found = at(&schema, &path).unwrap_or_else(|| panic!("{file}: no {}", column.json_path));
            let kind = found["type"].as_str().unwrap_or("string");
            assert_eq!(kind, column.type_, "{file}: {}", column.json_path);
        }
    }
}

#[test]
fn the_rules_are_in_the_definitions() {
    for (file, rules) in [
        ("gangs.muster.dev.yaml", vec!["self.spec.min <= self.spec.size"]),
        ("nodebatches.muster.dev.yaml", vec!["self.spec == oldSelf.spec"]),
        ("ec2nodeclasses.muster.dev.yaml", vec!["has(self.spec.role) != has(self.spec.instanceProfile)"]),
        (
            "nodepools.muster.dev.yaml",
            vec![
                "self.group == oldSelf.group && self.kind == oldSelf.kind",
                "self.operator in ['In', 'NotIn']",
                "!has(self.expireAfter) || self.expireAfter == 'Never'",
                "!has(self.terminationGracePeriod)",
                "!has(self.budgets) || size(self.budgets) == 0",
            ],
        ),
    ] {
        let (_, crd) = crd::all().into_iter().find(|(name, _)| name == file).unwrap_or_else(|| panic!("{file}"));
        let text = serde_json::to_string(&crd).unwrap();
        for rule in rules {
            assert!(text.contains(rule), "{file} has no rule {rule}");
        }
        assert_eq!(crd.spec.group, keys::GROUP);
        let version = &crd.spec.versions[0];
        assert!(
            version.subresources.as_ref().is_some_and(|all| all.status.is_some()),
            "{file}: status is a subresource"
        );
    }
}

#[test]
fn the_tags_of_the_core_are_the_keys_of_this_crate() {
    assert_eq!(ec2::TAG_CLUSTER_UID, keys::CLUSTER_UID);
    assert_eq!(ec2::TAG_BATCH, keys::BATCH);
    assert_eq!(ec2::TAG_GANG_UID, keys::GANG_UID);
    assert_eq!(ec2::TAG_ATTEMPT, keys::ATTEMPT);
    assert_eq!(ec2::TAG_CLUSTER_PREFIX, keys::CLUSTER_TAG_PREFIX);
}

#[test]
fn a_condition_keeps_its_time_until_its_status_changes() {
    let times: Vec<Timestamp> = (1..=4).map(|second| Timestamp::from_second(second).unwrap()).collect();
    let mut conditions = Vec::new();
    set_condition(&mut conditions, "Ready", false, "NotYet", "waits", times[0]);
    let first = conditions.clone();
    set_condition(&mut conditions, "Ready", false, "NotYet", "waits", times[1]);
    assert_eq!(conditions, first, "the same twice is no change");
    set_condition(&mut conditions, "Ready", false, "Other", "still", times[2]);
    assert_eq!((conditions[0].reason.as_str(), conditions[0].last_transition_time.0), ("Other", times[0]));
    assert!(!is_true(&conditions, "Ready"));
    set_condition(&mut conditions, "Ready", true, "Done", "", times[3]);
    assert_eq!((conditions.len(), conditions[0].last_transition_time.0), (1, times[3]));
    assert!(is_true(&conditions, "Ready") && !is_true(&conditions, "Other"));
    assert_eq!(condition(&conditions, "Ready").map(|one| one.reason.as_str()), Some("Done"));
    assert_eq!(condition(&conditions, "Other"), None);
}

#[test]
fn a_limit_is_an_integer_or_a_quantity() {
    let read = |value: Value| serde_json::from_value::<IntOrQuantity>(value).map(|read| read.0);
    assert_eq!(read(json!(256)).unwrap(), "256");
    assert_eq!(read(json!(-1)).unwrap(), "-1");
    assert_eq!(read(json!("64Gi")).unwrap(), "64Gi");
    assert!(read(json!(1.5)).is_err());
    assert!(read(json!([])).is_err());
    assert_eq!(serde_json::to_value(IntOrQuantity("64Gi".to_owned())).unwrap(), json!("64Gi"));
}
