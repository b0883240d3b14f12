//! A table: its schema, rows, expiry and stream. All changes go through one function; `op` checks the requests.

use std::collections::{BTreeMap, BTreeSet};

use rand::rngs::StdRng;

use super::Engine;
use super::image::Image;
use super::key::Key;
use super::rows::Rows;
use super::schema::{KeyAttribute, Schema};
use super::stream::{Change, Stream};
use crate::clock::{Millis, millis};
use crate::config::Config;
use crate::limits::{ON_DEMAND_PARTITIONS, PARTITION_READS, PARTITION_WRITES};
use crate::value::{Item, Value};

/// A local secondary index: the same partition key and another sort key. It can be declared, and is neither filled nor read.
#[derive(Clone, Debug)]
pub(crate) struct LocalIndex {
    pub(crate) name: String,
    pub(crate) range: KeyAttribute,
    pub(crate) projection: &'static str,
}

/// Expiry by an attribute with the time in epoch seconds.
#[derive(Debug)]
pub(crate) struct Expiry {
    pub(crate) attribute: String,
    due: BTreeSet<(u64, Key)>,
}

impl Expiry {
    fn follow(&mut self, key: &Key, old: Option<&Image>, new: Option<&Stored>) {
        if let Some(at) = old.and_then(|image| expires(&image.item(), &self.attribute)) {
            self.due.remove(&(at, key.clone()));
        }
        if let Some(at) = new.and_then(|stored| expires(&stored.item, &self.attribute)) {
            self.due.insert((at, key.clone()));
        }
    }
}

/// Every change since recovery was enabled, from which point-in-time recovery restores the items.
#[derive(Debug)]
pub(crate) struct Journal {
    /// The earliest time that can be restored.
    pub(crate) since: Millis,
    /// The time, the key, and the previous image of each change, oldest first.
    changes: Vec<(Millis, Key, Option<Image>)>,
}

impl Journal {
    pub(crate) fn new(since: Millis) -> Self {
        Self { since, changes: Vec::new() }
    }

    /// Turns the current `items` into those at the end of the millisecond `at`.
    pub(crate) fn undo(&self, items: &mut BTreeMap<Key, Image>, at: Millis) {
        for (_, key, before) in self.changes.iter().rev().take_while(|(changed, ..)| *changed > at) {
            match before {
                Some(image) => items.insert(key.clone(), image.clone()),
                None => items.remove(key),
            };
        }
    }
}

/// Provisioned read and write units; `None` means on demand.
pub(crate) type Provisioned = Option<(u64, u64)>;

pub(crate) struct Table {
    pub(crate) name: String,
    pub(crate) arn: String,
    pub(crate) id: String,
    pub(crate) created: Millis,
    pub(crate) schema: Schema,
    pub(crate) provisioned: Provisioned,
    /// Whether deletion protection is enabled.
    pub(crate) protected: bool,
    pub(crate) rows: Rows,
    pub(crate) indexes: Vec<LocalIndex>,
    pub(crate) expiry: Option<Expiry>,
    pub(crate) stream: Option<Stream>,
    /// The history of the items, while point-in-time recovery is enabled.
    pub(crate) journal: Option<Journal>,
    pub(crate) watch: Option<Watch>,
    /// The total size of all items.
    pub(crate) bytes: usize,
}

/// One change of one item.
#[derive(Clone, Debug)]
pub struct Changed {
    /// The time in milliseconds since the Unix epoch.
    pub at_ms: u64,
    /// The item before; `None` if it was new.
    pub old: Option<Item>,
    /// The item after; `None` if it was removed.
    pub new: Option<Item>,
}

/// A callback for every change, independently of streams. It must not call the emulator.
pub(crate) type Watch = Box<dyn FnMut(Changed) + Send>;

/// An item to store: as a tree, and as its image.
#[derive(Clone, Debug)]
pub(crate) struct Stored {
    pub(crate) item: Item,
    pub(crate) image: Image,
}

/// The parts of the engine that every write needs.
pub(crate) struct Context<'a> {
    pub(crate) now: Millis,
    pub(crate) config: &'a Config,
    pub(crate) rng: &'a mut StdRng,
    /// Whether an expiry deletes the item.
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

    pub(crate) fn partitions(&self) -> u64 {
        let Some((read, write)) = self.provisioned else { return ON_DEMAND_PARTITIONS };
        // A provisioned table begins with as many partitions as its units require, rounded up.
        let asked = read.saturating_mul(PARTITION_WRITES).saturating_add(write.saturating_mul(PARTITION_READS));
        asked.div_ceil(PARTITION_READS * PARTITION_WRITES).max(1)
    }

    /// Sets or removes one item in the rows, the expiry and the stream. A write that changes nothing has no
    /// effect.
    pub(crate) fn write(&mut self, key: &Key, new: Option<&Stored>, context: &mut Context<'_>) {
        let old = self.rows.get(key, None).cloned();
        if old.as_ref() == new.map(|stored| &stored.image) {
            return;
        }
        let lag = millis(context.config.read_lag);
        let image = new.map(|stored| stored.image.clone());
        self.bytes += image.as_ref().map_or(0, Image::size);
        self.bytes -= old.as_ref().map_or(0, Image::size);
        if let Some(expiry) = &mut self.expiry {
            expiry.follow(key, old.as_ref(), new);
        }
        self.rows.set(key, image.clone(), context.now, lag);
        if let Some(journal) = &mut self.journal {
            journal.changes.push((context.now, key.clone(), old.clone()));
        }
        if let Some(watch) = &mut self.watch {
            let [old, new] = [&old, &image].map(|image| image.as_ref().map(Image::item));
            watch(Changed { at_ms: context.now, old, new });
        }
        if let Some(stream) = &mut self.stream {
            let change = Change { key, old, new: image, by_service: context.by_service };
            stream.append(change, context.now, context.config, context.rng);
        }
    }

    /// The number of items with an expiry.
    pub(crate) fn expiring(&self) -> usize {
        self.expiry.as_ref().map_or(0, |expiry| expiry.due.len())
    }

    /// Enables expiry by an attribute. This reads every row once.
    pub(crate) fn expire_by(&mut self, attribute: String) {
        let everything = (std::ops::Bound::Unbounded, std::ops::Bound::Unbounded);
        let due = self
            .rows
            .range(everything, true, None)
            .filter_map(|(key, image)| Some((expires(&image.item(), &attribute)?, key.clone())))
            .collect();
        self.expiry = Some(Expiry { attribute, due });
    }

    /// Deletes every expired item.
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

    /// Deletes every item with an expiry before it has come. Returns their number.
    pub(crate) fn expire_early(&mut self, context: &mut Context<'_>) -> usize {
        let due = self.expiry.as_mut().map(|expiry| std::mem::take(&mut expiry.due)).unwrap_or_default();
        for (_, key) in &due {
            self.write(key, None, context);
        }
        due.len()
    }
}

/// A time more than five years ago is assumed to be a mistake and never expires, as in DynamoDB.
const MISTAKE_SECONDS: u64 = 5 * 365 * 24 * 3600;

/// The second at which an item expires: that of its attribute, rounded up.
fn expires(item: &Item, attribute: &str) -> Option<u64> {
    let Value::N(number) = item.get(attribute)? else { return None };
    let text = number.to_string();
    let (whole, fraction) = text.split_once('.').unwrap_or((&text, ""));
    whole.parse::<u64>().ok()?.checked_add(u64::from(!fraction.is_empty()))
}
