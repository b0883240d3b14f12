//! What is stored of the log `changes`, the Kafka topic with every change of a row that changes a count. Each is an
//! item of the table `checkpoints`:
//!
//! | id | what |
//! |---|---|
//! | `changes/config` | the deployment's id, and the topic that the log is in: [`Config`] |
//! | `changes/losses` | the losses, open and closed: [`Losses`] |
//! | `changes/standing/<partition>` | a standing, which says up to when all changes are counted:
//! [`Stated`](tally_core::fold::Stated) |
//! | `changes/position/<partition>` | where the next reader of a partition begins: [`Position`](tally_core::fold::Position) |
//! | `changes/shard/<label>/<id>` | how far a stream shard is in the log, and who relays it: [`StoredShard`] |
//!
//! All reads are consistent. [`Changes::write_canary`] alone writes into another table, `likes`.

mod losses;
mod partitions;
mod shards;

use tally_core::changes::DeploymentId;
use tally_core::fault::Fault;
use tally_core::ids::ReservedKey;
use tally_core::ports::Outcome;
use tally_core::relay::Canary;
use tally_core::topic::TopicId;

pub use self::losses::{Loss, Losses};
pub(super) use self::partitions::{decode_standing, encode_standing};
pub use self::shards::StoredShard;
use super::checkpoints::{CONFIG as DEPLOYED, key};
use super::connection::Connection;
use super::item::{Item, Reader, flag, item, number, text};
use super::table::{Consistency, Table};

const CONFIG: &str = "changes/config";
const LOST: &str = "the items `changes/..` are lost, and counters name offsets of a log that is not known: restore the \
                    table; or stop everything, delete the item `config` too, and run `tally adopt tables --shards N`";

/// The topic that holds the log, and the deployment that it belongs to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// A random text, the same for as long as the tables live.
    pub deployment: DeploymentId,
    /// How many partitions the topic has.
    pub partitions: u32,
    /// The id that tells the topic from a later one of the same name.
    pub topic: TopicId,
    /// The generation of the topic. Places (generation and offset) of a greater generation are behind all of this one.
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

/// Reads and writes what is stored of the log `changes`.
#[derive(Clone, Debug)]
pub struct Changes {
    connection: Connection,
}

impl Changes {
    pub fn new(connection: &Connection) -> Self {
        Self { connection: connection.clone() }
    }

    /// Writes a canary into the table `likes`: a row with the current time, by which relays see how late the stream is.
    /// Safe to repeat, also late: the time in it is before its first copy was written.
    ///
    /// # Errors
    /// The table takes no write.
    pub async fn write_canary(&self, canary: Canary) -> Outcome<()> {
        let key = item! { "pk": text(canary.key().to_string()), "user_id": text(ReservedKey::Canary.to_string()) };
        self.connection.likes().update(key, "SET #to=:at", [(":at", number(canary.at))]).await.map(|_| ())
    }

    /// Returns the log's configuration, or `None` before [`begin_log`](Self::begin_log).
    ///
    /// # Errors
    /// The table cannot be read, or the item.
    pub async fn config(&self) -> Outcome<Option<Config>> {
        self.table().find(key(CONFIG), Config::decode).await
    }

    /// Returns the log's configuration where the log has to be there: transient while no change-streamer has begun it.
    ///
    /// # Errors
    /// The table cannot be read, or the item.
    pub async fn begun(&self) -> Outcome<Config> {
        let missing = || Fault::Transient("the log of changes is not set up yet".to_owned());
        self.config().await?.ok_or_else(missing)
    }

    /// Stores the configuration if there is none, and returns the stored one. Safe to repeat: a stored one stays.
    ///
    /// # Errors
    /// The table takes no write. [`Fault::Fatal`] where the deployment had a log and its items are lost: versions of
    /// counters are places in that log, and a new one would begin before them.
    pub async fn begin_log(&self, config: &Config) -> Outcome<Config> {
        // The process that begins the log stores its configuration first, and the flag `log` afterwards.
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

    /// Goes on in another topic, if the configuration still is `seen`. Returns the new configuration, or `None` where
    /// another one is stored. The new generation is greater than that of every stored place: where the log lost its
    /// end, a fold may have gone on in a further generation. Safe to repeat: `seen` is not stored any more afterwards.
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
        let compared = ["deployment", "partitions", "topic_id", "gen"];
        let is_there =
            self.table().replace(seen.encode(), &compared, adopted.encode(), (&adopted, Config::decode)).await?;
        Ok(is_there.then_some(adopted))
    }

    fn table(&self) -> Table<'_> {
        self.connection.checkpoints()
    }
}
