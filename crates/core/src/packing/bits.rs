//! Sets of small integers as words, so that a search only ANDs.

/// A set of indices below a fixed number.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Bits(Vec<u64>);

impl Bits {
    /// The empty set of indices below `size`.
    pub(super) fn none(size: usize) -> Self {
        Self(vec![0; size.div_ceil(64)])
    }

    /// The indices below `size` for which `is` holds.
    pub(super) fn of(size: usize, mut is: impl FnMut(usize) -> bool) -> Self {
        let mut bits = Self::none(size);
        (0..size).filter(|index| is(*index)).for_each(|index| bits.insert(index));
        bits
    }

    pub(super) fn insert(&mut self, index: usize) {
        if let Some(word) = self.0.get_mut(index / 64) {
            *word |= 1 << (index % 64);
        }
    }

    /// Inserts it; whether it was not there before.
    pub(super) fn is_new(&mut self, index: usize) -> bool {
        let new = !self.contains(index);
        self.insert(index);
        new
    }

    pub(super) fn contains(&self, index: usize) -> bool {
        self.0.get(index / 64).is_some_and(|word| word >> (index % 64) & 1 == 1)
    }

    pub(super) fn intersect(&mut self, other: &Self) {
        for (word, other) in self.0.iter_mut().zip(&other.0) {
            *word &= other;
        }
    }

    pub(super) fn subtract(&mut self, other: &Self) {
        for (word, other) in self.0.iter_mut().zip(&other.0) {
            *word &= !other;
        }
    }

    /// Whether it has all that the other has.
    pub(super) fn covers(&self, other: &Self) -> bool {
        self.0.iter().zip(&other.0).all(|(word, other)| word & other == *other)
    }

    pub(super) fn meets(&self, other: &Self) -> bool {
        self.0.iter().zip(&other.0).any(|(word, other)| word & other != 0)
    }

    pub(super) fn unite(&mut self, other: &Self) {
        for (word, other) in self.0.iter_mut().zip(&other.0) {
            *word |= other;
        }
    }

    /// The indices that are in all of the others as well, ascending, found as they are asked for.
    pub(super) fn shared_with<'s>(&'s self, others: &'s [&'s Self]) -> impl Iterator<Item = usize> + 's {
        self.0.iter().enumerate().filter(|(_, word)| **word != 0).flat_map(move |(at, word)| {
            let word = others.iter().fold(*word, |word, other| word & other.0.get(at).copied().unwrap_or(0));
            indices(at, word)
        })
    }

    /// The indices, ascending.
    pub(super) fn iter(&self) -> impl Iterator<Item = usize> + '_ {
        self.0.iter().enumerate().flat_map(|(at, word)| indices(at, *word))
    }
}

/// The indices of one word.
fn indices(at: usize, word: u64) -> impl Iterator<Item = usize> {
    let mut rest = word;
    std::iter::from_fn(move || {
        let bit = (rest != 0).then(|| rest.trailing_zeros() as usize)?;
        rest &= rest - 1;
        Some(at * 64 + bit)
    })
}
