//! How far a number can be trusted now: whether a loss of stream is open, and up to when every count is complete.
//! Read in the background, since no request should wait for it.

use std::sync::Arc;
use std::time::Duration;

use metrics::gauge;
use tally_core::backoff::Backoff;
use tally_core::counter::Counter;
use tally_core::fault::Fault;
use tally_core::ids::StreamLabel;
use tally_core::lineage::Lineage;
use tally_core::ports::{ChangeStream, Checkpoints, Outcome, StreamFault};
use tally_core::served::Served;
use tally_core::time::UnixMillis;
use tally_service::{Clock, Host, Readiness, Stop, Task};
use tokio::sync::watch;
use tokio::time::timeout;

/// How often it is read.
const EVERY: Duration = Duration::from_secs(1);

/// How old it may be before nobody can say that no gap is open.
const STALE: Duration = Duration::from_secs(5);

/// How often the stream is looked up: it changes when somebody switches it off and on.
const STREAM_EVERY: Duration = Duration::from_secs(60);

/// The condition of readiness it states.
const CONDITION: &str = "table";

/// What holds for every number read from now on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Standing {
    /// Whether a loss of stream is open, or may be: then nothing is exact.
    pub open_gaps: bool,
    /// Every change that had reached the likes table by then is in the counters.
    pub as_of: UnixMillis,
}

impl Standing {
    /// A counter that was read after this.
    pub fn serve(&self, counter: Option<&Counter>) -> Served {
        Served::new(counter, self.open_gaps, self.as_of)
    }

    /// A value kept somewhere since: a gap opened meanwhile makes it inexact, too.
    pub fn judge(&self, served: Served) -> Served {
        Served { exact: served.exact && !self.open_gaps, ..served }
    }
}

/// The standing as readers see it.
#[derive(Clone, Debug)]
pub struct View(watch::Receiver<Standing>);

impl View {
    /// The latest.
    pub fn now(&self) -> Standing {
        *self.0.borrow()
    }

    /// One that never changes.
    #[cfg(test)]
    pub fn fixed(standing: Standing) -> Self {
        Self(watch::Sender::new(standing).subscribe())
    }
}

/// Where it is read.
pub struct Source {
    /// Open gaps, and how far stream shards are applied.
    pub checkpoints: Arc<dyn Checkpoints>,
    /// Which stream that is.
    pub stream: Arc<dyn ChangeStream>,
}

/// What was read.
struct Facts {
    gaps: usize,
    as_of: Option<UnixMillis>,
}

impl Source {
    async fn label(&self) -> Outcome<StreamLabel> {
        let info = self.stream.info().await.map_err(|fault| match fault {
            StreamFault::Fault(fault) => fault,
            other => Fault::Transient(other.to_string()),
        })?;
        Ok(info.label)
    }

    async fn facts(&self, label: &StreamLabel) -> Outcome<Facts> {
        let gaps = self.checkpoints.gaps().await?.len();
        let shards = self.checkpoints.shards(label).await?;
        let as_of = Lineage::new(shards.into_iter().map(|shard| shard.checkpoint), [], None).as_of();
        Ok(Facts { gaps, as_of })
    }
}

/// The task that keeps it.
pub struct FollowStanding {
    source: Source,
    clock: Clock,
    readiness: Readiness,
    label: StreamLabel,
    label_read: UnixMillis,
    read: UnixMillis,
    known: watch::Sender<Standing>,
}

impl FollowStanding {
    /// Waits until it is known for the first time: nothing can be served before.
    pub async fn begin(source: Source, host: &Host) -> anyhow::Result<Self> {
        let label = host.wait_for(CONDITION, Backoff::STORE, || source.label()).await?;
        let facts = host.wait_for(CONDITION, Backoff::STORE, || source.facts(&label)).await?;
        let (clock, readiness) = (host.clock(), host.readiness().clone());
        let (known, now) = (watch::Sender::new(Standing::default()), clock.now());
        let mut standing = Self { source, clock, readiness, label, label_read: now, read: now, known };
        standing.learn(&facts);
        Ok(standing)
    }

    /// What readers see.
    pub fn view(&self) -> View {
        View(self.known.subscribe())
    }

    fn learn(&mut self, facts: &Facts) {
        // Counters never lose what they had: what was known stays known while a shard's successor is not numbered yet.
        let as_of = facts.as_of.unwrap_or_default().max(self.known.borrow().as_of);
        self.known.send_replace(Standing { open_gaps: facts.gaps > 0, as_of });
        self.read = self.clock.now();
        self.readiness.ready(CONDITION);
        gauge!("tally_open_gaps").set(u32::try_from(facts.gaps).unwrap_or(u32::MAX));
    }

    async fn look(&mut self) -> Outcome<Facts> {
        let now = self.clock.now();
        if now.since(self.label_read) >= STREAM_EVERY {
            self.label = self.source.label().await?;
            self.label_read = now;
        }
        self.source.facts(&self.label).await
    }

    async fn follow(&mut self) {
        match timeout(STALE, self.look()).await {
            Ok(Ok(facts)) => self.learn(&facts),
            Ok(Err(fault)) => self.doubt(&fault.to_string()),
            Err(_) => self.doubt("no answer"),
        }
        let (now, standing) = (self.clock.now(), *self.known.borrow());
        gauge!("tally_staleness_seconds").set(now.since(standing.as_of).as_secs_f64());
        gauge!("tally_standing_age_seconds").set(now.since(self.read).as_secs_f64());
    }

    /// It could not be read: one miss says little, several that a gap may be open without our knowing.
    fn doubt(&self, why: &str) {
        if self.clock.now().since(self.read) < STALE {
            return;
        }
        self.readiness.not_ready(CONDITION, why);
        let doubted = self.known.send_if_modified(|standing| !std::mem::replace(&mut standing.open_gaps, true));
        if doubted {
            tracing::warn!(error = why, "gaps cannot be read: no answer is called exact");
        }
    }
}

impl Task for FollowStanding {
    async fn run(mut self, stop: Stop) -> anyhow::Result<()> {
        while stop.unless_requested(self.clock.sleep(EVERY)).await.is_ok() {
            self.follow().await;
        }
        Ok(())
    }
}
