//! The quiet end of what is trending: one window after the last loss, and what clocks may differ by, every list is exact.

use std::time::Duration;

use anyhow::{Context, bail, ensure};
use tally_core::time::UnixMillis;
use tally_trends::{Claim, Reason};
use tokio::time::Instant;

use super::super::instance::Role;
use super::super::lists::windows;
use super::{Course, Listing};

/// How often something is said in the end, and how long the waits between are.
const SAID: u64 = 20;
const PAUSE: Duration = Duration::from_secs(3);

/// How far a loss reaches beyond what is lost: by so much the clocks of the log and of the table may differ, and a clock may be
/// a second wrong.
const FURTHER: Duration = Duration::from_secs(64);

/// How long lists may take to be exact.
const PATIENCE: Duration = Duration::from_secs(1_800);

impl Course {
    /// Something more is said, and nothing goes wrong: from `rested` on nothing was lost.
    pub(super) async fn listed(&mut self, rested: UnixMillis) -> anyhow::Result<()> {
        let Some(limited) = self.driver.profile.listing.as_ref().map(Listing::is_limited) else { return Ok(()) };
        for slot in self.driver.slots.iter_mut().filter(|slot| matches!(slot.role, Role::Recounter | Role::Api)) {
            slot.kill().await;
            slot.due = None;
        }
        for _ in 0..SAID {
            self.say();
            tokio::time::sleep(PAUSE).await;
            self.unbroken()?;
        }
        let said = self.driver.world.clock.now().0 / 1000;
        let longest = windows().into_iter().max_by_key(|window| window.span()).context("there are windows")?;
        let deadline = Instant::now() + PATIENCE;
        loop {
            tokio::time::sleep(PAUSE).await;
            self.unbroken()?;
            let lists = self.lists.as_mut().context("lists are read where there are some")?;
            lists.look(&self.driver.world.history).await.context("what is trending, in the end")?;
            let moment = lists.moment();
            if moment >= said && longest.from(moment) * 1000 > rested.plus(FURTHER).0 {
                match lists.unsure(limited)? {
                    None => {
                        self.driver.world.trace.figures("lists", &[moment, lists.judged.lists, lists.judged.exact]);
                        return Ok(());
                    }
                    // A partition makes up for a day, and the others went on.
                    Some(Claim::Unknown(Reason::Missing)) => {}
                    Some(claim) => bail!("nothing was lost for a window, and a list of {moment} is {claim:?}"),
                }
            }
            ensure!(Instant::now() < deadline, "lists are of {moment}, and not all are exact");
        }
    }
}
