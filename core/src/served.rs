//! A count as it is served.

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
    /// The number to show of a set: 0 for a negative total.
    pub fn shown(&self) -> u64 {
        u64::try_from(self.likes).unwrap_or(0)
    }

    /// The number to show of a counter of a kind: a sum's total as it is.
    pub fn value(&self, kind: CounterKind) -> i64 {
        if kind == CounterKind::Sum { self.likes } else { self.likes.max(0) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_negative_total_is_shown_as_none_of_a_set_and_as_it_is_of_a_sum() {
        let served = Served { likes: -3, ..Served::default() };
        assert_eq!((served.shown(), served.value(CounterKind::Set), served.value(CounterKind::Sum)), (0, 0, -3));
    }
}
