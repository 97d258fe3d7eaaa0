//! The bodies of the fuzz targets on their seeds, which are part of the checkout: what was found once stays found.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking, its helpers too")]

use muster::config::Config;
use muster::extender::wire;
use muster::testbed::repository;
use muster_ec2 as message;

#[path = "../../fuzz/src/bodies.rs"]
#[expect(unreachable_pub, reason = "public for the fuzz targets, which are a crate of their own")]
mod bodies;

#[track_caller]
fn run(target: &str, body: fn(&[u8])) {
    let folder = repository().join("fuzz/seeds").join(target);
    let mut seeds = 0;
    for entry in std::fs::read_dir(&folder).unwrap() {
        body(&std::fs::read(entry.unwrap().path()).unwrap());
        seeds += 1;
    }
    assert!(seeds > 2, "{} holds {seeds} seeds", folder.display());
}

#[test]
fn the_seeds_of_dumps_are_planned() {
    run("dump", bodies::dump);
}

#[test]
fn the_seeds_of_catalogues_are_planned_from_or_refused() {
    run("catalogue", bodies::catalogue);
}

#[test]
fn the_seeds_of_requirements_are_planned_from_or_refused() {
    run("requirements", bodies::requirements);
}

#[test]
fn the_seeds_of_quantities_are_read_exactly() {
    run("quantity", bodies::quantity);
}

#[test]
fn the_seeds_of_requests_of_kube_scheduler_are_read() {
    run("extender", bodies::extender);
}

#[test]
fn the_seeds_of_messages_are_notices_or_none_of_ours() {
    run("message", bodies::message);
}

#[test]
fn the_seeds_of_calls_to_ec2_are_answered() {
    run("form", bodies::form);
}

#[test]
fn the_seeds_of_labels_and_annotations_are_recognised() {
    run("labels", bodies::labels);
}

#[test]
fn the_seeds_of_configurations_are_read_or_refused() {
    run("config", |data| {
        let Ok(text) = std::str::from_utf8(data) else { return };
        if let Err(error) = Config::parse(text, "fuzz") {
            assert!(!error.to_string().is_empty());
        }
    });
}
