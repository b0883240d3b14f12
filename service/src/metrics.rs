//! Metrics: the catalogue in which a process declares them, and the recorder that renders them for Prometheus.

pub mod process;
mod recorder;

use std::fmt;

use metrics::{
    Counter, Gauge, Histogram, counter, describe_counter, describe_gauge, describe_histogram, gauge, histogram,
};

pub use recorder::{Folding, install};

/// What a metric's values do over time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Counter,
    Gauge,
    Histogram,
}

/// The unit of a metric's value. Only base units.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// A number of the things that the name says.
    Count,
    Seconds,
    /// Seconds since 1970.
    Timestamp,
    Bytes,
    /// A share, from 0 to 1.
    Ratio,
}

/// One metric, with what a dashboard needs to know about it.
#[derive(Clone, Copy, Debug)]
pub struct Metric {
    /// `tally_<what>_<unit>`, and `_total` for counters.
    pub name: &'static str,
    pub kind: Kind,
    pub unit: Unit,
    pub labels: &'static [Label],
    pub description: &'static str,
}

/// A label. Its values are a bounded set, never the ids of posts or users.
#[derive(Clone, Copy, Debug)]
pub struct Label {
    pub name: &'static str,
    /// Every value that it may have; empty if the process learns them, as it does the numbers of partitions.
    pub values: &'static [&'static str],
}

impl Label {
    /// Creates a label that has exactly these values.
    pub const fn of(name: &'static str, values: &'static [&'static str]) -> Self {
        Self { name, values }
    }

    /// Creates a label whose values become known while the process runs.
    pub const fn learnt(name: &'static str) -> Self {
        Self { name, values: &[] }
    }

    fn may_be(&self, value: &str) -> bool {
        self.values.is_empty() || self.values.contains(&value)
    }
}

/// All metrics of a binary. They are described when it starts, and a test compares them with a snapshot.
#[derive(Clone, Copy, Debug)]
pub struct Catalogue(pub &'static [Metric]);

/// Defines a constant for each line, which the calls use, and the catalogue of all of them.
#[macro_export]
macro_rules! catalogue {
    ($($metric:ident: $kind:ident $unit:ident $name:literal $labels:expr, $description:literal;)*) => {
        $(pub(crate) const $metric: $crate::metrics::Metric = $crate::metrics::Metric {
            name: $name,
            kind: $crate::metrics::Kind::$kind,
            unit: $crate::metrics::Unit::$unit,
            labels: &$labels,
            description: $description,
        };)*

        /// Every metric of this crate.
        pub const CATALOGUE: $crate::metrics::Catalogue = $crate::metrics::Catalogue(&[$($metric),*]);
    };
}

// Every process announces these besides those of its binary.
catalogue! {
    BUILD_INFO: Gauge Count "tally_build_info" [Label::learnt("service"), Label::learnt("version")],
        "Always 1; its labels name the service and its version.";
    DROPPED_LINES: Counter Count "tally_log_dropped_lines_total" [],
        "Log lines dropped because standard error could not be written.";
}

impl Catalogue {
    /// Compares the catalogue with what docs/reference.md says of it, for a test of each service.
    ///
    /// # Panics
    /// The page says something else, or a name breaks the naming rules.
    pub fn check_reference(&self, of: &str) {
        let page = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/reference.md"));
        let (page, heading) = (page.expect("docs/reference.md is in the checkout"), format!("\nOf {of}:\n\n"));
        let listed = page.split_once(&heading).map(|(_, listed)| listed.split("\n\n").next().unwrap_or_default());
        let own = self.to_string();
        assert_eq!(listed.map(str::trim_end), Some(own.trim_end()), "docs/reference.md has to list, of {of}:\n{own}");
        assert_eq!(self.misnamed(), [""; 0]);
    }

    fn misnamed(&self) -> Vec<&'static str> {
        self.0.iter().filter(|metric| !metric.is_well_named()).map(|metric| metric.name).collect()
    }
}

/// One thing more in a gauge, until this is dropped.
#[derive(Debug)]
pub struct OneMore(Gauge);

impl Drop for OneMore {
    fn drop(&mut self) {
        self.0.decrement(1.0);
    }
}

impl Metric {
    /// Counts one thing more in the gauge with these label values.
    pub fn one_more(&self, values: &[&'static str]) -> OneMore {
        let gauge = self.gauge(values);
        gauge.increment(1.0);
        OneMore(gauge)
    }

    /// Returns the counter with these label values, in the order of the labels.
    pub fn counter(&self, values: &[&'static str]) -> Counter {
        counter!(self.name, self.labelled(values))
    }

    /// Returns the gauge with these label values, in the order of the labels.
    pub fn gauge(&self, values: &[&'static str]) -> Gauge {
        gauge!(self.name, self.labelled(values))
    }

    /// Returns the histogram with these label values, in the order of the labels.
    pub fn histogram(&self, values: &[&'static str]) -> Histogram {
        histogram!(self.name, self.labelled(values))
    }

    fn labelled(&self, values: &[&'static str]) -> Vec<metrics::Label> {
        debug_assert_eq!(self.labels.len(), values.len(), "{}", self.name);
        let labels = self.labels.iter().zip(values);
        labels
            .map(|(label, value)| {
                debug_assert!(label.may_be(value), "{} has no {}={value}", self.name, label.name);
                metrics::Label::from_static_parts(label.name, value)
            })
            .collect()
    }

    /// Returns every combination of label values, or none if the values of a label are not known yet.
    fn combinations(&self) -> Vec<Vec<&'static str>> {
        self.labels.iter().fold(vec![Vec::new()], |begun, label| {
            let longer = begun.iter().flat_map(|begun| {
                label.values.iter().map(|value| begun.iter().copied().chain([*value]).collect::<Vec<_>>())
            });
            longer.collect()
        })
    }

    fn is_well_named(&self) -> bool {
        let stem = self.name.strip_suffix("_total");
        let unit = match self.unit {
            Unit::Count => "",
            Unit::Seconds => "_seconds",
            Unit::Timestamp => "_timestamp_seconds",
            Unit::Bytes => "_bytes",
            Unit::Ratio => "_ratio",
        };
        self.name.starts_with("tally_")
            && self.name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_')
            && (self.kind == Kind::Counter) == stem.is_some()
            && stem.unwrap_or(self.name).ends_with(unit)
            && (self.unit == Unit::Timestamp || !self.name.ends_with("_timestamp_seconds"))
    }
}

impl fmt::Display for Catalogue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for Metric { name, kind, labels, description, .. } in self.0 {
            let labels: Vec<String> = labels.iter().map(ToString::to_string).collect();
            let labels = if labels.is_empty() { String::new() } else { format!("{{{}}}", labels.join(",")) };
            let kind = if *kind == Kind::Histogram { " (histogram)" } else { "" };
            writeln!(f, "- `{name}{labels}`{kind}: {description}")?;
        }
        Ok(())
    }
}

impl fmt::Display for Label {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, values } = self;
        if values.is_empty() { f.write_str(name) } else { write!(f, "{name}={}", values.join("|")) }
    }
}

/// Describes `catalogues` and the common metrics, and records which version is running. Every counter whose labels'
/// values are known starts at 0: a rate over a counter that only appears with its first increment misses that
/// increment.
pub fn announce(service: &str, version: &str, catalogues: &[Catalogue]) {
    for metric in catalogues.iter().chain([&CATALOGUE]).flat_map(|catalogue| catalogue.0) {
        let Metric { name, description, .. } = *metric;
        match metric.kind {
            Kind::Gauge => describe_gauge!(name, description),
            Kind::Histogram => describe_histogram!(name, description),
            Kind::Counter => {
                describe_counter!(name, description);
                metric.combinations().iter().for_each(|values| metric.counter(values).increment(0));
            }
        }
    }
    gauge!(BUILD_INFO.name, "service" => service.to_owned(), "version" => version.to_owned()).set(1.0);
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn metric(name: &'static str, kind: Kind, unit: Unit) -> Metric {
        const LABELS: &[Label] = &[Label::of("way", &["in", "out"]), Label::learnt("partition")];
        Metric { name, kind, unit, labels: LABELS, description: "A thing." }
    }

    #[test]
    fn the_catalogue_is_the_reference() {
        CATALOGUE.check_reference("every process");
    }

    #[test]
    #[should_panic(expected = "tally_records_total has no way=up")]
    fn a_label_value_outside_the_catalogue_is_a_bug() {
        metric("tally_records_total", Kind::Counter, Unit::Count).counter(&["up", "3"]).increment(1);
    }

    #[test]
    fn names_end_in_their_unit_and_those_of_counters_in_total() {
        const GOOD: Catalogue = Catalogue(&[
            metric("tally_records_total", Kind::Counter, Unit::Count),
            metric("tally_lag_seconds", Kind::Gauge, Unit::Seconds),
            metric("tally_read_bytes_total", Kind::Counter, Unit::Bytes),
            metric("tally_end_timestamp_seconds", Kind::Gauge, Unit::Timestamp),
        ]);
        const BAD: Catalogue = Catalogue(&[
            metric("records_total", Kind::Counter, Unit::Count),
            metric("tally_records", Kind::Counter, Unit::Count),
            metric("tally_open_total", Kind::Gauge, Unit::Count),
            metric("tally_lag", Kind::Gauge, Unit::Seconds),
            metric("tally_Lag_seconds", Kind::Gauge, Unit::Seconds),
            metric("tally_end_seconds", Kind::Gauge, Unit::Timestamp),
            metric("tally_end_timestamp_seconds", Kind::Gauge, Unit::Seconds),
        ]);
        assert_eq!(GOOD.misnamed(), [""; 0]);
        assert_eq!(BAD.misnamed().len(), 7);
    }
}
