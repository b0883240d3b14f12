//! A look at one row key by itself: its rows counted by a query, between two readings of its counter's version.

use tally_core::counter::Counter;
use tally_core::ids::RowKey;
use tally_core::recount::{Finding, Scanned, compare, proved};

use super::Audit;
use crate::summary::{Cause, Drift};

/// What is wrong with a count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Wrong {
    pub(super) cause: Cause,
    pub(super) counted: i64,
    pub(super) rows: u64,
}

impl Wrong {
    /// Compares a row key's rows with its counter.
    pub(super) fn with(key: &RowKey, rows: u64, counter: Option<&Counter>) -> Option<Self> {
        let tally = counter.and_then(|counter| counter.shards.get(&key.shard));
        let counted = tally.map_or(0, |tally| tally.rows);
        let cause = match compare(rows, counter, key.shard) {
            Finding::Agrees => return None,
            Finding::Differs { .. } if tally.is_none() => Cause::MissingCounter,
            Finding::Differs { rows: 0, .. } => Cause::NoRows,
            Finding::Differs { .. } => Cause::Drift,
            Finding::Negative => Cause::Negative,
            Finding::Suspect => Cause::Suspect,
        };
        Some(Self { cause, counted, rows })
    }

    pub(super) fn drift(self, key: &RowKey) -> Drift {
        let after = i64::try_from(self.rows).unwrap_or(i64::MAX);
        Drift { key: key.to_string(), before: self.counted, after, cause: self.cause }
    }
}

/// What a look came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Looked {
    /// Rows and counter agreed, and nothing can have made them agree by luck.
    Proved,
    /// They differ, and nothing is on its way that could make up for it.
    Wrong(Wrong),
    /// The counter kept changing.
    Unproved,
}

impl Audit {
    /// Looks at `key` alone.
    pub(super) async fn look(&self, key: &RowKey) -> anyhow::Result<Looked> {
        let version_before = self.tools.counter(&key.post).await?.map_or(0, |counter| counter.version);
        let rows = self.count(key).await?;
        let scanned = Scanned { version_before, ended: self.tools.clock.now() };
        let as_of = self.views.past(scanned.ended).await?;
        let counter = self.tools.counter(&key.post).await?;
        let version = counter.as_ref().map_or(0, |counter| counter.version);
        if !proved(&scanned, version, [as_of], self.tools.rules.guard) {
            return Ok(Looked::Unproved);
        }
        Ok(Wrong::with(key, rows, counter.as_ref()).map_or(Looked::Proved, Looked::Wrong))
    }

    async fn count(&self, key: &RowKey) -> anyhow::Result<u64> {
        let (mut rows, mut after) = (0, None);
        loop {
            let page = self.tools.page("read rows", || self.tools.ports.rows.users(key, after.as_ref())).await?;
            rows += page.items.len() as u64;
            after = page.next;
            if after.is_none() {
                return Ok(rows);
            }
        }
    }
}
