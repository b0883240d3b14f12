//! What createCounter does: it decides over how many shards a set is spread, and keeps what it was asked for.

use std::sync::Arc;
use std::time::Duration;

use tally_core::fault::Fault;
use tally_core::homes::{CounterMap, DecidedBy, Decision, OutOfBounds, Wish, decide, shards_for};
use tally_core::ids::{CounterId, ShardCount};
use tally_core::ports::{CounterMaps, Outcome};
use tally_service::Clock;
use tokio::time::timeout;

use crate::error::{LoggedCause, Parameter, Problem};

/// How long all of it may take.
const BUDGET: Duration = Duration::from_secs(5);

/// How often a map that others put in between is read again.
const ATTEMPTS: usize = 4;

/// What a body calls the number of shards.
pub const NUMBER: &str = "number_of_shards";

/// Decides and records. Clones share the port.
#[derive(Clone)]
pub struct Creator {
    pub maps: Arc<dyn CounterMaps>,
    /// How many shards a counter has of which nothing was decided.
    pub deployment: ShardCount,
    pub clock: Clock,
}

/// What was asked for of a counter, and what holds of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Created {
    /// Whether this request has stored it.
    pub now: bool,
    pub asked: ShardCount,
    pub decided_by: DecidedBy,
    pub map: CounterMap,
}

impl Creator {
    /// Has `counter` spread as `wish` says. Safe to repeat: what was asked for is found again.
    ///
    /// # Errors
    /// A number out of bounds, or another one than before; a store that does not answer.
    pub async fn create(&self, counter: &CounterId, wish: Wish) -> Result<Created, Problem> {
        let created = timeout(BUDGET, self.decided(counter, wish)).await;
        created.unwrap_or_else(|_| Err(away(&Fault::Transient(format!("no answer within {BUDGET:?}")))))
    }

    async fn decided(&self, counter: &CounterId, wish: Wish) -> Result<Created, Problem> {
        let refused = |bounds: OutOfBounds| {
            let parameter = Some(Parameter::named(NUMBER));
            Problem::BadBody { parameter, why: bounds.to_string() }
        };
        // Before anything is read for it.
        shards_for(wish, self.deployment).map_err(refused)?;
        let mut put = None;
        for _ in 0..ATTEMPTS {
            let standing = self.maps.map(counter).await.map_err(|fault| away(&fault))?;
            match decide(wish, self.deployment, standing.as_ref(), self.clock.now()).map_err(refused)? {
                Decision::Conflict { asked } => return Err(Problem::OtherShards(asked.get())),
                Decision::Holds { asked, decided_by } => {
                    if standing.is_some() {
                        // The request that put it may have ended before it said so.
                        self.maps.announce().await.map_err(|fault| away(&fault))?;
                    }
                    let map = standing.unwrap_or_else(|| CounterMap::absent(self.deployment));
                    return Ok(Created { now: put.is_some() && put == standing, asked, decided_by, map });
                }
                Decision::Put(map) => {
                    put = Some(map);
                    if self.put(counter, standing.as_ref(), &map).await.map_err(|fault| away(&fault))? {
                        let (asked, decided_by) = (map.asked.unwrap_or(self.deployment), map.decided_by);
                        return Ok(Created { now: true, asked, decided_by, map });
                    }
                }
            }
        }
        Err(Problem::Busy)
    }

    /// Announced before and after: a process that reads the old map in between, behind the first, reads it anew for the second.
    async fn put(&self, counter: &CounterId, seen: Option<&CounterMap>, map: &CounterMap) -> Outcome<bool> {
        self.maps.announce().await?;
        let put = self.maps.put_map(counter, seen, map).await?;
        if put {
            self.maps.announce().await?;
        }
        Ok(put)
    }
}

fn away(fault: &Fault) -> Problem {
    let cause = LoggedCause::new(fault);
    if let Fault::Poison(_) = fault { Problem::Internal(cause) } else { Problem::StoreAway(cause) }
}
