//! The numbers given to a stream's shards, and the floor below which all are closed.

use aws_sdk_dynamodb::types::{Put, TransactWriteItem, Update};
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
    /// one transaction. `None` where another worker was faster. Safe to repeat: both conditions hold once.
    pub(super) async fn give(
        &self,
        label: &StreamLabel,
        checkpoint: &Item,
        registry: Registry,
        is_new: bool,
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
        let step = TransactWriteItem::builder().update(self.step(label, registry, is_new)).build();
        let put = TransactWriteItem::builder().put(put).build();
        let sent = self.connection.client.transact_write_items().transact_items(put).transact_items(step).send().await;
        match sent.map_err(|error| cancelled(self.table(), &error)) {
            Ok(_) => Ok(Some(given)),
            Err(Cancelled::Condition) => Ok(None),
            Err(Cancelled::Conflict(fault) | Cancelled::Fault(fault)) => Err(fault),
        }
    }

    /// The greatest next number of any stream that `table` has had, where it had one: read once in the life of a stream.
    pub(super) async fn greatest_next(&self, table: StreamTable) -> Outcome<Option<Ordinal>> {
        let found = under(&self.connection, PREFIX).await?;
        let registries = found
            .iter()
            .filter(|(stream, _)| table.has(stream))
            .map(|(_, item)| decode(&Reader::new(self.table(), item)));
        Ok(registries.collect::<Outcome<Vec<_>>>()?.into_iter().map(|registry| registry.next).max())
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
