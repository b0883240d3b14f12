//! Measures how late the records of the likes table's stream come. By this, a reader at the newest record stays behind
//! the clock when it claims to have read everything.
//!
//! A stream promises no delay, so an empty page says nothing of what was just written. So readers claim no time later
//! than the newest record that any reader of the process has seen. While nothing else is written, [`write_canaries`]
//! writes *canaries*: rows that count for nothing and say when they were written.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tally_adapters::dynamodb::changes::Changes;
use tally_core::relay::Canary;
use tally_core::time::UnixMillis;
use tally_service::{Chance, Clock, Stop};

/// How far a claim stays behind at least, even if records come in time and in order.
const LEAST: Duration = Duration::from_secs(2);

/// How long a late record is remembered.
const MEMORY: Duration = Duration::from_secs(60);

/// How long a canary that was seen counts as read by this process: stream shards split, and change their readers.
const HERE: Duration = Duration::from_secs(3);

/// A process in which no reader has asked for this long has none. The longest wait between two reads is 10 s.
const SILENCE: Duration = Duration::from_secs(30);

/// What the readers of a process have seen. Clones share it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Lateness(Arc<Mutex<Seen>>);

#[derive(Debug, Default)]
struct Seen {
    /// The longest delay of a record, and when that was read. The service states its times rounded down to the second.
    latest: Duration,
    at: UnixMillis,
    /// When the newest record that was seen was written, and the newest row.
    newest: UnixMillis,
    newest_row: UnixMillis,
    /// When a reader last asked for records.
    asked: UnixMillis,
    /// The row of the canary that was seen last, and when it was asked for.
    canary: Option<(u16, UnixMillis)>,
}

impl Lateness {
    /// Takes note that a reader asked for records.
    pub(crate) fn asked(&self, at: UnixMillis) {
        let mut seen = self.0.lock();
        seen.asked = seen.asked.max(at);
    }

    /// Returns whether this process reads any stream shard.
    pub(crate) fn is_reading(&self, now: UnixMillis) -> bool {
        now.since(self.0.lock().asked) <= SILENCE
    }

    /// Takes note of a row that was read and was written at `written`.
    pub(crate) fn saw_row(&self, written: UnixMillis) {
        let mut seen = self.0.lock();
        seen.newest_row = seen.newest_row.max(written);
        seen.newest = seen.newest.max(written);
    }

    /// Takes note of a canary that was read with a request that began at `asked`.
    pub(crate) fn saw_canary(&self, canary: Canary, asked: UnixMillis) {
        let mut seen = self.0.lock();
        seen.newest = seen.newest.max(canary.at);
        seen.canary = Some((canary.row, asked));
    }

    /// Takes note of how late a record was, written at `written` and read at the tip with a request that began at
    /// `asked`.
    pub(crate) fn was(&self, written: UnixMillis, asked: UnixMillis) {
        let (late, mut seen) = (asked.since(written), self.0.lock());
        if late >= seen.latest || asked.since(seen.at) > MEMORY {
            (seen.latest, seen.at) = (late, asked);
        }
    }

    /// Returns the time before which everything was read by a reader near the newest record whose request at `asked`
    /// found nothing.
    pub(crate) fn claim(&self, asked: UnixMillis) -> UnixMillis {
        let seen = self.0.lock();
        asked.minus(seen.latest.saturating_add(Duration::from_secs(1)).max(LEAST)).min(seen.newest)
    }

    /// Returns when the newest row that was seen was written.
    pub(crate) fn newest_row(&self) -> UnixMillis {
        self.0.lock().newest_row
    }

    /// Returns the row of a canary that a reader of this process reads.
    pub(crate) fn canary(&self, now: UnixMillis) -> Option<u16> {
        self.0.lock().canary.filter(|(_, asked)| now.since(*asked) <= HERE).map(|(row, _)| row)
    }
}

/// Returns the time before which everything was read by a reader whose last record was written at `written`: a stream
/// shard is in order, more or less.
pub(crate) fn in_order(written: UnixMillis) -> UnixMillis {
    written.minus(LEAST)
}

/// The wait between two canaries.
const EVERY: Duration = Duration::from_secs(1);
/// No canary is needed while a row was written so lately.
const RECENT: Duration = Duration::from_millis(1500);
/// How many canaries are written at once while it is not known which of their rows this process reads.
const TRIES: usize = 4;

/// Writes canaries, again and again, while no row shows how late the stream is.
pub(super) async fn write_canaries(
    store: Arc<Changes>,
    lateness: Lateness,
    clock: Clock,
    chance: Chance,
    stop: Stop,
) -> anyhow::Result<()> {
    let next = async || {
        write_due(&store, &lateness, clock.now(), &chance).await;
        clock.sleep(EVERY).await;
    };
    while stop.unless_requested(next()).await.is_ok() {}
    Ok(())
}

async fn write_due(store: &Changes, lateness: &Lateness, at: UnixMillis, chance: &Chance) {
    if !lateness.is_reading(at) || at.since(lateness.newest_row()) <= RECENT {
        return;
    }
    let any = || u16::try_from(chance.token() % u64::from(Canary::ROWS)).unwrap_or(0);
    let rows = lateness.canary(at).map_or_else(|| (0..TRIES).map(|_| any()).collect(), |row| vec![row]);
    let writes = rows.into_iter().map(|row| store.write_canary(Canary { row, at }));
    for outcome in futures_util::future::join_all(writes).await {
        if let Err(fault) = outcome {
            tracing::warn!(%fault, "a canary was not written: without one, nothing is claimed of an idle table");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: u64) -> UnixMillis {
        UnixMillis(second * 1000)
    }

    #[test]
    fn a_claim_stays_behind_the_clock_by_two_seconds_and_by_more_while_records_come_late() {
        let lateness = Lateness::default();
        lateness.saw_row(at(1000));
        assert_eq!(lateness.claim(at(10)), at(8));
        lateness.was(at(5), at(10));
        assert_eq!(lateness.claim(at(20)), at(14));
        lateness.was(at(20), at(20));
        assert_eq!(lateness.claim(at(20)), at(14), "another may come as late");
        lateness.was(at(100), at(100));
        assert_eq!(lateness.claim(at(100)), at(98));
    }

    #[test]
    fn nothing_is_claimed_of_a_time_of_which_no_record_was_seen() {
        let lateness = Lateness::default();
        assert_eq!(lateness.claim(at(10)), at(0));
        let other = lateness.clone();
        other.saw_canary(Canary { row: 4, at: at(9) }, at(10));
        assert_eq!((lateness.claim(at(10)), lateness.claim(at(70))), (at(8), at(9)));
        assert_eq!((lateness.canary(at(13)), lateness.canary(at(14))), (Some(4), None), "it may be read elsewhere now");
        assert_eq!(lateness.newest_row(), at(0));
        lateness.asked(at(40));
        assert_eq!((lateness.is_reading(at(70)), lateness.is_reading(at(71))), (true, false));
        lateness.saw_row(at(60));
        assert_eq!((lateness.claim(at(70)), lateness.newest_row()), (at(60), at(60)));
    }
}
