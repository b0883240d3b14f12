//! The service as a process, over librdkafka's Kafka, the emulator, real HTTP and real signals.

use std::process::{Child, Command, Stdio};
use std::time::Duration;

use tally_adapters::dynamodb::{self, Connection, Settings};
use tally_adapters::kafka;
use tally_core::ids::CounterName;
use tally_core::ports::TopicReader as _;
use tally_emulator::{Config, Emulator};
use tally_service::{Host, UnixMillis};
use tally_trends::{Claim, Place, Shelf, Top};
use tokio::net::TcpListener;
use tokio::time::Instant;

use super::stage::{BOARDS, CHANGES, PARTITIONS, Relay, set_up, shelf};

/// Rebalances of the Kafka in this process take up to fifteen seconds.
const PATIENCE: Duration = Duration::from_secs(90);

struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        // Already gone unless a test failed.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn command(endpoint: &str, brokers: &str, [changes, boards]: [&str; 2]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tally-trends"));
    command
        .args(["--brokers", brokers, "--changes-topic", changes, "--boards-topic", boards])
        .args(["--windows", "1m,10m"])
        .env("TALLY_ADMIN_LISTEN", "off")
        .env("AWS_ENDPOINT_URL", endpoint)
        .env("AWS_REGION", "us-east-1")
        .env("AWS_ACCESS_KEY_ID", "local")
        .env("AWS_SECRET_ACCESS_KEY", "local")
        .stderr(Stdio::null());
    command
}

/// The list of ten minutes, if there is something on it.
fn listed(shelf: &Shelf) -> Option<Top> {
    let place = Place { counter: CounterName::LIKES, region: None };
    let top = shelf.top(&place, "10m".parse().unwrap(), 3);
    top.filter(|top| !top.list.items.is_empty())
}

async fn code(mut process: Process) -> Option<i32> {
    let began = Instant::now();
    loop {
        if let Some(status) = process.0.try_wait().unwrap() {
            return status.code();
        }
        assert!(began.elapsed() < PATIENCE, "it does not end");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_lists_what_rows_gained_and_ends_when_it_is_told_to() {
    lists_over_starts(1).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "night: joins a group of the in-process Kafka twice"]
async fn a_process_begins_anew_from_the_log() {
    lists_over_starts(2).await;
}

async fn lists_over_starts(starts: usize) {
    let cluster = kafka::Embedded::start(&[(CHANGES, PARTITIONS), (BOARDS, 2)]).unwrap();
    let (emulator, listener) = (Emulator::new(Config::default()), TcpListener::bind("127.0.0.1:0").await.unwrap());
    let endpoint = format!("http://{}", listener.local_addr().unwrap());
    let test = async {
        let connection = Connection::open(&Settings { endpoint: Some(endpoint.clone()), ..Settings::local("") }).await;
        dynamodb::ensure_tables(&connection).await.unwrap();
        let settings = kafka::Settings::plaintext(cluster.bootstrap());
        let producer = kafka::Producer::new(&settings).unwrap();
        let changes = kafka::TopicReader::new(&settings, "test", CHANGES).unwrap();
        set_up(&connection, changes.logs().await.unwrap()[0].1.topic.clone(), PARTITIONS).await;
        let clock = Host::new("test").clock();
        let mut relay = Relay::begin(&producer, PARTITIONS, clock.now()).await;
        let boards = kafka::TopicReader::new(&settings, "test", BOARDS).unwrap();
        assert!(boards.exists().await.unwrap());
        let mut told = 0;
        // A second one makes all of it anew from the log.
        for life in 0..starts {
            let process = Process(command(&endpoint, cluster.bootstrap(), [CHANGES, BOARDS]).spawn().unwrap());
            let (began, mut liked) = (Instant::now(), life > 0);
            loop {
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
                if let Some(top) = listed(&shelf).filter(|top| top.list.moment > told) {
                    let found = top.list.items.iter().map(|item| (item.subject.as_str(), item.count()));
                    let found: Vec<_> = found.collect();
                    assert_eq!((&found[..], top.claim), (&[("a", 3), ("c", 2), ("b", 1)][..], Claim::Exact));
                    assert!(UnixMillis(top.list.moment * 1000) < now);
                    break;
                }
                assert!(began.elapsed() < PATIENCE, "nothing is listed");
                tokio::time::sleep(Duration::from_millis(300)).await;
            }
            let id = process.0.id().to_string();
            assert!(Command::new("kill").args(["-TERM", &id]).status().unwrap().success());
            assert_eq!(code(process).await, Some(0));
            told = shelf(&boards).await.moment().unwrap();
        }
    };
    tokio::select! {
        ended = emulator.serve(listener, std::future::pending()) => panic!("the emulator stopped: {ended:?}"),
        () = test => {}
    }
}
