//! What objects show of a gang: the conditions of its Gang, and the event on its owner when the reason changes.
//!
//! People look at the Job they made, not at our objects: the owner gets the same sentence.

use std::sync::Arc;

use super::GangEvent;
use crate::model::gang::{Gang, NoteKind, Phase, Waiting};
use crate::reason::Code;

/// One condition of a Gang.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shown {
    /// Its type.
    pub kind: &'static str,
    /// Whether it holds.
    pub holds: bool,
    /// One word: the code of what is in the way, else how far the gang is.
    pub reason: Arc<str>,
    /// One sentence; empty if there is nothing to say.
    pub message: Arc<str>,
}

/// How far a gang is on its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Way {
    /// It has no plan.
    Nowhere,
    /// Its members have nodes that are there.
    Planned,
    /// All its members are bound.
    Bound,
    /// All its members ended.
    Finished,
}

fn way(phase: Phase) -> Way {
    match phase {
        Phase::Collecting
        | Phase::Waiting
        | Phase::Provisioning
        | Phase::Degraded
        | Phase::Invalid
        | Phase::Unsatisfiable => Way::Nowhere,
        Phase::Planned | Phase::Released | Phase::Committing => Way::Planned,
        Phase::Bound => Way::Bound,
        Phase::Finished => Way::Finished,
    }
}

/// Whether a gang of this phase has a plan that it stands by.
pub(super) fn is_planned(phase: Phase) -> bool {
    matches!(way(phase), Way::Planned | Way::Bound)
}

/// The conditions that follow from the phase of a gang, all of them each time: `kubectl wait` needs one that is false as much
/// as one that is true.
#[must_use]
pub fn conditions(gang: &Gang) -> Vec<Shown> {
    let Some(phase) = gang.phase else { return Vec::new() };
    let way = way(phase);
    let word: Arc<str> = Arc::from(phase.as_str());
    let (code, message) = match &gang.waiting {
        Some(Waiting { reason, message, .. }) if way == Way::Nowhere => (Arc::clone(reason), Arc::clone(message)),
        Some(_) | None => (word, Arc::from("")),
    };
    let shown = |kind: &'static str, holds: bool| {
        let reason = if holds { Arc::from(kind) } else { Arc::clone(&code) };
        let message = if holds { Arc::from("") } else { Arc::clone(&message) };
        Shown { kind, holds, reason, message }
    };
    let nodes_ready = NoteKind::NodesReady;
    vec![
        shown("Recognised", phase != Phase::Invalid),
        shown("Planned", is_planned(phase)),
        // A plan is made on nodes that are there and Ready; they may fail later.
        match gang.notes.get(&nodes_ready).filter(|_| is_planned(phase)) {
            Some(note) => Shown {
                kind: nodes_ready.as_str(),
                holds: false,
                reason: Arc::from(nodes_ready.event().0),
                message: Arc::clone(&note.message),
            },
            None => shown(nodes_ready.as_str(), is_planned(phase)),
        },
        shown("Bound", way == Way::Bound),
        shown("Finished", way == Way::Finished),
    ]
}

/// The event on the owner when the reason of a gang changes; `None` while it stays the same, however long.
#[must_use]
pub fn owner_event(before: &Gang, next: &Gang) -> Option<GangEvent> {
    let (was, is) = (word(before), word(next)?);
    if was == Some(is) {
        return None;
    }
    let name = &next.key.name;
    let waits = next.waiting.as_ref().filter(|_| next.phase.is_some_and(|phase| way(phase) == Way::Nowhere));
    let message = match (waits, next.phase.map(way)) {
        (Some(waiting), _) => waiting.message.to_string(),
        (None, Some(Way::Planned)) => format!("gang {name}: every member has a node"),
        (None, Some(Way::Bound)) => format!("gang {name}: all members are bound"),
        (None, Some(Way::Finished)) => format!("gang {name}: all members ended or are gone"),
        (None, Some(Way::Nowhere) | None) => format!("gang {name}: {is}"),
    };
    Some(GangEvent { reason: is, message, warning: needs_a_person(next) })
}

/// What the gang is known by: the code of what is in the way, else how far it is. Releases and commits are steps of a moment,
/// and no news to the owner.
fn word(gang: &Gang) -> Option<&'static str> {
    let phase = gang.phase?;
    Some(match way(phase) {
        Way::Planned => "Planned",
        Way::Bound => "Bound",
        Way::Finished => "Finished",
        Way::Nowhere => {
            let code = gang.waiting.as_ref().and_then(|waiting| Code::parse(&waiting.reason));
            code.map_or(phase.as_str(), Code::as_str)
        }
    })
}

/// Whether nothing but a change by a person ends it.
fn needs_a_person(gang: &Gang) -> bool {
    matches!(gang.phase, Some(Phase::Invalid | Phase::Unsatisfiable))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::model::gang::Note;
    use crate::model::names::ObjectKey;

    fn gang(phase: Phase, waiting: Option<Code>) -> Gang {
        Gang {
            key: ObjectKey::new("ml", "train"),
            uid: Arc::from("u"),
            resource_version: Arc::from("1"),
            phase: Some(phase),
            epoch: 0,
            round: 0,
            since: None,
            minimum: 2,
            minimums: BTreeMap::new(),
            running: None,
            shape: None,
            places: Vec::new(),
            levels: Vec::new(),
            held: None,
            batch: None,
            waiting: waiting.map(|code| Waiting {
                reason: Arc::from(code.as_str()),
                message: Arc::from(format!("because of {code}")),
                since: None,
                next_try: None,
            }),
            notes: BTreeMap::new(),
            members: Arc::from("2/2"),
            created: None,
            deleting: false,
        }
    }

    fn holding(gang: &Gang) -> Vec<&'static str> {
        conditions(gang).into_iter().filter(|shown| shown.holds).map(|shown| shown.kind).collect()
    }

    #[test]
    fn conditions_follow_the_phase_and_say_why_they_do_not_hold() {
        assert_eq!(holding(&gang(Phase::Collecting, Some(Code::Collecting))), ["Recognised"]);
        assert_eq!(holding(&gang(Phase::Invalid, Some(Code::BadName))), Vec::<&str>::new());
        assert_eq!(holding(&gang(Phase::Released, None)), ["Recognised", "Planned", "NodesReady"]);
        assert_eq!(holding(&gang(Phase::Bound, None)), ["Recognised", "Planned", "NodesReady", "Bound"]);
        assert_eq!(holding(&gang(Phase::Finished, None)), ["Recognised", "Finished"]);
        let waits = conditions(&gang(Phase::Waiting, Some(Code::DoesNotFit)));
        for shown in waits.iter().filter(|shown| !shown.holds) {
            assert_eq!((&*shown.reason, &*shown.message), ("DoesNotFit", "because of DoesNotFit"), "{}", shown.kind);
        }
        assert_eq!(waits.len(), 5, "each is there from the first write, for kubectl wait");
        let released = conditions(&gang(Phase::Released, None));
        let bound = released.iter().find(|shown| shown.kind == "Bound");
        assert_eq!(bound.map(|shown| &*shown.reason), Some("Released"));
    }

    #[test]
    fn a_gang_whose_planned_node_fails_is_bound_on_nodes_that_are_not_ready() {
        let mut bound = gang(Phase::Bound, None);
        let note = Note { holds: false, message: Arc::from("node a-1 is not Ready") };
        bound.notes.insert(NoteKind::NodesReady, note);
        assert_eq!(holding(&bound), ["Recognised", "Planned", "Bound"]);
        let all = conditions(&bound);
        let ready = all.iter().find(|shown| shown.kind == "NodesReady").unwrap();
        assert_eq!((&*ready.reason, &*ready.message), ("NodesNotReady", "node a-1 is not Ready"));
        bound.phase = Some(Phase::Finished);
        let all = conditions(&bound);
        let ready = all.iter().find(|shown| shown.kind == "NodesReady").unwrap();
        assert_eq!(&*ready.reason, "Finished", "it needs no nodes any more");
    }

    #[test]
    fn each_change_of_reason_is_one_event_and_everything_else_is_none() {
        let life = [
            gang(Phase::Collecting, Some(Code::Collecting)),
            gang(Phase::Waiting, Some(Code::DoesNotFit)),
            gang(Phase::Waiting, Some(Code::NoPool)),
            gang(Phase::Provisioning, Some(Code::Provisioning)),
            gang(Phase::Waiting, Some(Code::InsufficientCapacity)),
            gang(Phase::Planned, None),
            gang(Phase::Bound, None),
            gang(Phase::Degraded, Some(Code::MemberLost)),
            gang(Phase::Collecting, Some(Code::Restarting)),
            gang(Phase::Planned, None),
            gang(Phase::Bound, None),
            gang(Phase::Finished, None),
        ];
        let events: Vec<&str> =
            life.windows(2).filter_map(|pair| owner_event(&pair[0], &pair[1])).map(|event| event.reason).collect();
        assert_eq!(
            events,
            [
                "DoesNotFit",
                "NoPool",
                "Provisioning",
                "InsufficientCapacity",
                "Planned",
                "Bound",
                "MemberLost",
                "Restarting",
                "Planned",
                "Bound",
                "Finished"
            ]
        );
        for one in &life {
            assert_eq!(owner_event(one, one), None);
        }
        // An hour in which the counts of the sentence change every minute.
        let mut waits = gang(Phase::Waiting, Some(Code::DoesNotFit));
        for minute in 0..60 {
            let before = waits.clone();
            if let Some(waiting) = &mut waits.waiting {
                waiting.message = Arc::from(format!("has capacity for {minute}"));
            }
            assert_eq!(owner_event(&before, &waits), None, "{minute}");
        }
        assert_eq!(owner_event(&gang(Phase::Planned, None), &gang(Phase::Released, None)), None);
        assert_eq!(owner_event(&gang(Phase::Released, None), &gang(Phase::Committing, None)), None);
    }

    #[test]
    fn the_owner_reads_the_sentence_of_the_status() {
        let (before, next) = (gang(Phase::Collecting, None), gang(Phase::Waiting, Some(Code::DoesNotFit)));
        let event = owner_event(&before, &next).unwrap();
        assert_eq!(
            (event.reason, event.message.as_str(), event.warning),
            ("DoesNotFit", "because of DoesNotFit", false)
        );
        let invalid = gang(Phase::Invalid, Some(Code::BadNumber));
        assert!(owner_event(&before, &invalid).unwrap().warning);
    }
}
