//! `tally recount`: compares the rows of posts, or all rows, with their counters, and with `--yes` corrects the
//! counters. It runs the code of the program `tally-batch-recount` in this process.

use std::path::{Path, PathBuf};

use serde_json::json;
use tally_batch_recount::settle::Recount;
use tally_batch_recount::{LogPorts, Ports, Rules, Scope};
use tally_core::audit::Summary;
use tally_core::ids::PostId;
use tally_service::Exit;

use crate::change::Changing;
use crate::desk::Desk;
use crate::ended::Usage;
use crate::given::ids_of;
use crate::said::Answer;

#[derive(clap::Args, Clone, Debug)]
pub(crate) struct Args {
    /// The posts, or hashtags
    #[arg(value_name = "ID", conflicts_with = "all")]
    posts: Vec<PostId>,

    /// A file with more of them, one a line. `-` is the standard input
    #[arg(long, value_name = "FILE", conflicts_with = "all")]
    file: Option<PathBuf>,

    /// Every row and every count: an audit. With --yes it closes the losses that are open when it begins
    #[arg(long, conflicts_with = "counter")]
    all: bool,

    /// Of the posts, this counter alone, by its name; may be given more than once
    #[arg(long, value_name = "NAME")]
    counter: Vec<String>,

    /// Make large corrections, too: of at least 1000 likes that are at least 10 % of a row key's count or rows
    #[arg(long)]
    force: bool,

    /// Read units a second at most
    #[arg(long, value_name = "UNITS", value_parser = clap::value_parser!(u32).range(1..))]
    read_units_per_second: Option<u32>,

    #[command(flatten)]
    change: Changing,
}

impl Args {
    pub(crate) async fn run(self) -> anyhow::Result<Answer> {
        let Self { posts, file, all, counter, force, read_units_per_second, change: Changing { writing, of } } = self;
        let scope = scope(posts, file.as_deref(), all, counter)?;
        let desk = Desk::open(of).await?;
        let rules = Rules { force, read_units: read_units_per_second, ..Rules::default() };
        let plan = planned(&scope, &desk);
        let recount = |dry_run| (&scope, Rules { dry_run, ..rules });
        if !writing.yes {
            let (exit, summary) = done(&desk, recount(true)).await?;
            let end = match (summary.found(), summary.left) {
                (0, 0) if all => "to close losses, audit with --yes and --why",
                (0, 0) => "nothing to correct",
                (0, _) => "some could not be compared: run it again",
                _ => "nothing was changed: say --yes and --why to correct it",
            };
            let text = format!("{plan}\n{summary}{end}");
            let json = json!({"dry_run": true, "plan": plan, "summary": summary});
            return Ok(Answer::new(json, text).exiting_with(exit.code()));
        }
        let mut exit = Exit::CLEAN;
        let changed = writing.carry_out(&desk, "recount", vec![plan], async || {
            let (ended, summary) = done(&desk, recount(false)).await?;
            exit = ended;
            Ok(summary.line())
        });
        let changed = changed.await?;
        Ok(Answer::from(changed).exiting_with(exit.code()))
    }
}

fn scope(posts: Vec<PostId>, file: Option<&Path>, all: bool, counters: Vec<String>) -> anyhow::Result<Scope> {
    if all {
        return Ok(Scope::Audit);
    }
    let mut posts = posts;
    if let Some(file) = file {
        posts.extend(ids_of(file)?);
    }
    posts.sort_unstable();
    posts.dedup();
    if posts.is_empty() {
        return Err(Usage("say which posts, by their ids or --file, or --all".to_owned()).into());
    }
    Ok(Scope::Posts { posts, counters })
}

fn planned(scope: &Scope, desk: &Desk) -> String {
    match scope {
        Scope::Posts { posts, counters } if counters.is_empty() => format!("recount {} posts", posts.len()),
        Scope::Posts { posts, counters } => format!("recount {} of {} posts", counters.join(", "), posts.len()),
        _ => format!("recount all counters of {}", desk.name()),
    }
}

/// Runs a recount to its end. Returns its exit code and its summary.
async fn done(desk: &Desk, (scope, rules): (&Scope, Rules)) -> anyhow::Result<(Exit, Summary)> {
    // A call to Kafka deep in the recount would wait as long, and say nothing meanwhile.
    desk.await_topic(&desk.changes_topic).await?;
    let ports = Ports::over(&desk.connection, LogPorts::open(desk.kafka()?, &desk.changes_topic)?);
    let by = (desk.host.patience(), desk.host.chance().clone());
    let of = Recount::new(ports, desk.shards, rules, by, desk.host.stop()).await?;
    Box::pin(tally_batch_recount::recount(&of, scope, false)).await
}
