//! What the rows say of a deployment whose checkpoints are lost: of which generations they are, and which sums there are.

use std::collections::BTreeSet;

use tally_core::ids::{CounterName, ReservedKey, RowKey};
use tally_core::ports::Outcome;
use tally_core::register::Version;
use tally_core::topic::Partition;

use super::super::connection::Connection;
use super::super::cursor::{after_two, start_two};
use super::super::fault::fault;
use super::super::item::{Item, Reader};
use super::super::names::PK;
use super::super::names::likes::{TO, USER_ID, V};

/// What was found among the rows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Remains {
    /// The greatest generation of a row's version or of a cell's; 0 where there is none.
    pub generation: u16,
    /// The partitions that have added to a sum.
    pub added: BTreeSet<Partition>,
    /// The sums that have cells.
    pub sums: BTreeSet<CounterName>,
}

impl Remains {
    /// Reads every row, consistently.
    ///
    /// # Errors
    /// The table cannot be read, or a row is not what it has to be.
    pub async fn read(connection: &Connection) -> Outcome<Self> {
        let (table, mut found, mut after) = (&connection.tables.likes, Self::default(), None);
        loop {
            let scan = connection
                .client
                .scan()
                .table_name(table)
                .projection_expression("#pk,#user,#v,#to")
                .expression_attribute_names("#pk", PK)
                .expression_attribute_names("#user", USER_ID)
                .expression_attribute_names("#v", V)
                .expression_attribute_names("#to", TO)
                .set_exclusive_start_key(after.as_ref().map(|at| start_two([PK, USER_ID], at)).transpose()?)
                .consistent_read(true);
            let reply = scan.send().await.map_err(|error| fault(table, &error))?;
            for row in reply.items() {
                found.take(table, row)?;
            }
            after = after_two(table, [PK, USER_ID], reply.last_evaluated_key())?;
            if after.is_none() {
                return Ok(found);
            }
        }
    }

    fn take(&mut self, table: &str, row: &Item) -> Outcome<()> {
        let reader = Reader::new(table, row);
        let sort = reader.required_text(USER_ID)?;
        let cell = match ReservedKey::read(sort) {
            Some(ReservedKey::Cell { topic, partition }) => Some(Partition { topic: topic.into(), index: partition }),
            Some(_) => return Ok(()),
            None => None,
        };
        // A cell that no consumer wrote has come nowhere, and a row that no consumer wrote has no version.
        let version = reader.number::<Version>(if cell.is_some() { TO } else { V })?;
        self.generation = self.generation.max(version.map_or(0, Version::generation));
        // A row under a key that is none counts nothing.
        if let (Some(cell), Ok(key)) = (cell, reader.required_text(PK)?.parse::<RowKey>()) {
            self.sums.insert(key.counter.name);
            self.added.extend(version.map(|_| cell));
        }
        Ok(())
    }
}
