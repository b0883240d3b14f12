//! `tally pause consumer` and `tally resume consumer`: consumers stand still, and nothing that they sent before lands any more.

use std::time::Duration;

use anyhow::{Context, ensure};
use clap::ValueEnum;
use tally_adapters::dynamodb::Operation;
use tally_core::register::Topic;
use tally_service::parse_duration;

use crate::change::{Changed, Writing};
use crate::desk::{Desk, Where};
use crate::health::say;
use crate::said::ago;

/// How often a wait says how long it will be.
const SHOWN: Duration = Duration::from_secs(30);
/// Lines of the ledger among which the last pause is looked for.
const LINES: u32 = 500;
/// What a pause, and the changes that need one, are called in the ledger.
const PAUSE: &str = "pause consumer";
const RESUME: &str = "resume consumer";
pub(super) const ADOPT: &str = "topic adopt";
pub(super) const SKIP: &str = "topic skip";

#[derive(clap::Args, Clone, Debug)]
pub(crate) struct Args {
    /// What
    what: What,

    #[command(flatten)]
    writing: Writing,

    #[command(flatten)]
    of: Where,
}

#[derive(clap::Args, Clone, Debug)]
pub(crate) struct PauseArgs {
    #[command(flatten)]
    settle: Settle,

    #[command(flatten)]
    args: Args,
}

/// What can be paused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum What {
    /// The consumers of the topic, in every partition
    Consumer,
}

/// The wait until nothing of before arrives.
#[derive(clap::Args, Clone, Copy, Debug)]
pub(crate) struct Settle {
    /// How long this waits after it has raised the claims. A consumer signs for a minute after its claim was confirmed, and the
    /// store takes a signature for five. Less is right only where no consumer has run for so long
    #[arg(long, default_value = "6m", value_parser = parse_duration, value_name = "SPAN")]
    settle: Duration,
}

impl Settle {
    /// Waits, and says from time to time for how long.
    pub(crate) async fn wait(self, desk: &Desk) {
        let mut left = self.settle;
        while !left.is_zero() {
            say(&format!("waiting for {} more: what consumers have signed before is accepted until then", ago(left)));
            let step = left.min(SHOWN);
            desk.clock.sleep(step).await;
            left -= step;
        }
    }
}

impl PauseArgs {
    pub(crate) async fn run(self) -> anyhow::Result<Changed> {
        let Self { settle, args: Args { what: What::Consumer, writing, of } } = self;
        let desk = Desk::open(of).await?;
        let topic = known(&desk).await?;
        let partitions = topic.current().partitions();
        let plan = match is_paused(&desk, &desk.topic).await? {
            true => Vec::new(),
            false => vec![format!(
                "{}its {partitions} partitions stand still within a second, and this waits {} until nothing of before lands",
                line_of(&desk.topic),
                ago(settle.settle)
            )],
        };
        let changed = writing.carry_out(&desk, PAUSE, plan, async || {
            stand_still(&desk, &topic, settle).await?;
            Ok(format!("{partitions} partitions paused: no row changes until tally resume consumer"))
        });
        changed.await
    }
}

impl Args {
    /// Lets consumers go on.
    pub(crate) async fn resume(self) -> anyhow::Result<Changed> {
        let Self { what: What::Consumer, writing, of } = self;
        let desk = Desk::open(of).await?;
        let topic = known(&desk).await?;
        let partitions = topic.current().partitions();
        let plan = topic.is_paused.then(|| format!("resume {}: its {partitions} partitions", desk.topic));
        let changed = writing.carry_out(&desk, RESUME, plan.into_iter().collect(), async || {
            replace(&desk, &topic, &Topic { is_paused: false, ..topic.clone() }).await?;
            Ok(format!("{partitions} partitions resumed: consumers go on within 10 s"))
        });
        changed.await
    }
}

/// What the ledger's lines about pauses of `topic` begin with.
fn line_of(topic: &str) -> String {
    format!("pause {topic}: ")
}

async fn known(desk: &Desk) -> anyhow::Result<Topic> {
    let topic = desk.claims.topic(&desk.topic).await.context("cannot read what is known of the topic")?;
    topic.with_context(|| format!("no consumer has read `{}` yet", desk.topic))
}

/// Whether consumers of `topic` stand still and nothing of theirs can land any more: the ledger says that this was waited for.
pub(super) async fn is_paused(desk: &Desk, topic: &str) -> anyhow::Result<bool> {
    let stored = desk.claims.topic(topic).await.context("cannot read what is known of the topic")?;
    if !stored.is_some_and(|topic| topic.is_paused) {
        return Ok(false);
    }
    let lines = desk.recounts.operations(LINES).await.context("cannot read the ledger")?;
    // An adoption that failed half-way may have raised the flag as well.
    let decides = |line: &&Operation| match line.command.as_str() {
        PAUSE => line.plan.starts_with(&line_of(topic)),
        command => [RESUME, ADOPT, SKIP].contains(&command),
    };
    let last = lines.iter().find(decides).filter(|line| line.command == PAUSE);
    Ok(last.and_then(|line| line.ended.as_deref()).is_some_and(|ended| !ended.starts_with("failed")))
}

/// Pauses the topic and returns once nothing lands any more that a consumer has sent before; the topic as it stands then. Safe to
/// repeat: claims are raised once more, and it is waited for again.
async fn stand_still(desk: &Desk, topic: &Topic, settle: Settle) -> anyhow::Result<Topic> {
    // The flag first: a claim that is raised behind it finds it.
    let paused = Topic { is_paused: true, ..topic.clone() };
    replace(desk, topic, &paused).await?;
    let raised = desk.claims.raise_all(&desk.topic, topic.current().partitions()).await;
    raised.context("cannot raise the claims")?;
    settle.wait(desk).await;
    Ok(paused)
}

/// Carries out `change` of the topic while consumers stand still; as it fails, they go on as before.
pub(super) async fn while_paused(
    desk: &Desk,
    topic: &Topic,
    settle: Settle,
    change: impl AsyncFnOnce(&Topic) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let paused = stand_still(desk, topic, settle).await?;
    let Err(error) = change(&paused).await else { return Ok(()) };
    let back = replace(desk, &paused, topic).await;
    Err(back.err().map_or(error, |back| back.context("consumers stay paused: tally resume consumer")))
}

/// Puts `to` in the place of what is known of the topic.
pub(super) async fn replace(desk: &Desk, seen: &Topic, to: &Topic) -> anyhow::Result<()> {
    let replaced = desk.claims.replace_topic(&desk.topic, seen, to).await;
    let replaced = replaced.context("cannot store what is known of the topic")?;
    ensure!(replaced, "what is known of `{}` was changed by another meanwhile: look again", desk.topic);
    Ok(())
}
