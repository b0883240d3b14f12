//! Which events are written, while the process runs.

use std::sync::Arc;

use parking_lot::RwLock;
use tracing::level_filters::LevelFilter;
use tracing::subscriber::Interest;
use tracing::{Metadata, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::Context;

use super::Filter;

/// What is written less of, unless the filter names it: the SDK warns of each place that has no credentials with a dump of
/// its request, and what follows is said by name.
const QUIET: &str = "aws_config=error";

/// The filter that holds. Clones share it. Each place that logs asks once and after each change, so that a filter that may
/// change costs an event no more than one that may not.
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
