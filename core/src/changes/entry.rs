//! One entry of the log of changes: what one record of the table's stream says about one row.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::ids::{CounterId, CounterName, MemberKey, PostId, Region, ReservedKey, RowKey, Sequence, Shard};
use crate::register::Version;
use crate::tally::{Record, RecordKind};

/// One change of a row, or one marker of a recount, as the log of changes carries it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Entry {
    /// The row's partition key: a counter and its shard.
    pub key: RowKey,
    /// What happened to the row.
    pub effect: Effect,
    /// The second of the change, as the stream states it.
    pub second: u64,
    /// The record's position in its stream shard.
    pub sequence: Sequence,
}

/// What happened to a row.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Effect {
    /// Its weight (what it counts for) or its region changed.
    Weighed {
        /// The row.
        member: MemberKey,
        /// The row before the change; its weight is 0 where there was none.
        before: Side,
        /// The row after the change; its weight is 0 where there is none.
        after: Side,
    },
    /// It cannot be counted: its weight before or after is no integer in the allowed range, or a row that counted has
    /// expired, which no event removed. The counter is in doubt until a recount.
    Unreadable {
        /// The row.
        member: MemberKey,
    },
    /// A recount put its marker, an item that counts for nothing, beside the rows of this key.
    Marked(Nonce),
}

/// A row before or after a change.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Side {
    /// What the row counts for.
    pub weight: i64,
    /// The region that it is counted in.
    pub region: Option<Region>,
    /// The version of the row's event, or of the last event in a cell. `None` where there is no row or the version is
    /// unreadable.
    pub v: Option<Version>,
}

/// The random number in a marker. A recount draws one for each key each time that it looks at its rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Nonce(pub u128);

impl fmt::Display for Nonce {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

impl FromStr for Nonce {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let bits = u128::from_str_radix(text, 16).ok().filter(|bits| Self(*bits).to_string() == text);
        bits.map(Self).ok_or_else(|| format!("{text:?} is no marker: it is 32 lower-case hexadecimal digits"))
    }
}

impl Entry {
    /// Makes the entry of `record`. Returns `None` where the record changes nothing that is counted.
    pub fn of(record: &Record) -> Option<Self> {
        let RecordKind::Row(key, effect) = &record.kind else { return None };
        let mut effect = effect.clone();
        if let Effect::Weighed { before, after, .. } = &mut effect {
            // A row of weight 0 takes the region of its other side: that region's count changes.
            if before.weight == 0 {
                before.region.clone_from(&after.region);
            } else if after.weight == 0 {
                after.region.clone_from(&before.region);
            }
            // A change of the version alone counts nothing.
            if (before.weight, &before.region) == (after.weight, &after.region) {
                return None;
            }
        }
        Some(Self { key: key.clone(), effect, second: record.written.0 / 1000, sequence: record.sequence })
    }

    /// Returns what the counter gains; 0 where that is unknown, and for a marker.
    pub fn gain(&self) -> i64 {
        self.effect.gain()
    }
}

impl Effect {
    /// Returns what the counter gains; 0 where that is unknown, and for a marker.
    pub fn gain(&self) -> i64 {
        match self {
            Self::Weighed { before, after, .. } => after.weight - before.weight,
            Self::Unreadable { .. } | Self::Marked(_) => 0,
        }
    }
}

/// The JSON array of an entry: subject, counter, shard, sort key, weight before, weight after, second, position,
/// version after, optional fields. Where there is a version before, the array has the difference to it in place of the
/// version after.
#[derive(Serialize, Deserialize)]
pub(super) struct Wire<'a>(
    #[serde(borrow)] Cow<'a, str>,
    #[serde(borrow)] Cow<'a, str>,
    u16,
    #[serde(borrow)] Cow<'a, str>,
    Option<i64>,
    Option<i64>,
    u64,
    Sequence,
    Option<u64>,
    #[serde(default, borrow, skip_serializing_if = "Option::is_none")] Option<More<'a>>,
);

/// The optional fields of an entry.
#[derive(Default, PartialEq, Serialize, Deserialize)]
struct More<'a> {
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    from: Option<Cow<'a, str>>,
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    to: Option<Cow<'a, str>>,
    /// The version before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    v: Option<u64>,
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    marker: Option<Cow<'a, str>>,
}

impl<'a> From<&'a Entry> for Wire<'a> {
    fn from(entry: &'a Entry) -> Self {
        let Entry { key: RowKey { counter, shard }, effect, second, sequence } = entry;
        let recount = || Cow::Owned(ReservedKey::Recount.to_string());
        let region = |side: &'a Side| side.region.as_ref().map(|region| Cow::Borrowed(region.as_str()));
        let (sort, weights, v, more) = match effect {
            Effect::Weighed { member, before, after } => {
                let v = before.v.map(Version::stored);
                let more = More { from: region(before), to: region(after), v, marker: None };
                let difference = after.v.map(|after| after.stored().wrapping_sub(v.unwrap_or(0)));
                (member.as_str().into(), [before, after].map(|side| Some(side.weight)), difference, more)
            }
            Effect::Unreadable { member } => (member.as_str().into(), [None; 2], None, More::default()),
            Effect::Marked(nonce) => {
                let marker = Some(nonce.to_string().into());
                (recount(), [None; 2], None, More { marker, ..More::default() })
            }
        };
        let [before, after] = weights;
        let more = (more != More::default()).then_some(more);
        let (subject, counter) = (counter.post.as_str().into(), counter.name.marked().into());
        Self(subject, counter, shard.index(), sort, before, after, *second, *sequence, v, more)
    }
}

impl TryFrom<Wire<'_>> for Entry {
    type Error = String;

    fn try_from(wire: Wire<'_>) -> Result<Self, String> {
        let Wire(subject, counter, shard, sort, before, after, second, sequence, v, more) = wire;
        let post = PostId::new(&subject).map_err(|error| error.to_string())?;
        let name = CounterName::from_marked(&counter).map_err(|error| error.to_string())?;
        let shard = Shard::new(shard).ok_or_else(|| format!("no counter has a shard {shard}"))?;
        let more = more.unwrap_or_default();
        let region = |text: Option<Cow<'_, str>>| {
            text.map(|text| Region::new(&text).ok_or_else(|| format!("{text:?} is no region"))).transpose()
        };
        let member = || MemberKey::new(&sort).ok_or_else(|| format!("{sort:?} is no row's sort key"));
        let effect = match (before, after, more.marker) {
            (None, None, Some(nonce)) => Effect::Marked(nonce.parse()?),
            (Some(before), Some(after), None) => Effect::Weighed {
                member: member()?,
                before: Side { weight: before, region: region(more.from)?, v: more.v.map(Version::from_stored) },
                after: Side {
                    weight: after,
                    region: region(more.to)?,
                    v: v.map(|v| Version::from_stored(v.wrapping_add(more.v.unwrap_or(0)))),
                },
            },
            (None, None, None) => Effect::Unreadable { member: member()? },
            _ => return Err("it has one weight of two, or a marker beside weights".to_owned()),
        };
        let weights = [before, after].into_iter().flatten().all(|n| crate::weight::Weight::new(n).is_some());
        if !weights {
            return Err("a weight is out of range".to_owned());
        }
        Ok(Self { key: RowKey { counter: CounterId { post, name }, shard }, effect, second, sequence })
    }
}
