//! An outside judge of the published document: it reads the dump itself, shares no code with the planner, and on small
//! dumps tries every placement.

mod cluster;
mod draw;
mod verdict;

use muster_replay::command::Format;
use serde_json::Value;

use crate::support::{dump, names, run};

/// Judges what the command says about objects; the list of faults.
fn judge(objects: &[Value]) -> Vec<String> {
    let text: String = objects.iter().map(|object| format!("{object}\n")).collect();
    let output = run(&text, Format::Json).unwrap();
    let document: Value = serde_json::from_str(&output.text).unwrap();
    verdict::faults(objects, &document, output.code)
}

fn items(text: &str) -> Vec<Value> {
    let documents: Vec<Value> = serde_saphyr::from_multiple(text).unwrap();
    let mut found = Vec::new();
    for document in documents {
        match document.get("items").and_then(Value::as_array) {
            Some(items) => found.extend(items.iter().cloned()),
            None => found.push(document),
        }
    }
    found
}

#[test]
fn random_dumps_are_planned_so_that_the_judge_finds_no_fault() {
    let (mut placed, mut refused) = (0, 0);
    for seed in 0..240 {
        let objects = draw::dump(seed);
        let faults = judge(&objects);
        assert!(faults.is_empty(), "seed {seed}:\n{}\n{}", faults.join("\n"), serde_json::json!(objects));
        let text: String = objects.iter().map(|object| format!("{object}\n")).collect();
        let document: Value = serde_json::from_str(&run(&text, Format::Json).unwrap().text).unwrap();
        for gang in document["gangs"].as_array().unwrap() {
            placed += usize::from(gang["outcome"] == "placed");
            refused += usize::from(gang["outcome"] == "refused");
        }
    }
    assert!(placed > 150 && refused > 60, "{placed} placed and {refused} refused show too little");
}

#[test]
fn the_judge_finds_no_fault_with_the_golden_dumps() {
    for name in names() {
        let objects = items(&dump(&name));
        // A judge knows what pods say; pods that do not exist yet are others' business.
        if objects.iter().any(|object| object["kind"] != "Node" && object["kind"] != "Pod") {
            continue;
        }
        if name == "bad" || name == "documents" || name == "usage" {
            continue;
        }
        let faults = judge(&objects);
        assert!(faults.is_empty(), "{name}:\n{}", faults.join("\n"));
    }
}

#[test]
fn a_change_that_is_named_makes_the_gang_fit() {
    let mut proven = 0;
    for seed in 0..400 {
        let objects = draw::dump(seed);
        let text: String = objects.iter().map(|object| format!("{object}\n")).collect();
        let document: Value = serde_json::from_str(&run(&text, Format::Json).unwrap().text).unwrap();
        let gangs = document["gangs"].as_array().unwrap();
        let Some(index) = gangs.iter().position(|gang| gang["outcome"] == "refused") else { continue };
        for reason in gangs[index]["reasons"].as_array().unwrap() {
            let Some(change) = reason["change"].as_str() else { continue };
            let Some(changed) = draw::apply(&objects, change) else { continue };
            let text: String = changed.iter().map(|object| format!("{object}\n")).collect();
            let after: Value = serde_json::from_str(&run(&text, Format::Json).unwrap().text).unwrap();
            let same = |gang: &&Value| gang["name"] == gangs[index]["name"];
            let outcome = &after["gangs"].as_array().unwrap().iter().find(same).unwrap()["outcome"];
            assert_eq!(outcome, "placed", "seed {seed}: {change}\n{text}");
            proven += 1;
        }
    }
    assert!(proven > 10, "only {proven} changes were tried");
}

#[test]
fn the_judge_finds_what_is_wrong_with_a_spoilt_document() {
    let objects = items(&dump("leaf"));
    let text = dump("leaf");
    let document: Value = serde_json::from_str(&run(&text, Format::Json).unwrap().text).unwrap();
    assert!(verdict::faults(&objects, &document, 0).is_empty());
    let spoilt = |change: &dyn Fn(&mut Value)| {
        let mut document = document.clone();
        change(&mut document);
        assert!(!verdict::faults(&objects, &document, 0).is_empty(), "{document:#}");
    };
    spoilt(&|document| document["gangs"][0]["members"][1]["node"] = document["gangs"][0]["members"][0]["node"].clone());
    spoilt(&|document| document["gangs"][0]["members"][1]["node"] = "nowhere".into());
    spoilt(&|document| document["gangs"][0]["members"][1]["rank"] = 7.into());
    spoilt(&|document| document["gangs"][0]["levels"][4]["used"] = 1.into());
    spoilt(&|document| document["gangs"][0]["levels"][0]["optimum"] = 2.into());
    spoilt(&|document| document["gangs"][0]["outcome"] = "refused".into());
    assert!(!verdict::faults(&objects, &document, 3).is_empty());
}
