//! A count as it is served, which of two is kept, and the one form in which the cache keeps it.

use std::fmt;
use std::str::FromStr;

use thiserror::Error;

use crate::counter::Counter;
use crate::ids::CounterKind;
use crate::time::UnixMillis;

/// A post's count, with how exact and how fresh it is known to be.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Served {
    /// The total as stored, negative too; answers give [`shown`](Self::shown).
    pub likes: i64,
    /// The counter's version, 0 for a post without a counter.
    pub version: u64,
    /// Whether nothing says that the number may be wrong.
    pub exact: bool,
    /// Every change that had reached the likes table by then is in the number.
    pub as_of: UnixMillis,
}

impl Served {
    /// The count of a set's `counter`, while the stream has open gaps or not; a post without a counter has no likes.
    pub fn new(counter: Option<&Counter>, open_gaps: bool, as_of: UnixMillis) -> Self {
        Self::of(CounterKind::Set, counter, open_gaps, as_of)
    }

    /// The same of a counter of a kind: a sum may be negative and exact.
    pub fn of(kind: CounterKind, counter: Option<&Counter>, open_gaps: bool, as_of: UnixMillis) -> Self {
        let sound = counter.is_none_or(|counter| counter.is_sound_as(kind));
        let (likes, version) = counter.map_or((0, 0), |counter| (counter.likes, counter.version));
        Self { likes, version, exact: sound && !open_gaps, as_of }
    }

    /// The number to show of a set: 0 for a negative total.
    pub fn shown(&self) -> u64 {
        u64::try_from(self.likes).unwrap_or(0)
    }

    /// The number to show of a counter of a kind: a sum's total as it is.
    pub fn value(&self, kind: CounterKind) -> i64 {
        if kind == CounterKind::Sum { self.likes } else { self.likes.max(0) }
    }

    /// Whether this value takes the place of `held`, a value of the same post, wherever one of them is kept: a newer
    /// version does; of one version an exact value before an inexact one, and then the one with the later `as_of`. So
    /// the same value is kept in whatever order values are offered.
    pub fn replaces(&self, held: &Self) -> bool {
        (self.version, self.exact, self.as_of) > (held.version, held.exact, held.as_of)
    }
}

/// Why a cached text is not a count of the form this version writes.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum BadCached {
    /// Written by a version with another form.
    #[error("a cached count of an unknown format")]
    UnknownFormat,
    /// Of this version's form, with a field that cannot be read.
    #[error("a cached count that cannot be read")]
    Malformed,
}

/// `1:version:likes:exact:as_of`; the 1 is the format.
impl fmt::Display for Served {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "1:{}:{}:{}:{}", self.version, self.likes, u8::from(self.exact), self.as_of)
    }
}

impl FromStr for Served {
    type Err = BadCached;

    fn from_str(text: &str) -> Result<Self, BadCached> {
        let mut fields = text.split(':');
        if fields.next() != Some("1") {
            return Err(BadCached::UnknownFormat);
        }
        let fields: Vec<&str> = fields.collect();
        let [version, likes, exact, as_of] = fields[..] else { return Err(BadCached::Malformed) };
        let exact = match exact {
            "1" => true,
            "0" => false,
            _ => return Err(BadCached::Malformed),
        };
        let malformed = |_| BadCached::Malformed;
        let (version, likes) = (version.parse().map_err(malformed)?, likes.parse().map_err(malformed)?);
        Ok(Self { likes, version, exact, as_of: UnixMillis(as_of.parse().map_err(malformed)?) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::counter::ShardTally;
    use crate::ids::Shard;

    #[test]
    fn a_cached_count_has_the_documented_form() {
        let served = Served { likes: -3, version: 7, exact: true, as_of: UnixMillis(99) };
        assert_eq!(served.to_string(), "1:7:-3:1:99");
        assert_eq!("1:7:-3:1:99".parse(), Ok(served));
        assert_eq!("2:7:-3:1:99".parse::<Served>(), Err(BadCached::UnknownFormat));
        for text in ["1", "1:", "1:7:3:2:99", "1:7:3:1", "1:7:3:1:99:0", "1:-7:3:1:99", "1:7:x:1:99"] {
            assert_eq!(text.parse::<Served>(), Err(BadCached::Malformed), "{text}");
        }
    }

    #[test]
    fn a_negative_total_is_kept_shown_as_none_and_never_called_exact() {
        let counter = Counter { likes: -3, version: 7, ..Counter::default() };
        let served = Served::new(Some(&counter), false, UnixMillis(1));
        assert_eq!((served.likes, served.shown(), served.exact), (-3, 0, false));
    }

    #[test]
    fn a_negative_sum_is_shown_as_it_is_and_may_be_exact() {
        let rows = ShardTally { rows: -3, ..ShardTally::default() };
        let shards = [(Shard::new(0).unwrap(), rows)].into();
        let counter = Counter { likes: -3, version: 7, shards, ..Counter::default() };
        let of = |kind| Served::of(kind, Some(&counter), false, UnixMillis(1));
        let [sum, set] = [CounterKind::Sum, CounterKind::Set].map(|kind| (of(kind).value(kind), of(kind).exact));
        assert_eq!((sum, set), ((-3, true), (0, false)));
        let suspect = Counter { likes: -2, ..counter.clone() };
        assert!(!Served::of(CounterKind::Sum, Some(&suspect), false, UnixMillis(1)).exact, "its shards sum up to -3");
    }

    #[test]
    fn an_open_gap_makes_every_answer_inexact() {
        assert!(Served::new(None, false, UnixMillis(1)).exact);
        assert!(!Served::new(None, true, UnixMillis(1)).exact);
    }
}
