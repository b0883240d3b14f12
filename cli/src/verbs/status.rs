//! `tally status`: how the deployment is, in one screen: what was looked at, what was not, and what is wrong by name.

mod looks;
mod processes;
mod rows;

use std::time::Duration;

use anyhow::Context;
use serde::Serialize;
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
    /// What it is about, in one word or two.
    what: &'static str,
    detail: String,
    /// Where it is explained.
    #[serde(skip_serializing_if = "Option::is_none")]
    see: Option<&'static str>,
}

/// Something that was not looked at.
#[derive(Debug, Serialize)]
struct Unseen {
    what: &'static str,
    /// Why, or what to say to have it looked at.
    why: String,
}

/// A process that is known to run.
#[derive(Debug, Serialize)]
pub(super) struct Process {
    group: String,
    client: String,
    host: String,
    partitions: Vec<u32>,
}

/// The deployment in one screen.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Status {
    /// What was looked at, each with what was found.
    figures: Vec<(&'static str, String)>,
    not_looked_at: Vec<Unseen>,
    wrong: Vec<Finding>,
    /// Members of the groups that read Kafka.
    processes: Vec<Process>,
    /// Records of the topic that are no rows yet, and messages of the log of changes that are not counted yet.
    lag: Option<u64>,
    changes_lag: Option<u64>,
    /// Partitions that have had events whose keys belong to other partitions.
    misrouted: Vec<u32>,
    paused: bool,
    /// Everything that Kafka had acknowledged by then is in rows, and is counted: in milliseconds since 1970.
    rows_as_of: Option<u64>,
    counts_as_of: Option<u64>,
    /// Whether an answer about any post would be called fresh.
    fresh: bool,
}

impl Status {
    fn figure(&mut self, name: &'static str, value: impl Into<String>) {
        self.figures.push((name, value.into()));
    }

    fn wrong(&mut self, what: &'static str, detail: impl Into<String>, see: Option<&'static str>) {
        self.wrong.push(Finding { what, detail: detail.into(), see });
    }

    fn unseen(&mut self, what: &'static str, why: impl Into<String>) {
        self.not_looked_at.push(Unseen { what, why: why.into() });
    }

    /// What could not be looked at is wrong, and hides nothing else.
    fn took(&mut self, what: &'static str, looked: anyhow::Result<()>) {
        if let Err(error) = looked {
            self.wrong("no answer", format!("{what}: {}", ended::line(&error)), None);
            self.unseen(what, "it gave no answer");
        }
    }

    /// An answer is as of the lesser of both times.
    fn freshness(&mut self, late: Duration, now: UnixMillis) {
        let as_of = self.rows_as_of.zip(self.counts_as_of).map(|(rows, counts)| UnixMillis(rows.min(counts)));
        self.fresh = as_of.is_some_and(|as_of| now.since(as_of) <= late);
        let within = ago(late);
        let text = match as_of {
            None => "no: it is not known up to when counts are complete".to_owned(),
            Some(as_of) if self.fresh => format!("yes: counts are complete up to {} ago", ago(now.since(as_of))),
            Some(as_of) => format!("no: counts are complete up to {} ago, not {within}", ago(now.since(as_of))),
        };
        self.figure("fresh", text);
    }
}

impl Answer for Status {
    fn table(&self) -> String {
        let mut figures = Table::headed(["looked at", "found"]);
        for (name, value) in &self.figures {
            figures.row([name, value]);
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
        let format = format.map_or("no format".to_owned(), |format| format.to_string());
        status.figure("deployment", format!("{}, {} shards a post, {format}", desk.name(), desk.shards));
        let looked = looks::tables(&desk, &mut status).await;
        status.took("tables", looked);
        let looked = rows::look(&desk, late, &mut status).await;
        status.took("rows", looked);
        let looked = looks::stream(&desk, late, &mut status).await;
        status.took("changes", looked);
        let looked = looks::counts(&desk, late, &mut status).await;
        status.took("counts", looked);
        status.freshness(late, desk.clock.now());
        let looked = looks::regions(&desk, &mut status).await;
        status.took("Regions", looked);
        let looked = looks::losses(&desk, &mut status).await;
        status.took("losses", looked);
        let looked = looks::recounts(&desk, &mut status).await;
        status.took("recounts", looked);
        let looked = looks::letters(&desk, &mut status).await;
        status.took("dead letters", looked);
        let looked = looks::cache(&desk, redis, redis_cluster, late, &mut status).await;
        status.took("cache", looked);
        processes::members(&desk, &mut status).await;
        processes::services(&desk, &service, &mut status);
        Ok(status)
    }
}
