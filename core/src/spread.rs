//! Which partition an event of a sum is sent to. A sum's row is one cell for each partition, so a producer that spreads a
//! busy counter over several gives it several rows, which are written side by side.
//!
//! Only producers choose. A consumer adds an event to the cell of the partition that it was found in, so a replay does not
//! depend on any choice made here.

mod family;
mod width;

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use thiserror::Error;

use crate::Map;
use crate::ids::CounterId;

use family::family;
pub use width::width_for;
use width::{WINDOW, Width};

/// How many more records may wait in a partition than twice the fewest, and it is still taken: so many wait where 10,000 a second
/// are written in time.
const LEVEL: u64 = 1_000;

/// How many counters a producer remembers the rates of. Events of more go where their key says.
const MOST_COUNTERS: usize = 10_000;

/// How a producer chooses among the partitions of a sum.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum SumPolicy {
    /// All events of a post go to the partition of its key.
    #[default]
    Post,
    /// A busy counter's events go to its partitions in turn.
    RoundRobin,
    /// Each event of a busy counter goes to one of its partitions by chance.
    Random,
    /// A busy counter's events go to those of its partitions where few records wait, the same to each.
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
/// It sends a counter to as many partitions as the counter's rate asks for: one more doubling for each second in which each
/// of them got over 10,000 events, half of them once each gets below 2,500. The rate is that of this producer alone.
#[derive(Clone, Debug)]
pub struct Spread {
    policy: SumPolicy,
    partitions: Vec<Waiting>,
    counters: Map<CounterId, Counted>,
    forgot: Duration,
}

/// What waits in a partition.
#[derive(Clone, Copy, Debug, Default)]
struct Waiting {
    /// Records that were not finished when it was looked at.
    lag: u64,
    /// Events sent to it since.
    sent: u64,
}

#[derive(Clone, Debug)]
struct Counted {
    width: Width,
    /// The counter's partitions, of which the first `width` are in use; none before it needs a second one.
    family: Vec<u32>,
    /// The next in turn.
    turn: usize,
}

impl Counted {
    fn first(width: u32) -> Self {
        Self { width: Width::first(width), family: Vec::new(), turn: 0 }
    }
}

impl Spread {
    /// Sends every event where its key says, until it is told of the topic's partitions.
    pub fn new(policy: SumPolicy) -> Self {
        Self { policy, partitions: Vec::new(), counters: Map::default(), forgot: Duration::ZERO }
    }

    /// The topic has so many partitions, with so many records waiting in each.
    pub fn seen(&mut self, lags: &[u64]) {
        if lags.len() != self.partitions.len() && !self.partitions.is_empty() {
            self.counters.clear();
        }
        self.partitions = lags.iter().map(|lag| Waiting { lag: *lag, sent: 0 }).collect();
    }

    /// Where the next event of `counter` goes, at `now` on a clock that does not go back; `None` leaves it to the key.
    /// `draw` is any number, by chance.
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

    /// Begins a counter with so many partitions, or as many as there are, unless its events are followed already; over how many
    /// it is spread now. The width follows the rate from the first event on. It is forgotten before that if so many other counters
    /// come that there is no room, and with this producer.
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

    /// Over how many partitions `counter` is spread.
    pub fn width(&self, counter: &CounterId) -> u32 {
        self.counters.get(counter).map_or(1, |counted| counted.width.get())
    }

    /// Whether the rate of `counter` is followed from now on.
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

#[cfg(test)]
mod tests;
