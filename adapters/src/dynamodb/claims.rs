//! Claims of partitions, and what the deployment knows of topics: items of the table `checkpoints`.
//!
//! | id | what |
//! |---|---|
//! | `claim/<topic>/<partition>` | who writes the partition's rows, and how far they have come: [`Claim`] |
//! | `topic/<name>` | the topic's id and generations, what sums leave out, and whether its consumers are paused: [`Topic`] |
//!
//! All reads are consistent.

use std::collections::BTreeMap;

use aws_sdk_dynamodb::types::AttributeValue;
use tally_core::ports::Outcome;
use tally_core::register::{Claim, Generation, Kept, Past, Topic};
use tally_core::time::{Bounds, UnixMillis};
use tally_core::topic::{Offset, Partition, TopicId};
use tally_service::Clock;

use super::checkpoints::key;
use super::connection::Connection;
use super::expression::Aliases;
use super::get::{self, Consistency};
use super::item::{Item, Reader, flag, item, number, text};
use super::items::{Conditional, Items};
use super::names::LIKES;
use super::names::checkpoints::{
    AT, BEGINS, GENERATION, GREATEST, ID, MISROUTED, N, PARTITIONS, PAST, PAUSED, REPLAY, SAFE, SAFE_AT, SENT,
    SUMS_BEGIN, TOPIC_ID,
};
pub use super::signing::Confirmed;

/// The claims and topics of a deployment.
#[derive(Clone, Debug)]
pub struct Claims {
    connection: Connection,
    clock: Clock,
}

impl Claims {
    /// Over this connection. Confirmations are good by `clock`.
    pub fn new(connection: &Connection, clock: Clock) -> Self {
        Self { connection: connection.clone(), clock }
    }

    /// The time by the store's clock, as far as it is known.
    pub fn time(&self) -> Bounds {
        let local = self.clock.now();
        self.connection.store_clock().bounds().unwrap_or(Bounds { earliest: local, latest: local })
    }

    /// Takes a partition over: statements under an earlier claim are sent for a short time at most. Safe to repeat: each copy raises
    /// it once more, and an owner of before finds that out when it stores.
    ///
    /// # Errors
    /// The table takes no write, or the item cannot be read.
    pub async fn raise(&self, partition: &Partition) -> Outcome<(Claim, Confirmed)> {
        self.connection.watch.open_to(LIKES)?;
        let confirmed = Confirmed::now(self.clock);
        let mut say = Aliases::default();
        let add = format!("ADD {} {}", say.name(N), say.number(1));
        let raised = self.items().update(key(&claim_id(partition)), say, add).await?;
        Ok((decode_claim(&self.reader(&raised))?, confirmed))
    }

    /// Stores how far the rows have come under the claim `n`, unless it was raised meanwhile: then `None`. Safe to repeat, also
    /// late: what was stored later stays.
    ///
    /// # Errors
    /// The table takes no write.
    pub async fn keep(&self, partition: &Partition, n: u64, kept: &Kept) -> Outcome<Option<Confirmed>> {
        let confirmed = Confirmed::now(self.clock);
        let mut say = Aliases::default();
        let mut stored = vec![
            (TOPIC_ID, text(&*kept.topic.0)),
            (GENERATION, number(kept.generation)),
            (SAFE, number(kept.safe)),
            (GREATEST, number(kept.greatest)),
            (SENT, number(kept.sent)),
            (PAST, text(kept.past.to_string())),
        ];
        stored.extend(kept.safe_at.map(|at| (SAFE_AT, number(at))));
        stored.extend(kept.replay.map(|until| (REPLAY, number(until))));
        stored.extend(kept.misrouted.then(|| (MISROUTED, flag(true))));
        let set = stored.into_iter().map(|(name, value)| format!("{}={}", say.name(name), say.value(value)));
        let mut update = format!("SET {}", set.collect::<Vec<_>>().join(","));
        let (at, moment) = (say.name(AT), say.number(kept.at));
        update.push_str(&format!(",{at}={moment}"));
        let none = [(SAFE_AT, kept.safe_at.is_none()), (REPLAY, kept.replay.is_none()), (MISROUTED, !kept.misrouted)];
        let none: Vec<_> = none.into_iter().filter(|(_, is_none)| *is_none).map(|(name, _)| say.name(name)).collect();
        if !none.is_empty() {
            update.push_str(&format!(" REMOVE {}", none.join(",")));
        }
        let ours = format!("{}={}", say.name(N), say.number(n));
        let condition = format!("{ours} AND (attribute_not_exists({at}) OR {at}<{moment})");
        match self.items().update_if(key(&claim_id(partition)), say, update, condition).await? {
            Conditional::Done(_) => Ok(Some(confirmed)),
            Conditional::Refused(None) => Ok(None),
            // A copy of this request, or a later one of ours, may have been carried out before.
            Conditional::Refused(Some(found)) => {
                let stands = decode_claim(&self.reader(&found))?;
                Ok((stands.n == n).then_some(confirmed))
            }
        }
    }

    /// The claim of a partition.
    ///
    /// # Errors
    /// The table cannot be read, or the item.
    pub async fn read(&self, partition: &Partition) -> Outcome<Claim> {
        let found = self.items().get(key(&claim_id(partition))).await?;
        found.map_or_else(|| Ok(Claim::default()), |found| decode_claim(&self.reader(&found)))
    }

    /// The claims of all partitions of a topic, in one request for each hundred.
    ///
    /// # Errors
    /// The table cannot be read, or one of the items.
    pub async fn all(&self, topic: &str, partitions: u32) -> Outcome<Vec<Claim>> {
        let id = |index| claim_id(&Partition { topic: topic.into(), index });
        let ids: Vec<String> = (0..partitions).map(id).collect();
        let keys: Vec<Item> = ids.iter().map(|id| key(id)).collect();
        let mut claims = BTreeMap::new();
        for found in get::items(&self.connection, self.table(), &keys, Consistency::Strong).await? {
            let reader = self.reader(&found);
            claims.insert(reader.required_text(ID)?.to_owned(), decode_claim(&reader)?);
        }
        Ok(ids.iter().map(|id| claims.remove(id).unwrap_or_default()).collect())
    }

    /// Raises the claims of all partitions of a topic, so that no statement of an earlier claim is sent any more after a short
    /// time. Safe to repeat.
    ///
    /// # Errors
    /// The table takes no write.
    pub async fn raise_all(&self, topic: &str, partitions: u32) -> Outcome<()> {
        for index in 0..partitions {
            self.raise(&Partition { topic: topic.into(), index }).await?;
        }
        Ok(())
    }

    /// What is known of a topic; `None` before it is read for the first time.
    ///
    /// # Errors
    /// The table cannot be read, or the item.
    pub async fn topic(&self, name: &str) -> Outcome<Option<Topic>> {
        let found = self.items().get(key(&topic_id(name))).await?;
        found.map(|found| decode_topic(&self.reader(&found))).transpose()
    }

    /// Takes a topic in where none of that name is known; answers the one that is. Safe to repeat: what is there stays.
    ///
    /// # Errors
    /// The table takes no write.
    pub async fn begin_topic(&self, name: &str, topic: &Topic) -> Outcome<Topic> {
        let stands = self.items().put_new(encode_topic(name, topic), ID).await?;
        decode_topic(&self.reader(&stands))
    }

    /// Puts `to` in the place of what is known of a topic, if that still is as `seen`; whether `to` is there. Safe to repeat:
    /// the condition is false once it was carried out.
    ///
    /// # Errors
    /// The table takes no write.
    pub async fn replace_topic(&self, name: &str, seen: &Topic, to: &Topic) -> Outcome<bool> {
        let mut say = Aliases::default();
        let stands = encode_topic(name, seen);
        let mut same: Vec<String> = [GENERATION, TOPIC_ID, PARTITIONS, BEGINS]
            .map(|attribute| format!("{}={}", say.name(attribute), say.value(stands[attribute].clone())))
            .into();
        let paused = say.name(PAUSED);
        same.push(match stands.get(PAUSED) {
            Some(value) => format!("{paused}={}", say.value(value.clone())),
            None => format!("attribute_not_exists({paused})"),
        });
        match self.items().put_if(encode_topic(name, to), say, same.join(" AND ")).await? {
            Conditional::Done(_) => Ok(true),
            Conditional::Refused(found) => {
                let found = found.map(|found| decode_topic(&self.reader(&found))).transpose()?;
                Ok(found.is_some_and(|found| found == *to))
            }
        }
    }

    fn reader<'a>(&'a self, item: &'a Item) -> Reader<'a> {
        Reader::new(self.table(), item)
    }

    fn table(&self) -> &str {
        &self.connection.tables.checkpoints
    }

    fn items(&self) -> Items<'_> {
        self.connection.items(self.table())
    }
}

fn claim_id(partition: &Partition) -> String {
    format!("claim/{}/{}", partition.topic, partition.index)
}

fn topic_id(name: &str) -> String {
    format!("topic/{name}")
}

fn decode_claim(reader: &Reader<'_>) -> Outcome<Claim> {
    let n = reader.required_number(N)?;
    let Some(safe) = reader.number(SAFE)?.map(Offset) else { return Ok(Claim { n, kept: None }) };
    let kept = Kept {
        topic: TopicId(reader.required_text(TOPIC_ID)?.into()),
        generation: reader.required_number(GENERATION)?,
        safe,
        safe_at: reader.number(SAFE_AT)?.map(UnixMillis),
        at: UnixMillis(reader.required_number(AT)?),
        greatest: Offset(reader.required_number(GREATEST)?),
        sent: Offset(reader.required_number(SENT)?),
        past: reader.required::<Past>(PAST)?,
        replay: reader.number(REPLAY)?.map(Offset),
        misrouted: reader.flag(MISROUTED)?,
    };
    Ok(Claim { n, kept: Some(kept) })
}

fn encode_topic(name: &str, topic: &Topic) -> Item {
    let begins = topic.generations.iter().map(|generation| {
        let begins = generation.begins.iter().map(number).collect();
        (generation.number.to_string(), AttributeValue::L(begins))
    });
    let mut stored = item([
        (ID, text(topic_id(name))),
        (TOPIC_ID, text(&*topic.id.0)),
        (GENERATION, number(topic.current().number)),
        (PARTITIONS, number(topic.current().partitions())),
        (BEGINS, AttributeValue::M(begins.collect())),
    ]);
    if !topic.sums_from.is_empty() {
        stored.insert(SUMS_BEGIN.to_owned(), AttributeValue::L(topic.sums_from.iter().map(number).collect()));
    }
    if topic.is_paused {
        stored.insert(PAUSED.to_owned(), flag(true));
    }
    stored
}

fn decode_topic(reader: &Reader<'_>) -> Outcome<Topic> {
    let begins = reader.map(BEGINS)?.ok_or_else(|| reader.malformed(BEGINS, "missing"))?;
    let generation = |(generation, begins): (&String, &AttributeValue)| {
        let number = generation.parse().map_err(|error| reader.malformed(BEGINS, error))?;
        let AttributeValue::L(begins) = begins else { return Err(reader.malformed(BEGINS, "not a map of lists")) };
        Ok(Generation { number, begins: offsets(reader, BEGINS, begins)? })
    };
    let mut generations = begins.iter().map(generation).collect::<Outcome<Vec<_>>>()?;
    generations.sort_by_key(|generation| generation.number);
    if generations.is_empty() {
        return Err(reader.malformed(BEGINS, "empty"));
    }
    let id = TopicId(reader.required_text(TOPIC_ID)?.into());
    let sums_from = offsets(reader, SUMS_BEGIN, reader.list(SUMS_BEGIN)?.unwrap_or_default())?;
    Ok(Topic { id, generations, sums_from, is_paused: reader.flag(PAUSED)? })
}

fn offsets(reader: &Reader<'_>, attribute: &str, list: &[AttributeValue]) -> Outcome<Vec<Offset>> {
    list.iter().map(|offset| reader.as_number(attribute, offset).map(Offset)).collect()
}
