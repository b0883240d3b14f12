//! The *ladder*: the thresholds, such as 1,000 likes, at which counters record who brought them there. At start,
//! `raised` extends the ladder that the deployment has stored to the one that this process is told. [`follow`] reads
//! the stored ladder again every ten seconds, and [`announce`] announces it in the log.
//!
//! A ladder is in force in a partition from its announcement on. So all folds apply the same thresholds to the same
//! entries, also a fold whose process has not read the stored ladder again.

use std::time::Duration;

use tally_adapters::dynamodb::Checkpoints;
use tally_core::backoff::Backoff;
use tally_core::changes::Body;
use tally_core::milestone::Ladder;
use tally_service::{Clock, Host, Invalid, Stop, Stopped};
use tokio::sync::watch;

use crate::relay::Writing;

/// The wait between two reads of the ladder.
const EVERY: Duration = Duration::from_secs(10);

/// Stores `told` as the deployment's ladder unless it is empty; returns the stored ladder. Safe to repeat: it only
/// grows.
///
/// # Errors
/// The stored ladder does not go on as `told`, a fault that waiting does not mend, or a stop.
pub(crate) async fn raised(host: &Host, deployment: &Checkpoints, told: Ladder) -> anyhow::Result<Ladder> {
    const NAME: &str = "milestones";
    loop {
        let stands = host.wait_for(NAME, Backoff::STORE, || deployment.ladder()).await?;
        if told.is_empty() || stands == told {
            return Ok(stands);
        }
        if !stands.precedes(&told) {
            let problem = format!(
                "{told} does not go on from {stands}, which the deployment has: thresholds are only added, above"
            );
            return Err(Invalid::setting(NAME, problem).into());
        }
        // If another process was first, the next turn finds what it has stored.
        host.wait_for(NAME, Backoff::STORE, || deployment.raise_ladder(&stands, &told)).await?;
    }
}

/// Reads the stored ladder again and again. A read that fails changes nothing.
pub(crate) async fn follow(
    deployment: Checkpoints,
    known: watch::Sender<Ladder>,
    clock: Clock,
    stop: Stop,
) -> anyhow::Result<()> {
    while stop.unless_requested(clock.sleep(EVERY)).await.is_ok() {
        match stop.unless_requested(deployment.ladder()).await? {
            Ok(later) => {
                known.send_if_modified(|known| {
                    let before = *known;
                    known.learn(later);
                    *known != before
                });
            }
            Err(fault) => tracing::debug!(error = %fault, "the ladder of milestones cannot be read"),
        }
    }
    Ok(())
}

/// Announces the ladder in every partition of the log, at first and whenever it was raised, until the writer is gone. Each
/// process that relays does so; an announcement that comes again changes nothing.
pub(crate) async fn announce(writing: Writing, mut ladder: watch::Receiver<Ladder>) -> Result<(), Stopped> {
    loop {
        let now = *ladder.borrow_and_update();
        if !now.is_empty() {
            writing.announce(Body::Ladder(now)).await?;
        }
        if ladder.changed().await.is_err() {
            // The sender is gone: nothing raises the ladder any more.
            return std::future::pending().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use tally_core::time::UnixMillis;
    use tally_testkit::Store;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_ladder_is_raised_and_never_lowered_nor_changed() {
        let deployment = Checkpoints::new(&Store::start().await.connection);
        deployment.config(None).await.unwrap();
        let host = Host::new("test").with_clock(Clock::starting_at(UnixMillis(0)));
        let raise = async |text: &str| {
            let told = if text.is_empty() { Ladder::default() } else { text.parse().unwrap() };
            raised(&host, &deployment, told).await.map(|ladder| ladder.to_string())
        };
        for (told, stands) in [("", ""), ("100", "100"), ("100,1000", "100,1000"), ("", "100,1000")] {
            assert_eq!(raise(told).await.unwrap(), stands);
        }
        for refused in ["100", "100,2000", "every:100"] {
            let error = raise(refused).await.unwrap_err();
            assert!(error.is::<Invalid>(), "{error}");
            assert!(error.to_string().contains("--milestones"), "{error}");
        }
        assert_eq!(deployment.ladder().await.unwrap().to_string(), "100,1000");
    }
}
