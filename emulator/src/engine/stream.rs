//! A table's change stream: it writes each change into the shard of its key. A split replaces a shard with two, a roll
//! with one, and a trim drops its oldest records.

use std::collections::{BTreeMap, VecDeque};

use rand::RngExt;
use rand::rngs::StdRng;

use super::image::Image;
use super::key::Key;
use super::schema::Schema;
use super::shard::{End, Record, Shard};
use super::table::Table;
use crate::clock::{Millis, label, millis};
use crate::config::Config;

/// A change before it becomes a record.
pub(crate) struct Change<'a> {
    pub(crate) key: &'a Key,
    pub(crate) old: Option<Image>,
    pub(crate) new: Option<Image>,
    pub(crate) by_service: bool,
}

/// The sequence number before a stream's first, of 21 digits as in DynamoDB.
const BASE: u128 = 100_000_000_000_000_000_000;

/// One stream, from the time at which it is enabled until 24 hours after it is disabled.
#[derive(Debug)]
pub(crate) struct Stream {
    pub(crate) arn: String,
    pub(crate) label: String,
    pub(crate) table: String,
    /// The images that its records contain: a `StreamViewType`.
    pub(crate) view: &'static str,
    pub(crate) schema: Schema,
    pub(crate) created: Millis,
    /// When it was disabled or its table deleted.
    pub(crate) disabled: Option<Millis>,
    pub(crate) shards: BTreeMap<String, Shard>,
    /// The open shards by the start of their range. Together they cover the key space.
    open: BTreeMap<Key, String>,
    born: u32,
    sequence: u64,
    /// When the age of the open shards was last checked.
    swept: Millis,
}

impl Stream {
    /// A stream whose first shards divide the key space evenly.
    pub(crate) fn new(table: &Table, view: &'static str, now: Millis, config: &Config) -> Self {
        let label = label(now);
        let mut stream = Self {
            arn: format!("{}/stream/{label}", table.arn),
            label,
            table: table.name.clone(),
            view,
            schema: table.schema.clone(),
            created: now,
            disabled: None,
            shards: BTreeMap::new(),
            open: BTreeMap::new(),
            born: 0,
            sequence: 0,
            swept: now,
        };
        let count = u64::from(config.shards.max(1));
        let width = u64::MAX / count;
        for nth in 0..count {
            let high = (nth + 1 < count).then(|| Key::at_hash((nth + 1) * width));
            stream.open_shard(None, Key::at_hash(nth * width), high, now);
        }
        stream
    }

    fn open_shard(&mut self, parent: Option<&str>, low: Key, high: Option<Key>, now: Millis) -> String {
        // An odd factor permutes the 32-bit numbers: the suffix is unique and does not reveal the order of creation.
        let suffix = self.born.wrapping_add(1).wrapping_mul(0x9E37_79B1);
        self.born += 1;
        let id = format!("shardId-{now:020}-{suffix:08x}");
        let start = self.next_sequence();
        let shard = Shard {
            id: id.clone(),
            parent: parent.map(str::to_owned),
            low: low.clone(),
            high,
            created: now,
            start,
            end: None,
            log: VecDeque::new(),
            trimmed: 0,
            written: 0,
        };
        self.open.insert(low, id.clone());
        self.shards.insert(id.clone(), shard);
        id
    }

    /// The next sequence number. The steps are uneven, so that a client cannot predict it.
    fn next_sequence(&mut self) -> u64 {
        self.sequence += 1 + (self.sequence.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 56);
        self.sequence
    }

    /// Formats a sequence number for clients.
    pub(crate) fn sequence_text(&self, sequence: u64) -> String {
        (BASE + u128::from(sequence)).to_string()
    }

    /// Parses a sequence number from a client.
    pub(crate) fn sequence_of(&self, text: &str) -> Option<u64> {
        text.parse::<u128>().ok()?.checked_sub(BASE)?.try_into().ok()
    }

    pub(crate) fn open_ids(&self) -> Vec<String> {
        self.open.values().cloned().collect()
    }

    /// Writes a change into the shard that contains its key now.
    pub(crate) fn append(&mut self, change: Change<'_>, now: Millis, config: &Config, rng: &mut StdRng) {
        let sequence = self.next_sequence();
        let horizon = now.saturating_sub(millis(config.stream_retention));
        let delay = millis(config.stream_delay);
        let Some(shard) = self.open.range(..=change.key).next_back().and_then(|(_, id)| self.shards.get_mut(id)) else {
            return;
        };
        shard.trim_while(|record| record.created < horizon);
        let delayed = if delay == 0 { now } else { now.saturating_add(rng.random_range(0..=delay)) };
        let visible = shard.log.back().map_or(delayed, |last| last.visible.max(delayed));
        let Change { old, new, by_service, .. } = change;
        shard.written += 1;
        shard.log.push_back(Record { sequence, created: now, visible, old, new, by_service });
        let window = millis(config.stream_reorder);
        if window > 0 {
            shard.reorder_newest(rng.random_range(0..8), now, window);
        }
        if config.split_after.is_some_and(|limit| shard.written >= limit) {
            let id = shard.id.clone();
            let may_split = self.open.len() < config.max_open_shards;
            // A shard with a single hash cannot be split, so it is rolled.
            if !(may_split && self.split(&id, None, now).is_some()) {
                self.roll(&id, now);
            }
        }
    }

    /// Closes a shard and opens one child for its range.
    pub(crate) fn roll(&mut self, id: &str, now: Millis) -> Option<Vec<String>> {
        let (low, high) = self.close(id, now)?;
        Some(vec![self.open_shard(Some(id), low, high, now)])
    }

    /// Closes a shard and opens two children, cut at the hash of `at`, or in the middle of its range. Collections stay whole.
    /// Returns `None` if the shard is closed or cannot be cut there.
    pub(crate) fn split(&mut self, id: &str, at: Option<Key>, now: Millis) -> Option<Vec<String>> {
        let shard = self.shards.get(id).filter(|shard| shard.is_open())?;
        let cut = at.map_or_else(|| middle(shard), |at| Key::at_hash(at.hash()));
        if cut <= shard.low || shard.high.as_ref().is_some_and(|high| cut >= *high) {
            return None;
        }
        let (low, high) = self.close(id, now)?;
        let left = self.open_shard(Some(id), low, Some(cut.clone()), now);
        let right = self.open_shard(Some(id), cut, high, now);
        Some(vec![left, right])
    }

    /// The open shard that contains this key.
    pub(crate) fn holding(&self, key: &Key) -> Option<&str> {
        self.open.range(..=key).next_back().map(|(_, id)| id.as_str())
    }

    fn close(&mut self, id: &str, now: Millis) -> Option<(Key, Option<Key>)> {
        let sequence = self.next_sequence();
        let shard = self.shards.get_mut(id).filter(|shard| shard.is_open())?;
        shard.end = Some(End { sequence, closed: now });
        self.open.remove(&shard.low);
        Some((shard.low.clone(), shard.high.clone()))
    }

    /// Disables the stream: its shards close without children.
    pub(crate) fn disable(&mut self, now: Millis) {
        for id in self.open_ids() {
            self.close(&id, now);
        }
        self.disabled = Some(now);
    }

    /// Does what is due: rolls old shards, and drops old records and old closed shards.
    pub(crate) fn sweep(&mut self, now: Millis, config: &Config) {
        if now < self.swept + 1000 {
            return;
        }
        self.swept = now;
        if let Some(age) = config.roll_after.map(millis).filter(|age| *age > 0) {
            let is_old = |shard: &&Shard| shard.is_open() && shard.created.saturating_add(age) <= now;
            let old: Vec<String> = self.shards.values().filter(is_old).map(|shard| shard.id.clone()).collect();
            for id in old {
                self.roll(&id, now);
            }
        }
        let horizon = now.saturating_sub(millis(config.stream_retention));
        for shard in self.shards.values_mut() {
            shard.trim_while(|record| record.created < horizon);
        }
        self.shards.retain(|_, shard| shard.end.is_none_or(|end| end.closed >= horizon));
    }

    /// Drops records early, of one shard or all, up to a sequence number or all. Returns the number of records.
    pub(crate) fn trim(&mut self, id: Option<&str>, sequence: Option<u64>) -> usize {
        let sequence = sequence.unwrap_or(u64::MAX);
        self.shards
            .values_mut()
            .filter(|shard| id.is_none_or(|id| shard.id == id))
            .map(|shard| shard.trim_while(|record| record.sequence <= sequence))
            .sum()
    }

    pub(crate) fn records(&self) -> usize {
        self.shards.values().map(|shard| shard.log.len()).sum()
    }
}

/// The middle of a shard's range of hashes.
fn middle(shard: &Shard) -> Key {
    let low = shard.low.hash();
    let high = shard.high.as_ref().map_or(u64::MAX, Key::hash);
    Key::at_hash(low + (high - low) / 2)
}
