//! Ids, drawn from the seed.

use rand::Rng;
use rand_chacha::ChaCha8Rng;

/// The source of ids.
#[derive(Debug)]
pub(crate) struct Ids(ChaCha8Rng);

impl Ids {
    pub(crate) fn new(rng: ChaCha8Rng) -> Self {
        Self(rng)
    }

    /// `<prefix>-` and 17 hexadecimal digits.
    pub(crate) fn resource(&mut self, prefix: &str) -> String {
        format!("{prefix}-0{:016x}", self.0.next_u64())
    }

    /// A number from 0 up to 1, of a stream of its own use.
    pub(crate) fn fraction(&mut self) -> f64 {
        f64::from(self.0.next_u32()) / (f64::from(u32::MAX) + 1.0)
    }

    /// In the shape of a UUID of version 4.
    pub(crate) fn uuid(&mut self) -> String {
        let (high, low) = (self.0.next_u64(), self.0.next_u64());
        format!(
            "{:08x}-{:04x}-4{:03x}-8{:03x}-{:012x}",
            high >> 32,
            (high >> 16) & 0xffff,
            high & 0xfff,
            (low >> 48) & 0xfff,
            low & 0xffff_ffff_ffff
        )
    }
}
