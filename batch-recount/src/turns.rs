//! Whose turn it is to close a window: each closing marker makes the change-streamer cut a flush of one stream shard, and
//! many at once would hold up what is written meanwhile.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tally_service::Clock;

/// Between two closing markers of one process in one stream shard, on average.
const BETWEEN: Duration = Duration::from_millis(50);

/// The turns of one process.
#[derive(Debug)]
pub(crate) struct Turns {
    clock: Clock,
    /// When the next window may close.
    next: Mutex<Duration>,
}

impl Turns {
    /// The first turn is now.
    pub(crate) fn new(clock: Clock) -> Self {
        Self { clock, next: Mutex::default() }
    }

    /// Takes the next turn where so many stream shards are open, and says when it is.
    pub(crate) fn take(&self, open: usize) -> Duration {
        let between = BETWEEN / u32::try_from(open.max(1)).unwrap_or(u32::MAX);
        let mut next = self.next.lock().unwrap_or_else(PoisonError::into_inner);
        let turn = (*next).max(self.clock.reading().at);
        *next = turn + between;
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
        let take = || turns.take(1);
        assert_eq!([take(), take(), take()], [Duration::ZERO, BETWEEN, BETWEEN * 2]);
        clock.sleep(Duration::from_secs(9)).await;
        let later = Duration::from_secs(9);
        assert_eq!([take(), turns.take(5), take()], [later, later + BETWEEN, later + BETWEEN + BETWEEN / 5]);
    }
}
