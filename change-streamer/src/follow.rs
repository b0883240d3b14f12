//! Runs the machine that follows the stream: hands it what readers and appliers report and what stream and checkpoints
//! answer, keeps its timers, and carries out what it asks for.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use futures_util::stream::{FuturesUnordered, StreamExt};
use tally_core::lineage::Picture;
use tally_core::shards::{Effect, Input, Shards, Wait};
use tally_service::{Host, Stop, Task};
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep_until};

use crate::calls::Calls;
use crate::health;
use crate::readers::Readers;
use crate::reports::{Report, Waiting};

/// How long leases may take to be given back after the last call.
const FAREWELL: Duration = Duration::from_secs(1);

/// The task that follows the stream. It is stopped last, since appliers that still write may meet losses.
pub(crate) struct Follow {
    host: Host,
    machine: Shards,
    calls: Arc<Calls>,
    readers: Readers,
    reports: mpsc::Receiver<Report>,
    pictures: watch::Sender<Arc<Picture>>,
    waits: BTreeMap<Wait, Instant>,
    /// Readers and appliers that wait behind a loss.
    waiting: Waiting,
    answers: FuturesUnordered<BoxFuture<'static, anyhow::Result<Input>>>,
    effects: Vec<Effect>,
}

impl Follow {
    pub(crate) fn new(
        host: Host,
        machine: Shards,
        calls: Calls,
        readers: Readers,
        reports: mpsc::Receiver<Report>,
        pictures: watch::Sender<Arc<Picture>>,
    ) -> Self {
        let (waits, waiting) = ([(Wait::Look, Instant::now())].into(), Waiting::default());
        let (answers, effects, calls) = (FuturesUnordered::new(), Vec::new(), Arc::new(calls));
        Self { host, machine, calls, readers, reports, pictures, waits, waiting, answers, effects }
    }

    async fn follow(&mut self, stop: &Stop) -> anyhow::Result<()> {
        let intake = self.host.stop();
        let mut leaving = false;
        loop {
            let due = self.waits.iter().min_by_key(|(_, due)| **due).map(|(wait, due)| (wait.clone(), *due));
            let input = tokio::select! {
                biased;
                () = stop.requested() => return Ok(()),
                () = intake.requested(), if !leaving => {
                    leaving = true;
                    Input::Leave
                }
                Some(answered) = self.answers.next() => answered?,
                Some(report) = self.reports.recv() => self.waiting.input(report),
                wait = until(due) => {
                    self.waits.remove(&wait);
                    Input::Woke(wait)
                }
            };
            self.step(input);
            let ended = self.readers.ended();
            // What they reported before they ended comes first.
            if self.reports.is_empty() {
                for shard in ended {
                    self.readers.forget(&shard);
                    self.step(Input::Ended(shard));
                }
            }
        }
    }

    fn step(&mut self, input: Input) {
        let mut effects = std::mem::take(&mut self.effects);
        self.machine.step(self.host.clock().reading(), input, &mut effects);
        for effect in effects.drain(..) {
            self.carry_out(effect);
        }
        self.effects = effects;
    }

    fn carry_out(&mut self, effect: Effect) {
        let label = self.machine.label();
        match effect {
            Effect::Ask(request) => {
                self.answers.push(Box::pin(Arc::clone(&self.calls).ask(label.clone(), request)));
            }
            Effect::Wait(wait, span) => {
                // Workers that look at the same moments would find each other's leases moved whenever they act.
                let early = if wait == Wait::Look { self.host.chance().fraction() / 4.0 } else { 0.0 };
                self.waits.insert(wait, Instant::now() + span.mul_f64(1.0 - early));
            }
            Effect::Read(checkpoint, fed) => self.readers.start(label, &checkpoint, fed),
            Effect::Stop(shard) => self.readers.stop(&shard),
            Effect::GoOn(waiter) => self.waiting.go_on(waiter),
            Effect::Show(picture) => {
                self.pictures.send_replace(picture);
            }
            Effect::Tell(event) => health::tell(&event),
            Effect::Report(health) => health::report(&health, self.host.readiness()),
        }
    }

    /// Gives the leases back once everything read was written, so that others need not wait for them to go stale.
    async fn release(&mut self, stop: &Stop) -> anyhow::Result<()> {
        self.answers.clear();
        self.step(Input::Release);
        // This comes last, and so perhaps after the last call: there is a moment for it all the same.
        let farewell = async {
            stop.last_call().await;
            self.calls.patience.clock().sleep(FAREWELL).await;
        };
        let given_back = async {
            while let Some(answered) = self.answers.next().await {
                answered?;
            }
            anyhow::Ok(())
        };
        tokio::select! {
            biased;
            given_back = given_back => given_back,
            () = farewell => {
                tracing::warn!("not all leases could be given back: they are taken when they are stale");
                Ok(())
            }
        }
    }
}

impl Task for Follow {
    async fn run(mut self, stop: Stop) -> anyhow::Result<()> {
        self.follow(&stop).await?;
        self.release(&stop).await
    }
}

async fn until(due: Option<(Wait, Instant)>) -> Wait {
    let Some((wait, due)) = due else { return std::future::pending().await };
    sleep_until(due).await;
    wait
}
