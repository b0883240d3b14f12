//! One run from start-up to its end: everything ready, the load, chaos beside it, and the comparison after it.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tally_service::{Exit, Host, Stage, Stop, Stopped};
use tokio::time::Instant;

use crate::chaos::Chaos;
use crate::config::LoadConfig;
use crate::control::Control;
use crate::load::{Load, Speaker};
use crate::observe::Board;
use crate::probe::Probe;
use crate::screen::{LiveLine, Screen};
use crate::services::Services;
use crate::staleness::Staleness;
use crate::verify::Verify;

/// What a run consists of.
pub(crate) struct Session {
    pub(crate) host: Host,
    pub(crate) services: Services,
    pub(crate) screen: Screen,
    pub(crate) board: Board,
    pub(crate) staleness: Arc<Staleness>,
    pub(crate) saying: Option<Saying>,
    pub(crate) api: SocketAddr,
    pub(crate) chaos: Option<Chaos>,
    pub(crate) duration: Option<Duration>,
    pub(crate) verify: Option<Verify>,
}

/// The load, if there is one.
pub(crate) struct Saying {
    pub(crate) speaker: Speaker,
    pub(crate) config: LoadConfig,
    pub(crate) control: Control,
    pub(crate) seed: u64,
}

impl Session {
    /// Runs until its time is over or it is stopped.
    ///
    /// # Errors
    /// What it cannot go on after.
    pub(crate) async fn run(mut self, stop: Stop) -> anyhow::Result<Exit> {
        for part in self.services.all() {
            stop.unless_requested(part.ready()).await?;
        }
        self.screen.say("ready");
        let line = LiveLine { board: self.board.clone(), screen: self.screen.clone() };
        let line = self.host.worker(Stage::Support, "live line", line);
        let until = self.duration.map(|duration| Instant::now() + duration);
        let chaos = self.chaos.take().map(|chaos| self.host.worker(Stage::Intake, "chaos", chaos));
        let said = self.saying.take().map(|saying| self.say(saying, until)).unwrap_or_default();
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
        for worker in &said {
            stop.unless_requested(worker.ended()).await?;
        }
        line.request_stop();
        stop.unless_requested(line.ended()).await?;
        self.compare(&stop).await
    }

    /// Starts load and probes.
    fn say(&self, saying: Saying, until: Option<Instant>) -> Vec<tally_service::Worker> {
        let Saying { speaker, config, control, seed } = saying;
        let mut workers = Vec::new();
        for post in speaker.names.probes() {
            let probe = Probe {
                speaker: speaker.clone(),
                post,
                api: self.api,
                control: control.clone(),
                staleness: Arc::clone(&self.staleness),
                until,
            };
            workers.push(self.host.worker(Stage::Intake, "probe", probe));
        }
        workers.push(self.host.worker(Stage::Intake, "load", Load { speaker, config, control, seed, until }));
        workers
    }

    async fn compare(&self, stop: &Stop) -> anyhow::Result<Exit> {
        let Some(verify) = &self.verify else { return Ok(Exit::CLEAN) };
        let report = match verify.run(self.staleness.overall(), stop).await {
            Err(error) if error.is::<Stopped>() => return Err(error),
            report => report?,
        };
        self.screen.say(&report.to_string());
        Ok(if report.is_clean() { Exit::CLEAN } else { Exit::FAILED })
    }
}
