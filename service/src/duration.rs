//! Parses the durations of settings: a whole number and a unit.

use std::time::Duration;

use thiserror::Error;

const UNITS: [(&str, u64); 5] = [("ms", 1), ("s", 1_000), ("m", 60_000), ("h", 3_600_000), ("d", 86_400_000)];

#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum BadDuration {
    #[error("not a duration: write a whole number and a unit, such as 20ms, 10s, 5m, 2h or 1d")]
    NoNumber,
    #[error("a duration needs one of the units ms, s, m, h, d")]
    NoUnit,
    #[error("the duration is too long")]
    TooLong,
}

/// Reads `20ms`, `10s`, `5m`, `2h` or `1d`; `0` needs no unit. A clap `value_parser`.
///
/// # Errors
/// [`BadDuration`] for anything else.
pub fn parse_duration(text: &str) -> Result<Duration, BadDuration> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    if number.is_empty() {
        return Err(BadDuration::NoNumber);
    }
    let number: u64 = number.parse().map_err(|_| BadDuration::TooLong)?;
    if number == 0 && unit.is_empty() {
        return Ok(Duration::ZERO);
    }
    let (_, millis) = UNITS.iter().find(|(name, _)| *name == unit).ok_or(BadDuration::NoUnit)?;
    number.checked_mul(*millis).map(Duration::from_millis).ok_or(BadDuration::TooLong)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duration_is_a_whole_number_and_a_unit() {
        let parsed = ["20ms", "10s", "5m", "2h", "1d", "0", "0ms", "007s"].map(|text| parse_duration(text).unwrap());
        assert_eq!(parsed.map(|span| span.as_millis()), [20, 10_000, 300_000, 7_200_000, 86_400_000, 0, 0, 7_000]);
    }

    #[test]
    fn anything_else_is_refused_with_its_reason() {
        for text in ["", "s", "-1s", "+1s", " 1s", ".5s", "ten"] {
            assert_eq!(parse_duration(text), Err(BadDuration::NoNumber), "{text:?}");
        }
        for text in ["10", "1.5s", "10 s", "10S", "1s1s", "1us", "1sé"] {
            assert_eq!(parse_duration(text), Err(BadDuration::NoUnit), "{text:?}");
        }
        for text in ["18446744073709551615d", "18446744073709551616ms"] {
            assert_eq!(parse_duration(text), Err(BadDuration::TooLong), "{text:?}");
        }
    }
}
