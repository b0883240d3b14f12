//! Which events are written, which can change while the process runs.

use std::sync::Arc;

use parking_lot::RwLock;
use tracing::level_filters::LevelFilter;
use tracing::subscriber::Interest;
use tracing::{Metadata, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::Context;

use super::Filter;

/// The default filter of noisy targets. The SDK logs a warning with a dump of its request for each provider that has no
/// credentials, and Tally's own error names the problem.
const QUIET: &str = "aws_config=error";

/// The current filter. Clones share it. Each call site asks once and again after each change, so a filter that can change
/// costs no more per event than a fixed one.
#[derive(Clone)]
pub struct Level(Arc<RwLock<(Filter, Targets)>>);

impl Level {
    pub(super) fn new(filter: &Filter) -> Self {
        Self(Arc::new(RwLock::new((filter.clone(), targets(filter)))))
    }

    pub fn filter(&self) -> Filter {
        self.0.read().0.clone()
    }

    pub fn set(&self, filter: Filter) {
        let targets = targets(&filter);
        *self.0.write() = (filter, targets);
        tracing::callsite::rebuild_interest_cache();
    }
}

fn targets(filter: &Filter) -> Targets {
    format!("{QUIET},{}", filter.0).parse().expect("both parts are filters")
}

impl<S: Subscriber> Layer<S> for Level {
    fn register_callsite(&self, metadata: &'static Metadata<'static>) -> Interest {
        Layer::<S>::register_callsite(&self.0.read().1, metadata)
    }

    fn enabled(&self, metadata: &Metadata<'_>, context: Context<'_, S>) -> bool {
        Layer::<S>::enabled(&self.0.read().1, metadata, context)
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        Layer::<S>::max_level_hint(&self.0.read().1)
    }
}
