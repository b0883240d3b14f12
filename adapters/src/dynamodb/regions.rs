//! What is stored of other Regions whose counts are added to this one's, and of what this Region has published for
//! them. The Regions' names are in the item `config` of the table `checkpoints`; it has these items, too:
//!
//! | id | what |
//! |---|---|
//! | `regions/<region>/<partition>` | how far that Region's topic was read, and its standing, which says up to when all changes are counted there: [`RemotePosition`] |
//! | `published/<partition>` | what this Region has published: [`Published`] |
//!
//! Counters of other Regions (entries) are items of `like_counts`, written as counters of one shard.

use std::collections::{BTreeMap, BTreeSet};

use aws_sdk_dynamodb::types::AttributeValue;
use tally_core::cached::{StandingAt, Value};
use tally_core::changes::Place;
use tally_core::fault::Fault;
use tally_core::fold::Counter;
use tally_core::ids::{CounterId, Region, Shard};
use tally_core::ports::Outcome;
use tally_core::regions::RemotePosition;
use tally_core::time::UnixMillis;
use tally_core::topic::{Offset, TopicId};

use super::changes::{decode_standing, encode_standing};
use super::checkpoints::{CONFIG, key};
use super::connection::Connection;
use super::counters::encode;
use super::item::{Item, Reader, flag, item, number, text};
use super::table::{Consistency, Table, Values};

const REMOTE: &str = "regions/";
const PUBLISHED: &str = "published/";

/// The Regions whose counts an answer adds up.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NamedRegions {
    /// This Region, once it has a name.
    pub own: Option<Region>,
    /// The other Regions.
    pub remotes: BTreeSet<Region>,
    /// When an operator last adopted other tables: entries that were put before are not in them.
    pub adopted: Option<UnixMillis>,
}

/// What this Region has published of a partition of its counters: all counters as they were when it began, and
/// everything that has changed up to the fold's stored position.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Published {
    /// The topic. Nothing is published yet in any other one.
    pub topic: TopicId,
    /// The end of the topic's partition. If it is before this one now, the topic has lost something.
    pub end: Offset,
    /// How often the topic has lost its end.
    pub cuts: u64,
    /// Whether the topic has lost its end, and the partition is not published anew yet.
    pub torn: bool,
    /// The last announced loss when publishing began. After a later one, counters may have changed without a change in
    /// the log.
    pub loss: Option<Place>,
}

impl NamedRegions {
    pub(super) fn decode(reader: &Reader<'_>) -> Outcome<Self> {
        Ok(Self { own: reader.get("region")?, remotes: reader.get("remotes")?, adopted: reader.get("adopted")? })
    }
}

/// Reads and writes what is stored of Regions.
#[derive(Clone, Debug)]
pub struct Regions {
    connection: Connection,
}

impl Regions {
    pub fn new(connection: &Connection) -> Self {
        Self { connection: connection.clone() }
    }

    fn table(&self) -> Table<'_> {
        self.connection.checkpoints()
    }

    /// Names this Region, and adds others whose entries will be kept here. Safe to repeat: the names are the same.
    ///
    /// # Errors
    /// The table takes no write. [`Fault::Fatal`] where this Region has another name.
    pub async fn name(&self, own: &Region, remotes: &[Region]) -> Outcome<()> {
        let condition = "attribute_exists(#id) AND (attribute_not_exists(#region) OR #region=:own)";
        let (mut update, mut values) = ("SET #region=:own".to_owned(), Values::from([(":own", text(own.as_str()))]));
        if !remotes.is_empty() {
            let names = values.add(AttributeValue::Ss(remotes.iter().map(ToString::to_string).collect()));
            update += &format!(" ADD #remotes {names}");
        }
        match self.table().update_if(key(CONFIG), &update, condition, values).await? {
            Ok(_) => Ok(()),
            Err(None) => Err(Fault::Transient("there is no `config` yet".to_owned())),
            Err(Some(config)) => {
                let stands: Option<String> = self.table().reader(&config).get("region")?;
                let stands = stands.unwrap_or_default();
                Err(Fault::Fatal(format!("this Region is called `{stands}`, and not `{own}`")))
            }
        }
    }

    /// Removes a Region from those whose counts are added up. Safe to repeat: it stays removed.
    ///
    /// # Errors
    /// The table takes no write.
    pub async fn forget(&self, remote: &Region) -> Outcome<()> {
        let names = [(":names", AttributeValue::Ss(vec![remote.to_string()]))];
        let forgotten = self.table().update_if(key(CONFIG), "DELETE #remotes :names", "attribute_exists(#id)", names);
        forgotten.await.map(drop)
    }

    /// Puts another Region's entry of a counter, unless one of this or a later version is there. Returns whether it was
    /// put. Safe to repeat, late and by others: the latest version stays.
    ///
    /// # Errors
    /// The table takes no write.
    pub async fn put_entry(&self, entry: &CounterId, value: &Value, now: UnixMillis) -> Outcome<bool> {
        let shard = Shard::new(0).expect("every counter has shard 0");
        let Value { likes, version, gap, doubtful } = *value;
        let counter = Counter {
            likes,
            parts: [(shard, likes)].into(),
            version,
            gap,
            doubt: doubtful.then_some(shard).into_iter().collect(),
            updated_at: now,
            ..Counter::default()
        };
        let attributes = encode(&counter).into_iter().map(|(name, value)| (name.into_owned(), value));
        let mut put: Item = attributes.collect();
        put.insert("post_id".to_owned(), text(&*entry.stored()));
        let (condition, values) =
            ("attribute_not_exists(#version) OR #version<:version", [(":version", number(version))]);
        let put = self.connection.counts().put_if(put, condition, values).await?;
        Ok(put.is_ok())
    }

    /// Returns how far a partition of a Region's topic was read, or `None` before that began.
    ///
    /// # Errors
    /// The table cannot be read, or the item.
    pub async fn position(&self, region: &Region, partition: u32) -> Outcome<Option<RemotePosition>> {
        self.table().find(key(&remote_key(region, partition)), decode).await
    }

    /// Stores how far a partition was read. Safe to repeat, and an older one may replace a newer one: each is true by
    /// itself.
    ///
    /// # Errors
    /// The table takes no write.
    pub async fn store_position(&self, region: &Region, partition: u32, position: &RemotePosition) -> Outcome<()> {
        let RemotePosition { topic, adopted, next, said, behind, deployment, source, standing } = position;
        let mut stored = item! {
            "id": text(remote_key(region, partition)),
            "topic_id": text(&*topic.0),
            "next": number(next),
            "said": number(said),
            "behind": number(behind),
            "source": source.as_ref().map(|source| text(&*source.0)),
            "adopted": adopted.map(number),
            "deployment": deployment.as_ref().map(|of| text(&*of.0)),
        };
        stored.extend(standing.iter().flat_map(encode_standing));
        self.table().put(stored).await
    }

    /// Returns the standings of other Regions, in one request for each hundred. Leaves out partitions without a
    /// standing, and those whose entries were put before the last adoption of other tables.
    ///
    /// # Errors
    /// The table cannot be read, or one of the items.
    pub async fn standings(
        &self,
        named: &NamedRegions,
        partitions: u32,
    ) -> Outcome<BTreeMap<(Region, u32), StandingAt>> {
        let all = named.remotes.iter().flat_map(|region| (0..partitions).map(move |partition| (region, partition)));
        let ids: BTreeMap<_, _> =
            all.map(|(region, partition)| (remote_key(region, partition), (region.clone(), partition))).collect();
        let stored = self.table().find_all(("id", Item::new()), ids, Consistency::Strong, decode).await?;
        let of_now = stored.into_iter().filter(|(_, stored)| stored.adopted == named.adopted);
        Ok(of_now.filter_map(|(of, stored)| Some((of, stored.standing?))).collect())
    }

    /// Returns what this Region has published of a partition; `None` where nothing is stored.
    ///
    /// # Errors
    /// The table cannot be read, or the item.
    pub async fn published(&self, partition: u32) -> Outcome<Option<Published>> {
        let decode = |reader: &Reader<'_>| {
            Ok(Published {
                topic: reader.get("topic_id")?,
                end: reader.get("end")?,
                cuts: reader.get("cuts")?,
                torn: reader.get("torn")?,
                loss: reader.get("loss")?,
            })
        };
        self.table().find(key(&format!("{PUBLISHED}{partition}")), decode).await
    }

    /// Stores what was published. Safe to repeat: it puts the same item.
    ///
    /// # Errors
    /// The table takes no write.
    pub async fn store_published(&self, partition: u32, published: &Published) -> Outcome<()> {
        let Published { topic, end, cuts, torn, loss } = published;
        let stored = item! {
            "id": text(format!("{PUBLISHED}{partition}")),
            "topic_id": text(&*topic.0),
            "end": number(end),
            "cuts": number(cuts),
            "torn": flag(*torn),
            "loss": loss.map(number),
        };
        self.table().put(stored).await
    }
}

fn remote_key(region: &Region, partition: u32) -> String {
    format!("{REMOTE}{region}/{partition}")
}

fn decode(reader: &Reader<'_>) -> Outcome<RemotePosition> {
    Ok(RemotePosition {
        topic: reader.get("topic_id")?,
        adopted: reader.get("adopted")?,
        next: reader.get("next")?,
        said: reader.get("said")?,
        behind: reader.get("behind")?,
        deployment: reader.get("deployment")?,
        source: reader.get("source")?,
        standing: reader.item.contains_key("at").then(|| decode_standing(reader)).transpose()?,
    })
}
