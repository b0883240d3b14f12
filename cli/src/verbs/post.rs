//! `tally post`: shows a post's counters and why one is not exact (`show`), erases its members (`erase`), and queues
//! its counters for a recount (`recount`).

mod reasons;
mod recount;
mod regions;
pub(super) mod seen;

use std::time::Duration;

use clap::Subcommand;
use serde::Serialize;
use tally_core::ids::PostId;
use tally_service::parse_duration;

use self::reasons::{Age, Reason};
use self::recount::Recount;
use self::seen::Figures;
use crate::desk::{Desk, Where};
use crate::said::{Answer, Form, Table, ago, print};
use crate::verbs::erase::{Subject, What};

#[derive(Clone, Debug, Subcommand)]
pub(crate) enum Verb {
    /// Shows each counter of a post. Exits with 1 where one is not exact
    Show(Box<Show>),
    /// Takes every like out of a post, and the members out of its other sets. Exits with 1 where members are left:
    /// their set has no remove action
    ///
    /// It waits first, as `tally user erase` does.
    Erase {
        /// The post
        #[arg(value_name = "ID")]
        id: PostId,

        #[command(flatten)]
        what: Box<What>,
    },
    /// Queues the counters of a post for an exact recount: the recount that watches runs it
    Recount(Box<Recount>),
}

#[derive(clap::Args, Clone, Debug)]
pub(crate) struct Show {
    /// The post, or the hashtag
    #[arg(value_name = "ID")]
    id: PostId,

    /// This counter alone, by its name; may be given more than once
    #[arg(long, value_name = "NAME")]
    counter: Vec<String>,

    /// Say why a number is not exact, or not fresh, and what other Regions add: reads losses, runs, the ledger, and rows of the shards that are in doubt
    #[arg(long)]
    explain: bool,

    /// How old a number may be and be called fresh
    #[arg(long, default_value = "10s", value_parser = parse_duration, value_name = "SPAN")]
    fresh_within: Duration,

    /// The most rows that are read to explain one
    #[arg(long, default_value_t = 100_000, value_name = "COUNT")]
    rows: usize,

    #[command(flatten)]
    of: Where,
}

/// A counter of the post.
#[derive(Debug, Serialize)]
struct Shown {
    counter: String,
    #[serde(flatten)]
    figures: Figures,
    /// Every event that Kafka had acknowledged by this time is in the number. Absent where no such time is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    as_of: Option<u64>,
    fresh: bool,
    #[serde(skip)]
    age: String,
    /// The row keys that wait for a recount, each with the reason.
    queued: Vec<(String, &'static str)>,
    /// Why the number is not exact or not fresh. Absent without --explain.
    #[serde(skip_serializing_if = "Option::is_none")]
    why: Option<Vec<Reason>>,
    /// What other Regions add to the number. Absent without --explain, and where there are no other Regions.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    regions: Vec<regions::Entry>,
}

#[derive(Debug, Serialize)]
struct Post {
    post_id: String,
    counters: Vec<Shown>,
    /// The partition of the log of changes that has the post's changes.
    #[serde(skip_serializing_if = "Option::is_none")]
    partition: Option<u32>,
}

impl Answer for Post {
    fn table(&self) -> String {
        let headings =
            ["counter", "value", "exact", "fresh", "version", "shards", "corrections", "includes all before"];
        let mut table = Table::headed(headings);
        let yes = |is: bool| if is { "yes" } else { "no" };
        for Shown { counter, figures, fresh, age, .. } in &self.counters {
            let Figures { value, exact, version, shards, c, .. } = figures;
            let value = value.map_or("not readable".to_owned(), |value| value.to_string());
            table.row([counter, &value, &yes(*exact), &yes(*fresh), version, shards, c, age]);
        }
        let mut text = table.to_string();
        for Shown { counter, why, figures, queued, regions, .. } in &self.counters {
            for entry in regions {
                text.push_str(&format!("\n{counter} {entry}"));
            }
            if !queued.is_empty() {
                let queued: Vec<String> = queued.iter().map(|(key, why)| format!("{key} ({why})")).collect();
                text.push_str(&format!("\n{counter} waits for a recount: {}", queued.join(", ")));
            }
            for reason in why.iter().flatten() {
                text.push_str(&format!("\n{counter}: {reason}"));
            }
            if !figures.exact && why.is_none() {
                text.push_str(&format!("\n{counter} is not exact: --explain says why"));
            }
        }
        text
    }

    fn found(&self) -> bool {
        self.counters.iter().any(|Shown { figures, why, regions, .. }| {
            let is_exact = figures.exact && regions.iter().all(|entry| entry.exact);
            !is_exact || why.as_ref().is_some_and(|why| !why.is_empty())
        })
    }
}

impl Verb {
    pub(crate) async fn run(self, form: Form) -> anyhow::Result<u8> {
        match self {
            Self::Show(show) => print(&show.run().await?, form),
            Self::Erase { id, what } => what.erase(Subject::Post(id), "post erase", form).await,
            Self::Recount(recount) => print(&recount.run().await?, form),
        }
    }
}

impl Show {
    async fn run(self) -> anyhow::Result<Post> {
        let Self { id, counter, explain, fresh_within, rows, of } = self;
        let desk = Desk::open(of).await?;
        let chosen = seen::chosen(&desk, &id, &counter).await?;
        // In this order, as the API does: so the counters have at least what the standing says.
        let sources = seen::sources(&desk, &chosen).await?;
        let standing = seen::standing(&desk, &id, &sources).await?;
        let others = if explain { regions::standings(&desk, &id).await? } else { Vec::new() };
        let queued = seen::queued(&desk).await?;
        let now = desk.claims.time().latest;
        let mut counters = Vec::new();
        for (counter, sources) in chosen.into_iter().zip(sources) {
            let as_of = standing.as_of(&sources);
            let fresh = as_of.is_some_and(|as_of| now.since(as_of) <= fresh_within);
            let found = seen::counter(&desk, &counter, sources).await?;
            let why = match explain {
                true => Some(reasons::of(&desk, &found, &standing, Age { now, fresh_within }, rows).await?),
                false => None,
            };
            let waits = queued.iter().filter(|(key, _)| key.counter == counter);
            counters.push(Shown {
                counter: counter.name.to_string(),
                figures: Figures::of(&found, &standing),
                as_of: as_of.map(|as_of| as_of.0),
                fresh,
                age: as_of.map_or("not known".to_owned(), |as_of| format!("{} ago", ago(now.since(as_of)))),
                queued: waits.map(|(key, why)| (key.to_string(), *why)).collect(),
                why,
                regions: regions::entries(&desk, &counter, &others, now).await?,
            });
        }
        let partition = standing.partition();
        Ok(Post { post_id: id.to_string(), counters, partition })
    }
}
