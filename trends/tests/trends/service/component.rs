//! The service over the in-memory twins, under paused time.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use tally_adapters::memory::Memory;
use tally_adapters::memory::log::Broker;
use tally_core::ids::{CounterName, Ordinal};
use tally_core::ledger::{Lapse, Seconds};
use tally_core::ports::log::{Outgoing, Written};
use tally_core::ports::{ChangesLedger as _, Outcome, Producer};
use tally_core::time::UnixMillis;
use tally_service::{Clock, Exit, Host, Running};
use tally_trends::{App, BoardRules, Claim, Place, Ports, Reason, Rules, Top, Topics};

use super::stage::{BOARDS, CHANGES, Ledger, PARTITIONS, shelf};

const NOW: UnixMillis = UnixMillis(1_700_000_000_000);

/// A producer whose records have the time at which they are written, as in Kafka.
pub(crate) struct Timed(Broker, Clock);

#[async_trait]
impl Producer for Timed {
    async fn send(&self, record: Outgoing<'_>) -> Outcome<Written> {
        self.0.append(record, self.1.now())
    }
}

pub(crate) struct World {
    pub(crate) broker: Broker,
    pub(crate) memory: Memory,
    pub(crate) clock: Clock,
}

impl World {
    pub(crate) fn new(topics: &[(&str, u32)]) -> Self {
        let broker = Broker::new();
        topics.iter().for_each(|(topic, partitions)| broker.create_topic(topic, *partitions));
        Self { broker, memory: Memory::new(NOW, 2), clock: Clock::starting_at(NOW) }
    }

    pub(crate) fn producer(&self) -> Timed {
        Timed(self.broker.clone(), self.clock)
    }

    pub(crate) fn start(&self) -> Running {
        let broker = self.broker.clone();
        let ports = Ports {
            checkpoints: Arc::new(self.memory.checkpoints()),
            stream: Arc::new(self.memory.streams()),
            join: Box::new(move || Ok(Box::new(broker.join("tally-trends", CHANGES)))),
            changes: Arc::new(self.broker.reader("test", CHANGES)),
            boards: Arc::new(self.broker.reader("test", BOARDS)),
            producer: Arc::new(self.broker.clone()),
        };
        let topics = Topics { changes: CHANGES.to_owned(), boards: BOARDS.to_owned() };
        let windows = ["1m", "10m"].map(|window| window.parse().unwrap()).to_vec();
        let rules = Rules { windows, boards: BoardRules::default(), regions: 10, keys: usize::MAX };
        Running::start(App::with_ports(topics, rules, ports), Host::new("trends").with_clock(self.clock))
    }

    /// Feeds for so many seconds, in which nothing is changed.
    async fn feed(&self, ledger: &Ledger<'_>, seconds: u64) {
        for _ in 0..seconds {
            self.clock.sleep(Duration::from_secs(1)).await;
            ledger.fed(self.clock.now()).await;
        }
    }

    async fn top(&self) -> Option<Top> {
        let place = Place { counter: CounterName::LIKES, region: None };
        shelf(&self.broker.reader("test", BOARDS)).await.top(&place, "10m".parse().unwrap(), 10)
    }
}

fn counts(top: &Top) -> Vec<(String, i64)> {
    top.list.items.iter().map(|item| (item.subject.to_string(), item.count())).collect()
}

const BOTH: [(&str, u32); 2] = [(CHANGES, PARTITIONS), (BOARDS, 1)];

#[tokio::test(start_paused = true)]
async fn what_rows_gained_is_listed_some_seconds_later_and_by_another_process_as_well() {
    let world = World::new(&BOTH);
    let (checkpoints, streams, producer) = (world.memory.checkpoints(), world.memory.streams(), world.producer());
    let mut ledger = Ledger::begin(&checkpoints, &streams, &producer, PARTITIONS).await;
    let running = world.start();
    world.feed(&ledger, 20).await;
    let second = world.clock.now().0 / 1000;
    for (subject, likes) in [("a", 3), ("b", 1), ("c", 2)] {
        for _ in 0..likes {
            ledger.like(subject, second).await;
        }
    }
    world.feed(&ledger, 6).await;
    let top = world.top().await.unwrap();
    let expected = [("a", 3), ("c", 2), ("b", 1)].map(|(subject, count)| (subject.to_owned(), count));
    assert_eq!((counts(&top).as_slice(), top.claim), (&expected[..], Claim::Exact));
    assert!(top.list.moment >= second && top.list.moment * 1000 + 6_000 >= world.clock.now().0, "{top:?}");
    // A member joins, and takes one of the partitions; then the first one dies.
    let other = world.start();
    world.feed(&ledger, 30).await;
    running.kill().await;
    ledger.like("b", world.clock.now().0 / 1000).await;
    ledger.like("b", world.clock.now().0 / 1000).await;
    world.feed(&ledger, 40).await;
    let top = world.top().await.unwrap();
    let expected = [("a", 3), ("b", 3), ("c", 2)].map(|(subject, count)| (subject.to_owned(), count));
    assert_eq!((counts(&top).as_slice(), top.claim), (&expected[..], Claim::Exact));
    assert!(other.stop(Duration::from_secs(5)).await.exit().is_clean());
}

#[tokio::test(start_paused = true)]
async fn a_lapse_is_in_the_claim_and_a_broker_that_is_away_delays_and_loses_nothing() {
    let world = World::new(&BOTH);
    let (checkpoints, streams, producer) = (world.memory.checkpoints(), world.memory.streams(), world.producer());
    let mut ledger = Ledger::begin(&checkpoints, &streams, &producer, PARTITIONS).await;
    let _running = world.start();
    world.feed(&ledger, 20).await;
    let second = world.clock.now().0 / 1000;
    ledger.like("a", second).await;
    world.broker.set_down(true);
    world.feed(&ledger, 30).await;
    world.broker.set_down(false);
    let seconds = Seconds { first: second, last: second };
    checkpoints.put_lapse(Lapse { shard: Ordinal(1), seconds }).await.unwrap();
    world.feed(&ledger, 40).await;
    let top = world.top().await.unwrap();
    assert_eq!((counts(&top), top.claim), (vec![("a".to_owned(), 1)], Claim::Unknown(Reason::Loss)));
    assert!(top.list.moment * 1000 + 6_000 >= world.clock.now().0);
    world.feed(&ledger, 700).await;
    assert_eq!(world.top().await.unwrap().claim, Claim::Exact);
}

#[tokio::test(start_paused = true)]
async fn a_topic_that_is_missing_or_of_another_number_of_partitions_is_refused_by_name() {
    for (topics, named) in [
        (&[(BOARDS, 1)][..], "--changes-topic (TALLY_CHANGES_TOPIC): there is no topic changes"),
        (&[(CHANGES, PARTITIONS)], "--boards-topic (TALLY_BOARDS_TOPIC): there is no topic boards"),
        (&[(CHANGES, 3), (BOARDS, 1)], "topic changes has 3 partitions, and the ledger of changes was begun with 2"),
    ] {
        let world = World::new(topics);
        let (checkpoints, streams, producer) = (world.memory.checkpoints(), world.memory.streams(), world.producer());
        Ledger::begin(&checkpoints, &streams, &producer, PARTITIONS).await;
        let end = world.start().ended().await;
        assert_eq!(end.exit(), Exit::CONFIG, "{end}");
        assert!(end.to_string().contains(named), "{end}");
    }
    let world = World::new(&BOTH);
    let (checkpoints, streams, producer) = (world.memory.checkpoints(), world.memory.streams(), world.producer());
    let ledger = Ledger::begin(&checkpoints, &streams, &producer, PARTITIONS).await;
    let running = world.start();
    world.feed(&ledger, 20).await;
    world.broker.add_partitions(CHANGES, 1);
    let end = running.ended().await;
    assert_eq!(end.exit(), Exit::CONFIG, "{end}");
    assert!(end.to_string().contains("its topic had 2 partitions and has 3 now"), "{end}");
}
