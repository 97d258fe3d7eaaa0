//! Who may use whom: no circle among the files of a crate, and one direction between the folders of a crate.
//!
//! A folder is a folder or file directly below the crate's root; `ARCHITECTURE.md` says what is in each.

use std::collections::{BTreeMap, BTreeSet};

use super::imports::{Uses, circles, uses};
use super::nothing;
use super::source::{files, packages, reached};

/// Every crate's root.
const ROOTS: [&str; 8] = [
    "src/",
    "crates/api/src/",
    "crates/core/src/",
    "crates/ec2/src/",
    "crates/ec2-sim/src/",
    "crates/replay/src/",
    "crates/view/src/",
    "crates/viewer/src/",
];

/// What the folders of a crate may use of each other.
struct House {
    root: &'static str,
    /// Each folder, and the folders it may use; those that use nothing come first.
    folders: &'static [(&'static str, &'static [&'static str])],
}

const HOUSES: [House; 2] = [
    House {
        root: "crates/core/src/",
        folders: &[
            ("model", &[]),
            ("skew", &[]),
            ("topology", &["model"]),
            ("fit", &["model"]),
            ("ec2", &["model"]),
            ("offering", &["ec2", "fit", "model"]),
            ("packing", &["ec2", "fit", "model"]),
            ("planner", &["fit", "model", "topology"]),
            ("reason", &["fit", "model", "offering", "planner"]),
            ("ordinary", &["ec2", "fit", "model", "offering", "packing", "reason"]),
            ("extender", &["fit", "model", "ordinary"]),
            ("batch", &["ec2", "fit", "model", "offering", "reason", "topology"]),
            ("gang", &["extender", "fit", "model", "offering", "planner", "reason", "topology"]),
            ("devices", &["ec2", "fit", "model", "offering"]),
            ("doctor", &["devices", "ec2", "fit", "model", "offering", "skew"]),
        ],
    },
    House {
        root: "src/",
        folders: &[
            ("clock", &[]),
            ("client", &[]),
            ("progress", &[]),
            ("term", &[]),
            ("cluster", &["client", "clock", "progress"]),
            ("step", &["clock"]),
            ("telemetry", &["step"]),
            ("cloud", &["clock", "step", "telemetry"]),
            ("server", &["telemetry"]),
            ("config", &["clock", "cloud", "server", "telemetry"]),
            ("lease", &["clock", "config", "progress", "term"]),
            ("permissions", &["cluster", "config"]),
            ("gang", &["clock", "cluster", "progress", "step", "telemetry", "term"]),
            ("extender", &["clock", "cluster", "gang", "step", "telemetry"]),
            ("http", &["cluster", "gang", "progress", "step", "telemetry"]),
            ("provisioner", &["clock", "cloud", "cluster", "gang", "progress", "step", "telemetry", "term"]),
            ("testbed", &["clock"]),
            ("fake_kubelet", &["telemetry", "testbed"]),
            (
                "commands",
                &[
                    "client",
                    "clock",
                    "cloud",
                    "cluster",
                    "config",
                    "extender",
                    "gang",
                    "http",
                    "lease",
                    "progress",
                    "provisioner",
                    "permissions",
                    "server",
                    "fake_kubelet",
                    "step",
                    "telemetry",
                    "term",
                    "testbed",
                ],
            ),
            ("cli", &["commands", "config", "telemetry"]),
        ],
    },
];

/// Uses within the crate of a root, paths below it.
fn of_crates() -> impl Fn(&str) -> Uses {
    let files = files();
    let tests = reached(&files, &packages()).tests;
    move |root| {
        let below = |path: &String| path[root.len()..].to_owned();
        let found = uses(&files, root, &tests);
        found.iter().map(|(path, used)| (below(path), used.iter().map(below).collect())).collect()
    }
}

#[test]
fn no_files_of_a_crate_use_each_other_in_a_circle() {
    let of_crate = of_crates();
    let mut found = Vec::new();
    for root in ROOTS {
        found.extend(in_circles(&of_crate(root)).into_iter().map(|line| format!("{root}: {line}")));
    }
    nothing(&found, "files that use each other in a circle; move what both need to a file of its own:");
}

/// Each circle, as who uses whom in it.
fn in_circles(uses: &Uses) -> Vec<String> {
    let line_of = |circle: Vec<String>| {
        let own: BTreeSet<&String> = circle.iter().collect();
        let of_circle = |path: &String| {
            let used = uses[path].iter().filter(|other| own.contains(other)).map(String::as_str);
            format!("{path} uses {}", used.collect::<Vec<_>>().join(", "))
        };
        circle.iter().map(of_circle).collect::<Vec<_>>().join("; ")
    };
    circles(uses).into_iter().map(line_of).collect()
}

#[test]
fn folders_use_each_other_in_one_direction() {
    let of_crate = of_crates();
    let found: Vec<String> = HOUSES
        .iter()
        .flat_map(|house| {
            wrong_ways(&of_crate(house.root), house).into_iter().map(|line| format!("{}: {line}", house.root))
        })
        .collect();
    nothing(
        &found,
        "folders that use what they should not; move the code, or change the table in tests/it/tidy/directions.rs and \
         ARCHITECTURE.md:",
    );
}

/// The folder of a file.
fn folder(path: &str) -> &str {
    path.split('/').next().unwrap_or(path).trim_end_matches(".rs")
}

fn wrong_ways(uses: &Uses, house: &House) -> Vec<String> {
    let table: BTreeMap<&str, &[&str]> = house.folders.iter().copied().collect();
    let mut found = Vec::new();
    // A folder may use those above it in the table: so it is in order, and has no circle.
    for (index, (name, may)) in house.folders.iter().enumerate() {
        let before: BTreeSet<&str> = house.folders[..index].iter().map(|(name, _)| *name).collect();
        found.extend(
            may.iter()
                .filter(|other| !before.contains(**other))
                .map(|other| format!("the table lets {name} use {other}, which does not stand before it")),
        );
    }
    // The crate's root names the folders and is none.
    let folders: BTreeSet<&str> = uses.keys().filter(|path| *path != "lib.rs").map(|path| folder(path)).collect();
    found.extend(
        folders.iter().filter(|name| !table.contains_key(**name)).map(|name| format!("{name} is not in the table")),
    );
    found
        .extend(table.keys().filter(|name| !folders.contains(**name)).map(|name| format!("there is no folder {name}")));
    for (path, used) in uses {
        let may = table.get(folder(path)).copied().unwrap_or_default();
        let wrong = used.iter().filter(|other| folder(path) != folder(other) && !may.contains(&folder(other)));
        found.extend(wrong.map(|other| format!("{path} uses {other}")));
    }
    found
}

fn graph(of: &[(&str, &[&str])]) -> Uses {
    of.iter().map(|(path, used)| ((*path).to_owned(), used.iter().map(|other| (*other).to_owned()).collect())).collect()
}

#[test]
fn a_circle_is_refused_with_who_uses_whom_in_it() {
    let uses = graph(&[("a.rs", &["b.rs"]), ("b.rs", &["c.rs"]), ("c.rs", &["a.rs"]), ("d.rs", &["a.rs"])]);
    assert_eq!(in_circles(&uses), ["a.rs uses b.rs; b.rs uses c.rs; c.rs uses a.rs"]);
    assert!(in_circles(&graph(&[("a.rs", &["b.rs"]), ("b.rs", &[])])).is_empty());
}

#[test]
fn a_folder_is_refused_what_the_table_does_not_name() {
    let house = |folders| House { root: "src/", folders };
    let uses = graph(&[("low.rs", &[]), ("high/mod.rs", &["low.rs", "high/x.rs"]), ("high/x.rs", &["low.rs"])]);
    assert!(wrong_ways(&uses, &house(&[("low", &[]), ("high", &["low"])])).is_empty());
    assert_eq!(
        wrong_ways(&uses, &house(&[("low", &[]), ("high", &[])])),
        ["high/mod.rs uses low.rs", "high/x.rs uses low.rs"]
    );
    assert_eq!(
        wrong_ways(&uses, &house(&[("high", &["low"]), ("low", &[])])),
        ["the table lets high use low, which does not stand before it"]
    );
    assert_eq!(
        wrong_ways(&uses, &house(&[("gone", &[]), ("low", &[]), ("high", &["low"])])),
        ["there is no folder gone"]
    );
    assert_eq!(wrong_ways(&uses, &house(&[("high", &[])])).first().unwrap(), "low is not in the table");
}
