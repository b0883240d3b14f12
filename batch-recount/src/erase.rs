//! Erasure: the remove action of each set for every member that is a user, or that a post has, produced through the topic, so
//! that rows, counts and followers agree and the consumer stays the only writer of rows.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use anyhow::bail;
use futures_util::FutureExt;
use futures_util::stream::TryStreamExt;
use serde::Serialize;
use tally_adapters::dynamodb::{self, Cursor, MemberRow, Segment};
use tally_core::definitions::{Definition, Definitions, Direction, MemberField, SubjectField};
use tally_core::event::{Said, encode};
use tally_core::ids::{CounterId, CounterKind, PostId, RowKey, ShardCount, UserId};
use tally_core::ports::Producer;
use tally_core::ports::log::Outgoing;
use tally_core::time::UnixMillis;
use tally_service::{Patience, Stop};

use crate::calls::{Calls, at_once};
use crate::metrics;
use crate::settle::{chosen, defined};

/// Events under way at once.
const AT_ONCE: usize = 256;
/// Parts of the table read at once for a user's rows.
const SEGMENTS: u32 = 8;

/// What to erase.
#[derive(Clone, Debug, PartialEq)]
pub struct EraseConfig {
    /// The user or the post.
    pub subject: Subject,
    /// The sets to erase from, by their names; with none all of them.
    pub counters: Vec<String>,
    /// Where events go.
    pub topic: String,
    /// Read units a second.
    pub read_units: Option<u32>,
}

/// Whose likes are erased.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Subject {
    /// All that these users gave.
    Users(BTreeSet<UserId>),
    /// All that this post got.
    Post(PostId),
}

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
    /// Rows that were read.
    pub read: u64,
    /// Users that have rows, tombstones among them, where users are erased.
    pub users: BTreeSet<UserId>,
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

/// An erasure under way.
struct Erasing<'a> {
    rows: dynamodb::Rows,
    producer: Option<Arc<dyn Producer>>,
    shards: ShardCount,
    calls: Calls,
    config: &'a EraseConfig,
    sets: Vec<Definition>,
}

/// Erases, in a deployment of so many shards; `seen` is told what it has come to behind each page that is read. Where `ports` has
/// no producer, it counts what would be erased, and erases nothing. Safe to repeat: taking a member out again changes nothing.
///
/// # Errors
/// A counter that cannot be erased from, or a fault that waiting does not mend.
pub async fn erase(
    ports: ErasePorts,
    shards: ShardCount,
    config: &EraseConfig,
    patience: Patience,
    stop: Stop,
    mut seen: impl FnMut(&Erased),
) -> anyhow::Result<Erased> {
    let calls = Calls::new(config.read_units, patience, stop);
    Erasing::new(ports, shards, calls, config).await?.erased(&mut seen).await
}

impl<'a> Erasing<'a> {
    async fn new(ports: ErasePorts, shards: ShardCount, calls: Calls, config: &'a EraseConfig) -> anyhow::Result<Self> {
        let are_users = matches!(config.subject, Subject::Users(_));
        let ErasePorts { tables, producer } = ports;
        let defined = defined(&calls, &dynamodb::Checkpoints::new(&tables)).await?;
        let sets = sets(&defined, &config.counters, are_users)?;
        Ok(Self { rows: dynamodb::Rows::new(&tables), producer, shards, calls, config, sets })
    }

    async fn erased(&self, seen: &mut impl FnMut(&Erased)) -> anyhow::Result<Erased> {
        match &self.config.subject {
            Subject::Post(post) => self.of_post(post, seen).await,
            Subject::Users(users) => self.of_users(users, seen).await,
        }
    }

    async fn of_post(&self, post: &PostId, seen: &mut impl FnMut(&Erased)) -> anyhow::Result<Erased> {
        let mut erased = Erased::default();
        for set in &self.sets {
            let counter = CounterId { post: post.clone(), name: set.name.clone() };
            for key in &RowKey::all(&counter, self.shards).collect::<Vec<_>>() {
                let page = |after: Option<Cursor>| async move { self.rows.users(key, after.as_ref()).await };
                let mut pages = self.calls.pages("read rows", page);
                while let Some(rows) = pages.try_next().await? {
                    erased.read += rows.len() as u64;
                    let rows = rows.into_iter().map(|MemberRow { user, gone }| (set, post.clone(), user, gone));
                    self.take_out(rows.collect(), &mut erased).await?;
                    seen(&erased);
                }
            }
        }
        Ok(erased)
    }

    /// One pass over the table, however many users there are.
    async fn of_users(&self, users: &BTreeSet<UserId>, seen: &mut impl FnMut(&Erased)) -> anyhow::Result<Erased> {
        let mut erased = Erased::default();
        let page =
            |segment: Segment, after: Option<Cursor>| async move { self.rows.scan(segment, after.as_ref()).await };
        let mut pages = self.calls.scan("scan rows", SEGMENTS, page);
        while let Some(rows) = pages.try_next().await? {
            erased.read += rows.len() as u64;
            let rows = rows.into_iter().filter_map(|row| {
                let user = users.get(row.sort.as_str())?;
                let RowKey { counter, .. } = row.pk.parse().ok()?;
                let set = self.sets.iter().find(|set| set.name == counter.name)?;
                erased.users.insert(user.clone());
                Some((set, counter.post, user.clone(), row.gone))
            });
            let rows = rows.collect();
            self.take_out(rows, &mut erased).await?;
            seen(&erased);
        }
        Ok(erased)
    }

    /// Produces what takes each member out that is not gone. Safe to repeat: taking one out again changes nothing.
    async fn take_out(
        &self,
        rows: Vec<(&Definition, PostId, UserId, Option<u64>)>,
        erased: &mut Erased,
    ) -> anyhow::Result<()> {
        let mut taken = Vec::new();
        for (set, subject, member, gone) in rows {
            if gone.is_some() {
                erased.tombstones.rows += 1;
                erased.tombstones.until = erased.tombstones.until.max(gone);
            } else if set.remove.is_some() {
                taken.push((set, subject, member));
            } else {
                *erased.left.entry(set.name.to_string()).or_default() += 1;
            }
        }
        erased.found += taken.len() as u64;
        let Some(producer) = self.producer.as_deref() else { return Ok(()) };
        let events = taken
            .into_iter()
            .map(|(set, subject, member)| async move { self.produce(producer, set, &subject, &member).await }.boxed());
        let produced = at_once(AT_ONCE, events).await?.len() as u64;
        erased.produced += produced;
        metrics::UNLIKES.counter(&[]).increment(produced);
        Ok(())
    }

    async fn produce(
        &self,
        producer: &dyn Producer,
        set: &Definition,
        subject: &PostId,
        member: &UserId,
    ) -> anyhow::Result<()> {
        let event = encode(set, subject, Direction::Remove, Said::Member(member), None, self.calls.now());
        let event = event.expect("sets without a remove action were left out");
        let send = || {
            producer.send(Outgoing {
                topic: set.topic.as_deref().unwrap_or(&self.config.topic),
                partition: None,
                key: Some(subject.as_bytes()),
                value: Some(&event),
                headers: &[],
            })
        };
        self.calls.persist("produce what takes a member out", send).await.map(|_| ())
    }
}

impl Tombstones {
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

/// The sets whose members of one subject, or of users, can be found by their rows: those named, or all that there are.
///
/// # Errors
/// A counter that is named and has no such members.
fn sets(defined: &Definitions, names: &[String], are_users: bool) -> anyhow::Result<Vec<Definition>> {
    let mut sets = Vec::new();
    for definition in chosen(defined, names)? {
        let unfit = if definition.kind() == CounterKind::Sum {
            Some("it is a sum, which has no members")
        } else {
            (are_users && definition.member != MemberField::User).then_some("its members are no users")
        };
        match unfit {
            // A hashtag may be called what a post is called.
            None if names.is_empty() && !are_users && definition.subject != SubjectField::Post => {}
            None => sets.push(definition),
            Some(why) if !names.is_empty() => bail!("counter {} cannot be erased from: {why}", definition.name),
            Some(why) => tracing::warn!(counter = %definition.name, why, "left as it is"),
        }
    }
    Ok(sets)
}
