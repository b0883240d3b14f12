//! One run from start-up to its end: everything ready, the load, chaos beside it, and the comparison after it.

use std::sync::Arc;
use std::time::Duration;

use tally_service::{Exit, Host, Stage, Stop, Worker};
use tokio::time::Instant;

use crate::chaos::Chaos;
use crate::load::{Load, Writer};
use crate::local::Local;
use crate::probe::Probe;
use crate::screen::LiveLine;
use crate::sightings::Watcher;
use crate::verify;

/// What a run consists of.
pub(crate) struct Session {
    pub(crate) host: Host,
    pub(crate) local: Arc<Local>,
    /// What the load writes through, if there is a load.
    pub(crate) writer: Option<Writer>,
    pub(crate) chaos: Option<Chaos>,
    pub(crate) seed: u64,
    pub(crate) duration: Option<Duration>,
    /// Whether to compare at the end.
    pub(crate) verify: bool,
}

impl Session {
    /// Runs until its time is over or it is stopped, says what was done on purpose, and compares where its time was over.
    ///
    /// # Errors
    /// What it cannot go on after.
    pub(crate) async fn run(mut self, stop: Stop) -> anyhow::Result<Exit> {
        let over = self.until_over(&stop).await;
        self.say_what_happened();
        over?;
        self.compare(&stop).await
    }

    async fn until_over(&mut self, stop: &Stop) -> anyhow::Result<()> {
        for service in self.local.services.needed() {
            stop.unless_requested(service.ready()).await?;
        }
        self.local.screen.say("ready");
        let line = self.host.worker(Stage::Support, "live line", LiveLine(Arc::clone(&self.local)));
        let until = self.duration.map(|duration| Instant::now() + duration);
        let chaos = self.chaos.take().map(|chaos| self.host.worker(Stage::Intake, "chaos", chaos));
        let watcher = self.watcher();
        let writers = self.writer.take().map(|writer| self.write(&writer, until)).unwrap_or_default();
        let over = async {
            match until {
                Some(until) => tokio::time::sleep_until(until).await,
                None => std::future::pending().await,
            }
        };
        stop.unless_requested(over).await?;
        if let Some(chaos) = chaos {
            chaos.request_stop();
            stop.unless_requested(chaos.ended()).await?;
        }
        for worker in &writers {
            stop.unless_requested(worker.ended()).await?;
        }
        for watcher in std::iter::once(&line).chain(&watcher) {
            watcher.request_stop();
            stop.unless_requested(watcher.ended()).await?;
        }
        Ok(())
    }

    /// Starts to look at lists, where they are compared at the end.
    fn watcher(&self) -> Option<Worker> {
        let duration = self.duration.filter(|_| self.verify && self.local.services.trends.is_some())?;
        let watcher = Watcher { local: Arc::clone(&self.local), duration };
        Some(self.host.worker(Stage::Support, "lists", watcher))
    }

    /// Starts load and probes.
    fn write(&self, writer: &Writer, until: Option<Instant>) -> Vec<Worker> {
        let probes = self.local.ledger.names().probes();
        let mut workers: Vec<Worker> = probes
            .map(|post| self.host.worker(Stage::Intake, "probe", Probe { writer: writer.clone(), post, until }))
            .collect();
        workers.extend(self.local.load.map(|config| {
            let load = Load { writer: writer.clone(), config, seed: self.seed, until };
            self.host.worker(Stage::Intake, "load", load)
        }));
        workers
    }

    fn say_what_happened(&self) {
        let Local { engines, happened, screen, .. } = &*self.local;
        let faults = engines.store.emulator.as_ref().map(|emulator| emulator.stats().faults).unwrap_or_default();
        let happened = happened.lines(&faults);
        if !happened.is_empty() {
            screen.say(&format!("what went wrong on purpose\n{}", happened.join("\n")));
        }
    }

    async fn compare(&self, stop: &Stop) -> anyhow::Result<Exit> {
        if !self.verify {
            return Ok(Exit::CLEAN);
        }
        let comparison = verify::run(&self.local, stop).await?;
        self.local.screen.say(&comparison.to_string());
        Ok(if comparison.is_clean() { Exit::CLEAN } else { Exit::FAILED })
    }
}
