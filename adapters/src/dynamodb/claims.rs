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

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use aws_sdk_dynamodb::types::AttributeValue;
use tally_core::changes::Standing;
use tally_core::definitions::Definitions;
use tally_core::ids::CounterId;
use tally_core::ports::Outcome;
use tally_core::register::{Claim, Earlier, Generation, Kept, LastRead, SafeTimes, Topic};
use tally_core::served;
use tally_core::time::{Bounds, UnixMillis};
use tally_core::topic::{Offset, Partition, TopicId};
use tally_service::Clock;

use super::checkpoints::key;
pub use super::clock::Confirmed;
use super::connection::{Connection, LIKES};
use super::item::{Item, Reader, flag, item, number, numbers, text};
use super::table::{Consistency, Table, Values};

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
            ("last", kept.last.map(|last| numbers(&[last.at.0, last.fingerprint]))),
        ]);
        let condition = "#n=:n AND (attribute_not_exists(#at) OR #at<:at)";
        match self.table().update_if(key(&claim_id(partition)), &update, condition, values).await? {
            Ok(_) => Ok(Some(confirmed)),
            Err(None) => Ok(None),
            // An earlier copy of this request, or a later request of this process, may have been carried out.
            Err(Some(found)) => {
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
        let ids = (0..partitions).map(|index| (claim_id(&Partition { topic: topic.into(), index }), index));
        let mut claims = self.table().find_all(("id", Item::new()), ids, Consistency::Strong, decode_claim).await?;
        Ok((0..partitions).map(|index| claims.remove(&index).unwrap_or_default()).collect())
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
        self.table().put_new(encode_topic(name, topic), decode_topic).await
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
        last: match reader.get::<Option<Vec<u64>>>("last")?.as_deref() {
            Some(&[at, fingerprint]) => Some(LastRead { at: Offset(at), fingerprint }),
            _ => None,
        },
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

/// What consumers have stored of every topic, as it was last read: for each partition a time `safe_at`, by which all
/// events that Kafka had acknowledged are rows. The API computes from it up to when an answer counts everything (`as_of`).
#[derive(Clone, Debug, Default)]
pub struct Topics {
    defined: Definitions,
    /// The topic of counters whose definition names none.
    usual: Arc<str>,
    of: BTreeMap<String, Partitions>,
    /// The topics that no consumer has begun with.
    missing: BTreeSet<String>,
}

/// The partitions of one generation of a topic.
#[derive(Clone, Debug)]
struct Partitions {
    topic: TopicId,
    generation: u16,
    safe: Vec<SafeTimes>,
}

impl Topics {
    /// Before anything was read.
    pub fn new(usual: &str) -> Self {
        Self { usual: usual.into(), ..Self::default() }
    }

    /// A topic of one partition whose events are in the rows at any time, for tests.
    pub fn of_one() -> Self {
        let mut times = SafeTimes::default();
        times.note(UnixMillis(0), Some(UnixMillis::MAX));
        let partitions = Partitions { topic: TopicId("t".into()), generation: 1, safe: vec![times] };
        Self { of: [("likes".to_owned(), partitions)].into(), ..Self::new("likes") }
    }

    /// Returns the partitions that a counter's events may come from: for a set that of its subject, unless a partition
    /// has had misrouted events; otherwise all. `None` where they are not known.
    pub fn of(&self, id: &CounterId) -> Option<&[SafeTimes]> {
        let definition = self.defined.iter().find(|definition| definition.name == id.name)?;
        let safe = &self.of.get(definition.topic.as_deref().unwrap_or(&self.usual))?.safe;
        Some(served::sources(id, safe)).filter(|sources| !sources.is_empty())
    }

    /// Returns the `as_of` of counts with this standing: all events that Kafka had acknowledged by then, in any topic,
    /// are in.
    pub fn by(&self, standing: &Standing) -> Option<UnixMillis> {
        let is_known = !self.of.is_empty() && self.missing.is_empty();
        served::as_of(standing, self.all()).filter(|_| is_known)
    }

    /// Returns every partition of the known topics.
    pub fn all(&self) -> impl Iterator<Item = &SafeTimes> {
        self.of.values().flat_map(|partitions| &partitions.safe)
    }

    /// Reads what is stored now, and adds what was known before. Forgets what was known of an earlier generation of a
    /// topic: a key may have hashed to another partition then.
    ///
    /// # Errors
    /// The table cannot be read.
    pub async fn read(&self, claims: &Claims, defined: Definitions) -> Outcome<Self> {
        let mut names: Vec<&str> = defined.iter().map(|it| it.topic.as_deref().unwrap_or(&self.usual)).collect();
        names.sort_unstable();
        names.dedup();
        let (mut of, mut missing) = (BTreeMap::new(), BTreeSet::new());
        for name in names {
            let Some(topic) = claims.topic(name).await? else {
                missing.insert(name.to_owned());
                continue;
            };
            let (id, generation) = (topic.id.clone(), topic.current().number);
            let read = claims.all(name, topic.current().partitions()).await?;
            let before = self.of.get(name).filter(|before| before.topic == id && before.generation == generation);
            let mut safe = before.map_or_else(|| vec![SafeTimes::default(); read.len()], |before| before.safe.clone());
            for (times, claim) in safe.iter_mut().zip(&read) {
                let kept = claim.kept.iter().filter(|kept| kept.topic == id && kept.generation == generation);
                kept.for_each(|kept| times.take(kept));
            }
            of.insert(name.to_owned(), Partitions { topic: id, generation, safe });
        }
        for topic in missing.difference(&self.missing) {
            tracing::warn!(topic, "no consumer has begun with this topic: no count of its events is exact");
        }
        Ok(Self { of, usual: Arc::clone(&self.usual), defined, missing })
    }
}
