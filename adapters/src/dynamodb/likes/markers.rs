//! The markers that a recount puts beside the rows.

use tally_core::changes::Nonce;
use tally_core::ids::{ReservedKey, RowKey};
use tally_core::ports::Outcome;

use super::super::connection::Connection;
use super::super::item::text;
use super::super::names::likes::RUN;
use super::super::put;
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

    /// Puts a marker beside the rows of each key, in the place of the one that is there: up to [`PUTS`](crate::dynamodb::PUTS)
    /// in one request. Safe to repeat, also late: a marker says that what happened to the key before its first copy was written
    /// lies before it in the stream.
    ///
    /// # Errors
    /// The table takes no write.
    pub async fn mark(&self, markers: &[(RowKey, Nonce)]) -> Outcome<()> {
        let marker = |(key, nonce): &(RowKey, Nonce)| {
            let mut marker = row_key(key.to_string(), text(ReservedKey::Recount.to_string()));
            marker.insert(RUN.to_owned(), text(nonce.to_string()));
            marker
        };
        put::items(&self.connection, &self.connection.tables.likes, markers.iter().map(marker)).await
    }
}
