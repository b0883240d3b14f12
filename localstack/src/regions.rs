//! Two Regions in one process. `eu` is the pipeline that the page shows, `us` a second one with engines and a load of its own, and
//! between them a mirror copies what each publishes of its counts.
//!
//! The embedded Kafka keeps 5 MiB of a partition and cannot compact, and a reader refuses a copy whose beginning is gone. So the
//! copies are topics in memory, which are compacted.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tally_adapters::kafka;
use tally_adapters::memory::log::Broker;
use tally_change_streamer as streamer;
use tally_core::ids::Region;
use tally_core::ports::log::Outgoing;
use tally_core::ports::{Outcome, TopicReader};
use tally_core::regions::{LAG, STANDING_KEY, ToldMessage};
use tally_core::topic::{Offset, Partition};
use tally_service::{Clock, Host, Stage, Stop, Task};
use tokio::sync::watch;
use tokio::time::Instant;

use crate::engine::{CHANGES_PARTITIONS, COUNTS, Engines, TOPIC};
use crate::local::Local;

/// How often the mirror looks; it copies what it found when it looked before.
const DELAY: Duration = Duration::from_millis(500);
/// How often a copy is compacted.
const COMPACT_EVERY: Duration = Duration::from_secs(60);

/// The second Region, and the mirror between the two.
pub(crate) struct Abroad {
    pub(crate) us: Arc<Local>,
    /// Whether the mirror copies.
    pub(crate) mirror: watch::Sender<bool>,
}

/// A Region, as its change-streamer needs to know it.
#[derive(Clone)]
pub(crate) struct Home {
    pub(crate) name: &'static str,
    /// The other one.
    other: &'static str,
    /// Has the copy of the other's topic.
    copies: Broker,
}

impl Home {
    pub(crate) fn eu() -> Self {
        Self::new("eu", "us")
    }

    pub(crate) fn us() -> Self {
        Self::new("us", "eu")
    }

    fn new(name: &'static str, other: &'static str) -> Self {
        let home = Self { name, other, copies: Broker::new() };
        home.copies.create_topic(&home.copied(), CHANGES_PARTITIONS);
        home
    }

    /// What the copy is called.
    fn copied(&self) -> String {
        format!("{}.{COUNTS}", self.other)
    }

    pub(crate) fn rules(&self) -> streamer::RegionRules {
        let name = |name| Region::new(name).expect("small letters make a Region");
        let remotes = vec![(name(self.other), self.copied())];
        streamer::RegionRules { name: name(self.name), topic: COUNTS.to_owned(), usual: TOPIC.to_owned(), remotes }
    }

    /// Its own topic in its Kafka, and the copy of the other's.
    ///
    /// # Errors
    /// Settings that a client does not take.
    pub(crate) fn ports(&self, kafka: &kafka::Settings, group: &str) -> anyhow::Result<streamer::RegionPorts> {
        let rules = self.rules();
        let remote = |(region, topic): &(Region, String)| {
            let (copies, group, name) = (self.copies.clone(), format!("{group}-{region}"), topic.clone());
            let reader = Arc::new(copies.reader(&group, topic));
            let join = move || Ok(Box::new(copies.join(&group, &name)) as _);
            streamer::RemotePorts { region: region.clone(), topic: topic.clone(), reader, join: Arc::new(join) }
        };
        let remotes = rules.remotes.iter().map(remote).collect();
        let own = streamer::RegionPorts::over(kafka, &streamer::RegionRules { remotes: Vec::new(), ..rules }, group)?;
        Ok(streamer::RegionPorts { remotes, ..own })
    }

    /// Starts to copy what the other Region publishes in its Kafka.
    ///
    /// # Errors
    /// Settings that a client does not take.
    pub(crate) fn mirror(&self, of: &Engines, copies: watch::Receiver<bool>, host: &Host) -> anyhow::Result<()> {
        let reader = Arc::new(kafka::TopicReader::new(&of.kafka.settings, "mirror", COUNTS)?);
        let (to, topic, clock) = (self.copies.clone(), self.copied(), host.clock());
        let mirror = Mirror { from: reader, to, topic, copies, clock, lanes: BTreeMap::new() };
        host.spawn(Stage::Support, &format!("mirror to {}", self.name), mirror);
        Ok(())
    }
}

/// The task that copies one Region's topic to the other. While it is cut it goes on reading, and keeps the last message of each key: the
/// embedded Kafka deletes what is not read in time.
struct Mirror {
    from: Arc<dyn TopicReader>,
    to: Broker,
    topic: String,
    /// Whether it copies.
    copies: watch::Receiver<bool>,
    clock: Clock,
    lanes: BTreeMap<u32, Lane>,
}

/// A partition: what was read of it, and is not copied yet.
#[derive(Default)]
struct Lane {
    next: Offset,
    entries: BTreeMap<Vec<u8>, Vec<u8>>,
    standing: Option<Vec<u8>>,
}

impl Mirror {
    async fn read(&mut self) -> Outcome<()> {
        for (partition, log) in self.from.logs().await? {
            let Self { from, lanes, .. } = self;
            let lane = lanes.entry(partition.index).or_default();
            lane.read(&**from, &partition, log.end).await?;
        }
        Ok(())
    }

    fn copy(&mut self) -> Outcome<()> {
        let at = self.clock.now();
        for (index, lane) in &mut self.lanes {
            let send = |key: &[u8], value: &[u8]| {
                let (key, value) = (Some(key), Some(value));
                let record = Outgoing { topic: &self.topic, partition: Some(*index), key, value, headers: &[] };
                self.to.write(record, at)
            };
            // A standing is about the entries before it, so it comes last.
            for (key, value) in std::mem::take(&mut lane.entries) {
                send(&key, &value)?;
            }
            if let Some(value) = lane.standing.take() {
                send(STANDING_KEY.as_bytes(), &value)?;
            }
        }
        Ok(())
    }

    /// Forgets what a reader may miss: it relies on finding every message that is not older than this.
    fn compact(&self) {
        let now = self.clock.now();
        let is_old = |said| now.since(said) > LAG + COMPACT_EVERY;
        self.to.compact(&self.topic, |value| ToldMessage::said_of(value).is_some_and(is_old));
    }
}

impl Lane {
    async fn read(&mut self, from: &dyn TopicReader, partition: &Partition, end: Offset) -> Outcome<()> {
        while self.next < end {
            let records = from.read(partition, self.next, end).await?;
            let Some(last) = records.last_offset() else { break };
            for record in records.iter() {
                let (key, value) = (record.key.unwrap_or_default(), record.value.unwrap_or_default().to_vec());
                if key == STANDING_KEY.as_bytes() {
                    self.standing = Some(value);
                } else {
                    self.entries.insert(key.to_vec(), value);
                }
            }
            self.next = last.next();
        }
        Ok(())
    }
}

impl Task for Mirror {
    async fn run(mut self, stop: Stop) -> anyhow::Result<()> {
        let mut compacted = Instant::now();
        loop {
            stop.unless_requested(self.clock.sleep(DELAY)).await?;
            if *self.copies.borrow() {
                self.copy()?;
            }
            if let Err(fault) = stop.unless_requested(self.read()).await? {
                tracing::warn!(topic = self.topic, error = %fault, "the mirror cannot read, and tries again");
            }
            if compacted.elapsed() >= COMPACT_EVERY {
                self.compact();
                compacted = Instant::now();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use tally_core::time::UnixMillis;

    use super::*;

    fn partition(topic: &str) -> Partition {
        Partition { topic: topic.into(), index: 1 }
    }

    async fn copied(mirror: &Mirror) -> Vec<(String, String)> {
        let (reader, partition) = (mirror.to.reader("test", &mirror.topic), partition(&mirror.topic));
        let records = reader.read(&partition, Offset(0), Offset(100)).await.unwrap();
        let text = |bytes: Option<&[u8]>| String::from_utf8(bytes.unwrap().to_vec()).unwrap();
        records.iter().map(|record| (text(record.key), text(record.value))).collect()
    }

    #[tokio::test]
    async fn what_waits_is_copied_once_the_last_of_each_key_and_the_standing_behind_all_of_it() {
        let (from, home) = (Broker::new(), Home::us());
        from.create_topic(COUNTS, CHANGES_PARTITIONS);
        let publish = |key: &str, value: &str| {
            let (key, value) = (Some(key.as_bytes()), Some(value.as_bytes()));
            let record = Outgoing { topic: COUNTS, partition: Some(1), key, value, headers: &[] };
            from.write(record, UnixMillis(0)).unwrap();
        };
        let (reader, (_, copies)) = (Arc::new(from.reader("mirror", COUNTS)), watch::channel(true));
        let (to, topic, clock) = (home.copies.clone(), home.copied(), Clock::starting_at(UnixMillis(0)));
        let mut mirror = Mirror { from: reader, to, topic, copies, clock, lanes: BTreeMap::new() };
        for (key, value) in [("p", "1"), (STANDING_KEY, "1"), ("q", "1"), ("p", "2"), (STANDING_KEY, "2"), ("p", "3")] {
            publish(key, value);
        }
        mirror.read().await.unwrap();
        // While it is cut, what was read is gone from Kafka.
        from.trim(COUNTS, 1, 6);
        mirror.copy().unwrap();
        let expected = [("p", "3"), ("q", "1"), (STANDING_KEY, "2")];
        let told = |pairs: &[(&str, &str)]| -> Vec<_> {
            pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
        };
        assert_eq!(copied(&mirror).await, told(&expected));
        publish("q", "4");
        mirror.read().await.unwrap();
        mirror.copy().unwrap();
        mirror.copy().unwrap();
        assert_eq!(copied(&mirror).await, told(&[&expected[..], &[("q", "4")]].concat()));
    }
}
