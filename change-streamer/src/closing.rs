//! The end of a stream shard: its children are known before it is called closed, so that no moment exists at which
//! nothing open stands for the records they already hold.

use std::sync::Arc;
use std::time::Duration;

use tally_core::ids::StreamLabel;
use tally_core::lineage::Listed;
use tally_core::ports::{Checkpoints, Outcome, StreamFault};
use tally_core::time::UnixMillis;
use tally_service::{Patience, Stop, Until};
use tokio::sync::mpsc;
use tokio::time::Instant;

use crate::directory::Directory;
use crate::registry::fault;
use crate::shard::StreamShard;

/// How long children are looked for: a stream that was switched off has none, and a listing may lag behind.
const CHILDREN_PATIENCE: Duration = Duration::from_secs(10);

/// The wait between two looks.
const SPACING: Duration = Duration::from_secs(1);

/// Closes stream shards. Clones are the same.
#[derive(Clone)]
pub(crate) struct Closing {
    pub(crate) directory: Directory,
    pub(crate) checkpoints: Arc<dyn Checkpoints>,
    pub(crate) patience: Patience,
    /// Who wants to know of children.
    pub(crate) born: mpsc::Sender<Born>,
}

/// Shards found at the end of the one they continue.
#[derive(Debug)]
pub(crate) struct Born {
    pub(crate) label: StreamLabel,
    /// None where the parent has no successor that is known.
    pub(crate) children: Vec<Listed>,
}

impl Closing {
    /// Closes `shard`, all of which is applied; everything written before `at` was, when it was still open. Repeating
    /// it is safe. A stop leaves it open: the next worker that reads it finds the same end.
    ///
    /// # Errors
    /// A store that will not go on; [`Stopped`](tally_service::Stopped).
    pub(crate) async fn close(&self, shard: &StreamShard, at: UnixMillis, stop: &Stop) -> anyhow::Result<()> {
        let children = self.children(shard, stop).await?;
        for child in &children {
            let number = || self.checkpoints.number(&shard.label, &child.id, Some(&shard.id), at);
            self.patience.persist("number a stream shard", Until::LastCall(stop), number).await?;
        }
        let close = || self.checkpoints.close(&shard.label, &shard.id, at);
        self.patience.persist("close a stream shard", Until::LastCall(stop), close).await?;
        tracing::info!(stream_shard = %shard.ordinal, children = children.len(), "stream shard closed");
        // Where it is missed, the next listing has the children.
        let _ = self.born.try_send(Born { label: shard.label.clone(), children });
        Ok(())
    }

    async fn children(&self, shard: &StreamShard, stop: &Stop) -> anyhow::Result<Vec<Listed>> {
        let began = Instant::now();
        let mut tries = 0;
        loop {
            match self.look(shard).await {
                Ok(children) if !children.is_empty() => return Ok(children),
                Ok(_) if began.elapsed() >= CHILDREN_PATIENCE => {
                    tracing::warn!(shard = %shard.id, "the stream shard has ended and none continues it");
                    return Ok(Vec::new());
                }
                Ok(_) => stop.unless_requested(self.patience.clock().sleep(SPACING)).await?,
                Err(fault) => {
                    let until = Until::Requested(stop);
                    self.patience.pause("find a stream shard's children", fault, &mut tries, until).await?;
                }
            }
        }
    }

    async fn look(&self, shard: &StreamShard) -> Outcome<Vec<Listed>> {
        match self.directory.children(&shard.label, &shard.id).await {
            // Nothing continues a stream that is no more.
            Err(StreamFault::Gone) => Ok(Vec::new()),
            found => found.map_err(fault),
        }
    }
}
