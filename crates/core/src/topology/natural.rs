//! Natural order of names: runs of digits compare as numbers, everything else byte by byte.

use std::cmp::Ordering;

/// Compares two names so that `rack-2` comes before `rack-10`.
///
/// Digit runs of any length compare as integers. Names that differ only in leading zeros (`r1`, `r01`) fall back to
/// plain byte order, so equal means identical.
#[must_use]
pub fn natural_cmp(left: &str, right: &str) -> Ordering {
    let (mut a, mut b) = (left.as_bytes(), right.as_bytes());
    loop {
        match (a.first(), b.first()) {
            (None, None) => return left.cmp(right),
            (None, Some(_)) => return Ordering::Less,
            (Some(_), None) => return Ordering::Greater,
            (Some(x), Some(y)) if x.is_ascii_digit() && y.is_ascii_digit() => {
                let (number_a, rest_a) = a.split_at(digits(a));
                let (number_b, rest_b) = b.split_at(digits(b));
                let (number_a, number_b) = (without_zeros(number_a), without_zeros(number_b));
                let order = number_a.len().cmp(&number_b.len()).then_with(|| number_a.cmp(number_b));
                if order != Ordering::Equal {
                    return order;
                }
                (a, b) = (rest_a, rest_b);
            }
            (Some(x), Some(y)) if x != y => return x.cmp(y),
            (Some(_), Some(_)) => (a, b) = (&a[1..], &b[1..]),
        }
    }
}

/// Appends a key whose bytes compare as the name does, up to leading zeros; of equal keys [`natural_cmp`] decides.
///
/// A digit run becomes `0`, its length and its digits without leading zeros: a byte that is no digit is below or above
/// all digits, so the first byte decides against it as any digit would. `None` for a run whose length is no byte.
pub(super) fn natural_key(name: &str, key: &mut Vec<u8>) -> Option<()> {
    let mut rest = name.as_bytes();
    while let Some(first) = rest.first() {
        if first.is_ascii_digit() {
            let (number, after) = rest.split_at(digits(rest));
            let number = without_zeros(number);
            key.extend([b'0', u8::try_from(number.len()).ok()?]);
            key.extend_from_slice(number);
            rest = after;
        } else {
            key.push(*first);
            rest = &rest[1..];
        }
    }
    Some(())
}

fn digits(text: &[u8]) -> usize {
    text.iter().take_while(|byte| byte.is_ascii_digit()).count()
}

fn without_zeros(number: &[u8]) -> &[u8] {
    let zeros = number.iter().take_while(|byte| **byte == b'0').count();
    &number[zeros..]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(name: &str) -> Vec<u8> {
        let mut key = Vec::new();
        natural_key(name, &mut key).unwrap();
        key
    }

    #[track_caller]
    fn check_sorted(names: &[&str]) {
        for (i, left) in names.iter().enumerate() {
            for (j, right) in names.iter().enumerate() {
                assert_eq!(natural_cmp(left, right), i.cmp(&j), "{left} against {right}");
                let keys = key(left).cmp(&key(right));
                assert!(keys == i.cmp(&j) || keys.is_eq(), "the keys of {left} and {right} say {keys:?}");
            }
        }
    }

    #[test]
    fn keys_of_names_that_are_not_alike_but_for_zeros_are_not_alike() {
        for (left, right) in [("r1", "r1-"), ("r1", "r12"), ("r9", "r10"), ("a0b", "a0"), ("", "0"), ("ä1", "ä2")] {
            assert_eq!(key(left).cmp(&key(right)), natural_cmp(left, right), "{left} {right}");
        }
        assert_eq!(key("r01"), key("r1"));
        assert_eq!(natural_key(&"9".repeat(256), &mut Vec::new()), None);
    }

    #[test]
    fn digits_compare_as_numbers() {
        check_sorted(&["", "10", "r", "r1", "r2", "r2-1", "r2-10", "r10", "ra"]);
    }

    #[test]
    fn numbers_longer_than_any_integer_type_compare() {
        check_sorted(&["n99999999999999999999999999999999999998", "n99999999999999999999999999999999999999"]);
    }

    #[test]
    fn leading_zeros_decide_only_between_otherwise_equal_names() {
        check_sorted(&["r01", "r1", "r01a", "r1b", "r02"]);
    }
}
