//! A set whose members are new ones each time: those that each lane of the load has made and not taken back.

use std::collections::BTreeMap;

use parking_lot::Mutex;
use tally_core::definitions::Direction;

use crate::names::Made;

/// Members of one lane that stand, at most: what is beyond is taken back, so that a load can run for days.
pub(crate) const LIVE: usize = 32;

/// By lane, the members that were acknowledged and not taken back: a member's number, and its post or hashtag. One that is not
/// here has no row.
#[derive(Debug)]
pub(crate) struct Standing(Vec<Mutex<BTreeMap<u64, usize>>>);

impl Standing {
    /// Without any.
    pub(super) fn new(lanes: u32) -> Self {
        Self((0..lanes).map(|_| Mutex::default()).collect())
    }

    pub(super) fn say(&self, subject: usize, made: Made, direction: Direction) {
        let Some(lane) = self.0.get(made.lane as usize) else { return };
        match direction {
            Direction::Add => lane.lock().insert(made.nth, subject),
            Direction::Remove => lane.lock().remove(&made.nth),
        };
    }

    /// Those of a lane that stand, in the order in which they were said: number and subject.
    pub(crate) fn live(&self, lane: u32) -> Vec<(u64, usize)> {
        let lane = self.0.get(lane as usize).map(Mutex::lock);
        lane.map(|live| live.iter().map(|(nth, subject)| (*nth, *subject)).collect()).unwrap_or_default()
    }

    /// Every one that stands, with its subject.
    pub(crate) fn all(&self) -> impl Iterator<Item = (Made, usize)> {
        (0..)
            .zip(&self.0)
            .flat_map(|(lane, _)| self.live(lane).into_iter().map(move |(nth, subject)| (Made { lane, nth }, subject)))
    }

    pub(crate) fn total(&self) -> u64 {
        self.0.iter().map(|lane| lane.lock().len() as u64).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_member_stands_until_it_is_taken_back() {
        let standing = Standing::new(2);
        let of = |lane, nth| Made { lane, nth };
        for (subject, made) in [(4, of(0, 0)), (5, of(1, 0)), (6, of(0, 1))] {
            standing.say(subject, made, Direction::Add);
            standing.say(subject, made, Direction::Add);
        }
        standing.say(4, of(0, 0), Direction::Remove);
        assert_eq!(standing.all().collect::<Vec<_>>(), [(of(0, 1), 6), (of(1, 0), 5)]);
        assert_eq!((standing.total(), standing.live(0)), (2, vec![(1, 6)]));
    }
}
