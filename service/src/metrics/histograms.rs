//! Histograms with fixed buckets: a sample is counted where it is recorded and kept nowhere, so that one costs little and
//! nothing has to be folded later. Counters and gauges are the exporter's.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use metrics::{Histogram, HistogramFn, Key, SharedString};
use metrics_exporter_prometheus::LabelSet;
use metrics_exporter_prometheus::formatting::{write_help_line, write_metric_line, write_type_line};

const SECONDS: [f64; 14] = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 60.0];
const BYTES: [f64; 7] = [256.0, 1_024.0, 4_096.0, 16_384.0, 65_536.0, 262_144.0, 1_048_576.0];
const COUNTS: [f64; 12] = [1.0, 2.0, 5.0, 10.0, 25.0, 50.0, 100.0, 250.0, 500.0, 1_000.0, 10_000.0, 100_000.0];

/// The buckets of a histogram, by the unit its name ends in.
fn bounds(name: &str) -> &'static [f64] {
    match name {
        name if name.ends_with("_seconds") => &SECONDS,
        name if name.ends_with("_bytes") => &BYTES,
        _ => &COUNTS,
    }
}

/// One histogram: how many samples lie in each bucket and in none before it; the last has what is past every bound.
#[derive(Debug)]
struct Buckets {
    bounds: &'static [f64],
    counts: Box<[AtomicU64]>,
    /// The bits of a number.
    sum: AtomicU64,
}

impl Buckets {
    fn new(bounds: &'static [f64]) -> Self {
        Self { bounds, counts: (0..=bounds.len()).map(|_| AtomicU64::new(0)).collect(), sum: AtomicU64::new(0) }
    }

    fn render(&self, to: &mut String, name: &str, labels: &LabelSet) {
        let mut line = |suffix, bound: Option<&str>, value: &dyn Display| {
            write_metric_line(to, name, Some(suffix), labels, bound.map(|bound| ("le", bound)), value, None);
        };
        let bounds = self.bounds.iter().map(f64::to_string).chain(["+Inf".to_owned()]);
        let mut samples = 0;
        for (bound, count) in bounds.zip(&self.counts) {
            samples += count.load(Ordering::Relaxed);
            line("bucket", Some(&bound), &samples);
        }
        line("sum", None, &f64::from_bits(self.sum.load(Ordering::Relaxed)));
        line("count", None, &samples);
    }
}

impl HistogramFn for Buckets {
    fn record(&self, value: f64) {
        let nth = self.bounds.partition_point(|bound| *bound < value);
        self.counts[nth].fetch_add(1, Ordering::Relaxed);
        let add = |sum| Some((f64::from_bits(sum) + value).to_bits());
        let _ = self.sum.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add);
    }
}

/// The histograms of one name.
#[derive(Debug, Default)]
struct Family {
    description: Option<SharedString>,
    series: BTreeMap<Key, Arc<Buckets>>,
}

/// Every histogram of a process.
#[derive(Debug, Default)]
pub(super) struct Histograms(Mutex<BTreeMap<String, Family>>);

impl Histograms {
    /// Says what the histograms called `name` are.
    pub(super) fn describe(&self, name: &str, description: SharedString) {
        self.families().entry(name.to_owned()).or_default().description = Some(description);
    }

    /// The histogram with the name and the labels of `key`.
    pub(super) fn register(&self, key: &Key) -> Histogram {
        let mut families = self.families();
        let known = families.get(key.name()).and_then(|family| family.series.get(key)).cloned();
        Histogram::from_arc(known.unwrap_or_else(|| {
            let new = Arc::new(Buckets::new(bounds(key.name())));
            let family = families.entry(key.name().to_owned()).or_default();
            family.series.insert(key.to_retained(), Arc::clone(&new));
            new
        }))
    }

    /// Appends all of them in Prometheus' text format.
    pub(super) fn render(&self, to: &mut String) {
        for (name, family) in self.families().iter().filter(|(_, family)| !family.series.is_empty()) {
            if let Some(description) = &family.description {
                write_help_line(to, name, None, None, description);
            }
            write_type_line(to, name, None, None, "histogram");
            for (key, buckets) in &family.series {
                buckets.render(to, name, &LabelSet::from_key_and_global(key, &Default::default()));
            }
            to.push('\n');
        }
    }

    fn families(&self) -> MutexGuard<'_, BTreeMap<String, Family>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use metrics::Label;

    use super::*;

    fn key(name: &'static str, labels: &[(&'static str, &'static str)]) -> Key {
        Key::from_parts(name, labels.iter().map(Label::from).collect::<Vec<_>>())
    }

    #[test]
    fn a_sample_counts_in_every_bucket_whose_bound_it_does_not_pass() {
        let histograms = Histograms::default();
        histograms.describe("sizes_bytes", "How large.".into());
        histograms.describe("nothing_seconds", "Never recorded.".into());
        let sizes = histograms.register(&key("sizes_bytes", &[("of", "a \"b\"")]));
        for sample in [0.0, 256.0, 256.5, 1e9] {
            sizes.record(sample);
        }
        let mut text = String::new();
        histograms.render(&mut text);
        insta::assert_snapshot!(text, @r##"
        # HELP sizes_bytes How large.
        # TYPE sizes_bytes histogram
        sizes_bytes_bucket{of="a \"b\"",le="256"} 2
        sizes_bytes_bucket{of="a \"b\"",le="1024"} 3
        sizes_bytes_bucket{of="a \"b\"",le="4096"} 3
        sizes_bytes_bucket{of="a \"b\"",le="16384"} 3
        sizes_bytes_bucket{of="a \"b\"",le="65536"} 3
        sizes_bytes_bucket{of="a \"b\"",le="262144"} 3
        sizes_bytes_bucket{of="a \"b\"",le="1048576"} 3
        sizes_bytes_bucket{of="a \"b\"",le="+Inf"} 4
        sizes_bytes_sum{of="a \"b\""} 1000000512.5
        sizes_bytes_count{of="a \"b\""} 4
        "##);
    }

    #[test]
    fn histograms_differ_by_their_labels_and_whoever_registers_one_again_has_the_same() {
        let histograms = Histograms::default();
        for (of, sample) in [("a", 1.0), ("b", 2.0), ("a", 4.0)] {
            histograms.register(&key("rows", &[("of", of)])).record(sample);
        }
        let mut text = String::new();
        histograms.render(&mut text);
        for line in
            [r#"rows_sum{of="a"} 5"#, r#"rows_count{of="a"} 2"#, r#"rows_sum{of="b"} 2"#, r#"rows_count{of="b"} 1"#]
        {
            assert!(text.lines().any(|rendered| rendered == line), "{line}: {text}");
        }
    }

    #[test]
    fn no_sample_is_lost_among_those_that_record_at_once() {
        let buckets = Buckets::new(&COUNTS);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| (0..10_000).for_each(|_| buckets.record(2.0)));
            }
        });
        assert_eq!(buckets.counts[1].load(Ordering::Relaxed), 40_000);
        assert_eq!(f64::from_bits(buckets.sum.load(Ordering::Relaxed)), 80_000.0);
    }
}
