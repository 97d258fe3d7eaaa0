//! The objective vector, packed so that adding and comparing it costs a few instructions.
//!
//! Every field is a non-negative integer with a bound known before the search. Fields lie side by side in 64-bit limbs,
//! most important first, none across two limbs: limb-wise addition is then addition of vectors, because no sum of a
//! search exceeds its field's bound, and comparing limbs from the first on is comparing vectors.

use std::fmt::Debug;

use super::capacity::Capacity;
use crate::planner::plan::{LevelIndex, Placement};

/// A packed vector of costs.
pub(super) trait Cost: Copy + Ord + Debug {
    /// Number of 64-bit limbs.
    const LIMBS: usize;
    /// All fields 0.
    const ZERO: Self;
    /// Larger than every cost a search can reach: no such placement. The sum of two is still larger than every cost,
    /// and [`Self::settled`] makes it this again.
    const NEVER: Self;

    /// A vector that is 0 but for `value`, shifted within one limb.
    fn field(at: Field, value: u64) -> Self;

    /// The sum, field by field.
    fn plus(self, other: Self) -> Self;

    /// Keeps the fields set in `mask`.
    fn masked(self, mask: Self) -> Self;

    /// One of the limbs, most important first.
    fn limb(self, index: usize) -> u64;

    /// The cost, or [`Self::NEVER`] if there is one in the sum.
    fn settled(self) -> Self {
        self.min(Self::NEVER)
    }
}

/// Where a field lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Field {
    limb: usize,
    shift: u32,
}

/// Where every field of every level lies.
#[derive(Clone, Debug)]
pub(super) struct Layout {
    /// Field 2: domains used, per level.
    pub(super) used: Vec<Field>,
    /// Field 4, first part: domains broken, per level.
    pub(super) broken: Vec<Field>,
    /// Field 4, second part: what is left in touched domains, per level.
    pub(super) left: Vec<Field>,
    /// Limbs needed.
    pub(super) limbs: usize,
    counts: Vec<u64>,
    totals: Vec<u64>,
}

/// Two limbs in one integer: enough for most clusters.
impl Cost for u128 {
    const LIMBS: usize = 2;
    const ZERO: Self = 0;
    const NEVER: Self = 1 << 126;

    fn field(at: Field, value: u64) -> Self {
        Self::from(value) << (at.shift + if at.limb == 0 { 64 } else { 0 })
    }

    fn plus(self, other: Self) -> Self {
        self + other
    }

    fn masked(self, mask: Self) -> Self {
        self & mask
    }

    #[expect(clippy::cast_possible_truncation, reason = "one half at a time")]
    fn limb(self, index: usize) -> u64 {
        if index == 0 { (self >> 64) as u64 } else { self as u64 }
    }
}

/// Any number of limbs.
impl<const N: usize> Cost for [u64; N] {
    const LIMBS: usize = N;
    const ZERO: Self = [0; N];
    const NEVER: Self = {
        let mut cost = [0; N];
        cost[0] = 1 << 62;
        cost
    };

    fn field(at: Field, value: u64) -> Self {
        let mut cost = Self::ZERO;
        cost[at.limb] = value << at.shift;
        cost
    }

    fn plus(mut self, other: Self) -> Self {
        for (limb, more) in self.iter_mut().zip(other) {
            *limb += more;
        }
        self
    }

    fn masked(mut self, mask: Self) -> Self {
        for (limb, keep) in self.iter_mut().zip(mask) {
            *limb &= keep;
        }
        self
    }

    fn limb(self, index: usize) -> u64 {
        self[index]
    }
}

impl Layout {
    /// Lays the fields out for a gang of which `limit` members are to be placed.
    pub(super) fn new(placement: Placement, capacity: &Capacity, limit: u64) -> Self {
        let domains: Vec<u64> = capacity.slots.iter().map(|slots| slots.len() as u64).collect();
        let total: u64 = capacity.free.first().map_or(0, |free| free.iter().sum());
        Self::sized(placement, &domains, total, limit)
    }

    /// The same for so many domains per level and at most so much free in all.
    pub(super) fn sized(placement: Placement, domains: &[u64], total: u64, limit: u64) -> Self {
        let counts: Vec<u64> = domains.iter().map(|domains| limit.min(*domains)).collect();
        // Every level has the same free in total; a sum of what is left cannot exceed it.
        let totals = vec![total; counts.len()];
        // Two bits stay free for the cost of what cannot be.
        let mut packer = Packer { limb: 0, free: u64::BITS - 2 };
        let (used, broken, left) = match placement {
            Placement::Locality => {
                let used = packer.fields(&counts);
                (used, packer.fields(&counts), packer.fields(&totals))
            }
            Placement::Packing => {
                let broken = packer.fields(&counts);
                let left = packer.fields(&totals);
                (packer.fields(&counts), broken, left)
            }
        };
        Self { used, broken, left, limbs: packer.limb + 1, counts, totals }
    }

    /// The bits of field 2.
    pub(super) fn used_mask<C: Cost>(&self) -> C {
        mask(&self.used, &self.counts)
    }

    /// The bits of everything that comes before the balance at `level`.
    pub(super) fn above_balance<C: Cost>(&self, placement: Placement, level: LevelIndex) -> C {
        let used: C = mask(&self.used[..=level], &self.counts);
        match placement {
            Placement::Locality => used,
            Placement::Packing => used.plus(mask(&self.broken, &self.counts)).plus(mask(&self.left, &self.totals)),
        }
    }

    /// Domains of a level that are used, those with bound members not counted.
    pub(super) fn used_of<C: Cost>(&self, level: LevelIndex, cost: C) -> u64 {
        read(self.used[level], self.counts[level], cost)
    }

    /// Domains of a level that are broken.
    pub(super) fn broken_of<C: Cost>(&self, level: LevelIndex, cost: C) -> u64 {
        read(self.broken[level], self.counts[level], cost)
    }

    /// What is left at a level.
    pub(super) fn left_of<C: Cost>(&self, level: LevelIndex, cost: C) -> u64 {
        read(self.left[level], self.totals[level], cost)
    }
}

fn read<C: Cost>(Field { limb, shift }: Field, bound: u64, cost: C) -> u64 {
    (cost.limb(limb) >> shift) & low_bits(bits_for(bound))
}

fn mask<C: Cost>(fields: &[Field], bounds: &[u64]) -> C {
    let bits = |(field, bound): (&Field, &u64)| C::field(*field, low_bits(bits_for(*bound)));
    fields.iter().zip(bounds).map(bits).fold(C::ZERO, C::plus)
}

/// Hands out bits from the most significant down.
struct Packer {
    limb: usize,
    free: u32,
}

impl Packer {
    fn fields(&mut self, bounds: &[u64]) -> Vec<Field> {
        bounds
            .iter()
            .map(|bound| {
                let width = bits_for(*bound);
                if width > self.free {
                    self.limb += 1;
                    self.free = u64::BITS;
                }
                self.free -= width;
                // A field without bits holds only zeros: any place does, but a shift by 64 would overflow.
                Field { limb: self.limb, shift: self.free.min(u64::BITS - 1) }
            })
            .collect()
    }
}

fn bits_for(bound: u64) -> u32 {
    u64::BITS - bound.leading_zeros()
}

fn low_bits(width: u32) -> u64 {
    1_u64.checked_shl(width).map_or(u64::MAX, |power| power - 1)
}
