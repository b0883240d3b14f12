//! Every metric of the process that serves the HTTP API. The catalogue and the places that count use the same
//! constants.

use std::sync::OnceLock;
use std::time::Duration;

use axum::http::{Method, StatusCode};
use metrics::{Counter, Histogram, histogram};
use tally_service::catalogue;
use tally_service::metrics::Label;

/// The route with the most requests.
pub(crate) const LIKES: &str = "/v1/posts/{post_id}/likes";

catalogue! {
    HTTP_REQUESTS: Histogram Seconds "tally_http_requests_seconds"
        [Label::learnt("route"), Label::learnt("method"), Label::learnt("status")],
        "From a request's headers to its answer's.";
    HTTP_CONNECTIONS: Gauge Count "tally_http_connections" [],
        "Connections that are open.";
    HTTP_REFUSED: Counter Count "tally_http_refused_total"
        [Label::of("reason", &["slow", "too_large", "malformed", "unread", "broken_off"])],
        "Connections that ended on something that is not a request we read: malformed, slow or over a limit.";
    READS: Counter Count "tally_reads_total" [Label::of("layer", &["local", "cache", "table"])],
        "Counts read, by the layer that had them: local, cache or table.";
    CACHE_FAULTS: Counter Count "tally_cache_faults_total"
        [Label::of("reason", &["transient", "throttled", "poison", "fatal", "slow", "breaker_open"])],
        "Calls of the cache that failed, took too long, or were not made because the breaker is open.";
    CACHE_FILLS: Counter Count "tally_cache_fills_total" [Label::of("outcome", &["written", "overtaken", "failed"])],
        "Counts offered to the cache.";
    TABLE_READS: Histogram Seconds "tally_table_reads_seconds"
        [Label::of("outcome", &["ok", "transient", "throttled", "poison", "fatal", "slow"])],
        "Reads of the tables, by their outcome.";
    TABLE_REFUSED: Counter Count "tally_table_refused_total" [],
        "Reads not begun because as many were under way as are allowed.";
    STALENESS: Gauge Seconds "tally_staleness_seconds" [],
        "How long ago the moment is up to which every count is known to be complete.";
    REGION_STALENESS: Gauge Seconds "tally_region_staleness_seconds" [Label::learnt("region")],
        "How long ago the moment is up to which every entry of another Region is known to be complete, or at which the Region was first heard of.";
    BOARDS_AGE: Gauge Seconds "tally_boards_age_seconds" [],
        "How long ago the moment was that lists of what is trending are of.";
    BOARDS_UNREADABLE: Counter Count "tally_boards_unreadable_total" [],
        "Records of the topic of boards that this build cannot read, or that are of another deployment.";
    BLOCKED: Gauge Count "tally_blocked_ids" [],
        "Ids that lists of what is trending leave out.";
    OPEN_GAPS: Gauge Count "tally_open_gaps" [],
        "Losses not repaired yet: where one is open no answer is exact.";
    STANDING_AGE: Gauge Seconds "tally_standing_age_seconds" [],
        "How long ago the latest reading of what may be said of counts began.";
    NEGATIVE_COUNTS: Counter Count "tally_negative_counts_total" [Label::of("outcome", &["queued", "dropped", "failed"])],
        "Counts met that are below zero or in doubt: queued for a recount, dropped because the queue was full, or failed to be queued.";
    LISTENERS: Gauge Count "tally_listeners" [],
        "Streams of live counts that are open.";
    WATCHED_COUNTERS: Gauge Count "tally_watched_counters" [],
        "Counters of posts and hashtags with at least one listener: each is read four times a second.";
    WRITES: Counter Count "tally_writes_total" [
            Label::of("action", &["like", "unlike", "put", "remove", "increment", "decrement"]),
            Label::of("outcome", &["acknowledged", "transient", "throttled", "poison", "fatal"])
        ],
        "Likes and unlikes taken; put, remove, increment and decrement by the routes of every counter.";
}

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
    fn the_catalogue_is_the_reference() {
        CATALOGUE.check_reference("count-api");
    }
}
