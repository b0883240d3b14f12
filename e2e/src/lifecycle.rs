//! Takes a deployment of real processes through rare events of its life: a restore to a point in time, lost
//! checkpoints, and lost counts. The services and the operators' own command run under load, and the result is compared
//! with the events that were produced.
//!
//! Counts are lost under running processes. None is restarted: `tally adopt tables` takes over the new table, and a recount
//! makes every count exact again.

mod checkpoints;
mod restore;

use std::fmt;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, ensure};
use clap::{Args, Subcommand};
use serde_json::{Value, json};
use tally_adapters::dynamodb::ensure_tables;
use tally_adapters::kafka;
use tally_core::ids::{CounterId, PostId};
use tally_service::parse_duration;
use tally_testkit::until;
use tokio::time::Instant;

use crate::attack::campaign::reported;
use crate::attack::engines::{Engines, Roles};
use crate::attack::fleet::Service;
use crate::attack::ledger::{all_counters, definitions};
use crate::attack::load::send_all;
use crate::attack::stage::{Ground, Stage, Under};
use crate::simulation::events;
use crate::tables;

/// Run a deployment of real processes through a rare event of its life
#[derive(Args, Clone, Debug)]
pub struct Lifecycle {
    #[command(subcommand)]
    what: What,
    #[command(flatten)]
    ground: Ground,
}

/// The event.
#[derive(Clone, Debug, Subcommand)]
pub enum What {
    /// Tables are restored to a point in time by `tally restore plan`, and Kafka is read again
    Restore {
        /// How far back the point in time is
        #[arg(long, default_value = "5s", value_parser = parse_duration, value_name = "SPAN")]
        lose: Duration,
    },
    /// The checkpoints are lost with the configuration, and a recount makes all counts exact again
    LoseCheckpoints,
    /// The table of counts is lost under running processes, and a recount makes all counts exact again
    LoseCounts {
        /// Number of posts with counts, in addition to those of the load
        #[arg(long, default_value_t = 100_000, value_name = "COUNT")]
        posts: u64,
    },
}

impl fmt::Display for What {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Restore { lose } => write!(f, "restore --lose {lose:?}"),
            Self::LoseCheckpoints => f.write_str("lose-checkpoints"),
            Self::LoseCounts { posts } => write!(f, "lose-counts --posts {posts}"),
        }
    }
}

impl Lifecycle {
    /// Runs it and prints its report.
    ///
    /// # Errors
    /// The result differs, or a step does not do what operators are told.
    pub fn run(self) -> anyhow::Result<()> {
        reported(async |program| live(program, self.ground, self.what).await)
    }
}

/// Runs processes of `program` through such an event, and returns the report.
///
/// # Errors
/// A step does not do what its description says, a process starts in spite of the loss, an inexact count is called exact, or
/// the result differs.
pub async fn live(program: &Path, ground: Ground, what: What) -> anyhow::Result<String> {
    // The roles name the tables that a restore leaves behind.
    let roles = if matches!(what, What::Restore { .. }) { Roles::Ignored } else { Roles::Kept };
    let mut stage = Stage::set(program, ground, (2, roles), Under::default()).await?;
    let has_times = ground.broker.is_some();
    let lived = match &what {
        What::Restore { lose } => restore::relive(&stage, has_times, *lose).await,
        What::LoseCheckpoints => checkpoints::relive(&mut stage, !has_times).await,
        What::LoseCounts { posts } => lose_counts(&stage, *posts).await,
    };
    lived.with_context(|| stage.fleet.tails(&stage.report.to_string()))?;
    Ok(format!("{what}: seed {}\n{}", ground.seed, stage.judge().await?))
}

/// The four tables of a deployment, without their prefix.
const TABLES: [&str; 4] = ["likes", "like_counts", "checkpoints", "recounts"];

/// Sends a request to the store, as an operator would.
async fn by_hand(engines: &Engines, operation: &str, body: Value) -> anyhow::Result<()> {
    let is_done = tables::send(&engines.emulator, operation, &body).await;
    ensure!(is_done, "the store refused {operation} {body}");
    Ok(())
}

/// Enables point-in-time recovery and deletion protection of a table.
async fn keep(engines: &Engines, table: &str) -> anyhow::Result<()> {
    let recovery =
        json!({"TableName": table, "PointInTimeRecoverySpecification": {"PointInTimeRecoveryEnabled": true}});
    by_hand(engines, "UpdateContinuousBackups", recovery).await?;
    by_hand(engines, "UpdateTable", json!({"TableName": table, "DeletionProtectionEnabled": true})).await
}

/// The likes that may be produced before they are counted.
const AHEAD: u64 = 20_000;

/// The number of users, of which each post's likes are a part.
const USERS: u64 = 1_000;

/// How long processes may take to notice a missing table. They check every second, and the processors may be busy.
const NOTICED: Duration = Duration::from_secs(10);

/// How long a recount of everything may take.
const RECOUNTED: Duration = Duration::from_secs(7_200);

/// Loses the counts of `posts` posts and of the posts of the load.
async fn lose_counts(stage: &Stage, posts: u64) -> anyhow::Result<()> {
    let began = Instant::now();
    like_posts(stage, posts).await?;
    let counters = stage.engines.emulator.stats().tables["like_counts"].items;
    stage.report.tell(format!("{counters} items of like_counts after {}", spent(began)));

    let lost = Instant::now();
    lose(stage, "like_counts").await?;
    let noticed = until("no count to be called exact", NOTICED, async || none_is_exact(stage).await.is_ok()).await?;
    let noticed = noticed.as_secs_f64();
    stage.report.tell(format!("like_counts deleted and created again; no answer is exact {noticed:.1} s later"));
    let operator = stage.fleet.launcher.clone();
    let done = operator.change(&["adopt", "tables"]).await?;
    stage.report.tell(done.out.lines().last().unwrap_or_default().to_owned());
    ensure!(stage.engines.open_losses().await? > 0, "no loss is open, so wrong counts would be called exact");
    none_is_exact(stage).await?;

    let recounted = Instant::now();
    let recount = stage.fleet.launcher.start(Service::Recount, &[])?;
    let closed = async || stage.engines.open_losses().await.is_ok_and(|losses| losses == 0) || !recount.is_running();
    until("the loss to be closed", RECOUNTED, closed).await?;
    stage.exact_again(1).await?;
    stage.report.tell(format!(
        "exact again {} after the loss, {} after the recount began",
        spent(lost),
        spent(recounted)
    ));
    if let Some(memory) = recount.peak_memory() {
        stage.report.tell(format!("the recount used at most {} MiB of memory", memory >> 20));
    }
    let code = recount.exit(RECOUNTED).await?;
    ensure!(code == Some(0), "the recount ended with {code:?}\n{}", recount.tail());
    stage.report.tell(format!("the recount has finished its second pass after {}", spent(recounted)));
    stage.all_well()
}

/// Until an audit has finished, no answer may say exact. Returns the number of answers.
async fn none_is_exact(stage: &Stage) -> anyhow::Result<usize> {
    let address = stage.fleet.api().public().context("the api has no public address yet")?;
    let counters: Vec<CounterId> = all_counters(stage.crowd, &definitions()).collect();
    for id in &counters {
        let path = format!("/v1/posts/{}/counters/{}", id.post, id.name);
        let answer = tally_testkit::http::get(address, &path).await.with_context(|| format!("no answer to {path}"))?;
        let body: Value = serde_json::from_str(&answer.body).with_context(|| format!("{path}: {answer:?}"))?;
        ensure!(body["exact"] == false, "{path} is called exact before an audit: {answer:?}");
    }
    Ok(counters.len())
}

/// Likes each of so many posts once, as fast as likes are counted.
async fn like_posts(stage: &Stage, posts: u64) -> anyhow::Result<()> {
    let producer = kafka::Producer::new(&kafka::Settings::plaintext(&stage.engines.broker.to_string()))?;
    for first in (0..posts).step_by(usize::try_from(AHEAD)?) {
        let like = |nth| {
            let post = PostId::new(&format!("b-{nth}")).context("an id")?;
            Ok(stage.ledger.lock().like(&post, &events::user(nth % USERS)))
        };
        let likes = (first..posts.min(first + AHEAD)).map(like).collect::<anyhow::Result<_>>()?;
        send_all(producer.clone(), stage.ledger.clone(), likes).await?;
        stage.counted().await?;
    }
    Ok(())
}

/// Deletes a table, and creates it anew.
async fn lose(stage: &Stage, table: &str) -> anyhow::Result<()> {
    by_hand(&stage.engines, "DeleteTable", json!({"TableName": table})).await?;
    ensure_tables(&stage.engines.tables().connection).await.context("cannot create the table")
}

fn spent(since: Instant) -> String {
    format!("{:.0} s", since.elapsed().as_secs_f64())
}
