//! Waiting for something to become true, with an end.

use std::time::Duration;

use anyhow::bail;
use tokio::time::{Instant, sleep};

/// Between two looks.
const LOOK: Duration = Duration::from_millis(50);

/// How long it took until `holds`.
///
/// # Errors
/// It did not within `limit`.
pub(crate) async fn until(
    what: &str,
    limit: Duration,
    mut holds: impl AsyncFnMut() -> bool,
) -> anyhow::Result<Duration> {
    let began = Instant::now();
    while !holds().await {
        if began.elapsed() > limit {
            bail!("waited {limit:?} in vain: {what}");
        }
        sleep(LOOK).await;
    }
    Ok(began.elapsed())
}
