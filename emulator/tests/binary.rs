//! The binary: it says where it listens, answers, and ends cleanly on a signal.

#![cfg(test)]

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// A running binary, killed if it still runs at the end of a test.
struct Running {
    child: Child,
    address: String,
}

impl Running {
    /// Starts the binary on a free port and waits for its first line.
    fn start(flags: &[&str]) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tally-emulator"));
        let mut child = command.args(["--port", "0"]).args(flags).stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        let address =
            line.trim_end().strip_prefix("listening on http://").expect("the first line says where").to_owned();
        Self { child, address }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

async fn request(address: &str, method: &str, path: &str, body: &str) -> String {
    let text = format!(
        "{method} {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    exchange(address, &text).await
}

async fn exchange(address: &str, text: &str) -> String {
    let mut connection = TcpStream::connect(address).await.unwrap();
    connection.write_all(text.as_bytes()).await.unwrap();
    let mut answer = String::new();
    connection.read_to_string(&mut answer).await.unwrap();
    answer
}

#[tokio::test]
async fn it_ends_with_zero_on_sigterm_while_a_connection_is_open() {
    let mut running = Running::start(&[]);
    let _open = TcpStream::connect(&running.address).await.unwrap();
    assert!(request(&running.address, "GET", "/", "").await.starts_with("HTTP/1.1 200 "));
    let pid = running.child.id().to_string();
    assert!(Command::new("kill").args(["-TERM", &pid]).status().unwrap().success());
    let ended = tokio::task::spawn_blocking(move || running.child.wait());
    let status = tokio::time::timeout(Duration::from_secs(10), ended).await.expect("it ends soon").unwrap().unwrap();
    assert_eq!(status.code(), Some(0));
}

#[tokio::test]
async fn the_control_routes_answer_only_when_they_were_asked_for() {
    let quiet = Running::start(&[]);
    assert!(request(&quiet.address, "GET", "/_control/stats", "").await.starts_with("HTTP/1.1 400 "));
    let controlled = Running::start(&["--control"]);
    let address = &controlled.address;
    assert!(request(address, "GET", "/_control/stats", "").await.contains(r#""panics":0"#));
    let rules = r#"{"rules":[{"fault":"outage","for_ms":5}]}"#;
    assert!(request(address, "POST", "/_control/fault", rules).await.contains(r#""fault":"outage""#));
    assert!(request(address, "POST", "/_control/clock", r#"{"advance_ms":5}"#).await.contains("now_ms"));
    assert!(request(address, "POST", "/_control/split", r#"{"table":"none"}"#).await.starts_with("HTTP/1.1 400 "));
    assert!(request(address, "POST", "/_control/dance", "{}").await.starts_with("HTTP/1.1 404 "));
    let trim = |host: &str, origin: &str| {
        format!(
            "POST /_control/trim HTTP/1.1\r\nHost: {host}\r\n{origin}Content-Type: text/plain\r\nConnection: close\r\n\
             Content-Length: 17\r\n\r\n{{\"table\":\"likes\"}}"
        )
    };
    for foreign in [trim(address, "Origin: http://evil.example\r\n"), trim("evil.example:8000", "")] {
        assert!(exchange(address, &foreign).await.starts_with("HTTP/1.1 403 "), "{foreign}");
    }
    assert!(exchange(address, &trim(address, "")).await.starts_with("HTTP/1.1 400 "), "there is no such table");
}
