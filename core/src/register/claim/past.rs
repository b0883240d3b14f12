//! Remembers, in the claim of a Kafka partition, how far consumers had read it at earlier moments, as far back as half
//! of the time that tombstones (rows of removed members) are kept. From this a consumer sees whether reading again is a
//! replay, in which removed members may come back.

use std::collections::VecDeque;
use std::fmt;
use std::num::ParseIntError;
use std::str::FromStr;
use std::time::Duration;

use thiserror::Error;

use super::half;
use crate::time::UnixMillis;
use crate::topic::Offset;

/// A few moments, each with the offset `sent` at that time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Past(pub(super) VecDeque<(UnixMillis, Offset)>);

impl Past {
    /// How many moments cover half of the time that tombstones are kept.
    const MOMENTS: u32 = 12;

    /// Returns what was sent by `moment`, or by the first moment that is known.
    pub(super) fn at(&self, moment: UnixMillis) -> Option<Offset> {
        let known = self.0.iter().rev().find(|(at, _)| *at <= moment).or(self.0.front());
        known.map(|(_, sent)| *sent)
    }

    /// Notes that records up to `sent` are sent by `now`, unless a moment was noted lately, and forgets moments that
    /// are too old. If nothing was stored for long, because the process slept, these records may have been sent right
    /// after `before`, so that moment is noted, too.
    pub(super) fn take(&mut self, [before, now]: [UnixMillis; 2], sent: Offset, tombstones: Duration) {
        let apart = half(tombstones) / Self::MOMENTS;
        if now.since(before) >= apart {
            self.note(before, sent, tombstones);
        }
        if self.0.back().is_some_and(|(at, _)| now.since(*at) < apart) {
            return;
        }
        self.note(now, sent, tombstones);
    }

    pub(super) fn note(&mut self, now: UnixMillis, sent: Offset, tombstones: Duration) {
        self.0.push_back((now, sent));
        let oldest = now.minus(half(tombstones));
        while self.0.get(1).is_some_and(|(at, _)| *at <= oldest) {
            self.0.pop_front();
        }
    }
}

/// Writes the stored form, `moment:sent` and so on, the oldest first.
impl fmt::Display for Past {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (nth, (at, sent)) in self.0.iter().enumerate() {
            write!(f, "{}{at}:{sent}", if nth == 0 { "" } else { " " })?;
        }
        Ok(())
    }
}

/// Why a stored text is no [`Past`].
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum BadPast {
    /// A pair has no colon.
    #[error("{0:?} is no moment and offset")]
    NoPair(String),
    /// A part of a pair is no number.
    #[error(transparent)]
    NoNumber(#[from] ParseIntError),
}

impl FromStr for Past {
    type Err = BadPast;

    fn from_str(text: &str) -> Result<Self, BadPast> {
        let pair = |pair: &str| {
            let (at, greatest) = pair.split_once(':').ok_or_else(|| BadPast::NoPair(pair.to_owned()))?;
            Ok((UnixMillis(at.parse()?), Offset(greatest.parse()?)))
        };
        text.split_whitespace().map(pair).collect::<Result<_, _>>().map(Self)
    }
}
