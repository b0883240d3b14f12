//! Every metric of this process. The catalogue and the places that count use the same constants.

use std::sync::OnceLock;
use std::time::Duration;

use axum::http::{Method, StatusCode};
use metrics::{Counter, Histogram, histogram};
use tally_service::metrics::{Catalogue, Kind, Label, Metric, Unit};

/// The route with the most requests.
pub(crate) const LIKES: &str = "/v1/posts/{post_id}/likes";

const fn counter(name: &'static str, labels: &'static [Label], description: &'static str) -> Metric {
    Metric { name, kind: Kind::Counter, unit: Unit::Count, labels, description }
}

const fn gauge(name: &'static str, unit: Unit, description: &'static str) -> Metric {
    Metric { name, kind: Kind::Gauge, unit, labels: &[], description }
}

/// A histogram of how long something takes.
const fn seconds(name: &'static str, labels: &'static [Label], description: &'static str) -> Metric {
    Metric { name, kind: Kind::Histogram, unit: Unit::Seconds, labels, description }
}

pub(crate) const HTTP_REQUESTS: Metric = seconds(
    "tally_http_requests_seconds",
    &[Label::learnt("route"), Label::learnt("method"), Label::learnt("status")],
    "From a request's headers to its answer's.",
);
pub(crate) const HTTP_CONNECTIONS: Metric = gauge("tally_http_connections", Unit::Count, "Connections that are open.");
pub(crate) const HTTP_REFUSED: Metric = counter(
    "tally_http_refused_total",
    &[Label::of("reason", &["slow", "too_large", "malformed", "unread", "broken_off"])],
    "Connections that ended on something that is not a request we read: malformed, slow or over a limit.",
);
pub(crate) const READS: Metric = counter(
    "tally_reads_total",
    &[Label::of("layer", &["local", "cache", "table"])],
    "Counts read, by the layer that had them: local, cache or table.",
);
pub(crate) const CACHE_FAULTS: Metric = counter(
    "tally_cache_faults_total",
    &[Label::of("reason", &["transient", "throttled", "poison", "fatal", "slow", "breaker_open"])],
    "Calls of the cache that failed, took too long, or were not made because the breaker is open.",
);
pub(crate) const CACHE_FILLS: Metric = counter(
    "tally_cache_fills_total",
    &[Label::of("outcome", &["written", "overtaken", "failed"])],
    "Counts offered to the cache.",
);
pub(crate) const TABLE_READS: Metric = seconds(
    "tally_table_reads_seconds",
    &[Label::of("outcome", &["ok", "transient", "throttled", "poison", "fatal", "slow"])],
    "Reads of the tables, by their outcome.",
);
pub(crate) const TABLE_REFUSED: Metric =
    counter("tally_table_refused_total", &[], "Reads not begun because as many were under way as are allowed.");
pub(crate) const STALENESS: Metric = gauge(
    "tally_staleness_seconds",
    Unit::Seconds,
    "How long ago the moment is up to which every count is known to be complete.",
);
pub(crate) const REGION_STALENESS: Metric = Metric {
    labels: &[Label::learnt("region")],
    ..gauge(
        "tally_region_staleness_seconds",
        Unit::Seconds,
        "How long ago the moment is up to which every entry of another Region is known to be complete, or at which the Region was first heard of.",
    )
};
pub(crate) const BOARDS_AGE: Metric = gauge(
    "tally_boards_age_seconds",
    Unit::Seconds,
    "How long ago the moment was that lists of what is trending are of.",
);
pub(crate) const BOARDS_UNREADABLE: Metric =
    counter("tally_boards_unreadable_total", &[], "Records of the topic of boards that this build cannot read.");
pub(crate) const BLOCKED: Metric =
    gauge("tally_blocked_ids", Unit::Count, "Ids that lists of what is trending leave out.");
pub(crate) const OPEN_GAPS: Metric =
    gauge("tally_open_gaps", Unit::Count, "Losses not repaired yet: where one is open no answer is exact.");
pub(crate) const STANDING_AGE: Metric = gauge(
    "tally_standing_age_seconds",
    Unit::Seconds,
    "How long ago the latest reading of what may be said of counts began.",
);
pub(crate) const NEGATIVE_COUNTS: Metric = counter(
    "tally_negative_counts_total",
    &[Label::of("outcome", &["queued", "dropped", "failed"])],
    "Counts met that are below zero or in doubt: queued for a recount, dropped because the queue was full, or failed to be queued.",
);
pub(crate) const LISTENERS: Metric = gauge("tally_listeners", Unit::Count, "Streams of live counts that are open.");
pub(crate) const WATCHED_COUNTERS: Metric = gauge(
    "tally_watched_counters",
    Unit::Count,
    "Counters of posts and hashtags with at least one listener: each is read four times a second.",
);
pub(crate) const WRITES: Metric = counter(
    "tally_writes_total",
    &[
        Label::of("action", &["like", "unlike", "put", "remove", "increment", "decrement"]),
        Label::of("outcome", &["acknowledged", "transient", "throttled", "poison", "fatal"]),
    ],
    "Likes and unlikes taken; put, remove, increment and decrement by the routes of every counter.",
);

/// Every metric of this process.
pub const METRICS: Catalogue = Catalogue(&[
    HTTP_REQUESTS,
    HTTP_CONNECTIONS,
    HTTP_REFUSED,
    READS,
    CACHE_FAULTS,
    CACHE_FILLS,
    TABLE_READS,
    TABLE_REFUSED,
    STALENESS,
    REGION_STALENESS,
    BOARDS_AGE,
    BOARDS_UNREADABLE,
    BLOCKED,
    OPEN_GAPS,
    STANDING_AGE,
    NEGATIVE_COUNTS,
    LISTENERS,
    WATCHED_COUNTERS,
    WRITES,
]);

/// Counts how many numbers came from each layer.
#[derive(Clone, Debug)]
pub struct ReadCounters {
    pub local: Counter,
    pub cache: Counter,
    pub table: Counter,
}

impl Default for ReadCounters {
    fn default() -> Self {
        let layer = |layer| READS.counter(&[layer]);
        Self { local: layer("local"), cache: layer("cache"), table: layer("table") }
    }
}

/// Records answered requests. Keeps the handle of the most frequent ones; looks the others up.
#[derive(Debug, Default)]
pub struct Requests {
    hot: OnceLock<Histogram>,
}

impl Requests {
    /// Records an answer; `route` is one of ours or none, so that the label is bounded.
    pub fn record(&self, route: Option<&str>, method: &Method, status: StatusCode, took: Duration) {
        if status == StatusCode::OK && method == Method::GET && route == Some(LIKES) {
            self.hot.get_or_init(|| handle(Some(LIKES), method, status)).record(took);
        } else {
            handle(route, method, status).record(took);
        }
    }
}

fn handle(route: Option<&str>, method: &Method, status: StatusCode) -> Histogram {
    let route = route.unwrap_or("unmatched").to_owned();
    let known = [Method::GET, Method::HEAD, Method::POST, Method::PUT, Method::DELETE, Method::OPTIONS];
    let method = known.iter().find(|known| *known == method).map_or("other", Method::as_str).to_owned();
    histogram!(
        HTTP_REQUESTS.name,
        "route" => route, "method" => method, "status" => status.as_str().to_owned()
    )
}

#[cfg(test)]
mod tests {
    use tally_core::fault::Fault;

    use super::*;

    #[test]
    fn every_class_of_fault_is_an_outcome_that_the_catalogue_knows() {
        for metric in [CACHE_FAULTS, TABLE_READS, WRITES] {
            let label = metric.labels.last().unwrap();
            assert!(Fault::CLASSES.iter().all(|class| label.values.contains(class)), "{}: {label}", metric.name);
        }
    }

    #[test]
    fn the_catalogue_is_what_dashboards_rely_on() {
        assert_eq!(METRICS.misnamed(), [""; 0]);
        insta::assert_snapshot!(METRICS);
    }
}
