//! What people should know of a gang whatever its phase: ranks out of order, surplus members, two identities, an owner
//! that would not survive an eviction, planned nodes that are not Ready. Each is a condition, and an event when it turns bad.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::sync::Arc;

use super::{GangEvent, roles, shown};
use crate::model::gang::{Gang, Note, NoteKind, Pod, Recognised};
use crate::model::names::{NodeName, PodUid};
use crate::model::snapshot::Snapshot;

/// Fills the notes of the next state and says what turned bad.
pub(super) fn note(
    gang: &Gang,
    recognised: &Recognised,
    members: &[Arc<Pod>],
    not_ready: Option<String>,
    next: &mut Gang,
) -> Vec<GangEvent> {
    let mut notes = gang.notes.clone();
    match not_ready {
        Some(message) => notes.insert(NoteKind::NodesReady, Note { holds: false, message: message.into() }),
        None => notes.remove(&NoteKind::NodesReady),
    };
    let mut set = |kind: NoteKind, stated: Option<String>| {
        let (_, bad_if_true) = kind.event();
        match stated {
            Some(message) => {
                notes.insert(kind, Note { holds: bad_if_true, message: message.into() });
            }
            // What was never true needs no word that it is not; that ranks are in order does.
            None if bad_if_true => {
                notes.remove(&kind);
            }
            None => {
                notes.insert(kind, Note { holds: true, message: Arc::from("") });
            }
        }
    };
    set(NoteKind::IdentityConflict, recognised.conflict.as_ref().map(ToString::to_string));
    set(NoteKind::RestartWouldFail, recognised.restart_would_fail.as_ref().map(ToString::to_string));
    let ready: Vec<&Arc<Pod>> = members.iter().filter(|member| member.foreign_gate.is_none()).collect();
    if let Some(sizes) = roles::sizes(recognised, &ready).filter(|_| !ready.is_empty()) {
        let names: BTreeMap<&PodUid, &Arc<str>> = ready.iter().map(|pod| (&pod.uid, &pod.key.name)).collect();
        let (mut faults, mut surplus) = (String::new(), String::new());
        let mut by_role = sizes.by_role(&ready);
        for role in &sizes.roles {
            let of: Vec<&Arc<Pod>> = by_role.remove(&role.name).unwrap_or_default();
            let named = if role.name.is_empty() { String::new() } else { format!(" of role {}", role.name) };
            for (fault, uid) in roles::faults(role, &of) {
                let pod = names.get(&uid).map_or("", |name| name);
                let separator = if faults.is_empty() { "" } else { "; " };
                let _ = write!(faults, "{separator}{} rank{named}: pod {pod}", fault.as_str());
            }
            let over = of.len().saturating_sub(usize::try_from(role.count).unwrap_or(usize::MAX));
            if over > 0 {
                let (_, left) = roles::holders(role, gang, &of, &[]);
                let pod = left.first().and_then(|uid| names.get(uid)).map_or("", |name| name);
                let separator = if surplus.is_empty() { "" } else { "; " };
                let _ = write!(
                    surplus,
                    "{separator}{} live members{named}, {} expected: {over} beyond them have no place, pod {pod} is one",
                    of.len(),
                    role.count
                );
            }
        }
        set(NoteKind::RanksOrdered, (!faults.is_empty()).then_some(faults));
        set(NoteKind::SurplusMembers, (!surplus.is_empty()).then_some(surplus));
    }
    let reported =
        notes.iter().filter(|(kind, note)| note.holds == kind.event().1 && gang.notes.get(kind) != Some(note));
    let events = reported.map(|(kind, note)| GangEvent {
        reason: kind.event().0,
        message: note.message.to_string(),
        warning: true,
    });
    let events = events.collect();
    next.notes = notes;
    events
}

/// Which nodes of its plan are not Ready, or gone; `None` if all are, or if it has no plan.
pub(super) fn not_ready(gang: &Gang, snapshot: &Snapshot) -> Option<String> {
    if !gang.phase.is_some_and(shown::is_planned) {
        return None;
    }
    let is_ready = |node: &NodeName| snapshot.nodes.get(node).is_some_and(|entry| entry.node.ready);
    // Whoever succeeded needs its node no more.
    let places = gang.places.iter().filter(|place| !place.done);
    let nodes: BTreeSet<&NodeName> = places.map(|place| &place.node).filter(|node| !is_ready(node)).collect();
    let shown: Vec<&str> = nodes.iter().take(SHOWN).map(|node| node.as_str()).collect();
    let more = nodes.len().saturating_sub(SHOWN);
    match (nodes.len(), more) {
        (0, _) => None,
        (1, _) => Some(format!("node {} is not Ready", shown.join(", "))),
        (_, 0) => Some(format!("nodes {} are not Ready", shown.join(", "))),
        (_, more) => Some(format!("nodes {} and {more} more are not Ready", shown.join(", "))),
    }
}

/// Nodes named one by one.
const SHOWN: usize = 8;
