//! Dumps, and files that were agreed on.

use std::path::{Path, PathBuf};

use muster_replay::command::Arguments;
use muster_replay::dump::Input;
use muster_view::Overview;

/// The folder of this crate.
pub(crate) fn package() -> PathBuf {
    // At run time first: two checkouts may share a target folder.
    let package = std::env::var_os("CARGO_MANIFEST_DIR").unwrap_or_else(|| env!("CARGO_MANIFEST_DIR").into());
    Path::new(&package).to_path_buf()
}

/// The recording of the tour.
pub(crate) fn tour() -> String {
    std::fs::read_to_string(package().join("../viewer/recordings/tour.json")).unwrap()
}

/// Names and texts of all dumps of `crates/replay`.
pub(crate) fn dumps() -> Vec<(String, String)> {
    let mut all = Vec::new();
    for entry in std::fs::read_dir(package().join("../replay/tests/dumps")).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|extension| extension == "yaml") {
            let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
            all.push((name, std::fs::read_to_string(&path).unwrap()));
        }
    }
    all.sort();
    all
}

/// One of them.
pub(crate) fn dump(name: &str) -> String {
    dumps().into_iter().find(|(found, _)| found == name).unwrap().1
}

/// The overview of one text.
pub(crate) fn overview(text: &str) -> Overview {
    muster_view::of_texts(&Arguments { files: vec![Input { name: "dump.yaml", text }], ..Arguments::default() })
        .unwrap()
}

/// Compares with a file beside the tests; `BLESS=1` rewrites it.
#[track_caller]
pub(crate) fn agreed(path: &str, shown: &str) {
    let path = package().join(path);
    if std::env::var_os("BLESS").is_some() {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, shown).unwrap();
    }
    let known = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(known == shown, "{} is not what is shown (BLESS=1 rewrites it):\n{shown}", path.display());
}
