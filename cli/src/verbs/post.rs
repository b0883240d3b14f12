//! `tally post`: a post's numbers, why one of them is not exact, and having it recounted.

mod reasons;
mod recount;
mod seen;

use clap::Subcommand;
use serde::Serialize;
use tally_batch_recount::Subject;
use tally_core::ids::PostId;

use self::reasons::Reason;
use self::recount::Recount;
use self::seen::Figures;
use crate::desk::{Desk, Where};
use crate::said::{Answer, Form, Table, ago, print};
use crate::verbs::erase::What;

#[derive(Clone, Debug, Subcommand)]
pub(crate) enum Verb {
    /// Shows each counter of a post. Exits with 1 where one is not exact
    Show(Box<Show>),
    /// Takes every like out of a post, and the members out of its other sets. Exits with 1 where members are left that no action takes out
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

    /// Say why a number is not exact: reads runs, the ledger, and rows of the shards that are in doubt
    #[arg(long)]
    explain: bool,

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
    /// Why it waits for a recount, by row key.
    queued: Vec<(String, &'static str)>,
    /// Why it is not exact; absent without --explain.
    #[serde(skip_serializing_if = "Option::is_none")]
    why: Option<Vec<Reason>>,
}

#[derive(Debug, Serialize)]
struct Post {
    post_id: String,
    counters: Vec<Shown>,
    #[serde(skip)]
    age: String,
}

impl Answer for Post {
    fn table(&self) -> String {
        let mut table =
            Table::headed(["counter", "value", "exact", "version", "shards", "includes all before", "queued"]);
        for Shown { counter, figures, queued, .. } in &self.counters {
            let Figures { value, exact, version, shards, .. } = figures;
            let value = value.map_or("not readable".to_owned(), |value| value.to_string());
            let queued: Vec<String> = queued.iter().map(|(key, why)| format!("{key} ({why})")).collect();
            let exact = if *exact { "yes" } else { "no" };
            table.row([counter, &value, &exact, version, shards, &format!("{} ago", self.age), &queued.join(", ")]);
        }
        let mut text = table.to_string();
        for Shown { counter, why, figures, .. } in &self.counters {
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
        self.counters.iter().any(|shown| !shown.figures.exact || shown.why.as_ref().is_some_and(|why| !why.is_empty()))
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
        let Self { id, counter, explain, rows, of } = self;
        let desk = Desk::open(of).await?;
        let chosen = seen::chosen(&desk, &id, &counter).await?;
        // Before the counters: what is lost after that is in none of them.
        let (as_of, gaps) = seen::standing(&desk).await?;
        let queued = seen::queued(&desk, &id).await?;
        let mut counters = Vec::new();
        for counter in chosen {
            let found = seen::counter(&desk, &counter).await?;
            let why = match explain {
                true => Some(reasons::of(&desk, &counter, &found, &gaps, rows).await?),
                false => None,
            };
            let waits = queued.iter().filter(|(key, _)| key.counter == counter);
            counters.push(Shown {
                counter: counter.name.to_string(),
                figures: Figures::of(&counter, &found, &gaps, as_of),
                queued: waits.map(|(key, why)| (key.to_string(), *why)).collect(),
                why,
            });
        }
        let age = ago(desk.clock.now().since(as_of));
        Ok(Post { post_id: id.to_string(), counters, age })
    }
}
