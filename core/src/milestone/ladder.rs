//! The ladder: the thresholds of a deployment, which are the totals (such as 1,000 likes) whose crossing is recorded as
//! a milestone. They are a few numbers or all multiples of one; thresholds are added above the last one and never
//! removed.

use std::fmt;
use std::str::FromStr;

use thiserror::Error;

use crate::weight::Weight;

/// The thresholds at which a counter's total is a milestone. A ladder may be empty.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Ladder {
    steps: [i64; Self::MOST],
    len: u8,
    /// The thresholds are all multiples of the only step.
    every: bool,
}

/// Why a text is no ladder.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum BadLadder {
    #[error("it names no threshold")]
    Empty,
    /// A part is no number.
    #[error("{0:?} is no whole number")]
    NoNumber(String),
    /// A threshold has a fraction.
    #[error("{0} has a fraction: a threshold is a whole number")]
    Fraction(String),
    /// A threshold is 0 or below it.
    #[error("{0} is no threshold: the least is 1")]
    NotPositive(String),
    /// A threshold is above the greatest weight.
    #[error("{0} is above {max}", max = Weight::MAX)]
    TooGreat(String),
    /// The thresholds do not rise.
    #[error("{0} stands before {1}: thresholds go upwards, each once")]
    Unsorted(i64, i64),
    /// There are more than [`Ladder::MOST`].
    #[error("{0} thresholds are more than {most}; every:N has no end", most = Ladder::MOST)]
    TooMany(usize),
}

/// The thresholds between two totals.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Crossed {
    /// The greatest of them, as many as one transaction takes, in rising order.
    pub thresholds: Vec<i64>,
    /// How many lower ones there are.
    pub skipped: u64,
}

impl Ladder {
    /// How many thresholds may be listed.
    pub const MOST: usize = 16;

    /// How many milestones one update records at most: a transaction takes 100 items.
    pub const AT_ONCE: i64 = 90;

    /// Returns the ladder of these thresholds.
    ///
    /// # Errors
    /// There are none or too many, they do not rise, or one is out of range.
    pub fn of(thresholds: &[i64]) -> Result<Self, BadLadder> {
        if thresholds.is_empty() {
            return Err(BadLadder::Empty);
        }
        if thresholds.len() > Self::MOST {
            return Err(BadLadder::TooMany(thresholds.len()));
        }
        let mut ladder = Self::default();
        for (at, threshold) in thresholds.iter().enumerate() {
            ladder.steps[at] = in_range(*threshold)?;
            ladder.len += 1;
        }
        match thresholds.windows(2).find(|pair| pair[0] >= pair[1]) {
            Some(pair) => Err(BadLadder::Unsorted(pair[0], pair[1])),
            None => Ok(ladder),
        }
    }

    /// Returns the ladder of all multiples of `step`.
    ///
    /// # Errors
    /// `step` is out of range.
    pub fn every(step: i64) -> Result<Self, BadLadder> {
        Ok(Self { every: true, ..Self::of(&[step])? })
    }

    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns how many numbers it lists: of two ladders of a deployment, the one with more is the later.
    pub fn entries(&self) -> u32 {
        self.len.into()
    }

    /// Returns whether `later` is this ladder, or extends it upwards.
    pub fn precedes(&self, later: &Self) -> bool {
        self.is_empty() || self == later || !self.every && !later.every && later.listed().starts_with(self.listed())
    }

    /// Becomes `later`, if that is the later one.
    pub fn learn(&mut self, later: Self) {
        if later.entries() > self.entries() {
            *self = later;
        }
    }

    /// Returns the least threshold above `recorded`; the least of all where `recorded` is `None`.
    pub fn above(&self, recorded: Option<i64>) -> Option<i64> {
        if !self.every {
            return self
                .listed()
                .iter()
                .copied()
                .find(|threshold| recorded.is_none_or(|recorded| *threshold > recorded));
        }
        let step = self.steps[0];
        let next = recorded.map_or(1, |recorded| recorded.div_euclid(step).saturating_add(1).max(1));
        next.checked_mul(step).filter(|threshold| *threshold <= Weight::MAX)
    }

    /// Returns whether `n` is one of its thresholds.
    pub fn has(&self, n: i64) -> bool {
        self.above(Some(n.saturating_sub(1))) == Some(n)
    }

    /// Returns the thresholds above `recorded` and up to `through`.
    pub fn crossed(&self, recorded: Option<i64>, through: i64) -> Crossed {
        let Some(first) = self.above(recorded).filter(|first| *first <= through) else { return Crossed::default() };
        if !self.every {
            let thresholds = self.listed().iter().copied().filter(|threshold| (first..=through).contains(threshold));
            return Crossed { thresholds: thresholds.collect(), skipped: 0 };
        }
        let step = self.steps[0];
        let (first, last) = (first / step, through.min(Weight::MAX) / step);
        let kept = last.saturating_sub(Self::AT_ONCE - 1).max(first);
        Crossed { thresholds: (kept..=last).map(|nth| nth * step).collect(), skipped: kept.abs_diff(first) }
    }

    fn listed(&self) -> &[i64] {
        &self.steps[..usize::from(self.len)]
    }
}

fn in_range(threshold: i64) -> Result<i64, BadLadder> {
    match threshold {
        ..1 => Err(BadLadder::NotPositive(threshold.to_string())),
        Weight::MAX.. if threshold > Weight::MAX => Err(BadLadder::TooGreat(threshold.to_string())),
        _ => Ok(threshold),
    }
}

fn threshold(text: &str) -> Result<i64, BadLadder> {
    let text = text.trim();
    let digits = text.strip_prefix('-').unwrap_or(text);
    let whole = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    match digits.split_once('.') {
        Some((before, after)) if whole(before) && whole(after) => Err(BadLadder::Fraction(text.to_owned())),
        None if whole(digits) && digits.len() < text.len() => Err(BadLadder::NotPositive(text.to_owned())),
        None if whole(digits) => digits.parse().map_err(|_| BadLadder::TooGreat(text.to_owned())).and_then(in_range),
        _ => Err(BadLadder::NoNumber(text.to_owned())),
    }
}

impl FromStr for Ladder {
    type Err = BadLadder;

    /// Reads `1000,10000,1000000` or `every:1000000`.
    fn from_str(text: &str) -> Result<Self, BadLadder> {
        if let Some(step) = text.trim().strip_prefix("every:") {
            return Self::every(threshold(step)?);
        }
        if text.trim().is_empty() {
            return Err(BadLadder::Empty);
        }
        Self::of(&text.split(',').map(threshold).collect::<Result<Vec<_>, _>>()?)
    }
}

impl fmt::Display for Ladder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.every {
            f.write_str("every:")?;
        }
        for (at, threshold) in self.listed().iter().enumerate() {
            write!(f, "{}{threshold}", if at == 0 { "" } else { "," })?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ladder(text: &str) -> Ladder {
        text.parse().unwrap()
    }

    #[test]
    fn a_ladder_is_read_as_it_is_written() {
        for text in ["1", "100,1000", "every:1000000", "1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16", "1000000000000000000"]
        {
            assert_eq!(ladder(text).to_string(), text);
        }
        assert_eq!(ladder(" 100, 1000 "), ladder("100,1000"));
        assert!(Ladder::default().is_empty() && Ladder::default().to_string().is_empty());
    }

    #[test]
    fn a_bad_ladder_is_refused_by_name() {
        let said = |text: &str| text.parse::<Ladder>().unwrap_err().to_string();
        assert_eq!(said("0"), "0 is no threshold: the least is 1");
        assert_eq!(said("every:0"), "0 is no threshold: the least is 1");
        assert_eq!(said("-5"), "-5 is no threshold: the least is 1");
        assert_eq!(said("100,1.5"), "1.5 has a fraction: a threshold is a whole number");
        assert_eq!(said("1000,100"), "1000 stands before 100: thresholds go upwards, each once");
        assert_eq!(said("7,7"), "7 stands before 7: thresholds go upwards, each once");
        let many: Vec<String> = (1..=17).map(|n| n.to_string()).collect();
        assert_eq!(said(&many.join(",")), "17 thresholds are more than 16; every:N has no end");
        assert_eq!(said("1000000000000000001"), "1000000000000000001 is above 1000000000000000000");
        assert_eq!(said("99999999999999999999"), "99999999999999999999 is above 1000000000000000000");
        assert_eq!(said(" "), "it names no threshold");
        for text in ["x", "1,,2", "1e3", "every:", "every:every:1", "+1", "1.", "."] {
            assert!(matches!(text.parse::<Ladder>(), Err(BadLadder::NoNumber(_))), "{text:?}");
        }
    }

    #[test]
    fn a_ladder_goes_on_upwards_and_nothing_else() {
        let goes_on = |from: &str, to: &str| ladder(from).precedes(&ladder(to));
        assert!(
            Ladder::default().precedes(&ladder("every:5"))
                && goes_on("100", "100,1000")
                && goes_on("every:5", "every:5")
        );
        for (from, to) in
            [("100,1000", "100"), ("100", "200"), ("100", "50,100"), ("every:5", "every:10"), ("5", "every:5")]
        {
            assert!(!goes_on(from, to), "{from} to {to}");
        }
        assert!(!ladder("100").precedes(&Ladder::default()));
    }

    #[test]
    fn the_next_threshold_is_the_least_above_what_is_recorded() {
        let listed = ladder("100,1000");
        assert_eq!(
            [None, Some(99), Some(100), Some(1000)].map(|recorded| listed.above(recorded)),
            [Some(100), Some(100), Some(1000), None]
        );
        let every = ladder("every:50");
        assert_eq!(
            [None, Some(49), Some(50), Some(120)].map(|recorded| every.above(recorded)),
            [Some(50), Some(50), Some(100), Some(150)]
        );
        assert_eq!(every.above(Some(Weight::MAX)), None);
        assert!(every.has(100) && !every.has(101) && !every.has(0) && listed.has(1000) && !listed.has(999));
    }

    #[test]
    fn no_more_thresholds_are_recorded_at_once_than_a_transaction_takes() {
        assert_eq!(ladder("100,1000").crossed(Some(100), 5000), Crossed { thresholds: vec![1000], skipped: 0 });
        assert_eq!(ladder("100,1000").crossed(None, 99), Crossed::default());
        let many = ladder("every:1").crossed(Some(3), 200);
        assert_eq!((many.thresholds.len(), many.thresholds[0], many.skipped), (90, 111, 107));
        let beyond = ladder("every:1").crossed(None, i64::MAX);
        assert_eq!((beyond.thresholds.len(), beyond.thresholds.last()), (90, Some(&Weight::MAX)));
    }
}
