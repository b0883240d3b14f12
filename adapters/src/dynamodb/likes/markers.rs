//! The markers that a recount puts beside the rows.

use async_trait::async_trait;
use tally_core::changes::Nonce;
use tally_core::fault::Fault;
use tally_core::ids::RowKey;
use tally_core::ports::{MarkerPut, Markers as MarkersPort, Outcome};
use tally_core::window::{Marker, Phase};

use super::super::connection::Connection;
use super::super::expression::Aliases;
use super::super::fault::{fault, is_refused};
use super::super::item::{Reader, item, text};
use super::super::names::PK;
use super::super::names::likes::{PHASE, RUN, USER_ID};
use super::row_key;

/// The marker rows.
#[derive(Clone, Debug)]
pub struct Markers {
    connection: Connection,
}

impl Markers {
    /// The markers of a deployment.
    pub fn new(connection: &Connection) -> Self {
        Self { connection: connection.clone() }
    }

    /// Puts a marker beside the rows of a key, in the place of the one that is there. Safe to repeat, also late: a marker says
    /// that what happened to the key before its first copy was written lies before it in the stream.
    ///
    /// # Errors
    /// The table takes no write.
    pub async fn mark(&self, key: &RowKey, nonce: Nonce) -> Outcome<()> {
        let table = &self.connection.tables.likes;
        let put = self.connection.client.put_item().table_name(table).set_item(Some(item([
            (PK, text(key.to_string())),
            (USER_ID, text(Marker::SORT_KEY)),
            (RUN, text(nonce.to_string())),
            (PHASE, text(Phase::Low.as_str())),
        ])));
        put.send().await.map(|_| ()).map_err(|error| fault(table, &error))
    }
}

#[async_trait]
impl MarkersPort for Markers {
    async fn marker(&self, key: &RowKey) -> Outcome<Option<Marker>> {
        let table = &self.connection.tables.likes;
        let key = row_key(key.to_string(), text(Marker::SORT_KEY));
        let get = self.connection.client.get_item().table_name(table).set_key(Some(key)).consistent_read(true);
        let reply = get.send().await.map_err(|error| fault(table, &error))?;
        let Some(found) = reply.item() else { return Ok(None) };
        let reader = Reader::new(table, found);
        Ok(Some(Marker { run: reader.required(RUN)?, phase: reader.required(PHASE)? }))
    }

    /// Sent once, by a client that repeats nothing: a second copy of an opening marker could open its window again.
    async fn put_marker(&self, key: &RowKey, marker: Marker, required: Option<Marker>) -> Outcome<MarkerPut> {
        let table = &self.connection.tables.likes;
        let mut say = Aliases::default();
        let condition = match required {
            None => format!("attribute_not_exists({})", say.name(PK)),
            Some(required) => {
                let [run, phase] = say.names([RUN, PHASE]);
                format!(
                    "{run}={} AND {phase}={}",
                    say.text(required.run.to_string()),
                    say.text(required.phase.as_str())
                )
            }
        };
        let (names, values) = say.finish();
        let put = self
            .connection
            .once
            .put_item()
            .table_name(table)
            .set_item(Some(item([
                (PK, text(key.to_string())),
                (USER_ID, text(Marker::SORT_KEY)),
                (RUN, text(marker.run.to_string())),
                (PHASE, text(marker.phase.as_str())),
            ])))
            .condition_expression(condition)
            .set_expression_attribute_names(names)
            .set_expression_attribute_values(values);
        let Err(error) = put.send().await else { return Ok(MarkerPut::Put) };
        if is_refused(&error) {
            return Ok(MarkerPut::Unclear);
        }
        match fault(table, &error) {
            Fault::Transient(_) => Ok(MarkerPut::Unclear),
            fault => Err(fault),
        }
    }
}
