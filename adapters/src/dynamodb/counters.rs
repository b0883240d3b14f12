//! The counters, which the fold keeps up to date with the log `changes`: items of the table `like_counts`, one for each
//! [`Counter`].
//!
//! | attribute | |
//! |---|---|
//! | `post_id` | the key, [`CounterId::stored`] |
//! | `likes` | the total |
//! | `s<k>` | the part of shard `k` |
//! | `version` | everything before this place of the log is in |
//! | `c` | how many corrections are in; absent is 0 |
//! | `gap` | the place of the last announced loss before something that is in |
//! | `doubt` | the shards with a row whose weight could not be read, a set of numbers |
//! | `updated_at` | when the counter was written, in milliseconds |
//!
//! One row is no counter: the reserved row shows that counters were written to this table, and that it is no new one of
//! the same name. Without it an absent counter is not known to be 0. If it was put in the place of a lost one, its
//! attribute `since` says when.

mod crossing;
mod update;

use std::collections::{BTreeMap, BTreeSet};

use tally_core::fold::Counter;
use tally_core::ids::{CounterId, PostId};
use tally_core::ports::Outcome;
use tally_core::time::UnixMillis;

pub use self::crossing::Crossed;
pub use self::update::Update;
pub(super) use self::update::encode;
use super::connection::{COUNTS, Connection};
use super::cursor::{Cursor, Page, Segment};
use super::fault::unless_refused;
use super::item::{Item, item, number, text};
use super::table::{Conditional, Consistency, Table};

/// The key of the reserved row: no post's id holds a control character.
const RESERVED_ROW: &str = "\u{1}reserved";

/// Reads and writes the table `like_counts`.
#[derive(Clone, Debug)]
pub struct Counters {
    connection: Connection,
}

/// Counters as they were read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Read {
    /// Each counter that is there; [`Fault::Poison`] where its item cannot be read.
    pub counters: BTreeMap<CounterId, Outcome<Counter>>,
    /// Whether an absent counter was never written. `false` if the reserved row is absent, too: the table is a new one,
    /// and its counters are lost.
    pub reserved: bool,
    /// When the reserved row was put in the place of a lost one. An absent counter says nothing beside a standing whose
    /// `as_of` is not later, since that standing may not know of the loss.
    pub since: Option<UnixMillis>,
}

/// The outcome of one update of a batch.
pub type Written = super::statement::Written<Counter>;

impl Counters {
    /// How many updates one request may have.
    pub const UPDATES: usize = 25;

    pub fn new(connection: &Connection) -> Self {
        Self { connection: connection.clone() }
    }

    fn table(&self) -> Table<'_> {
        self.connection.counts()
    }

    fn decoded(&self, item: &Item) -> Outcome<Counter> {
        update::decode(&self.table().reader(item))
    }

    /// Reads counters. If one is absent, reads the reserved row afterwards.
    ///
    /// # Errors
    /// The table cannot be read.
    pub async fn read(&self, ids: &[CounterId], consistency: Consistency) -> Outcome<Read> {
        let distinct: BTreeMap<_, &CounterId> = ids.iter().map(|id| (id.stored(), id)).collect();
        let keys: Vec<Item> = distinct.keys().map(|stored| key(stored)).collect();
        let mut counters = BTreeMap::new();
        for item in self.table().get_all(&keys, consistency).await? {
            let reader = self.table().reader(&item);
            let id = *distinct
                .get(reader.text("post_id")?)
                .ok_or_else(|| reader.malformed("post_id", "it was not asked for"))?;
            counters.insert(id.clone(), self.decoded(&item));
        }
        if counters.len() == distinct.len() {
            return Ok(Read { counters, reserved: true, since: None });
        }
        let row = self.reserved_row(consistency).await?;
        Ok(Read { counters, reserved: row.is_some(), since: self.since(row.as_ref())? })
    }

    fn since(&self, row: Option<&Item>) -> Outcome<Option<UnixMillis>> {
        Ok(row.map(|row| self.table().reader(row).get("since")).transpose()?.flatten())
    }

    /// Returns when the reserved row was put in the place of a lost one, if it was.
    ///
    /// # Errors
    /// The table cannot be read.
    pub async fn reserved_since(&self) -> Outcome<Option<UnixMillis>> {
        self.since(self.reserved_row(Consistency::Strong).await?.as_ref())
    }

    async fn reserved_row(&self, consistency: Consistency) -> Outcome<Option<Item>> {
        self.table().get(key(RESERVED_ROW), consistency).await
    }

    /// Returns whether the reserved row is there.
    ///
    /// # Errors
    /// The table cannot be read.
    pub async fn has_reserved(&self, consistency: Consistency) -> Outcome<bool> {
        Ok(self.reserved_row(consistency).await?.is_some())
    }

    /// Puts the reserved row of a new deployment. Safe to repeat: the row is always the same.
    ///
    /// # Errors
    /// The table takes no write.
    pub async fn put_reserved(&self) -> Outcome<()> {
        self.table().put(key(RESERVED_ROW)).await
    }

    /// Puts the reserved row in the place of one that was lost, after a loss was opened for that. Safe to repeat: a
    /// later time makes fewer answers exact.
    ///
    /// # Errors
    /// The table takes no write.
    pub async fn put_reserved_since(&self, since: UnixMillis) -> Outcome<()> {
        self.table().put(item! { "post_id": text(RESERVED_ROW), "since": number(since) }).await
    }

    /// Puts the reserved row of a new deployment once more if it is there. Returns whether the table has a reserved
    /// row. Safe to repeat: the row is always the same.
    ///
    /// # Errors
    /// The table takes no write.
    pub async fn renew_reserved(&self) -> Outcome<bool> {
        let condition = "attribute_exists(#post_id) AND attribute_not_exists(#since)";
        let put = self.table().put_if(key(RESERVED_ROW), condition, []).await?;
        Ok(!matches!(put, Conditional::Refused(None)))
    }

    /// Writes up to [`Self::UPDATES`] counters, each by itself. Returns the outcomes in their order.
    ///
    /// Safe to repeat, also late and by others: an update names every value that it replaces, above all the version.
    /// Once it is carried out, or the counter has changed in any other way, a copy is refused. Only `updated_at` is
    /// replaced unseen.
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
        let statements = updates.iter().map(|update| update.statement(self.table().name)).collect();
        let sent = self.connection.client.batch_execute_statement().set_statements(Some(statements)).send().await;
        let outcomes = self.table().outcomes(updates.len(), sent)?;
        Ok(outcomes.into_iter().map(|sent| Written::of(sent, |item| self.decoded(item))).collect())
    }

    /// Reads one page of a scan, consistently: each counter, or why its item cannot be read. Skips items whose key is
    /// no counter's.
    ///
    /// # Errors
    /// The table cannot be read.
    pub async fn scan(&self, segment: Segment, after: Option<&Cursor>) -> Outcome<Page<(CounterId, Outcome<Counter>)>> {
        let counter = |item: &Item| Some((item.get("post_id")?.as_s().ok()?.parse().ok()?, self.decoded(item)));
        let page = self.table().scan_page(segment, None, &["post_id"], after).await?;
        page.read(|items| Ok(items.iter().filter_map(counter).collect()))
    }
}

fn key(id: &str) -> Item {
    item! { "post_id": text(id) }
}

/// Makes a counter wrong on purpose, as a careless operator would by hand: for a local stack and tests. Adds `by` to
/// the total and to shard 0 of the counter of `post`. Returns `false` where the post has no counter. A repetition would
/// add again, so it is sent once.
pub async fn inject_drift(connection: &Connection, post: &PostId, by: i64) -> Outcome<bool> {
    let table = connection.counts().name;
    let sent = connection
        .by_store_clock
        .update_item()
        .table_name(table)
        .key("post_id", text(post.to_string()))
        .update_expression("ADD likes :by, s0 :by")
        .condition_expression("attribute_exists(version)")
        .expression_attribute_values(":by", number(by))
        .send()
        .await;
    Ok(unless_refused(table, sent)?.is_some())
}
