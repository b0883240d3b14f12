//! Live counts over server-sent events.

use std::net::SocketAddr;
use std::time::Duration;

use serde_json::{Value, json};
use tally_count_api::Config;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::harness::{Api, BEGAN, DEADLINE, With, eventually, get};

/// A client that listens, by hand: what a stream sends is text.
struct Listening {
    stream: TcpStream,
    text: String,
}

impl Listening {
    async fn to(address: SocketAddr, post: &str, last: Option<&str>) -> Self {
        let mut stream = TcpStream::connect(address).await.unwrap();
        let last = last.map_or_else(String::new, |last| format!("last-event-id: {last}\r\n"));
        let head = format!("GET /v1/posts/{post}/likes:stream HTTP/1.1\r\nhost: x\r\n{last}\r\n");
        stream.write_all(head.as_bytes()).await.unwrap();
        let mut listening = Self { stream, text: String::new() };
        listening.until("\r\n\r\n").await;
        listening
    }

    /// What came up to and with `mark`.
    async fn until(&mut self, mark: &str) -> String {
        let mut part = [0; 4096];
        let found = async {
            loop {
                if let Some(at) = self.text.find(mark) {
                    return self.text.drain(..at + mark.len()).collect();
                }
                let read = self.stream.read(&mut part).await.unwrap();
                assert!(read > 0, "the stream ended: {:?}", self.text);
                self.text.push_str(std::str::from_utf8(&part[..read]).unwrap());
            }
        };
        timeout(DEADLINE, found).await.expect("it comes in time")
    }

    /// The next event: its id and its data.
    async fn event(&mut self) -> (String, Value) {
        let id = self.until("id: ").await;
        assert!(!id.contains("data: "), "{id:?}");
        let id = self.until("\n").await.trim().to_owned();
        self.until("data: ").await;
        let data = self.until("\n").await;
        (id, serde_json::from_str(&data).unwrap())
    }
}

fn quick() -> Config {
    Config { heartbeat: Duration::from_millis(200), local_ttl: Duration::from_millis(20), ..Config::default() }
}

#[tokio::test]
async fn a_listener_hears_the_count_now_and_at_each_change() {
    let api = Api::start(quick(), With::default()).await;
    api.plant("p", 1, 1);
    let mut listening = Listening::to(api.address, "p", None).await;
    let (id, data) = listening.event().await;
    assert_eq!(id, "1.1");
    assert_eq!(data, json!({"post_id": "p", "likes": 1, "version": 1, "exact": true, "as_of": BEGAN.0}));
    api.plant("p", 5, 2);
    let (id, data) = listening.event().await;
    assert_eq!((id.as_str(), &data["likes"]), ("2.1", &json!(5)));
    listening.until(":\n").await;
}

#[tokio::test]
async fn a_client_that_reconnects_hears_only_what_is_new() {
    let api = Api::start(quick(), With::default()).await;
    api.plant("p", 1, 1);
    let mut listening = Listening::to(api.address, "p", Some("1.1")).await;
    let quiet = listening.until(":\n").await;
    assert!(!quiet.contains("data"), "{quiet:?}");
    api.plant("p", 2, 2);
    assert_eq!(listening.event().await.0, "2.1");
    assert_eq!(Listening::to(api.address, "p", Some("1.1")).await.event().await.0, "2.1");
}

#[tokio::test]
async fn a_post_is_read_once_an_interval_however_many_listen() {
    let api = Api::start(quick(), With::default()).await;
    api.plant("p", 1, 1);
    let mut listening = Vec::new();
    for _ in 0..50 {
        listening.push(Listening::to(api.address, "p", None).await);
    }
    for one in &mut listening {
        one.event().await;
    }
    let before = api.counts.reads();
    for version in 2..6 {
        api.plant("p", 1, version);
        for one in &mut listening {
            one.event().await;
        }
    }
    let reads = api.counts.reads() - before;
    assert!((4..=10).contains(&reads), "{reads} reads for 4 changes and 50 listeners");
    drop(listening);
    eventually("no client listens any more, so the post is not read", async || {
        let before = api.counts.reads();
        tokio::time::sleep(Duration::from_millis(600)).await;
        api.counts.reads() == before
    })
    .await;
}

#[tokio::test]
async fn listeners_past_the_limit_are_told_to_come_back() {
    let api = Api::start(Config { listeners: 2, ..quick() }, With::default()).await;
    let first = Listening::to(api.address, "p", None).await;
    let _second = Listening::to(api.address, "q", None).await;
    let answer = get(api.address, "/v1/posts/p/likes:stream").await;
    assert_eq!((answer.status.as_u16(), answer.problem().as_str()), (503, "too-many-listeners"));
    drop(first);
    eventually("the place is free again", async || {
        let stream = TcpStream::connect(api.address).await.unwrap();
        drop(stream);
        let mut listening = TcpStream::connect(api.address).await.unwrap();
        listening.write_all(b"GET /v1/posts/p/likes:stream HTTP/1.1\r\nhost: x\r\n\r\n").await.unwrap();
        let mut head = [0; 12];
        listening.read_exact(&mut head).await.unwrap();
        &head == b"HTTP/1.1 200"
    })
    .await;
}

#[tokio::test]
async fn open_streams_do_not_hold_up_the_end() {
    let api = Api::start(quick(), With::default()).await;
    let mut listening = Listening::to(api.address, "p", None).await;
    listening.event().await;
    let began = tokio::time::Instant::now();
    assert!(api.running.stop(Duration::from_secs(20)).await.exit().is_clean());
    assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
    let mut rest = String::new();
    listening.stream.read_to_string(&mut rest).await.unwrap();
}
