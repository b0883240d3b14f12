//! `tally restore`: prints the steps that restore the tables to a moment (`plan`), and checks the restored tables
//! (`check`). It changes nothing: AWS restores the tables, and Kafka's own tools set committed offsets back.

use std::time::Duration;

use anyhow::Context;
use clap::Subcommand;
use serde_json::json;
use tally_consumer::group_of;
use tally_core::ports::TopicReader;
use tally_core::register::Start;
use tally_core::time::UnixMillis;
use tally_core::topic::Offset;

use crate::desk::{Desk, Where};
use crate::said::{Answer, ago};
use crate::verbs::doctor::{Points, Verdict, kept, log};
use crate::verbs::topic::{Part, Seen};

/// How far before the moment reading begins again: rows are written later than their events.
const BEFORE: Duration = Duration::from_secs(300);
/// How much later than the rows the checkpoints are restored: so their positions are never earlier than the counts.
const LATER: Duration = Duration::from_secs(60);
/// How far back the store can restore a table.
const KEPT: Duration = Duration::from_secs(35 * 86_400);
/// How many offsets before the start of reading are searched for the last event before it.
const LOOKED_AT: u64 = 100;

#[derive(Clone, Debug, Subcommand)]
pub(crate) enum Verb {
    /// Says whether the tables can be restored to a moment, and by which steps. Exits with 1 if they cannot
    Plan {
        /// The moment, in milliseconds since 1970
        #[arg(long, value_name = "MILLIS")]
        to_time: u64,

        /// What the names of the restored tables begin with: another prefix than these have
        #[arg(long, value_name = "TEXT")]
        to_prefix: String,

        #[command(flatten)]
        of: Box<Where>,
    },
    /// Says whether tables that were restored fit each other and Kafka, before anything is started over them. Exits with 1 if not
    Check {
        /// The moment that rows and counts were restored to, in milliseconds since 1970
        #[arg(long, value_name = "MILLIS")]
        to_time: u64,

        #[command(flatten)]
        of: Box<Where>,
    },
}

impl Verb {
    pub(crate) async fn run(self) -> anyhow::Result<Answer> {
        match self {
            Self::Plan { to_time, to_prefix, of } => {
                plan(&Desk::open(*of).await?, UnixMillis(to_time), &to_prefix).await
            }
            Self::Check { to_time, of } => check(&Desk::open(*of).await?, UnixMillis(to_time)).await,
        }
    }
}

async fn plan(desk: &Desk, to: UnixMillis, to_prefix: &str) -> anyhow::Result<Answer> {
    let mut points = Points::default();
    moment(desk, to, to_prefix, &mut points);
    for table in desk.connection.examine().await {
        let what = format!("{}: recovery", table.table);
        points.asked(what, &table.recovery, "can be restored to a moment", "point-in-time recovery is off");
    }
    events(desk, to, &mut points).await?;
    let steps = steps(desk, to, to_prefix);
    let lines: Vec<String> = (1..).zip(&steps).map(|(nth, step)| format!("{nth:2}. {step}")).collect();
    let text = format!("{}\n{}", points.table(), lines.join("\n"));
    Ok(Answer::new(json!({"points": points, "steps": steps}), text).wrong_if(points.is_bad()))
}

fn moment(desk: &Desk, to: UnixMillis, prefix: &str, points: &mut Points) {
    let now = desk.clock.now();
    let (verdict, detail) = if to > now {
        (Verdict::Bad, "it is still to come".to_owned())
    } else if now.since(to) > KEPT {
        (Verdict::Bad, format!("{} ago, and the store goes back {}", ago(now.since(to)), ago(KEPT)))
    } else {
        (Verdict::Good, format!("{} ago", ago(now.since(to))))
    };
    points.add("moment", verdict, detail);
    let is_other = prefix != desk.connection.tables().prefix;
    let bad = "the tables that are there have it: a table is never restored in place";
    points.asked("prefix", &Ok(is_other), "another one: what is there stays, to go back to", bad);
}

/// Checks that Kafka still has every event since [`BEFORE`] the moment.
async fn events(desk: &Desk, to: UnixMillis, points: &mut Points) -> anyhow::Result<()> {
    if !desk.has_kafka() {
        points.add("kafka", Verdict::Unknown, "say --brokers to have it looked at");
        return Ok(());
    }
    let (reader, from) = (desk.reader(&desk.topic)?, to.minus(BEFORE));
    for (partition, log) in reader.logs().await.context("cannot look at the topic")? {
        let first =
            reader.read(&partition, log.start, log.start.next()).await.context("cannot read the log's start")?;
        let kept = first.iter().next().map(|record| record.at);
        // A log that begins with offset 0 has lost nothing.
        let is_gone = log.start.0 > 0 && kept.is_none_or(|kept| kept > from);
        if is_gone {
            let detail = "events from before the moment are deleted: what was said in between is lost";
            points.add(format!("{partition}"), Verdict::Bad, detail);
        } else {
            let behind = reader.offset_at(&partition, from).await.context("cannot find the time in the log")?;
            let again = behind.map_or(0, |offset| log.end.0.saturating_sub(offset.0));
            points.add(format!("{partition}"), Verdict::Good, format!("{again} events are read again"));
        }
    }
    Ok(())
}

fn steps(desk: &Desk, to: UnixMillis, prefix: &str) -> Vec<String> {
    let tables = desk.connection.tables();
    let seconds = |at: UnixMillis| at.0.div_ceil(1_000);
    let restore = |table: &str, at: UnixMillis| {
        let name = table.strip_prefix(tables.prefix.as_str()).unwrap_or(table);
        format!(
            "aws dynamodb restore-table-to-point-in-time --source-table-name {table} --target-table-name {prefix}{name} \
             --restore-date-time {}",
            seconds(at)
        )
    };
    // Not later than now, and not earlier than the rows.
    let later = to.plus(LATER).min(desk.clock.now()).max(to);
    let like = format!("{prefix}likes");
    let expire = |table: &str, by: &str| {
        let specification = format!("--time-to-live-specification Enabled=true,AttributeName={by}");
        format!("aws dynamodb update-time-to-live --table-name {prefix}{table} {specification}")
    };
    vec![
        "tally pause consumer --yes --why ..".to_owned(),
        "wait until tally status says that counts are not behind rows, then stop every service".to_owned(),
        restore(&tables.likes, to),
        restore(&tables.counts, to),
        restore(&tables.checkpoints, later),
        restore(&tables.recounts, later),
        format!(
            "aws dynamodb update-table --table-name {like} --stream-specification StreamEnabled=true,StreamViewType=NEW_AND_OLD_IMAGES"
        ),
        expire("likes", "gone"),
        expire("recounts", "ttl"),
        "for each of the four: update-continuous-backups, update-table --deletion-protection-enabled, warm throughput"
            .to_owned(),
        format!("tally adopt tables --table-prefix {prefix} --yes --why .."),
        set_back(&group_of(prefix), &desk.topic, to),
        format!("tally restore check --to-time {} --table-prefix {prefix}", to.0),
        format!("create the topic {prefix}changes, like the log of changes that there is and with as many partitions"),
        format!(
            "start the services with TALLY_TABLE_PREFIX={prefix} and TALLY_CHANGES_TOPIC={prefix}changes; flush the cache of \
             the old prefix, or let it expire"
        ),
        format!("tally audit start --table-prefix {prefix} --yes --why ..; tally audit watch --table-prefix {prefix}"),
    ]
}

/// Returns the command that has consumers begin to read just before the moment.
fn set_back(group: &str, topic: &str, to: UnixMillis) -> String {
    format!(
        "kafka-consumer-groups.sh --bootstrap-server .. --group {group} --topic {topic} --reset-offsets --to-datetime {} --execute",
        utc(to.minus(BEFORE))
    )
}

/// Formats a time in UTC as Kafka's tools take it: `2026-03-01T12:00:00.000`.
fn utc(at: UnixMillis) -> String {
    format!("{}.{:03}", at.date().replace(' ', "T"), at.0 % 1_000)
}

async fn check(desk: &Desk, to: UnixMillis) -> anyhow::Result<Answer> {
    let mut points = Points::default();
    points.add("tables", Verdict::Good, format!("{} have the right keys, stream and index", desk.name()));
    for table in desk.connection.examine().await {
        kept(&table, &mut points);
    }
    log(desk, &mut points).await?;
    let reader = desk.reader(&desk.topic)?;
    let seen = Seen::look(desk, &desk.topic).await?;
    if seen.topic.is_none() {
        points.add(seen.name.as_str(), Verdict::Bad, "nothing is known of it: tally topic adopt");
    }
    for part in &seen.parts {
        start(desk, &reader, part, to, &mut points).await?;
    }
    let losses = desk.changes.losses().await.context("cannot read the losses")?;
    let (is_inexact, good) = (losses.open().next().is_some(), "counts are inexact until an audit has gone through");
    let bad = "no loss is open, so counts would be called exact: were the tables adopted";
    points.asked("exactness", &Ok(is_inexact), good, bad);
    Ok(points.into())
}

/// Checks that consumers begin to read a partition before the moment: the rows have nothing that came later.
async fn start(
    desk: &Desk,
    reader: &dyn TopicReader,
    part: &Part,
    to: UnixMillis,
    points: &mut Points,
) -> anyhow::Result<()> {
    let Some(start) = &part.start else { return Ok(()) };
    let (verdict, detail) = match start {
        Err(standstill) => (Verdict::Bad, format!("{}: {standstill}", standstill.name())),
        Ok(Start { at, .. }) => match passed(reader, part, *at).await? {
            Some(said) if said >= to.minus(BEFORE) => {
                let detail = format!("reading begins at {at}, behind events that the rows may not have");
                (Verdict::Bad, format!("{detail}: {}", set_back(&desk.group, &desk.topic, to)))
            }
            _ => (Verdict::Good, format!("{} events are read again", part.log.end.0.saturating_sub(at.0))),
        },
    };
    points.add(format!("{}", part.partition), verdict, detail);
    Ok(())
}

/// Returns the time of the last event before `start`, if Kafka still has one there.
async fn passed(reader: &dyn TopicReader, of: &Part, start: Offset) -> anyhow::Result<Option<UnixMillis>> {
    // Some offsets have no record.
    let from = Offset(start.0.saturating_sub(LOOKED_AT)).max(of.log.start);
    let read = reader.read(&of.partition, from, start).await.context("cannot read what lies before the start")?;
    Ok(read.iter().last().map(|record| record.at))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moment_is_said_as_kafkas_tools_take_it() {
        assert_eq!(utc(UnixMillis(1_700_000_000_023)), "2023-11-14T22:13:20.023");
    }
}
