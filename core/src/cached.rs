//! The cache of counts in Redis, which folds write and the API reads: for one partition of the log of changes, values
//! of its counters and its standing, which says up to which place every change is counted.
//!
//! A reader gets both at one moment. The law: **a value contains every change before the place of the standing that it
//! is read with.** The cache may forget anything at any time, even its last writes. Three rules keep the law all the
//! same:
//!
//! - A fold **takes a partition over** under a random number. A value carries the number that it was written under,
//!   and counts only beside a standing of the same number. So a take-over empties the cache of its partition. Numbers
//!   are only compared for equality: a number that counts up would come twice if the cache forgot the greatest.
//! - Each [write](TakeOver::stamp) of the fold compares and raises a **sequence number** beside the standing. If this
//!   is older than the fold's last answered write, the cache forgot a write; if the take-over's number is another one,
//!   another fold took over. Then nothing is written, and the fold takes over again.
//! - A reader that misses a value first takes a **fill token** and then reads the table. A fold's write about that
//!   counter replaces the token, so a fill that comes too late is refused.
//!
//! Two deployments with one table prefix on one Redis share the keys, so a standing names its **deployment**. One of
//! another deployment counts as absent, and with it its values, which count only beside the standing of their number. A
//! take-over replaces it at any place, since places of two logs cannot be compared. A write or a fill of one deployment
//! that lands after a take-over of the other finds another number and is refused, however late it is, and also if a
//! failover has brought the other's standing back. A reader that has the standing of one take-over and gets a token of
//! another one drops the token: that may be a token of the other deployment, whose table it has not read. So two live
//! deployments only take the cache away from each other. Both read their tables, and warn.
//!
//! [`Slot`] has these rules as plain functions; the implementations of [`Cache`] do the same.

mod slot;
mod text;

use async_trait::async_trait;

pub use slot::{Entry, Held, Slot, Stamp};
pub use text::BadText;

use crate::changes::{DeploymentId, Place, Standing};
use crate::fold::Counter;
use crate::ids::{CounterId, CounterKind};
use crate::ports::Outcome;
use crate::served::Served;

/// What an answer needs of a counter. The default is a subject without a counter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Value {
    /// The total as it is stored.
    pub likes: i64,
    /// Everything before this place of the partition is counted.
    pub version: Place,
    /// The last announcement of a loss before the last item that was applied.
    pub gap: Option<Place>,
    /// A weight (what a row counts for) could not be read, or the total is not the sum of its parts.
    pub doubtful: bool,
}

impl From<&Counter> for Value {
    fn from(counter: &Counter) -> Self {
        let doubtful = !counter.doubt.is_empty() || !counter.adds_up();
        Self { likes: counter.likes, version: counter.version, gap: counter.gap, doubtful }
    }
}

impl Value {
    /// Returns the value with the later version. Two values of one version are equal. So values may come in any order and
    /// repeatedly. Only an edit of the counter by hand makes two values of one version differ.
    #[must_use]
    pub fn later(self, other: Self) -> Self {
        if self.version < other.version { other } else { self }
    }

    /// Returns the answer, where `standing` was read before this value or together with it.
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
    /// Every change before this place is counted.
    pub at: Place,
    /// The standing there.
    pub standing: Standing,
}

/// What a partition of the cache has for some counters at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Got {
    /// The take-over that the standing and the values are of.
    pub taken: Option<Taken>,
    /// The standing that belongs to the values; without one there are no values.
    pub stated: Option<StandingAt>,
    /// The values, in the order of the question.
    pub values: Vec<Option<Value>>,
}

/// A take-over as the cache has it. What a reader gets counts only if this is of the reader's deployment.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Taken {
    /// The deployment whose fold took the partition over.
    pub of: DeploymentId,
    /// The number of the take-over.
    pub number: TakeOverNumber,
}

/// The random number of one take-over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TakeOverNumber(pub u64);

/// A fold's take-over of a partition of the cache, with its sequence numbers.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TakeOver {
    number: TakeOverNumber,
    /// The last write that was answered.
    answered: u64,
    /// The last write that was sent.
    sent: u64,
}

impl TakeOver {
    /// Begins a take-over with this number.
    pub fn new(number: TakeOverNumber) -> Self {
        Self { number, answered: 0, sent: 0 }
    }

    /// Returns the stamp of the next write. The caller sends it once the previous write was answered or given up.
    ///
    /// Writes behind the last answered one may have happened or not, so the stamp accepts any sequence number from
    /// that one on. The values of a write without an answer count as not told, and the caller tells them again with
    /// this write or a later one. A write that arrives after a later one is refused. Each write has its own sequence
    /// number, so the cache recognises a copy.
    pub fn stamp(&mut self) -> Stamp {
        self.sent += 1;
        Stamp { number: self.number, from: self.answered, to: self.sent }
    }

    /// Notes that the write of this stamp has happened.
    pub fn answered(&mut self, stamp: Stamp) {
        self.answered = stamp.to;
    }
}

/// The outcome of a fold's write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Told {
    /// The write is done. So many values replaced older ones or fills under way.
    Written(usize),
    /// Nothing is written: the cache forgot an earlier write, or another fold took the partition over.
    Lost,
}

/// The right to fill one missing value, until it expires or the fold writes the value itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FillToken {
    number: TakeOverNumber,
    /// The sequence number at which it was given. So a copy of the request that arrives behind a fold's write makes
    /// another token.
    sequence: u64,
    nonce: u128,
}

/// The cache. It may be slow, empty or unreachable: no caller's answer depends on it.
#[async_trait]
pub trait Cache: Send + Sync {
    /// Returns the standing of a partition and the values of some of its counters, and whose they are.
    async fn get(&self, partition: u32, counters: &[CounterId]) -> Outcome<Got>;

    /// Asks for the right to fill a missing value. Returns `None` while another caller has it, the value is there, or
    /// there is no standing. The caller uses the token only if it is of the take-over whose standing it has. Repeating
    /// it is safe: a late copy makes a token that no caller has.
    async fn begin_fill(&self, partition: u32, counter: &CounterId) -> Outcome<Option<FillToken>>;

    /// Writes a value if the token is still there. The caller must have read the value from the table consistently,
    /// *after* it got the token. Repeating it is safe: the first copy uses the token up. Returns whether the value was
    /// written.
    async fn fill(&self, partition: u32, counter: &CounterId, token: &FillToken, value: &Value) -> Outcome<bool>;

    /// Takes a partition over for the deployment `of`, with the standing of a place up to which every change is in the
    /// *table* already. Readers skip what was cached before, so nothing before that place has to be told. Returns `None`
    /// where the cache has a standing of a later place of this deployment: the caller goes on to that place first.
    /// Repeating it is safe: the standing of a copy is true whenever it arrives, and the fold whose later writes it
    /// undoes gets [`Told::Lost`] for its next one.
    async fn take_over(&self, partition: u32, of: &DeploymentId, stated: &StandingAt) -> Outcome<Option<TakeOver>>;

    /// Replaces older values and fills under way, then the standing if one is given. Every change before that
    /// standing's place must be told with this call or earlier ones that were answered. Values count as not told after
    /// an error. A caller that has more to tell than it wants to keep takes over again. Repeating it is safe: see
    /// [`TakeOver::stamp`].
    async fn tell(
        &self,
        partition: u32,
        take_over: &mut TakeOver,
        values: &[(CounterId, Value)],
        stated: Option<&StandingAt>,
    ) -> Outcome<Told>;
}
