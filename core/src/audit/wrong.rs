//! A row key's rows held against its counter.

use super::{Cause, Drift};
use crate::counter::Counter;
use crate::ids::{CounterKind, RowKey};

/// What is wrong with the count of a row key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Wrong {
    /// What.
    pub cause: Cause,
    /// What the counter has.
    pub counted: i64,
    /// What the rows weigh.
    pub weight: i128,
}

impl Wrong {
    /// Compares the weight of a row key's rows with its counter; `None` where they agree. An item that is not there
    /// counts nothing. A sum may be negative and right.
    pub fn with(key: &RowKey, weight: i128, counter: Option<&Counter>) -> Option<Self> {
        let tally = counter.and_then(|counter| counter.shards.get(&key.shard));
        let counted = tally.map_or(0, |tally| tally.rows);
        let cause = if tally.is_some_and(|tally| tally.suspect) {
            Cause::Suspect
        } else if counted < 0 && key.counter.name.kind() == CounterKind::Set {
            Cause::Negative
        } else if i128::from(counted) == weight {
            return None;
        } else if tally.is_none() {
            Cause::MissingCounter
        } else if weight == 0 {
            Cause::NoRows
        } else {
            Cause::Drift
        };
        Some(Self { cause, counted, weight })
    }

    /// By how much.
    pub fn by(self) -> u64 {
        u64::try_from(self.weight.abs_diff(self.counted.into())).unwrap_or(u64::MAX)
    }

    /// As it is listed in a summary.
    pub fn drift(self, key: &RowKey) -> Drift {
        let limit = if self.weight < 0 { i64::MIN } else { i64::MAX };
        let after = i64::try_from(self.weight).unwrap_or(limit);
        Drift { key: key.to_string(), before: self.counted, after, cause: self.cause }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::counter::ShardTally;

    fn cause(key: &str, weight: i128, tally: Option<(i64, bool)>) -> Option<Cause> {
        let key: RowKey = key.parse().unwrap();
        let tally = tally.map(|(rows, suspect)| (key.shard, ShardTally { rows, suspect, ..ShardTally::default() }));
        let counter = Counter { shards: tally.into_iter().collect(), ..Counter::default() };
        Wrong::with(&key, weight, Some(&counter)).map(|wrong| wrong.cause)
    }

    #[test]
    fn a_difference_a_negative_count_and_a_suspicion_are_told_apart() {
        assert_eq!(cause("p#0", 3, Some((3, false))), None);
        assert_eq!(cause("p#0", 3, Some((2, false))), Some(Cause::Drift));
        assert_eq!(cause("p#0", 0, Some((2, false))), Some(Cause::NoRows));
        assert_eq!(cause("p#0", 0, Some((-1, false))), Some(Cause::Negative));
        assert_eq!(cause("p#0", 3, Some((3, true))), Some(Cause::Suspect));
        assert_eq!(cause("p#0", 0, None), None);
        assert_eq!(cause("p#0", 1, None), Some(Cause::MissingCounter));
    }

    #[test]
    fn a_sum_may_be_negative_and_right() {
        assert_eq!(cause("p#+views.0", -4, Some((-4, false))), None);
        assert_eq!(cause("p#+views.0", -5, Some((-4, false))), Some(Cause::Drift));
    }
}
