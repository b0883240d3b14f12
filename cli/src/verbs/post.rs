//! `tally post`: shows a post's counters and why one is not exact (`show`), takes all members out of its sets, such as
//! the users who like it (`erase`), and queues its counters for a recount (`recount`).

mod reasons;
pub(super) mod seen;

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::Context;
use clap::Subcommand;
use serde_json::json;
use tally_core::audit::QueueReason;
use tally_core::ids::{PostId, RowKey, Shard};
use tally_service::parse_duration;

use self::reasons::Age;
use self::seen::Figures;
use crate::change::Changing;
use crate::desk::{Desk, Where};
use crate::said::{Answer, Table, add, or, past};
use crate::verbs::erase::{Subject, What};
use crate::verbs::regions;

#[derive(Clone, Debug, Subcommand)]
pub(crate) enum Verb {
    /// Shows each counter of a post. Exits with 1 where one is not exact or not fresh; with --explain also where another
    /// Region's part is not exact, or a large correction was withheld
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
    Recount {
        /// The post, or the hashtag
        #[arg(value_name = "ID")]
        id: PostId,

        /// This counter alone, by its name; may be given more than once
        #[arg(long, value_name = "NAME")]
        counter: Vec<String>,

        #[command(flatten)]
        change: Box<Changing>,
    },
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
            Self::Recount { id, counter, change } => recount(&id, &counter, *change).await,
        }
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
        let others = if explain { regions::look(&desk).await? } else { Vec::new() };
        let queued = seen::queued(&desk).await?;
        let age = Age { now: desk.claims.time().latest, fresh_within };
        let headings =
            ["counter", "value", "exact", "fresh", "version", "shards", "corrections", "includes all before"];
        let (mut table, mut text, mut counters) = (Table::headed(headings), String::new(), Vec::new());
        for (counter, sources) in chosen.into_iter().zip(sources) {
            let found = seen::counter(&desk, &counter, sources).await?;
            let mut figures = Figures::of(&found, &standing, age);
            if explain {
                figures.why = Some(reasons::of(&desk, &found, &standing, age, rows).await?);
            }
            let waits = queued.iter().filter(|(key, _)| key.counter == counter);
            figures.queued = waits.map(|(key, why)| (key.to_string(), *why)).collect();
            figures.regions = regions::entries(&desk, &counter, &others, age.now).await?;
            let Figures { counter, value, exact, fresh, version, shards, c, as_of, .. } = &figures;
            let (value, yes) = (or(*value, "not readable"), |is: &bool| if *is { "yes" } else { "no" });
            let before = or(as_of.map(|as_of| past(age.now, Some(as_of))), "not known");
            table.row([counter, &value, &yes(exact), &yes(fresh), version, shards, c, &before]);
            figures.lines().iter().for_each(|line| text.push_str(&format!("\n{counter}{line}")));
            counters.push(figures);
        }
        let mut json = json!({"post_id": id.to_string(), "counters": counters});
        // The partition of the log of changes that has the post's changes.
        add(&mut json, "partition", standing.stored.map(|(partition, _)| partition));
        Ok(Answer::new(json, format!("{table}{text}")).wrong_if(counters.iter().any(Figures::is_wrong)))
    }
}

async fn recount(id: &PostId, counters: &[String], change: Changing) -> anyhow::Result<Answer> {
    let Changing { writing, of } = change;
    let desk = Desk::open(of).await?;
    let (mut keys, mut plan) = (Vec::new(), Vec::new());
    for counter in seen::chosen(&desk, id, counters).await? {
        let found = seen::counter(&desk, &counter, seen::Sources::default()).await?.counter.ok().flatten();
        let stored = found.iter().flat_map(|counter| counter.parts.keys().copied());
        let shards: BTreeSet<Shard> = desk.shards.all().chain(stored).collect();
        plan.push(format!("queue {} row keys of the counter {} of {id}", shards.len(), counter.name));
        keys.extend(shards.into_iter().map(|shard| RowKey { counter: counter.clone(), shard }));
    }
    let changed = writing.carry_out(&desk, "post recount", plan, async || {
        for key in &keys {
            let now = desk.clock.now();
            desk.recounts.enqueue(key, QueueReason::Asked, now).await.context("cannot queue a row key")?;
        }
        Ok(format!("{} row keys queued: the recount that watches takes them up", keys.len()))
    });
    Ok(changed.await?.into())
}
