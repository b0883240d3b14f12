//! `tally rebuild counts`: counters that are lost, written anew from the rows while no row changes.
//!
//! The rows are the truth, and consumers are paused, so what a scan weighs is what every counter has to be. The stream was switched
//! off and on since, so that no change of a row is in the one that workers follow from now on; a floor in each counter says that
//! everything older is in it. A rebuild that dies has left a mark that keeps consumers paused, and is done again from the start.

mod pass;

use anyhow::{Context, bail, ensure};
use clap::Subcommand;
use tally_adapters::dynamodb::{Anew, Checkpoints, Rebuilding};
use tally_core::fault::Fault;
use tally_core::ids::{Ordinal, StreamLabel};
use tally_core::lineage::{HOLD, Loss};
use tally_core::ports::ChangeStream;

use self::pass::Pass;
use crate::change::Writing;
use crate::desk::{Desk, Where};
use crate::said::{Form, print};

#[derive(Clone, Debug, Subcommand)]
pub(crate) enum Verb {
    /// Writes every counter anew from its rows. Consumers are paused, and the stream is switched off and on after that
    ///
    /// Until an audit has gone through afterwards no count is exact. One that was killed keeps consumers paused; run it again. It
    /// takes that `checkpoints` is there: where that is lost, too, nothing starts.
    Counts(Box<Args>),
}

#[derive(clap::Args, Clone, Debug)]
pub(crate) struct Args {
    #[command(flatten)]
    writing: Writing,

    #[command(flatten)]
    of: Where,
}

impl Verb {
    pub(crate) async fn run(self, form: Form) -> anyhow::Result<u8> {
        let Self::Counts(args) = self;
        let Args { writing, of } = *args;
        let desk = Desk::open(of).await?;
        let checkpoints = Checkpoints::new(&desk.connection);
        all_paused(&desk).await?;
        let label = desk.stream.info().await.map_err(Fault::from).context("cannot look at the stream")?.label;
        let floor = floor(&checkpoints, &label).await?;
        pass::no_row_changed(&desk.stream, &label).await?;
        let plan = vec![format!("write every counter of {} anew from its rows, with the floor {floor}", desk.name())];
        let changed = writing.carry_out(&desk, "rebuild counts", plan, async || {
            let token = format!("{:016x}", desk.chance.token());
            let now = desk.clock.now();
            checkpoints.begin_rebuild(&Rebuilding { began: now, floor, token: token.clone() }).await?;
            desk.checkpoints.open_gap(&Loss::Unfollowed(label.clone()), now).await.context("cannot record the loss")?;
            // By then every process that serves counts has read the gap.
            desk.clock.sleep(HOLD).await;
            let pass = Pass { desk: &desk, anew: Anew { floor, version: now.0, at: now } };
            let done = pass.run().await?;
            all_paused(&desk).await.context("consumers were resumed meanwhile: counts are wrong until an audit")?;
            ensure!(checkpoints.end_rebuild(&token).await?, "another rebuild was begun meanwhile: it has to end");
            Ok(format!("{done}; resume consumers, start change-streamers, and audit: no count is exact until then"))
        });
        print(&changed.await?, form)
    }
}

/// No consumer of any topic writes.
async fn all_paused(desk: &Desk) -> anyhow::Result<()> {
    let defined = desk.checkpoints.definitions().await.context("cannot read the counters")?;
    let mut topics: Vec<&str> = defined.iter().filter_map(|definition| definition.topic.as_deref()).collect();
    topics.push(&desk.topic);
    for topic in topics {
        let fences = desk.likes.fences(topic).await.context("cannot read the fences")?;
        if let Some((partition, _)) = fences.iter().find(|(_, fence)| fence.topic.resumed().is_none()) {
            bail!("{partition} is not paused: tally pause consumer --topic {topic}");
        }
    }
    Ok(())
}

/// Every stream shard up to here is of a stream that was switched off.
async fn floor(checkpoints: &Checkpoints, label: &StreamLabel) -> anyhow::Result<Ordinal> {
    if let Some(registry) = checkpoints.begins_with(label).await.context("cannot read the registries")? {
        return Ok(registry.floor.unwrap_or(Ordinal(0)));
    }
    // Workers may have met the stream since a rebuild of it began: its floor is below their numbers.
    match checkpoints.rebuilding().await.context("cannot read the rebuild")? {
        Some(Rebuilding { floor, .. }) => Ok(floor),
        None => bail!(
            "a change-streamer follows the stream {label} already: stop change-streamers, then switch the stream off and on, so \
             that what is left of it is counted by none of them"
        ),
    }
}
