//! What is stored of other Regions, and of what this one has published for them. The names stand in the item `config` of the table
//! `checkpoints`; beside it:
//!
//! | id | what |
//! |---|---|
//! | `regions/<region>/<partition>` | how far that Region's topic was read, and its standing there: [`RemotePosition`] |
//! | `published/<partition>` | what this Region has published: [`Published`] |
//!
//! Entries of other Regions are items of `like_counts`, written as counters of one shard.

use std::collections::{BTreeMap, BTreeSet};

use aws_sdk_dynamodb::types::AttributeValue;
use tally_core::cached::{StandingAt, Value};
use tally_core::changes::{DeploymentId, Place};
use tally_core::fault::Fault;
use tally_core::fold::Counter;
use tally_core::ids::{CounterId, Region, Shard};
use tally_core::ports::Outcome;
use tally_core::regions::RemotePosition;
use tally_core::time::UnixMillis;
use tally_core::topic::{Offset, TopicId};

use super::changes::{decode_standing, encode_standing};
use super::checkpoints::key;
use super::connection::Connection;
use super::counters::encode;
use super::expression::Aliases;
use super::get::{self, Consistency};
use super::item::{Item, Reader, item, number, text};
use super::items::{Conditional, Items};
use super::names::checkpoints::{
    ADOPTED, AT, BEHIND, CONFIG, CUTS, DEPLOYMENT, END, ID, LOSS, NEXT, REGION, REMOTES, SAID, SOURCE, TOPIC_ID,
};
use super::names::counts::{POST_ID, VERSION};

const REMOTE: &str = "regions/";
const PUBLISHED: &str = "published/";

/// The Regions whose entries an answer adds up.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NamedRegions {
    /// This one, once it has a name.
    pub own: Option<Region>,
    /// The others.
    pub remotes: BTreeSet<Region>,
    /// When other tables were adopted last: entries of before are not in these.
    pub adopted: Option<UnixMillis>,
}

/// What this Region has published of a partition of its counters: everything that changed until the fold's stored position, and all
/// others as they were when it began to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Published {
    /// In which topic. In another one nothing is published yet.
    pub topic: TopicId,
    /// The end that the partition had. One that ends earlier has lost something.
    pub end: Offset,
    /// How often the topic has lost its end.
    pub cuts: u64,
    /// The last announcement of a loss before it began to. Behind another one, counters may have changed without a change in the
    /// log.
    pub loss: Option<Place>,
}

impl NamedRegions {
    pub(super) fn decode(reader: &Reader<'_>, config: &Item) -> Outcome<Self> {
        let named = |name: &str, text: &str| {
            Region::new(text).ok_or_else(|| reader.malformed(name, format!("{text:?} is no name of a Region")))
        };
        let own = reader.text(REGION)?.map(|own| named(REGION, own)).transpose()?;
        let remotes = match config.get(REMOTES) {
            None => BTreeSet::new(),
            Some(AttributeValue::Ss(names)) => names.iter().map(|name| named(REMOTES, name)).collect::<Outcome<_>>()?,
            Some(_) => return Err(reader.malformed(REMOTES, "it has to be a set of names")),
        };
        Ok(Self { own, remotes, adopted: reader.number(ADOPTED)?.map(UnixMillis) })
    }
}

/// What is stored of Regions.
#[derive(Clone, Debug)]
pub struct Regions {
    connection: Connection,
}

impl Regions {
    /// The Regions of a deployment.
    pub fn new(connection: &Connection) -> Self {
        Self { connection: connection.clone() }
    }

    fn table(&self) -> &str {
        &self.connection.tables.checkpoints
    }

    fn items(&self) -> Items<'_> {
        self.connection.items(self.table())
    }

    /// Names this Region, and others whose entries will be kept here. Safe to repeat.
    ///
    /// # Errors
    /// The table takes no write. [`Fault::Fatal`] where this Region has another name.
    pub async fn name(&self, own: &Region, remotes: &[Region]) -> Outcome<()> {
        let mut say = Aliases::default();
        let [id, region] = say.names([ID, REGION]);
        let name = say.value(text(own.as_str()));
        let condition = format!("attribute_exists({id}) AND (attribute_not_exists({region}) OR {region}={name})");
        let mut update = format!("SET {region}={name}");
        if !remotes.is_empty() {
            let names = remotes.iter().map(ToString::to_string).collect();
            update += &format!(" ADD {} {}", say.name(REMOTES), say.value(AttributeValue::Ss(names)));
        }
        match self.items().update_if(key(CONFIG), say, update, condition).await? {
            Conditional::Done(_) => Ok(()),
            Conditional::Refused(None) => Err(Fault::Transient("there is no `config` yet".to_owned())),
            Conditional::Refused(Some(config)) => {
                let stands = Reader::new(self.table(), &config).text(REGION)?.unwrap_or_default().to_owned();
                Err(Fault::Fatal(format!("this Region is called `{stands}`, and not `{own}`")))
            }
        }
    }

    /// Leaves a Region out of what is added up from now on. Safe to repeat.
    ///
    /// # Errors
    /// The table takes no write.
    pub async fn forget(&self, remote: &Region) -> Outcome<()> {
        let mut say = Aliases::default();
        let condition = format!("attribute_exists({})", say.name(ID));
        let update =
            format!("DELETE {} {}", say.name(REMOTES), say.value(AttributeValue::Ss(vec![remote.to_string()])));
        self.items().update_if(key(CONFIG), say, update, condition).await.map(drop)
    }

    /// Puts another Region's entry of a counter, unless one of this or a later version is there; whether it was put. Safe to
    /// repeat, late and by others: the latest version stays.
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
        put.insert(POST_ID.to_owned(), text(&*entry.stored()));
        let mut say = Aliases::default();
        let (name, version) = (say.name(VERSION), say.number(version));
        let condition = format!("attribute_not_exists({name}) OR {name}<{version}");
        let put = self.connection.items(&self.connection.tables.counts).put_if(put, say, condition).await?;
        Ok(matches!(put, Conditional::Done(_)))
    }

    /// How far a partition of a Region's topic was read; `None` before it was begun.
    ///
    /// # Errors
    /// The table cannot be read, or the item.
    pub async fn position(&self, region: &Region, partition: u32) -> Outcome<Option<RemotePosition>> {
        let found = self.items().get(key(&remote_key(region, partition))).await?;
        found.map(|found| decode(&Reader::new(self.table(), &found), &found)).transpose()
    }

    /// Stores how far a partition was read. Safe to repeat and to be overtaken by an older one: each is true by itself.
    ///
    /// # Errors
    /// The table takes no write.
    pub async fn store_position(&self, region: &Region, partition: u32, position: &RemotePosition) -> Outcome<()> {
        let RemotePosition { topic, adopted, next, said, behind, deployment, source, standing } = position;
        let mut stored = item([
            (ID, text(remote_key(region, partition))),
            (TOPIC_ID, text(&*topic.0)),
            (NEXT, number(next)),
            (SAID, number(said)),
            (BEHIND, number(behind)),
        ]);
        stored.extend(source.as_ref().map(|source| (SOURCE.to_owned(), text(&*source.0))));
        stored.extend(adopted.map(|adopted| (ADOPTED.to_owned(), number(adopted))));
        stored.extend(deployment.as_ref().map(|of| (DEPLOYMENT.to_owned(), text(&*of.0))));
        stored.extend(standing.iter().flat_map(encode_standing));
        self.items().put(stored).await
    }

    /// The standings of other Regions, in one request for each hundred: those that may be believed, and are of entries in the tables
    /// that there are.
    ///
    /// # Errors
    /// The table cannot be read, or one of the items.
    pub async fn standings(
        &self,
        named: &NamedRegions,
        partitions: u32,
    ) -> Outcome<BTreeMap<(Region, u32), StandingAt>> {
        let all =
            named.remotes.iter().flat_map(|region| (0..partitions).map(move |partition| (region.clone(), partition)));
        let ids: BTreeMap<String, (Region, u32)> =
            all.map(|(region, partition)| (remote_key(&region, partition), (region, partition))).collect();
        let keys: Vec<Item> = ids.keys().map(|id| key(id)).collect();
        let mut standings = BTreeMap::new();
        for found in get::items(&self.connection, self.table(), &keys, Consistency::Strong).await? {
            let reader = Reader::new(self.table(), &found);
            let of = ids.get(reader.required_text(ID)?).ok_or_else(|| reader.malformed(ID, "it was not asked for"))?;
            let RemotePosition { adopted, standing, .. } = decode(&reader, &found)?;
            if let Some(standing) = standing.filter(|_| adopted == named.adopted) {
                standings.insert(of.clone(), standing);
            }
        }
        Ok(standings)
    }

    /// What this Region has published of a partition; `None` where nothing is known.
    ///
    /// # Errors
    /// The table cannot be read, or the item.
    pub async fn published(&self, partition: u32) -> Outcome<Option<Published>> {
        let found = self.items().get(key(&format!("{PUBLISHED}{partition}"))).await?;
        let decode = |found: Item| {
            let reader = Reader::new(self.table(), &found);
            Ok(Published {
                topic: TopicId(reader.required_text(TOPIC_ID)?.into()),
                end: Offset(reader.required_number(END)?),
                cuts: reader.number(CUTS)?.unwrap_or_default(),
                loss: reader.number(LOSS)?.map(Place::from_stored),
            })
        };
        found.map(decode).transpose()
    }

    /// Stores what was published. Safe to repeat.
    ///
    /// # Errors
    /// The table takes no write.
    pub async fn store_published(&self, partition: u32, published: &Published) -> Outcome<()> {
        let Published { topic, end, cuts, loss } = published;
        let mut stored = item([
            (ID, text(format!("{PUBLISHED}{partition}"))),
            (TOPIC_ID, text(&*topic.0)),
            (END, number(end)),
            (CUTS, number(cuts)),
        ]);
        stored.extend(loss.map(|loss| (LOSS.to_owned(), number(loss))));
        self.items().put(stored).await
    }
}

fn remote_key(region: &Region, partition: u32) -> String {
    format!("{REMOTE}{region}/{partition}")
}

fn decode(reader: &Reader<'_>, found: &Item) -> Outcome<RemotePosition> {
    Ok(RemotePosition {
        topic: TopicId(reader.required_text(TOPIC_ID)?.into()),
        adopted: reader.number(ADOPTED)?.map(UnixMillis),
        next: Offset(reader.required_number(NEXT)?),
        said: UnixMillis(reader.required_number(SAID)?),
        behind: UnixMillis(reader.required_number(BEHIND)?),
        deployment: reader.text(DEPLOYMENT)?.map(|of| DeploymentId(of.into())),
        source: reader.text(SOURCE)?.map(|of| TopicId(of.into())),
        standing: found.contains_key(AT).then(|| decode_standing(reader)).transpose()?,
    })
}
