//! `tally draw`: whether the record of a threshold is what the log says.

use std::sync::Arc;

use anyhow::Context;
use clap::Subcommand;
use serde::Serialize;
use tally_consumer::{Draw, Drawn, Found};

use crate::desk::{Desk, Where};
use crate::health::UNAVAILABLE;
use crate::said::{Answer, Form, Table, plain, print};

#[derive(Clone, Debug, Subcommand)]
pub(crate) enum Verb {
    /// Says whether the record of who was first at a threshold is as it was written, and is what the log says: `true`, `false` or
    /// `gone`. Exits with 1 if it is not, and with 69 where the log cannot say it: it is cut, or an event has a dead letter and
    /// may have counted all the same
    Verify(Box<Args>),
}

#[derive(clap::Args, Clone, Debug)]
pub(crate) struct Args {
    #[command(flatten)]
    drawn: Drawn,

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
        let Ok(told) = serde_json::from_str::<serde_json::Map<_, _>>(&self.detail) else {
            return format!("{}: {}", self.verdict, plain(&self.detail));
        };
        let mut table = Table::default();
        told.iter().for_each(|(name, value)| table.row([name, value]));
        format!("{}: the record is what the log says\n{table}", self.verdict)
    }

    fn found(&self) -> bool {
        self.verdict == "false"
    }
}

impl Verb {
    pub(crate) async fn run(self, form: Form) -> anyhow::Result<u8> {
        let Self::Verify(args) = self;
        let Args { drawn, of } = *args;
        let desk = Desk::open(of).await?;
        let defined = desk.checkpoints.definitions().await.context("cannot read the counters")?;
        let (records, deployment) = ((desk.recounts.clone(), desk.claims.clone()), desk.deployment()?.to_owned());
        let topics = (&*desk.topic, &*desk.dead_letter_topic);
        let draw = Draw::of(drawn, &defined, records, deployment, topics, |topic| Ok(Arc::new(desk.reader(topic)?)))?;
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_true_record_is_shown_field_by_field() {
        let shown = |verdict, detail: &str| Verified { verdict, detail: detail.to_owned() }.table();
        let told = shown("true", r#"{"n":10,"user":"u\u001b"}"#);
        assert_eq!(told, "true: the record is what the log says\nn     10\nuser  \"u\\u001b\"\n");
        assert_eq!(shown("gone", "the log is cut"), "gone: the log is cut");
    }
}
