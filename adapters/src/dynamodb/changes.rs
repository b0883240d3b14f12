//! What is stored of the log `changes`, in items of the table `checkpoints`:
//!
//! | id | what |
//! |---|---|
//! | `changes/config` | the deployment's id, and the topic that the log is in: [`Config`] |
//! | `changes/losses` | the losses, open and closed: [`Losses`] |
//! | `changes/standing/<partition>` | what may be said of the counters of a partition, and up to where folds have read: [`Stated`](tally_core::fold::Stated) |
//! | `changes/position/<partition>` | where a reader of a partition begins: [`Position`](tally_core::fold::Position) |
//! | `changes/shard/<label>/<id>` | how far a stream shard is in the log, and who relays it: [`StoredShard`] |
//!
//! All reads are consistent. Beside them, relays write canaries into the table `likes`.

mod config;
mod losses;
mod partitions;
mod shards;

use tally_core::ids::ReservedKey;
use tally_core::ports::Outcome;
use tally_core::relay::Canary;

pub use self::config::Config;
pub use self::losses::{Loss, Losses};
pub(super) use self::partitions::{decode_standing, encode_standing};
pub use self::shards::StoredShard;
use super::connection::Connection;
use super::item::{item, number, text};
use super::table::Table;

/// What is stored of the log `changes`.
#[derive(Clone, Debug)]
pub struct Changes {
    connection: Connection,
}

impl Changes {
    /// The log of a deployment.
    pub fn new(connection: &Connection) -> Self {
        Self { connection: connection.clone() }
    }

    /// Writes a canary into the table `likes`: a row by which relays see how late the stream is. Safe to repeat, also late: it
    /// says a time before its first copy was written.
    ///
    /// # Errors
    /// The table takes no write.
    pub async fn write_canary(&self, canary: Canary) -> Outcome<()> {
        let key = item! { "pk": text(canary.key().to_string()), "user_id": text(ReservedKey::Canary.to_string()) };
        self.connection.likes().update(key, "SET #to=:at", [(":at", number(canary.at))]).await.map(|_| ())
    }

    fn table(&self) -> Table<'_> {
        self.connection.checkpoints()
    }
}
