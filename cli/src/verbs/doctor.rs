//! `tally doctor`: checks whether a deployment's tables, permissions, quotas, retention and clocks are set up as Tally
//! needs them. Each function checks some *points* and adds for each a verdict and what it found. `tally restore` uses
//! the same points.

use std::time::Duration;

use anyhow::Context;
use serde::Serialize;
use tally_adapters::dynamodb::{self, Examined};
use tally_core::fault::Fault;
use tally_core::ports::{ChangeStream, Outcome, TopicReader};
use tally_service::parse_duration;

use crate::desk::{Desk, Where, deployed, unconfigured, unusable};
use crate::ended;
use crate::said::{Answer, Table, ago};
use crate::verbs::stream;

/// How long the log of changes has to be kept. The stream keeps a day, and its pages may wait for some hours.
const CHANGES_KEPT: Duration = Duration::from_secs(27 * 3_600);
/// How far another machine's clock may be ahead of this one.
const AHEAD: Duration = Duration::from_secs(2);

#[derive(clap::Args, Clone, Debug)]
pub(crate) struct Args {
    /// Write units a second at the peak: two for each like
    #[arg(long, default_value_t = 40_000, value_name = "UNITS")]
    peak_write_units: u64,

    /// How far back tables may have to be restored: Kafka has to keep events as long
    #[arg(long, default_value = "24h", value_parser = parse_duration, value_name = "SPAN")]
    restore_within: Duration,

    #[command(flatten)]
    of: Where,
}

/// How a point turned out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Verdict {
    Good,
    Bad,
    /// It could not be found out.
    Unknown,
}

#[derive(Debug, Serialize)]
pub(super) struct Point {
    pub(super) what: String,
    pub(super) verdict: Verdict,
    pub(super) detail: String,
}

#[derive(Debug, Default, Serialize)]
#[serde(transparent)]
pub(crate) struct Points(pub(super) Vec<Point>);

impl Points {
    pub(super) fn add(&mut self, what: impl Into<String>, verdict: Verdict, detail: impl Into<String>) {
        self.0.push(Point { what: what.into(), verdict, detail: detail.into() });
    }

    /// Adds a point that is not known, if `looked` is an error.
    fn unless(&mut self, what: &str, looked: anyhow::Result<()>) {
        if let Err(error) = looked {
            self.add(what, Verdict::Unknown, ended::line(&error));
        }
    }

    /// Adds a point that is good if `holds`, bad if not, and not known after a fault.
    pub(super) fn asked(&mut self, what: impl Into<String>, holds: &Outcome<bool>, good: &str, bad: &str) {
        match holds {
            Ok(true) => self.add(what, Verdict::Good, good),
            Ok(false) => self.add(what, Verdict::Bad, bad),
            Err(fault) => self.add(what, Verdict::Unknown, fault.to_string()),
        }
    }

    pub(super) fn table(&self) -> Table {
        let mut table = Table::headed(["point", "verdict", "found"]);
        for Point { what, verdict, detail } in &self.0 {
            let verdict = match verdict {
                Verdict::Good => "good",
                Verdict::Bad => "BAD",
                Verdict::Unknown => "not known",
            };
            table.row([what, &verdict, detail]);
        }
        table
    }

    pub(super) fn is_bad(&self) -> bool {
        self.0.iter().any(|point| point.verdict == Verdict::Bad)
    }
}

impl From<Points> for Answer {
    fn from(points: Points) -> Self {
        Self::new(&points, points.table()).wrong_if(points.is_bad())
    }
}

impl Args {
    pub(crate) async fn run(self) -> anyhow::Result<Answer> {
        let Self { of, peak_write_units, restore_within } = self;
        let desk = Box::pin(Desk::reach(of)).await?;
        let mut points = Points::default();
        tables(&desk, &mut points).await?;
        configuration(&desk, &mut points).await;
        for table in desk.connection.examine().await {
            kept(&table, &mut points);
        }
        let looked = stream(&desk, &mut points).await;
        points.unless("likes: stream", looked);
        quotas(&desk, peak_write_units, &mut points).await;
        let looked = clocks(&desk, &mut points).await;
        points.unless("clocks", looked);
        let looked = log(&desk, &mut points).await;
        points.unless("log of changes", looked);
        retention(&desk, &desk.topic, restore_within, "a restore may go back", &mut points).await?;
        retention(&desk, &desk.changes_topic, CHANGES_KEPT, "change-streamers may stand still for", &mut points)
            .await?;
        Ok(points.into())
    }
}

/// Checks that the tables have the right form.
///
/// # Errors
/// The store does not answer, so that nothing can be checked.
async fn tables(desk: &Desk, points: &mut Points) -> anyhow::Result<()> {
    let Err(fault) = dynamodb::check_tables(&desk.connection).await else {
        points.add("tables", Verdict::Good, format!("{} have the right keys, stream and index", desk.name()));
        return Ok(());
    };
    let is_away = !matches!(fault, Fault::Fatal(_)) && desk.connection.prefixes().await.is_err();
    let error = unusable(&desk.connection, fault).await;
    if is_away {
        return Err(error);
    }
    points.add("tables", Verdict::Bad, ended::line(&error));
    Ok(())
}

async fn configuration(desk: &Desk, points: &mut Points) {
    match deployed(&desk.checkpoints).await {
        Ok(Some(shards)) => points.add("configuration", Verdict::Good, format!("{shards} shards a post")),
        Ok(None) => points.add("configuration", Verdict::Bad, ended::line(&unconfigured(desk).await)),
        Err(error) => points.add("configuration", Verdict::Bad, ended::line(&error)),
    }
}

/// Checks that the stream of the table `likes` can be read, and says if its label has another form elsewhere.
async fn stream(desk: &Desk, points: &mut Points) -> anyhow::Result<()> {
    let info = desk.stream.info().await.map_err(Fault::from)?;
    let shards = desk.stream.shards(&info.label).await.map_err(Fault::from)?.len();
    let other = desk.stream.other_label().await.map_err(Fault::from)?;
    let other = other.map_or(String::new(), |other| format!("; {other}"));
    points.add("likes: stream", Verdict::Good, format!("{}, {shards} shards{other}", info.label));
    Ok(())
}

pub(super) fn kept(of: &Examined, points: &mut Points) {
    let Examined { table, form, recovery, protected, expires, expiry, writable } = of;
    if let Err(fault) = form {
        points.add(format!("{table}: form"), Verdict::Bad, fault.to_string());
    }
    points.asked(
        format!("{table}: recovery"),
        recovery,
        "can be restored to a moment",
        "point-in-time recovery is off",
    );
    points.asked(format!("{table}: protection"), protected, "protected from deletion", "deletion protection is off");
    points.asked(
        format!("{table}: permission"),
        writable,
        "may be read and written",
        "this process may not write to it",
    );
    let is_right = expires.clone().map(|by| by.as_deref() == *expiry);
    let by = |attribute: Option<&str>, none: &str| match attribute {
        Some(attribute) => format!("items expire by `{attribute}`"),
        None => none.to_owned(),
    };
    let good = by(*expiry, "expiry is off, as it has to be");
    let found = by(expires.as_ref().ok().and_then(|by| by.as_deref()), "expiry is off");
    let bad = match expiry {
        Some(attribute) => format!("{found}: switch on expiry by `{attribute}`, or what is out of date stays for ever"),
        None => format!("{found}: switch expiry off, or what has no other copy vanishes"),
    };
    points.asked(format!("{table}: expiry"), &is_right, &good, &bad);
}

async fn quotas(desk: &Desk, peak: u64, points: &mut Points) {
    match desk.connection.quotas().await {
        Err(fault) => points.add("quotas", Verdict::Unknown, fault.to_string()),
        Ok(quotas) => {
            let verdict = if quotas.table >= peak && quotas.account >= peak { Verdict::Good } else { Verdict::Bad };
            let detail =
                format!("{} write units a table, {} in all, and the peak is {peak}", quotas.table, quotas.account);
            points.add("quotas", verdict, detail);
        }
    }
}

/// Checks that no time which a change-streamer has stored is ahead of this machine's clock.
async fn clocks(desk: &Desk, points: &mut Points) -> anyhow::Result<()> {
    let (_, known) = stream::known(desk).await?;
    let now = desk.clock.now();
    match known.iter().map(|stored| stored.fed.at).max() {
        None => points.add("clocks", Verdict::Unknown, "no change-streamer has written the time yet"),
        Some(latest) if latest.since(now) > AHEAD => {
            let detail = format!("a change-streamer's clock is {} ahead of this one", ago(latest.since(now)));
            points.add("clocks", Verdict::Bad, detail);
        }
        Some(_) => points.add(
            "clocks",
            Verdict::Good,
            "no time that a change-streamer stored is ahead of this clock; tally status --service asks processes for theirs",
        ),
    }
    Ok(())
}

/// Checks that the tables are those that the deployment was created over, and that the log of changes is the topic that
/// it was set up with.
pub(super) async fn log(desk: &Desk, points: &mut Points) -> anyhow::Result<()> {
    let seen = desk.checkpoints.seen_tables().await.context("cannot look at the tables")?;
    match seen.problem() {
        None => points.add("tables: ids", Verdict::Good, "they are those that the deployment was created over"),
        Some(problem) => points.add("tables: ids", Verdict::Bad, problem),
    }
    let Some(config) = desk.changes.config().await.context("cannot read the configuration of the log")? else {
        points.add("log of changes", Verdict::Unknown, "no change-streamer has set it up yet");
        return Ok(());
    };
    if !desk.has_kafka() {
        points.add("log of changes", Verdict::Unknown, "say --brokers to have it looked at");
        return Ok(());
    }
    let logs = desk.reader(&desk.changes_topic)?.logs().await.context("cannot look at the log of changes")?;
    let partitions = u32::try_from(logs.len()).unwrap_or(u32::MAX);
    let is_same = partitions == config.partitions && logs.iter().all(|(_, log)| log.topic == config.topic);
    let detail =
        format!("`{}`, {} partitions, generation {}", desk.changes_topic, config.partitions, config.generation);
    let bad = format!("the topic has {partitions} partitions, or another id than it was set up with: {detail}");
    points.asked("log of changes", &Ok(is_same), &detail, &bad);
    Ok(())
}

/// Checks that Kafka keeps the records of `topic` for at least `least`. `why` says in the answer what needs that.
async fn retention(desk: &Desk, topic: &str, least: Duration, why: &str, points: &mut Points) -> anyhow::Result<()> {
    let what = format!("{topic}: retention");
    if !desk.has_kafka() {
        points.add(what, Verdict::Unknown, "say --brokers to have it looked at");
        return Ok(());
    }
    match tally_adapters::kafka::retention(desk.kafka()?, topic).await {
        Err(fault) => points.add(what, Verdict::Unknown, fault.to_string()),
        Ok(None) => points.add(what, Verdict::Good, "kept for ever"),
        Ok(Some(kept)) => {
            let verdict = if kept >= least { Verdict::Good } else { Verdict::Bad };
            points.add(what, verdict, format!("kept for {}, and {why} {}", ago(kept), ago(least)));
        }
    }
    Ok(())
}
