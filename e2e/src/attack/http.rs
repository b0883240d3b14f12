//! One GET over a connection of its own: as much HTTP as asking a service takes.

use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// How long an answer may take.
const LIMIT: Duration = Duration::from_secs(10);

/// What was answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) body: String,
}

/// Asks `address` for `path`; `None` where there was no whole answer.
pub(crate) async fn get(address: SocketAddr, path: &str) -> Option<Answer> {
    get_within(address, path, LIMIT).await
}

/// The same, where the answer may take this long.
pub(crate) async fn get_within(address: SocketAddr, path: &str, limit: Duration) -> Option<Answer> {
    timeout(limit, asked(address, path)).await.ok()?
}

async fn asked(address: SocketAddr, path: &str) -> Option<Answer> {
    let mut stream = TcpStream::connect(address).await.ok()?;
    let request = format!("GET {path} HTTP/1.1\r\nhost: attack\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.ok()?;
    let mut said = Vec::new();
    stream.read_to_end(&mut said).await.ok()?;
    parsed(&said)
}

fn parsed(said: &[u8]) -> Option<Answer> {
    let (head, body) = std::str::from_utf8(said).ok()?.split_once("\r\n\r\n")?;
    let status = head.strip_prefix("HTTP/1.1 ")?.get(..3)?.parse().ok()?;
    Some(Answer { status, body: body.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_has_a_status_and_a_body_and_half_an_answer_is_none() {
        let whole = parsed(b"HTTP/1.1 503 Service Unavailable\r\nretry-after: 1\r\n\r\n{}");
        assert_eq!(whole, Some(Answer { status: 503, body: "{}".to_owned() }));
        assert_eq!(parsed(b"HTTP/1.1 200 OK\r\n"), None);
        assert_eq!(parsed(b""), None);
    }
}
