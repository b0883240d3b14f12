//! Tests DynamoDB's decimal numbers: their format, range, precision, size, order and arithmetic.

use proptest::prelude::*;

use super::{NOT_A_NUMBER, Number, OVERFLOW, TOO_PRECISE, UNDERFLOW};

fn number(text: &str) -> Number {
    text.parse().unwrap_or_else(|refusal| panic!("{text}: {refusal}"))
}

fn refusal(text: &str) -> String {
    text.parse::<Number>().expect_err(text).0
}

#[test]
fn numbers_are_returned_in_full_without_superfluous_zeros() {
    for (text, canonical) in [
        ("0", "0"),
        ("-0", "0"),
        ("0.000", "0"),
        ("0E125", "0"),
        ("0e-130", "0"),
        ("007", "7"),
        ("+1", "1"),
        ("-1.50", "-1.5"),
        ("1e3", "1000"),
        ("12E-1", "1.2"),
        ("-12.5e-3", "-0.0125"),
        (".5", "0.5"),
        ("5.", "5"),
        ("100", "100"),
        ("1700000000000", "1700000000000"),
        ("12345678901234567890123456789012345678", "12345678901234567890123456789012345678"),
        ("0.00000000000000000000000000000000000000000001", "0.00000000000000000000000000000000000000000001"),
    ] {
        assert_eq!(number(text).to_string(), canonical, "{text}");
    }
    let largest = number("9.9999999999999999999999999999999999999E+125").to_string();
    assert_eq!(largest, format!("{}{}", "9".repeat(38), "0".repeat(88)));
    assert_eq!(number("-1E-130").to_string(), format!("-0.{}1", "0".repeat(129)));
}

#[test]
fn texts_that_are_not_numbers_are_refused_with_a_message() {
    assert_eq!(refusal(""), NOT_A_NUMBER);
    for text in
        ["abc", "1x", "-", "+", ".", "e5", "1e", "1e+", "--1", "1.2.3", " 1", "1 ", "NaN", "Infinity", "0x1", "١"]
            .into_iter()
            .chain(["1e9223372036854775808", "1E-99999999999999999999999", "0e99999999999999999999"])
    {
        assert_eq!(refusal(text), format!("{NOT_A_NUMBER}: {text}"));
    }
}

#[test]
fn the_range_and_the_precision_are_those_of_dynamodb() {
    for text in ["1E126", "-1E126", "10E125", "1e100000000", "1e9223372036854775807", "0e126", "-0.0E999999999"] {
        assert_eq!(refusal(text), OVERFLOW, "{text}");
    }
    for text in ["1E-131", "-0.1E-130", "1E-9223372036854775807", "0e-131"] {
        assert_eq!(refusal(text), UNDERFLOW, "{text}");
    }
    for text in ["123456789012345678901234567890123456789", "1.00000000000000000000000000000000000001"] {
        assert_eq!(refusal(text), TOO_PRECISE, "{text}");
    }
    assert_eq!(refusal(&"9".repeat(126)), TOO_PRECISE);
    assert_eq!(number("9E125").to_string().len(), 126);
    assert_eq!(number("1.5E-130"), number("0.15E-129"));
}

#[test]
fn addition_is_exact_or_refused() {
    let sum = |a: &str, b: &str| number(a).checked_add(number(b)).map(|sum| sum.to_string());
    let overflow = || Err(crate::value::Invalid::new(OVERFLOW));
    assert_eq!(sum("0.1", "0.2"), Ok("0.3".into()));
    assert_eq!(sum("9999999999999999999999999999999999999", "1"), Ok(format!("1{}", "0".repeat(37))));
    assert_eq!(sum(&"9".repeat(38), "1"), Ok(format!("1{}", "0".repeat(38))));
    assert_eq!(sum(&"9".repeat(38), "2"), overflow());
    assert_eq!(sum("1e50", "1"), overflow());
    assert_eq!(sum("1e100", "-1e-100"), overflow());
    assert_eq!(sum("9e125", "9e125"), overflow());
    assert_eq!(sum("9e125", "9e124"), Ok(format!("99{}", "0".repeat(124))));
    assert_eq!(
        sum("18E37", "-90000000000000000000000000000000000001"),
        Ok("89999999999999999999999999999999999999".into())
    );
    assert_eq!(sum("-5", "5"), Ok("0".into()));
    assert_eq!(sum("1e125", "0"), Ok(format!("1{}", "0".repeat(125))));
    assert_eq!(number("5").checked_sub(number("7.5")).map(|difference| difference.to_string()), Ok("-2.5".into()));
}

#[test]
fn the_size_of_a_number_depends_on_its_significant_digits() {
    for (text, size) in [("0", 1), ("7", 2), ("1000", 2), ("12", 2), ("123", 3), ("-123", 4), ("1.5e-100", 2)] {
        assert_eq!(number(text).size(), size, "{text}");
    }
    assert_eq!(number(&"9".repeat(38)).size(), 20);
}

/// A small decimal as text, and its value as an integer multiple of 10^-20.
fn scaled() -> impl Strategy<Value = (String, i128)> {
    (-999_999_999_999i128..=999_999_999_999, 0u32..=20)
        .prop_map(|(mantissa, places)| (format!("{mantissa}E-{places}"), mantissa * 10i128.pow(20 - places)))
}

fn any_number() -> impl Strategy<Value = Number> {
    (any::<bool>(), 1u128..10u128.pow(38), -130i64..=88).prop_map(|(negative, mantissa, exponent)| {
        Number::normalised(negative, mantissa, exponent).expect("38 digits between these exponents are in range")
    })
}

proptest! {
    #[test]
    fn order_and_arithmetic_agree_with_scaled_integers((a_text, a) in scaled(), (b_text, b) in scaled()) {
        let (x, y) = (number(&a_text), number(&b_text));
        let scaled_text = |integer: i128| number(&format!("{integer}E-20"));
        prop_assert_eq!(x.cmp(&y), a.cmp(&b));
        prop_assert_eq!(x == y, a == b);
        prop_assert_eq!(x.checked_add(y), Ok(scaled_text(a + b)));
        prop_assert_eq!(x.checked_sub(y), Ok(scaled_text(a - b)));
    }

    #[test]
    fn the_canonical_form_is_parsed_to_the_same_number_and_is_its_own_canonical_form(x in any_number()) {
        let text = x.to_string();
        prop_assert_eq!(number(&text), x);
        prop_assert!(!text.contains(['e', 'E', '+']));
        if text.contains('.') {
            prop_assert!(!text.ends_with('0') && !text.ends_with('.'), "{}", text);
        }
        prop_assert!(!text.trim_start_matches('-').starts_with('0') || text.contains("0."), "{}", text);
    }

    #[test]
    fn order_is_total_and_reversed_by_negation(x in any_number(), y in any_number()) {
        let negated = |number: Number| Number::ZERO.checked_sub(number).expect("a negation is in range");
        prop_assert_eq!(x.cmp(&y), y.cmp(&x).reverse());
        prop_assert_eq!(x.cmp(&y), negated(y).cmp(&negated(x)));
        prop_assert_eq!(x.cmp(&y).is_eq(), x == y);
    }

    #[test]
    fn no_text_makes_the_parser_panic(text in "\\PC*|[-+0-9.eE]{0,60}") {
        let _ = text.parse::<Number>();
    }
}
