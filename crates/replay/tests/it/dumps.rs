//! Golden documents: every dump beside the tests, as JSON and as a table. `BLESS=1` rewrites them.

use muster_replay::command::Format;

use crate::support::{dump, folder, names, run};

#[test]
fn every_dump_has_the_document_that_was_agreed_on() {
    let mut wrong = Vec::new();
    for name in names() {
        let text = dump(&name);
        for (format, ending) in [(Format::Json, "json.out"), (Format::Table, "table.out")] {
            let output = run(&text, format).unwrap();
            let shown =
                if format == Format::Table { format!("{}exit {}\n", output.text, output.code) } else { output.text };
            let path = folder().join(format!("{name}.{ending}"));
            if std::env::var_os("BLESS").is_some() {
                std::fs::write(&path, &shown).unwrap();
            }
            if std::fs::read_to_string(&path).ok().as_ref() != Some(&shown) {
                wrong.push(format!("{}:\n{shown}", path.display()));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn there_are_at_least_twelve_dumps() {
    assert!(names().len() >= 12, "{:?}", names());
}

#[test]
fn the_same_dump_gives_the_same_bytes() {
    for name in names() {
        let text = dump(&name);
        assert_eq!(run(&text, Format::Json), run(&text, Format::Json), "{name}");
    }
}

#[test]
fn json_and_yaml_of_one_dump_give_the_same_document() {
    for name in names() {
        let yaml = dump(&name);
        let documents: Vec<serde_json::Value> = serde_saphyr::from_multiple(&yaml).unwrap();
        let json: String = documents.iter().map(|document| format!("{document}\n")).collect();
        assert_eq!(run(&yaml, Format::Json), run(&json, Format::Json), "{name}");
    }
}

#[test]
fn the_wide_form_has_a_row_for_each_member_and_each_node_and_what_the_table_has() {
    for name in names() {
        let text = dump(&name);
        let (wide, table) = (run(&text, Format::Wide).unwrap(), run(&text, Format::Table).unwrap());
        assert_eq!(wide.code, table.code, "{name}");
        assert!(wide.text.starts_with(&table.text), "{name}: {}", wide.text);
        let document: serde_json::Value = serde_json::from_str(&run(&text, Format::Json).unwrap().text).unwrap();
        let list = |value: &serde_json::Value| value.as_array().cloned().unwrap_or_default();
        let rows = |title: &str| {
            let section = wide.text[table.text.len()..].split("\n\n").find(|part| part.trim_start().starts_with(title));
            section.map_or(0, |section| section.trim().lines().count() - 2)
        };
        let members: usize = list(&document["gangs"]).iter().map(|gang| list(&gang["members"]).len()).sum();
        let relaxed = list(&document["pods"]).iter().filter(|pod| !list(&pod["relaxed"]).is_empty()).count();
        assert_eq!(rows("members:"), members, "{name}: {}", wide.text);
        assert_eq!(rows("nodes:"), list(&document["nodes"]).len(), "{name}");
        assert_eq!(rows("preferences dropped:"), relaxed, "{name}");
    }
}
