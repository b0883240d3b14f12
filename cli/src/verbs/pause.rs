//! `tally pause consumer` and `tally resume consumer`.

use clap::ValueEnum;
use tally_consumer::Going;

use crate::change::{Changed, Writing};
use crate::desk::{Desk, Where};

#[derive(clap::Args, Clone, Debug)]
pub(crate) struct Args {
    /// What
    what: What,

    #[command(flatten)]
    writing: Writing,

    #[command(flatten)]
    of: Where,
}

/// What can be paused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum What {
    /// The consumers of the topic, in every partition
    Consumer,
}

impl Args {
    pub(crate) async fn run(self, going: Going) -> anyhow::Result<Changed> {
        let Self { what: What::Consumer, writing, of } = self;
        let desk = Desk::open(of).await?;
        let fences = desk.fences()?;
        let partitions = fences.to_switch(going).await?;
        let (command, verb, done) = match going {
            Going::Paused => ("pause consumer", "pause", "paused"),
            Going::Resumed => ("resume consumer", "resume", "resumed: consumers go on within 30 s"),
        };
        let plan = partitions.iter().map(|partition| format!("{verb} {partition}")).collect();
        let changed = writing.carry_out(&desk, command, plan, async || {
            for partition in &partitions {
                fences.switch(partition, going).await?;
            }
            Ok(format!("{} partitions {done}", partitions.len()))
        });
        changed.await
    }
}
