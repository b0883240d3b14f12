//! The runner's part of what is kept on a disk: reads stretches where a partition begins, and writes them on a thread of their own.
//! What cannot be written is left out with everything behind it: the next start reads the log for it.

use std::path::Path;
use std::sync::Arc;

use tally_core::ports::OwnedPartition;
use tokio::sync::mpsc;
use tokio::sync::mpsc::error::TrySendError;
use tokio::task::spawn_blocking;

use crate::metrics;
use crate::saved::{About, Disk, Keep, Saved, Stretch};

/// Stretches that wait to be written.
const WAITING: usize = 2;

/// The disk of one partition.
pub(crate) struct Keeper {
    disk: Disk,
    /// `None` once one could not be written.
    writes: Option<mpsc::Sender<Keep>>,
}

impl Keeper {
    /// That of the partition of `log` under `root`, and what it has.
    pub(crate) async fn open(root: &Path, log: &Arc<dyn OwnedPartition>) -> (Self, Option<Saved>) {
        let partition = log.partition();
        let disk = Disk::new(root, &partition.topic, partition.index);
        let (writes, mut written) = mpsc::channel::<Keep>(WAITING);
        let to = disk.clone();
        spawn_blocking(move || {
            while let Some(keep) = written.blocking_recv() {
                let About { from, to: end, .. } = keep.stretch.about;
                if let Err(error) = to.keep(&keep) {
                    metrics::stretch("failed");
                    tracing::warn!(from, to = end, %error, "nothing more of the log is kept: a stretch cannot be written");
                    return;
                }
                metrics::stretch("written");
            }
        });
        let from = disk.clone();
        let saved = spawn_blocking(move || from.saved()).await.unwrap_or_default();
        (Self { disk, writes: Some(writes) }, saved)
    }

    /// Reads a stretch.
    pub(crate) fn load(&self, about: About) -> impl Future<Output = Option<Arc<Stretch>>> + use<> {
        let disk = self.disk.clone();
        async move {
            let read = spawn_blocking(move || disk.stretch(&about)).await.unwrap_or_default();
            metrics::stretch(if read.is_some() { "read" } else { "unfit" });
            read.map(Arc::new)
        }
    }

    /// Has a stretch written, unless one before it is not.
    pub(crate) fn keep(&mut self, keep: Keep) {
        let Some(writes) = &self.writes else { return };
        match writes.try_send(keep) {
            Ok(()) => return,
            Err(TrySendError::Full(_)) => {
                metrics::stretch("failed");
                tracing::warn!("nothing more of the log is kept: the disk is slower than the log is read");
            }
            // The writer has said why.
            Err(TrySendError::Closed(_)) => {}
        }
        self.writes = None;
    }
}
