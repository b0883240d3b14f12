//! By how much a reader that has found the tip of its stream shard stays behind the clock with what it claims.

use std::time::Duration;

use tally_core::time::UnixMillis;

/// What is allowed for where records come in time.
const LEAST: Duration = Duration::from_secs(2);

/// How long a late record is remembered.
const MEMORY: Duration = Duration::from_secs(60);

/// How late records reach one reader: the service states their times rounded down to the second.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Margin {
    latest: Duration,
    at: UnixMillis,
}

impl Margin {
    /// A record that was written at `written` was read with a request that began at `asked`, by a reader that was at the tip.
    pub(crate) fn saw(&mut self, written: UnixMillis, asked: UnixMillis) {
        let late = asked.since(written);
        if late >= self.latest || asked.since(self.at) > MEMORY {
            (self.latest, self.at) = (late, asked);
        }
    }

    /// Everything that was written before this time was read by a reader that was at the tip with a request of `asked`.
    pub(crate) fn claim(&self, asked: UnixMillis) -> UnixMillis {
        asked.minus(self.latest.saturating_add(Duration::from_secs(1)).max(LEAST))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_claim_stays_behind_the_clock_by_two_seconds_and_by_more_while_records_come_late() {
        let mut margin = Margin::default();
        let at = |second: u64| UnixMillis(second * 1000);
        assert_eq!(margin.claim(at(10)), at(8));
        margin.saw(at(5), at(10));
        assert_eq!(margin.claim(at(20)), at(14));
        margin.saw(at(20), at(20));
        assert_eq!(margin.claim(at(20)), at(14), "another may come as late");
        margin.saw(at(100), at(100));
        assert_eq!(margin.claim(at(100)), at(98));
    }
}
