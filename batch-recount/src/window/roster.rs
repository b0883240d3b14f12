//! Every row that a window has read, in 16 bytes each, whatever their members are called; those that do not weigh 1 take
//! 32 more.

use std::hash::{BuildHasher, RandomState};

use tally_core::ids::MemberKey;
use tally_core::recount::Read;
use tally_core::weight::Weight;

/// Fingerprints of 128 bits, under keys drawn for this roster: two members of one row key share one by no chance worth
/// counting, and by no design.
#[derive(Debug, Default)]
pub(super) struct Roster {
    keys: [RandomState; 2],
    members: Vec<u128>,
    /// The weights that are not 1.
    weights: Vec<(u128, Weight)>,
    total: i128,
}

impl Roster {
    /// Adds `rows`, each of which is added once.
    pub(super) fn extend(&mut self, rows: &[(MemberKey, Weight)]) {
        self.members.reserve(rows.len());
        for (member, weight) in rows {
            let fingerprint = fingerprint(&self.keys, member);
            self.members.push(fingerprint);
            self.total += i128::from(weight.get());
            if *weight != Weight::ONE {
                self.weights.push((fingerprint, *weight));
            }
        }
    }

    /// How many rows there are.
    pub(super) fn len(&self) -> u64 {
        self.members.len() as u64
    }

    /// Every row was added.
    pub(super) fn finish(mut self) -> Self {
        self.members.sort_unstable();
        self.weights.sort_unstable();
        self
    }
}

impl Read for Roster {
    fn total(&self) -> i128 {
        self.total
    }

    fn weight(&self, member: &MemberKey) -> Weight {
        let fingerprint = fingerprint(&self.keys, member);
        if let Ok(at) = self.weights.binary_search_by_key(&fingerprint, |(of, _)| *of) {
            return self.weights[at].1;
        }
        Weight::of_presence(self.members.binary_search(&fingerprint).is_ok())
    }
}

fn fingerprint([high, low]: &[RandomState; 2], member: &MemberKey) -> u128 {
    let part = |key: &RandomState| u128::from(key.hash_one(member.as_str()));
    part(high) << 64 | part(low)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_member_that_was_read_has_its_weight_and_no_other_has_any() {
        let member = |n: i64| MemberKey::new(&format!("u-{n}")).unwrap();
        let weight = |n: i64| Weight::new(if n % 10 == 0 { n - 500 } else { 1 }).unwrap();
        let rows: Vec<_> = (0..1_000).map(|n| (member(n), weight(n))).collect();
        let mut roster = Roster::default();
        for page in rows.chunks(100) {
            roster.extend(page);
        }
        let roster = roster.finish();
        assert_eq!((roster.len(), roster.total()), (1_000, (0..1_000).map(|n| i128::from(weight(n).get())).sum()));
        assert!((0..1_000).all(|n| roster.weight(&member(n)) == weight(n)));
        assert!((1_000..3_000).all(|n| roster.weight(&member(n)) == Weight::ABSENT));
    }
}
