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
    said: u64,
    /// The number of likes of each post.
    counts: Vec<i64>,
    /// The time of each like of the sampled posts.
    times: Vec<(usize, Vec<UnixMillis>)>,
}

impl Load {
    pub(super) fn new(posts: u32, rate: u64, partitions: u32) -> Self {
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
            said: 0,
            counts: vec![0; posts as usize],
            times: looked_at.map(|post| (post, Vec::new())).collect(),
        }
    }

    pub(super) fn said(&self) -> u64 {
        self.said
    }

    /// Produces the likes of one period.
    pub(super) fn produce(&mut self, broker: &Broker, now: UnixMillis, tick: u64, ticks: u64) -> anyhow::Result<()> {
        for _ in self.rate * tick / ticks..self.rate * (tick + 1) / ticks {
            let nth = self.said;
            let post = if nth.is_multiple_of(BUSY) { 0 } else { self.other() };
            let value = format!(r#"{{"post_id":"p-{post}","user_id":"u-{nth}","action":"like"}}"#);
            let key = format!("p-{post}");
            let partition = Some(partition_of(key.as_bytes(), self.partitions));
            let (key, value) = (Some(key.as_bytes()), Some(value.as_bytes()));
            let record = Outgoing { topic: TOPIC, partition, key, value, headers: &[] };
            broker.append(record, now).context("cannot append a like")?;
            self.said += 1;
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

/// What was observed of the rows and the counts.
#[derive(Clone, Copy, Default)]
pub(super) struct Found {
    /// The number of new rows.
    pub(super) there: u64,
    /// The number of changes of rows that were there already, which no like makes.
    pub(super) changed: u64,
    /// The sum of all counts.
    pub(super) counted: u64,
}

/// Observes the rows and counts in `emulator` from now on.
pub(super) fn observed(emulator: &Emulator) -> Result<Arc<Mutex<Found>>, ControlError> {
    let found = Arc::<Mutex<Found>>::default();
    let kept = Arc::clone(&found);
    emulator.watch("likes", move |changed| {
        let user = changed.new.as_ref().or(changed.old.as_ref()).and_then(|item| item.text("user_id"));
        // The table has other items, such as the markers of recounts.
        if user.is_some_and(|user| user.starts_with("u-")) {
            match changed.old {
                None => kept.lock().there += 1,
                Some(_) => kept.lock().changed += 1,
            }
        }
    })?;
    let kept = Arc::clone(&found);
    emulator.watch("like_counts", move |changed| {
        let likes = |item: &Option<Item>| item.as_ref().and_then(|item| item.whole("likes")).unwrap_or(0);
        let counted = &mut kept.lock().counted;
        *counted = counted.saturating_add_signed(likes(&changed.new) - likes(&changed.old));
    })?;
    Ok(found)
}
