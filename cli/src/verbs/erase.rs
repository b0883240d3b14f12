//! `tally user erase` and `tally post erase`: take users, or a post's members, out of sets (counters of members, such
//! as likes). For each they produce the set's remove action as an event. So rows, counts and other readers agree, and
//! the consumer stays the only writer of rows. `Waiting` waits first for events that are no rows yet.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, bail};
use clap::Subcommand;
use futures_util::FutureExt as _;
use futures_util::stream::TryStreamExt as _;
use tally_adapters::dynamodb::{Cursor, MemberRow, Rows, Segment};
use tally_adapters::kafka;
use tally_batch_recount::{Calls, at_once, chosen};
use tally_core::definitions::{Definition, Definitions, Direction, MemberField, SubjectField};
use tally_core::event::{Said, encode};
use tally_core::ids::{CounterId, CounterKind, PostId, RowKey, ShardCount, UserId};
use tally_core::ports::log::Outgoing;
use tally_core::ports::{Producer, TopicReader as _};
use tally_core::time::UnixMillis;
use tally_service::Seldom;

use crate::change::Changing;
use crate::desk::Desk;
use crate::ended::Usage;
use crate::given::ids_of;
use crate::health::say;
use crate::said::{Answer, counted, ranges};
use crate::verbs::topic::{Part, Seen};

/// How often the positions of the rows are read before an erasure, and how often it is printed what it waits for.
const LOOK: Duration = Duration::from_secs(1);
const WAIT_SHOWN: Duration = Duration::from_secs(30);
/// How often progress is printed.
const SHOWN: Duration = Duration::from_secs(10);
/// How many events are under way at once.
const AT_ONCE: usize = 256;
/// How many segments of the table are read at once to find users' rows.
const SEGMENTS: u32 = 8;

/// `tally user`.
#[derive(Clone, Debug, Subcommand)]
pub(crate) enum UserVerb {
    /// Takes users out of every set that has users as members, likes and retweets among them: reads the whole table once
    ///
    /// It waits first until everything that is in the topics by now is in the rows, and erases nothing if that takes
    /// longer than --patience. What users do after that is not erased: let your app block them before. Exits with 1
    /// where members are left: their set has no remove action. docs/operate.md lists where the ids stay, and how long.
    /// The ledger names no user: name none in --why either.
    Erase {
        /// The users
        #[arg(value_name = "ID")]
        ids: Vec<UserId>,

        /// A file with more of them, one a line. `-` is the standard input
        #[arg(long, value_name = "FILE")]
        file: Option<PathBuf>,

        #[command(flatten)]
        what: Box<What>,
    },
}

#[derive(clap::Args, Clone, Debug)]
pub(crate) struct What {
    /// Erase from this set alone, by its name; may be given more than once
    #[arg(long, value_name = "NAME")]
    counter: Vec<String>,

    /// Read units a second at most
    #[arg(long, value_name = "UNITS", value_parser = clap::value_parser!(u32).range(1..))]
    read_units_per_second: Option<u32>,

    #[command(flatten)]
    change: Changing,
}

impl UserVerb {
    pub(crate) async fn run(self) -> anyhow::Result<Answer> {
        let Self::Erase { ids, file, what } = self;
        let mut users: BTreeSet<UserId> = ids.into_iter().collect();
        if let Some(file) = file {
            users.extend(ids_of(&file)?);
        }
        if users.is_empty() {
            return Err(Usage("say which users, by their ids or --file".to_owned()).into());
        }
        what.erase(Subject::Users(users), "user erase").await
    }
}

impl What {
    /// Reads the rows and says what would be erased. With `--yes` waits until the rows have what is in the topics, and
    /// erases what it finds then.
    pub(crate) async fn erase(self, subject: Subject, command: &'static str) -> anyhow::Result<Answer> {
        let Self { counter, read_units_per_second, change: Changing { writing, of } } = self;
        let desk = Desk::open(of).await?;
        let (kafka, usual) = (desk.kafka()?, desk.usual_topic().await?);
        let defined = desk.checkpoints.definitions().await.context("cannot read the counters")?;
        let erasing = Erasing {
            rows: desk.rows.clone(),
            shards: desk.shards,
            calls: Calls::new(read_units_per_second, desk.host.patience(), desk.host.stop()),
            sets: sets(&defined, &counter, &subject)?,
            subject,
            topic: usual.clone(),
        };
        let waiting = Waiting::look(&desk, &usual, &erasing.sets).await?;
        // The ledger keeps these lines: they name no user.
        let named = match &erasing.subject {
            Subject::Users(users) => counted(users.len() as u64, "user"),
            Subject::Post(post) => format!("the post {post}"),
        };
        let (mut plan, mut found, mut is_left) = (Vec::new(), Vec::new(), false);
        if writing.yes {
            plan.push(format!("take {named} out of their sets, by events to `{usual}`"));
        } else {
            let would = erasing.run(None).await?;
            is_left = !would.left.is_empty();
            found = would.lines(&erasing.subject, desk.clock.now());
            found.extend(waiting.waits().into_iter().map(|wait| wait.line));
            if would.found > 0 {
                let members = counted(would.found, "member");
                plan.push(format!("take {members} out of the sets of {named}, by events to `{usual}`"));
            }
        }
        let changed = writing.carry_out(&desk, command, plan, async || {
            waiting.until_over(&desk).await?;
            let producer = kafka::Producer::new(kafka).context("cannot set up a producer")?;
            let erased = erasing.run(Some(&producer)).await?;
            is_left = !erased.left.is_empty();
            let mut lines = erased.lines(&erasing.subject, desk.clock.now());
            lines.push(format!("{} produced: the consumers take the rows away", counted(erased.produced, "event")));
            Ok(lines.join("\n"))
        });
        Ok(Answer::from(changed.await?.with(found)).wrong_if(is_left))
    }
}

/// The topics of the sets: where each ended at the beginning, and how far its rows have come. An erasure waits until the
/// rows have all of this. It would not find a like that is no row yet, and the consumer would write it afterwards.
struct Waiting(Vec<Seen>);

/// Records of one topic that are not in the rows yet, and whether they wait for an operator.
struct Wait {
    line: String,
    stands_still: bool,
}

impl Waiting {
    /// Looks at the topics of `sets`; `usual` is that of a set that names none.
    async fn look(desk: &Desk, usual: &str, sets: &[Definition]) -> anyhow::Result<Self> {
        let topics: BTreeSet<&str> = sets.iter().map(|set| set.topic.as_deref().unwrap_or(usual)).collect();
        let mut seen = Vec::new();
        for topic in topics {
            let exists = desk.consumers_of(topic)?.exists().await;
            // Nothing waits in a topic that was never created.
            if exists.with_context(|| format!("cannot look at `{topic}`"))? {
                seen.push(Seen::look(desk, topic).await?);
            }
        }
        Ok(Self(seen))
    }

    /// Returns what is not in the rows yet, for each topic that has such records.
    fn waits(&self) -> Vec<Wait> {
        let of = |seen: &Seen| {
            let parts: Vec<&Part> = seen.parts.iter().filter(|part| seen.lag(part) > 0).collect();
            let count = parts.iter().map(|part| seen.lag(part)).sum();
            let partitions = ranges(parts.iter().map(|part| part.partition.index));
            let why = match parts.iter().find_map(|part| part.start.as_ref()?.as_ref().err()) {
                Some(standstill) => format!(": {standstill}"),
                None if seen.is_paused() => ": paused, tally resume consumer".to_owned(),
                None => String::new(),
            };
            let line = format!("{}/{partitions}: {} not in the rows yet{why}", seen.name, counted(count, "record"));
            (count > 0).then_some(Wait { line, stands_still: !why.is_empty() })
        };
        self.0.iter().filter_map(of).collect()
    }

    /// Waits until the rows have everything that was in the topics at the beginning.
    ///
    /// # Errors
    /// A partition with such records is paused or has stopped, or it takes longer than `--patience`.
    async fn until_over(mut self, desk: &Desk) -> anyhow::Result<()> {
        let (began, shown) = (desk.clock.reading().at, Seldom::default());
        loop {
            let waits = self.waits();
            if waits.is_empty() {
                return Ok(());
            }
            let lines = waits.iter().map(|wait| &*wait.line).collect::<Vec<_>>().join("; ");
            let is_late = desk.clock.reading().at.saturating_sub(began) >= desk.patience;
            if is_late || waits.iter().any(|wait| wait.stands_still) {
                bail!("nothing was erased: likes that wait in Kafka would come back: {lines}");
            }
            if shown.is_due(WAIT_SHOWN) {
                say(&format!("waiting for the consumers: {lines}"));
            }
            desk.clock.sleep(LOOK).await;
            for seen in &mut self.0 {
                seen.look_at_rows(desk).await?;
            }
        }
    }
}

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
struct Erased {
    read: u64,
    /// If users are erased: those that have rows or tombstones.
    users: BTreeSet<UserId>,
    /// How many members were found in sets that have a remove action.
    found: u64,
    /// How many events Kafka has acknowledged.
    produced: u64,
    /// How many members are left, by the name of their set: it has no remove action.
    left: BTreeMap<String, u64>,
    /// Tombstones of members that were taken out before. Each has the member's id until the store deletes it.
    tombstones: u64,
    /// When the last of them expires, in seconds since 1970.
    tombstones_until: Option<u64>,
}

/// An erasure of one subject's members from some sets of a deployment.
struct Erasing {
    rows: Rows,
    shards: ShardCount,
    calls: Calls,
    subject: Subject,
    sets: Vec<Definition>,
    /// The topic for sets that have no topic of their own.
    topic: String,
}

impl Erasing {
    /// Erases, and prints progress now and then. Without a producer it only counts what would be erased. Safe to repeat:
    /// taking a member out again changes nothing.
    ///
    /// # Errors
    /// A table or Kafka has a fault that waiting does not mend.
    async fn run(&self, producer: Option<&dyn Producer>) -> anyhow::Result<Erased> {
        let mut pass = Pass { of: self, producer, shown: Seldom::default(), erased: Erased::default() };
        // Not at the beginning, when it would be due for the first time.
        pass.shown.is_due(SHOWN);
        match &self.subject {
            Subject::Post(post) => pass.post(post).await?,
            Subject::Users(users) => pass.users(users).await?,
        }
        Ok(pass.erased)
    }

    async fn produce(&self, to: &dyn Producer, set: &Definition, of: &PostId, member: &UserId) -> anyhow::Result<()> {
        let event = encode(set, of, Direction::Remove, Said::Member(member), None, self.calls.now());
        let event = event.expect("sets without a remove action were left out");
        let (topic, key, value) = (set.topic.as_deref().unwrap_or(&self.topic), Some(of.as_bytes()), Some(&*event));
        let send = || to.send(Outgoing { topic, partition: None, key, value, headers: &[] });
        self.calls.persist("produce what takes a member out", send).await.map(|_| ())
    }
}

impl Erased {
    /// Says how many rows were read, and how many members found.
    fn counts(&self) -> String {
        format!("{} read, {} found", counted(self.read, "row"), counted(self.found, "member"))
    }

    /// Says what was found, and what stays, a line each.
    fn lines(&self, subject: &Subject, now: UnixMillis) -> Vec<String> {
        let mut lines = vec![self.counts()];
        if let Subject::Users(users) = subject {
            lines.push(format!("users with rows or tombstones: {} of {}", self.users.len(), users.len()));
        }
        for (counter, members) in &self.left {
            lines.push(format!("{members} members of {counter} are left: no action takes one out"));
        }
        if let Some(until) = self.tombstones_until {
            let hours = until.saturating_sub(now.0 / 1_000).div_ceil(3_600);
            let span = match until {
                u64::MAX => "for ever".to_owned(),
                _ => format!("for {hours} h and until the table's TTL deletes them"),
            };
            lines.push(format!("tombstones of earlier unlikes: {}, which stay {span}", self.tombstones));
        }
        lines
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
                erased.tombstones += 1;
                erased.tombstones_until = erased.tombstones_until.max(gone);
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

/// Returns the sets that an erasure goes through: those of these names, or all that fit if no name is given.
///
/// # Errors
/// A counter that is named does not exist, is a sum, or has members that are no users although users are erased.
fn sets(defined: &Definitions, names: &[String], subject: &Subject) -> anyhow::Result<Vec<Definition>> {
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

#[cfg(test)]
mod tests;
