//! The weight of a row: what it counts for, such as 1 for a like. A counter is the sum of its rows' weights.

/// What a row counts for: 1 for a member, any integer for a cell, 0 for a row that is absent or a tombstone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Weight(i64);

/// The weight as an item states it in `n`, before it is checked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Stated {
    /// The item has no `n`.
    #[default]
    Nothing,
    /// An `n` in the allowed range.
    Amount(Weight),
    /// An `n` that is no integer in the allowed range.
    Unreadable,
}

impl Weight {
    /// The weight of a row that is absent.
    pub const ABSENT: Self = Self(0);
    /// The weight of a member's row that states none.
    pub const ONE: Self = Self(1);
    /// The greatest weight; the least is its negative. The difference of two fits 64 bits.
    pub const MAX: i64 = 1_000_000_000_000_000_000;

    /// Returns the weight `n`, if it is in range.
    pub fn new(n: i64) -> Option<Self> {
        (-Self::MAX..=Self::MAX).contains(&n).then_some(Self(n))
    }

    pub fn get(self) -> i64 {
        self.0
    }

    /// Returns what a counter gains when a row's weight changes from `before` to this one.
    pub fn less(self, before: Self) -> i64 {
        self.0 - before.0
    }
}

impl Stated {
    /// Reads the number `n` as the store writes it.
    pub fn number(n: &str) -> Self {
        n.parse().ok().and_then(Weight::new).map_or(Self::Unreadable, Self::Amount)
    }

    /// Returns the weight of a row that states this. Returns `None` where it is unreadable, or where a cell states no
    /// amount.
    pub fn weight(self, is_cell: bool) -> Option<Weight> {
        match self {
            Self::Amount(weight) => Some(weight),
            Self::Nothing => (!is_cell).then_some(Weight::ONE),
            Self::Unreadable => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_weight_is_an_integer_of_at_most_ten_to_the_eighteen_either_way() {
        let max = Weight::MAX.to_string();
        for n in ["0", "1", "-1", &max, &format!("-{max}")] {
            assert_eq!(Stated::number(n).weight(true).unwrap().get().to_string(), n);
        }
        for n in ["", "1.5", "1e3", "1000000000000000001", "-1000000000000000001", "9223372036854775808", "x", " 1"] {
            assert_eq!(Stated::number(n), Stated::Unreadable, "{n}");
        }
    }
}
