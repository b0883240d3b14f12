//! `tally rebuild counts`: counters that are lost, written anew from the rows while no row changes.
//!
//! The rows are the truth, and consumers are paused, so what a scan weighs is what every counter has to be. The stream was switched
//! off and on since, so that no change of a row is in the one that workers follow from now on; a floor in each counter says that
//! everything older is in it. A rebuild that dies has left a mark that keeps consumers paused, and is done again from the start.
//! Where the checkpoints are lost as well, nothing starts, and they are written anew first, the configuration last.

mod lost;
mod pass;

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use clap::Subcommand;
use tally_adapters::dynamodb::{Anew, Checkpoints, Numbers, Rebuilding};
use tally_consumer::SumsAnew;
use tally_core::fault::Fault;
use tally_core::ids::{Ordinal, StreamLabel};
use tally_core::lineage::{HOLD, Loss};
use tally_core::ports::{ChangeStream, Registry, StreamRegistry};
use tally_service::parse_duration;

use self::lost::Lost;
use self::pass::Pass;
use crate::change::{Changed, Writing};
use crate::desk::{Desk, Where};
use crate::said::{Form, print};

#[derive(Clone, Debug, Subcommand)]
pub(crate) enum Verb {
    /// Writes every counter anew from its rows. Consumers are paused, and the stream is switched off and on after that
    ///
    /// Until an audit has gone through afterwards no count is exact. One that was killed keeps consumers paused; run it again.
    /// Where `checkpoints` is lost, too: stop everything, switch the stream off and on, and say --config and --brokers. What is
    /// there is written anew then: fences, with Kafka read again from its start, and last of all the configuration, before which
    /// nothing starts.
    Counts(Box<Args>),
}

#[derive(clap::Args, Clone, Debug)]
pub(crate) struct Args {
    /// Where `checkpoints` is lost: what the deployment was, as `tally counters export` has said it
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,

    /// How long this waits for requests to land that were under way when everything was stopped
    #[arg(long, default_value = "6m", value_parser = parse_duration, value_name = "SPAN")]
    settle: Duration,

    /// Where `checkpoints` is lost and the topic was made anew: whether what adds to sums and is in the log by now is left out or
    /// counted
    #[arg(long, value_name = "WHAT", requires = "config")]
    sums: Option<SumsAnew>,

    #[command(flatten)]
    writing: Writing,

    #[command(flatten)]
    of: Where,
}

impl Verb {
    pub(crate) async fn run(self, form: Form) -> anyhow::Result<u8> {
        let Self::Counts(args) = self;
        let Args { config, settle, sums, writing, of } = *args;
        let changed = match config {
            None => paused(&writing, &Desk::open(of).await?).await?,
            Some(file) => {
                let config = lost::read(&file)?;
                let desk = Desk::open_lost(of, config.shards).await?;
                without_checkpoints(&writing, &desk, Lost { desk: &desk, config, sums }, settle).await?
            }
        };
        print(&changed, form)
    }
}

/// The rebuild while consumers are paused.
async fn paused(writing: &Writing, desk: &Desk) -> anyhow::Result<Changed> {
    all_paused(desk).await?;
    let counts = Rebuild::of(desk).await?;
    let changed = writing.carry_out(desk, "rebuild counts", vec![counts.plan()], async || {
        let done = counts.carry_out().await?;
        all_paused(desk).await.context("consumers were resumed meanwhile: counts are wrong until an audit")?;
        counts.end().await?;
        Ok(format!("{done}; resume consumers, start change-streamers, and audit: no count is exact until then"))
    });
    changed.await
}

/// The rebuild while nothing can start.
async fn without_checkpoints(
    writing: &Writing,
    desk: &Desk,
    lost: Lost<'_>,
    settle: Duration,
) -> anyhow::Result<Changed> {
    let counts = Rebuild::of(desk).await?;
    // Looked for before anything is written, and again behind the wait.
    lost.found().await?;
    let plan = vec![counts.plan(), lost.plan()];
    let changed = writing.carry_out(desk, "rebuild counts", plan, async || {
        desk.clock.sleep(settle).await;
        let counts = Rebuild::of(desk).await?;
        let found = lost.found().await?;
        let done = counts.carry_out().await?;
        lost.write_fences(&found).await?;
        // The configuration is last: nothing starts before.
        counts.end().await?;
        lost.write_config(&found).await?;
        Ok(format!("{done}; {found}; start everything, and audit"))
    });
    changed.await
}

/// Every counter of a deployment, to be written anew.
struct Rebuild<'a> {
    desk: &'a Desk,
    checkpoints: Checkpoints,
    label: StreamLabel,
    /// With what the stream's numbers go on.
    begins: Registry,
    token: String,
}

impl<'a> Rebuild<'a> {
    /// # Errors
    /// The stream has changes of rows, or a worker has begun with it.
    async fn of(desk: &'a Desk) -> anyhow::Result<Self> {
        let checkpoints = Checkpoints::new(&desk.connection);
        let label = desk.stream.info().await.map_err(Fault::from).context("cannot look at the stream")?.label;
        let begins = begins(desk, &checkpoints, &label).await?;
        pass::no_row_changed(&desk.stream, &label).await?;
        let token = format!("{:016x}", desk.chance.token());
        Ok(Self { desk, checkpoints, label, begins, token })
    }

    /// Every stream shard up to here is of a stream that was switched off.
    fn floor(&self) -> Ordinal {
        self.begins.floor.unwrap_or(Ordinal(0))
    }

    fn plan(&self) -> String {
        format!("write every counter of {} anew from its rows, with the floor {}", self.desk.name(), self.floor())
    }

    async fn carry_out(&self) -> anyhow::Result<pass::Done> {
        let Self { desk, checkpoints, label, begins, token } = self;
        let (now, floor) = (desk.clock.now(), self.floor());
        checkpoints.begin_rebuild(&Rebuilding { began: now, floor, token: token.clone() }).await?;
        // Without it a streamer would find counters that know more numbers than were given.
        checkpoints.put_registry(label, begins).await.context("cannot write where numbers go on")?;
        let stands = checkpoints.registry(label).await.context("cannot read the registry")?;
        let is_ours = stands.is_some_and(|registry| registry.next > floor);
        ensure!(
            is_ours,
            "a change-streamer has begun with the stream meanwhile: stop change-streamers, and run it again"
        );
        desk.checkpoints.open_gap(&Loss::Unfollowed(label.clone()), now).await.context("cannot record the loss")?;
        // By then every process that serves counts has read the gap.
        desk.clock.sleep(HOLD).await;
        Pass { desk, anew: Anew { floor, version: now.0, at: now } }.run().await
    }

    /// Takes the mark away.
    async fn end(&self) -> anyhow::Result<()> {
        let ended = self.checkpoints.end_rebuild(&self.token).await?;
        ensure!(ended, "another rebuild was begun meanwhile: it has to end");
        Ok(())
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

/// Where the numbers of the stream's shards go on: above all that were given, and above all that a counter knows.
async fn begins(desk: &Desk, checkpoints: &Checkpoints, label: &StreamLabel) -> anyhow::Result<Registry> {
    let rebuilding = checkpoints.rebuilding().await.context("cannot read the rebuild")?;
    match (checkpoints.begins_with(label).await.context("cannot read the registries")?, rebuilding) {
        (Some(after_given), _) => {
            let numbers = Numbers::read(&desk.connection, true).await.context("cannot read counters")?;
            let known = numbers.greatest.map(|greatest| Registry::after(Some(Ordinal(greatest.0 + 1))));
            Ok(known.filter(|known| known.next > after_given.next).unwrap_or(after_given))
        }
        // Workers may have met the stream since a rebuild of it began: its floor is below their numbers.
        (None, Some(Rebuilding { floor, .. })) => {
            Ok(Registry { next: Ordinal(floor.0 + 1), floor: Some(floor).filter(|floor| floor.0 > 0) })
        }
        (None, None) => bail!(
            "a change-streamer follows the stream {label} already: stop change-streamers, then switch the stream off and on, so \
             that what is left of it is counted by none of them"
        ),
    }
}
