//! The format of the topic of boards, the lists of what is trending, which `tally-trends` writes and the API reads. A
//! **board** is the list of one partition for one counter, region and window. A **tick** says that all boards of a
//! moment, a whole second, are in the topic: a board that was not written at that moment has not changed since it was
//! last written. This only holds among the messages of one writer, so each message names its writer.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};
use tally_core::ids::{CounterName, PostId, Region};
use thiserror::Error;
use xxhash_rust::xxh64::Xxh64;

use crate::{Claim, Place, Ranked, Reason, Window};

/// The format version of the messages.
const VERSION: u64 = 1;

const TICK: &str = "tick";
const BOARD: &str = "board";
/// The region of a board that covers all regions.
const ALL: &str = "*";

/// One run of the worker of one partition. The name is drawn at its start.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Writer(pub Box<str>);

/// Says that the topic has all lists of a partition at a moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tick {
    pub writer: Writer,
    /// The partition of the log of changes.
    pub partition: u32,
    /// The number of its partitions.
    pub of: u32,
    pub moment: u64,
    /// The sum of the [marks](mark) of all boards of the writer that are not empty. A reader that gets another sum
    /// lacks a board or has an old version of one.
    pub marks: u64,
    /// Whether some regions have no boards of their own.
    pub folded: bool,
    /// The claim about the lists of each window.
    pub claims: Vec<(Window, Claim)>,
}

/// A board: the list of one partition, place and window, from a moment on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Written {
    pub writer: Writer,
    /// The partition of the log of changes.
    pub partition: u32,
    pub moment: u64,
    /// The counter and region that it lists.
    pub place: Place,
    pub window: Window,
    /// The subjects with the greatest gains, in order.
    pub items: Vec<Ranked>,
    /// Whether there are no others.
    pub complete: bool,
}

/// A message of the topic of boards.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Published {
    /// See [`Tick`].
    Tick(Tick),
    /// See [`Written`].
    Board(Written),
}

/// Why a record cannot be read as a message.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum BadPublished {
    /// It has a format version that this build does not know.
    #[error("it is written in version {0}, this build knows {VERSION}")]
    Version(u64),
    /// It does not have the format of its version.
    #[error("it is not readable: {0}")]
    Malformed(String),
}

#[derive(Serialize, Deserialize)]
struct TickWire<'a> {
    v: u64,
    by: Cow<'a, str>,
    p: u32,
    of: u32,
    t: u64,
    marks: String,
    folded: bool,
    claims: Vec<ClaimWire>,
}

#[derive(Serialize, Deserialize)]
struct ClaimWire {
    window: String,
    bound: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    reason: Option<Reason>,
}

#[derive(Serialize, Deserialize)]
struct BoardWire<'a> {
    v: u64,
    by: Cow<'a, str>,
    p: u32,
    t: u64,
    counter: Cow<'a, str>,
    region: Option<Cow<'a, str>>,
    window: String,
    complete: bool,
    items: Vec<(Cow<'a, str>, i64)>,
}

/// Returns the key of the board of `place` and `window` in a partition.
pub fn board_key(partition: u32, place: &Place, window: Window) -> String {
    let region = place.region.as_ref().map_or(ALL, Region::as_str);
    format!("{BOARD}/{partition}/{}/{region}/{window}", place.counter.marked())
}

/// Returns a hash of a board's place and window and of the moment at which it was written (XXH64). A tick has the sum
/// of all marks, so a mark must depend on all three together: otherwise two boards with swapped moments would have the
/// same sum.
pub fn mark(place: &Place, window: Window, moment: u64) -> u64 {
    let region = place.region.as_ref().map_or(ALL, Region::as_str);
    let mut mark = Xxh64::new(0);
    for part in [place.counter.marked().as_bytes(), b"/", region.as_bytes(), b"/"] {
        mark.update(part);
    }
    for number in [window.span(), moment] {
        mark.update(&number.to_le_bytes());
    }
    mark.digest()
}

impl Tick {
    /// Its key.
    pub fn key(&self) -> String {
        format!("{TICK}/{}", self.partition)
    }

    /// Its value.
    pub fn value(&self) -> Vec<u8> {
        let claims = self.claims.iter().map(|(window, claim)| ClaimWire {
            window: window.to_string(),
            bound: claim.bound(),
            reason: claim.reason(),
        });
        let wire = TickWire {
            v: VERSION,
            by: (&*self.writer.0).into(),
            p: self.partition,
            of: self.of,
            t: self.moment,
            marks: format!("{:016x}", self.marks),
            folded: self.folded,
            claims: claims.collect(),
        };
        serde_json::to_vec(&wire).expect("texts and numbers always serialise")
    }

    fn read(value: &[u8]) -> Result<Self, BadPublished> {
        let wire: TickWire<'_> = serde_json::from_slice(value).map_err(malformed)?;
        let claims = wire.claims.iter().map(|claim| {
            let claim_of = match (claim.bound, claim.reason) {
                (Some(0), None) => Claim::Exact,
                (Some(bound), None) => Claim::Bound(bound),
                (None, Some(reason)) => Claim::Unknown(reason),
                _ => return Err(malformed("a claim needs a bound or a reason")),
            };
            Ok((claim.window.parse().map_err(malformed)?, claim_of))
        });
        Ok(Self {
            writer: Writer(wire.by.as_ref().into()),
            partition: wire.p,
            of: wire.of,
            moment: wire.t,
            marks: u64::from_str_radix(&wire.marks, 16).map_err(malformed)?,
            folded: wire.folded,
            claims: claims.collect::<Result<_, _>>()?,
        })
    }
}

impl Written {
    /// Its key.
    pub fn key(&self) -> String {
        board_key(self.partition, &self.place, self.window)
    }

    /// Its value.
    pub fn value(&self) -> Vec<u8> {
        let wire = BoardWire {
            v: VERSION,
            by: (&*self.writer.0).into(),
            p: self.partition,
            t: self.moment,
            counter: self.place.counter.marked().into(),
            region: self.place.region.as_ref().map(|region| region.as_str().into()),
            window: self.window.to_string(),
            complete: self.complete,
            items: self.items.iter().map(|item| (item.subject.as_str().into(), item.count())).collect(),
        };
        serde_json::to_vec(&wire).expect("texts and numbers always serialise")
    }

    fn read(value: &[u8]) -> Result<Self, BadPublished> {
        let wire: BoardWire<'_> = serde_json::from_slice(value).map_err(malformed)?;
        let region = wire.region.as_deref().map(|text| Region::new(text).ok_or_else(|| malformed(text)));
        let items =
            wire.items.iter().map(|(subject, count)| Ok(Ranked::new(PostId::new(subject).map_err(malformed)?, *count)));
        Ok(Self {
            writer: Writer(wire.by.as_ref().into()),
            partition: wire.p,
            moment: wire.t,
            place: Place {
                counter: CounterName::from_marked(&wire.counter).map_err(malformed)?,
                region: region.transpose()?,
            },
            window: wire.window.parse().map_err(malformed)?,
            items: items.collect::<Result<_, _>>()?,
            complete: wire.complete,
        })
    }
}

impl Published {
    /// Reads the message with this key.
    ///
    /// # Errors
    /// It has another version, or not the format of this version.
    pub fn read(key: &[u8], value: &[u8]) -> Result<Self, BadPublished> {
        #[derive(Deserialize)]
        struct Versioned {
            v: u64,
        }
        let Versioned { v } = serde_json::from_slice(value).map_err(malformed)?;
        if v != VERSION {
            return Err(BadPublished::Version(v));
        }
        let kind = key.split(|byte| *byte == b'/').next().unwrap_or_default();
        match kind {
            kind if kind == TICK.as_bytes() => Tick::read(value).map(Self::Tick),
            kind if kind == BOARD.as_bytes() => Written::read(value).map(Self::Board),
            _ => Err(malformed("its key is neither that of a tick nor that of a board")),
        }
    }
}

#[expect(clippy::needless_pass_by_value, reason = "the signature that map_err asks for")]
fn malformed(error: impl ToString) -> BadPublished {
    BadPublished::Malformed(error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn boards_of_different_moments_never_add_up_to_the_same_sum() {
        let place = Place { counter: CounterName::from_marked("likes").unwrap(), region: Region::new("us") };
        let boards = ["1m", "2m"].map(|window| window.parse::<Window>().unwrap());
        let sum = |moment| boards.iter().fold(0, |sum: u64, window| sum.wrapping_add(mark(&place, *window, moment)));
        let sums: std::collections::BTreeSet<u64> = (0..10_000).map(sum).collect();
        assert_eq!(sums.len(), 10_000);
    }

    #[test]
    fn only_messages_as_they_are_written_can_be_read() {
        let writer = Writer("w1".into());
        let window: Window = "24h".parse().unwrap();
        let claims = vec![
            ("1h".parse().unwrap(), Claim::Exact),
            (window, Claim::Unknown(Reason::Loss)),
            (window, Claim::Bound(3)),
        ];
        let tick = Tick { writer: writer.clone(), partition: 3, of: 12, moment: 70, marks: 2, folded: false, claims };
        let place = Place { counter: CounterName::from_marked("+views").unwrap(), region: Region::new("us") };
        let items = vec![Ranked::new(PostId::new("p/1").unwrap(), 7)];
        let board = Written { writer, partition: 3, moment: 70, place, window, items, complete: true };
        assert_eq!((tick.key().as_str(), board.key().as_str()), ("tick/3", "board/3/+views/us/24h"));
        let read = |key: &str, value: &[u8]| Published::read(key.as_bytes(), value);
        assert_eq!(read(&tick.key(), &tick.value()), Ok(Published::Tick(tick.clone())));
        assert_eq!(read(&board.key(), &board.value()), Ok(Published::Board(board.clone())));
        assert_eq!(read("tick/3", br#"{"v":2}"#), Err(BadPublished::Version(2)));
        for (key, value) in
            [("tick/3", &board.value()[..]), ("board/3", &tick.value()), ("else", &tick.value()), ("tick/3", b"")]
        {
            assert!(matches!(read(key, value), Err(BadPublished::Malformed(_))), "{key}");
        }
    }
}
