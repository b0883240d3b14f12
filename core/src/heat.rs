//! When the rows of a set are spread over more shards, or over fewer: decided by what its row keys are refused for, and by the
//! events that they carry.

use std::time::Duration;

use crate::ids::ShardCount;

/// How many events a second one shard is planned for; it carries some more.
pub(crate) const EVENTS_PER_SHARD: u64 = 400;

/// The most shards that are given to a counter: its item would be slow to write with more.
pub(crate) const MOST: u64 = 64;

/// How many seconds are looked at together.
const WINDOW: usize = 10;

/// Throttled transactions in a window before there are more shards: three a second.
const THROTTLED: u64 = 3 * WINDOW as u64;

/// How long after a change there are no more shards.
const GROWS_AFTER: Duration = Duration::from_secs(15);

/// How long little has to be said before there are fewer.
const SHRINKS_AFTER: Duration = Duration::from_secs(600);

/// What one partition sees of one set.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Heat {
    /// The second that is being counted, since the clock's beginning.
    second: u64,
    /// What was seen in each of the last seconds, the one being counted among them.
    seen: [Seen; WINDOW],
    /// When it was met, or last spread: what is seen for less than a window says little.
    since: Duration,
    /// Since when little is said.
    calm: Duration,
    rests_until: Duration,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct Seen {
    events: u64,
    throttled: u64,
}

/// Where a set stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spread {
    /// Over how many shards rows are put.
    pub newest: ShardCount,
    /// Over how many at least.
    pub least: ShardCount,
    /// How many partitions share its events, as far as their key tells.
    pub partitions: u64,
}

impl Heat {
    /// A set that was met at `now`.
    pub fn new(now: Duration) -> Self {
        let seen = [Seen::default(); WINDOW];
        Self { second: now.as_secs(), seen, since: now, calm: now, rests_until: Duration::ZERO }
    }

    /// So many of its events were sent to the store, whether it took them or not.
    pub fn offered(&mut self, events: u64, now: Duration) {
        self.current(now).events += events;
    }

    /// A transaction was refused since some of its row keys take no more.
    pub fn throttled(&mut self, now: Duration) {
        self.current(now).throttled += 1;
    }

    fn current(&mut self, now: Duration) -> &mut Seen {
        let second = now.as_secs().max(self.second);
        for passed in self.second + 1..=second.min(self.second + WINDOW as u64) {
            // Also where more seconds have passed than are kept: each is forgotten once.
            self.seen[slot(passed)] = Seen::default();
        }
        self.second = second;
        &mut self.seen[slot(second)]
    }

    /// Whether nothing was refused lately.
    pub fn is_cool(&mut self, now: Duration) -> bool {
        self.current(now);
        self.seen.iter().all(|seen| seen.throttled == 0)
    }

    /// Over how many shards its rows shall be put from now on, if not where they are put.
    pub fn wanted(&mut self, spread: Spread, now: Duration) -> Option<ShardCount> {
        self.current(now);
        let sum = |of: fn(&Seen) -> u64| self.seen.iter().map(of).sum::<u64>();
        let (events, throttled) = (sum(|seen| seen.events), sum(|seen| seen.throttled));
        let demand = events.saturating_mul(spread.partitions) / WINDOW as u64;
        let newest = u64::from(spread.newest.get());
        // A quarter of what the next smaller number is planned for.
        if demand >= newest / 2 * EVENTS_PER_SHARD / 4 {
            self.calm = now;
        }
        let window = Duration::from_secs(WINDOW as u64);
        let wanted = if throttled >= THROTTLED && now >= self.rests_until && now >= self.since.saturating_add(window) {
            let needed = demand.div_ceil(EVENTS_PER_SHARD).next_power_of_two().min(MOST);
            ShardCount::new(needed).ok().filter(|needed| *needed > spread.newest)
        } else if spread.newest > spread.least && now >= self.calm.saturating_add(SHRINKS_AFTER) {
            ShardCount::new(newest / 2).ok().map(|fewer| fewer.max(spread.least))
        } else {
            None
        };
        if wanted.is_some() {
            (self.rests_until, self.since, self.calm) = (now.saturating_add(GROWS_AFTER), now, now);
        }
        wanted
    }
}

fn slot(second: u64) -> usize {
    usize::try_from(second % WINDOW as u64).expect("a remainder is small")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(n: u64) -> ShardCount {
        ShardCount::new(n).unwrap()
    }

    /// One post, its partition, and a store that takes so many of its events a second for each shard.
    struct World {
        heat: Heat,
        newest: ShardCount,
        partitions: u64,
        changes: Vec<(u64, u16)>,
    }

    impl World {
        fn new(partitions: u64) -> Self {
            Self { heat: Heat::new(Duration::ZERO), newest: count(16), partitions, changes: Vec::new() }
        }

        /// From `from` to `to` seconds `offered` events come a second, as far as 500 a shard are taken.
        fn run(&mut self, from: u64, to: u64, offered: u64) {
            for second in from..to {
                let now = Duration::from_secs(second);
                let takes = u64::from(self.newest.get()) * 500;
                self.heat.offered(offered.min(takes) / self.partitions, now);
                (0..if offered > takes { 5 } else { 0 }).for_each(|_| self.heat.throttled(now));
                let spread = Spread { newest: self.newest, least: count(16), partitions: self.partitions };
                if let Some(wanted) = self.heat.wanted(spread, now) {
                    self.newest = wanted;
                    self.changes.push((second, wanted.get()));
                }
            }
        }
    }

    #[test]
    fn a_flood_is_spread_within_a_minute_and_gathered_again_after_it() {
        for partitions in [1, 4] {
            let mut world = World::new(partitions);
            world.run(0, 120, 25_000);
            assert_eq!(world.changes.iter().map(|(_, to)| *to).collect::<Vec<_>>(), [32, 64]);
            assert!(world.changes[1].0 < 60, "{:?}", world.changes);
            world.run(120, 3_600, 300);
            let (first, second) = (world.changes[2], world.changes[3]);
            assert_eq!((first.1, second.1, world.changes.len()), (32, 16, 4), "four changes in an hour");
            assert!(first.0 >= 720 && second.0 >= first.0 + 600, "{:?}", world.changes);
        }
    }

    #[test]
    fn a_load_that_goes_up_and_down_is_not_followed() {
        let mut world = World::new(1);
        for minute in 0..60 {
            world.run(minute * 60, minute * 60 + 60, if minute % 2 == 0 { 25_000 } else { 100 });
        }
        assert_eq!(world.changes.len(), 2, "{:?}", world.changes);
    }

    #[test]
    fn keys_that_carry_less_than_they_are_planned_for_are_not_helped_by_more() {
        let mut heat = Heat::new(Duration::ZERO);
        let spread = Spread { newest: count(16), least: count(16), partitions: 1 };
        for second in 0..100 {
            let now = Duration::from_secs(second);
            heat.offered(16 * EVENTS_PER_SHARD, now);
            (0..50).for_each(|_| heat.throttled(now));
            assert_eq!(heat.wanted(spread, now), None, "one member, or a table's limit");
        }
        heat.offered(1_000_000, Duration::from_secs(100));
        assert_eq!(heat.wanted(spread, Duration::from_secs(100)), Some(count(64)), "at most");
    }

    #[test]
    fn three_throttled_transactions_a_second_for_ten_seconds_and_fifteen_between_two_changes() {
        let spread = |newest| Spread { newest: count(newest), least: count(16), partitions: 1 };
        let run = |a_second: u64| {
            let mut heat = Heat::new(Duration::ZERO);
            let mut grown = Vec::new();
            for second in 0..60 {
                let now = Duration::from_secs(second);
                heat.offered(12_000 * (1 + grown.len() as u64), now);
                (0..a_second).for_each(|_| heat.throttled(now));
                if heat.wanted(spread(16 << grown.len()), now).is_some() {
                    grown.push(second);
                }
            }
            grown
        };
        assert_eq!(run(2), Vec::<u64>::new());
        assert_eq!(run(3), [10, 25]);
        let mut heat = Heat::new(Duration::ZERO);
        (0..99).for_each(|_| heat.throttled(Duration::from_secs(3)));
        assert!(!heat.is_cool(Duration::from_secs(12)));
        assert!(heat.is_cool(Duration::from_secs(13)) && heat.is_cool(Duration::from_secs(500)));
    }

    #[test]
    fn what_was_asked_for_stays() {
        let mut heat = Heat::new(Duration::ZERO);
        let spread = |newest| Spread { newest: count(newest), least: count(32), partitions: 1 };
        assert_eq!(heat.wanted(spread(64), Duration::from_secs(600)), Some(count(32)));
        assert_eq!(heat.wanted(spread(32), Duration::from_secs(9_000)), None);
    }
}
