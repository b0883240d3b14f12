//! Replays of dead letters that are killed at each step, or lose Kafka's coordinator: each record is put back once.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};

use tally_core::fault::Fault;
use tally_core::ports::log::Records;
use tally_core::ports::{Outcome, Transactions};
use tally_core::topic::Log;

use super::*;

/// How many calls to Kafka a replay makes before it is killed.
#[derive(Clone)]
struct Life {
    calls: Arc<AtomicUsize>,
    /// If set, it is not killed: this many calls find no coordinator, and the next ones find one again.
    away: Option<Arc<AtomicUsize>>,
}

impl Life {
    fn of(calls: usize) -> Self {
        Self { calls: Arc::new(AtomicUsize::new(calls)), away: None }
    }

    /// Counts a step. Fails if the replay is dead, or finds no coordinator.
    fn live(&self) -> Outcome<()> {
        let has_more = |of: &AtomicUsize| {
            of.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)).is_ok()
        };
        match &self.away {
            _ if has_more(&self.calls) => Ok(()),
            None => Err(Fault::Fatal("killed".to_owned())),
            Some(away) if has_more(away) => Err(Fault::Transient("no coordinator".to_owned())),
            Some(_) => Ok(()),
        }
    }
}

/// A port of a replay that fails before a call, or after it and before the answer.
struct Mortal<T> {
    life: Life,
    of: T,
}

impl<T> Mortal<T> {
    async fn call<R>(&self, call: impl Future<Output = Outcome<R>>) -> Outcome<R> {
        self.life.live()?;
        let answer = call.await?;
        self.life.live()?;
        Ok(answer)
    }
}

#[async_trait::async_trait]
impl<T: Transactions> Transactions for Mortal<T> {
    async fn take_over(&self) -> Outcome<()> {
        self.call(self.of.take_over()).await
    }

    async fn write(&self, records: &[Outgoing<'_>]) -> Outcome<()> {
        self.call(self.of.write(records)).await
    }
}

#[async_trait::async_trait]
impl<T: TopicReader> TopicReader for Mortal<T> {
    async fn logs(&self) -> Outcome<Vec<(Partition, Log)>> {
        self.call(self.of.logs()).await
    }

    async fn read(&self, partition: &Partition, from: Offset, to: Offset) -> Outcome<Records> {
        self.call(self.of.read(partition, from, to)).await
    }

    async fn offset_at(&self, partition: &Partition, at: UnixMillis) -> Outcome<Option<Offset>> {
        self.call(self.of.offset_at(partition, at)).await
    }

    async fn bookmark(&self, partition: &Partition) -> Outcome<Option<Offset>> {
        self.call(self.of.bookmark(partition)).await
    }

    async fn mark(&self, partition: &Partition, at: Offset) -> Outcome<()> {
        self.call(self.of.mark(partition, at)).await
    }
}

const VIEWS: [&[u8]; 3] = [
    br#"{"post_id":"a","action":"view"}"#,
    br#"{"post_id":"b","action":"view"}"#,
    br#"{"post_id":"c","action":"view"}"#,
];

/// Sets up a replay that sends sums, too, and lives for `life`.
fn living(broker: &Broker, life: &Life, wanted: &Wanted) -> Replay {
    let definitions = Definitions::new(&[Entry::sum("views", "view", None)]).unwrap();
    let reader = broker.reader("replay", "likes.dlq");
    Replay {
        reader: Arc::new(Mortal { life: life.clone(), of: reader }),
        transactions: Arc::new(Mortal { life: life.clone(), of: broker.transactions("replay") }),
        definitions,
        wanted: wanted.clone(),
        sums: true,
        ..replay(broker)
    }
}

/// Returns how often each value was put back.
async fn put_back(broker: &Broker) -> BTreeMap<String, usize> {
    let mut found = BTreeMap::new();
    for (_, run) in records(&broker.reader("test", "likes")).await.unwrap() {
        for record in run.iter() {
            *found.entry(String::from_utf8_lossy(record.value.unwrap()).into_owned()).or_default() += 1;
        }
    }
    found
}

/// Creates a broker with two letters about the first record and one about each other, in two partitions.
async fn written() -> Broker {
    let broker = Broker::new();
    broker.create_topic("likes", 4);
    broker.create_topic("likes.dlq", 2);
    put_aside(&broker, "likes", &VIEWS).await;
    // A consumer that was killed wrote a letter, and its successor wrote it again: without a key, so to any partition.
    let reader = broker.reader("test", "likes.dlq");
    let first = Partition { topic: "likes.dlq".into(), index: 0 };
    let records = reader.read(&first, Offset(0), Offset(1)).await.unwrap();
    let headers: Vec<_> = records.get(0).unwrap().headers().collect();
    let again =
        Outgoing { topic: "likes.dlq", partition: Some(1), key: None, value: Some(VIEWS[0]), headers: &headers };
    broker.write(again, UnixMillis(0)).unwrap();
    broker
}

#[tokio::test]
async fn each_record_of_a_sum_is_put_back_once_whichever_replays_are_killed_and_wherever() {
    let once: BTreeMap<String, usize> =
        VIEWS.iter().map(|view| (String::from_utf8_lossy(view).into_owned(), 1)).collect();
    let all = Wanted::default();
    let some = Wanted { reason: Some("refused_by_store".to_owned()), ..Wanted::default() };
    let mut killed = 0;
    // How many calls the first replay lives for, how many letters each reads at most, and which letters the two send.
    for (calls, limit) in (0..60).flat_map(|calls| [1, 2, 100].map(|limit| (calls, limit))) {
        for (first, second) in [(&all, &all), (&some, &all), (&all, &some)] {
            let broker = written().await;
            killed += usize::from(living(&broker, &Life::of(calls), first).run(limit).await.is_err());
            // The second may be killed as well.
            killed += usize::from(living(&broker, &Life::of(calls / 2), second).run(limit).await.is_err());
            living(&broker, &Life::of(usize::MAX), second).run(100).await.unwrap();
            living(&broker, &Life::of(usize::MAX), &all).run(100).await.unwrap();
            assert_eq!(put_back(&broker).await, once, "{calls} calls, {limit} letters, {first:?}, {second:?}");
            let done = living(&broker, &Life::of(usize::MAX), &some).run(100).await.unwrap();
            assert_eq!((done.sent, done.repeated), (0, 4), "nothing is left, and nothing is lost");
        }
    }
    assert!(killed > 100, "{killed} replays were killed");
}

#[tokio::test(start_paused = true)]
async fn a_replay_waits_for_a_coordinator_at_each_of_its_steps_and_puts_each_record_back_once() {
    for (calls, away) in (0..60).flat_map(|calls| [1, 2, 7].map(|away| (calls, away))) {
        let broker = written().await;
        let life = Life { away: Some(Arc::new(AtomicUsize::new(away))), ..Life::of(calls) };
        let done = living(&broker, &life, &Wanted::default()).run(100).await.unwrap();
        assert_eq!((done.sent, done.repeated), (3, 1), "{calls} calls, then {away} without an answer");
        assert!(
            put_back(&broker).await.values().all(|count| *count == 1),
            "{calls} calls, then {away} without an answer"
        );
    }
    let life = Life { away: Some(Arc::new(AtomicUsize::new(usize::MAX))), ..Life::of(3) };
    let gave_up = living(&written().await, &life, &Wanted::default()).run(100).await.unwrap_err();
    assert!(format!("{gave_up:#}").contains("given up after 60s, which --patience sets"), "{gave_up:#}");
}
