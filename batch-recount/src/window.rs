//! Runs attempts at an exact count: carries out what [`Attempt`] asks for, and tells it the answers.

use std::hash::{BuildHasher, RandomState};

use tally_core::audit::Cause;
use tally_core::backoff::Backoff;
use tally_core::ids::{Ordinal, RowKey};
use tally_core::ports::{Judged, LedgerEntry, MarkerPut};
use tally_core::window::{Attempt, Effect, Ending, Input, Judgement, Marker, Roster, Verdict, WindowRun};

use crate::cost::ITEM;
use crate::row_budget::HeldRows;
use crate::store::Store;
use crate::windows::Windows;

/// What a verdict with its ledger line costs: two items in a transaction.
const VERDICT: u64 = 4;

/// One window under way.
pub(crate) struct Window<'a> {
    of: &'a Windows,
    key: &'a RowKey,
    run: WindowRun,
    why: Cause,
    held: Option<HeldRows>,
    /// The stream shard that fed the row key last.
    feeder: Option<Ordinal>,
    /// Marker puts that failed, one after the other.
    failed_puts: u32,
}

impl<'a> Window<'a> {
    /// A window on `key`, under the name `run`, which no other has.
    pub(crate) fn new(of: &'a Windows, key: &'a RowKey, run: WindowRun, why: Cause) -> Self {
        Self { of, key, run, why, held: None, feeder: None, failed_puts: 0 }
    }

    /// One attempt from its beginning to its end; about `expected` rows are known. Dropped anywhere it leaves nothing to
    /// clean up.
    pub(crate) async fn ended(mut self, expected: u64) -> anyhow::Result<Ending> {
        let mut attempt = Attempt::new(self.key.clone(), self.run, expected, self.of.rules.attempt, roster());
        let (mut input, mut effects) = (Input::Begin, Vec::new());
        loop {
            attempt.step(self.of.stream.now(), input, &mut effects);
            match effects.pop().expect("an attempt that was answered asks on") {
                Effect::End(ending) => return Ok(ending),
                effect => input = self.carry_out(effect).await?,
            }
        }
    }

    async fn carry_out(&mut self, effect: Effect) -> anyhow::Result<Input> {
        let Store { calls, ports, .. } = &self.of.store;
        Ok(match effect {
            Effect::TakeRoom(rows) => {
                self.held = Some(calls.unless_stopped(self.of.rows.take(rows)).await?);
                Input::Room(true)
            }
            Effect::GrowRoom(rows) => Input::Room(self.held.as_mut().is_some_and(|held| held.grow(rows))),
            Effect::ReadMarker => {
                let marker = calls.persist("read a marker", || ports.markers.marker(self.key)).await?;
                self.of.store.paid(ITEM);
                Input::Marker(marker)
            }
            Effect::PutMarker { marker, required } => Input::Put(self.put(marker, required).await?),
            Effect::WakeAt(at) => {
                calls.wait_until(at).await?;
                Input::Woke
            }
            Effect::ReadCounter => {
                let counter = self.of.store.counter(&self.key.counter).await?;
                self.feeder = counter.as_ref().and_then(|counter| counter.shards.get(&self.key.shard)?.feeder);
                Input::Counter(counter)
            }
            Effect::ReadRows(after) => {
                let page = self.of.store.page("read rows", || ports.rows.weights(self.key, after.as_ref())).await?;
                let readable = |(member, weight): (_, Option<_>)| Some((member, weight?));
                match page.items.into_iter().map(readable).collect() {
                    Some(rows) => Input::Rows(rows, page.next),
                    None => Input::Unreadable,
                }
            }
            Effect::TakeTurn => {
                calls.wait_until(self.of.turns.take(self.feeder)).await?;
                Input::Turn
            }
            Effect::ReadReport => {
                let report = calls.persist("read a report", || ports.recounts.report(self.key, self.run)).await?;
                self.of.store.paid(ITEM);
                Input::Report(report)
            }
            Effect::ReadApplied => Input::Applied(self.of.stream.as_of().await?),
            Effect::Judge(verdict, judgement) => Input::Judged(self.judge(&verdict, judgement).await?),
            Effect::BackOff(tries) => {
                calls.wait(Backoff::STORE.wait(tries, self.of.chance.fraction())).await?;
                Input::Woke
            }
            Effect::End(_) => unreachable!("the end is not carried out"),
        })
    }

    /// Puts a marker, once: after a fault the marker that stands says what became of it.
    async fn put(&mut self, marker: Marker, required: Option<Marker>) -> anyhow::Result<MarkerPut> {
        let Store { calls, ports, .. } = &self.of.store;
        self.of.store.wrote(1);
        Ok(match ports.markers.put_marker(self.key, marker, required).await {
            Ok(put) => {
                self.failed_puts = 0;
                put
            }
            Err(fault) => {
                calls.pause("put a marker", fault, &mut self.failed_puts).await?;
                MarkerPut::Unclear
            }
        })
    }

    /// Sends a verdict, once: after a fault it is void.
    async fn judge(&self, verdict: &Verdict, Judgement { before, after, .. }: Judgement) -> anyhow::Result<Judged> {
        let entry = LedgerEntry {
            counter: self.key.counter.clone(),
            shard: Some(self.key.shard),
            at: self.of.store.now(),
            run: self.run,
            by: self.of.claims.me.0.clone(),
            before,
            after,
            why: self.why.label().to_owned(),
        };
        self.of.store.wrote(VERDICT);
        match self.of.store.ports.counts.judge(verdict, &entry).await {
            Ok(judged) => Ok(judged),
            Err(fault) => {
                self.of.store.calls.pause("write a verdict", fault, &mut 0).await?;
                Ok(Judged::Void)
            }
        }
    }
}

/// A roster whose fingerprints are drawn under random keys, so that chosen ids cannot be made to collide.
pub(crate) fn roster() -> Roster {
    let keys = [RandomState::new(), RandomState::new()];
    Roster::new(move |sort| {
        let [high, low] = keys.each_ref().map(|key| u128::from(key.hash_one(sort)));
        high << 64 | low
    })
}
