//! When a partition has to be given back: the process stops, or the partition is no longer ours.

use std::sync::Arc;

use tally_core::consume::Leave;
use tally_core::ports::OwnedPartition;
use tally_core::ports::log::Revocation;
use tally_service::Stop;

/// The reasons to give a partition back, each told once.
pub(super) struct Leaving {
    log: Arc<dyn OwnedPartition>,
    stop: Stop,
    told_stop: bool,
    told_last_call: bool,
    told_revoked: bool,
}

impl Leaving {
    pub(super) fn new(log: Arc<dyn OwnedPartition>, stop: Stop) -> Self {
        Self { log, stop, told_stop: false, told_last_call: false, told_revoked: false }
    }

    /// The next reason that was not told yet. Cancel safe.
    pub(super) async fn next(&mut self) -> Leave {
        tokio::select! {
            biased;
            () = self.stop.last_call(), if !self.told_last_call => {
                self.told_last_call = true;
                Leave::AtOnce
            }
            revocation = self.log.revoked(), if !self.told_revoked => {
                self.told_revoked = true;
                match revocation {
                    Revocation::Revoked => Leave::Revoked,
                    Revocation::Lost => Leave::AtOnce,
                }
            }
            () = self.stop.requested(), if !self.told_stop => {
                self.told_stop = true;
                Leave::Stopping
            }
            else => std::future::pending().await,
        }
    }
}
