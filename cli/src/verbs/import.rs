//! `tally import`: sends likes from a file to the topic, where consumers write them like any others. `lines` reads the
//! file, `parse` makes events, `run` sends them, `place` keeps how far it is, and `rejected` lines that are no events.

mod args;
mod lines;
mod parse;
mod place;
mod rejected;
mod run;

use std::sync::Arc;

use anyhow::Context;
use tally_adapters::kafka;

use self::args::ImportArgs;
use self::run::{Import, Target};
use crate::change::Writing;
use crate::desk::{Desk, Where};
use crate::said::Answer;

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
    pub(crate) async fn run(self) -> anyhow::Result<Answer> {
        let Self { import: settings, writing, of } = self;
        let desk = Desk::open(of).await?;
        let to = Target {
            reader: Arc::new(desk.reader(&desk.topic)?),
            producer: Arc::new(kafka::Producer::new(desk.kafka()?).context("cannot set up a producer")?),
            topic: desk.topic.clone(),
        };
        let open = async |settings| Import::open(to.clone(), settings, desk.host().patience(), &desk.stop).await;
        let (mut plan, mut found, mut is_whole) = (Vec::new(), Vec::new(), true);
        if settings.path().is_none() {
            // Standard input can be read only once, so the plan cannot say what it holds.
            plan.push(format!("send the likes of the standard input to `{}`", desk.topic));
        } else {
            let mut would = open(ImportArgs { dry_run: true, rejected: None, ..settings.clone() }).await?;
            would.run(&desk.stop).await?;
            (found, is_whole) = (would.found(), would.place.rejected() == 0);
            let (lines, sent) = would.done();
            let behind = Some(&would.before).filter(|before| before.lines > 0);
            match behind {
                None if sent > 0 => plan.push(format!("send {sent} events of {lines} lines to `{}`", desk.topic)),
                None => {}
                Some(before) if lines > 0 => {
                    plan.push(format!("send {sent} events of {lines} lines to `{}`, {before}", desk.topic));
                }
                Some(before) => found.push(format!("nothing is new {before}")),
            }
        }
        let writing = Writing { yes: writing.yes && !settings.dry_run, ..writing };
        let changed = writing.carry_out(&desk, "import", plan, async || {
            let mut import = open(settings).await?;
            let ended = import.run(&desk.stop).await;
            is_whole = import.place.rejected() == 0;
            if found.is_empty() {
                found = import.first_refused();
            }
            ended.with_context(|| import.said())?;
            Ok(import.said())
        });
        let changed = changed.await?.with(found);
        Ok(Answer::from(changed).wrong_if(!is_whole))
    }
}
