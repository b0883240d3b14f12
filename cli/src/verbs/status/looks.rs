//! What `status` looks at, part by part.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::Context;
use tally_adapters::dynamodb::{Checkpoints, Rebuilding};
use tally_consumer::{Standing, dlq};
use tally_core::audit::{RunRecord, RunScope};
use tally_core::fault::Fault;
use tally_core::fence::Alarm;
use tally_core::lineage::Lineage;
use tally_core::ports::{ChangeStream, QueueReason, RecountQueue, Runs, StreamFault, TopicReader};
use tally_core::time::UnixMillis;

use super::Status;
use crate::desk::Desk;
use crate::said::ago;

/// Runs among which the last audit is looked for.
const RUNS: u32 = 200;
/// How old the last audit may be.
const AUDIT_OLD: Duration = Duration::from_secs(35 * 86_400);

/// Kafka to rows: each partition's fence, its log, and how long its first record that is not applied has waited.
pub(super) async fn rows(desk: &Desk, late: Duration, status: &mut Status) -> anyhow::Result<()> {
    if !desk.has_kafka() {
        status.figure("rows", "not looked at: say --brokers");
        return Ok(());
    }
    let standing = desk.fences()?.standing().await?;
    let reader = desk.reader(&desk.topic)?;
    let (mut behind, mut longest) = (0, Duration::ZERO);
    for partition in &standing {
        if let Some(Alarm::Paused) = partition.alarm() {
            status.wrong("paused", format!("{}: tally resume consumer", partition.partition), None);
            continue;
        }
        if let Some(alarm) = partition.alarm() {
            let detail = format!("{}: {}: {alarm}", partition.partition, alarm.name());
            status.wrong("partition halted", detail, Some("ops/runbooks/TallyPartitionHalted.md"));
            continue;
        }
        let Some(waiting) = waiting(desk, &reader, partition).await? else { continue };
        behind += waiting.records;
        longest = longest.max(waiting.age);
        if waiting.age > late {
            let detail =
                format!("{}: {} records, the first for {}", partition.partition, waiting.records, ago(waiting.age));
            status.wrong("rows are late", detail, Some("ops/runbooks/TallyConsumerLag.md"));
        }
    }
    let unread =
        standing.iter().filter(|partition| partition.lanes.is_empty() && partition.log.end > partition.log.start);
    for partition in unread {
        status.wrong(
            "not consumed",
            format!("{} has no fence yet: no consumer has read it", partition.partition),
            None,
        );
    }
    status.figure(
        "rows",
        format!("{} partitions, {behind} records wait, the first for {}", standing.len(), ago(longest)),
    );
    Ok(())
}

/// Records of a partition that no lane has passed.
struct Waiting {
    records: u64,
    age: Duration,
}

async fn waiting(desk: &Desk, reader: &dyn TopicReader, of: &Standing) -> anyhow::Result<Option<Waiting>> {
    let Some(records) = of.behind().filter(|behind| *behind > 0) else { return Ok(None) };
    let Some(first) = of.lanes.iter().map(|fence| fence.offset).min() else { return Ok(None) };
    let read =
        reader.read(&of.partition, first, first.next()).await.context("cannot read the first record that waits")?;
    let at = read.iter().next().map(|record| record.at);
    Ok(Some(Waiting { records, age: at.map_or(Duration::ZERO, |at| desk.clock.now().since(at)) }))
}

/// Rows to counts: how far the stream of changes is applied.
pub(super) async fn counts(desk: &Desk, late: Duration, status: &mut Status) -> anyhow::Result<()> {
    let info = match desk.stream.info().await {
        Ok(info) => info,
        Err(fault @ StreamFault::Off(_)) => {
            status.wrong("stream off", fault.to_string(), Some("ops/runbooks/TallyStreamNotFollowed.md"));
            return Ok(());
        }
        Err(fault) => return Err(Fault::from(fault)).context("cannot look at the stream"),
    };
    let known = desk.checkpoints.shards(&info.label).await.context("cannot read the checkpoints")?;
    let listed =
        desk.stream.shards(&info.label).await.map_err(Fault::from).context("cannot list the stream's shards")?;
    let (open, leased) = (open(&known), known.iter().filter(|state| state.lease.is_some()).count());
    if known.is_empty() && !listed.is_empty() {
        let detail = format!("stream {}: no change-streamer has read any of its {} shards", info.label, listed.len());
        status.wrong("stream not followed", detail, Some("ops/runbooks/TallyStreamNotFollowed.md"));
        return Ok(());
    }
    let now = desk.clock.now();
    let stale = known.iter().filter(|state| !state.checkpoint.closed && now.since(state.checkpoint.at) > late);
    let stale: Vec<_> = stale.collect();
    if let Some(worst) = stale.iter().min_by_key(|state| state.checkpoint.at) {
        let age = ago(now.since(worst.checkpoint.at));
        let detail = format!("{} of {open} stream shards, {} for {age}", stale.len(), worst.checkpoint.id);
        status.wrong("counts are late", detail, Some("ops/runbooks/TallyCheckpointOld.md"));
    }
    let as_of = Lineage::new(known.into_iter().map(|state| state.checkpoint), [], None).as_of();
    let behind = as_of.map_or("not known".to_owned(), |as_of| ago(now.since(as_of)));
    status.figure("counts", format!("{open} open stream shards, {leased} leased, behind rows by {behind} at most"));
    Ok(())
}

fn open(known: &[tally_core::ports::ShardState]) -> usize {
    known.iter().filter(|state| !state.checkpoint.closed).count()
}

/// Losses of stream: while one is open, no count is exact.
pub(super) async fn gaps(desk: &Desk, status: &mut Status) -> anyhow::Result<()> {
    let gaps = desk.checkpoints.gaps().await.context("cannot read the gaps")?;
    let now = desk.clock.now();
    for gap in &gaps {
        let detail = format!("{}: {}, {} ago", gap.id.0, gap.detail, ago(now.since(gap.opened)));
        status.wrong("gap open", detail, Some("ops/runbooks/TallyGapOpen.md"));
    }
    let rebuild = Checkpoints::new(&desk.connection).rebuilding().await.context("cannot read the rebuild")?;
    if let Some(Rebuilding { began, .. }) = rebuild {
        let detail = format!("began {} ago and has not ended: run tally rebuild counts again", ago(now.since(began)));
        status.wrong("rebuild unfinished", detail, None);
    }
    let exact =
        if gaps.is_empty() { "as far as losses go".to_owned() } else { format!("no count: {} gaps", gaps.len()) };
    status.figure("exact", exact);
    Ok(())
}

/// Audits and what waits for a recount.
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
    let queued = queued(desk).await?;
    let flagged: Vec<String> = queued
        .iter()
        .filter(|(reason, _)| **reason != "asked")
        .map(|(reason, count)| format!("{count} {reason}"))
        .collect();
    if !flagged.is_empty() {
        status.wrong("counts in doubt", format!("row keys that wait for a recount: {}", flagged.join(", ")), None);
    }
    let audited = audited.map_or("none yet".to_owned(), |ended| format!("{} ago", ago(now.since(ended))));
    status.figure("recounts", format!("last audit {audited}, {} row keys queued", queued.values().sum::<u64>()));
    Ok(())
}

/// When the last audit ended that looked at everything and left nothing.
fn last_audit(runs: &[RunRecord]) -> Option<UnixMillis> {
    let is_good = |run: &&RunRecord| run.scope == RunScope::Audit && !run.dry_run && run.summary.left == 0;
    runs.iter().filter(is_good).filter_map(|run| run.ended).max()
}

async fn queued(desk: &Desk) -> anyhow::Result<BTreeMap<&'static str, u64>> {
    let (mut reasons, mut after) = (BTreeMap::new(), None);
    loop {
        let page = desk.recounts.queued(after.as_ref()).await.context("cannot read the queue")?;
        for queued in page.items {
            *reasons.entry(reason(queued.reason)).or_default() += 1;
        }
        after = page.next;
        if after.is_none() {
            return Ok(reasons);
        }
    }
}

fn reason(reason: QueueReason) -> &'static str {
    match reason {
        QueueReason::Drift => "drift",
        QueueReason::Negative => "negative",
        QueueReason::Suspect => "suspect",
        QueueReason::Asked => "asked",
    }
}

/// Records that could not be applied and were not replayed.
pub(super) async fn letters(desk: &Desk, status: &mut Status) -> anyhow::Result<()> {
    if !desk.has_kafka() {
        return Ok(());
    }
    let unread = dlq::unread(&desk.reader(&desk.dead_letter_topic)?).await?;
    if unread > 0 {
        let detail = format!("{unread} in {}: see tally dlq list", desk.dead_letter_topic);
        status.wrong("dead letters", detail, Some("ops/runbooks/TallyDeadLetters.md"));
    }
    status.figure("dead letters", unread.to_string());
    Ok(())
}
