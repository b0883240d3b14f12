use std::future::pending;

use async_trait::async_trait;
use futures_util::FutureExt;
use tally_core::fence::{Partition, TopicId};
use tally_core::ports::log::{Over, Records};

use super::*;

fn fence(offset: u64) -> Fence {
    Fence { offset: Offset(offset), cfg: 0, topic: TopicId("t".into()) }
}

fn log(topic: &str, start: u64, end: u64) -> Log {
    Log { topic: TopicId(topic.into()), start: Offset(start), end: Offset(end) }
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
    progress.reached(&fence(1), None);
    progress.waiting(UnixMillis(9));
    progress.waiting(UnixMillis(7));
    progress.loaded(&fence(1));
    assert_eq!(progress.state().waiting, Some(UnixMillis(7)), "a fence read again has not moved");
    progress.loaded(&fence(2));
    assert_eq!(progress.state().waiting, None);
}

#[test]
fn a_partition_that_reads_nothing_is_behind_and_gets_older() {
    let progress = Progress::default();
    progress.loaded(&fence(3));
    assert_eq!(progress.compare(fence(3), &log("t", 0, 8), UnixMillis(1_000)), (5, Duration::ZERO));
    assert_eq!(progress.compare(fence(3), &log("t", 0, 9), UnixMillis(4_000)), (6, Duration::from_secs(3)));
}

#[test]
fn a_log_that_no_longer_fits_the_fence_is_told_until_the_fence_is_read_again() {
    for misfit in [log("later", 0, 9), log("t", 4, 9), log("t", 0, 2)] {
        let progress = Progress::default();
        progress.loaded(&fence(3));
        progress.compare(fence(3), &log("t", 0, 3), UnixMillis(0));
        assert!(progress.doubted().now_or_never().is_none());
        progress.compare(fence(3), &misfit, UnixMillis(0));
        assert!(progress.doubted().now_or_never().is_some(), "{misfit:?}");
        progress.loaded(&fence(3));
        assert!(progress.doubted().now_or_never().is_none());
    }
}

/// A partition whose broker never answers.
#[derive(Debug)]
struct Unanswered {
    partition: Partition,
    over: watch::Receiver<bool>,
}

#[async_trait]
impl OwnedPartition for Unanswered {
    fn partition(&self) -> &Partition {
        &self.partition
    }
    async fn partitions(&self) -> Outcome<u32> {
        pending().await
    }
    async fn log(&self) -> Outcome<Log> {
        pending().await
    }
    async fn start_at(&self, _offset: Offset) -> Outcome<()> {
        pending().await
    }
    async fn records(&self) -> Outcome<Arc<Records>> {
        pending().await
    }
    async fn over(&self) -> Over {
        self.over.clone().wait_for(|over| *over).await.unwrap();
        Over::Revoked
    }
    fn finished(&self, _offset: Offset) {}
}

#[tokio::test(start_paused = true)]
async fn a_broker_that_does_not_answer_holds_no_partition_back_from_its_handover() {
    let over = watch::Sender::new(false);
    let board = Board::default();
    let owned: Vec<Arc<dyn OwnedPartition>> = (0..2)
        .map(|index| {
            let partition = Partition { topic: "likes".into(), index };
            Arc::new(Unanswered { partition, over: over.subscribe() }) as Arc<dyn OwnedPartition>
        })
        .collect();
    let progress: Vec<_> = owned.iter().map(|log| board.enter(log)).collect();
    progress.iter().for_each(|progress| progress.loaded(&fence(0)));
    let meter = Meter { board, clock: Clock::starting_at(UnixMillis(0)) };
    let mut measuring = std::pin::pin!(meter.measure());
    assert!(measuring.as_mut().now_or_never().is_none(), "it waits for the first");
    assert_eq!(Arc::strong_count(&owned[1]), 1, "and holds no other meanwhile");
    over.send_replace(true);
    tokio::time::timeout(Duration::from_secs(1), measuring).await.expect("it gives up what is asked back");
    assert!(owned.iter().all(|log| Arc::strong_count(log) == 1));
}
