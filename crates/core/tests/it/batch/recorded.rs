//! Passes drawn from the histories: each is written down with everything it looks at, read back, and decided again to the
//! same bytes.

use std::cell::RefCell;
use std::collections::BTreeSet;

use muster_core::batch::{Change, DecidedBatches, RecordedBatches, World, pass, recorded_pass};

use super::history;

/// Recordings drawn.
const RECORDINGS: usize = 500;
/// Of the passes of a history, every so many is drawn.
const EVERY: usize = 40;

/// What was drawn on this thread.
#[derive(Debug, Default)]
struct Drawn {
    passes: usize,
    recordings: usize,
    /// Names of what was decided in them.
    changes: BTreeSet<&'static str>,
    notes: usize,
    looks: usize,
    /// The last recording of a pass that asked something.
    text: String,
}

thread_local! {
    static DRAWN: RefCell<Option<Drawn>> = const { RefCell::new(None) };
}

/// A pass is about to be made; nothing happens unless somebody draws on this thread.
pub(super) fn look(world: &World<'_>) {
    DRAWN.with_borrow_mut(|drawn| {
        let Some(drawn) = drawn else { return };
        drawn.passes += 1;
        if drawn.passes.is_multiple_of(EVERY) {
            draw(world, drawn);
        }
    });
}

fn draw(world: &World<'_>, drawn: &mut Drawn) {
    let (decisions, recorded) = recorded_pass(world);
    let written = |decided: &DecidedBatches| serde_json::to_string(decided).unwrap();
    let decided = written(&DecidedBatches::of(&decisions));
    assert_eq!(decided, written(&DecidedBatches::of(&pass(world))), "who records decides the same");
    let Some(recorded) = recorded else { return };
    let text = serde_json::to_string(&recorded).unwrap();
    let read: RecordedBatches = serde_json::from_str(&text).unwrap();
    assert_eq!(written(&read.decide()), decided, "a recording holds the whole world");
    assert_eq!(serde_json::to_string(&read).unwrap(), text, "and comes back as it was");
    drawn.recordings += 1;
    if !text.contains("\"answers\":{}") {
        drawn.text = text;
    }
    for decision in &decisions {
        drawn.changes.extend(decision.change.as_ref().map(name));
        drawn.notes += decision.notes.len();
        drawn.looks += decision.looks.len();
    }
}

fn name(change: &Change) -> &'static str {
    match change {
        Change::CreateGroup { .. } => "CreateGroup",
        Change::DeleteGroup(_) => "DeleteGroup",
        Change::CreateTemplate(_) => "CreateTemplate",
        Change::DeleteTemplates(_) => "DeleteTemplates",
        Change::Launch { .. } => "Launch",
        Change::Terminate(_) => "Terminate",
        Change::DeleteFinishedFleets => "DeleteFinishedFleets",
    }
}

#[test]
fn recordings_drawn_from_histories_are_decided_again_to_the_same_bytes() {
    DRAWN.set(Some(Drawn::default()));
    let mut seed = 0;
    while DRAWN.with_borrow(|drawn| drawn.as_ref().unwrap().recordings) < RECORDINGS {
        history::run(seed).unwrap();
        seed += 1;
    }
    let drawn = DRAWN.take().unwrap();
    let seldom = drawn.notes == 0 || drawn.looks == 0;
    for wanted in ["CreateGroup", "DeleteGroup", "CreateTemplate", "DeleteTemplates", "Launch", "Terminate"] {
        assert!(drawn.changes.contains(wanted), "{wanted} is never decided in {drawn:?}");
    }
    assert!(!seldom, "{drawn:?}");
}

#[test]
fn a_recording_that_lacks_an_answer_says_which() {
    DRAWN.set(Some(Drawn::default()));
    history::run(0).unwrap();
    let text = DRAWN.take().unwrap().text;
    let whole: RecordedBatches = serde_json::from_str(&text).unwrap();
    assert_eq!(whole.decide().unanswered, BTreeSet::new());
    let mut spoilt: serde_json::Value = serde_json::from_str(&text).unwrap();
    spoilt["answers"] = serde_json::json!({});
    let spoilt: RecordedBatches = serde_json::from_value(spoilt).unwrap();
    assert_ne!(spoilt.decide().unanswered, BTreeSet::new());
}
