//! A small HTTP/1.1 client for this machine's own listeners: one connection, one request at a time, JSON both ways.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use serde_json::Value;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufStream};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// How long an answer may take.
const PATIENCE: Duration = Duration::from_secs(5);
/// The longest answer.
const MOST_BYTES: usize = 16 << 20;

/// A connection that is opened when it is needed.
pub(crate) struct Client {
    address: SocketAddr,
    stream: Option<BufStream<TcpStream>>,
}

impl Client {
    /// To the listener at `address`.
    pub(crate) fn new(address: SocketAddr) -> Self {
        Self { address, stream: None }
    }

    /// What `path` answers.
    pub(crate) async fn get(&mut self, path: &str) -> anyhow::Result<Value> {
        self.ask("GET", path, "", &Value::Null).await
    }

    /// What `path` answers to `body`, sent with more `headers`, each ended by CRLF.
    pub(crate) async fn post(&mut self, path: &str, headers: &str, body: &Value) -> anyhow::Result<Value> {
        self.ask("POST", path, headers, body).await
    }

    async fn ask(&mut self, method: &str, path: &str, headers: &str, body: &Value) -> anyhow::Result<Value> {
        // Taken out, so that a connection that broke half-way is not used again.
        let stream = self.stream.take();
        let exchange = async {
            let mut stream = match stream {
                Some(stream) => stream,
                None => {
                    let stream = TcpStream::connect(self.address).await?;
                    stream.set_nodelay(true)?;
                    BufStream::new(stream)
                }
            };
            let body = if body.is_null() { String::new() } else { body.to_string() };
            let head =
                format!("{method} {path} HTTP/1.1\r\nhost: {}\r\ncontent-length: {}\r\n", self.address, body.len());
            stream.write_all(format!("{head}{headers}\r\n{body}").as_bytes()).await?;
            stream.flush().await?;
            let answer = answer(&mut stream).await?;
            anyhow::Ok((answer, stream))
        };
        let exchanged = timeout(PATIENCE, exchange).await.context("no answer in time").flatten();
        let (answer, stream) = exchanged.with_context(|| format!("cannot ask {} for {path}", self.address))?;
        self.stream = Some(stream);
        let (status, body) = answer;
        ensure!((200..300).contains(&status), "{path} answered {status}: {}", String::from_utf8_lossy(&body));
        serde_json::from_slice(&body).with_context(|| format!("{path} answered no JSON"))
    }
}

/// The status and the body of one answer.
async fn answer(stream: &mut BufStream<TcpStream>) -> anyhow::Result<(u16, Vec<u8>)> {
    let mut line = String::new();
    stream.read_line(&mut line).await?;
    let status = line.split(' ').nth(1).and_then(|status| status.parse().ok());
    let Some(status) = status else { bail!("not an HTTP answer") };
    let mut length = 0;
    loop {
        line.clear();
        stream.read_line(&mut line).await?;
        let Some((name, value)) = line.trim_end().split_once(':') else { break };
        if name.eq_ignore_ascii_case("content-length") {
            length = value.trim().parse().context("a content length that is no number")?;
        }
    }
    ensure!(length <= MOST_BYTES, "an answer of {length} bytes");
    let mut body = vec![0; length];
    stream.read_exact(&mut body).await?;
    Ok((status, body))
}
