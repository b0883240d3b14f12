//! What is known of the tables of a deployment while a process runs, and whether they may be written to.

use std::collections::BTreeSet;
use std::sync::Arc;

use tally_core::fault::Fault;
use tally_core::ports::Outcome;
use tokio::sync::watch;

use super::names::CHECKPOINTS;

/// Whether the tables are those that the deployment was created over. Clones share what is known.
#[derive(Clone, Debug)]
pub struct TablesWatch(Arc<watch::Sender<Known>>);

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Known {
    /// What is wrong with the tables, and what to do about it.
    pub(super) problem: Option<String>,
    /// The tables that nothing may be written to.
    pub(super) closed: BTreeSet<&'static str>,
    /// Whether counters are those of other rows, until a recount has passed.
    pub(super) is_lossy: bool,
}

const LOSSY: &str = "other tables were adopted, and no recount has passed since";

impl Default for TablesWatch {
    fn default() -> Self {
        Self(Arc::new(watch::Sender::new(Known::default())))
    }
}

impl TablesWatch {
    /// Whether nothing is known to be wrong. Nothing is exact while something is: not only while a table is gone or another
    /// one, but until the loss is closed that this was. What a standing knows of that loss does not suffice, since counters are
    /// wrong before its announcement as well.
    pub fn is_whole(&self) -> bool {
        *self.0.borrow() == Known::default()
    }

    /// Why nothing is exact.
    pub fn problem(&self) -> Option<String> {
        let known = self.0.borrow();
        known.problem.clone().or_else(|| known.is_lossy.then(|| LOSSY.to_owned()))
    }

    /// Waits until the tables are those of the configuration, so that they can be written.
    pub async fn adopted(&self) {
        // The sender is borrowed by this very call, so the channel is open.
        let _ = self.0.subscribe().wait_for(|known| known.problem.is_none()).await;
    }

    /// Waits until nothing is known to be wrong.
    pub async fn whole(&self) {
        // As above.
        let _ = self.0.subscribe().wait_for(|known| *known == Known::default()).await;
    }

    /// Waits until something else is known than now.
    pub async fn changed(&self) {
        // As above.
        let _ = self.0.subscribe().changed().await;
    }

    /// Transient while nothing may be written to `table`: it is gone or another one, or the configuration is.
    pub(super) fn open_to(&self, table: &str) -> Outcome<()> {
        let known = self.0.borrow();
        if known.closed.contains(table) || known.closed.contains(CHECKPOINTS) {
            return Err(Fault::Transient(known.problem.clone().unwrap_or_default()));
        }
        Ok(())
    }

    /// Takes note of what is known, and logs what is news of it.
    pub(super) fn tell(&self, known: Known) {
        self.0.send_if_modified(|before| {
            if *before == known {
                return false;
            }
            match (&before.problem, &known.problem) {
                (before, Some(problem)) if before.as_ref() != Some(problem) => {
                    tracing::error!("nothing is called exact: {problem}");
                }
                (Some(_), None) => tracing::info!("the tables are those of this deployment again"),
                _ => {}
            }
            *before = known;
            true
        });
    }
}
