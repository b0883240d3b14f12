//! What happens to row keys that the comparison could not prove: looks at them, many at a time, then windows.

use std::cmp::Reverse;

use futures_util::FutureExt;
use futures_util::future::try_join;
use futures_util::stream::{self, StreamExt, TryStreamExt};
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
    /// Its counter cannot be read: nothing here settles it.
    Unreadable,
}

/// A row key that only a window can settle, and what is known to be wrong with it.
type Unproved = (RowKey, Option<Wrong>);

impl Audit {
    /// Settles row keys; how many this leaves unsettled.
    pub(super) async fn follow_up(&self, doubts: Vec<(RowKey, Doubt)>) -> anyhow::Result<u64> {
        let (mut unreadable, mut certain, mut open) = (0, Vec::new(), Vec::new());
        for (key, doubt) in doubts {
            match doubt {
                Doubt::Unreadable => unreadable += 1,
                Doubt::Wrong(wrong) => certain.push((key, Some(wrong))),
                Doubt::Changed(rows) if rows > MANY && !self.dry_run => certain.push((key, None)),
                Doubt::Changed(_) => open.push(key),
            }
        }
        let looked = async { self.windows(self.looks(open).await?).await };
        let (certain, looked) = try_join(self.windows(certain).boxed(), looked.boxed()).await?;
        Ok(unreadable + certain + looked)
    }

    /// Looks at row keys together; those that only a window can settle.
    async fn looks(&self, mut open: Vec<RowKey>) -> anyhow::Result<Vec<Unproved>> {
        let mut unproved: Vec<Unproved> = Vec::new();
        let mut seeming = Vec::new();
        for _ in 0..LOOKS {
            let looked = self.look(&open).await?;
            seeming.clear();
            for (key, looked) in open.into_iter().zip(looked) {
                match looked {
                    Looked::Proved => self.findings.proved(1),
                    Looked::Wrong(wrong) => unproved.push((key, Some(wrong))),
                    Looked::Unproved(by) => seeming.push((by, key)),
                }
            }
            open = seeming.iter().map(|(_, key)| key.clone()).collect();
        }
        // What seems most wrong is mended first: where everything changes all the time, windows take their time.
        seeming.sort_by_key(|(by, _)| Reverse(*by));
        unproved.extend(seeming.into_iter().map(|(_, key)| (key, None)));
        Ok(unproved)
    }

    async fn windows(&self, keys: Vec<Unproved>) -> anyhow::Result<u64> {
        stream::iter(keys)
            .map(|(key, wrong)| self.window(key, wrong).boxed())
            .buffer_unordered(self.tools.rules.concurrency)
            .try_fold(0, |sum, unsettled| std::future::ready(Ok(sum + unsettled)))
            .await
    }

    /// Recounts `key` by windows once it is its turn; 1 where it stays unsettled.
    async fn window(&self, key: RowKey, wrong: Option<Wrong>) -> anyhow::Result<u64> {
        if self.dry_run {
            if let Some(wrong) = wrong {
                self.findings.differs(wrong.drift(&key));
            }
            return Ok(1);
        }
        let _turn = self.repairs.acquire().await.expect("nobody closes the semaphore");
        let why = wrong.map_or(Cause::Unproved, |wrong| wrong.cause);
        Ok(match repair(&self.tools, &key, why, &self.findings).await? {
            Repaired::Proved => 0,
            Repaired::Left => {
                self.leave(key);
                1
            }
        })
    }
}
