//! What is done about counters beside likes: they are defined, rows that are not readable come and go, and fences are
//! moved back, by command and by hand.

use std::collections::BTreeSet;

use anyhow::ensure;
use serde_json::{Value, json};
use tally_core::ids::{CounterId, CounterKind, ReservedKey, RowKey};
use tally_core::ports::DeploymentConfig as _;
use tally_core::time::UnixMillis;
use tokio::time::Instant;

use super::super::chance::Draws;
use super::super::events::TOPIC;
use super::super::laws::Place;
use super::super::moves::Move;
use super::super::operator;
use super::{Deed, Driver};
use crate::undisturbed::send;

/// The first partition that a foreign cell names; there is none of so high a number.
const FOREIGN: u32 = 900;

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

/// A fence that was moved back by hand.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Edit {
    partition: u32,
    /// Where it was: an operator's command says that it was there.
    was: u64,
    /// When an operator sees to it.
    due: Instant,
    /// Whether some consumer was seen to stand still for it.
    noticed: bool,
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

    /// Takes away what is not readable, and sees to fences that were moved by hand, as far as that is due.
    pub(crate) async fn tend(&mut self) -> anyhow::Result<()> {
        let now = Instant::now();
        let due = self.garbled.extract_if(.., |garbled| garbled.due <= now).collect::<Vec<_>>();
        for (pk, sort) in due.into_iter().flat_map(|garbled| garbled.rows) {
            let gone = json!({"TableName": "likes", "Key": {"pk": {"S": pk}, "user_id": {"S": sort}}});
            ensure!(send(&self.world.emulator, "DeleteItem", &gone).await, "a foreign row could not be deleted");
        }
        self.adopt_tables().await?;
        self.notice()?;
        for mut edit in std::mem::take(&mut self.edits) {
            let fence = self.world.moves.fence(edit.partition);
            let Some(fence) = fence.filter(|fence| fence.redo < edit.was) else { continue };
            if edit.due <= now {
                operator::move_back(&self.world, &self.profile, &self.other, edit.partition, fence.offset).await;
                edit.due = Instant::now();
            }
            self.edits.push(edit);
        }
        Ok(())
    }

    /// Everything of that is due now.
    pub(crate) fn hurry(&mut self) {
        let now = Instant::now();
        self.garbled.iter_mut().for_each(|garbled| garbled.due = now);
        self.edits.iter_mut().for_each(|edit| edit.due = now);
        self.adopting = self.adopting.map(|_| now);
    }

    /// Whether none of that is left.
    pub(crate) fn is_tended(&self) -> bool {
        self.garbled.is_empty() && self.edits.is_empty() && self.adopting.is_none()
    }

    /// A partition stands still for a cell only after its fence was moved by hand.
    fn notice(&mut self) -> anyhow::Result<()> {
        for partition in self.slots.iter().flat_map(super::Slot::ahead) {
            ensure!(self.edited.contains(&partition), "partition {partition} says that a cell is ahead of its fence");
            for edit in self.edits.iter_mut().filter(|edit| edit.partition == partition && !edit.noticed) {
                edit.noticed = true;
                self.world.coverage.fired("cell_ahead");
            }
        }
        Ok(())
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
                let sort = format!("foreign-{nth}");
                (RowKey::of(&id, &sort, shards), sort)
            }
            CounterKind::Sum => {
                let partition = FOREIGN + nth;
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

    /// A partition whose fence has moved, and that no operator is about to see to.
    fn movable(&self) -> Option<u32> {
        let partition = u32::try_from(self.other.below(self.profile.partitions.into())).unwrap_or(0);
        let edited = self.edits.iter().any(|edit| edit.partition == partition);
        self.world.moves.fence(partition).filter(|fence| !edited && fence.offset > 0).map(|_| partition)
    }

    /// An operator moves a fence back by command.
    pub(super) async fn move_back(&mut self) -> anyhow::Result<bool> {
        let Some(partition) = self.movable() else { return Ok(false) };
        let Some(before) = self.world.moves.fence(partition) else { return Ok(false) };
        let to = self.other.below(before.offset);
        let taken = self.world.moves.len();
        operator::move_back(&self.world, &self.profile, &self.other, partition, to).await;
        let back = |moved: &Move| {
            let went = moved.before.zip(moved.after).is_some_and(|(before, after)| before.offset > after.offset);
            moved.partition == partition && went
        };
        Ok(self.world.moves.behind(taken).iter().any(back))
    }

    /// The same by hand, of which nothing tells the consumers.
    pub(super) async fn edit_fence(&mut self) -> anyhow::Result<bool> {
        let Some(partition) = self.movable() else { return Ok(false) };
        let Some(fence) = self.world.moves.fence(partition) else { return Ok(false) };
        let to = self.other.below(fence.offset);
        let number = |number: u64| -> Value { json!({"N": number.to_string()}) };
        self.world.moves.expect(partition, to);
        let moved = json!({
            "TableName": "checkpoints",
            "Key": {"id": {"S": format!("kafka/{TOPIC}/{partition}")}},
            "UpdateExpression": "SET #o = :to",
            "ConditionExpression": "#o = :seen AND cfg = :cfg",
            "ExpressionAttributeNames": {"#o": "offset"},
            "ExpressionAttributeValues": {":to": number(to), ":seen": number(fence.offset), ":cfg": number(fence.cfg)},
        });
        if !send(&self.world.emulator, "UpdateItem", &moved).await {
            // A process is writing under this fence, or has moved it.
            self.world.moves.expect_no_more();
            return Ok(false);
        }
        let due = Instant::now() + self.other.millis(5_000, 60_000);
        self.edited.insert(partition);
        self.edits.push(Edit { partition, was: fence.offset, due, noticed: false });
        Ok(true)
    }

    /// Rows that no process wrote.
    pub(crate) fn foreign(&self) -> BTreeSet<Place> {
        self.garbled.iter().flat_map(|garbled| garbled.rows.iter().cloned()).collect()
    }

    /// Does one of these deeds.
    pub(super) async fn perform_on_counters(&mut self, deed: Deed) -> anyhow::Result<bool> {
        Ok(match deed {
            Deed::Garble => self.garble().await?,
            Deed::MoveBack => self.move_back().await?,
            Deed::EditFence => self.edit_fence().await?,
            Deed::Spread => self.spread().await?,
            other => self.perform_on_log(other).await?,
        })
    }
}
