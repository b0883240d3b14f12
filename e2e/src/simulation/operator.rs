//! An operator's commands, each a process of its own: the consumer's `App` in another mode.

use std::sync::Arc;
use std::time::Duration;

use tally_adapters::dynamodb::{self, Connection};
use tally_consumer as consumer;
use tally_service::{Chance, Host, Running};
use tokio::time::timeout;

use super::instance::read_settings;
use super::profile::Profile;
use super::wire::Wire;
use super::world::{World, settings};

/// How long an operator waits for a command before ending it.
const PATIENCE: Duration = Duration::from_secs(20);

/// `fence reset --back --to`. It may come to nothing, or be carried out although it says that it was not: where the fence is
/// afterwards says what became of it.
pub(crate) async fn move_back(world: &World, profile: &Profile, chance: &Chance, partition: u32, to: u64) {
    let reset = consumer::Reset {
        partition: Some(partition),
        to: consumer::ResetTo::Offset(to),
        back: true,
        sums: None,
        dry_run: false,
    };
    let wire = Wire::new("operator", &world.emulator, &world.trace, &world.coverage);
    let connection = Connection::in_process(&settings(), wire, world.clock.now());
    let likes = Arc::new(dynamodb::Likes::new(&connection, profile.shards));
    let (broker, producer) = (world.broker.clone(), Arc::new(world.broker.clone()));
    let reader = world.broker.clone();
    let ports = consumer::Ports {
        checkpoints: Arc::new(dynamodb::Checkpoints::new(&connection)),
        rows: Box::new(move |_| likes),
        maps: Arc::new(dynamodb::Maps::new(&connection)),
        join: Box::new(move || Ok(Box::new(broker.join("operator", super::events::TOPIC)))),
        producer,
        reader: Box::new(move |topic| Ok(Arc::new(reader.reader("operator", topic)))),
    };
    let app = consumer::App::with_ports(consumer::Mode::ResetFence(reset), read_settings(profile), ports);
    let app = app.over_tables(connection);
    let host = Host::new("operator").with_clock(world.clock).with_chance(chance.fork());
    let running = Running::start(app, host);
    let _ = timeout(PATIENCE, running.ended()).await;
    running.kill().await;
}
