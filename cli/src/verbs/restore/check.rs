//! Whether tables that were restored fit each other and Kafka.

use anyhow::Context;
use tally_consumer::Standing;
use tally_core::fence::Offset;
use tally_core::ports::TopicReader;
use tally_core::time::UnixMillis;

use super::plan::BEFORE;
use crate::desk::{Desk, Where};
use crate::verbs::doctor::{Points, Verdict, kept, log};

/// Offsets before a fence that are looked at for the last event it has passed.
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
    pub(crate) async fn run(self) -> anyhow::Result<Points> {
        let desk = Desk::open(self.of).await?;
        let mut points = Points::default();
        points.add("tables", Verdict::Good, format!("{} have the right keys, stream and index", desk.name()));
        for table in desk.connection.examine().await {
            kept(&table, &mut points);
        }
        log(&desk, &mut points).await?;
        let reader = desk.reader(&desk.topic)?;
        for standing in desk.fences()?.standing().await? {
            fence(&reader, &standing, UnixMillis(self.to_time), &mut points).await?;
        }
        let losses = desk.changes.losses().await.context("cannot read the losses")?;
        if losses.open().next().is_none() {
            points.add(
                "exactness",
                Verdict::Bad,
                "no loss is open, so counts would be called exact: was a fence reset",
            );
        } else {
            points.add("exactness", Verdict::Good, "counts are inexact until an audit has gone through");
        }
        Ok(points)
    }
}

/// A fence has to begin with what was said just before the moment: rows have nothing that came later.
async fn fence(reader: &dyn TopicReader, of: &Standing, to: UnixMillis, points: &mut Points) -> anyhow::Result<()> {
    let (verdict, detail) = match (of.alarm(), of.lanes.iter().map(|fence| fence.offset).max()) {
        (Some(alarm), _) => (Verdict::Bad, format!("{}: {alarm}", alarm.name())),
        (None, None) => (Verdict::Bad, "it has no fence: a consumer would read it from its start".to_owned()),
        (None, Some(furthest)) => match passed(reader, of, furthest).await? {
            Some(at) if at >= to.minus(BEFORE) => {
                let detail = format!("the fence is at {furthest}, behind events that the rows may not have");
                (Verdict::Bad, format!("{detail}: fence reset --all --to-time {} --back", to.minus(BEFORE).0))
            }
            _ => (Verdict::Good, format!("{} events are read again", of.log.end.0.saturating_sub(furthest.0))),
        },
    };
    points.add(format!("{}", of.partition), verdict, detail);
    Ok(())
}

/// When the last event before `furthest` was said, of those that Kafka still has.
async fn passed(reader: &dyn TopicReader, of: &Standing, furthest: Offset) -> anyhow::Result<Option<UnixMillis>> {
    // Not each offset has a record.
    let from = Offset(furthest.0.saturating_sub(LOOKED_AT)).max(of.log.start);
    let read = reader.read(&of.partition, from, furthest).await.context("cannot read what the fence has passed")?;
    Ok(read.iter().last().map(|record| record.at))
}
