//! Produces likes at a fixed rate, each of another user: a fifth of them for one post, the rest by Zipf. It also observes in
//! the store which likes are rows already, and how many are counted.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use parking_lot::Mutex;
use tally_adapters::memory::log::Broker;
use tally_core::event::partition_of;
use tally_core::ids::{CounterId, PostId};
use tally_core::ports::log::Outgoing;
use tally_core::time::UnixMillis;
use tally_emulator::value::Item;
use tally_emulator::{ControlError, Emulator};
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
    pub(super) rows: Rows,
    /// The number of likes of each post.
    counts: Vec<i64>,
    /// The time of each like of the sampled posts.
    times: Vec<(usize, Vec<UnixMillis>)>,
}

impl Load {
    /// Likes whose rows will be in `rows`.
    pub(super) fn new(posts: u32, rate: u64, partitions: u32, rows: Rows) -> Self {
        let mut total = 0.0;
        let weights: Vec<f64> = (1..posts)
            .map(|rank| {
                total += 1.0 / f64::from(rank);
                total
            })
            .collect();
        let looked_at = LOOKED_AT.into_iter().filter(|post| *post < posts as usize);
        Self {
            rate,
            partitions,
            chance: Chance::seeded(7),
            upper: weights.into_iter().map(|upper| upper / total).collect(),
            rows,
            counts: vec![0; posts as usize],
            times: looked_at.map(|post| (post, Vec::new())).collect(),
        }
    }

    pub(super) fn said(&self) -> u64 {
        self.rows.0.lock().said.len() as u64
    }

    /// The number of likes that are not in the rows yet.
    pub(super) fn behind(&self) -> u64 {
        self.said().saturating_sub(self.rows.there())
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
            self.rows.0.lock().said.push(u32::try_from(post).unwrap_or(u32::MAX));
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

    /// The sampled counters.
    pub(super) fn looked_at(&self) -> Vec<CounterId> {
        self.times.iter().map(|(post, _)| likes(*post)).collect()
    }

    /// The staleness of each count: the age of its first missing like.
    pub(super) fn ages(&self, counted: impl Iterator<Item = i64>, now: UnixMillis) -> Vec<Duration> {
        let lacks = |((_, times), counted): (&(usize, Vec<UnixMillis>), i64)| {
            let first = usize::try_from(counted).ok().and_then(|counted| times.get(counted));
            first.map_or(Duration::ZERO, |said| now.since(*said))
        };
        self.times.iter().zip(counted).map(lacks).collect()
    }

    /// The expected count of each post.
    pub(super) fn counts(&self) -> Vec<(CounterId, i64)> {
        self.counts.iter().enumerate().map(|(post, count)| (likes(post), *count)).collect()
    }
}

fn likes(post: usize) -> CounterId {
    CounterId::likes(PostId::new(&format!("p-{post}")).expect("a letter and digits are an id"))
}

/// The rows and the counts. Clones share them.
#[derive(Clone, Default)]
pub(super) struct Rows(Arc<Mutex<Found>>);

#[derive(Default)]
struct Found {
    /// The post of each like, in order.
    said: Vec<u32>,
    /// The number of likes that are rows.
    there: u64,
    /// The sum of all counts.
    counted: i64,
    /// The number of changes that no like makes.
    wrong: u64,
}

impl Rows {
    /// Observes the rows and counts in `emulator` from now on.
    pub(super) fn of(emulator: &Emulator) -> Result<Self, ControlError> {
        let rows = Self::default();
        let kept = rows.clone();
        emulator.watch("likes", move |changed| {
            let Some(user) = changed.new.as_ref().or(changed.old.as_ref()).and_then(|item| item.text("user_id")) else {
                return;
            };
            // Other items of the table, such as the markers of recounts.
            let Some(nth) = user.strip_prefix("u-").and_then(|nth| nth.parse().ok()) else { return };
            let row = changed.new.as_ref().filter(|_| changed.old.is_none());
            kept.0.lock().note(nth, row);
        })?;
        let kept = rows.clone();
        emulator.watch("like_counts", move |changed| {
            let likes = |item: &Option<Item>| item.as_ref().and_then(|item| item.whole("likes")).unwrap_or(0);
            kept.0.lock().counted += likes(&changed.new) - likes(&changed.old);
        })?;
        Ok(rows)
    }

    pub(super) fn there(&self) -> u64 {
        self.0.lock().there
    }

    pub(super) fn counted(&self) -> u64 {
        u64::try_from(self.0.lock().counted).unwrap_or(0)
    }

    pub(super) fn wrong(&self) -> u64 {
        self.0.lock().wrong
    }
}

impl Found {
    /// Records a new row of the user of the `nth` like; `None` stands for any other change.
    fn note(&mut self, nth: usize, row: Option<&Item>) {
        let post = row.and_then(|row| row.text("pk")).and_then(|key| key.strip_prefix("p-")?.split_once('#'));
        let post = post.and_then(|(post, _)| post.parse().ok());
        if post.is_some() && post == self.said.get(nth).copied() {
            self.there += 1;
        } else {
            self.wrong += 1;
        }
    }
}
