//! The checkpoints table: the registry of stream shards, how far each is applied and how far it is in the ledger of
//! changes, leases, open gaps, and what the deployment was created with.

mod anew;
mod changes;
mod definitions;
mod deployment;
mod gaps;
mod rebuild;
mod registry;
mod shard;

pub use anew::Configuration;
pub use rebuild::Rebuilding;

use async_trait::async_trait;
use aws_sdk_dynamodb::operation::update_item::builders::UpdateItemFluentBuilder;
use aws_sdk_dynamodb::types::ReturnValue;
use tally_core::fault::Fault;
use tally_core::ids::{Ordinal, Sequence, StreamLabel, StreamShardId};
use tally_core::lineage::Loss;
use tally_core::ports::{
    Gap, Gaps, Lease, LeaseTaken, Leases, Outcome, Positions, RecountQueue as _, Registry, ShardState, Standing,
    StreamRegistry, Worker,
};
use tally_core::time::UnixMillis;

use super::connection::Connection;
use super::expression::Aliases;
use super::fault::{fault, unless_refused};
use super::item::{Item, Reader, flag, item, text};
use super::names::checkpoints::{AT, BEAT, CLOSED, ID, ORDINAL, OWNER, SEQUENCE};
use super::recounts::Recounts;

/// The checkpoints table, and the queue of audits beside it.
#[derive(Clone, Debug)]
pub struct Checkpoints {
    connection: Connection,
}

impl Checkpoints {
    /// The checkpoints of a deployment.
    pub fn new(connection: &Connection) -> Self {
        Self { connection: connection.clone() }
    }

    fn table(&self) -> &str {
        &self.connection.tables.checkpoints
    }

    /// The item `id`, read consistently.
    async fn get(&self, id: &str) -> Outcome<Option<Item>> {
        let get = self.connection.client.get_item().table_name(self.table()).set_key(Some(key(id)));
        let reply = get.consistent_read(true).send().await.map_err(|error| fault(self.table(), &error))?;
        Ok(reply.item)
    }

    fn update(&self, id: &str) -> UpdateItemFluentBuilder {
        self.connection.client.update_item().table_name(self.table()).set_key(Some(key(id)))
    }

    /// Updates the item `id` under a condition. Safe to repeat wherever carrying it out makes the condition false, or
    /// leaves the item as it is.
    async fn update_if(&self, id: &str, say: Aliases, update: String, condition: String) -> Outcome<Option<Item>> {
        let (names, values) = say.finish();
        let sent = self
            .update(id)
            .update_expression(update)
            .condition_expression(condition)
            .set_expression_attribute_names(names)
            .set_expression_attribute_values(values)
            .return_values(ReturnValue::AllNew)
            .send()
            .await;
        let reply = unless_refused(self.table(), sent)?;
        Ok(reply.map(|reply| reply.attributes.unwrap_or_default()))
    }

    /// After a refusal that is fine if the shard has a checkpoint, and a mistake if it has none.
    async fn require(&self, label: &StreamLabel, shard: &StreamShardId) -> Outcome<()> {
        self.required(&shard::id(label, shard)).await.map(|_| ())
    }

    async fn required(&self, id: &str) -> Outcome<Item> {
        let found = self.get(id).await?;
        found.ok_or_else(|| Fault::Fatal(format!("{}: {id} has no checkpoint", self.table())))
    }
}

fn key(id: &str) -> Item {
    item([(ID, text(id))])
}

/// Every item whose id begins with `prefix`, with the rest of its id. Reads the whole table, which is small: a fence
/// per Kafka partition and a checkpoint per stream shard of the last days.
pub(super) async fn under(connection: &Connection, prefix: &str) -> Outcome<Vec<(String, Item)>> {
    let table = &connection.tables.checkpoints;
    let mut found = Vec::new();
    let mut start = None;
    loop {
        let scan = connection
            .client
            .scan()
            .table_name(table)
            .filter_expression("begins_with(#id,:prefix)")
            .expression_attribute_names("#id", ID)
            .expression_attribute_values(":prefix", text(prefix))
            .set_exclusive_start_key(start)
            .consistent_read(true);
        let reply = scan.send().await.map_err(|error| fault(table, &error))?;
        for item in reply.items.unwrap_or_default() {
            let id = Reader::new(table, &item).required_text(ID)?;
            found.push((id.strip_prefix(prefix).unwrap_or(id).to_owned(), item));
        }
        start = reply.last_evaluated_key;
        if start.is_none() {
            return Ok(found);
        }
    }
}

#[async_trait]
impl StreamRegistry for Checkpoints {
    async fn registry(&self, label: &StreamLabel) -> Outcome<Option<Registry>> {
        let found = self.get(&registry::id(label)).await?;
        found.map(|item| registry::decode(&Reader::new(self.table(), &item))).transpose()
    }

    /// Safe to repeat: the checkpoint is looked for first, and put only where there is none.
    async fn number(
        &self,
        label: &StreamLabel,
        shard: &StreamShardId,
        parent: Option<&StreamShardId>,
        at: UnixMillis,
    ) -> Outcome<Ordinal> {
        let id = shard::id(label, shard);
        for _ in 0..registry::ATTEMPTS {
            if let Some(item) = self.get(&id).await? {
                return Ok(Ordinal(Reader::new(self.table(), &item).required_number(ORDINAL)?));
            }
            let (registry, begins) = match self.registry(label).await? {
                Some(registry) => (registry, None),
                None => {
                    let earlier = self.latest_before(label).await?;
                    (Registry::after(earlier.as_ref().map(|(_, registry)| registry.next)), Some(earlier))
                }
            };
            if let Some(given) = self.give(label, &shard::new(&id, parent, at), registry, begins).await? {
                return Ok(given);
            }
        }
        Err(Fault::Transient(format!("{}: too many workers number the shards of {label}", self.table())))
    }

    async fn raise_floor(&self, label: &StreamLabel, floor: Ordinal) -> Outcome<()> {
        self.raise(label, floor).await
    }
}

#[async_trait]
impl Positions for Checkpoints {
    async fn shards(&self, label: &StreamLabel) -> Outcome<Vec<ShardState>> {
        let found = under(&self.connection, &shard::prefix(label)).await?;
        let states = found.iter().map(|(id, item)| shard::decode(id, &Reader::new(self.table(), item)));
        let mut states = states.collect::<Outcome<Vec<_>>>()?;
        states.sort_by_key(|state| state.checkpoint.ordinal);
        Ok(states)
    }

    /// Safe to repeat: the checkpoint moves forward only.
    async fn advance(
        &self,
        label: &StreamLabel,
        shard: &StreamShardId,
        sequence: Sequence,
        at: UnixMillis,
    ) -> Outcome<()> {
        let mut say = Aliases::default();
        let [id, position, time] = say.names([ID, SEQUENCE, AT]);
        let (reached, now) = (say.text(sequence.as_str()), say.number(at));
        let update = format!("SET {position}={reached},{time}={now}");
        let condition =
            format!("attribute_exists({id}) AND (attribute_not_exists({position}) OR {position}<{reached})");
        match self.update_if(&shard::id(label, shard), say, update, condition).await? {
            Some(_) => Ok(()),
            None => self.require(label, shard).await,
        }
    }

    /// Safe to repeat: the time moves forward only.
    async fn refresh(&self, label: &StreamLabel, shard: &StreamShardId, at: UnixMillis) -> Outcome<()> {
        let mut say = Aliases::default();
        let (time, now) = (say.name(AT), say.number(at));
        let (update, condition) = (format!("SET {time}={now}"), format!("{time}<{now}"));
        match self.update_if(&shard::id(label, shard), say, update, condition).await? {
            Some(_) => Ok(()),
            None => self.require(label, shard).await,
        }
    }

    /// Safe to repeat: closed stays closed, and forgotten forgotten.
    async fn close(&self, label: &StreamLabel, shard: &StreamShardId, at: UnixMillis) -> Outcome<()> {
        let mut say = Aliases::default();
        let [id, closed, time] = say.names([ID, CLOSED, AT]);
        let (yes, now) = (say.value(flag(true)), say.number(at));
        let update = format!("SET {closed}={yes},{time}={now}");
        self.update_if(&shard::id(label, shard), say, update, format!("attribute_exists({id})")).await.map(|_| ())
    }

    /// Safe to repeat: what is gone stays gone.
    async fn forget(&self, label: &StreamLabel, shard: &StreamShardId) -> Outcome<()> {
        let mut say = Aliases::default();
        let (closed, yes) = (say.name(CLOSED), say.value(flag(true)));
        let (names, values) = say.finish();
        let delete = self
            .connection
            .client
            .delete_item()
            .table_name(self.table())
            .set_key(Some(key(&shard::id(label, shard))))
            .condition_expression(format!("{closed}={yes}"))
            .set_expression_attribute_names(names)
            .set_expression_attribute_values(values);
        unless_refused(self.table(), delete.send().await).map(|_| ())
    }
}

#[async_trait]
impl Leases for Checkpoints {
    /// Safe to repeat: the beat moves, so a second copy is refused.
    async fn lease(
        &self,
        label: &StreamLabel,
        shard: &StreamShardId,
        holder: &Worker,
        seen: Option<&Lease>,
    ) -> Outcome<LeaseTaken> {
        let mut say = Aliases::default();
        let [owner, beat] = say.names([OWNER, BEAT]);
        let (ours, one, none) = (say.text(holder.0.as_str()), say.number(1), say.number(0));
        let condition = match seen {
            Some(seen) => format!("{owner}={} AND {beat}={}", say.text(seen.holder.0.as_str()), say.number(seen.beat)),
            None => format!("attribute_exists({}) AND attribute_not_exists({owner})", say.name(ID)),
        };
        let update = format!("SET {owner}={ours},{beat}=if_not_exists({beat},{none})+{one}");
        let id = shard::id(label, shard);
        // Refused where the lease already is our own: an earlier copy was carried out, and its answer was lost.
        let item = match self.update_if(&id, say, update, condition).await? {
            Some(item) => item,
            None => self.required(&id).await?,
        };
        let lease = shard::lease(&Reader::new(self.table(), &item))?;
        Ok(lease.filter(|lease| lease.holder == *holder).map_or(LeaseTaken::Lost, LeaseTaken::Taken))
    }

    /// Safe to repeat: a lease given back has no holder. The beat stays, so that no later lease looks like this one.
    async fn release(&self, label: &StreamLabel, shard: &StreamShardId, holder: &Worker) -> Outcome<()> {
        let mut say = Aliases::default();
        let (owner, ours) = (say.name(OWNER), say.text(holder.0.as_str()));
        let (update, condition) = (format!("REMOVE {owner}"), format!("{owner}={ours}"));
        self.update_if(&shard::id(label, shard), say, update, condition).await.map(|_| ())
    }
}

#[async_trait]
impl Gaps for Checkpoints {
    /// Safe to repeat: the time of the gap, and that of the audit, move forward. The gap comes first: a process that dies
    /// in between leaves every answer inexact, and meets the same loss again.
    async fn open_gap(&self, loss: &Loss, now: UnixMillis) -> Outcome<Gap> {
        let gap = self.put_gap(Gap::of(loss, now)).await?;
        Recounts::new(&self.connection).enqueue_audit(now).await?;
        Ok(gap)
    }

    async fn standing(&self) -> Outcome<Standing> {
        self.read_gaps().await
    }

    async fn tell(&self, as_of: UnixMillis, limit: UnixMillis) -> Outcome<()> {
        self.put_told(as_of, limit).await
    }

    async fn close_gap(&self, gap: &Gap) -> Outcome<()> {
        self.remove_gap(gap).await
    }
}
