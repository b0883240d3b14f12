//! The ledger of truth: who says what, and what must have become of all of it.

use std::collections::BTreeMap;

use tally_core::event::{Action, LikeEvent};
use tally_core::time::UnixMillis;
use tally_service::Chance;

use crate::crowd::Crowd;

/// When the first event is said to have happened; each later one a millisecond after.
const FIRST: u64 = 1_700_000_000_000;

/// Few posts and few users, so that most events change what earlier ones did.
pub(crate) const CROWD: Crowd = Crowd { posts: 20, users: 120, hot: 15, unlikes: 35 };

/// Rows as they are or have to be: for each post and user since when.
pub(crate) type Likes = BTreeMap<(String, String), UnixMillis>;

/// An event on its way to the log.
#[derive(Clone, Debug)]
pub(crate) struct Saying {
    pub(crate) key: Vec<u8>,
    pub(crate) value: Vec<u8>,
}

/// Everything said: the last word of each user on each post, and how far the log goes.
#[derive(Debug)]
pub(crate) struct Ledger {
    crowd: Crowd,
    chance: Chance,
    said: u64,
    last: BTreeMap<(String, String), Option<UnixMillis>>,
    ends: BTreeMap<u32, u64>,
}

impl Ledger {
    /// Nothing was said yet.
    pub(crate) fn new(crowd: Crowd, chance: Chance) -> Self {
        Self { crowd, chance, said: 0, last: BTreeMap::new(), ends: BTreeMap::new() }
    }

    /// The next event, taken for said.
    pub(crate) fn say(&mut self) -> Saying {
        let Self { crowd, chance, .. } = self;
        let (post, user, action) = crowd.draw(chance);
        let at = UnixMillis(FIRST + self.said);
        self.said += 1;
        let since = (action == Action::Like).then_some(at);
        self.last.insert((post.as_str().to_owned(), user.as_str().to_owned()), since);
        Saying { key: post.as_bytes().to_vec(), value: LikeEvent::new(&post, &user, action, at).encode() }
    }

    /// The log has a record at this place.
    pub(crate) fn written(&mut self, partition: u32, offset: u64) {
        let end = self.ends.entry(partition).or_default();
        *end = (*end).max(offset + 1);
    }

    /// How many events were said.
    pub(crate) fn said(&self) -> u64 {
        self.said
    }

    /// Where the log of each partition ends.
    pub(crate) fn ends(&self) -> &BTreeMap<u32, u64> {
        &self.ends
    }

    /// The rows that the last words leave.
    pub(crate) fn rows(&self) -> Likes {
        self.last.iter().filter_map(|(place, since)| Some((place.clone(), (*since)?))).collect()
    }
}

/// How many records before `ends` are not before `fences`.
pub(crate) fn behind(ends: &BTreeMap<u32, u64>, fences: &BTreeMap<u32, u64>) -> u64 {
    ends.iter().map(|(partition, end)| end.saturating_sub(fences.get(partition).copied().unwrap_or(0))).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ledger(seed: u64) -> Ledger {
        Ledger::new(Crowd { posts: 3, users: 5, hot: 20, unlikes: 40 }, Chance::seeded(seed))
    }

    #[test]
    fn the_rows_are_the_fold_of_the_events_as_they_were_written() {
        let mut ledger = ledger(1);
        let mut fold = BTreeMap::new();
        for _ in 0..500 {
            let saying = ledger.say();
            let event: serde_json::Value = serde_json::from_slice(&saying.value).unwrap();
            let text = |name: &str| event[name].as_str().unwrap().to_owned();
            assert_eq!(saying.key, text("post_id").into_bytes());
            let place = (text("post_id"), text("user_id"));
            match text("action").as_str() {
                "like" => fold.insert(place, UnixMillis(event["ts"].as_u64().unwrap())),
                _ => fold.remove(&place),
            };
            assert_eq!(ledger.rows(), fold);
        }
        assert!(!fold.is_empty() && fold.len() < 15, "some like, and some no longer do");
        assert_eq!(ledger.said(), 500);
    }

    #[test]
    fn what_is_behind_is_what_no_fence_has_passed() {
        let mut ledger = ledger(1);
        for (partition, offset) in [(0, 0), (1, 4), (0, 1), (1, 3)] {
            ledger.written(partition, offset);
        }
        assert_eq!(*ledger.ends(), BTreeMap::from([(0, 2), (1, 5)]));
        assert_eq!(behind(ledger.ends(), &BTreeMap::new()), 7);
        assert_eq!(behind(ledger.ends(), &BTreeMap::from([(0, 2), (1, 4)])), 1);
        assert_eq!(behind(ledger.ends(), &BTreeMap::from([(0, 9), (1, 9)])), 0);
    }
}
