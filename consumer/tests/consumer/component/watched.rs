//! Shows tests the metrics of the consumers that run on their thread, and the warnings and errors that these log, with
//! their fields.

use std::cell::RefCell;
use std::fmt::Debug;
use std::sync::Once;

use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle};
use tracing::field::{Field, Visit};
use tracing::level_filters::LevelFilter;
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

thread_local! {
    static LOGGED: RefCell<Vec<(Level, String)>> = const { RefCell::new(Vec::new()) };
}

pub(crate) struct Watched {
    metrics: PrometheusHandle,
    _guard: metrics::LocalRecorderGuard<'static>,
}

impl Watched {
    /// Watches this thread from now on.
    pub(crate) fn new() -> Self {
        static ONCE: Once = Once::new();
        // One subscriber serves all threads: `tracing` remembers for all of them whether the first one wants a line of
        // the program.
        ONCE.call_once(|| tracing::subscriber::set_global_default(Logged).unwrap());
        let recorder = Box::leak(Box::new(PrometheusBuilder::new().build_recorder()));
        Self { metrics: recorder.handle(), _guard: metrics::set_default_local_recorder(recorder) }
    }

    /// The value of a metric, by its name and labels as Prometheus reads them.
    pub(crate) fn metric(&self, name: &str) -> Option<f64> {
        let text = self.metrics.render();
        text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.parse().ok())
    }

    /// How many partitions are read, and how many stand still.
    pub(crate) fn partitions(&self) -> [Option<f64>; 2] {
        ["reading", "halted"].map(|state| self.metric(&format!("tally_consumer_partitions{{state=\"{state}\"}}")))
    }

    /// How many records of partition 0 wait, and how long the oldest has.
    pub(crate) fn lag(&self) -> [Option<f64>; 2] {
        ["records", "seconds"].map(|what| self.metric(&format!("tally_consumer_lag_{what}{{partition=\"0\"}}")))
    }

    /// How many errors were logged that contain `text`.
    pub(crate) fn errors(&self, text: &str) -> usize {
        Self::logged(Level::ERROR, text)
    }

    /// How many warnings were logged that contain `text`.
    pub(crate) fn warnings(&self, text: &str) -> usize {
        Self::logged(Level::WARN, text)
    }

    fn logged(level: Level, text: &str) -> usize {
        let is_one = |(of, message): &&(Level, String)| *of == level && message.contains(text);
        LOGGED.with_borrow(|logged| logged.iter().filter(is_one).count())
    }
}

struct Logged;

impl Subscriber for Logged {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() <= Level::WARN
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        Some(LevelFilter::WARN)
    }

    fn event(&self, event: &Event<'_>) {
        let mut message = Message(String::new());
        event.record(&mut message);
        LOGGED.with_borrow_mut(|logged| logged.push((*event.metadata().level(), message.0)));
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

struct Message(String);

impl Visit for Message {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.0 += &format!("{field}={value:?} ");
    }
}
