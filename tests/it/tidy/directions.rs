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

/// Uses of one crate that close a circle.
struct Closing {
    root: &'static str,
    /// A file, and those it should not use.
    uses: &'static [(&'static str, &'static [&'static str])],
}

/// What stands here is to be mended, by moving what both need to a file of its own; nothing is added.
const CLOSING: [Closing; 1] = [Closing {
    root: "crates/ec2-sim/src/",
    uses: &[
        ("faults.rs", &["events.rs", "scenario.rs"]),
        ("launch/mod.rs", &["launch/fill.rs", "launch/start.rs", "state/mod.rs"]),
        ("operations/create_fleet.rs", &["operations/reservations.rs"]),
        ("operations/fleets.rs", &["operations/instances.rs"]),
        ("policy/mod.rs", &["policy/demands.rs", "state/mod.rs"]),
        ("scenario.rs", &["scenario/account.rs"]),
        ("state/agenda.rs", &["events.rs"]),
        ("state/mod.rs", &["server.rs"]),
    ],
}];

/// What the folders of a crate may use of each other.
struct House {
    root: &'static str,
    /// Each folder, and the folders it may use; those that use nothing come first.
    folders: &'static [(&'static str, &'static [&'static str])],
    /// Uses against the table, file by file: to be mended as well.
    against: &'static [(&'static str, &'static str)],
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
            ("ordinary", &["ec2", "fit", "model", "packing", "reason"]),
            ("extender", &["fit", "model", "ordinary"]),
            ("batch", &["ec2", "fit", "model", "offering", "reason", "topology"]),
            ("gang", &["extender", "fit", "model", "offering", "planner", "reason", "topology"]),
            ("devices", &["ec2", "fit", "model", "offering"]),
            ("doctor", &["devices", "ec2", "fit", "model", "offering", "skew"]),
        ],
        against: &[
            ("model/batch.rs", "ec2/launch.rs"),
            ("model/batch.rs", "ec2/notice.rs"),
            ("model/gang.rs", "planner/plan.rs"),
            ("model/gang.rs", "reason/code.rs"),
        ],
    },
    House {
        root: "src/",
        folders: &[
            ("clock", &[]),
            ("client", &[]),
            ("progress", &[]),
            ("cluster", &["clock", "progress"]),
            ("step", &["clock"]),
            ("telemetry", &["step"]),
            ("cloud", &["clock", "step", "telemetry"]),
            ("server", &["telemetry"]),
            ("config", &["clock", "cloud", "server", "telemetry"]),
            ("lease", &["clock", "config", "progress"]),
            ("permissions", &["cluster", "config"]),
            ("gang", &["clock", "cluster", "progress", "step", "telemetry"]),
            ("extender", &["clock", "cluster", "gang", "step", "telemetry"]),
            ("http", &["cluster", "gang", "progress", "step", "telemetry"]),
            ("provisioner", &["clock", "cloud", "cluster", "gang", "progress", "step", "telemetry"]),
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
                    "testbed",
                ],
            ),
            ("cli", &["commands", "config", "telemetry"]),
        ],
        against: &[("telemetry.rs", "provisioner/metrics.rs")],
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
        let closing = CLOSING.iter().find(|closing| closing.root == root).map_or(&[][..], |closing| closing.uses);
        found.extend(in_circles(&of_crate(root), closing).into_iter().map(|line| format!("{root}: {line}")));
    }
    nothing(&found, "files that use each other in a circle; move what both need to a file of its own:");
}

/// Circles beside those known, and what is known and closes no circle any more.
fn in_circles(uses: &Uses, closing: &[(&str, &[&str])]) -> Vec<String> {
    let mut open = uses.clone();
    let known = || closing.iter().flat_map(|(path, others)| others.iter().map(move |other| (*path, *other)));
    let mut found = Vec::new();
    for (path, other) in known() {
        if !open.get_mut(path).is_some_and(|used| used.remove(other)) {
            found.push(format!("{path} does not use {other} (any more): take it from the list"));
        }
    }
    for circle in circles(&open) {
        let own: BTreeSet<&String> = circle.iter().collect();
        let of_circle = |path: &String| {
            let used = open[path].iter().filter(|other| own.contains(other)).map(String::as_str);
            format!("{path} uses {}", used.collect::<Vec<_>>().join(", "))
        };
        found.push(circle.iter().map(of_circle).collect::<Vec<_>>().join("; "));
    }
    if found.is_empty() {
        for (path, other) in known() {
            let mut closed = open.clone();
            closed.entry(path.to_owned()).or_default().insert(other.to_owned());
            if circles(&closed).is_empty() {
                found.push(format!("{path} may use {other}: no circle; take it from the list"));
            }
        }
    }
    found
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
    let against = |path: &str, other: &str| {
        let may = table.get(folder(path)).copied().unwrap_or_default();
        folder(path) != folder(other) && !may.contains(&folder(other))
    };
    for (path, used) in uses {
        let wrong = used.iter().filter(|other| against(path, other));
        let wrong = wrong.filter(|other| !house.against.contains(&(path.as_str(), other.as_str())));
        found.extend(wrong.map(|other| format!("{path} uses {other}")));
    }
    for (path, other) in house.against {
        if !uses.get(*path).is_some_and(|used| used.contains(*other)) || !against(path, other) {
            found.push(format!("{path} may use {other}, or does not: take it from the list"));
        }
    }
    found
}

fn graph(of: &[(&str, &[&str])]) -> Uses {
    of.iter().map(|(path, used)| ((*path).to_owned(), used.iter().map(|other| (*other).to_owned()).collect())).collect()
}

#[test]
fn a_circle_is_refused_and_so_is_an_exemption_that_nothing_needs() {
    let uses = graph(&[("a.rs", &["b.rs"]), ("b.rs", &["c.rs"]), ("c.rs", &["a.rs"]), ("d.rs", &["a.rs"])]);
    assert_eq!(in_circles(&uses, &[]), ["a.rs uses b.rs; b.rs uses c.rs; c.rs uses a.rs"]);
    assert!(in_circles(&uses, &[("c.rs", &["a.rs"])]).is_empty());
    let gone = in_circles(&uses, &[("c.rs", &["a.rs", "d.rs"])]);
    assert_eq!(gone, ["c.rs does not use d.rs (any more): take it from the list"]);
    let idle = in_circles(&uses, &[("c.rs", &["a.rs"]), ("d.rs", &["a.rs"])]);
    assert_eq!(idle, ["d.rs may use a.rs: no circle; take it from the list"]);
}

#[test]
fn a_capacity_is_refused_what_the_table_does_not_name() {
    let house = |folders, against| House { root: "src/", folders, against };
    let uses = graph(&[("low.rs", &[]), ("high/mod.rs", &["low.rs", "high/x.rs"]), ("high/x.rs", &["low.rs"])]);
    let good: &[(&str, &[&str])] = &[("low", &[]), ("high", &["low"])];
    assert!(wrong_ways(&uses, &house(good, &[])).is_empty());
    assert_eq!(
        wrong_ways(&uses, &house(&[("low", &[]), ("high", &[])], &[("high/x.rs", "low.rs")])),
        ["high/mod.rs uses low.rs"]
    );
    assert_eq!(
        wrong_ways(&uses, &house(good, &[("high/x.rs", "low.rs")])),
        ["high/x.rs may use low.rs, or does not: take it from the list"]
    );
    assert_eq!(
        wrong_ways(&uses, &house(&[("high", &["low"]), ("low", &[])], &[])),
        ["the table lets high use low, which does not stand before it"]
    );
    assert_eq!(
        wrong_ways(&uses, &house(&[("gone", &[]), ("low", &[]), ("high", &["low"])], &[])),
        ["there is no folder gone"]
    );
    assert_eq!(wrong_ways(&uses, &house(&[("high", &[])], &[])).first().unwrap(), "low is not in the table");
}
