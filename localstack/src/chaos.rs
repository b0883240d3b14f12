//! Makes things go wrong while the load of the local stack runs: every request to the emulated DynamoDB may be refused,
//! lost, late or carried out after its client gave up, and now and then a stream shard splits, a service is killed, the
//! cache is emptied, or a recount begins.

use std::sync::Arc;
use std::time::Duration;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use tally_emulator::{Emulator, Fault, Rule};
use tally_service::{Stop, Task};

use crate::local::Local;
use crate::services::{NAMES, TRENDS};
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

/// What happens next. Killing the consumer costs a rebalance of some seconds, so it happens less often.
fn drawn(draw: &mut StdRng) -> Deed {
    match draw.random_range(0..24) {
        0..6 => Deed::ShardSplit,
        6..8 => Deed::ShardsRolled,
        8..10 => Deed::Killed(NAMES[0]),
        10..15 => Deed::Killed(NAMES[1]),
        15..18 => Deed::CacheEmptied,
        18..22 => Deed::Killed(TRENDS),
        _ => Deed::RecountAsked,
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
    async fn happen(&self, deed: Deed) {
        tracing::info!(?deed, "chaos");
        let Local { engines, services, clock, happened, screen, .. } = &*self.local;
        let likes = engines.store.likes();
        let is_done = match deed {
            // A shard too narrow to be split is left whole.
            Deed::ShardSplit => self.emulator.split_shard(likes, None, None).is_ok(),
            Deed::ShardsRolled => self.emulator.roll_shards(likes, None).is_ok(),
            Deed::Killed(name) => services.kill(name),
            // A request that fails is made another time.
            Deed::RecountAsked => engines.store.tables.recounts.enqueue_audit(clock.now()).await.is_ok(),
            Deed::CacheEmptied => {
                engines.cache.empty();
                true
            }
            // These are done on the page alone.
            _ => false,
        };
        if is_done {
            happened.note(deed);
            screen.say(&format!("   chaos: {deed}"));
        }
    }
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
            self.happen(drawn(&mut draw)).await;
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
        let deeds = |seed| {
            let mut draw = StdRng::seed_from_u64(seed);
            (0..200).map(|_| drawn(&mut draw)).collect::<Vec<_>>()
        };
        assert_eq!(deeds(3), deeds(3));
        assert_ne!(deeds(3), deeds(4));
        assert_eq!(deeds(3).into_iter().collect::<BTreeSet<_>>().len(), 7);
    }
}
