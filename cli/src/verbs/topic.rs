//! `tally topic`: shows how far the events of each partition have been written as rows (`show`). Consumers stop where
//! they may lose events or count wrongly; an operator has them go on with a topic that was replaced or has grown
//! (`adopt`), or at an offset of a partition (`skip`).

mod adopt;
mod seen;
mod skip;

use std::fmt::Write as _;
use std::time::Duration;

use clap::Subcommand;
use serde_json::{Value, json};
use tally_adapters::kafka::Member;
use tally_core::register::Kept;
use tally_core::time::UnixMillis;

pub(crate) use self::adopt::{Adoption, Sums};
use self::seen::Problem;
pub(crate) use self::seen::{Part, Seen};
use crate::desk::{Desk, Where};
use crate::ended::Usage;
use crate::said::{Answer, Table, add, ago, or_dash, past, ranges};
use crate::verbs::pause;

#[derive(Clone, Debug, Subcommand)]
pub(crate) enum Verb {
    /// Shows each partition: its claim, what its group has committed, up to where and when its rows are complete, its lag,
    /// and who reads it. Exits with 1 where anything is wrong, which it names first
    ///
    /// CLAIM rises at each takeover and pause, and every ten seconds while a partition stands still. A consumer
    /// begins at the smaller of COMMITTED and SAFE. Records below SAFE, and all that Kafka had at COMPLETE UP TO, are rows
    /// or dead letters. LAG counts records that have to be read, also those that are read again since the group was set
    /// back.
    Show(Box<Where>),
    /// Goes on with a topic that was created anew, has another number of partitions, or takes the place of another topic
    ///
    /// All of its events are of a new generation, which is above every earlier one, so that they replace what the rows have. A
    /// topic that has grown has to be drained: stop producers until nothing waits. A topic that was created anew is read from its
    /// start, and consumers have to be stopped, since Kafka sets the offsets of a group only while it has no members.
    Adopt(Box<adopt::Args>),
    /// Has a partition go on at an offset, and leaves out what lies before. From then on no count is exact until an audit has passed
    ///
    /// A recount that watches starts the audit by itself. Afterwards answers say exact without the events that were left
    /// out: if you have them elsewhere, `tally import` sends them.
    ///
    /// It is for a partition that stands still because records were deleted unread, because its group was set forward, or because
    /// its log has lost its tail. To have records read once more, set the group back with Kafka's own tools instead.
    Skip(Box<skip::Args>),
}

impl Verb {
    pub(crate) async fn run(self) -> anyhow::Result<Answer> {
        match self {
            Self::Show(of) => show(*of).await,
            Self::Adopt(args) => args.run().await,
            Self::Skip(args) => args.run().await,
        }
    }
}

/// Says what is wrong, and shows a line for each partition with its claim, offsets, lag, reader and state.
async fn show(of: Where) -> anyhow::Result<Answer> {
    let desk = Desk::open(of).await?;
    if desk.topic == desk.changes_topic {
        return Err(Usage(format!("`{}` is the log of changes: see tally status", desk.topic)).into());
    }
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
        if let Some(still) = pause::still(&desk).await? {
            let _ = writeln!(text, "{still}");
        }
    }
    let generation = seen.topic.as_ref().map(|topic| topic.current().number);
    let read = generation.map_or("not read yet".to_owned(), |number| format!("generation {number}"));
    let _ = writeln!(text, "topic {}, id {}, {read}, group {}", seen.name, seen.id, desk.group);
    let (table, partitions) = lines(&seen, members_unknown.is_none().then_some(&members), desk.claims.time().latest);
    text.push_str(&table.to_string());
    let mut json = json!({
        "topic": seen.name, "id": seen.id.to_string(), "group": desk.group, "paused": seen.is_paused(),
        "problems": problems, "partitions": partitions,
    });
    add(&mut json, "generation", generation);
    if let Some(why) = members_unknown {
        let _ = write!(text, "\nit is not known who reads them: {why}");
        json["members_unknown"] = json!(why);
    }
    Ok(Answer::new(json, text).wrong_if(seen.is_paused() || !problems.is_empty()))
}

/// The state of a partition that consumers read.
const READS: &str = "reads";

/// How long a consumer that reads a partition stores nothing about it at most.
const SILENT: Duration = Duration::from_secs(5);

/// Returns a line for each partition, for people and for programs. `members` is `None` if they are unknown.
fn lines(seen: &Seen, members: Option<&Vec<Member>>, now: UnixMillis) -> (Table, Vec<Value>) {
    let headings = ["partition", "claim", "committed", "safe", "complete up to", "log", "lag", "read by", "state"];
    let (mut table, mut all) = (Table::headed(headings), Vec::new());
    for part in &seen.parts {
        let (kept, index, claim) = (seen.kept(part), part.partition.index, part.claim.n);
        // Every record before `safe`, and every one acknowledged by `safe_at`, is in the rows or has a dead letter.
        let (safe, safe_at) = (kept.map(|kept| kept.safe.0), kept.and_then(|kept| kept.safe_at));
        let (committed, lag, state) = (part.committed.map(|offset| offset.0), seen.unread(part), state(seen, part));
        let (start, end) = (part.log.start.0, part.log.end.0);
        let holder = members.into_iter().flatten().find(|member| member.partitions.contains(&index));
        let held_by = holder.map(|member| format!("{} at {}", member.client, member.host));
        // A consumer stores once a second how far it has come.
        let silent = kept.map(|kept| now.since(kept.at)).filter(|silent| *silent > SILENT);
        let state = match silent {
            _ if state != READS => state,
            _ if members.is_some() && holder.is_none() => "no reader".to_owned(),
            Some(silent) => format!("not read for {}", ago(silent)),
            None => state,
        };
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
        (_, Some(Kept { replay: Some(until), .. })) => format!("replays up to {until}"),
        (_, Some(_)) if seen.is_paused() => "paused".to_owned(),
        (_, Some(_)) => READS.to_owned(),
        (_, None) => "not read yet".to_owned(),
    }
}
