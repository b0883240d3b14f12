//! The second Region: its rows and counters with its own ledger, and the answers of both APIs with the rows of both.

use std::fmt;

use super::compare::Rows;
use super::{CountsTable, Differences, PATIENCE, Verify};
use crate::observe;

/// What was compared beyond one Region.
#[derive(Debug)]
pub(crate) struct ComparedRegions {
    /// Events of the second one.
    events: u64,
    /// Its rows and cells.
    rows: u64,
    /// Posts whose sums were compared in both.
    posts: usize,
}

impl Verify<'_> {
    /// Compares the second Region, and the sums. Both need a while: what a Region has published goes through the mirror, and is
    /// gathered for some seconds.
    pub(super) async fn sums(
        &self,
        us: &Verify<'_>,
        rows: &Rows,
        counters: &CountsTable,
        differences: &mut Differences,
    ) -> anyhow::Result<ComparedRegions> {
        let (theirs, there, mut found) = us.tables().await?;
        let drift = observe::drift(&us.0.engines.store.recounts.runs(u32::MAX).await?);
        if drift.corrected > 0 {
            found.add(|| format!("recounts made {} corrections of counts that were right", drift.corrected));
        }
        let both = [rows, &theirs];
        let all: CountsTable =
            counters.iter().chain(&there).map(|(id, counter)| (id.clone(), counter.clone())).collect();
        self.0.screen.step("waiting until both Regions answer the same sums");
        found.extend(us.answers(&both, &all, PATIENCE).await?);
        differences.extend(self.answers(&both, &all, PATIENCE).await?);
        differences.extend(found.named("in us: "));
        let (events, posts) = (us.0.ledger.events(), self.posts(&all).len());
        Ok(ComparedRegions { events, rows: theirs.iter().map(|(_, rows)| rows.rows).sum(), posts })
    }
}

impl Differences {
    /// The same, with where they were found.
    fn named(mut self, place: &str) -> Self {
        self.listed.iter_mut().for_each(|difference| difference.insert_str(0, place));
        self
    }
}

impl fmt::Display for ComparedRegions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { events, rows, posts } = self;
        write!(f, "us has {rows} rows and cells of {events} events; both APIs are asked for the sums of {posts} posts")
    }
}
