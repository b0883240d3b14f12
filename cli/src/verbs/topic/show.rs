//! `tally topic show`: what is wrong, and a line for each partition with its claim, offsets, lag, reader and state.

use std::fmt::Write as _;

use serde_json::{Value, json};
use tally_adapters::kafka::Member;
use tally_core::time::UnixMillis;

use super::seen::{Part, Problem, Seen};
use crate::desk::{Desk, Where};
use crate::said::{Answer, Table, or_dash, past, ranges};

#[derive(clap::Args, Clone, Debug)]
pub(crate) struct Args {
    #[command(flatten)]
    of: Where,
}

impl Args {
    pub(crate) async fn run(self) -> anyhow::Result<Answer> {
        let desk = Desk::open(self.of).await?;
        let seen = Seen::look(&desk, &desk.topic).await?;
        let (members, members_unknown) = match desk.consumers_of(&desk.topic)?.members().await {
            Ok(members) => (members, None),
            Err(fault) => (Vec::new(), Some(fault.to_string())),
        };
        let (mut text, problems) = (String::new(), seen.problems());
        for Problem { name, partitions, detail } in &problems {
            let _ = writeln!(text, "partition {}: {name}: {detail}", ranges(partitions.iter().copied()));
        }
        if seen.is_paused() {
            text.push_str("paused: tally resume consumer\n");
        }
        let generation = seen.topic.as_ref().map(|topic| topic.current().number);
        let read = generation.map_or("not read yet".to_owned(), |number| format!("generation {number}"));
        let _ = writeln!(text, "topic {}, id {}, {read}, group {}", seen.name, seen.id, desk.group);
        let (table, partitions) = lines(&seen, &members, desk.claims.time().latest);
        text.push_str(&table.to_string());
        let mut json = json!({
            "topic": seen.name, "id": seen.id.to_string(), "group": desk.group, "paused": seen.is_paused(),
            "problems": problems, "partitions": partitions,
        });
        if let Some(generation) = generation {
            json["generation"] = json!(generation);
        }
        if let Some(why) = members_unknown {
            let _ = write!(text, "\nit is not known who reads them: {why}");
            json["members_unknown"] = json!(why);
        }
        Ok(Answer::new(json, text).wrong_if(seen.is_paused() || !problems.is_empty()))
    }
}

/// Returns a line for each partition, for people and for programs.
fn lines(seen: &Seen, members: &[Member], now: UnixMillis) -> (Table, Vec<Value>) {
    let headings = ["partition", "claim", "committed", "safe", "complete up to", "log", "lag", "read by", "state"];
    let (mut table, mut all) = (Table::headed(headings), Vec::new());
    for part in &seen.parts {
        let (kept, index, claim) = (seen.kept(part), part.partition.index, part.claim.n);
        // Every record before `safe`, and every one acknowledged by `safe_at`, is in the rows or has a dead letter.
        let (safe, safe_at) = (kept.map(|kept| kept.safe.0), kept.and_then(|kept| kept.safe_at));
        let (committed, lag, state) = (part.committed.map(|offset| offset.0), seen.lag(part), state(seen, part));
        let (start, end) = (part.log.start.0, part.log.end.0);
        let holder = members.iter().find(|member| member.partitions.contains(&index));
        let held_by = holder.map(|member| format!("{} at {}", member.client, member.host));
        let age = or_dash(safe_at.map(|at| past(now, Some(at))));
        let (committed_text, safe_text, held) = (or_dash(committed), or_dash(safe), or_dash(held_by.as_ref()));
        let log = format!("{start}..{end}");
        table.row([&index, &claim, &committed_text, &safe_text, &age, &log, &lag, &held, &state]);
        all.push(json!({
            "partition": index, "claim": claim, "committed": committed, "safe": safe,
            "safe_at": safe_at.map(|at| at.0), "log_start": start, "log_end": end, "lag": lag, "held_by": held_by,
            "state": state,
        }));
    }
    (table, all)
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
