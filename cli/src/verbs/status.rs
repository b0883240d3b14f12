//! `tally status`: says in one screen how the deployment is. It follows an event from Kafka to rows, changes and
//! counts, then looks at losses, recounts, dead letters, cache and processes. Each part adds its figures and faults to
//! `Status`.

mod looks;
mod processes;
mod rows;

use std::time::Duration;

use anyhow::{Context, anyhow};
use serde::Serialize;
use serde_json::{Map, Value, json};
use tally_adapters::redis::CacheArgs;
use tally_core::format::Format;
use tally_core::ports::TopicReader as _;
use tally_core::time::UnixMillis;
use tally_service::parse_duration;

use crate::desk::{Desk, Where};
use crate::ended;
use crate::probe::Target;
use crate::said::{Answer, Table, ago};

#[derive(clap::Args, Clone, Debug)]
pub(crate) struct Args {
    /// How late rows and counts may be. The API calls a count fresh by the same span
    #[arg(long, default_value = "10s", value_parser = parse_duration, value_name = "SPAN")]
    late: Duration,

    /// A process to ask whether it is ready and what its clock says, as http://10.0.0.7:9090/readyz; may be given more than once
    #[arg(long, value_name = "URL")]
    service: Vec<Target>,

    #[command(flatten)]
    cache: CacheArgs,

    #[command(flatten)]
    of: Where,
}

/// What is in Kafka.
const OF_KAFKA: &str = "lag, misrouting, dead letters, consumers and change-streamers";

#[derive(Debug, Default, Serialize)]
pub(crate) struct Status {
    /// What was looked at: its name, and what was found, as text and as JSON.
    #[serde(skip)]
    figures: Vec<(&'static str, String, Value)>,
    /// What was not looked at, and why, or which flag has it looked at.
    #[serde(skip)]
    not_looked_at: Vec<(&'static str, String)>,
    /// What is wrong: the name of the fault in a few words, what it is, and the runbook that explains it.
    #[serde(skip)]
    wrong: Vec<(&'static str, String, Option<&'static str>)>,
    /// Members of the groups that read Kafka.
    processes: Vec<Value>,
    /// How many records of the topic are no rows yet, and how many messages of the log of changes are not counted yet.
    lag: Option<u64>,
    changes_lag: Option<u64>,
    /// Partitions that have misrouted events among their last ones.
    misrouted: Vec<u32>,
    paused: bool,
    /// When all acknowledged events are in the rows, and when all rows are counted: up to these times, in milliseconds.
    rows_as_of: Option<u64>,
    counts_as_of: Option<u64>,
    /// Whether the API would call an answer about any post fresh.
    fresh: bool,
}

impl Status {
    fn figure(&mut self, name: &'static str, text: impl Into<String>, fields: Value) {
        self.figures.push((name, text.into(), fields));
    }

    fn wrong(&mut self, what: &'static str, detail: impl Into<String>, see: Option<&'static str>) {
        self.wrong.push((what, detail.into(), see));
    }

    fn unseen(&mut self, what: &'static str, why: impl Into<String>) {
        self.not_looked_at.push((what, why.into()));
    }

    /// Runs one part, for `patience`. If it fails, that is something wrong, and the other parts still run.
    async fn look(
        &mut self,
        what: &'static str,
        patience: Duration,
        at: impl AsyncFnOnce(&mut Self) -> anyhow::Result<()>,
    ) {
        if let Err(error) = within(patience, at(self)).await {
            self.wrong("no answer", format!("{what}: {}", ended::line(&error)), None);
            self.unseen(what, "it gave no answer");
        }
    }

    /// Says whether answers are fresh: their `as_of` is the lesser of both times.
    fn freshness(&mut self, late: Duration, now: UnixMillis) {
        let as_of = self.rows_as_of.zip(self.counts_as_of).map(|(rows, counts)| UnixMillis(rows.min(counts)));
        self.fresh = as_of.is_some_and(|as_of| now.since(as_of) <= late);
        let within = ago(late);
        let text = match as_of {
            None => "no: it is not known up to when counts are complete".to_owned(),
            Some(as_of) if self.fresh => format!("yes: counts are complete up to {} ago", ago(now.since(as_of))),
            Some(as_of) => format!("no: counts are complete up to {} ago, not {within}", ago(now.since(as_of))),
        };
        let as_of = as_of.map(|as_of| as_of.0);
        self.figure("fresh", text, json!({"fresh": self.fresh, "as_of": as_of, "within_seconds": late.as_secs_f64()}));
    }
}

impl From<Status> for Answer {
    fn from(status: Status) -> Self {
        let Status { figures, not_looked_at, wrong, .. } = &status;
        let (mut looked, mut by_name) = (Table::headed(["looked at", "found"]), Map::new());
        for (name, text, fields) in figures {
            looked.row([name, text]);
            by_name.insert(name.replace([' ', '-'], "_"), fields.clone());
        }
        let mut unseen = Table::headed(["not looked at", "why"]);
        not_looked_at.iter().for_each(|(what, why)| unseen.row([what, why]));
        let mut faults = Table::headed(["wrong", "", ""]);
        wrong.iter().for_each(|(what, detail, see)| faults.row([what, detail, &see.unwrap_or_default()]));
        let unseen = if not_looked_at.is_empty() { String::new() } else { format!("\n{unseen}") };
        let end = match wrong[..] {
            [] => "nothing wrong was found in what was looked at".to_owned(),
            _ => faults.to_string(),
        };
        let wrong_of = |(what, detail, see): &(&str, String, Option<&str>)| match see {
            Some(see) => json!({"what": what, "detail": detail, "see": see}),
            None => json!({"what": what, "detail": detail}),
        };
        let unseen_of = |(what, why): &(&str, String)| json!({"what": what, "why": why});
        let mut json = json!(status);
        json["figures"] = by_name.into();
        json["not_looked_at"] = not_looked_at.iter().map(unseen_of).collect();
        json["wrong"] = wrong.iter().map(wrong_of).collect();
        Self::new(json, format!("{looked}{unseen}\n{end}")).wrong_if(!wrong.is_empty())
    }
}

/// Waits for an answer, for `patience`.
async fn within<T>(patience: Duration, answer: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
    let answered = tokio::time::timeout(patience, answer).await;
    answered.unwrap_or_else(|_| Err(anyhow!("no answer within {patience:?}, which --patience sets")))
}

impl Args {
    pub(crate) async fn run(self) -> anyhow::Result<Answer> {
        let Self { of, late, cache, service } = self;
        let mut desk = Desk::open(of).await?;
        let mut status = Status::default();
        let format = desk.checkpoints.format().await.context("cannot read the configuration")?;
        let name = match &format {
            Some(Format::Named(name)) => Some(name.as_str()),
            _ => None,
        };
        let (connection, shards) = (&desk.connection, desk.shards);
        let (prefix, region) = (&connection.tables().prefix, connection.region());
        let fields = json!({"table_prefix": prefix, "region": region, "shards": shards.get(), "format": name});
        let format = format.as_ref().map_or("no format".to_owned(), Format::to_string);
        status.figure("deployment", format!("{}, {shards} shards a post, {format}", desk.name()), fields);
        let patience = desk.patience;
        // Kafka is asked once. If it is silent, each look at it would wait as long.
        if desk.has_kafka() {
            let reader = desk.reader(&desk.topic)?;
            let asked = within(patience, async { reader.exists().await.context("Kafka is away") });
            if let Err(error) = asked.await {
                status.wrong("no answer", format!("Kafka: {}", ended::line(&error)), None);
                status.unseen("Kafka", format!("{OF_KAFKA}: it gave no answer"));
                desk = desk.without_kafka();
            }
        } else {
            status.unseen("Kafka", format!("{OF_KAFKA}: say --brokers"));
        }
        let desk = desk;
        status.look("tables", patience, async |status| looks::tables(&desk, status).await).await;
        status.look("rows", patience, async |status| rows::look(&desk, late, status).await).await;
        status.look("changes", patience, async |status| looks::stream(&desk, late, status).await).await;
        status.look("counts", patience, async |status| looks::counts(&desk, late, status).await).await;
        status.freshness(late, desk.clock.now());
        status.look("Regions", patience, async |status| looks::regions(&desk, status).await).await;
        status.look("losses", patience, async |status| looks::losses(&desk, status).await).await;
        status.look("recounts", patience, async |status| looks::recounts(&desk, status).await).await;
        status.look("dead letters", patience, async |status| looks::letters(&desk, status).await).await;
        let cache = async |status: &mut Status| looks::cache(&desk, &cache, late, status).await;
        status.look("cache", patience, cache).await;
        processes::members(&desk, &mut status).await;
        processes::services(&desk, &service, &mut status);
        Ok(status.into())
    }
}
