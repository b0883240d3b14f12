//! Follows up row keys that were not proved: carries out what [`FollowUp`] asks for, looks and windows side by side.

use std::sync::Arc;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use futures_util::stream::{self, BoxStream, FuturesUnordered, Stream, StreamExt, TryStreamExt};
use tally_core::audit::{Candidate, Cause, Doubt, FollowUp, FollowUpEffect, FollowUpInput, RowsRead};
use tally_core::ids::RowKey;
use tally_core::window::{Proof, Repaired, Roster};
use tokio::sync::Semaphore;

use super::Left;
use crate::findings::Findings;
use crate::places::Places;
use crate::progress::Progress;
use crate::recounter::Recounter;
use crate::row_budget::HeldRows;
use crate::trails::Followed;
use crate::window::roster;

/// Row keys whose rows are read at once: what is written beside them waits behind few reads.
const COUNTS: usize = 16;

/// The follow-ups of one audit.
pub(super) struct FollowUps {
    of: Recounter,
    dry_run: bool,
    findings: Arc<Findings>,
    left: Arc<Left>,
    progress: Arc<Progress>,
    counts: Semaphore,
    /// Row keys recounted by windows at once, the most wrong first.
    repairs: Places,
}

/// One follow-up under way.
struct Under<'a> {
    of: &'a FollowUps,
    /// Row keys that are neither settled nor left.
    undecided: u64,
    /// The answers to what was asked for last.
    answers: Answers<'a>,
    repairs: FuturesUnordered<Repair<'a>>,
    trail: Option<Arc<Followed>>,
    /// The rows that the look under way may hold. A window waits for room, and may need all that there is.
    held: Vec<HeldRows>,
}

/// Answers, each with the rows that it holds.
type Answers<'a> = BoxStream<'a, anyhow::Result<(FollowUpInput, Vec<HeldRows>)>>;
type Repair<'a> = BoxFuture<'a, anyhow::Result<(RowKey, Repaired)>>;

impl FollowUps {
    pub(super) fn new(
        of: &Recounter,
        dry_run: bool,
        findings: &Arc<Findings>,
        left: &Arc<Left>,
        progress: &Arc<Progress>,
    ) -> Self {
        let (counts, repairs) = (Semaphore::new(COUNTS), Places::new(of.rules.concurrency));
        let (findings, left, progress) = (Arc::clone(findings), Arc::clone(left), Arc::clone(progress));
        Self { of: of.clone(), dry_run, findings, left, progress, counts, repairs }
    }

    /// Whether nothing may be written.
    pub(super) fn is_dry_run(&self) -> bool {
        self.dry_run
    }

    /// Settles row keys; how many this leaves unsettled.
    pub(super) async fn follow_up(&self, doubts: Vec<(RowKey, Doubt)>) -> anyhow::Result<u64> {
        self.progress.doubted(doubts.len());
        self.findings.doubted(doubts.len() as u64);
        let mut under = Under {
            of: self,
            undecided: doubts.len() as u64,
            answers: stream::empty().boxed(),
            repairs: FuturesUnordered::new(),
            trail: None,
            held: Vec::new(),
        };
        let mut machine = FollowUp::new(doubts, self.of.rules.guard, self.dry_run);
        let (mut input, mut effects) = (FollowUpInput::Begin, Vec::new());
        loop {
            machine.step(self.of.stream.now(), input, &mut effects);
            for effect in effects.drain(..) {
                if let Some(unsettled) = under.carry_out(effect).await? {
                    return Ok(unsettled);
                }
            }
            if !machine.holds_rows() {
                under.held.clear();
            }
            input = under.answer().await?;
        }
    }

    /// The rows of row keys, in their order.
    async fn all_rows(&self, keys: Vec<RowKey>) -> anyhow::Result<(FollowUpInput, Vec<HeldRows>)> {
        let read = stream::iter(keys).map(|key| self.rows(key).boxed()).buffered(COUNTS);
        let (rows, held): (Vec<_>, Vec<_>) = read.try_collect::<Vec<_>>().await?.into_iter().unzip();
        Ok((FollowUpInput::Rows(rows), held.into_iter().flatten().collect()))
    }

    /// The rows of one row key, held where there is room for them.
    async fn rows(&self, key: RowKey) -> anyhow::Result<(RowsRead, Option<HeldRows>)> {
        let _turn = self.counts.acquire().await.expect("the semaphore is never closed");
        let store = &self.of.store;
        let (mut read, mut after) = (RowsRead { rows: 0, weight: 0, roster: Some(roster()) }, None);
        let mut held = HeldRows::none_of(&self.of.windows.rows);
        loop {
            let page = store.page("read rows", || store.ports.rows.weights(&key, after.as_ref())).await?;
            read.rows += page.items.len() as u64;
            let weights = page.items.iter().filter_map(|(_, weight)| *weight);
            read.weight += weights.map(|weight| i128::from(weight.get())).sum::<i128>();
            let readable: Option<Vec<_>> =
                page.items.into_iter().map(|(member, weight)| Some((member, weight?))).collect();
            read.roster = read.roster.zip(readable).filter(|_| held.grow(read.rows)).map(|(mut roster, rows)| {
                roster.extend(&rows);
                roster
            });
            after = page.next;
            if after.is_none() {
                read.roster.iter_mut().for_each(Roster::seal);
                let held = read.roster.is_some().then_some(held);
                return Ok((read, held));
            }
        }
    }

    /// Recounts a row key by windows once it is its turn.
    async fn repair(&self, candidate: Candidate) -> anyhow::Result<(RowKey, Repaired)> {
        let Candidate { key, wrong, by, corrected } = candidate;
        let _place = self.repairs.take(by).await;
        let why = wrong.map_or(Cause::Unproved, |wrong| wrong.cause);
        let proof = if corrected { Proof::AfterLook } else { Proof::Look };
        let repaired = self.of.windows.repair(&key, why, proof, &self.findings).await?;
        self.progress.settled();
        if repaired == Repaired::Left {
            self.left.add(key.clone());
        }
        Ok((key, repaired))
    }
}

/// Answers that hold no rows.
fn plain<'a>(inputs: impl Stream<Item = anyhow::Result<FollowUpInput>> + Send + 'a) -> Answers<'a> {
    inputs.map_ok(|input| (input, Vec::new())).boxed()
}

impl<'a> Under<'a> {
    /// Carries out `effect`; how many row keys are left unsettled, where it is the end.
    async fn carry_out(&mut self, effect: FollowUpEffect) -> anyhow::Result<Option<u64>> {
        let FollowUps { of: recounter, findings, progress, .. } = self.of;
        match effect {
            FollowUpEffect::BeginTrail => {
                self.trail = recounter.trails.begin().await?;
                self.answers = stream::iter([Ok((FollowUpInput::TrailBegun, Vec::new()))]).boxed();
            }
            FollowUpEffect::ReadCounters(ids) => {
                self.answers = plain(recounter.store.each_counter(&ids).map_ok(FollowUpInput::Counter));
            }
            FollowUpEffect::CountRows(keys) => self.answers = stream::once(self.of.all_rows(keys)).boxed(),
            FollowUpEffect::AwaitApplied(past) => {
                let passed = stream::once(recounter.stream.passed(past));
                self.answers = plain(passed.map_ok(|as_of| FollowUpInput::Applied(Some(as_of))));
            }
            FollowUpEffect::ReadTrail(of) => {
                let trail = self.trail.clone();
                let touched = async move {
                    match trail {
                        Some(trail) => recounter.trails.touched(&trail, &of).await,
                        None => Ok(vec![None; of.len()]),
                    }
                };
                self.answers = plain(stream::once(touched).map_ok(FollowUpInput::Touched));
            }
            FollowUpEffect::Proved(proved) => {
                findings.proved(proved);
                progress.looked(proved);
                self.decided(proved);
            }
            FollowUpEffect::Confirmed(confirmed) => self.decided(confirmed),
            FollowUpEffect::Differs(drift) => findings.differs(drift),
            FollowUpEffect::Repair(candidates) => {
                progress.asked(candidates.len());
                let of = self.of;
                self.repairs.extend(candidates.into_iter().map(|candidate| of.repair(candidate).boxed()));
            }
            FollowUpEffect::End(unsettled) => {
                // What cannot be read, and what a dry run leaves as it is.
                progress.looked(self.undecided);
                self.decided(self.undecided);
                return Ok(Some(unsettled));
            }
        }
        Ok(None)
    }

    /// The next thing that becomes known.
    async fn answer(&mut self) -> anyhow::Result<FollowUpInput> {
        tokio::select! {
            biased;
            Some(answer) = self.answers.next() => {
                let (answer, held) = answer?;
                self.held.extend(held);
                Ok(answer)
            }
            Some(repaired) = self.repairs.next() => {
                let (key, repaired) = repaired?;
                if repaired != Repaired::Corrected {
                    self.decided(1);
                }
                Ok(FollowUpInput::Repaired(key, repaired))
            }
            else => unreachable!("a follow-up that waits for nothing has ended"),
        }
    }

    fn decided(&mut self, keys: u64) {
        self.undecided = self.undecided.saturating_sub(keys);
        self.of.findings.settled(keys);
    }
}
