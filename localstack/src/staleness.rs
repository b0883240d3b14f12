//! How late the counts are: the spans measured, over everything and over the last seconds.

use std::collections::VecDeque;
use std::time::Duration;

use hdrhistogram::Histogram;
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::page::Staleness as Shown;

/// What counts as now.
const RECENT: Duration = Duration::from_secs(10);
/// The longest span that is told from longer ones.
const LONGEST: Duration = Duration::from_secs(600);

/// Spans from an event's acknowledgement by Kafka until the API's count included it.
#[derive(Debug)]
pub(crate) struct Staleness(Mutex<Spans>);

#[derive(Debug)]
struct Spans {
    /// In microseconds.
    all: Histogram<u64>,
    recent: VecDeque<(Instant, Duration)>,
}

impl Default for Staleness {
    fn default() -> Self {
        let all = Histogram::new_with_bounds(1, micros(LONGEST), 3).expect("the bounds and the precision are in order");
        Self(Mutex::new(Spans { all, recent: VecDeque::new() }))
    }
}

impl Staleness {
    pub(crate) fn measured(&self, span: Duration) {
        let mut spans = self.0.lock();
        spans.all.saturating_record(micros(span));
        spans.recent.push_back((Instant::now(), span));
        spans.forget();
    }

    /// Median and 99th percentile over the last seconds.
    pub(crate) fn recent(&self) -> Option<Shown> {
        let mut spans = self.0.lock();
        spans.forget();
        let mut sorted: Vec<Duration> = spans.recent.iter().map(|(_, span)| *span).collect();
        sorted.sort_unstable();
        let last = sorted.len().checked_sub(1)?;
        let at = |hundredths: usize| sorted[(last * hundredths).div_ceil(100)].as_secs_f64() * 1000.0;
        Some(Shown { p50_ms: at(50), p99_ms: at(99) })
    }

    /// Median and 99th percentile over everything, and of how many.
    pub(crate) fn overall(&self) -> (Option<Shown>, u64) {
        let spans = self.0.lock();
        let count = spans.all.len();
        #[expect(clippy::cast_precision_loss, reason = "ten minutes have far fewer than 2^52 microseconds")]
        let at = |quantile| spans.all.value_at_quantile(quantile) as f64 / 1000.0;
        ((count > 0).then(|| Shown { p50_ms: at(0.5), p99_ms: at(0.99) }), count)
    }
}

impl Spans {
    fn forget(&mut self) {
        while self.recent.pop_front_if(|(at, _)| at.elapsed() > RECENT).is_some() {}
    }
}

fn micros(span: Duration) -> u64 {
    u64::try_from(span.as_micros()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn recent_spans_are_forgotten_and_all_of_them_are_kept() {
        let staleness = Staleness::default();
        assert_eq!(staleness.recent().map(|shown| shown.p50_ms), None);
        for ms in 1..=100 {
            staleness.measured(Duration::from_millis(ms));
        }
        let shown = staleness.recent().unwrap();
        assert!((50.0..=51.0).contains(&shown.p50_ms) && (99.0..=100.0).contains(&shown.p99_ms), "{shown:?}");
        tokio::time::advance(RECENT * 2).await;
        assert!(staleness.recent().is_none());
        let (overall, count) = staleness.overall();
        assert_eq!((overall.map(|shown| shown.p99_ms.round()), count), (Some(99.0), 100));
    }
}
