//! Whose turn it is to close a window: each closing marker makes the change-streamer cut a flush of one stream shard, and
//! many at once would hold up what is written meanwhile.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tally_core::ids::Ordinal;
use tally_service::Clock;

/// Between two closing markers of one process in one stream shard.
const BETWEEN: Duration = Duration::from_millis(50);

/// The turns of one process.
#[derive(Debug)]
pub(crate) struct Turns {
    clock: Clock,
    /// When the next window may close, by the stream shard that fed the row key last.
    next: Mutex<BTreeMap<Option<Ordinal>, Duration>>,
}

impl Turns {
    /// The first turn is now.
    pub(crate) fn new(clock: Clock) -> Self {
        Self { clock, next: Mutex::default() }
    }

    /// Takes the next turn of row keys fed by `feeder`, and says when it is.
    pub(crate) fn take(&self, feeder: Option<Ordinal>) -> Duration {
        let mut next = self.next.lock().unwrap_or_else(PoisonError::into_inner);
        let next = next.entry(feeder).or_default();
        let turn = (*next).max(self.clock.reading().at);
        *next = turn + BETWEEN;
        turn
    }
}

#[cfg(test)]
mod tests {
    use tally_core::time::UnixMillis;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn turns_are_apart_and_one_that_nothing_waited_for_is_not_made_up_for() {
        let clock = Clock::starting_at(UnixMillis(0));
        let turns = Turns::new(clock);
        let take = || turns.take(Some(Ordinal(1)));
        assert_eq!([take(), take(), take()], [Duration::ZERO, BETWEEN, BETWEEN * 2]);
        clock.sleep(Duration::from_secs(9)).await;
        let later = Duration::from_secs(9);
        assert_eq!([take(), turns.take(None), take()], [later, later, later + BETWEEN]);
    }
}
