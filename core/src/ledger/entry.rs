//! An entry of the ledger, and the message that carries entries: how they are written and read.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::ids::{CounterName, Ordinal, PostId, Region, Sequence};
use crate::tally::{Record, RecordKind};

/// The form that messages are written in.
const VERSION: u64 = 1;

/// What one record of the stream did to one counter: taken off one side, put on the other.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Change {
    /// What is counted: a post, or another subject.
    pub subject: PostId,
    /// Which of its counters.
    pub counter: CounterName,
    /// What the row weighed, and where it was counted.
    pub before: Side,
    /// What it weighs, and where it is counted.
    pub after: Side,
    /// The second of the change.
    pub second: u64,
    /// The record's position in its stream shard.
    pub sequence: Sequence,
}

/// A row before or after a change.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Side {
    /// The region it is counted in.
    pub region: Option<Region>,
    /// What it weighs.
    pub weight: i64,
}

/// The entries of one prefix of a stream shard in one partition of the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// The stream shard.
    pub shard: Ordinal,
    /// The entries, in the order of the stream.
    pub changes: Vec<Change>,
}

/// Why a record of the log is no message.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum BadMessage {
    /// It is of a form that this build does not know.
    #[error("it is written in version {0}, this build knows {VERSION}")]
    Version(u64),
    /// It is not of the form that its version has.
    #[error("it is not readable: {0}")]
    Malformed(String),
}

/// An entry as it is written.
#[derive(Serialize, Deserialize)]
struct Wire<'a>(
    #[serde(borrow)] Cow<'a, str>,
    Cow<'a, str>,
    Option<Cow<'a, str>>,
    i64,
    Option<Cow<'a, str>>,
    i64,
    u64,
    Cow<'a, str>,
);

impl Change {
    /// What `record` did; `None` where it changed nothing that is counted.
    pub fn of(record: &Record) -> Option<Self> {
        let RecordKind::Row { key, before, after, regions, .. } = &record.kind else { return None };
        let regions = regions.as_deref().cloned().unwrap_or_default();
        let mut before = Side { region: regions.before, weight: before.get() };
        let mut after = Side { region: regions.after, weight: after.get() };
        // Where a row weighs nothing, its region is the one that it comes to or goes from.
        if before.weight == 0 {
            before.region.clone_from(&after.region);
        } else if after.weight == 0 {
            after.region.clone_from(&before.region);
        }
        (before != after).then(|| Self {
            subject: key.counter.post.clone(),
            counter: key.counter.name.clone(),
            before,
            after,
            second: record.written.0 / 1000,
            sequence: record.sequence,
        })
    }

    /// Writes the entry behind what is in `bytes`.
    pub(super) fn write(&self, bytes: &mut Vec<u8>) {
        let region = |side: &'_ Side| side.region.as_ref().map(|region| region.as_str().to_owned().into());
        let wire = Wire(
            self.subject.as_str().into(),
            self.counter.marked().into(),
            region(&self.before),
            self.before.weight,
            region(&self.after),
            self.after.weight,
            self.second,
            self.sequence.as_str().into(),
        );
        serde_json::to_writer(bytes, &wire).expect("text and integers always serialise");
    }

    fn read(wire: &Wire<'_>) -> Result<Self, String> {
        let Wire(subject, counter, region_before, before, region_after, after, second, sequence) = wire;
        let side = |region: &Option<Cow<'_, str>>, weight| {
            let region = region.as_deref().map(|text| Region::new(text).ok_or_else(|| format!("region {text:?}")));
            Ok::<_, String>(Side { region: region.transpose()?, weight })
        };
        Ok(Self {
            subject: PostId::new(subject).map_err(|error| error.to_string())?,
            counter: CounterName::from_marked(counter).map_err(|error| error.to_string())?,
            before: side(region_before, *before)?,
            after: side(region_after, *after)?,
            second: *second,
            sequence: sequence.parse().map_err(|error: crate::ids::BadSequence| error.to_string())?,
        })
    }
}

/// The value of the message with these entries, written one behind another with commas between them.
pub(super) fn value(shard: Ordinal, entries: &[u8]) -> Vec<u8> {
    let head = format!("{{\"v\":{VERSION},\"g\":{shard},\"changes\":[");
    [head.as_bytes(), entries, b"]}"].concat()
}

impl Message {
    /// Reads a message.
    ///
    /// # Errors
    /// It is of another version, or not of the form that this one has.
    pub fn read(value: &[u8]) -> Result<Self, BadMessage> {
        #[derive(Deserialize)]
        struct Versioned {
            v: u64,
        }
        #[derive(Deserialize)]
        struct Body<'a> {
            g: u64,
            #[serde(borrow)]
            changes: Vec<Wire<'a>>,
        }
        let malformed = |error: serde_json::Error| BadMessage::Malformed(error.to_string());
        let Versioned { v } = serde_json::from_slice(value).map_err(malformed)?;
        if v != VERSION {
            return Err(BadMessage::Version(v));
        }
        let Body { g, changes } = serde_json::from_slice(value).map_err(malformed)?;
        let changes = changes.iter().map(Change::read).collect::<Result<_, _>>().map_err(BadMessage::Malformed)?;
        Ok(Self { shard: Ordinal(g), changes })
    }
}
