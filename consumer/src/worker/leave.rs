//! When a worker has to go, and how much it may still finish: shutdown and revocation let it drain, a loss and the last
//! call do not.

use std::future::Future;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use futures_util::FutureExt;
use tally_core::ports::OwnedPartition;
use tally_core::ports::log::Over;
use tally_service::Stop;
use tokio::time::Instant;

use super::End;

/// How long a revoked partition may still be drained.
const DRAIN: Duration = Duration::from_secs(5);

/// The two reasons to go: the process stops, or the partition is no longer ours.
pub(super) struct Leave {
    log: Arc<dyn OwnedPartition>,
    stop: Stop,
    /// When the partition was first seen to be asked back.
    revoked: OnceLock<Instant>,
}

impl Leave {
    pub(super) fn new(log: Arc<dyn OwnedPartition>, stop: Stop) -> Self {
        Self { log, stop, revoked: OnceLock::new() }
    }

    /// Completes when nothing new may be begun.
    pub(super) async fn asked(&self) {
        tokio::select! {
            biased;
            () = self.stop.requested() => {}
            _ = self.log.over() => {}
        }
    }

    /// Whether nothing new may be begun.
    pub(super) fn is_asked(&self) -> bool {
        self.asked().now_or_never().is_some()
    }

    /// Completes when also what is under way has to be dropped.
    async fn at_once(&self) {
        tokio::select! {
            biased;
            () = self.stop.last_call() => {}
            over = self.log.over() => if over == Over::Revoked {
                let since = *self.revoked.get_or_init(Instant::now);
                tokio::select! {
                    () = self.stop.last_call() => {}
                    () = tokio::time::sleep_until(since + DRAIN) => {}
                }
            }
        }
    }

    /// What `work` yields, unless the worker is asked to go first: for waiting and reading.
    pub(super) async fn unless_asked<T>(&self, work: impl Future<Output = T> + Send) -> Result<T, End> {
        tokio::select! {
            biased;
            () = self.asked() => Err(End::Leave),
            result = work => Ok(result),
        }
    }

    /// What `work` yields, unless it has to be dropped: for what is under way. Work that is dropped may still happen;
    /// the fence decides about it.
    pub(super) async fn unless_dropped<T>(&self, work: impl Future<Output = T> + Send) -> Result<T, End> {
        tokio::select! {
            biased;
            () = self.at_once() => Err(End::Leave),
            result = work => Ok(result),
        }
    }
}
