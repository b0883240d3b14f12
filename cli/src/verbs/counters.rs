//! `tally counters`: lists what the deployment counts, such as likes and views (`list`), and defines more counters by a
//! file (`apply`).

use std::path::{Path, PathBuf};

use anyhow::{Context, bail, ensure};
use clap::Subcommand;
use serde::Deserialize;
use tally_adapters::dynamodb::Usual;
use tally_core::definitions::{Definition, Definitions, Entry};

use crate::change::Changing;
use crate::desk::{Desk, Where};
use crate::given::text_of;
use crate::said::{Answer, Table};

/// How often a definition is tried: an attempt fails if another operator defines counters at the same time.
const ATTEMPTS: usize = 5;

#[derive(Clone, Debug, Subcommand)]
pub(crate) enum Verb {
    /// Lists the counters, likes first
    List(Where),
    /// Defines the counters of a file, beside those that are there. None that is there can change or go
    Apply {
        /// A TOML file with a table `[[counters]]` for each: `name`, `kind` (`set` or `sum`), `add`, and if need be `remove`, `subject`, `member`, `topic`. `-` is the standard input
        #[arg(value_name = "FILE")]
        file: PathBuf,

        #[command(flatten)]
        change: Changing,
    },
}

impl Verb {
    pub(crate) async fn run(self) -> anyhow::Result<Answer> {
        match self {
            Self::List(of) => {
                let desk = Desk::open(of).await?;
                let defined = desk.checkpoints.definitions().await.context("cannot read the counters")?;
                Ok(listed(&defined.iter().map(Entry::from).collect::<Vec<_>>()))
            }
            Self::Apply { file, change: Changing { writing, of } } => {
                let wanted = read(&file)?;
                let desk = Desk::open(of).await?;
                let (_, missing) = missing(&desk, &wanted).await?;
                let plan = missing.iter().map(|definition| format!("define {}", said(definition))).collect();
                let changed = writing.carry_out(&desk, "counters apply", plan, async || {
                    let defined = define(&desk, &wanted).await?;
                    let names: Vec<&str> = defined.iter().map(|definition| definition.name.as_str()).collect();
                    Ok(format!("defined {}", names.join(", ")))
                });
                Ok(changed.await?.into())
            }
        }
    }
}

fn listed(defined: &[Entry]) -> Answer {
    let mut table = Table::headed(["name", "kind", "add", "remove", "subject", "member", "topic"]);
    for Entry { name, kind, add, remove, subject, member, topic } in defined {
        let or = |text: &Option<String>, otherwise: &str| text.clone().unwrap_or_else(|| otherwise.to_owned());
        let member = if kind == "set" { or(member, "user_id") } else { "-".to_owned() };
        let (remove, subject, topic) = (or(remove, "-"), or(subject, "post_id"), or(topic, "-"));
        table.row([name, kind, add, &remove, &subject, &member, &topic]);
    }
    Answer::new(defined, table)
}

fn said(definition: &Definition) -> String {
    let Entry { name, kind, add, remove, .. } = Entry::from(definition);
    let remove = remove.map(|remove| format!(" and `{remove}`")).unwrap_or_default();
    format!("the {kind} {name}, changed by `{add}`{remove}")
}

/// Reads a file of definitions; `-` is the standard input.
///
/// # Errors
/// The file cannot be read, or is no list of definitions.
pub(super) fn read(file: &Path) -> anyhow::Result<Definitions> {
    parse(&text_of(file)?).with_context(|| format!("{} is no list of counters", file.display()))
}

fn parse(text: &str) -> anyhow::Result<Definitions> {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct File {
        #[serde(default)]
        counters: Vec<Entry>,
    }
    let File { counters } = toml::from_str(text)?;
    ensure!(!counters.is_empty(), "it has no table [[counters]]");
    Ok(Definitions::new(&counters)?)
}

/// Returns the stored definitions, and those of `wanted` that are new. Where no usual topic is stored yet, it is that of
/// `--topic`.
///
/// # Errors
/// A counter that is stored would change, or one has the usual topic for its own; or the definitions cannot be read.
async fn missing(desk: &Desk, wanted: &Definitions) -> anyhow::Result<(Definitions, Vec<Definition>)> {
    let Usual { definitions: seen, topic } = desk.checkpoints.usual().await.context("cannot read the counters")?;
    let topic = topic.as_deref().unwrap_or(&desk.topic);
    if let Some(definition) = wanted.iter().find(|definition| definition.topic.as_deref() == Some(topic)) {
        bail!(
            "counter {:?} takes the topic `{topic}` for itself, and what other counters say there would be rejected: leave its \
             topic out",
            definition.name.as_str()
        );
    }
    let more = seen.grown(wanted)?.iter().skip(seen.iter().len()).cloned().collect();
    Ok((seen, more))
}

/// Defines the counters of `wanted` that are new, all or none, and returns them. Safe to repeat: what is stored stays.
///
/// # Errors
/// Those of [`missing`]; the definitions cannot be written; or other operators define counters at each attempt.
async fn define(desk: &Desk, wanted: &Definitions) -> anyhow::Result<Vec<Definition>> {
    for _ in 0..ATTEMPTS {
        let (seen, more) = missing(desk, wanted).await?;
        let grown = seen.grown(wanted)?;
        if more.is_empty() || desk.checkpoints.define(&seen, &grown).await.context("cannot define the counters")? {
            return Ok(more);
        }
    }
    bail!("others define counters at the same time: try again")
}
