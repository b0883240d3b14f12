//! `tally status`: says in one screen how the deployment is. It follows an event from Kafka to rows, changes and
//! counts, then looks at losses, recounts, dead letters, cache and processes. Each part adds its figures and faults to
//! `Status`.

mod looks;
mod processes;
mod rows;

use std::time::Duration;

use anyhow::Context;
use serde::{Serialize, Serializer};
use serde_json::{Value, json};
use tally_core::format::Format;
use tally_core::time::UnixMillis;
use tally_service::{Secret, parse_duration};

use crate::desk::{Desk, Where};
use crate::ended;
use crate::probe::Target;
use crate::said::{Answer, Table, ago};

#[derive(clap::Args, Clone, Debug)]
pub(crate) struct Args {
    #[command(flatten)]
    of: Where,

    /// How late rows and counts may be. The API calls a count fresh by the same span
    #[arg(long, default_value = "10s", value_parser = parse_duration, value_name = "SPAN")]
    late: Duration,

    /// The shared cache, as the API has it, or `off`
    #[arg(long, env = "TALLY_REDIS", hide_env_values = true, value_name = "URL")]
    redis: Option<Secret>,

    /// The cache is in cluster mode even if one address is given
    #[arg(long, env = "TALLY_REDIS_CLUSTER")]
    redis_cluster: bool,

    /// A process to ask whether it is ready and what its clock says, as http://10.0.0.7:9090/readyz; may be given more than once
    #[arg(long, value_name = "URL")]
    service: Vec<Target>,
}

/// Something that is wrong.
#[derive(Debug, Serialize)]
pub(super) struct Finding {
    /// The name of the fault, in a few words.
    what: &'static str,
    detail: String,
    /// The runbook that explains it.
    #[serde(skip_serializing_if = "Option::is_none")]
    see: Option<&'static str>,
}

/// Something that was looked at.
#[derive(Debug)]
struct Figure {
    name: &'static str,
    /// What was found, as text.
    text: String,
    /// What was found, as JSON.
    fields: Value,
}

fn by_name<S: Serializer>(figures: &[Figure], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_map(figures.iter().map(|figure| (figure.name.replace([' ', '-'], "_"), &figure.fields)))
}

/// Something that was not looked at.
#[derive(Debug, Serialize)]
struct Unseen {
    what: &'static str,
    /// Why it was not looked at, or which flag has it looked at.
    why: String,
}

/// A member of a Kafka group.
#[derive(Debug, Serialize)]
pub(super) struct Process {
    group: String,
    client: String,
    host: String,
    partitions: Vec<u32>,
}

#[derive(Debug, Default, Serialize)]
pub(crate) struct Status {
    /// What was looked at, and what was found. In JSON an object with a field for each.
    #[serde(serialize_with = "by_name")]
    figures: Vec<Figure>,
    not_looked_at: Vec<Unseen>,
    wrong: Vec<Finding>,
    /// Members of the groups that read Kafka.
    processes: Vec<Process>,
    /// How many records of the topic are no rows yet, and how many messages of the log of changes are not counted yet.
    lag: Option<u64>,
    changes_lag: Option<u64>,
    /// Partitions that have had events whose keys belong to other partitions.
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
        self.figures.push(Figure { name, text: text.into(), fields });
    }

    fn wrong(&mut self, what: &'static str, detail: impl Into<String>, see: Option<&'static str>) {
        self.wrong.push(Finding { what, detail: detail.into(), see });
    }

    fn unseen(&mut self, what: &'static str, why: impl Into<String>) {
        self.not_looked_at.push(Unseen { what, why: why.into() });
    }

    /// Runs one part. If it fails, that is something wrong, and the other parts still run.
    async fn look(&mut self, what: &'static str, at: impl AsyncFnOnce(&mut Self) -> anyhow::Result<()>) {
        if let Err(error) = at(self).await {
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

impl Answer for Status {
    fn table(&self) -> String {
        let mut figures = Table::headed(["looked at", "found"]);
        for Figure { name, text, .. } in &self.figures {
            figures.row([name, text]);
        }
        let mut text = figures.to_string();
        if !self.not_looked_at.is_empty() {
            let mut unseen = Table::headed(["not looked at", "why"]);
            for Unseen { what, why } in &self.not_looked_at {
                unseen.row([what, why]);
            }
            text.push_str(&format!("\n{unseen}"));
        }
        if self.wrong.is_empty() {
            return format!("{text}\nnothing wrong was found in what was looked at");
        }
        let mut wrong = Table::headed(["wrong", "", ""]);
        for Finding { what, detail, see } in &self.wrong {
            wrong.row([what, detail, &see.unwrap_or_default()]);
        }
        format!("{text}\n{wrong}")
    }

    fn found(&self) -> bool {
        !self.wrong.is_empty()
    }
}

impl Args {
    pub(crate) async fn run(self) -> anyhow::Result<Status> {
        let Self { of, late, redis, redis_cluster, service } = self;
        let desk = Desk::open(of).await?;
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
        status.look("tables", async |status| looks::tables(&desk, status).await).await;
        status.look("rows", async |status| rows::look(&desk, late, status).await).await;
        status.look("changes", async |status| looks::stream(&desk, late, status).await).await;
        status.look("counts", async |status| looks::counts(&desk, late, status).await).await;
        status.freshness(late, desk.clock.now());
        status.look("Regions", async |status| looks::regions(&desk, status).await).await;
        status.look("losses", async |status| looks::losses(&desk, status).await).await;
        status.look("recounts", async |status| looks::recounts(&desk, status).await).await;
        status.look("dead letters", async |status| looks::letters(&desk, status).await).await;
        status.look("cache", async |status| looks::cache(&desk, redis, redis_cluster, late, status).await).await;
        processes::members(&desk, &mut status).await;
        processes::services(&desk, &service, &mut status);
        Ok(status)
    }
}
