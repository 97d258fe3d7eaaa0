//! Quantities: the Kubernetes grammar as a table. The expected values are those that apimachinery v0.37 gives.

use muster_core::model::units::{Quantity, QuantityError};
use proptest::prelude::*;

/// Text, nano units, milli units, units.
const VALUES: &[(&str, i128, i64, i64)] = &[
    ("0", 0, 0, 0),
    ("-0", 0, 0, 0),
    ("000", 0, 0, 0),
    ("1", 1_000_000_000, 1_000, 1),
    ("+1", 1_000_000_000, 1_000, 1),
    ("001", 1_000_000_000, 1_000, 1),
    (".5", 500_000_000, 500, 1),
    ("5.", 5_000_000_000, 5_000, 5),
    ("0.1", 100_000_000, 100, 1),
    ("100m", 100_000_000, 100, 1),
    ("1m", 1_000_000, 1, 1),
    ("1u", 1_000, 1, 1),
    ("1n", 1, 1, 1),
    ("0.5m", 500_000, 1, 1),
    ("1500m", 1_500_000_000, 1_500, 2),
    ("1.0000000001", 1_000_000_001, 1_001, 2),
    ("0.1n", 1, 1, 1),
    ("1e-20", 1, 1, 1),
    ("0e-20", 0, 0, 0),
    ("1k", 1_000_000_000_000, 1_000_000, 1_000),
    ("1M", 1_000_000_000_000_000, 1_000_000_000, 1_000_000),
    ("2G", 2_000_000_000_000_000_000, 2_000_000_000_000, 2_000_000_000),
    ("3T", 3_000_000_000_000_000_000_000, 3_000_000_000_000_000, 3_000_000_000_000),
    ("4P", 4_000_000_000_000_000_000_000_000, 4_000_000_000_000_000_000, 4_000_000_000_000_000),
    ("1E", 1_000_000_000_000_000_000_000_000_000, i64::MAX, 1_000_000_000_000_000_000),
    ("1.G", 1_000_000_000_000_000_000, 1_000_000_000_000, 1_000_000_000),
    ("1Ki", 1_024_000_000_000, 1_024_000, 1_024),
    ("1Mi", 1_048_576_000_000_000, 1_048_576_000, 1_048_576),
    ("1.5Gi", 1_610_612_736_000_000_000, 1_610_612_736_000, 1_610_612_736),
    ("0.1Ki", 102_400_000_000, 102_400, 103),
    ("0.3333333333333333333333Gi", 357_913_941_333_333_334, 357_913_941_334, 357_913_942),
    ("1Ti", 1_099_511_627_776_000_000_000, 1_099_511_627_776_000, 1_099_511_627_776),
    ("1Pi", 1_125_899_906_842_624_000_000_000, 1_125_899_906_842_624_000, 1_125_899_906_842_624),
    ("8Ei", 9_223_372_036_854_775_807_000_000_000, i64::MAX, i64::MAX),
    ("99Ei", 9_223_372_036_854_775_807_000_000_000, i64::MAX, i64::MAX),
    ("12e6", 12_000_000_000_000_000, 12_000_000_000, 12_000_000),
    ("12E6", 12_000_000_000_000_000, 12_000_000_000, 12_000_000),
    ("1e+3", 1_000_000_000_000, 1_000_000, 1_000),
    ("25e-1", 2_500_000_000, 2_500, 3),
    ("-1.5", -1_500_000_000, -1_500, -2),
    ("-0.1n", -1, -1, -1),
    ("-1Ki", -1_024_000_000_000, -1_024_000, -1_024),
    ("1e99", i128::MAX, i64::MAX, i64::MAX),
    ("-1e9223372036854775807", -i128::MAX, i64::MIN, i64::MIN),
    ("1e-9223372036854775808", 1, 1, 1),
];

const REFUSED: &[&str] = &[
    "",
    " ",
    "+",
    "-",
    ".",
    "-.",
    "Gi",
    "m",
    "e3",
    ".E2",
    "1 ",
    " 1",
    "1K",
    "1ki",
    "1MI",
    "1i",
    "1mi",
    "1Kib",
    "1e",
    "1E+",
    "1e3.5",
    "1e3m",
    "1.2.3",
    "1,5",
    "1_000",
    "--1",
    "+-1",
    "0x10",
    "١",
    "1Gi ",
    "1Gi\n",
    "NaN",
    "inf",
    "1e99999999999999999999",
];

#[test]
fn every_form_of_the_grammar_has_apimachinerys_value() {
    for (text, nano, milli, units) in VALUES {
        let quantity: Quantity = text.parse().unwrap_or_else(|error| panic!("{text}: {error}"));
        assert_eq!((quantity.nano(), quantity.milli_ceil(), quantity.unit_ceil()), (*nano, *milli, *units), "{text}");
    }
}

#[test]
fn text_outside_the_grammar_is_refused_and_named() {
    for text in REFUSED {
        let error = text.parse::<Quantity>().expect_err(text);
        assert!(text.is_empty() || error.to_string().contains(text), "{text}: {error}");
    }
}

#[test]
fn a_wrong_suffix_is_distinguished_from_text_that_is_no_number() {
    assert_eq!(
        "5Kib".parse::<Quantity>(),
        Err(QuantityError::Suffix { text: "5Kib".to_owned(), suffix: "Kib".to_owned() })
    );
    assert_eq!("five".parse::<Quantity>(), Err(QuantityError::Format { text: "five".to_owned() }));
    assert_eq!("5 Gi".parse::<Quantity>(), Err(QuantityError::Format { text: "5 Gi".to_owned() }));
    assert_eq!("".parse::<Quantity>(), Err(QuantityError::Empty));
}

#[test]
fn sums_are_exact_before_rounding() {
    let half: Quantity = "0.5m".parse().unwrap();
    assert_eq!(half.saturating_add(half).milli_ceil(), 1);
    assert_eq!(half.milli_ceil() + half.milli_ceil(), 2);
    let most: Quantity = "1e99".parse().unwrap();
    assert_eq!(most.saturating_add(most), most);
}

#[test]
fn rounding_to_milli_goes_away_from_zero() {
    for (text, rounded) in
        [("0.5m", "1m"), ("-0.5m", "-1m"), ("1.5", "1.5"), ("1n", "1m"), ("0", "0"), ("1.0001", "1.001")]
    {
        let quantity: Quantity = text.parse().unwrap();
        assert_eq!(quantity.round_to_milli(), rounded.parse().unwrap(), "{text}");
    }
    let most: Quantity = "1e99".parse().unwrap();
    assert_eq!(most.round_to_milli(), most);
}

#[test]
fn constructors_agree_with_the_grammar() {
    assert_eq!(Quantity::from_units(3), "3".parse().unwrap());
    assert_eq!(Quantity::from_milli(1_500), "1.5".parse().unwrap());
    assert_eq!(Quantity::ZERO, Quantity::default());
}

proptest! {
    #[test]
    fn no_text_makes_the_parser_panic(text in ".*") {
        let _ = text.parse::<Quantity>();
    }

    #[test]
    fn no_text_of_the_alphabet_makes_the_parser_panic(text in "[-+0-9.eEinumkKMGTP]{0,60}") {
        if let Ok(quantity) = text.parse::<Quantity>() {
            let _ = (quantity.milli_ceil(), quantity.unit_ceil(), quantity.to_string());
        }
    }

    #[test]
    fn what_is_displayed_parses_to_the_same_amount(nano in -(1_i128 << 100)..(1_i128 << 100)) {
        let quantity: Quantity = format!("{nano}n").parse().unwrap();
        prop_assert_eq!(quantity.nano(), nano);
        prop_assert_eq!(quantity.to_string().parse::<Quantity>().unwrap(), quantity);
        let text = serde_json::to_string(&quantity).unwrap();
        prop_assert_eq!(serde_json::from_str::<Quantity>(&text).unwrap(), quantity);
    }

    #[test]
    fn every_integer_reads_as_itself(units in any::<i64>()) {
        let quantity: Quantity = units.to_string().parse().unwrap();
        prop_assert_eq!(quantity, Quantity::from_units(units));
        prop_assert_eq!(quantity.unit_ceil(), units);
    }
}
