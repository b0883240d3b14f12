use tally_adapters::memory::log::Broker;
use tally_core::definitions::{Definitions, Entry};
use tally_core::event::Rejection;
use tally_core::fence::Partition;
use tally_core::ports::log::Records;
use tally_core::time::UnixMillis;

use super::*;
use crate::letter;

const EVENT: &[u8] = br#"{"post_id":"p","user_id":"u","action":"like","ts":5}"#;

async fn broker(values: &[&[u8]]) -> Broker {
    let broker = Broker::new();
    broker.create_topic("likes", 4);
    broker.create_topic("likes.dlq", 1);
    put_aside(&broker, "likes", values).await;
    broker
}

async fn put_aside(broker: &Broker, topic: &str, values: &[&[u8]]) {
    let from = Partition { topic: topic.into(), index: 2 };
    for (offset, value) in (0..).zip(values) {
        let mut records = Records::default();
        let header = [("trace", Some(&b"t"[..]))];
        records.push(Offset(offset), UnixMillis(0), None, Some(value), header);
        let rejection = Rejection::RefusedByStore("too busy".to_owned());
        letter::write(broker, "likes.dlq", &from, records.get(0).unwrap(), &rejection).await.unwrap();
    }
}

fn replay(broker: &Broker) -> Replay {
    Replay {
        reader: Arc::new(broker.reader("replay", "likes.dlq")),
        producer: Arc::new(broker.clone()),
        topic: "likes".to_owned(),
        definitions: Definitions::likes_alone(),
        wanted: Wanted::default(),
        sums: false,
        dry_run: false,
    }
}

async fn replayed(broker: &Broker) -> Vec<(u32, u64)> {
    let logs = broker.reader("test", "likes").logs().await.unwrap();
    logs.into_iter().map(|(partition, log)| (partition.index, log.end.0 - log.start.0)).collect()
}

#[tokio::test]
async fn a_replay_puts_events_back_under_their_key_and_skips_what_still_is_none() {
    let broker = broker(&[EVENT, b"{", EVENT]).await;
    let done = replay(&broker).run(100).await.unwrap();
    assert_eq!(done, Replayed { sent: 2, skipped: 1, ..Replayed::default() });
    let home = tally_core::event::partition_of(b"p", 4);
    assert!(replayed(&broker).await.iter().all(|(index, count)| *count == if *index == home { 2 } else { 0 }));
    let reader = broker.reader("test", "likes");
    let partition = Partition { topic: "likes".into(), index: home };
    let records = reader.read(&partition, Offset(0), Offset(9)).await.unwrap();
    let first = records.get(0).unwrap();
    assert_eq!((first.key, first.value), (Some(&b"p"[..]), Some(EVENT)));
    let headers: Vec<_> = first.headers().collect();
    assert_eq!(headers, [("trace", Some(&b"t"[..]))], "the reasons for putting it aside are gone");
}

#[tokio::test]
async fn a_replay_is_bounded_and_goes_on_where_it_was() {
    let broker = broker(&[EVENT; 10]).await;
    let replay = replay(&broker);
    assert_eq!(replay.run(4).await.unwrap(), Replayed { sent: 4, ..Replayed::default() });
    assert_eq!(replay.run(100).await.unwrap(), Replayed { sent: 6, ..Replayed::default() });
    assert_eq!(replay.run(100).await.unwrap(), Replayed::default(), "nothing is put back twice");
}

#[tokio::test]
async fn a_dry_run_counts_what_would_be_sent_and_a_replay_then_sends_it() {
    let broker = broker(&[EVENT, b"{", EVENT]).await;
    let dry = Replay { dry_run: true, ..replay(&broker) };
    let would = dry.run(100).await.unwrap();
    assert_eq!(replayed(&broker).await.iter().map(|(_, count)| count).sum::<u64>(), 0);
    assert_eq!(replay(&broker).run(100).await.unwrap(), would);
    assert_eq!(would, Replayed { sent: 2, skipped: 1, ..Replayed::default() });
}

#[tokio::test]
async fn what_adds_to_a_sum_is_put_back_only_where_that_is_asked_for() {
    const VIEW: &[u8] = br#"{"post_id":"p","action":"view"}"#;
    let views = Entry::sum("views", "view", None);
    let definitions = Definitions::new(&[views]).unwrap();
    let broker = broker(&[EVENT, VIEW]).await;
    let careful = Replay { definitions, ..replay(&broker) };
    assert_eq!(careful.run(9).await.unwrap(), Replayed { sent: 1, sums: 1, ..Replayed::default() });
    assert_eq!(replayed(&broker).await.iter().map(|(_, count)| count).sum::<u64>(), 1);
    let asked = Replay { sums: true, ..careful };
    assert_eq!(
        asked.run(9).await.unwrap(),
        Replayed { sent: 1, ..Replayed::default() },
        "it was not passed over for good"
    );
    assert_eq!(replayed(&broker).await.iter().map(|(_, count)| count).sum::<u64>(), 2);
    assert_eq!(asked.run(9).await.unwrap(), Replayed::default());
}

#[tokio::test]
async fn a_letter_of_another_topic_is_not_put_on_this_one() {
    let broker = broker(&[EVENT]).await;
    put_aside(&broker, "dislikes", &[EVENT, EVENT]).await;
    let done = replay(&broker).run(100).await.unwrap();
    assert_eq!(done, Replayed { sent: 1, foreign: 2, ..Replayed::default() });
    assert_eq!(replayed(&broker).await.iter().map(|(_, count)| count).sum::<u64>(), 1);
}

#[tokio::test]
async fn a_letter_is_described_in_one_line_whatever_it_says() {
    let broker = broker(&[b"\n"]).await;
    let reader = broker.reader("test", "likes.dlq");
    let (partition, log) = reader.logs().await.unwrap().remove(0);
    let records = reader.read(&partition, log.start, log.end).await.unwrap();
    let line = serde_json::to_string(&described(&Letter::read(records.get(0).unwrap()))).unwrap();
    assert_eq!(
        line,
        r#"{"topic":"likes","partition":2,"offset":0,"reason":"refused_by_store","message":"refused by the store: too busy"}"#
    );
}

#[tokio::test]
async fn only_the_letters_that_are_meant_are_listed_and_sent_and_nothing_is_written_down_of_them() {
    let broker = broker(&[EVENT, b"not json"]).await;
    let reader = broker.reader("replay", "likes.dlq");
    let meant = |reason: &str, since| Wanted { reason: Some(reason.to_owned()), since, from: None };
    let listed = async |wanted: Wanted| letters(&reader, &wanted, 1).await.unwrap();
    let all = listed(Wanted::default()).await;
    assert_eq!((all.first.len(), all.reasons), (1, [("refused_by_store", 2)].into()));
    assert_eq!(listed(meant("not_json", None)).await, Letters::default());
    assert_eq!(listed(meant("refused_by_store", Some(UnixMillis::MAX))).await, Letters::default());
    let of_record = listed(Wanted { from: Some((2, 1)), ..Wanted::default() }).await;
    assert_eq!(of_record.first.iter().map(|letter| letter.offset).collect::<Vec<_>>(), [Some(1)]);
    let sent = async |wanted: Wanted| Replay { wanted, ..replay(&broker) }.run(9).await.unwrap().sent;
    assert_eq!(sent(meant("not_json", None)).await, 0);
    assert_eq!(unread(&reader).await.unwrap(), 2);
    assert_eq!(sent(meant("refused_by_store", None)).await, 1);
    assert_eq!(unread(&reader).await.unwrap(), 2, "the next replay of all meets them again");
    assert_eq!((sent(Wanted::default()).await, unread(&reader).await.unwrap()), (1, 0));
}
