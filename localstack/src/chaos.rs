//! Makes things go wrong while the load runs: every request may be refused, lost, late or carried out after its client
//! gave up, and now and then a stream shard splits, a service is killed, the cache is emptied, or a recount begins.

use std::sync::Arc;
use std::time::Duration;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use tally_emulator::{Emulator, Fault, Rule};
use tally_service::{Stop, Task};

use crate::local::Local;
use crate::services::Service;
use crate::stack::Deed;

/// How late a request may be carried out after its client gave up.
const GHOST_MS: u64 = 3_000;
/// Between two things that happen.
const SHORTEST: Duration = Duration::from_millis(1_000);
const LONGEST: Duration = Duration::from_millis(4_000);

/// The task that does it, and mends everything when it is stopped.
pub(crate) struct Chaos {
    pub(crate) local: Arc<Local>,
    pub(crate) emulator: Emulator,
    pub(crate) seed: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Happening {
    Split,
    Roll,
    KillConsumer,
    KillStreamer,
    KillTrends,
    EmptyCache,
    Recount,
}

impl Happening {
    /// What happens next. Killing the consumer costs a rebalance of some seconds, so it happens less often.
    fn draw(draw: &mut StdRng) -> Self {
        match draw.random_range(0..24) {
            0..6 => Self::Split,
            6..8 => Self::Roll,
            8..10 => Self::KillConsumer,
            10..15 => Self::KillStreamer,
            15..18 => Self::EmptyCache,
            18..22 => Self::KillTrends,
            _ => Self::Recount,
        }
    }
}

/// What may happen to any request.
fn rules() -> Vec<Rule> {
    vec![
        Rule::new(Fault::Throttle).chance(0.01),
        Rule::new(Fault::Conflict).chance(0.01),
        Rule::new(Fault::DropReply).chance(0.005),
        Rule::new(Fault::Ghost { max_delay_ms: GHOST_MS, hang_ms: 0 }).chance(0.005),
        Rule::new(Fault::InternalError { applied: None }).chance(0.005),
        Rule::new(Fault::Latency { min_ms: 1, max_ms: 50 }).chance(0.05),
    ]
}

impl Chaos {
    /// Only the emulator can make requests fail.
    pub(crate) fn of(local: &Arc<Local>, seed: u64) -> Option<Self> {
        let emulator = local.engines.store.emulator.clone()?;
        Some(Self { local: Arc::clone(local), emulator, seed })
    }

    /// Lets it happen and says so; nothing is said of what could not be done.
    async fn happen(&self, happening: Happening) {
        tracing::info!(?happening, "chaos");
        if let Some(deed) = self.done(happening).await {
            self.local.happened.note(deed);
            self.local.screen.say(&format!("   chaos: {deed}"));
        }
    }

    async fn done(&self, happening: Happening) -> Option<Deed> {
        let Local { engines, services, clock, .. } = &*self.local;
        let likes = engines.store.likes();
        match happening {
            // A shard too narrow to be split is left whole.
            Happening::Split => self.emulator.split_shard(likes, None, None).ok().map(|_| Deed::ShardSplit),
            Happening::Roll => self.emulator.roll_shards(likes, None).ok().map(|_| Deed::ShardsRolled),
            Happening::KillConsumer => Some(killed(&services.consumer)),
            Happening::KillStreamer => Some(killed(&services.streamer)),
            Happening::KillTrends => services.trends.as_ref().map(killed),
            Happening::EmptyCache => {
                engines.cache.empty();
                Some(Deed::CacheEmptied)
            }
            // A request that fails is made another time.
            Happening::Recount => {
                engines.store.recounts.enqueue_audit(clock.now()).await.ok().map(|()| Deed::RecountAsked)
            }
        }
    }
}

fn killed(service: &Service) -> Deed {
    service.kill();
    Deed::Killed(service.name())
}

impl Task for Chaos {
    async fn run(self, stop: Stop) -> anyhow::Result<()> {
        let mut draw = StdRng::seed_from_u64(self.seed);
        self.emulator.set_faults(rules());
        loop {
            let pause = draw.random_range(SHORTEST..=LONGEST);
            if stop.unless_requested(self.local.clock.sleep(pause)).await.is_err() {
                break;
            }
            self.happen(Happening::draw(&mut draw)).await;
        }
        self.emulator.set_faults(Vec::new());
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn everything_happens_and_a_seed_replays_it() {
        let drawn = |seed| {
            let mut draw = StdRng::seed_from_u64(seed);
            (0..200).map(|_| format!("{:?}", Happening::draw(&mut draw))).collect::<Vec<_>>()
        };
        assert_eq!(drawn(3), drawn(3));
        assert_ne!(drawn(3), drawn(4));
        assert_eq!(drawn(3).into_iter().collect::<BTreeSet<_>>().len(), 7);
    }
}
