//! Everybody whose row a window has read, in 16 bytes each, whatever their ids are.

use std::hash::{BuildHasher, RandomState};

use tally_core::ids::UserId;
use tally_core::recount::Read;

/// Fingerprints of 128 bits, under keys that nobody knows: two users of one row key share one by no chance worth
/// counting, and by no design.
#[derive(Debug, Default)]
pub(super) struct Roster {
    keys: [RandomState; 2],
    members: Vec<u128>,
}

impl Roster {
    /// Adds `users`, each of whom is added once.
    pub(super) fn extend(&mut self, users: &[UserId]) {
        let keys = &self.keys;
        self.members.extend(users.iter().map(|user| fingerprint(keys, user)));
    }

    /// Nobody is added any more.
    pub(super) fn finish(mut self) -> Self {
        self.members.sort_unstable();
        self
    }
}

impl Read for Roster {
    fn len(&self) -> u64 {
        self.members.len() as u64
    }

    fn contains(&self, user: &UserId) -> bool {
        self.members.binary_search(&fingerprint(&self.keys, user)).is_ok()
    }
}

fn fingerprint([high, low]: &[RandomState; 2], user: &UserId) -> u128 {
    let part = |key: &RandomState| u128::from(key.hash_one(user.as_str()));
    part(high) << 64 | part(low)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_was_read_is_found_and_nobody_else() {
        let user = |n: u32| UserId::new(&format!("u-{n}")).unwrap();
        let mut roster = Roster::default();
        for page in (0..1_000).map(user).collect::<Vec<_>>().chunks(100) {
            roster.extend(page);
        }
        let roster = roster.finish();
        assert_eq!(roster.len(), 1_000);
        assert!((0..1_000).all(|n| roster.contains(&user(n))));
        assert!(!(1_000..3_000).any(|n| roster.contains(&user(n))));
    }
}
