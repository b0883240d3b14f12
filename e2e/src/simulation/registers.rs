//! Records every change that is made to rows, counters and claims in the emulated DynamoDB during the simulation, so
//! that the laws can judge each of them. A claim is the item that says which consumer owns a partition and how far its
//! events are written.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use parking_lot::Mutex;
use tally_core::changes::Place;
use tally_core::fold::Counter;
use tally_core::ids::{CounterId, ReservedKey, Shard};
use tally_core::register::{Cell, Replay, Version};
use tally_core::time::UnixMillis;
use tally_core::topic::Offset;
use tally_emulator::value::{Item, Value};
use tally_emulator::{Changed, ControlError, Emulator};

use crate::simulation::events::TOPIC;

/// The table of claims.
const CHECKPOINTS: &str = "checkpoints";

/// The prefix of the sort key of rows that no process has written.
pub(crate) const FOREIGN: &str = "foreign-";

/// The first partition number of cells that no process has written; no partition has such a number.
pub(crate) const FOREIGN_CELL: u32 = 900;

/// The contents of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stored {
    /// The row of a member: the version of its event, and the expiry in seconds if it is a tombstone.
    Member { version: Version, gone: Option<u64> },
    /// The row of a partition and a sum.
    Cell(Cell),
}

/// The attributes of a claim that the laws need.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Claim {
    /// The number of the take-over.
    pub(crate) n: u64,
    /// The safe offset, and the greatest one ever.
    pub(crate) safe: u64,
    pub(crate) greatest: u64,
    /// The time by which every acknowledged event is a row.
    pub(crate) safe_at: Option<UnixMillis>,
    /// When this was stored.
    pub(crate) at: UnixMillis,
    /// Whether the partition is read again after so long that removed members may come back.
    pub(crate) is_replaying: bool,
}

/// One change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    /// A change of a row that is not a marker.
    Row {
        pk: String,
        sort: String,
        old: Option<Stored>,
        new: Option<Stored>,
    },
    Claim {
        partition: u32,
        old: Option<Claim>,
        new: Option<Claim>,
    },
    /// A change of the set of open losses by replays.
    Replays(BTreeSet<u32>),
    /// A change that no process makes.
    Odd(String),
}

/// The changes so far. Clones share them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Registers(Arc<Mutex<Kept>>);

#[derive(Debug, Default)]
struct Kept {
    changes: Vec<(UnixMillis, Change)>,
    claims: BTreeMap<u32, Claim>,
}

impl Registers {
    /// Observes `emulator` from now on. Changes of rows come from [`keep`](Self::keep).
    pub(crate) fn of(emulator: &Emulator) -> Result<Self, ControlError> {
        let registers = Self::default();
        let kept = registers.clone();
        emulator.watch(CHECKPOINTS, move |changed| kept.keep_claim(&changed))?;
        Ok(registers)
    }

    /// Adds a change of a row.
    pub(crate) fn keep(&self, changed: &Changed) {
        let Some(item) = changed.new.as_ref().or(changed.old.as_ref()) else { return };
        let (Some(pk), Some(sort)) = (item.text("pk"), item.text("user_id")) else { return };
        let is_processes = match ReservedKey::read(sort) {
            None => !sort.starts_with(FOREIGN),
            Some(ReservedKey::Cell { partition, .. }) => partition < FOREIGN_CELL,
            Some(_) => false,
        };
        if !is_processes {
            return;
        }
        let side = |item: &Option<Item>| item.as_ref().map(|item| stored(item).ok_or_else(|| format!("{item:?}")));
        let change = match (side(&changed.old).transpose(), side(&changed.new).transpose()) {
            (Ok(old), Ok(new)) => Change::Row { pk: pk.to_owned(), sort: sort.to_owned(), old, new },
            (Err(odd), _) | (_, Err(odd)) => Change::Odd(odd),
        };
        self.0.lock().changes.push((UnixMillis(changed.at_ms), change));
    }

    fn keep_claim(&self, changed: &Changed) {
        let id = changed.new.as_ref().or(changed.old.as_ref()).and_then(|item| item.text("id"));
        if id == Some("changes/losses") {
            let replays = changed.new.as_ref().map(replays).unwrap_or_default();
            self.0.lock().changes.push((UnixMillis(changed.at_ms), Change::Replays(replays)));
            return;
        }
        let index = id.and_then(|id| id.strip_prefix("claim/")?.strip_prefix(TOPIC)?.strip_prefix('/')?.parse().ok());
        let Some(partition) = index else { return };
        let (old, new) = (changed.old.as_ref().map(claim), changed.new.as_ref().map(claim));
        let mut kept = self.0.lock();
        kept.claims.insert(partition, new.unwrap_or_default());
        kept.changes.push((UnixMillis(changed.at_ms), Change::Claim { partition, old, new }));
    }

    /// The changes since the last call, with their times.
    pub(crate) fn take(&self) -> Vec<(UnixMillis, Change)> {
        std::mem::take(&mut self.0.lock().changes)
    }

    /// The claim of a partition.
    pub(crate) fn claim(&self, partition: u32) -> Claim {
        self.0.lock().claims.get(&partition).copied().unwrap_or_default()
    }
}

/// An attribute that is a whole number of at least 0.
pub(super) fn number(item: &Item, name: &str) -> Option<u64> {
    u64::try_from(item.whole(name)?).ok()
}

/// An attribute that is the version of a row.
pub(super) fn version_in(item: &Item, name: &str) -> Option<Version> {
    let Value::N(number) = item.get(name)? else { return None };
    number.to_string().parse().ok()
}

fn stored(item: &Item) -> Option<Stored> {
    if let Some(to) = version_in(item, "to") {
        return Some(Stored::Cell(Cell { n: item.whole("n")?, to }));
    }
    let gone = match item.get("gone") {
        Some(_) => Some(number(item, "gone")?),
        None => None,
    };
    Some(Stored::Member { version: version_in(item, "v")?, gone })
}

fn claim(item: &Item) -> Claim {
    let number = |name| number(item, name);
    Claim {
        n: number("n").unwrap_or_default(),
        safe: number("safe").unwrap_or_default(),
        greatest: number("greatest").unwrap_or_default(),
        safe_at: number("safe_at").map(UnixMillis),
        at: UnixMillis(number("at").unwrap_or_default()),
        is_replaying: number("replay").is_some(),
    }
}

/// The partitions whose replay is an open loss.
fn replays(item: &Item) -> BTreeSet<u32> {
    let Some(Value::M(losses)) = item.get("losses") else { return BTreeSet::new() };
    let replayed = |loss: &Value| {
        let Value::M(loss) = loss else { return None };
        let text = |name| match loss.get(name) {
            Some(Value::S(text)) => Some(text.as_str()),
            _ => None,
        };
        let is_open = loss.get("closed").is_none() && text("kind") == Some(Replay::LOSS);
        let replay: Replay = text("what").filter(|_| is_open)?.parse().ok()?;
        Some(replay.partition.index)
    };
    losses.values().filter_map(replayed).collect()
}

/// The version of an event at `offset`, in the only generation of the topic.
pub(crate) fn version(is_routed: bool, offset: u64) -> Version {
    Version::new(1, is_routed, Offset(offset))
}

/// The table of counters.
pub(crate) const COUNTS: &str = "like_counts";

/// One write of a counter: its value before and after.
#[derive(Clone, Debug)]
pub(crate) struct Write {
    pub(crate) counter: CounterId,
    pub(crate) before: Option<Counter>,
    pub(crate) after: Counter,
}

/// The writes that were not taken yet. Clones share them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Writes(Arc<Mutex<Vec<Write>>>);

impl Writes {
    /// Observes the writes in `emulator` from now on.
    pub(crate) fn watch(&self, emulator: &Emulator) -> Result<(), ControlError> {
        let writes = self.clone();
        emulator.watch(COUNTS, move |changed| {
            let id = changed.new.as_ref().and_then(|new| new.text("post_id")).and_then(|id| id.parse().ok());
            if let (Some(counter), Some(after)) = (id, changed.new.as_ref().and_then(read)) {
                let write = Write { counter, before: changed.old.as_ref().and_then(read), after };
                writes.0.lock().push(write);
            }
        })
    }

    /// The writes since the last call, in order.
    pub(crate) fn take(&self) -> Vec<Write> {
        std::mem::take(&mut *self.0.lock())
    }
}

/// Parses an item as a counter; `None` for the reserved row.
fn read(item: &Item) -> Option<Counter> {
    let part = |(name, _): (&String, &Value)| {
        let shard = Shard::new(name.strip_prefix('s')?.parse().ok()?)?;
        Some((shard, item.whole(name)?))
    };
    let doubt = match item.get("doubt") {
        Some(Value::Set(shards)) => {
            let shard = |value: &Value| match value {
                Value::N(number) => Shard::new(number.to_string().parse().ok()?),
                _ => None,
            };
            shards.iter().filter_map(shard).collect()
        }
        _ => BTreeSet::new(),
    };
    Some(Counter {
        likes: item.whole("likes")?,
        parts: item.iter().filter_map(part).collect(),
        version: Place::from_stored(number(item, "version")?),
        corrections: number(item, "c").unwrap_or_default(),
        gap: number(item, "gap").map(Place::from_stored),
        doubt,
        ..Counter::default()
    })
}
