//! Sends a corpus of bad input, events and HTTP requests, to a real consumer and a real API: nothing panics, nothing is
//! lost, and each case has the outcome that the corpus expects.
//!
//! The corpus is `e2e/bad_input`, one case on a line. Its outcomes follow from the contract, not from what the services did.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use futures_util::{StreamExt, stream};
use serde::Deserialize;
use tally_adapters::dynamodb::Rows;
use tally_adapters::dynamodb::Segment;
use tally_adapters::dynamodb::claims::Claims;
use tally_adapters::kafka;
use tally_consumer as consumer;
use tally_consumer::letter::Letter;
use tally_core::ports::Producer;
use tally_core::ports::log::{Header, Outgoing};
use tally_count_api as api;
use tally_service::{Exit, Host, Running};
use tally_testkit::{Engines, PATIENCE, eventually, every, records};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::fuzz::targets::serve;

const PARTITIONS: u32 = 12;

/// Bytes of the corpus in base64, and how often they are repeated.
#[derive(Deserialize)]
struct Piece(String, usize);

fn bytes(pieces: &[Piece]) -> Vec<u8> {
    pieces.iter().flat_map(|Piece(text, times)| decoded(text).repeat(*times)).collect()
}

fn decoded(text: &str) -> Vec<u8> {
    STANDARD.decode(text).expect("the corpus is base64")
}

#[derive(Deserialize)]
struct Event {
    class: String,
    value: Option<Vec<Piece>>,
    headers: Vec<(String, Option<String>)>,
    expect: String,
    post: Option<String>,
    user: Option<String>,
    #[serde(default)]
    like: bool,
}

#[derive(Deserialize)]
struct Ask {
    class: String,
    request: Vec<Piece>,
    /// The accepted statuses; `null` stands for a connection that ends without an answer.
    statuses: Vec<Option<u16>>,
}

fn corpus<T: for<'de> Deserialize<'de>>(text: &str) -> Vec<T> {
    text.lines().map(|line| serde_json::from_str(line).expect("the corpus is JSON by lines")).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_event_is_applied_or_becomes_a_dead_letter_with_its_reason() {
    let events: Vec<Event> = corpus(include_str!("../../bad_input/events.jsonl"));
    assert!(events.len() >= 2_000 && events.iter().map(|event| &event.class).collect::<BTreeSet<_>>().len() >= 12);
    let topics = [("likes", PARTITIONS), ("likes.dlq", 2)];
    let engines = Engines::start(tally_emulator::Config::default(), &topics).await;
    let (settings, connection, host) = (engines.kafka(), engines.store.repeating(5), Host::new("consumer"));
    let claims = Claims::new(&connection, host.clock());
    let sent = produce(&settings, &events).await;

    let ports = consumer::Ports::over(&settings, ("tally-consumer", "likes"), "", None).unwrap();
    let app = consumer::App::with_ports(None, consumer::ReadSettings::default(), ports, connection.clone());
    let running = Running::start(app, host);
    eventually("every event is finished", async || {
        let claims = claims.all("likes", PARTITIONS).await.unwrap();
        let reached: Vec<_> = claims.iter().map(|claim| claim.kept.as_ref().map(|kept| kept.safe.0)).collect();
        sent.keys().all(|(partition, offset)| reached[*partition as usize].is_some_and(|safe| safe > *offset))
    })
    .await;
    assert!(running.stop(Duration::from_secs(10)).await.exit() == Exit::CLEAN);

    let letters = letters(&settings).await;
    let mut applied = 0;
    for (place, index) in &sent {
        let event = &events[*index];
        let became = letters.get(place).copied().unwrap_or("applied");
        assert_eq!(became, event.expect, "case {index}, {}", event.class);
        applied += usize::from(became == "applied");
    }
    assert_eq!(applied + letters.len(), events.len(), "nothing is lost and nothing made up");

    let likes = events.iter().filter(|event| event.like);
    let expected = likes.filter_map(|event| Some((event.post.as_deref()?, event.user.as_deref()?)));
    let expected: BTreeSet<(&str, &str)> = expected.collect();
    let table = Rows::new(&connection);
    let rows = every(async |after| table.scan(Segment { index: 0, of: 1 }, after).await).await.unwrap();
    let live = rows.iter().filter(|row| row.gone.is_none());
    let found: BTreeSet<(&str, &str)> =
        live.map(|row| (row.pk.rsplit_once('#').unwrap().0, row.sort.as_str())).collect();
    assert_eq!(found, expected, "each accepted like is a row, and nothing else is");
    assert_eq!(engines.store.emulator.stats().panics, 0);
    println!("{} events: {applied} applied, {} dead letters", events.len(), letters.len());
}

/// Produces every event, and returns its position.
async fn produce(settings: &kafka::Settings, events: &[Event]) -> BTreeMap<(u32, u64), usize> {
    let producer = &kafka::Producer::new(settings).unwrap();
    let sent = stream::iter(events.iter().enumerate()).map(|(index, event)| async move {
        let key = event.post.clone().unwrap_or_else(|| index.to_string());
        let value = event.value.as_deref().map(bytes);
        let headers: Vec<(&str, Option<Vec<u8>>)> =
            event.headers.iter().map(|(name, text)| (name.as_str(), text.as_deref().map(decoded))).collect();
        let headers: Vec<Header<'_>> = headers.iter().map(|(name, text)| (*name, text.as_deref())).collect();
        let (key, value) = (Some(key.as_bytes()), value.as_deref());
        let record = Outgoing { topic: "likes", partition: None, key, value, headers: &headers };
        let written = producer.send(record).await.expect("the cluster takes it");
        ((written.partition, written.offset.0), index)
    });
    sent.buffer_unordered(100).collect().await
}

/// The reason of every dead letter, by the position of its record.
async fn letters(settings: &kafka::Settings) -> BTreeMap<(u32, u64), &'static str> {
    let reader = kafka::TopicReader::new(settings, "bad-input", "likes.dlq").unwrap();
    let mut letters = BTreeMap::new();
    for (_, run) in records(&reader).await.unwrap() {
        for letter in run.iter().map(Letter::read) {
            let (topic, partition, offset) = letter.from.expect("a dead letter names its record");
            assert_eq!(topic, "likes");
            letters.insert((partition, offset.0), letter.reason);
        }
    }
    letters
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_request_gets_an_expected_answer() {
    let asks: Vec<Ask> = corpus(include_str!("../../bad_input/http.jsonl"));
    // The API expects a proxy, since these requests name other hosts than this machine.
    let (address, running) = serve(api::Config { forwarded_hops: 1, ..api::Config::default() }).await;
    for (index, ask) in asks.iter().enumerate() {
        // An incomplete request is only answered after its client has finished sending.
        let answer = strike(address, &bytes(&ask.request), ask.statuses.contains(&None)).await;
        let is_expected = ask.statuses.contains(&status(&answer));
        assert!(is_expected, "case {index}, {}: {answer:?}, not {:?}", ask.class, ask.statuses);
    }
    let good = b"GET /v1/posts/p/likes HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n";
    assert_eq!(status(&strike(address, good, false).await), Some(200), "the server lives on");
    assert!(running.stop(Duration::from_secs(10)).await.exit() == Exit::CLEAN);
    println!("{} requests", asks.len());
}

/// Sends a request, and reads the answer to its end.
pub(crate) async fn strike(address: SocketAddr, request: &[u8], hang_up: bool) -> String {
    let mut stream = TcpStream::connect(address).await.unwrap();
    // The server may close the connection before everything is written.
    let _ = stream.write_all(request).await;
    if hang_up {
        let _ = stream.shutdown().await;
    }
    let mut answer = Vec::new();
    let _ = timeout(PATIENCE, stream.read_to_end(&mut answer)).await.expect("the connection ends");
    String::from_utf8_lossy(&answer).into_owned()
}

/// The status of an answer, if it has a head.
pub(crate) fn status(answer: &str) -> Option<u16> {
    // A request of HTTP/1.0 is answered in HTTP/1.0.
    let status = answer.strip_prefix("HTTP/1.1 ").or_else(|| answer.strip_prefix("HTTP/1.0 "))?;
    let status = status.get(..3).and_then(|status| status.parse().ok());
    Some(status.unwrap_or_else(|| panic!("an answer without a status: {answer:?}")))
}
