//! An operator's commands on counters: print which ones the deployment has, and define more.

use std::io::Read;
use std::path::Path;

use anyhow::{Context, bail};
use serde::Deserialize;
use tally_adapters::dynamodb::Checkpoints;
use tally_core::definitions::{Definition, Definitions, Entry};

/// Other operators who may define counters at the same time before this one gives up.
const ATTEMPTS: usize = 5;

/// The deployment's counters.
pub struct Counters {
    pub deployment: Checkpoints,
    /// The topic of the counters that name none.
    pub topic: String,
}

/// Reads a file of definitions; `-` is the standard input.
///
/// # Errors
/// It cannot be read, or is no list of definitions.
pub fn read(file: &Path) -> anyhow::Result<Definitions> {
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
    /// What of `wanted` is not there yet, beside the list that it would be added to.
    ///
    /// # Errors
    /// One that is there would change, or the list cannot be read.
    pub async fn missing(&self, wanted: &Definitions) -> anyhow::Result<(Definitions, Vec<Definition>)> {
        let theirs = |topic: &Option<Box<str>>| topic.as_deref() == Some(&self.topic);
        if let Some(definition) = wanted.iter().find(|definition| theirs(&definition.topic)) {
            bail!(
                "counter {:?} takes the topic `{}` for itself, and what other counters say there would be rejected: leave its \
                 topic out",
                definition.name.as_str(),
                self.topic
            );
        }
        let seen = self.deployment.definitions().await.context("cannot read the counters")?;
        let more = seen.grown(wanted)?.iter().skip(seen.iter().len()).cloned().collect();
        Ok((seen, more))
    }

    /// Defines what of `wanted` is not there yet, all or nothing; which ones these were. Safe to repeat: what is there already
    /// is the same.
    ///
    /// # Errors
    /// As of [`Self::missing`], or others define counters all the time.
    pub async fn define(&self, wanted: &Definitions) -> anyhow::Result<Vec<Definition>> {
        for _ in 0..ATTEMPTS {
            let (seen, more) = self.missing(wanted).await?;
            let grown = seen.grown(wanted)?;
            if more.is_empty() || self.deployment.define(&seen, &grown).await.context("cannot define the counters")? {
                return Ok(more);
            }
        }
        bail!("others define counters at the same time: try again")
    }
}

#[cfg(test)]
mod tests {
    use tally_testkit::Store;

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
        let deployment = Checkpoints::new(&Store::start().await.connection);
        deployment.config(None).await.unwrap();
        Counters { deployment, topic: "likes".to_owned() }
    }

    #[tokio::test]
    async fn counters_are_defined_once_and_a_second_time_is_nothing() {
        let counters = deployed().await;
        let wanted = parse(FILE).unwrap();
        counters.define(&wanted).await.unwrap();
        assert_eq!(counters.deployment.definitions().await, Ok(wanted.clone()));
        counters.define(&wanted).await.unwrap();
        assert_eq!(counters.deployment.definitions().await, Ok(wanted));
    }

    #[tokio::test]
    async fn a_counter_that_is_there_cannot_change_and_nothing_is_applied_then() {
        let counters = deployed().await;
        counters.define(&parse(FILE).unwrap()).await.unwrap();
        let before = counters.deployment.definitions().await;
        for changed in [
            format!("{FILE}\n[[counters]]\nname = \"more\"\nkind = \"sum\"\nadd = \"more\"\ntopic = \"likes\""),
            FILE.replace("sum", "set"),
            FILE.replace("\"view\"", "\"see\""),
            format!("{FILE}\n[[counters]]\nname = \"more\"\nkind = \"sum\"\nadd = \"unlike\""),
        ] {
            let refused = match parse(&changed) {
                Ok(wanted) => counters.define(&wanted).await.map(drop),
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
