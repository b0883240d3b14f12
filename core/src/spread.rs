//! Chooses the partition to which the API and the local load send an event of a sum. A sum has one row (a cell) for
//! each partition, so a busy counter that is spread over several partitions has several rows, which are written side
//! by side.
//!
//! Only producers choose. A consumer adds an event to the cell of the partition where it found it, so a replay does
//! not depend on any choice made here.

mod width;

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use thiserror::Error;
use xxhash_rust::xxh64::xxh64;

use crate::Map;
use crate::event::partition_of;
use crate::ids::CounterId;

pub use width::width_for;
use width::{WINDOW, Width};

/// How many records more than twice the least lag may wait in a partition that is still chosen. About so many wait
/// where 10,000 a second are written in time.
const LEVEL: u64 = 1_000;

/// How many counters a producer knows the rates of. Events of further counters go where their key says.
const MOST_COUNTERS: usize = 10_000;

/// How a producer chooses among a sum's partitions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum SumPolicy {
    /// All events of a post go to the partition of its key.
    #[default]
    Post,
    /// A busy counter's events go to its partitions in turn.
    RoundRobin,
    /// Each event of a busy counter goes to one of its partitions at random.
    Random,
    /// A busy counter's events go in equal numbers to those of its partitions where few records wait.
    LeastLag,
}

#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("a policy is \"post\", \"round-robin\", \"random\" or \"least-lag\", not {0:?}")]
pub struct UnknownSumPolicy(pub String);

impl SumPolicy {
    pub const ALL: [Self; 4] = [Self::Post, Self::RoundRobin, Self::Random, Self::LeastLag];

    fn name(self) -> &'static str {
        match self {
            Self::Post => "post",
            Self::RoundRobin => "round-robin",
            Self::Random => "random",
            Self::LeastLag => "least-lag",
        }
    }
}

impl FromStr for SumPolicy {
    type Err = UnknownSumPolicy;

    fn from_str(text: &str) -> Result<Self, UnknownSumPolicy> {
        let found = Self::ALL.into_iter().find(|policy| policy.name() == text);
        found.ok_or_else(|| UnknownSumPolicy(text.to_owned()))
    }
}

impl fmt::Display for SumPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// One producer's choices for one topic.
///
/// It doubles the partitions of a counter after each second in which each of them got more than 10,000 events, and
/// halves them when each gets fewer than 2,500. It counts only the events of this producer.
#[derive(Clone, Debug)]
pub struct Spread {
    policy: SumPolicy,
    partitions: Vec<Waiting>,
    counters: Map<CounterId, Counted>,
    forgot: Duration,
}

/// The load of a partition.
#[derive(Clone, Copy, Debug, Default)]
struct Waiting {
    /// The records that were not finished at the last look.
    lag: u64,
    /// The events sent to it since.
    sent: u64,
}

#[derive(Clone, Debug)]
struct Counted {
    width: Width,
    /// The counter's partitions, of which the first `width` are in use. Empty until it needs a second one.
    family: Vec<u32>,
    /// The index of the next one in turn.
    turn: usize,
}

impl Counted {
    fn first(width: u32) -> Self {
        Self { width: Width::first(width), family: Vec::new(), turn: 0 }
    }
}

impl Spread {
    /// Returns a producer that lets the key decide until [`seen`](Self::seen) tells it the partitions.
    pub fn new(policy: SumPolicy) -> Self {
        Self { policy, partitions: Vec::new(), counters: Map::default(), forgot: Duration::ZERO }
    }

    /// Takes the number of records that wait in each partition of the topic.
    pub fn seen(&mut self, lags: &[u64]) {
        if lags.len() != self.partitions.len() && !self.partitions.is_empty() {
            self.counters.clear();
        }
        self.partitions = lags.iter().map(|lag| Waiting { lag: *lag, sent: 0 }).collect();
    }

    /// Returns the partition for the next event of `counter`, or `None` to let the key decide. `now` is of a clock
    /// that does not go back, `draw` is a random number.
    pub fn choose(&mut self, counter: &CounterId, now: Duration, draw: u64) -> Option<u32> {
        let most = u32::try_from(self.partitions.len()).unwrap_or(u32::MAX);
        if self.policy == SumPolicy::Post || most == 0 || !self.remember(counter, now) {
            return None;
        }
        let counted = self.counters.get_mut(counter)?;
        let width = counted.width.count(now, most) as usize;
        if width == 1 {
            return None;
        }
        if counted.family.is_empty() {
            counted.family = family(counter, most);
        }
        let family = &counted.family[..width];
        let waiting = |partition: u32| self.partitions[partition as usize];
        let place = match self.policy {
            SumPolicy::Post => 0,
            SumPolicy::RoundRobin => counted.turn % width,
            SumPolicy::Random => usize::try_from(draw % width as u64).unwrap_or(0),
            SumPolicy::LeastLag => {
                let least = family.iter().map(|partition| waiting(*partition).lag).min().unwrap_or(0);
                let most = least.saturating_mul(2).saturating_add(LEVEL);
                let level = (0..width).filter(|place| waiting(family[*place]).lag <= most);
                level.min_by_key(|place| waiting(family[*place]).sent).unwrap_or(0)
            }
        };
        let chosen = family[place];
        counted.turn = (place + 1) % width;
        self.partitions[chosen as usize].sent += 1;
        Some(chosen)
    }

    /// Begins a counter with `width` partitions, or all if there are fewer, unless its rate is followed already.
    /// Returns over how many it is spread. The width follows the rate from the first event on. The counter is
    /// forgotten when this producer ends, or if too many other counters come before its first event.
    pub fn begin(&mut self, counter: &CounterId, width: u32) -> u32 {
        if self.policy == SumPolicy::Post {
            return 1;
        }
        let most = u32::try_from(self.partitions.len()).unwrap_or(u32::MAX);
        let width = if most == 0 { width } else { width.min(most) };
        if self.counters.len() < MOST_COUNTERS && !self.counters.contains_key(counter) {
            self.counters.insert(counter.clone(), Counted::first(width));
        }
        self.width(counter)
    }

    /// Returns over how many partitions `counter` is spread.
    pub fn width(&self, counter: &CounterId) -> u32 {
        self.counters.get(counter).map_or(1, |counted| counted.width.get())
    }

    /// Returns whether the rate of `counter` is followed, and begins to follow it if there is room.
    fn remember(&mut self, counter: &CounterId, now: Duration) -> bool {
        if self.counters.contains_key(counter) {
            return true;
        }
        if self.counters.len() >= MOST_COUNTERS && now.saturating_sub(self.forgot) >= WINDOW {
            self.forgot = now;
            self.counters.retain(|_, counted| !counted.width.is_idle(now));
        }
        let room = self.counters.len() < MOST_COUNTERS;
        if room {
            self.counters.insert(counter.clone(), Counted::first(1));
        }
        room
    }
}

/// Returns all partitions of a topic in the order for `counter`: first the one of its subject's key, then the others
/// by a hash of counter and partition. A width uses the first so many, so every width includes the smaller ones, and
/// all producers agree.
fn family(counter: &CounterId, partitions: u32) -> Vec<u32> {
    let home = partition_of(counter.post.as_bytes(), partitions);
    let key = counter.stored();
    let rank = |partition: &u32| (*partition != home, xxh64(key.as_bytes(), u64::from(*partition)), *partition);
    let mut family: Vec<u32> = (0..partitions).collect();
    family.sort_by_cached_key(rank);
    family
}

#[cfg(test)]
mod tests;
