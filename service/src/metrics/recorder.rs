//! Installs the process's metrics recorder, and renders its contents in Prometheus' text format.

use std::sync::OnceLock;
use std::time::Duration;

use metrics_exporter_prometheus::{BuildError, Matcher, PrometheusBuilder, PrometheusHandle, PrometheusRecorder};

use crate::{Stop, Task};

const SECONDS: [f64; 14] = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 60.0];
const BYTES: [f64; 7] = [256.0, 1_024.0, 4_096.0, 16_384.0, 65_536.0, 262_144.0, 1_048_576.0];
const COUNTS: [f64; 12] = [1.0, 2.0, 5.0, 10.0, 25.0, 50.0, 100.0, 250.0, 500.0, 1_000.0, 10_000.0, 100_000.0];

/// How long a histogram's samples wait before they are folded into its buckets.
const FOLD_EVERY: Duration = Duration::from_secs(1);

/// A task that folds samples into buckets. Without it they would stay in memory until the next scrape.
pub struct Folding(pub PrometheusHandle);

impl Task for Folding {
    async fn run(self, stop: Stop) -> anyhow::Result<()> {
        loop {
            stop.unless_requested(tokio::time::sleep(FOLD_EVERY)).await?;
            self.0.run_upkeep();
        }
    }
}

/// Installs the process's recorder at the first call; later calls share it.
pub fn install() -> PrometheusHandle {
    static INSTALLED: OnceLock<PrometheusHandle> = OnceLock::new();
    let install = || {
        let recorder = recorder().expect("every list of buckets has some");
        let exposition = recorder.handle();
        if metrics::set_global_recorder(recorder).is_err() {
            tracing::error!("another metrics recorder is installed: /metrics stays empty");
        }
        exposition
    };
    INSTALLED.get_or_init(install).clone()
}

/// Creates a recorder whose histograms have the buckets of the unit at the end of their name.
fn recorder() -> Result<PrometheusRecorder, BuildError> {
    let ending_in = |unit: &str| Matcher::Suffix(unit.to_owned());
    let builder = PrometheusBuilder::new()
        .set_buckets_for_metric(ending_in("_seconds"), &SECONDS)?
        .set_buckets_for_metric(ending_in("_bytes"), &BYTES)?
        .set_buckets(&COUNTS)?;
    Ok(builder.build_recorder())
}

#[cfg(test)]
mod tests {
    use metrics::histogram;

    use super::*;
    use crate::Switch;

    #[test]
    fn a_histogram_has_the_buckets_of_the_unit_in_its_name() {
        let recorder = recorder().unwrap();
        metrics::with_local_recorder(&recorder, || {
            ["sizes_bytes", "waits_seconds", "rows"].iter().for_each(|name| histogram!(*name).record(1.0));
        });
        let text = recorder.handle().render();
        for line in
            [r#"sizes_bytes_bucket{le="256"} 1"#, r#"waits_seconds_bucket{le="0.001"} 0"#, r#"rows_bucket{le="2"} 1"#]
        {
            assert!(text.lines().any(|rendered| rendered == line), "{line}: {text}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn samples_are_folded_without_a_scrape() {
        let recorder = recorder().unwrap();
        let folding = Folding(recorder.handle());
        let switch = Switch::new();
        let folded = async {
            metrics::with_local_recorder(&recorder, || histogram!("rows").record(1.0));
            tokio::time::sleep(FOLD_EVERY * 2).await;
            switch.request();
        };
        let (ended, ()) = tokio::join!(folding.run(switch.stop()), folded);
        assert!(ended.unwrap_err().is::<crate::Stopped>());
        assert!(recorder.handle().render().contains("rows_count 1"));
    }
}
