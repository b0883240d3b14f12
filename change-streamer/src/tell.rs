//! Saying how far the counters are, beside the open gaps, so that those who serve counts need not read every stream shard.
//!
//! Each streamer looks several times a second whether another has said it since its last look, and says it only where none
//! has. So one of them says it, whichever that is, and where it ends the next one does.

use std::sync::Arc;
use std::time::Duration;

use tally_core::fault::Fault;
use tally_core::ids::StreamLabel;
use tally_core::lineage::Lineage;
use tally_core::ports::{ChangeStream, Checkpoints, Outcome};
use tally_core::time::UnixMillis;
use tally_service::{Chance, Clock, Stop, Task};

/// The wait between two looks while counts move: what is served is older by this.
const EVERY: Duration = Duration::from_millis(250);

/// The wait where the last look found nothing new.
const IDLE: Duration = Duration::from_secs(1);

/// How often the table is asked which stream it has: an operator may switch it off and on.
const STREAM_EVERY: Duration = Duration::from_secs(60);

/// The task that says it. A look that fails says nothing.
pub(crate) struct Tell {
    pub(crate) checkpoints: Arc<dyn Checkpoints>,
    pub(crate) stream: Arc<dyn ChangeStream>,
    pub(crate) clock: Clock,
    pub(crate) chance: Chance,
}

/// What a clock may be ahead of this one. What was said later than that from now is taken back.
const SKEW: Duration = Duration::from_secs(60);

/// What the task has found so far.
#[derive(Debug, Default)]
struct Found {
    /// The stream, and when it was asked for.
    stream: Option<(StreamLabel, Duration)>,
    /// How often it had been said at the last look.
    said: Option<u64>,
    /// What the scan before found.
    scanned: Option<UnixMillis>,
    as_of: Option<UnixMillis>,
    /// The last look found that counts are further.
    moves: bool,
    /// It was logged that it cannot be said.
    is_silent: bool,
}

impl Found {
    fn reached(&mut self, as_of: Option<UnixMillis>) {
        self.moves = as_of > self.as_of;
        self.as_of = self.as_of.max(as_of);
    }
}

impl Tell {
    async fn look(&self, found: &mut Found) -> Outcome<()> {
        let told = self.checkpoints.standing().await?.told;
        let said = told.map_or(0, |told| told.times);
        if found.said.replace(said) != Some(said) {
            found.scanned = None;
            found.reached(told.map(|told| told.as_of));
            return Ok(());
        }
        let now = self.clock.now();
        let scanned = self.scan(found).await?.map(|as_of| as_of.min(now));
        // A scan is not of one moment: one that passed a child before it was numbered, and its parent after it was closed, finds
        // neither. The scan before found the parent.
        let Some(both) =
            found.scanned.replace(scanned.unwrap_or_default()).map(|before| before.min(scanned.unwrap_or_default()))
        else {
            return Ok(());
        };
        // While a stream shard has no checkpoint yet, what was said before still is so, and that it is said still counts.
        let limit = now.plus(SKEW);
        let before = told.map(|told| told.as_of).filter(|as_of| *as_of <= limit);
        let as_of = Some(both).filter(|both| *both > UnixMillis::default()).max(before);
        found.reached(as_of);
        let Some(as_of) = as_of else { return Ok(()) };
        self.checkpoints.tell(as_of, limit).await?;
        found.said = Some(said + 1);
        Ok(())
    }

    /// The least `at` over the open stream shards; none while one of them has no checkpoint.
    async fn scan(&self, found: &mut Found) -> Outcome<Option<UnixMillis>> {
        let label = self.label(found).await?;
        let shards = self.checkpoints.shards(&label).await?;
        Ok(Lineage::new(shards.into_iter().map(|shard| shard.checkpoint), [], None).as_of())
    }

    async fn label(&self, found: &mut Found) -> Outcome<StreamLabel> {
        let now = self.clock.reading().at;
        if let Some((label, read)) = &found.stream
            && now.saturating_sub(*read) < STREAM_EVERY
        {
            return Ok(label.clone());
        }
        let label = self.stream.info().await.map_err(Fault::from)?.label;
        found.stream = Some((label.clone(), now));
        Ok(label)
    }
}

impl Task for Tell {
    async fn run(self, stop: Stop) -> anyhow::Result<()> {
        let mut found = Found::default();
        loop {
            // Streamers that look at the same moments would all find that none has said it.
            let every = if found.moves { EVERY } else { IDLE };
            let wait = every.mul_f64(0.75 + self.chance.fraction() / 2.0);
            if stop.unless_requested(self.clock.sleep(wait)).await.is_err() {
                return Ok(());
            }
            match stop.unless_requested(self.look(&mut found)).await? {
                Ok(()) => found.is_silent = false,
                Err(fault) if !fault.is_retryable() && !std::mem::replace(&mut found.is_silent, true) => {
                    tracing::warn!(error = %fault, "how far the counters are cannot be said: each API task scans checkpoints");
                }
                Err(fault) => tracing::debug!(error = %fault, "how far the counters are cannot be said"),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use tally_adapters::memory::Memory;
    use tally_core::ports::{Gaps as _, Positions as _, StreamRegistry as _};
    use tally_service::Host;

    use super::*;

    const EARLIER: UnixMillis = UnixMillis(5);

    fn tell(memory: &Memory) -> Tell {
        let host = Host::new("test");
        let (checkpoints, stream) = (Arc::new(memory.checkpoints()), Arc::new(memory.streams()));
        Tell { checkpoints, stream, clock: host.clock(), chance: host.chance().fork() }
    }

    async fn numbered(memory: &Memory) {
        let (checkpoints, stream) = (memory.checkpoints(), memory.streams());
        let label = stream.info().await.unwrap().label;
        for shard in stream.shards(&label).await.unwrap() {
            checkpoints.number(&label, &shard.id, None, EARLIER).await.unwrap();
        }
    }

    #[tokio::test]
    async fn of_several_streamers_one_says_it_and_another_goes_on_once_it_is_silent() {
        let memory = Memory::new(UnixMillis(0), 2);
        let (checkpoints, stream) = (memory.checkpoints(), memory.streams());
        let (first, second) = (tell(&memory), tell(&memory));
        let (mut a, mut b) = (Found::default(), Found::default());
        for _ in 0..3 {
            first.look(&mut a).await.unwrap();
        }
        assert_eq!(checkpoints.standing().await.unwrap().told, None, "there is no stream shard with a number");
        numbered(&memory).await;
        let said = async || checkpoints.standing().await.unwrap().told.map(|told| (told.as_of, told.times));
        first.look(&mut a).await.unwrap();
        assert_eq!(said().await, None, "the scan before did not find it");
        for times in 1..4 {
            first.look(&mut a).await.unwrap();
            second.look(&mut b).await.unwrap();
            assert_eq!(said().await, Some((EARLIER, times)), "the first said it, the second saw that");
        }
        for _ in 0..2 {
            assert_eq!(said().await, Some((EARLIER, 3)), "nothing was said since its last look");
            second.look(&mut b).await.unwrap();
        }
        assert_eq!(said().await, Some((EARLIER, 4)), "two scans later the second says it");
        first.look(&mut a).await.unwrap();
        assert_eq!(said().await, Some((EARLIER, 4)), "and the first sees that");
        let label = stream.info().await.unwrap().label;
        for shard in stream.shards(&label).await.unwrap() {
            checkpoints.refresh(&label, &shard.id, UnixMillis(90)).await.unwrap();
        }
        for (as_of, times) in [(EARLIER, 5), (UnixMillis(90), 6)] {
            second.look(&mut b).await.unwrap();
            assert_eq!(said().await, Some((as_of, times)), "no more than the scan before found");
        }
    }

    #[tokio::test]
    async fn what_a_clock_said_that_was_ahead_is_taken_back() {
        let memory = Memory::new(UnixMillis(0), 2);
        numbered(&memory).await;
        let (checkpoints, tell, mut found) = (memory.checkpoints(), tell(&memory), Found::default());
        let ahead = tell.clock.now().plus(Duration::from_secs(3_600));
        checkpoints.tell(ahead, UnixMillis(u64::MAX)).await.unwrap();
        for _ in 0..3 {
            tell.look(&mut found).await.unwrap();
        }
        assert_eq!(checkpoints.standing().await.unwrap().told.map(|told| told.as_of), Some(EARLIER));
    }
}
