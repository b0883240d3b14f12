//! Cells: the rows that Kafka partitions add to sums.

use std::collections::BTreeMap;

use aws_sdk_dynamodb::types::BatchStatementRequest;
use tally_core::ids::{ReservedKey, RowKey};
use tally_core::ports::Outcome;
use tally_core::register::{Cell, Progress};
use tally_core::topic::Partition;

use super::super::clock::Confirmed;
use super::super::item::{Item, Reader, item, number, text};
use super::super::names::LIKES;
use super::super::statement::{Written, statement};
use super::super::table::Consistency;
use super::Registers;

/// A cell goes from one state to another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CellUpdate {
    /// Where it is.
    pub key: RowKey,
    /// As it was read or written last; `None` where it was absent.
    pub from: Option<Cell>,
    /// As it will be.
    pub to: Cell,
}

/// What became of one update. A cell that has come to another version than the update names is refused.
pub type Advanced = Written<Cell>;

impl Registers {
    /// The cells of `partition` under different row keys, in their order, read consistently; a cell that cannot be read is
    /// [`Fault::Poison`].
    ///
    /// # Errors
    /// The table cannot be read.
    pub async fn read_cells(&self, partition: &Partition, keys: &[RowKey]) -> Outcome<Vec<Outcome<Option<Cell>>>> {
        self.connection.watch.open_to(LIKES)?;
        let (sort, pks) = (sort(partition), keys.iter().map(RowKey::to_string).collect::<Vec<_>>());
        let keys: Vec<Item> = pks.iter().map(|pk| item! { "pk": text(pk), "user_id": text(&sort) }).collect();
        let mut cells = BTreeMap::new();
        for found in self.table().get_all(&keys, Consistency::Strong).await? {
            let reader = self.table().reader(&found);
            cells.insert(reader.get::<String>("pk")?, cell(&reader));
        }
        Ok(pks.iter().map(|pk| cells.remove(pk).transpose()).collect())
    }

    /// Updates cells of `partition` under different row keys, at most [`Progress::STATEMENTS`], each by itself, and answers in
    /// their order.
    ///
    /// Safe to repeat, also late and by others: each update names the version that the cell has come to and moves it on, so a
    /// copy of it is refused.
    ///
    /// # Panics
    /// There are more updates than a request takes.
    pub async fn advance_cells(
        &self,
        partition: &Partition,
        updates: &[CellUpdate],
        confirmed: Confirmed,
    ) -> Vec<Advanced> {
        assert!(updates.len() <= Progress::STATEMENTS, "{} updates are more than a request takes", updates.len());
        if let Err(fault) = self.connection.watch.open_to(LIKES) {
            return vec![Advanced::Failed(fault); updates.len()];
        }
        let sort = sort(partition);
        let statement = |nth: usize| updates[nth].statement(self.table().name, &sort);
        let sent = self.send(updates.len(), statement, confirmed).await;
        sent.into_iter().map(|sent| Written::of(sent, |found| cell(&self.table().reader(found)))).collect()
    }
}

impl CellUpdate {
    fn statement(&self, table: &str, sort: &str) -> BatchStatementRequest {
        let (key, to) = ([text(self.key.to_string()), text(sort)], [number(self.to.n), number(self.to.to)]);
        match &self.from {
            None => {
                let insert = format!("INSERT INTO \"{table}\" VALUE {{'pk':?,'user_id':?,'n':?,'to':?}}");
                statement(insert, key.into_iter().chain(to).collect())
            }
            Some(from) => {
                let update = format!(
                    "UPDATE \"{table}\" SET \"n\"=? SET \"to\"=? WHERE \"pk\"=? AND \"user_id\"=? AND \"to\"=?"
                );
                statement(update, to.into_iter().chain(key).chain([number(from.to)]).collect())
            }
        }
    }
}

/// The sort key of a partition's cells.
fn sort(partition: &Partition) -> String {
    ReservedKey::Cell { topic: &partition.topic, partition: partition.index }.to_string()
}

fn cell(found: &Reader<'_>) -> Outcome<Cell> {
    Ok(Cell { n: found.get("n")?, to: found.get("to")? })
}
