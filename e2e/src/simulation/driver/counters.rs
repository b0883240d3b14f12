//! What operators and accidents do to counters in the simulation: new counters are defined, rows that cannot be read
//! appear and are removed, and the table of counts is lost and adopted again.

use anyhow::ensure;
use serde_json::json;
use tally_adapters::dynamodb::ensure_tables;
use tally_core::ids::{CounterId, CounterKind, ReservedKey, RowKey};
use tally_core::time::UnixMillis;
use tokio::time::Instant;

use crate::simulation::Draws;
use crate::simulation::driver::Driver;
use crate::simulation::events::TOPIC;
use crate::simulation::registers::{COUNTS, FOREIGN, FOREIGN_CELL};
use crate::simulation::world::World;
use crate::tables::send;

/// The key of a row: its partition key and its sort key.
type Place = (String, String);

/// Unreadable rows under one row key.
#[derive(Clone, Debug)]
pub(crate) struct Garbled {
    pub(crate) key: RowKey,
    pub(crate) rows: Vec<Place>,
    /// When they were added.
    pub(crate) at: UnixMillis,
    /// When they are removed.
    due: Instant,
}

impl Driver {
    /// Defines the counters that are due at `step`, or later if there is no deployment yet.
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

    /// Removes unreadable rows, and does what else an operator has to do.
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

    /// Makes everything due now.
    pub(crate) fn hurry(&mut self) {
        let now = Instant::now();
        self.garbled.iter_mut().for_each(|garbled| garbled.due = now);
        self.forwards.iter_mut().for_each(|forward| forward.due = now);
        self.resumes = self.resumes.map(|_| now);
        self.adopting = self.adopting.map(|_| now);
    }

    /// Whether nothing of that is left to do.
    pub(crate) fn is_tended(&self) -> bool {
        let operator = self.forwards.is_empty() && self.resumes.is_none();
        operator && self.garbled.is_empty() && self.adopting.is_none()
    }

    /// Whether a process has created the deployment. Rows without it belong to a deployment that has lost its configuration.
    pub(super) async fn is_deployed(&self) -> anyhow::Result<bool> {
        Ok(self.world.calmly(self.world.calm.checkpoints.deployed()).await?.is_some())
    }

    /// Adds one or two rows to a counter whose weight cannot be read.
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

    /// Deletes the table, and creates it again at once or a little later, like an operator who hopes that this helps.
    pub(super) async fn lose_table(&mut self) -> anyhow::Result<bool> {
        // Without a deployment, it is not known which tables belong to it.
        let is_new = self.world.calmly(self.world.calm.changes.config()).await?.is_none();
        if self.adopting.is_some() || is_new {
            return Ok(false);
        }
        self.keep().await?;
        let World { emulator, calm, writes, journal, .. } = &*self.world;
        (0..self.world.journal.partitions).for_each(|partition| journal.tear(partition));
        ensure!(send(emulator, "DeleteTable", &json!({"TableName": COUNTS})).await, "the table could not be deleted");
        tokio::time::sleep(self.other.millis(0, 3_000)).await;
        self.world.calmly(ensure_tables(&calm.connection)).await?;
        writes.watch(emulator)?;
        self.adopting = Some(Instant::now() + self.other.millis(2_000, 30_000));
        Ok(true)
    }

    /// The operator adopts the current tables once that is due.
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
