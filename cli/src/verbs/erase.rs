//! `tally user erase` and `tally post erase`: take members out of sets, by events, so that rows, counts and other
//! readers of the topic agree. `Waiting` waits for events that are no rows yet; `erasing` reads the rows and produces
//! the events.

mod erasing;

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, bail};
use clap::Subcommand;
use tally_adapters::kafka;
use tally_batch_recount::Calls;
use tally_core::definitions::Definition;
use tally_core::ids::UserId;
use tally_core::ports::TopicReader as _;
use tally_core::time::UnixMillis;
use tally_service::Seldom;

pub(crate) use self::erasing::Subject;
use self::erasing::{Erased, Erasing, sets};
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
            found = came_to(&would, &erasing.subject, desk.clock.now());
            found.extend(waiting.lines());
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
            let mut lines = came_to(&erased, &erasing.subject, desk.clock.now());
            lines.push(format!("{} produced: the consumers take the rows away", counted(erased.produced, "event")));
            Ok(lines.join("\n"))
        });
        Ok(Answer::from(changed.await?.with(found)).wrong_if(is_left))
    }
}

/// Says what an erasure found, a line each.
fn came_to(erased: &Erased, subject: &Subject, now: UnixMillis) -> Vec<String> {
    let mut lines = vec![erased.counts()];
    if let Subject::Users(users) = subject {
        lines.push(format!("users with rows or tombstones: {} of {}", erased.users.len(), users.len()));
    }
    let left = erased.left.iter();
    lines.extend(
        left.map(|(counter, members)| format!("{members} members of {counter} are left: no action takes one out")),
    );
    lines.extend(erased.tombstones.stay(now));
    lines
}

/// The topics of the sets: where each ended at the beginning, and how far its rows have come. An erasure waits until the
/// rows have all of this. It would not find a like that is no row yet, and the consumer would write it afterwards.
struct Waiting(Vec<Seen>);

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

    /// Says how many records are not in the rows yet, a line for each topic that has some.
    fn lines(&self) -> Vec<String> {
        let line = |seen: &Seen| {
            let parts: Vec<&Part> = seen.parts.iter().filter(|part| seen.lag(part) > 0).collect();
            let count = parts.iter().map(|part| seen.lag(part)).sum();
            let partitions = ranges(parts.iter().map(|part| part.partition.index));
            let halted = parts.iter().find_map(|part| part.start.as_ref()?.as_ref().err());
            let why = match halted {
                Some(standstill) => format!(": {standstill}"),
                None if seen.is_paused() => ": paused, tally resume consumer".to_owned(),
                None => String::new(),
            };
            (count > 0)
                .then(|| format!("{}/{partitions}: {} not in the rows yet{why}", seen.name, counted(count, "record")))
        };
        self.0.iter().filter_map(line).collect()
    }

    /// Waits until the rows have everything that was in the topics at the beginning.
    ///
    /// # Errors
    /// A partition with such records is paused or has stopped, or it takes longer than `--patience`.
    async fn until_over(mut self, desk: &Desk) -> anyhow::Result<()> {
        let (began, shown) = (desk.clock.reading().at, Seldom::default());
        loop {
            let lines = self.lines();
            if lines.is_empty() {
                return Ok(());
            }
            let (lines, waited) = (lines.join("; "), desk.clock.reading().at.saturating_sub(began));
            if self.stands_still() || waited >= desk.patience {
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

    /// Returns whether records wait that no consumer reads until an operator does something.
    fn stands_still(&self) -> bool {
        let stands = |seen: &Seen, part: &Part| seen.is_paused() || matches!(part.start, Some(Err(_)));
        self.0.iter().any(|seen| seen.parts.iter().any(|part| seen.lag(part) > 0 && stands(seen, part)))
    }
}

#[cfg(test)]
mod tests;
