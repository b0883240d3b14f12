//! Announces the thresholds of milestones in every partition: they are in force behind the announcement.

use tally_core::changes::Body;
use tally_core::milestone::Ladder;
use tally_service::{Stop, Stopped, Task};
use tokio::sync::watch;

use super::writer::Writing;

/// The task. It says the ladder at first and whenever it was raised; any process does, and what is said again changes nothing.
pub(super) struct Ladders {
    pub(super) writing: Writing,
    pub(super) ladder: watch::Receiver<Ladder>,
}

impl Ladders {
    async fn announce(&mut self) -> Result<(), Stopped> {
        loop {
            let ladder = *self.ladder.borrow_and_update();
            if !ladder.is_empty() {
                self.writing.announce(Body::Ladder(ladder)).await?;
            }
            if self.ladder.changed().await.is_err() {
                // It is not raised any more.
                return std::future::pending().await;
            }
        }
    }
}

impl Task for Ladders {
    async fn run(mut self, stop: Stop) -> anyhow::Result<()> {
        _ = stop.unless_requested(self.announce()).await;
        Ok(())
    }
}
