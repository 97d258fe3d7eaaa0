//! Every remedy that `explain` prints helps: its data is applied to the dump, as a person would, and the gang is planned again.

use std::path::PathBuf;

use muster_replay::command::{self, Arguments, Format};
use muster_replay::dump::Input;
use muster_replay::explain::Target;
use serde_json::Value;

use crate::support::{document, folder};

mod apply;

/// Folders of dumps: those of every test of this crate, and gangs that are refused each for a reason of its own.
fn dumps() -> Vec<PathBuf> {
    let folders = [folder(), folder().with_file_name("remedies")];
    let files = folders.iter().flat_map(|folder| std::fs::read_dir(folder).unwrap());
    let mut files: Vec<PathBuf> = files.map(|entry| entry.unwrap().path()).collect();
    files.retain(|path| path.extension().is_some_and(|extension| extension == "yaml"));
    files.sort();
    files
}

/// All objects of a dump.
fn objects(text: &str) -> Vec<Value> {
    let documents: Vec<Value> = serde_saphyr::from_multiple(text).unwrap();
    let items = |document: Value| match document.get("items").and_then(Value::as_array) {
        Some(items) => items.clone(),
        None => vec![document],
    };
    documents.into_iter().flat_map(items).filter(|object| !object.is_null()).collect()
}

fn text(objects: &[Value]) -> String {
    objects.iter().map(|object| format!("{object}\n")).collect()
}

fn explained(text: &str, entry: &Value, format: Format) -> String {
    let target = Target::Gang {
        namespace: entry["namespace"].as_str().unwrap().to_owned(),
        name: entry["name"].as_str().unwrap().to_owned(),
    };
    let arguments = Arguments { files: vec![Input { name: "dump.yaml", text }], format, ..Arguments::default() };
    command::explain(&arguments, &target).unwrap().text
}

/// What becomes of a gang.
fn planned(objects: &[Value], entry: &Value) -> Value {
    let document = document(&text(objects));
    let same = |gang: &&Value| gang["namespace"] == entry["namespace"] && gang["name"] == entry["name"];
    let found = document["gangs"].as_array().unwrap().iter().find(same).cloned();
    found.unwrap_or_else(|| panic!("{} is gone: {}", entry["name"], document["gangs"]))
}

/// One remedy of one gang of one dump.
struct Case {
    dump: String,
    objects: Vec<Value>,
    gang: Value,
    text: String,
    remedy: Value,
}

fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for path in dumps() {
        let dump = path.file_stem().unwrap().to_str().unwrap().to_owned();
        let source = std::fs::read_to_string(&path).unwrap();
        let gangs = document(&source)["gangs"].as_array().unwrap().clone();
        for gang in gangs.into_iter().filter(|gang| !["placed", "buy"].contains(&gang["outcome"].as_str().unwrap())) {
            let reported: Value = serde_json::from_str(&explained(&source, &gang, Format::Json)).unwrap();
            let text = explained(&source, &gang, Format::Table);
            for remedy in reported["remedies"].as_array().unwrap().clone() {
                let (dump, gang, text) = (dump.clone(), gang.clone(), text.clone());
                cases.push(Case { dump, objects: objects(&source), gang, text, remedy });
            }
        }
    }
    cases
}

#[test]
fn every_numbered_remedy_makes_the_gang_fit_or_says_what_it_alone_takes_away() {
    let cases = cases();
    let mut wrong = Vec::new();
    for Case { dump, objects, gang, text, remedy } in &cases {
        for changed in apply::all(objects, gang, &remedy["change"]) {
            let after = planned(&changed, gang);
            let fits = ["placed", "buy"].contains(&after["outcome"].as_str().unwrap());
            let gone = || {
                let left: Vec<&Value> =
                    after["reasons"].as_array().unwrap().iter().map(|reason| &reason["code"]).collect();
                remedy["codes"].as_array().unwrap().iter().all(|code| !left.contains(&code))
            };
            let enough = remedy["enough"].as_bool().unwrap();
            let stated = text.contains("; whether the gang fits is planned after it:");
            if !(fits || !enough && stated && gone()) {
                wrong.push(format!("{dump}: {}\n{}\n{}", gang["name"], remedy, after["reasons"]));
            }
        }
    }
    assert!(wrong.is_empty(), "{} of {}:\n{}", wrong.len(), cases.len(), wrong.join("\n\n"));
    let kinds: std::collections::BTreeSet<&str> = cases
        .iter()
        .flat_map(|case| case.remedy["change"].as_array().unwrap())
        .map(|step| step["kind"].as_str().unwrap())
        .collect();
    assert!(kinds.len() >= 20, "{kinds:?}");
}

#[test]
fn there_are_twenty_gangs_that_are_refused_beside_those_of_the_other_tests() {
    let folder = folder().with_file_name("remedies");
    let (mut files, mut placed) = (0, Vec::new());
    for path in std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
        let gangs = document(&std::fs::read_to_string(&path).unwrap())["gangs"].as_array().unwrap().clone();
        if !gangs.iter().any(|gang| gang["outcome"] == "refused" || gang["outcome"] == "waiting") {
            placed.push(path);
        }
        files += 1;
    }
    assert!(placed.is_empty(), "{placed:?}");
    assert!(files >= 20, "{files}");
}

/// To end one member would end its gang: whole gangs are nobody's capacity to be freed.
#[test]
fn members_of_other_gangs_are_not_proposed_to_be_deleted_and_pods_of_no_gang_in_their_place_are() {
    let path = folder().with_file_name("remedies").join("running.yaml");
    let source = std::fs::read_to_string(path).unwrap();
    let kinds = |source: &str| -> Vec<String> {
        let document = document(source);
        let gang = document["gangs"].as_array().unwrap().iter().find(|gang| gang["name"] == "train").unwrap();
        let reported: Value = serde_json::from_str(&explained(source, gang, Format::Json)).unwrap();
        let steps = reported["remedies"].as_array().unwrap().iter().flat_map(|one| one["change"].as_array().unwrap());
        steps.map(|step| step["kind"].as_str().unwrap().to_owned()).collect()
    };
    assert!(!kinds(&source).contains(&"endPods".to_owned()), "{:?}", kinds(&source));
    let single = source
        .replace(r#""muster.dev/gang": "other", "#, "")
        .replace(r#""schedulerName": "muster", "nodeName""#, r#""nodeName""#);
    assert!(kinds(&single).contains(&"endPods".to_owned()), "{:?}", kinds(&single));
}

#[test]
fn the_sentence_and_the_data_of_a_remedy_name_the_same() {
    for Case { dump, remedy, .. } in cases() {
        let sentence = remedy["text"].as_str().unwrap();
        for step in remedy["change"].as_array().unwrap() {
            for named in ["pool", "resource", "taint", "level", "instanceType", "gate", "request", "name"] {
                // A ceiling over all pools is that of none.
                if (named, &step["scope"]) == ("pool", &Value::from("cluster")) {
                    continue;
                }
                if let Some(named) = step[named].as_str() {
                    assert!(sentence.contains(named), "{dump}: {named} is not in {sentence:?}");
                }
            }
            for node in step["nodes"].as_array().into_iter().flatten() {
                assert!(sentence.contains(node.as_str().unwrap()), "{dump}: {node} is not in {sentence:?}");
            }
        }
    }
}

/// `BLESS=1` rewrites the file.
#[test]
fn every_refused_gang_is_explained_as_was_agreed_on() {
    let mut shown = String::new();
    for path in dumps().into_iter().filter(|path| path.parent().is_some_and(|folder| folder.ends_with("remedies"))) {
        let source = std::fs::read_to_string(&path).unwrap();
        let gangs = document(&source)["gangs"].as_array().unwrap().clone();
        for gang in gangs.iter().filter(|gang| !["placed", "buy"].contains(&gang["outcome"].as_str().unwrap())) {
            let dump = path.file_stem().unwrap().to_str().unwrap();
            let text = explained(&source, gang, Format::Table);
            // The table of levels is the same everywhere.
            let kept = text.split("\n\n").filter(|part| !part.starts_with("LEVEL"));
            let text = kept.collect::<Vec<_>>().join("\n");
            shown.extend(["== ", dump, "\n", text.trim_end(), "\n\n"]);
        }
    }
    let path = folder().with_file_name("explained.out");
    if std::env::var_os("BLESS").is_some() {
        std::fs::write(&path, &shown).unwrap();
    }
    assert_eq!(std::fs::read_to_string(&path).unwrap_or_default(), shown, "BLESS=1 writes {} again", path.display());
}
