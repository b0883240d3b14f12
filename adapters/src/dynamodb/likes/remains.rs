//! What the rows say of a deployment whose checkpoints are lost: of which generations they are, and which sums there are.

use std::collections::BTreeSet;

use tally_core::ids::{CounterName, ReservedKey, RowKey};
use tally_core::ports::Outcome;
use tally_core::register::Version;
use tally_core::topic::Partition;

use super::super::connection::Connection;
use super::super::item::Reader;

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
        let (table, mut found, mut start) = (connection.likes(), Self::default(), None);
        loop {
            let scan = table.scan(Some("#pk,#user_id,#v,#to")).set_exclusive_start_key(start);
            let reply = scan.send().await.map_err(|error| table.fault(&error))?;
            reply.items().iter().try_for_each(|row| found.take(&table.reader(row)))?;
            start = reply.last_evaluated_key;
            if start.is_none() {
                return Ok(found);
            }
        }
    }

    fn take(&mut self, reader: &Reader<'_>) -> Outcome<()> {
        let sort = reader.text("user_id")?;
        let cell = match ReservedKey::read(sort) {
            Some(ReservedKey::Cell { topic, partition }) => Some(Partition { topic: topic.into(), index: partition }),
            Some(_) => return Ok(()),
            None => None,
        };
        // A cell that no consumer wrote has come nowhere, and a row that no consumer wrote has no version.
        let version = reader.get::<Option<Version>>(if cell.is_some() { "to" } else { "v" })?;
        self.generation = self.generation.max(version.map_or(0, Version::generation));
        // A row under a key that is none counts nothing.
        if let (Some(cell), Ok(key)) = (cell, reader.text("pk")?.parse::<RowKey>()) {
            self.sums.insert(key.counter.name);
            self.added.extend(version.map(|_| cell));
        }
        Ok(())
    }
}
