//! The rare event `restore`: the tables of a deployment of real processes are restored to a point in time under another
//! prefix, as the operators' command `tally restore plan` says, while producers go on. A recount then makes every count
//! exact again.

use std::time::Duration;

use anyhow::{Context, bail, ensure};
use aws_smithy_types::date_time::{DateTime, Format};
use serde_json::{Value, json};
use tally_adapters::kafka;
use tally_core::ports::TopicReader as _;
use tally_core::time::UnixMillis;

use crate::attack::engines::ANEW;
use crate::attack::fleet::Service;
use crate::attack::laws;
use crate::attack::stage::Stage;
use crate::lifecycle::{TABLES, by_hand, keep, none_is_exact};

const PREFIX: &str = "restored-";

/// How long a pause waits for requests sent before it. No request is late here.
const SETTLE: &str = "2s";

/// Restores the tables to a time that is `lose` ago.
pub(super) async fn relive(stage: &Stage, has_times: bool, lose: Duration) -> anyhow::Result<()> {
    for table in TABLES {
        keep(&stage.engines, table).await?;
    }
    let operator = stage.fleet.launcher.clone();
    stage.changed(200).await?;
    stage.caught_up(Service::Consumer).await?;
    // Tables are restored to whole seconds.
    let to = UnixMillis(stage.clock.now().0.next_multiple_of(1_000));
    stage.clock.sleep(lose.max(Duration::from_secs(3))).await;
    stage.all_well()?;
    stage.stop_readers().await;

    let moment = to.0.to_string();
    let plan = operator.must(&["restore", "plan", "--to-time", &moment, "--to-prefix", PREFIX, "-o", "json"]).await?;
    let steps: Vec<String> = serde_json::from_value(plan.json()["steps"].clone()).context("the plan has no steps")?;
    // The restored checkpoints are from before the pause.
    stage.clock.sleep(Duration::from_secs(2)).await;
    let before = stage.engines.history.changes();
    stage.report.tell(format!("the plan has {} steps; {} changes of rows so far", steps.len(), before));
    operator.change(&["pause", "consumer", "--settle", SETTLE]).await?;
    stage.caught_up(Service::Streamer).await?;
    stage.fleet.stop().await?;
    let rows = stage.engines.history.changes();
    for step in steps.iter().filter(|step| step.starts_with("aws ")) {
        by_aws(stage, step).await.with_context(|| step.clone())?;
    }
    for table in TABLES {
        keep(&stage.engines, &format!("{PREFIX}{table}")).await?;
    }
    ensure!(stage.engines.history.changes() == rows, "a row changed while consumers were paused");
    stage.report.tell("consumers paused, every process stopped, four tables restored");

    stage.engines.move_to(PREFIX);
    stage.fleet.launcher.tell("TALLY_TABLE_PREFIX", PREFIX);
    // The old log has changes that the restored tables do not have, so a new topic is used.
    stage.fleet.launcher.tell("TALLY_CHANGES_TOPIC", ANEW);
    let check = ["restore", "check", "--to-time", &moment, "--table-prefix", PREFIX];
    let refused = operator.run(&check).await;
    ensure!(refused.code == Some(1), "restore check passed before the group was set back: {refused:?}");
    operator.change(&["adopt", "tables", "--table-prefix", PREFIX]).await?;
    set_back(stage, &steps, has_times).await?;
    let good = operator.must(&check).await?;
    stage.report.tell(format!("the group is set back; restore check passed {} points", good.out.lines().count() - 1));

    stage.fleet.refill_all().await?;
    let asked = none_is_exact(stage).await?;
    stage.counted().await?;
    ensure!(stage.engines.open_losses().await? > 0, "no loss is open, so wrong counts would be called exact");
    stage.report.tell(format!("started again; {asked} answers before the audit, none of them exact"));
    operator.change(&["audit", "start", "--table-prefix", PREFIX]).await?;
    laws::repair(&stage.fleet.launcher).await?;
    ensure!(stage.engines.open_losses().await? == 0, "a loss is open after the audit");
    stage.report.tell("the audit has finished");
    Ok(())
}

/// Sets the group's offsets back with the plan's own command. A broker that cannot search by time starts at the beginning.
async fn set_back(stage: &Stage, steps: &[String], has_times: bool) -> anyhow::Result<()> {
    let mut resets = steps.iter().filter(|step| step.starts_with("kafka-consumer-groups.sh"));
    let step = resets.next().context("the plan does not set the group back")?;
    let from = DateTime::from_str(&format!("{}Z", value(step, "--to-datetime")?), Format::DateTime)?;
    let from = UnixMillis(u64::try_from(from.to_millis()?)?);
    let kafka = kafka::Settings::plaintext(&stage.engines.broker.to_string());
    let reader = kafka::TopicReader::new(&kafka, value(step, "--group")?, value(step, "--topic")?)?;
    for (partition, log) in reader.logs().await? {
        let found = if has_times { reader.offset_at(&partition, from).await?.unwrap_or(log.end) } else { log.start };
        reader.mark(&partition, found).await?;
    }
    Ok(())
}

/// Carries out a command line of the AWS CLI from a plan.
async fn by_aws(stage: &Stage, line: &str) -> anyhow::Result<()> {
    let value = |flag| value(line, flag);
    let (operation, body) = match line.split_whitespace().nth(2) {
        Some("restore-table-to-point-in-time") => {
            let at: u64 = value("--restore-date-time")?.parse().context("the time is not in seconds")?;
            let (source, target) = (value("--source-table-name")?, value("--target-table-name")?);
            let body = json!({"SourceTableName": source, "TargetTableName": target, "RestoreDateTime": at});
            ("RestoreTableToPointInTime", body)
        }
        Some("update-table") => {
            let specification = fields(value("--stream-specification")?);
            ("UpdateTable", json!({"TableName": value("--table-name")?, "StreamSpecification": specification}))
        }
        Some("update-time-to-live") => {
            let specification = fields(value("--time-to-live-specification")?);
            ("UpdateTimeToLive", json!({"TableName": value("--table-name")?, "TimeToLiveSpecification": specification}))
        }
        other => bail!("unknown AWS command: {other:?}"),
    };
    by_hand(&stage.engines, operation, body).await
}

/// The value of a flag in a command line.
fn value<'a>(line: &'a str, flag: &str) -> anyhow::Result<&'a str> {
    let mut words = line.split_whitespace().skip_while(|word| *word != flag);
    words.next().with_context(|| format!("{flag} is missing"))?;
    words.next().with_context(|| format!("{flag} has no value"))
}

/// Parses the AWS CLI's shorthand `A=b,C=true`.
fn fields(text: &str) -> Value {
    let pairs = text.split(',').filter_map(|pair| pair.split_once('='));
    pairs.map(|(name, value)| (name.to_owned(), value.parse().map_or_else(|_| json!(value), Value::Bool))).collect()
}
