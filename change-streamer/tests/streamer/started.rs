//! Starts and stops the whole streamer inside a test, over the tables of the test and a Kafka in memory, and waits for
//! what it does, under paused time.

use std::sync::Arc;
use std::time::Duration;

use tally_adapters::memory::log::{Broker, Stamping};
use tally_change_streamer::{App, LogPorts, Ports, Rules, Settings};
use tally_service::{Chance, Clock, Condition, Host, Running};
use tally_testkit::{Store, until};

/// How long a test waits, by the paused clock.
pub(crate) const DEADLINE: Duration = Duration::from_secs(3600);

/// The topic of the log.
pub(crate) const TOPIC: &str = "changes";

/// The ports of a process over these tables and this Kafka, without a cache or Regions.
pub(crate) fn ports(store: &Store, broker: &Broker, clock: Clock) -> Ports {
    let joining = broker.clone();
    let log = LogPorts {
        topic: TOPIC.to_owned(),
        producer: Arc::new(Stamping(broker.clone(), clock)),
        reader: Arc::new(broker.reader("test", TOPIC)),
        join: Arc::new(move || Ok(Box::new(joining.join("fold", TOPIC)))),
    };
    Ports::over(&store.repeating(1), log)
}

/// Starts a process. Each name has its own random numbers. Without leases it reads every stream shard.
pub(crate) fn start(name: &str, clock: Clock, no_leases: bool, ports: Ports) -> Running {
    let (poll_idle, discover) = (Duration::from_millis(200), Duration::from_secs(5));
    let rules = Rules { poll_idle, discover, no_leases, ..Rules::default() };
    let settings = Settings { rules, ..Settings::default() };
    let seed = name.bytes().fold(7u64, |seed, byte| seed.wrapping_mul(131).wrapping_add(u64::from(byte)));
    let host = Host::new(name).with_clock(clock).with_chance(Chance::seeded(seed));
    Running::start(App::with_ports(None, settings, ports), host)
}

/// Waits until a condition whose name contains `condition` is not ready and says all of these.
pub(crate) async fn waits(running: &Running, condition: &str, says: &[&str]) {
    let is_it = |(name, is): (&String, &Condition)| {
        let says_so = |why: &str| says.iter().all(|said| why.contains(said));
        name.contains(condition) && matches!(is, Condition::NotReady(why) if says_so(why))
    };
    let holds = async || running.host().readiness().report().conditions.iter().any(is_it);
    eventually(&format!("{condition} says {says:?}"), holds).await;
}

/// Waits until `holds`, by the paused clock.
pub(crate) async fn eventually(what: &str, holds: impl AsyncFnMut() -> bool) {
    until(what, DEADLINE, holds).await.unwrap();
}

pub(crate) async fn stop(running: Vec<Running>) {
    for running in running {
        let ended = running.stop(Duration::from_secs(20)).await;
        assert!(ended.exit().is_clean(), "{ended:?}");
    }
}
