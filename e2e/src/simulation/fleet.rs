//! The services of a schedule: started, killed, doubled and stopped.

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use tally_adapters::dynamodb::{Checkpoints, Likes};
use tally_batch_recount as recount;
use tally_change_streamer as streamer;
use tally_consumer as consumer;
use tally_service::{Chance, Exit, Host, Running};

use super::world::{GROUP, LETTERS, TOPIC, World};

const GRACE: Duration = Duration::from_secs(25);

/// Which service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    Consumer,
    Streamer,
    Recount,
}

/// What runs.
pub(super) struct Fleet<'a> {
    world: &'a World,
    chance: Chance,
    /// Whether streamers share work by leases, or all of them read everything.
    leases: bool,
    started: u64,
    members: Vec<(Role, Running)>,
}

impl<'a> Fleet<'a> {
    pub(super) fn new(world: &'a World, chance: Chance) -> Self {
        let leases = !chance.token().is_multiple_of(3);
        Self { world, chance, leases, started: 0, members: Vec::new() }
    }

    /// Starts what is missing.
    pub(super) fn fill_up(&mut self) {
        for role in [Role::Consumer, Role::Streamer, Role::Recount] {
            if !self.members.iter().any(|(found, _)| *found == role) {
                self.start(role);
            }
        }
    }

    /// Starts one more.
    pub(super) fn start(&mut self, role: Role) {
        self.started += 1;
        let host = Host::new(&format!("{role:?}-{}", self.started)).with_clock(self.world.clock);
        let host = host.with_chance(self.chance.fork());
        let running = match role {
            Role::Consumer => Running::start(self.consumer(), host),
            Role::Streamer => Running::start(self.streamer(), host),
            Role::Recount => Running::start(self.recount(), host),
        };
        self.members.push((role, running));
    }

    /// How many there are of a role.
    pub(super) fn count(&self, role: Role) -> usize {
        self.members.iter().filter(|(found, _)| *found == role).count()
    }

    /// Ends one as a crash does.
    pub(super) async fn kill_any(&mut self) {
        if !self.members.is_empty() {
            let draw = self.chance.token() % self.members.len() as u64;
            let (_, running) = self.members.remove(usize::try_from(draw).expect("an index"));
            running.kill().await;
        }
    }

    /// What ended though nobody asked it to.
    pub(super) fn ended_early(&self) -> Option<String> {
        self.members.iter().find_map(|(role, running)| {
            let end = running.ended().now_or_never()?;
            Some(format!("{role:?} ended by itself: {end}"))
        })
    }

    /// Stops everything in order; each has to end cleanly, inside its grace.
    pub(super) async fn stop(&mut self) -> Result<(), String> {
        for (role, running) in self.members.drain(..) {
            let shutdown = running.stop(GRACE).await;
            if shutdown.exit() != Exit::CLEAN {
                return Err(format!("{role:?} did not stop cleanly: {:?}", shutdown.ended));
            }
        }
        Ok(())
    }

    fn consumer(&self) -> consumer::App {
        let (broker, letters) = (self.world.broker.clone(), self.world.broker.clone());
        let connection = self.world.connection.clone();
        let settings = consumer::ReadSettings {
            topic: TOPIC.to_owned(),
            dead_letter_topic: LETTERS.to_owned(),
            group: GROUP.to_owned(),
            shards: Some(self.world.shards),
            ..consumer::ReadSettings::default()
        };
        let ports = consumer::Ports {
            checkpoints: Arc::new(Checkpoints::new(&connection)),
            rows: Box::new(move |shards| Arc::new(Likes::new(&connection, shards))),
            join: Box::new(move || Ok(Box::new(broker.join(GROUP, TOPIC)))),
            producer: Arc::new(self.world.broker.clone()),
            shelf: Box::new(move |topic| Ok(Arc::new(letters.shelf("by-hand", topic)))),
        };
        consumer::App::with_ports(consumer::Action::Consume, settings, ports)
    }

    fn streamer(&self) -> streamer::App {
        let mut rules = streamer::Rules::default();
        rules.discover = Duration::from_secs(5);
        if !self.leases {
            rules.lease = None;
        }
        let config = streamer::Config {
            table_prefix: String::new(),
            shards: Some(self.world.shards),
            cache: None,
            feed: None,
            rules,
        };
        streamer::App::with_ports(config, streamer::Ports::over(&self.world.connection))
    }

    fn recount(&self) -> recount::App {
        // Small counts: a tenth of any of them is a large correction.
        let rules = recount::Rules { force: true, segments: 4, ..recount::Rules::default() };
        let job = recount::Job::Recount(recount::RecountConfig { scope: recount::Scope::Watch, dry_run: false, rules });
        let config = recount::Config { table_prefix: String::new(), shards: Some(self.world.shards), job };
        recount::App::with_ports(config, recount::Ports::over(&self.world.connection))
    }
}
