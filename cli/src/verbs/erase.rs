//! `tally user erase` and `tally post erase`: take members out of sets, by events, so that rows, counts and other
//! readers of the topic agree. `waiting` waits for events that are no rows yet; `erasing` reads the rows and produces
//! the events.

mod erasing;
mod waiting;

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context;
use clap::Subcommand;
use tally_adapters::kafka;
use tally_batch_recount::Calls;
use tally_core::ids::UserId;
use tally_core::ports::Producer;
use tally_core::time::UnixMillis;

pub(crate) use self::erasing::Subject;
use self::erasing::{Erased, Erasing, sets};
use self::waiting::Waiting;
use crate::change::Writing;
use crate::desk::{Desk, Where};
use crate::ended::Usage;
use crate::given::ids_of;
use crate::health::say;
use crate::said::{Answer, counted};

/// How often progress is printed.
const SHOWN: Duration = Duration::from_secs(10);

/// `tally user`.
#[derive(Clone, Debug, Subcommand)]
pub(crate) enum UserVerb {
    /// Takes users out of every set that has users as members, likes and retweets among them: reads the whole table once
    ///
    /// It waits first until everything that is in the topics by now is in the rows, and erases nothing if that takes
    /// longer than --patience. What users do after that is not erased: stop it before. Exits with 1 where members are
    /// left: their set has no remove action. Backups, the topic's retention, dead letters and logs keep what they have
    /// for their time.
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
    writing: Writing,

    #[command(flatten)]
    of: Where,
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
        let Self { counter, read_units_per_second, writing, of } = self;
        let desk = Desk::open(of).await?;
        let kafka = desk.kafka()?;
        let defined = desk.checkpoints.definitions().await.context("cannot read the counters")?;
        let erasing = Erasing {
            rows: desk.rows.clone(),
            shards: desk.shards,
            calls: Calls::new(read_units_per_second, desk.host().patience(), desk.stop.clone()),
            sets: sets(&defined, &counter, &subject)?,
            subject,
            topic: desk.topic.clone(),
        };
        let waiting = Waiting::look(&desk, &erasing.sets).await?;
        let named = named(&erasing.subject);
        let (mut plan, mut found, mut is_left) = (Vec::new(), Vec::new(), false);
        if writing.yes {
            plan.push(format!("take {named} out of their sets, by events to `{}`", desk.topic));
        } else {
            let would = run(&desk, &erasing, None).await?;
            is_left = !would.left.is_empty();
            found = came_to(&would, &erasing.subject, desk.clock.now());
            found.extend(waiting.lines());
            if would.found > 0 {
                let members = counted(would.found, "member");
                plan.push(format!("take {members} out of the sets of {named}, by events to `{}`", desk.topic));
            }
        }
        let changed = writing.carry_out(&desk, command, plan, async || {
            waiting.until_over(&desk).await?;
            let producer = kafka::Producer::new(kafka).context("cannot set up a producer")?;
            let erased = run(&desk, &erasing, Some(&producer)).await?;
            is_left = !erased.left.is_empty();
            let mut lines = came_to(&erased, &erasing.subject, desk.clock.now());
            lines.push(format!("{} produced: the consumers take the rows away", counted(erased.produced, "event")));
            Ok(lines.join("\n"))
        });
        Ok(Answer::from(changed.await?.with(found)).wrong_if(is_left))
    }
}

/// Names what is erased, for people.
fn named(subject: &Subject) -> String {
    match subject {
        Subject::Users(users) if users.len() > 1 => format!("{} users", users.len()),
        Subject::Users(users) => format!("the user {}", users.first().map_or("", |user| user.as_str())),
        Subject::Post(post) => format!("the post {post}"),
    }
}

/// Reads the members, takes them out if there is a producer, and prints progress now and then.
async fn run(desk: &Desk, erasing: &Erasing, producer: Option<&dyn Producer>) -> anyhow::Result<Erased> {
    let mut shown = desk.clock.reading().at;
    let seen = |erased: &Erased| {
        let now = desk.clock.reading().at;
        if now.saturating_sub(shown) >= SHOWN {
            shown = now;
            say(&said(erased));
        }
    };
    erasing.run(producer, seen).await
}

fn said(Erased { read, found, .. }: &Erased) -> String {
    format!("{} read, {} found", counted(*read, "row"), counted(*found, "member"))
}

/// Says what an erasure found, a line each.
fn came_to(erased: &Erased, subject: &Subject, now: UnixMillis) -> Vec<String> {
    let mut lines = vec![said(erased)];
    if let Subject::Users(users) = subject {
        lines.push(format!("users in the table: {} of {}", erased.users.len(), users.len()));
    }
    let left = erased.left.iter();
    lines.extend(
        left.map(|(counter, members)| format!("{members} members of {counter} are left: no action takes one out")),
    );
    lines.extend(erased.tombstones.stay(now));
    lines
}

#[cfg(test)]
mod tests;
