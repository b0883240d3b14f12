//! The processor time of a thread, and the median of several figures.

use std::time::Duration;

use tokio::time::Instant;

/// The processor time of a thread.
pub(super) struct Processor {
    schedstat: Option<std::path::PathBuf>,
    began: Instant,
}

impl Processor {
    pub(super) fn of_this_thread() -> Self {
        let thread = std::fs::read_link("/proc/thread-self").ok();
        Self {
            schedstat: thread.map(|thread| std::path::Path::new("/proc").join(thread).join("schedstat")),
            began: Instant::now(),
        }
    }

    /// The processor time that the thread has used so far.
    pub(super) fn used(&self) -> Duration {
        let text = self.schedstat.as_ref().and_then(|path| std::fs::read_to_string(path).ok());
        let nanos = text.and_then(|text| text.split(' ').next()?.parse().ok());
        nanos.map_or_else(|| self.began.elapsed(), Duration::from_nanos)
    }
}

pub(super) fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
