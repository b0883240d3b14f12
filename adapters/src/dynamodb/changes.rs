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

mod canary;
mod config;
mod losses;
mod partitions;
mod shards;

pub use self::config::Config;
pub use self::losses::{Loss, Losses};
pub(super) use self::partitions::{decode_standing, encode_standing};
pub use self::shards::StoredShard;
use super::connection::Connection;
use super::items::Items;

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

    fn table(&self) -> &str {
        &self.connection.tables.checkpoints
    }

    fn items(&self) -> Items<'_> {
        self.connection.items(self.table())
    }
}
