//! The rows that a window has read, in 16 bytes each, whatever their ids are.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use crate::ids::MemberKey;
use crate::weight::Weight;

/// Fingerprints of 128 bits with their weights. What makes them is handed in: a hash with secret keys, so that two rows of
/// one row key share a fingerprint neither by a chance worth counting nor by design.
#[derive(Clone)]
pub struct Roster {
    print: Arc<dyn Fn(&str) -> u128 + Send + Sync>,
    members: Vec<u128>,
    /// The weights that are not 1.
    amounts: Vec<(u128, Weight)>,
    total: i128,
}

impl Roster {
    /// Without rows; `print` makes the fingerprint of a sort key.
    pub fn new(print: impl Fn(&str) -> u128 + Send + Sync + 'static) -> Self {
        Self { print: Arc::new(print), members: Vec::new(), amounts: Vec::new(), total: 0 }
    }

    /// Adds rows, each of which is added once.
    pub fn extend(&mut self, rows: &[(MemberKey, Weight)]) {
        self.members.reserve(rows.len());
        for (member, weight) in rows {
            let print = self.print(member);
            self.members.push(print);
            self.total += i128::from(weight.get());
            if *weight != Weight::ONE {
                self.amounts.push((print, *weight));
            }
        }
    }

    /// No row is added any more.
    pub fn seal(&mut self) {
        self.members.sort_unstable();
        self.amounts.sort_unstable();
    }

    /// Gives the memory back.
    pub fn clear(&mut self) {
        (self.members, self.amounts, self.total) = (Vec::new(), Vec::new(), 0);
    }

    /// How many rows it has.
    pub fn len(&self) -> u64 {
        self.members.len() as u64
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    /// What its rows weigh together.
    pub fn total(&self) -> i128 {
        self.total
    }

    /// What the row of `member` weighed; nothing where there was none. Only once it is sealed.
    pub fn weight(&self, member: &MemberKey) -> Weight {
        let print = self.print(member);
        match self.amounts.binary_search_by_key(&print, |(print, _)| *print) {
            Ok(at) => self.amounts[at].1,
            Err(_) if self.members.binary_search(&print).is_ok() => Weight::ONE,
            Err(_) => Weight::ABSENT,
        }
    }

    fn print(&self, member: &MemberKey) -> u128 {
        (self.print)(member.as_str())
    }
}

/// Rosters are compared only with copies of themselves, which make the same fingerprints.
impl PartialEq for Roster {
    fn eq(&self, other: &Self) -> bool {
        (&self.members, &self.amounts) == (&other.members, &other.amounts)
    }
}

impl Eq for Roster {}

impl Hash for Roster {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (&self.members, &self.amounts).hash(state);
    }
}

impl fmt::Debug for Roster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Roster({} rows, {})", self.members.len(), self.total)
    }
}

/// The fingerprint of a short sort key: its bytes.
#[cfg(test)]
pub(crate) fn by_name(sort: &str) -> u128 {
    sort.bytes().fold(0, |print, byte| print << 8 | u128::from(byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_that_was_read_has_its_weight_and_every_other_none() {
        let member = |n: u32| MemberKey::new(&format!("u-{n}")).unwrap();
        let amount = |n: u32| if n.is_multiple_of(100) { Weight::new(-7).unwrap() } else { Weight::ONE };
        let mut roster = Roster::new(by_name);
        for page in (0..1_000).map(|n| (member(n), amount(n))).collect::<Vec<_>>().chunks(100) {
            roster.extend(page);
        }
        roster.seal();
        assert_eq!((roster.len(), roster.total()), (1_000, 990 - 70));
        assert!((0..1_000).all(|n| roster.weight(&member(n)) == amount(n)));
        assert!((1_000..3_000).all(|n| roster.weight(&member(n)) == Weight::ABSENT));
    }
}
