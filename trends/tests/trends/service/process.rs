//! Tests the program `tally-trends`, which makes lists of what is trending, as a process: over librdkafka's Kafka, the
//! emulator, real HTTP and real signals.

use std::time::Duration;

use tally_adapters::kafka;
use tally_core::ids::CounterName;
use tally_core::ports::TopicReader as _;
use tally_emulator::Config;
use tally_service::{Host, UnixMillis};
use tally_testkit::{Engines, PATIENCE, Process};
use tally_trends::{Claim, Place, Shelf, Top};
use tokio::time::Instant;

use super::stage::{BOARDS, CHANGES, PARTITIONS, Relay, set_up, shelf};

/// The list of ten minutes, if it has items.
fn listed(shelf: &Shelf) -> Option<Top> {
    let place = Place { counter: CounterName::LIKES, region: None };
    let top = shelf.top(&place, "10m".parse().unwrap(), 3);
    top.filter(|top| !top.list.items.is_empty())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_lists_gains_and_stops_when_asked() {
    let engines = Engines::start(Config::default(), &[(CHANGES, PARTITIONS), (BOARDS, 2)]).await;
    let producer = kafka::Producer::new(&engines.kafka()).unwrap();
    let changes = kafka::TopicReader::new(&engines.kafka(), "test", CHANGES).unwrap();
    set_up(&engines.store.connection, changes.logs().await.unwrap()[0].1.topic.clone()).await;
    let clock = Host::new("test").clock();
    let mut relay = Relay::begin(producer, clock.now()).await;
    let boards = kafka::TopicReader::new(&engines.kafka(), "test", BOARDS).unwrap();
    assert!(boards.exists().await.unwrap());
    let mut command = engines.command(env!("CARGO_BIN_EXE_tally-trends"));
    command.args(["--changes-topic", CHANGES, "--boards-topic", BOARDS, "--windows", "1m,10m"]);
    let process = Process::start("trends", command.args(["--admin-listen", "off"])).unwrap();
    let (began, mut liked) = (Instant::now(), false);
    let top = loop {
        let now = clock.now();
        let shelf = shelf(&boards).await;
        if shelf.moment().is_some() && !liked {
            liked = true;
            for (subject, likes) in [("a", 3), ("b", 1), ("c", 2)] {
                for _ in 0..likes {
                    relay.like(subject, now);
                }
            }
        }
        relay.feed(now).await;
        if let Some(top) = listed(&shelf) {
            assert!(UnixMillis(top.list.moment * 1000) < now);
            break top;
        }
        assert!(began.elapsed() < PATIENCE, "nothing is listed");
        tokio::time::sleep(Duration::from_millis(300)).await;
    };
    let found: Vec<_> = top.list.items.iter().map(|item| (item.subject.as_str(), item.count())).collect();
    assert_eq!((&found[..], top.claim), (&[("a", 3), ("c", 2), ("b", 1)][..], Claim::Exact));
    process.stop().await.unwrap();
}
