//! `tally adopt tables`: goes on with tables that are others than before, or whose configuration is lost (`lost`).
//!
//! A table that was deleted and created anew has the same name and other contents. Processes notice by its id, and stop
//! until an operator runs this. It opens a loss first, so no count is exact until an audit has ended.

mod lost;

use std::path::PathBuf;

use anyhow::{Context, ensure};
use clap::Subcommand;
use serde::Serialize;
use tally_adapters::dynamodb::{Checkpoints, SeenTables};
use tally_core::ports::Outcome;

use self::lost::Lost;
use crate::change::{Changed, Writing};
use crate::desk::{Desk, Where};
use crate::said::{Answer, Form, Table, or_dash, print};
use crate::verbs::pause::Settle;
use crate::verbs::topic::Sums;

#[derive(Clone, Debug, Subcommand)]
pub(crate) enum Verb {
    /// Goes on with the tables that are there, where they are others than before, and counts inexactly until an audit has passed
    ///
    /// Where the configuration is lost with `checkpoints`: stop everything, create the log of changes anew, and say --shards,
    /// --brokers and, where there are more counters than likes, --counters. Kafka is read again from its start then.
    Tables(Box<Args>),
}

#[derive(clap::Args, Clone, Debug)]
pub(crate) struct Args {
    /// Where the configuration is lost: the file that `tally counters apply` was given
    #[arg(long, value_name = "FILE")]
    counters: Option<PathBuf>,

    /// Where the configuration is lost: what becomes of events that add to sums and are in the topic by now
    #[arg(long, value_enum, value_name = "WHAT")]
    sums: Option<Sums>,

    #[command(flatten)]
    settle: Settle,

    #[command(flatten)]
    writing: Writing,

    #[command(flatten)]
    of: Where,
}

/// A table, by its name without the prefix.
#[derive(Debug, Serialize)]
struct One {
    table: String,
    /// The id that `checkpoints` has stored.
    stored: Option<String>,
    /// The id of the table that is there now.
    present: Option<String>,
}

#[derive(Debug, Serialize)]
struct Adopted {
    tables: Vec<One>,
    /// What the table of likes lacks: expiry of tombstones.
    #[serde(skip_serializing_if = "Option::is_none")]
    lacks: Option<String>,
    #[serde(flatten)]
    change: Changed,
}

impl Answer for Adopted {
    fn table(&self) -> String {
        let mut table = Table::headed(["table", "stored id", "id of the table there", ""]);
        for One { table: name, stored, present } in &self.tables {
            let state = match (stored, present) {
                (_, None) => "gone",
                (None, Some(_)) => "not stored",
                (Some(stored), Some(present)) if stored == present => "the same",
                (Some(_), Some(_)) => "another one",
            };
            table.row([name, &or_dash(stored.as_ref()), &or_dash(present.as_ref()), &state]);
        }
        let lacks = self.lacks.as_ref().map(|lacks| format!("{lacks}\n")).unwrap_or_default();
        format!("{table}\n{lacks}{}", self.change.table())
    }
}

impl Verb {
    pub(crate) async fn run(self, form: Form) -> anyhow::Result<u8> {
        let Self::Tables(args) = self;
        let Args { counters, sums, settle, writing, of } = *args;
        let (desk, is_lost) = Desk::open_unconfigured(of).await?;
        let checkpoints = Checkpoints::new(&desk.connection);
        let seen = checkpoints.seen_tables().await.context("cannot look at the tables")?;
        let change = if is_lost {
            let lost = Lost::of(&desk, counters.as_deref(), sums)?;
            lost.adopt(&writing, settle).await?
        } else {
            adopt(&writing, &desk, &checkpoints, &seen).await?
        };
        let lacks = lacks(&desk.connection.tables().likes, desk.connection.tombstones_expire().await);
        print(&Adopted { tables: each(&seen), lacks, change }, form)
    }
}

/// Returns a warning unless `expire` says that tombstones expire in the table `likes`.
fn lacks(likes: &str, expire: Outcome<bool>) -> Option<String> {
    match expire {
        Ok(true) => None,
        Ok(false) => Some(format!(
            "table {likes}: nothing expires by `gone`, so tombstones stay for ever: aws dynamodb update-time-to-live \
             --table-name {likes} --time-to-live-specification Enabled=true,AttributeName=gone"
        )),
        Err(fault) => Some(format!("table {likes}: cannot tell whether items expire by `gone`: {fault}")),
    }
}

/// Lists every table whose id is stored, or that is there.
fn each(seen: &SeenTables) -> Vec<One> {
    let stored = seen.stored.clone().unwrap_or_default().0;
    let mut names: Vec<&String> = stored.keys().chain(seen.present.0.keys()).collect();
    names.sort_unstable();
    names.dedup();
    let one = |name: &String| One {
        table: name.clone(),
        stored: stored.get(name).cloned(),
        present: seen.present.0.get(name).cloned(),
    };
    names.into_iter().map(one).collect()
}

async fn adopt(
    writing: &Writing,
    desk: &Desk,
    checkpoints: &Checkpoints,
    seen: &SeenTables,
) -> anyhow::Result<Changed> {
    let plan = seen.problem().map(|problem| format!("open a loss and go on: {problem}")).into_iter().collect();
    let changed = writing.carry_out(desk, "adopt tables", plan, async || {
        let adopted = checkpoints.adopt_tables(seen, desk.clock.now()).await.context("cannot adopt the tables")?;
        ensure!(adopted, "tables or configuration changed meanwhile: look again");
        Ok("adopted: no count is exact until an audit has passed: tally audit start, or tally recount --all".to_owned())
    });
    changed.await
}
