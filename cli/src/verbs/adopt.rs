//! `tally adopt tables`: goes on with tables that are others than before, or whose configuration is lost (`lost`).
//!
//! A table that was deleted and created anew has the same name and other contents. Processes notice by its id, and stop
//! until an operator runs this. It opens a loss first, so no count is exact until an audit has ended.

mod lost;

use std::collections::BTreeSet;
use std::path::PathBuf;

use anyhow::{Context, ensure};
use clap::Subcommand;
use serde_json::json;
use tally_adapters::dynamodb::{Checkpoints, SeenTables};
use tally_core::ports::Outcome;

use self::lost::Lost;
use crate::change::{Changed, Writing};
use crate::desk::{Desk, Where};
use crate::said::{Answer, Table, or_dash};
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

impl Verb {
    pub(crate) async fn run(self) -> anyhow::Result<Answer> {
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
        Ok(adopted(&seen, lacks, &change))
    }
}

/// Lists every table whose id is stored, or that is there, by its name without the prefix.
fn adopted(seen: &SeenTables, lacks: Option<String>, change: &Changed) -> Answer {
    let stored = seen.stored.clone().unwrap_or_default().0;
    let (mut table, mut tables) = (Table::headed(["table", "stored id", "id of the table there", ""]), Vec::new());
    for name in stored.keys().chain(seen.present.0.keys()).collect::<BTreeSet<_>>() {
        let (stored, present) = (stored.get(name), seen.present.0.get(name));
        let state = match (stored, present) {
            (_, None) => "gone",
            (None, Some(_)) => "not stored",
            (Some(stored), Some(present)) if stored == present => "the same",
            (Some(_), Some(_)) => "another one",
        };
        table.row([name, &or_dash(stored), &or_dash(present), &state]);
        tables.push(json!({"table": name, "stored": stored, "present": present}));
    }
    let mut json = json!(change);
    json["tables"] = json!(tables);
    if let Some(lacks) = &lacks {
        json["lacks"] = json!(lacks);
    }
    let lacks = lacks.map(|lacks| format!("{lacks}\n")).unwrap_or_default();
    Answer::new(json, format!("{table}\n{lacks}{}", change.text()))
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
