//! Reading again and again what a count's trust depends on: the stream shards' `at` first, then the open gaps.
//!
//! The order is the rule. A checkpoint moves past a loss only after its gap was recorded, so a reading that sees the moved
//! `at` sees the gap, too; the other way round it would miss a gap recorded between its two calls.

use super::Reading;
use crate::time::{Now, UnixMillis};

/// The repeated reading. It owns no clock and makes no calls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Readings {
    /// The greatest `as_of` of all readings.
    known: UnixMillis,
    phase: Phase,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
enum Phase {
    #[default]
    Idle,
    /// The stream shards are asked for.
    Shards { began: Now },
    /// The gaps are asked for.
    Gaps { began: Now, as_of: UnixMillis },
}

/// What is told to [`Readings`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Input {
    /// It is time to read again. A reading under way, whose calls failed or took too long, is given up.
    Begin,
    /// The least `at` over the open stream shards; none while one of them has no checkpoint.
    Shards(Option<UnixMillis>),
    /// Whether a loss of stream is open.
    Gaps(bool),
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
                self.phase = Phase::Shards { began: now };
                Some(Effect::ReadShards)
            }
            (Phase::Shards { began }, Input::Shards(as_of)) => {
                // Counters never lose what they had: what was known stays known while a shard has no checkpoint yet.
                let as_of = as_of.unwrap_or_default().max(self.known);
                self.phase = Phase::Gaps { began, as_of };
                Some(Effect::ReadGaps)
            }
            (Phase::Gaps { began, as_of }, Input::Gaps(open_gaps)) => {
                (self.known, self.phase) = (as_of, Phase::Idle);
                Some(Effect::Learnt(Reading { began, as_of, open_gaps }))
            }
            (_, Input::Shards(_) | Input::Gaps(_)) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn at(seconds: u64) -> Now {
        Now { at: Duration::from_secs(seconds), wall: UnixMillis(seconds * 1000) }
    }

    fn read(readings: &mut Readings, began: u64, as_of: Option<u64>) -> Option<Effect> {
        readings.step(at(began), Input::Begin);
        readings.step(at(began + 1), Input::Shards(as_of.map(UnixMillis)));
        readings.step(at(began + 2), Input::Gaps(false))
    }

    #[test]
    fn gaps_are_asked_for_once_the_shards_are_known_and_the_age_counts_from_the_beginning() {
        let mut readings = Readings::default();
        assert_eq!(readings.step(at(1), Input::Begin), Some(Effect::ReadShards));
        assert_eq!(readings.step(at(2), Input::Gaps(false)), None, "not asked for yet");
        assert_eq!(readings.step(at(3), Input::Shards(Some(UnixMillis(9)))), Some(Effect::ReadGaps));
        let reading = Reading { began: at(1), as_of: UnixMillis(9), open_gaps: true };
        assert_eq!(readings.step(at(4), Input::Gaps(true)), Some(Effect::Learnt(reading)));
        assert_eq!(readings.step(at(5), Input::Gaps(false)), None, "answered already");
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
        readings.step(at(2), Input::Shards(Some(UnixMillis(9))));
        let given_up = read(&mut readings, 4, Some(6));
        assert_eq!(given_up, Some(Effect::Learnt(Reading { began: at(4), as_of: UnixMillis(6), open_gaps: false })));
    }
}
