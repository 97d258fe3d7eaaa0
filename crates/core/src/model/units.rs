//! Kubernetes quantities, exact: the text form of amounts such as `1500m`, `1.5Gi` and `12e6`.
//!
//! Same grammar, value and rounding as `k8s.io/apimachinery/pkg/api/resource` v0.37. Three differences, all at amounts that
//! no cluster holds: a text without a digit (`Gi`, `.`, `+`), which apimachinery reads as zero, is refused; amounts beyond
//! `i128` nano units (1.7e29) saturate; and conversions to `i64` saturate where apimachinery answers 0 or wraps.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use smallvec::SmallVec;
use thiserror::Error;

/// Nano units in one unit.
const NANO: i128 = 1_000_000_000;
/// Nano units in one milli unit.
const NANO_PER_MILLI: i128 = 1_000_000;
/// Decimal places of a nano unit.
const NANO_PLACES: i64 = 9;
/// More decimal places than `i128` has: shifting further changes nothing.
const MOST_PLACES: i64 = 40;

/// An amount with the resolution of one nano unit, as in a pod's requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Quantity(i128);

/// Why a text is not a quantity.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum QuantityError {
    /// The text is empty.
    #[error("empty text is not a quantity")]
    Empty,
    /// The text is not a number followed by a suffix.
    #[error("`{text}` is not a quantity: expected a decimal number and a suffix, like 500m or 1.5Gi")]
    Format {
        /// The text.
        text: String,
    },
    /// The suffix is none of n u m k M G T P E Ki Mi Gi Ti Pi Ei, nor an exponent.
    #[error("`{text}` is not a quantity: unknown suffix `{suffix}`")]
    Suffix {
        /// The text.
        text: String,
        /// Its suffix.
        suffix: String,
    },
}

impl Quantity {
    /// Nothing.
    pub const ZERO: Self = Self(0);

    /// Whole units.
    #[must_use]
    pub fn from_units(units: i64) -> Self {
        Self(i128::from(units) * NANO)
    }

    /// Thousandths of a unit.
    #[must_use]
    pub fn from_milli(milli: i64) -> Self {
        Self(i128::from(milli) * NANO_PER_MILLI)
    }

    /// Billionths of a unit.
    #[must_use]
    pub fn nano(self) -> i128 {
        self.0
    }

    /// Whether it is a number of whole units, as extended resources have to be.
    #[must_use]
    pub fn is_whole(self) -> bool {
        self.0 % NANO == 0
    }

    /// Thousandths of a unit, rounded away from zero, saturating: what kube-scheduler counts for `cpu`.
    #[must_use]
    pub fn milli_ceil(self) -> i64 {
        scaled(self.0, NANO_PER_MILLI)
    }

    /// Whole units, rounded away from zero, saturating: what kube-scheduler counts for everything but `cpu`.
    #[must_use]
    pub fn unit_ceil(self) -> i64 {
        scaled(self.0, NANO)
    }

    /// Rounded away from zero to thousandths of a unit, as the API server does to every amount it is sent.
    #[must_use]
    pub fn round_to_milli(self) -> Self {
        let rest = self.0 % NANO_PER_MILLI;
        let up = if rest == 0 { 0 } else { rest.signum() * NANO_PER_MILLI };
        Self((self.0 - rest).saturating_add(up))
    }

    /// The sum, saturating.
    #[must_use]
    pub fn saturating_add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }
}

/// `nano` in units of `unit` nano units, away from zero.
fn scaled(nano: i128, unit: i128) -> i64 {
    // At least `NANO_PER_MILLI` below the limits of `i128` after the division, so adding one cannot overflow.
    let whole = nano / unit + if nano % unit == 0 { 0 } else { nano.signum() };
    i64::try_from(whole).unwrap_or(if whole < 0 { i64::MIN } else { i64::MAX })
}

impl FromStr for Quantity {
    type Err = QuantityError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text.is_empty() {
            return Err(QuantityError::Empty);
        }
        let (negative, rest) = match text.as_bytes() {
            [b'-', ..] => (true, &text[1..]),
            [b'+', ..] => (false, &text[1..]),
            _ => (false, text),
        };
        let (whole, rest) = split_digits(rest);
        let (fraction, suffix) = match rest.strip_prefix('.') {
            Some(rest) => split_digits(rest),
            None => ("", rest),
        };
        if whole.is_empty() && fraction.is_empty() {
            return Err(QuantityError::Format { text: text.to_owned() });
        }
        let scale = Scale::parse(suffix).ok_or_else(|| refusal(text, suffix))?;
        let nano = magnitude(whole, fraction, scale);
        Ok(Self(if negative { -nano } else { nano }))
    }
}

/// Splits off the leading ASCII digits.
fn split_digits(text: &str) -> (&str, &str) {
    text.split_at(text.bytes().take_while(u8::is_ascii_digit).count())
}

/// Tells a wrong suffix from text that is no suffix at all.
fn refusal(text: &str, suffix: &str) -> QuantityError {
    if suffix.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'-')) {
        QuantityError::Suffix { text: text.to_owned(), suffix: suffix.to_owned() }
    } else {
        QuantityError::Format { text: text.to_owned() }
    }
}

/// What a suffix multiplies by.
#[derive(Clone, Copy)]
enum Scale {
    /// A power of 10.
    Decimal(i64),
    /// A power of 1024.
    Binary(u32),
}

impl Scale {
    fn parse(suffix: &str) -> Option<Self> {
        Some(match suffix {
            "n" => Self::Decimal(-9),
            "u" => Self::Decimal(-6),
            "m" => Self::Decimal(-3),
            "" => Self::Decimal(0),
            "k" => Self::Decimal(3),
            "M" => Self::Decimal(6),
            "G" => Self::Decimal(9),
            "T" => Self::Decimal(12),
            "P" => Self::Decimal(15),
            "E" => Self::Decimal(18),
            "Ki" => Self::Binary(1),
            "Mi" => Self::Binary(2),
            "Gi" => Self::Binary(3),
            "Ti" => Self::Binary(4),
            "Pi" => Self::Binary(5),
            "Ei" => Self::Binary(6),
            _ => Self::Decimal(suffix.strip_prefix(['e', 'E'])?.parse().ok()?),
        })
    }
}

/// Nano units of `whole.fraction` at a scale, rounded up, saturating.
///
/// Works on decimal digits, so no length of text loses precision before the rounding.
fn magnitude(whole: &str, fraction: &str, scale: Scale) -> i128 {
    let mut digits: SmallVec<[u8; 32]> = whole.bytes().chain(fraction.bytes()).map(|byte| byte - b'0').collect();
    let (exponent, binary) = match scale {
        Scale::Decimal(exponent) => (exponent, false),
        Scale::Binary(power) => {
            for _ in 0..power {
                multiply_by_1024(&mut digits);
            }
            (0, true)
        }
    };
    let places = i64::try_from(fraction.len()).unwrap_or(i64::MAX);
    let shift = exponent.saturating_add(NANO_PLACES).saturating_sub(places);
    let nano = shifted(&digits, shift);
    // apimachinery caps binary amounts, and only these.
    if binary { nano.min(i128::from(i64::MAX) * NANO) } else { nano }
}

/// Multiplies a number given as digits, most significant first.
fn multiply_by_1024(digits: &mut SmallVec<[u8; 32]>) {
    digits.reverse();
    let mut carry: u32 = 0;
    for digit in digits.iter_mut() {
        let product = u32::from(*digit) * 1024 + carry;
        *digit = last_digit(product);
        carry = product / 10;
    }
    while carry > 0 {
        digits.push(last_digit(carry));
        carry /= 10;
    }
    digits.reverse();
}

fn last_digit(number: u32) -> u8 {
    u8::try_from(number % 10).expect("a remainder of 10 fits a byte")
}

/// The number of `digits` times `10^shift`, rounded up, saturating.
fn shifted(digits: &[u8], shift: i64) -> i128 {
    let dropped = usize::try_from(shift.saturating_neg().max(0)).unwrap_or(usize::MAX);
    let (kept, lost) = digits.split_at(digits.len().saturating_sub(dropped));
    let mut value: i128 = 0;
    for digit in kept {
        value = value.saturating_mul(10).saturating_add(i128::from(*digit));
    }
    if lost.iter().any(|digit| *digit != 0) {
        value = value.saturating_add(1);
    }
    for _ in 0..shift.clamp(0, MOST_PLACES) {
        value = value.saturating_mul(10);
    }
    value
}

/// A decimal number with as many decimal places as needed, itself a quantity.
impl fmt::Display for Quantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (whole, nano) = (self.0 / NANO, (self.0 % NANO).unsigned_abs());
        if self.0 < 0 {
            f.write_str("-")?;
        }
        write!(f, "{}", whole.unsigned_abs())?;
        if nano == 0 {
            return Ok(());
        }
        let places = format!("{nano:09}");
        write!(f, ".{}", places.trim_end_matches('0'))
    }
}

impl Serialize for Quantity {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Quantity {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}
