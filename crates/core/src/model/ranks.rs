//! Ranks of a role's members: every valid, unique rank keeps its place, only faulty members fill the holes.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;

use crate::model::gang::RankClaim;
use crate::model::names::PodUid;

/// One live member of a role.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claimant {
    /// The pod.
    pub uid: PodUid,
    /// When it was created.
    pub created: Option<Timestamp>,
    /// The rank it claims.
    pub claim: RankClaim,
}

/// Who holds which rank, and what was wrong.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ranks {
    /// Indexed by rank, one entry per place of the role; `None` = no pod yet.
    pub holders: Vec<Option<PodUid>>,
    /// Live members beyond the role's count.
    pub surplus: Vec<PodUid>,
    /// Faults found, one entry per kind, with one offending pod each.
    pub faults: BTreeMap<RankFault, PodUid>,
}

/// What can be wrong with a rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RankFault {
    /// No rank, while others have one.
    Missing,
    /// Two live members claim it.
    Duplicate,
    /// Not below the role's count.
    OutOfRange,
    /// Not an integer.
    NotInteger,
}

impl RankFault {
    /// The word in conditions and metrics.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Missing => "missing",
            Self::Duplicate => "duplicate",
            Self::OutOfRange => "out_of_range",
            Self::NotInteger => "not_integer",
        }
    }
}

/// Gives every member of a role its rank.
///
/// Shapes: the answer has `count` holders. A member with a valid rank that nobody else claims keeps it; the oldest of
/// several claimants counts as faulty like the others, so that the result does not depend on who came first. Faulty
/// members fill the holes by creation time, then UID. If no member claims a rank at all, that is an order of its own
/// and no fault.
///
/// As `docs/conventions.md` has it under "Ranks", after kueue #13919.
#[must_use]
pub fn assign(count: u32, claimants: &[Claimant]) -> Ranks {
    let count = usize::try_from(count).unwrap_or(usize::MAX).min(MAX_PLACES);
    let mut ranks = Ranks { holders: vec![None; count], ..Ranks::default() };
    let nobody_claims = claimants.iter().all(|claimant| claimant.claim == RankClaim::Missing);
    let mut by_rank: BTreeMap<usize, Vec<&Claimant>> = BTreeMap::new();
    let mut faulty: Vec<&Claimant> = Vec::new();
    for claimant in claimants {
        match &claimant.claim {
            RankClaim::Rank(rank) => match usize::try_from(*rank) {
                Ok(rank) if rank < count => by_rank.entry(rank).or_default().push(claimant),
                _ => {
                    ranks.faults.insert(RankFault::OutOfRange, claimant.uid.clone());
                    faulty.push(claimant);
                }
            },
            RankClaim::Missing => {
                if !nobody_claims {
                    ranks.faults.insert(RankFault::Missing, claimant.uid.clone());
                }
                faulty.push(claimant);
            }
            RankClaim::NotInteger(_) => {
                ranks.faults.insert(RankFault::NotInteger, claimant.uid.clone());
                faulty.push(claimant);
            }
        }
    }
    for (rank, holders) in by_rank {
        if let [only] = holders.as_slice() {
            ranks.holders[rank] = Some(only.uid.clone());
        } else {
            for holder in holders {
                ranks.faults.insert(RankFault::Duplicate, holder.uid.clone());
                faulty.push(holder);
            }
        }
    }
    faulty.sort_by(|a, b| (a.created, &a.uid).cmp(&(b.created, &b.uid)));
    let mut faulty = faulty.into_iter();
    for holder in ranks.holders.iter_mut().filter(|holder| holder.is_none()) {
        let Some(claimant) = faulty.next() else { break };
        *holder = Some(claimant.uid.clone());
    }
    ranks.surplus = faulty.map(|claimant| claimant.uid.clone()).collect();
    ranks
}

/// Largest gang; more is refused at recognition.
pub const MAX_PLACES: usize = 5_000;

/// Reads a rank: a decimal unsigned integer, nothing else.
#[must_use]
pub fn parse(text: &str) -> RankClaim {
    if !text.is_empty()
        && text.bytes().all(|byte| byte.is_ascii_digit())
        && let Ok(rank) = text.parse()
    {
        return RankClaim::Rank(rank);
    }
    RankClaim::NotInteger(Arc::from(text))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claimant(uid: &str, claim: RankClaim) -> Claimant {
        Claimant { uid: uid.into(), created: None, claim }
    }

    #[track_caller]
    fn check(count: u32, claims: &[(&str, &str)], expected: &[Option<&str>], faults: &[RankFault]) {
        let claimants: Vec<_> = claims
            .iter()
            .map(|(uid, claim)| claimant(uid, if *claim == "-" { RankClaim::Missing } else { parse(claim) }))
            .collect();
        let ranks = assign(count, &claimants);
        let holders: Vec<_> = ranks.holders.iter().map(|holder| holder.as_ref().map(PodUid::as_str)).collect();
        assert_eq!(holders, expected);
        assert_eq!(ranks.faults.keys().copied().collect::<Vec<_>>(), faults);
    }

    #[test]
    fn ranks_are_integers_and_never_sorted_as_text() {
        check(
            11,
            &[("b", "10"), ("a", "2")],
            &{
                let mut expected = [None; 11];
                expected[2] = Some("a");
                expected[10] = Some("b");
                expected
            },
            &[],
        );
    }

    #[test]
    fn a_valid_unique_rank_keeps_its_place_beside_faulty_ones() {
        check(
            4,
            &[("a", "x"), ("b", "1"), ("c", "9"), ("d", "3")],
            &[Some("a"), Some("b"), Some("c"), Some("d")],
            &[RankFault::OutOfRange, RankFault::NotInteger],
        );
    }

    #[test]
    fn duplicates_fill_the_holes_and_spoil_nobody_else() {
        check(3, &[("a", "0"), ("b", "0"), ("c", "2")], &[Some("a"), Some("b"), Some("c")], &[RankFault::Duplicate]);
    }

    #[test]
    fn members_without_any_rank_are_ordered_by_uid_without_a_fault() {
        check(2, &[("b", "-"), ("a", "-")], &[Some("a"), Some("b")], &[]);
    }

    #[test]
    fn members_beyond_the_count_are_surplus() {
        let claimants = [claimant("a", RankClaim::Missing), claimant("b", RankClaim::Missing)];
        assert_eq!(assign(1, &claimants).surplus, [PodUid::from("b")]);
    }
}
