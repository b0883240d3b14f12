//! `tally counters`: which counters the deployment has, and defining more.

use std::path::PathBuf;

use anyhow::Context;
use clap::Subcommand;
use serde::Serialize;
use tally_consumer::counters::{self, Counters};
use tally_core::definitions::{Definition, Entry};

use crate::change::Writing;
use crate::desk::{Desk, Where};
use crate::said::{Answer, Form, Table, print};

#[derive(Clone, Debug, Subcommand)]
pub(crate) enum Verb {
    /// Lists the counters, likes first
    List {
        #[command(flatten)]
        of: Where,
    },
    /// Defines the counters of a file, beside those that are there. None that is there can change or go
    Apply {
        /// A TOML file with a table `[[counters]]` for each: `name`, `kind` (`set` or `sum`), `add`, and if need be `remove`, `subject`, `member`, `topic`. `-` is the standard input
        #[arg(value_name = "FILE")]
        file: PathBuf,

        #[command(flatten)]
        writing: Writing,

        #[command(flatten)]
        of: Where,
    },
}

#[derive(Debug, Serialize)]
#[serde(transparent)]
struct Defined(Vec<Entry>);

impl Answer for Defined {
    fn table(&self) -> String {
        let mut table = Table::headed(["name", "kind", "add", "remove", "subject", "member", "topic"]);
        for Entry { name, kind, add, remove, subject, member, topic } in &self.0 {
            let or = |text: &Option<String>, otherwise: &str| text.clone().unwrap_or_else(|| otherwise.to_owned());
            let member = if kind == "set" { or(member, "user_id") } else { "-".to_owned() };
            let (remove, subject, topic) = (or(remove, "-"), or(subject, "post_id"), or(topic, "-"));
            table.row([name, kind, add, &remove, &subject, &member, &topic]);
        }
        table.to_string()
    }
}

impl Verb {
    pub(crate) async fn run(self, form: Form) -> anyhow::Result<u8> {
        match self {
            Self::List { of } => {
                let desk = Desk::open(of).await?;
                let defined = desk.checkpoints.definitions().await.context("cannot read the counters")?;
                print(&Defined(defined.iter().map(Entry::from).collect()), form)
            }
            Self::Apply { file, writing, of } => {
                let wanted = counters::read(&file)?;
                let desk = Desk::open(of).await?;
                let counters = Counters { deployment: desk.checkpoints.clone(), topic: desk.topic.clone() };
                let (_, missing) = counters.missing(&wanted).await?;
                let plan = missing.iter().map(|definition| format!("define {}", said(definition))).collect();
                let changed = writing.carry_out(&desk, "counters apply", plan, async || {
                    let defined = counters.define(&wanted).await?;
                    let names: Vec<String> = defined.iter().map(|definition| definition.name.to_string()).collect();
                    Ok(format!("defined {}", names.join(", ")))
                });
                print(&changed.await?, form)
            }
        }
    }
}

fn said(definition: &Definition) -> String {
    let Entry { name, kind, add, remove, .. } = Entry::from(definition);
    let remove = remove.map(|remove| format!(" and `{remove}`")).unwrap_or_default();
    format!("the {kind} {name}, changed by `{add}`{remove}")
}
