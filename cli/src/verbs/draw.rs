//! `tally draw`: whether the record of a threshold is what the log says.

use std::sync::Arc;

use anyhow::Context;
use clap::Subcommand;
use serde::Serialize;
use tally_consumer::{Draw, Found, letters_of};
use tally_core::ids::{CounterId, PostId};
use tally_service::Invalid;

use crate::desk::{Desk, Where};
use crate::health::UNAVAILABLE;
use crate::said::{Answer, Form, plain, print};

#[derive(Clone, Debug, Subcommand)]
pub(crate) enum Verb {
    /// Says whether the record of who was first at a threshold is as it was written, and is what the log says: `true`, `false` or
    /// `gone`. Exits with 1 if it is not, and with 69 where the log cannot say it any more
    Verify(Box<Args>),
}

#[derive(clap::Args, Clone, Debug)]
pub(crate) struct Args {
    /// The post, or another subject
    #[arg(value_name = "ID")]
    post: PostId,

    /// The counter, by its name
    #[arg(value_name = "NAME")]
    counter: String,

    /// The threshold
    #[arg(value_name = "N")]
    n: i64,

    #[command(flatten)]
    of: Where,
}

#[derive(Debug, Serialize)]
struct Verified {
    verdict: &'static str,
    /// Who and where, or why it is not so.
    detail: String,
}

impl Answer for Verified {
    fn table(&self) -> String {
        format!("{}\t{}", self.verdict, plain(&self.detail))
    }

    fn found(&self) -> bool {
        self.verdict == "false"
    }
}

impl Verb {
    pub(crate) async fn run(self, form: Form) -> anyhow::Result<u8> {
        let Self::Verify(args) = self;
        let Args { post, counter, n, of } = *args;
        let desk = Desk::open(of).await?;
        let defined = desk.checkpoints.definitions().await.context("cannot read the counters")?;
        let invalid = |why: &str| Invalid::variable("NAME", format!("{counter:?} {why}"));
        let definition = defined.named(&counter).ok_or_else(|| invalid("is no counter of the deployment"))?;
        if !definition.has_milestones() {
            return Err(invalid("has an action that takes off: who was first at a threshold has no meaning").into());
        }
        let topic = definition.topic.as_deref().unwrap_or(&desk.topic);
        let draw = Draw {
            counter: CounterId { post, name: definition.name.clone() },
            n,
            milestones: Arc::new(desk.recounts.clone()),
            rows: Arc::clone(&desk.likes),
            topic_name: topic.to_owned(),
            topic: Arc::new(desk.reader(topic)?),
            letters: Arc::new(desk.reader(&letters_of(topic, &desk.topic, &desk.dead_letter_topic))?),
            definitions: defined.said_in(topic),
        };
        let (verdict, detail) = match draw.persist(desk.clock).await {
            Found::True(told) => ("true", told),
            Found::False(why) => ("false", why),
            Found::Gone(why) => ("gone", why),
            Found::Unread(fault) => ("unread", fault.to_string()),
        };
        let code = print(&Verified { verdict, detail }, form)?;
        Ok(if matches!(verdict, "gone" | "unread") { UNAVAILABLE } else { code })
    }
}
