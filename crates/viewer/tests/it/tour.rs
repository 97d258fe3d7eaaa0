//! The tour: one small recording, and the page of it as a file that opens without building anything.

use std::path::Path;

use muster_replay::command::{self, Arguments, Format};
use muster_replay::dump::Input;
use muster_replay::explain::Target;
use muster_view::page::{self, Frame};

const RECORDING: &str = include_str!("../../recordings/tour.json");
const NEXT: &str = include_str!("../../recordings/next.yaml");

fn arguments() -> Arguments<'static> {
    Arguments {
        files: vec![Input { name: "the recording", text: RECORDING }, Input { name: "next.yaml", text: NEXT }],
        format: Format::Table,
        ..Arguments::default()
    }
}

#[test]
fn the_recording_is_small_and_shows_a_gang_that_runs_and_one_that_waits() {
    assert!(RECORDING.len() < 300_000, "{} bytes", RECORDING.len());
    let overview = muster_view::of_texts(&arguments()).unwrap();
    let phases: Vec<Option<&str>> = overview.gangs.iter().map(|gang| gang.phase.as_deref()).collect();
    assert!(phases.contains(&Some("Bound")), "{phases:?}");
    assert!(overview.gangs.iter().any(|gang| gang.waiting && !gang.remedies.is_empty()));
    assert!(!overview.batches.is_empty() && overview.summary.usd_micro_per_hour > 0);
}

#[test]
fn the_page_in_the_documentation_is_the_one_of_the_recording() {
    let package = std::env::var_os("CARGO_MANIFEST_DIR").unwrap_or_else(|| env!("CARGO_MANIFEST_DIR").into());
    let path = Path::new(&package).join("../../docs/tour.html");
    let overview = muster_view::of_texts(&arguments()).unwrap();
    let frame = Frame { source: "a recording of the demo".to_owned(), alone: true, ..Frame::default() };
    let shown = page::html(&overview, &frame);
    assert!(!shown.contains("<script") && !shown.contains("htmx"), "one file that opens without a server");
    if std::env::var_os("BLESS").is_some() {
        std::fs::write(&path, &shown).unwrap();
    }
    assert!(std::fs::read_to_string(&path).is_ok_and(|known| known == shown), "BLESS=1 writes docs/tour.html again");
}

#[test]
fn the_explanation_of_the_gang_that_waits_has_a_headline_and_numbered_remedies() {
    let target = Target::Gang { namespace: "demo".to_owned(), name: "next".to_owned() };
    let text = command::explain(&arguments(), &target).unwrap().text;
    assert!(text.starts_with("gang demo/next waits: needs capacity for 48 members in one zone"), "{text}");
    assert!(text.contains("\n  1. "), "{text}");
}
