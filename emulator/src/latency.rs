//! The latency of answers, and durations on the command line.

use std::str::FromStr;
use std::time::Duration;

use crate::clock::{Millis, millis};

/// The latency of an answer: a random duration from `least` to `most`.
///
/// It is written as `20ms..40ms`, or `20ms` if it is constant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Latency {
    least: Millis,
    most: Millis,
}

impl Latency {
    /// `None` if `most` is shorter than `least`.
    pub fn new(least: Duration, most: Duration) -> Option<Self> {
        (least <= most).then(|| Self { least: millis(least), most: millis(most) })
    }

    pub(crate) fn bounds(self) -> (Millis, Millis) {
        (self.least, self.most)
    }
}

/// Why a text is not a duration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadSpan {
    #[error("a duration is a whole number and a unit: 250ms, 30s, 15m, 24h")]
    NoNumber,
    #[error("a duration needs a unit: ms, s, m or h")]
    NoUnit,
    #[error("the duration is too long")]
    TooLong,
    #[error("the second duration is shorter than the first")]
    Backwards,
}

impl FromStr for Latency {
    type Err = BadSpan;

    fn from_str(text: &str) -> Result<Self, BadSpan> {
        let (least, most) = text.split_once("..").unwrap_or((text, text));
        Self::new(parse_duration(least)?, parse_duration(most)?).ok_or(BadSpan::Backwards)
    }
}

/// Parses a whole number with a unit: `250ms`, `30s`, `15m`, `24h`.
///
/// # Errors
/// Any other text except `0`.
pub fn parse_duration(text: &str) -> Result<Duration, BadSpan> {
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    if number.is_empty() {
        return Err(BadSpan::NoNumber);
    }
    let number: u64 = number.parse().map_err(|_| BadSpan::TooLong)?;
    let millis = match unit {
        "ms" => 1,
        "s" => 1000,
        "m" => 60_000,
        "h" => 3_600_000,
        "" if number == 0 => 0,
        _ => return Err(BadSpan::NoUnit),
    };
    number.checked_mul(millis).map(Duration::from_millis).ok_or(BadSpan::TooLong)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_units() {
        assert_eq!(parse_duration("24h").unwrap(), Duration::from_secs(86_400));
        assert_eq!(parse_duration("250ms").unwrap(), Duration::from_millis(250));
        assert_eq!(parse_duration("0").unwrap(), Duration::ZERO);
        for wrong in ["", "5", "h", "1d", "-1s", "1.5s", "99999999999999999999h", "9999999999999999h"] {
            assert!(parse_duration(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_latency_is_one_duration_or_two() {
        let read = |text: &str| text.parse::<Latency>().map(Latency::bounds);
        assert_eq!(read("20ms..40ms"), Ok((20, 40)));
        assert_eq!(read("1s"), Ok((1000, 1000)));
        assert_eq!(read("40ms..20ms"), Err(BadSpan::Backwards));
        for wrong in ["", "..", "20..40ms", "20ms..", "20ms...40ms", "20ms-40ms"] {
            read(wrong).unwrap_err();
        }
    }
}
