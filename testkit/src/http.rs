//! A minimal HTTP client, with which tests ask services: one request per connection.

use std::fmt::Display;
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpStream, ToSocketAddrs};
use tokio::time::timeout;

/// How long an answer may take.
const LIMIT: Duration = Duration::from_secs(10);

/// An HTTP response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The status code.
    pub status: u16,
    /// The status line and the headers.
    pub head: String,
    /// The body.
    pub body: String,
}

/// Sends a GET for `path`, and returns `None` if there is no complete response.
pub async fn get(address: impl ToSocketAddrs + Display, path: &str) -> Option<Answer> {
    get_within(address, path, LIMIT).await
}

/// Like [`get`], with another time limit.
pub async fn get_within(address: impl ToSocketAddrs + Display, path: &str, limit: Duration) -> Option<Answer> {
    let host = format!("host: {address}\r\n");
    timeout(limit, send(address, &format!("GET {path}"), &host, "")).await.ok()?
}

/// Sends a request; `line` is its method and path, and each of `headers` ends in `\r\n`.
pub async fn send(address: impl ToSocketAddrs, line: &str, headers: &str, body: impl AsRef<[u8]>) -> Option<Answer> {
    let body = body.as_ref();
    let length = body.len();
    let head = format!("{line} HTTP/1.1\r\n{headers}connection: close\r\ncontent-length: {length}\r\n\r\n");
    exchange(address, [head.as_bytes(), body].concat()).await
}

/// Sends these bytes and returns the response.
pub async fn exchange(address: impl ToSocketAddrs, request: impl AsRef<[u8]>) -> Option<Answer> {
    let mut stream = TcpStream::connect(address).await.ok()?;
    stream.write_all(request.as_ref()).await.ok()?;
    let mut said = Vec::new();
    stream.read_to_end(&mut said).await.ok()?;
    let (head, body) = std::str::from_utf8(&said).ok()?.split_once("\r\n\r\n")?;
    let status = head.strip_prefix("HTTP/1.1 ")?.get(..3)?.parse().ok()?;
    Some(Answer { status, head: head.to_owned(), body: body.to_owned() })
}
