//! The machine's notes as metrics, log lines, readiness and lag.

use std::sync::Arc;

use tally_core::consume::{Cause, Consume, Halt, Note};
use tally_core::fence::{Offset, Partition};
use tally_core::ids::{Lane, LaneCount};
use tally_service::Readiness;
use tracing::Span;

use super::Shared;
use crate::lag::Progress;
use crate::metrics;
use crate::trace::Links;

/// Where the notes of one partition go.
pub(super) struct Notes {
    shared: Arc<Shared>,
    partition: Partition,
    progress: Arc<Progress>,
    readiness: Readiness,
    /// Why the fence was read last.
    cause: &'static str,
    /// The state the partition is counted in.
    state: Option<metrics::InState>,
    /// For each lane the span of the batch that is being written.
    flushes: Vec<Span>,
    /// How many lanes the partition has, as it is shown.
    lanes: metrics::Lanes,
}

impl Notes {
    pub(super) fn new(partition: &Partition, progress: Arc<Progress>, shared: &Arc<Shared>) -> Self {
        let (shared, readiness) = (Arc::clone(shared), shared.host.readiness().clone());
        let partition = partition.clone();
        let flushes = vec![Span::none(); LaneCount::MAX.get()];
        let lanes = metrics::Lanes::of(partition.index);
        Self { shared, partition, progress, readiness, cause: "", state: None, flushes, lanes }
    }

    /// The span of the batch that `lane` is writing.
    pub(super) fn span(&self, lane: Lane) -> Span {
        self.flushes[lane.index()].clone()
    }

    fn no_flush(&mut self) {
        self.flushes.fill(Span::none());
    }

    /// Takes a note of `machine`.
    pub(super) fn take(&mut self, note: Note, machine: &Consume) {
        match note {
            Note::Loading(cause) => {
                (self.state, self.cause) = (None, cause.label());
                metrics::reloaded(self.cause);
            }
            Note::Loaded(fences) => self.progress.loaded(&fences),
            Note::Reading(fences) => {
                let (counters, lanes) = (fences.terms().defs.max(1), fences.lanes());
                let (offset, cfg) = (fences.least().offset, fences.cfg());
                self.lanes.show(lanes);
                tracing::info!(%offset, cfg, counters, %lanes, cause = self.cause, "reading from the fence");
                self.readiness.forget(&self.condition());
                self.state = Some(metrics::InState::reading());
            }
            Note::Retrying { call, class, tries, why } => self.retrying(call, class, tries, &why),
            Note::Taken { stale, misrouted, bad_regions, oldest } => {
                if let Some(oldest) = oldest {
                    self.progress.waiting(oldest);
                }
                metrics::records("stale", stale);
                metrics::bad_regions(bad_regions);
                if let Some(misrouted) = misrouted {
                    metrics::misrouted(misrouted.events);
                    self.shared.misrouted.warn(&self.shared, &self.partition, machine, misrouted);
                }
            }
            Note::Sealed { lane, trigger, from, to } => {
                let (partition, links) = (&self.partition, Links::of(machine.records(from, to)).to_string());
                self.flushes[lane.index()] =
                    tracing::info_span!("flush", %partition, %lane, %from, %to, trigger = trigger.label(), links);
            }
            Note::Applied(events) => metrics::records("applied", events as u64),
            Note::Bisected => metrics::bisected(),
            Note::Flushed { lane, trigger, events, rows, took } => {
                self.flushes[lane.index()] = Span::none();
                metrics::flushed(self.partition.index, trigger, events, rows, took);
            }
            Note::Advanced { fence, furthest, waiting } => self.progress.reached(&fence, furthest, waiting),
            Note::Doubted { cause, why } => {
                let partition = &self.partition;
                match cause {
                    // As it should be, once for each change.
                    Cause::Definitions | Cause::Lanes => tracing::info!(%partition, why, "reading the fence again"),
                    _ => tracing::warn!(%partition, cause = cause.label(), why, "reading the fence again"),
                }
                self.state = None;
                self.no_flush();
            }
            Note::Halted { halt, again } => self.halted(&halt, again),
        }
    }

    /// The partition is left: it is no reason to be ready or not any more.
    pub(super) fn left(&mut self, fence: Option<Offset>, unsent: bool) {
        if let Some(fence) = fence {
            let partition = &self.partition;
            tracing::info!(%partition, %fence, unsent, "leaving; the next owner reads again what was not sent");
        }
        self.readiness.forget(&self.condition());
    }

    fn retrying(&self, call: &'static str, class: &'static str, tries: u32, why: &str) {
        metrics::retried(call, class);
        if tries.is_power_of_two() {
            let partition = &self.partition;
            match call {
                "commit" => tracing::warn!(%partition, tries, why, "the store is busy: sending again"),
                _ => tracing::warn!(%partition, call, tries, error = why, "trying again"),
            }
        }
    }

    /// The partition stands still, aloud, until it is time to look again.
    fn halted(&mut self, halt: &Halt, again: bool) {
        tracing::error!(partition = %self.partition, alarm = halt.name(), "standing still: {halt}");
        if !again {
            metrics::alarm(halt.name());
        }
        self.readiness.not_ready(&self.condition(), halt.to_string());
        self.state = Some(metrics::InState::halted());
        self.no_flush();
    }

    /// The name under which readiness knows this partition.
    fn condition(&self) -> String {
        format!("partition-{}", self.partition.index)
    }
}

impl Drop for Notes {
    fn drop(&mut self) {
        self.readiness.forget(&self.condition());
    }
}
