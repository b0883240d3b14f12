//! What is done to the ledger of changes and to those who list what is trending.

use std::time::Duration;

use tally_core::fault::Fault;
use tally_core::ports::TopicReader as _;
use tokio::time::Instant;

use super::super::chance::Draws;
use super::super::instance::{Role, Slot};
use super::super::lists::{CHANGES, GROUP};
use super::{Deed, Driver};

/// Longer than a streamer waits for the ledger.
const AWAY: Duration = Duration::from_secs(10 * 60 + 30);

/// The most processes that list.
const MOST: usize = 3;

impl Driver {
    /// Does one of these deeds; nothing where it is another.
    pub(super) async fn perform_on_ledger(&mut self, deed: Deed) -> anyhow::Result<bool> {
        Ok(match deed {
            Deed::ListersChange => self.change_listers().await,
            Deed::LedgerCut => self.cut_ledger().await,
            Deed::LedgerAway => self.take_ledger_away().await?,
            _ => false,
        })
    }

    async fn change_listers(&mut self) -> bool {
        let Some(chance) = self.profile.listing.as_ref().map(|listing| listing.chance.clone()) else { return false };
        let listers: Vec<usize> = (0..self.slots.len()).filter(|slot| self.slots[*slot].role == Role::Trends).collect();
        let slot = listers[chance.place(listers.len())];
        match chance.below(3) {
            0 if listers.len() < MOST => self.slots.push(Slot::new(Role::Trends, listers.len() as u64 + 1)),
            1 if self.slots[slot].life.is_some() => {
                self.slots[slot].kill().await;
                self.slots[slot].due = Some(Instant::now() + chance.millis(0, self.profile.pace * 5));
            }
            _ => self.world.broker.expire(GROUP),
        }
        true
    }

    /// Some of what the log has is gone, all of it or its first part.
    async fn cut_ledger(&mut self) -> bool {
        let Some(listing) = &self.profile.listing else { return false };
        let mut cut = false;
        for (partition, log) in self.world.broker.reader("observer", CHANGES).logs().await.unwrap_or_default() {
            if log.end > log.start && listing.chance.happens(60) {
                let start = listing.chance.between(log.start.0 + 1, log.end.0);
                self.world.broker.trim(CHANGES, partition.index, start);
                cut = true;
            }
        }
        cut
    }

    /// The ledger takes nothing for so long that streamers give up what waits. A schedule that is not lossy has none of it.
    async fn take_ledger_away(&mut self) -> anyhow::Result<bool> {
        let refused = Fault::Transient("refused".to_owned());
        self.world.broker.refuse_writes(CHANGES, Some(refused));
        let back = Instant::now() + AWAY;
        while Instant::now() < back {
            tokio::time::sleep(Duration::from_secs(20)).await;
            self.tick();
        }
        self.keep().await?;
        self.world.broker.refuse_writes(CHANGES, None);
        Ok(true)
    }
}
