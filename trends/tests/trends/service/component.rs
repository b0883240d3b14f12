//! Tests the service that makes lists of what is trending, in this process, over the emulator and an in-memory Kafka,
//! under paused time.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use tally_adapters::memory::log::Broker;
use tally_core::changes::{Body, DeploymentId, LossNumber, Message};
use tally_core::ids::CounterName;
use tally_core::ports::log::{DEPLOYMENT, Outgoing, TopicReader as _, Written};
use tally_core::ports::{Outcome, Producer};
use tally_service::{Clock, Condition, Exit, Host, Running};
use tally_testkit::{BEGAN, Store, records};
use tally_trends::{App, BoardRules, Claim, NamedReader, Place, Ports, Rules, Top};
use tokio::time::timeout;

use super::stage::{BOARDS, CHANGES, PARTITIONS, Relay, set_up, shelf};

/// A producer whose records get the time of their append, as in Kafka.
struct Timed(Broker, Clock);

#[async_trait]
impl Producer for Timed {
    async fn send(&self, record: Outgoing<'_>) -> Outcome<Written> {
        self.0.append(record, self.1.now())
    }
}

/// How long a test waits, by the paused clock.
const DEADLINE: Duration = Duration::from_secs(600);

struct World {
    broker: Broker,
    store: Store,
    clock: Clock,
}

impl World {
    /// A deployment with these topics.
    async fn new(topics: &[(&str, u32)]) -> Self {
        let (broker, store) = (Broker::new(), Store::start().await);
        topics.iter().for_each(|(topic, partitions)| broker.create_topic(topic, *partitions));
        let logs = broker.reader("test", CHANGES).logs().await.unwrap();
        let topic = logs.first().map_or_else(|| "none".into(), |(_, log)| (*log.topic.0).into());
        set_up(&store.connection, tally_core::topic::TopicId(topic)).await;
        Self { broker, store, clock: Clock::starting_at(BEGAN) }
    }

    fn start(&self) -> Running {
        let (broker, connection) = (self.broker.clone(), &self.store.connection);
        let ports = Ports {
            tables: connection.clone(),
            join: Box::new(move || Ok(Box::new(broker.join("tally-trends", CHANGES)))),
            changes: NamedReader::new(CHANGES, self.broker.reader("test", CHANGES)),
            boards: NamedReader::new(BOARDS, self.broker.reader("test", BOARDS)),
            producer: Arc::new(self.broker.clone()),
        };
        let windows = ["1m", "10m"].map(|window| window.parse().unwrap()).to_vec();
        let rules = Rules { windows, boards: BoardRules::default(), regions: 10, keys: usize::MAX };
        Running::start(App::with_ports(None, rules, ports), Host::new("trends").with_clock(self.clock))
    }

    /// Starts a process beside a relay, and feeds for a while.
    async fn fed(&self) -> (Relay, Running) {
        let mut relay = Relay::begin(Timed(self.broker.clone(), self.clock), self.clock.now()).await;
        let running = self.start();
        self.feed(&mut relay, 20).await;
        (relay, running)
    }

    /// Feeds for this many seconds without new changes.
    async fn feed(&self, relay: &mut Relay, seconds: u64) {
        for _ in 0..seconds {
            self.clock.sleep(Duration::from_secs(1)).await;
            relay.feed(self.clock.now()).await;
        }
    }

    async fn top(&self) -> Option<Top> {
        let place = Place { counter: CounterName::LIKES, region: None };
        shelf(&self.broker.reader("test", BOARDS)).await.top(&place, "10m".parse().unwrap(), 10)
    }
}

/// Checks that a condition is not ready, and returns the reason.
fn why(running: &Running, condition: &str) -> String {
    let report = running.host().readiness().report();
    let Some(Condition::NotReady(why)) = report.conditions.get(condition) else { panic!("{report:?}") };
    why.clone()
}

fn counts(top: &Top) -> Vec<(String, i64)> {
    top.list.items.iter().map(|item| (item.subject.to_string(), item.count())).collect()
}

const BOTH: [(&str, u32); 2] = [(CHANGES, PARTITIONS), (BOARDS, 1)];

#[tokio::test(start_paused = true)]
async fn gains_are_listed_within_seconds_and_again_after_another_process_takes_over() {
    let world = World::new(&BOTH).await;
    let (mut relay, running) = world.fed().await;
    let now = world.clock.now();
    for (subject, likes) in [("a", 3), ("b", 1), ("c", 2)] {
        for _ in 0..likes {
            relay.like(subject, now);
        }
    }
    world.feed(&mut relay, 6).await;
    let top = world.top().await.unwrap();
    let expected = [("a", 3), ("c", 2), ("b", 1)].map(|(subject, count)| (subject.to_owned(), count));
    assert_eq!((counts(&top).as_slice(), top.claim), (&expected[..], Claim::Exact));
    assert!(top.list.moment >= now.0 / 1000 && top.list.moment * 1000 + 6_000 >= world.clock.now().0, "{top:?}");
    // A member joins and takes one of the partitions; then the first one dies.
    let other = world.start();
    world.feed(&mut relay, 30).await;
    running.kill().await;
    relay.like("b", world.clock.now());
    relay.like("b", world.clock.now());
    world.feed(&mut relay, 40).await;
    let top = world.top().await.unwrap();
    let expected = [("a", 3), ("b", 3), ("c", 2)].map(|(subject, count)| (subject.to_owned(), count));
    assert_eq!((counts(&top).as_slice(), top.claim), (&expected[..], Claim::Exact));
    assert!(other.stop(Duration::from_secs(5)).await.exit().is_clean());
}

#[tokio::test(start_paused = true)]
async fn a_missing_topic_is_waited_for_by_name() {
    let world = World::new(&[(CHANGES, PARTITIONS)]).await;
    let running = world.start();
    world.clock.sleep(Duration::from_secs(60)).await;
    assert!(why(&running, "kafka").contains("there is no topic boards"));
    world.broker.create_topic(BOARDS, 1);
    running.ready().await.unwrap();
    // A topic without partitions counts as missing.
    world.broker.create_topic(BOARDS, 0);
    world.clock.sleep(Duration::from_secs(60)).await;
    assert!(why(&running, "topic-boards").contains("there is no topic `boards`, which is for lists"));
    world.broker.create_topic(BOARDS, 1);
    running.ready().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_process_with_a_halted_partition_is_not_ready_and_names_it() {
    let world = World::new(&BOTH).await;
    let (mut relay, running) = world.fed().await;
    running.ready().await.unwrap();
    let value =
        Message { read: world.clock.now(), body: Body::Repaired(LossNumber(1)) }.write(&DeploymentId("b".into()));
    let (topic, value, headers) = (CHANGES, Some(&value[..]), &[][..]);
    world.broker.append(Outgoing { topic, partition: Some(1), key: None, value, headers }, world.clock.now()).unwrap();
    world.feed(&mut relay, 20).await;
    let why = why(&running, "changes/1");
    assert!(why.contains("is halted at offset") && why.ends_with("deployment"), "{why}");
    assert_eq!(running.host().readiness().report().conditions.get("changes/0"), None);
}

#[tokio::test(start_paused = true)]
async fn a_topic_with_another_number_of_partitions_is_refused_by_name() {
    let world = World::new(&[(CHANGES, 3), (BOARDS, 1)]).await;
    let end = world.start().ended().await;
    assert_eq!(end.exit(), Exit::CONFIG, "{end}");
    let named = "topic changes has 3 partitions, and the log of changes was begun with 2";
    assert!(end.to_string().contains(named), "{end}");
    let world = World::new(&BOTH).await;
    let running = world.start();
    world.clock.sleep(Duration::from_secs(20)).await;
    world.broker.add_partitions(CHANGES, 1);
    let end = running.ended().await;
    assert_eq!(end.exit(), Exit::CONFIG, "{end}");
    assert!(end.to_string().contains("its topic had 2 partitions and has 3 now"), "{end}");
}

#[tokio::test(start_paused = true)]
async fn a_topic_with_boards_of_another_deployment_is_refused_and_one_that_gets_some_is_named() {
    let theirs = async |world: &World| {
        let headers = [(DEPLOYMENT, Some("another".as_bytes()))];
        let record =
            Outgoing { topic: BOARDS, partition: Some(0), key: Some(b"tick/0"), value: None, headers: &headers };
        world.broker.send(record).await.unwrap();
    };
    let world = World::new(&BOTH).await;
    theirs(&world).await;
    let running = world.start();
    let end = timeout(DEADLINE, running.ended()).await.expect("it is refused");
    assert_eq!(end.exit(), Exit::CONFIG, "{end}");
    let problem = "`boards` has messages of another deployment, another: give each deployment a topic of its own";
    assert!(end.to_string().contains("boards-topic") && end.to_string().contains(problem), "{end}");
    assert_eq!(named(&world).await, ["another"], "it has published nothing");
    // Its own boards come first here, and so it goes on.
    let world = World::new(&BOTH).await;
    let (mut relay, running) = world.fed().await;
    timeout(DEADLINE, running.ready()).await.expect("ready in time").unwrap();
    let own = world.store.connection.deployment().unwrap();
    let written = named(&world).await;
    assert!(!written.is_empty() && written.iter().all(|of| of == own), "{written:?}");
    // Once the ticks that are under way are written, none follows before the next look.
    world.clock.sleep(Duration::from_secs(5)).await;
    theirs(&world).await;
    world.clock.sleep(Duration::from_secs(60)).await;
    assert_eq!(why(&running, "boards-topic"), problem);
    // Nor is a restart refused, although the other one wrote last.
    running.kill().await;
    let running = world.start();
    assert!(timeout(Duration::from_secs(30), running.ended()).await.is_err(), "it goes on");
    assert_eq!(why(&running, "boards-topic"), problem);
    world.feed(&mut relay, 120).await;
    timeout(DEADLINE, running.ready()).await.expect("ready in time").unwrap();
}

/// Returns the deployments that the records of the topic of boards name.
async fn named(world: &World) -> Vec<String> {
    let runs = records(&world.broker.reader("test", BOARDS)).await.unwrap();
    let records = runs.iter().flat_map(|(_, run)| run.iter());
    records.map(|record| record.deployment().expect("a name").into_owned()).collect()
}
