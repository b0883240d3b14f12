//! Limits how often something is done, such as a warning that every call would repeat.

use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

/// When something was done last.
#[derive(Debug, Default)]
pub struct Seldom(Mutex<Option<Instant>>);

impl Seldom {
    /// Returns whether to do it now: the first time, and once `span` has passed since it was last due.
    pub fn is_due(&self, span: Duration) -> bool {
        let mut last = self.0.lock();
        let is_due = last.is_none_or(|last| last.elapsed() >= span);
        if is_due {
            *last = Some(Instant::now());
        }
        is_due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn it_is_due_at_first_and_once_the_span_has_passed() {
        let (seldom, minute) = (Seldom::default(), Duration::from_secs(60));
        assert!(seldom.is_due(minute));
        assert!(!seldom.is_due(minute));
        tokio::time::advance(minute).await;
        assert!(seldom.is_due(minute));
        assert!(!seldom.is_due(minute));
    }
}
