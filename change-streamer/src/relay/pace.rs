//! How long to wait before the next read: not at all under load, longer and longer while nothing comes.

use std::time::Duration;

/// What the wait after a page with few records is at least, for each stream shard that this process reads. A process that reads
/// a hundred of them would spend more on asking than on what it is told: it asks five hundred times a second.
const EACH: Duration = Duration::from_millis(2);

/// The wait after a page with few records, and the first wait after an empty one.
const BUSY: Duration = Duration::from_millis(25);

/// The pace of one reader.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pace {
    /// The longest wait.
    idle: Duration,
    wait: Duration,
}

impl Pace {
    pub(crate) fn new(idle: Duration) -> Self {
        Self { idle, wait: Duration::ZERO }
    }

    /// The wait before the next read.
    pub(crate) fn wait(&self) -> Duration {
        self.wait
    }

    /// Takes note of a page; `limit` is what was asked for. A page at least half full is one of many. `readers` is how many
    /// stream shards this process reads.
    pub(crate) fn page(&mut self, records: usize, limit: usize, readers: usize) {
        let readers = u32::try_from(readers).unwrap_or(u32::MAX);
        let busy = BUSY.max(EACH.saturating_mul(readers)).min(self.idle);
        self.wait = match records {
            0 => (self.wait * 2).clamp(busy, self.idle),
            few if few * 2 < limit => busy,
            _ => Duration::ZERO,
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const IDLE: Duration = Duration::from_millis(150);

    #[test]
    fn reading_is_immediate_under_load_and_slows_down_to_the_idle_wait() {
        let mut pace = Pace::new(IDLE);
        assert_eq!(pace.wait(), Duration::ZERO, "the first read waits for nothing");
        let mut waits = Vec::new();
        for records in [1000, 500, 3, 0, 0, 0, 0, 1, 1000] {
            pace.page(records, 1000, 4);
            waits.push(pace.wait().as_millis());
        }
        assert_eq!(waits, [0, 0, 25, 50, 100, 150, 150, 25, 0]);
    }

    #[test]
    fn a_process_that_reads_many_stream_shards_asks_each_of_them_less_often() {
        let mut pace = Pace::new(IDLE);
        let mut wait = |records, readers| {
            pace.page(records, 1000, readers);
            pace.wait().as_millis()
        };
        assert_eq!([wait(3, 12), wait(3, 50), wait(0, 50), wait(3, usize::MAX)], [25, 100, 150, 150]);
        assert_eq!(wait(1000, 100), 0, "what waits is read at once");
    }

    #[test]
    fn an_idle_wait_below_the_busy_one_bounds_both() {
        let mut pace = Pace::new(Duration::from_millis(5));
        for records in [0, 1, 0] {
            pace.page(records, 1000, 4);
            assert_eq!(pace.wait(), Duration::from_millis(5));
        }
    }
}
