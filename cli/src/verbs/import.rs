//! `tally import`: likes from a file, sent to the topic, where consumers write them like any others.

use std::sync::Arc;

use anyhow::Context;
use tally_adapters::kafka;
use tally_consumer::{Import, ImportArgs, Imported, Source};

use crate::change::Writing;
use crate::desk::{Desk, Where};
use crate::health::FOUND_SOMETHING;
use crate::said::{Form, print};

#[derive(clap::Args, Clone, Debug)]
pub(crate) struct Args {
    #[command(flatten)]
    import: ImportArgs,

    #[command(flatten)]
    writing: Writing,

    #[command(flatten)]
    of: Where,
}

impl Args {
    pub(crate) async fn run(self, form: Form) -> anyhow::Result<u8> {
        let Self { import: settings, writing, of } = self;
        let desk = Desk::open(of).await?;
        let (plan, mut is_whole) = planned(&desk, &settings).await?;
        let is_dry = settings.dry_run;
        let writing = Writing { yes: writing.yes && !is_dry, ..writing };
        let changed = writing.carry_out(&desk, "import", plan, async || {
            let (imported, end) = run(&desk, ImportArgs { dry_run: false, ..settings.clone() }).await?;
            is_whole = imported.rejected.is_empty();
            end.with_context(|| said(&imported, "sent"))?;
            Ok(said(&imported, "sent"))
        });
        let changed = changed.await?;
        let code = print(&changed, form)?;
        Ok(if is_whole { code } else { FOUND_SOMETHING })
    }
}

/// What an import of the file would send, and whether all of its lines are events. Of the standard input nothing is known
/// before it is read, which can be done once.
async fn planned(desk: &Desk, settings: &ImportArgs) -> anyhow::Result<(Vec<String>, bool)> {
    if settings.file == Source::Stdin {
        return Ok((vec![format!("send the likes of the standard input to `{}`", desk.topic)], true));
    }
    let dry = ImportArgs { dry_run: true, rejected: None, ..settings.clone() };
    let (would, end) = run(desk, dry).await?;
    end?;
    let plan = if would.sent > 0 {
        vec![format!(
            "{} to `{}`, but for what an earlier import of the file has sent",
            said(&would, "to be sent"),
            desk.topic
        )]
    } else {
        Vec::new()
    };
    Ok((plan, would.rejected.is_empty()))
}

async fn run(desk: &Desk, settings: ImportArgs) -> anyhow::Result<(Imported, anyhow::Result<()>)> {
    let import = Import {
        reader: Arc::new(desk.reader(&desk.topic)?),
        producer: Arc::new(kafka::Producer::new(desk.kafka()?).context("cannot set up a producer")?),
        topic: desk.topic.clone(),
        host: desk.host(),
        settings,
    };
    import.carry_out(&desk.stop).await
}

fn said(imported: &Imported, what: &str) -> String {
    let Imported { lines, sent, rejected, rejected_in, .. } = imported;
    let count: u64 = rejected.values().sum();
    let reasons: Vec<String> = rejected.iter().map(|(reason, count)| format!("{count} {reason}")).collect();
    let reasons = if reasons.is_empty() { String::new() } else { format!(" ({})", reasons.join(", ")) };
    let place = rejected_in.as_ref().map(|path| format!(", kept in {}", path.display())).unwrap_or_default();
    format!("{sent} events {what} of {lines} lines, {count} are no events{reasons}{place}")
}
