//! A table: its schema, rows, local indexes, expiry and stream, and the one function through which anything in it changes; leaves checking requests to the operations.

use std::collections::BTreeSet;

use rand::rngs::StdRng;

use super::Engine;
use super::image::Image;
use super::journal::Journal;
use super::key::Key;
use super::rows::Rows;
use super::schema::{KeyAttribute, Schema};
use super::stream::{Change, Stream};
use super::watch::Watch;
use crate::clock::{Millis, millis};
use crate::config::Config;
use crate::error::Error;
use crate::limits::{ON_DEMAND_PARTITIONS, PARTITION_READS, PARTITION_WRITES};
use crate::value::{Item, Value};

/// What a local index shows of an item.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Projected {
    All,
    KeysOnly,
    Include(Vec<String>),
}

/// A local secondary index: the same partition key, another sort key, only the items that have it.
#[derive(Debug)]
pub(crate) struct LocalIndex {
    pub(crate) name: String,
    pub(crate) range: KeyAttribute,
    pub(crate) projected: Projected,
    pub(crate) rows: Rows,
}

/// Expiry by an attribute that holds epoch seconds.
#[derive(Debug)]
pub(crate) struct Expiry {
    pub(crate) attribute: String,
    due: BTreeSet<(u64, Key)>,
}

/// Provisioned read and write units; `None` is on demand.
pub(crate) type Provisioned = Option<(u64, u64)>;

#[derive(Debug)]
pub(crate) struct Table {
    pub(crate) name: String,
    pub(crate) arn: String,
    pub(crate) id: String,
    pub(crate) created: Millis,
    pub(crate) schema: Schema,
    pub(crate) provisioned: Provisioned,
    /// Whether it cannot be deleted.
    pub(crate) protected: bool,
    pub(crate) rows: Rows,
    pub(crate) indexes: Vec<LocalIndex>,
    pub(crate) expiry: Option<Expiry>,
    pub(crate) stream: Option<Stream>,
    /// What items were, while the table can be restored to a moment.
    pub(crate) journal: Option<Journal>,
    pub(crate) watch: Option<Watch>,
    /// Sizes of all items together.
    pub(crate) bytes: usize,
}

/// An item that is to be stored, as a tree for the indexes and as its image for the rest.
#[derive(Clone, Debug)]
pub(crate) struct Stored {
    pub(crate) item: Item,
    pub(crate) image: Image,
}

/// What every write needs besides the item.
pub(crate) struct Context<'a> {
    pub(crate) now: Millis,
    pub(crate) config: &'a Config,
    pub(crate) rng: &'a mut StdRng,
    /// Deleted by an expiry.
    pub(crate) by_service: bool,
}

impl Table {
    /// A table without items, indexes and a stream.
    pub(crate) fn new(name: String, schema: Schema, provisioned: Provisioned, engine: &mut Engine) -> Self {
        Self {
            arn: engine.arn_of(&name),
            name,
            id: engine.uuid(),
            created: engine.now,
            schema,
            provisioned,
            protected: false,
            rows: Rows::default(),
            indexes: Vec::new(),
            expiry: None,
            stream: None,
            journal: None,
            watch: None,
            bytes: 0,
        }
    }

    /// How many partitions the table begins with. The server never splits one.
    pub(crate) fn is_on_demand(&self) -> bool {
        self.provisioned.is_none()
    }

    pub(crate) fn partitions(&self) -> u64 {
        let Some((read, write)) = self.provisioned else { return ON_DEMAND_PARTITIONS };
        // A provisioned table begins with as many as its units ask for, the sum rounded up.
        let asked = read.saturating_mul(PARTITION_WRITES).saturating_add(write.saturating_mul(PARTITION_READS));
        asked.div_ceil(PARTITION_READS * PARTITION_WRITES).max(1)
    }

    pub(crate) fn index(&self, name: &str) -> Result<&LocalIndex, Error> {
        self.indexes
            .iter()
            .find(|index| index.name == name)
            .ok_or_else(|| Error::validation(format!("The table does not have the specified index: {name}")))
    }

    /// Sets or removes one item, in the rows, the indexes, the expiry and the stream; a write that changes nothing leaves no trace.
    pub(crate) fn write(&mut self, key: &Key, new: Option<&Stored>, context: &mut Context<'_>) {
        let old = self.rows.get(key, None).cloned();
        if old.as_ref() == new.map(|stored| &stored.image) {
            return;
        }
        let lag = millis(context.config.read_lag);
        let image = new.map(|stored| stored.image.clone());
        self.bytes += image.as_ref().map_or(0, Image::size);
        self.bytes -= old.as_ref().map_or(0, Image::size);
        self.reindex(key, old.as_ref(), new, context.now, lag);
        self.rows.set(key, image.clone(), context.now, lag);
        if let Some(journal) = &mut self.journal {
            journal.note(context.now, key, old.clone());
        }
        if let Some(watch) = &mut self.watch {
            watch.tell(context.now, old.as_ref().map(Image::item), image.as_ref().map(Image::item));
        }
        if let Some(stream) = &mut self.stream {
            let change = Change { key, old, new: image, by_service: context.by_service };
            stream.append(change, context.now, context.config, context.rng);
        }
    }

    fn reindex(&mut self, key: &Key, old: Option<&Image>, new: Option<&Stored>, now: Millis, lag: Millis) {
        let had_entries = self.indexes.iter().any(|index| !index.rows.is_empty()) || self.expiry.is_some();
        let old = old.filter(|_| had_entries).map(|image| Stored { item: image.item(), image: image.clone() });
        for index in &mut self.indexes {
            let entry = |stored: &Stored| index_key(&self.schema, &index.range, &stored.item);
            let (before, after) = (old.as_ref().and_then(entry), new.and_then(entry));
            if let Some(before) = before.filter(|before| after.as_ref() != Some(before)) {
                index.rows.set(&before, None, now, lag);
            }
            if let (Some(after), Some(stored)) = (after, new) {
                index.rows.set(&after, Some(stored.image.clone()), now, lag);
            }
        }
        if let Some(expiry) = &mut self.expiry {
            if let Some(at) = old.as_ref().and_then(|stored| expires(&stored.item, &expiry.attribute)) {
                expiry.due.remove(&(at, key.clone()));
            }
            if let Some(at) = new.and_then(|stored| expires(&stored.item, &expiry.attribute)) {
                expiry.due.insert((at, key.clone()));
            }
        }
    }

    /// How many items have a time at which they are deleted.
    pub(crate) fn expiring(&self) -> usize {
        self.expiry.as_ref().map_or(0, |expiry| expiry.due.len())
    }

    /// Starts expiring items by an attribute; looks at every row once.
    pub(crate) fn expire_by(&mut self, attribute: String) {
        let everything = (std::ops::Bound::Unbounded, std::ops::Bound::Unbounded);
        let due = self
            .rows
            .range(everything, true, None)
            .filter_map(|(key, image)| Some((expires(&image.item(), &attribute)?, key.clone())))
            .collect();
        self.expiry = Some(Expiry { attribute, due });
    }

    /// Deletes every item whose time has come.
    pub(crate) fn expire(&mut self, context: &mut Context<'_>) {
        let second = context.now / 1000;
        while let Some(expiry) = &mut self.expiry
            && expiry.due.first().is_some_and(|(at, _)| *at <= second)
        {
            let Some((at, key)) = expiry.due.pop_first() else { return };
            if at + MISTAKE_SECONDS >= second {
                self.write(&key, None, context);
            }
        }
    }

    /// Deletes every item that has a time at which it is deleted, before that time; returns how many there were.
    pub(crate) fn expire_early(&mut self, context: &mut Context<'_>) -> usize {
        let due = self.expiry.as_mut().map(|expiry| std::mem::take(&mut expiry.due)).unwrap_or_default();
        for (_, key) in &due {
            self.write(key, None, context);
        }
        due.len()
    }
}

/// Where an index keeps an item, if the item has the index's sort key.
pub(crate) fn index_key(schema: &Schema, range: &KeyAttribute, item: &Item) -> Option<Key> {
    let sort = item.get(&range.name).filter(|value| value.type_code() == range.key_type.name())?;
    let base = schema.range.as_ref().and_then(|base| item.get(&base.name));
    let sorts: Vec<&Value> = std::iter::once(sort).chain(base).collect();
    Some(Key::new(item.get(&schema.hash.name)?, &sorts))
}

/// A time more than five years gone is taken for a mistake and never expires, as in DynamoDB.
const MISTAKE_SECONDS: u64 = 5 * 365 * 24 * 3600;

/// The epoch second an item expires at: the one its attribute names, or the next one after a fraction.
fn expires(item: &Item, attribute: &str) -> Option<u64> {
    match item.get(attribute)? {
        Value::N(number) => number.ceiling().and_then(|second| u64::try_from(second).ok()),
        _ => None,
    }
}
