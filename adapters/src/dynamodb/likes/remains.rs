//! What the rows say of a deployment whose checkpoints are lost: how far each partition's sums have come.

use std::collections::{BTreeMap, BTreeSet};

use tally_core::fence::Partition;
use tally_core::ids::{CounterName, ReservedKey, RowKey};
use tally_core::ports::Outcome;
use tally_core::register::Version;

use super::super::connection::Connection;
use super::super::cursor::{after_two, start_two};
use super::super::fault::fault;
use super::super::item::{Item, Reader, text};
use super::super::names::PK;
use super::super::names::likes::{TO, USER_ID};

/// What was found among the rows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Remains {
    /// The greatest version among the cells of each partition.
    pub reached: BTreeMap<Partition, Version>,
    /// The sums that have cells.
    pub sums: BTreeSet<CounterName>,
}

impl Remains {
    /// Reads every row that is no member's, consistently.
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
                .filter_expression("begins_with(#user,:reserved)")
                .projection_expression("#pk,#user,#to")
                .expression_attribute_names("#pk", PK)
                .expression_attribute_names("#user", USER_ID)
                .expression_attribute_names("#to", TO)
                .expression_attribute_values(":reserved", text(tally_core::ids::RESERVED))
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
        // A row under a key that is none counts nothing.
        let Ok(key) = reader.required_text(PK)?.parse::<RowKey>() else { return Ok(()) };
        if let Some(ReservedKey::Cell { topic, partition }) = ReservedKey::read(reader.required_text(USER_ID)?) {
            self.sums.insert(key.counter.name);
            // A cell that no consumer wrote has come nowhere.
            let Some(to) = reader.number(TO)? else { return Ok(()) };
            let of = self.reached.entry(Partition { topic: topic.into(), index: partition }).or_insert(to);
            *of = to.max(*of);
        }
        Ok(())
    }
}
