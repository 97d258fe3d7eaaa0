//! The attempts of a batch: which candidate comes next, and which attempts its status keeps.

use crate::model::batch::{Attempt, AttemptOutcome};
use crate::model::launch::Target;
use crate::offering::exclusion::MAX_CANDIDATES;
use crate::offering::rank::{Ranked, Ranking};

/// Attempts kept for people to read, whatever they came to.
const RECENT: usize = 20;

/// Whether its candidate was tried in the round that began after attempt `round_from`.
fn is_of_round(attempt: &Attempt, round_from: u32) -> bool {
    attempt.number > round_from && attempt.outcome != AttemptOutcome::Retry && attempt.replaces.is_empty()
}

fn is_of(attempt: &Attempt, ranked: &Ranked) -> bool {
    let candidate = &ranked.candidate;
    let into = |target: &Option<Target>| target.as_ref().map(|target| target.id.clone());
    attempt.instance_type == candidate.instance_type
        && attempt.zone == candidate.zone
        && attempt.subnet == candidate.subnet_id
        && attempt.capacity_type == candidate.capacity_type
        && attempt.group == candidate.placement_group
        && into(&attempt.reservation) == into(&candidate.reservation)
}

/// The first candidate that the round has not tried. `None` ends the round: nothing is left, or as many were tried as
/// a ranking ever names (what is tried and remembered as missing makes place for others in the next ranking).
///
/// The round are the attempts after number `round_from`.
#[must_use]
pub(super) fn untried<'a>(attempts: &[Attempt], round_from: u32, ranking: &'a Ranking) -> Option<&'a Ranked> {
    let round: Vec<&Attempt> = attempts.iter().filter(|attempt| is_of_round(attempt, round_from)).collect();
    if round.len() >= MAX_CANDIDATES {
        return None;
    }
    ranking.candidates.iter().find(|ranked| !round.iter().any(|attempt| is_of(attempt, ranked)))
}

/// Which attempts the status keeps, one answer per attempt in the order given (oldest first).
///
/// The candidates the round has tried, or else it would try them again and never end; the last launch of the whole
/// batch, whose parameters replacements repeat; and the most recent ones. A status stays bounded by [`MAX_CANDIDATES`]
/// and a few more.
#[must_use]
pub(super) fn kept(attempts: &[Attempt], round_from: u32) -> Vec<bool> {
    let launched = attempts.iter().rposition(Attempt::won_whole);
    let recent = attempts.len().saturating_sub(RECENT);
    let keep = |(index, attempt): (usize, &Attempt)| {
        index >= recent || Some(index) == launched || is_of_round(attempt, round_from)
    };
    attempts.iter().enumerate().map(keep).collect()
}

#[cfg(test)]
mod tests {
    use super::super::fixtures;
    use super::*;
    use crate::ec2::CapacityType;
    use crate::offering::Candidate;

    fn ranked(zone: &str) -> Ranked {
        Ranked {
            pool: "gpu".to_owned(),
            count: 4,
            candidate: Candidate {
                instance_type: "p5.48xlarge".to_owned(),
                zone: zone.to_owned(),
                zone_id: String::new(),
                subnet_id: format!("subnet-{zone}"),
                capacity_type: CapacityType::OnDemand,
                placement_group: true,
                reservation: None,
                reservation_group: None,
                price_micro_usd_per_hour: None,
            },
            total_micro_usd_per_hour: 0,
            headroom: None,
        }
    }

    fn ranking(candidates: usize) -> Ranking {
        let candidates = (0..candidates).map(|zone| ranked(&zone.to_string())).collect();
        Ranking { candidates, excluded: Vec::new() }
    }

    const TRIED: AttemptOutcome = AttemptOutcome::Lost;

    fn attempt(number: u32, outcome: AttemptOutcome, ranked: &Ranked) -> Attempt {
        let candidate = &ranked.candidate;
        Attempt {
            number,
            outcome,
            instance_type: candidate.instance_type.clone(),
            zone: candidate.zone.clone(),
            subnet: candidate.subnet_id.clone(),
            capacity_type: candidate.capacity_type,
            group: candidate.placement_group,
            ..fixtures::attempt()
        }
    }

    fn replacement(number: u32, ranked: &Ranked) -> Attempt {
        Attempt { replaces: vec!["i-1".into()], ..attempt(number, AttemptOutcome::Won, ranked) }
    }

    /// Appends an attempt and forgets what need not be kept.
    fn record(attempts: &mut Vec<Attempt>, attempt: Attempt, round_from: u32) {
        attempts.push(attempt);
        let mut kept = kept(attempts, round_from).into_iter();
        attempts.retain(|_| kept.next().unwrap());
    }

    /// Tries what is untried until nothing is, or 200 times: the zones, in order.
    fn round<'a>(ranking: &'a Ranking, attempts: &mut Vec<Attempt>, round_from: u32) -> Vec<&'a str> {
        let mut zones = Vec::new();
        let mut number = round_from;
        while let Some(next) = untried(attempts, round_from, ranking).filter(|_| zones.len() < 200) {
            number += 1;
            zones.push(next.candidate.zone.as_str());
            record(attempts, attempt(number, TRIED, next), round_from);
        }
        zones
    }

    #[test]
    fn a_round_tries_each_of_many_candidates_once_and_ends() {
        for candidates in [1, 20, 21, 24, MAX_CANDIDATES] {
            let ranking = ranking(candidates);
            let in_order: Vec<&str> = ranking.candidates.iter().map(|ranked| ranked.candidate.zone.as_str()).collect();
            let mut attempts = Vec::new();
            assert_eq!(round(&ranking, &mut attempts, 0), in_order, "{candidates} candidates");
            // The next round begins with the first again.
            let last = attempts.last().unwrap().number;
            assert_eq!(round(&ranking, &mut attempts, last), in_order, "{candidates} candidates");
        }
    }

    #[test]
    fn a_round_tries_no_more_candidates_than_a_ranking_names() {
        // Longer than any ranking is: as if each that was tried made place for another.
        let ranking = ranking(100);
        assert_eq!(round(&ranking, &mut Vec::new(), 7).len(), MAX_CANDIDATES);
    }

    #[test]
    fn a_retry_and_a_replacement_try_no_candidate() {
        let ranking = ranking(2);
        let first = &ranking.candidates[0];
        for past in [attempt(1, AttemptOutcome::Retry, first), replacement(1, first)] {
            assert_eq!(untried(std::slice::from_ref(&past), 0, &ranking), Some(first), "{past:?}");
        }
        for kind in [TRIED, AttemptOutcome::Won, AttemptOutcome::Violated] {
            assert_eq!(untried(&[attempt(1, kind, first)], 0, &ranking), Some(&ranking.candidates[1]), "{kind:?}");
            assert_eq!(untried(&[attempt(1, kind, first)], 1, &ranking), Some(first), "{kind:?} of an earlier round");
        }
    }

    #[test]
    fn a_candidate_that_differs_in_anything_is_another_one() {
        let ranking = ranking(1);
        let first = &ranking.candidates[0];
        let same = attempt(1, TRIED, first);
        assert_eq!(untried(std::slice::from_ref(&same), 0, &ranking), None);
        for other in [
            Attempt { instance_type: "p5e.48xlarge".to_owned(), ..same.clone() },
            Attempt { zone: "z".to_owned(), ..same.clone() },
            Attempt { subnet: "subnet-z".to_owned(), ..same.clone() },
            Attempt { capacity_type: CapacityType::Spot, ..same.clone() },
            Attempt { group: false, ..same.clone() },
            Attempt { reservation: Some(Target { id: "cr-1".to_owned(), block: false }), ..same },
        ] {
            assert_eq!(untried(std::slice::from_ref(&other), 0, &ranking), Some(first), "{other:?}");
        }
    }

    #[test]
    fn the_launch_of_the_whole_batch_outlives_any_number_of_replacements() {
        let ranked = ranked("a");
        let mut attempts = Vec::new();
        record(&mut attempts, attempt(1, AttemptOutcome::Won, &ranked), 0);
        record(&mut attempts, attempt(2, AttemptOutcome::Won, &ranked), 2);
        for number in 3..100 {
            record(&mut attempts, replacement(number, &ranked), 2);
        }
        let numbers: Vec<u32> = attempts.iter().map(|attempt| attempt.number).collect();
        let recent: Vec<u32> = std::iter::once(2).chain(80..100).collect();
        assert_eq!(numbers, recent);
    }

    #[test]
    fn retries_and_earlier_rounds_are_forgotten_beyond_the_most_recent() {
        let ranked = ranked("a");
        let mut attempts = Vec::new();
        for number in 1..=30 {
            record(&mut attempts, attempt(number, TRIED, &ranked), number - 1);
        }
        for number in 31..=90 {
            record(&mut attempts, attempt(number, AttemptOutcome::Retry, &ranked), 30);
        }
        let numbers: Vec<u32> = attempts.iter().map(|attempt| attempt.number).collect();
        assert_eq!(numbers, (71..=90).collect::<Vec<u32>>());
    }
}
