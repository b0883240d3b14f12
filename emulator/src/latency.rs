//! The latency of answers.

use std::str::FromStr;

use tally_service::parse_duration;

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
    pub(crate) fn bounds(self) -> (Millis, Millis) {
        (self.least, self.most)
    }
}

impl FromStr for Latency {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (least, most) = text.split_once("..").unwrap_or((text, text));
        let bound = |text| parse_duration(text).map(millis).map_err(|error| error.to_string());
        let latency = Self { least: bound(least)?, most: bound(most)? };
        if latency.most < latency.least {
            return Err("the second duration is shorter than the first".to_owned());
        }
        Ok(latency)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_latency_is_one_duration_or_two() {
        let read = |text: &str| text.parse::<Latency>().map(Latency::bounds);
        assert_eq!(read("20ms..40ms"), Ok((20, 40)));
        assert_eq!(read("1s"), Ok((1000, 1000)));
        assert!(read("40ms..20ms").unwrap_err().contains("shorter"));
        for wrong in ["", "..", "20..40ms", "20ms..", "20ms...40ms", "20ms-40ms"] {
            read(wrong).unwrap_err();
        }
    }
}
