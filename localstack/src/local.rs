//! What the load, the observer, the page and the comparison have in common: one value, which each of them holds.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use tally_adapters::kafka::Spreading;
use tally_core::milestone::Ladder;
use tally_core::spread::SumPolicy;
use tally_core::time::UnixMillis;
use tally_service::{Clock, Host};
use tokio::sync::watch;

use crate::args::LoadConfig;
use crate::counters::Counters;
use crate::engine::Engines;
use crate::gate::Gate;
use crate::ledger::Ledger;
use crate::names::Names;
use crate::page::Endpoints;
use crate::probe::Staleness;
use crate::screen::{Board, Screen};
use crate::services::Services;
use crate::stack::Happened;
use crate::verify::milestones::Changes;
use crate::verify::sightings::Sightings;

/// The local stack while it runs.
pub(crate) struct Local {
    pub(crate) clock: Clock,
    /// When the stack was begun.
    pub(crate) began: UnixMillis,
    pub(crate) engines: Engines,
    pub(crate) services: Services,
    /// What the load says, of what the deployment has.
    pub(crate) counters: Counters,
    /// Where the API and the page are served.
    pub(crate) api: SocketAddr,
    pub(crate) load: Option<LoadConfig>,
    pub(crate) control: Control,
    pub(crate) ledger: Ledger,
    pub(crate) gate: Arc<Gate>,
    /// Where views go.
    pub(crate) sums: Spreading,
    pub(crate) staleness: Staleness,
    /// What milestones are compared with, where the embedded store tells of its changes and there is a ladder.
    pub(crate) milestones: Option<(Changes, Ladder)>,
    /// What was seen of the lists of what is trending.
    pub(crate) sightings: Sightings,
    /// Whether things go wrong on purpose.
    pub(crate) is_disturbed: bool,
    /// Likes put into counters by hand, signs ignored.
    pub(crate) injected: AtomicU64,
    pub(crate) happened: Happened,
    pub(crate) board: Board,
    pub(crate) screen: Screen,
}

impl Local {
    pub(crate) fn new(
        engines: Engines,
        counters: Counters,
        api: SocketAddr,
        load: Option<LoadConfig>,
        sums: SumPolicy,
        host: &Host,
    ) -> Self {
        let partitions = engines.kafka.partitions;
        let run = format!("{:08x}", host.chance().token() >> 32);
        let run = (!engines.are_embedded()).then_some(run.as_str());
        let names = match load {
            Some(LoadConfig { posts, users, .. }) => Names::new(posts, users, partitions, run),
            None => Names::new(0, 0, 0, run),
        };
        let endpoints = Endpoints {
            kafka: engines.kafka.bootstrap.clone(),
            dynamodb: engines.store.url.clone(),
            api: format!("http://{api}"),
        };
        Self {
            clock: host.clock(),
            services: Services::new(host, engines.kafka.has_lists()),
            began: host.clock().now(),
            counters,
            api,
            load,
            control: Control::default(),
            ledger: Ledger::new(names),
            gate: Arc::new(Gate::new(partitions)),
            sums: Spreading::new(sums),
            staleness: Staleness::default(),
            milestones: None,
            sightings: Sightings::default(),
            is_disturbed: false,
            injected: AtomicU64::default(),
            happened: Happened::default(),
            board: Board::new(endpoints, load.map_or(0, |load| load.rate), host.clock().now()),
            screen: Screen::new(),
            engines,
        }
    }
}

pub(crate) struct Control(watch::Sender<bool>);

impl Default for Control {
    fn default() -> Self {
        Self(watch::Sender::new(false))
    }
}

impl Control {
    pub(crate) fn pause(&self, paused: bool) {
        self.0.send_replace(paused);
    }

    pub(crate) fn is_paused(&self) -> bool {
        *self.0.borrow()
    }

    /// Completes once the load is not paused.
    pub(crate) async fn going(&self) {
        // The sender is borrowed by this very call, so the channel is open.
        let _ = self.0.subscribe().wait_for(|paused| !paused).await;
    }
}
