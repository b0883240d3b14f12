//! What the consumer's metrics, log and readiness show of a partition: how far behind it is, and whether it stands
//! still. It is kept from one claim to the next.

use std::time::Duration;

use tally_core::register::{Found, Standstill};
use tally_core::time::UnixMillis;
use tally_core::topic::{Offset, Partition};
use tally_service::metrics::OneMore;

use super::{PARTITION, Shared, condition};
use crate::metrics;

#[derive(Default)]
pub(super) struct Shown {
    /// Counts the partition as `reading`, or as `halted`.
    state: Option<OneMore>,
    /// Why it stands still; `None` once it goes on.
    why: Option<Standstill>,
    /// The store refused something before this offset. Only when that is finished does the partition go on.
    pub(super) refused: Option<Offset>,
    /// Since when a record is known to be unfinished.
    since: Option<UnixMillis>,
    /// The first unfinished record, if `since` is when it was written.
    oldest: Option<Offset>,
}

impl Shown {
    /// Shows that the partition is read and everything before `reached` is finished. It stands still no longer, unless
    /// the store refused something behind that.
    pub(super) fn reads(&mut self, shared: &Shared, partition: &Partition, reached: Offset) {
        if self.refused.is_some_and(|refused| reached < refused) {
            return;
        }
        self.refused = None;
        if self.state.is_none() || self.why.take().is_some() {
            self.state = Some(metrics::PARTITIONS.one_more(&["reading"]));
            shared.host.readiness().forget(&condition(PARTITION, partition));
        }
    }

    /// Shows that the partition stands still. This is an error once for each reason, unless an operator meant it.
    pub(super) fn stands(&mut self, shared: &Shared, partition: &Partition, why: Standstill) {
        if self.why.as_ref() == Some(&why) {
            tracing::debug!(%partition, alarm = why.name(), "still standing still: {why}");
            return;
        }
        if self.why.is_none() {
            self.state = Some(metrics::PARTITIONS.one_more(&["halted"]));
        }
        if !matches!(why, Standstill::Refused(_)) {
            self.refused = None;
        }
        if why == Standstill::Paused {
            tracing::warn!(%partition, alarm = why.name(), "standing still: {why}");
        } else {
            tracing::error!(%partition, alarm = why.name(), "standing still: {why}");
        }
        metrics::ALARMS.counter(&[why.name()]).increment(1);
        shared.host.readiness().not_ready(&condition(PARTITION, partition), why.to_string());
        self.why = Some(why);
    }

    /// Shows that the partition is claimed again: for a moment it is neither read nor stands still.
    pub(super) fn rests(&mut self, shared: &Shared, partition: &Partition) {
        if self.why.is_none() {
            self.state = None;
        }
        if let Some(since) = self.since {
            metrics::lag_seconds(partition.index, shared.claims.time().earliest.since(since));
        }
    }

    /// Shows how many records from `reached` on are not finished. `written` is when the first of them was, if that is
    /// known; otherwise its age begins with the first look at it.
    pub(super) fn lag(
        &mut self,
        partition: &Partition,
        [reached, end]: [Offset; 2],
        written: Option<UnixMillis>,
        now: UnixMillis,
    ) {
        let records = end.0.saturating_sub(reached.0);
        let written = written.filter(|written| *written > UnixMillis(0));
        self.oldest = if written.is_some() { Some(reached) } else { self.oldest.filter(|oldest| *oldest == reached) };
        self.since = if records == 0 { None } else { written.or(self.since).or(Some(now)) };
        metrics::lag(partition.index, records, self.since.map_or(Duration::ZERO, |since| now.since(since)));
    }

    /// Shows how far behind a partition is that stands still. Reads only once when its first record was written.
    pub(super) async fn lag_while_it_stands(&mut self, shared: &Shared, partition: &Partition, found: &Found<'_>) {
        let (reached, log) = (found.finished(), found.log);
        let from = reached.max(log.start);
        let mut written = None;
        if from < log.end && self.oldest != Some(reached) {
            match shared.reader.read(partition, from, log.end).await {
                Ok(records) => written = records.get(0).map(|record| record.at),
                Err(fault) => metrics::kafka_error(&fault),
            }
        }
        self.lag(partition, [reached, log.end], written, shared.claims.time().earliest);
    }
}
