//! The parts of `tally status` about tables, changes, counts, other Regions, losses, recounts, dead letters and the
//! cache, a function each. `rows` and `processes` have the others.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use anyhow::Context;
use serde_json::json;
use tally_adapters::dynamodb::changes::Config;
use tally_adapters::redis::CacheArgs;
use tally_core::audit::{RunRecord, RunScope};
use tally_core::cached::StandingAt;
use tally_core::changes::Message;
use tally_core::fault::Fault;
use tally_core::ports::{ChangeStream, StreamFault, TopicReader};
use tally_core::relay::Fed;
use tally_core::time::UnixMillis;
use tally_core::topic::{Log, Partition};

use super::Status;
use crate::desk::Desk;
use crate::ended::Usage;
use crate::said::{ago, counted, past, ranges};
use crate::verbs::post::seen::queued as queued_keys;
use crate::verbs::{dlq, regions};

/// How many of the latest runs are searched for the last audit.
const RUNS: u32 = 200;
/// The greatest age of the last audit that is not called old.
const AUDIT_OLD: Duration = Duration::from_secs(35 * 86_400);
/// How many dead letters are read to leave out those that a replay has put back.
const LETTERS: usize = 100_000;

/// Checks that the tables are those that the deployment was created over.
pub(super) async fn tables(desk: &Desk, status: &mut Status) -> anyhow::Result<()> {
    let seen = desk.checkpoints.seen_tables().await.context("cannot look at the tables")?;
    match seen.problem() {
        Some(problem) => status.wrong("tables", problem, None),
        None => status.figure("tables", "those that the deployment was created over", json!({"same": true})),
    }
    Ok(())
}

/// From rows to the log of changes: how far each stream shard is in the log, and which process copies it.
pub(super) async fn stream(desk: &Desk, late: Duration, status: &mut Status) -> anyhow::Result<()> {
    let info = match desk.stream.info().await {
        Ok(info) => info,
        Err(fault @ StreamFault::Off(_)) => {
            status.wrong("stream off", fault.to_string(), Some("ops/runbooks/TallyStreamNotFollowed.md"));
            return Ok(());
        }
        Err(fault) => return Err(Fault::from(fault)).context("cannot look at the stream"),
    };
    let known = desk.changes.shards(&info.label).await.context("cannot read the stream shards")?;
    let listed =
        desk.stream.shards(&info.label).await.map_err(Fault::from).context("cannot list the stream's shards")?;
    if known.is_empty() && !listed.is_empty() {
        let detail = format!("stream {}: no change-streamer has read any of its {} shards", info.label, listed.len());
        status.wrong("stream not followed", detail, Some("ops/runbooks/TallyStreamNotFollowed.md"));
        return Ok(());
    }
    let now = desk.clock.now();
    let open: Vec<_> = known.iter().filter(|stored| stored.closed.is_none()).collect();
    // The time of a quiet stream shard is stored more rarely. How late it really is, the counts say.
    let late = late + 2 * Fed::TIME_ALONE;
    let stale: Vec<_> = open.iter().filter(|stored| now.since(stored.fed.at) > late).collect();
    if let Some(worst) = stale.iter().min_by_key(|stored| stored.fed.at) {
        let (age, reader) = (ago(now.since(worst.fed.at)), worst.lease.as_ref().map(|lease| lease.holder.0.as_str()));
        let reader = reader.unwrap_or("no process");
        let detail =
            format!("{} of {} stream shards, {} for {age}, read by {reader}", stale.len(), open.len(), worst.shard);
        status.wrong("changes are late", detail, Some("ops/runbooks/TallyStreamAgeHour.md"));
    }
    let leased: BTreeSet<&str> =
        open.iter().filter_map(|stored| stored.lease.as_ref()).map(|lease| lease.holder.0.as_str()).collect();
    let as_of = open.iter().map(|stored| stored.fed.at).min();
    let (shards, processes) = (counted(open.len() as u64, "open stream shard"), leased.len());
    let (behind, as_of) = (past(now, as_of), as_of.map(|as_of| as_of.0));
    let text = format!(
        "{shards}, leased by {}, copied up to {behind} (as stored last)",
        counted(processes as u64, "change-streamer")
    );
    let fields = json!({"open_stream_shards": open.len(), "change_streamers": processes, "as_of": as_of});
    status.figure("changes", text, fields);
    Ok(())
}

/// From the log of changes to counts: the standing of each partition, and what Kafka has beyond it.
pub(super) async fn counts(desk: &Desk, late: Duration, status: &mut Status) -> anyhow::Result<()> {
    let Some(config) = desk.changes.config().await.context("cannot read the configuration of the log")? else {
        let detail = "no change-streamer has set up the log of changes yet";
        status.wrong("no log of changes", detail, Some("ops/runbooks/TallyStreamNotFollowed.md"));
        return Ok(());
    };
    let standings = desk.changes.standings(config.partitions).await.context("cannot read the standings")?;
    let now = desk.clock.now();
    let as_of = |partition| standings.get(&partition).and_then(|stored| stored.standing.as_of);
    let each: Vec<(u32, Option<UnixMillis>)> =
        (0..config.partitions).map(|partition| (partition, as_of(partition))).collect();
    let is_late = |as_of: Option<UnixMillis>| as_of.is_none_or(|as_of| now.since(as_of) > late);
    let stale: Vec<_> = each.iter().filter(|(_, as_of)| is_late(*as_of)).collect();
    if let Some((partition, as_of)) = stale.iter().min_by_key(|(_, as_of)| *as_of) {
        let age = as_of.map_or("all the time".to_owned(), |as_of| ago(now.since(as_of)));
        let late = ranges(stale.iter().map(|(partition, _)| *partition));
        let detail = format!("partitions {late} of {}: the oldest, partition {partition}, for {age}", each.len());
        status.wrong("counts are late", detail, Some("ops/runbooks/TallyStalenessBurn.md"));
    }
    let least = each.iter().map(|(_, as_of)| *as_of).min().flatten();
    status.counts_as_of = least.map(|at| at.0);
    let stale = stale.iter().map(|(partition, _)| *partition).collect();
    status.changes_lag = log(desk, &config, &standings, &stale, status).await?;
    let lag = status.changes_lag.map_or(String::new(), |messages| format!(", lag {messages} messages"));
    let text = format!("{} partitions, all rows up to {} are counted{lag}", config.partitions, past(now, least));
    let (partitions, as_of) = (config.partitions, status.counts_as_of);
    status.figure("counts", text, json!({"partitions": partitions, "as_of": as_of, "lag": status.changes_lag}));
    Ok(())
}

/// Returns how many messages are not counted yet; `None` without Kafka, or if the topic is missing or another one. Names
/// the message at which a `stale` partition stands still.
async fn log(
    desk: &Desk,
    config: &Config,
    standings: &BTreeMap<u32, StandingAt>,
    stale: &BTreeSet<u32>,
    status: &mut Status,
) -> anyhow::Result<Option<u64>> {
    const RUNBOOK: Option<&str> = Some("ops/runbooks/TallyChangesBehind.md");
    if !desk.has_kafka() {
        return Ok(None);
    }
    let (topic, reader) = (&desk.changes_topic, desk.reader(&desk.changes_topic)?);
    let logs = reader.logs().await.context("cannot look at the log of changes")?;
    if logs.is_empty() {
        status.wrong("log missing", format!("there is no topic `{topic}`"), RUNBOOK);
        return Ok(None);
    }
    if logs.len() != usize::try_from(config.partitions).unwrap_or(usize::MAX) {
        let detail = format!("`{topic}` has {} partitions, and was set up with {}", logs.len(), config.partitions);
        status.wrong("log replaced", detail, RUNBOOK);
        return Ok(None);
    }
    if let Some((_, log)) = logs.iter().find(|(_, log)| log.topic != config.topic) {
        let detail = format!("`{topic}` has the id {}, and was set up with {}", log.topic, config.topic);
        status.wrong("log replaced", detail, RUNBOOK);
        return Ok(None);
    }
    let next = |(partition, log): &(Partition, Log)| {
        standings.get(&partition.index).map_or(log.start, |stored| stored.at.offset())
    };
    for of @ (partition, log) in logs.iter().filter(|(partition, _)| stale.contains(&partition.index)) {
        let next = next(of);
        if next < log.start || next >= log.end {
            continue;
        }
        let read = reader.read(partition, next, next.next()).await.context("cannot read the log of changes")?;
        let value = read.at(next).and_then(|record| record.value);
        if let Some(Err(bad)) = value.map(|value| Message::read(value, &config.deployment)) {
            status.wrong("counts halted", format!("{partition} stands still at offset {next}: {bad}"), RUNBOOK);
        }
    }
    Ok(Some(logs.iter().map(|of| of.1.end.0.saturating_sub(next(of).0)).sum()))
}

/// Other Regions: up to when their counts are complete here.
pub(super) async fn regions(desk: &Desk, status: &mut Status) -> anyhow::Result<()> {
    let remotes = regions::look(desk).await?;
    for remote in remotes.iter().filter(|remote| remote.is_silent()) {
        status.wrong("Region silent", remote.to_string(), Some("ops/runbooks/TallyRegionSilent.md"));
    }
    if !remotes.is_empty() {
        let texts: Vec<String> = remotes.iter().map(ToString::to_string).collect();
        status.figure("Regions", texts.join("; "), json!(remotes));
    }
    Ok(())
}

/// The losses that are open: while there is one, no count is exact.
pub(super) async fn losses(desk: &Desk, status: &mut Status) -> anyhow::Result<()> {
    let losses = desk.changes.losses().await.context("cannot read the losses")?;
    let now = desk.clock.now();
    for (number, loss) in losses.open() {
        let detail = format!("{number}: {}: {}, {} ago", loss.kind, loss.what, ago(now.since(UnixMillis(number.0))));
        status.wrong("loss open", detail, Some("ops/runbooks/TallyGapOpen.md"));
    }
    let open = losses.open().count();
    let text = if open == 0 { "none is open".to_owned() } else { format!("{open} open: no count is called exact") };
    status.figure("losses", text, json!({"open": open}));
    Ok(())
}

/// The last run, the last audit, and the row keys that wait for a recount.
pub(super) async fn recounts(desk: &Desk, status: &mut Status) -> anyhow::Result<()> {
    let runs = desk.recounts.runs(RUNS).await.context("cannot read the runs")?;
    let now = desk.clock.now();
    let latest = runs.iter().find(|run| run.ended.is_some() && matches!(run.scope, RunScope::Audit | RunScope::Queue));
    if let Some(RunRecord { run, summary, .. }) = latest.filter(|run| !run.dry_run) {
        let found = [("withheld", summary.withheld), ("alarms", summary.alarms), ("left", summary.left)];
        let found: Vec<String> =
            found.iter().filter(|(_, count)| *count > 0).map(|(what, count)| format!("{count} {what}")).collect();
        if !found.is_empty() {
            let detail = format!("run {run}: {}", found.join(", "));
            status.wrong("drift left", detail, Some("ops/runbooks/TallyCorrectionsWithheld.md"));
        }
    }
    let audited = last_audit(&runs);
    if let Some(old) = audited.map(|ended| now.since(ended)).filter(|age| *age > AUDIT_OLD) {
        status.wrong(
            "audit old",
            format!("the last one ended {} ago", ago(old)),
            Some("ops/runbooks/TallyLastAuditOld.md"),
        );
    }
    let mut queued = BTreeMap::<&str, u64>::new();
    queued_keys(desk).await?.into_iter().for_each(|(_, why)| *queued.entry(why).or_default() += 1);
    let flagged: Vec<String> = queued
        .iter()
        .filter(|(reason, _)| **reason != "asked")
        .map(|(reason, count)| format!("{count} {reason}"))
        .collect();
    if !flagged.is_empty() {
        status.wrong("counts in doubt", format!("row keys that wait for a recount: {}", flagged.join(", ")), None);
    }
    let ended = audited.map_or("none yet".to_owned(), |ended| format!("{} ago", ago(now.since(ended))));
    let text = format!("last audit {ended}, {} row keys queued", queued.values().sum::<u64>());
    status.figure("recounts", text, json!({"last_audit": audited.map(|ended| ended.0), "queued": queued}));
    Ok(())
}

/// Returns when the last audit ended that left no difference.
fn last_audit(runs: &[RunRecord]) -> Option<UnixMillis> {
    let is_good = |run: &&RunRecord| run.scope == RunScope::Audit && !run.dry_run && run.summary.left == 0;
    runs.iter().filter(is_good).filter_map(|run| run.ended).max()
}

/// The dead letters that no replay has put back, with those that a replay has read and found to be no events.
pub(super) async fn letters(desk: &Desk, status: &mut Status) -> anyhow::Result<()> {
    if !desk.has_kafka() {
        return Ok(());
    }
    let reader = desk.reader(&desk.dead_letter_topic)?;
    let left = dlq::left(&reader, (desk.deployment()?, &desk.topic), LETTERS).await?;
    if left > 0 {
        let detail = format!("{left} in {}: see tally dlq list", desk.dead_letter_topic);
        status.wrong("dead letters", detail, Some("ops/runbooks/TallyDeadLetters.md"));
    }
    status.figure("dead letters", left.to_string(), json!({"left": left}));
    Ok(())
}

/// The cache: whether it answers, and how old the standings in it are.
pub(super) async fn cache(desk: &Desk, cache: &CacheArgs, late: Duration, status: &mut Status) -> anyhow::Result<()> {
    const RUNBOOK: Option<&str> = Some("ops/runbooks/TallyCacheAway.md");
    if cache.address().is_none() {
        status.unseen("cache", "say --redis URL, or off where the deployment has none");
        return Ok(());
    }
    let settings = cache.settings(&desk.connection.tables().prefix);
    let Some(settings) = settings.map_err(|invalid| Usage(invalid.to_string()))? else {
        status.figure("cache", "off", json!({"on": false}));
        return Ok(());
    };
    let Some(config) = desk.changes.config().await.context("cannot read the configuration of the log")? else {
        status.unseen("cache", "no change-streamer has set up the log of changes yet");
        return Ok(());
    };
    let (cache, mut ages) = (settings.open()?, Vec::new());
    for partition in 0..config.partitions {
        match cache.get(partition, &[]).await {
            Ok(got) if got.taken.as_ref().is_none_or(|taken| taken.of == config.deployment) => {
                ages.extend(got.stated.and_then(|stated| stated.standing.as_of));
            }
            Ok(_) => {
                let problem = "another deployment with this table prefix keeps its counts in it".to_owned();
                status.wrong("cache shared", problem, RUNBOOK);
                return Ok(());
            }
            Err(fault) => {
                status.wrong("cache away", format!("it does not answer: {fault}"), RUNBOOK);
                return Ok(());
            }
        }
    }
    let as_of = ages.iter().min();
    let oldest = as_of.map(|as_of| desk.clock.now().since(*as_of));
    // The cache follows the counts: where they are late, it is later than they are only if it is wrong itself.
    let counted = status.counts_as_of.map_or_else(|| desk.clock.now(), UnixMillis);
    if let Some(oldest) = oldest.filter(|_| as_of.is_some_and(|as_of| counted.since(*as_of) > late)) {
        status.wrong("cache is late", format!("a standing in it is {} old", ago(oldest)), RUNBOOK);
    }
    let oldest = oldest.map_or(String::new(), |oldest| format!(", the oldest {} old", ago(oldest)));
    let text = format!("it has {} of {} standings{oldest}", ages.len(), config.partitions);
    let as_of = as_of.map(|as_of| as_of.0);
    let fields = json!({"on": true, "standings": ages.len(), "partitions": config.partitions, "as_of": as_of});
    status.figure("cache", text, fields);
    Ok(())
}
