//! The cache of counts: the values of one partition of the log `changes`, and the standing of that partition beside them.
//!
//! A reader gets both at one moment, so a value is judged by a standing that is as old as itself. The law: **a value contains
//! every change before the place of the standing that it is read with.** The cache may forget anything at any time, its last
//! writes included. Three rules keep the law all the same:
//!
//! - A fold **takes a partition over** under a number that it draws. A value carries the number that it was written under, and
//!   counts only beside a standing of the same number. So a take-over makes the cache of its partition empty. Numbers are drawn
//!   at random and compared for equality: one that counts up would come twice once the greatest was forgotten.
//! - Each [write](TakeOver::stamp) of the fold compares and raises a **sequence number** beside the standing. If it is older
//!   than the fold's last answered one, the cache forgot a write; if the number is another one, another fold took over. Then
//!   nothing is written, and the fold takes over again.
//! - A reader that misses a value takes a **fill token** first and reads the table then. A write of the fold about that counter
//!   takes the token's place, so the fill that comes too late is refused.
//!
//! [`Slot`] has these rules as plain functions; the implementations do the same.

mod slot;
mod text;

use async_trait::async_trait;

pub use slot::{Entry, Held, Slot, Stamp};
pub use text::BadText;

use crate::changes::{Place, Standing};
use crate::fold::Counter;
use crate::ids::{CounterId, CounterKind};
use crate::ports::Outcome;
use crate::served::Served;

/// What an answer needs of a counter. The default is that of a post without a counter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Value {
    /// The total as it is stored.
    pub likes: i64,
    /// Everything before this place of the partition is in.
    pub version: Place,
    /// The last announcement of a loss before what was applied last.
    pub gap: Option<Place>,
    /// A weight could not be read, or the total is not the sum of its parts.
    pub doubtful: bool,
}

impl From<&Counter> for Value {
    fn from(counter: &Counter) -> Self {
        let doubtful = !counter.doubt.is_empty() || !counter.adds_up();
        Self { likes: counter.likes, version: counter.version, gap: counter.gap, doubtful }
    }
}

impl Value {
    /// The one of the later version of two values of a counter. Values of one version are equal, so any order of values, and
    /// any repetition, comes to the same.
    #[must_use]
    pub fn later(self, other: Self) -> Self {
        if self.version < other.version { other } else { self }
    }

    /// The answer about a counter of this value that was read after, or together with, the standing of its partition.
    pub fn serve(&self, standing: &Standing, kind: CounterKind) -> Served {
        let possible = self.likes >= 0 || kind == CounterKind::Sum;
        Served {
            likes: self.likes,
            version: self.version.stored(),
            exact: possible && !self.doubtful && standing.covers(self.gap),
            as_of: standing.as_of.unwrap_or_default(),
        }
    }
}

/// The standing of a partition at a place in it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct StandingAt {
    /// Every change before this place is in.
    pub at: Place,
    /// What can be said there.
    pub standing: Standing,
}

/// What a partition of the cache holds for some counters, at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Got {
    /// The standing that the values are judged by; without one there are no values.
    pub stated: Option<StandingAt>,
    /// The values, in the order asked.
    pub values: Vec<Option<Value>>,
}

/// The number of one take-over: no two have the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TakeOverNumber(pub u64);

/// A fold's hold on a partition of the cache.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TakeOver {
    number: TakeOverNumber,
    /// The last write that was answered.
    answered: u64,
    /// The last write that was sent.
    sent: u64,
}

impl TakeOver {
    /// The hold that begins with a take-over of this number.
    pub fn new(number: TakeOverNumber) -> Self {
        Self { number, answered: 0, sent: 0 }
    }

    /// The stamp of the next write, which is sent once the one before it was answered or given up.
    ///
    /// Writes behind the last answered one may have happened or not, so any sequence number from that one on will do: the
    /// values of a write without an answer count as not told, and are told again with this write or a later one. A write that
    /// arrives after a later one is refused. Each write has a sequence number of its own, so a copy of it is known as such.
    pub fn stamp(&mut self) -> Stamp {
        self.sent += 1;
        Stamp { number: self.number, from: self.answered, to: self.sent }
    }

    /// The write of this stamp has happened.
    pub fn answered(&mut self, stamp: Stamp) {
        self.answered = stamp.to;
    }
}

/// What a write of the fold came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Told {
    /// It is done. So many values took the place of older ones or of fills under way.
    Written(usize),
    /// Nothing is written: the cache forgot an earlier write, or another fold took the partition over.
    Lost,
}

/// The right to fill one missing value, until it expires or the fold writes the value itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FillToken {
    number: TakeOverNumber,
    /// The sequence number at which it was given. A copy of the request that arrives behind a write of the fold makes another
    /// token.
    sequence: u64,
    nonce: u128,
}

/// The cache. It may be slow, empty or away: no caller's answer depends on it.
#[async_trait]
pub trait Cache: Send + Sync {
    /// The standing of a partition and the values of some of its counters.
    async fn get(&self, partition: u32, counters: &[CounterId]) -> Outcome<Got>;

    /// Asks for the right to fill a missing value; `None` while another caller has it, a value is there, or there is no
    /// standing. Safe to repeat: a copy that arrives late makes a token that no caller has.
    async fn begin_fill(&self, partition: u32, counter: &CounterId) -> Outcome<Option<FillToken>>;

    /// Writes a value that was read from the table, consistently and *after* the token was given, if the token is still there.
    /// Safe to repeat: the first copy takes the token. Answers whether it was written.
    async fn fill(&self, partition: u32, counter: &CounterId, token: &FillToken, value: &Value) -> Outcome<bool>;

    /// Takes a partition over with the standing of a place up to which every change is in the *table* already. What is cached
    /// is passed over from then on, so nothing before that place has to be told. `None` where the standing that is there
    /// belongs to a later place: the caller goes on to that place first. Safe to repeat: the standing of a copy is true
    /// whenever it arrives, and the fold whose later writes it undoes is told so by its next one.
    async fn take_over(&self, partition: u32, stated: &StandingAt) -> Outcome<Option<TakeOver>>;

    /// Replaces older values that are there, and fills under way; then the standing, if there is one. Every change before the
    /// place of that standing has to be told by then, with this call or with earlier ones that were answered. Values after an
    /// error count as not told. A caller with more to tell than it wants to keep takes over again. Safe to repeat: see
    /// [`TakeOver::stamp`].
    async fn tell(
        &self,
        partition: u32,
        take_over: &mut TakeOver,
        values: &[(CounterId, Value)],
        stated: Option<&StandingAt>,
    ) -> Outcome<Told>;
}
