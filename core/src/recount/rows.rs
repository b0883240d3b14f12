//! The rows of one key as they were read: a key may have millions, so each takes little more than its sort key.

use std::collections::BTreeMap;

use crate::ids::MemberKey;
use crate::weight::Weight;

/// Rows with what they weigh.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Rows {
    /// The sort keys in order, one right behind the other.
    text: String,
    /// Where each of them ends.
    ends: Vec<usize>,
    /// The weights that are not 1; `None` where it cannot be read.
    others: BTreeMap<MemberKey, Option<Weight>>,
    /// What the readable rows weigh together.
    total: i128,
}

impl Rows {
    pub(super) fn len(&self) -> usize {
        self.ends.len()
    }

    /// What the readable rows weigh together.
    pub(super) fn total(&self) -> i128 {
        self.total
    }

    /// How many rows have a weight that cannot be read.
    pub(super) fn unreadable(&self) -> usize {
        self.others.values().filter(|weight| weight.is_none()).count()
    }

    /// What the row weighs; `None` where there is none.
    pub(super) fn weight(&self, member: &MemberKey) -> Option<Option<Weight>> {
        self.find(member.as_str()).ok()?;
        Some(self.others.get(member).copied().unwrap_or(Some(Weight::ONE)))
    }

    /// Adds a row, or puts it in the place of the one that is there. A row behind all others costs least.
    pub(super) fn insert(&mut self, member: MemberKey, weight: Option<Weight>) {
        let text = member.as_str();
        match self.find(text) {
            Ok(_) => self.total -= worth(self.weight(&member).flatten()),
            Err(nth) => {
                let at = self.start(nth);
                self.text.insert_str(at, text);
                self.ends.insert(nth, at);
                self.ends[nth..].iter_mut().for_each(|end| *end += text.len());
            }
        }
        self.total += worth(weight);
        if weight == Some(Weight::ONE) {
            self.others.remove(&member);
        } else {
            self.others.insert(member, weight);
        }
    }

    fn start(&self, nth: usize) -> usize {
        nth.checked_sub(1).map_or(0, |before| self.ends[before])
    }

    /// Which row it is, or which it would be.
    fn find(&self, text: &str) -> Result<usize, usize> {
        let (mut low, mut high) = (0, self.ends.len());
        // Most rows come behind all others.
        if high > 0 && self.nth(high - 1) < text {
            return Err(high);
        }
        while low < high {
            let middle = usize::midpoint(low, high);
            match self.nth(middle).cmp(text) {
                std::cmp::Ordering::Less => low = middle + 1,
                std::cmp::Ordering::Equal => return Ok(middle),
                std::cmp::Ordering::Greater => high = middle,
            }
        }
        Err(low)
    }

    fn nth(&self, nth: usize) -> &str {
        &self.text[self.start(nth)..self.ends[nth]]
    }
}

fn worth(weight: Option<Weight>) -> i128 {
    weight.map_or(0, |weight| weight.get().into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_what_a_map_of_them_is_in_whatever_order_they_come() {
        let (mut rows, mut map, mut draw) = (Rows::default(), BTreeMap::new(), 7u64);
        for _ in 0..2_000 {
            draw = draw.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let member = MemberKey::new(&format!("{:x}", (draw >> 33) % 300)).unwrap();
            let weight = match (draw >> 20) % 4 {
                0 => None,
                1 => Weight::new(-7),
                _ => Some(Weight::ONE),
            };
            rows.insert(member.clone(), weight);
            map.insert(member, weight);
        }
        assert_eq!((rows.len(), rows.total()), (map.len(), map.values().map(|weight| worth(*weight)).sum()));
        assert_eq!(rows.unreadable(), map.values().filter(|weight| weight.is_none()).count());
        for member in (0..400).map(|n| MemberKey::new(&format!("{n:x}")).unwrap()) {
            assert_eq!(rows.weight(&member), map.get(&member).copied(), "{member}");
        }
    }
}
