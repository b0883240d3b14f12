//! What one process recounts with: the tables, claims on work, the view of the stream, and windows.

use std::sync::Arc;

use tally_core::ids::ShardCount;
use tally_core::ports::Worker;
use tally_core::window::AttemptRules;
use tally_service::{Chance, Clock, Patience, Stop};

use crate::app::Ports;
use crate::budget::Budget;
use crate::calls::Calls;
use crate::claims::Claims;
use crate::config::Rules;
use crate::metrics;
use crate::row_budget::RowBudget;
use crate::store::Store;
use crate::stream_view::{StreamRules, StreamView};
use crate::trails::Trails;
use crate::turns::Turns;
use crate::windows::{WindowRules, Windows};

/// Everything that one process recounts with. Clones are the same.
#[derive(Clone)]
pub(crate) struct Recounter {
    pub(crate) store: Store,
    pub(crate) claims: Claims,
    pub(crate) stream: Arc<StreamView>,
    pub(crate) trails: Arc<Trails>,
    pub(crate) windows: Windows,
    pub(crate) rules: Rules,
}

impl Recounter {
    /// Over `ports`, in a deployment of so many shards, until `stop` is requested.
    pub(crate) fn new(
        ports: Ports,
        shards: ShardCount,
        rules: Rules,
        (clock, chance): (Clock, Chance),
        stop: Stop,
    ) -> Self {
        let me = Worker(format!("recount-{:016x}", chance.token()));
        let budget = Arc::new(Budget::new(rules.read_units, clock));
        let throttled = Arc::clone(&budget);
        let patience = Patience::new(clock, chance.clone()).on_fault(move |_, fault, _| {
            metrics::faulted(fault);
            throttled.failed(fault);
        });
        let store = Store::new(ports, shards, Calls::new(patience, stop), budget);
        let claims = Claims::new(&store, me, rules.claim);
        let view = StreamView::new(&store, StreamRules { guard: rules.guard, passing: rules.passing });
        let stream = Arc::new(view);
        let attempt =
            AttemptRules { guard: rules.guard, report: rules.report, passing: rules.passing, force: rules.force };
        let windows = Windows {
            store: store.clone(),
            claims: claims.clone(),
            stream: Arc::clone(&stream),
            rules: WindowRules { attempt, attempts: rules.windows },
            rows: Arc::new(RowBudget::of(rules.held)),
            turns: Arc::new(Turns::new(clock)),
            chance,
        };
        let trails = Arc::new(Trails::new(&store, &stream));
        Self { store, claims, stream, trails, windows, rules }
    }
}
