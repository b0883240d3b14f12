//! The table of counters is lost under running processes, and an operator goes on with another one.

use anyhow::ensure;
use serde_json::json;
use tokio::time::Instant;

use super::super::chance::Draws;
use super::super::world::World;
use super::super::writes::COUNTS;
use super::Driver;
use crate::undisturbed::send;

impl Driver {
    /// The table is deleted, and created anew at once or a little later, as by someone who thinks that this mends it.
    pub(super) async fn lose_table(&mut self) -> anyhow::Result<bool> {
        // Before there is a deployment, nobody knows which tables are its own.
        let is_new = self.world.calmly(self.world.calm.changes.config()).await?.is_none();
        if self.adopting.is_some() || is_new {
            return Ok(false);
        }
        self.keep().await?;
        let World { emulator, calm, writes, journal, .. } = &self.world;
        (0..self.world.partitions()).for_each(|partition| journal.tear(partition));
        ensure!(send(emulator, "DeleteTable", &json!({"TableName": COUNTS})).await, "the table could not be deleted");
        tokio::time::sleep(self.other.millis(0, 3_000)).await;
        self.world.calmly(calm.ensure_tables()).await?;
        writes.watch(emulator)?;
        self.adopting = Some(Instant::now() + self.other.millis(2_000, 30_000));
        Ok(true)
    }

    /// The operator adopts the tables that are there once that is due.
    pub(super) async fn adopt_tables(&mut self) -> anyhow::Result<()> {
        if self.adopting.is_none_or(|due| due > Instant::now()) {
            return Ok(());
        }
        let World { calm, clock, .. } = &self.world;
        let adopted = self.world.calmly(async {
            let seen = calm.checkpoints.seen_tables().await?;
            calm.checkpoints.adopt_tables(&seen, clock.now()).await
        });
        if adopted.await? {
            self.adopting = None;
        }
        Ok(())
    }
}
