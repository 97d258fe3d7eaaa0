//! P1: the very cases of the property test against exhaustive enumeration, counted by feature.

use std::collections::BTreeMap;

use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;

#[allow(dead_code, clippy::unwrap_used, reason = "code of the tests, which use all of it and may panic")]
#[path = "../../tests/it/planner/build.rs"]
mod build;
#[allow(
    dead_code,
    unused_imports,
    clippy::unwrap_used,
    reason = "code of the tests, which use all of it and may panic"
)]
#[path = "../../tests/it/planner/change.rs"]
mod change;
#[allow(dead_code, clippy::unwrap_used, reason = "code of the tests, which use all of it and may panic")]
#[path = "../../tests/it/planner/oracle.rs"]
mod oracle;
#[allow(
    dead_code,
    unused_imports,
    clippy::unwrap_used,
    reason = "code of the tests, which use all of it and may panic"
)]
#[path = "../../tests/it/planner/random.rs"]
mod random;

/// Compares so many cases and says how often each feature was drawn. Panics where the planner and the enumeration, or
/// the planner with and without pruning, do not agree.
pub(crate) fn compared(cases: u64) -> BTreeMap<&'static str, u32> {
    let mut drawn = random::Drawn::default();
    for seed in 0..cases {
        let (problem, policy) = random::draw(&mut ChaCha8Rng::seed_from_u64(seed));
        drawn.count(random::compare(seed, &problem, &policy));
    }
    drawn.0
}
