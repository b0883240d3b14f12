//! `tally fence`: how far each Kafka partition is written, and moving it by hand.

use std::time::Duration;

use anyhow::Context;
use clap::Subcommand;
use serde::Serialize;
use tally_consumer::{MoveArgs, Standing};

use crate::change::Writing;
use crate::desk::{Desk, Where};
use crate::said::{Answer, Form, Table, print};

/// How long a loss may take until every standing has it, and how often that is looked at, in milliseconds.
const ANNOUNCED: u64 = 5_000;
const POLL: u64 = 200;

#[derive(Clone, Debug, Subcommand)]
pub(crate) enum Verb {
    /// Lists each partition's fence and log, and what a consumer would do. Exits with 1 where one is halted
    List(Box<List>),
    /// Moves fences. From then on every count is served as inexact until an audit has finished
    Reset(Box<ResetArgs>),
}

#[derive(clap::Args, Clone, Debug)]
pub(crate) struct List {
    #[command(flatten)]
    of: Where,
}

#[derive(clap::Args, Clone, Debug)]
pub(crate) struct ResetArgs {
    #[command(flatten)]
    to: MoveArgs,

    #[command(flatten)]
    writing: Writing,

    #[command(flatten)]
    of: Where,
}

/// One lane of a partition.
#[derive(Debug, Serialize)]
struct Lane {
    partition: u32,
    lane: usize,
    offset: Option<u64>,
    cfg: Option<u64>,
    log_start: u64,
    log_end: u64,
    topic_id: String,
    state: String,
}

#[derive(Debug, Serialize)]
struct Lanes {
    lanes: Vec<Lane>,
    halted: usize,
}

impl Answer for Lanes {
    fn table(&self) -> String {
        let mut table =
            Table::headed(["partition", "lane", "fence", "cfg", "log start", "log end", "topic id", "state"]);
        let or = |number: Option<u64>| number.map_or("-".to_owned(), |number| number.to_string());
        for Lane { partition, lane, offset, cfg, log_start, log_end, topic_id, state } in &self.lanes {
            table.row([partition, lane, &or(*offset), &or(*cfg), log_start, log_end, topic_id, state]);
        }
        table.to_string()
    }

    fn found(&self) -> bool {
        self.halted > 0
    }
}

fn lanes_of(of: &Standing) -> Vec<Lane> {
    let alarm = of.alarm().map(|alarm| format!("{}: {alarm}", alarm.name()));
    let lane = |lane, offset: Option<u64>, cfg, state| Lane {
        partition: of.partition.index,
        lane,
        offset,
        cfg,
        log_start: of.log.start.0,
        log_end: of.log.end.0,
        topic_id: of.log.topic.to_string(),
        state,
    };
    if of.lanes.is_empty() {
        return vec![lane(0, None, None, "not read yet".to_owned())];
    }
    let state =
        |offset: u64| alarm.clone().unwrap_or_else(|| format!("{} behind", of.log.end.0.saturating_sub(offset)));
    let each = of
        .lanes
        .iter()
        .map(|fence| lane(fence.lane.index(), Some(fence.offset.0), Some(fence.cfg), state(fence.offset.0)));
    each.collect()
}

impl Verb {
    pub(crate) async fn run(self, form: Form) -> anyhow::Result<u8> {
        match self {
            Self::List(list) => {
                let standing = Desk::open(list.of).await?.fences()?.standing().await?;
                let halted = standing.iter().filter(|partition| partition.alarm().is_some()).count();
                let lanes = standing.iter().flat_map(lanes_of).collect();
                print(&Lanes { lanes, halted }, form)
            }
            Self::Reset(args) => args.run(form).await,
        }
    }
}

impl ResetArgs {
    async fn run(self, form: Form) -> anyhow::Result<u8> {
        let Self { to, writing, of } = self;
        let desk = Desk::open(of).await?;
        let fences = desk.fences()?;
        let moves = fences.plan(&to.reset(!writing.yes)).await?;
        let plan = moves.iter().map(ToString::to_string).collect();
        let changed = writing.carry_out(&desk, "fence reset", plan, async || {
            let moved: Vec<String> = moves.iter().map(|planned| planned.partition.to_string()).collect();
            announce_loss(&desk, &format!("the fence of {} was moved by hand", moved.join(", "))).await?;
            for planned in &moves {
                fences.carry_out(planned).await?;
            }
            Ok(format!("{} partitions moved; counts are inexact until an audit has gone through", moves.len()))
        });
        print(&changed.await?, form)
    }
}

/// Opens a loss, and waits until every standing says so, so that no count is called exact behind it. Where standings do not
/// move, what they say is of a time before the loss.
async fn announce_loss(desk: &Desk, what: &str) -> anyhow::Result<()> {
    let opened = desk.changes.open_new_loss(desk.clock.now(), "fence_reset", what).await;
    let number = opened.context("cannot record the loss")?;
    let Some(config) = desk.changes.config().await.context("cannot read the configuration of the log")? else {
        return Ok(());
    };
    for _ in 0..ANNOUNCED / POLL {
        let standings = desk.changes.standings(config.partitions).await.context("cannot read the standings")?;
        if standings.values().all(|stored| stored.standing.open.contains(&number)) {
            break;
        }
        desk.clock.sleep(Duration::from_millis(POLL)).await;
    }
    Ok(())
}
