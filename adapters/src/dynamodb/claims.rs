//! Claims of Kafka partitions, and what the deployment knows of topics: items of the table `checkpoints`. Consumers
//! write under a claim, so that one that lost its partition finds that out.
//!
//! | id | what |
//! |---|---|
//! | `claim/<topic>/<partition>` | who writes the partition's rows, and how far they have come: [`Claim`] |
//! | `topic/<name>` | the topic's id and generations, what sums leave out, whether its consumers are paused: [`Topic`]
//! |
//!
//! All reads are consistent.

use std::collections::BTreeMap;

use aws_sdk_dynamodb::types::AttributeValue;
use tally_core::ports::Outcome;
use tally_core::register::{Claim, Earlier, Generation, Kept, Topic};
use tally_core::time::Bounds;
use tally_core::topic::{Offset, Partition};
use tally_service::Clock;

use super::checkpoints::key;
pub use super::clock::Confirmed;
use super::connection::{Connection, LIKES};
use super::item::{Item, Reader, flag, item, number, numbers, text};
use super::table::{Conditional, Consistency, Table, Values};

/// Reads and writes the claims and topics of a deployment.
#[derive(Clone, Debug)]
pub struct Claims {
    connection: Connection,
    clock: Clock,
}

impl Claims {
    /// Over this connection. `clock` measures how long a confirmation is good.
    pub fn new(connection: &Connection, clock: Clock) -> Self {
        Self { connection: connection.clone(), clock }
    }

    /// Returns bounds of the time by the store's clock, or the local time before its first answer.
    pub fn time(&self) -> Bounds {
        let local = self.clock.now();
        self.connection.store_clock().bounds().unwrap_or(Bounds { earliest: local, latest: local })
    }

    /// Takes a partition over by raising the number of its claim. Returns the claim and when it was confirmed.
    /// Statements under an earlier claim are sent for a short time at most. Safe to repeat: each copy raises the number
    /// once more, and an earlier owner finds that out when it stores.
    ///
    /// # Errors
    /// The table takes no write, or the item cannot be read.
    pub async fn raise(&self, partition: &Partition) -> Outcome<(Claim, Confirmed)> {
        self.connection.watch.open_to(LIKES)?;
        let confirmed = Confirmed::now(self.clock);
        let raised = self.table().update(key(&claim_id(partition)), "ADD #n :one", [(":one", number(1))]).await?;
        Ok((decode_claim(&self.table().reader(&raised))?, confirmed))
    }

    /// Stores how far the rows are under the claim `n`. Returns when the claim was confirmed, or `None` if it was
    /// raised meanwhile. Safe to repeat, also late: what was stored later stays.
    ///
    /// # Errors
    /// The table takes no write.
    pub async fn keep(&self, partition: &Partition, n: u64, kept: &Kept) -> Outcome<Option<Confirmed>> {
        let confirmed = Confirmed::now(self.clock);
        let mut values = Values::from([(":n", number(n)), (":at", number(kept.at))]);
        let update = values.update([
            ("at", Some(number(kept.at))),
            ("topic_id", Some(text(&*kept.topic.0))),
            ("gen", Some(number(kept.generation))),
            ("safe", Some(number(kept.safe))),
            ("greatest", Some(number(kept.greatest))),
            ("sent", Some(number(kept.sent))),
            ("past", Some(text(kept.past.to_string()))),
            ("safe_at", kept.safe_at.map(number)),
            ("earlier", (kept.earlier != Earlier::default()).then(|| text(kept.earlier.to_string()))),
            ("replay", kept.replay.map(number)),
            ("misrouted", kept.misrouted.then(|| flag(true))),
        ]);
        let condition = "#n=:n AND (attribute_not_exists(#at) OR #at<:at)";
        match self.table().update_if(key(&claim_id(partition)), &update, condition, values).await? {
            Conditional::Done(_) => Ok(Some(confirmed)),
            Conditional::Refused(None) => Ok(None),
            // An earlier copy of this request, or a later request of this process, was carried out.
            Conditional::Refused(Some(found)) => {
                let stands = decode_claim(&self.table().reader(&found))?;
                Ok((stands.n == n).then_some(confirmed))
            }
        }
    }

    /// Returns the claim of a partition.
    ///
    /// # Errors
    /// The table cannot be read, or the item.
    pub async fn read(&self, partition: &Partition) -> Outcome<Claim> {
        Ok(self.table().find(key(&claim_id(partition)), decode_claim).await?.unwrap_or_default())
    }

    /// Returns the claims of all partitions of a topic, in one request for each hundred.
    ///
    /// # Errors
    /// The table cannot be read, or one of the items.
    pub async fn all(&self, topic: &str, partitions: u32) -> Outcome<Vec<Claim>> {
        let id = |index| claim_id(&Partition { topic: topic.into(), index });
        let ids: Vec<String> = (0..partitions).map(id).collect();
        let keys: Vec<Item> = ids.iter().map(|id| key(id)).collect();
        let mut claims = BTreeMap::new();
        for found in self.table().get_all(&keys, Consistency::Strong).await? {
            let reader = self.table().reader(&found);
            claims.insert(reader.get::<String>("id")?, decode_claim(&reader)?);
        }
        Ok(ids.iter().map(|id| claims.remove(id).unwrap_or_default()).collect())
    }

    /// Raises the claims of all partitions of a topic, so that after a short time no statement under an earlier claim
    /// is sent. Safe to repeat, as [`raise`](Self::raise) is.
    ///
    /// # Errors
    /// The table takes no write.
    pub async fn raise_all(&self, topic: &str, partitions: u32) -> Outcome<()> {
        for index in 0..partitions {
            self.raise(&Partition { topic: topic.into(), index }).await?;
        }
        Ok(())
    }

    /// Returns what is stored of a topic, or `None` before a consumer has begun with it.
    ///
    /// # Errors
    /// The table cannot be read, or the item.
    pub async fn topic(&self, name: &str) -> Outcome<Option<Topic>> {
        self.table().find(key(&topic_id(name)), decode_topic).await
    }

    /// Stores a topic if none of that name is stored. Returns the stored one. Safe to repeat: a stored topic stays as
    /// it is.
    ///
    /// # Errors
    /// The table takes no write.
    pub async fn begin_topic(&self, name: &str, topic: &Topic) -> Outcome<Topic> {
        self.table().put_new(encode_topic(name, topic), "id", decode_topic).await
    }

    /// Replaces what is stored of a topic by `to`, if it still is `seen`. Returns whether `to` is stored afterwards.
    /// Safe to repeat: the condition is false once it was carried out.
    ///
    /// # Errors
    /// The table takes no write.
    pub async fn replace_topic(&self, name: &str, seen: &Topic, to: &Topic) -> Outcome<bool> {
        let compared = ["gen", "topic_id", "partitions", "begins", "paused"];
        let (seen, stored) = (encode_topic(name, seen), encode_topic(name, to));
        self.table().replace(seen, &compared, stored, (to, decode_topic)).await
    }

    fn table(&self) -> Table<'_> {
        self.connection.checkpoints()
    }
}

fn claim_id(partition: &Partition) -> String {
    format!("claim/{}/{}", partition.topic, partition.index)
}

fn topic_id(name: &str) -> String {
    format!("topic/{name}")
}

fn decode_claim(reader: &Reader<'_>) -> Outcome<Claim> {
    let n = reader.get("n")?;
    let Some(safe) = reader.get("safe")? else { return Ok(Claim { n, kept: None }) };
    let kept = Kept {
        topic: reader.get("topic_id")?,
        generation: reader.get("gen")?,
        safe,
        safe_at: reader.get("safe_at")?,
        earlier: reader.get::<Option<_>>("earlier")?.unwrap_or_default(),
        at: reader.get("at")?,
        greatest: reader.get("greatest")?,
        sent: reader.get("sent")?,
        past: reader.get("past")?,
        replay: reader.get("replay")?,
        misrouted: reader.get("misrouted")?,
    };
    Ok(Claim { n, kept: Some(kept) })
}

fn encode_topic(name: &str, topic: &Topic) -> Item {
    let begins =
        topic.generations.iter().map(|generation| (generation.number.to_string(), numbers(&generation.begins)));
    item! {
        "id": text(topic_id(name)),
        "topic_id": text(&*topic.id.0),
        "gen": number(topic.current().number),
        "partitions": number(topic.current().partitions()),
        "begins": AttributeValue::M(begins.collect()),
        "sums_from": (!topic.sums_from.is_empty()).then(|| numbers(&topic.sums_from)),
        "paused": topic.is_paused.then(|| flag(true)),
    }
}

fn decode_topic(reader: &Reader<'_>) -> Outcome<Topic> {
    let begins: BTreeMap<String, Vec<Offset>> = reader.get("begins")?;
    let generation = |(number, begins): (String, _)| {
        let number = number.parse().map_err(|error| reader.malformed("begins", error))?;
        Ok(Generation { number, begins })
    };
    let mut generations = begins.into_iter().map(generation).collect::<Outcome<Vec<_>>>()?;
    generations.sort_by_key(|generation| generation.number);
    if generations.is_empty() {
        return Err(reader.malformed("begins", "empty"));
    }
    let sums_from = reader.get::<Option<_>>("sums_from")?.unwrap_or_default();
    Ok(Topic { id: reader.get("topic_id")?, generations, sums_from, is_paused: reader.get("paused")? })
}
