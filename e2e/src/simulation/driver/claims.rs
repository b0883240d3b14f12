//! Disturbs simulated consumers: the offsets of their group are set back or forward, a claim is raised as if another
//! process had taken the partition over, a topic is paused, and no process runs for a while. A claim is the item in
//! DynamoDB that says which consumer owns a partition and how far its events are written.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use anyhow::ensure;
use tally_core::ports::TopicReader as _;
use tally_core::register::Topic;
use tally_core::topic::{Offset, Partition};
use tokio::time::Instant;

use crate::simulation::Draws;
use crate::simulation::driver::Driver;
use crate::simulation::events::TOPIC;
use crate::simulation::faults::Action;
use crate::simulation::instance::{GROUP, Role};
use crate::simulation::profile::Profile;

/// The most records that the group is set forward by.
const FORWARD: u64 = 20;

/// How long, in milliseconds, a resumed process hears nothing of its group at most.
const UNHEARD: u64 = 3_000;

/// A partition whose group offset was set forward. Its consumer stops until an operator sets it back.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Forward {
    partition: u32,
    /// When an operator sets it back.
    pub(super) due: Instant,
    /// Whether a consumer was seen to stop because of it.
    noticed: bool,
}

/// What was done to the group's offsets.
#[derive(Debug, Default)]
pub(crate) struct Resets {
    /// The partitions whose offset was ever set forward.
    forward: BTreeSet<u32>,
    /// Where partitions were last set back to, unless that turned out to be forward.
    back: BTreeMap<u32, u64>,
}

impl Driver {
    fn drawn_partition(&self) -> Partition {
        let index = u32::try_from(self.other.below(self.profile.partitions.into())).unwrap_or(0);
        Partition { topic: TOPIC.into(), index }
    }

    /// Stops the consumers, since Kafka's tools set the offsets of a group only if it has no members.
    async fn without_consumers(&mut self, back: Instant) {
        for slot in self.slots.iter_mut().filter(|slot| slot.role == Role::Consumer && slot.life.is_some()) {
            slot.crash(back).await;
        }
    }

    async fn set_group(&self, partition: &Partition, to: u64) -> anyhow::Result<()> {
        Ok(self.world.broker.reader(GROUP, TOPIC).mark(partition, Offset(to)).await?)
    }

    /// Sets the group back to an earlier offset of a partition.
    pub(super) async fn reset_group(&mut self) -> anyhow::Result<bool> {
        let partition = self.drawn_partition();
        let safe = self.world.registers.claim(partition.index).safe;
        if safe == 0 {
            return Ok(false);
        }
        self.without_consumers(Instant::now()).await;
        let to = self.other.below(safe);
        self.set_group(&partition, to).await?;
        self.resets.back.insert(partition.index, to);
        Ok(true)
    }

    /// Sets the group forward by mistake.
    pub(super) async fn reset_forward(&mut self) -> anyhow::Result<bool> {
        let partition = self.drawn_partition();
        let claim = self.world.registers.claim(partition.index);
        if claim.n == 0 || claim.at.0 == 0 || self.forwards.iter().any(|forward| forward.partition == partition.index) {
            return Ok(false);
        }
        self.without_consumers(Instant::now()).await;
        self.set_group(&partition, claim.safe + self.other.between(1, FORWARD)).await?;
        self.resets.forward.insert(partition.index);
        let due = Instant::now() + self.other.millis(5_000, 60_000);
        self.forwards.push(Forward { partition: partition.index, due, noticed: false });
        Ok(true)
    }

    /// Raises a claim under its owner, like a process that was assigned the partition and has ended.
    pub(super) async fn raise(&mut self) -> anyhow::Result<bool> {
        let partition = self.drawn_partition();
        if self.world.registers.claim(partition.index).n == 0 {
            return Ok(false);
        }
        self.world.calmly(self.world.calm.claims.raise(&partition)).await?;
        Ok(true)
    }

    /// An operator pauses the topic for a while.
    pub(super) async fn pause_topic(&mut self) -> anyhow::Result<bool> {
        if self.resumes.is_some() || !self.set_paused(true).await? {
            return Ok(false);
        }
        self.world.calmly(self.world.calm.claims.raise_all(TOPIC, self.profile.partitions)).await?;
        self.resumes = Some(Instant::now() + self.other.millis(1_000, 30_000));
        Ok(true)
    }

    async fn set_paused(&self, is_paused: bool) -> anyhow::Result<bool> {
        let claims = &self.world.calm.claims;
        let Some(seen) = self.world.calmly(claims.topic(TOPIC)).await? else { return Ok(false) };
        let to = Topic { is_paused, ..seen.clone() };
        Ok(self.world.calmly(claims.replace_topic(TOPIC, &seen, &to)).await?)
    }

    /// Does what is due about these actions.
    pub(super) async fn tend_claims(&mut self) -> anyhow::Result<()> {
        let now = Instant::now();
        if self.resumes.is_some_and(|due| due <= now) && self.set_paused(false).await? {
            self.resumes = None;
        }
        self.notice()?;
        for forward in self.forwards.extract_if(.., |forward| forward.due <= now).collect::<Vec<_>>() {
            self.without_consumers(Instant::now()).await;
            let partition = Partition { topic: TOPIC.into(), index: forward.partition };
            self.set_group(&partition, self.world.registers.claim(forward.partition).safe).await?;
        }
        Ok(())
    }

    /// Checks that a partition stops because of a reset only if its group was set forward.
    fn notice(&mut self) -> anyhow::Result<()> {
        for partition in self.slots.iter().flat_map(crate::simulation::driver::Slot::forward) {
            // A late request of a killed consumer may store the first of two resets as `safe`. Then the second one was
            // forward.
            let safe = self.world.registers.claim(partition).safe;
            if self.resets.back.get(&partition).is_some_and(|to| *to > safe) {
                self.resets.back.remove(&partition);
                self.resets.forward.insert(partition);
                self.forwards.push(Forward { partition, due: Instant::now(), noticed: false });
            }
            ensure!(
                self.resets.forward.contains(&partition),
                "partition {partition} wrongly reports that its group was set forward"
            );
            for forward in self.forwards.iter_mut().filter(|it| it.partition == partition && !it.noticed) {
                forward.noticed = true;
                self.world.coverage.fired("forward_reset_refused");
            }
        }
        Ok(())
    }

    /// Stops all processes for this long. Some APIs and consumers are only frozen and resume first.
    pub(super) async fn sleep_through(&mut self, span: Duration) -> anyhow::Result<bool> {
        let over = Instant::now() + span;
        self.world.pulse.rest(over);
        for slot in &mut self.slots {
            let stands = match slot.role {
                Role::Api => self.chance.happens(70),
                Role::Consumer => slot.is_frozen() || self.chance.happens(self.profile.consuming.sleeping),
                _ => false,
            };
            if stands && slot.life.is_some() {
                // Its requests under way are sent before it hears that its partitions were reassigned.
                slot.freeze((over, over + self.other.millis(1, UNHEARD)));
                continue;
            }
            slot.crash(over).await;
        }
        self.world.broker.expire(GROUP);
        tokio::time::sleep_until(over).await;
        if self.other.happens(self.profile.consuming.reset_behind) {
            self.reset_group().await?;
        }
        self.world.pulse.beat();
        self.slots.iter_mut().for_each(|slot| slot.thaw(over));
        tokio::time::sleep(self.chance.millis(0, 10_000)).await;
        Ok(true)
    }
}

/// How often an owner is disturbed.
const EVERY: Duration = Duration::from_secs(1);

impl Profile {
    /// Makes owners come and go every second, and causes more faults of consumers.
    pub(crate) fn unsettle(&mut self) {
        self.pace = self.pace.min(600);
        self.actions.extend([(Action::Freeze, 6), (Action::Rebalance, 6), (Action::GroupExpired, 6)]);
    }
}

impl Driver {
    /// Once a second, raises a claim, replaces a consumer, mostly after a crash, or sets the group back.
    pub(super) async fn stir(&mut self) -> anyhow::Result<()> {
        let now = Instant::now();
        if self.stir.take_if(|stir| *stir <= now).is_none() {
            return Ok(());
        }
        self.stir = Some(now + EVERY);
        let (action, done) = match self.other.below(10) {
            0 => (Action::GroupReset, self.reset_group().await?),
            1..4 => (Action::ClaimRaised, self.raise().await?),
            _ => {
                self.replace_consumer().await?;
                return Ok(());
            }
        };
        if done {
            self.world.coverage.fired(&action.name());
        }
        self.tick();
        Ok(())
    }

    async fn replace_consumer(&mut self) -> anyhow::Result<()> {
        let Some(slot) = self.alive(Some(Role::Consumer)) else { return Ok(()) };
        let (slot, now) = (&mut self.slots[slot], Instant::now());
        if self.other.happens(80) {
            slot.crash(now).await;
        } else {
            slot.stop(now).await?;
        }
        self.tick();
        Ok(())
    }
}
