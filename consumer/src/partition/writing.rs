//! Decides when the rows and sums that the consumer has gathered in a partition are sent to the store. Sends the rows
//! (`sums.rs` sends the sums), and takes in the answers: each row is written, tried again, or put aside as a dead
//! letter, or the partition stands still.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use tally_core::event::Rejection;
use tally_core::fault::Fault;
use tally_core::ids::CounterId;
use tally_core::ports::Outcome;
use tally_core::register::{Adding, Answer, Attempt, Progress, Row, Settled, Standstill, Version};
use tally_core::topic::Offset;
use tally_core::{Map, Set};
use tally_service::Seldom;
use tokio::sync::OwnedSemaphorePermit;
use tracing::{Instrument, Span};

use super::{End, Held, Shared};
use crate::{metrics, trace};

/// After how many tries the log says that the store is busy, and how often.
const SOME_TRIES: u32 = 3;
const SAID_EVERY: Duration = Duration::from_secs(10);

/// How many sums without an event to add are remembered.
const IDLE_SUMS: usize = 10_000;

/// What waits to be sent.
#[derive(Default)]
pub(super) struct Writing {
    /// When rows are to be sent at the latest, and how many bytes of records wait.
    rows_due: Option<Duration>,
    bytes: usize,
    pub(super) sums: Map<CounterId, Adding>,
    /// The sums that need a request, in turn.
    pub(super) waiting: VecDeque<CounterId>,
    /// Those sums, and the ones whose request is under way.
    pub(super) busy: Set<CounterId>,
    pub(super) sums_due: Option<Duration>,
    /// How often in a row a row's statements were tried in vain.
    tries: Map<Row, u32>,
    /// How often in a row a sum's request was tried in vain.
    pub(super) sum_tries: Map<CounterId, u32>,
    /// Sums that cannot be added to.
    pub(super) broken: Set<CounterId>,
    /// Whether the last request was of sums.
    was_sums: bool,
    /// Limits how often the log says that the store is busy.
    slow: Seldom,
}

impl Writing {
    /// Takes note of a member's event, of so many bytes, that waits to be sent.
    pub(super) fn gather(&mut self, bytes: usize, shared: &Shared) {
        self.rows_due.get_or_insert_with(|| shared.at() + shared.settings.linger);
        self.bytes += bytes;
    }

    /// Adds an event to its sum. Returns whether the cell has it already.
    pub(super) fn add(&mut self, counter: CounterId, version: Version, amount: i64, shared: &Shared) -> bool {
        if self.sums.entry(counter.clone()).or_default().take(version, amount) {
            return true;
        }
        if self.busy.insert(counter.clone()) {
            self.waiting.push_back(counter);
            self.sums_due.get_or_insert_with(|| shared.at() + shared.settings.linger);
        }
        false
    }

    /// Takes note that the request of a sum was answered. What came meanwhile is sent next.
    pub(super) fn answered(&mut self, counter: CounterId, now: Duration) {
        self.sum_tries.remove(&counter);
        if self.sums.get(&counter).is_some_and(|adding| adding.gathered() > 0) {
            self.waiting.push_back(counter);
            self.sums_due = Some(now);
            return;
        }
        self.busy.remove(&counter);
        if self.sums.len() > IDLE_SUMS {
            self.sums.remove(&counter);
        }
    }
}

impl Held {
    /// Returns whether anything can be sent.
    pub(super) fn has_ready(&self) -> bool {
        self.progress.ready() > 0 || !self.writing.waiting.is_empty()
    }

    /// Returns why rows are to be sent now; `None` if they are not.
    fn rows_due(&self) -> Option<&'static str> {
        if self.progress.ready() == 0 {
            None
        } else if self.progress.ready() >= self.most_ready() {
            Some("rows")
        } else if self.writing.bytes >= self.shared.settings.batch_bytes {
            Some("bytes")
        } else {
            self.writing.rows_due.filter(|due| *due <= self.shared.at()).map(|_| "age")
        }
    }

    fn sums_due(&self) -> bool {
        let waiting = self.writing.waiting.len();
        let is_late = || self.writing.sums_due.is_some_and(|due| due <= self.shared.at());
        waiting >= Progress::STATEMENTS || (waiting > 0 && is_late())
    }

    /// Returns when something that waits is to be sent at the latest.
    pub(super) fn due_at(&self) -> Option<Duration> {
        let rows = self.writing.rows_due.filter(|_| self.progress.ready() > 0);
        let sums = self.writing.sums_due.filter(|_| !self.writing.waiting.is_empty());
        rows.into_iter().chain(sums).min()
    }

    /// Returns whether something is to be sent now.
    pub(super) fn is_due(&self) -> bool {
        self.rows_due().is_some() || self.sums_due()
    }

    /// Sends one request: of rows and sums in turn, where there are both. Without a claim that was confirmed lately
    /// nothing is sent, and all of it is tried again.
    pub(super) fn send(&mut self, permit: OwnedSemaphorePermit, drains: bool) {
        let sums = !self.writing.waiting.is_empty() && (drains || self.sums_due());
        let rows = if drains { (self.progress.ready() > 0).then_some("shutdown") } else { self.rows_due() };
        match rows {
            Some(trigger) if !sums || self.writing.was_sums => {
                self.writing.was_sums = false;
                self.send_rows(permit, trigger);
            }
            _ if sums => {
                self.writing.was_sums = true;
                self.send_sums(permit);
            }
            _ => {}
        }
    }

    fn send_rows(&mut self, permit: OwnedSemaphorePermit, trigger: &'static str) {
        let attempts = self.progress.cut(self.most_ready());
        let span = self.span(&attempts, trigger);
        let (shared, confirmed) = (Arc::clone(&self.shared), self.confirmed);
        // The rows that are left have waited as long.
        self.writing.rows_due = self.writing.rows_due.filter(|_| self.progress.ready() > 0);
        self.writing.bytes = 0;
        let request = async move {
            let _permit = permit;
            let began = shared.at();
            let gone = shared.host.clock().now().plus(shared.settings.tombstones).0.div_ceil(1_000);
            let written = shared.registers.write(&attempts, gone, confirmed).await;
            metrics::flushed(trigger, attempts.len(), shared.at() - began);
            (attempts, written)
        };
        self.begin(request.instrument(span), |held, (attempts, written)| held.written(&attempts, written));
    }

    /// Returns the span of a request, which names the spans that its records came from.
    fn span(&self, attempts: &[Attempt], trigger: &str) -> Span {
        let runs = attempts.iter().filter_map(|attempt| {
            let offset = attempt.write.version.offset();
            Some((self.reading.runs.at(offset)?, offset))
        });
        let runs: Vec<_> = runs.collect();
        let links = trace::links(runs.iter().filter_map(|(run, offset)| run.at(*offset)));
        tracing::info_span!("flush", partition = %self.log.partition(), rows = attempts.len(), trigger, links)
    }

    /// Takes in the outcomes of a request of rows. Returns the end, if one follows.
    fn written(&mut self, attempts: &[Attempt], written: Vec<Outcome<Answer>>) -> Option<End> {
        let (mut again, mut attempt) = (Vec::new(), 0);
        for (Attempt { write, .. }, written) in attempts.iter().zip(written) {
            let offset = write.version.offset();
            match written {
                Err(fault) if fault.is_retryable() => {
                    metrics::RETRIES.counter(&["write", fault.class()]).increment(1);
                    let tries = self.writing.tries.entry(write.row.clone()).or_default();
                    attempt = attempt.max(*tries);
                    *tries += 1;
                    again.push(offset);
                }
                Err(fault @ Fault::Fatal(_)) => return Some(self.refused(fault.to_string(), offset.next())),
                answered => {
                    if !matches!(answered, Ok(Answer::Stands(_))) {
                        self.writing.tries.remove(&write.row);
                    }
                    if let Some(end) = self.settle(offset, answered) {
                        return Some(end);
                    }
                }
            }
        }
        // Other statements or newer events of these rows have waited for the answer.
        if self.progress.ready() > 0 {
            self.writing.rows_due.get_or_insert(self.shared.at());
        }
        if !again.is_empty() {
            if attempt >= SOME_TRIES && self.writing.slow.is_due(SAID_EVERY) {
                tracing::warn!(partition = %self.log.partition(), tries = attempt + 1, "the store is busy: sending again");
            }
            self.wait(attempt, move |held| {
                for offset in again {
                    held.progress.settle(offset, Answer::Again);
                }
                held.writing.rows_due = Some(held.shared.at());
            });
        }
        None
    }

    /// Waits before a repeat, then does `then`.
    pub(super) fn wait(&mut self, attempt: u32, then: impl FnOnce(&mut Self) + Send + 'static) {
        let shared = Arc::clone(&self.shared);
        self.begin(async move { shared.host.clock().sleep(shared.pause(attempt)).await }, |held, ()| {
            then(held);
            None
        });
    }

    /// Takes note that the store refuses something before `offset`. Returns the end: the partition stands still.
    pub(super) fn refused(&mut self, why: String, offset: Offset) -> End {
        self.shown.refused = Some(offset);
        End::Stands(Standstill::Refused(why))
    }

    fn settle(&mut self, offset: Offset, answered: Outcome<Answer>) -> Option<End> {
        let why = answered.as_ref().err().map(Fault::to_string).unwrap_or_default();
        match self.progress.settle(offset, answered.unwrap_or(Answer::Refused)) {
            Settled::Finished | Settled::Again => None,
            Settled::Halt => Some(self.refused(why, offset.next())),
            Settled::Refused => {
                self.put_aside(offset, self.run_of(offset), Rejection::RefusedByStore(why));
                None
            }
            Settled::Misrouted => {
                self.put_aside(offset, self.run_of(offset), Rejection::Misrouted);
                None
            }
        }
    }
}
