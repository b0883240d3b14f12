//! Builds the read path for `app.rs`: the reader, its layers, and the tasks that work for them.

use std::sync::Arc;

use tally_adapters::dynamodb::counters::Counters;
use tally_adapters::dynamodb::{Connection, Recounts};
use tally_core::cached::Cache;
use tally_core::ids::ShardCount;
use tally_service::{Host, Stage};

use super::{
    AskTable, FollowStandings, Layers, Local, Negatives, Reader, SharedCache, Standings, Table, TableGate, Whole,
};
use crate::args::Config;
use crate::definitions::FollowDefinitions;
use crate::metrics::ReadCounters;

/// What the routes read counts with.
pub struct ReadPath {
    /// Reads counts.
    pub reader: Reader,
    /// The standings, which answers depend on.
    pub standings: Standings,
    /// The gate before the tables.
    pub gate: Arc<TableGate>,
}

impl ReadPath {
    /// Waits for the first read of the standings, and spawns the tasks. `shards` and `definitions` are the deployment's;
    /// `whole` tells whether all tables are those of the deployment.
    ///
    /// # Errors
    /// A fault that does not pass, or a stop.
    pub async fn open(
        config: &Config,
        tables: &Connection,
        cache: Option<Arc<dyn Cache>>,
        shards: ShardCount,
        definitions: FollowDefinitions,
        whole: Whole,
        host: &Host,
    ) -> anyhow::Result<Self> {
        let follow = FollowStandings::begin(config, tables, definitions, whole, host).await?;
        let standings = follow.standings();

        let counters = Arc::new(Counters::new(tables));
        let gate = Arc::new(TableGate::new(config.table));
        let table = Table::new(Arc::clone(&counters), Arc::clone(&gate));
        let cache = cache.map(|cache| SharedCache::new(cache, config.cache_budget));
        let (negatives, recounter) = Negatives::new(counters, Recounts::new(tables), shards, host.clock());
        let layers = Layers {
            cache,
            table: table.clone(),
            standings: standings.clone(),
            negatives,
            counters: ReadCounters::default(),
        };
        let reader = Reader::new(Local::new(config.local_posts, config.local_ttl), layers);
        let ask = AskTable { table, clock: host.clock(), readiness: host.readiness().clone() };
        host.spawn(Stage::Support, "asking", ask);
        host.spawn(Stage::Support, "standings", follow);
        host.spawn(Stage::Output, "recounter", recounter);
        Ok(Self { reader, standings, gate })
    }
}
