//! Claims on pieces of work, kept alive while the work goes on. A courtesy between processes: nothing that must be right
//! relies on them.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{Either, select};
use tally_core::ports::{Claimed, Claims as ClaimsPort, Worker};

use crate::store::Store;

/// The claims of this process. Clones are the same.
#[derive(Clone)]
pub(crate) struct Claims {
    port: Arc<dyn ClaimsPort>,
    store: Store,
    /// This process, on claims and on the ledger.
    pub(crate) me: Worker,
    /// How old a heartbeat may get before other processes take the work.
    stale: Duration,
}

impl Claims {
    /// The claims of `me`.
    pub(crate) fn new(store: &Store, me: Worker, stale: Duration) -> Self {
        Self { port: Arc::clone(&store.ports.recounts) as Arc<dyn ClaimsPort>, store: store.clone(), me, stale }
    }

    /// Claims `what`, or renews our claim of it.
    pub(crate) async fn claim(&self, what: &str) -> anyhow::Result<Claimed> {
        let now = self.store.now();
        let claim = || self.port.claim(what, &self.me, now, now.minus(self.stale));
        let claimed = self.store.persist("claim work", claim).await?;
        self.store.wrote(1);
        Ok(claimed)
    }

    /// Claims `what` once no other process has it, asked for every so often.
    pub(crate) async fn wait_for(&self, what: &str, every: Duration) -> anyhow::Result<()> {
        while self.claim(what).await? != Claimed::Claimed {
            self.store.calls.wait(every).await?;
        }
        Ok(())
    }

    /// Gives `what` back, or says that it is done.
    pub(crate) async fn settle(&self, what: &str, done: bool) -> anyhow::Result<()> {
        self.store.persist("give a claim back", || self.port.settle(what, &self.me, done)).await?;
        self.store.wrote(1);
        Ok(())
    }

    /// How often it is worth asking again for work that another process has.
    pub(crate) fn pace(&self) -> Duration {
        self.stale / 10
    }

    /// `work`, its claim renewed meanwhile. A heartbeat that fails is no reason to stop.
    pub(crate) async fn with_heartbeat<T>(&self, what: &str, work: impl Future<Output = T>) -> T {
        let beat = async {
            loop {
                self.store.calls.clock().sleep(self.stale / 4).await;
                if let Err(error) = self.claim(what).await {
                    tracing::debug!(claim = what, %error, "the claim was not renewed");
                }
            }
        };
        match select(pin!(work), pin!(beat)).await {
            Either::Left((done, _)) => done,
            Either::Right((never, _)) => never,
        }
    }
}
