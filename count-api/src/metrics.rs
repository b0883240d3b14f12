//! What this process counts, and the handles of what it counts often.

use std::sync::OnceLock;
use std::time::Duration;

use axum::http::{Method, StatusCode};
use metrics::{Counter, Histogram, counter, histogram};
use tally_service::metrics::{Catalogue, Kind, Metric, Unit};

const fn metric(
    name: &'static str,
    kind: Kind,
    unit: Unit,
    labels: &'static [&'static str],
    description: &'static str,
) -> Metric {
    Metric { name, kind, unit, labels, description }
}

/// Every metric of this process.
pub const METRICS: Catalogue = Catalogue(&[
    metric(
        "tally_http_requests_seconds",
        Kind::Histogram,
        Unit::Seconds,
        &["route", "method", "status"],
        "From a request's headers to its answer's.",
    ),
    metric("tally_http_connections", Kind::Gauge, Unit::Count, &[], "Connections that are open."),
    metric(
        "tally_http_refused_total",
        Kind::Counter,
        Unit::Count,
        &["reason"],
        "Connections that ended on something that is not a request we read: malformed, slow or over a limit.",
    ),
    metric(
        "tally_reads_total",
        Kind::Counter,
        Unit::Count,
        &["layer"],
        "Counts read, by the layer that had them: local, cache or table.",
    ),
    metric(
        "tally_cache_faults_total",
        Kind::Counter,
        Unit::Count,
        &["reason"],
        "Calls of the cache that failed, took too long, or were not made because the breaker is open.",
    ),
    metric("tally_cache_fills_total", Kind::Counter, Unit::Count, &["outcome"], "Counts offered to the cache."),
    metric(
        "tally_table_reads_seconds",
        Kind::Histogram,
        Unit::Seconds,
        &["outcome"],
        "Reads of the tables, by what came of them.",
    ),
    metric(
        "tally_table_refused_total",
        Kind::Counter,
        Unit::Count,
        &[],
        "Reads not begun because as many were under way as are allowed.",
    ),
    metric(
        "tally_staleness_seconds",
        Kind::Gauge,
        Unit::Seconds,
        &[],
        "How long ago the moment is up to which every count is known to be complete.",
    ),
    metric("tally_open_gaps", Kind::Gauge, Unit::Count, &[], "Losses of stream not repaired yet: no answer is exact."),
    metric(
        "tally_standing_age_seconds",
        Kind::Gauge,
        Unit::Seconds,
        &[],
        "How long ago open gaps and stream shards were last read; past 5 s no answer is called exact.",
    ),
    metric(
        "tally_negative_counts_total",
        Kind::Counter,
        Unit::Count,
        &["outcome"],
        "Counts below zero met: queued for a recount, dropped because the queue was full, or failed to be queued.",
    ),
    metric("tally_listeners", Kind::Gauge, Unit::Count, &[], "Streams of live counts that are open."),
    metric("tally_watched_posts", Kind::Gauge, Unit::Count, &[], "Posts that somebody listens to."),
    metric("tally_writes_total", Kind::Counter, Unit::Count, &["action", "outcome"], "Likes and unlikes taken."),
]);

/// Which layer a count came from.
#[derive(Clone, Debug)]
pub struct Layers {
    /// This process's memory.
    pub local: Counter,
    /// The shared cache.
    pub cache: Counter,
    /// The table.
    pub table: Counter,
}

impl Default for Layers {
    fn default() -> Self {
        let layer = |name: &'static str| counter!("tally_reads_total", "layer" => name);
        Self { local: layer("local"), cache: layer("cache"), table: layer("table") }
    }
}

/// Answered requests. The one that is asked for most is kept at hand; the others are looked up.
#[derive(Debug, Default)]
pub struct Requests {
    hot: OnceLock<Histogram>,
}

impl Requests {
    /// The route asked for most.
    const HOT: &str = "/v1/posts/{post_id}/likes";

    /// Takes note of an answer; `route` is one of ours or none, so that the label is bounded.
    pub fn record(&self, route: Option<&str>, method: &Method, status: StatusCode, took: Duration) {
        if status == StatusCode::OK && method == Method::GET && route == Some(Self::HOT) {
            self.hot.get_or_init(|| handle(Some(Self::HOT), method, status)).record(took);
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
        "tally_http_requests_seconds",
        "route" => route, "method" => method, "status" => status.as_str().to_owned()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_catalogue_is_what_dashboards_rely_on() {
        assert_eq!(METRICS.misnamed(), [""; 0]);
        insta::assert_snapshot!(METRICS);
    }
}
