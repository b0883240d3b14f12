//! `tally counters`: which counters the deployment has, and defining more.

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::Context;
use clap::Subcommand;
use serde::Serialize;
use tally_consumer::counters::{self, Counters};
use tally_core::definitions::{Definition, Entry};
use tally_core::format::Format;

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
    /// Writes down what `tally rebuild counts --config` needs where the checkpoints are lost: keep it elsewhere
    Export {
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

/// What a deployment is, apart from what it holds.
#[derive(Debug, Serialize)]
struct Export {
    format: u64,
    shards: u16,
    milestones: Option<String>,
    counters: Vec<Entry>,
}

impl Answer for Export {
    /// TOML, whose texts are written as those of JSON are.
    fn table(&self) -> String {
        let Self { format, shards, milestones, counters } = self;
        let line = |(name, value): (&str, Option<&String>)| Some(format!("{name} = {}", serde_json::json!(value?)));
        let mut lines = vec![format!("format = {format}"), format!("shards = {shards}")];
        lines.extend(line(("milestones", milestones.as_ref())));
        for Entry { name, kind, add, remove, subject, member, topic } in counters {
            lines.push("\n[[counters]]".to_owned());
            let stated = [("name", Some(name)), ("kind", Some(kind)), ("add", Some(add)), ("remove", remove.as_ref())];
            let fields = [("subject", subject.as_ref()), ("member", member.as_ref()), ("topic", topic.as_ref())];
            lines.extend(stated.into_iter().chain(fields).filter_map(line));
        }
        lines.join("\n")
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
            Self::Export { of } => {
                let desk = Desk::open(of).await?;
                let defined = desk.checkpoints.definitions().await.context("cannot read the counters")?;
                let ladder = desk.checkpoints.ladder().await.context("cannot read the ladder")?;
                let milestones = (!ladder.is_empty()).then(|| ladder.to_string());
                let counters = defined.iter().map(Entry::from).collect();
                print(&Export { format: Format::WRITTEN, shards: desk.shards.get(), milestones, counters }, form)
            }
            Self::Apply { file, writing, of } => {
                let wanted = counters::read(&file)?;
                let desk = Desk::open(of).await?;
                let counters = Counters { deployment: Arc::clone(&desk.checkpoints), topic: desk.topic.clone() };
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
