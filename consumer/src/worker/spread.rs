//! Puts the rows of a set over more shards, or fewer, where its heat asks for it.

use std::sync::Arc;
use std::time::Duration;

use tally_core::homes::CounterMap;
use tally_core::ids::{CounterId, ShardCount};
use tally_core::ports::Outcome;
use tokio::time::timeout;

use super::Shared;

/// How long a change may take. One that is given up is asked for again while the heat lasts.
const BUDGET: Duration = Duration::from_secs(10);

/// How long after a change no other is made: a little less than a worker rests by itself, whose rest begins before its change.
const RESTS: Duration = Duration::from_secs(12);

/// What came of a change.
enum Done {
    Put,
    /// Another process changed the map lately, or at the same time.
    Left,
}

/// Has the rows of `counter` put over `to` shards, if they are put over `from` still.
pub(super) async fn spread(shared: Arc<Shared>, counter: CounterId, from: ShardCount, to: ShardCount) {
    let done = timeout(BUDGET, shared.spread(&counter, from, to)).await;
    let (post_id, counter) = (counter.post.as_str(), counter.name.as_str());
    match done {
        Ok(Ok(Done::Put)) => {
            tracing::info!(post_id, counter, %from, %to, "its rows are put over other shards from now on");
        }
        Ok(Ok(Done::Left)) => tracing::debug!(post_id, counter, %to, "another process changes its shards"),
        Ok(Err(fault)) => tracing::warn!(post_id, counter, %to, error = %fault, "cannot change its shards"),
        Err(_) => tracing::warn!(post_id, counter, %to, "cannot change its shards: no answer within {BUDGET:?}"),
    }
}

impl Shared {
    /// Announced before and after: a process that reads the old map in between, behind the first, reads it anew for the second.
    /// Safe to repeat: the map is put only in the place of the one that was read.
    async fn spread(&self, counter: &CounterId, from: ShardCount, to: ShardCount) -> Outcome<Done> {
        let now = self.host.clock().now();
        let standing = self.maps.maps(std::slice::from_ref(counter)).await?.into_iter().next().flatten();
        let stands = standing.unwrap_or_else(|| CounterMap::absent(self.shards));
        let rests = Duration::from_millis(now.0.saturating_sub(stands.at.0)) < RESTS;
        if stands.newest() != from || rests {
            return Ok(Done::Left);
        }
        self.maps.announce().await?;
        let map = CounterMap::spread(standing.as_ref(), self.shards, to, now);
        let put = self.maps.put_map(counter, standing.as_ref(), &map).await?;
        self.maps.announce().await?;
        Ok(if put { Done::Put } else { Done::Left })
    }
}
