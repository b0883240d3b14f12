//! Compares row keys with their counters: carries out what [`Prover`] asks for.

use std::sync::Arc;
use std::time::Duration;

use futures_util::stream::TryStreamExt;
use tally_core::audit::{Batch, Doubt, ProofEffect, ProofInput, Prover};
use tally_core::ids::{CounterId, RowKey};

use crate::findings::Findings;
use crate::recounter::Recounter;
use crate::store::Store;
use crate::stream_view::StreamView;

/// The comparisons of one audit.
pub(super) struct Proofs {
    store: Store,
    stream: Arc<StreamView>,
    findings: Arc<Findings>,
    guard: Duration,
}

impl Proofs {
    pub(super) fn new(of: &Recounter, findings: &Arc<Findings>) -> Self {
        let (store, stream) = (of.store.clone(), Arc::clone(&of.stream));
        Self { store, stream, findings: Arc::clone(findings), guard: of.rules.guard }
    }

    /// Compares the row keys of `batch`; those that are not proved.
    pub(super) async fn compare(&self, batch: Batch) -> anyhow::Result<Vec<(RowKey, Doubt)>> {
        let (mut prover, mut effects) = (Prover::new(batch, self.guard), Vec::new());
        prover.step(ProofInput::Begin, &mut effects);
        while let Some(effect) = effects.pop() {
            match effect {
                ProofEffect::AwaitApplied(past) => {
                    let as_of = self.stream.passed(past).await?;
                    prover.step(ProofInput::Applied(Some(as_of)), &mut effects);
                }
                ProofEffect::ReadCounters(ids) => self.counters(ids, &mut prover, &mut effects).await?,
                ProofEffect::End { proved, doubts } => {
                    self.findings.proved(proved);
                    return Ok(doubts);
                }
            }
        }
        unreachable!("a comparison that was answered asks on or ends")
    }

    async fn counters(
        &self,
        ids: Vec<CounterId>,
        prover: &mut Prover,
        effects: &mut Vec<ProofEffect>,
    ) -> anyhow::Result<()> {
        let (mut asked, mut counters) = (ids.iter(), self.store.each_counter(&ids));
        while let Some(counter) = counters.try_next().await? {
            if let (Some(id), Err(fault)) = (asked.next(), &counter) {
                tracing::error!(counter = %id, error = %fault, "a counter cannot be read");
            }
            prover.step(ProofInput::Counter(counter), effects);
        }
        Ok(())
    }
}
