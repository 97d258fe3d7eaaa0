//! The pages of the reference are the tables they are made of, and nothing is named that is in no table.

use std::collections::{BTreeMap, BTreeSet};

use muster::telemetry::table;

use super::source::{self, Source, files, offsets, rust};
use super::{document, nothing, quoted, reasons_of};

#[test]
fn the_page_of_metrics_is_the_table_of_metrics() {
    let page = table::page();
    if std::env::var_os("MUSTER_BLESS").is_some() {
        std::fs::write(std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join(table::PAGE), &page).unwrap();
        return;
    }
    assert!(
        document(&files(), table::PAGE) == page,
        "{} differs from src/telemetry/table.rs; run MUSTER_BLESS=1 cargo test --workspace --test it metrics",
        table::PAGE
    );
}

#[test]
fn no_metric_is_registered_beside_the_table_and_none_is_named_that_is_not_in_it() {
    let files = files();
    let mut found = Vec::new();
    for (path, text) in rust(&files).filter(|(path, _)| path.starts_with("src/")) {
        found.extend(metrics_of(text).into_iter().map(|name| format!("{path} registers {name} beside the table")));
    }
    let known = |word: &str| {
        let ends = ["_bucket", "_sum", "_count"];
        table::TABLE.iter().any(|metric| {
            let rest = word.strip_prefix(metric.name);
            rest.is_some_and(|rest| rest.is_empty() || metric.kind == table::Kind::Histogram && ends.contains(&rest))
        })
    };
    let mut named = 0;
    for (path, text) in &files {
        if path.ends_with(".md") {
            for word in quoted(text)
                .filter_map(|word| word.split('{').next())
                .filter(|word| word.starts_with("muster_") && !word.contains("::"))
            {
                named += 1;
                if !known(word) {
                    found.push(format!("{path} names {word}, which is in no table"));
                }
            }
        }
    }
    assert!(named > 20, "no metric was found in the documents; this rule no longer sees anything");
    nothing(&found, "metrics and src/telemetry/table.rs differ:");
}

#[test]
fn alerts_and_dashboards_name_metrics_and_entries_that_there_are() {
    let files = files();
    let mut found = Vec::new();
    let mut named = 0;
    for (path, text) in files.iter().filter(|(path, _)| path.starts_with("manifests/observability/")) {
        let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
        let metrics = words.filter(|word| word.starts_with("muster_") || word.starts_with("process_"));
        for word in metrics {
            named += 1;
            let of = |metric: &table::Metric| {
                let ends: &[&str] =
                    if metric.kind == table::Kind::Histogram { &["_bucket", "_sum", "_count"] } else { &[""] };
                ends.iter().any(|end| word.strip_suffix(end) == Some(metric.name))
            };
            // A description names a histogram as a whole.
            if !table::TABLE.iter().any(|metric| of(metric) || metric.name == word) {
                found.push(format!("{path}: {word} is in no table"));
            }
        }
    }
    assert!(named > 60, "the queries were not found");
    let rules = document(&files, "manifests/observability/rules.yaml");
    let page = document(&files, muster_core::reason::guide::PAGE);
    let anchors: BTreeSet<String> =
        page.lines().filter_map(|line| line.strip_prefix("### ")).map(str::to_ascii_lowercase).collect();
    let alerts = rules.matches("- alert: ").count();
    let runbooks: Vec<&str> = rules.lines().filter_map(|line| line.trim().strip_prefix("runbook_url: ")).collect();
    assert!(alerts >= 12 && alerts == runbooks.len(), "{alerts} alerts with {} runbooks", runbooks.len());
    for url in runbooks {
        let entry = url.strip_prefix("https://muster.dev/docs/reference/troubleshooting.md#");
        if entry.is_none_or(|entry| !anchors.contains(entry)) {
            found.push(format!("{url} leads to no entry"));
        }
    }
    let tests = document(&files, "manifests/observability/rules-test.yaml");
    for alert in rules.lines().filter_map(|line| line.trim().strip_prefix("- alert: ")) {
        for case in ["fires", "is silent"] {
            if !tests.contains(&format!("- name: {alert} {case}\n")) {
                found.push(format!("{alert} has no case in which it {case}"));
            }
        }
    }
    nothing(&found, "manifests/observability names what is not there:");
}

/// Names given to `register(` as literals.
fn metrics_of(text: &str) -> Vec<String> {
    let source = Source::shipped(text);
    offsets(&source.code, ".register(")
        .filter_map(|at| source::literal_at(&source, at + ".register(".len()))
        .map(str::to_owned)
        .collect()
}

#[test]
fn a_metric_beside_the_table_is_seen_however_its_registration_is_broken_into_lines() {
    let text = "registry.register(\"a\", \"help\", x);\nr.register(\n    \"b_seconds\",\n    \"help\",\n);";
    assert_eq!(metrics_of(text), ["a", "b_seconds"]);
}

#[test]
fn the_troubleshooting_page_is_the_table_and_has_every_word_a_person_meets() {
    use muster_core::reason::guide;
    let files = files();
    let page = document(&files, guide::PAGE);
    assert!(
        page == guide::page(),
        "{} differs from crates/core/src/reason/guide; run `muster explain reason --all > {}`",
        guide::PAGE,
        guide::PAGE
    );
    let known: BTreeSet<&str> = guide::entries().map(|entry| entry.word).collect();
    let folders = ["src/", "crates/core/src/", "crates/api/src/"];
    let mut words: BTreeMap<String, String> = BTreeMap::new();
    for (path, text) in rust(&files).filter(|(path, _)| folders.iter().any(|folder| path.starts_with(folder))) {
        words.extend(reasons_of(text).into_iter().map(|word| (word, path.to_owned())));
    }
    // The tables of the operations manual have the words that no literal of this form brings.
    let manual = document(&files, "docs/operations.md");
    let tables =
        manual.split("\n## Events\n").nth(1).and_then(|rest| rest.split("\n## When something is wrong\n").next());
    for row in tables.unwrap_or_default().lines().filter(|line| line.starts_with("| `") || line.starts_with("| |")) {
        for cell in row.split('|').skip(1).take(2) {
            let camel = |word: &&str| word.len() > 1 && word.starts_with(|c: char| c.is_ascii_uppercase());
            let found = quoted(cell).filter(camel).map(|word| (word.to_owned(), "docs/operations.md".to_owned()));
            words.extend(found);
        }
    }
    assert!(words.len() > 80, "the words were not found: {words:?}");
    let found: Vec<String> = words
        .iter()
        .filter(|(word, _)| !known.contains(word.as_str()))
        .map(|(word, path)| format!("{word}, from {path}"))
        .collect();
    nothing(&found, "a person meets these words; give each an entry in crates/core/src/reason/guide:");
}

#[test]
fn every_type_of_a_condition_has_an_entry() {
    use muster_core::model::gang::NoteKind;
    use muster_core::reason::guide::{self, Of};
    let files = files();
    let mut types: BTreeSet<String> = NoteKind::ALL.into_iter().map(|kind| kind.as_str().to_owned()).collect();
    types.insert(muster_api::keys::POD_CONDITION.to_owned());
    for (path, before) in [
        ("crates/core/src/gang/shown.rs", "shown("),
        ("crates/api/src/batch_state.rs", ": &str ="),
        ("src/provisioner/pool/mod.rs", "status.conditions,"),
        ("src/provisioner/request.rs", "status.conditions,"),
        ("src/provisioner/class/mod.rs", "const CONDITIONS: [&str; 6] = ["),
        ("src/provisioner/class/mod.rs", "problem("),
    ] {
        let source = Source::shipped(document(&files, path));
        let constant = |name: &str| {
            let at = source.code.find(&format!("const {name}: &str ="))?;
            source::literal_at(&source, at + source.code[at..].find('=')? + 1)
        };
        let named = |at: usize| {
            let name = source.code[at..].trim_start().split(|c: char| !c.is_ascii_uppercase() && c != '_').next();
            source::literal_at(&source, at).or_else(|| constant(name.filter(|name| !name.is_empty())?))
        };
        let found: BTreeSet<String> =
            offsets(&source.code, before).filter_map(|at| named(at + before.len())).map(str::to_owned).collect();
        assert!(!found.is_empty(), "{path}: its conditions were not found");
        types.extend(found);
    }
    assert!(types.len() > 20, "the types were not found: {types:?}");
    let known: BTreeSet<&str> = guide::entries().filter(|entry| entry.of == Of::Type).map(|entry| entry.word).collect();
    let lacking: Vec<String> = types.into_iter().filter(|kind| !known.contains(kind.as_str())).collect();
    nothing(&lacking, "types of conditions without an entry in crates/core/src/reason/guide/types.rs:");
}

#[test]
fn every_key_of_ours_that_a_person_reads_about_is_one_that_there_is() {
    let files = files();
    let mut known = BTreeSet::from(["v1alpha1".to_owned()]);
    for path in ["crates/api/src/keys.rs", "crates/core/src/model/tags.rs"] {
        known.extend(named(document(&files, path)).map(str::to_owned));
    }
    let worded = |path: &str| {
        let shipped = path.starts_with("src/") || path.starts_with("crates/") && path.contains("/src/");
        path.ends_with(".md") || path.ends_with(".rs") && shipped && !path.starts_with("src/testbed/")
    };
    let (mut seen, mut found) = (0, Vec::new());
    for (path, text) in files.iter().filter(|(path, _)| worded(path)) {
        for key in named(text) {
            seen += 1;
            // What ends with a hyphen says how keys begin.
            let is = |known: &String| known == key || key.ends_with('-') && known.starts_with(key);
            if !known.iter().any(is) {
                found.push(format!("{path} names {key}"));
            }
        }
    }
    assert!(seen > 100, "{seen} keys: they are not found any more");
    nothing(&found, "a person is sent to a key that is not in crates/api/src/keys.rs:");
}

/// What stands behind our prefix, wherever that is not a part of a longer name.
fn named(text: &str) -> impl Iterator<Item = &str> {
    text.match_indices(muster_api::keys::PREFIX).filter_map(|(at, prefix)| {
        let is_part = text[..at].ends_with(|c: char| c.is_ascii_alphanumeric() || "-./".contains(c));
        let rest = &text[at + prefix.len()..];
        let end = rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '-').unwrap_or(rest.len());
        (!is_part && end > 0).then_some(&rest[..end])
    })
}

#[test]
fn the_exit_codes_are_documented_as_they_are() {
    let files = files();
    let page = document(&files, "docs/reference/commands.md");
    for (code, meaning) in muster::cli::EXIT_CODES {
        assert!(
            page.contains(&format!("| {code} | {meaning} |")),
            "docs/reference/commands.md lacks {code}: {meaning}"
        );
    }
}

#[test]
fn every_test_that_a_document_names_is_there() {
    let files = files();
    let tests: BTreeSet<&str> = rust(&files)
        .flat_map(|(_, text)| text.split("fn ").skip(1))
        .filter_map(|rest| rest.split_once('(').map(|(name, _)| name))
        .collect();
    // The names of tests are sentences; everything else in such quotes is shorter.
    let is_sentence = |word: &str| {
        word.matches('_').count() >= 5
            && !word.starts_with("muster_")
            && word.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
    };
    let (mut named, mut found) = (0, Vec::new());
    for (path, text) in files.iter().filter(|(path, _)| path.ends_with(".md")) {
        for word in text.split('`').skip(1).step_by(2).filter(|word| is_sentence(word)) {
            named += 1;
            if !tests.contains(word) {
                found.push(format!("{path}: {word}"));
            }
        }
    }
    assert!(named > 60, "{named} names: the documents are not read any more");
    nothing(&found, "named as a test, and there is none of that name:");
}
