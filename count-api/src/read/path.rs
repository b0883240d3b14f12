//! The read path, put together, with the tasks that work for it.

use std::sync::Arc;

use tally_service::{Host, Stage};

use super::{
    AskCounts, Fills, FollowStanding, Heard, Judge, Layers, Local, Negatives, Reader, SharedCache, StandingSource,
    TableGate,
};
use crate::app::Ports;
use crate::config::Config;
use crate::metrics::ReadCounters;

pub struct ReadPath {
    pub reader: Reader,
    pub judge: Judge,
    pub table: Arc<TableGate>,
}

impl ReadPath {
    /// Waits for the first reading of gaps and stream shards, and spawns the tasks.
    ///
    /// # Errors
    /// A fault that waiting does not mend, or a stop.
    pub async fn open(config: &Config, ports: &Ports, host: &Host) -> anyhow::Result<Self> {
        let source = StandingSource { checkpoints: ports.checkpoints.clone(), stream: ports.stream.clone() };
        let standing = FollowStanding::begin(source, host).await?;
        let judge = standing.judge();

        let table = Arc::new(TableGate::new(config.table));
        let cache = ports.cache.clone().map(|cache| SharedCache::new(cache, config.cache_budget));
        let (fills, filler) = Fills::new(cache.clone());
        let (negatives, recounter) = Negatives::new(ports.counts.clone(), ports.recounts.clone(), host.clock());
        let heard = Arc::<Heard>::default();
        let layers = Layers {
            cache,
            fills,
            table: Arc::clone(&table),
            counts: ports.counts.clone(),
            heard: Arc::clone(&heard),
            judge: judge.clone(),
            negatives,
            counters: ReadCounters::default(),
        };
        let reader = Reader::new(Local::new(config.local_posts, config.local_ttl), layers);
        let (counts, readiness) = (ports.counts.clone(), host.readiness().clone());
        host.spawn(Stage::Support, "asking", AskCounts { heard, counts, clock: host.clock(), readiness });
        host.spawn(Stage::Support, "standing", standing);
        host.spawn(Stage::Output, "filler", filler);
        host.spawn(Stage::Output, "recounter", recounter);
        Ok(Self { reader, judge, table })
    }
}
