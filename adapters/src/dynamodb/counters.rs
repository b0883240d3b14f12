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
//! One row is no counter: the reserved row shows that this table is the deployment's own, and no new one of the same
//! name. Without it an absent counter is not known to be 0. If it was put in the place of a lost one, its
//! attribute `since` says when.

mod update;

use std::collections::{BTreeMap, BTreeSet};

use aws_sdk_dynamodb::operation::transact_write_items::TransactWriteItemsError as Error;
use aws_sdk_dynamodb::types::{
    CancellationReason, ReturnValuesOnConditionCheckFailure, TransactWriteItem, Update as UpdateItem,
};
use tally_core::fault::Fault;
use tally_core::fold::Counter;
use tally_core::ids::{CounterId, PostId};
use tally_core::milestone::Milestone;
use tally_core::ports::Outcome;
use tally_core::time::UnixMillis;

pub use self::update::Update;
pub(super) use self::update::encode;
use super::connection::{COUNTS, Connection};
use super::cursor::{Cursor, Page, Segment};
use super::fault::of_reasons;
use super::item::{Item, Reader, item, number, text};
use super::recounts::put_milestone;
use super::table::{Consistency, Table, Values, names};

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
        let distinct: BTreeMap<_, _> = ids.iter().map(|id| (id.stored().into(), id.clone())).collect();
        let count = distinct.len();
        let decode = |reader: &Reader<'_>| Ok(update::decode(reader));
        let counters = self.table().find_all(("post_id", Item::new()), distinct, consistency, decode).await?;
        if counters.len() == count {
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
        // `Err(None)`: refused, and no row.
        Ok(!matches!(put, Err(None)))
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
        let counter = |item: Item| Some((item.get("post_id")?.as_s().ok()?.parse().ok()?, self.decoded(&item)));
        let page = self.table().scan_page(segment, None, &["post_id"], after).await?;
        page.read(|item| Ok(counter(item)))
    }
}

fn key(id: &str) -> Item {
    item! { "post_id": text(id) }
}

/// Makes a counter wrong on purpose, as a careless operator would by hand: for a local stack and tests. Adds `by` to
/// the total and to shard 0 of the counter of `post`. Returns `false` where the post has no counter. A repetition would
/// add again, so it is sent once.
pub async fn inject_drift(connection: &Connection, post: &PostId, by: i64) -> Outcome<bool> {
    let table = connection.counts();
    let sent = connection
        .by_store_clock
        .update_item()
        .table_name(table.name)
        .key("post_id", text(post.to_string()))
        .update_expression("ADD likes :by, s0 :by")
        .condition_expression("attribute_exists(version)")
        .expression_attribute_values(":by", number(by))
        .send()
        .await;
    Ok(table.conditional(sent)?.is_ok())
}

/// The outcome of an update by which a counter crosses thresholds: one transaction writes the counter and the records of
/// its milestones (who brought it to each threshold), all or nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Crossed {
    /// The counter is as the update says, and each milestone has its record.
    Stored,
    /// Nothing was written: the counter is not as the update names it, as in [`Written::Refused`].
    Refused(Option<Counter>),
    /// Nothing was written: these thresholds have a record already. The caller writes the counter alone, or with the
    /// other records.
    Recorded(Vec<i64>),
}

impl Counters {
    /// How many shards an update with milestones may change: a condition has room for 4 KB and 300 operators.
    pub const SHARDS_CROSSED: usize = 100;

    /// Writes a counter and the records of the milestones that it reaches. Safe to repeat for the reason that makes
    /// [`write`](Self::write) so; and a record is put only where there is none.
    ///
    /// # Errors
    /// [`Fault::Transient`]: it is not known whether it was carried out. [`Fault::Poison`] where the update changes
    /// more than [`Self::SHARDS_CROSSED`] shards: the caller then writes what comes before the first milestone by
    /// itself.
    pub async fn cross(&self, update: &Update, reached: &[Milestone]) -> Outcome<Crossed> {
        let (table, counter) = (self.table().name, &update.counter);
        let (shards, most) = (update.shards(), Self::SHARDS_CROSSED);
        if shards > most {
            let why = format!("an update of {counter} with milestones changes {shards} shards, {most} at most");
            return Err(Fault::Poison(format!("{table}: {why}")));
        }
        self.connection.watch.open_to(COUNTS)?;
        let recounts = self.connection.recounts().name;
        let put = |reached| TransactWriteItem::builder().put(put_milestone(recounts, counter, reached)).build();
        let mut items = vec![TransactWriteItem::builder().update(self.conditional(update)).build()];
        items.extend(reached.iter().map(put));
        let sent = self.connection.client.transact_write_items().set_transact_items(Some(items)).send().await;
        let Err(error) = sent else { return Ok(Crossed::Stored) };
        let Some(Error::TransactionCanceledException(said)) = error.as_service_error() else {
            return Err(self.table().fault(&error));
        };
        let what = said.message().unwrap_or("transaction cancelled");
        self.cancelled(reached, said.cancellation_reasons(), what)
    }

    fn conditional(&self, update: &Update) -> UpdateItem {
        let mut values = Values::default();
        let (expression, condition) = update.expressions(&mut values);
        UpdateItem::builder()
            .table_name(self.table().name)
            .set_key(Some(key(&update.counter.stored())))
            .set_expression_attribute_names(names(&[&expression, &condition]))
            .update_expression(expression)
            .condition_expression(condition)
            .set_expression_attribute_values(values.finish())
            .return_values_on_condition_check_failure(ReturnValuesOnConditionCheckFailure::AllOld)
            .build()
            .expect("table, key and expression are set")
    }

    /// Finds the condition that did not hold; that of the counter comes first.
    fn cancelled(&self, reached: &[Milestone], reasons: &[CancellationReason], said: &str) -> Outcome<Crossed> {
        let refused = |reason: &CancellationReason| reason.code() == Some("ConditionalCheckFailed");
        if let Some(update) = reasons.first().filter(|update| refused(update)) {
            let stands = update.item().filter(|item| !item.is_empty()).map(|item| self.decoded(item));
            return Ok(Crossed::Refused(stands.transpose()?));
        }
        let puts = reached.iter().zip(reasons.iter().skip(1)).filter(|(_, reason)| refused(reason));
        let recorded: Vec<i64> = puts.map(|(milestone, _)| milestone.n).collect();
        if recorded.is_empty() {
            Err(of_reasons(self.table().name, reasons, said))
        } else {
            Ok(Crossed::Recorded(recorded))
        }
    }
}
