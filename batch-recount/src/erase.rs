//! Erasure: the remove action of each set for every member that is a user, or that a post has, produced through the topic, so
//! that rows, counts and followers agree and the consumer stays the only writer of rows.

use std::collections::BTreeMap;
use std::io::{IsTerminal, Write};
use std::sync::Arc;

use futures_util::FutureExt;
use futures_util::stream::{self, StreamExt, TryStreamExt};
use serde::Serialize;
use serde_json::json;
use tally_adapters::dynamodb;
use tally_adapters::dynamodb::{MemberRow, Segment};
use tally_core::definitions::{Definition, Direction};
use tally_core::event::{Said, encode};
use tally_core::ids::{CounterId, PostId, RowKey, ShardCount, UserId};
use tally_core::ports::Producer;
use tally_core::ports::log::Outgoing;
use tally_core::time::UnixMillis;
use tally_service::{Chance, Clock, Exit, Stop};

use crate::calls::Calls;
use crate::config::{EraseConfig, Subject};
use crate::counters::{defined, sets};
use crate::metrics;

/// Events under way at once.
const AT_ONCE: usize = 256;
/// Parts of the table read at once for a user's rows.
const SEGMENTS: u32 = 8;

/// What an erasure works on.
#[derive(Clone)]
pub struct ErasePorts {
    /// The tables: what members there are is read of them.
    pub tables: dynamodb::Connection,
    /// Where events go; `None` for a dry run.
    pub producer: Option<Arc<dyn Producer>>,
}

/// What an erasure came to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Erased {
    /// Members found in sets that they can be taken out of.
    pub found: u64,
    /// Events that Kafka has acknowledged.
    pub produced: u64,
    /// By name: members found in sets that no action takes one out of.
    pub left: BTreeMap<String, u64>,
    /// What is left of members that were taken out before.
    pub tombstones: Tombstones,
}

/// Tombstones that were met. Each keeps the member's id until the store deletes it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Tombstones {
    pub rows: u64,
    /// When the store deletes the last of them, in seconds.
    pub until: Option<u64>,
}

/// A member to be taken out of a set.
struct Taken {
    set: Arc<Definition>,
    subject: PostId,
    member: UserId,
}

/// An erasure under way.
pub(crate) struct Erasing<'a> {
    rows: dynamodb::Rows,
    producer: Option<Arc<dyn Producer>>,
    shards: ShardCount,
    calls: Calls,
    config: &'a EraseConfig,
    sets: Vec<Arc<Definition>>,
}

/// Erases, in a deployment of so many shards. Where `ports` has no producer, it counts what would be erased, and erases
/// nothing. Safe to repeat: taking a member out again changes nothing.
///
/// # Errors
/// A counter that cannot be erased from, or a fault that waiting does not mend.
pub async fn erase(
    ports: ErasePorts,
    shards: ShardCount,
    config: &EraseConfig,
    clock: Clock,
    (chance, stop): (Chance, Stop),
) -> anyhow::Result<Erased> {
    let calls = Calls::new(config.read_units, (clock, chance), stop);
    Erasing::new(ports, shards, calls, config).await?.erased().await
}

/// Erases, and reports. Not clean where members were found that no action takes out.
pub(crate) async fn erase_and_report(
    ports: ErasePorts,
    shards: ShardCount,
    calls: Calls,
    config: &EraseConfig,
) -> anyhow::Result<Exit> {
    let erasing = Erasing::new(ports, shards, calls, config).await?;
    let erased = erasing.erased().await?;
    for (counter, members) in &erased.left {
        tracing::error!(counter, members, "cannot be erased from: no action takes a member out of it");
    }
    let exit = if erased.left.is_empty() { Exit::CLEAN } else { Exit::FAILED };
    erasing.print(&erased);
    Ok(exit)
}

impl<'a> Erasing<'a> {
    async fn new(ports: ErasePorts, shards: ShardCount, calls: Calls, config: &'a EraseConfig) -> anyhow::Result<Self> {
        let are_users = matches!(config.subject, Subject::User(_));
        let ErasePorts { tables, producer } = ports;
        let defined = defined(&calls, &dynamodb::Checkpoints::new(&tables)).await?;
        let sets = sets(&defined, &config.counters, are_users)?.into_iter().map(Arc::new).collect();
        Ok(Self { rows: dynamodb::Rows::new(&tables), producer, shards, calls, config, sets })
    }

    async fn erased(&self) -> anyhow::Result<Erased> {
        match &self.config.subject {
            Subject::Post(post) => self.of_post(post).await,
            Subject::User(user) => self.of_user(user).await,
        }
    }

    async fn of_post(&self, post: &PostId) -> anyhow::Result<Erased> {
        let (calls, mut erased) = (&self.calls, Erased::default());
        for set in &self.sets {
            let counter = CounterId { post: post.clone(), name: set.name.clone() };
            for key in RowKey::all(&counter, self.shards) {
                let mut after = None;
                loop {
                    let page = calls.page("read rows", || self.rows.users(&key, after.as_ref())).await?;
                    let (members, gone) = page.items.into_iter().partition::<Vec<_>, _>(|row| row.gone.is_none());
                    erased.tombstones.add(Tombstones {
                        rows: gone.len() as u64,
                        until: gone.iter().filter_map(|row| row.gone).max(),
                    });
                    let taken =
                        |row: MemberRow| Taken { set: Arc::clone(set), subject: post.clone(), member: row.user };
                    erased.add(self.take_out(members.into_iter().map(taken).collect()).await?);
                    after = page.next;
                    if after.is_none() {
                        break;
                    }
                }
            }
        }
        Ok(erased)
    }

    async fn of_user(&self, user: &UserId) -> anyhow::Result<Erased> {
        let parts = (0..SEGMENTS).map(|index| Segment { index, of: SEGMENTS });
        stream::iter(parts)
            .map(|segment| self.in_segment(segment, user).boxed())
            .buffer_unordered(SEGMENTS as usize)
            .try_fold(Erased::default(), |mut sum, erased| {
                sum.add(erased);
                std::future::ready(Ok(sum))
            })
            .await
    }

    async fn in_segment(&self, segment: Segment, user: &UserId) -> anyhow::Result<Erased> {
        let (mut erased, mut after) = (Erased::default(), None);
        loop {
            let scan = || self.rows.scan(segment, after.as_ref());
            let page = self.calls.page("scan rows", scan).await?;
            let theirs = page.items.iter().filter(|row| row.sort == user.as_str());
            let mut taken = Vec::new();
            for row in theirs {
                let Ok(RowKey { counter, .. }) = row.pk.parse() else { continue };
                let Some(set) = self.sets.iter().find(|set| set.name == counter.name) else { continue };
                match row.gone {
                    Some(gone) => erased.tombstones.add(Tombstones { rows: 1, until: Some(gone) }),
                    None => {
                        taken.push(Taken { set: Arc::clone(set), subject: counter.post, member: user.clone() });
                    }
                }
            }
            erased.add(self.take_out(taken).await?);
            after = page.next;
            if after.is_none() {
                return Ok(erased);
            }
        }
    }

    /// Produces what takes each member out. Safe to repeat: taking one out again changes nothing.
    async fn take_out(&self, taken: Vec<Taken>) -> anyhow::Result<Erased> {
        let mut erased = Erased::default();
        let (taken, stay): (Vec<_>, Vec<_>) = taken.into_iter().partition(|taken| taken.set.remove.is_some());
        for Taken { set, .. } in stay {
            *erased.left.entry(set.name.to_string()).or_default() += 1;
        }
        erased.found = taken.len() as u64;
        let Some(producer) = self.producer.as_deref() else { return Ok(erased) };
        erased.produced = stream::iter(taken)
            .map(|taken| self.produce(taken, producer).boxed())
            .buffer_unordered(AT_ONCE)
            .try_fold(0, |sum, ()| std::future::ready(Ok(sum + 1)))
            .await?;
        metrics::unlikes(erased.produced);
        Ok(erased)
    }

    async fn produce(&self, taken: Taken, producer: &dyn Producer) -> anyhow::Result<()> {
        let (Taken { set, subject, member }, Self { calls, config, .. }) = (taken, self);
        let event = encode(&set, &subject, Direction::Remove, Said::Member(&member), None, calls.now());
        let event = event.expect("sets without a remove action were left out");
        let send = || {
            producer.send(Outgoing {
                topic: set.topic.as_deref().unwrap_or(&config.topic),
                partition: None,
                key: Some(subject.as_bytes()),
                value: Some(&event),
                headers: &[],
            })
        };
        calls.persist("produce what takes a member out", send).await.map(|_| ())
    }

    fn print(&self, erased: &Erased) {
        let (Erased { found, produced, left, tombstones }, cost) = (erased, self.calls.cost());
        let dry_run = self.producer.is_none();
        tracing::info!(found, produced, tombstones = tombstones.rows, dry_run, "erasure ends");
        // A closed pipe is no failure of the erasure.
        let mut out = std::io::stdout();
        let _ = if out.is_terminal() {
            let so = if dry_run { " (dry run)" } else { "" };
            let left: u64 = left.values().sum();
            let left = if left > 0 { format!(", {left} cannot be taken back") } else { String::new() };
            let stay = tombstones.stay(self.calls.now()).map(|stay| format!("\n{stay}")).unwrap_or_default();
            writeln!(out, "found {found}, taken back {produced}{so}{left}, read units {}{stay}", cost.read_units)
        } else {
            let erased = json!({
                "found": found, "produced": produced, "left": left, "tombstones": tombstones, "dry_run": dry_run, "cost": cost
            });
            writeln!(out, "{}", json!({"erased": erased}))
        };
    }
}

impl Erased {
    fn add(&mut self, other: Self) {
        self.found += other.found;
        self.produced += other.produced;
        for (counter, members) in other.left {
            *self.left.entry(counter).or_default() += members;
        }
        self.tombstones.add(other.tombstones);
    }
}

impl Tombstones {
    fn add(&mut self, other: Self) {
        self.rows += other.rows;
        self.until = self.until.max(other.until);
    }

    /// How many keep an id, and for how long, for people; nothing where there are none.
    pub fn stay(self, now: UnixMillis) -> Option<String> {
        let Self { rows, until } = self;
        let seconds = until?.saturating_sub(now.0 / 1_000);
        let span = if until == Some(u64::MAX) {
            "for ever".to_owned()
        } else {
            format!("for {} h at most", seconds.div_ceil(3_600))
        };
        Some(format!("{rows} tombstones of members that were taken out before stay {span}"))
    }
}
