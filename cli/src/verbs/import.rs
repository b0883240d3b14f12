//! `tally import`: likes from a file, sent to the topic, where consumers write them like any others.

mod args;
mod lines;
mod pace;
mod parse;
mod place;
mod rejected;
mod run;
mod window;

use std::sync::Arc;

use anyhow::Context;
use tally_adapters::kafka;

use self::args::{ImportArgs, Source};
use self::run::{Import, Imported};
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
        let (plan, found, mut is_whole) = planned(&desk, &settings).await?;
        let is_dry = settings.dry_run;
        let writing = Writing { yes: writing.yes && !is_dry, ..writing };
        let changed = writing.carry_out(&desk, "import", plan, async || {
            let (imported, end) = run(&desk, ImportArgs { dry_run: false, ..settings.clone() }).await?;
            is_whole = imported.rejected.is_empty();
            end.with_context(|| said(&imported, "sent"))?;
            Ok(said(&imported, "sent"))
        });
        let changed = changed.await?.with(found);
        let code = print(&changed, form)?;
        Ok(if is_whole { code } else { FOUND_SOMETHING })
    }
}

/// What an import of the file would send, what was found in the file, and whether all of its lines are events. Of the standard
/// input nothing is known before it is read, which can be done once.
async fn planned(desk: &Desk, settings: &ImportArgs) -> anyhow::Result<(Vec<String>, Vec<String>, bool)> {
    if settings.file == Source::Stdin {
        return Ok((vec![format!("send the likes of the standard input to `{}`", desk.topic)], Vec::new(), true));
    }
    let dry = ImportArgs { dry_run: true, rejected: None, ..settings.clone() };
    let (would, end) = run(desk, dry).await?;
    end?;
    let mut found = would.described();
    found.extend(refused(&would));
    let plan = (would.sent > 0).then(|| {
        let Imported { lines, sent, .. } = would;
        format!("send {sent} events of {lines} lines to `{}`, but for what an earlier import has sent", desk.topic)
    });
    Ok((plan.into_iter().collect(), found, would.rejected.is_empty()))
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
    let Imported { lines, sent, .. } = imported;
    let refused = refused(imported).map_or(String::new(), |refused| format!(", {refused}"));
    format!("{sent} events {what} of {lines} lines{refused}")
}

/// How many lines are no events and why, if there are any.
fn refused(Imported { rejected, rejected_in, .. }: &Imported) -> Option<String> {
    let reasons: Vec<String> = rejected.iter().map(|(reason, count)| format!("{count} {reason}")).collect();
    let place = rejected_in.as_ref().map(|path| format!(", kept in {}", path.display())).unwrap_or_default();
    let count: u64 = rejected.values().sum();
    (count > 0).then(|| format!("lines that are no events: {count} ({}){place}", reasons.join(", ")))
}
