use std::future::pending;

use async_trait::async_trait;
use futures_util::FutureExt;
use tally_core::fault::Fault;
use tally_core::fence::{Partition, TopicId};
use tally_core::ports::log::{Records, Revocation};
use tokio::sync::watch;

use super::*;

fn fence(offset: u64) -> Fence {
    Fence::new(Offset(offset), 0, TopicId("t".into()))
}

#[test]
fn lag_is_counted_to_the_end_of_the_log_and_timed_by_the_oldest_record_not_written() {
    let now = UnixMillis(10_000);
    let lag = |fence, end, waiting| lag(Offset(fence), Offset(end), waiting, now);
    assert_eq!(lag(5, 5, None), (0, Duration::ZERO));
    assert_eq!(lag(5, 9, Some(UnixMillis(4_000))), (4, Duration::from_secs(6)));
    assert_eq!(lag(5, 5, Some(UnixMillis(4_000))), (0, Duration::ZERO), "written since");
    assert_eq!(lag(5, 3, None).0, 0, "a log that lost its tail is an alarm, not a lag");
}

#[test]
fn the_oldest_waiting_record_stands_until_the_fence_moves() {
    let progress = Progress::default();
    progress.reached(&fence(1), Offset(1), None);
    progress.waiting(UnixMillis(9));
    progress.waiting(UnixMillis(7));
    progress.loaded(&fence(1).into());
    assert_eq!(progress.state().waiting, Some(UnixMillis(7)), "a fence read again has not moved");
    progress.loaded(&fence(2).into());
    assert_eq!(progress.state().waiting, None);
}

fn look(fence_at: u64, end: u64) -> Look {
    let log = Log { topic: TopicId("t".into()), start: Offset(0), end: Offset(end) };
    Look { fence: fence(fence_at), furthest: Offset(fence_at), log, partitions: 1 }
}

#[test]
fn a_partition_that_reads_nothing_is_behind_and_gets_older() {
    let progress = Progress::default();
    progress.loaded(&fence(3).into());
    assert_eq!(progress.look(look(3, 8), UnixMillis(1_000)), (5, Duration::ZERO));
    assert_eq!(progress.look(look(3, 9), UnixMillis(4_000)), (6, Duration::from_secs(3)));
}

#[test]
fn the_worker_gets_the_last_look_once_and_none_from_before_the_fence_was_read() {
    let progress = Progress::default();
    progress.loaded(&fence(3).into());
    progress.look(look(3, 8), UnixMillis(0));
    progress.look(look(3, 9), UnixMillis(0));
    assert_eq!(progress.looked().now_or_never(), Some(look(3, 9)));
    assert_eq!(progress.looked().now_or_never(), None);
    progress.look(look(3, 9), UnixMillis(0));
    progress.loaded(&fence(4).into());
    assert_eq!(progress.looked().now_or_never(), None);
}

/// A partition whose broker never answers, or with a fault alone.
#[derive(Debug)]
struct Unanswered {
    partition: Partition,
    revoked: watch::Receiver<bool>,
    fault: Option<Fault>,
}

#[async_trait]
impl OwnedPartition for Unanswered {
    fn partition(&self) -> &Partition {
        &self.partition
    }
    async fn partitions(&self) -> Outcome<u32> {
        match &self.fault {
            Some(fault) => Err(fault.clone()),
            None => pending().await,
        }
    }
    async fn log(&self) -> Outcome<Log> {
        pending().await
    }
    async fn committed(&self) -> Outcome<Option<Offset>> {
        pending().await
    }
    async fn start_at(&self, _offset: Offset) -> Outcome<()> {
        pending().await
    }
    async fn records(&self) -> Outcome<Arc<Records>> {
        pending().await
    }
    async fn revoked(&self) -> Revocation {
        self.revoked.clone().wait_for(|revoked| *revoked).await.unwrap();
        Revocation::Revoked
    }
    fn finished(&self, _offset: Offset) {}
}

#[tokio::test(start_paused = true)]
async fn a_broker_that_does_not_answer_delays_no_handover() {
    let revoked = watch::Sender::new(false);
    let board = Board::default();
    let owned: Vec<Arc<dyn OwnedPartition>> = (0..2)
        .map(|index| {
            let partition = Partition { topic: "likes".into(), index };
            Arc::new(Unanswered { partition, revoked: revoked.subscribe(), fault: None }) as Arc<dyn OwnedPartition>
        })
        .collect();
    let progress: Vec<_> = owned.iter().map(|log| board.enter(log)).collect();
    progress.iter().for_each(|progress| progress.loaded(&fence(0).into()));
    let meter = Meter { board, clock: Clock::starting_at(UnixMillis(0)) };
    let mut measuring = std::pin::pin!(meter.measure());
    assert!(measuring.as_mut().now_or_never().is_none(), "it waits for the first");
    assert_eq!(Arc::strong_count(&owned[1]), 1, "and holds no other meanwhile");
    revoked.send_replace(true);
    tokio::time::timeout(Duration::from_secs(1), measuring).await.expect("it lets go of what is revoked");
    assert!(owned.iter().all(|log| Arc::strong_count(log) == 1));
}

#[tokio::test(start_paused = true)]
async fn a_look_that_fails_is_counted_since_lag_stays_as_it_was() {
    let exposition = tally_service::metrics::install();
    let revoked = watch::Sender::new(false);
    let partition = Partition { topic: "likes".into(), index: 0 };
    let fault = Some(Fault::Throttled("busy".to_owned()));
    let log: Arc<dyn OwnedPartition> = Arc::new(Unanswered { partition, revoked: revoked.subscribe(), fault });
    let board = Board::default();
    board.enter(&log).loaded(&fence(0).into());
    Meter { board, clock: Clock::starting_at(UnixMillis(0)) }.measure().await;
    let rendered = exposition.render();
    assert!(rendered.contains(r#"tally_consumer_kafka_errors_total{class="throttled"} 1"#), "{rendered}");
}
