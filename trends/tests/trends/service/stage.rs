//! What the tests of the service that makes trending lists share: a deployment, a relay that writes likes to the log
//! `changes`, and a reader of the lists that the service publishes.

use std::collections::BTreeMap;

use tally_adapters::dynamodb::Connection;
use tally_adapters::dynamodb::changes::{Changes, Config};
use tally_core::changes::{Body, Entry, Message, Opened, Opening, Section, partition_of};
use tally_core::ids::Sequence;
use tally_core::ports::log::Outgoing;
use tally_core::ports::{Producer, TopicReader};
use tally_core::time::UnixMillis;
use tally_core::topic::TopicId;
use tally_testkit::records;
use tally_trends::{Published, Shelf};

use crate::lists::world::{deployment, entry, shard, side};

pub(crate) const CHANGES: &str = "changes";
pub(crate) const BOARDS: &str = "boards";
pub(crate) const PARTITIONS: u32 = 2;

/// A relay of one stream shard.
pub(crate) struct Relay {
    producer: Box<dyn Producer>,
    written: u64,
    pending: BTreeMap<u32, Vec<Entry>>,
    sent: Option<Sequence>,
}

/// Creates a deployment with a log in this topic.
pub(crate) async fn set_up(connection: &Connection, topic: TopicId) {
    tally_adapters::dynamodb::Checkpoints::new(connection).config(None).await.unwrap();
    let config = Config { deployment: deployment(), partitions: PARTITIONS, topic, generation: 1 };
    Changes::new(connection).begin_log(&config).await.unwrap();
}

impl Relay {
    /// Announces a stream that is as old as its table.
    pub(crate) async fn begin(producer: impl Producer + 'static, now: UnixMillis) -> Self {
        let relay = Self { producer: Box::new(producer), written: 0, pending: BTreeMap::new(), sent: None };
        let shards = vec![Opening { shard: shard(), at: None, fed: now }];
        let body = Body::Opened(Opened { shards, ended: Vec::new() });
        for partition in 0..PARTITIONS {
            relay.write(partition, body.clone(), now).await;
        }
        relay
    }

    /// A like of `subject` now.
    pub(crate) fn like(&mut self, subject: &str, now: UnixMillis) {
        self.written += 1;
        let entry = entry(self.written, subject, [side(None), side(Some(0))], now.0 / 1000);
        let partition = partition_of(&entry.key, PARTITIONS);
        self.pending.entry(partition).or_default().push(entry);
    }

    /// Writes the waiting changes to the log, which is then complete up to now.
    pub(crate) async fn feed(&mut self, now: UnixMillis) {
        let to = (self.written > 0).then(|| self.written.into());
        let back = std::mem::replace(&mut self.sent, to);
        for partition in 0..PARTITIONS {
            let entries = self.pending.remove(&partition).unwrap_or_default();
            let sections = vec![Section { shard: shard(), back, to, fed: Some(now), entries }];
            self.write(partition, Body::Sections { sections, losses: Vec::new() }, now).await;
        }
    }

    async fn write(&self, partition: u32, body: Body, read: UnixMillis) {
        let value = Message { read, body }.write(&deployment());
        let (key, value) = (None, Some(&value[..]));
        let record = Outgoing { topic: CHANGES, partition: Some(partition), key, value, headers: &[] };
        self.producer.send(record).await.unwrap();
    }
}

/// What a reader has after reading the topic to its end.
pub(crate) async fn shelf(reader: &dyn TopicReader) -> Shelf {
    let mut shelf = Shelf::default();
    for (_, run) in records(reader).await.unwrap() {
        for record in run.iter() {
            if let Some(value) = record.value {
                shelf.take(Published::read(record.key.unwrap(), value).unwrap());
            }
        }
    }
    shelf.read_whole();
    shelf.settle();
    shelf
}
