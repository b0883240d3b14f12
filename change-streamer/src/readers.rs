//! The stream shards read by this process: a reader and an applier each.

use std::collections::BTreeMap;
use std::sync::Arc;

use tally_core::ids::{StreamLabel, StreamShardId};
use tally_core::lineage::Checkpoint;
use tally_core::ports::ChangeStream;
use tally_service::{Host, Patience, Stage, Worker};
use tokio::sync::mpsc;

use crate::applier::{Applier, Applying};
use crate::reader::{PollRules, Reader, Source};
use crate::shard::StreamShard;

/// Pages that may wait between a reader and its applier.
const PAGES: usize = 4;

/// Starts and stops readers with their appliers.
pub(crate) struct Readers {
    pub(crate) host: Host,
    pub(crate) stream: Arc<dyn ChangeStream>,
    pub(crate) patience: Patience,
    pub(crate) poll: PollRules,
    pub(crate) applying: Applying,
    pub(crate) running: BTreeMap<StreamShardId, Pair>,
}

/// A stream shard's tasks.
pub(crate) struct Pair {
    reader: Worker,
    applier: Worker,
}

impl Readers {
    /// Starts to read a stream shard behind `checkpoint`.
    pub(crate) fn start(&mut self, label: &StreamLabel, checkpoint: &Checkpoint) {
        let Checkpoint { id, ordinal, .. } = checkpoint;
        let shard = StreamShard { label: label.clone(), id: id.clone(), ordinal: *ordinal };
        let (sender, reads) = mpsc::channel(PAGES);
        let source = Source {
            stream: Arc::clone(&self.stream),
            shard: shard.clone(),
            reports: self.applying.reports.clone(),
            patience: self.patience.clone(),
        };
        let reader = Reader::new(source, checkpoint, self.poll, sender);
        let applier = Applier::new(self.applying.clone(), shard, checkpoint, reads);
        let pair = Pair {
            reader: self.host.worker(Stage::Intake, &format!("read {ordinal}"), reader),
            applier: self.host.worker(Stage::Work, &format!("apply {ordinal}"), applier),
        };
        self.running.insert(id.clone(), pair);
    }

    /// Stops the reader; its applier ends once it has written what was read.
    pub(crate) fn stop(&self, shard: &StreamShardId) {
        if let Some(pair) = self.running.get(shard) {
            pair.reader.request_stop();
        }
    }

    /// The stream shards whose tasks have ended and were not forgotten.
    pub(crate) fn ended(&self) -> Vec<StreamShardId> {
        let has_ended = |pair: &Pair| pair.reader.has_ended() && pair.applier.has_ended();
        self.running.iter().filter(|(_, pair)| has_ended(pair)).map(|(shard, _)| shard.clone()).collect()
    }

    /// Forgets tasks that have ended.
    pub(crate) fn forget(&mut self, shard: &StreamShardId) {
        self.running.remove(shard);
    }
}
