//! `tally restore plan`: says whether tables and Kafka go back to a moment, and prints the commands that restore them.

use std::time::Duration;

use anyhow::Context;
use serde_json::json;
use tally_consumer::group_of;
use tally_core::ports::TopicReader;
use tally_core::time::UnixMillis;

use crate::desk::{Desk, Where};
use crate::said::{Answer, ago};
use crate::verbs::doctor::{Points, Verdict};

/// How far before the moment reading begins again: rows are written later than their events.
pub(super) const BEFORE: Duration = Duration::from_secs(300);
/// How much later than the rows the checkpoints are restored: so their positions are never earlier than the counts.
const LATER: Duration = Duration::from_secs(60);
/// How far back the store can restore a table.
const KEPT: Duration = Duration::from_secs(35 * 86_400);

#[derive(clap::Args, Clone, Debug)]
pub(crate) struct Args {
    /// The moment, in milliseconds since 1970
    #[arg(long, value_name = "MILLIS")]
    to_time: u64,

    /// What the names of the restored tables begin with: another prefix than these have
    #[arg(long, value_name = "TEXT")]
    to_prefix: String,

    #[command(flatten)]
    of: Where,
}

impl Args {
    pub(crate) async fn run(self) -> anyhow::Result<Answer> {
        let Self { to_time, to_prefix, of } = self;
        let desk = Desk::open(of).await?;
        let mut points = Points::default();
        let to = UnixMillis(to_time);
        moment(&desk, to, &to_prefix, &mut points);
        for table in desk.connection.examine().await {
            let what = format!("{}: recovery", table.table);
            points.asked(what, &table.recovery, "can be restored to a moment", "point-in-time recovery is off");
        }
        log(&desk, to, &mut points).await?;
        let steps = steps(&desk, to, &to_prefix);
        let lines: Vec<String> = (1..).zip(&steps).map(|(nth, step)| format!("{nth:2}. {step}")).collect();
        let text = format!("{}\n{}", points.table(), lines.join("\n"));
        Ok(Answer::new(json!({"points": points, "steps": steps}), text).wrong_if(points.is_bad()))
    }
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
    let is_same = prefix == desk.connection.tables().prefix;
    let (verdict, detail) = match is_same {
        true => (Verdict::Bad, "the tables that are there have it: a table is never restored in place"),
        false => (Verdict::Good, "another one: what is there stays, to go back to"),
    };
    points.add("prefix", verdict, detail);
}

/// Checks that Kafka still has every event since [`BEFORE`] the moment.
async fn log(desk: &Desk, to: UnixMillis, points: &mut Points) -> anyhow::Result<()> {
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
pub(super) fn set_back(group: &str, topic: &str, to: UnixMillis) -> String {
    format!(
        "kafka-consumer-groups.sh --bootstrap-server .. --group {group} --topic {topic} --reset-offsets --to-datetime {} --execute",
        utc(to.minus(BEFORE))
    )
}

/// Formats a time in UTC as Kafka's tools take it: `2026-03-01T12:00:00.000`.
fn utc(at: UnixMillis) -> String {
    format!("{}.{:03}", at.date().replace(' ', "T"), at.0 % 1_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moment_is_said_as_kafkas_tools_take_it() {
        let said = [0, 951_782_400_000, 1_700_000_000_123, 4_107_542_399_999].map(|at| utc(UnixMillis(at)));
        let expected = [
            "1970-01-01T00:00:00.000",
            "2000-02-29T00:00:00.000",
            "2023-11-14T22:13:20.123",
            "2100-02-28T23:59:59.999",
        ];
        assert_eq!(said, expected);
    }
}
