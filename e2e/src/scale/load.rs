//! The load of the benchmark `scale`: produces likes at a fixed rate, each of another user, a fifth of them for one
//! post and the rest by Zipf. It also observes in the emulated DynamoDB which likes are rows already, and how many are
//! counted.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use parking_lot::Mutex;
use tally_adapters::memory::log::Broker;
use tally_core::event::partition_of;
use tally_core::ports::log::Outgoing;
use tally_core::time::UnixMillis;
use tally_emulator::{Changed, ControlError, Emulator};
use tally_service::Chance;

use crate::pipeline::TOPIC;

/// One like in this many is for the busy post.
const BUSY: u64 = 5;

/// The posts whose counts are sampled, by rank.
const LOOKED_AT: [usize; 10] = [0, 1, 2, 5, 10, 20, 50, 100, 300, 1_000];

pub(super) struct Load {
    rate: u64,
    partitions: u32,
    chance: Chance,
    /// The cumulative share of each post but the busy one.
    upper: Vec<f64>,
    /// The number of likes of each post.
    counts: Vec<i64>,
    /// The time of each like of the sampled posts.
    times: Vec<(usize, Vec<UnixMillis>)>,
    stored: Arc<Mutex<Stored>>,
}

/// What the store has.
#[derive(Default)]
struct Stored {
    /// The post of each like that was produced, in order; `None` once the like is a row.
    said: Vec<Option<u32>>,
    /// The number of likes that are rows, and of changes of rows that no like makes.
    rows: u64,
    wrong_rows: u64,
    /// The count of each post.
    counts: Vec<i64>,
}

impl Load {
    /// Likes whose rows and counts will be in `emulator`.
    pub(super) fn new(posts: u32, rate: u64, partitions: u32, emulator: &Emulator) -> Result<Self, ControlError> {
        let weights = (1..posts).scan(0.0, |total, rank| {
            *total += 1.0 / f64::from(rank);
            Some(*total)
        });
        let upper: Vec<f64> = weights.collect();
        let total = upper.last().copied().unwrap_or(1.0);
        let counts = vec![0; posts as usize];
        let stored = Arc::new(Mutex::new(Stored { counts: counts.clone(), ..Stored::default() }));
        let (of_rows, of_counts) = (Arc::clone(&stored), Arc::clone(&stored));
        emulator.watch("likes", move |changed| of_rows.lock().row(&changed))?;
        emulator.watch("like_counts", move |changed| of_counts.lock().count(&changed))?;
        let looked_at = LOOKED_AT.into_iter().filter(|post| *post < posts as usize);
        Ok(Self {
            rate,
            partitions,
            chance: Chance::seeded(7),
            upper: upper.into_iter().map(|upper| upper / total).collect(),
            counts,
            times: looked_at.map(|post| (post, Vec::new())).collect(),
            stored,
        })
    }

    pub(super) fn said(&self) -> u64 {
        self.stored.lock().said.len() as u64
    }

    /// The number of likes that are not in the rows yet.
    pub(super) fn behind(&self) -> u64 {
        self.said().saturating_sub(self.stored.lock().rows)
    }

    /// The number of likes that are not counted yet.
    pub(super) fn uncounted(&self) -> u64 {
        let counted: i64 = self.stored.lock().counts.iter().sum();
        self.said().saturating_sub(u64::try_from(counted).unwrap_or(0))
    }

    /// Produces the likes of one period.
    pub(super) fn produce(&mut self, broker: &Broker, now: UnixMillis, tick: u64, ticks: u64) -> anyhow::Result<()> {
        for _ in self.rate * tick / ticks..self.rate * (tick + 1) / ticks {
            let nth = self.said();
            let post = if nth.is_multiple_of(BUSY) { 0 } else { self.other() };
            let value = format!(r#"{{"post_id":"p-{post}","user_id":"u-{nth}","action":"like"}}"#);
            let key = format!("p-{post}");
            let partition = Some(partition_of(key.as_bytes(), self.partitions));
            let (key, value) = (Some(key.as_bytes()), Some(value.as_bytes()));
            let record = Outgoing { topic: TOPIC, partition, key, value, headers: &[] };
            broker.append(record, now).context("cannot append a like")?;
            self.stored.lock().said.push(u32::try_from(post).ok());
            self.counts[post] += 1;
            if let Some((_, times)) = self.times.iter_mut().find(|(looked_at, _)| *looked_at == post) {
                times.push(now);
            }
        }
        Ok(())
    }

    fn other(&self) -> usize {
        let drawn = self.chance.fraction();
        1 + self.upper.partition_point(|upper| *upper < drawn).min(self.upper.len().saturating_sub(1))
    }

    /// The staleness of each sampled count: the age of its first missing like.
    pub(super) fn ages(&self, now: UnixMillis) -> Vec<Duration> {
        let counts = &self.stored.lock().counts;
        let age = |(post, times): &(usize, Vec<UnixMillis>)| {
            let first = usize::try_from(counts[*post]).ok().and_then(|counted| times.get(counted));
            first.map_or(Duration::ZERO, |said| now.since(*said))
        };
        self.times.iter().map(age).collect()
    }

    /// The numbers of wrong counts and of wrong rows.
    pub(super) fn wrong(&self) -> [u64; 2] {
        let stored = self.stored.lock();
        let counts = self.counts.iter().zip(&stored.counts).filter(|(said, counted)| said != counted);
        [counts.count() as u64, stored.wrong_rows]
    }
}

impl Stored {
    /// Each like is of another user, so it becomes one new row.
    fn row(&mut self, changed: &Changed) {
        let item = changed.new.as_ref().or(changed.old.as_ref());
        let nth = item.and_then(|item| item.text("user_id")?.strip_prefix("u-")?.parse::<usize>().ok());
        // Other items of the table, such as the markers of recounts.
        let Some(nth) = nth else { return };
        let row = changed.new.as_ref().filter(|_| changed.old.is_none());
        let post = row.and_then(|row| row.text("pk")?.strip_prefix("p-")?.split_once('#')?.0.parse().ok());
        let said = self.said.get_mut(nth).filter(|said| post.is_some() && **said == post);
        if said.and_then(Option::take).is_some() {
            self.rows += 1;
        } else {
            self.wrong_rows += 1;
        }
    }

    fn count(&mut self, changed: &Changed) {
        let item = changed.new.as_ref().or(changed.old.as_ref());
        let post = item.and_then(|item| item.text("post_id")?.strip_prefix("p-")?.parse::<usize>().ok());
        if let Some(count) = post.and_then(|post| self.counts.get_mut(post)) {
            *count = changed.new.as_ref().and_then(|item| item.whole("likes")).unwrap_or(0);
        }
    }
}
