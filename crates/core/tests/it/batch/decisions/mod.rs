//! What is decided about one NodeBatch, phase by phase and input by input, as tables: each row is a situation in one
//! sentence with the whole decision under it. The tables are in `golden`, for people to read; `MUSTER_BLESS` writes them.

mod ending;
mod joining;
mod launching;
mod order;
mod ordinary;
mod pending;
mod repairing;
mod says;
mod scene;
mod several;
mod unseen;
mod written;

pub(super) use scene::instances;

use std::fmt::Write as _;
use std::path::Path;

use scene::Scene;

/// Compares what is decided in these situations with the table of this name.
fn compare(name: &str, rows: &[(&str, Scene)]) {
    let mut text = String::new();
    for (what, scene) in rows {
        writeln!(text, "## {what}\n{}", written::decision(scene)).unwrap();
    }
    let path =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/batch/decisions/golden").join(format!("{name}.txt"));
    if std::env::var_os("MUSTER_BLESS").is_some() {
        std::fs::write(&path, &text).unwrap();
        return;
    }
    let known = std::fs::read_to_string(&path).unwrap();
    let rows = |text: &str| text.split("## ").map(str::to_owned).collect::<Vec<_>>();
    for (known, now) in rows(&known).iter().zip(rows(&text)) {
        assert_eq!(*known, now, "{}", path.display());
    }
    assert!(known == text, "{} has other rows", path.display());
}
