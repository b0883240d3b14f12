//! The process's one recorder, and what it recorded as Prometheus reads it.

use std::sync::{Arc, OnceLock};

use metrics::{Counter, Gauge, Histogram, Key, KeyName, Metadata, SharedString, Unit};
use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle, PrometheusRecorder};

use super::histograms::Histograms;

/// The process's recorder, rendered.
#[derive(Clone, Debug)]
pub struct Exposition {
    exporter: PrometheusHandle,
    histograms: Arc<Histograms>,
}

impl Exposition {
    /// Every metric in Prometheus' text format.
    pub fn render(&self) -> String {
        let mut text = self.exporter.render();
        self.histograms.render(&mut text);
        text
    }
}

/// Installs the process's recorder at the first call; all later ones share it.
pub fn install() -> Exposition {
    static INSTALLED: OnceLock<Exposition> = OnceLock::new();
    let install = || {
        let exporter = PrometheusBuilder::new().build_recorder();
        let histograms = Arc::<Histograms>::default();
        let exposition = Exposition { exporter: exporter.handle(), histograms: Arc::clone(&histograms) };
        if metrics::set_global_recorder(Recorder { exporter, histograms }).is_err() {
            tracing::error!("another metrics recorder is installed: /metrics stays empty");
        }
        exposition
    };
    INSTALLED.get_or_init(install).clone()
}

/// The exporter's, but for histograms: of those it would keep every sample until somebody scrapes.
struct Recorder {
    exporter: PrometheusRecorder,
    histograms: Arc<Histograms>,
}

impl metrics::Recorder for Recorder {
    fn describe_counter(&self, name: KeyName, unit: Option<Unit>, description: SharedString) {
        self.exporter.describe_counter(name, unit, description);
    }

    fn describe_gauge(&self, name: KeyName, unit: Option<Unit>, description: SharedString) {
        self.exporter.describe_gauge(name, unit, description);
    }

    fn describe_histogram(&self, name: KeyName, _: Option<Unit>, description: SharedString) {
        self.histograms.describe(name.as_str(), description);
    }

    fn register_counter(&self, key: &Key, metadata: &Metadata<'_>) -> Counter {
        self.exporter.register_counter(key, metadata)
    }

    fn register_gauge(&self, key: &Key, metadata: &Metadata<'_>) -> Gauge {
        self.exporter.register_gauge(key, metadata)
    }

    fn register_histogram(&self, key: &Key, _: &Metadata<'_>) -> Histogram {
        self.histograms.register(key)
    }
}
