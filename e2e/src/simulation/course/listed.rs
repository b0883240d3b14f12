//! The last part of a simulated run that also lists what is trending: after all faults have ended, more events are
//! produced, and every list has to become exact.

use std::time::Duration;

use anyhow::{Context, bail, ensure};
use tally_core::time::UnixMillis;
use tally_trends::{Claim, Reason};
use tokio::time::Instant;

use super::Course;
use crate::simulation::instance::Role;
use crate::simulation::lists::windows;
use crate::simulation::profile::targets::Listing;

/// How many more events are produced at the end, and the pause between them.
const SAID: u64 = 20;
const PAUSE: Duration = Duration::from_secs(3);

/// How long a loss affects lists beyond the lost changes: the clocks of the log and the table may differ, and a clock may be a
/// second wrong.
const FURTHER: Duration = Duration::from_secs(64);

/// How long lists may take to become exact.
const PATIENCE: Duration = Duration::from_secs(1_800);

impl Course {
    /// Produces more events without faults: nothing was lost since `rested`, so lists have to become exact.
    pub(super) async fn listed(&mut self, rested: UnixMillis) -> anyhow::Result<()> {
        let Some(limited) = self.driver.profile.listing.as_ref().map(Listing::is_limited) else { return Ok(()) };
        for slot in self.driver.slots.iter_mut().filter(|slot| matches!(slot.role, Role::Recounter | Role::Api)) {
            slot.kill().await;
            slot.due = None;
        }
        for _ in 0..SAID {
            self.produce();
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
            lists.look(&self.driver.world.history).await.context("lists of what is trending, at the end")?;
            let moment = lists.told;
            if moment >= said && longest.from(moment) * 1000 > rested.plus(FURTHER).0 {
                match lists.unsure(limited)? {
                    None => {
                        let figures = [moment, lists.judged.lists, lists.judged.exact];
                        self.driver.world.trace.note(&format!("lists {figures:?}"));
                        return Ok(());
                    }
                    // A partition may have to catch up on a day, while the others went on.
                    Some(Claim::Unknown(Reason::Missing)) => {}
                    Some(claim) => bail!("a list of {moment} is {claim:?} although nothing was lost for a window"),
                }
            }
            ensure!(Instant::now() < deadline, "not all lists are exact, at {moment}");
        }
    }
}
