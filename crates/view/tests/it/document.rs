//! The overview as a document.

use muster_core::gang::Settings;
use muster_replay::command::Arguments;
use muster_replay::dump::Input;
use muster_replay::record::{self, Record};
use serde_json::{Value, json};

use crate::support::{agreed, dump, dumps, overview, package};

#[test]
fn the_schema_is_the_published_one() {
    agreed("../../docs/reference/overview.schema.json", &muster_view::schema::text());
}

#[test]
fn every_dump_has_an_overview_with_every_key_of_the_schema_and_no_other() {
    let schema: Value = serde_json::from_str(&muster_view::schema::text()).unwrap();
    for (name, text) in dumps() {
        let document: Value = serde_json::from_str(&overview(&text).to_json()).unwrap();
        keys(&schema, &schema, &document, &name);
    }
}

/// A recording of a cluster in which there is nothing, and of which these kinds could not be listed.
fn empty_recording(excluded: &[&str]) -> String {
    let head = Record {
        time: "2026-11-22T12:00:00Z".parse().unwrap(),
        version: "0.1.0".to_owned(),
        levels: None,
        scheduler_names: Vec::new(),
        provisioner_scheduler_names: Vec::new(),
        excluded: excluded.iter().map(ToString::to_string).collect(),
        policy: Settings::new("muster.dev/gang-pending").policy.into(),
    };
    record::render(&head, Vec::new())
}

#[test]
fn input_that_holds_nothing_of_a_cluster_is_refused_and_a_recording_of_an_empty_cluster_is_shown() {
    let read = |text: &str| {
        let files = vec![Input { name: "dump.yaml", text }];
        muster_view::of_texts(&Arguments { files, ..Arguments::default() })
    };
    let refused = read(r#"{"kind": "ConfigMap", "apiVersion": "v1"}"#).unwrap_err().to_string();
    assert!(refused.contains("muster record"), "{refused}");
    assert_eq!(read(&empty_recording(&[])).unwrap().summary.nodes, 0);
}

#[test]
fn kinds_that_could_not_be_listed_are_named_wherever_the_overview_is_shown() {
    let overview = overview(&empty_recording(&["gangs", "nodebatches"]));
    assert_eq!(overview.excluded, ["gangs", "nodebatches"]);
    let line = "not shown, without the permission to list them: gangs, nodebatches";
    assert!(muster_view::plain::text(&overview).contains(line));
    let frame = muster_view::page::Frame::default();
    assert!(muster_view::page::html(&overview, &frame).contains(line));
}

#[test]
fn one_namespace_has_its_gangs_alone_and_the_nodes_of_everybody() {
    let text = format!("{}\n---\n{}", dump("growth"), dump("refused").replace("namespace: team-a", "namespace: ml"));
    let all = overview(&text);
    assert!(all.gangs.iter().any(|gang| gang.namespace == "ml"), "{:?}", all.gangs);
    let one = all.clone().of_namespace("team-a");
    assert!(!one.gangs.is_empty() && one.gangs.len() < all.gangs.len());
    assert!(one.gangs.iter().all(|gang| gang.namespace == "team-a"));
    assert_eq!(one.nodes.len(), all.nodes.len());
    for (before, after) in all.nodes.iter().zip(&one.nodes) {
        let names = |of: &[usize], gangs: &[muster_view::overview::GangEntry]| {
            of.iter().map(|index| (gangs[*index].namespace.clone(), gangs[*index].name.clone())).collect::<Vec<_>>()
        };
        let mut kept = names(&before.gangs, &all.gangs);
        kept.retain(|(namespace, _)| namespace == "team-a");
        assert_eq!(names(&after.gangs, &one.gangs), kept, "{}", after.name);
    }
}

/// The overview of one golden NodeBatch, ten days after its bill was summed up last.
fn ten_days_later(name: &str) -> muster_view::Overview {
    let golden = |path: String| -> Value {
        serde_json::from_str(
            &std::fs::read_to_string(package().join("../../tests/golden/nodebatch").join(path)).unwrap(),
        )
        .unwrap()
    };
    let batch = golden(format!("{name}.json"));
    let text = json!({"apiVersion": "v1", "kind": "List", "items": [batch]}).to_string();
    let since: jiff::Timestamp = batch["status"]["billing"]["since"].as_str().unwrap().parse().unwrap();
    let now = (since + jiff::SignedDuration::from_hours(240)).to_string();
    let files = vec![Input { name: "dump.yaml", text: &text }];
    muster_view::of_texts(&Arguments { files, now: Some(&now), ..Arguments::default() }).unwrap()
}

#[test]
fn what_runs_costs_until_now_and_not_until_its_bill_was_summed_up_last() {
    let of_batches = ten_days_later("in-use");
    let (summary, batch) = (&of_batches.summary, &of_batches.batches[0]);
    assert_eq!(summary.usd_micro_per_hour, 110_080_000);
    assert_eq!(batch.spent_usd_micro, 4_886_970 + 240 * 110_080_000);
    assert_eq!(batch.stranded_usd_micro, 4_886_970, "its gang ran");
    assert_eq!(
        (summary.spent_usd_micro, summary.stranded_usd_micro),
        (batch.spent_usd_micro, batch.stranded_usd_micro)
    );
}

#[test]
fn what_a_gang_has_cost_is_what_its_batches_have_cost_until_now() {
    let text = std::fs::read_to_string(package().join("../viewer/recordings/tour.json")).unwrap();
    let files = || vec![Input { name: "tour.json", text: &text }];
    let at = |now: &str| {
        let arguments = Arguments { files: files(), now: Some(now), ..Arguments::default() };
        muster_view::of_texts(&arguments).unwrap()
    };
    let (recorded, later) = (at("2026-11-22T21:33:34Z"), at("2026-11-23T07:33:34Z"));
    for gang in &later.gangs {
        let key = format!("{}/{}", gang.namespace, gang.object);
        let own = later.batches.iter().filter(|batch| batch.owner.as_ref() == Some(&key));
        assert_eq!(gang.spent_usd_micro, own.map(|batch| batch.spent_usd_micro).sum::<u64>(), "{key}");
        let before = recorded.gangs.iter().find(|before| before.object == gang.object).unwrap();
        assert!(gang.spent_usd_micro > before.spent_usd_micro + 10 * 400_000_000, "ten hours of eight nodes");
    }
}

#[test]
fn a_batch_that_waits_for_capacity_costs_nothing_per_hour() {
    let waits = ten_days_later("pending-back-off");
    let batch = &waits.batches[0];
    assert_eq!((batch.usd_micro_per_hour, batch.spent_usd_micro, batch.stranded_usd_micro), (0, 0, 0));
    assert_eq!(waits.summary.usd_micro_per_hour, 0);
}

/// Holds keys against the schema, down to the leaves.
fn keys(root: &Value, schema: &Value, value: &Value, path: &str) {
    let target = schema.get("$ref").and_then(Value::as_str).map(|target| target.trim_start_matches('#'));
    let schema = target.map_or(schema, |target| root.pointer(target).unwrap());
    if let (Some(properties), Some(object)) = (schema.get("properties").and_then(Value::as_object), value.as_object()) {
        let known: Vec<&String> = properties.keys().collect();
        assert!(object.keys().all(|key| known.contains(&key)), "{path}: {object:?}");
        for (key, rule) in properties {
            let found = object.get(key).unwrap_or_else(|| panic!("{path}.{key} is missing"));
            keys(root, rule, found, &format!("{path}.{key}"));
        }
    }
    if let (Some(items), Some(list)) = (schema.get("items"), value.as_array()) {
        for (index, item) in list.iter().enumerate() {
            keys(root, items, item, &format!("{path}[{index}]"));
        }
    }
}

#[test]
fn accelerators_of_the_tree_add_up_to_those_of_the_summary() {
    for (name, text) in dumps() {
        let overview = overview(&text);
        let top = overview.children(None).fold((0, 0, 0), |sum, (_, domain)| {
            let of = domain.accelerators;
            (sum.0 + of.total, sum.1 + of.used, sum.2 + of.free)
        });
        let all = overview.summary.accelerators;
        if !overview.domains.is_empty() {
            assert_eq!(top, (all.total, all.used, all.free), "{name}");
        }
        for (index, domain) in overview.domains.iter().enumerate() {
            let below: u32 = overview.children(Some(index)).map(|(_, child)| child.nodes).sum();
            let own = u32::try_from(overview.hosts(Some(index)).count()).unwrap();
            assert_eq!(below + own, domain.nodes, "{name}: {}", domain.path);
        }
    }
}

#[test]
fn a_refused_gang_has_a_headline_and_numbered_remedies() {
    let overview = overview(&dump("refused"));
    let gang = &overview.gangs[0];
    assert!(gang.waiting);
    assert!(gang.headline.starts_with("waits: needs capacity for 4 members in one layer-3"), "{}", gang.headline);
    let widen = "Change muster.dev/topology-required to layer-2";
    assert!(gang.remedies.iter().any(|remedy| remedy.text == widen), "{:?}", gang.remedies);
    assert!(!gang.headline.contains("topology.k8s.aws"), "levels have names: {}", gang.headline);
}

#[test]
fn plain_text_of_every_dump_is_what_was_agreed_on() {
    let shown: Vec<String> = ["refused", "buy", "running"]
        .into_iter()
        .map(|name| format!("== {name}\n{}", muster_view::plain::text(&overview(&dump(name)))))
        .collect();
    agreed("tests/screens/plain.txt", &shown.join("\n"));
}

#[test]
fn wide_text_of_every_dump_has_more_columns_and_every_attempt() {
    let shown: Vec<String> = ["refused", "buy", "running"]
        .into_iter()
        .map(|name| format!("== {name}\n{}", muster_view::plain::wide(&overview(&dump(name)))))
        .collect();
    agreed("tests/screens/wide.txt", &shown.join("\n"));
}
