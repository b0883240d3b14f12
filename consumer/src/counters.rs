//! An operator's commands on counters: print which ones the deployment has, and define more.

use std::io::Read;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, bail};
use serde::Deserialize;
use tally_core::definitions::{Definitions, Entry};
use tally_core::ports::Checkpoints;

use crate::print;

/// Other operators who may define counters at the same time before this one gives up.
const ATTEMPTS: usize = 5;

/// The deployment's counters.
pub(crate) struct Counters {
    pub(crate) deployment: Arc<dyn Checkpoints>,
    /// The topic of the counters that name none.
    pub(crate) topic: String,
}

/// Reads a file of definitions; `-` is the standard input.
pub(crate) fn read(file: &Path) -> anyhow::Result<Definitions> {
    let mut text = String::new();
    if file == Path::new("-") {
        std::io::stdin().read_to_string(&mut text).context("cannot read the standard input")?;
    } else {
        text = std::fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?;
    }
    parse(&text).with_context(|| format!("{} is no list of counters", file.display()))
}

fn parse(text: &str) -> anyhow::Result<Definitions> {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct File {
        #[serde(default)]
        counters: Vec<Entry>,
    }
    let File { counters } = toml::from_str(text)?;
    if counters.is_empty() {
        bail!("it has no table [[counters]]");
    }
    Ok(Definitions::new(&counters)?)
}

impl Counters {
    /// Prints each counter on a line.
    pub(crate) async fn list(&self) -> anyhow::Result<()> {
        let definitions = self.deployment.definitions().await.context("cannot read the counters")?;
        print::line("name\tkind\tadd\tremove\tsubject\tmember\ttopic")?;
        definitions.iter().try_for_each(|definition| print::line(&described(&Entry::from(definition))))
    }

    /// Defines what of `wanted` is not there yet, all or nothing. Safe to repeat: what is there already is the same.
    pub(crate) async fn apply(&self, wanted: &Definitions) -> anyhow::Result<()> {
        let theirs = |topic: &Option<Box<str>>| topic.as_deref() == Some(&self.topic);
        if let Some(definition) = wanted.iter().find(|definition| theirs(&definition.topic)) {
            bail!(
                "counter {:?} takes the topic `{}` for itself, and what other counters say there would be rejected: leave its \
                 topic out",
                definition.name.as_str(),
                self.topic
            );
        }
        for _ in 0..ATTEMPTS {
            let seen = self.deployment.definitions().await.context("cannot read the counters")?;
            let grown = seen.grown(wanted)?;
            let more = grown.iter().len() - seen.iter().len();
            if more == 0 {
                return print::line("nothing to do: all of them are there");
            }
            if self.deployment.define(&seen, &grown).await.context("cannot define the counters")? {
                for definition in grown.iter().skip(seen.iter().len()) {
                    print::line(&format!("defined {}", definition.name))?;
                }
                return Ok(());
            }
        }
        bail!("others define counters at the same time: try again")
    }
}

fn described(entry: &Entry) -> String {
    let or = |text: &Option<String>, otherwise: &str| text.clone().unwrap_or_else(|| otherwise.to_owned());
    let Entry { name, kind, add, remove, subject, member, topic } = entry;
    let member = if kind == "set" { or(member, "user_id") } else { "-".to_owned() };
    let (remove, subject, topic) = (or(remove, "-"), or(subject, "post_id"), or(topic, "-"));
    format!("{name}\t{kind}\t{add}\t{remove}\t{subject}\t{member}\t{topic}")
}

#[cfg(test)]
mod tests {
    use tally_adapters::memory::Memory;
    use tally_core::ids::ShardCount;
    use tally_core::ports::DeploymentConfig as _;
    use tally_core::time::UnixMillis;

    use super::*;

    const FILE: &str = r#"
        [[counters]]
        name = "retweets"
        kind = "set"
        add = "retweet"
        remove = "unretweet"

        [[counters]]
        name = "views"
        kind = "sum"
        add = "view"
    "#;

    async fn deployed() -> Counters {
        let deployment = Memory::new(UnixMillis(0), 1).checkpoints();
        deployment.config(Some(ShardCount::DEFAULT)).await.unwrap();
        Counters { deployment: Arc::new(deployment), topic: "likes".to_owned() }
    }

    #[tokio::test]
    async fn counters_are_defined_once_and_a_second_time_is_nothing() {
        let counters = deployed().await;
        let wanted = parse(FILE).unwrap();
        counters.apply(&wanted).await.unwrap();
        assert_eq!(counters.deployment.definitions().await, Ok(wanted.clone()));
        counters.apply(&wanted).await.unwrap();
        assert_eq!(counters.deployment.definitions().await, Ok(wanted));
    }

    #[tokio::test]
    async fn a_counter_that_is_there_cannot_change_and_nothing_is_applied_then() {
        let counters = deployed().await;
        counters.apply(&parse(FILE).unwrap()).await.unwrap();
        let before = counters.deployment.definitions().await;
        for changed in [
            format!("{FILE}\n[[counters]]\nname = \"more\"\nkind = \"sum\"\nadd = \"more\"\ntopic = \"likes\""),
            FILE.replace("sum", "set"),
            FILE.replace("\"view\"", "\"see\""),
            format!("{FILE}\n[[counters]]\nname = \"more\"\nkind = \"sum\"\nadd = \"unlike\""),
        ] {
            let refused = match parse(&changed) {
                Ok(wanted) => counters.apply(&wanted).await,
                Err(refused) => Err(refused),
            };
            assert!(refused.is_err(), "{changed}");
            assert_eq!(counters.deployment.definitions().await, before);
        }
    }

    #[test]
    fn a_file_that_is_no_list_is_refused_by_name() {
        for (text, expected) in [
            ("", "it has no table [[counters]]"),
            ("[[counters]]\nname = \"a\"\nkind = \"set\"\nadd = \"b\"\ncolour = \"red\"", "colour"),
            ("[[counters]]\nname = \"A\"\nkind = \"set\"\nadd = \"b\"", "counter \"A\""),
        ] {
            let said = format!("{:#}", parse(text).unwrap_err());
            assert!(said.contains(expected), "{said}");
        }
    }
}
