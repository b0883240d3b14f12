//! Erasure. For every member that is one of the users, or that the post has, it produces the remove action of the set
//! as an event. So rows, counts and other readers of the topic agree, and the consumer stays the only writer of rows.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use anyhow::bail;
use futures_util::FutureExt;
use futures_util::stream::TryStreamExt;
use tally_adapters::dynamodb::{Cursor, MemberRow, Rows, Segment};
use tally_batch_recount::{Calls, at_once, chosen};
use tally_core::definitions::{Definition, Definitions, Direction, MemberField, SubjectField};
use tally_core::event::{Said, encode};
use tally_core::ids::{CounterId, CounterKind, PostId, RowKey, ShardCount, UserId};
use tally_core::ports::Producer;
use tally_core::ports::log::Outgoing;
use tally_core::time::UnixMillis;
use tally_service::Seldom;

use crate::health::say;
use crate::said::counted;

/// How often progress is printed.
const SHOWN: Duration = Duration::from_secs(10);
/// How many events are under way at once.
const AT_ONCE: usize = 256;
/// How many segments of the table are read at once to find users' rows.
const SEGMENTS: u32 = 8;

/// Whose members are erased.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Subject {
    /// These users, wherever they are members.
    Users(BTreeSet<UserId>),
    /// All members of this post's sets.
    Post(PostId),
}

/// What an erasure has found and done so far.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Erased {
    /// How many rows were read.
    pub(super) read: u64,
    /// If users are erased: those that have rows or tombstones.
    pub(super) users: BTreeSet<UserId>,
    /// How many members were found in sets that have a remove action.
    pub(super) found: u64,
    /// How many events Kafka has acknowledged.
    pub(super) produced: u64,
    /// How many members are left, by the name of their set: it has no remove action.
    pub(super) left: BTreeMap<String, u64>,
    /// The tombstones of members that were taken out before.
    pub(super) tombstones: Tombstones,
}

/// Tombstones that were found. Each keeps the member's id until the store deletes it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Tombstones {
    pub(super) rows: u64,
    /// When the last of them expires, in seconds since 1970.
    pub(super) until: Option<u64>,
}

/// An erasure of one subject's members from some sets of a deployment.
pub(super) struct Erasing {
    pub(super) rows: Rows,
    pub(super) shards: ShardCount,
    pub(super) calls: Calls,
    pub(super) subject: Subject,
    pub(super) sets: Vec<Definition>,
    /// The topic for sets that have no topic of their own.
    pub(super) topic: String,
}

impl Erasing {
    /// Erases, and prints progress now and then. Without a producer it only counts what would be erased. Safe to repeat:
    /// taking a member out again changes nothing.
    ///
    /// # Errors
    /// A table or Kafka has a fault that waiting does not mend.
    pub(super) async fn run(&self, producer: Option<&dyn Producer>) -> anyhow::Result<Erased> {
        let mut pass = Pass { of: self, producer, shown: Seldom::default(), erased: Erased::default() };
        // Not at the beginning, when it would be due for the first time.
        pass.shown.is_due(SHOWN);
        match &self.subject {
            Subject::Post(post) => pass.post(post).await?,
            Subject::Users(users) => pass.users(users).await?,
        }
        Ok(pass.erased)
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
                topic: set.topic.as_deref().unwrap_or(&self.topic),
                partition: None,
                key: Some(subject.as_bytes()),
                value: Some(&event),
                headers: &[],
            })
        };
        self.calls.persist("produce what takes a member out", send).await.map(|_| ())
    }
}

impl Erased {
    /// Says how many rows were read, and how many members found.
    pub(super) fn counts(&self) -> String {
        format!("{} read, {} found", counted(self.read, "row"), counted(self.found, "member"))
    }
}

/// An erasure under way.
struct Pass<'a> {
    of: &'a Erasing,
    producer: Option<&'a dyn Producer>,
    shown: Seldom,
    erased: Erased,
}

impl Pass<'_> {
    async fn post(&mut self, post: &PostId) -> anyhow::Result<()> {
        let of = self.of;
        for set in &of.sets {
            let counter = CounterId { post: post.clone(), name: set.name.clone() };
            for key in &RowKey::all(&counter, of.shards).collect::<Vec<_>>() {
                let page = |after: Option<Cursor>| async move { of.rows.users(key, after.as_ref()).await };
                let mut pages = of.calls.pages("read rows", page);
                while let Some(rows) = pages.try_next().await? {
                    self.erased.read += rows.len() as u64;
                    let rows = rows.into_iter().map(|MemberRow { user, gone }| (set, post.clone(), user, gone));
                    self.take_out(rows.collect()).await?;
                }
            }
        }
        Ok(())
    }

    /// Erases users in one pass over the table, however many they are.
    async fn users(&mut self, users: &BTreeSet<UserId>) -> anyhow::Result<()> {
        let of = self.of;
        let page = |segment: Segment, after: Option<Cursor>| async move { of.rows.scan(segment, after.as_ref()).await };
        let mut pages = of.calls.scan("scan rows", SEGMENTS, page);
        while let Some(rows) = pages.try_next().await? {
            self.erased.read += rows.len() as u64;
            let rows = rows.into_iter().filter_map(|row| {
                let user = users.get(row.sort.as_str())?;
                let RowKey { counter, .. } = row.pk.parse().ok()?;
                let set = of.sets.iter().find(|set| set.name == counter.name)?;
                self.erased.users.insert(user.clone());
                Some((set, counter.post, user.clone(), row.gone))
            });
            let rows = rows.collect();
            self.take_out(rows).await?;
        }
        Ok(())
    }

    /// Produces the events that take `rows` out, except tombstones. Safe to repeat: taking one out again changes
    /// nothing.
    async fn take_out(&mut self, rows: Vec<(&Definition, PostId, UserId, Option<u64>)>) -> anyhow::Result<()> {
        let (mut taken, erased) = (Vec::new(), &mut self.erased);
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
        if let Some(producer) = self.producer {
            let of = self.of;
            let events = taken.into_iter().map(|(set, subject, member)| {
                async move { of.produce(producer, set, &subject, &member).await }.boxed()
            });
            erased.produced += at_once(AT_ONCE, events).await?.len() as u64;
        }
        if self.shown.is_due(SHOWN) {
            say(&self.erased.counts());
        }
        Ok(())
    }
}

impl Tombstones {
    /// Says how many tombstones stay, and for how long at least; `None` if there are none.
    pub(super) fn stay(self, now: UnixMillis) -> Option<String> {
        let Self { rows, until } = self;
        let seconds = until?.saturating_sub(now.0 / 1_000);
        let span = match until {
            Some(u64::MAX) => "for ever".to_owned(),
            _ => format!("for {} h and until the table's TTL deletes them", seconds.div_ceil(3_600)),
        };
        Some(format!("tombstones of earlier unlikes: {rows}, which stay {span}"))
    }
}

/// Returns the sets that an erasure goes through: those of these names, or all that fit if no name is given.
///
/// # Errors
/// A counter that is named does not exist, is a sum, or has members that are no users although users are erased.
pub(super) fn sets(defined: &Definitions, names: &[String], subject: &Subject) -> anyhow::Result<Vec<Definition>> {
    let (mut sets, are_users) = (Vec::new(), matches!(subject, Subject::Users(_)));
    for definition in chosen(defined, names)? {
        let unfit = if definition.kind() == CounterKind::Sum {
            Some("it is a sum, which has no members")
        } else {
            (are_users && definition.member != MemberField::User).then_some("its members are no users")
        };
        match unfit {
            // The sets of hashtags are left out: a hashtag may have the same id as the post.
            None if names.is_empty() && !are_users && definition.subject != SubjectField::Post => {}
            None => sets.push(definition),
            Some(why) if !names.is_empty() => bail!("counter {} cannot be erased from: {why}", definition.name),
            Some(why) => say(&format!("counter {} is left as it is: {why}", definition.name)),
        }
    }
    Ok(sets)
}
