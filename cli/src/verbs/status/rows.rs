//! The part of `tally status` from Kafka to rows: up to when the rows are complete, how many records wait, and
//! partitions that are paused, halted, unread or replaying, or whose last events are *misrouted*: they belong to another
//! partition.

use std::time::Duration;

use anyhow::Context;
use serde_json::json;
use tally_core::event::{decode, partition_of};
use tally_core::ports::log::Record;
use tally_core::register::{Kept, Topic};
use tally_core::topic::Offset;

use super::Status;
use crate::desk::Desk;
use crate::said::{ago, counted, past, ranges};
use crate::verbs::dlq::each;
use crate::verbs::pause;
use crate::verbs::topic::Seen;

/// How many of the last records of a partition are searched for misrouted events.
const SAMPLED: u64 = 1_000;

/// A partition of the topic, as far as it is known.
struct Part {
    index: u32,
    kept: Option<Kept>,
    /// How many records are no rows yet; `None` if Kafka is not looked at.
    lag: Option<u64>,
    is_halted: bool,
}

pub(super) async fn look(desk: &Desk, late: Duration, status: &mut Status) -> anyhow::Result<()> {
    let topic = desk.claims.topic(&desk.topic).await.context("cannot read what is known of the topic")?;
    let parts = if desk.has_kafka() {
        let seen = Seen::look(desk, &desk.topic).await?;
        misrouting(desk, &seen, status).await?;
        in_kafka(&seen, status)
    } else {
        stored(desk, topic.as_ref()).await?
    };
    status.lag = parts.iter().map(|part| part.lag).sum();
    status.paused = topic.is_some_and(|topic| topic.is_paused);
    let lag = status.lag.map_or(String::new(), |lag| format!(", lag {lag}"));
    if status.paused {
        let partitions = counted(parts.len() as u64, "partition");
        let still = pause::still(desk).await?.map_or(String::new(), |still| format!("; {still}"));
        status.wrong("paused", format!("{}: {partitions}{lag}: tally resume consumer{still}", desk.topic), None);
    }
    ages(desk, &parts, late, status);
    let was_misrouted = |part: &&Part| part.kept.as_ref().is_some_and(|kept| kept.misrouted);
    let before: Vec<u32> = parts.iter().filter(was_misrouted).map(|part| part.index).collect();
    if !before.is_empty() {
        // Nothing has to be done about these: they only widen what `as_of` waits for.
        let partitions = ranges(before.iter().copied());
        let text = format!("{}/{partitions} had misrouted events, so as_of waits for all partitions", desk.topic);
        status.figure("misrouted before", text, json!({"partitions": before}));
    }
    Ok(())
}

/// Returns the partitions by what is stored, for a command without brokers.
async fn stored(desk: &Desk, topic: Option<&Topic>) -> anyhow::Result<Vec<Part>> {
    let partitions = topic.map_or(0, |topic| topic.current().partitions());
    let claims = desk.claims.all(&desk.topic, partitions).await.context("cannot read the claims")?;
    let part = |(index, kept)| Part { index, kept, lag: None, is_halted: false };
    Ok((0..).zip(claims.into_iter().map(|claim| claim.kept)).map(part).collect())
}

fn in_kafka(seen: &Seen, status: &mut Status) -> Vec<Part> {
    for problem in seen.problems() {
        let partitions = ranges(problem.partitions.iter().copied());
        let detail = format!("{}/{partitions}: {}: {}", seen.name, problem.name, problem.detail);
        status.wrong("partition halted", detail, Some("ops/runbooks/TallyPartitionHalted.md"));
    }
    let part = |part| {
        let (kept, lag) = (seen.kept(part).cloned(), Some(seen.unread(part)));
        Part { index: part.partition.index, kept, lag, is_halted: matches!(part.start, Some(Err(_))) }
    };
    seen.parts.iter().map(part).collect()
}

/// Says up to when the rows of each partition are complete.
fn ages(desk: &Desk, parts: &[Part], late: Duration, status: &mut Status) {
    const RUNBOOK: Option<&str> = Some("ops/runbooks/TallyConsumerLag.md");
    let (name, now) = (&desk.topic, desk.claims.time().latest);
    let of = |parts: &[&Part]| format!("{name}/{}", ranges(parts.iter().map(|part| part.index)));
    let unread: Vec<&Part> = parts
        .iter()
        .filter(|part| part.kept.is_none() && part.lag.is_some_and(|lag| lag > 0) && !part.is_halted)
        .collect();
    if !unread.is_empty() {
        status.wrong("not consumed", format!("{}: no consumer has read it", of(&unread)), None);
    }
    let mut stale = Vec::new();
    for part in parts {
        let Some(kept) = &part.kept else { continue };
        if let Some(until) = kept.replay {
            let detail = format!("{name}/{}: up to {until}, and {} is done", part.index, kept.safe);
            status.wrong("replaying", detail, RUNBOOK);
        } else if kept.safe_at.is_some_and(|at| now.since(at) > late) {
            stale.push(part);
        }
    }
    let oldest = stale.iter().filter_map(|part| part.kept.as_ref()?.safe_at).min();
    if let Some(oldest) = oldest.filter(|_| !status.paused) {
        let lag: Option<u64> = stale.iter().map(|part| part.lag).sum();
        let lag = lag.map_or(String::new(), |lag| format!(", lag {lag}"));
        let detail = format!("{}: complete up to {} ago{lag}", of(&stale), ago(now.since(oldest)));
        status.wrong("rows are late", detail, RUNBOOK);
    }
    // If no time is known for one partition, none is known for the whole.
    let as_of = parts.iter().map(|part| part.kept.as_ref().and_then(|kept| kept.safe_at)).min().flatten();
    status.rows_as_of = as_of.map(|at| at.0);
    let as_of = past(now, as_of);
    let lag = status.lag.map_or(String::new(), |lag| format!(", lag {lag}"));
    let paused = if status.paused { ", paused" } else { "" };
    let partitions = counted(parts.len() as u64, "partition");
    let fields = json!({
        "partitions": parts.len(), "as_of": status.rows_as_of, "lag": status.lag, "paused": status.paused,
    });
    status.figure("rows", format!("{partitions}, complete up to {as_of}{lag}{paused}"), fields);
}

/// Checks that the last events of each partition belong there by their keys. Events of sums may be in any partition.
async fn misrouting(desk: &Desk, seen: &Seen, status: &mut Status) -> anyhow::Result<()> {
    let defined = desk.checkpoints.definitions().await.context("cannot read the counters")?;
    let (definitions, partitions) = (defined.said_in(&desk.topic), seen.partitions());
    // An event from before partitions were added belongs where it did then.
    let topic = seen.topic.as_ref();
    let topic = topic.filter(|topic| topic.id == seen.id && topic.current().partitions() == partitions);
    let reader = desk.reader(&desk.topic)?;
    let (mut looked, mut misrouted) = (0_u64, 0_u64);
    for part in &seen.parts {
        let (from, before) = (Offset(part.log.end.0.saturating_sub(SAMPLED)).max(part.log.start), misrouted);
        let look = |record: Record<'_>| {
            let event = decode(record, &definitions).ok().filter(|event| event.member().is_some());
            let Some(event) = event else { return };
            looked += 1;
            let is_routed = match topic {
                Some(topic) => topic.version(&part.partition, record.offset, event.subject()).is_routed(),
                None => partition_of(event.subject().as_bytes(), partitions) == part.partition.index,
            };
            misrouted += u64::from(!is_routed);
        };
        each(&reader, &part.partition, from, part.log.end, look).await.context("cannot read the last events")?;
        if misrouted > before {
            status.misrouted.push(part.partition.index);
        }
    }
    let text =
        format!("{misrouted} of the last {} lie in another partition than their keys say", counted(looked, "event"));
    status.figure("misrouting", text, json!({"looked_at": looked, "misrouted": misrouted}));
    if misrouted > 0 {
        let partitions = ranges(status.misrouted.iter().copied());
        let detail = format!(
            "{}/{partitions}: events lie in other partitions than their keys say: stop or correct their producer, which the \
             consumers' log describes",
            desk.topic
        );
        status.wrong("misrouted", detail, Some("ops/runbooks/TallyMisroutedEvents.md"));
    }
    Ok(())
}
