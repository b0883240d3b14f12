//! Adds to sums in the store, for the consumer's task of one partition. A *sum* is a counter that adds up amounts, such
//! as views, and a *cell* is the row with what this partition has added to one sum: this sends the requests that read
//! and update cells, and takes in their answers.

use std::sync::Arc;

use tally_adapters::dynamodb::registers::{Advanced, CellUpdate};
use tally_core::fault::Fault;
use tally_core::ids::{CounterId, RowKey};
use tally_core::ports::Outcome;
use tally_core::register::{Adding, Progress, Step};
use tally_core::topic::Offset;
use tokio::sync::OwnedSemaphorePermit;

use super::{End, Held, SUMS, condition};
use crate::metrics;

impl Held {
    pub(super) fn send_sums(&mut self, permit: OwnedSemaphorePermit) {
        let most = self.writing.waiting.len().min(Progress::STATEMENTS);
        let (mut read, mut updated, mut updates) = (Vec::new(), Vec::new(), Vec::new());
        for counter in self.writing.waiting.drain(..most) {
            let key = RowKey::of_cell(&counter, self.log.partition().index, self.shared.shards);
            match self.writing.sums.get_mut(&counter).and_then(Adding::step) {
                Some(Step::Read) => read.push((counter, key)),
                Some(Step::Update { from, to }) => {
                    updated.push(counter);
                    updates.push(CellUpdate { key, from, to });
                }
                None => _ = self.writing.busy.remove(&counter),
            }
        }
        let now = self.shared.at();
        self.writing.sums_due = (!self.writing.waiting.is_empty()).then_some(now);
        let permit = Arc::new(permit);
        if !read.is_empty() {
            let (shared, log, permit) = (Arc::clone(&self.shared), Arc::clone(&self.log), Arc::clone(&permit));
            let (counters, keys): (Vec<_>, Vec<_>) = read.into_iter().unzip();
            let work = async move {
                let _permit = permit;
                shared.registers.read_cells(log.partition(), &keys).await
            };
            self.begin(work, move |held, cells| {
                let cells = cells.unwrap_or_else(|fault| vec![Err(fault); counters.len()]);
                held.cells_answered(counters, cells, |adding, cell| adding.read(cell).collect())
            });
        }
        if !updates.is_empty() {
            let (shared, log, confirmed) = (Arc::clone(&self.shared), Arc::clone(&self.log), self.confirmed);
            let work = async move {
                let _permit = permit;
                shared.registers.advance_cells(log.partition(), &updates, confirmed).await
            };
            self.begin(work, move |held, advanced| {
                let answers = advanced.into_iter().map(|advanced| match advanced {
                    Advanced::Failed(fault) => Err(fault),
                    known => Ok(known),
                });
                held.cells_answered(updated, answers, |adding, advanced| match advanced {
                    Advanced::Stored => adding.stored().collect(),
                    Advanced::Refused(cell @ Some(_)) => adding.read(cell).collect(),
                    Advanced::Refused(None) | Advanced::Failed(_) => {
                        adding.unclear();
                        Vec::new()
                    }
                })
            });
        }
    }

    /// Takes in the answers about cells. Asks again later where one failed; readiness names a cell that cannot be read.
    fn cells_answered<T>(
        &mut self,
        counters: Vec<CounterId>,
        answers: impl IntoIterator<Item = Outcome<T>>,
        take: impl Fn(&mut Adding, T) -> Vec<Offset>,
    ) -> Option<End> {
        let (mut again, mut attempt) = (Vec::new(), 0);
        for (counter, answer) in counters.into_iter().zip(answers) {
            match answer {
                Ok(answer) => self.cell_answered(counter, |adding| take(adding, answer)),
                Err(Fault::Fatal(why)) => return Some(self.refused(why, self.progress.next())),
                Err(fault) => {
                    if let Some(adding) = self.writing.sums.get_mut(&counter) {
                        adding.unclear();
                    }
                    self.name_fault(&counter, &fault);
                    let tries = self.writing.sum_tries.entry(counter.clone()).or_default();
                    attempt = attempt.max(*tries);
                    *tries += 1;
                    again.push(counter);
                }
            }
        }
        if !again.is_empty() {
            self.wait(attempt, move |held| {
                held.writing.waiting.extend(again);
                held.writing.sums_due = Some(held.shared.at());
            });
        }
        None
    }

    fn name_fault(&mut self, counter: &CounterId, fault: &Fault) {
        if fault.is_retryable() {
            metrics::RETRIES.counter(&["cells", fault.class()]).increment(1);
            return;
        }
        let partition = self.log.partition();
        if self.writing.broken.insert(counter.clone()) {
            tracing::error!(%partition, %counter, error = %fault, "a sum cannot be added to");
        }
        let problem = format!("nothing is added to {counter}: {fault}");
        self.shared.host.readiness().not_ready(&condition(SUMS, partition), problem);
    }

    fn cell_answered(&mut self, counter: CounterId, take: impl FnOnce(&mut Adding) -> Vec<Offset>) {
        let adding = self.writing.sums.get_mut(&counter).expect("a sum whose request is under way is known");
        for offset in take(adding) {
            self.progress.finish(offset);
        }
        if self.writing.broken.remove(&counter) && self.writing.broken.is_empty() {
            self.shared.host.readiness().forget(&condition(SUMS, self.log.partition()));
        }
        self.writing.answered(counter, self.shared.at());
    }
}
