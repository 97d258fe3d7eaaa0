//! A batch without an attempt: the next candidate is chosen, or something is waited for.

use super::attempts::untried;
use super::candidates::{Size, back_off, begin, show};
use super::case::{Case, Step, Turn, done, later};
use super::decision::{Before, Change, Look, Made, Note, Requeue};
use super::launch::asked;
use super::{owner, probe};
use crate::ec2::error::ErrorClass;
use crate::model::batch::{AttemptOutcome, BatchPhase, BatchStatus, HoldReason};
use crate::offering::exclusion::Exclusion;
use crate::offering::rank::Ranking;

/// Nothing is launched again for a booking whose gang has gone: it is waited for, as long as it may come again, and then the batch
/// ends.
fn of_used_booking(case: &Case<'_>) -> Option<Turn> {
    if !owner::is_over(case) {
        return None;
    }
    let mut next = case.status();
    let since = next.since.unwrap_or(case.world.now_real);
    if since.saturating_add(owner::COMES_AGAIN).is_ok_and(|due| due > case.world.now_real) {
        next.message = Some(owner::NOT_COME_AGAIN.to_owned());
        return Some(Turn::write(next).requeue(Requeue::At(later(case.now(), 30))));
    }
    next.phase = BatchPhase::Draining;
    next.message = Some("nobody uses the booking any more: being terminated".to_owned());
    Some(Turn::write(next))
}

/// Picks the next candidate, or waits.
pub(super) fn pending(case: &Case<'_>) -> Step<Turn> {
    let mut status = case.status();
    let (now, supply) = (case.now(), case.world.supply);
    if let Some(turn) = without_fleets(case, case.status()) {
        return Ok(turn);
    }
    if !status.launch_templates.is_empty() {
        // Each attempt has a template of its own; between two attempts none is needed, and insufficient capacity has many.
        done(case.change(Change::DeleteTemplates(case.tags(status.attempt)), None)?)?;
        status.launch_templates.clear();
        return Ok(Turn::write(status));
    }
    if let Some(turn) = for_members(case) {
        return Ok(turn);
    }
    if let Some(turn) = of_used_booking(case) {
        return Ok(turn);
    }
    let unready = supply.unready(case.batch);
    if probe::held(&status) && unready.is_none() {
        probe::over(&mut status);
        return Ok(Turn::write(status));
    }
    if let Some(hold) = status.held.as_ref().filter(|hold| hold.reason != HoldReason::JoinBlocked) {
        if hold.seen == supply.generations(case.batch) {
            return Ok(Turn::wait(Requeue::At(later(now, 600))));
        }
        status.held = None;
        status.misses = 0;
        status.round_from = status.attempt;
        status.message = Some("pool or class changed: tried again".to_owned());
        return Ok(Turn::write(status));
    }
    if let Some(why) = unready {
        // No verdict on capacity: it goes on as soon as one of them is ready again.
        return Ok(probe::wait(case, status, &why));
    }
    if let Some(at) = status.next_attempt_after.filter(|at| *at > now) {
        return Ok(Turn::wait(Requeue::At(at)));
    }
    if supply.reservations_are_stale(case.batch, now) {
        case.refresh(Look::Reservations(case.batch.spec.node_pools.clone()))?;
    }
    let ranking = supply.rank(case.batch, case.others, Before::Older, now);
    show(&mut status, &ranking);
    if let Some(ranked) = untried(&status.attempts, status.round_from, &ranking) {
        let ranked = ranked.clone();
        return Ok(begin(case, status, &ranked, Size::Whole));
    }
    if ranking.candidates.is_empty() {
        let alone = supply.rank(case.batch, case.others, Before::Nobody, now);
        if untried(&status.attempts, status.round_from, &alone).is_some() {
            // No verdict: the older batch may take less than it might, or another pool.
            status.message =
                Some(format!("waits for an older NodeBatch to begin: {}", nothing_left(&status, &ranking, &[])));
            return Ok(Turn::write(status).requeue(Requeue::At(later(now, 5))));
        }
    }
    let why = nothing_left(&status, &ranking, &supply.problems(case.batch));
    back_off(case, &mut status, &why);
    // A Capacity Block that begins is no insufficient capacity: its gang is there when it does.
    let begins = ranking.excluded.iter().filter_map(|left| match &left.reason {
        Exclusion::ReservationNotStarted { start, .. } => *start,
        _other => None,
    });
    if let Some(begins) = begins.filter(|start| *start > now).min() {
        status.next_attempt_after = status.next_attempt_after.map(|at| at.min(begins));
    }
    let at = status.next_attempt_after.unwrap_or(now);
    Ok(Turn::write(status).requeue(Requeue::At(at)))
}

/// Nothing is launched for a gang that could not use it: members are missing or held, or one of them cannot be read. Where that
/// lasts, the batch ends, and what it takes of limits with it; once the gang is whole it gets another.
fn for_members(case: &Case<'_>) -> Option<Turn> {
    let (gang, since) = owner::incomplete(case)?;
    let mut status = case.status();
    let due = since.or(status.since).and_then(|since| since.saturating_add(owner::COMES_AGAIN).ok());
    if due.is_some_and(|due| due <= case.world.now_real) {
        status.phase = BatchPhase::Draining;
        status.message = Some("its gang did not become whole: nothing is launched".to_owned());
        return Some(Turn::write(status));
    }
    let waits = gang.waiting.as_ref().map_or("members are missing", |waiting| &*waiting.message);
    status.message = Some(format!("nothing is launched before its gang is whole: {waits}"));
    Some(Turn::write(status).requeue(Requeue::At(later(case.now(), 30))))
}

/// Why there is no candidate, in a sentence.
fn nothing_left(status: &BatchStatus, ranking: &Ranking, problems: &[String]) -> String {
    // There was capacity, and what came of it is what people have to know.
    let of_round = status.attempts.iter().rev().filter(|attempt| attempt.number > status.round_from);
    let given_up = of_round
        .filter(|attempt| attempt.outcome == AttemptOutcome::Violated)
        .find_map(|attempt| attempt.message.as_ref());
    if let Some(message) = given_up {
        return format!("no candidate is left; of what was launched: {message}");
    }
    let mut reasons: Vec<String> = problems.to_vec();
    for left in &ranking.excluded {
        let reason = left.reason.to_string();
        if !reasons.contains(&reason) {
            reasons.push(reason);
        }
    }
    reasons.truncate(3);
    if !ranking.candidates.is_empty() || reasons.is_empty() {
        return "no candidate has capacity".to_owned();
    }
    format!("no candidate is left: {}", reasons.join("; "))
}

/// Where no fleet of ours could be deleted, the same candidate is launched by RunInstances.
pub(super) fn without_fleets(case: &Case<'_>, mut status: BatchStatus) -> Option<Turn> {
    match case.outcome(&Change::DeleteFinishedFleets)? {
        Ok(Made::Fleets(deleted)) if *deleted > 0 => return None,
        Ok(_) | Err(_) => {}
    }
    let attempt = status.last()?;
    let code = attempt.code.clone();
    let number = attempt.number;
    let note = Note::Refused { kind: ErrorClass::FleetLimit, code, asked: asked(attempt) };
    status.next_attempt_after = None;
    status.message = Some(format!("attempt {number} lost (too many fleets): the same candidate by RunInstances"));
    Some(Turn::write(status).note(note))
}

#[cfg(test)]
mod tests {
    use super::super::fixtures::attempt;
    use super::*;
    use crate::model::batch::Attempt;

    #[test]
    fn what_became_of_a_launch_of_this_round_is_why_no_candidate_is_left() {
        let of = |number: u32, outcome: AttemptOutcome, message: &str| Attempt {
            number,
            outcome,
            message: Some(message.to_owned()),
            ..attempt()
        };
        let attempts = vec![
            of(1, AttemptOutcome::Violated, "an old one"),
            of(2, AttemptOutcome::Violated, "torn apart"),
            of(3, AttemptOutcome::Lost, "no capacity"),
        ];
        let why = |round_from: u32| {
            let status = BatchStatus { attempts: attempts.clone(), round_from, ..BatchStatus::default() };
            nothing_left(&status, &Ranking::default(), &["no subnet".to_owned()])
        };
        assert_eq!(why(0), "no candidate is left; of what was launched: torn apart", "the last that was launched");
        assert_eq!(why(1), "no candidate is left; of what was launched: torn apart");
        assert_eq!(why(2), "no candidate is left: no subnet", "that was an earlier round");
    }
}
