//! `tally user erase` and `tally post erase`: what takes members out is produced, so that rows, counts and followers agree.

use std::sync::Arc;

use anyhow::Context;
use clap::Subcommand;
use tally_adapters::kafka;
use tally_batch_recount::{EraseConfig, ErasePorts, Erased, Subject, erase};
use tally_core::ids::UserId;
use tally_core::time::UnixMillis;

use crate::change::Writing;
use crate::desk::{Desk, Where};
use crate::health::FOUND_SOMETHING;
use crate::said::{Form, print};

/// `tally user`.
#[derive(Clone, Debug, Subcommand)]
pub(crate) enum UserVerb {
    /// Takes a user out of every set that has users as members, likes and retweets among them: reads the whole table
    ///
    /// Exits with 1 where members are left that no action takes out. Backups, the topic's retention, dead letters and logs keep
    /// what they have for their time.
    Erase {
        /// The user
        #[arg(value_name = "ID")]
        id: UserId,

        #[command(flatten)]
        what: Box<What>,
    },
}

#[derive(clap::Args, Clone, Debug)]
pub(crate) struct What {
    /// Erase from this set alone, by its name; may be given more than once
    #[arg(long, value_name = "NAME")]
    counter: Vec<String>,

    /// Read units a second at most
    #[arg(long, value_name = "UNITS", value_parser = clap::value_parser!(u32).range(1..))]
    read_units_per_second: Option<u32>,

    #[command(flatten)]
    writing: Writing,

    #[command(flatten)]
    of: Where,
}

impl UserVerb {
    pub(crate) async fn run(self, form: Form) -> anyhow::Result<u8> {
        let Self::Erase { id, what } = self;
        what.erase(Subject::User(id), "user erase", form).await
    }
}

impl What {
    pub(crate) async fn erase(self, subject: Subject, command: &'static str, form: Form) -> anyhow::Result<u8> {
        let Self { counter, read_units_per_second, writing, of } = self;
        let desk = Desk::open(of).await?;
        let kafka = desk.kafka()?.clone();
        let config =
            EraseConfig { subject, counters: counter, topic: desk.topic.clone(), read_units: read_units_per_second };
        let would = run(&desk, &config, None).await?;
        let changed = writing.carry_out(&desk, command, planned(&would, &config, desk.clock.now()), async || {
            let producer = kafka::Producer::new(&kafka).context("cannot set up a producer")?;
            let erased = run(&desk, &config, Some(producer)).await?;
            Ok(format!("{} events produced: the consumers take the rows away", erased.produced))
        });
        let code = print(&changed.await?, form)?;
        Ok(if would.left.is_empty() { code } else { FOUND_SOMETHING })
    }
}

async fn run(desk: &Desk, config: &EraseConfig, producer: Option<kafka::Producer>) -> anyhow::Result<Erased> {
    let producer = producer.map(|producer| Arc::new(producer) as _);
    let ports = ErasePorts { tables: desk.connection.clone(), producer };
    erase(ports, desk.shards, config, desk.host().patience(), desk.stop.clone()).await
}

fn planned(would: &Erased, config: &EraseConfig, now: UnixMillis) -> Vec<String> {
    let of = match &config.subject {
        Subject::User(user) => format!("the user {user}"),
        Subject::Post(post) => format!("the post {post}"),
    };
    let mut plan = Vec::new();
    if would.found > 0 {
        plan.push(format!("take {} members out of the sets of {of}, by events to `{}`", would.found, config.topic));
    }
    let left = would.left.iter();
    plan.extend(
        left.map(|(counter, members)| format!("leave {members} members of {counter}: no action takes one out")),
    );
    plan.extend(would.tombstones.stay(now));
    plan
}
