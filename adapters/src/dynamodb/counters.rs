//! The counters that the log `changes` is folded into: items of the table `like_counts`, one for each [`Counter`].
//!
//! | attribute | |
//! |---|---|
//! | `post_id` | the key, [`CounterId::stored`] |
//! | `likes` | the total |
//! | `s<k>` | the part of shard `k` |
//! | `version` | everything before this place of the log is in |
//! | `c` | how many corrections are in; absent is 0 |
//! | `gap` | the place of the last announcement of a loss that lies before something that is in |
//! | `doubt` | the shards with a row whose weight could not be read, a set of numbers |
//! | `updated_at` | when the counter was written, in milliseconds |
//!
//! One row is no counter: the reserved row says that this is the table that counters were written to, and not a new one of
//! the same name. Without it an absent counter is not known to be 0. Where it was put in the place of a lost one, its attribute
//! `since` says when.

mod crossing;
mod item;
mod scan;
mod update;

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use aws_sdk_dynamodb::types::{BatchStatementErrorCodeEnum as Code, BatchStatementResponse};
use tally_core::fault::Fault;
use tally_core::fold::Counter;
use tally_core::ids::CounterId;
use tally_core::ports::Outcome;
use tally_core::time::UnixMillis;

pub use self::crossing::Crossed;
pub(super) use self::item::encode;
pub use self::update::Update;
use super::connection::Connection;
use super::expression::Aliases;
use super::fault::{fault, of_statement};
use super::get::{self, Consistency};
use super::item::{Item, Reader, item as attributes, number, text};
use super::items::Conditional;
use super::names::COUNTS;
use super::names::counts::{POST_ID, RESERVED_ROW, SINCE};

/// The table `like_counts`.
#[derive(Clone, Debug)]
pub struct Counters {
    connection: Connection,
}

/// Counters as they were read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Read {
    /// Each counter that is there; [`Fault::Poison`] where its item cannot be read.
    pub counters: BTreeMap<CounterId, Outcome<Counter>>,
    /// Whether an absent counter was never written. `false` if the reserved row is not there either: the table is a new one,
    /// and its counters are lost.
    pub reserved: bool,
    /// When the reserved row was put in the place of a lost one. What is absent says nothing beside a standing whose `as_of` is
    /// not later: that one may not know of the loss.
    pub since: Option<UnixMillis>,
}

/// What became of one update of a batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Written {
    /// The counter is as the update says.
    Stored,
    /// The counter is another one than the update names: as it is now, or `None` where it is absent or has to be read.
    /// A copy of the update may have been carried out before.
    Refused(Option<Counter>),
    /// [`Fault::Transient`]: it is not known whether it was carried out. Any other fault: it was not.
    Failed(Fault),
}

impl Counters {
    /// How many updates one request takes.
    pub const UPDATES: usize = 25;

    /// The counters of a deployment.
    pub fn new(connection: &Connection) -> Self {
        Self { connection: connection.clone() }
    }

    fn table(&self) -> &str {
        &self.connection.tables.counts
    }

    fn decoded(&self, item: &Item) -> Outcome<Counter> {
        item::decode(&Reader::new(self.table(), item), item)
    }

    /// Reads counters. Where one is absent, the reserved row is read after it.
    ///
    /// # Errors
    /// The table cannot be read.
    pub async fn read(&self, ids: &[CounterId], consistency: Consistency) -> Outcome<Read> {
        let distinct: BTreeMap<Cow<'_, str>, &CounterId> = ids.iter().map(|id| (id.stored(), id)).collect();
        let keys: Vec<Item> = distinct.keys().map(|stored| key(stored)).collect();
        let mut counters = BTreeMap::new();
        for item in get::items(&self.connection, self.table(), &keys, consistency).await? {
            let reader = Reader::new(self.table(), &item);
            let id = distinct.get(reader.required_text(POST_ID)?);
            let id = *id.ok_or_else(|| reader.malformed(POST_ID, "it was not asked for"))?;
            counters.insert(id.clone(), self.decoded(&item));
        }
        if counters.len() == distinct.len() {
            return Ok(Read { counters, reserved: true, since: None });
        }
        let row = self.reserved_row(consistency).await?;
        let since = row.as_ref().map(|row| Reader::new(self.table(), row).number(SINCE)).transpose()?.flatten();
        Ok(Read { counters, reserved: row.is_some(), since: since.map(UnixMillis) })
    }

    async fn reserved_row(&self, consistency: Consistency) -> Outcome<Option<Item>> {
        self.connection.items(self.table()).get_as(key(RESERVED_ROW), consistency).await
    }

    /// Whether the reserved row is there.
    ///
    /// # Errors
    /// The table cannot be read.
    pub async fn has_reserved(&self, consistency: Consistency) -> Outcome<bool> {
        Ok(self.reserved_row(consistency).await?.is_some())
    }

    /// Puts the reserved row of a new deployment. Safe to repeat: it is always the same.
    ///
    /// # Errors
    /// The table takes no write.
    pub async fn put_reserved(&self) -> Outcome<()> {
        self.connection.items(self.table()).put(key(RESERVED_ROW)).await
    }

    /// Puts the reserved row in the place of one that was lost, once that is a loss that is open. Safe to repeat: a later time
    /// makes less exact.
    ///
    /// # Errors
    /// The table takes no write.
    pub async fn put_reserved_since(&self, since: UnixMillis) -> Outcome<()> {
        let mut row = key(RESERVED_ROW);
        row.insert(SINCE.to_owned(), number(since));
        self.connection.items(self.table()).put(row).await
    }

    /// Puts the reserved row of a new deployment where it is already; whether there is one. Safe to repeat: it is always the
    /// same.
    ///
    /// # Errors
    /// The table takes no write.
    pub async fn renew_reserved(&self) -> Outcome<bool> {
        let mut say = Aliases::default();
        let condition =
            format!("attribute_exists({}) AND attribute_not_exists({})", say.name(POST_ID), say.name(SINCE));
        let put = self.connection.items(self.table()).put_if(key(RESERVED_ROW), say, condition).await?;
        Ok(!matches!(put, Conditional::Refused(None)))
    }

    /// Writes up to [`Self::UPDATES`] counters, each by itself, and answers in their order.
    ///
    /// Safe to repeat, also late and by others: an update names every value that it replaces, and the version above all. Once
    /// it is carried out, or the counter was changed in any other way, a copy of it is refused. The only value that is
    /// replaced unseen is `updated_at`.
    ///
    /// # Errors
    /// The request was refused as a whole, or it is not known what became of any update.
    ///
    /// # Panics
    /// There are more updates, or two of one counter.
    pub async fn write(&self, updates: &[Update]) -> Outcome<Vec<Written>> {
        assert!(updates.len() <= Self::UPDATES, "{} updates are more than a request takes", updates.len());
        let counters: BTreeSet<&CounterId> = updates.iter().map(|update| &update.counter).collect();
        assert!(counters.len() == updates.len(), "two updates of one request are of the same counter");
        if updates.is_empty() {
            return Ok(Vec::new());
        }
        self.connection.watch.open_to(COUNTS)?;
        let statements = updates.iter().map(|update| update.statement(self.table())).collect();
        let sent = self.connection.client.batch_execute_statement().set_statements(Some(statements)).send().await;
        let outcomes = sent.map_err(|error| fault(self.table(), &error))?.responses.unwrap_or_default();
        if outcomes.len() != updates.len() {
            let (answered, asked) = (outcomes.len(), updates.len());
            return Err(Fault::Transient(format!("{}: {answered} answers to {asked} statements", self.table())));
        }
        Ok(outcomes.iter().map(|outcome| self.written(outcome)).collect())
    }

    fn written(&self, outcome: &BatchStatementResponse) -> Written {
        let Some(error) = outcome.error() else { return Written::Stored };
        match error.code() {
            Some(Code::DuplicateItem) => Written::Refused(None),
            Some(Code::ConditionalCheckFailed) => {
                let stands = error.item().filter(|item| !item.is_empty()).map(|item| self.decoded(item));
                stands.transpose().map_or_else(Written::Failed, Written::Refused)
            }
            _ => Written::Failed(of_statement(self.table(), error)),
        }
    }
}

fn key(id: &str) -> Item {
    attributes([(POST_ID, text(id))])
}
