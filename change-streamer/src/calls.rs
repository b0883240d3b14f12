//! Carries out what the machine that follows the stream asks of the stream and of the checkpoints.

use std::sync::Arc;

use anyhow::anyhow;
use tally_core::fault::Fault;
use tally_core::ids::{Ordinal, StreamLabel, StreamShardId};
use tally_core::ledger::{Lapse, Seconds};
use tally_core::ports::{ChangeStream, Checkpoints, Lease, LeaseTaken, Outcome, Position, StreamFault, Worker};
use tally_core::shards::{Answer, Behind, Change, Input, Request};
use tally_core::time::UnixMillis;
use tally_service::Patience;

use crate::metrics;

/// The stream and the checkpoints, as this worker asks them.
pub(crate) struct Calls {
    pub(crate) stream: Arc<dyn ChangeStream>,
    pub(crate) checkpoints: Arc<dyn Checkpoints>,
    pub(crate) patience: Patience,
    /// Whether the deployment has a ledger of changes.
    pub(crate) feeds: bool,
    /// Who takes leases; `None` without leases.
    pub(crate) me: Option<Worker>,
}

impl Calls {
    /// Carries out `request`, which is about the stream `label`, and names it in the answer. What may be lost is tried
    /// again until it is done; what the next look does anew is tried once.
    ///
    /// # Errors
    /// A fault that waiting does not mend, but for a listing's, which is an answer.
    pub(crate) async fn ask(self: Arc<Self>, label: StreamLabel, request: Request) -> anyhow::Result<Input> {
        let answer = match &request {
            Request::List | Request::Children(_) => self.describe(&label, &request).await,
            Request::Registry | Request::States | Request::Gaps | Request::Probe(_) => {
                once(self.read(&label, &request).await)?
            }
            Request::Number { shard, parent, at } => once(self.number(&label, shard, parent.as_ref(), *at).await)?,
            Request::Lease { shard, seen, change } => once(self.lease(&label, shard, seen.as_ref(), *change).await)?,
            _ => self.write(&label, &request).await.map(|()| Answer::Done)?,
        };
        Ok(Input::Answered(request, answer))
    }

    async fn describe(&self, label: &StreamLabel, request: &Request) -> Answer {
        let described = match request {
            Request::Children(parent) => match self.stream.children(label, parent).await {
                // Nothing continues a stream that is no more.
                Err(StreamFault::Gone) => Ok(Answer::Children(Some(Vec::new()))),
                children => children.map(Answer::Children),
            },
            _ => self.list().await,
        };
        let described = described.map_err(|fault| match fault {
            // Waiting alone does not mend it: the process is not ready while the table has no stream.
            StreamFault::Off(_) => Fault::Fatal(fault.to_string()),
            other => other.into(),
        });
        described.unwrap_or_else(|fault| {
            metrics::faulted(&fault);
            tracing::warn!(error = %fault, "the stream's shards could not be listed");
            Answer::Failed(fault)
        })
    }

    /// The shards of the stream that the table has now, whichever that is.
    async fn list(&self) -> Result<Answer, StreamFault> {
        let info = self.stream.info().await?;
        let shards = self.stream.shards(&info.label).await?;
        Ok(Answer::Listed(info, shards))
    }

    async fn read(&self, label: &StreamLabel, request: &Request) -> Outcome<Answer> {
        Ok(match request {
            Request::Registry => Answer::Registry(self.checkpoints.registry(label).await?),
            Request::States => Answer::States(self.checkpoints.shards(label).await?),
            Request::Probe(shard) => match self.stream.iterator(label, shard, Position::Oldest).await {
                Ok(_) => Answer::Readable(true),
                Err(StreamFault::Gone | StreamFault::Trimmed) => Answer::Readable(false),
                Err(other) => return Err(other.into()),
            },
            _ => Answer::Gaps(!self.checkpoints.gaps().await?.is_empty()),
        })
    }

    async fn number(
        &self,
        label: &StreamLabel,
        shard: &StreamShardId,
        parent: Option<&StreamShardId>,
        at: UnixMillis,
    ) -> Outcome<Answer> {
        let ordinal = self.checkpoints.number(label, shard, parent, at).await?;
        if self.feeds {
            self.checkpoints.fed_at(label, shard, at).await?;
        }
        tracing::info!(%shard, %ordinal, parent = parent.map(StreamShardId::as_str), "stream shard found");
        Ok(Answer::Done)
    }

    async fn lease(
        &self,
        label: &StreamLabel,
        shard: &StreamShardId,
        seen: Option<&Lease>,
        change: Change,
    ) -> Outcome<Answer> {
        let me = self.me.as_ref().expect("leases are taken only where work is shared");
        let taken = self.checkpoints.lease(label, shard, me, seen).await?;
        match taken {
            LeaseTaken::Taken(_) if change == Change::Renewed => {}
            LeaseTaken::Taken(_) => {
                metrics::lease(change.label(), 1);
                tracing::info!(%shard, change = change.label(), "lease");
            }
            LeaseTaken::Lost => metrics::lease("lost", 1),
        }
        Ok(Answer::Leased(taken))
    }

    async fn write(&self, label: &StreamLabel, request: &Request) -> anyhow::Result<()> {
        let checkpoints = &self.checkpoints;
        match request {
            Request::Close { shard, at } => {
                self.persist("close a stream shard", || checkpoints.close(label, shard, *at)).await?;
                tracing::info!(%shard, "stream shard closed");
            }
            Request::RaiseFloor(floor) => {
                self.persist("raise the floor", || checkpoints.raise_floor(label, *floor)).await?;
            }
            Request::Forget(shard) => {
                self.persist("forget a stream shard", || checkpoints.forget(label, shard)).await?;
            }
            Request::Release(shard) => {
                if let Some(me) = &self.me {
                    self.persist("give a lease back", || checkpoints.release(label, shard, me)).await?;
                    metrics::lease("handed_over", 1);
                }
            }
            Request::EndFed { shard, ordinal, from } => {
                tracing::error!(%shard, "the stream shard is gone, and the ledger of changes lacks the end of it");
                let now = self.patience.clock().now();
                self.lapsed(Lapse { shard: *ordinal, seconds: Seconds::between(*from, now) }).await?;
                let fed_end = || checkpoints.fed_end(label, shard, now);
                self.persist("store that the ledger has a stream shard", fed_end).await?;
            }
            Request::Record(behind, loss) => {
                tracing::error!(
                    kind = loss.kind(),
                    "stream lost, counts are not exact until an audit has passed: {loss}"
                );
                metrics::lost(loss);
                let open = || checkpoints.open_gap(loss, self.patience.clock().now());
                self.persist("record a loss of stream", open).await?;
                // Readers and recorders say themselves which stream shard lost what; a stream as a whole has neither.
                if self.feeds && *behind == Behind::Stream {
                    let (from, to) = (UnixMillis(0), self.patience.clock().now());
                    self.lapsed(Lapse { shard: Ordinal(0), seconds: Seconds::between(from, to) }).await?;
                }
            }
            other => unreachable!("{other:?} is read, not written"),
        }
        Ok(())
    }

    async fn lapsed(&self, lapse: Lapse) -> anyhow::Result<()> {
        self.persist("store what the ledger lacks", || self.checkpoints.put_lapse(lapse)).await?;
        metrics::lapsed();
        Ok(())
    }

    async fn persist<T, Fut>(&self, what: &str, call: impl FnMut() -> Fut) -> anyhow::Result<T>
    where
        Fut: Future<Output = Outcome<T>>,
    {
        let answer = self.patience.answer(what, call).await;
        answer.map_err(|fault| anyhow!(fault).context(format!("cannot {what}")))
    }
}

/// A call that the next look makes again anyway.
fn once(outcome: Outcome<Answer>) -> anyhow::Result<Answer> {
    match outcome {
        Err(fault) if fault.is_retryable() => {
            metrics::faulted(&fault);
            tracing::warn!(error = %fault, "the stream's shards could not be looked at");
            Ok(Answer::Failed(fault))
        }
        outcome => outcome.map_err(|fault| anyhow!(fault).context("cannot follow the stream")),
    }
}
