//! The likes table: rows that move with a fence, rows read, and the markers beside them.

mod cell;
mod fence;
mod maps;
mod markers;
mod present;
mod remains;
mod rows;

pub use maps::Maps;
pub use markers::Markers;
pub use remains::Remains;
pub use rows::Rows;

use async_trait::async_trait;
use aws_sdk_dynamodb::types::{AttributeValue, Delete, Get, Put, TransactGetItem, TransactWriteItem};
use tally_core::batch::{BatchLimits, Change};
use tally_core::fault::Fault;
use tally_core::fence::{Advance, Commit, Fence, Fences, Partition, Reached};
use tally_core::ids::{CounterId, Lane, LaneCount, ShardCount};
use tally_core::ports::{FencedRows, Outcome};

use self::fence::Moved;
use super::connection::Connection;
use super::fault::{Cancelled, cancelled, cancelled_read, commit, commit_alone, fault, unless_refused};
use super::item::{Item, Reader, item, number, text};
use super::names::{PK, checkpoints, likes};
use super::table_ids::LIKES;

/// The rows and the fences that move with them, to be written.
#[derive(Clone, Debug)]
pub struct Likes {
    connection: Connection,
    shards: ShardCount,
}

impl Likes {
    /// The rows of a deployment whose posts have `shards` row keys each.
    pub fn new(connection: &Connection, shards: ShardCount) -> Self {
        Self { connection: connection.clone(), shards }
    }

    /// How many partitions `topic` had at first, if that was written down; read consistently.
    async fn seen(&self, topic: &str) -> Outcome<Option<u32>> {
        let table = &self.connection.tables.checkpoints;
        let get = self.connection.client.get_item().table_name(table).set_key(Some(fence::topic_key(topic)));
        let reply = get.consistent_read(true).send().await.map_err(|error| fault(table, &error))?;
        reply.item().map(|found| Reader::new(table, found).required_number(checkpoints::PARTITIONS)).transpose()
    }

    /// The fences of so many lanes, of one moment. Where lanes change meanwhile they do not fit, and are read again.
    async fn together(&self, partition: &Partition, lanes: LaneCount) -> Outcome<Fences> {
        let table = &self.connection.tables.checkpoints;
        let get = |lane| {
            let get = Get::builder().table_name(table).set_key(Some(fence::key(partition, lane)));
            TransactGetItem::builder().get(get.build().expect("table and key are set")).build()
        };
        let items = lanes.all().map(get).collect();
        let sent = self.connection.client.transact_get_items().set_transact_items(Some(items)).send().await;
        let reply = sent.map_err(|error| cancelled_read(table, &error))?;
        let mut fences = Vec::with_capacity(lanes.get());
        for (lane, found) in lanes.all().zip(reply.responses()) {
            let Some(found) = found.item() else { break };
            fences.push(fence::decode(&Reader::new(table, found), lane)?);
        }
        match fences.first() {
            Some(first) if first.terms.lanes == lanes => Fences::together(fences)
                .map_err(|torn| Fault::Fatal(format!("table {table}: the fences of {partition}: {torn}"))),
            _ => Err(Fault::Transient(format!("table {table}: the lanes of {partition} changed while they were read"))),
        }
    }

    /// A lane that has nothing to write follows the others: its fence alone, for half of what a transaction costs.
    async fn follow(&self, partition: &Partition, advance: &Advance) -> Commit {
        let table = &self.connection.tables.checkpoints;
        let Moved { update, condition, names, values } = fence::moved(&advance.from, &advance.reached());
        let sent = self
            .connection
            .client
            .update_item()
            .table_name(table)
            .set_key(Some(fence::key(partition, advance.from.lane)))
            .update_expression(update)
            .condition_expression(condition)
            .set_expression_attribute_names(names)
            .set_expression_attribute_values(values)
            .send()
            .await;
        commit_alone(table, sent)
    }

    /// A change of one row: a member's is absolute, a cell's is under a condition of its own.
    fn write(&self, partition: &Partition, advance: &Advance, change: &Change<'_>) -> TransactWriteItem {
        let pk = change.row_key(partition.index, self.shards).to_string();
        let table = &self.connection.tables.likes;
        match change {
            Change::Member { counter, user, present: true, at, region, .. } => {
                let mut row = row_key(pk, text(user.as_str()));
                row.insert(likes::POST_ID.to_owned(), text(counter.post.as_str()));
                row.insert(likes::LIKED_AT.to_owned(), number(at));
                row.extend(region.map(|region| (likes::REGION.to_owned(), text(region.as_str()))));
                let put = Put::builder().table_name(table).set_item(Some(row));
                TransactWriteItem::builder().put(put.build().expect("table and item are set")).build()
            }
            Change::Member { user, present: false, .. } => {
                let delete = Delete::builder().table_name(table).set_key(Some(row_key(pk, text(user.as_str()))));
                TransactWriteItem::builder().delete(delete.build().expect("table and key are set")).build()
            }
            Change::Cell { add, from, .. } => {
                let key = row_key(pk, text(cell::sort(partition)));
                TransactWriteItem::builder().update(cell::add(table, key, *add, *from, advance)).build()
            }
        }
    }
}

fn row_key(pk: String, user: AttributeValue) -> Item {
    item([(PK, AttributeValue::S(pk)), (likes::USER_ID, user)])
}

#[async_trait]
impl FencedRows for Likes {
    async fn fence(&self, partition: &Partition) -> Outcome<Option<Fence>> {
        self.connection.watch.open_to(LIKES)?;
        let table = &self.connection.tables.checkpoints;
        let get = self.connection.client.get_item().table_name(table).set_key(Some(fence::key(partition, Lane::FIRST)));
        let reply = get.consistent_read(true).send().await.map_err(|error| fault(table, &error))?;
        reply.item().map(|found| fence::decode(&Reader::new(table, found), Lane::FIRST)).transpose()
    }

    async fn lanes(&self, partition: &Partition) -> Outcome<Option<Fences>> {
        let Some(first) = self.fence(partition).await? else { return Ok(None) };
        let lanes = first.terms.lanes;
        if lanes == LaneCount::ONE { Ok(Some(first.into())) } else { self.together(partition, lanes).await.map(Some) }
    }

    /// Safe to repeat: put only where nothing stands.
    async fn first_seen(&self, topic: &str, partitions: u32) -> Outcome<u32> {
        if let Some(seen) = self.seen(topic).await? {
            return Ok(seen);
        }
        // A deployment from before this was written down has fences.
        let fences = self.fences(topic).await?;
        let seen = fences.last().map_or(partitions, |(last, _)| last.index + 1);
        let table = &self.connection.tables.checkpoints;
        let put = self.connection.client.put_item().table_name(table).set_item(Some(fence::encode_topic(topic, seen)));
        let sent =
            put.condition_expression("attribute_not_exists(#id)").expression_attribute_names("#id", checkpoints::ID);
        match unless_refused(table, sent.send().await)? {
            Some(_) => Ok(seen),
            None => Ok(self.seen(topic).await?.unwrap_or(seen)),
        }
    }

    /// Safe to repeat: put only where nothing stands.
    async fn create_fence(&self, partition: &Partition, fence: &Fence) -> Outcome<()> {
        self.connection.watch.open_to(LIKES)?;
        let table = &self.connection.tables.checkpoints;
        let put = self.connection.client.put_item().table_name(table).set_item(Some(fence::encode(partition, fence)));
        let sent =
            put.condition_expression("attribute_not_exists(#id)").expression_attribute_names("#id", checkpoints::ID);
        unless_refused(table, sent.send().await).map(|_| ())
    }

    async fn cells(&self, partition: &Partition, counters: &[CounterId]) -> Outcome<Vec<Option<Reached>>> {
        cell::read(&self.connection, partition, counters, self.shards).await
    }

    /// Safe to repeat: the fence's condition holds for one copy. (The token that the SDK gives the attempts of one call ends
    /// after ten minutes; a zombie does not.)
    async fn commit(&self, partition: &Partition, advance: &Advance, changes: &[Change<'_>]) -> Commit {
        if changes.len() > BatchLimits::MAX_ROWS {
            return Commit::Invalid(format!("{} rows in one transaction", changes.len()));
        }
        if let Err(fault) = self.connection.watch.open_to(LIKES) {
            return Commit::Unknown(fault.to_string());
        }
        if changes.is_empty() && advance.from.terms.lanes > LaneCount::ONE {
            return self.follow(partition, advance).await;
        }
        let tables = &self.connection.tables;
        let fence = fence::advance(&tables.checkpoints, partition, &advance.from, &advance.reached());
        let rows = changes.iter().map(|change| self.write(partition, advance, change));
        let items = std::iter::once(TransactWriteItem::builder().update(fence).build()).chain(rows).collect();
        commit(
            &tables.likes,
            self.connection.client.transact_write_items().set_transact_items(Some(items)).send().await,
        )
    }

    async fn fences(&self, topic: &str) -> Outcome<Vec<(Partition, Fence)>> {
        let table = &self.connection.tables.checkpoints;
        let found = super::checkpoints::under(&self.connection, &fence::prefix(topic)).await?;
        let fences = found.iter().map(|(rest, found)| {
            let reader = Reader::new(table, found);
            let place = fence::place(rest);
            let (index, lane) = place.ok_or_else(|| reader.malformed(checkpoints::ID, "no partition's"))?;
            Ok((Partition { topic: topic.into(), index }, fence::decode(&reader, lane)?))
        });
        let mut fences = fences.collect::<Outcome<Vec<_>>>()?;
        fences.sort_by_key(|(partition, fence)| (partition.index, fence.lane));
        Ok(fences)
    }

    /// Safe to repeat: `cfg` moves, so the condition holds once; a repetition after a success answers `false`.
    async fn replace_fences(&self, partition: &Partition, seen: &Fences, to: &Fences) -> Outcome<bool> {
        let table = &self.connection.tables.checkpoints;
        let items = fence::replace(table, partition, seen, &to.raised_above(seen));
        let sent = self.connection.client.transact_write_items().set_transact_items(Some(items)).send().await;
        match sent.map_err(|error| cancelled(table, &error)) {
            Ok(_) => Ok(true),
            Err(Cancelled::Condition) => Ok(false),
            Err(Cancelled::Conflict(fault) | Cancelled::Fault(fault)) => Err(fault),
        }
    }
}
