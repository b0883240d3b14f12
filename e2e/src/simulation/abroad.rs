//! The second Region of a simulated run with two of them. It has no users of its own, and a mirror copies to it the
//! counts that the first publishes. So what its API answers are the counts of the first, and the same history says
//! which answers are lies.
//!
//! Its streamer and its API are killed and stand still, and its store has the faults of the first one's. The mirror is
//! late, brings a stretch again, and stands still for up to half an hour, while both topics are compacted.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tally_adapters::dynamodb::Consistency;
use tally_core::cached::Value;
use tally_core::ids::{CounterId, CounterName, PostId, Region};
use tally_core::ports::log::{Outgoing, Producer as _, TopicReader as _};
use tally_core::regions::ToldMessage;
use tally_core::time::UnixMillis;
use tally_core::topic::Offset;
use tally_service::{Chance, Stage, Stop};
use tokio::time::{Instant, sleep};

use crate::simulation::Draws;
use crate::simulation::honest::Answer;
use crate::simulation::instance::{Role, Slot};
use crate::simulation::mutant::Mutant;
use crate::simulation::profile::Profile;
use crate::simulation::readers::{Question, Reader};
use crate::simulation::world::World;

/// The topic that a Region publishes in, and that of the first one as it is copied to the second.
pub(crate) const COUNTS: &str = "counts";
pub(crate) const COPIED: &str = "home.counts";

/// How long the topics leave alone what was published, by what a reader relies on and what clocks may be off.
const COMPACTED_AFTER: Duration = Duration::from_secs(900);

/// How much earlier or later than those of the first Region the processes of the second resume after a long time in which none ran.
const AROUND: Duration = Duration::from_secs(60);

/// How long the second Region may take to be as the first, with a recount of its own.
const PATIENCE: Duration = Duration::from_secs(1_800);

/// Which Region a world is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// The one whose users say something.
    Home,
    /// The one that reads.
    Abroad,
}

impl Place {
    /// What it is called.
    pub(crate) fn region(self) -> Region {
        let name = if self == Self::Home { "home" } else { "abroad" };
        Region::new(name).expect("it is a name")
    }
}

/// The second Region; clones are the same.
#[derive(Clone)]
pub(crate) struct Abroad {
    world: Arc<World>,
    calm: Arc<AtomicBool>,
    door: crate::simulation::readers::Door,
}

/// What happens in it.
struct Life {
    home: Arc<World>,
    world: Arc<World>,
    profile: Profile,
    copies: Copies,
    slots: Vec<Slot>,
    chance: Chance,
    copied: BTreeMap<u32, Offset>,
    calm: Arc<AtomicBool>,
    /// Until when the mirror stands still.
    still: Instant,
    /// When the topics are compacted next.
    compacted: Instant,
    /// The end of the last long time in which no process of the first Region ran.
    rested: Instant,
}

impl Abroad {
    /// Starts it beside `home`.
    ///
    /// # Errors
    /// Its tables cannot be created.
    pub(crate) async fn start(
        home: &Arc<World>,
        profile: &Profile,
        mutant: Option<Mutant>,
        chance: &Chance,
    ) -> anyhow::Result<Self> {
        let world = World::beside(profile, home).await?;
        let roles = [Role::Consumer, Role::Streamer, Role::Streamer, Role::Api, Role::Recounter];
        let slots = roles.into_iter().zip([1, 2, 4, 1, 1]);
        let slots: Vec<Slot> = slots.map(|(role, nth)| Slot::new(role, nth).named("abroad-")).collect();
        let (calm, door) = (Arc::new(AtomicBool::new(false)), slots[3].door.clone());
        let likes = |id: &CounterId| id.name == CounterName::LIKES;
        let counters: Vec<CounterId> = profile.counters().filter(likes).collect();
        let (name, pace) = ("reader abroad".to_owned(), profile.reader_pace);
        Reader { name, door: door.clone(), chance: chance.fork(), counters, pace }.start(&world);
        let life = Life {
            home: Arc::clone(home),
            world: Arc::clone(&world),
            // One process has both roles there.
            profile: Profile { apart: false, ..profile.clone() },
            copies: Copies { mutant: mutant.filter(|mutant| mutant.is_of_regions()), partitions: profile.changes },
            slots,
            chance: chance.fork(),
            copied: BTreeMap::new(),
            calm: Arc::clone(&calm),
            still: Instant::now(),
            compacted: Instant::now(),
            rested: Instant::now(),
        };
        home.host.worker(Stage::Intake, "abroad", move |_: Stop| life.go_on());
        Ok(Self { world, calm, door })
    }

    /// Nothing goes wrong there any more.
    pub(crate) fn rest(&self) {
        self.calm.store(true, Ordering::Relaxed);
    }

    /// Waits until every entry equals its counter at home, and is answered as exactly that.
    ///
    /// # Errors
    /// It does not come to that, or something broke meanwhile.
    pub(crate) async fn equals(&self, home: &World, counters: impl Iterator<Item = CounterId>) -> anyhow::Result<()> {
        let own = home.counters(counters).await?;
        // Its own stream may have lost something, as in a day in which no process ran.
        self.world.calmly(self.world.calm.recounts.enqueue_audit(self.world.clock.now())).await?;
        let deadline = Instant::now() + PATIENCE;
        loop {
            sleep(Duration::from_secs(5)).await;
            self.world.pulse.beat();
            if let Some(breach) = home.breaches.first() {
                anyhow::bail!(breach);
            }
            let entries: Vec<CounterId> = own.keys().map(|id| id.in_region(&Place::Home.region())).collect();
            let read = self.world.calmly(self.world.calm.counters.read(&entries, Consistency::Strong)).await?;
            let mut different = Vec::new();
            for (entry, counter) in entries.iter().zip(own.values()) {
                let found = read.counters.get(entry).cloned().transpose()?;
                let found = found.as_ref().map(Value::from).unwrap_or_default();
                if found.likes != counter.likes {
                    different.push(format!("{entry} is {found:?}, and its counter {counter:?}"));
                }
            }
            let unsure = self.unsure(&own.keys().cloned().collect::<Vec<_>>()).await?;
            if different.is_empty() && unsure.is_empty() {
                return Ok(());
            }
            if Instant::now() >= deadline {
                let losses = [home.losses().await?, self.world.losses().await?];
                anyhow::bail!("two Regions differ: {different:?}, {unsure:?}, with these losses open: {losses:?}");
            }
        }
    }

    /// The answers about likes that do not say that they are exact.
    async fn unsure(&self, counters: &[CounterId]) -> anyhow::Result<Vec<Answer>> {
        let likes = counters.iter().filter(|id| id.name == CounterName::LIKES);
        let mut posts: Vec<PostId> = likes.map(|id| id.post.clone()).collect();
        posts.truncate(20);
        let asked = self.world.calmly(self.door.ask(&Question::Likes(posts))).await?;
        Ok(asked.unwrap_or_default().into_iter().filter(|answer| !answer.exact).collect())
    }
}

impl Life {
    async fn go_on(mut self) -> anyhow::Result<()> {
        self.world.set_rules(&self.profile.rules);
        let mut disturbed = true;
        loop {
            let calm = self.calm.load(Ordering::Relaxed);
            if calm && disturbed {
                disturbed = false;
                self.world.set_rules(&[]);
                self.still = Instant::now();
            }
            self.rest().await;
            self.tick(calm).await;
            if Instant::now() >= self.still {
                self.mirror(calm).await;
            }
            if Instant::now() >= self.compacted {
                self.compact();
                self.compacted = Instant::now() + COMPACTED_AFTER / 3;
            }
            let pace = if calm { 2_000 } else { 1_000 };
            let pace = if self.home.pulse.is_lively() { pace } else { 20_000 };
            sleep(self.chance.millis(100, pace)).await;
        }
    }

    /// While no process of the first Region runs for a quarter of an hour or a day, none of the second does, and the mirror stands
    /// still. Otherwise all the requests of that time would be made, and nothing would happen.
    async fn rest(&mut self) {
        let over = self.home.pulse.rested();
        if over == self.rested || over < Instant::now() + AROUND {
            return;
        }
        self.rested = over;
        let wakes = over - AROUND + self.chance.millis(0, 2_000 * AROUND.as_secs());
        self.still = wakes;
        for slot in &mut self.slots {
            if slot.life.is_some() && self.chance.happens(50) {
                slot.freeze((wakes, wakes));
                continue;
            }
            slot.crash(wakes).await;
        }
    }

    /// Processes start, end and stand still.
    async fn tick(&mut self, calm: bool) {
        let now = Instant::now();
        for slot in &mut self.slots {
            if let Some(end) = slot.ended() {
                self.home.breaches.add(format!("{} ended by itself: {end}", slot.name));
            }
            slot.thaw(now);
            if slot.life.is_none() && (calm || slot.due.is_some_and(|due| due <= now)) {
                let clock = self.world.clock.now();
                slot.start(&self.world, &self.profile, self.copies.mutant, &self.chance, clock);
            }
        }
        if calm || !self.chance.happens(2) {
            return;
        }
        let victim = self.chance.place(self.slots.len());
        let slot = &mut self.slots[victim];
        if slot.life.is_none() || slot.is_frozen() {
            return;
        }
        if self.chance.happens(50) {
            slot.crash(now + self.chance.millis(100, 20_000)).await;
            self.home.coverage.fired("crash_abroad");
        } else {
            let thaw = now + self.chance.millis(200, 60_000);
            slot.freeze((thaw, thaw));
            self.home.coverage.fired("freeze_abroad");
        }
    }

    /// Copies what is new; now and then something again, or nothing for a while.
    async fn mirror(&mut self, calm: bool) {
        if !calm && self.chance.happens(2) {
            let longest = if self.chance.happens(20) { 1_800_000 } else { 20_000 };
            self.still = Instant::now() + self.chance.millis(100, longest);
            self.home.coverage.fired("mirror_stood_still");
            return;
        }
        let reader = self.home.broker.reader("mirror", COUNTS);
        let Ok(logs) = reader.logs().await else { return };
        let now = self.world.clock.now();
        for (partition, log) in logs {
            let at = self.copied.entry(partition.index).or_insert(log.start);
            if !calm && self.chance.happens(2) {
                *at = Offset(at.0.saturating_sub(self.chance.below(50)));
                self.home.coverage.fired("mirrored_again");
            }
            let Ok(records) = reader.read(&partition, *at, log.end).await else { return };
            let most = if calm { usize::MAX } else { self.chance.place(60) };
            for record in records.iter().take(most) {
                let (index, value) = self.copies.of(partition.index, record.value.unwrap_or_default(), now);
                let (key, value, headers) = (record.key, Some(&*value), &[][..]);
                let copy = Outgoing { topic: COPIED, partition: Some(index), key, value, headers };
                if self.world.broker.send(copy).await.is_err() {
                    return;
                }
                *at = record.offset.next();
            }
        }
    }

    /// Both topics forget what is old and has a later message of its key.
    fn compact(&self) {
        let now = self.world.clock.now();
        let is_old = |value: &[u8]| ToldMessage::said_of(value).is_some_and(|said| now.since(said) > COMPACTED_AFTER);
        self.home.broker.compact(COUNTS, is_old);
        self.world.broker.compact(COPIED, is_old);
    }
}

/// How the mirror copies messages: unchanged, unless a mutant breaks a rule of the publisher or of the reader.
struct Copies {
    mutant: Option<Mutant>,
    partitions: u32,
}

impl Copies {
    /// The partition and the value of a message's copy.
    fn of<'a>(&self, partition: u32, value: &'a [u8], now: UnixMillis) -> (u32, Cow<'a, [u8]>) {
        let Some(mutant) = self.mutant else { return (partition, Cow::Borrowed(value)) };
        let mut message: serde_json::Value = serde_json::from_slice(value).unwrap_or_default();
        let (is_standing, mut to) = (message.get("at").is_some(), partition);
        match mutant {
            Mutant::ForeignStanding if is_standing => {
                to = (partition + 1) % self.partitions;
                message["partition"] = to.into();
            }
            Mutant::LateBelieved if is_standing => message["said"] = now.0.into(),
            Mutant::LossUncarried => {
                for name in ["gap", "loss", "open"] {
                    message.as_object_mut().and_then(|fields| fields.remove(name));
                }
            }
            _ => {}
        }
        (to, Cow::Owned(message.to_string().into_bytes()))
    }
}
