//! The messages of the log of changes, and how they are written and read as JSON.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::entry::Wire as WireEntry;
use super::{Entry, Place};
use crate::ids::{CounterId, CounterName, PostId, Sequence, Shard, StreamShard};
use crate::milestone::Ladder;
use crate::time::UnixMillis;

/// The layout that messages are written in. Layout 1 was the ledger of the second edition; entries of layout 2 had no
/// row versions.
const VERSION: u64 = 3;

/// The deployment that a message belongs to: two deployments on one Kafka never mix.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DeploymentId(pub Box<str>);

/// The number of a loss: milliseconds since the Unix epoch, at least the current second, and greater than all numbers
/// before it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct LossNumber(pub u64);

impl fmt::Display for LossNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A message of the log.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Message {
    /// When its sender read what the message is about, by the table's clock. A filter skips a message of the stream
    /// that is appended much later.
    pub read: UnixMillis,
    /// What it says.
    pub body: Body,
}

/// What a message says.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Body {
    /// Intervals of stream shards.
    Sections {
        /// The sections, at most one of each stream shard.
        sections: Vec<Section>,
        /// The losses that are open as far as the sender knows; it repeats them each second.
        losses: Vec<LossNumber>,
    },
    /// Stream shards whose sections will follow.
    Opened(Opened),
    /// A stream shard ended, and all of it is in the log.
    Closed(Closed),
    /// A part of the stream or of the log is lost.
    Lost(Lost),
    /// An audit that began after this loss has settled every key, so the loss is closed.
    Repaired(LossNumber),
    /// A recount corrects a counter.
    Correction(Correction),
    /// Thresholds of milestones that are in force behind this message.
    Ladder(Ladder),
}

/// An interval of one stream shard: every entry behind `back` and up to `to` that belongs to the partition.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Section {
    /// The stream shard.
    pub shard: StreamShard,
    /// The back-link: the last position of the stream shard that was in the partition before this section. `None` is
    /// its beginning.
    pub back: Option<Sequence>,
    /// The position up to which the stream shard is in the partition with this section.
    pub to: Option<Sequence>,
    /// Everything that was written to the stream shard before this time is in the partition.
    pub fed: Option<UnixMillis>,
    /// The entries, in the order of the stream.
    pub entries: Vec<Entry>,
}

/// An announcement of all stream shards whose sections will follow.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Opened {
    /// The stream shards that are not read to their end. Empty where the message only names those that ended.
    pub shards: Vec<Opening>,
    /// The stream shards whose closings are in every partition, for readers that missed one.
    pub ended: Vec<StreamShard>,
}

/// One stream shard of an announcement.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Opening {
    /// The stream shard.
    #[serde(rename = "s")]
    pub shard: StreamShard,
    /// The position up to which it is in every partition; `None` is its beginning.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at: Option<Sequence>,
    /// Everything that was written to it before this time is in every partition.
    #[serde(default)]
    pub fed: UnixMillis,
}

/// A stream shard ended, and all of it is in the log.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Closed {
    /// The stream shard.
    #[serde(rename = "s")]
    pub shard: StreamShard,
    /// The back-link, as in a section.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub back: Option<Sequence>,
    /// Everything that was written to it before this time was in the log while it was still open.
    pub fed: UnixMillis,
    /// The stream shards that continue it.
    pub children: Vec<StreamShard>,
}

/// A part of the stream or of the log is lost. It is announced in every partition before anything behind it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Lost {
    /// Its number.
    #[serde(rename = "n")]
    pub number: LossNumber,
    /// Where a part of the stream is lost: the stream shard, and the first record behind the lost part.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<(StreamShard, Sequence)>,
}

/// A correction of a counter. The counter applies it once and as a whole, and only if the recount knew every
/// correction and loss before it. So one look at a counter sends one correction: a second one would not know of the
/// first.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Correction {
    /// The counter.
    pub counter: CounterId,
    /// What to do with each shard that is wrong. The total becomes the sum of all parts.
    pub parts: BTreeMap<Shard, Amend>,
    /// How many corrections the counter had when the recount read it.
    pub seen: u64,
    /// The last announcement of a loss before the log tail that the recount read.
    pub loss: Option<Place>,
}

/// What a correction makes of one shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Amend {
    /// Adds this to its part, and ends its doubt. A gain of 0 ends a doubt, or corrects the total alone.
    Add(i64),
    /// Marks it as doubtful and adds nothing: a row of it cannot be read, or the gain follows in a second correction.
    Doubt,
}

/// Why a record of the log is no message, so that its reader stops there.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum BadMessage {
    /// It has a layout that this build does not know.
    #[error("it is written in version {0}, this build knows {VERSION}")]
    Version(u64),
    /// It belongs to another deployment.
    #[error("it is of deployment {0:?}")]
    Deployment(String),
    /// It does not have the form of its layout.
    #[error("it is not readable: {0}")]
    Malformed(String),
}

/// The JSON object of a message: it has one of the fields behind `read` (`losses` and `ended` go with `sections` and
/// `opened`).
#[derive(Default, Serialize, Deserialize)]
struct Wire<'a> {
    v: u64,
    #[serde(borrow)]
    of: Cow<'a, str>,
    read: UnixMillis,
    #[serde(default, borrow, skip_serializing_if = "Option::is_none")]
    sections: Option<Vec<WireSection<'a>>>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    losses: Vec<LossNumber>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    opened: Option<Vec<Opening>>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    ended: Vec<StreamShard>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    closed: Option<Closed>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    lost: Option<Lost>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    repaired: Option<LossNumber>,
    #[serde(default, borrow, skip_serializing_if = "Option::is_none")]
    correction: Option<WireCorrection<'a>>,
    #[serde(default, borrow, skip_serializing_if = "Option::is_none")]
    ladder: Option<Cow<'a, str>>,
}

/// The fields that decide whether the rest is read.
#[derive(Deserialize)]
struct Head<'a> {
    v: u64,
    #[serde(borrow, default)]
    of: Cow<'a, str>,
}

#[derive(Serialize, Deserialize)]
struct WireSection<'a> {
    s: StreamShard,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    back: Option<Sequence>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    to: Option<Sequence>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    fed: Option<UnixMillis>,
    #[serde(default, borrow, skip_serializing_if = "Vec::is_empty")]
    e: Vec<WireEntry<'a>>,
}

#[derive(Serialize, Deserialize)]
struct WireCorrection<'a> {
    #[serde(borrow)]
    subject: Cow<'a, str>,
    #[serde(borrow)]
    counter: Cow<'a, str>,
    /// Each shard with what it gains; `null` marks it as doubtful.
    parts: Vec<(u16, Option<i64>)>,
    seen: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    loss: Option<Place>,
}

impl Message {
    /// Returns the bytes of this message for the deployment `of`.
    pub fn write(&self, of: &DeploymentId) -> Vec<u8> {
        let mut wire = Wire { v: VERSION, of: (&*of.0).into(), read: self.read, ..Wire::default() };
        match &self.body {
            Body::Sections { sections, losses } => {
                wire.sections = Some(sections.iter().map(WireSection::from).collect());
                wire.losses.clone_from(losses);
            }
            Body::Opened(Opened { shards, ended }) => {
                (wire.opened, wire.ended) = (Some(shards.clone()), ended.clone());
            }
            Body::Closed(closed) => wire.closed = Some(closed.clone()),
            Body::Lost(lost) => wire.lost = Some(lost.clone()),
            Body::Repaired(number) => wire.repaired = Some(*number),
            Body::Correction(correction) => wire.correction = Some(correction.into()),
            Body::Ladder(ladder) => wire.ladder = Some(ladder.to_string().into()),
        }
        serde_json::to_vec(&wire).expect("texts and integers always serialise")
    }

    /// Reads a message of the deployment `of`.
    ///
    /// # Errors
    /// The message has another layout or deployment, or not the form of its layout.
    pub fn read(value: &[u8], of: &DeploymentId) -> Result<Self, BadMessage> {
        let malformed = |error: serde_json::Error| BadMessage::Malformed(error.to_string());
        let head: Head<'_> = serde_json::from_slice(value).map_err(malformed)?;
        if head.v != VERSION {
            return Err(BadMessage::Version(head.v));
        }
        if head.of != *of.0 {
            return Err(BadMessage::Deployment(head.of.into_owned()));
        }
        let wire: Wire<'_> = serde_json::from_slice(value).map_err(malformed)?;
        let read = wire.read;
        Ok(Self { read, body: wire.body().map_err(BadMessage::Malformed)? })
    }
}

impl Wire<'_> {
    /// Returns the one body that the object has.
    fn body(self) -> Result<Body, String> {
        let Self { sections, losses, opened, ended, closed, lost, repaired, correction, ladder, .. } = self;
        let ladder = ladder.map(|ladder| ladder.parse().map_err(|error| format!("ladder: {error}"))).transpose()?;
        let correction = correction.map(Correction::try_from).transpose()?;
        let sections = sections.map(|sections| {
            let sections = sections.into_iter().map(Section::try_from).collect::<Result<_, _>>()?;
            Ok::<_, String>(Body::Sections { sections, losses })
        });
        let parts = [
            sections.transpose()?,
            opened.map(|shards| Body::Opened(Opened { shards, ended })),
            closed.map(Body::Closed),
            lost.map(Body::Lost),
            repaired.map(Body::Repaired),
            correction.map(Body::Correction),
            ladder.map(Body::Ladder),
        ];
        let mut parts = parts.into_iter().flatten();
        match (parts.next(), parts.next()) {
            (Some(body), None) => Ok(body),
            (None, _) => Err("it says nothing that this version knows".to_owned()),
            (Some(_), Some(_)) => Err("it says two things".to_owned()),
        }
    }
}

impl<'a> From<&'a Section> for WireSection<'a> {
    fn from(section: &'a Section) -> Self {
        let Section { shard, back, to, fed, entries } = section;
        Self { s: shard.clone(), back: *back, to: *to, fed: *fed, e: entries.iter().map(WireEntry::from).collect() }
    }
}

impl TryFrom<WireSection<'_>> for Section {
    type Error = String;

    fn try_from(wire: WireSection<'_>) -> Result<Self, String> {
        let WireSection { s, back, to, fed, e } = wire;
        let entries: Vec<Entry> = e.into_iter().map(Entry::try_from).collect::<Result<_, _>>()?;
        let inside = |entry: &Entry| Some(entry.sequence) > back && Some(entry.sequence) <= to;
        let ordered = entries.is_sorted_by(|one, next| one.sequence < next.sequence);
        if back > to || !ordered || !entries.iter().all(inside) {
            return Err(format!("the section of {s} has entries outside of it, or out of order"));
        }
        Ok(Self { shard: s, back, to, fed, entries })
    }
}

impl<'a> From<&'a Correction> for WireCorrection<'a> {
    fn from(correction: &'a Correction) -> Self {
        let Correction { counter: CounterId { post, name }, parts, seen, loss } = correction;
        let add = |amend: &Amend| if let Amend::Add(add) = amend { Some(*add) } else { None };
        let parts = parts.iter().map(|(shard, amend)| (shard.index(), add(amend))).collect();
        Self { subject: post.as_str().into(), counter: name.marked().into(), parts, seen: *seen, loss: *loss }
    }
}

impl TryFrom<WireCorrection<'_>> for Correction {
    type Error = String;

    fn try_from(wire: WireCorrection<'_>) -> Result<Self, String> {
        let WireCorrection { subject, counter, parts, seen, loss } = wire;
        let post = PostId::new(&subject).map_err(|error| error.to_string())?;
        let name = CounterName::from_marked(&counter).map_err(|error| error.to_string())?;
        let part = |(k, add): (u16, Option<i64>)| {
            let shard = Shard::new(k).ok_or_else(|| format!("no counter has a shard {k}"))?;
            Ok((shard, add.map_or(Amend::Doubt, Amend::Add)))
        };
        let parts = parts.into_iter().map(part).collect::<Result<_, String>>()?;
        Ok(Self { counter: CounterId { post, name }, parts, seen, loss })
    }
}
