//! DynamoDB and its streams behind the ports of `tally_core`, through the AWS SDK: every read and write of the four
//! tables, and the change stream of `likes`. These modules turn calls into requests and replies into the types of
//! `tally_core`, which decides what a condition means and what follows from a refusal.

pub mod changes;
mod checkpoints;
pub mod claims;
mod clock;
mod connection;
pub mod counters;
mod cursor;
mod environment;
mod examine;
mod fault;
mod item;
mod likes;
mod recounts;
pub mod regions;
pub mod registers;
mod statement;
mod streams;
mod table;
mod table_ids;
mod tables;
mod usual;
mod watch;

use tally_service::Clock;

use self::changes::Changes;
use self::claims::Claims;
use self::counters::Counters;

pub use checkpoints::{Checkpoints, Configuration};
pub use claims::Topics;
pub use clock::http_date;
pub use connection::{Connection, Settings, Tables};
pub use counters::inject_drift;
pub use cursor::{Cursor, Page, Segment};
pub use environment::{check_endpoint, environment};
pub use examine::{Examined, Quotas};
pub use likes::{Like, MemberRow, Remains, Rows, ScannedRow};
pub use recounts::{LedgerEntry, Operation, Queued, Recorded, Recounts};
pub use streams::Streams;
pub use table::{Consistency, PUTS};
pub use table_ids::{SeenTables, TableIds};
pub use tables::{check_tables, ensure_tables, lacking_tables, missing_tables};
pub(crate) use tables::{held_items, holds_items};
pub use usual::Usual;
pub use watch::TablesWatch;
pub(crate) use watch::Watch;

/// The stores that tools use to look at a deployment.
pub struct Stores {
    pub connection: Connection,
    pub claims: Claims,
    pub rows: Rows,
    pub counters: Counters,
    /// What is stored about the log of changes.
    pub changes: Changes,
    pub checkpoints: Checkpoints,
    pub recounts: Recounts,
    pub stream: Streams,
}

impl Stores {
    /// Returns the stores over the tables of `connection`.
    pub fn over(connection: &Connection, clock: Clock) -> Self {
        Self {
            connection: connection.clone(),
            claims: Claims::new(connection, clock),
            rows: Rows::new(connection),
            counters: Counters::new(connection),
            changes: Changes::new(connection),
            checkpoints: Checkpoints::new(connection),
            recounts: Recounts::new(connection),
            stream: Streams::new(connection),
        }
    }
}
