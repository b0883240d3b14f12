//! The maps of sets, call by call behind the plan.

use async_trait::async_trait;
use tally_core::homes::{CounterMap, Sought};
use tally_core::ids::{CounterId, ShardCount};
use tally_core::ports::{CounterMaps, Outcome};

use super::Faulty;

#[async_trait]
impl<P: CounterMaps> CounterMaps for Faulty<P> {
    async fn map(&self, counter: &CounterId) -> Outcome<Option<CounterMap>> {
        self.call("map", self.port.map(counter)).await
    }

    async fn maps(&self, counters: &[CounterId]) -> Outcome<Vec<Option<CounterMap>>> {
        self.call("maps", self.port.maps(counters)).await
    }

    async fn locate(&self, sought: &[Sought]) -> Outcome<Vec<Option<ShardCount>>> {
        self.call("locate", self.port.locate(sought)).await
    }

    async fn put_map(&self, counter: &CounterId, seen: Option<&CounterMap>, map: &CounterMap) -> Outcome<bool> {
        self.call("put_map", self.port.put_map(counter, seen, map)).await
    }

    async fn announced(&self) -> Outcome<u64> {
        self.call("announced", self.port.announced()).await
    }

    async fn announce(&self) -> Outcome<()> {
        self.call("announce", self.port.announce()).await
    }
}
