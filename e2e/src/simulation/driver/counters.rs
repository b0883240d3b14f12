//! What is done about counters: they are defined, rows that are not readable come and go, and their table is lost.

use std::time::Duration;

use anyhow::ensure;
use serde_json::json;
use tally_core::ids::{CounterId, CounterKind, ReservedKey, RowKey};
use tally_core::time::UnixMillis;
use tokio::time::Instant;

use crate::simulation::Draws;
use crate::simulation::driver::Driver;
use crate::simulation::events::TOPIC;
use crate::simulation::faults::Deed;
use crate::simulation::registers::{COUNTS, FOREIGN, FOREIGN_CELL};
use crate::simulation::world::World;
use crate::undisturbed::send;

/// Where a row stands: its row key and its sort key.
type Place = (String, String);

/// Rows that no process wrote, under one row key.
#[derive(Clone, Debug)]
pub(crate) struct Garbled {
    pub(crate) key: RowKey,
    pub(crate) rows: Vec<Place>,
    /// When they were put.
    pub(crate) at: UnixMillis,
    /// When they are taken away.
    due: Instant,
}

impl Driver {
    /// Defines what is due at `step`; later, where the deployment is not there yet.
    pub(crate) async fn define(&mut self, step: u64) -> anyhow::Result<()> {
        let Some(grown) = self.profile.mix.due(step, &self.defined) else { return Ok(()) };
        let define = self.world.calm.checkpoints.define(&self.defined, &grown);
        if self.world.calmly(define).await? {
            self.defined = grown;
            self.world.coverage.fired("counters_defined");
            self.world.trace.note("counters_defined");
        }
        Ok(())
    }

    /// Takes away what is not readable, and sees to what else an operator is due to see to.
    pub(crate) async fn tend(&mut self) -> anyhow::Result<()> {
        let now = Instant::now();
        let due = self.garbled.extract_if(.., |garbled| garbled.due <= now).collect::<Vec<_>>();
        for (pk, sort) in due.into_iter().flat_map(|garbled| garbled.rows) {
            let gone = json!({"TableName": "likes", "Key": {"pk": {"S": pk}, "user_id": {"S": sort}}});
            ensure!(send(&self.world.emulator, "DeleteItem", &gone).await, "a foreign row could not be deleted");
        }
        self.adopt_tables().await?;
        self.tend_claims().await?;
        Ok(())
    }

    /// Everything of that is due now.
    pub(crate) fn hurry(&mut self) {
        let now = Instant::now();
        self.garbled.iter_mut().for_each(|garbled| garbled.due = now);
        self.hurry_claims();
        self.adopting = self.adopting.map(|_| now);
    }

    /// Whether none of that is left.
    pub(crate) fn is_tended(&self) -> bool {
        let operator = self.forwards.is_empty() && self.resumes.is_none();
        operator && self.garbled.is_empty() && self.adopting.is_none()
    }

    /// Whether some process has created the deployment. Rows without it are those of one that lost its configuration.
    pub(super) async fn is_deployed(&self) -> anyhow::Result<bool> {
        Ok(self.world.calmly(self.world.calm.checkpoints.deployed()).await?.is_some())
    }

    /// Puts one or two rows beside a counter's, whose weight no process can read.
    pub(super) async fn garble(&mut self) -> anyhow::Result<bool> {
        if !self.is_deployed().await? {
            return Ok(false);
        }
        let ids: Vec<CounterId> = self.profile.counters().collect();
        let id = ids[self.other.place(ids.len())].clone();
        let long = "1".repeat(38);
        let n = match self.other.below(4) {
            0 => json!({"S": "many"}),
            1 => json!({"N": "1.5"}),
            2 => json!({"N": long}),
            _ => json!({"N": "9000000000000000000"}),
        };
        let shards = self.profile.shards;
        let place = |nth: u32| match id.name.kind() {
            CounterKind::Set => {
                let sort = format!("{FOREIGN}{nth}");
                (RowKey::of(&id, &sort, shards), sort)
            }
            CounterKind::Sum => {
                let partition = FOREIGN_CELL + nth;
                let sort = ReservedKey::Cell { topic: TOPIC, partition }.to_string();
                (RowKey::of_cell(&id, partition, shards), sort)
            }
        };
        let taken = |sort: &String| self.garbled.iter().flat_map(|garbled| &garbled.rows).any(|(_, at)| at == sort);
        let mut free = (0..).map(place).filter(|(_, sort)| !taken(sort)).peekable();
        let Some((key, _)) = free.peek().cloned() else { return Ok(false) };
        let rows: Vec<Place> =
            free.filter(|(at, _)| *at == key).map(|(at, sort)| (at.to_string(), sort)).take(2).collect();
        let at = self.world.clock.now();
        for (pk, sort) in &rows {
            let row = json!({"TableName": "likes", "Item": {"pk": {"S": pk}, "user_id": {"S": sort}, "n": &n}});
            ensure!(send(&self.world.emulator, "PutItem", &row).await, "a foreign row could not be put");
        }
        let due = Instant::now() + self.other.millis(1_000, 30_000);
        self.garbled.push(Garbled { key, rows, at, due });
        Ok(true)
    }

    /// Does one of these deeds.
    pub(super) async fn perform_on_counters(&mut self, deed: Deed) -> anyhow::Result<bool> {
        Ok(match deed {
            Deed::WeightUnreadable => self.garble().await?,
            Deed::GroupReset => self.reset_group().await?,
            Deed::GroupResetForward => self.reset_forward().await?,
            Deed::ClaimRaised => self.raise().await?,
            Deed::TopicPaused => self.pause_topic().await?,
            Deed::HoursLongOutage => self.sleep_through(self.other.millis(65 * 60_000, 100 * 60_000)).await?,
            Deed::DayLongOutage => self.sleep_through(Duration::from_secs(25 * 3600)).await?,
            other => self.perform_on_log(other).await?,
        })
    }
}

impl Driver {
    /// The table is deleted, and created anew at once or a little later, as by someone who thinks that this mends it.
    pub(super) async fn lose_table(&mut self) -> anyhow::Result<bool> {
        // Before there is a deployment, nobody knows which tables are its own.
        let is_new = self.world.calmly(self.world.calm.changes.config()).await?.is_none();
        if self.adopting.is_some() || is_new {
            return Ok(false);
        }
        self.keep().await?;
        let World { emulator, calm, writes, journal, .. } = &*self.world;
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
        let World { calm, clock, .. } = &*self.world;
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
