//! What the observer saw last, for the live line and the page.

use parking_lot::Mutex;
use tally_core::time::UnixMillis;

use crate::page::{Drift, Endpoints, Load, Snapshot};

pub(crate) struct Board(Mutex<Snapshot>);

impl Board {
    /// Nothing seen yet, of a stack that runs since `now`.
    pub(crate) fn new(endpoints: Endpoints, rate: u32, now: UnixMillis) -> Self {
        let load = Load { running: false, rate: rate.into(), events_per_second: 0.0, events: 0, limit: None };
        Self(Mutex::new(Snapshot {
            at: now.0,
            since: now.0,
            endpoints,
            load,
            rows: 0,
            staleness: None,
            drift: Drift::default(),
            open_gaps: 0,
            recount: None,
            shards: Vec::new(),
            parts: Vec::new(),
            ledger: Vec::new(),
            ledger_more: 0,
            posts: Vec::new(),
            trending: None,
        }))
    }

    pub(crate) fn snapshot(&self) -> Snapshot {
        self.0.lock().clone()
    }

    pub(crate) fn show(&self, snapshot: Snapshot) {
        *self.0.lock() = snapshot;
    }
}
