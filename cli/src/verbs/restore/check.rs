//! `tally restore check`: checks, before any service is started over restored tables, that they fit each other and
//! Kafka. It also checks that consumers will read again everything that the rows may lack.

use anyhow::Context;
use tally_core::ports::TopicReader;
use tally_core::register::Start;
use tally_core::time::UnixMillis;
use tally_core::topic::Offset;

use super::plan::{BEFORE, set_back};
use crate::desk::{Desk, Where};
use crate::said::Answer;
use crate::verbs::doctor::{Points, Verdict, kept, log};
use crate::verbs::topic::{Part, Seen};

/// How many offsets before the start of reading are searched for the last event before it.
const LOOKED_AT: u64 = 100;

#[derive(clap::Args, Clone, Debug)]
pub(crate) struct Args {
    /// The moment that rows and counts were restored to, in milliseconds since 1970
    #[arg(long, value_name = "MILLIS")]
    to_time: u64,

    #[command(flatten)]
    of: Where,
}

impl Args {
    pub(crate) async fn run(self) -> anyhow::Result<Answer> {
        let desk = Desk::open(self.of).await?;
        let mut points = Points::default();
        points.add("tables", Verdict::Good, format!("{} have the right keys, stream and index", desk.name()));
        for table in desk.connection.examine().await {
            kept(&table, &mut points);
        }
        log(&desk, &mut points).await?;
        let reader = desk.reader(&desk.topic)?;
        let seen = Seen::look(&desk, &desk.topic).await?;
        if seen.topic.is_none() {
            points.add(seen.name.as_str(), Verdict::Bad, "nothing is known of it: tally topic adopt");
        }
        for part in &seen.parts {
            start(&desk, &reader, part, UnixMillis(self.to_time), &mut points).await?;
        }
        let losses = desk.changes.losses().await.context("cannot read the losses")?;
        if losses.open().next().is_none() {
            points.add(
                "exactness",
                Verdict::Bad,
                "no loss is open, so counts would be called exact: were the tables adopted",
            );
        } else {
            points.add("exactness", Verdict::Good, "counts are inexact until an audit has gone through");
        }
        Ok(points.into())
    }
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
