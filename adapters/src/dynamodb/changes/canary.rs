//! Writes the rows by which relays see how late the stream is.

use tally_core::ids::ReservedKey;
use tally_core::ports::Outcome;
use tally_core::relay::Canary;

use super::super::fault::fault;
use super::super::item::{item, number, text};
use super::super::names::PK;
use super::super::names::likes::{TO, USER_ID};
use super::Changes;

impl Changes {
    /// Writes a canary into the table `likes`. Safe to repeat, also late: it says a time before its first copy was written.
    ///
    /// # Errors
    /// The table takes no write.
    pub async fn put_canary(&self, canary: Canary) -> Outcome<()> {
        let table = &self.connection.tables.likes;
        let row = item([
            (PK, text(canary.key().to_string())),
            (USER_ID, text(ReservedKey::Canary.to_string())),
            (TO, number(canary.at)),
        ]);
        let put = self.connection.client.put_item().table_name(table).set_item(Some(row));
        put.send().await.map(|_| ()).map_err(|error| fault(table, &error))
    }
}
