//! What a batch costs, in whole micro-dollars: what runs, what serves nobody, and what was paid for nothing.

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

/// What money was spent on that no gang used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum StrandedCause {
    /// Instances that joined, before their gang ran.
    Join,
    /// Instances of a launch that was rolled back.
    Rollback,
    /// Instances that waited while one was replaced.
    Replacement,
    /// Nodes kept for a gang to come.
    Warm,
    /// Nodes whose gang was evicted by the loss of another.
    Interrupted,
}

impl StrandedCause {
    /// All causes.
    pub const ALL: [Self; 5] = [Self::Join, Self::Rollback, Self::Replacement, Self::Warm, Self::Interrupted];

    /// The word in metrics and status.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Join => "join",
            Self::Rollback => "rollback",
            Self::Replacement => "replacement",
            Self::Warm => "warm",
            Self::Interrupted => "interrupted",
        }
    }
}

/// Micro-dollars for `time` at a price per hour, rounded down. Exact for every price and time that fit.
#[must_use]
pub fn cost(micro_usd_per_hour: u64, time: SignedDuration) -> u64 {
    let millis = u128::try_from(time.as_millis()).unwrap_or(0);
    u64::try_from(u128::from(micro_usd_per_hour).saturating_mul(millis) / 3_600_000).unwrap_or(u64::MAX)
}

/// Micro-dollars between two moments; nothing if they are in the wrong order.
#[must_use]
pub fn cost_between(micro_usd_per_hour: u64, from: Timestamp, until: Timestamp) -> u64 {
    cost(micro_usd_per_hour, until.duration_since(from))
}

/// Micro-dollars as dollars with two to six places: nothing is rounded, and nobody reads zeros.
#[must_use]
pub fn dollars(micros: u64) -> String {
    let mut fraction = format!("{:06}", micros % 1_000_000);
    while fraction.len() > 2 && fraction.ends_with('0') {
        fraction.pop();
    }
    format!("{}.{fraction}", micros / 1_000_000)
}

/// Micro-dollars as a person reads them: rounded to cents, thousands apart. Documents have [`dollars`].
#[must_use]
pub fn usd(micros: u64) -> String {
    let cents = micros.saturating_add(5_000) / 10_000;
    let whole = (cents / 100).to_string();
    let mut grouped = String::new();
    for (at, digit) in whole.char_indices() {
        if at > 0 && (whole.len() - at).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    format!("${grouped}.{:02}", cents % 100)
}

/// Reads what [`dollars`] wrote.
#[must_use]
pub fn micros(dollars: &str) -> Option<u64> {
    let (whole, fraction) = dollars.split_once('.')?;
    if fraction.len() > 6 {
        return None;
    }
    let fraction: u64 = format!("{fraction:0<6}").parse().ok()?;
    whole.parse::<u64>().ok()?.checked_mul(1_000_000)?.checked_add(fraction)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fifteen_waiting_p5_cost_thirteen_dollars_76_a_minute() {
        assert_eq!(dollars(cost(15 * 55_040_000, SignedDuration::from_mins(1))), "13.76");
    }

    #[test]
    fn time_that_runs_backwards_costs_nothing() {
        assert_eq!(cost(55_040_000, SignedDuration::from_secs(-5)), 0);
        assert_eq!(cost(u64::MAX, SignedDuration::MAX), u64::MAX);
    }

    #[test]
    fn a_person_reads_whole_cents_and_thousands_apart() {
        let read = [0, 4_999, 5_000, 113_932_800, 999_995_000, 2_641_920_000, 1_234_567_890_123].map(usd);
        assert_eq!(read, ["$0.00", "$0.00", "$0.01", "$113.93", "$1,000.00", "$2,641.92", "$1,234,567.89"]);
    }

    #[test]
    fn dollars_have_two_to_six_places_and_every_digit() {
        for (micro, text) in [
            (0, "0.00"),
            (1, "0.000001"),
            (20, "0.00002"),
            (999_999, "0.999999"),
            (1_000_000, "1.00"),
            (55_040_000, "55.04"),
            (113_932_800, "113.9328"),
            (440_320_001, "440.320001"),
            (1_234_567_890_123, "1234567.890123"),
            (u64::MAX, "18446744073709.551615"),
        ] {
            assert_eq!(dollars(micro), text);
            assert_eq!(micros(text), Some(micro), "{text}");
        }
        assert_eq!(micros("440.320000"), Some(440_320_000), "zeros that nobody needs");
        assert_eq!(micros("440"), None, "nothing that is not written so");
        assert_eq!(micros("1.0000001"), None);
    }
}
