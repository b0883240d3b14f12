//! `tally topic show`: what is wrong, and a line for each partition with its claim, offsets, lag, reader and state.

use std::fmt::Write as _;

use serde::Serialize;

use super::seen::{Part, Problem, Seen};
use crate::desk::{Desk, Where};
use crate::said::{Answer, Table, ago, or_dash, ranges};

#[derive(clap::Args, Clone, Debug)]
pub(crate) struct Args {
    #[command(flatten)]
    of: Where,
}

#[derive(Debug, Serialize)]
pub(crate) struct Shown {
    topic: String,
    id: String,
    /// Absent before a consumer has read the topic.
    #[serde(skip_serializing_if = "Option::is_none")]
    generation: Option<u16>,
    group: String,
    paused: bool,
    problems: Vec<Problem>,
    partitions: Vec<Line>,
    /// The fault for which it is not known who reads the partitions.
    #[serde(skip_serializing_if = "Option::is_none")]
    members_unknown: Option<String>,
}

/// A partition.
#[derive(Debug, Serialize)]
struct Line {
    partition: u32,
    claim: u64,
    committed: Option<u64>,
    /// Every record before this offset is finished: it is in the rows, or has a dead letter.
    safe: Option<u64>,
    /// Every record that Kafka had acknowledged by this time is finished.
    safe_at: Option<u64>,
    log_start: u64,
    log_end: u64,
    lag: u64,
    /// The member of the group that reads the partition.
    held_by: Option<String>,
    state: String,
    #[serde(skip)]
    age: String,
}

impl Answer for Shown {
    fn table(&self) -> String {
        let mut text = String::new();
        for Problem { name, partitions, detail } in &self.problems {
            let _ = writeln!(text, "partition {}: {name}: {detail}", ranges(partitions.iter().copied()));
        }
        if self.paused {
            text.push_str("paused: tally resume consumer\n");
        }
        let generation = self.generation.map_or("not read yet".to_owned(), |number| format!("generation {number}"));
        let _ = writeln!(text, "topic {}, id {}, {generation}, group {}", self.topic, self.id, self.group);
        let mut table = Table::headed([
            "partition",
            "claim",
            "committed",
            "safe",
            "complete up to",
            "log",
            "lag",
            "read by",
            "state",
        ]);
        for line in &self.partitions {
            let log = format!("{}..{}", line.log_start, line.log_end);
            let held = or_dash(line.held_by.as_ref());
            let (committed, safe) = (or_dash(line.committed), or_dash(line.safe));
            table.row([
                &line.partition,
                &line.claim,
                &committed,
                &safe,
                &line.age,
                &log,
                &line.lag,
                &held,
                &line.state,
            ]);
        }
        text.push_str(&table.to_string());
        if let Some(why) = &self.members_unknown {
            let _ = write!(text, "\nit is not known who reads them: {why}");
        }
        text
    }

    fn found(&self) -> bool {
        self.paused || !self.problems.is_empty()
    }
}

impl Args {
    pub(crate) async fn run(self) -> anyhow::Result<Shown> {
        let desk = Desk::open(self.of).await?;
        let seen = Seen::look(&desk, &desk.topic).await?;
        let (members, members_unknown) = match desk.consumers_of(&desk.topic)?.members().await {
            Ok(members) => (members, None),
            Err(fault) => (Vec::new(), Some(fault.to_string())),
        };
        let held_by = |part: &Part| {
            let holds = members.iter().find(|member| member.partitions.contains(&part.partition.index));
            holds.map(|member| format!("{} at {}", member.client, member.host))
        };
        let now = desk.claims.time().latest;
        let line = |part: &Part| {
            let kept = seen.kept(part);
            let safe_at = kept.and_then(|kept| kept.safe_at);
            Line {
                partition: part.partition.index,
                claim: part.claim.n,
                committed: part.committed.map(|offset| offset.0),
                safe: kept.map(|kept| kept.safe.0),
                safe_at: safe_at.map(|at| at.0),
                log_start: part.log.start.0,
                log_end: part.log.end.0,
                lag: seen.lag(part),
                held_by: held_by(part),
                state: state(&seen, part),
                age: safe_at.map_or("-".to_owned(), |at| format!("{} ago", ago(now.since(at)))),
            }
        };
        Ok(Shown {
            partitions: seen.parts.iter().map(line).collect(),
            topic: seen.name.clone(),
            id: seen.id.to_string(),
            generation: seen.topic.as_ref().map(|topic| topic.current().number),
            group: desk.group.clone(),
            paused: seen.is_paused(),
            problems: seen.problems(),
            members_unknown,
        })
    }
}

/// Says in a few words what a consumer does, or would do, with the partition.
fn state(seen: &Seen, part: &Part) -> String {
    match (&part.start, seen.kept(part)) {
        (Some(Err(standstill)), _) => standstill.name().to_owned(),
        (_, Some(tally_core::register::Kept { replay: Some(until), .. })) => format!("replays up to {until}"),
        (_, Some(_)) if seen.is_paused() => "paused".to_owned(),
        (_, Some(_)) => "reads".to_owned(),
        (_, None) => "not read yet".to_owned(),
    }
}
