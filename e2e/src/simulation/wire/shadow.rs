//! The positions that a mutant's recount is told in the place of those that the folds have stored: they are stored in a table
//! that nobody else has, and read from there.

use std::sync::Arc;

use aws_smithy_runtime_api::client::http::SharedHttpClient;
use serde_json::{Value, json};
use tally_adapters::dynamodb::changes::Changes;
use tally_adapters::dynamodb::{Connection, ensure_tables};
use tally_core::changes::{Body, Message, Opened};
use tally_core::fold::Position;
use tally_emulator::{Config, Emulator};
use tokio::sync::OnceCell;

use super::super::instance::Role;
use super::super::mutant::Mutant;
use super::super::ports::announced_nowhere;
use super::super::world::{BEGAN, settings};
use super::Tampered;
use crate::undisturbed;

/// The table of its own; clones are the same.
#[derive(Clone, Debug)]
pub(crate) struct Shadow {
    store: Emulator,
    changes: Changes,
    /// The positions that the folds have stored.
    stored: Changes,
    made: Arc<OnceCell<()>>,
}

impl Shadow {
    /// Beside what is `stored`.
    pub(crate) fn of(stored: &Changes) -> Self {
        let epoch = std::time::UNIX_EPOCH + std::time::Duration::from_millis(BEGAN.0);
        let store = Emulator::new(Config { epoch: Some(epoch), ..Config::default() });
        let changes = Changes::new(&Connection::in_process(&settings(), store.http_client(), BEGAN));
        Self { store, changes, stored: stored.clone(), made: Arc::default() }
    }

    /// A client of the table.
    pub(super) fn client(&self) -> SharedHttpClient {
        self.store.http_client()
    }

    async fn put(&self, partition: u32, position: &Position) -> Option<()> {
        let connection = Connection::in_process(&settings(), self.store.http_client(), BEGAN);
        self.made.get_or_try_init(|| async { ensure_tables(&connection).await.map(drop) }).await.ok()?;
        let key = json!({"id": {"S": format!("changes/position/{partition}")}});
        undisturbed::send(&self.store, "DeleteItem", &json!({"TableName": "checkpoints", "Key": key})).await;
        self.changes.store_position(partition, position).await.ok().map(drop)
    }
}

impl Tampered {
    /// Whether the answer to a request is the mutant's own, which it has put in its table then.
    pub(super) async fn is_shadowed(&self, operation: &str, asked: &Value) -> bool {
        if self.role != Role::Recounter || operation != "GetItem" {
            return false;
        }
        let id = asked["Key"]["id"]["S"].as_str().unwrap_or_default();
        let Some(partition) = id.strip_prefix("changes/position/").and_then(|index| index.parse().ok()) else {
            return false;
        };
        let position = match self.mutant {
            Mutant::TailAtEnd => self.at_end(partition).await,
            Mutant::TailUnfiltered => self.unfiltered(partition).await,
            Mutant::TailBeforeLoss => self.before_loss(partition).await,
            _ => None,
        };
        match position {
            Some(position) => self.shadow.put(partition, &position).await.is_some(),
            None => false,
        }
    }

    /// Where the log ends.
    async fn at_end(&self, partition: u32) -> Option<Position> {
        self.journal.follow().await.ok()?;
        self.journal.end(partition)
    }

    /// A place before the last announcement of a loss, while one is open: nothing tells the recount that it lies behind.
    async fn before_loss(&self, partition: u32) -> Option<Position> {
        self.journal.follow().await.ok()?;
        self.journal.before_loss(partition).filter(|position| !position.filter.standing().open.is_empty())
    }

    /// Where the fold is, with a filter that knows the stream shard by which copies are handed on.
    async fn unfiltered(&self, partition: u32) -> Option<Position> {
        let Position { at, mut filter, ladder, last } = self.shadow.stored.position(partition).await.ok()??;
        let opened = Opened { shards: vec![announced_nowhere(&filter)?], ended: Vec::new() };
        let now = self.host.clock().now();
        filter.take(at, now, &Message { read: now, body: Body::Opened(opened) }, |_, _| {});
        Some(Position { at, filter, ladder, last })
    }
}
