//! `tally pause consumer` and `tally resume consumer`. A paused consumer writes no rows, and no request that it had
//! sent before can take effect any more. `tally topic` changes topics under such a pause (`while_paused`).

use std::time::Duration;

use anyhow::{Context, ensure};
use clap::ValueEnum;
use tally_adapters::dynamodb::Operation;
use tally_core::register::Topic;
use tally_core::time::UnixMillis;
use tally_service::parse_duration;

use crate::change::Changing;
use crate::desk::Desk;
use crate::health::say;
use crate::said::{Answer, ago};

/// How often the time that is left to wait is printed.
const SHOWN: Duration = Duration::from_secs(60);
/// How many lines of the ledger are searched for the last pause.
const LINES: u32 = 500;
/// The commands of the ledger's lines about pauses, and about changes that pause consumers themselves.
const PAUSE: &str = "pause consumer";
const RESUME: &str = "resume consumer";
pub(super) const ADOPT: &str = "topic adopt";
pub(super) const SKIP: &str = "topic skip";

#[derive(clap::Args, Clone, Debug)]
pub(crate) struct Args {
    /// What to pause or to resume
    what: What,

    #[command(flatten)]
    change: Changing,
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

/// The wait until requests that were signed before can take no effect any more.
#[derive(clap::Args, Clone, Copy, Debug)]
pub(crate) struct Settle {
    /// How long this waits after it has raised the claims. A consumer may sign a request until a minute after it last
    /// confirmed its claim, and DynamoDB takes it for five minutes more. Less is right only if no consumer has run for
    /// six minutes
    #[arg(long, default_value = "6m", value_parser = parse_duration, value_name = "SPAN")]
    settle: Duration,
}

impl Settle {
    /// Says in a plan how long this waits.
    pub(crate) fn line(self) -> String {
        format!("wait {}, so that no write sent before can still land", ago(self.settle))
    }

    /// Waits, and says now and then how long it will take.
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
    pub(crate) async fn run(self) -> anyhow::Result<Answer> {
        let Self { settle, args: Args { what: What::Consumer, change: Changing { writing, of } } } = self;
        let desk = Desk::open(of).await?;
        desk.counted_topic().await?;
        let topic = known(&desk).await?;
        let partitions = topic.current().partitions();
        let plan = match pause_of(&desk, &desk.topic).await? {
            Some(_) => Vec::new(),
            None => vec![format!(
                "{}its {partitions} partitions stand still within a second, and this waits {} until nothing of before lands",
                line_of(&desk.topic),
                ago(settle.settle)
            )],
        };
        let changed = writing.carry_out(&desk, PAUSE, plan, async || {
            stand_still(&desk, &topic, settle).await?;
            Ok(format!("{partitions} partitions paused: no row changes until tally resume consumer"))
        });
        Ok(changed.await?.into())
    }
}

impl Args {
    /// Has consumers go on.
    pub(crate) async fn resume(self) -> anyhow::Result<Answer> {
        let Self { what: What::Consumer, change: Changing { writing, of } } = self;
        let desk = Desk::open(of).await?;
        let topic = known(&desk).await?;
        let partitions = topic.current().partitions();
        let plan = topic.is_paused.then(|| format!("resume {}: its {partitions} partitions", desk.topic));
        let changed = writing.carry_out(&desk, RESUME, plan.into_iter().collect(), async || {
            replace(&desk, &topic, &Topic { is_paused: false, ..topic.clone() }).await?;
            Ok(format!("{partitions} partitions resumed: consumers go on within 10 s"))
        });
        Ok(changed.await?.into())
    }
}

/// Returns how the plan begins in the ledger's lines about pauses of `topic`.
fn line_of(topic: &str) -> String {
    format!("pause {topic}: ")
}

async fn known(desk: &Desk) -> anyhow::Result<Topic> {
    let topic = desk.claims.topic(&desk.topic).await.context("cannot read what is known of the topic")?;
    topic.with_context(|| format!("no consumer has read `{}` yet", desk.topic))
}

/// What identifies a line of the ledger: when its command began, and its token.
pub(super) type PauseId = (UnixMillis, u64);

/// Returns the pause of `topic`, if its consumers are paused and none of their requests can take effect any more: the
/// ledger says that this pause has waited for it.
pub(super) async fn pause_of(desk: &Desk, topic: &str) -> anyhow::Result<Option<PauseId>> {
    let stored = desk.claims.topic(topic).await.context("cannot read what is known of the topic")?;
    if !stored.is_some_and(|topic| topic.is_paused) {
        return Ok(None);
    }
    let lines = desk.recounts.operations(LINES).await.context("cannot read the ledger")?;
    // The flag alone does not tell: an adoption or a skip that failed half-way may have left it.
    let decides = |line: &&Operation| match line.command.as_str() {
        PAUSE => line.plan.starts_with(&line_of(topic)),
        command => [RESUME, ADOPT, SKIP].contains(&command),
    };
    let last = lines.iter().find(decides).filter(|line| line.command == PAUSE);
    let has_waited = |line: &&Operation| line.ended.as_ref().is_some_and(|ended| !ended.starts_with("failed"));
    Ok(last.filter(has_waited).map(|line| (line.at, line.token)))
}

/// Says of a topic whose consumers are paused what may still happen, if anything may.
pub(super) async fn still(desk: &Desk) -> anyhow::Result<Option<&'static str>> {
    let settled = pause_of(desk, &desk.topic).await?.is_some();
    Ok((!settled).then_some(
        "rows may still change until the command that pauses them has ended: tally ledger shows whether it has",
    ))
}

/// Pauses the topic, and waits until no request that a consumer has sent before can take effect. Returns the topic as
/// it is stored then. Safe to repeat: it raises the claims once more and waits again.
///
/// # Errors
///
/// An operator resumed the consumers during the wait, so consumers may have signed new requests. Another pause does not
/// undo that.
async fn stand_still(desk: &Desk, topic: &Topic, settle: Settle) -> anyhow::Result<Topic> {
    let resumed = last_resume(desk).await?;
    // The flag first, so that a consumer that takes a partition over afterwards finds it.
    let paused = Topic { is_paused: true, ..topic.clone() };
    replace(desk, topic, &paused).await?;
    let raised = desk.claims.raise_all(&desk.topic, topic.current().partitions()).await;
    raised.context("cannot raise the claims")?;
    settle.wait(desk).await;
    let is_undisturbed = known(desk).await? == paused && last_resume(desk).await? == resumed;
    ensure!(is_undisturbed, "not paused: consumers were resumed during the wait (tally ledger): run this again");
    Ok(paused)
}

/// Returns what identifies the last resume in the ledger: when it began, and its token.
async fn last_resume(desk: &Desk) -> anyhow::Result<Option<(UnixMillis, u64)>> {
    let lines = desk.recounts.operations(LINES).await.context("cannot read the ledger")?;
    let of_topic = format!("resume {}: ", desk.topic);
    // An adoption and a skip end the pause as well.
    let ends = |line: &&Operation| match line.command.as_str() {
        RESUME => line.plan.starts_with(&of_topic),
        command => [ADOPT, SKIP].contains(&command),
    };
    let last = lines.iter().find(ends);
    Ok(last.map(|line| (line.at, line.token)))
}

/// Pauses the topic and carries out `change`, which ends the pause. If `change` fails, consumers go on as before. If the
/// pause fails, they may stay paused, and the error says so.
pub(super) async fn while_paused(
    desk: &Desk,
    topic: &Topic,
    settle: Settle,
    change: impl AsyncFnOnce(&Topic) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let paused = stand_still(desk, topic, settle).await;
    let paused =
        paused.context("consumers may be paused now: tally topic show tells, tally resume consumer ends it")?;
    let Err(error) = change(&paused).await else { return Ok(()) };
    let back = replace(desk, &paused, topic).await;
    Err(back.err().map_or(error, |back| back.context("consumers stay paused: tally resume consumer")))
}

/// Stores `to` about the topic. Fails if `seen` is no longer what is stored, so a repeat changes nothing.
pub(super) async fn replace(desk: &Desk, seen: &Topic, to: &Topic) -> anyhow::Result<()> {
    let replaced = desk.claims.replace_topic(&desk.topic, seen, to).await;
    let replaced = replaced.context("cannot store what is known of the topic")?;
    ensure!(replaced, "what is known of `{}` was changed by another meanwhile: look again", desk.topic);
    Ok(())
}
