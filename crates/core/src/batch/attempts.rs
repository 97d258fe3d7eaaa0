//! The attempts of a batch: which candidate comes next, and which attempts its status keeps.

use crate::offering::{MAX_CANDIDATES, Ranked, Ranking};

/// Attempts kept for people to read, whatever they came to.
const RECENT: usize = 20;

/// What an attempt means for those after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AttemptKind {
    /// Its candidate was tried: the round does not try it again.
    Tried,
    /// It launched the whole batch: replacements repeat its parameters.
    LaunchedWhole,
    /// The same candidate is to be asked again: no verdict on it.
    Retry,
    /// It replaced lost nodes in place.
    Replacement,
}

impl AttemptKind {
    /// Whether a round counts the candidate as tried.
    fn counts(self) -> bool {
        match self {
            Self::Tried | Self::LaunchedWhole => true,
            Self::Retry | Self::Replacement => false,
        }
    }
}

/// An attempt, as far as others depend on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PastAttempt<'a> {
    /// Number, from 1, rising.
    pub number: u32,
    /// What it means.
    pub kind: AttemptKind,
    /// Instance type.
    pub instance_type: &'a str,
    /// Zone.
    pub zone: &'a str,
    /// Subnet.
    pub subnet: &'a str,
    /// Capacity type, in the words of [`crate::ec2::CapacityType::as_str`].
    pub capacity_type: &'a str,
    /// In a placement group.
    pub group: bool,
    /// Id of the reservation it went into.
    pub reservation: Option<&'a str>,
}

impl PastAttempt<'_> {
    fn of(&self, ranked: &Ranked) -> bool {
        let candidate = &ranked.candidate;
        self.instance_type == candidate.instance_type
            && self.zone == candidate.zone
            && self.subnet == candidate.subnet_id
            && self.capacity_type == candidate.capacity_type.as_str()
            && self.group == candidate.placement_group
            && self.reservation == candidate.reservation.as_ref().map(|target| target.id.as_str())
    }

    fn of_round(&self, round_from: u32) -> bool {
        self.number > round_from && self.kind.counts()
    }
}

/// The first candidate that the round has not tried. `None` ends the round: nothing is left, or as many were tried as
/// a ranking ever names (what is tried and remembered as missing makes place for others in the next ranking).
///
/// The round are the attempts after number `round_from`.
#[must_use]
pub fn untried<'a>(attempts: &[PastAttempt<'_>], round_from: u32, ranking: &'a Ranking) -> Option<&'a Ranked> {
    let round: Vec<&PastAttempt<'_>> = attempts.iter().filter(|attempt| attempt.of_round(round_from)).collect();
    if round.len() >= MAX_CANDIDATES {
        return None;
    }
    ranking.candidates.iter().find(|ranked| !round.iter().any(|attempt| attempt.of(ranked)))
}

/// Which attempts the status keeps, one answer per attempt in the order given (oldest first).
///
/// The candidates the round has tried, or else it would try them again and never end; the last launch of the whole
/// batch, whose parameters replacements repeat; and the most recent ones. A status stays bounded by [`MAX_CANDIDATES`]
/// and a few more.
#[must_use]
pub fn kept(attempts: &[PastAttempt<'_>], round_from: u32) -> Vec<bool> {
    let launched = attempts.iter().rposition(|attempt| attempt.kind == AttemptKind::LaunchedWhole);
    let recent = attempts.len().saturating_sub(RECENT);
    let keep = |(index, attempt): (usize, &PastAttempt<'_>)| {
        index >= recent || Some(index) == launched || attempt.of_round(round_from)
    };
    attempts.iter().enumerate().map(keep).collect()
}

#[cfg(test)]
mod tests {
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
        Ranking { candidates, left_out: Vec::new() }
    }

    fn attempt(number: u32, kind: AttemptKind, ranked: &Ranked) -> PastAttempt<'_> {
        PastAttempt {
            number,
            kind,
            instance_type: &ranked.candidate.instance_type,
            zone: &ranked.candidate.zone,
            subnet: &ranked.candidate.subnet_id,
            capacity_type: ranked.candidate.capacity_type.as_str(),
            group: ranked.candidate.placement_group,
            reservation: None,
        }
    }

    /// Appends an attempt and forgets what need not be kept.
    fn record<'a>(attempts: &mut Vec<PastAttempt<'a>>, attempt: PastAttempt<'a>, round_from: u32) {
        attempts.push(attempt);
        let mut kept = kept(attempts, round_from).into_iter();
        attempts.retain(|_| kept.next().unwrap());
    }

    /// Tries what is untried until nothing is, or 200 times: the zones, in order.
    fn round<'a>(ranking: &'a Ranking, attempts: &mut Vec<PastAttempt<'a>>, round_from: u32) -> Vec<&'a str> {
        let mut zones = Vec::new();
        let mut number = round_from;
        while let Some(next) = untried(attempts, round_from, ranking).filter(|_| zones.len() < 200) {
            number += 1;
            zones.push(next.candidate.zone.as_str());
            record(attempts, attempt(number, AttemptKind::Tried, next), round_from);
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
        for kind in [AttemptKind::Retry, AttemptKind::Replacement] {
            assert_eq!(untried(&[attempt(1, kind, first)], 0, &ranking), Some(first), "{kind:?}");
        }
        for kind in [AttemptKind::Tried, AttemptKind::LaunchedWhole] {
            assert_eq!(untried(&[attempt(1, kind, first)], 0, &ranking), Some(&ranking.candidates[1]), "{kind:?}");
            assert_eq!(untried(&[attempt(1, kind, first)], 1, &ranking), Some(first), "{kind:?} of an earlier round");
        }
    }

    #[test]
    fn a_candidate_that_differs_in_anything_is_another_one() {
        let ranking = ranking(1);
        let first = &ranking.candidates[0];
        let same = attempt(1, AttemptKind::Tried, first);
        assert_eq!(untried(&[same], 0, &ranking), None);
        for other in [
            PastAttempt { instance_type: "p5e.48xlarge", ..same },
            PastAttempt { zone: "z", ..same },
            PastAttempt { subnet: "subnet-z", ..same },
            PastAttempt { capacity_type: "spot", ..same },
            PastAttempt { group: false, ..same },
            PastAttempt { reservation: Some("cr-1"), ..same },
        ] {
            assert_eq!(untried(&[other], 0, &ranking), Some(first), "{other:?}");
        }
    }

    #[test]
    fn the_launch_of_the_whole_batch_outlives_any_number_of_replacements() {
        let ranked = ranked("a");
        let mut attempts = Vec::new();
        record(&mut attempts, attempt(1, AttemptKind::LaunchedWhole, &ranked), 0);
        record(&mut attempts, attempt(2, AttemptKind::LaunchedWhole, &ranked), 2);
        for number in 3..100 {
            record(&mut attempts, attempt(number, AttemptKind::Replacement, &ranked), 2);
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
            record(&mut attempts, attempt(number, AttemptKind::Tried, &ranked), number - 1);
        }
        for number in 31..=90 {
            record(&mut attempts, attempt(number, AttemptKind::Retry, &ranked), 30);
        }
        let numbers: Vec<u32> = attempts.iter().map(|attempt| attempt.number).collect();
        assert_eq!(numbers, (71..=90).collect::<Vec<u32>>());
    }
}
