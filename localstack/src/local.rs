//! The state of a running local stack (one Region of it), which the load, the observer, the page and the comparison
//! share.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use parking_lot::Mutex;
use tally_adapters::kafka::Spreading;
use tally_core::spread::SumPolicy;
use tally_core::time::UnixMillis;
use tally_service::{Clock, Host};
use tokio::sync::watch;

use crate::args::LoadArgs;
use crate::counters::Counters;
use crate::engine::Engines;
use crate::gate::Gate;
use crate::ledger::Ledger;
use crate::names::Names;
use crate::page::{Endpoints, Load, Snapshot};
use crate::probe::Staleness;
use crate::regions::Abroad;
use crate::screen::Screen;
use crate::services::Services;
use crate::stack::Happened;
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
    pub(crate) load: Option<LoadArgs>,
    /// Whether a person has paused the load.
    pub(crate) paused: watch::Sender<bool>,
    pub(crate) ledger: Ledger,
    pub(crate) gate: Arc<Gate>,
    /// Where views go.
    pub(crate) sums: Spreading,
    pub(crate) staleness: Staleness,
    /// What was seen of the lists of what is trending.
    pub(crate) sightings: Sightings,
    /// Whether things go wrong on purpose.
    pub(crate) is_disturbed: bool,
    /// Likes put into counters by hand, signs ignored.
    pub(crate) injected: AtomicU64,
    pub(crate) happened: Happened,
    /// What the observer saw last, for the live line and the page.
    pub(crate) board: Mutex<Snapshot>,
    pub(crate) screen: Arc<Screen>,
    /// The other Region, where there are two and this is the first.
    pub(crate) abroad: Option<Abroad>,
}

impl Local {
    pub(crate) fn new(
        engines: Engines,
        counters: Counters,
        api: SocketAddr,
        load: Option<LoadArgs>,
        sums: SumPolicy,
        services: [&'static str; 4],
        host: &Host,
    ) -> Self {
        let partitions = engines.kafka.partitions;
        let run = format!("{:08x}", host.chance().token() >> 32);
        let run = (!engines.are_embedded()).then_some(run.as_str());
        let names = match load {
            Some(LoadArgs { posts, users, .. }) => Names::new(posts, users, partitions, run),
            None => Names::new(0, 0, 0, run),
        };
        let endpoints = Endpoints {
            kafka: engines.kafka.bootstrap.clone(),
            dynamodb: engines.store.url.clone(),
            api: format!("http://{api}"),
        };
        let now = host.clock().now();
        let shown = Load { rate: load.map_or(0, |load| load.rate.into()), ..Load::default() };
        let seen = Snapshot { at: now.0, since: now.0, endpoints, load: shown, ..Snapshot::default() };
        Self {
            clock: host.clock(),
            services: Services::new(services, host, engines.kafka.lists),
            began: now,
            counters,
            api,
            load,
            paused: watch::Sender::new(false),
            ledger: Ledger::new(names),
            gate: Arc::new(Gate::new(partitions)),
            sums: Spreading::new(sums),
            staleness: Staleness::default(),
            sightings: Sightings::default(),
            is_disturbed: false,
            injected: AtomicU64::default(),
            happened: Happened::default(),
            board: Mutex::new(seen),
            screen: Arc::new(Screen::new()),
            abroad: None,
            engines,
        }
    }

    /// This Region, and the other one where there are two.
    pub(crate) fn regions(&self) -> impl Iterator<Item = &Self> {
        std::iter::once(self).chain(self.abroad.as_ref().map(|abroad| &*abroad.us))
    }

    /// Completes once the load is not paused.
    pub(crate) async fn going(&self) {
        // The sender is borrowed by this very call, so the channel is open.
        let _ = self.paused.subscribe().wait_for(|paused| !paused).await;
    }
}
