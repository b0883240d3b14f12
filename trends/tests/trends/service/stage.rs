//! What both kinds of tests share: what a streamer stores of its ledger, and messages of it.

use tally_core::event::partition_of;
use tally_core::ids::{Ordinal, StreamLabel, StreamShardId};
use tally_core::ports::log::Outgoing;
use tally_core::ports::{ChangeStream, Checkpoints, Producer};
use tally_core::time::UnixMillis;
use tally_trends::{Published, Shelf};

pub(crate) const CHANGES: &str = "changes";
pub(crate) const BOARDS: &str = "boards";
pub(crate) const PARTITIONS: u32 = 2;

/// A streamer, as far as its ledger goes.
pub(crate) struct Ledger<'a> {
    pub(crate) checkpoints: &'a dyn Checkpoints,
    pub(crate) producer: &'a dyn Producer,
    pub(crate) label: StreamLabel,
    pub(crate) shards: Vec<StreamShardId>,
    partitions: u32,
    written: u64,
}

impl<'a> Ledger<'a> {
    /// Begins it.
    pub(crate) async fn begin(
        checkpoints: &'a dyn Checkpoints,
        stream: &dyn ChangeStream,
        producer: &'a dyn Producer,
        partitions: u32,
    ) -> Self {
        checkpoints.config(None).await.unwrap();
        let label = stream.info().await.unwrap().label;
        let mut shards = Vec::new();
        for shard in stream.shards(&label).await.unwrap() {
            checkpoints.number(&label, &shard.id, shard.parent.as_ref(), UnixMillis(0)).await.unwrap();
            shards.push(shard.id);
        }
        checkpoints.begin_changes(partitions, Ordinal(0)).await.unwrap();
        checkpoints.changes_complete(UnixMillis(0)).await.unwrap();
        Self { checkpoints, producer, label, shards, partitions, written: 0 }
    }

    /// A like of `subject` in a second.
    pub(crate) async fn like(&mut self, subject: &str, second: u64) {
        self.change(subject, [0, 1], second).await;
    }

    /// What a row of `subject` weighs before and after a second.
    pub(crate) async fn change(&mut self, subject: &str, [before, after]: [i64; 2], second: u64) {
        self.written += 1;
        let value = format!(
            r#"{{"v":1,"g":1,"changes":[["{subject}","likes",null,{before},null,{after},{second},"{:040}"]]}}"#,
            self.written
        );
        self.write(partition_of(subject.as_bytes(), self.partitions), &value).await;
    }

    pub(crate) async fn write(&self, partition: u32, value: &str) {
        let (key, value) = (None, Some(value.as_bytes()));
        let record = Outgoing { topic: CHANGES, partition: Some(partition), key, value, headers: &[] };
        self.producer.send(record).await.unwrap();
    }

    /// Everything written before `at` is in the log.
    pub(crate) async fn fed(&self, at: UnixMillis) {
        for shard in &self.shards {
            self.checkpoints.fed_at(&self.label, shard, at).await.unwrap();
        }
    }
}

/// What a reader of the topic has.
pub(crate) async fn shelf(reader: &dyn tally_core::ports::TopicReader) -> Shelf {
    let mut shelf = Shelf::default();
    for (partition, log) in reader.logs().await.unwrap() {
        let mut from = log.start;
        loop {
            let records = reader.read(&partition, from, log.end).await.unwrap();
            let Some(last) = records.last_offset() else { break };
            for record in records.iter() {
                if let Some(value) = record.value {
                    shelf.take(Published::read(record.key.unwrap(), value).unwrap());
                }
            }
            from = last.next();
        }
    }
    shelf.read_whole();
    shelf.settle();
    shelf
}
