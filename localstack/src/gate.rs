//! Two wrappers of the local stack's producers. [`Gated`] makes a producer wait at the [`Gate`] while too many bytes of
//! a Kafka partition have not been written to DynamoDB yet: the embedded Kafka drops the oldest records of a partition
//! that is too large, read or not. How far the rows are is read from the positions that the consumer stores
//! ([`follow_claims`]).
//!
//! [`LedgerProducer`] notes views of the load's posts that arrive over HTTP in the load's ledger, which is compared with
//! the tables after a run: a sum in the tables does not tell who added to it.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use parking_lot::{Mutex, MutexGuard};
use tally_core::event::{Deed, decode_value, partition_of};
use tally_core::ports::log::{Outgoing, Written};
use tally_core::ports::{Outcome, Producer};
use tally_core::time::UnixMillis;
use tally_core::topic::Offset;
use tally_service::Stop;
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::counters::{Counted, Counters};
use crate::engine::TOPIC;
use crate::local::Local;
use crate::names::Names;

/// What a record weighs besides its key, value and headers, on the wire and in the broker.
const FRAME: u64 = 100;

/// After so long, a record whose writer has given up is either in the log or lost.
const GIVEN_UP: Duration = Duration::from_secs(60);

/// What is written and not known to be rows, by partition.
#[derive(Debug)]
pub(crate) struct Gate {
    partitions: Vec<Mutex<Occupancy>>,
    room: Notify,
    /// Records that had to wait, so far.
    held: AtomicU64,
}

#[derive(Debug, Default)]
struct Occupancy {
    bytes: u64,
    /// Acknowledged and not known to be rows, in the order of acknowledgement.
    unread: VecDeque<(Offset, u64)>,
    /// Sizes of records whose writers have given up, and when they did.
    given_up: VecDeque<(Instant, u64)>,
    /// Where the next record will be, as far as acknowledgements say.
    end: Offset,
    safe: Offset,
}

impl Gate {
    pub(crate) fn new(partitions: u32) -> Self {
        let partitions = (0..partitions).map(|_| Mutex::default()).collect();
        Self { partitions, room: Notify::new(), held: AtomicU64::new(0) }
    }

    pub(crate) fn partitions(&self) -> u32 {
        u32::try_from(self.partitions.len()).unwrap_or(u32::MAX)
    }

    /// Everything before `safe` in `partition` is a row.
    pub(crate) fn passed(&self, partition: u32, safe: Offset) {
        let Some(mut occupancy) = self.partition(partition) else { return };
        occupancy.safe = occupancy.safe.max(safe);
        let Occupancy { bytes, unread, given_up, .. } = &mut *occupancy;
        // Acknowledgements may overtake each other by a little, so the queue is in order but for its neighbours.
        unread.retain(|(offset, size)| {
            let behind = *offset < safe;
            *bytes -= if behind { *size } else { 0 };
            !behind
        });
        while let Some((_, size)) = given_up.pop_front_if(|(at, _)| at.elapsed() > GIVEN_UP) {
            *bytes -= size;
        }
        drop(occupancy);
        self.room.notify_waiters();
    }

    /// Records that were acknowledged and are not known to be rows.
    pub(crate) fn backlog(&self) -> u64 {
        self.lags().iter().sum()
    }

    /// The same of each partition.
    pub(crate) fn lags(&self) -> Vec<u64> {
        let partitions = self.partitions.iter().map(Mutex::lock);
        partitions.map(|occupancy| occupancy.end.0.saturating_sub(occupancy.safe.0)).collect()
    }

    /// Records that are rows, in all partitions.
    pub(crate) fn applied(&self) -> u64 {
        self.partitions.iter().map(|occupancy| occupancy.lock().safe.0).sum()
    }

    /// Records that had to wait for others to become rows, so far.
    pub(crate) fn held(&self) -> u64 {
        self.held.load(Ordering::Relaxed)
    }

    /// Waits until `size` more bytes of `partition` keep it within `limit`. One record may always be under way.
    async fn admit(&self, partition: u32, size: u64, limit: u64) -> Admitted<'_> {
        let mut waited = false;
        loop {
            let room = self.room.notified();
            if let Some(mut occupancy) = self.partition(partition)
                && (occupancy.bytes == 0 || occupancy.bytes + size <= limit)
            {
                occupancy.bytes += size;
                return Admitted { gate: self, partition, size, acknowledged: None };
            }
            if !std::mem::replace(&mut waited, true) {
                self.held.fetch_add(1, Ordering::Relaxed);
            }
            room.await;
        }
    }

    fn partition(&self, index: u32) -> Option<MutexGuard<'_, Occupancy>> {
        self.partitions.get(index as usize).map(Mutex::lock)
    }
}

/// Bytes that are being written.
struct Admitted<'a> {
    gate: &'a Gate,
    partition: u32,
    size: u64,
    acknowledged: Option<Offset>,
}

impl Drop for Admitted<'_> {
    fn drop(&mut self) {
        let Some(mut occupancy) = self.gate.partition(self.partition) else { return };
        let Some(offset) = self.acknowledged else {
            // It may be in the log or not: it counts until it cannot matter any more.
            return occupancy.given_up.push_back((Instant::now(), self.size));
        };
        occupancy.end = occupancy.end.max(offset.next());
        if offset < occupancy.safe {
            occupancy.bytes -= self.size;
            drop(occupancy);
            self.gate.room.notify_waiters();
        } else {
            occupancy.unread.push_back((offset, self.size));
        }
    }
}

/// A producer that waits at the gate.
pub(crate) struct Gated<P> {
    pub(crate) producer: P,
    pub(crate) gate: Arc<Gate>,
    /// How many bytes of a partition may be unread while this producer still writes to it.
    pub(crate) limit: u64,
}

#[async_trait]
impl<P: Producer> Producer for Gated<P> {
    async fn send(&self, record: Outgoing<'_>) -> Outcome<Written> {
        let key = record.key.unwrap_or_default();
        let partition = record.partition.unwrap_or_else(|| partition_of(key, self.gate.partitions()));
        let headers: usize = record.headers.iter().map(|(name, value)| name.len() + value.map_or(0, <[u8]>::len)).sum();
        let size = FRAME + (key.len() + record.value.map_or(0, <[u8]>::len) + headers) as u64;
        let mut admitted = self.gate.admit(partition, size, self.limit).await;
        let written = self.producer.send(record).await?;
        admitted.partition = written.partition;
        admitted.acknowledged = Some(written.offset);
        Ok(written)
    }
}

/// How often claims are read: twice as often as they are stored.
const EVERY: Duration = Duration::from_millis(500);

/// Follows the claims, for the gate and for the choice of partitions of sums.
pub(crate) async fn follow_claims(local: Arc<Local>, stop: Stop) -> anyhow::Result<()> {
    let Local { engines, gate, sums, clock, .. } = &*local;
    loop {
        // Where they cannot be read now, writers wait until the next look.
        let claims = stop.unless_requested(engines.store.tables.claims.all(TOPIC, gate.partitions())).await?;
        for (index, claim) in (0..).zip(claims.iter().flatten()) {
            if let Some(kept) = &claim.kept {
                gate.passed(index, kept.safe);
            }
        }
        if claims.is_ok() {
            sums.seen(TOPIC, &gate.lags());
        }
        stop.unless_requested(clock.sleep(EVERY)).await?;
    }
}

/// A producer whose views of the load's posts are in the ledger: open until they are acknowledged, also where the caller
/// gives up before.
pub(crate) struct LedgerProducer {
    pub(crate) producer: Arc<dyn Producer>,
    pub(crate) local: Arc<Local>,
}

/// The load's post that a record adds views to, and how many.
fn view(record: &Outgoing<'_>, counters: &Counters, names: &Names) -> Option<(usize, u32)> {
    let views = counters.ours.get(&Counted::Views)?;
    let event = decode_value(record.value, UnixMillis(0), &counters.all).ok()?;
    let Deed::Amount(amount) = event.deed else { return None };
    let post = names.post_index(event.subject())?;
    (event.counter == views.name).then_some((post, u32::try_from(amount).ok()?))
}

#[async_trait]
impl Producer for LedgerProducer {
    async fn send(&self, record: Outgoing<'_>) -> Outcome<Written> {
        let Local { counters, ledger, .. } = &*self.local;
        let Some((post, amount)) = view(&record, counters, &ledger.names) else {
            return self.producer.send(record).await;
        };
        let views = &ledger.views;
        views.unknown(post, amount);
        let written = self.producer.send(record).await?;
        views.settled(post, amount);
        Ok(written)
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;
    use tally_core::fault::Fault;

    use crate::counters::tests::all;

    use super::*;

    /// Acknowledges everything at the next offset, or nothing.
    struct Acknowledging(Mutex<Option<u64>>);

    #[async_trait]
    impl Producer for Acknowledging {
        async fn send(&self, _: Outgoing<'_>) -> Outcome<Written> {
            let mut next = self.0.lock();
            let offset = next.as_mut().ok_or_else(|| Fault::Transient("away".to_owned()))?;
            *offset += 1;
            Ok(Written { partition: 0, offset: Offset(*offset - 1) })
        }
    }

    fn gated(next: Option<u64>) -> Gated<Acknowledging> {
        Gated { producer: Acknowledging(Mutex::new(next)), gate: Arc::new(Gate::new(1)), limit: 1_000 }
    }

    fn record() -> Outgoing<'static> {
        Outgoing { topic: "likes", partition: None, key: Some(b"p"), value: Some(&[7; 299]), headers: &[] }
    }

    #[tokio::test(start_paused = true)]
    async fn a_writer_waits_until_rows_have_made_room() {
        let gated = gated(Some(0));
        for _ in 0..2 {
            gated.send(record()).await.unwrap();
        }
        assert_eq!(gated.gate.backlog(), 2);
        let mut third = gated.send(record());
        assert!(third.as_mut().now_or_never().is_none(), "400 bytes each, 1,000 at most");
        assert_eq!((gated.gate.held(), gated.gate.applied()), (1, 0));
        gated.gate.passed(0, Offset(1));
        assert_eq!(third.await.unwrap().offset, Offset(2));
        assert_eq!((gated.gate.held(), gated.gate.applied()), (1, 1));
        gated.gate.passed(0, Offset(3));
        assert_eq!((gated.gate.backlog(), gated.gate.partitions[0].lock().bytes), (0, 0));
    }

    #[tokio::test(start_paused = true)]
    async fn a_record_of_unknown_outcome_counts_until_it_cannot_be_under_way() {
        let gated = gated(None);
        for _ in 0..2 {
            assert!(gated.send(record()).await.is_err());
        }
        assert!(gated.send(record()).now_or_never().is_none());
        tokio::time::advance(GIVEN_UP + Duration::from_secs(1)).await;
        gated.gate.passed(0, Offset(0));
        assert!(gated.send(record()).now_or_never().is_some());
    }

    #[tokio::test]
    async fn rows_that_were_faster_than_the_acknowledgement_leave_nothing_behind() {
        let gated = gated(Some(0));
        gated.gate.passed(0, Offset(1));
        gated.send(record()).await.unwrap();
        assert_eq!((gated.gate.backlog(), gated.gate.partitions[0].lock().bytes), (0, 0));
    }

    #[test]
    fn only_views_of_the_loads_posts_are_heard() {
        let (counters, names) = (all(), Names::new(3, 1, 1, None));
        for (value, heard) in [
            (r#"{"post_id":"post-2","action":"view","n":7}"#, Some((1, 7))),
            (r#"{"post_id":"post-2","action":"view"}"#, Some((1, 1))),
            (r#"{"post_id":"post-4","action":"view","n":7}"#, None),
            (r#"{"post_id":"post-2","user_id":"u","action":"like"}"#, None),
            (r#"{"post_id":"post-2","action":"view","n":0}"#, None),
            ("view", None),
        ] {
            let value = Some(value.as_bytes());
            let record = Outgoing { topic: "likes", partition: None, key: None, value, headers: &[] };
            assert_eq!(view(&record, &counters, &names), heard);
        }
    }
}
