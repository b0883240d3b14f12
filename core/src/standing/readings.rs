//! Reading again and again what a count's trust depends on: how far the counters are, and the open gaps.
//!
//! One read has both where streamers say how far the counters are. Where they do not, the stream shards' `at` is read first,
//! then the gaps. The order is the rule. A checkpoint moves past a loss only after its gap was recorded, so a reading that
//! sees the moved `at` sees the gap, too; the other way round it would miss a gap recorded between its two calls. A streamer
//! says what it has read of `at` later still, so that is true of what it said.

use std::time::Duration;

use super::Reading;
use crate::ports::Told;
use crate::time::{Now, UnixMillis};

/// Where it was not said again for so long how far the counters are, no streamer runs that says it.
const FRESH: Duration = Duration::from_secs(30);

/// The last change of how often it had been said.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Heard {
    times: u64,
    at: Duration,
}

/// The repeated reading. It owns no clock and makes no calls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Readings {
    /// The greatest `as_of` of all readings.
    known: UnixMillis,
    heard: Option<Heard>,
    phase: Phase,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
enum Phase {
    #[default]
    Idle,
    /// The gaps are asked for, with what is said beside them.
    Told { began: Now },
    /// The stream shards are asked for.
    Shards { began: Now },
    /// The gaps are asked for, behind the stream shards.
    Gaps { began: Now, as_of: UnixMillis },
}

/// What is told to [`Readings`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Input {
    /// It is time to read again. A reading under way, whose calls failed or took too long, is given up.
    Begin,
    /// The least `at` over the open stream shards; none while one of them has no checkpoint.
    Shards(Option<UnixMillis>),
    /// Whether a loss of stream is open, and how far the counters are, where that is said beside it.
    Gaps {
        /// A loss is open.
        open: bool,
        /// What streamers said last.
        told: Option<Told>,
    },
}

/// What [`Readings`] asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Read the stream shards.
    ReadShards,
    /// Read the open gaps.
    ReadGaps,
    /// The reading is complete: judge by it from now on.
    Learnt(Reading),
}

impl Readings {
    /// The effect of `input`, if it has one. An answer that was not asked for has none.
    pub fn step(&mut self, now: Now, input: Input) -> Option<Effect> {
        match (self.phase, input) {
            (_, Input::Begin) => {
                self.phase = Phase::Told { began: now };
                Some(Effect::ReadGaps)
            }
            (Phase::Told { began }, Input::Gaps { open, told }) => {
                let Some(told) = told.filter(|told| self.is_fresh(*told, now)) else {
                    self.phase = Phase::Shards { began };
                    return Some(Effect::ReadShards);
                };
                Some(self.learnt(began, told.as_of, open))
            }
            (Phase::Shards { began }, Input::Shards(as_of)) => {
                self.phase = Phase::Gaps { began, as_of: as_of.unwrap_or_default() };
                Some(Effect::ReadGaps)
            }
            (Phase::Gaps { began, as_of }, Input::Gaps { open, told }) => {
                Some(self.learnt(began, told.map_or(as_of, |told| told.as_of.max(as_of)), open))
            }
            (_, Input::Shards(_) | Input::Gaps { .. }) => None,
        }
    }

    /// Whether streamers go on saying it. A process that has just begun goes by what was said.
    fn is_fresh(&mut self, told: Told, now: Now) -> bool {
        let Some(heard) = self.heard.filter(|heard| heard.times == told.times) else {
            let is_first = self.heard.replace(Heard { times: told.times, at: now.at }).is_none();
            return !is_first || now.wall.since(told.as_of) <= FRESH;
        };
        now.at.saturating_sub(heard.at) <= FRESH
    }

    fn learnt(&mut self, began: Now, as_of: UnixMillis, open_gaps: bool) -> Effect {
        // Counters never lose what they had: what was known stays known while a shard has no checkpoint yet.
        (self.known, self.phase) = (as_of.max(self.known), Phase::Idle);
        Effect::Learnt(Reading { began, as_of: self.known, open_gaps })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Now {
        Now { at: Duration::from_secs(seconds), wall: UnixMillis(seconds * 1000) }
    }

    fn said(as_of: u64, times: u64) -> Option<Told> {
        Some(Told { as_of: UnixMillis(as_of), times })
    }

    const NOTHING_TOLD: Input = Input::Gaps { open: false, told: None };

    fn read(readings: &mut Readings, began: u64, as_of: Option<u64>) -> Option<Effect> {
        readings.step(at(began), Input::Begin);
        readings.step(at(began), NOTHING_TOLD);
        readings.step(at(began + 1), Input::Shards(as_of.map(UnixMillis)));
        readings.step(at(began + 2), NOTHING_TOLD)
    }

    #[test]
    fn one_read_is_enough_where_it_was_said_how_far_the_counters_are() {
        let mut readings = Readings::default();
        assert_eq!(readings.step(at(100), Input::Begin), Some(Effect::ReadGaps));
        let told = Input::Gaps { open: true, told: said(99_000, 1) };
        let reading = Reading { began: at(100), as_of: UnixMillis(99_000), open_gaps: true };
        assert_eq!(readings.step(at(101), told), Some(Effect::Learnt(reading)));
        assert_eq!(readings.step(at(102), told), None, "answered already");
        // It may have been said late.
        readings.step(at(102), Input::Begin);
        let earlier = Input::Gaps { open: false, told: said(98_000, 2) };
        let reading = Reading { began: at(102), as_of: UnixMillis(99_000), open_gaps: false };
        assert_eq!(readings.step(at(102), earlier), Some(Effect::Learnt(reading)));
    }

    #[test]
    fn what_is_said_no_more_is_looked_for_in_the_shards_and_the_gaps_behind_them() {
        let mut readings = Readings::default();
        let told = |open| Input::Gaps { open, told: said(60_000, 7) };
        let asked_for = |readings: &mut Readings, seconds| {
            readings.step(at(seconds), Input::Begin);
            readings.step(at(seconds), told(false)).unwrap()
        };
        assert_eq!(asked_for(&mut readings, 100), Effect::ReadShards, "a process that begins goes by how old it is");
        assert!(matches!(asked_for(&mut readings, 130), Effect::Learnt(_)), "it may be said again any moment");
        assert_eq!(asked_for(&mut readings, 131), Effect::ReadShards);
        assert_eq!(readings.step(at(132), told(false)), None, "not asked for yet");
        assert_eq!(readings.step(at(133), Input::Shards(Some(UnixMillis(90_000)))), Some(Effect::ReadGaps));
        let reading = Reading { began: at(131), as_of: UnixMillis(90_000), open_gaps: true };
        assert_eq!(readings.step(at(134), told(true)), Some(Effect::Learnt(reading)));
        assert_eq!(readings.step(at(135), told(false)), None, "answered already");
    }

    #[test]
    fn the_same_said_again_is_no_reason_to_read_the_shards() {
        let mut readings = Readings::default();
        for (times, seconds) in [(1, 60), (2, 80), (3, 200), (4, 900)] {
            readings.step(at(seconds), Input::Begin);
            let told = Input::Gaps { open: false, told: said(60_000, times) };
            let reading = Reading { began: at(seconds), as_of: UnixMillis(60_000), open_gaps: false };
            assert_eq!(readings.step(at(seconds), told), Some(Effect::Learnt(reading)), "a stream shard stands still");
        }
    }

    #[test]
    fn as_of_never_goes_back_and_is_kept_while_a_shard_has_no_checkpoint() {
        let mut readings = Readings::default();
        for (began, read_as_of, as_of) in [(1, Some(5), 5), (10, None, 5), (20, Some(3), 5), (30, Some(8), 8)] {
            let reading = Reading { began: at(began), as_of: UnixMillis(as_of), open_gaps: false };
            assert_eq!(read(&mut readings, began, read_as_of), Some(Effect::Learnt(reading)));
        }
    }

    #[test]
    fn a_reading_that_begins_gives_up_the_one_under_way() {
        let mut readings = Readings::default();
        readings.step(at(1), Input::Begin);
        readings.step(at(1), NOTHING_TOLD);
        readings.step(at(2), Input::Shards(Some(UnixMillis(9))));
        let given_up = read(&mut readings, 4, Some(6));
        assert_eq!(given_up, Some(Effect::Learnt(Reading { began: at(4), as_of: UnixMillis(6), open_gaps: false })));
    }
}
