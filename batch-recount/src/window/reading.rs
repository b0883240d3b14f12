//! What a window reads: the rows, what the counter says of its feeders, and the streamer's report.

use std::time::Duration;

use tally_core::recount::{Form, Report};
use tally_core::time::UnixMillis;
use tokio::time::Instant;

use super::Window;
use super::roster::Roster;
use crate::cost::ITEM;
use crate::room::Part;

/// The first wait between two looks for a report, and the longest.
const LOOKS: (Duration, Duration) = (Duration::from_millis(200), Duration::from_secs(2));

impl Window<'_> {
    /// Which form the verdict will have: the one for suspects relies on the feeder switches counted now.
    pub(super) async fn form(&self) -> anyhow::Result<Form> {
        let counter = self.tools.counter(&self.key.counter).await?;
        let tally = counter.as_ref().and_then(|counter| counter.shards.get(&self.key.shard));
        Ok(match tally {
            Some(tally) if tally.suspect => Form::Suspect { switches: tally.switches },
            _ => Form::Plain,
        })
    }

    /// Every row with its weight, all pages, read consistently; how many were read where there is no room for more.
    pub(super) async fn rows(&self, part: &mut Part) -> anyhow::Result<Result<Roster, u64>> {
        let (mut roster, mut after) = (Roster::default(), None);
        loop {
            let page = self.tools.page("read rows", || self.tools.ports.rows.weights(self.key, after.as_ref())).await?;
            roster.extend(&page.items);
            if !part.holds(roster.len()) {
                return Ok(Err(roster.len()));
            }
            after = page.next;
            if after.is_none() {
                return Ok(Ok(roster.finish()));
            }
        }
    }

    /// The streamer's report; `None` once it has been waited for long enough. The token is in the counter by then: it
    /// is written first.
    pub(super) async fn report(&self) -> anyhow::Result<Option<Report>> {
        let (began, mut look) = (Instant::now(), LOOKS.0);
        loop {
            let recounts = &self.tools.ports.recounts;
            let report = self.tools.persist("read a report", || recounts.report(self.key, self.run)).await?;
            self.tools.spent.read(ITEM);
            if report.is_some() || began.elapsed() >= self.tools.rules.report {
                return Ok(report);
            }
            self.tools.wait(look).await?;
            look = (look * 2).min(LOOKS.1);
        }
    }

    /// Whether every open stream shard came past `closed` in time: only then can nothing of this window be on its way
    /// through another one.
    pub(super) async fn all_passed(&self, closed: UnixMillis) -> anyhow::Result<bool> {
        let began = Instant::now();
        loop {
            if self.tools.has_passed(&self.tools.lineage().await?, closed) {
                return Ok(true);
            }
            if began.elapsed() >= self.tools.rules.passing {
                return Ok(false);
            }
            self.tools.wait(Duration::from_secs(1)).await?;
        }
    }
}
