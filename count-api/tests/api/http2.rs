//! Tests that the API serves HTTP/2 without TLS beside HTTP/1.1, on the same port.

use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::join_all;
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http2::{SendRequest, handshake};
use hyper::{Request, Version};
use hyper_util::rt::{TokioExecutor, TokioIo};
use serde_json::json;
use tally_count_api::{App, Config};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::harness::{Answer, Api, DEADLINE, WRITING, With, eventually, get, rest, sent};

/// A client's side of a connection.
struct Client {
    sender: SendRequest<Full<Bytes>>,
    connection: JoinSet<hyper::Result<()>>,
}

impl Client {
    async fn of(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).await.unwrap();
        let (sender, running) = handshake(TokioExecutor::new(), TokioIo::new(stream)).await.unwrap();
        let mut connection = JoinSet::new();
        connection.spawn(running);
        Self { sender, connection }
    }

    async fn ask(&self, request: Request<Full<Bytes>>) -> hyper::Result<Answer> {
        let mut sender = self.sender.clone();
        sender.ready().await?;
        let (head, body) = timeout(DEADLINE, sender.send_request(request)).await.expect("in time")?.into_parts();
        let body = body.collect().await?.to_bytes();
        assert_eq!(head.version, Version::HTTP_2);
        Ok(Answer { status: head.status, headers: head.headers, body })
    }

    /// Waits until the API ends the connection.
    async fn ended(mut self) {
        timeout(DEADLINE, self.connection.join_next()).await.expect("it ends in time");
    }
}

fn of(api: &Api, target: &str) -> hyper::http::request::Builder {
    Request::get(format!("http://{}{target}", api.address))
}

fn empty(request: hyper::http::request::Builder) -> Request<Full<Bytes>> {
    request.body(Full::default()).unwrap()
}

#[tokio::test]
async fn many_requests_share_a_connection_and_the_port_answers_both_versions() {
    let api = Api::start(Config::default(), WRITING).await;
    api.plant("p", 3, 3).await;
    let client = Client::of(api.address).await;
    let requests = (0..500).map(|_| client.ask(empty(of(&api, "/v1/posts/p/likes"))));
    for answer in join_all(requests).await {
        assert_eq!(answer.unwrap().json()["likes"], json!(3));
    }
    assert_eq!(get(api.address, "/v1/posts/p/likes").await.json()["likes"], json!(3));
    let put = Request::put(format!("http://{}/v1/posts/p/likes/u", api.address));
    assert_eq!(client.ask(empty(put)).await.unwrap().status, 202);
    let increment = Request::post(format!("http://{}/v1/posts/p/counters/views/events", api.address));
    let increment = increment.header("content-type", "application/json");
    let body = Full::from(r#"{"action":"increment"}"#);
    assert_eq!(client.ask(increment.body(body).unwrap()).await.unwrap().status, 202);
    let unknown = client.ask(empty(of(&api, "/nowhere"))).await.unwrap();
    assert_eq!((unknown.status.as_u16(), unknown.problem().as_str()), (404, "no-route"));
}

#[tokio::test]
async fn a_host_is_named_once_and_other_sites_pages_are_refused() {
    let api = Api::wired(Config::default(), With::default(), |app| App { own_pages: true, ..app }).await;
    let client = Client::of(api.address).await;
    let own = api.address.to_string();
    let asked = async |authority: &str, lines: &[(&'static str, &str)]| {
        let request = Request::get(format!("http://{authority}/v1/posts/p/likes"));
        let request = lines.iter().fold(request, |request, (name, value)| request.header(*name, *value));
        client.ask(empty(request)).await.unwrap().status.as_u16()
    };
    assert_eq!(asked(&own, &[]).await, 200);
    assert_eq!(asked(&own, &[("host", &own)]).await, 200);
    assert_eq!(asked(&own, &[("origin", &format!("http://{own}"))]).await, 200);
    assert_eq!(asked(&own, &[("host", "evil.example")]).await, 400, "two hosts");
    assert_eq!(asked("evil.example", &[]).await, 403);
    assert_eq!(asked("evil.example", &[("host", &own)]).await, 400);
    assert_eq!(asked(&own, &[("origin", "http://evil.example")]).await, 403);
}

#[tokio::test]
async fn headers_past_the_limit_are_refused_and_the_connection_lives_on() {
    let api = Api::start(Config::default(), With::default()).await;
    let client = Client::of(api.address).await;
    let large = of(&api, "/v1/posts/p/likes").header("x-large", "a".repeat(32 * 1024));
    match client.ask(empty(large)).await {
        Ok(answer) => assert_eq!(answer.status, 431),
        Err(error) => assert!(!error.is_timeout(), "{error}"),
    }
    assert_eq!(Client::of(api.address).await.ask(empty(of(&api, "/v1/posts/p/likes"))).await.unwrap().status, 200);
}

#[tokio::test]
async fn answers_under_way_are_finished_when_the_process_ends_and_streams_end() {
    let mut config = Config::default();
    (config.limits.header_time, config.table_budget) = (2 * DEADLINE, 2 * DEADLINE);
    let api = Api::start(config, With::default()).await;
    api.plant("p", 3, 3).await;
    let (idle, busy) = (Client::of(api.address).await, Client::of(api.address).await);
    assert_eq!(idle.ask(empty(of(&api, "/v1/posts/q/likes"))).await.unwrap().status, 200);
    let mut sender = idle.sender.clone();
    let listening = sender.send_request(empty(of(&api, "/v1/posts/q/likes:stream"))).await.unwrap();
    let before = api.tables.reads();
    api.tables.slow_down(Duration::from_secs(1));
    let tables = api.tables.clone();
    let asking = busy.ask(empty(of(&api, "/v1/posts/p/likes")));
    let ending = async {
        eventually("its read is under way", async || tables.reads() > before).await;
        let release = async {
            timeout(DEADLINE, listening.into_body().collect()).await.expect("the stream ends").unwrap();
            idle.ended().await;
        };
        tokio::join!(api.running.stop(Duration::from_secs(60)), release).0
    };
    let (answer, shutdown) = tokio::join!(asking, ending);
    assert_eq!(answer.unwrap().json()["likes"], json!(3));
    assert!(shutdown.exit().is_clean());
}

#[tokio::test]
async fn a_connection_without_requests_ends_and_one_that_listens_does_not() {
    let mut config = Config { heartbeat: Duration::from_millis(50), ..Config::default() };
    config.limits.header_time = Duration::from_millis(300);
    let api = Api::start(config, With::default()).await;
    let (used, listening) = (Client::of(api.address).await, Client::of(api.address).await);
    assert_eq!(used.ask(empty(of(&api, "/v1/posts/p/likes"))).await.unwrap().status, 200);
    let mut sender = listening.sender.clone();
    let mut events = sender.send_request(empty(of(&api, "/v1/posts/p/likes:stream"))).await.unwrap().into_body();
    for silent in ["", "P", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"] {
        rest(sent(api.address, silent).await).await;
    }
    used.ended().await;
    for _ in 0..30 {
        let frame = timeout(DEADLINE, events.frame()).await.expect("in time");
        assert!(frame.is_some_and(|frame| frame.is_ok()), "the stream goes on");
    }
}

/// A frame of HTTP/2.
fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// Returns whether this is GOAWAY with the code `ENHANCE_YOUR_CALM`: the head of a frame, the last stream, and the code.
fn is_calming(frame: &[u8]) -> bool {
    frame[3..9] == [7, 0, 0, 0, 0, 0] && frame[13..17] == [0, 0, 0, 11]
}

#[tokio::test]
async fn a_flood_of_requests_taken_back_is_hung_up_on() {
    const HEADERS: u8 = 1;
    const RESET: u8 = 3;
    const SETTINGS: u8 = 4;
    let mut config = Config::default();
    // Here only the flood ends the connection.
    config.limits.header_time = 2 * DEADLINE;
    let api = Api::start(config, With::default()).await;
    let mut stream = TcpStream::connect(api.address).await.unwrap();
    let mut flood = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
    flood.extend(frame(SETTINGS, 0, 0, &[]));
    // GET, http, / and an authority of one letter, by the static table.
    let head = [0x82, 0x86, 0x84, 0x41, 0x01, b'x'];
    for nth in 0..5_000_u32 {
        flood.extend(frame(HEADERS, 0x5, 2 * nth + 1, &head));
        flood.extend(frame(RESET, 0, 2 * nth + 1, &8_u32.to_be_bytes()));
    }
    let (mut reading, mut writing) = stream.split();
    let mut rest = Vec::new();
    // The API closes the connection while the client still writes.
    let flooding = async { _ = writing.write_all(&flood).await };
    let hung_up = async { _ = timeout(DEADLINE, reading.read_to_end(&mut rest)).await.expect("it is hung up on") };
    tokio::join!(flooding, hung_up);
    assert!(rest.windows(17).any(is_calming), "{rest:?}");
    assert_eq!(get(api.address, "/v1/posts/p/likes").await.status, 200, "others are answered");
}
