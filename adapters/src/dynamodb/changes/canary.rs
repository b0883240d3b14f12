//! Writes the rows by which relays see how late the stream is.

use tally_core::ids::ReservedKey;
use tally_core::ports::Outcome;
use tally_core::relay::Canary;

use super::super::expression::Aliases;
use super::super::item::{item, text};
use super::super::names::PK;
use super::super::names::likes::{TO, USER_ID};
use super::Changes;

impl Changes {
    /// Writes a canary into the table `likes`. Safe to repeat, also late: it says a time before its first copy was written.
    ///
    /// # Errors
    /// The table takes no write.
    pub async fn write_canary(&self, canary: Canary) -> Outcome<()> {
        let table = &self.connection.tables.likes;
        let key = item([(PK, text(canary.key().to_string())), (USER_ID, text(ReservedKey::Canary.to_string()))]);
        let mut say = Aliases::default();
        let set = format!("SET {}={}", say.name(TO), say.number(canary.at));
        self.connection.items(table).update(key, say, set).await.map(|_| ())
    }
}
