//! The stream shards read by this process: a reader and an applier each, and a recorder where changes are recorded.

use std::collections::BTreeMap;
use std::sync::Arc;

use tally_core::ids::{StreamLabel, StreamShardId};
use tally_core::ledger::Fed;
use tally_core::lineage::Checkpoint;
use tally_core::ports::ChangeStream;
use tally_service::{Host, Patience, Stage, Worker};
use tokio::sync::mpsc;

use crate::applier::{Applier, Applying};
use crate::reader::{Outputs, PollRules, Reader, Source};
use crate::recorder::{Recorder, Recording};
use crate::shard::StreamShard;

/// Pages that may wait between a reader and its applier.
const PAGES: usize = 4;

/// Starts and stops readers with what is behind them.
pub(crate) struct Readers {
    pub(crate) host: Host,
    pub(crate) stream: Arc<dyn ChangeStream>,
    pub(crate) patience: Patience,
    pub(crate) poll: PollRules,
    pub(crate) applying: Applying,
    /// Where the deployment has a ledger of changes.
    pub(crate) recording: Option<Recording>,
    pub(crate) running: BTreeMap<StreamShardId, Tasks>,
}

/// A stream shard's tasks.
pub(crate) struct Tasks {
    reader: Worker,
    /// `None` where all of the stream shard is in the counters.
    applier: Option<Worker>,
    /// `None` where there is no ledger of changes.
    recorder: Option<Worker>,
}

impl Readers {
    /// Starts to read a stream shard behind `checkpoint`, or behind what of it is `fed`.
    pub(crate) fn start(&mut self, label: &StreamLabel, checkpoint: &Checkpoint, fed: Fed) {
        let Checkpoint { id, ordinal, .. } = checkpoint;
        let shard = StreamShard { label: label.clone(), id: id.clone(), ordinal: *ordinal };
        let mut outputs = Outputs { applier: None, recorder: None, applied: checkpoint.sequence };
        let applier = (!checkpoint.closed).then(|| {
            let (sender, reads) = mpsc::channel(PAGES);
            outputs.applier = Some(sender);
            let applier = Applier::new(self.applying.clone(), shard.clone(), checkpoint, reads);
            self.host.worker(Stage::Work, &format!("apply {ordinal}"), applier)
        });
        let recorder = self.recording.clone().map(|recording| {
            let (sender, reads) = mpsc::channel(PAGES);
            outputs.recorder = Some((sender, fed));
            let recorder = Recorder::new(recording, shard.clone(), fed, reads);
            self.host.worker(Stage::Work, &format!("record {ordinal}"), recorder)
        });
        let source = Source {
            stream: Arc::clone(&self.stream),
            shard,
            reports: self.applying.reports.clone(),
            patience: self.patience.clone(),
        };
        let reader = Reader::new(source, checkpoint, self.poll, outputs);
        let reader = self.host.worker(Stage::Intake, &format!("read {ordinal}"), reader);
        self.running.insert(id.clone(), Tasks { reader, applier, recorder });
    }

    /// Stops the reader; its applier ends once it has written what was read.
    pub(crate) fn stop(&self, shard: &StreamShardId) {
        if let Some(tasks) = self.running.get(shard) {
            tasks.reader.request_stop();
        }
    }

    /// The stream shards whose tasks have ended and were not forgotten.
    pub(crate) fn ended(&self) -> Vec<StreamShardId> {
        let has_ended = |tasks: &Tasks| {
            let behind = [&tasks.applier, &tasks.recorder].into_iter().flatten();
            tasks.reader.has_ended() && behind.into_iter().all(Worker::has_ended)
        };
        self.running.iter().filter(|(_, tasks)| has_ended(tasks)).map(|(shard, _)| shard.clone()).collect()
    }

    /// Forgets tasks that have ended.
    pub(crate) fn forget(&mut self, shard: &StreamShardId) {
        self.running.remove(shard);
    }
}
