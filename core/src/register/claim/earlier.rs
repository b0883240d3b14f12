//! Remembers, in the claim of a Kafka partition, earlier values of `safe_at`: a time up to which every event that Kafka
//! had acknowledged is a row. A process that starts while counts are far behind reads from them up to when those counts
//! are complete: the newest `safe_at` alone says nothing about older counts.

use std::collections::VecDeque;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use super::BadPast;
use crate::time::UnixMillis;

/// A few earlier values of `safe_at`, each with the time at which it was stored. The older they are, the further apart.
/// A replay begins without any.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Earlier(VecDeque<(UnixMillis, UnixMillis)>);

impl Earlier {
    /// How many are kept. A claim stays below a kilobyte with them, so storing it costs one write unit.
    const MOST: usize = 24;
    /// How far back they reach: further than the log of changes.
    const REACH: Duration = Duration::from_secs(48 * 3600);

    /// Returns each time with its `safe_at`, the oldest first.
    pub(in crate::register) fn pairs(&self) -> impl Iterator<Item = (UnixMillis, UnixMillis)> {
        self.0.iter().copied()
    }

    /// Notes that `safe_at` was stored at the time `at`, if that is later than what is noted.
    pub(super) fn note(&mut self, at: UnixMillis, safe_at: UnixMillis) {
        if self.0.back().is_some_and(|(last, _)| *last >= at) {
            return;
        }
        self.0.push_back((at, safe_at.min(at)));
        let oldest = at.minus(Self::REACH);
        while self.0.get(1).is_some_and(|(at, _)| *at <= oldest) {
            self.0.pop_front();
        }
        thin(&mut self.0, Self::MOST);
    }
}

/// Removes one time if there are more than `most`: the one whose removal leaves the smallest gap, relative to its age.
pub(in crate::register) fn thin<T>(times: &mut VecDeque<(UnixMillis, T)>, most: usize) {
    let Some((now, _)) = times.back().filter(|_| times.len() > most.max(2)) else { return };
    let weight = |nth: usize| {
        let (before, behind) = (times[nth - 1].0.0, times[nth + 1].0.0);
        (u128::from(behind - before), u128::from(now.0 - before))
    };
    let less = |one: &usize, other: &usize| {
        let ((gap, age), (other_gap, other_age)) = (weight(*one), weight(*other));
        (gap * other_age).cmp(&(other_gap * age))
    };
    let least_missed = (1..times.len() - 1).min_by(less).unwrap_or_default();
    times.remove(least_missed);
}

/// Writes the stored form: `at:age` and so on, the oldest first. `age` is how much older than `at` its `safe_at` is, and
/// each `at` but the first is how much later it is than the one before.
impl fmt::Display for Earlier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut before = 0;
        for (nth, (at, safe_at)) in self.0.iter().enumerate() {
            write!(f, "{}{}:{}", if nth == 0 { "" } else { " " }, at.0 - before, at.0 - safe_at.0)?;
            before = at.0;
        }
        Ok(())
    }
}

impl FromStr for Earlier {
    type Err = BadPast;

    fn from_str(text: &str) -> Result<Self, BadPast> {
        let (mut at, mut pairs) = (0_u64, VecDeque::new());
        for pair in text.split_whitespace() {
            let (later, age) = pair.split_once(':').ok_or_else(|| BadPast::NoPair(pair.to_owned()))?;
            at = at.saturating_add(later.parse()?);
            pairs.push_back((UnixMillis(at), UnixMillis(at.saturating_sub(age.parse()?))));
        }
        Ok(Self(pairs))
    }
}
