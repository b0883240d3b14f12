//! The metrics a process has: a catalogue to declare them in, and the recorder that renders them for Prometheus.

mod recorder;

use std::fmt;

use metrics::{counter, describe_counter, describe_gauge, describe_histogram, gauge};

pub use recorder::{Exposition, Folding, install};

/// What a metric's values do over time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Counter,
    Gauge,
    Histogram,
}

/// What one step of a metric's value is. Base units alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// So many of what the name says.
    Count,
    Seconds,
    Bytes,
    /// A share, from 0 to 1.
    Ratio,
}

/// One metric: what a dashboard needs to know of it.
#[derive(Clone, Copy, Debug)]
pub struct Metric {
    /// `tally_<what>_<unit>`, and `_total` for counters.
    pub name: &'static str,
    pub kind: Kind,
    pub unit: Unit,
    /// Label names; their values are bounded sets, never ids of posts or users.
    pub labels: &'static [&'static str],
    pub description: &'static str,
}

/// Every metric of a binary: described from here when it starts, and snapshot by a test through `Display`.
#[derive(Clone, Copy, Debug)]
pub struct Catalogue(pub &'static [Metric]);

/// Lines of the log that standard error did not take.
pub(crate) const DROPPED_LINES: Metric = Metric {
    name: "tally_log_dropped_lines_total",
    kind: Kind::Counter,
    unit: Unit::Count,
    labels: &[],
    description: "Lines of the log dropped, as standard error could not be written.",
};

/// What every process has, whatever its own catalogue says.
pub const COMMON: Catalogue = Catalogue(&[
    Metric {
        name: "tally_build_info",
        kind: Kind::Gauge,
        unit: Unit::Count,
        labels: &["service", "version"],
        description: "Always 1; says what is running.",
    },
    DROPPED_LINES,
]);

impl Catalogue {
    /// Tells the recorder what each metric is.
    pub fn describe(&self) {
        for metric in self.0 {
            let Metric { name, description, .. } = *metric;
            match metric.kind {
                Kind::Counter => describe_counter!(name, description),
                Kind::Gauge => describe_gauge!(name, description),
                Kind::Histogram => describe_histogram!(name, description),
            }
        }
    }

    /// Names that break the house's rules, for the catalogue's test to find none.
    pub fn misnamed(&self) -> Vec<&'static str> {
        self.0.iter().filter(|metric| !metric.is_well_named()).map(|metric| metric.name).collect()
    }
}

impl Metric {
    fn is_well_named(&self) -> bool {
        let stem = self.name.strip_suffix("_total");
        let unit = match self.unit {
            Unit::Count => "",
            Unit::Seconds => "_seconds",
            Unit::Bytes => "_bytes",
            Unit::Ratio => "_ratio",
        };
        self.name.starts_with("tally_")
            && self.name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_')
            && (self.kind == Kind::Counter) == stem.is_some()
            && stem.unwrap_or(self.name).ends_with(unit)
    }
}

impl fmt::Display for Catalogue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for Metric { name, kind, unit, labels, description } in self.0 {
            let (kind, unit) = (format!("{kind:?}").to_lowercase(), format!("{unit:?}").to_lowercase());
            writeln!(f, "{name}{{{}}} {kind}, {unit}: {description}", labels.join(","))?;
        }
        Ok(())
    }
}

/// Describes `catalogue` and what every process has, and says what is running.
pub fn announce(service: &str, version: &str, catalogue: &Catalogue) {
    COMMON.describe();
    catalogue.describe();
    gauge!("tally_build_info", "service" => service.to_owned(), "version" => version.to_owned()).set(1.0);
    counter!(DROPPED_LINES.name).increment(0);
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn metric(name: &'static str, kind: Kind, unit: Unit) -> Metric {
        Metric { name, kind, unit, labels: &["topic", "partition"], description: "A thing." }
    }

    #[test]
    fn a_catalogue_prints_one_line_a_metric() {
        insta::assert_snapshot!(COMMON, @"
        tally_build_info{service,version} gauge, count: Always 1; says what is running.
        tally_log_dropped_lines_total{} counter, count: Lines of the log dropped, as standard error could not be written.
        ");
    }

    #[test]
    fn names_carry_their_unit_and_counters_their_suffix() {
        const GOOD: Catalogue = Catalogue(&[
            metric("tally_records_total", Kind::Counter, Unit::Count),
            metric("tally_lag_seconds", Kind::Gauge, Unit::Seconds),
            metric("tally_read_bytes_total", Kind::Counter, Unit::Bytes),
        ]);
        const BAD: Catalogue = Catalogue(&[
            metric("records_total", Kind::Counter, Unit::Count),
            metric("tally_records", Kind::Counter, Unit::Count),
            metric("tally_open_total", Kind::Gauge, Unit::Count),
            metric("tally_lag", Kind::Gauge, Unit::Seconds),
            metric("tally_Lag_seconds", Kind::Gauge, Unit::Seconds),
        ]);
        assert_eq!(GOOD.misnamed(), [""; 0]);
        assert_eq!(BAD.misnamed().len(), 5);
        assert_eq!(COMMON.misnamed(), [""; 0]);
    }

    #[test]
    fn every_caller_shares_one_recorder_and_histograms_have_buckets_by_unit() {
        let (first, second) = (install(), install());
        announce("tally-test", "1.2.3", &COMMON);
        metrics::histogram!("tally_test_seconds").record(0.02);
        metrics::histogram!("tally_test_rows").record(99.0);
        let rendered = second.render();
        assert!(rendered.contains(r#"tally_build_info{service="tally-test",version="1.2.3"} 1"#), "{rendered}");
        assert!(rendered.contains("# HELP tally_build_info Always 1; says what is running."), "{rendered}");
        assert!(rendered.contains(r#"tally_test_seconds_bucket{le="0.025"} 1"#), "{rendered}");
        assert!(rendered.contains(r#"tally_test_rows_bucket{le="100"} 1"#), "{rendered}");
        assert_eq!(first.render(), second.render());
    }
}
