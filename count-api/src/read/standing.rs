//! What counts are judged by: how far counters are and the open gaps, read each second as `tally_core::standing` says.
//! No request waits for it.

use std::sync::Arc;
use std::time::Duration;

use tally_core::backoff::Backoff;
use tally_core::counter::Counter;
use tally_core::fault::Fault;
use tally_core::ids::{CounterId, StreamLabel};
use tally_core::lineage::Lineage;
use tally_core::ports::{ChangeStream, Checkpoints, Outcome, Standing};
use tally_core::served::Served;
use tally_core::standing::{Effect, Input, LIMIT, Reading, Readings};
use tally_core::time::UnixMillis;
use tally_service::{Clock, Host, Readiness, Stop, Task};
use tokio::sync::watch;
use tokio::time::timeout;

use crate::metrics::{OPEN_GAPS, STALENESS, STANDING_AGE};

/// The wait between two readings.
const EVERY: Duration = Duration::from_secs(1);

/// How long one reading may take. One that took longer than [`LIMIT`] calls no count exact, but its `as_of` still holds.
const PATIENCE: Duration = Duration::from_secs(10);

/// How often the table is asked which stream it has: an operator may switch it off and on.
const STREAM_EVERY: Duration = Duration::from_secs(60);

/// The condition of readiness that this task states.
const CONDITION: &str = "table";

/// Judges counts by the latest reading, at the time of the call. Clones see the same readings.
#[derive(Clone, Debug)]
pub struct Judge {
    latest: watch::Receiver<Reading>,
    clock: Clock,
}

impl Judge {
    /// A judge by readings that a test sends.
    #[cfg(test)]
    pub fn of(clock: Clock) -> (Self, watch::Sender<Reading>) {
        let latest = watch::Sender::new(Reading { began: clock.reading(), ..Reading::default() });
        (Self { latest: latest.subscribe(), clock }, latest)
    }

    /// The latest reading: to be taken before a counter is asked for.
    pub fn reading(&self) -> Reading {
        *self.latest.borrow()
    }

    /// The count of `id`'s `counter`, which arrived now and was asked for after `reading` was taken.
    pub fn arrived(&self, reading: &Reading, id: &CounterId, counter: Option<&Counter>) -> Served {
        reading.serve_as(id.name.kind(), counter, self.clock.reading())
    }

    /// A count that arrived before, as it may be answered now.
    pub fn judge(&self, served: Served) -> Served {
        self.latest.borrow().judge(served, self.clock.reading())
    }

    /// Whether a count may be called exact now, as far as losses of stream go.
    pub fn allows_exact(&self) -> bool {
        self.latest.borrow().allows_exact(self.clock.reading())
    }
}

/// Where it is read.
pub struct StandingSource {
    pub checkpoints: Arc<dyn Checkpoints>,
    pub stream: Arc<dyn ChangeStream>,
}

impl StandingSource {
    async fn label(&self) -> Outcome<StreamLabel> {
        let info = self.stream.info().await.map_err(Fault::from)?;
        Ok(info.label)
    }

    async fn as_of(&self, label: &StreamLabel) -> Outcome<Option<UnixMillis>> {
        let shards = self.checkpoints.shards(label).await?;
        Ok(Lineage::new(shards.into_iter().map(|shard| shard.checkpoint), [], None).as_of())
    }

    async fn gaps(&self) -> Outcome<Input> {
        let Standing { gaps, told } = self.checkpoints.standing().await?;
        OPEN_GAPS.gauge(&[]).set(u32::try_from(gaps.len()).unwrap_or(u32::MAX));
        Ok(Input::Gaps { open: !gaps.is_empty(), told })
    }

    /// One reading of the stream `label`, in the order that `standing` asks for. What it began is given up by the next.
    async fn read(&self, label: &StreamLabel, mut readings: Readings, clock: Clock) -> Outcome<(Readings, Reading)> {
        let mut effect = readings.step(clock.reading(), Input::Begin);
        loop {
            let answer = match effect {
                Some(Effect::ReadShards) => Input::Shards(self.as_of(label).await?),
                Some(Effect::ReadGaps) => self.gaps().await?,
                Some(Effect::Learnt(reading)) => return Ok((readings, reading)),
                None => return Err(Fault::Transient("a reading without a next step".to_owned())),
            };
            effect = readings.step(clock.reading(), answer);
        }
    }
}

/// The task that reads.
pub struct FollowStanding {
    source: StandingSource,
    clock: Clock,
    readiness: Readiness,
    label: StreamLabel,
    /// When the table was last asked for its stream.
    label_read: Duration,
    readings: Readings,
    latest: watch::Sender<Reading>,
}

impl FollowStanding {
    /// Waits for the first reading: no count can be served before.
    ///
    /// # Errors
    /// A fault that waiting does not mend, or a stop.
    pub async fn begin(source: StandingSource, host: &Host) -> anyhow::Result<Self> {
        let (clock, readiness) = (host.clock(), host.readiness().clone());
        let label = host.wait_for(CONDITION, Backoff::STORE, || source.label()).await?;
        let label_read = clock.reading().at;
        let first = || source.read(&label, Readings::default(), clock);
        let (readings, reading) = host.wait_for(CONDITION, Backoff::STORE, first).await?;
        let latest = watch::Sender::new(reading);
        Ok(Self { source, clock, readiness, label, label_read, readings, latest })
    }

    /// What judges by the readings of this task.
    pub fn judge(&self) -> Judge {
        Judge { latest: self.latest.subscribe(), clock: self.clock }
    }

    async fn read(&mut self) -> Outcome<()> {
        let now = self.clock.reading().at;
        if now.saturating_sub(self.label_read) >= STREAM_EVERY {
            self.label = self.source.label().await?;
            self.label_read = now;
        }
        let (readings, reading) = self.source.read(&self.label, self.readings, self.clock).await?;
        self.readings = readings;
        self.latest.send_replace(reading);
        Ok(())
    }

    async fn follow(&mut self) {
        match timeout(PATIENCE, self.read()).await {
            Ok(Ok(())) => self.readiness.ready(CONDITION),
            Ok(Err(fault)) => self.failed(&fault.to_string()),
            Err(_) => self.failed("no answer"),
        }
        let (now, reading) = (self.clock.reading(), *self.latest.borrow());
        STALENESS.gauge(&[]).set(now.wall.since(reading.as_of).as_secs_f64());
        STANDING_AGE.gauge(&[]).set(reading.age(now).as_secs_f64());
    }

    /// One failure says little; after several the table is called away.
    fn failed(&self, why: &str) {
        if self.latest.borrow().age(self.clock.reading()) < LIMIT {
            return;
        }
        let was_ready = self.readiness.report().conditions.get(CONDITION) == Some(&tally_service::Condition::Ready);
        if was_ready {
            tracing::warn!(error = why, "gaps cannot be read: no answer is called exact");
        }
        self.readiness.not_ready(CONDITION, why);
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
