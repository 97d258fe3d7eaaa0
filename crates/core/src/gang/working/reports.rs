//! What members show of their gang, as the pod condition `muster.dev/Gang`: people look at their pods first.

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};

use super::Working;
use crate::gang::refused::refused;
use crate::gang::{Action, MemberReport, Pass};
use crate::model::gang::{Gang, GangPlace, Phase, Pod};
use crate::reason::Code;

/// A gang that stays `Released` for longer is reported on its members: until then `kubectl get pods` has not lied for
/// long enough to be noticed, and each report is a write that may requeue a pod.
const RELEASED: SignedDuration = SignedDuration::from_secs(2);
/// … and this much later for each member of any gang that is on its way.
const RELEASED_EACH: SignedDuration = SignedDuration::from_millis(10);
/// What a gang waits for is reported on its members once it has been the same for so long: a reason that passes is no news.
const LASTS: SignedDuration = SignedDuration::from_secs(10);
/// A sentence that changes while its reason stays, as a count in it, is written again so long after the one before it at the earliest.
const REPHRASED: SignedDuration = SignedDuration::from_mins(1);
/// When more members are reported about than one pass may, the next ones follow after this.
const NEXT: SignedDuration = SignedDuration::from_secs(1);
/// Reports of what gangs wait for, in one pass and in one second: they must not be in the way of a release.
pub const WAITING_AT_ONCE: u32 = 20;

/// Sentences that are written again, in one pass and in one second: what is new of other gangs comes first.
pub const REPHRASED_AT_ONCE: u32 = 5;

/// Reasons of the condition that are no code: the member is, or was, on its way.
const RELEASED_TO: &str = "Released";
const PLANNED_ON: &str = "Planned";
const REFUSED: &str = "Refused";

impl Working<'_> {
    /// Tells members how far their gang is.
    pub(super) fn report(&mut self, gang: &Gang, next: &Gang, members: &[Arc<Pod>], pass: &mut Pass) {
        match next.phase {
            Some(Phase::Released | Phase::Planned) => self.report_assigned(gang, next, members, pass),
            Some(
                Phase::Collecting
                | Phase::Waiting
                | Phase::Provisioning
                | Phase::Bound
                | Phase::Degraded
                | Phase::Invalid
                | Phase::Unsatisfiable,
            ) => self.report_waiting(gang, next, members, pass),
            Some(Phase::Committing | Phase::Finished) | None => {}
        }
    }

    /// Members with a node: `kubectl get pods` shows a gate that is gone.
    fn report_assigned(&self, gang: &Gang, next: &Gang, members: &[Arc<Pod>], pass: &mut Pass) {
        let unchanged = gang.phase == next.phase && gang.epoch == next.epoch;
        let age = gang.since.map_or(SignedDuration::ZERO, |since| self.world.now.duration_since(since));
        // With many members before kube-scheduler, waiting is no news, and a patch for each would only add to it.
        let due = RELEASED + RELEASED_EACH * i32::try_from(self.on_their_way).unwrap_or(i32::MAX);
        if unchanged && gang.phase == Some(Phase::Released) {
            self.requeue(pass, gang.since, due);
        }
        let places = next.places_by_uid();
        for pod in unbound(members) {
            let Some(place) = places.get(&pod.uid) else { continue };
            let report = match next.phase {
                Some(Phase::Planned) => {
                    is_on_its_way(pod).then(|| (PLANNED_ON, format!("planned on node {}", place.node)))
                }
                _ if !is_on_its_way(pod) && (!unchanged || age < due) => None,
                // The nomination says so to who showed what the gang waited for.
                _ => Some(released(pod, place, next)).filter(|(reason, _)| *reason == REFUSED || !shows_waiting(pod)),
            };
            if let Some((reason, message)) = report {
                tell(pod, reason, message, pass);
            }
        }
    }

    /// Members of a gang that waits: why, in the words of their Gang, once that has not changed for a while.
    fn report_waiting(&mut self, gang: &Gang, next: &Gang, members: &[Arc<Pod>], pass: &mut Pass) {
        let Some(waiting) = &next.waiting else { return };
        for pod in unbound(members).filter(|pod| matches!(pod.reported.as_deref(), Some(RELEASED_TO | PLANNED_ON))) {
            // What they show is not true any more.
            tell(pod, REFUSED, format!("the plan was withdrawn: {}", waiting.message), pass);
        }
        let Some(code) = Code::parse(&waiting.reason).map(Code::as_str) else { return };
        let stays = |pod: &Pod| pod.reported.as_deref() == Some(code);
        let withdrawn = |pod: &Pod| matches!(pod.reported.as_deref(), Some(RELEASED_TO | PLANNED_ON));
        let mut differ = unbound(members).filter(|pod| !withdrawn(pod) && !stays(pod)).peekable();
        if differ.peek().is_some() {
            let since = reason_since(gang, next, self.world.now);
            if since.is_some_and(|since| self.world.now.duration_since(since) < LASTS) {
                return self.requeue(pass, since, LASTS);
            }
        }
        for pod in differ {
            let Some(left) = self.reports_left.checked_sub(1) else {
                return self.requeue(pass, Some(self.world.now), NEXT);
            };
            self.reports_left = left;
            pass.actions.push(report(pod, code, waiting.message.to_string()));
        }
        let says_else = |pod: &Pod| pod.sentence.as_ref().is_some_and(|shown| *shown.message != *waiting.message);
        let at = |pod: &Pod| pod.sentence.as_ref().and_then(|shown| shown.at);
        let mut old: Vec<_> = unbound(members).filter(|pod| stays(pod) && says_else(pod)).collect();
        // In the order of pods the last ones of a large gang would never be reached.
        old.sort_by_key(|pod| at(pod));
        for pod in old {
            if at(pod).is_some_and(|at| self.world.now.duration_since(at) < REPHRASED) {
                return self.requeue(pass, at(pod), REPHRASED);
            }
            let Some(left) = self.rephrased_left.checked_sub(1) else {
                return self.requeue(pass, Some(self.world.now), NEXT);
            };
            self.rephrased_left = left;
            pass.actions.push(report(pod, code, waiting.message.to_string()));
        }
    }
}

/// Whether a member shows what its gang waits for.
#[must_use]
pub fn shows_waiting(pod: &Pod) -> bool {
    pod.reported.is_some() && !is_on_its_way(pod)
}

/// Whether a reason of the condition is what a gang waits for.
#[must_use]
pub fn is_waiting(reason: &str) -> bool {
    !matches!(reason, RELEASED_TO | PLANNED_ON | REFUSED)
}

/// Since when a gang waits for what it waits for; with the same reason as before since then.
pub(super) fn reason_since(gang: &Gang, next: &Gang, now: Timestamp) -> Option<Timestamp> {
    let waiting = next.waiting.as_ref()?;
    match gang.waiting.as_ref().filter(|before| before.reason == waiting.reason) {
        // What an older version wrote has no time of its own.
        Some(before) => before.since.or(gang.since),
        None => Some(now),
    }
}

fn unbound(members: &[Arc<Pod>]) -> impl Iterator<Item = &Arc<Pod>> {
    members.iter().filter(|pod| pod.node.is_none())
}

/// Whether the member shows that it has, or had, a node.
fn is_on_its_way(pod: &Pod) -> bool {
    pod.reported.as_deref().is_some_and(|reason| !is_waiting(reason))
}

fn released(pod: &Pod, place: &GangPlace, next: &Gang) -> (&'static str, String) {
    match refused(pod).filter(|_| !pod.gated) {
        None => (
            RELEASED_TO,
            format!(
                "sent to kube-scheduler for node {}; bound once {} members stand at the barrier",
                place.node, next.minimum
            ),
        ),
        Some(refused) => (REFUSED, refused.message.to_string()),
    }
}

fn tell(pod: &Arc<Pod>, reason: &'static str, message: String, pass: &mut Pass) {
    if pod.reported.as_deref() != Some(reason) {
        pass.actions.push(report(pod, reason, message));
    }
}

fn report(pod: &Arc<Pod>, reason: &'static str, message: String) -> Action {
    Action::Report(Box::new(MemberReport { pod: Arc::clone(pod), reason, message }))
}
