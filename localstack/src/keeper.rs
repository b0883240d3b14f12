//! Keeps the services running: one that dies is started again after a moment, and the restarts are counted.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use anyhow::anyhow;
use tally_core::backoff::Backoff;
use tally_service::{Chance, Host, How, Readiness, Running, Stop, Stopped, Task};
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::page;

/// How long one service may drain when everything stops: several stages have to fit into the process's own grace.
const GRACE: Duration = Duration::from_millis(1200);
/// How long a service that was killed stays down, so that a person can see it.
const AWAY: Duration = Duration::from_secs(1);
/// Between two starts of a service that keeps dying.
const AGAIN: Backoff = Backoff { base: Duration::from_millis(500), cap: Duration::from_secs(10) };
/// After so long without dying a service counts as recovered.
const HEALTHY: Duration = Duration::from_secs(30);

/// The handle of one service. Clones are the same service.
#[derive(Clone, Debug)]
pub(crate) struct Service(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    name: &'static str,
    readiness: Readiness,
    down: AtomicBool,
    restarts: AtomicU64,
    kill: Notify,
}

impl Service {
    /// A service not started yet, whose conditions are among those of `readiness`.
    pub(crate) fn new(name: &'static str, readiness: &Readiness) -> Self {
        let (down, restarts) = (AtomicBool::new(true), AtomicU64::new(0));
        Self(Arc::new(Inner { name, readiness: readiness.scope(name), down, restarts, kill: Notify::new() }))
    }

    pub(crate) fn name(&self) -> &'static str {
        self.0.name
    }

    /// Kills it, as a crash would.
    pub(crate) fn kill(&self) {
        self.0.kill.notify_one();
    }

    /// Completes once it can do its work.
    pub(crate) async fn ready(&self) {
        self.0.readiness.until_ready().await;
    }

    /// As the page shows it.
    pub(crate) fn shown(&self) -> page::Part {
        let state = if self.0.down.load(Ordering::Relaxed) {
            page::PartState::Down
        } else if self.0.readiness.report().ready {
            page::PartState::Up
        } else {
            page::PartState::Starting
        };
        page::Part { name: self.0.name.to_owned(), state, restarts: self.0.restarts.load(Ordering::Relaxed) }
    }
}

pub(crate) struct Keeper<F> {
    pub(crate) service: Service,
    /// Starts the service's app in a host.
    pub(crate) start: F,
    pub(crate) chance: Chance,
}

enum End {
    Stopped,
    Killed,
    Died,
}

impl<F> Keeper<F>
where
    F: Fn(Host) -> anyhow::Result<Running> + Send + Sync + 'static,
{
    /// One life of the service.
    async fn live(&self, stop: &Stop) -> anyhow::Result<End> {
        let Inner { name, readiness, down, kill, .. } = &*self.service.0;
        let host = Host::new(name).with_chance(self.chance.fork()).with_readiness(readiness.clone());
        let running = (self.start)(host)?;
        down.store(false, Ordering::Relaxed);
        let end = tokio::select! {
            biased;
            () = stop.requested() => {
                for end in running.stop(GRACE).await.ended {
                    tracing::warn!(service = name, "{end}");
                }
                End::Stopped
            }
            () = kill.notified() => {
                running.kill().await;
                End::Killed
            }
            ended = running.ended() => {
                tracing::error!(service = name, "{ended}");
                running.kill().await;
                if let How::UnknownFormat(found) = ended.how {
                    return Err(found.into());
                }
                if ended.task == "start" && matches!(ended.how, How::Failed(_) | How::Misconfigured(_)) {
                    return Err(anyhow!("{name} cannot start: {ended}"));
                }
                End::Died
            }
        };
        down.store(true, Ordering::Relaxed);
        Ok(end)
    }
}

impl<F> Task for Keeper<F>
where
    F: Fn(Host) -> anyhow::Result<Running> + Send + Sync + 'static,
{
    async fn run(self, stop: Stop) -> anyhow::Result<()> {
        let mut deaths = 0;
        loop {
            let began = Instant::now();
            let wait = match self.live(&stop).await? {
                End::Stopped => return Ok(()),
                End::Killed => AWAY,
                End::Died => {
                    deaths = if began.elapsed() >= HEALTHY { 0 } else { deaths + 1 };
                    AGAIN.ceiling(deaths)
                }
            };
            stop.unless_requested(tokio::time::sleep(wait)).await.map_err(|Stopped| Stopped)?;
            self.service.0.restarts.fetch_add(1, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use tally_service::{App, Stage, Supervisor};

    use super::*;

    /// A service that is ready at once and runs until it is stopped, or dies, or cannot start.
    #[derive(Clone, Copy)]
    enum Mortal {
        Lives,
        Dies,
        Refuses,
    }

    impl App for Mortal {
        async fn start(self, host: Host) -> anyhow::Result<()> {
            anyhow::ensure!(!matches!(self, Self::Refuses), "no such table");
            host.spawn(Stage::Work, "live", move |stop: Stop| async move {
                anyhow::ensure!(!matches!(self, Self::Dies), "dead");
                stop.requested().await;
                Ok(())
            });
            Ok(())
        }
    }

    fn keep(mortal: Mortal) -> (Service, Supervisor) {
        let service = Service::new("mortal", &Readiness::new());
        let start = move |host| Ok(Running::start(mortal, host));
        let supervisor = Supervisor::new("test");
        supervisor.spawn(Stage::Work, "keeper", Keeper { service: service.clone(), start, chance: Chance::seeded(1) });
        (service, supervisor)
    }

    async fn restarted(service: &Service, times: u64) {
        while service.shown().restarts < times {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_service_that_is_killed_comes_back_and_is_counted() {
        let (service, supervisor) = keep(Mortal::Lives);
        service.ready().await;
        service.kill();
        restarted(&service, 1).await;
        service.ready().await;
        assert_eq!(service.shown().state, page::PartState::Up);
        assert!(supervisor.stop(Duration::from_secs(4)).await.exit().is_clean());
        assert_eq!(service.shown().state, page::PartState::Down);
    }

    #[tokio::test(start_paused = true)]
    async fn a_service_that_keeps_dying_is_started_less_and_less_often() {
        let (service, _supervisor) = keep(Mortal::Dies);
        let began = Instant::now();
        restarted(&service, 3).await;
        assert!((7..8).contains(&began.elapsed().as_secs()), "1 + 2 + 4 s, not {:?}", began.elapsed());
    }

    #[tokio::test(start_paused = true)]
    async fn a_service_that_cannot_start_ends_the_process() {
        let (_, supervisor) = keep(Mortal::Refuses);
        assert!(supervisor.first_end().await.to_string().contains("no such table"));
    }
}
