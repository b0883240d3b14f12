//! Cells: the rows that Kafka partitions add to sums.

use std::collections::BTreeMap;

use aws_sdk_dynamodb::types::BatchStatementRequest;
use tally_core::fault::Fault;
use tally_core::ids::{ReservedKey, RowKey};
use tally_core::ports::Outcome;
use tally_core::register::{Cell, Progress};
use tally_core::topic::Partition;

use super::super::expression;
use super::super::get::{self, Consistency};
use super::super::item::{Item, Reader, item, number, text};
use super::super::names::LIKES;
use super::super::names::PK;
use super::super::names::likes::{N, TO, USER_ID};
use super::super::signing::Confirmed;
use super::{Refusal, Registers};

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

/// What became of one update.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Advanced {
    /// The cell is as the update says.
    Stored,
    /// The cell has come to another version than the update names: as it is now, or `None` where it has to be read. A copy of
    /// the update may have been carried out before.
    Refused(Option<Cell>),
    /// [`Fault::Transient`]: it is not known whether it was carried out. Any other fault: it was not.
    Failed(Fault),
}

impl Registers {
    /// The cells of `partition` under different row keys, in their order, read consistently; a cell that cannot be read is
    /// [`Fault::Poison`].
    ///
    /// # Errors
    /// The table cannot be read.
    pub async fn read_cells(&self, partition: &Partition, keys: &[RowKey]) -> Outcome<Vec<Outcome<Option<Cell>>>> {
        self.connection.watch.open_to(LIKES)?;
        let (sort, pks) = (sort(partition), keys.iter().map(RowKey::to_string).collect::<Vec<_>>());
        let keys: Vec<Item> = pks.iter().map(|pk| item([(PK, text(pk)), (USER_ID, text(&sort))])).collect();
        let mut cells = BTreeMap::new();
        for found in get::items(&self.connection, self.table(), &keys, Consistency::Strong).await? {
            let reader = Reader::new(self.table(), &found);
            cells.insert(reader.required_text(PK)?.to_owned(), cell(&reader));
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
        let statement = |nth: usize| updates[nth].statement(self.table(), &sort);
        let sent = self.send(updates.len(), statement, confirmed).await;
        sent.into_iter().map(|sent| self.advanced(sent)).collect()
    }

    fn advanced(&self, sent: Result<(), Refusal>) -> Advanced {
        match sent {
            Ok(()) => Advanced::Stored,
            Err(Refusal::Duplicate | Refusal::Condition(None)) => Advanced::Refused(None),
            Err(Refusal::Condition(Some(found))) => {
                let stands = cell(&Reader::new(self.table(), &found));
                stands.map_or_else(Advanced::Failed, |cell| Advanced::Refused(Some(cell)))
            }
            Err(Refusal::Fault(fault)) => Advanced::Failed(fault),
        }
    }
}

impl CellUpdate {
    fn statement(&self, table: &str, sort: &str) -> BatchStatementRequest {
        let (key, to) = ([text(self.key.to_string()), text(sort)], [number(self.to.n), number(self.to.to)]);
        match &self.from {
            None => {
                let insert = format!("INSERT INTO \"{table}\" VALUE {{'{PK}':?,'{USER_ID}':?,'{N}':?,'{TO}':?}}");
                expression::statement(insert, key.into_iter().chain(to).collect())
            }
            Some(from) => {
                let set = format!("UPDATE \"{table}\" SET \"{N}\"=? SET \"{TO}\"=?");
                let update = format!("{set} WHERE \"{PK}\"=? AND \"{USER_ID}\"=? AND \"{TO}\"=?");
                expression::statement(update, to.into_iter().chain(key).chain([number(from.to)]).collect())
            }
        }
    }
}

/// The sort key of a partition's cells.
fn sort(partition: &Partition) -> String {
    ReservedKey::Cell { topic: &partition.topic, partition: partition.index }.to_string()
}

fn cell(found: &Reader<'_>) -> Outcome<Cell> {
    Ok(Cell { n: found.required_number(N)?, to: found.required_number(TO)? })
}
