//! Tests of `tally dlq replay`, which sends dead letters (records that the consumer could not apply) to their topic
//! again: which ones it sends, and that each record is put back once, however many replays run or are killed.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};

use tally_adapters::memory::log::Broker;
use tally_batch_recount::Calls;
use tally_consumer::letter::{PUT_BACK_FOR, Writer};
use tally_core::definitions::{Definitions, Entry};
use tally_core::event::Rejection;
use tally_core::fault::Fault;
use tally_core::ports::log::{Header, Outgoing, Records};
use tally_core::ports::{Outcome, TopicReader, Transactions};
use tally_core::time::UnixMillis;
use tally_core::topic::{Log, Offset, Partition};
use tally_service::{Chance, Clock, Patience, Switch};
use tally_testkit::{BEGAN, records};

use super::receipts::{receipt, receipt_headers};
use super::replay::Replayed;
use super::*;

const EVENT: &[u8] = br#"{"post_id":"p","user_id":"u","action":"like","ts":5}"#;

async fn broker(values: &[&[u8]]) -> Broker {
    let broker = Broker::new();
    broker.create_topic("likes", 4);
    broker.create_topic("likes.dlq", 1);
    put_aside(&broker, "likes", values).await;
    broker
}

/// How long a replay waits for Kafka.
const BRIEF: std::time::Duration = std::time::Duration::from_secs(60);

const OURS: &str = "arn:ours";

async fn put_aside(broker: &Broker, topic: &str, values: &[&[u8]]) {
    for (offset, value) in (0..).zip(values) {
        letter(broker, Some(OURS), topic, (offset, 50), value).await;
    }
}

/// Writes a dead letter of `deployment` about the record of `topic` that has this offset and was written at this time.
async fn letter(broker: &Broker, deployment: Option<&str>, topic: &str, (offset, at): (u64, u64), value: &[u8]) {
    let from = Partition { topic: topic.into(), index: 2 };
    let mut records = Records::default();
    let header = [("trace", Some(&b"t"[..]))];
    records.push(Offset(offset), UnixMillis(at), None, Some(value), header);
    let rejection = Rejection::RefusedByStore("too busy".to_owned());
    let writer = Writer { producer: broker, topic: "likes.dlq", deployment };
    writer.write(&from, records.get(0).unwrap(), &rejection).await.unwrap();
}

fn replay(broker: &Broker) -> Replay {
    Replay {
        reader: Arc::new(broker.reader("replay", "likes.dlq")),
        transactions: Arc::new(broker.transactions("replay")),
        calls: Calls::new(
            None,
            Patience::new(Clock::starting_at(BEGAN), Chance::seeded(1)).giving_up_after(Some(BRIEF)),
            Switch::new().stop(),
        ),
        deployment: OURS.to_owned(),
        topic: "likes".to_owned(),
        definitions: Definitions::likes_alone(),
        wanted: Wanted::default(),
        sums: false,
        dry_run: false,
    }
}

/// Returns how many records the topic of events has.
async fn replayed(broker: &Broker) -> u64 {
    let logs = broker.reader("test", "likes").logs().await.unwrap();
    logs.iter().map(|(_, log)| log.end.0 - log.start.0).sum()
}

/// Runs a replay of at most 100 letters, and checks what it has done.
async fn does(replay: &Replay, done: Replayed) {
    assert_eq!(replay.run(100).await.unwrap(), done);
}

#[tokio::test]
async fn a_replay_puts_events_back_under_their_key_and_skips_what_still_is_none() {
    let broker = broker(&[EVENT, b"{", EVENT]).await;
    does(&replay(&broker), Replayed { sent: 2, skipped: 1, ..Replayed::default() }).await;
    let reader = broker.reader("test", "likes");
    let partition = Partition { topic: "likes".into(), index: tally_core::event::partition_of(b"p", 4) };
    let records = reader.read(&partition, Offset(0), Offset(9)).await.unwrap();
    assert_eq!((records.len() as u64, replayed(&broker).await), (2, 2), "both are in the partition of their key");
    let first = records.get(0).unwrap();
    assert_eq!((first.key, first.value), (Some(&b"p"[..]), Some(EVENT)));
    let headers: Vec<_> = first.headers().collect();
    // The reasons for putting it aside are gone.
    assert_eq!(headers, [("trace", Some(&b"t"[..])), (PUT_BACK_FOR, Some(OURS.as_bytes()))]);
}

#[tokio::test]
async fn a_replay_is_bounded_and_goes_on_where_it_was() {
    let broker = broker(&[EVENT; 10]).await;
    let replay = replay(&broker);
    assert_eq!(replay.run(4).await.unwrap(), Replayed { sent: 4, is_full: true, ..Replayed::default() });
    does(&replay, Replayed { sent: 6, goes_on: true, ..Replayed::default() }).await;
    does(&replay, Replayed { goes_on: true, ..Replayed::default() }).await;
}

#[tokio::test]
async fn a_bounded_replay_of_some_letters_sends_so_many_however_many_it_passes_over() {
    let broker = broker(&[b"no event", EVENT, EVENT]).await;
    let wanted = Wanted { reason: Some("refused_by_store".to_owned()), ..Wanted::default() };
    let replay = Replay { wanted, ..replay(&broker) };
    for sent in [1, 1, 0] {
        assert_eq!(replay.run(1).await.unwrap().sent, sent);
    }
}

#[tokio::test]
async fn what_adds_to_a_sum_is_put_back_only_where_that_is_asked_for() {
    const VIEW: &[u8] = br#"{"post_id":"p","action":"view"}"#;
    let views = Entry::sum("views", "view", None);
    let definitions = Definitions::new(&[views]).unwrap();
    let broker = broker(&[EVENT, VIEW]).await;
    let careful = Replay { definitions, ..replay(&broker) };
    does(&careful, Replayed { sent: 1, sums: 1, ..Replayed::default() }).await;
    assert_eq!(replayed(&broker).await, 1);
    let asked = Replay { sums: true, ..careful };
    // It was not passed over for good.
    does(&asked, Replayed { sent: 1, goes_on: true, ..Replayed::default() }).await;
    assert_eq!(replayed(&broker).await, 2);
    does(&asked, Replayed { goes_on: true, ..Replayed::default() }).await;
}

#[tokio::test]
async fn a_letter_of_another_deployment_or_topic_is_counted_and_left_alone() {
    let broker = broker(&[EVENT]).await;
    letter(&broker, Some("arn:theirs"), "likes", (0, 50), EVENT).await;
    letter(&broker, None, "likes", (7, 50), EVENT).await;
    let reader = broker.reader("replay", "likes.dlq");
    let found = list(&reader, (OURS, "likes"), &Wanted::default(), 9).await.unwrap();
    assert_eq!(found.letters.iter().map(|letter| letter.offset).collect::<Vec<_>>(), [Some(0), Some(7)]);
    assert_eq!(found.foreign, [("arn:theirs".to_owned(), 1)].into());
    let line = r#"{"topic":"likes","partition":2,"offset":0,"reason":"refused_by_store","message":"refused by the store: too busy"}"#;
    assert_eq!(serde_json::to_string(&found.letters[0]).unwrap(), line);
    assert_eq!(left(&reader, (OURS, "likes"), 99).await.unwrap(), 2);
    put_aside(&broker, "dislikes", &[EVENT]).await;
    // One that names none is ours.
    does(&replay(&broker), Replayed { sent: 2, foreign: 2, ..Replayed::default() }).await;
    let theirs = Replay {
        reader: Arc::new(broker.reader("theirs", "likes.dlq")),
        deployment: "arn:theirs".to_owned(),
        ..replay(&broker)
    };
    // Our receipt does not count for the other deployment.
    does(&theirs, Replayed { sent: 2, foreign: 2, ..Replayed::default() }).await;
}

#[tokio::test]
async fn a_record_with_several_letters_is_put_back_once() {
    let broker = broker(&[EVENT]).await;
    put_aside(&broker, "likes", &[EVENT]).await;
    does(&replay(&broker), Replayed { sent: 1, repeated: 1, ..Replayed::default() }).await;
    // A consumer that was away writes a third letter.
    put_aside(&broker, "likes", &[EVENT]).await;
    does(&replay(&broker), Replayed { repeated: 1, goes_on: true, ..Replayed::default() }).await;
    // The topic was created anew, so its first record is another one.
    letter(&broker, Some(OURS), "likes", (0, 60), EVENT).await;
    does(&replay(&broker), Replayed { sent: 1, goes_on: true, ..Replayed::default() }).await;
}

#[tokio::test]
async fn a_record_that_is_put_aside_again_is_another_one_and_a_replay_ends() {
    let broker = broker(&[EVENT]).await;
    for offset in 1..4 {
        // The consumer refuses the record again, at the offset at which the replay has put it.
        does(&replay(&broker), Replayed { sent: 1, goes_on: offset > 1, ..Replayed::default() }).await;
        letter(&broker, Some(OURS), "likes", (offset, 50), EVENT).await;
    }
    assert_eq!(replayed(&broker).await, 3);
}

/// Writes the letter of the record at offset 9 as older builds did: with all headers of the record.
async fn letter_of_before(broker: &Broker, own: [Header<'_>; 2], value: &[u8]) {
    let why = ["topic", "partition", "offset", "class.name"].map(|name| format!("__connect.errors.{name}"));
    let said = [&b"likes"[..], b"2", b"9", b"not_json"];
    let why = why.iter().zip(said).map(|(name, value)| (name.as_str(), Some(value)));
    let headers: Vec<_> = own.into_iter().chain(why).collect();
    let letter = Outgoing { topic: "likes.dlq", partition: None, key: None, value: Some(value), headers: &headers };
    broker.write(letter, UnixMillis(0)).unwrap();
}

#[tokio::test]
async fn a_letter_is_never_a_receipt_whatever_headers_its_record_had() {
    let broker = broker(&[EVENT]).await;
    let forged = receipt(&[Identity { partition: 2, offset: 0, at: 50 }, Identity { partition: 2, offset: 9, at: 0 }]);
    for value in [&forged[..], b"{", EVENT] {
        letter_of_before(&broker, receipt_headers(OURS, "likes"), value).await;
    }
    let reader = broker.reader("replay", "likes.dlq");
    let found = list(&reader, (OURS, "likes"), &Wanted::default(), 1).await.unwrap();
    assert_eq!((found.letters.len(), found.total, found.put_back), (1, 4, 0));
    assert_eq!(left(&reader, (OURS, "likes"), 99).await.unwrap(), 4);
    does(&replay(&broker), Replayed { sent: 2, skipped: 2, ..Replayed::default() }).await;
    for (_, run) in records(&broker.reader("test", "likes")).await.unwrap() {
        let names = run.iter().flat_map(|record| record.headers().map(|(name, _)| name).collect::<Vec<_>>());
        // The forged headers are not sent.
        assert!(names.into_iter().all(|name| ["trace", PUT_BACK_FOR].contains(&name)));
    }
}

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
async fn letters_are_judged_up_to_a_number_that_other_deployments_do_not_use_up_and_then_records_count() {
    let broker = written().await;
    let reader = broker.reader("replay", "likes.dlq");
    let left = async |deployment, most| left(&reader, (deployment, "likes"), most).await.unwrap();
    assert_eq!((left(OURS, 1).await, left("arn:theirs", 1).await), (4, 0));
    living(&broker, &Life::of(usize::MAX), &Wanted::default()).run(100).await.unwrap();
    assert_eq!(left(OURS, 99).await, 0);
    assert!(left(OURS, 1).await > 0, "the second partition is not read, and what it has counts");
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
