//! What this process has found for a run, where everybody who takes part in the run can add it up.

use std::sync::Arc;

use serde_json::json;
use tally_core::recount::AuditRun;

use crate::summary::{Findings, Summary};
use crate::tools::Tools;

/// This process's part in a run.
#[derive(Clone)]
pub(crate) struct Share {
    pub(crate) tools: Tools,
    pub(crate) run: AuditRun,
    pub(crate) findings: Arc<Findings>,
}

impl Share {
    /// What was found here.
    pub(crate) fn own(&self) -> Summary {
        self.findings.so_far(self.tools.spent.so_far())
    }

    /// Keeps what was found here. Safe to repeat: what is said last stands.
    pub(crate) async fn put(&self) -> anyhow::Result<()> {
        let (share, now) = (json!(self.own()).to_string(), self.tools.clock.now());
        let Tools { ports, me, .. } = &self.tools;
        self.tools.persist("keep what was found", || ports.recounts.put_share(self.run, me, &share, now)).await?;
        self.tools.spent.wrote(1);
        Ok(())
    }

    /// What everybody has found.
    pub(crate) async fn sum(&self) -> anyhow::Result<Summary> {
        let recounts = &self.tools.ports.recounts;
        let shares = self.tools.persist("read what was found", || recounts.shares(self.run)).await?;
        self.tools.read_items(shares.len());
        let mut sum = Summary::default();
        for share in shares {
            sum.add(serde_json::from_str(&share)?);
        }
        Ok(sum)
    }
}
