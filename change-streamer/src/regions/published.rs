//! Publishes a partition's counters for other Regions: every second those that have changed, and behind them the
//! standing, which says up to when all changes are counted and which losses are open.
//!
//! The topic keeps the last message of each counter, so an older value must not land behind a newer one. Therefore a
//! fold writes in transactions, under a name that it takes over when it begins; one that has lost its partition can
//! finish none. And all that is before a standing has to be published: so counters are published before the fold stores
//! its position.
//!
//! Counters that have not changed since the topic was begun are published once, by a scan of the table, the *seed*. It
//! runs again behind each announcement of a loss, since counters may then differ without a change in the log: in a
//! table that was lost and restored, or behind a lost end of the log. A counter that the topic has and the table has
//! not is published as 0.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use tally_adapters::dynamodb::regions::Published;
use tally_adapters::dynamodb::{Cursor, Segment};
use tally_core::cached::{StandingAt, Value};
use tally_core::changes::{Place, Standing};
use tally_core::event::partition_of;
use tally_core::fault::Fault;
use tally_core::ids::CounterId;
use tally_core::ports::log::Outgoing;
use tally_core::ports::{Outcome, Transactions};
use tally_core::regions::{Told, ToldMessage};
use tally_core::time::UnixMillis;
use tally_core::topic::{Log, Offset, Partition, TopicId};
use tokio::time::Instant;

use super::Publishing;

/// How often a fold publishes.
const EVERY: Duration = Duration::from_secs(1);

/// How many counters one transaction has at most.
const AT_ONCE: usize = 5_000;

/// How long the seed keeps the fold from its other work, each time the fold publishes.
const SEED_FOR: Duration = Duration::from_millis(250);

/// The publisher of one partition.
pub(crate) struct Publisher {
    of: Arc<Publishing>,
    partition: u32,
    writer: Box<dyn Transactions>,
    /// The topic, and how often it has lost its end. A copy of what was there before may lack what is published now.
    topic: TopicId,
    cuts: u64,
    /// The offset that the partition has reached. Only this fold appends to it: if the end is smaller, Kafka lost some.
    end: Offset,
    /// The counters that have changed and are not published yet.
    waiting: BTreeMap<CounterId, Value>,
    /// What is stored of the topic once everything is published; `None` while the seed is under way.
    published: Option<Published>,
    seed: Seed,
    /// Since when the counters are in another table than before, if they are. A standing knows of that loss only if its
    /// `as_of` is later.
    since: Option<UnixMillis>,
    /// When the fold publishes next.
    due: Instant,
}

/// How far the seed is.
#[derive(Default)]
struct Seed {
    /// Up to where the topic was read.
    read: Offset,
    /// Counters that the topic has and that the scan of the table has not met yet.
    stale: BTreeSet<CounterId>,
    /// Where the scan of the table goes on; `None` before it has begun.
    scanned: Option<Cursor>,
    /// Whether the topic, and the table, were read to their end.
    is_read: bool,
    is_scanned: bool,
}

impl Publisher {
    /// Takes the partition over from other folds, before this one writes anything of it.
    ///
    /// # Errors
    /// Kafka or the table does not answer.
    pub(crate) async fn begin(of: &Arc<Publishing>, partition: u32) -> Outcome<Self> {
        let writer = (of.ports.transactions)(&format!("tally/{}/{}/{partition}", of.log.deployment.0, of.ports.topic));
        writer.take_over().await?;
        let log = of.ports.reader.log(&Partition { topic: of.ports.topic.as_str().into(), index: partition }).await?;
        let stored = of.store.published(partition).await?;
        let stored = match stored.filter(|stored| stored.topic == log.topic) {
            Some(stored) if !stored.torn && stored.end > log.end => {
                // Stored before anything is written: once the partition has grown again, nothing else shows the loss.
                let torn = Published { end: log.end, cuts: stored.cuts + 1, torn: true, ..stored };
                of.store.store_published(partition, &torn).await?;
                Some(torn)
            }
            stored => stored,
        };
        let cuts = stored.as_ref().map_or(0, |stored| stored.cuts);
        let published = stored.filter(|stored| !stored.torn);
        let since = of.counters.reserved_since().await?;
        let (of, topic, end, waiting, seed) = (Arc::clone(of), log.topic, log.end, BTreeMap::new(), Seed::default());
        Ok(Self { of, partition, writer, topic, cuts, end, waiting, published, seed, since, due: Instant::now() })
    }

    /// Takes note of counters as they were written to the table. It is another table than before since `since`, if it is.
    pub(crate) fn note(&mut self, values: &[(CounterId, Value)], since: Option<UnixMillis>) {
        self.since = self.since.max(since);
        self.waiting.extend(values.iter().cloned());
    }

    /// Returns whether it is time to publish.
    pub(crate) fn is_due(&self, now: Instant) -> bool {
        now >= self.due
    }

    /// Publishes what has changed, and the standing behind it; `stated` has to be true of the table. After a fault the
    /// caller has to [begin](Self::begin) again, and to publish again from the stored position on.
    ///
    /// # Errors
    /// Kafka or the table does not answer, or another fold has taken the partition over.
    pub(crate) async fn publish(&mut self, stated: &StandingAt, now: UnixMillis) -> Outcome<()> {
        self.due = Instant::now() + EVERY;
        self.look_at_topic().await?;
        if self.published.as_ref().is_some_and(|published| published.loss != stated.standing.loss) {
            (self.published, self.seed) = (None, Seed::default());
        }
        // A counter may lack what the lost table had. Once the standing knows of the loss, everything is published anew.
        let in_doubt = self.since.is_some_and(|since| stated.standing.as_of.is_none_or(|as_of| as_of <= since));
        if in_doubt {
            self.seed = Seed::default();
            if let Some(published) = self.published.clone().filter(|published| published.loss.is_some()) {
                // Another fold that takes over before that has to publish everything anew, too.
                self.keep(Published { loss: None, ..published }).await?;
            }
        } else if self.published.is_none() && !self.seed.is_done() {
            self.seed().await?;
        }
        let is_whole = !in_doubt && (self.published.is_some() || self.seed.is_done());
        // What is published anew has everything before this place. It has to replace what was published in doubt.
        let least = if in_doubt || self.published.is_some() { Place::default() } else { stated.at };
        loop {
            let behind = self.waiting.keys().nth(AT_ONCE).cloned();
            let left = behind.map(|key| self.waiting.split_off(&key)).unwrap_or_default();
            let part = std::mem::replace(&mut self.waiting, left);
            let is_last = self.waiting.is_empty();
            // Readers get the counters before the standing. Beside an earlier standing, which does not know of the last loss, they
            // must not call exact what that loss may have changed.
            let told = |value: Value| Value {
                version: value.version.max(least),
                gap: value.gap.max(stated.standing.loss),
                doubtful: value.doubtful || in_doubt,
                ..value
            };
            let counted = part.into_iter().map(|(counter, value)| Told::Counted(counter, told(value)));
            let standing = || {
                let as_of = self.of.safe.borrow().by(&stated.standing);
                Told::Stated(StandingAt { at: stated.at, standing: Standing { as_of, ..stated.standing.clone() } })
            };
            let told: Vec<Told> = counted.chain((is_last && is_whole).then(standing)).collect();
            self.write(told, now).await?;
            if is_last {
                break;
            }
        }
        if is_whole && self.published.is_none() {
            let log = self.log().await?;
            if log.topic != self.topic {
                return Err(Fault::Transient(format!("the topic `{}` is another one now", self.of.ports.topic)));
            }
            let (topic, cuts, loss) = (log.topic, self.cuts, stated.standing.loss);
            self.keep(Published { topic, end: log.end, cuts, torn: false, loss }).await?;
        }
        // The next fold compares this end with the topic's, and so finds out if the topic has lost its end.
        match self.published.clone().filter(|published| published.end != self.end) {
            Some(published) => self.keep(Published { end: self.end, ..published }).await,
            None => Ok(()),
        }
    }

    /// Looks whether the topic is the one that was written, with its end. Otherwise everything is published anew.
    async fn look_at_topic(&mut self) -> Outcome<()> {
        let log = self.log().await?;
        if log.topic == self.topic && log.end >= self.end {
            return Ok(());
        }
        tracing::error!(topic = %self.of.ports.topic, partition = self.partition, "the topic of counts is another one, or lost its end: it is published anew");
        self.cuts = if log.topic == self.topic { self.cuts + 1 } else { 0 };
        let (topic, end, loss) = (log.topic.clone(), log.end, None);
        self.keep(Published { topic, end, cuts: self.cuts, torn: true, loss }).await?;
        (self.topic, self.end, self.published, self.seed) = (log.topic, log.end, None, Seed::default());
        Ok(())
    }

    async fn log(&self) -> Outcome<Log> {
        self.of.ports.reader.log(&self.topic_partition()).await
    }

    fn topic_partition(&self) -> Partition {
        Partition { topic: self.of.ports.topic.as_str().into(), index: self.partition }
    }

    async fn keep(&mut self, published: Published) -> Outcome<()> {
        self.of.store.store_published(self.partition, &published).await?;
        self.published = Some(published);
        Ok(())
    }

    async fn write(&mut self, told: Vec<Told>, now: UnixMillis) -> Outcome<()> {
        let topic = match self.cuts {
            0 => self.topic.clone(),
            cuts => TopicId(format!("{}+{cuts}", self.topic).into()),
        };
        let message = |told| {
            let (deployment, region, topic) =
                (self.of.log.deployment.clone(), self.of.ports.name.clone(), topic.clone());
            ToldMessage { deployment, region, topic, partition: self.partition, said: now, told }.record()
        };
        let records: Vec<(String, Vec<u8>)> = told.into_iter().map(message).collect();
        if records.is_empty() {
            return Ok(());
        }
        let outgoing: Vec<Outgoing<'_>> = records
            .iter()
            .map(|(key, value)| Outgoing {
                topic: &self.of.ports.topic,
                partition: Some(self.partition),
                key: Some(key.as_bytes()),
                value: Some(value),
                headers: &[],
            })
            .collect();
        self.writer.write(&outgoing).await?;
        let least = Offset(self.end.0 + outgoing.len() as u64);
        let log = self.log().await?;
        // If records were lost just before this write, `least` is behind the topic's end, and the next look finds that.
        self.end = if log.topic == self.topic { log.end.max(least) } else { log.end };
        Ok(())
    }

    /// Goes on with the seed for a while. Only this fold writes the counters of the partition, and it does nothing else
    /// meanwhile, so what it reads has everything that this fold has written.
    async fn seed(&mut self) -> Outcome<()> {
        let until = Instant::now() + SEED_FOR;
        while Instant::now() < until && !self.seed.is_done() {
            if self.seed.is_read { self.scan().await? } else { self.read().await? }
        }
        Ok(())
    }

    /// Reads a page of the topic, and notes which counters it has.
    async fn read(&mut self) -> Outcome<()> {
        let (partition, log) = (self.topic_partition(), self.log().await?);
        let from = self.seed.read.max(log.start);
        let records = self.of.ports.reader.read(&partition, from, log.end).await?;
        let Some(last) = records.last_offset() else {
            self.seed.is_read = true;
            return Ok(());
        };
        self.seed.read = last.next();
        for record in records.iter() {
            let read = ToldMessage::read(record.key.unwrap_or_default(), record.value.unwrap_or_default());
            match read {
                Ok(message) if message.deployment == self.of.log.deployment && message.region == self.of.ports.name => {
                    if let Told::Counted(counter, _) = message.told {
                        self.seed.stale.insert(counter);
                    }
                }
                // Readers in other Regions refuse it.
                _ => tracing::error!(%partition, offset = %record.offset, "a record in `counts` is of another writer"),
            }
        }
        Ok(())
    }

    /// Reads a page of the table. A counter whose item cannot be read is published as doubtful.
    async fn scan(&mut self) -> Outcome<()> {
        let page = self.of.counters.scan(Segment { index: 0, of: 1 }, self.seed.scanned.as_ref()).await?;
        for (counter, found) in page.items {
            if partition_of(counter.post.as_bytes(), self.of.log.partitions) != self.partition {
                continue;
            }
            self.seed.stale.remove(&counter);
            let value = found.as_ref().map_or_else(|_| Value { doubtful: true, ..Value::default() }, Value::from);
            self.waiting.entry(counter).or_insert(value);
        }
        self.seed.scanned = page.next;
        if self.seed.scanned.is_none() {
            self.seed.is_scanned = true;
            for counter in std::mem::take(&mut self.seed.stale) {
                self.waiting.entry(counter).or_default();
            }
        }
        Ok(())
    }
}

impl Seed {
    fn is_done(&self) -> bool {
        self.is_read && self.is_scanned
    }
}
