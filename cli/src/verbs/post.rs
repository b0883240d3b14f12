//! `tally post`: shows a post's counters and why one is not exact (`show`), erases its members (`erase`), and queues
//! its counters for a recount (`recount`).

mod reasons;
mod recount;
mod regions;
pub(super) mod seen;

use std::time::Duration;

use clap::Subcommand;
use serde_json::{Value, json};
use tally_core::ids::PostId;
use tally_core::time::UnixMillis;
use tally_service::parse_duration;

use self::reasons::{Age, Reason};
use self::recount::Recount;
use self::seen::Figures;
use crate::desk::{Desk, Where};
use crate::said::{Answer, Table, past};
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

    /// Say why a number is not exact, or not fresh, and what other Regions add: reads losses, runs, the ledger, and rows of the shards that are in doubt. It does not compare all rows: a number that was edited by hand may be shown as exact until tally verify or tally post recount
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

impl Verb {
    pub(crate) async fn run(self) -> anyhow::Result<Answer> {
        match self {
            Self::Show(show) => show.run().await,
            Self::Erase { id, what } => what.erase(Subject::Post(id), "post erase").await,
            Self::Recount(recount) => recount.run().await,
        }
    }
}

/// The table of a post's counters, what is said of them below it, and their JSON.
struct Shown {
    table: Table,
    lines: String,
    counters: Vec<Value>,
    is_wrong: bool,
}

/// What was read about a counter, besides its figures.
struct About {
    as_of: Option<UnixMillis>,
    fresh: bool,
    age: String,
    /// The row keys that wait for a recount, each with the reason.
    queued: Vec<(String, &'static str)>,
    /// Why the number is not exact or not fresh; `None` without --explain.
    why: Option<Vec<Reason>>,
    /// What other Regions add to the number. Empty without --explain, and where there are no other Regions.
    regions: Vec<regions::Entry>,
}

impl Shown {
    fn new() -> Self {
        let headings =
            ["counter", "value", "exact", "fresh", "version", "shards", "corrections", "includes all before"];
        Self { table: Table::headed(headings), lines: String::new(), counters: Vec::new(), is_wrong: false }
    }

    fn add(&mut self, counter: &str, figures: &Figures, about: About) {
        let About { as_of, fresh, age, queued, why, regions } = about;
        let Figures { value, exact, version, shards, c, .. } = figures;
        let (shown, yes) =
            (value.map_or("not readable".to_owned(), |value| value.to_string()), |is| if is { "yes" } else { "no" });
        self.table.row([&counter, &shown, &yes(*exact), &yes(fresh), version, shards, c, &age]);
        let mut line = |line: String| self.lines.push_str(&format!("\n{counter}{line}"));
        regions.iter().for_each(|entry| line(format!(" {entry}")));
        if !queued.is_empty() {
            let queued: Vec<String> = queued.iter().map(|(key, why)| format!("{key} ({why})")).collect();
            line(format!(" waits for a recount: {}", queued.join(", ")));
        }
        why.iter().flatten().for_each(|reason| line(format!(": {}", reason.text)));
        if why.as_ref().is_some_and(Vec::is_empty) {
            line(": nothing is known to be wrong; tally verify compares all counts with their rows".to_owned());
        }
        if !exact && why.is_none() {
            line(" is not exact: --explain says why".to_owned());
        }
        let is_exact = *exact && regions.iter().all(|entry| entry.exact);
        self.is_wrong |= !is_exact || why.as_ref().is_some_and(|why| !why.is_empty());
        let mut json = json!(figures);
        (json["counter"], json["fresh"], json["queued"]) = (json!(counter), json!(fresh), json!(queued));
        if let Some(as_of) = as_of {
            json["as_of"] = json!(as_of.0);
        }
        if let Some(why) = why {
            json["why"] = why.into_iter().map(|reason| reason.json).collect();
        }
        if !regions.is_empty() {
            json["regions"] = json!(regions);
        }
        self.counters.push(json);
    }
}

impl Show {
    async fn run(self) -> anyhow::Result<Answer> {
        let Self { id, counter, explain, fresh_within, rows, of } = self;
        let desk = Desk::open(of).await?;
        let chosen = seen::chosen(&desk, &id, &counter).await?;
        // In this order, as the API does: so the counters have at least what the standing says.
        let sources = seen::sources(&desk, &chosen).await?;
        let standing = seen::standing(&desk, &id, &sources).await?;
        let others = if explain { regions::standings(&desk, &id).await? } else { Vec::new() };
        let queued = seen::queued(&desk).await?;
        let now = desk.claims.time().latest;
        let mut shown = Shown::new();
        for (counter, sources) in chosen.into_iter().zip(sources) {
            let as_of = standing.as_of(&sources);
            let found = seen::counter(&desk, &counter, sources).await?;
            let why = match explain {
                true => Some(reasons::of(&desk, &found, &standing, Age { now, fresh_within }, rows).await?),
                false => None,
            };
            let waits = queued.iter().filter(|(key, _)| key.counter == counter);
            let about = About {
                as_of,
                fresh: as_of.is_some_and(|as_of| now.since(as_of) <= fresh_within),
                age: as_of.map_or("not known".to_owned(), |as_of| past(now, Some(as_of))),
                queued: waits.map(|(key, why)| (key.to_string(), *why)).collect(),
                why,
                regions: regions::entries(&desk, &counter, &others, now).await?,
            };
            shown.add(counter.name.as_str(), &Figures::of(&found, &standing), about);
        }
        let Shown { table, lines, counters, is_wrong } = shown;
        let mut json = json!({"post_id": id.to_string(), "counters": counters});
        // The partition of the log of changes that has the post's changes.
        if let Some(partition) = standing.partition() {
            json["partition"] = json!(partition);
        }
        Ok(Answer::new(json, format!("{table}{lines}")).wrong_if(is_wrong))
    }
}
