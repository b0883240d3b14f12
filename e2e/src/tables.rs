//! The harness's own access to the tables of a deployment, beside that of the services.

use tally_adapters::dynamodb::changes::Changes;
use tally_adapters::dynamodb::claims::Claims;
use tally_adapters::dynamodb::counters::Counters;
use tally_adapters::dynamodb::{Checkpoints, Connection, Recounts, Rows, Streams};
use tally_service::Clock;

/// The tables of a deployment.
pub struct Tables {
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

impl Tables {
    pub(crate) fn over(connection: &Connection, clock: Clock) -> Self {
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
