//! What is stored of the log `changes`, the Kafka topic with every change of a row that changes a count. Each is an
//! item of the table `checkpoints`:
//!
//! | id | what |
//! |---|---|
//! | `changes/config` | the deployment's id, and the topic that the log is in: [`Config`] |
//! | `changes/losses` | the losses (data gone unread, or maybe wrong), open and closed: [`Losses`] |
//! | `changes/standing/<partition>` | the time up to which all is counted: [`Stated`](tally_core::fold::Stated) |
//! | `changes/position/<partition>` | where the next reader of a partition begins: [`Position`](tally_core::fold::Position) |
//! | `changes/shard/<label>/<id>` | how far a stream shard is in the log, and who relays it: [`StoredShard`] |
//!
//! All reads are consistent. [`Changes::write_canary`] alone writes into another table, `likes`.

mod partitions;
mod shards;

use std::collections::BTreeMap;
use std::time::Duration;

use aws_sdk_dynamodb::types::AttributeValue;
use tally_core::changes::{DeploymentId, LossNumber};
use tally_core::fault::Fault;
use tally_core::ids::ReservedKey;
use tally_core::ports::Outcome;
use tally_core::relay::Canary;
use tally_core::time::UnixMillis;
use tally_core::topic::TopicId;

pub(super) use self::partitions::{decode_standing, encode_standing};
pub use self::shards::StoredShard;
use super::checkpoints::{CONFIG as DEPLOYED, key};
use super::connection::Connection;
use super::item::{Attribute, Item, Reader, flag, item, number, text};
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
            None => self.table().put_new(config.encode(), Config::decode).await?,
        };
        if had {
            return Ok(stands);
        }
        let condition = "attribute_exists(#id) AND attribute_not_exists(#log)";
        let _ = self.table().update_if(key(DEPLOYED), "SET #log=:yes", condition, [(":yes", flag(true))]).await?;
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

const LOSSES: &str = "changes/losses";
/// How long a closed loss is kept. Readers of the log remember a loss for a day, and no number is as old as a week.
const KEPT: Duration = Duration::from_secs(7 * 24 * 3600);
/// How often a process tries to open a loss while others open theirs.
const ATTEMPTS: u32 = 8;

/// A stored loss: a part of the log, the stream or a table is gone unread, or may be wrong. It is open until an audit has
/// repaired the counters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Loss {
    /// What kind of loss it is, one word.
    pub kind: String,
    /// What is lost, in words for people.
    pub what: String,
    /// When it was closed; `None` while it is open.
    pub closed: Option<UnixMillis>,
}

/// The losses that are stored, by their numbers. One item has all, so that one read returns them. A closed loss stays for
/// a while, so that a process that finds it late, or once more, does not open it again.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Losses(pub BTreeMap<LossNumber, Loss>);

impl Losses {
    /// The losses that are open.
    pub fn open(&self) -> impl Iterator<Item = (LossNumber, &Loss)> {
        self.0.iter().filter(|(_, loss)| loss.closed.is_none()).map(|(number, loss)| (*number, loss))
    }

    /// Returns the number for a loss that is found now: at least the current time, and greater than all stored ones.
    pub fn next(&self, now: UnixMillis) -> LossNumber {
        let behind = self.0.last_key_value().map_or(0, |(LossNumber(last), _)| last.saturating_add(1));
        LossNumber(now.0.max(behind))
    }

    fn decode(reader: &Reader<'_>) -> Outcome<Self> {
        let stored: BTreeMap<String, Loss> = reader.get("losses")?;
        let losses = stored.into_iter().map(|(number, loss)| {
            let n = number.parse().map_err(|error| reader.malformed("losses", format!("{number}: {error}")))?;
            Ok((LossNumber(n), loss))
        });
        losses.collect::<Outcome<_>>().map(Self)
    }
}

impl Attribute for Loss {
    fn read(value: &AttributeValue) -> Result<Self, String> {
        let loss = value.as_m().map_err(|_| "not a map".to_owned())?;
        let text = |name| loss.get(name).map(String::read).ok_or_else(|| format!("{name} is missing"))?;
        let closed = loss.get("closed").map(UnixMillis::read).transpose()?;
        Ok(Self { kind: text("kind")?, what: text("what")?, closed })
    }
}

impl Changes {
    /// Returns the losses, open and closed.
    ///
    /// # Errors
    /// The table cannot be read, or the item.
    pub async fn losses(&self) -> Outcome<Losses> {
        Ok(self.table().find(key(LOSSES), Losses::decode).await?.unwrap_or_default())
    }

    /// Opens the loss of this number, unless it is stored already. Returns the stored one. Safe to repeat: a stored
    /// loss stays as it is, also if it is closed.
    ///
    /// # Errors
    /// The table takes no write.
    pub async fn open_loss(&self, number: LossNumber, kind: &str, what: &str) -> Outcome<Loss> {
        let opened = Loss { kind: kind.to_owned(), what: what.to_owned(), closed: None };
        for _ in 0..ATTEMPTS {
            let loss = AttributeValue::M(item! { "kind": text(kind), "what": text(what) });
            let update = format!("SET #losses.#{number}=:loss");
            let condition = format!("attribute_exists(#losses) AND attribute_not_exists(#losses.#{number})");
            match self.table().update_if(key(LOSSES), &update, &condition, [(":loss", loss)]).await? {
                Ok(_) => return Ok(opened),
                Err(Some(found)) => {
                    if let Some(stands) = Losses::decode(&self.table().reader(&found))?.0.remove(&number) {
                        return Ok(stands);
                    }
                }
                // The map has to be there before an entry can be set in it.
                Err(None) => {
                    let none = item! { "id": text(LOSSES), "losses": AttributeValue::M(Item::new()) };
                    self.table().put_new(none, |_| Ok(())).await?;
                }
            }
        }
        Err(Fault::Transient(format!("{}: loss {number} is neither there nor opened", self.table().name)))
    }

    /// Opens a loss that was found now, under the next number, and returns the number. A repetition may open a second
    /// loss, which does no harm.
    ///
    /// # Errors
    /// The table takes no write.
    pub async fn open_new_loss(&self, now: UnixMillis, kind: &str, what: &str) -> Outcome<LossNumber> {
        self.open_next(now, kind, what, false).await.map(|(number, _)| number)
    }

    /// Opens a loss unless one of the same kind and text is stored, open or closed. Returns whether it opened one.
    /// Processes that find the loss at the same time round it up to the same second, and so use the same number; where
    /// they do not, one more loss does no harm.
    pub(super) async fn open_loss_once(&self, now: UnixMillis, kind: &str, what: &str) -> Outcome<bool> {
        let second = UnixMillis(now.0.div_ceil(1000) * 1000);
        self.open_next(second, kind, what, true).await.map(|(_, is_new)| is_new)
    }

    /// Opens a loss and returns its number; or, if it is opened `once`, that of a stored one of the same kind and text.
    /// Also returns whether it opened it.
    async fn open_next(&self, now: UnixMillis, kind: &str, what: &str, once: bool) -> Outcome<(LossNumber, bool)> {
        let is_same = |loss: &Loss| loss.kind == kind && loss.what == what;
        let ours = Loss { kind: kind.to_owned(), what: what.to_owned(), closed: None };
        for _ in 0..ATTEMPTS {
            let losses = self.losses().await?;
            if let Some((number, _)) = losses.0.iter().find(|(_, loss)| once && is_same(loss)) {
                return Ok((*number, false));
            }
            let number = losses.next(now);
            if self.open_loss(number, kind, what).await? == ours {
                return Ok((number, true));
            }
        }
        Err(Fault::Transient(format!("{}: too many processes number their losses", self.table().name)))
    }

    /// Closes a loss that is repaired, and drops those that were closed long ago. Safe to repeat: the first time of
    /// closing stays.
    ///
    /// # Errors
    /// The table takes no write.
    pub async fn close_loss(&self, number: LossNumber, at: UnixMillis) -> Outcome<()> {
        let stands = self.losses().await?;
        let closed = format!("#losses.#{number}.#closed");
        let mut update = format!("SET {closed}=if_not_exists({closed},:at)");
        let is_old = |loss: &Loss| loss.closed.is_some_and(|closed| at.since(closed) > KEPT);
        let old = stands.0.iter().filter(|(other, loss)| **other != number && is_old(loss));
        let old: Vec<String> = old.map(|(old, _)| format!("#losses.#{old}")).collect();
        if !old.is_empty() {
            update += &format!(" REMOVE {}", old.join(","));
        }
        let (condition, at) = (format!("attribute_exists(#losses.#{number})"), super::item::number(at));
        self.table().update_if(key(LOSSES), &update, &condition, [(":at", at)]).await.map(|_| ())
    }
}
