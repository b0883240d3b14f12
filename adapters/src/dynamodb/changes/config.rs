//! Which topic the log is in, and which deployment it is of: the item `changes/config`.

use aws_sdk_dynamodb::types::AttributeValue;
use tally_core::changes::DeploymentId;
use tally_core::fault::Fault;
use tally_core::ports::Outcome;
use tally_core::topic::TopicId;

use super::super::checkpoints::key;
use super::super::expression::Aliases;
use super::super::item::{Item, Reader, item, number, text};
use super::super::items::Conditional;
use super::super::names::checkpoints::{BEGUN, DEPLOYMENT, GENERATION, ID, PARTITIONS, TOPIC_ID};
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
        item([
            (ID, text(CONFIG)),
            (DEPLOYMENT, text(&*self.deployment.0)),
            (PARTITIONS, number(self.partitions)),
            (TOPIC_ID, text(&*self.topic.0)),
            (GENERATION, number(self.generation)),
        ])
    }

    fn decode(reader: &Reader<'_>) -> Outcome<Self> {
        Ok(Self {
            deployment: DeploymentId(reader.required_text(DEPLOYMENT)?.into()),
            partitions: reader.required_number(PARTITIONS)?,
            topic: TopicId(reader.required_text(TOPIC_ID)?.into()),
            generation: reader.required_number(GENERATION)?,
        })
    }
}

impl Changes {
    /// Which topic the log is in; `None` before [`begin_log`](Self::begin_log).
    ///
    /// # Errors
    /// The table cannot be read, or the item.
    pub async fn config(&self) -> Outcome<Option<Config>> {
        let found = self.items().get(key(CONFIG)).await?;
        found.map(|found| Config::decode(&Reader::new(self.table(), &found))).transpose()
    }

    /// Puts the configuration where there is none; answers the one that is there. Safe to repeat: what is there stays.
    ///
    /// # Errors
    /// The table takes no write. [`Fault::Fatal`] where the deployment had a log and its items are lost: places in counters are
    /// of that one, and a new one would begin before them.
    pub async fn begin_log(&self, config: &Config) -> Outcome<Config> {
        // In this order: the process that begins the log puts its configuration first, and says then that it has begun.
        let had = self.items().get(key(DEPLOYED)).await?.is_some_and(|deployed| deployed.contains_key(BEGUN));
        let stands = match self.config().await? {
            Some(stands) => stands,
            None if had => return Err(Fault::Fatal(format!("{}: {LOST}", self.table()))),
            None => Config::decode(&Reader::new(self.table(), &self.items().put_new(config.encode(), ID).await?))?,
        };
        if had {
            return Ok(stands);
        }
        let mut say = Aliases::default();
        let [id, begun] = say.names([ID, BEGUN]);
        let (update, condition) = (
            format!("SET {begun}={}", say.value(AttributeValue::Bool(true))),
            format!("attribute_exists({id}) AND attribute_not_exists({begun})"),
        );
        self.items().update_if(key(DEPLOYED), say, update, condition).await?;
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
        let last = || Fault::Fatal(format!("{}: {newest} is the last generation of a topic", self.table()));
        let adopted =
            Config { topic: topic.clone(), partitions, generation: generation.ok_or_else(last)?, ..seen.clone() };
        let mut say = Aliases::default();
        let same = [
            (DEPLOYMENT, text(&*seen.deployment.0)),
            (PARTITIONS, number(seen.partitions)),
            (TOPIC_ID, text(&*seen.topic.0)),
            (GENERATION, number(seen.generation)),
        ];
        let same = same.map(|(name, value)| format!("{}={}", say.name(name), say.value(value))).join(" AND ");
        match self.items().put_if(adopted.encode(), say, same).await? {
            Conditional::Done(_) => Ok(Some(adopted)),
            Conditional::Refused(found) => {
                // An earlier copy may have been carried out.
                let found = found.map(|found| Config::decode(&Reader::new(self.table(), &found))).transpose()?;
                Ok(found.filter(|found| *found == adopted))
            }
        }
    }
}
