//! Tests that the API stops without harm to its clients: it finishes answers that are under way, and closes idle
//! connections at once.

use std::net::SocketAddr;
use std::time::Duration;

use tally_count_api::Config;
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;

use crate::harness::{Api, DEADLINE, With, eventually, rest, sent};

/// A connection that asks for the count of `post` and may be kept.
async fn asking(address: SocketAddr, post: &str) -> TcpStream {
    sent(address, format!("GET /v1/posts/{post}/likes HTTP/1.1\r\nhost: localhost\r\n\r\n")).await
}

#[tokio::test]
async fn answers_under_way_are_finished_and_idle_connections_end_at_once() {
    let mut config = Config::default();
    // Without the stop, nothing here ends an idle connection or an answer.
    (config.limits.header_time, config.table_budget) = (2 * DEADLINE, 2 * DEADLINE);
    let api = Api::start(config, With::default()).await;
    api.plant("p", 3, 3).await;
    let silent = TcpStream::connect(api.address).await.unwrap();
    let mut idle = asking(api.address, "q").await;
    let mut answer = [0; 12];
    idle.read_exact(&mut answer).await.unwrap();
    assert_eq!(&answer, b"HTTP/1.1 200");
    let before = api.tables.reads();
    api.tables.slow_down(Duration::from_secs(1));
    let under_way = asking(api.address, "p").await;
    eventually("its read is under way", async || api.tables.reads() > before).await;

    let address = api.address;
    let ending = api.running.stop(Duration::from_secs(60));
    let clients = async move {
        rest(idle).await;
        assert_eq!(rest(silent).await, "");
        assert!(TcpStream::connect(address).await.is_err(), "nothing new is accepted");
        let answer = rest(under_way).await;
        assert!(answer.starts_with("HTTP/1.1 200") && answer.contains(r#""likes":3,"#), "{answer}");
        assert!(answer.contains("connection: close"), "{answer}");
    };
    let (shutdown, ()) = tokio::join!(ending, clients);
    assert!(shutdown.exit().is_clean());
}
