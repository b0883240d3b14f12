//! The keys of items as bytes, ordered by the hash of the partition key, the partition key, and the sort key. The schema knows
//! the names of the key attributes.

use std::ops::Bound;

use smallvec::SmallVec;
use xxhash_rust::xxh64::xxh64;

use crate::expression::{Comparator, RangeCondition};
use crate::number::Number;
use crate::value::Value;

/// A position in the key space of a table.
///
/// Keys are ordered by the hash of the partition key, by which scans, segments and stream shards are divided, then by
/// collection, then by sort key.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Key {
    hash: u64,
    /// Each part is escaped and terminated, so that no key is a prefix of another and their order is that of the parts.
    parts: Parts,
}

/// Keys of the usual length are stored inline, so a search in a large map compares inside the map's own nodes instead of
/// following a pointer for every key.
type Parts = SmallVec<[u8; 40]>;

/// Ends a part. An escaped zero is `00 FF`, so the end sorts before every continuation.
const END: [u8; 2] = [0, 1];
/// Directly after [`END`]: after everything that begins with the part.
const PAST_END: [u8; 2] = [0, 2];

impl Key {
    /// The position before every key with this hash.
    pub(crate) fn at_hash(hash: u64) -> Self {
        Self { hash, parts: Parts::new() }
    }

    /// The key of these parts, the partition key first.
    pub(crate) fn new(partition: &Value, sorts: &[&Value]) -> Self {
        let mut parts = Parts::new();
        push_part(&mut parts, partition);
        let hash = xxh64(&parts, 0);
        for sort in sorts {
            push_part(&mut parts, sort);
        }
        Self { hash, parts }
    }

    pub(crate) fn hash(&self) -> u64 {
        self.hash
    }

    /// The index of the part that contains the key, if the space of hashes is divided into `count` equal parts.
    pub(crate) fn partition(&self, count: u64) -> u64 {
        partition(self.hash, count)
    }

    /// The index of the part that contains the last hash before this position.
    pub(crate) fn partition_before(&self, count: u64) -> u64 {
        // A position without parts is the first of its hash, so nothing with that hash lies before it.
        partition(if self.parts.is_empty() { self.hash.saturating_sub(1) } else { self.hash }, count)
    }

    /// The range of one collection, narrowed by a condition on the first sort key.
    pub(crate) fn collection(partition: &Value, condition: Option<&RangeCondition>) -> (Bound<Self>, Bound<Self>) {
        let base = Self::new(partition, &[]);
        let from = |suffix: &dyn Fn(&mut Parts)| {
            let mut parts = base.parts.clone();
            suffix(&mut parts);
            Self { hash: base.hash, parts }
        };
        let at = |value: &Value, end: [u8; 2]| {
            from(&|parts| {
                escape(parts, &sort_bytes(value));
                parts.extend(end);
            })
        };
        let first = base.clone();
        let last = from(&|parts| {
            let end = parts.len() - END.len();
            parts.truncate(end);
            parts.extend(PAST_END);
        });
        let (low, high) = match condition {
            None => (first, last),
            Some(RangeCondition::Compare(comparator, value)) => match comparator {
                Comparator::Less => (first, at(value, END)),
                Comparator::LessOrEqual => (first, at(value, PAST_END)),
                Comparator::Greater => (at(value, PAST_END), last),
                Comparator::GreaterOrEqual => (at(value, END), last),
                Comparator::Equal | Comparator::NotEqual => (at(value, END), at(value, PAST_END)),
            },
            Some(RangeCondition::Between(low, high)) => (at(low, END), at(high, PAST_END)),
            Some(RangeCondition::BeginsWith(prefix)) => {
                let low = from(&|parts| escape(parts, &sort_bytes(prefix)));
                let high = Self { hash: base.hash, parts: successor(&low.parts).into() };
                (low, high)
            }
        };
        // A condition that nothing fulfils must still be a valid range. (`BETWEEN 5 AND 3` is refused earlier.)
        let high = high.max(low.clone());
        (Bound::Included(low), Bound::Excluded(high))
    }
}

fn partition(hash: u64, count: u64) -> u64 {
    let part = (u128::from(hash) * u128::from(count)) >> 64;
    u64::try_from(part).expect("a part is below their count")
}

/// The first byte string after all that begin with this one.
fn successor(prefix: &[u8]) -> Vec<u8> {
    let kept = prefix.iter().rposition(|byte| *byte != u8::MAX).map_or(0, |last| last + 1);
    let mut next = prefix[..kept].to_vec();
    if let Some(last) = next.last_mut() {
        *last += 1;
    }
    next
}

fn push_part(parts: &mut Parts, value: &Value) {
    match value {
        Value::S(text) => escape(parts, text.as_bytes()),
        other => escape(parts, &sort_bytes(other)),
    }
    parts.extend(END);
}

fn escape(parts: &mut Parts, bytes: &[u8]) {
    for byte in bytes {
        parts.push(*byte);
        if *byte == 0 {
            parts.push(u8::MAX);
        }
    }
}

/// Encodes a key value so that bytes have the order of the values of its type. Keys are of type S, N or B.
fn sort_bytes(value: &Value) -> Vec<u8> {
    match value {
        Value::S(text) => text.as_bytes().to_vec(),
        Value::B(bytes) => bytes.to_vec(),
        Value::N(number) => number_bytes(*number),
        _ => Vec::new(),
    }
}

/// Encodes the sign, the magnitude and the digits, inverted for negative numbers.
fn number_bytes(number: Number) -> Vec<u8> {
    let Number { mantissa, exponent } = number;
    if mantissa == 0 {
        return vec![1];
    }
    let digits = mantissa.unsigned_abs().to_string();
    let length = i16::try_from(digits.len()).expect("a number has at most 38 digits");
    let biased = (0x4000 + exponent + length).cast_unsigned();
    let mut bytes = vec![2];
    bytes.extend(biased.to_be_bytes());
    bytes.extend(digits.as_bytes());
    if mantissa < 0 {
        bytes.iter_mut().skip(1).for_each(|byte| *byte = !*byte);
        bytes[0] = 0;
        // Of two negative numbers with the same beginning, the longer one is smaller.
        bytes.push(u8::MAX);
    }
    bytes
}

#[cfg(test)]
mod tests {
    use std::borrow::Cow;

    use proptest::prelude::*;

    use super::*;

    /// Evaluates the condition directly.
    fn selects(condition: &RangeCondition, sort: &Value) -> bool {
        match condition {
            RangeCondition::Compare(comparator, value) => {
                comparator.holds(Some(Cow::Borrowed(sort)), Some(Cow::Borrowed(value)))
            }
            RangeCondition::Between(low, high) => (low..=high).contains(&sort),
            RangeCondition::BeginsWith(prefix) => sort.begins_with(prefix),
        }
    }

    fn text(text: &str) -> Value {
        Value::S(text.to_owned())
    }

    #[test]
    fn numbers_sort_by_value() {
        let ordered = [
            "-1E+125", "-100", "-10.5", "-10", "-9.99", "-1", "-0.5", "-1E-130", "0", "1E-130", "0.05", "0.5", "0.51",
            "1", "1.5", "9", "10", "10.1", "11", "99", "100", "1E+125",
        ];
        for pair in ordered.windows(2) {
            assert!(number_bytes(pair[0].parse().unwrap()) < number_bytes(pair[1].parse().unwrap()), "{pair:?}");
        }
    }

    proptest! {
        #[test]
        fn the_order_of_keys_is_the_order_of_their_parts(a in ".{0,6}", b in ".{0,6}", x in any::<i64>(), y in any::<i64>()) {
            let partition = text("p");
            let sorted = |sort: &Value| Key::new(&partition, &[sort]);
            prop_assert_eq!(sorted(&text(&a)).cmp(&sorted(&text(&b))), a.as_bytes().cmp(b.as_bytes()));
            let (x, y) = (Number::from(x), Number::from(y));
            prop_assert_eq!(sorted(&Value::N(x)).cmp(&sorted(&Value::N(y))), x.cmp(&y));
        }

        #[test]
        fn a_range_holds_exactly_what_its_condition_selects(low in "[\u{0}-\u{2}a]{0,3}", high in "[\u{0}-\u{2}a]{0,3}", sort in "[\u{0}-\u{2}a]{0,4}") {
            let (partition, sort) = (text("p"), text(&sort));
            let key = Key::new(&partition, &[&sort]);
            let (low, high) = (text(&low), text(&high));
            let (low, high) = if low <= high { (low, high) } else { (high, low) };
            let comparators = ["=", "<", "<=", ">", ">="].map(|symbol| Comparator::of(symbol).unwrap());
            let compare = comparators.map(|comparator| RangeCondition::Compare(comparator, low.clone()));
            let others = [RangeCondition::Between(low.clone(), high), RangeCondition::BeginsWith(low)];
            for condition in compare.into_iter().chain(others) {
                let bounds = Key::collection(&partition, Some(&condition));
                prop_assert_eq!(std::ops::RangeBounds::contains(&bounds, &key), selects(&condition, &sort), "{:?} {:?}", condition, sort);
            }
        }
    }

    #[test]
    fn a_collection_contains_exactly_its_keys() {
        let bounds = Key::collection(&text("p"), None);
        let contains = |key: &Key| std::ops::RangeBounds::contains(&bounds, key);
        assert!(contains(&Key::new(&text("p"), &[])));
        assert!(contains(&Key::new(&text("p"), &[&text("\u{10FFFF}")])));
        assert!(!contains(&Key::new(&text("p\0"), &[&text("a")])));
        assert!(!contains(&Key::new(&text("pa"), &[&text("a")])));
    }
}
