use tally_adapters::memory::log::Broker;
use tally_batch_recount::Calls;
use tally_consumer::letter::{PUT_BACK_FOR, Writer};
use tally_core::definitions::{Definitions, Entry};
use tally_core::event::Rejection;
use tally_core::ports::TopicReader;
use tally_core::ports::log::{Header, Outgoing, Records};
use tally_core::time::UnixMillis;
use tally_core::topic::{Offset, Partition};
use tally_service::{Chance, Clock, Patience, Switch};
use tally_testkit::{BEGAN, records};

use super::receipts::{receipt, receipt_headers};
use super::replay::Replayed;
use super::*;

mod killed;

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
    let found = list(&reader, (OURS, "likes"), &Wanted::default(), 9, 99).await.unwrap();
    assert_eq!(found.letters.iter().map(|letter| letter.offset).collect::<Vec<_>>(), [Some(0), Some(7)]);
    assert_eq!(found.foreign, [("arn:theirs".to_owned(), 1)].into());
    let line = r#"{"topic":"likes","partition":2,"offset":0,"reason":"refused_by_store","message":"refused by the store: too busy"}"#;
    assert_eq!(serde_json::to_string(&found.letters[0]).unwrap(), line);
    assert_eq!(left(&reader, OURS, "likes").await.unwrap(), 2);
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
    let found = list(&reader, (OURS, "likes"), &Wanted::default(), 9, 99).await.unwrap();
    assert_eq!((found.total, found.put_back), (4, 0));
    assert_eq!(left(&reader, OURS, "likes").await.unwrap(), 4);
    does(&replay(&broker), Replayed { sent: 2, skipped: 2, ..Replayed::default() }).await;
    for (_, run) in records(&broker.reader("test", "likes")).await.unwrap() {
        let names = run.iter().flat_map(|record| record.headers().map(|(name, _)| name).collect::<Vec<_>>());
        // The forged headers are not sent.
        assert!(names.into_iter().all(|name| ["trace", PUT_BACK_FOR].contains(&name)));
    }
}
