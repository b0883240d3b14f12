//! What happens to a row key that the comparison could not prove: a look at it alone, then windows.

use tally_core::ids::RowKey;

use super::Audit;
use super::look::{Looked, Wrong};
use crate::repair::{Repaired, repair};
use crate::summary::Cause;

/// Looks at a row key before it is recounted by a window: one that changes all the time needs one anyway.
const LOOKS: u32 = 2;

/// A row key with more rows than this costs as much to look at as to recount.
const MANY: u64 = 10_000;

/// Why a row key is not proved yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Doubt {
    /// Rows and counter differ for certain.
    Wrong(Wrong),
    /// The counter changed while so many rows were counted, or they were not all counted.
    Changed(u64),
}

impl Audit {
    /// Settles `key`; how many row keys this leaves unsettled: none or one.
    pub(super) async fn follow_up(&self, key: RowKey, doubt: Doubt) -> anyhow::Result<u64> {
        let _turn = self.repairs.acquire().await.expect("nobody closes the semaphore");
        let wrong = match doubt {
            Doubt::Wrong(wrong) => Some(wrong),
            Doubt::Changed(rows) => match self.looks(&key, rows).await? {
                Looked::Proved => {
                    self.findings.proved(1);
                    return Ok(0);
                }
                Looked::Wrong(wrong) => Some(wrong),
                Looked::Unproved => None,
            },
        };
        if self.dry_run {
            if let Some(wrong) = wrong {
                self.findings.differs(wrong.drift(&key));
            }
            return Ok(1);
        }
        let why = wrong.map_or(Cause::Unproved, |wrong| wrong.cause);
        Ok(match repair(&self.tools, &key, why, &self.findings).await? {
            Repaired::Proved => 0,
            Repaired::Left => 1,
        })
    }

    async fn looks(&self, key: &RowKey, rows: u64) -> anyhow::Result<Looked> {
        if rows > MANY && !self.dry_run {
            return Ok(Looked::Unproved);
        }
        for _ in 0..LOOKS {
            let looked = self.look(key).await?;
            if looked != Looked::Unproved {
                return Ok(looked);
            }
        }
        Ok(Looked::Unproved)
    }
}
