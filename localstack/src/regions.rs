//! The second Region of a local stack with two, and the mirror between them. `eu` is the pipeline that the page shows,
//! `us` has engines and a load of its own, and the mirror copies what each publishes of its counts to the other.
//!
//! The embedded Kafka keeps 5 MiB of a partition and cannot compact, and a reader refuses a copy whose beginning is
//! gone. So the copies are topics in memory, which are compacted.

use std::sync::Arc;
use std::time::Duration;

use tally_adapters::kafka;
use tally_adapters::memory::Mirror;
use tally_adapters::memory::log::Broker;
use tally_change_streamer as streamer;
use tally_core::ids::Region;
use tally_core::regions::{LAG, ToldMessage};
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
    pub(crate) fn new(name: &'static str, other: &'static str) -> Self {
        let home = Self { name, other, copies: Broker::new() };
        home.copies.create_topic(&home.copied(), CHANGES_PARTITIONS);
        home
    }

    /// What the copy is called.
    fn copied(&self) -> String {
        format!("{}.{COUNTS}", self.other)
    }

    /// Its own topic in its Kafka, and the copy of the other's.
    ///
    /// # Errors
    /// Settings that a client does not take.
    pub(crate) fn ports(&self, kafka: &kafka::Settings, group: &str) -> anyhow::Result<streamer::RegionPorts> {
        let name = |name| Region::new(name).expect("small letters make a Region");
        let (copies, of, topic) = (self.copies.clone(), format!("{group}-{}", self.other), self.copied());
        let (reader, copied) = (Arc::new(copies.reader(&of, &topic)), topic.clone());
        let join = Arc::new(move || Ok(Box::new(copies.join(&of, &copied)) as _));
        let remotes = vec![streamer::RemotePorts { region: name(self.other), topic, reader, join }];
        let own = streamer::RegionPorts::without_remotes(kafka, name(self.name), COUNTS, TOPIC, group)?;
        Ok(streamer::RegionPorts { remotes, ..own })
    }

    /// Starts to copy what the other Region publishes in its Kafka.
    ///
    /// # Errors
    /// Settings that a client does not take.
    pub(crate) fn mirror(&self, of: &Engines, copies: watch::Receiver<bool>, host: &Host) -> anyhow::Result<()> {
        let reader = Arc::new(kafka::TopicReader::new(&of.kafka.settings, "mirror", COUNTS)?);
        let (to, topic, clock) = (self.copies.clone(), self.copied(), host.clock());
        let mirror = Mirror::new(reader, Arc::new(to.clone()), &topic);
        host.spawn(Stage::Support, &format!("mirror to {}", self.name), Mirroring { mirror, to, topic, copies, clock });
        Ok(())
    }
}

/// The task that copies one Region's topic to the other. While it is cut it goes on reading.
struct Mirroring {
    mirror: Mirror,
    to: Broker,
    topic: String,
    /// Whether it copies.
    copies: watch::Receiver<bool>,
    clock: Clock,
}

impl Mirroring {
    /// Forgets what a reader may miss: it relies on finding every message that is not older than this.
    fn compact(&self) {
        let now = self.clock.now();
        let is_old = |said| now.since(said) > LAG + COMPACT_EVERY;
        self.to.compact(&self.topic, |value| ToldMessage::said_of(value).is_some_and(is_old));
    }
}

impl Task for Mirroring {
    async fn run(mut self, stop: Stop) -> anyhow::Result<()> {
        let mut compacted = Instant::now();
        loop {
            stop.unless_requested(self.clock.sleep(DELAY)).await?;
            if *self.copies.borrow() {
                self.mirror.copy().await?;
            }
            if let Err(fault) = stop.unless_requested(self.mirror.read()).await? {
                tracing::warn!(topic = self.topic, error = %fault, "the mirror cannot read, and tries again");
            }
            if compacted.elapsed() >= COMPACT_EVERY {
                self.compact();
                compacted = Instant::now();
            }
        }
    }
}
