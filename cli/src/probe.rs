//! The HTTP client with which `tally probe`, `tally canary` and `tally status` ask Tally's services. It has no TLS. One
//! time limit covers a request from the connection to the end of the answer.

use std::fmt;
use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::str::FromStr;
use std::time::{Duration, Instant};

use http::Uri;

/// Reading stops once an answer has this many bytes.
const ANSWER_BYTES: u64 = 4096;

/// The URL that is asked: host, port and path.
#[derive(Clone, Debug)]
pub(crate) struct Target(Uri);

/// An answer: its status, and what of its body was read.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Found {
    pub(crate) status: u16,
    pub(crate) body: String,
    /// The `Date` header: the time by the server's clock.
    #[allow(dead_code, reason = "the command that images hold asks nobody for the time")]
    pub(crate) date: Option<String>,
}

impl Target {
    /// Sends a GET for the target's path, and gives up when `within` has passed.
    ///
    /// # Errors
    /// There is no connection, no whole answer in time, or an answer that is no HTTP.
    pub(crate) fn ask(&self, within: Duration) -> io::Result<Found> {
        let path = self.0.path_and_query().map_or("/", |path| path.as_str());
        self.send("GET", path, "", within)
    }

    /// Asks the target's path or, if there is none, `/readyz`.
    ///
    /// # Errors
    /// As of [`Self::ask`].
    #[allow(dead_code, reason = "the command that images hold always names a path")]
    pub(crate) fn ask_whether_ready(&self, within: Duration) -> io::Result<Found> {
        if self.0.path() == "/" { self.send("GET", "/readyz", "", within) } else { self.ask(within) }
    }

    /// Sends a request without a body for `path`. Each of the `headers` ends with a line break.
    ///
    /// # Errors
    /// As of [`Self::ask`].
    pub(crate) fn send(&self, method: &str, path: &str, headers: &str, within: Duration) -> io::Result<Found> {
        let deadline = now() + within;
        let mut stream = self.connect(deadline)?;
        let host = self.0.authority().map_or("", |authority| authority.as_str());
        stream.set_write_timeout(Some(left(deadline)?))?;
        // In one piece: a server that answers after a first piece may close the connection before the last.
        let request = format!("{method} {path} HTTP/1.0\r\nHost: {host}\r\n{headers}Connection: close\r\n\r\n");
        stream.write_all(request.as_bytes())?;
        let mut answer = Vec::new();
        let mut part = [0; 1024];
        // The limit of each read is what is left of the whole, so that an answer that trickles in does not prolong it.
        while answer.len() < usize::try_from(ANSWER_BYTES).unwrap_or(usize::MAX) {
            stream.set_read_timeout(Some(left(deadline)?))?;
            match stream.read(&mut part)? {
                0 => break,
                read => answer.extend_from_slice(&part[..read]),
            }
        }
        understand(&answer).ok_or_else(|| io::Error::other("what it says is no HTTP"))
    }

    /// Connects to the first of the host's addresses that accepts.
    fn connect(&self, deadline: Instant) -> io::Result<TcpStream> {
        let host = self.0.host().unwrap_or_default().trim_matches(['[', ']']);
        let mut refused = io::Error::other("the name has no address");
        for address in (host, self.0.port_u16().unwrap_or(80)).to_socket_addrs()? {
            match TcpStream::connect_timeout(&address, left(deadline)?) {
                Ok(stream) => return Ok(stream),
                Err(error) => refused = error,
            }
        }
        Err(refused)
    }
}

#[expect(clippy::disallowed_methods, reason = "there is no runtime whose time could be paused")]
pub(crate) fn now() -> Instant {
    Instant::now()
}

/// Returns the time that is left until `deadline`, or an error if there is none.
fn left(deadline: Instant) -> io::Result<Duration> {
    let left = deadline.saturating_duration_since(now());
    if left.is_zero() { Err(io::ErrorKind::TimedOut.into()) } else { Ok(left) }
}

fn understand(answer: &[u8]) -> Option<Found> {
    let answer = String::from_utf8_lossy(answer);
    let (head, body) = answer.split_once("\r\n\r\n")?;
    let (version, rest) = head.split_once(' ')?;
    let status = rest.get(..3)?.parse().ok().filter(|_| version.starts_with("HTTP/1."))?;
    let headers = head.lines().filter_map(|line| line.split_once(':'));
    let date = headers.into_iter().find(|(name, _)| name.eq_ignore_ascii_case("date"));
    Some(Found { status, body: body.to_owned(), date: date.map(|(_, value)| value.trim().to_owned()) })
}

impl FromStr for Target {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let uri: Uri = text.parse().map_err(|_| "not a URL")?;
        match uri.scheme_str() {
            Some("http") if uri.host().is_some_and(|host| !host.is_empty()) => Ok(Self(uri)),
            Some("https") => Err("probes have no TLS: ask the admin port of the service itself"),
            _ => Err("write a URL such as http://127.0.0.1:9090/livez"),
        }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_its_status_and_its_body() {
        let found = understand(b"HTTP/1.1 503 Service Unavailable\r\ndate: d:e\r\n\r\nnot ready");
        assert_eq!(found, Some(Found { status: 503, body: "not ready".to_owned(), date: Some("d:e".to_owned()) }));
        for other in ["", "HTTP/1.1 200", "SSH-2.0 200 \r\n\r\n", "HTTP/1.1 2\r\n\r\n", "HTTP/1.1 abc\r\n\r\n"] {
            assert_eq!(understand(other.as_bytes()), None, "{other}");
        }
    }

    #[test]
    fn a_target_is_a_url_without_tls() {
        for good in ["http://127.0.0.1:9090/livez", "http://[::1]:9090/readyz?x=y", "http://api"] {
            assert!(good.parse::<Target>().is_ok(), "{good}");
        }
        for bad in ["", "livez", "127.0.0.1:9090", "https://api/livez", "ftp://api", "http://"] {
            assert!(bad.parse::<Target>().is_err(), "{bad}");
        }
    }
}
