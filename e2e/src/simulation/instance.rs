//! One simulated process: the production code of a service with its own clients, clock and random numbers, which can be
//! started, killed, stopped and frozen.

mod apps;

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use tally_adapters::dynamodb::Connection;
use tally_change_streamer as streamer;
use tally_service::{Chance, Clock, Condition, Ended, Host, Running, Standstill, UnixMillis};
use tokio::time::Instant;

use crate::simulation::instance::apps::Apps;
use crate::simulation::intake::Beyond;
use crate::simulation::mutant::Mutant;
use crate::simulation::producer::UnderWay;
use crate::simulation::profile::Profile;
use crate::simulation::readers::Door;
use crate::simulation::rewrite::Asked;
use crate::simulation::wire::{Tampered, Wire};
use crate::simulation::world::{World, settings};

/// The groups of all consumers and of all folds.
pub(crate) const GROUP: &str = "tally-consumer";
pub(crate) const FOLDS: &str = "tally-change-streamer";

/// The service of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    Consumer,
    Streamer,
    Recounter,
    Api,
    /// Makes lists of what is trending.
    Trends,
}

/// One life of a process, with what its ports share.
#[derive(Clone)]
pub(crate) struct Process {
    pub(crate) role: Role,
    pub(crate) world: Arc<World>,
    pub(crate) mutant: Option<Mutant>,
    /// Whether its clock is behind the store's.
    pub(crate) is_behind: bool,
    /// Its tasks, which end with it.
    pub(crate) host: Host,
    /// Its gates to the store and to the log.
    pub(crate) wire: Standstill,
    pub(crate) log: Standstill,
    /// Its requests to the log that are under way.
    pub(crate) under_way: UnderWay,
    pub(crate) asked: Asked,
    /// What a mutant has stored as done although it is not.
    pub(crate) beyond: Option<Beyond>,
}

/// A place for a process, which may have several lives.
pub(crate) struct Slot {
    pub(crate) role: Role,
    pub(crate) name: String,
    pub(crate) life: Option<Life>,
    /// When it is started again.
    pub(crate) due: Option<Instant>,
    /// Where requests to an API are sent.
    pub(crate) door: Door,
    nth: u64,
    lives: u64,
}

/// One life of a process.
pub(crate) struct Life {
    running: Running,
    wire: Standstill,
    log: Standstill,
    /// Freezes an API's tasks as well, so that its knowledge becomes old.
    tasks: Standstill,
    /// When it can reach the store again, and then the log.
    thaws: Option<(Instant, Instant)>,
}

impl Slot {
    /// A place without a process.
    pub(crate) fn new(role: Role, nth: u64) -> Self {
        let name = format!("{role:?}-{nth}").to_lowercase();
        let (due, door) = (Some(Instant::now()), Door::default());
        Self { role, name, life: None, due, door, nth, lives: 0 }
    }

    /// The same with a longer name.
    pub(crate) fn named(self, prefix: &str) -> Self {
        Self { name: format!("{prefix}{}", self.name), ..self }
    }

    /// The role of a streamer.
    pub(crate) fn part(&self, profile: &Profile) -> streamer::Role {
        match self.nth % 2 {
            _ if !profile.apart => streamer::Role::Both,
            1 => streamer::Role::Relay,
            _ => streamer::Role::Fold,
        }
    }

    /// Starts the process with a clock that shows `now`.
    pub(crate) fn start(
        &mut self,
        world: &Arc<World>,
        profile: &Profile,
        mutant: Option<Mutant>,
        chance: &Chance,
        now: UnixMillis,
    ) {
        self.lives += 1;
        self.due = None;
        let [store, log, tasks] = std::array::from_fn(|_| Standstill::default());
        let host = Host::new(&self.name).with_clock(Clock::starting_at(now)).with_chance(chance.fork());
        let process = Process {
            role: self.role,
            world: Arc::clone(world),
            mutant,
            is_behind: now < world.clock.now(),
            host: host.clone(),
            wire: store.clone(),
            log: log.clone(),
            under_way: UnderWay::default(),
            asked: Asked::default(),
            beyond: (mutant == Some(Mutant::CommittedBeyond) && self.role == Role::Consumer).then(Beyond::default),
        };
        let mut wire = Wire::new(&self.name, world.clock, &world.trace, &world.coverage);
        wire.gate = store.clone();
        wire.tampered = mutant.map(|mutant| Tampered::of(mutant, &process));
        let connection = Connection::in_process(&settings(), wire.client(&world.emulator), world.clock.now());
        let process = Apps { process, part: self.part(profile), profile, chance, connection: &connection };
        let running = match self.role {
            Role::Consumer => Running::start(process.consumer(), host),
            Role::Streamer => Running::start(process.streamer(), host),
            Role::Trends => {
                let listing = profile.listing.as_ref().expect("there is a place for it where there are lists");
                Running::start(process.trends(listing), host)
            }
            Role::Recounter => Running::start(process.recount(), host),
            Role::Api => {
                let (app, front) = process.api().in_process();
                self.door.open(front);
                Running::start(app, host.with_standstill(tasks.clone()))
            }
        };
        if self.role == Role::Streamer {
            world.honesty.clock_is_ahead(now.since(world.clock.now()));
        }
        world.trace.note(&format!("{} life {}", self.name, self.lives));
        self.life = Some(Life { running, wire: store, log, tasks, thaws: None });
    }

    /// The end of a process that was not stopped, if it has ended.
    pub(crate) fn ended(&self) -> Option<Ended> {
        self.life.as_ref()?.running.ended().now_or_never()
    }

    /// Whether it is frozen.
    pub(crate) fn is_frozen(&self) -> bool {
        self.life.as_ref().is_some_and(|life| life.thaws.is_some())
    }

    /// The partitions that it does not read because their group offset was set forward.
    pub(crate) fn forward(&self) -> Vec<u32> {
        let conditions = self.life.as_ref().map(|life| life.running.host().readiness().report().conditions);
        let stands = |(name, condition): (String, Condition)| match condition {
            Condition::NotReady(why) if why.contains("the group has committed") => {
                name.strip_prefix("partition-")?.parse().ok()
            }
            _ => None,
        };
        conditions.into_iter().flatten().filter_map(stands).collect()
    }

    /// Ends it like a crash.
    pub(crate) async fn kill(&mut self) {
        self.door.close();
        if let Some(life) = self.life.take() {
            life.running.kill().await;
        }
    }

    /// Ends it like a crash. It is started again at `back`.
    pub(crate) async fn crash(&mut self, back: Instant) {
        self.kill().await;
        self.due = Some(back);
    }

    /// Stops it gracefully. It is started again at `back`.
    ///
    /// # Errors
    /// It ends with an error.
    pub(crate) async fn stop(&mut self, back: Instant) -> anyhow::Result<()> {
        if let Some(life) = self.life.take() {
            self.door.close();
            life.wire.end();
            life.log.end();
            life.tasks.end();
            let ended = life.running.stop(Duration::from_secs(30)).await;
            anyhow::ensure!(ended.exit().is_clean(), "{} did not stop cleanly", self.name);
        }
        self.due = Some(back);
        Ok(())
    }

    /// Freezes it. It can reach the store again at the first of two times, and the log at the second.
    pub(crate) fn freeze(&mut self, thaws: (Instant, Instant)) {
        if let Some(life) = &mut self.life {
            life.wire.begin();
            life.log.begin();
            if self.role == Role::Api {
                self.door.standstill.begin();
                life.tasks.begin();
            }
            life.thaws = Some(thaws);
        }
    }

    /// If it is frozen, it resumes at this time.
    pub(crate) fn resume(&mut self, at: Instant) {
        if let Some(thaws) = self.life.as_mut().and_then(|life| life.thaws.as_mut()) {
            *thaws = (at, at);
        }
    }

    /// Resumes what is due at `now`.
    pub(crate) fn thaw(&mut self, now: Instant) {
        let Some(life) = &mut self.life else { return };
        let Some((wire, log)) = life.thaws else { return };
        if now >= wire {
            life.wire.end();
            self.door.standstill.end();
            life.tasks.end();
        }
        if now >= log {
            life.log.end();
            life.thaws = None;
        }
    }
}
