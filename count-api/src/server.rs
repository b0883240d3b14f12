//! The public listener of the HTTP API. It accepts connections of HTTP/1 and HTTP/2 within limits, passes their
//! requests to `routes.rs`, logs why a connection ended badly, and drains all of them when the process stops.

mod alarm;
mod http2;
mod preface;

use std::error::Error as _;
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::{Either, select};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tally_service::http::{Acceptor, Ending, HEADER_BYTES, hanging_up, to_its_end};
use tally_service::{Limits, Stop, Task};
use tokio::io::{AsyncRead, AsyncWrite, join};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;

use crate::limits::Peer;
use crate::metrics::{HTTP_CONNECTIONS, HTTP_REFUSED};
use crate::routes::Front;

use alarm::Alarm;
use preface::is_http2;

/// The most headers of a request.
const HEADERS: usize = 64;

/// The files that are kept for other uses: 256 connections of the admin listener, those to the tables, and some more.
const OTHERS: usize = 768;

/// The listener and the routes that it serves.
pub struct Server {
    acceptor: Acceptor,
    front: Front,
    limits: Limits,
}

/// Lowers the number of connections to what the process may have open, and leaves room for the admin listener, the
/// tables, the cache and Kafka.
pub(crate) fn lowered(limits: Limits, open_files: Option<u64>) -> Limits {
    let Some(open_files) = open_files else { return limits };
    let open_files = usize::try_from(open_files).unwrap_or(usize::MAX);
    let room = (open_files - OTHERS.min(open_files / 2)).max(1);
    if room >= limits.connections {
        return limits;
    }
    tracing::warn!(
        connections = room,
        asked = limits.connections,
        open_files,
        "fewer connections are taken than --connections says: this process may not open more files (ulimit -n)"
    );
    Limits { connections: room, ..limits }
}

impl Server {
    /// Serves `front` on `listener`.
    pub fn new(listener: TcpListener, front: Front, limits: Limits) -> Self {
        Self { acceptor: Acceptor::new(listener, limits.connections), front, limits }
    }
}

/// Serves a connection until the client closes it, or until `ending` fires and the current answer is finished.
fn serve(
    front: &Front,
    limits: Limits,
    stream: TcpStream,
    peer: SocketAddr,
    ending: Ending,
) -> impl Future<Output = ()> + Send + use<> {
    let (front, peer) = (front.clone(), Peer::from(peer.ip()));
    let counted = HTTP_CONNECTIONS.one_more(&[]);
    async move {
        let _counted = counted;
        let (reading, writing) = stream.into_split();
        match select(pin!(timeout(limits.header_time, is_http2(reading))), ending).await {
            Either::Left((Ok(Ok((is_http2, reading))), ending)) => {
                let stream = join(reading, hanging_up(writing, limits.unread_time));
                version(is_http2, stream, front, peer, limits, ending).await;
            }
            // The client left before it sent a request.
            Either::Left((Ok(Err(_)), _)) | Either::Right(_) => {}
            Either::Left((Err(_), _)) => refused(&peer, "slow", None),
        }
    }
}

/// Serves a connection in the version of HTTP that it began with.
async fn version(
    is_http2: bool,
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    front: Front,
    peer: Peer,
    limits: Limits,
    ending: Ending,
) {
    let (stream, heard) = (TokioIo::new(stream), Arc::new(Exchanges::default()));
    if is_http2 {
        match http2::serve(stream, front, peer.clone(), Arc::clone(&heard), limits.header_time, ending).await {
            http2::Ended::Broken(error) if !heard.all_answered() => broken(&peer, &error),
            http2::Ended::Idle => refused(&peer, "slow", None),
            http2::Ended::Well | http2::Ended::Broken(_) => {}
        }
        return;
    }
    let (answering, hearing) = (peer.clone(), Arc::clone(&heard));
    let service = service_fn(move |request: hyper::Request<Incoming>| {
        let heard = Arc::clone(&hearing);
        heard.asked.fetch_add(1, Ordering::Relaxed);
        front.answer(request, &answering).inspect(move |_| _ = heard.answered.fetch_add(1, Ordering::Relaxed))
    });
    match to_its_end(http1(limits.header_time).serve_connection(stream, service), ending).await {
        Err(error) if !heard.explains(&error) => broken(&peer, &error),
        Ok(()) | Err(_) => {}
    }
}

/// Returns how to serve a connection of HTTP/1. Each has a timer of its own.
fn http1(header_time: Duration) -> http1::Builder {
    let mut http = http1::Builder::new();
    http.timer(Alarm::new())
        .header_read_timeout(header_time)
        .max_header_size(HEADER_BYTES)
        .max_headers(HEADERS)
        // Most answers are small, and a copy costs less than a system call with two parts.
        .writev(false);
    http
}

/// The numbers of requests and answers of a connection.
#[derive(Debug, Default)]
struct Exchanges {
    asked: AtomicUsize,
    answered: AtomicUsize,
}

impl Exchanges {
    /// Returns whether this end needs no log line: the connection had requests and was then idle, or its client left
    /// before an answer, which was logged.
    fn explains(&self, error: &hyper::Error) -> bool {
        let was_idle = error.is_timeout() && self.asked.load(Ordering::Relaxed) > 0;
        was_idle || error.is_incomplete_message() && self.all_answered()
    }

    /// Returns whether there were requests and all were answered.
    fn all_answered(&self) -> bool {
        let (asked, answered) = (self.asked.load(Ordering::Relaxed), self.answered.load(Ordering::Relaxed));
        asked > 0 && asked == answered
    }
}

/// Logs that a connection ended before a request was complete, or within an answer.
fn broken(peer: &Peer, error: &hyper::Error) {
    let reason = if error.is_timeout() {
        "slow"
    } else if error.is_parse_too_large() {
        "too_large"
    } else if error.is_parse() {
        "malformed"
    } else if is_unread(error) {
        "unread"
    } else {
        "broken_off"
    };
    refused(peer, reason, Some(error));
}

/// Logs why a connection is not served any more. One that sent no request in time has no error.
fn refused(peer: &Peer, reason: &'static str, error: Option<&hyper::Error>) {
    HTTP_REFUSED.counter(&[reason]).increment(1);
    let cause = error.and_then(|error| error.source()).map(ToString::to_string);
    let (client, error) = (peer.as_str(), error.map(tracing::field::display));
    tracing::info!(target: "tally_count_api::access", client, reason, error, cause, "refused");
}

fn is_unread(error: &hyper::Error) -> bool {
    let cause = error.source().and_then(|cause| cause.downcast_ref::<io::Error>());
    cause.is_some_and(|cause| cause.kind() == io::ErrorKind::TimedOut)
}

impl Task for Server {
    async fn run(self, stop: Stop) -> anyhow::Result<()> {
        let Self { acceptor, front, limits } = self;
        acceptor.run(&stop, |stream, peer, ending| serve(&front, limits, stream, peer, ending)).await;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_leave_room_for_other_files_and_are_as_many_as_asked_where_there_is_room() {
        let limits = |connections| Limits { connections, header_time: Duration::ZERO, unread_time: Duration::ZERO };
        let within = |connections, open_files| lowered(limits(connections), open_files).connections;
        assert_eq!(within(10_000, None), 10_000);
        assert_eq!(within(10_000, Some(20_000)), 10_000);
        assert_eq!(within(10_000, Some(10_000)), 10_000 - OTHERS);
        assert_eq!(within(10_000, Some(1024)), 512);
        assert_eq!(within(100, Some(1024)), 100);
        assert_eq!(within(10_000, Some(1)), 1);
    }
}
