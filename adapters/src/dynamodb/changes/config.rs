//! Which topic the log is in, and which deployment it is of: the item `changes/config`.

use tally_core::changes::DeploymentId;
use tally_core::fault::Fault;
use tally_core::ports::Outcome;
use tally_core::topic::TopicId;

use super::super::checkpoints::key;
use super::super::item::{Item, Reader, flag, item, number, text};
use super::super::table::{Conditional, Consistency, Values};
use super::Changes;

const CONFIG: &str = "changes/config";
/// What the deployment was created with, which also says whether its log was begun.
const DEPLOYED: &str = "config";
const LOST: &str = "the items `changes/..` are lost, and counters speak of a log that nobody knows any more: restore the \
                    table; or stop everything, delete the item `config` too, and run `tally adopt tables --shards N`";

/// Which topic the log is in, and which deployment it is of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// A random text, the same for as long as the tables live.
    pub deployment: DeploymentId,
    /// How many partitions the topic has.
    pub partitions: u32,
    /// What tells the topic from a later one of the same name.
    pub topic: TopicId,
    /// The generation of the topic: places of a greater one are behind all places of this one.
    pub generation: u16,
}

impl Config {
    fn encode(&self) -> Item {
        item! {
            "id": text(CONFIG),
            "deployment": text(&*self.deployment.0),
            "partitions": number(self.partitions),
            "topic_id": text(&*self.topic.0),
            "gen": number(self.generation),
        }
    }

    fn decode(reader: &Reader<'_>) -> Outcome<Self> {
        Ok(Self {
            deployment: reader.get("deployment")?,
            partitions: reader.get("partitions")?,
            topic: reader.get("topic_id")?,
            generation: reader.get("gen")?,
        })
    }
}

impl Changes {
    /// Which topic the log is in; `None` before [`begin_log`](Self::begin_log).
    ///
    /// # Errors
    /// The table cannot be read, or the item.
    pub async fn config(&self) -> Outcome<Option<Config>> {
        self.table().find(key(CONFIG), Config::decode).await
    }

    /// Puts the configuration where there is none; answers the one that is there. Safe to repeat: what is there stays.
    ///
    /// # Errors
    /// The table takes no write. [`Fault::Fatal`] where the deployment had a log and its items are lost: places in counters are
    /// of that one, and a new one would begin before them.
    pub async fn begin_log(&self, config: &Config) -> Outcome<Config> {
        // In this order: the process that begins the log puts its configuration first, and says then that it has begun.
        let deployed = self.table().get(key(DEPLOYED), Consistency::Strong).await?;
        let had = deployed.is_some_and(|deployed| deployed.contains_key("log"));
        let stands = match self.config().await? {
            Some(stands) => stands,
            None if had => return Err(Fault::Fatal(format!("{}: {LOST}", self.table().name))),
            None => self.table().put_new(config.encode(), "id", Config::decode).await?,
        };
        if had {
            return Ok(stands);
        }
        let condition = "attribute_exists(#id) AND attribute_not_exists(#log)";
        self.table().update_if(key(DEPLOYED), "SET #log=:yes", condition, [(":yes", flag(true))]).await?;
        Ok(stands)
    }

    /// Goes on in another topic, if the configuration still is as `seen`: the new one, or `None` where it is not. Its
    /// generation is behind all places that are stored: a fold may have gone on in a further one, where the log lost its end.
    /// Safe to repeat: the generation that has to be there is another afterwards.
    ///
    /// # Errors
    /// The table takes no write, or there is no further generation.
    pub async fn adopt_topic(&self, seen: &Config, topic: &TopicId, partitions: u32) -> Outcome<Option<Config>> {
        let standings = self.standings(seen.partitions).await?;
        let stored = standings.values().map(|stored| stored.at.generation());
        let newest = stored.fold(seen.generation, u16::max);
        let generation = newest.checked_add(1);
        let last = || Fault::Fatal(format!("{}: {newest} is the last generation of a topic", self.table().name));
        let adopted =
            Config { topic: topic.clone(), partitions, generation: generation.ok_or_else(last)?, ..seen.clone() };
        let (mut stands, mut values) = (seen.encode(), Values::default());
        let same = ["deployment", "partitions", "topic_id", "gen"].map(|name| values.same(name, stands.remove(name)));
        match self.table().put_if(adopted.encode(), &same.join(" AND "), values).await? {
            Conditional::Done(_) => Ok(Some(adopted)),
            Conditional::Refused(found) => {
                // An earlier copy may have been carried out.
                let found = found.map(|found| Config::decode(&self.table().reader(&found))).transpose()?;
                Ok(found.filter(|found| *found == adopted))
            }
        }
    }
}
