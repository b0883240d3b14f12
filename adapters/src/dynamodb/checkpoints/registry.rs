//! The numbers given to a stream's shards, and the floor below which all are closed.

use aws_sdk_dynamodb::types::{Put, TransactWriteItem, Update};
use tally_core::fault::Fault;
use tally_core::ids::{Ordinal, StreamLabel, StreamTable};
use tally_core::ports::{Outcome, Registry};

use super::super::expression::Aliases;
use super::super::fault::{Cancelled, cancelled};
use super::super::item::{Item, Reader, number};
use super::super::names::checkpoints::{FLOOR, ID, NEXT, ORDINAL};
use super::{Checkpoints, key, under};

/// How often a worker tries to number a shard while others number theirs.
pub(super) const ATTEMPTS: u32 = 8;

/// What the key of every registry begins with.
const PREFIX: &str = "registry/";

pub(super) fn id(label: &StreamLabel) -> String {
    format!("{PREFIX}{label}")
}

pub(super) fn decode(reader: &Reader<'_>) -> Outcome<Registry> {
    let floor = reader.number(FLOOR)?.map(Ordinal);
    Ok(Registry { next: Ordinal(reader.required_number(NEXT)?), floor })
}

impl Checkpoints {
    /// Gives the next number of `registry` to the shard of `checkpoint`, if it still is the next and the shard has none:
    /// one transaction. `None` where another worker was faster. Safe to repeat: the conditions hold once.
    ///
    /// A registry that `begins` takes a number from the one before it, so that of two streams that begin at once behind
    /// the same one only one does.
    pub(super) async fn give(
        &self,
        label: &StreamLabel,
        checkpoint: &Item,
        registry: Registry,
        begins: Option<Option<(StreamLabel, Registry)>>,
    ) -> Outcome<Option<Ordinal>> {
        let given = registry.next;
        let mut numbered = checkpoint.clone();
        numbered.insert(ORDINAL.to_owned(), number(given));
        let put = Put::builder()
            .table_name(self.table())
            .set_item(Some(numbered))
            .condition_expression("attribute_not_exists(#id)")
            .expression_attribute_names("#id", ID)
            .build()
            .expect("table and item are set");
        let step = |update| TransactWriteItem::builder().update(update).build();
        let put = TransactWriteItem::builder().put(put).build();
        let request = self.connection.client.transact_write_items().transact_items(put);
        let mut request = request.transact_items(step(self.step(label, registry, begins.is_some())));
        if let Some((before, standing)) = begins.flatten() {
            request = request.transact_items(step(self.step(&before, standing, false)));
        }
        match request.send().await.map_err(|error| cancelled(self.table(), &error)) {
            Ok(_) => Ok(Some(given)),
            Err(Cancelled::Condition) => Ok(None),
            Err(Cancelled::Conflict(fault) | Cancelled::Fault(fault)) => Err(fault),
        }
    }

    /// The latest stream that the table of `label` had before it, with its registry: read once in the life of a stream.
    ///
    /// # Errors
    /// The table has had a later one since: a worker that still follows `label` has to list anew.
    pub(super) async fn latest_before(&self, label: &StreamLabel) -> Outcome<Option<(StreamLabel, Registry)>> {
        let (mut latest, table) = (None::<(StreamLabel, Registry)>, label.table());
        for (stored, item) in under(&self.connection, PREFIX).await?.iter().filter(|(stored, _)| table.has(stored)) {
            let (other, registry) = (table.label(stored), decode(&Reader::new(self.table(), item))?);
            if other.as_str() > label.as_str() {
                return Err(Fault::Transient(format!(
                    "{label} is not the table's stream any more: {other} came later"
                )));
            }
            // Its own may have come since it was looked for: the step that begins it is refused then.
            let is_earlier = other.as_str() < label.as_str();
            if is_earlier && latest.as_ref().is_none_or(|(_, greatest)| greatest.next < registry.next) {
                latest = Some((other, registry));
            }
        }
        Ok(latest)
    }

    /// The greatest `next` of all streams that a table had: no number from it on was ever given. For people.
    ///
    /// # Errors
    /// The table cannot be read.
    pub async fn greatest_next(&self, table: StreamTable) -> Outcome<Option<Ordinal>> {
        let found = under(&self.connection, PREFIX).await?;
        let next = found
            .iter()
            .filter(|(stored, _)| table.has(stored))
            .map(|(_, item)| Ok(decode(&Reader::new(self.table(), item))?.next));
        Ok(next.collect::<Outcome<Vec<_>>>()?.into_iter().max())
    }

    /// The registry's step past the number given, which creates it where it is new.
    fn step(&self, label: &StreamLabel, registry: Registry, is_new: bool) -> Update {
        let mut say = Aliases::default();
        let name = say.name(NEXT);
        let mut set = format!("SET {name}={}", say.number(registry.next.0 + 1));
        let condition = if is_new {
            if let Some(floor) = registry.floor {
                set = format!("{set},{}={}", say.name(FLOOR), say.number(floor));
            }
            format!("attribute_not_exists({name})")
        } else {
            format!("{name}={}", say.number(registry.next))
        };
        let (names, values) = say.finish();
        Update::builder()
            .table_name(self.table())
            .set_key(Some(key(&id(label))))
            .update_expression(set)
            .condition_expression(condition)
            .set_expression_attribute_names(names)
            .set_expression_attribute_values(values)
            .build()
            .expect("table, key and expression are set")
    }

    /// Raises the floor. Safe to repeat: it moves up only, and only where there is a registry.
    pub(super) async fn raise(&self, label: &StreamLabel, floor: Ordinal) -> Outcome<()> {
        let mut say = Aliases::default();
        let [name, next] = say.names([FLOOR, NEXT]);
        let raised = say.number(floor);
        let update = format!("SET {name}={raised}");
        let condition = format!("attribute_exists({next}) AND (attribute_not_exists({name}) OR {name}<{raised})");
        self.update_if(&id(label), say, update, condition).await.map(|_| ())
    }
}

#[cfg(test)]
mod tests {
    use tally_core::ports::StreamRegistry as _;
    use tally_core::time::UnixMillis;
    use tally_emulator::{Config, Emulator};

    use super::*;
    use crate::dynamodb::{Connection, Settings, ensure_tables};

    #[tokio::test]
    async fn a_stream_that_another_worker_has_begun_meanwhile_is_not_before_itself() {
        let emulator = Emulator::new(Config::default());
        let connection = Connection::in_process(&Settings::local(""), emulator.http_client(), UnixMillis(0));
        ensure_tables(&connection).await.unwrap();
        let checkpoints = Checkpoints::new(&connection);
        let [earlier, later] = ["2026-01-01T00:00:00.000", "2026-01-02T00:00:00.000"].map(StreamLabel::from);
        let shard = "shardId-1".into();
        for label in [&earlier, &later] {
            checkpoints.number(label, &shard, None, UnixMillis(1)).await.unwrap();
        }
        let before = checkpoints.latest_before(&later).await.unwrap();
        assert_eq!(before.map(|(label, _)| label), Some(earlier.clone()));
        assert!(checkpoints.latest_before(&earlier).await.is_err(), "a later one has come");
    }
}
