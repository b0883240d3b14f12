//! Warns that another deployment keeps its counts under the same keys.

use std::time::Duration;

use parking_lot::Mutex;
use tally_core::changes::DeploymentId;
use tokio::time::Instant;

/// The time between two warnings.
const EVERY: Duration = Duration::from_secs(60);

/// Warns of standings of other deployments in the cache, and keeps when it did so last.
#[derive(Debug, Default)]
pub struct ForeignStandings(Mutex<Option<Instant>>);

impl ForeignStandings {
    /// Warns of a standing of the deployment `other`, unless there was a warning less than a minute ago. Returns whether
    /// it warned.
    pub fn warn(&self, partition: u32, other: &str, own: &DeploymentId) -> bool {
        let (mut last, now) = (self.0.lock(), Instant::now());
        if last.is_some_and(|last| now < last + EVERY) {
            return false;
        }
        *last = Some(now);
        tracing::warn!(
            partition,
            other,
            own = &*own.0,
            "the cache has counts of another deployment, which are not used; if it is alive, each takes the cache away \
             from the other: give one of them a table prefix or a Redis of its own"
        );
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn another_deployment_is_warned_of_once_a_minute() {
        let (foreign, own) = (ForeignStandings::default(), DeploymentId("own".into()));
        assert!(foreign.warn(7, "other", &own));
        assert!(!foreign.warn(8, "other", &own));
        tokio::time::advance(EVERY).await;
        assert!(foreign.warn(7, "other", &own));
    }
}
